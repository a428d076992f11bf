//! What processes used: CPU time and memory, from `/proc`.

use std::io;

use anyhow::{Context, Result, bail};

/// The kernel's unit of CPU time in `/proc` is 1/100 s on every machine that this runs on (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// A process of the cluster, by the role it plays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// `om`, `dn1`, `s3g`, or `all`.
    pub role: String,
    /// Its number.
    pub pid: u32,
}

/// Reads `om=12 scm=13`, as `OZONE_PIDS` in `cluster.env` has it.
///
/// # Errors
/// A word that is no such pair.
pub fn parse_pids(text: &str) -> Result<Vec<Process>> {
    text.split([' ', ','])
        .filter(|word| !word.is_empty())
        .map(|word| match word.split_once('=') {
            Some((role, pid)) if !role.is_empty() && pid.parse::<u32>().is_ok_and(|pid| pid > 0) => {
                Ok(Process { role: role.to_owned(), pid: pid.parse()? })
            }
            _ => bail!("`{word}`: processes are named as in `om=12 scm=13`"),
        })
        .collect()
}

/// What a process has used so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Usage {
    /// User and system time of all its threads, seconds.
    pub cpu_seconds: f64,
    /// Resident now, bytes.
    pub resident: u64,
    /// Resident at most since it began, bytes.
    pub resident_peak: u64,
}

/// Asks for a process.
///
/// # Errors
/// It is gone, or `/proc` does not show it.
pub fn usage(pid: u32) -> Result<Usage> {
    let read = |file: &str| -> io::Result<String> { std::fs::read_to_string(format!("/proc/{pid}/{file}")) };
    let shown = || format!("process {pid}");
    let cpu_seconds = parse_stat(&read("stat").with_context(shown)?).with_context(shown)?;
    let status = read("status").with_context(shown)?;
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
    };
    Ok(Usage { cpu_seconds, resident: kib("VmRSS:"), resident_peak: kib("VmHWM:") })
}

/// User and system time out of `/proc/PID/stat` (proc(5): fields 14 and 15). The program's name, field 2, may hold anything.
fn parse_stat(text: &str) -> Result<f64> {
    let (_, fields) = text.rsplit_once(')').context("no program name in it")?;
    let mut ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    match (ticks.next(), ticks.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok((user + system) as f64 / TICKS_PER_SECOND),
        _ => bail!("no CPU times in it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pids_as_cluster_env_has_them() {
        let process = |role: &str, pid| Process { role: role.into(), pid };
        assert_eq!(parse_pids("om=12 dn1=14").unwrap(), [process("om", 12), process("dn1", 14)]);
        assert_eq!(parse_pids("all=7").unwrap(), [process("all", 7)]);
        assert_eq!(parse_pids(" ").unwrap(), []);
        for wrong in ["12", "om=", "=1", "om=x", "om=0", "om=-1"] {
            assert!(parse_pids(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_of_a_program_with_an_odd_name() {
        let stat = "7 (a) R (b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100 0 0";
        assert_eq!(parse_stat(stat).unwrap(), 3.0);
        assert!(parse_stat("7 (a) S 1 2").is_err());
        let own = usage(std::process::id()).unwrap();
        assert!(own.resident > 0 && own.resident_peak >= own.resident);
        assert!(usage(u32::MAX).is_err());
    }
}
