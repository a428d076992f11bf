//! Connections: taken up to a bound, each served request by request until client or gateway ends it.
//!
//! What a connection can hold up is bounded: a head, a silence in a body, bytes that nobody takes, the gateway's end each have a time.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use ozone_rpc::listener;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::exchange;
use crate::gateway::Gateway;
use crate::op::Backend;
use crate::stall::StallLimit;

/// Most bytes of a request's head, and of one read of a body.
const BUFFER_MAX: usize = 256 << 10;

/// Takes connections until `shutdown`, then waits for those that are there.
pub(crate) async fn accept<B: Backend>(listener: TcpListener, gateway: Arc<Gateway<B>>, shutdown: CancellationToken) {
    // LIMIT: further connections wait in the listener's backlog.
    let most = gateway.config.connections_max;
    let until = shutdown.clone();
    let serve_one = move |stream| {
        let (gateway, shutdown) = (gateway.clone(), shutdown.clone());
        async move {
            gateway.metrics.connections.increment(1);
            serve(stream, gateway.clone(), shutdown).await;
            gateway.metrics.connections.decrement(1);
        }
    };
    listener::accept(listener, most, "S3", until, serve_one).await;
}

/// Serves one connection until the client or the gateway ends it.
async fn serve<B: Backend>(stream: TcpStream, gateway: Arc<Gateway<B>>, shutdown: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection ended before it began");
        return;
    }
    let (head_timeout, drain_timeout) =
        (gateway.config.head_timeout.duration(), gateway.config.drain_timeout.duration());
    let stream = StallLimit::new(stream, gateway.config.body_timeout.duration());
    let service = service_fn(move |request| {
        let answer = exchange::answer(gateway.clone(), request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(BUFFER_MAX)
        .serve_connection(stream, service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(drain_timeout, connection).await {
                Ok(ended) => ended,
                Err(_) => {
                    tracing::warn!("a request did not end in time and is cut off by the gateway's end");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}
