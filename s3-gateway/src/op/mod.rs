//! The operations: what each gets, and which function serves it.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use ozone_client::CallContext;
use ozone_client::proto::om::v1::BucketAddress;
use ozone_common::Error;
use ozone_common::name::{BucketName, KeyName, S3_VOLUME};

use crate::auth::Verified;
use crate::body::Body;
use crate::error::{S3Error, S3Result};
use crate::gateway::Gateway;
use crate::response::Response;
use crate::route::{Op, Query, Target};

/// A request that has passed the gate and the router.
pub(crate) struct Request {
    /// Who asks.
    pub identity: Verified,
    /// Its id, from here to the disks.
    pub id: Arc<str>,
    /// What is asked for.
    pub op: Op,
    /// On what.
    pub target: Target,
    /// The parameters, among them only such as the operation takes.
    pub query: Query,
    /// The headers; `aws-chunked` is gone from `Content-Encoding`.
    pub headers: HeaderMap,
    /// The body, which nobody has read yet.
    pub body: Body,
    /// UTC milliseconds, when it came.
    pub now_ms: u64,
}

impl Request {
    /// The bucket.
    ///
    /// # Errors
    /// `InternalError` where there is none: the router gives operations only what the table says they are about.
    pub fn bucket(&self) -> S3Result<&BucketName> {
        match &self.target {
            Target::Bucket(bucket) | Target::Object(bucket, _) => Ok(bucket),
            Target::Service => Err(misrouted(self.op)),
        }
    }

    /// The key.
    ///
    /// # Errors
    /// As [`Request::bucket`].
    pub fn key(&self) -> S3Result<&KeyName> {
        match &self.target {
            Target::Object(_, key) => Ok(key),
            Target::Service | Target::Bucket(_) => Err(misrouted(self.op)),
        }
    }

    /// The bucket as the OM is asked for it.
    ///
    /// # Errors
    /// As [`Request::bucket`].
    pub fn bucket_address(&self) -> S3Result<BucketAddress> {
        let bucket = self.bucket()?.as_str().to_owned();
        Ok(BucketAddress { volume: S3_VOLUME.to_owned(), bucket })
    }

    /// For calls into the cluster on the user's behalf, which end in `timeout`.
    pub fn context(&self, timeout: Duration) -> CallContext {
        CallContext::new(self.id.clone(), Some(self.identity.user().clone()), timeout)
    }
}

fn misrouted(op: Op) -> S3Error {
    Error::internal(format!("the router gave {} a target of another kind", op.name())).into()
}

/// Serves a request.
///
/// # Errors
/// What the client is told.
pub(crate) async fn serve(_gateway: &Arc<Gateway>, request: Request) -> S3Result<Response> {
    Err(S3Error::not_implemented(request.op.name()))
}
