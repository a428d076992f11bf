//! What the SCM has not been told yet. Bounded by the number of containers, and of corrupt blocks by a limit.

use std::collections::BTreeSet;

use ozone_common::id::ContainerId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::CorruptBlock;

/// LIMIT: corrupt blocks not yet told; beyond it their replicas' state alone tells.
const CORRUPT_MAX: usize = 1024;

/// What changed.
#[derive(Default, Debug)]
pub(crate) struct Pending {
    pub containers: BTreeSet<ContainerId>,
    pub corrupt: Vec<CorruptBlock>,
    pub volumes: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ChangeLog {
    pending: Mutex<Pending>,
    notify: Notify,
}

impl ChangeLog {
    /// A replica changed.
    pub(crate) fn replica(&self, container: ContainerId) {
        if self.pending.lock().containers.insert(container) {
            self.notify.notify_one();
        }
    }

    /// A block is damaged.
    pub(crate) fn corrupt(&self, corrupt: CorruptBlock) {
        let mut pending = self.pending.lock();
        if pending.corrupt.len() < CORRUPT_MAX && !pending.corrupt.contains(&corrupt) {
            pending.corrupt.push(corrupt);
        }
        drop(pending);
        self.notify.notify_one();
    }

    /// A volume failed, and with it these replicas.
    pub(crate) fn volume(&self, replicas: impl Iterator<Item = ContainerId>) {
        let mut pending = self.pending.lock();
        pending.volumes = true;
        pending.containers.extend(replicas);
        drop(pending);
        self.notify.notify_one();
    }

    /// Takes all.
    pub(crate) fn take(&self) -> Pending {
        std::mem::take(&mut self.pending.lock())
    }

    /// Returns once something may have changed. cancel-safe.
    pub(crate) async fn changed(&self) {
        self.notify.notified().await;
    }
}
