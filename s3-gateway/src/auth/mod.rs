//! Who asks. One gate stands before the router; what it lets through carries a [`Verified`] that is made nowhere else.
//!
//! The order of its questions: is there exactly one signature, is it well-formed, of this region, of this time; does its access key
//! exist; is everything signed that must be; is it right. Each has S3's own answer.

#[cfg(test)]
mod gate_test;
mod secret_cache;
mod sigv2;
mod sigv4;
#[cfg(test)]
pub(crate) mod test_signer;

use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use ozone_common::env::Clock;

pub(crate) use self::secret_cache::Lookup;
use self::secret_cache::SecretCache;
pub(crate) use self::sigv2::is_own_parameter;
use crate::body::{CONTENT_SHA256, ChunkSigner, HashHeader};
use crate::error::{S3Code, S3Error, S3Result};
use crate::route::Query;
use crate::time::iso_8601;

/// How far a client's clock may be from ours.
const SKEW_MAX_MS: u64 = 15 * 60 * 1000;
const UNSIGNED: &[u8] = b"UNSIGNED-PAYLOAD";
static SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// A user whose signature was verified. Only the gate makes one: the fields are private to `auth`.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    user: Arc<str>,
}

impl Verified {
    /// The user, as the OM knows it.
    pub fn user(&self) -> &Arc<str> {
        &self.user
    }

    /// A user of tests, who signs nothing.
    #[cfg(test)]
    pub fn for_tests(user: &str) -> Self {
        Self { user: user.into() }
    }
}

/// What the gate lets through.
pub(crate) struct Passed {
    /// Who asks.
    pub identity: Verified,
    /// How the body is bound to the signature,
    pub hash: HashHeader,
    /// and what verifies its chunks, where they are signed.
    pub signer: Option<Box<ChunkSigner>>,
    /// Whether a presigned URL was used.
    pub presigned: bool,
}

/// The head of a request.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub method: &'a Method,
    /// As it came.
    pub path: &'a str,
    pub query: &'a Query,
    pub headers: &'a HeaderMap,
    /// The bucket that the host names, where it is below one of the domains of virtual hosts.
    pub host_bucket: Option<&'a str>,
}

/// How a request says who it is.
enum Mechanism {
    Version4(sigv4::Claimed),
    Version2(sigv2::Claimed),
}

/// The gate.
pub(crate) struct Gate {
    secrets: SecretCache,
    region: String,
}

impl Gate {
    /// A gate for requests signed for `region`, with secrets that are kept for `secret_life`.
    pub fn new(lookup: Lookup, clock: Arc<dyn Clock>, region: String, secret_life: Duration) -> Self {
        Self { secrets: SecretCache::new(lookup, clock, secret_life), region }
    }

    /// Verifies a request's signature; its body is verified as it is read.
    ///
    /// # Errors
    /// What S3 answers.
    pub async fn pass(&self, head: Head<'_>, now_ms: u64) -> S3Result<Passed> {
        let mechanism = mechanism(head.query, head.headers)?;
        if head.headers.contains_key(&SECURITY_TOKEN) || head.query.has("X-Amz-Security-Token") {
            return Err(S3Error::new(
                S3Code::InvalidToken,
                "there are no temporary credentials here: the security token is of no use",
            ));
        }
        match mechanism {
            Mechanism::Version4(claimed) => self.pass_v4(&claimed, head, now_ms).await,
            Mechanism::Version2(claimed) => self.pass_v2(&claimed, head, now_ms).await,
        }
    }

    async fn pass_v4(&self, claimed: &sigv4::Claimed, head: Head<'_>, now_ms: u64) -> S3Result<Passed> {
        let Head { method, path, query, headers, .. } = head;
        self.check_region(claimed)?;
        check_time(claimed, now_ms)?;
        let payload = payload(claimed, query, headers)?;
        let hash = HashHeader::parse(payload)?;
        let known = self.secrets.get(&claimed.access_key).await?;
        sigv4::check_signed_headers(claimed, headers)?;
        let key = known.signing_key(&claimed.day, &self.region);
        sigv4::verify(claimed, &sigv4::Signable { method: method.as_str(), path, query, headers, payload }, &key)?;
        let signer = hash
            .signed_chunks
            .then(|| Box::new(ChunkSigner::new(key, &claimed.date, &claimed.scope(), &claimed.signature)));
        let identity = Verified { user: known.user.clone() };
        Ok(Passed { identity, hash, signer, presigned: claimed.expires.is_some() })
    }

    async fn pass_v2(&self, claimed: &sigv2::Claimed, head: Head<'_>, now_ms: u64) -> S3Result<Passed> {
        let Head { method, path, query, headers, host_bucket } = head;
        if now_ms > claimed.expires_ms() {
            return Err(S3Error::new(S3Code::AccessDenied, "request has expired")
                .detail("Expires", iso_8601(claimed.expires_ms()))
                .detail("ServerTime", iso_8601(now_ms)));
        }
        let hash = HashHeader::parse(headers.get(&CONTENT_SHA256).map_or(UNSIGNED, HeaderValue::as_bytes))?;
        if hash.signed_chunks {
            return Err(S3Error::new(
                S3Code::InvalidRequest,
                "signed chunks need a request signed with AWS4-HMAC-SHA256",
            ));
        }
        let known = self.secrets.get(&claimed.access_key).await?;
        let request = sigv2::Signable { method: method.as_str(), host_bucket, path, query, headers };
        sigv2::verify(claimed, &request, known.secret())?;
        Ok(Passed { identity: Verified { user: known.user.clone() }, hash, signer: None, presigned: true })
    }

    fn check_region(&self, claimed: &sigv4::Claimed) -> S3Result<()> {
        if claimed.region == self.region {
            return Ok(());
        }
        let region: String = claimed.region.chars().take(64).collect();
        let why = format!("the region '{region}' is wrong; expecting '{}'", self.region);
        let error = match claimed.expires {
            None => S3Error::new(
                S3Code::AuthorizationHeaderMalformed,
                format!("the authorization header is malformed; {why}"),
            ),
            Some(_) => S3Error::new(
                S3Code::AuthorizationQueryParametersError,
                format!("error parsing X-Amz-Credential; {why}"),
            ),
        };
        Err(error.detail("Region", self.region.as_str()))
    }
}

fn mechanism(query: &Query, headers: &HeaderMap) -> S3Result<Mechanism> {
    let version_4 = query.has("X-Amz-Algorithm") || query.has("X-Amz-Signature") || query.has("X-Amz-Credential");
    let version_2 = query.has("AWSAccessKeyId") || query.has("Signature");
    let mut authorizations = headers.get_all(AUTHORIZATION).iter();
    match (authorizations.next(), authorizations.next(), version_4, version_2) {
        (Some(value), None, false, false) => sigv4::from_header(value.as_bytes(), headers).map(Mechanism::Version4),
        (None, None, true, false) => sigv4::from_query(query).map(Mechanism::Version4),
        (None, None, false, true) => sigv2::from_query(query).map(Mechanism::Version2),
        (None, None, false, false) => Err(S3Code::AccessDenied.into()),
        _ => Err(one_mechanism()),
    }
}

fn one_mechanism() -> S3Error {
    S3Error::new(
        S3Code::InvalidArgument,
        "only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or the \
         Authorization header should be specified",
    )
}

fn check_time(claimed: &sigv4::Claimed, now_ms: u64) -> S3Result<()> {
    let Some(expires) = claimed.expires else {
        if claimed.date_ms.abs_diff(now_ms) <= SKEW_MAX_MS {
            return Ok(());
        }
        let message = "the difference between the request time and the current time is too large";
        return Err(S3Error::new(S3Code::RequestTimeTooSkewed, message)
            .detail("RequestTime", claimed.date.as_str())
            .detail("ServerTime", iso_8601(now_ms))
            .detail("MaxAllowedSkewMilliseconds", SKEW_MAX_MS.to_string()));
    };
    if claimed.date_ms > now_ms + SKEW_MAX_MS {
        return Err(
            S3Error::new(S3Code::AccessDenied, "request is not valid yet").detail("ServerTime", iso_8601(now_ms))
        );
    }
    let end_ms = claimed.date_ms + expires * 1000;
    if now_ms > end_ms {
        return Err(S3Error::new(S3Code::AccessDenied, "request has expired")
            .detail("X-Amz-Expires", expires.to_string())
            .detail("Expires", iso_8601(end_ms))
            .detail("ServerTime", iso_8601(now_ms)));
    }
    Ok(())
}

/// The value of `x-amz-content-sha256`, which a presigned URL may leave out.
fn payload<'a>(claimed: &sigv4::Claimed, query: &'a Query, headers: &'a HeaderMap) -> S3Result<&'a [u8]> {
    match (headers.get(&CONTENT_SHA256), claimed.expires) {
        (Some(value), _) => Ok(value.as_bytes()),
        (None, Some(_)) => Ok(query.bytes("X-Amz-Content-Sha256").unwrap_or(UNSIGNED)),
        (None, None) => {
            Err(S3Error::new(S3Code::InvalidRequest, "missing required header for this request: x-amz-content-sha256"))
        }
    }
}
