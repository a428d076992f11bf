//! A small role for tests: counters by name, in a store and on a disk that can crash.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::env::mem_disk::MemDisk;
use ozone_common::env::{Disk, Env, ManualClock, Rng, SeededRng};
use ozone_common::id::ClientId;
use ozone_common::{Error, ErrorCode};
use ozone_kvstore::mem::MemStore;
use ozone_kvstore::{Batch, Direction, Read, Store, Table, TableOptions};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::inbox::Proposal;
use super::member::{Keeper, Member};
use super::position::Position;
use super::{GroupConfig, Limits, OpenStore, StopReason, open};
use crate::call::Call;
use crate::core::MemberId;
use crate::executor::{Effects, Executor, Stamp};
use crate::log_store::LogConfig;

pub(super) const COUNTERS: Table = Table("counter");

/// What the role can do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    /// Adds to a counter and answers its value and the command's number. `fill` bytes of row go with it.
    Add { name: u8, by: u64, fill: usize },
    /// Refused unless the counter has this value.
    Expect { name: u8, value: u64 },
    /// Removes all counters.
    Clear,
    /// The view cannot be read.
    Break,
}

/// What was hinted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Added(pub u8);

#[derive(Clone, Copy, Debug)]
pub(super) struct Counters;

fn row(value: u64, fill: usize) -> Bytes {
    let mut row = value.to_be_bytes().to_vec();
    row.resize(8 + fill, 0xee);
    row.into()
}

fn value(row: &[u8]) -> u64 {
    u64::from_be_bytes(row[..8].try_into().expect("a counter's row has eight bytes and a filling"))
}

pub(super) fn read(view: &dyn Read, name: u8) -> u64 {
    view.get(COUNTERS, &[name]).unwrap().map_or(0, |row| value(&row))
}

/// Every counter.
pub(super) fn all(view: &dyn Read) -> BTreeMap<u8, u64> {
    let rows = view.scan(COUNTERS, Bound::Unbounded, Bound::Unbounded, Direction::Forward).unwrap();
    rows.map(|row| row.map(|(key, row)| (key[0], value(&row))).unwrap()).collect()
}

impl Executor for Counters {
    type Command = Command;
    type Hint = Added;

    fn execute(&mut self, view: &dyn Read, stamp: Stamp, command: Command) -> ozone_kvstore::Result<Effects<Added>> {
        Ok(match command {
            Command::Add { name, by, fill } => {
                let sum = read(view, name) + by;
                let mut rows = Batch::new();
                rows.put(COUNTERS, vec![name], row(sum, fill));
                Effects::done(rows, reply(sum, stamp.sequence)).with_hint(Added(name))
            }
            Command::Expect { name, value } => {
                let found = read(view, name);
                if found == value {
                    Effects::done(Batch::new(), reply(found, 0))
                } else {
                    Effects::refuse(Error::new(ErrorCode::PreconditionFailed, format!("it is {found}")))
                }
            }
            Command::Clear => {
                let mut rows = Batch::new();
                rows.delete_range(COUNTERS, vec![], vec![0xff, 0xff]);
                Effects::done(rows, reply(0, stamp.sequence))
            }
            Command::Break => {
                return Err(ozone_kvstore::Error::Corrupt { attempted: "test".into(), detail: "broken".into() });
            }
        })
    }
}

/// An answer: the counter's value and the command's number.
pub(super) fn reply(value: u64, sequence: u64) -> Bytes {
    [value.to_be_bytes(), sequence.to_be_bytes()].concat().into()
}

/// Opens stores in memory, the same one again for the same group, unless its folder holds a snapshot's copy.
#[derive(Clone)]
pub(super) struct MemOpener {
    pub disk: MemDisk,
    pub store: Arc<Mutex<Option<MemStore>>>,
    /// The copy of a snapshot that was opened last: a crash may bring its file back.
    pub opened: Arc<Mutex<Vec<u8>>>,
}

impl OpenStore for MemOpener {
    fn open(&self, folder: &Path, tables: &[(Table, TableOptions)]) -> ozone_kvstore::Result<Arc<dyn Store>> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let rows = folder.join("rows.mem");
        let mut known = self.store.lock();
        if disk.exists(&rows) {
            let bytes = disk
                .read(&rows)
                .map_err(|source| ozone_kvstore::Error::Io { attempted: "open a copy".into(), source })?;
            if known.is_none() || *self.opened.lock() != bytes {
                *known = Some(MemStore::open_checkpoint(disk.clone(), folder, tables)?);
                *self.opened.lock() = bytes;
            }
        }
        disk.create_dir_all(folder).expect("a disk in memory makes folders");
        let store = known.get_or_insert_with(|| MemStore::new(disk, tables)).clone();
        Ok(Arc::new(store))
    }
}

/// A group of one on a disk in memory, driven turn by turn.
pub(super) struct World {
    pub disk: MemDisk,
    pub opener: MemOpener,
    pub clock: Arc<ManualClock>,
    pub env: Env,
    pub limits: Limits,
    pub hints: Arc<Mutex<Vec<Added>>>,
}

pub(super) const FOLDER: &str = "/om";

impl World {
    pub fn new(limits: Limits) -> Self {
        let disk = MemDisk::new();
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let env = Env { clock: clock.clone(), rng: Arc::new(SeededRng::new(1)), disk: Arc::new(disk.clone()) };
        let opener = MemOpener { disk: disk.clone(), store: Arc::default(), opened: Arc::default() };
        Self { disk, opener, clock, env, limits, hints: Arc::default() }
    }

    pub fn config(&self) -> GroupConfig {
        GroupConfig {
            name: "test",
            group: [7; 16],
            member: MemberId(1),
            folder: PathBuf::from(FOLDER),
            tables: vec![(COUNTERS, TableOptions::Rows)],
            limits: self.limits,
        }
    }

    pub fn open(&self) -> Result<Member<Counters>, StopReason> {
        let hints = self.hints.clone();
        let on_hint = Box::new(move |hint| hints.lock().push(hint));
        open::open(self.config(), &self.env, Counters, &self.opener, on_hint, Keeper::InTurn)
    }

    /// The machine loses power, and everything that was not durable.
    pub fn crash(&self, rng: &dyn Rng) {
        self.disk.faults.clear();
        self.disk.crash(rng);
        if let Some(store) = &*self.opener.store.lock() {
            store.crash(rng);
        }
    }

    pub fn position(&self) -> Option<Position> {
        let store = self.opener.store.lock().clone();
        store.and_then(|store| Position::read(&store).unwrap())
    }

    pub fn client(&self) -> ClientId {
        ClientId::fresh(self.env.clock.now_ms(), &*self.env.rng)
    }
}

/// Frequent snapshots, and files so small that a cut removes most of what it may.
pub(super) fn small() -> Limits {
    Limits {
        queue_max: 64,
        batch_bytes: 600,
        batch_slack_bytes: 600,
        batch_commands: 4,
        snapshot_log_bytes: 2_000,
        sessions_max: 4,
        log: LogConfig { segment_bytes: 1_500, zero_ahead_bytes: 512 },
    }
}

pub(super) type Answer = oneshot::Receiver<Result<Bytes, Error>>;

/// One turn with these commands.
pub(super) fn turn(
    member: &mut Member<Counters>,
    commands: Vec<(Option<Call>, Command)>,
) -> (Result<(), StopReason>, Vec<Answer>) {
    let (mut arrived, mut answers) = (member.inbox().take(false, None), Vec::new());
    for (call, command) in commands {
        let (answer, answered) = oneshot::channel();
        arrived.proposals.push_back(Proposal { call, command, answer });
        answers.push(answered);
    }
    (member.turn(arrived), answers)
}

/// The answer, where there is one.
pub(super) fn answered(answer: &mut Answer) -> Option<Result<Bytes, Error>> {
    answer.try_recv().ok()
}
