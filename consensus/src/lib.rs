//! Replicated log: execute on the leader, log effects, apply rows, snapshot.

pub mod core;
pub mod executor;
pub mod overlay;
