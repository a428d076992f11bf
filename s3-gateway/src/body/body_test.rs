//! Bodies against what their headers say.

use http::{HeaderMap, HeaderName, HeaderValue};
use md5::{Digest as _, Md5};

use super::*;

const BODY: &str = "hello world";
const SHA256: &str = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";

fn body(headers: &[(&str, &str)], hash: &str, pieces: &[&str]) -> S3Result<Body> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    let claims = Claims::read(&map, HashHeader::parse(hash.as_bytes())?, None, true)?;
    let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece.as_bytes())).collect();
    Ok(Body::new(Source::Pieces(pieces), claims, Duration::from_secs(1)))
}

async fn read(body: &mut Body) -> S3Result<Vec<u8>> {
    let mut data = Vec::new();
    while let Some(piece) = body.next().await? {
        assert!(body.digests().is_none(), "nothing is verified before the end");
        data.extend_from_slice(&piece);
    }
    Ok(data)
}

async fn check(headers: &[(&str, &str)], hash: &str, pieces: &[&str], expected: Result<(), S3Code>) {
    let outcome = match body(headers, hash, pieces) {
        Ok(mut body) => {
            let outcome = read(&mut body).await;
            if let Err(error) = &outcome {
                assert_eq!(body.next().await.unwrap_err().code, error.code, "an error stays");
                assert!(body.digests().is_none());
            }
            outcome.map(|_| ())
        }
        Err(error) => Err(error),
    };
    let code = outcome.as_ref().copied().map_err(|error| error.code);
    assert_eq!(code, expected, "{headers:?} {hash} {pieces:?}: {outcome:?}");
}

#[tokio::test]
async fn each_claim_holds_or_has_its_own_answer() {
    use S3Code as S;
    let unsigned = "UNSIGNED-PAYLOAD";
    let length = ("content-length", "11");
    let other_hash = SHA256.replace('9', "8");
    for (headers, hash, pieces, expected) in [
        (&[length][..], unsigned, &["hello", " world"][..], Ok(())),
        (&[length], SHA256, &[BODY], Ok(())),
        (&[length], SHA256, &["hello", " worle"], Err(S::XAmzContentSHA256Mismatch)),
        (&[length], &other_hash, &[BODY], Err(S::XAmzContentSHA256Mismatch)),
        (&[("content-length", "0")], SHA256, &[], Err(S::XAmzContentSHA256Mismatch)),
        (&[], SHA256, &[], Err(S::XAmzContentSHA256Mismatch)),
        (&[length], unsigned, &["hello"], Err(S::IncompleteBody)),
        (&[("content-length", "12")], unsigned, &[BODY], Err(S::IncompleteBody)),
        (&[("content-length", "10")], unsigned, &[BODY], Err(S::IncompleteBody)),
        (&[("content-length", "1e1")], unsigned, &[BODY], Err(S::InvalidArgument)),
        (&[("content-length", "18446744073709551616")], unsigned, &[BODY], Err(S::InvalidArgument)),
        (&[length, ("content-md5", "XrY7u+Ae7tCTyyK7j1rNww==")], unsigned, &[BODY], Ok(())),
        (&[length, ("content-md5", "XrY7u+Ae7tCTyyK7j1rNwQ==")], unsigned, &[BODY], Err(S::BadDigest)),
        (&[length, ("content-md5", "XrY7")], unsigned, &[BODY], Err(S::InvalidDigest)),
        (&[length, ("content-md5", "")], unsigned, &[BODY], Err(S::InvalidDigest)),
        (&[length, ("content-md5", "not base64 at all!!!")], unsigned, &[BODY], Err(S::InvalidDigest)),
        (&[length, ("x-amz-checksum-crc32", "DUoRhQ==")], unsigned, &[BODY], Ok(())),
        (&[length, ("x-amz-checksum-crc32", "DUoRhA==")], unsigned, &[BODY], Err(S::BadDigest)),
        (&[length, ("x-amz-checksum-crc32", "DUoR")], unsigned, &[BODY], Err(S::InvalidRequest)),
        (&[length, ("x-amz-checksum-crc32", "bad")], unsigned, &[BODY], Err(S::InvalidRequest)),
        (&[length, ("x-amz-checksum-crc32c", "yZRlqg==")], unsigned, &[BODY], Ok(())),
        (&[length, ("x-amz-checksum-sha1", "Kq5sNclPz7QV2+lfQIuc6R7oRu0=")], unsigned, &[BODY], Ok(())),
        (
            &[length, ("x-amz-checksum-sha256", "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=")],
            unsigned,
            &[BODY],
            Ok(()),
        ),
        (
            &[length, ("x-amz-checksum-sha256", "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzeg=")],
            unsigned,
            &[BODY],
            Err(S::BadDigest),
        ),
        (
            &[length, ("x-amz-checksum-crc32", "DUoRhQ=="), ("x-amz-checksum-crc32c", "yZRlqg==")],
            unsigned,
            &[BODY],
            Err(S::InvalidRequest),
        ),
        (
            &[length, ("x-amz-checksum-crc32", "DUoRhQ=="), ("x-amz-trailer", "x-amz-checksum-crc32c")],
            unsigned,
            &[BODY],
            Err(S::InvalidRequest),
        ),
        (
            &[length, ("x-amz-sdk-checksum-algorithm", "crc32"), ("x-amz-checksum-crc32", "DUoRhQ==")],
            unsigned,
            &[BODY],
            Ok(()),
        ),
        (
            &[length, ("x-amz-sdk-checksum-algorithm", "CRC32C"), ("x-amz-checksum-crc32", "DUoRhQ==")],
            unsigned,
            &[BODY],
            Err(S::InvalidRequest),
        ),
        (&[length, ("x-amz-sdk-checksum-algorithm", "CRC32C")], unsigned, &[BODY], Err(S::InvalidRequest)),
        (&[length, ("x-amz-sdk-checksum-algorithm", "CRC31")], unsigned, &[BODY], Err(S::InvalidArgument)),
        (
            &[length, ("x-amz-sdk-checksum-algorithm", "CRC32"), ("content-md5", "XrY7u+Ae7tCTyyK7j1rNww==")],
            unsigned,
            &[BODY],
            Ok(()),
        ),
    ] {
        check(headers, hash, pieces, expected).await;
    }
}

#[tokio::test]
async fn trailers_are_verified_before_the_end() {
    use S3Code as S;
    let streaming = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    let length = ("x-amz-decoded-content-length", "11");
    let crc32 = ("x-amz-trailer", "x-amz-checksum-crc32");
    let framed = |trailer: &str| format!("b\r\n{BODY}\r\n0\r\n{trailer}\r\n");
    for (headers, trailer, expected) in [
        (&[length, crc32][..], "x-amz-checksum-crc32:DUoRhQ==\r\n", Ok(())),
        (&[length, crc32], "X-Amz-Checksum-Crc32: DUoRhQ== \r\n", Ok(())),
        (&[length, crc32], "x-amz-checksum-crc32:DUoRhA==\r\n", Err(S::BadDigest)),
        (&[length, crc32], "x-amz-checksum-crc32:DUoR\r\n", Err(S::InvalidRequest)),
        (&[length, crc32], "", Err(S::MalformedTrailerError)),
        (&[length, crc32], "x-amz-checksum-crc32c:yZRlqg==\r\n", Err(S::MalformedTrailerError)),
        (&[length, crc32], "x-amz-checksum-crc32:DUoRhQ==\r\na:b\r\n", Err(S::MalformedTrailerError)),
        (&[length], "x-amz-checksum-crc32:DUoRhQ==\r\n", Err(S::MalformedTrailerError)),
        (&[length], "", Ok(())),
        (&[crc32], "x-amz-checksum-crc32:DUoRhQ==\r\n", Err(S::MissingContentLength)),
        (&[("x-amz-decoded-content-length", "10"), crc32], "x-amz-checksum-crc32:DUoRhQ==\r\n", Err(S::IncompleteBody)),
        (&[("x-amz-decoded-content-length", "12"), crc32], "x-amz-checksum-crc32:DUoRhQ==\r\n", Err(S::IncompleteBody)),
        (&[length, crc32, ("content-md5", "XrY7u+Ae7tCTyyK7j1rNww==")], "x-amz-checksum-crc32:DUoRhQ==\r\n", Ok(())),
        (
            &[length, crc32, ("content-md5", "XrY7u+Ae7tCTyyK7j1rNwQ==")],
            "x-amz-checksum-crc32:DUoRhQ==\r\n",
            Err(S::BadDigest),
        ),
        (&[length, crc32, ("x-amz-sdk-checksum-algorithm", "CRC32")], "x-amz-checksum-crc32:DUoRhQ==\r\n", Ok(())),
        (
            &[length, crc32, ("x-amz-sdk-checksum-algorithm", "SHA1")],
            "x-amz-checksum-crc32:DUoRhQ==\r\n",
            Err(S::InvalidRequest),
        ),
    ] {
        let framed = framed(trailer);
        let (first, second) = framed.split_at(7);
        check(headers, streaming, &[first, second], expected).await;
    }
    check(&[length, crc32], streaming, &["b\r\nhello"], Err(S::IncompleteBody)).await;
    check(&[length, crc32], streaming, &["b;x\r\nhello"], Err(S::InvalidRequest)).await;
}

#[tokio::test]
async fn digests_are_there_at_the_end() {
    let mut plain = body(&[("content-length", "11")], "UNSIGNED-PAYLOAD", &["hello", "", " world"]).unwrap();
    plain.want(Algorithm::Crc64Nvme);
    assert_eq!(read(&mut plain).await.unwrap(), BODY.as_bytes());
    let mut hasher = Hasher::new(Algorithm::Crc64Nvme);
    hasher.update(BODY.as_bytes());
    let kept = Some(hasher.finish());
    let expected = Digests { md5: Some(Md5::digest(BODY).into()), sha256: None, named: None, kept };
    assert_eq!(plain.digests(), Some(expected));
    assert_eq!(plain.next().await.unwrap(), None, "the end stays");

    let headers = [("content-length", "11"), ("x-amz-checksum-crc32", "DUoRhQ==")];
    let mut announced = body(&headers, SHA256, &[BODY]).unwrap();
    assert_eq!(announced.announced_checksum(), Some(Algorithm::Crc32));
    announced.want(Algorithm::Crc64Nvme);
    read(&mut announced).await.unwrap();
    let digests = announced.digests().unwrap();
    assert_eq!((digests.named.unwrap().to_base64(), digests.kept), ("DUoRhQ==".to_owned(), kept));
    assert_eq!(hex::encode(digests.sha256.unwrap()), SHA256);
}

#[tokio::test]
async fn documents_are_collected_up_to_their_limit() {
    let read = async |max, pieces: &[&str], headers: &[(&str, &str)]| {
        let mut body = body(headers, "UNSIGNED-PAYLOAD", pieces).unwrap();
        body.collect(max).await.map_err(|error| error.code)
    };
    let chunked = [("transfer-encoding", "chunked")];
    assert_eq!(read(11, &["he", "llo", " world"], &chunked).await.unwrap(), BODY);
    assert_eq!(read(11, &[BODY], &chunked).await.unwrap(), BODY);
    assert_eq!(read(11, &[], &chunked).await.unwrap(), "");
    for pieces in [&["hello world"][..], &["hello", " world"], &["h", "ello", " world"]] {
        assert_eq!(read(10, pieces, &chunked).await, Err(S3Code::MaxMessageLengthExceeded), "{pieces:?}");
        assert_eq!(read(10, pieces, &[("content-length", "11")]).await, Err(S3Code::MaxMessageLengthExceeded));
    }
}

#[test]
fn a_length_may_be_required() {
    assert_eq!(
        body(&[], "UNSIGNED-PAYLOAD", &[]).unwrap().require_length().unwrap_err().code,
        S3Code::MissingContentLength
    );
    assert_eq!(body(&[("content-length", "0")], "UNSIGNED-PAYLOAD", &[]).unwrap().require_length().unwrap(), Some(0));
}
