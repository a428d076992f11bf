//! Puts a gateway together: listeners, connections, status; and takes it down in order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use ozone_client::proto::om::v1::{LookupSecret, Status};
use ozone_client::{CallContext, Client, Identity};
use ozone_common::Error;
use ozone_common::env::Env;
use ozone_common::peer::ClusterSecret;
use ozone_common::telemetry::{RateLimit, install_metrics};
use ozone_rpc::{listener, status_http};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Lookup;
use crate::config::Config;
use crate::exchange;
use crate::gateway::Gateway;
use crate::stall::StallLimit;

/// Most bytes of a request's head, and of one read of a body.
const BUFFER_MAX: usize = 256 << 10;
/// How often the gateway asks whether the OM answers, and how long it waits for that.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// What continuation tokens' key is derived for.
const TOKEN_PURPOSE: &[u8] = b"ozone s3 listing token v1";

/// A running gateway.
pub struct Handle {
    address: SocketAddr,
    http_address: SocketAddr,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    gateway: Arc<Gateway>,
}

impl Handle {
    /// Where S3 is served.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where metrics and health are.
    pub const fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Returns when all has ended: after the token given to the start was cancelled. Requests under way have `drain_timeout` to end.
    ///
    /// # Errors
    /// None today; the form is that of every role.
    pub async fn join(self) -> Result<(), Error> {
        self.shutdown.cancelled().await;
        self.tasks.close();
        self.tasks.wait().await;
        self.gateway.drain.join().await;
        self.gateway.client.shutdown().await;
        Ok(())
    }
}

/// Starts a gateway of the cluster that `secret` belongs to. It needs no answer from the cluster to start.
///
/// # Errors
/// Settings that are not valid; an address that cannot be bound.
pub async fn start(
    config: Config,
    secret: ClusterSecret,
    env: Env,
    shutdown: CancellationToken,
) -> Result<Handle, Error> {
    config.validate()?;
    install_metrics();
    let s3 = listener::bind(&config.bind, config.security_enabled).await?;
    let http = listener::bind(&config.http_bind, config.security_enabled).await?;
    let (address, http_address) = (listener::local_address(&s3)?, listener::local_address(&http)?);
    let token_key = secret.derive(TOKEN_PURPOSE);
    let client = ozone_client::Config {
        tuning: config.client.clone(),
        ..ozone_client::Config::new(config.om_addresses.clone(), Identity::Gateway(secret))
    };
    let client = Client::connect(client, env.clone())?;
    let lookup = lookup(client.clone(), config.request_timeout.duration());
    let gateway = Gateway::new(client, env, config, lookup, token_key);

    let tasks = TaskTracker::new();
    tasks.spawn(accept(s3, gateway.clone(), shutdown.clone()));
    let reasons = Arc::new(Mutex::new(vec!["the OM has not answered yet".to_owned()]));
    tasks.spawn(probe(gateway.clone(), reasons.clone(), shutdown.clone()));
    let status = status_http::serve(http, Arc::new(move || reasons.lock().clone()), shutdown.clone());
    tasks.spawn(async move {
        if let Err(error) = status.await {
            tracing::error!(%error, "the S3 gateway's status server failed");
        }
    });
    tracing::info!(%address, %http_address, "S3 gateway serves");
    Ok(Handle { address, http_address, tasks, shutdown, gateway })
}

fn lookup(client: Client, timeout: Duration) -> Lookup {
    Box::new(move |access_key| {
        let client = client.clone();
        async move {
            let ctx = CallContext::new("gate", None, timeout);
            client.lookup_secret(&ctx, LookupSecret { access_key }).await
        }
        .boxed()
    })
}

/// Keeps the reasons for which the gateway is not ready.
async fn probe(gateway: Arc<Gateway>, reasons: Arc<Mutex<Vec<String>>>, shutdown: CancellationToken) {
    loop {
        let ctx = CallContext::new("probe", None, PROBE_TIMEOUT);
        let found = match gateway.client.om_status(&ctx, Status {}).await {
            Ok(_) => Vec::new(),
            Err(error) => vec![format!("the OM does not answer: {error}")],
        };
        *reasons.lock() = found;
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(PROBE_INTERVAL) => {}
        }
    }
}

/// Takes connections until `shutdown`, then waits for those that are there.
async fn accept(listener: TcpListener, gateway: Arc<Gateway>, shutdown: CancellationToken) {
    let connections = TaskTracker::new();
    // LIMIT: further connections wait in the listener's backlog.
    let places = Arc::new(Semaphore::new(gateway.config.connections_max));
    loop {
        let place = tokio::select! {
            () = shutdown.cancelled() => break,
            place = places.clone().acquire_owned() => place.expect("nobody closes this semaphore"),
        };
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    static LIMIT: RateLimit = RateLimit::every_ms(10_000);
                    if let Some(held_back) = LIMIT.pass() {
                        tracing::warn!(%error, held_back, "the S3 gateway cannot accept a connection");
                    }
                    // Out of descriptors, most likely: the next accept would fail at once too.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let (gateway, shutdown) = (gateway.clone(), shutdown.clone());
        connections.spawn(async move {
            gateway.metrics.connections.increment(1);
            serve(stream, gateway.clone(), shutdown).await;
            gateway.metrics.connections.decrement(1);
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// Serves one connection until the client or the gateway ends it.
async fn serve(stream: TcpStream, gateway: Arc<Gateway>, shutdown: CancellationToken) {
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
