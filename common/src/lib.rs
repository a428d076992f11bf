//! Domain types that every part of O3 shares, and the seams to the outside world.
//!
//! Values are checked where they are made ([`name`], [`id`], [`replication`]) and valid ever after. Everything a test or a
//! simulation must be able to replace (clock, randomness, disk) is a trait in [`env`]; nothing else in the workspace
//! reads the time, draws random numbers or opens files that hold users' data.

pub mod checksum;
pub mod config;
pub mod env;
pub mod error;
pub mod id;
pub mod limits;
pub mod name;
pub mod peer;
pub mod replication;
pub mod telemetry;
pub mod time;
pub mod token;

pub use error::{Error, ErrorCode, Result, RetryClass};
