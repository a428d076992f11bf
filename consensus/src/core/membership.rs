//! Who belongs to the group, and how that changes: one member at a time.
//!
//! A change takes effect on a member as soon as the entry that carries it is in that member's log, committed or not, and is
//! taken back if the entry is cut off again. Since neighbouring memberships differ by one voter, every quorum of the one shares a
//! member with every quorum of the other, and no joint phase is needed (Ongaro's thesis, §4.1). Two rules make it sound: a new change waits
//! until the last is committed, and until the leader has committed an entry of its own term.

use std::collections::BTreeSet;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::id::{Index, MemberId};

/// The most members a group may have, learners included.
pub const MEMBERS_MAX: usize = 15;

/// The members of a group: voters elect and commit, learners only follow. Never without a voter, never one member twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    voters: BTreeSet<MemberId>,
    learners: BTreeSet<MemberId>,
}

/// What a membership is refused for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Nobody could lead.
    #[error("a group needs at least one voter")]
    NoVoter,
    /// Voter and learner at once.
    #[error("member {0} is both voter and learner; it must be one of them")]
    Twice(MemberId),
    /// Beyond [`MEMBERS_MAX`].
    #[error("{0} members; at most 15 are allowed")]
    TooMany(usize),
    /// Not the encoding of a membership.
    #[error("{0} bytes of an encoded membership do not fit its counts or its version")]
    Encoding(usize),
}

/// A step from one membership to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A new member that follows without a vote.
    AddLearner(MemberId),
    /// A learner becomes a voter.
    Promote(MemberId),
    /// A voter becomes a learner.
    Demote(MemberId),
    /// A voter or learner leaves.
    Remove(MemberId),
}

impl Membership {
    /// A group of one.
    pub fn single(member: MemberId) -> Self {
        Self { voters: BTreeSet::from([member]), learners: BTreeSet::new() }
    }

    /// A group of these voters and learners.
    ///
    /// # Errors
    /// No voter, a member in both sets, or too many members.
    pub fn new(
        voters: impl IntoIterator<Item = MemberId>,
        learners: impl IntoIterator<Item = MemberId>,
    ) -> Result<Self, Malformed> {
        let members = Self { voters: voters.into_iter().collect(), learners: learners.into_iter().collect() };
        if members.voters.is_empty() {
            return Err(Malformed::NoVoter);
        }
        if let Some(both) = members.voters.intersection(&members.learners).next() {
            return Err(Malformed::Twice(*both));
        }
        let count = members.voters.len() + members.learners.len();
        if count > MEMBERS_MAX {
            return Err(Malformed::TooMany(count));
        }
        Ok(members)
    }

    /// Those who elect and commit.
    pub fn voters(&self) -> &BTreeSet<MemberId> {
        &self.voters
    }

    /// Those who only follow.
    pub fn learners(&self) -> &BTreeSet<MemberId> {
        &self.learners
    }

    /// Everyone, in order.
    pub fn iter(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.voters.union(&self.learners).copied()
    }

    /// Whether it elects and commits.
    pub fn is_voter(&self, member: MemberId) -> bool {
        self.voters.contains(&member)
    }

    /// Whether it belongs to the group at all.
    pub fn contains(&self, member: MemberId) -> bool {
        self.is_voter(member) || self.learners.contains(&member)
    }

    /// Whether it is the only voter: it then elects itself and commits alone.
    pub fn is_sole_voter(&self, member: MemberId) -> bool {
        self.voters.len() == 1 && self.is_voter(member)
    }

    /// Whether more than half of the voters are among `members`.
    pub fn is_quorum(&self, members: impl IntoIterator<Item = MemberId>) -> bool {
        let present: BTreeSet<_> = members.into_iter().filter(|member| self.is_voter(*member)).collect();
        present.len() > self.voters.len() / 2
    }

    /// The greatest value that more than half of the voters have reached.
    pub(super) fn reached_by_quorum<T: Ord + Copy>(&self, value: impl Fn(MemberId) -> T) -> T {
        let mut values: Vec<T> = self.voters.iter().map(|voter| value(*voter)).collect();
        values.sort_unstable();
        // In ascending order, the values from here on make up just more than a half.
        values[(values.len() - 1) / 2]
    }

    /// The membership after `change`; `None` where the change makes no sense here (unknown member, last voter, no room).
    pub fn after(&self, change: Change) -> Option<Self> {
        let (mut voters, mut learners) = (self.voters.clone(), self.learners.clone());
        let changed = match change {
            Change::AddLearner(member) => !self.contains(member) && learners.insert(member),
            Change::Promote(member) => learners.remove(&member) && voters.insert(member),
            Change::Demote(member) => voters.remove(&member) && learners.insert(member),
            Change::Remove(member) => voters.remove(&member) || learners.remove(&member),
        };
        if changed { Self::new(voters, learners).ok() } else { None }
    }

    /// Bytes of [`Membership::encode`].
    pub(super) fn encoded_len(&self) -> usize {
        3 + 8 * (self.voters.len() + self.learners.len())
    }

    /// Version byte 1, count of voters (one byte), count of learners (one byte), then each id as 8 bytes, little endian.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.encoded_len());
        bytes.put_u8(1);
        bytes.put_u8(self.voters.len() as u8);
        bytes.put_u8(self.learners.len() as u8);
        for member in self.voters.iter().chain(&self.learners) {
            bytes.put_u64_le(member.0);
        }
        bytes.freeze()
    }

    /// The opposite of [`Membership::encode`].
    ///
    /// # Errors
    /// Bytes that it cannot have made.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, Malformed> {
        let len = bytes.len();
        if len < 3 || bytes[0] != 1 {
            return Err(Malformed::Encoding(len));
        }
        let (voters, learners) = (usize::from(bytes[1]), usize::from(bytes[2]));
        bytes.advance(3);
        if bytes.len() != 8 * (voters + learners) {
            return Err(Malformed::Encoding(len));
        }
        let ids: Vec<MemberId> =
            std::iter::repeat_with(|| MemberId(bytes.get_u64_le())).take(voters + learners).collect();
        let members = Self::new(ids[..voters].iter().copied(), ids[voters..].iter().copied())?;
        if members.voters.len() + members.learners.len() == ids.len() {
            Ok(members)
        } else {
            Err(Malformed::Encoding(len))
        }
    }
}

/// The memberships of the log, by the index at which each begins. The first is that of the last snapshot; the last one is in force.
#[derive(Debug)]
pub(super) struct History(Vec<(Index, Membership)>);

impl History {
    pub(super) fn new(since: Index, members: Membership) -> Self {
        Self(vec![(since, members)])
    }

    /// The membership in force, and where it begins.
    pub(super) fn latest(&self) -> &(Index, Membership) {
        self.0.last().expect("a history begins with the membership of a snapshot and keeps at least one")
    }

    /// The membership before the one in force, if anybody may still ask for it.
    pub(super) fn previous(&self) -> Option<&Membership> {
        self.0.len().checked_sub(2).map(|position| &self.0[position].1)
    }

    /// The membership in force after the entry at `index`.
    pub(super) fn at(&self, index: Index) -> &Membership {
        let begun = self.0.partition_point(|(since, _)| *since <= index);
        &self.0[begun.saturating_sub(1)].1
    }

    /// An entry with a membership came into the log.
    pub(super) fn push(&mut self, at: Index, members: Membership) {
        assert!(at > self.latest().0, "memberships come in the order of the log");
        self.0.push((at, members));
    }

    /// Entries from `from` on were cut off.
    pub(super) fn truncate_from(&mut self, from: Index) {
        let kept = self.0.partition_point(|(since, _)| *since < from);
        self.0.truncate(kept.max(1));
    }

    /// Nobody asks for memberships before `index` any more.
    pub(super) fn forget_before(&mut self, index: Index) {
        let begun = self.0.partition_point(|(since, _)| *since <= index);
        self.0.drain(..begun.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(voters: &[u64], learners: &[u64]) -> Membership {
        Membership::new(voters.iter().map(|id| MemberId(*id)), learners.iter().map(|id| MemberId(*id))).unwrap()
    }

    #[test]
    fn a_quorum_is_more_than_half_of_the_voters() {
        let check = |voters: &[u64], present: &[u64], expected| {
            assert_eq!(
                group(voters, &[9]).is_quorum(present.iter().map(|id| MemberId(*id))),
                expected,
                "{voters:?} {present:?}"
            );
        };
        check(&[1], &[], false);
        check(&[1], &[1], true);
        check(&[1, 2], &[1], false);
        check(&[1, 2, 3], &[1, 9], false);
        check(&[1, 2, 3], &[1, 1, 1], false);
        check(&[1, 2, 3], &[1, 3], true);
        check(&[1, 2, 3, 4], &[1, 3], false);
        check(&[1, 2, 3, 4], &[1, 3, 4], true);
    }

    #[test]
    fn what_a_quorum_reached_agrees_with_counting() {
        for count in 1..=5u64 {
            let members = group(&(1..=count).collect::<Vec<_>>(), &[]);
            for seed in 0..200u64 {
                let value = |member: MemberId| (member.0 * 7 + seed * 31) % 5;
                let reached = members.reached_by_quorum(value);
                let at_least = |bar| members.is_quorum(members.iter().filter(|member| value(*member) >= bar));
                assert!(at_least(reached) && !at_least(reached + 1));
            }
        }
    }

    #[test]
    fn changes_that_make_no_sense_are_none() {
        let members = group(&[1, 2], &[3]);
        assert_eq!(members.after(Change::AddLearner(MemberId(2))), None);
        assert_eq!(members.after(Change::AddLearner(MemberId(4))), Some(group(&[1, 2], &[3, 4])));
        assert_eq!(members.after(Change::Promote(MemberId(1))), None);
        assert_eq!(members.after(Change::Promote(MemberId(3))), Some(group(&[1, 2, 3], &[])));
        assert_eq!(members.after(Change::Demote(MemberId(2))), Some(group(&[1], &[2, 3])));
        assert_eq!(members.after(Change::Remove(MemberId(5))), None);
        assert_eq!(group(&[1], &[3]).after(Change::Remove(MemberId(1))), None);
        assert_eq!(group(&[1], &[3]).after(Change::Demote(MemberId(1))), None);
    }

    #[test]
    fn arbitrary_bytes_are_no_membership() {
        for bytes in
            [&b""[..], b"\x01", b"\x01\x00\x00", b"\x02\x01\x00\x01\x00\x00\x00\x00\x00\x00\x00", b"\x01\x01\x00\x01"]
        {
            assert!(Membership::decode(bytes).is_err(), "{bytes:?}");
        }
        let twice = [&[1u8, 2, 0][..], &7u64.to_le_bytes(), &7u64.to_le_bytes()].concat();
        assert_eq!(Membership::decode(&twice), Err(Malformed::Encoding(19)));
    }

    #[test]
    fn history_follows_the_log() {
        let mut history = History::new(Index(5), group(&[1], &[]));
        history.push(Index(8), group(&[1], &[2]));
        history.push(Index(9), group(&[1, 2], &[]));
        assert_eq!(history.at(Index(5)), &group(&[1], &[]));
        assert_eq!(history.at(Index(7)), &group(&[1], &[]));
        assert_eq!(history.at(Index(8)), &group(&[1], &[2]));
        history.truncate_from(Index(9));
        assert_eq!(history.latest(), &(Index(8), group(&[1], &[2])));
        history.forget_before(Index(8));
        assert_eq!(history.at(Index(8)), &group(&[1], &[2]));
        history.truncate_from(Index(3));
        assert_eq!(history.latest().0, Index(8));
    }
}
