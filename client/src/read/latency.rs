//! How fast each datanode has answered lately: whom to ask first, and how long to wait before asking a second one too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use ozone_common::id::DatanodeId;
use ozone_rpc::data::Target;
use parking_lot::Mutex;
use tokio::time::Instant;

/// LIMIT: datanodes remembered.
const NODES_MAX: usize = 4096;
/// A datanode that failed is asked last for so long.
const FAILED_FOR: Duration = Duration::from_secs(10);
/// Replicas whose mean is within this factor of the best share the reads.
const ALIKE: u32 = 2;
/// Means below this are all alike.
const ALIKE_FLOOR: Duration = Duration::from_millis(1);
/// Early hedges: each read earns a tenth of one, up to so many.
const HEDGE_COST: i64 = 10;
const HEDGES_SAVED_MAX: i64 = 100;

#[derive(Clone, Copy)]
struct Stat {
    mean: Duration,
    /// A running estimate of the 95th percentile.
    p95: Duration,
    failed_until: Option<Instant>,
}

pub(crate) struct Latencies {
    nodes: Mutex<HashMap<DatanodeId, Stat>>,
    hedge_min: Duration,
    hedge_max: Duration,
    credit: AtomicI64,
    turn: AtomicUsize,
}

impl Latencies {
    pub(crate) fn new(hedge_min: Duration, hedge_max: Duration) -> Self {
        Self {
            nodes: Mutex::default(),
            hedge_min,
            hedge_max,
            credit: AtomicI64::new(HEDGES_SAVED_MAX),
            turn: AtomicUsize::new(0),
        }
    }

    /// Takes the time from asking to the first bytes.
    pub(crate) fn record(&self, node: DatanodeId, took: Duration) {
        let mut nodes = self.nodes.lock();
        if nodes.len() >= NODES_MAX && !nodes.contains_key(&node) {
            nodes.clear();
        }
        let stat = nodes.entry(node).or_insert(Stat { mean: took, p95: took, failed_until: None });
        stat.failed_until = None;
        stat.mean = (stat.mean * 7 + took) / 8;
        // Steps up are 19 times those down, so that it rests where one in twenty is above.
        let step = (stat.p95 / 64).max(Duration::from_micros(20));
        stat.p95 = if took > stat.p95 { stat.p95 + step * 19 } else { stat.p95.saturating_sub(step) };
        stat.p95 = stat.p95.max(stat.mean);
    }

    /// The datanode failed a read.
    pub(crate) fn failed(&self, node: DatanodeId) {
        let until = Some(Instant::now() + FAILED_FOR);
        let mut nodes = self.nodes.lock();
        let unknown = Stat { mean: self.hedge_min, p95: self.hedge_min, failed_until: until };
        nodes.entry(node).or_insert(unknown).failed_until = until;
    }

    /// Indexes of `replicas`, best first: those that are about as fast as the fastest take turns, failed ones come last.
    pub(crate) fn order(&self, replicas: &[Target]) -> Vec<usize> {
        let now = Instant::now();
        let mut ranked: Vec<(bool, Duration, usize)> = {
            let nodes = self.nodes.lock();
            let rank = |(index, target): (usize, &Target)| match nodes.get(&target.datanode) {
                Some(stat) => (stat.failed_until.is_some_and(|until| until > now), stat.mean, index),
                // Unknown ones are tried: that is how they become known.
                None => (false, Duration::ZERO, index),
            };
            replicas.iter().enumerate().map(rank).collect()
        };
        ranked.sort_unstable();
        let best = ranked.first().map_or(Duration::ZERO, |(_, mean, _)| (*mean).max(ALIKE_FLOOR));
        let alike = ranked.iter().take_while(|(failed, mean, _)| !failed && *mean <= best * ALIKE).count();
        let mut order: Vec<usize> = ranked.into_iter().map(|(_, _, index)| index).collect();
        if alike > 1 {
            order[..alike].rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % alike);
        }
        order
    }

    /// How long to wait for a datanode before asking another: its own 95th percentile, within the bounds.
    pub(crate) fn hedge_after(&self, node: DatanodeId) -> Duration {
        self.credit
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |credit| Some((credit + 1).min(HEDGES_SAVED_MAX)))
            .unwrap_or_default();
        let p95 = self.nodes.lock().get(&node).map_or(self.hedge_min * 2, |stat| stat.p95);
        (p95 + p95 / 2).clamp(self.hedge_min, self.hedge_max)
    }

    /// The longest wait, after which hedging needs no credit.
    pub(crate) fn hedge_max(&self) -> Duration {
        self.hedge_max
    }

    /// Whether an early hedge is still cheap: they are at most about a tenth of all reads, so that a cluster that is slow
    /// as a whole is not made slower by them.
    pub(crate) fn take_hedge(&self) -> bool {
        let take = |credit| (credit >= HEDGE_COST).then_some(credit - HEDGE_COST);
        self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(n: u8) -> Target {
        Target { datanode: DatanodeId::from_bytes([n; 16]), host: "h".into(), port: 1 }
    }

    #[test]
    fn fast_ones_first_failed_ones_last_for_a_while() {
        let latencies = Latencies::new(Duration::from_millis(30), Duration::from_secs(1));
        let replicas = [target(0), target(1), target(2)];
        for _ in 0..100 {
            latencies.record(replicas[0].datanode, Duration::from_millis(50));
            latencies.record(replicas[1].datanode, Duration::from_millis(2));
            latencies.record(replicas[2].datanode, Duration::from_millis(3));
        }
        let firsts: Vec<usize> = (0..10).map(|_| latencies.order(&replicas)[0]).collect();
        assert!(firsts.contains(&1) && firsts.contains(&2) && !firsts.contains(&0), "{firsts:?}");
        latencies.failed(replicas[1].datanode);
        latencies.failed(replicas[2].datanode);
        assert_eq!(latencies.order(&replicas)[0], 0);
        // What it was punished for is over once it answers again, or after FAILED_FOR.
        latencies.record(replicas[1].datanode, Duration::from_millis(2));
        assert_eq!(latencies.order(&replicas)[0], 1);
        latencies
            .nodes
            .lock()
            .values_mut()
            .for_each(|stat| stat.failed_until = stat.failed_until.map(|at| at - FAILED_FOR));
        assert_ne!(latencies.order(&replicas)[0], 0);
    }

    #[test]
    fn the_percentile_settles_and_is_bounded() {
        let latencies = Latencies::new(Duration::from_millis(30), Duration::from_secs(1));
        let node = target(1).datanode;
        for i in 0..5000_u64 {
            // One in ten takes 200 ms.
            let ms = if i % 10 == 0 { 200 } else { 40 };
            latencies.record(node, Duration::from_millis(ms));
        }
        let wait = latencies.hedge_after(node);
        assert!(wait >= Duration::from_millis(100) && wait <= Duration::from_millis(450), "{wait:?}");
        for _ in 0..5000 {
            latencies.record(node, Duration::from_micros(100));
        }
        assert_eq!(latencies.hedge_after(node), Duration::from_millis(30));
        for _ in 0..5000 {
            latencies.record(node, Duration::from_secs(9));
        }
        assert_eq!(latencies.hedge_after(node), Duration::from_secs(1));
    }

    #[test]
    fn hedges_are_a_tenth_of_reads() {
        let latencies = Latencies::new(Duration::from_millis(30), Duration::from_secs(1));
        let node = target(1).datanode;
        while latencies.take_hedge() {}
        let mut hedges = 0;
        for _ in 0..1000 {
            latencies.hedge_after(node);
            hedges += i32::from(latencies.take_hedge());
        }
        assert_eq!(hedges, 100);
    }
}
