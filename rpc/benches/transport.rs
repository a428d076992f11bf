//! What a byte and a call cost on loopback: gRPC streams, HTTP/1.1 and our frames side by side, and calls of sessions.
//!
//! `cargo bench -p ozone-rpc` prints one table. CPU is the whole process': both ends, the kernel's share of the loopback
//! included. Both ends compute CRC32C of what they send and receive, as the data path does. Compare within one run only.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use ozone_common::Error;
use ozone_common::checksum::{first_mismatch, windows};
use ozone_common::env::Env;
use ozone_common::id::{ClientId, ClusterId, DatanodeId};
use ozone_common::peer::{ClusterSecret, PeerRole};
use ozone_proto::datanode::v1::{Done, PutSmall, ReadBlock, ReadData, Request, Response, request, response};
use ozone_proto::rpc::v1::sessions_client::SessionsClient;
use ozone_proto::rpc::v1::sessions_server::{Sessions, SessionsServer};
use ozone_proto::rpc::v1::{Call, CallBatch, Reply, ReplyBatch, reply};
use ozone_rpc::data::{
    DataClient, DataHandler, DataOptions, DataServerConfig, Lane, PeerInfo, Responder, Target, serve,
};
use ozone_rpc::session::{
    CallHandler, CallOptions, Identity, IncomingCall, SessionClient, SessionConfig, SessionOptions, service,
};
use ozone_rpc::{channel, listener};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const MIB: usize = 1 << 20;
const BULK: usize = 1024;
const SMALL: usize = 40_000;
const IN_FLIGHT: usize = 16;

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Cost {
    cpu: Duration,
    wall: Duration,
}

async fn measure(work: impl Future<Output = ()>) -> Cost {
    let (wall, before) = (Instant::now(), cpu());
    work.await;
    Cost { cpu: cpu() - before, wall: wall.elapsed() }
}

fn bulk_line(what: &str, cost: &Cost) {
    let bytes = (BULK * MIB) as f64;
    println!(
        "{what:44} {:7.3} ns/B   {:5.2} GiB/s",
        cost.cpu.as_nanos() as f64 / bytes,
        bytes / (1 << 30) as f64 / cost.wall.as_secs_f64()
    );
}

fn call_line(what: &str, cost: &Cost) {
    println!(
        "{what:44} {:7.2} us/call {:7.0} calls/s",
        cost.cpu.as_micros() as f64 / SMALL as f64,
        SMALL as f64 / cost.wall.as_secs_f64()
    );
}

/// Runs `count` of `call`, `IN_FLIGHT` at a time.
async fn windowed<F: Future<Output = ()>>(count: usize, in_flight: usize, call: impl Fn() -> F) {
    futures::stream::iter(0..count).map(|_| call()).buffer_unordered(in_flight).for_each(|()| async {}).await;
}

// ---- our frames

struct Node {
    chunk: Bytes,
    crcs: Vec<u32>,
}

fn done() -> Response {
    Response { error: None, op: Some(response::Op::Done(Done {})) }
}

impl DataHandler for Node {
    type Connection = ();
    fn open(&self, _peer: PeerInfo) {}
    fn handle(&self, _connection: &mut (), request: Request, payload: Bytes, reply: Responder) {
        match request.op {
            Some(request::Op::PutSmall(put)) => {
                assert!(first_mismatch(&payload, &put.crcs).is_none());
                reply.finish(&done(), Bytes::new());
            }
            _ => {
                let data = ReadData { offset: 0, crcs: self.crcs.clone(), last: true };
                reply.finish(&Response { error: None, op: Some(response::Op::ReadData(data)) }, self.chunk.clone());
            }
        }
    }
    fn close(&self, (): ()) {}
}

async fn frames(chunk: &Bytes, small: &Bytes) {
    let (cluster, datanode) = (ClusterId::from_bytes([1; 16]), DatanodeId::from_bytes([2; 16]));
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target { datanode, host: "127.0.0.1".into(), port: socket.local_addr().unwrap().port() };
    let node = Arc::new(Node { chunk: chunk.clone(), crcs: windows(chunk) });
    let shutdown = CancellationToken::new();
    tokio::spawn(serve(socket, DataServerConfig::new(cluster, datanode), node, shutdown.clone()));
    let client = DataClient::new(Some(cluster), ClientId::from_bytes([3; 16]), DataOptions::default());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(600);
    let put = |payload: &Bytes| {
        let (client, target, payload) = (&client, &target, payload.clone());
        async move {
            let put = PutSmall { block: 1, crcs: windows(&payload), ..PutSmall::default() };
            let request = Request { request_id: "r".into(), op: Some(request::Op::PutSmall(put)) };
            client.call(target, Lane::Bulk, &request, payload, deadline).await.unwrap();
        }
    };
    windowed(64, 4, || put(chunk)).await;
    bulk_line("frames, write 1 MiB", &measure(windowed(BULK, 4, || put(chunk))).await);
    let read = || async {
        let read = ReadBlock { block: 1, length: MIB as u64, ..ReadBlock::default() };
        let request = Request { request_id: "r".into(), op: Some(request::Op::ReadBlock(read)) };
        let (response, payload) = client.call(&target, Lane::Bulk, &request, Bytes::new(), deadline).await.unwrap();
        let Some(response::Op::ReadData(data)) = response.op else { panic!("{response:?}") };
        assert!(first_mismatch(&payload, &data.crcs).is_none());
    };
    bulk_line("frames, read 1 MiB", &measure(windowed(BULK, 4, read)).await);
    call_line("frames, put 4 KiB, 16 in flight", &measure(windowed(SMALL, IN_FLIGHT, || put(small))).await);
    shutdown.cancel();
}

// ---- gRPC streams

struct Grpc {
    chunk: Bytes,
}

#[tonic::async_trait]
impl Sessions for Grpc {
    type OpenStream = Pin<Box<dyn Stream<Item = Result<ReplyBatch, tonic::Status>> + Send>>;
    async fn open(
        &self,
        request: tonic::Request<tonic::Streaming<CallBatch>>,
    ) -> Result<tonic::Response<Self::OpenStream>, tonic::Status> {
        let chunk = self.chunk.clone();
        let replies = request.into_inner().map(move |batch| {
            let replies = batch?.calls.into_iter().map(|call| {
                let crcs = windows(&call.request);
                assert_eq!(crcs.len(), call.request.len().div_ceil(16 << 10));
                let response = if call.request.is_empty() { chunk.clone() } else { Bytes::new() };
                Reply { sequence: call.sequence, outcome: Some(reply::Outcome::Response(response)) }
            });
            Ok(ReplyBatch { hello: None, replies: replies.collect() })
        });
        Ok(tonic::Response::new(Box::pin(replies)))
    }
}

async fn grpc(chunk: &Bytes, small: &Bytes) {
    let socket = listener::bind("127.0.0.1:0", false).await.unwrap();
    let address = listener::local_address(&socket).unwrap().to_string();
    let server = SessionsServer::new(Grpc { chunk: chunk.clone() }).max_decoding_message_size(16 * MIB);
    let shutdown = CancellationToken::new();
    tokio::spawn(listener::serve(socket, channel::server().add_service(server), shutdown.clone()));
    let run = async |payload: Bytes, count: usize, in_flight: usize| {
        let channel = channel::connect(&address, Duration::from_secs(5)).await.unwrap();
        let (sender, receiver) = tokio::sync::mpsc::channel::<CallBatch>(in_flight);
        let calls = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let mut client = SessionsClient::new(channel).max_decoding_message_size(16 * MIB);
        let mut replies = client.open(calls).await.unwrap().into_inner();
        let (mut sent, mut answered) = (0, 0);
        measure(async {
            while answered < count {
                while sent < count && sent - answered < in_flight {
                    std::hint::black_box(windows(&payload));
                    let call = Call { sequence: sent as u64, request: payload.clone(), ..Call::default() };
                    let batch = CallBatch { hello: None, lowest_unanswered: 0, calls: vec![call] };
                    sender.send(batch).await.unwrap();
                    sent += 1;
                }
                for reply in replies.message().await.unwrap().unwrap().replies {
                    if let Some(reply::Outcome::Response(response)) = reply.outcome {
                        std::hint::black_box(windows(&response));
                    }
                    answered += 1;
                }
            }
        })
        .await
    };
    run(chunk.clone(), 64, 4).await;
    bulk_line("gRPC stream, 1 MiB frames, write 1 MiB", &run(chunk.clone(), BULK, 4).await);
    bulk_line("gRPC stream, 1 MiB frames, read 1 MiB", &run(Bytes::new(), BULK, 4).await);
    call_line("gRPC stream, put 4 KiB, 16 in flight", &run(small.clone(), SMALL, IN_FLIGHT).await);
    shutdown.cancel();
}

// ---- HTTP/1.1

async fn http1(chunk: &Bytes, small: &Bytes) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let answer = chunk.clone();
    let accepting = tokio::spawn(async move {
        loop {
            let (socket, _) = socket.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            let answer = answer.clone();
            let serve = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let answer = answer.clone();
                async move {
                    let read = request.method() == http::Method::GET;
                    let mut body = request.into_body();
                    while let Some(frame) = body.frame().await {
                        std::hint::black_box(windows(frame.unwrap().data_ref().unwrap()));
                    }
                    let body = if read { answer } else { Bytes::new() };
                    Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(body)))
                }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), serve));
        }
    });
    let run = async |payload: Bytes, read: bool, count: usize, connections: usize| {
        let one = async |count: usize| {
            let socket = TcpStream::connect(address).await.unwrap();
            socket.set_nodelay(true).unwrap();
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
            tokio::spawn(connection);
            for _ in 0..count {
                std::hint::black_box(windows(&payload));
                let method = if read { http::Method::GET } else { http::Method::PUT };
                let request = http::Request::builder().method(method).uri("/b").header("host", "a");
                let request = request.body(Full::new(payload.clone())).unwrap();
                sender.ready().await.unwrap();
                let mut body = sender.send_request(request).await.unwrap().into_body();
                while let Some(frame) = body.frame().await {
                    std::hint::black_box(windows(frame.unwrap().data_ref().unwrap()));
                }
            }
        };
        measure(async {
            futures::future::join_all((0..connections).map(|_| one(count / connections))).await;
        })
        .await
    };
    run(chunk.clone(), false, 64, 4).await;
    bulk_line("HTTP/1.1, write 1 MiB, 4 connections", &run(chunk.clone(), false, BULK, 4).await);
    bulk_line("HTTP/1.1, read 1 MiB, 4 connections", &run(Bytes::new(), true, BULK, 4).await);
    call_line("HTTP/1.1, put 4 KiB, 16 connections", &run(small.clone(), false, SMALL, IN_FLIGHT).await);
    accepting.abort();
}

// ---- sessions

struct Echo;

impl CallHandler for Echo {
    fn call(&self, call: IncomingCall) -> BoxFuture<'_, Result<Bytes, Error>> {
        Box::pin(async move { Ok(call.request) })
    }
}

async fn sessions() {
    let secret = ClusterSecret::new(ClusterId::from_bytes([1; 16]), [7; 32]);
    let shutdown = CancellationToken::new();
    let config = SessionConfig::new("om.Sessions", PeerRole::Om, secret.clone(), Env::system(), shutdown.clone());
    let socket = listener::bind("127.0.0.1:0", false).await.unwrap();
    let address = listener::local_address(&socket).unwrap().to_string();
    let router = channel::server().add_service(service(config, Arc::new(Echo)));
    tokio::spawn(listener::serve(socket, router, shutdown.clone()));
    let identity = Identity::Role(PeerRole::Gateway, secret);
    let session =
        SessionClient::connect("om.Sessions", vec![address], identity, Env::system(), SessionOptions::default())
            .unwrap();
    let options = CallOptions {
        deadline: tokio::time::Instant::now() + Duration::from_secs(600),
        request_id: "0123456789abcdef".into(),
        user: Some("ann".into()),
    };
    let request = Bytes::from(vec![1; 200]);
    for callers in [1, 16, 64] {
        let run = async |count: usize| {
            let tasks = (0..callers).map(|_| {
                let (session, options, request) = (session.clone(), options.clone(), request.clone());
                tokio::spawn(async move {
                    for _ in 0..count / callers {
                        session.call(request.clone(), &options).await.unwrap();
                    }
                })
            });
            futures::future::join_all(tasks).await;
        };
        run(2000).await;
        call_line(&format!("session call, 200 B, {callers} callers"), &measure(run(SMALL)).await);
    }
    shutdown.cancel();
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let chunk = Bytes::from((0..MIB).map(|i| (i * 31) as u8).collect::<Vec<_>>());
    let small = chunk.slice(..4096);
    for round in 1..=2 {
        println!("round {round}");
        runtime.block_on(frames(&chunk, &small));
        runtime.block_on(grpc(&chunk, &small));
        runtime.block_on(http1(&chunk, &small));
        runtime.block_on(sessions());
    }
}
