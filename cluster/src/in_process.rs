//! All roles in this process, on one runtime.

use std::time::Duration;

use futures::future::BoxFuture;
use ozone_common::env::Env;
use ozone_common::peer::ClusterSecret;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::home::Home;
use crate::role::{Role, STOP_ORDER};
use crate::settings::Settings;

/// LIMIT: how long one role may take to end; its state is safe in any case, as after a crash.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

type Join = BoxFuture<'static, Result<(), ozone_common::Error>>;

/// Starts one role on this runtime. The future that comes back ends when the role has.
///
/// # Errors
/// [`Error::Role`] in the role's own words.
pub async fn start_role(
    role: Role,
    settings: &Settings,
    datanode: ozone_datanode::Config,
    secret: ClusterSecret,
    env: Env,
    stop: CancellationToken,
) -> Result<Join, Error> {
    let wrong = |error: ozone_common::Error| Error::role(role.to_string(), error.message);
    Ok(match role {
        Role::Om => {
            let handle = ozone_om::start(settings.om.clone(), secret, env, stop).await.map_err(wrong)?;
            Box::pin(handle.join())
        }
        Role::Scm => {
            let handle = ozone_scm::start(settings.scm.clone(), secret, env, stop).await.map_err(wrong)?;
            Box::pin(handle.join())
        }
        Role::Datanode(_) => {
            let handle = ozone_datanode::start(datanode, secret, env, stop).await.map_err(wrong)?;
            Box::pin(handle.join())
        }
        Role::S3g => {
            let handle = ozone_s3_gateway::start(settings.s3.clone(), secret, env, stop).await.map_err(wrong)?;
            Box::pin(handle.join())
        }
    })
}

/// A role that runs.
struct Started {
    role: Role,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), ozone_common::Error>>,
}

/// The roles of this process.
pub(crate) struct InProcess(Vec<Started>);

impl InProcess {
    /// Starts all roles side by side; all or none of them run afterwards.
    pub(crate) async fn start(
        home: &Home,
        settings: &Settings,
        secret: &ClusterSecret,
        env: &Env,
    ) -> Result<Self, Error> {
        let starting: Vec<_> = Role::all(settings.dev.datanodes)
            .map(|role| {
                let stop = CancellationToken::new();
                let n = if let Role::Datanode(n) = role { n } else { 1 };
                let datanode = settings.datanode(n, home.path());
                let (settings, secret, env) = (settings.clone(), secret.clone(), env.clone());
                let token = stop.clone();
                let start =
                    tokio::spawn(async move { start_role(role, &settings, datanode, secret, env, token).await });
                (role, stop, start)
            })
            .collect();
        let mut this = Self(Vec::new());
        let mut failure = None;
        for (role, stop, start) in starting {
            match start.await {
                Ok(Ok(join)) => this.0.push(Started { role, stop, ended: tokio::spawn(join) }),
                Ok(Err(error)) => failure = failure.or(Some(error)),
                Err(panic) => failure = failure.or_else(|| Some(Error::role(role.to_string(), panic))),
            }
        }
        let Some(failure) = failure else { return Ok(this) };
        if let Err(error) = this.stop().await {
            tracing::warn!(%error, "stopping after a start that failed");
        }
        Err(failure)
    }

    /// Fails where a role has ended by itself.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.0.iter().find(|started| started.stop.is_cancelled()) {
            None => Ok(()),
            Some(started) => Err(by_itself(started.role)),
        }
    }

    /// Waits for the first role that ends by itself. A role's own failure cancels its token.
    pub(crate) async fn failed(&self) -> Error {
        let ends = self.0.iter().map(|started| Box::pin(started.stop.cancelled()));
        let ((), index, _) = futures::future::select_all(ends).await;
        by_itself(self.0[index].role)
    }

    /// Stops the roles: the door first, then those that it needs, so that what was begun can end. The first failure is
    /// returned, after all have been stopped.
    pub(crate) async fn stop(self) -> Result<(), Error> {
        let mut failure = None;
        let mut left = self.0;
        for order in STOP_ORDER {
            let (group, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|started| order(started.role));
            left = others;
            for started in &group {
                started.stop.cancel();
            }
            for started in group {
                let name = started.role.to_string();
                let outcome = match tokio::time::timeout(STOP_TIMEOUT, started.ended).await {
                    Ok(Ok(Ok(()))) => continue,
                    Ok(Ok(Err(error))) => Error::role(name, error),
                    Ok(Err(panic)) => Error::role(name, panic),
                    Err(_) => Error::role(name, format!("did not stop within {} s", STOP_TIMEOUT.as_secs())),
                };
                failure = failure.or(Some(outcome));
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

fn by_itself(role: Role) -> Error {
    Error::role(role.to_string(), "stopped by itself; the logs say why")
}
