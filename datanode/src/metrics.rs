//! Metrics of the service and the heartbeats. Handles are made once: a request looks up no name.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// Requests of the block transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Op {
    PutSmall,
    OpenBlock,
    WriteChunk,
    FinishBlock,
    SealBlock,
    ReadBlock,
    ReportCorrupt,
    AbandonBlock,
    /// Names no operation that this build knows.
    Unknown,
}

impl Op {
    const ALL: [Self; 9] = [
        Self::PutSmall,
        Self::OpenBlock,
        Self::WriteChunk,
        Self::FinishBlock,
        Self::SealBlock,
        Self::ReadBlock,
        Self::ReportCorrupt,
        Self::AbandonBlock,
        Self::Unknown,
    ];

    /// As audit lines, logs and metrics name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PutSmall => "PUT_SMALL",
            Self::OpenBlock => "OPEN_BLOCK",
            Self::WriteChunk => "WRITE_CHUNK",
            Self::FinishBlock => "FINISH_BLOCK",
            Self::SealBlock => "SEAL_BLOCK",
            Self::ReadBlock => "READ_BLOCK",
            Self::ReportCorrupt => "REPORT_CORRUPT",
            Self::AbandonBlock => "ABANDON_BLOCK",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// Handles per operation.
pub(crate) struct OpMetrics {
    /// Answered with success.
    pub done: Counter,
    /// Refused or failed.
    pub failed: Counter,
    /// From the request's arrival to its last answer.
    pub seconds: Histogram,
}

/// Handles of the data service.
pub(crate) struct ServiceMetrics {
    ops: Vec<OpMetrics>,
    /// Payload taken in.
    pub received_bytes: Counter,
    /// Payload given out.
    pub sent_bytes: Counter,
    /// Tokens refused.
    pub denied: Counter,
    /// Payloads that were not what their checksums say on arrival.
    pub damaged: Counter,
    /// Reads that had to wait for the disk.
    pub uncached_reads: Counter,
    /// Blocks open on connections.
    pub open_blocks: Gauge,
}

impl ServiceMetrics {
    pub fn new() -> Self {
        let ops = Op::ALL.iter().map(|op| OpMetrics {
            done: counter!("ozone_datanode_requests_total", "op" => op.name(), "result" => "success"),
            failed: counter!("ozone_datanode_requests_total", "op" => op.name(), "result" => "failure"),
            seconds: histogram!("ozone_datanode_request_seconds", "op" => op.name()),
        });
        Self {
            ops: ops.collect(),
            received_bytes: counter!("ozone_datanode_received_bytes_total"),
            sent_bytes: counter!("ozone_datanode_sent_bytes_total"),
            denied: counter!("ozone_datanode_tokens_refused_total"),
            damaged: counter!("ozone_datanode_damaged_payloads_total"),
            uncached_reads: counter!("ozone_datanode_uncached_reads_total"),
            open_blocks: gauge!("ozone_datanode_open_blocks"),
        }
    }

    /// Handles of an operation.
    pub fn op(&self, op: Op) -> &OpMetrics {
        &self.ops[op as usize]
    }
}

/// Handles of the heartbeats.
pub(crate) struct ReportMetrics {
    /// SCMs with which this datanode is registered now.
    pub registered: Gauge,
    /// Streams that were opened or tried.
    pub attempts: Counter,
    /// Reports sent.
    pub reports: Counter,
    /// Containers told to close.
    pub closes: Counter,
    /// Delete transactions carried out.
    pub deletes: Counter,
    /// Commands that failed; the SCM sends them again.
    pub failed: Counter,
    /// Commands refused because a later SCM was obeyed before.
    pub stale: Counter,
}

impl ReportMetrics {
    pub fn new() -> Self {
        Self {
            registered: gauge!("ozone_datanode_scm_registered"),
            attempts: counter!("ozone_datanode_scm_streams_total"),
            reports: counter!("ozone_datanode_reports_total"),
            closes: counter!("ozone_datanode_close_commands_total"),
            deletes: counter!("ozone_datanode_delete_transactions_total"),
            failed: counter!("ozone_datanode_commands_failed_total"),
            stale: counter!("ozone_datanode_commands_stale_total"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_its_handles() {
        let metrics = ServiceMetrics::new();
        for (index, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, index, "{}", op.name());
            metrics.op(op).done.increment(1);
        }
    }
}
