//! Without the right token nothing is done, and nothing is told.

use bytes::Bytes;
use ozone_common::ErrorCode;
use ozone_common::id::{ClusterId, DatanodeId};
use ozone_common::peer::ClusterSecret;
use ozone_common::token::{Claims, Operations};
use ozone_proto::common::v1::Token;
use ozone_proto::datanode::v1::{OpenBlock, PutSmall, ReadBlock, ReportCorrupt, SealBlock, request};
use ozone_rpc::data::{DataClient, DataOptions, Lane};
use tokio::time::Instant;

use crate::node::{DEADLINE, Node, block, bytes, claims, code, secret, sign, token};

/// Tokens that are wrong in one thing each, for an operation on block 5 of container 1 under epoch 1.
fn wrong(operations: Operations) -> Vec<(&'static str, Option<Token>)> {
    let good = claims(operations, block(1, 5));
    let other = ClusterSecret::new(ClusterId::from_bytes([7; 16]), [2; 32]).token_key().sign(&good);
    let of_other_cluster = ClusterSecret::new(ClusterId::from_bytes([8; 16]), [1; 32]).token_key().sign(&good);
    let others = Operations(7 & !operations.0);
    vec![
        ("there is none", None),
        ("another secret", Some(Token::from_claims(&good, &other))),
        ("another cluster", Some(Token::from_claims(&good, &of_other_cluster))),
        ("no authenticator", Some(Token { mac: Bytes::new(), ..sign(&good).unwrap() })),
        ("changed after it was signed", Some(Token { expires_ms: u64::MAX, ..sign(&good).unwrap() })),
        ("other operations", sign(&Claims { operations: others, ..good })),
        ("another container", sign(&Claims { container: block(2, 5).container(), ..good })),
        ("blocks before", sign(&Claims { first_local: 4, count: 1, ..good })),
        ("blocks after", sign(&Claims { first_local: 6, ..good })),
        ("no blocks", sign(&Claims { first_local: 5, count: 0, ..good })),
        ("expired", sign(&Claims { expires_ms: good.expires_ms - 120_000, ..good })),
    ]
}

#[tokio::test]
async fn each_operation_refuses_each_wrong_token() {
    let node = Node::fresh().await;
    let client = &node.client;
    let id = block(1, 5);
    let payload = bytes(100, 1);
    let later = |operations| sign(&Claims { epoch: 2, ..claims(operations, id) });
    for (what, token) in wrong(Operations::WRITE).into_iter().chain([("a later epoch", later(Operations::WRITE))]) {
        let put = PutSmall { token: token.clone(), ..client.put_request(id, &payload) };
        let error = client.call(request::Op::PutSmall(put), payload.clone()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidToken, "{what}: {error}");
        let open = OpenBlock { token, ..client.open_request(id) };
        code(client.call(request::Op::OpenBlock(open), Bytes::new()).await, ErrorCode::InvalidToken);
    }
    client.put(id, &payload).await.unwrap();
    for (what, token) in wrong(Operations::READ).into_iter().chain([("a later epoch", later(Operations::READ))]) {
        let read =
            ReadBlock { block: id.get(), epoch: 1, block_length: 100, offset: 0, length: 100, token: token.clone() };
        let error = client.call(request::Op::ReadBlock(read), Bytes::new()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidToken, "{what}: {error}");
        if what != "a later epoch" {
            let report = ReportCorrupt { block: id.get(), offset: 0, token };
            code(client.call(request::Op::ReportCorrupt(report), Bytes::new()).await, ErrorCode::InvalidToken);
        }
    }
    for (what, token) in wrong(Operations::SEAL) {
        let seal = SealBlock { block: id.get(), epoch: 2, length: Some(1), token };
        let error = client.call(request::Op::SealBlock(seal), Bytes::new()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidToken, "{what}: {error}");
    }
    client.holds(id, &payload).await;
    node.stop().await;
}

#[tokio::test]
async fn a_token_bounds_the_length_of_what_is_written() {
    let node = Node::fresh().await;
    let id = block(1, 1);
    let short = sign(&Claims { max_length: 99, ..claims(Operations::WRITE, id) });
    let payload = bytes(100, 1);
    let put = PutSmall { token: short.clone(), ..node.client.put_request(id, &payload) };
    code(node.client.call(request::Op::PutSmall(put), payload.clone()).await, ErrorCode::TooLarge);
    let open = OpenBlock { token: short, ..node.client.open_request(id) };
    node.client.call(request::Op::OpenBlock(open), Bytes::new()).await.unwrap();
    code(node.client.chunk(id, 0, &payload).await, ErrorCode::TooLarge);
    node.client.chunk(id, 0, &payload.slice(..99)).await.unwrap();
    node.stop().await;
}

#[tokio::test]
async fn a_token_to_read_does_not_write_over_a_stream_opened_to_write() {
    let node = Node::fresh().await;
    let id = block(1, 1);
    node.client.open(id).await.unwrap();
    let payload = bytes(10, 1);
    let read = token(Operations::READ, id);
    let put = PutSmall { token: read, ..node.client.put_request(block(1, 2), &payload) };
    code(node.client.call(request::Op::PutSmall(put), payload).await, ErrorCode::InvalidToken);
    node.stop().await;
}

#[tokio::test]
async fn clients_of_another_cluster_or_for_another_datanode_are_not_greeted() {
    let node = Node::fresh().await;
    let me = ozone_common::id::ClientId::from_bytes([1; 16]);
    let stranger = DataClient::new(Some(ClusterId::from_bytes([8; 16])), me, DataOptions::default());
    let target = node.client.target.clone();
    let refused = stranger.connection(&target, Lane::Small, Instant::now() + DEADLINE).await;
    assert!(refused.err().unwrap().message.contains("belongs to cluster"));
    let lost = DataClient::new(Some(secret().cluster), me, DataOptions::default());
    let elsewhere = ozone_rpc::data::Target { datanode: DatanodeId::from_bytes([9; 16]), ..target };
    let refused = lost.connection(&elsewhere, Lane::Small, Instant::now() + DEADLINE).await;
    assert!(refused.err().unwrap().message.contains("not 09090909-"));
    node.stop().await;
}
