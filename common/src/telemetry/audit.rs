//! The audit trail: one line per change and per denial.
//!
//! ```text
//! 2026-01-31T12:00:00.000Z role=om user=alice op=CREATE_BUCKET resource=/s3v/photos result=SUCCESS request_id=4f1c…
//! 2026-01-31T12:00:00.001Z role=s3g user=- op=PUT_OBJECT resource="/photos/a b" result=UNAUTHENTICATED reason="the …" request_id=…
//! ```
//! Values that hold anything but plain characters are quoted and escaped, so that no name can forge a line.
//!
//! With a file, callers put lines into a bounded buffer that a thread writes within [`WRITE_DELAY`]; where the buffer is
//! full the caller writes itself, so that the trail slows changes down rather than losing a line. Lines of the last moment
//! before a kill -9 may be lost.

use std::fmt::{self, Write as _};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::RateLimit;
use super::file::RotatingFile;
use crate::Error;
use crate::env::{Clock, SystemClock};
use crate::time::Utc;

/// How long a line may wait in memory.
const WRITE_DELAY: Duration = Duration::from_millis(100);
// LIMIT: bytes that wait in memory.
const BUFFER_MAX: usize = 1 << 20;

/// How an operation ended.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// It took effect.
    Success,
    /// It was refused or failed.
    Failure(&'a Error),
}

impl<'a, T> From<&'a Result<T, Error>> for Outcome<'a> {
    fn from(result: &'a Result<T, Error>) -> Self {
        match result {
            Ok(_) => Self::Success,
            Err(error) => Self::Failure(error),
        }
    }
}

/// What happened.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// The role that decided: `om`, `scm`, `s3g`, `datanode`.
    pub role: &'static str,
    /// Who asked; empty where nobody is authenticated.
    pub who: &'a str,
    /// What was asked, such as `CREATE_BUCKET`.
    pub op: &'static str,
    /// On what, such as `/s3v/photos/cat.jpg`.
    pub resource: &'a dyn fmt::Display,
    /// How it ended.
    pub outcome: Outcome<'a>,
    /// The id that runs from gateway to disk.
    pub request_id: &'a str,
}

struct Trail {
    buffer: Mutex<Vec<u8>>,
    filled: Condvar,
    file: Mutex<RotatingFile>,
}

static TRAIL: OnceLock<Trail> = OnceLock::new();

/// Writes one line: to the audit file where there is one, and to the tracing target `audit` where that is enabled.
pub fn audit(record: &Record<'_>) {
    if tracing::enabled!(target: "audit", tracing::Level::INFO) {
        let (result, reason) = record.result();
        tracing::info!(
            target: "audit",
            role = record.role, user = record.who, op = record.op, resource = %Plain(record.resource),
            result, reason, request_id = record.request_id
        );
    }
    if let Some(trail) = TRAIL.get() {
        let mut line = String::with_capacity(192);
        record.write(&mut line, SystemClock.now_ms());
        let mut buffer = trail.buffer.lock();
        if buffer.is_empty() {
            trail.filled.notify_one();
        }
        buffer.extend_from_slice(line.as_bytes());
        let full = buffer.len() >= BUFFER_MAX;
        drop(buffer);
        if full {
            trail.write_out();
        }
    }
}

/// Writes what still waits in memory; for the end of a process.
pub fn flush_audit() {
    if let Some(trail) = TRAIL.get() {
        trail.write_out();
    }
}

pub(super) fn start_file(file: RotatingFile) {
    let trail = Trail { buffer: Mutex::default(), filled: Condvar::new(), file: Mutex::new(file) };
    if TRAIL.set(trail).is_err() {
        return; // `init` runs once
    }
    let started = std::thread::Builder::new().name("audit".into()).stack_size(128 << 10).spawn(|| {
        let trail = TRAIL.get().expect("it was set before this thread was started");
        loop {
            let mut buffer = trail.buffer.lock();
            while buffer.is_empty() {
                trail.filled.wait(&mut buffer);
            }
            drop(buffer);
            std::thread::sleep(WRITE_DELAY);
            trail.write_out();
        }
    });
    if let Err(error) = started {
        tracing::error!(%error, "no thread for the audit trail; lines wait until the buffer is full");
    }
}

impl Trail {
    fn write_out(&self) {
        // ORDER: the file's lock is taken first, so that buffers reach the file in the order in which they were filled.
        let mut file = self.file.lock();
        let lines = std::mem::take(&mut *self.buffer.lock());
        if lines.is_empty() {
            return;
        }
        if let Err(error) = file.append(&lines) {
            static LIMIT: RateLimit = RateLimit::every_ms(10_000);
            if let Some(held_back) = LIMIT.pass() {
                tracing::error!(%error, held_back, lines = %String::from_utf8_lossy(&lines), "cannot write the audit trail");
            }
        }
    }
}

impl Record<'_> {
    fn result(&self) -> (&'static str, &str) {
        match self.outcome {
            Outcome::Success => ("SUCCESS", ""),
            Outcome::Failure(error) => (error.code.name(), &error.message),
        }
    }

    fn write(&self, line: &mut String, now_ms: u64) {
        write!(line, "{}", Utc::from_ms(now_ms)).expect("writing to a String does not fail");
        let (result, reason) = self.result();
        for (name, value) in [("role", self.role), ("user", self.who), ("op", self.op)] {
            write_field(line, name, &value);
        }
        write_field(line, "resource", self.resource);
        write_field(line, "result", &result);
        if !reason.is_empty() {
            write_field(line, "reason", &reason);
        }
        write_field(line, "request_id", &self.request_id);
        line.push('\n');
    }
}

/// Shows a value with control characters escaped.
struct Plain<'a>(&'a dyn fmt::Display);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        write!(text, "{}", self.0)?;
        write!(f, "{}", text.escape_debug())
    }
}

fn write_field(line: &mut String, name: &str, value: &dyn fmt::Display) {
    line.push(' ');
    line.push_str(name);
    line.push('=');
    let start = line.len();
    write!(line, "{value}").expect("writing to a String does not fail");
    let value = &line[start..];
    if value.is_empty() {
        line.push('-');
    } else if value == "-" || !value.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'=')) {
        let quoted = format!("\"{}\"", value.escape_debug());
        line.truncate(start);
        line.push_str(&quoted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(record: &Record<'_>, expected: &str) {
        let mut line = String::new();
        record.write(&mut line, 1_769_860_800_007);
        assert_eq!(line, format!("2026-01-31T12:00:00.007Z {expected}\n"));
    }

    #[test]
    fn lines_cannot_be_forged_by_names() {
        let record = Record {
            role: "om",
            who: "alice",
            op: "CREATE_KEY",
            resource: &"/s3v/photos/cat.jpg",
            outcome: Outcome::Success,
            request_id: "4f1c",
        };
        check(&record, "role=om user=alice op=CREATE_KEY resource=/s3v/photos/cat.jpg result=SUCCESS request_id=4f1c");
        let error = Error::new(crate::ErrorCode::Unauthenticated, "wrong signature");
        let denied = Record {
            who: "",
            resource: &"/a b\n2026 role=om \"x\" result=SUCCESS\u{202e}",
            outcome: Outcome::Failure(&error),
            request_id: "-",
            ..record
        };
        check(
            &denied,
            "role=om user=- op=CREATE_KEY resource=\"/a b\\n2026 role=om \\\"x\\\" result=SUCCESS\\u{202e}\" \
             result=UNAUTHENTICATED reason=\"wrong signature\" request_id=\"-\"",
        );
    }

    #[test]
    fn lines_reach_the_file_soon_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        start_file(RotatingFile::open(&path).unwrap());
        let write = |n: u32| {
            let (resource, outcome) = (format!("/{n}"), Outcome::Success);
            audit(&Record { role: "om", who: "u", op: "TEST", resource: &resource, outcome, request_id: "r" });
        };
        (0..100).for_each(write);
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while std::fs::read_to_string(&path).unwrap().lines().count() < 100 {
            assert!(std::time::Instant::now() < deadline, "the audit thread does not write");
            std::thread::sleep(Duration::from_millis(5));
        }
        write(100);
        flush_audit();
        let text = std::fs::read_to_string(&path).unwrap();
        let numbers: Vec<&str> =
            text.lines().map(|l| l.split("resource=/").nth(1).unwrap().split(' ').next().unwrap()).collect();
        assert_eq!(numbers, (0..=100).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}
