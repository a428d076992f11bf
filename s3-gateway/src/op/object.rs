//! What operations on objects share: look-ups, conditions from headers, facts on answers, commits.

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ozone_client::Written;
use ozone_client::proto::om::v1 as om;
use ozone_common::ErrorCode;
use ozone_common::limits::PART_NUMBER_MAX;

use super::backend::{Backend, ObjectWriter};
use super::{Place, checksum_text, checksum_type};
use crate::body::Algorithm;
use crate::condition::{NotServed, ReadConditions, Verdict, write_conditions};
use crate::error::{S3Code, S3Error, S3Result};
use crate::etag::ETag;
use crate::gateway::Gateway;
use crate::object_meta;
use crate::response::Response;
use crate::time::http_date;

pub(super) static CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");
pub(super) static PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");
static CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");

/// A header's text; `None` where it is absent or no text.
pub(super) fn text(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The text of a header that the client relies on, such as a condition or a claim: taken for absent, a write would be made that must not be.
///
/// # Errors
/// `InvalidArgument` where it is no text, and where it comes more than once: nobody could say which line is meant.
pub(super) fn required_text<'a>(headers: &'a HeaderMap, name: &str) -> S3Result<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let invalid = |why: &str| S3Error::invalid_argument(name, value.as_bytes(), format!("the header {name} {why}"));
    if values.next().is_some() {
        return Err(invalid("is expected once, and came several times"));
    }
    value.to_str().map(Some).map_err(|_| invalid("holds characters beyond ASCII"))
}

/// A part's number, from a query.
///
/// # Errors
/// `InvalidArgument` where it is none of 1 to 10,000.
pub(super) fn part_number(value: &[u8]) -> S3Result<u32> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok());
    number.filter(|number| (1..=PART_NUMBER_MAX).contains(number)).ok_or_else(|| {
        let message = format!("partNumber must be a whole number from 1 to {PART_NUMBER_MAX}");
        S3Error::invalid_argument("partNumber", value, message)
    })
}

/// Conditions of a read.
fn read_conditions(headers: &HeaderMap) -> ReadConditions<'_> {
    ReadConditions {
        if_match: text(headers, header::IF_MATCH),
        if_none_match: text(headers, header::IF_NONE_MATCH),
        if_modified_since: text(headers, header::IF_MODIFIED_SINCE),
        if_unmodified_since: text(headers, header::IF_UNMODIFIED_SINCE),
    }
}

/// Conditions of a write.
///
/// # Errors
/// `NotImplemented` for those that S3 does not serve: taken for granted they would lose a write; and as [`required_text`].
pub(super) fn put_conditions(headers: &HeaderMap) -> S3Result<Option<om::Conditions>> {
    for name in [header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE] {
        if headers.contains_key(&name) {
            return Err(condition_not_served(name.as_str()));
        }
    }
    let if_match = required_text(headers, header::IF_MATCH.as_str())?;
    let if_none_match = required_text(headers, header::IF_NONE_MATCH.as_str())?;
    write_conditions(if_match, if_none_match).map_err(|NotServed(name)| condition_not_served(name))
}

fn condition_not_served(name: &str) -> S3Error {
    S3Error::not_implemented(format_args!("the condition {name} of this form on a write"))
}

/// Whether the client wants to see checksums.
pub(super) fn wants_checksum(headers: &HeaderMap) -> bool {
    text(headers, &CHECKSUM_MODE).is_some_and(|mode| mode.eq_ignore_ascii_case("enabled"))
}

/// Judges the conditions of a read. The answer, where the client has the object already.
///
/// # Errors
/// `PreconditionFailed`.
pub(super) fn judge(headers: &HeaderMap, info: &om::KeyInfo) -> S3Result<Option<Response>> {
    match read_conditions(headers).judge(&ETag::of(info), info.modified_ms) {
        Verdict::Holds => Ok(None),
        Verdict::NotModified => {
            let mut response = Response::new(StatusCode::NOT_MODIFIED);
            put_validators(&mut response.headers, info);
            Ok(Some(response))
        }
        Verdict::Failed(name) => Err(S3Error::from(S3Code::PreconditionFailed).detail("Condition", name)),
    }
}

/// Sets the headers of a checksum.
pub(super) fn put_checksum(out: &mut HeaderMap, sum: Option<&om::Checksum>) {
    let Some(sum) = sum else { return };
    let Some(algorithm) = Algorithm::from_number(sum.algorithm) else { return };
    if let Ok(value) = HeaderValue::try_from(checksum_text(sum)) {
        out.insert(algorithm.header().clone(), value);
        out.insert(CHECKSUM_TYPE.clone(), HeaderValue::from_static(checksum_type(sum.composite)));
    }
}

/// Sets an entity tag.
pub(super) fn put_etag(out: &mut HeaderMap, etag: ETag) {
    if let Ok(value) = HeaderValue::try_from(etag.quoted()) {
        out.insert(header::ETAG, value);
    }
}

/// Sets `ETag` and `Last-Modified`: what also a 304 tells.
fn put_validators(out: &mut HeaderMap, info: &om::KeyInfo) {
    put_etag(out, ETag::of(info));
    if let Ok(value) = HeaderValue::try_from(http_date(info.modified_ms)) {
        out.insert(header::LAST_MODIFIED, value);
    }
}

/// Sets everything about an object but its length and checksum.
///
/// # Errors
/// `InvalidArgument` for an override that cannot be a header.
pub(super) fn put_facts<'q>(
    out: &mut HeaderMap,
    info: &om::KeyInfo,
    overrides: impl Fn(&str) -> Option<&'q [u8]>,
) -> S3Result<()> {
    put_validators(out, info);
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    object_meta::to_headers(info.meta.as_ref(), overrides, out)
}

impl<B: Backend> Gateway<B> {
    /// Makes what a writer wrote a key.
    ///
    /// # Errors
    /// Those of the OM; a bucket that was made anew meanwhile is `ServiceUnavailable`: the client's retry will see it.
    pub(super) async fn commit(
        &self,
        place: &Place,
        bucket: &om::BucketInfo,
        written: Written,
        meta: om::ObjectMeta,
        conditions: Option<om::Conditions>,
    ) -> S3Result<om::KeyCommitted> {
        let ctx = place.ctx.renewed(self.timeout());
        let request = commit_request(place, bucket, written, meta, conditions);
        // Only inline values are ever committed twice.
        let again = request.is_inline.then(|| request.clone());
        let refused = match self.client.commit_key(&ctx, request).await {
            Ok(committed) => return Ok(committed),
            Err(error) => error,
        };
        // What the cache said of the bucket is old.
        let stale = matches!(refused.code, ErrorCode::BucketNotFound | ErrorCode::BucketChanged | ErrorCode::TooLarge);
        if stale {
            self.buckets.forget(&place.bucket);
        }
        match (refused.code, again) {
            (ErrorCode::TooLarge, Some(request)) => {
                // The bucket takes no inline values of this size any more.
                let bucket = om::BucketInfo { inline_max: 0, ..bucket.clone() };
                let mut writer = self.client.writer(&ctx, &bucket, None)?;
                writer.write(request.inline).await?;
                let Written { blocks, grants, .. } = writer.finish(&ctx).await?;
                let inline = bytes::Bytes::new();
                let request = om::CommitKey { blocks, grants, inline, is_inline: false, ..request };
                Ok(self.client.commit_key(&ctx, request).await?)
            }
            _ => Err(refused.into()),
        }
    }
}

fn commit_request(
    place: &Place,
    bucket: &om::BucketInfo,
    written: Written,
    meta: om::ObjectMeta,
    conditions: Option<om::Conditions>,
) -> om::CommitKey {
    om::CommitKey {
        bucket: Some(place.address()),
        key: place.key.clone(),
        length: written.length,
        meta: Some(meta),
        blocks: written.blocks,
        grants: written.grants,
        is_inline: written.inline.is_some(),
        inline: written.inline.unwrap_or_default(),
        conditions,
        bucket_id: bucket.id,
    }
}
