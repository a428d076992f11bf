//! Stored forms: one file per table. Layout and hex examples are in docs/formats/scm-tables.md.
//!
//! Values are protobuf messages of their own (not the wire's), so that a row of an older version still reads. Keys are big-endian, so that
//! the order of bytes is the order of numbers.

pub mod container;
pub mod deleted_block;
pub mod node;
pub mod sequence;

use ozone_kvstore::{Error, Table, TableOptions};

/// The SCM's tables, as its store is opened with them.
pub const TABLES: [(Table, TableOptions); 5] = [
    (container::CONTAINERS, TableOptions::Rows),
    (container::ACTIVE, TableOptions::Rows),
    (node::NODES, TableOptions::Rows),
    (sequence::SEQUENCES, TableOptions::Rows),
    (deleted_block::DELETED_BLOCKS, TableOptions::Queue),
];

/// A row that does not read as one of `table`.
fn corrupt(table: Table, detail: impl std::fmt::Display) -> Error {
    Error::Corrupt { attempted: format!("read a row of table `{}`", table.0), detail: detail.to_string() }
}

/// A big-endian number that is the whole of a key or value.
fn number(table: Table, bytes: &[u8]) -> Result<u64, Error> {
    bytes.try_into().map(u64::from_be_bytes).map_err(|_| corrupt(table, format!("number of {} bytes", bytes.len())))
}
