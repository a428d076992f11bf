//! `grant`: grant id → whose, until when, which blocks; `grant_used`: grant id ‖ number of 64 → which of those are committed.
//!
//! The ids of a grant are counted through its ranges in order, from 0; id `i` is bit `i % 64` of word `i / 64`. The bits are rows of
//! their own, so that a commit rewrites eight bytes, not the grant.

use ozone_common::id::{BlockId, ContainerId, GrantId};
use ozone_kvstore::{Batch, Read, Result, Table};

/// The table.
pub const TABLE: Table = Table("grant");
/// Which ids are committed.
pub const USED: Table = Table("grant_used");
/// Most ids of a grant.
pub const BLOCKS_MAX: u32 = 1024;

/// Tags 1–5 in use.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct GrantRow {
    /// The writer, 16 bytes: one incarnation of a process.
    #[prost(bytes = "bytes", tag = "1")]
    pub holder: bytes::Bytes,
    /// UTC; ended by a logged command at or after this time, never by a clock.
    #[prost(uint64, tag = "2")]
    pub expires_ms: u64,
    /// Bytes per block.
    #[prost(uint64, tag = "3")]
    pub max_block_length: u64,
    /// `Replication`'s number.
    #[prost(uint32, tag = "4")]
    pub replication: u32,
    /// Blocks; at most one range per container.
    #[prost(message, repeated, tag = "5")]
    pub ranges: Vec<GrantRange>,
}

/// Blocks of one container. Tags 1–5 in use.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct GrantRange {
    /// Container id.
    #[prost(uint64, tag = "1")]
    pub container: u64,
    /// The first block's local number.
    #[prost(uint32, tag = "2")]
    pub first_local: u32,
    /// How many.
    #[prost(uint32, tag = "3")]
    pub count: u32,
    /// The container's epoch when the grant was made.
    #[prost(uint32, tag = "4")]
    pub epoch: u32,
    /// How much higher it is now, by failed writes that this writer reported.
    #[prost(uint32, tag = "5")]
    pub epoch_raised: u32,
}

impl GrantRange {
    /// The container's epoch as last recorded.
    pub const fn epoch_now(&self) -> u32 {
        self.epoch.saturating_add(self.epoch_raised)
    }
    /// The container.
    pub fn container_id(&self) -> Result<ContainerId> {
        ContainerId::new(self.container).ok_or_else(|| super::corrupt(TABLE, "a container id of more than 39 bits"))
    }
}

impl GrantRow {
    /// How many ids it has.
    pub fn count(&self) -> u32 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.count))
    }

    /// The number of a block inside the grant, and its range.
    pub fn find(&self, block: BlockId) -> Option<(u32, &GrantRange)> {
        let mut base = 0;
        for range in &self.ranges {
            if range.container == block.container().get()
                && let Some(at) = block.local().checked_sub(range.first_local)
                && at < range.count
            {
                return Some((base + at, range));
            }
            base += range.count;
        }
        None
    }
}

/// The key of a grant.
pub fn key(grant: GrantId) -> [u8; 8] {
    grant.get().to_be_bytes()
}

/// The grant of a key.
pub fn split(key: &[u8]) -> Result<GrantId> {
    match super::split_u64(TABLE, key)? {
        (grant, []) => Ok(GrantId(grant)),
        _ => Err(super::corrupt(TABLE, "a key of more than 8 bytes")),
    }
}

/// The key of the bits of ids `64 * word ..`.
pub fn used_key(grant: GrantId, word: u8) -> [u8; 9] {
    let mut key = [0; 9];
    key[..8].copy_from_slice(&grant.get().to_be_bytes());
    key[8] = word;
    key
}

/// Grant and word of a key.
pub fn split_used(key: &[u8]) -> Result<(GrantId, u8)> {
    match super::split_u64(USED, key)? {
        (grant, [word]) => Ok((GrantId(grant), *word)),
        _ => Err(super::corrupt(USED, "a key that is not of 9 bytes")),
    }
}

/// The row of a grant.
pub fn get(view: &dyn Read, grant: GrantId) -> Result<Option<GrantRow>> {
    super::get(view, TABLE, &key(grant))
}

/// The bits of a word; 0 where there is no row.
pub fn get_used(view: &dyn Read, grant: GrantId, word: u8) -> Result<u64> {
    match view.get(USED, &used_key(grant, word))? {
        None => Ok(0),
        Some(value) => value
            .as_ref()
            .try_into()
            .map(u64::from_be_bytes)
            .map_err(|_| super::corrupt(USED, format_args!("a value of {} bytes", value.len()))),
    }
}

/// Sets the bits of a word.
pub fn put_used(batch: &mut Batch, grant: GrantId, word: u8, bits: u64) {
    batch.put(USED, used_key(grant, word).to_vec(), bits.to_be_bytes().to_vec());
}

/// Removes a grant and its bits.
pub fn remove(batch: &mut Batch, grant: GrantId, row: &GrantRow) {
    batch.delete(TABLE, key(grant).to_vec());
    for word in 0..row.count().div_ceil(64) {
        batch.delete(USED, used_key(grant, word as u8).to_vec());
    }
}

const _: () = assert!(BLOCKS_MAX.div_ceil(64) <= 256, "a word's number has one byte");

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> GrantRow {
        GrantRow {
            holder: vec![0x11; 16].into(),
            expires_ms: 600_000,
            max_block_length: 1 << 20,
            replication: 3,
            ranges: vec![
                GrantRange { container: 7, first_local: 100, count: 60, epoch: 1, epoch_raised: 0 },
                GrantRange { container: 9, first_local: 0, count: 10, epoch: 2, epoch_raised: 3 },
            ],
        }
    }

    #[test]
    fn example() {
        crate::tables::test_support::check_example(&row(), "grant");
    }

    #[test]
    fn ids_are_counted_through_the_ranges() {
        let row = row();
        let block = |container, local| ContainerId::new(container).unwrap().block(local).unwrap();
        assert_eq!(row.find(block(7, 100)).unwrap().0, 0);
        assert_eq!(row.find(block(7, 159)).unwrap().0, 59);
        assert_eq!(row.find(block(9, 0)).unwrap().0, 60);
        assert_eq!(row.find(block(9, 9)).unwrap().1.epoch_now(), 5);
        for outside in [block(7, 99), block(7, 160), block(9, 10), block(8, 0)] {
            assert!(row.find(outside).is_none(), "{outside}");
        }
        assert_eq!(split(&key(GrantId(3))).unwrap(), GrantId(3));
        assert_eq!(split_used(&used_key(GrantId(3), 4)).unwrap(), (GrantId(3), 4));
    }
}
