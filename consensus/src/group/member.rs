//! One member of a group: the protocol, its log, its store. Everything here belongs to one thread.
//!
//! ```text
//!  commands ─▶ execute on store + overlay ─▶ one entry ─▶ one append, one fdatasync ─▶ committed ─▶ one store batch ─▶ answers
//!  without rows: wait until what they saw is applied and this member still leads ─▶ answers
//! ```
//! - A turn takes everything that waits. What comes while the disk syncs makes the next batch.
//! - Success is answered only after the rows are applied and were not void. A refusal waits for the entries it saw.
//! - The overlay holds exactly the rows of `pending`; both die with leadership.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::env::{Clock, FolderLock};
use ozone_common::{Error, ErrorCode, RetryClass};
use ozone_kvstore::{Batch, Store, Table};
use tokio::sync::oneshot;

use super::batch_entry::{self, Fence};
use super::inbox::{Arrived, End, Inbox, Proposal};
use super::metrics::Metrics;
use super::position::Position;
use super::sessions::{self, Admission, Sessions};
use super::snapshots::{Folders, Taken};
use super::{Limits, Standing, StopReason};
use crate::core::{Entry, EntryId, Index, Payload, Raft, ReadDone, ReadId, ReadLog, Role, Term};
use crate::executor::{Executor, Stamp};
use crate::log_store::{LogError, LogStore};
use crate::overlay::{Overlay, View};
use crate::transport::Transport;

/// LIMIT: bytes of entries applied in one store batch.
const APPLY_BYTES_MAX: usize = 4 << 20;
/// LIMIT: bytes executed and not yet applied; beyond it commands wait. Below the core's own bound, which would refuse them after they were executed.
const PENDING_BYTES_MAX: usize = 32 << 20;

/// How a member takes its snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keeper {
    /// On a thread of its own.
    Thread,
    /// In its turn: for tests, where nothing may run beside.
    #[cfg(test)]
    InTurn,
}

/// Who waits for a command's answer.
struct Waiter {
    to: oneshot::Sender<Result<Bytes, Error>>,
    reply: Result<Bytes, Error>,
}

impl Waiter {
    // Nobody waits where the other end is gone: its caller's time ran out.
    fn answer(self) {
        let _gone = self.to.send(self.reply);
    }
    fn fail(self, error: &Error) {
        let _gone = self.to.send(Err(error.clone()));
    }
}

/// An entry of this leader that is not applied yet.
struct Pending<H> {
    id: EntryId,
    fence: Fence,
    /// The digest after it.
    digest: u64,
    batch: Batch,
    bytes: usize,
    waiters: Vec<Waiter>,
    hints: Vec<H>,
}

/// Those who wait for a read barrier.
#[derive(Default)]
struct Barrier {
    /// At least this must be applied.
    after: Index,
    reads: Vec<oneshot::Sender<Result<(), Error>>>,
    waiters: Vec<Waiter>,
}

impl Barrier {
    fn finish(self, result: Result<(), Error>) {
        for read in self.reads {
            let _gone = read.send(result.clone());
        }
        for waiter in self.waiters {
            match &result {
                Ok(()) => waiter.answer(),
                Err(error) => waiter.fail(error),
            }
        }
    }
}

/// What a leader knows of its own effects, applied or not.
struct Leading {
    term: Term,
    /// It executes once this is applied.
    after: Index,
    /// Present from then on.
    state: Option<LeaderState>,
}

struct LeaderState {
    sessions: Sessions,
    sequence: u64,
    now_ms: u64,
    digest: u64,
    /// Its last entry with rows.
    last: Index,
}

/// The core reads entries that left its memory from the log.
struct FromLog<'a>(&'a LogStore);

impl ReadLog for FromLog<'_> {
    type Error = LogError;

    fn read(&self, from: Index, to: Index, bytes_max: usize) -> Result<Vec<Entry>, LogError> {
        self.0.read(from, to, bytes_max)
    }
}

/// What a member is made of.
pub(super) struct Parts<E: Executor> {
    pub limits: Limits,
    pub clock: Arc<dyn Clock>,
    pub executor: E,
    pub on_hint: Box<dyn Fn(E::Hint) + Send>,
    pub transport: Box<dyn Transport>,
    pub raft: Raft,
    pub log: LogStore,
    pub store: Arc<dyn Store>,
    pub tables: Vec<Table>,
    pub position: Position,
    pub folders: Folders,
    pub keeper: Keeper,
    pub inbox: Arc<Inbox<E::Command>>,
    pub standing: Arc<Standing>,
    pub metrics: Metrics,
    pub name: &'static str,
    /// Keeps others out of the folder. Last, so that everything else is closed before.
    pub _lock: FolderLock,
}

/// See the module.
pub(super) struct Member<E: Executor> {
    parts: Parts<E>,
    overlay: Overlay,
    leading: Option<Leading>,
    commands: VecDeque<Proposal<E::Command>>,
    pending: VecDeque<Pending<E::Hint>>,
    pending_bytes: usize,
    barriers: BTreeMap<ReadId, Barrier>,
    /// Granted, in the order of their indexes' arrival: to be applied first.
    granted: Vec<(Index, Barrier)>,
    /// Bytes appended since the last snapshot was begun.
    log_bytes: u64,
    snapshot_running: bool,
    snapshot_thread: Option<JoinHandle<()>>,
}

impl<E: Executor> Drop for Member<E> {
    /// Nothing uses the store once the member is gone.
    fn drop(&mut self) {
        if let Some(thread) = self.snapshot_thread.take()
            && thread.join().is_err()
        {
            tracing::error!(group = self.parts.name, "the thread that took a snapshot panicked");
        }
    }
}

impl<E: Executor> Member<E> {
    pub fn new(parts: Parts<E>) -> Self {
        let log_bytes = parts.log.disk_bytes();
        Self {
            parts,
            overlay: Overlay::default(),
            leading: None,
            commands: VecDeque::new(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            barriers: BTreeMap::new(),
            granted: Vec::new(),
            log_bytes,
            snapshot_running: false,
            snapshot_thread: None,
        }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.parts.store
    }

    pub fn inbox(&self) -> &Arc<Inbox<E::Command>> {
        &self.parts.inbox
    }

    pub fn standing(&self) -> &Arc<Standing> {
        &self.parts.standing
    }

    /// Runs until it is told to end, or cannot go on.
    pub fn run(&mut self) -> Result<(), StopReason> {
        loop {
            let arrived = self.wait();
            let end = arrived.end;
            if end == Some(End::Abandoned) {
                return Ok(());
            }
            self.turn(arrived)?;
            if end == Some(End::Close) {
                return self.close();
            }
        }
    }

    fn wait(&self) -> Arrived<E::Command> {
        // Commands held back by a bound go on as soon as what is pending is applied, which a turn of a group of one does; of others it
        // comes with a message.
        let now = self.parts.clock.boot();
        let due = self.parts.raft.next_due().map(|due| due.saturating_sub(now));
        self.parts.inbox.take(!self.may_execute(), due)
    }

    /// Whether there is a command that can be executed now.
    fn may_execute(&self) -> bool {
        let ready = self.leading.as_ref().is_some_and(|leading| leading.state.is_some());
        ready && !self.commands.is_empty() && self.pending_bytes < PENDING_BYTES_MAX
    }

    /// Answers what it can, then makes everything durable, so that the next start replays nothing.
    fn close(&mut self) -> Result<(), StopReason> {
        while self.may_execute() {
            self.turn(Arrived::default())?;
        }
        Ok(self.parts.store.flush()?)
    }

    /// Takes what arrived and does all that can be done without waiting.
    pub fn turn(&mut self, arrived: Arrived<E::Command>) -> Result<(), StopReason> {
        self.parts.raft.tick(self.parts.clock.boot());
        for message in arrived.messages {
            self.parts.raft.step(message);
        }
        self.commands.extend(arrived.proposals);
        self.refuse_beyond_bound();
        if !arrived.reads.is_empty() {
            self.barrier(Barrier { reads: arrived.reads, ..Barrier::default() });
        }
        // Messages may have brought or ended leadership, and applied what execution waits for; where all was applied before, nothing
        // else would say that execution may begin.
        self.carry_out()?;
        self.become_ready()?;
        if self.may_execute() {
            self.execute()?;
            self.carry_out()?;
        }
        if self.leading.is_none() {
            self.refuse_commands();
        }
        if let Some(taken) = arrived.snapshot {
            self.snapshot_taken(taken)?;
        }
        self.take_snapshot()?;
        self.tell();
        Ok(())
    }

    /// Asks for a barrier on behalf of those who wait.
    fn barrier(&mut self, barrier: Barrier) {
        match self.parts.raft.read_barrier() {
            Ok(id) => {
                self.barriers.insert(id, barrier);
            }
            Err(crate::core::Refused::Reads { max }) => {
                let text = format!("{max} reads wait for a quorum already");
                barrier.finish(Err(Error::new(ErrorCode::Overloaded, text)));
            }
            Err(_) => barrier.finish(Err(self.not_leader())),
        }
    }

    /// Executes waiting commands and proposes their rows as one entry.
    fn execute(&mut self) -> Result<(), StopReason> {
        let limits = self.parts.limits;
        match self.parts.log.reserve(limits.batch_bytes + limits.batch_slack_bytes, 1) {
            Ok(()) => {}
            Err(LogError::Full { path }) => {
                let text = format!("no space left for the log in `{}`", path.display());
                let error = Error::new(ErrorCode::DiskFull, text).with_retry(RetryClass::Same);
                self.commands.drain(..).for_each(|proposal| {
                    let _gone = proposal.answer.send(Err(error.clone()));
                });
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let Some(Leading { term, state: Some(state), .. }) = &mut self.leading else { return Ok(()) };
        let started = self.parts.clock.boot();
        let number = self.parts.raft.last().index.next();
        let first_sequence = state.sequence + 1;
        let digest = state.digest;
        let (mut batch, mut bytes) = (Batch::new(), 0);
        let (mut waiters, mut hints, mut unchanged) = (Vec::new(), Vec::new(), Vec::new());
        while bytes < limits.batch_bytes && waiters.len() < limits.batch_commands {
            let Some(Proposal { call, command, answer }) = self.commands.pop_front() else { break };
            let now_ms = self.parts.clock.now_ms().max(state.now_ms);
            if let Some(call) = &call {
                match state.sessions.admit(call, now_ms) {
                    Admission::New => {}
                    Admission::Repeat(key) => {
                        let view = View::new(&*self.parts.store, &self.overlay);
                        unchanged.push(Waiter { to: answer, reply: sessions::answer(&view, &key)? });
                        self.parts.metrics.repeats.increment(1);
                        continue;
                    }
                    Admission::Refuse(error) => {
                        let _gone = answer.send(Err(error));
                        continue;
                    }
                }
            }
            let stamp = Stamp { now_ms, term: term.0, sequence: state.sequence + 1 };
            let view = View::new(&*self.parts.store, &self.overlay);
            let effects = self.parts.executor.execute(&view, stamp, command)?;
            let waiter = Waiter { to: answer, reply: effects.reply };
            if effects.rows.is_empty() {
                unchanged.push(waiter);
                continue;
            }
            let mut rows = effects.rows;
            if let Some(call) = &call {
                state.sessions.record(call, now_ms, &waiter.reply, &mut rows);
            }
            state.sequence += 1;
            state.now_ms = now_ms;
            self.overlay.add(number.0, &rows);
            bytes += rows.ops.iter().map(ozone_kvstore::Op::size).sum::<usize>();
            batch.extend(rows);
            waiters.push(waiter);
            hints.extend(effects.hints);
        }
        let after = if waiters.is_empty() { state.last } else { number };
        self.parts.metrics.unchanged.increment(unchanged.len() as u64);
        self.parts.metrics.queue.set(self.commands.len() as f64);
        if !waiters.is_empty() {
            let commands = waiters.len() as u64;
            let fence = Fence { term: *term, first_sequence, commands, now_ms: state.now_ms, digest };
            let entry = batch_entry::encode(&fence, &batch);
            let digest = batch_entry::digest_after(digest, &entry);
            state.digest = digest;
            state.last = number;
            self.parts.metrics.changes.increment(commands);
            self.parts.metrics.batch_commands.record(commands as f64);
            self.parts.metrics.batch_bytes.record(entry.len() as f64);
            self.parts.metrics.execute_seconds.record(self.since(started));
            let bytes = entry.len();
            self.log_bytes += bytes as u64;
            match self.parts.raft.propose(entry) {
                Ok(id) => {
                    assert_eq!(id.index, number, "nothing else is proposed in between");
                    self.pending_bytes += bytes;
                    self.pending.push_back(Pending { id, fence, digest, batch, bytes, waiters, hints });
                }
                // Leadership is being handed over: what was just executed never was.
                Err(refused) => {
                    let error = Error::new(ErrorCode::NotLeader, refused.to_string());
                    waiters.into_iter().chain(unchanged).for_each(|waiter| waiter.fail(&error));
                    self.lead_again_later();
                    return Ok(());
                }
            }
        }
        if !unchanged.is_empty() {
            self.barrier(Barrier { after, waiters: unchanged, ..Barrier::default() });
        }
        Ok(())
    }

    /// Does what the core asks for until it asks for nothing more.
    fn carry_out(&mut self) -> Result<(), StopReason> {
        loop {
            let output = self.parts.raft.output(&FromLog(&self.parts.log))?;
            let nothing = output.is_empty();
            let must_persist = output.must_persist();
            for envelope in output.messages {
                self.parts.transport.send(envelope);
            }
            if must_persist {
                let started = self.parts.clock.boot();
                if let Some(install) = output.install {
                    return Err(StopReason::Invariant(format!("snapshot {} was never fetched", install.last)));
                }
                self.parts.log.append(output.hard_state, &output.append)?;
                self.parts.metrics.append_seconds.record(self.since(started));
                self.parts.raft.persisted(output.number);
            }
            if output.fetch.is_some() {
                // Until members can pass snapshots to each other, the leader's next offer finds us here again.
                self.parts.raft.snapshot_failed();
            }
            if let Some(role) = output.role {
                self.take_role(role)?;
            }
            for ReadDone { id, index } in output.reads {
                let Some(barrier) = self.barriers.remove(&id) else { continue };
                match index {
                    Some(index) => self.granted.push((index.max(barrier.after), barrier)),
                    None => barrier.finish(Err(self.not_leader())),
                }
            }
            let applied = self.apply()?;
            self.finish_reads();
            if nothing && !applied {
                return Ok(());
            }
        }
    }

    fn take_role(&mut self, role: Role) -> Result<(), StopReason> {
        match (role, &self.leading) {
            (Role::Leader { term, .. }, Some(leading)) if leading.term == term => return Ok(()),
            _ => self.stop_leading(),
        }
        if let Role::Leader { term, noop } = role {
            tracing::info!(group = self.parts.name, %term, "leads");
            self.leading = Some(Leading { term, after: noop, state: None });
        } else {
            tracing::info!(group = self.parts.name, ?role, "does not lead");
        }
        Ok(())
    }

    /// Entries of this leader may or may not get committed by the next one.
    fn stop_leading(&mut self) {
        let error = Error::new(ErrorCode::Unavailable, "leadership was lost before the change was applied");
        for pending in self.pending.drain(..) {
            pending.waiters.into_iter().for_each(|waiter| waiter.fail(&error));
        }
        // What these answers saw may never come about: at its index another leader's entry may be applied.
        for (_, barrier) in self.granted.drain(..) {
            barrier.finish(Err(error.clone()));
        }
        self.pending_bytes = 0;
        self.overlay.clear();
        self.leading = None;
    }

    /// Forgets what it executed last and goes on once everything in the log is applied.
    fn lead_again_later(&mut self) {
        let after = self.parts.raft.last().index;
        self.overlay.clear();
        for pending in &self.pending {
            self.overlay.add(pending.id.index.0, &pending.batch);
        }
        if let Some(leading) = &mut self.leading {
            leading.after = after;
            leading.state = None;
        }
    }

    /// Applies what is committed. Says whether there was anything.
    fn apply(&mut self) -> Result<bool, StopReason> {
        let entries = self.parts.raft.take_committed(APPLY_BYTES_MAX, &FromLog(&self.parts.log))?;
        let Some(last) = entries.last().map(|entry| entry.id.index) else { return Ok(false) };
        let started = self.parts.clock.boot();
        let mut all = Batch::new();
        let mut done = Vec::new();
        for entry in entries {
            if entry.id.index != self.parts.position.index().next() {
                let text = format!("entry {} comes after entry {}", entry.id, self.parts.position.last);
                return Err(StopReason::Invariant(text));
            }
            self.parts.position.last = entry.id;
            match entry.payload {
                Payload::Noop => {}
                Payload::Members(members) => self.parts.position.members = members,
                Payload::Data(bytes) => {
                    let own = self.pending.pop_front_if(|pending| pending.id == entry.id);
                    let (fence, rows, digest) = match own {
                        Some(mut own) => {
                            let executed = (own.fence, std::mem::take(&mut own.batch), own.digest);
                            self.pending_bytes -= own.bytes;
                            done.push(own);
                            executed
                        }
                        None => {
                            let (fence, rows) = batch_entry::decode(&bytes, &self.parts.tables)
                                .map_err(|detail| StopReason::Entry { id: entry.id, detail })?;
                            (fence, rows, batch_entry::digest_after(fence.digest, &bytes))
                        }
                    };
                    if self.counts(entry.id, &fence)? {
                        self.parts.position.sequence += fence.commands;
                        self.parts.position.now_ms = fence.now_ms;
                        self.parts.position.digest = digest;
                        all.extend(rows);
                    } else if done.last().is_some_and(|own| own.id == entry.id) {
                        return Err(StopReason::Invariant(format!(
                            "entry {} of this leader's own term is void",
                            entry.id
                        )));
                    }
                }
            }
        }
        // ORDER: rows and position in one batch, so that a replay begins right after them.
        self.parts.position.write(&mut all);
        self.parts.store.write(&all)?;
        if !done.is_empty() {
            self.overlay.applied(last.0, &all);
        }
        self.parts.metrics.apply_seconds.record(self.since(started));
        for pending in done {
            pending.waiters.into_iter().for_each(Waiter::answer);
            pending.hints.into_iter().for_each(&self.parts.on_hint);
        }
        self.become_ready()?;
        Ok(true)
    }

    /// Whether an entry's rows count: executed in the entry's own term, right after what is applied. Checks that its leader had the same rows before.
    fn counts(&self, id: EntryId, fence: &Fence) -> Result<bool, StopReason> {
        let position = &self.parts.position;
        if fence.term != id.term || fence.first_sequence != position.sequence + 1 {
            tracing::info!(group = self.parts.name, entry = %id, "an entry of a former leader is void");
            return Ok(false);
        }
        if fence.digest != position.digest {
            return Err(StopReason::Diverged { id, ours: position.digest, leaders: fence.digest });
        }
        Ok(true)
    }

    /// A leader executes once everything of earlier terms is applied.
    fn become_ready(&mut self) -> Result<(), StopReason> {
        let position = &self.parts.position;
        let Some(leading) = &mut self.leading else { return Ok(()) };
        if leading.state.is_none() && position.index() >= leading.after {
            assert!(self.overlay.is_empty(), "what a leader executed is applied before it executes anew");
            leading.state = Some(LeaderState {
                sessions: Sessions::load(&*self.parts.store, self.parts.limits.sessions_max)?,
                sequence: position.sequence,
                now_ms: position.now_ms,
                digest: position.digest,
                last: position.index(),
            });
        }
        Ok(())
    }

    fn finish_reads(&mut self) {
        let applied = self.parts.position.index();
        if self.granted.iter().any(|(index, _)| *index <= applied) {
            for (_, barrier) in self.granted.extract_if(.., |(index, _)| *index <= applied) {
                barrier.finish(Ok(()));
            }
        }
    }

    /// LIMIT: commands that wait for a turn.
    fn refuse_beyond_bound(&mut self) {
        let max = self.parts.limits.queue_max;
        while self.commands.len() > max
            && let Some(proposal) = self.commands.pop_back()
        {
            let error = Error::new(ErrorCode::Overloaded, format!("{max} changes wait for the log already"));
            let _gone = proposal.answer.send(Err(error));
        }
    }

    fn refuse_commands(&mut self) {
        if self.commands.is_empty() {
            return;
        }
        let error = self.not_leader();
        for proposal in self.commands.drain(..) {
            let _gone = proposal.answer.send(Err(error.clone()));
        }
    }

    fn not_leader(&self) -> Error {
        let mut error =
            Error::new(ErrorCode::NotLeader, format!("this member of the {} group does not lead", self.parts.name));
        error.leader = self.parts.raft.leader().and_then(|leader| self.parts.transport.address(leader));
        error
    }

    /// Begins a snapshot where the log has grown enough since the last.
    fn take_snapshot(&mut self) -> Result<(), StopReason> {
        if self.snapshot_running
            || self.log_bytes < self.parts.limits.snapshot_log_bytes
            || self.parts.position.index() <= self.parts.raft.snapshot().last.index
        {
            return Ok(());
        }
        let position = self.parts.position.clone();
        self.snapshot_running = true;
        self.log_bytes = 0;
        let (folders, store) = (self.parts.folders.clone(), self.parts.store.clone());
        let take = move || {
            let result = folders.take(&*store, &position);
            Taken { position, result }
        };
        match self.parts.keeper {
            Keeper::Thread => {
                let (inbox, clock, seconds) =
                    (self.parts.inbox.clone(), self.parts.clock.clone(), self.parts.metrics.snapshot_seconds.clone());
                let thread = std::thread::Builder::new().name(format!("{}-snapshot", self.parts.name));
                let started = thread.spawn(move || {
                    let started = clock.boot();
                    let taken = take();
                    seconds.record(clock.boot().saturating_sub(started).as_secs_f64());
                    inbox.snapshot(taken);
                });
                self.snapshot_thread = Some(started.map_err(StopReason::Thread)?);
                Ok(())
            }
            #[cfg(test)]
            Keeper::InTurn => {
                let taken = take();
                self.parts.inbox.snapshot(taken);
                Ok(())
            }
        }
    }

    /// Cuts the log behind a snapshot.
    fn snapshot_taken(&mut self, taken: Taken) -> Result<(), StopReason> {
        self.snapshot_running = false;
        taken.result?;
        let index = taken.position.index();
        self.parts.raft.snapshot_taken(index);
        self.parts.raft.cut_log(index);
        self.parts.log.cut(index)?;
        self.parts.metrics.log_bytes.set(self.parts.log.disk_bytes() as f64);
        tracing::info!(group = self.parts.name, entry = %taken.position.last, "took a snapshot");
        Ok(())
    }

    /// Makes public how it stands.
    fn tell(&self) {
        let leading = self.leading.as_ref();
        let ready = leading.is_some_and(|leading| leading.state.is_some());
        let changed = self.parts.standing.set(
            self.parts.raft.term(),
            self.parts.position.index(),
            ready,
            self.parts.raft.members(),
            self.parts.raft.id(),
        );
        let metrics = &self.parts.metrics;
        metrics.applied.set(self.parts.position.index().0 as f64);
        if changed {
            metrics.term.set(self.parts.raft.term().0 as f64);
            metrics.leader.set(if ready { 1.0 } else { 0.0 });
        }
        if let Some(state) = leading.and_then(|leading| leading.state.as_ref()) {
            metrics.sessions.set(state.sessions.len() as f64);
        }
    }

    fn since(&self, started: Duration) -> f64 {
        self.parts.clock.boot().saturating_sub(started).as_secs_f64()
    }

    /// Tells everybody who waits that it stopped.
    pub fn fail_all(&mut self, error: &Error) {
        for pending in self.pending.drain(..) {
            pending.waiters.into_iter().for_each(|waiter| waiter.fail(error));
        }
        let barriers = std::mem::take(&mut self.barriers).into_values();
        for barrier in barriers.chain(self.granted.drain(..).map(|(_, barrier)| barrier)) {
            barrier.finish(Err(error.clone()));
        }
        for proposal in self.commands.drain(..) {
            let _gone = proposal.answer.send(Err(error.clone()));
        }
    }
}
