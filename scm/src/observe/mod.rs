//! What is seen of datanodes: rebuilt from their reports after every start, never logged.

pub mod node_health;
pub mod nodes;
pub mod replica_map;
pub mod safe_mode;
pub mod usage;
