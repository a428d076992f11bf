//! Replicas: their state, their life, and what is known of them in memory.

pub(crate) mod changes;
pub(crate) mod close;
pub(crate) mod digest;
pub(crate) mod local_set;
pub(crate) mod manifest;
pub(crate) mod replica;
pub(crate) mod shared;
pub(crate) mod upkeep;
