//! Operations on buckets. Buckets made over S3 live in the volume `s3v` (S3 API, "ListBuckets", "CreateBucket", "HeadBucket",
//! "DeleteBucket", "GetBucketLocation").

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use ozone_client::CallContext;
use ozone_client::proto::om::v1 as om;
use ozone_common::ErrorCode;
use ozone_common::limits::LIST_LIMIT_MAX;
use ozone_common::name::S3_VOLUME;

use super::backend::Backend;
use super::list::write_owner;
use super::{Request, page};
use crate::error::{S3Code, S3Error, S3Result};
use crate::gateway::Gateway;
use crate::response::Response;
use crate::time::iso_8601;
use crate::xml::{document, parse};

/// LIMIT: bytes of the configuration of a new bucket.
const CONFIGURATION_MAX: usize = 64 << 10;
/// LIMIT: buckets of one answer (S3).
const BUCKETS_MAX: u32 = 10_000;
static BUCKET_REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");

impl<B: Backend> Gateway<B> {
    /// The user's buckets.
    pub(super) async fn list_buckets(&self, request: Request) -> S3Result<Response> {
        let query = &request.query;
        let most = match query.number("max-buckets")? {
            None => BUCKETS_MAX,
            Some(most) if (1..=BUCKETS_MAX).contains(&most) => most,
            Some(other) => {
                let message = format!("max-buckets must be a number from 1 to {BUCKETS_MAX}");
                return Err(S3Error::invalid_argument("max-buckets", other.to_string().as_bytes(), message));
            }
        };
        let prefix = query.text("prefix")?.unwrap_or_default();
        let mut start_after = match query.bytes("continuation-token").filter(|token| !token.is_empty()) {
            None => String::new(),
            Some(token) => String::from_utf8_lossy(&page::parse_token(&self.token_key, token)?).into_owned(),
        };
        let other_region = query.bytes("bucket-region").is_some_and(|region| region != self.config.region.as_bytes());
        let ctx = self.ctx(&request);
        let user = ctx.user.as_deref().unwrap_or_default();
        let mut buckets: Vec<om::BucketInfo> = Vec::new();
        let mut truncated = !other_region;
        while truncated && (buckets.len() as u32) < most {
            let list = om::ListBuckets {
                volume: S3_VOLUME.to_owned(),
                prefix: prefix.to_owned(),
                start_after: start_after.clone(),
                limit: (most - buckets.len() as u32).min(LIST_LIMIT_MAX),
                owner: user.to_owned(),
            };
            let page = match self.client.list_buckets(&ctx, list).await {
                Ok(page) => page,
                // The volume comes with its first bucket.
                Err(error) if error.code == ErrorCode::VolumeNotFound => om::BucketList::default(),
                Err(error) => return Err(error.into()),
            };
            truncated = page.truncated;
            if let Some(address) = page.buckets.last().and_then(|last| last.address.as_ref()) {
                start_after.clone_from(&address.bucket);
            } else {
                truncated = false;
            }
            buckets.extend(page.buckets);
        }
        truncated &= !other_region;
        Ok(Response::xml(document("ListAllMyBucketsResult", |out| {
            write_owner(out, "Owner", user);
            out.element("Buckets", |out| {
                for bucket in &buckets {
                    out.element("Bucket", |out| {
                        out.text("Name", bucket.address.as_ref().map_or("", |address| &address.bucket));
                        out.value("CreationDate", iso_8601(bucket.created_ms));
                        out.text("BucketRegion", &self.config.region);
                    });
                }
            });
            if truncated {
                out.text("ContinuationToken", &page::token(&self.token_key, start_after.as_bytes()));
            }
            if !prefix.is_empty() {
                out.text("Prefix", prefix);
            }
        })))
    }

    /// Makes a bucket.
    pub(super) async fn create_bucket(&self, mut request: Request) -> S3Result<Response> {
        refuse_unserved(&request.headers)?;
        let (document, _reservation) = self.document(&mut request, CONFIGURATION_MAX).await?;
        let (ctx, address) = (self.ctx(&request), request.bucket_address()?);
        if !document.is_empty() {
            let root = parse(&document, "CreateBucketConfiguration")?;
            let location = root.get("LocationConstraint")?.map(str::trim).unwrap_or_default();
            if !location.is_empty() && location != self.config.region {
                return Err(S3Error::new(
                    S3Code::InvalidLocationConstraint,
                    format!("the location constraint is not this server's region, `{}`", self.config.region),
                )
                .detail("LocationConstraint", location));
            }
        }
        let create = om::CreateBucket { address: Some(address.clone()), create_volume: true, ..Default::default() };
        match self.client.create_bucket(&ctx, create).await {
            Ok(info) => {
                self.buckets.put(request.bucket()?.as_str(), info);
            }
            Err(error) if error.code == ErrorCode::BucketAlreadyExists => {
                let info = self.client.info_bucket(&ctx, om::InfoBucket { address: Some(address) }).await?;
                let own = ctx.user.as_deref() == Some(info.owner.as_str());
                let code = if own { S3Code::BucketAlreadyOwnedByYou } else { S3Code::BucketAlreadyExists };
                return Err(S3Error::from(code).detail("BucketName", request.bucket()?.as_str()));
            }
            Err(error) => return Err(error.into()),
        }
        Response::ok().text(header::LOCATION, &format!("/{}", request.bucket()?))
    }

    /// Whether a bucket is there.
    pub(super) async fn head_bucket(&self, request: Request) -> S3Result<Response> {
        let info = om::InfoBucket { address: Some(request.bucket_address()?) };
        self.client.info_bucket(&self.ctx(&request), info).await?;
        Response::ok().text(BUCKET_REGION.clone(), &self.config.region)
    }

    /// Deletes an empty bucket.
    pub(super) async fn delete_bucket(&self, request: Request) -> S3Result<Response> {
        let (ctx, address) = (self.ctx(&request), request.bucket_address()?);
        let delete = om::DeleteBucket { address: Some(address.clone()) };
        self.buckets.forget(request.bucket()?.as_str());
        match self.client.delete_bucket(&ctx, delete.clone()).await {
            Ok(om::Empty {}) => return Ok(Response::no_content()),
            Err(error) if error.code == ErrorCode::BucketNotEmpty => {}
            Err(error) => return Err(error.into()),
        }
        let list = om::ListKeys { bucket: Some(address.clone()), limit: 1, ..Default::default() };
        if !self.client.list_keys(&ctx, list).await?.keys.is_empty() {
            return Err(S3Code::BucketNotEmpty.into());
        }
        self.abort_all_uploads(&ctx, &address).await?;
        self.client.delete_bucket(&ctx, delete).await?;
        Ok(Response::no_content())
    }

    /// To S3 a bucket of nothing but uploads under way is empty; to the OM they belong to somebody, who gives them up here.
    async fn abort_all_uploads(&self, ctx: &CallContext, address: &om::BucketAddress) -> S3Result<()> {
        loop {
            let list = om::ListUploads { bucket: Some(address.clone()), limit: LIST_LIMIT_MAX, ..Default::default() };
            let page = self.client.list_uploads(ctx, list).await?;
            for om::UploadInfo { key, upload, .. } in page.uploads {
                match self
                    .client
                    .abort_upload(ctx, om::AbortUpload { bucket: Some(address.clone()), key, upload })
                    .await
                {
                    Ok(om::Empty {}) => {}
                    // Somebody was faster.
                    Err(error) if error.code == ErrorCode::UploadNotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if !page.truncated {
                return Ok(());
            }
        }
    }

    /// Where a bucket is: S3 names no region where it is `us-east-1`.
    pub(super) async fn get_bucket_location(&self, request: Request) -> S3Result<Response> {
        let info = om::InfoBucket { address: Some(request.bucket_address()?) };
        self.client.info_bucket(&self.ctx(&request), info).await?;
        let region = if self.config.region == "us-east-1" { "" } else { &self.config.region };
        Ok(Response::xml(document("LocationConstraint", |out| out.content(region))))
    }
}

/// Refuses what a client may rely on and this server would not do.
fn refuse_unserved(headers: &HeaderMap) -> S3Result<()> {
    match headers.get("x-amz-acl").map(HeaderValue::as_bytes) {
        None | Some(b"private") => {}
        Some(_) => return Err(S3Code::InvalidBucketAclWithObjectOwnership.into()),
    }
    if headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-")) {
        return Err(S3Code::InvalidBucketAclWithObjectOwnership.into());
    }
    if headers
        .get("x-amz-bucket-object-lock-enabled")
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
    {
        return Err(S3Error::not_implemented("object lock"));
    }
    match headers.get("x-amz-object-ownership").map(HeaderValue::as_bytes) {
        None | Some(b"BucketOwnerEnforced") => Ok(()),
        Some(_) => Err(S3Error::not_implemented("object ownership other than BucketOwnerEnforced")),
    }
}
