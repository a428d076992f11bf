//! Starts, stops, kills; folders that are not ours; what is told over HTTP.

use std::path::PathBuf;
use std::sync::Arc;

use ozone_common::ErrorCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fake_scm::FakeScm;
use crate::node::{Node, WINDOW, block, bytes, code, config, secret, start};

#[tokio::test]
async fn a_restart_keeps_blocks_and_takes_no_more_into_old_containers() {
    let node = Node::fresh().await;
    let id = node.handle.id();
    let (small, large) = (bytes(5_000, 1), bytes((2 << 20) + 5, 2));
    node.client.put(block(1, 1), &small).await.unwrap();
    node.client.open(block(1, 2)).await.unwrap();
    node.client.chunk(block(1, 2), 0, &large).await.unwrap();
    node.client.finish(block(1, 2), large.len() as u64).await.unwrap();
    let node = node.restart(None).await;
    assert_eq!(node.handle.id(), id);
    node.client.holds(block(1, 1), &small).await;
    node.client.holds(block(1, 2), &large).await;
    code(node.client.put(block(1, 3), &small).await, ErrorCode::ContainerNotOpen);
    code(node.client.open(block(1, 4)).await, ErrorCode::ContainerNotOpen);
    node.client.put(block(2, 1), &small).await.unwrap();
    let node = node.restart(None).await;
    node.client.holds(block(1, 1), &small).await;
    node.client.holds(block(2, 1), &small).await;
    node.stop().await;
}

#[tokio::test]
async fn after_a_kill_what_was_acknowledged_is_there_and_an_open_block_can_be_sealed() {
    let node = Node::fresh().await;
    let small = |n: u32| bytes(1000 + n as usize, n as u8);
    for n in 1..=50 {
        node.client.put(block(1, n), &small(n)).await.unwrap();
    }
    let part = bytes(4 * WINDOW as usize, 7);
    node.client.open(block(1, 100)).await.unwrap();
    node.client.chunk(block(1, 100), 0, &part).await.unwrap();
    let image = node.image();
    node.stop().await;
    let node = Node::on(image, None).await;
    for n in 1..=50 {
        node.client.holds(block(1, n), &small(n)).await;
    }
    node.client.lacks(block(1, 100), 1).await;
    code(node.client.put(block(1, 51), &small(51)).await, ErrorCode::ContainerNotOpen);
    assert_eq!(node.client.seal(block(1, 100), 2, Some(4 * WINDOW)).await.unwrap(), 4 * WINDOW);
    let found = node.client.read_under(2, block(1, 100), 4 * WINDOW, 0, 4 * WINDOW).await.unwrap();
    assert_eq!(found, part);
    let image = node.image();
    node.stop().await;
    let node = Node::on(image, None).await;
    let found = node.client.read_under(2, block(1, 100), 4 * WINDOW, 0, 4 * WINDOW).await.unwrap();
    assert_eq!(found, part, "a seal outlives the next kill");
    node.stop().await;
}

#[tokio::test]
async fn blocks_are_spread_over_disk_volumes_and_found_again() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let mut settings = config(folder.path(), None);
    settings.volumes = (1..=3).map(|n| folder.path().join(format!("disk{n}"))).collect();
    let payload = bytes(3_000, 1);
    for round in 0..2 {
        let (handle, shutdown) = start(settings.clone()).await.unwrap();
        let client = crate::node::Client::new(&handle);
        for container in 1..=6 {
            if round == 0 {
                client.put(block(container, 1), &payload).await.unwrap();
            }
            client.holds(block(container, 1), &payload).await;
        }
        client.pool.close();
        shutdown.cancel();
        handle.join().await.unwrap();
    }
    let used = settings.volumes.iter().filter(|volume| size(volume) > 3_000).count();
    assert_eq!(used, 3, "each has some");
}

fn size(folder: &PathBuf) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.metadata().unwrap() {
            data if data.is_dir() => size(&entry.path()),
            data => data.len(),
        })
        .sum()
}

#[tokio::test]
async fn wrong_starts_say_why_in_one_line_and_touch_nothing() {
    let node = Node::fresh().await;
    let other = tempfile::tempdir().unwrap();
    let good = config(other.path(), None);
    let refused = async |config: ozone_datanode::Config, why: &str| {
        let error = start(config).await.err().unwrap_or_else(|| panic!("{why}: it started"));
        assert!(error.message.contains(why) && !error.message.contains('\n'), "{why}: {error}");
    };
    let in_use = node.handle.data_address().to_string();
    refused(ozone_datanode::Config { data_bind: in_use, ..good.clone() }, "the port is in use").await;
    refused(ozone_datanode::Config { data_bind: "0.0.0.0:0".into(), ..good.clone() }, "only loopback").await;
    refused(ozone_datanode::Config { scm_addresses: vec![], ..good.clone() }, "scm_addresses").await;
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0, "nothing was made");
    let folder = node.stop().await;
    let theirs = config(folder.path(), None);
    refused(ozone_datanode::Config { volumes: theirs.volumes.clone(), ..good.clone() }, "belongs to datanode").await;
    let cluster = ozone_common::peer::ClusterSecret::new(ozone_common::id::ClusterId::from_bytes([8; 16]), [1; 32]);
    let shutdown = tokio_util::sync::CancellationToken::new();
    let env = ozone_common::env::Env::system();
    let error = ozone_datanode::start(theirs, cluster, env, shutdown).await.err().unwrap();
    assert!(error.message.contains("belongs to cluster 07070707-"), "{error}");
}

async fn get(node: &Node, path: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(node.handle.http_address()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn health_and_metrics_are_told() {
    let node = Node::fresh().await;
    let unready = get(&node, "/health/ready").await;
    assert!(unready.starts_with("HTTP/1.1 503") && unready.contains("not registered with an SCM"), "{unready}");
    let folder = node.stop().await;
    let scm = FakeScm::start(secret()).await;
    let node = Node::on(folder, Some(&scm.address.to_string())).await;
    scm.registration(1).await;
    let deadline = tokio::time::Instant::now() + crate::node::DEADLINE;
    while !get(&node, "/health/ready").await.starts_with("HTTP/1.1 200") {
        assert!(tokio::time::Instant::now() < deadline, "it never becomes ready");
    }
    node.client.put(block(1, 1), &bytes(100, 1)).await.unwrap();
    let metrics = get(&node, "/metrics").await;
    for line in [
        "ozone_datanode_requests_total{op=\"PUT_SMALL\",result=\"success\"}",
        "ozone_datanode_request_seconds",
        "ozone_datanode_received_bytes_total",
        "ozone_datanode_scm_registered",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    node.stop().await;
}
