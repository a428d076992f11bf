//! Moments as the calendar names them, in UTC.

use std::fmt;

/// A moment, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Utc {
    /// 1970 and later.
    pub year: u64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59: leap seconds are not counted.
    pub second: u8,
    /// 0 to 999.
    pub millisecond: u16,
}

impl Utc {
    /// The moment `ms` milliseconds after 1970 began. The calendar is Hinnant's `civil_from_days`.
    pub const fn from_ms(ms: u64) -> Self {
        let (days, ms) = (ms / 86_400_000, ms % 86_400_000);
        let shifted = days + 719_468; // days since 0000-03-01
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153; // from March
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Self {
            year: year_of_era + era * 400 + (month <= 2) as u64,
            month: month as u8,
            day: day as u8,
            hour: (ms / 3_600_000) as u8,
            minute: (ms / 60_000 % 60) as u8,
            second: (ms / 1000 % 60) as u8,
            millisecond: (ms % 1000) as u16,
        }
    }
}

impl fmt::Display for Utc {
    /// `2026-01-31T12:00:00.000Z` (RFC 3339).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second, millisecond } = self;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Utc::from_ms(ms).to_string(), text);
        }
    }
}
