//! How a member stands, for everybody to look at without asking its thread.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::call::GroupState;
use crate::core::{Index, MemberId, Membership, Term};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Standing {
    term: AtomicU64,
    applied: AtomicU64,
    leader: AtomicBool,
    voters: AtomicU32,
    leads_alone: AtomicBool,
}

impl Standing {
    /// Sets it; says whether anything but the applied index changed.
    pub fn set(&self, term: Term, applied: Index, leader: bool, members: &Membership, own: MemberId) -> bool {
        let voters = members.voters().len() as u32;
        self.applied.store(applied.0, Ordering::Release);
        let term_changed = self.term.swap(term.0, Ordering::AcqRel) != term.0;
        let voters_changed = self.voters.swap(voters, Ordering::AcqRel) != voters;
        let leader_changed = self.leader.swap(leader, Ordering::AcqRel) != leader;
        self.leads_alone.store(leader && members.is_sole_voter(own), Ordering::Release);
        term_changed || voters_changed || leader_changed
    }

    /// Nothing is led any more.
    pub fn end(&self) {
        self.leads_alone.store(false, Ordering::Release);
        self.leader.store(false, Ordering::Release);
    }

    /// Whether this member alone makes up the quorum: then what was answered is applied here, and nobody else can have answered.
    pub fn leads_alone(&self) -> bool {
        self.leads_alone.load(Ordering::Acquire)
    }

    pub fn get(&self) -> GroupState {
        GroupState {
            term: self.term.load(Ordering::Acquire),
            applied: self.applied.load(Ordering::Acquire),
            leader: self.leader.load(Ordering::Acquire),
            members: self.voters.load(Ordering::Acquire),
        }
    }
}
