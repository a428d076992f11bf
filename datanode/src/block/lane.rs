//! Group commit: one thread per lane takes all jobs that wait, appends their records, makes them durable together, writes the index
//! and answers.
//!
//! ```text
//!  jobs ─▶ plan (records per segment) ─▶ one vectored write per segment ─▶ one fdatasync per segment ─▶ one index batch ─▶ answers
//! ```
//! ORDER: segment before index before answer. A record whose index rows were lost is found by recovery; an index row whose record was lost
//! by a power failure (only where nobody was promised `Durability::Disk`) is found by comparing how far the index covers a segment with what is there.
//!
//! A write that fails for want of space is cut off again and refused; any other failed write, and every failed sync, takes the volume out of use.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, IoSlice};
use std::sync::Arc;

use ozone_common::env::DiskFile;
use ozone_common::id::ContainerId;
use ozone_common::{Error, ErrorCode};

use super::edit::Edit;
use super::plan::{Answer, Entry, Group};
use super::queue::Job;
use super::record::{Header, Kind, RECORD_ALIGN, SEGMENT_HEAD_BYTES, SegmentHead};
use crate::container::replica::{OpenBlock, Replica};
use crate::container::shared::Shared;
use crate::volume::{DiskVolume, is_full};

/// Most payload that one batch takes.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Most jobs of one batch.
const BATCH_JOBS_MAX: usize = 1024;
/// A segment that has reached this is ended. Small ones are rewritten whole when sparse; large ones are punched.
const SMALL_SEGMENT_BYTES: u64 = 128 << 20;
const BULK_SEGMENT_BYTES: u64 = 1 << 30;
/// Chunks not yet durable beyond this are synced, so that the sync at a block's end is short.
const UNSYNCED_MAX: u64 = 32 << 20;
/// LIMIT: files that a lane keeps open to append to.
const FILES_MAX: usize = 64;

const _: () = assert!(BULK_SEGMENT_BYTES + 2 * BATCH_BYTES_MAX as u64 <= super::record::SEGMENT_BYTES_MAX);

/// The segment that a replica's records go to.
struct Tail {
    number: u32,
    /// `None` while closed for want of descriptors; everything is durable then.
    file: Option<Arc<dyn DiskFile>>,
    /// Where the next record goes.
    length: u64,
    /// Bytes that are durable.
    synced: u64,
    used: u64,
}

/// One of the two lanes of a volume. Owned by its thread: the only appender of the segments in `tails`.
pub(crate) struct Lane {
    shared: Arc<Shared>,
    volume: Arc<DiskVolume>,
    /// The bulk lane: payloads begin at pages.
    paged: bool,
    tails: HashMap<ContainerId, Tail>,
    tick: u64,
}

impl Lane {
    pub(crate) fn new(shared: Arc<Shared>, volume: Arc<DiskVolume>, paged: bool) -> Self {
        Self { shared, volume, paged, tails: HashMap::new(), tick: 0 }
    }

    /// Works until the queue is closed and empty; then ends its segments.
    pub(crate) fn run(mut self) {
        let volume = self.volume.clone();
        let queue = if self.paged { &volume.bulk } else { &volume.small };
        while let Some(jobs) = queue.take(BATCH_BYTES_MAX, BATCH_JOBS_MAX) {
            self.batch(jobs);
        }
        self.end_all();
    }

    /// One batch, where something waits: for tests, which bring their own thread.
    #[cfg(test)]
    pub(crate) fn turn(&mut self) -> bool {
        let queue = if self.paged { &self.volume.bulk } else { &self.volume.small };
        let jobs = queue.take_now(BATCH_BYTES_MAX, BATCH_JOBS_MAX);
        let some = !jobs.is_empty();
        if some {
            self.batch(jobs);
        }
        some
    }

    /// Ends all segments, so that the next start finds nothing to recover.
    pub(crate) fn end_all(&mut self) {
        if self.volume.check().is_err() {
            return;
        }
        let mut containers: Vec<ContainerId> = self.tails.keys().copied().collect();
        containers.sort_unstable();
        for container in containers {
            let Some(replica) = self.shared.get(container) else { continue };
            if let Err(error) = self.end_tail(&replica) {
                tracing::error!(%container, %error, "a segment could not be ended; the next start recovers it");
            }
        }
    }

    fn batch(&mut self, jobs: Vec<Job>) {
        let (mut groups, mut entries) = (BTreeMap::new(), Vec::with_capacity(jobs.len()));
        for job in jobs {
            self.plan(&mut groups, &mut entries, job);
        }
        let outcome = self.commit(&mut groups, &mut entries);
        if let Err(error) = outcome {
            self.poison(&error);
            for entry in entries.iter_mut().filter(|entry| entry.outcome.is_ok() && entry.planned) {
                entry.outcome = Err(error.clone());
            }
        }
        for entry in entries {
            self.settle(entry);
        }
    }

    fn poison(&self, error: &Error) {
        if self.volume.fail(&error.message) {
            self.shared.volume_failed(self.volume.number);
        }
    }

    // ---- planning

    fn plan(&mut self, groups: &mut BTreeMap<ContainerId, Group>, entries: &mut Vec<Entry>, job: Job) {
        let index = entries.len();
        if let Err(error) = self.volume.check() {
            return entries.push(Entry::refused(job, error));
        }
        let replica = job.replica().clone();
        if let Job::End { .. } = job {
            let outcome = self.end_tail(&replica);
            if let Err(error) = &outcome {
                self.poison(error);
            }
            let mut entry = Entry::of(job);
            entry.outcome = outcome.map(|()| 0);
            return entries.push(entry);
        }
        let seal = match &job {
            Job::Seal { seal, .. } => match super::seal::plan(&self.volume, &replica, seal) {
                // Nothing to write.
                Ok((length, None)) => {
                    let mut entry = Entry::of(job);
                    entry.outcome = Ok(length);
                    return entries.push(entry);
                }
                Ok((length, Some(header))) => Some((length, header)),
                Err(error) => return entries.push(Entry::refused(job, error)),
            },
            Job::Chunk { open, .. } | Job::Finish { open, .. } => {
                let failed = open.state.lock().failed.clone();
                match failed {
                    Some(error) => return entries.push(Entry::refused(job, error)),
                    None => None,
                }
            }
            _ => None,
        };
        let group = match groups.entry(replica.id) {
            std::collections::btree_map::Entry::Occupied(group) => group.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => match self.group(&replica) {
                Ok(group) => place.insert(group),
                Err(error) => {
                    if let Job::Chunk { open, .. } = &job {
                        open.state.lock().failed = Some(error.clone());
                    }
                    return entries.push(Entry::refused(job, error));
                }
            },
        };
        entries.push(group.add_job(index, job, seal));
    }

    /// Makes the replica and its segment ready to be appended to.
    fn group(&mut self, replica: &Arc<Replica>) -> Result<Group, Error> {
        self.shared.make(&self.volume, replica)?;
        let limit = if self.paged { BULK_SEGMENT_BYTES } else { SMALL_SEGMENT_BYTES };
        if self.tails.get(&replica.id).is_some_and(|tail| tail.length >= limit) {
            self.end_tail(replica).inspect_err(|error| {
                // A full disk is no failure; the segment ends later.
                if error.code != ErrorCode::DiskFull {
                    self.poison(error);
                }
            })?;
        }
        self.tick += 1;
        let tick = self.tick;
        if !self.tails.contains_key(&replica.id) {
            let tail = self.new_segment(replica)?;
            self.tails.insert(replica.id, tail);
            self.close_files();
        }
        let (volume, paged) = (&self.volume, self.paged);
        let tail = self.tails.get_mut(&replica.id).ok_or_else(|| Error::internal("a tail went away"))?;
        tail.used = tick;
        let file = match &tail.file {
            Some(file) => file.clone(),
            None => {
                let path = replica.segment_path(tail.number, paged);
                let open = volume.disk.open(&path, false);
                let file = open.map_err(|error| volume.write_error("open a segment again", &error))?;
                tail.file.insert(file).clone()
            }
        };
        Ok(Group::new(replica.clone(), tail.number, paged, file, tail.length, tail.synced))
    }

    fn new_segment(&self, replica: &Arc<Replica>) -> Result<Tail, Error> {
        let number = replica.totals.lock().allocate(self.paged, true);
        let path = replica.segment_path(number, self.paged);
        let head = SegmentHead { container: replica.id, segment: number, paged: self.paged };
        let make = || -> io::Result<Arc<dyn DiskFile>> {
            let file = self.volume.disk.open(&path, true)?;
            file.write_all_at(&mut [IoSlice::new(&head.encode())], 0)?;
            // The name must be durable before what is written there is promised.
            self.volume.disk.sync_dir(&replica.dir)?;
            Ok(file)
        };
        let file = make().map_err(|error| {
            let full = is_full(&error);
            replica.totals.lock().segments.remove(&number);
            let error = self.volume.write_error("make a segment", &error);
            if full {
                // An empty file is left at worst; recovery removes it.
                if let Err(error) = self.volume.disk.remove_file(&path) {
                    tracing::debug!(%error, "an empty segment stays");
                }
            } else {
                self.poison(&error);
            }
            error
        })?;
        Ok(Tail { number, file: Some(file), length: SEGMENT_HEAD_BYTES, synced: 0, used: self.tick })
    }

    /// Keeps the number of open files bounded: those least used go, once durable.
    fn close_files(&mut self) {
        let open = self.tails.iter().filter(|(_, tail)| tail.file.is_some());
        let mut idle: Vec<(u64, ContainerId)> = open.map(|(container, tail)| (tail.used, *container)).collect();
        if idle.len() <= FILES_MAX {
            return;
        }
        idle.sort_unstable();
        for (_, container) in idle.into_iter().take(FILES_MAX / 4) {
            let Some(tail) = self.tails.get_mut(&container) else { continue };
            let Some(file) = &tail.file else { continue };
            if tail.synced < tail.length {
                if let Err(error) = file.sync_data() {
                    let error = self.volume.error(format_args!("sync a segment: {error}"));
                    return self.poison(&error);
                }
                tail.synced = tail.length;
            }
            tail.file = None;
        }
    }

    // ---- carrying out

    /// # Errors
    /// Where the volume must not be used any more. Jobs that are refused for want of space are marked in `entries` instead.
    fn commit(&mut self, groups: &mut BTreeMap<ContainerId, Group>, entries: &mut [Entry]) -> Result<(), Error> {
        groups.retain(|_, group| !group.records.is_empty());
        for group in groups.values_mut() {
            self.write(group, entries)?;
        }
        groups.retain(|_, group| !group.refused);
        for group in groups.values_mut() {
            self.sync(group)?;
        }
        if groups.is_empty() {
            return Ok(());
        }
        let mut edit = self.volume.index.edit();
        for group in groups.values() {
            for (header, entry) in &group.records {
                let Some(entry) = entries.get_mut(*entry) else { continue };
                if let Err(error) = Self::apply(&mut edit, group, header, entry)? {
                    entry.outcome = Err(error);
                }
            }
            let tail = self.tails.get(&group.replica.id);
            let synced = tail.map_or(group.start, |tail| tail.synced);
            edit.cover(&group.replica, group.number, synced.min(group.end), group.end);
        }
        edit.commit()
    }

    fn write(&mut self, group: &mut Group, entries: &mut [Entry]) -> Result<(), Error> {
        let written = group.write();
        let taken = group.end - group.start;
        match written {
            Ok(()) => {
                self.volume.took(taken);
                if let Some(tail) = self.tails.get_mut(&group.replica.id) {
                    tail.length = group.end;
                }
                metrics::counter!("ozone_datanode_written_bytes_total").increment(taken);
                Ok(())
            }
            Err(error) if is_full(&error) => {
                let refusal = self.volume.write_error("append", &error);
                // No trace: what was written of the batch is cut off again.
                if let Err(error) = group.file.set_len(group.start) {
                    return Err(self.volume.error(format_args!("cut a segment after a full disk: {error}")));
                }
                for (_, entry) in &group.records {
                    if let Some(entry) = entries.get_mut(*entry) {
                        entry.outcome = Err(refusal.clone());
                    }
                }
                group.refused = true;
                Ok(())
            }
            Err(error) => Err(self.volume.error(format_args!("append to a segment: {error}"))),
        }
    }

    fn sync(&mut self, group: &Group) -> Result<(), Error> {
        let Some(tail) = self.tails.get_mut(&group.replica.id) else { return Ok(()) };
        if group.sync || group.end - tail.synced >= UNSYNCED_MAX {
            let timer = self.shared.clock.boot();
            group.file.sync_data().map_err(|error| self.volume.error(format_args!("sync a segment: {error}")))?;
            self.shared.sync_seconds.record(self.shared.clock.boot().saturating_sub(timer));
            tail.synced = group.end;
        }
        Ok(())
    }

    /// The inner error is the job's, the outer the volume's.
    fn apply(edit: &mut Edit<'_>, group: &Group, header: &Header, entry: &Entry) -> Result<Result<(), Error>, Error> {
        let replica = &group.replica;
        let block = header.block;
        let taken = match header.kind {
            Kind::Put if entry.known => {
                let before = edit.row(block)?;
                match before {
                    Some(row) if row.is_final || row.promised > header.epoch => false,
                    before => edit.put_unless_deleted(replica, header, before)?,
                }
            }
            // The other lane carries out deletes.
            Kind::Put if group.paged => edit.put_unless_deleted(replica, header, None)?,
            Kind::Put => {
                edit.put(replica, header, None);
                true
            }
            Kind::Chunk => edit.chunk(replica, header)?,
            Kind::Finish => edit.finish(replica, header)?,
            Kind::Seal => edit.seal(replica, header)?,
            Kind::Promise => {
                edit.promise(replica, header)?;
                true
            }
            Kind::Tombstone => {
                edit.tombstone(replica, header)?;
                true
            }
            Kind::Discard => {
                edit.discard(replica, header)?;
                true
            }
            Kind::End => true,
        };
        let gone = || Error::new(ErrorCode::BlockDeleted, format!("block {block} was deleted meanwhile"));
        Ok(if taken { Ok(()) } else { Err(gone()) })
    }

    /// Answers a job, and what follows from its outcome for its block and replica.
    fn settle(&self, entry: Entry) {
        let Entry { replica, answer, outcome, open, ends, written_to, in_flight, .. } = entry;
        let used = {
            let mut state = replica.state.lock();
            if in_flight {
                state.in_flight -= 1;
            }
            if let (Some(block), true) = (ends, outcome.is_ok()) {
                state.writing.remove(&block.local());
            }
            if let (Some(block), Err(_)) = (entry.put, &outcome) {
                state.give_id_back(block);
            }
            state.in_flight == 0
        };
        if let Some(open) = open {
            settle_open(&open, &outcome, written_to);
        }
        if used {
            self.shared.may_close(&replica);
        }
        self.shared.note_used(&replica);
        match answer {
            Answer::Unit(done) => done(outcome.map(|_| ())),
            Answer::Length(done) => done(outcome),
        }
    }

    /// Makes a replica's segment durable and ends it.
    fn end_tail(&mut self, replica: &Arc<Replica>) -> Result<(), Error> {
        let Some(tail) = self.tails.get_mut(&replica.id) else { return Ok(()) };
        let volume = &self.volume;
        let failed = |error: io::Error| volume.write_error("end a segment", &error);
        let file = match &tail.file {
            Some(file) => file.clone(),
            None => volume.disk.open(&replica.segment_path(tail.number, self.paged), false).map_err(failed)?,
        };
        if tail.synced < tail.length {
            file.sync_data().map_err(|error| volume.error(format_args!("sync a segment: {error}")))?;
            tail.synced = tail.length;
        }
        let end = write_end(&*file, replica.id, tail.number, tail.length).map_err(failed)?;
        let number = tail.number;
        if let Some(segment) = replica.totals.lock().segments.get_mut(&number) {
            segment.active = false;
        }
        let mut edit = volume.index.edit();
        edit.cover(replica, number, end, end);
        edit.commit()?;
        self.tails.remove(&replica.id);
        self.volume.files.forget(replica.id, number);
        Ok(())
    }
}

/// Appends the record that ends a segment at `length`, all before which is durable, and makes it durable. Gives where it ends.
pub(crate) fn write_end(file: &dyn DiskFile, container: ContainerId, segment: u32, length: u64) -> io::Result<u64> {
    let Some(block) = container.block(0) else { return Err(io::ErrorKind::InvalidInput.into()) };
    debug_assert!(length.is_multiple_of(RECORD_ALIGN));
    let header = Header {
        kind: Kind::End,
        paged: false,
        epoch: 0,
        block,
        offset: 0,
        length: 0,
        durable_to: length,
        position: length,
        segment,
        block_crc: 0,
        words: Vec::new(),
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    file.write_all_at(&mut [IoSlice::new(&bytes)], length)?;
    file.sync_data()?;
    Ok(header.end())
}

fn settle_open(open: &OpenBlock, outcome: &Result<u64, Error>, written_to: Option<u64>) {
    let mut state = open.state.lock();
    match (outcome, written_to) {
        (Ok(_), Some(written)) => state.written = written,
        (Err(error), Some(_)) if state.failed.is_none() => state.failed = Some(error.clone()),
        _ => {}
    }
}
