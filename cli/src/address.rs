//! Addresses as Ozone writes them: `/volume/bucket/key` and `o3://host:port/volume/bucket/key`.
//!
//! What stands behind the bucket is the key, byte for byte: nothing is unescaped, and `//` or a trailing `/` belong to it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use clap::builder::{OsStringValueParser, TypedValueParser};
use ozone_client::proto::om::v1::BucketAddress;
use ozone_common::name::{BucketName, KeyName, VolumeName};

use crate::exit::Usage;

/// The port of the OM where an address names none.
const OM_PORT: u16 = 9862;

/// A place in the namespace: the whole, a volume, a bucket or a key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Address {
    /// `host:port` of the OM, where the address names it.
    pub om: Option<String>,
    pub volume: Option<VolumeName>,
    pub bucket: Option<BucketName>,
    pub key: Option<KeyName>,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// Another scheme, a host or port that is none, or a name that breaks a rule; the message says which.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let bytes = text.as_bytes();
        let (om, path) = match scheme(bytes) {
            Some((b"o3", rest)) => {
                let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
                (authority(&rest[..end])?, &rest[end..])
            }
            Some((scheme, _)) => bail!(
                "`{}`: addresses are /volume/bucket/key or o3://host:port/volume/bucket/key; {}:// belongs to another program",
                text.to_string_lossy(),
                String::from_utf8_lossy(scheme)
            ),
            None => (None, bytes),
        };
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let mut parts = path.splitn(3, |byte| *byte == b'/');
        let mut name = |what: &str| match parts.next() {
            None | Some([]) => Ok(None),
            Some(part) => match std::str::from_utf8(part) {
                Ok(part) => Ok(Some(part.to_owned())),
                Err(_) => Err(anyhow!("`{}`: the {what}'s name is not text", text.to_string_lossy())),
            },
        };
        let volume = name("volume")?;
        let bucket = name("bucket")?;
        let key = parts.next().filter(|key| !key.is_empty());
        if volume.is_none() && path.contains(&b'/') || bucket.is_none() && key.is_some() {
            bail!("`{}`: a name between two slashes is empty", text.to_string_lossy());
        }
        Ok(Self {
            om,
            volume: volume.map(VolumeName::new).transpose()?,
            bucket: bucket.map(BucketName::new).transpose()?,
            key: key.map(|key| KeyName::new(Bytes::copy_from_slice(key))).transpose()?,
        })
    }

    /// The volume of an address that must name a volume and nothing in it.
    pub fn only_volume(&self) -> Result<&VolumeName> {
        match (&self.volume, &self.bucket) {
            (Some(volume), None) => Ok(volume),
            _ => Err(self.wrong_depth("a volume", "/volume")),
        }
    }

    /// The bucket of an address that must name a bucket and no key.
    pub fn only_bucket(&self) -> Result<BucketAddress> {
        match (&self.volume, &self.bucket, &self.key) {
            (Some(volume), Some(bucket), None) => Ok(wire(volume, bucket)),
            _ => Err(self.wrong_depth("a bucket", "/volume/bucket")),
        }
    }

    fn wrong_depth(&self, wanted: &str, example: &str) -> anyhow::Error {
        Usage(format!("`{self}`: {wanted} is wanted, such as {example}")).into()
    }

    /// Bucket and key of an address that must name a key.
    pub fn key(&self) -> Result<(BucketAddress, &KeyName)> {
        match (&self.volume, &self.bucket, &self.key) {
            (Some(volume), Some(bucket), Some(key)) => Ok((wire(volume, bucket), key)),
            _ => Err(self.wrong_depth("a key", "/volume/bucket/key")),
        }
    }
}

fn wire(volume: &VolumeName, bucket: &BucketName) -> BucketAddress {
    BucketAddress { volume: volume.to_string(), bucket: bucket.to_string() }
}

/// What stands before `://`, where the text begins with a scheme (RFC 3986), and what stands behind.
fn scheme(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.windows(3).position(|window| window == b"://")?;
    let (scheme, rest) = (&text[..at], &text[at + 3..]);
    let first = scheme.first()?.is_ascii_alphabetic();
    let valid = scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    (first && valid).then_some((scheme, rest))
}

/// `host`, `host:port`, `[v6]:port`, or nothing.
fn authority(bytes: &[u8]) -> Result<Option<String>> {
    let text = std::str::from_utf8(bytes).map_err(|_| anyhow!("the host of an address is not text"))?;
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || anyhow!("`{text}` is no host and port of an OM, such as localhost:{OM_PORT}");
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse::<u16>().map_err(|_| wrong())?),
        _ => (text, OM_PORT),
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let valid = match bracketed {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)),
    };
    if !valid || port == 0 {
        return Err(wrong());
    }
    Ok(Some(format!("{host}:{port}")))
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(om) = &self.om {
            write!(f, "o3://{om}")?;
        }
        f.write_str("/")?;
        if let Some(volume) = &self.volume {
            write!(f, "{volume}")?;
        }
        if let Some(bucket) = &self.bucket {
            write!(f, "/{bucket}")?;
        }
        if let Some(key) = &self.key {
            write!(f, "/{key}")?;
        }
        Ok(())
    }
}

/// For clap: an address that may hold any bytes.
pub fn parser() -> impl TypedValueParser<Value = Address> {
    OsStringValueParser::new().try_map(|text| Address::parse(&text).map_err(|error| format!("{error:#}")))
}

/// For clap: a key, or a part of one, as bytes.
pub fn bytes_parser() -> impl TypedValueParser<Value = Bytes> {
    OsStringValueParser::new().map(|text: OsString| Bytes::from(text.into_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], om: &str, volume: &str, bucket: &str, key: &[u8]) {
        let address = Address::parse(OsStr::from_bytes(text)).unwrap();
        let shown = |name: Option<&str>| name.unwrap_or_default().to_owned();
        assert_eq!(shown(address.om.as_deref()), om, "{text:?}");
        assert_eq!(shown(address.volume.as_ref().map(VolumeName::as_str)), volume, "{text:?}");
        assert_eq!(shown(address.bucket.as_ref().map(BucketName::as_str)), bucket, "{text:?}");
        assert_eq!(address.key.as_ref().map(KeyName::as_bytes).unwrap_or_default(), key, "{text:?}");
    }

    #[test]
    fn addresses_name_what_they_say() {
        check(b"/", "", "", "", b"");
        check(b"", "", "", "", b"");
        check(b"/vol", "", "vol", "", b"");
        check(b"vol/", "", "vol", "", b"");
        check(b"/vol/buck", "", "vol", "buck", b"");
        check(b"/vol/buck/", "", "vol", "buck", b"");
        check(b"/vol/buck/a/b//c/", "", "vol", "buck", b"a/b//c/");
        check(b"/vol/buck//a", "", "vol", "buck", b"/a");
        check(b"/vol/buck/../x%2F \xff", "", "vol", "buck", b"../x%2F \xff");
        check(b"/vol/buck/s3://x", "", "vol", "buck", b"s3://x");
        check(b"o3://om.example:1/vol/buck/k", "om.example:1", "vol", "buck", b"k");
        check(b"o3://om/vol", "om:9862", "vol", "", b"");
        check(b"o3:///vol/buck", "", "vol", "buck", b"");
        check(b"o3://127.0.0.1:9862", "127.0.0.1:9862", "", "", b"");
        check(b"o3://[::1]:7/vol", "[::1]:7", "vol", "", b"");
        check(b"o3://[::1]/vol", "[::1]:9862", "vol", "", b"");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            (&b"ofs://om/vol/buck"[..], "ofs:// belongs to another program"),
            (b"o3fs://buck.vol/k", "o3fs:// belongs"),
            (b"s3://bucket/key", "s3:// belongs"),
            (b"/Vol", "volume name `Vol`"),
            (b"/vol/b_k", "bucket name `b_k`"),
            (b"/v\xffl", "the volume's name is not text"),
            (b"//buck/key", "a name between two slashes is empty"),
            (b"/vol//key", "a name between two slashes is empty"),
            (b"o3://om:0/vol", "`om:0` is no host"),
            (b"o3://om:99999/vol", "`om:99999` is no host"),
            (b"o3://:1/vol", "`:1` is no host"),
            (b"o3://u@om:1/vol", "`u@om:1` is no host"),
            (b"o3://[::g]:1/vol", "`[::g]:1` is no host"),
        ] {
            let error = format!("{:#}", Address::parse(OsStr::from_bytes(text)).unwrap_err());
            assert!(error.contains(expected), "{}: {error}", String::from_utf8_lossy(text));
        }
        let long = [b"/vol/buck/".to_vec(), vec![b'k'; 1025]].concat();
        assert!(Address::parse(OsStr::from_bytes(&long)).unwrap_err().to_string().contains("1025 bytes"));
    }

    #[test]
    fn a_command_gets_the_depth_it_wants() {
        let parse = |text: &str| Address::parse(OsStr::new(text)).unwrap();
        assert!(parse("/vol").only_volume().is_ok());
        assert!(parse("/vol/buck").only_bucket().is_ok());
        assert!(parse("/vol/buck/k").key().is_ok());
        for (text, volume, bucket, key) in [
            ("/", false, false, false),
            ("/vol", true, false, false),
            ("/vol/buck", false, true, false),
            ("/vol/buck/k", false, false, true),
        ] {
            let address = parse(text);
            assert_eq!(
                (address.only_volume().is_ok(), address.only_bucket().is_ok(), address.key().is_ok()),
                (volume, bucket, key),
                "{text}"
            );
            assert_eq!(address.to_string(), text);
        }
    }
}
