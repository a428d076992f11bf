//! The load checker (clients/load_checker.py) at work on a cluster.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clients::{python, run};
use crate::cluster::Cluster;
use crate::wait::within;

/// A running load of 16 threads.
pub struct Load {
    child: Child,
    acks: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    reader: JoinHandle<String>,
}

impl Load {
    /// What the checker knows between rounds.
    pub fn state(cluster: &Cluster, bucket: &str) -> PathBuf {
        cluster.scratch().join(format!("{bucket}.state"))
    }

    fn command(cluster: &Cluster, bucket: &str, verb: &str) -> Command {
        let mut command = python(cluster, "load_checker.py");
        command.arg(verb).arg("--state").arg(Self::state(cluster, bucket)).args(["--bucket", bucket]);
        command
    }

    /// Starts it. With `strict` no request may fail beyond boto3's own retries.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(cluster: &Cluster, bucket: &str, seed: u64, strict: bool) -> Self {
        let mut command = Self::command(cluster, bucket, "run");
        command.args(["--seed", &seed.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if strict {
            command.arg("--strict");
        }
        let mut child = command.spawn().expect("python runs");
        let lines = BufReader::new(child.stdout.take().expect("it was piped"));
        let (acks, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, over) = (acks.clone(), ended.clone());
        let reader = std::thread::spawn(move || {
            let mut last = String::new();
            for line in lines.lines().map_while(Result::ok) {
                match line.strip_prefix("acks ").and_then(|n| n.parse().ok()) {
                    Some(n) => counted.store(n, Ordering::Relaxed),
                    None => last = line,
                }
            }
            over.store(true, Ordering::Relaxed);
            last
        });
        Self { child, acks, ended, reader }
    }

    /// Changes acknowledged so far.
    pub fn acks(&self) -> u64 {
        self.acks.load(Ordering::Relaxed)
    }

    /// Waits until `more` further changes were acknowledged.
    ///
    /// # Panics
    /// Where that takes more than two minutes, or the load ends by itself.
    pub fn progress(&self, more: u64) {
        let target = self.acks() + more;
        within(Duration::from_secs(120), &format!("{target} acknowledged changes"), || {
            // What went wrong then is on its stderr, which `end` shows.
            (self.acks() >= target || self.ended.load(Ordering::Relaxed)).then_some(())
        });
    }

    /// Ends it and returns its summary.
    ///
    /// # Panics
    /// With what it saw, where that was wrong.
    pub fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let output = self.child.wait_with_output().expect("it ends");
        let summary = self.reader.join().expect("the reader does not panic");
        assert!(output.status.success(), "the load saw: {}", String::from_utf8_lossy(&output.stderr));
        summary
    }

    /// Reads everything back and compares; returns the summary.
    ///
    /// # Panics
    /// With every object that is not what it may be.
    pub fn verify(cluster: &Cluster, bucket: &str) -> String {
        run(&mut Self::command(cluster, bucket, "verify")).trim().to_owned()
    }
}
