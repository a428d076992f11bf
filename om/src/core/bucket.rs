//! Buckets.

use std::ops::Bound;

use ozone_common::id::BucketId;
use ozone_common::limits::BUCKET_COUNT_MAX;
use ozone_common::{Error, ErrorCode};
use ozone_kvstore::Table;
use ozone_proto::om::v1::om_response::Op;

use super::command::{Address, CreateBucket, InlinePolicy};
use super::tx::{Tx, empty, no_volume};
use super::{Stop, read, volume};
use crate::tables::bucket::{self, BucketRow};
use crate::tables::meta::{self, Fact};
use crate::tables::usage::UsageRow;
use crate::tables::{encode, key, upload, usage};

/// Bits of a bucket's id below its shard.
const SHARD_SHIFT: u32 = 48;
/// The only shard there is today.
const SHARD: u64 = 0;

/// Makes a bucket.
pub(super) fn create(tx: &mut Tx<'_>, create: &CreateBucket) -> Result<Op, Stop> {
    let Address { volume: volume_name, bucket: bucket_name } = &create.address;
    let existing = crate::tables::volume::get(tx.view, volume_name.as_str())?;
    let mut volume_row = match existing {
        Some(row) => row,
        None if create.create_volume => volume::new(tx, &create.owner),
        None => return Err(no_volume(volume_name.as_str()).into()),
    };
    if bucket::get(tx.view, volume_name.as_str(), bucket_name.as_str())?.is_some() {
        let message = format!("bucket `{}` exists already", create.address);
        return Err(Error::new(ErrorCode::BucketAlreadyExists, message).into());
    }
    let count = meta::get(tx.view, Fact::Buckets)?;
    if count >= BUCKET_COUNT_MAX {
        // LIMIT: as in Ozone; listings of buckets and their caches stay bounded.
        let message = format!("there are {count} buckets; {BUCKET_COUNT_MAX} are the most");
        return Err(Error::new(ErrorCode::TooManyBuckets, message).into());
    }
    let row = BucketRow {
        id: SHARD << SHARD_SHIFT | tx.stamp.sequence,
        owner: create.owner.clone(),
        created_ms: tx.stamp.now_ms,
        modified_after_ms: 0,
        replication: key::replication_number(create.replication),
        durability: u32::from(create.memory_durability) * 2,
        inline: match create.inline {
            InlinePolicy::Auto => 0,
            InlinePolicy::Always => 1,
            InlinePolicy::Never => 2,
        },
    };
    let name = bucket::key(volume_name.as_str(), bucket_name.as_str());
    tx.batch.put(bucket::TABLE, name.clone(), encode(&row));
    tx.batch.put(bucket::NAMES, bucket::name_key(BucketId(row.id)).to_vec(), name);
    meta::put(&mut tx.batch, Fact::Buckets, count + 1);
    volume_row.bucket_count += 1;
    volume_row.modified_ms = tx.stamp.now_ms;
    volume::put(tx, volume_name, &volume_row);
    let inline_max = read::inline_max(tx.settings.inline_max, &row, create.members);
    Ok(Op::Bucket(read::bucket_info(
        volume_name.as_str(),
        bucket_name.as_str(),
        &row,
        &UsageRow::default(),
        inline_max,
    )))
}

/// Removes a bucket that has neither keys nor uploads.
pub(super) fn delete(tx: &mut Tx<'_>, address: &Address) -> Result<Op, Stop> {
    let row = tx.bucket(address)?;
    let id = BucketId(row.id);
    for (table, what) in [(key::TABLE, "keys"), (upload::TABLE, "multipart uploads")] {
        if has_rows(tx, table, id)? {
            let message = format!("bucket `{address}` still has {what}");
            return Err(Error::new(ErrorCode::BucketNotEmpty, message).into());
        }
    }
    tx.batch.delete(bucket::TABLE, bucket::key(address.volume.as_str(), address.bucket.as_str()));
    tx.batch.delete(bucket::NAMES, bucket::name_key(id).to_vec());
    tx.batch.delete(usage::TABLE, usage::key(id).to_vec());
    let count = meta::get(tx.view, Fact::Buckets)?;
    meta::put(&mut tx.batch, Fact::Buckets, count.saturating_sub(1));
    if let Some(mut volume_row) = crate::tables::volume::get(tx.view, address.volume.as_str())? {
        volume_row.bucket_count = volume_row.bucket_count.saturating_sub(1);
        volume_row.modified_ms = tx.stamp.now_ms;
        volume::put(tx, &address.volume, &volume_row);
    }
    Ok(empty())
}

fn has_rows(tx: &Tx<'_>, table: Table, bucket: BucketId) -> Result<bool, Stop> {
    let prefix = bucket.get().to_be_bytes();
    let first = tx.view.scan_prefix(table, &prefix, Bound::Unbounded)?.next().transpose()?;
    Ok(first.is_some())
}
