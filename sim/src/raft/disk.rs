//! A member's disk: what is written is not durable before it is synced, and a crash keeps any first part of what was not.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;

use ozone_consensus::core::{
    Config, Entry, EntryId, HardState, Index, Membership, Raft, ReadLog, Restored, SnapshotMark, StartError,
};

use super::machine::Machine;
use crate::dice::Dice;

/// One write, in the order in which outputs ask for them.
#[derive(Debug)]
pub(super) enum Write {
    Hard(HardState),
    Install(SnapshotMark, Machine),
    /// Cuts off what is there from its index on, and adds it.
    Append(Entry),
}

#[derive(Debug)]
pub(super) struct Disk {
    hard: HardState,
    cut: EntryId,
    log: BTreeMap<Index, Entry>,
    /// The state machine as it comes back after a crash.
    pub(super) flushed: Machine,
    pub(super) snapshot: (SnapshotMark, Machine),
    /// Written, not yet synced, by output.
    unsynced: VecDeque<(u64, Vec<Write>)>,
    /// The last output that the sync under way covers.
    syncing: Option<u64>,
    /// Slower by this factor.
    pub(super) slowness: u64,
}

impl Disk {
    pub(super) fn new(beginning: Membership) -> Self {
        Self {
            hard: HardState::default(),
            cut: EntryId::ZERO,
            log: BTreeMap::new(),
            flushed: Machine::empty(),
            snapshot: (SnapshotMark::beginning(beginning), Machine::empty()),
            unsynced: VecDeque::new(),
            syncing: None,
            slowness: 1,
        }
    }

    /// Starts a member with what is durable.
    pub(super) fn start(&self, config: Config, now: std::time::Duration) -> Result<Raft, StartError> {
        let mut restored = Restored::new(self.hard, self.snapshot.0.clone(), self.flushed.applied, self.cut);
        for entry in self.log.values() {
            restored.entry(entry)?;
        }
        Raft::new(config, restored, now)
    }

    /// Writes an output without syncing it.
    pub(super) fn write(&mut self, number: u64, writes: Vec<Write>) {
        self.unsynced.push_back((number, writes));
    }

    /// Starts a sync of all that is written, if there is anything and none is under way.
    pub(super) fn start_sync(&mut self) -> bool {
        if self.syncing.is_some() {
            return false;
        }
        self.syncing = self.unsynced.back().map(|(number, _)| *number);
        self.syncing.is_some()
    }

    /// The sync under way ends: everything up to the output it gives is durable.
    pub(super) fn finish_sync(&mut self) -> Option<u64> {
        let number = self.syncing.take()?;
        while self.unsynced.front().is_some_and(|(first, _)| *first <= number) {
            let (_, writes) = self.unsynced.pop_front()?;
            writes.into_iter().for_each(|write| self.keep(write));
        }
        Some(number)
    }

    /// Power is lost: a first part of what was not synced stays, the rest is gone.
    pub(super) fn crash(&mut self, dice: &mut Dice) {
        let writes: Vec<Write> =
            std::mem::take(&mut self.unsynced).into_iter().flat_map(|(_, writes)| writes).collect();
        let kept = dice.below(writes.len() as u64 + 1) as usize;
        writes.into_iter().take(kept).for_each(|write| self.keep(write));
        self.syncing = None;
    }

    fn keep(&mut self, write: Write) {
        match write {
            Write::Hard(hard) => self.hard = hard,
            Write::Append(entry) => {
                self.log.split_off(&entry.id.index);
                self.log.insert(entry.id.index, entry);
            }
            Write::Install(mark, machine) => {
                self.log.clear();
                self.cut = mark.last;
                self.flushed = machine;
                self.snapshot = (mark, machine);
            }
        }
    }

    /// Removes the log up to `index`.
    pub(super) fn cut_to(&mut self, cut: EntryId) {
        self.log = self.log.split_off(&cut.index.next());
        self.cut = cut;
    }
}

impl ReadLog for Disk {
    type Error = Infallible;

    fn read(&self, from: Index, to: Index, bytes_max: usize) -> Result<Vec<Entry>, Infallible> {
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            bytes += entry.payload.size_bytes();
            entry.id.index == from || bytes <= bytes_max
        };
        Ok(self.log.range(from..=to).map(|(_, entry)| entry).take_while(fits).cloned().collect())
    }
}
