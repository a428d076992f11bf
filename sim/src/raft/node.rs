//! A member of a simulated group: its disk and clock, which outlive it, and the process that runs on them.

use std::collections::BTreeMap;

use ozone_consensus::core::{EntryId, Index, MemberId, Raft, ReadId, Role};

use super::clock::Clock;
use super::disk::Disk;
use super::machine::Machine;

#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: MemberId,
    pub(super) disk: Disk,
    pub(super) clock: Clock,
    /// Counts starts: what was begun in an earlier life does not end in this one.
    pub(super) life: u64,
    pub(super) process: Option<Process>,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) raft: Raft,
    pub(super) machine: Machine,
    /// Its own proposals: the write, and the floor at its beginning.
    pub(super) writes: BTreeMap<EntryId, (u64, Index)>,
    /// Barriers asked for, with the floor at that time.
    pub(super) barriers: BTreeMap<ReadId, Index>,
    /// Reads that may be answered once that index is applied, with the floor.
    pub(super) granted: Vec<(Index, Index)>,
    /// The state of a fetched snapshot, until the output that installs it is written.
    pub(super) fetched: Option<Machine>,
    /// The output that installs a snapshot, until it is durable.
    pub(super) installing: Option<u64>,
    /// When it is to be woken.
    pub(super) wake_at: Option<u64>,
}

impl Process {
    pub(super) fn new(raft: Raft, machine: Machine) -> Self {
        Self {
            raft,
            machine,
            writes: BTreeMap::new(),
            barriers: BTreeMap::new(),
            granted: Vec::new(),
            fetched: None,
            installing: None,
            wake_at: None,
        }
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.raft.role(), Role::Leader { .. })
    }
}
