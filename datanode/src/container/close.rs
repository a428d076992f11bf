//! Closing a replica.
//!
//! ```text
//!  Closing, nothing in flight, no block that a writer may come back for
//!    ─▶ Finishing: no writer gets through any more
//!    ─▶ small lane: discards what is unfinished ─▶ bulk lane: ends its segment ─▶ small lane: ends its segment
//!    ─▶ digest from a snapshot of the index ─▶ manifest ─▶ Closed
//! ```
//! A step that fails for want of space sends it back to Closing, and it is tried again. After a crash in between it is Closing again.

use std::sync::Arc;

use ozone_common::id::BlockId;
use ozone_common::{Error, ErrorCode};

use super::digest::Digest;
use super::replica::{Phase, Replica, WriterState};
use super::shared::Shared;
use crate::block::edit::item;
use crate::block::queue::{Done, Job, Refused};
use crate::volume::DiskVolume;

/// What a look at a closing replica found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// It is under way, or there is nothing to do.
    Done,
    /// Someone may still finish or seal a block.
    Later,
}

/// Begins to close a replica, where nothing stands against it.
pub(crate) fn try_close(shared: &Arc<Shared>, replica: &Arc<Replica>) -> Look {
    let volume = match shared.volume_of(replica) {
        Ok(volume) => volume.clone(),
        Err(_) => return Look::Done,
    };
    if let Err(error) = shared.make(&volume, replica) {
        tracing::warn!(container = %replica.id, %error, "a replica cannot be made to be closed; it is tried again");
        return Look::Later;
    }
    let unfinished = match volume.index.unfinished(replica.id) {
        Ok(unfinished) => unfinished,
        Err(error) => {
            shared.fail(&volume, &error);
            return Look::Done;
        }
    };
    let now = shared.clock.now_ms();
    let grace = shared.options.seal_grace_ms;
    {
        let mut state = replica.state.lock();
        if state.phase != (Phase::Closing { told: true }) || state.unhealthy.is_some() {
            return Look::Done;
        }
        let waits = |grown_ms: u64| now.saturating_sub(grown_ms) < grace;
        let written = state.writing.values().any(|open| {
            let open = open.state.lock();
            open.writer != WriterState::Abandoned && waits(open.grown_ms)
        });
        let ours = |block: &BlockId| state.writing.contains_key(&block.local());
        let recovered = waits(state.since_ms) && unfinished.iter().any(|block| !ours(block));
        if state.in_flight > 0 || written || recovered {
            return Look::Later;
        }
        state.phase = Phase::Finishing;
        let closed = || Error::new(ErrorCode::ContainerNotOpen, format!("container {} closed", replica.id));
        for open in std::mem::take(&mut state.writing).into_values() {
            open.state.lock().failed.get_or_insert_with(closed);
        }
    }
    discard(shared, &volume, replica, unfinished);
    Look::Done
}

fn discard(shared: &Arc<Shared>, volume: &Arc<DiskVolume>, replica: &Arc<Replica>, blocks: Vec<BlockId>) {
    if !blocks.is_empty() {
        tracing::info!(container = %replica.id, count = blocks.len(), "blocks that were neither finished nor sealed are dropped at the close");
    }
    let done = step(shared, replica, {
        let (shared, volume, replica) = (shared.clone(), volume.clone(), replica.clone());
        move || end_bulk(&shared, &volume, &replica)
    });
    push(&volume.small, Job::Discard { replica: replica.clone(), blocks, done });
}

fn end_bulk(shared: &Arc<Shared>, volume: &Arc<DiskVolume>, replica: &Arc<Replica>) {
    let done = step(shared, replica, {
        let (shared, volume, replica) = (shared.clone(), volume.clone(), replica.clone());
        move || end_small(&shared, &volume, &replica)
    });
    push(&volume.bulk, Job::End { replica: replica.clone(), done });
}

fn end_small(shared: &Arc<Shared>, volume: &Arc<DiskVolume>, replica: &Arc<Replica>) {
    let done = step(shared, replica, {
        let (shared, id) = (shared.clone(), replica.id);
        move || {
            shared.with_todo(|todo| todo.ended.insert(id));
        }
    });
    push(&volume.small, Job::End { replica: replica.clone(), done });
}

/// Goes on with `next`, or back to Closing.
fn step(shared: &Arc<Shared>, replica: &Arc<Replica>, next: impl FnOnce() + Send + 'static) -> Done {
    let (shared, replica) = (shared.clone(), replica.clone());
    Box::new(move |outcome| match outcome {
        Ok(()) => next(),
        Err(error) => back(&shared, &replica, &error),
    })
}

fn back(shared: &Shared, replica: &Replica, error: &Error) {
    tracing::warn!(container = %replica.id, %error, "a replica did not close; it is tried again");
    replica.state.lock().phase = Phase::Closing { told: true };
    shared.with_todo(|todo| todo.closing.insert(replica.id));
}

fn push(queue: &crate::block::queue::Queue, job: Job) {
    if let Err(Refused(job, error)) = queue.push(job) {
        job.refuse(error);
    }
}

/// All segments are ended: digest, manifest, CLOSED.
pub(crate) fn finish(shared: &Arc<Shared>, replica: &Arc<Replica>) {
    let Ok(volume) = shared.volume_of(replica) else { return };
    let outcome = make_digest(volume, replica).inspect_err(|error| shared.fail(volume, error));
    let outcome = outcome.and_then(|()| shared.save_closed(volume, replica));
    if let Err(error) = outcome {
        return back(shared, replica, &error);
    }
    replica.state.lock().close();
    tracing::info!(container = %replica.id, "a replica is closed");
    shared.changes.replica(replica.id);
}

/// Computes the digest of a replica from the index; deletes meanwhile are counted.
///
/// # Errors
/// `VolumeFailed`.
pub(crate) fn make_digest(volume: &DiskVolume, replica: &Arc<Replica>) -> Result<(), Error> {
    let index = &volume.index;
    let mut edit = index.edit();
    edit.begin_digest(replica);
    // ORDER: within the edit, so that each change is either in the snapshot or collected.
    let snapshot = index.store().snapshot();
    drop(edit);
    let mut digest = Digest::default();
    index.visit_blocks(&*snapshot, replica.id, |block, row| {
        if row.is_final {
            digest.add_block(item(block, &row));
        }
        Ok(())
    })?;
    index.visit_tombstones(&*snapshot, replica.id, |first, count| {
        let blocks = (0..u64::from(count)).filter_map(|i| BlockId::new(first.get() + i));
        blocks.for_each(|block| digest.add_tombstone(block));
    })?;
    drop(snapshot);
    let mut edit = index.edit();
    edit.end_digest(replica, digest);
    edit.commit()
}
