//! A leader's own affairs: its beginning, proposals, its quorum, changes of membership, handing over.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Raft;
use super::entry::{Entry, Payload};
use super::error::Refused;
use super::id::{EntryId, Index, MemberId};
use super::membership::Change;
use super::message::Body;
use super::progress::Progress;
use super::read_index::Reads;
use super::state::{Leader, State, Transfer, Uncommitted};

/// LIMIT: a learner further behind than this many entries may not become a voter.
const PROMOTE_BEHIND_MAX: u64 = 256;

impl Raft {
    /// Won the election: begins with an entry of its own, with which those of earlier terms get committed.
    pub(super) fn start_leading(&mut self) {
        let last = self.log.last().index;
        let own = self.config.id;
        let others = self.members.latest().1.iter().filter(|member| *member != own);
        let lead = Leader {
            noop: last.next(),
            progress: others.map(|member| (member, Progress::unknown(last))).collect::<BTreeMap<_, _>>(),
            reads: Reads::default(),
            beat_due: self.now + self.config.heartbeat_interval,
            quorum_due: self.now + self.config.election_timeout,
            transfer: None,
            uncommitted: Uncommitted::default(),
        };
        self.state = State::Leader(lead);
        self.append_own(Payload::Noop);
    }

    /// Proposes a batch; committed once it comes out of [`Raft::take_committed`] under this id. An entry of another id at its index means that it
    /// was lost with the leadership. Proposals between two outputs are written and sent together.
    ///
    /// # Errors
    /// Not the leader, handing over, or too many bytes wait for a quorum. Nothing was added then.
    pub fn propose(&mut self, data: Bytes) -> Result<EntryId, Refused> {
        let payload = Payload::Data(data);
        let leader = self.state.leader();
        let State::Leader(lead) = &self.state else { return Err(Refused::NotLeader { leader }) };
        if let Some(transfer) = &lead.transfer {
            return Err(Refused::Transferring { to: transfer.to });
        }
        let (bytes, max) = (lead.uncommitted.bytes, self.config.uncommitted_bytes_max);
        if bytes > 0 && bytes + payload.size_bytes() > max {
            return Err(Refused::Uncommitted { bytes, max });
        }
        Ok(self.append_own(payload))
    }

    /// Changes the membership by one member. In force as soon as it is in the log; done once the entry of this id is committed. A leader that
    /// removes or demotes itself leads on until then, and hands over to the member that has most.
    ///
    /// # Errors
    /// Not the leader, handing over, the last change is not committed, the change makes no sense, or the learner to
    /// promote is behind.
    pub fn change_members(&mut self, change: Change) -> Result<EntryId, Refused> {
        let leader = self.state.leader();
        let State::Leader(lead) = &self.state else { return Err(Refused::NotLeader { leader }) };
        if let Some(transfer) = &lead.transfer {
            return Err(Refused::Transferring { to: transfer.to });
        }
        if self.commit < lead.noop {
            return Err(Refused::TermUnconfirmed { noop: lead.noop });
        }
        let (since, members) = self.members.latest();
        if *since > self.commit {
            return Err(Refused::ChangePending { since: *since });
        }
        let members = members.after(change).ok_or(Refused::Senseless)?;
        let last = self.log.last().index;
        if let Change::Promote(member) = change
            && let Some(progress) = lead.progress.get(&member)
            && progress.matched.0 + PROMOTE_BEHIND_MAX < last.0
        {
            return Err(Refused::Behind { member, matched: progress.matched, last });
        }
        let own = self.config.id;
        if let State::Leader(lead) = &mut self.state {
            lead.progress.retain(|member, _| members.contains(*member));
            for member in members.iter().filter(|member| *member != own) {
                lead.progress.entry(member).or_insert_with(|| Progress::unknown(last));
            }
        }
        Ok(self.append_own(Payload::Members(members)))
    }

    /// Hands leadership to another voter: takes no more proposals, brings it up to date, tells it to start an election. Given up after an election timeout.
    ///
    /// # Errors
    /// Not the leader, already handing over, or not another voter.
    pub fn transfer_leadership(&mut self, to: MemberId) -> Result<(), Refused> {
        let leader = self.state.leader();
        let due = self.now + self.config.election_timeout;
        let State::Leader(lead) = &mut self.state else { return Err(Refused::NotLeader { leader }) };
        if let Some(transfer) = &lead.transfer {
            return Err(Refused::Transferring { to: transfer.to });
        }
        if to == self.config.id || !self.members.latest().1.is_voter(to) {
            return Err(Refused::NotAnotherVoter(to));
        }
        lead.transfer = Some(Transfer { to, due, told: false });
        self.tell_successor();
        Ok(())
    }

    /// Tells the successor to start its election once it has the whole log.
    pub(super) fn tell_successor(&mut self) {
        let last = self.log.last().index;
        let State::Leader(lead) = &mut self.state else { return };
        let Some(transfer) = &mut lead.transfer else { return };
        let ready = lead.progress.get(&transfer.to).is_some_and(|progress| progress.matched == last);
        if ready && !transfer.told {
            transfer.told = true;
            let to = transfer.to;
            self.send(to, Body::TimeoutNow);
        }
    }

    /// What is due for a leader.
    pub(super) fn lead_on(&mut self) {
        let now = self.now;
        let State::Leader(lead) = &mut self.state else { return };
        if lead.transfer.as_ref().is_some_and(|transfer| now >= transfer.due) {
            lead.transfer = None;
        }
        if now >= lead.quorum_due {
            lead.quorum_due = now + self.config.election_timeout;
            let own = self.config.id;
            let heard: Vec<MemberId> = lead
                .progress
                .iter_mut()
                .filter_map(|(member, progress)| std::mem::take(&mut progress.heard).then_some(*member))
                .chain([own])
                .collect();
            if !self.members.latest().1.is_quorum(heard) {
                // Whoever is on the other side may have elected somebody else; clients must not wait here.
                return self.follow(self.hard.term, None);
            }
        }
        if now >= lead.beat_due {
            self.beat();
        }
    }

    /// Adds an entry to the leader's log.
    pub(super) fn append_own(&mut self, payload: Payload) -> EntryId {
        let id = EntryId { term: self.hard.term, index: self.log.last().index.next() };
        if let State::Leader(lead) = &mut self.state {
            lead.uncommitted.push(id.index, payload.size_bytes());
        }
        if let Payload::Members(members) = &payload {
            self.members.push(id.index, members.clone());
        }
        self.log.append(Entry { id, payload });
        id
    }

    /// A leader that left the voters steps down once that is committed, and lets the one that has most begin.
    pub(super) fn leave_if_removed(&mut self) {
        let (since, members) = self.members.latest();
        let since: Index = *since;
        if members.is_voter(self.config.id) || since > self.commit {
            return;
        }
        let State::Leader(lead) = &self.state else { return };
        let voters = lead.progress.iter().filter(|(member, _)| members.is_voter(**member));
        let successor = voters.max_by_key(|(_, progress)| progress.matched).map(|(member, _)| *member);
        self.beat();
        if let Some(to) = successor {
            self.send(to, Body::TimeoutNow);
        }
        self.follow(self.hard.term, None);
    }
}
