//! What a replicated role supplies: how its leader turns a command into row changes.

use bytes::Bytes;
use ozone_common::Error;
use ozone_kvstore::{Batch, Read};

/// What the leader settled for a command before executing it. Part of the command's inputs; never read from a clock inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// UTC milliseconds; never smaller than that of any command before it in the log, whoever led.
    pub now_ms: u64,
    /// The leader's term.
    pub term: u64,
    /// Number of this command: 1, 2, 3, … over the life of the group, without reuse; a source of ids and generations.
    pub sequence: u64,
}

/// What a command does.
#[derive(Debug)]
pub struct Effects<H> {
    /// Row changes, applied by every member in one batch. Empty for a refusal.
    pub rows: Batch,
    /// The answer: the encoded response, or the error. Kept with the rows, so that a repeat of the call gets the same one.
    pub reply: Result<Bytes, Error>,
    /// Work that became possible (wake a loop). Delivered on the leader after apply; may be lost at any time.
    pub hints: Vec<H>,
}

impl<H> Effects<H> {
    /// A refusal: no rows.
    pub fn refuse(error: Error) -> Self {
        Self { rows: Batch::new(), reply: Err(error), hints: Vec::new() }
    }
    /// Changes with an answer.
    pub fn done(rows: Batch, reply: impl Into<Bytes>) -> Self {
        Self { rows, reply: Ok(reply.into()), hints: Vec::new() }
    }
    /// The same with a hint.
    pub fn with_hint(mut self, hint: H) -> Self {
        self.hints.push(hint);
        self
    }
}

/// The pure part of a role.
///
/// `execute` runs on the leader only, one command at a time, and must be deterministic and total: no clock, no randomness, no
/// I/O besides `view`, no panic on any command; an invalid command is a refusal. `view` is the applied state with the effects of all
/// commands executed before this one, applied or not.
pub trait Executor: Send + 'static {
    /// A settled request.
    type Command: Send + 'static;
    /// See [`Effects::hints`].
    type Hint: Send + 'static;

    /// Decides what `command` does.
    ///
    /// # Errors
    /// Only where `view` cannot be read; the member then stops. A refusal is not an error but an answer.
    fn execute(
        &mut self,
        view: &dyn Read,
        stamp: Stamp,
        command: Self::Command,
    ) -> ozone_kvstore::Result<Effects<Self::Hint>>;
}
