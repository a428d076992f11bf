//! The leader's view: applied rows plus the effects of commands that are executed but not applied yet.
//!
//! The overlay belongs to one term and dies with leadership. Entries leave it when their batch is applied, by number, so that a
//! later change of the same row stays.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use ozone_kvstore::{Batch, Direction, Op, Read, Result, Row, Rows, Table};

/// Row changes not yet applied, newest per row, with the number of the batch that made them.
#[derive(Default)]
pub struct Overlay {
    rows: BTreeMap<(Table, Bytes), (u64, Option<Bytes>)>,
    /// Range deletes in order: rows of the store (not of the overlay) inside are hidden.
    ranges: Vec<(u64, Table, Bytes, Bytes)>,
}

impl Overlay {
    /// Puts a batch over everything before it. `number` grows from batch to batch.
    pub fn add(&mut self, number: u64, batch: &Batch) {
        for op in &batch.ops {
            match op {
                Op::Put { table, key, value } => {
                    self.rows.insert((*table, key.clone()), (number, Some(value.clone())));
                }
                Op::Delete { table, key } => {
                    self.rows.insert((*table, key.clone()), (number, None));
                }
                Op::DeleteRange { table, start, end } => {
                    let inside: Vec<_> = self
                        .rows
                        .range((*table, start.clone())..(*table, end.clone()))
                        .map(|(key, _)| key.clone())
                        .collect();
                    for key in inside {
                        self.rows.insert(key, (number, None));
                    }
                    self.ranges.push((number, *table, start.clone(), end.clone()));
                }
            }
        }
    }

    /// Forgets batches up to `number`, which the store has by now. `batch` is the one of that number.
    pub fn applied(&mut self, number: u64, batch: &Batch) {
        for op in &batch.ops {
            if let Op::Put { table, key, .. } | Op::Delete { table, key } = op {
                let key = (*table, key.clone());
                if self.rows.get(&key).is_some_and(|(at, _)| *at <= number) {
                    self.rows.remove(&key);
                }
            }
        }
        let before = self.ranges.len();
        self.ranges.retain(|(at, ..)| *at > number);
        if self.ranges.len() != before {
            self.rows.retain(|_, (at, _)| *at > number);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.ranges.clear();
    }

    /// Whether everything is applied.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.ranges.is_empty()
    }

    fn hidden(&self, table: Table, key: &[u8]) -> bool {
        self.ranges.iter().any(|(_, of, start, end)| *of == table && start <= key && key < end)
    }
}

/// The store with an overlay on top.
pub struct View<'a> {
    store: &'a dyn Read,
    overlay: &'a Overlay,
}

impl<'a> View<'a> {
    /// Puts `overlay` over `store`.
    pub fn new(store: &'a dyn Read, overlay: &'a Overlay) -> Self {
        Self { store, overlay }
    }
}

impl Read for View<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        // The map is keyed by owned bytes; a copy of the key is cheaper than a second map per table.
        match self.overlay.rows.get(&(table, Bytes::copy_from_slice(key))) {
            Some((_, value)) => Ok(value.clone()),
            None if self.overlay.hidden(table, key) => Ok(None),
            None => self.store.get(table, key),
        }
    }

    fn scan(&self, table: Table, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> Result<Rows<'_>> {
        let own = |bound: Bound<&[u8]>, unbounded: Bound<(Table, Bytes)>| match bound {
            Bound::Included(key) => Bound::Included((table, Bytes::copy_from_slice(key))),
            Bound::Excluded(key) => Bound::Excluded((table, Bytes::copy_from_slice(key))),
            Bound::Unbounded => unbounded,
        };
        let below = own(start, Bound::Included((table, Bytes::new())));
        // The end of a table: walk on and stop at the next table's first row.
        let above = own(end, Bound::Unbounded);
        if is_empty(start, end) {
            return Ok(Box::new(std::iter::empty()));
        }
        let rows = self.overlay.rows.range((below, above));
        let over: Box<dyn Iterator<Item = (&Bytes, &Option<Bytes>)> + Send> = match direction {
            Direction::Forward => {
                Box::new(rows.take_while(move |((of, _), _)| *of == table).map(|((_, key), (_, value))| (key, value)))
            }
            Direction::Reverse => Box::new(
                rows.rev().skip_while(move |((of, _), _)| *of != table).map(|((_, key), (_, value))| (key, value)),
            ),
        };
        Ok(Box::new(Merge {
            store: self.store.scan(table, start, end, direction)?.peekable(),
            over: over.peekable(),
            overlay: self.overlay,
            table,
            direction,
        }))
    }
}

fn is_empty(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        _ => false,
    }
}

type OverRows<'a> = Box<dyn Iterator<Item = (&'a Bytes, &'a Option<Bytes>)> + Send + 'a>;

struct Merge<'a> {
    store: std::iter::Peekable<Rows<'a>>,
    over: std::iter::Peekable<OverRows<'a>>,
    overlay: &'a Overlay,
    table: Table,
    direction: Direction,
}

impl Iterator for Merge<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let order = match (self.store.peek(), self.over.peek()) {
                (None, None) => return None,
                (Some(Err(_)), _) => return self.store.next(),
                (Some(Ok(_)), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(Ok((below, _))), Some((above, _))) => match self.direction {
                    Direction::Forward => below.cmp(above),
                    Direction::Reverse => below.cmp(above).reverse(),
                },
            };
            if order == std::cmp::Ordering::Less {
                let row = self.store.next();
                match &row {
                    Some(Ok((key, _))) if self.overlay.hidden(self.table, key) => continue,
                    _ => return row,
                }
            }
            if order == std::cmp::Ordering::Equal {
                self.store.next();
            }
            if let Some((key, Some(value))) = self.over.next() {
                return Some(Ok((key.clone(), value.clone())));
            }
        }
    }
}
