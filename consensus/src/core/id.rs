//! Numbers of the protocol: members, terms, places in the log.

use std::fmt;

/// A member of a group. Never used again after the member lost its log or its vote: such a member comes back under a new id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MemberId(pub u64);

impl MemberId {
    /// The member of a folder's identity.
    pub fn of(identity: ozone_common::id::ClientId) -> Self {
        let (first, _) = identity.as_bytes().split_first_chunk::<8>().expect("an identity has 16 bytes");
        // 0 stands for nobody.
        Self(u64::from_be_bytes(*first).max(1))
    }
}

/// A reign: at most one leader has it. 0 is before the first election.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Term(pub u64);

impl Term {
    /// The term after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A place in the log. The first entry has 1; 0 is the place before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Index(pub u64);

impl Index {
    /// The place before the first entry.
    pub const ZERO: Self = Self(0);

    /// The place after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The place before this one; [`Index::ZERO`] has none but itself.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// Names an entry: two logs that hold the same id hold the same entries up to it.
///
/// The order is that of elections: the later term first, then the longer log (Raft §5.4.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EntryId {
    /// The term of the leader that made the entry.
    pub term: Term,
    /// Its place.
    pub index: Index,
}

impl EntryId {
    /// Before the first entry of every log.
    pub const ZERO: Self = Self { term: Term(0), index: Index::ZERO };

    /// Shorthand for both numbers.
    pub fn new(term: u64, index: u64) -> Self {
        Self { term: Term(term), index: Index(index) }
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.index)
    }
}
