//! The `Range` header of reads and the range of copied parts (RFC 9110 §14; S3 API, "GetObject", "UploadPartCopy").

use std::ops::Range;

/// What a read asks for. Forms that S3 does not serve (several ranges, other units, nonsense) are as if they were not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ByteRange {
    /// From a byte to another one, both included; without the second to the end.
    From(u64, Option<u64>),
    /// The last so many bytes.
    Last(u64),
}

/// A range of which the object has no byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotSatisfiable;

impl ByteRange {
    /// Reads a `Range` header; `None` = the whole object.
    pub fn parse(header: &str) -> Option<Self> {
        let (unit, spec) = header.trim().split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = spec.trim().split_once('-')?;
        if first.is_empty() {
            return Some(Self::Last(number(last)?));
        }
        let first = number(first)?;
        if last.is_empty() {
            return Some(Self::From(first, None));
        }
        let last = number(last)?;
        (first <= last).then_some(Self::From(first, Some(last)))
    }

    /// The bytes of an object of `length` that it means.
    ///
    /// # Errors
    /// [`NotSatisfiable`] where there is none: it starts at or behind the end, or asks for the last 0.
    pub fn resolve(self, length: u64) -> Result<Range<u64>, NotSatisfiable> {
        match self {
            Self::From(first, _) if first >= length => Err(NotSatisfiable),
            Self::From(first, last) => Ok(first..last.map_or(length, |last| last.saturating_add(1).min(length))),
            Self::Last(count) if count == 0 || length == 0 => Err(NotSatisfiable),
            Self::Last(count) => Ok(length.saturating_sub(count)..length),
        }
    }
}

/// Reads an `x-amz-copy-source-range` header: both ends must be there and in order.
pub(crate) fn parse_copy_range(header: &str) -> Option<Range<u64>> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    (first <= last && last < u64::MAX).then(|| first..last + 1)
}

/// Digits only: `u64::from_str` takes a sign too. More than fit mean "beyond every object".
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_an_object_of_ten_bytes() {
        for (header, expected) in [
            ("bytes=0-0", Some(Ok(0..1))),
            ("bytes=0-9", Some(Ok(0..10))),
            ("bytes=2-4", Some(Ok(2..5))),
            ("bytes=2-", Some(Ok(2..10))),
            ("bytes=9-", Some(Ok(9..10))),
            ("bytes=5-100", Some(Ok(5..10))),
            ("bytes=5-99999999999999999999999", Some(Ok(5..10))),
            ("bytes=10-", Some(Err(NotSatisfiable))),
            ("bytes=10-20", Some(Err(NotSatisfiable))),
            ("bytes=99999999999999999999999-", Some(Err(NotSatisfiable))),
            ("bytes=-3", Some(Ok(7..10))),
            ("bytes=-10", Some(Ok(0..10))),
            ("bytes=-11", Some(Ok(0..10))),
            ("bytes=-0", Some(Err(NotSatisfiable))),
            ("Bytes=1-2", Some(Ok(1..3))),
            (" bytes = 1-2 ", Some(Ok(1..3))),
            ("bytes=4-2", None),
            ("bytes=0-1,3-4", None),
            ("bytes=-", None),
            ("bytes=", None),
            ("bytes", None),
            ("bytes=a-b", None),
            ("bytes=+1-2", None),
            ("bytes=1--2", None),
            ("items=0-1", None),
            ("", None),
        ] {
            assert_eq!(ByteRange::parse(header).map(|range| range.resolve(10)), expected, "{header}");
        }
    }

    #[test]
    fn an_empty_object_has_no_range() {
        for header in ["bytes=0-", "bytes=0-0", "bytes=-1", "bytes=-0"] {
            assert_eq!(ByteRange::parse(header).unwrap().resolve(0), Err(NotSatisfiable), "{header}");
        }
    }

    #[test]
    fn copied_ranges_name_both_ends() {
        assert_eq!(parse_copy_range("bytes=0-21"), Some(0..22));
        assert_eq!(parse_copy_range("bytes=3-3"), Some(3..4));
        for bad in [
            "0-2",
            "bytes=0",
            "bytes=hello-world",
            "bytes=0-bar",
            "bytes=hello-",
            "bytes=0-2,3-5",
            "bytes=-5",
            "bytes=5-",
            "bytes=4-2",
            "bytes=0-18446744073709551615",
        ] {
            assert_eq!(parse_copy_range(bad), None, "{bad}");
        }
    }
}
