//! Arbitrary bytes as calls and as datanodes' reports: all are answered or passed over, and the tables stay whole.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::env::Env;
use ozone_common::id::{BlockId, ClientId, ClusterId, ContainerId, DatanodeId};
use ozone_common::peer::PeerRole;
use ozone_proto::common::v1::NodeAddress;
use ozone_proto::scm::v1::{self as wire, NodeReport, ScmRequest, ScmResponse, scm_request::Op};
use ozone_rpc::session::{IncomingCall, Peer};
use prost::Message;
use tokio::time::Instant;

use super::calls::Calls;
use crate::config::Config;
use crate::core::Command;
use crate::core::invariants;
use crate::log::Wakeups;
use crate::log_test::LocalLog;
use crate::scm::Scm;
use crate::tables::node::Node;

const MIB: u64 = 1 << 20;

fn datanode(number: u8) -> DatanodeId {
    DatanodeId::from_bytes([number; 16])
}

fn volume(capacity: u64) -> wire::DiskVolumeReport {
    wire::DiskVolumeReport { volume: vec![1; 16].into(), capacity, available: capacity, ..Default::default() }
}

/// An SCM with three registered datanodes, their streams, and an open container.
async fn scm() -> (Arc<Scm>, Vec<(DatanodeId, u64)>) {
    let wakeups = Arc::new(Wakeups::default());
    let log = Arc::new(LocalLog::new(wakeups.clone()));
    let config = Config { degraded_after: ozone_common::config::TimeSpan::millis(0), ..Config::default() };
    let scm = Scm::new(config, ClusterId::from_bytes([7; 16]), Env::system(), log, wakeups).unwrap();
    let mut streams = Vec::new();
    for number in 1..=3 {
        let node = Node {
            id: datanode(number),
            host: "127.0.0.1".into(),
            data_port: 9859,
            http_port: 9882,
            incarnation: [number; 16],
            version: "1".into(),
            registered_ms: 0,
        };
        scm.log.propose(None, Command::RegisterNode { node }).await.unwrap();
        let now = scm.env.clock.boot();
        let stream = scm.seen.lock().nodes.register(datanode(number), [number; 16], now, Duration::ZERO).unwrap();
        let first = NodeReport { full: true, volumes: vec![volume(1 << 40)], ..Default::default() };
        assert!(scm.take_report(datanode(number), stream, first));
        streams.push((datanode(number), stream));
    }
    call(&scm, &encode(samples().remove(0))).await;
    (scm, streams)
}

/// One of each operation.
fn samples() -> Vec<Op> {
    let deletes = wire::ContainerBlocks { container: 1, ranges: vec![wire::LocalRange { first: 0, count: 2 }] };
    vec![
        Op::AllocateBlocks(wire::AllocateBlocks {
            replication: "RATIS/THREE".into(),
            count: 10,
            max_block_length: MIB,
            reserve_bytes: 10 * MIB,
            ..Default::default()
        }),
        Op::GetContainers(wire::GetContainers { containers: vec![1, 2] }),
        Op::ReportFailedReplicas(wire::ReportFailedReplicas {
            container: 1,
            epoch: 1,
            failed: vec![Bytes::copy_from_slice(datanode(2).as_bytes())],
            reason: "timed out".into(),
        }),
        Op::QueueDeletes(wire::QueueDeletes { om_sequence: 1, containers: vec![deletes] }),
        Op::SafeModeStatus(wire::SafeModeStatus {}),
        Op::ListNodes(wire::ListNodes {}),
        Op::ListContainers(wire::ListContainers { after: 0, limit: 10, state: "OPEN".into() }),
        Op::Status(wire::Status {}),
    ]
}

fn encode(op: Op) -> Vec<u8> {
    ScmRequest { op: Some(op) }.encode_to_vec()
}

/// A full and an incremental report.
fn reports() -> Vec<NodeReport> {
    let replica = |container, state| wire::ContainerReplicaReport {
        container,
        state,
        epoch: 1,
        used: MIB,
        blocks: 3,
        delete_sequence: 1,
        digest: vec![9; 32].into(),
    };
    let register = wire::Register {
        cluster: vec![7; 16].into(),
        address: Some(NodeAddress { datanode: vec![1; 16].into(), host: "127.0.0.1".into(), data_port: 9859 }),
        http_port: 9882,
        time_ms: 1,
        nonce: vec![1; 16].into(),
        mac: vec![1; 32].into(),
        version: "1".into(),
        incarnation: vec![1; 16].into(),
    };
    let states = [wire::ReplicaState::Open, wire::ReplicaState::Closed, wire::ReplicaState::Unhealthy];
    let replicas = states.into_iter().zip(1..).map(|(state, id)| replica(id, state as i32));
    vec![
        NodeReport {
            register: Some(register),
            sequence: 1,
            volumes: vec![volume(1 << 40)],
            containers: replicas.collect(),
            full: true,
            ..Default::default()
        },
        NodeReport {
            sequence: 2,
            volumes: vec![volume(1 << 40)],
            containers: vec![replica(1, wire::ReplicaState::Deleted as i32)],
            delete_transactions_done: vec![1, 2],
            corrupt: vec![wire::CorruptBlock { block: BlockId::new(1 << 24).unwrap().get(), what: "crc".into() }],
            ..Default::default()
        },
    ]
}

/// Which operation answered how.
async fn call(scm: &Arc<Scm>, bytes: &[u8]) -> (Option<std::mem::Discriminant<Op>>, u64) {
    let op = ScmRequest::decode(bytes).ok().and_then(|request| request.op);
    let peer = Peer {
        role: PeerRole::Om,
        client: ClientId::from_bytes([9; 16]),
        proven: true,
        user: String::new(),
        address: None,
    };
    let sequence = scm.env.rng.next_u64();
    let call = IncomingCall {
        peer: peer.into(),
        sequence,
        lowest_unanswered: 0,
        deadline: Instant::now() + Duration::from_secs(10),
        request_id: "fuzz".into(),
        user: String::new(),
        request: Bytes::copy_from_slice(bytes),
    };
    let answered = match Calls(scm.clone()).serve(call).await {
        Ok(reply) => ScmResponse::decode(reply).expect("an answer decodes").encoded_len() as u64 & 0xf,
        Err(error) => 1 << 32 | error.code as u64,
    };
    (op.as_ref().map(std::mem::discriminant), answered)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

const REQUESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/request");
const REPORTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/report");

#[test]
fn whatever_is_called_is_answered_and_the_tables_stay_whole() {
    let runtime = runtime();
    let (scm, _) = runtime.block_on(scm());
    let dictionary: [&[u8]; 4] = [b"RATIS/ONE", b"OPEN", &[1; 16], &[0x08, 0x01]];
    ozone_fuzz::fuzz(REQUESTS, &dictionary, |bytes| runtime.block_on(call(&scm, bytes)));
    assert_eq!(invariants::check_state(scm.log.store()).unwrap(), []);
}

#[test]
fn whatever_a_datanode_reports_is_taken_or_passed_over() {
    let runtime = runtime();
    let (scm, streams) = runtime.block_on(scm());
    ozone_fuzz::fuzz(REPORTS, &[&[1; 16]], |bytes| {
        let report = NodeReport::decode(bytes).ok()?;
        let shape =
            (report.full, report.containers.len().min(4), report.corrupt.len().min(4), report.volumes.len().min(4));
        for (node, stream) in &streams {
            assert!(scm.take_report(*node, *stream, report.clone()), "its stream is open");
        }
        let known = scm.seen.lock().replicas.get(ContainerId::new(1)?).count();
        Some((shape, known))
    });
    // What was reported is shown, whatever it was.
    runtime.block_on(async {
        for op in samples() {
            call(&scm, &encode(op)).await;
        }
    });
}

#[test]
fn the_corpora_have_each_operation_and_report() {
    let lacking = |folder: &str, inputs: Vec<Vec<u8>>| {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
        let kept: Vec<Vec<u8>> = files.collect();
        inputs.into_iter().filter(|input| !kept.contains(input)).collect::<Vec<_>>()
    };
    assert_eq!(lacking(REQUESTS, samples().into_iter().map(encode).collect()), Vec::<Vec<u8>>::new());
    assert_eq!(lacking(REPORTS, reports().iter().map(Message::encode_to_vec).collect()), Vec::<Vec<u8>>::new());
}
