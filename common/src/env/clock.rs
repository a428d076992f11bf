//! Time: UTC for what users see and for expiry, boot time for leases and timeouts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A clock.
pub trait Clock: Send + Sync + 'static {
    /// UTC, milliseconds since 1970. May jump.
    fn now_ms(&self) -> u64;
    /// Time since boot, counting suspension (CLOCK_BOOTTIME). Never goes back.
    fn boot(&self) -> Duration;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }
    fn boot(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// A clock that stands still until told.
#[derive(Debug, Default)]
pub struct ManualClock {
    utc_ms: AtomicU64,
    boot_ms: AtomicU64,
}

impl ManualClock {
    /// Starts at `utc_ms`.
    pub fn at(utc_ms: u64) -> Self {
        Self { utc_ms: AtomicU64::new(utc_ms), boot_ms: AtomicU64::new(0) }
    }
    /// Lets `ms` milliseconds pass.
    pub fn advance(&self, ms: u64) {
        self.utc_ms.fetch_add(ms, Ordering::SeqCst);
        self.boot_ms.fetch_add(ms, Ordering::SeqCst);
    }
    /// Sets UTC alone, as a time server may.
    pub fn jump_to(&self, utc_ms: u64) {
        self.utc_ms.store(utc_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.utc_ms.load(Ordering::SeqCst)
    }
    fn boot(&self) -> Duration {
        Duration::from_millis(self.boot_ms.load(Ordering::SeqCst))
    }
}
