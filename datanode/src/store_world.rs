//! A store on a disk in memory, driven by hand, for tests: nothing happens between two lines of a test that it did not ask for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::checksum::{first_mismatch, windows};
use ozone_common::env::mem_disk::MemDisk;
use ozone_common::env::{Disk, Env, ManualClock, SeededRng};
use ozone_common::id::{BlockId, ClusterId, ContainerId, DatanodeId};
use ozone_common::{Error, ErrorCode};
use ozone_kvstore::mem::MemStore;
use ozone_kvstore::{Direction, Read as _, Store as _, Table};
use parking_lot::Mutex;

use crate::block::lane::Lane;
use crate::block::row::{BLOCKS, BlockRow, COUNTS, PIECES, SEGMENTS, SegmentRow, TABLES, TOMBSTONES, UNFINISHED};
use crate::container::upkeep::Upkeep;
use crate::store::{
    Durability, LocalRange, OpenBlock, Options, Owner, PutSmall, Read, ReplicaReport, Seal, Store, VolumeConfig, Writer,
};

/// The answer to a call, once it is there.
pub(crate) type Answer<T = ()> = Arc<Mutex<Option<Result<T, Error>>>>;

pub(crate) fn answer<T: Send + 'static>() -> (Answer<T>, impl FnOnce(Result<T, Error>) + Send + 'static) {
    let slot: Answer<T> = Arc::default();
    let told = slot.clone();
    (slot, move |outcome| {
        assert!(told.lock().replace(outcome).is_none(), "answered twice");
    })
}

/// The outcome of a call that must have been answered.
pub(crate) fn outcome<T>(answer: &Answer<T>) -> Result<T, Error> {
    answer.lock().take().expect("it was answered")
}

/// What went wrong.
pub(crate) fn code<T: std::fmt::Debug>(outcome: Result<T, Error>) -> ErrorCode {
    outcome.expect_err("it was refused").code
}

pub(crate) const VOLUME: &str = "/v";

pub(crate) struct World {
    pub disk: MemDisk,
    pub index: MemStore,
    pub clock: Arc<ManualClock>,
    pub rng: Arc<SeededRng>,
    /// Dropped last of the three.
    pub store: Option<Store>,
    pub lanes: Vec<Lane>,
    pub upkeep: Option<Upkeep>,
}

pub(crate) fn container(id: u64) -> ContainerId {
    ContainerId::new(id).expect("a valid id")
}

pub(crate) fn block(id: u64, local: u32) -> BlockId {
    container(id).block(local).expect("a valid local number")
}

/// Bytes that tell blocks and places apart.
pub(crate) fn content(block: BlockId, length: usize) -> Bytes {
    let seed = block.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..length)
        .map(|i| (seed.wrapping_add(i as u64 / 7).wrapping_mul(i as u64 | 1) >> 16) as u8)
        .collect::<Vec<u8>>()
        .into()
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let disk = MemDisk::new();
        let index = MemStore::new(Arc::new(disk.clone()), TABLES);
        let mut world = Self {
            disk,
            index,
            clock: Arc::new(ManualClock::at(1_000_000)),
            rng: Arc::new(SeededRng::new(seed)),
            store: None,
            lanes: Vec::new(),
            upkeep: None,
        };
        world.open();
        world
    }

    fn env(&self) -> Env {
        Env { clock: self.clock.clone(), rng: self.rng.clone(), disk: Arc::new(self.disk.clone()) }
    }

    /// Opens the store on what the disk and the index hold.
    pub(crate) fn open(&mut self) {
        let config = VolumeConfig { path: PathBuf::from(VOLUME), reserved_bytes: 1 << 20 };
        let owner = Owner { cluster: ClusterId::from_bytes([1; 16]), datanode: DatanodeId::from_bytes([2; 16]) };
        let index = self.index.clone();
        let open_index =
            move |_: &Path| -> ozone_kvstore::Result<Arc<dyn ozone_kvstore::Store>> { Ok(Arc::new(index.clone())) };
        let opened = Store::open_by_hand(&[config], &owner, Options::default(), &self.env(), &open_index);
        let (store, lanes, upkeep) = opened.expect("the store opens");
        (self.store, self.lanes, self.upkeep) = (Some(store), lanes, Some(upkeep));
    }

    fn drop_store(&mut self) {
        self.lanes.clear();
        self.upkeep = None;
        self.store = None;
    }

    /// The process ends in good order, and begins again.
    pub(crate) fn restart(&mut self) {
        self.settle();
        for lane in &mut self.lanes {
            lane.end_all();
        }
        self.index.flush().expect("memory");
        self.drop_store();
        self.open();
    }

    /// kill -9: the page cache stays, memory goes.
    pub(crate) fn kill(&mut self) {
        self.drop_store();
        self.index.crash(&*self.rng);
        self.disk.faults.clear();
        self.open();
    }

    /// Power fails.
    pub(crate) fn crash(&mut self) {
        self.drop_store();
        self.index.crash(&*self.rng);
        self.disk.faults.clear();
        self.disk.crash(&*self.rng);
        self.open();
    }

    /// The index is lost.
    pub(crate) fn lose_index(&mut self) {
        self.drop_store();
        self.index = MemStore::new(Arc::new(self.disk.clone()), TABLES);
        self.open();
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    /// The background does what it has to do.
    pub(crate) fn background(&mut self) {
        let todo = self.store().shared().take_todo(Duration::ZERO);
        self.upkeep.as_mut().expect("it is open").turn(todo);
    }

    /// All that waits is carried out.
    pub(crate) fn settle(&mut self) {
        for _ in 0..4 {
            while self.lanes.iter_mut().any(Lane::turn) {}
            self.background();
        }
        while self.lanes.iter_mut().any(Lane::turn) {}
    }

    // ---- calls

    pub(crate) fn put_later(&self, block: BlockId, epoch: u32, data: &Bytes, durability: Durability) -> Answer {
        let (answer, done) = answer();
        let members = [Bytes::from_static(&[2; 16])];
        let put = PutSmall { block, epoch, members: &members, durability, crcs: windows(data) };
        self.store().put_small(put, data.clone(), done);
        answer
    }

    pub(crate) fn put(&mut self, block: BlockId, data: &Bytes) -> Result<(), Error> {
        let answer = self.put_later(block, 1, data, Durability::Disk);
        self.settle();
        outcome(&answer)
    }

    pub(crate) fn open_block(&self, block: BlockId, epoch: u32) -> Result<Writer, Error> {
        self.store().open_block(OpenBlock { block, epoch, members: &[], durability: Durability::Disk })
    }

    pub(crate) fn append_later(writer: &mut Writer, offset: usize, data: Bytes) -> Answer {
        let (answer, done) = answer();
        writer.append(offset as u64, windows(&data), data, done);
        answer
    }

    pub(crate) fn append(&mut self, writer: &mut Writer, offset: usize, data: Bytes) -> Result<(), Error> {
        let answer = Self::append_later(writer, offset, data);
        self.settle();
        outcome(&answer)
    }

    pub(crate) fn finish(&mut self, writer: Writer, length: usize) -> Result<(), Error> {
        let (answer, done) = answer();
        writer.finish(length as u64, done);
        self.settle();
        outcome(&answer)
    }

    pub(crate) fn seal_later(&self, block: BlockId, epoch: u32, length: Option<u64>) -> Answer<u64> {
        let (answer, done) = answer();
        self.store().seal(Seal { block, epoch, length }, done);
        answer
    }

    pub(crate) fn seal(&mut self, block: BlockId, epoch: u32, length: Option<u64>) -> Result<u64, Error> {
        let answer = self.seal_later(block, epoch, length);
        self.settle();
        outcome(&answer)
    }

    pub(crate) fn delete_later(&self, id: u64, first: u32, count: u32, transaction: u64) -> Answer {
        let (answer, done) = answer();
        self.store().delete(container(id), &[LocalRange { first, count }], transaction, done);
        answer
    }

    pub(crate) fn delete(&mut self, id: u64, first: u32, count: u32, transaction: u64) -> Result<(), Error> {
        let answer = self.delete_later(id, first, count, transaction);
        self.settle();
        outcome(&answer)
    }

    pub(crate) fn close(&mut self, id: u64, epoch: u32) -> Result<(), Error> {
        let (answer, done) = answer();
        self.store().close_container(container(id), epoch, done);
        self.settle();
        outcome(&answer)
    }

    /// A stretch of a block, as a client gets it: verified, cut to what was asked.
    pub(crate) fn read_part(
        &self,
        block: BlockId,
        epoch: u32,
        block_length: u64,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, Error> {
        let mut plan = self.store().read(Read { block, epoch, block_length, offset, length })?;
        let mut bytes = Vec::new();
        let mut start = None;
        loop {
            let piece = match plan.next_cached()? {
                Some(piece) => piece,
                None => plan.next_piece()?,
            };
            let expected = *start.get_or_insert(piece.offset) + bytes.len() as u64;
            assert_eq!(piece.offset, expected, "pieces follow each other");
            assert!(piece.offset.is_multiple_of(16 << 10) && piece.data.len() <= 1 << 20 && !piece.data.is_empty());
            if first_mismatch(&piece.data, &piece.crcs).is_some() {
                self.store().report_corrupt(block, piece.offset);
                return Err(Error::new(ErrorCode::Corrupt, "not what its checksum says"));
            }
            bytes.extend_from_slice(&piece.data);
            if piece.last {
                break;
            }
        }
        let start = start.unwrap_or(0);
        assert!(start <= offset && start + bytes.len() as u64 <= block_length, "within the block");
        let from = (offset - start) as usize;
        Ok(bytes[from..from + length as usize].to_vec())
    }

    pub(crate) fn read(&self, block: BlockId, epoch: u32, length: usize) -> Result<Vec<u8>, Error> {
        self.read_part(block, epoch, length as u64, 0, length as u64)
    }

    pub(crate) fn report(&self, id: u64) -> Option<ReplicaReport> {
        self.store().report().into_iter().find(|replica| replica.container == container(id))
    }

    // ---- what must hold

    /// Rows of the index that any way to the same state must give.
    pub(crate) fn rows(&self) -> BTreeMap<(&'static str, Vec<u8>), Vec<u8>> {
        let mut rows = BTreeMap::new();
        for table in [BLOCKS, PIECES, UNFINISHED, TOMBSTONES, SEGMENTS, COUNTS] {
            self.visit(table, |key, value| {
                // How far segments are covered depends on when it was written down.
                let value = match table {
                    SEGMENTS => SegmentRow::decode(value).expect("a row").live.to_be_bytes().to_vec(),
                    _ => value.to_vec(),
                };
                rows.insert((table.0, key.to_vec()), value);
            });
        }
        rows
    }

    fn visit(&self, table: Table, mut visit: impl FnMut(&[u8], &[u8])) {
        let (start, end) = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        for row in self.index.scan(table, start, end, Direction::Forward).expect("memory") {
            let (key, value) = row.expect("memory");
            visit(&key, &value);
        }
    }

    /// Totals equal what they are totals of.
    pub(crate) fn check_totals(&self) {
        let mut sums: BTreeMap<ContainerId, (u64, u64)> = BTreeMap::new();
        self.visit(BLOCKS, |key, value| {
            let block = BlockId::new(u64::from_be_bytes(key.try_into().expect("8 bytes"))).expect("an id");
            let row = BlockRow::decode(value).expect("a row");
            let sum = sums.entry(block.container()).or_default();
            if row.is_final {
                *sum = (sum.0 + u64::from(row.length), sum.1 + 1);
            }
        });
        for report in self.store().report() {
            let expected = sums.get(&report.container).copied().unwrap_or_default();
            assert_eq!((report.used_bytes, report.block_count), expected, "{}", report.container);
        }
    }

    /// Segment files there are.
    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|e| e == "small" || e == "bulk");
        self.disk.files().into_iter().filter(is_segment).collect()
    }

    /// Bytes of a file.
    pub(crate) fn file(&self, path: &Path) -> Vec<u8> {
        self.disk.read(path).expect("it is there")
    }
}
