//! Objects: put, get, head, copy, delete.

use bytes::Bytes;
use ozone_common::{Error, ErrorCode};

use super::test_support::{Answer, Fixture, call};
use crate::body::{Algorithm, Hasher, md5};

fn sum(algorithm: Algorithm, bytes: &[u8]) -> String {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(bytes);
    hasher.finish().to_base64()
}

fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", hex::encode(md5(bytes)))
}

fn base64_md5(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(md5(bytes))
}

fn pattern(length: usize) -> Bytes {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[tokio::test]
async fn bodies_of_any_size_read_back() {
    let fixture = Fixture::new().await;
    for length in [0, 1, 999, 1000, 1001, 70_000, 3_000_000] {
        let body = pattern(length);
        let put = fixture.send(call("PUT", "/bucket/k").pieces(&body, 400_000)).await.ok();
        assert_eq!(put.etag(), etag(&body));
        let got = fixture.get("k").await.ok();
        assert_eq!(got.body, body, "{length} bytes");
        assert_eq!(got.etag(), etag(&body));
        assert_eq!(got.header("accept-ranges"), Some("bytes"));
        assert_eq!(got.header("last-modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(got.header("content-type"), Some("binary/octet-stream"));
        let head = fixture.send(call("HEAD", "/bucket/k")).await.ok();
        assert_eq!(head.header("content-length"), Some(length.to_string().as_str()));
        assert!(head.body.is_empty());
    }
}

#[tokio::test]
async fn inline_values_travel_in_the_commit_and_fall_back_to_blocks() {
    let fixture = Fixture::new().await;
    fixture.twin.state.lock().inline_max = 4096;
    fixture.send(call("PUT", "/inline-bucket")).await.ok();
    fixture.send(call("PUT", "/inline-bucket/k").body("small")).await.ok();
    // The bucket takes none any more, which the cached bucket does not say.
    fixture.twin.state.lock().buckets.get_mut("inline-bucket").unwrap().info.inline_max = 0;
    fixture.send(call("PUT", "/inline-bucket/l").body("small")).await.ok();
    for key in ["k", "l"] {
        assert_eq!(fixture.send(call("GET", format!("/inline-bucket/{key}"))).await.ok().body, "small");
    }
    // The cache was told: one commit is enough now.
    let commits = || fixture.twin.state.lock().calls["commit_key"];
    let before = commits();
    fixture.send(call("PUT", "/inline-bucket/m").body("small")).await.ok();
    assert_eq!(commits(), before + 1);
}

#[tokio::test]
async fn a_put_asks_for_its_bucket_once_in_a_while_and_sees_that_it_is_gone() {
    let fixture = Fixture::new().await;
    for key in 0..10 {
        fixture.put(&key.to_string(), "x").await;
    }
    assert!(!fixture.twin.state.lock().calls.contains_key("info_bucket"), "its creation told all");
    fixture.twin.state.lock().buckets.remove("bucket");
    fixture.send(call("PUT", "/bucket/k").body("x")).await.is(404, "NoSuchBucket");
    fixture.send(call("PUT", "/bucket")).await.ok();
    // Made anew behind this gateway's back: what was written for the old one is not the new one's.
    fixture.twin.state.lock().buckets.get_mut("bucket").unwrap().info.id += 100;
    fixture.send(call("PUT", "/bucket/k").body("x")).await.is(503, "ServiceUnavailable");
    fixture.send(call("PUT", "/bucket/k").body("x")).await.ok();
    fixture.send(call("PUT", "/absent/k").body("x")).await.is(404, "NoSuchBucket");
}

#[tokio::test]
async fn what_does_not_match_its_digest_leaves_no_trace() {
    let fixture = Fixture::new().await;
    let put = || call("PUT", "/bucket/k").body("the body");
    let wrong = base64_md5(b"another body");
    fixture.send(put().header("content-md5", wrong)).await.is(400, "BadDigest");
    fixture.send(put().header("content-md5", "bm9uZQ==")).await.is(400, "InvalidDigest");
    for algorithm in Algorithm::ALL {
        let name = algorithm.header().as_str();
        fixture.send(put().header(name, sum(algorithm, b"another"))).await.is(400, "BadDigest");
        fixture.send(put().header(name, "bad")).await.is(400, "InvalidRequest");
    }
    let two = put()
        .header("x-amz-checksum-crc32", sum(Algorithm::Crc32, b"the body"))
        .header("x-amz-checksum-sha1", sum(Algorithm::Sha1, b"the body"));
    fixture.send(two).await.is(400, "InvalidRequest");
    fixture.send(put().header("content-length", "9")).await.is(400, "IncompleteBody");
    fixture.send(put().header("content-length", "5368709121")).await.is(400, "EntityTooLarge");
    let chunked = || put().header("transfer-encoding", "chunked");
    fixture.send(chunked().header("content-md5", base64_md5(b"another"))).await.is(400, "BadDigest");
    assert_eq!(fixture.key_count(), 0);
    fixture.send(chunked()).await.ok();
    assert_eq!(fixture.get("k").await.ok().body, "the body");
    fixture.send(put().header("content-md5", base64_md5(b"the body"))).await.ok();
    assert_eq!(fixture.key_count(), 1);
}

#[tokio::test]
async fn checksums_are_kept_and_told() {
    let fixture = Fixture::new().await;
    let body = pattern(2000);
    for algorithm in Algorithm::ALL {
        let (name, value) = (algorithm.header().as_str(), sum(algorithm, &body));
        let put = fixture.send(call("PUT", "/bucket/k").body(body.clone()).header(name, &value)).await.ok();
        assert_eq!((put.header(name), put.header("x-amz-checksum-type")), (Some(&*value), Some("FULL_OBJECT")));
        assert_eq!(fixture.get("k").await.header(name), None, "only where asked for");
        for method in ["GET", "HEAD"] {
            let asked = call(method, "/bucket/k").header("x-amz-checksum-mode", "ENABLED");
            assert_eq!(fixture.send(asked).await.ok().header(name), Some(&*value));
        }
        let ranged = call("GET", "/bucket/k").header("x-amz-checksum-mode", "ENABLED").header("range", "bytes=0-5");
        assert_eq!(fixture.send(ranged).await.is(206, "").header(name), None, "it is not that of the range");
    }
    let put = fixture.put("l", body.clone()).await;
    assert_eq!(put.header("x-amz-checksum-crc64nvme"), Some(&*sum(Algorithm::Crc64Nvme, &body)), "kept in any case");
}

#[tokio::test]
async fn ranges() {
    let fixture = Fixture::new().await;
    let body = pattern(5000);
    fixture.put("k", body.clone()).await;
    fixture.put("empty", "").await;
    for (range, expected) in [
        ("bytes=0-0", Some(0..1)),
        ("bytes=10-1509", Some(10..1510)),
        ("bytes=4990-", Some(4990..5000)),
        ("bytes=4990-9999", Some(4990..5000)),
        ("bytes=-10", Some(4990..5000)),
        ("bytes=-9999", Some(0..5000)),
        ("bytes=5-4", None),
        ("bytes=0-1,4-5", None),
        ("nonsense", None),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = fixture.send(call(method, "/bucket/k").header("range", range)).await;
            let answer = answer.is(if expected.is_some() { 206 } else { 200 }, "");
            let bytes = expected.clone().unwrap_or(0..5000);
            let content_range = expected.clone().map(|range| format!("bytes {}-{}/5000", range.start, range.end - 1));
            assert_eq!(answer.header("content-range"), content_range.as_deref(), "{range}");
            match method {
                "GET" => assert_eq!(answer.body, body.slice(bytes), "{range}"),
                _ => assert_eq!(answer.header("content-length"), Some(&*bytes.len().to_string())),
            }
        }
    }
    for (key, range, length) in
        [("k", "bytes=5000-", 5000), ("k", "bytes=-0", 5000), ("empty", "bytes=0-", 0), ("empty", "bytes=-1", 0)]
    {
        let answer = fixture.send(call("GET", format!("/bucket/{key}")).header("range", range)).await;
        let answer = answer.is(416, "InvalidRange");
        assert_eq!(answer.header("content-range"), Some(&*format!("bytes */{length}")));
        assert_eq!(answer.one("Error", "ActualObjectSize"), length.to_string());
    }
}

#[tokio::test]
async fn metadata_and_overrides() {
    let fixture = Fixture::new().await;
    let put = call("PUT", "/bucket/k")
        .body("x")
        .header("content-type", "text/plain")
        .header("cache-control", "no-cache")
        .header("x-amz-meta-Color", "blue")
        .header("x-amz-storage-class", "STANDARD_IA");
    fixture.send(put).await.ok();
    let got = fixture.get("k").await.ok();
    for (name, value) in [
        ("content-type", "text/plain"),
        ("cache-control", "no-cache"),
        ("x-amz-meta-color", "blue"),
        ("x-amz-storage-class", "STANDARD_IA"),
    ] {
        assert_eq!(got.header(name), Some(value));
    }
    let uri = "/bucket/k?response-content-type=foo%2Fbar&response-content-language=esperanto&response-expires=123\
               &response-cache-control=private&response-content-disposition=bla&response-content-encoding=aaa";
    let got = fixture.send(call("GET", uri)).await.ok();
    for (name, value) in [
        ("content-type", "foo/bar"),
        ("content-language", "esperanto"),
        ("expires", "123"),
        ("cache-control", "private"),
        ("content-disposition", "bla"),
        ("content-encoding", "aaa"),
    ] {
        assert_eq!(got.header(name), Some(value));
    }
    let large = call("PUT", "/bucket/l").body("x").header("x-amz-meta-k", "v".repeat(2048));
    fixture.send(large).await.is(400, "MetadataTooLarge");
    fixture.send(call("PUT", "/bucket/l").body("x").header("x-amz-tagging", "a=b")).await.is(501, "NotImplemented");
}

#[tokio::test]
async fn conditions_on_reads_and_writes() {
    let fixture = Fixture::new().await;
    let other = etag(b"another");
    let put = |name: &str, value: &str| call("PUT", "/bucket/k").body("new").header(name, value);
    fixture.send(put("if-match", &other)).await.is(404, "NoSuchKey");
    fixture.send(put("if-match", "*")).await.is(404, "NoSuchKey");
    fixture.send(put("if-none-match", &other)).await.is(501, "NotImplemented");
    let tag = fixture.send(put("if-none-match", "*")).await.ok().etag();
    fixture.send(put("if-none-match", "*")).await.is(412, "PreconditionFailed");
    fixture.send(put("if-match", &other)).await.is(412, "PreconditionFailed");
    fixture.send(put("if-match", "badetag")).await.is(412, "PreconditionFailed");
    fixture.send(put("if-match", &tag)).await.ok();
    fixture.send(put("if-match", "*")).await.ok();

    let get = |name: &str, value: &str| call("GET", "/bucket/k").header(name, value);
    fixture.send(get("if-match", &tag)).await.ok();
    fixture.send(get("if-match", &other)).await.is(412, "PreconditionFailed");
    let unchanged = fixture.send(get("if-none-match", &tag)).await.is(304, "");
    assert_eq!((unchanged.etag(), unchanged.body.len()), (tag, 0));
    fixture.send(get("if-none-match", &other)).await.ok();
    fixture.send(get("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT")).await.is(304, "");
    fixture.send(get("if-unmodified-since", "Sun, 06 Nov 1994 08:49:36 GMT")).await.is(412, "PreconditionFailed");
}

#[tokio::test]
async fn a_condition_that_cannot_be_read_is_refused_rather_than_taken_for_absent() {
    let fixture = Fixture::new().await;
    let tag = fixture.put("k", "kept").await.etag();
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let put = || call("PUT", "/bucket/k").body("new");
    let delete = || call("DELETE", "/bucket/k");
    let copy = || call("PUT", "/bucket/k").header("x-amz-copy-source", "bucket/src");
    fixture.put("src", "source").await;
    type Make<'a> = &'a dyn Fn() -> super::test_support::Call;
    let cases: [(Make<'_>, &str, &str); 10] = [
        (&put, "if-match", &tag),
        (&put, "if-none-match", "*"),
        (&copy, "if-match", &tag),
        (&copy, "x-amz-copy-source-if-match", &etag(b"source")),
        (&copy, "x-amz-copy-source-if-none-match", &tag),
        (&copy, "x-amz-copy-source-if-modified-since", date),
        (&copy, "x-amz-copy-source-if-unmodified-since", date),
        (&delete, "if-match", &tag),
        (&delete, "x-amz-if-match-size", "4"),
        (&delete, "x-amz-if-match-last-modified-time", date),
    ];
    for (make, name, value) in cases {
        fixture.send(make().header(name, b"\xe9")).await.is(400, "InvalidArgument");
        fixture.send(make().header(name, value).header(name, value)).await.is(400, "InvalidArgument");
    }
    let crc = sum(Algorithm::Crc32, b"new");
    let twice = put().header("x-amz-checksum-crc32", &crc).header("x-amz-checksum-crc32", sum(Algorithm::Crc32, b""));
    fixture.send(twice).await.is(400, "InvalidRequest");
    let twice = put().header("content-md5", base64_md5(b"new")).header("content-md5", base64_md5(b"old"));
    fixture.send(twice).await.is(400, "InvalidDigest");
    assert_eq!(fixture.get("k").await.ok().body, "kept");
}

#[tokio::test]
async fn reads_that_fail_before_and_behind_the_first_byte() {
    let fixture = Fixture::new().await;
    fixture.put("k", pattern(5000)).await;
    fixture.twin.state.lock().fail_read_at = Some(0);
    fixture.get("k").await.is(500, "InternalError");
    fixture.twin.state.lock().fail_read_at = Some(2000);
    let broken = fixture.get("k").await.ok();
    assert_eq!(broken.body.len(), 2000);
    assert!(broken.broken.is_some(), "the connection must break, not end");
    fixture.get("absent").await.is(404, "NoSuchKey");
    fixture.send(call("HEAD", "/bucket/absent")).await.is(404, "NoSuchKey");
    fixture.send(call("GET", "/absent/k")).await.is(404, "NoSuchBucket");
}

#[tokio::test]
async fn commits_that_fail_are_told_as_what_they_are() {
    let fixture = Fixture::new().await;
    for (code, status, name) in [
        (ErrorCode::Overloaded, 503, "SlowDown"),
        (ErrorCode::GrantExpired, 503, "ServiceUnavailable"),
        (ErrorCode::KeyAlreadyExists, 412, "PreconditionFailed"),
    ] {
        fixture.twin.state.lock().fail_commit = Some(Error::new(code, "as asked for"));
        fixture.send(call("PUT", "/bucket/k").body("x")).await.is(status, name);
    }
    assert_eq!(fixture.key_count(), 0);
}

#[tokio::test]
async fn versions_are_null() {
    let fixture = Fixture::new().await;
    fixture.put("k", "x").await;
    fixture.send(call("GET", "/bucket/k?versionId=null")).await.ok();
    fixture.send(call("GET", "/bucket/k?versionId=other")).await.is(404, "NoSuchVersion");
    fixture.send(call("DELETE", "/bucket/k?versionId=other")).await.is(404, "NoSuchVersion");
    fixture.send(call("DELETE", "/bucket/k?versionId=null")).await.is(204, "");
    assert_eq!(fixture.key_count(), 0);
}

#[tokio::test]
async fn odd_keys_are_different_keys() {
    let fixture = Fixture::new().await;
    let keys = ["a", "a/", "a/b", "a//b", "a/../b", "a/./b", "%C3%A9", "a%20b", "a+b", "%00", "%01", "..", "."];
    for key in keys {
        fixture.put(key, key.to_owned()).await;
    }
    for key in keys {
        assert_eq!(fixture.get(key).await.ok().body, key);
    }
    assert_eq!(fixture.key_count(), keys.len());
    fixture.put(&"k".repeat(1024), "x").await;
    fixture.send(call("PUT", format!("/bucket/{}", "k".repeat(1025))).body("x")).await.is(400, "KeyTooLongError");
}

#[tokio::test]
async fn deletes() {
    let fixture = Fixture::new().await;
    let tag = fixture.put("k", "x").await.etag();
    let delete = |name: &str, value: &str| call("DELETE", "/bucket/k").header(name, value);
    fixture.send(call("DELETE", "/bucket/absent")).await.is(204, "");
    fixture.send(delete("if-match", &etag(b"other"))).await.is(412, "PreconditionFailed");
    fixture.send(delete("x-amz-if-match-size", "2")).await.is(412, "PreconditionFailed");
    fixture.send(delete("x-amz-if-match-size", "two")).await.is(400, "InvalidArgument");
    let time = "x-amz-if-match-last-modified-time";
    fixture.send(delete(time, "Sun, 06 Nov 1994 08:49:36 GMT")).await.is(412, "PreconditionFailed");
    assert_eq!(fixture.key_count(), 1);
    fixture.send(delete(time, "Sun, 06 Nov 1994 08:49:37 GMT").header("if-match", &tag)).await.is(204, "");
    assert_eq!(fixture.key_count(), 0);
    fixture.send(delete("if-match", "*")).await.is(404, "NoSuchKey");
}

async fn delete_objects(fixture: &Fixture, document: &str) -> Answer {
    let call = call("POST", "/bucket?delete").body(document.to_owned());
    fixture.send(call.header("content-md5", base64_md5(document.as_bytes()))).await
}

#[tokio::test]
async fn many_deletes() {
    let fixture = Fixture::new().await;
    for key in ["a", "b", "c<&>", "d", "e"] {
        fixture.put(key, "x").await;
    }
    let tag = etag(b"y");
    let document = format!(
        "<Delete><Object><Key>a</Key></Object><Object><Key>c&lt;&amp;&gt;</Key></Object><Object><Key>absent</Key></Object>\
         <Object><Key>b</Key><VersionId>null</VersionId></Object><Object><Key>d</Key><ETag>{tag}</ETag></Object>\
         <Object><Key>e</Key><VersionId>7</VersionId></Object><Object><Key>{}</Key></Object></Delete>",
        "k".repeat(1025)
    );
    let answer = delete_objects(&fixture, &document).await.ok();
    let root = "DeleteResult";
    assert_eq!(answer.all(root, "Code"), ["PreconditionFailed", "NoSuchVersion", "KeyTooLongError"]);
    let keys = answer.all(root, "Key");
    assert_eq!(keys[..6], ["a", "c<&>", "absent", "b", "d", "e"]);
    assert_eq!(answer.all(root, "Deleted").len(), 4);
    assert_eq!(fixture.key_count(), 2);

    let quiet = "<Delete><Quiet>true</Quiet><Object><Key>d</Key></Object></Delete>";
    assert_eq!(delete_objects(&fixture, quiet).await.ok().all(root, "Key"), [""; 0]);
    assert_eq!(fixture.key_count(), 1);
    let many = |count| format!("<Delete>{}</Delete>", "<Object><Key>e</Key></Object>".repeat(count));
    delete_objects(&fixture, &many(1001)).await.is(400, "MalformedXML");
    delete_objects(&fixture, &many(0)).await.is(400, "MalformedXML");
    delete_objects(&fixture, "<Delete><Object></Object></Delete>").await.is(400, "MalformedXML");
    fixture.send(call("POST", "/bucket?delete").body(many(1))).await.is(400, "InvalidRequest");
    assert_eq!(fixture.key_count(), 1);
    let sum = sum(Algorithm::Crc32, many(1000).as_bytes());
    let by_checksum = call("POST", "/bucket?delete").body(many(1000)).header("x-amz-checksum-crc32", sum);
    fixture.send(by_checksum).await.ok();
    assert_eq!(fixture.key_count(), 0);
}

#[tokio::test]
async fn copies() {
    let fixture = Fixture::new().await;
    fixture.send(call("PUT", "/other-bucket").user("bob")).await.ok();
    let body = pattern(3500);
    let put =
        call("PUT", "/bucket/s+rc").body(body.clone()).header("x-amz-meta-a", "1").header("content-type", "text/x");
    let tag = fixture.send(put).await.ok().etag();
    let copy = |to: &str| call("PUT", format!("/{to}")).header("x-amz-copy-source", "bucket/s+rc");
    let root = "CopyObjectResult";

    let answer = fixture.send(copy("other-bucket/dst")).await.ok();
    assert_eq!(answer.one(root, "ETag"), tag);
    assert_eq!(answer.one(root, "LastModified"), "1994-11-06T08:49:37.000Z");
    assert_eq!(answer.one(root, "ChecksumCRC64NVME"), sum(Algorithm::Crc64Nvme, &body));
    let got = fixture.send(call("GET", "/other-bucket/dst")).await.ok();
    assert_eq!(got.body, body);
    assert_eq!((got.header("x-amz-meta-a"), got.header("content-type")), (Some("1"), Some("text/x")));

    let replaced = copy("bucket/dst").header("x-amz-metadata-directive", "REPLACE").header("x-amz-meta-b", "2");
    fixture.send(replaced).await.ok();
    let got = fixture.get("dst").await.ok();
    assert_eq!((got.header("x-amz-meta-a"), got.header("x-amz-meta-b")), (None, Some("2")));
    assert_eq!(got.header("content-type"), Some("binary/octet-stream"));

    let sha256 = copy("bucket/dst").header("x-amz-checksum-algorithm", "sha256");
    assert_eq!(fixture.send(sha256).await.ok().one(root, "ChecksumSHA256"), sum(Algorithm::Sha256, &body));

    fixture.send(copy("bucket/s+rc")).await.is(400, "InvalidRequest");
    let to_itself = copy("bucket/s+rc").header("x-amz-metadata-directive", "REPLACE").header("x-amz-meta-c", "3");
    fixture.send(to_itself).await.ok();
    let got = fixture.get("s+rc").await.ok();
    assert_eq!((got.header("x-amz-meta-c"), &got.body), (Some("3"), &body));

    for (name, value, status) in [
        ("x-amz-copy-source-if-match", &*tag, 200),
        ("x-amz-copy-source-if-match", "\"bad\"", 412),
        ("x-amz-copy-source-if-none-match", &*tag, 412),
        ("x-amz-copy-source-if-none-match", "\"bad\"", 200),
        ("x-amz-copy-source-if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT", 412),
        ("x-amz-copy-source-if-unmodified-since", "Sun, 06 Nov 1994 08:49:36 GMT", 412),
        ("if-none-match", "*", 412),
        ("x-amz-metadata-directive", "REMOVE", 400),
        ("x-amz-checksum-algorithm", "MD4", 400),
    ] {
        let answer = fixture.send(copy("bucket/dst").header(name, value)).await;
        assert_eq!(answer.status, status, "{name}: {value}: {answer:?}");
    }
    let absent = |source: &str| call("PUT", "/bucket/dst2").header("x-amz-copy-source", source);
    fixture.send(absent("bucket/absent")).await.is(404, "NoSuchKey");
    fixture.send(absent("absent-bucket/k")).await.is(404, "NoSuchBucket");
    fixture.twin.state.lock().fail_read_at = Some(1000);
    fixture.send(absent("bucket/dst")).await.is(500, "InternalError");
    assert!(!fixture.twin.state.lock().buckets["bucket"].keys.contains_key(&Bytes::from("dst2")));
}

#[tokio::test]
async fn attributes() {
    let fixture = Fixture::new().await;
    let tag = fixture.put("k", "body").await.etag();
    let get = |names: &str| call("GET", "/bucket/k?attributes").header("x-amz-object-attributes", names);
    let answer = fixture.send(get("ETag,Checksum, ObjectParts,StorageClass,ObjectSize")).await.ok();
    let root = "GetObjectAttributesResponse";
    assert_eq!(answer.one(root, "ETag"), tag.trim_matches('"'));
    assert_eq!(answer.one(root, "ChecksumCRC64NVME"), sum(Algorithm::Crc64Nvme, b"body"));
    assert_eq!((answer.one(root, "ObjectSize"), answer.one(root, "StorageClass")), ("4".into(), "STANDARD".into()));
    assert!(answer.all(root, "ObjectParts").is_empty());
    assert_eq!(answer.header("last-modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    let only = fixture.send(get("ObjectSize")).await.ok();
    assert!(only.all(root, "ETag").is_empty());
    fixture.send(get("Colour")).await.is(400, "InvalidArgument");
    fixture.send(call("GET", "/bucket/k?attributes")).await.is(400, "InvalidRequest");
}
