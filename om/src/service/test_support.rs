//! A log of one member in memory and a container manager that answers from a script, for tests of what stands around them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use ozone_common::env::mem_disk::MemDisk;
use ozone_common::env::{Clock, Env, ManualClock, SeededRng};
use ozone_common::id::ClientId;
use ozone_common::{Error, ErrorCode};
use ozone_consensus::executor::Stamp;
use ozone_kvstore::Store;
use ozone_kvstore::mem::MemStore;
use ozone_proto::common::v1::{BlockRange, NodeAddress};
use ozone_proto::scm::v1::{self as scm, scm_request, scm_response};
use parking_lot::Mutex;

use crate::background::Wakers;
use crate::blocks::scm_client::Scm;
use crate::core::command::Command;
use crate::core::{Settings, execute};
use crate::log::{Call, GroupState, Log};
use crate::tables::TABLES;

/// Executes and applies at once; a repeated call gets its first answer.
pub(crate) struct LocalLog {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    wakers: Arc<Wakers>,
    inner: Mutex<(u64, BTreeMap<(ClientId, u64), Result<Bytes, Error>>)>,
    pub members: AtomicU64,
}

impl LocalLog {
    pub fn new(clock: Arc<dyn Clock>, settings: Settings, wakers: Arc<Wakers>) -> Self {
        let store = Arc::new(MemStore::new(Arc::new(MemDisk::new()), TABLES));
        Self { store, clock, settings, wakers, inner: Mutex::default(), members: AtomicU64::new(1) }
    }

    fn execute(&self, call: Option<Call>, command: Command) -> Result<Bytes, Error> {
        let mut inner = self.inner.lock();
        let id = call.map(|call| (call.client, call.sequence));
        if let Some(answer) = id.and_then(|id| inner.1.get(&id)) {
            return answer.clone();
        }
        inner.0 += 1;
        let stamp = Stamp { now_ms: self.clock.now_ms(), term: 1, sequence: inner.0 };
        let effects =
            execute(&self.settings, &*self.store, stamp, command).map_err(|error| crate::error::store(&error))?;
        self.store.write(&effects.rows).map_err(|error| crate::error::store(&error))?;
        effects.hints.into_iter().for_each(|hint| self.wakers.wake(hint));
        if let Some(id) = id {
            inner.1.insert(id, effects.reply.clone());
        }
        effects.reply
    }
}

impl Log for LocalLog {
    async fn propose(&self, call: Call, command: Command) -> Result<Bytes, Error> {
        self.execute(Some(call), command)
    }
    async fn propose_internal(&self, command: Command) -> Result<Bytes, Error> {
        self.execute(None, command)
    }
    async fn read_barrier(&self) -> Result<(), Error> {
        Ok(())
    }
    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
    fn state(&self) -> GroupState {
        let members = self.members.load(Ordering::SeqCst) as u32;
        GroupState { term: 1, applied: self.inner.lock().0, leader: true, members }
    }
}

/// Containers without end, each of `room` blocks, on the nodes 1 to 3.
pub(crate) struct FakeScm {
    pub room: u32,
    pub down: AtomicBool,
    pub calls: Mutex<Vec<scm_request::Op>>,
    /// Container → (next local number, epoch, members).
    pub containers: Mutex<BTreeMap<u64, (u32, u32, Vec<NodeAddress>)>>,
    /// Blocks to delete, as queued.
    pub deletes: Mutex<Vec<scm::QueueDeletes>>,
}

pub(crate) fn node(number: u8) -> NodeAddress {
    NodeAddress { datanode: vec![number; 16].into(), host: format!("dn{number}"), data_port: 9859 }
}

impl FakeScm {
    pub fn new(room: u32) -> Self {
        Self {
            room,
            down: AtomicBool::new(false),
            calls: Mutex::default(),
            containers: Mutex::default(),
            deletes: Mutex::default(),
        }
    }

    pub fn count(&self, what: fn(&scm_request::Op) -> bool) -> usize {
        self.calls.lock().iter().filter(|op| what(op)).count()
    }

    fn info(id: u64, (_, epoch, members): &(u32, u32, Vec<NodeAddress>)) -> scm::ContainerInfo {
        scm::ContainerInfo { id, epoch: *epoch, members: members.clone(), ..Default::default() }
    }

    fn answer(&self, op: scm_request::Op) -> Result<scm_response::Op, Error> {
        self.calls.lock().push(op.clone());
        if self.down.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorCode::SafeMode, "too few datanodes"));
        }
        let mut containers = self.containers.lock();
        Ok(match op {
            scm_request::Op::AllocateBlocks(request) => {
                let (mut ranges, mut left) = (Vec::new(), request.count);
                while left > 0 {
                    let room = self.room;
                    let open = containers.iter().rfind(|(_, (next, ..))| *next < room).map(|(id, _)| *id);
                    let id = open.unwrap_or(containers.len() as u64 + 1);
                    let nodes = [1, 2, 3].map(node).into_iter().filter(|n| !request.exclude.contains(&n.datanode));
                    let entry = containers.entry(id).or_insert_with(|| (0, 1, nodes.collect()));
                    let count = left.min(room - entry.0);
                    ranges.push(BlockRange {
                        container: id,
                        first_local: entry.0,
                        count,
                        epoch: entry.1,
                        replicas: entry.2.clone(),
                        token: None,
                    });
                    entry.0 += count;
                    left -= count;
                }
                scm_response::Op::AllocatedBlocks(scm::AllocatedBlocks { ranges, min_replicas: 2 })
            }
            scm_request::Op::GetContainers(request) => {
                let known =
                    request.containers.iter().filter_map(|id| containers.get(id).map(|entry| Self::info(*id, entry)));
                scm_response::Op::Containers(scm::ContainerList { containers: known.collect(), truncated: false })
            }
            scm_request::Op::ReportFailedReplicas(request) => {
                let entry = containers.get_mut(&request.container).expect("a container of ours");
                if entry.1 == request.epoch {
                    entry.1 += 1;
                    entry.2.retain(|node| !request.failed.contains(&node.datanode));
                }
                scm_response::Op::Container(Self::info(request.container, entry))
            }
            scm_request::Op::QueueDeletes(request) => {
                self.deletes.lock().push(request);
                scm_response::Op::Empty(scm::Empty {})
            }
            scm_request::Op::SafeModeStatus(_) => scm_response::Op::SafeMode(scm::SafeModeReply::default()),
            other => panic!("the OM does not call {other:?}"),
        })
    }
}

impl Scm for FakeScm {
    fn call(&self, op: scm_request::Op) -> BoxFuture<'_, Result<scm_response::Op, Error>> {
        let answer = self.answer(op);
        async move { answer }.boxed()
    }
}

/// Everything from memory, at a clock that stands still.
pub(crate) fn env(clock: &Arc<ManualClock>) -> Env {
    Env { clock: clock.clone(), rng: Arc::new(SeededRng::new(1)), disk: Arc::new(MemDisk::new()) }
}
