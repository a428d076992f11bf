//! What a change costs in a group of one, on RocksDB and the disk that holds the temporary folder: changes per second, latency, CPU.
//!
//! `cargo bench -p ozone-consensus` (argument: seconds per row). Each change reads a row and writes one of 200 bytes under a name of its
//! own, as a call with a kept answer.

#![allow(missing_docs, reason = "a program")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ozone_common::env::Env;
use ozone_common::id::ClientId;
use ozone_consensus::Call;
use ozone_consensus::core::MemberId;
use ozone_consensus::executor::{Effects, Executor, Stamp};
use ozone_consensus::group::{Group, GroupConfig, Limits};
use ozone_kvstore::rocks::RocksOptions;
use ozone_kvstore::{Batch, Read, Table, TableOptions};
use tokio_util::sync::CancellationToken;

const ROWS: Table = Table("row");
const ROW_BYTES: usize = 200;

struct PutRow;

impl Executor for PutRow {
    type Command = Bytes;
    type Hint = ();

    fn execute(&mut self, view: &dyn Read, _stamp: Stamp, key: Bytes) -> ozone_kvstore::Result<Effects<()>> {
        let before = view.get(ROWS, &key)?;
        let mut rows = Batch::new();
        rows.put(ROWS, key, vec![before.map_or(0, |row| row[0].wrapping_add(1)); ROW_BYTES]);
        Ok(Effects::done(rows, Bytes::from_static(b"done")))
    }
}

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

async fn measure(group: &Group<PutRow>, callers: usize, length: Duration) {
    let (before, started) = (cpu(), Instant::now());
    let entries = group.state().applied;
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (group, env) = (group.clone(), Env::system());
            tokio::spawn(async move {
                let client = ClientId::fresh(env.clock.now_ms(), &*env.rng);
                let mut latencies = Vec::new();
                let mut sequence = 0;
                while started.elapsed() < length {
                    sequence += 1;
                    let key = Bytes::from(format!("bucket/caller-{caller:04}/key-{sequence:010}"));
                    let call = Call { client, sequence, lowest_unanswered: sequence };
                    let asked = Instant::now();
                    group.propose(Some(call), key).await.expect("the group takes it");
                    latencies.push(asked.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("a caller ends"));
    }
    let (elapsed, used) = (started.elapsed(), cpu() - before);
    let count = latencies.len();
    latencies.sort_unstable();
    let at = |part: usize| latencies[(count * part / 1000).min(count - 1)].as_micros();
    println!(
        "{callers:>8} {:>10.0} {:>8} {:>8} {:>8} {:>12.1} {:>10.1}",
        count as f64 / elapsed.as_secs_f64(),
        at(500),
        at(950),
        at(990),
        used.as_secs_f64() * 1e6 / count as f64,
        count as f64 / (group.state().applied - entries) as f64,
    );
}

/// A synced write of as many bytes as an idle change appends, over zeros: the least a change can take.
fn sync_alone(folder: &std::path::Path) -> u128 {
    use std::io::IoSlice;
    let disk = Env::system().disk;
    let file = disk.open(&folder.join("sync"), true).expect("a file");
    file.write_all_at(&mut [IoSlice::new(&vec![0; 1 << 20])], 0).expect("zeros");
    file.sync_data().expect("a sync");
    let mut took: Vec<Duration> = (0..1000u64)
        .map(|at| {
            let started = Instant::now();
            file.write_all_at(&mut [IoSlice::new(&[7; 400])], at * 400).expect("a write");
            file.sync_data().expect("a sync");
            started.elapsed()
        })
        .collect();
    took.sort_unstable();
    took[500].as_micros()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let seconds = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(5);
    let folder = tempfile::tempdir_in(".").expect("a folder");
    println!("write of 400 bytes and fdatasync alone: {} µs (median)", sync_alone(folder.path()));
    let hints = Arc::new(AtomicU64::new(0));
    let config = GroupConfig {
        name: "bench",
        group: [1; 16],
        member: MemberId(1),
        folder: folder.path().join("group"),
        tables: vec![(ROWS, TableOptions::Rows)],
        limits: Limits::default(),
    };
    let on_hint = move |()| {
        hints.fetch_add(1, Ordering::Relaxed);
    };
    let stopped = CancellationToken::new();
    let group = Group::open(config, &Env::system(), PutRow, &RocksOptions::default(), on_hint, stopped)
        .expect("the group opens");
    println!(
        "{:>8} {:>10} {:>8} {:>8} {:>8} {:>12} {:>10}",
        "callers", "changes/s", "p50 µs", "p95 µs", "p99 µs", "CPU µs each", "per entry"
    );
    for callers in [1, 16, 128] {
        measure(&group, callers, Duration::from_secs(seconds)).await;
    }
    group.close().await.expect("it closes");
}
