//! The twin in memory, for simulation and tests.
//!
//! It keeps two halves: rows as readers see them, and rows as they were at the last flush with the batches written since. A
//! [`MemStore::crash`] keeps the flushed rows and a prefix of those batches, which is what RocksDB without a write-ahead log may leave.
//! A table's rows are shared with snapshots and scans and copied by the first write after; so a snapshot costs nothing until then.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use ozone_common::env::{Disk, Rng};
use parking_lot::RwLock;

use crate::{Batch, Direction, Error, Op, Read, Result, Row, Rows, Store, Table, TableOptions};

type Map = BTreeMap<Bytes, Bytes>;

/// The file of a checkpoint.
const CHECKPOINT_FILE: &str = "rows.mem";
const MAGIC: &[u8; 8] = b"O3MEMKV1";

struct State {
    current: BTreeMap<Table, Arc<Map>>,
    durable: BTreeMap<Table, Map>,
    /// Written since the last flush, oldest first.
    pending: Vec<Batch>,
    pending_bytes: u64,
}

impl State {
    fn new(durable: BTreeMap<Table, Map>) -> Self {
        let current = durable.iter().map(|(table, rows)| (*table, Arc::new(rows.clone()))).collect();
        Self { current, durable, pending: Vec::new(), pending_bytes: 0 }
    }

    /// Moves the first `count` pending batches into the durable half.
    fn make_durable(&mut self, count: usize) {
        for batch in self.pending.drain(..count) {
            for op in &batch.ops {
                apply(self.durable.entry(op.table()).or_default(), op);
            }
        }
    }
}

fn apply(rows: &mut Map, op: &Op) {
    match op {
        Op::Put { key, value, .. } => {
            rows.insert(key.clone(), value.clone());
        }
        Op::Delete { key, .. } => {
            rows.remove(key);
        }
        Op::DeleteRange { start, end, .. } if start < end => {
            let inside: Vec<Bytes> = rows.range(start.clone()..end.clone()).map(|(key, _)| key.clone()).collect();
            for key in inside {
                rows.remove(&key);
            }
        }
        Op::DeleteRange { .. } => {}
    }
}

/// A store in memory. Clones are the same store.
#[derive(Clone)]
pub struct MemStore {
    state: Arc<RwLock<State>>,
    disk: Arc<dyn Disk>,
}

impl MemStore {
    /// An empty store with these tables; checkpoints go to `disk`.
    pub fn new(disk: Arc<dyn Disk>, tables: &[(Table, TableOptions)]) -> Self {
        let durable = tables.iter().map(|(table, _)| (*table, Map::new())).collect();
        Self { state: Arc::new(RwLock::new(State::new(durable))), disk }
    }

    /// Opens what [`Store::checkpoint`] wrote to `path`. The new store lives on its own; the checkpoint stays as it is.
    ///
    /// # Errors
    /// Where the file cannot be read, is damaged, or holds a table that is not in `tables`.
    pub fn open_checkpoint(disk: Arc<dyn Disk>, path: &Path, tables: &[(Table, TableOptions)]) -> Result<Self> {
        let attempted = || format!("open checkpoint `{}`", path.display());
        let bytes =
            disk.read(&path.join(CHECKPOINT_FILE)).map_err(|source| Error::Io { attempted: attempted(), source })?;
        let found = decode(&bytes)
            .ok_or_else(|| Error::Corrupt { attempted: attempted(), detail: "its rows cannot be read".into() })?;
        let mut durable: BTreeMap<Table, Map> = tables.iter().map(|(table, _)| (*table, Map::new())).collect();
        for (name, rows) in found {
            let Some((table, _)) = tables.iter().find(|(table, _)| table.0 == name) else {
                return Err(Error::UnknownTable { attempted: attempted(), table: name });
            };
            durable.insert(*table, rows);
        }
        Ok(Self { state: Arc::new(RwLock::new(State::new(durable))), disk })
    }

    /// The process dies: of what was written since the last flush a prefix that `rng` chooses survives. Returns how many batches were lost.
    pub fn crash(&self, rng: &dyn Rng) -> usize {
        let mut state = self.state.write();
        let kept = rng.below(state.pending.len() as u64 + 1) as usize;
        let lost = state.pending.len() - kept;
        state.make_durable(kept);
        let durable = std::mem::take(&mut state.durable);
        *state = State::new(durable);
        lost
    }
}

impl MemStore {
    fn table(&self, table: Table, attempted: &str) -> Result<Arc<Map>> {
        find(&self.state.read().current, table, attempted)
    }
}

fn find(tables: &BTreeMap<Table, Arc<Map>>, table: Table, attempted: &str) -> Result<Arc<Map>> {
    let unknown = || Error::UnknownTable { attempted: attempted.into(), table: table.0.into() };
    tables.get(&table).cloned().ok_or_else(unknown)
}

impl Read for MemStore {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.table(table, "get")?.get(key).cloned())
    }
    fn scan(&self, table: Table, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> Result<Rows<'_>> {
        Ok(scan(self.table(table, "scan")?, start, end, direction))
    }
}

impl Store for MemStore {
    fn write(&self, batch: &Batch) -> Result<()> {
        let mut state = self.state.write();
        // All or nothing: tables are looked up before anything changes.
        for op in &batch.ops {
            find(&state.current, op.table(), "write")?;
        }
        for op in &batch.ops {
            if let Some(rows) = state.current.get_mut(&op.table()) {
                apply(Arc::make_mut(rows), op);
            }
            state.pending_bytes += op.size() as u64;
        }
        state.pending.push(batch.clone());
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut state = self.state.write();
        let count = state.pending.len();
        state.make_durable(count);
        state.pending_bytes = 0;
        Ok(())
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        Box::new(Snapshot(self.state.read().current.clone()))
    }

    fn checkpoint(&self, path: &Path) -> Result<()> {
        let error =
            |source: io::Error| Error::Io { attempted: format!("write checkpoint `{}`", path.display()), source };
        if self.disk.exists(path) {
            return Err(error(io::ErrorKind::AlreadyExists.into()));
        }
        self.flush()?;
        let current = self.state.read().current.clone();
        self.disk.create_dir_all(path).map_err(error)?;
        self.disk.write_atomic(&path.join(CHECKPOINT_FILE), &encode(&current)).map_err(error)?;
        path.parent().map_or(Ok(()), |parent| self.disk.sync_dir(parent)).map_err(error)
    }

    fn unflushed_bytes(&self) -> u64 {
        self.state.read().pending_bytes
    }
}

struct Snapshot(BTreeMap<Table, Arc<Map>>);

impl Read for Snapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(find(&self.0, table, "get")?.get(key).cloned())
    }
    fn scan(&self, table: Table, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> Result<Rows<'_>> {
        Ok(scan(find(&self.0, table, "scan")?, start, end, direction))
    }
}

/// Walks by seeking past the last row, so that the iterator can own the map.
struct Scan {
    rows: Arc<Map>,
    start: Bound<Bytes>,
    end: Bound<Bytes>,
    direction: Direction,
}

fn scan(rows: Arc<Map>, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> Rows<'static> {
    Box::new(Scan { rows, start: start.map(Bytes::copy_from_slice), end: end.map(Bytes::copy_from_slice), direction })
}

impl Iterator for Scan {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        if is_empty(&self.start, &self.end) {
            return None;
        }
        let mut range = self.rows.range((self.start.clone(), self.end.clone()));
        let (key, value) = match self.direction {
            Direction::Forward => range.next()?,
            Direction::Reverse => range.next_back()?,
        };
        let row = (key.clone(), value.clone());
        match self.direction {
            Direction::Forward => self.start = Bound::Excluded(row.0.clone()),
            Direction::Reverse => self.end = Bound::Excluded(row.0.clone()),
        }
        Some(Ok(row))
    }
}

/// Whether no key can lie between; `BTreeMap::range` panics on some such bounds.
fn is_empty(start: &Bound<Bytes>, end: &Bound<Bytes>) -> bool {
    match (start, end) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        _ => false,
    }
}

// A checkpoint: magic, then per table its name, row count and rows, each string as u32 length and bytes, all big-endian.
fn encode(tables: &BTreeMap<Table, Arc<Map>>) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let put = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.put_u32(bytes.len() as u32);
        out.put_slice(bytes);
    };
    out.put_u32(tables.len() as u32);
    for (table, rows) in tables {
        put(&mut out, table.0.as_bytes());
        out.put_u64(rows.len() as u64);
        for (key, value) in rows.iter() {
            put(&mut out, key);
            put(&mut out, value);
        }
    }
    out
}

fn decode(bytes: &[u8]) -> Option<Vec<(String, Map)>> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let rest = &mut rest;
    let take = |rest: &mut &[u8]| -> Option<Bytes> {
        let length = rest.try_get_u32().ok()? as usize;
        let (head, tail) = rest.split_at_checked(length)?;
        *rest = tail;
        Some(Bytes::copy_from_slice(head))
    };
    let count = rest.try_get_u32().ok()?;
    let mut tables = Vec::new();
    for _ in 0..count {
        let name = String::from_utf8(take(rest)?.to_vec()).ok()?;
        let mut rows = Map::new();
        for _ in 0..rest.try_get_u64().ok()? {
            let key = take(rest)?;
            rows.insert(key, take(rest)?);
        }
        tables.push((name, rows));
    }
    rest.is_empty().then_some(tables)
}
