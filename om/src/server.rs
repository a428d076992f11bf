//! Puts an OM together: listeners, service, loops; and takes it down in order.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use ozone_common::Error;
use ozone_common::env::Env;
use ozone_common::peer::{ClusterSecret, PeerRole};
use ozone_rpc::session::{SessionConfig, service};
use ozone_rpc::{channel, listener, status_http};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::background::{Wakers, grant_expiry, key_purge, part_reclaim};
use crate::blocks::scm_client::Scm;
use crate::config::Config;
use crate::core::command::Command;
use crate::log::Log;
use crate::service::Om;

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

/// Serves on top of an open log. `close` runs after everything else has ended.
///
/// # Errors
/// An address that cannot be bound; a store of another layout version.
pub(crate) async fn serve<L: Log>(
    config: Config,
    secret: ClusterSecret,
    env: Env,
    log: L,
    scm: Arc<dyn Scm>,
    wakers: Arc<Wakers>,
    close: Option<BoxFuture<'static, Result<(), Error>>>,
    shutdown: CancellationToken,
) -> Result<Handle, Error> {
    let rpc = listener::bind(&config.rpc_bind, config.security_enabled).await?;
    let http = listener::bind(&config.http_bind, config.security_enabled).await?;
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
