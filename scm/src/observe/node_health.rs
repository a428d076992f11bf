//! HEALTHY, STALE, DEAD: a function of now and the last heartbeat.

use std::fmt;
use std::time::Duration;

/// A node's health.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Health {
    /// Heartbeats come.
    Healthy,
    /// Several were missed: nothing new is placed there.
    Stale,
    /// So many were missed that its replicas count as lost.
    Dead,
}

impl Health {
    /// Ozone's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "HEALTHY",
            Self::Stale => "STALE",
            Self::Dead => "DEAD",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// After how much silence a node is what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Intervals {
    /// STALE from here on.
    pub stale: Duration,
    /// DEAD from here on.
    pub dead: Duration,
}

/// The health of a node silent for `silence`.
pub fn health(silence: Duration, intervals: &Intervals) -> Health {
    if silence >= intervals.dead {
        Health::Dead
    } else if silence >= intervals.stale {
        Health::Stale
    } else {
        Health::Healthy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_makes_stale_then_dead() {
        let intervals = Intervals { stale: Duration::from_secs(15), dead: Duration::from_secs(300) };
        for (ms, expected) in [
            (0, Health::Healthy),
            (14_999, Health::Healthy),
            (15_000, Health::Stale),
            (299_999, Health::Stale),
            (300_000, Health::Dead),
        ] {
            assert_eq!(health(Duration::from_millis(ms), &intervals), expected, "{ms}");
        }
    }
}
