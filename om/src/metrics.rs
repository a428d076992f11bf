//! Metrics of the key-space manager. Handles are made once: a call looks up no name.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::prepare::action::Action;

/// Handles per operation.
pub(crate) struct OpMetrics {
    /// Answered with success.
    pub done: Counter,
    /// Refused or failed.
    pub failed: Counter,
    /// From the call's arrival to its answer.
    pub seconds: Histogram,
}

/// All handles.
pub(crate) struct Metrics {
    ops: Vec<OpMetrics>,
    /// Tokens made.
    pub tokens: Counter,
    /// Grants asked of the SCM because the pool had none.
    pub pool_misses: Counter,
    /// Blocks in the pool.
    pub pool_blocks: Gauge,
    /// Lookups that had to ask the SCM for locations.
    pub location_misses: Counter,
    /// Containers with known locations.
    pub locations: Gauge,
    /// Blocks handed to the SCM for deletion.
    pub purged_blocks: Counter,
    /// Grants ended because their time was over.
    pub expired_grants: Counter,
}

impl Metrics {
    pub fn new() -> Self {
        let ops = Action::ALL.iter().map(|action| OpMetrics {
            done: counter!("ozone_om_calls_total", "op" => action.name(), "result" => "success"),
            failed: counter!("ozone_om_calls_total", "op" => action.name(), "result" => "failure"),
            seconds: histogram!("ozone_om_call_seconds", "op" => action.name()),
        });
        Self {
            ops: ops.collect(),
            tokens: counter!("ozone_om_block_tokens_total"),
            pool_misses: counter!("ozone_om_grant_pool_misses_total"),
            pool_blocks: gauge!("ozone_om_grant_pool_blocks"),
            location_misses: counter!("ozone_om_location_misses_total"),
            locations: gauge!("ozone_om_locations_known"),
            purged_blocks: counter!("ozone_om_purged_blocks_total"),
            expired_grants: counter!("ozone_om_expired_grants_total"),
        }
    }

    /// Handles of an operation.
    pub fn op(&self, action: Action) -> Option<&OpMetrics> {
        self.ops.get(action as usize)
    }
}
