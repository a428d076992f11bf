//! A log without consensus, for tests of what stands around it: executes and applies at once, answers a repeated call as the first time.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use ozone_common::Result;
use ozone_common::env::mem_disk::MemDisk;
use ozone_common::id::ClientId;
use ozone_consensus::executor::{Executor, Stamp};
use ozone_kvstore::Store;
use ozone_kvstore::mem::MemStore;
use parking_lot::Mutex;

use crate::core::Command;
use crate::executor::ScmExecutor;
use crate::log::{Call, GroupState, ReplicatedLog, Wakeups};
use crate::tables::TABLES;

pub(crate) struct LocalLog {
    store: MemStore,
    wakeups: Arc<Wakeups>,
    state: Mutex<(u64, HashMap<(ClientId, u64), Result<Bytes>>)>,
}

impl LocalLog {
    pub(crate) fn new(wakeups: Arc<Wakeups>) -> Self {
        Self::over(MemStore::new(Arc::new(MemDisk::new()), &TABLES), wakeups)
    }

    /// On the state that a former one left.
    pub(crate) fn over(store: MemStore, wakeups: Arc<Wakeups>) -> Self {
        Self { store, wakeups, state: Mutex::default() }
    }

    pub(crate) fn mem_store(&self) -> MemStore {
        self.store.clone()
    }
}

impl ReplicatedLog for LocalLog {
    fn propose(&self, call: Option<Call>, command: Command) -> BoxFuture<'_, Result<Bytes>> {
        Box::pin(async move {
            let mut state = self.state.lock();
            let name = call.map(|call| (call.client, call.sequence));
            if let Some(known) = name.and_then(|name| state.1.get(&name)) {
                return known.clone();
            }
            state.0 += 1;
            let stamp = Stamp { now_ms: 1_000_000 + state.0, term: 1, sequence: state.0 };
            let effects = ScmExecutor.execute(&self.store, stamp, command).unwrap();
            self.store.write(&effects.rows).unwrap();
            effects.hints.into_iter().for_each(|hint| self.wakeups.hint(hint));
            if let Some(name) = name {
                state.1.insert(name, effects.reply.clone());
            }
            effects.reply
        })
    }
    fn read_barrier(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    fn store(&self) -> &dyn Store {
        &self.store
    }
    fn status(&self) -> GroupState {
        GroupState { term: 1, applied: self.state.lock().0, leader: true, members: 1 }
    }
}
