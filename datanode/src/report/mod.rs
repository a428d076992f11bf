//! What this datanode tells the SCM, and what the SCM orders: one heartbeat stream per SCM member (docs/containers.md).
//!
//! ```text
//!  Store::take_changes ──▶ Hub ──▶ pending of each stream ──▶ report ──▶ SCM
//!                                            answers ▲           │
//!                       Store ◀── Orders (term, bounded) ◀───────┘ commands
//! ```
//! Invariants: a stream's first report is full, and no later one shows an older state of a replica than one before;
//! a delete is answered only after it is durable; a command of a term below one obeyed before is refused.

mod backoff;
mod hub;
mod orders;
mod register;
mod session;
mod term;

pub(crate) use hub::Hub;
pub(crate) use orders::Orders;
pub(crate) use register::Presence;
pub(crate) use session::Reporter;
pub(crate) use term::TermGuard;
