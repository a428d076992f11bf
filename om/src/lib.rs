//! Key-space manager: volumes, buckets, keys, uploads, secrets and block grants.
//!
//! A change goes `service` (decode, authorise) → `prepare` (settle names, identity, blocks) → the replicated log, where `core` decides what it
//! does to the `tables`. Reads go `service` → `core` on the applied rows after a read barrier. `background` loops free what was
//! deleted and end grants. docs/namespace.md tells the whole.

mod background;
mod blocks;
mod config;
pub mod core;
mod error;
mod log;
mod metrics;
mod prepare;
mod server;
mod service;
pub mod tables;

pub use config::{Config, TOKEN_SKEW_MS};
pub use server::{Handle, start};
