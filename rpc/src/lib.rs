//! RPC plumbing: call sessions over gRPC, the framed block transport, peer authentication, deadlines.
//!
//! - [`session`]: numbered calls to the OM and the SCM, many on one gRPC stream, batched both ways.
//! - [`data`], [`frame`]: block data to and from datanodes, framed over TCP.
//! - [`channel`], [`listener`]: where connections are made and ports bound, and nowhere else.
//! - [`status`]: our errors as gRPC statuses.
//! - [`status_http`]: metrics and health over HTTP.

pub mod channel;
pub mod data;
pub mod frame;
#[cfg(test)]
mod fuzz_test;
pub mod listener;
pub mod session;
pub mod status;
pub mod status_http;

/// Version of the software, told in greetings for logs.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
