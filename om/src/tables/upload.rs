//! `upload`: bucket id ‖ key, escaped ‖ 0 0 ‖ upload id → a multipart upload under way.
//!
//! Escaping writes a byte 0 of the key as `0 ff`; then `0 0` ends it and order stays that of the keys (`0 0` < `0 ff` < `1`). Upload ids
//! begin with the number of the command that made them, so uploads of one key are in order of their beginning, as S3 lists them.

use std::fmt;

use bytes::Bytes;
use ozone_common::id::BucketId;
use ozone_kvstore::{Read, Result, Table};

use super::key::{ChecksumRow, MetaRow};

/// The table.
pub const TABLE: Table = Table("upload");

/// An upload: eight bytes of the command's number, eight random ones. 32 hexadecimal digits as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub [u8; 16]);

impl UploadId {
    /// Makes one.
    pub fn new(sequence: u64, random: u64) -> Self {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&sequence.to_be_bytes());
        id[8..].copy_from_slice(&random.to_be_bytes());
        Self(id)
    }
    /// Takes its text; `None` where it is not 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|number| Self(number.to_be_bytes()))
    }
    /// Takes stored bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}
impl fmt::Debug for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UploadId({self})")
    }
}

/// Tags 1–5 in use.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct UploadRow {
    /// UTC.
    #[prost(uint64, tag = "1")]
    pub initiated_ms: u64,
    /// User.
    #[prost(string, tag = "2")]
    pub owner: String,
    /// Headers and user metadata of the object to be.
    #[prost(message, optional, tag = "3")]
    pub meta: Option<MetaRow>,
    /// A known content type, as in a key row.
    #[prost(uint32, tag = "4")]
    pub content_type: u32,
    /// How the object will be checked: algorithm and whether composite; no value.
    #[prost(message, optional, tag = "5")]
    pub checksum: Option<ChecksumRow>,
}

/// Bucket id and escaped key: what uploads of keys that begin with `prefix` begin with.
pub fn prefix(bucket: BucketId, prefix: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + prefix.len() + 18);
    out.extend_from_slice(&bucket.get().to_be_bytes());
    for byte in prefix {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xff);
        }
    }
    out
}

/// What all uploads of one key begin with.
pub fn key_prefix(bucket: BucketId, key: &[u8]) -> Vec<u8> {
    let mut out = prefix(bucket, key);
    out.extend_from_slice(&[0, 0]);
    out
}

/// The key of an upload.
pub fn key(bucket: BucketId, key: &[u8], upload: UploadId) -> Vec<u8> {
    let mut out = key_prefix(bucket, key);
    out.extend_from_slice(&upload.0);
    out
}

/// Bucket, key and upload of a row's key.
pub fn split(row: &[u8]) -> Result<(BucketId, Bytes, UploadId)> {
    let bad = || super::corrupt(TABLE, "a key that is none of an upload");
    let (bucket, rest) = super::split_u64(TABLE, row)?;
    let (escaped, upload) = rest.split_last_chunk::<16>().ok_or_else(bad)?;
    let escaped = escaped.strip_suffix(&[0, 0]).ok_or_else(bad)?;
    let mut key = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        key.push(*byte);
        if *byte == 0 && bytes.next() != Some(&0xff) {
            return Err(bad());
        }
    }
    Ok((BucketId(bucket), key.into(), UploadId(*upload)))
}

/// The row of an upload.
pub fn get(view: &dyn Read, bucket: BucketId, of: &[u8], upload: UploadId) -> Result<Option<UploadRow>> {
    super::get(view, TABLE, &key(bucket, of, upload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn example() {
        let row = UploadRow {
            initiated_ms: 1000,
            owner: "root".into(),
            meta: None,
            content_type: 1,
            checksum: Some(ChecksumRow { algorithm: 2, value: Bytes::new(), composite: true, parts: 0 }),
        };
        crate::tables::test_support::check_example(&row, "upload");
        let id = UploadId::new(5, 6);
        assert_eq!(UploadId::parse(&id.to_string()), Some(id));
        for bad in ["", "5", "+0000000000000005000000000000006", &"0".repeat(33), &"g".repeat(32)] {
            assert_eq!(UploadId::parse(bad), None, "{bad}");
        }
    }

    fn any_key() -> impl Strategy<Value = (Vec<u8>, u8)> {
        (proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff), any::<u8>()], 1..6), 0..3u8)
    }

    proptest! {
        #[test]
        fn order_is_by_key_then_upload(a in any_key(), b in any_key()) {
            let row = |(of, id): &(Vec<u8>, u8)| key(BucketId(1), of, UploadId([*id; 16]));
            prop_assert_eq!(row(&a).cmp(&row(&b)), a.cmp(&b));
            prop_assert_eq!(split(&row(&a)).unwrap(), (BucketId(1), Bytes::from(a.0.clone()), UploadId([a.1; 16])));
            prop_assert_eq!(row(&a).starts_with(&prefix(BucketId(1), &b.0)), a.0.starts_with(&b.0));
        }
    }
}
