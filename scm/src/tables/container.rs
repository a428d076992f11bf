//! Containers, and an index of those that are not settled.
//!
//! ```text
//!            spent (reserved bytes or local ids)          all members
//!  OPEN ───────────────▶ OPEN, spent ─────▶ CLOSING ─────────────────▶ CLOSED ──▶ DELETING ──▶ DELETED
//!    └── a member failed, restarted or died ───▲          report CLOSED
//! ```
//! A spent container hands out no more blocks, but stays OPEN until those it handed out are written or no longer can be.

use std::fmt;
use std::ops::Bound;

use bytes::Bytes;
use ozone_common::id::{ContainerId, DatanodeId, LOCAL_MAX};
use ozone_common::replication::Replication;
use ozone_kvstore::{Batch, Read, Result, Table};
use prost::Message;

use super::{corrupt, number};

/// Container id (8 bytes) → [`Container`].
pub const CONTAINERS: Table = Table("container");
/// Phase (1 byte) ‖ replication (1 byte) ‖ container id (8 bytes) → nothing. Settled containers are not in it.
pub const ACTIVE: Table = Table("container_active");

/// A container's state. It only ever moves to a later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ContainerState {
    /// Takes blocks.
    Open = 1,
    /// Takes no more blocks; its replicas are being closed.
    Closing = 2,
    /// All members of its last epoch closed their replica.
    Closed = 3,
    /// Its replicas are being removed.
    Deleting = 4,
    /// Gone; the record stays so that its id says so.
    Deleted = 5,
}

impl ContainerState {
    /// Every state, in order.
    pub const ALL: [Self; 5] = [Self::Open, Self::Closing, Self::Closed, Self::Deleting, Self::Deleted];

    /// Ozone's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Closing => "CLOSING",
            Self::Closed => "CLOSED",
            Self::Deleting => "DELETING",
            Self::Deleted => "DELETED",
        }
    }
}

impl fmt::Display for ContainerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The parts of the index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// OPEN, with room for more blocks.
    Filling = 1,
    /// OPEN and spent.
    Spent = 2,
    /// CLOSING.
    Closing = 3,
    /// DELETING.
    Deleting = 4,
}

/// A container's record: what is decided, never what is observed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    /// Its state.
    pub state: ContainerState,
    /// How many replicas it should have.
    pub replication: Replication,
    /// Number of its membership, from 1; grows whenever a member is dropped.
    pub epoch: u32,
    /// Who holds it under this epoch, in pipeline order.
    pub members: Vec<DatanodeId>,
    /// Bytes that holders of its block ranges may write in total.
    pub reserved_bytes: u64,
    /// The next block's local number, from 1; all below were handed out.
    pub next_local: u32,
    /// UTC milliseconds.
    pub opened_ms: u64,
    /// When it handed out its last block; 0 = it has room.
    pub spent_ms: u64,
    /// Whether a replica of it was ever reported: one that never was may not exist anywhere, and nobody waits for it.
    pub reported: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(uint32, tag = "1")]
    state: u32,
    #[prost(uint32, tag = "2")]
    replication: u32,
    #[prost(uint32, tag = "3")]
    epoch: u32,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    members: Vec<Bytes>,
    #[prost(uint64, tag = "5")]
    reserved_bytes: u64,
    #[prost(uint32, tag = "6")]
    next_local: u32,
    #[prost(uint64, tag = "7")]
    opened_ms: u64,
    #[prost(uint64, tag = "8")]
    spent_ms: u64,
    #[prost(bool, tag = "9")]
    reported: bool,
}

impl Container {
    /// Whether `node` is a member.
    pub fn has(&self, node: DatanodeId) -> bool {
        self.members.contains(&node)
    }

    /// Local numbers not handed out yet.
    pub const fn locals_left(&self) -> u32 {
        (LOCAL_MAX + 1).saturating_sub(self.next_local)
    }

    fn phase(&self) -> Option<Phase> {
        match self.state {
            ContainerState::Open if self.spent_ms == 0 => Some(Phase::Filling),
            ContainerState::Open => Some(Phase::Spent),
            ContainerState::Closing => Some(Phase::Closing),
            ContainerState::Deleting => Some(Phase::Deleting),
            ContainerState::Closed | ContainerState::Deleted => None,
        }
    }

    fn active_key(&self) -> Option<Bytes> {
        let phase = self.phase()?;
        let mut key = vec![phase as u8, self.replication.number() as u8];
        key.extend_from_slice(&self.id.get().to_be_bytes());
        Some(key.into())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        Stored {
            state: self.state as u32,
            replication: self.replication.number(),
            epoch: self.epoch,
            members: self.members.iter().map(|id| Bytes::copy_from_slice(id.as_bytes())).collect(),
            reserved_bytes: self.reserved_bytes,
            next_local: self.next_local,
            opened_ms: self.opened_ms,
            spent_ms: self.spent_ms,
            reported: self.reported,
        }
        .encode_to_vec()
    }

    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Self> {
        let wrong = |detail: &dyn fmt::Display| corrupt(CONTAINERS, detail);
        let id = ContainerId::new(number(CONTAINERS, key)?).ok_or_else(|| wrong(&"container id"))?;
        let stored = Stored::decode(value).map_err(|e| wrong(&e))?;
        let state = ContainerState::ALL.into_iter().find(|state| *state as u32 == stored.state);
        let members = stored.members.iter().map(|id| DatanodeId::from_slice(id));
        Ok(Self {
            id,
            state: state.ok_or_else(|| wrong(&format!("state {}", stored.state)))?,
            replication: Replication::from_number(stored.replication).map_err(|e| wrong(&e))?,
            epoch: stored.epoch,
            members: members.collect::<ozone_common::Result<_>>().map_err(|e| wrong(&e))?,
            reserved_bytes: stored.reserved_bytes,
            next_local: stored.next_local,
            opened_ms: stored.opened_ms,
            spent_ms: stored.spent_ms,
            reported: stored.reported,
        })
    }

    /// Writes the record and keeps the index in step; `before` is what the table holds now.
    pub(crate) fn put(&self, batch: &mut Batch, before: Option<&Container>) {
        let old = before.and_then(Container::active_key);
        let new = self.active_key();
        if old != new {
            if let Some(key) = old {
                batch.delete(ACTIVE, key);
            }
            if let Some(key) = new {
                batch.put(ACTIVE, key, Bytes::new());
            }
        }
        batch.put(CONTAINERS, self.id.get().to_be_bytes().to_vec(), self.encode());
    }
}

/// One container.
pub fn get(view: &dyn Read, id: ContainerId) -> Result<Option<Container>> {
    let key = id.get().to_be_bytes();
    view.get(CONTAINERS, &key)?.map(|value| Container::decode(&key, &value)).transpose()
}

/// All containers after `after`, in order of id.
pub fn scan(view: &dyn Read, after: u64) -> Result<impl Iterator<Item = Result<Container>> + '_> {
    let key = after.to_be_bytes();
    let rows = view.scan(CONTAINERS, Bound::Excluded(&key), Bound::Unbounded, ozone_kvstore::Direction::Forward)?;
    Ok(rows.map(|row| row.and_then(|(key, value)| Container::decode(&key, &value))))
}

/// The containers of a phase, of one replication or all.
pub fn in_phase(view: &dyn Read, phase: Phase, replication: Option<Replication>) -> Result<Vec<Container>> {
    let mut prefix = vec![phase as u8];
    prefix.extend(replication.map(|replication| replication.number() as u8));
    let mut found = Vec::new();
    for row in view.scan_prefix(ACTIVE, &prefix, Bound::Unbounded)? {
        let (key, _) = row?;
        let id = key.get(2..).map(|id| number(ACTIVE, id)).transpose()?.and_then(ContainerId::new);
        let id = id.ok_or_else(|| corrupt(ACTIVE, "key without a container id"))?;
        found.push(get(view, id)?.ok_or_else(|| corrupt(ACTIVE, format!("container {id} has no record")))?);
    }
    Ok(found)
}

/// Every entry of the index, for checks.
pub(crate) fn active_keys(view: &dyn Read) -> Result<Vec<Bytes>> {
    view.scan_prefix(ACTIVE, b"", Bound::Unbounded)?.map(|row| row.map(|(key, _)| key)).collect()
}

pub(crate) fn key_in_index(container: &Container) -> Option<Bytes> {
    container.active_key()
}
