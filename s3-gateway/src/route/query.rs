//! Percent-encoding, and the query of a request.
//!
//! Decoding is exact: a key is the bytes that stand between the slashes, whatever they are. `+` is itself in paths; in queries it is
//! a blank, as in forms.

use crate::error::{S3Code, S3Error, S3Result};

// LIMIT: parameters of a query; S3's operations have at most a dozen, besides those of a signature.
const PARAMETERS_MAX: usize = 128;

/// Decodes `%XX`. Borrows nothing, since most callers keep the bytes.
///
/// # Errors
/// `InvalidURI` where `%` is not followed by two hexadecimal digits.
pub(crate) fn percent_decode(text: &[u8], plus_is_blank: bool) -> S3Result<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => {
                let digit = |at: usize| tail.get(at).and_then(|digit| (*digit as char).to_digit(16));
                let (Some(high), Some(low)) = (digit(0), digit(1)) else {
                    return Err(S3Error::new(S3Code::InvalidURI, "`%` must be followed by two hexadecimal digits"));
                };
                decoded.push((high << 4 | low) as u8);
                rest = &tail[2..];
            }
            b'+' if plus_is_blank => decoded.push(b' '),
            byte => decoded.push(byte),
        }
    }
    Ok(decoded)
}

const fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Encodes as signatures and `encoding-type=url` do: everything but letters, digits, `-._~`, and `/` where it is kept.
pub(crate) fn percent_encode(bytes: &[u8], keep_slash: bool, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if unreserved(byte) || byte == b'/' && keep_slash {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// Whether encoding would change nothing.
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| unreserved(*byte) || *byte == b'/')
}

#[derive(Debug)]
struct Parameter {
    name: Vec<u8>,
    value: Vec<u8>,
}

/// The parameters of a request, decoded, in order.
#[derive(Debug, Default)]
pub(crate) struct Query {
    parameters: Vec<Parameter>,
}

impl Query {
    /// Takes a query apart.
    ///
    /// # Errors
    /// `InvalidURI` where it is wrongly encoded or has too many parameters.
    pub fn parse(raw: &str) -> S3Result<Self> {
        let mut parameters = Vec::new();
        for piece in raw.as_bytes().split(|byte| *byte == b'&').filter(|piece| !piece.is_empty()) {
            if parameters.len() == PARAMETERS_MAX {
                return Err(S3Error::new(
                    S3Code::InvalidURI,
                    format!("a query has at most {PARAMETERS_MAX} parameters"),
                ));
            }
            let (name, value) = match piece.iter().position(|byte| *byte == b'=') {
                Some(at) => (&piece[..at], &piece[at + 1..]),
                None => (piece, &[][..]),
            };
            parameters.push(Parameter { name: percent_decode(name, true)?, value: percent_decode(value, true)? });
        }
        Ok(Self { parameters })
    }

    /// The value of a parameter, the first where there are several; empty where it has none. `None` where it is absent.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let found = self.parameters.iter().find(|parameter| parameter.name == name.as_bytes());
        found.map(|parameter| parameter.value.as_slice())
    }

    /// Whether a parameter is there, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.bytes(name).is_some()
    }

    /// The value as text.
    ///
    /// # Errors
    /// `InvalidArgument` where it is not UTF-8.
    pub fn text(&self, name: &str) -> S3Result<Option<&str>> {
        let Some(value) = self.bytes(name) else { return Ok(None) };
        match std::str::from_utf8(value) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(S3Error::invalid_argument(name, value, format!("{name} is not UTF-8"))),
        }
    }

    /// The value as a number from 0 to 2³¹ - 1, which is what S3 takes; `None` where it is absent or empty.
    ///
    /// # Errors
    /// `InvalidArgument` where it is anything else.
    pub fn number(&self, name: &str) -> S3Result<Option<u32>> {
        match self.bytes(name) {
            None | Some(b"") => Ok(None),
            Some(value) => {
                let digits = value.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(value).ok()).flatten();
                let number =
                    digits.and_then(|digits| digits.parse::<u32>().ok()).filter(|number| *number <= i32::MAX as u32);
                let error = || {
                    S3Error::invalid_argument(
                        name,
                        value,
                        format!("{name} must be a whole number from 0 to {}", i32::MAX),
                    )
                };
                number.map(Some).ok_or_else(error)
            }
        }
    }

    /// The names of all parameters, in order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.parameters.iter().map(|parameter| parameter.name.as_slice())
    }

    /// Names and values, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.parameters.iter().map(|parameter| (parameter.name.as_slice(), parameter.value.as_slice()))
    }

    /// The form that is signed: encoded, sorted, without `X-Amz-Signature` (S3 API Reference, "Signature calculations").
    pub fn write_canonical(&self, out: &mut Vec<u8>) {
        let mut encoded: Vec<(Vec<u8>, Vec<u8>)> = self
            .parameters
            .iter()
            .filter(|parameter| parameter.name != b"X-Amz-Signature")
            .map(|parameter| {
                let (mut name, mut value) =
                    (Vec::with_capacity(parameter.name.len()), Vec::with_capacity(parameter.value.len()));
                percent_encode(&parameter.name, false, &mut name);
                percent_encode(&parameter.value, false, &mut value);
                (name, value)
            })
            .collect();
        encoded.sort();
        for (index, (name, value)) in encoded.iter().enumerate() {
            if index > 0 {
                out.push(b'&');
            }
            out.extend_from_slice(name);
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_found_decoded() {
        let query = Query::parse("acl&prefix=a%2Fb+c%2B&&max-keys=10&prefix=x&empty=&%41=%42=c").unwrap();
        assert_eq!(query.bytes("acl"), Some(&b""[..]));
        assert_eq!(query.text("prefix").unwrap(), Some("a/b c+"));
        assert_eq!(query.number("max-keys").unwrap(), Some(10));
        assert_eq!((query.number("empty").unwrap(), query.number("none").unwrap()), (None, None));
        assert_eq!(query.text("A").unwrap(), Some("B=c"));
        assert!(query.has("empty") && !query.has("b"));
        let mut canonical = Vec::new();
        query.write_canonical(&mut canonical);
        assert_eq!(
            String::from_utf8(canonical).unwrap(),
            "A=B%3Dc&acl=&empty=&max-keys=10&prefix=a%2Fb%20c%2B&prefix=x"
        );
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for raw in ["a=%", "a=%4", "%zz", "a=%+1"] {
            assert_eq!(Query::parse(raw).unwrap_err().code, S3Code::InvalidURI, "{raw}");
        }
        assert!(Query::parse(&"a&".repeat(PARAMETERS_MAX)).is_ok());
        assert!(Query::parse(&"a&".repeat(PARAMETERS_MAX + 1)).is_err());
        let query = Query::parse("n=-1&m=2147483648&k=%2B1&t=%ff").unwrap();
        for name in ["n", "m", "k"] {
            assert_eq!(query.number(name).unwrap_err().code, S3Code::InvalidArgument);
        }
        assert_eq!(query.text("t").unwrap_err().code, S3Code::InvalidArgument);
    }

    proptest! {
        #[test]
        fn bytes_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..64), keep in any::<bool>()) {
            let mut text = Vec::new();
            percent_encode(&bytes, keep, &mut text);
            prop_assert_eq!(percent_decode(&text, keep).unwrap(), bytes.clone());
            if is_plain(&bytes) && keep {
                prop_assert_eq!(text, bytes);
            }
        }
    }
}
