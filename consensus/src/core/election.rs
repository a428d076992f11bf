//! Elections: who asks, who votes, who wins.
//!
//! A member that hears from no leader first asks who *would* vote for it (pre-vote). Only with a quorum of such answers does it raise the term,
//! so a member that was cut off for a while, or lags, comes back without unseating anybody. A member that hears from a leader
//! answers no to both questions, unless the leader itself asked for the election (transfer). The other half of that bargain is the leader's:
//! it steps down when it hears from no quorum (`leader.rs`).

use std::collections::BTreeMap;

use super::Raft;
use super::id::{EntryId, MemberId, Term};
use super::message::Body;
use super::state::{Candidate, Follower, Stage, State};

impl Raft {
    /// Draws when to lose patience next: between one and two election timeouts from now.
    pub(super) fn put_off_election(&mut self) {
        let timeout = self.config.election_timeout;
        let extra = timeout.mul_f64((self.draw() >> 11) as f64 / (1u64 << 53) as f64);
        self.election_due = self.now + timeout + extra;
    }

    /// Whether a leader is known to live: it does, or is this member, which would step down if it heard from no quorum.
    pub(super) fn hears_leader(&self) -> bool {
        match &self.state {
            State::Leader(_) => true,
            State::Follower(Follower { leader: Some((_, heard)) }) => self.now < *heard + self.config.election_timeout,
            State::Follower(_) | State::Candidate(_) => false,
        }
    }

    /// Nobody leads: asks who would vote for this member. A sole voter need not ask.
    pub(super) fn seek_election(&mut self) {
        if let State::Candidate(Candidate { stage: Stage::Vote { own_vote_in }, .. }) = &self.state
            && *own_vote_in > self.output_durable
        {
            // The disk is slower than the timeout: another term would only begin its wait anew.
            return self.put_off_election();
        }
        if self.members.latest().1.is_sole_voter(self.config.id) {
            return self.campaign(false);
        }
        self.put_off_election();
        let votes = BTreeMap::from([(self.config.id, true)]);
        self.state = State::Candidate(Candidate { stage: Stage::PreVote, votes });
        let last = self.log.last();
        for to in self.other_voters() {
            self.send_in(self.hard.term.next(), to, Body::PreVote { last });
        }
    }

    /// Begins a new term and asks for votes in it.
    pub(super) fn campaign(&mut self, transfer: bool) {
        let term = self.hard.term.next();
        self.follow(term, None);
        self.hard.vote = Some(self.config.id);
        // Its own vote counts, and others hear of the election, only once the vote cannot be forgotten: a candidate that came back
        // without it could vote for somebody else in the same term.
        let own_vote_in = self.output_last + 1;
        self.state = State::Candidate(Candidate { stage: Stage::Vote { own_vote_in }, votes: BTreeMap::new() });
        let last = self.log.last();
        for to in self.other_voters() {
            self.send_durable(to, Body::Vote { last, transfer });
        }
    }

    /// Becomes a follower, in a later term or in the present one.
    pub(super) fn follow(&mut self, term: Term, leader: Option<MemberId>) {
        assert!(term >= self.hard.term, "terms do not go back");
        if term > self.hard.term {
            self.hard = super::HardState { term, vote: None };
            self.hard_unsaved = true;
            // What waits to be said is about a term that is over.
            self.held.clear();
        }
        let leader = leader.map(|leader| (leader, self.now));
        let before = std::mem::replace(&mut self.state, State::Follower(Follower { leader }));
        if let State::Leader(lead) = before {
            let lost = lead.reads.into_ids().map(|id| super::ReadDone { id, index: None });
            self.reads_done.extend(lost);
        }
        self.put_off_election();
    }

    fn other_voters(&self) -> Vec<MemberId> {
        let own = self.config.id;
        self.members.latest().1.voters().iter().copied().filter(|voter| *voter != own).collect()
    }

    pub(super) fn on_pre_vote(&mut self, from: MemberId, term: Term, last: EntryId) {
        let free = term > self.hard.term || (term == self.hard.term && self.hard.vote.is_none_or(|vote| vote == from));
        if free && !self.hears_leader() && last >= self.log.last() {
            self.send_in(term, from, Body::PreVoteReply { granted: true });
        } else {
            self.send(from, Body::PreVoteReply { granted: false });
        }
    }

    pub(super) fn on_pre_vote_granted(&mut self, from: MemberId, term: Term) {
        if term != self.hard.term.next() {
            return;
        }
        let State::Candidate(Candidate { stage: Stage::PreVote, votes }) = &mut self.state else { return };
        votes.insert(from, true);
        if self.members.latest().1.is_quorum(votes.keys().copied()) {
            self.campaign(false);
        }
    }

    pub(super) fn on_vote(&mut self, from: MemberId, last: EntryId) {
        let free = self.hard.vote.is_none_or(|vote| vote == from);
        if !free || last < self.log.last() {
            return self.send(from, Body::VoteReply { granted: false });
        }
        if self.hard.vote.is_none() {
            self.hard.vote = Some(from);
            self.hard_unsaved = true;
            self.put_off_election();
        }
        self.send_durable(from, Body::VoteReply { granted: true });
    }

    pub(super) fn on_vote_reply(&mut self, from: MemberId, granted: bool) {
        let State::Candidate(Candidate { stage: Stage::Vote { .. }, votes }) = &mut self.state else { return };
        votes.insert(from, granted);
        self.count_votes();
    }

    /// The candidate's vote for itself, once durable.
    pub(super) fn count_own_vote(&mut self) {
        let State::Candidate(Candidate { stage: Stage::Vote { own_vote_in }, votes }) = &mut self.state else { return };
        if *own_vote_in <= self.output_durable && votes.insert(self.config.id, true).is_none() {
            self.count_votes();
        }
    }

    fn count_votes(&mut self) {
        let State::Candidate(Candidate { votes, .. }) = &self.state else { return };
        let members = &self.members.latest().1;
        let of = |kind| votes.iter().filter(move |(_, granted)| **granted == kind).map(|(voter, _)| *voter);
        if members.is_quorum(of(true)) {
            self.start_leading();
        } else if members.is_quorum(of(false)) {
            self.follow(self.hard.term, None);
        }
    }

    /// The leader hands over to this member.
    pub(super) fn on_timeout_now(&mut self, from: MemberId) {
        if self.state.leader() == Some(from) && self.may_lead() {
            self.campaign(true);
        }
    }
}
