//! Digest of a replica: equal on replicas that hold the same blocks and tombstones, whatever the order of events. Pure.
//!
//! It is the sum modulo 2^256 of the SHA-256 of each item, so that a delete or a seal changes it without reading the rest. It finds
//! damage and divergence, not malice: nobody but datanodes of the cluster makes it.

use ozone_common::id::BlockId;
use ring::digest::{SHA256, digest};

/// A sum of items.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Digest([u64; 4]);

/// What is counted of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockItem {
    pub block: BlockId,
    pub epoch: u32,
    pub length: u32,
    pub crc: u32,
}

impl Digest {
    /// Adds a block.
    pub(crate) fn add_block(&mut self, item: BlockItem) {
        self.add(&item.hash());
    }
    /// Takes a block out.
    pub(crate) fn remove_block(&mut self, item: BlockItem) {
        let Self(hash) = item.hash();
        // Two's complement over 256 bits.
        let mut carry = true;
        let mut negated = [0; 4];
        for (to, from) in negated.iter_mut().zip(hash) {
            (*to, carry) = (!from).overflowing_add(u64::from(carry));
        }
        self.add(&Self(negated));
    }
    /// Adds a tombstone.
    pub(crate) fn add_tombstone(&mut self, block: BlockId) {
        let mut item = [1; 9];
        item[..8].copy_from_slice(&block.get().to_be_bytes());
        self.add(&Self::hash(&item));
    }
    /// Adds all items of another.
    pub(crate) fn add(&mut self, other: &Self) {
        let mut carry = false;
        for (to, from) in self.0.iter_mut().zip(other.0) {
            let (sum, over) = to.overflowing_add(from);
            let (sum, more) = sum.overflowing_add(u64::from(carry));
            (*to, carry) = (sum, over || more);
        }
    }
    /// As reported and stored: little-endian.
    pub(crate) fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (chunk, limb) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&limb.to_le_bytes());
        }
        bytes
    }
    /// What [`Digest::to_bytes`] gave.
    pub(crate) fn from_bytes(bytes: &[u8; 32]) -> Self {
        let mut limbs = [0; 4];
        for (limb, chunk) in limbs.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *limb = u64::from_le_bytes(*chunk);
        }
        Self(limbs)
    }
    fn hash(item: &[u8]) -> Self {
        let hash = digest(&SHA256, item);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hash.as_ref());
        Self::from_bytes(&bytes)
    }
}

impl BlockItem {
    fn hash(&self) -> Digest {
        let mut item = [0; 21];
        item[..8].copy_from_slice(&self.block.get().to_be_bytes());
        item[8..12].copy_from_slice(&self.epoch.to_be_bytes());
        item[12..16].copy_from_slice(&self.length.to_be_bytes());
        item[16..20].copy_from_slice(&self.crc.to_be_bytes());
        Digest::hash(&item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(local: u32) -> BlockItem {
        let container = ozone_common::id::ContainerId::new(3).unwrap();
        BlockItem { block: container.block(local).unwrap(), epoch: 1, length: local, crc: local ^ 7 }
    }

    proptest! {
        #[test]
        fn order_and_history_do_not_matter(mut locals in proptest::collection::vec(0..1000u32, 0..20), gone in 0..1000u32) {
            let mut one = Digest::default();
            one.add_block(item(gone));
            locals.iter().for_each(|local| one.add_block(item(*local)));
            one.remove_block(item(gone));
            locals.reverse();
            let mut other = Digest::default();
            locals.iter().for_each(|local| other.add_block(item(*local)));
            prop_assert_eq!(one, other);
            prop_assert_eq!(Digest::from_bytes(&one.to_bytes()), one);
            other.add_tombstone(item(gone).block);
            prop_assert_ne!(one, other);
        }
    }

    #[test]
    fn every_field_counts() {
        let base = item(5);
        let others = [
            BlockItem { epoch: 2, ..base },
            BlockItem { length: 6, ..base },
            BlockItem { crc: 0, ..base },
            BlockItem { block: item(6).block, ..base },
        ];
        let sum = |item| {
            let mut digest = Digest::default();
            digest.add_block(item);
            digest
        };
        assert!(others.iter().all(|other| sum(*other) != sum(base)));
    }
}
