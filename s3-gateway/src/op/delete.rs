//! DeleteObject and DeleteObjects (S3 API pages of these names).

use bytes::Bytes;
use http::HeaderMap;
use http::header;
use ozone_client::CallContext;
use ozone_client::proto::om::v1 as om;
use ozone_common::limits::DELETE_KEYS_MAX;
use ozone_common::{Error, ErrorCode};

use super::backend::Backend;
use super::object::required_text;
use super::{Request, check_version};
use crate::condition::must_match;
use crate::error::{S3Code, S3Error, S3Result};
use crate::gateway::Gateway;
use crate::response::Response;
use crate::time::parse_http_date;
use crate::xml::{self, parse};

/// LIMIT: bytes of a request for many keys: 1,000 of 1,024 bytes, escaped, have some 6 MiB.
const DELETE_MAX: usize = 8 << 20;

/// What must be true of an object for it to be deleted.
#[derive(Clone, Default, PartialEq, Debug)]
struct Only {
    etag: Option<String>,
    /// Seconds since 1970, as milliseconds.
    modified_ms: Option<u64>,
    size: Option<u64>,
}

impl Only {
    fn is_any(&self) -> bool {
        *self == Self::default()
    }

    fn from_headers(headers: &HeaderMap) -> S3Result<Self> {
        let invalid = |name: &str, value: &str| {
            S3Error::invalid_argument(name, value.as_bytes(), "the condition's value cannot be understood")
        };
        let (modified, size) = ("x-amz-if-match-last-modified-time", "x-amz-if-match-size");
        Ok(Self {
            etag: required_text(headers, header::IF_MATCH.as_str())?.map(|etag| etag.trim().to_owned()),
            modified_ms: match required_text(headers, modified)? {
                None => None,
                Some(text) => Some(parse_http_date(text.as_bytes()).ok_or_else(|| invalid(modified, text))?),
            },
            size: match required_text(headers, size)? {
                None => None,
                Some(text) => Some(text.parse().map_err(|_| invalid(size, text))?),
            },
        })
    }
}

/// One key of DeleteObjects.
struct Named {
    key: Bytes,
    only: Only,
    refused: Option<S3Error>,
}

fn read_keys(bytes: &[u8]) -> S3Result<(Vec<Named>, bool)> {
    let malformed = |message: String| S3Error::new(S3Code::MalformedXML, message);
    let root = parse(bytes, "Delete")?;
    let quiet = match root.get("Quiet")?.map(str::trim) {
        None | Some("false" | "") => false,
        Some("true") => true,
        Some(_) => return Err(malformed("Quiet must be true or false".to_owned())),
    };
    let mut named = Vec::new();
    for object in root.all("Object") {
        let refused =
            check_version(object.get("VersionId")?.filter(|version| !version.is_empty()).map(str::as_bytes)).err();
        let only = Only {
            etag: object.get("ETag")?.map(|etag| etag.trim().to_owned()),
            modified_ms: match object.get("LastModifiedTime")? {
                None => None,
                Some(text) => Some(
                    parse_http_date(text.as_bytes())
                        .ok_or_else(|| malformed("LastModifiedTime is no date of HTTP".to_owned()))?,
                ),
            },
            size: match object.get("Size")? {
                None => None,
                Some(text) => Some(text.trim().parse().map_err(|_| malformed("Size is no number".to_owned()))?),
            },
        };
        named.push(Named { key: Bytes::copy_from_slice(object.require("Key")?.as_bytes()), only, refused });
    }
    if named.is_empty() || named.len() > DELETE_KEYS_MAX {
        return Err(malformed(format!("{} keys; 1 to {DELETE_KEYS_MAX} are possible", named.len())));
    }
    Ok((named, quiet))
}

impl<B: Backend> Gateway<B> {
    /// Deletes one key, where what `only` says is true of it.
    async fn delete_if(&self, ctx: &CallContext, bucket: &om::BucketAddress, key: Bytes, only: &Only) -> S3Result<()> {
        let mut conditions = match only.etag.as_deref() {
            None => om::Conditions::default(),
            Some("*") => om::Conditions { if_present: true, ..Default::default() },
            Some(etag) => must_match(etag),
        };
        if only.modified_ms.is_some() || only.size.is_some() {
            // The OM does not judge these: they are judged here, and the deletion is of this generation only.
            let lookup = om::LookupKey { bucket: Some(bucket.clone()), key: key.clone(), ..Default::default() };
            let found = self.client.lookup_key(ctx, lookup).await?;
            let info = found.info.ok_or_else(|| Error::internal("the OM's answer has no key"))?;
            let other_time = only.modified_ms.is_some_and(|ms| ms / 1000 != info.modified_ms / 1000);
            let other_tag = conditions.if_generation != 0 && conditions.if_generation != info.generation;
            if other_time || other_tag || only.size.is_some_and(|size| size != info.length) {
                return Err(S3Code::PreconditionFailed.into());
            }
            conditions.if_generation = info.generation;
        }
        let delete =
            om::DeleteKey { bucket: Some(bucket.clone()), key, conditions: Some(conditions), must_exist: false };
        match self.client.delete_key(ctx, delete).await {
            Ok(om::Empty {}) => Ok(()),
            // Another generation than the condition names.
            Err(error) if error.code == ErrorCode::KeyChanged => Err(S3Code::PreconditionFailed.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes an object; that it was there does not matter.
    pub(super) async fn delete_object(&self, request: Request) -> S3Result<Response> {
        check_version(request.query.bytes("versionId"))?;
        let place = self.place(&request)?;
        let only = Only::from_headers(&request.headers)?;
        self.delete_if(&place.ctx, &place.address(), place.key.clone(), &only).await?;
        Ok(Response::no_content())
    }

    /// Deletes up to 1,000 objects.
    pub(super) async fn delete_objects(&self, mut request: Request) -> S3Result<Response> {
        if !request.headers.contains_key("content-md5") && request.body.announced_checksum().is_none() {
            return Err(S3Error::new(
                S3Code::InvalidRequest,
                "a Content-MD5 or x-amz-checksum- header is needed: a document that came to harm must not delete anything",
            ));
        }
        let (document, _reservation) = self.document(&mut request, DELETE_MAX).await?;
        let (named, quiet) = read_keys(&document)?;
        let (ctx, address) = (self.ctx(&request), request.bucket_address()?);
        let mut outcomes: Vec<S3Result<()>> = Vec::with_capacity(named.len());
        let plain = |named: &Named| named.refused.is_none() && named.only.is_any();
        let keys: Vec<Bytes> = named.iter().filter(|named| plain(named)).map(|named| named.key.clone()).collect();
        let mut errors = if keys.is_empty() {
            Vec::new()
        } else {
            let delete = om::DeleteKeys { bucket: Some(address.clone()), keys };
            self.client.delete_keys(&ctx, delete).await?.errors
        }
        .into_iter();
        for named in &named {
            outcomes.push(match &named.refused {
                Some(refused) => Err(refused.clone()),
                None if plain(named) => match errors.next() {
                    Some(error) if error.code == 0 => Ok(()),
                    Some(error) => Err(Error::from(error).into()),
                    None => Err(Error::internal("the OM answered for fewer keys than were named").into()),
                },
                None => self.delete_if(&ctx, &address, named.key.clone(), &named.only).await,
            });
        }
        Ok(Response::xml(xml::document("DeleteResult", |out| {
            for (named, outcome) in named.iter().zip(&outcomes) {
                match outcome {
                    Ok(()) if quiet => {}
                    Ok(()) => out.element("Deleted", |out| out.bytes("Key", &named.key)),
                    Err(error) => out.element("Error", |out| {
                        out.bytes("Key", &named.key);
                        out.value("Code", error.code.name());
                        out.text("Message", &error.message);
                    }),
                }
            }
        })))
    }
}
