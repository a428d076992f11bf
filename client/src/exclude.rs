//! Datanodes that failed a writer: avoided for a while, then tried again.

use std::collections::HashMap;
use std::time::Duration;

use ozone_common::id::DatanodeId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// LIMIT: datanodes remembered, and named to the key-space manager in one request.
const NODES_MAX: usize = 64;

/// The set. Entries age out, so that a datanode that came back is used again.
pub struct Excluded {
    keep: Duration,
    until: Mutex<HashMap<DatanodeId, Instant>>,
}

impl Excluded {
    /// An empty set whose entries last for `keep`.
    pub fn new(keep: Duration) -> Self {
        Self { keep, until: Mutex::default() }
    }

    /// Avoids a datanode from now on.
    pub fn add(&self, node: DatanodeId) {
        let now = Instant::now();
        let mut until = self.until.lock();
        until.retain(|_, end| *end > now);
        if until.len() >= NODES_MAX
            && let Some(oldest) = until.iter().min_by_key(|(_, end)| **end).map(|(node, _)| *node)
        {
            until.remove(&oldest);
        }
        until.insert(node, now + self.keep);
    }

    /// Whether it is avoided now.
    pub fn contains(&self, node: DatanodeId) -> bool {
        let until = self.until.lock();
        !until.is_empty() && until.get(&node).is_some_and(|end| *end > Instant::now())
    }

    /// All that are avoided now, in order of their ids.
    pub fn now(&self) -> Vec<DatanodeId> {
        let now = Instant::now();
        let mut nodes: Vec<_> =
            self.until.lock().iter().filter(|(_, end)| **end > now).map(|(node, _)| *node).collect();
        nodes.sort_unstable();
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_age_out_and_are_bounded() {
        let set = Excluded::new(Duration::from_millis(60));
        let node = |n: u8| DatanodeId::from_bytes([n; 16]);
        set.add(node(1));
        assert!(set.contains(node(1)) && !set.contains(node(2)));
        let added = std::time::Instant::now();
        while set.contains(node(1)) {
            assert!(added.elapsed() < Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(1));
        }
        set.add(node(2));
        assert_eq!(set.now(), [node(2)]);
        let long = Excluded::new(Duration::from_secs(60));
        for n in 0..200 {
            long.add(node(n));
        }
        assert_eq!(long.now().len(), NODES_MAX);
        assert!(long.contains(node(199)));
    }
}
