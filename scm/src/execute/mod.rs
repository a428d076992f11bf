//! Loops that carry out what was decided, and the queues to datanodes.

pub mod closer;
pub mod delete_tracker;
pub mod deleter;
pub mod queue;
