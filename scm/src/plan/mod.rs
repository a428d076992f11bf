//! Decisions as pure functions of facts: tested by properties, recomputed rather than remembered.

pub mod container_close;
pub mod placement;
pub mod safemode;
