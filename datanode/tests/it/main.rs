//! A real datanode on a real folder, reached as clients and the SCM reach it.

mod fake_scm;
mod heartbeat;
mod junk;
mod lifecycle;
mod node;
mod read;
mod token;
mod write;
