//! Queues of what is to be freed.
//!
//! - `deleted`: sequence → block ranges. Handed to the SCM in order and removed with one range delete once it has them.
//! - `deleted_parts`: sequence ‖ number → an upload whose part rows (and their blocks) are to be freed: one row however many parts
//!   there are. A background command moves the parts' blocks to `deleted`, a bounded number at a time.
//!
//! Both grow at the end only (sequences grow), so what is taken from the front never comes back.

use ozone_common::id::BlockId;
use ozone_kvstore::{Result, Table};

/// The queue of blocks.
pub const TABLE: Table = Table("deleted");
/// The queue of uploads.
pub const PARTS: Table = Table("deleted_parts");

/// Tags 1–2 in use.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct DeletedRow {
    /// UTC; readers may still hold tokens until then.
    #[prost(uint64, tag = "1")]
    pub not_before_ms: u64,
    /// The blocks.
    #[prost(message, repeated, tag = "2")]
    pub ranges: Vec<BlockSpan>,
}

/// Consecutive blocks of one container. Tags 1–2 in use.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct BlockSpan {
    /// The first block's id.
    #[prost(uint64, tag = "1")]
    pub first: u64,
    /// How many, minus 1.
    #[prost(uint32, tag = "2")]
    pub more: u32,
}

impl BlockSpan {
    /// One block.
    pub const fn one(block: BlockId) -> Self {
        Self { first: block.get(), more: 0 }
    }
    /// How many blocks.
    pub const fn count(&self) -> u64 {
        self.more as u64 + 1
    }
}

/// Tags 1–3 in use.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct DeletedPartsRow {
    /// UTC; as in [`DeletedRow`].
    #[prost(uint64, tag = "1")]
    pub not_before_ms: u64,
    /// Bucket id.
    #[prost(uint64, tag = "2")]
    pub bucket: u64,
    /// Upload id, 16 bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub upload: bytes::Bytes,
}

/// The key of a row of blocks.
pub fn key(sequence: u64) -> [u8; 8] {
    sequence.to_be_bytes()
}

/// The sequence of a row of blocks.
pub fn split(key: &[u8]) -> Result<u64> {
    match super::split_u64(TABLE, key)? {
        (sequence, []) => Ok(sequence),
        _ => Err(super::corrupt(TABLE, "a key of more than 8 bytes")),
    }
}

/// The key of an upload to free; one command may put several.
pub fn parts_key(sequence: u64, number: u16) -> [u8; 10] {
    let mut key = [0; 10];
    key[..8].copy_from_slice(&sequence.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Sequence and number of an upload to free.
pub fn split_parts(key: &[u8]) -> Result<(u64, u16)> {
    let (sequence, rest) = super::split_u64(PARTS, key)?;
    let number = rest.try_into().map_err(|_| super::corrupt(PARTS, "a key that is not of 10 bytes"))?;
    Ok((sequence, u16::from_be_bytes(number)))
}

/// Sorts spans and joins those that touch.
pub fn merge(spans: &mut Vec<BlockSpan>) {
    spans.sort_unstable_by_key(|span| span.first);
    let mut merged: Vec<BlockSpan> = Vec::with_capacity(spans.len());
    for span in spans.drain(..) {
        if let Some(last) = merged.last_mut() {
            let same_container = last.first >> 24 == span.first >> 24;
            if same_container && span.first <= last.first + last.count() {
                let end = (span.first + span.count()).max(last.first + last.count());
                last.more = (end - last.first - 1) as u32;
                continue;
            }
        }
        merged.push(span);
    }
    *spans = merged;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples() {
        let row = DeletedRow {
            not_before_ms: 61_000,
            ranges: vec![BlockSpan { first: 7 << 24 | 10, more: 0 }, BlockSpan { first: 7 << 24 | 20, more: 43 }],
        };
        crate::tables::test_support::check_example(&row, "deleted");
        let row = DeletedPartsRow { not_before_ms: 61_000, bucket: 7, upload: vec![0xab; 16].into() };
        crate::tables::test_support::check_example(&row, "deleted_parts");
        assert_eq!(split(&key(5)).unwrap(), 5);
        assert_eq!(split_parts(&parts_key(5, 6)).unwrap(), (5, 6));
        assert!(split(&[0; 9]).is_err());
        assert!(split_parts(&[0; 9]).is_err());
    }

    #[test]
    fn spans_that_touch_become_one_but_not_across_containers() {
        let mut spans = vec![
            BlockSpan { first: 8 << 24, more: 0 },
            BlockSpan { first: (7 << 24) + 5, more: 4 },
            BlockSpan { first: 7 << 24, more: 4 },
            BlockSpan { first: (7 << 24) + 11, more: 0 },
            BlockSpan { first: (7 << 24) + 0xff_ffff, more: 0 },
        ];
        merge(&mut spans);
        assert_eq!(
            spans,
            [
                BlockSpan { first: 7 << 24, more: 9 },
                BlockSpan { first: (7 << 24) + 11, more: 0 },
                BlockSpan { first: (7 << 24) + 0xff_ffff, more: 0 },
                BlockSpan { first: 8 << 24, more: 0 },
            ]
        );
    }
}
