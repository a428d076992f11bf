//! RocksDB behind the [`Store`] trait.
//!
//! - No write-ahead log: every write is volatile until a flush, and `atomic_flush` makes each flush (asked for, or forced by full
//!   memtables) cover all tables at one point of the write order. So a crash leaves a prefix, the same one in all tables.
//! - [`Memory`] bounds what all stores of a process take together: one block cache, which also holds indexes and filters, and to
//!   which memtables are charged.
//! - Blocks are checksummed by RocksDB on disk and verified whenever one is read.
//! - Values are copied once, out of the pinned block into [`Bytes`]: a value that kept its block pinned would let callers hold the cache.

use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ozone_common::env::{Disk, RealDisk};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBPinnableSlice, DBRawIterator, ErrorKind, FlushOptions, LogLevel, LruCacheOptions, Options, ReadOptions,
    SnapshotWithThreadMode, WriteBatch, WriteBufferManager, WriteOptions, checkpoint::Checkpoint, properties,
};

use crate::{Batch, Direction, Error, Op, Read, Result, Row, Rows, Store, Table, TableOptions};

/// Name of the column family that RocksDB insists on; unused.
const DEFAULT_FAMILY: &str = "default";
/// LIMIT: bytes of RocksDB's own text log, in two files.
const INFO_LOG_BYTES: usize = 1 << 20;
/// A value of a [`TableOptions::Values`] table from this size on lies in a blob file.
const BLOB_BYTES_MIN: u64 = 256;

/// Memory that several stores of one process share. Clones are the same memory.
#[derive(Clone)]
pub struct Memory {
    cache: Cache,
    write_buffers: WriteBufferManager,
    write_buffer_bytes: usize,
}

impl Memory {
    /// `total_bytes` for blocks, indexes, filters and memtables together, of which memtables may take `write_buffer_bytes` before they are
    /// flushed.
    pub fn new(total_bytes: usize, write_buffer_bytes: usize) -> Self {
        let mut options = LruCacheOptions::default();
        options.set_capacity(total_bytes);
        // Few shards: the cache is small and its shards must each hold a filter block.
        options.set_num_shard_bits(2);
        let cache = Cache::new_lru_cache_opts(&options);
        let write_buffers =
            WriteBufferManager::new_write_buffer_manager_with_cache(write_buffer_bytes, false, cache.clone());
        Self { cache, write_buffers, write_buffer_bytes }
    }

    /// Bytes taken at the moment: of all, and of that by memtables.
    pub fn usage(&self) -> (usize, usize) {
        (self.cache.get_usage(), self.write_buffers.get_usage())
    }
}

impl Default for Memory {
    /// 64 MiB, half of it for memtables; taken only as needed.
    fn default() -> Self {
        Self::new(64 << 20, 32 << 20)
    }
}

/// How a store is opened. These are components and limits, not settings of an operator.
#[derive(Clone)]
pub struct RocksOptions {
    /// Memory, possibly shared with other stores.
    pub memory: Memory,
    /// Most table files kept open.
    pub max_open_files: i32,
    /// Most flushes and compactions at a time. Threads are shared by all stores of the process.
    pub background_jobs: i32,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self { memory: Memory::default(), max_open_files: 512, background_jobs: 2 }
    }
}

/// A store on disk.
pub struct RocksStore {
    db: DB,
    path: PathBuf,
    tables: Vec<Table>,
    write_options: WriteOptions,
}

impl RocksStore {
    /// Opens the store in the folder `path`, made where it is absent, with these tables, made where they are absent.
    ///
    /// # Errors
    /// Where the store is damaged or locked by another process, or has a table that is not in `tables` (written by a newer version).
    pub fn open(path: &Path, tables: &[(Table, TableOptions)], options: &RocksOptions) -> Result<Self> {
        let attempted = || format!("open store `{}`", path.display());
        RealDisk.create_dir_all(path).map_err(|source| Error::Io { attempted: attempted(), source })?;
        let db_options = db_options(options);
        if path.join("CURRENT").exists() {
            let found = DB::list_cf(&db_options, path).map_err(|e| convert(attempted(), &e))?;
            let known = |name: &str| name == DEFAULT_FAMILY || tables.iter().any(|(table, _)| table.0 == name);
            if let Some(table) = found.into_iter().find(|name| !known(name)) {
                return Err(Error::UnknownTable { attempted: attempted(), table });
            }
        }
        let families = tables
            .iter()
            .map(|(table, kind)| ColumnFamilyDescriptor::new(table.0, table_options(*kind, options)))
            .chain([ColumnFamilyDescriptor::new(DEFAULT_FAMILY, table_options(TableOptions::Rows, options))]);
        let db = DB::open_cf_descriptors(&db_options, path, families).map_err(|e| convert(attempted(), &e))?;
        let mut write_options = WriteOptions::default();
        write_options.disable_wal(true);
        Ok(Self {
            db,
            path: path.to_path_buf(),
            tables: tables.iter().map(|(table, _)| *table).collect(),
            write_options,
        })
    }

    /// The folder it lies in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Rewrites a range of a table, which drops deleted rows from disk. Takes long.
    pub fn compact(&self, table: Table, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        let family = self.family(table, "compact")?;
        self.db.compact_range_cf(family, start, end);
        Ok(())
    }

    fn family(&self, table: Table, attempted: &str) -> Result<&ColumnFamily> {
        let unknown = || Error::UnknownTable { attempted: attempted.into(), table: table.0.into() };
        self.db.cf_handle(table.0).ok_or_else(unknown)
    }

    fn families(&self) -> impl Iterator<Item = &ColumnFamily> {
        self.tables.iter().filter_map(|table| self.db.cf_handle(table.0))
    }

    fn error(&self, attempted: &str, error: &rocksdb::Error) -> Error {
        convert(format!("{attempted} in store `{}`", self.path.display()), error)
    }

    fn scan_with(
        &self,
        snapshot: Option<&SnapshotWithThreadMode<'_, DB>>,
        table: Table,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Rows<'_>> {
        let family = self.family(table, "scan")?;
        // RocksDB's lower bound is inclusive, the upper exclusive; the key right after another is that key and a zero byte.
        let after = |key: &[u8]| [key, &[0]].concat();
        let lower = match start {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => Vec::new(),
        };
        let upper = match end {
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        if upper.as_ref().is_some_and(|upper| lower >= *upper) {
            return Ok(Box::new(std::iter::empty()));
        }
        let mut options = ReadOptions::default();
        if let Some(snapshot) = snapshot {
            options.set_snapshot(snapshot);
        }
        if !lower.is_empty() {
            options.set_iterate_lower_bound(lower);
        }
        if let Some(upper) = upper {
            options.set_iterate_upper_bound(upper);
        }
        let mut rows = self.db.raw_iterator_cf_opt(family, options);
        match direction {
            Direction::Forward => rows.seek_to_first(),
            Direction::Reverse => rows.seek_to_last(),
        }
        Ok(Box::new(Scan { store: self, rows, direction, ended: false }))
    }
}

fn db_options(options: &RocksOptions) -> Options {
    let mut db = Options::default();
    db.create_if_missing(true);
    db.create_missing_column_families(true);
    db.set_atomic_flush(true);
    db.set_paranoid_checks(true);
    db.set_write_buffer_manager(&options.memory.write_buffers);
    db.set_max_open_files(options.max_open_files);
    db.set_max_background_jobs(options.background_jobs);
    db.set_max_subcompactions(1);
    // Writes of one member come from one thread; the concurrent memtable path only costs.
    db.set_allow_concurrent_memtable_write(false);
    db.set_bytes_per_sync(1 << 20);
    db.set_log_level(LogLevel::Warn);
    db.set_keep_log_file_num(2);
    db.set_max_log_file_size(INFO_LOG_BYTES);
    db.set_max_manifest_file_size(16 << 20);
    db.set_stats_dump_period_sec(0);
    db.set_stats_persist_period_sec(0);
    db.set_skip_stats_update_on_db_open(true);
    db
}

fn table_options(kind: TableOptions, options: &RocksOptions) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_format_version(6);
    blocks.set_block_cache(&options.memory.cache);
    blocks.set_block_size(8 << 10);
    blocks.set_index_type(BlockBasedIndexType::BinarySearch);
    blocks.set_bloom_filter(10.0, false);
    // In the cache, so that one number bounds memory whatever the number of keys.
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_optimize_filters_for_memory(true);

    let mut family = Options::default();
    family.set_block_based_table_factory(&blocks);
    family.set_write_buffer_size(options.memory.write_buffer_bytes.max(1 << 20));
    // Many tables are nearly empty; a big arena block each would be charged to the cache.
    family.set_arena_block_size(64 << 10);
    family.set_max_write_buffer_number(3);
    family.set_level_compaction_dynamic_level_bytes(true);
    family.set_compression_type(DBCompressionType::Lz4);
    family.set_bottommost_compression_type(DBCompressionType::Zstd);
    match kind {
        TableOptions::Rows => {}
        // A file with a window of mostly deletes is compacted soon, so that a scan from the front does not wade through them.
        TableOptions::Queue => family.add_compact_on_deletion_collector_factory(1024, 256, 0.5),
        TableOptions::Values => {
            family.set_enable_blob_files(true);
            family.set_min_blob_size(BLOB_BYTES_MIN);
            family.set_blob_file_size(64 << 20);
            family.set_blob_compression_type(DBCompressionType::Lz4);
            family.set_blob_cache(&options.memory.cache);
            family.set_enable_blob_gc(true);
            family.set_blob_gc_age_cutoff(0.5);
            family.set_blob_gc_force_threshold(0.5);
        }
    }
    family
}

fn convert(attempted: String, error: &rocksdb::Error) -> Error {
    let text: &str = error.as_ref();
    match error.kind() {
        ErrorKind::Corruption => Error::Corrupt { attempted, detail: text.to_owned() },
        ErrorKind::IOError if text.contains("No space left") => {
            Error::Io { attempted, source: io::Error::new(io::ErrorKind::StorageFull, text) }
        }
        _ => Error::Io { attempted, source: io::Error::other(text.to_owned()) },
    }
}

fn copied(value: Option<DBPinnableSlice<'_>>) -> Option<Bytes> {
    value.map(|value| Bytes::copy_from_slice(&value))
}

impl Read for RocksStore {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        let found = self.db.get_pinned_cf(self.family(table, "get")?, key);
        found.map(copied).map_err(|e| self.error("get", &e))
    }

    fn multi_get(&self, table: Table, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let found = self.db.batched_multi_get_cf(self.family(table, "get")?, keys, false);
        found.into_iter().map(|value| value.map(copied).map_err(|e| self.error("get", &e))).collect()
    }

    fn scan(&self, table: Table, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> Result<Rows<'_>> {
        self.scan_with(None, table, start, end, direction)
    }
}

impl Store for RocksStore {
    fn write(&self, batch: &Batch) -> Result<()> {
        let size: usize = batch.ops.iter().map(|op| op.size() + 16).sum();
        let mut rows = WriteBatch::with_capacity_bytes(size);
        for op in &batch.ops {
            let family = self.family(op.table(), "write")?;
            match op {
                Op::Put { key, value, .. } => rows.put_cf(family, key, value),
                Op::Delete { key, .. } => rows.delete_cf(family, key),
                Op::DeleteRange { start, end, .. } if start < end => rows.delete_range_cf(family, start, end),
                Op::DeleteRange { .. } => {}
            }
        }
        self.db.write_opt(rows, &self.write_options).map_err(|e| self.error("write", &e))
    }

    fn flush(&self) -> Result<()> {
        let families: Vec<&ColumnFamily> = self.families().collect();
        let mut options = FlushOptions::default();
        options.set_wait(true);
        self.db.flush_cfs_opt(&families, &options).map_err(|e| self.error("flush", &e))
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        Box::new(Snapshot { store: self, snapshot: self.db.snapshot() })
    }

    fn checkpoint(&self, path: &Path) -> Result<()> {
        self.flush()?;
        let attempted = format!("checkpoint to `{}`", path.display());
        Checkpoint::new(&self.db)
            .and_then(|checkpoint| checkpoint.create_checkpoint(path))
            .map_err(|e| self.error(&attempted, &e))
    }

    fn unflushed_bytes(&self) -> u64 {
        let size = |family| match self.db.property_int_value_cf(family, properties::CUR_SIZE_ALL_MEM_TABLES) {
            Ok(size) => size.unwrap_or(0),
            Err(error) => {
                tracing::warn!(%error, store = %self.path.display(), "size of memtables unknown");
                0
            }
        };
        self.families().map(size).sum()
    }
}

struct Snapshot<'a> {
    store: &'a RocksStore,
    snapshot: SnapshotWithThreadMode<'a, DB>,
}

impl Read for Snapshot<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        let found = self.snapshot.get_pinned_cf(self.store.family(table, "get")?, key);
        found.map(copied).map_err(|e| self.store.error("get", &e))
    }

    fn scan(&self, table: Table, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> Result<Rows<'_>> {
        self.store.scan_with(Some(&self.snapshot), table, start, end, direction)
    }
}

struct Scan<'a> {
    store: &'a RocksStore,
    rows: DBRawIterator<'a>,
    direction: Direction,
    ended: bool,
}

impl Iterator for Scan<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let Some((key, value)) = self.rows.item() else {
            // The end of the rows and a failed read look alike until the status is asked for.
            self.ended = true;
            return self.rows.status().err().map(|e| Err(self.store.error("scan", &e)));
        };
        let row = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        match self.direction {
            Direction::Forward => self.rows.next(),
            Direction::Reverse => self.rows.prev(),
        }
        Some(Ok(row))
    }
}
