//! A cluster that runs.

use std::path::Path;

use ozone_common::env::Env;
use tokio_util::sync::CancellationToken;

use crate::children::Children;
use crate::env_file::Access;
use crate::home::{Home, Lock};
use crate::in_process::InProcess;
use crate::prepare::{Prepared, prepare};
use crate::processes::{Pids, Process};
use crate::settings::Settings;
use crate::{Error, Spec, access};

/// A cluster that was started and is ready.
pub struct Cluster {
    home: Home,
    settings: Settings,
    access: Access,
    roles: Roles,
}

enum Roles {
    Here { roles: InProcess, _lock: Lock },
    Apart(Children),
}

impl Cluster {
    /// Starts all roles in this process, on this runtime. `begin` is called once the folder is ours, with its settings, before
    /// the roles start: logging can begin there.
    ///
    /// # Errors
    /// One line. Nothing runs then, and a folder that was not ours is as it was. `stop` makes a start fail that is under way.
    pub async fn start_here(
        spec: &Spec,
        env: &Env,
        stop: &CancellationToken,
        begin: impl FnOnce(&Home, &Settings) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let Prepared { home, settings, secret, lock, held } = prepare(spec, env)?;
        begin(&home, &settings)?;
        let pids = Pids(vec![("all".into(), Process::own())]);
        home.save_pids(&pids)?;
        let roles = InProcess::start(&home, &settings, &secret, env).await?;
        drop(held);
        let opened = async {
            access::ready(&home, &settings, env, &mut || asked(stop).and_then(|()| roles.check())).await?;
            access::grant(&home, &settings, env, pids.to_string()).await
        };
        match opened.await {
            Ok(access) => Ok(Self { home, settings, access, roles: Roles::Here { roles, _lock: lock } }),
            Err(error) => {
                if let Err(error) = roles.stop().await {
                    tracing::warn!(%error, "stopping after a start that failed");
                }
                Err(error)
            }
        }
    }

    /// Starts each role as a process of `program`.
    ///
    /// # Errors
    /// As [`Cluster::start_here`].
    pub async fn start_apart(spec: &Spec, env: &Env, stop: &CancellationToken, program: &Path) -> Result<Self, Error> {
        // The roles read the secret themselves.
        let Prepared { home, settings, secret: _, lock, held } = prepare(spec, env)?;
        let mut children = Children::start(program, &home, &settings, &lock)?;
        let pids = children.pids();
        let opened = async {
            home.save_pids(&pids)?;
            access::ready(&home, &settings, env, &mut || asked(stop).and_then(|()| children.check(&home))).await?;
            access::grant(&home, &settings, env, pids.to_string()).await
        };
        match opened.await {
            // From here on the folder is held by whichever roles live.
            Ok(access) => Ok(Self { home, settings, access, roles: Roles::Apart(children) }),
            Err(error) => {
                drop(held);
                if let Err(error) = children.stop().await {
                    tracing::warn!(%error, "stopping after a start that failed");
                }
                Err(error)
            }
        }
    }

    /// How to reach it.
    pub const fn access(&self) -> &Access {
        &self.access
    }

    /// Its settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Its folder.
    pub const fn home(&self) -> &Home {
        &self.home
    }

    /// Serves until `shutdown`, then stops in order. In one process the first role that ends by itself stops all; processes of
    /// their own go on without it, and `lost` is told.
    ///
    /// # Errors
    /// A role that ended by itself, or did not end in order.
    pub async fn run(self, shutdown: CancellationToken, lost: impl FnMut(String)) -> Result<(), Error> {
        match self.roles {
            Roles::Here { roles, _lock } => {
                let failure = tokio::select! {
                    () = shutdown.cancelled() => None,
                    failure = roles.failed() => Some(failure),
                };
                let stopped = roles.stop().await;
                failure.map_or(stopped, Err)
            }
            Roles::Apart(mut children) => {
                tokio::select! {
                    () = shutdown.cancelled() => children.stop().await,
                    () = children.wait(&self.home, lost) => Ok(()),
                }
            }
        }
    }
}

/// Fails where the start is to be given up.
fn asked(stop: &CancellationToken) -> Result<(), Error> {
    if stop.is_cancelled() { Err(Error::Interrupted) } else { Ok(()) }
}
