//! Blocks outside the namespace: ranges fetched ahead from the SCM, where containers are, tokens for them.

pub mod grant_pool;
pub mod location_cache;
pub mod scm_client;
pub mod tokens;
