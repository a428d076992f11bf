//! Conditions on reads and on the source of copies (RFC 9110 §13; S3 User Guide, "Conditional requests").
//!
//! Conditions on writes are judged by the OM at the moment of the change; here they are only read from the headers.

use ozone_client::proto::om::v1 as om;

use crate::etag::ETag;
use crate::time::parse_http_date;

/// Conditions of a read, as text. Absent ones are `None`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct ReadConditions<'a> {
    /// `If-Match`.
    pub if_match: Option<&'a str>,
    /// `If-None-Match`.
    pub if_none_match: Option<&'a str>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<&'a str>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<&'a str>,
}

/// What conditions say about an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// They hold.
    Holds,
    /// The client has the object already: 304 for reads, 412 for sources of copies.
    NotModified,
    /// 412. Names the header.
    Failed(&'static str),
}

impl ReadConditions<'_> {
    /// Judges them. An `If-Match` that holds outweighs `If-Unmodified-Since`, an `If-None-Match` outweighs `If-Modified-Since`.
    /// Dates that are none are as if they were not there.
    pub fn judge(&self, etag: &ETag, modified_ms: u64) -> Verdict {
        let modified = modified_ms / 1000 * 1000;
        let date = |text: Option<&str>| text.and_then(|text| parse_http_date(text.as_bytes()));
        match self.if_match {
            Some(tags) if !names(tags, etag) => return Verdict::Failed("If-Match"),
            Some(_) => {}
            None if date(self.if_unmodified_since).is_some_and(|since| modified > since) => {
                return Verdict::Failed("If-Unmodified-Since");
            }
            None => {}
        }
        match self.if_none_match {
            Some(tags) if names(tags, etag) => Verdict::NotModified,
            Some(_) => Verdict::Holds,
            None if date(self.if_modified_since).is_some_and(|since| modified <= since) => Verdict::NotModified,
            None => Verdict::Holds,
        }
    }
}

/// Whether a list of entity tags names this one. Weak tags compare as strong ones: S3 has none of its own.
fn names(tags: &str, etag: &ETag) -> bool {
    tags.split(',').map(str::trim).any(|tag| {
        let tag = tag.strip_prefix("W/").unwrap_or(tag);
        tag == "*" || ETag::parse(tag) == Some(*etag)
    })
}

/// A condition on a write that S3 does not serve. Names the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotServed(pub &'static str);

/// Conditions of a write: `If-None-Match: *`, or `If-Match` with one tag or `*`.
///
/// # Errors
/// [`NotServed`] for `If-None-Match` with a tag, lists, and both together.
pub(crate) fn write_conditions(
    if_match: Option<&str>,
    if_none_match: Option<&str>,
) -> Result<Option<om::Conditions>, NotServed> {
    match (if_match.map(str::trim), if_none_match.map(str::trim)) {
        (None, None) => Ok(None),
        (None, Some("*")) => Ok(Some(om::Conditions { if_absent: true, ..Default::default() })),
        (_, Some(_)) => Err(NotServed("If-None-Match")),
        (Some("*"), None) => Ok(Some(om::Conditions { if_present: true, ..Default::default() })),
        (Some(tags), None) if tags.contains(',') => Err(NotServed("If-Match")),
        (Some(tag), None) => Ok(Some(must_match(tag))),
    }
}

/// The condition that a key has a tag. What is no tag of ours is no key's, which the OM has to say: it knows whether there is a key at all.
pub(crate) fn must_match(tag: &str) -> om::Conditions {
    const NO_ETAG: ETag = ETag::Md5 { md5: [0; 16], parts: u32::MAX };
    ETag::parse(tag).unwrap_or(NO_ETAG).must_match()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODIFIED_MS: u64 = 784_111_777_500;
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    #[test]
    fn each_combination_of_read_conditions() {
        let etag = ETag::Md5 { md5: [0xab; 16], parts: 0 };
        let ours = etag.quoted();
        let ours = ours.as_str();
        let other = "\"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd\"";
        let list = format!("{other}, W/{ours}");
        let unquoted = ours.trim_matches('"');
        let failed = Verdict::Failed;
        let (holds, not_modified) = (Verdict::Holds, Verdict::NotModified);
        for (if_match, if_none_match, modified, unmodified, expected) in [
            (None, None, None, None, holds),
            (Some(ours), None, None, None, holds),
            (Some(unquoted), None, None, None, holds),
            (Some("*"), None, None, None, holds),
            (Some(list.as_str()), None, None, None, holds),
            (Some(other), None, None, None, failed("If-Match")),
            (Some("nonsense"), None, None, None, failed("If-Match")),
            (None, Some(ours), None, None, not_modified),
            (None, Some("*"), None, None, not_modified),
            (None, Some(list.as_str()), None, None, not_modified),
            (None, Some(other), None, None, holds),
            (None, None, Some(BEFORE), None, holds),
            (None, None, Some(SAME), None, not_modified),
            (None, None, Some(AFTER), None, not_modified),
            (None, None, Some("yesterday"), None, holds),
            (None, None, None, Some(BEFORE), failed("If-Unmodified-Since")),
            (None, None, None, Some(SAME), holds),
            (None, None, None, Some(AFTER), holds),
            (None, None, None, Some("tomorrow"), holds),
            // The pairs that S3 documents.
            (Some(ours), None, None, Some(BEFORE), holds),
            (Some(other), None, None, Some(AFTER), failed("If-Match")),
            (None, Some(ours), Some(BEFORE), None, not_modified),
            (None, Some(other), Some(AFTER), None, holds),
            (Some(other), Some(ours), None, None, failed("If-Match")),
            (Some(ours), Some(ours), None, None, not_modified),
        ] {
            let conditions = ReadConditions {
                if_match,
                if_none_match,
                if_modified_since: modified,
                if_unmodified_since: unmodified,
            };
            assert_eq!(conditions.judge(&etag, MODIFIED_MS), expected, "{conditions:?}");
        }
    }

    #[test]
    fn conditions_of_writes() {
        let tag = "\"abababababababababababababababab-2\"";
        assert_eq!(write_conditions(None, None), Ok(None));
        assert!(write_conditions(None, Some("*")).unwrap().unwrap().if_absent);
        assert!(write_conditions(Some(" * "), None).unwrap().unwrap().if_present);
        let by_tag = write_conditions(Some(tag), None).unwrap().unwrap();
        assert_eq!((by_tag.if_match_md5.as_ref(), by_tag.if_match_parts), ([0xab; 16].as_slice(), 2));
        let nonsense = write_conditions(Some("badetag"), None).unwrap().unwrap();
        assert_eq!((nonsense.if_match_md5.len(), nonsense.if_match_parts), (16, u32::MAX), "matches no key");
        assert_eq!(write_conditions(None, Some(tag)), Err(NotServed("If-None-Match")));
        assert_eq!(write_conditions(Some(tag), Some("*")), Err(NotServed("If-None-Match")));
        assert_eq!(write_conditions(Some("\"a\", \"b\""), None), Err(NotServed("If-Match")));
    }
}
