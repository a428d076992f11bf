//! Points in time as S3's clients write them: HTTP dates, ISO 8601 in documents, the basic form in signatures.
//!
//! All are UTC. Milliseconds since 1970 are the domain's form.

use ozone_common::time::Utc;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]; // 1970 began on a Thursday
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110): `Last-Modified`. Milliseconds are cut off.
pub(crate) fn http_date(ms: u64) -> String {
    let Utc { year, month, day, hour, minute, second, .. } = Utc::from_ms(ms);
    let name = DAYS[(ms / 86_400_000 % 7) as usize];
    let month = MONTHS[usize::from(month - 1)];
    format!("{name}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// `1994-11-06T08:49:37.000Z`: documents.
pub(crate) fn iso_8601(ms: u64) -> String {
    Utc::from_ms(ms).to_string()
}

/// Reads `20130524T000000Z`, the form of `x-amz-date`. `None` where it is malformed.
pub(crate) fn parse_amz_date(text: &[u8]) -> Option<u64> {
    if text.len() != 16 || text[8] != b'T' || text[15] != b'Z' {
        return None;
    }
    let field = |range: std::ops::Range<usize>| number(&text[range]).and_then(|number| u8::try_from(number).ok());
    let (month, day) = (field(4..6)?, field(6..8)?);
    let (hour, minute, second) = (field(9..11)?, field(11..13)?, field(13..15)?);
    Utc { year: number(&text[0..4])?, month, day, hour, minute, second, millisecond: 0 }.to_ms()
}

/// Reads an HTTP date (RFC 9110 §5.6.7: the preferred form and the two obsolete ones). `None` where it is malformed; conditions
/// with such a date are ignored.
pub(crate) fn parse_http_date(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let fields: Vec<&str> = text.split([' ', '-', ',']).filter(|field| !field.is_empty()).collect();
    let (day, month, year, time) = match fields[..] {
        // The last is what is left of "-0000", which Python's clients send.
        [_, day, month, year, time, "GMT" | "UTC" | "+0000" | "0000"] => (day, month, year, time),
        [_, month, day, time, year] => (day, month, year, time),
        _ => return None,
    };
    let small = |field: &str| number(field.as_bytes()).and_then(|number| u8::try_from(number).ok());
    let mut clock = time.split(':').map(|field| small(field).filter(|_| field.len() == 2));
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let month = 1 + MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))? as u8;
    let year = match (year.len(), number(year.as_bytes())?) {
        (4, year) => year,
        (2, year) => year + if year < 70 { 2000 } else { 1900 },
        _ => return None,
    };
    let moment = Utc { year, month, day: small(day)?, hour, minute, second, millisecond: 0 };
    moment.to_ms().filter(|_| clock.next().is_none())
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 4 {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_points() {
        assert_eq!(http_date(784_111_777_000), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(iso_8601(784_111_777_123), "1994-11-06T08:49:37.123Z");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(parse_amz_date(b"20130524T000000Z"), Some(1_369_353_600_000));
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 08:49:37 -0000",
        ] {
            assert_eq!(parse_http_date(text.as_bytes()), Some(784_111_777_000), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            "20130524T000000",
            "20130229T000000Z",
            "2013052aT000000Z",
            "20130524T240000Z",
            "20131301T000000Z",
            "20130524 000000Z",
        ] {
            assert_eq!(parse_amz_date(text.as_bytes()), None, "{text}");
        }
        for text in [
            "",
            "yesterday",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49:37:00 GMT",
        ] {
            assert_eq!(parse_http_date(text.as_bytes()), None, "{text}");
        }
        assert!(parse_amz_date(b"20000229T235959Z").is_some() && parse_amz_date(b"21000229T000000Z").is_none());
    }

    proptest! {
        #[test]
        fn dates_read_back(ms in 0u64..253_402_300_800_000) {
            let second = ms / 1000 * 1000;
            prop_assert_eq!(parse_http_date(http_date(ms).as_bytes()), Some(second));
            let basic: String = iso_8601(second).replace(['-', ':'], "").replace(".000", "");
            prop_assert_eq!(parse_amz_date(basic.as_bytes()), Some(second));
        }
    }

    #[test]
    fn arbitrary_dates_are_read_or_refused() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/dates");
        ozone_fuzz::fuzz(corpus, &[b"GMT", b"Feb", b"29", b":", b"-"], |bytes| {
            let (basic, http) = (parse_amz_date(bytes), parse_http_date(bytes));
            for ms in [basic, http].into_iter().flatten() {
                assert_eq!(parse_http_date(http_date(ms).as_bytes()), Some(ms));
            }
            (basic.is_some(), http.is_some())
        });
    }
}
