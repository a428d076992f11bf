//! What the SCM is told, and what is done for it.

use std::time::Duration;

use bytes::Bytes;
use ozone_common::ErrorCode;
use ozone_common::env::Env;
use ozone_common::id::ClusterId;
use ozone_proto::scm::v1::{
    CloseContainer, ContainerBlocks, DeleteBlocks, LocalRange, ReplicaState, SendFullReport, node_command::Command,
};

use crate::fake_scm::FakeScm;
use crate::node::{Node, WINDOW, block, bytes, code, secret};

async fn node(scm: &FakeScm) -> Node {
    Node::fresh_with(&scm.address.to_string()).await
}

fn close(container: u64, epoch: u32) -> Command {
    Command::Close(CloseContainer { container, epoch })
}

fn delete(transaction: u64, container: u64, first: u32, count: u32) -> Command {
    let containers = vec![ContainerBlocks { container, ranges: vec![LocalRange { first, count }] }];
    Command::DeleteBlocks(DeleteBlocks { transaction, containers })
}

#[tokio::test]
async fn a_datanode_registers_reports_in_full_and_then_what_changed() {
    let scm = FakeScm::start(secret()).await;
    let node = node(&scm).await;
    let register = scm.registration(1).await;
    let address = register.address.unwrap();
    assert_eq!(address.datanode[..], node.handle.id().as_bytes()[..]);
    assert_eq!((&address.host[..], address.data_port), ("127.0.0.1", u32::from(node.handle.data_address().port())));
    assert_eq!(register.http_port, u32::from(node.handle.http_address().port()));
    let (_, first) = scm.report("the first report", |_| true).await;
    assert!(first.full && first.containers.is_empty());
    let volume = &first.volumes[0];
    assert!(volume.capacity > volume.available && volume.available > 0 && !volume.failed && volume.volume.len() == 16);

    node.client.put(block(1, 1), &bytes(100, 1)).await.unwrap();
    let open = scm.replica(1, "a new replica", |replica| replica.state == ReplicaState::Open as i32).await;
    assert_eq!(open.epoch, 1);
    scm.send(1, Command::FullReport(SendFullReport {})).await;
    let (_, full) = scm.report("a full report", |report| report.full && report.sequence > 1).await;
    assert_eq!((full.containers.len(), full.containers[0].blocks, full.containers[0].used), (1, 1, 100));
    let reports = scm.reports();
    assert!(reports.windows(2).all(|pair| pair[0].1.sequence + 1 == pair[1].1.sequence));
    assert!(reports.iter().filter(|(_, report)| report.full).count() == 2, "the others are small");
    node.stop().await;
}

#[tokio::test]
async fn a_container_told_to_close_takes_nothing_more_and_is_reported_closed() {
    let scm = FakeScm::start(secret()).await;
    let node = node(&scm).await;
    scm.registration(1).await;
    let payload = bytes(100, 1);
    node.client.put(block(1, 1), &payload).await.unwrap();
    scm.send(1, close(1, 1)).await;
    let closed = scm.replica(1, "CLOSED", |replica| replica.state == ReplicaState::Closed as i32).await;
    assert_eq!((closed.blocks, closed.used, closed.digest.len()), (1, 100, 32));
    code(node.client.put(block(1, 2), &payload).await, ErrorCode::ContainerNotOpen);
    node.client.holds(block(1, 1), &payload).await;
    // One that is not here is made, empty and closed: a late writer finds it so.
    scm.send(1, close(77, 3)).await;
    let closed = scm.replica(77, "CLOSED", |replica| replica.state == ReplicaState::Closed as i32).await;
    assert_eq!((closed.blocks, closed.used), (0, 0));
    assert!(node.client.put(block(77, 1), &payload).await.is_err());
    node.stop().await;
}

#[tokio::test]
async fn an_open_block_delays_the_close_until_it_is_finished() {
    let scm = FakeScm::start(secret()).await;
    let node = node(&scm).await;
    scm.registration(1).await;
    let part = bytes(WINDOW as usize, 1);
    node.client.open(block(1, 1)).await.unwrap();
    node.client.chunk(block(1, 1), 0, &part).await.unwrap();
    scm.send(1, close(1, 1)).await;
    scm.replica(1, "CLOSING", |replica| replica.state == ReplicaState::Closing as i32).await;
    code(node.client.open(block(1, 2)).await, ErrorCode::ContainerNotOpen);
    node.client.chunk(block(1, 1), WINDOW, &part).await.unwrap();
    node.client.finish(block(1, 1), 2 * WINDOW).await.unwrap();
    scm.replica(1, "CLOSED", |replica| replica.state == ReplicaState::Closed as i32).await;
    assert_eq!(node.client.read(block(1, 1), 2 * WINDOW, WINDOW, WINDOW).await.unwrap(), part);
    node.stop().await;
}

#[tokio::test]
async fn deletes_are_answered_once_durable_and_late_writes_refused() {
    let scm = FakeScm::start(secret()).await;
    let node = node(&scm).await;
    scm.registration(1).await;
    let payload = bytes(100, 1);
    for local in 1..=4 {
        node.client.put(block(1, local), &payload).await.unwrap();
    }
    scm.send(1, delete(10, 1, 2, 2)).await;
    scm.deleted(10).await;
    let image = node.image();
    for local in [2, 3] {
        assert!(node.client.read(block(1, local), 100, 0, 1).await.is_err());
    }
    node.client.holds(block(1, 1), &payload).await;
    node.client.holds(block(1, 4), &payload).await;
    // Never here, and asked again: answered all the same.
    scm.send(1, delete(11, 55, 1, 9)).await;
    scm.deleted(11).await;
    code(node.client.put(block(55, 3), &payload).await, ErrorCode::BlockDeleted);
    scm.send(1, delete(12, 1, 2, 2)).await;
    scm.deleted(12).await;
    scm.send(1, delete(13, 0, 1, 1)).await;
    scm.send(1, delete(14, 1, 1, 1)).await;
    scm.deleted(14).await;
    assert!(
        scm.reports().iter().all(|(_, report)| !report.delete_transactions_done.contains(&13)),
        "container 0 is none"
    );
    node.stop().await;

    let scm = FakeScm::start(secret()).await;
    let node = Node::on(image, Some(&scm.address.to_string())).await;
    for local in [2, 3] {
        assert!(node.client.read(block(1, local), 100, 0, 1).await.is_err(), "deleted before the kill");
    }
    node.client.holds(block(1, 1), &payload).await;
    let reported = scm.replica(1, "after the kill", |_| true).await;
    assert_eq!((reported.blocks, reported.used, reported.delete_sequence), (2, 200, 10));
    node.stop().await;
}

#[tokio::test]
async fn commands_of_a_deposed_scm_are_refused_also_after_a_restart() {
    let scm = FakeScm::start(secret()).await;
    let node = node(&scm).await;
    scm.registration(1).await;
    let payload = bytes(100, 1);
    for local in 1..=3 {
        node.client.put(block(1, local), &payload).await.unwrap();
    }
    scm.send(5, delete(1, 1, 1, 1)).await;
    scm.deleted(1).await;
    scm.send(4, delete(2, 1, 2, 1)).await;
    scm.send(4, close(1, 1)).await;
    scm.send(5, delete(3, 1, 3, 1)).await;
    scm.deleted(3).await;
    node.client.holds(block(1, 2), &payload).await;
    let node = node.restart(Some(&scm.address.to_string())).await;
    scm.registration(2).await;
    scm.send(4, delete(4, 1, 2, 1)).await;
    scm.send(6, delete(5, 9, 1, 1)).await;
    scm.deleted(5).await;
    node.client.holds(block(1, 2), &payload).await;
    let answered: Vec<u64> = scm.reports().iter().flat_map(|(_, r)| r.delete_transactions_done.clone()).collect();
    assert_eq!(answered, [1, 3, 5]);
    let reports = scm.reports();
    let states = reports.iter().flat_map(|(_, r)| &r.containers).filter(|c| c.container == 1).map(|c| c.state);
    assert!(states.into_iter().all(|state| state != ReplicaState::Closed as i32));
    node.stop().await;
}

#[tokio::test]
async fn an_scm_that_comes_late_goes_away_or_refuses_is_tried_again() {
    // An address of its own: nothing else takes the port while no SCM listens there.
    let scm = FakeScm::start_at("127.0.0.2:0", secret()).await;
    let address = scm.address.to_string();
    scm.stop().await;
    let node = Node::fresh_with(&address).await;
    node.client.put(block(1, 1), &bytes(100, 1)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let scm = FakeScm::start_at(&address, secret()).await;
    let asked = tokio::time::Instant::now();
    let first = scm.registration(1).await;
    assert!(
        asked.elapsed() < Duration::from_millis(500),
        "a cluster that starts as a whole does not wait: {:?}",
        asked.elapsed()
    );
    let (_, report) = scm.report("a full report", |report| report.full).await;
    assert_eq!(report.containers.len(), 1);
    scm.stop().await;

    let scm = FakeScm::start_at(&address, secret()).await;
    let second = scm.registration(1).await;
    assert_eq!(first.incarnation, second.incarnation, "the same run of the process");
    assert_ne!(first.nonce, second.nonce, "a proof is good once");
    scm.refuse(Some("another live process has this id"));
    scm.hang_up();
    scm.registration(3).await;
    scm.refuse(None);
    let tried = scm.registrations();
    scm.registration(tried + 1).await;
    node.client.put(block(2, 1), &bytes(100, 1)).await.unwrap();
    scm.replica(2, "it reports on", |_| true).await;

    let tried = scm.registrations();
    let node = node.restart(Some(&address)).await;
    let third = scm.registration(tried + 1).await;
    assert_ne!(first.incarnation, third.incarnation);
    node.stop().await;
}

#[tokio::test]
async fn an_scm_of_another_cluster_is_not_obeyed() {
    let scm = FakeScm::start(secret()).await;
    scm.pose_as(ClusterId::from_bytes([9; 16]));
    let node = node(&scm).await;
    node.client.put(block(1, 1), &bytes(100, 1)).await.unwrap();
    scm.registration(3).await;
    assert!(scm.reports().iter().all(|(_, report)| report.sequence == 1), "it hangs up after the greeting");
    node.client.holds(block(1, 1), &bytes(100, 1)).await;
    node.stop().await;
}

#[tokio::test]
async fn two_scms_are_told_the_same() {
    let (one, two) = (FakeScm::start(secret()).await, FakeScm::start(secret()).await);
    let folder = tempfile::tempdir().unwrap();
    let mut config = crate::node::config(folder.path(), None);
    config.scm_addresses = vec![one.address.to_string(), two.address.to_string()];
    let (handle, shutdown) = crate::node::start(config).await.unwrap();
    let client = crate::node::Client::new(&handle);
    one.registration(1).await;
    two.registration(1).await;
    client.put(block(1, 1), &bytes(100, 1)).await.unwrap();
    one.send(1, close(1, 1)).await;
    for scm in [&one, &two] {
        scm.replica(1, "CLOSED", |replica| replica.state == ReplicaState::Closed as i32).await;
    }
    client.pool.close();
    shutdown.cancel();
    handle.join().await.unwrap();
}

#[tokio::test]
async fn damage_on_disk_is_found_when_a_reader_reports_it_and_told() {
    let scm = FakeScm::start(secret()).await;
    let node = node(&scm).await;
    scm.registration(1).await;
    let payload = bytes(50_000, 1);
    node.client.put(block(1, 1), &payload).await.unwrap();
    let other = bytes(50_000, 2);
    node.client.put(block(2, 1), &other).await.unwrap();
    scm.replica(2, "there", |_| true).await;
    // A report that is wrong does no harm.
    node.client.report_corrupt(block(2, 1), 0).await.unwrap();
    damage(node.folder.path(), &payload, 30_000);
    code(node.client.read(block(1, 1), 50_000, 0, 50_000).await, ErrorCode::Corrupt);
    node.client.report_corrupt(block(1, 1), 30_000).await.unwrap();
    let (_, report) = scm.report("the damage", |report| !report.corrupt.is_empty()).await;
    assert_eq!(report.corrupt[0].block, block(1, 1).get());
    scm.replica(1, "UNHEALTHY", |replica| replica.state == ReplicaState::Unhealthy as i32).await;
    node.client.holds(block(2, 1), &other).await;
    // What is not damaged is still given.
    assert_eq!(node.client.read(block(1, 1), 50_000, 0, 100).await.unwrap(), payload.slice(..100));
    let scm2 = FakeScm::start(secret()).await;
    let node = node.restart(Some(&scm2.address.to_string())).await;
    scm2.replica(1, "remembered", |replica| replica.state == ReplicaState::Unhealthy as i32).await;
    node.stop().await;
}

/// Flips a bit of the first file that holds `payload`, at byte `at` of it.
fn damage(folder: &std::path::Path, payload: &Bytes, at: usize) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let content = std::fs::read(&path).unwrap();
            if let Some(found) = content.windows(64).position(|bytes| bytes == &payload[at..at + 64]) {
                let file = Env::system().disk.open(&path, false).unwrap();
                file.write_all_at(&mut [std::io::IoSlice::new(&[content[found] ^ 1])], found as u64).unwrap();
                return;
            }
        }
    }
    panic!("no file holds the payload");
}
