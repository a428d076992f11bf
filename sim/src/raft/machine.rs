//! The state machine of a simulated member: a digest of everything applied, in order.

use ozone_consensus::core::{Entry, Index, Membership, Payload};

use crate::trace::{FNV_OFFSET, fnv};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Machine {
    pub(super) applied: Index,
    pub(super) digest: u64,
}

impl Machine {
    pub(super) fn empty() -> Self {
        Self { applied: Index::ZERO, digest: FNV_OFFSET }
    }

    /// Applies the next entry, after which `members` are in force.
    pub(super) fn apply(&mut self, entry: &Entry, members: &Membership) {
        assert_eq!(entry.id.index, self.applied.next(), "entries are applied in order, each once");
        self.applied = entry.id.index;
        for part in [&entry.id.term.0.to_le_bytes()[..], &entry.payload.body(), &members.encode()] {
            self.digest = fnv(self.digest, part);
        }
    }
}

/// The number of the client's write that an entry carries.
pub(super) fn write_of(payload: &Payload) -> Option<u64> {
    match payload {
        Payload::Data(data) => data.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)),
        Payload::Noop | Payload::Members(_) => None,
    }
}
