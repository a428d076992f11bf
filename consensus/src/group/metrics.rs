//! Metrics of a group's member. Handles are made once.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// All handles.
pub(super) struct Metrics {
    /// Commands in one entry.
    pub batch_commands: Histogram,
    /// Bytes of one entry.
    pub batch_bytes: Histogram,
    /// Executing the commands of one entry.
    pub execute_seconds: Histogram,
    /// One append with its fdatasync.
    pub append_seconds: Histogram,
    /// Writing applied entries to the store.
    pub apply_seconds: Histogram,
    /// Taking a snapshot.
    pub snapshot_seconds: Histogram,
    /// Commands taken in by one turn that had to wait for a later one.
    pub queue: Gauge,
    /// Commands executed with rows.
    pub changes: Counter,
    /// Commands executed without rows: refusals, and changes that were there already.
    pub unchanged: Counter,
    /// Repeated calls that got their first answer.
    pub repeats: Counter,
    /// Sessions with answers kept.
    pub sessions: Gauge,
    /// Bytes of the log's files.
    pub log_bytes: Gauge,
    /// Last applied entry.
    pub applied: Gauge,
    /// Present term.
    pub term: Gauge,
    /// 1 while it leads.
    pub leader: Gauge,
}

impl Metrics {
    pub fn new(group: &'static str) -> Self {
        Self {
            batch_commands: histogram!("ozone_consensus_batch_commands", "group" => group),
            batch_bytes: histogram!("ozone_consensus_batch_bytes", "group" => group),
            execute_seconds: histogram!("ozone_consensus_execute_seconds", "group" => group),
            append_seconds: histogram!("ozone_consensus_append_seconds", "group" => group),
            apply_seconds: histogram!("ozone_consensus_apply_seconds", "group" => group),
            snapshot_seconds: histogram!("ozone_consensus_snapshot_seconds", "group" => group),
            queue: gauge!("ozone_consensus_queue_commands", "group" => group),
            changes: counter!("ozone_consensus_changes_total", "group" => group),
            unchanged: counter!("ozone_consensus_unchanged_total", "group" => group),
            repeats: counter!("ozone_consensus_repeats_total", "group" => group),
            sessions: gauge!("ozone_consensus_sessions", "group" => group),
            log_bytes: gauge!("ozone_consensus_log_bytes", "group" => group),
            applied: gauge!("ozone_consensus_applied_index", "group" => group),
            term: gauge!("ozone_consensus_term", "group" => group),
            leader: gauge!("ozone_consensus_leader", "group" => group),
        }
    }
}
