//! What a request's headers say about its body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::{self, HeaderName};

use super::{Algorithm, Checksum, ChunkSigner, EMPTY_SHA256};
use crate::error::{S3Code, S3Error, S3Result};

pub(crate) static CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
static CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
static DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");
static TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");
static SDK_ALGORITHM: HeaderName = HeaderName::from_static("x-amz-sdk-checksum-algorithm");

/// How the body is bound to the signature: `x-amz-content-sha256`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ContentHash {
    /// It is not.
    Unsigned,
    /// By the hash of its bytes.
    Sha256([u8; 32]),
    /// It comes in chunks; whether they are signed is known by the signer that [`Claims`] has.
    Chunks {
        /// Trailers follow.
        trailing: bool,
    },
}

/// `x-amz-content-sha256`, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HashHeader {
    pub hash: ContentHash,
    /// Chunks and trailers are signed.
    pub signed_chunks: bool,
}

impl HashHeader {
    /// Reads the header's value.
    ///
    /// # Errors
    /// `InvalidArgument` where it is neither a hash nor one of the known words; `NotImplemented` for SigV4A.
    pub fn parse(value: &[u8]) -> S3Result<Self> {
        let chunks = |trailing, signed_chunks| Ok(Self { hash: ContentHash::Chunks { trailing }, signed_chunks });
        match value {
            b"UNSIGNED-PAYLOAD" => return Ok(Self { hash: ContentHash::Unsigned, signed_chunks: false }),
            b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => return chunks(false, true),
            b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => return chunks(true, true),
            b"STREAMING-UNSIGNED-PAYLOAD-TRAILER" => return chunks(true, false),
            b"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD" | b"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER" => {
                return Err(S3Error::not_implemented("the asymmetric signature version 4 (SigV4A)"));
            }
            _ => {}
        }
        let mut hash = [0; 32];
        if hex::decode_to_slice(value, &mut hash).is_err() {
            return Err(S3Error::invalid_argument(
                CONTENT_SHA256.as_str(),
                value,
                "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
                 STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a SHA-256 in hexadecimal",
            ));
        }
        Ok(Self { hash: ContentHash::Sha256(hash), signed_chunks: false })
    }
}

/// Where the checksum of the bytes stands.
#[derive(Clone, Debug)]
enum Announced {
    Nowhere,
    Header(Checksum),
    Trailer(Algorithm),
}

/// Everything that is verified before a body's end is told.
pub(crate) struct Claims {
    /// Payload bytes.
    pub length: Option<u64>,
    pub hash: ContentHash,
    /// For signed chunks.
    pub signer: Option<Box<ChunkSigner>>,
    pub md5: Option<[u8; 16]>,
    checksum: Announced,
    /// Trailers that `x-amz-trailer` names, in lower case.
    trailers: Vec<String>,
}

impl Claims {
    /// Reads the headers. `with_checksum` says whether `x-amz-checksum-*` is about this body: at CompleteMultipartUpload it is about the
    /// object.
    ///
    /// # Errors
    /// `InvalidDigest`, `InvalidRequest`, `InvalidArgument`, `MissingContentLength`: what is malformed, missing or contradicts itself.
    pub fn read(
        headers: &HeaderMap,
        hash: HashHeader,
        signer: Option<Box<ChunkSigner>>,
        with_checksum: bool,
    ) -> S3Result<Self> {
        let HashHeader { hash, .. } = hash;
        let content_length = number(headers, &header::CONTENT_LENGTH)?;
        let chunked = headers.contains_key(header::TRANSFER_ENCODING);
        let length = match hash {
            ContentHash::Chunks { .. } => match number(headers, &DECODED_LENGTH)? {
                None => {
                    return Err(S3Error::new(
                        S3Code::MissingContentLength,
                        "a header x-amz-decoded-content-length is needed",
                    ));
                }
                some => some,
            },
            ContentHash::Unsigned | ContentHash::Sha256(_) => match (content_length, chunked) {
                (None, true) => number(headers, &DECODED_LENGTH)?,
                (length, _) => length,
            },
        };
        let empty = content_length.unwrap_or(0) == 0 && !chunked;
        if empty
            && let ContentHash::Sha256(hash) = hash
            && hex::encode(hash).as_bytes() != EMPTY_SHA256
        {
            return Err(S3Code::XAmzContentSHA256Mismatch.into());
        }
        let mut md5 = None;
        for value in headers.get_all(&CONTENT_MD5) {
            let claimed = parse_md5(value.as_bytes()).ok_or(S3Code::InvalidDigest)?;
            if md5.replace(claimed).is_some() {
                return Err(S3Error::new(S3Code::InvalidDigest, "one Content-MD5 header is expected, several came"));
            }
        }
        let trailers = match headers.get(&TRAILER) {
            Some(value) => names(value.as_bytes())?,
            None => Vec::new(),
        };
        let checksum = if with_checksum { announced(headers, &trailers)? } else { Announced::Nowhere };
        Ok(Self { length, hash, signer, md5, checksum, trailers })
    }

    /// The kind of checksum that comes, or came, with the body.
    pub fn algorithm(&self) -> Option<Algorithm> {
        match &self.checksum {
            Announced::Nowhere => None,
            Announced::Header(checksum) => Some(checksum.algorithm()),
            Announced::Trailer(algorithm) => Some(*algorithm),
        }
    }

    /// The value that the payload must have, once the trailers are there.
    pub fn expected_checksum(&self, trailers: &[(String, String)]) -> S3Result<Option<Checksum>> {
        let malformed = |message| S3Error::new(S3Code::MalformedTrailerError, message);
        if trailers.iter().any(|(name, _)| !self.trailers.contains(name)) {
            return Err(malformed("a trailer came that x-amz-trailer does not name"));
        }
        match &self.checksum {
            Announced::Nowhere => Ok(None),
            Announced::Header(checksum) => Ok(Some(*checksum)),
            Announced::Trailer(algorithm) => {
                let value = trailers.iter().find(|(name, _)| name == algorithm.header().as_str());
                let (_, value) = value.ok_or_else(|| malformed("the trailer that x-amz-trailer names did not come"))?;
                Checksum::from_base64(*algorithm, value.as_bytes()).map(Some).ok_or_else(|| invalid_value(*algorithm))
            }
        }
    }
}

fn invalid_value(algorithm: Algorithm) -> S3Error {
    S3Error::new(S3Code::InvalidRequest, format!("the value for {} is invalid", algorithm.header()))
}

fn announced(headers: &HeaderMap, trailers: &[String]) -> S3Result<Announced> {
    let mut found = Announced::Nowhere;
    let mut count = 0;
    for algorithm in Algorithm::ALL {
        for value in headers.get_all(algorithm.header()) {
            count += 1;
            let checksum =
                Checksum::from_base64(algorithm, value.as_bytes()).ok_or_else(|| invalid_value(algorithm))?;
            found = Announced::Header(checksum);
        }
    }
    for name in trailers {
        if let Some(algorithm) = Algorithm::from_header(name.as_bytes()) {
            count += 1;
            found = Announced::Trailer(algorithm);
        }
    }
    if count > 1 {
        return Err(S3Error::new(
            S3Code::InvalidRequest,
            "one x-amz-checksum- header or trailer is expected, several came",
        ));
    }
    if let Some(value) = headers.get(&SDK_ALGORITHM) {
        let named = Algorithm::from_name(value.as_bytes()).ok_or_else(|| {
            S3Error::invalid_argument(SDK_ALGORITHM.as_str(), value.as_bytes(), "the checksum algorithm is not known")
        })?;
        let sent = match &found {
            Announced::Nowhere => None,
            Announced::Header(checksum) => Some(checksum.algorithm()),
            Announced::Trailer(algorithm) => Some(*algorithm),
        };
        // Content-MD5 alone satisfies those that announce an algorithm and send none.
        if sent != Some(named) && (sent.is_some() || !headers.contains_key(&CONTENT_MD5)) {
            return Err(S3Error::new(
                S3Code::InvalidRequest,
                "x-amz-sdk-checksum-algorithm is given, but no x-amz-checksum- header or x-amz-trailer of this algorithm",
            ));
        }
    }
    Ok(found)
}

fn number(headers: &HeaderMap, name: &HeaderName) -> S3Result<Option<u64>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let digits = value.as_bytes();
    let number = digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    match number {
        Some(number) if !digits.is_empty() => Ok(Some(number)),
        _ => Err(S3Error::invalid_argument(name.as_str(), digits, format!("{name} is not a number"))),
    }
}

fn parse_md5(text: &[u8]) -> Option<[u8; 16]> {
    let mut bytes = [0; 18];
    let length = STANDARD.decode_slice(text, &mut bytes).ok()?;
    bytes.get(..length)?.try_into().ok()
}

/// Names in `x-amz-trailer`, separated by commas.
fn names(value: &[u8]) -> S3Result<Vec<String>> {
    let text = std::str::from_utf8(value)
        .map_err(|_| S3Error::invalid_argument(TRAILER.as_str(), value, "x-amz-trailer is not a list of names"))?;
    Ok(text.split(',').map(|name| name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty()).collect())
}
