//! Signature version 4: what a request claims, and what its signature should be (S3 API Reference, "Authenticating requests").
//!
//! Pure: no clock, no secrets of its own. The canonical request is written in one pass into one buffer.

use http::header::{self, HeaderMap, HeaderName};
use ring::{digest, hmac};

use crate::error::{S3Code, S3Error, S3Result};
use crate::route::{Query, percent_encode};
use crate::time::{iso_8601, parse_amz_date, parse_http_date};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
static AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// Most seconds for which a presigned URL may be good: 7 days.
const EXPIRES_MAX: u64 = 604_800;

/// What a request says about its own signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claimed {
    pub access_key: String,
    /// `20130524`.
    pub day: String,
    pub region: String,
    /// As signed, lower case, separated by `;`.
    pub signed_headers: String,
    pub signature: [u8; 32],
    /// `20130524T000000Z`.
    pub date: String,
    pub date_ms: u64,
    /// Seconds for which a presigned URL is good; `None` where the header signs.
    pub expires: Option<u64>,
}

impl Claimed {
    /// `20130524/us-east-1/s3/aws4_request`.
    pub fn scope(&self) -> String {
        [self.day.as_str(), &self.region, "s3/aws4_request"].join("/")
    }

    fn signs(&self, name: &str) -> bool {
        self.signed_headers.split(';').any(|signed| signed == name)
    }
}

struct Credential<'a> {
    access_key: &'a str,
    day: &'a str,
    region: &'a str,
}

fn credential(text: &str) -> Result<Credential<'_>, String> {
    let fields: Vec<&str> = text.split('/').collect();
    let [access_key, day, region, service, last] = fields[..] else {
        return Err("the credential is mal-formed; expecting \"<access key>/YYYYMMDD/REGION/s3/aws4_request\"".into());
    };
    if access_key.is_empty() {
        return Err("the credential has an empty access key".into());
    }
    if day.len() != 8 || !day.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(format!("invalid credential date \"{day}\"; this date is not in the form YYYYMMDD"));
    }
    if service != "s3" {
        return Err(format!("incorrect service \"{service}\"; this endpoint belongs to \"s3\""));
    }
    if last != "aws4_request" {
        return Err(format!("incorrect terminal \"{last}\"; this endpoint uses \"aws4_request\""));
    }
    Ok(Credential { access_key, day, region })
}

fn parse_signature(text: &str) -> Option<[u8; 32]> {
    let mut signature = [0; 32];
    hex::decode_to_slice(text, &mut signature).ok()?;
    Some(signature)
}

/// Reads `Authorization`.
///
/// # Errors
/// `InvalidArgument` where it is of another kind, `InvalidRequest` where it is version 2, `AuthorizationHeaderMalformed`, `AccessDenied`
/// without a date.
pub(super) fn from_header(value: &[u8], headers: &HeaderMap) -> S3Result<Claimed> {
    let malformed = |why: String| {
        S3Error::new(S3Code::AuthorizationHeaderMalformed, format!("the authorization header is malformed: {why}"))
    };
    let text = std::str::from_utf8(value).map_err(|_| malformed("it is not text".into()))?.trim();
    if text.is_empty() {
        return Err(S3Error::new(S3Code::AccessDenied, "the authorization header is empty"));
    }
    let Some(fields) = text.strip_prefix(ALGORITHM).filter(|rest| rest.starts_with([' ', ','])) else {
        if text.starts_with("AWS ") {
            return Err(S3Error::new(
                S3Code::InvalidRequest,
                "signature version 2 is not supported; please use AWS4-HMAC-SHA256",
            ));
        }
        return Err(S3Error::invalid_argument("Authorization", value, "unsupported authorization type"));
    };
    let (mut scope, mut signed_headers, mut signature) = (None, None, None);
    for field in fields.split(',').map(str::trim).filter(|field| !field.is_empty()) {
        let place = match field.split_once('=') {
            Some(("Credential", value)) => (&mut scope, value),
            Some(("SignedHeaders", value)) => (&mut signed_headers, value),
            Some(("Signature", value)) => (&mut signature, value),
            _ => return Err(malformed("Credential, SignedHeaders and Signature are expected".into())),
        };
        if place.0.replace(place.1).is_some() {
            return Err(malformed("a field comes twice".into()));
        }
    }
    let (Some(scope), Some(signed_headers), Some(signature)) = (scope, signed_headers, signature) else {
        return Err(malformed("Credential, SignedHeaders and Signature are needed".into()));
    };
    let credential = credential(scope).map_err(malformed)?;
    let (date, date_ms) = date_of(headers)?;
    let claimed = Claimed {
        access_key: credential.access_key.into(),
        day: credential.day.into(),
        region: credential.region.into(),
        signed_headers: signed_headers.into(),
        signature: parse_signature(signature).ok_or(S3Code::SignatureDoesNotMatch)?,
        date,
        date_ms,
        expires: None,
    };
    if !claimed.date.starts_with(&claimed.day) {
        let why = format!(
            "invalid credential date \"{}\"; it is not the day of the request, \"{}\"",
            claimed.day, claimed.date
        );
        return Err(malformed(why));
    }
    Ok(claimed)
}

/// The time of a request that is signed in its header: `x-amz-date`, else `Date`.
fn date_of(headers: &HeaderMap) -> S3Result<(String, u64)> {
    let denied = || S3Error::new(S3Code::AccessDenied, "AWS authentication requires a valid Date or x-amz-date header");
    if let Some(value) = headers.get(&AMZ_DATE) {
        let text = value.to_str().map_err(|_| denied())?.trim();
        if let Some(ms) = parse_amz_date(text.as_bytes()) {
            return Ok((text.to_owned(), ms));
        }
        let ms = parse_http_date(text.as_bytes()).ok_or_else(denied)?;
        return Ok((basic(ms), ms));
    }
    let value = headers.get(header::DATE).ok_or_else(denied)?;
    let ms = parse_http_date(value.as_bytes()).or_else(|| parse_amz_date(value.as_bytes())).ok_or_else(denied)?;
    Ok((basic(ms), ms))
}

/// `20130524T000000Z`.
fn basic(ms: u64) -> String {
    let mut text = iso_8601(ms / 1000 * 1000);
    text.truncate("2013-05-24T00:00:00".len());
    text.retain(|character| character != '-' && character != ':');
    text.push('Z');
    text
}

/// Reads the parameters of a presigned URL.
///
/// # Errors
/// `AuthorizationQueryParametersError`.
pub(super) fn from_query(query: &Query) -> S3Result<Claimed> {
    let malformed = |why: String| S3Error::new(S3Code::AuthorizationQueryParametersError, why);
    let get = |name: &str| -> S3Result<&str> {
        let value = query.text(name).map_err(|_| malformed(format!("{name} is not UTF-8")))?;
        value.filter(|value| !value.is_empty()).ok_or_else(|| {
            malformed(
                "query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, \
                 X-Amz-SignedHeaders, and X-Amz-Expires parameters"
                    .to_owned(),
            )
        })
    };
    if get("X-Amz-Algorithm")? != ALGORITHM {
        return Err(malformed(format!("X-Amz-Algorithm only supports \"{ALGORITHM}\"")));
    }
    let credential = credential(get("X-Amz-Credential")?)
        .map_err(|why| malformed(format!("error parsing X-Amz-Credential: {why}")))?;
    let date = get("X-Amz-Date")?;
    let date_ms = parse_amz_date(date.as_bytes())
        .ok_or_else(|| malformed("X-Amz-Date must be in the ISO8601 long format \"yyyyMMdd'T'HHmmss'Z'\"".into()))?;
    let expires = get("X-Amz-Expires")?;
    let expires = match (expires.starts_with('-'), expires.parse::<u64>()) {
        (true, _) => return Err(malformed("X-Amz-Expires must be non-negative".into())),
        (false, Err(_)) => return Err(malformed("X-Amz-Expires should be a number".into())),
        (false, Ok(seconds)) if seconds > EXPIRES_MAX => {
            return Err(malformed(format!(
                "X-Amz-Expires must be less than a week (in seconds); that is, {EXPIRES_MAX}"
            )));
        }
        (false, Ok(seconds)) => seconds,
    };
    let claimed = Claimed {
        access_key: credential.access_key.into(),
        day: credential.day.into(),
        region: credential.region.into(),
        signed_headers: get("X-Amz-SignedHeaders")?.into(),
        signature: parse_signature(get("X-Amz-Signature")?).ok_or(S3Code::SignatureDoesNotMatch)?,
        date: date.into(),
        date_ms,
        expires: Some(expires),
    };
    if !claimed.date.starts_with(&claimed.day) {
        return Err(malformed(format!("invalid credential date \"{}\"; it is not the day of X-Amz-Date", claimed.day)));
    }
    Ok(claimed)
}

/// What is needed of a request to compute its signature.
pub(super) struct Signable<'a> {
    pub method: &'a str,
    /// As it came.
    pub path: &'a str,
    pub query: &'a Query,
    pub headers: &'a HeaderMap,
    /// The value of `x-amz-content-sha256`.
    pub payload: &'a [u8],
}

/// Refuses headers that mean something and are not signed: whoever relays the request could have added them.
///
/// # Errors
/// `AccessDenied`, naming them.
pub(super) fn check_signed_headers(claimed: &Claimed, headers: &HeaderMap) -> S3Result<()> {
    let unsigned = |name: &str| (name == "host" || name.starts_with("x-amz-")) && !claimed.signs(name);
    let missing: Vec<&str> = headers.keys().map(HeaderName::as_str).filter(|name| unsigned(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message = "there were headers present in the request which were not signed";
    Err(S3Error::new(S3Code::AccessDenied, message).detail("HeadersNotSigned", missing.join(", ")))
}

/// Verifies the signature with the key of its day.
///
/// # Errors
/// `SignatureDoesNotMatch`, with what we signed, so that authors of clients find the difference. Neither tells anything of the secret.
pub(super) fn verify(claimed: &Claimed, request: &Signable<'_>, key: &hmac::Key) -> S3Result<()> {
    // Clients sign the path as they send it, but some encode more for the one than for the other.
    let canonical = canonical_request(claimed, request, request.path.as_bytes());
    let text = string_to_sign(claimed, &canonical);
    if hmac::verify(key, &text, &claimed.signature).is_ok() {
        return Ok(());
    }
    if let Ok(decoded) = crate::route::percent_decode(request.path.as_bytes(), false) {
        let mut encoded = Vec::with_capacity(request.path.len());
        percent_encode(&decoded, true, &mut encoded);
        if encoded != request.path.as_bytes() {
            let again = string_to_sign(claimed, &canonical_request(claimed, request, &encoded));
            if hmac::verify(key, &again, &claimed.signature).is_ok() {
                return Ok(());
            }
        }
    }
    Err(S3Error::from(S3Code::SignatureDoesNotMatch)
        .detail("AWSAccessKeyId", claimed.access_key.as_str())
        .detail("StringToSign", String::from_utf8_lossy(&text))
        .detail("SignatureProvided", hex::encode(claimed.signature))
        .detail("CanonicalRequest", String::from_utf8_lossy(&canonical)))
}

fn canonical_request(claimed: &Claimed, request: &Signable<'_>, path: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(1024);
    text.extend_from_slice(request.method.as_bytes());
    text.push(b'\n');
    text.extend_from_slice(if path.is_empty() { b"/" } else { path });
    text.push(b'\n');
    request.query.write_canonical(&mut text);
    text.push(b'\n');
    for name in claimed.signed_headers.split(';') {
        text.extend_from_slice(name.as_bytes());
        text.push(b':');
        for (index, value) in request.headers.get_all(name).iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            write_trimmed(value.as_bytes(), &mut text);
        }
        text.push(b'\n');
    }
    text.push(b'\n');
    text.extend_from_slice(claimed.signed_headers.as_bytes());
    text.push(b'\n');
    text.extend_from_slice(request.payload);
    text
}

/// Without blanks at the ends, and with one instead of several in between.
fn write_trimmed(value: &[u8], out: &mut Vec<u8>) {
    let value = value.trim_ascii();
    if !value.windows(2).any(|pair| pair == b"  ") {
        out.extend_from_slice(value);
        return;
    }
    let mut before = 0;
    for &byte in value {
        if byte != b' ' || before != b' ' {
            out.push(byte);
        }
        before = byte;
    }
}

fn string_to_sign(claimed: &Claimed, canonical: &[u8]) -> Vec<u8> {
    let mut hash = [0; 64];
    hex::encode_to_slice(digest::digest(&digest::SHA256, canonical), &mut hash).expect("32 bytes are 64 digits");
    let scope = claimed.scope();
    [ALGORITHM.as_bytes(), claimed.date.as_bytes(), scope.as_bytes(), &hash].join(&b'\n')
}

/// The key of a day, region and service.
pub(super) fn signing_key(secret: &[u8], day: &str, region: &str) -> hmac::Key {
    let sign = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    let mut first = b"AWS4".to_vec();
    first.extend_from_slice(secret);
    let day = sign(&first, day);
    let region = sign(day.as_ref(), region);
    let service = sign(region.as_ref(), "s3");
    let key = sign(service.as_ref(), "aws4_request");
    hmac::Key::new(hmac::HMAC_SHA256, key.as_ref())
}
