//! The leader's side of replication: what goes to whom, what the answers mean, what is committed.

use super::Raft;
use super::id::{EntryId, Index, MemberId};
use super::log::ReadLog;
use super::message::Body;
use super::progress::Flow;
use super::state::State;

impl Raft {
    /// Makes up what each follower is to get now.
    pub(super) fn replicate<L: ReadLog>(&mut self, disk: &L) -> Result<(), L::Error> {
        let State::Leader(lead) = &mut self.state else { return Ok(()) };
        let last = self.log.last().index;
        let mut messages = Vec::new();
        for (member, progress) in &mut lead.progress {
            while progress.may_send(self.config.inflight_appends_max) {
                let probing = matches!(progress.flow, Flow::Probe { .. });
                if progress.next > last && !probing {
                    break;
                }
                let before = progress.next.previous();
                let Some(term) = self.log.term_at(before) else {
                    progress.flow = Flow::Snapshot;
                    messages.push((*member, Body::SnapshotOffer { mark: self.mark.clone() }));
                    break;
                };
                let entries = if progress.next > last {
                    Vec::new()
                } else {
                    self.log.read(progress.next, last, self.config.append_bytes_max, disk)?
                };
                let end = entries.last().map_or(before, |entry| entry.id.index);
                progress.sent(end, self.now);
                progress.commit_told = progress.commit_told.max(self.commit.min(end));
                let prev = EntryId { term, index: before };
                messages.push((*member, Body::Append { prev, entries, commit: self.commit }));
            }
            // Nothing to send, but something to tell.
            let commit = self.commit.min(progress.matched);
            if commit > progress.commit_told {
                progress.commit_told = commit;
                messages.push((*member, Body::Heartbeat { commit, round: lead.reads.latest }));
            }
        }
        for (to, body) in messages {
            self.send(to, body);
        }
        Ok(())
    }

    pub(super) fn on_appended(&mut self, from: MemberId, matched: Index) {
        let (last, cut, now) = (self.log.last().index, self.log.cut().index, self.now);
        let State::Leader(lead) = &mut self.state else { return };
        let Some(progress) = lead.progress.get_mut(&from) else { return };
        if matched > last {
            // A member cannot have more of this leader's log than there is.
            return;
        }
        progress.appended(matched, now, cut);
        self.advance_commit();
        self.tell_successor();
    }

    pub(super) fn on_refused(&mut self, from: MemberId, at: Index, hint: EntryId) {
        let agreed = self.log.last_not_after(hint).index;
        let State::Leader(lead) = &mut self.state else { return };
        if let Some(progress) = lead.progress.get_mut(&from) {
            progress.refused(at, agreed);
        }
    }

    /// Commits what a quorum has persisted, if that is of the leader's own term: entries of earlier terms are committed with it, never
    /// by counting (Raft §5.4.2).
    pub(super) fn advance_commit(&mut self) {
        let own = self.config.id;
        let State::Leader(lead) = &mut self.state else { return };
        let persisted = self.log.persisted();
        let reached = self.members.latest().1.reached_by_quorum(|member| match lead.progress.get(&member) {
            _ if member == own => persisted,
            Some(progress) => progress.matched,
            None => Index::ZERO,
        });
        if reached > self.commit && self.log.term_at(reached) == Some(self.hard.term) {
            self.commit = reached;
            lead.uncommitted.committed(reached);
            self.leave_if_removed();
        }
    }
}
