//! Multipart uploads from Create to Complete or Abort (S3 API, "CreateMultipartUpload", "UploadPart", "UploadPartCopy",
//! "CompleteMultipartUpload", "AbortMultipartUpload").

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use http::HeaderMap;
use http::header::HeaderValue;
use ozone_client::proto::om::v1 as om;
use ozone_common::limits::{PART_NUMBER_MAX, PUT_LENGTH_MAX};
use ozone_common::{Error, ErrorCode};
use tokio::task::spawn_blocking;

use super::backend::Backend;
use super::copy::asked_algorithm;
use super::object::{self, CHECKSUM_TYPE, put_checksum, put_etag};
use super::put::{Stored, too_large};
use super::{Place, Request, checksum_type, write_checksum};
use crate::body::{Algorithm, Checksum, md5};
use crate::error::{S3Code, S3Error, S3Result};
use crate::etag::ETag;
use crate::gateway::Gateway;
use crate::object_meta;
use crate::range::parse_copy_range;
use crate::response::Response;
use crate::route::percent_encode;
use crate::time::iso_8601;
use crate::xml::{Element, document, parse};

/// LIMIT: bytes of the list of parts: 10,000 with an entity tag and a SHA-256 each have some 2.5 MiB.
const COMPLETE_MAX: usize = 8 << 20;

/// How an object made of parts will be checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind {
    algorithm: Algorithm,
    composite: bool,
}

/// What S3 keeps where the client asks for nothing.
const DEFAULT_KIND: Kind = Kind { algorithm: Algorithm::Crc64Nvme, composite: false };

impl Kind {
    /// What CreateMultipartUpload asks for.
    ///
    /// # Errors
    /// `InvalidRequest` for combinations that S3 does not have: hashes of the whole, composite CRC64NVME, a type without an algorithm.
    fn read(headers: &HeaderMap) -> S3Result<Option<Self>> {
        let invalid = |message: String| Err(S3Error::new(S3Code::InvalidRequest, message));
        let composite = composite_asked(headers)?;
        let Some(algorithm) = asked_algorithm(headers)? else {
            return match composite {
                Some(_) => invalid("x-amz-checksum-type needs x-amz-checksum-algorithm".to_owned()),
                None => Ok(None),
            };
        };
        let composite = composite.unwrap_or(algorithm != Algorithm::Crc64Nvme);
        let possible = if composite { algorithm != Algorithm::Crc64Nvme } else { algorithm.is_crc() };
        if !possible {
            return invalid(format!(
                "the checksum type {} is not possible with {}",
                checksum_type(composite),
                algorithm.name()
            ));
        }
        Ok(Some(Self { algorithm, composite }))
    }

    fn of(meta: Option<&om::ObjectMeta>) -> Option<Self> {
        let sum = meta?.checksum.as_ref()?;
        Some(Self { algorithm: Algorithm::from_number(sum.algorithm)?, composite: sum.composite })
    }
}

/// `x-amz-checksum-type`: whether it says `COMPOSITE`.
fn composite_asked(headers: &HeaderMap) -> S3Result<Option<bool>> {
    match headers.get(&CHECKSUM_TYPE).map(HeaderValue::as_bytes) {
        None => Ok(None),
        Some(b"COMPOSITE") => Ok(Some(true)),
        Some(b"FULL_OBJECT") => Ok(Some(false)),
        Some(_) => Err(S3Error::new(S3Code::InvalidRequest, "x-amz-checksum-type must be COMPOSITE or FULL_OBJECT")),
    }
}

/// Upload and part number of a request about a part.
fn part_of(request: &Request) -> S3Result<(String, u32)> {
    let part = object::part_number(request.query.bytes("partNumber").unwrap_or_default())?;
    Ok((request.upload()?, part))
}

/// The list of parts that CompleteMultipartUpload names.
fn read_parts(bytes: &[u8]) -> S3Result<Vec<om::CompletedPart>> {
    let malformed = |message: String| S3Error::new(S3Code::MalformedXML, message);
    let root = parse(bytes, "CompleteMultipartUpload")?;
    let mut parts = Vec::new();
    for element in root.all("Part") {
        let number = element.require("PartNumber")?.trim();
        let part = match number.parse::<u32>() {
            Ok(part) if (1..=PART_NUMBER_MAX).contains(&part) => part,
            Ok(_) => {
                let message = format!("part numbers are from 1 to {PART_NUMBER_MAX}");
                return Err(S3Error::invalid_argument("PartNumber", number.as_bytes(), message));
            }
            Err(_) => return Err(malformed("a part number is no number".to_owned())),
        };
        // What is no MD5 is no part's: the OM says so, once it knows that there is such an upload.
        let md5 = match ETag::parse(element.require("ETag")?) {
            Some(ETag::Md5 { md5, parts: 0 }) => Bytes::copy_from_slice(&md5),
            _ => Bytes::new(),
        };
        parts.push(om::CompletedPart { part, md5, checksum: part_checksum(element)? });
    }
    if parts.is_empty() || parts.len() > PART_NUMBER_MAX as usize {
        return Err(malformed(format!("{} parts; 1 to {PART_NUMBER_MAX} are possible", parts.len())));
    }
    Ok(parts)
}

fn part_checksum(element: &Element<'_>) -> S3Result<Option<om::Checksum>> {
    let mut found = None;
    for algorithm in Algorithm::ALL {
        let Some(text) = element.get(algorithm.element())? else { continue };
        let Some(sum) = Checksum::from_base64(algorithm, text.trim().as_bytes()) else {
            let message = format!("the value of {} is invalid", algorithm.element());
            return Err(S3Error::new(S3Code::InvalidRequest, message));
        };
        if found.replace(sum.to_om()).is_some() {
            return Err(S3Error::new(S3Code::InvalidRequest, "a part has more than one checksum"));
        }
    }
    Ok(found)
}

/// The checksum of the whole object that CompleteMultipartUpload expects: with "-N" behind it where it is one of checksums.
fn expected_checksum(headers: &HeaderMap, parts: usize) -> S3Result<Option<om::Checksum>> {
    let mut found = None;
    for algorithm in Algorithm::ALL {
        for value in headers.get_all(algorithm.header()) {
            // What is no text is no base64 either.
            let text = value.to_str().unwrap_or_default();
            let (value, count) = match text.split_once('-') {
                Some((value, count)) => (value, Some(count)),
                None => (text, None),
            };
            let Some(sum) = Checksum::from_base64(algorithm, value.as_bytes()) else {
                let message = format!("the value for {} is invalid", algorithm.header());
                return Err(S3Error::new(S3Code::InvalidRequest, message));
            };
            if count.is_some_and(|count| count.parse() != Ok(parts)) {
                return Err(S3Error::new(S3Code::BadDigest, "the checksum is of another number of parts"));
            }
            if found.replace(sum.to_om()).is_some() {
                let message = "one x-amz-checksum- header is expected, several came";
                return Err(S3Error::new(S3Code::InvalidRequest, message));
            }
        }
    }
    Ok(found)
}

fn object_size(headers: &HeaderMap) -> S3Result<Option<u64>> {
    const NAME: &str = "x-amz-mp-object-size";
    match object::required_text(headers, NAME)? {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(size) => Ok(Some(size)),
            Err(_) => Err(S3Error::invalid_argument(NAME, text.as_bytes(), "the object's size is no number")),
        },
    }
}

/// Where the object can be had, in path style.
fn location(request: &Request, place: &Place) -> String {
    let mut path = Vec::with_capacity(place.key.len());
    percent_encode(&place.key, true, &mut path);
    let host = object::text(&request.headers, http::header::HOST).unwrap_or_default();
    format!("http://{host}/{}/{}", place.bucket, String::from_utf8_lossy(&path))
}

/// MD5 of the parts' MD5s.
fn joined_etag(parts: &[om::CompletedPart]) -> ETag {
    let joined: Vec<u8> = parts.iter().flat_map(|part| part.md5.iter().copied()).collect();
    ETag::Md5 { md5: md5(&joined), parts: parts.len() as u32 }
}

impl<B: Backend> Gateway<B> {
    /// Begins an upload.
    pub(super) async fn create_multipart_upload(&self, request: Request) -> S3Result<Response> {
        let place = self.place(&request)?;
        let asked = Kind::read(&request.headers)?;
        let mut meta = object_meta::from_headers(&request.headers)?;
        let Kind { algorithm, composite } = asked.unwrap_or(DEFAULT_KIND);
        meta.checksum = Some(om::Checksum { algorithm: algorithm as u32, composite, ..Default::default() });
        let initiate = om::InitiateUpload { bucket: Some(place.address()), key: place.key.clone(), meta: Some(meta) };
        let upload = self.client.initiate_upload(&place.ctx, initiate).await?.upload;
        let mut response = Response::xml(document("InitiateMultipartUploadResult", |out| {
            out.text("Bucket", &place.bucket);
            out.bytes("Key", &place.key);
            out.text("UploadId", &upload);
        }));
        if let Some(Kind { algorithm, composite }) = asked {
            let headers = &mut response.headers;
            headers.insert("x-amz-checksum-algorithm", HeaderValue::from_static(algorithm.name()));
            headers.insert(CHECKSUM_TYPE.clone(), HeaderValue::from_static(checksum_type(composite)));
        }
        Ok(response)
    }

    /// How an upload will be checked; that it is there is known before a byte of a part is read.
    async fn kind_of(&self, place: &Place, upload: &str) -> Result<Kind, Error> {
        let request = om::ListParts {
            bucket: Some(place.address()),
            key: place.key.clone(),
            upload: upload.to_owned(),
            after_part: PART_NUMBER_MAX,
            limit: 1,
        };
        let page = self.client.list_parts(&place.ctx, request).await?;
        Ok(Kind::of(page.meta.as_ref()).unwrap_or(DEFAULT_KIND))
    }

    async fn commit_part(
        &self,
        place: &Place,
        upload: String,
        part: u32,
        md5: [u8; 16],
        checksum: om::Checksum,
        written: ozone_client::Written,
    ) -> S3Result<om::PartCommitted> {
        let commit = om::CommitPart {
            bucket: Some(place.address()),
            key: place.key.clone(),
            upload,
            part,
            length: written.length,
            md5: Bytes::copy_from_slice(&md5),
            checksum: Some(checksum),
            blocks: written.blocks,
            grants: written.grants,
        };
        Ok(self.client.commit_part(&place.ctx.renewed(self.timeout()), commit).await?)
    }

    /// The bucket as writers of parts see it. It is asked for anew, after the upload was seen: an upload lives no longer than its bucket,
    /// so that its parts are as durable as the bucket says that the upload is in. And a part's bytes are never inline: its row has no
    /// place for them.
    async fn bucket_of_parts(&self, place: &Place) -> S3Result<om::BucketInfo> {
        let info = self.client.info_bucket(&place.ctx, om::InfoBucket { address: Some(place.address()) }).await?;
        Ok(om::BucketInfo { inline_max: 0, ..info })
    }

    /// Makes a part of a body.
    pub(super) async fn upload_part(&self, mut request: Request) -> S3Result<Response> {
        let place = self.place(&request)?;
        let (upload, part) = part_of(&request)?;
        let kind = self.kind_of(&place, &upload).await?;
        let announced = request.body.announced_checksum();
        if let Some(announced) = announced
            && announced != kind.algorithm
            && kind != DEFAULT_KIND
        {
            let message = format!(
                "the part comes with a checksum of type {}; the upload began with {}",
                announced.name(),
                kind.algorithm.name()
            );
            return Err(S3Error::new(S3Code::InvalidRequest, message));
        }
        let bucket = self.bucket_of_parts(&place).await?;
        let Stored { written, md5, checksum, named } =
            self.store(&place, &bucket, &mut request.body, kind.algorithm).await?;
        let answered = named.unwrap_or(checksum).to_om();
        self.commit_part(&place, upload, part, md5, checksum.to_om(), written).await?;
        let mut response = Response::ok();
        put_etag(&mut response.headers, ETag::Md5 { md5, parts: 0 });
        put_checksum(&mut response.headers, Some(&answered));
        response.headers.remove(&CHECKSUM_TYPE);
        Ok(response)
    }

    /// Makes a part of an object's bytes, or of a range of them.
    pub(super) async fn upload_part_copy(self: Arc<Self>, request: Request) -> S3Result<Response> {
        let place = self.place(&request)?;
        let (upload, part) = part_of(&request)?;
        let range = match object::required_text(&request.headers, "x-amz-copy-source-range")? {
            None => None,
            Some(text) => Some(parse_copy_range(text).ok_or_else(|| {
                let message = "the range must be of the form bytes=first-last";
                S3Error::invalid_argument("x-amz-copy-source-range", text.as_bytes(), message)
            })?),
        };
        let kind = self.kind_of(&place, &upload).await?;
        let found = self.find_source(&place, &request.headers).await?;
        let length = found.info.length;
        let range = match range {
            Some(range) if range.end > length => {
                let message = format!("the range is not within the source, which has {length} bytes");
                return Err(S3Error::new(S3Code::InvalidRange, message).detail("ActualObjectSize", length.to_string()));
            }
            Some(range) => range,
            None => 0..length,
        };
        if range.end - range.start > PUT_LENGTH_MAX {
            return Err(too_large(range.end - range.start));
        }
        let bucket = self.bucket_of_parts(&place).await?;
        let work = async move {
            let Stored { written, md5, checksum, .. } =
                self.store_copy(&place, &bucket, &found, range, kind.algorithm).await?;
            let checksum = checksum.to_om();
            let committed = self.commit_part(&place, upload, part, md5, checksum.clone(), written).await?;
            Ok(Response::xml(document("CopyPartResult", |out| {
                out.value("LastModified", iso_8601(committed.modified_ms));
                out.text("ETag", &ETag::Md5 { md5, parts: 0 }.quoted());
                write_checksum(out, Some(&checksum), false);
            })))
        };
        Response::eventually(request.id, work.boxed()).await
    }

    /// Joins parts to an object.
    pub(super) async fn complete_multipart_upload(self: Arc<Self>, mut request: Request) -> S3Result<Response> {
        let upload = request.upload()?;
        let conditions = object::put_conditions(&request.headers)?;
        let (list, _reservation) = self.document(&mut request, COMPLETE_MAX).await?;
        let place = self.place(&request)?;
        // A list of 10,000 parts takes milliseconds to read.
        let read = spawn_blocking(move || read_parts(&list)).await;
        let mut parts = read.map_err(|error| Error::internal(format!("reading a list of parts: {error}")))??;
        let checksum = expected_checksum(&request.headers, parts.len())?;
        let size = object_size(&request.headers)?;
        let asked_composite = composite_asked(&request.headers)?;
        // An upload that is gone may have been completed by this very request, sent before: the OM knows.
        match self.kind_of(&place, &upload).await {
            Ok(kind) => {
                if asked_composite.is_some_and(|composite| composite != kind.composite) {
                    let message = format!("the upload began with the checksum type {}", checksum_type(kind.composite));
                    return Err(S3Error::new(S3Code::InvalidRequest, message));
                }
                if kind == DEFAULT_KIND {
                    // Parts came with whatever checksum their sender liked; those were verified then, and none is kept but CRC64NVME.
                    for part in &mut parts {
                        part.checksum.take_if(|sum| sum.algorithm != kind.algorithm as u32);
                    }
                }
            }
            Err(error) if error.code == ErrorCode::UploadNotFound => {}
            Err(error) => return Err(error.into()),
        }
        let etag = joined_etag(&parts);
        let location = location(&request, &place);
        let complete = om::CompleteUpload {
            bucket: Some(place.address()),
            key: place.key.clone(),
            upload,
            parts,
            checksum,
            expected_length: size.unwrap_or(0),
            conditions,
        };
        let work = async move {
            let ctx = place.ctx.renewed(self.timeout());
            let committed = self.client.complete_upload(&ctx, complete).await?;
            let checksum = self.checksum_of(&place, committed.generation).await?;
            Ok(Response::xml(document("CompleteMultipartUploadResult", |out| {
                out.text("Location", &location);
                out.text("Bucket", &place.bucket);
                out.bytes("Key", &place.key);
                out.text("ETag", &etag.quoted());
                write_checksum(out, checksum.as_ref(), true);
            })))
        };
        Response::eventually(request.id, work.boxed()).await
    }

    /// The checksum of a generation of an object; `None` where it has been replaced already.
    async fn checksum_of(&self, place: &Place, generation: u64) -> S3Result<Option<om::Checksum>> {
        let request =
            om::LookupKey { bucket: Some(place.address()), key: place.key.clone(), generation, ..Default::default() };
        match self.client.lookup_key(&place.ctx.renewed(self.timeout()), request).await {
            Ok(found) => Ok(found.info.and_then(|info| info.meta).and_then(|meta| meta.checksum)),
            Err(error) => {
                // The object is made; that its checksum is not told with it is no failure.
                tracing::debug!(%error, request_id = &*place.ctx.request_id, "a completed object is gone already");
                Ok(None)
            }
        }
    }

    /// Gives an upload up.
    pub(super) async fn abort_multipart_upload(&self, request: Request) -> S3Result<Response> {
        let place = self.place(&request)?;
        let abort =
            om::AbortUpload { bucket: Some(place.address()), key: place.key.clone(), upload: request.upload()? };
        self.client.abort_upload(&place.ctx, abort).await?;
        Ok(Response::no_content())
    }
}
