//! Names of volumes, buckets and keys: parsed once, valid ever after.
//!
//! Volume and bucket names follow S3's bucket rules. Keys are opaque bytes that never become file paths.

use std::fmt;

use bytes::Bytes;

use crate::limits::{KEY_LENGTH_MAX, NAME_LENGTH_MAX, NAME_LENGTH_MIN};
use crate::{Error, ErrorCode};

/// Says what is wrong with a volume's or bucket's name, if anything is.
///
/// Rules (S3, "Bucket naming rules"): 3 to 63 characters of `a-z`, `0-9`, `.` and `-`; first and last a letter or digit; no
/// two dots together, no dot beside a hyphen; not shaped like an IPv4 address.
fn check(name: &str) -> Result<(), &'static str> {
    let bytes = name.as_bytes();
    if !(NAME_LENGTH_MIN..=NAME_LENGTH_MAX).contains(&bytes.len()) {
        return Err("it must have 3 to 63 characters");
    }
    if !bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-')) {
        return Err("only a-z, 0-9, '.' and '-' are allowed");
    }
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if !edge(bytes[0]) || !edge(bytes[bytes.len() - 1]) {
        return Err("it must begin and end with a letter or a digit");
    }
    if ["..", ".-", "-."].iter().any(|pair| name.contains(pair)) {
        return Err("'.' must stand between letters or digits");
    }
    if name.split('.').count() == 4 && name.split('.').all(|part| part.parse::<u8>().is_ok()) {
        return Err("it must not look like an IP address");
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $t:ident, $what:literal, $code:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $t(String);
        impl $t {
            /// Takes a name; the error says which rule it breaks.
            pub fn new(name: impl Into<String>) -> Result<Self, Error> {
                let name = name.into();
                match check(&name) {
                    Ok(()) => Ok(Self(name)),
                    Err(rule) => Err(Error::new(ErrorCode::$code, format!(concat!($what, " name `{}`: {}"), name.escape_debug(), rule))),
                }
            }
            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($t), "({})"), self.0)
            }
        }
    };
}

name!(
    /// A volume: the top level of the namespace.
    VolumeName, "volume", InvalidVolumeName
);
name!(
    /// A bucket of a volume.
    BucketName, "bucket", InvalidBucketName
);

/// The volume of buckets that are made over S3.
pub const S3_VOLUME: &str = "s3v";

/// A key: 1 to 1,024 opaque bytes. Ordered by bytes, which is the order of listings.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName(Bytes);

impl KeyName {
    /// Takes a key; refused where it is empty or longer than 1,024 bytes.
    pub fn new(key: impl Into<Bytes>) -> Result<Self, Error> {
        let key = key.into();
        if key.is_empty() {
            return Err(Error::new(ErrorCode::InvalidKeyName, "a key must not be empty"));
        }
        if key.len() > KEY_LENGTH_MAX {
            return Err(Error::new(
                ErrorCode::InvalidKeyName,
                format!("a key of {} bytes; at most {KEY_LENGTH_MAX} are allowed", key.len()),
            ));
        }
        Ok(Self(key))
    }
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
    /// The bytes, shared.
    pub fn to_shared(&self) -> Bytes {
        self.0.clone()
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}
impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyName({:?})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_bucket_rules() {
        for good in ["abc", "a.b", "0-0", "my-bucket.example", &"a".repeat(63), "1.2.3", "1.2.3.256"] {
            assert!(BucketName::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "ab",
            &"a".repeat(64),
            "Abc",
            "a_b",
            "-ab",
            "ab-",
            ".ab",
            "a..b",
            "a.-b",
            "a-.b",
            "1.2.3.4",
            "añb",
            "a/b",
            "a\0b",
        ] {
            let error = BucketName::new(bad).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidBucketName, "{bad}");
        }
    }

    #[test]
    fn keys_are_any_bytes_up_to_the_limit() {
        assert!(KeyName::new(vec![0u8, 0xff, b'/']).is_ok());
        assert!(KeyName::new(vec![b'k'; KEY_LENGTH_MAX]).is_ok());
        assert_eq!(KeyName::new(vec![b'k'; KEY_LENGTH_MAX + 1]).unwrap_err().code, ErrorCode::InvalidKeyName);
        assert_eq!(KeyName::new(Bytes::new()).unwrap_err().code, ErrorCode::InvalidKeyName);
    }
}
