//! What requests cost a datanode process: CPU of the process and of each of its threads, and rates.
//!
//! `cargo bench -p ozone-datanode` prints one table. The datanode is a process of its own on a fresh folder (`OZONE_BENCH_DIR`, or the
//! system's temporary one), durable settings on; this process is its only client. Both ends compute CRC32C, as the data path does.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use ozone_common::checksum::{first_mismatch, windows};
use ozone_common::env::Env;
use ozone_common::id::{BlockId, ClientId, ClusterId, ContainerId, DatanodeId};
use ozone_common::peer::ClusterSecret;
use ozone_common::token::{Claims, Operations};
use ozone_datanode::Config;
use ozone_proto::common::v1::{Durability, Token};
use ozone_proto::datanode::v1::{FinishBlock, OpenBlock, PutSmall, ReadBlock, Request, WriteChunk, request, response};
use ozone_rpc::data::{DataClient, DataOptions, Lane, Target};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SMALL: usize = 4 << 10;
const SMALL_COUNT: usize = 40_000;
const CHUNK: usize = 1 << 20;
const LARGE: usize = 16 << 20;
const LARGE_COUNT: usize = 32;

fn secret() -> ClusterSecret {
    ClusterSecret::new(ClusterId::from_bytes([7; 16]), [1; 32])
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    match std::env::var("OZONE_BENCH_SERVE") {
        Ok(folder) => runtime.block_on(serve(Path::new(&folder))),
        Err(_) => runtime.block_on(load()),
    }
}

/// The datanode's process: tells who it is and where, and ends with its input.
async fn serve(folder: &Path) {
    let config = Config {
        data_bind: "127.0.0.1:0".into(),
        http_bind: "127.0.0.1:0".into(),
        data: folder.join("dn"),
        scm_addresses: vec!["127.0.0.1:1".into()],
        ..Config::default()
    };
    let shutdown = CancellationToken::new();
    let handle = ozone_datanode::start(config, secret(), Env::system(), shutdown.clone()).await.expect("it starts");
    println!("{} {}", handle.id(), handle.data_address().port());
    std::io::stdout().flush().expect("the parent listens");
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    ended.await.expect("it waits").expect("the input ends");
    shutdown.cancel();
    handle.join().await.expect("it closes");
}

struct Node {
    process: Child,
    client: DataClient,
    target: Target,
}

fn start(folder: &Path) -> Node {
    let mut process = Command::new(std::env::current_exe().expect("a program knows itself"))
        .env("OZONE_BENCH_SERVE", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut line).expect("it tells where it is");
    let (id, port) = line.trim().split_once(' ').expect("an id and a port");
    let datanode: DatanodeId = id.parse().expect("an id");
    let target = Target { datanode, host: "127.0.0.1".into(), port: port.parse().expect("a port") };
    let client = DataClient::new(Some(secret().cluster), ClientId::from_bytes([3; 16]), DataOptions::default());
    Node { process, client, target }
}

/// CPU ticks (10 ms) of each kind of thread of a process.
fn threads(process: u32) -> BTreeMap<String, u64> {
    let mut ticks = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten() {
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
        let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else { continue };
        let name = stat[open + 1..close].trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').to_owned();
        let fields: Vec<&str> = stat[close + 2..].split(' ').collect();
        let used: u64 = fields[11..13].iter().filter_map(|field| field.parse::<u64>().ok()).sum();
        *ticks.entry(name).or_default() += used;
    }
    ticks
}

/// Runs `work` and prints what it cost per unit: `count` calls, or bytes as GiB.
async fn measure(node: &Node, what: &str, count: f64, unit: &str, work: impl Future<Output = ()>) {
    let before = threads(node.process.id());
    let wall = Instant::now();
    work.await;
    let wall = wall.elapsed();
    let mut total = 0;
    let mut parts = Vec::new();
    for (name, ticks) in threads(node.process.id()) {
        let used = ticks - before.get(&name).copied().unwrap_or(0);
        total += used;
        if used > 0 {
            parts.push(format!("{name} {:.3}", used as f64 * 10_000.0 / count));
        }
    }
    let cpu = total as f64 * 10_000.0 / count;
    println!("{what:34} {cpu:10.2} us/{unit} {:10.0} {unit}/s   [{}]", count / wall.as_secs_f64(), parts.join(", "));
}

fn sign(operations: Operations, container: ContainerId) -> Option<Token> {
    let claims = Claims {
        operations,
        container,
        first_local: 0,
        count: 1 << 24,
        epoch: 1,
        expires_ms: Env::system().clock.now_ms() + 3_600_000,
        max_length: 256 << 20,
    };
    Some(Token::from_claims(&claims, &secret().token_key().sign(&claims)))
}

async fn windowed<F: Future<Output = ()>>(count: usize, in_flight: usize, call: impl Fn(usize) -> F) {
    futures::stream::iter(0..count).map(call).buffer_unordered(in_flight).for_each(|()| async {}).await;
}

fn request(op: request::Op) -> Request {
    Request { request_id: "0123456789abcdef".into(), op: Some(op) }
}

fn deadline() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(120)
}

impl Node {
    async fn put(&self, block: BlockId, durability: Durability, token: Option<Token>, payload: &Bytes) {
        let put = PutSmall {
            block: block.get(),
            epoch: 1,
            token,
            durability: durability as i32,
            crcs: windows(payload),
            members: vec![Bytes::copy_from_slice(self.target.datanode.as_bytes()); 3],
        };
        let request = request(request::Op::PutSmall(put));
        self.client.call(&self.target, Lane::Small, &request, payload.clone(), deadline()).await.expect("it is stored");
    }

    async fn read(&self, block: BlockId, block_length: usize, token: Option<Token>) {
        let read = ReadBlock {
            block: block.get(),
            epoch: 1,
            block_length: block_length as u64,
            offset: 0,
            length: block_length as u64,
            token,
        };
        let lane = if block_length > SMALL { Lane::Bulk } else { Lane::Small };
        let connection = self.client.connection(&self.target, lane, deadline()).await.expect("it listens");
        let room = block_length + (64 << 10);
        let request = request(request::Op::ReadBlock(read));
        let mut stream = connection.stream(&request, Bytes::new(), room, deadline()).await.expect("there is credit");
        let mut found = 0;
        while let Some((response, payload)) = stream.next().await.expect("it is read") {
            let Some(response::Op::ReadData(data)) = response.op else { panic!("another answer") };
            assert!(first_mismatch(&payload, &data.crcs).is_none());
            found += payload.len();
        }
        assert_eq!(found, block_length);
    }

    async fn write(&self, block: BlockId, token: Option<Token>, chunk: &Bytes, crcs: &[u32]) {
        let connection = self.client.connection(&self.target, Lane::Bulk, deadline()).await.expect("it listens");
        let call = async |op, payload| connection.call(&request(op), payload, deadline()).await.expect("it is taken");
        let members = vec![Bytes::copy_from_slice(self.target.datanode.as_bytes()); 3];
        let open = OpenBlock { block: block.get(), epoch: 1, token, durability: Durability::Disk as i32, members };
        call(request::Op::OpenBlock(open), Bytes::new()).await;
        for offset in (0..LARGE).step_by(CHUNK) {
            let chunk_of = WriteChunk { block: block.get(), offset: offset as u64, crcs: crcs.to_vec() };
            call(request::Op::WriteChunk(chunk_of), chunk.clone()).await;
        }
        call(request::Op::FinishBlock(FinishBlock { block: block.get(), length: LARGE as u64 }), Bytes::new()).await;
    }
}

async fn load() {
    let base = std::env::var_os("OZONE_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let folder = tempfile::tempdir_in(base).expect("a folder");
    let mut started = start(folder.path());
    let input = started.process.stdin.take();
    let node = &started;
    let payload = &Bytes::from((0..SMALL).map(|i| (i * 7) as u8).collect::<Vec<_>>());
    let container = |n: u64| ContainerId::new(n).expect("a container id");
    let next = &AtomicU32::new(1);
    let calls = SMALL_COUNT as f64;
    for (n, in_flight, durability) in
        [(1, 1, Durability::Disk), (2, 16, Durability::Disk), (3, 64, Durability::Disk), (4, 64, Durability::Memory)]
    {
        let token = &sign(Operations::WRITE, container(n));
        let put = |_| async move {
            let block = container(n).block(next.fetch_add(1, Ordering::Relaxed)).expect("a block id");
            node.put(block, durability, token.clone(), payload).await;
        };
        let count = if in_flight == 1 { SMALL_COUNT / 8 } else { SMALL_COUNT };
        let what = format!("PutSmall 4 KiB, {in_flight} at a time, {durability:?}");
        measure(node, &what, count as f64, "call", windowed(count, in_flight, put)).await;
    }
    let first = SMALL_COUNT as u32 / 8 + 1;
    for in_flight in [1, 16, 64] {
        let token = &sign(Operations::READ, container(2));
        let read = |n| async move {
            // Scattered, as readers are.
            let local = first + (n as u32).wrapping_mul(7919) % SMALL_COUNT as u32;
            node.read(container(2).block(local).expect("a block id"), SMALL, token.clone()).await;
        };
        let what = format!("ReadBlock 4 KiB, {in_flight} at a time");
        measure(node, &what, calls, "call", windowed(SMALL_COUNT, in_flight, read)).await;
    }
    let chunk = &Bytes::from((0..CHUNK).map(|i| (i * 13) as u8).collect::<Vec<_>>());
    let crcs = &windows(chunk);
    let large = container(9);
    let gibs = (LARGE * LARGE_COUNT) as f64 / (1 << 30) as f64;
    let token = &sign(Operations::WRITE, large);
    let write = |n| async move {
        node.write(large.block(n as u32 + 1).expect("a block id"), token.clone(), chunk, crcs).await;
    };
    measure(node, "WriteChunk 1 MiB, 4 blocks", gibs, "GiB", windowed(LARGE_COUNT, 4, write)).await;
    let token = &sign(Operations::READ, large);
    let read = |n| async move { node.read(large.block(n as u32 + 1).expect("a block id"), LARGE, token.clone()).await };
    measure(node, "ReadBlock 16 MiB, 4 at a time", gibs, "GiB", windowed(LARGE_COUNT, 4, read)).await;
    // Its input ends, and so does it; its folder goes only then.
    started.client.close();
    drop(input);
    started.process.wait().expect("it ends");
}
