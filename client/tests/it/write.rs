//! Writing, with replicas that fail at every step.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ozone_client::Tuning;
use ozone_common::ErrorCode;
use ozone_common::config::TimeSpan;

use crate::cluster::{Cluster, bucket, ctx, pattern, until};
use crate::fake_datanode::{Fault, On};

const MIB: usize = 1 << 20;

fn tuning() -> Tuning {
    crate::cluster::tuning()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_around_every_bound_come_out_whole() {
    let cluster = Cluster::start(3, tuning()).await;
    let cases = [
        (1, 1, 1),
        (4096, 4096, 1),
        (100_000, 999, 1),
        (MIB, 65_536, 1),
        (MIB + 1, 65_536, 1),
        (2 * MIB, MIB, 1),
        (2 * MIB + 1, 300_000, 2),
        (5 * MIB + 12_345, 40_001, 3),
        (4 * MIB + 5, 4 * MIB + 5, 3),
    ];
    for (length, piece, blocks) in cases {
        let data = pattern(length);
        let written = cluster.write(&data, piece).await.unwrap();
        assert_eq!(written.blocks.len(), blocks, "{length}");
        assert_eq!(cluster.read(0..length as u64).await.unwrap(), data);
    }
    let written = cluster.write(&[], 1).await.unwrap();
    assert!(written.blocks.is_empty() && written.inline.is_none() && written.grants.is_empty());
    assert!(cluster.om.state.lock().reports.is_empty());
}

#[tokio::test]
async fn small_values_travel_in_the_commit_where_the_bucket_allows() {
    let cluster = Cluster::start(3, tuning()).await;
    for (length, inline) in [(1, true), (4096, true), (4097, false)] {
        let data = pattern(length);
        for hint in [None, Some(length as u64), Some(100 << 20)] {
            let mut writer = cluster.client.writer(&ctx(5_000), &bucket(4096), hint).unwrap();
            writer.write(Bytes::from(data.clone())).await.unwrap();
            let written = writer.finish().await.unwrap();
            cluster.check(&data, &written);
            assert_eq!(written.inline.is_some(), inline, "{length} {hint:?}");
        }
    }
}

#[tokio::test]
async fn ids_are_leased_in_bulk_and_given_back() {
    let cluster = Cluster::start(3, tuning()).await;
    for i in 0..200 {
        cluster.write(&pattern(100 + i), 1000).await.unwrap();
    }
    let acquired = cluster.om.state.lock().acquired;
    assert!(acquired <= 6, "{acquired} grants for 200 keys");
    cluster.client.shutdown().await;
    let state = cluster.om.state.lock();
    assert_eq!(state.released.len(), acquired);
}

#[tokio::test]
async fn grants_in_use_are_renewed() {
    let cluster = Cluster::start(3, tuning()).await;
    cluster.om.state.lock().grant_life_ms = 8_000;
    let mut writer = cluster.client.writer(&ctx(5_000), &bucket(0), Some(10 << 20)).unwrap();
    writer.write(Bytes::from(pattern(MIB))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    assert!(cluster.om.state.lock().renewed > 0);
    drop(writer);
}

/// One datanode of four goes wrong; the write must succeed without it.
async fn survives(data: &[u8], break_it: impl Fn(&Cluster), reports: bool) {
    let cluster = Cluster::start(4, tuning()).await;
    break_it(&cluster);
    let started = Instant::now();
    let written = cluster.write(data, 100_000).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(4), "a slow node costs one hedge: {:?}", started.elapsed());
    assert_eq!(!cluster.om.state.lock().reports.is_empty(), reports);
    assert!(!written.blocks.is_empty());
    let next = cluster.write(data, 100_000).await.unwrap();
    let first = &cluster.nodes[0].address.datanode;
    for block in next.blocks {
        assert!(!cluster.om.members(block.id).contains(first), "it is avoided for a while");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_block_is_written_elsewhere() {
    let data = pattern(5000);
    for fault in [Fault::Refuse(ErrorCode::DiskFull), Fault::Refuse(ErrorCode::VolumeFailed), Fault::Hang] {
        survives(&data, |cluster| cluster.nodes[0].fault(On::PutSmall, 0, fault), false).await;
    }
    survives(&data, |cluster| cluster.nodes[0].kill(), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_block_goes_on_with_the_survivors() {
    let data = pattern(3 * MIB + 77);
    let full = Fault::Refuse(ErrorCode::DiskFull);
    for (on, after, fault, reports) in [
        (On::Open, 0, full, false),
        (On::Open, 0, Fault::Hang, false),
        (On::Chunk, 0, full, true),
        (On::Chunk, 3, full, true),
        (On::Chunk, 3, Fault::Hang, true),
        (On::Finish, 0, full, true),
        (On::Finish, 0, Fault::Hang, true),
    ] {
        survives(&data, |cluster| cluster.nodes[0].fault(on, after, fault), reports).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_datanode_that_dies_while_a_key_is_written_costs_nothing() {
    let cluster = Cluster::start(4, tuning()).await;
    let data = pattern(6 * MIB);
    let mut writer = cluster.client.writer(&ctx(20_000), &bucket(0), None).unwrap();
    for (i, piece) in data.chunks(200_000).enumerate() {
        if i == 8 {
            cluster.nodes[1].kill();
        }
        writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    let written = writer.finish().await.unwrap();
    cluster.check(&data, &written);
    assert!(!cluster.om.state.lock().reports.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_survivor_that_fails_to_seal_is_reported_too() {
    // Five nodes: the first three take the block; of four, two would be too few to go on.
    let cluster = Cluster::start(5, tuning()).await;
    cluster.nodes[0].fault(On::Chunk, 2, Fault::Refuse(ErrorCode::DiskFull));
    cluster.nodes[1].fault(On::Seal, 0, Fault::Refuse(ErrorCode::VolumeFailed));
    let error = cluster.write(&pattern(2 * MIB), 100_000).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
    assert!(error.message.contains("1 of 3 replicas are left, 2 are needed"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_on_fewer_than_min_replicas() {
    let cluster = Cluster::start(3, tuning()).await;
    cluster.nodes[0].kill();
    let written = cluster.write(&pattern(5000), 5000).await.unwrap();
    assert_eq!(cluster.om.members(written.blocks[0].id).len(), 2, "two of three is enough");
    cluster.write(&pattern(3 * MIB), MIB).await.unwrap();
    cluster.nodes[1].kill();
    let mut writer = cluster.client.writer(&ctx(1_500), &bucket(0), None).unwrap();
    writer.write(Bytes::from(pattern(5000))).await.unwrap();
    let error = writer.finish().await.unwrap_err();
    assert!(matches!(error.code, ErrorCode::Unavailable | ErrorCode::InsufficientDatanodes), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_datanode_that_comes_back_is_used_again() {
    let cluster = Cluster::start(3, Tuning { exclude_for: TimeSpan::millis(400), ..tuning() }).await;
    cluster.nodes[2].kill();
    cluster.write(&pattern(5000), 5000).await.unwrap();
    let node = cluster.nodes[2].clone();
    std::thread::spawn(move || node.restart()).join().unwrap();
    let before = cluster.nodes[2].state.lock().blocks.len();
    let started = Instant::now();
    while cluster.nodes[2].state.lock().blocks.len() == before {
        assert!(started.elapsed() < Duration::from_secs(5));
        cluster.write(&pattern(5000), 5000).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_closed_container_is_left_without_blaming_its_datanodes() {
    let cluster = Cluster::start(3, tuning()).await;
    for on in [On::PutSmall, On::Open] {
        let length = if on == On::Open { 2 * MIB } else { 5000 };
        for code in [ErrorCode::ContainerNotOpen, ErrorCode::StaleEpoch, ErrorCode::InvalidToken] {
            cluster.nodes[0].fault(on, 0, Fault::Refuse(code));
            let nodes = cluster.nodes.clone();
            let heal = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(30)).await;
                nodes[0].heal();
            });
            cluster.write(&pattern(length), length).await.unwrap();
            heal.await.unwrap();
        }
    }
    assert!(cluster.om.state.lock().excluded.iter().all(Vec::is_empty));
}

#[tokio::test]
async fn a_writer_that_is_dropped_leaves_nothing_open() {
    let cluster = Cluster::start(3, tuning()).await;
    let mut writer = cluster.client.writer(&ctx(5_000), &bucket(0), None).unwrap();
    writer.write(Bytes::from(pattern(3 * MIB / 2))).await.unwrap();
    drop(writer);
    until("all are told", || cluster.nodes.iter().all(|node| node.state.lock().abandoned.len() == 1)).await;
}

#[tokio::test]
async fn safe_mode_is_waited_for_until_the_deadline() {
    let cluster = Cluster::start(3, tuning()).await;
    cluster.om.state.lock().refusals = vec![ErrorCode::SafeMode; 3];
    cluster.write(&pattern(5000), 5000).await.unwrap();
    cluster.om.state.lock().refusals = vec![ErrorCode::SafeMode; 1000];
    let fresh = Cluster::start(3, tuning()).await;
    fresh.om.state.lock().refusals = vec![ErrorCode::SafeMode; 1000];
    let mut writer = fresh.client.writer(&ctx(300), &bucket(0), None).unwrap();
    writer.write(Bytes::from(pattern(5000))).await.unwrap();
    assert_eq!(writer.finish().await.unwrap_err().code, ErrorCode::SafeMode);
}
