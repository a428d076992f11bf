//! Settings of the gateway; the default is a working development node.

use ozone_client::Tuning;
use ozone_common::Error;
use ozone_common::config::{ByteSize, TimeSpan};
use serde::{Deserialize, Serialize};

/// The section `s3`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where S3 is served; port 0 = any free one.
    pub bind: String,
    /// Where metrics and health are served.
    pub http_bind: String,
    /// Domains of virtual-host addressing: `Host: BUCKET.DOMAIN` is the bucket. Path style works in any case.
    pub domains: Vec<String>,
    /// The region that clients must sign for.
    pub region: String,
    /// The key-space manager's members.
    pub om_addresses: Vec<String>,
    /// Connections served at once; more wait to be accepted.
    pub connections_max: usize,
    /// Memory for bodies under way in both directions.
    pub memory_max: ByteSize,
    /// How long a request waits for its part of that memory before it is told to slow down.
    pub memory_wait: TimeSpan,
    /// How long a connection may be idle, or take to send a request's head.
    pub head_timeout: TimeSpan,
    /// How long a client may be silent in the middle of a body, or not take what is sent to it.
    pub body_timeout: TimeSpan,
    /// How long an operation may take, not counting the transfer of its body.
    pub request_timeout: TimeSpan,
    /// How long a secret is taken as known, hence how long one that was revoked still works.
    pub secret_life: TimeSpan,
    /// How long requests under way may take to end when the gateway stops.
    pub drain_timeout: TimeSpan,
    /// Sizes and times of the data path.
    pub client: Tuning,
    /// Whether connections are authenticated in full; without it only loopback addresses are bound.
    #[serde(skip)] // `security.enabled`, which all roles share
    pub security_enabled: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bind: "127.0.0.1:9878".into(),
            http_bind: "127.0.0.1:19878".into(),
            domains: vec!["localhost".into()],
            region: "us-east-1".into(),
            om_addresses: vec!["127.0.0.1:9862".into()],
            connections_max: 4096,
            memory_max: ByteSize::mib(128),
            memory_wait: TimeSpan::secs(10),
            head_timeout: TimeSpan::secs(60),
            body_timeout: TimeSpan::secs(60),
            request_timeout: TimeSpan::secs(30),
            secret_life: TimeSpan::secs(10),
            drain_timeout: TimeSpan::secs(10),
            client: Tuning::default(),
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
        self.client.validate().map_err(|error| error.context("s3.client"))?;
        if self.om_addresses.is_empty() {
            return Err(Error::invalid("s3.om_addresses: at least one address is needed"));
        }
        if self.region.is_empty() || !self.region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(Error::invalid("s3.region: letters, digits and `-` are needed, such as `us-east-1`"));
        }
        for domain in &self.domains {
            let label = |label: &str| {
                !label.is_empty() && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            };
            if !domain.split('.').all(label) {
                return Err(Error::invalid(format!(
                    "s3.domains: `{domain}` is no domain in lower case without a port"
                )));
            }
        }
        if self.connections_max == 0 {
            return Err(Error::invalid("s3.connections_max: at least 1 is needed"));
        }
        if self.memory_max < ByteSize::mib(16) {
            return Err(Error::invalid("s3.memory_max: at least 16MiB are needed, the body of one large object"));
        }
        for (name, span) in [
            ("head_timeout", self.head_timeout),
            ("body_timeout", self.body_timeout),
            ("request_timeout", self.request_timeout),
        ] {
            if span < TimeSpan::secs(1) {
                return Err(Error::invalid(format!("s3.{name}: at least 1s is needed")));
            }
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
        let broken: [fn(&mut Config); 9] = [
            |config| config.om_addresses.clear(),
            |config| config.region = "us east".into(),
            |config| config.region.clear(),
            |config| config.domains = vec!["localhost:9878".into()],
            |config| config.domains = vec!["a..b".into()],
            |config| config.connections_max = 0,
            |config| config.memory_max = ByteSize::mib(1),
            |config| config.head_timeout = TimeSpan::millis(1),
            |config| config.client.prefetch = 0,
        ];
        for change in broken {
            let mut config = Config::default();
            change(&mut config);
            assert!(config.validate().is_err(), "{config:?}");
        }
    }
}
