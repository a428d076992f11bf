//! The block transport: framed calls over TCP between clients and datanodes (docs/design/0003-block-transport.md).
//!
//! ```text
//!  callers ─frames─▶ outbox ─▶ connection task ─writev─▶ socket ─▶ connection task ─▶ DataHandler::handle
//!     ◀──by call id── connection task ◀─ socket ◀─writev─ connection task ◀─ outbox ◀─frames─ Responder (any thread)
//! ```
//!
//! Invariants:
//! - One task serves a connection, both ways. Whoever has something to send puts frames into its outbox and wakes it;
//!   everything queued goes out in one vectored write, payloads uncopied.
//! - A payload is copied once by the kernel: large ones are read straight into a buffer of their own size, small ones
//!   are slices of the read buffer.
//! - Everything is bounded: bytes in flight per connection at the client (credit), bytes being handled and bytes queued
//!   at the server, connections of a server.
//! - Requests of one connection reach the handler in the order in which they were sent; answers come in any order.

pub mod client;
pub(crate) mod io;
pub mod server;

pub use client::{Connection, DataClient, DataOptions, Lane, PendingAnswer, ResponseStream, Target};
pub use server::{DataHandler, DataServerConfig, PeerInfo, Responder, serve};
