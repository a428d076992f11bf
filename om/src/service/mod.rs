//! The service: a call is decoded, authorised, settled, proposed (a change) or read, and answered.
//!
//! Reads pass a read barrier and then look at the applied rows: they are linearizable and never in the log.

mod bucket;
#[cfg(test)]
mod fuzz_test;
mod grant;
mod key;
mod multipart;
mod secret;
#[cfg(test)]
mod service_test;
mod status;
#[cfg(test)]
mod test_support;

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use ozone_common::env::Env;
use ozone_common::id::ClusterId;
use ozone_common::telemetry::{Outcome, Record, audit};
use ozone_common::token::TokenKey;
use ozone_common::{Error, ErrorCode, RetryClass};
use ozone_kvstore::Read;
use ozone_proto::om::v1::{OmRequest, OmResponse, om_request, om_response};
use ozone_rpc::session::{CallHandler, IncomingCall};
use prost::Message;
use tokio_util::task::TaskTracker;

use crate::blocks::grant_pool::{GrantPool, PoolSettings};
use crate::blocks::location_cache::LocationCache;
use crate::blocks::scm_client::Scm;
use crate::blocks::tokens::TokenMaker;
use crate::config::Config;
use crate::core::command::Command;
use crate::log::{Call, Log};
use crate::metrics::Metrics;
use crate::prepare::action::{self, Action, Resource};
use crate::prepare::authorise::{Identity, authorise};

/// The version of the shard map: one shard, which holds everything.
pub(crate) const SHARD_MAP_VERSION: u64 = 1;

/// The key-space manager, serving.
pub(crate) struct Om<L> {
    pub log: L,
    pub config: Config,
    pub cluster: ClusterId,
    pub env: Env,
    pub scm: Arc<dyn Scm>,
    pub pool: Arc<GrantPool>,
    pub locations: Arc<LocationCache>,
    pub tokens: TokenMaker,
    pub metrics: Metrics,
    pub tasks: TaskTracker,
    writable: status::Writable,
}

/// A call with who makes it.
pub(crate) struct Context<'a> {
    pub call: &'a IncomingCall,
    pub identity: &'a Identity,
}

impl Context<'_> {
    /// Its name in the log.
    pub fn id(&self) -> Call {
        Call {
            client: self.call.peer.client,
            sequence: self.call.sequence,
            lowest_unanswered: self.call.lowest_unanswered,
        }
    }

    /// The owner that a request names, or else the caller.
    pub fn owner(&self, named: String) -> Result<String, Error> {
        if named.len() > crate::core::USER_LENGTH_MAX {
            return Err(Error::invalid(format!("an owner's name of {} bytes", named.len())));
        }
        Ok(if named.is_empty() { self.identity.user.clone() } else { named })
    }
}

impl<L: Log> Om<L> {
    /// Puts the parts together.
    pub fn new(log: L, config: Config, cluster: ClusterId, key: TokenKey, env: Env, scm: Arc<dyn Scm>) -> Self {
        let metrics = Metrics::new();
        let locations = Arc::new(LocationCache::new(
            scm.clone(),
            env.clock.clone(),
            config.location_life.as_millis(),
            metrics.location_misses.clone(),
            metrics.locations.clone(),
        ));
        let settings = PoolSettings {
            small_blocks: config.pool_small_blocks,
            large_blocks: config.pool_large_blocks,
            life_ms: config.pool_life.as_millis(),
        };
        let pool = Arc::new(GrantPool::new(
            scm.clone(),
            locations.clone(),
            env.clock.clone(),
            settings,
            metrics.pool_misses.clone(),
            metrics.pool_blocks.clone(),
        ));
        let tokens = TokenMaker::new(key, config.read_token_life.as_millis());
        Self {
            log,
            cluster,
            env,
            scm,
            pool,
            locations,
            tokens,
            metrics,
            tasks: TaskTracker::new(),
            writable: status::Writable::default(),
            config,
        }
    }

    /// Members of the group, as execute judges inline values by.
    fn members(&self) -> u32 {
        self.log.state().members
    }

    /// Most bytes of an inline value where a bucket may have them.
    fn inline_setting(&self) -> u32 {
        self.config.inline_max.get() as u32
    }

    async fn serve(&self, call: IncomingCall) -> Result<Bytes, Error> {
        let started = self.env.clock.boot();
        let request = OmRequest::decode(call.request.clone())
            .map_err(|error| Error::invalid(format!("the request is malformed: {error}")))?;
        let op = request.op.ok_or_else(|| {
            Error::new(ErrorCode::NotSupported, "the request names no operation that this build knows")
        })?;
        let (action, resource) = action::of(&op);
        let identity = Identity::of(&call, &self.config.admins);
        let result = match check_shard_map(request.shard_map_version) {
            Ok(()) => self.serve_authorised(&call, &identity, action, &resource, op).await,
            Err(error) => Err(error),
        };
        if action.changes() {
            record(&identity, action, &resource, Outcome::from(&result), &call.request_id);
        }
        if let Some(op) = self.metrics.op(action) {
            if result.is_ok() { &op.done } else { &op.failed }.increment(1);
            op.seconds.record(self.env.clock.boot().saturating_sub(started).as_secs_f64());
        }
        if let Err(error) = &result
            && error.code == ErrorCode::Internal
        {
            tracing::error!(%error, op = action.name(), request_id = call.request_id, "a call failed");
        }
        result
    }

    async fn serve_authorised(
        &self,
        call: &IncomingCall,
        identity: &Identity,
        action: Action,
        resource: &Resource,
        op: om_request::Op,
    ) -> Result<Bytes, Error> {
        if let Err(error) = authorise(identity, action, resource) {
            if !action.changes() {
                record(identity, action, resource, Outcome::Failure(&error), &call.request_id);
            }
            return Err(error);
        }
        self.dispatch(&Context { call, identity }, op).await
    }

    async fn dispatch(&self, context: &Context<'_>, op: om_request::Op) -> Result<Bytes, Error> {
        use om_request::Op;
        match op {
            Op::CommitKey(request) => self.commit_key(context, request).await,
            Op::LookupKey(request) => self.lookup_key(request).await,
            Op::ListKeys(request) => self.list_keys(request).await,
            Op::DeleteKey(request) => self.delete_key(context, request).await,
            Op::DeleteKeys(request) => self.delete_keys(context, request).await,
            Op::AcquireGrant(request) => self.acquire_grant(context, request).await,
            Op::RenewGrant(request) => self.renew_grant(context, request).await,
            Op::ReleaseGrant(request) => self.release_grant(context, request).await,
            Op::ReportFailedWrite(request) => self.report_failed_write(context, request).await,
            Op::InitiateUpload(request) => self.initiate_upload(context, request).await,
            Op::CommitPart(request) => self.commit_part(context, request).await,
            Op::ListParts(request) => self.list_parts(request).await,
            Op::ListUploads(request) => self.list_uploads(request).await,
            Op::CompleteUpload(request) => self.complete_upload(context, request).await,
            Op::AbortUpload(request) => self.abort_upload(context, request).await,
            Op::CreateVolume(request) => self.create_volume(context, request).await,
            Op::InfoVolume(request) => self.info_volume(request).await,
            Op::ListVolumes(request) => self.list_volumes(request).await,
            Op::DeleteVolume(request) => self.delete_volume(context, request).await,
            Op::CreateBucket(request) => self.create_bucket(context, request).await,
            Op::InfoBucket(request) => self.info_bucket(request).await,
            Op::ListBuckets(request) => self.list_buckets(request).await,
            Op::DeleteBucket(request) => self.delete_bucket(context, request).await,
            Op::GetSecret(request) => self.get_secret(context, request).await,
            Op::RevokeSecret(request) => self.revoke_secret(context, request).await,
            Op::LookupSecret(request) => self.lookup_secret(request).await,
            Op::Status(_) => self.status().await,
        }
    }

    /// Proposes a change of a call.
    async fn change(&self, context: &Context<'_>, command: Command) -> Result<Bytes, Error> {
        self.log.propose(context.id(), command).await
    }

    /// Reads rows on a thread that may block: for what reads many.
    async fn read_many<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Read) -> Result<T, crate::core::Stop> + Send + 'static,
    ) -> Result<T, Error> {
        self.log.read_barrier().await?;
        let store = self.log.store().clone();
        let page = tokio::task::spawn_blocking(move || {
            // A page shows one moment.
            let snapshot = store.snapshot();
            read(&*snapshot)
        });
        page.await.map_err(|error| Error::internal(format!("a read was interrupted: {error}")))?.map_err(Error::from)
    }
}

impl<L: Log> CallHandler for Om<L> {
    fn call(&self, call: IncomingCall) -> BoxFuture<'_, Result<Bytes, Error>> {
        self.serve(call).boxed()
    }
}

/// An answer, encoded.
fn reply(op: om_response::Op) -> Bytes {
    OmResponse { op: Some(op) }.encode_to_vec().into()
}

/// What the core answered.
fn decode_reply(bytes: Bytes) -> Result<om_response::Op, Error> {
    let reply = OmResponse::decode(bytes).map_err(|error| Error::internal(format!("our own reply: {error}")))?;
    reply.op.ok_or_else(|| Error::internal("our own reply is empty"))
}

fn check_shard_map(version: u64) -> Result<(), Error> {
    if version == 0 || version == SHARD_MAP_VERSION {
        return Ok(());
    }
    let message = format!("shard map version {version} is not current; it is {SHARD_MAP_VERSION}");
    Err(Error::new(ErrorCode::ShardMoved, message).with_retry(RetryClass::AfterRefresh))
}

fn record(identity: &Identity, action: Action, resource: &Resource, outcome: Outcome<'_>, request_id: &str) {
    audit(&Record { role: "om", who: &identity.user, op: action.name(), resource, outcome, request_id });
}
