//! How far a store is: one row, written with every batch that is applied.

use bytes::Bytes;
use ozone_kvstore::{Batch, Error, Read, Result, Table, TableOptions};
use prost::Message;

use crate::core::{EntryId, Index, MemberId, Membership, SnapshotMark};

/// Holds the position.
const TABLE: Table = Table("raft");
const KEY: &[u8] = b"applied";

/// The tables that a group keeps in its store besides the role's own.
pub const GROUP_TABLES: [(Table, TableOptions); 2] =
    [(TABLE, TableOptions::Rows), (super::sessions::TABLE, TableOptions::Rows)];

/// How far a store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// The last entry whose effects are in it.
    pub last: EntryId,
    /// The membership after that entry.
    pub members: Membership,
    /// Number of the last command.
    pub sequence: u64,
    /// UTC milliseconds of its stamp.
    pub now_ms: u64,
    /// Digest of all entries applied.
    pub digest: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PositionRow {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
    #[prost(bytes = "bytes", tag = "3")]
    members: Bytes,
    #[prost(uint64, tag = "4")]
    sequence: u64,
    #[prost(uint64, tag = "5")]
    now_ms: u64,
    #[prost(fixed64, tag = "6")]
    digest: u64,
}

impl Position {
    /// That of an empty store of a group founded by `founder` alone.
    pub fn beginning(founder: MemberId) -> Self {
        Self { last: EntryId::ZERO, members: Membership::single(founder), sequence: 0, now_ms: 0, digest: 0 }
    }

    /// Reads a store's; `None` where nothing was applied yet.
    pub fn read(store: &dyn Read) -> Result<Option<Self>> {
        store.get(TABLE, KEY)?.map(|bytes| Self::decode(bytes).map_err(corrupt)).transpose()
    }

    /// Adds the row to what is applied.
    pub fn write(&self, batch: &mut Batch) {
        batch.put(TABLE, KEY, self.encode());
    }

    pub fn encode(&self) -> Bytes {
        let row = PositionRow {
            term: self.last.term.0,
            index: self.last.index.0,
            members: self.members.encode(),
            sequence: self.sequence,
            now_ms: self.now_ms,
            digest: self.digest,
        };
        row.encode_to_vec().into()
    }

    pub fn decode(bytes: Bytes) -> std::result::Result<Self, String> {
        let row = PositionRow::decode(bytes).map_err(|error| error.to_string())?;
        Ok(Self {
            last: EntryId::new(row.term, row.index),
            members: Membership::decode(&row.members).map_err(|error| error.to_string())?,
            sequence: row.sequence,
            now_ms: row.now_ms,
            digest: row.digest,
        })
    }

    /// As a place up to which the log is not needed.
    pub fn mark(&self) -> SnapshotMark {
        SnapshotMark { last: self.last, members: self.members.clone() }
    }

    pub fn index(&self) -> Index {
        self.last.index
    }
}

fn corrupt(detail: String) -> Error {
    Error::Corrupt { attempted: "read the position of the store".into(), detail }
}
