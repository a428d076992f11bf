//! Segment files kept open for reading, a bounded number per volume.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use ozone_common::env::{Disk, DiskFile};
use ozone_common::id::ContainerId;
use parking_lot::Mutex;

use crate::container::replica::Replica;

/// LIMIT: files open for reading, per volume.
const FILES_MAX: usize = 512;

#[derive(Default)]
struct Open {
    files: HashMap<(ContainerId, u32), (Arc<dyn DiskFile>, u64)>,
    /// Grows with every use.
    tick: u64,
}

/// The files.
pub(crate) struct Files {
    disk: Arc<dyn Disk>,
    open: Mutex<Open>,
}

impl Files {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, open: Mutex::default() }
    }

    /// A segment's file. Opening one for the first time asks the file system, which seldom waits.
    pub(crate) fn get(&self, replica: &Replica, segment: u32, paged: bool) -> io::Result<Arc<dyn DiskFile>> {
        let key = (replica.id, segment);
        let mut open = self.open.lock();
        open.tick += 1;
        let tick = open.tick;
        if let Some((file, used)) = open.files.get_mut(&key) {
            *used = tick;
            return Ok(file.clone());
        }
        drop(open);
        let file = self.disk.open(&replica.segment_path(segment, paged), false)?;
        let mut open = self.open.lock();
        if open.files.len() >= FILES_MAX {
            // A quarter goes at a time, so that the search is rare.
            let mut uses: Vec<u64> = open.files.values().map(|(_, used)| *used).collect();
            uses.sort_unstable();
            let oldest = uses.get(FILES_MAX / 4).copied().unwrap_or(u64::MAX);
            open.files.retain(|_, (_, used)| *used >= oldest);
        }
        open.files.insert(key, (file.clone(), tick));
        Ok(file)
    }

    /// Forgets a file that goes, or that a lane has ended.
    pub(crate) fn forget(&self, container: ContainerId, segment: u32) {
        self.open.lock().files.remove(&(container, segment));
    }
}
