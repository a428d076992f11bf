//! The decoder against AWS's published examples, however they are split, and against framing that is wrong.

use proptest::prelude::*;

use bytes::Bytes;

use super::chunked::{ChunkError, ChunkSigner, Decoder, LINE_MAX, TRAILERS_MAX};
use crate::auth::test_signer::{DATE, SCOPE, key, sha256, sign};
use crate::body::Hasher;
use crate::body::checksum::Algorithm;

fn signer(seed: &str) -> ChunkSigner {
    let mut bytes = [0; 32];
    hex::decode_to_slice(seed, &mut bytes).unwrap();
    ChunkSigner::new(key(), DATE, SCOPE, &bytes)
}

type Outcome = Result<(Vec<u8>, Vec<(String, String)>), ChunkError>;

/// Feeds a body in pieces of these lengths, over and over.
fn decode(body: &[u8], lengths: &[usize], length: u64, signer: Option<ChunkSigner>, trailing: bool) -> Outcome {
    let mut decoder = Decoder::new(length, signer, trailing);
    let mut data = Vec::new();
    let mut rest = body;
    let mut turn = 0;
    while !rest.is_empty() {
        let take = lengths[turn % lengths.len()].clamp(1, rest.len());
        turn += 1;
        let mut input = Bytes::copy_from_slice(&rest[..take]);
        rest = &rest[take..];
        while let Some(piece) = decoder.next(&mut input)? {
            assert!(!piece.is_empty());
            data.extend_from_slice(&piece);
        }
        assert!(input.is_empty());
    }
    Ok((data, decoder.finish()?))
}

/// A body as the published examples have it: 65 KiB of `a` in two chunks.
fn example(signatures: [&str; 3], trailers: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (length, signature) in [65_536, 1024, 0].into_iter().zip(signatures) {
        body.extend_from_slice(format!("{length:x};chunk-signature={signature}\r\n").as_bytes());
        body.extend_from_slice(&vec![b'a'; length]);
        if length > 0 {
            body.extend_from_slice(b"\r\n");
        }
    }
    body.extend_from_slice(trailers.as_bytes());
    body.extend_from_slice(b"\r\n");
    body
}

const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
const SIGNATURES: [&str; 3] = [
    "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
    "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
    "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
];
const TRAILER_SEED: &str = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
const TRAILER_SIGNATURES: [&str; 3] = [
    "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
    "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
    "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
];
const TRAILERS: &str = "x-amz-checksum-crc32c:sOO8/Q==\r\n\
                        x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n";

fn check(body: &[u8], expected: Result<usize, ChunkError>) {
    for lengths in [&[usize::MAX][..], &[1], &[7, 64], &[65_536]] {
        let outcome = decode(body, lengths, 66_560, Some(signer(SEED)), false);
        assert_eq!(outcome.map(|(data, _)| data.len()), expected);
    }
}

#[test]
fn the_published_example_is_decoded() {
    let body = example(SIGNATURES, "");
    assert_eq!(body.len(), 66_824);
    check(&body, Ok(66_560));
    check(&body[..body.len() - 2], Ok(66_560));
}

#[test]
fn the_published_example_with_trailers_is_decoded() {
    let expected = [("x-amz-checksum-crc32c".to_owned(), "sOO8/Q==".to_owned())];
    for trailers in [TRAILERS.to_owned(), TRAILERS.replacen("\r\n", "\n\r\n", 1), TRAILERS.replace("\r\n", "\n")] {
        let body = example(TRAILER_SIGNATURES, &trailers);
        let (data, found) = decode(&body, &[1000], 66_560, Some(signer(TRAILER_SEED)), true).unwrap();
        assert_eq!(found, expected);
        let mut hasher = Hasher::new(Algorithm::Crc32c);
        hasher.update(&data);
        assert_eq!(hasher.finish().to_base64(), "sOO8/Q==");
    }
}

#[test]
fn trailers_that_are_wrong_are_refused() {
    let trailer = |what| Err(ChunkError::Trailer(what));
    for (trailers, expected) in [
        ("", trailer("the trailers are not signed")),
        (&TRAILERS[..32], Err(ChunkError::Length)),
        (&TRAILERS.replace("sOO8", "sOO9"), Err(ChunkError::Signature)),
        (&TRAILERS.replace("crc32c", "crc32d"), Err(ChunkError::Signature)),
        (&TRAILERS.replace("d81f", "d81g"), Err(ChunkError::Signature)),
        (&format!("{TRAILERS}a:b\r\n"), trailer("a trailer that was not announced")),
        (&format!("no colon\r\n{TRAILERS}"), trailer("a trailer has no colon")),
        (&format!("{}{TRAILERS}", &TRAILERS[..32]), trailer("a trailer comes twice")),
        (&format!("a:{}\r\n", "b".repeat(TRAILERS_MAX)), trailer("the trailers are too long")),
        ("a:b\r\n\r\n\r\n", trailer("the trailers are not signed")),
    ] {
        let body = example(TRAILER_SIGNATURES, trailers);
        let outcome = decode(&body, &[100], 66_560, Some(signer(TRAILER_SEED)), true);
        assert_eq!(outcome.map(|_| ()), expected, "{trailers:?}");
    }
    let body = example(TRAILER_SIGNATURES, TRAILERS);
    let outcome = decode(&body[..body.len() - 2], &[100], 66_560, Some(signer(TRAILER_SEED)), true);
    assert_eq!(outcome, Err(ChunkError::Length), "the empty line at the end is missing");
}

#[test]
fn whatever_is_changed_after_signing_is_noticed() {
    let good = example(SIGNATURES, "");
    let header = 5 + 17 + 64 + 2;
    for at in [header, header + 65_535, 6 + 17, good.len() - 8] {
        let mut body = good.clone();
        body[at] ^= 1;
        let outcome = decode(&body, &[4096], 66_560, Some(signer(SEED)), false);
        assert_eq!(outcome.map(|_| ()), Err(ChunkError::Signature), "byte {at}");
    }
    // The second chunk before the first, one left out, one twice.
    let (first, second) = (&good[..header + 65_538], &good[header + 65_538..good.len() - 88 - 2]);
    let last = &good[good.len() - 88 - 2 + 2..];
    for body in [[second, first, last].concat(), [first, last].concat(), [second, last].concat()] {
        assert!(decode(&body, &[4096], 66_560, Some(signer(SEED)), false).is_err());
    }
}

#[test]
fn framing_that_is_wrong_is_refused() {
    let malformed = |what| Err(ChunkError::Malformed(what));
    let check = |body: &str, expected: Result<(), ChunkError>| {
        for lengths in [&[usize::MAX][..], &[1], &[3]] {
            let outcome = decode(body.as_bytes(), lengths, 5, None, true);
            assert_eq!(outcome.map(|_| ()), expected, "{body:?}");
        }
    };
    check("5\r\nhello\r\n0\r\n\r\n", Ok(()));
    check("2\r\nhe\r\n3\r\nllo\r\n0\r\na:b\r\n\r\n", Ok(()));
    check("0005\r\nhello\r\n000\r\n\r\n", Ok(()));
    for (body, expected) in [
        ("", Err(ChunkError::Length)),
        ("5\r\nhel", Err(ChunkError::Length)),
        ("5\r\nhello\r\n", Err(ChunkError::Length)),
        ("5\r\nhello\r\n0\r\n", Err(ChunkError::Length)),
        ("5\r\nhello\r\n0\r\na:b\r\n", Err(ChunkError::Length)),
        ("4\r\nhell\r\n0\r\n\r\n", Err(ChunkError::Length)),
        ("6\r\nhello!\r\n0\r\n\r\n", Err(ChunkError::Length)),
        ("ffffffffffffffff\r\nhello", Err(ChunkError::Length)),
        ("10000000000000005\r\nhello", malformed("a chunk's size is not hexadecimal")),
        ("0x5\r\nhello", malformed("a chunk's size is not hexadecimal")),
        ("+5\r\nhello", malformed("a chunk's size is not hexadecimal")),
        ("-1\r\nhello", malformed("a chunk's size is not hexadecimal")),
        ("\r\nhello", malformed("a chunk's size is not hexadecimal")),
        ("5\nhello", malformed("a chunk's first line does not end with CRLF")),
        ("5\r\nhello0\r\n", malformed("a chunk's data does not end with CRLF")),
        ("5\r\nhello\n\r\n", malformed("a chunk's data does not end with CRLF")),
        ("5;chunk-signature=00\r\nhello", malformed("a chunk is signed, but the request says unsigned")),
        ("5\r\nhello\r\n0\r\n\r\nmore", malformed("bytes follow the last chunk")),
        ("5\r\nhello\r\n0\r\n\r\n\n", malformed("bytes follow the last chunk")),
        (
            "5\r\nhello\r\n0\r\nx-amz-trailer-signature:00\r\n\r\n",
            Err(ChunkError::Trailer("trailers are signed, but the request says unsigned")),
        ),
    ] {
        check(body, expected);
    }
    check(&"0".repeat(LINE_MAX + 1), malformed("a chunk's first line is too long"));
    let unannounced = decode(b"0\r\na:b\r\n\r\n", &[9], 0, None, false);
    assert_eq!(unannounced, Err(ChunkError::Trailer("a trailer that was not announced")));
    let unsigned = decode(b"5\r\nhello\r\n0\r\n\r\n", &[9], 5, Some(signer(SEED)), false);
    assert_eq!(unsigned.map(|_| ()), malformed("a chunk has no chunk-signature"));
}

/// A well-formed signed body of these chunks, with the chain of signatures computed by hand.
fn signed(chunks: &[Vec<u8>], trailers: &[(String, String)]) -> Vec<u8> {
    let mut previous = SEED.to_owned();
    let mut body = Vec::new();
    let head = format!("{DATE}\n{SCOPE}\n");
    for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()).chain([&Vec::new()]) {
        previous = sign(&format!("AWS4-HMAC-SHA256-PAYLOAD\n{head}{previous}\n{}\n{}", sha256(b""), sha256(chunk)));
        body.extend_from_slice(format!("{:x};chunk-signature={previous}\r\n", chunk.len()).as_bytes());
        if !chunk.is_empty() {
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
    }
    if !trailers.is_empty() {
        let text: String = trailers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        previous = sign(&format!("AWS4-HMAC-SHA256-TRAILER\n{head}{previous}\n{}", sha256(text.as_bytes())));
        body.extend_from_slice(text.replace('\n', "\r\n").as_bytes());
        body.extend_from_slice(format!("x-amz-trailer-signature:{previous}\r\n").as_bytes());
    }
    body.extend_from_slice(b"\r\n");
    body
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_split_decodes_to_the_same(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..6),
        lengths in proptest::collection::vec(1_usize..300, 1..5),
        with_trailers in any::<bool>(),
    ) {
        let trailers = if with_trailers { vec![("x-amz-checksum-crc32".to_owned(), "AAAAAA==".to_owned())] } else { Vec::new() };
        let data = chunks.concat();
        let body = signed(&chunks, &trailers);
        let outcome = decode(&body, &lengths, data.len() as u64, Some(signer(SEED)), with_trailers);
        prop_assert_eq!(outcome, Ok((data, trailers)));
    }

    #[test]
    fn any_changed_byte_of_a_signed_body_is_noticed(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 1..4),
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let data = chunks.concat();
        let mut body = signed(&chunks, &[]);
        let at = at.index(body.len());
        body[at] ^= 1_u8 << bit;
        if let Ok((decoded, _)) = decode(&body, &[17], data.len() as u64, Some(signer(SEED)), false) {
            // Digits of sizes and signatures have two cases.
            prop_assert_eq!(decoded, data, "byte {}", at);
            prop_assert_eq!(bit, 5);
        }
    }
}

#[test]
fn arbitrary_bodies_are_decoded_or_refused() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/chunked");
    let words: [&[u8]; 5] = [b"\r\n", b"0\r\n\r\n", b";chunk-signature=", b"x-amz-checksum-crc32:", b"5\r\nhello\r\n"];
    ozone_fuzz::fuzz(corpus, &words, |bytes| {
        // The first byte says how the request announced the body, the second how it is split.
        let (&[mode, split], body) = bytes.split_first_chunk().unwrap_or((&[0, 0], &[]));
        let length = u64::from(mode >> 2);
        let signer = (mode & 1 == 1).then(|| signer(SEED));
        let trailing = mode & 2 == 2;
        let whole = decode(body, &[usize::MAX], length, signer.clone(), trailing);
        let pieces = decode(body, &[usize::from(split) % 16 + 1], length, signer, trailing);
        assert_eq!(whole, pieces, "the split must not matter");
        match whole {
            Ok((data, trailers)) => {
                assert!(data.len() as u64 == length && (trailing || trailers.is_empty()));
                format!("{} {}", data.len(), trailers.len())
            }
            Err(error) => format!("{error:?}"),
        }
    });
}
