//! Giving space back: pages of large blocks are punched out, segments without anything live are removed, sparse segments of small
//! records are written again without what is dead.
//!
//! Only ended segments are removed or written again. A rewritten one stays for a while, for reads that were planned before.

use std::io::IoSlice;
use std::sync::Arc;

use ozone_common::env::DiskFile;
use ozone_common::{Error, ErrorCode};

use super::index::failed;
use super::lane::write_end;
use super::record::{Header, Kind, SEGMENT_HEAD_BYTES, SegmentHead};
use super::row::{Body, Place};
use crate::container::replica::{Phase, Replica};
use crate::container::shared::Shared;
use crate::recover::{Expected, scan};
use crate::volume::DiskVolume;

/// Holes punched before others get their turn.
const HOLES_STEP: usize = 256;
/// A segment of small records is written again where less than half of it is live and at least this much is dead.
const DEAD_MIN: u64 = 4 << 20;
/// Bytes written at a time.
const WRITE_BYTES: usize = 1 << 20;
/// Blocks moved in the index at a time: writers wait meanwhile.
const MOVE_STEP: usize = 512;
/// How long a rewritten segment stays.
pub(crate) const LINGER_MS: u64 = 60_000;

/// A segment that has to go.
pub(crate) struct Doomed {
    pub replica: Arc<Replica>,
    pub segment: u32,
    /// When nothing pointed to it any more.
    pub since_ms: u64,
}

/// What there is to give back of a replica's segments.
#[derive(Default)]
pub(crate) struct Sparse {
    /// Nothing of them is live.
    pub dead: Vec<Doomed>,
    /// They were just rewritten, and stay for reads that were planned before.
    pub rewritten: Vec<Doomed>,
}

/// Punches pages of deleted blocks out. True where there are more.
///
/// # Errors
/// `VolumeFailed`.
pub(crate) fn punch(shared: &Shared, volume: &DiskVolume) -> Result<bool, Error> {
    let holes = volume.index.holes(HOLES_STEP)?;
    if holes.is_empty() {
        return Ok(false);
    }
    for hole in &holes {
        let Some(replica) = shared.get(hole.container) else { continue };
        let Some(segment) = replica.totals.lock().segments.get(&hole.segment).copied() else { continue };
        let file = volume.files.get(&replica, hole.segment, segment.paged);
        match file.and_then(|file| file.punch_hole(hole.start, hole.length)) {
            Ok(()) => volume.gave_back(hole.length),
            // Some file systems cannot: the space comes back with the segment.
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {}
            Err(error) => return Err(volume.error(format_args!("give pages back: {error}"))),
        }
    }
    let mut edit = volume.index.edit();
    edit.punched(&holes);
    edit.commit()?;
    Ok(holes.len() == HOLES_STEP)
}

/// Finds segments of a replica with nothing live, and rewrites sparse ones, into `found`.
///
/// # Errors
/// `VolumeFailed`; `DiskFull` where there is no space to rewrite one.
pub(crate) fn tidy(
    shared: &Shared,
    volume: &DiskVolume,
    replica: &Arc<Replica>,
    found: &mut Sparse,
) -> Result<(), Error> {
    let segments = replica.totals.lock().segments.clone();
    for (number, segment) in segments.into_iter().filter(|(_, segment)| !segment.active) {
        let doomed = || Doomed { replica: replica.clone(), segment: number, since_ms: shared.clock.now_ms() };
        if segment.row.live == 0 {
            found.dead.push(doomed());
            continue;
        }
        let dead = segment.row.applied.saturating_sub(segment.row.live);
        if !segment.paged && dead >= DEAD_MIN && segment.row.live < segment.row.applied / 2 {
            let rewritten = rewrite(shared, volume, replica, number)?;
            found.rewritten.extend(rewritten.then(doomed));
        }
    }
    Ok(())
}

/// Removes segments that nothing points to.
///
/// # Errors
/// `VolumeFailed`; `DiskFull` where a manifest could not be written: segments of other replicas are removed all the same.
pub(crate) fn remove(shared: &Shared, volume: &DiskVolume, doomed: &[Doomed]) -> Result<(), Error> {
    if doomed.is_empty() {
        return Ok(());
    }
    // ORDER: the index is durable as of now before any of them goes. It has no log: one of before a segment was rewritten would still count
    // what lay there, copies replayed over it do not take all of that away (a tombstone known already changes nothing), and the
    // segment would be missed.
    volume.index.store().flush().map_err(failed)?;
    let mut outcome = Ok(());
    for doomed in doomed {
        match remove_one(shared, volume, &doomed.replica, doomed.segment) {
            Err(error) if error.code == ErrorCode::DiskFull => outcome = Err(error),
            removed => removed?,
        }
    }
    outcome
}

/// The index is durable.
fn remove_one(shared: &Shared, volume: &DiskVolume, replica: &Arc<Replica>, number: u32) -> Result<(), Error> {
    let segment = replica.totals.lock().segments.get(&number).copied();
    let Some(segment) = segment.filter(|segment| segment.row.live == 0) else { return Ok(()) };
    let mut edit = volume.index.edit();
    edit.remove_segment(replica, number);
    edit.commit()?;
    // ORDER: the manifest names it no more before it goes, or the next start would miss it.
    if replica.state.lock().phase == Phase::Closed {
        shared.save_closed(volume, replica)?;
    }
    volume.files.forget(replica.id, number);
    let path = replica.segment_path(number, segment.paged);
    let removed = volume.disk.remove_file(&path).and_then(|()| volume.disk.sync_dir(&replica.dir));
    removed.map_err(|error| volume.error(format_args!("remove a segment: {error}")))?;
    volume.gave_back(segment.row.applied);
    metrics::counter!("ozone_datanode_segments_removed_total").increment(1);
    Ok(())
}

/// Records gathered for the new segment.
struct Output<'a> {
    file: &'a dyn DiskFile,
    number: u32,
    bytes: Vec<u8>,
    /// Where `bytes` go.
    start: u64,
    end: u64,
}

impl Output<'_> {
    fn add(&mut self, header: &Header, payload: &[u8]) -> std::io::Result<Header> {
        let moved = Header { paged: false, durable_to: 0, position: self.end, segment: self.number, ..header.clone() };
        self.bytes.resize((self.end - self.start) as usize, 0);
        moved.encode(&mut self.bytes);
        self.bytes.extend_from_slice(payload);
        self.end = moved.end();
        if self.bytes.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(moved)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.write_all_at(&mut [IoSlice::new(&self.bytes)], self.start)?;
        self.bytes.clear();
        self.start = self.end;
        Ok(())
    }
}

/// Copies what is live of a segment into a new one and points the index there. False where the replica turned out to be damaged.
fn rewrite(shared: &Shared, volume: &DiskVolume, replica: &Arc<Replica>, number: u32) -> Result<bool, Error> {
    let failed = |error: std::io::Error| volume.write_error("rewrite a segment", &error);
    let file = volume.files.get(replica, number, false).map_err(failed)?;
    let expected = Expected { container: replica.id, segment: number, paged: false };
    let found = scan::<std::io::Error>(&*file, expected, 0, |_| Ok(false)).map_err(failed)?;
    if let Some(what) = found.damage.first() {
        shared.quarantine(volume, replica, what);
        return Ok(false);
    }
    // Active, so that nobody else looks at it.
    let target = replica.totals.lock().allocate(false, true);
    let path = replica.segment_path(target, false);
    let outcome = copy(shared, volume, replica, &*file, found.records, target);
    let moved = match outcome {
        Ok(Some((moved, end))) => (moved, end),
        Ok(None) | Err(_) => {
            replica.totals.lock().segments.remove(&target);
            let _ =
                volume.disk.remove_file(&path).inspect_err(|error| tracing::debug!(%error, "a segment not used stays"));
            return outcome.map(|_| false);
        }
    };
    switch(volume, replica, number, target, moved.0, moved.1)?;
    if replica.state.lock().phase == Phase::Closed {
        shared.save_closed(volume, replica)?;
    }
    tracing::info!(container = %replica.id, from = number, to = target, bytes = moved.1, "a sparse segment was rewritten");
    metrics::counter!("ozone_datanode_segments_compacted_total").increment(1);
    Ok(true)
}

/// A copied record, and where it was.
type Moved = (Header, u64);

fn copy(
    shared: &Shared,
    volume: &DiskVolume,
    replica: &Arc<Replica>,
    from: &dyn DiskFile,
    records: Vec<Header>,
    target: u32,
) -> Result<Option<(Vec<Moved>, u64)>, Error> {
    let failed = |error: std::io::Error| volume.write_error("rewrite a segment", &error);
    let file = volume.disk.open(&replica.segment_path(target, false), true).map_err(failed)?;
    volume.disk.sync_dir(&replica.dir).map_err(failed)?;
    let head = SegmentHead { container: replica.id, segment: target, paged: false };
    let mut output =
        Output { file: &*file, number: target, bytes: head.encode().to_vec(), start: 0, end: SEGMENT_HEAD_BYTES };
    let mut moved = Vec::new();
    for header in records {
        if !matters(volume, &header)? {
            continue;
        }
        let mut payload = vec![0; header.payload_bytes() as usize];
        from.read_exact_at(&mut payload, header.payload_start()).map_err(failed)?;
        if header.kind.has_payload() && !header.payload_matches(&payload) {
            shared.changes.corrupt(crate::store::CorruptBlock {
                block: header.block,
                what: "its bytes are not what was written, found when its segment was rewritten".into(),
            });
            shared.quarantine(volume, replica, &format!("block {} is damaged", header.block));
            return Ok(None);
        }
        let copied = output.add(&header, &payload).map_err(failed)?;
        moved.push((copied, header.position));
    }
    output.flush().map_err(failed)?;
    let end = output.end;
    file.sync_data().map_err(|error| volume.error(format_args!("sync a rewritten segment: {error}")))?;
    let end = write_end(&*file, replica.id, target, end).map_err(failed)?;
    volume.took(end);
    Ok(Some((moved, end)))
}

/// Whether a record is to be kept.
fn matters(volume: &DiskVolume, header: &Header) -> Result<bool, Error> {
    let here = Place { segment: header.segment, position: header.position };
    Ok(match header.kind {
        Kind::Put => volume.index.block(header.block)?.is_some_and(|row| row.body == Body::Whole(here)),
        Kind::Finish | Kind::Seal | Kind::Promise => {
            volume.index.block(header.block)?.is_some_and(|row| row.ended_in == Some(header.segment))
        }
        Kind::Tombstone | Kind::Discard => true,
        // The lane of small records has no chunks.
        Kind::Chunk | Kind::End => false,
    })
}

/// Points the index at the copies, where it still points at what was copied.
fn switch(
    volume: &DiskVolume,
    replica: &Arc<Replica>,
    from: u32,
    target: u32,
    moved: Vec<Moved>,
    end: u64,
) -> Result<(), Error> {
    for step in moved.chunks(MOVE_STEP) {
        let mut edit = volume.index.edit();
        for (header, position) in step {
            if header.kind == Kind::Put {
                edit.relocate(replica, header, Place { segment: from, position: *position })?;
            } else {
                edit.relocate_record(replica, header, from)?;
            }
        }
        edit.commit()?;
    }
    let mut edit = volume.index.edit();
    edit.cover(replica, target, end, end);
    edit.forget_live(replica, from);
    edit.commit()?;
    let segments = &mut replica.totals.lock().segments;
    if let Some(segment) = segments.get_mut(&target) {
        segment.active = false;
    }
    // Nobody but who removes it looks at it from now on.
    if let Some(segment) = segments.get_mut(&from) {
        segment.active = true;
    }
    // What was deleted while it was copied is dead in the copy; the next look finds it.
    Ok(())
}
