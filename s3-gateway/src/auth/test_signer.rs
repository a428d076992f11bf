//! Signs requests of tests: written down straight from the specification, without the gate's code.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ozone_client::proto::om::v1::Secret;
use ozone_common::{Error, ErrorCode};
use ring::{digest, hmac};

use super::Lookup;

pub(crate) const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
/// The moment of AWS's published examples,
pub(crate) const DATE: &str = "20130524T000000Z";
/// in milliseconds.
pub(crate) const NOW_MS: u64 = 1_369_353_600_000;
pub(crate) const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";

/// Knows one access key, that of `alice`.
pub(crate) fn lookup() -> Lookup {
    Box::new(|access_key| {
        Box::pin(async move {
            match access_key == ACCESS_KEY {
                true => Ok(Secret { access_key, secret_key: SECRET.into(), user: "alice".into(), created: false }),
                false => Err(Error::new(ErrorCode::SecretNotFound, "no such key")),
            }
        })
    })
}

/// The signing key of the day of the examples.
pub(crate) fn key() -> hmac::Key {
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in SCOPE.split('/') {
        key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
    }
    hmac::Key::new(hmac::HMAC_SHA256, &key)
}

/// The HMAC of a text under [`key`], in hexadecimal.
pub(crate) fn sign(text: &str) -> String {
    hex::encode(hmac::sign(&key(), text.as_bytes()))
}

/// The signature of version 2 of a text.
pub(crate) fn sign_v2(text: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes());
    STANDARD.encode(hmac::sign(&key, text.as_bytes()))
}

/// SHA-256, in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes))
}

/// The signature of a request whose path and query are in their canonical form; `signed` names the headers that are signed.
pub(crate) fn signature(method: &str, path: &str, query: &str, headers: &[(String, String)], signed: &str) -> String {
    let get = |name: &str| headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.trim());
    let lines: String = signed.split(';').map(|name| format!("{name}:{}\n", get(name))).collect();
    let payload = get("x-amz-content-sha256");
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{signed}\n{payload}");
    sign(&format!("AWS4-HMAC-SHA256\n{}\n{SCOPE}\n{}", get("x-amz-date"), sha256(canonical.as_bytes())))
}

/// `Authorization` with this signature.
pub(crate) fn authorization(signed: &str, signature: &str) -> String {
    format!("AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{SCOPE},SignedHeaders={signed},Signature={signature}")
}
