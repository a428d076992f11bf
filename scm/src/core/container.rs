//! The life of a container after it was opened.

use std::collections::BTreeMap;

use ozone_common::id::{ContainerId, DatanodeId};
use ozone_common::{Error, ErrorCode};
use ozone_kvstore::{Batch, Read, Result};

use super::{Hint, Outcome, Reply, members};
use crate::tables::container::{self, Container, ContainerState};

fn not_found(id: ContainerId) -> Error {
    Error::new(ErrorCode::ContainerNotFound, format!("container {id} does not exist"))
}

/// The container without `failed`, under the next epoch, no longer open.
fn without(container: &Container, failed: &[DatanodeId]) -> Container {
    let mut after = container.clone();
    after.members.retain(|member| !failed.contains(member));
    after.epoch += 1;
    after.state = ContainerState::Closing;
    after
}

/// Idempotent: where none of `failed` is a member any more, the answer is the container as it is.
pub(super) fn report_failed_replicas(
    view: &dyn Read,
    id: ContainerId,
    epoch: u32,
    failed: &[DatanodeId],
) -> Result<Outcome> {
    let Some(before) = container::get(view, id)? else { return Ok(Outcome::refuse(not_found(id))) };
    if epoch == 0 || epoch > before.epoch {
        let text = format!("epoch {epoch} of container {id} was never given out; it is at {}", before.epoch);
        return Ok(Outcome::refuse(Error::invalid(text)));
    }
    let (mut rows, mut after) = (Batch::new(), before.clone());
    if failed.iter().any(|node| before.has(*node)) {
        if before.state > ContainerState::Closing {
            let text = format!("container {id} is {}; write the block again elsewhere", before.state);
            return Ok(Outcome::refuse(Error::new(ErrorCode::ContainerNotOpen, text)));
        }
        after = without(&before, failed);
        let (left, needed) = (after.members.len(), before.replication.min_replicas());
        if left < needed {
            let text = format!(
                "container {id} would keep {left} of {} replicas where {needed} are needed; write the block again elsewhere",
                before.members.len()
            );
            return Ok(Outcome::refuse(Error::new(ErrorCode::InsufficientDatanodes, text)));
        }
        after.put(&mut rows, Some(&before));
    }
    let outcome = match members(view, &after)? {
        Ok(nodes) => Outcome::done(rows, Reply::Container(after, nodes)),
        Err(error) => Outcome::refuse(error),
    };
    Ok(outcome.hint(Hint::Containers(vec![id])))
}

pub(super) fn close(view: &dyn Read, ids: &[ContainerId]) -> Result<Outcome> {
    change(view, ids, |container| {
        let open = container.state == ContainerState::Open;
        open.then(|| Container { state: ContainerState::Closing, ..container.clone() })
    })
}

pub(super) fn drop_member(view: &dyn Read, node: DatanodeId, ids: &[ContainerId]) -> Result<Outcome> {
    change(view, ids, |container| {
        if container.state > ContainerState::Closing || !container.has(node) {
            return None;
        }
        if container.members.len() > container.replication.min_replicas() {
            return Some(without(container, &[node]));
        }
        // The rest would be too few to go on without it: it stays a member, and the container is closed when it returns.
        let open = container.state == ContainerState::Open;
        open.then(|| Container { state: ContainerState::Closing, ..container.clone() })
    })
}

pub(super) fn mark_closed(view: &dyn Read, reported: Vec<(ContainerId, Vec<DatanodeId>)>) -> Result<Outcome> {
    let reported: BTreeMap<ContainerId, Vec<DatanodeId>> = reported.into_iter().collect();
    let ids: Vec<ContainerId> = reported.keys().copied().collect();
    change(view, &ids, |container| {
        let reporters = reported.get(&container.id)?;
        let all = container.members.iter().all(|member| reporters.contains(member));
        (container.state == ContainerState::Closing && all).then(|| Container {
            state: ContainerState::Closed,
            reported: true,
            ..container.clone()
        })
    })
}

pub(super) fn mark_reported(view: &dyn Read, ids: &[ContainerId]) -> Result<Outcome> {
    change(view, ids, |container| (!container.reported).then(|| Container { reported: true, ..container.clone() }))
}

/// Changes those of `ids` that exist and that `with` wants changed. Others are no error: the facts moved on since the command was made.
pub(super) fn change(
    view: &dyn Read,
    ids: &[ContainerId],
    with: impl Fn(&Container) -> Option<Container>,
) -> Result<Outcome> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let (mut rows, mut changed) = (Batch::new(), Vec::new());
    for id in ids {
        let Some(before) = container::get(view, id)? else { continue };
        if let Some(after) = with(&before) {
            after.put(&mut rows, Some(&before));
            changed.push(id);
        }
    }
    let outcome = Outcome::done(rows, Reply::Empty);
    Ok(if changed.is_empty() { outcome } else { outcome.hint(Hint::Containers(changed)) })
}
