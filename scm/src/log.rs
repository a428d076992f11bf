//! The replicated log as the SCM uses it: consensus in production, a local one in tests of what stands around it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use ozone_common::Result;
use ozone_common::id::ContainerId;
use ozone_consensus::group::Group;
pub use ozone_consensus::{Call, GroupState};
use ozone_kvstore::Store;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::core::{Command, Hint};
use crate::executor::ScmExecutor;

/// A group's log and the state it leads to.
pub trait ReplicatedLog: Send + Sync + 'static {
    /// Executes, logs and applies a command; gives its encoded answer or its refusal. `call`: on behalf of a caller.
    fn propose(&self, call: Option<Call>, command: Command) -> BoxFuture<'_, Result<Bytes>>;
    /// After it, [`ReplicatedLog::store`] shows everything answered before it was called.
    fn read_barrier(&self) -> BoxFuture<'_, Result<()>>;
    /// The applied state.
    fn store(&self) -> &dyn Store;
    /// Where it stands.
    fn status(&self) -> GroupState;
}

impl ReplicatedLog for Group<ScmExecutor> {
    fn propose(&self, call: Option<Call>, command: Command) -> BoxFuture<'_, Result<Bytes>> {
        Box::pin(Group::propose(self, call, command))
    }
    fn read_barrier(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(Group::read_barrier(self))
    }
    fn store(&self) -> &dyn Store {
        &**Group::store(self)
    }
    fn status(&self) -> GroupState {
        self.state()
    }
}

/// Who waits for work: filled by hints and reports, emptied by the loops.
#[derive(Default)]
pub struct Wakeups {
    containers: Mutex<BTreeSet<ContainerId>>,
    /// Told when there are containers to look at.
    pub containers_changed: Notify,
    /// Told when deletes were queued, answered, or can be sent.
    pub deletes_changed: Notify,
}

impl Wakeups {
    /// Takes a hint of the core.
    pub fn hint(&self, hint: Hint) {
        match hint {
            Hint::Containers(ids) => self.look_at(ids),
            Hint::Deletes => self.deletes_changed.notify_one(),
        }
    }

    /// These containers' records or replicas changed.
    pub fn look_at(&self, ids: impl IntoIterator<Item = ContainerId>) {
        let mut containers = self.containers.lock();
        let before = containers.len();
        containers.extend(ids);
        if containers.len() != before {
            self.containers_changed.notify_one();
        }
    }

    /// Takes what there is to look at.
    pub fn take_containers(&self) -> BTreeSet<ContainerId> {
        std::mem::take(&mut *self.containers.lock())
    }
}

/// A shared log.
pub type SharedLog = Arc<dyn ReplicatedLog>;
