//! The doors: datanodes' heartbeats, and calls of the OM and of admins. Decode, authorise, answer.

pub mod admin;
pub mod block;
pub mod calls;
#[cfg(test)]
mod fuzz_test;
pub mod heartbeat;
