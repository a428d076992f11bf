//! The log on disk: entries and the hard state in one sequence of files, made durable with one append and one fdatasync per batch.
//!
//! ```text
//!  append(hard state, entries) ──▶ one frame ──▶ pwritev ──▶ fdatasync ──▶ durable
//!  00…1.log  00…2.log  00…3.log ◀─ grows; zeros are written ahead of its frames, so that fdatasync has no block or length to record
//!  └─ removed whole, oldest first, when all in it lies behind a snapshot
//! ```
//! - A frame is written only after the one before it is durable. So after a crash only the last frame may be incomplete, and it was
//!   never acknowledged: it is cut. Anything else that does not read is damage and refused: what follows it was acknowledged.
//! - Entries to be replaced (a follower's, that its leader does not have) go by a new file whose header names the last entry to keep.
//! - After a failed write or fdatasync nothing is known about the file's end, so the store takes no more appends.

mod format;
#[cfg(test)]
mod model_test;
mod recover;
mod segment;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ozone_common::env::{Disk, Rng};

use crate::core::{Entry, EntryId, HardState, Index, MemberId, Term};

use format::Header;
use segment::Segment;

/// What can go wrong with the log. All but [`LogError::Full`] are final: the member stops.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk failed.
    #[error("{attempted} `{}`: {source}", path.display())]
    Io {
        /// What was being done.
        attempted: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There is no space for more entries. Nothing was written.
    #[error("no space left for the log in `{}`", path.display())]
    Full {
        /// The folder.
        path: PathBuf,
    },
    /// Acknowledged entries do not read.
    #[error(
        "log file `{}` is damaged at byte {offset}: {detail}; keep the files as they are: with other members in the group, remove this \
         one and add it again under a new id; in a group of one, bring the whole folder back from a copy",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What was found.
        detail: String,
    },
    /// The files are another group's or member's.
    #[error("log file `{}` belongs to {found}, not to {expected}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: Identity,
        /// Whose it should be.
        expected: Identity,
    },
    /// An append failed before.
    #[error("the log takes no more entries since an append to it failed")]
    Poisoned,
}

/// Whose log it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The group.
    pub group: [u8; 16],
    /// The member; not 0.
    pub member: MemberId,
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "member {:016x} of group ", self.member.0)?;
        self.group.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Sizes of files.
#[derive(Clone, Copy, Debug)]
pub struct LogConfig {
    /// A file ends when the next frame would take it beyond so many bytes.
    pub segment_bytes: u64,
    /// Zeros are written so many bytes ahead at a time.
    pub zero_ahead_bytes: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { segment_bytes: 16 << 20, zero_ahead_bytes: 512 << 10 }
    }
}

/// Where an entry lies.
#[derive(Clone, Copy)]
struct Slot {
    term: Term,
    file: u64,
    offset: u32,
    bytes: u32,
}

/// The log of one member.
pub struct LogStore {
    disk: Arc<dyn Disk>,
    rng: Arc<dyn Rng>,
    folder: PathBuf,
    identity: Identity,
    config: LogConfig,
    /// Oldest first, never empty; the last one grows.
    segments: VecDeque<Segment>,
    /// The entry before the first of `slots`.
    previous: EntryId,
    slots: VecDeque<Slot>,
    hard_state: HardState,
    next_frame: u64,
    poisoned: bool,
}

impl LogStore {
    /// Whether the folder holds a log.
    ///
    /// # Errors
    /// Where the folder cannot be listed.
    pub fn exists(disk: &dyn Disk, folder: &Path) -> Result<bool, LogError> {
        Ok(disk.exists(folder) && !recover::file_numbers(disk, folder)?.is_empty())
    }

    /// Makes an empty log whose first entry will be the one after `previous`.
    ///
    /// # Errors
    /// Where the disk fails. A log that is there already is a broken invariant.
    pub fn create(
        disk: Arc<dyn Disk>,
        rng: Arc<dyn Rng>,
        folder: &Path,
        identity: Identity,
        config: LogConfig,
        previous: EntryId,
    ) -> Result<Self, LogError> {
        assert!(!Self::exists(&*disk, folder)?, "a log is made once");
        assert!(identity.member != MemberId(0), "0 stands for no member");
        disk.create_dir_all(folder).map_err(|source| io_error("make folder", folder, source))?;
        let parent = folder.parent().unwrap_or(folder);
        disk.sync_dir(parent).map_err(|source| io_error("sync folder", parent, source))?;
        let mut log = Self {
            disk,
            rng,
            folder: folder.to_path_buf(),
            identity,
            config,
            segments: VecDeque::new(),
            previous,
            slots: VecDeque::new(),
            hard_state: HardState::default(),
            next_frame: 1,
            poisoned: false,
        };
        log.roll(previous, false)?;
        Ok(log)
    }

    /// Opens a log, cutting a last frame that was not written to its end.
    ///
    /// # Errors
    /// Damage to what was acknowledged, or another member's files.
    pub fn open(
        disk: Arc<dyn Disk>,
        rng: Arc<dyn Rng>,
        folder: &Path,
        identity: Identity,
        config: LogConfig,
    ) -> Result<Self, LogError> {
        let found = recover::recover(&disk, folder, identity)?;
        Ok(Self {
            disk,
            rng,
            folder: folder.to_path_buf(),
            identity,
            config,
            segments: found.segments,
            previous: found.previous,
            slots: found.slots,
            hard_state: found.hard_state,
            next_frame: found.next_frame,
            poisoned: false,
        })
    }

    /// Term and vote as last appended.
    pub fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// The entry before the first that can be read.
    pub fn previous(&self) -> EntryId {
        self.previous
    }

    /// The last entry, or [`LogStore::previous`] where there is none.
    pub fn last(&self) -> EntryId {
        match self.slots.back() {
            Some(slot) => EntryId { term: slot.term, index: Index(self.previous.index.0 + self.slots.len() as u64) },
            None => self.previous,
        }
    }

    /// The term of an entry; `None` where the log has none there.
    pub fn term_at(&self, index: Index) -> Option<Term> {
        if index == self.previous.index { Some(self.previous.term) } else { self.slot(index).map(|slot| slot.term) }
    }

    /// Bytes of disk behind which the log lies.
    pub fn disk_bytes(&self) -> u64 {
        self.segments.iter().map(Segment::length).sum()
    }

    fn slot(&self, index: Index) -> Option<&Slot> {
        let at = index.0.checked_sub(self.previous.index.0 + 1)?;
        self.slots.get(usize::try_from(at).ok()?)
    }

    /// Reads entries from `from` to `to`, at most `bytes_max` bytes of them, but one at least; none where the log has none at `from`.
    ///
    /// # Errors
    /// Where the disk fails or an entry is not what was written.
    pub fn read(&self, from: Index, to: Index, bytes_max: usize) -> Result<Vec<Entry>, LogError> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let mut index = from;
        while let Some(slot) = self.slot(index).filter(|_| index <= to) {
            bytes += slot.bytes as usize;
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            let segment = self.segment(slot.file);
            let entry = segment.read(u64::from(slot.offset), slot.bytes as usize)?;
            if entry.id != (EntryId { term: slot.term, index }) {
                let detail = format!("entry {}.{index} was expected, {} is there", slot.term, entry.id);
                return Err(segment.damaged(u64::from(slot.offset), detail));
            }
            entries.push(entry);
            index = index.next();
        }
        Ok(entries)
    }

    fn segment(&self, number: u64) -> &Segment {
        let first = self.segments[0].header.file;
        &self.segments[usize::try_from(number - first).expect("a process has fewer files than its address space bytes")]
    }

    fn active(&mut self) -> &mut Segment {
        self.segments.back_mut().expect("a log has a file")
    }

    /// Makes sure that an append of so many bytes of bodies in so many entries finds its space, so that running out of it is noticed
    /// while there is still nothing to take back.
    ///
    /// # Errors
    /// [`LogError::Full`]: there is no space; nothing changed. Others are final.
    pub fn reserve(&mut self, body_bytes: usize, entries: usize) -> Result<(), LogError> {
        if self.poisoned {
            return Err(LogError::Poisoned);
        }
        let frame =
            format::FRAME_HEADER_BYTES + (entries + 2) * (format::RECORD_HEADER_BYTES + format::ALIGNMENT) + body_bytes;
        self.reserve_frame(frame as u64)
    }

    fn reserve_frame(&mut self, bytes: u64) -> Result<(), LogError> {
        let config = self.config;
        let active = self.active();
        if active.has_frames() && active.end() + bytes > config.segment_bytes {
            let last = self.last();
            self.roll(last, false)?;
        }
        let folder = self.folder.clone();
        self.active().zero_ahead(bytes, config.zero_ahead_bytes).map_err(|error| full(error, &folder))
    }

    /// Appends a batch and makes it durable: one write, one fdatasync. Entries take the place of those at their index and after.
    ///
    /// # Errors
    /// [`LogError::Full`] where the space was not reserved and is not there; nothing was written. Any other error is final, and the entries
    /// may or may not be durable.
    pub fn append(&mut self, hard_state: Option<HardState>, entries: &[Entry]) -> Result<(), LogError> {
        if self.poisoned {
            return Err(LogError::Poisoned);
        }
        if hard_state.is_none() && entries.is_empty() {
            return Ok(());
        }
        if let Some(first) = entries.first() {
            let last = self.last();
            assert!(
                first.id.index > self.previous.index && first.id.index <= last.index.next(),
                "entries are without gaps"
            );
            if first.id.index <= last.index {
                self.truncate_from(first.id.index)?;
            }
        }
        let bodies: Vec<_> = entries.iter().map(|entry| entry.payload.body()).collect();
        self.reserve(bodies.iter().map(bytes::Bytes::len).sum(), entries.len())?;
        let result = self.write_frame(hard_state, entries, &bodies);
        self.poisoned = result.is_err();
        result
    }

    fn write_frame(
        &mut self,
        hard_state: Option<HardState>,
        entries: &[Entry],
        bodies: &[bytes::Bytes],
    ) -> Result<(), LogError> {
        let number = self.next_frame;
        let segment = self.segments.back_mut().expect("a log has a file");
        let salt = segment.header.salt;
        let state = hard_state.map(|state| format::hard_state_record(state, salt)).unwrap_or_default();
        let mut offset = segment.end() + (format::FRAME_HEADER_BYTES + state.len()) as u64;
        let mut slots = Vec::with_capacity(entries.len());
        let mut headers = Vec::with_capacity(entries.len());
        for (entry, body) in entries.iter().zip(bodies) {
            headers.push(format::record_header(entry.payload.kind(), entry.id, body, salt));
            let bytes = format::RECORD_HEADER_BYTES + body.len();
            slots.push(Slot {
                term: entry.id.term,
                file: segment.header.file,
                offset: u32::try_from(offset).expect("a file is shorter than 4 GiB"),
                bytes: u32::try_from(bytes).expect("a frame is shorter than 4 GiB"),
            });
            offset += bytes as u64;
        }
        let unpadded = (offset - segment.end()) as usize;
        let mut closing = [0; format::ALIGNMENT];
        let padding = format::closing_bytes(unpadded);
        closing[padding - 1] = format::CLOSING;
        let records = entries.len() as u32 + u32::from(hard_state.is_some());
        let header = format::FrameHeader { number, bytes: unpadded + padding, records };
        assert!(header.bytes <= format::FRAME_BYTES_MAX, "callers bound their batches");
        let header_bytes = header.encode(salt);

        let mut slices = Vec::with_capacity(3 + 2 * entries.len());
        slices.push(IoSlice::new(&header_bytes));
        slices.push(IoSlice::new(&state));
        for (header, body) in headers.iter().zip(bodies) {
            slices.push(IoSlice::new(header));
            slices.push(IoSlice::new(body));
        }
        slices.push(IoSlice::new(&closing[..padding]));
        segment.append(&mut slices, header.bytes as u64)?;

        self.next_frame += 1;
        self.slots.extend(slots);
        if let Some(state) = hard_state {
            self.hard_state = state;
        }
        Ok(())
    }

    /// Forgets entries from `from` on, durably.
    fn truncate_from(&mut self, from: Index) -> Result<(), LogError> {
        let keep = from.previous();
        let term = self.term_at(keep).expect("the caller checked that the entry before is there");
        self.roll(EntryId { term, index: keep }, false)?;
        self.slots.truncate((keep.0 - self.previous.index.0) as usize);
        Ok(())
    }

    /// Begins a new file after `previous`; durable when this returns.
    fn roll(&mut self, previous: EntryId, reset: bool) -> Result<(), LogError> {
        let header = Header {
            identity: self.identity,
            file: self.segments.back().map_or(1, |segment| segment.header.file + 1),
            first_frame: self.next_frame,
            previous,
            hard_state: self.hard_state,
            salt: self.rng.next_u64() as u32,
            reset,
        };
        let segment = Segment::create(&*self.disk, &self.folder, header).map_err(|error| full(error, &self.folder))?;
        self.segments.push_back(segment);
        Ok(())
    }

    /// Removes files in which no entry lies behind `index`. Entries that the caller may still need must lie after it.
    ///
    /// # Errors
    /// Where the disk fails.
    pub fn cut(&mut self, index: Index) -> Result<(), LogError> {
        let begins = |at: usize| self.segments[at].header.previous;
        // A later file may replace entries from before an earlier one's beginning, but of the last that begins here all later ones begin behind.
        let first = (0..self.segments.len()).rev().find(|at| begins(*at).index <= index).unwrap_or(0);
        let previous = begins(first);
        for _ in 0..first {
            self.remove_oldest()?;
        }
        let gone = previous.index.0.saturating_sub(self.previous.index.0) as usize;
        self.slots.drain(..gone);
        self.previous = previous;
        Ok(())
    }

    /// Starts anew after a snapshot that ends with `previous`: no entry of before remains.
    ///
    /// # Errors
    /// Where the disk fails.
    pub fn reset(&mut self, previous: EntryId) -> Result<(), LogError> {
        if self.poisoned {
            return Err(LogError::Poisoned);
        }
        self.roll(previous, true)?;
        self.slots.clear();
        self.previous = previous;
        while self.segments.len() > 1 {
            self.remove_oldest()?;
        }
        Ok(())
    }

    /// ORDER: the name is gone for good before the next file goes, so that no crash leaves a gap.
    fn remove_oldest(&mut self) -> Result<(), LogError> {
        let Some(segment) = self.segments.pop_front() else { return Ok(()) };
        let path = segment.path();
        self.disk.remove_file(path).map_err(|source| io_error("remove", path, source))?;
        self.disk.sync_dir(&self.folder).map_err(|source| io_error("sync folder", &self.folder, source))
    }
}

fn io_error(attempted: &'static str, path: &Path, source: io::Error) -> LogError {
    LogError::Io { attempted, path: path.to_path_buf(), source }
}

/// Lack of space is told apart where nothing has been written yet.
fn full(error: LogError, folder: &Path) -> LogError {
    match error {
        LogError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            LogError::Full { path: folder.to_path_buf() }
        }
        error => error,
    }
}
