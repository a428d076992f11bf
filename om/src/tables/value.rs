//! `value`: bucket id ‖ generation → the bytes of an inline object. A table of large values: no listing and no stat reads it.
//!
//! The key names the generation, not the object's key, so that a reader who holds a key row finds exactly its bytes.

use ozone_common::id::BucketId;
use ozone_kvstore::Table;

/// The table.
pub const TABLE: Table = Table("value");

/// The key of an inline object's bytes.
pub fn key(bucket: BucketId, generation: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&bucket.get().to_be_bytes());
    key[8..].copy_from_slice(&generation.to_be_bytes());
    key
}
