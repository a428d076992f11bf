//! Reads of single rows, as the wire has them. Linearizable where the caller passed a read barrier before.

use std::ops::Bound;

use bytes::Bytes;
use ozone_common::id::{BlockId, BucketId};
use ozone_common::name::KeyName;
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode};
use ozone_kvstore::Read;
use ozone_proto::common::v1 as common;
use ozone_proto::om::v1 as om;

use super::Stop;
use super::command::Address;
use super::condition::no_key;
use super::tx::{find_bucket, no_volume};
use crate::tables::bucket::BucketRow;
use crate::tables::key::{self, KeyRow};
use crate::tables::part::{self, PartRow};
use crate::tables::upload::UploadId;
use crate::tables::usage::{self, UsageRow};
use crate::tables::volume::{self, VolumeRow};
use crate::tables::{corrupt, decode, value};

/// A volume as the wire has it.
pub fn volume_info(name: &str, row: &VolumeRow) -> om::VolumeInfo {
    om::VolumeInfo {
        name: name.to_owned(),
        owner: row.owner.clone(),
        created_ms: row.created_ms,
        modified_ms: row.modified_ms,
        bucket_count: row.bucket_count,
    }
}

/// Most bytes that a commit to this bucket may carry now; 0 = none.
pub fn inline_max(setting: u32, bucket: &BucketRow, members: u32) -> u32 {
    match bucket.inline {
        1 => setting,
        2 => 0,
        _ if members as usize >= key::replication_of(bucket.replication).min_replicas() => setting,
        _ => 0,
    }
}

/// A bucket as the wire has it.
pub fn bucket_info(volume: &str, bucket: &str, row: &BucketRow, usage: &UsageRow, inline_max: u32) -> om::BucketInfo {
    om::BucketInfo {
        address: Some(om::BucketAddress { volume: volume.to_owned(), bucket: bucket.to_owned() }),
        id: row.id,
        owner: row.owner.clone(),
        layout: "OBJECT_STORE".to_owned(),
        replication: key::replication_of(row.replication).to_string(),
        durability: if row.durability == 2 { 2 } else { 1 },
        inline: row.inline as i32,
        created_ms: row.created_ms,
        modified_ms: row.created_ms.saturating_add(row.modified_after_ms),
        used_bytes: usage.bytes,
        used_replicated_bytes: usage.replicated_bytes,
        key_count: usage.keys,
        inline_max,
    }
}

/// A volume.
pub(crate) fn info_volume(view: &dyn Read, name: &str) -> Result<om::VolumeInfo, Stop> {
    let row = volume::get(view, name)?.ok_or_else(|| no_volume(name))?;
    Ok(volume_info(name, &row))
}

/// A bucket with its usage.
pub(crate) fn info_bucket(
    view: &dyn Read,
    address: &Address,
    inline_setting: u32,
    members: u32,
) -> Result<om::BucketInfo, Stop> {
    let row = find_bucket(view, address)?;
    let usage = usage::get(view, BucketId(row.id))?;
    let most = inline_max(inline_setting, &row, members);
    Ok(bucket_info(address.volume.as_str(), address.bucket.as_str(), &row, &usage, most))
}

/// A key and where its bytes are.
#[derive(Debug)]
pub(crate) struct Found {
    /// As the wire has it.
    pub info: om::KeyInfo,
    /// Blocks in order, with where they start in the key. Filled where data is wanted.
    pub blocks: Vec<(BlockId, common::Block, u64)>,
    /// The bytes, where they are inline and data is wanted.
    pub inline: Option<Bytes>,
}

/// A key's row with its bucket's.
pub(crate) struct KeyAt {
    /// The bucket's.
    pub bucket: BucketRow,
    /// The key's.
    pub row: KeyRow,
}

impl KeyAt {
    /// Whether its bytes or parts are in other rows, so that they must be read from one snapshot with it.
    pub fn spans_rows(&self, want_data: bool) -> bool {
        !self.row.upload.is_empty() || want_data && self.row.inline_copies != 0
    }
}

/// Finds a key's row.
///
/// # Errors
/// `BucketNotFound`, `VolumeNotFound`, `KeyNotFound`; `KeyChanged` where `generation` is not 0 and not its generation.
pub(crate) fn find_key(view: &dyn Read, address: &Address, name: &KeyName, generation: u64) -> Result<KeyAt, Stop> {
    let bucket = find_bucket(view, address)?;
    let row = key::get(view, BucketId(bucket.id), name.as_bytes())?;
    let changed = || {
        let message = format!("key `{name}` is no longer of generation {generation}");
        Stop::Refused(Error::new(ErrorCode::KeyChanged, message))
    };
    match row {
        None if generation != 0 => Err(changed()),
        None => Err(no_key(name).into()),
        Some(row) if generation != 0 && generation != row.generation => Err(changed()),
        Some(row) => Ok(KeyAt { bucket, row }),
    }
}

/// Describes a key that [`find_key`] found in the same view.
pub(crate) fn describe_key(view: &dyn Read, name: &KeyName, at: &KeyAt, want_data: bool) -> Result<Found, Stop> {
    let KeyAt { bucket, row } = at;
    let id = BucketId(bucket.id);
    let mut info = key_info(name.to_shared(), row, bucket, true);
    let mut blocks = Vec::new();
    let mut offset = 0;
    if want_data {
        for (id, block) in row.blocks()? {
            let length = block.length;
            blocks.push((id, block, offset));
            offset += length;
        }
    }
    if !row.upload.is_empty() {
        let upload =
            UploadId::from_slice(&row.upload).ok_or_else(|| corrupt(key::TABLE, "an upload id not of 16 bytes"))?;
        for entry in view.scan_prefix(part::TABLE, &part::prefix(id, upload), Bound::Unbounded)? {
            let (part_key, part_value) = entry?;
            let number = part::split(&part_key)?.2;
            let part: PartRow = decode(part::TABLE, part_value)?;
            if want_data {
                let list = key::blocks(&part.slices, part.length);
                for (id, block) in list.ok_or_else(|| corrupt(part::TABLE, "a block id without container"))? {
                    let length = block.length;
                    blocks.push((id, block, offset));
                    offset += length;
                }
            }
            info.parts.push(part_info(number, &part));
        }
    }
    let inline = if want_data && row.inline_copies != 0 {
        let bytes = view.get(value::TABLE, &value::key(id, row.generation))?;
        let bytes = bytes.filter(|bytes| bytes.len() as u64 == row.length);
        Some(bytes.ok_or_else(|| corrupt(value::TABLE, "an inline value is missing or of another length"))?)
    } else {
        None
    };
    if want_data && inline.is_none() && offset != row.length {
        return Err(corrupt(key::TABLE, "blocks that are not as long as their key").into());
    }
    Ok(Found { info, blocks, inline })
}

/// A key as the wire has it, without parts.
pub(crate) fn key_info(name: Bytes, row: &KeyRow, bucket: &BucketRow, with_user: bool) -> om::KeyInfo {
    let owner = if row.owner.is_empty() { &bucket.owner } else { &row.owner };
    om::KeyInfo {
        key: name,
        length: row.length,
        generation: row.generation,
        created_ms: row.modified_ms,
        modified_ms: row.modified_ms,
        meta: Some(row.object_meta(with_user)),
        replication: row.replication().to_string(),
        parts: Vec::new(),
        owner: owner.clone(),
    }
}

/// A part as the wire has it.
pub(crate) fn part_info(number: u16, row: &PartRow) -> om::PartInfo {
    om::PartInfo {
        part: u32::from(number),
        length: row.length,
        md5: row.md5.clone(),
        checksum: row.checksum.as_ref().map(Into::into),
        modified_ms: row.modified_ms,
    }
}

/// The replication of a bucket's name for it; empty is the default.
pub fn parse_replication(text: &str, default: Replication) -> Result<Replication, Error> {
    if text.is_empty() { Ok(default) } else { text.parse() }
}
