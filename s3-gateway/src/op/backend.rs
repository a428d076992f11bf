//! What the operations need of the cluster: the client's calls, and writers and readers of bytes. One trait, so that every
//! operation is tested without a cluster too ([`super::memory`]).

use std::future::Future;
use std::ops::Range;
use std::task::{Context, Poll};

use bytes::Bytes;
use ozone_client::proto::om::v1 as om;
use ozone_client::{CallContext, Client, KeyReader, KeyWriter, Written};
use ozone_common::Error;

use crate::response::Pieces;

/// Takes the bytes of one object or part. Dropped before `finish`, nothing of it stays.
pub(crate) trait ObjectWriter: Send + 'static {
    /// Takes bytes; waits while the datanodes take what came before.
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), Error>> + Send;
    /// Makes everything durable by the context's deadline and says what to commit. The writer's own context may have ended while the
    /// bytes came.
    fn finish(self, ctx: &CallContext) -> impl Future<Output = Result<Written, Error>> + Send;
}

/// Gives the bytes of a range of one object.
pub(crate) trait ObjectReader: Pieces + 'static {
    /// The next bytes, never none; `None` behind the last. Bounded by the context's deadline before the first of them.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Error>> + Send;
}

macro_rules! backend {
    ($($method:ident($request:ident) -> $answer:ty;)*) => {
        /// The cluster, as the operations see it. Each method is the client's of that name.
        pub(crate) trait Backend: Clone + Send + Sync + 'static {
            /// Of one object or part.
            type Writer: ObjectWriter;
            /// Of a range of one object.
            type Reader: ObjectReader;
            $(
                #[doc = concat!("`Client::", stringify!($method), "`.")]
                fn $method(
                    &self,
                    ctx: &CallContext,
                    request: om::$request,
                ) -> impl Future<Output = Result<$answer, Error>> + Send;
            )*
            /// `Client::writer`.
            fn writer(
                &self,
                ctx: &CallContext,
                bucket: &om::BucketInfo,
                size_hint: Option<u64>,
            ) -> Result<Self::Writer, Error>;
            /// `Client::reader`.
            fn reader(
                &self,
                ctx: &CallContext,
                bucket: &om::BucketAddress,
                found: &om::KeyFound,
                range: Range<u64>,
            ) -> Result<Self::Reader, Error>;
        }

        impl Backend for Client {
            type Writer = KeyWriter;
            type Reader = KeyReader;
            $(
                fn $method(
                    &self,
                    ctx: &CallContext,
                    request: om::$request,
                ) -> impl Future<Output = Result<$answer, Error>> + Send {
                    Client::$method(self, ctx, request)
                }
            )*
            fn writer(
                &self,
                ctx: &CallContext,
                bucket: &om::BucketInfo,
                size_hint: Option<u64>,
            ) -> Result<KeyWriter, Error> {
                Client::writer(self, ctx, bucket, size_hint)
            }
            fn reader(
                &self,
                ctx: &CallContext,
                bucket: &om::BucketAddress,
                found: &om::KeyFound,
                range: Range<u64>,
            ) -> Result<KeyReader, Error> {
                Client::reader(self, ctx, bucket, found, range)
            }
        }
    };
}

backend! {
    create_bucket(CreateBucket) -> om::BucketInfo;
    info_bucket(InfoBucket) -> om::BucketInfo;
    list_buckets(ListBuckets) -> om::BucketList;
    delete_bucket(DeleteBucket) -> om::Empty;
    commit_key(CommitKey) -> om::KeyCommitted;
    lookup_key(LookupKey) -> om::KeyFound;
    list_keys(ListKeys) -> om::KeyList;
    delete_key(DeleteKey) -> om::Empty;
    delete_keys(DeleteKeys) -> om::DeleteKeysReply;
    initiate_upload(InitiateUpload) -> om::UploadInitiated;
    commit_part(CommitPart) -> om::PartCommitted;
    list_parts(ListParts) -> om::PartList;
    list_uploads(ListUploads) -> om::UploadList;
    complete_upload(CompleteUpload) -> om::KeyCommitted;
    abort_upload(AbortUpload) -> om::Empty;
}

impl ObjectWriter for KeyWriter {
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), Error>> + Send {
        KeyWriter::write(self, bytes)
    }
    fn finish(mut self, ctx: &CallContext) -> impl Future<Output = Result<Written, Error>> + Send {
        self.renew(ctx);
        KeyWriter::finish(self)
    }
}

impl ObjectReader for KeyReader {
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Error>> + Send {
        KeyReader::next(self)
    }
}

impl Pieces for KeyReader {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        KeyReader::poll_next(self, cx)
    }
    fn remaining(&self) -> u64 {
        KeyReader::remaining(self)
    }
}
