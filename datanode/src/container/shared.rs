//! What all parts of the store share: volumes, replicas, and what is to be done in the background.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metrics::Histogram;
use ozone_common::env::Clock;
use ozone_common::id::{BlockId, ContainerId, DiskVolumeId};
use ozone_common::{Error, ErrorCode};
use parking_lot::{Condvar, Mutex, RwLock};

use super::changes::ChangeLog;
use super::manifest::{Closed, ClosedSegment, Manifest};
use super::replica::{Phase, Replica, members};
use crate::block::buffers::Buffers;
use crate::store::{Options, VolumeReport};
use crate::volume::DiskVolume;

/// LIMIT: blocks waiting to be verified.
const SUSPECTS_MAX: usize = 1024;
/// A replica that grew by this since it was last reported is reported again.
const USED_STEP: u64 = 16 << 20;

/// A volume of the settings.
pub(crate) enum Slot {
    InUse(Arc<DiskVolume>),
    /// It could not be opened.
    Failed {
        path: PathBuf,
        why: String,
    },
}

/// What the background has to look at.
#[derive(Default)]
pub(crate) struct Todo {
    /// Replicas told to close.
    pub closing: BTreeSet<ContainerId>,
    /// Replicas with all segments ended, to be made CLOSED.
    pub ended: BTreeSet<ContainerId>,
    /// Blocks that a reader found wrong.
    pub suspects: VecDeque<(BlockId, u64)>,
    /// Replicas of which something was deleted.
    pub sparse: BTreeSet<ContainerId>,
    pub stop: bool,
}

/// See the module.
pub(crate) struct Shared {
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    pub slots: Vec<Slot>,
    pub changes: ChangeLog,
    pub buffers: Arc<Buffers>,
    pub sync_seconds: Histogram,
    replicas: RwLock<HashMap<ContainerId, Arc<Replica>>>,
    todo: Mutex<Todo>,
    wake: Condvar,
}

impl Shared {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        options: Options,
        slots: Vec<Slot>,
        replicas: HashMap<ContainerId, Arc<Replica>>,
    ) -> Self {
        Self {
            clock,
            options,
            slots,
            changes: ChangeLog::default(),
            buffers: Arc::default(),
            sync_seconds: metrics::histogram!("ozone_datanode_segment_sync_seconds"),
            replicas: RwLock::new(replicas),
            todo: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    // ---- volumes

    /// Volumes that could be opened; they may have failed since.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = &Arc<DiskVolume>> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::InUse(volume) => Some(volume),
            Slot::Failed { .. } => None,
        })
    }

    /// The volume of a replica.
    ///
    /// # Errors
    /// `VolumeFailed`.
    pub(crate) fn volume_of(&self, replica: &Replica) -> Result<&Arc<DiskVolume>, Error> {
        match self.slots.get(replica.volume) {
            Some(Slot::InUse(volume)) => volume.check().map(|()| volume),
            _ => Err(Error::internal("a replica has no volume")),
        }
    }

    /// All volumes, as reported.
    pub(crate) fn usage(&self) -> Vec<VolumeReport> {
        let report = |slot: &Slot| match slot {
            Slot::InUse(volume) => volume.report(),
            Slot::Failed { path, why } => VolumeReport {
                id: DiskVolumeId::from_bytes([0; 16]),
                path: path.clone(),
                capacity_bytes: 0,
                used_bytes: 0,
                available_bytes: 0,
                failed: Some(why.clone()),
            },
        };
        self.slots.iter().map(report).collect()
    }

    /// A volume was taken out of use: its replicas are lost to this node.
    pub(crate) fn volume_failed(&self, number: usize) {
        let replicas = self.replicas.read();
        let lost = replicas.values().filter(|replica| replica.volume == number).map(|replica| replica.id);
        self.changes.volume(lost);
    }

    /// The disk failed below an operation of the background.
    pub(crate) fn fail(&self, volume: &DiskVolume, error: &Error) {
        if volume.fail(&error.message) {
            self.volume_failed(volume.number);
        }
    }

    // ---- replicas

    /// A container's replica.
    pub(crate) fn get(&self, container: ContainerId) -> Option<Arc<Replica>> {
        self.replicas.read().get(&container).cloned()
    }

    /// All replicas, by container.
    pub(crate) fn all(&self) -> Vec<Arc<Replica>> {
        let mut all: Vec<_> = self.replicas.read().values().cloned().collect();
        all.sort_unstable_by_key(|replica| replica.id);
        all
    }

    /// A container's replica, or a new one in memory; its first record makes it on disk.
    ///
    /// # Errors
    /// `DiskFull` where no volume in use has room, `VolumeFailed` where none is in use, `InvalidArgument` for members that are no ids.
    pub(crate) fn get_or_new(&self, id: ContainerId, epoch: u32, wire: &[Bytes]) -> Result<Arc<Replica>, Error> {
        if let Some(replica) = self.get(id) {
            return Ok(replica);
        }
        let members = members(wire)?;
        let mut replicas = self.replicas.write();
        if let Some(replica) = replicas.get(&id) {
            return Ok(replica.clone());
        }
        let open = |volume: &DiskVolume| {
            let here = replicas.values().filter(|replica| replica.volume == volume.number);
            here.filter(|replica| replica.state.lock().phase == Phase::Open).count()
        };
        let mut candidates: Vec<&Arc<DiskVolume>> =
            self.volumes().filter(|volume| volume.failure().is_none()).collect();
        if candidates.is_empty() {
            return Err(Error::new(ErrorCode::VolumeFailed, "no disk volume is in use"));
        }
        candidates.retain(|volume| volume.available() > 0);
        let best = candidates.into_iter().min_by_key(|volume| (open(volume), u64::MAX - volume.available()));
        let best = best.ok_or_else(|| Error::new(ErrorCode::DiskFull, "no disk volume has room beside its reserve"))?;
        let replica = Arc::new(Replica::new(id, best.number, best.container_dir(id), epoch, members));
        replicas.insert(id, replica.clone());
        Ok(replica)
    }

    /// Makes a replica on disk, where it is not.
    ///
    /// # Errors
    /// `DiskFull`: nothing is lost. `VolumeFailed`: the volume is out of use.
    pub(crate) fn make(&self, volume: &DiskVolume, replica: &Replica) -> Result<(), Error> {
        if replica.state.lock().made {
            return Ok(());
        }
        let _one = replica.manifest.lock();
        if replica.state.lock().made {
            return Ok(());
        }
        let manifest = self.manifest(replica, None);
        let made = volume.disk.create_dir_all(&replica.dir).and_then(|()| manifest.save(&*volume.disk, &replica.dir));
        self.written(volume, "make a replica", made)?;
        replica.state.lock().made = true;
        self.changes.replica(replica.id);
        Ok(())
    }

    fn written(&self, volume: &DiskVolume, attempted: &str, outcome: io::Result<()>) -> Result<(), Error> {
        outcome.map_err(|error| {
            let error = volume.write_error(attempted, &error);
            if error.code != ErrorCode::DiskFull {
                self.fail(volume, &error);
            }
            error
        })
    }

    fn manifest(&self, replica: &Replica, closed: Option<Closed>) -> Manifest {
        let state = replica.state.lock();
        Manifest {
            container: replica.id.get(),
            epoch: state.epoch,
            members: state.members.iter().map(|member| member.as_bytes().to_vec()).collect(),
            closed,
            unhealthy: state.unhealthy.clone().unwrap_or_default(),
        }
    }

    /// Writes down that a replica is CLOSED, with its segments.
    ///
    /// # Errors
    /// `DiskFull`, `VolumeFailed`.
    pub(crate) fn save_closed(&self, volume: &DiskVolume, replica: &Replica) -> Result<(), Error> {
        let _one = replica.manifest.lock();
        let closed = closed_segments(replica);
        let manifest = self.manifest(replica, Some(closed));
        self.written(volume, "close a replica", manifest.save(&*volume.disk, &replica.dir))
    }

    /// Takes a replica out of use for writers, durably and loudly: something of it is damaged. What is left can be read.
    pub(crate) fn quarantine(&self, volume: &DiskVolume, replica: &Replica, why: &str) {
        let _one = replica.manifest.lock();
        let phase = {
            let mut state = replica.state.lock();
            if state.unhealthy.is_some() {
                return;
            }
            state.unhealthy = Some(why.to_owned());
            state.phase
        };
        tracing::error!(container = %replica.id, volume = %volume.path.display(), why, "a replica is damaged and quarantined");
        metrics::counter!("ozone_datanode_replicas_quarantined_total").increment(1);
        let closed = (phase == Phase::Closed).then(|| closed_segments(replica));
        let saved = self.manifest(replica, closed).save(&*volume.disk, &replica.dir);
        if let Err(error) = self.written(volume, "quarantine a replica", saved) {
            tracing::error!(container = %replica.id, %error, "the quarantine could not be written down");
        }
        self.changes.replica(replica.id);
    }

    // ---- what is to be done

    /// Something was settled: a closing replica may go on.
    pub(crate) fn may_close(&self, replica: &Replica) {
        if matches!(replica.state.lock().phase, Phase::Closing { told: true }) {
            self.with_todo(|todo| todo.closing.insert(replica.id));
        }
    }

    /// Reports a replica that grew.
    pub(crate) fn note_used(&self, replica: &Replica) {
        let totals = replica.totals.lock();
        let grown = totals.counts.used.abs_diff(totals.reported_used) >= USED_STEP;
        drop(totals);
        if grown {
            self.changes.replica(replica.id);
        }
    }

    /// A block should be verified.
    pub(crate) fn suspect(&self, block: BlockId, offset: u64) {
        self.with_todo(|todo| {
            let known = todo.suspects.iter().any(|(other, _)| *other == block);
            if !known && todo.suspects.len() < SUSPECTS_MAX {
                todo.suspects.push_back((block, offset));
            }
        });
    }

    /// Something of a replica was deleted; that can wait for the next look.
    pub(crate) fn note_sparse(&self, container: ContainerId) {
        self.todo.lock().sparse.insert(container);
    }

    /// Changes what is to be done, and wakes who does it.
    pub(crate) fn with_todo<T>(&self, change: impl FnOnce(&mut Todo) -> T) -> T {
        let changed = change(&mut self.todo.lock());
        self.wake.notify_one();
        changed
    }

    /// Takes what is to be done, waiting `patience` for it at most. `stop` is left in place.
    pub(crate) fn take_todo(&self, patience: Duration) -> Todo {
        let mut todo = self.todo.lock();
        let nothing = |todo: &Todo| {
            todo.closing.is_empty()
                && todo.ended.is_empty()
                && todo.suspects.is_empty()
                && todo.sparse.is_empty()
                && !todo.stop
        };
        if nothing(&todo) && !patience.is_zero() {
            self.wake.wait_for(&mut todo, patience);
        }
        let stop = todo.stop;
        std::mem::replace(&mut *todo, Todo { stop, ..Todo::default() })
    }
}

fn closed_segments(replica: &Replica) -> Closed {
    let totals = replica.totals.lock();
    let ended = totals.segments.iter().filter(|(_, segment)| !segment.active);
    Closed {
        segments: ended
            .map(|(number, segment)| ClosedSegment { number: *number, length: segment.row.applied })
            .collect(),
    }
}
