//! Reading: located blocks to verified bytes.
//!
//! ```text
//!   KeyReader ── plans ──▶ Fetch, Fetch (prefetch) ── each from one replica at a time, a second one where the first is late
//!      │ every window's CRC32C is checked here; a bad one goes to another replica and is reported to the bad one
//!      └ all replicas of a block failed, or tokens end: the key is looked up again under the same generation
//! ```

mod fetch;
mod key_reader;
pub(crate) mod latency;

pub use key_reader::KeyReader;
