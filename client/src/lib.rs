//! The client library: volumes, buckets, keys and their data path.
//!
//! Gateways, the command line and benchmarks reach the cluster through [`Client`]; nobody else knows pipelines, grants,
//! checksums, hedges and retries.
//!
//! - [`meta`]: one typed method per operation of the key-space manager; [`scm`]: the container manager's for admins.
//! - [`write`]: bytes to blocks on all replicas ([`KeyWriter`]), committed by the caller afterwards.
//! - [`read`]: blocks to verified bytes ([`KeyReader`]).
//! - [`lease`]: block ids held ahead; [`exclude`]: datanodes that writers avoid for a while.

pub mod client;
pub mod config;
pub mod context;
pub mod exclude;
pub mod lease;
mod locate;
pub mod meta;
pub mod read;
mod retry;
pub mod scm;
pub mod write;

/// The messages that operations take and answer with.
pub mod proto {
    pub use ozone_proto::{common, om, scm};
}

pub use client::Client;
pub use config::{Config, Identity, Tuning};
pub use context::CallContext;
pub use read::KeyReader;
pub use write::{KeyWriter, Written};
