//! Settings of the SCM.

use std::path::PathBuf;

use ozone_common::config::{ByteSize, TimeSpan};
use ozone_common::{Error, Result};
use serde::{Deserialize, Serialize};

/// Settings of the SCM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Folder of the SCM's state: its identity, log and tables.
    pub data: PathBuf,
    /// Address for the OM, datanodes and admins (gRPC); port 0 = any free one.
    pub rpc_bind: String,
    /// Address of metrics and health.
    pub http_bind: String,
    /// Whether connections are authenticated in full; without it only loopback addresses are bound.
    #[serde(skip)] // `security.enabled`, which all roles share
    pub security_enabled: bool,
    /// Memory for the tables: block cache and write buffers together.
    pub cache: ByteSize,
    /// How often datanodes report.
    pub heartbeat: TimeSpan,
    /// Silence after which nothing new is placed on a datanode.
    pub stale_after: TimeSpan,
    /// Silence after which a datanode's replicas count as lost.
    pub dead_after: TimeSpan,
    /// How long a datanode that a writer reported is avoided while there are others.
    pub suspect_for: TimeSpan,
    /// Size at which a container takes no more blocks.
    pub container_size: ByteSize,
    /// Open containers per replication at least; more where there are more datanodes.
    pub open_containers: usize,
    /// How long blocks handed out may stay unwritten before their container is closed. Longer than the OM's grants live.
    pub spent_close_after: TimeSpan,
    /// Free space that a datanode must have to get a container.
    pub min_free_space: ByteSize,
    /// After a start, how long to wait for as many datanodes as a replication has before opening containers on fewer.
    pub degraded_after: TimeSpan,
    /// Datanodes that must be registered before safe mode ends.
    pub safemode_min_datanodes: usize,
    /// Part of the containers that must have a replica reported before safe mode ends.
    pub safemode_container_threshold: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: PathBuf::from("scm"),
            rpc_bind: "127.0.0.1:9860".into(),
            http_bind: "127.0.0.1:9876".into(),
            security_enabled: false,
            cache: ByteSize::mib(32),
            heartbeat: TimeSpan::secs(1),
            stale_after: TimeSpan::secs(15),
            dead_after: TimeSpan::mins(5),
            suspect_for: TimeSpan::secs(10),
            container_size: ByteSize::gib(5),
            open_containers: 2,
            spent_close_after: TimeSpan::mins(30),
            min_free_space: ByteSize::mib(64),
            degraded_after: TimeSpan::secs(3),
            safemode_min_datanodes: 1,
            safemode_container_threshold: 0.99,
        }
    }
}

impl Config {
    /// Checks settings against each other.
    ///
    /// # Errors
    /// One line that names the setting.
    pub fn validate(&self) -> Result<()> {
        let check = |holds: bool, text: &str| if holds { Ok(()) } else { Err(Error::invalid(format!("scm: {text}"))) };
        check(self.heartbeat.as_millis() > 0, "heartbeat must be more than 0")?;
        check(
            self.stale_after.as_millis() >= 3 * self.heartbeat.as_millis(),
            "stale_after must be at least 3 heartbeats",
        )?;
        check(self.dead_after > self.stale_after, "dead_after must be longer than stale_after")?;
        check(self.container_size.get() >= 1 << 20, "container_size must be at least 1MiB")?;
        check((1..=64).contains(&self.open_containers), "open_containers must be 1 to 64")?;
        check((0.0..=1.0).contains(&self.safemode_container_threshold), "safemode_container_threshold must be 0 to 1")?;
        check(self.cache.get() >= 4 << 20, "cache must be at least 4MiB")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_each_rule_refuses() {
        Config::default().validate().unwrap();
        let broken: [fn(&mut Config); 7] = [
            |c| c.heartbeat = TimeSpan::millis(0),
            |c| c.stale_after = TimeSpan::millis(2_999),
            |c| c.dead_after = c.stale_after,
            |c| c.container_size = ByteSize::kib(1),
            |c| c.open_containers = 0,
            |c| c.safemode_container_threshold = f64::NAN,
            |c| c.cache = ByteSize::kib(1),
        ];
        for change in broken {
            let mut config = Config::default();
            change(&mut config);
            assert!(config.validate().unwrap_err().message.starts_with("scm: "));
        }
    }
}
