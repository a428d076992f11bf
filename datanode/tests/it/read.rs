//! Reads: ranges, refusals, many at once, a reader that stops reading, bytes that changed on disk.

use bytes::Bytes;
use ozone_common::ErrorCode;
use ozone_common::token::Operations;
use ozone_proto::datanode::v1::{ReadBlock, Request, request};
use tokio::time::Instant;

use crate::node::{Client, DEADLINE, Node, WINDOW, block, bytes, code, token};

#[tokio::test]
async fn any_range_comes_in_the_windows_that_hold_it() {
    let node = Node::fresh().await;
    let length = 3 * WINDOW + 77;
    let (id, payload) = (block(1, 1), bytes(length as usize, 1));
    node.client.put(id, &payload).await.unwrap();
    let edges = [0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 3 * WINDOW, 3 * WINDOW + 1, length - 1, length];
    for from in edges {
        for to in edges.into_iter().filter(|to| *to > from) {
            let found = node.client.read(id, length, from, to - from).await.unwrap();
            assert!(found == payload.slice(from as usize..to as usize), "{from}..{to}");
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_replica_that_cannot_have_it_refuses() {
    let node = Node::fresh().await;
    let client = &node.client;
    let (id, payload) = (block(1, 1), bytes(1000, 1));
    client.put(id, &payload).await.unwrap();
    code(client.read(block(1, 2), 1000, 0, 1).await, ErrorCode::BlockNotFound);
    code(client.read(block(2, 1), 1000, 0, 1).await, ErrorCode::BlockNotFound);
    code(client.read(id, 1001, 0, 1).await, ErrorCode::BlockNotFound);
    code(client.read_under(2, id, 1000, 0, 1).await, ErrorCode::BlockNotFound);
    for (offset, length) in [(0, 0), (0, 1001), (1000, 1), (u64::MAX, 1), (1, u64::MAX)] {
        let read = ReadBlock {
            block: id.get(),
            epoch: 1,
            block_length: 1000,
            offset,
            length,
            token: token(Operations::READ, id),
        };
        code(client.call(request::Op::ReadBlock(read), Bytes::new()).await, ErrorCode::InvalidArgument);
    }
    let read = ReadBlock {
        block: id.get(),
        epoch: 1,
        block_length: 1000,
        offset: 0,
        length: 1,
        token: token(Operations::READ, id),
    };
    code(client.call(request::Op::ReadBlock(read), Bytes::from_static(b"x")).await, ErrorCode::InvalidArgument);
    client.holds(id, &payload).await;
    node.stop().await;
}

#[tokio::test]
async fn long_reads_run_side_by_side_and_one_that_is_not_read_holds_up_nobody() {
    let node = Node::fresh().await;
    let (id, payload) = (block(1, 1), bytes(6 << 20, 1));
    node.client.open(id).await.unwrap();
    for n in 0..6 {
        node.client.chunk(id, n << 20, &payload.slice((n as usize) << 20..(n as usize + 1) << 20)).await.unwrap();
    }
    node.client.finish(id, 6 << 20).await.unwrap();
    let client = &node.client;
    let part = |n: u64| async move { client.read(id, 6 << 20, n << 18, 1 << 20).await };
    let parts = futures::future::try_join_all((0..20).map(part)).await.unwrap();
    for (n, found) in parts.iter().enumerate() {
        assert!(*found == payload.slice(n << 18..(n << 18) + (1 << 20)), "{n}");
    }
    // Another client asks for a hundred times as much as may be queued for it, and takes none of it.
    let lazy = lazy_reader(&node, id, 100).await;
    client.holds(id, &payload).await;
    drop(lazy);
    client.holds(id, &payload).await;
    node.stop().await;
}

/// A socket that greeted and asked for a block many times, and never reads.
async fn lazy_reader(node: &Node, id: ozone_common::id::BlockId, times: u64) -> tokio::net::TcpStream {
    use ozone_proto::datanode::v1::Hello;
    use ozone_rpc::frame::{Kind, encode_head};
    use tokio::io::AsyncWriteExt;
    let mut socket = tokio::net::TcpStream::connect(node.handle.data_address()).await.unwrap();
    let hello = Hello {
        cluster: Bytes::copy_from_slice(crate::node::secret().cluster.as_bytes()),
        client: vec![3; 16].into(),
        datanode: Bytes::copy_from_slice(node.handle.id().as_bytes()),
        version: String::new(),
    };
    socket.write_all(&encode_head(Kind::Hello, true, 0, &hello, 0).unwrap()).await.unwrap();
    for call in 1..=times {
        let read = ReadBlock {
            block: id.get(),
            epoch: 1,
            block_length: 6 << 20,
            offset: 0,
            length: 6 << 20,
            token: token(Operations::READ, id),
        };
        let request = Request { request_id: "lazy".into(), op: Some(request::Op::ReadBlock(read)) };
        socket.write_all(&encode_head(Kind::Request, true, call, &request, 0).unwrap()).await.unwrap();
    }
    socket
}

#[tokio::test]
async fn a_reader_that_gives_up_does_not_spoil_the_connection() {
    let node = Node::fresh().await;
    let (id, payload) = (block(1, 1), bytes(1 << 20, 1));
    node.client.put(id, &payload).await.unwrap();
    for _ in 0..20 {
        let read = ReadBlock {
            block: id.get(),
            epoch: 1,
            block_length: 1 << 20,
            offset: 0,
            length: 1 << 20,
            token: token(Operations::READ, id),
        };
        let request = Request { request_id: "t".into(), op: Some(request::Op::ReadBlock(read)) };
        let connection = node.client.connection().await;
        drop(connection.stream(&request, Bytes::new(), 2 << 20, Instant::now() + DEADLINE).await.unwrap());
    }
    node.client.holds(id, &payload).await;
    let other = Client::new(&node.handle);
    other.holds(id, &payload).await;
    node.stop().await;
}
