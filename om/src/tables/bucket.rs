//! `bucket`: volume ‖ 0 ‖ bucket → record; `bucket_name`: bucket id → volume ‖ 0 ‖ bucket.
//!
//! Names hold no byte 0, so the order is by volume, then by bucket. A bucket's id is the leading part of every row below it and is
//! never reused: rows that wait to be reclaimed cannot be taken for those of a later bucket of the same name.

use bytes::Bytes;
use ozone_common::id::BucketId;
use ozone_kvstore::{Read, Result, Table};

/// The table.
pub const TABLE: Table = Table("bucket");
/// From id to name.
pub const NAMES: Table = Table("bucket_name");

/// Tags 1–7 in use.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct BucketRow {
    /// [`BucketId`]: 16 bits of shard, 48 bits of the command's number that made it.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// User.
    #[prost(string, tag = "2")]
    pub owner: String,
    /// UTC.
    #[prost(uint64, tag = "3")]
    pub created_ms: u64,
    /// UTC, minus `created_ms`.
    #[prost(uint64, tag = "4")]
    pub modified_after_ms: u64,
    /// `Replication`'s number; 0 = THREE.
    #[prost(uint32, tag = "5")]
    pub replication: u32,
    /// 0 = disk, else the wire's number.
    #[prost(uint32, tag = "6")]
    pub durability: u32,
    /// The wire's number of the inline policy.
    #[prost(uint32, tag = "7")]
    pub inline: u32,
}

/// The key of a bucket.
pub fn key(volume: &str, bucket: &str) -> Bytes {
    let mut key = Vec::with_capacity(volume.len() + 1 + bucket.len());
    key.extend_from_slice(volume.as_bytes());
    key.push(0);
    key.extend_from_slice(bucket.as_bytes());
    key.into()
}

/// What all buckets of a volume begin with.
pub fn prefix(volume: &str) -> Bytes {
    key(volume, "")
}

/// Volume and bucket of a key.
pub fn split(key: &[u8]) -> Result<(&str, &str)> {
    std::str::from_utf8(key)
        .ok()
        .and_then(|key| key.split_once('\0'))
        .ok_or_else(|| super::corrupt(TABLE, "a key without volume and bucket"))
}

/// The key of a bucket's name.
pub fn name_key(id: BucketId) -> [u8; 8] {
    id.get().to_be_bytes()
}

/// The row of a bucket.
pub fn get(view: &dyn Read, volume: &str, bucket: &str) -> Result<Option<BucketRow>> {
    super::get(view, TABLE, &key(volume, bucket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn example() {
        let row = BucketRow {
            id: 7,
            owner: "root".into(),
            created_ms: 1000,
            modified_after_ms: 0,
            replication: 0,
            durability: 0,
            inline: 2,
        };
        crate::tables::test_support::check_example(&row, "bucket");
    }

    proptest! {
        #[test]
        fn order_is_by_volume_then_bucket(a in ("[a-z0-9.-]{3,8}", "[a-z0-9.-]{3,8}"), b in ("[a-z0-9.-]{3,8}", "[a-z0-9.-]{3,8}")) {
            let (ka, kb) = (key(&a.0, &a.1), key(&b.0, &b.1));
            prop_assert_eq!(ka.cmp(&kb), a.cmp(&b));
            prop_assert_eq!(split(&ka).unwrap(), (a.0.as_str(), a.1.as_str()));
            prop_assert!(ka.starts_with(&prefix(&a.0)));
        }
    }
}
