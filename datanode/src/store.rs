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

use std::path::PathBuf;

use bytes::Bytes;
use ozone_common::env::Env;
use ozone_common::id::{BlockId, ClusterId, ContainerId, DatanodeId, DiskVolumeId};
use ozone_common::{Error, ErrorCode};

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
    block: BlockId,
}

impl Writer {
    /// Which block.
    pub fn block(&self) -> BlockId {
        self.block
    }

    /// Appends a chunk. `offset` is where the block ends with all appends before this one, answered or not.
    ///
    /// # Errors
    /// `OutOfOrder` where `offset` is another, or the chunk before was not whole windows; `Corrupt` where `crcs` are not those of `data`; `StaleEpoch` where the
    /// block was sealed; `ContainerNotOpen`, `BlockDeleted`, `DiskFull`, `VolumeFailed`, `Overloaded`. After an error no append succeeds.
    pub fn append(
        &mut self,
        offset: u64,
        crcs: Vec<u32>,
        data: Bytes,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let _ = (offset, crcs, data);
        done(Err(not_yet()));
    }

    /// Makes the block final at `length`, durable as it was opened.
    ///
    /// # Errors
    /// As [`Writer::append`]; `OutOfOrder` where it does not hold exactly `length` bytes.
    pub fn finish(self, length: u64, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let _ = length;
        done(Err(not_yet()));
    }

    /// The writer gave the block up: a closing replica need not wait for it.
    pub fn abandon(self) {}
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
pub struct ReadPlan {}

impl ReadPlan {
    /// The next piece where it is in the page cache; `None` where [`ReadPlan::next_piece`] has to be called on a thread that may wait. Not to be called after the last.
    ///
    /// # Errors
    /// `Corrupt` where a record's header is not what was written; `VolumeFailed` where the disk does not give it.
    pub fn next_cached(&mut self) -> Result<Option<Piece>, Error> {
        Err(not_yet())
    }

    /// The next piece, waiting for the disk. Not to be called after the last.
    ///
    /// # Errors
    /// As [`ReadPlan::next_cached`].
    pub fn next_piece(&mut self) -> Result<Piece, Error> {
        Err(not_yet())
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
pub struct Store {}

fn not_yet() -> Error {
    Error::new(ErrorCode::NotSupported, "this build does not store blocks yet")
}

impl Store {
    /// Opens the volumes and recovers what a crash left. Waits for the disk, for seconds after a crash.
    ///
    /// # Errors
    /// Where no volume can be used, or one belongs to another cluster or datanode. A volume that fails alone is reported failed.
    pub fn open(volumes: Vec<VolumeConfig>, owner: Owner, options: Options, env: Env) -> Result<Self, Error> {
        let _ = (volumes, owner, options, env);
        Err(not_yet())
    }

    /// Stores a whole block.
    ///
    /// # Errors
    /// `Corrupt` where `crcs` are not those of `data`; `InvalidBlock` where the id was used before; `BlockDeleted`, `StaleEpoch`, `ContainerNotOpen`, `DiskFull` (no
    /// trace is left), `VolumeFailed`, `Overloaded`, `ShuttingDown`.
    pub fn put_small(&self, put: PutSmall<'_>, data: Bytes, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let _ = (put, data);
        done(Err(not_yet()));
    }

    /// Opens a block for chunks. Nothing is on disk until the first append.
    ///
    /// # Errors
    /// As [`Store::put_small`].
    pub fn open_block(&self, open: OpenBlock<'_>) -> Result<Writer, Error> {
        let _ = open;
        Err(not_yet())
    }

    /// Promises durably that nothing below the epoch is taken any more. With a length, cuts the block to it and makes it final; answers its
    /// length. Repeating a seal is answered as the first. Works on any replica that is not CLOSED, and there on final blocks.
    ///
    /// # Errors
    /// `StaleEpoch` where a higher epoch was promised, or another length under this one; `BlockNotFound` where it holds less than `length`;
    /// `BlockDeleted`, `VolumeFailed`, `DiskFull`, `Overloaded`.
    pub fn seal(&self, seal: Seal, done: impl FnOnce(Result<u64, Error>) + Send + 'static) {
        let _ = seal;
        done(Err(not_yet()));
    }

    /// Finds the bytes of a final block. An index lookup of microseconds; the disk may be waited for where the index is not in memory.
    ///
    /// # Errors
    /// `BlockNotFound` where it is not here, not final, under a lower epoch, or shorter; `InvalidArgument` where the range is not within the block; `VolumeFailed`.
    pub fn read(&self, read: Read) -> Result<ReadPlan, Error> {
        let _ = read;
        Err(not_yet())
    }

    /// Deletes blocks for good: durable tombstones first, so that a late write of them is refused, then space. Answers success also for blocks never had. `transaction` is the SCM's.
    ///
    /// # Errors
    /// `VolumeFailed`, `DiskFull`, `Overloaded`: nothing may have been deleted, and it is to be asked again.
    pub fn delete(
        &self,
        container: ContainerId,
        ranges: &[LocalRange],
        transaction: u64,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let _ = (container, ranges, transaction);
        done(Err(not_yet()));
    }

    /// Begins to close a replica: no new blocks from now on. It becomes CLOSED, durably, once its open blocks are finished, sealed, abandoned or past
    /// [`Options::seal_grace_ms`]; that is told by [`Store::take_changes`]. One that is not here is made, empty and CLOSED. Repeats are harmless.
    ///
    /// # Errors
    /// `VolumeFailed`, `DiskFull`, `Overloaded`.
    pub fn close_container(
        &self,
        container: ContainerId,
        epoch: u32,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let _ = (container, epoch);
        done(Err(not_yet()));
    }

    /// A reader says that it got wrong bytes from here: the block is verified in the background; where it is wrong, the replica becomes UNHEALTHY and
    /// [`Changes::corrupt`] names it. LIMIT: reports beyond 1,024 waiting are dropped.
    pub fn report_corrupt(&self, block: BlockId, offset: u64) {
        let _ = (block, offset);
    }

    /// Every replica, by container.
    pub fn report(&self) -> Vec<ReplicaReport> {
        Vec::new()
    }

    /// Returns once there may be something for [`Store::take_changes`].
    ///
    /// cancel-safe.
    pub async fn changed(&self) {
        std::future::pending().await
    }

    /// What changed since the last call. Sizes of open replicas count as changed in steps of 16 MiB.
    pub fn take_changes(&self) -> Changes {
        Changes::default()
    }

    /// Every volume, in the order of the settings.
    pub fn usage(&self) -> Vec<VolumeReport> {
        Vec::new()
    }

    /// Answers what is queued, makes it durable and stops. Waits for the disk. Later calls are answered `ShuttingDown`.
    pub fn close(&self) {}
}
