//! A group's folders: log, store, snapshots; taking snapshots and going back to one.
//!
//! ```text
//!  log/        files of the log                          store/      the state in use
//!  snapshots/00…index/   a checkpoint of the store, with META: a place in the log up to which everything is in it
//!  snapshots/new         one that is being written       store.new   a copy of a snapshot that is to become the store
//! ```
//! A name without `new` is whole: it was synced before it was renamed. A snapshot may hold effects of entries after its place, since the store goes
//! on while it is written; its own position row says exactly how far it is.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use ozone_common::checksum::crc32c;
use ozone_common::env::{Disk, FolderLock};
use ozone_kvstore::Store;

use super::StopReason;
use super::position::Position;

const META: &str = "META";
const META_MAGIC: &[u8; 4] = b"O3SM";
const META_VERSION: u8 = 1;
const NEW: &str = "new";
/// Files are copied in pieces of so many bytes.
const COPY_BYTES: usize = 1 << 20;

/// Where a group's files are.
#[derive(Clone)]
pub(super) struct Folders {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

/// What came of taking a snapshot.
pub(super) struct Taken {
    /// Up to here everything is in it, and durable in the store.
    pub position: Position,
    pub result: Result<(), StopReason>,
}

impl Folders {
    pub fn new(disk: Arc<dyn Disk>, folder: PathBuf) -> Self {
        Self { disk, folder }
    }

    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    fn store_new(&self) -> PathBuf {
        self.folder.join("store.new")
    }

    fn snapshots(&self) -> PathBuf {
        self.folder.join("snapshots")
    }

    fn snapshot(&self, position: &Position) -> PathBuf {
        self.snapshots().join(format!("{:020}", position.index().0))
    }

    fn failed(&self, attempted: &'static str, path: &Path) -> impl Fn(io::Error) -> StopReason + use<> {
        let path = path.to_path_buf();
        move |source| StopReason::Disk { attempted, path: path.clone(), source }
    }

    /// Takes the folder, makes those in it and removes what was being written when the process ended.
    pub fn prepare(&self) -> Result<FolderLock, StopReason> {
        let snapshots = self.snapshots();
        self.disk.create_dir_all(&snapshots).map_err(self.failed("make folder", &snapshots))?;
        let lock = self.disk.lock(&self.folder).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => StopReason::InUse { folder: self.folder.clone() },
            _ => self.failed("lock folder", &self.folder)(error),
        })?;
        self.disk.sync_dir(&self.folder).map_err(self.failed("sync folder", &self.folder))?;
        for path in [snapshots.join(NEW), self.store_new()] {
            self.remove(&path)?;
        }
        self.remove_older()?;
        Ok(lock)
    }

    /// Removes all whole snapshots but the latest.
    fn remove_older(&self) -> Result<(), StopReason> {
        let mut names = self.names()?;
        names.pop();
        names.into_iter().try_for_each(|name| self.remove(&self.snapshots().join(name)))
    }

    fn remove(&self, path: &Path) -> Result<(), StopReason> {
        if self.disk.exists(path) {
            self.disk.remove_dir_all(path).map_err(self.failed("remove", path))?;
        }
        Ok(())
    }

    pub fn store_exists(&self) -> bool {
        self.disk.exists(&self.store())
    }

    /// The names of whole snapshots, ascending.
    fn names(&self) -> Result<Vec<String>, StopReason> {
        let folder = self.snapshots();
        let names = self.disk.list(&folder).map_err(self.failed("list", &folder))?;
        Ok(names.into_iter().filter(|name| name.parse::<u64>().is_ok()).collect())
    }

    /// The latest snapshot's place.
    pub fn latest(&self) -> Result<Option<Position>, StopReason> {
        let Some(name) = self.names()?.pop() else { return Ok(None) };
        let path = self.snapshots().join(name).join(META);
        let bytes = self.disk.read(&path).map_err(self.failed("read", &path))?;
        decode_meta(&bytes).map(Some).map_err(|detail| StopReason::Snapshot { path, detail })
    }

    /// Writes a snapshot of a store that has at least `position` applied, and removes older ones. Takes long.
    pub fn take(&self, store: &dyn Store, position: &Position) -> Result<(), StopReason> {
        let (new, folder) = (self.snapshots().join(NEW), self.snapshots());
        self.remove(&new)?;
        // ORDER: whole and synced, then named, then older ones go.
        store.checkpoint(&new)?;
        let meta = new.join(META);
        self.disk.write_atomic(&meta, &encode_meta(position)).map_err(self.failed("write", &meta))?;
        let path = self.snapshot(position);
        self.remove(&path)?;
        self.disk.rename(&new, &path).map_err(self.failed("name snapshot", &path))?;
        self.disk.sync_dir(&folder).map_err(self.failed("sync folder", &folder))?;
        self.remove_older()
    }

    /// Puts a copy of a snapshot in the place of the store, which must not be open.
    pub fn restore(&self, position: &Position) -> Result<(), StopReason> {
        let (from, new, store) = (self.snapshot(position), self.store_new(), self.store());
        self.remove(&new)?;
        self.disk.create_dir_all(&new).map_err(self.failed("make folder", &new))?;
        for name in self.disk.list(&from).map_err(self.failed("list", &from))? {
            if name != META {
                self.copy(&from.join(&name), &new.join(&name))?;
            }
        }
        self.disk.sync_dir(&new).map_err(self.failed("sync folder", &new))?;
        // ORDER: a crash between leaves no store, and the next start copies again.
        self.remove(&store)?;
        self.disk.rename(&new, &store).map_err(self.failed("name store", &store))?;
        self.disk.sync_dir(&self.folder).map_err(self.failed("sync folder", &self.folder))
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<(), StopReason> {
        let copy = || {
            let (source, target) = (self.disk.open(from, false)?, self.disk.open(to, true)?);
            let mut buffer = vec![0; COPY_BYTES];
            let mut offset = 0;
            loop {
                let count = source.read_at(&mut buffer, offset)?;
                if count == 0 {
                    return target.sync_data();
                }
                target.write_all_at(&mut [IoSlice::new(&buffer[..count])], offset)?;
                offset += count as u64;
            }
        };
        copy().map_err(self.failed("copy from a snapshot", from))
    }
}

// META: magic, version, CRC32C of the rest, the position row.
fn encode_meta(position: &Position) -> Vec<u8> {
    let row = position.encode();
    let mut out = META_MAGIC.to_vec();
    out.put_u8(META_VERSION);
    out.put_u32(crc32c(&row));
    out.put_slice(&row);
    out
}

fn decode_meta(bytes: &[u8]) -> Result<Position, String> {
    let mut rest = bytes.strip_prefix(META_MAGIC).ok_or("it does not begin as the description of a snapshot does")?;
    match rest.try_get_u8() {
        Ok(META_VERSION) => {}
        version => return Err(format!("its version is {version:?}; this build reads version {META_VERSION}")),
    }
    let checksum = rest.try_get_u32().map_err(|_| "it ends in its checksum")?;
    if checksum != crc32c(rest) {
        return Err("its checksum is wrong".into());
    }
    Position::decode(Bytes::copy_from_slice(rest))
}
