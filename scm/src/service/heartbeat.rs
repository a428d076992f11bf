//! One stream per datanode: reports up, commands down.
//!
//! The first report registers: it proves that the node holds the cluster's secret, and says which run of the process it is. The record is logged
//! before the node counts, so that whatever is placed on it has an address after every restart.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::id::{BlockId, ContainerId, DatanodeId};
use ozone_common::peer::PeerRole;
use ozone_common::telemetry::{Outcome, Record, audit};
use ozone_common::{Error, Result};
use ozone_proto::convert::{datanode_id, required};
use ozone_proto::rpc::v1::Hello;
use ozone_proto::scm::v1::heartbeats_server::Heartbeats;
use ozone_proto::scm::v1::{
    ContainerReplicaReport, NodeCommand, NodeReport, Refused, Register, Registered, SendFullReport, node_command,
};
use ozone_rpc::session::hello::Doorkeeper;
use ozone_rpc::status::to_status;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};

use crate::core::Command;
use crate::execute::queue::{COMMANDS_MAX, Outgoing};
use crate::scm::Scm;
use crate::tables::node::Node;

/// What proofs are bound to.
pub const SERVICE: &str = "scm.Heartbeats";
/// How long a stream may take to register.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);
/// Missed heartbeats after which another process may take the id of one whose stream never closed.
const DUPLICATE_HEARTBEATS: u32 = 3;
/// LIMIT: length of a host name and a version.
const TEXT_MAX: usize = 253;

/// The gRPC service.
pub(crate) struct HeartbeatService {
    pub scm: Arc<Scm>,
    pub door: Arc<Doorkeeper>,
    pub tasks: TaskTracker,
    pub shutdown: CancellationToken,
}

#[tonic::async_trait]
impl Heartbeats for HeartbeatService {
    type StreamStream = ReceiverStream<Outgoing>;

    async fn stream(&self, request: Request<Streaming<NodeReport>>) -> Result<Response<Self::StreamStream>, Status> {
        let mut reports = request.into_inner();
        let (queue, commands) = mpsc::channel(COMMANDS_MAX);
        let (scm, door, shutdown) = (self.scm.clone(), self.door.clone(), self.shutdown.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = serve(&scm, &door, &mut reports, queue) => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(commands)))
    }
}

async fn serve(scm: &Scm, door: &Doorkeeper, reports: &mut Streaming<NodeReport>, queue: mpsc::Sender<Outgoing>) {
    let first = match tokio::time::timeout(REGISTER_TIMEOUT, reports.message()).await {
        Ok(Ok(Some(report))) => report,
        Ok(Ok(None)) | Err(_) => return,
        Ok(Err(status)) => return tracing::debug!(%status, "heartbeat stream broke before it registered"),
    };
    let (node, stream) = match register(scm, door, &first).await {
        Ok(registered) => registered,
        Err(error) => return refuse(&queue, &first, error).await,
    };
    let _open = OpenStream { scm, node, stream };
    let greeting = Registered {
        cluster: Bytes::copy_from_slice(scm.cluster.as_bytes()),
        heartbeat_ms: u32::try_from(scm.config.heartbeat.as_millis()).unwrap_or(u32::MAX),
    };
    // ORDER: the greeting is in the queue before anything else can be.
    send(&queue, scm, node_command::Command::Registered(greeting)).await;
    if !first.full {
        send(&queue, scm, node_command::Command::FullReport(SendFullReport {})).await;
    }
    scm.queues.open(node, stream, queue);
    scm.wakeups.deletes_changed.notify_one();
    let mut report = first;
    while scm.take_report(node, stream, report) {
        report = match reports.message().await {
            Ok(Some(report)) => report,
            Ok(None) => return,
            Err(status) => return tracing::debug!(datanode = %node, %status, "heartbeat stream broke"),
        };
    }
}

async fn send(queue: &mpsc::Sender<Outgoing>, scm: &Scm, command: node_command::Command) {
    // A closed queue means that the stream ended, which the reading side finds out.
    let _ = queue.send(Ok(NodeCommand { term: scm.term(), command: Some(command) })).await;
}

async fn refuse(queue: &mpsc::Sender<Outgoing>, first: &NodeReport, error: Error) {
    let register = first.register.as_ref();
    let address = register.and_then(|r| r.address.as_ref()).map(|a| format!("{}:{}", a.host, a.data_port));
    let address = address.unwrap_or_default();
    tracing::warn!(?address, %error, "datanode refused");
    audit(&Record {
        role: "scm",
        who: "datanode",
        op: "REGISTER",
        resource: &address,
        outcome: Outcome::Failure(&error),
        request_id: "",
    });
    let refused = Refused { reason: error.to_string() };
    let command = NodeCommand { term: 0, command: Some(node_command::Command::Refused(refused)) };
    // The node is gone where these fail, which is what a refusal wants.
    let _ = queue.send(Ok(command)).await;
    let _ = queue.send(Err(to_status(error))).await;
}

/// Checks who it is and logs its record. Gives its id and its stream's number.
async fn register(scm: &Scm, door: &Doorkeeper, first: &NodeReport) -> Result<(DatanodeId, u64)> {
    let register =
        first.register.as_ref().ok_or_else(|| Error::invalid("a heartbeat stream begins with a registration"))?;
    let node = parse(scm, door, register)?;
    let window = scm.config.heartbeat.duration() * DUPLICATE_HEARTBEATS;
    let duplicate = |error: crate::observe::nodes::RefusedNode| Error::invalid(error.to_string());
    let check = scm.seen.lock().nodes.check(node.id, node.incarnation, scm.env.clock.boot(), window);
    check.map_err(duplicate)?;
    let (id, incarnation, address) = (node.id, node.incarnation, format!("{}:{}", node.host, node.data_port));
    scm.log.propose(None, Command::RegisterNode { node }).await?;
    let stream = scm.seen.lock().nodes.register(id, incarnation, scm.env.clock.boot(), window).map_err(duplicate)?;
    tracing::info!(datanode = %id, address, version = register.version, "datanode registered");
    audit(&Record {
        role: "scm",
        who: "datanode",
        op: "REGISTER",
        resource: &format_args!("{id} {address}"),
        outcome: Outcome::Success,
        request_id: "",
    });
    Ok((id, stream))
}

fn parse(scm: &Scm, door: &Doorkeeper, register: &Register) -> Result<Node> {
    let address = required(register.address.as_ref(), "register.address")?;
    // A fresh node adopts our cluster; its proof is then about that one, which it must hold the secret of.
    let cluster = match register.cluster.is_empty() {
        true => Bytes::copy_from_slice(scm.cluster.as_bytes()),
        false => register.cluster.clone(),
    };
    let hello = Hello {
        cluster,
        client: address.datanode.clone(),
        role: PeerRole::Datanode as u32,
        user: String::new(),
        time_ms: register.time_ms,
        nonce: register.nonce.clone(),
        mac: register.mac.clone(),
        version: register.version.clone(),
    };
    door.check(&hello, false, scm.env.clock.now_ms())?;
    let port =
        |port: u32, name: &str| u16::try_from(port).map_err(|_| Error::invalid(format!("{name} {port} is not a port")));
    if address.host.is_empty() || address.host.len() > TEXT_MAX || register.version.len() > TEXT_MAX {
        return Err(Error::invalid("a registration's host is empty, or it or the version is too long"));
    }
    Ok(Node {
        id: datanode_id(&address.datanode)?,
        host: address.host.clone(),
        data_port: port(address.data_port, "data_port")?,
        http_port: port(register.http_port, "http_port")?,
        incarnation: register.incarnation[..]
            .try_into()
            .map_err(|_| Error::invalid("incarnation is not of 16 bytes"))?,
        version: register.version.clone(),
        registered_ms: 0,
    })
}

/// Says that the stream ended, however its task ends.
struct OpenStream<'a> {
    scm: &'a Scm,
    node: DatanodeId,
    stream: u64,
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.scm.queues.close(self.node, self.stream);
        if self.scm.seen.lock().nodes.stream_ended(self.node, self.stream) {
            tracing::warn!(datanode = %self.node, "heartbeat stream ended; nothing new is placed there until it returns");
        }
    }
}

impl Scm {
    /// Takes a report in; false where the stream was replaced by another of the node.
    pub(crate) fn take_report(&self, node: DatanodeId, stream: u64, report: NodeReport) -> bool {
        let now = self.env.clock.boot();
        let replicas = parse_replicas(node, &report.containers);
        {
            let mut seen = self.seen.lock();
            let Some(found) = seen.nodes.beat(node, stream, now) else { return false };
            found.volumes = report.volumes;
            for corrupt in &report.corrupt {
                let Some(block) = BlockId::new(corrupt.block) else { continue };
                if found.note_corrupt(block) {
                    self.metrics.corrupt_blocks.increment(1);
                    tracing::error!(datanode = %node, %block, what = ?corrupt.what, "corrupt block reported");
                }
            }
            let changes = seen.replicas.report(node, report.full, &replicas);
            seen.safe_mode.reported(replicas.iter().map(|(id, _)| *id));
            drop(seen);
            self.wakeups.look_at(changes.containers);
        }
        if self.seen.lock().safe_mode.is_on() {
            self.review_safe_mode();
        }
        if !report.delete_transactions_done.is_empty() {
            let mut tracker = self.deletes.lock();
            for transaction in report.delete_transactions_done {
                tracker.answered(node, transaction);
            }
            drop(tracker);
            self.wakeups.deletes_changed.notify_one();
        }
        true
    }
}

fn parse_replicas(node: DatanodeId, reports: &[ContainerReplicaReport]) -> Vec<(ContainerId, &ContainerReplicaReport)> {
    let mut replicas = Vec::with_capacity(reports.len());
    for report in reports {
        match ContainerId::new(report.container) {
            Some(id) => replicas.push((id, report)),
            None => {
                tracing::warn!(datanode = %node, container = report.container, "report of an impossible container id")
            }
        }
    }
    replicas
}
