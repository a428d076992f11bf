//! The replicated log as the SCM uses it: consensus in production, a local one in tests of what stands around it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use ozone_common::Result;
use ozone_common::id::{ClientId, ContainerId};
use ozone_kvstore::Store;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::core::{Command, Hint};

/// The name of a caller's call, under which it has effect once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Whose.
    pub client: ClientId,
    /// Its number.
    pub sequence: u64,
    /// Answers below it may be forgotten.
    pub lowest_unanswered: u64,
}

/// Where the group stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogStatus {
    /// Present term.
    pub term: u64,
    /// Last applied index.
    pub applied: u64,
    /// Whether this member leads.
    pub leader: bool,
    /// Members of the group.
    pub members: u32,
}

/// A group's log and the state it leads to.
pub trait ReplicatedLog: Send + Sync + 'static {
    /// Executes, logs and applies a command; gives its encoded answer or its refusal. `call`: on behalf of a caller.
    fn propose(&self, call: Option<Call>, command: Command) -> BoxFuture<'_, Result<Bytes>>;
    /// After it, [`ReplicatedLog::store`] shows everything answered before it was called.
    fn read_barrier(&self) -> BoxFuture<'_, Result<()>>;
    /// The applied state.
    fn store(&self) -> &dyn Store;
    /// Where it stands.
    fn status(&self) -> LogStatus;
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
