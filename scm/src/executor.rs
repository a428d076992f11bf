//! The core behind consensus: typed outcomes become encoded answers.

use bytes::Bytes;
use ozone_consensus::executor::{Effects, Executor, Stamp};
use ozone_kvstore::{Read, Result};
use ozone_proto::common::v1::{BlockRange, NodeAddress};
use ozone_proto::scm::v1::{AllocatedBlocks, ContainerInfo, Empty, ScmResponse, scm_response::Op};
use prost::Message;

use crate::core::{self, AllocatedRange, Command, Hint, Reply};
use crate::tables::container::Container;
use crate::tables::node::Node;

/// The SCM's state machine.
pub struct ScmExecutor;

impl Executor for ScmExecutor {
    type Command = Command;
    type Hint = Hint;

    fn execute(&mut self, view: &dyn Read, stamp: Stamp, command: Command) -> Result<Effects<Hint>> {
        let outcome = core::execute(view, stamp, command)?;
        Ok(Effects { rows: outcome.rows, reply: outcome.reply.map(encode), hints: outcome.hints })
    }
}

fn encode(reply: Reply) -> Bytes {
    let op = match reply {
        Reply::Empty => Op::Empty(Empty {}),
        Reply::Allocated(ranges) => Op::AllocatedBlocks(AllocatedBlocks {
            min_replicas: ranges.first().map_or(0, |range| range.container.replication.min_replicas() as u32),
            ranges: ranges.into_iter().map(block_range).collect(),
        }),
        Reply::Container(container, members) => Op::Container(container_info(&container, &members)),
    };
    ScmResponse { op: Some(op) }.encode_to_vec().into()
}

fn block_range(range: AllocatedRange) -> BlockRange {
    BlockRange {
        container: range.container.id.get(),
        first_local: range.first_local,
        count: range.count,
        epoch: range.container.epoch,
        replicas: range.replicas.iter().map(address).collect(),
        token: None,
    }
}

/// A node's address as clients need it.
pub(crate) fn address(node: &Node) -> NodeAddress {
    NodeAddress {
        datanode: Bytes::copy_from_slice(node.id.as_bytes()),
        host: node.host.clone(),
        data_port: node.data_port.into(),
    }
}

/// A container's record in its wire form, without what was observed.
pub(crate) fn container_info(container: &Container, members: &[Node]) -> ContainerInfo {
    ContainerInfo {
        id: container.id.get(),
        state: container.state.name().to_owned(),
        replication: container.replication.to_string(),
        epoch: container.epoch,
        members: members.iter().map(address).collect(),
        reserved_bytes: container.reserved_bytes,
        next_local: container.next_local,
        opened_ms: container.opened_ms,
        ..ContainerInfo::default()
    }
}
