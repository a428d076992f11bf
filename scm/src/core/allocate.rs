//! Block ranges out of open containers.
//!
//! A container is spent when its reserved bytes reach its size or its local numbers run out; it exceeds its size by one block at most. Ids are
//! handed out once: `next_local` and the container sequence change in the same batch as the answer.

use ozone_common::id::{ContainerId, DatanodeId};
use ozone_common::{Error, ErrorCode};
use ozone_consensus::executor::Stamp;
use ozone_kvstore::{Batch, Read, Result};

use super::{AllocateBlocks, AllocatedRange, Outcome, Reply, members};
use crate::tables::container::{self, Container, ContainerState, Phase};
use crate::tables::sequence::Sequence;

pub(super) fn allocate_blocks(view: &dyn Read, stamp: Stamp, request: AllocateBlocks) -> Result<Outcome> {
    if request.count == 0 {
        return Ok(Outcome::refuse(Error::invalid("0 blocks were asked for; 1 is the least")));
    }
    let mut last_id = Sequence::Container.last(view)?;
    let opened_before = last_id;
    let mut placements = request.placements.iter().filter(|members| usable(members, &request));
    let mut candidates: Vec<(Container, Option<Container>)> =
        container::in_phase(view, Phase::Filling, Some(request.replication))?
            .into_iter()
            .filter(|container| container.locals_left() > 0 && usable(&container.members, &request))
            .map(|container| (container.clone(), Some(container)))
            .collect();
    let mut open = |last_id: &mut u64| {
        let members = placements.next()?;
        let id = ContainerId::new(*last_id + 1)?;
        *last_id += 1;
        Some((open_container(id, members.clone(), &request, stamp), None))
    };
    while candidates.len() < request.open_target
        && let Some(fresh) = open(&mut last_id)
    {
        candidates.push(fresh);
    }
    if candidates.is_empty() {
        let text = "no open container can be used and none can be opened";
        return Ok(Outcome::refuse(Error::new(ErrorCode::InsufficientDatanodes, text)));
    }
    // Requests take turns, so that containers on different nodes fill evenly.
    let turn = (stamp.sequence % candidates.len() as u64) as usize;
    candidates.rotate_left(turn);

    let share = request.reserve_bytes.div_ceil(request.count.into()).max(1);
    let (mut rows, mut ranges, mut left, mut index) = (Batch::new(), Vec::new(), request.count, 0);
    while left > 0 {
        if index == candidates.len() {
            match open(&mut last_id) {
                Some(fresh) => candidates.push(fresh),
                None => break,
            }
        }
        let (container, _) = &mut candidates[index];
        let (first_local, count) = take(container, left, share, request.container_size, stamp.now_ms);
        left -= count;
        index += 1;
        let replicas = match members(view, container)? {
            Ok(replicas) => replicas,
            Err(error) => return Ok(Outcome::refuse(error)),
        };
        ranges.push(AllocatedRange { container: container.clone(), first_local, count, replicas });
    }
    for (container, before) in &candidates {
        if before.as_ref() != Some(container) {
            container.put(&mut rows, before.as_ref());
        }
    }
    if last_id != opened_before {
        Sequence::Container.set(&mut rows, last_id);
    }
    Ok(Outcome::done(rows, Reply::Allocated(ranges)))
}

/// Whether blocks may be written on these members: all usable, and as many as can be had.
fn usable(members: &[DatanodeId], request: &AllocateBlocks) -> bool {
    let wanted = request.replication.replicas().min(request.usable.len()).max(request.replication.min_replicas());
    members.len() >= wanted && members.iter().all(|member| request.usable.binary_search(member).is_ok())
}

fn open_container(id: ContainerId, members: Vec<DatanodeId>, request: &AllocateBlocks, stamp: Stamp) -> Container {
    Container {
        id,
        state: ContainerState::Open,
        replication: request.replication,
        epoch: 1,
        members,
        reserved_bytes: 0,
        next_local: 1,
        opened_ms: stamp.now_ms,
        spent_ms: 0,
        reported: false,
    }
}

/// Takes up to `wanted` blocks, at least one: a container with room for none is spent and not asked.
fn take(container: &mut Container, wanted: u32, share: u64, size: u64, now_ms: u64) -> (u32, u32) {
    let room = size.saturating_sub(container.reserved_bytes).div_ceil(share).max(1);
    let count = wanted.min(u32::try_from(room).unwrap_or(u32::MAX)).min(container.locals_left().max(1));
    let first = container.next_local;
    container.next_local += count;
    container.reserved_bytes = container.reserved_bytes.saturating_add(share.saturating_mul(count.into()));
    if container.reserved_bytes >= size || container.locals_left() == 0 {
        container.spent_ms = now_ms.max(1);
    }
    (first, count)
}
