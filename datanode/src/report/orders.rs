//! The SCM's commands, carried out beside the heartbeat: a slow delete must not make this datanode seem dead.

use std::collections::BTreeSet;
use std::sync::Arc;

use ozone_common::id::ContainerId;
use ozone_common::telemetry::RateLimit;
use ozone_common::{Error, ErrorCode, Result};
use ozone_proto::convert::container_id;
use ozone_proto::scm::v1::{CloseContainer, DeleteBlocks};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use super::hub::Listener;
use super::term::TermGuard;
use crate::metrics::ReportMetrics;
use crate::store::{LocalRange, Store};

/// LIMIT: commands being carried out; beyond, no more are taken from the streams.
const COMMANDS_MAX: usize = 256;

/// Carries commands out.
pub(crate) struct Orders {
    store: Arc<Store>,
    term: TermGuard,
    places: Arc<Semaphore>,
    /// Transactions being carried out: the SCM repeats itself.
    deleting: Mutex<BTreeSet<u64>>,
    tasks: TaskTracker,
    metrics: Arc<ReportMetrics>,
}

impl Orders {
    /// Over an open store; its tasks are `tasks`.
    pub fn new(store: Arc<Store>, term: TermGuard, metrics: Arc<ReportMetrics>, tasks: TaskTracker) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(COMMANDS_MAX));
        Arc::new(Self { store, term, places, deleting: Mutex::default(), tasks, metrics })
    }

    /// A place for one more command. cancel-safe.
    pub async fn place(&self) -> OwnedSemaphorePermit {
        self.places.clone().acquire_owned().await.expect("nobody closes this semaphore")
    }

    /// Begins to close a replica. That it is CLOSED is told by the store's changes.
    pub fn close(self: &Arc<Self>, term: u64, command: CloseContainer, place: OwnedSemaphorePermit) {
        let orders = self.clone();
        self.tasks.spawn(async move {
            let done = orders.carry_out_close(term, &command).await;
            match done {
                Ok(()) => orders.metrics.closes.increment(1),
                Err(error) => orders.failed("close", command.container, &error),
            }
            drop(place);
        });
    }

    async fn carry_out_close(self: &Arc<Self>, term: u64, command: &CloseContainer) -> Result<()> {
        let container = container_id(command.container)?;
        self.admit(term).await?;
        tracing::info!(%container, epoch = command.epoch, term, "told to close a container");
        let (sender, done) = oneshot::channel();
        self.store.close_container(container, command.epoch, tell(sender));
        answered(done).await
    }

    /// Deletes blocks, then has `listener` tell the transaction's answer.
    pub fn delete(
        self: &Arc<Self>,
        term: u64,
        command: DeleteBlocks,
        listener: Arc<Listener>,
        place: OwnedSemaphorePermit,
    ) {
        if !self.deleting.lock().insert(command.transaction) {
            return; // being carried out; its answer comes over the stream that asked first, or when it is asked again
        }
        let orders = self.clone();
        self.tasks.spawn(async move {
            let done = orders.carry_out_delete(term, &command).await;
            orders.deleting.lock().remove(&command.transaction);
            match done {
                Ok(()) => {
                    orders.metrics.deletes.increment(1);
                    listener.answer(command.transaction);
                }
                // Not answered, so the SCM asks again.
                Err(error) => orders.failed("delete", command.transaction, &error),
            }
            drop(place);
        });
    }

    async fn carry_out_delete(self: &Arc<Self>, term: u64, command: &DeleteBlocks) -> Result<()> {
        // All is checked before anything is deleted.
        let parts = command.containers.iter().map(|part| {
            let ranges = part.ranges.iter().map(|range| LocalRange { first: range.first, count: range.count });
            Ok((container_id(part.container)?, ranges.collect::<Vec<_>>()))
        });
        let parts = parts.collect::<Result<Vec<(ContainerId, Vec<LocalRange>)>>>()?;
        self.admit(term).await?;
        let mut waiting = Vec::with_capacity(parts.len());
        for (container, ranges) in parts {
            let (sender, done) = oneshot::channel();
            self.store.delete(container, &ranges, command.transaction, tell(sender));
            waiting.push(done);
        }
        for done in waiting {
            answered(done).await?;
        }
        Ok(())
    }

    async fn admit(self: &Arc<Self>, term: u64) -> Result<()> {
        if self.term.is_obeyed(term) {
            return Ok(());
        }
        // May write to the disk.
        let orders = self.clone();
        let admitted = tokio::task::spawn_blocking(move || orders.term.admit(term)).await;
        admitted.map_err(|error| Error::internal(format!("the check of a command's term: {error}")))?
    }

    fn failed(&self, what: &'static str, subject: u64, error: &Error) {
        static LIMIT: RateLimit = RateLimit::every_ms(10_000);
        let counter = if error.code == ErrorCode::NotLeader { &self.metrics.stale } else { &self.metrics.failed };
        counter.increment(1);
        if let Some(held_back) = LIMIT.pass() {
            tracing::warn!(command = what, subject, %error, held_back, "a command of the SCM was not carried out");
        }
    }
}

fn tell(sender: oneshot::Sender<Result<()>>) -> impl FnOnce(Result<()>) + Send + 'static {
    // The task that waits is gone only where the whole process stops.
    move |outcome| drop(sender.send(outcome))
}

async fn answered(done: oneshot::Receiver<Result<()>>) -> Result<()> {
    done.await.unwrap_or_else(|_| Err(Error::new(ErrorCode::ShuttingDown, "the store stopped before it answered")))
}
