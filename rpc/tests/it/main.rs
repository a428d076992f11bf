//! Tests of the RPC layer over real loopback sockets.

mod data;
mod session;
