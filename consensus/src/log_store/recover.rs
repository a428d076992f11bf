//! Reads a log's files after a start: finds where its frames end, cuts an incomplete last one, refuses damage.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::env::{Disk, DiskFile};

use super::format::{self, ALIGNMENT, FRAME_HEADER_BYTES, FrameHeader, HEADER_BYTES, Header, Record};
use super::segment::{Segment, path_of};
use super::{Identity, LogError, Slot, io_error};
use crate::core::{EntryId, HardState, Index};

/// A log as its files tell it.
pub(super) struct Recovered {
    pub segments: VecDeque<Segment>,
    pub previous: EntryId,
    pub slots: VecDeque<Slot>,
    pub hard_state: HardState,
    pub next_frame: u64,
}

impl Recovered {
    fn last(&self) -> EntryId {
        match self.slots.back() {
            Some(slot) => EntryId { term: slot.term, index: Index(self.previous.index.0 + self.slots.len() as u64) },
            None => self.previous,
        }
    }
}

/// Numbers of the log's files, ascending. Other files are none of ours, unfinished ones (`.tmp`) are nothing.
pub(super) fn file_numbers(disk: &dyn Disk, folder: &Path) -> Result<Vec<u64>, LogError> {
    let names = disk.list(folder).map_err(|source| io_error("list", folder, source))?;
    Ok(names.iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect())
}

pub(super) fn recover(disk: &Arc<dyn Disk>, folder: &Path, identity: Identity) -> Result<Recovered, LogError> {
    let numbers = file_numbers(&**disk, folder)?;
    let mut files = Vec::with_capacity(numbers.len());
    for number in numbers {
        files.push(open(&**disk, path_of(folder, number), number, identity)?);
    }
    // What lies before a new beginning was about to be removed.
    let start = files.iter().rposition(|(header, ..)| header.reset).unwrap_or(0);
    for (_, path, _) in files.drain(..start) {
        disk.remove_file(&path).map_err(|source| io_error("remove", &path, source))?;
        disk.sync_dir(folder).map_err(|source| io_error("sync folder", folder, source))?;
    }
    let Some((first, ..)) = files.first() else {
        let source = std::io::ErrorKind::NotFound.into();
        return Err(io_error("open the log in", folder, source));
    };
    let mut log = Recovered {
        segments: VecDeque::new(),
        previous: first.previous,
        slots: VecDeque::new(),
        hard_state: first.hard_state,
        next_frame: first.first_frame,
    };
    let count = files.len();
    for (at, (header, path, file)) in files.into_iter().enumerate() {
        continues(&mut log, &header, &path)?;
        let segment = read(&mut log, header, path, file, at + 1 == count)?;
        log.segments.push_back(segment);
    }
    Ok(log)
}

fn open(
    disk: &dyn Disk,
    path: PathBuf,
    number: u64,
    identity: Identity,
) -> Result<(Header, PathBuf, Arc<dyn DiskFile>), LogError> {
    let file = disk.open(&path, false).map_err(|source| io_error("open", &path, source))?;
    let mut bytes = [0; HEADER_BYTES];
    let length = file.read_at(&mut bytes, 0).map_err(|source| io_error("read", &path, source))?;
    let damaged = |detail| LogError::Damaged { path: path.clone(), offset: 0, detail };
    let header = Header::decode(&bytes[..length]).map_err(damaged)?;
    if header.identity != identity {
        return Err(LogError::Foreign { path, found: header.identity, expected: identity });
    }
    if header.file != number {
        return Err(damaged(format!("its header says that it is file {}", header.file)));
    }
    Ok((header, path, file))
}

/// Whether a file goes on where the one before ended; entries that it replaces go.
fn continues(log: &mut Recovered, header: &Header, path: &Path) -> Result<(), LogError> {
    let refuse = |detail: String| Err(LogError::Damaged { path: path.to_path_buf(), offset: 0, detail });
    let Some(before) = log.segments.back() else { return Ok(()) };
    if header.file != before.header.file + 1 {
        return refuse(format!("the file before it, {}, is missing", header.file - 1));
    }
    if header.first_frame != log.next_frame {
        return refuse(format!(
            "it begins with frame {}, but the files before it end with frame {}",
            header.first_frame,
            log.next_frame - 1
        ));
    }
    match header.previous.index.0.checked_sub(log.previous.index.0) {
        Some(keep) => log.slots.truncate(usize::try_from(keep).unwrap_or(usize::MAX)),
        // It replaces what a file told that is gone by now, behind a snapshot.
        None => {
            log.slots.clear();
            log.previous = header.previous;
        }
    }
    if log.last() != header.previous || log.hard_state != header.hard_state {
        return refuse(format!(
            "it follows entry {} and {:?}, but the files before it end with {} and {:?}",
            header.previous,
            header.hard_state,
            log.last(),
            log.hard_state
        ));
    }
    Ok(())
}

/// Reads the frames of a file.
fn read(
    log: &mut Recovered,
    header: Header,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    is_last: bool,
) -> Result<Segment, LogError> {
    let mut bytes = vec![0; file.len().map_err(|source| io_error("measure", &path, source))? as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|source| io_error("read", &path, source))?;
    let bytes = Bytes::from(bytes);
    let mut end = HEADER_BYTES;
    while let Some(next) = frame(log, &header, &path, &bytes, end)? {
        end = next;
    }
    let rest = &bytes[end..];
    let mut length = bytes.len();
    if rest.iter().any(|byte| *byte != 0) {
        let damaged =
            |detail: &str| Err(LogError::Damaged { path: path.clone(), offset: end as u64, detail: detail.into() });
        if !is_last || later_frame(rest, header.salt, log.next_frame) {
            return damaged("a frame does not read, and a later one was acknowledged");
        }
        if !format::may_be_torn(rest, end as u64, FrameHeader::decode(rest, header.salt)) {
            return damaged("the last frame was written to its end, but does not read");
        }
        // Durable before anything is appended, or the rest of an old frame could follow a new one.
        tracing::warn!(file = %path.display(), offset = end, bytes = rest.len(), "cut an incomplete frame off the log");
        let cut = file.set_len(end as u64).and_then(|()| file.sync_data());
        cut.map_err(|source| io_error("cut", &path, source))?;
        length = end;
    }
    Ok(Segment::recovered(header, path, file, end as u64, length as u64))
}

/// Takes the frame at `at` into `log` and gives its end; `None` where there is no whole one.
fn frame(log: &mut Recovered, file: &Header, path: &Path, bytes: &Bytes, at: usize) -> Result<Option<usize>, LogError> {
    let Some(header) = FrameHeader::decode(&bytes[at..], file.salt) else { return Ok(None) };
    let Some(frame) = bytes.get(at..at + header.bytes) else { return Ok(None) };
    if header.number != log.next_frame || frame.last() != Some(&format::CLOSING) {
        return Ok(None);
    }
    let damaged =
        |offset: usize, detail: String| LogError::Damaged { path: path.to_path_buf(), offset: offset as u64, detail };
    let mut records = Vec::new();
    let mut offset = at + FRAME_HEADER_BYTES;
    for _ in 0..header.records {
        match format::decode_record(&bytes.slice(offset..at + header.bytes), file.salt) {
            None => return Ok(None),
            Some(Err(detail)) => return Err(damaged(offset, detail)),
            Some(Ok((record, length))) => {
                records.push((offset, length, record));
                offset += length;
            }
        }
    }
    let padding = &bytes[offset..at + header.bytes - 1];
    if padding.len() >= ALIGNMENT || padding.iter().any(|byte| *byte != 0) {
        return Ok(None);
    }
    for (offset, length, record) in records {
        match record {
            Record::HardState(state) => log.hard_state = state,
            Record::Entry(entry) => {
                if entry.id.index != log.last().index.next() || entry.id.term < log.last().term {
                    return Err(damaged(offset, format!("entry {} follows entry {}", entry.id, log.last())));
                }
                log.slots.push_back(Slot {
                    term: entry.id.term,
                    file: file.file,
                    offset: offset as u32,
                    bytes: length as u32,
                });
            }
        }
    }
    log.next_frame += 1;
    Ok(Some(at + header.bytes))
}

/// Whether a frame with a number above `number` begins anywhere in `rest`. It would not have been begun before frame `number` was durable.
fn later_frame(rest: &[u8], salt: u32, number: u64) -> bool {
    let starts = (ALIGNMENT..rest.len()).step_by(ALIGNMENT);
    starts.filter_map(|at| FrameHeader::decode(&rest[at..], salt)).any(|frame| frame.number > number)
}
