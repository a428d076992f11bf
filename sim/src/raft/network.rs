//! The network between members: loses, delays, repeats and reorders messages; links may be cut in one direction.

use std::collections::BTreeSet;

use ozone_consensus::core::MemberId;

use super::profile::Profile;
use crate::dice::Dice;

#[derive(Debug, Default)]
pub(super) struct Network {
    /// Links that carry nothing, from whom to whom.
    cut: BTreeSet<(MemberId, MemberId)>,
}

impl Network {
    /// When the copies of a message arrive, after now, in microseconds. None, one or two.
    pub(super) fn carry(&self, from: MemberId, to: MemberId, profile: &Profile, dice: &mut Dice) -> Vec<u64> {
        if self.cut.contains(&(from, to)) || dice.chance(profile.drop) {
            return Vec::new();
        }
        let copies = if dice.chance(profile.duplicate) { 2 } else { 1 };
        let delay = |dice: &mut Dice| {
            let scale = if dice.chance(profile.straggle) { 50 } else { 1 };
            scale * dice.between(50, profile.delay_us_max)
        };
        (0..copies).map(|_| delay(dice)).collect()
    }

    pub(super) fn is_cut(&self, from: MemberId, to: MemberId) -> bool {
        self.cut.contains(&(from, to))
    }

    /// Messages from `from` to `to` are lost from now on.
    pub(super) fn cut(&mut self, from: MemberId, to: MemberId) {
        self.cut.insert((from, to));
    }

    /// All links carry messages again.
    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }
}
