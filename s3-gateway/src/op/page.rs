//! What listings have in common: page sizes, url encoding, continuation tokens.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ozone_common::limits::LIST_LIMIT_MAX;
use ring::hmac;

use crate::error::{S3Error, S3Result};
use crate::route::{Query, is_plain, percent_encode};

/// The form of tokens; another one is refused.
const TOKEN_VERSION: u8 = 1;
const SIGNATURE_LENGTH: usize = 8;

/// How many entries a page may have: `max-keys` and its like. More than 1,000 are cut.
///
/// # Errors
/// `InvalidArgument` where it is no number of 0 to 2^31-1.
pub(super) fn limit(query: &Query, name: &str) -> S3Result<u32> {
    Ok(query.number(name)?.map_or(LIST_LIMIT_MAX, |number| number.min(LIST_LIMIT_MAX)))
}

/// Whether names are to be percent-encoded.
///
/// # Errors
/// `InvalidArgument` for anything but `url`.
pub(super) fn url_encoded(query: &Query) -> S3Result<bool> {
    match query.bytes("encoding-type") {
        None | Some(b"") => Ok(false),
        Some(b"url") => Ok(true),
        Some(other) => Err(S3Error::invalid_argument("encoding-type", other, "`url` is the only encoding of names")),
    }
}

/// A name as a listing shows it.
pub(super) fn name(bytes: &[u8], url: bool) -> Cow<'_, str> {
    match url {
        true if !is_plain(bytes) => {
            let mut text = Vec::with_capacity(bytes.len() * 3);
            percent_encode(bytes, true, &mut text);
            // Encoded bytes are ASCII.
            Cow::Owned(String::from_utf8(text).unwrap_or_default())
        }
        _ => String::from_utf8_lossy(bytes),
    }
}

/// A token that says where the next page starts: behind `last`. Opaque to clients; signed, so that one they made up is told from it.
pub(super) fn token(key: &hmac::Key, last: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(1 + SIGNATURE_LENGTH + last.len());
    bytes.push(TOKEN_VERSION);
    bytes.extend_from_slice(&signature(key, last));
    bytes.extend_from_slice(last);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn signature(key: &hmac::Key, last: &[u8]) -> [u8; SIGNATURE_LENGTH] {
    let tag = hmac::sign(key, last);
    let mut signature = [0; SIGNATURE_LENGTH];
    signature.copy_from_slice(&tag.as_ref()[..SIGNATURE_LENGTH]);
    signature
}

/// What [`token`] was given.
///
/// # Errors
/// `InvalidArgument` where the text is no token of this cluster.
pub(super) fn parse_token(key: &hmac::Key, text: &[u8]) -> S3Result<Bytes> {
    let parse = || {
        let bytes = Bytes::from(URL_SAFE_NO_PAD.decode(text).ok()?);
        let (version, rest) = bytes.split_first()?;
        let (signed, last) = rest.split_at_checked(SIGNATURE_LENGTH)?;
        // No secret hangs on the time that this takes: a token gives access to nothing.
        let valid = *version == TOKEN_VERSION && !last.is_empty() && signed == signature(key, last);
        valid.then(|| bytes.slice_ref(last))
    };
    parse().ok_or_else(|| {
        S3Error::invalid_argument("continuation-token", text, "the continuation token is none that this server gave")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::S3Code;

    fn query(raw: &str) -> Query {
        Query::parse(raw).unwrap()
    }

    #[test]
    fn limits() {
        for (raw, expected) in [
            ("", Some(1000)),
            ("max-keys", Some(1000)),
            ("max-keys=0", Some(0)),
            ("max-keys=1", Some(1)),
            ("max-keys=1000", Some(1000)),
            ("max-keys=1001", Some(1000)),
            ("max-keys=2147483647", Some(1000)),
            ("max-keys=2147483648", None),
            ("max-keys=-1", None),
            ("max-keys=blah", None),
        ] {
            let outcome = limit(&query(raw), "max-keys");
            assert_eq!(outcome.as_ref().ok(), expected.as_ref(), "{raw}");
            assert!(outcome.err().is_none_or(|error| error.code == S3Code::InvalidArgument));
        }
    }

    #[test]
    fn names_are_encoded_where_asked_for() {
        let key = "a b+c/é%~\u{1}".as_bytes();
        assert_eq!(name(key, true), "a%20b%2Bc/%C3%A9%25~%01");
        assert_eq!(name(key, false), "a b+c/é%~\u{1}");
        assert_eq!(name(b"\xff", true), "%FF");
        assert_eq!(name(b"\xff", false), "\u{fffd}");
        assert!(matches!(name(b"plain/key-1_2.x~", true), Cow::Borrowed("plain/key-1_2.x~")));
        assert!(url_encoded(&query("encoding-type=URL")).is_err());
        assert!(url_encoded(&query("encoding-type=url")).unwrap() && !url_encoded(&query("")).unwrap());
    }

    proptest! {
        #[test]
        fn tokens_read_back(last in proptest::collection::vec(any::<u8>(), 1..40), at in 0usize..40, bit in 0u8..6) {
            let key = hmac::Key::new(hmac::HMAC_SHA256, b"a key");
            let text = token(&key, &last);
            prop_assert_eq!(parse_token(&key, text.as_bytes()).unwrap(), last.as_slice());
            let other_key = hmac::Key::new(hmac::HMAC_SHA256, b"another");
            prop_assert!(parse_token(&other_key, text.as_bytes()).is_err());
            // One changed character is noticed.
            let mut other = text.clone().into_bytes();
            let at = at % other.len();
            let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            let digit = alphabet.iter().position(|digit| *digit == other[at]).unwrap();
            other[at] = alphabet[digit ^ (1 << bit)];
            prop_assert!(parse_token(&key, &other).is_err());
        }

        #[test]
        fn anything_else_is_no_token(text in ".{0,40}") {
            let key = hmac::Key::new(hmac::HMAC_SHA256, b"a key");
            prop_assert_eq!(parse_token(&key, text.as_bytes()).unwrap_err().code, S3Code::InvalidArgument);
        }
    }
}
