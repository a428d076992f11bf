//! Commands to datanodes: one bounded queue per stream.
//!
//! A full or absent queue loses the command. That is no harm: each is computed again from facts (a replica still open, a transaction not
//! answered) by the loop that sent it.

use std::collections::BTreeMap;

use metrics::{Counter, counter};
use ozone_common::id::DatanodeId;
use ozone_proto::scm::v1::{NodeCommand, node_command::Command};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tonic::Status;

/// LIMIT: commands that wait for one datanode.
pub const COMMANDS_MAX: usize = 1024;

/// A command as its stream sends it.
pub type Outgoing = Result<NodeCommand, Status>;

/// The queues of all datanodes with a stream.
pub struct Queues {
    queues: Mutex<BTreeMap<DatanodeId, (u64, mpsc::Sender<Outgoing>)>>,
    dropped: Counter,
}

impl Default for Queues {
    fn default() -> Self {
        Self { queues: Mutex::default(), dropped: counter!("ozone_scm_node_commands_dropped_total") }
    }
}

impl Queues {
    /// Puts a stream's queue in place of an older one of the node, whose stream ends by that.
    pub fn open(&self, node: DatanodeId, stream: u64, queue: mpsc::Sender<Outgoing>) {
        self.queues.lock().insert(node, (stream, queue));
    }

    /// A stream ended.
    pub fn close(&self, node: DatanodeId, stream: u64) {
        let mut queues = self.queues.lock();
        if queues.get(&node).is_some_and(|(present, _)| *present == stream) {
            queues.remove(&node);
        }
    }

    /// Sends a command; false where it was lost.
    pub fn send(&self, node: DatanodeId, term: u64, command: Command) -> bool {
        let queues = self.queues.lock();
        let Some((_, queue)) = queues.get(&node) else { return false };
        let sent = queue.try_send(Ok(NodeCommand { term, command: Some(command) })).is_ok();
        if !sent {
            self.dropped.increment(1);
        }
        sent
    }

    /// The stream of a node, if it has one.
    pub fn stream(&self, node: DatanodeId) -> Option<u64> {
        self.queues.lock().get(&node).map(|(stream, _)| *stream)
    }

    /// Nodes with a stream.
    pub fn nodes(&self) -> Vec<(DatanodeId, u64)> {
        self.queues.lock().iter().map(|(node, (stream, _))| (*node, *stream)).collect()
    }
}

#[cfg(test)]
mod tests {
    use ozone_proto::scm::v1::SendFullReport;

    use super::*;

    #[tokio::test]
    async fn a_full_queue_drops_and_a_replaced_one_does_not_close_its_successor() {
        let queues = Queues::default();
        let node = DatanodeId::from_bytes([1; 16]);
        let send = |term| queues.send(node, term, Command::FullReport(SendFullReport {}));
        assert!(!send(1), "no stream");
        let (sender, mut receiver) = mpsc::channel(2);
        queues.open(node, 1, sender);
        assert_eq!([send(1), send(2), send(3)], [true, true, false]);
        assert_eq!(receiver.recv().await.unwrap().unwrap().term, 1);
        let (sender, _successor) = mpsc::channel(2);
        queues.open(node, 2, sender);
        assert_eq!(receiver.recv().await.unwrap().unwrap().term, 2);
        assert!(receiver.recv().await.is_none(), "its stream ends");
        queues.close(node, 1);
        assert_eq!(queues.nodes(), [(node, 2)]);
        queues.close(node, 2);
        assert!(queues.nodes().is_empty());
    }
}
