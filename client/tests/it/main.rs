//! The client against datanodes and a key-space manager that do as they are told, faults included.

mod cluster;
mod fake_datanode;
mod fake_om;
mod read;
mod write;
