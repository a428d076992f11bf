//! Settings of one member. All bounds of the core are here.

use std::time::Duration;

use super::id::MemberId;

/// Settings of one member; see [`Config::of`] for the usual ones.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which member this is.
    pub id: MemberId,
    /// A follower that hears from no leader for between one and two of these starts an election; a leader that hears from no
    /// quorum for one of these steps down. The same on all members.
    pub election_timeout: Duration,
    /// How often a leader shows that it lives. At most a third of `election_timeout`.
    pub heartbeat_interval: Duration,
    /// LIMIT: bytes of entries in one message to a follower; a single larger entry travels alone.
    pub append_bytes_max: usize,
    /// LIMIT: messages with entries under way to one follower.
    /// At least 1.
    pub inflight_appends_max: usize,
    /// LIMIT: bytes proposed and not yet committed; beyond it proposals are refused until some are. A single larger one is taken alone.
    /// At least 1.
    pub uncommitted_bytes_max: usize,
    /// LIMIT: bytes of entries kept in memory besides those that are not yet persisted.
    /// May be 0.
    pub cache_bytes_max: usize,
    /// LIMIT: read barriers waiting; beyond it they are refused.
    /// At least 1.
    pub reads_max: usize,
    /// Draws the election timeouts. Different on each member and start, or two may go on colliding.
    pub seed: u64,
}

/// What settings are refused for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A follower must not lose patience for one lost message.
    #[error(
        "heartbeat interval {heartbeat:?} must be above zero and at most a third of the election timeout {election:?}"
    )]
    Heartbeat {
        /// As given.
        heartbeat: Duration,
        /// As given.
        election: Duration,
    },
    /// Nothing could ever be done.
    #[error("`{0}` must be at least 1")]
    Zero(&'static str),
}

impl Config {
    /// The usual settings for members on one network.
    pub fn of(id: MemberId, seed: u64) -> Self {
        Self {
            id,
            election_timeout: Duration::from_millis(1000),
            heartbeat_interval: Duration::from_millis(150),
            append_bytes_max: 1 << 20,
            inflight_appends_max: 64,
            uncommitted_bytes_max: 64 << 20,
            cache_bytes_max: 16 << 20,
            reads_max: 16 << 10,
            seed,
        }
    }

    /// Whether a member can work with them.
    ///
    /// # Errors
    /// Names the setting that is wrong and what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.heartbeat_interval.is_zero() || self.heartbeat_interval * 3 > self.election_timeout {
            return Err(ConfigError::Heartbeat { heartbeat: self.heartbeat_interval, election: self.election_timeout });
        }
        let bounds = [
            ("append_bytes_max", self.append_bytes_max),
            ("inflight_appends_max", self.inflight_appends_max),
            ("uncommitted_bytes_max", self.uncommitted_bytes_max),
            ("reads_max", self.reads_max),
        ];
        match bounds.iter().find(|(_, bound)| *bound == 0) {
            Some((name, _)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_named() {
        assert_eq!(Config::of(MemberId(1), 0).validate(), Ok(()));
        let slow = Config { heartbeat_interval: Duration::from_millis(400), ..Config::of(MemberId(1), 0) };
        assert!(slow.validate().unwrap_err().to_string().contains("400ms"));
        let none = Config { reads_max: 0, ..Config::of(MemberId(1), 0) };
        assert_eq!(none.validate(), Err(ConfigError::Zero("reads_max")));
    }
}
