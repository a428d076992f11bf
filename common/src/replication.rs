//! How many copies of a block there are, in Ozone's words.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A replication config.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Replication {
    /// One copy.
    One,
    /// Three copies.
    #[default]
    Three,
}

impl Replication {
    /// How many replicas a container of it has.
    pub const fn replicas(self) -> usize {
        match self {
            Self::One => 1,
            Self::Three => 3,
        }
    }
    /// With how few replicas a write may still be acknowledged; the rest is repaired later.
    pub const fn min_replicas(self) -> usize {
        match self {
            Self::One => 1,
            Self::Three => 2,
        }
    }
    /// The number stored in rows.
    pub const fn number(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Three => 3,
        }
    }
    /// The config of a stored number.
    pub fn from_number(number: u32) -> Result<Self, Error> {
        match number {
            1 => Ok(Self::One),
            3 => Ok(Self::Three),
            other => Err(Error::invalid(format!("replication number {other} is not known"))),
        }
    }
}

impl fmt::Display for Replication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "RATIS/ONE",
            Self::Three => "RATIS/THREE",
        })
    }
}

impl FromStr for Replication {
    type Err = Error;
    /// Accepts `RATIS/THREE`, `STANDALONE/ONE`, the bare factor, and `1` or `3`, in any case; empty is the default.
    fn from_str(text: &str) -> Result<Self, Error> {
        let upper = text.to_ascii_uppercase();
        let factor = upper.strip_prefix("RATIS/").or_else(|| upper.strip_prefix("STANDALONE/")).unwrap_or(&upper);
        match factor {
            "" => Ok(Self::default()),
            "ONE" | "1" => Ok(Self::One),
            "THREE" | "3" => Ok(Self::Three),
            _ => Err(Error::invalid(format!("replication `{text}`: RATIS/ONE and RATIS/THREE are known"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses() {
        for config in [Replication::One, Replication::Three] {
            assert_eq!(config.to_string().parse::<Replication>().unwrap(), config);
            assert_eq!(Replication::from_number(config.number()).unwrap(), config);
            assert!(config.min_replicas() <= config.replicas());
        }
        assert_eq!("standalone/one".parse::<Replication>().unwrap(), Replication::One);
        assert_eq!("".parse::<Replication>().unwrap(), Replication::Three);
        assert!("RATIS/TWO".parse::<Replication>().is_err());
        assert!(Replication::from_number(2).is_err());
    }
}
