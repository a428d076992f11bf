//! What the core keeps of the log: the term of every entry, the entries that are not yet persisted, and a bounded tail of the others.
//!
//! ```text
//!   cut            persisted        handed           last
//!    |  in the driver's log |  being written  |  unsaved  |
//!    +----------------------+-----------------+-----------+
//!              [ cached tail: at least everything after `persisted` ]
//! ```
//!
//! Invariants: cut <= persisted <= handed <= last; the cache is contiguous, ends with `last` and covers all after `persisted`.
//! Terms are kept as spans, so that they cost memory per change of leader, not per entry, and no term is ever read from disk.

use std::collections::VecDeque;

use super::entry::Entry;
use super::id::{EntryId, Index, Term};

/// The driver's log, for entries that left the core's cache: for a follower far behind, or to be applied after a restart.
pub trait ReadLog {
    /// Why an entry cannot be read. It goes back to the driver, which then stops the member.
    type Error;

    /// The entries `from..=to` in order: as many as fit into `bytes_max`, but at least one. Asked only for entries that were
    /// persisted and not cut.
    ///
    /// # Errors
    /// The entries cannot be read.
    fn read(&self, from: Index, to: Index, bytes_max: usize) -> Result<Vec<Entry>, Self::Error>;
}

/// The terms of all entries after a cut.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    cut: EntryId,
    last: Index,
    /// First index of each term after the cut, in order.
    spans: Vec<(Index, Term)>,
}

impl Terms {
    pub(super) fn new(cut: EntryId) -> Self {
        Self { cut, last: cut.index, spans: Vec::new() }
    }

    pub(super) fn cut(&self) -> EntryId {
        self.cut
    }

    pub(super) fn last(&self) -> EntryId {
        EntryId { term: self.spans.last().map_or(self.cut.term, |(_, term)| *term), index: self.last }
    }

    /// `None` before the cut and after the end.
    pub(super) fn at(&self, index: Index) -> Option<Term> {
        if index < self.cut.index || index > self.last {
            return None;
        }
        let begun = self.spans.partition_point(|(first, _)| *first <= index);
        Some(if begun == 0 { self.cut.term } else { self.spans[begun - 1].1 })
    }

    /// The last entry that `id` allows: at or before its index, of its term or an earlier one. The place where a leader and a
    /// follower that differ at `id` may agree; everything after it is known to differ. Before the cut only the index is known.
    pub(super) fn last_not_after(&self, id: EntryId) -> EntryId {
        let mut index = id.index.min(self.last);
        loop {
            match self.at(index) {
                None => return EntryId { term: Term(0), index },
                Some(term) if term <= id.term => return EntryId { term, index },
                Some(_) => {
                    // Skip the whole span: all of it is of that later term.
                    let begun = self.spans.partition_point(|(first, _)| *first <= index);
                    index = if begun == 0 { self.cut.index.previous() } else { self.spans[begun - 1].0.previous() };
                }
            }
        }
    }

    pub(super) fn push(&mut self, id: EntryId) {
        assert_eq!(id.index, self.last.next(), "entries come without gaps");
        let before = self.last().term;
        assert!(id.term >= before, "terms do not go back: {} after {before}", id.term);
        if id.term > before {
            self.spans.push((id.index, id.term));
        }
        self.last = id.index;
    }

    pub(super) fn truncate_from(&mut self, from: Index) {
        assert!(from > self.cut.index, "entries up to the cut are committed");
        let kept = self.spans.partition_point(|(first, _)| *first < from);
        self.spans.truncate(kept);
        self.last = self.last.min(from.previous());
    }

    pub(super) fn cut_to(&mut self, index: Index) {
        let Some(term) = self.at(index) else { return };
        let begun = self.spans.partition_point(|(first, _)| *first <= index);
        self.spans.drain(..begun);
        self.cut = EntryId { term, index };
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Log {
    terms: Terms,
    cache: VecDeque<Entry>,
    cache_bytes: usize,
    cache_bytes_max: usize,
    persisted: Index,
    handed: Index,
    /// Outputs being written: their number, and up to where the log is durable once they are.
    writing: VecDeque<(u64, Index)>,
}

impl Log {
    /// A log as found at start: everything in it is persisted.
    pub(super) fn restored(terms: Terms, cache_bytes_max: usize) -> Self {
        let last = terms.last().index;
        Self {
            terms,
            cache: VecDeque::new(),
            cache_bytes: 0,
            cache_bytes_max,
            persisted: last,
            handed: last,
            writing: VecDeque::new(),
        }
    }

    pub(super) fn last(&self) -> EntryId {
        self.terms.last()
    }

    pub(super) fn cut(&self) -> EntryId {
        self.terms.cut()
    }

    pub(super) fn persisted(&self) -> Index {
        self.persisted
    }

    pub(super) fn term_at(&self, index: Index) -> Option<Term> {
        self.terms.at(index)
    }

    pub(super) fn contains(&self, id: EntryId) -> bool {
        self.terms.at(id.index) == Some(id.term)
    }

    pub(super) fn last_not_after(&self, id: EntryId) -> EntryId {
        self.terms.last_not_after(id)
    }

    /// Where each term after the cut begins.
    pub(super) fn term_starts(&self) -> impl Iterator<Item = Index> + '_ {
        self.terms.spans.iter().map(|(first, _)| *first)
    }

    /// Adds an entry after the last.
    pub(super) fn append(&mut self, entry: Entry) {
        self.terms.push(entry.id);
        self.cache_bytes += entry.payload.size_bytes();
        self.cache.push_back(entry);
    }

    /// Removes all entries from `from` on.
    pub(super) fn truncate_from(&mut self, from: Index) {
        self.terms.truncate_from(from);
        while self.cache.back().is_some_and(|entry| entry.id.index >= from) {
            self.pop_back();
        }
        self.limit_to(from.previous());
    }

    /// What is on disk after `index` does not count any more, whatever was or is being written.
    fn limit_to(&mut self, index: Index) {
        self.persisted = self.persisted.min(index);
        self.handed = self.handed.min(index);
        for (_, covered) in &mut self.writing {
            *covered = (*covered).min(index);
        }
    }

    /// A snapshot takes the place of the whole log.
    pub(super) fn reset_to(&mut self, snapshot: EntryId) {
        self.terms = Terms::new(snapshot);
        self.cache.clear();
        self.cache_bytes = 0;
        self.limit_to(snapshot.index);
        self.persisted = snapshot.index;
        self.handed = snapshot.index;
    }

    /// Forgets the terms up to `index`, which must be persisted.
    pub(super) fn cut_to(&mut self, index: Index) {
        self.terms.cut_to(index);
        while self.cache.front().is_some_and(|entry| entry.id.index <= index) {
            self.pop_front();
        }
    }

    pub(super) fn has_unsaved(&self) -> bool {
        self.handed < self.last().index
    }

    /// The entries no output contained yet.
    pub(super) fn take_unsaved(&mut self) -> Vec<Entry> {
        let from = self.handed.next();
        self.handed = self.last().index;
        self.cached(from, self.handed, usize::MAX)
    }

    /// Output `number` with all entries so far is being written.
    pub(super) fn being_written(&mut self, number: u64) {
        self.writing.push_back((number, self.handed));
    }

    /// Output `number` and all before it are durable.
    pub(super) fn written(&mut self, number: u64) {
        while let Some((first, covered)) = self.writing.front().copied() {
            if first > number {
                break;
            }
            self.writing.pop_front();
            self.persisted = self.persisted.max(covered);
        }
        while self.cache_bytes > self.cache_bytes_max
            && self.cache.front().is_some_and(|entry| entry.id.index <= self.persisted)
        {
            self.pop_front();
        }
    }

    /// The entries `from..=to`, as many as fit into `bytes_max`, but at least one; from memory where they are there.
    pub(super) fn read<L: ReadLog>(
        &self,
        from: Index,
        to: Index,
        bytes_max: usize,
        disk: &L,
    ) -> Result<Vec<Entry>, L::Error> {
        assert!(
            from > self.cut().index && from <= to && to <= self.last().index,
            "entries {from} to {to} are in the log"
        );
        match self.cache.front() {
            Some(first) if first.id.index <= from => Ok(self.cached(from, to, bytes_max)),
            first => {
                let to = first.map_or(to, |first| to.min(first.id.index.previous()));
                let entries = disk.read(from, to, bytes_max)?;
                assert!(
                    !entries.is_empty()
                        && entries.iter().zip(from.0..=to.0).all(|(entry, index)| entry.id.index.0 == index),
                    "a log gives entries {from} to {to} from the first on, without gaps"
                );
                let right = entries.iter().all(|entry| self.contains(entry.id));
                assert!(right, "the terms of entries {from} to {to} are those they were written with");
                Ok(entries)
            }
        }
    }

    fn cached(&self, from: Index, to: Index, bytes_max: usize) -> Vec<Entry> {
        let Some(first) = self.cache.front().map(|entry| entry.id.index) else { return Vec::new() };
        let mut bytes = 0;
        let skip = (from.0 - first.0) as usize;
        let count = (to.0 + 1 - from.0) as usize;
        self.cache
            .iter()
            .skip(skip)
            .take(count)
            .enumerate()
            .take_while(|(position, entry)| {
                bytes += entry.payload.size_bytes();
                *position == 0 || bytes <= bytes_max
            })
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    fn pop_front(&mut self) {
        if let Some(entry) = self.cache.pop_front() {
            self.cache_bytes -= entry.payload.size_bytes();
        }
    }

    fn pop_back(&mut self) {
        if let Some(entry) = self.cache.pop_back() {
            self.cache_bytes -= entry.payload.size_bytes();
        }
    }
}
