//! Blocks to delete: taken over from the OM once, kept until every member answered.

use std::collections::BTreeMap;

use ozone_common::id::{ContainerId, DatanodeId};
use ozone_common::{Error, ErrorCode};
use ozone_kvstore::{Batch, Read, Result};

use super::{Hint, Outcome, Reply};
use crate::tables::container::{self, ContainerState};
use crate::tables::deleted_block::{self, Deletion, Range};
use crate::tables::sequence::Sequence;

pub(super) fn queue_deletes(
    view: &dyn Read,
    om_sequence: u64,
    wanted: Vec<(ContainerId, Vec<Range>)>,
) -> Result<Outcome> {
    let mut rows = Batch::new();
    if om_sequence <= Sequence::OmDelete.last(view)? {
        return Ok(Outcome::done(rows, Reply::Empty));
    }
    let mut containers: BTreeMap<ContainerId, Vec<Range>> = BTreeMap::new();
    for (id, ranges) in wanted {
        // An id that was never handed out is a fault of the OM's books: refused loudly, since skipping it would hide lost space or lost data.
        let Some(container) = container::get(view, id)? else {
            let text = format!("blocks of container {id} are to be deleted, which does not exist");
            return Ok(Outcome::refuse(Error::new(ErrorCode::ContainerNotFound, text)));
        };
        for range in &ranges {
            let end = range.first.checked_add(range.count);
            if range.first == 0 || range.count == 0 || end.is_none_or(|end| end > container.next_local) {
                let text =
                    format!("blocks {} and {} more of container {id} were never handed out", range.first, range.count);
                return Ok(Outcome::refuse(Error::invalid(text)));
            }
        }
        if container.state != ContainerState::Deleted {
            containers.entry(id).or_default().extend(ranges);
        }
    }
    Sequence::OmDelete.set(&mut rows, om_sequence);
    containers.retain(|_, ranges| !ranges.is_empty());
    if containers.is_empty() {
        return Ok(Outcome::done(rows, Reply::Empty));
    }
    let transaction = Sequence::DeleteTransaction.last(view)? + 1;
    Sequence::DeleteTransaction.set(&mut rows, transaction);
    Deletion { transaction, containers: containers.into_iter().collect() }.put(&mut rows);
    Ok(Outcome::done(rows, Reply::Empty).hint(Hint::Deletes))
}

/// Whether `acked` covers every present member of every container of the transaction. A member dropped since is not waited for: its replica
/// counts for nothing until it was reconciled.
pub fn is_done(view: &dyn Read, deletion: &Deletion, acked: &[DatanodeId]) -> Result<bool> {
    for (id, _) in &deletion.containers {
        if let Some(container) = container::get(view, *id)?
            && container.state != ContainerState::Deleted
            && !container.members.iter().all(|member| acked.contains(member))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn finish_deletes(view: &dyn Read, done: &[(u64, Vec<DatanodeId>)]) -> Result<Outcome> {
    let mut rows = Batch::new();
    for (transaction, acked) in done {
        if let Some(deletion) = deleted_block::get(view, *transaction)?
            && is_done(view, &deletion, acked)?
        {
            deleted_block::remove(&mut rows, *transaction);
        }
    }
    Ok(Outcome::done(rows, Reply::Empty))
}
