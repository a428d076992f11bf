//! Listings against a sorted list of keys: odd keys, every kind of delimiter, tiny pages.

use std::collections::BTreeSet;

use ozone_common::replication::Replication;
use ozone_consensus::overlay::View;
use ozone_proto::om::v1 as om;
use proptest::prelude::*;

use super::command::*;
use super::list;
use super::model_test::{World, address, client, name};

/// What a listing shows, from a sorted list of keys.
fn model_page(
    keys: &BTreeSet<Vec<u8>>,
    prefix: &[u8],
    delimiter: &[u8],
    after: &[u8],
    limit: usize,
) -> (Vec<(bool, Vec<u8>)>, bool) {
    let mut entries: Vec<(bool, Vec<u8>)> = Vec::new();
    for key in keys.iter().filter(|key| key.starts_with(prefix)) {
        let rest = &key[prefix.len()..];
        let at =
            (!delimiter.is_empty()).then(|| (0..rest.len()).find(|at| rest[*at..].starts_with(delimiter))).flatten();
        let entry = match at {
            Some(at) => (true, key[..prefix.len() + at + delimiter.len()].to_vec()),
            None => (false, key.clone()),
        };
        if entry.1.as_slice() > after && entries.last() != Some(&entry) {
            entries.push(entry);
        }
    }
    let truncated = entries.len() > limit;
    entries.truncate(limit);
    (entries, truncated)
}

fn odd_key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(b'a'), Just(b'/'), Just(b'.'), Just(0u8), Just(0xff), Just(b'\n'), Just(b'b')];
    proptest::collection::vec(byte, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn listings_equal_the_model(
        keys in proptest::collection::btree_set(odd_key(), 0..25),
        prefix in prop_oneof![Just(Vec::new()), odd_key()],
        delimiter in prop_oneof![Just(Vec::new()), Just(b"/".to_vec()), Just(b"a/".to_vec()), Just(vec![0]), Just(vec![0xff])],
        after in prop_oneof![Just(Vec::new()), odd_key()],
        limit in 1..4usize,
    ) {
        let mut world = World::new(1);
        let at = ("vol".to_owned(), "buc".to_owned());
        world.run(Command::CreateBucket(CreateBucket {
            address: address(&at), owner: "o".into(), replication: Replication::Three, memory_durability: false,
            inline: InlinePolicy::Never, create_volume: true, members: 1,
        })).unwrap();
        for key in &keys {
            world.run(Command::CommitKey(CommitKey {
                holder: client(0), owner: "o".into(), address: address(&at), bucket: None, key: name(key), length: 0, facts: Facts::default(),
                data: Data::Blocks { blocks: Vec::new(), grants: Vec::new() }, conditions: Conditions::default(), members: 1,
            })).unwrap();
            world.run(Command::InitiateUpload(InitiateUpload {
                address: address(&at), key: name(key), owner: "o".into(), facts: Facts::default(), random: 1,
            })).unwrap();
        }
        let view = View::new(&world.store, &world.overlay);
        let mut start = after;
        for _ in 0..40 {
            let (want, truncated) = model_page(&keys, &prefix, &delimiter, &start, limit);
            let request = om::ListKeys {
                prefix: prefix.clone().into(), delimiter: delimiter.clone().into(), start_after: start.clone().into(),
                limit: limit as u32, bucket: None,
            };
            let page = list::keys(&view, &address(&at), &request).unwrap();
            let mut got: Vec<(bool, Vec<u8>)> = page.keys.iter().map(|info| (false, info.key.to_vec()))
                .chain(page.common_prefixes.iter().map(|common| (true, common.to_vec()))).collect();
            got.sort_by(|a, b| a.1.cmp(&b.1));
            prop_assert_eq!(&got, &want);
            prop_assert_eq!(page.truncated, truncated);
            let uploads = list::uploads(&view, &address(&at), &om::ListUploads {
                prefix: prefix.clone().into(), delimiter: delimiter.clone().into(), key_marker: start.clone().into(),
                upload_marker: String::new(), limit: limit as u32, bucket: None,
            }).unwrap();
            prop_assert_eq!(uploads.uploads.len(), page.keys.len());
            prop_assert_eq!(uploads.uploads.iter().map(|u| &u.key).collect::<Vec<_>>(), page.keys.iter().map(|k| &k.key).collect::<Vec<_>>());
            prop_assert_eq!(&uploads.common_prefixes, &page.common_prefixes);
            prop_assert_eq!(uploads.truncated, truncated);
            if !truncated {
                break;
            }
            prop_assert_eq!(page.last.as_ref(), want.last().unwrap().1.as_slice());
            start = page.last.to_vec();
        }
    }
}
