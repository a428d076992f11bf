//! What goes wrong, and what admins do meanwhile.

use anyhow::Result;
use ozone_consensus::core::{Body, Change, MemberId, Message};

use super::profile::Fault;
use super::world::{Event, World};

/// LIMIT: members ever made in a run.
const NODES_MAX: usize = 8;
/// LIMIT: members at a time.
const MEMBERS_MAX: usize = 5;

impl World {
    pub(super) fn fault(&mut self) -> Result<()> {
        let again = self.dice.between(1_000, self.profile.fault_us_max);
        self.after(again, Event::Fault);
        let Some(id) = self.dice.pick(&self.running()) else { return Ok(()) };
        let Some(fault) = self.profile.draw_fault(&mut self.dice) else { return Ok(()) };
        match fault {
            Fault::Crash => self.crash(id),
            Fault::CrashAll => self.running().into_iter().for_each(|id| self.crash(id)),
            Fault::CutLinks => self.cut_links(id),
            Fault::MendLinks => self.network.heal(),
            Fault::Disk => self.change_disk(id),
            Fault::Clock => self.change_clock(id)?,
            Fault::Election => self.start_election(id)?,
            Fault::Transfer => self.transfer()?,
            Fault::Members => self.change_members()?,
            Fault::Snapshot => self.take_snapshot(id),
            Fault::Flush => self.flush(id),
        }
        Ok(())
    }

    /// A follower is told by its leader to start an election, as a late message might tell it: whatever its log is, and without asking first.
    /// So members that should not win try to, and several at once.
    fn start_election(&mut self, id: MemberId) -> Result<()> {
        let several = self.dice.chance(300);
        let whom = if several { self.running() } else { vec![id] };
        for id in whom {
            let Some(process) = self.process(id) else { continue };
            let status = process.raft.status();
            if let Some(from) = status.leader.filter(|leader| *leader != id) {
                process.raft.step(Message { from, term: status.term, body: Body::TimeoutNow });
                self.trace.note(self.now_us, "election", &[id.0, status.term.0]);
                self.turn(id)?;
            }
        }
        Ok(())
    }

    /// Cuts a member off, in one or both directions, from some or all others.
    fn cut_links(&mut self, id: MemberId) {
        let (hears, speaks) = (self.dice.chance(500), self.dice.chance(500));
        let all = self.dice.chance(500);
        let others: Vec<MemberId> = self.nodes.keys().copied().filter(|other| *other != id).collect();
        for other in others {
            if all || self.dice.chance(500) {
                if !hears {
                    self.network.cut(other, id);
                }
                if !speaks {
                    self.network.cut(id, other);
                }
            }
        }
        self.trace.note(self.now_us, "cut off", &[id.0, u64::from(hears), u64::from(speaks), u64::from(all)]);
    }

    fn change_disk(&mut self, id: MemberId) {
        let slowness = self.dice.pick(&[1, 1, 5, 50]).unwrap_or(1);
        self.trace.note(self.now_us, "slow disk", &[id.0, slowness]);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.disk.slowness = slowness;
        }
    }

    fn change_clock(&mut self, id: MemberId) -> Result<()> {
        let (pace, leap) = (self.dice.between(700, 1400), self.dice.below(1_000_000));
        let leaps = self.dice.chance(300);
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        if leaps {
            node.clock.leap(self.now_us, leap);
        } else {
            node.clock.set_pace(self.now_us, pace);
        }
        self.trace.note(self.now_us, "clock", &[id.0, pace, leap]);
        self.turn(id)
    }

    fn transfer(&mut self) -> Result<()> {
        let Some(id) = self.dice.pick(&self.leaders()) else { return Ok(()) };
        let Some(process) = self.process(id) else { return Ok(()) };
        let voters: Vec<MemberId> = process.raft.status().members.voters().iter().copied().collect();
        let Some(to) = self.dice.pick(&voters) else { return Ok(()) };
        let Some(process) = self.process(id) else { return Ok(()) };
        if process.raft.transfer_leadership(to).is_ok() {
            self.report.transfers += 1;
            self.trace.note(self.now_us, "transfer", &[id.0, to.0]);
        }
        self.turn(id)
    }

    fn change_members(&mut self) -> Result<()> {
        let Some(id) = self.dice.pick(&self.leaders()) else { return Ok(()) };
        let Some(members) = self.process(id).map(|process| process.raft.status().members) else { return Ok(()) };
        let voters: Vec<MemberId> = members.voters().iter().copied().collect();
        let learners: Vec<MemberId> = members.learners().iter().copied().collect();
        let all: Vec<MemberId> = members.iter().collect();
        let new = MemberId(self.nodes.len() as u64 + 1);
        let room = self.nodes.len() < NODES_MAX && all.len() < MEMBERS_MAX;
        let change = match self.dice.below(10) {
            0..3 if room => Some(Change::AddLearner(new)),
            0..7 => self.dice.pick(&learners).map(Change::Promote),
            7 => self.dice.pick(&voters).map(Change::Demote),
            _ if all.len() > 2 => self.dice.pick(&all).map(Change::Remove),
            _ => None,
        };
        let Some(change) = change else { return Ok(()) };
        let Some(process) = self.process(id) else { return Ok(()) };
        let Ok(entry) = process.raft.change_members(change) else { return Ok(()) };
        self.report.changes += 1;
        self.trace.note(self.now_us, "change", &[id.0, entry.term.0, entry.index.0]);
        self.trace.explain(|| format!("{change:?}"));
        if matches!(change, Change::AddLearner(_)) {
            self.add_node(new)?;
        }
        self.turn(id)
    }

    /// The state machine becomes durable as it is.
    fn flush(&mut self, id: MemberId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(process) =
            node.process.as_ref().filter(|process| process.installing.is_none() && process.fetched.is_none())
        {
            node.disk.flushed = process.machine;
        }
    }

    /// Takes a snapshot, and cuts the log behind it, more or less.
    fn take_snapshot(&mut self, id: MemberId) {
        self.flush(id);
        let keep = self.dice.pick(&[0, 0, 3, 20]).unwrap_or(0);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(process) =
            node.process.as_mut().filter(|process| process.installing.is_none() && process.fetched.is_none())
        else {
            return;
        };
        let mark = process.raft.snapshot_taken(process.machine.applied);
        if mark.last.index > process.raft.status().cut.index {
            let last = mark.last.index;
            node.disk.snapshot = (mark, process.machine);
            let cut = last.0.saturating_sub(keep).max(process.raft.status().cut.index.0);
            process.raft.cut_log(ozone_consensus::core::Index(cut));
            node.disk.cut_to(process.raft.status().cut);
            self.trace.note(self.now_us, "snapshot", &[id.0, last.0, cut]);
        }
    }
}
