//! The deletion log: blocks that the OM freed and that not every member has deleted yet.

use std::ops::Bound;

use ozone_common::id::ContainerId;
use ozone_kvstore::{Batch, Direction, Read, Result, Table};
use prost::Message;

use super::{corrupt, number};

/// Transaction (8 bytes) → [`Deletion`].
pub const DELETED_BLOCKS: Table = Table("deleted_block");

/// Consecutive blocks of one container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first block's local number.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// Blocks to delete, taken over from the OM as one transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deletion {
    /// Its number; grows in the order of taking over.
    pub transaction: u64,
    /// What to delete, per container, each container once.
    pub containers: Vec<(ContainerId, Vec<Range>)>,
}

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<StoredContainer>,
}

#[derive(Clone, PartialEq, Message)]
struct StoredContainer {
    #[prost(uint64, tag = "1")]
    container: u64,
    /// First and count, alternating.
    #[prost(uint32, repeated, tag = "2")]
    ranges: Vec<u32>,
}

impl Deletion {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let containers = self.containers.iter().map(|(container, ranges)| StoredContainer {
            container: container.get(),
            ranges: ranges.iter().flat_map(|range| [range.first, range.count]).collect(),
        });
        Stored { containers: containers.collect() }.encode_to_vec()
    }

    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Self> {
        let stored = Stored::decode(value).map_err(|e| corrupt(DELETED_BLOCKS, e))?;
        let one = |stored: StoredContainer| {
            let id = ContainerId::new(stored.container).ok_or_else(|| corrupt(DELETED_BLOCKS, "container id"))?;
            let (pairs, odd) = stored.ranges.as_chunks::<2>();
            if !odd.is_empty() {
                return Err(corrupt(DELETED_BLOCKS, "odd number of range parts"));
            }
            Ok((id, pairs.iter().map(|[first, count]| Range { first: *first, count: *count }).collect()))
        };
        Ok(Self {
            transaction: number(DELETED_BLOCKS, key)?,
            containers: stored.containers.into_iter().map(one).collect::<Result<_>>()?,
        })
    }

    pub(crate) fn put(&self, batch: &mut Batch) {
        batch.put(DELETED_BLOCKS, self.transaction.to_be_bytes().to_vec(), self.encode());
    }
}

pub(crate) fn remove(batch: &mut Batch, transaction: u64) {
    batch.delete(DELETED_BLOCKS, transaction.to_be_bytes().to_vec());
}

/// One transaction.
pub fn get(view: &dyn Read, transaction: u64) -> Result<Option<Deletion>> {
    let key = transaction.to_be_bytes();
    view.get(DELETED_BLOCKS, &key)?.map(|value| Deletion::decode(&key, &value)).transpose()
}

/// Transactions after `after`, in order.
pub fn scan(view: &dyn Read, after: u64) -> Result<impl Iterator<Item = Result<Deletion>> + '_> {
    let key = after.to_be_bytes();
    let rows = view.scan(DELETED_BLOCKS, Bound::Excluded(&key), Bound::Unbounded, Direction::Forward)?;
    Ok(rows.map(|row| row.and_then(|(key, value)| Deletion::decode(&key, &value))))
}
