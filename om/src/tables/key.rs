//! `key`: bucket id ‖ key → the object: the truth about its bytes.
//!
//! The order is that of listings. A row of a small file is some 50 bytes: defaults are left out (a single block is as long as the key, the
//! key is as its bucket says unless it says otherwise, common content types are numbers).

use std::collections::HashMap;

use bytes::Bytes;
use ozone_common::id::{BlockId, BucketId};
use ozone_common::replication::Replication;
use ozone_kvstore::{Read, Result, Table};
use ozone_proto::common::v1 as common;
use ozone_proto::om::v1 as om;

/// The table.
pub const TABLE: Table = Table("key");

/// Tags 1–13 in use.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct KeyRow {
    /// Number of the command that made it.
    #[prost(uint64, tag = "1")]
    pub generation: u64,
    /// UTC.
    #[prost(uint64, tag = "2")]
    pub modified_ms: u64,
    /// Bytes.
    #[prost(uint64, tag = "3")]
    pub length: u64,
    /// 16 bytes, or none for keys written without S3.
    #[prost(bytes = "bytes", tag = "4")]
    pub etag_md5: Bytes,
    /// N of the suffix "-N"; 0 = none.
    #[prost(uint32, tag = "5")]
    pub etag_parts: u32,
    /// Its bytes, in order; none where it is empty, inline, or made of parts.
    #[prost(message, repeated, tag = "6")]
    pub slices: Vec<Slice>,
    /// A known content type ([`CONTENT_TYPES`], from 1); 0 = none of them.
    #[prost(uint32, tag = "7")]
    pub content_type: u32,
    /// What else belongs to it.
    #[prost(message, optional, tag = "8")]
    pub meta: Option<MetaRow>,
    /// As the client named it.
    #[prost(message, optional, tag = "9")]
    pub checksum: Option<ChecksumRow>,
    /// Where its bytes are in the table `value`: how many copies counted when it was written; 0 = they are not there.
    #[prost(uint32, tag = "10")]
    pub inline_copies: u32,
    /// The upload whose part rows hold its bytes, 16 bytes; none where it was written whole.
    #[prost(bytes = "bytes", tag = "11")]
    pub upload: Bytes,
    /// User; none = the bucket's owner.
    #[prost(string, tag = "12")]
    pub owner: String,
    /// `Replication`'s number; 0 = THREE.
    #[prost(uint32, tag = "13")]
    pub replication: u32,
}

/// A stretch of a block that is a stretch of the key, and what is true of that block. Tags 1–6 in use.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct Slice {
    /// Block id.
    #[prost(uint64, tag = "1")]
    pub block: u64,
    /// Under which it was sealed.
    #[prost(uint32, tag = "2")]
    pub epoch: u32,
    /// Sealed length, bytes; 0 = the length of the row, whose only slice this is.
    #[prost(uint64, tag = "3")]
    pub sealed: u64,
    /// Of all bytes of the block.
    #[prost(fixed32, tag = "4")]
    pub crc32c: u32,
    /// Where the visible bytes start in the block.
    #[prost(uint64, tag = "5")]
    pub offset: u64,
    /// How many bytes at the block's end are not visible.
    #[prost(uint64, tag = "6")]
    pub hidden: u64,
}

/// Headers and user metadata. Tags 1–2 in use.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MetaRow {
    /// Sorted by name.
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<Pair>,
    /// Sorted by name.
    #[prost(message, repeated, tag = "2")]
    pub user: Vec<Pair>,
}

/// Tags 1–2 in use.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, ::prost::Message)]
pub struct Pair {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Tags 1–4 in use, as on the wire.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ChecksumRow {
    /// 1 CRC32, 2 CRC32C, 3 CRC64NVME, 4 SHA1, 5 SHA256.
    #[prost(uint32, tag = "1")]
    pub algorithm: u32,
    /// Its bytes.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// Of the parts' checksums.
    #[prost(bool, tag = "3")]
    pub composite: bool,
    /// N of the suffix.
    #[prost(uint32, tag = "4")]
    pub parts: u32,
}

/// Content types that take two bytes. Append only: the position, from 1, is stored.
pub const CONTENT_TYPES: &[&str] = &[
    "application/octet-stream",
    "binary/octet-stream",
    "text/plain",
    "text/html",
    "text/css",
    "text/csv",
    "text/javascript",
    "text/markdown",
    "text/xml",
    "application/json",
    "application/xml",
    "application/pdf",
    "application/zip",
    "application/gzip",
    "application/x-tar",
    "application/javascript",
    "application/x-directory",
    "application/vnd.apache.parquet",
    "application/x-www-form-urlencoded",
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/svg+xml",
    "image/tiff",
    "audio/mpeg",
    "video/mp4",
    "text/plain; charset=utf-8",
    "text/html; charset=utf-8",
    "application/json; charset=utf-8",
    "application/x-ndjson",
    "application/wasm",
    "text/x-python",
    "text/rust",
    "application/toml",
    "application/yaml",
];

const CONTENT_TYPE: &str = "content-type";

/// Takes a content type out of the headers where it is a known one.
pub fn pack_meta(headers: HashMap<String, String>, user: HashMap<String, String>) -> (u32, Option<MetaRow>) {
    let sorted = |map: HashMap<String, String>| {
        let mut pairs: Vec<Pair> = map.into_iter().map(|(name, value)| Pair { name, value }).collect();
        pairs.sort_unstable();
        pairs
    };
    let mut headers = sorted(headers);
    let mut content_type = 0;
    if let Some(at) = headers.iter().position(|pair| pair.name == CONTENT_TYPE)
        && let Some(known) = CONTENT_TYPES.iter().position(|known| *known == headers[at].value)
    {
        content_type = known as u32 + 1;
        headers.remove(at);
    }
    let row = MetaRow { headers, user: sorted(user) };
    (content_type, (row != MetaRow::default()).then_some(row))
}

/// Headers and user metadata in their wire form.
pub fn unpack_meta(
    content_type: u32,
    meta: Option<&MetaRow>,
    with_user: bool,
) -> (HashMap<String, String>, HashMap<String, String>) {
    let map = |pairs: &[Pair]| pairs.iter().map(|pair| (pair.name.clone(), pair.value.clone())).collect();
    let mut headers: HashMap<_, _> = meta.map_or_else(HashMap::new, |meta| map(&meta.headers));
    let known = (content_type as usize).checked_sub(1).and_then(|at| CONTENT_TYPES.get(at));
    if let Some(known) = known {
        headers.insert(CONTENT_TYPE.to_owned(), (*known).to_owned());
    }
    let user = meta.filter(|_| with_user).map_or_else(HashMap::new, |meta| map(&meta.user));
    (headers, user)
}

impl From<om::Checksum> for ChecksumRow {
    fn from(sum: om::Checksum) -> Self {
        Self { algorithm: sum.algorithm, value: sum.value, composite: sum.composite, parts: sum.parts }
    }
}

impl From<&ChecksumRow> for om::Checksum {
    fn from(row: &ChecksumRow) -> Self {
        Self { algorithm: row.algorithm, value: row.value.clone(), composite: row.composite, parts: row.parts }
    }
}

/// Blocks as a writer names them, as slices of a row of `length` bytes.
pub fn slices(blocks: &[common::Block], length: u64) -> Vec<Slice> {
    let only = blocks.len() == 1;
    blocks
        .iter()
        .map(|block| Slice {
            block: block.id,
            epoch: block.epoch,
            sealed: if only && block.length == length { 0 } else { block.length },
            crc32c: block.crc32c,
            offset: 0,
            hidden: 0,
        })
        .collect()
}

/// Slices of a row of `length` bytes, as blocks; `None` where they name no valid block.
pub fn blocks(slices: &[Slice], length: u64) -> Option<Vec<(BlockId, common::Block)>> {
    slices
        .iter()
        .map(|slice| {
            let block = common::Block {
                id: slice.block,
                epoch: slice.epoch,
                length: if slice.sealed == 0 { length } else { slice.sealed },
                crc32c: slice.crc32c,
            };
            BlockId::new(slice.block).map(|id| (id, block))
        })
        .collect()
}

impl KeyRow {
    /// Its blocks; an error where the row cannot be ours.
    pub fn blocks(&self) -> Result<Vec<(BlockId, common::Block)>> {
        blocks(&self.slices, self.length).ok_or_else(|| super::corrupt(TABLE, "a block id without container"))
    }

    /// How many copies of its blocks there are.
    pub fn replication(&self) -> Replication {
        Replication::from_number(self.replication).unwrap_or_default()
    }

    /// Bytes that it takes after replication.
    pub fn replicated_bytes(&self) -> u64 {
        let copies = match self.inline_copies {
            0 => self.replication().replicas() as u64,
            copies => u64::from(copies),
        };
        self.length.saturating_mul(copies)
    }

    /// What belongs to the object besides its bytes, in the wire's form.
    pub fn object_meta(&self, with_user: bool) -> om::ObjectMeta {
        let (headers, user) = unpack_meta(self.content_type, self.meta.as_ref(), with_user);
        om::ObjectMeta {
            etag_md5: self.etag_md5.clone(),
            etag_parts: self.etag_parts,
            checksum: self.checksum.as_ref().map(Into::into),
            headers,
            user,
        }
    }
}

/// `Replication` as rows hold it.
pub const fn replication_number(replication: Replication) -> u32 {
    match replication {
        Replication::Three => 0,
        other => other.number(),
    }
}

/// The `Replication` of a row's number.
pub fn replication_of(number: u32) -> Replication {
    Replication::from_number(number).unwrap_or_default()
}

/// The key of an object.
pub fn key(bucket: BucketId, key: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(8 + key.len());
    out.extend_from_slice(&bucket.get().to_be_bytes());
    out.extend_from_slice(key);
    out.into()
}

/// Bucket and key of a row's key.
pub fn split(row: &[u8]) -> Result<(BucketId, &[u8])> {
    super::split_u64(TABLE, row).map(|(bucket, key)| (BucketId(bucket), key))
}

/// The row of an object.
pub fn get(view: &dyn Read, bucket: BucketId, of: &[u8]) -> Result<Option<KeyRow>> {
    super::get(view, TABLE, &key(bucket, of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message;

    fn small() -> KeyRow {
        KeyRow {
            generation: 1_000_000,
            modified_ms: 1_790_000_000_000,
            length: 4096,
            etag_md5: vec![0xcd; 16].into(),
            slices: vec![Slice { block: 7 << 24 | 10, epoch: 1, crc32c: 0x0102_0304, ..Slice::default() }],
            content_type: 2,
            ..KeyRow::default()
        }
    }

    #[test]
    fn example_and_size_of_a_small_file() {
        crate::tables::test_support::check_example(&small(), "key");
        // 8 bytes of bucket and 40 of name are the key; 8 more are RocksDB's.
        let whole = 8 + 40 + 8 + small().encoded_len();
        assert!(whole <= 115, "{whole} bytes before compression; 130 on disk are the budget");
    }

    #[test]
    fn a_single_block_is_as_long_as_its_row() {
        let block = common::Block { id: 7 << 24 | 10, epoch: 1, length: 4096, crc32c: 9 };
        let two = [block, common::Block { id: 7 << 24 | 11, ..block }];
        assert_eq!(slices(&[block], 4096)[0].sealed, 0);
        for (list, length) in [(&two[..1], 4096), (&two[..], 8192)] {
            let back: Vec<_> = blocks(&slices(list, length), length).unwrap().into_iter().map(|(_, b)| b).collect();
            assert_eq!(back, list);
        }
    }

    #[test]
    fn known_content_types_are_numbers_and_come_back() {
        let map = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        for (headers, user, rest) in [
            (map(&[(CONTENT_TYPE, "text/plain")]), map(&[]), 0),
            (map(&[(CONTENT_TYPE, "text/strange")]), map(&[]), 1),
            (map(&[(CONTENT_TYPE, "image/png"), ("cache-control", "no-cache")]), map(&[("a", "b"), ("c", "")]), 1),
            (map(&[]), map(&[]), 0),
        ] {
            let (content_type, meta) = pack_meta(headers.clone(), user.clone());
            assert_eq!(meta.as_ref().map_or(0, |meta| meta.headers.len()), rest);
            assert_eq!(unpack_meta(content_type, meta.as_ref(), true), (headers, user));
            assert!(unpack_meta(content_type, meta.as_ref(), false).1.is_empty());
        }
        let mut distinct = CONTENT_TYPES.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), CONTENT_TYPES.len());
        assert_eq!(CONTENT_TYPES[2], "text/plain", "positions are stored");
    }

    proptest! {
        #[test]
        fn order_is_by_bucket_then_key(a in (0..3u64, proptest::collection::vec(any::<u8>(), 1..5)), b in (0..3u64, proptest::collection::vec(any::<u8>(), 1..5))) {
            let (ka, kb) = (key(BucketId(a.0), &a.1), key(BucketId(b.0), &b.1));
            prop_assert_eq!(ka.cmp(&kb), a.cmp(&b));
            prop_assert_eq!(split(&ka).unwrap(), (BucketId(a.0), a.1.as_slice()));
        }
    }
}
