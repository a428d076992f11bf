//! Load generators, `ozone freon`: keys written and validated through the client library, and S3 requests over HTTP.
//!
//! ```text
//!   ockg, ockv ── ozone-client ──▶ OM, datanodes
//!   s3kg ── own signed HTTP ──▶ S3 gateway
//!        └ each is a Worker; `drive` runs many of them, `Report` says what came out
//! ```
//! What a key holds follows from its name ([`content`]), so that any later run can tell whether it reads what was written.

pub mod content;
pub mod cpu;
pub mod drive;
pub mod histogram;
mod key_space;
pub mod ockg;
pub mod ockv;
pub mod report;
pub mod s3;
pub mod s3kg;

pub use drive::Load;
pub use key_space::KeySpace;
pub use report::Report;
