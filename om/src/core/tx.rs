//! One command at work: the view it reads, the rows it will change, what it frees.
//!
//! Rows that a command touches more than once (usage, the queues) are gathered here and put once at the end.

use std::collections::BTreeMap;

use bytes::Bytes;
use ozone_common::id::BucketId;
use ozone_common::{Error, ErrorCode};
use ozone_consensus::executor::{Effects, Stamp};
use ozone_kvstore::{Batch, Read};
use ozone_proto::om::v1::{OmResponse, om_response::Op};
use prost::Message;

use super::command::Address;
use super::{Hint, Settings, Stop};
use crate::tables::bucket::{self, BucketRow};
use crate::tables::deleted::{self, BlockSpan, DeletedPartsRow, DeletedRow};
use crate::tables::key::{KeyRow, Slice};
use crate::tables::usage::{self, UsageRow};
use crate::tables::{encode, value};

/// See the module.
pub(crate) struct Tx<'a> {
    pub settings: &'a Settings,
    pub view: &'a dyn Read,
    pub stamp: Stamp,
    pub batch: Batch,
    pub hints: Vec<Hint>,
    freed: Vec<BlockSpan>,
    freed_not_before_ms: u64,
    freed_uploads: u16,
    usage: BTreeMap<BucketId, UsageRow>,
}

impl<'a> Tx<'a> {
    pub fn new(settings: &'a Settings, view: &'a dyn Read, stamp: Stamp) -> Self {
        Self {
            settings,
            view,
            stamp,
            batch: Batch::new(),
            hints: Vec::new(),
            freed: Vec::new(),
            freed_not_before_ms: stamp.now_ms.saturating_add(settings.read_token_life_ms),
            freed_uploads: 0,
            usage: BTreeMap::new(),
        }
    }

    /// The row of a bucket, or the refusal that says which of its names is not there.
    pub fn bucket(&self, address: &Address) -> Result<BucketRow, Stop> {
        find_bucket(self.view, address)
    }

    /// Usage of a bucket, to be changed.
    pub fn usage(&mut self, bucket: BucketId) -> Result<&mut UsageRow, Stop> {
        Ok(match self.usage.entry(bucket) {
            std::collections::btree_map::Entry::Occupied(row) => row.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => place.insert(usage::get(self.view, bucket)?),
        })
    }

    /// Frees blocks.
    pub fn free(&mut self, spans: impl IntoIterator<Item = BlockSpan>) {
        self.freed.extend(spans);
    }

    /// Frees blocks no earlier than `not_before_ms`, where that is later than usual.
    pub fn free_not_before(&mut self, spans: impl IntoIterator<Item = BlockSpan>, not_before_ms: u64) {
        self.freed_not_before_ms = self.freed_not_before_ms.max(not_before_ms);
        self.free(spans);
    }

    /// Frees the blocks of slices.
    pub fn free_slices(&mut self, slices: &[Slice]) {
        self.free(slices.iter().map(|slice| BlockSpan { first: slice.block, more: 0 }));
    }

    /// Frees all parts of an upload, later, in the background.
    pub fn free_upload(&mut self, bucket: BucketId, upload: Bytes) {
        let row = DeletedPartsRow { not_before_ms: self.freed_not_before_ms, bucket: bucket.get(), upload };
        self.batch.put(
            deleted::PARTS,
            deleted::parts_key(self.stamp.sequence, self.freed_uploads).to_vec(),
            encode(&row),
        );
        self.freed_uploads += 1; // at most one a key, and a command has at most 1,000 keys
        self.hints.push(Hint::DeletedParts);
    }

    /// Frees what a key's row refers to, and takes it out of the bucket's usage. The row itself is the caller's to change.
    pub fn free_key(&mut self, bucket: BucketId, row: &KeyRow) -> Result<(), Stop> {
        self.free_slices(&row.slices);
        if row.inline_copies != 0 {
            self.batch.delete(value::TABLE, value::key(bucket, row.generation).to_vec());
        }
        if !row.upload.is_empty() {
            self.free_upload(bucket, row.upload.clone());
        }
        let usage = self.usage(bucket)?;
        usage.keys = usage.keys.saturating_sub(1);
        usage.bytes = usage.bytes.saturating_sub(row.length);
        usage.replicated_bytes = usage.replicated_bytes.saturating_sub(row.replicated_bytes());
        Ok(())
    }

    /// Puts a key's row and counts it.
    pub fn put_key(&mut self, bucket: BucketId, key: &[u8], row: &KeyRow) -> Result<(), Stop> {
        self.batch.put(crate::tables::key::TABLE, crate::tables::key::key(bucket, key), encode(row));
        let usage = self.usage(bucket)?;
        usage.keys += 1;
        usage.bytes = usage.bytes.saturating_add(row.length);
        usage.replicated_bytes = usage.replicated_bytes.saturating_add(row.replicated_bytes());
        Ok(())
    }

    /// The effects, with the gathered rows.
    pub fn finish(mut self, reply: Op) -> Result<Effects<Hint>, Stop> {
        if !self.freed.is_empty() {
            deleted::merge(&mut self.freed);
            let row = DeletedRow { not_before_ms: self.freed_not_before_ms, ranges: self.freed };
            self.batch.put(deleted::TABLE, deleted::key(self.stamp.sequence).to_vec(), encode(&row));
            self.hints.push(Hint::Deleted);
        }
        for (bucket, row) in &self.usage {
            self.batch.put(usage::TABLE, usage::key(*bucket).to_vec(), encode(row));
        }
        let reply = OmResponse { op: Some(reply) }.encode_to_vec();
        Ok(Effects { rows: self.batch, reply: Ok(reply.into()), hints: self.hints })
    }
}

/// The row of a bucket, or the refusal that says which of its names is not there.
pub(crate) fn find_bucket(view: &dyn Read, address: &Address) -> Result<BucketRow, Stop> {
    match bucket::get(view, address.volume.as_str(), address.bucket.as_str())? {
        Some(row) => Ok(row),
        None if crate::tables::volume::get(view, address.volume.as_str())?.is_none() => {
            Err(no_volume(address.volume.as_str()).into())
        }
        None => Err(Error::new(ErrorCode::BucketNotFound, format!("bucket `{address}` does not exist")).into()),
    }
}

/// There is no such volume.
pub(crate) fn no_volume(name: &str) -> Error {
    Error::new(ErrorCode::VolumeNotFound, format!("volume `{name}` does not exist"))
}

/// Success without a value.
pub(crate) fn empty() -> Op {
    Op::Empty(ozone_proto::om::v1::Empty {})
}
