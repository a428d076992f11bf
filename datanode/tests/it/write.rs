//! Blocks in one piece and in chunks, as writers send them and as they must not.

use bytes::Bytes;
use ozone_common::ErrorCode;
use ozone_common::checksum::windows;
use ozone_common::limits::SMALL_BLOCK_MAX;
use ozone_proto::common::v1::Durability;
use ozone_proto::datanode::v1::{PutSmall, Request, request};
use tokio::time::Instant;

use crate::node::{Client, DEADLINE, LENGTH_MAX, Node, WINDOW, block, bytes, chunk, code, member};

#[tokio::test]
async fn blocks_of_every_size_read_back_as_written() {
    let node = Node::fresh().await;
    let window = WINDOW as usize;
    let sizes = [1, 100, window - 1, window, window + 1, 3 * window + 7, SMALL_BLOCK_MAX];
    for (local, size) in sizes.into_iter().enumerate() {
        let payload = bytes(size, local as u8);
        for (container, durability) in [(1, Durability::Disk), (2, Durability::Memory), (3, Durability::Unspecified)] {
            let block = block(container, local as u32 + 1);
            let put = PutSmall { durability: durability as i32, ..node.client.put_request(block, &payload) };
            node.client.call(request::Op::PutSmall(put), payload.clone()).await.unwrap();
            node.client.holds(block, &payload).await;
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn many_writers_at_once_are_all_answered() {
    let node = Node::fresh().await;
    let client = &node.client;
    let payload = |n: u32| bytes(500 + n as usize * 7, n as u8);
    let puts = (1..=300_u32).map(|n| async move { client.put(block(1 + u64::from(n % 4), n), &payload(n)).await });
    futures::future::try_join_all(puts).await.unwrap();
    for n in 1..=300 {
        client.holds(block(1 + u64::from(n % 4), n), &payload(n)).await;
    }
    node.stop().await;
}

#[tokio::test]
async fn a_small_block_that_should_not_be_leaves_no_trace() {
    let node = Node::fresh().await;
    let client = &node.client;
    let payload = bytes(40_000, 1);
    let good = client.put_request(block(1, 1), &payload);
    let mut crcs = good.crcs.clone();
    crcs[1] ^= 1;
    for (put, payload, expected) in [
        (PutSmall { crcs, ..good.clone() }, &payload, ErrorCode::Corrupt),
        (PutSmall { crcs: good.crcs[..2].to_vec(), ..good.clone() }, &payload, ErrorCode::Corrupt),
        (PutSmall { crcs: vec![], ..good.clone() }, &Bytes::new(), ErrorCode::TooLarge),
        (good.clone(), &bytes(SMALL_BLOCK_MAX + 1, 1), ErrorCode::TooLarge),
        (PutSmall { durability: 9, ..good.clone() }, &payload, ErrorCode::InvalidArgument),
        (PutSmall { members: vec![], ..good.clone() }, &payload, ErrorCode::InvalidArgument),
        (PutSmall { block: 5, ..good.clone() }, &payload, ErrorCode::InvalidArgument),
    ] {
        code(client.call(request::Op::PutSmall(put), payload.clone()).await, expected);
    }
    client.lacks(block(1, 1), 1).await;
    client.put(block(1, 1), &payload).await.unwrap();
    code(client.put(block(1, 1), &bytes(10, 2)).await, ErrorCode::InvalidBlock);
    client.holds(block(1, 1), &payload).await;
    node.stop().await;
}

#[tokio::test]
async fn chunks_on_their_way_together_make_one_block() {
    let node = Node::fresh().await;
    let (id, payload) = (block(1, 1), bytes(5 * (1 << 20) + 12_345, 3));
    let window = node.client.open(id).await.unwrap() as usize;
    assert!(window >= 1 << 20, "credit for a chunk at least: {window}");
    let connection = node.client.connection().await;
    let mut answers = std::collections::VecDeque::new();
    for at in (0..payload.len()).step_by(256 << 10) {
        let part = payload.slice(at..payload.len().min(at + (256 << 10)));
        let request = Request { request_id: "t".into(), op: Some(chunk(id, at as u64, &part)) };
        if answers.len() == window >> 18 {
            let mut oldest: ozone_rpc::data::PendingAnswer = answers.pop_front().unwrap();
            oldest.wait(Instant::now() + DEADLINE).await.unwrap();
        }
        answers.push_back(connection.send(&request, part, Instant::now() + DEADLINE).await.unwrap());
    }
    for mut answer in answers {
        answer.wait(Instant::now() + DEADLINE).await.unwrap();
    }
    node.client.lacks(id, payload.len() as u64).await;
    code(node.client.finish(id, payload.len() as u64 - 1).await, ErrorCode::OutOfOrder);
    node.client.finish(id, payload.len() as u64).await.unwrap();
    node.client.holds(id, &payload).await;
    code(node.client.finish(id, payload.len() as u64).await, ErrorCode::BlockNotFound);
    node.stop().await;
}

#[tokio::test]
async fn chunks_out_of_order_damaged_or_beyond_the_credit_are_refused() {
    let node = Node::fresh().await;
    let client = &node.client;
    let id = block(1, 1);
    let part = bytes(2 * WINDOW as usize, 1);
    code(client.chunk(id, 0, &part).await, ErrorCode::BlockNotFound);
    let window = client.open(id).await.unwrap();
    code(client.open(id).await, ErrorCode::InvalidBlock);
    code(client.chunk(id, WINDOW, &part).await, ErrorCode::OutOfOrder);
    code(client.chunk(id, 0, &Bytes::new()).await, ErrorCode::InvalidArgument);
    client.chunk(id, 0, &part).await.unwrap();
    code(client.chunk(id, 0, &part).await, ErrorCode::OutOfOrder);
    let other = Client::new(&node.handle);
    code(other.chunk(id, 2 * WINDOW, &part).await, ErrorCode::BlockNotFound);
    code(other.finish(id, 2 * WINDOW).await, ErrorCode::BlockNotFound);
    client.finish(id, 2 * WINDOW).await.unwrap();
    client.holds(id, &part).await;

    let damaged = block(1, 2);
    client.open(damaged).await.unwrap();
    let request::Op::WriteChunk(mut wrong) = chunk(damaged, 0, &part) else { unreachable!() };
    wrong.crcs[1] ^= 1;
    code(client.call(request::Op::WriteChunk(wrong), part.clone()).await, ErrorCode::Corrupt);
    assert!(client.finish(damaged, 2 * WINDOW).await.is_err(), "what was lost on the way is not finished over");
    client.lacks(damaged, 1).await;

    // A writer that does not wait for answers: what is beyond its credit is refused, or had room meanwhile.
    let greedy = block(1, 3);
    client.open(greedy).await.unwrap();
    let part = bytes(2 << 20, 1);
    let connection = client.connection().await;
    let mut answers = Vec::new();
    for n in 0..u64::from(3 * (window >> 21) + 3) {
        let request = Request { request_id: "t".into(), op: Some(chunk(greedy, n << 21, &part)) };
        answers.push(connection.send(&request, part.clone(), Instant::now() + DEADLINE).await.unwrap());
    }
    let mut taken = 0;
    for mut answer in answers {
        match answer.wait(Instant::now() + DEADLINE).await {
            Ok(_) => taken += 1,
            Err(error) => assert!(
                matches!(error.code, ErrorCode::Overloaded | ErrorCode::OutOfOrder | ErrorCode::TooLarge),
                "{error}"
            ),
        }
    }
    assert!(taken >= 1);

    let long = block(1, 4);
    client.open(long).await.unwrap();
    let part = bytes(4 << 20, 1);
    for n in 0..LENGTH_MAX >> 22 {
        client.chunk(long, n << 22, &part).await.unwrap();
    }
    code(client.chunk(long, LENGTH_MAX, &bytes(1, 1)).await, ErrorCode::TooLarge);
    node.stop().await;
}

#[tokio::test]
async fn a_block_given_up_is_gone_for_its_writer() {
    let node = Node::fresh().await;
    let id = block(1, 1);
    node.client.open(id).await.unwrap();
    node.client.chunk(id, 0, &bytes(WINDOW as usize, 1)).await.unwrap();
    node.client.abandon(id).await.unwrap();
    node.client.abandon(id).await.unwrap();
    code(node.client.chunk(id, WINDOW, &bytes(10, 1)).await, ErrorCode::BlockNotFound);
    node.client.lacks(id, WINDOW).await;
    node.stop().await;
}

#[tokio::test]
async fn a_seal_cuts_off_the_writer_and_fixes_the_length() {
    let node = Node::fresh().await;
    let client = &node.client;
    let (id, part) = (block(1, 1), bytes(4 * WINDOW as usize, 1));
    client.open(id).await.unwrap();
    client.chunk(id, 0, &part).await.unwrap();
    // Another client: the writer's own, or whoever recovers its lease.
    let other = Client::new(&node.handle);
    assert_eq!(other.seal(id, 2, None).await.unwrap(), 4 * WINDOW, "promised, and told how much there is");
    code(client.chunk(id, 4 * WINDOW, &part).await, ErrorCode::StaleEpoch);
    code(other.seal(id, 2, Some(5 * WINDOW)).await, ErrorCode::BlockNotFound);
    assert_eq!(other.seal(id, 2, Some(3 * WINDOW)).await.unwrap(), 3 * WINDOW);
    assert_eq!(other.seal(id, 2, Some(3 * WINDOW)).await.unwrap(), 3 * WINDOW, "asked again, answered again");
    assert!(other.seal(id, 2, Some(2 * WINDOW)).await.is_err(), "sealed once");
    code(other.seal(id, 1, Some(3 * WINDOW)).await, ErrorCode::StaleEpoch);
    assert!(client.finish(id, 4 * WINDOW).await.is_err());
    let sealed = part.slice(..3 * WINDOW as usize);
    assert_eq!(other.read_under(2, id, 3 * WINDOW, 0, 3 * WINDOW).await.unwrap(), sealed);
    assert_eq!(other.read_under(1, id, 3 * WINDOW, 5, 9).await.unwrap(), sealed.slice(5..14));
    code(other.read_under(3, id, 3 * WINDOW, 0, 1).await, ErrorCode::BlockNotFound);
    code(other.read_under(2, id, 4 * WINDOW, 0, 1).await, ErrorCode::BlockNotFound);
    assert!(client.put(id, &bytes(10, 1)).await.is_err(), "its id is used up");
    // A promise for a block that never came holds as well; other blocks of the container go on.
    code(other.seal(block(1, 2), 2, Some(1)).await, ErrorCode::BlockNotFound);
    assert!(client.put(block(1, 2), &bytes(10, 1)).await.is_err());
    client.put(block(1, 3), &bytes(10, 1)).await.unwrap();
    node.stop().await;
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_a_block_that_can_be_sealed() {
    let node = Node::fresh().await;
    let (id, part) = (block(1, 1), bytes(3 * WINDOW as usize, 1));
    node.client.open(id).await.unwrap();
    node.client.chunk(id, 0, &part).await.unwrap();
    node.client.pool.close();
    let other = Client::new(&node.handle);
    other.lacks(id, 1).await;
    assert_eq!(other.seal(id, 2, Some(3 * WINDOW)).await.unwrap(), 3 * WINDOW);
    assert_eq!(other.read_under(2, id, 3 * WINDOW, 0, 3 * WINDOW).await.unwrap(), part);
    node.stop().await;
}

#[tokio::test]
async fn open_blocks_of_a_connection_are_bounded() {
    let node = Node::fresh().await;
    let mut opened = Vec::new();
    let error = loop {
        let id = block(1, opened.len() as u32 + 1);
        match node.client.open(id).await {
            Ok(_) => opened.push(id),
            Err(error) => break error,
        }
        assert!(opened.len() < 1000);
    };
    assert_eq!(error.code, ErrorCode::Overloaded);
    for id in &opened {
        node.client.abandon(*id).await.unwrap();
    }
    node.client.open(block(1, 2000)).await.unwrap();
    node.stop().await;
}

#[tokio::test]
async fn members_are_checked_against_this_datanode() {
    let node = Node::fresh().await;
    let payload = bytes(10, 1);
    let stranger = ozone_common::id::DatanodeId::from_bytes([9; 16]);
    let put = PutSmall { members: vec![member(stranger)], ..node.client.put_request(block(1, 1), &payload) };
    let error = node.client.call(request::Op::PutSmall(put), payload.clone()).await.unwrap_err();
    assert!(error.message.contains("is not among them"), "{error}");
    let crcs = windows(&payload);
    let put = PutSmall {
        crcs,
        members: vec![member(stranger), member(node.handle.id())],
        ..node.client.put_request(block(1, 1), &payload)
    };
    node.client.call(request::Op::PutSmall(put), payload).await.unwrap();
    node.stop().await;
}
