//! Puts an SCM together: listeners, services, loops; and takes it down in order.

use std::net::SocketAddr;
use std::sync::Arc;

use ozone_common::env::Env;
use ozone_common::peer::{ClusterSecret, PeerRole};
use ozone_common::{Error, Result};
use ozone_consensus::core::MemberId;
use ozone_consensus::group::{Group, GroupConfig, Limits};
use ozone_consensus::identity;
use ozone_kvstore::rocks::{Memory, RocksOptions};
use ozone_proto::scm::v1::heartbeats_server::HeartbeatsServer;
use ozone_rpc::session::hello::Doorkeeper;
use ozone_rpc::session::{SessionConfig, service};
use ozone_rpc::{channel, listener, status_http};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::execute::{closer, deleter};
use crate::executor::ScmExecutor;
use crate::log::{SharedLog, Wakeups};
use crate::scm::Scm;
use crate::service::calls::Calls;
use crate::service::heartbeat::{self, HeartbeatService};
use crate::tables::TABLES;

/// What sessions' proofs are bound to.
const SESSIONS: &str = "scm.Sessions";

/// A running SCM.
pub struct Handle {
    rpc_address: SocketAddr,
    http_address: SocketAddr,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    close: Option<futures::future::BoxFuture<'static, Result<()>>>,
}

impl Handle {
    /// Where the OM, datanodes and admins reach it.
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
    pub async fn join(mut self) -> Result<()> {
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
    pub async fn bind(config: &Config) -> Result<Self> {
        Ok(Self {
            rpc: listener::bind(&config.rpc_bind, config.security_enabled).await?,
            http: listener::bind(&config.http_bind, config.security_enabled).await?,
        })
    }
}

/// Starts an SCM on the state in its folder, made where that is absent or empty.
///
/// # Errors
/// Settings that cannot work, ports in use, a folder of another cluster or role or in use, damage to what was acknowledged: one line each, and nothing
/// was changed.
pub async fn start(config: Config, secret: ClusterSecret, env: Env, shutdown: CancellationToken) -> Result<Handle> {
    config.validate()?;
    let listeners = Listeners::bind(&config).await?;
    let wakeups = Arc::new(Wakeups::default());
    let group = open_group(&config, &secret, &env, wakeups.clone(), shutdown.clone()).await?;
    let (log, closing) = (Arc::new(group.clone()), group.clone());
    let close = Box::pin(async move { closing.close().await });
    match serve(config, secret, env, listeners, log, wakeups, Some(close), shutdown).await {
        Ok((handle, _)) => Ok(handle),
        Err(error) => {
            if let Err(error) = group.close().await {
                tracing::warn!(%error, "the SCM's state was not closed in order");
            }
            Err(error)
        }
    }
}

/// Opens the SCM's member of its group, replaying its log.
async fn open_group(
    config: &Config,
    secret: &ClusterSecret,
    env: &Env,
    wakeups: Arc<Wakeups>,
    stopped: CancellationToken,
) -> Result<Group<ScmExecutor>> {
    let cache = config.cache.get() as usize;
    let store = RocksOptions { memory: Memory::new(cache, cache / 2), ..RocksOptions::default() };
    let (cluster, folder, env) = (secret.cluster, config.data.clone(), env.clone());
    let open = move || {
        let member = identity::load_or_create(&env, &folder, "SCM", cluster)?;
        let group = GroupConfig {
            name: "scm",
            group: *cluster.as_bytes(),
            member: MemberId::of(member),
            folder,
            tables: TABLES.to_vec(),
            limits: Limits::default(),
        };
        let on_hint = move |hint| wakeups.hint(hint);
        Group::open(group, &env, ScmExecutor, &store, on_hint, stopped)
            .map_err(|reason| Error::from(reason).context("SCM"))
    };
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|error| Error::internal(format!("the SCM's start was interrupted: {error}")))?
}

/// Serves on top of an open log. `close` runs after everything else has ended.
pub(crate) async fn serve(
    config: Config,
    secret: ClusterSecret,
    env: Env,
    listeners: Listeners,
    log: SharedLog,
    wakeups: Arc<Wakeups>,
    close: Option<futures::future::BoxFuture<'static, Result<()>>>,
    shutdown: CancellationToken,
) -> Result<(Handle, Arc<Scm>)> {
    let Listeners { rpc, http } = listeners;
    let (rpc_address, http_address) = (listener::local_address(&rpc)?, listener::local_address(&http)?);
    let scm = Scm::new(config, secret.cluster, env.clone(), log, wakeups)?;
    let tasks = TaskTracker::new();

    let heartbeats = HeartbeatService {
        scm: scm.clone(),
        door: Arc::new(Doorkeeper::new(heartbeat::SERVICE, secret.clone(), false)),
        tasks: tasks.clone(),
        shutdown: shutdown.clone(),
    };
    let mut sessions = SessionConfig::new(SESSIONS, PeerRole::Scm, secret, env, shutdown.clone());
    sessions.allow_clients = !scm.config.security_enabled;
    let router = channel::server().add_service(service(sessions, Arc::new(Calls(scm.clone())))).add_service(
        HeartbeatsServer::new(heartbeats)
            .max_decoding_message_size(ozone_common::limits::RPC_MESSAGE_MAX)
            .max_encoding_message_size(ozone_common::limits::RPC_MESSAGE_MAX),
    );
    let stop = shutdown.clone();
    tasks.spawn(async move {
        if let Err(error) = listener::serve(rpc, router, stop.clone()).await {
            tracing::error!(%error, "the SCM's server failed; stopping");
            stop.cancel();
        }
    });
    tasks.spawn(closer::run(scm.clone(), shutdown.clone()));
    tasks.spawn(deleter::run(scm.clone(), shutdown.clone()));
    let status = status_http::serve(http, ready(scm.clone()), shutdown.clone());
    tasks.spawn(async move {
        if let Err(error) = status.await {
            tracing::error!(%error, "the SCM's status server failed");
        }
    });
    tracing::info!(%rpc_address, %http_address, cluster = %scm.cluster, "SCM serves");
    Ok((Handle { rpc_address, http_address, tasks, shutdown, close }, scm))
}

/// Ready: leads (or follows a leader) and is out of safe mode.
fn ready(scm: Arc<Scm>) -> status_http::Ready {
    Arc::new(move || {
        let mut reasons = Vec::new();
        if !scm.log.status().leader {
            reasons.push("this member does not lead".to_owned());
        }
        let seen = scm.seen.lock();
        if seen.safe_mode.is_on() {
            let rules = seen.safe_mode.rules(seen.nodes.iter().count());
            let waiting = rules.into_iter().filter(|rule| !rule.satisfied);
            reasons.extend(waiting.map(|rule| format!("safe mode: {}: {}", rule.name, rule.status)));
        }
        reasons
    })
}
