//! Deterministic simulation of replicated groups: seeded faults, invariants, a reference model.
//!
//! Everything that happens in a run, time included, comes from one seed: a run that fails is repeated by its number.
//! `ozone-sim --seed N` (the binary of this crate) does that.

pub mod dice;
pub mod raft;
pub mod trace;
