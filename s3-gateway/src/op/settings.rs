//! Settings of buckets and objects that this server does not have. Clients ask for them on the way to something else; each gets what S3
//! answers where nothing was set.

use ozone_client::proto::om::v1 as om;

use super::backend::Backend;
use super::list::write_owner;
use super::{Request, check_version};
use crate::error::{S3Code, S3Result};
use crate::gateway::Gateway;
use crate::response::Response;
use crate::route::Op;
use crate::xml::{Writer, document};

fn write_acl(out: &mut Writer, owner: &str) {
    write_owner(out, "Owner", owner);
    out.element("AccessControlList", |out| {
        out.element("Grant", |out| {
            out.typed("Grantee", "CanonicalUser", |out| {
                out.text("ID", owner);
                out.text("DisplayName", owner);
            });
            out.value("Permission", "FULL_CONTROL");
        });
    });
}

impl<B: Backend> Gateway<B> {
    /// A setting of a bucket.
    pub(super) async fn bucket_setting(&self, request: Request) -> S3Result<Response> {
        let info = om::InfoBucket { address: Some(request.bucket_address()?) };
        let bucket = self.client.info_bucket(&self.ctx(&request), info).await?;
        let empty = |root| Ok(Response::xml(document(root, |_| {})));
        match request.op {
            Op::GetBucketVersioning => empty("VersioningConfiguration"),
            Op::GetBucketLogging => empty("BucketLoggingStatus"),
            Op::GetBucketNotificationConfiguration => empty("NotificationConfiguration"),
            Op::GetBucketAccelerateConfiguration => empty("AccelerateConfiguration"),
            Op::GetBucketRequestPayment => {
                Ok(Response::xml(document("RequestPaymentConfiguration", |out| out.value("Payer", "BucketOwner"))))
            }
            Op::GetBucketAcl => Ok(Response::xml(document("AccessControlPolicy", |out| write_acl(out, &bucket.owner)))),
            Op::GetBucketOwnershipControls => Err(S3Code::OwnershipControlsNotFoundError.into()),
            Op::GetBucketCors => Err(S3Code::NoSuchCORSConfiguration.into()),
            Op::GetBucketEncryption => Err(S3Code::ServerSideEncryptionConfigurationNotFoundError.into()),
            Op::GetBucketLifecycleConfiguration => Err(S3Code::NoSuchLifecycleConfiguration.into()),
            Op::GetObjectLockConfiguration => Err(S3Code::ObjectLockConfigurationNotFoundError.into()),
            Op::GetBucketPolicy => Err(S3Code::NoSuchBucketPolicy.into()),
            Op::GetPublicAccessBlock => Err(S3Code::NoSuchPublicAccessBlockConfiguration.into()),
            Op::GetBucketReplication => Err(S3Code::ReplicationConfigurationNotFoundError.into()),
            Op::GetBucketTagging => Err(S3Code::NoSuchTagSet.into()),
            Op::GetBucketWebsite => Err(S3Code::NoSuchWebsiteConfiguration.into()),
            other => Err(crate::error::S3Error::not_implemented(other.name())),
        }
    }

    /// A setting of an object.
    pub(super) async fn object_setting(&self, request: Request) -> S3Result<Response> {
        check_version(request.query.bytes("versionId"))?;
        let place = self.place(&request)?;
        let lookup = om::LookupKey { bucket: Some(place.address()), key: place.key.clone(), ..Default::default() };
        let info = self.client.lookup_key(&place.ctx, lookup).await?.info.unwrap_or_default();
        Ok(Response::xml(match request.op {
            Op::GetObjectAcl => document("AccessControlPolicy", |out| write_acl(out, &info.owner)),
            _ => document("Tagging", |out| out.element("TagSet", |_| {})),
        }))
    }
}
