//! From jobs to records: what one batch appends to one segment. No disk but the last write.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::Error;
use ozone_common::checksum::combine_windows;
use ozone_common::env::DiskFile;
use ozone_common::id::BlockId;

use super::queue::{Done, Job};
use super::record::{Header, Kind, transaction_words};
use crate::container::replica::{OpenBlock, Replica};
use crate::store::Durability;

/// Whom to tell.
pub(super) enum Answer {
    Unit(Done),
    Length(Done<u64>),
}

/// A job under way.
pub(super) struct Entry {
    pub replica: Arc<Replica>,
    pub answer: Answer,
    /// The length that a seal answers; 0 for others.
    pub outcome: Result<u64, Error>,
    /// Records were made for it.
    pub planned: bool,
    /// It is counted in the replica's `in_flight`.
    pub in_flight: bool,
    /// The block that is no longer being written, where this succeeds.
    pub ends: Option<BlockId>,
    /// A whole block whose id may be used after all, where this fails.
    pub put: Option<BlockId>,
    /// Its id was seen before.
    pub known: bool,
    pub open: Option<Arc<OpenBlock>>,
    /// Where the block ends, where a chunk succeeds.
    pub written_to: Option<u64>,
}

impl Entry {
    /// Of a job, without its payload.
    pub(super) fn of(job: Job) -> Self {
        let replica = job.replica().clone();
        let mut entry = Self {
            replica,
            answer: Answer::Unit(Box::new(|_| ())),
            outcome: Ok(0),
            planned: false,
            in_flight: true,
            ends: None,
            put: None,
            known: false,
            open: None,
            written_to: None,
        };
        match job {
            Job::Put { block, known, done, .. } => {
                (entry.answer, entry.known) = (Answer::Unit(done), known);
                entry.put = (!known).then_some(block);
            }
            Job::Chunk { open, offset, data, done, .. } => {
                entry.answer = Answer::Unit(done);
                entry.written_to = Some(offset + data.len() as u64);
                entry.open = Some(open);
            }
            Job::Finish { open, done, .. } => {
                (entry.answer, entry.ends) = (Answer::Unit(done), Some(open.id));
            }
            Job::Seal { seal, done, .. } => {
                (entry.answer, entry.ends) = (Answer::Length(done), seal.length.map(|_| seal.block));
            }
            Job::Delete { done, .. } | Job::Discard { done, .. } | Job::End { done, .. } => {
                (entry.answer, entry.in_flight) = (Answer::Unit(done), false);
            }
        }
        entry
    }

    /// Of a job that is not carried out.
    pub(super) fn refused(job: Job, error: Error) -> Self {
        Self { outcome: Err(error), ..Self::of(job) }
    }
}

enum Part {
    Arena(Range<usize>),
    Payload(Bytes),
}

/// What a batch appends to one segment.
pub(super) struct Group {
    pub replica: Arc<Replica>,
    pub number: u32,
    pub paged: bool,
    pub file: Arc<dyn DiskFile>,
    /// Where its first record begins,
    pub start: u64,
    /// and where the next batch's will.
    pub end: u64,
    /// Durable when it was planned.
    durable_to: u64,
    /// Headers and padding.
    arena: Vec<u8>,
    parts: Vec<Part>,
    /// Each with the entry it belongs to.
    pub records: Vec<(Header, usize)>,
    /// Someone was promised durability.
    pub sync: bool,
    /// For want of space.
    pub refused: bool,
    /// Where the last part ends; records begin at multiples of 8.
    filled: u64,
}

impl Group {
    pub(super) fn new(
        replica: Arc<Replica>,
        number: u32,
        paged: bool,
        file: Arc<dyn DiskFile>,
        start: u64,
        durable_to: u64,
    ) -> Self {
        Self {
            replica,
            number,
            paged,
            file,
            start,
            end: start,
            durable_to,
            arena: Vec::new(),
            parts: Vec::new(),
            records: Vec::new(),
            sync: false,
            refused: false,
            filled: start,
        }
    }

    /// Makes the records of a job; `seal` is the answer and record of a seal.
    pub(super) fn add_job(&mut self, index: usize, job: Job, seal: Option<(u64, Header)>) -> Entry {
        match &job {
            Job::Put { block, epoch, crcs, data, durability, .. } => {
                self.sync |= *durability == Durability::Disk;
                let crc = combine_windows(crcs, data.len() as u64);
                let header = self.data_header(Kind::Put, *epoch, *block, 0, data, crcs.clone(), crc);
                self.add(index, header, Some(data));
            }
            Job::Chunk { open, offset, crcs, block_crc, data, .. } => {
                let header =
                    self.data_header(Kind::Chunk, open.epoch, open.id, *offset as u32, data, crcs.clone(), *block_crc);
                self.add(index, header, Some(data));
            }
            Job::Finish { open, length, .. } => {
                self.sync |= open.durability == Durability::Disk;
                let mut header = self.header(Kind::Finish, open.epoch, open.id, *length as u32);
                header.block_crc = open.state.lock().crc;
                self.add(index, header, None);
            }
            Job::Seal { .. } => self.sync = true,
            Job::Delete { ranges, transaction, .. } => {
                self.sync = true;
                for range in ranges {
                    let Some(first) = self.replica.id.block(range.first) else { continue };
                    let mut header = self.header(Kind::Tombstone, 0, first, range.count);
                    header.words = transaction_words(*transaction);
                    self.add(index, header, None);
                }
            }
            Job::Discard { blocks, .. } => {
                self.sync = true;
                for block in blocks {
                    let header = self.header(Kind::Discard, 0, *block, 0);
                    self.add(index, header, None);
                }
            }
            Job::End { .. } => {}
        }
        let mut entry = Entry { planned: true, ..Entry::of(job) };
        if let Some((length, template)) = seal {
            let header = Header { segment: self.number, position: self.end, durable_to: self.durable_to, ..template };
            self.add(index, header, None);
            entry.outcome = Ok(length);
        }
        entry
    }

    fn header(&self, kind: Kind, epoch: u32, block: BlockId, length: u32) -> Header {
        Header {
            kind,
            paged: false,
            epoch,
            block,
            offset: 0,
            length,
            durable_to: self.durable_to,
            position: self.end,
            segment: self.number,
            block_crc: 0,
            words: Vec::new(),
        }
    }

    fn data_header(
        &self,
        kind: Kind,
        epoch: u32,
        block: BlockId,
        offset: u32,
        data: &Bytes,
        words: Vec<u32>,
        block_crc: u32,
    ) -> Header {
        let header = self.header(kind, epoch, block, data.len() as u32);
        Header { paged: self.paged, offset, words, block_crc, ..header }
    }

    fn add(&mut self, index: usize, header: Header, payload: Option<&Bytes>) {
        let from = self.arena.len();
        self.arena.resize(from + (header.position - self.filled) as usize, 0);
        header.encode(&mut self.arena);
        let range = from..self.arena.len();
        match self.parts.last_mut() {
            // Neighbours of the arena are one slice.
            Some(Part::Arena(last)) if last.end == range.start => last.end = range.end,
            _ => self.parts.push(Part::Arena(range)),
        }
        if let Some(payload) = payload.filter(|payload| !payload.is_empty()) {
            self.parts.push(Part::Payload(payload.clone()));
        }
        self.filled = header.payload_start() + header.payload_bytes();
        self.end = header.end();
        self.records.push((header, index));
    }

    /// Writes all records, with one call where the kernel takes them.
    pub(super) fn write(&self) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = self
            .parts
            .iter()
            .map(|part| match part {
                Part::Arena(range) => IoSlice::new(self.arena.get(range.clone()).unwrap_or_default()),
                Part::Payload(bytes) => IoSlice::new(bytes),
            })
            .collect();
        self.file.write_all_at(&mut slices, self.start)
    }
}
