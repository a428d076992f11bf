//! Counts of latencies in buckets that are narrow where values are small.
//!
//! Values below 128 have a bucket each; above, every power of two is cut into 64 buckets, so that a percentile is at most 1.6 %
//! too high. The size is fixed (about 16 KiB), whatever is recorded; two histograms add up without loss.

use std::time::Duration;

/// Buckets of one power of two.
const STEPS: u64 = 64;
const STEPS_LOG2: u32 = STEPS.ilog2();
/// Values of 2^37 µs (38 hours) and more share the last bucket.
const POWER_MAX: u32 = 37;
const BUCKETS: usize = ((POWER_MAX - STEPS_LOG2 + 1) as u64 * STEPS) as usize;

/// Latencies, in microseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_us: u64,
    max_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, sum_us: 0, max_us: 0 }
    }
}

fn bucket(value: u64) -> usize {
    if value < 2 * STEPS {
        return value as usize;
    }
    let power = value.ilog2().min(POWER_MAX - 1);
    let shift = power - STEPS_LOG2;
    let step = (value >> shift).min(2 * STEPS - 1) - STEPS;
    (u64::from(shift) * STEPS + STEPS + step) as usize
}

/// The largest value of a bucket.
fn top(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    ((STEPS + bucket % STEPS + 1) << shift) - 1
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket(us)] += 1;
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        self.max_us = self.max_us.max(us);
    }

    /// Adds what another one counted.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.max_us = self.max_us.max(other.max_us);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest.
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// The arithmetic mean; 0 where nothing was counted.
    pub fn mean_us(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_us as f64 / self.count as f64 }
    }

    /// The least latency that `share` (0 to 1) of all do not exceed, up to the width of a bucket; 0 where nothing was counted.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return top(at).min(self.max_us);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|us| histogram.record(Duration::from_micros(*us)));
        histogram
    }

    #[test]
    fn buckets_are_in_order_and_narrow() {
        let mut last = 0;
        for value in (0..5000).chain((13..64).map(|power| 1 << power)).chain([u64::MAX]) {
            let at = bucket(value);
            assert!(at >= last && at < BUCKETS, "{value}");
            last = at;
            if value < 1 << POWER_MAX {
                assert!(top(at) >= value, "{value}");
                assert!((top(at) - value) as f64 <= value as f64 / 64.0, "{value}");
            }
        }
        for at in 1..BUCKETS {
            assert_eq!(bucket(top(at - 1) + 1), at);
        }
    }

    #[test]
    fn quantiles_of_known_values() {
        let histogram = of(&(1..=1000).collect::<Vec<_>>());
        for (share, exact) in [(0.0, 1), (0.5, 500), (0.95, 950), (0.99, 990), (1.0, 1000)] {
            let got = histogram.quantile_us(share);
            assert!(got >= exact && got as f64 <= exact as f64 * 1.016, "{share}: {got}");
        }
        assert_eq!((histogram.count(), histogram.max_us(), histogram.mean_us()), (1000, 1000, 500.5));
        let nothing = Histogram::default();
        assert_eq!((nothing.quantile_us(0.5), nothing.mean_us()), (0, 0.0));
        let one = of(&[70_001]);
        assert_eq!(one.quantile_us(0.5), 70_001, "never more than the longest");
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (mut a, b) = (of(&[1, 5, 900, 100_000]), of(&[7, 2_000_000, 5]));
        a.add(&b);
        assert_eq!(a, of(&[1, 5, 900, 100_000, 7, 2_000_000, 5]));
    }
}
