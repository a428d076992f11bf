//! Ordered tables under the replicated roles' state and the datanodes' block index.
//!
//! One trait, two implementations under one conformance suite ([`conformance`]): RocksDB ([`rocks`]) and a twin in memory
//! ([`mem`]) that can lose what was not flushed, for simulation.
//!
//! Durability: [`Store::write`] is atomic over all tables and volatile. There is no write-ahead log; the caller has one of its own
//! (the Raft log, the datanode's segments) and writes its position in the same batch. [`Store::flush`] makes all
//! writes before it durable. After a crash the store holds a *prefix* of the writes, which includes at least the last flush, and all tables
//! agree on that prefix; so the position found in it tells from where to replay.

pub mod batch;
pub mod conformance;
pub mod mem;
pub mod rocks;
pub mod table;

pub use batch::{Batch, Op};
pub use table::{Table, TableOptions};

use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;

/// What can go wrong with a store. All of these are final: the caller stops using it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk failed or is full.
    #[error("{attempted}: {source}")]
    Io {
        /// What was being done.
        attempted: String,
        /// The cause.
        source: std::io::Error,
    },
    /// Bytes on disk are not what they were.
    #[error("{attempted}: store is corrupt: {detail}")]
    Corrupt {
        /// What was being done.
        attempted: String,
        /// As the engine says it.
        detail: String,
    },
    /// A table that the store was not opened with, or one on disk that this build does not know.
    #[error("{attempted}: table `{table}` is not one of this store's")]
    UnknownTable {
        /// What was being done.
        attempted: String,
        /// Its name.
        table: String,
    },
}

/// `Result` with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// A row.
pub type Row = (Bytes, Bytes);

/// Which way a scan goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Reverse,
}

/// The rows of a scan, in order.
pub type Rows<'a> = Box<dyn Iterator<Item = Result<Row>> + Send + 'a>;

/// Reading, from a store as it is or from a snapshot.
pub trait Read: Send + Sync {
    /// The value of a key.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>>;

    /// The values of several keys of one table, in their order. Cheaper than one by one; no view of one moment unless this is a snapshot.
    fn multi_get(&self, table: Table, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        keys.iter().map(|key| self.get(table, key)).collect()
    }

    /// Rows whose keys lie within the bounds, as they are at the time of the call.
    fn scan(&self, table: Table, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> Result<Rows<'_>>;

    /// Rows whose keys begin with `prefix`, ascending, from `from` on where that is further on.
    fn scan_prefix(&self, table: Table, prefix: &[u8], from: Bound<&[u8]>) -> Result<Rows<'_>> {
        let start = match from {
            Bound::Included(key) if key > prefix => from,
            Bound::Excluded(key) if key >= prefix => from,
            _ => Bound::Included(prefix),
        };
        let end = prefix_end(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.scan(table, start, end, Direction::Forward)
    }
}

/// A set of ordered tables.
pub trait Store: Read + 'static {
    /// Carries out all operations of the batch, or none. Volatile until [`Store::flush`].
    fn write(&self, batch: &Batch) -> Result<()>;

    /// Makes everything written before it durable.
    fn flush(&self) -> Result<()>;

    /// A consistent view of all tables at this moment, unchanged by later writes.
    fn snapshot(&self) -> Box<dyn Read + '_>;

    /// Writes a copy that can be opened as a store into the folder `path`, which must not exist. Flushed first; files are shared by hard links where the engine can.
    fn checkpoint(&self, path: &Path) -> Result<()>;

    /// Bytes of memory that writes not yet flushed take; for deciding when to flush.
    fn unflushed_bytes(&self) -> u64;
}

/// The first key after all keys that begin with `prefix`; `None` where there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}
