//! The settings file `ozone.toml`: a section per role, and what they share.

use std::path::{Path, PathBuf};

use ozone_client::Tuning;
use ozone_common::config::{SecurityConfig, Sources, load};
use ozone_common::telemetry::TelemetryConfig;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::role::Role;

/// LIMIT: datanodes of a cluster on one machine.
pub const DATANODES_MAX: u32 = 64;

/// A whole settings file. A role reads its own section and the shared ones; the others are checked for slips all the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Which cluster this is.
    pub cluster: ClusterConfig,
    /// Who may connect from where.
    pub security: SecurityConfig,
    /// Logs and audit trail.
    pub telemetry: TelemetryConfig,
    /// The key-space manager.
    pub om: ozone_om::Config,
    /// The container manager.
    pub scm: ozone_scm::Config,
    /// A datanode.
    pub datanode: ozone_datanode::Config,
    /// The S3 gateway.
    pub s3: ozone_s3_gateway::Config,
    /// How tools reach the cluster.
    pub client: ClientConfig,
    /// What `ozone dev` remembers; roles pass it over.
    pub dev: DevConfig,
}

/// The section `cluster`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// The file with the cluster's identity and secret, the same on every machine of the cluster.
    pub secret_file: PathBuf,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self { secret_file: "cluster.secret".into() }
    }
}

/// The section `client`: how tools reach the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientConfig {
    /// Members of the key-space manager.
    pub om_addresses: Vec<String>,
    /// Members of the container manager.
    pub scm_addresses: Vec<String>,
    /// Sizes and times of the data path.
    pub tuning: Tuning,
}

impl Default for ClientConfig {
    fn default() -> Self {
        let (om_addresses, scm_addresses) = (vec!["127.0.0.1:9862".into()], vec!["127.0.0.1:9860".into()]);
        Self { om_addresses, scm_addresses, tuning: Tuning::default() }
    }
}

/// The section `dev`: the datanodes of a cluster on one machine, which differ in addresses only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DevConfig {
    /// How many there are.
    pub datanodes: u32,
    /// `datanode.data_bind` of each.
    pub datanode_data_binds: Vec<String>,
    /// `datanode.http_bind` of each.
    pub datanode_http_binds: Vec<String>,
}

impl Default for DevConfig {
    fn default() -> Self {
        Self { datanodes: 3, datanode_data_binds: Vec::new(), datanode_http_binds: Vec::new() }
    }
}

impl Settings {
    /// Reads defaults, file, environment and flags, in this order, and checks the result. Relative paths are those of the file's folder.
    ///
    /// # Errors
    /// One line that names the setting, where it stands, and what would be right.
    pub fn load(sources: &Sources) -> Result<Self, Error> {
        let mut settings: Self = load(sources)?;
        let folder = sources.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let folder = std::path::absolute(folder).or_else(|_| std::env::current_dir()).unwrap_or_default();
        for path in [
            &mut settings.cluster.secret_file,
            &mut settings.om.data,
            &mut settings.scm.data,
            &mut settings.datanode.data,
        ]
        .into_iter()
        .chain(&mut settings.datanode.volumes)
        .chain(&mut settings.telemetry.log_file)
        .chain(&mut settings.telemetry.audit_file)
        {
            *path = folder.join(&*path);
        }
        let secure = settings.security.enabled;
        settings.om.security_enabled = secure;
        settings.scm.security_enabled = secure;
        settings.datanode.security_enabled = secure;
        settings.s3.security_enabled = secure;
        settings.validate()?;
        Ok(settings)
    }

    /// Checks every section.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        let wrong = |error: ozone_common::Error| Error::Settings(error.message.to_string());
        self.om.validate().map_err(wrong)?;
        self.scm.validate().map_err(wrong)?;
        self.datanode.validate().map_err(wrong)?;
        self.s3.validate().map_err(wrong)?;
        if !(1..=DATANODES_MAX).contains(&self.dev.datanodes) {
            return Err(Error::Settings(format!("dev.datanodes: 1 to {DATANODES_MAX} are possible")));
        }
        Ok(())
    }

    /// The settings of one datanode of a cluster on one machine whose folder is `home`.
    pub(crate) fn datanode(&self, n: u32, home: &Path) -> ozone_datanode::Config {
        let nth =
            |binds: &[String], default: &str| binds.get(n as usize - 1).cloned().unwrap_or_else(|| default.to_owned());
        ozone_datanode::Config {
            data: home.join(Role::Datanode(n).to_string()),
            data_bind: nth(&self.dev.datanode_data_binds, &self.datanode.data_bind),
            http_bind: nth(&self.dev.datanode_http_binds, &self.datanode.http_bind),
            ..self.datanode.clone()
        }
    }

    /// Where a role of a cluster on one machine serves its clients, and its status.
    pub fn addresses(&self, role: Role) -> (String, String) {
        match role {
            Role::Om => (self.om.rpc_bind.clone(), self.om.http_bind.clone()),
            Role::Scm => (self.scm.rpc_bind.clone(), self.scm.http_bind.clone()),
            Role::Datanode(n) => {
                let datanode = self.datanode(n, Path::new(""));
                (datanode.data_bind, datanode.http_bind)
            }
            Role::S3g => (self.s3.bind.clone(), self.s3.http_bind.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_reads_back() {
        let settings = Settings::default();
        settings.validate().unwrap();
        let text = toml::to_string(&settings).unwrap();
        assert_eq!(ozone_common::config::parse::<Settings>(Path::new("x"), &text).unwrap(), settings);
    }

    #[test]
    fn paths_are_those_of_the_files_folder_and_security_is_one_switch() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ozone.toml");
        let text = "[security]\nenabled = true\n[om]\ndata = '/elsewhere/om'\n[telemetry]\nlog_file = 'x.log'";
        std::io::Write::write_all(&mut std::fs::File::create(&file).unwrap(), text.as_bytes()).unwrap();
        let settings = Settings::load(&Sources { file: Some(file), ..Sources::default() }).unwrap();
        assert_eq!(settings.om.data, Path::new("/elsewhere/om"));
        assert_eq!(settings.scm.data, folder.path().join("scm"));
        assert_eq!(settings.cluster.secret_file, folder.path().join("cluster.secret"));
        assert_eq!(settings.telemetry.log_file, Some(folder.path().join("x.log")));
        assert!(settings.om.security_enabled && settings.datanode.security_enabled && settings.s3.security_enabled);
    }
}
