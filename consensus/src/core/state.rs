//! The parts a member can play, and what each needs to remember.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::id::{Index, MemberId};
use super::progress::Progress;
use super::read_index::Reads;

/// The part a member plays.
#[derive(Debug)]
pub(super) enum State {
    Follower(Follower),
    Candidate(Candidate),
    Leader(Leader),
}

/// Follows whoever leads the term.
#[derive(Debug, Default)]
pub(super) struct Follower {
    /// The leader, once heard from, and when that was last.
    pub(super) leader: Option<(MemberId, Duration)>,
}

/// Asks for votes.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) stage: Stage,
    /// Answers so far.
    pub(super) votes: BTreeMap<MemberId, bool>,
}

/// How far an election is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Asks who would vote for it, in the term after the present one.
    PreVote,
    /// Asks for votes in its term. Its own counts once the output of this number is persisted.
    Vote { own_vote_in: u64 },
}

/// Leads.
#[derive(Debug)]
pub(super) struct Leader {
    /// The no-op at the start of its term.
    pub(super) noop: Index,
    /// All other members.
    pub(super) progress: BTreeMap<MemberId, Progress>,
    pub(super) reads: Reads,
    pub(super) beat_due: Duration,
    pub(super) quorum_due: Duration,
    pub(super) transfer: Option<Transfer>,
    /// Its own proposals not yet committed.
    pub(super) uncommitted: Uncommitted,
}

/// Leadership on its way to another member.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) to: MemberId,
    /// When it is given up.
    pub(super) due: Duration,
    /// The member was told to start an election.
    pub(super) told: bool,
}

/// Sizes of a leader's proposals that are not committed yet.
#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    sizes: VecDeque<(Index, usize)>,
    pub(super) bytes: usize,
}

impl Uncommitted {
    pub(super) fn push(&mut self, index: Index, bytes: usize) {
        self.sizes.push_back((index, bytes));
        self.bytes += bytes;
    }

    pub(super) fn committed(&mut self, commit: Index) {
        while let Some((_, bytes)) = self.sizes.pop_front_if(|(index, _)| *index <= commit) {
            self.bytes -= bytes;
        }
    }
}

impl State {
    /// The leader of the term, where it is another member and known.
    pub(super) fn leader(&self) -> Option<MemberId> {
        match self {
            Self::Follower(Follower { leader }) => leader.map(|(leader, _)| leader),
            Self::Candidate(_) | Self::Leader(_) => None,
        }
    }
}
