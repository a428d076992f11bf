//! Where containers are: members, addresses and epoch, as the SCM last said.
//!
//! Bounded. An entry past its life is asked for again by the first who meets it, while others go on with the old one: readers
//! fail over between replicas anyway and ask for a refresh where all fail.

use std::collections::HashMap;
use std::sync::Arc;

use ozone_common::env::Clock;
use ozone_common::id::ContainerId;
use ozone_common::{Error, ErrorCode};
use ozone_proto::common::v1::NodeAddress;
use ozone_proto::scm::v1::{self as scm, scm_request, scm_response};
use parking_lot::Mutex;

use super::scm_client::{Scm, unexpected};

/// LIMIT: containers remembered.
const ENTRIES_MAX: usize = 64 << 10;
/// LIMIT: containers asked for in one call.
const ASK_MAX: usize = 1000;
/// A refresh asked for within this time of the last answer gets that answer.
const REFRESH_FLOOR_MS: u64 = 100;

/// A container's replicas that count, in order, and the epoch of that membership.
#[derive(Clone, PartialEq, Debug)]
pub struct Location {
    /// In the container's order.
    pub members: Vec<NodeAddress>,
    /// Of the membership.
    pub epoch: u32,
}

struct Known {
    location: Arc<Location>,
    at_ms: u64,
}

/// See the module.
pub struct LocationCache {
    scm: Arc<dyn Scm>,
    clock: Arc<dyn Clock>,
    life_ms: u64,
    known: Mutex<HashMap<ContainerId, Known>>,
    misses: metrics::Counter,
    size: metrics::Gauge,
}

impl LocationCache {
    /// An empty one.
    pub fn new(
        scm: Arc<dyn Scm>,
        clock: Arc<dyn Clock>,
        life_ms: u64,
        misses: metrics::Counter,
        size: metrics::Gauge,
    ) -> Self {
        Self { scm, clock, life_ms, known: Mutex::default(), misses, size }
    }

    fn now_ms(&self) -> u64 {
        self.clock.boot().as_millis() as u64
    }

    /// Takes note of what the SCM said. An older epoch than the known one is ignored.
    pub fn learn(&self, container: ContainerId, members: Vec<NodeAddress>, epoch: u32) {
        if members.is_empty() {
            return;
        }
        let at_ms = self.now_ms();
        let mut known = self.known.lock();
        if known.get(&container).is_some_and(|before| before.location.epoch > epoch) {
            return;
        }
        if known.len() >= ENTRIES_MAX {
            // Any eighth will do: what is in use is asked for again.
            let go: Vec<ContainerId> = known.keys().copied().take(ENTRIES_MAX / 8).collect();
            go.iter().for_each(|container| drop(known.remove(container)));
        }
        known.insert(container, Known { location: Arc::new(Location { members, epoch }), at_ms });
        self.size.set(known.len() as f64);
    }

    /// The location of a container where it is known and young, and not asked to be fresh.
    pub fn peek(&self, container: ContainerId, refresh: bool) -> Option<Arc<Location>> {
        let now_ms = self.now_ms();
        let mut known = self.known.lock();
        let entry = known.get_mut(&container)?;
        let age = now_ms.saturating_sub(entry.at_ms);
        if refresh && age >= REFRESH_FLOOR_MS {
            return None;
        }
        if age >= self.life_ms {
            // This caller asks the SCM; those after it meet the entry as young.
            entry.at_ms = now_ms;
            return None;
        }
        Some(entry.location.clone())
    }

    /// Locations of containers, in their order.
    ///
    /// # Errors
    /// What the SCM answers; `ReplicasUnknown` where it knows of no replica yet.
    pub async fn get(&self, containers: &[ContainerId], refresh: bool) -> Result<Vec<Arc<Location>>, Error> {
        let mut found: Vec<Option<Arc<Location>>> = containers.iter().map(|id| self.peek(*id, refresh)).collect();
        let mut missing: Vec<u64> =
            containers.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(id, _)| id.get()).collect();
        missing.sort_unstable();
        missing.dedup();
        for ask in missing.chunks(ASK_MAX) {
            self.misses.increment(1);
            let op = scm_request::Op::GetContainers(scm::GetContainers { containers: ask.to_vec() });
            let scm_response::Op::Containers(list) = self.scm.call(op).await? else {
                return Err(unexpected("GetContainers"));
            };
            for info in list.containers {
                if let Some(id) = ContainerId::new(info.id) {
                    self.learn(id, info.members, info.epoch);
                }
            }
        }
        let known = self.known.lock();
        containers
            .iter()
            .zip(&mut found)
            .map(|(id, found)| {
                found.take().or_else(|| known.get(id).map(|entry| entry.location.clone())).ok_or_else(|| {
                    let message = format!("no replica of container {id} has been reported yet");
                    Error::new(ErrorCode::ReplicasUnknown, message)
                })
            })
            .collect()
    }
}
