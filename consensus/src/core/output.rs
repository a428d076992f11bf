//! What a turn of the core asks of its driver.

use super::entry::Entry;
use super::id::{Index, MemberId, Term};
use super::message::Envelope;
use super::restore::{HardState, SnapshotMark};

/// Everything that a turn asks of the driver; taken with [`super::Raft::output`].
///
/// What the driver does with it, in this order:
/// 1. Send `messages`. They may go at once, also before anything is written: what must not be said before it is durable stays in
///    the core until [`super::Raft::persisted`].
/// 2. Where [`Output::must_persist`]: make durable, in this order or all at once, `hard_state`, `install`, `append`. Then call
///    `persisted(number)`. Outputs are made durable in order, but further ones may be taken meanwhile: one sync may serve several.
/// 3. The rest, in any order.
#[derive(Debug, Default)]
#[must_use = "an output not carried out is a promise broken"]
pub struct Output {
    /// 1, 2, 3, … for [`super::Raft::persisted`].
    pub number: u64,
    /// Term and vote, where they changed.
    pub hard_state: Option<HardState>,
    /// A fetched snapshot (see [`super::Raft::snapshot_fetched`]) to put in the place of the state; the log is emptied and begins after it.
    pub install: Option<SnapshotMark>,
    /// Entries for the log: what the log holds from the first one's index on is removed, then they are added.
    pub append: Vec<Entry>,
    /// For other members. They may be lost.
    pub messages: Vec<Envelope>,
    /// The part this member now plays, where it changed; of several changes in one turn only the last is seen.
    pub role: Option<Role>,
    /// Read barriers that were granted or lost.
    pub reads: Vec<ReadDone>,
    /// A snapshot to fetch from another member, beside the state in use.
    pub fetch: Option<Fetch>,
}

impl Output {
    /// Whether there is something to make durable, and `persisted` to be called after it.
    pub fn must_persist(&self) -> bool {
        self.hard_state.is_some() || self.install.is_some() || !self.append.is_empty()
    }

    /// Whether there is nothing to do at all.
    pub fn is_empty(&self) -> bool {
        !self.must_persist()
            && self.messages.is_empty()
            && self.role.is_none()
            && self.reads.is_empty()
            && self.fetch.is_none()
    }
}

/// The part a member plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Follows, or looks for somebody to follow.
    Follower {
        /// The leader of the term, where known.
        leader: Option<MemberId>,
    },
    /// Tries to become leader.
    Candidate,
    /// Leads.
    Leader {
        /// Its term.
        term: Term,
        /// The index of the no-op at the start of its term. Once that is applied, so is everything before it.
        noop: Index,
    },
}

/// A snapshot to fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// From whom.
    pub from: MemberId,
    /// At least up to here; a later snapshot serves as well.
    pub mark: SnapshotMark,
}

/// Names a read barrier; see [`super::Raft::read_barrier`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReadId(pub u64);

/// What became of a read barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadDone {
    /// Which.
    pub id: ReadId,
    /// Granted: once this index is applied here, a read of the state sees everything that was acknowledged before the barrier was
    /// asked for. `None`: leadership was lost first; ask the new leader.
    pub index: Option<Index>,
}
