//! What members say to each other.
//!
//! The network may lose, delay, repeat and reorder messages. It must not change them, and `from` must be true: the transport
//! authenticates peers.

use super::entry::Entry;
use super::id::{EntryId, Index, MemberId, Term};
use super::restore::SnapshotMark;

/// A message and where it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The receiver.
    pub to: MemberId,
    /// What it is told.
    pub message: Message,
}

/// A message of one member to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The sender.
    pub from: MemberId,
    /// The sender's term; of a [`Body::PreVote`] and its grant the term that the election would have.
    pub term: Term,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Would you vote for me? Changes nothing at the receiver, so that a member that cannot win disturbs nobody.
    PreVote {
        /// The last entry of the asking member.
        last: EntryId,
    },
    /// Answers [`Body::PreVote`].
    PreVoteReply {
        /// Whether it would.
        granted: bool,
    },
    /// Vote for me in this term.
    Vote {
        /// The last entry of the candidate.
        last: EntryId,
        /// The leader itself asked for this election: a voter that still hears from the leader may vote all the same.
        transfer: bool,
    },
    /// Answers [`Body::Vote`]. A grant leaves the voter only after the vote is persisted.
    VoteReply {
        /// Whether it votes for the candidate.
        granted: bool,
    },
    /// Entries of the leader.
    Append {
        /// The entry before the first of `entries`: the receiver takes them only where it has it.
        prev: EntryId,
        /// Entries without gaps; empty to find out whether the receiver has `prev`.
        entries: Vec<Entry>,
        /// Up to where the leader's log is committed.
        commit: Index,
    },
    /// Up to `matched` the sender's log is the leader's, and persisted.
    Appended {
        /// See above.
        matched: Index,
    },
    /// The sender lacks the entry before those of an append.
    AppendRefused {
        /// The index of that entry.
        at: Index,
        /// The sender's last entry at or before `at` whose term is not later than the missing one's.
        hint: EntryId,
    },
    /// The leader lives.
    Heartbeat {
        /// Up to where the log is committed, as far as the receiver is known to have it.
        commit: Index,
        /// Number of the latest read round; comes back in the reply.
        round: u64,
    },
    /// Answers [`Body::Heartbeat`].
    HeartbeatReply {
        /// As received.
        round: u64,
    },
    /// The entries that the receiver needs are gone; this snapshot, or a later one, can be fetched from the sender.
    SnapshotOffer {
        /// The snapshot.
        mark: SnapshotMark,
    },
    /// Start an election now: the sender hands leadership to the receiver.
    TimeoutNow,
    /// The receiver's message was of an earlier term than the sender's.
    Outdated,
}
