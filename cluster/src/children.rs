//! Each role in a process of its own.

use std::fs::File;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::Error;
use crate::home::{Home, Lock};
use crate::processes::{Pids, Process};
use crate::role::{Role, STOP_ORDER};
use crate::settings::Settings;

/// LIMIT: how long one role may take to end before it is killed; its state is safe in any case, as after a crash.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The command that runs one role of the cluster in `home`, logging into its folder.
pub fn role_command(program: &Path, home: &Home, settings: &Settings, role: Role) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.arg(role.command()).arg("--config").arg(home.settings());
    let mut set = |name: &str, value: &str| {
        command.arg("--set").arg(format!("{name}={value}"));
    };
    let log = home.log();
    let path = |name: String| log.join(name).to_string_lossy().into_owned();
    set("telemetry.log_file", &path(format!("{role}.log")));
    set("telemetry.audit_file", &path(format!("{role}-audit.log")));
    if let Role::Datanode(n) = role {
        let datanode = settings.datanode(n, home.path());
        set("datanode.data", &datanode.data.to_string_lossy());
        set("datanode.data_bind", &datanode.data_bind);
        set("datanode.http_bind", &datanode.http_bind);
    }
    command
}

/// A role's process.
struct Started {
    role: Role,
    process: Process,
    child: Child,
}

/// The processes of a cluster.
pub(crate) struct Children(Vec<Started>);

impl Children {
    /// Starts all roles. They hold the cluster's lock from now on, each for itself.
    pub(crate) fn start(program: &Path, home: &Home, settings: &Settings, lock: &Lock) -> Result<Self, Error> {
        let mut this = Self(Vec::new());
        lock.inherit(true)?;
        let started = Role::all(settings.dev.datanodes).try_for_each(|role| {
            this.0.push(spawn(program, home, settings, role)?);
            Ok(())
        });
        lock.inherit(false)?;
        match started {
            Ok(()) => Ok(this),
            Err(error) => {
                this.kill();
                Err(error)
            }
        }
    }

    /// Role and process of each.
    pub(crate) fn pids(&self) -> Pids {
        Pids(self.0.iter().map(|started| (started.role.to_string(), started.process)).collect())
    }

    /// Fails where one has ended, with its last words.
    pub(crate) fn check(&mut self, home: &Home) -> Result<(), Error> {
        for started in &mut self.0 {
            let status = started.child.try_wait().map_err(|error| Error::role(started.role.to_string(), error))?;
            if let Some(status) = status {
                return Err(Error::role(started.role.to_string(), last_words(home, started.role, status)));
            }
        }
        Ok(())
    }

    /// Waits until every process has ended, telling `ended` of each; a cluster goes on without one of them.
    pub(crate) async fn wait(&mut self, home: &Home, mut ended: impl FnMut(String)) {
        while !self.0.is_empty() {
            let waits = self.0.iter_mut().map(|started| Box::pin(started.child.wait()));
            let (status, index, _) = futures::future::select_all(waits).await;
            let started = self.0.swap_remove(index);
            match status {
                Ok(status) if status.success() => {}
                Ok(status) => {
                    let words = last_words(home, started.role, status);
                    ended(format!("{} (pid {}): {words}", started.role, started.process.pid));
                }
                Err(error) => ended(format!("{}: cannot be waited for: {error}", started.role)),
            }
        }
    }

    /// Stops them in order.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        let stopped = stop(&self.pids()).await;
        for started in &mut self.0 {
            // They have ended or were killed: this takes their exit status away.
            if let Err(error) = started.child.wait().await {
                tracing::warn!(role = %started.role, %error, "cannot be waited for");
            }
        }
        stopped
    }

    /// Ends them at once, after a start that failed.
    fn kill(&mut self) {
        for started in &mut self.0 {
            started.process.signal(Signal::KILL);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a log is not users' data")]
fn spawn(program: &Path, home: &Home, settings: &Settings, role: Role) -> Result<Started, Error> {
    let errors = home.log().join(format!("{role}.err"));
    let file = || -> std::io::Result<File> {
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).open(&errors)
    };
    let mut command = Command::from(role_command(program, home, settings, role));
    // A group of its own: a terminal's Ctrl-C is for us, who stop the roles in order.
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).current_dir("/");
    command.stderr(file().map_err(Error::io("open", &errors))?);
    let fail = |error| Error::Role {
        role: role.to_string(),
        message: format!("cannot start `{}`: {error}", program.display()),
    };
    let child = command.spawn().map_err(fail)?;
    let pid = child.id().unwrap_or(0);
    let process = Process::of(pid).unwrap_or(Process { pid, started: 0 });
    Ok(Started { role, process, child })
}

/// How a process ended, and what it wrote to stderr last.
fn last_words(home: &Home, role: Role, status: ExitStatus) -> String {
    let errors = std::fs::read_to_string(home.log().join(format!("{role}.err"))).unwrap_or_default();
    match errors.lines().next_back() {
        Some(line) => line.strip_prefix("ozone: ").unwrap_or(line).to_owned(),
        None => status.to_string(),
    }
}

/// Stops processes in the order of their roles, and kills what does not stop in time.
///
/// # Errors
/// [`Error::Role`] for the first that had to be killed.
pub async fn stop(pids: &Pids) -> Result<(), Error> {
    let mut failure = None;
    let in_order = STOP_ORDER.iter().map(|order| {
        let belongs = |name: &str| name.parse::<Role>().is_ok_and(order);
        pids.0.iter().filter(move |(name, _)| belongs(name)).collect::<Vec<_>>()
    });
    let whole = pids.0.iter().filter(|(name, _)| name == "all").collect();
    for group in in_order.chain([whole]) {
        for (_, process) in &group {
            process.signal(Signal::TERM);
        }
        // One process with every role in it takes as long as all of them.
        let deadline = Instant::now() + STOP_TIMEOUT * 4;
        for (name, process) in group {
            if !process.ended(deadline).await {
                process.signal(Signal::KILL);
                let what = format!("pid {} did not stop in time and was killed", process.pid);
                failure = failure.or_else(|| Some(Error::role(name.clone(), what)));
            }
        }
    }
    failure.map_or(Ok(()), Err)
}
