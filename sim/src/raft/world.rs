//! All members, the network between them, and what is going to happen when.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use ozone_consensus::core::{Body, Envelope, Index, MemberId, Membership, Output, Raft, invariants};

use super::clock::Clock;
use super::disk::{Disk, Write};
use super::network::Network;
use super::node::{Node, Process};
use super::oracle::Oracle;
use super::profile::Profile;
use crate::dice::Dice;
use crate::trace::Trace;

/// LIMIT: bytes applied at once.
const APPLY_BYTES_MAX: usize = 300;

/// Something that happens at a time.
#[derive(Debug)]
pub(super) enum Event {
    Deliver(Envelope),
    Synced { node: MemberId, life: u64 },
    Wake { node: MemberId, life: u64 },
    Fetched { node: MemberId, life: u64, from: MemberId },
    Restart { node: MemberId },
    Client,
    Fault,
}

/// What happened in a run, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Digest of the trace.
    pub trace: u64,
    /// Events.
    pub events: u64,
    /// Terms that had a leader.
    pub leaders: u64,
    /// Entries committed.
    pub committed: u64,
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Members that crashed.
    pub crashes: u64,
    /// Snapshots installed from another member.
    pub installs: u64,
    /// Changes of membership proposed.
    pub changes: u64,
    /// Leaders asked to hand over.
    pub transfers: u64,
}

impl Report {
    /// Adds up two runs; the trace is left out.
    pub fn add(&mut self, other: &Self) {
        *self = Self {
            trace: 0,
            events: self.events + other.events,
            leaders: self.leaders + other.leaders,
            committed: self.committed + other.committed,
            writes: self.writes + other.writes,
            reads: self.reads + other.reads,
            crashes: self.crashes + other.crashes,
            installs: self.installs + other.installs,
            changes: self.changes + other.changes,
            transfers: self.transfers + other.transfers,
        };
    }
}

pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) trace: Trace,
    pub(super) profile: Profile,
    /// Nothing goes wrong any more.
    pub(super) healed: bool,
    pub(super) now_us: u64,
    events: BTreeMap<(u64, u64), Event>,
    events_made: u64,
    pub(super) nodes: BTreeMap<MemberId, Node>,
    pub(super) beginning: Membership,
    pub(super) network: Network,
    pub(super) oracle: Oracle,
    record: invariants::Record,
    pub(super) writes_begun: u64,
    pub(super) report: Report,
}

impl World {
    pub(super) fn new(seed: u64, print: bool) -> Result<Self> {
        let mut dice = Dice::new(seed);
        let profile = Profile::draw(&mut dice);
        let beginning = Membership::new((1..=profile.members).map(MemberId), [])?;
        let mut world = Self {
            dice,
            trace: Trace::new(print),
            profile,
            healed: false,
            now_us: 0,
            events: BTreeMap::new(),
            events_made: 0,
            nodes: BTreeMap::new(),
            beginning,
            network: Network::default(),
            oracle: Oracle::default(),
            record: invariants::Record::default(),
            writes_begun: 0,
            report: Report::default(),
        };
        world.trace.explain(|| format!("{:?}", world.profile));
        for id in (1..=world.profile.members).map(MemberId) {
            world.add_node(id)?;
        }
        world.after(0, Event::Client);
        world.after(0, Event::Fault);
        Ok(world)
    }

    /// A member with an empty disk starts.
    pub(super) fn add_node(&mut self, id: MemberId) -> Result<()> {
        let clock = Clock::new(self.now_us, &mut self.dice);
        let disk = Disk::new(self.beginning.clone());
        self.nodes.insert(id, Node { id, disk, clock, life: 0, process: None });
        self.start(id)
    }

    pub(super) fn after(&mut self, delay_us: u64, event: Event) {
        self.events_made += 1;
        self.events.insert((self.now_us + delay_us, self.events_made), event);
    }

    pub(super) fn running(&self) -> Vec<MemberId> {
        self.nodes.values().filter(|node| node.process.is_some()).map(|node| node.id).collect()
    }

    pub(super) fn leaders(&self) -> Vec<MemberId> {
        let leads = |node: &&Node| node.process.as_ref().is_some_and(Process::leads);
        self.nodes.values().filter(leads).map(|node| node.id).collect()
    }

    pub(super) fn process(&mut self, id: MemberId) -> Option<&mut Process> {
        self.nodes.get_mut(&id)?.process.as_mut()
    }

    /// Lets the next thing happen.
    pub(super) fn step(&mut self) -> Result<()> {
        let ((now_us, _), event) =
            self.events.pop_first().context("clients go on for ever, so there is a next event")?;
        self.now_us = now_us;
        self.report.events += 1;
        match event {
            Event::Deliver(envelope) => self.deliver(envelope),
            Event::Synced { node, life } => self.synced(node, life),
            Event::Wake { node, life } => self.wake(node, life),
            Event::Fetched { node, life, from } => self.fetched(node, life, from),
            Event::Restart { node } => self.start(node),
            Event::Client => self.client(),
            Event::Fault if self.healed => Ok(()),
            Event::Fault => self.fault(),
        }
    }

    pub(super) fn start(&mut self, id: MemberId) -> Result<()> {
        let seed = self.dice.draw();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.process.is_none()) else { return Ok(()) };
        let config = self.profile.config(id, seed);
        let raft =
            node.disk.start(config, node.clock.at(self.now_us)).context("a member starts with what it persisted")?;
        node.life += 1;
        self.trace.note(self.now_us, "start", &[id.0, raft.status().term.0, raft.status().last.index.0]);
        node.process = Some(Process::new(raft, node.disk.flushed));
        self.turn(id)
    }

    pub(super) fn crash(&mut self, id: MemberId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.process.take().is_some() {
            node.disk.crash(&mut self.dice);
            self.report.crashes += 1;
            self.trace.note(self.now_us, "crash", &[id.0]);
            let back = self.dice.between(1_000, 1_000_000);
            self.after(back, Event::Restart { node: id });
        }
    }

    fn deliver(&mut self, envelope: Envelope) -> Result<()> {
        let (to, now_us) = (envelope.to, self.now_us);
        let Some(node) = self.nodes.get_mut(&to) else { return Ok(()) };
        let Some(process) = &mut node.process else { return Ok(()) };
        let message = envelope.message;
        self.trace.note(now_us, name_of(&message.body), &[message.from.0, to.0, message.term.0]);
        self.trace.explain(|| format!("{:?}", message.body));
        process.raft.tick(node.clock.at(now_us));
        process.raft.step(message);
        self.turn(to)
    }

    fn wake(&mut self, id: MemberId, life: u64) -> Result<()> {
        let now_us = self.now_us;
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.life == life) else { return Ok(()) };
        let Some(process) = node.process.as_mut().filter(|process| process.wake_at == Some(now_us)) else {
            return Ok(());
        };
        process.wake_at = None;
        self.trace.note(now_us, "wake", &[id.0]);
        self.turn(id)
    }

    fn synced(&mut self, id: MemberId, life: u64) -> Result<()> {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.life == life) else { return Ok(()) };
        let (Some(process), Some(number)) = (&mut node.process, node.disk.finish_sync()) else { return Ok(()) };
        self.trace.note(self.now_us, "synced", &[id.0, number]);
        if process.installing.is_some_and(|installing| installing <= number) {
            process.installing = None;
            process.machine = node.disk.flushed;
            self.report.installs += 1;
            self.oracle.installed(id, &process.machine)?;
        }
        process.raft.tick(node.clock.at(self.now_us));
        process.raft.persisted(number);
        self.turn(id)
    }

    fn fetched(&mut self, id: MemberId, life: u64, from: MemberId) -> Result<()> {
        let source = self.nodes.get(&from).filter(|node| node.process.is_some() && !self.network.is_cut(from, id));
        let snapshot = source.map(|node| node.disk.snapshot.clone());
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.life == life) else { return Ok(()) };
        let Some(process) = &mut node.process else { return Ok(()) };
        process.raft.tick(node.clock.at(self.now_us));
        match snapshot {
            None => process.raft.snapshot_failed(),
            Some((mark, machine)) => {
                self.trace.note(self.now_us, "fetched", &[id.0, from.0, mark.last.index.0]);
                if process.raft.snapshot_fetched(mark) {
                    process.fetched = Some(machine);
                }
            }
        }
        self.turn(id)
    }

    /// A turn of a member's driver: carries out outputs, applies what is ready, until there is nothing left to do.
    pub(super) fn turn(&mut self, id: MemberId) -> Result<()> {
        let now_us = self.now_us;
        let lazy = self.dice.chance(self.profile.lazy_apply);
        if let Some(node) = self.nodes.get_mut(&id)
            && let Some(process) = &mut node.process
        {
            process.raft.tick(node.clock.at(now_us));
        }
        while let Some(node) = self.nodes.get_mut(&id)
            && let Some(process) = &mut node.process
        {
            let output = process.raft.output(&node.disk)?;
            let committed = if lazy { Vec::new() } else { process.raft.take_committed(APPLY_BYTES_MAX, &node.disk)? };
            if output.is_empty() && committed.is_empty() {
                break;
            }
            for entry in &committed {
                process.machine.apply(entry, process.raft.members_at(entry.id.index));
                self.trace.note(now_us, "apply", &[id.0, entry.id.term.0, entry.id.index.0]);
                self.oracle.applied(id, entry, &process.machine)?;
                if let Some((write, floor)) = process.writes.remove(&entry.id) {
                    self.oracle.written(write, entry.id, floor)?;
                }
            }
            self.carry_out(id, output)?;
        }
        self.answer_reads(id)?;
        self.sync(id);
        self.set_alarm(id);
        self.check(id)
    }

    fn carry_out(&mut self, id: MemberId, mut output: Output) -> Result<()> {
        let now_us = self.now_us;
        for envelope in std::mem::take(&mut output.messages) {
            for delay in self.network.carry(id, envelope.to, &self.profile, &mut self.dice) {
                self.after(delay, Event::Deliver(envelope.clone()));
            }
        }
        if output.must_persist() && self.dice.chance(self.profile.crash_in_turn) {
            self.crash(id);
            return Ok(());
        }
        let fetch = output.fetch.take();
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        let Some(process) = &mut node.process else { return Ok(()) };
        if let Some(role) = output.role {
            self.trace.note(now_us, "role", &[id.0, u64::from(process.leads()), process.raft.status().term.0]);
            self.trace.explain(|| format!("member {id} is now {role:?}"));
        }
        for read in std::mem::take(&mut output.reads) {
            let floor = process.barriers.remove(&read.id).context("a read is answered once")?;
            process.granted.extend(read.index.map(|index| (index, floor)));
        }
        if output.must_persist() {
            let number = output.number;
            let mut writes: Vec<Write> = output.hard_state.into_iter().map(Write::Hard).collect();
            if let Some(mark) = output.install {
                let machine = process.fetched.take().context("a snapshot is installed after it was fetched")?;
                ensure!(machine.applied == mark.last.index, "the snapshot fetched is the one to install");
                process.installing = Some(number);
                writes.push(Write::Install(mark, machine));
            }
            writes.extend(output.append.into_iter().map(Write::Append));
            node.disk.write(number, writes);
        }
        let life = node.life;
        if let Some(fetch) = fetch {
            let delay = self.dice.between(1_000, 100_000);
            self.after(delay, Event::Fetched { node: id, life, from: fetch.from });
        }
        Ok(())
    }

    /// Syncs what is written, unless a sync is under way: then this comes after it.
    fn sync(&mut self, id: MemberId) {
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.process.is_some())
            && node.disk.start_sync()
        {
            let life = node.life;
            let delay = node.disk.slowness * self.dice.between(50, self.profile.sync_us_max);
            self.after(delay, Event::Synced { node: id, life });
        }
    }

    fn answer_reads(&mut self, id: MemberId) -> Result<()> {
        let Some(process) = self.nodes.get_mut(&id).and_then(|node| node.process.as_mut()) else { return Ok(()) };
        let applied = process.machine.applied;
        for (_, floor) in process.granted.extract_if(.., |(index, _)| *index <= applied) {
            self.trace.note(self.now_us, "read", &[id.0, applied.0]);
            self.oracle.read(applied, floor)?;
        }
        Ok(())
    }

    fn set_alarm(&mut self, id: MemberId) {
        let now_us = self.now_us;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(process) = &mut node.process else { return };
        let wake_at = process.raft.next_due().map(|due| node.clock.when(due, now_us));
        if process.wake_at == wake_at {
            return;
        }
        process.wake_at = wake_at;
        let life = node.life;
        if let Some(at) = wake_at {
            self.after(at - now_us, Event::Wake { node: id, life });
        }
    }

    fn check(&mut self, id: MemberId) -> Result<()> {
        let others: Vec<&Raft> = self
            .nodes
            .values()
            .filter(|node| node.id != id)
            .filter_map(|node| node.process.as_ref())
            .map(|process| &process.raft)
            .collect();
        if let Some(process) = self.nodes.get(&id).and_then(|node| node.process.as_ref()) {
            self.record.check(&process.raft, &others)?;
        }
        Ok(())
    }

    /// Up to where the group was seen to be committed.
    pub(super) fn committed(&self) -> Index {
        self.record.committed()
    }

    pub(super) fn into_report(self) -> Report {
        Report {
            trace: self.trace.digest(),
            leaders: self.record.leaders() as u64,
            committed: self.record.committed().0,
            writes: self.oracle.writes_acknowledged,
            reads: self.oracle.reads_answered,
            ..self.report
        }
    }
}

fn name_of(body: &Body) -> &'static str {
    match body {
        Body::PreVote { .. } => "pre-vote",
        Body::PreVoteReply { .. } => "pre-vote reply",
        Body::Vote { .. } => "vote",
        Body::VoteReply { .. } => "vote reply",
        Body::Append { .. } => "append",
        Body::Appended { .. } => "appended",
        Body::AppendRefused { .. } => "append refused",
        Body::Heartbeat { .. } => "heartbeat",
        Body::HeartbeatReply { .. } => "heartbeat reply",
        Body::SnapshotOffer { .. } => "snapshot offer",
        Body::TimeoutNow => "timeout now",
        Body::Outdated => "outdated",
    }
}
