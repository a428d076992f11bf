//! The gate against AWS's published examples (S3 API Reference, "Examples: signature calculations", "Authenticating requests: using
//! query parameters", "Signature calculations: transferring payload in multiple chunks"), and against everything that can be wrong.

use std::sync::Arc;

use http::HeaderValue;
use ozone_common::env::ManualClock;

use super::test_signer::{ACCESS_KEY, DATE, NOW_MS, authorization, lookup, sign_v2, signature};
use super::*;
use crate::route::{bucket_of_host, percent_decode, percent_encode};

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn gate() -> Gate {
    Gate::new(lookup(), Arc::new(ManualClock::at(NOW_MS)), "us-east-1".into(), Duration::from_secs(10))
}

/// A request, to be signed or broken.
#[derive(Clone)]
struct Call {
    method: Method,
    uri: String,
    headers: Vec<(String, String)>,
}

impl Call {
    fn new(method: &str, uri: &str, headers: &[(&str, &str)]) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { method: method.parse().unwrap(), uri: uri.to_owned(), headers }
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    fn sign(self, path: &str, query: &str, signed: &str) -> Self {
        let signature = signature(self.method.as_str(), path, query, &self.headers, signed);
        self.header("authorization", &authorization(signed, &signature))
    }

    async fn pass(&self) -> S3Result<Passed> {
        self.pass_at(NOW_MS).await
    }

    async fn pass_at(&self, now_ms: u64) -> S3Result<Passed> {
        let uri: http::Uri = self.uri.parse().unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let query = Query::parse(uri.query().unwrap_or_default())?;
        let host = self.headers.iter().find(|(name, _)| name == "host").map_or("", |(_, value)| value);
        let host_bucket = bucket_of_host(host.as_bytes(), &["localhost".to_owned()]);
        let head = Head {
            method: &self.method,
            path: uri.path(),
            query: &query,
            headers: &headers,
            host_bucket: host_bucket.as_deref(),
        };
        gate().pass(head, now_ms).await
    }

    async fn check(&self, expected: Result<(), S3Code>) {
        let outcome = self.pass().await;
        let code = outcome.as_ref().map(|_| ()).map_err(|error| error.code);
        assert_eq!(code, expected, "{} {} {:?}: {:?}", self.method, self.uri, self.headers, outcome.err());
    }
}

fn example(method: &str, uri: &str, headers: &[(&str, &str)], signed: &str, signature: &str) -> Call {
    Call::new(method, uri, headers)
        .header("host", "examplebucket.s3.amazonaws.com")
        .header("x-amz-date", DATE)
        .header("authorization", &authorization(signed, signature))
}

fn get_object() -> Call {
    example(
        "GET",
        "/test.txt",
        &[("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY)],
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    )
}

const PRESIGNED: &str = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F\
                         aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
                         &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";

fn presigned(from: &str, to: &str) -> Call {
    assert!(PRESIGNED.contains(from));
    Call::new("GET", &PRESIGNED.replace(from, to), &[("host", "examplebucket.s3.amazonaws.com")])
}

#[tokio::test]
async fn published_examples_pass() {
    get_object().check(Ok(())).await;
    example(
        "PUT",
        "/test%24file.text",
        &[
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ("x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
        ],
        "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    )
    .check(Ok(()))
    .await;
    for (uri, signature) in [
        ("/?lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/?max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ("/?prefix=J&max-keys=2", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ] {
        let signed = "host;x-amz-content-sha256;x-amz-date";
        example("GET", uri, &[("x-amz-content-sha256", EMPTY)], signed, signature).check(Ok(())).await;
    }
    let passed = presigned("test", "test").pass().await.unwrap();
    assert_eq!((&**passed.identity.user(), passed.presigned), ("alice", true));
    let chunked = &[
        ("content-encoding", "aws-chunked"),
        ("content-length", "66824"),
        ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        ("x-amz-decoded-content-length", "66560"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    let chunked = example(
        "PUT",
        "/examplebucket/chunkObject.txt",
        chunked,
        "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class",
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
    )
    .header("host", "s3.amazonaws.com");
    assert!(chunked.pass().await.unwrap().signer.is_some());
}

#[tokio::test]
async fn whatever_is_changed_after_signing_is_noticed() {
    let good = get_object();
    let other = |uri: &str| Call { uri: uri.into(), ..good.clone() };
    for call in [
        Call { method: Method::HEAD, ..good.clone() },
        other("/test.tx"),
        other("/test.txt/"),
        other("//test.txt"),
        other("/test.txt?acl"),
        good.clone().header("range", "bytes=0-8"),
        good.clone().without("range"),
        good.clone().header("host", "other.s3.amazonaws.com"),
        good.clone().header("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        good.clone().header("x-amz-date", "20130524T000001Z"),
        presigned("test.txt", "test.tx"),
        presigned("Expires=86400", "Expires=86401"),
        presigned("T000000Z", "T000001Z"),
        presigned("d404", "d405"),
        presigned("=aeeed9", "=zeeed9"),
        presigned("&X-Amz-Signature", "&versionId=1&X-Amz-Signature"),
    ] {
        call.check(Err(S3Code::SignatureDoesNotMatch)).await;
    }
}

#[tokio::test]
async fn every_wrong_claim_has_its_own_answer() {
    use S3Code as S;
    let good = get_object();
    let value = good.headers.iter().find(|(name, _)| name == "authorization").unwrap().1.clone();
    let authorization = |from: &str, to: &str| {
        assert!(value.contains(from));
        good.clone().header("authorization", &value.replace(from, to))
    };
    for (call, code) in [
        (good.clone().without("authorization"), S::AccessDenied),
        (good.clone().header("authorization", ""), S::AccessDenied),
        (good.clone().header("authorization", "Bearer x"), S::InvalidArgument),
        (good.clone().header("authorization", "AWS4-HMAC-SHA256"), S::InvalidArgument),
        (good.clone().header("authorization", "AWS4-HMAC-SHA256 "), S::InvalidArgument),
        (good.clone().header("authorization", "AWS AKID:sig"), S::InvalidRequest),
        (authorization("Signature=", "Sign="), S::AuthorizationHeaderMalformed),
        (authorization("Credential=", "Signature="), S::AuthorizationHeaderMalformed),
        (authorization("/s3/", "/ec2/"), S::AuthorizationHeaderMalformed),
        (authorization("aws4_request", "aws4"), S::AuthorizationHeaderMalformed),
        (authorization("/20130524/", "/2013052/"), S::AuthorizationHeaderMalformed),
        (authorization("/20130524/", "/20130525/"), S::AuthorizationHeaderMalformed),
        (authorization("us-east-1", "eu-west-1"), S::AuthorizationHeaderMalformed),
        (authorization("us-east-1/", ""), S::AuthorizationHeaderMalformed),
        (authorization(ACCESS_KEY, ""), S::AuthorizationHeaderMalformed),
        (authorization(ACCESS_KEY, "NOBODY"), S::InvalidAccessKeyId),
        (authorization("bdb41", "bdb4"), S::SignatureDoesNotMatch),
        (authorization("host;", ""), S::AccessDenied),
        (good.clone().header("x-amz-acl", "public-read"), S::AccessDenied),
        (good.clone().header("x-amz-date", "yesterday"), S::AccessDenied),
        (good.clone().without("x-amz-date"), S::AccessDenied),
        (good.clone().without("x-amz-content-sha256"), S::InvalidRequest),
        (good.clone().header("x-amz-content-sha256", "abc"), S::InvalidArgument),
        (good.clone().header("x-amz-content-sha256", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"), S::NotImplemented),
        (good.clone().header("x-amz-security-token", "x"), S::InvalidToken),
        (Call { uri: PRESIGNED.into(), ..good.clone() }, S::InvalidArgument),
        (Call { uri: "/test.txt?AWSAccessKeyId=a&Signature=b&Expires=1".into(), ..good.clone() }, S::InvalidArgument),
        (Call::new("GET", "/k?a=%zz", &[]), S::InvalidURI),
        (presigned("HMAC-SHA256", "HMAC-SHA1"), S::AuthorizationQueryParametersError),
        (presigned("&X-Amz-Expires=86400", ""), S::AuthorizationQueryParametersError),
        (presigned("Expires=86400", "Expires=604801"), S::AuthorizationQueryParametersError),
        (presigned("Expires=86400", "Expires=-1"), S::AuthorizationQueryParametersError),
        (presigned("Expires=86400", "Expires=1e3"), S::AuthorizationQueryParametersError),
        (presigned("20130524T000000Z", "2013-05-24"), S::AuthorizationQueryParametersError),
        (presigned("us-east-1", "eu-west-1"), S::AuthorizationQueryParametersError),
        (presigned("%2Fs3%2F", "%2Fs4%2F"), S::AuthorizationQueryParametersError),
        (presigned("SignedHeaders=host", "SignedHeaders=%ff"), S::AuthorizationQueryParametersError),
        (presigned("SignedHeaders=host", "SignedHeaders=date"), S::AccessDenied),
        (presigned("AKIAIOSFODNN7EXAMPLE", "NOBODY"), S::InvalidAccessKeyId),
    ] {
        call.check(Err(code)).await;
    }
}

#[tokio::test]
async fn time_has_its_bounds() {
    let minutes = |minutes: u64| minutes * 60_000;
    for (call, now_ms, expected) in [
        (get_object(), NOW_MS + minutes(15), None),
        (get_object(), NOW_MS - minutes(15), None),
        (get_object(), NOW_MS + minutes(15) + 1, Some(S3Code::RequestTimeTooSkewed)),
        (get_object(), NOW_MS - minutes(15) - 1, Some(S3Code::RequestTimeTooSkewed)),
        (presigned("test", "test"), NOW_MS + 86_400_000, None),
        (presigned("test", "test"), NOW_MS + 86_400_001, Some(S3Code::AccessDenied)),
        (presigned("test", "test"), NOW_MS - minutes(15), None),
        (presigned("test", "test"), NOW_MS - minutes(15) - 1, Some(S3Code::AccessDenied)),
    ] {
        let code = call.pass_at(now_ms).await.err().map(|error| error.code);
        assert_eq!(code, expected, "{} at {now_ms}", call.uri);
    }
}

#[tokio::test]
async fn paths_are_signed_as_sent_or_as_encoded() {
    let call = |uri: &str| {
        Call::new("GET", uri, &[("host", "h"), ("x-amz-date", DATE), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD")])
    };
    let signed = "host;x-amz-content-sha256;x-amz-date";
    for (sent, canonical) in [
        ("/b/a//b/../c", "/b/a//b/../c"),
        ("/b/a+b", "/b/a+b"),
        ("/b/a+b", "/b/a%2Bb"),
        ("/b/a(b)", "/b/a%28b%29"),
        ("/b/a%2Fb", "/b/a%2Fb"),
        ("/b/a%2Fb", "/b/a/b"),
        ("/b/%c3%a9", "/b/%C3%A9"),
    ] {
        call(sent).sign(canonical, "", signed).check(Ok(())).await;
    }
    call("/b/a").sign("/b/%61", "", signed).check(Err(S3Code::SignatureDoesNotMatch)).await;
    call("/b?prefix=a%2Fb+c&list-type=2").sign("/b", "list-type=2&prefix=a%2Fb%20c", signed).check(Ok(())).await;
    let spaced = call("/b").header("x-amz-meta-a", "one two");
    let signed = "host;x-amz-content-sha256;x-amz-date;x-amz-meta-a";
    spaced.sign("/b", "", signed).header("x-amz-meta-a", "  one   two ").check(Ok(())).await;
}

#[test]
fn arbitrary_authorizations_are_claims_or_errors() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/authorization");
    let words: [&[u8]; 6] =
        [b"AWS4-HMAC-SHA256 ", b"Credential=", b"SignedHeaders=", b"Signature=", b"/s3/aws4_request", b"20130524"];
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-date", HeaderValue::from_static("20130524T000000Z"));
    ozone_fuzz::fuzz(corpus, &words, |bytes| match sigv4::from_header(bytes, &headers) {
        Ok(claimed) => {
            assert!(claimed.date.starts_with(&claimed.day) && !claimed.access_key.is_empty());
            String::new()
        }
        Err(error) => error.message.chars().take(60).collect(),
    });
}

#[test]
fn arbitrary_queries_are_claims_or_errors() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/query");
    let words: [&[u8]; 5] = [b"X-Amz-Credential=", b"X-Amz-Expires=", b"&", b"%2F", b"+"];
    ozone_fuzz::fuzz(corpus, &words, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return "not text".to_owned() };
        let query = match Query::parse(text) {
            Ok(query) => query,
            Err(error) => return error.to_string(),
        };
        let mut canonical = Vec::new();
        query.write_canonical(&mut canonical);
        // The canonical form is a fixed point, but for the signature, which it leaves out.
        let mut again = Vec::new();
        Query::parse(std::str::from_utf8(&canonical).unwrap()).unwrap().write_canonical(&mut again);
        assert_eq!(canonical, again);
        for (name, value) in query.pairs() {
            for part in [name, value] {
                let mut encoded = Vec::new();
                percent_encode(part, false, &mut encoded);
                assert_eq!(percent_decode(&encoded, true).unwrap(), part);
            }
        }
        let version_2 = sigv2::from_query(&query).map(|claimed| claimed.expires_ms() / 1000);
        match sigv4::from_query(&query) {
            Ok(claimed) => {
                assert!(claimed.expires.is_some_and(|seconds| seconds <= 604_800));
                String::new()
            }
            Err(error) => {
                let other = version_2.err().map(|error| error.message).unwrap_or_default();
                [error.message, other].map(|message| message.chars().take(40).collect::<String>()).concat()
            }
        }
    });
}

/// A URL presigned with version 2, as botocore makes it (`auth.py`, `HmacV1QueryAuth`).
fn presigned_v2(method: &str, uri: &str, headers: &[(&str, &str)], resource: &str) -> Call {
    let expires = NOW_MS / 1000 + 60;
    let get = |name: &str| headers.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| *value);
    let mut amz: Vec<_> = headers.iter().filter(|(name, _)| name.starts_with("x-amz-")).collect();
    amz.sort();
    let amz: String = amz.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let (md5, kind) = (get("content-md5"), get("content-type"));
    let signature = sign_v2(&format!("{method}\n{md5}\n{kind}\n{expires}\n{amz}{resource}"));
    let mut encoded = Vec::new();
    percent_encode(signature.as_bytes(), false, &mut encoded);
    let joint = if uri.contains('?') { '&' } else { '?' };
    let signature = String::from_utf8(encoded).unwrap();
    let uri = format!("{uri}{joint}AWSAccessKeyId={ACCESS_KEY}&Signature={signature}&Expires={expires}");
    Call::new(method, &uri, headers).header("host", "localhost:9878")
}

#[tokio::test]
async fn urls_of_version_2_pass_where_all_is_signed() {
    let get = || presigned_v2("GET", "/bucket/k", &[], "/bucket/k");
    get().check(Ok(())).await;
    assert!(get().pass().await.unwrap().presigned);
    let typed = [("content-type", "text/plain"), ("x-amz-meta-b", "2"), ("x-amz-meta-a", "1")];
    presigned_v2("PUT", "/bucket/k", &typed, "/bucket/k").check(Ok(())).await;
    let listed = "/bucket/k?versionId=null&response-content-type=a%2Fb";
    presigned_v2("GET", listed, &[], "/bucket/k?response-content-type=a/b&versionId=null").check(Ok(())).await;
    presigned_v2("GET", "/bucket?uploads", &[], "/bucket?uploads").check(Ok(())).await;
    presigned_v2("GET", "/bucket/a%20b%2Bc", &[], "/bucket/a%20b%2Bc").check(Ok(())).await;
    let hosted = presigned_v2("GET", "/k", &[], "/bucket/k").header("host", "bucket.localhost");
    hosted.check(Ok(())).await;
    // What the SDK puts into the URL counts like the header.
    presigned_v2("PUT", "/bucket/k?content-type=text%2Fplain&x-amz-meta-a=1&x-amz-meta-b=2", &typed, "/bucket/k")
        .without("content-type")
        .without("x-amz-meta-a")
        .without("x-amz-meta-b")
        .check(Ok(()))
        .await;
}

#[tokio::test]
async fn urls_of_version_2_that_are_wrong_are_refused() {
    use S3Code as S;
    let good = presigned_v2("GET", "/bucket/k", &[], "/bucket/k");
    let change = |from: &str, to: &str| {
        assert!(good.uri.contains(from));
        Call { uri: good.uri.replace(from, to), ..good.clone() }
    };
    for (call, code) in [
        (Call { method: Method::PUT, ..good.clone() }, S::SignatureDoesNotMatch),
        (change("/bucket/k", "/bucket/l"), S::SignatureDoesNotMatch),
        (change("/bucket/k?", "/bucket/k?acl&"), S::SignatureDoesNotMatch),
        (change("/bucket/k?", "/bucket/k?attributes&"), S::AccessDenied),
        (change("/bucket/k?", "/bucket/k?prefix=a&"), S::AccessDenied),
        (change("Expires=", "Expires=1"), S::SignatureDoesNotMatch),
        (change("Expires=", "Expires=-"), S::AccessDenied),
        (change("Expires=", "Expires=x"), S::AccessDenied),
        (change("Expires=", "Exp="), S::AccessDenied),
        (change("Signature=", "Signature=AAAA"), S::SignatureDoesNotMatch),
        (change("Signature=", "Sig="), S::AccessDenied),
        (change(ACCESS_KEY, "NOBODY"), S::InvalidAccessKeyId),
        (change("AWSAccessKeyId=", "AWSAccessKeyId=&a="), S::AccessDenied),
        (good.clone().header("host", "other.localhost"), S::SignatureDoesNotMatch),
        (good.clone().header("x-amz-acl", "public-read"), S::SignatureDoesNotMatch),
        (good.clone().header("content-type", "text/html"), S::SignatureDoesNotMatch),
        (good.clone().header("authorization", "AWS a:b"), S::InvalidArgument),
        (change("/bucket/k?", "/bucket/k?X-Amz-Signature=00&"), S::InvalidArgument),
    ] {
        call.check(Err(code)).await;
    }
    let streaming = [("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")];
    presigned_v2("PUT", "/bucket/k", &streaming, "/bucket/k").check(Err(S::InvalidRequest)).await;
    assert!(good.pass_at(NOW_MS + 60_000).await.is_ok());
    assert_eq!(good.pass_at(NOW_MS + 60_001).await.err().unwrap().code, S::AccessDenied);
}
