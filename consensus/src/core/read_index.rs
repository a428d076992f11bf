//! Reads that see everything acknowledged before them, without an entry in the log (Raft thesis, §6.4).
//!
//! All barriers that wait share one round: the leader notes its commit index, and once a quorum has answered a heartbeat sent after
//! that, it was still the leader when the round began, so nothing acknowledged by anyone is later than that index. One
//! round is under way at a time; those who come meanwhile share the next. A leader grants none before an entry of its own term is
//! committed, since until then it does not know how far its predecessors had come.
//!
//! Leases, which would save the round, are not used: they rest on clocks that run alike, and a round costs less than the disk.

use super::Raft;
use super::error::Refused;
use super::id::Index;
use super::message::Body;
use super::output::{ReadDone, ReadId};
use super::state::State;

/// A leader's read barriers.
#[derive(Debug, Default)]
pub(super) struct Reads {
    waiting: Vec<ReadId>,
    round: Option<Round>,
    /// Number of the latest round, in heartbeats.
    pub(super) latest: u64,
}

#[derive(Debug)]
struct Round {
    index: Index,
    ids: Vec<ReadId>,
}

impl Reads {
    fn count(&self) -> usize {
        self.waiting.len() + self.round.as_ref().map_or(0, |round| round.ids.len())
    }

    /// All barriers: leadership is lost.
    pub(super) fn into_ids(self) -> impl Iterator<Item = ReadId> {
        self.round.into_iter().flat_map(|round| round.ids).chain(self.waiting)
    }
}

impl Raft {
    /// Asks for a read barrier. The answer comes in [`super::Output::reads`]; barriers asked for between two outputs share a round.
    ///
    /// # Errors
    /// Not the leader, or too many barriers wait.
    pub fn read_barrier(&mut self) -> Result<ReadId, Refused> {
        let leader = self.state.leader();
        let State::Leader(lead) = &mut self.state else { return Err(Refused::NotLeader { leader }) };
        if lead.reads.count() >= self.config.reads_max {
            return Err(Refused::Reads { max: self.config.reads_max });
        }
        self.reads_asked += 1;
        let id = ReadId(self.reads_asked);
        lead.reads.waiting.push(id);
        Ok(id)
    }

    /// Starts a round for those who wait, unless one is under way.
    pub(super) fn start_read_round(&mut self) {
        let State::Leader(lead) = &mut self.state else { return };
        if lead.reads.waiting.is_empty() || lead.reads.round.is_some() || self.commit < lead.noop {
            return;
        }
        let ids = std::mem::take(&mut lead.reads.waiting);
        lead.reads.latest += 1;
        lead.reads.round = Some(Round { index: self.commit, ids });
        if self.members.latest().1.is_sole_voter(self.config.id) {
            self.finish_read_round();
        } else {
            self.beat();
        }
    }

    /// Grants the round under way if a quorum has answered it.
    pub(super) fn finish_read_round(&mut self) {
        let own = self.config.id;
        let members = &self.members.latest().1;
        let State::Leader(lead) = &mut self.state else { return };
        let latest = lead.reads.latest;
        let answered = members.reached_by_quorum(|member| match lead.progress.get(&member) {
            _ if member == own => latest,
            Some(progress) => progress.round,
            None => 0,
        });
        if answered == latest
            && let Some(round) = lead.reads.round.take()
        {
            self.reads_done.extend(round.ids.into_iter().map(|id| ReadDone { id, index: Some(round.index) }));
        }
    }

    /// A follower's answer to a heartbeat.
    pub(super) fn on_heartbeat_reply(&mut self, from: super::MemberId, round: u64) {
        let patience = self.config.heartbeat_interval * 2;
        let State::Leader(lead) = &mut self.state else { return };
        let Some(progress) = lead.progress.get_mut(&from) else { return };
        progress.round = progress.round.max(round);
        progress.answered(self.now, patience);
        self.finish_read_round();
    }

    /// Shows every member that the leader lives, and what is committed.
    pub(super) fn beat(&mut self) {
        let State::Leader(lead) = &mut self.state else { return };
        lead.beat_due = self.now + self.config.heartbeat_interval;
        let round = lead.reads.latest;
        let mut messages = Vec::with_capacity(lead.progress.len());
        for (member, progress) in &mut lead.progress {
            let commit = self.commit.min(progress.matched);
            progress.commit_told = progress.commit_told.max(commit);
            messages.push((*member, Body::Heartbeat { commit, round }));
            if matches!(progress.flow, super::progress::Flow::Snapshot) {
                messages.push((*member, Body::SnapshotOffer { mark: self.mark.clone() }));
            }
        }
        for (to, body) in messages {
            self.send(to, body);
        }
    }
}
