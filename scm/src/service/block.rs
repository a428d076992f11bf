//! The OM's calls: block ranges, failed replicas, deletes. Prepares commands: time, randomness and what was seen are settled here.

use bytes::Bytes;
use ozone_common::id::DatanodeId;
use ozone_common::limits::BLOCK_LENGTH_MAX;
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode, Result};
use ozone_proto::convert::{container_id, datanode_id};
use ozone_proto::scm::v1 as wire;

use crate::core::{self, Command};
use crate::log::Call;
use crate::plan::placement::{Candidate, RETRY_AFTER_MS, place};
use crate::scm::Scm;
use crate::tables::deleted_block::Range;

/// LIMIT: blocks in one allocation.
const BLOCKS_MAX: u32 = 1 << 16;
/// LIMIT: nodes named in one request.
const NODES_MAX: usize = 1024;
/// LIMIT: containers and ranges in one delete request.
const DELETE_RANGES_MAX: usize = 100_000;
/// Containers that one allocation may open beyond the target.
const SPARE_PLACEMENTS: usize = 2;

fn datanode_ids(ids: &[Bytes]) -> Result<Vec<DatanodeId>> {
    if ids.len() > NODES_MAX {
        return Err(Error::invalid(format!("{} datanodes are named; at most {NODES_MAX} are taken", ids.len())));
    }
    ids.iter().map(|id| datanode_id(id)).collect()
}

pub(super) async fn allocate(scm: &Scm, call: Call, request: &wire::AllocateBlocks) -> Result<Bytes> {
    let done = match prepare_allocate(scm, request) {
        Ok(command) => scm.log.propose(Some(call), command).await,
        Err(error) => Err(error),
    };
    match &done {
        Ok(_) => scm.metrics.blocks_allocated.increment(request.count.into()),
        Err(_) => scm.metrics.allocations_refused.increment(1),
    }
    done
}

fn prepare_allocate(scm: &Scm, request: &wire::AllocateBlocks) -> Result<Command> {
    let replication: Replication = request.replication.parse()?;
    if !(1..=BLOCKS_MAX).contains(&request.count) {
        return Err(Error::invalid(format!("{} blocks were asked for; 1 to {BLOCKS_MAX} are given", request.count)));
    }
    if !(1..=BLOCK_LENGTH_MAX).contains(&request.max_block_length) {
        let text = format!("max_block_length {}; 1 to {BLOCK_LENGTH_MAX} are possible", request.max_block_length);
        return Err(Error::invalid(text));
    }
    let exclude = datanode_ids(&request.exclude)?;
    check_safe_mode(scm)?;
    let usable = scm.usable(replication, &exclude)?.map_err(Error::from)?;
    let most = u64::from(request.count) * request.max_block_length;
    let reserve_bytes = if request.reserve_bytes == 0 { most } else { request.reserve_bytes.min(most) };
    // At least as many open containers as it takes to keep every node busy.
    let open_target = scm.config.open_containers.max(usable.len().div_ceil(replication.replicas()));
    Ok(Command::AllocateBlocks(core::AllocateBlocks {
        replication,
        count: request.count,
        reserve_bytes,
        placements: placements(scm, replication, usable.clone(), open_target + SPARE_PLACEMENTS),
        usable: usable.into_iter().map(|node| node.id).collect(),
        container_size: scm.config.container_size.get(),
        open_target,
    }))
}

fn check_safe_mode(scm: &Scm) -> Result<()> {
    let rules = {
        let seen = scm.seen.lock();
        if !seen.safe_mode.is_on() {
            return Ok(());
        }
        seen.safe_mode.rules(seen.nodes.iter().count())
    };
    let waiting: Vec<String> =
        rules.into_iter().filter(|r| !r.satisfied).map(|r| format!("{}: {}", r.name, r.status)).collect();
    let mut error =
        Error::new(ErrorCode::SafeMode, format!("no blocks are handed out in safe mode; {}", waiting.join("; ")));
    error.retry_after_ms = Some(RETRY_AFTER_MS);
    Err(error)
}

fn placements(scm: &Scm, replication: Replication, mut nodes: Vec<Candidate>, count: usize) -> Vec<Vec<DatanodeId>> {
    let mut draw = |n| scm.env.rng.below(n);
    let mut one = || {
        let members = place(replication, &nodes, &mut draw);
        for node in nodes.iter_mut().filter(|node| members.contains(&node.id)) {
            node.open_containers += 1;
        }
        members
    };
    (0..count).map(|_| one()).collect()
}

pub(super) async fn report_failed_replicas(
    scm: &Scm,
    call: Call,
    request: &wire::ReportFailedReplicas,
) -> Result<Bytes> {
    let container = container_id(request.container)?;
    let failed = datanode_ids(&request.failed)?;
    if failed.is_empty() {
        return Err(Error::invalid(format!("no failed datanode of container {container} is named")));
    }
    scm.metrics.replicas_failed.increment(failed.len() as u64);
    tracing::warn!(container_id = %container, ?failed, reason = ?request.reason, "a writer lost replicas");
    let until = scm.env.clock.boot() + scm.config.suspect_for.duration();
    scm.seen.lock().nodes.suspect(&failed, until);
    let command = Command::ReportFailedReplicas { container, epoch: request.epoch, failed };
    let done = scm.log.propose(Some(call), command).await;
    if done.as_ref().is_err_and(|error| error.code == ErrorCode::InsufficientDatanodes) {
        // Too few survivors to go on with: at least nobody else should be sent there.
        scm.log.propose(None, Command::CloseContainers { containers: vec![container] }).await?;
    }
    done
}

pub(super) async fn queue_deletes(scm: &Scm, call: Call, request: &wire::QueueDeletes) -> Result<Bytes> {
    let ranges: usize = request.containers.iter().map(|container| container.ranges.len().max(1)).sum();
    if ranges > DELETE_RANGES_MAX {
        return Err(Error::invalid(format!(
            "{ranges} ranges to delete; at most {DELETE_RANGES_MAX} are taken at once"
        )));
    }
    let mut containers = Vec::with_capacity(request.containers.len());
    for blocks in &request.containers {
        let ranges = blocks.ranges.iter().map(|range| Range { first: range.first, count: range.count });
        containers.push((container_id(blocks.container)?, ranges.collect()));
    }
    scm.log.propose(Some(call), Command::QueueDeletes { om_sequence: request.om_sequence, containers }).await
}
