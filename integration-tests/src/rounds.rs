//! kill -9 of everything in the middle of a load, and again.

use std::time::Duration;

use clap::ValueEnum;

use crate::clients::run;
use crate::cluster::{Cluster, Options};
use crate::load::Load;

/// Whether small values travel in the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Inline {
    /// They lie on datanodes as the others do.
    Off,
    /// They lie in the key-space manager.
    On,
}

/// So many rounds of load, kill, start and comparison on one cluster.
#[derive(Clone, Debug)]
pub struct KillRounds {
    /// How many.
    pub rounds: u32,
    /// How the cluster runs.
    pub options: Options,
    /// Where small values lie.
    pub inline: Inline,
    /// Changes to be acknowledged before the kill: from a third of it to the whole, different in every round.
    pub changes: u64,
    /// Makes the load another one.
    pub seed: u64,
}

impl KillRounds {
    /// Runs them, telling each on stderr.
    ///
    /// # Panics
    /// At the first thing that is not as it must be.
    pub fn run(&self) {
        let mut cluster = Cluster::start(self.options.clone());
        let policy = match self.inline {
            Inline::Off => "never",
            Inline::On => "always",
        };
        run(&mut cluster.ozone(&["sh", "bucket", "create", "/s3v/load", "--inline", policy]));
        for round in 1..=self.rounds {
            let seed = self.seed + u64::from(round);
            let load = Load::start(&cluster, "load", seed, false);
            load.progress(self.changes / 3 + seed.wrapping_mul(0x9e37_79b9) % (self.changes * 2 / 3));
            // In the middle of a commit, not at its end: requests of 16 threads are under way at any moment.
            std::thread::sleep(Duration::from_millis(seed.wrapping_mul(37) % 50));
            cluster.kill_all();
            let loaded = load.end();
            cluster.start_again();
            let verified = Load::verify(&cluster, "load");
            eprintln!("round {round} of {}: {loaded} {verified}", self.rounds);
        }
    }
}
