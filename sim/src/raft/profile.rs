//! What a run is like: drawn from its seed, so that some runs are calm and long and others are all faults.

use std::time::Duration;

use ozone_consensus::core::{Config, MemberId};

use crate::dice::Dice;

/// The shape of a run. Chances are per mille.
#[derive(Clone, Debug)]
pub struct Profile {
    /// First members.
    pub members: u64,
    /// Simulated time with faults.
    pub faulty_for: Duration,
    /// Chance that a message is lost.
    pub drop: u64,
    /// Chance that it comes twice.
    pub duplicate: u64,
    /// Chance that it comes much later.
    pub straggle: u64,
    /// Longest ordinary delay of a message, microseconds.
    pub delay_us_max: u64,
    /// Longest sync of a disk, microseconds.
    pub sync_us_max: u64,
    /// Longest time between two faults, microseconds.
    pub fault_us_max: u64,
    /// Longest time between two clients' requests, microseconds.
    pub client_us_max: u64,
    /// Chance of a crash between sending an output's messages and writing it.
    pub crash_in_turn: u64,
    /// Chance that entries ready to be applied are left for later.
    pub lazy_apply: u64,
    append_bytes_max: usize,
    inflight_appends_max: usize,
    cache_bytes_max: usize,
    uncommitted_bytes_max: usize,
}

impl Profile {
    /// Draws a profile.
    pub fn draw(dice: &mut Dice) -> Self {
        let rough = dice.chance(600);
        let at_most = |dice: &mut Dice, max: u64| if rough { dice.below(max) } else { 0 };
        Self {
            members: dice.between(1, 5),
            faulty_for: Duration::from_millis(dice.between(2000, 8000)),
            drop: at_most(dice, 200),
            duplicate: at_most(dice, 200),
            straggle: at_most(dice, 100),
            delay_us_max: dice.between(500, 30_000),
            sync_us_max: dice.between(100, 40_000),
            fault_us_max: dice.between(50_000, 800_000),
            client_us_max: dice.between(2_000, 40_000),
            crash_in_turn: dice.pick(&[0, 0, 1, 5]).unwrap_or(0),
            lazy_apply: dice.pick(&[0, 300, 900]).unwrap_or(0),
            append_bytes_max: dice.pick(&[1, 100, 400, 1 << 20]).unwrap_or(1),
            inflight_appends_max: dice.pick(&[1, 2, 8, 64]).unwrap_or(1),
            cache_bytes_max: dice.pick(&[0, 200, 1 << 20]).unwrap_or(0),
            uncommitted_bytes_max: dice.pick(&[100, 2000, 1 << 20]).unwrap_or(100),
        }
    }

    /// Settings of a member.
    pub(super) fn config(&self, id: MemberId, seed: u64) -> Config {
        Config {
            election_timeout: Duration::from_millis(300),
            heartbeat_interval: Duration::from_millis(60),
            append_bytes_max: self.append_bytes_max,
            inflight_appends_max: self.inflight_appends_max,
            cache_bytes_max: self.cache_bytes_max,
            uncommitted_bytes_max: self.uncommitted_bytes_max,
            reads_max: 16,
            ..Config::of(id, seed)
        }
    }

    /// The same with nothing going wrong any more.
    pub(super) fn healed(&self) -> Self {
        Self {
            drop: 0,
            duplicate: 0,
            straggle: 0,
            delay_us_max: 2_000,
            sync_us_max: 2_000,
            client_us_max: 20_000,
            crash_in_turn: 0,
            lazy_apply: 0,
            ..self.clone()
        }
    }
}
