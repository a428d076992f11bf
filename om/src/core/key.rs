//! Keys of OBJECT_STORE buckets: the one-commit PUT and deletes.

use std::collections::BTreeSet;

use ozone_common::id::BucketId;
use ozone_common::limits::{DELETE_KEYS_MAX, OBJECT_LENGTH_MAX};
use ozone_common::name::KeyName;
use ozone_common::{Error, ErrorCode};
use ozone_proto::om::v1::{self as om, om_response::Op};

use super::claim::claim;
use super::command::{Address, CommitKey, Conditions, Data};
use super::condition::no_key;
use super::tx::{Tx, empty};
use super::{Stop, read};
use crate::tables::key::{self, KeyRow};
use crate::tables::value;

/// Makes or replaces a key.
pub(super) fn commit(tx: &mut Tx<'_>, commit: CommitKey) -> Result<Op, Stop> {
    let bucket = tx.bucket(&commit.address)?;
    let id = BucketId(bucket.id);
    if commit.bucket.is_some_and(|written_for| written_for != id) {
        // Durability and replication of the bytes are those of a bucket that is no more.
        let message = format!("bucket `{}` was made anew since its bytes were written", commit.address);
        return Err(Error::new(ErrorCode::BucketChanged, message).into());
    }
    let existing = key::get(tx.view, id, commit.key.as_bytes())?;
    commit.conditions.check(&commit.key, existing.as_ref())?;
    if commit.length > OBJECT_LENGTH_MAX {
        let message = format!("an object of {} bytes; {OBJECT_LENGTH_MAX} are the most", commit.length);
        return Err(Error::new(ErrorCode::TooLarge, message).into());
    }
    let generation = tx.stamp.sequence;
    let (slices, inline_copies) = match &commit.data {
        Data::Blocks { blocks, grants } => {
            let replication = key::replication_of(bucket.replication);
            claim(tx, commit.holder, replication, grants, blocks, commit.length)?;
            (key::slices(blocks, commit.length), 0)
        }
        Data::Inline(bytes) => {
            let most = read::inline_max(tx.settings.inline_max, &bucket, commit.members);
            if bytes.len() as u64 != commit.length {
                let message = format!("{} inline bytes for a key of {}", bytes.len(), commit.length);
                return Err(Error::invalid(message).into());
            }
            if bytes.len() as u64 > u64::from(most) {
                let message = format!("{} inline bytes; bucket `{}` takes {most} now", bytes.len(), commit.address);
                return Err(Error::new(ErrorCode::TooLarge, message).into());
            }
            if bytes.is_empty() {
                (Vec::new(), 0)
            } else {
                tx.batch.put(value::TABLE, value::key(id, generation).to_vec(), bytes.clone());
                (Vec::new(), commit.members.max(1))
            }
        }
    };
    if let Some(old) = &existing {
        tx.free_key(id, old)?;
    }
    let row = KeyRow {
        generation,
        modified_ms: tx.stamp.now_ms,
        length: commit.length,
        etag_md5: commit.facts.etag_md5,
        etag_parts: commit.facts.etag_parts,
        slices,
        content_type: commit.facts.content_type,
        meta: commit.facts.meta,
        checksum: commit.facts.checksum,
        inline_copies,
        upload: bytes::Bytes::new(),
        owner: if commit.owner == bucket.owner { String::new() } else { commit.owner },
        replication: bucket.replication,
    };
    tx.put_key(id, commit.key.as_bytes(), &row)?;
    Ok(Op::KeyCommitted(om::KeyCommitted { generation, modified_ms: row.modified_ms, replaced: existing.is_some() }))
}

/// Removes a key.
pub(super) fn delete(
    tx: &mut Tx<'_>,
    address: &Address,
    key: &KeyName,
    conditions: &Conditions,
    must_exist: bool,
) -> Result<Op, Stop> {
    let id = BucketId(tx.bucket(address)?.id);
    let existing = key::get(tx.view, id, key.as_bytes())?;
    conditions.check(key, existing.as_ref())?;
    match existing {
        Some(row) => remove(tx, id, key, &row)?,
        None if must_exist => return Err(no_key(key).into()),
        None => {}
    }
    Ok(empty())
}

/// Removes keys; each has an outcome of its own.
pub(super) fn delete_many(tx: &mut Tx<'_>, address: &Address, keys: Vec<Result<KeyName, Error>>) -> Result<Op, Stop> {
    if keys.len() > DELETE_KEYS_MAX {
        return Err(Error::invalid(format!("{} keys; {DELETE_KEYS_MAX} are the most", keys.len())).into());
    }
    let id = BucketId(tx.bucket(address)?.id);
    // The view does not show this command's own deletes: a key named twice is deleted once.
    let mut seen = BTreeSet::new();
    let mut errors = Vec::with_capacity(keys.len());
    for key in keys {
        errors.push(match key {
            Ok(key) => {
                if let Some(row) = key::get(tx.view, id, key.as_bytes())?
                    && seen.insert(key.clone())
                {
                    remove(tx, id, &key, &row)?;
                }
                ozone_proto::common::v1::Error::default()
            }
            Err(error) => error.into(),
        });
    }
    Ok(Op::Deleted(om::DeleteKeysReply { errors }))
}

fn remove(tx: &mut Tx<'_>, bucket: BucketId, key: &KeyName, row: &KeyRow) -> Result<(), Stop> {
    tx.batch.delete(key::TABLE, key::key(bucket, key.as_bytes()));
    tx.free_key(bucket, row)
}
