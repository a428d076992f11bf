//! Snapshots: telling the core that one was taken, cutting the log behind it, and passing it to a member that is too far behind.
//!
//! The bytes never come here. A leader that lacks the entries a follower needs *offers* its latest snapshot, again with each heartbeat. The
//! follower's driver fetches it from there at its own pace, beside the state in use, and can resume; when it is whole and verified, the core says whether it is still of use.
//!
//! ```text
//! leader  --SnapshotOffer-->  follower: Output.fetch --driver fetches--> snapshot_fetched(mark)
//!                                                                             | Output.install, persisted
//!         <----------------------------- Appended { matched: mark } ---------+
//! ```
//!
//! Any snapshot of the group may be installed where it is ahead of what is committed here, whoever offered it, since it
//! holds committed effects only.

use super::Raft;
use super::id::{EntryId, Index, MemberId};
use super::membership::History;
use super::message::Body;
use super::output::Fetch;
use super::restore::SnapshotMark;
use super::state::State;

impl Raft {
    /// The driver has a durable snapshot up to `last`, and can pass it (or a later one) to others. Returns its mark, to be stored with it.
    pub fn snapshot_taken(&mut self, last: Index) -> SnapshotMark {
        assert!(
            last <= self.given_out,
            "a snapshot at {last} has applied entries only, and {} was given out last",
            self.given_out
        );
        if last > self.mark.last.index {
            let term = self
                .log
                .term_at(last)
                .expect("the log is cut behind snapshots only, so it has the term of a later place");
            self.mark = SnapshotMark { last: EntryId { term, index: last }, members: self.members.at(last).clone() };
            self.members.forget_before(last);
        }
        self.mark.clone()
    }

    /// The latest snapshot here.
    pub fn snapshot(&self) -> &SnapshotMark {
        &self.mark
    }

    /// The driver is about to remove the entries up to `last`; from here on the core asks for later ones only. At most what the latest snapshot holds.
    pub fn cut_log(&mut self, last: Index) {
        assert!(
            last <= self.mark.last.index,
            "the log is cut at {last}, behind the snapshot at {}",
            self.mark.last.index
        );
        self.log.cut_to(last);
    }

    pub(super) fn on_snapshot_offer(&mut self, from: MemberId, mark: SnapshotMark) {
        self.hear_leader(from);
        if self.has_no_use_for(&mark) {
            return self.send_durable(from, Body::Appended { matched: self.commit });
        }
        if !self.fetching {
            self.fetching = true;
            self.fetch = Some(Fetch { from, mark });
        }
    }

    /// Whether the log holds all that the snapshot does; then that much of it is committed.
    fn has_no_use_for(&mut self, mark: &SnapshotMark) -> bool {
        if self.log.contains(mark.last) {
            self.learn_commit(mark.last.index);
        }
        mark.last.index <= self.commit
    }

    /// The fetch that an output asked for failed; the next offer starts another.
    pub fn snapshot_failed(&mut self) {
        self.fetching = false;
    }

    /// A fetched snapshot is whole, verified and durable beside the state in use. Returns whether it is wanted: then the next output installs it; otherwise
    /// it is to be thrown away.
    pub fn snapshot_fetched(&mut self, mark: SnapshotMark) -> bool {
        self.fetching = false;
        // A leader has everything that is committed, and a candidate may soon be one; whoever leads next offers again.
        if !matches!(self.state, State::Follower(_)) || self.has_no_use_for(&mark) {
            return false;
        }
        self.log.reset_to(mark.last);
        self.members = History::new(mark.last.index, mark.members.clone());
        self.commit = mark.last.index;
        self.given_out = mark.last.index;
        self.mark = mark.clone();
        self.install = Some(mark);
        self.installed_in = self.output_last + 1;
        if let Some(leader) = self.state.leader() {
            self.send_durable(leader, Body::Appended { matched: self.commit });
        }
        true
    }
}
