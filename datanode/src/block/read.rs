//! Reads: from a row of the index to bytes and their checksums.
//!
//! Records are read with their headers, whose own checksum is verified here; payload is verified by the reader at the other end, except
//! where a cut makes a checksum necessary that nobody has stored.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::checksum::{combine_windows, crc32c, crc32c_combine};
use ozone_common::env::DiskFile;
use ozone_common::id::BlockId;
use ozone_common::limits::BYTES_PER_CHECKSUM;
use ozone_common::{Error, ErrorCode};

use super::buffers::{BUFFER_BYTES, Buffers};
use super::record::{Extent, HEADER_BYTES, Header};
use super::row::{BlockRow, Body, Place};
use crate::container::replica::Replica;
use crate::store::{Piece, Read};
use crate::volume::DiskVolume;

const WINDOW: u64 = BYTES_PER_CHECKSUM as u64;
/// A record without pages of its own is read in one go up to this, header and payload.
const WHOLE_READ_MAX: u64 = 128 << 10;

/// Where records are read from.
pub(crate) struct Source<'a> {
    pub volume: &'a DiskVolume,
    pub replica: &'a Replica,
}

impl Source<'_> {
    fn corrupt(&self, block: BlockId, what: &str) -> Error {
        Error::new(ErrorCode::Corrupt, format!("block {block}: {what}"))
    }

    fn file(&self, segment: u32) -> Result<(Arc<dyn DiskFile>, bool), Error> {
        let paged = self.replica.totals.lock().segments.get(&segment).map(|segment| segment.paged);
        let gone =
            || Error::new(ErrorCode::Corrupt, format!("container {}: segment {segment} is gone", self.replica.id));
        let paged = paged.ok_or_else(gone)?;
        match self.volume.files.get(self.replica, segment, paged) {
            Ok(file) => Ok((file, paged)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(gone()),
            Err(error) => Err(self.read_error(&error)),
        }
    }

    fn read_error(&self, error: &io::Error) -> Error {
        self.volume.error(format_args!("read container {}: {error}", self.replica.id))
    }

    /// Reads and checks the header of the record of `block` at `place`, waiting for the disk.
    pub(crate) fn header(&self, block: BlockId, place: Place, length: u32) -> Result<Header, Error> {
        let (file, _) = self.file(place.segment)?;
        let mut bytes = vec![0; HEADER_BYTES + 4 * (length as usize).div_ceil(BYTES_PER_CHECKSUM)];
        match file.read_exact_at(&mut bytes, place.position) {
            Ok(()) => self.decode(&bytes, block, place),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.corrupt(block, "its segment ends before it"))
            }
            Err(error) => Err(self.read_error(&error)),
        }
    }

    fn decode(&self, bytes: &[u8], block: BlockId, place: Place) -> Result<Header, Error> {
        let header = Header::decode(bytes, self.replica.id, place.segment, place.position);
        header.filter(|header| header.block == block && header.kind.has_payload()).ok_or_else(|| {
            self.corrupt(block, &format!("no record of it at {} of segment {}", place.position, place.segment))
        })
    }

    /// Bytes `from..to` of a record's payload, waiting for the disk.
    fn payload(&self, header: &Header, from: u64, to: u64) -> Result<Vec<u8>, Error> {
        let (file, _) = self.file(header.segment)?;
        let mut bytes = vec![0; (to - from) as usize];
        match file.read_exact_at(&mut bytes, header.payload_start() + from) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.corrupt(header.block, "its segment ends within it"))
            }
            Err(error) => Err(self.read_error(&error)),
        }
    }

    /// The first window of a record's payload that is not what its checksum says, as an offset in the payload.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(crate) fn first_bad_window(&self, header: &Header) -> Result<Option<u64>, Error> {
        for (number, crc) in header.words.iter().enumerate() {
            let from = number as u64 * WINDOW;
            let to = (from + WINDOW).min(header.payload_bytes());
            if crc32c(&self.payload(header, from, to)?) != *crc {
                return Ok(Some(from));
            }
        }
        Ok(None)
    }

    /// The records of a block that hold its bytes, each with where they begin in it.
    pub(crate) fn records(&self, block: BlockId, row: &BlockRow) -> Result<Vec<(u64, Place, u32)>, Error> {
        match row.body {
            Body::Whole(place) => Ok(vec![(0, place, row.stored())]),
            Body::Pieces => {
                let pieces = self.volume.index.pieces(block, 0)?;
                Ok(pieces.iter().map(|piece| (u64::from(piece.offset), piece.row.place, piece.row.length)).collect())
            }
        }
    }
}

/// CRC32C of the first `length` bytes of a block that holds more, and of the last window of these. What is cut through is verified.
pub(crate) fn cut_checksum(
    source: &Source<'_>,
    block: BlockId,
    row: &BlockRow,
    length: u32,
) -> Result<(u32, u32), Error> {
    if length == 0 {
        return Ok((0, 0));
    }
    let at = u64::from(length) - 1;
    let (offset, place, stored, before) = match row.body {
        Body::Whole(place) => (0, place, row.stored(), 0),
        Body::Pieces => {
            let index = &source.volume.index;
            let missing = || source.corrupt(block, "a chunk is missing in the index");
            let piece = index.piece_at(block, at)?.filter(|piece| piece.end() > at).ok_or_else(missing)?;
            let before = match piece.offset {
                0 => 0,
                offset => index.piece_at(block, u64::from(offset) - 1)?.ok_or_else(missing)?.row.block_crc,
            };
            (piece.offset, piece.row.place, piece.row.length, before)
        }
    };
    let header = source.header(block, place, stored)?;
    let kept = u64::from(length - offset);
    let whole = kept / WINDOW;
    let mut words: Vec<u32> = header.words.iter().take(whole as usize).copied().collect();
    let mut last = words.last().copied().unwrap_or(0);
    if whole * WINDOW < kept {
        let from = whole * WINDOW;
        let window = source.payload(&header, from, (from + WINDOW).min(header.payload_bytes()))?;
        if header.words.get(whole as usize) != Some(&crc32c(&window)) {
            return Err(source.corrupt(block, "a window that is to be cut is damaged"));
        }
        last = crc32c(window.get(..(kept - from) as usize).unwrap_or_default());
        words.push(last);
    }
    let crc = combine_windows(&words, kept);
    Ok((if offset == 0 { crc } else { crc32c_combine(before, crc, kept) }, last))
}

/// What a plan keeps of the record it is in.
struct Current {
    /// Where in the block its payload begins.
    offset: u64,
    header: Header,
}

/// The pieces of a read. See [`crate::store::ReadPlan`].
pub(crate) struct Plan {
    volume: Arc<DiskVolume>,
    replica: Arc<Replica>,
    buffers: Arc<Buffers>,
    block: BlockId,
    row: BlockRow,
    /// Records still to be read, last first.
    records: Vec<(u64, Place, u32)>,
    current: Option<Current>,
    /// Where the next piece begins: at a window.
    at: u64,
    /// Up to here: the end of a window or of the block.
    end: u64,
    /// The length as committed.
    block_length: u64,
}

/// Whether a read may wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Yes,
    No,
}

/// What stopped a read.
enum Stop {
    /// It is not in the page cache.
    NotCached,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Plan {
    /// Judges a read by the block's row.
    pub(crate) fn new(
        volume: Arc<DiskVolume>,
        replica: Arc<Replica>,
        buffers: Arc<Buffers>,
        read: &Read,
    ) -> Result<Self, Error> {
        let Read { block, epoch, block_length, offset, length } = *read;
        let missing = |why: String| Error::new(ErrorCode::BlockNotFound, format!("block {block}: {why}"));
        let end = offset.checked_add(length).filter(|end| length > 0 && *end <= block_length);
        let end = end.ok_or_else(|| {
            Error::invalid(format!("bytes {offset}+{length} are not within block {block} of {block_length} bytes"))
        })?;
        let row = volume.index.block(block)?.ok_or_else(|| missing("it is not here".into()))?;
        if !row.is_final {
            return Err(missing("it was neither finished nor sealed here".into()));
        }
        if row.epoch < epoch {
            return Err(missing(format!("it is here under epoch {}, not {epoch}", row.epoch)));
        }
        if u64::from(row.length) < block_length {
            return Err(missing(format!("{} bytes of it are here, not {block_length}", row.length)));
        }
        let at = offset / WINDOW * WINDOW;
        let end = end.next_multiple_of(WINDOW).min(block_length);
        let records = match row.body {
            Body::Whole(place) => vec![(0, place, row.stored())],
            Body::Pieces => {
                let mut records: Vec<_> = volume
                    .index
                    .pieces(block, at)?
                    .iter()
                    .map(|piece| (u64::from(piece.offset), piece.row.place, piece.row.length))
                    .filter(|(offset, ..)| *offset < end)
                    .collect();
                records.reverse();
                records
            }
        };
        Ok(Self { volume, replica, buffers, block, row, records, current: None, at, end, block_length })
    }

    /// The next piece if it need not be waited for.
    pub(crate) fn next_cached(&mut self) -> Result<Option<Piece>, Error> {
        match self.next(Wait::No) {
            Ok(piece) => Ok(Some(piece)),
            Err(Stop::NotCached) => Ok(None),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// The next piece.
    pub(crate) fn next_piece(&mut self) -> Result<Piece, Error> {
        self.next(Wait::Yes).map_err(|stop| match stop {
            Stop::NotCached => Error::internal("a read that may wait did not"),
            Stop::Failed(error) => error,
        })
    }

    fn source(&self) -> Source<'_> {
        Source { volume: &self.volume, replica: &self.replica }
    }

    fn next(&mut self, wait: Wait) -> Result<Piece, Stop> {
        self.volume.check()?;
        if self.at >= self.end {
            return Err(Error::internal("the last piece of the read was given").into());
        }
        let ended = |current: &Current| current.offset + current.header.payload_bytes() <= self.at;
        if self.current.as_ref().is_some_and(ended) {
            self.current = None;
        }
        if self.current.is_some() {
            return self.continue_record(wait);
        }
        let missing = || Stop::Failed(self.source().corrupt(self.block, "a chunk is missing in the index"));
        let (offset, place, stored) = *self.records.last().ok_or_else(missing)?;
        if offset > self.at || offset + u64::from(stored) <= self.at {
            return Err(missing());
        }
        let (file, paged) = self.source().file(place.segment)?;
        let extent = Extent::of(paged, place.position, stored);
        let payload_end = extent.payload_start + u64::from(stored);
        if offset == 0 && self.at == 0 && payload_end - place.position <= WHOLE_READ_MAX {
            return self.whole(&*file, wait, place, extent, stored);
        }
        let mut head = vec![0; HEADER_BYTES + 4 * (stored as usize).div_ceil(BYTES_PER_CHECKSUM)];
        self.read(&*file, &mut head, place.position, wait)?;
        let header = self.source().decode(&head, self.block, place)?;
        if header.length != stored {
            return Err(self.source().corrupt(self.block, "its record has another length than the index").into());
        }
        self.records.pop();
        self.current = Some(Current { offset, header });
        self.continue_record(wait)
    }

    /// A small record, header and payload with one read.
    fn whole(
        &mut self,
        file: &dyn DiskFile,
        wait: Wait,
        place: Place,
        extent: Extent,
        stored: u32,
    ) -> Result<Piece, Stop> {
        let end = self.end.min(u64::from(stored));
        let skip = (extent.payload_start - place.position) as usize;
        let mut bytes = vec![0; skip + end as usize];
        self.read(file, &mut bytes, place.position, wait)?;
        let header = self.source().decode(&bytes, self.block, place)?;
        if header.length != stored {
            return Err(self.source().corrupt(self.block, "its record has another length than the index").into());
        }
        self.records.pop();
        let data = Bytes::from(bytes).slice(skip..);
        let current = Current { offset: 0, header };
        let piece = self.piece(&current, data, 0, end);
        self.current = Some(current);
        piece
    }

    fn continue_record(&mut self, wait: Wait) -> Result<Piece, Stop> {
        let Some(current) = self.current.take() else {
            return Err(Error::internal("a read lost its place").into());
        };
        let outcome = self.read_current(&current, wait);
        self.current = Some(current);
        outcome
    }

    fn read_current(&mut self, current: &Current, wait: Wait) -> Result<Piece, Stop> {
        let from = self.at - current.offset;
        let to = (self.end - current.offset).min(current.header.payload_bytes()).min(from + BUFFER_BYTES as u64);
        let (file, _) = self.source().file(current.header.segment)?;
        let position = current.header.payload_start() + from;
        let buffers = self.buffers.clone();
        let data = buffers.fill((to - from) as usize, |bytes| self.read(&*file, bytes, position, wait))?;
        self.piece(current, data, from, to)
    }

    /// Bytes `from..to` of the current record's payload, with their checksums.
    fn piece(&mut self, current: &Current, data: Bytes, from: u64, to: u64) -> Result<Piece, Stop> {
        let first = (from / WINDOW) as usize;
        let count = (to - from).div_ceil(WINDOW) as usize;
        let mut crcs: Vec<u32> = current.header.words.iter().skip(first).take(count).copied().collect();
        let cut = current.offset + to == self.block_length
            && to < current.header.payload_bytes()
            && !to.is_multiple_of(WINDOW);
        if cut && let Some(last) = crcs.last_mut() {
            let stored = self.row.cut.and_then(|cut| cut.last_window);
            *last = match stored.filter(|_| self.block_length == u64::from(self.row.length)) {
                Some(crc) => crc,
                None => self.last_window_crc()?,
            };
        }
        let piece = Piece { offset: self.at, crcs, last: current.offset + to >= self.end, data };
        self.at = current.offset + to;
        Ok(piece)
    }

    /// Checksum of the last window of a block that is committed at less than is here: the whole window is read and verified.
    fn last_window_crc(&self) -> Result<u32, Stop> {
        Ok(cut_checksum(&self.source(), self.block, &self.row, self.block_length as u32)?.1)
    }

    fn read(&self, file: &dyn DiskFile, bytes: &mut [u8], position: u64, wait: Wait) -> Result<(), Stop> {
        let outcome = match wait {
            Wait::Yes => file.read_exact_at(bytes, position).map(|()| true),
            // A part only is in memory, or the file ends: the read that waits finds out.
            Wait::No => file.read_at_cached(bytes, position).map(|read| read == Some(bytes.len())),
        };
        match outcome {
            Ok(true) => Ok(()),
            Ok(false) => Err(Stop::NotCached),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.source().corrupt(self.block, "its segment ends before it does").into())
            }
            Err(error) => Err(self.source().read_error(&error).into()),
        }
    }

    /// Which block, for reports of damage.
    pub(crate) fn block(&self) -> BlockId {
        self.block
    }
}
