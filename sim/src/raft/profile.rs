//! What a run is like: drawn from its seed, so that some runs are calm and long and others are all faults.

use std::time::Duration;

use ozone_consensus::core::{Config, MemberId};

use crate::dice::Dice;

/// Kinds of faults, see [`Fault`].
const FAULTS: usize = Fault::ALL.len();

/// What can go wrong, or be done by admins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A member loses power.
    Crash,
    /// All members lose power.
    CrashAll,
    /// Links are cut, perhaps in one direction.
    CutLinks,
    /// All links work again.
    MendLinks,
    /// A disk becomes slow, or fast again.
    Disk,
    /// A clock runs at another pace, or leaps ahead.
    Clock,
    /// A follower starts an election out of turn.
    Election,
    /// The leader is to hand over.
    Transfer,
    /// The membership is to change.
    Members,
    /// A member takes a snapshot and cuts its log.
    Snapshot,
    /// A member's state becomes durable.
    Flush,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Crash,
        Self::CrashAll,
        Self::CutLinks,
        Self::MendLinks,
        Self::Disk,
        Self::Clock,
        Self::Election,
        Self::Transfer,
        Self::Members,
        Self::Snapshot,
        Self::Flush,
    ];
}

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
    /// How often each kind of fault is chosen, by the others of the run; some kinds are absent.
    pub weights: [u64; FAULTS],
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
        // Swarm testing: a run without some kinds of faults reaches deeper into the others.
        let weights = [0; FAULTS].map(|_| dice.pick(&[0, 0, 1, 2, 5, 10]).unwrap_or(0));
        let at_most = |dice: &mut Dice, max: u64| if rough { dice.below(max) } else { 0 };
        Self {
            members: dice.pick(&[1, 2, 3, 3, 3, 4, 5, 5]).unwrap_or(3),
            faulty_for: Duration::from_millis(dice.between(2000, 8000)),
            drop: at_most(dice, 200),
            duplicate: at_most(dice, 200),
            straggle: at_most(dice, 100),
            delay_us_max: dice.between(500, 30_000),
            sync_us_max: dice.between(100, 40_000),
            weights,
            fault_us_max: dice.between(20_000, 600_000),
            client_us_max: dice.between(2_000, 40_000),
            crash_in_turn: dice.pick(&[0, 0, 1, 5]).unwrap_or(0),
            lazy_apply: dice.pick(&[0, 300, 900]).unwrap_or(0),
            append_bytes_max: dice.pick(&[1, 100, 400, 1 << 20]).unwrap_or(1),
            inflight_appends_max: dice.pick(&[1, 2, 8, 64]).unwrap_or(1),
            cache_bytes_max: dice.pick(&[0, 200, 1 << 20]).unwrap_or(0),
            uncommitted_bytes_max: dice.pick(&[100, 2000, 1 << 20]).unwrap_or(100),
        }
    }

    /// Draws what goes wrong next.
    pub(super) fn draw_fault(&self, dice: &mut Dice) -> Option<Fault> {
        let mut drawn = dice.below(self.weights.iter().sum::<u64>().max(1));
        for (fault, weight) in Fault::ALL.into_iter().zip(self.weights) {
            if drawn < weight {
                return Some(fault);
            }
            drawn -= weight;
        }
        None
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
