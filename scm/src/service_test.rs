//! The whole SCM but consensus, over real connections: datanodes that do as told or do not, the OM, and a user.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::config::{ByteSize, TimeSpan};
use ozone_common::env::{Env, RealDisk};
use ozone_common::id::{ClusterId, DatanodeId};
use ozone_common::peer::{ClusterSecret, PeerRole, ProofClaims};
use ozone_common::{Error, ErrorCode, Result};
use ozone_kvstore::mem::MemStore;
use ozone_proto::common::v1::NodeAddress;
use ozone_proto::scm::v1::heartbeats_client::HeartbeatsClient;
use ozone_proto::scm::v1::{self as wire, NodeReport, ReplicaState, node_command, scm_request, scm_response};
use ozone_rpc::session::{CallOptions, Identity, SessionClient, SessionOptions};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use crate::config::Config;
use crate::log::Wakeups;
use crate::log_test::LocalLog;
use crate::scm::Scm;
use crate::server::{self, Handle};
use crate::tables::deleted_block;

const DEADLINE: Duration = Duration::from_secs(10);

fn secret() -> ClusterSecret {
    ClusterSecret::new(ClusterId::from_bytes([7; 16]), [1; 32])
}

fn config() -> Config {
    Config {
        rpc_bind: "127.0.0.1:0".into(),
        http_bind: "127.0.0.1:0".into(),
        heartbeat: TimeSpan::millis(20),
        stale_after: TimeSpan::secs(3),
        dead_after: TimeSpan::secs(60),
        suspect_for: TimeSpan::millis(50),
        container_size: ByteSize::mib(64),
        min_free_space: ByteSize::mib(1),
        degraded_after: TimeSpan::millis(0),
        ..Config::default()
    }
}

struct Running {
    handle: Handle,
    scm: Arc<Scm>,
    shutdown: CancellationToken,
    store: MemStore,
}

async fn start(config: Config, store: Option<MemStore>) -> Running {
    let wakeups = Arc::new(Wakeups::default());
    let log = match store {
        Some(store) => LocalLog::over(store, wakeups.clone()),
        None => LocalLog::new(wakeups.clone()),
    };
    let store = log.mem_store();
    let shutdown = CancellationToken::new();
    let listeners = server::Listeners::bind(&config).await.unwrap();
    let (log, stop) = (Arc::new(log), shutdown.clone());
    let served = server::serve(config, secret(), Env::system(), listeners, log, wakeups, None, stop);
    let (handle, scm) = served.await.unwrap();
    Running { handle, scm, shutdown, store }
}

impl Running {
    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, self.handle.join()).await.expect("it stops").unwrap();
    }
    fn client(&self, identity: Identity) -> Caller {
        let address = vec![self.handle.rpc_address().to_string()];
        let client =
            SessionClient::connect("scm.Sessions", address, identity, Env::system(), SessionOptions::default());
        Caller(client.unwrap())
    }
    fn om(&self) -> Caller {
        self.client(Identity::Role(PeerRole::Om, secret()))
    }
    fn address(&self) -> SocketAddr {
        self.handle.rpc_address()
    }
}

struct Caller(SessionClient);

impl Caller {
    async fn call(&self, op: scm_request::Op) -> Result<scm_response::Op> {
        let options =
            CallOptions { deadline: tokio::time::Instant::now() + DEADLINE, request_id: "test".into(), user: None };
        let answer = self.0.call(wire::ScmRequest { op: Some(op) }.encode_to_vec().into(), &options).await?;
        Ok(wire::ScmResponse::decode(answer).unwrap().op.unwrap())
    }
    async fn allocate(&self, count: u32) -> Result<Vec<ozone_proto::common::v1::BlockRange>> {
        let request = wire::AllocateBlocks {
            replication: "RATIS/THREE".into(),
            count,
            max_block_length: 1 << 20,
            ..Default::default()
        };
        match self.call(scm_request::Op::AllocateBlocks(request)).await? {
            scm_response::Op::AllocatedBlocks(allocated) => Ok(allocated.ranges),
            other => panic!("{other:?}"),
        }
    }
    async fn container(&self, id: u64) -> wire::ContainerInfo {
        match self.call(scm_request::Op::GetContainers(wire::GetContainers { containers: vec![id] })).await.unwrap() {
            scm_response::Op::Containers(list) => list.containers.into_iter().next().unwrap(),
            other => panic!("{other:?}"),
        }
    }
    async fn nodes(&self) -> Vec<wire::NodeInfo> {
        match self.call(scm_request::Op::ListNodes(wire::ListNodes {})).await.unwrap() {
            scm_response::Op::Nodes(list) => list.nodes,
            other => panic!("{other:?}"),
        }
    }
    async fn report_failed(&self, container: u64, epoch: u32, failed: &[u8]) -> Result<wire::ContainerInfo> {
        let failed = failed.iter().map(|n| Bytes::from(vec![*n; 16])).collect();
        let request = wire::ReportFailedReplicas { container, epoch, failed, reason: "test".into() };
        match self.call(scm_request::Op::ReportFailedReplicas(request)).await? {
            scm_response::Op::Container(container) => Ok(container),
            other => panic!("{other:?}"),
        }
    }
    async fn delete(&self, om_sequence: u64, container: u64, first: u32, count: u32) -> Result<()> {
        let ranges = vec![wire::LocalRange { first, count }];
        let containers = vec![wire::ContainerBlocks { container, ranges }];
        self.call(scm_request::Op::QueueDeletes(wire::QueueDeletes { om_sequence, containers })).await.map(|_| ())
    }
}

async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A datanode's end of the heartbeat.
struct Datanode {
    n: u8,
    up: mpsc::Sender<NodeReport>,
    down: Streaming<wire::NodeCommand>,
    replicas: BTreeMap<u64, ReplicaState>,
}

fn registration(n: u8, incarnation: u8, secret: &ClusterSecret) -> wire::Register {
    let env = Env::system();
    let mut nonce = [0; 16];
    env.rng.fill(&mut nonce);
    let time_ms = env.clock.now_ms();
    let proof = ProofClaims {
        cluster: secret.cluster,
        peer: &[n; 16],
        role: PeerRole::Datanode,
        time_ms,
        nonce: &nonce,
        context: "scm.Heartbeats",
    };
    wire::Register {
        cluster: Bytes::copy_from_slice(secret.cluster.as_bytes()),
        address: Some(NodeAddress {
            datanode: vec![n; 16].into(),
            host: "127.0.0.1".into(),
            data_port: 1000 + u32::from(n),
        }),
        http_port: 9,
        time_ms,
        nonce: Bytes::copy_from_slice(&nonce),
        mac: secret.peer_key().prove(&proof).into(),
        version: "0.1.0".into(),
        incarnation: vec![incarnation; 16].into(),
    }
}

async fn open(
    address: SocketAddr,
    register: wire::Register,
) -> (mpsc::Sender<NodeReport>, Streaming<wire::NodeCommand>) {
    let channel = ozone_rpc::channel::connect(&address.to_string(), DEADLINE).await.unwrap();
    let (up, reports) = mpsc::channel(64);
    let first = NodeReport { register: Some(register), full: true, ..Datanode::empty_report() };
    up.send(first).await.unwrap();
    let down = HeartbeatsClient::new(channel).stream(ReceiverStream::new(reports)).await.unwrap().into_inner();
    (up, down)
}

async fn refusal(address: SocketAddr, register: wire::Register) -> String {
    let (_up, mut down) = open(address, register).await;
    let command = tokio::time::timeout(DEADLINE, down.message()).await.unwrap().unwrap().unwrap().command.unwrap();
    let node_command::Command::Refused(refused) = command else { panic!("{command:?}") };
    assert!(down.message().await.is_err(), "the stream ends with the error");
    refused.reason
}

impl Datanode {
    async fn join(address: SocketAddr, n: u8, incarnation: u8) -> Self {
        let (up, down) = open(address, registration(n, incarnation, &secret())).await;
        let mut node = Self { n, up, down, replicas: BTreeMap::new() };
        let node_command::Command::Registered(registered) = node.command().await else { panic!("not registered") };
        assert_eq!((&registered.cluster[..], registered.heartbeat_ms), (&[7; 16][..], 20));
        node
    }
    fn empty_report() -> NodeReport {
        let volume = wire::DiskVolumeReport { capacity: 1 << 40, available: 1 << 39, ..Default::default() };
        NodeReport { volumes: vec![volume], ..Default::default() }
    }
    async fn send(&self, report: NodeReport) {
        self.up.send(report).await.unwrap();
    }
    async fn command(&mut self) -> node_command::Command {
        let command = tokio::time::timeout(DEADLINE, self.down.message()).await.expect("a command comes");
        command.unwrap().expect("the stream goes on").command.unwrap()
    }
    async fn report(&mut self, container: u64, state: ReplicaState, used: u64) {
        self.replicas.insert(container, state);
        let replica = wire::ContainerReplicaReport {
            container,
            state: state as i32,
            epoch: 1,
            used,
            blocks: 1,
            ..Default::default()
        };
        self.send(NodeReport { containers: vec![replica], ..Self::empty_report() }).await;
    }
    /// Waits for the commands to close `containers` and does so; gives the last one's epoch.
    async fn close(&mut self, containers: &[u64]) -> u32 {
        let mut left: BTreeSet<u64> = containers.iter().copied().collect();
        let mut epoch = 0;
        while !left.is_empty() {
            if let node_command::Command::Close(close) = self.command().await {
                self.report(close.container, ReplicaState::Closed, 5).await;
                left.remove(&close.container);
                epoch = close.epoch;
            }
        }
        epoch
    }
    async fn deletion(&mut self) -> wire::DeleteBlocks {
        loop {
            if let node_command::Command::DeleteBlocks(delete) = self.command().await {
                return delete;
            }
        }
    }
    async fn answer(&self, transaction: u64) {
        self.send(NodeReport { delete_transactions_done: vec![transaction], ..Self::empty_report() }).await;
    }
}

async fn three_nodes(scm: &Running) -> [Datanode; 3] {
    let join = |n| Datanode::join(scm.address(), n, 1);
    [join(1).await, join(2).await, join(3).await]
}

/// Keeps nodes HEALTHY in the background until dropped.
fn beating(nodes: &[Datanode]) -> tokio_util::task::AbortOnDropHandle<()> {
    let ups: Vec<_> = nodes.iter().map(|node| node.up.clone()).collect();
    tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            for up in &ups {
                // A node whose stream ended no longer beats.
                let _ = up.try_send(Datanode::empty_report());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }))
}

#[tokio::test]
async fn safe_mode_holds_allocation_until_nodes_register_and_a_retried_call_gets_the_same_blocks() {
    let scm = start(Config { degraded_after: TimeSpan::secs(60), ..config() }, None).await;
    let om = scm.om();
    let error = om.allocate(1).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::SafeMode);
    assert!(error.message.contains("DataNodeSafeModeRule: 0 datanodes registered, 1 needed"), "{error}");
    let one = Datanode::join(scm.address(), 1, 1).await;
    until("safe mode ends", || async { om.allocate(1).await.unwrap_err().code != ErrorCode::SafeMode }).await;
    let error = om.allocate(1).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InsufficientDatanodes, "just started: the others are waited for");
    assert!(error.message.contains("needs 3 datanodes; 1 are known, 1 healthy"), "{error}");
    let nodes = [one, Datanode::join(scm.address(), 2, 1).await, Datanode::join(scm.address(), 3, 1).await];
    let _beating = beating(&nodes);
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        for range in om.allocate(8).await.unwrap() {
            assert_eq!((range.epoch, range.replicas.len()), (1, 3));
            let ports: BTreeSet<u32> = range.replicas.iter().map(|r| r.data_port).collect();
            assert_eq!(ports, BTreeSet::from([1001, 1002, 1003]));
            assert!(
                (range.first_local..range.first_local + range.count).all(|local| seen.insert((range.container, local)))
            );
        }
    }
    assert_eq!(seen.len(), 32);
    assert_eq!(
        seen.iter().map(|(container, _)| container).collect::<BTreeSet<_>>().len(),
        2,
        "few containers are open"
    );
    scm.stop().await;
}

#[tokio::test]
async fn strangers_and_doubles_are_refused_by_name() {
    let scm = start(config(), None).await;
    let other = ClusterSecret::new(ClusterId::from_bytes([8; 16]), [1; 32]);
    assert!(refusal(scm.address(), registration(1, 1, &other)).await.contains("belongs to cluster 08080808-"));
    let forged = ClusterSecret::new(secret().cluster, [2; 32]);
    assert!(refusal(scm.address(), registration(1, 1, &forged)).await.contains("does not hold this cluster's key"));
    let used = registration(1, 1, &secret());
    let (_up, mut down) = open(scm.address(), used.clone()).await;
    assert!(matches!(down.message().await.unwrap().unwrap().command, Some(node_command::Command::Registered(_))));
    assert!(refusal(scm.address(), used).await.contains("used before"));
    let reason = refusal(scm.address(), registration(1, 2, &secret())).await;
    assert!(reason.contains("another live process"), "{reason}");
    let broken = wire::Register { incarnation: Bytes::from_static(b"x"), ..registration(2, 1, &secret()) };
    assert!(refusal(scm.address(), broken).await.contains("incarnation"));
    let user = scm.client(Identity::User("eve".into()));
    assert_eq!(user.allocate(1).await.unwrap_err().code, ErrorCode::PermissionDenied);
    assert_eq!(user.delete(1, 1, 1, 1).await.unwrap_err().code, ErrorCode::PermissionDenied);
    assert_eq!(user.nodes().await.len(), 1, "but may look");
    scm.stop().await;
}

#[tokio::test]
async fn a_lost_replica_is_logged_under_a_new_epoch_and_its_container_closes_everywhere() {
    let scm = start(config(), None).await;
    let mut nodes = three_nodes(&scm).await;
    let _beating = beating(&nodes);
    let om = scm.om();
    let container = om.allocate(1).await.unwrap()[0].container;
    for node in &mut nodes {
        node.report(container, ReplicaState::Open, 1).await;
    }
    let told = om.report_failed(container, 1, &[3]).await.unwrap();
    assert_eq!((told.epoch, &told.state[..]), (2, "CLOSING"));
    let members: BTreeSet<u8> = told.members.iter().map(|member| member.datanode[0]).collect();
    assert_eq!(members, BTreeSet::from([1, 2]));
    assert_eq!(om.report_failed(container, 1, &[3]).await.unwrap().epoch, 2, "told again, logged once");
    let error = om.report_failed(container, 2, &[2]).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InsufficientDatanodes, "two copies are the least");
    let [one, two, three] = &mut nodes;
    for node in [one, two, three] {
        assert_eq!(node.close(&[container]).await, 2, "the one that was dropped is told as well: {}", node.n);
    }
    until("it is CLOSED", || async { om.container(container).await.state == "CLOSED" }).await;
    let info = om.container(container).await;
    assert_eq!(info.replicas.iter().map(|replica| replica.member).collect::<Vec<_>>(), [true, true, false]);
    assert!(info.replicas.iter().all(|replica| replica.state == "CLOSED"));
    assert!(om.allocate(1).await.unwrap().iter().all(|range| range.container != container));
    scm.stop().await;
}

#[tokio::test]
async fn a_full_container_closes_and_so_do_those_of_a_restarted_node() {
    let scm = start(config(), None).await;
    let mut nodes = three_nodes(&scm).await;
    let om = scm.om();
    let first = om.allocate(1).await.unwrap()[0].container;
    let second = om.allocate(1).await.unwrap()[0].container;
    assert_ne!(first, second);
    nodes[0].report(first, ReplicaState::Open, 64 << 20).await;
    until("a full one closes", || async { om.container(first).await.state == "CLOSING" }).await;
    let [one, two, three] = nodes;
    drop(three);
    let three = Datanode::join(scm.address(), 3, 2).await;
    assert_eq!(om.container(second).await.state, "CLOSING", "closed before the node counts again");
    let mut nodes = [one, two, three];
    let _beating = beating(&nodes);
    for node in &mut nodes {
        node.close(&[first, second]).await;
    }
    until("all closed", || async {
        om.container(first).await.state == "CLOSED" && om.container(second).await.state == "CLOSED"
    })
    .await;
    scm.stop().await;
}

#[tokio::test]
async fn deletes_go_to_every_member_until_each_answered() {
    let scm = start(config(), None).await;
    let mut nodes = three_nodes(&scm).await;
    let om = scm.om();
    let container = om.allocate(8).await.unwrap()[0].container;
    om.delete(5, container, 1, 3).await.unwrap();
    om.delete(5, container, 1, 3).await.unwrap();
    let error = om.delete(6, container, 8, 2).await.unwrap_err();
    assert!(error.message.contains("never handed out"), "{error}");
    for node in &mut nodes {
        let delete = node.deletion().await;
        assert_eq!(delete.transaction, 1);
        assert_eq!(delete.containers[0].ranges, [wire::LocalRange { first: 1, count: 3 }]);
    }
    let left = || deleted_block::scan(&scm.store, 0).unwrap().count();
    nodes[0].answer(1).await;
    nodes[1].answer(1).await;
    until("two answers are in", || async { scm.scm.deletes.lock().answers(1).len() == 2 }).await;
    until("and were looked at", || async { scm.scm.deletes.lock().in_flight() == 1 }).await;
    // The third does not answer: its stream breaks, it returns and is asked again. So does one that answered, which is not asked again.
    let [one, two, three] = nodes;
    drop((one, three));
    let mut one = Datanode::join(scm.address(), 1, 2).await;
    let mut three = Datanode::join(scm.address(), 3, 2).await;
    let asked =
        tokio::time::timeout(Duration::from_secs(5), three.deletion()).await.expect("at once, not at the next review");
    assert_eq!(asked.transaction, 1);
    assert_eq!(left(), 1, "kept until all answered");
    three.answer(1).await;
    until("the log is empty", || async { left() == 0 }).await;
    // A member dropped from the container is not waited for.
    om.delete(7, container, 4, 1).await.unwrap();
    assert_eq!(one.deletion().await.transaction, 2, "the first was answered before");
    one.answer(2).await;
    two.answer(2).await;
    until("both answers are in", || async { scm.scm.deletes.lock().answers(2).len() == 2 }).await;
    assert_eq!(left(), 1);
    om.report_failed(container, 1, &[3]).await.unwrap();
    crate::execute::deleter::turn(&scm.scm, true).await.unwrap();
    assert_eq!(left(), 0);
    scm.stop().await;
}

#[tokio::test]
async fn a_silent_node_goes_stale_then_dead_and_its_containers_go_on_without_it() {
    let short = Config { stale_after: TimeSpan::millis(500), dead_after: TimeSpan::millis(1000), ..config() };
    let scm = start(short, None).await;
    let nodes = three_nodes(&scm).await;
    let om = scm.om();
    let container = om.allocate(1).await.unwrap()[0].container;
    let beating = beating(&nodes[..2]);
    let health = || async { om.nodes().await.into_iter().map(|node| node.health).collect::<Vec<_>>() };
    until("STALE", || async { health().await == ["HEALTHY", "HEALTHY", "STALE"] }).await;
    let degraded = om.allocate(1).await.unwrap();
    assert!(degraded.iter().all(|range| range.replicas.len() == 2 && range.container != container));
    until("DEAD", || async { health().await == ["HEALTHY", "HEALTHY", "DEAD"] }).await;
    until("dropped", || async { om.container(container).await.epoch == 2 }).await;
    let info = om.container(container).await;
    assert_eq!((&info.state[..], info.members.len()), ("CLOSING", 2));
    nodes[2].send(Datanode::empty_report()).await;
    let _all = self::beating(&nodes);
    until("back", || async { health().await == ["HEALTHY", "HEALTHY", "HEALTHY"] }).await;
    let id = degraded[0].container;
    until("a degraded one closes once there are three", || async { om.container(id).await.state != "OPEN" }).await;
    drop(beating);
    scm.stop().await;
}

#[tokio::test]
async fn after_a_restart_reported_containers_are_waited_for_and_corrupt_blocks_are_counted() {
    let scm = start(config(), None).await;
    let mut nodes = three_nodes(&scm).await;
    let om = scm.om();
    let container = om.allocate(1).await.unwrap()[0].container;
    let unused = om.allocate(1).await.unwrap()[0].container;
    for node in &mut nodes {
        node.report(container, ReplicaState::Open, 1).await;
    }
    let reported = |store: &MemStore, id| {
        let id = ozone_common::id::ContainerId::new(id).unwrap();
        crate::tables::container::get(store, id).unwrap().unwrap().reported
    };
    until("it is known to exist", || async { reported(&scm.store, container) }).await;
    assert!(!reported(&scm.store, unused));
    let store = scm.store.clone();
    scm.stop().await;

    let scm = start(config(), Some(store)).await;
    let om = scm.om();
    let node = Datanode::join(scm.address(), 1, 1).await;
    until("the node counts", || async { om.nodes().await[0].health == "HEALTHY" }).await;
    let Ok(scm_response::Op::SafeMode(mode)) = om.call(scm_request::Op::SafeModeStatus(wire::SafeModeStatus {})).await
    else {
        panic!("no answer")
    };
    assert!(mode.in_safe_mode);
    assert_eq!(
        mode.rules[1].status, "0 of 1 containers have a replica reported, 1 needed",
        "the unused one is not waited for"
    );
    let mut node = node;
    node.report(container, ReplicaState::Open, 1).await;
    let in_safe_mode = || async {
        match om.call(scm_request::Op::SafeModeStatus(wire::SafeModeStatus {})).await.unwrap() {
            scm_response::Op::SafeMode(mode) => mode.in_safe_mode,
            other => panic!("{other:?}"),
        }
    };
    until("safe mode ends", || async { !in_safe_mode().await }).await;
    let corrupt = vec![wire::CorruptBlock { block: container << 24 | 1, what: "window 3".into() }; 2];
    node.send(NodeReport { corrupt, ..Datanode::empty_report() }).await;
    until("counted once", || async { om.nodes().await[0].corrupt_blocks == 1 }).await;
    let list = wire::ListContainers { after: 0, limit: 1, state: "open".into() };
    match om.call(scm_request::Op::ListContainers(list)).await.unwrap() {
        scm_response::Op::Containers(list) => assert_eq!((list.containers.len(), list.truncated), (1, true)),
        other => panic!("{other:?}"),
    }
    let error: Error = om.report_failed(999, 1, &[1]).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ContainerNotFound);
    assert_eq!(
        DatanodeId::from_bytes([1; 16]).as_bytes()[..],
        om.nodes().await[0].address.as_ref().unwrap().datanode[..]
    );
    let _ = scm.scm.log.status();
    scm.stop().await;
}

#[tokio::test]
async fn on_its_log_containers_blocks_and_deletes_survive_kill_and_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (first, killed) = (folder.path().join("scm"), folder.path().join("killed"));
    let start = async |data: &std::path::Path| {
        let shutdown = CancellationToken::new();
        let config = Config { data: data.to_path_buf(), ..config() };
        let handle = crate::start(config, secret(), Env::system(), shutdown.clone()).await.unwrap();
        let address = handle.rpc_address();
        let identity = Identity::Role(PeerRole::Om, secret());
        let session = SessionClient::connect(
            "scm.Sessions",
            vec![address.to_string()],
            identity,
            Env::system(),
            SessionOptions::default(),
        );
        let nodes = [1, 2, 3].map(|n| Datanode::join(address, n, 1));
        (handle, Caller(session.unwrap()), futures::future::join_all(nodes).await, shutdown)
    };
    let stop = async |handle: Handle, shutdown: CancellationToken| {
        shutdown.cancel();
        tokio::time::timeout(DEADLINE, handle.join()).await.expect("it stops").unwrap();
    };
    let locals = |ranges: &[ozone_proto::common::v1::BlockRange]| -> BTreeSet<(u64, u32)> {
        ranges.iter().flat_map(|r| (r.first_local..r.first_local + r.count).map(|local| (r.container, local))).collect()
    };

    let (handle, om, nodes, shutdown) = start(&first).await;
    let _beating = beating(&nodes);
    let mut given = BTreeSet::new();
    for _ in 0..20 {
        given.extend(locals(&om.allocate(10).await.unwrap()));
    }
    assert_eq!(given.len(), 200);
    let (container, local) = *given.first().unwrap();
    let epoch = om.report_failed(container, 1, &[2]).await.unwrap().epoch;
    om.delete(1, container, local, 1).await.unwrap();
    RealDisk.copy_folder(&first, &killed).unwrap();
    stop(handle, shutdown).await;

    for folder in [&first, &killed] {
        let (handle, om, mut nodes, shutdown) = start(folder).await;
        let _beating = beating(&nodes);
        let found = om.container(container).await;
        assert_eq!((found.epoch, found.members.len()), (epoch, 2), "{}", folder.display());
        // Every container known must be reported before safe mode ends.
        for node in &mut nodes {
            for id in given.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>() {
                node.report(id, ReplicaState::Open, 5).await;
            }
        }
        let mut again = None;
        until("blocks are handed out", || async { om.allocate(10).await.is_ok() }).await;
        for _ in 0..5 {
            let more = locals(&om.allocate(10).await.unwrap());
            assert!(more.is_disjoint(&given), "no block is handed out twice");
            again = again.max(more.last().copied());
        }
        assert!(again.is_some());
        stop(handle, shutdown).await;
    }
}
