//! S3-compatible HTTP gateway: stateless, speaks S3 to clients and reaches the cluster through the client library.
//!
//! ```text
//!   connection ──▶ gate (auth/) ──▶ router (route/) ──▶ operation (op/) ──▶ response
//!                    │ Verified          │ Op, Target       │ Body: ends only once it is verified (body/)
//!                    ▼                   ▼                  ▼
//!                 error.rs: the one map to S3's codes, written as XML (xml/)
//! ```

mod auth;
mod body;
mod condition;
mod config;
mod connection;
#[cfg(test)]
mod connection_test;
mod error;
mod etag;
mod exchange;
mod gateway;
mod memory;
mod metrics;
mod object_meta;
mod op;
mod range;
mod response;
mod route;
mod server;
mod stall;
mod time;
mod xml;

pub use config::Config;
pub use server::{Handle, start};
