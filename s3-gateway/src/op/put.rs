//! PutObject (S3 API, "PutObject"), and the way of every body to the datanodes.

use ozone_client::Written;
use ozone_client::proto::om::v1 as om;
use ozone_common::limits::PUT_LENGTH_MAX;

use super::backend::{Backend, ObjectWriter};
use super::object::{self, put_checksum, put_etag};
use super::{Place, Request};
use crate::body::{Algorithm, Body, Checksum};
use crate::error::{S3Code, S3Error, S3Result};
use crate::etag::ETag;
use crate::gateway::Gateway;
use crate::object_meta;
use crate::response::Response;

/// A body that is durable on the datanodes and belongs to nothing yet.
pub(super) struct Stored {
    pub written: Written,
    pub md5: [u8; 16],
    /// Of the algorithm that is kept.
    pub checksum: Checksum,
    /// The checksum that the client named.
    pub named: Option<Checksum>,
}

/// More than one PUT or part may carry.
pub(super) fn too_large(length: u64) -> S3Error {
    S3Error::from(S3Code::EntityTooLarge)
        .detail("ProposedSize", length.to_string())
        .detail("MaxSizeAllowed", PUT_LENGTH_MAX.to_string())
}

impl<B: Backend> Gateway<B> {
    /// Streams a body to the datanodes. Nothing is committed: that is for the caller to do, who by then knows that everything the
    /// request says about its body holds.
    ///
    /// cancel-safe: dropped, the blocks written go back with their grant.
    ///
    /// # Errors
    /// Those of the body and of the writer; `EntityTooLarge` over 5 GiB.
    pub(super) async fn store(
        &self,
        place: &Place,
        bucket: &om::BucketInfo,
        body: &mut Body,
        kept: Algorithm,
    ) -> S3Result<Stored> {
        let announced = body.require_length()?;
        if let Some(length) = announced.filter(|length| *length > PUT_LENGTH_MAX) {
            return Err(too_large(length));
        }
        let _reservation = self.reserve_write(announced.unwrap_or(u64::MAX)).await?;
        body.want(kept);
        let mut writer = self.client.writer(&place.ctx, bucket, announced)?;
        let mut length = 0;
        while let Some(bytes) = body.next().await? {
            length += bytes.len() as u64;
            if length > PUT_LENGTH_MAX {
                return Err(too_large(length));
            }
            writer.write(bytes).await?;
        }
        let digests = body.digests().unwrap_or_default();
        let (Some(md5), Some(checksum)) = (digests.md5, digests.kept) else {
            return Err(ozone_common::Error::internal("a body ended without its digests").into());
        };
        let written = writer.finish(&place.ctx.renewed(self.timeout())).await?;
        debug_assert_eq!(written.length, length);
        Ok(Stored { written, md5, checksum, named: digests.named })
    }

    /// Makes an object.
    pub(super) async fn put_object(&self, mut request: Request) -> S3Result<Response> {
        let place = self.place(&request)?;
        let mut meta = object_meta::from_headers(&request.headers)?;
        let conditions = object::put_conditions(&request.headers)?;
        let bucket = self.bucket(&place).await?;
        let kept = request.body.announced_checksum().unwrap_or(Algorithm::Crc64Nvme);
        let Stored { written, md5, checksum, .. } = self.store(&place, &bucket, &mut request.body, kept).await?;
        let checksum = checksum.to_om();
        meta.etag_md5 = bytes::Bytes::copy_from_slice(&md5);
        meta.checksum = Some(checksum.clone());
        self.commit(&place, &bucket, written, meta, conditions).await?;
        let mut response = Response::ok();
        put_etag(&mut response.headers, ETag::Md5 { md5, parts: 0 });
        put_checksum(&mut response.headers, Some(&checksum));
        Ok(response)
    }
}
