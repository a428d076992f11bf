//! A replica in memory.
//!
//! ```text
//!            told to close           nothing in flight, no block open
//!   Open ───────────────▶ Closing ───────────────────────────────────▶ Finishing ──▶ Closed
//!    └──── a restart ────────▲
//! ```
//! Two locks, never held over disk work: `state` is what writers are judged by; `totals` is what the index says of its segments, changed with the
//! index (`block::edit`). Where both are needed, `state` is taken first.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::id::{BlockId, ContainerId, DatanodeId};
use ozone_common::{Error, ErrorCode};
use parking_lot::Mutex;

use super::digest::Digest;
use super::local_set::LocalSet;
use crate::block::row::{CountsRow, SegmentRow};
use crate::store::{Durability, ReplicaReport, ReplicaState};

/// How far its life is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    /// Takes blocks.
    Open,
    /// Takes no new blocks. `told` by the SCM, or else only restarted.
    Closing { told: bool },
    /// Open blocks are dropped, segments ended: a matter of milliseconds.
    Finishing,
    /// Takes deletes, and seals of final blocks.
    Closed,
}

/// What writers are judged by.
#[derive(Debug)]
pub(crate) struct State {
    pub phase: Phase,
    /// It is on disk: the first block makes it.
    pub made: bool,
    pub epoch: u32,
    pub members: Vec<DatanodeId>,
    /// Why it is quarantined.
    pub unhealthy: Option<String>,
    /// Puts, chunks, finishes and seals that are queued.
    pub in_flight: u32,
    /// Blocks whose ids this process took into use; kept while it takes blocks.
    seen: LocalSet,
    /// Blocks that it was told to delete, as long. Apart from `seen`: what is in it stays, also where a put of before fails and gives its id back.
    deleted: LocalSet,
    /// Blocks being written in chunks, by local number.
    pub writing: BTreeMap<u32, Arc<OpenBlock>>,
    /// When it was recovered, which is when its unfinished blocks of before are taken to have grown.
    pub since_ms: u64,
}

/// A segment as the index knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// Payloads begin at pages (the bulk lane's).
    pub paged: bool,
    /// A lane appends to it.
    pub active: bool,
    pub row: SegmentRow,
}

/// What the index says in sum. Invariant: equals the sums over its rows.
#[derive(Default, Debug)]
pub(crate) struct Totals {
    pub segments: BTreeMap<u32, Segment>,
    pub counts: CountsRow,
    /// Changes of the digest while it is being computed.
    pub digest_delta: Option<Digest>,
    /// No segment ever had this number or a higher one.
    pub next_segment: u32,
    /// `counts.used` when it was last reported.
    pub reported_used: u64,
}

impl Totals {
    /// A number for a new segment.
    pub(crate) fn allocate(&mut self, paged: bool, active: bool) -> u32 {
        let number = self.next_segment;
        self.next_segment += 1;
        self.segments.insert(number, Segment { paged, active, row: SegmentRow::default() });
        number
    }
}

/// A replica.
#[derive(Debug)]
pub(crate) struct Replica {
    pub id: ContainerId,
    /// Index of its volume.
    pub volume: usize,
    pub dir: PathBuf,
    pub state: Mutex<State>,
    pub totals: Mutex<Totals>,
    /// Held while it is made on disk, or its manifest is rewritten.
    pub manifest: Mutex<()>,
}

impl Replica {
    /// One that is not on disk yet.
    pub(crate) fn new(id: ContainerId, volume: usize, dir: PathBuf, epoch: u32, members: Vec<DatanodeId>) -> Self {
        let state = State {
            phase: Phase::Open,
            made: false,
            epoch,
            members,
            unhealthy: None,
            in_flight: 0,
            seen: LocalSet::default(),
            deleted: LocalSet::default(),
            writing: BTreeMap::new(),
            since_ms: 0,
        };
        let totals = Totals { next_segment: 1, ..Totals::default() };
        Self { id, volume, dir, state: Mutex::new(state), totals: Mutex::new(totals), manifest: Mutex::new(()) }
    }

    /// As the SCM is told; `None` before it is on disk.
    pub(crate) fn report(&self) -> Option<ReplicaReport> {
        let state = self.state.lock();
        if !state.made {
            return None;
        }
        let mut totals = self.totals.lock();
        totals.reported_used = totals.counts.used;
        let reported = match state.phase {
            _ if state.unhealthy.is_some() => ReplicaState::Unhealthy,
            Phase::Open => ReplicaState::Open,
            Phase::Closing { .. } | Phase::Finishing => ReplicaState::Closing,
            Phase::Closed => ReplicaState::Closed,
        };
        Some(ReplicaReport {
            container: self.id,
            state: reported,
            epoch: state.epoch,
            used_bytes: totals.counts.used,
            block_count: totals.counts.blocks,
            delete_sequence: totals.counts.delete_sequence,
            digest: totals.counts.digest.filter(|_| state.phase == Phase::Closed),
        })
    }

    /// Where segment `number` lies.
    pub(crate) fn segment_path(&self, number: u32, paged: bool) -> PathBuf {
        self.dir.join(segment_name(number, paged))
    }
}

/// File name of a segment: its number in hexadecimal, and whose lane it is.
pub(crate) fn segment_name(number: u32, paged: bool) -> String {
    format!("{number:08x}.{}", if paged { "bulk" } else { "small" })
}

/// Number and lane of a segment's file name.
pub(crate) fn parse_segment_name(name: &str) -> Option<(u32, bool)> {
    let (number, lane) = name.split_once('.')?;
    let paged = match lane {
        "bulk" => true,
        "small" => false,
        _ => return None,
    };
    let number = u32::from_str_radix(number, 16).ok()?;
    (segment_name(number, paged) == name).then_some((number, paged))
}

impl State {
    /// Whether a new block, or more of an open one, may come under `epoch`.
    ///
    /// # Errors
    /// `ContainerNotOpen`, `StaleEpoch`.
    pub(crate) fn check_write(&self, container: ContainerId, epoch: u32, new: bool) -> Result<(), Error> {
        let not_open = |why: String| Err(Error::new(ErrorCode::ContainerNotOpen, why));
        if let Some(why) = &self.unhealthy {
            return not_open(format!("container {container} is quarantined here: {why}"));
        }
        match self.phase {
            Phase::Open => {}
            Phase::Closing { .. } if !new => {}
            Phase::Closing { .. } => {
                return not_open(format!("container {container} is closing and takes no new block"));
            }
            Phase::Finishing | Phase::Closed => return not_open(format!("container {container} is closed")),
        }
        if new && epoch < self.epoch {
            return Err(Error::new(
                ErrorCode::StaleEpoch,
                format!("container {container} is at epoch {}, the writer at {epoch}", self.epoch),
            ));
        }
        Ok(())
    }

    /// Takes a block's id into use; false where it was, or is spent.
    pub(crate) fn take_id(&mut self, block: BlockId) -> bool {
        !self.deleted.contains(block.local()) && self.seen.insert(block.local())
    }

    /// What a block's id was taken for did not come to be: it may be used after all.
    pub(crate) fn give_id_back(&mut self, block: BlockId) {
        self.seen.remove(block.local());
    }

    /// Spends the ids of `count` blocks from `first` on, and fails those that are being written.
    pub(crate) fn delete_ids(&mut self, first: u32, count: u32) {
        if self.phase < Phase::Finishing {
            self.deleted.insert_range(first, count);
        }
        let writing: Vec<u32> =
            self.writing.range(first..first.saturating_add(count)).map(|(local, _)| *local).collect();
        for local in writing {
            let Some(open) = self.writing.remove(&local) else { continue };
            let deleted = Error::new(ErrorCode::BlockDeleted, format!("block {} was deleted", open.id));
            open.state.lock().failed.get_or_insert(deleted);
        }
    }

    /// No block is taken any more, so that nobody asks which were.
    pub(crate) fn close(&mut self) {
        self.phase = Phase::Closed;
        (self.seen, self.deleted) = Default::default();
    }
}

/// Who may still append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriterState {
    /// The writer is there.
    Present,
    /// Its connection broke; someone may seal what it wrote.
    Gone,
    /// It gave up.
    Abandoned,
}

/// A block being written in chunks.
#[derive(Debug)]
pub(crate) struct OpenBlock {
    pub id: BlockId,
    pub epoch: u32,
    pub durability: Durability,
    pub state: Mutex<OpenState>,
}

/// Of an [`OpenBlock`]; `submitted` and what follows are the writer's, `written` is the lane's.
#[derive(Debug)]
pub(crate) struct OpenState {
    /// Bytes handed to the lane.
    pub submitted: u64,
    /// CRC32C of these.
    pub crc: u32,
    /// The last chunk was no whole number of windows: nothing may follow.
    pub ended: bool,
    /// Bytes in the segment and the index.
    pub written: u64,
    /// Why nothing that is queued or comes succeeds any more.
    pub failed: Option<Error>,
    /// Why nothing that comes is taken; what is queued is.
    pub fenced: Option<Error>,
    pub writer: WriterState,
    /// When a chunk was last handed in.
    pub grown_ms: u64,
}

/// Datanodes of a container from the wire.
///
/// # Errors
/// `InvalidArgument` where one is not 16 bytes.
pub(crate) fn members(wire: &[Bytes]) -> Result<Vec<DatanodeId>, Error> {
    wire.iter().map(|bytes| DatanodeId::from_slice(bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_parse_and_nothing_else_does() {
        for (number, paged) in [(1, false), (u32::MAX, true), (0xab, true)] {
            assert_eq!(parse_segment_name(&segment_name(number, paged)), Some((number, paged)));
        }
        for name in ["", "1.small", "00000001.large", "0000000g.bulk", "+0000001.bulk", "00000001.bulk.tmp", "replica"]
        {
            assert_eq!(parse_segment_name(name), None, "{name}");
        }
    }
}
