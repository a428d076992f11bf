//! Container storage: packed segments, block index, group commit, the block transport's server.
//!
//! `service` takes the requests of clients (tokens, order, credit) to the `store`, which keeps replicas on the disk volumes;
//! `report` tells the SCM what is here and carries out what it orders. docs/containers.md tells a container's life.

mod block;
mod config;
mod container;
mod identity;
mod metrics;
mod recover;
mod report;
mod server;
mod service;
pub mod store;
mod volume;
mod write;

pub use config::Config;
pub use server::{Handle, start};

#[cfg(test)]
mod store_order_test;
#[cfg(test)]
mod store_test;
#[cfg(test)]
mod store_world;
