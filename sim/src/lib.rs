//! Deterministic simulation of replicated groups: seeded faults, invariants, a reference model.
