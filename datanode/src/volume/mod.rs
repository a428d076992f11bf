//! A disk volume: one folder with its identity, index and replicas; fails as a whole.
//!
//! ```text
//! <folder>/VOLUME                     whose it is
//! <folder>/index/                     RocksDB; can be lost
//! <folder>/containers/00000000a1/     one replica
//!             replica                 its manifest
//!             00000001.small          segments: number, lane
//!             00000002.bulk
//! ```

mod files;
mod identity;

pub(crate) use files::Files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ozone_common::env::{Disk, Env};
use ozone_common::id::{ContainerId, DiskVolumeId};
use ozone_common::{Error, ErrorCode};
use parking_lot::Mutex;

use crate::block::index::Index;
use crate::block::queue::Queue;
use crate::store::{Owner, VolumeConfig, VolumeReport};

/// Opens the tables of an index in a folder, made where they are absent.
pub(crate) type OpenIndex = dyn Fn(&Path) -> ozone_kvstore::Result<Arc<dyn ozone_kvstore::Store>> + Send + Sync;

/// Why a volume cannot be opened.
pub(crate) enum OpenError {
    /// It is another's: starting is wrong.
    Foreign(Error),
    /// The disk fails: the others may do.
    Failed(Error),
}

/// A disk volume in use.
pub(crate) struct DiskVolume {
    /// Its place in the settings.
    pub number: usize,
    pub id: DiskVolumeId,
    pub path: PathBuf,
    pub disk: Arc<dyn Disk>,
    pub index: Index,
    pub files: Files,
    /// Small records.
    pub small: Queue,
    /// Chunks, their ends, and larger blocks.
    pub bulk: Queue,
    /// Bytes of all segments, as far as they are known to take space.
    pub used: AtomicU64,
    capacity: AtomicU64,
    available: AtomicU64,
    reserved: u64,
    failed: Mutex<Option<String>>,
}

impl DiskVolume {
    /// Opens the volume without looking at its replicas.
    pub(crate) fn open(
        number: usize,
        config: &VolumeConfig,
        owner: &Owner,
        queue_bytes: usize,
        env: &Env,
        open_index: &OpenIndex,
    ) -> Result<Self, OpenError> {
        let id = identity::load_or_create(env, &config.path, owner).map_err(|refusal| match refusal {
            identity::Refusal::Foreign(error) => OpenError::Foreign(error),
            identity::Refusal::Failed(error) => OpenError::Failed(error),
        })?;
        let disk = env.disk.clone();
        let failed = |error: &dyn std::fmt::Display| {
            let text = format!("disk volume `{}`: {error}", config.path.display());
            OpenError::Failed(Error::new(ErrorCode::VolumeFailed, text))
        };
        if !disk.exists(&config.path.join(CONTAINERS)) {
            disk.create_dir_all(&config.path.join(CONTAINERS)).map_err(|error| failed(&error))?;
        }
        let index_path = config.path.join(INDEX);
        let index = match open_index(&index_path) {
            Err(ozone_kvstore::Error::Corrupt { attempted, detail }) => {
                tracing::error!(volume = %config.path.display(), attempted, detail, "the block index is corrupt; it is made anew from the segments");
                disk.remove_dir_all(&index_path).map_err(|error| failed(&error))?;
                open_index(&index_path)
            }
            other => other,
        };
        let volume = Self {
            number,
            id,
            path: config.path.clone(),
            files: Files::new(disk.clone()),
            disk,
            index: Index::new(index.map_err(|error| failed(&error))?),
            small: Queue::new(queue_bytes),
            bulk: Queue::new(queue_bytes),
            used: AtomicU64::new(0),
            capacity: AtomicU64::new(0),
            available: AtomicU64::new(0),
            reserved: config.reserved_bytes,
            failed: Mutex::new(None),
        };
        volume.refresh_space().map_err(|error| failed(&error))?;
        Ok(volume)
    }

    /// Where replicas lie.
    pub(crate) fn containers(&self) -> PathBuf {
        self.path.join(CONTAINERS)
    }

    /// Where a container's replica lies.
    pub(crate) fn container_dir(&self, container: ContainerId) -> PathBuf {
        self.containers().join(format!("{:010x}", container.get()))
    }

    /// The container of a folder's name.
    pub(crate) fn parse_container_dir(name: &str) -> Option<ContainerId> {
        let id = ContainerId::new(u64::from_str_radix(name, 16).ok()?)?;
        (format!("{:010x}", id.get()) == name).then_some(id)
    }

    /// Takes the volume out of use, for the first reason given. True where it was in use.
    pub(crate) fn fail(&self, why: &str) -> bool {
        let mut failed = self.failed.lock();
        if failed.is_some() {
            return false;
        }
        tracing::error!(volume = %self.path.display(), why, "a disk volume failed and is out of use; its replicas are lost to this node");
        metrics::counter!("ozone_datanode_volume_failures_total").increment(1);
        *failed = Some(why.to_owned());
        true
    }

    /// Why it is out of use.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failed.lock().clone()
    }

    /// # Errors
    /// `VolumeFailed` where it is out of use.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &*self.failed.lock() {
            None => Ok(()),
            Some(why) => Err(self.error(format_args!("it is out of use: {why}"))),
        }
    }

    /// A `VolumeFailed` that names it.
    pub(crate) fn error(&self, why: impl std::fmt::Display) -> Error {
        Error::new(ErrorCode::VolumeFailed, format!("disk volume `{}`: {why}", self.path.display()))
    }

    /// The answer to a failed write.
    pub(crate) fn write_error(&self, attempted: &str, error: &io::Error) -> Error {
        if is_full(error) {
            return Error::new(
                ErrorCode::DiskFull,
                format!("disk volume `{}`: {attempted}: no space left", self.path.display()),
            );
        }
        self.error(format_args!("{attempted}: {error}"))
    }

    /// # Errors
    /// `DiskFull` where `bytes` more would go into the reserve.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<(), Error> {
        let available = self.available.load(Ordering::Relaxed);
        if available >= bytes {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::DiskFull,
            format!(
                "disk volume `{}` has {available} bytes left beside its reserve of {}; {bytes} are needed",
                self.path.display(),
                self.reserved
            ),
        ))
    }

    /// Bytes that new data may take.
    pub(crate) fn available(&self) -> u64 {
        self.available.load(Ordering::Relaxed)
    }

    /// Bytes were appended.
    pub(crate) fn took(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        // Between two looks at the file system.
        let less = |available: u64| Some(available.saturating_sub(bytes));
        let _ = self.available.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Bytes were given back.
    pub(crate) fn gave_back(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Looks at the file system's space.
    pub(crate) fn refresh_space(&self) -> io::Result<()> {
        let space = self.disk.space(&self.path)?;
        self.capacity.store(space.capacity, Ordering::Relaxed);
        self.available.store(space.available.saturating_sub(self.reserved), Ordering::Relaxed);
        Ok(())
    }

    /// As the SCM is told.
    pub(crate) fn report(&self) -> VolumeReport {
        let failed = self.failure();
        VolumeReport {
            id: self.id,
            path: self.path.clone(),
            capacity_bytes: self.capacity.load(Ordering::Relaxed),
            used_bytes: self.used.load(Ordering::Relaxed),
            available_bytes: if failed.is_some() { 0 } else { self.available() },
            failed,
        }
    }
}

const CONTAINERS: &str = "containers";
const INDEX: &str = "index";

/// Whether an error says that there is no space, or none left for this user.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
