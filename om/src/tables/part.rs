//! `part`: bucket id ‖ upload id ‖ part number → a part: one row per part.
//!
//! Completion joins parts without moving them: the key row names the upload, and its part rows stay as the object's list of parts and
//! blocks. They are freed when the object is.

use bytes::Bytes;
use ozone_common::id::BucketId;
use ozone_kvstore::{Read, Result, Table};

use super::key::{ChecksumRow, Slice};
use super::upload::UploadId;

/// The table.
pub const TABLE: Table = Table("part");

/// Tags 1–5 in use.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct PartRow {
    /// Bytes.
    #[prost(uint64, tag = "1")]
    pub length: u64,
    /// UTC.
    #[prost(uint64, tag = "2")]
    pub modified_ms: u64,
    /// 16 bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub md5: Bytes,
    /// Blocks in order; as in a key row.
    #[prost(message, repeated, tag = "4")]
    pub slices: Vec<Slice>,
    /// As the client named it.
    #[prost(message, optional, tag = "5")]
    pub checksum: Option<ChecksumRow>,
}

/// What all parts of an upload begin with.
pub fn prefix(bucket: BucketId, upload: UploadId) -> [u8; 24] {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&bucket.get().to_be_bytes());
    key[8..].copy_from_slice(&upload.0);
    key
}

/// The key of a part.
pub fn key(bucket: BucketId, upload: UploadId, part: u16) -> [u8; 26] {
    let mut key = [0; 26];
    key[..24].copy_from_slice(&prefix(bucket, upload));
    key[24..].copy_from_slice(&part.to_be_bytes());
    key
}

/// Bucket, upload and number of a part.
pub fn split(key: &[u8]) -> Result<(BucketId, UploadId, u16)> {
    let (bucket, rest) = super::split_u64(TABLE, key)?;
    match rest.split_first_chunk::<16>() {
        Some((upload, [high, low])) => Ok((BucketId(bucket), UploadId(*upload), u16::from_be_bytes([*high, *low]))),
        _ => Err(super::corrupt(TABLE, "a key that is not of 26 bytes")),
    }
}

/// The row of a part.
pub fn get(view: &dyn Read, bucket: BucketId, upload: UploadId, part: u16) -> Result<Option<PartRow>> {
    super::get(view, TABLE, &key(bucket, upload, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example() {
        let row = PartRow {
            length: 5 << 20,
            modified_ms: 1000,
            md5: vec![0xcd; 16].into(),
            slices: vec![Slice { block: 7 << 24 | 10, epoch: 1, crc32c: 0x0102_0304, ..Slice::default() }],
            checksum: None,
        };
        crate::tables::test_support::check_example(&row, "part");
        let id = UploadId([9; 16]);
        assert_eq!(split(&key(BucketId(3), id, 10_000)).unwrap(), (BucketId(3), id, 10_000));
    }
}
