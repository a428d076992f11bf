//! Metric handles, looked up once.

use metrics::{Counter, Gauge, counter, gauge};

/// The SCM's metrics.
pub struct Metrics {
    /// Block ids handed out.
    pub blocks_allocated: Counter,
    /// Allocations refused.
    pub allocations_refused: Counter,
    /// Failed replicas that writers reported.
    pub replicas_failed: Counter,
    /// Containers that went from OPEN to CLOSING by a decision of the SCM.
    pub containers_closed: Counter,
    /// Corrupt blocks reported.
    pub corrupt_blocks: Counter,
    /// Replicas reported of containers without a record.
    pub unknown_replicas: Counter,
    /// Delete transactions done.
    pub deletes_finished: Counter,
    /// Delete transactions sent and not answered.
    pub deletes_in_flight: Gauge,
    /// Datanodes HEALTHY.
    pub nodes_healthy: Gauge,
    /// Datanodes STALE.
    pub nodes_stale: Gauge,
    /// Datanodes DEAD.
    pub nodes_dead: Gauge,
    /// Containers OPEN, CLOSING or DELETING.
    pub containers_active: Gauge,
    /// 1 in safe mode.
    pub safe_mode: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            blocks_allocated: counter!("ozone_scm_blocks_allocated_total"),
            allocations_refused: counter!("ozone_scm_allocations_refused_total"),
            replicas_failed: counter!("ozone_scm_replicas_failed_total"),
            containers_closed: counter!("ozone_scm_containers_closed_total"),
            corrupt_blocks: counter!("ozone_scm_corrupt_blocks_total"),
            unknown_replicas: counter!("ozone_scm_unknown_replicas_total"),
            deletes_finished: counter!("ozone_scm_delete_transactions_finished_total"),
            deletes_in_flight: gauge!("ozone_scm_delete_transactions_in_flight"),
            nodes_healthy: gauge!("ozone_scm_nodes", "health" => "HEALTHY"),
            nodes_stale: gauge!("ozone_scm_nodes", "health" => "STALE"),
            nodes_dead: gauge!("ozone_scm_nodes", "health" => "DEAD"),
            containers_active: gauge!("ozone_scm_containers_active"),
            safe_mode: gauge!("ozone_scm_safe_mode"),
        }
    }
}
