//! Groups of one to five members of `ozone_consensus::core` on simulated clocks, disks and networks.
//!
//! ```text
//!  profile (drawn from the seed)
//!     |            faults: crash, partition, slow disk, clock, transfer, membership, snapshot
//!     v                |
//!   world  --event-->  node = Raft + disk + state machine  --messages-->  network
//!     |                                  |
//!     |  after each step: invariants     +--> oracle: acknowledged writes, reads, applied entries
//!     v
//!   heal, then require progress
//! ```

mod clients;
mod clock;
mod disk;
mod faults;
mod machine;
mod network;
mod node;
mod oracle;
mod profile;
mod run;
mod world;

pub use profile::{Fault, Profile};
pub use run::{Failure, check};
pub use world::Report;
