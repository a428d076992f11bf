//! A member of a replicated group as a role sees it: propose, read, look at the rows.
//!
//! One thread owns the protocol, the log and the execution ([`member`]); handles pass work to it through a bounded inbox and wait
//! without holding a thread. Reads of a group of one cost nothing: what was answered is applied.

mod batch_entry;
mod inbox;
mod member;
mod metrics;
mod open;
mod position;
mod sessions;
mod snapshots;
mod standing;

#[cfg(test)]
mod crash_test;
#[cfg(test)]
mod group_test;
#[cfg(test)]
mod test_support;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::{Error, ErrorCode, RetryClass};
use ozone_kvstore::rocks::{RocksOptions, RocksStore};
use ozone_kvstore::{Store, Table, TableOptions};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::call::{Call, GroupState};
use crate::core::{EntryId, MemberId, Message, RestoreError, StartError};
use crate::executor::Executor;
use crate::log_store::{LogConfig, LogError};

use inbox::{End, Inbox, Proposal};
#[cfg(test)]
use position::Position;
use standing::Standing;

pub use position::GROUP_TABLES;

/// Why a member stopped or does not start. Nothing acknowledged is lost by it.
#[derive(Debug, thiserror::Error)]
pub enum StopReason {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The store.
    #[error(transparent)]
    Store(#[from] ozone_kvstore::Error),
    /// A folder or file besides them.
    #[error("{attempted} `{}`: {source}", path.display())]
    Disk {
        /// What was being done.
        attempted: &'static str,
        /// To what.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process, or another member in this one, uses the folder.
    #[error("folder `{}` is in use by another process", folder.display())]
    InUse {
        /// The group's folder.
        folder: PathBuf,
    },
    /// What lies in log, store and snapshots does not make up a whole.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The log's entries do not follow each other.
    #[error("log of the group: {0}")]
    Restore(#[from] RestoreError),
    /// The store is there, its log is not.
    #[error(
        "the store in `{}` has entries up to {applied} applied, but its log is gone; bring the log's folder back, or, with other members in the \
         group, remove this member and add it again under a new id",
        folder.display()
    )]
    LogMissing {
        /// The group's folder.
        folder: PathBuf,
        /// Last applied entry.
        applied: EntryId,
    },
    /// The store is gone or too old, and there is no snapshot to go back to.
    #[error(
        "the store in `{}` is missing or has only entry {applied} applied; the log begins after {cut}, and there is no snapshot between; bring \
         `store` or `snapshots` back from a copy",
        folder.display()
    )]
    StateMissing {
        /// The group's folder.
        folder: PathBuf,
        /// Last applied entry.
        applied: EntryId,
        /// Last entry cut off the log.
        cut: EntryId,
    },
    /// A snapshot's description does not read.
    #[error("snapshot `{}`: {detail}", path.display())]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// An entry of a newer version, or garbage.
    #[error("entry {id} of the log cannot be applied: {detail}")]
    Entry {
        /// Which.
        id: EntryId,
        /// What is wrong.
        detail: String,
    },
    /// The rows of this member are not those of the leader.
    #[error(
        "before entry {id} the digest of this member's rows is {ours:016x}, the leader's {leaders:016x}: one of them has other rows"
    )]
    Diverged {
        /// Where it was noticed.
        id: EntryId,
        /// Of this member.
        ours: u64,
        /// Of the leader that made the entry.
        leaders: u64,
    },
    /// A thread could not be started.
    #[error("start a thread: {0}")]
    Thread(io::Error),
    /// A fault of our own.
    #[error("broken invariant: {0}")]
    Invariant(String),
}

impl From<StopReason> for Error {
    fn from(reason: StopReason) -> Self {
        let code = match &reason {
            StopReason::Log(LogError::Full { .. }) => ErrorCode::DiskFull,
            StopReason::Log(LogError::Damaged { .. }) | StopReason::Diverged { .. } => ErrorCode::Corrupt,
            StopReason::Log(LogError::Foreign { .. }) | StopReason::InUse { .. } => ErrorCode::InvalidArgument,
            _ => ErrorCode::Unavailable,
        };
        Self::new(code, reason.to_string()).with_retry(RetryClass::Never)
    }
}

/// Bounds of a member. Components' sizes, not an operator's settings.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Changes, and reads, that may wait; more are refused as `Overloaded`.
    pub queue_max: usize,
    /// An entry takes no more commands once its rows have so many bytes.
    pub batch_bytes: usize,
    /// Space in the log reserved for what the last command of an entry adds beyond that.
    pub batch_slack_bytes: usize,
    /// Commands in one entry.
    pub batch_commands: usize,
    /// Bytes of log after which a snapshot is taken and the log cut behind it.
    pub snapshot_log_bytes: u64,
    /// Callers' sessions whose answers are kept.
    pub sessions_max: usize,
    /// Sizes of log files.
    pub log: LogConfig,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_max: 8 << 10,
            batch_bytes: 1 << 20,
            batch_slack_bytes: 1 << 20,
            batch_commands: 1024,
            snapshot_log_bytes: 48 << 20,
            sessions_max: sessions::SESSIONS_MAX,
            log: LogConfig::default(),
        }
    }
}

/// Which group and member it is, and where it lies.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// Short name for metrics, logs and threads, such as `om`.
    pub name: &'static str,
    /// The cluster's id: a log of another cluster is refused.
    pub group: [u8; 16],
    /// This member. Not 0, and never another with the same log.
    pub member: MemberId,
    /// Folder of log, store and snapshots.
    pub folder: PathBuf,
    /// The role's tables; the group adds [`GROUP_TABLES`].
    pub tables: Vec<(Table, TableOptions)>,
    /// Bounds.
    pub limits: Limits,
}

/// How a group opens its store; it does so once its folder holds what it should.
pub trait OpenStore: Send {
    /// Opens the store in `folder`, made where it is absent.
    ///
    /// # Errors
    /// As the store's.
    fn open(&self, folder: &Path, tables: &[(Table, TableOptions)]) -> ozone_kvstore::Result<Arc<dyn Store>>;
}

impl OpenStore for RocksOptions {
    fn open(&self, folder: &Path, tables: &[(Table, TableOptions)]) -> ozone_kvstore::Result<Arc<dyn Store>> {
        Ok(Arc::new(RocksStore::open(folder, tables, self)?))
    }
}

/// Ends the thread once the last handle is gone without a close.
struct LastHandle<C>(Arc<Inbox<C>>);

impl<C> Drop for LastHandle<C> {
    fn drop(&mut self) {
        self.0.end(End::Abandoned);
    }
}

/// A handle. Clones are the same member; when the last one is dropped without [`Group::close`], the member ends as in a crash.
pub struct Group<E: Executor> {
    inbox: Arc<Inbox<E::Command>>,
    standing: Arc<Standing>,
    store: Arc<dyn Store>,
    name: &'static str,
    thread: Arc<Mutex<Option<oneshot::Receiver<Result<(), Error>>>>>,
    _last: Arc<LastHandle<E::Command>>,
}

impl<E: Executor> Clone for Group<E> {
    fn clone(&self) -> Self {
        Self {
            inbox: self.inbox.clone(),
            standing: self.standing.clone(),
            store: self.store.clone(),
            name: self.name,
            thread: self.thread.clone(),
            _last: self._last.clone(),
        }
    }
}

impl<E: Executor> Group<E> {
    /// Executes a command, makes its effects durable on a quorum and applies them; then gives its answer. A repeat of `call` gets the first answer.
    ///
    /// cancel-safe: the change happens or not, as when the answer is lost.
    ///
    /// # Errors
    /// The command's refusal; `Overloaded`, `DiskFull`: it had no effect; `NotLeader`: another member leads; `SessionExpired`: as of a session
    /// that was forgotten it was not executed; `Unavailable`: it may or may not have effect.
    pub async fn propose(&self, call: Option<Call>, command: E::Command) -> Result<Bytes, Error> {
        let (answer, answered) = oneshot::channel();
        self.inbox.propose(Proposal { call, command, answer })?;
        answered.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// The same for a change of the role's own. Not repeated, so it must be such that doing it twice is harmless.
    ///
    /// # Errors
    /// As [`Group::propose`].
    pub async fn propose_internal(&self, command: E::Command) -> Result<Bytes, Error> {
        self.propose(None, command).await
    }

    /// After it [`Group::store`] shows everything answered before it was called (linearizable). Free in a group of one.
    ///
    /// # Errors
    /// `NotLeader`, `Overloaded`, `Unavailable`; nothing was changed.
    pub async fn read_barrier(&self) -> Result<(), Error> {
        if self.standing.leads_alone() {
            return Ok(());
        }
        let (answer, answered) = oneshot::channel();
        self.inbox.read(answer)?;
        answered.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// The applied rows.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// How this member stands.
    pub fn state(&self) -> GroupState {
        self.standing.get()
    }

    /// Hands in a message of another member; `message.from` must be who sent it.
    pub fn deliver(&self, message: Message) {
        self.inbox.deliver(message);
    }

    /// Answers what waits, makes the state durable and ends. Calls after it are refused. Further closes wait for nothing.
    ///
    /// # Errors
    /// Where the member had stopped before or could not flush. Nothing acknowledged is lost by that: the log has it.
    pub async fn close(&self) -> Result<(), Error> {
        self.inbox.end(End::Close);
        let thread = self.thread.lock().take();
        match thread {
            Some(ended) => ended.await.unwrap_or_else(|_| Err(self.gone())),
            None => Ok(()),
        }
    }

    fn gone(&self) -> Error {
        Error::new(ErrorCode::Unavailable, format!("the {} group's member ended", self.name))
    }

    /// Opens a member, replaying what its store lacks, and starts its thread. A sole voter leads when this returns. Blocks: for
    /// use on a thread that may.
    ///
    /// `stopped` is cancelled when the member cannot go on.
    ///
    /// # Errors
    /// Damage, loss, another member's files, a disk that fails: see [`StopReason`].
    pub fn open(
        config: GroupConfig,
        env: &ozone_common::env::Env,
        executor: E,
        opener: &dyn OpenStore,
        on_hint: impl Fn(E::Hint) + Send + 'static,
        stopped: CancellationToken,
    ) -> Result<Self, StopReason> {
        let name = config.name;
        let mut member = open::open(config, env, executor, opener, Box::new(on_hint), member::Keeper::Thread)?;
        let store = member.store().clone();
        let (inbox, standing) = (member.inbox().clone(), member.standing().clone());
        let (ended, thread) = oneshot::channel();
        let (run_inbox, run_standing) = (inbox.clone(), standing.clone());
        let run = move || {
            // Also where the thread panics.
            let guard = stopped.drop_guard();
            let shut = open::ShutOnDrop { name, inbox: run_inbox, standing: run_standing };
            let result = member.run();
            if result.is_ok() {
                // An orderly end is not the role's to stop for.
                guard.disarm();
            }
            let error = match &result {
                Ok(()) => Error::new(ErrorCode::ShuttingDown, format!("the {name} group's member was closed")),
                Err(reason) => {
                    tracing::error!(group = name, %reason, "the group's member stops");
                    Error::new(ErrorCode::Unavailable, format!("the {name} group's member stopped: {reason}"))
                }
            };
            shut.with(&error);
            member.fail_all(&error);
            // The store is closed before anybody is told.
            drop(member);
            let _nobody_waits = ended.send(result.map_err(|_| error));
        };
        std::thread::Builder::new().name(format!("{name}-group")).spawn(run).map_err(StopReason::Thread)?;
        Ok(Self {
            _last: Arc::new(LastHandle(inbox.clone())),
            inbox,
            standing,
            store,
            name,
            thread: Arc::new(Mutex::new(Some(thread))),
        })
    }
}
