//! The operations: what each gets, and which function serves it.
//!
//! ```text
//!   put      body ──▶ writer (datanodes) ──▶ the body's end: all its claims hold ──▶ commit (OM)
//!   get      look-up (OM) ──▶ conditions, range ──▶ reader (datanodes) ──▶ first byte ──▶ answer ──▶ the rest
//!   copy     look-up ──▶ reader ──▶ hashes, writer ──▶ commit
//!   others   one call to the OM, and its answer as headers or a document
//! ```
//! Nothing is visible before its commit, and nothing is committed that was not verified. Dropping an operation at any point, as when a
//! client goes away, leaves at most blocks that belong to nothing and go back with their grant.

mod attributes;
mod backend;
mod bucket;
mod bucket_cache;
#[cfg(test)]
mod bucket_test;
mod copy;
mod delete;
mod get;
mod list;
mod list_multipart;
#[cfg(test)]
mod list_test;
mod multipart;
#[cfg(test)]
mod multipart_test;
mod object;
#[cfg(test)]
mod object_test;
mod page;
mod put;
mod settings;
#[cfg(test)]
mod test_support;
#[cfg(test)]
pub(crate) mod twin;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use ozone_client::CallContext;
use ozone_client::proto::om::v1::{self as om, BucketAddress};
use ozone_common::Error;
use ozone_common::name::{BucketName, KeyName, S3_VOLUME};

pub(crate) use self::backend::Backend;
pub(crate) use self::bucket_cache::BucketCache;
use crate::auth::Verified;
use crate::body::{Algorithm, Body};
use crate::error::{S3Code, S3Error, S3Result};
use crate::gateway::Gateway;
use crate::memory::Reservation;
use crate::response::Response;
use crate::route::{Op, Query, Target};
use crate::xml::Writer;

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

    /// The multipart upload that the query names.
    ///
    /// # Errors
    /// `NoSuchUpload` where it names none that could be.
    pub fn upload(&self) -> S3Result<String> {
        match self.query.text("uploadId") {
            Ok(Some(upload)) if !upload.is_empty() => Ok(upload.to_owned()),
            _ => Err(S3Code::NoSuchUpload.into()),
        }
    }

    /// For calls into the cluster on the user's behalf, which end in `timeout`.
    pub fn context(&self, timeout: Duration) -> CallContext {
        CallContext::new(self.id.clone(), Some(self.identity.user().clone()), timeout)
    }
}

fn misrouted(op: Op) -> S3Error {
    Error::internal(format!("the router gave {} a target of another kind", op.name())).into()
}

/// An object, and on whose behalf it is used.
pub(crate) struct Place {
    ctx: CallContext,
    bucket: String,
    key: Bytes,
}

impl Place {
    fn address(&self) -> BucketAddress {
        BucketAddress { volume: S3_VOLUME.to_owned(), bucket: self.bucket.clone() }
    }
}

impl<B: Backend> Gateway<B> {
    /// How long an operation may take, not counting the transfer of its body.
    fn timeout(&self) -> Duration {
        self.config.request_timeout.duration()
    }

    fn ctx(&self, request: &Request) -> CallContext {
        request.context(self.timeout())
    }

    fn place(&self, request: &Request) -> S3Result<Place> {
        let (bucket, key) = (request.bucket()?.as_str().to_owned(), request.key()?.to_shared());
        Ok(Place { ctx: self.ctx(request), bucket, key })
    }

    /// The bucket as writes have to know it; may be seconds old.
    async fn bucket(&self, place: &Place) -> S3Result<Arc<om::BucketInfo>> {
        if let Some(info) = self.buckets.get(&place.bucket) {
            return Ok(info);
        }
        let request = om::InfoBucket { address: Some(place.address()) };
        let info = self.client.info_bucket(&place.ctx, request).await?;
        Ok(self.buckets.put(&place.bucket, info))
    }

    /// Refuses where a bucket is not the one that the client takes it for (S3 User Guide, "Verifying bucket ownership").
    async fn check_owners(&self, request: &Request) -> S3Result<()> {
        let owner_of = async |bucket: String| {
            let address = BucketAddress { volume: S3_VOLUME.to_owned(), bucket };
            let info = om::InfoBucket { address: Some(address) };
            Ok::<_, S3Error>(self.client.info_bucket(&self.ctx(request), info).await?.owner)
        };
        if request.op != Op::CreateBucket
            && let Some(expected) = request.headers.get("x-amz-expected-bucket-owner")
            && let Ok(bucket) = request.bucket()
            && owner_of(bucket.as_str().to_owned()).await?.as_bytes() != expected.as_bytes()
        {
            return Err(S3Code::AccessDenied.into());
        }
        if let Some(expected) = request.headers.get("x-amz-source-expected-bucket-owner")
            && matches!(request.op, Op::CopyObject | Op::UploadPartCopy)
            && owner_of(copy::CopySource::read(&request.headers)?.bucket).await?.as_bytes() != expected.as_bytes()
        {
            return Err(S3Code::AccessDenied.into());
        }
        Ok(())
    }

    /// The document that a request brings, of at most `max` bytes, and the memory it takes. Deadlines of calls on its behalf begin behind
    /// this: the client's speed is not theirs.
    ///
    /// # Errors
    /// `SlowDown` where others have the memory, and those of [`Body::collect`].
    async fn document(&self, request: &mut Request, max: usize) -> S3Result<(Bytes, Reservation)> {
        let bytes = request.body.length().unwrap_or(u64::MAX).min(max as u64);
        let reservation = self.memory.reserve(bytes).await?;
        Ok((request.body.collect(max).await?, reservation))
    }

    /// Memory for a window of a read of `length` bytes.
    async fn reserve_read(&self, length: u64) -> S3Result<Reservation> {
        self.memory.reserve(length.min(self.read_window())).await
    }

    /// Memory for a window of a write of `length` bytes.
    async fn reserve_write(&self, length: u64) -> S3Result<Reservation> {
        self.memory.reserve(length.min(self.write_window())).await
    }

    /// Memory for a copy: taken at once, since two that each hold half of what they need would wait for each other.
    async fn reserve_copy(&self, length: u64) -> S3Result<Reservation> {
        self.memory.reserve(length.min(self.read_window()) + length.min(self.write_window())).await
    }

    fn read_window(&self) -> u64 {
        let tuning = &self.config.client;
        tuning.read_size.get().saturating_mul(tuning.prefetch as u64)
    }

    /// Chunks of two blocks on their way to the datanodes, and two batches that are hashed.
    fn write_window(&self) -> u64 {
        const CHUNKS: u64 = 8;
        self.config.client.chunk_size.get().saturating_mul(CHUNKS)
    }
}

/// Refuses versions: there is one of each object, which S3 names `null` where a bucket has no versioning.
///
/// # Errors
/// `NoSuchVersion`.
fn check_version(version: Option<&[u8]>) -> S3Result<()> {
    match version {
        None | Some(b"null") => Ok(()),
        Some(other) => Err(S3Error::new(S3Code::NoSuchVersion, "the object has no version of this id")
            .detail("VersionId", String::from_utf8_lossy(other))),
    }
}

/// A checksum's value as headers and documents show it: with the count of parts where it is a checksum of checksums.
fn checksum_text(sum: &om::Checksum) -> String {
    let mut text = STANDARD.encode(&sum.value);
    if sum.composite && sum.parts != 0 {
        text.push('-');
        text.push_str(&sum.parts.to_string());
    }
    text
}

const fn checksum_type(composite: bool) -> &'static str {
    if composite { "COMPOSITE" } else { "FULL_OBJECT" }
}

/// Writes the element of a checksum, and that of its type where it is an object's.
fn write_checksum(out: &mut Writer, sum: Option<&om::Checksum>, with_type: bool) {
    let Some(sum) = sum else { return };
    let Some(algorithm) = Algorithm::from_number(sum.algorithm) else { return };
    out.value(algorithm.element(), checksum_text(sum));
    if with_type {
        out.value("ChecksumType", checksum_type(sum.composite));
    }
}

/// Serves a request.
///
/// # Errors
/// What the client is told.
pub(crate) async fn serve<B: Backend>(gateway: &Arc<Gateway<B>>, request: Request) -> S3Result<Response> {
    gateway.check_owners(&request).await?;
    match request.op {
        Op::GetObject => gateway.get_object(request).await,
        Op::HeadObject => gateway.head_object(request).await,
        Op::PutObject => gateway.put_object(request).await,
        Op::DeleteObject => gateway.delete_object(request).await,
        Op::DeleteObjects => gateway.delete_objects(request).await,
        Op::CopyObject => gateway.clone().copy_object(request).await,
        Op::ListObjects => gateway.list_objects(request).await,
        Op::ListObjectsV2 => gateway.list_objects_v2(request).await,
        Op::ListObjectVersions => gateway.list_object_versions(request).await,
        Op::GetObjectAttributes => gateway.get_object_attributes(request).await,
        Op::CreateMultipartUpload => gateway.create_multipart_upload(request).await,
        Op::UploadPart => gateway.upload_part(request).await,
        Op::UploadPartCopy => gateway.clone().upload_part_copy(request).await,
        Op::CompleteMultipartUpload => gateway.clone().complete_multipart_upload(request).await,
        Op::AbortMultipartUpload => gateway.abort_multipart_upload(request).await,
        Op::ListParts => gateway.list_parts(request).await,
        Op::ListMultipartUploads => gateway.list_multipart_uploads(request).await,
        Op::ListBuckets => gateway.list_buckets(request).await,
        Op::CreateBucket => gateway.create_bucket(request).await,
        Op::HeadBucket => gateway.head_bucket(request).await,
        Op::DeleteBucket => gateway.delete_bucket(request).await,
        Op::GetBucketLocation => gateway.get_bucket_location(request).await,
        Op::GetBucketVersioning
        | Op::GetBucketAcl
        | Op::GetBucketLogging
        | Op::GetBucketNotificationConfiguration
        | Op::GetBucketRequestPayment
        | Op::GetBucketAccelerateConfiguration
        | Op::GetBucketCors
        | Op::GetBucketEncryption
        | Op::GetBucketLifecycleConfiguration
        | Op::GetObjectLockConfiguration
        | Op::GetBucketOwnershipControls
        | Op::GetBucketPolicy
        | Op::GetPublicAccessBlock
        | Op::GetBucketReplication
        | Op::GetBucketTagging
        | Op::GetBucketWebsite => gateway.bucket_setting(request).await,
        Op::GetObjectAcl | Op::GetObjectTagging => gateway.object_setting(request).await,
    }
}
