//! Puts an OM together: listeners, service, loops; and takes it down in order.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use ozone_common::Error;
use ozone_common::env::Env;
use ozone_common::peer::{ClusterSecret, PeerRole};
use ozone_consensus::core::MemberId;
use ozone_consensus::group::{Group, GroupConfig, Limits};
use ozone_consensus::identity;
use ozone_kvstore::rocks::{Memory, RocksOptions};
use ozone_rpc::session::{SessionConfig, service};
use ozone_rpc::{channel, listener, status_http};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::background::{Wakers, grant_expiry, key_purge, part_reclaim};
use crate::blocks::scm_client::{Scm, ScmClient};
use crate::config::Config;
use crate::core::command::Command;
use crate::core::{Core, Settings};
use crate::log::Log;
use crate::service::Om;
use crate::tables::TABLES;

/// What sessions' proofs are bound to.
const SESSIONS: &str = "om.Sessions";

/// A running OM.
pub struct Handle {
    rpc_address: SocketAddr,
    http_address: SocketAddr,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    close: Option<BoxFuture<'static, Result<(), Error>>>,
}

impl Handle {
    /// Where clients and gateways reach it.
    pub const fn rpc_address(&self) -> SocketAddr {
        self.rpc_address
    }

    /// Where metrics and health are.
    pub const fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Returns when all has ended: after the token given to the start was cancelled, or when a server failed.
    ///
    /// # Errors
    /// Where the state could not be closed in order. Nothing acknowledged is lost by that.
    pub async fn join(mut self) -> Result<(), Error> {
        self.shutdown.cancelled().await;
        self.tasks.close();
        self.tasks.wait().await;
        match self.close.take() {
            Some(close) => close.await,
            None => Ok(()),
        }
    }
}

/// The ports, taken before anything on disk is touched.
pub(crate) struct Listeners {
    rpc: TcpListener,
    http: TcpListener,
}

impl Listeners {
    /// # Errors
    /// An address that cannot be bound.
    pub async fn bind(config: &Config) -> Result<Self, Error> {
        Ok(Self {
            rpc: listener::bind(&config.rpc_bind, config.security_enabled).await?,
            http: listener::bind(&config.http_bind, config.security_enabled).await?,
        })
    }
}

/// Starts an OM on the state in its folder, made where that is absent or empty.
///
/// # Errors
/// Settings that cannot work, ports in use, a folder of another cluster or role or in use, damage to what was acknowledged: one line each, and nothing
/// was changed.
pub async fn start(
    config: Config,
    secret: ClusterSecret,
    env: Env,
    shutdown: CancellationToken,
) -> Result<Handle, Error> {
    config.validate()?;
    let listeners = Listeners::bind(&config).await?;
    let scm = Arc::new(ScmClient::connect(config.scm_addresses.clone(), secret.clone(), env.clone())?);
    let wakers = Arc::new(Wakers::default());
    let group = open_group(&config, &secret, &env, wakers.clone(), shutdown.clone()).await?;
    let (serving, closing) = (group.clone(), group.clone());
    let close = async move { closing.close().await }.boxed();
    let started = serve(config, secret, env, listeners, serving, scm, wakers, Some(close), shutdown).await;
    if started.is_err()
        && let Err(error) = group.close().await
    {
        tracing::warn!(%error, "the OM's state was not closed in order");
    }
    started
}

/// Opens the OM's member of its group, replaying its log.
async fn open_group(
    config: &Config,
    secret: &ClusterSecret,
    env: &Env,
    wakers: Arc<Wakers>,
    stopped: CancellationToken,
) -> Result<Group<Core>, Error> {
    let settings = Settings {
        read_token_life_ms: config.read_token_life.as_millis(),
        inline_max: u32::try_from(config.inline_max.get()).unwrap_or(u32::MAX),
    };
    let memory = Memory::new(config.store_cache.get() as usize, config.store_write_buffer.get() as usize);
    let store = RocksOptions { memory, ..RocksOptions::default() };
    let (cluster, folder, env) = (secret.cluster, config.data.clone(), env.clone());
    let open = move || {
        let member = identity::load_or_create(&env, &folder, "OM", cluster)?;
        let group = GroupConfig {
            name: "om",
            group: *cluster.as_bytes(),
            member: MemberId::of(member),
            folder,
            tables: TABLES.to_vec(),
            limits: Limits::default(),
        };
        let on_hint = move |hint| wakers.wake(hint);
        Group::open(group, &env, Core::new(settings), &store, on_hint, stopped)
            .map_err(|reason| Error::from(reason).context("OM"))
    };
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|error| Error::internal(format!("the OM's start was interrupted: {error}")))?
}

/// Serves on top of an open log. `close` runs after everything else has ended.
///
/// # Errors
/// A store of another layout version.
pub(crate) async fn serve<L: Log>(
    config: Config,
    secret: ClusterSecret,
    env: Env,
    listeners: Listeners,
    log: L,
    scm: Arc<dyn Scm>,
    wakers: Arc<Wakers>,
    close: Option<BoxFuture<'static, Result<(), Error>>>,
    shutdown: CancellationToken,
) -> Result<Handle, Error> {
    let Listeners { rpc, http } = listeners;
    let (rpc_address, http_address) = (listener::local_address(&rpc)?, listener::local_address(&http)?);
    let mut sessions = SessionConfig::new(SESSIONS, PeerRole::Om, secret.clone(), env.clone(), shutdown.clone());
    sessions.allow_clients = !config.security_enabled;
    let om = Arc::new(Om::new(log, config, secret.cluster, secret.token_key(), env, scm));
    if om.log.state().leader {
        om.log.propose_internal(Command::Format).await?;
    }

    let tasks = om.tasks.clone();
    let router = channel::server().add_service(service(sessions, om.clone()));
    let stop = shutdown.clone();
    tasks.spawn(async move {
        if let Err(error) = listener::serve(rpc, router, stop.clone()).await {
            tracing::error!(%error, "the OM's server failed; stopping");
            stop.cancel();
        }
    });
    tasks.spawn(key_purge::run_loop(om.clone(), wakers.clone(), shutdown.clone()));
    tasks.spawn(part_reclaim::run_loop(om.clone(), wakers.clone(), shutdown.clone()));
    tasks.spawn(grant_expiry::run_loop(om.clone(), wakers, shutdown.clone()));
    let cluster = om.cluster;
    let status = status_http::serve(http, ready(om), shutdown.clone());
    tasks.spawn(async move {
        if let Err(error) = status.await {
            tracing::error!(%error, "the OM's status server failed");
        }
    });
    tracing::info!(%rpc_address, %http_address, %cluster, "OM serves");
    Ok(Handle { rpc_address, http_address, tasks, shutdown, close })
}

/// Ready: leads, or follows a leader.
fn ready<L: Log>(om: Arc<Om<L>>) -> status_http::Ready {
    Arc::new(move || {
        let state = om.log.state();
        if state.leader { Vec::new() } else { vec!["this member does not lead".to_owned()] }
    })
}
