//! Block grants: who may commit which blocks, and what becomes of the rest.
//!
//! ```text
//! acquire ──> live ── renew ──> live
//!              ├── commit: a block is used, once
//!              └── release, expire ──> ended: ids not used go to `deleted`
//! ```
//! A grant ends by a logged command only. So a commit is judged by whether the row is there, never by a clock.

use std::collections::BTreeSet;

use ozone_common::id::{ClientId, ContainerId, GrantId};
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode, RetryClass};
use ozone_proto::common::v1::BlockRange;
use ozone_proto::om::v1::{self as om, om_response::Op};

use super::command::AcquireGrant;
use super::tx::{Tx, empty};
use super::{Hint, Stop};
use crate::tables::deleted::BlockSpan;
use crate::tables::encode;
use crate::tables::grant::{self, BLOCKS_MAX, GrantRow};
use crate::tables::meta::{self, Fact};

/// LIMIT: live grants of all writers.
pub const GRANT_COUNT_MAX: u64 = 1 << 16;

/// The grant ended or never was; other holders' grants are answered the same, so that nobody learns of them.
pub(super) fn gone(grant: GrantId) -> Error {
    Error::new(ErrorCode::GrantExpired, format!("grant {grant} has ended, or is not this writer's"))
}

/// The writer's own grant.
pub(super) fn own(tx: &Tx<'_>, grant: GrantId, holder: ClientId) -> Result<GrantRow, Stop> {
    match grant::get(tx.view, grant)? {
        Some(row) if row.holder == holder.as_bytes().as_slice() => Ok(row),
        _ => Err(gone(grant).into()),
    }
}

/// Makes a grant.
pub(super) fn acquire(tx: &mut Tx<'_>, acquire: AcquireGrant) -> Result<Op, Stop> {
    let row = GrantRow {
        holder: acquire.holder.as_bytes().to_vec().into(),
        expires_ms: tx.stamp.now_ms.saturating_add(acquire.life_ms),
        max_block_length: acquire.max_block_length,
        replication: acquire.replication.number(),
        ranges: acquire.ranges,
    };
    let count = row.count();
    if count == 0 || count > BLOCKS_MAX {
        return Err(Error::invalid(format!("a grant of {count} blocks; 1 to {BLOCKS_MAX} are possible")).into());
    }
    let mut containers: Vec<u64> = row.ranges.iter().map(|range| range.container).collect();
    containers.sort_unstable();
    containers.dedup();
    if containers.len() != row.ranges.len() {
        return Err(Error::internal("a grant with two ranges of one container").into());
    }
    let live = meta::get(tx.view, Fact::Grants)?;
    if live >= GRANT_COUNT_MAX {
        let message = format!("there are {live} live grants; {GRANT_COUNT_MAX} are the most");
        return Err(Error::new(ErrorCode::Overloaded, message).with_retry(RetryClass::Same).into());
    }
    let id = GrantId(tx.stamp.sequence);
    tx.batch.put(grant::TABLE, grant::key(id).to_vec(), encode(&row));
    meta::put(&mut tx.batch, Fact::Grants, live + 1);
    tx.hints.push(Hint::Grants);
    Ok(Op::Grant(describe(id, &row, acquire.min_replicas)))
}

/// Lets a grant live on.
pub(super) fn renew(tx: &mut Tx<'_>, holder: ClientId, id: GrantId, life_ms: u64) -> Result<Op, Stop> {
    let mut row = own(tx, id, holder)?;
    row.expires_ms = row.expires_ms.max(tx.stamp.now_ms.saturating_add(life_ms));
    tx.batch.put(grant::TABLE, grant::key(id).to_vec(), encode(&row));
    tx.hints.push(Hint::Grants);
    let min_replicas = Replication::from_number(row.replication)?.min_replicas() as u32;
    Ok(Op::Grant(describe(id, &row, min_replicas)))
}

/// Ends a grant. One that has ended already is released all the same.
pub(super) fn release(tx: &mut Tx<'_>, holder: ClientId, id: GrantId) -> Result<Op, Stop> {
    match own(tx, id, holder) {
        Ok(row) => end(tx, &[(id, row)])?,
        Err(Stop::Refused(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(empty())
}

/// Ends those of the grants whose time is over.
pub(super) fn expire(tx: &mut Tx<'_>, ids: &[GrantId]) -> Result<Op, Stop> {
    let mut over = Vec::new();
    for id in ids.iter().copied().collect::<BTreeSet<_>>() {
        match grant::get(tx.view, id)? {
            Some(row) if row.expires_ms <= tx.stamp.now_ms => over.push((id, row)),
            _ => {}
        }
    }
    end(tx, &over)?;
    Ok(empty())
}

/// Takes note of the higher epoch that the SCM logged for a container.
pub(super) fn record_epoch(
    tx: &mut Tx<'_>,
    holder: ClientId,
    id: GrantId,
    container: ContainerId,
    epoch: u32,
) -> Result<Op, Stop> {
    let mut row = own(tx, id, holder)?;
    let Some(range) = row.ranges.iter_mut().find(|range| range.container == container.get()) else {
        let message = format!("grant {id} has no blocks in container {container}");
        return Err(Error::new(ErrorCode::InvalidBlock, message).into());
    };
    if epoch < range.epoch {
        let message =
            format!("epoch {epoch} of container {container} is below {}, under which it was granted", range.epoch);
        return Err(Error::new(ErrorCode::StaleEpoch, message).into());
    }
    // Epochs only grow: a report that comes late changes nothing.
    range.epoch_raised = range.epoch_raised.max(epoch - range.epoch);
    let epoch = range.epoch_now();
    tx.batch.put(grant::TABLE, grant::key(id).to_vec(), encode(&row));
    Ok(Op::FailedWrite(om::FailedWriteReply { epoch, seal_token: None, members: Vec::new() }))
}

/// A grant as the wire has it, without tokens and addresses: the service adds them, so that neither is logged.
fn describe(id: GrantId, row: &GrantRow, min_replicas: u32) -> om::Grant {
    let ranges = row.ranges.iter().map(|range| BlockRange {
        container: range.container,
        first_local: range.first_local,
        count: range.count,
        epoch: range.epoch_now(),
        replicas: Vec::new(),
        token: None,
    });
    om::Grant {
        id: id.get(),
        ranges: ranges.collect(),
        expires_ms: row.expires_ms,
        max_block_length: row.max_block_length,
        min_replicas,
    }
}

fn end(tx: &mut Tx<'_>, grants: &[(GrantId, GrantRow)]) -> Result<(), Stop> {
    if grants.is_empty() {
        return Ok(());
    }
    for (id, row) in grants {
        let mut spans = Vec::new();
        let (mut number, mut word) = (0u32, 0u64);
        for range in &row.ranges {
            let container = range.container_id()?;
            for at in 0..range.count {
                if number % 64 == 0 {
                    word = grant::get_used(tx.view, *id, (number / 64) as u8)?;
                }
                if word >> (number % 64) & 1 == 0
                    && let Some(block) = container.block(range.first_local.saturating_add(at))
                {
                    spans.push(BlockSpan::one(block));
                }
                number += 1;
            }
        }
        tx.free(spans);
        grant::remove(&mut tx.batch, *id, row);
    }
    let live = meta::get(tx.view, Fact::Grants)?;
    meta::put(&mut tx.batch, Fact::Grants, live.saturating_sub(grants.len() as u64));
    Ok(())
}
