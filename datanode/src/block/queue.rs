//! What waits for a lane.
//!
//! LIMIT: bytes and count; a full queue refuses at once, and the writer's client backs off. Deletes, discards and ends are always taken,
//! since they are few and give space back.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::id::BlockId;
use ozone_common::{Error, ErrorCode};
use parking_lot::{Condvar, Mutex};

use crate::container::replica::{OpenBlock, Replica};
use crate::store::{Durability, LocalRange, Seal};

/// LIMIT: jobs waiting in one queue.
const JOBS_MAX: usize = 1 << 15;
/// What a job takes beside its payload.
const JOB_BYTES: usize = 256;

/// Called once with the outcome.
pub(crate) type Done<T = ()> = Box<dyn FnOnce(Result<T, Error>) + Send>;

/// Work for a lane.
pub(crate) enum Job {
    /// A whole block. `known`: its id was seen before, so its row (a promise) must be looked at.
    Put {
        replica: Arc<Replica>,
        block: BlockId,
        epoch: u32,
        crcs: Vec<u32>,
        data: Bytes,
        durability: Durability,
        known: bool,
        done: Done,
    },
    /// Bytes of a block from `offset` on; `block_crc` is that of the block with them.
    Chunk {
        replica: Arc<Replica>,
        open: Arc<OpenBlock>,
        offset: u64,
        crcs: Vec<u32>,
        block_crc: u32,
        data: Bytes,
        done: Done,
    },
    /// The end of a block.
    Finish { replica: Arc<Replica>, open: Arc<OpenBlock>, length: u64, done: Done },
    /// Processed alone, with all before it applied.
    Seal { replica: Arc<Replica>, seal: Seal, done: Done<u64> },
    /// Tombstones.
    Delete { replica: Arc<Replica>, ranges: Vec<LocalRange>, transaction: u64, done: Done },
    /// Drops blocks that were never finished, since the replica closes.
    Discard { replica: Arc<Replica>, blocks: Vec<BlockId>, done: Done },
    /// Ends the lane's segment of a replica, durably. Processed alone.
    End { replica: Arc<Replica>, done: Done },
}

impl Job {
    pub(crate) fn replica(&self) -> &Arc<Replica> {
        match self {
            Self::Put { replica, .. }
            | Self::Chunk { replica, .. }
            | Self::Finish { replica, .. }
            | Self::Seal { replica, .. }
            | Self::Delete { replica, .. }
            | Self::Discard { replica, .. }
            | Self::End { replica, .. } => replica,
        }
    }

    /// Bytes it holds in memory.
    fn size(&self) -> usize {
        match self {
            Self::Put { data, .. } | Self::Chunk { data, .. } => data.len() + JOB_BYTES,
            _ => JOB_BYTES,
        }
    }

    /// Whether a full queue refuses it.
    fn can_be_refused(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Chunk { .. } | Self::Finish { .. } | Self::Seal { .. })
    }

    /// Answers a job that is not carried out.
    pub(crate) fn refuse(self, error: Error) {
        match self {
            Self::Put { done, .. }
            | Self::Chunk { done, .. }
            | Self::Finish { done, .. }
            | Self::Delete { done, .. }
            | Self::Discard { done, .. }
            | Self::End { done, .. } => done(Err(error)),
            Self::Seal { done, .. } => done(Err(error)),
        }
    }
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    bytes: usize,
    closed: bool,
}

/// The queue of one lane.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    bytes_max: usize,
}

/// Why a job was not taken, with the job.
pub(crate) struct Refused(pub Box<Job>, pub Error);

impl Queue {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { waiting: Mutex::default(), arrived: Condvar::new(), bytes_max }
    }

    /// Puts a job in.
    pub(crate) fn push(&self, job: Job) -> Result<(), Refused> {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            drop(waiting);
            let stopping = Error::new(ErrorCode::ShuttingDown, "the datanode is stopping");
            return Err(Refused(Box::new(job), stopping));
        }
        let size = job.size();
        let full = waiting.bytes + size > self.bytes_max || waiting.jobs.len() >= JOBS_MAX;
        if full && job.can_be_refused() {
            drop(waiting);
            metrics::counter!("ozone_datanode_overloaded_total").increment(1);
            return Err(Refused(Box::new(job), Error::new(ErrorCode::Overloaded, "the disk volume's queue is full")));
        }
        waiting.bytes += size;
        waiting.jobs.push_back(job);
        let first = waiting.jobs.len() == 1;
        drop(waiting);
        if first {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Takes what waits, up to `bytes_max` and `jobs_max`, a seal or an end by itself. Waits for work; `None` once closed and empty.
    pub(crate) fn take(&self, bytes_max: usize, jobs_max: usize) -> Option<Vec<Job>> {
        let mut waiting = self.waiting.lock();
        while waiting.jobs.is_empty() {
            if waiting.closed {
                return None;
            }
            self.arrived.wait(&mut waiting);
        }
        Some(Self::some(&mut waiting, bytes_max, jobs_max))
    }

    /// As [`Queue::take`] without waiting; empty where nothing waits.
    #[cfg(test)]
    pub(crate) fn take_now(&self, bytes_max: usize, jobs_max: usize) -> Vec<Job> {
        Self::some(&mut self.waiting.lock(), bytes_max, jobs_max)
    }

    fn some(waiting: &mut Waiting, bytes_max: usize, jobs_max: usize) -> Vec<Job> {
        let mut taken = Vec::with_capacity(waiting.jobs.len().min(jobs_max));
        let mut bytes = 0;
        while let Some(job) = waiting.jobs.front() {
            let alone = matches!(job, Job::Seal { .. } | Job::End { .. });
            let size = job.size();
            if !taken.is_empty() && (alone || bytes + size > bytes_max || taken.len() >= jobs_max) {
                break;
            }
            bytes += size;
            taken.extend(waiting.jobs.pop_front());
            if alone {
                break;
            }
        }
        waiting.bytes -= bytes;
        taken
    }

    /// Keeps everybody out until what it gives is dropped.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.waiting.lock()
    }

    /// Takes the last job out.
    #[cfg(test)]
    pub(crate) fn take_back(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        let job = waiting.jobs.pop_back()?;
        waiting.bytes -= job.size();
        Some(job)
    }

    /// Takes no more jobs; those that wait are still taken out.
    pub(crate) fn close(&self) {
        self.waiting.lock().closed = true;
        self.arrived.notify_all();
    }
}
