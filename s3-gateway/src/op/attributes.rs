//! GetObjectAttributes (S3 API, "GetObjectAttributes").

use http::header::{self, HeaderMap, HeaderValue};
use ozone_client::proto::om::v1 as om;
use ozone_common::limits::{LIST_LIMIT_MAX, PART_NUMBER_MAX};

use super::backend::Backend;
use super::object::{self, text};
use super::{Request, check_version, write_checksum};
use crate::error::{S3Code, S3Error, S3Result};
use crate::etag::ETag;
use crate::gateway::Gateway;
use crate::object_meta::class_of;
use crate::response::Response;
use crate::time::http_date;
use crate::xml::{Writer, document};

/// Which attributes are asked for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Asked {
    etag: bool,
    checksum: bool,
    parts: bool,
    class: bool,
    size: bool,
}

impl Asked {
    fn read(headers: &HeaderMap) -> S3Result<Self> {
        const NAME: &str = "x-amz-object-attributes";
        let mut asked = Self::default();
        for value in headers.get_all(NAME) {
            for name in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                match name {
                    b"ETag" => asked.etag = true,
                    b"Checksum" => asked.checksum = true,
                    b"ObjectParts" => asked.parts = true,
                    b"StorageClass" => asked.class = true,
                    b"ObjectSize" => asked.size = true,
                    other => {
                        let message =
                            "ETag, Checksum, ObjectParts, StorageClass and ObjectSize are the attributes there are";
                        return Err(S3Error::invalid_argument(NAME, other, message));
                    }
                }
            }
        }
        match asked == Self::default() {
            true => {
                Err(S3Error::new(S3Code::InvalidRequest, "the header x-amz-object-attributes must name attributes"))
            }
            false => Ok(asked),
        }
    }
}

/// A number from a header; `default` where it is absent.
fn number(headers: &HeaderMap, name: &str, default: u32) -> S3Result<u32> {
    let Some(value) = headers.get(name) else { return Ok(default) };
    let parsed = text(headers, name).and_then(|text| text.trim().parse::<u32>().ok());
    parsed.ok_or_else(|| S3Error::invalid_argument(name, HeaderValue::as_bytes(value), "a whole number is needed"))
}

fn write_parts(out: &mut Writer, info: &om::KeyInfo, marker: u32, limit: u32) {
    if info.parts.is_empty() {
        return;
    }
    let behind: Vec<&om::PartInfo> = info.parts.iter().filter(|part| part.part > marker).collect();
    let page = &behind[..behind.len().min(limit as usize)];
    out.element("ObjectParts", |out| {
        out.value("PartsCount", info.parts.len());
        out.value("PartNumberMarker", marker);
        out.value("NextPartNumberMarker", page.last().map_or(marker, |part| part.part));
        out.value("MaxParts", limit);
        out.value("IsTruncated", page.len() < behind.len());
        for part in page {
            out.element("Part", |out| {
                out.value("PartNumber", part.part);
                out.value("Size", part.length);
                write_checksum(out, part.checksum.as_ref(), false);
            });
        }
    });
}

impl<B: Backend> Gateway<B> {
    /// Attributes of an object without its bytes.
    pub(super) async fn get_object_attributes(&self, request: Request) -> S3Result<Response> {
        check_version(request.query.bytes("versionId"))?;
        let place = self.place(&request)?;
        let asked = Asked::read(&request.headers)?;
        let limit = number(&request.headers, "x-amz-max-parts", LIST_LIMIT_MAX)?.min(LIST_LIMIT_MAX);
        let marker = number(&request.headers, "x-amz-part-number-marker", 0)?.min(PART_NUMBER_MAX);
        let lookup = om::LookupKey { bucket: Some(place.address()), key: place.key.clone(), ..Default::default() };
        let info = self.client.lookup_key(&place.ctx, lookup).await?.info.unwrap_or_default();
        if let Some(response) = object::judge(&request.headers, &info)? {
            return Ok(response);
        }
        let meta = info.meta.as_ref();
        let response = Response::xml(document("GetObjectAttributesResponse", |out| {
            if asked.etag {
                out.value("ETag", ETag::of(&info));
            }
            if asked.checksum
                && let Some(sum) = meta.and_then(|meta| meta.checksum.as_ref())
            {
                out.element("Checksum", |out| write_checksum(out, Some(sum), true));
            }
            if asked.parts {
                write_parts(out, &info, marker, limit);
            }
            if asked.class {
                out.text("StorageClass", class_of(meta));
            }
            if asked.size {
                out.value("ObjectSize", info.length);
            }
        }));
        response.text(header::LAST_MODIFIED, &http_date(info.modified_ms))
    }
}
