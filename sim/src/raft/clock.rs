//! A member's clock: begins anywhere, runs fast or slow, leaps ahead as after a suspension. It never goes back, as boot time does not.

use std::time::Duration;

use crate::dice::Dice;

#[derive(Debug)]
pub(super) struct Clock {
    /// What it showed at `since_us` of simulated time.
    shown_us: u64,
    since_us: u64,
    /// Its microseconds per 1,000 simulated ones.
    pace: u64,
}

impl Clock {
    pub(super) fn new(now_us: u64, dice: &mut Dice) -> Self {
        Self { shown_us: dice.below(1_000_000_000), since_us: now_us, pace: dice.between(900, 1100) }
    }

    pub(super) fn at(&self, now_us: u64) -> Duration {
        Duration::from_micros(self.shown_us + (now_us - self.since_us) * self.pace / 1000)
    }

    /// When it will show `time`, at the earliest `now_us`.
    pub(super) fn when(&self, time: Duration, now_us: u64) -> u64 {
        let ahead = (time.as_micros() as u64).saturating_sub(self.at(now_us).as_micros() as u64);
        // Rounded up, so that it is not woken a moment too early for ever.
        now_us + (ahead * 1000).div_ceil(self.pace) + 1
    }

    fn rebase(&mut self, now_us: u64) {
        self.shown_us = self.at(now_us).as_micros() as u64;
        self.since_us = now_us;
    }

    pub(super) fn set_pace(&mut self, now_us: u64, pace: u64) {
        self.rebase(now_us);
        self.pace = pace;
    }

    pub(super) fn leap(&mut self, now_us: u64, by_us: u64) {
        self.rebase(now_us);
        self.shown_us += by_us;
    }
}
