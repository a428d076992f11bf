//! CopyObject, and the source of UploadPartCopy (S3 API, "CopyObject").
//!
//! A block belongs to one key, so a copy is a read and a write; the bytes pass through this process in a window of chunks.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use http::HeaderMap;
use ozone_client::proto::om::v1 as om;
use ozone_common::Error;
use ozone_common::limits::PUT_LENGTH_MAX;
use ozone_common::name::{KeyName, S3_VOLUME};

use super::backend::{Backend, ObjectReader, ObjectWriter};
use super::object::{put_conditions, required_text};
use super::put::Stored;
use super::{Place, Request, check_version, write_checksum};
use crate::body::{Algorithm, Digester, Wanted};
use crate::condition::{ReadConditions, Verdict};
use crate::error::{S3Code, S3Error, S3Result};
use crate::etag::ETag;
use crate::gateway::Gateway;
use crate::object_meta;
use crate::response::Response;
use crate::route::percent_decode;
use crate::time::iso_8601;
use crate::xml::document;

/// Where a copy comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CopySource {
    pub bucket: String,
    pub key: Bytes,
}

impl CopySource {
    /// Reads `x-amz-copy-source`: `bucket/key` with or without `/` before it, percent-encoded; `+` is a plus.
    ///
    /// # Errors
    /// `InvalidArgument`, `NoSuchVersion`.
    pub fn read(headers: &HeaderMap) -> S3Result<Self> {
        let Some(value) = headers.get("x-amz-copy-source") else {
            return Err(S3Error::invalid_argument("x-amz-copy-source", b"", "a source is needed"));
        };
        let value = value.as_bytes();
        let invalid = |message: &'static str| S3Error::invalid_argument("x-amz-copy-source", value, message);
        // The version is behind a literal `?`; one in the key is encoded.
        let (path, version) = match value.iter().position(|byte| *byte == b'?') {
            Some(at) => (&value[..at], Some(&value[at + 1..])),
            None => (value, None),
        };
        if let Some(version) = version {
            let version =
                version.strip_prefix(b"versionId=").ok_or_else(|| invalid("only versionId may follow the key"))?;
            check_version(Some(version))?;
        }
        let path = percent_decode(path, false)?;
        let path = path.strip_prefix(b"/").unwrap_or(&path);
        let at = path.iter().position(|byte| *byte == b'/').ok_or_else(|| invalid("bucket/key is needed"))?;
        let bucket = std::str::from_utf8(&path[..at]).map_err(|_| invalid("the bucket's name is not valid"))?;
        let key = Bytes::copy_from_slice(&path[at + 1..]);
        if bucket.is_empty() || key.is_empty() {
            return Err(invalid("bucket/key is needed"));
        }
        KeyName::new(key.clone())?;
        Ok(Self { bucket: bucket.to_owned(), key })
    }

    fn address(&self) -> om::BucketAddress {
        om::BucketAddress { volume: S3_VOLUME.to_owned(), bucket: self.bucket.clone() }
    }
}

/// A source that was found and whose conditions hold.
pub(super) struct Found {
    pub source: CopySource,
    found: om::KeyFound,
    pub info: om::KeyInfo,
}

/// Where the metadata of a copy comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Directive {
    Copy,
    Replace,
}

impl Directive {
    fn read(headers: &HeaderMap) -> S3Result<Self> {
        match headers.get("x-amz-metadata-directive").map(|value| value.as_bytes()) {
            None | Some(b"COPY") => Ok(Self::Copy),
            Some(b"REPLACE") => Ok(Self::Replace),
            Some(other) => Err(S3Error::invalid_argument(
                "x-amz-metadata-directive",
                other,
                "the metadata directive must be COPY or REPLACE",
            )),
        }
    }
}

impl<B: Backend> Gateway<B> {
    /// Looks a source up and judges the conditions on it.
    ///
    /// # Errors
    /// `NoSuchKey`, `NoSuchBucket`, `PreconditionFailed`, and those of [`CopySource::read`] and [`required_text`].
    pub(super) async fn find_source(&self, place: &Place, headers: &HeaderMap) -> S3Result<Found> {
        let source = CopySource::read(headers)?;
        let conditions = ReadConditions {
            if_match: required_text(headers, "x-amz-copy-source-if-match")?,
            if_none_match: required_text(headers, "x-amz-copy-source-if-none-match")?,
            if_modified_since: required_text(headers, "x-amz-copy-source-if-modified-since")?,
            if_unmodified_since: required_text(headers, "x-amz-copy-source-if-unmodified-since")?,
        };
        let request = om::LookupKey {
            bucket: Some(source.address()),
            key: source.key.clone(),
            want_data: true,
            ..Default::default()
        };
        let found = self.client.lookup_key(&place.ctx, request).await?;
        let info = found.info.clone().ok_or_else(|| Error::internal("the OM's answer has no key"))?;
        match conditions.judge(&ETag::of(&info), info.modified_ms) {
            Verdict::Holds => Ok(Found { source, found, info }),
            Verdict::NotModified | Verdict::Failed(_) => Err(S3Code::PreconditionFailed.into()),
        }
    }

    /// Copies a range of a source to blocks of the target's bucket.
    ///
    /// # Errors
    /// Those of reader and writer.
    pub(super) async fn store_copy(
        &self,
        place: &Place,
        bucket: &om::BucketInfo,
        found: &Found,
        range: Range<u64>,
        kept: Algorithm,
    ) -> S3Result<Stored> {
        let length = range.end - range.start;
        let _reservation = self.reserve_copy(length).await?;
        let mut reader = self.client.reader(&place.ctx, &found.source.address(), &found.found, range)?;
        let mut writer = self.client.writer(&place.ctx, bucket, Some(length))?;
        let mut digester = Digester::new(Wanted { md5: true, kept: Some(kept), ..Wanted::default() });
        while let Some(bytes) = reader.next().await? {
            digester.ready().await?;
            digester.push(&bytes);
            writer.write(bytes).await?;
        }
        if digester.length() != length {
            return Err(Error::internal(format!("{} bytes of {length} could be copied", digester.length())).into());
        }
        let digests = digester.finish().await?;
        let (Some(md5), Some(checksum)) = (digests.md5, digests.kept) else {
            return Err(Error::internal("a copy ended without its digests").into());
        };
        let written = writer.finish(&place.ctx.renewed(self.timeout())).await?;
        Ok(Stored { written, md5, checksum, named: None })
    }

    /// Makes an object of another one's bytes.
    pub(super) async fn copy_object(self: Arc<Self>, request: Request) -> S3Result<Response> {
        let place = self.place(&request)?;
        let directive = Directive::read(&request.headers)?;
        let own_meta = object_meta::from_headers(&request.headers)?;
        let conditions = put_conditions(&request.headers)?;
        let asked = asked_algorithm(&request.headers)?;
        let found = self.find_source(&place, &request.headers).await?;
        let to_itself = found.source.bucket == place.bucket && found.source.key == place.key;
        if to_itself && directive == Directive::Copy && !request.headers.contains_key(object_meta::STORAGE_CLASS) {
            return Err(S3Error::new(
                S3Code::InvalidRequest,
                "an object cannot be copied to itself without a change of its metadata or storage class",
            ));
        }
        if found.info.length > PUT_LENGTH_MAX {
            let message = format!("the source has more bytes than one copy may have: {PUT_LENGTH_MAX}");
            return Err(S3Error::new(S3Code::InvalidRequest, message));
        }
        let source_meta = found.info.meta.clone().unwrap_or_default();
        let from_source = source_meta.checksum.as_ref().and_then(|sum| Algorithm::from_number(sum.algorithm));
        let kept = asked.or(from_source).unwrap_or(Algorithm::Crc64Nvme);
        let mut meta = match directive {
            Directive::Replace => own_meta,
            Directive::Copy => {
                let mut headers = source_meta.headers;
                headers.remove(object_meta::STORAGE_CLASS);
                if let Some(class) = own_meta.headers.get(object_meta::STORAGE_CLASS) {
                    headers.insert(object_meta::STORAGE_CLASS.to_owned(), class.clone());
                }
                om::ObjectMeta { headers, user: source_meta.user, ..Default::default() }
            }
        };
        let bucket = self.bucket(&place).await?;
        let work = async move {
            let length = found.info.length;
            let stored = self.store_copy(&place, &bucket, &found, 0..length, kept).await?;
            let checksum = stored.checksum.to_om();
            meta.etag_md5 = Bytes::copy_from_slice(&stored.md5);
            meta.checksum = Some(checksum.clone());
            let committed = self.commit(&place, &bucket, stored.written, meta, conditions).await?;
            Ok(Response::xml(document("CopyObjectResult", |out| {
                out.value("LastModified", iso_8601(committed.modified_ms));
                out.text("ETag", &ETag::Md5 { md5: stored.md5, parts: 0 }.quoted());
                write_checksum(out, Some(&checksum), true);
            })))
        };
        Response::eventually(request.id, work.boxed()).await
    }
}

/// `x-amz-checksum-algorithm`.
///
/// # Errors
/// `InvalidRequest` where it is none of S3's.
pub(super) fn asked_algorithm(headers: &HeaderMap) -> S3Result<Option<Algorithm>> {
    match headers.get("x-amz-checksum-algorithm") {
        None => Ok(None),
        Some(name) => match Algorithm::from_name(name.as_bytes()) {
            Some(algorithm) => Ok(Some(algorithm)),
            None => Err(S3Error::new(
                S3Code::InvalidRequest,
                "x-amz-checksum-algorithm must be CRC32, CRC32C, CRC64NVME, SHA1 or SHA256",
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_taken_apart() {
        let read = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-amz-copy-source", value.parse().unwrap());
            CopySource::read(&headers).map(|source| (source.bucket, source.key.to_vec())).map_err(|error| error.code)
        };
        let found = |bucket: &str, key: &str| Ok((bucket.to_owned(), key.as_bytes().to_vec()));
        assert_eq!(read("b/k"), found("b", "k"));
        assert_eq!(read("/b/k/l"), found("b", "k/l"));
        assert_eq!(read("b%2Fk"), found("b", "k"));
        assert_eq!(read("b/a+b%2Bc%20d"), found("b", "a+b+c d"));
        assert_eq!(read("b/%E2%82%AC%3F"), found("b", "€?"));
        assert_eq!(read("b/k?versionId=null"), found("b", "k"));
        assert_eq!(read("b//k"), found("b", "/k"));
        assert_eq!(read("b/k?versionId=3sL4kqtJlcpXroDTDmJ"), Err(S3Code::NoSuchVersion));
        for bad in ["", "b", "/b", "b/", "/", "//k", "b/k?x=y"] {
            assert_eq!(read(bad), Err(S3Code::InvalidArgument), "{bad}");
        }
        assert_eq!(read(&format!("b/{}", "k".repeat(1025))), Err(S3Code::KeyTooLongError));
    }
}
