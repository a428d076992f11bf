//! Sessions: many numbered calls in flight on one gRPC stream, batched both ways.
//!
//! ```text
//!   callers ──call()──▶ queue ──CallBatch──▶ stream ──▶ CallHandler::call (concurrent, polled by the stream's task)
//!      ◀──by sequence── reader ◀──ReplyBatch── stream ◀── replies that were ready at one wakeup
//! ```
//!
//! Invariants:
//! - `(client id, sequence)` names one call for ever. After a broken connection the client sends unanswered calls again
//!   under the same name until their deadline, so the server executes each at most once (consensus keeps the answers).
//! - `lowest_unanswered` only grows; the server may forget answers below it, since nobody waits for them any more.
//! - No call is taken before both ends have proven themselves ([`hello`]); a command line proves nothing, and is served
//!   on loopback in insecure mode only.
//! - Everything is bounded: calls in flight and their bytes on both ends, the span of unanswered sequences, batch sizes.

pub mod client;
mod client_state;
pub mod hello;
pub mod server;

pub use client::{CallOptions, SessionClient, SessionOptions};
pub use hello::Identity;
pub use server::{CallHandler, IncomingCall, Peer, SessionConfig, service};

/// A batch is sent once it holds this many bytes of requests or responses, even where more wait.
const BATCH_BYTES: usize = 1 << 20;

/// Most bytes of one request or response: a batch of one fits a message.
pub const CALL_BYTES_MAX: usize = ozone_common::limits::RPC_MESSAGE_MAX - BATCH_BYTES - 4096;

const _: () = assert!(CALL_BYTES_MAX > ozone_common::limits::INLINE_LENGTH_MAX * 2);
