//! The one place where gRPC channels and servers get their settings; TLS is added here when it comes.
//!
//! Why these numbers: a frame size of 1 MiB on the receiving end and large windows are what takes gRPC's cost per byte
//! close to that of plain TCP (docs/design/0003-block-transport.md); keep-alive finds a peer that stopped without
//! closing its sockets within 10 seconds.

use std::time::Duration;

use ozone_common::limits::SESSION_CALLS_MAX;
use ozone_common::{Error, ErrorCode};
use tonic::transport::{Channel, Endpoint, Server};

/// HTTP/2 frame size both ends accept, bytes.
const FRAME_SIZE: u32 = 1 << 20;
/// Flow-control window of a stream, bytes.
const STREAM_WINDOW: u32 = 8 << 20;
/// Flow-control window of a connection, bytes.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// A silent connection is asked for a sign of life this often,
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// and given up where none comes within this.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Describes a channel to `address` (`host:port`).
///
/// # Errors
/// `InvalidArgument` where `address` is none.
pub fn endpoint(address: &str, connect_timeout: Duration) -> Result<Endpoint, Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| Error::invalid(format!("`{address}` is no address of the form host:port: {error}")))?;
    Ok(endpoint
        .connect_timeout(connect_timeout)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_SIZE)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT))
}

/// Connects to `address` (`host:port`).
///
/// # Errors
/// `InvalidArgument` where `address` is none, `Unavailable` where nothing answers there.
pub async fn connect(address: &str, connect_timeout: Duration) -> Result<Channel, Error> {
    endpoint(address, connect_timeout)?
        .connect()
        .await
        .map_err(|error| Error::new(ErrorCode::Unavailable, format!("connect to {address}: {}", innermost(&error))))
}

/// A gRPC server with our settings; services are added to it, and [`crate::listener::serve`] runs it.
pub fn server() -> Server {
    Server::builder()
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_SIZE)
        .max_concurrent_streams(SESSION_CALLS_MAX as u32)
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
}

/// What a chain of errors comes from: tonic's own say no more than "transport error".
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
