//! What is shown. Records are read linearizably; what was observed is as fresh as the last reports.

use std::collections::BTreeMap;

use bytes::Bytes;
use ozone_common::id::DatanodeId;
use ozone_common::{Error, ErrorCode, Result};
use ozone_proto::convert::container_id;
use ozone_proto::scm::v1 as wire;

use crate::executor::{address, container_info};
use crate::observe::node_health::{Health, health};
use crate::scm::{Scm, storage};
use crate::tables::container::{self, Container, ContainerState};
use crate::tables::node::{self, Node};

/// LIMIT: containers in one answer.
const CONTAINERS_MAX: usize = 1000;

fn nodes(scm: &Scm) -> Result<BTreeMap<DatanodeId, Node>> {
    let all = node::all(scm.log.store()).map_err(storage)?;
    Ok(all.into_iter().map(|node| (node.id, node)).collect())
}

fn info(scm: &Scm, nodes: &BTreeMap<DatanodeId, Node>, container: &Container) -> wire::ContainerInfo {
    let members: Vec<Node> = container.members.iter().filter_map(|id| nodes.get(id).cloned()).collect();
    let mut info = container_info(container, &members);
    let seen = scm.seen.lock();
    for (id, replica) in seen.replicas.get(container.id) {
        let member = container.has(id);
        if member {
            info.used_bytes = info.used_bytes.max(replica.used);
            info.block_count = info.block_count.max(replica.blocks);
        }
        info.replicas.push(wire::ReplicaInfo {
            address: nodes.get(&id).map(address),
            state: replica.state().as_str_name().trim_start_matches("REPLICA_STATE_").to_owned(),
            epoch: replica.epoch(),
            used: replica.used,
            blocks: replica.blocks,
            digest: replica.digest().map(|digest| Bytes::copy_from_slice(digest)).unwrap_or_default(),
            member,
        });
    }
    info.replicas.sort_by(|a, b| a.address.as_ref().map(|a| &a.datanode).cmp(&b.address.as_ref().map(|b| &b.datanode)));
    info
}

pub(super) async fn get_containers(scm: &Scm, request: &wire::GetContainers) -> Result<wire::ContainerList> {
    if request.containers.len() > CONTAINERS_MAX {
        let text = format!("{} containers; at most {CONTAINERS_MAX} at once", request.containers.len());
        return Err(Error::invalid(text));
    }
    scm.log.read_barrier().await?;
    let nodes = nodes(scm)?;
    let mut list = wire::ContainerList::default();
    for id in &request.containers {
        let id = container_id(*id)?;
        let found = container::get(scm.log.store(), id).map_err(storage)?;
        let missing = || Error::new(ErrorCode::ContainerNotFound, format!("container {id} does not exist"));
        list.containers.push(info(scm, &nodes, &found.ok_or_else(missing)?));
    }
    Ok(list)
}

pub(super) async fn list_containers(scm: &Scm, request: &wire::ListContainers) -> Result<wire::ContainerList> {
    let state = match &request.state[..] {
        "" => None,
        name => {
            let known = ContainerState::ALL.into_iter().find(|state| state.name().eq_ignore_ascii_case(name));
            Some(known.ok_or_else(|| Error::invalid(format!("container state `{name}` is not known")))?)
        }
    };
    let limit = match request.limit as usize {
        0 => CONTAINERS_MAX,
        limit => limit.min(CONTAINERS_MAX),
    };
    scm.log.read_barrier().await?;
    let nodes = nodes(scm)?;
    let mut list = wire::ContainerList::default();
    for container in container::scan(scm.log.store(), request.after).map_err(storage)? {
        let container = container.map_err(storage)?;
        if state.is_some_and(|state| state != container.state) {
            continue;
        }
        if list.containers.len() == limit {
            list.truncated = true;
            break;
        }
        list.containers.push(info(scm, &nodes, &container));
    }
    Ok(list)
}

pub(super) fn safe_mode(scm: &Scm) -> wire::SafeModeReply {
    let now = scm.env.clock.boot();
    let seen = scm.seen.lock();
    let healthy = seen.nodes.count(Health::Healthy, now, &scm.intervals());
    let rule = |rule: crate::plan::safemode::Rule| wire::SafeModeRule {
        name: rule.name.to_owned(),
        satisfied: rule.satisfied,
        status: rule.status,
    };
    wire::SafeModeReply {
        in_safe_mode: seen.safe_mode.is_on(),
        rules: seen.safe_mode.rules(healthy).into_iter().map(rule).collect(),
    }
}

pub(super) async fn list_nodes(scm: &Scm) -> Result<wire::NodeList> {
    scm.log.read_barrier().await?;
    let nodes = nodes(scm)?;
    let now = scm.env.clock.boot();
    let intervals = scm.intervals();
    let seen = scm.seen.lock();
    let counts = seen.replicas.count_by_node();
    let one = |node: &Node| {
        let found = seen.nodes.get(node.id);
        // One that did not come back since our start has been silent at least that long.
        let silence = now.saturating_sub(found.map_or(scm.started, |found| found.last_beat));
        let health = match found {
            Some(_) => health(silence, &intervals),
            None => health(silence, &intervals).max(Health::Stale),
        };
        wire::NodeInfo {
            address: Some(address(node)),
            health: health.name().to_owned(),
            operation: "IN_SERVICE".to_owned(),
            last_heartbeat_ms: silence.as_millis() as u64,
            volumes: found.map(|found| found.volumes.clone()).unwrap_or_default(),
            containers: counts.get(&node.id).copied().unwrap_or(0),
            corrupt_blocks: found.map_or(0, |found| found.corrupt_blocks),
            version: node.version.clone(),
        }
    };
    Ok(wire::NodeList { nodes: nodes.values().map(one).collect() })
}

pub(super) fn status(scm: &Scm) -> wire::StatusReply {
    let status = scm.log.status();
    wire::StatusReply {
        cluster: Bytes::copy_from_slice(scm.cluster.as_bytes()),
        term: status.term,
        applied: status.applied,
        leader: status.leader,
        members: status.members,
    }
}
