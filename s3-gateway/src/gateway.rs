//! What all requests share.

use std::sync::Arc;

use ozone_client::Client;
use ozone_common::env::Env;
use ring::hmac;

use crate::auth::{Gate, Lookup};
use crate::body::Drain;
use crate::config::Config;
use crate::exchange::Ids;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::op::BucketCache;

/// The gateway's state, but for its listeners. `B` is the cluster: tests of operations have one in memory.
pub(crate) struct Gateway<B = Client> {
    /// The cluster.
    pub client: B,
    /// Clock, randomness, disk.
    pub env: Env,
    /// The settings.
    pub config: Config,
    /// The bound on bodies under way.
    pub memory: Memory,
    /// Who may come in.
    pub gate: Gate,
    /// Ids of requests.
    pub ids: Ids,
    /// What is counted.
    pub metrics: Metrics,
    /// Bodies that nobody wants any more.
    pub drain: Drain,
    /// With which continuation tokens are signed, so that garbage is told from them. The same on every gateway of the cluster.
    pub token_key: hmac::Key,
    /// Buckets as writes have to know them.
    pub buckets: BucketCache,
}

impl<B> Gateway<B> {
    /// Puts it together.
    pub fn new(client: B, env: Env, config: Config, lookup: Lookup, token_key: [u8; 32]) -> Arc<Self> {
        let life = config.secret_life.duration();
        Arc::new(Self {
            gate: Gate::new(lookup, env.clock.clone(), config.region.clone(), life),
            ids: Ids::new(&*env.rng),
            metrics: Metrics::new(),
            drain: Drain::default(),
            memory: Memory::new(config.memory_max, config.memory_wait.duration()),
            token_key: hmac::Key::new(hmac::HMAC_SHA256, &token_key),
            buckets: BucketCache::new(env.clock.clone()),
            client,
            env,
            config,
        })
    }
}
