//! ListParts and ListMultipartUploads (S3 API pages of these names).

use ozone_client::proto::om::v1 as om;
use ozone_common::limits::PART_NUMBER_MAX;

use super::backend::Backend;
use super::list::write_owner;
use super::{Request, checksum_type, page, write_checksum};
use crate::body::Algorithm;
use crate::error::S3Result;
use crate::etag::ETag;
use crate::gateway::Gateway;
use crate::object_meta::class_of;
use crate::response::Response;
use crate::time::iso_8601;
use crate::xml::{Writer, document};

fn write_kind(out: &mut Writer, sum: Option<&om::Checksum>) {
    if let Some((sum, algorithm)) = sum.and_then(|sum| Some((sum, Algorithm::from_number(sum.algorithm)?))) {
        out.value("ChecksumAlgorithm", algorithm.name());
        out.value("ChecksumType", checksum_type(sum.composite));
    }
}

impl<B: Backend> Gateway<B> {
    /// A page of an upload's parts.
    pub(super) async fn list_parts(&self, request: Request) -> S3Result<Response> {
        let place = self.place(&request)?;
        let upload = request.upload()?;
        let limit = page::limit(&request.query, "max-parts")?;
        let marker = request.query.number("part-number-marker")?.unwrap_or(0);
        let url = page::url_encoded(&request.query)?;
        let list = om::ListParts {
            bucket: Some(place.address()),
            key: place.key.clone(),
            upload: upload.clone(),
            // A page of none still says whether the upload is there.
            after_part: if limit == 0 { PART_NUMBER_MAX } else { marker.min(PART_NUMBER_MAX) },
            limit: limit.max(1),
        };
        let page = self.client.list_parts(&place.ctx, list).await?;
        let next = page.parts.last().map_or(marker, |part| part.part);
        let kind = page.meta.as_ref().and_then(|meta| meta.checksum.as_ref());
        Ok(Response::xml(document("ListPartsResult", |out| {
            out.text("Bucket", &place.bucket);
            out.text("Key", &page::name(&place.key, url));
            out.text("UploadId", &upload);
            write_owner(out, "Initiator", &page.owner);
            write_owner(out, "Owner", &page.owner);
            out.text("StorageClass", class_of(page.meta.as_ref()));
            out.value("PartNumberMarker", marker);
            out.value("NextPartNumberMarker", next);
            out.value("MaxParts", limit);
            out.value("IsTruncated", page.truncated);
            write_kind(out, kind);
            for part in &page.parts {
                out.element("Part", |out| {
                    out.value("PartNumber", part.part);
                    out.value("LastModified", iso_8601(part.modified_ms));
                    if let Some(etag) = ETag::of_part(&part.md5) {
                        out.text("ETag", &etag.quoted());
                    }
                    out.value("Size", part.length);
                    write_checksum(out, part.checksum.as_ref(), false);
                });
            }
        })))
    }

    /// A page of a bucket's uploads under way.
    pub(super) async fn list_multipart_uploads(&self, request: Request) -> S3Result<Response> {
        let query = &request.query;
        let get = |name: &str| query.text(name).map(Option::unwrap_or_default);
        let limit = page::limit(query, "max-uploads")?;
        let url = page::url_encoded(query)?;
        let (prefix, delimiter, key_marker) = (get("prefix")?, get("delimiter")?, get("key-marker")?);
        // S3 looks at it together with a key marker only.
        let upload_marker = if key_marker.is_empty() { "" } else { get("upload-id-marker")? };
        let (ctx, address) = (self.ctx(&request), request.bucket_address()?);
        let page = if limit == 0 {
            self.client.info_bucket(&ctx, om::InfoBucket { address: Some(address) }).await?;
            om::UploadList::default()
        } else {
            let list = om::ListUploads {
                bucket: Some(address),
                prefix: prefix.to_owned().into(),
                delimiter: delimiter.to_owned().into(),
                key_marker: key_marker.to_owned().into(),
                upload_marker: upload_marker.to_owned(),
                limit,
            };
            self.client.list_uploads(&ctx, list).await?
        };
        let name = |text: &str| page::name(text.as_bytes(), url).into_owned();
        let (next_key, next_upload) = next_markers(&page);
        let bucket = request.bucket()?.as_str();
        Ok(Response::xml(document("ListMultipartUploadsResult", |out| {
            out.text("Bucket", bucket);
            out.text("KeyMarker", &name(key_marker));
            out.text("UploadIdMarker", upload_marker);
            if page.truncated {
                out.text("NextKeyMarker", &page::name(next_key, url));
                out.text("NextUploadIdMarker", next_upload);
            }
            out.text("Prefix", &name(prefix));
            if !delimiter.is_empty() {
                out.text("Delimiter", &name(delimiter));
            }
            if url {
                out.value("EncodingType", "url");
            }
            out.value("MaxUploads", limit);
            out.value("IsTruncated", page.truncated);
            for upload in &page.uploads {
                out.element("Upload", |out| {
                    out.text("Key", &page::name(&upload.key, url));
                    out.text("UploadId", &upload.upload);
                    write_owner(out, "Initiator", &upload.owner);
                    write_owner(out, "Owner", &upload.owner);
                    out.value("StorageClass", crate::object_meta::STANDARD);
                    out.value("Initiated", iso_8601(upload.initiated_ms));
                    write_kind(out, upload.checksum.as_ref());
                });
            }
            for common in &page.common_prefixes {
                out.element("CommonPrefixes", |out| out.text("Prefix", &page::name(common, url)));
            }
        })))
    }
}

/// The page's last entry: an upload, or a common prefix, which has no upload's id.
fn next_markers(page: &om::UploadList) -> (&[u8], &str) {
    let upload = page.uploads.last().map(|upload| (upload.key.as_ref(), upload.upload.as_str()));
    let common = page.common_prefixes.last().map(|common| (common.as_ref(), ""));
    match (upload, common) {
        (Some(upload), Some(common)) => {
            if upload.0 > common.0 {
                upload
            } else {
                common
            }
        }
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => (b"", ""),
    }
}
