//! Processes by number and start time, so that a number which the system gave away again is never taken for ours.

use std::fmt;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

/// How often an ending process is looked at.
const POLL: Duration = Duration::from_millis(10);

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, clock ticks since boot.
    pub started: u64,
}

impl Process {
    /// The process of this number, where one lives.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: start_time(pid)? })
    }

    /// This process.
    pub(crate) fn own() -> Self {
        let pid = std::process::id();
        Self { pid, started: start_time(pid).unwrap_or(0) }
    }

    /// Whether it still lives. One that has ended and was not yet waited for does not.
    pub fn is_alive(self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Sends a signal, unless it has ended.
    pub(crate) fn signal(self, signal: Signal) {
        if self.is_alive()
            && let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
            && let Err(error) = kill_process(pid, signal)
        {
            // It ended in between, or is somebody else's; `is_alive` tells which to whoever waits.
            tracing::debug!(pid = self.pid, %error, "signal not delivered");
        }
    }

    /// Waits until it has ended; whether it did before the deadline.
    pub(crate) async fn ended(self, deadline: Instant) -> bool {
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }
}

/// Field 22 of `/proc/PID/stat`; `None` for what does not live.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Processes by role.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Pids(pub Vec<(String, Process)>);

impl Pids {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let line = |line: &str| {
            let mut words = line.split(' ');
            let entry = (
                words.next()?.to_owned(),
                Process { pid: words.next()?.parse().ok()?, started: words.next()?.parse().ok()? },
            );
            words.next().is_none().then_some(entry)
        };
        text.lines().map(line).collect::<Option<_>>().map(Self)
    }

    pub(crate) fn render(&self) -> String {
        self.0.iter().map(|(role, process)| format!("{role} {} {}\n", process.pid, process.started)).collect()
    }

    /// The process of a role.
    pub fn of(&self, role: &str) -> Option<Process> {
        self.0.iter().find(|(name, _)| name == role || name == "all").map(|(_, process)| *process)
    }

    /// Those that live.
    pub fn alive(&self) -> impl Iterator<Item = &(String, Process)> {
        self.0.iter().filter(|(_, process)| process.is_alive())
    }
}

impl fmt::Display for Pids {
    /// `om=12 scm=13 dn1=14`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (role, process)) in self.0.iter().enumerate() {
            write!(f, "{}{role}={}", if n == 0 { "" } else { " " }, process.pid)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_nothing_else_does() {
        let pids = Pids(vec![
            ("om".into(), Process { pid: 12, started: 345 }),
            ("dn1".into(), Process { pid: 14, started: 346 }),
        ]);
        assert_eq!(Pids::parse(&pids.render()).unwrap(), pids);
        assert_eq!(pids.to_string(), "om=12 dn1=14");
        assert_eq!(pids.of("dn1").unwrap().pid, 14);
        assert_eq!(pids.of("scm"), None);
        assert_eq!(Pids::parse("").unwrap(), Pids::default());
        for wrong in ["om", "om 12", "om x 1", "om 1 2 3", "om -1 2"] {
            assert_eq!(Pids::parse(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_process_lives_until_it_has_ended() {
        let own = Process::own();
        assert!(own.is_alive() && Process::of(own.pid) == Some(own));
        assert!(!Process { started: own.started + 1, ..own }.is_alive(), "the same number, another process");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(!process.ended(Instant::now()).await);
        process.signal(Signal::TERM);
        // Not waited for yet: it is a zombie, which counts as ended.
        assert!(process.ended(Instant::now() + Duration::from_secs(10)).await);
        child.wait().unwrap();
        process.signal(Signal::TERM);
        assert!(!process.is_alive());
    }
}
