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

    /// Milliseconds since 1970 began (Hinnant's `days_from_civil`). `None` where there is no such moment, or its year is not one of 1970 to
    /// 9999.
    pub const fn to_ms(self) -> Option<u64> {
        let Self { year, month, day, hour, minute, second, millisecond } = self;
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let last = match month {
            2 => 28 + leap as u8,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        let in_range = year >= 1970 && year <= 9999 && day >= 1 && day <= last;
        if !in_range || hour > 23 || minute > 59 || second > 59 || millisecond > 999 {
            return None;
        }
        let year = year - (month <= 2) as u64; // from March
        let (era, year_of_era) = (year / 400, year % 400);
        let day_of_year = (153 * ((month as u64 + 9) % 12) + 2) / 5 + day as u64 - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468;
        let seconds = ((days * 24 + hour as u64) * 60 + minute as u64) * 60 + second as u64;
        Some(seconds * 1000 + millisecond as u64)
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

    #[test]
    fn moments_come_back_and_what_is_none_is_told() {
        for ms in (0..253_402_300_800_000).step_by(86_400_000 * 13 + 12_345_677).chain([253_402_300_799_999]) {
            assert_eq!(Utc::from_ms(ms).to_ms(), Some(ms));
        }
        let good = Utc { year: 2024, month: 2, day: 29, hour: 23, minute: 59, second: 59, millisecond: 999 };
        assert!(good.to_ms().is_some());
        for wrong in [
            Utc { year: 2023, ..good },
            Utc { year: 2100, ..good },
            Utc { year: 1968, ..good },
            Utc { year: 12_000, ..good },
            Utc { month: 0, ..good },
            Utc { month: 13, ..good },
            Utc { day: 0, ..good },
            Utc { month: 4, day: 31, ..good },
            Utc { hour: 24, ..good },
            Utc { minute: 60, ..good },
            Utc { second: 60, ..good },
            Utc { millisecond: 1000, ..good },
        ] {
            assert_eq!(wrong.to_ms(), None, "{wrong}");
        }
    }
}
