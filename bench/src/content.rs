//! What keys hold: bytes that follow from a seed and the key's name.
//!
//! A pool of random bytes is made once from the seed; a key's content is the pool read round and round from a place that its
//! name gives. So nothing is drawn or copied per key, two keys differ (with a chance of one in millions that they do not), and
//! whoever knows seed and name can check any part.

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// Bytes of the pool: a prime number, so that periods of a pattern in blocks or chunks do not meet it.
const POOL: usize = 4_194_301;

/// The contents of all keys of one seed.
#[derive(Clone, Debug)]
pub struct Contents {
    pool: Bytes,
    seed: u64,
}

impl Contents {
    /// Makes the pool.
    pub fn new(seed: u64) -> Self {
        let mut pool = vec![0; POOL];
        StdRng::seed_from_u64(seed).fill_bytes(&mut pool);
        Self { pool: pool.into(), seed }
    }

    /// Where in the pool a key's content begins: FNV-1a of its name, mixed (SplitMix64) so that names that differ in a digit
    /// are far apart.
    fn start(&self, name: &[u8]) -> usize {
        let mut hash = name.iter().fold(0xcbf2_9ce4_8422_2325 ^ self.seed, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((hash ^ (hash >> 31)) % POOL as u64) as usize
    }

    /// The first `length` bytes of a key's content, in pieces that share the pool.
    pub fn pieces(&self, name: &[u8], length: u64) -> impl Iterator<Item = Bytes> + use<> {
        let pool = self.pool.clone();
        let mut at = self.start(name);
        let mut left = length;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let take = (POOL - at).min(usize::try_from(left).unwrap_or(usize::MAX));
            let piece = pool.slice(at..at + take);
            left -= take as u64;
            at = (at + take) % POOL;
            Some(piece)
        })
    }

    /// Whether `bytes` are what stands at `offset` of a key's content.
    pub fn matches(&self, name: &[u8], offset: u64, bytes: &[u8]) -> bool {
        let mut at = (self.start(name) + (offset % POOL as u64) as usize) % POOL;
        let mut rest = bytes;
        while !rest.is_empty() {
            let take = (POOL - at).min(rest.len());
            if rest[..take] != self.pool[at..at + take] {
                return false;
            }
            rest = &rest[take..];
            at = (at + take) % POOL;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_known_by_name_and_seed_at_every_length() {
        let contents = Contents::new(1);
        let again = Contents::new(1);
        for length in [0, 1, 4096, POOL as u64 - 1, POOL as u64, 2 * POOL as u64 + 5] {
            let whole: Vec<u8> = contents.pieces(b"k/1", length).flatten().collect();
            assert_eq!(whole.len() as u64, length);
            assert!(again.matches(b"k/1", 0, &whole));
            for offset in [0, length / 3, length] {
                assert!(again.matches(b"k/1", offset, &whole[offset as usize..]), "{length} {offset}");
            }
        }
    }

    #[test]
    fn another_name_seed_place_or_byte_is_noticed() {
        let contents = Contents::new(1);
        let mut bytes: Vec<u8> = contents.pieces(b"k/1", 100).flatten().collect();
        assert!(!contents.matches(b"k/2", 0, &bytes));
        assert!(!contents.matches(b"k/1", 1, &bytes));
        assert!(!Contents::new(2).matches(b"k/1", 0, &bytes));
        bytes[99] ^= 1;
        assert!(!contents.matches(b"k/1", 0, &bytes));
    }
}
