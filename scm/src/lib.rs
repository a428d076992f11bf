//! The container manager: nodes, placement, container life cycle, block ranges, the deletion log.
//!
//! ```text
//!  datanodes ──reports──▶ service/heartbeat ─▶ observe/ (soft state) ─▶ plan/ (pure) ─▶ core commands ─▶ log
//!            ◀─commands── execute/ ◀───────────────────────────────────────────────────────────────── hints
//!  OM, admins ──calls──▶ service/calls ─▶ plan/placement ─▶ core commands ─▶ log ─▶ answer
//! ```
//! What is decided (containers, members, epochs, block ids, deletes) is replicated state in `tables/`, changed by `core/` only. What
//! is observed (health, replicas, free space) is rebuilt from reports after every start. docs/containers.md tells the whole life of a container.

pub mod config;
pub mod core;
mod execute;
pub mod executor;
mod log;
mod metrics;
pub mod observe;
pub mod plan;
mod scm;
pub mod server;
mod service;
pub mod tables;

pub use config::Config;
pub use server::{Handle, start};

#[cfg(test)]
mod log_test;
#[cfg(test)]
mod service_test;
