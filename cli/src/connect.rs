//! How tools reach a cluster: which addresses, as whom, and for how long.
//!
//! Order: the address given to the command (`o3://host:port/…`), then flags, then the environment, then `[client]` of the
//! settings file, then the ports of a cluster on this machine.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use ozone_client::{CallContext, Client, Config, Identity};
use ozone_cluster::{ClientConfig, invoking_user};
use ozone_common::config::{Sources, TimeSpan, load};
use ozone_common::env::Env;
use ozone_common::{Error, ErrorCode};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::exit::Interrupted;
use crate::runtime;

/// For giving unused block ids back at the end of a command; they expire by themselves where it does not suffice.
const GOODBYE: Duration = Duration::from_secs(2);
/// For finding out whether anything listens at an address.
const PROBE: Duration = Duration::from_secs(2);

/// Flags of every command that speaks to a cluster.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Where the OM is: host:port, several with commas between
    #[arg(long, global = true, env = "OZONE_OM_ADDRESS", value_name = "ADDRESS", value_delimiter = ',')]
    om: Vec<String>,
    /// Where the SCM is, likewise; only `ozone admin` asks it
    #[arg(long, global = true, env = "OZONE_SCM_ADDRESS", value_name = "ADDRESS", value_delimiter = ',')]
    scm: Vec<String>,
    /// The settings file, of which [client] is read
    #[arg(long, global = true, env = "OZONE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// As whom to act [default: the user of this process]
    // Not `user`: commands have an argument of that name, which would hide this one.
    #[arg(long = "as", global = true, env = "OZONE_USER", value_name = "USER")]
    acting_user: Option<String>,
    /// How long an answer may take; a transfer as a whole may take longer
    #[arg(long, global = true, value_name = "TIME", default_value = "30s")]
    timeout: TimeSpan,
}

/// A connection to a cluster and what its commands share.
pub struct Connection {
    /// The cluster.
    pub client: Client,
    env: Env,
    timeout: Duration,
}

impl Connection {
    /// The frame of one operation: a new request id and the time that `--timeout` gives it.
    pub fn context(&self) -> CallContext {
        let id = format!("{:016x}", self.env.rng.next_u64());
        CallContext::new(id, None, self.timeout)
    }

    /// What one operation may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// Which managers a command speaks to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// The key-space manager only.
    Om,
    /// The container manager only.
    Scm,
}

impl ClusterArgs {
    /// Runs `command` with a connection, until it is done or the user interrupts it. `om` is the address that the command's
    /// own argument names.
    ///
    /// # Errors
    /// Those of the command; [`Interrupted`]; settings that are wrong; `Unavailable` where nothing listens.
    pub fn run<F, T>(&self, needs: Needs, om: Option<&str>, command: impl FnOnce(Connection) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut config = self.config()?;
        if let Some(om) = om {
            config.om_addresses = vec![om.to_owned()];
        }
        block_on(async {
            match needs {
                Needs::Om => probe("OM", &config.om_addresses).await?,
                Needs::Scm => probe("SCM", &config.scm_addresses).await?,
            }
            let env = Env::system();
            let client = Client::connect(config, env.clone())?;
            let connection = Connection { client: client.clone(), env, timeout: self.timeout.duration() };
            let outcome = command(connection).await;
            // What is not given back in time ends with its grant.
            if timeout(GOODBYE, client.shutdown()).await.is_err() {
                tracing::debug!("block ids were not given back in time");
            }
            outcome
        })
    }

    /// As whom to act.
    pub fn user(&self) -> String {
        self.acting_user.clone().unwrap_or_else(invoking_user)
    }

    fn config(&self) -> Result<Config> {
        let settings = self.settings()?;
        let or = |flags: &[String], settings: Vec<String>| if flags.is_empty() { settings } else { flags.to_vec() };
        Ok(Config {
            om_addresses: or(&self.om, settings.om_addresses),
            scm_addresses: or(&self.scm, settings.scm_addresses),
            identity: Identity::User(self.user()),
            tuning: settings.tuning,
        })
    }

    fn settings(&self) -> Result<ClientConfig> {
        /// The other sections are their roles' business.
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct File {
            client: ClientConfig,
        }
        Ok(load::<File>(&Sources::of_process(self.config.clone()))?.client)
    }
}

/// Finds out at once that nothing listens, where a session would go on trying until its deadline.
async fn probe(role: &str, addresses: &[String]) -> Result<()> {
    let mut last = anyhow!("no address is configured");
    for address in addresses {
        match timeout(PROBE, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => last = anyhow!("{error}"),
            Err(_) => last = anyhow!("no answer in {} s", PROBE.as_secs()),
        }
    }
    let message = format!("cannot reach the {role} at {}: {last}", addresses.join(", "));
    Err(Error::new(ErrorCode::Unavailable, message).into())
}

/// Runs a future on a runtime of its own, until SIGINT. What it holds is dropped then, so that partial files go.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = runtime::build()?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = future => outcome,
            signal = tokio::signal::ctrl_c() => {
                signal.context("cannot listen for SIGINT")?;
                Err(Interrupted.into())
            }
        }
    });
    // A read of stdin may never return.
    runtime.shutdown_background();
    outcome
}

/// The moment at which a command that polls gives up.
pub fn deadline(after: TimeSpan) -> Instant {
    Instant::now() + after.duration()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cluster: ClusterArgs,
    }

    fn config(arguments: &[&str], file: &str) -> Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ozone.toml");
        std::io::Write::write_all(&mut std::fs::File::create(&path).unwrap(), file.as_bytes()).unwrap();
        let line = [&["x", "--config", path.to_str().unwrap()], arguments].concat();
        Line::try_parse_from(line).unwrap().cluster.config()
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let got = config(&[], "").unwrap();
        assert_eq!(
            (got.om_addresses, got.scm_addresses),
            (vec!["127.0.0.1:9862".into()], vec!["127.0.0.1:9860".into()])
        );
        let file = "[om]\nanything = 1\n[client]\nom_addresses = ['a:1', 'b:2']\n[client.tuning]\nprefetch = 3";
        let got = config(&["--scm", "c:3,d:4", "--as", "alice"], file).unwrap();
        assert_eq!(
            (got.om_addresses, got.scm_addresses),
            (vec!["a:1".into(), "b:2".into()], vec!["c:3".into(), "d:4".into()])
        );
        assert_eq!(got.tuning.prefetch, 3);
        assert!(matches!(got.identity, Identity::User(user) if user == "alice"));
        assert_eq!(config(&["--om", "e:5"], file).unwrap().om_addresses, ["e:5"]);
        let error = config(&[], "[client]\nom_adresses = []").unwrap_err().to_string();
        assert!(error.contains("did you mean `om_addresses`?"), "{error}");
    }

    #[test]
    fn silence_is_told_at_once_and_as_such() {
        let error = block_on(probe("OM", &["127.0.0.1:1".into()])).unwrap_err();
        assert!(error.to_string().contains("cannot reach the OM at 127.0.0.1:1"), "{error}");
        assert_eq!(error.downcast::<Error>().unwrap().code, ErrorCode::Unavailable);
    }
}
