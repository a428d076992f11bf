//! What a leader knows of one follower, and how fast it sends to it.
//!
//! ```text
//!            refused, or silent too long
//!   Probe <------------------------------- Stream
//!     |  ------------------------------->    |
//!     |          appended                    |  needs entries that are cut off
//!     +------------> Snapshot <--------------+
//!           appended: back to Stream
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use super::id::Index;

/// How a leader sends to a follower.
#[derive(Debug)]
pub(super) enum Flow {
    /// One message at a time, until one fits.
    Probe {
        /// It is under way, or was lost: the next one goes with the next heartbeat's answer.
        asked: bool,
    },
    /// Messages one after the other, without waiting for answers.
    Stream {
        /// The last entry of each message under way.
        ends: VecDeque<Index>,
        /// Since when nothing was acknowledged while something was under way.
        waiting_since: Duration,
    },
    /// It fetches a snapshot, which is offered again with each heartbeat.
    Snapshot,
}

/// A follower in its leader's eyes. `matched < next`.
#[derive(Debug)]
pub(super) struct Progress {
    /// Up to here it has the leader's log, persisted.
    pub(super) matched: Index,
    /// The next entry to send.
    pub(super) next: Index,
    pub(super) flow: Flow,
    /// The commit index it was last told.
    pub(super) commit_told: Index,
    /// The latest read round it answered.
    pub(super) round: u64,
    /// Heard from since the last check of the quorum.
    pub(super) heard: bool,
}

impl Progress {
    /// Nothing is known yet; `last` is the leader's last entry.
    pub(super) fn unknown(last: Index) -> Self {
        Self {
            matched: Index::ZERO,
            next: last.next(),
            flow: Flow::Probe { asked: false },
            commit_told: Index::ZERO,
            round: 0,
            heard: true,
        }
    }

    /// Begins again from what is known to be there.
    pub(super) fn probe_from(&mut self, next: Index) {
        self.next = next.max(self.matched.next());
        self.flow = Flow::Probe { asked: false };
    }

    /// Whether a message may be sent that begins with `next`.
    pub(super) fn may_send(&self, inflight_max: usize) -> bool {
        match &self.flow {
            Flow::Probe { asked } => !asked,
            Flow::Stream { ends, .. } => ends.len() < inflight_max,
            Flow::Snapshot => false,
        }
    }

    /// A message up to `end` was sent.
    pub(super) fn sent(&mut self, end: Index, now: Duration) {
        match &mut self.flow {
            Flow::Probe { asked } => *asked = true,
            Flow::Stream { ends, waiting_since } => {
                if ends.is_empty() {
                    *waiting_since = now;
                }
                ends.push_back(end);
                self.next = end.next();
            }
            Flow::Snapshot => {}
        }
    }

    /// It has everything up to `matched`.
    pub(super) fn appended(&mut self, matched: Index, now: Duration, cut: Index) {
        self.matched = self.matched.max(matched);
        self.next = self.next.max(self.matched.next());
        match &mut self.flow {
            Flow::Stream { ends, waiting_since } => {
                while ends.front().is_some_and(|end| *end <= matched) {
                    ends.pop_front();
                    *waiting_since = now;
                }
            }
            Flow::Snapshot if self.matched < cut => {}
            Flow::Probe { .. } | Flow::Snapshot => {
                self.next = self.matched.next();
                self.flow = Flow::Stream { ends: VecDeque::new(), waiting_since: now };
            }
        }
    }

    /// It lacks the entry at `at`; `agreed` is the last place where it may agree. Late answers are passed over.
    pub(super) fn refused(&mut self, at: Index, agreed: Index) {
        let expected = match &self.flow {
            Flow::Probe { .. } => at == self.next.previous(),
            Flow::Stream { .. } => at > self.matched,
            Flow::Snapshot => false,
        };
        if expected {
            self.probe_from(agreed.next().min(at));
        }
    }

    /// It answered a heartbeat: it lives, so what is unanswered for longer than `patience` was lost.
    pub(super) fn answered(&mut self, now: Duration, patience: Duration) {
        match &mut self.flow {
            Flow::Probe { asked } => *asked = false,
            Flow::Stream { ends, waiting_since } => {
                if !ends.is_empty() && now.saturating_sub(*waiting_since) > patience {
                    self.probe_from(self.matched.next());
                }
            }
            Flow::Snapshot => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);
    const LATER: Duration = Duration::from_secs(2);
    const PATIENCE: Duration = Duration::from_millis(300);

    fn streaming(matched: u64, last: u64) -> Progress {
        let mut progress = Progress::unknown(Index(last));
        progress.appended(Index(matched), NOW, Index::ZERO);
        progress
    }

    #[test]
    fn a_stream_is_bounded_and_goes_on_with_each_answer() {
        let mut progress = streaming(3, 3);
        for end in [5, 7] {
            assert!(progress.may_send(2));
            progress.sent(Index(end), NOW);
        }
        assert!(!progress.may_send(2));
        assert_eq!(progress.next, Index(8));
        progress.appended(Index(5), NOW, Index::ZERO);
        assert!(progress.may_send(2));
        assert_eq!((progress.matched, progress.next), (Index(5), Index(8)));
    }

    #[test]
    fn lost_messages_are_sent_again_after_a_while() {
        let mut progress = streaming(3, 3);
        progress.sent(Index(5), NOW);
        progress.answered(NOW, PATIENCE);
        assert_eq!(progress.next, Index(6));
        progress.answered(LATER, PATIENCE);
        assert!(matches!(progress.flow, Flow::Probe { asked: false }));
        assert_eq!(progress.next, Index(4));
    }

    #[test]
    fn a_probe_goes_back_where_they_may_agree_but_never_below_what_matched() {
        let mut progress = Progress::unknown(Index(9));
        progress.sent(Index(9), NOW);
        assert!(!progress.may_send(2));
        progress.refused(Index(8), Index(4));
        assert_eq!(progress.next, Index(10), "an answer to another question");
        progress.refused(Index(9), Index(4));
        assert_eq!(progress.next, Index(5));
        assert!(progress.may_send(2));
        let mut progress = streaming(6, 9);
        progress.refused(Index(6), Index(2));
        assert!(matches!(progress.flow, Flow::Stream { .. }), "late");
        progress.refused(Index(9), Index(2));
        assert_eq!(progress.next, Index(7));
    }

    #[test]
    fn a_follower_with_a_snapshot_streams_on_from_it() {
        let mut progress = streaming(3, 3);
        progress.flow = Flow::Snapshot;
        progress.appended(Index(3), NOW, Index(9));
        assert!(matches!(progress.flow, Flow::Snapshot));
        progress.appended(Index(9), NOW, Index(9));
        assert!(matches!(progress.flow, Flow::Stream { .. }));
        assert_eq!(progress.next, Index(10));
    }
}
