//! Points in time as S3's clients write them: HTTP dates, ISO 8601 in documents, the basic form in signatures.
//!
//! All are UTC. Milliseconds since 1970 are the domain's form. The calendar is the proleptic Gregorian one.

use std::fmt::Write as _;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]; // 1970 began on a Thursday
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Years with four digits are written and read, others are not.
const YEARS: std::ops::RangeInclusive<u64> = 1970..=9999;

struct Civil {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Civil {
    /// Days to date by eras of 400 years (H. Hinnant, "chrono-compatible low-level date algorithms").
    fn new(ms: u64) -> Self {
        let seconds = ms / 1000;
        let days = seconds / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153; // March is 0
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted + 2) / 5 + 1,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }

    /// `None` where there is no such point in time.
    fn to_ms(&self) -> Option<u64> {
        let leap = self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        let last = match self.month {
            2 => 28 + u64::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        let valid = YEARS.contains(&self.year)
            && (1..=last).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second < 60;
        if !valid {
            return None;
        }
        let year = self.year - u64::from(self.month <= 2);
        let (era, year_of_era) = (year / 400, year % 400);
        let day_of_year = (153 * ((self.month + 9) % 12) + 2) / 5 + self.day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
        Some((((days * 24 + self.hour) * 60 + self.minute) * 60 + self.second) * 1000)
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110): `Last-Modified`. Milliseconds are cut off.
pub(crate) fn http_date(ms: u64) -> String {
    let Civil { year, month, day, hour, minute, second } = Civil::new(ms);
    let name = DAYS[(ms / 86_400_000 % 7) as usize];
    let month = MONTHS[(month - 1) as usize];
    let mut text = String::with_capacity(29);
    write!(text, "{name}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
        .expect("writing to a String does not fail");
    text
}

/// `1994-11-06T08:49:37.000Z`: documents.
pub(crate) fn iso_8601(ms: u64) -> String {
    let Civil { year, month, day, hour, minute, second } = Civil::new(ms);
    let mut text = String::with_capacity(24);
    write!(text, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
        .expect("writing to a String does not fail");
    text
}

/// Reads `20130524T000000Z`, the form of `x-amz-date`. `None` where it is malformed.
pub(crate) fn parse_amz_date(text: &[u8]) -> Option<u64> {
    if text.len() != 16 || text[8] != b'T' || text[15] != b'Z' {
        return None;
    }
    let field = |range: std::ops::Range<usize>| number(&text[range]);
    Civil {
        year: field(0..4)?,
        month: field(4..6)?,
        day: field(6..8)?,
        hour: field(9..11)?,
        minute: field(11..13)?,
        second: field(13..15)?,
    }
    .to_ms()
}

/// Reads an HTTP date (RFC 9110 §5.6.7: the preferred form and the two obsolete ones). `None` where it is malformed; conditions
/// with such a date are ignored.
pub(crate) fn parse_http_date(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let fields: Vec<&str> = text.split([' ', '-', ',']).filter(|field| !field.is_empty()).collect();
    let (day, month, year, time) = match fields[..] {
        [_, day, month, year, time, "GMT" | "UTC" | "+0000"] => (day, month, year, time),
        [_, month, day, time, year] => (day, month, year, time),
        _ => return None,
    };
    let mut clock = time.split(':').map(|field| number(field.as_bytes()).filter(|_| field.len() == 2));
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let month = 1 + MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))? as u64;
    let year = match (year.len(), number(year.as_bytes())?) {
        (4, year) => year,
        (2, year) => year + if year < 70 { 2000 } else { 1900 },
        _ => return None,
    };
    let civil = Civil { year, month, day: number(day.as_bytes())?, hour, minute, second };
    civil.to_ms().filter(|_| clock.next().is_none())
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

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (parse_amz_date(&bytes), parse_http_date(&bytes));
        }
    }
}
