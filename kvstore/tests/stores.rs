//! Both stores under the conformance suite, and what a crash leaves of each.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::env::{SeededRng, mem_disk::MemDisk};
use ozone_kvstore::conformance::{self, Model, Step, TABLES};
use ozone_kvstore::mem::MemStore;
use ozone_kvstore::rocks::{Memory, RocksOptions, RocksStore};
use ozone_kvstore::{Batch, Error, Op, Read, Store, Table, TableOptions};
use proptest::prelude::*;

/// Keys from few letters, so that steps meet; 0x00 and 0xff among them.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0u8, b'a', b'b', 0xff]), 0..4)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![key().prop_map(Bound::Included), key().prop_map(Bound::Excluded), Just(Bound::Unbounded)]
}

fn op() -> impl Strategy<Value = Op> {
    let table = (0..TABLES.len()).prop_map(|i| TABLES[i].0);
    let value = prop_oneof![prop::collection::vec(any::<u8>(), 0..8), Just(vec![7; 400])];
    prop_oneof![
        6 => (table.clone(), key(), value).prop_map(|(table, key, value)| Op::Put { table, key: key.into(), value: value.into() }),
        2 => (table.clone(), key()).prop_map(|(table, key)| Op::Delete { table, key: key.into() }),
        1 => (table, key(), key()).prop_map(|(table, a, b)| Op::DeleteRange { table, start: a.into(), end: b.into() }),
    ]
}

fn batch() -> impl Strategy<Value = Batch> {
    prop::collection::vec(op(), 0..6).prop_map(|ops| Batch { ops })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let table = 0..TABLES.len();
    let step = prop_oneof![
        6 => batch().prop_map(Step::Write),
        1 => Just(Step::Flush),
        4 => (table.clone(), bound(), bound(), any::<bool>())
            .prop_map(|(table, start, end, reverse)| Step::Scan { table, start, end, reverse }),
        2 => (table, key(), bound()).prop_map(|(table, prefix, from)| Step::Prefix { table, prefix, from }),
    ];
    prop::collection::vec(step, 0..40)
}

fn mem() -> MemStore {
    MemStore::new(Arc::new(MemDisk::new()), &TABLES)
}

fn small() -> RocksOptions {
    RocksOptions { memory: Memory::new(8 << 20, 1 << 20), ..RocksOptions::default() }
}

/// A store and the folder that goes with it.
struct Kept(RocksStore, #[expect(dead_code, reason = "removed on drop")] tempfile::TempDir);

impl Read for Kept {
    fn get(&self, table: Table, key: &[u8]) -> ozone_kvstore::Result<Option<Bytes>> {
        self.0.get(table, key)
    }
    fn multi_get(&self, table: Table, keys: &[&[u8]]) -> ozone_kvstore::Result<Vec<Option<Bytes>>> {
        self.0.multi_get(table, keys)
    }
    fn scan(
        &self,
        table: Table,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        direction: ozone_kvstore::Direction,
    ) -> ozone_kvstore::Result<ozone_kvstore::Rows<'_>> {
        self.0.scan(table, start, end, direction)
    }
}

impl Store for Kept {
    fn write(&self, batch: &Batch) -> ozone_kvstore::Result<()> {
        self.0.write(batch)
    }
    fn flush(&self) -> ozone_kvstore::Result<()> {
        self.0.flush()
    }
    fn snapshot(&self) -> Box<dyn Read + '_> {
        self.0.snapshot()
    }
    fn checkpoint(&self, path: &Path) -> ozone_kvstore::Result<()> {
        self.0.checkpoint(path)
    }
    fn unflushed_bytes(&self) -> u64 {
        self.0.unflushed_bytes()
    }
}

fn rocks() -> Kept {
    let folder = tempfile::tempdir().unwrap();
    Kept(RocksStore::open(folder.path(), &TABLES, &small()).unwrap(), folder)
}

#[test]
fn both_stores_conform() {
    conformance::suite(|| Box::new(mem()));
    conformance::suite(|| Box::new(rocks()));
}

/// All rows away, through the trait, so that one RocksDB serves all cases of a property.
fn clear(store: &dyn Store) {
    let mut batch = Batch::new();
    for (table, key) in conformance::contents(store).into_keys() {
        batch.delete(table, key);
    }
    store.write(&batch).unwrap();
}

#[test]
fn both_stores_behave_as_the_model() {
    let on_disk = rocks();
    let config = ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in steps())| {
        conformance::run(&mem(), &steps);
        clear(&on_disk);
        conformance::run(&on_disk, &steps);
    });
}

/// Batches that write their own number into two tables, as a caller's log position.
fn numbered(number: u32, filler: usize) -> Batch {
    let mut batch = Batch::new();
    for (table, _) in TABLES {
        batch.put(table, "position", number.to_be_bytes().to_vec());
        batch.put(table, number.to_be_bytes().to_vec(), vec![number as u8; filler]);
    }
    batch
}

/// The position found, after checking that exactly the batches up to it are there, in every table.
fn prefix_held(store: &dyn Read, filler: usize) -> u32 {
    let position = store.get(TABLES[0].0, b"position").unwrap();
    let position = position.map_or(0, |bytes| u32::from_be_bytes(bytes[..].try_into().unwrap()));
    let mut should = Model::new();
    for number in 1..=position {
        conformance::apply(&mut should, &numbered(number, filler));
    }
    assert_eq!(conformance::contents(store), should, "all tables agree on the prefix up to {position}");
    position
}

#[test]
fn a_crash_of_the_twin_leaves_a_prefix_from_the_last_flush_on() {
    let (mut least, mut most) = (false, false);
    for seed in 0..60 {
        let store = mem();
        for number in 1..=10 {
            store.write(&numbered(number, 3)).unwrap();
            if number == 4 {
                store.flush().unwrap();
            }
        }
        let lost = store.crash(&SeededRng::new(seed));
        let held = prefix_held(&store, 3);
        assert_eq!(held as usize + lost, 10);
        assert!((4..=10).contains(&held));
        (least, most) = (least || held == 4, most || held == 10);
        store.write(&numbered(held + 1, 3)).unwrap();
        store.flush().unwrap();
        store.crash(&SeededRng::new(seed));
        assert_eq!(prefix_held(&store, 3), held + 1);
    }
    assert!(least && most, "both ends occur");
}

/// What kill -9 leaves: the files as they are now. The manifest goes first: what it names is complete by then.
fn image(from: &Path, to: &Path) {
    let mut names: Vec<_> = std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.retain(|name| name != "LOCK");
    names.sort_by_key(|name| name.as_encoded_bytes()[0].is_ascii_digit());
    for name in names {
        // A file that nothing names any more may go meanwhile.
        if let Err(error) = std::fs::copy(from.join(&name), to.join(&name)) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        }
    }
}

#[test]
fn a_killed_rocksdb_holds_exactly_what_was_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let store = RocksStore::open(folder.path(), &TABLES, &RocksOptions::default()).unwrap();
    for number in 1..=10 {
        store.write(&numbered(number, 3)).unwrap();
        if number == 4 {
            store.flush().unwrap();
        }
    }
    let killed = tempfile::tempdir().unwrap();
    image(folder.path(), killed.path());
    let reopened = RocksStore::open(killed.path(), &TABLES, &RocksOptions::default()).unwrap();
    assert_eq!(prefix_held(&reopened, 3), 4);
    drop(store);
    let closed = RocksStore::open(folder.path(), &TABLES, &RocksOptions::default()).unwrap();
    assert!(prefix_held(&closed, 3) >= 4, "an orderly end may hold more, never less");
}

#[test]
fn flushes_forced_by_memory_cut_all_tables_at_one_batch() {
    let folder = tempfile::tempdir().unwrap();
    let store = RocksStore::open(folder.path(), &TABLES, &small()).unwrap();
    let (mut last, mut forced) = (0, 0);
    for number in 1..=60 {
        store.write(&numbered(number, 20_000)).unwrap();
        if number % 15 == 0 {
            let killed = tempfile::tempdir().unwrap();
            // A flush may be running: its files count once the manifest names them; a copy of a moment's mix may not open at all.
            image(folder.path(), killed.path());
            if let Ok(reopened) = RocksStore::open(killed.path(), &TABLES, &small()) {
                let held = prefix_held(&reopened, 20_000);
                assert!(held >= last);
                forced += u32::from(held > last);
                last = held;
            }
        }
    }
    assert!(forced > 0, "memory of 1 MiB forced flushes of 3.6 MiB");
}

#[test]
fn checkpoints_open_as_stores_and_stand_still() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(MemDisk::new());
    let on_disk = RocksStore::open(&folder.path().join("store"), &TABLES, &small()).unwrap();
    let in_memory = MemStore::new(disk.clone(), &TABLES);
    let check = |store: &dyn Store, path: &Path, open: &dyn Fn() -> Box<dyn Store>| {
        store.write(&numbered(1, 300)).unwrap();
        store.checkpoint(path).unwrap();
        store.write(&numbered(2, 300)).unwrap();
        assert!(matches!(store.checkpoint(path), Err(Error::Io { .. })), "must not exist");
        let copy = open();
        assert_eq!(prefix_held(copy.as_ref(), 300), 1);
        copy.write(&numbered(2, 300)).unwrap();
        copy.write(&numbered(3, 300)).unwrap();
        assert_eq!((prefix_held(copy.as_ref(), 300), prefix_held(store, 300)), (3, 2), "apart from each other");
    };
    let path = folder.path().join("checkpoint");
    check(&on_disk, &path, &|| Box::new(RocksStore::open(&path, &TABLES, &small()).unwrap()));
    let path = Path::new("/checkpoint");
    check(&in_memory, path, &|| Box::new(MemStore::open_checkpoint(disk.clone(), path, &TABLES).unwrap()));

    disk.corrupt(&path.join("rows.mem"), 9, 0x40);
    assert!(matches!(MemStore::open_checkpoint(disk.clone(), path, &TABLES), Err(Error::Corrupt { .. })));
}

#[test]
fn damage_and_foreign_tables_are_told_from_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let extra = [&TABLES[..], &[(Table("newer"), TableOptions::Rows)]].concat();
    {
        let store = RocksStore::open(folder.path(), &extra, &small()).unwrap();
        store.write(&numbered(1, 5000)).unwrap();
        store.flush().unwrap();
        assert!(matches!(RocksStore::open(folder.path(), &extra, &small()), Err(Error::Io { .. })), "locked");
    }
    match RocksStore::open(folder.path(), &TABLES, &small()) {
        Err(Error::UnknownTable { table, .. }) => assert_eq!(table, "newer"),
        other => panic!("{:?}", other.err()),
    }
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "sst") {
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 3;
            bytes[middle] ^= 0x10;
            #[expect(clippy::disallowed_methods, reason = "the damage itself")]
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let outcome = RocksStore::open(folder.path(), &extra, &small()).and_then(|store| {
        for (table, _) in extra.iter() {
            store.get(*table, &1u32.to_be_bytes())?;
            store
                .scan(*table, Bound::Unbounded, Bound::Unbounded, ozone_kvstore::Direction::Forward)?
                .collect::<Result<Vec<_>, _>>()?;
        }
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
}
