//! What is settled on the leader before a change is executed: who asks, whether they may, names, times, ids.

pub mod action;
pub mod authorise;
pub mod convert;
