//! The seams to the outside world: clock, randomness, disk.
//!
//! Components take these by constructor. [`mem_disk::MemDisk`], [`ManualClock`] and [`SeededRng`] replace them in tests and
//! simulation, where a crash may lose what was not synced.

mod clock;
mod disk;
pub mod mem_disk;
mod rng;

pub use clock::{Clock, ManualClock, SystemClock};
pub use disk::{Disk, DiskFile, FolderLock, RealDisk, Space};
pub use rng::{Rng, SeededRng, SystemRng};

use std::sync::Arc;

/// Everything a component takes from the outside world.
#[derive(Clone)]
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
    /// Files.
    pub disk: Arc<dyn Disk>,
}

impl Env {
    /// The machine's own.
    pub fn system() -> Self {
        Self { clock: Arc::new(SystemClock), rng: Arc::new(SystemRng), disk: Arc::new(RealDisk) }
    }
}
