//! The roles of a cluster on one machine, in the order in which they start.

use std::fmt;
use std::str::FromStr;

/// One of them. Its name is that of its folder, its log and its entry in `OZONE_PIDS`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// The container manager.
    Scm,
    /// The key-space manager.
    Om,
    /// A datanode, from 1.
    Datanode(u32),
    /// The S3 gateway.
    S3g,
}

impl Role {
    /// Every role of a cluster with so many datanodes.
    pub fn all(datanodes: u32) -> impl Iterator<Item = Self> {
        [Self::Scm, Self::Om].into_iter().chain((1..=datanodes).map(Self::Datanode)).chain([Self::S3g])
    }

    /// The program's subcommand that runs it.
    pub const fn command(self) -> &'static str {
        match self {
            Self::Scm => "scm",
            Self::Om => "om",
            Self::Datanode(_) => "datanode",
            Self::S3g => "s3g",
        }
    }
}

/// Which roles end together: the door first, then those that it needs, so that what was begun can end.
pub(crate) const STOP_ORDER: [fn(Role) -> bool; 4] = [
    |role| role == Role::S3g,
    |role| role == Role::Om,
    |role| matches!(role, Role::Datanode(_)),
    |role| role == Role::Scm,
];

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Datanode(n) => write!(f, "dn{n}"),
            role => f.write_str(role.command()),
        }
    }
}

impl FromStr for Role {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let datanode = || text.strip_prefix("dn")?.parse().ok().filter(|n| *n > 0).map(Self::Datanode);
        match text {
            "scm" => Ok(Self::Scm),
            "om" => Ok(Self::Om),
            "s3g" => Ok(Self::S3g),
            _ => datanode().ok_or_else(|| format!("`{text}` is no role: om, scm, s3g, dn1, dn2 … are")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let names: Vec<String> = Role::all(2).map(|role| role.to_string()).collect();
        assert_eq!(names, ["scm", "om", "dn1", "dn2", "s3g"]);
        for (name, role) in names.iter().zip(Role::all(2)) {
            assert_eq!(name.parse::<Role>(), Ok(role));
        }
        for wrong in ["", "dn", "dn0", "dn-1", "datanode", "OM"] {
            assert!(wrong.parse::<Role>().is_err(), "{wrong}");
        }
    }
}
