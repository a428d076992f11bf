//! What belongs to an object besides its bytes: from the headers of a request to the OM's form, and back to the headers of an answer
//! (S3 API, "PutObject", "GetObject"; S3 User Guide, "Working with object metadata").

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use ozone_client::proto::om::v1 as om;
use ozone_common::limits::USER_METADATA_MAX;

use crate::error::{S3Code, S3Error, S3Result};

/// Prefix of the headers of user metadata.
const USER_PREFIX: &str = "x-amz-meta-";
/// The header of the storage class.
pub(crate) const STORAGE_CLASS: &str = "x-amz-storage-class";
/// The class of every object that names none.
pub(crate) const STANDARD: &str = "STANDARD";
/// S3's type of what has none.
const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";
/// LIMIT: bytes of one standard header.
const STANDARD_HEADER_MAX: usize = 4 << 10;

/// The standard headers that are kept, each with the query parameter that overrides it in an answer.
const STANDARD_HEADERS: [(HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, "response-cache-control"),
    (header::CONTENT_DISPOSITION, "response-content-disposition"),
    (header::CONTENT_ENCODING, "response-content-encoding"),
    (header::CONTENT_LANGUAGE, "response-content-language"),
    (header::CONTENT_TYPE, "response-content-type"),
    (header::EXPIRES, "response-expires"),
];

/// Storage classes that S3 knows. All of them are stored alike here; the name is kept and shown.
const STORAGE_CLASSES: [&str; 11] = [
    STANDARD,
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER",
    "DEEP_ARCHIVE",
    "OUTPOSTS",
    "GLACIER_IR",
    "SNOW",
    "EXPRESS_ONEZONE",
];

/// Reads headers and user metadata of an object to be.
///
/// # Errors
/// `MetadataTooLarge` over 2 KiB of user metadata, `InvalidStorageClass`, `InvalidArgument` for a header too long; `NotImplemented` for what would
/// have to be kept with the object and cannot be.
pub(crate) fn from_headers(headers: &HeaderMap) -> S3Result<om::ObjectMeta> {
    refuse_unserved(headers)?;
    let mut meta = om::ObjectMeta::default();
    for (name, _) in &STANDARD_HEADERS {
        let Some(text) = joined(headers, name) else { continue };
        if text.len() > STANDARD_HEADER_MAX {
            let message = format!("{name} of {} bytes; {STANDARD_HEADER_MAX} are the most", text.len());
            return Err(S3Error::invalid_argument(name.as_str(), b"", message));
        }
        if !text.is_empty() {
            meta.headers.insert(name.as_str().to_owned(), text);
        }
    }
    if let Some(class) = storage_class(headers)? {
        meta.headers.insert(STORAGE_CLASS.to_owned(), class);
    }
    let mut size = 0;
    for name in headers.keys() {
        let Some(short) = name.as_str().strip_prefix(USER_PREFIX).filter(|short| !short.is_empty()) else { continue };
        let text = joined(headers, name).unwrap_or_default();
        size += short.len() + text.len();
        if size > USER_METADATA_MAX {
            return Err(S3Error::new(
                S3Code::MetadataTooLarge,
                format!("user metadata of more than {USER_METADATA_MAX} bytes"),
            )
            .detail("MaxSizeAllowed", USER_METADATA_MAX.to_string()));
        }
        meta.user.insert(short.to_owned(), text);
    }
    Ok(meta)
}

/// The class that a request names; `None` where it is the usual one.
fn storage_class(headers: &HeaderMap) -> S3Result<Option<String>> {
    match joined(headers, &HeaderName::from_static(STORAGE_CLASS)) {
        None => Ok(None),
        Some(class) if class == STANDARD => Ok(None),
        Some(class) if STORAGE_CLASSES.contains(&class.as_str()) => Ok(Some(class)),
        Some(class) => Err(S3Error::new(S3Code::InvalidStorageClass, "the storage class is not one of S3's")
            .detail("StorageClassRequested", class)),
    }
}

/// Refuses what a client may rely on and this server would drop: encryption, locks, tags, access rights.
fn refuse_unserved(headers: &HeaderMap) -> S3Result<()> {
    for name in headers.keys() {
        let name = name.as_str();
        let Some(rest) = name.strip_prefix("x-amz-") else { continue };
        let unserved = rest.starts_with("server-side-encryption")
            || rest.starts_with("copy-source-server-side-encryption")
            || rest.starts_with("object-lock-")
            || rest.starts_with("grant-")
            || matches!(rest, "tagging" | "website-redirect-location" | "write-offset-bytes");
        if unserved {
            return Err(S3Error::not_implemented(format_args!("the header {name}")));
        }
    }
    match headers.get("x-amz-acl").map(HeaderValue::as_bytes) {
        None | Some(b"private" | b"bucket-owner-full-control") => Ok(()),
        Some(_) => Err(S3Code::AccessControlListNotSupported.into()),
    }
}

/// A header's values as one text. What is not UTF-8 is read as Latin-1, as HTTP once had it.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut text: Option<String> = None;
    for value in headers.get_all(name) {
        let bytes = value.as_bytes();
        let value = match std::str::from_utf8(bytes) {
            Ok(value) => value.trim().to_owned(),
            Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect::<String>().trim().to_owned(),
        };
        text = Some(match text {
            None => value,
            Some(before) => format!("{before},{value}"),
        });
    }
    text
}

/// Sets the headers that show an object's metadata. `overrides` gives the value of a `response-*` parameter.
///
/// # Errors
/// `InvalidArgument` where an override cannot be a header.
pub(crate) fn to_headers<'q>(
    meta: Option<&om::ObjectMeta>,
    overrides: impl Fn(&str) -> Option<&'q [u8]>,
    out: &mut HeaderMap,
) -> S3Result<()> {
    for (name, parameter) in STANDARD_HEADERS {
        if let Some(text) = overrides(parameter) {
            let value = HeaderValue::from_bytes(text).map_err(|_| {
                S3Error::invalid_argument(parameter, text, "it holds characters that no header may have")
            })?;
            out.insert(name, value);
        } else if let Some(text) = meta.and_then(|meta| meta.headers.get(name.as_str())) {
            insert(out, name, text);
        } else if name == header::CONTENT_TYPE {
            out.insert(name, HeaderValue::from_static(DEFAULT_CONTENT_TYPE));
        }
    }
    let Some(meta) = meta else { return Ok(()) };
    if let Some(class) = meta.headers.get(STORAGE_CLASS) {
        insert(out, HeaderName::from_static(STORAGE_CLASS), class);
    }
    let mut user: Vec<(&String, &String)> = meta.user.iter().collect();
    user.sort_unstable();
    for (name, text) in user {
        // Keys written without S3 may have names that no header can have; S3 counts those (GetObject, "x-amz-missing-meta").
        match HeaderName::from_bytes(format!("{USER_PREFIX}{name}").as_bytes()) {
            Ok(name) if text.is_ascii() => insert(out, name, text),
            Ok(name) => insert(out, name, &rfc2047(text)),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Text that came in a header goes out in one; what else the OM may hold is left out.
fn insert(out: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
        out.insert(name, value);
    }
}

/// Text beyond ASCII as S3 answers it.
fn rfc2047(text: &str) -> String {
    format!("=?UTF-8?B?{}?=", BASE64.encode(text))
}

/// The storage class as listings show it.
pub(crate) fn class_of(meta: Option<&om::ObjectMeta>) -> &str {
    meta.and_then(|meta| meta.headers.get(STORAGE_CLASS)).map_or(STANDARD, String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&str, &[u8])]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        map
    }

    fn round_trip(list: &[(&str, &[u8])]) -> Vec<(String, String)> {
        let meta = from_headers(&headers(list)).unwrap();
        let mut out = HeaderMap::new();
        to_headers(Some(&meta), |_| None, &mut out).unwrap();
        let mut out: Vec<_> = out
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8(value.as_bytes().to_vec()).unwrap()))
            .collect();
        out.sort();
        out
    }

    fn check(list: &[(&str, &[u8])], expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        assert_eq!(round_trip(list), expected, "{list:?}");
    }

    #[test]
    fn headers_read_back() {
        let default = ("content-type", DEFAULT_CONTENT_TYPE);
        check(&[], &[default]);
        check(
            &[("content-type", b"text/plain"), ("cache-control", b"no-cache"), ("expires", b"never")],
            &[("cache-control", "no-cache"), ("content-type", "text/plain"), ("expires", "never")],
        );
        check(&[("x-amz-storage-class", b"STANDARD")], &[default]);
        check(&[("x-amz-storage-class", b"GLACIER")], &[default, ("x-amz-storage-class", "GLACIER")]);
        check(&[("x-amz-meta-b", b" x "), ("x-amz-meta-b", b"y")], &[default, ("x-amz-meta-b", "x,y")]);
        check(&[("x-amz-meta-", b"x")], &[default]);
        check(&[("x-amz-meta-u", "é".as_bytes())], &[default, ("x-amz-meta-u", "=?UTF-8?B?w6k=?=")]);
        check(&[("x-amz-meta-l", b"\xe9")], &[default, ("x-amz-meta-l", "=?UTF-8?B?w6k=?=")]);
    }

    #[test]
    fn limits_and_what_is_not_served() {
        let of = |name: &str, value: &str| from_headers(&headers(&[(name, value.as_bytes())])).map_err(|e| e.code);
        assert!(of("x-amz-meta-k", &"v".repeat(USER_METADATA_MAX - 1)).is_ok());
        assert_eq!(of("x-amz-meta-k", &"v".repeat(USER_METADATA_MAX)).unwrap_err(), S3Code::MetadataTooLarge);
        assert_eq!(of("cache-control", &"v".repeat(STANDARD_HEADER_MAX + 1)).unwrap_err(), S3Code::InvalidArgument);
        assert_eq!(of("x-amz-storage-class", "TAPE").unwrap_err(), S3Code::InvalidStorageClass);
        for name in ["x-amz-server-side-encryption", "x-amz-tagging", "x-amz-object-lock-mode", "x-amz-grant-read"] {
            assert_eq!(of(name, "x").unwrap_err(), S3Code::NotImplemented, "{name}");
        }
        assert!(of("x-amz-acl", "private").is_ok());
        assert_eq!(of("x-amz-acl", "public-read").unwrap_err(), S3Code::AccessControlListNotSupported);
    }

    #[test]
    fn overrides_win_and_must_be_headers() {
        let meta = from_headers(&headers(&[("content-type", b"text/plain")])).unwrap();
        let mut out = HeaderMap::new();
        let pick = |name: &str| match name {
            "response-content-type" => Some(&b"foo/bar"[..]),
            "response-expires" => Some(&b"123"[..]),
            _ => None,
        };
        to_headers(Some(&meta), pick, &mut out).unwrap();
        assert_eq!(out["content-type"], "foo/bar");
        assert_eq!(out["expires"], "123");
        let bad = |name: &str| (name == "response-content-type").then_some(&b"a\r\nb: c"[..]);
        assert_eq!(to_headers(None, bad, &mut out).unwrap_err().code, S3Code::InvalidArgument);
    }
}
