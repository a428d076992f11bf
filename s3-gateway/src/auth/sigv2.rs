//! Signature version 2 in URLs (S3 User Guide, "Signing and authenticating REST requests", "Query string request authentication alternative").
//!
//! boto3 and AWS CLI 1 still presign so unless they are told otherwise. Only URLs are taken: requests that carry a header can be signed
//! with version 4 by every client. The signature covers less than version 4's: no host, no body, and of the parameters only
//! [`SIGNED`]; so a URL with any other parameter is refused, or whoever holds it could make another operation of it.
//!
//! Pure: no clock, no secrets of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ring::hmac;

use crate::error::{S3Code, S3Error, S3Result};
use crate::route::{Query, percent_decode, percent_encode};

/// Parameters that are part of what is signed.
const SIGNED: [&str; 37] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "retention",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
    "legal-hold",
];
/// Headers that SDKs repeat in URLs.
const HEADERS: [&str; 2] = ["content-type", "content-md5"];
static CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// What a URL says about its own signature.
#[derive(Debug)]
pub(super) struct Claimed {
    pub access_key: String,
    signature: [u8; 20],
    /// Seconds since 1970.
    expires: u64,
}

impl Claimed {
    /// The end of the URL's life, milliseconds since 1970.
    pub fn expires_ms(&self) -> u64 {
        self.expires.saturating_mul(1000)
    }
}

/// Whether the parameter is for the signature only.
pub(crate) fn is_own_parameter(name: &[u8]) -> bool {
    matches!(name, b"AWSAccessKeyId" | b"Signature" | b"Expires")
        || HEADERS.iter().any(|known| known.as_bytes() == name)
}

/// Reads the parameters of a presigned URL.
///
/// # Errors
/// `AccessDenied` where one is missing, malformed, or not signed.
pub(super) fn from_query(query: &Query) -> S3Result<Claimed> {
    let denied = |why: String| S3Error::new(S3Code::AccessDenied, why);
    let get = |name: &str| -> S3Result<&str> {
        query.text(name).ok().flatten().filter(|value| !value.is_empty()).ok_or_else(|| {
            denied(
                "query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters".to_owned(),
            )
        })
    };
    let expires = get("Expires")?;
    let digits = expires.bytes().all(|digit| digit.is_ascii_digit());
    let expires = expires.parse::<u64>().ok().filter(|_| digits);
    let expires = expires.ok_or_else(|| denied("invalid date (Expires should be seconds since epoch)".to_owned()))?;
    let signature = STANDARD.decode(get("Signature")?).ok().and_then(|bytes| bytes.try_into().ok());
    let unsigned = query.names().find(|name| {
        let signed = SIGNED.iter().any(|known| known.as_bytes() == *name);
        !signed && !is_own_parameter(name) && !name.to_ascii_lowercase().starts_with(b"x-")
    });
    if let Some(name) = unsigned {
        let name = String::from_utf8_lossy(name);
        return Err(denied(format!(
            "signature version 2 does not cover the parameter `{name}`; please use AWS4-HMAC-SHA256"
        )));
    }
    Ok(Claimed {
        access_key: get("AWSAccessKeyId")?.into(),
        signature: signature.ok_or(S3Code::SignatureDoesNotMatch)?,
        expires,
    })
}

/// What is needed of a request to compute its signature.
pub(super) struct Signable<'a> {
    pub method: &'a str,
    /// The bucket that the host names, where it does.
    pub host_bucket: Option<&'a str>,
    /// As it came.
    pub path: &'a str,
    pub query: &'a Query,
    pub headers: &'a HeaderMap,
}

/// Verifies the signature.
///
/// # Errors
/// `SignatureDoesNotMatch`, with what we signed.
pub(super) fn verify(claimed: &Claimed, request: &Signable<'_>, secret: &[u8]) -> S3Result<()> {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let text = string_to_sign(claimed, request, request.path.as_bytes());
    if hmac::verify(&key, &text, &claimed.signature).is_ok() {
        return Ok(());
    }
    // Clients sign the path as they send it, but some encode more for the one than for the other.
    if let Ok(decoded) = percent_decode(request.path.as_bytes(), false) {
        let mut encoded = Vec::with_capacity(request.path.len());
        percent_encode(&decoded, true, &mut encoded);
        if hmac::verify(&key, &string_to_sign(claimed, request, &encoded), &claimed.signature).is_ok() {
            return Ok(());
        }
    }
    Err(S3Error::from(S3Code::SignatureDoesNotMatch)
        .detail("AWSAccessKeyId", claimed.access_key.as_str())
        .detail("StringToSign", String::from_utf8_lossy(&text)))
}

fn string_to_sign(claimed: &Claimed, request: &Signable<'_>, path: &[u8]) -> Vec<u8> {
    let value = |name: &HeaderName| {
        let header = request.headers.get(name).map(HeaderValue::as_bytes);
        header.or_else(|| request.query.bytes(name.as_str())).unwrap_or_default().trim_ascii()
    };
    let mut text = Vec::with_capacity(256);
    for line in [request.method.as_bytes(), value(&CONTENT_MD5), value(&header::CONTENT_TYPE)] {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text.extend_from_slice(claimed.expires.to_string().as_bytes());
    text.push(b'\n');
    write_amz_headers(request, &mut text);
    if let Some(bucket) = request.host_bucket {
        text.push(b'/');
        text.extend_from_slice(bucket.as_bytes());
    }
    text.extend_from_slice(path);
    write_parameters(request.query, &mut text);
    text
}

/// `x-amz-*` of headers and, where a header is not there, of the URL: `name:value` lines in order, values of one name joined.
fn write_amz_headers(request: &Signable<'_>, text: &mut Vec<u8>) {
    let mut lines: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let names = request.headers.keys().filter(|name| name.as_str().starts_with("x-amz-"));
    for name in names {
        let values: Vec<&[u8]> =
            request.headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii()).collect();
        lines.push((name.as_str().as_bytes().to_vec(), values.join(&b',')));
    }
    for (name, value) in request.query.pairs() {
        let name = name.to_ascii_lowercase();
        if name.starts_with(b"x-amz-") && !lines.iter().any(|(known, _)| *known == name) {
            lines.push((name, value.trim_ascii().to_vec()));
        }
    }
    lines.sort();
    for (name, value) in lines {
        for piece in [&name[..], b":", &value, b"\n"] {
            text.extend_from_slice(piece);
        }
    }
}

fn write_parameters(query: &Query, text: &mut Vec<u8>) {
    let mut signed: Vec<(&[u8], &[u8])> =
        query.pairs().filter(|(name, _)| SIGNED.iter().any(|known| known.as_bytes() == *name)).collect();
    signed.sort();
    for (index, (name, value)) in signed.into_iter().enumerate() {
        text.push(if index == 0 { b'?' } else { b'&' });
        text.extend_from_slice(name);
        if !value.is_empty() {
            text.push(b'=');
            text.extend_from_slice(value);
        }
    }
}
