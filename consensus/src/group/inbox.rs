//! What waits for a member's thread. One lock, taken once per arrival and once per turn.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::{Error, ErrorCode};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::snapshots::Taken;
use crate::call::Call;
use crate::core::Message;

/// LIMIT: messages of other members; more are lost, which they can be.
const MESSAGES_MAX: usize = 1024;

/// A command on its way in.
pub(super) struct Proposal<C> {
    pub call: Option<Call>,
    pub command: C,
    pub answer: oneshot::Sender<Result<Bytes, Error>>,
}

/// Everything that waits.
pub(super) struct Arrived<C> {
    pub proposals: VecDeque<Proposal<C>>,
    pub reads: Vec<oneshot::Sender<Result<(), Error>>>,
    pub messages: Vec<Message>,
    pub snapshot: Option<Taken>,
    pub end: Option<End>,
}

/// How the thread is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Answers what waits, flushes.
    Close,
    /// Nobody is there any more: as a crash would.
    Abandoned,
}

impl<C> Default for Arrived<C> {
    fn default() -> Self {
        Self { proposals: VecDeque::new(), reads: Vec::new(), messages: Vec::new(), snapshot: None, end: None }
    }
}

impl<C> Arrived<C> {
    fn is_empty(&self) -> bool {
        self.proposals.is_empty()
            && self.reads.is_empty()
            && self.messages.is_empty()
            && self.snapshot.is_none()
            && self.end.is_none()
    }
}

/// See the module.
pub(super) struct Inbox<C> {
    waiting: Mutex<Waiting<C>>,
    something: Condvar,
    queue_max: usize,
}

struct Waiting<C> {
    arrived: Arrived<C>,
    /// Why nothing is taken any more.
    refusal: Option<Error>,
}

impl<C> Inbox<C> {
    pub fn new(queue_max: usize) -> Self {
        let waiting = Waiting { arrived: Arrived::default(), refusal: None };
        Self { waiting: Mutex::new(waiting), something: Condvar::new(), queue_max }
    }

    fn enter(&self, add: impl FnOnce(&mut Arrived<C>) -> Result<(), Error>) -> Result<(), Error> {
        let mut waiting = self.waiting.lock();
        if let Some(refusal) = &waiting.refusal {
            return Err(refusal.clone());
        }
        add(&mut waiting.arrived)?;
        drop(waiting);
        self.something.notify_one();
        Ok(())
    }

    pub fn propose(&self, proposal: Proposal<C>) -> Result<(), Error> {
        let max = self.queue_max;
        self.enter(|arrived| {
            if arrived.proposals.len() >= max {
                return Err(Error::new(ErrorCode::Overloaded, format!("{max} changes wait for the log already")));
            }
            arrived.proposals.push_back(proposal);
            Ok(())
        })
    }

    pub fn read(&self, answer: oneshot::Sender<Result<(), Error>>) -> Result<(), Error> {
        let max = self.queue_max;
        self.enter(|arrived| {
            if arrived.reads.len() >= max {
                return Err(Error::new(ErrorCode::Overloaded, format!("{max} reads wait for the log already")));
            }
            arrived.reads.push(answer);
            Ok(())
        })
    }

    pub fn deliver(&self, message: Message) {
        let entered = self.enter(|arrived| {
            if arrived.messages.len() < MESSAGES_MAX {
                arrived.messages.push(message);
            }
            Ok(())
        });
        if entered.is_err() {
            tracing::debug!("a message for a member that stopped");
        }
    }

    pub fn snapshot(&self, taken: Taken) {
        self.waiting.lock().arrived.snapshot = Some(taken);
        self.something.notify_one();
    }

    pub fn end(&self, end: End) {
        self.waiting.lock().arrived.end.get_or_insert(end);
        self.something.notify_one();
    }

    /// Takes everything; waits for something where there is nothing and `wait` says so, at most so long.
    pub fn take(&self, wait: bool, at_most: Option<Duration>) -> Arrived<C> {
        let mut waiting = self.waiting.lock();
        if wait {
            let nothing = |waiting: &mut Waiting<C>| waiting.arrived.is_empty();
            match at_most {
                Some(at_most) => {
                    self.something.wait_while_for(&mut waiting, nothing, at_most);
                }
                None => self.something.wait_while(&mut waiting, nothing),
            }
        }
        std::mem::take(&mut waiting.arrived)
    }

    /// Takes nothing from now on; what waits is refused as well. The first reason stays.
    pub fn shut(&self, refusal: &Error) {
        let (arrived, refusal) = {
            let mut waiting = self.waiting.lock();
            let refusal = waiting.refusal.get_or_insert_with(|| refusal.clone()).clone();
            (std::mem::take(&mut waiting.arrived), refusal)
        };
        // Nobody waits where the other end is gone.
        for proposal in arrived.proposals {
            let _gone = proposal.answer.send(Err(refusal.clone()));
        }
        for read in arrived.reads {
            let _gone = read.send(Err(refusal.clone()));
        }
    }
}
