//! Changing the index: records applied to rows.
//!
//! The same methods serve records just written and records found by recovery. In recovery a record may have been applied before, so each is
//! idempotent; and lanes are replayed one after another, so the outcome does not depend on the order of records of different
//! lanes: a tombstone beats everything, a higher epoch beats a lower one, data of a block that is final already is a copy.
//!
//! [`Edit::commit`] writes rows, totals and coverage of segments in one batch. Chunks are looked up beneath the edit; so where those of a block changed
//! in it, what is there is written first. That is safe at any point, since coverage comes last and records are idempotent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ozone_common::Error;
use ozone_common::id::{BlockId, ContainerId};
use ozone_common::limits::BYTES_PER_CHECKSUM;
use ozone_kvstore::Batch;
use parking_lot::MutexGuard;

use super::index::{Hole, Index, Piece, failed};
use super::record::{Extent, HEADER_BYTES, Header, Kind};
use super::row::{
    BLOCKS, BlockRow, Body, COUNTS, Cut, HOLES, PIECES, PieceRow, Place, SEGMENTS, TOMBSTONES, UNFINISHED, block_key,
    container_key, hole_key, piece_key, segment_key,
};
use crate::container::digest::{BlockItem, Digest};
use crate::container::replica::Replica;

/// What a change is to a replica's totals.
struct Touched {
    replica: Arc<Replica>,
    /// Which segments have paged payloads.
    paged: BTreeMap<u32, bool>,
    live: BTreeMap<u32, i64>,
    /// `(synced, applied)`: how far segments are covered after this edit.
    covered: BTreeMap<u32, (u64, u64)>,
    used: i64,
    blocks: i64,
    delete_sequence: u64,
    /// Changes of the digest, where there is one.
    digest: Option<Digest>,
}

impl Touched {
    fn new(replica: Arc<Replica>) -> Self {
        let totals = replica.totals.lock();
        let digest = (totals.counts.digest.is_some() || totals.digest_delta.is_some()).then(Digest::default);
        let paged = totals.segments.iter().map(|(number, segment)| (*number, segment.paged)).collect();
        drop(totals);
        Self {
            replica,
            paged,
            live: BTreeMap::new(),
            covered: BTreeMap::new(),
            used: 0,
            blocks: 0,
            delete_sequence: 0,
            digest,
        }
    }

    fn add_live(&mut self, segment: u32, bytes: i64) {
        *self.live.entry(segment).or_default() += bytes;
    }

    fn count(&mut self, block: BlockId, row: &BlockRow) {
        self.used += i64::from(row.length);
        self.blocks += 1;
        if let Some(digest) = &mut self.digest {
            digest.add_block(item(block, row));
        }
    }

    fn uncount(&mut self, block: BlockId, row: &BlockRow) {
        self.used -= i64::from(row.length);
        self.blocks -= 1;
        if let Some(digest) = &mut self.digest {
            digest.remove_block(item(block, row));
        }
    }

    fn extent(&self, place: Place, length: u32) -> Extent {
        Extent::of(self.paged.get(&place.segment).copied().unwrap_or(false), place.position, length)
    }
}

/// What the digest counts of a block.
pub(crate) fn item(block: BlockId, row: &BlockRow) -> BlockItem {
    BlockItem { block, epoch: row.epoch, length: row.length, crc: row.crc }
}

const RECORD: i64 = HEADER_BYTES as i64;

/// A change of the index. Dropped without [`Edit::commit`], nothing of it happened.
pub(crate) struct Edit<'a> {
    index: &'a Index,
    _apply: MutexGuard<'a, ()>,
    batch: Batch,
    rows: BTreeMap<BlockId, Option<BlockRow>>,
    /// Deleted ranges by first block; `None` where the row goes. Those that stay do not overlap.
    tombstones: BTreeMap<BlockId, Option<u32>>,
    /// Blocks whose pieces changed in this edit.
    pieces_of: BTreeSet<BlockId>,
    touched: BTreeMap<ContainerId, Touched>,
}

impl<'a> Edit<'a> {
    pub(super) fn new(index: &'a Index, apply: MutexGuard<'a, ()>) -> Self {
        Self {
            index,
            _apply: apply,
            batch: Batch::new(),
            rows: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            pieces_of: BTreeSet::new(),
            touched: BTreeMap::new(),
        }
    }

    /// Changes so far; recovery commits in steps.
    pub(crate) fn len(&self) -> usize {
        self.batch.ops.len() + self.rows.len() + self.tombstones.len()
    }

    fn touch(&mut self, replica: &Arc<Replica>) -> &mut Touched {
        self.touched.entry(replica.id).or_insert_with(|| Touched::new(replica.clone()))
    }

    /// A block's row with the changes of this edit.
    pub(crate) fn row(&self, block: BlockId) -> Result<Option<BlockRow>, Error> {
        match self.rows.get(&block) {
            Some(row) => Ok(*row),
            None => self.index.block(block),
        }
    }

    /// Whether a block was deleted, in this edit or before.
    fn is_deleted(&self, block: BlockId) -> Result<bool, Error> {
        Ok(!self.tombstones(block, 1)?.is_empty())
    }

    /// Segment `number` is covered up to `applied`, of which `synced` is durable.
    pub(crate) fn cover(&mut self, replica: &Arc<Replica>, number: u32, synced: u64, applied: u64) {
        self.touch(replica).covered.insert(number, (synced, applied));
    }

    /// Applies a record that recovery found.
    pub(crate) fn replay(&mut self, replica: &Arc<Replica>, header: &Header) -> Result<(), Error> {
        match header.kind {
            Kind::Put => match self.row(header.block)? {
                Some(row) if row.is_final => self.move_copy(replica, header, row),
                before => drop(self.put_unless_deleted(replica, header, before)?),
            },
            Kind::Chunk => drop(self.chunk(replica, header)?),
            Kind::Finish => drop(self.finish(replica, header)?),
            Kind::Seal => drop(self.seal(replica, header)?),
            Kind::Promise => self.promise(replica, header)?,
            Kind::Discard => self.discard(replica, header)?,
            Kind::Tombstone => self.tombstone(replica, header)?,
            Kind::End => {}
        }
        Ok(())
    }

    /// As [`Edit::put`] where the block may have been deleted meanwhile; false where it was.
    pub(crate) fn put_unless_deleted(
        &mut self,
        replica: &Arc<Replica>,
        header: &Header,
        before: Option<BlockRow>,
    ) -> Result<bool, Error> {
        if before.is_none() && self.is_deleted(header.block)? {
            self.hole(replica, header.segment, Extent::of(header.paged, header.position, header.length));
            return Ok(false);
        }
        self.put(replica, header, before);
        Ok(true)
    }

    /// A whole block. `before` is its row, which is none, or promises only.
    pub(crate) fn put(&mut self, replica: &Arc<Replica>, header: &Header, before: Option<BlockRow>) {
        let place = Place { segment: header.segment, position: header.position };
        let row = BlockRow {
            is_final: true,
            epoch: header.epoch,
            promised: header.epoch.max(before.map_or(0, |row| row.promised)),
            length: header.length,
            crc: header.block_crc,
            body: Body::Whole(place),
            cut: None,
            ended_in: None,
        };
        let touched = self.touch(replica);
        touched.add_live(header.segment, (header.end() - header.position) as i64);
        if let Some(ended) = before.and_then(|row| row.ended_in) {
            touched.add_live(ended, -RECORD);
        }
        touched.count(header.block, &row);
        if before.is_some() {
            self.batch.delete(UNFINISHED, block_key(header.block).to_vec());
        }
        self.rows.insert(header.block, Some(row));
    }

    /// The same record at another place, which compaction made: the one in the later segment counts.
    fn move_copy(&mut self, replica: &Arc<Replica>, header: &Header, mut row: BlockRow) {
        let Body::Whole(old) = row.body else { return };
        if old.segment >= header.segment {
            return;
        }
        let size = (header.end() - header.position) as i64;
        let touched = self.touch(replica);
        let old_extent = touched.extent(old, row.stored());
        touched.add_live(old.segment, -((old_extent.end - old.position) as i64));
        touched.add_live(header.segment, size);
        row.body = Body::Whole(Place { segment: header.segment, position: header.position });
        self.rows.insert(header.block, Some(row));
    }

    /// Compaction copied a block from `from` to where `header` says; no effect where it is not there any more.
    pub(crate) fn relocate(&mut self, replica: &Arc<Replica>, header: &Header, from: Place) -> Result<(), Error> {
        if let Some(row) = self.row(header.block)?.filter(|row| row.body == Body::Whole(from)) {
            self.move_copy(replica, header, row);
        }
        Ok(())
    }

    /// Compaction copied another record that mattered.
    pub(crate) fn relocate_record(&mut self, replica: &Arc<Replica>, header: &Header, from: u32) -> Result<(), Error> {
        if matches!(header.kind, Kind::Tombstone | Kind::Discard) {
            self.touch(replica).add_live(header.segment, RECORD);
        } else if let Some(mut row) = self.row(header.block)?.filter(|row| row.ended_in == Some(from)) {
            self.touch(replica).add_live(from, -RECORD);
            self.touch(replica).add_live(header.segment, RECORD);
            row.ended_in = Some(header.segment);
            self.rows.insert(header.block, Some(row));
        }
        Ok(())
    }

    /// A chunk that continues the block. False where it does not (it was applied before, or the block was deleted): nothing changes.
    pub(crate) fn chunk(&mut self, replica: &Arc<Replica>, header: &Header) -> Result<bool, Error> {
        let before = self.row(header.block)?;
        if before.is_none() && self.is_deleted(header.block)? {
            self.hole(replica, header.segment, Extent::of(header.paged, header.position, header.length));
            return Ok(false);
        }
        let mut row = before.unwrap_or(BlockRow::EMPTY);
        if row.is_final || row.length != header.offset {
            return Ok(false);
        }
        row.length += header.length;
        row.crc = header.block_crc;
        row.epoch = row.epoch.max(header.epoch);
        row.promised = row.promised.max(row.epoch);
        let place = Place { segment: header.segment, position: header.position };
        let piece = PieceRow { place, length: header.length, block_crc: header.block_crc };
        self.batch.put(PIECES, piece_key(header.block, header.offset).to_vec(), piece.encode());
        self.pieces_of.insert(header.block);
        if before.is_none() {
            self.batch.put(UNFINISHED, block_key(header.block).to_vec(), &b""[..]);
        }
        self.touch(replica).add_live(header.segment, (header.end() - header.position) as i64);
        self.rows.insert(header.block, Some(row));
        Ok(true)
    }

    /// The end of a block by its writer. False where it is not so: nothing changes.
    pub(crate) fn finish(&mut self, replica: &Arc<Replica>, header: &Header) -> Result<bool, Error> {
        let Some(row) = self.row(header.block)? else { return Ok(false) };
        if row.is_final || row.length != header.length || row.promised > header.epoch {
            return Ok(false);
        }
        let row = BlockRow { is_final: true, epoch: header.epoch, ..row };
        self.end_block(replica, header, row, false);
        Ok(true)
    }

    /// The end of a block by a seal: of one that is not final, or of one that is under a lower epoch. False where it is neither.
    pub(crate) fn seal(&mut self, replica: &Arc<Replica>, header: &Header) -> Result<bool, Error> {
        let row = match self.row(header.block)? {
            Some(row) => row,
            None if self.is_deleted(header.block)? => return Ok(false),
            None => BlockRow::EMPTY,
        };
        let newer = header.epoch > row.epoch || !row.is_final;
        if !newer || header.epoch < row.promised || header.length > row.length {
            return Ok(false);
        }
        if row.is_final {
            self.touch(replica).uncount(header.block, &row);
        }
        let was_final = row.is_final;
        let mut sealed = BlockRow { is_final: true, epoch: header.epoch, promised: header.epoch, ..row };
        if header.length < row.length {
            self.cut(replica, header, &row, &mut sealed)?;
        }
        self.end_block(replica, header, sealed, was_final);
        Ok(true)
    }

    fn cut(
        &mut self,
        replica: &Arc<Replica>,
        header: &Header,
        row: &BlockRow,
        sealed: &mut BlockRow,
    ) -> Result<(), Error> {
        sealed.length = header.length;
        sealed.crc = header.block_crc;
        sealed.cut = Some(Cut { stored: row.stored(), last_window: header.words.first().copied() });
        if row.body == Body::Pieces {
            for piece in self.pieces(header.block)? {
                if piece.offset >= header.length {
                    self.drop_piece(replica, header.block, &piece);
                }
            }
        }
        Ok(())
    }

    fn end_block(&mut self, replica: &Arc<Replica>, header: &Header, mut row: BlockRow, was_final: bool) {
        let touched = self.touch(replica);
        if let Some(before) = row.ended_in.replace(header.segment) {
            touched.add_live(before, -RECORD);
        }
        touched.add_live(header.segment, RECORD);
        touched.count(header.block, &row);
        if !was_final {
            self.batch.delete(UNFINISHED, block_key(header.block).to_vec());
        }
        self.rows.insert(header.block, Some(row));
    }

    /// A promise for a block that is not final.
    pub(crate) fn promise(&mut self, replica: &Arc<Replica>, header: &Header) -> Result<(), Error> {
        let before = self.row(header.block)?;
        if before.is_none() && self.is_deleted(header.block)? {
            return Ok(());
        }
        let mut row = before.unwrap_or(BlockRow::EMPTY);
        if row.is_final || header.epoch <= row.promised {
            return Ok(());
        }
        row.promised = header.epoch;
        let touched = self.touch(replica);
        if let Some(before) = row.ended_in.replace(header.segment) {
            touched.add_live(before, -RECORD);
        }
        touched.add_live(header.segment, RECORD);
        self.batch.put(UNFINISHED, block_key(header.block).to_vec(), &b""[..]);
        self.rows.insert(header.block, Some(row));
        Ok(())
    }

    /// Drops what there is of a block that is not final.
    pub(crate) fn discard(&mut self, replica: &Arc<Replica>, header: &Header) -> Result<(), Error> {
        match self.row(header.block)? {
            Some(row) if !row.is_final => {
                self.touch(replica).add_live(header.segment, RECORD);
                self.drop_block(replica, header.block, &row)
            }
            _ => Ok(()),
        }
    }

    /// Deletes `length` blocks from the header's on, for good.
    pub(crate) fn tombstone(&mut self, replica: &Arc<Replica>, header: &Header) -> Result<(), Error> {
        let (first, count) = (header.block, header.length);
        let mut doomed: BTreeMap<BlockId, Option<BlockRow>> =
            self.index.blocks(first, count)?.into_iter().map(|(block, row)| (block, Some(row))).collect();
        let last = BlockId::new(first.get() + u64::from(count) - 1).unwrap_or(first);
        doomed.extend(self.rows.range(first..=last).map(|(block, row)| (*block, *row)));
        for (block, row) in doomed {
            if let Some(row) = row {
                self.drop_block(replica, block, &row)?;
            }
        }
        let touched = self.touch(replica);
        touched.delete_sequence = touched.delete_sequence.max(header.transaction());
        self.bury(replica, first, count, header.segment)
    }

    /// Adds a deleted range, joined with those it overlaps or touches.
    fn bury(&mut self, replica: &Arc<Replica>, first: BlockId, count: u32, segment: u32) -> Result<(), Error> {
        let (mut start, mut end) = (first.get(), first.get() + u64::from(count));
        let (low, high) = (first.local().saturating_sub(1), (u64::from(first.local()) + u64::from(count) + 1));
        let from = first.container().block(low).unwrap_or(first);
        let span = high.min(1 << ozone_common::id::LOCAL_BITS) as u32 - low;
        let others = self.tombstones(from, span)?;
        let touched = self.touch(replica);
        let mut next = start;
        let mut fresh = 0;
        let others_then_end = others.iter().map(|(id, count)| (id.get(), id.get() + u64::from(*count)));
        for (other_start, other_end) in others_then_end.chain([(end, end)]) {
            let gap = next..other_start.min(end);
            fresh += gap.end.saturating_sub(gap.start);
            if let Some(digest) = &mut touched.digest {
                gap.filter_map(BlockId::new).for_each(|block| digest.add_tombstone(block));
            }
            next = next.max(other_end);
        }
        if fresh == 0 {
            return Ok(());
        }
        touched.add_live(segment, RECORD);
        for (id, count) in others {
            start = start.min(id.get());
            end = end.max(id.get() + u64::from(count));
            self.tombstones.insert(id, None);
        }
        let start = BlockId::new(start).unwrap_or(first);
        self.tombstones.insert(start, Some((end - start.get()) as u32));
        Ok(())
    }

    /// Deleted ranges that overlap `count` blocks from `first` on, in order, those of this edit included.
    fn tombstones(&self, first: BlockId, count: u32) -> Result<Vec<(BlockId, u32)>, Error> {
        let mut found: BTreeMap<BlockId, u32> = self.index.tombstones(first, count)?.into_iter().collect();
        let end = first.get() + u64::from(count);
        for (id, length) in self.tombstones.range(..).rev().skip_while(|(id, _)| id.get() >= end) {
            match length {
                None => {
                    found.remove(id);
                }
                Some(length) if id.get() + u64::from(*length) <= first.get() => break,
                Some(length) => {
                    found.insert(*id, *length);
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    fn drop_block(&mut self, replica: &Arc<Replica>, block: BlockId, row: &BlockRow) -> Result<(), Error> {
        match row.body {
            Body::Whole(place) => {
                let touched = self.touch(replica);
                let extent = touched.extent(place, row.stored());
                touched.add_live(place.segment, -((extent.end - place.position) as i64));
                self.hole(replica, place.segment, extent);
            }
            Body::Pieces => {
                for piece in self.pieces(block)? {
                    self.drop_piece(replica, block, &piece);
                }
            }
        }
        let touched = self.touch(replica);
        if let Some(segment) = row.ended_in {
            touched.add_live(segment, -RECORD);
        }
        if row.is_final {
            touched.uncount(block, row);
        } else {
            self.batch.delete(UNFINISHED, block_key(block).to_vec());
        }
        self.rows.insert(block, None);
        Ok(())
    }

    fn pieces(&mut self, block: BlockId) -> Result<Vec<Piece>, Error> {
        if self.pieces_of.contains(&block) {
            self.flush()?;
        }
        self.index.pieces(block, 0)
    }

    fn drop_piece(&mut self, replica: &Arc<Replica>, block: BlockId, piece: &Piece) {
        let place = piece.row.place;
        let touched = self.touch(replica);
        let extent = touched.extent(place, piece.row.length);
        touched.add_live(place.segment, -((extent.end - place.position) as i64));
        self.hole(replica, place.segment, extent);
        self.batch.delete(PIECES, piece_key(block, piece.offset).to_vec());
        self.pieces_of.insert(block);
    }

    /// Notes pages to be given back; none where payloads do not begin at pages.
    fn hole(&mut self, replica: &Arc<Replica>, segment: u32, extent: Extent) {
        let pages = extent.pages();
        let paged = self.touch(replica).paged.get(&segment).copied().unwrap_or(false);
        if paged && !pages.is_empty() {
            let key = hole_key(replica.id, segment, pages.start).to_vec();
            self.batch.put(HOLES, key, (pages.end - pages.start).to_le_bytes().to_vec());
        }
    }

    /// All that mattered of a segment is elsewhere.
    pub(crate) fn forget_live(&mut self, replica: &Arc<Replica>, number: u32) {
        let live = replica.totals.lock().segments.get(&number).map_or(0, |segment| segment.row.live);
        self.touch(replica).add_live(number, -(live as i64));
    }

    /// Forgets holes that were punched.
    pub(crate) fn punched(&mut self, holes: &[Hole]) {
        for hole in holes {
            self.batch.delete(HOLES, hole_key(hole.container, hole.segment, hole.start).to_vec());
        }
    }

    /// Forgets a segment whose file goes.
    pub(crate) fn remove_segment(&mut self, replica: &Arc<Replica>, number: u32) {
        self.batch.delete(SEGMENTS, segment_key(replica.id, number).to_vec());
        let start = hole_key(replica.id, number, 0).to_vec();
        let end = hole_key(replica.id, number, u64::MAX).to_vec();
        self.batch.delete_range(HOLES, start, end);
        replica.totals.lock().segments.remove(&number);
    }

    /// From now on changes of the digest are collected: with what `snapshot` then shows they make it.
    pub(crate) fn begin_digest(&mut self, replica: &Arc<Replica>) {
        replica.totals.lock().digest_delta = Some(Digest::default());
    }

    /// The digest of what was there at [`Edit::begin_digest`]; those collected since are added.
    pub(crate) fn end_digest(&mut self, replica: &Arc<Replica>, mut digest: Digest) {
        let mut totals = replica.totals.lock();
        if let Some(delta) = totals.digest_delta.take() {
            digest.add(&delta);
        }
        totals.counts.digest = Some(digest.to_bytes());
        drop(totals);
        self.touch(replica);
    }

    /// Writes all of it, in one batch.
    ///
    /// # Errors
    /// `VolumeFailed`: the volume must not be used any more, since totals in memory have changed.
    pub(crate) fn commit(mut self) -> Result<(), Error> {
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.pieces_of.clear();
        for (block, row) in std::mem::take(&mut self.rows) {
            let row = row.as_ref();
            let key = block_key(block).to_vec();
            match row {
                Some(row) => self.batch.put(BLOCKS, key, row.encode()),
                None => self.batch.delete(BLOCKS, key),
            }
        }
        for (first, count) in std::mem::take(&mut self.tombstones) {
            let key = block_key(first).to_vec();
            match count {
                Some(count) => self.batch.put(TOMBSTONES, key, count.to_le_bytes().to_vec()),
                None => self.batch.delete(TOMBSTONES, key),
            }
        }
        for (container, touched) in std::mem::take(&mut self.touched) {
            let mut totals = touched.replica.totals.lock();
            let totals = &mut *totals;
            let counts = &mut totals.counts;
            counts.used = counts.used.saturating_add_signed(touched.used);
            counts.blocks = counts.blocks.saturating_add_signed(touched.blocks);
            counts.delete_sequence = counts.delete_sequence.max(touched.delete_sequence);
            if let Some(change) = &touched.digest {
                if let Some(delta) = &mut totals.digest_delta {
                    delta.add(change);
                } else if let Some(digest) = &mut counts.digest {
                    let mut sum = Digest::from_bytes(digest);
                    sum.add(change);
                    *digest = sum.to_bytes();
                }
            }
            self.batch.put(COUNTS, container_key(container).to_vec(), counts.encode());
            for (number, bytes) in &touched.live {
                if let Some(segment) = totals.segments.get_mut(number) {
                    segment.row.live = segment.row.live.saturating_add_signed(*bytes);
                }
            }
            for (number, (synced, applied)) in &touched.covered {
                if let Some(segment) = totals.segments.get_mut(number) {
                    (segment.row.synced, segment.row.applied) = (*synced, *applied);
                }
            }
            for number in touched.live.keys().chain(touched.covered.keys()) {
                if let Some(segment) = totals.segments.get(number) {
                    self.batch.put(SEGMENTS, segment_key(container, *number).to_vec(), segment.row.encode());
                }
            }
        }
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        self.index.store().write(&batch).map_err(failed)
    }
}

/// Whether a cut at `length` falls within a checksum window.
pub(crate) fn cuts_window(length: u64) -> bool {
    !length.is_multiple_of(BYTES_PER_CHECKSUM as u64)
}
