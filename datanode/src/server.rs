//! Puts a datanode together: folders, store, listeners, heartbeats; and takes it down in order.

use std::net::SocketAddr;
use std::sync::Arc;

use ozone_common::env::Env;
use ozone_common::id::DatanodeId;
use ozone_common::peer::ClusterSecret;
use ozone_common::{Error, Result};
use ozone_rpc::data::{DataServerConfig, serve};
use ozone_rpc::{listener, status_http};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::identity::Identity;
use crate::metrics::ReportMetrics;
use crate::report::{Hub, Orders, Presence, Reporter, TermGuard};
use crate::service::data::DataService;
use crate::store::{Options, Owner, Store, VolumeConfig};

/// A running datanode.
pub struct Handle {
    data_address: SocketAddr,
    http_address: SocketAddr,
    datanode: DatanodeId,
    store: Arc<Store>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl Handle {
    /// Where clients read and write blocks.
    pub const fn data_address(&self) -> SocketAddr {
        self.data_address
    }

    /// Where metrics and health are.
    pub const fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Who it is; made at the first start of its data folder.
    pub const fn id(&self) -> DatanodeId {
        self.datanode
    }

    /// Returns when all has ended: after the token given to the start was cancelled, or when a server failed.
    ///
    /// # Errors
    /// Where the store could not be closed in order. Nothing acknowledged is lost by that.
    pub async fn join(self) -> Result<()> {
        self.shutdown.cancelled().await;
        // ORDER: requests and commands in progress have their answers before the store stops.
        self.tasks.close();
        self.tasks.wait().await;
        let closing = tokio::task::spawn_blocking(move || self.store.close());
        closing.await.map_err(|error| Error::internal(format!("closing the store: {error}")))
    }
}

/// Starts a datanode on its folders.
///
/// # Errors
/// One line each: a setting that is wrong, an address that cannot be bound, a folder of another cluster, datanode or role, no disk volume that can be used.
pub async fn start(config: Config, secret: ClusterSecret, env: Env, shutdown: CancellationToken) -> Result<Handle> {
    config.validate()?;
    ozone_common::telemetry::install_metrics();
    // ORDER: ports first, so that a second start on the same settings touches no folder.
    let data = listener::bind(&config.data_bind, config.security_enabled).await?;
    let http = listener::bind(&config.http_bind, config.security_enabled).await?;
    let (data_address, http_address) = (listener::local_address(&data)?, listener::local_address(&http)?);
    let opening = {
        let (config, env) = (config.clone(), env.clone());
        tokio::task::spawn_blocking(move || open(&config, secret.cluster, &env).map(|opened| (opened, secret)))
    };
    let ((identity, store, term), secret) =
        opening.await.map_err(|error| Error::internal(format!("opening the store: {error}")))??;
    let (datanode, store) = (identity.datanode, Arc::new(store));

    let tasks = TaskTracker::new();
    let service = DataService::new(store.clone(), secret.token_key(), datanode, &env, &config, tasks.clone());
    let mut transport = DataServerConfig::new(secret.cluster, datanode);
    transport.connections_max = config.connections;
    transport.handling_bytes_max = config.handling_per_connection.as_usize();
    transport.queued_bytes_max = config.queued_per_connection.as_usize();
    tasks.spawn(serve(data, transport, Arc::new(service), shutdown.clone()));

    let host = if config.host.is_empty() { data_address.ip().to_string() } else { config.host.clone() };
    let mut incarnation = [0; 16];
    env.rng.fill(&mut incarnation);
    let presence =
        Presence { datanode, incarnation, host, data_port: data_address.port(), http_port: http_address.port() };
    let metrics = Arc::new(ReportMetrics::new());
    let hub = Hub::new(store.clone());
    let orders = Orders::new(store.clone(), term, metrics.clone(), tasks.clone());
    let reporter = Reporter::new(presence, secret.clone(), env, hub.clone(), orders, metrics);
    tasks.spawn(hub.run(shutdown.clone()));
    for address in config.scm_addresses {
        tasks.spawn(reporter.clone().run(address, shutdown.clone()));
    }
    let status = status_http::serve(http, ready(reporter, store.clone()), shutdown.clone());
    tasks.spawn(async move {
        if let Err(error) = status.await {
            tracing::error!(%error, "the datanode's status server failed");
        }
    });
    tracing::info!(%data_address, %http_address, %datanode, cluster = %secret.cluster, "datanode serves");
    Ok(Handle { data_address, http_address, datanode, store, tasks, shutdown })
}

/// Waits for the disk.
fn open(config: &Config, cluster: ozone_common::id::ClusterId, env: &Env) -> Result<(Identity, Store, TermGuard)> {
    let folders = config.volume_folders();
    let mut identity = Identity::load_or_create(env, &config.data, &folders, cluster)?;
    let term = TermGuard::load(env, &config.data)?;
    let volumes =
        folders.into_iter().map(|path| VolumeConfig { path, reserved_bytes: config.reserved.get() }).collect();
    let owner = Owner { cluster, datanode: identity.datanode };
    // Whoever has credit finds room in the queue, beside as much of small blocks.
    let options = Options { lane_queue_bytes: 2 * config.open_blocks_memory.as_usize(), ..Options::default() };
    let store = Store::open(volumes, owner, options, env.clone())?;
    let used = store.usage().into_iter().filter(|volume| volume.failed.is_none()).map(|volume| volume.path);
    identity.remember(env, &config.data, used)?;
    Ok((identity, store, term))
}

/// Ready: an SCM hears from it, and all its disk volumes are in use.
fn ready(reporter: Arc<Reporter>, store: Arc<Store>) -> status_http::Ready {
    Arc::new(move || {
        let mut reasons = Vec::new();
        if !reporter.is_registered() {
            reasons.push("not registered with an SCM".to_owned());
        }
        let failed = store.usage().into_iter().filter_map(|volume| volume.failed.map(|why| (volume.path, why)));
        reasons.extend(failed.map(|(path, why)| format!("disk volume `{}` is out of use: {why}", path.display())));
        reasons
    })
}
