//! A set of row changes that happen together.

use bytes::Bytes;

use crate::Table;

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Sets a row.
    Put {
        /// Where.
        table: Table,
        /// The key.
        key: Bytes,
        /// Its value from now on.
        value: Bytes,
    },
    /// Removes a row; no effect where there is none.
    Delete {
        /// Where.
        table: Table,
        /// The key.
        key: Bytes,
    },
    /// Removes all rows with `start <= key < end`.
    DeleteRange {
        /// Where.
        table: Table,
        /// The first key to go.
        start: Bytes,
        /// The first key to stay.
        end: Bytes,
    },
}

impl Op {
    /// The table it changes.
    pub const fn table(&self) -> Table {
        match self {
            Self::Put { table, .. } | Self::Delete { table, .. } | Self::DeleteRange { table, .. } => *table,
        }
    }
    /// Bytes of its key and value.
    pub fn size(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key, .. } => key.len(),
            Self::DeleteRange { start, end, .. } => start.len() + end.len(),
        }
    }
}

/// Changes in order; a later one of the same row wins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// The changes.
    pub ops: Vec<Op>,
}

impl Batch {
    /// No changes.
    pub const fn new() -> Self {
        Self { ops: Vec::new() }
    }
    /// Adds a put.
    pub fn put(&mut self, table: Table, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.ops.push(Op::Put { table, key: key.into(), value: value.into() });
    }
    /// Adds a delete.
    pub fn delete(&mut self, table: Table, key: impl Into<Bytes>) {
        self.ops.push(Op::Delete { table, key: key.into() });
    }
    /// Adds a range delete.
    pub fn delete_range(&mut self, table: Table, start: impl Into<Bytes>, end: impl Into<Bytes>) {
        self.ops.push(Op::DeleteRange { table, start: start.into(), end: end.into() });
    }
    /// Adds all of another's.
    pub fn extend(&mut self, other: Batch) {
        self.ops.extend(other.ops);
    }
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}
