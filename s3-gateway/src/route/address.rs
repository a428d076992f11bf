//! Which bucket and key a request is about, from its path and host.
//!
//! Path style is `/bucket/key`, virtual-host style `Host: bucket.domain` with `/key`. A key is everything after the one slash that
//! begins it, decoded once and never normalised: `a//b`, `a/../b` and `a/` are keys.

use bytes::Bytes;
use ozone_common::limits::KEY_LENGTH_MAX;
use ozone_common::name::{BucketName, KeyName};

use super::query::{is_plain, percent_decode};
use super::table::Scope;
use crate::error::{S3Code, S3Error, S3Result};

/// What a request is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// All buckets.
    Service,
    /// One bucket.
    Bucket(BucketName),
    /// One key of it.
    Object(BucketName, KeyName),
}

impl Target {
    /// Reads the path, and the bucket that the host names.
    ///
    /// # Errors
    /// `InvalidURI`, `InvalidBucketName`, `KeyTooLongError`.
    pub fn parse(path: &str, host_bucket: Option<&str>) -> S3Result<Self> {
        let path =
            path.strip_prefix('/').ok_or_else(|| S3Error::new(S3Code::InvalidURI, "the path must begin with `/`"))?;
        let (bucket, key) = match host_bucket {
            Some(bucket) => (bucket.to_owned(), path),
            None => {
                let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
                (decode_text(bucket)?, key)
            }
        };
        if bucket.is_empty() {
            return match key.is_empty() {
                true => Ok(Self::Service),
                false => Err(S3Error::new(S3Code::InvalidBucketName, "the path begins with an empty bucket name")),
            };
        }
        let bucket =
            BucketName::new(bucket.as_str()).map_err(|error| S3Error::from(error).detail("BucketName", bucket))?;
        if key.is_empty() {
            return Ok(Self::Bucket(bucket));
        }
        let key =
            if is_plain(key.as_bytes()) { Bytes::copy_from_slice(key.as_bytes()) } else { decode_text(key)?.into() };
        if key.len() > KEY_LENGTH_MAX {
            return Err(S3Error::from(S3Code::KeyTooLongError)
                .detail("Size", key.len().to_string())
                .detail("MaxSizeAllowed", KEY_LENGTH_MAX.to_string()));
        }
        Ok(Self::Object(bucket, KeyName::new(key)?))
    }

    /// Which kind of target it is.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Service => Scope::Service,
            Self::Bucket(_) => Scope::Bucket,
            Self::Object(..) => Scope::Object,
        }
    }
}

/// Names are UTF-8, as S3 asks for: documents could not tell other keys apart.
fn decode_text(text: &str) -> S3Result<String> {
    String::from_utf8(percent_decode(text.as_bytes(), false)?)
        .map_err(|_| S3Error::new(S3Code::InvalidURI, "the path is not UTF-8 once it is decoded"))
}

/// The bucket that the host names, where it is below one of the domains of virtual hosts, which are in lower case.
pub(crate) fn bucket_of_host(host: &[u8], domains: &[String]) -> Option<String> {
    if domains.is_empty() {
        return None;
    }
    let host = std::str::from_utf8(host).ok()?;
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let host = host.to_ascii_lowercase();
    let bucket = domains.iter().find_map(|domain| host.strip_suffix(domain.as_str())?.strip_suffix('.'))?;
    (!bucket.is_empty()).then(|| bucket.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, host: &str, expected: Result<(&str, &str), S3Code>) {
        let domains = ["s3.example.com".to_owned(), "localhost".to_owned()];
        let found =
            Target::parse(path, bucket_of_host(host.as_bytes(), &domains).as_deref()).map_err(|error| error.code);
        let found = found.map(|target| match target {
            Target::Service => (String::new(), String::new()),
            Target::Bucket(bucket) => (bucket.to_string(), String::new()),
            Target::Object(bucket, key) => (bucket.to_string(), String::from_utf8(key.as_bytes().to_vec()).unwrap()),
        });
        assert_eq!(found, expected.map(|(bucket, key)| (bucket.to_owned(), key.to_owned())), "{path} {host}");
    }

    #[test]
    fn keys_are_what_stands_there() {
        let long = format!("/abc/{}", "k".repeat(1024));
        for (path, host, expected) in [
            ("/", "h", Ok(("", ""))),
            ("/abc", "h", Ok(("abc", ""))),
            ("/abc/", "h", Ok(("abc", ""))),
            ("/abc/k", "h:80", Ok(("abc", "k"))),
            ("/abc//", "h", Ok(("abc", "/"))),
            ("/abc/a//b/", "h", Ok(("abc", "a//b/"))),
            ("/abc/a/../b", "h", Ok(("abc", "a/../b"))),
            ("/abc/../../etc/passwd", "h", Ok(("abc", "../../etc/passwd"))),
            ("/abc/a+b%2Bc%20d", "h", Ok(("abc", "a+b+c d"))),
            ("/abc/a%2Fb%252F%00", "h", Ok(("abc", "a/b%2F\0"))),
            ("/abc/%C3%A9", "h", Ok(("abc", "é"))),
            ("/a%62c/k", "h", Ok(("abc", "k"))),
            ("/abc/%ff", "h", Err(S3Code::InvalidURI)),
            ("/abc/%f", "h", Err(S3Code::InvalidURI)),
            ("abc", "h", Err(S3Code::InvalidURI)),
            ("//k", "h", Err(S3Code::InvalidBucketName)),
            ("/ABC/k", "h", Err(S3Code::InvalidBucketName)),
            ("/../k", "h", Err(S3Code::InvalidBucketName)),
            ("/abc%2Fk", "h", Err(S3Code::InvalidBucketName)),
            ("/", "abc.s3.example.com", Ok(("abc", ""))),
            ("/k/l", "ABC.s3.example.com:9878", Ok(("abc", "k/l"))),
            ("//", "abc.localhost", Ok(("abc", "/"))),
            ("/x.y/k", "s3.example.com", Ok(("x.y", "k"))),
            ("/abc/k", "evil-s3.example.com", Ok(("abc", "k"))),
            ("/", "a.b.c.localhost", Ok(("a.b.c", ""))),
            ("/", "_.localhost", Err(S3Code::InvalidBucketName)),
        ] {
            check(path, host, expected);
        }
        check(&long, "h", Ok(("abc", &long[5..])));
        check(&format!("{long}k"), "h", Err(S3Code::KeyTooLongError));
    }

    #[test]
    fn arbitrary_hosts_and_paths_are_targets_or_refused() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/path");
        let words: [&[u8]; 5] = [b".localhost", b"/", b"%2F", b"..", b"\n/"];
        let domains = ["localhost".to_owned()];
        ozone_fuzz::fuzz(corpus, &words, |bytes| {
            let (host, path) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0));
            let Ok(path) = std::str::from_utf8(path.strip_prefix(b"\n").unwrap_or(path)) else { return String::new() };
            match Target::parse(path, bucket_of_host(host, &domains).as_deref()) {
                Ok(Target::Object(_, key)) => {
                    assert!((1..=KEY_LENGTH_MAX).contains(&key.as_bytes().len()));
                    "object".to_owned()
                }
                Ok(other) => format!("{:?}", other.scope()),
                Err(error) => error.message.chars().take(30).collect(),
            }
        });
    }
}
