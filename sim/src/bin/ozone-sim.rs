//! Runs the simulator: one seed with its trace, or many seeds until one fails.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::Parser;
use ozone_sim::raft;

/// Simulates replicated groups under faults drawn from a seed.
#[derive(Parser)]
struct Options {
    /// First seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds, one after the other.
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Prints everything that happens.
    #[arg(long)]
    trace: bool,
    /// How many seeds run at a time.
    #[arg(long, default_value_t = 1)]
    threads: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (next, failed) = (AtomicU64::new(options.seed), AtomicBool::new(false));
    let end = options.seed.saturating_add(options.count);
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                while !failed.load(Ordering::SeqCst) {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= end {
                        break;
                    }
                    match raft::check(seed, options.trace) {
                        Ok(report) if options.count <= 10 => println!("seed {seed}: {report:?}"),
                        Ok(_) => {}
                        Err(failure) => {
                            eprintln!("{failure}");
                            failed.store(true, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
    });
    if failed.load(Ordering::SeqCst) {
        return ExitCode::FAILURE;
    }
    println!("{} seeds from {} on hold", options.count, options.seed);
    ExitCode::SUCCESS
}
