//! The named facts that must hold over the members of a group, whatever the network and the disks do.
//!
//! Plain functions over members as they are, and a [`Record`] of what was seen of them, since three of the facts speak of the past. Serves unit tests and the simulator.

use std::collections::BTreeMap;

use super::Raft;
use super::id::{EntryId, Index, MemberId, Term};
use super::output::Role;

/// A fact that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// See [`own_order`].
    #[error(
        "own order: member {member} has cut {cut}, applied {applied}, committed {commit}, persisted {persisted}, last {last}"
    )]
    OwnOrder {
        /// Whose log.
        member: MemberId,
        /// Cut off up to here.
        cut: Index,
        /// Given out to be applied up to here.
        applied: Index,
        /// Committed up to here.
        commit: Index,
        /// Persisted up to here.
        persisted: Index,
        /// Its last entry.
        last: Index,
    },
    /// See [`Record::election_safety`].
    #[error("election safety: members {one} and {two} both led term {term}")]
    ElectionSafety {
        /// Which term.
        term: Term,
        /// Led it.
        one: MemberId,
        /// Led it too.
        two: MemberId,
    },
    /// See [`log_matching`].
    #[error("log matching: the logs of members {one} and {two} agree on entry {agree} but not on entry {differ}")]
    LogMatching {
        /// Whose log.
        one: MemberId,
        /// Whose other log.
        two: MemberId,
        /// Where they agree.
        agree: Index,
        /// Where they differ, before that.
        differ: Index,
    },
    /// See [`Record::leader_completeness`].
    #[error("leader completeness: member {leader} leads term {term} without entry {entry}, committed in term {by}")]
    LeaderCompleteness {
        /// Who leads.
        leader: MemberId,
        /// Its term.
        term: Term,
        /// What it lacks.
        entry: EntryId,
        /// When that was committed.
        by: Term,
    },
    /// See [`Record::state_machine_safety`].
    #[error("state machine safety: entry {index} is committed as {before:?}, and at member {member} as {now:?}")]
    StateMachineSafety {
        /// Which place.
        index: Index,
        /// Its term as seen first.
        before: Term,
        /// Where it is another.
        member: MemberId,
        /// Its term there.
        now: Option<Term>,
    },
}

/// Own order: cut <= applied <= persisted <= last, and applied <= committed <= last.
///
/// # Errors
/// It does not hold.
pub fn own_order(raft: &Raft) -> Result<(), Violation> {
    let (cut, applied, commit) = (raft.log.cut().index, raft.given_out, raft.commit);
    let (persisted, last) = (raft.log.persisted(), raft.log.last().index);
    if cut <= applied && applied <= persisted && persisted <= last && applied <= commit && commit <= last {
        return Ok(());
    }
    Err(Violation::OwnOrder { member: raft.config.id, cut, applied, commit, persisted, last })
}

/// Log matching: where two logs have an entry of the same index and term, they have the same entries up to it.
///
/// # Errors
/// It does not hold.
pub fn log_matching(one: &Raft, two: &Raft) -> Result<(), Violation> {
    let from = one.log.cut().index.max(two.log.cut().index);
    let to = one.log.last().index.min(two.log.last().index);
    // Between two places where a term begins in either log, both stay the same.
    let starts = one.log.term_starts().chain(two.log.term_starts());
    let mut places: Vec<Index> = starts.flat_map(|start| [start.previous(), start]).chain([from, to]).collect();
    places.retain(|place| (from..=to).contains(place));
    places.sort_unstable();
    let same = |place: &&Index| one.log.term_at(**place) == two.log.term_at(**place);
    let Some(agree) = places.iter().rev().find(same).copied() else { return Ok(()) };
    match places.iter().find(|place| **place < agree && !same(place)).copied() {
        None => Ok(()),
        Some(differ) => Err(Violation::LogMatching { one: one.config.id, two: two.config.id, agree, differ }),
    }
}

/// What was seen of a group so far.
#[derive(Debug, Default)]
pub struct Record {
    leaders: BTreeMap<Term, MemberId>,
    committed: BTreeMap<Index, Committed>,
    /// Up to here each member's commits were looked at.
    looked_at: BTreeMap<MemberId, Index>,
}

#[derive(Debug, Clone, Copy)]
struct Committed {
    term: Term,
    /// The term of the member at which it was first seen: since all members are looked at after each step, that of the leader that committed it.
    by: Term,
}

impl Record {
    /// Checks all facts after a step of `changed`; `others` are the rest of the group.
    ///
    /// # Errors
    /// The first fact that does not hold.
    pub fn check(&mut self, changed: &Raft, others: &[&Raft]) -> Result<(), Violation> {
        own_order(changed)?;
        for other in others {
            log_matching(changed, other)?;
        }
        self.election_safety(changed)?;
        self.state_machine_safety(changed, others)
    }

    /// Election safety: nobody else ever led the term that this member leads. Its completeness is checked when it is first seen to lead.
    ///
    /// # Errors
    /// It does not hold.
    pub fn election_safety(&mut self, raft: &Raft) -> Result<(), Violation> {
        let Role::Leader { term, .. } = raft.role() else { return Ok(()) };
        match self.leaders.insert(term, raft.config.id) {
            None => self.committed.iter().try_for_each(|(index, entry)| self.leader_completeness(raft, *index, *entry)),
            Some(one) if one == raft.config.id => Ok(()),
            Some(one) => Err(Violation::ElectionSafety { term, one, two: raft.config.id }),
        }
    }

    /// Leader completeness: a leader has each entry that was committed in an earlier term.
    ///
    /// # Errors
    /// It does not hold.
    fn leader_completeness(&self, raft: &Raft, index: Index, entry: Committed) -> Result<(), Violation> {
        let Role::Leader { term, .. } = raft.role() else { return Ok(()) };
        let has = index < raft.log.cut().index || raft.log.term_at(index) == Some(entry.term);
        if entry.by >= term || has {
            return Ok(());
        }
        let lacking = EntryId { term: entry.term, index };
        Err(Violation::LeaderCompleteness { leader: raft.config.id, term, entry: lacking, by: entry.by })
    }

    /// State-machine safety: what is committed at a member is what was seen committed at that index anywhere, ever.
    ///
    /// # Errors
    /// It does not hold.
    pub fn state_machine_safety(&mut self, raft: &Raft, others: &[&Raft]) -> Result<(), Violation> {
        let looked_at = self.looked_at.entry(raft.config.id).or_default();
        // What a snapshot brought was seen elsewhere before.
        let from = (*looked_at).max(raft.log.cut().index.previous()).next();
        *looked_at = raft.commit;
        for index in (from.0..=raft.commit.0).map(Index) {
            let now = raft.log.term_at(index);
            match (self.committed.get(&index).copied(), now) {
                (Some(seen), now) if now != Some(seen.term) => {
                    let member = raft.config.id;
                    return Err(Violation::StateMachineSafety { index, before: seen.term, member, now });
                }
                (None, Some(term)) => {
                    let entry = Committed { term, by: raft.hard.term };
                    self.committed.insert(index, entry);
                    others.iter().try_for_each(|other| self.leader_completeness(other, index, entry))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Terms that had a leader.
    pub fn leaders(&self) -> usize {
        self.leaders.len()
    }

    /// The last entry seen committed.
    pub fn committed(&self) -> Index {
        self.committed.last_key_value().map_or(Index::ZERO, |(index, _)| *index)
    }
}
