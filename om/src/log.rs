//! What the service needs of the replicated log, so that it can be tested without one.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::Error;
use ozone_common::id::ClientId;
use ozone_kvstore::Store;

use crate::core::command::Command;

/// Names a call for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// One incarnation of the caller's process.
    pub client: ClientId,
    /// The call's number in it.
    pub sequence: u64,
    /// Answers to calls below may be forgotten.
    pub lowest_unanswered: u64,
}

/// How the group stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupState {
    /// Current term.
    pub term: u64,
    /// Index of the last applied entry.
    pub applied: u64,
    /// Whether this member leads.
    pub leader: bool,
    /// Voting members.
    pub members: u32,
}

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
