//! `meta`: facts about the whole: `layout` → the rows' format version; `buckets`, `grants` → how many there are.
//!
//! Values are varint-free: a number of eight bytes, big-endian.

use ozone_kvstore::{Batch, Read, Result, Table};

/// The table.
pub const TABLE: Table = Table("meta");
/// The version of the formats in docs/formats/om-rows.md. A store of a higher one is refused.
pub const LAYOUT_VERSION: u64 = 1;

/// A fact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fact {
    /// Format version of the rows.
    Layout,
    /// Number of buckets in the cluster.
    Buckets,
    /// Number of live grants.
    Grants,
}

impl Fact {
    const fn key(self) -> &'static [u8] {
        match self {
            Self::Layout => b"layout",
            Self::Buckets => b"buckets",
            Self::Grants => b"grants",
        }
    }
}

/// The number; 0 where there is no row.
pub fn get(view: &dyn Read, fact: Fact) -> Result<u64> {
    match view.get(TABLE, fact.key())? {
        None => Ok(0),
        Some(value) => value
            .as_ref()
            .try_into()
            .map(u64::from_be_bytes)
            .map_err(|_| super::corrupt(TABLE, format_args!("a value of {} bytes", value.len()))),
    }
}

/// Sets the number.
pub fn put(batch: &mut Batch, fact: Fact, number: u64) {
    batch.put(TABLE, fact.key(), number.to_be_bytes().to_vec());
}
