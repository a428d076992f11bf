//! The long form of the kill test: `cargo run -p ozone-integration-tests --bin load-checker -- --rounds 20`.
//!
//! Starts a cluster of the built program (`$OZONE_PROGRAM`, or the debug build), loads it with 16 threads of boto3, kills every
//! process with SIGKILL in the middle, starts it again and compares everything; so many rounds, with small values on datanodes and in the key-space manager.

use clap::Parser;
use ozone_integration_tests::{Inline, KillRounds, Options};

#[derive(Parser)]
struct Args {
    /// Rounds of load, kill, start and comparison.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Where small values lie; both, one after the other, without it.
    #[arg(long)]
    inline: Option<Inline>,
    /// Each role in a process of its own.
    #[arg(long)]
    processes: bool,
    /// Changes to be acknowledged before each kill, at most.
    #[arg(long, default_value_t = 3000)]
    changes: u64,
    /// Makes the load another one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() {
    let args = Args::parse();
    for inline in args.inline.map_or(vec![Inline::Off, Inline::On], |inline| vec![inline]) {
        eprintln!("inline values {inline:?}");
        let options = Options { processes: args.processes, ..Options::default() };
        let (rounds, changes, seed) = (args.rounds, args.changes, args.seed);
        KillRounds { rounds, options, inline, changes, seed }.run();
    }
    println!("nothing acknowledged was lost");
}
