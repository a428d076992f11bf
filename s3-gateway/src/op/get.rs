//! GetObject and HeadObject (S3 API, "GetObject", "HeadObject").

use http::StatusCode;
use http::header::{self, HeaderValue};
use ozone_client::proto::om::v1 as om;
use ozone_common::{Error, ErrorCode};
use std::ops::Range;

use super::backend::{Backend, ObjectReader};
use super::object::{self, PARTS_COUNT};
use super::{Place, Request, check_version};
use crate::error::{S3Code, S3Error, S3Result};
use crate::gateway::Gateway;
use crate::range::{ByteRange, NotSatisfiable};
use crate::response::{Pieces, Response};

/// Look-ups of an object that is replaced again and again before its first byte is there.
const ATTEMPTS_MAX: u32 = 4;

/// Bytes of an answer that need no reservation while they go out: not more than a connection's buffers hold in any case.
const SMALL_MAX: usize = 64 << 10;

/// What of an object is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    Whole,
    Range(ByteRange),
    Part(u32),
}

impl Wanted {
    fn read(request: &Request) -> S3Result<Self> {
        let range = object::text(&request.headers, header::RANGE);
        let Some(text) = request.query.bytes("partNumber") else {
            return Ok(range.and_then(ByteRange::parse).map_or(Self::Whole, Self::Range));
        };
        if range.is_some() {
            return Err(S3Error::new(
                S3Code::InvalidRequest,
                "a Range header and partNumber together are not possible",
            ));
        }
        object::part_number(text).map(Self::Part)
    }

    /// Which of the object's bytes to ask the OM for; the length may not be known yet.
    fn hint(self) -> (u64, u64) {
        match self {
            Self::Range(ByteRange::From(first, Some(last))) => (first, last.saturating_sub(first).saturating_add(1)),
            Self::Range(ByteRange::From(first, None)) => (first, 0),
            Self::Range(ByteRange::Last(_)) | Self::Whole | Self::Part(_) => (0, 0),
        }
    }

    /// The bytes, where they are not the whole object, and the part they are.
    fn resolve(self, info: &om::KeyInfo) -> S3Result<(Option<Range<u64>>, Option<&om::PartInfo>)> {
        match self {
            Self::Whole => Ok((None, None)),
            Self::Range(range) => match range.resolve(info.length) {
                Ok(range) => Ok((Some(range), None)),
                Err(NotSatisfiable) => Err(not_satisfiable(info.length)),
            },
            Self::Part(1) if info.parts.is_empty() => Ok((Some(0..info.length), None)),
            Self::Part(number) => {
                let before = info.parts.iter().take_while(|part| part.part < number);
                let start = before.map(|part| part.length).sum::<u64>();
                match info.parts.iter().find(|part| part.part == number) {
                    Some(part) => Ok((Some(start..start + part.length), Some(part))),
                    None => Err(S3Error::new(S3Code::InvalidPartNumber, "the object has no part of this number")
                        .detail("PartNumberRequested", number.to_string())
                        .detail("ActualPartCount", info.parts.len().max(1).to_string())),
                }
            }
        }
    }
}

fn not_satisfiable(length: u64) -> S3Error {
    let error = S3Error::from(S3Code::InvalidRange).detail("ActualObjectSize", length.to_string());
    match HeaderValue::try_from(format!("bytes */{length}")) {
        Ok(value) => error.header(header::CONTENT_RANGE, value),
        Err(_) => error,
    }
}

/// An answer's headers, and the bytes to put behind them.
struct Answer {
    response: Response,
    length: u64,
    range: Range<u64>,
}

/// Judges conditions and ranges. `Ok(Err(_))` is the answer where no bytes follow.
fn answer(request: &Request, wanted: Wanted, info: &om::KeyInfo) -> S3Result<Result<Answer, Response>> {
    if let Some(response) = object::judge(&request.headers, info)? {
        return Ok(Err(response));
    }
    let (range, part) = wanted.resolve(info)?;
    let mut response = Response::new(if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK });
    object::put_facts(&mut response.headers, info, |name| request.query.bytes(name))?;
    let part_wanted = matches!(wanted, Wanted::Part(_));
    if object::wants_checksum(&request.headers) {
        let whole = info.meta.as_ref().and_then(|meta| meta.checksum.as_ref());
        match (part, &range) {
            // The part's value, of the kind that the object's is made of.
            (Some(part), _) => {
                let composite = whole.is_some_and(|sum| sum.composite);
                let sum = part.checksum.clone().map(|sum| om::Checksum { composite, parts: 0, ..sum });
                object::put_checksum(&mut response.headers, sum.as_ref());
            }
            (None, None) => object::put_checksum(&mut response.headers, whole),
            (None, Some(_)) if part_wanted => object::put_checksum(&mut response.headers, whole),
            // No checksum is that of some bytes in the middle.
            (None, Some(_)) => {}
        }
    }
    if part_wanted && !info.parts.is_empty() {
        response.headers.insert(PARTS_COUNT.clone(), HeaderValue::from(info.parts.len()));
    }
    if let Some(range) = range.as_ref().filter(|range| !range.is_empty())
        && let Ok(value) = HeaderValue::try_from(format!("bytes {}-{}/{}", range.start, range.end - 1, info.length))
    {
        response.headers.insert(header::CONTENT_RANGE, value);
    }
    let range = range.unwrap_or(0..info.length);
    let length = range.end - range.start;
    Ok(Ok(Answer { response, length, range }))
}

impl<B: Backend> Gateway<B> {
    async fn look_up(&self, place: &Place, wanted: Wanted, want_data: bool) -> S3Result<om::KeyFound> {
        let (data_offset, data_length) = wanted.hint();
        let request = om::LookupKey {
            bucket: Some(place.address()),
            key: place.key.clone(),
            want_data,
            data_offset,
            data_length,
            ..Default::default()
        };
        Ok(self.client.lookup_key(&place.ctx, request).await?)
    }

    /// An object's metadata.
    pub(super) async fn head_object(&self, request: Request) -> S3Result<Response> {
        check_version(request.query.bytes("versionId"))?;
        let place = self.place(&request)?;
        let wanted = Wanted::read(&request)?;
        let found = self.look_up(&place, wanted, false).await?;
        let info = found.info.unwrap_or_default();
        match answer(&request, wanted, &info)? {
            Ok(answer) => Ok(answer.response.number(header::CONTENT_LENGTH, answer.length)),
            Err(response) => Ok(response),
        }
    }

    /// An object, or a range of it.
    pub(super) async fn get_object(&self, request: Request) -> S3Result<Response> {
        check_version(request.query.bytes("versionId"))?;
        let place = self.place(&request)?;
        let wanted = Wanted::read(&request)?;
        for _ in 1..ATTEMPTS_MAX {
            match self.try_get(&request, &place, wanted).await? {
                Ok(response) => return Ok(response),
                // It was replaced between the look-up and the first byte.
                Err(error) => {
                    tracing::debug!(%error, request_id = &*place.ctx.request_id, "an object is looked up anew")
                }
            }
        }
        self.try_get(&request, &place, wanted).await?.map_err(S3Error::from)
    }

    /// The inner error is one after which another look-up may help.
    async fn try_get(&self, request: &Request, place: &Place, wanted: Wanted) -> S3Result<Result<Response, Error>> {
        let found = self.look_up(place, wanted, true).await?;
        let info = found.info.as_ref().ok_or_else(|| Error::internal("the OM's answer has no key"))?;
        let Answer { response, length, range } = match answer(request, wanted, info)? {
            Ok(answer) => answer,
            Err(response) => return Ok(Ok(response)),
        };
        if length == 0 {
            return Ok(Ok(response));
        }
        let reservation = self.reserve_read(length).await?;
        let mut reader = self.client.reader(&place.ctx, &place.address(), &found, range)?;
        // An error before the first byte is still an answer of its own.
        let first = match reader.next().await {
            Ok(Some(first)) => first,
            Ok(None) => return Err(Error::internal("a reader ended early").into()),
            Err(error) if error.code == ErrorCode::KeyChanged => return Ok(Err(error)),
            Err(error) => return Err(error.into()),
        };
        // A larger piece holds its reservation until it has gone out, too: clients may be slow.
        Ok(Ok(match reader.remaining() {
            0 if first.len() <= SMALL_MAX => response.bytes(first),
            _ => response.stream(first, Box::new(reader), reservation),
        }))
    }
}
