//! Settings of the key-space manager; the default is a working development node.

use std::path::PathBuf;

use ozone_common::Error;
use ozone_common::config::{ByteSize, TimeSpan};
use ozone_common::limits::INLINE_LENGTH_MAX;
use serde::{Deserialize, Serialize};

/// How much earlier than a grant its tokens end: clocks of datanodes may be behind by so much.
pub const TOKEN_SKEW_MS: u64 = 30_000;

/// The section `om`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients and gateways call; port 0 = any free one.
    pub rpc_bind: String,
    /// Where metrics and health are served.
    pub http_bind: String,
    /// This role's own folder.
    pub data: PathBuf,
    /// The container manager's members.
    pub scm_addresses: Vec<String>,
    /// Users who may do everything.
    pub admins: Vec<String>,
    /// How long a grant of blocks lives unless it is renewed.
    pub grant_life: TimeSpan,
    /// Block ids fetched from the SCM ahead, for small blocks.
    pub pool_small_blocks: u32,
    /// The same for blocks of more than 1 MiB.
    pub pool_large_blocks: u32,
    /// How long ids fetched ahead are good.
    pub pool_life: TimeSpan,
    /// How long a token for reading lives; blocks are freed no earlier than that after their delete.
    pub read_token_life: TimeSpan,
    /// How long a container's locations are taken as known.
    pub location_life: TimeSpan,
    /// Largest value that travels inside a commit, where a bucket may have such.
    pub inline_max: ByteSize,
    /// Memory for the store's block cache.
    pub store_cache: ByteSize,
    /// Memory for rows not yet written to files.
    pub store_write_buffer: ByteSize,
    /// Whether connections are authenticated in full; without it only loopback addresses are bound.
    #[serde(skip)] // `security.enabled`, which all roles share
    pub security_enabled: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rpc_bind: "127.0.0.1:9862".into(),
            http_bind: "127.0.0.1:9874".into(),
            data: PathBuf::from("om"),
            scm_addresses: vec!["127.0.0.1:9860".into()],
            admins: vec!["root".into()],
            grant_life: TimeSpan::mins(10),
            pool_small_blocks: 4096,
            pool_large_blocks: 16,
            pool_life: TimeSpan::mins(5),
            read_token_life: TimeSpan::secs(60),
            location_life: TimeSpan::secs(60),
            inline_max: ByteSize::kib(4),
            store_cache: ByteSize::mib(64),
            store_write_buffer: ByteSize::mib(32),
            security_enabled: false,
        }
    }
}

impl Config {
    /// Checks the settings as a whole.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting and what would be right.
    pub fn validate(&self) -> Result<(), Error> {
        if self.grant_life.as_millis() < 2 * TOKEN_SKEW_MS {
            return Err(Error::invalid("om.grant_life: at least 60s are needed, since tokens end 30s earlier"));
        }
        if self.read_token_life.as_millis() < 1000 {
            return Err(Error::invalid("om.read_token_life: at least 1s is needed"));
        }
        if self.inline_max.get() > INLINE_LENGTH_MAX as u64 {
            return Err(Error::invalid(format!("om.inline_max: at most {INLINE_LENGTH_MAX} bytes are possible")));
        }
        if self.pool_small_blocks == 0 || self.pool_large_blocks == 0 {
            return Err(Error::invalid("om.pool_small_blocks and om.pool_large_blocks: at least 1 is needed"));
        }
        if self.scm_addresses.is_empty() {
            return Err(Error::invalid("om.scm_addresses: at least one address is needed"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_each_bound_is_checked() {
        assert!(Config::default().validate().is_ok());
        let broken: [fn(&mut Config); 5] = [
            |config| config.grant_life = TimeSpan::secs(59),
            |config| config.read_token_life = TimeSpan::millis(999),
            |config| config.inline_max = ByteSize(INLINE_LENGTH_MAX as u64 + 1),
            |config| config.pool_large_blocks = 0,
            |config| config.scm_addresses.clear(),
        ];
        for change in broken {
            let mut config = Config::default();
            change(&mut config);
            assert!(config.validate().is_err(), "{config:?}");
        }
    }
}
