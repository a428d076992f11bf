//! Files as the consensus log and the datanode's segments need them.

use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FallocateFlags;

/// Space of the file system that holds a path, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Size of the file system.
    pub capacity: u64,
    /// What an unprivileged writer may still use.
    pub available: u64,
}

/// A disk. Paths are made by us from numbers, never from users' names.
pub trait Disk: Send + Sync + 'static {
    /// Makes a folder and those above it. Their names are durable after it.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names in a folder, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Opens a file for reading and writing; makes it where `create` says so and it is absent.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// Whether there is something at the path.
    fn exists(&self, path: &Path) -> bool;
    /// Renames a file or folder, replacing a file. Durable after [`Disk::sync_dir`] of the folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after [`Disk::sync_dir`] of the folder.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder and all in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes names of a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Space of the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Keeps others out of a folder of ours, of this process and of others, until the guard is dropped or the process ends. `WouldBlock` where
    /// somebody has it.
    fn lock(&self, folder: &Path) -> io::Result<FolderLock>;

    /// Writes a small file whole: beside, synced, renamed into place, folder synced. A crash leaves the old or the new one.
    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let beside = path.with_extension("tmp");
        if self.exists(&beside) {
            self.remove_file(&beside)?;
        }
        let file = self.open(&beside, true)?;
        file.write_all_at(&mut [IoSlice::new(bytes)], 0)?;
        file.sync_data()?;
        self.rename(&beside, path)?;
        self.sync_dir(path.parent().unwrap_or(Path::new("/")))
    }
    /// Reads a small file whole.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, false)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// Holds a folder; see [`Disk::lock`].
pub type FolderLock = Box<dyn std::any::Any + Send + Sync>;

/// Name of the file that [`RealDisk`] locks in a folder.
const LOCK_FILE: &str = "LOCK";

/// An open file.
///
/// A failed [`DiskFile::sync_data`] is final for the file: what was written since the last success may be gone although
/// reads still show it, so the caller must stop writing there.
pub trait DiskFile: Send + Sync + 'static {
    /// Reads up to `buffer.len()` bytes; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// As [`DiskFile::read_at`] where the bytes are in memory; `None` where it would have to wait for the disk.
    fn read_at_cached(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>>;
    /// Writes all of the slices one after another. The slices are advanced as they are written.
    fn write_all_at(&self, slices: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Makes data and length durable (fdatasync).
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts or extends the file.
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Gives the space of a range back; it reads as zeros from then on.
    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Bytes of disk that the file takes.
    fn allocated(&self) -> io::Result<u64>;

    /// Fills `buffer` or fails with `UnexpectedEof`.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => {
                    buffer = &mut buffer[n..];
                    offset += n as u64;
                }
            }
        }
        Ok(())
    }
}

/// The machine's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl RealDisk {
    /// Copies what is in a folder to another one, made where it is absent. Files that grow meanwhile are copied as they are found: with a
    /// role of ours running there, the copy is what killing it now would leave, and tests of recovery start from that.
    pub fn copy_folder(self, from: &Path, to: &Path) -> io::Result<()> {
        self.create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.copy_folder(&entry.path(), &target)?;
            } else {
                fs::copy(entry.path(), target)?;
            }
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that opens files that hold users' data")]
impl Disk for RealDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let stood = path.is_dir();
        let above = |folder: &Path| match folder.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => Path::new(".").to_path_buf(),
        };
        let holders: Vec<_> = path.ancestors().skip(1).take_while(|folder| !folder.is_dir()).map(above).collect();
        fs::create_dir_all(path)?;
        for holder in holders {
            self.sync_dir(&holder)?;
        }
        match self.sync_dir(&above(path)) {
            // A folder that somebody else made for us, in one that we may not read: its name is theirs to keep.
            Err(error) if stood && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            // One that stood may be ours, made by a process that was killed before it came to this.
            synced => synced,
        }
    }
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(path)?
            .map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        Ok(names)
    }
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file = fs::OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }
    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(Space { capacity: stat.f_blocks * stat.f_frsize, available: stat.f_bavail * stat.f_frsize })
    }
    fn lock(&self, folder: &Path) -> io::Result<FolderLock> {
        use rustix::fs::{FlockOperation, flock};
        let path = folder.join(LOCK_FILE);
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(file))
    }
}

struct RealFile(fs::File);

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn read_at_cached(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        let mut slices = [io::IoSliceMut::new(buffer)];
        match preadv2(&self.0, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(n) => Ok(Some(n)),
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
    fn write_all_at(&self, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        // LIMIT: IOV_MAX is 1,024 on Linux.
        const SLICES_MAX: usize = 1024;
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let count = slices.len().min(SLICES_MAX);
            match rustix::io::pwritev(&self.0, &slices[..count], offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    offset += n as u64;
                    IoSlice::advance_slices(&mut slices, n);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.0, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)?)
    }
    fn allocated(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(self.0.metadata()?.blocks() * 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_folder_is_free_again_with_its_guard() {
        let folder = tempfile::tempdir().unwrap();
        let guard = RealDisk.lock(folder.path()).unwrap();
        let taken = RealDisk.lock(folder.path()).err().unwrap();
        assert_eq!(taken.kind(), io::ErrorKind::WouldBlock);
        drop(guard);
        RealDisk.lock(folder.path()).unwrap();
    }
}
