//! The door to container replicas on this node's disk volumes. Everything above it (service, reports) uses these types only.
//!
//! ```text
//!  put_small ─┐                       ┌─ small lane ─▶ segments ─▶ index ─▶ done
//!  append ────┼─▶ replica's volume ───┤
//!  seal ──────┘                       └─ bulk lane  ─▶ segments ─▶ index ─▶ done
//!  read ───────▶ index ─▶ segment (page cache, or a thread that may wait)
//! ```
//! Conventions
//! - **No method waits for the disk** unless its documentation says so: work is queued for the volume's lanes, and the answer is given to a
//!   callback on the lane's thread. Callbacks must be short (send to a channel), since others wait behind them. Each is called exactly once.
//! - Payload is verified against its checksums before it is queued, on the caller's thread; wrong ones are answered `Corrupt`.
//! - Queues are bounded by bytes; a full one answers `Overloaded` at once.
//! - A replica is made by its first block, on the volume with the fewest open replicas and most room; it records the epoch and members it was made with.
//! - Epochs: an append or put under an epoch lower than the replica's or lower than a promise made by [`Store::seal`] is answered `StaleEpoch`.
//! - After a restart no replica takes new blocks or appends (`ContainerNotOpen`); it is reported CLOSING until told to close. Blocks not finished
//!   stay sealable at the length recovered.
//! - A failed volume answers `VolumeFailed` for all it held; the others go on.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::checksum::{combine_windows, crc32c_combine, first_mismatch};
use ozone_common::env::Env;
use ozone_common::id::{BlockId, ClusterId, ContainerId, DatanodeId, DiskVolumeId, LOCAL_BITS};
use ozone_common::limits::{BLOCK_LENGTH_MAX, BYTES_PER_CHECKSUM, FRAME_PAYLOAD_MAX};
use ozone_common::{Error, ErrorCode};
use ozone_kvstore::rocks::{Memory, RocksOptions, RocksStore};
use parking_lot::{Mutex, MutexGuard};

use crate::block::lane::Lane;
use crate::block::queue::{Job, Queue, Refused};
use crate::block::read::Plan;
use crate::block::row::TABLES;
use crate::container::replica::{self, OpenState, Phase, Replica, State, WriterState};
use crate::container::shared::{Shared, Slot};
use crate::container::upkeep::Upkeep;
use crate::recover::open_replicas;
use crate::volume::{DiskVolume, OpenError, OpenIndex};

/// Blocks of at most this many bytes, in one piece, are packed with others; larger ones get pages of their own.
const SMALL_RECORD_MAX: usize = 128 << 10;
/// Memory of the indexes of all volumes: in all, and of that for rows not yet flushed.
const INDEX_CACHE_BYTES: usize = 32 << 20;
const INDEX_WRITE_BYTES: usize = 16 << 20;

/// One folder, usually one disk, that replicas are kept in.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// The folder; made where it is absent.
    pub path: PathBuf,
    /// Bytes of the file system that new data leaves free, for the index, deletes and whoever else is there.
    pub reserved_bytes: u64,
}

/// Who the store belongs to; folders of another cluster or datanode are refused.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The cluster.
    pub cluster: ClusterId,
    /// This datanode.
    pub datanode: DatanodeId,
}

/// What a caller may tune.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long blocks that were neither finished nor sealed keep a closing replica from being CLOSED, milliseconds since they last grew.
    /// At least as long as a writer needs to have a lost member recorded and to seal the survivors.
    pub seal_grace_ms: u64,
    /// Bytes that may wait in each of the two lanes of a volume.
    pub lane_queue_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { seal_grace_ms: 30_000, lane_queue_bytes: 64 << 20 }
    }
}

/// When an answer is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// After fdatasync.
    Disk,
    /// Once it is in the page cache.
    Memory,
}

/// A whole block in one piece.
#[derive(Clone, Debug)]
pub struct PutSmall<'a> {
    /// Its id, never used before.
    pub block: BlockId,
    /// The container's epoch that the writer knows.
    pub epoch: u32,
    /// Datanodes of the container under this epoch, 16 bytes each; recorded where this block makes the replica.
    pub members: &'a [Bytes],
    /// When to answer.
    pub durability: Durability,
    /// CRC32C of each 16 KiB window of the payload.
    pub crcs: Vec<u32>,
}

/// A block that comes in chunks.
#[derive(Clone, Debug)]
pub struct OpenBlock<'a> {
    /// Its id, never used before.
    pub block: BlockId,
    /// The container's epoch that the writer knows.
    pub epoch: u32,
    /// Datanodes of the container under this epoch, 16 bytes each; recorded where this block makes the replica.
    pub members: &'a [Bytes],
    /// When [`Writer::finish`] is answered; appends are answered once they are in the page cache.
    pub durability: Durability,
}

/// The one writer of an open block, in the order of its calls.
///
/// Dropping it means that the connection broke: what was appended stays, and stays sealable until the replica is CLOSED.
pub struct Writer {
    shared: Arc<Shared>,
    volume: Arc<DiskVolume>,
    replica: Arc<Replica>,
    open: Arc<replica::OpenBlock>,
}

impl Writer {
    /// Which block.
    pub fn block(&self) -> BlockId {
        self.open.id
    }

    /// Appends a chunk. `offset` is where the block ends with all appends before this one, answered or not.
    ///
    /// # Errors
    /// `OutOfOrder` where `offset` is another, or the chunk before was not whole windows; `Corrupt` where `crcs` are not those of `data`; `StaleEpoch` where the
    /// block was sealed; `TooLarge`, `ContainerNotOpen`, `BlockDeleted`, `DiskFull`, `VolumeFailed`, `Overloaded`. After an error no append succeeds.
    pub fn append(
        &mut self,
        offset: u64,
        crcs: Vec<u32>,
        data: Bytes,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let block_crc = match self.take(offset, &crcs, &data) {
            Ok(block_crc) => block_crc,
            Err(error) => {
                self.open.state.lock().fenced.get_or_insert_with(|| error.clone());
                return done(Err(error));
            }
        };
        let (replica, open) = (self.replica.clone(), self.open.clone());
        let job = Job::Chunk { replica, open, offset, crcs, block_crc, data, done: Box::new(done) };
        if let Err(error) = submit(&self.shared, &self.volume.bulk, job) {
            self.open.state.lock().fenced.get_or_insert(error);
        }
    }

    /// Judges a chunk and counts it as on its way. The block's checksum with it.
    fn take(&self, offset: u64, crcs: &[u32], data: &Bytes) -> Result<u32, Error> {
        let block = self.open.id;
        let length = data.len() as u64;
        if data.is_empty() {
            return Err(Error::invalid(format!("block {block}: a chunk has no bytes")));
        }
        if offset.saturating_add(length) > BLOCK_LENGTH_MAX || data.len() > FRAME_PAYLOAD_MAX {
            let text = format!("block {block}: {length} bytes at {offset}; a block has {BLOCK_LENGTH_MAX} at most");
            return Err(Error::new(ErrorCode::TooLarge, text));
        }
        verify(block, data, crcs)?;
        self.volume.check()?;
        self.volume.check_room(length)?;
        let mut state = self.replica.state.lock();
        state.check_write(self.replica.id, self.open.epoch, false)?;
        let mut open = self.open.state.lock();
        if let Some(error) = open.fenced.as_ref().or(open.failed.as_ref()) {
            return Err(error.clone());
        }
        if offset != open.submitted || open.ended {
            let ended = if open.ended { ", with a chunk that was not whole windows" } else { "" };
            let text = format!("block {block} ends at {}{ended}; the chunk is for {offset}", open.submitted);
            return Err(Error::new(ErrorCode::OutOfOrder, text));
        }
        open.submitted += length;
        open.crc = crc32c_combine(open.crc, combine_windows(crcs, length), length);
        open.ended = !data.len().is_multiple_of(BYTES_PER_CHECKSUM);
        open.grown_ms = self.shared.clock.now_ms();
        state.in_flight += 1;
        Ok(open.crc)
    }

    /// Makes the block final at `length`, durable as it was opened.
    ///
    /// # Errors
    /// As [`Writer::append`]; `OutOfOrder` where it does not hold exactly `length` bytes, or none.
    pub fn finish(self, length: u64, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let judge = || {
            self.volume.check()?;
            let mut state = self.replica.state.lock();
            state.check_write(self.replica.id, self.open.epoch, false)?;
            let open = self.open.state.lock();
            if let Some(error) = open.fenced.as_ref().or(open.failed.as_ref()) {
                return Err(error.clone());
            }
            if length != open.submitted || length == 0 {
                let text = format!("block {} has {} bytes, not {length}", self.open.id, open.submitted);
                return Err(Error::new(ErrorCode::OutOfOrder, text));
            }
            state.in_flight += 1;
            Ok(())
        };
        if let Err(error) = judge() {
            return done(Err(error));
        }
        let (replica, open) = (self.replica.clone(), self.open.clone());
        let job = Job::Finish { replica, open, length, done: Box::new(done) };
        // What refused it was told to `done`.
        let _ = submit(&self.shared, &self.volume.bulk, job);
    }

    /// The writer gave the block up: a closing replica need not wait for it.
    pub fn abandon(self) {
        self.open.state.lock().writer = WriterState::Abandoned;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut open = self.open.state.lock();
        if open.writer == WriterState::Present {
            open.writer = WriterState::Gone;
        }
        drop(open);
        self.shared.may_close(&self.replica);
    }
}

/// What [`Store::seal`] is asked.
#[derive(Clone, Copy, Debug)]
pub struct Seal {
    /// Which block.
    pub block: BlockId,
    /// No append or put below this epoch from now on.
    pub epoch: u32,
    /// The length that the block ends with; `None` promises and asks how long it is.
    pub length: Option<u64>,
}

/// What [`Store::read`] is asked.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Which block.
    pub block: BlockId,
    /// The epoch it was committed under: a replica that has it under a lower one refuses.
    pub epoch: u32,
    /// Its committed length: a replica that holds less refuses.
    pub block_length: u64,
    /// First byte wanted.
    pub offset: u64,
    /// Bytes wanted, at least 1, ending within the block.
    pub length: u64,
}

/// A piece of a read: whole checksum windows of the block (the last may end with it), so it may begin before what was asked and end after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where in the block it begins.
    pub offset: u64,
    /// CRC32C of each window, as the writer gave them. Not verified here: the reader does.
    pub crcs: Vec<u32>,
    /// The bytes, at most 1 MiB.
    pub data: Bytes,
    /// Whether it is the last.
    pub last: bool,
}

/// The pieces of a read, in order.
pub struct ReadPlan {
    shared: Arc<Shared>,
    plan: Plan,
}

impl ReadPlan {
    /// The next piece where it is in the page cache; `None` where [`ReadPlan::next_piece`] has to be called on a thread that may wait. Not to be called after the last.
    ///
    /// # Errors
    /// `Corrupt` where a record's header is not what was written; `VolumeFailed` where the disk does not give it.
    pub fn next_cached(&mut self) -> Result<Option<Piece>, Error> {
        let piece = self.plan.next_cached();
        piece.inspect_err(|error| self.note(error))
    }

    /// The next piece, waiting for the disk. Not to be called after the last.
    ///
    /// # Errors
    /// As [`ReadPlan::next_cached`].
    pub fn next_piece(&mut self) -> Result<Piece, Error> {
        let piece = self.plan.next_piece();
        piece.inspect_err(|error| self.note(error))
    }

    /// What goes wrong in reading is looked into.
    fn note(&self, error: &Error) {
        if matches!(error.code, ErrorCode::Corrupt | ErrorCode::VolumeFailed) {
            self.shared.suspect(self.plan.block(), 0);
        }
    }
}

/// Blocks of a container, by local number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalRange {
    /// The first.
    pub first: u32,
    /// How many, at least 1.
    pub count: u32,
}

/// State of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaState {
    /// Takes blocks.
    Open,
    /// Takes no new blocks; open ones may be finished or sealed.
    Closing,
    /// Takes nothing but deletes, and seals that raise the epoch of a block it has; durable.
    Closed,
    /// Something of it is damaged or lost; what is left can be read.
    Unhealthy,
    /// Gone, or on a failed volume.
    Deleted,
}

/// A replica as reported to the SCM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaReport {
    /// Of which container.
    pub container: ContainerId,
    /// Its state.
    pub state: ReplicaState,
    /// The highest epoch it was told.
    pub epoch: u32,
    /// Bytes of live blocks.
    pub used_bytes: u64,
    /// Live blocks.
    pub block_count: u64,
    /// The highest delete transaction it carried out.
    pub delete_sequence: u64,
    /// Digest of blocks and tombstones, once CLOSED.
    pub digest: Option<[u8; 32]>,
}

/// A block whose bytes here are not what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CorruptBlock {
    /// Which.
    pub block: BlockId,
    /// What was found, for people.
    pub what: String,
}

/// What changed since it was last asked.
#[derive(Clone, Default, Debug)]
pub struct Changes {
    /// Replicas as they are now, by container.
    pub replicas: Vec<ReplicaReport>,
    /// Damage found.
    pub corrupt: Vec<CorruptBlock>,
    /// A volume failed.
    pub volumes: bool,
}

/// A volume as reported to the SCM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeReport {
    /// Which; all zeros where it failed before it said so.
    pub id: DiskVolumeId,
    /// Its folder.
    pub path: PathBuf,
    /// Bytes of the file system.
    pub capacity_bytes: u64,
    /// Bytes that replicas take on disk, deleted ones not yet given back included.
    pub used_bytes: u64,
    /// Bytes that new data may still take.
    pub available_bytes: u64,
    /// Why it is out of use, where it is.
    pub failed: Option<String>,
}

/// All replicas of this node. Shared by reference; safe from any thread.
pub struct Store {
    shared: Arc<Shared>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

/// Queues a job that was judged.
fn submit(shared: &Shared, queue: &Queue, job: Job) -> Result<(), Error> {
    pushed(shared, queue.push(job))
}

/// Counts a job as no longer on its way, where its queue refused it, and answers it. Its replica's state must not be held.
fn pushed(shared: &Shared, pushed: Result<(), Refused>) -> Result<(), Error> {
    let Err(Refused(job, error)) = pushed else { return Ok(()) };
    let replica = job.replica().clone();
    {
        let mut state = replica.state.lock();
        state.in_flight -= 1;
        if let Job::Put { block, known: false, .. } = &*job {
            state.give_id_back(*block);
        }
    }
    shared.may_close(&replica);
    job.refuse(error.clone());
    Err(error)
}

fn verify(block: BlockId, data: &[u8], crcs: &[u32]) -> Result<(), Error> {
    match first_mismatch(data, crcs) {
        None => Ok(()),
        Some(window) => {
            let text = format!("block {block}: window {window} of what arrived is not what its checksum says");
            Err(Error::new(ErrorCode::Corrupt, text))
        }
    }
}

impl Store {
    /// Opens the volumes and recovers what a crash left. Waits for the disk, for seconds after a crash.
    ///
    /// # Errors
    /// Where no volume can be used, or one belongs to another cluster or datanode. A volume that fails alone is reported failed.
    pub fn open(volumes: Vec<VolumeConfig>, owner: Owner, options: Options, env: Env) -> Result<Self, Error> {
        let memory = Memory::new(INDEX_CACHE_BYTES, INDEX_WRITE_BYTES);
        let open_index = move |path: &Path| -> ozone_kvstore::Result<Arc<dyn ozone_kvstore::Store>> {
            let options = RocksOptions { memory: memory.clone(), ..RocksOptions::default() };
            Ok(Arc::new(RocksStore::open(path, TABLES, &options)?))
        };
        let (shared, lanes, upkeep) = open_parts(&volumes, &owner, options, &env, &open_index)?;
        let store = Self { shared, threads: Mutex::default() };
        let spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name).spawn(work);
            thread.map_err(|error| Error::internal(format!("no thread for the store: {error}")))
        };
        for (number, lane) in lanes.into_iter().enumerate() {
            let name = format!("dn-lane-{number}");
            store.threads.lock().push(spawn(name, Box::new(move || lane.run()))?);
        }
        store.threads.lock().push(spawn("dn-upkeep".into(), Box::new(move || upkeep.run()))?);
        Ok(store)
    }

    /// Stores a whole block.
    ///
    /// # Errors
    /// `Corrupt` where `crcs` are not those of `data`; `InvalidBlock` where the id was used before; `BlockDeleted`, `StaleEpoch`, `ContainerNotOpen`, `DiskFull` (no
    /// trace is left), `TooLarge`, `VolumeFailed`, `Overloaded`, `ShuttingDown`.
    pub fn put_small(&self, put: PutSmall<'_>, data: Bytes, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let judge = || {
            if data.len() > FRAME_PAYLOAD_MAX {
                let text =
                    format!("block {}: {} bytes in one piece; at most {FRAME_PAYLOAD_MAX}", put.block, data.len());
                return Err(Error::new(ErrorCode::TooLarge, text));
            }
            verify(put.block, &data, &put.crcs)?;
            self.place(put.block, put.epoch, put.members, data.len() as u64)
        };
        let (replica, volume) = match judge() {
            Ok(place) => place,
            Err(error) => return done(Err(error)),
        };
        let PutSmall { block, epoch, durability, crcs, .. } = put;
        let (mut state, known) = match take_id(&replica, &volume, block, epoch) {
            Ok(taken) => taken,
            Err(error) => return done(Err(error)),
        };
        let queue = if data.len() <= SMALL_RECORD_MAX { &volume.small } else { &volume.bulk };
        let done = Box::new(done);
        let job = Job::Put { replica: replica.clone(), block, epoch, crcs, data, durability, known, done };
        // ORDER: counted and queued under the hold that judged it. A close in between would find nothing on its way and end without it; a
        // delete in between would be queued before it, and the lane would put back what was deleted.
        state.in_flight += 1;
        let queued = queue.push(job);
        drop(state);
        // What refused it was told to `done`.
        let _ = pushed(&self.shared, queued);
    }

    /// Where a new block goes.
    fn place(&self, block: BlockId, epoch: u32, members: &[Bytes], length: u64) -> Result<Place, Error> {
        let replica = self.shared.get_or_new(block.container(), epoch, members)?;
        let volume = self.shared.volume_of(&replica)?.clone();
        volume.check_room(length)?;
        Ok((replica, volume))
    }

    /// Opens a block for chunks. Nothing is on disk until the first append.
    ///
    /// # Errors
    /// As [`Store::put_small`].
    pub fn open_block(&self, open: OpenBlock<'_>) -> Result<Writer, Error> {
        let OpenBlock { block, epoch, members, durability } = open;
        let (replica, volume) = self.place(block, epoch, members, 0)?;
        let state = OpenState {
            submitted: 0,
            crc: 0,
            ended: false,
            written: 0,
            failed: None,
            fenced: None,
            writer: WriterState::Present,
            grown_ms: self.shared.clock.now_ms(),
        };
        let open = Arc::new(replica::OpenBlock { id: block, epoch, durability, state: Mutex::new(state) });
        {
            let (mut state, _) = take_id(&replica, &volume, block, epoch)?;
            if state.writing.contains_key(&block.local()) {
                return Err(Error::new(ErrorCode::InvalidBlock, format!("block {block} is being written")));
            }
            state.writing.insert(block.local(), open.clone());
        }
        Ok(Writer { shared: self.shared.clone(), volume, replica, open })
    }

    /// Promises durably that nothing below the epoch is taken any more. With a length, cuts the block to it and makes it final; answers its
    /// length. Repeating a seal is answered as the first. Works on any replica that is not CLOSED, and there on final blocks.
    ///
    /// # Errors
    /// `StaleEpoch` where a higher epoch was promised, or another length under this one; `BlockNotFound` where it holds less than `length`;
    /// `BlockDeleted`, `VolumeFailed`, `DiskFull`, `Overloaded`.
    pub fn seal(&self, seal: Seal, done: impl FnOnce(Result<u64, Error>) + Send + 'static) {
        match self.judge_seal(&seal) {
            Err(error) => done(Err(error)),
            Ok((replica, volume)) => {
                let job = Job::Seal { replica, seal, done: Box::new(done) };
                // What refused it was told to `done`.
                let _ = submit(&self.shared, &volume.bulk, job);
            }
        }
    }

    fn judge_seal(&self, seal: &Seal) -> Result<(Arc<Replica>, Arc<DiskVolume>), Error> {
        let block = seal.block;
        let missing =
            || Error::new(ErrorCode::BlockNotFound, format!("block {block}: no replica of its container is here"));
        let replica = match (self.shared.get(block.container()), seal.length) {
            (Some(replica), _) => replica,
            // The promise must be kept for writes that come first.
            (None, None) => self.shared.get_or_new(block.container(), seal.epoch, &[])?,
            (None, Some(_)) => return Err(missing()),
        };
        let volume = self.shared.volume_of(&replica)?.clone();
        let mut state = replica.state.lock();
        let busy = |why: &str| Error::new(ErrorCode::Overloaded, format!("block {block}: {why}"));
        if state.phase == Phase::Finishing {
            return Err(busy("its container is just closing"));
        }
        if state.phase != Phase::Closed {
            let known = !state.take_id(block);
            match state.writing.get(&block.local()) {
                Some(open) if open.epoch < seal.epoch => {
                    let stale = Error::new(
                        ErrorCode::StaleEpoch,
                        format!("block {block} was sealed under epoch {}", seal.epoch),
                    );
                    open.state.lock().fenced.get_or_insert(stale);
                }
                Some(_) => {}
                // Its record is on its way through the other lane.
                None if known && volume.index.block(block)?.is_none() && !volume.index.is_deleted(block)? => {
                    return Err(busy("it is just being written"));
                }
                None => {}
            }
        }
        state.in_flight += 1;
        drop(state);
        Ok((replica, volume))
    }

    /// Finds the bytes of a final block. An index lookup of microseconds; the disk may be waited for where the index is not in memory.
    ///
    /// # Errors
    /// `BlockNotFound` where it is not here, not final, under a lower epoch, or shorter; `InvalidArgument` where the range is not within the block; `VolumeFailed`.
    pub fn read(&self, read: Read) -> Result<ReadPlan, Error> {
        let block = read.block;
        let missing =
            || Error::new(ErrorCode::BlockNotFound, format!("block {block}: no replica of its container is here"));
        let replica = self.shared.get(block.container()).ok_or_else(missing)?;
        let volume = self.shared.volume_of(&replica)?.clone();
        let plan = Plan::new(volume, replica, self.shared.buffers.clone(), &read)?;
        Ok(ReadPlan { shared: self.shared.clone(), plan })
    }

    /// Deletes blocks for good: durable tombstones first, so that a late write of them is refused, then space. Answers success also for blocks never had. `transaction` is the SCM's.
    ///
    /// # Errors
    /// `InvalidArgument` for ranges that are none; `VolumeFailed`, `DiskFull`: nothing may have been deleted, and it is to be asked again.
    pub fn delete(
        &self,
        container: ContainerId,
        ranges: &[LocalRange],
        transaction: u64,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let judge = || {
            let ranges = joined(container, ranges)?;
            let replica = self.shared.get_or_new(container, 0, &[])?;
            let volume = self.shared.volume_of(&replica)?.clone();
            Ok((replica, volume, ranges))
        };
        let (replica, volume, ranges) = match judge() {
            Ok(judged) => judged,
            Err(error) => return done(Err(error)),
        };
        let shared = self.shared.clone();
        let told = Box::new(move |outcome: Result<(), Error>| {
            if outcome.is_ok() {
                shared.note_sparse(container);
                shared.changes.replica(container);
            }
            done(outcome);
        });
        let mut state = replica.state.lock();
        for range in &ranges {
            state.delete_ids(range.first, range.count);
        }
        // ORDER: queued under the hold that spent the ids: a put of one of them is in the queue before it, or is not taken.
        let queued = volume.small.push(Job::Delete { replica: replica.clone(), ranges, transaction, done: told });
        drop(state);
        if let Err(Refused(job, error)) = queued {
            job.refuse(error);
        }
    }

    /// Begins to close a replica: no new blocks from now on. It becomes CLOSED, durably, once its open blocks are finished, sealed, abandoned or past
    /// [`Options::seal_grace_ms`]; that is told by [`Store::take_changes`]. One that is not here is made, empty and CLOSED. Repeats are harmless.
    ///
    /// # Errors
    /// `VolumeFailed`, `DiskFull`.
    pub fn close_container(
        &self,
        container: ContainerId,
        epoch: u32,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        done(self.begin_close(container, epoch));
    }

    fn begin_close(&self, container: ContainerId, epoch: u32) -> Result<(), Error> {
        let replica = self.shared.get_or_new(container, epoch, &[])?;
        self.shared.volume_of(&replica)?;
        {
            let mut state = replica.state.lock();
            state.epoch = state.epoch.max(epoch);
            if matches!(state.phase, Phase::Open | Phase::Closing { told: false }) {
                state.phase = Phase::Closing { told: true };
            }
        }
        self.shared.changes.replica(container);
        self.shared.may_close(&replica);
        Ok(())
    }

    /// A reader says that it got wrong bytes from here: the block is verified in the background; where it is wrong, the replica becomes UNHEALTHY and
    /// [`Changes::corrupt`] names it. LIMIT: reports beyond 1,024 waiting are dropped.
    pub fn report_corrupt(&self, block: BlockId, offset: u64) {
        self.shared.suspect(block, offset);
    }

    /// Every replica, by container.
    pub fn report(&self) -> Vec<ReplicaReport> {
        let here = |replica: &Arc<Replica>| self.shared.volume_of(replica).is_ok();
        self.shared.all().iter().filter(|replica| here(replica)).filter_map(|replica| replica.report()).collect()
    }

    /// Returns once there may be something for [`Store::take_changes`].
    ///
    /// cancel-safe.
    pub async fn changed(&self) {
        self.shared.changes.changed().await;
    }

    /// What changed since the last call. Sizes of open replicas count as changed in steps of 16 MiB.
    pub fn take_changes(&self) -> Changes {
        let pending = self.shared.changes.take();
        let state = |id: &ContainerId| {
            let replica = self.shared.get(*id)?;
            let report = replica.report()?;
            let lost = self.shared.volume_of(&replica).is_err();
            Some(if lost { ReplicaReport { state: ReplicaState::Deleted, ..report } } else { report })
        };
        Changes {
            replicas: pending.containers.iter().filter_map(state).collect(),
            corrupt: pending.corrupt,
            volumes: pending.volumes,
        }
    }

    /// Every volume, in the order of the settings.
    pub fn usage(&self) -> Vec<VolumeReport> {
        self.shared.usage()
    }

    /// Answers what is queued, makes it durable and stops. Waits for the disk. Later calls are answered `ShuttingDown`.
    pub fn close(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return;
        }
        for volume in self.shared.volumes() {
            volume.small.close();
            volume.bulk.close();
        }
        self.shared.with_todo(|todo| todo.stop = true);
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
        for volume in self.shared.volumes().filter(|volume| volume.failure().is_none()) {
            if let Err(error) = volume.index.store().flush() {
                tracing::error!(volume = %volume.path.display(), %error, "the index was not flushed; the next start replays its tail");
            }
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

/// A replica and its volume.
type Place = (Arc<Replica>, Arc<DiskVolume>);

/// Takes a block id into use. Gives the hold under which it was judged, for what must not be separated from that, and whether the id was
/// known, which it is where only a promise was made for it.
fn take_id<'a>(
    replica: &'a Replica,
    volume: &DiskVolume,
    block: BlockId,
    epoch: u32,
) -> Result<(MutexGuard<'a, State>, bool), Error> {
    let mut state = replica.state.lock();
    state.check_write(replica.id, epoch, true)?;
    if state.take_id(block) {
        return Ok((state, false));
    }
    drop(state);
    // Seldom: a promise, a delete, or an id used twice. The lane looks again.
    let error = match volume.index.block(block)? {
        None if volume.index.is_deleted(block)? => {
            Error::new(ErrorCode::BlockDeleted, format!("block {block} was deleted"))
        }
        Some(row) if row.promised > epoch => Error::new(
            ErrorCode::StaleEpoch,
            format!("block {block}: epoch {} was promised, the writer has {epoch}", row.promised),
        ),
        Some(row) if !row.is_final && row.length == 0 => {
            let state = replica.state.lock();
            state.check_write(replica.id, epoch, true)?;
            return Ok((state, true));
        }
        _ => Error::new(ErrorCode::InvalidBlock, format!("the id of block {block} was used before")),
    };
    Err(error)
}

/// Ranges in order, those that overlap or touch as one.
fn joined(container: ContainerId, ranges: &[LocalRange]) -> Result<Vec<LocalRange>, Error> {
    let mut sorted: Vec<LocalRange> = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.first);
    let mut joined: Vec<LocalRange> = Vec::with_capacity(sorted.len());
    for range in sorted {
        let end = u64::from(range.first) + u64::from(range.count);
        if range.count == 0 || end > 1 << LOCAL_BITS {
            return Err(Error::invalid(format!(
                "container {container}: blocks {}+{} are no range of local numbers",
                range.first, range.count
            )));
        }
        match joined.last_mut() {
            Some(last) if last.first + last.count >= range.first => {
                last.count = last.count.max(end as u32 - last.first);
            }
            _ => joined.push(range),
        }
    }
    Ok(joined)
}

/// Opens volumes and replicas; gives what the threads will own.
fn open_parts(
    configs: &[VolumeConfig],
    owner: &Owner,
    options: Options,
    env: &Env,
    open_index: &OpenIndex,
) -> Result<(Arc<Shared>, Vec<Lane>, Upkeep), Error> {
    let mut slots = Vec::new();
    let mut replicas = HashMap::new();
    for (number, config) in configs.iter().enumerate() {
        let opened = DiskVolume::open(number, config, owner, options.lane_queue_bytes, env, open_index);
        let opened = opened.and_then(|volume| {
            let found = open_replicas(&volume, env.clock.now_ms());
            let found = found.and_then(|found| {
                volume.refresh_space().map_err(|error| volume.error(error))?;
                Ok(found)
            });
            found.map(|found| (volume, found)).map_err(OpenError::Failed)
        });
        match opened {
            Ok((volume, found)) => {
                for replica in found {
                    let id = replica.id;
                    if let std::collections::hash_map::Entry::Vacant(place) = replicas.entry(id) {
                        place.insert(replica);
                    } else {
                        tracing::error!(container = %id, volume = %volume.path.display(), "a second replica of a container; it is left alone");
                    }
                }
                slots.push(Slot::InUse(Arc::new(volume)));
            }
            Err(OpenError::Foreign(error)) => return Err(error),
            Err(OpenError::Failed(error)) => {
                tracing::error!(volume = %config.path.display(), %error, "a disk volume cannot be used");
                slots.push(Slot::Failed { path: config.path.clone(), why: error.message });
            }
        }
    }
    let why = slots.iter().find_map(|slot| match slot {
        Slot::Failed { why, .. } => Some(why.clone()),
        Slot::InUse(_) => None,
    });
    if !slots.iter().any(|slot| matches!(slot, Slot::InUse(_))) {
        let why = why.unwrap_or_else(|| "none is set".into());
        return Err(Error::new(ErrorCode::VolumeFailed, format!("no disk volume can be used: {why}")));
    }
    let shared = Arc::new(Shared::new(env.clock.clone(), options, slots, replicas));
    let mut lanes = Vec::new();
    for volume in shared.volumes() {
        lanes.extend([false, true].map(|paged| Lane::new(shared.clone(), volume.clone(), paged)));
    }
    let upkeep = Upkeep::new(shared.clone());
    Ok((shared, lanes, upkeep))
}

#[cfg(test)]
impl Store {
    /// A store whose lanes and background run when the test says so.
    pub(crate) fn open_by_hand(
        configs: &[VolumeConfig],
        owner: &Owner,
        options: Options,
        env: &Env,
        open_index: &OpenIndex,
    ) -> Result<(Self, Vec<Lane>, Upkeep), Error> {
        let (shared, lanes, upkeep) = open_parts(configs, owner, options, env, open_index)?;
        Ok((Self { shared, threads: Mutex::default() }, lanes, upkeep))
    }

    /// What the store shares.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}
