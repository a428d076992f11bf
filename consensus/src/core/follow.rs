//! The follower's side of replication: taking entries of the leader.

use super::Raft;
use super::entry::{Entry, Payload};
use super::id::{EntryId, Index, MemberId};
use super::message::Body;
use super::state::{Follower, State};

impl Raft {
    /// A message of the term's leader came.
    pub(super) fn hear_leader(&mut self, from: MemberId) {
        match &mut self.state {
            State::Leader(_) => {
                panic!("members {} and {from} both lead term {}: a vote was lost", self.config.id, self.hard.term)
            }
            State::Follower(Follower { leader: Some((leader, heard)) }) => {
                assert!(
                    *leader == from,
                    "members {leader} and {from} both lead term {}: a vote was lost",
                    self.hard.term
                );
                *heard = self.now;
                self.put_off_election();
            }
            State::Follower(_) | State::Candidate(_) => self.follow(self.hard.term, Some(from)),
        }
    }

    pub(super) fn on_heartbeat(&mut self, from: MemberId, commit: Index, round: u64) {
        self.hear_leader(from);
        self.learn_commit(commit);
        self.send(from, Body::HeartbeatReply { round });
    }

    pub(super) fn on_append(&mut self, from: MemberId, prev: EntryId, entries: Vec<Entry>, commit: Index) {
        self.hear_leader(from);
        if !self.is_sound(prev, &entries) {
            return;
        }
        if prev.index < self.commit {
            // An old message. Everything committed is the leader's as well, and later messages bring what comes after.
            return self.send_durable(from, Body::Appended { matched: self.commit });
        }
        if !self.log.contains(prev) {
            let hint = self.log.last_not_after(prev);
            return self.send(from, Body::AppendRefused { at: prev.index, hint });
        }
        let matched = Index(prev.index.0 + entries.len() as u64);
        for entry in entries {
            if self.log.contains(entry.id) {
                continue;
            }
            if entry.id.index <= self.log.last().index {
                assert!(entry.id.index > self.commit, "committed entry {} is never replaced", entry.id.index);
                self.log.truncate_from(entry.id.index);
                self.members.truncate_from(entry.id.index);
            }
            if let Payload::Members(members) = &entry.payload {
                self.members.push(entry.id.index, members.clone());
            }
            self.log.append(entry);
        }
        self.learn_commit(commit.min(matched));
        self.send_durable(from, Body::Appended { matched });
    }

    /// Whether the entries follow each other as a leader of this term sends them.
    fn is_sound(&self, prev: EntryId, entries: &[Entry]) -> bool {
        let ids = std::iter::once(prev).chain(entries.iter().map(|entry| entry.id));
        let next =
            entries.iter().map(|entry| entry.id).chain([EntryId { term: self.hard.term, index: Index(u64::MAX) }]);
        let mut pairs = ids.zip(next).peekable();
        while let Some((one, two)) = pairs.next() {
            let adjacent = pairs.peek().is_none() || two.index == one.index.next();
            if !adjacent || one.term > two.term {
                return false;
            }
        }
        true
    }

    /// Everything up to `commit` is committed, and this member has the leader's log that far.
    pub(super) fn learn_commit(&mut self, commit: Index) {
        self.commit = self.commit.max(commit.min(self.log.last().index));
    }
}
