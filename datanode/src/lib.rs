//! Container storage: packed segments, block index, group commit, the block transport's server.

pub mod store;
