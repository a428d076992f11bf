//! Listings: single answers, and whole walks over pages against a plain model.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::test_support::{Answer, Fixture, call};
use crate::route::percent_encode;

const LIST: &str = "ListBucketResult";

fn url(text: &str) -> String {
    let mut out = Vec::new();
    percent_encode(text.as_bytes(), false, &mut out);
    String::from_utf8(out).unwrap()
}

fn keys(answer: &Answer, root: &str) -> Vec<String> {
    answer.all(root, "Key")
}

/// Common prefixes: `Prefix` stands once at the top, too.
fn common(answer: &Answer, root: &str) -> Vec<String> {
    answer.all(root, "Prefix").split_off(1)
}

async fn filled(keys: &[&str]) -> Fixture {
    let fixture = Fixture::new().await;
    for key in keys {
        fixture.put(&url(key), "x").await;
    }
    fixture
}

#[tokio::test]
async fn what_an_answer_says() {
    let fixture = filled(&["a b", "a+b/c", "a+b/d", "z"]).await;
    let v1 = fixture.send(call("GET", "/bucket?prefix=a&delimiter=/&max-keys=1&marker=a")).await.ok();
    assert_eq!((keys(&v1, LIST), common(&v1, LIST)), (vec!["a b".to_owned()], vec![]));
    for (name, value) in [
        ("Name", "bucket"),
        ("Marker", "a"),
        ("NextMarker", "a b"),
        ("MaxKeys", "1"),
        ("Delimiter", "/"),
        ("IsTruncated", "true"),
        ("LastModified", "1994-11-06T08:49:37.000Z"),
        ("ETag", "\"9dd4e461268c8034f5c8564e155c67a6\""),
        ("Size", "1"),
        ("StorageClass", "STANDARD"),
        ("ID", "alice"),
        ("ChecksumAlgorithm", "CRC64NVME"),
    ] {
        assert_eq!(v1.one(LIST, name), value, "{name}");
    }
    let plain = fixture.send(call("GET", "/bucket?max-keys=1")).await.ok();
    assert!(plain.all(LIST, "NextMarker").is_empty(), "without a delimiter the last key is the marker");

    let v2 = "/bucket?list-type=2&prefix=a&delimiter=/&encoding-type=url";
    let answer = fixture.send(call("GET", v2)).await.ok();
    assert_eq!((keys(&answer, LIST), common(&answer, LIST)), (vec!["a%20b".to_owned()], vec!["a%2Bb/".to_owned()]));
    assert_eq!((answer.one(LIST, "KeyCount"), answer.one(LIST, "EncodingType")), ("2".into(), "url".into()));
    assert!(answer.all(LIST, "Owner").is_empty() && answer.all(LIST, "NextContinuationToken").is_empty());
    let owned = fixture.send(call("GET", format!("{v2}&fetch-owner=true"))).await.ok();
    assert_eq!(owned.one(LIST, "ID"), "alice");

    let none = fixture.send(call("GET", "/bucket?list-type=2&max-keys=0&start-after=a")).await.ok();
    assert_eq!((none.one(LIST, "IsTruncated"), none.one(LIST, "KeyCount")), ("false".into(), "0".into()));
    assert_eq!(none.one(LIST, "StartAfter"), "a");
    let versions = fixture.send(call("GET", "/bucket?versions&max-keys=1")).await.ok();
    let root = "ListVersionsResult";
    for (name, value) in [("Key", "a b"), ("VersionId", "null"), ("IsLatest", "true"), ("NextKeyMarker", "a b")] {
        assert_eq!(versions.one(root, name), value, "{name}");
    }
}

#[tokio::test]
async fn bad_parameters() {
    let fixture = filled(&["a", "b"]).await;
    for parameters in [
        "max-keys=blah",
        "max-keys=-1",
        "max-keys=2147483648",
        "encoding-type=base64",
        "list-type=2&continuation-token=",
        "list-type=2&continuation-token=garbage",
        "list-type=2&continuation-token=YWFhYWFhYWFhYWFhYWFhYWFhYQ",
        "versions&version-id-marker=x",
    ] {
        fixture.send(call("GET", format!("/bucket?{parameters}"))).await.is(400, "InvalidArgument");
    }
    for parameters in ["", "?list-type=2", "?max-keys=0", "?versions", "?uploads", "?uploads&max-uploads=0"] {
        fixture.send(call("GET", format!("/absent{parameters}"))).await.is(404, "NoSuchBucket");
    }
    let answer = fixture.send(call("GET", "/bucket?list-type=2&max-keys=1")).await.ok();
    let token = answer.one(LIST, "NextContinuationToken");
    // The token outweighs start-after.
    let next = call("GET", format!("/bucket?list-type=2&start-after=z&continuation-token={token}"));
    let next = fixture.send(next).await.ok();
    assert_eq!((keys(&next, LIST), next.one(LIST, "ContinuationToken")), (vec!["b".to_owned()], token));
    fixture
        .send(call("GET", "/bucket?max-keys=5000"))
        .await
        .ok()
        .one(LIST, "MaxKeys")
        .eq("1000")
        .then_some(())
        .unwrap();
}

/// What a listing must show behind `after`: keys, and common prefixes with a mark.
fn model(keys: &BTreeSet<String>, prefix: &str, delimiter: &str, after: &str) -> Vec<(String, bool)> {
    let entry = |key: &str| match key[prefix.len()..].find(delimiter) {
        Some(at) if !delimiter.is_empty() => (key[..prefix.len() + at + delimiter.len()].to_owned(), true),
        _ => (key.to_owned(), false),
    };
    let passed = after.starts_with(prefix).then(|| entry(after)).filter(|(_, common)| *common);
    let mut entries: Vec<(String, bool)> = keys
        .iter()
        .filter(|key| key.starts_with(prefix) && key.as_str() > after)
        .map(|key| entry(key))
        .filter(|entry| Some(entry) != passed.as_ref())
        .collect();
    entries.dedup();
    entries
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    V1,
    V2,
    Versions,
}

/// All entries of a listing, page by page.
async fn walk(fixture: &Fixture, way: Way, parameters: &str, after: &str, limit: usize) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    let (root, start) = match way {
        Way::V1 => (LIST, "marker"),
        Way::V2 => (LIST, "start-after"),
        Way::Versions => ("ListVersionsResult", "key-marker"),
    };
    let mut position = format!("{start}={}", url(after));
    let kind = match way {
        Way::V1 => "",
        Way::V2 => "list-type=2&",
        Way::Versions => "versions&",
    };
    for _ in 0..200 {
        let page =
            fixture.send(call("GET", format!("/bucket?{kind}{parameters}&max-keys={limit}&{position}"))).await.ok();
        let mut entries: Vec<(String, bool)> = keys(&page, root).into_iter().map(|key| (key, false)).collect();
        entries.extend(common(&page, root).into_iter().map(|common| (common, true)));
        entries.sort();
        assert!(entries.len() <= limit);
        if way == Way::V2 {
            assert_eq!(page.one(root, "KeyCount"), entries.len().to_string());
        }
        let last = entries.last().map(|(name, _)| name.clone());
        all.extend(entries);
        if page.one(root, "IsTruncated") == "false" {
            return all;
        }
        position = match way {
            Way::V1 => {
                let next = page.all(root, "NextMarker").pop().or(last).unwrap();
                format!("marker={}", url(&next))
            }
            Way::V2 => format!("continuation-token={}", page.one(root, "NextContinuationToken")),
            Way::Versions => format!("key-marker={}", url(&page.one(root, "NextKeyMarker"))),
        };
    }
    panic!("the listing does not end");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn pages_together_are_the_listing(
        keys in proptest::collection::btree_set("[ab/+]{1,5}", 0..12),
        prefix in "[ab/]{0,2}",
        delimiter in proptest::sample::select(vec!["", "/", "a", "ab", "b/"]),
        after in "[ab/+]{0,3}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let names: Vec<&str> = keys.iter().map(String::as_str).collect();
            let fixture = filled(&names).await;
            let expected = model(&keys, &prefix, delimiter, &after);
            let parameters = format!("prefix={}&delimiter={}", url(&prefix), url(delimiter));
            for way in [Way::V1, Way::V2, Way::Versions] {
                for limit in [1, 2, 3, 1000] {
                    let walked = walk(&fixture, way, &parameters, &after, limit).await;
                    assert_eq!(walked, expected, "{way:?} by {limit}");
                }
            }
        });
    }
}
