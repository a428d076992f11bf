//! AWS signature version 4, as far as the load generator needs it ("Authenticating Requests: Using the Authorization Header").

use std::fmt::Write;

use hyper::Method;
use ozone_common::time::Utc;
use ring::{digest, hmac};

/// What stands for a body that is not hashed.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Signs requests of one user. The day's key is kept.
#[derive(Debug)]
pub struct Signer {
    access_key: String,
    secret_key: String,
    region: String,
    day: String,
    day_key: hmac::Key,
}

/// What is signed.
#[derive(Clone, Copy)]
pub struct Signed<'a> {
    pub method: &'a Method,
    pub host: &'a str,
    /// Escaped, with the leading slash.
    pub path: &'a str,
    /// Escaped and in the order of names.
    pub query: &'a str,
    /// SHA-256 of the body in hexadecimal, or [`UNSIGNED`].
    pub payload: &'a str,
    /// Further headers, names in lower case: those of S3 must all be signed.
    pub headers: &'a [(&'a str, &'a str)],
}

/// The headers that a signature adds.
pub struct Headers {
    pub date: String,
    pub authorization: String,
}

fn mac(key: &hmac::Key, text: &str) -> hmac::Tag {
    hmac::sign(key, text.as_bytes())
}

fn key(bytes: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, bytes)
}

/// SHA-256 in hexadecimal.
pub fn sha256_hex<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    pieces.into_iter().for_each(|piece| hash.update(piece));
    hex::encode(hash.finish())
}

impl Signer {
    pub fn new(access_key: &str, secret_key: &str, region: &str) -> Self {
        let (access_key, secret_key, region) = (access_key.into(), secret_key.into(), region.into());
        Self { access_key, secret_key, region, day: String::new(), day_key: key(&[]) }
    }

    pub fn sign(&mut self, request: &Signed<'_>, now_ms: u64) -> Headers {
        let Utc { year, month, day, hour, minute, second, .. } = Utc::from_ms(now_ms);
        let day = format!("{year:04}{month:02}{day:02}");
        let date = format!("{day}T{hour:02}{minute:02}{second:02}Z");
        if day != self.day {
            let mut tag = mac(&key(format!("AWS4{}", self.secret_key).as_bytes()), &day);
            for part in [self.region.as_str(), "s3", "aws4_request"] {
                tag = mac(&key(tag.as_ref()), part);
            }
            self.day_key = key(tag.as_ref());
            self.day = day;
        }
        let Signed { method, host, path, query, payload, headers } = request;
        let mut lines = vec![("host", *host), ("x-amz-content-sha256", *payload), ("x-amz-date", date.as_str())];
        lines.extend_from_slice(headers);
        lines.sort_unstable();
        let names = lines.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let mut canonical = format!("{method}\n{path}\n{query}\n");
        for (name, value) in lines {
            canonical.extend([name, ":", value, "\n"]);
        }
        canonical.extend(["\n", &names, "\n", payload]);
        let scope = format!("{}/{}/s3/aws4_request", self.day, self.region);
        let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", sha256_hex([canonical.as_bytes()]));
        let signature = hex::encode(mac(&self.day_key, &to_sign));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.access_key
        );
        Headers { date, authorization }
    }
}

/// Escapes as signatures want it (RFC 3986): everything but letters, digits and `-._~`; `/` stays where `slash` says so.
pub fn escape(text: &[u8], slash: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(*byte)),
            b'/' if slash => escaped.push('/'),
            _ => write!(escaped, "%{byte:02X}").expect("writing to a String does not fail"),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example "GET Bucket (List Objects)" of the S3 API's page on signature calculation.
    #[test]
    fn the_example_of_the_documentation() {
        let mut signer = Signer::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1");
        let empty = sha256_hex([]);
        let request = Signed {
            method: &Method::GET,
            host: "examplebucket.s3.amazonaws.com",
            path: "/",
            query: "max-keys=2&prefix=J",
            payload: &empty,
            headers: &[],
        };
        let headers = signer.sign(&request, 1_369_353_600_000);
        assert_eq!(headers.date, "20130524T000000Z");
        let signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert_eq!(headers.authorization.rsplit_once('=').unwrap().1, signature);
        let more = Signed { headers: &[("content-type", "x"), ("x-amz-acl", "private")], ..request };
        let more = signer.sign(&more, 1_369_353_600_000).authorization;
        assert!(more.contains("SignedHeaders=content-type;host;x-amz-acl;x-amz-content-sha256;x-amz-date,"), "{more}");
        // The day's key is kept, and made anew for another day.
        let again = signer.sign(&request, 1_369_353_600_000);
        assert_eq!(again.authorization, headers.authorization);
        assert_ne!(signer.sign(&request, 1_369_440_000_000).authorization, headers.authorization);
    }

    #[test]
    fn escapes() {
        assert_eq!(escape("a/b c+é~".as_bytes(), true), "a/b%20c%2B%C3%A9~");
        assert_eq!(escape(b"a/b", false), "a%2Fb");
    }
}
