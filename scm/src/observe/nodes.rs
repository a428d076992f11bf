//! Datanodes that registered since start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ozone_common::id::{BlockId, DatanodeId};
use ozone_proto::scm::v1::DiskVolumeReport;

use super::node_health::{Health, Intervals, health};
use super::usage::Usage;
use crate::plan::placement::Candidate;

/// LIMIT: corrupt blocks of a node that are remembered, so that each is logged once.
const CORRUPT_REMEMBERED_MAX: usize = 10_000;

/// A datanode as seen.
#[derive(Debug)]
pub struct SeenNode {
    /// One run of its process.
    pub incarnation: [u8; 16],
    /// Number of its stream; 0 = none now. A stream that was replaced no longer speaks for the node.
    pub stream: u64,
    /// Boot time of its last report.
    pub last_beat: Duration,
    /// Suspect until then, in boot time, because a writer reported it.
    pub suspect_until: Duration,
    /// Its disk volumes, as of its last report.
    pub volumes: Vec<DiskVolumeReport>,
    /// Corrupt blocks it reported since start.
    pub corrupt_blocks: u64,
    corrupt_logged: BTreeSet<BlockId>,
    /// Health that was acted upon last.
    pub acted_on: Health,
}

impl SeenNode {
    /// Its health at `now`.
    pub fn health(&self, now: Duration, intervals: &Intervals) -> Health {
        health(now.saturating_sub(self.last_beat), intervals)
    }

    /// Counts a corrupt block; true where it is the first report of it.
    pub fn note_corrupt(&mut self, block: BlockId) -> bool {
        let fresh = !self.corrupt_logged.contains(&block);
        if fresh {
            self.corrupt_blocks += 1;
            if self.corrupt_logged.len() >= CORRUPT_REMEMBERED_MAX {
                self.corrupt_logged.pop_first();
            }
            self.corrupt_logged.insert(block);
        }
        fresh
    }
}

/// Why a registration is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RefusedNode {
    /// Two processes have one id.
    #[error(
        "datanode {id} is registered by another live process (last heard of {silence_ms} ms ago); its id file was copied, or the former process still runs"
    )]
    Duplicate {
        /// Which id.
        id: DatanodeId,
        /// Silence of the other.
        silence_ms: u64,
    },
}

/// Datanodes since start.
#[derive(Debug, Default)]
pub struct Nodes {
    seen: BTreeMap<DatanodeId, SeenNode>,
    streams: u64,
}

impl Nodes {
    /// Whether a process may register under this id.
    ///
    /// # Errors
    /// Another process with this id holds a stream and was heard of within `duplicate_window`.
    pub fn check(
        &self,
        id: DatanodeId,
        incarnation: [u8; 16],
        now: Duration,
        duplicate_window: Duration,
    ) -> Result<(), RefusedNode> {
        if let Some(other) = self.seen.get(&id) {
            let silence = now.saturating_sub(other.last_beat);
            if other.stream != 0 && other.incarnation != incarnation && silence < duplicate_window {
                return Err(RefusedNode::Duplicate { id, silence_ms: silence.as_millis() as u64 });
            }
        }
        Ok(())
    }

    /// A datanode opened a stream. Gives the stream's number; an older stream of the same process is replaced.
    ///
    /// # Errors
    /// As [`Nodes::check`].
    pub fn register(
        &mut self,
        id: DatanodeId,
        incarnation: [u8; 16],
        now: Duration,
        duplicate_window: Duration,
    ) -> Result<u64, RefusedNode> {
        self.check(id, incarnation, now, duplicate_window)?;
        self.streams += 1;
        let node = self.seen.entry(id).or_insert_with(|| SeenNode {
            incarnation,
            stream: 0,
            last_beat: now,
            suspect_until: Duration::ZERO,
            volumes: Vec::new(),
            corrupt_blocks: 0,
            corrupt_logged: BTreeSet::new(),
            acted_on: Health::Healthy,
        });
        node.incarnation = incarnation;
        node.stream = self.streams;
        node.last_beat = now;
        node.suspect_until = Duration::ZERO;
        node.acted_on = Health::Healthy;
        Ok(self.streams)
    }

    /// A stream ended; true where it was the node's present one, which makes the node suspect.
    pub fn stream_ended(&mut self, id: DatanodeId, stream: u64) -> bool {
        match self.seen.get_mut(&id) {
            Some(node) if node.stream == stream => {
                node.stream = 0;
                true
            }
            _ => false,
        }
    }

    /// A report came over `stream`: the node, unless the stream was replaced.
    pub fn beat(&mut self, id: DatanodeId, stream: u64, now: Duration) -> Option<&mut SeenNode> {
        let node = self.seen.get_mut(&id).filter(|node| node.stream == stream)?;
        node.last_beat = now;
        node.acted_on = Health::Healthy;
        Some(node)
    }

    /// A writer says that these nodes failed it: others are preferred until `until`.
    pub fn suspect(&mut self, ids: &[DatanodeId], until: Duration) {
        for id in ids {
            if let Some(node) = self.seen.get_mut(id) {
                node.suspect_until = node.suspect_until.max(until);
            }
        }
    }

    /// A node.
    pub fn get(&self, id: DatanodeId) -> Option<&SeenNode> {
        self.seen.get(&id)
    }

    /// All nodes, in order of id.
    pub fn iter(&self) -> impl Iterator<Item = (DatanodeId, &SeenNode)> {
        self.seen.iter().map(|(id, node)| (*id, node))
    }

    /// Nodes of a health.
    pub fn count(&self, of: Health, now: Duration, intervals: &Intervals) -> usize {
        self.seen.values().filter(|node| node.health(now, intervals) == of).count()
    }

    /// Nodes whose health got worse since it was acted upon; they count as acted upon from now on.
    pub fn take_worsened(&mut self, now: Duration, intervals: &Intervals) -> Vec<(DatanodeId, Health)> {
        let mut found = Vec::new();
        for (id, node) in &mut self.seen {
            let health = node.health(now, intervals);
            if health > node.acted_on {
                node.acted_on = health;
                found.push((*id, health));
            }
        }
        found
    }

    /// Every node as placement sees it. `open` counts the open containers of a node.
    pub fn candidates(
        &self,
        now: Duration,
        intervals: &Intervals,
        exclude: &[DatanodeId],
        open: impl Fn(DatanodeId) -> u32,
    ) -> Vec<Candidate> {
        let one = |(id, node): (&DatanodeId, &SeenNode)| Candidate {
            id: *id,
            healthy: node.health(now, intervals) == Health::Healthy,
            suspect: node.stream == 0 || now < node.suspect_until,
            excluded: exclude.contains(id),
            available: Usage::of(&node.volumes).available,
            open_containers: open(*id),
        };
        self.seen.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVALS: Intervals = Intervals { stale: Duration::from_secs(15), dead: Duration::from_secs(300) };
    const WINDOW: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }
    fn id(n: u8) -> DatanodeId {
        DatanodeId::from_bytes([n; 16])
    }

    #[test]
    fn a_second_live_process_with_the_same_id_is_refused_and_a_restart_is_not() {
        let mut nodes = Nodes::default();
        let first = nodes.register(id(1), [1; 16], at(0), WINDOW).unwrap();
        assert!(nodes.register(id(1), [2; 16], at(2_999), WINDOW).is_err());
        let again = nodes.register(id(1), [1; 16], at(10), WINDOW).unwrap();
        assert!(again != first, "the same process over a new stream");
        assert!(nodes.beat(id(1), first, at(20)).is_none(), "the old stream no longer speaks for it");
        assert!(!nodes.stream_ended(id(1), first), "nor does its end matter");
        assert!(nodes.beat(id(1), again, at(20)).is_some());
        assert!(nodes.stream_ended(id(1), again));
        nodes.register(id(1), [2; 16], at(30), WINDOW).unwrap();
        nodes.register(id(1), [3; 16], at(30 + 3_000), WINDOW).expect("the other fell silent without closing");
    }

    #[test]
    fn worsening_is_told_once_until_the_node_returns() {
        let mut nodes = Nodes::default();
        let stream = nodes.register(id(1), [1; 16], at(0), WINDOW).unwrap();
        assert_eq!(nodes.take_worsened(at(14_999), &INTERVALS), []);
        assert_eq!(nodes.take_worsened(at(15_000), &INTERVALS), [(id(1), Health::Stale)]);
        assert_eq!(nodes.take_worsened(at(16_000), &INTERVALS), []);
        assert_eq!(nodes.take_worsened(at(300_000), &INTERVALS), [(id(1), Health::Dead)]);
        assert!(nodes.beat(id(1), stream, at(300_001)).is_some());
        assert_eq!(nodes.take_worsened(at(400_000), &INTERVALS), [(id(1), Health::Stale)]);
    }

    #[test]
    fn a_broken_stream_and_a_writers_report_make_suspects() {
        let mut nodes = Nodes::default();
        let streams: Vec<u64> = (1..=3).map(|n| nodes.register(id(n), [n; 16], at(0), WINDOW).unwrap()).collect();
        nodes.stream_ended(id(1), streams[0]);
        nodes.suspect(&[id(2), id(9)], at(100));
        let suspects = |nodes: &Nodes, now| -> Vec<bool> {
            nodes.candidates(now, &INTERVALS, &[], |_| 0).iter().map(|c| c.suspect).collect()
        };
        assert_eq!(suspects(&nodes, at(99)), [true, true, false]);
        assert_eq!(suspects(&nodes, at(100)), [true, false, false]);
        nodes.register(id(1), [7; 16], at(100), WINDOW).unwrap();
        assert_eq!(suspects(&nodes, at(100)), [false, false, false]);
        let excluded = nodes.candidates(at(100), &INTERVALS, &[id(3)], |_| 0);
        assert_eq!(excluded.iter().map(|c| c.excluded).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn a_corrupt_block_counts_once() {
        let mut nodes = Nodes::default();
        let stream = nodes.register(id(1), [1; 16], at(0), WINDOW).unwrap();
        let node = nodes.beat(id(1), stream, at(1)).unwrap();
        let block = BlockId::new(1 << 24 | 5).unwrap();
        assert_eq!([node.note_corrupt(block), node.note_corrupt(block)], [true, false]);
        assert_eq!(node.corrupt_blocks, 1);
    }
}
