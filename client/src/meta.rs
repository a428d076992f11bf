//! The key-space manager's operations, one typed method each.

use bytes::Bytes;
use ozone_common::{Error, RetryClass};
use ozone_proto::om::v1::{self as om, OmRequest, OmResponse, om_request, om_response};
use prost::Message;

use crate::client::Client;
use crate::context::CallContext;
use crate::retry::Backoff;

impl Client {
    /// Sends one operation. Refusals that say "later" (overload, safe mode) are repeated with pauses until the deadline.
    pub(crate) async fn om(&self, ctx: &CallContext, op: om_request::Op) -> Result<om_response::Op, Error> {
        let request = encode(op);
        let mut backoff = Backoff::default();
        loop {
            match self.om_once(ctx, request.clone()).await {
                Err(error) if error.retry == RetryClass::Same => {
                    backoff.pause(error, ctx.deadline, &*self.inner.env.rng).await?;
                }
                outcome => return outcome,
            }
        }
    }

    async fn om_once(&self, ctx: &CallContext, request: Bytes) -> Result<om_response::Op, Error> {
        let response = self.inner.om.call(request, &ctx.options()).await?;
        let response = OmResponse::decode(response)
            .map_err(|error| Error::internal(format!("the OM's answer does not decode: {error}")))?;
        response.op.ok_or_else(|| Error::internal("the OM's answer is empty"))
    }

    /// [`Client::acquire_grant`] whose caller handles every refusal.
    pub(crate) async fn acquire_grant_once(
        &self,
        ctx: &CallContext,
        request: om::AcquireGrant,
    ) -> Result<om::Grant, Error> {
        match self.om_once(ctx, encode(om_request::Op::AcquireGrant(request))).await? {
            om_response::Op::Grant(grant) => Ok(grant),
            _ => Err(unexpected("AcquireGrant")),
        }
    }
}

fn encode(op: om_request::Op) -> Bytes {
    OmRequest { shard_map_version: 0, op: Some(op) }.encode_to_vec().into()
}

fn unexpected(op: &str) -> Error {
    Error::internal(format!("the OM's answer to {op} is another operation's"))
}

macro_rules! operations {
    ($($(#[$doc:meta])* $method:ident: $request:ident => $answer:ident($response:ty);)*) => {
        impl Client {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Those of the operation; `Unavailable` and `DeadlineExceeded` where the OM cannot be reached in time.
                pub async fn $method(&self, ctx: &CallContext, request: om::$request) -> Result<$response, Error> {
                    match self.om(ctx, om_request::Op::$request(request)).await? {
                        om_response::Op::$answer(response) => Ok(response),
                        _ => Err(unexpected(stringify!($request))),
                    }
                }
            )*
        }
    };
}

operations! {
    /// Makes a volume.
    create_volume: CreateVolume => Volume(om::VolumeInfo);
    /// Describes a volume.
    info_volume: InfoVolume => Volume(om::VolumeInfo);
    /// A page of volumes.
    list_volumes: ListVolumes => Volumes(om::VolumeList);
    /// Deletes an empty volume.
    delete_volume: DeleteVolume => Empty(om::Empty);
    /// Makes a bucket.
    create_bucket: CreateBucket => Bucket(om::BucketInfo);
    /// Describes a bucket.
    info_bucket: InfoBucket => Bucket(om::BucketInfo);
    /// A page of buckets.
    list_buckets: ListBuckets => Buckets(om::BucketList);
    /// Deletes an empty bucket.
    delete_bucket: DeleteBucket => Empty(om::Empty);
    /// Takes block ids; [`crate::lease`] does that for writers.
    acquire_grant: AcquireGrant => Grant(om::Grant);
    /// Lets a grant live on.
    renew_grant: RenewGrant => Grant(om::Grant);
    /// Gives block ids back.
    release_grant: ReleaseGrant => Empty(om::Empty);
    /// Reports replicas that a writer lost; answers with the epoch to seal the others under.
    report_failed_write: ReportFailedWrite => FailedWrite(om::FailedWriteReply);
    /// Makes written bytes a key.
    commit_key: CommitKey => KeyCommitted(om::KeyCommitted);
    /// Finds a key.
    lookup_key: LookupKey => KeyFound(om::KeyFound);
    /// A page of keys.
    list_keys: ListKeys => Keys(om::KeyList);
    /// Deletes a key.
    delete_key: DeleteKey => Empty(om::Empty);
    /// Deletes up to 1,000 keys.
    delete_keys: DeleteKeys => Deleted(om::DeleteKeysReply);
    /// Begins a multipart upload.
    initiate_upload: InitiateUpload => UploadInitiated(om::UploadInitiated);
    /// Makes written bytes a part.
    commit_part: CommitPart => PartCommitted(om::PartCommitted);
    /// A page of an upload's parts.
    list_parts: ListParts => Parts(om::PartList);
    /// A page of uploads.
    list_uploads: ListUploads => Uploads(om::UploadList);
    /// Makes an upload's parts a key.
    complete_upload: CompleteUpload => KeyCommitted(om::KeyCommitted);
    /// Gives an upload up.
    abort_upload: AbortUpload => Empty(om::Empty);
    /// A user's S3 secret.
    get_secret: GetSecret => Secret(om::Secret);
    /// Takes a user's S3 secret away.
    revoke_secret: RevokeSecret => Empty(om::Empty);
    /// The secret of an access key; for gateways.
    lookup_secret: LookupSecret => Secret(om::Secret);
    /// The state of the OM.
    om_status: Status => Status(om::StatusReply);
}
