//! Who was sent which delete transaction and who answered: pure bookkeeping, rebuilt after every start.
//!
//! Each node has a cursor into the deletion log; transactions go out in order, a bounded number unanswered. One not answered in time is sent
//! again, for ever. Answers are collected here and a transaction leaves the log in one step once all members answered. Answers may be
//! forgotten (a bound, a restart): the nodes are then asked again and answer again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ozone_common::id::DatanodeId;

/// LIMIT: transactions on their way to one node.
pub const IN_FLIGHT_MAX: usize = 256;
/// LIMIT: transactions of which some members' answers are remembered.
const ANSWERS_MAX: usize = 100_000;
/// After how long without an answer a transaction is sent again.
pub const RETRY_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Node {
    stream: u64,
    /// Everything up to here was looked at.
    cursor: u64,
    /// Sent and not answered, with the time of sending.
    in_flight: BTreeMap<u64, Duration>,
    /// Behind the cursor, to be sent again.
    again: BTreeSet<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct DeleteTracker {
    nodes: BTreeMap<DatanodeId, Node>,
    answers: BTreeMap<u64, BTreeSet<DatanodeId>>,
    /// Answered since they were last looked at.
    fresh: BTreeSet<u64>,
}

/// What to look at for a node.
#[derive(Debug, PartialEq, Eq)]
pub struct Turn {
    /// Transactions to send again.
    pub again: Vec<u64>,
    /// Where to read on in the log.
    pub cursor: u64,
    /// How many may be sent in all.
    pub room: usize,
}

impl DeleteTracker {
    /// Begins a turn of a node. A new stream begins from the front of the log: nothing is known of what the old one carried.
    pub fn begin(&mut self, id: DatanodeId, stream: u64, now: Duration) -> Turn {
        let node = self.nodes.entry(id).or_default();
        if node.stream != stream {
            *node = Node { stream, ..Node::default() };
        }
        let late = |sent: &Duration| now.saturating_sub(*sent) >= RETRY_AFTER;
        let overdue: Vec<u64> = node.in_flight.iter().filter(|(_, sent)| late(sent)).map(|(t, _)| *t).collect();
        for transaction in overdue {
            node.in_flight.remove(&transaction);
            node.again.insert(transaction);
        }
        let room = IN_FLIGHT_MAX.saturating_sub(node.in_flight.len());
        Turn { again: node.again.iter().take(room).copied().collect(), cursor: node.cursor, room }
    }

    /// The node was sent `transaction`.
    pub fn sent(&mut self, id: DatanodeId, transaction: u64, now: Duration) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.again.remove(&transaction);
            node.in_flight.insert(transaction, now);
            node.cursor = node.cursor.max(transaction);
        }
    }

    /// The node has nothing to do for `transaction`.
    pub fn skipped(&mut self, id: DatanodeId, transaction: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.again.remove(&transaction);
            node.cursor = node.cursor.max(transaction);
        }
    }

    /// A node answered durably.
    pub fn answered(&mut self, id: DatanodeId, transaction: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.in_flight.remove(&transaction);
            node.again.remove(&transaction);
        }
        self.answers.entry(transaction).or_default().insert(id);
        self.fresh.insert(transaction);
        while self.answers.len() > ANSWERS_MAX {
            if let Some((forgotten, _)) = self.answers.pop_first() {
                self.fresh.remove(&forgotten);
            }
        }
    }

    /// Transactions answered by someone since the last call.
    pub fn take_fresh(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.fresh)
    }

    /// Some member's answer is missing: it is asked (again), unless it is on its way or still ahead of the node's cursor.
    pub fn ask_again(&mut self, id: DatanodeId, transaction: u64) {
        if let Some(node) = self.nodes.get_mut(&id)
            && transaction <= node.cursor
            && !node.in_flight.contains_key(&transaction)
            && node.again.len() < ANSWERS_MAX
        {
            node.again.insert(transaction);
        }
    }

    /// Who answered `transaction` so far.
    pub fn answers(&self, transaction: u64) -> Vec<DatanodeId> {
        self.answers.get(&transaction).map(|nodes| nodes.iter().copied().collect()).unwrap_or_default()
    }

    /// Transactions with some answers, oldest first.
    pub fn partly_answered(&self, most: usize) -> Vec<u64> {
        self.answers.keys().take(most).copied().collect()
    }

    /// A transaction left the log.
    pub fn finished(&mut self, transaction: u64) {
        self.answers.remove(&transaction);
    }

    /// Sent and not answered, over all nodes.
    pub fn in_flight(&self) -> usize {
        self.nodes.values().map(|node| node.in_flight.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> DatanodeId {
        DatanodeId::from_bytes([n; 16])
    }
    fn at(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn what_is_not_answered_is_sent_again_and_a_new_stream_starts_over() {
        let mut tracker = DeleteTracker::default();
        assert_eq!(tracker.begin(id(1), 1, at(0)), Turn { again: vec![], cursor: 0, room: IN_FLIGHT_MAX });
        for transaction in [1, 2, 3] {
            tracker.sent(id(1), transaction, at(0));
        }
        tracker.skipped(id(1), 4);
        tracker.answered(id(1), 2);
        assert_eq!(tracker.take_fresh(), BTreeSet::from([2]));
        assert!(tracker.take_fresh().is_empty());
        assert_eq!(tracker.begin(id(1), 1, at(29)), Turn { again: vec![], cursor: 4, room: IN_FLIGHT_MAX - 2 });
        assert_eq!(tracker.begin(id(1), 1, at(30)).again, [1, 3]);
        tracker.sent(id(1), 1, at(30));
        assert_eq!(tracker.begin(id(1), 1, at(31)).again, [3]);
        assert_eq!(tracker.begin(id(1), 2, at(32)), Turn { again: vec![], cursor: 0, room: IN_FLIGHT_MAX });
        assert_eq!(tracker.answers(2), [id(1)], "answers outlive streams");
    }

    #[test]
    fn a_forgotten_answer_is_asked_for_again() {
        let mut tracker = DeleteTracker::default();
        tracker.begin(id(1), 1, at(0));
        tracker.ask_again(id(1), 5);
        assert!(tracker.begin(id(1), 1, at(0)).again.is_empty(), "still ahead of its cursor");
        tracker.sent(id(1), 5, at(0));
        tracker.ask_again(id(1), 5);
        assert!(tracker.begin(id(1), 1, at(0)).again.is_empty(), "on its way");
        tracker.answered(id(1), 5);
        tracker.finished(5);
        tracker.ask_again(id(1), 5);
        assert_eq!(tracker.begin(id(1), 1, at(0)).again, [5]);
    }

    #[test]
    fn both_bounds_hold() {
        let mut tracker = DeleteTracker::default();
        tracker.begin(id(1), 1, at(0));
        for transaction in 1..=IN_FLIGHT_MAX as u64 {
            tracker.sent(id(1), transaction, at(0));
        }
        assert_eq!(tracker.begin(id(1), 1, at(1)).room, 0);
        assert_eq!(tracker.in_flight(), IN_FLIGHT_MAX);
        for transaction in 1..=ANSWERS_MAX as u64 + 10 {
            tracker.answered(id(2), transaction);
        }
        assert_eq!(tracker.partly_answered(2), [11, 12]);
    }
}
