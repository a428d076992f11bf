//! What roles and a group say to each other.

use ozone_common::id::ClientId;

/// Names a call for ever, so that it has effect once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// One incarnation of the caller's process.
    pub client: ClientId,
    /// The call's number in it.
    pub sequence: u64,
    /// Answers to calls below may be forgotten.
    pub lowest_unanswered: u64,
}

/// How a group's member stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupState {
    /// The latest term it knows.
    pub term: u64,
    /// Index of the last applied entry.
    pub applied: u64,
    /// Whether it leads and has applied everything of earlier terms, so that it executes.
    pub leader: bool,
    /// Voting members of the group.
    pub members: u32,
}
