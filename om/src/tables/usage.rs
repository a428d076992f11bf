//! `usage`: bucket id → what its keys and uploads add up to. Changes in the batch of the rows it counts, so it never drifts.

use ozone_common::id::BucketId;
use ozone_kvstore::{Read, Result, Table};

/// The table.
pub const TABLE: Table = Table("usage");

/// Tags 1–5 in use.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct UsageRow {
    /// Keys.
    #[prost(uint64, tag = "1")]
    pub keys: u64,
    /// Bytes of keys, before replication.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Bytes of keys, after replication.
    #[prost(uint64, tag = "3")]
    pub replicated_bytes: u64,
    /// Multipart uploads under way.
    #[prost(uint64, tag = "4")]
    pub uploads: u64,
    /// Bytes of their parts, before replication.
    #[prost(uint64, tag = "5")]
    pub part_bytes: u64,
}

/// The key.
pub fn key(bucket: BucketId) -> [u8; 8] {
    bucket.get().to_be_bytes()
}

/// Usage of a bucket; all zero where there is no row.
pub fn get(view: &dyn Read, bucket: BucketId) -> Result<UsageRow> {
    Ok(super::get(view, TABLE, &key(bucket))?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example() {
        let row = UsageRow { keys: 1, bytes: 4096, replicated_bytes: 12288, uploads: 0, part_bytes: 0 };
        crate::tables::test_support::check_example(&row, "usage");
    }
}
