//! What a client is told: where the cluster is, as whom to speak, and tuning.

use ozone_common::Error;
use ozone_common::config::{ByteSize, TimeSpan};
use ozone_common::limits::{BLOCK_LENGTH_MAX, BYTES_PER_CHECKSUM, FRAME_PAYLOAD_MAX};
use ozone_common::peer::ClusterSecret;
use serde::{Deserialize, Serialize};

/// As whom the client speaks.
#[derive(Clone, Debug)]
pub enum Identity {
    /// A user's program.
    User(String),
    /// A gateway, which acts for users that it authenticated.
    Gateway(ClusterSecret),
}

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct Config {
    /// Members of the key-space manager, `host:port`.
    pub om_addresses: Vec<String>,
    /// Members of the container manager; only [`crate::scm`] needs them.
    pub scm_addresses: Vec<String>,
    /// As whom.
    pub identity: Identity,
    /// Sizes and times.
    pub tuning: Tuning,
}

impl Config {
    /// A configuration with the default tuning.
    pub fn new(om_addresses: Vec<String>, identity: Identity) -> Self {
        Self { om_addresses, scm_addresses: Vec::new(), identity, tuning: Tuning::default() }
    }
}

/// Sizes and times of the data path; the defaults serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// Bytes of a block; a key of more has several.
    pub block_size: ByteSize,
    /// Bytes of a chunk on its way to the datanodes.
    pub chunk_size: ByteSize,
    /// Bytes that one read asks a datanode for.
    pub read_size: ByteSize,
    /// Reads in flight per reader: it holds at most so many times `read_size`.
    pub prefetch: usize,
    /// Least time a reader waits for a datanode before it asks a second one too,
    pub hedge_min: TimeSpan,
    /// and most.
    pub hedge_max: TimeSpan,
    /// How long a replica may take longer than the first one to take a small block or a chunk,
    pub late_replica: TimeSpan,
    /// and to make a large block durable.
    pub late_finish: TimeSpan,
    /// Bound of every single step of a stream; a stream as a whole lasts as long as its caller keeps it going.
    pub step_timeout: TimeSpan,
    /// How long writers avoid a datanode that failed them.
    pub exclude_for: TimeSpan,
    /// Most block ids held ahead for small blocks.
    pub lease_blocks_max: u32,
    /// Connecting to a datanode or a manager.
    pub connect_timeout: TimeSpan,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            block_size: ByteSize(BLOCK_LENGTH_MAX),
            chunk_size: ByteSize::mib(1),
            read_size: ByteSize::mib(4),
            prefetch: 2,
            hedge_min: TimeSpan::millis(30),
            hedge_max: TimeSpan::secs(1),
            late_replica: TimeSpan::secs(1),
            late_finish: TimeSpan::secs(10),
            step_timeout: TimeSpan::secs(30),
            exclude_for: TimeSpan::secs(30),
            lease_blocks_max: 512,
            connect_timeout: TimeSpan::secs(2),
        }
    }
}

impl Tuning {
    /// Checks the settings as a whole.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting and what would be right.
    pub fn validate(&self) -> Result<(), Error> {
        let window = BYTES_PER_CHECKSUM as u64;
        let chunk = self.chunk_size.get();
        if chunk == 0 || chunk > FRAME_PAYLOAD_MAX as u64 || !chunk.is_multiple_of(window) {
            return Err(Error::invalid("chunk_size: a multiple of 16 KiB from 16 KiB to 4 MiB is needed"));
        }
        let read = self.read_size.get();
        if read == 0 || read > 64 << 20 || !read.is_multiple_of(window) {
            return Err(Error::invalid("read_size: a multiple of 16 KiB from 16 KiB to 64 MiB is needed"));
        }
        let block = self.block_size.get();
        if block < chunk || block > BLOCK_LENGTH_MAX || !block.is_multiple_of(chunk) {
            return Err(Error::invalid("block_size: a multiple of chunk_size up to 256 MiB is needed"));
        }
        if self.prefetch == 0 || self.prefetch > 64 {
            return Err(Error::invalid("prefetch: 1 to 64 are possible"));
        }
        if self.lease_blocks_max == 0 || self.lease_blocks_max > 1024 {
            return Err(Error::invalid("lease_blocks_max: 1 to 1024 are possible"));
        }
        if self.hedge_min > self.hedge_max {
            return Err(Error::invalid("hedge_min: at most hedge_max"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_each_bound_is_checked() {
        Tuning::default().validate().unwrap();
        let broken: [fn(&mut Tuning); 7] = [
            |t| t.chunk_size = ByteSize(1000),
            |t| t.chunk_size = ByteSize::mib(5),
            |t| t.read_size = ByteSize(0),
            |t| t.block_size = ByteSize::mib(257),
            |t| t.prefetch = 0,
            |t| t.lease_blocks_max = 1025,
            |t| t.hedge_min = TimeSpan::secs(2),
        ];
        for change in broken {
            let mut tuning = Tuning::default();
            change(&mut tuning);
            assert!(tuning.validate().is_err(), "{tuning:?}");
        }
    }
}
