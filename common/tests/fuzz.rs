//! Text from users and settings files: each is taken or refused with a reason, and what is printed reads back.

use std::path::Path;
use std::str::FromStr;

use ozone_common::config::{ByteSize, TimeSpan, parse};
use ozone_common::id::{ClusterId, DatanodeId};
use ozone_common::name::{BucketName, KeyName, VolumeName};
use ozone_common::replication::Replication;
use serde::Deserialize;

/// Whether it is one; where it is, it prints as what reads back as the same.
fn printed_reads_back<T: FromStr + ToString + PartialEq + std::fmt::Debug>(text: &str) -> bool
where
    T::Err: ToString,
{
    match text.parse::<T>() {
        Ok(value) => {
            assert_eq!(value.to_string().parse::<T>().ok().as_ref(), Some(&value), "{text:?} is {}", value.to_string());
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

#[test]
fn text_is_taken_or_refused_with_a_reason() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/text");
    let words: [&[u8]; 6] = [b"MiB", b"ms", b"18446744073709551615", b"RATIS/", b"EC/xor-2-1-", b"--"];
    ozone_fuzz::fuzz(corpus, &words, |bytes| {
        let key = KeyName::new(bytes.to_vec()).map(|key| assert_eq!(key.as_bytes(), bytes)).is_ok();
        let text = std::str::from_utf8(bytes).ok()?;
        let volume = VolumeName::new(text).map(|name| assert_eq!(name.as_str(), text)).is_ok();
        let bucket = BucketName::new(text).map(|name| assert_eq!(name.as_str(), text)).is_ok();
        assert!(!(volume || bucket) || text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'), "{text:?}");
        Some([
            key,
            volume,
            bucket,
            printed_reads_back::<ByteSize>(text),
            printed_reads_back::<TimeSpan>(text),
            printed_reads_back::<Replication>(text),
            printed_reads_back::<ClusterId>(text),
            printed_reads_back::<DatanodeId>(text),
        ])
    });
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    name: String,
    om: Section,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Section {
    bind: String,
    cache: Option<ByteSize>,
    timeout: Option<TimeSpan>,
    peers: Vec<String>,
    enabled: bool,
}

#[test]
fn a_settings_file_is_taken_or_refused_with_a_reason() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/settings");
    let words: [&[u8]; 5] = [b"[om]\n", b"cache = ", b"\"\"\"", b"[[om]]", b"\n"];
    ozone_fuzz::fuzz(corpus, &words, |bytes| {
        let text = std::str::from_utf8(bytes).ok()?;
        match parse::<Settings>(Path::new("ozone.toml"), text) {
            Ok(_) => Some(String::new()),
            // The first words tell reasons apart, the rest is the input's.
            Err(error) => Some(error.to_string().split_whitespace().skip(3).take(3).collect()),
        }
    });
}
