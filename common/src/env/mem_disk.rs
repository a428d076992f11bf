//! A disk in memory that can lose power.
//!
//! Writes and names are volatile until synced. [`MemDisk::crash`] keeps, of what was not synced, what the random source
//! chooses: any subset of the unsynced writes of a file, the chosen ones possibly torn, and any subset of unsynced name changes,
//! as ext4 and XFS may. Faults can be put on reads, writes and syncs.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Disk, DiskFile, FolderLock, Rng, Space};

#[derive(Default)]
struct FileState {
    /// As readers see it.
    current: Vec<u8>,
    /// As it was at the last sync.
    durable: Vec<u8>,
    /// Changes since the last sync, in order.
    pending: Vec<Change>,
}

enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
    Zero { offset: usize, length: usize },
}

impl Change {
    /// Carries it out on `file`; `keep` limits a write to its first bytes (a torn one).
    fn apply(&self, file: &mut Vec<u8>, keep: usize) {
        match self {
            Self::Write { offset, bytes } => {
                let bytes = &bytes[..keep.min(bytes.len())];
                if file.len() < offset + bytes.len() {
                    file.resize(offset + bytes.len(), 0);
                }
                file[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Self::SetLen(length) => file.resize(*length, 0),
            Self::Zero { offset, length } => {
                let end = (offset + length).min(file.len());
                if *offset < end {
                    file[*offset..end].fill(0);
                }
            }
        }
    }
}

impl Change {
    /// Carries out what reached the disk of a write whose sectors are written in any order; other changes whole.
    fn apply_sectors(&self, file: &mut Vec<u8>, rng: &dyn Rng) {
        let Self::Write { offset, bytes } = self else { return self.apply(file, usize::MAX) };
        let mut at = 0;
        while at < bytes.len() {
            let end = (at + SECTOR - (offset + at) % SECTOR).min(bytes.len());
            if rng.below(2) == 0 {
                Self::Write { offset: offset + at, bytes: bytes[at..end].to_vec() }.apply(file, usize::MAX);
            }
            at = end;
        }
    }
}

/// What a disk writes whole or not at all, bytes.
const SECTOR: usize = 512;

type FileRef = Arc<Mutex<FileState>>;

#[derive(Default)]
struct Names {
    current: BTreeMap<PathBuf, FileRef>,
    durable: BTreeMap<PathBuf, FileRef>,
    folders: std::collections::BTreeSet<PathBuf>,
}

/// Faults that a disk shows; each counter says how many more operations succeed before all of the kind fail.
#[derive(Debug)]
pub struct Faults {
    writes_left: AtomicU64,
    syncs_left: AtomicU64,
    reads_left: AtomicU64,
    available: AtomicU64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            writes_left: AtomicU64::new(u64::MAX),
            syncs_left: AtomicU64::new(u64::MAX),
            reads_left: AtomicU64::new(u64::MAX),
            available: AtomicU64::new(1 << 40),
        }
    }
}

impl Faults {
    /// After `n` more writes, writes fail with EIO.
    pub fn fail_writes_after(&self, n: u64) {
        self.writes_left.store(n, Ordering::SeqCst);
    }
    /// After `n` more syncs, syncs fail with EIO.
    pub fn fail_syncs_after(&self, n: u64) {
        self.syncs_left.store(n, Ordering::SeqCst);
    }
    /// After `n` more reads, reads fail with EIO.
    pub fn fail_reads_after(&self, n: u64) {
        self.reads_left.store(n, Ordering::SeqCst);
    }
    /// So many bytes may still be written; then ENOSPC.
    pub fn set_available(&self, bytes: u64) {
        self.available.store(bytes, Ordering::SeqCst);
    }
    /// Takes all faults away.
    pub fn clear(&self) {
        for counter in [&self.writes_left, &self.syncs_left, &self.reads_left] {
            counter.store(u64::MAX, Ordering::SeqCst);
        }
        self.available.store(1 << 40, Ordering::SeqCst);
    }
    fn take(counter: &AtomicU64) -> io::Result<()> {
        let left = counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| match n {
            u64::MAX | 0 => None,
            n => Some(n - 1),
        });
        if left == Err(0) { Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())) } else { Ok(()) }
    }
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Default)]
pub struct MemDisk {
    names: Arc<Mutex<Names>>,
    /// Faults to show.
    pub faults: Arc<Faults>,
}

impl MemDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Power fails: of what was not synced only what `rng` chooses survives. Open files of before stay usable but are no longer on the disk.
    pub fn crash(&self, rng: &dyn Rng) {
        let mut names = self.names.lock();
        let mut after = names.durable.clone();
        let changed: Vec<PathBuf> = names
            .current
            .keys()
            .chain(names.durable.keys())
            .filter(|path| !same(names.current.get(*path), names.durable.get(*path)))
            .cloned()
            .collect();
        for path in changed {
            if rng.below(2) == 0 {
                match names.current.get(&path) {
                    Some(file) => after.insert(path, file.clone()),
                    None => after.remove(&path),
                };
            }
        }
        for file in after.values_mut() {
            let state = file.lock();
            let mut bytes = state.durable.clone();
            for change in &state.pending {
                match rng.below(4) {
                    0 => {}
                    1 => change.apply(&mut bytes, usize::MAX),
                    2 => change.apply_sectors(&mut bytes, rng),
                    _ => {
                        if let Change::Write { bytes: written, .. } = change {
                            change.apply(&mut bytes, rng.below(written.len() as u64 + 1) as usize);
                        }
                    }
                }
            }
            drop(state);
            *file = Arc::new(Mutex::new(FileState { current: bytes.clone(), durable: bytes, pending: Vec::new() }));
        }
        names.durable = after.clone();
        names.current = after;
    }

    /// Flips the bits of `mask` in one byte of a file, on disk and as read.
    pub fn corrupt(&self, path: &Path, offset: u64, mask: u8) {
        let names = self.names.lock();
        if let Some(file) = names.current.get(path) {
            let mut state = file.lock();
            let at = offset as usize;
            if let Some(byte) = state.current.get_mut(at) {
                *byte ^= mask;
            }
            if let Some(byte) = state.durable.get_mut(at) {
                *byte ^= mask;
            }
        }
    }

    /// Every file's path, in order.
    pub fn files(&self) -> Vec<PathBuf> {
        self.names.lock().current.keys().cloned().collect()
    }
}

fn same(a: Option<&FileRef>, b: Option<&FileRef>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

impl Disk for MemDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        for folder in path.ancestors() {
            names.folders.insert(folder.to_path_buf());
        }
        Ok(())
    }
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = self.names.lock();
        let inside = |p: &PathBuf| {
            (p.parent() == Some(path)).then(|| p.file_name().map(|n| n.to_string_lossy().into_owned())).flatten()
        };
        if !names.folders.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut found: Vec<String> = names.current.keys().chain(names.folders.iter()).filter_map(inside).collect();
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut names = self.names.lock();
        let file = match names.current.get(path) {
            Some(file) => file.clone(),
            None if create => names.current.entry(path.to_path_buf()).or_default().clone(),
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(MemFile { state: file, faults: self.faults.clone() }))
    }
    fn exists(&self, path: &Path) -> bool {
        let names = self.names.lock();
        names.current.contains_key(path) || names.folders.contains(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        if let Some(file) = names.current.remove(from) {
            names.current.insert(to.to_path_buf(), file);
            return Ok(());
        }
        if !names.folders.contains(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // A folder: all below it moves, durably (the simulation does not tear folder renames).
        let moved = |path: &Path| path.strip_prefix(from).ok().map(|rest| to.join(rest));
        let names = &mut *names;
        for map in [&mut names.current, &mut names.durable] {
            *map = std::mem::take(map).into_iter().map(|(path, file)| (moved(&path).unwrap_or(path), file)).collect();
        }
        names.folders =
            std::mem::take(&mut names.folders).into_iter().map(|path| moved(&path).unwrap_or(path)).collect();
        Ok(())
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.names.lock().current.remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        names.current.retain(|file, _| !file.starts_with(path));
        names.durable.retain(|file, _| !file.starts_with(path));
        names.folders.retain(|folder| !folder.starts_with(path));
        Ok(())
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        Faults::take(&self.faults.syncs_left)?;
        let mut names = self.names.lock();
        let names = &mut *names;
        names.durable.retain(|file, _| file.parent() != Some(path));
        for (file, state) in names.current.iter().filter(|(file, _)| file.parent() == Some(path)) {
            names.durable.insert(file.clone(), state.clone());
        }
        Ok(())
    }
    fn space(&self, _path: &Path) -> io::Result<Space> {
        Ok(Space { capacity: 1 << 40, available: self.faults.available.load(Ordering::SeqCst) })
    }
    /// A disk in memory is never shared.
    fn lock(&self, _folder: &Path) -> io::Result<FolderLock> {
        Ok(Box::new(()))
    }
}

struct MemFile {
    state: FileRef,
    faults: Arc<Faults>,
}

impl MemFile {
    fn change(&self, change: Change) {
        let mut state = self.state.lock();
        change.apply(&mut state.current, usize::MAX);
        state.pending.push(change);
    }
}

impl DiskFile for MemFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Faults::take(&self.faults.reads_left)?;
        let state = self.state.lock();
        let start = (offset as usize).min(state.current.len());
        let count = buffer.len().min(state.current.len() - start);
        buffer[..count].copy_from_slice(&state.current[start..start + count]);
        Ok(count)
    }
    fn read_at_cached(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(buffer, offset).map(Some)
    }
    fn write_all_at(&self, slices: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        Faults::take(&self.faults.writes_left)?;
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let room = self
            .faults
            .available
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(bytes.len() as u64));
        if room.is_err() {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
        }
        self.change(Change::Write { offset: offset as usize, bytes });
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        Faults::take(&self.faults.syncs_left)?;
        let mut state = self.state.lock();
        state.durable = state.current.clone();
        state.pending.clear();
        Ok(())
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        Faults::take(&self.faults.writes_left)?;
        self.change(Change::SetLen(length as usize));
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().current.len() as u64)
    }
    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        Faults::take(&self.faults.writes_left)?;
        self.change(Change::Zero { offset: offset as usize, length: length as usize });
        Ok(())
    }
    fn allocated(&self) -> io::Result<u64> {
        self.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::SeededRng;

    fn write(file: &Arc<dyn DiskFile>, bytes: &[u8], offset: u64) {
        file.write_all_at(&mut [IoSlice::new(bytes)], offset).unwrap();
    }

    #[test]
    fn what_was_synced_survives_and_nothing_else_must() {
        let (mut kept, mut lost, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let disk = MemDisk::new();
            let folder = Path::new("/d");
            disk.create_dir_all(folder).unwrap();
            let file = disk.open(&folder.join("f"), true).unwrap();
            write(&file, b"durable", 0);
            file.sync_data().unwrap();
            disk.sync_dir(folder).unwrap();
            write(&file, b"volatile", 7);
            disk.open(&folder.join("unsynced-name"), true).unwrap();
            disk.crash(&SeededRng::new(seed));
            let bytes = disk.read(&folder.join("f")).unwrap();
            assert!(bytes.starts_with(b"durable"));
            match bytes.len() {
                7 => lost += 1,
                15 => kept += 1,
                _ => torn += 1,
            }
        }
        assert!(kept > 0 && lost > 0 && torn > 0, "kept {kept}, lost {lost}, torn {torn}");
    }

    #[test]
    fn atomic_write_leaves_the_old_or_the_new_file() {
        for seed in 0..100 {
            let disk = MemDisk::new();
            disk.create_dir_all(Path::new("/d")).unwrap();
            disk.write_atomic(Path::new("/d/f"), b"old").unwrap();
            disk.faults.fail_syncs_after(seed % 3);
            let done = disk.write_atomic(Path::new("/d/f"), b"new").is_ok();
            disk.faults.clear();
            disk.crash(&SeededRng::new(seed));
            let bytes = disk.read(Path::new("/d/f")).unwrap();
            assert!(bytes == b"new" || (!done && bytes == b"old"), "{bytes:?}");
        }
    }
}
