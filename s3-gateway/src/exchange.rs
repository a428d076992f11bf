//! One request and its answer: gate, router, operation, and what every answer has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Uri};
use hyper::body::Incoming;
use ozone_common::ErrorCode;
use ozone_common::env::Rng;
use ozone_common::telemetry::{Outcome, Record, audit};

use crate::auth::{Head, Verified};
use crate::body::{Arriving, Body, Claims};
use crate::error::{S3Code, S3Error, S3Result};
use crate::gateway::Gateway;
use crate::op::{self, Backend, Request};
use crate::response::{Payload, Response};
use crate::route::{self, Op, Query, Target};

static REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
static ID_2: HeaderName = HeaderName::from_static("x-amz-id-2");
static COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const XML: HeaderValue = HeaderValue::from_static("application/xml");
const SERVER: HeaderValue = HeaderValue::from_static("Ozone");
// LIMIT: bytes of all header names and values together.
const HEADERS_MAX: usize = 32 << 10;

/// Ids of requests: unique within the cluster as far as 64 random bits make them so.
pub(crate) struct Ids {
    next: AtomicU64,
    /// Which gateway answered.
    gateway: HeaderValue,
}

impl Ids {
    /// Begins at a random number.
    pub fn new(rng: &dyn Rng) -> Self {
        let gateway = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let gateway = HeaderValue::from_str(&gateway).expect("hexadecimal digits are a header's value");
        Self { next: AtomicU64::new(rng.next_u64()), gateway }
    }

    fn next(&self) -> Arc<str> {
        // An odd step visits every number before it repeats one, and neighbours do not look alike.
        let number = self.next.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        format!("{number:016X}").into()
    }
}

/// What became known of a request on its way, for the audit trail and metrics.
#[derive(Default)]
struct Known {
    op: Option<Op>,
    identity: Option<Verified>,
}

/// Answers one request.
pub(crate) async fn answer<B: Backend>(
    gateway: Arc<Gateway<B>>,
    request: http::Request<Incoming>,
) -> http::Response<Payload> {
    let begun = gateway.env.clock.boot();
    let id = gateway.ids.next();
    let (parts, incoming) = request.into_parts();
    let (uri, head) = (parts.uri.clone(), parts.method == Method::HEAD);
    let mut known = Known::default();
    let outcome = serve(&gateway, parts, incoming, &id, &mut known).await;
    record(&known, &uri, &id, outcome.as_ref().err());
    let mut response = outcome.unwrap_or_else(|error| refusal(error, uri.path(), &id, head));
    let seconds = gateway.env.clock.boot().saturating_sub(begun).as_secs_f64();
    gateway.metrics.count(known.op, response.status, seconds);
    let id = HeaderValue::from_str(&id).expect("hexadecimal digits are a header's value");
    response.headers.insert(&REQUEST_ID, id);
    response.headers.insert(&ID_2, gateway.ids.gateway.clone());
    response.headers.insert(header::SERVER, SERVER);
    let mut answer = http::Response::new(response.body);
    *answer.status_mut() = response.status;
    *answer.headers_mut() = response.headers;
    answer
}

async fn serve<B: Backend>(
    gateway: &Arc<Gateway<B>>,
    parts: Parts,
    incoming: Incoming,
    id: &Arc<str>,
    known: &mut Known,
) -> S3Result<Response> {
    let now_ms = gateway.env.clock.now_ms();
    let arriving = Arriving::new(incoming, &parts.headers, gateway.drain.clone());
    let Parts { method, uri, mut headers, .. } = parts;
    check_size(&headers)?;
    let query = Query::parse(uri.query().unwrap_or_default())?;
    let host_bucket = route::bucket_of_host(host_of(&uri, &headers)?, &gateway.config.domains);
    let host_bucket = host_bucket.as_deref();
    let head = Head { method: &method, path: uri.path(), query: &query, headers: &headers, host_bucket };
    let passed = gateway.gate.pass(head, now_ms).await?;
    known.identity = Some(passed.identity.clone());
    let target = Target::parse(uri.path(), host_bucket)?;
    if passed.presigned {
        add_hoisted(&query, &mut headers)?;
    }
    let op = route::find(&method, target.scope(), &query, headers.contains_key(&COPY_SOURCE))?;
    known.op = Some(op);
    strip_aws_chunked(&mut headers);
    let claims = Claims::read(&headers, passed.hash, passed.signer, op.checks_body())?;
    let body = Body::arriving(arriving, claims, gateway.config.body_timeout.duration());
    let request = Request { identity: passed.identity, id: id.clone(), op, target, query, headers, body };
    op::serve(gateway, request).await
}

fn check_size(headers: &HeaderMap) -> S3Result<()> {
    let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if size <= HEADERS_MAX {
        return Ok(());
    }
    let message = "the request's headers exceed the maximum allowed size";
    Err(S3Error::new(S3Code::RequestHeaderSectionTooLarge, message).detail("MaxSizeAllowed", HEADERS_MAX.to_string()))
}

/// The host that a request is for; empty where none is named.
///
/// A target in absolute form names one too, which HTTP puts above `Host` (RFC 9112 §3.2.2) and no signature covers: where it were followed,
/// whoever holds a presigned URL could choose the bucket. So the two must agree.
fn host_of<'a>(uri: &Uri, headers: &'a HeaderMap) -> S3Result<&'a [u8]> {
    let refused = |message: &'static str| Err(S3Error::new(S3Code::InvalidRequest, message));
    let mut hosts = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
    let host = hosts.next().unwrap_or_default();
    if hosts.next().is_some() {
        return refused("one Host header is expected, several came");
    }
    match uri.authority() {
        Some(authority) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host) => {
            refused("the request's target and its Host header name different hosts")
        }
        _ => Ok(host),
    }
}

/// Presigned URLs may carry headers as parameters, which are signed there.
fn add_hoisted(query: &Query, headers: &mut HeaderMap) -> S3Result<()> {
    const OF_THE_SIGNATURE: [&str; 8] = [
        "x-amz-algorithm",
        "x-amz-credential",
        "x-amz-date",
        "x-amz-expires",
        "x-amz-signedheaders",
        "x-amz-signature",
        "x-amz-content-sha256",
        // SDKs put it into URLs whose user will not send the checksum.
        "x-amz-sdk-checksum-algorithm",
    ];
    for (name, value) in query.pairs() {
        let name = name.to_ascii_lowercase();
        let header = name.starts_with(b"x-amz-") || matches!(&name[..], b"content-type" | b"content-md5");
        if !header || OF_THE_SIGNATURE.iter().any(|known| known.as_bytes() == name) {
            continue;
        }
        let invalid =
            || S3Error::invalid_argument(&String::from_utf8_lossy(&name), value, "a parameter is no valid header");
        let header = HeaderName::from_bytes(&name).map_err(|_| invalid())?;
        let value = HeaderValue::from_bytes(value).map_err(|_| invalid())?;
        headers.entry(header).or_insert(value);
    }
    Ok(())
}

/// `aws-chunked` is how the body travelled, not what it is. It may stand on any of the header's lines.
fn strip_aws_chunked(headers: &mut HeaderMap) {
    let chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"aws-chunked");
    let lines = headers.get_all(header::CONTENT_ENCODING);
    let codings = || lines.iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    if !codings().any(|coding| chunked(&coding)) {
        return;
    }
    let kept: Vec<&[u8]> = codings().filter(|coding| !coding.is_empty() && !chunked(coding)).collect();
    match HeaderValue::from_bytes(&kept.join(&b","[..])) {
        Ok(value) if !kept.is_empty() => {
            headers.insert(header::CONTENT_ENCODING, value);
        }
        Ok(_) | Err(_) => {
            headers.remove(header::CONTENT_ENCODING);
        }
    }
}

/// An error as an answer; one to HEAD has no body.
fn refusal(error: S3Error, resource: &str, id: &str, head: bool) -> Response {
    error.log(id);
    let mut response = Response::new(error.code.status());
    response.headers.insert(header::CONTENT_TYPE, XML);
    if !head {
        response.body = Payload::Whole(error.document(resource, id));
    }
    response.headers.extend(error.headers.into_iter().map(|(name, value)| (Some(name), value)));
    response
}

/// One line in the audit trail for each change and each denial.
fn record(known: &Known, uri: &Uri, id: &str, error: Option<&S3Error>) {
    let denial = error.and_then(denial);
    if !known.op.is_some_and(Op::changes) && denial.is_none() {
        return;
    }
    let failure = error.map(|error| {
        let code = denial.or(error.cause.as_ref().map(|cause| cause.code)).unwrap_or(
            match error.code.status().is_server_error() {
                true => ErrorCode::Internal,
                false => ErrorCode::InvalidArgument,
            },
        );
        ozone_common::Error::new(code, error.to_string())
    });
    audit(&Record {
        role: "s3g",
        who: known.identity.as_ref().map_or("", |identity| identity.user()),
        op: known.op.map_or("Authenticate", Op::name),
        resource: &uri.path(),
        outcome: failure.as_ref().map_or(Outcome::Success, Outcome::Failure),
        request_id: id,
    });
}

/// What a refusal is to the audit trail, where it is a matter of who asks.
fn denial(error: &S3Error) -> Option<ErrorCode> {
    match error.code {
        S3Code::AccessDenied if error.cause.is_some() => Some(ErrorCode::PermissionDenied),
        S3Code::AccessDenied
        | S3Code::InvalidAccessKeyId
        | S3Code::InvalidToken
        | S3Code::RequestTimeTooSkewed
        | S3Code::SignatureDoesNotMatch => Some(ErrorCode::Unauthenticated),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_chunked_is_stripped() {
        for (before, after) in [
            (&["aws-chunked"][..], None),
            (&["aws-chunked,gzip"], Some("gzip")),
            (&["gzip, aws-chunked"], Some("gzip")),
            (&["gzip, AWS-Chunked"], Some("gzip")),
            (&["gzip"], Some("gzip")),
            (&["gzip, br"], Some("gzip, br")),
            (&[" aws-chunked , "], None),
            (&["gzip", "aws-chunked"], Some("gzip")),
            (&["aws-chunked", "gzip", "br"], Some("gzip,br")),
            (&["aws-chunked", "aws-chunked"], None),
            (&["gzip", "br"], Some("gzip|br")),
            (&["\u{e9}", "aws-chunked"], Some("\u{e9}")),
        ] {
            let mut headers = HeaderMap::new();
            for line in before {
                headers.append(header::CONTENT_ENCODING, HeaderValue::from_bytes(line.as_bytes()).unwrap());
            }
            strip_aws_chunked(&mut headers);
            let lines: Vec<&str> = headers
                .get_all(header::CONTENT_ENCODING)
                .iter()
                .map(|value| std::str::from_utf8(value.as_bytes()).unwrap())
                .collect();
            assert_eq!(lines.join("|"), after.unwrap_or_default(), "{before:?}");
        }
    }

    #[test]
    fn parameters_become_headers_but_do_not_replace_them() {
        let query =
            Query::parse("X-Amz-Signature=1&x-amz-meta-a=b&X-Amz-Meta-C=d&x-id=PutObject&prefix=p&content-type=t")
                .unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-meta-c", HeaderValue::from_static("kept"));
        add_hoisted(&query, &mut headers).unwrap();
        assert_eq!(
            (headers.len(), &headers["x-amz-meta-a"], &headers["x-amz-meta-c"]),
            (3, &HeaderValue::from_static("b"), &HeaderValue::from_static("kept"))
        );
        assert!(add_hoisted(&Query::parse("x-amz-meta-%20=b").unwrap(), &mut headers).is_err());
        assert!(add_hoisted(&Query::parse("x-amz-meta-a=%0a").unwrap(), &mut headers).is_err());
    }

    #[test]
    fn headers_have_a_limit() {
        let mut headers = HeaderMap::new();
        headers.insert("a", HeaderValue::from_str(&"x".repeat(HEADERS_MAX - 1)).unwrap());
        assert!(check_size(&headers).is_ok());
        headers.insert("b", HeaderValue::from_static(""));
        assert_eq!(check_size(&headers).unwrap_err().code, S3Code::RequestHeaderSectionTooLarge);
    }
}
