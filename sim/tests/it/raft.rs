//! Groups of the Raft core under faults.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ozone_sim::raft::{Report, check};

/// Seeds of the smoke; in the debug profile they take about 15 seconds of CPU.
const SEEDS: u64 = 200;

#[test]
fn groups_keep_their_promises_under_faults_and_recover() {
    let (next, total) = (AtomicU64::new(0), Mutex::new(Report::default()));
    let run = || loop {
        let seed = next.fetch_add(1, Ordering::SeqCst);
        if seed >= SEEDS {
            return;
        }
        match check(seed, false) {
            Ok(report) => total.lock().unwrap().add(&report),
            Err(failure) => panic!("{failure}"),
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(run);
        scope.spawn(run);
    });
    // A smoke in which nothing happens proves nothing.
    let total = total.into_inner().unwrap();
    let happened = [
        ("terms with a leader", total.leaders, 2 * SEEDS),
        ("writes", total.writes, 50 * SEEDS),
        ("reads", total.reads, 50 * SEEDS),
        ("crashes", total.crashes, 2 * SEEDS),
        ("snapshots installed", total.installs, SEEDS / 8),
        ("changes of membership", total.changes, SEEDS / 4),
        ("transfers", total.transfers, SEEDS / 4),
    ];
    for (what, count, least) in happened {
        assert!(count >= least, "only {count} {what} in {SEEDS} seeds; at least {least} were meant to be: {total:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 1_000..1_010 {
        let (one, two) = (check(seed, false).unwrap(), check(seed, false).unwrap());
        assert_eq!(one, two, "seed {seed}");
        assert_ne!(one.trace, check(seed + 1, false).unwrap().trace, "the trace does not depend on the seed");
    }
}
