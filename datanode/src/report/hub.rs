//! What changed, kept for each stream until its next report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::id::{BlockId, ContainerId};
use ozone_proto::scm::v1::{self as wire, NodeReport};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::store::{ReplicaReport, ReplicaState, Store};

/// Changes that come together are told together.
const GATHER: Duration = Duration::from_millis(10);
/// LIMIT: damaged blocks remembered, to be told to an SCM that returns.
const CORRUPT_MAX: usize = 10_000;

/// What one stream has still to tell.
#[derive(Default)]
struct Pending {
    replicas: BTreeMap<ContainerId, ReplicaReport>,
    corrupt: BTreeMap<BlockId, String>,
    answers: BTreeSet<u64>,
    volumes: bool,
}

/// A stream's place at the hub.
#[derive(Default)]
pub(crate) struct Listener {
    pending: Mutex<Pending>,
    /// There is something to tell.
    pub changed: Notify,
}

struct State {
    listeners: Vec<Arc<Listener>>,
    /// All damage found since the start.
    corrupt: BTreeMap<BlockId, String>,
}

/// Hands the store's changes to all streams.
pub(crate) struct Hub {
    store: Arc<Store>,
    state: Mutex<State>,
}

impl Hub {
    /// Over an open store.
    pub fn new(store: Arc<Store>) -> Arc<Self> {
        Arc::new(Self { store, state: Mutex::new(State { listeners: Vec::new(), corrupt: BTreeMap::new() }) })
    }

    /// Takes changes from the store until shutdown.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let taking = async {
            loop {
                self.store.changed().await;
                tokio::time::sleep(GATHER).await;
                self.take();
            }
        };
        shutdown.run_until_cancelled(taking).await;
    }

    fn take(&self) {
        // ORDER: held over taking and handing on, so that a full report made meanwhile is not followed by something older.
        let mut state = self.state.lock();
        let changes = self.store.take_changes();
        for corrupt in &changes.corrupt {
            if state.corrupt.len() < CORRUPT_MAX {
                state.corrupt.insert(corrupt.block, corrupt.what.clone());
            }
        }
        for listener in &state.listeners {
            let mut pending = listener.pending.lock();
            pending.replicas.extend(changes.replicas.iter().map(|replica| (replica.container, replica.clone())));
            pending.corrupt.extend(changes.corrupt.iter().map(|corrupt| (corrupt.block, corrupt.what.clone())));
            pending.volumes |= changes.volumes;
            drop(pending);
            listener.changed.notify_one();
        }
    }

    /// A stream begins; it is told all changes from now on. Ends when the listener is dropped by its stream.
    pub fn listen(self: &Arc<Self>) -> Listening {
        let listener = Arc::new(Listener::default());
        self.state.lock().listeners.push(listener.clone());
        Listening { hub: self.clone(), listener }
    }
}

/// A stream that is told changes.
pub(crate) struct Listening {
    hub: Arc<Hub>,
    /// Its place.
    pub listener: Arc<Listener>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.hub.state.lock().listeners.retain(|other| !Arc::ptr_eq(other, &self.listener));
    }
}

impl Listening {
    /// All there is; what was pending is contained in it.
    pub fn full(&self) -> NodeReport {
        let state = self.hub.state.lock();
        let mut pending = self.listener.pending.lock();
        let answers = std::mem::take(&mut pending.answers);
        *pending = Pending::default();
        let replicas = self.hub.store.report();
        NodeReport { full: true, ..self.report(&replicas.iter().collect::<Vec<_>>(), &state.corrupt, answers) }
    }

    /// What changed since the last report.
    pub fn changes(&self) -> NodeReport {
        let pending = std::mem::take(&mut *self.listener.pending.lock());
        self.report(&pending.replicas.values().collect::<Vec<_>>(), &pending.corrupt, pending.answers)
    }

    /// Whether there is anything but the next heartbeat to tell.
    pub fn has_news(&self) -> bool {
        let pending = self.listener.pending.lock();
        !pending.replicas.is_empty() || !pending.corrupt.is_empty() || !pending.answers.is_empty() || pending.volumes
    }

    fn report(
        &self,
        replicas: &[&ReplicaReport],
        corrupt: &BTreeMap<BlockId, String>,
        answers: BTreeSet<u64>,
    ) -> NodeReport {
        let volumes = self.hub.store.usage().into_iter().map(|volume| wire::DiskVolumeReport {
            volume: Bytes::copy_from_slice(volume.id.as_bytes()),
            capacity: volume.capacity_bytes,
            used: volume.used_bytes,
            available: volume.available_bytes,
            failed: volume.failed.is_some(),
        });
        let corrupt = corrupt.iter().map(|(block, what)| wire::CorruptBlock { block: block.get(), what: what.clone() });
        NodeReport {
            register: None,
            sequence: 0,
            volumes: volumes.collect(),
            containers: replicas.iter().map(|replica| wire_replica(replica)).collect(),
            full: false,
            delete_transactions_done: answers.into_iter().collect(),
            corrupt: corrupt.collect(),
        }
    }
}

impl Listener {
    /// A delete transaction was carried out durably.
    pub fn answer(&self, transaction: u64) {
        self.pending.lock().answers.insert(transaction);
        self.changed.notify_one();
    }
}

fn wire_replica(replica: &ReplicaReport) -> wire::ContainerReplicaReport {
    let state = match replica.state {
        ReplicaState::Open => wire::ReplicaState::Open,
        ReplicaState::Closing => wire::ReplicaState::Closing,
        ReplicaState::Closed => wire::ReplicaState::Closed,
        ReplicaState::Unhealthy => wire::ReplicaState::Unhealthy,
        ReplicaState::Deleted => wire::ReplicaState::Deleted,
    };
    wire::ContainerReplicaReport {
        container: replica.container.get(),
        state: state as i32,
        epoch: replica.epoch,
        used: replica.used_bytes,
        blocks: replica.block_count,
        delete_sequence: replica.delete_sequence,
        digest: replica.digest.map(|digest| Bytes::copy_from_slice(&digest)).unwrap_or_default(),
    }
}
