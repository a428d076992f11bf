//! A cluster of the program under test, in a folder of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::program::program;
use crate::wait::within;

/// LIMIT: for a killed process to be gone, or a started one to serve.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to start one.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Each role in a process of its own.
    pub processes: bool,
    /// How many datanodes; 0 = the default.
    pub datanodes: u32,
    /// Further settings, `section.key=value`.
    pub set: Vec<String>,
}

impl Options {
    /// Each role in a process of its own.
    pub fn processes() -> Self {
        Self { processes: true, ..Self::default() }
    }
}

/// A running cluster. Dropping it kills it and removes its folder; where a test panics its logs are shown first.
pub struct Cluster {
    folder: TempDir,
    options: Options,
    environment: BTreeMap<String, String>,
    revived: Vec<Child>,
}

impl Cluster {
    /// Starts one on free ports.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(options: Options) -> Self {
        let folder = tempfile::Builder::new().prefix("ozone-test-").tempdir().expect("a temporary folder");
        let mut cluster = Self { folder, options, environment: BTreeMap::new(), revived: Vec::new() };
        cluster.start_again();
        cluster
    }

    /// One process with the default number of datanodes.
    pub fn single() -> Self {
        Self::start(Options::default())
    }

    /// Starts it in its folder, after it was stopped or killed; ports and keys stay.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start_again(&mut self) {
        let output = self.start_command().output().expect("the program runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the cluster does not start: {stderr}\n{}", self.logs());
        self.environment = source(&self.data().join("cluster.env"));
    }

    /// The command that starts it.
    pub fn start_command(&self) -> Command {
        let mut command = Command::new(program());
        command.args(["dev", "--detach", "--data"]).arg(self.data());
        if !self.data().exists() {
            for port in ["s3", "s3-http", "om", "om-http", "scm", "scm-http", "datanode", "datanode-http"] {
                command.arg(format!("--{port}-port")).arg("0");
            }
        }
        if self.options.processes {
            command.arg("--processes");
        }
        if self.options.datanodes > 0 {
            command.arg("--datanodes").arg(self.options.datanodes.to_string());
        }
        for setting in &self.options.set {
            command.arg("--set").arg(setting);
        }
        command
    }

    /// `ozone dev VERB --data DIR`.
    pub fn dev(&self, verb: &str) -> Command {
        let mut command = Command::new(program());
        command.args(["dev", verb, "--data"]).arg(self.data());
        command
    }

    /// The program with its cluster's addresses in the environment.
    pub fn ozone(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).envs(self.environment());
        command
    }

    /// Its folder.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A folder beside it for whatever the test needs.
    pub fn scratch(&self) -> &Path {
        self.folder.path()
    }

    /// What `cluster.env` gives a shell.
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    /// One variable of it.
    ///
    /// # Panics
    /// Where it is absent.
    pub fn variable(&self, name: &str) -> &str {
        self.environment.get(name).unwrap_or_else(|| panic!("cluster.env has no {name}"))
    }

    /// The S3 endpoint.
    pub fn endpoint(&self) -> &str {
        self.variable("OZONE_S3_ENDPOINT")
    }

    /// Role and process, as `OZONE_PIDS` has them.
    ///
    /// # Panics
    /// Where the variable is malformed.
    pub fn pids(&self) -> Vec<(String, u32)> {
        let entry = |entry: &str| {
            let (role, pid) = entry.split_once('=').expect("role=pid");
            (role.to_owned(), pid.parse().expect("a number"))
        };
        self.variable("OZONE_PIDS").split(' ').map(entry).collect()
    }

    /// The process of a role.
    ///
    /// # Panics
    /// Where there is none.
    pub fn pid(&self, role: &str) -> u32 {
        let pids = self.pids();
        pids.iter().find(|(name, _)| name == role).unwrap_or_else(|| panic!("no {role} in {pids:?}")).1
    }

    /// kill -9 of every process, and waits until they are gone.
    pub fn kill_all(&self) {
        let pids = self.pids();
        for (_, pid) in &pids {
            kill(*pid);
        }
        for (_, pid) in pids {
            gone(pid);
        }
    }

    /// kill -9 of one role's process; returns the command that starts it again.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn kill_role(&self, role: &str) -> Command {
        let pid = self.pid(role);
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
        let words: Vec<String> = line
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        kill(pid);
        gone(pid);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts a killed role again; it ends with the cluster.
    ///
    /// # Panics
    /// Where the program does not run.
    pub fn revive(&mut self, mut role: Command) {
        self.revived.push(role.spawn().expect("the program runs"));
    }

    /// Tails of its logs.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        let mut paths: Vec<_> = std::fs::read_dir(self.data().join("log"))
            .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
            .unwrap_or_default();
        paths.sort();
        for path in paths.iter().filter(|path| !path.to_string_lossy().contains("audit")) {
            let log = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            text += &format!("---- {}\n{}\n", path.display(), lines[lines.len().saturating_sub(40)..].join("\n"));
        }
        text
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        for child in &mut self.revived {
            // It may have ended by itself, or with the others.
            let _ = child.kill().and_then(|()| child.wait());
        }
        if self.environment.contains_key("OZONE_PIDS") {
            for (_, pid) in self.pids() {
                // Only what is still the program under test, not another process that has the number by now.
                let file = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
                if file.file_name() == program().file_name() {
                    kill(pid);
                }
            }
        }
    }
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.try_into().expect("a process number")).expect("not 0");
    // It may have ended by itself; whoever waits for its end sees that.
    let _ = kill_process(pid, Signal::KILL);
}

fn gone(pid: u32) {
    within(PATIENCE, &format!("process {pid} is gone"), || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let lives = stat.is_some_and(|stat| !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')));
        (!lives).then_some(())
    });
}

/// What a shell has after sourcing the file, of the names that the file sets.
fn source(path: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(path).expect("cluster.env was written");
    let names: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let script = format!(". '{}'; for name in {}; do printenv $name; done", path.display(), names.join(" "));
    let output =
        Command::new("sh").args(["-euc", &script]).env_clear().env("PATH", "/usr/bin:/bin").output().expect("sh runs");
    assert!(
        output.status.success(),
        "{} cannot be sourced: {}",
        path.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let values = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(values.len(), names.len(), "every name is exported: {text}");
    names.into_iter().map(str::to_owned).zip(values).collect()
}

/// Waits until `ozone dev status` says that every role serves.
///
/// # Panics
/// Where that does not happen within a minute.
pub fn ready_to_serve(cluster: &Cluster) {
    within(PATIENCE, "every role serves", || cluster.dev("status").output().ok()?.status.success().then_some(()));
}
