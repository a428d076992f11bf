//! One file of the log.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::env::{Disk, DiskFile};

use super::format::{self, HEADER_BYTES, Header, Record};
use super::{LogError, io_error};
use crate::core::Entry;

/// Zeros are written from it.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// An open file.
pub(super) struct Segment {
    pub header: Header,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    /// Where the next frame begins.
    end: u64,
    /// The file's length; from `end` on it holds zeros.
    length: u64,
}

/// The path of a file of this number.
pub(super) fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:020}.log"))
}

impl Segment {
    /// Makes a file, whole and durable under its name or not at all.
    pub fn create(disk: &dyn Disk, folder: &Path, header: Header) -> Result<Self, LogError> {
        let path = path_of(folder, header.file);
        disk.write_atomic(&path, &header.encode()).map_err(|source| io_error("make", &path, source))?;
        let file = disk.open(&path, false).map_err(|source| io_error("open", &path, source))?;
        Ok(Self { header, path, file, end: HEADER_BYTES as u64, length: HEADER_BYTES as u64 })
    }

    /// A file that was read: its frames end at `end`, zeros follow up to `length`.
    pub fn recovered(header: Header, path: PathBuf, file: Arc<dyn DiskFile>, end: u64, length: u64) -> Self {
        Self { header, path, file, end, length }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn has_frames(&self) -> bool {
        self.end > HEADER_BYTES as u64
    }

    pub fn damaged(&self, offset: u64, detail: String) -> LogError {
        LogError::Damaged { path: self.path.clone(), offset, detail }
    }

    /// Has at least `bytes` zeros after the end, written `step` at a time. They become durable with the next frame.
    pub fn zero_ahead(&mut self, bytes: u64, step: u64) -> Result<(), LogError> {
        let needed = self.end + bytes;
        if needed <= self.length {
            return Ok(());
        }
        let length = needed.next_multiple_of(step.max(1));
        let mut at = self.length;
        while at < length {
            let count = ((length - at) as usize).min(ZEROS.len());
            self.file
                .write_all_at(&mut [IoSlice::new(&ZEROS[..count])], at)
                .map_err(|source| io_error("extend", &self.path, source))?;
            at += count as u64;
        }
        self.length = length;
        Ok(())
    }

    /// Writes a frame of `bytes` bytes and makes it durable.
    pub fn append(&mut self, frame: &mut [IoSlice<'_>], bytes: u64) -> Result<(), LogError> {
        self.file.write_all_at(frame, self.end).map_err(|source| io_error("append to", &self.path, source))?;
        self.file.sync_data().map_err(|source| io_error("sync", &self.path, source))?;
        self.end += bytes;
        self.length = self.length.max(self.end);
        Ok(())
    }

    /// Reads an entry.
    pub fn read(&self, offset: u64, bytes: usize) -> Result<Entry, LogError> {
        let mut buffer = vec![0; bytes];
        self.file.read_exact_at(&mut buffer, offset).map_err(|source| io_error("read", &self.path, source))?;
        match format::decode_record(&Bytes::from(buffer), self.header.salt) {
            Some(Ok((Record::Entry(entry), _))) => Ok(entry),
            Some(Ok((Record::HardState(_), _))) => Err(self.damaged(offset, "a hard state where an entry was".into())),
            Some(Err(detail)) => Err(self.damaged(offset, detail)),
            None => Err(self.damaged(offset, "the checksum of an entry is wrong".into())),
        }
    }
}
