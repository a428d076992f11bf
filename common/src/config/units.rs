//! Sizes and spans of time with their units, as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::Error;

/// A number of bytes: `"256MiB"`, or a plain number of bytes.
///
/// Units are binary (KiB = 1,024 B). `KB` and `MB` are refused, since some mean 1,000 by them and some 1,024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const SIZE_UNITS: [(&str, u64); 6] =
    [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const SIZE_HELP: &str = "a whole number of bytes, or one followed by B, KiB, MiB, GiB, TiB or PiB, such as `256MiB`";

impl ByteSize {
    /// So many KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// So many MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// So many GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The number of bytes as an index or a capacity.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    /// The largest unit that divides the number, so that printing loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_in_units(f, self.0, &SIZE_UNITS, "B")
    }
}

impl FromStr for ByteSize {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        parse_with_units(text, &SIZE_UNITS, 1)
            .map(Self)
            .ok_or_else(|| Error::invalid(format!("`{text}` is no size: {SIZE_HELP}")))
    }
}

/// A span of time: `"30s"`, `"1500ms"`, or a plain number of seconds. Whole microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(u64);

const TIME_UNITS: [(&str, u64); 6] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000), ("us", 1)];
const TIME_HELP: &str = "a whole number of seconds, or one followed by us, ms, s, min, h or d, such as `30s`";

impl TimeSpan {
    /// So many milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(n * 1000)
    }
    /// So many seconds.
    pub const fn secs(n: u64) -> Self {
        Self(n * 1_000_000)
    }
    /// So many minutes.
    pub const fn mins(n: u64) -> Self {
        Self(n * 60_000_000)
    }
    /// So many hours.
    pub const fn hours(n: u64) -> Self {
        Self(n * 3_600_000_000)
    }
    /// As std writes it.
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
    /// Milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1000
    }
}

impl From<TimeSpan> for Duration {
    fn from(span: TimeSpan) -> Self {
        span.duration()
    }
}

impl fmt::Display for TimeSpan {
    /// The largest unit that divides the span, so that printing loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_in_units(f, self.0, &TIME_UNITS, "s")
    }
}

impl FromStr for TimeSpan {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        parse_with_units(text, &TIME_UNITS, 1_000_000)
            .map(Self)
            .ok_or_else(|| Error::invalid(format!("`{text}` is no span of time: {TIME_HELP}")))
    }
}

fn write_in_units(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)], of_zero: &str) -> fmt::Result {
    if value == 0 {
        return write!(f, "0{of_zero}");
    }
    match units.iter().find(|(_, factor)| value.is_multiple_of(*factor)) {
        Some((unit, factor)) => write!(f, "{}{unit}", value / factor),
        None => write!(f, "{value}"),
    }
}

/// `None` for anything but digits and a unit, and for what does not fit 64 bits.
fn parse_with_units(text: &str, units: &[(&str, u64)], plain: u64) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let factor = match unit {
        "" => plain,
        unit => units.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

macro_rules! serde_as_text_or_number {
    ($t:ident, $help:ident) => {
        impl Serialize for $t {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $t {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct V;
                impl Visitor<'_> for V {
                    type Value = $t;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($help)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$t, E> {
                        text.parse().map_err(|error: Error| E::custom(error.message))
                    }
                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$t, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$t, E> {
                        self.visit_str(&number.to_string())
                    }
                }
                deserializer.deserialize_any(V)
            }
        }
    };
}
serde_as_text_or_number!(ByteSize, SIZE_HELP);
serde_as_text_or_number!(TimeSpan, TIME_HELP);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_and_spans_as_people_write_them() {
        for (text, bytes) in
            [("0", 0), ("17", 17), ("17B", 17), ("4KiB", 4096), ("256 MiB", 256 << 20), ("5GiB", 5 << 30)]
        {
            assert_eq!(text.parse::<ByteSize>().unwrap().get(), bytes, "{text}");
        }
        for (text, millis) in
            [("30", 30_000), ("30s", 30_000), ("1500ms", 1500), ("2 min", 120_000), ("1d", 86_400_000)]
        {
            assert_eq!(text.parse::<TimeSpan>().unwrap().as_millis(), millis, "{text}");
        }
        for wrong in ["", "MiB", "-1", "1.5GiB", "256MB", "256mib", "1 2", "18446744073709551616", "99999999999PiB"] {
            let error = wrong.parse::<ByteSize>().unwrap_err();
            assert!(error.message.contains("such as `256MiB`"), "{error}");
        }
        for wrong in ["", "s", "-1s", "1.5s", "3 weeks", "1M"] {
            let error = wrong.parse::<TimeSpan>().unwrap_err();
            assert!(error.message.contains("such as `30s`"), "{error}");
        }
        assert_eq!(ByteSize::mib(256).to_string(), "256MiB");
        assert_eq!(TimeSpan::secs(90).to_string(), "90s");
        assert_eq!(TimeSpan::secs(0).to_string(), "0s");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn what_is_printed_reads_back(n in any::<u64>(), shift in 0u32..60, text in "\\PC{0,12}") {
            let size = ByteSize(n >> shift << (shift / 2));
            prop_assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
            let span = TimeSpan(n >> shift);
            prop_assert_eq!(span.to_string().parse::<TimeSpan>().unwrap(), span);
            // Anything else is an error, never a panic.
            let _ = (text.parse::<ByteSize>().is_ok(), text.parse::<TimeSpan>().is_ok());
        }
    }
}
