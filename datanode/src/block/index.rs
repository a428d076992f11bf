//! Reading the index of one volume: which blocks there are and where they lie.
//!
//! It is derived from the segments and has no write-ahead log of its own: [`super::edit`] writes rows together with how far
//! each segment is covered, and recovery applies the rest again. So it may be lost, and is then made anew.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::id::{BlockId, ContainerId};
use ozone_common::{Error, ErrorCode};
use ozone_kvstore::{Direction, Read, Rows, Store, Table};
use parking_lot::Mutex;

use super::edit::Edit;
use super::row::{
    BLOCKS, BlockRow, COUNTS, CountsRow, HOLES, PIECES, PieceRow, SEGMENTS, SegmentRow, TOMBSTONES, UNFINISHED,
    block_key, block_of, block_span, container_key, container_span, hole_of, piece_key, piece_offset, segment_key,
};

/// A chunk and where in the block it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub offset: u32,
    pub row: PieceRow,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.row.length)
    }
}

/// Pages to give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hole {
    pub container: ContainerId,
    pub segment: u32,
    pub start: u64,
    pub length: u64,
}

/// The index of a volume.
pub(crate) struct Index {
    store: Arc<dyn Store>,
    /// Whoever changes rows holds it from reading them to writing them.
    pub(super) apply: Mutex<()>,
}

impl Index {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, apply: Mutex::new(()) }
    }

    /// The tables beneath.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Begins a change; others wait until it is committed or dropped.
    pub(crate) fn edit(&self) -> Edit<'_> {
        Edit::new(self, self.apply.lock())
    }

    fn get<T>(&self, table: Table, key: &[u8], decode: impl Fn(&[u8]) -> Option<T>) -> Result<Option<T>, Error> {
        let Some(value) = self.store.get(table, key).map_err(failed)? else { return Ok(None) };
        decode(&value).map(Some).ok_or_else(|| unreadable(table, key))
    }

    fn scan<'a>(&self, view: &'a dyn Read, table: Table, start: &[u8], end: &[u8]) -> Result<Rows<'a>, Error> {
        view.scan(table, Bound::Included(start), Bound::Excluded(end), Direction::Forward).map_err(failed)
    }

    /// A block's row.
    pub(crate) fn block(&self, block: BlockId) -> Result<Option<BlockRow>, Error> {
        self.get(BLOCKS, &block_key(block), BlockRow::decode)
    }

    /// Rows of `count` blocks from `first` on.
    pub(crate) fn blocks(&self, first: BlockId, count: u32) -> Result<Vec<(BlockId, BlockRow)>, Error> {
        // A scan costs as much as a few lookups.
        if count <= 4 {
            let ids = (0..u64::from(count)).filter_map(|i| BlockId::new(first.get() + i));
            return ids.filter_map(|id| Some(self.block(id).transpose()?.map(|row| (id, row)))).collect();
        }
        let (start, end) = block_span(first, count);
        self.scan(&*self.store, BLOCKS, &start, &end)?.map(|row| block_row(&row.map_err(failed)?)).collect()
    }

    /// Calls `visit` with each block of a container in `view`.
    pub(crate) fn visit_blocks(
        &self,
        view: &dyn Read,
        container: ContainerId,
        mut visit: impl FnMut(BlockId, BlockRow) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (start, end) = container_span(container);
        for row in self.scan(view, BLOCKS, &start, &end)? {
            let (block, row) = block_row(&row.map_err(failed)?)?;
            visit(block, row)?;
        }
        Ok(())
    }

    /// The chunks of a block that reach beyond `from`, in order; all of them for 0.
    pub(crate) fn pieces(&self, block: BlockId, from: u64) -> Result<Vec<Piece>, Error> {
        let (first, end) = block_span(block, 1);
        let start =
            self.piece_at(block, from)?.map_or_else(|| first.to_vec(), |piece| piece_key(block, piece.offset).to_vec());
        self.scan(&*self.store, PIECES, &start, &end)?.map(|row| piece_row(&row.map_err(failed)?)).collect()
    }

    /// The chunk that holds byte `at` of a block.
    pub(crate) fn piece_at(&self, block: BlockId, at: u64) -> Result<Option<Piece>, Error> {
        let (first, _) = block_span(block, 1);
        let last = piece_key(block, u32::try_from(at).unwrap_or(u32::MAX));
        let mut rows = self
            .store
            .scan(PIECES, Bound::Included(&first), Bound::Included(&last), Direction::Reverse)
            .map_err(failed)?;
        rows.next().map(|row| piece_row(&row.map_err(failed)?)).transpose()
    }

    /// Whether a block was deleted.
    pub(crate) fn is_deleted(&self, block: BlockId) -> Result<bool, Error> {
        Ok(!self.tombstones(block, 1)?.is_empty())
    }

    /// Deleted ranges that overlap `count` blocks from `first` on, in order, each as first block and count.
    pub(crate) fn tombstones(&self, first: BlockId, count: u32) -> Result<Vec<(BlockId, u32)>, Error> {
        let (span, _) = container_span(first.container());
        let (_, end) = block_span(first, count);
        let rows = self
            .store
            .scan(TOMBSTONES, Bound::Included(&span), Bound::Excluded(&end), Direction::Reverse)
            .map_err(failed)?;
        let mut found = Vec::new();
        for row in rows {
            let (id, length) = tombstone_row(&row.map_err(failed)?)?;
            if id.get() + u64::from(length) <= first.get() {
                break;
            }
            found.push((id, length));
        }
        found.reverse();
        Ok(found)
    }

    /// Calls `visit` with each deleted range of a container in `view`.
    pub(crate) fn visit_tombstones(
        &self,
        view: &dyn Read,
        container: ContainerId,
        mut visit: impl FnMut(BlockId, u32),
    ) -> Result<(), Error> {
        let (start, end) = container_span(container);
        for row in self.scan(view, TOMBSTONES, &start, &end)? {
            let (first, count) = tombstone_row(&row.map_err(failed)?)?;
            visit(first, count);
        }
        Ok(())
    }

    /// Blocks of a container that are neither finished nor sealed.
    pub(crate) fn unfinished(&self, container: ContainerId) -> Result<Vec<BlockId>, Error> {
        let (start, end) = container_span(container);
        self.scan(&*self.store, UNFINISHED, &start, &end)?
            .map(|row| {
                let (key, _) = row.map_err(failed)?;
                block_of(&key).ok_or_else(|| unreadable(UNFINISHED, &key))
            })
            .collect()
    }

    /// Segments of a container.
    pub(crate) fn segments(&self, container: ContainerId) -> Result<Vec<(u32, SegmentRow)>, Error> {
        let end = container_key(container).iter().copied().chain([0xff; 5]).collect::<Vec<u8>>();
        self.scan(&*self.store, SEGMENTS, &segment_key(container, 0), &end)?
            .map(|row| {
                let (key, value) = row.map_err(failed)?;
                let number = key.get(8..12).and_then(|n| n.try_into().ok()).map(u32::from_be_bytes);
                number.zip(SegmentRow::decode(&value)).ok_or_else(|| unreadable(SEGMENTS, &key))
            })
            .collect()
    }

    /// Totals of a container.
    pub(crate) fn counts(&self, container: ContainerId) -> Result<Option<CountsRow>, Error> {
        self.get(COUNTS, &container_key(container), CountsRow::decode)
    }

    /// Pages to give back, `limit` at most.
    pub(crate) fn holes(&self, limit: usize) -> Result<Vec<Hole>, Error> {
        let rows = self.store.scan(HOLES, Bound::Unbounded, Bound::Unbounded, Direction::Forward).map_err(failed)?;
        rows.take(limit)
            .map(|row| {
                let (key, value) = row.map_err(failed)?;
                let length = value[..].try_into().ok().map(u64::from_le_bytes);
                let (container, segment, start) = hole_of(&key).ok_or_else(|| unreadable(HOLES, &key))?;
                let length = length.ok_or_else(|| unreadable(HOLES, &key))?;
                Ok(Hole { container, segment, start, length })
            })
            .collect()
    }
}

fn block_row((key, value): &(Bytes, Bytes)) -> Result<(BlockId, BlockRow), Error> {
    block_of(key).zip(BlockRow::decode(value)).ok_or_else(|| unreadable(BLOCKS, key))
}

fn piece_row((key, value): &(Bytes, Bytes)) -> Result<Piece, Error> {
    let (offset, row) = piece_offset(key).zip(PieceRow::decode(value)).ok_or_else(|| unreadable(PIECES, key))?;
    Ok(Piece { offset, row })
}

fn tombstone_row((key, value): &(Bytes, Bytes)) -> Result<(BlockId, u32), Error> {
    let count = value[..].try_into().ok().map(u32::from_le_bytes);
    block_of(key).zip(count).ok_or_else(|| unreadable(TOMBSTONES, key))
}

/// The store beneath failed; what that means for the volume is decided where it is met.
pub(crate) fn failed(error: ozone_kvstore::Error) -> Error {
    Error::new(ErrorCode::VolumeFailed, format!("the block index failed: {error}"))
}

fn unreadable(table: Table, key: &[u8]) -> Error {
    Error::new(
        ErrorCode::VolumeFailed,
        format!("the block index has an unreadable row in table `{}`: key {key:02x?}", table.0),
    )
}
