//! One suite for every implementation of [`Store`]: fixed cases, and runs of steps compared with a model.
//!
//! Panics where a store differs. Tests of this crate run it on both stores; steps come from a property test.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::{Batch, Direction, Error, Op, Read, Row, Store, Table, TableOptions, prefix_end};

/// The tables a store under test must have been opened with.
pub const TABLES: [(Table, TableOptions); 3] = [
    (Table("rows"), TableOptions::Rows),
    (Table("queue"), TableOptions::Queue),
    (Table("values"), TableOptions::Values),
];

/// What a store should hold: the simplest thing with the same meaning.
pub type Model = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// One step of a run.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes a batch.
    Write(Batch),
    /// Flushes.
    Flush,
    /// Compares a scan.
    Scan {
        /// Index into [`TABLES`].
        table: usize,
        /// Where it begins.
        start: Bound<Vec<u8>>,
        /// Where it ends.
        end: Bound<Vec<u8>>,
        /// Which way.
        reverse: bool,
    },
    /// Compares a prefix scan.
    Prefix {
        /// Index into [`TABLES`].
        table: usize,
        /// The prefix.
        prefix: Vec<u8>,
        /// Where it begins.
        from: Bound<Vec<u8>>,
    },
}

/// Carries a batch out on a model.
pub fn apply(model: &mut Model, batch: &Batch) {
    for op in &batch.ops {
        match op {
            Op::Put { table, key, value } => {
                model.insert((*table, key.to_vec()), value.to_vec());
            }
            Op::Delete { table, key } => {
                model.remove(&(*table, key.to_vec()));
            }
            Op::DeleteRange { table, start, end } => {
                model.retain(|(of, key), _| of != table || &key[..] < start || &key[..] >= end);
            }
        }
    }
}

/// Runs steps on a store and a model; they must agree after each, and a snapshot taken on the way must not move.
pub fn run(store: &dyn Store, steps: &[Step]) -> Model {
    let mut model = Model::new();
    let (first, second) = steps.split_at(steps.len() / 2);
    for step in first {
        one_step(store, &mut model, step);
    }
    let before = model.clone();
    let snapshot = store.snapshot();
    let table = TABLES[0].0;
    let scan = store.scan(table, Bound::Unbounded, Bound::Unbounded, Direction::Forward).unwrap();
    for step in second {
        one_step(store, &mut model, step);
    }
    compare(snapshot.as_ref(), &before);
    let scanned: Vec<Row> = scan.collect::<Result<_, _>>().unwrap();
    assert_eq!(
        scanned,
        expected(&before, table, Bound::Unbounded, Bound::Unbounded),
        "a scan shows the moment of its call"
    );
    compare(store, &model);
    model
}

fn one_step(store: &dyn Store, model: &mut Model, step: &Step) {
    match step {
        Step::Write(batch) => {
            store.write(batch).unwrap();
            apply(model, batch);
            for op in &batch.ops {
                if let Op::Put { table, key, .. } | Op::Delete { table, key } = op {
                    let should = model.get(&(*table, key.to_vec()));
                    assert_eq!(store.get(*table, key).unwrap().as_deref(), should.map(|v| &v[..]));
                }
            }
        }
        Step::Flush => store.flush().unwrap(),
        Step::Scan { table, start, end, reverse } => {
            let table = TABLES[*table].0;
            let (start, end) = (start.as_ref().map(|k| &k[..]), end.as_ref().map(|k| &k[..]));
            let direction = if *reverse { Direction::Reverse } else { Direction::Forward };
            let mut should = expected(model, table, start, end);
            if *reverse {
                should.reverse();
            }
            let found: Vec<Row> = store.scan(table, start, end, direction).unwrap().collect::<Result<_, _>>().unwrap();
            assert_eq!(found, should, "{step:?}");
        }
        Step::Prefix { table, prefix, from } => {
            let table = TABLES[*table].0;
            let from = from.as_ref().map(|k| &k[..]);
            let mut should = expected(model, table, from, Bound::Unbounded);
            should.retain(|(key, _)| key.starts_with(prefix));
            let found: Vec<Row> = store.scan_prefix(table, prefix, from).unwrap().collect::<Result<_, _>>().unwrap();
            assert_eq!(found, should, "{step:?}");
        }
    }
}

fn expected(model: &Model, of: Table, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Vec<Row> {
    let inside = |key: &[u8]| {
        (match start {
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
            Bound::Unbounded => true,
        }) && (match end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        })
    };
    model
        .iter()
        .filter(|((table, key), _)| *table == of && inside(key))
        .map(|((_, key), value)| (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)))
        .collect()
}

/// Panics unless `store` holds exactly the rows of `model`.
pub fn compare(store: &dyn Read, model: &Model) {
    assert_eq!(contents(store), *model);
    for (table, _) in TABLES {
        let keys: Vec<&[u8]> = model.keys().filter(|(of, _)| *of == table).map(|(_, key)| &key[..]).collect();
        let found = store.multi_get(table, &keys).unwrap();
        assert!(found.len() == keys.len() && found.iter().all(Option::is_some));
    }
}

/// All rows of a store.
pub fn contents(store: &dyn Read) -> Model {
    let mut found = Model::new();
    for (table, _) in TABLES {
        for row in store.scan(table, Bound::Unbounded, Bound::Unbounded, Direction::Forward).unwrap() {
            let (key, value) = row.unwrap();
            found.insert((table, key.to_vec()), value.to_vec());
        }
    }
    found
}

/// The fixed cases, each on a store of its own.
pub fn suite(make: impl Fn() -> Box<dyn Store>) {
    batches_are_whole_and_in_order(make().as_ref());
    prefixes_end_where_they_should(make().as_ref());
    large_and_empty_values_come_back(make().as_ref());
    snapshots_do_not_move(make().as_ref());
    unlisted_tables_are_refused_whole(make().as_ref());
    unflushed_bytes_grow_and_shrink(make().as_ref());
}

fn batches_are_whole_and_in_order(store: &dyn Store) {
    let [rows, queue, _] = TABLES.map(|(table, _)| table);
    let mut batch = Batch::new();
    batch.put(rows, "a", "1");
    batch.put(queue, "a", "2");
    batch.put(rows, "a", "3");
    batch.put(rows, "b", "4");
    batch.delete(rows, "b");
    batch.put(rows, "c", "5");
    batch.delete_range(rows, "c", "d");
    batch.put(rows, "c1", "6");
    batch.delete_range(rows, "z", "a");
    store.write(&batch).unwrap();
    assert_eq!(store.get(rows, b"a").unwrap().as_deref(), Some(&b"3"[..]), "the later change wins");
    assert_eq!(store.get(queue, b"a").unwrap().as_deref(), Some(&b"2"[..]), "tables are apart");
    assert_eq!(store.get(rows, b"b").unwrap(), None);
    assert_eq!(store.get(rows, b"c").unwrap(), None);
    assert_eq!(store.get(rows, b"c1").unwrap().as_deref(), Some(&b"6"[..]), "put after the range delete");
    let found = store.multi_get(rows, &[b"c1", b"nothing", b"a"]).unwrap();
    assert_eq!(found, [Some(Bytes::from_static(b"6")), None, Some(Bytes::from_static(b"3"))], "in the order asked");
    store.write(&Batch::new()).unwrap();
}

fn prefixes_end_where_they_should(store: &dyn Store) {
    assert_eq!(prefix_end(b"a"), Some(b"b".to_vec()));
    assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
    assert_eq!(prefix_end(b"\xff\xff"), None);
    assert_eq!(prefix_end(b""), None);
    let table = TABLES[0].0;
    let mut batch = Batch::new();
    let keys: [&[u8]; 9] = [b"", b"a", b"a\0", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff", b"\xff\xff\0"];
    for key in keys {
        batch.put(table, Bytes::from_static(key), "x");
    }
    store.write(&batch).unwrap();
    for prefix in [&b""[..], b"a", b"a\xff", b"b", b"c", b"\xff", b"\xff\xff", b"\xff\xff\xff"] {
        let found: Vec<Bytes> =
            store.scan_prefix(table, prefix, Bound::Unbounded).unwrap().map(|row| row.unwrap().0).collect();
        let should: Vec<&[u8]> = keys.into_iter().filter(|key| key.starts_with(prefix)).collect();
        assert_eq!(found, should, "prefix {prefix:?}");
    }
    let mut rest = store.scan_prefix(table, b"a", Bound::Excluded(b"a\xff")).unwrap();
    assert_eq!(rest.next().unwrap().unwrap().0, &b"a\xff\xff"[..]);
    assert!(rest.next().is_none());
    assert!(rest.next().is_none(), "an ended scan stays ended");
}

fn large_and_empty_values_come_back(store: &dyn Store) {
    for (table, _) in TABLES {
        for length in [0, 1, 255, 256, 257, 4096, 200_000] {
            let mut batch = Batch::new();
            let key = Bytes::from(format!("{length:06}"));
            let value: Bytes = (0..length).map(|i| (i * 31 % 251) as u8).collect::<Vec<u8>>().into();
            batch.put(table, key.clone(), value.clone());
            store.write(&batch).unwrap();
            assert_eq!(store.get(table, &key).unwrap(), Some(value.clone()));
            store.flush().unwrap();
            assert_eq!(store.get(table, &key).unwrap(), Some(value), "from disk");
        }
    }
}

fn snapshots_do_not_move(store: &dyn Store) {
    let [rows, queue, _] = TABLES.map(|(table, _)| table);
    let mut batch = Batch::new();
    batch.put(rows, "k", "old");
    batch.put(queue, "k", "old");
    store.write(&batch).unwrap();
    let snapshot = store.snapshot();
    let mut batch = Batch::new();
    batch.put(rows, "k", "new");
    batch.delete_range(queue, "", "z");
    store.write(&batch).unwrap();
    store.flush().unwrap();
    assert_eq!(snapshot.get(rows, b"k").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(snapshot.scan_prefix(queue, b"", Bound::Unbounded).unwrap().count(), 1);
    assert_eq!(store.scan_prefix(queue, b"", Bound::Unbounded).unwrap().count(), 0);
}

fn unlisted_tables_are_refused_whole(store: &dyn Store) {
    let nowhere = Table("nowhere");
    let mut batch = Batch::new();
    batch.put(TABLES[0].0, "k", "v");
    batch.put(nowhere, "k", "v");
    assert!(matches!(store.write(&batch), Err(Error::UnknownTable { .. })));
    assert!(matches!(store.get(nowhere, b"k"), Err(Error::UnknownTable { .. })));
    assert_eq!(store.get(TABLES[0].0, b"k").unwrap(), None, "nothing of the batch");
}

fn unflushed_bytes_grow_and_shrink(store: &dyn Store) {
    store.flush().unwrap();
    let before = store.unflushed_bytes();
    let mut batch = Batch::new();
    batch.put(TABLES[0].0, "k", vec![7; 1 << 20]);
    store.write(&batch).unwrap();
    assert!(store.unflushed_bytes() >= before + (1 << 20));
    store.flush().unwrap();
    assert!(store.unflushed_bytes() < before + (1 << 20));
}
