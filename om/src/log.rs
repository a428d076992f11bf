//! What the service needs of the replicated log, so that it can be tested without one.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::Error;
use ozone_consensus::group::Group;
pub use ozone_consensus::{Call, GroupState};
use ozone_kvstore::Store;

use crate::core::Core;
use crate::core::command::Command;

/// The replicated log with its store.
pub trait Log: Send + Sync + 'static {
    /// Executes a change, once per call; answers after it is durable and applied.
    fn propose(&self, call: Call, command: Command) -> impl Future<Output = Result<Bytes, Error>> + Send;
    /// The same for a background loop.
    fn propose_internal(&self, command: Command) -> impl Future<Output = Result<Bytes, Error>> + Send;
    /// After it the store shows everything answered before it was called.
    fn read_barrier(&self) -> impl Future<Output = Result<(), Error>> + Send;
    /// The applied rows.
    fn store(&self) -> &Arc<dyn Store>;
    /// How the group stands.
    fn state(&self) -> GroupState;
}

impl Log for Group<Core> {
    async fn propose(&self, call: Call, command: Command) -> Result<Bytes, Error> {
        Group::propose(self, Some(call), command).await
    }
    async fn propose_internal(&self, command: Command) -> Result<Bytes, Error> {
        Group::propose_internal(self, command).await
    }
    async fn read_barrier(&self) -> Result<(), Error> {
        Group::read_barrier(self).await
    }
    fn store(&self) -> &Arc<dyn Store> {
        Group::store(self)
    }
    fn state(&self) -> GroupState {
        Group::state(self)
    }
}
