//! What all requests share.

use std::sync::Arc;

use ozone_client::Client;
use ozone_common::env::Env;
use ring::hmac;

use crate::config::Config;
use crate::memory::Memory;

/// The gateway's state, but for its listeners.
pub(crate) struct Gateway {
    /// The cluster.
    pub client: Client,
    /// Clock, randomness, disk.
    pub env: Env,
    /// The settings.
    pub config: Config,
    /// The bound on bodies under way.
    pub memory: Memory,
    /// With which continuation tokens are signed, so that garbage is told from them. The same on every gateway of the cluster.
    pub token_key: hmac::Key,
}

impl Gateway {
    /// Puts it together.
    pub fn new(client: Client, env: Env, config: Config, token_key: [u8; 32]) -> Arc<Self> {
        Arc::new(Self {
            memory: Memory::new(config.memory_max, config.memory_wait.duration()),
            token_key: hmac::Key::new(hmac::HMAC_SHA256, &token_key),
            client,
            env,
            config,
        })
    }
}
