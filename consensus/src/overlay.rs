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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: Table = Table("a");
    const B: Table = Table("b");

    /// Rows applied so far; reads are those of a plain map.
    #[derive(Clone, Default)]
    struct Rowset(BTreeMap<(Table, Bytes), Bytes>);

    impl Rowset {
        fn apply(&mut self, batch: &Batch) {
            for op in &batch.ops {
                match op {
                    Op::Put { table, key, value } => {
                        self.0.insert((*table, key.clone()), value.clone());
                    }
                    Op::Delete { table, key } => {
                        self.0.remove(&(*table, key.clone()));
                    }
                    Op::DeleteRange { table, start, end } => {
                        self.0.retain(|(of, key), _| of != table || key < start || key >= end);
                    }
                }
            }
        }
    }

    impl Read for Rowset {
        fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
            Ok(self.0.get(&(table, Bytes::copy_from_slice(key))).cloned())
        }
        fn scan(&self, table: Table, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> Result<Rows<'_>> {
            use std::ops::RangeBounds;
            let mut rows: Vec<Row> = self
                .0
                .iter()
                .filter(|((of, key), _)| *of == table && RangeBounds::<[u8]>::contains(&(start, end), &key[..]))
                .map(|((_, key), value)| (key.clone(), value.clone()))
                .collect();
            if direction == Direction::Reverse {
                rows.reverse();
            }
            Ok(Box::new(rows.into_iter().map(Ok)))
        }
    }

    fn key() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(0u8..3, 0..3).prop_map(Bytes::from)
    }

    fn op() -> impl Strategy<Value = Op> {
        let table = prop_oneof![Just(A), Just(B)];
        (table, key(), key(), 0u8..10, any::<u8>()).prop_map(|(table, one, two, kind, value)| match kind {
            0..=5 => Op::Put { table, key: one, value: Bytes::from(vec![value]) },
            6..=8 => Op::Delete { table, key: one },
            _ => Op::DeleteRange { table, start: one.clone().min(two.clone()), end: one.max(two) },
        })
    }

    #[derive(Debug, Clone)]
    enum Step {
        Execute(Vec<Op>),
        Apply,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![3 => proptest::collection::vec(op(), 1..5).prop_map(Step::Execute), 2 => Just(Step::Apply)]
    }

    fn all(read: &dyn Read, table: Table, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> Vec<Row> {
        read.scan(table, start, end, direction).unwrap().map(|row| row.unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        /// Whatever is executed and applied in whatever order, the view shows the same as if all had been applied at once.
        #[test]
        fn the_view_equals_the_state_with_everything_applied(steps in proptest::collection::vec(step(), 1..25), low in key(), high in key()) {
            let (mut applied, mut whole) = (Rowset::default(), Rowset::default());
            let mut overlay = Overlay::default();
            let (mut next, mut waiting) = (1, std::collections::VecDeque::new());
            for step in steps {
                match step {
                    Step::Execute(ops) => {
                        let batch = Batch { ops };
                        whole.apply(&batch);
                        overlay.add(next, &batch);
                        waiting.push_back((next, batch));
                        next += 1;
                    }
                    Step::Apply => if let Some((number, batch)) = waiting.pop_front() {
                        applied.apply(&batch);
                        overlay.applied(number, &batch);
                    }
                }
                let view = View::new(&applied, &overlay);
                for table in [A, B] {
                    for direction in [Direction::Forward, Direction::Reverse] {
                        let bounds = [
                            (Bound::Unbounded, Bound::Unbounded),
                            (Bound::Included(&low[..]), Bound::Excluded(&high[..])),
                            (Bound::Excluded(&low[..]), Bound::Included(&high[..])),
                            (Bound::Included(&low[..]), Bound::Unbounded),
                        ];
                        for (start, end) in bounds {
                            if is_empty(start, end) { continue; }
                            prop_assert_eq!(all(&view, table, start, end, direction), all(&whole, table, start, end, direction));
                        }
                    }
                    for key in [&low, &high] {
                        prop_assert_eq!(view.get(table, key).unwrap(), whole.get(table, key).unwrap());
                    }
                }
            }
            while let Some((number, batch)) = waiting.pop_front() {
                applied.apply(&batch);
                overlay.applied(number, &batch);
            }
            prop_assert!(overlay.is_empty());
        }
    }
}
