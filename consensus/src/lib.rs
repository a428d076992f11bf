//! Replicated log: execute on the leader, log effects, apply rows, snapshot.
//!
//! A role gives an [`executor::Executor`] and opens a [`group::Group`]; `core` is the protocol without I/O, `log_store` the log on disk,
//! `group` what drives both. docs/consensus.md tells the whole.

mod call;
pub mod core;
pub mod executor;
pub mod group;
pub mod identity;
pub mod log_store;
pub mod overlay;
pub mod transport;

pub use call::{Call, GroupState};
