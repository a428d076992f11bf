//! Why a member does not do what its driver asks.

use super::config::ConfigError;
use super::id::{Index, MemberId};
use super::restore::RestoreError;

/// Why a member does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Settings that cannot work.
    #[error("settings of the group's member: {0}")]
    Config(#[from] ConfigError),
    /// A state that must not be used.
    #[error("state of the group's member: {0}")]
    Restore(#[from] RestoreError),
}

/// Why a request is not taken. Nothing was changed; what the request asked for will not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Only the leader can.
    #[error("this member does not lead; the leader is {leader:?}")]
    NotLeader {
        /// Who does, where known.
        leader: Option<MemberId>,
    },
    /// Leadership is being handed over.
    #[error("leadership is being handed to member {to}; ask there")]
    Transferring {
        /// To whom.
        to: MemberId,
    },
    /// See [`super::Config::uncommitted_bytes_max`].
    #[error("{bytes} bytes wait for a quorum, of {max} allowed; try again when some are committed")]
    Uncommitted {
        /// Proposed and not committed.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// See [`super::Config::reads_max`].
    #[error("{max} reads wait for a quorum, and no more are allowed; try again")]
    Reads {
        /// The bound.
        max: usize,
    },
    /// Memberships change one by one.
    #[error("the membership of entry {since} is not committed yet; wait for it before the next change")]
    ChangePending {
        /// Entry of the membership in force.
        since: Index,
    },
    /// A leader changes no membership before its first entry is committed.
    #[error("the leader's first entry {noop} is not committed yet; try again")]
    TermUnconfirmed {
        /// Entry at the start of the leader's term.
        noop: Index,
    },
    /// Unknown member, last voter, member already there, or no room.
    #[error("the group cannot be changed so: the member is unknown or already there, the last voter, or one too many")]
    Senseless,
    /// It would hold up every commit.
    #[error("member {member} has the log up to {matched} of {last}; let it catch up before it votes")]
    Behind {
        /// Whom to promote.
        member: MemberId,
        /// What it has.
        matched: Index,
        /// What there is.
        last: Index,
    },
    /// Leadership goes to voters only, and not to who has it.
    #[error("member {0} is not another voter of the group")]
    NotAnotherVoter(MemberId),
}
