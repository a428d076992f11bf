//! Repeated warnings: the first of an interval is logged, the others are counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::env::{Clock, SystemClock};

/// Lets one message through per interval and counts what it held back.
///
/// ```
/// use ozone_common::telemetry::RateLimit;
/// static LIMIT: RateLimit = RateLimit::every_ms(10_000);
/// if let Some(held_back) = LIMIT.pass() {
///     tracing::warn!(held_back, "peer does not answer");
/// }
/// ```
#[derive(Debug)]
pub struct RateLimit {
    interval_ms: u64,
    /// Boot time in milliseconds from which the next message passes.
    next_ms: AtomicU64,
    held_back: AtomicU64,
}

impl RateLimit {
    /// One message per `interval_ms` milliseconds.
    pub const fn every_ms(interval_ms: u64) -> Self {
        Self { interval_ms, next_ms: AtomicU64::new(0), held_back: AtomicU64::new(0) }
    }

    /// Whether a message may pass now: `Some` with the number of those held back since the last that did.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(SystemClock.boot().as_millis() as u64)
    }

    fn pass_at(&self, now_ms: u64) -> Option<u64> {
        let next = self.next_ms.load(Ordering::Relaxed);
        let free = now_ms >= next
            && self
                .next_ms
                .compare_exchange(next, now_ms.saturating_add(self.interval_ms), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if free {
            Some(self.held_back.swap(0, Ordering::Relaxed))
        } else {
            self.held_back.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_interval_passes_and_tells_how_many_did_not() {
        let limit = RateLimit::every_ms(100);
        let passed: Vec<_> = [1000, 1001, 1099, 1100, 1101, 5000].map(|now| limit.pass_at(now)).into();
        assert_eq!(passed, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
