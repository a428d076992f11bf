//! Facts that hold after every command, as plain functions over the rows. Tests, simulation and fsck call the same.
//!
//! - *one owner*: a block is referred to by at most one of: a slice of a key or part row, a row of `deleted`, an unused id of a live grant;
//! - *granted once*: what is used in a live grant is referred to or freed, and no two live grants have a block in common;
//! - *usage*: counters equal a recount;
//! - *no orphans*: part rows belong to an upload under way, a completed key or a queued delete; inline values to a key;
//! - *names*: a bucket's id and name find each other, and its volume exists and counts it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use ozone_common::id::BucketId;
use ozone_kvstore::{Direction, Read, Result, Table};
use prost::Message;

use crate::tables::bucket::{self, BucketRow};
use crate::tables::deleted::{self, DeletedPartsRow, DeletedRow};
use crate::tables::grant::{self, GrantRow};
use crate::tables::key::{self, KeyRow};
use crate::tables::meta::{self, Fact};
use crate::tables::part::{self, PartRow};
use crate::tables::upload;
use crate::tables::usage::{self, UsageRow};
use crate::tables::volume::{self, VolumeRow};
use crate::tables::{decode, value};

/// Checks all of them; the answer lists what does not hold. Reads everything: for tests and offline checks.
///
/// # Errors
/// A row that cannot be read or decoded.
pub fn check(view: &dyn Read) -> Result<Vec<String>> {
    let mut check = Check::default();
    check.grants(view)?;
    check.keys(view)?;
    check.parts(view)?;
    check.queues(view)?;
    check.counters(view)?;
    check.names(view)?;
    Ok(check.broken)
}

#[derive(Default)]
struct Check {
    broken: Vec<String>,
    /// Who refers to a block.
    owners: BTreeMap<u64, String>,
    used: BTreeSet<u64>,
    usage: BTreeMap<u64, UsageRow>,
    /// Uploads that own part rows, by bucket and id.
    uploads: BTreeSet<(u64, Bytes)>,
    open_uploads: BTreeSet<(u64, Bytes)>,
    values: BTreeSet<[u8; 16]>,
}

fn rows(view: &dyn Read, table: Table) -> Result<Vec<(Bytes, Bytes)>> {
    view.scan(table, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?.collect()
}

impl Check {
    fn own(&mut self, block: u64, owner: String) {
        if let Some(before) = self.owners.get(&block) {
            self.broken.push(format!("block {block:#x} is referred to by {before} and by {owner}"));
        } else {
            self.owners.insert(block, owner);
        }
    }

    fn grants(&mut self, view: &dyn Read) -> Result<()> {
        let mut count = 0;
        for (row_key, row_value) in rows(view, grant::TABLE)? {
            count += 1;
            let id = grant::split(&row_key)?;
            let row: GrantRow = decode(grant::TABLE, row_value)?;
            let mut number = 0;
            for range in &row.ranges {
                for at in 0..range.count {
                    let block = range.container << 24 | u64::from(range.first_local + at);
                    let word = grant::get_used(view, id, (number / 64) as u8)?;
                    if word >> (number % 64) & 1 == 1 {
                        if !self.used.insert(block) {
                            self.broken.push(format!("block {block:#x} is used in two grants"));
                        }
                    } else {
                        self.own(block, format!("live grant {id}"));
                    }
                    number += 1;
                }
            }
        }
        for (row_key, _) in rows(view, grant::USED)? {
            let (id, _) = grant::split_used(&row_key)?;
            if grant::get(view, id)?.is_none() {
                self.broken.push(format!("bits of grant {id}, which is not there"));
            }
        }
        let counted = meta::get(view, Fact::Grants)?;
        if counted != count {
            self.broken.push(format!("{counted} grants counted, {count} found"));
        }
        Ok(())
    }

    fn keys(&mut self, view: &dyn Read) -> Result<()> {
        for (row_key, row_value) in rows(view, key::TABLE)? {
            let (bucket, name) = key::split(&row_key)?;
            let name = format!("key {:?} of bucket {bucket}", String::from_utf8_lossy(name));
            let row: KeyRow = decode(key::TABLE, row_value)?;
            let counted = self.usage.entry(bucket.get()).or_default();
            counted.keys += 1;
            counted.bytes += row.length;
            counted.replicated_bytes += row.replicated_bytes();
            let mut sum = 0;
            for (id, block) in row.blocks()? {
                sum += block.length;
                self.own(id.get(), name.clone());
            }
            if row.inline_copies != 0 {
                let at = value::key(bucket, row.generation);
                sum += view.get(value::TABLE, &at)?.map_or(0, |bytes| bytes.len() as u64);
                self.values.insert(at);
            }
            if !row.upload.is_empty() {
                let mut prefix = bucket.get().to_be_bytes().to_vec();
                prefix.extend_from_slice(&row.upload);
                for entry in view.scan_prefix(part::TABLE, &prefix, Bound::Unbounded)? {
                    sum += decode::<PartRow>(part::TABLE, entry?.1)?.length;
                }
                if !self.uploads.insert((bucket.get(), row.upload.clone())) {
                    self.broken.push(format!("{name} shares its parts with another"));
                }
            }
            if sum != row.length {
                self.broken.push(format!("{name} has {sum} bytes, its row says {}", row.length));
            }
        }
        for (row_key, _) in rows(view, value::TABLE)? {
            if !self.values.iter().any(|at| at.as_slice() == row_key) {
                self.broken.push(format!("inline value {row_key:02x?} without key"));
            }
        }
        Ok(())
    }

    fn parts(&mut self, view: &dyn Read) -> Result<()> {
        for (row_key, _) in rows(view, upload::TABLE)? {
            let (bucket, _, id) = upload::split(&row_key)?;
            self.usage.entry(bucket.get()).or_default().uploads += 1;
            let at = (bucket.get(), Bytes::copy_from_slice(&id.0));
            if !self.uploads.insert(at.clone()) {
                self.broken.push(format!("upload {id} is completed and under way"));
            }
            self.open_uploads.insert(at);
        }
        for (_, row_value) in rows(view, deleted::PARTS)? {
            let row: DeletedPartsRow = decode(deleted::PARTS, row_value)?;
            if !self.uploads.insert((row.bucket, row.upload)) {
                self.broken.push("an upload is to be freed and in use".to_owned());
            }
        }
        for (row_key, row_value) in rows(view, part::TABLE)? {
            let (bucket, id, number) = part::split(&row_key)?;
            let row: PartRow = decode(part::TABLE, row_value)?;
            let at = (bucket.get(), Bytes::copy_from_slice(&id.0));
            if self.open_uploads.contains(&at) {
                self.usage.entry(bucket.get()).or_default().part_bytes += row.length;
            }
            if !self.uploads.contains(&at) {
                self.broken.push(format!("part {number} of upload {id}, which nothing refers to"));
            }
            for slice in &row.slices {
                self.own(slice.block, format!("part {number} of upload {id}"));
            }
        }
        Ok(())
    }

    fn queues(&mut self, view: &dyn Read) -> Result<()> {
        for (row_key, row_value) in rows(view, deleted::TABLE)? {
            let sequence = deleted::split(&row_key)?;
            let row: DeletedRow = decode(deleted::TABLE, row_value)?;
            for span in &row.ranges {
                for at in 0..span.count() {
                    self.own(span.first + at, format!("delete {sequence}"));
                }
            }
        }
        Ok(())
    }

    fn counters(&mut self, view: &dyn Read) -> Result<()> {
        for (row_key, row_value) in rows(view, usage::TABLE)? {
            let bucket = row_key.as_ref().try_into().map_or(0, u64::from_be_bytes);
            let row: UsageRow = decode(usage::TABLE, row_value)?;
            let counted = self.usage.remove(&bucket).unwrap_or_default();
            if row != counted {
                self.broken.push(format!("usage of bucket {bucket}: {row:?} recorded, {counted:?} counted"));
            }
        }
        for (bucket, counted) in std::mem::take(&mut self.usage) {
            if counted.encoded_len() != 0 {
                self.broken.push(format!("usage of bucket {bucket}: nothing recorded, {counted:?} counted"));
            }
        }
        Ok(())
    }

    fn names(&mut self, view: &dyn Read) -> Result<()> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut ids = BTreeSet::new();
        let mut count = 0;
        for (row_key, row_value) in rows(view, bucket::TABLE)? {
            let (volume_name, name) = bucket::split(&row_key)?;
            let row: BucketRow = decode(bucket::TABLE, row_value)?;
            *counts.entry(volume_name.to_owned()).or_default() += 1;
            count += 1;
            ids.insert(row.id);
            if view.get(bucket::NAMES, &bucket::name_key(BucketId(row.id)))?.as_ref() != Some(&row_key) {
                self.broken.push(format!("bucket {volume_name}/{name} is not found by its id {}", row.id));
            }
        }
        if rows(view, bucket::NAMES)?.len() != ids.len() {
            self.broken.push("ids without bucket, or an id of two".to_owned());
        }
        if meta::get(view, Fact::Buckets)? != count {
            self.broken.push(format!("{} buckets counted, {count} found", meta::get(view, Fact::Buckets)?));
        }
        for (row_key, row_value) in rows(view, volume::TABLE)? {
            let name = String::from_utf8_lossy(&row_key).into_owned();
            let row: VolumeRow = decode(volume::TABLE, row_value)?;
            let found = counts.remove(&name).unwrap_or(0);
            if row.bucket_count != found {
                self.broken.push(format!("volume {name} counts {} buckets, has {found}", row.bucket_count));
            }
        }
        for (name, _) in counts {
            self.broken.push(format!("buckets of volume {name}, which is not there"));
        }
        for (row_key, _) in rows(view, usage::TABLE)? {
            if !row_key.as_ref().try_into().is_ok_and(|id| ids.contains(&u64::from_be_bytes(id))) {
                self.broken.push(format!("usage of bucket {row_key:02x?}, which is not there"));
            }
        }
        for (row_key, _) in rows(view, key::TABLE)? {
            let (bucket, _) = key::split(&row_key)?;
            if !ids.contains(&bucket.get()) {
                self.broken.push(format!("a key of bucket {bucket}, which is not there"));
            }
        }
        Ok(())
    }
}

/// Every block of every grant that ever was is referred to by a key, a part, the queue or a live grant, or was handed to the SCM.
/// `granted` and `purged` are the caller's own account.
///
/// # Errors
/// A row that cannot be read or decoded.
pub fn check_none_lost(view: &dyn Read, granted: &BTreeSet<u64>, purged: &BTreeSet<u64>) -> Result<Vec<String>> {
    let mut check = Check::default();
    check.grants(view)?;
    check.keys(view)?;
    check.parts(view)?;
    check.queues(view)?;
    let mut broken = check.broken;
    for block in granted {
        let (owned, gone) = (check.owners.contains_key(block), purged.contains(block));
        if owned == gone {
            broken.push(format!("block {block:#x}: referred to: {owned}, handed to the SCM: {gone}"));
        }
    }
    for block in check.owners.keys().filter(|block| !granted.contains(block)) {
        broken.push(format!("block {block:#x} was never granted"));
    }
    Ok(broken)
}
