//! An SCM's end of the heartbeat that keeps what it is told and says what a test has it say.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::id::ClusterId;
use ozone_common::peer::{ClusterSecret, PeerRole, ProofClaims};
use ozone_proto::scm::v1::heartbeats_server::{Heartbeats, HeartbeatsServer};
use ozone_proto::scm::v1::{
    ContainerReplicaReport, NodeCommand, NodeReport, Refused, Register, Registered, node_command,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

const HEARTBEAT_MS: u32 = 50;
const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Seen {
    registrations: Vec<Register>,
    /// All reports, with the number of the stream that brought them.
    reports: Vec<(usize, NodeReport)>,
    commands: Option<mpsc::Sender<Result<NodeCommand, Status>>>,
    refuse: Option<String>,
    /// Ends the latest stream.
    hang_up: CancellationToken,
    cluster: Option<ClusterId>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Notify,
}

struct Service {
    shared: Arc<Shared>,
    secret: ClusterSecret,
    shutdown: CancellationToken,
}

#[tonic::async_trait]
impl Heartbeats for Service {
    type StreamStream = ReceiverStream<Result<NodeCommand, Status>>;

    async fn stream(&self, request: Request<Streaming<NodeReport>>) -> Result<Response<Self::StreamStream>, Status> {
        let mut reports = request.into_inner();
        let (commands, queue) = mpsc::channel(1024);
        let (shared, secret) = (self.shared.clone(), self.secret.clone());
        let hang_up = self.shutdown.child_token();
        self.shared.seen.lock().hang_up = hang_up.clone();
        tokio::spawn(hang_up.run_until_cancelled_owned(async move {
            serve(&shared, &secret, &mut reports, commands).await;
        }));
        Ok(Response::new(ReceiverStream::new(queue)))
    }
}

async fn serve(
    shared: &Shared,
    secret: &ClusterSecret,
    reports: &mut Streaming<NodeReport>,
    commands: mpsc::Sender<Result<NodeCommand, Status>>,
) {
    let mut stream = 0;
    while let Ok(Some(report)) = reports.message().await {
        let answer = {
            let mut seen = shared.seen.lock();
            let mut answer = None;
            if let Some(register) = &report.register {
                check_proof(secret, register);
                seen.registrations.push(register.clone());
                stream = seen.registrations.len();
                seen.commands = Some(commands.clone());
                let cluster = seen.cluster.unwrap_or(secret.cluster);
                answer = Some(match &seen.refuse {
                    Some(reason) => node_command::Command::Refused(Refused { reason: reason.clone() }),
                    None => node_command::Command::Registered(Registered {
                        cluster: Bytes::copy_from_slice(cluster.as_bytes()),
                        heartbeat_ms: HEARTBEAT_MS,
                    }),
                });
            }
            seen.reports.push((stream, report));
            answer
        };
        shared.changed.notify_waiters();
        if let Some(command) = answer {
            let refused = matches!(command, node_command::Command::Refused(_));
            commands.send(Ok(NodeCommand { term: 0, command: Some(command) })).await.unwrap();
            if refused {
                return;
            }
        }
    }
}

fn check_proof(secret: &ClusterSecret, register: &Register) {
    let address = register.address.as_ref().expect("a registration has an address");
    let claims = ProofClaims {
        cluster: ClusterId::from_slice(&register.cluster).unwrap(),
        peer: address.datanode[..].try_into().unwrap(),
        role: PeerRole::Datanode,
        time_ms: register.time_ms,
        nonce: &register.nonce,
        context: "scm.Heartbeats",
    };
    secret.peer_key().check(&claims, &register.mac, register.time_ms).expect("the proof is the cluster's");
    assert_eq!((register.nonce.len(), register.incarnation.len()), (16, 16));
}

/// A running fake; dropped, it ends its streams.
pub struct FakeScm {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    shutdown: CancellationToken,
    serving: Option<tokio::task::JoinHandle<ozone_common::Result<()>>>,
}

impl FakeScm {
    pub async fn start(secret: ClusterSecret) -> Self {
        Self::start_at("127.0.0.1:0", secret).await
    }

    pub async fn start_at(address: &str, secret: ClusterSecret) -> Self {
        let listener = ozone_rpc::listener::bind(address, false).await.unwrap();
        let address = ozone_rpc::listener::local_address(&listener).unwrap();
        let (shared, shutdown) = (Arc::<Shared>::default(), CancellationToken::new());
        let service = Service { shared: shared.clone(), secret, shutdown: shutdown.clone() };
        let router = ozone_rpc::channel::server().add_service(HeartbeatsServer::new(service));
        let serving = Some(tokio::spawn(ozone_rpc::listener::serve(listener, router, shutdown.clone())));
        Self { address, shared, shutdown, serving }
    }

    /// Waits until `holds` gives something.
    async fn until<T>(&self, what: &str, mut holds: impl FnMut(&Seen) -> Option<T>) -> T {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(found) = holds(&self.shared.seen.lock()) {
                    return found;
                }
                changed.await;
            }
        };
        match tokio::time::timeout(DEADLINE, waiting).await {
            Ok(found) => found,
            Err(_) => panic!("waited in vain: {what}; reports: {:#?}", self.shared.seen.lock().reports.last()),
        }
    }

    /// The n-th registration, from 1.
    pub async fn registration(&self, n: usize) -> Register {
        self.until("a registration", |seen| seen.registrations.get(n - 1).cloned()).await
    }

    pub fn registrations(&self) -> usize {
        self.shared.seen.lock().registrations.len()
    }

    /// All reports so far, with the number of the stream that brought each.
    pub fn reports(&self) -> Vec<(usize, NodeReport)> {
        self.shared.seen.lock().reports.clone()
    }

    /// Waits for a report that `holds` likes; gives it and its stream's number.
    pub async fn report(&self, what: &str, holds: impl Fn(&NodeReport) -> bool) -> (usize, NodeReport) {
        self.until(what, |seen| seen.reports.iter().find(|(_, report)| holds(report)).cloned()).await
    }

    /// Waits until the latest report of a container is as `holds` likes.
    pub async fn replica(
        &self,
        container: u64,
        what: &str,
        holds: impl Fn(&ContainerReplicaReport) -> bool,
    ) -> ContainerReplicaReport {
        self.until(what, |seen| {
            let mut of_container = seen.reports.iter().flat_map(|(_, r)| &r.containers);
            let latest = of_container.by_ref().filter(|c| c.container == container).last();
            latest.filter(|replica| holds(replica)).cloned()
        })
        .await
    }

    /// Waits for the answer to a delete transaction.
    pub async fn deleted(&self, transaction: u64) {
        self.report("a transaction's answer", |report| report.delete_transactions_done.contains(&transaction)).await;
    }

    pub async fn send(&self, term: u64, command: node_command::Command) {
        let commands = self.shared.seen.lock().commands.clone().expect("a datanode registered");
        commands.send(Ok(NodeCommand { term, command: Some(command) })).await.expect("its stream is open");
    }

    /// Refuses registrations from now on, or takes them again.
    pub fn refuse(&self, reason: Option<&str>) {
        self.shared.seen.lock().refuse = reason.map(str::to_owned);
    }

    /// Says in its greetings that it is another cluster's.
    pub fn pose_as(&self, cluster: ClusterId) {
        self.shared.seen.lock().cluster = Some(cluster);
    }

    /// Ends the latest stream.
    pub fn hang_up(&self) {
        let mut seen = self.shared.seen.lock();
        seen.commands = None;
        seen.hang_up.cancel();
    }

    /// Ends with all its streams; its port is free then.
    pub async fn stop(mut self) {
        self.hang_up();
        self.shutdown.cancel();
        if let Some(serving) = self.serving.take() {
            serving.await.unwrap().unwrap();
        }
    }
}

impl Drop for FakeScm {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
