//! The Raft protocol of one member, without I/O, clock or threads: events go in, outputs come out.
//!
//! ```text
//!  tick, step(message), propose, read_barrier, persisted, …          output(log)            take_committed(log)
//!  ───────────────────────────────────────────────────────▶  Raft  ───────────────▶ driver ◀────────────────────
//!                                                                    entries to write,        entries to apply
//!                                                                    messages to send, …
//! ```
//!
//! A turn of the driver: tell the time with [`Raft::tick`], hand in all events there are, take one [`Output`], carry it out, apply
//! what [`Raft::take_committed`] gives. Events change only state; entries and messages are made up when the output is taken, so everything that came in
//! one turn shares one write, one sync and one message per follower.
//!
//! What holds (checked by [`invariants`], in simulation after each step):
//! - Election safety: at most one leader per term.
//! - Log matching: logs that agree on an entry's term agree on all before it.
//! - Leader completeness: a leader has every entry that was committed in earlier terms.
//! - State-machine safety: no two members apply different entries at one index.
//!
//! How: nothing is said before it is durable (votes and acknowledgements wait inside for [`Raft::persisted`]), an entry is committed by count only
//! in its leader's own term, and only entries that are persisted here are given out to be applied.
//!
//! Sources: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm"; Ongaro's thesis for pre-vote (§9.6), leader
//! transfer (§3.10), changes of membership (§4), reads (§6.4).

mod config;
mod election;
mod entry;
mod error;
mod follow;
mod id;
pub mod invariants;
mod leader;
mod log;
mod membership;
mod message;
mod output;
mod progress;
mod read_index;
mod replication;
mod restore;
mod snapshot;
mod state;

use std::collections::VecDeque;
use std::time::Duration;

pub use config::{Config, ConfigError};
pub use entry::{Entry, Payload, PayloadError};
pub use error::{Refused, StartError};
pub use id::{EntryId, Index, MemberId, Term};
pub use log::ReadLog;
pub use membership::{Change, MEMBERS_MAX, Malformed, Membership};
pub use message::{Body, Envelope, Message};
pub use output::{Fetch, Output, ReadDone, ReadId, Role};
pub use restore::{HardState, RestoreError, Restored, SnapshotMark};

use log::Log;
use membership::History;
use state::{Follower, State};

/// One member of a group; see the module.
#[derive(Debug)]
pub struct Raft {
    config: Config,
    now: Duration,
    random: u64,
    hard: HardState,
    hard_unsaved: bool,
    log: Log,
    members: History,
    /// The latest snapshot here.
    mark: SnapshotMark,
    /// A snapshot that the next output installs, and the output of the last one that did.
    install: Option<SnapshotMark>,
    installed_in: u64,
    fetching: bool,
    commit: Index,
    /// Up to here entries were given out to be applied.
    given_out: Index,
    state: State,
    election_due: Duration,
    role_told: Role,
    /// Number of the last output, of the last one that had to be persisted, and of the last one that was.
    output_last: u64,
    output_written: u64,
    output_durable: u64,
    messages: Vec<Envelope>,
    /// Messages that say what is durable only once the output of that number is.
    held: VecDeque<(u64, Envelope)>,
    reads_asked: u64,
    reads_done: Vec<ReadDone>,
    fetch: Option<Fetch>,
}

/// How a member stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Which member.
    pub id: MemberId,
    /// The latest term it knows.
    pub term: Term,
    /// The part it plays.
    pub role: Role,
    /// Who leads the term, as far as it knows; perhaps itself.
    pub leader: Option<MemberId>,
    /// Up to here the log is committed.
    pub commit: Index,
    /// The last entry of its log, persisted or not.
    pub last: EntryId,
    /// Up to here its log is persisted.
    pub persisted: Index,
    /// The last entry that was cut off its log.
    pub cut: EntryId,
    /// The membership in force.
    pub members: Membership,
}

impl Raft {
    /// A member with what it found on its disk. `now` is the boot time ([`ozone_common::env::Clock::boot`]).
    ///
    /// A sole voter starts its election at once: it leads as soon as its first output is persisted.
    ///
    /// # Errors
    /// Settings that cannot work, or a state with holes.
    pub fn new(config: Config, restored: Restored, now: Duration) -> Result<Self, StartError> {
        config.validate()?;
        restored.validate()?;
        let Restored { mut hard, mark, applied, terms, members } = restored;
        // A crash may have kept entries of a term whose hard state it lost. No vote was cast in that term: it would have been durable.
        if terms.last().term > hard.term {
            hard = HardState { term: terms.last().term, vote: None };
        }
        let commit = applied.max(mark.last.index);
        let mut raft = Self {
            random: config.seed ^ config.id.0.rotate_left(32),
            now,
            hard,
            hard_unsaved: false,
            log: Log::restored(terms, config.cache_bytes_max),
            members,
            mark,
            install: None,
            installed_in: 0,
            fetching: false,
            commit,
            given_out: applied,
            state: State::Follower(Follower::default()),
            election_due: now,
            role_told: Role::Follower { leader: None },
            output_last: 0,
            output_written: 0,
            output_durable: 0,
            messages: Vec::new(),
            held: VecDeque::new(),
            reads_asked: 0,
            reads_done: Vec::new(),
            fetch: None,
            config,
        };
        raft.put_off_election();
        if raft.members.latest().1.is_sole_voter(raft.config.id) {
            raft.campaign(false);
        }
        Ok(raft)
    }

    /// Tells the time, and does what is due. Other inputs use the time told last; a time before it is taken for it.
    pub fn tick(&mut self, now: Duration) {
        self.now = self.now.max(now);
        match &self.state {
            State::Leader(_) => self.lead_on(),
            State::Follower(_) | State::Candidate(_) if self.now >= self.election_due && self.may_lead() => {
                self.seek_election()
            }
            State::Follower(_) | State::Candidate(_) => {}
        }
    }

    /// When [`Raft::tick`] has something to do next; `None` while nothing is due at any time (a leader without followers).
    pub fn next_due(&self) -> Option<Duration> {
        match &self.state {
            State::Leader(lead) if lead.progress.is_empty() => None,
            State::Leader(lead) => Some(lead.beat_due.min(lead.quorum_due)),
            State::Follower(_) | State::Candidate(_) if self.may_lead() => Some(self.election_due),
            State::Follower(_) | State::Candidate(_) => None,
        }
    }

    /// Takes a message of another member.
    pub fn step(&mut self, message: Message) {
        let Message { from, term, body } = message;
        if from == self.config.id {
            return;
        }
        match body {
            // Neither binds anybody to the term it names.
            Body::PreVote { last } => return self.on_pre_vote(from, term, last),
            Body::PreVoteReply { granted: true } => return self.on_pre_vote_granted(from, term),
            Body::Vote { transfer: false, .. } if term > self.hard.term && self.hears_leader() => return,
            _ => {}
        }
        if term < self.hard.term {
            if matches!(body, Body::Append { .. } | Body::Heartbeat { .. } | Body::SnapshotOffer { .. }) {
                // A leader that others replaced, or that this member passed in an election it could not win: it must learn the term.
                self.send(from, Body::Outdated);
            }
            return;
        }
        if term > self.hard.term {
            self.follow(term, None);
        }
        if let State::Leader(lead) = &mut self.state
            && let Some(progress) = lead.progress.get_mut(&from)
        {
            progress.heard = true;
        }
        match body {
            Body::Vote { last, .. } => self.on_vote(from, last),
            Body::VoteReply { granted } => self.on_vote_reply(from, granted),
            Body::Append { prev, entries, commit } => self.on_append(from, prev, entries, commit),
            Body::Appended { matched } => self.on_appended(from, matched),
            Body::AppendRefused { at, hint } => self.on_refused(from, at, hint),
            Body::Heartbeat { commit, round } => self.on_heartbeat(from, commit, round),
            Body::HeartbeatReply { round } => self.on_heartbeat_reply(from, round),
            Body::SnapshotOffer { mark } => self.on_snapshot_offer(from, mark),
            Body::TimeoutNow => self.on_timeout_now(from),
            Body::PreVoteReply { .. } | Body::PreVote { .. } | Body::Outdated => {}
        }
    }

    /// Everything up to this output is durable.
    pub fn persisted(&mut self, number: u64) {
        assert!(number <= self.output_last, "output {number} was taken before it was persisted");
        self.output_durable = self.output_durable.max(number);
        self.log.written(number);
        while let Some((_, envelope)) = self.held.pop_front_if(|(needs, _)| *needs <= number) {
            self.messages.push(envelope);
        }
        self.count_own_vote();
        self.advance_commit();
    }

    /// Takes what there is to do. `log` serves followers that need entries which left memory.
    ///
    /// # Errors
    /// The log cannot be read; the member must stop, since part of the output is gone.
    pub fn output<L: ReadLog>(&mut self, log: &L) -> Result<Output, L::Error> {
        self.start_read_round();
        self.replicate(log)?;
        let role = self.role();
        let mut output = Output {
            number: self.output_last + 1,
            hard_state: std::mem::take(&mut self.hard_unsaved).then_some(self.hard),
            install: self.install.take(),
            append: if self.log.has_unsaved() { self.log.take_unsaved() } else { Vec::new() },
            messages: std::mem::take(&mut self.messages),
            role: (role != self.role_told).then_some(role),
            reads: std::mem::take(&mut self.reads_done),
            fetch: self.fetch.take(),
        };
        self.role_told = role;
        if output.must_persist() {
            self.output_last += 1;
            self.output_written = self.output_last;
            self.log.being_written(self.output_last);
        } else {
            output.number = self.output_last;
        }
        Ok(output)
    }

    /// The next entries to apply, in order, each once: committed and persisted here. As many as fit into `bytes_max`, but at least one if there is any; empty
    /// when there is none.
    ///
    /// # Errors
    /// The log cannot be read; the member must stop.
    pub fn take_committed<L: ReadLog>(&mut self, bytes_max: usize, log: &L) -> Result<Vec<Entry>, L::Error> {
        let to = self.commit.min(self.log.persisted());
        // Until a snapshot is installed, the state on disk is not the one that the next entry belongs to.
        if self.given_out >= to || self.installed_in > self.output_durable {
            return Ok(Vec::new());
        }
        let entries = self.log.read(self.given_out.next(), to, bytes_max, log)?;
        self.given_out = entries.last().map_or(self.given_out, |entry| entry.id.index);
        Ok(entries)
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        Status {
            id: self.config.id,
            term: self.hard.term,
            role: self.role(),
            leader: self.leader(),
            commit: self.commit,
            last: self.log.last(),
            persisted: self.log.persisted(),
            cut: self.log.cut(),
            members: self.members.latest().1.clone(),
        }
    }

    /// Which member it is.
    pub fn id(&self) -> MemberId {
        self.config.id
    }

    /// The latest term it knows.
    pub fn term(&self) -> Term {
        self.hard.term
    }

    /// The last entry of its log, persisted or not.
    pub fn last(&self) -> EntryId {
        self.log.last()
    }

    /// The membership in force.
    pub fn members(&self) -> &Membership {
        &self.members.latest().1
    }

    /// Up to here the log is committed.
    pub fn commit(&self) -> Index {
        self.commit
    }

    /// Who leads the term, as far as this member knows; perhaps itself.
    pub fn leader(&self) -> Option<MemberId> {
        match &self.state {
            State::Leader(_) => Some(self.config.id),
            state => state.leader(),
        }
    }

    /// The membership after the entry at `index`, which must not lie before the latest snapshot.
    pub fn members_at(&self, index: Index) -> &Membership {
        self.members.at(index)
    }

    /// The part it plays.
    pub fn role(&self) -> Role {
        match &self.state {
            State::Follower(_) => Role::Follower { leader: self.leader() },
            State::Candidate(_) => Role::Candidate,
            State::Leader(lead) => Role::Leader { term: self.hard.term, noop: lead.noop },
        }
    }

    /// Whether it may seek election: as a voter, or as one whose own departure is in its log but perhaps not committed. Only such a member may have
    /// the entries without which nobody can win (Raft thesis, §4.2.2).
    fn may_lead(&self) -> bool {
        let (since, members) = self.members.latest();
        let was_voter = || self.members.previous().is_some_and(|members| members.is_voter(self.config.id));
        members.is_voter(self.config.id) || (*since > self.commit && was_voter())
    }

    /// Sends in the current term.
    fn send(&mut self, to: MemberId, body: Body) {
        self.send_in(self.hard.term, to, body);
    }

    fn send_in(&mut self, term: Term, to: MemberId, body: Body) {
        self.messages.push(Envelope { to, message: Message { from: self.config.id, term, body } });
    }

    /// Sends once everything that is so far only in memory is durable.
    fn send_durable(&mut self, to: MemberId, body: Body) {
        match self.durable_in() {
            None => self.send(to, body),
            Some(number) => {
                if let (Body::Appended { matched }, Some((needs, last))) = (&body, self.held.back_mut())
                    && *needs == number
                    && last.to == to
                    && let Body::Appended { matched: before } = &mut last.message.body
                {
                    // One answer says it all.
                    *before = (*before).max(*matched);
                    return;
                }
                let message = Message { from: self.config.id, term: self.hard.term, body };
                self.held.push_back((number, Envelope { to, message }));
            }
        }
    }

    /// The output with which everything in memory becomes durable; `None` if all is.
    fn durable_in(&self) -> Option<u64> {
        if self.hard_unsaved || self.install.is_some() || self.log.has_unsaved() {
            Some(self.output_last + 1)
        } else {
            (self.output_written > self.output_durable).then_some(self.output_written)
        }
    }

    /// The next number of a small generator (SplitMix64): election timeouts need to differ, not to be secret.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod group_test;
#[cfg(test)]
mod single_test;
#[cfg(test)]
mod test_support;
