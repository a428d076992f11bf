//! One replica: from its files to its state in memory, with the index brought up to them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use ozone_common::Error;
use ozone_common::env::DiskFile;
use ozone_common::id::{BlockId, ContainerId};
use ozone_kvstore::Batch;

use super::scan::{Expected, Scan, is_ended, scan};
use crate::block::index::failed;
use crate::block::lane::write_end;
use crate::block::record::{Header, Kind, SEGMENT_HEAD_BYTES};
use crate::block::row::{
    BLOCKS, COUNTS, HOLES, PIECES, SEGMENTS, SegmentRow, TOMBSTONES, UNFINISHED, container_key, container_span,
    hole_key, segment_key,
};
use crate::container::close::make_digest;
use crate::container::manifest::Manifest;
use crate::container::replica::{Phase, Replica, Segment};
use crate::volume::DiskVolume;

/// Changes written to the index at a time.
const STEP: usize = 4096;

/// Removes all rows of a container.
pub(super) fn forget_rows(volume: &DiskVolume, id: ContainerId) -> Result<(), Error> {
    let mut batch = Batch::new();
    let (start, end) = container_span(id);
    for table in [BLOCKS, PIECES, UNFINISHED, TOMBSTONES] {
        batch.delete_range(table, start.to_vec(), end.to_vec());
    }
    let after = |key: &[u8]| [key, &[0]].concat();
    batch.delete_range(SEGMENTS, segment_key(id, 0).to_vec(), after(&segment_key(id, u32::MAX)));
    batch.delete_range(HOLES, hole_key(id, 0, 0).to_vec(), after(&hole_key(id, u32::MAX, u64::MAX)));
    batch.delete(COUNTS, container_key(id).to_vec());
    volume.index.store().write(&batch).map_err(failed)
}

/// Opens a replica whose segments are `files` (number, and whether of the bulk lane).
pub(super) fn open_replica(
    volume: &DiskVolume,
    id: ContainerId,
    dir: PathBuf,
    manifest: Manifest,
    files: &BTreeMap<u32, bool>,
    now_ms: u64,
) -> Result<Arc<Replica>, Error> {
    let replica = Arc::new(Replica::new(id, volume.number, dir, manifest.epoch, manifest.members()));
    let mut recovery = Recovery { volume, replica: &replica, files, damage: Vec::new(), ends: Ends::default() };
    if !recovery.run()? {
        tracing::warn!(container = %id, "the index was ahead of the segments; the replica's rows are made anew");
        forget_rows(volume, id)?;
        (recovery.damage, recovery.ends) = (Vec::new(), Ends::default());
        if !recovery.run()? {
            return Err(volume.error(format_args!("container {id}: its segments change while they are read")));
        }
    }
    recovery.check_missing(&manifest)?;
    let damage = recovery.damage;
    {
        let mut state = replica.state.lock();
        state.made = true;
        state.since_ms = now_ms;
        state.phase = if manifest.closed.is_some() { Phase::Closed } else { Phase::Closing { told: false } };
        state.unhealthy = Some(manifest.unhealthy.clone()).filter(|why| !why.is_empty());
    }
    if manifest.closed.is_some() && replica.totals.lock().counts.digest.is_none() {
        make_digest(volume, &replica)?;
    }
    let news = damage.first().filter(|_| manifest.unhealthy.is_empty());
    if let Some(what) = news {
        for what in &damage {
            tracing::error!(container = %id, volume = %volume.path.display(), what, "a replica is damaged and quarantined");
        }
        replica.state.lock().unhealthy = Some(what.clone());
    }
    if news.is_some() || !manifest.unhealthy.is_empty() {
        let manifest = Manifest { unhealthy: news.cloned().unwrap_or(manifest.unhealthy.clone()), ..manifest };
        manifest
            .save(&*volume.disk, &replica.dir)
            .map_err(|error| volume.write_error("quarantine a replica", &error))?;
    }
    Ok(replica)
}

/// Records that end or drop blocks, applied once all data is.
#[derive(Default)]
struct Ends {
    ends: Vec<Header>,
    discards: Vec<Header>,
    tombstones: Vec<Header>,
}

impl Ends {
    fn add(&mut self, header: Header) {
        match header.kind {
            Kind::Finish | Kind::Seal | Kind::Promise => self.ends.push(header),
            Kind::Discard => self.discards.push(header),
            Kind::Tombstone => self.tombstones.push(header),
            Kind::Put | Kind::Chunk | Kind::End => {}
        }
    }

    /// Blocks dropped by these.
    fn dead(&self) -> Dead {
        let range = |header: &Header| (header.block.get(), header.block.get() + u64::from(header.length));
        Dead {
            discarded: self.discards.iter().map(|header| header.block).collect(),
            ranges: self.tombstones.iter().map(range).collect(),
        }
    }

    fn in_order(&mut self) -> impl Iterator<Item = Header> {
        // Stable: of one epoch, in the order written.
        self.ends.sort_by_key(|header| header.epoch);
        let Self { ends, discards, tombstones } = std::mem::take(self);
        ends.into_iter().chain(discards).chain(tombstones)
    }
}

struct Dead {
    discarded: BTreeSet<BlockId>,
    ranges: Vec<(u64, u64)>,
}

impl Dead {
    fn contains(&self, block: BlockId) -> bool {
        let id = block.get();
        self.discarded.contains(&block) || self.ranges.iter().any(|(start, end)| (*start..*end).contains(&id))
    }
}

struct Recovery<'a> {
    volume: &'a DiskVolume,
    replica: &'a Arc<Replica>,
    files: &'a BTreeMap<u32, bool>,
    damage: Vec<String>,
    ends: Ends,
}

/// A file that cannot be read takes the volume out; both kinds of errors end up as that.
struct Stop(Error);

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self(Error::new(ozone_common::ErrorCode::VolumeFailed, format!("scan a segment: {error}")))
    }
}

impl Recovery<'_> {
    /// False where the index covers more than there is.
    fn run(&mut self) -> Result<bool, Error> {
        let index = &self.volume.index;
        let id = self.replica.id;
        let rows: BTreeMap<u32, SegmentRow> = index.segments(id)?.into_iter().collect();
        {
            let mut totals = self.replica.totals.lock();
            totals.counts = index.counts(id)?.unwrap_or_default();
            totals.segments.clear();
            for number in self.files.keys().chain(rows.keys()) {
                let paged = self.files.get(number).copied().unwrap_or(false);
                let row = rows.get(number).copied().unwrap_or_default();
                totals.segments.insert(*number, Segment { paged, active: false, row });
                totals.next_segment = totals.next_segment.max(number + 1);
            }
        }
        let mut covered = Vec::new();
        // Tombstones lie in the small lane's segments, and tell which pages of the bulk lane's may be gone.
        for paged in [false, true] {
            for number in self.files.iter().filter(|(_, lane)| **lane == paged).map(|(number, _)| *number) {
                let row = rows.get(&number).copied().unwrap_or_default();
                match self.segment(number, paged, row)? {
                    Some(end) => covered.push((number, end)),
                    None => return Ok(false),
                }
            }
        }
        let ends: Vec<Header> = self.ends.in_order().collect();
        self.apply(ends)?;
        let mut edit = index.edit();
        for (number, end) in covered {
            edit.cover(self.replica, number, end, end);
        }
        edit.commit()?;
        Ok(true)
    }

    /// Scans one segment, makes it durable and applies its data. Where it ends; `None` where the index covers more.
    fn segment(&mut self, number: u32, paged: bool, row: SegmentRow) -> Result<Option<u64>, Error> {
        let (volume, replica) = (self.volume, self.replica);
        let io = |attempted: &str, error: std::io::Error| volume.error(format_args!("{attempted}: {error}"));
        let path = replica.segment_path(number, paged);
        let file = volume.disk.open(&path, false).map_err(|error| io("open a segment", error))?;
        let expected = Expected { container: replica.id, segment: number, paged };
        let dead = self.ends.dead();
        let is_dead = |block| Ok(dead.contains(block) || volume.index.is_deleted(block).map_err(Stop)?);
        let found = scan(&*file, expected, row.synced, is_dead).map_err(|Stop(error)| {
            volume.error(format_args!("segment {number} of container {}: {error}", replica.id))
        })?;
        if found.valid_end < row.applied {
            if row.synced < row.applied {
                return Ok(None);
            }
            self.damage.push(format!("segment {number} ends at {}, {} bytes were durable", found.length, row.applied));
        }
        let nothing = found.records.is_empty() && row == SegmentRow::default();
        if nothing && found.damage.is_empty() {
            // A crash while it was made.
            volume.disk.remove_file(&path).map_err(|error| io("remove an empty segment", error))?;
            replica.totals.lock().segments.remove(&number);
            return Ok(Some(0));
        }
        let end = self.end(&*file, expected, &found, row)?;
        volume.took(file.allocated().map_err(|error| io("size of a segment", error))?);
        self.damage.extend(found.damage);
        if !found.records.is_empty() {
            tracing::info!(container = %replica.id, segment = number, records = found.records.len(), from = row.synced, end, "records of a segment are applied to the index");
        }
        let (data, ends): (Vec<_>, Vec<_>) = found.records.into_iter().partition(|header| header.kind.has_payload());
        ends.into_iter().for_each(|header| self.ends.add(header));
        self.apply(data)?;
        Ok(Some(end))
    }

    /// Cuts the torn tail off, makes the rest durable, and ends it.
    fn end(&self, file: &dyn DiskFile, expected: Expected, found: &Scan, row: SegmentRow) -> Result<u64, Error> {
        let volume = self.volume;
        let make = || -> std::io::Result<u64> {
            let covered = found.records.is_empty() && found.valid_end == row.applied && found.length == row.applied;
            if found.ended || covered && is_ended(file, expected, found.length)? {
                return Ok(found.valid_end);
            }
            let end = found.valid_end.max(SEGMENT_HEAD_BYTES);
            if found.length > end {
                tracing::warn!(container = %expected.container, segment = expected.segment, bytes = found.length - end, "a torn tail is cut off");
                file.set_len(end)?;
            }
            file.sync_data()?;
            write_end(file, expected.container, expected.segment, end)
        };
        let end = make().map_err(|error| volume.error(format_args!("end segment {}: {error}", expected.segment)))?;
        // Names of segments that a crash left unsynced.
        let dir = volume.disk.sync_dir(&self.replica.dir);
        dir.map_err(|error| volume.error(format_args!("sync a replica's folder: {error}")))?;
        Ok(end)
    }

    fn apply(&self, records: Vec<Header>) -> Result<(), Error> {
        let mut edit = self.volume.index.edit();
        for header in records {
            if edit.len() >= STEP {
                edit.commit()?;
                edit = self.volume.index.edit();
            }
            edit.replay(self.replica, &header)?;
        }
        edit.commit()
    }

    /// Segments that should be there: of the index where they matter, of the manifest in any case.
    fn check_missing(&mut self, manifest: &Manifest) -> Result<(), Error> {
        let segments = self.replica.totals.lock().segments.clone();
        let mut edit = self.volume.index.edit();
        for (number, segment) in segments.iter().filter(|(number, _)| !self.files.contains_key(number)) {
            if segment.row.live > 0 {
                self.damage.push(format!("segment {number} is missing"));
            }
            edit.remove_segment(self.replica, *number);
        }
        edit.commit()?;
        for closed in manifest.closed.iter().flat_map(|closed| &closed.segments) {
            match segments.get(&closed.number) {
                Some(segment) if segment.row.applied >= closed.length => {}
                Some(segment) => self.damage.push(format!(
                    "segment {} ends at {}, {} bytes were there at the close",
                    closed.number, segment.row.applied, closed.length
                )),
                None => self.damage.push(format!("segment {} of the close is missing", closed.number)),
            }
        }
        Ok(())
    }
}
