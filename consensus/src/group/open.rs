//! Puts a member together from what lies in its folder.

use std::sync::Arc;

use ozone_common::env::Env;
use ozone_common::{Error, ErrorCode};
use ozone_kvstore::Store;

use super::inbox::{Arrived, Inbox};
use super::member::{Keeper, Member, Parts};
use super::metrics::Metrics;
use super::position::{GROUP_TABLES, Position};
use super::snapshots::Folders;
use super::standing::Standing;
use super::{GroupConfig, OpenStore, StopReason};
use crate::core::{Config, EntryId, Raft, Restored};
use crate::executor::Executor;
use crate::log_store::{Identity, LogStore};
use crate::transport::Alone;

/// Bytes of entries read at a time at start.
const READ_BYTES: usize = 4 << 20;

/// Refuses whoever comes after the thread has ended, however it ended.
pub(super) struct ShutOnDrop<C> {
    pub name: &'static str,
    pub inbox: Arc<Inbox<C>>,
    pub standing: Arc<Standing>,
}

impl<C> ShutOnDrop<C> {
    pub fn with(self, error: &Error) {
        self.standing.end();
        self.inbox.shut(error);
    }
}

impl<C> Drop for ShutOnDrop<C> {
    fn drop(&mut self) {
        self.standing.end();
        self.inbox.shut(&Error::new(
            ErrorCode::Unavailable,
            format!("the {} group's member stopped: its thread panicked", self.name),
        ));
    }
}

/// Opens a member and, where it is the sole voter, has it lead and apply everything.
pub(super) fn open<E: Executor>(
    config: GroupConfig,
    env: &Env,
    executor: E,
    opener: &dyn OpenStore,
    on_hint: Box<dyn Fn(E::Hint) + Send>,
    keeper: Keeper,
) -> Result<Member<E>, StopReason> {
    let tables: Vec<_> = config.tables.iter().copied().chain(GROUP_TABLES).collect();
    let folders = Folders::new(env.disk.clone(), config.folder.clone());
    // ORDER: before anything is read, since reading the log may cut its tail.
    let lock = folders.prepare()?;
    let identity = Identity { group: config.group, member: config.member };
    let log = open_log(&config, env, &folders, identity, || opener.open(&folders.store(), &tables))?;
    let store = open_store(&config, &folders, &log, || opener.open(&folders.store(), &tables))?;
    let position = Position::read(&*store)?.unwrap_or_else(|| Position::beginning(config.member));

    let mark = match folders.latest()? {
        Some(snapshot) if snapshot.index() >= log.previous().index => snapshot.mark(),
        // As long as the log is whole, no snapshot is needed; otherwise what the store holds now is as good as one.
        _ if log.previous() == EntryId::ZERO => Position::beginning(config.member).mark(),
        _ => position.mark(),
    };
    let mut restored = Restored::new(log.hard_state(), mark, position.index(), log.previous());
    while restored.last().index < log.last().index {
        for entry in log.read(restored.last().index.next(), log.last().index, READ_BYTES)? {
            restored.entry(&entry)?;
        }
    }
    let replay = log.last().index.0.saturating_sub(position.index().0);
    let raft = Raft::new(Config::of(config.member, env.rng.next_u64()), restored, env.clock.boot())?;
    let mut member = Member::new(Parts {
        limits: config.limits,
        clock: env.clock.clone(),
        executor,
        on_hint,
        transport: Box::new(Alone),
        raft,
        log,
        store,
        tables: tables.iter().map(|(table, _)| *table).collect(),
        position,
        folders,
        keeper,
        inbox: Arc::new(Inbox::new(config.limits.queue_max)),
        standing: Arc::new(Standing::default()),
        metrics: Metrics::new(config.name),
        name: config.name,
        _lock: lock,
    });
    let started = env.clock.boot();
    // A sole voter needs two turns to be elected; its first entry is applied in the last.
    member.turn(Arrived::default())?;
    let ms = env.clock.boot().saturating_sub(started).as_millis() as u64;
    tracing::info!(group = config.name, entries = replay, ms, "replayed the log");
    Ok(member)
}

/// Opens the log, or makes it where the member is new.
fn open_log(
    config: &GroupConfig,
    env: &Env,
    folders: &Folders,
    identity: Identity,
    open_store: impl FnOnce() -> ozone_kvstore::Result<Arc<dyn Store>>,
) -> Result<LogStore, StopReason> {
    let (disk, rng, folder) = (env.disk.clone(), env.rng.clone(), folders.log());
    if LogStore::exists(&*disk, &folder)? {
        return Ok(LogStore::open(disk, rng, &folder, identity, config.limits.log)?);
    }
    let missing = |applied| StopReason::LogMissing { folder: config.folder.clone(), applied };
    if let Some(snapshot) = folders.latest()? {
        return Err(missing(snapshot.last));
    }
    if folders.store_exists()
        && let Some(position) = Position::read(&*open_store()?)?
    {
        return Err(missing(position.last));
    }
    Ok(LogStore::create(disk, rng, &folder, identity, config.limits.log, EntryId::ZERO)?)
}

/// Opens the store, or goes back to a snapshot where it is missing or behind what the log can replay.
fn open_store(
    config: &GroupConfig,
    folders: &Folders,
    log: &LogStore,
    open: impl Fn() -> ozone_kvstore::Result<Arc<dyn Store>>,
) -> Result<Arc<dyn Store>, StopReason> {
    let cut = log.previous();
    let mut applied = EntryId::ZERO;
    if folders.store_exists() || cut == EntryId::ZERO {
        let store = open()?;
        applied = Position::read(&*store)?.map_or(EntryId::ZERO, |position| position.last);
        if applied.index >= cut.index {
            return Ok(store);
        }
    }
    match folders.latest()? {
        Some(snapshot) if snapshot.index() >= cut.index => {
            tracing::warn!(group = config.name, %applied, snapshot = %snapshot.last, "the store is missing or behind its log; going back to a snapshot");
            folders.restore(&snapshot)?;
            Ok(open()?)
        }
        _ => Err(StopReason::StateMissing { folder: config.folder.clone(), applied, cut }),
    }
}
