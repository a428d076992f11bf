//! Arbitrary frames and headers: each is answered or ends its connection; nothing panics, and the datanode serves on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ozone_common::token::Operations;
use ozone_proto::datanode::v1::{
    AbandonBlock, FinishBlock, Hello, OpenBlock, PutSmall, ReadBlock, ReportCorrupt, Request, SealBlock, WriteChunk,
    request,
};
use ozone_rpc::frame::{Kind, encode_head};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::node::{Node, block, bytes, call, member, secret, token};

/// Panics in the datanode's own code, of any thread: a connection that dies of one looks like one that was closed.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.location().is_some_and(|at| at.file().contains("datanode/src/") || at.file().contains("rpc/src/")) {
            PANICS.fetch_add(1, Ordering::SeqCst);
        }
        before(info);
    }));
}

fn block_ids() -> impl Strategy<Value = u64> {
    prop_oneof![6 => (1..4_u64, 0..6_u32).prop_map(|(c, l)| block(c, l).get()), 1 => any::<u64>()]
}

fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..70_000_u64, 1 => (0..5_u64).prop_map(|n| n << 14), 1 => any::<u64>()]
}

/// Requests that are mostly allowed, so that they reach what lies behind the tokens.
fn requests(node: ozone_common::id::DatanodeId) -> impl Strategy<Value = (Request, usize)> {
    let token = move |id: u64, operations: u32| {
        let id = ozone_common::id::BlockId::new(id).unwrap_or(block(1, 1));
        token(Operations(operations), id)
    };
    let parts = (block_ids(), 0..4_u32, numbers(), numbers(), prop::option::of(numbers()), 0..9_u8, any::<bool>());
    (parts, prop::collection::vec(any::<u32>(), 0..5), 0..50_000_usize, 0..5_i32).prop_map(
        move |((block, epoch, offset, length, maybe, kind, right), crcs, payload, durability)| {
            let members = vec![member(node)];
            let crcs = if right { ozone_common::checksum::windows(&bytes(payload, 1)) } else { crcs };
            let op = match kind {
                0 => Some(request::Op::PutSmall(PutSmall {
                    block,
                    epoch,
                    token: token(block, 2),
                    durability,
                    crcs,
                    members,
                })),
                1 => Some(request::Op::OpenBlock(OpenBlock {
                    block,
                    epoch,
                    token: token(block, 2),
                    durability,
                    members,
                })),
                2 => Some(request::Op::WriteChunk(WriteChunk { block, offset: if right { 0 } else { offset }, crcs })),
                3 => Some(request::Op::FinishBlock(FinishBlock { block, length })),
                4 => Some(request::Op::SealBlock(SealBlock { block, epoch, length: maybe, token: token(block, 4) })),
                5 => Some(request::Op::ReadBlock(ReadBlock {
                    block,
                    epoch,
                    block_length: maybe.unwrap_or(1),
                    offset,
                    length,
                    token: token(block, 1),
                })),
                6 => Some(request::Op::ReportCorrupt(ReportCorrupt { block, offset, token: token(block, 1) })),
                7 => Some(request::Op::AbandonBlock(AbandonBlock { block })),
                _ => None,
            };
            let carries = kind == 0 || kind == 2 || !right;
            (Request { request_id: "junk".into(), op }, if carries { payload } else { 0 })
        },
    )
}

#[tokio::test]
async fn requests_of_any_content_are_answered_and_leave_good_blocks_alone() {
    count_panics();
    let node = Node::fresh().await;
    let (kept, payload) = (block(9, 1), bytes(20_000, 9));
    node.client.put(kept, &payload).await.unwrap();
    let mut runner = TestRunner::deterministic();
    let strategy = requests(node.handle.id());
    let mut outcomes = std::collections::BTreeSet::new();
    for _ in 0..2_000 {
        let (request, length) = strategy.new_tree(&mut runner).unwrap().current();
        let Some(op) = request.op else { continue };
        let connection = node.client.connection().await;
        // Waits for the answer: every request has one.
        match call(&connection, op, bytes(length, 1)).await {
            Ok(_) => outcomes.insert("OK"),
            Err(error) => outcomes.insert(error.code.name()),
        };
        assert!(!connection.is_closed(), "none of these ends a connection");
    }
    assert!(outcomes.len() > 6 && !outcomes.contains("INTERNAL_ERROR"), "{outcomes:?}");
    node.client.holds(kept, &payload).await;
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    node.stop().await;
}

async fn greeted(node: &Node) -> TcpStream {
    let mut socket = TcpStream::connect(node.handle.data_address()).await.unwrap();
    let hello = Hello {
        cluster: Bytes::copy_from_slice(secret().cluster.as_bytes()),
        client: vec![3; 16].into(),
        datanode: Bytes::copy_from_slice(node.handle.id().as_bytes()),
        version: String::new(),
    };
    socket.write_all(&encode_head(Kind::Hello, true, 0, &hello, 0).unwrap()).await.unwrap();
    socket
}

#[tokio::test]
async fn bytes_that_are_no_frames_end_their_connection_only() {
    let node = Node::fresh().await;
    let mut runner = TestRunner::deterministic();
    let junk = prop::collection::vec(any::<u8>(), 28..400);
    for n in 0..200 {
        let mut junk = junk.new_tree(&mut runner).unwrap().current();
        let mut socket = if n % 2 == 0 {
            // The head of a good frame, then nonsense in place of the message.
            let mut socket = greeted(&node).await;
            let request =
                Request { request_id: "x".into(), op: Some(request::Op::AbandonBlock(AbandonBlock { block: 1 })) };
            let head = encode_head(Kind::Request, true, 1, &request, 0).unwrap();
            let keep = n % 28;
            let length = junk.len().min(head.len());
            junk[..keep.min(length)].copy_from_slice(&head[..keep.min(length)]);
            socket.write_all(&junk).await.unwrap();
            socket
        } else {
            let mut socket = TcpStream::connect(node.handle.data_address()).await.unwrap();
            socket.write_all(&junk).await.unwrap();
            socket
        };
        socket.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // A reset is an end as well.
        let ended = tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut answer)).await;
        drop(ended.expect("the connection ends"));
    }
    let payload = bytes(100, 1);
    node.client.put(block(1, 1), &payload).await.unwrap();
    node.client.holds(block(1, 1), &payload).await;
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    node.stop().await;
}
