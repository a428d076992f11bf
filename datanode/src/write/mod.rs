//! Blocks that are being written.

pub(crate) mod session;
