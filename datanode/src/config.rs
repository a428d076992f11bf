//! Settings of a datanode; the default is a working development node.

use std::path::{Path, PathBuf};

use ozone_common::config::ByteSize;
use ozone_common::limits::FRAME_PAYLOAD_MAX;
use ozone_common::{Error, Result};
use serde::{Deserialize, Serialize};

/// LIMIT: disk volumes of one datanode.
const VOLUMES_MAX: usize = 64;
/// LIMIT: length of the name under which it is reached.
const HOST_MAX: usize = 253;
/// Bytes of a block on their way that a writer needs to keep a disk busy: two whole frames.
const WINDOW_MIN: u64 = 2 * FRAME_PAYLOAD_MAX as u64;

/// The section `datanode`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients read and write blocks; port 0 = any free one.
    pub data_bind: String,
    /// Where metrics and health are served.
    pub http_bind: String,
    /// Name or address under which clients reach it; empty = the address it listens on.
    pub host: String,
    /// This role's own folder: identity and the SCM's term.
    pub data: PathBuf,
    /// Folders of the disk volumes, one a disk; none = `volume` in `data`.
    pub volumes: Vec<PathBuf>,
    /// The container manager's members.
    pub scm_addresses: Vec<String>,
    /// Space of each disk volume that stays free.
    pub reserved: ByteSize,
    /// Connections of clients.
    pub connections: usize,
    /// Blocks that one connection may have open.
    pub open_blocks_per_connection: usize,
    /// Bytes of one connection that may be on their way into the store.
    pub handling_per_connection: ByteSize,
    /// Bytes of answers that may wait for one connection's reader.
    pub queued_per_connection: ByteSize,
    /// Bytes of open blocks that may be on their way into the store, all connections together.
    pub open_blocks_memory: ByteSize,
    /// Whether connections are authenticated in full; without it only loopback addresses are bound.
    #[serde(skip)] // `security.enabled`, which all roles share
    pub security_enabled: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_bind: "127.0.0.1:9859".into(),
            http_bind: "127.0.0.1:9882".into(),
            host: String::new(),
            data: PathBuf::from("datanode"),
            volumes: Vec::new(),
            scm_addresses: vec!["127.0.0.1:9860".into()],
            reserved: ByteSize::mib(64),
            connections: 4096,
            open_blocks_per_connection: 64,
            handling_per_connection: ByteSize::mib(32),
            queued_per_connection: ByteSize::mib(8),
            open_blocks_memory: ByteSize::mib(128),
            security_enabled: false,
        }
    }
}

impl Config {
    /// Checks the settings as a whole.
    ///
    /// # Errors
    /// `InvalidArgument`: one line that names the setting and what would be right.
    pub fn validate(&self) -> Result<()> {
        let check =
            |holds: bool, text: &str| if holds { Ok(()) } else { Err(Error::invalid(format!("datanode.{text}"))) };
        check(!self.scm_addresses.is_empty(), "scm_addresses: at least one address is needed")?;
        check(self.host.len() <= HOST_MAX, "host: a name has at most 253 bytes")?;
        check(self.volumes.len() <= VOLUMES_MAX, "volumes: at most 64 are possible")?;
        let mut sorted: Vec<&Path> = self.volumes.iter().map(PathBuf::as_path).collect();
        sorted.sort_unstable();
        check(sorted.windows(2).all(|pair| pair[0] != pair[1]), "volumes: each folder can be named once only")?;
        check(self.volumes.iter().all(|path| *path != self.data), "volumes: `data` itself cannot be a disk volume")?;
        let printable = |path: &PathBuf| path.to_str().is_some_and(|text| !text.chars().any(char::is_control));
        check(self.volumes.iter().all(printable), "volumes: a folder's name must be UTF-8 without control characters")?;
        check(self.connections > 0, "connections: at least 1 is needed")?;
        check((1..=4096).contains(&self.open_blocks_per_connection), "open_blocks_per_connection: 1 to 4096")?;
        check(self.handling_per_connection.get() >= WINDOW_MIN, "handling_per_connection: at least 8MiB are needed")?;
        check(self.queued_per_connection.get() >= 64 << 10, "queued_per_connection: at least 64KiB are needed")?;
        check(self.open_blocks_memory.get() >= WINDOW_MIN, "open_blocks_memory: at least 8MiB are needed")
    }

    /// Folders of the disk volumes.
    pub(crate) fn volume_folders(&self) -> Vec<PathBuf> {
        if self.volumes.is_empty() { vec![self.data.join("volume")] } else { self.volumes.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_each_bound_is_checked() {
        Config::default().validate().unwrap();
        let broken: [fn(&mut Config); 10] = [
            |c| c.scm_addresses.clear(),
            |c| c.host = "x".repeat(254),
            |c| c.volumes = vec!["/a".into(), "/b".into(), "/a".into()],
            |c| c.volumes = vec![c.data.clone()],
            |c| c.volumes = vec!["/a\nvolume".into()],
            |c| c.volumes = (0..65).map(|n| PathBuf::from(format!("/{n}"))).collect(),
            |c| c.open_blocks_per_connection = 0,
            |c| c.handling_per_connection = ByteSize::mib(4),
            |c| c.queued_per_connection = ByteSize::kib(1),
            |c| c.open_blocks_memory = ByteSize::mib(4),
        ];
        for change in broken {
            let mut config = Config::default();
            change(&mut config);
            assert!(config.validate().unwrap_err().message.starts_with("datanode."), "{config:?}");
        }
    }

    #[test]
    fn without_volumes_there_is_one_in_the_data_folder() {
        let config = Config { data: "/o/dn1".into(), ..Config::default() };
        assert_eq!(config.volume_folders(), [PathBuf::from("/o/dn1/volume")]);
        let config = Config { volumes: vec!["/disk1".into(), "/disk2".into()], ..config };
        assert_eq!(config.volume_folders().len(), 2);
    }
}
