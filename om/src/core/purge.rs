//! What the background loops of the leader log: blocks handed over, parts reclaimed.

use std::ops::Bound;

use ozone_common::Error;
use ozone_common::id::BucketId;
use ozone_proto::om::v1::om_response::Op;

use super::tx::{Tx, empty};
use super::{Hint, Stop};
use crate::tables::deleted::{self, DeletedPartsRow};
use crate::tables::part::{self, PartRow};
use crate::tables::upload::UploadId;
use crate::tables::{corrupt, decode};

/// Forgets rows of `deleted` that the SCM has: one range delete.
pub(super) fn purged(tx: &mut Tx<'_>, from: u64, through: u64) -> Result<Op, Stop> {
    let end = through.checked_add(1).filter(|end| *end > from);
    let end = end.ok_or_else(|| Error::invalid(format!("rows {from} to {through} are none")))?;
    tx.batch.delete_range(deleted::TABLE, deleted::key(from).to_vec(), deleted::key(end).to_vec());
    Ok(empty())
}

/// Moves the blocks of at most `limit` parts of the first upload in the queue to `deleted`, and takes the upload off
/// the queue where those were the last.
pub(super) fn reclaim_parts(tx: &mut Tx<'_>, limit: usize) -> Result<Op, Stop> {
    let first =
        tx.view.scan(deleted::PARTS, Bound::Unbounded, Bound::Unbounded, ozone_kvstore::Direction::Forward)?.next();
    let Some((queue_key, value)) = first.transpose()? else {
        return Ok(empty());
    };
    let row: DeletedPartsRow = decode(deleted::PARTS, value)?;
    let upload =
        UploadId::from_slice(&row.upload).ok_or_else(|| corrupt(deleted::PARTS, "an upload id not of 16 bytes"))?;
    let prefix = part::prefix(BucketId(row.bucket), upload);
    let (mut spans, mut last, mut more) = (Vec::new(), None, false);
    for (taken, entry) in tx.view.scan_prefix(part::TABLE, &prefix, Bound::Unbounded)?.enumerate() {
        if taken == limit.max(1) {
            more = true;
            break;
        }
        let (key, value) = entry?;
        let part: PartRow = decode(part::TABLE, value)?;
        spans.extend(part.slices.iter().map(|slice| deleted::BlockSpan { first: slice.block, more: 0 }));
        last = Some(key);
    }
    if let Some(last) = last {
        let mut end = last.to_vec();
        end.push(0);
        tx.batch.delete_range(part::TABLE, prefix.to_vec(), end);
    }
    tx.free_not_before(spans, row.not_before_ms);
    if more {
        tx.hints.push(Hint::DeletedParts);
    } else {
        tx.batch.delete(deleted::PARTS, queue_key);
    }
    Ok(empty())
}
