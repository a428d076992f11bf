//! What all parts of a running SCM share: the log, what was seen, the queues.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ozone_common::env::Env;
use ozone_common::id::{ClusterId, DatanodeId};
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode, Result};
use parking_lot::Mutex;

use crate::config::Config;
use crate::execute::delete_tracker::DeleteTracker;
use crate::execute::queue::Queues;
use crate::log::{SharedLog, Wakeups};
use crate::metrics::Metrics;
use crate::observe::node_health::{Health, Intervals};
use crate::observe::nodes::Nodes;
use crate::observe::replica_map::ReplicaMap;
use crate::observe::safe_mode::SafeMode;
use crate::plan::placement::{Candidate, Insufficient, usable};
use crate::plan::safemode::{self, Limits};
use crate::tables::container::{self, Phase};

/// Soft state: rebuilt from reports after every start.
pub(crate) struct Seen {
    pub nodes: Nodes,
    pub replicas: ReplicaMap,
    pub safe_mode: SafeMode,
}

pub(crate) struct Scm {
    pub config: Config,
    pub cluster: ClusterId,
    pub env: Env,
    pub log: SharedLog,
    pub wakeups: Arc<Wakeups>,
    /// Short critical sections; never held across an await.
    pub seen: Mutex<Seen>,
    pub deletes: Mutex<DeleteTracker>,
    pub queues: Queues,
    pub metrics: Metrics,
    /// Boot time of the start.
    pub started: Duration,
}

/// The state machine's storage failed under a read; the member is about to stop.
pub(crate) fn storage(error: ozone_kvstore::Error) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the SCM's tables: {error}"))
}

impl Scm {
    pub(crate) fn new(
        config: Config,
        cluster: ClusterId,
        env: Env,
        log: SharedLog,
        wakeups: Arc<Wakeups>,
    ) -> Result<Arc<Self>> {
        let mut expected = HashSet::new();
        for container in container::scan(log.store(), 0).map_err(storage)? {
            let container = container.map_err(storage)?;
            if safemode::expects(&container) {
                expected.insert(container.id);
            }
        }
        let limits =
            Limits { datanodes_min: config.safemode_min_datanodes, reported_min: config.safemode_container_threshold };
        let started = env.clock.boot();
        let seen = Seen {
            nodes: Nodes::default(),
            replicas: ReplicaMap::default(),
            safe_mode: SafeMode::new(limits, expected),
        };
        let scm = Arc::new(Self {
            config,
            cluster,
            env,
            log,
            wakeups,
            seen: Mutex::new(seen),
            deletes: Mutex::default(),
            queues: Queues::default(),
            metrics: Metrics::default(),
            started,
        });
        scm.review_safe_mode();
        Ok(scm)
    }

    pub(crate) fn intervals(&self) -> Intervals {
        Intervals { stale: self.config.stale_after.duration(), dead: self.config.dead_after.duration() }
    }

    pub(crate) fn term(&self) -> u64 {
        self.log.status().term
    }

    /// Leaves safe mode where the rules allow it.
    pub(crate) fn review_safe_mode(&self) {
        let now = self.env.clock.boot();
        let mut seen = self.seen.lock();
        let healthy = seen.nodes.count(Health::Healthy, now, &self.intervals());
        if seen.safe_mode.ends_now(healthy) {
            let after_ms = now.saturating_sub(self.started).as_millis() as u64;
            tracing::info!(after_ms, datanodes = healthy, "safe mode ended");
        }
        self.metrics.safe_mode.set(if seen.safe_mode.is_on() { 1.0 } else { 0.0 });
    }

    /// Every node as placement sees it, with the open containers it is a member of.
    pub(crate) fn candidates(&self, exclude: &[DatanodeId]) -> Result<Vec<Candidate>> {
        let mut open: BTreeMap<DatanodeId, u32> = BTreeMap::new();
        for phase in [Phase::Filling, Phase::Spent] {
            for container in container::in_phase(self.log.store(), phase, None).map_err(storage)? {
                for member in container.members {
                    *open.entry(member).or_default() += 1;
                }
            }
        }
        let now = self.env.clock.boot();
        let count = |id| open.get(&id).copied().unwrap_or(0);
        Ok(self.seen.lock().nodes.candidates(now, &self.intervals(), exclude, count))
    }

    /// Nodes on which blocks may be placed now. Shortly after a start only with all replicas: other nodes are about to register.
    pub(crate) fn usable(
        &self,
        replication: Replication,
        exclude: &[DatanodeId],
    ) -> Result<std::result::Result<Vec<Candidate>, Insufficient>> {
        let settled = self.env.clock.boot().saturating_sub(self.started) >= self.config.degraded_after.duration();
        let needed = if settled { replication.min_replicas() } else { replication.replicas() };
        let candidates = self.candidates(exclude)?;
        Ok(usable(replication, needed, self.config.min_free_space.get(), &candidates))
    }
}
