//! Everything before the first role starts: whose the folder is, whether there is room, which ports, and what is written.
//!
//! ORDER: all that can be refused is refused before anything is written to a folder that is not ours yet; a running cluster
//! is recognised by its lock before its own ports are found in use.

use std::net::{SocketAddr, ToSocketAddrs};

use ozone_common::config::{Sources, parse};
use ozone_common::env::Env;
use ozone_common::id::ClusterId;
use ozone_common::peer::{ClusterSecret, load_secret, save_secret};

use crate::home::{Found, Home, Lock};
use crate::ports::{Held, Purpose, Wanted, reserve};
use crate::role::Role;
use crate::settings::Settings;
use crate::user::invoking_user;
use crate::{Error, Spec};

const SETTINGS_HEAD: &str = "\
# Settings of this cluster as its last start used them; changes made here count from the next start on.
# The environment (OZONE__SECTION__KEY) and flags win over this file. Folders are set by `ozone dev` itself.

";

/// A cluster that may start.
pub(crate) struct Prepared {
    pub home: Home,
    pub settings: Settings,
    pub secret: ClusterSecret,
    pub lock: Lock,
    /// Until the roles listen.
    pub held: Vec<Held>,
}

pub(crate) fn prepare(spec: &Spec, env: &Env) -> Result<Prepared, Error> {
    let (home, found) = Home::look(&spec.data, env)?;
    let lock = match found {
        Found::Cluster => Some(home.lock()?),
        Found::Nothing => None,
    };
    home.check_space(found)?;
    let file = Some(home.settings()).filter(|path| env.disk.exists(path));
    let known = file.is_some();
    let mut settings = Settings::load(&Sources { flags: spec.set.clone(), ..Sources::of_process(file) })?;
    settle(&mut settings, spec, &home, known)?;
    let held = reserve_ports(&mut settings, spec, known, env)?;
    settings.validate()?;

    let lock = match lock {
        Some(lock) => lock,
        None => {
            home.claim()?;
            home.lock()?
        }
    };
    env.disk.create_dir_all(&home.log()).map_err(Error::io("make", &home.log()))?;
    let secret = secret(&home, env)?;
    save_settings(&home, &settings)?;
    Ok(Prepared { home, settings, secret, lock, held })
}

/// What follows from the folder and the flags, ports apart. `known` says that the settings are those of an earlier start.
fn settle(settings: &mut Settings, spec: &Spec, home: &Home, known: bool) -> Result<(), Error> {
    if let Some(datanodes) = spec.datanodes {
        settings.dev.datanodes = datanodes;
    }
    // However the number was given: each datanode that there was has a remembered address.
    let (wanted, before) = (settings.dev.datanodes, settings.dev.datanode_data_binds.len());
    if (wanted as usize) < before {
        return Err(Error::Settings(format!(
            "this cluster has {before} datanodes, which hold its data: it cannot start with {wanted}"
        )));
    }
    settings.validate()?;
    if !known {
        let user = invoking_user();
        if !settings.om.admins.contains(&user) {
            settings.om.admins.push(user);
        }
    }
    settings.cluster.secret_file = home.secret();
    settings.om.data = home.file(&Role::Om.to_string());
    settings.scm.data = home.file(&Role::Scm.to_string());
    settings.datanode.data = home.file(&Role::Datanode(1).to_string());
    settings.datanode.volumes.clear();
    Ok(())
}

/// Chooses every port and holds it. A port is the one that a flag names, else the one of the last start; at a first start
/// the S3 gateway's is the well-known one, and the others' are where they are free.
fn reserve_ports(settings: &mut Settings, spec: &Spec, known: bool, env: &Env) -> Result<Vec<Held>, Error> {
    let mut held = Vec::new();
    let mut take = |bind: &mut String, asked: Option<u16>, strict: bool, what: String, flag: &'static str| {
        let address = resolve(bind)?;
        let wanted = match (asked, address.port()) {
            (Some(0), _) | (None, 0) => Wanted::Any,
            (Some(port), _) => Wanted::Exactly(port),
            (None, port) if strict || known => Wanted::Exactly(port),
            (None, port) => Wanted::Preferably(port),
        };
        let (address, hold) = reserve(address, wanted, &Purpose { what, flag }, &*env.rng)?;
        *bind = address.to_string();
        held.push(hold);
        Ok::<_, Error>(())
    };
    let ports = &spec.ports;
    take(&mut settings.s3.bind, ports.s3, true, "the S3 gateway".into(), "--s3-port")?;
    take(&mut settings.s3.http_bind, ports.s3_http, false, "the S3 gateway's status".into(), "--s3-http-port")?;
    take(&mut settings.om.rpc_bind, ports.om, false, "the OM".into(), "--om-port")?;
    take(&mut settings.om.http_bind, ports.om_http, false, "the OM's status".into(), "--om-http-port")?;
    take(&mut settings.scm.rpc_bind, ports.scm, false, "the SCM".into(), "--scm-port")?;
    take(&mut settings.scm.http_bind, ports.scm_http, false, "the SCM's status".into(), "--scm-http-port")?;

    let count = settings.dev.datanodes as usize;
    let (data, http) = (resolve(&settings.datanode.data_bind)?, resolve(&settings.datanode.http_bind)?);
    for (binds, first, asked, what, flag) in [
        (&mut settings.dev.datanode_data_binds, data, ports.datanode, "", "--datanode-port"),
        (&mut settings.dev.datanode_http_binds, http, ports.datanode_http, "'s status", "--datanode-http-port"),
    ] {
        for n in 0..count {
            // With one port asked for, each datanode takes the next one. A datanode that is new gets any.
            let asked = match asked {
                Some(port) if port > 0 => Some(u16::try_from(usize::from(port) + n).map_err(|_| {
                    Error::Settings(format!("{flag} {port}: ports of {count} datanodes would go beyond 65535"))
                })?),
                other => other,
            };
            if n >= binds.len() {
                let port = if n == 0 && !known { first.port() } else { 0 };
                binds.push(SocketAddr::new(first.ip(), port).to_string());
            }
            take(&mut binds[n], asked, false, format!("datanode {}{what}", n + 1), flag)?;
        }
    }
    settings.datanode.data_bind = settings.dev.datanode_data_binds[0].clone();
    settings.datanode.http_bind = settings.dev.datanode_http_binds[0].clone();
    settings.om.scm_addresses = vec![settings.scm.rpc_bind.clone()];
    settings.datanode.scm_addresses = vec![settings.scm.rpc_bind.clone()];
    settings.client.om_addresses = vec![settings.om.rpc_bind.clone()];
    settings.client.scm_addresses = vec![settings.scm.rpc_bind.clone()];
    settings.s3.om_addresses = vec![settings.om.rpc_bind.clone()];
    Ok(held)
}

fn resolve(bind: &str) -> Result<SocketAddr, Error> {
    let mut addresses = bind
        .to_socket_addrs()
        .map_err(|error| Error::Settings(format!("listen address `{bind}` (host:port is needed): {error}")))?;
    addresses.next().ok_or_else(|| Error::Settings(format!("listen address `{bind}` names no address")))
}

/// The cluster's secret; made where there is no data yet that could belong to another one.
fn secret(home: &Home, env: &Env) -> Result<ClusterSecret, Error> {
    let path = home.secret();
    if env.disk.exists(&path) {
        return Ok(load_secret(&path)?);
    }
    if let Some(role) = Role::all(1).find(|role| env.disk.exists(&home.file(&role.to_string()))) {
        return Err(Error::Settings(format!(
            "the secret file `{}` is gone, and the data of {role} belongs to the cluster it names: put it back",
            path.display()
        )));
    }
    let secret = new_secret(env);
    save_secret(&path, &secret)?;
    Ok(secret)
}

/// Identity and secret of a new cluster.
pub fn new_secret(env: &Env) -> ClusterSecret {
    let mut bytes = [0; 32];
    env.rng.fill(&mut bytes);
    ClusterSecret::new(ClusterId::random(&*env.rng), bytes)
}

/// Writes the settings where they differ from what the file says, so that a person's comments stay as long as they can.
fn save_settings(home: &Home, settings: &Settings) -> Result<(), Error> {
    let path = home.settings();
    if home.disk().exists(&path) {
        let text = home.disk().read(&path).map_err(Error::io("read", &path))?;
        if parse::<Settings>(&path, &String::from_utf8_lossy(&text))? == *settings {
            return Ok(());
        }
    }
    let text =
        toml::to_string(settings).map_err(|error| Error::Settings(format!("settings have no text form: {error}")))?;
    let text = format!("{SETTINGS_HEAD}{text}");
    home.disk().write_atomic(&path, text.as_bytes()).map_err(Error::io("write", &path))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::PathBuf;

    use super::*;
    use crate::Ports;

    fn spec(data: PathBuf) -> Spec {
        Spec { data, ports: Ports::ANY, ..Spec::default() }
    }

    fn refused(spec: &Spec) -> String {
        let message = prepare(spec, &Env::system()).err().expect("it is refused").to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    }

    #[tokio::test]
    async fn a_second_start_finds_what_the_first_one_chose() {
        let top = tempfile::tempdir().unwrap();
        let data = top.path().join("ozone");
        let env = Env::system();
        let first = prepare(
            &Spec { datanodes: Some(2), set: vec![("scm.stale_after".into(), "7s".into())], ..spec(data.clone()) },
            &env,
        )
        .unwrap();
        assert_eq!(first.settings.dev.datanode_data_binds.len(), 2);
        assert!(first.settings.om.admins.contains(&invoking_user()));
        let (chosen, cluster) = (first.settings.clone(), first.secret.cluster);
        assert!(refused(&spec(data.clone())).contains("runs already"));
        drop(first);

        let again = || prepare(&Spec { data: data.clone(), ..Spec::default() }, &env);
        let text = std::fs::read_to_string(data.join("ozone.toml")).unwrap();
        let second = again().unwrap();
        assert_eq!((&second.settings, second.secret.cluster), (&chosen, cluster));
        assert_eq!(second.settings.scm.stale_after.as_millis(), 7000);
        assert_eq!(std::fs::read_to_string(data.join("ozone.toml")).unwrap(), text, "not written anew");
        drop(second);

        // More datanodes keep the ports of those that were there; fewer would lose their data.
        let third = prepare(&Spec { data: data.clone(), datanodes: Some(3), ..Spec::default() }, &env).unwrap();
        assert_eq!(third.settings.dev.datanode_data_binds[..2], chosen.dev.datanode_data_binds[..]);
        assert_eq!(third.settings.dev.datanode_data_binds.len(), 3);
        drop(third);
        let fewer = vec![("dev.datanodes".to_owned(), "1".to_owned())];
        for fewer in [Spec { datanodes: Some(1), ..spec(data.clone()) }, Spec { set: fewer, ..spec(data.clone()) }] {
            assert!(refused(&fewer).contains("has 3 datanodes"));
        }

        // Another process took a port in between.
        let squatter = TcpListener::bind(chosen.om.rpc_bind.as_str()).unwrap();
        let message = refused(&Spec { data: data.clone(), ..Spec::default() });
        assert!(message.contains("(the OM) is in use") && message.contains("--om-port"), "{message}");
        drop(squatter);
        again().unwrap();

        std::fs::File::create(data.join("om")).unwrap();
        env.disk.rename(&data.join("cluster.secret"), &data.join("elsewhere")).unwrap();
        assert!(refused(&Spec { data: data.clone(), ..Spec::default() }).contains("is gone"));
    }

    #[tokio::test]
    async fn what_is_refused_at_a_first_start_leaves_no_folder() {
        let top = tempfile::tempdir().unwrap();
        let data = top.path().join("ozone");
        let squatter = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = squatter.local_addr().unwrap().port();
        let ports = Ports { s3: Some(port), ..Ports::ANY };
        let set = |name: &str, value: &str| Spec { set: vec![(name.into(), value.into())], ..spec(data.clone()) };
        for (spec, message) in [
            (Spec { ports, ..spec(data.clone()) }, format!("port {port} (the S3 gateway) is in use")),
            (Spec { datanodes: Some(65), ..spec(data.clone()) }, "dev.datanodes: 1 to 64".into()),
            (
                Spec { ports: Ports { datanode: Some(65534), ..Ports::ANY }, ..spec(data.clone()) },
                "beyond 65535".into(),
            ),
            (set("om.grant_lif", "1s"), "did you mean `grant_life`?".into()),
            (set("scm.stale_after", "1s"), "stale_after must be".into()),
            (set("s3.bind", "nonsense"), "host:port is needed".into()),
        ] {
            let told = refused(&spec);
            assert!(told.contains(&message), "{told}");
            assert!(!data.exists(), "{message}");
        }
    }
}
