//! What happens in the background: closing, verifying what readers complained of, giving space back, watching space, keeping recovery short.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ozone_common::Error;
use ozone_common::id::{BlockId, ContainerId};

use super::close::{self, Look};
use super::replica::Replica;
use super::shared::{Shared, Todo};
use crate::block::compact::{self, Doomed, LINGER_MS, Sparse};
use crate::block::index::failed;
use crate::block::read::Source;
use crate::store::CorruptBlock;
use crate::volume::DiskVolume;

/// How often space and closing replicas are looked at.
const TICK: Duration = Duration::from_secs(1);
/// The index is flushed once its unflushed rows take this much: what a crash makes recovery scan is bounded by it.
const INDEX_UNFLUSHED_MAX: u64 = 16 << 20;

/// The background's state. Owned by its thread.
pub(crate) struct Upkeep {
    shared: Arc<Shared>,
    /// Looked at with every tick.
    closing: BTreeSet<ContainerId>,
    sparse: BTreeSet<ContainerId>,
    doomed: Vec<Doomed>,
}

impl Upkeep {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        // What a crash left to be given back.
        let sparse = shared.all().iter().map(|replica| replica.id).collect();
        Self { shared, closing: BTreeSet::new(), sparse, doomed: Vec::new() }
    }

    /// Works until told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let todo = self.shared.take_todo(TICK);
            if todo.stop {
                return;
            }
            self.turn(todo);
        }
    }

    /// Does what is to be done now.
    pub(crate) fn turn(&mut self, todo: Todo) {
        let shared = self.shared.clone();
        for id in todo.ended {
            if let Some(replica) = shared.get(id) {
                close::finish(&shared, &replica);
                self.sparse.insert(id);
            }
        }
        for (block, offset) in todo.suspects {
            self.verify(block, offset);
        }
        self.closing.extend(todo.closing);
        self.closing.retain(|id| match shared.get(*id) {
            Some(replica) => close::try_close(&shared, &replica) == Look::Later,
            None => false,
        });
        self.sparse.extend(todo.sparse);
        self.give_back();
        for volume in shared.volumes().filter(|volume| volume.failure().is_none()) {
            if let Err(error) = watch(volume) {
                shared.fail(volume, &error);
            }
        }
    }

    fn give_back(&mut self) {
        let shared = self.shared.clone();
        if self.sparse.is_empty() && self.doomed.is_empty() {
            return;
        }
        let mut found = Sparse::default();
        for id in std::mem::take(&mut self.sparse) {
            let Some(replica) = shared.get(id) else { continue };
            let Ok(volume) = shared.volume_of(&replica) else { continue };
            if let Err(error) = compact::tidy(&shared, volume, &replica, &mut found) {
                self.failed(volume, &error);
            }
        }
        for volume in shared.volumes().filter(|volume| volume.failure().is_none()) {
            loop {
                match compact::punch(&shared, volume) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        shared.fail(volume, &error);
                        break;
                    }
                }
            }
        }
        let now = shared.clock.now_ms();
        let (due, later) = std::mem::take(&mut self.doomed)
            .into_iter()
            .partition::<Vec<_>, _>(|doomed| now.saturating_sub(doomed.since_ms) >= LINGER_MS);
        self.doomed = later;
        self.doomed.extend(found.rewritten);
        found.dead.extend(due);
        for volume in shared.volumes().filter(|volume| volume.failure().is_none()) {
            let here: Vec<Doomed> =
                found.dead.extract_if(.., |doomed| doomed.replica.volume == volume.number).collect();
            if let Err(error) = compact::remove(&shared, volume, &here) {
                self.failed(volume, &error);
            }
        }
    }

    fn failed(&mut self, volume: &DiskVolume, error: &Error) {
        if error.code == ozone_common::ErrorCode::DiskFull {
            tracing::warn!(volume = %volume.path.display(), %error, "space cannot be given back by rewriting; it is tried with the next delete");
        } else {
            self.shared.fail(volume, error);
        }
    }

    /// Reads a block that a reader found wrong, and quarantines its replica where it is.
    fn verify(&self, block: BlockId, offset: u64) {
        let Some(replica) = self.shared.get(block.container()) else { return };
        let Ok(volume) = self.shared.volume_of(&replica) else { return };
        match first_bad(volume, &replica, block) {
            Ok(None) => {
                tracing::warn!(%block, offset, "a reader found a block wrong that is right here: damaged on its way, or deleted");
            }
            Ok(Some(what)) => {
                tracing::error!(%block, what, "a block is damaged");
                metrics::counter!("ozone_datanode_corrupt_blocks_total").increment(1);
                self.shared.changes.corrupt(CorruptBlock { block, what: what.clone() });
                self.shared.quarantine(volume, &replica, &format!("block {block}: {what}"));
            }
            Err(error) => self.shared.fail(volume, &error),
        }
    }
}

/// What is wrong with a final block, read from the disk.
///
/// # Errors
/// `VolumeFailed`.
pub(crate) fn first_bad(volume: &DiskVolume, replica: &Replica, block: BlockId) -> Result<Option<String>, Error> {
    let Some(row) = volume.index.block(block)?.filter(|row| row.is_final) else { return Ok(None) };
    let source = Source { volume, replica };
    for (offset, place, length) in source.records(block, &row)? {
        let checked = source.header(block, place, length).and_then(|header| source.first_bad_window(&header));
        match checked {
            Ok(None) => {}
            Ok(Some(at)) => return Ok(Some(format!("bytes from {} on are not what was written", offset + at))),
            Err(error) if error.code == ozone_common::ErrorCode::Corrupt => return Ok(Some(error.message)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn watch(volume: &DiskVolume) -> Result<(), Error> {
    volume.refresh_space().map_err(|error| volume.error(format_args!("ask for its space: {error}")))?;
    let store = volume.index.store();
    if store.unflushed_bytes() >= INDEX_UNFLUSHED_MAX {
        store.flush().map_err(failed)?;
    }
    Ok(())
}
