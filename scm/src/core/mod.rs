//! The replicated state machine: what each command does to the tables. Pure: no clock, no randomness, no I/O but the view.
//!
//! Invariants have names in [`invariants`]; property tests run them after every command.

pub mod command;
pub mod invariants;

mod allocate;
mod container;
pub mod deletion_log;
mod node;

#[cfg(test)]
mod model_test;

use ozone_common::Error;
use ozone_consensus::executor::Stamp;
use ozone_kvstore::{Batch, Read, Result};

use crate::tables::container::Container;
use crate::tables::node::Node;
pub use command::{AllocateBlocks, Command};

/// Blocks handed out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllocatedRange {
    /// The container, after the allocation.
    pub container: Container,
    /// The first block's local number.
    pub first_local: u32,
    /// How many.
    pub count: u32,
    /// The members' records, in pipeline order.
    pub replicas: Vec<Node>,
}

/// The answer to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Done.
    Empty,
    /// To [`Command::AllocateBlocks`].
    Allocated(Vec<AllocatedRange>),
    /// To [`Command::ReportFailedReplicas`]: the container and its members as they are now.
    Container(Container, Vec<Node>),
}

/// What became possible. May be lost; loops find the same work from the tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hint {
    /// Containers whose replicas may now need a command.
    Containers(Vec<ozone_common::id::ContainerId>),
    /// Deletes were queued.
    Deletes,
}

/// What a command does: changes with an answer, or a refusal.
#[derive(Debug)]
pub struct Outcome {
    /// Row changes; none for a refusal.
    pub rows: Batch,
    /// The answer.
    pub reply: std::result::Result<Reply, Error>,
    /// See [`Hint`].
    pub hints: Vec<Hint>,
}

impl Outcome {
    fn refuse(error: Error) -> Self {
        Self { rows: Batch::new(), reply: Err(error), hints: Vec::new() }
    }
    fn done(rows: Batch, reply: Reply) -> Self {
        Self { rows, reply: Ok(reply), hints: Vec::new() }
    }
    fn hint(mut self, hint: Hint) -> Self {
        self.hints.push(hint);
        self
    }
}

/// Decides what `command` does. Total: an invalid command is a refusal.
///
/// # Errors
/// Only where the view cannot be read.
pub fn execute(view: &dyn Read, stamp: Stamp, command: Command) -> Result<Outcome> {
    match command {
        Command::AllocateBlocks(request) => allocate::allocate_blocks(view, stamp, request),
        Command::ReportFailedReplicas { container, epoch, failed } => {
            container::report_failed_replicas(view, container, epoch, &failed)
        }
        Command::CloseContainers { containers } => container::close(view, &containers),
        Command::DropMember { node, containers } => container::drop_member(view, node, &containers),
        Command::MarkClosed { containers } => container::mark_closed(view, containers),
        Command::MarkReported { containers } => container::mark_reported(view, &containers),
        Command::QueueDeletes { om_sequence, containers } => deletion_log::queue_deletes(view, om_sequence, containers),
        Command::FinishDeletes { done } => deletion_log::finish_deletes(view, &done),
        Command::RegisterNode { node } => node::register(view, stamp, node),
    }
}

/// The records of `members`, in their order.
fn members(view: &dyn Read, container: &Container) -> Result<std::result::Result<Vec<Node>, Error>> {
    let mut found = Vec::with_capacity(container.members.len());
    for id in &container.members {
        match crate::tables::node::get(view, *id)? {
            Some(node) => found.push(node),
            None => {
                let text = format!("member {id} of container {} has no record", container.id);
                return Ok(Err(Error::internal(text)));
            }
        }
    }
    Ok(Ok(found))
}
