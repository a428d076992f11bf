//! What a process costs, as the kernel counts it.

use std::time::Duration;

/// A line of `/proc/PID/status` in KiB, such as `VmRSS:` (resident now) or `VmHWM:` (resident at most so far).
///
/// # Panics
/// Where there is no such process.
pub fn status_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// User and system time so far: fields 14 and 15 of `/proc/PID/stat`, in hundredths of a second.
///
/// # Panics
/// Where there is no such process.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("the program's name is in parentheses");
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}
