//! What the core costs: a commit, a lookup, a listed key, and bytes on disk per small-file key.
//!
//! `cargo bench -p ozone-om` (arguments: number of keys).

#![allow(missing_docs, reason = "a program")]

use std::sync::Arc;
use std::time::Instant;

use ozone_common::id::{ClientId, ContainerId, GrantId};
use ozone_common::name::{BucketName, KeyName, VolumeName};
use ozone_common::replication::Replication;
use ozone_consensus::executor::Stamp;
use ozone_consensus::overlay::{Overlay, View};
use ozone_kvstore::rocks::{RocksOptions, RocksStore};
use ozone_kvstore::{Batch, Store};
use ozone_om::core::command::{
    AcquireGrant, Address, Command, CommitKey, Conditions, CreateBucket, Data, Facts, InlinePolicy,
};
use ozone_om::core::{Settings, execute, list_keys, lookup};
use ozone_om::tables::TABLES;
use ozone_om::tables::grant::GrantRange;
use ozone_proto::common::v1::Block;

const BATCH: usize = 32;

struct World {
    store: Arc<RocksStore>,
    overlay: Overlay,
    waiting: Vec<(u64, Batch)>,
    sequence: u64,
}

impl World {
    fn run(&mut self, command: Command) {
        self.sequence += 1;
        let stamp = Stamp { now_ms: 1_790_000_000_000 + self.sequence, term: 1, sequence: self.sequence };
        let view = View::new(&*self.store, &self.overlay);
        let settings = Settings { read_token_life_ms: 60_000, inline_max: 4096 };
        let effects = execute(&settings, &view, stamp, command).expect("the store reads");
        effects.reply.expect("nothing is refused");
        self.overlay.add(self.sequence, &effects.rows);
        self.waiting.push((self.sequence, effects.rows));
    }

    fn apply(&mut self) {
        let mut whole = Batch::new();
        for (_, batch) in &self.waiting {
            whole.extend(batch.clone());
        }
        self.store.write(&whole).expect("the store writes");
        for (number, batch) in self.waiting.drain(..) {
            self.overlay.applied(number, &batch);
        }
    }
}

fn name(at: usize) -> KeyName {
    KeyName::new(format!("data/set-{:04}/part-{:08}-{:016x}", at / 1000, at, at * 0x9e37_79b9)).expect("a valid key")
}

fn main() {
    let count: usize = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(100_000);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Arc::new(RocksStore::open(folder.path(), TABLES, &RocksOptions::default()).expect("a store"));
    let mut world = World { store, overlay: Overlay::default(), waiting: Vec::new(), sequence: 0 };
    let address = Address {
        volume: VolumeName::new("s3v").expect("a valid name"),
        bucket: BucketName::new("bench").expect("a valid name"),
    };
    world.run(Command::CreateBucket(CreateBucket {
        address: address.clone(),
        owner: "root".into(),
        replication: Replication::Three,
        memory_durability: false,
        inline: InlinePolicy::Never,
        create_volume: true,
        members: 1,
    }));
    let holder = ClientId::from_bytes([1; 16]);
    let (mut spent, mut applying) = (0.0, 0.0);
    let mut grant = (GrantId(0), 0u64);
    for at in 0..count {
        if at % 1024 == 0 {
            let container = 1 + at as u64 / 1024;
            let ranges = vec![GrantRange { container, first_local: 0, count: 1024, epoch: 1, epoch_raised: 0 }];
            world.run(Command::AcquireGrant(AcquireGrant {
                holder,
                replication: Replication::Three,
                max_block_length: 1 << 20,
                ranges,
                life_ms: 600_000,
                min_replicas: 2,
            }));
            grant = (GrantId(world.sequence), container);
        }
        let block = ContainerId::new(grant.1).and_then(|c| c.block((at % 1024) as u32)).expect("a valid block");
        let started = Instant::now();
        world.run(Command::CommitKey(CommitKey {
            holder,
            owner: "root".into(),
            address: address.clone(),
            bucket: None,
            key: name(at),
            length: 4096,
            facts: Facts {
                etag_md5: (at as u128 * 0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec().into(),
                content_type: 2,
                ..Facts::default()
            },
            data: Data::Blocks {
                blocks: vec![Block { id: block.get(), epoch: 1, length: 4096, crc32c: at as u32 ^ 0x5555_aaaa }],
                grants: vec![grant.0],
            },
            conditions: Conditions::default(),
            members: 1,
        }));
        spent += started.elapsed().as_secs_f64();
        if at % BATCH == BATCH - 1 {
            let started = Instant::now();
            world.apply();
            applying += started.elapsed().as_secs_f64();
        }
    }
    world.apply();
    println!("commit: execute {:.2} us, apply {:.2} us", spent * 1e6 / count as f64, applying * 1e6 / count as f64);
    world.store.flush().expect("the store flushes");
    for (table, _) in TABLES {
        world.store.compact(*table, None, None).expect("the store compacts");
    }
    let size: u64 = std::fs::read_dir(folder.path())
        .expect("a folder")
        .filter_map(|entry| entry.ok())
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "sst" || extension == "blob"))
        .map(|entry| entry.metadata().map_or(0, |meta| meta.len()))
        .sum();
    println!("disk: {:.1} bytes per key of {} characters", size as f64 / count as f64, name(0).as_bytes().len());

    let started = Instant::now();
    let lookups = count.min(100_000);
    for at in 0..lookups {
        lookup(&*world.store, &address, &name(at.wrapping_mul(7919) % count)).expect("it is there");
    }
    println!("lookup: {:.2} us", started.elapsed().as_secs_f64() * 1e6 / lookups as f64);
    let started = Instant::now();
    let (mut after, mut listed) = (bytes::Bytes::new(), 0);
    loop {
        let page = list_keys(&*world.store, &address, after).expect("a page");
        listed += page.keys.len();
        after = page.last;
        if !page.truncated {
            break;
        }
    }
    assert_eq!(listed, count);
    println!("list: {:.2} us per key", started.elapsed().as_secs_f64() * 1e6 / count as f64);
}
