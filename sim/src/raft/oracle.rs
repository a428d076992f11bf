//! What clients may rely on, checked against everything that is applied and answered.
//!
//! Writes are ordered by the log, and a read sees a prefix of it. So a history is linearizable if every operation has its place at or after that of each
//! operation that had ended before it began. (Herlihy and Wing's definition, with the log as the witness.)

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use ozone_consensus::core::{Entry, EntryId, Index, MemberId};

use super::machine::{Machine, write_of};

#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// What was applied, by index: the entry, and the state's digest after it.
    applied: BTreeMap<Index, (EntryId, u64)>,
    /// Where each write was applied.
    writes: BTreeMap<u64, Index>,
    /// The last place at which an operation has ended.
    floor: Index,
    pub(super) writes_acknowledged: u64,
    pub(super) reads_answered: u64,
    pub(super) last_acknowledged: Index,
}

impl Oracle {
    /// What a new operation must not fall behind.
    pub(super) fn floor(&self) -> Index {
        self.floor
    }

    /// A member applied an entry: every member applies the same one there, with the same outcome, and no write is applied twice.
    pub(super) fn applied(&mut self, member: MemberId, entry: &Entry, machine: &Machine) -> Result<()> {
        let index = entry.id.index;
        let (id, digest) = *self.applied.entry(index).or_insert((entry.id, machine.digest));
        ensure!(id == entry.id, "member {member} applied {} where {id} was applied before", entry.id);
        ensure!(digest == machine.digest, "after {id} the state of member {member} differs from another's");
        if let Some(write) = write_of(&entry.payload) {
            let at = *self.writes.entry(write).or_insert(index);
            ensure!(at == index, "write {write} was applied at {at} and at {index}");
        }
        Ok(())
    }

    /// A snapshot was installed: its state is the one that others had there.
    pub(super) fn installed(&self, member: MemberId, machine: &Machine) -> Result<()> {
        let seen = self.applied.get(&machine.applied).map(|(_, digest)| *digest);
        ensure!(
            seen == Some(machine.digest),
            "the snapshot at {} of member {member} is nobody's state",
            machine.applied
        );
        Ok(())
    }

    /// A write was acknowledged; `floor` is that of its beginning.
    pub(super) fn written(&mut self, write: u64, at: EntryId, floor: Index) -> Result<()> {
        let applied = self.applied.get(&at.index).map(|(id, _)| *id);
        ensure!(applied == Some(at), "write {write} was acknowledged at {at}, where {applied:?} is applied");
        ensure!(self.writes.get(&write) == Some(&at.index), "write {write} was acknowledged but is not in its entry");
        ensure!(at.index > floor, "write {write} at {at} came before something that had ended earlier, at {floor}");
        self.writes_acknowledged += 1;
        self.last_acknowledged = self.last_acknowledged.max(at.index);
        self.floor = self.floor.max(at.index);
        Ok(())
    }

    /// A read saw the state at `at`.
    pub(super) fn read(&mut self, at: Index, floor: Index) -> Result<()> {
        ensure!(at >= floor, "a read saw the state at {at}, though something had ended at {floor} before it began");
        self.reads_answered += 1;
        self.floor = self.floor.max(at);
        Ok(())
    }
}
