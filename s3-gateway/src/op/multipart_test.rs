//! Multipart uploads.

use bytes::Bytes;
use ozone_common::limits::PART_LENGTH_MIN;

use super::test_support::{Answer, Fixture, call};
use crate::body::{Algorithm, Hasher, md5};

const BIG: usize = PART_LENGTH_MIN as usize;
const DONE: &str = "CompleteMultipartUploadResult";

fn pattern(length: usize, seed: usize) -> Bytes {
    (0..length).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
}

fn sum(algorithm: Algorithm, bytes: &[u8]) -> Vec<u8> {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(bytes);
    hasher.finish().value().to_vec()
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

async fn create(fixture: &Fixture, key: &str, headers: &[(&str, &str)]) -> String {
    let mut create = call("POST", format!("/bucket/{key}?uploads"));
    for (name, value) in headers {
        create = create.header(name, value);
    }
    fixture.send(create).await.ok().one("InitiateMultipartUploadResult", "UploadId")
}

async fn part(fixture: &Fixture, key: &str, upload: &str, number: u32, body: &Bytes) -> Answer {
    let uri = format!("/bucket/{key}?uploadId={upload}&partNumber={number}");
    fixture.send(call("PUT", uri).pieces(body, 1 << 20)).await
}

fn list(parts: &[(u32, &str)]) -> String {
    let parts: String = parts
        .iter()
        .map(|(number, etag)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"))
        .collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

async fn complete(fixture: &Fixture, key: &str, upload: &str, document: &str, headers: &[(&str, &str)]) -> Answer {
    let mut complete = call("POST", format!("/bucket/{key}?uploadId={upload}")).body(document.to_owned());
    for (name, value) in headers {
        complete = complete.header(name, value);
    }
    fixture.send(complete).await
}

#[tokio::test]
async fn from_create_to_the_parts_of_the_object() {
    let fixture = Fixture::new().await;
    let upload = create(&fixture, "k", &[("x-amz-meta-a", "1"), ("content-type", "text/x")]).await;
    let (first, second, third) = (pattern(BIG, 1), pattern(BIG, 2), pattern(10, 3));
    let mut tags = Vec::new();
    for (number, body) in [(2, &first), (5, &second), (7, &third)] {
        let answer = part(&fixture, "k", &upload, number, body).await.ok();
        assert_eq!(answer.etag(), format!("\"{}\"", hex::encode(md5(body))));
        tags.push(answer.etag());
    }
    fixture.get("k").await.is(404, "NoSuchKey");
    let document = list(&[(2, &tags[0]), (5, &tags[1]), (7, &tags[2])]);
    let done = complete(&fixture, "k", &upload, &document, &[]).await.ok();
    let joined: Vec<u8> = [&first, &second, &third].iter().flat_map(|body| md5(body)).collect();
    let whole = [first.as_ref(), &second, &third].concat();
    let tag = format!("\"{}-3\"", hex::encode(md5(&joined)));
    assert_eq!(done.one(DONE, "ETag"), tag);
    assert_eq!(done.one(DONE, "ChecksumCRC64NVME"), base64(&sum(Algorithm::Crc64Nvme, &whole)));
    assert_eq!(done.one(DONE, "ChecksumType"), "FULL_OBJECT");
    let got = fixture.get("k").await.ok();
    assert_eq!((got.body.as_ref(), got.etag()), (whole.as_slice(), tag));
    assert_eq!((got.header("x-amz-meta-a"), got.header("content-type")), (Some("1"), Some("text/x")));

    // Sent again, it is done.
    complete(&fixture, "k", &upload, &document, &[]).await.ok();
    complete(&fixture, "k", "0123456789abcdef0123456789abcdef", &document, &[]).await.is(404, "NoSuchUpload");

    // The parts are still there to be read.
    let of_part =
        |number: u32| call("GET", format!("/bucket/k?partNumber={number}")).header("x-amz-checksum-mode", "ENABLED");
    let got = fixture.send(of_part(5)).await.is(206, "");
    assert_eq!(got.body, second);
    assert_eq!(got.header("x-amz-mp-parts-count"), Some("3"));
    let length = BIG * 2 + 10;
    assert_eq!(got.header("content-range"), Some(&*format!("bytes {BIG}-{}/{length}", BIG * 2 - 1)));
    assert_eq!(got.header("x-amz-checksum-crc64nvme"), Some(&*base64(&sum(Algorithm::Crc64Nvme, &second))));
    fixture.send(of_part(6)).await.is(416, "InvalidPartNumber");
    fixture.send(of_part(0)).await.is(400, "InvalidArgument");
    fixture.send(of_part(2).header("range", "bytes=0-1")).await.is(400, "InvalidRequest");
    let attributes = call("GET", "/bucket/k?attributes")
        .header("x-amz-object-attributes", "ObjectParts")
        .header("x-amz-max-parts", "1")
        .header("x-amz-part-number-marker", "2");
    let attributes = fixture.send(attributes).await.ok();
    let root = "GetObjectAttributesResponse";
    for (name, value) in
        [("PartsCount", "3"), ("PartNumber", "5"), ("IsTruncated", "true"), ("NextPartNumberMarker", "5")]
    {
        assert_eq!(attributes.one(root, name), value, "{name}");
    }
    // An object in one piece is its own first part.
    fixture.put("single", "abc").await;
    let got = fixture.send(call("GET", "/bucket/single?partNumber=1")).await.is(206, "");
    assert_eq!((got.header("content-range"), got.header("x-amz-mp-parts-count")), (Some("bytes 0-2/3"), None));
    fixture.send(call("GET", "/bucket/single?partNumber=2")).await.is(416, "InvalidPartNumber");
}

#[tokio::test]
async fn lists_of_parts_that_are_wrong() {
    let fixture = Fixture::new().await;
    let upload = create(&fixture, "k", &[]).await;
    let small = pattern(10, 1);
    let tag = part(&fixture, "k", &upload, 1, &small).await.ok().etag();
    part(&fixture, "k", &upload, 2, &small).await.ok();
    let other = format!("\"{}\"", "ab".repeat(16));
    for (document, status, code) in [
        (list(&[]), 400, "MalformedXML"),
        ("nonsense".to_owned(), 400, "MalformedXML"),
        (list(&[(1, &other)]), 400, "InvalidPart"),
        (list(&[(1, "x")]), 400, "InvalidPart"),
        (list(&[(3, &tag)]), 400, "InvalidPart"),
        (list(&[(0, &tag)]), 400, "InvalidArgument"),
        (list(&[(10_001, &tag)]), 400, "InvalidArgument"),
        (list(&[(2, &tag), (1, &tag)]), 400, "InvalidPartOrder"),
        (list(&[(1, &tag), (1, &tag)]), 400, "InvalidPartOrder"),
        (list(&[(1, &tag), (2, &tag)]), 400, "EntityTooSmall"),
    ] {
        complete(&fixture, "k", &upload, &document, &[]).await.is(status, code);
    }
    complete(&fixture, "k", "unknown", &list(&[(1, "x")]), &[]).await.is(404, "NoSuchUpload");
    assert_eq!(fixture.key_count(), 0);
    let good = list(&[(1, &tag)]);
    complete(&fixture, "k", &upload, &good, &[("if-match", "*")]).await.is(404, "NoSuchKey");
    complete(&fixture, "k", &upload, &good, &[("x-amz-mp-object-size", "11")]).await.is(400, "InvalidArgument");
    fixture.put("k", "x").await;
    complete(&fixture, "k", &upload, &good, &[("if-none-match", "*")]).await.is(412, "PreconditionFailed");
    complete(&fixture, "k", &upload, &good, &[("x-amz-mp-object-size", "10")]).await.ok();

    for (number, expected) in [("0", 400), ("10001", 400), ("x", 400)] {
        let uri = format!("/bucket/k?uploadId={upload}&partNumber={number}");
        assert_eq!(fixture.send(call("PUT", uri).body("x")).await.status, expected);
    }
    part(&fixture, "k", "0123456789abcdef0123456789abcdef", 1, &small).await.is(404, "NoSuchUpload");
}

#[tokio::test]
async fn abort_takes_everything_back() {
    let fixture = Fixture::new().await;
    let upload = create(&fixture, "k", &[]).await;
    part(&fixture, "k", &upload, 1, &pattern(10, 1)).await.ok();
    let uri = format!("/bucket/k?uploadId={upload}");
    fixture.send(call("DELETE", &uri)).await.is(204, "");
    fixture.send(call("DELETE", &uri)).await.is(404, "NoSuchUpload");
    fixture.send(call("GET", &uri)).await.is(404, "NoSuchUpload");
}

#[tokio::test]
async fn a_bucket_of_nothing_but_uploads_is_empty() {
    let fixture = Fixture::new().await;
    for key in ["a", "a", "b"] {
        let upload = create(&fixture, key, &[]).await;
        part(&fixture, key, &upload, 1, &pattern(10, 1)).await.ok();
    }
    fixture.put("k", "x").await;
    fixture.send(call("DELETE", "/bucket")).await.is(409, "BucketNotEmpty");
    assert_eq!(
        fixture.twin.state.lock().buckets["bucket"].uploads.len(),
        3,
        "they are left alone where the bucket stays"
    );
    fixture.send(call("DELETE", "/bucket/k")).await.is(204, "");
    fixture.send(call("DELETE", "/bucket")).await.is(204, "");
    fixture.send(call("HEAD", "/bucket")).await.is(404, "NoSuchBucket");
}

#[tokio::test]
async fn checksums_of_each_kind() {
    let fixture = Fixture::new().await;
    let (first, second) = (pattern(BIG, 1), pattern(100, 2));
    let whole = [first.as_ref(), &second].concat();
    for algorithm in Algorithm::ALL {
        for kind in ["COMPOSITE", "FULL_OBJECT"] {
            let possible = match kind {
                "COMPOSITE" => algorithm != Algorithm::Crc64Nvme,
                _ => algorithm.is_crc(),
            };
            let headers = [("x-amz-checksum-algorithm", algorithm.name()), ("x-amz-checksum-type", kind)];
            if !possible {
                let mut refused = call("POST", "/bucket/k?uploads");
                for (name, value) in headers {
                    refused = refused.header(name, value);
                }
                fixture.send(refused).await.is(400, "InvalidRequest");
                continue;
            }
            let upload = create(&fixture, "k", &headers).await;
            let (name, element) = (algorithm.header().as_str(), algorithm.element());
            let mut document = String::new();
            for (number, body) in [(1, &first), (2, &second)] {
                let value = base64(&sum(algorithm, body));
                let uri = format!("/bucket/k?uploadId={upload}&partNumber={number}");
                let answer = fixture.send(call("PUT", uri).body(body.clone()).header(name, &value)).await.ok();
                assert_eq!(answer.header(name), Some(&*value));
                document += &format!(
                    "<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag><{element}>{value}</{element}></Part>",
                    answer.etag()
                );
            }
            let wrong_kind = if kind == "COMPOSITE" { Algorithm::Sha256 } else { Algorithm::Sha1 };
            if wrong_kind != algorithm && algorithm != Algorithm::Crc64Nvme {
                let uri = format!("/bucket/k?uploadId={upload}&partNumber=3");
                let value = base64(&sum(wrong_kind, b"x"));
                let refused = call("PUT", uri).body("x").header(wrong_kind.header().as_str(), value);
                fixture.send(refused).await.is(400, "InvalidRequest");
            }
            let listed = fixture.send(call("GET", format!("/bucket/k?uploadId={upload}"))).await.ok();
            assert_eq!(listed.one("ListPartsResult", "ChecksumType"), kind);
            let document = format!("<CompleteMultipartUpload>{document}</CompleteMultipartUpload>");
            let expected = match kind {
                "COMPOSITE" => {
                    let joined = [sum(algorithm, &first), sum(algorithm, &second)].concat();
                    format!("{}-2", base64(&sum(algorithm, &joined)))
                }
                _ => base64(&sum(algorithm, &whole)),
            };
            let bad = base64(&sum(algorithm, b"other"));
            complete(&fixture, "k", &upload, &document, &[(name, &bad)]).await.is(400, "BadDigest");
            let other = if kind == "COMPOSITE" { "FULL_OBJECT" } else { "COMPOSITE" };
            complete(&fixture, "k", &upload, &document, &[("x-amz-checksum-type", other)])
                .await
                .is(400, "InvalidRequest");
            let wrong_part = document.replace(&base64(&sum(algorithm, &second)), &bad);
            complete(&fixture, "k", &upload, &wrong_part, &[]).await.is(400, "InvalidPart");
            let done = complete(&fixture, "k", &upload, &document, &[(name, &expected)]).await.ok();
            assert_eq!((done.one(DONE, element), done.one(DONE, "ChecksumType")), (expected.clone(), kind.into()));
            let head = fixture.send(call("HEAD", "/bucket/k").header("x-amz-checksum-mode", "ENABLED")).await.ok();
            assert_eq!((head.header(name), head.header("x-amz-checksum-type")), (Some(&*expected), Some(kind)));
        }
    }
}

#[tokio::test]
async fn parts_may_bring_any_checksum_where_none_was_asked_for() {
    let fixture = Fixture::new().await;
    let upload = create(&fixture, "k", &[]).await;
    let body = pattern(100, 1);
    let uri = format!("/bucket/k?uploadId={upload}&partNumber=1");
    let put = |value: String| call("PUT", uri.clone()).body(body.clone()).header("x-amz-checksum-crc32", value);
    fixture.send(put(base64(&sum(Algorithm::Crc32, b"other")))).await.is(400, "BadDigest");
    let value = base64(&sum(Algorithm::Crc32, &body));
    let answer = fixture.send(put(value.clone())).await.ok();
    assert_eq!(answer.header("x-amz-checksum-crc32"), Some(&*value));
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag><ChecksumCRC32>{value}</ChecksumCRC32></Part>\
         </CompleteMultipartUpload>",
        answer.etag()
    );
    let done = complete(&fixture, "k", &upload, &document, &[]).await.ok();
    assert_eq!(done.one(DONE, "ChecksumCRC64NVME"), base64(&sum(Algorithm::Crc64Nvme, &body)));
}

#[tokio::test]
async fn claims_about_an_object_that_cannot_be_read_are_refused() {
    let fixture = Fixture::new().await;
    let upload = create(&fixture, "k", &[]).await;
    let body = pattern(100, 1);
    let tag = part(&fixture, "k", &upload, 1, &body).await.ok().etag();
    let document = list(&[(1, &tag)]);
    let crc = base64(&sum(Algorithm::Crc64Nvme, &body));
    for (name, value, code) in [
        ("if-match", "*", "InvalidArgument"),
        ("if-none-match", "*", "InvalidArgument"),
        ("x-amz-mp-object-size", "100", "InvalidArgument"),
        ("x-amz-checksum-crc64nvme", &crc, "InvalidRequest"),
    ] {
        complete(&fixture, "k", &upload, &document, &[(name, value), (name, value)]).await.is(400, code);
        let unreadable = call("POST", format!("/bucket/k?uploadId={upload}")).body(document.clone());
        fixture.send(unreadable.header(name, b"\xe9")).await.is(400, code);
    }
    // Nor is the whole copied where a range of it was meant.
    let copy =
        call("PUT", format!("/bucket/k?uploadId={upload}&partNumber=2")).header("x-amz-copy-source", "/bucket/s");
    fixture.put("s", body).await;
    fixture.send(copy.header("x-amz-copy-source-range", b"bytes=0-\xe9")).await.is(400, "InvalidArgument");
    fixture.get("k").await.is(404, "NoSuchKey");
}

#[tokio::test]
async fn parts_of_other_objects() {
    let fixture = Fixture::new().await;
    let source = pattern(9000, 4);
    fixture.put("src", source.clone()).await;
    let upload = create(&fixture, "k", &[]).await;
    let copy = |range: &str| {
        let call = call("PUT", format!("/bucket/k?uploadId={upload}&partNumber=1"));
        let call = call.header("x-amz-copy-source", "/bucket/src");
        if range.is_empty() { call } else { call.header("x-amz-copy-source-range", range) }
    };
    for beyond in ["bytes=0-9000", "bytes=9000-9000"] {
        fixture.send(copy(beyond)).await.is(416, "InvalidRange");
    }
    for bad in ["0-2", "bytes=0", "bytes=hello-world", "bytes=2-1", "bytes=0-2,3-5"] {
        fixture.send(copy(bad)).await.is(400, "InvalidArgument");
    }
    fixture.send(copy("").header("x-amz-copy-source-if-match", "\"x\"")).await.is(412, "PreconditionFailed");
    for (range, bytes) in [("", 0..9000), ("bytes=0-0", 0..1), ("bytes=1000-8999", 1000..9000)] {
        let answer = fixture.send(copy(range)).await.ok();
        let expected = source.slice(bytes);
        let tag = answer.one("CopyPartResult", "ETag");
        assert_eq!(tag, format!("\"{}\"", hex::encode(md5(&expected))));
        let listed = fixture.send(call("GET", format!("/bucket/k?uploadId={upload}"))).await.ok();
        assert_eq!(listed.one("ListPartsResult", "Size"), expected.len().to_string());
    }
    let listed = fixture.send(call("GET", format!("/bucket/k?uploadId={upload}"))).await.ok();
    let document = list(&[(1, &listed.one("ListPartsResult", "ETag"))]);
    complete(&fixture, "k", &upload, &document, &[]).await.ok();
    assert_eq!(fixture.get("k").await.ok().body, source.slice(1000..));
}

#[tokio::test]
async fn pages_of_parts_and_uploads() {
    let fixture = Fixture::new().await;
    let upload = create(&fixture, "a/1", &[]).await;
    for number in [1, 3, 4] {
        part(&fixture, "a/1", &upload, number, &pattern(10, 1)).await.ok();
    }
    let root = "ListPartsResult";
    let page = |parameters: &str| call("GET", format!("/bucket/a/1?uploadId={upload}{parameters}"));
    let first = fixture.send(page("&max-parts=2")).await.ok();
    assert_eq!(first.all(root, "PartNumber"), ["1", "3"]);
    assert_eq!((first.one(root, "IsTruncated"), first.one(root, "NextPartNumberMarker")), ("true".into(), "3".into()));
    let second = fixture.send(page("&max-parts=2&part-number-marker=3")).await.ok();
    assert_eq!(
        (second.all(root, "PartNumber"), second.one(root, "IsTruncated")),
        (vec!["4".to_owned()], "false".into())
    );
    let none = fixture.send(page("&max-parts=0")).await.ok();
    assert_eq!((none.all(root, "PartNumber").len(), none.one(root, "IsTruncated")), (0, "false".into()));
    fixture.send(page("&max-parts=x")).await.is(400, "InvalidArgument");
    assert_eq!(first.one(root, "MaxParts"), "2");

    let mut ids = vec![upload.clone()];
    for key in ["a/1", "a/2", "b", "c"] {
        ids.push(create(&fixture, key, &[]).await);
    }
    let root = "ListMultipartUploadsResult";
    let mut seen = Vec::new();
    let mut position = String::new();
    loop {
        let answer = fixture.send(call("GET", format!("/bucket?uploads&max-uploads=1{position}"))).await.ok();
        seen.extend(answer.all(root, "UploadId"));
        if answer.one(root, "IsTruncated") == "false" {
            break;
        }
        let (key, id) = (answer.one(root, "NextKeyMarker"), answer.one(root, "NextUploadIdMarker"));
        position = format!("&key-marker={}&upload-id-marker={id}", key.replace('/', "%2F"));
    }
    assert_eq!(seen, ids);
    let by_folder = fixture.send(call("GET", "/bucket?uploads&delimiter=/&max-uploads=2")).await.ok();
    assert_eq!(by_folder.all(root, "UploadId"), ids[3..4]);
    assert_eq!(by_folder.all(root, "Prefix"), ["", "a/"]);
    assert_eq!(by_folder.one(root, "NextKeyMarker"), "b");
}
