//! Puts a gateway together: listeners, status, the way to the cluster; and takes it down in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use ozone_client::proto::om::v1::{LookupSecret, Status};
use ozone_client::{CallContext, Client, Identity};
use ozone_common::Error;
use ozone_common::env::Env;
use ozone_common::peer::ClusterSecret;
use ozone_common::telemetry::install_metrics;
use ozone_rpc::{listener, status_http};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Lookup;
use crate::config::Config;
use crate::connection;
use crate::gateway::Gateway;

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
    tasks.spawn(connection::accept(s3, gateway.clone(), shutdown.clone()));
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
