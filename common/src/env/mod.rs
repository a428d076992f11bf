//! The seams to the outside world: clock, randomness, disk.
//!
//! Components take these by constructor. [`mem_disk::MemDisk`], [`ManualClock`] and [`SeededRng`] replace them in tests and
//! simulation, where a crash may lose what was not synced.

mod clock;
mod disk;
pub mod mem_disk;
mod rng;

pub use clock::{Clock, ManualClock, SystemClock};
pub use disk::{Disk, DiskFile, RealDisk, Space};
pub use rng::{Rng, SeededRng, SystemRng};
