//! Multipart uploads: one row per upload, one row per part; completion joins without moving anything.
//!
//! A completed key's row names its upload, and the upload's part rows stay as the object's parts. So completing 10,000 parts writes one
//! row, deleting such an object is one row too, and a Complete that is sent again is recognised by the key row.

use bytes::Bytes;
use ozone_common::id::BucketId;
use ozone_common::limits::{OBJECT_LENGTH_MAX, PART_LENGTH_MIN, PART_NUMBER_MAX, PUT_LENGTH_MAX};
use ozone_common::name::KeyName;
use ozone_common::{Error, ErrorCode};
use ozone_proto::om::v1::{self as om, CompletedPart, om_response::Op};

use super::Stop;
use super::claim::claim;
use super::command::{Address, CommitPart, CompleteUpload, InitiateUpload};
use super::multipart_checksum as checksum;
use super::tx::{Tx, empty};
use crate::tables::key::{self, ChecksumRow, KeyRow};
use crate::tables::part::{self, PartRow};
use crate::tables::upload::{self, UploadId, UploadRow};
use crate::tables::{decode, encode};
use std::ops::Bound;

/// There is no such upload.
pub(crate) fn no_upload(upload: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::UploadNotFound, format!("multipart upload `{upload}` of this key does not exist"))
}

/// Begins an upload.
pub(super) fn initiate(tx: &mut Tx<'_>, initiate: InitiateUpload) -> Result<Op, Stop> {
    let bucket = BucketId(tx.bucket(&initiate.address)?.id);
    let id = UploadId::new(tx.stamp.sequence, initiate.random);
    let row = UploadRow {
        initiated_ms: tx.stamp.now_ms,
        owner: initiate.owner,
        meta: initiate.facts.meta,
        content_type: initiate.facts.content_type,
        checksum: initiate.facts.checksum.filter(|sum| sum.algorithm != 0),
    };
    tx.batch.put(upload::TABLE, upload::key(bucket, initiate.key.as_bytes(), id), encode(&row));
    tx.usage(bucket)?.uploads += 1;
    Ok(Op::UploadInitiated(om::UploadInitiated { upload: id.to_string() }))
}

/// Makes or replaces a part.
pub(super) fn commit_part(tx: &mut Tx<'_>, commit: CommitPart) -> Result<Op, Stop> {
    let bucket_row = tx.bucket(&commit.address)?;
    let bucket = BucketId(bucket_row.id);
    let upload =
        upload::get(tx.view, bucket, commit.key.as_bytes(), commit.upload)?.ok_or_else(|| no_upload(commit.upload))?;
    if commit.part == 0 || u32::from(commit.part) > PART_NUMBER_MAX {
        let message = format!("part number {}; 1 to {PART_NUMBER_MAX} are possible", commit.part);
        return Err(Error::invalid(message).into());
    }
    if commit.length > PUT_LENGTH_MAX {
        let message = format!("a part of {} bytes; {PUT_LENGTH_MAX} are the most", commit.length);
        return Err(Error::new(ErrorCode::TooLarge, message).into());
    }
    if let (Some(asked), Some(given)) = (&upload.checksum, &commit.checksum)
        && asked.algorithm != given.algorithm
    {
        let message = format!("a checksum of algorithm {}; the upload began with {}", given.algorithm, asked.algorithm);
        return Err(Error::invalid(message).into());
    }
    let replication = key::replication_of(bucket_row.replication);
    claim(tx, commit.holder, replication, &commit.grants, &commit.blocks, commit.length)?;
    // A part sent again wins.
    let old = part::get(tx.view, bucket, commit.upload, commit.part)?;
    let old_length = old.as_ref().map_or(0, |old| old.length);
    if let Some(old) = &old {
        tx.free_slices(&old.slices);
    }
    let row = PartRow {
        length: commit.length,
        modified_ms: tx.stamp.now_ms,
        md5: commit.md5,
        slices: key::slices(&commit.blocks, commit.length),
        checksum: commit.checksum,
    };
    tx.batch.put(part::TABLE, part::key(bucket, commit.upload, commit.part).to_vec(), encode(&row));
    let usage = tx.usage(bucket)?;
    usage.part_bytes = usage.part_bytes.saturating_add(commit.length).saturating_sub(old_length);
    Ok(Op::PartCommitted(om::PartCommitted { modified_ms: row.modified_ms }))
}

/// Joins parts to a key. Parts that it does not name are freed.
pub(super) fn complete(tx: &mut Tx<'_>, complete: CompleteUpload) -> Result<Op, Stop> {
    let bucket_row = tx.bucket(&complete.address)?;
    let bucket = BucketId(bucket_row.id);
    let existing = key::get(tx.view, bucket, complete.key.as_bytes())?;
    let Some(upload) = upload::get(tx.view, bucket, complete.key.as_bytes(), complete.upload)? else {
        return match existing {
            // Sent again: it is done.
            Some(row) if row.upload == complete.upload.0.as_slice() => Ok(Op::KeyCommitted(om::KeyCommitted {
                generation: row.generation,
                modified_ms: row.modified_ms,
                replaced: false,
            })),
            _ => Err(no_upload(complete.upload).into()),
        };
    };
    complete.conditions.check(&complete.key, existing.as_ref())?;
    check_order(&complete.parts)?;
    let (parts, unused) = choose(tx, bucket, &complete)?;
    let length = check_lengths(&complete, &parts)?;
    let sum = object_checksum(&complete, &upload, &parts)?;

    if let Some(old) = &existing {
        tx.free_key(bucket, old)?;
    }
    let mut part_bytes = length;
    for (number, row) in unused {
        tx.free_slices(&row.slices);
        tx.batch.delete(part::TABLE, part::key(bucket, complete.upload, number).to_vec());
        part_bytes = part_bytes.saturating_add(row.length);
    }
    tx.batch.delete(upload::TABLE, upload::key(bucket, complete.key.as_bytes(), complete.upload));
    let usage = tx.usage(bucket)?;
    usage.uploads = usage.uploads.saturating_sub(1);
    usage.part_bytes = usage.part_bytes.saturating_sub(part_bytes);
    let row = KeyRow {
        generation: tx.stamp.sequence,
        modified_ms: tx.stamp.now_ms,
        length,
        etag_md5: checksum::etag(parts.iter().map(|part| &part.md5)).unwrap_or_default(),
        etag_parts: parts.len() as u32,
        content_type: upload.content_type,
        meta: upload.meta,
        checksum: sum,
        upload: Bytes::copy_from_slice(&complete.upload.0),
        owner: if upload.owner == bucket_row.owner { String::new() } else { upload.owner },
        replication: bucket_row.replication,
        ..KeyRow::default()
    };
    tx.put_key(bucket, complete.key.as_bytes(), &row)?;
    Ok(Op::KeyCommitted(om::KeyCommitted {
        generation: row.generation,
        modified_ms: row.modified_ms,
        replaced: existing.is_some(),
    }))
}

/// Ends an upload.
pub(super) fn abort(tx: &mut Tx<'_>, address: &Address, key: &KeyName, id: UploadId) -> Result<Op, Stop> {
    let bucket = BucketId(tx.bucket(address)?.id);
    if upload::get(tx.view, bucket, key.as_bytes(), id)?.is_none() {
        return Err(no_upload(id).into());
    }
    let (mut bytes, mut any) = (0u64, false);
    for entry in tx.view.scan_prefix(part::TABLE, &part::prefix(bucket, id), Bound::Unbounded)? {
        let row: PartRow = decode(part::TABLE, entry?.1)?;
        bytes = bytes.saturating_add(row.length);
        any = true;
    }
    tx.batch.delete(upload::TABLE, upload::key(bucket, key.as_bytes(), id));
    let usage = tx.usage(bucket)?;
    usage.uploads = usage.uploads.saturating_sub(1);
    usage.part_bytes = usage.part_bytes.saturating_sub(bytes);
    if any {
        tx.free_upload(bucket, Bytes::copy_from_slice(&id.0));
    }
    Ok(empty())
}

fn check_order(parts: &[CompletedPart]) -> Result<(), Error> {
    if parts.is_empty() || parts.len() > PART_NUMBER_MAX as usize {
        let message = format!("{} parts; 1 to {PART_NUMBER_MAX} are possible", parts.len());
        return Err(Error::invalid(message));
    }
    if parts.windows(2).any(|pair| matches!(pair, [a, b] if a.part >= b.part)) {
        return Err(Error::new(ErrorCode::InvalidPartOrder, "the parts are not in ascending order"));
    }
    Ok(())
}

/// The rows of the named parts in order, and those not named with their numbers.
fn choose(
    tx: &Tx<'_>,
    bucket: BucketId,
    complete: &CompleteUpload,
) -> Result<(Vec<PartRow>, Vec<(u16, PartRow)>), Stop> {
    let bad =
        |number: u32, why: &str| Stop::Refused(Error::new(ErrorCode::InvalidPart, format!("part {number} {why}")));
    let mut wanted = complete.parts.iter().peekable();
    let (mut parts, mut unused) = (Vec::with_capacity(complete.parts.len()), Vec::new());
    for entry in tx.view.scan_prefix(part::TABLE, &part::prefix(bucket, complete.upload), Bound::Unbounded)? {
        let (key, value) = entry?;
        let number = part::split(&key)?.2;
        let row: PartRow = decode(part::TABLE, value)?;
        match wanted.peek() {
            Some(named) if named.part < u32::from(number) => return Err(bad(named.part, "was not uploaded")),
            Some(named) if named.part == u32::from(number) => {
                if named.md5 != row.md5 {
                    return Err(bad(named.part, "has another etag"));
                }
                let differs = |sum: &om::Checksum| {
                    row.checksum.as_ref().is_none_or(|row| row.algorithm != sum.algorithm || row.value != sum.value)
                };
                if named.checksum.as_ref().is_some_and(|sum| sum.algorithm != 0 && differs(sum)) {
                    return Err(bad(named.part, "has another checksum"));
                }
                parts.push(row);
                wanted.next();
            }
            _ => unused.push((number, row)),
        }
    }
    match wanted.next() {
        Some(named) => Err(bad(named.part, "was not uploaded")),
        None => Ok((parts, unused)),
    }
}

fn check_lengths(complete: &CompleteUpload, parts: &[PartRow]) -> Result<u64, Error> {
    let before_last = parts.len().saturating_sub(1);
    if let Some(at) = parts.iter().take(before_last).position(|part| part.length < PART_LENGTH_MIN) {
        let number = complete.parts.get(at).map_or(0, |part| part.part);
        let message = format!("part {number} is smaller than {PART_LENGTH_MIN} bytes and not the last");
        return Err(Error::new(ErrorCode::EntityTooSmall, message));
    }
    let length = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.length));
    if length > OBJECT_LENGTH_MAX {
        let message = format!("an object of {length} bytes; {OBJECT_LENGTH_MAX} are the most");
        return Err(Error::new(ErrorCode::TooLarge, message));
    }
    if complete.expected_length != 0 && complete.expected_length != length {
        let message = format!("the parts have {length} bytes together, not {}", complete.expected_length);
        return Err(Error::invalid(message));
    }
    Ok(length)
}

/// The object's checksum: of the kind the upload began with, or of the kind the client names now. What the client expects must be so.
fn object_checksum(
    complete: &CompleteUpload,
    upload: &UploadRow,
    parts: &[PartRow],
) -> Result<Option<ChecksumRow>, Error> {
    let sums = || parts.iter().map(|part| (part.length, part.checksum.as_ref()));
    let expected = complete.checksum.as_ref().filter(|sum| sum.algorithm != 0);
    let kind = upload.checksum.as_ref().or(expected);
    let computed = kind.and_then(|kind| checksum::whole(kind.algorithm, kind.composite, sums()));
    if let Some(expected) = expected {
        let holds =
            computed.as_ref().is_some_and(|sum| sum.algorithm == expected.algorithm && sum.value == expected.value);
        if !holds {
            let message = "the object's checksum is not the one that the parts give";
            return Err(Error::new(ErrorCode::ChecksumMismatch, message));
        }
    }
    Ok(computed)
}
