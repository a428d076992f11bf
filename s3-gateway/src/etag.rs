//! Entity tags: MD5 of the bytes, MD5 of the parts' MD5s with the count of parts, or the generation of a key that was not written
//! over S3 and has no MD5.

use ozone_client::proto::om::v1 as om;

/// What an entity tag says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ETag {
    /// Of an object or part written over S3: `parts` 0 = in one piece.
    Md5 {
        /// MD5 of the bytes, or of the parts' MD5s.
        md5: [u8; 16],
        /// The count behind the hyphen.
        parts: u32,
    },
    /// Of a key without MD5. Shown with "-0" behind it, so that no client takes it for an MD5.
    Generation(u64),
}

impl ETag {
    /// A key's.
    pub fn of(info: &om::KeyInfo) -> Self {
        let meta = info.meta.as_ref();
        match meta.and_then(|meta| <[u8; 16]>::try_from(meta.etag_md5.as_ref()).ok()) {
            Some(md5) => Self::Md5 { md5, parts: meta.map_or(0, |meta| meta.etag_parts) },
            None => Self::Generation(info.generation),
        }
    }

    /// One of 16 bytes as the OM has it; `None` where it has none.
    pub fn of_part(md5: &[u8]) -> Option<Self> {
        md5.try_into().ok().map(|md5| Self::Md5 { md5, parts: 0 })
    }

    /// Reads a tag as clients send it: quoted or not.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = match text.strip_prefix('"') {
            Some(rest) => rest.strip_suffix('"')?,
            None => text,
        };
        let (digits, parts) = match text.split_once('-') {
            Some((digits, parts)) => (digits, Some(parse_count(parts)?)),
            None => (text, None),
        };
        if digits.len() == 16 && parts == Some(0) {
            let mut bytes = [0; 8];
            hex::decode_to_slice(digits, &mut bytes).ok()?;
            return Some(Self::Generation(u64::from_be_bytes(bytes)));
        }
        let mut md5 = [0; 16];
        hex::decode_to_slice(digits, &mut md5).ok()?;
        match parts {
            Some(0) => None,
            parts => Some(Self::Md5 { md5, parts: parts.unwrap_or(0) }),
        }
    }

    /// With the quotes that belong to it.
    pub fn quoted(&self) -> String {
        format!("\"{self}\"")
    }

    /// The condition that a key has this tag.
    pub fn must_match(&self) -> om::Conditions {
        match self {
            Self::Md5 { md5, parts } => om::Conditions {
                if_match_md5: bytes::Bytes::copy_from_slice(md5),
                if_match_parts: *parts,
                ..Default::default()
            },
            Self::Generation(generation) => om::Conditions { if_generation: *generation, ..Default::default() },
        }
    }
}

impl std::fmt::Display for ETag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Md5 { md5, parts: 0 } => f.write_str(&hex::encode(md5)),
            Self::Md5 { md5, parts } => write!(f, "{}-{parts}", hex::encode(md5)),
            Self::Generation(generation) => write!(f, "{generation:016x}-0"),
        }
    }
}

fn parse_count(text: &str) -> Option<u32> {
    let canonical =
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_reads_back() {
        let md5 = [0xab; 16];
        for tag in [
            ETag::Md5 { md5, parts: 0 },
            ETag::Md5 { md5, parts: 1 },
            ETag::Md5 { md5, parts: 10_000 },
            ETag::Generation(0),
            ETag::Generation(u64::MAX),
        ] {
            assert_eq!(ETag::parse(&tag.quoted()), Some(tag));
            assert_eq!(ETag::parse(&tag.to_string()), Some(tag));
        }
        assert_eq!(ETag::Md5 { md5, parts: 2 }.quoted(), format!("\"{}-2\"", "ab".repeat(16)));
        for bad in [
            "",
            "\"",
            "\"\"",
            "abc",
            "\"abab",
            &"ab".repeat(15),
            &format!("{}-", "ab".repeat(16)),
            &format!("{}-01", "ab".repeat(16)),
            &format!("{}-0", "ab".repeat(16)),
        ] {
            assert_eq!(ETag::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn keys_without_md5_have_a_tag_too() {
        let key = om::KeyInfo { generation: 7, ..Default::default() };
        assert_eq!(ETag::of(&key).quoted(), "\"0000000000000007-0\"");
        assert_eq!(ETag::of(&key).must_match().if_generation, 7);
        let meta = om::ObjectMeta { etag_md5: vec![1; 16].into(), etag_parts: 3, ..Default::default() };
        let key = om::KeyInfo { meta: Some(meta), ..key };
        assert_eq!(ETag::of(&key), ETag::Md5 { md5: [1; 16], parts: 3 });
        assert_eq!(ETag::of(&key).must_match().if_match_parts, 3);
    }
}
