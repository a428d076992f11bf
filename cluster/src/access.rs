//! The last steps of a start: the cluster can take a write, and the user who started it has a key.

use std::path::PathBuf;
use std::time::Duration;

use ozone_client::proto::{om::v1::GetSecret, scm::v1::ListNodes};
use ozone_client::{CallContext, Client, Config, Identity};
use ozone_common::env::Env;
use tokio::time::Instant;

use crate::Error;
use crate::env_file::Access;
use crate::health::{Health, ask};
use crate::home::Home;
use crate::role::Role;
use crate::settings::Settings;
use crate::user::invoking_user;

/// How long a start may take before it is given up; a large log takes a while to replay.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// How long datanodes are waited for when the cluster serves already without all of them.
const ALL_NODES_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// Waits until the managers and the gateway are ready and the datanodes have registered; `alive` tells of a role that ended.
pub(crate) async fn ready(
    home: &Home,
    settings: &Settings,
    env: &Env,
    alive: &mut (dyn FnMut() -> Result<(), Error> + Send),
) -> Result<(), Error> {
    let started = Instant::now();
    for role in [Role::Scm, Role::Om, Role::S3g] {
        let (_, status) = settings.addresses(role);
        loop {
            let health = ask(&status).await;
            alive()?;
            if health == Health::Ready {
                break;
            }
            if started.elapsed() > READY_TIMEOUT {
                let what = format!("{role} {health}");
                return Err(Error::TooLate { what, seconds: READY_TIMEOUT.as_secs(), log: home.log() });
            }
            tokio::time::sleep(POLL).await;
        }
    }
    let client = connect(settings, env)?;
    let scm = client.scm().map_err(|error| Error::role("scm", error))?;
    let wanted = settings.dev.datanodes as usize;
    let nodes_since = Instant::now();
    let healthy = loop {
        let context = CallContext::new("ozone-dev", None, READY_TIMEOUT);
        let nodes = scm.list_nodes(&context, ListNodes {}).await.map_err(|error| Error::role("scm", error))?.nodes;
        alive()?;
        let healthy = nodes.iter().filter(|node| node.health == "HEALTHY").count();
        if healthy >= wanted || nodes_since.elapsed() > ALL_NODES_TIMEOUT {
            break healthy;
        }
        tokio::time::sleep(POLL).await;
    };
    client.shutdown().await;
    if healthy < wanted {
        tracing::warn!(healthy, wanted, "datanodes are missing; the cluster serves without them");
    }
    if healthy == 0 {
        let what = "no datanode registered".to_owned();
        return Err(Error::TooLate { what, seconds: ALL_NODES_TIMEOUT.as_secs(), log: home.log() });
    }
    Ok(())
}

/// Gets the user's access key, making it at the first start, and writes `cluster.env`.
pub(crate) async fn grant(home: &Home, settings: &Settings, env: &Env, pids: String) -> Result<Access, Error> {
    let user = invoking_user();
    let client = connect(settings, env)?;
    let context = CallContext::new("ozone-dev", None, READY_TIMEOUT);
    let secret = client.get_secret(&context, GetSecret { user, create: true }).await;
    client.shutdown().await;
    let secret = secret.map_err(|error| Error::role("om", error))?;
    let access = Access {
        s3_endpoint: format!("http://{}", settings.s3.bind),
        om_address: settings.om.rpc_bind.clone(),
        scm_address: settings.scm.rpc_bind.clone(),
        access_key: secret.access_key,
        secret_key: secret.secret_key,
        region: settings.s3.region.clone(),
        pids,
        data: path_text(home.path().to_owned()),
    };
    access.save(&home.env_file())?;
    Ok(access)
}

/// `Home` takes only paths that are text.
fn path_text(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}

fn connect(settings: &Settings, env: &Env) -> Result<Client, Error> {
    let config = Config {
        scm_addresses: vec![settings.scm.rpc_bind.clone()],
        ..Config::new(vec![settings.om.rpc_bind.clone()], Identity::User(invoking_user()))
    };
    Client::connect(config, env.clone()).map_err(|error| Error::role("client", error))
}
