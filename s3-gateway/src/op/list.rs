//! ListObjects in both versions (S3 API, "ListObjects", "ListObjectsV2"): parameters to the OM's request, its page to a document.

use bytes::Bytes;
use ozone_client::proto::om::v1 as om;
use ozone_common::Error;
use ring::hmac;
use tokio::task::spawn_blocking;

use super::backend::Backend;
use super::{Request, checksum_type, page};
use crate::body::Algorithm;
use crate::error::{S3Error, S3Result};
use crate::etag::ETag;
use crate::gateway::Gateway;
use crate::object_meta::class_of;
use crate::response::Response;
use crate::route::Query;
use crate::time::iso_8601;
use crate::xml::{Writer, document};

/// Keys of a page that is written where it is; larger ones take long enough to be written on a thread that may block.
const INLINE_MAX: usize = 200;

/// Where a page begins, and how the answer echoes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// Version 1: `marker`.
    Marker(String),
    /// Versions: `key-marker`. There is one version of each key, so a page never ends between two.
    KeyMarker(String),
    /// Version 2: `start-after`, which a token outweighs. Both are echoed as they came.
    After {
        /// `start-after`.
        start_after: Option<String>,
        /// `continuation-token` with what it says.
        token: Option<(String, Bytes)>,
    },
}

/// A request for a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ListParams {
    prefix: String,
    delimiter: Option<String>,
    limit: u32,
    url: bool,
    owner: bool,
    start: Start,
}

impl ListParams {
    /// Reads the parameters of ListObjects.
    ///
    /// # Errors
    /// `InvalidArgument` that names the parameter.
    pub fn v1(query: &Query) -> S3Result<Self> {
        let start = Start::Marker(query.text("marker")?.unwrap_or_default().to_owned());
        Self::common(query, start, true)
    }

    /// Reads the parameters of ListObjectsV2.
    ///
    /// # Errors
    /// `InvalidArgument` that names the parameter; also for a token that is none of ours.
    pub fn v2(query: &Query, key: &hmac::Key) -> S3Result<Self> {
        let token = match query.text("continuation-token")? {
            None => None,
            Some(text) => Some((text.to_owned(), page::parse_token(key, text.as_bytes())?)),
        };
        let start = Start::After { start_after: query.text("start-after")?.map(str::to_owned), token };
        Self::common(query, start, query.bytes("fetch-owner") == Some(b"true"))
    }

    /// Reads the parameters of ListObjectVersions.
    ///
    /// # Errors
    /// As [`ListParams::v1`].
    pub fn versions(query: &Query) -> S3Result<Self> {
        let marker = query.text("key-marker")?.unwrap_or_default();
        let version = query.text("version-id-marker")?.unwrap_or_default();
        if !version.is_empty() && marker.is_empty() {
            let message = "a version-id-marker needs a key-marker";
            return Err(S3Error::invalid_argument("version-id-marker", version.as_bytes(), message));
        }
        Self::common(query, Start::KeyMarker(marker.to_owned()), true)
    }

    fn common(query: &Query, start: Start, owner: bool) -> S3Result<Self> {
        Ok(Self {
            prefix: query.text("prefix")?.unwrap_or_default().to_owned(),
            delimiter: query.text("delimiter")?.filter(|delimiter| !delimiter.is_empty()).map(str::to_owned),
            limit: page::limit(query, "max-keys")?,
            url: page::url_encoded(query)?,
            owner,
            start,
        })
    }

    /// What to ask the OM for; `None` where the page is empty whatever the bucket holds.
    pub fn request(&self, bucket: om::BucketAddress) -> Option<om::ListKeys> {
        let start_after = match &self.start {
            Start::Marker(marker) | Start::KeyMarker(marker) => Bytes::copy_from_slice(marker.as_bytes()),
            Start::After { token: Some((_, last)), .. } => last.clone(),
            Start::After { start_after, .. } => {
                Bytes::copy_from_slice(start_after.as_deref().unwrap_or_default().as_bytes())
            }
        };
        (self.limit != 0).then(|| om::ListKeys {
            bucket: Some(bucket),
            prefix: Bytes::copy_from_slice(self.prefix.as_bytes()),
            delimiter: Bytes::copy_from_slice(self.delimiter.as_deref().unwrap_or_default().as_bytes()),
            start_after,
            limit: self.limit,
        })
    }

    /// The answer's document.
    pub fn document(&self, bucket: &str, page: &om::KeyList, key: &hmac::Key) -> Bytes {
        let versions = matches!(self.start, Start::KeyMarker(_));
        document(if versions { "ListVersionsResult" } else { "ListBucketResult" }, |out| {
            out.text("Name", bucket);
            out.text("Prefix", &page::name(self.prefix.as_bytes(), self.url));
            self.write_start(out, page, key);
            out.value("MaxKeys", self.limit);
            if let Some(delimiter) = &self.delimiter {
                out.text("Delimiter", &page::name(delimiter.as_bytes(), self.url));
            }
            if self.url {
                out.value("EncodingType", "url");
            }
            out.value("IsTruncated", page.truncated);
            for key in &page.keys {
                self.write_key(out, key, versions);
            }
            for common in &page.common_prefixes {
                out.element("CommonPrefixes", |out| out.text("Prefix", &page::name(common, self.url)));
            }
        })
    }

    fn write_start(&self, out: &mut Writer, page: &om::KeyList, key: &hmac::Key) {
        match &self.start {
            Start::Marker(marker) => {
                out.text("Marker", &page::name(marker.as_bytes(), self.url));
                if page.truncated && self.delimiter.is_some() {
                    out.text("NextMarker", &page::name(&page.last, self.url));
                }
            }
            Start::KeyMarker(marker) => {
                out.text("KeyMarker", &page::name(marker.as_bytes(), self.url));
                out.value("VersionIdMarker", "");
                if page.truncated {
                    out.text("NextKeyMarker", &page::name(&page.last, self.url));
                    // A common prefix has no version.
                    let last_is_key = page.keys.last().is_some_and(|key| key.key == page.last);
                    out.value("NextVersionIdMarker", if last_is_key { "null" } else { "" });
                }
            }
            Start::After { start_after, token } => {
                if let Some((token, _)) = token {
                    out.text("ContinuationToken", token);
                }
                if page.truncated {
                    out.text("NextContinuationToken", &page::token(key, &page.last));
                }
                if let Some(after) = start_after {
                    out.text("StartAfter", &page::name(after.as_bytes(), self.url));
                }
                out.value("KeyCount", page.keys.len() + page.common_prefixes.len());
            }
        }
    }

    fn write_key(&self, out: &mut Writer, key: &om::KeyInfo, version: bool) {
        out.element(if version { "Version" } else { "Contents" }, |out| {
            out.text("Key", &page::name(&key.key, self.url));
            if version {
                out.value("VersionId", "null");
                out.value("IsLatest", true);
            }
            out.value("LastModified", iso_8601(key.modified_ms));
            out.text("ETag", &ETag::of(key).quoted());
            let sum = key.meta.as_ref().and_then(|meta| meta.checksum.as_ref());
            if let Some((sum, algorithm)) = sum.and_then(|sum| Some((sum, Algorithm::from_number(sum.algorithm)?))) {
                out.value("ChecksumAlgorithm", algorithm.name());
                out.value("ChecksumType", checksum_type(sum.composite));
            }
            out.value("Size", key.length);
            if self.owner {
                write_owner(out, "Owner", &key.owner);
            }
            out.text("StorageClass", class_of(key.meta.as_ref()));
        });
    }
}

/// A user as documents show one: its name is its id.
pub(super) fn write_owner(out: &mut Writer, element: &'static str, user: &str) {
    out.element(element, |out| {
        out.text("ID", user);
        out.text("DisplayName", user);
    });
}

impl<B: Backend> Gateway<B> {
    /// A page of objects.
    pub(super) async fn list_objects(&self, request: Request) -> S3Result<Response> {
        let parameters = ListParams::v1(&request.query)?;
        self.list(&request, parameters).await
    }

    /// A page of objects, by tokens.
    pub(super) async fn list_objects_v2(&self, request: Request) -> S3Result<Response> {
        let parameters = ListParams::v2(&request.query, &self.token_key)?;
        self.list(&request, parameters).await
    }

    async fn list(&self, request: &Request, parameters: ListParams) -> S3Result<Response> {
        let (ctx, address) = (self.ctx(request), request.bucket_address()?);
        let page = match parameters.request(address.clone()) {
            Some(list) => self.client.list_keys(&ctx, list).await?,
            None => {
                self.client.info_bucket(&ctx, om::InfoBucket { address: Some(address) }).await?;
                om::KeyList::default()
            }
        };
        let bucket = request.bucket()?.as_str().to_owned();
        if page.keys.len() <= INLINE_MAX {
            return Ok(Response::xml(parameters.document(&bucket, &page, &self.token_key)));
        }
        let key = self.token_key.clone();
        let document = spawn_blocking(move || parameters.document(&bucket, &page, &key)).await;
        Ok(Response::xml(document.map_err(|error| Error::internal(format!("writing a listing: {error}")))?))
    }

    /// A page of the versions of objects, of which each has one.
    pub(super) async fn list_object_versions(&self, request: Request) -> S3Result<Response> {
        let parameters = ListParams::versions(&request.query)?;
        self.list(&request, parameters).await
    }
}
