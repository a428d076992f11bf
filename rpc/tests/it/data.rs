//! The block transport between a real client and a scripted datanode.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ozone_common::id::{ClientId, ClusterId, DatanodeId};
use ozone_common::{Error, ErrorCode};
use ozone_proto::datanode::v1::{
    Done, FinishBlock, PutSmall, ReadBlock, ReadData, Request, Response, request, response,
};
use ozone_rpc::data::{
    DataClient, DataHandler, DataOptions, DataServerConfig, Lane, PeerInfo, Responder, Target, serve,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const PIECE: usize = 100_000;

/// Answers a put with its payload, a read with pieces of its offset's byte; what else it does, the block id says.
#[derive(Default)]
struct Script {
    held: Mutex<Vec<Responder>>,
    opened: AtomicUsize,
    closed: AtomicUsize,
    handled_bytes: AtomicUsize,
}

const HOLD: u64 = 1;
const FROM_THREAD: u64 = 2;
const DROP: u64 = 3;
const REFUSE: u64 = 4;
const TOO_MUCH: u64 = 5;

fn done() -> Response {
    Response { error: None, op: Some(response::Op::Done(Done {})) }
}

impl DataHandler for Script {
    type Connection = u64;

    fn open(&self, peer: PeerInfo) -> u64 {
        self.opened.fetch_add(1, Ordering::SeqCst);
        peer.connection
    }

    fn handle(&self, connection: &mut u64, request: Request, payload: Bytes, mut reply: Responder) {
        assert!(*connection > 0);
        self.handled_bytes.fetch_add(payload.len(), Ordering::SeqCst);
        match request.op {
            Some(request::Op::PutSmall(put)) => match put.block {
                HOLD => self.held.lock().push(reply),
                FROM_THREAD => drop(std::thread::spawn(move || reply.finish(&done(), payload))),
                DROP => drop(reply),
                REFUSE => reply.fail(Error::new(ErrorCode::DiskFull, "no space")),
                _ => reply.finish(&done(), payload),
            },
            Some(request::Op::ReadBlock(read)) => drop(tokio::spawn(async move {
                let mut offset = read.offset;
                let end = read.offset + read.length + if read.block == TOO_MUCH { 1 } else { 0 };
                while offset < end && !reply.is_closed() {
                    reply.room().await;
                    let length = PIECE.min((end - offset) as usize);
                    let data = ReadData { offset, crcs: Vec::new(), last: offset + length as u64 == end };
                    let response = Response { error: None, op: Some(response::Op::ReadData(data)) };
                    let payload = Bytes::from(vec![read.offset as u8; length]);
                    offset += length as u64;
                    if offset == end {
                        return reply.finish(&response, payload);
                    }
                    reply.send(&response, payload);
                }
            })),
            _ => reply.answer(Ok(done())),
        }
    }

    fn close(&self, _connection: u64) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

struct Node {
    target: Target,
    script: Arc<Script>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

fn cluster() -> ClusterId {
    ClusterId::from_bytes([1; 16])
}

async fn node(change: impl FnOnce(&mut DataServerConfig)) -> Node {
    let datanode = DatanodeId::from_bytes([9; 16]);
    let mut config = DataServerConfig::new(cluster(), datanode);
    change(&mut config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target { datanode, host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
    let (script, shutdown) = (Arc::new(Script::default()), CancellationToken::new());
    let task = tokio::spawn(serve(listener, config, script.clone(), shutdown.clone()));
    Node { target, script, shutdown, task }
}

fn client() -> DataClient {
    DataClient::new(Some(cluster()), ClientId::from_bytes([5; 16]), DataOptions::default())
}

fn put(block: u64) -> Request {
    let put = PutSmall { block, ..PutSmall::default() };
    Request { request_id: "r".to_owned(), op: Some(request::Op::PutSmall(put)) }
}

fn read(block: u64, offset: u64, length: u64) -> Request {
    let read = ReadBlock { block, offset, length, ..ReadBlock::default() };
    Request { request_id: "r".to_owned(), op: Some(request::Op::ReadBlock(read)) }
}

fn soon(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = soon(5_000);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_of_all_sizes_share_a_connection() {
    let (node, client) = (node(|_| {}).await, client());
    let calls = (0..600_usize).map(|i| {
        let (client, target) = (client.clone(), node.target.clone());
        async move {
            let size = [0, 100, 4096, 20_000, 70_000, 1 << 20][i % 6] + i;
            let payload = Bytes::from(vec![i as u8; size]);
            let block = if i % 5 == 0 { FROM_THREAD } else { 100 };
            let (answer, back) =
                client.call(&target, Lane::Small, &put(block), payload.clone(), soon(20_000)).await.unwrap();
            assert_eq!(answer, done());
            assert!(back == payload, "call {i} got another's answer");
        }
    });
    futures::future::join_all(calls).await;
    assert_eq!(node.script.opened.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_come_in_order_and_bound_the_server() {
    let (node, client) = (node(|config| config.queued_bytes_max = 300_000).await, client());
    let connection = client.connection(&node.target, Lane::Bulk, soon(5_000)).await.unwrap();
    let streams = (0..8_u64).map(|i| {
        let connection = connection.clone();
        async move {
            let length = 3_000_000 + i as usize;
            let mut stream =
                connection.stream(&read(7, i, length as u64), Bytes::new(), length, soon(20_000)).await.unwrap();
            let (mut at, mut total) = (i, 0);
            while let Some((response, payload)) = stream.next().await.unwrap() {
                let Some(response::Op::ReadData(data)) = response.op else { panic!("{response:?}") };
                assert_eq!(data.offset, at);
                assert!(payload.iter().all(|byte| *byte == i as u8));
                at += payload.len() as u64;
                total += payload.len();
            }
            assert_eq!(total, length);
            assert!(stream.next().await.unwrap().is_none());
        }
    });
    futures::future::join_all(streams).await;
    // A reader that goes away in the middle harms nobody.
    let mut stream = connection.stream(&read(7, 0, 3_000_000), Bytes::new(), 3_000_000, soon(5_000)).await.unwrap();
    stream.next().await.unwrap();
    drop(stream);
    connection.call(&put(100), Bytes::new(), soon(5_000)).await.unwrap();
}

#[tokio::test]
async fn errors_reach_their_call_alone() {
    let (node, client) = (node(|_| {}).await, client());
    let call = async |block| {
        let outcome = client.call(&node.target, Lane::Small, &put(block), Bytes::new(), soon(2_000)).await;
        outcome.map(|_| ()).map_err(|error| error.code)
    };
    assert_eq!(call(REFUSE).await, Err(ErrorCode::DiskFull));
    assert_eq!(call(DROP).await, Err(ErrorCode::Internal));
    assert_eq!(call(100).await, Ok(()));
    let connection = client.connection(&node.target, Lane::Small, soon(1_000)).await.unwrap();
    let mut stream = connection.stream(&read(TOO_MUCH, 0, 10), Bytes::new(), 10, soon(2_000)).await.unwrap();
    assert_eq!(stream.next().await.unwrap_err().code, ErrorCode::Unavailable, "more bytes than were asked for");
    assert!(connection.is_closed());
    assert_eq!(call(100).await, Ok(()), "on a new connection");
    assert_eq!(node.script.opened.load(Ordering::SeqCst), 2);
    until("the server notices", || node.script.closed.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn a_silent_connection_is_given_up_at_the_deadline() {
    let (node, client) = (node(|_| {}).await, client());
    let connection = client.connection(&node.target, Lane::Small, soon(1_000)).await.unwrap();
    let error = connection.call(&put(HOLD), Bytes::new(), soon(100)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::DeadlineExceeded);
    assert!(connection.is_closed(), "nothing at all came");

    let connection = client.connection(&node.target, Lane::Small, soon(1_000)).await.unwrap();
    let (hold, others) = (put(HOLD), put(100));
    let (held, _) = tokio::join!(connection.call(&hold, Bytes::new(), soon(200)), async {
        for _ in 0..20 {
            connection.call(&others, Bytes::new(), soon(1_000)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert_eq!(held.unwrap_err().code, ErrorCode::DeadlineExceeded);
    assert!(!connection.is_closed(), "it answers other calls");
}

#[tokio::test]
async fn the_server_stops_reading_at_its_bound() {
    let (node, client) = (node(|config| config.handling_bytes_max = 1 << 20).await, client());
    let payload = Bytes::from(vec![1; 100_000]);
    let calls: Vec<_> = (0..40)
        .map(|_| {
            let (client, target, payload) = (client.clone(), node.target.clone(), payload.clone());
            tokio::spawn(async move { client.call(&target, Lane::Bulk, &put(HOLD), payload, soon(10_000)).await })
        })
        .collect();
    until("requests arrive", || node.script.held.lock().len() >= 10).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(node.script.held.lock().len(), 11, "one goes over the bound, no more are read");
    let mut answered = 0;
    while answered < 40 {
        let held = std::mem::take(&mut *node.script.held.lock());
        answered += held.len();
        std::thread::spawn(move || held.into_iter().for_each(|reply| reply.finish(&done(), Bytes::new())));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn credit_bounds_what_is_in_flight() {
    let node = node(|_| {}).await;
    let options = DataOptions { credit_bytes: 1_000_000, ..DataOptions::default() };
    let client = DataClient::new(None, ClientId::from_bytes([5; 16]), options);
    let connection = client.connection(&node.target, Lane::Bulk, soon(1_000)).await.unwrap();
    let held = tokio::spawn({
        let connection = connection.clone();
        async move { connection.call(&put(HOLD), vec![0; 900_000].into(), soon(5_000)).await }
    });
    until("the call arrives", || node.script.held.lock().len() == 1).await;
    let error = connection.call(&put(100), vec![0; 200_000].into(), soon(50)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Overloaded);
    let reply = node.script.held.lock().pop().unwrap();
    reply.finish(&done(), Bytes::new());
    held.await.unwrap().unwrap();
    connection.call(&put(100), vec![0; 900_000].into(), soon(5_000)).await.unwrap();
}

#[tokio::test]
async fn only_the_right_datanode_of_the_right_cluster_is_taken() {
    let node = node(|_| {}).await;
    let stranger =
        DataClient::new(Some(ClusterId::from_bytes([2; 16])), ClientId::from_bytes([5; 16]), DataOptions::default());
    let error = stranger.connection(&node.target, Lane::Small, soon(5_000)).await.map(|_| ()).unwrap_err();
    assert!(error.message.contains("belongs to cluster"), "{error}");
    let other = Target { datanode: DatanodeId::from_bytes([8; 16]), ..node.target.clone() };
    let error = client().connection(&other, Lane::Small, soon(5_000)).await.map(|_| ()).unwrap_err();
    assert!(error.message.contains("this is datanode 09090909"), "{error}");
    let nobody = Target { port: 1, ..node.target.clone() };
    let error = client().connection(&nobody, Lane::Small, soon(5_000)).await.map(|_| ()).unwrap_err();
    assert!(error.message.contains("refused") && error.message.contains("127.0.0.1:1"), "{error}");
    assert_eq!(node.script.opened.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn junk_is_hung_up_on() {
    let (node, client) = (node(|_| {}).await, client());
    let mut socket = TcpStream::connect(("127.0.0.1", node.target.port)).await.unwrap();
    socket.write_all(&[b'G'; 100]).await.unwrap();
    let mut rest = Vec::new();
    // Either an orderly end or a reset: the server left bytes unread.
    let _ended =
        tokio::time::timeout(Duration::from_secs(5), socket.read_to_end(&mut rest)).await.expect("it hangs up");
    assert!(rest.is_empty());
    client.call(&node.target, Lane::Small, &put(100), Bytes::new(), soon(5_000)).await.unwrap();
}

#[tokio::test]
async fn shutdown_answers_what_is_being_handled() {
    let (node, client) = (node(|_| {}).await, client());
    let call = tokio::spawn({
        let (client, target) = (client.clone(), node.target.clone());
        async move { client.call(&target, Lane::Small, &put(HOLD), Bytes::new(), soon(5_000)).await }
    });
    until("the call arrives", || node.script.held.lock().len() == 1).await;
    node.shutdown.cancel();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let reply = node.script.held.lock().pop().unwrap();
    reply.finish(&done(), Bytes::new());
    call.await.unwrap().unwrap();
    tokio::time::timeout(Duration::from_secs(2), node.task).await.expect("it stops").unwrap();
    assert_eq!(node.script.closed.load(Ordering::SeqCst), 1);
    let finish = FinishBlock { block: 1, length: 0 };
    let request = Request { request_id: String::new(), op: Some(request::Op::FinishBlock(finish)) };
    let error = client.call(&node.target, Lane::Small, &request, Bytes::new(), soon(500)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
}

#[tokio::test]
async fn dropping_the_pool_closes_its_connections() {
    let (node, client) = (node(|_| {}).await, client());
    client.call(&node.target, Lane::Small, &put(100), Bytes::new(), soon(5_000)).await.unwrap();
    drop(client);
    until("the server sees it", || node.script.closed.load(Ordering::SeqCst) == 1).await;
}
