//! Many workers that do one operation after the other, for a number of operations or for a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use ozone_common::config::TimeSpan;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cpu::{self, Process, Usage};
use crate::histogram::Histogram;

/// LIMIT: messages kept of operations that failed.
const MESSAGES_MAX: usize = 5;

/// How much load.
#[derive(Args, Clone, Debug)]
pub struct Load {
    /// Operations at the same time
    #[arg(short, long, visible_alias = "thread", default_value_t = 10, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: u32,
    /// Operations in all
    #[arg(short, long, visible_alias = "number", default_value_t = 1000, value_name = "COUNT")]
    pub number_of_tests: u64,
    /// Go on for so long instead, whatever the number
    #[arg(long, value_name = "TIME")]
    pub duration: Option<TimeSpan>,
    /// Processes whose CPU time is counted, as in `om=12 scm=13`
    #[arg(long, env = "OZONE_PIDS", value_name = "PIDS", default_value = "", value_parser = parse_processes)]
    pub pids: Processes,
    /// Give up after so many failed operations
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    pub errors_max: u64,
}

/// The processes to watch. A type of its own, since clap takes a `Vec` for many arguments.
#[derive(Clone, Debug, Default)]
pub struct Processes(pub Vec<Process>);

fn parse_processes(text: &str) -> anyhow::Result<Processes> {
    Ok(Processes(cpu::parse_pids(text)?))
}

/// What one operation did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Its kind.
    pub operation: &'static str,
    /// Keys touched.
    pub items: u64,
    /// Bytes of content moved.
    pub bytes: u64,
}

/// What came of one step.
pub enum Step {
    /// An operation succeeded.
    Done(Done),
    /// An operation of this kind failed.
    Failed(&'static str, anyhow::Error),
    /// There is nothing left to do.
    Over,
}

/// Does operations one after the other.
pub trait Worker: Send + 'static {
    /// Does the `n`th operation of the run, counted over all workers.
    fn step(&mut self, n: u64) -> impl Future<Output = Step> + Send;
}

/// What is known about one kind of operation.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Totals {
    /// Latencies of those that succeeded.
    pub latencies: Histogram,
    /// Those that failed.
    pub errors: u64,
    /// Keys touched.
    pub items: u64,
    /// Bytes of content moved.
    pub bytes: u64,
}

/// What a run measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// How long it ran.
    pub elapsed: Duration,
    /// By kind of operation.
    pub operations: BTreeMap<&'static str, Totals>,
    /// The first errors.
    pub messages: Vec<String>,
    /// What each watched process used in the run; its memory at the end.
    pub processes: Vec<(String, Usage)>,
    /// What the load generator itself used.
    pub own: Usage,
}

impl Measured {
    /// Operations that failed.
    pub fn errors(&self) -> u64 {
        self.operations.values().map(|totals| totals.errors).sum()
    }
}

#[derive(Default)]
struct Tally {
    operations: BTreeMap<&'static str, Totals>,
    messages: Vec<String>,
}

impl Tally {
    fn add(&mut self, step: Step, latency: Duration) {
        match step {
            Step::Done(done) => {
                let totals = self.operations.entry(done.operation).or_default();
                totals.latencies.record(latency);
                totals.items += done.items;
                totals.bytes += done.bytes;
            }
            Step::Failed(operation, error) => {
                self.operations.entry(operation).or_default().errors += 1;
                if self.messages.len() < MESSAGES_MAX {
                    self.messages.push(format!("{operation}: {error:#}"));
                }
            }
            Step::Over => {}
        }
    }

    fn merge(&mut self, other: Self) {
        for (operation, theirs) in other.operations {
            let mine = self.operations.entry(operation).or_default();
            mine.latencies.add(&theirs.latencies);
            mine.errors += theirs.errors;
            mine.items += theirs.items;
            mine.bytes += theirs.bytes;
        }
        self.messages.extend(other.messages);
        self.messages.truncate(MESSAGES_MAX);
    }
}

/// Runs a worker per thread until the load is done. `progress` is told how many operations began.
///
/// # Errors
/// A watched process is gone.
pub async fn drive<W: Worker>(
    load: &Load,
    workers: impl Iterator<Item = W>,
    progress: impl Fn(u64) + Send + Sync + 'static,
) -> anyhow::Result<Measured> {
    let before = watch(&load.pids.0)?;
    let own_before = cpu::usage(std::process::id())?;
    let begun = Instant::now();
    let run = Arc::new(Run {
        end: load.duration.map(|duration| begun + duration.duration()),
        number: load.number_of_tests,
        errors_max: load.errors_max,
        next: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        progress,
    });
    let mut tasks = JoinSet::new();
    for worker in workers.take(load.threads as usize) {
        tasks.spawn(run.clone().work(worker));
    }
    let mut tally = Tally::default();
    while let Some(part) = tasks.join_next().await {
        tally.merge(part?);
    }
    let elapsed = begun.elapsed();
    let since = |after: Usage, before: Usage| Usage { cpu_seconds: after.cpu_seconds - before.cpu_seconds, ..after };
    let after = watch(&load.pids.0)?;
    let processes = load.pids.0.iter().zip(after.into_iter().zip(before));
    Ok(Measured {
        elapsed,
        operations: tally.operations,
        messages: tally.messages,
        processes: processes.map(|(process, (after, before))| (process.role.clone(), since(after, before))).collect(),
        own: since(cpu::usage(std::process::id())?, own_before),
    })
}

fn watch(processes: &[Process]) -> anyhow::Result<Vec<Usage>> {
    processes.iter().map(|process| cpu::usage(process.pid)).collect()
}

struct Run<P> {
    end: Option<Instant>,
    number: u64,
    errors_max: u64,
    next: AtomicU64,
    errors: AtomicU64,
    progress: P,
}

impl<P: Fn(u64) + Send + Sync + 'static> Run<P> {
    async fn work<W: Worker>(self: Arc<Self>, mut worker: W) -> Tally {
        let mut tally = Tally::default();
        while let Some(n) = self.take() {
            let begun = Instant::now();
            let step = worker.step(n).await;
            let latency = begun.elapsed();
            match &step {
                Step::Over => break,
                Step::Failed(..) => {
                    self.errors.fetch_add(1, Ordering::Relaxed);
                }
                Step::Done(_) => {}
            }
            tally.add(step, latency);
        }
        tally
    }

    /// The number of the next operation, where there is to be one.
    fn take(&self) -> Option<u64> {
        if self.errors.load(Ordering::Relaxed) >= self.errors_max.max(1) {
            return None;
        }
        if self.end.is_some_and(|end| Instant::now() >= end) {
            return None;
        }
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        if self.end.is_none() && n >= self.number {
            return None;
        }
        (self.progress)(n);
        Some(n)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn load(threads: u32, number_of_tests: u64) -> Load {
        Load { threads, number_of_tests, duration: None, pids: Processes::default(), errors_max: 100 }
    }

    #[derive(Clone)]
    struct Counter {
        seen: Arc<parking_lot::Mutex<Vec<u64>>>,
        fail_each: u64,
        over_at: u64,
    }

    impl Worker for Counter {
        async fn step(&mut self, n: u64) -> Step {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if n >= self.over_at {
                return Step::Over;
            }
            self.seen.lock().push(n);
            if n % self.fail_each == self.fail_each - 1 {
                return Step::Failed("TEST", anyhow!("number {n}"));
            }
            Step::Done(Done { operation: "TEST", items: 1, bytes: 10 })
        }
    }

    async fn run(load: &Load, fail_each: u64, over_at: u64) -> (Measured, Vec<u64>) {
        let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let worker = Counter { seen: seen.clone(), fail_each, over_at };
        let measured = drive(load, std::iter::repeat(worker), |_| {}).await.unwrap();
        let mut seen = seen.lock().clone();
        seen.sort_unstable();
        (measured, seen)
    }

    #[tokio::test]
    async fn every_operation_is_done_once_and_counted() {
        let (measured, seen) = run(&load(7, 100), 10, u64::MAX).await;
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        let totals = &measured.operations["TEST"];
        assert_eq!((totals.latencies.count(), totals.errors, totals.items, totals.bytes), (90, 10, 90, 900));
        assert_eq!((measured.errors(), measured.messages.len()), (10, 5));
        assert!(totals.latencies.quantile_us(0.5) >= 1000);
    }

    #[tokio::test]
    async fn a_run_ends_by_time_by_errors_or_where_nothing_is_left() {
        let timed = Load { duration: Some(TimeSpan::millis(50)), ..load(3, 1) };
        let (measured, seen) = run(&timed, u64::MAX, u64::MAX).await;
        assert!(seen.len() > 3 && measured.elapsed >= Duration::from_millis(50), "{}", seen.len());
        let (measured, _) = run(&load(2, 100_000), 1, u64::MAX).await;
        assert!((100..=101).contains(&measured.errors()), "{}", measured.errors());
        let (_, seen) = run(&load(4, 100_000), u64::MAX, 20).await;
        assert_eq!(seen.len(), 20);
    }

    #[tokio::test]
    async fn watched_processes_are_measured_and_missed() {
        let own = Process { role: "all".into(), pid: std::process::id() };
        let watching = Load { pids: Processes(vec![own.clone()]), ..load(1, 3) };
        let (measured, _) = run(&watching, u64::MAX, u64::MAX).await;
        assert_eq!(measured.processes[0].0, "all");
        assert!(measured.processes[0].1.resident > 0 && measured.processes[0].1.cpu_seconds >= 0.0);
        let gone = Load { pids: Processes(vec![Process { pid: u32::MAX, ..own }]), ..load(1, 3) };
        let worker = Counter { seen: Arc::default(), fail_each: 9, over_at: 9 };
        assert!(drive(&gone, std::iter::repeat(worker), |_| {}).await.is_err());
    }
}
