//! Settled requests: everything that came from clock, randomness or observation is in them.

use ozone_common::id::{ContainerId, DatanodeId};
use ozone_common::replication::Replication;

use crate::tables::deleted_block::Range;
use crate::tables::node::Node;

/// A change of the SCM's state.
#[derive(Clone, Debug)]
pub enum Command {
    /// Hands out block ids.
    AllocateBlocks(AllocateBlocks),
    /// A writer lost replicas: logs (container, epoch + 1, survivors) before anything is committed on fewer replicas.
    ReportFailedReplicas {
        /// Of which container.
        container: ContainerId,
        /// The epoch the writer wrote under.
        epoch: u32,
        /// The members that failed it.
        failed: Vec<DatanodeId>,
    },
    /// OPEN → CLOSING; others are left alone.
    CloseContainers {
        /// Which.
        containers: Vec<ContainerId>,
    },
    /// A node is dead: containers not yet closed go on without it where enough members remain, and take no more blocks in any case.
    DropMember {
        /// Who.
        node: DatanodeId,
        /// From which.
        containers: Vec<ContainerId>,
    },
    /// CLOSING → CLOSED, where all members are among the reporters.
    MarkClosed {
        /// Which, each with the nodes that reported their replica CLOSED.
        containers: Vec<(ContainerId, Vec<DatanodeId>)>,
    },
    /// Replicas of these were reported for the first time.
    MarkReported {
        /// Which.
        containers: Vec<ContainerId>,
    },
    /// Takes blocks to delete over from the OM.
    QueueDeletes {
        /// The OM's queue position; one taken over before is answered without effect.
        om_sequence: u64,
        /// What to delete.
        containers: Vec<(ContainerId, Vec<Range>)>,
    },
    /// Forgets transactions that all members answered.
    FinishDeletes {
        /// Transactions, each with the nodes that answered it durably.
        done: Vec<(u64, Vec<DatanodeId>)>,
    },
    /// A datanode (re)registered.
    RegisterNode {
        /// Its record; `registered_ms` is set here.
        node: Node,
    },
}

/// See [`Command::AllocateBlocks`].
#[derive(Clone, Debug)]
pub struct AllocateBlocks {
    /// Of which containers.
    pub replication: Replication,
    /// How many blocks, at least 1. Fewer may be handed out, never none.
    pub count: u32,
    /// What the holder may write in total.
    pub reserve_bytes: u64,
    /// Nodes on which blocks may be placed now, sorted: healthy and not excluded.
    pub usable: Vec<DatanodeId>,
    /// Member lists for containers that may have to be opened.
    pub placements: Vec<Vec<DatanodeId>>,
    /// Size of a container, bytes.
    pub container_size: u64,
    /// How many containers of this replication should be open at least.
    pub open_target: usize,
}
