//! What a member has when it starts.

use super::entry::{Entry, Payload};
use super::id::{EntryId, Index, MemberId, Term};
use super::log::Terms;
use super::membership::{History, Membership};

/// What must be durable before a member says anything that rests on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HardState {
    /// The latest term the member knows.
    pub term: Term,
    /// Who got its vote in that term.
    pub vote: Option<MemberId>,
}

/// A place in the log up to which the state is durable without the log: that of a snapshot, or of the beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotMark {
    /// The last entry whose effects are in it.
    pub last: EntryId,
    /// The membership after that entry.
    pub members: Membership,
}

impl SnapshotMark {
    /// The beginning of a group: an empty state, agreed on by all its first members.
    pub fn beginning(members: Membership) -> Self {
        Self { last: EntryId::ZERO, members }
    }
}

/// What a member finds on its disk when it starts: hard state, snapshot mark, how far its state machine is, and its log.
///
/// Built with [`Restored::new`], then [`Restored::entry`] for each entry of the log in order. Entries are not kept, only their terms and memberships.
#[derive(Debug)]
pub struct Restored {
    pub(super) hard: HardState,
    pub(super) mark: SnapshotMark,
    pub(super) applied: Index,
    pub(super) terms: Terms,
    pub(super) members: History,
}

/// What a found state is refused for. Each means lost or foreign data: the member must not start with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The log does not reach back to the snapshot.
    #[error("the log begins after entry {cut}, but the snapshot ends at {mark}: the entries between are lost")]
    CutAfterMark {
        /// Last entry cut off.
        cut: EntryId,
        /// Last entry of the snapshot.
        mark: EntryId,
    },
    /// Applied entries are missing in the log.
    #[error("the state has entry {applied} applied, but the log ends at {last}: persisted entries are lost")]
    AppliedAfterLog {
        /// Last applied entry.
        applied: Index,
        /// Last entry of the log.
        last: EntryId,
    },
    /// The state is behind what the log can bring back.
    #[error("the state has only entry {applied} applied, but the log begins after {cut}: the entries between are lost")]
    AppliedBeforeCut {
        /// Last applied entry.
        applied: Index,
        /// Last entry cut off.
        cut: EntryId,
    },
    /// Not the next entry.
    #[error("entry {found} follows entry {last} in the log: indexes must have no gaps and terms must not go back")]
    Order {
        /// The entry before.
        last: EntryId,
        /// The entry found.
        found: EntryId,
    },
    /// Log and snapshot are not of one history.
    #[error("the log has term {log:?} where the snapshot ends with {mark}: they are not of one history")]
    Mark {
        /// The log's term at that place, if it reaches there.
        log: Option<Term>,
        /// Last entry of the snapshot.
        mark: EntryId,
    },
}

impl Restored {
    /// A state without its log: `applied` is the last entry in the state machine, `cut` the last one that was cut off the log
    /// ([`EntryId::ZERO`] if none was). `mark` of a new member is [`SnapshotMark::beginning`].
    pub fn new(hard: HardState, mark: SnapshotMark, applied: Index, cut: EntryId) -> Self {
        let members = History::new(mark.last.index, mark.members.clone());
        Self { hard, mark, applied, terms: Terms::new(cut), members }
    }

    /// The next entry found in the log.
    ///
    /// # Errors
    /// It does not follow the one before.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), RestoreError> {
        let last = self.terms.last();
        if entry.id.index != last.index.next() || entry.id.term < last.term {
            return Err(RestoreError::Order { last, found: entry.id });
        }
        self.terms.push(entry.id);
        if let Payload::Members(members) = &entry.payload
            && entry.id.index > self.mark.last.index
        {
            self.members.push(entry.id.index, members.clone());
        }
        Ok(())
    }

    /// The last entry found so far.
    pub fn last(&self) -> EntryId {
        self.terms.last()
    }

    pub(super) fn validate(&self) -> Result<(), RestoreError> {
        let (cut, last, mark) = (self.terms.cut(), self.terms.last(), self.mark.last);
        if cut.index > mark.index {
            return Err(RestoreError::CutAfterMark { cut, mark });
        }
        if self.applied < cut.index {
            return Err(RestoreError::AppliedBeforeCut { applied: self.applied, cut });
        }
        if self.applied > last.index {
            return Err(RestoreError::AppliedAfterLog { applied: self.applied, last });
        }
        let log = self.terms.at(mark.index);
        if log != Some(mark.term) {
            return Err(RestoreError::Mark { log, mark });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noop(term: u64, index: u64) -> Entry {
        Entry { id: EntryId::new(term, index), payload: Payload::Noop }
    }

    fn restored(mark: EntryId, applied: u64, cut: EntryId, entries: &[(u64, u64)]) -> Restored {
        let mark = SnapshotMark { last: mark, members: Membership::single(MemberId(1)) };
        let mut restored = Restored::new(HardState::default(), mark, Index(applied), cut);
        for (term, index) in entries {
            restored.entry(&noop(*term, *index)).unwrap();
        }
        restored
    }

    #[test]
    fn a_whole_state_is_taken() {
        let check =
            |mark, applied, cut, entries: &[_]| assert_eq!(restored(mark, applied, cut, entries).validate(), Ok(()));
        check(EntryId::ZERO, 0, EntryId::ZERO, &[]);
        check(EntryId::ZERO, 1, EntryId::ZERO, &[(1, 1), (1, 2)]);
        check(EntryId::new(2, 5), 5, EntryId::new(2, 5), &[]);
        check(EntryId::new(2, 5), 6, EntryId::new(1, 3), &[(1, 4), (2, 5), (2, 6)]);
    }

    #[test]
    fn a_state_with_holes_is_refused() {
        let check = |restored: Restored, words: &str| {
            let error = restored.validate().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        check(restored(EntryId::ZERO, 3, EntryId::new(1, 3), &[]), "the entries between are lost");
        check(restored(EntryId::ZERO, 3, EntryId::ZERO, &[(1, 1)]), "persisted entries are lost");
        check(restored(EntryId::new(2, 5), 2, EntryId::new(1, 3), &[(2, 4), (2, 5)]), "only entry 2 applied");
        check(restored(EntryId::new(2, 5), 5, EntryId::new(1, 3), &[(1, 4), (1, 5)]), "not of one history");
        check(restored(EntryId::new(2, 5), 4, EntryId::new(1, 3), &[(1, 4)]), "not of one history");
    }

    #[test]
    fn a_log_out_of_order_is_refused() {
        let mut restored = restored(EntryId::ZERO, 0, EntryId::ZERO, &[(2, 1)]);
        assert!(matches!(restored.entry(&noop(2, 3)), Err(RestoreError::Order { .. })));
        assert!(matches!(restored.entry(&noop(1, 2)), Err(RestoreError::Order { .. })));
        assert!(restored.entry(&noop(2, 2)).is_ok());
    }
}
