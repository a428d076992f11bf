//! A small S3 client for load: signed requests over HTTP/1.1, one connection per worker, nothing retried.

mod client;
mod sign;

pub use client::{Account, Answer, Connection, Endpoint, Request};
