//! Reading, with replicas that lie, hang and die.

use std::time::{Duration, Instant};

use ozone_common::ErrorCode;
use ozone_common::RetryClass;
use ozone_proto::om::v1::BucketAddress;
use proptest::prelude::*;

use crate::cluster::{Cluster, ctx, pattern, tuning, until};
use crate::fake_datanode::{Fault, On};

const MIB: usize = 1 << 20;

/// Ranges of keys of all shapes against the bytes that were written.
#[test]
fn any_range_reads_as_the_bytes_written() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let cluster = runtime.block_on(Cluster::start(3, tuning()));
    let bytes: Vec<Vec<u8>> = [1, 16_384, 16_385, 700_000, 3 * MIB + 4321].map(pattern).into();
    for data in bytes {
        runtime.block_on(cluster.write(&data, 77_777)).unwrap();
        let length = data.len() as u64;
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(24));
        let range = (0..=length, 0..=length).prop_map(|(a, b)| a.min(b)..a.max(b));
        runner
            .run(&range, |range| {
                let read = runtime.block_on(cluster.read(range.clone())).unwrap();
                prop_assert!(read == data[range.start as usize..range.end as usize]);
                Ok(())
            })
            .unwrap();
    }
    assert!(runtime.block_on(cluster.read(0..u64::MAX)).is_err());
    std::thread::spawn(move || drop(cluster)).join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_good_replica_is_enough() {
    let data = pattern(2 * MIB + 999);
    for fault in [
        Fault::Refuse(ErrorCode::BlockNotFound),
        Fault::Refuse(ErrorCode::VolumeFailed),
        Fault::Refuse(ErrorCode::Overloaded),
        Fault::Hang,
        Fault::Short,
        Fault::FlipBit,
        Fault::OtherBytes,
        Fault::DieMidway,
    ] {
        let cluster = Cluster::start(3, tuning()).await;
        cluster.write(&data, MIB).await.unwrap();
        cluster.nodes[0].fault(On::Read, 0, fault);
        cluster.nodes[1].fault(On::Read, 0, fault);
        for range in [0..data.len() as u64, 100_000..1_500_001, 2_000_000..2_097_153] {
            let started = Instant::now();
            let outcome = cluster.read(range.clone()).await;
            if fault == Fault::OtherBytes && range.end - range.start > 65_536 {
                // Checksums that fit wrong bytes: found where a block is read whole, before its last bytes are given.
                if let Ok(read) = &outcome {
                    let whole = range.start == 0;
                    assert!(!whole || *read == data, "wrong bytes of a block that was read whole");
                }
                continue;
            }
            let read = outcome.unwrap_or_else(|error| panic!("{fault:?} {range:?}: {error}"));
            assert!(read == data[range.start as usize..range.end as usize], "{fault:?} {range:?}");
            assert!(started.elapsed() < Duration::from_secs(8), "{fault:?}: {:?}", started.elapsed());
        }
        if fault == Fault::FlipBit {
            let told = || cluster.nodes[..2].iter().any(|node| !node.state.lock().corrupt_reports.is_empty());
            until("the bad replica is told", told).await;
            assert!(cluster.nodes[2].state.lock().corrupt_reports.is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_keys_are_compared_with_their_committed_checksum() {
    let cluster = Cluster::start(3, tuning()).await;
    let data = pattern(5000);
    cluster.write(&data, 5000).await.unwrap();
    for node in &cluster.nodes[..2] {
        node.fault(On::Read, 0, Fault::OtherBytes);
    }
    for _ in 0..6 {
        assert!(cluster.read(0..5000).await.unwrap() == data, "the good replica is found");
    }
    cluster.nodes[2].fault(On::Read, 0, Fault::OtherBytes);
    assert_eq!(cluster.read(0..5000).await.unwrap_err().code, ErrorCode::Corrupt, "never wrong bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_replica_costs_one_hedge_and_is_avoided_then() {
    let cluster = Cluster::start(3, tuning()).await;
    let data = pattern(50_000);
    cluster.write(&data, 50_000).await.unwrap();
    for _ in 0..20 {
        cluster.read(0..50_000).await.unwrap();
    }
    cluster.nodes[0].fault(On::Read, 0, Fault::Slow(3_000));
    let mut slowest = Duration::ZERO;
    for _ in 0..30 {
        let started = Instant::now();
        assert!(cluster.read(0..50_000).await.unwrap() == data);
        slowest = slowest.max(started.elapsed());
    }
    assert!(slowest < Duration::from_millis(1_500), "{slowest:?}");
    let before = cluster.nodes[0].state.lock().requests;
    for _ in 0..30 {
        cluster.read(0..50_000).await.unwrap();
    }
    let asked = cluster.nodes[0].state.lock().requests - before;
    assert!(asked <= 5, "asked {asked} times of 30 although it is slow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fresh_locations_are_fetched_under_the_same_generation() {
    let cluster = Cluster::start(3, tuning()).await;
    let data = pattern(3 * MIB);
    cluster.write(&data, MIB).await.unwrap();
    let found = cluster.om.found();
    // Tokens given so far are refused; new ones are good for longer.
    let edge = cluster.om.env.clock.now_ms() + 90_000;
    for node in &cluster.nodes {
        node.state.lock().tokens_from_ms = edge;
    }
    cluster.om.state.lock().read_token_life_ms = 300_000;
    let mut reader = cluster.client.reader(&ctx(10_000), &BucketAddress::default(), &found, 0..3 << 20).unwrap();
    let mut read = Vec::new();
    while let Some(piece) = reader.next().await.unwrap() {
        read.extend_from_slice(&piece);
    }
    assert!(read == data);
    assert!(cluster.om.state.lock().lookups >= 1);

    // Before the first byte a change may be retried, after it not.
    let mut unbegun = cluster.client.reader(&ctx(10_000), &BucketAddress::default(), &found, 0..3 << 20).unwrap();
    let fresh = cluster.om.found();
    let mut begun = cluster.client.reader(&ctx(10_000), &BucketAddress::default(), &fresh, 0..3 << 20).unwrap();
    begun.next().await.unwrap().unwrap();
    cluster.om.state.lock().generation = 2;
    for node in &cluster.nodes {
        node.state.lock().tokens_from_ms = u64::MAX;
    }
    let error = unbegun.next().await.unwrap_err();
    assert_eq!((error.code, error.retry), (ErrorCode::KeyChanged, RetryClass::AfterRefresh));
    let error = loop {
        match begun.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it cannot end in order"),
            Err(error) => break error,
        }
    };
    assert_eq!((error.code, error.retry), (ErrorCode::KeyChanged, RetryClass::Never));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_replica_the_error_comes_in_time() {
    let cluster = Cluster::start(3, tuning()).await;
    cluster.write(&pattern(50_000), 50_000).await.unwrap();
    for node in &cluster.nodes {
        node.kill();
    }
    let started = Instant::now();
    let error = cluster.read(0..50_000).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
    assert!(error.message.contains("datanode "), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));
    for node in &cluster.nodes {
        let node = node.clone();
        std::thread::spawn(move || node.restart()).join().unwrap();
    }
    assert_eq!(cluster.read(0..50_000).await.unwrap().len(), 50_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inline_bytes_need_no_datanode() {
    let cluster = Cluster::start(3, tuning()).await;
    cluster.om.state.lock().inline = Some(pattern(1000).into());
    assert!(cluster.read(10..900).await.unwrap() == pattern(1000)[10..900]);
    assert!(cluster.read(5..5).await.unwrap().is_empty());
}
