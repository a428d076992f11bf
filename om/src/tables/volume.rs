//! `volume`: name → who owns it and how many buckets it has.

use bytes::Bytes;
use ozone_kvstore::{Read, Result, Table};

/// The table.
pub const TABLE: Table = Table("volume");

/// Tags 1–4 in use.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct VolumeRow {
    /// User.
    #[prost(string, tag = "1")]
    pub owner: String,
    /// UTC.
    #[prost(uint64, tag = "2")]
    pub created_ms: u64,
    /// UTC; when it or its set of buckets last changed.
    #[prost(uint64, tag = "3")]
    pub modified_ms: u64,
    /// Buckets in it.
    #[prost(uint64, tag = "4")]
    pub bucket_count: u64,
}

/// The key: the name itself.
pub fn key(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

/// The row of a volume.
pub fn get(view: &dyn Read, name: &str) -> Result<Option<VolumeRow>> {
    super::get(view, TABLE, name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example() {
        let row = VolumeRow { owner: "root".into(), created_ms: 1000, modified_ms: 2000, bucket_count: 3 };
        crate::tables::test_support::check_example(&row, "volume");
    }
}
