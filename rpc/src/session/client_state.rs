//! The calls of a session that are not answered yet: pure bookkeeping, no I/O.
//!
//! Calls lie in `slots` by sequence; `base`, the first slot's number, is the lowest unanswered sequence. `unsent` names
//! those that the current stream has not carried yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::Error;
use ozone_common::id::ClientId;
use ozone_proto::rpc::v1::{Call, CallBatch};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::BATCH_BYTES;

pub(crate) type Answer = oneshot::Sender<Result<Bytes, Error>>;

/// A call that nobody has answered yet.
pub(crate) struct Pending {
    pub request: Bytes,
    pub request_id: Arc<str>,
    pub user: Option<Arc<str>>,
    pub deadline: Instant,
    pub answer: Answer,
    /// How many streams carried it: from the first on it may have had its effect.
    pub sends: u32,
}

pub(crate) struct State {
    pub client: ClientId,
    base: u64,
    slots: VecDeque<Option<Pending>>,
    unsent: VecDeque<u64>,
    count: usize,
    /// Number of the latest stream; older ones end.
    pub stream: u64,
    /// Whether it may carry calls: both ends have proven themselves, and the session has not expired.
    pub open: bool,
    pub writer: Option<Waker>,
    pub last_error: Option<Error>,
}

impl State {
    pub(crate) fn new(client: ClientId) -> Self {
        Self {
            client,
            base: 1,
            slots: VecDeque::new(),
            unsent: VecDeque::new(),
            count: 0,
            stream: 0,
            open: false,
            writer: None,
            last_error: None,
        }
    }

    /// Distance from the lowest unanswered sequence to the next one.
    pub(crate) fn span(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.count == 0
    }

    /// Enters a call and gives it its sequence.
    pub(crate) fn push(&mut self, pending: Pending) -> u64 {
        let sequence = self.base + self.slots.len() as u64;
        self.slots.push_back(Some(pending));
        self.unsent.push_back(sequence);
        self.count += 1;
        sequence
    }

    fn slot(&mut self, sequence: u64) -> Option<&mut Option<Pending>> {
        let index = usize::try_from(sequence.checked_sub(self.base)?).ok()?;
        self.slots.get_mut(index)
    }

    /// Takes a call out: it was answered, or nobody waits for it any more.
    pub(crate) fn remove(&mut self, sequence: u64) -> Option<Pending> {
        let pending = self.slot(sequence)?.take()?;
        self.count -= 1;
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.base += 1;
        }
        Some(pending)
    }

    /// A new stream carries everything unanswered again.
    pub(crate) fn requeue_all(&mut self) {
        self.unsent.clear();
        let base = self.base;
        self.unsent.extend((base..).zip(&self.slots).filter(|(_, slot)| slot.is_some()).map(|(sequence, _)| sequence));
    }

    /// Everything unanswered, taken out.
    pub(crate) fn drain(&mut self) -> Vec<Pending> {
        self.unsent.clear();
        self.count = 0;
        self.base += self.slots.len() as u64;
        self.slots.drain(..).flatten().collect()
    }

    /// Starts over as another client; what was in flight is taken out. Sequences go on, so that no caller's handle can
    /// name a later call.
    pub(crate) fn renew(&mut self, client: ClientId) -> Vec<Pending> {
        self.client = client;
        self.drain()
    }

    /// Whether a call that some stream carried is unanswered.
    pub(crate) fn any_sent(&self) -> bool {
        self.slots.iter().flatten().any(|pending| pending.sends > 0)
    }

    /// The next batch to send, if there is anything; its size is bounded by [`BATCH_BYTES`] and one call.
    pub(crate) fn next_batch(&mut self, now: Instant) -> Option<CallBatch> {
        let mut calls = Vec::with_capacity(self.unsent.len().min(256));
        let mut bytes = 0;
        while bytes < BATCH_BYTES
            && let Some(sequence) = self.unsent.pop_front()
        {
            let Some(Some(pending)) = self.slot(sequence) else { continue };
            pending.sends = pending.sends.saturating_add(1);
            let left = pending.deadline.saturating_duration_since(now).max(Duration::from_millis(1));
            bytes += pending.request.len() + pending.request_id.len() + 32;
            calls.push(Call {
                sequence,
                deadline_ms: u32::try_from(left.as_millis()).unwrap_or(u32::MAX),
                request_id: pending.request_id.as_ref().to_owned(),
                user: pending.user.as_deref().unwrap_or_default().to_owned(),
                request: pending.request.clone(),
            });
        }
        (!calls.is_empty()).then_some(CallBatch { hello: None, lowest_unanswered: self.base, calls })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn pending() -> Pending {
        Pending {
            request: Bytes::from_static(b"r"),
            request_id: "id".into(),
            user: None,
            deadline: Instant::now() + Duration::from_secs(1),
            answer: oneshot::channel().0,
            sends: 0,
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Remove(u64),
        Send,
        Reconnect,
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Against a set of sequences: nothing is lost, nothing sent twice on one stream, the lowest is the lowest.
        #[test]
        fn behaves_as_a_set_of_sequences(steps in prop::collection::vec(prop_oneof![
            4 => Just(Step::Push), 3 => (1..40_u64).prop_map(Step::Remove), 2 => Just(Step::Send), 1 => Just(Step::Reconnect),
        ], 1..80)) {
            let mut state = State::new(ClientId::from_bytes([1; 16]));
            let (mut live, mut unsent, mut next) = (BTreeSet::new(), BTreeSet::new(), 1);
            for step in steps {
                match step {
                    Step::Push => {
                        prop_assert_eq!(state.push(pending()), next);
                        live.insert(next);
                        unsent.insert(next);
                        next += 1;
                    }
                    Step::Remove(sequence) => {
                        prop_assert_eq!(state.remove(sequence).is_some(), live.remove(&sequence));
                        unsent.remove(&sequence);
                    }
                    Step::Send => {
                        let batch = state.next_batch(Instant::now());
                        let sent: Vec<u64> = batch.iter().flat_map(|b| &b.calls).map(|c| c.sequence).collect();
                        prop_assert_eq!(sent, unsent.iter().copied().collect::<Vec<_>>());
                        if let Some(batch) = batch {
                            prop_assert_eq!(batch.lowest_unanswered, *live.first().unwrap());
                        }
                        unsent.clear();
                    }
                    Step::Reconnect => {
                        state.requeue_all();
                        unsent = live.clone();
                    }
                }
                prop_assert_eq!(state.is_idle(), live.is_empty());
            }
        }
    }
}
