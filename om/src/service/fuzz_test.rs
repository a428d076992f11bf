//! Arbitrary bytes as calls: whatever a program sends, the service answers, and the tables stay whole.

use bytes::Bytes;
use ozone_proto::common::v1::Block;
use ozone_proto::om::v1::{self as om, OmRequest, OmResponse, om_request::Op};
use ozone_rpc::session::IncomingCall;
use prost::Message;
use tokio::time::Instant;

use super::service_test::{Setup, address, gateway, setup};

/// One of each operation, good as far as numbers that a server draws allow.
fn samples() -> Vec<Op> {
    let key = Bytes::from_static(b"cat.jpg");
    let meta = om::ObjectMeta {
        etag_md5: vec![7; 16].into(),
        etag_parts: 2,
        checksum: Some(om::Checksum { algorithm: 2, value: vec![1; 4].into(), composite: false, parts: 0 }),
        headers: [("content-type".to_owned(), "image/jpeg".to_owned())].into(),
        user: [("colour".to_owned(), "grey".to_owned())].into(),
    };
    let conditions = om::Conditions { if_absent: true, if_match_md5: vec![7; 16].into(), ..Default::default() };
    let block = Block { id: 1 << 24, epoch: 1, length: 9, crc32c: 5 };
    let (volume, user) = ("s3v".to_owned(), "alice".to_owned());
    let upload = "0000000000000000000000000000000a".to_owned();
    vec![
        Op::CreateVolume(om::CreateVolume { volume: volume.clone(), owner: user.clone() }),
        Op::InfoVolume(om::InfoVolume { volume: volume.clone() }),
        Op::ListVolumes(om::ListVolumes { prefix: "s".into(), start_after: "a".into(), limit: 10 }),
        Op::DeleteVolume(om::DeleteVolume { volume: "other".into() }),
        Op::CreateBucket(om::CreateBucket {
            address: address(),
            owner: user.clone(),
            replication: "RATIS/THREE".into(),
            durability: 1,
            inline: 1,
            create_volume: true,
        }),
        Op::InfoBucket(om::InfoBucket { address: address() }),
        Op::ListBuckets(om::ListBuckets { volume, prefix: "p".into(), limit: 10, ..Default::default() }),
        Op::DeleteBucket(om::DeleteBucket { address: address() }),
        Op::AcquireGrant(om::AcquireGrant { blocks: 4, max_block_length: 1 << 20, ..Default::default() }),
        Op::RenewGrant(om::RenewGrant { grant: 1 }),
        Op::ReleaseGrant(om::ReleaseGrant { grant: 1 }),
        Op::ReportFailedWrite(om::ReportFailedWrite {
            grant: 1,
            container: 1,
            epoch: 1,
            failed: vec![vec![1; 16].into()],
            reason: "timed out".into(),
        }),
        Op::CommitKey(om::CommitKey {
            bucket: address(),
            key: key.clone(),
            length: 9,
            meta: Some(meta.clone()),
            blocks: vec![block],
            grants: vec![1],
            ..Default::default()
        }),
        Op::CommitKey(om::CommitKey {
            bucket: address(),
            key: key.clone(),
            length: 5,
            inline: Bytes::from_static(b"inner"),
            is_inline: true,
            conditions: Some(conditions.clone()),
            ..Default::default()
        }),
        Op::LookupKey(om::LookupKey { bucket: address(), key: key.clone(), want_data: true, ..Default::default() }),
        Op::ListKeys(om::ListKeys { bucket: address(), delimiter: "/".into(), limit: 10, ..Default::default() }),
        Op::DeleteKey(om::DeleteKey {
            bucket: address(),
            key: key.clone(),
            conditions: Some(conditions.clone()),
            must_exist: true,
        }),
        Op::DeleteKeys(om::DeleteKeys { bucket: address(), keys: vec![key.clone(), "dog.jpg".into()] }),
        Op::InitiateUpload(om::InitiateUpload { bucket: address(), key: key.clone(), meta: Some(meta) }),
        Op::CommitPart(om::CommitPart {
            bucket: address(),
            key: key.clone(),
            upload: upload.clone(),
            part: 1,
            length: 9,
            md5: vec![7; 16].into(),
            blocks: vec![block],
            grants: vec![1],
            ..Default::default()
        }),
        Op::ListParts(om::ListParts {
            bucket: address(),
            key: key.clone(),
            upload: upload.clone(),
            ..Default::default()
        }),
        Op::ListUploads(om::ListUploads { bucket: address(), delimiter: "/".into(), limit: 10, ..Default::default() }),
        Op::CompleteUpload(om::CompleteUpload {
            bucket: address(),
            key: key.clone(),
            upload: upload.clone(),
            parts: vec![om::CompletedPart { part: 1, md5: vec![7; 16].into(), checksum: None }],
            conditions: Some(conditions),
            ..Default::default()
        }),
        Op::AbortUpload(om::AbortUpload { bucket: address(), key, upload }),
        Op::GetSecret(om::GetSecret { user: user.clone(), create: true }),
        Op::RevokeSecret(om::RevokeSecret { user }),
        Op::LookupSecret(om::LookupSecret { access_key: "AKIA".into() }),
        Op::Status(om::Status {}),
    ]
}

/// Which operation answered how: a code for refusals, a field number for answers.
async fn outcome(it: &Setup, bytes: &[u8]) -> (Option<std::mem::Discriminant<Op>>, u64) {
    let op = OmRequest::decode(bytes).ok().and_then(|request| request.op);
    let call = IncomingCall {
        peer: gateway().into(),
        sequence: it.sequence(),
        lowest_unanswered: 0,
        deadline: Instant::now() + std::time::Duration::from_secs(10),
        request_id: "fuzz".into(),
        user: "alice".into(),
        request: Bytes::copy_from_slice(bytes),
    };
    let answered = match it.om.serve(call).await {
        Ok(reply) => OmResponse::decode(reply).expect("an answer decodes").encoded_len() as u64 & 0xf,
        Err(error) => 1 << 32 | error.code as u64,
    };
    (op.as_ref().map(std::mem::discriminant), answered)
}

#[test]
fn whatever_a_program_sends_is_answered_and_the_tables_stay_whole() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let it = setup(1000, |_| {});
    runtime.block_on(async {
        it.bucket().await;
        it.grant(100).await;
    });
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/request");
    let dictionary: [&[u8]; 5] = [b"s3v", b"photos", b"cat.jpg", b"alice", &[0x08, 0x01]];
    ozone_fuzz::fuzz(corpus, &dictionary, |bytes| runtime.block_on(outcome(&it, bytes)));
    it.check();
}

#[test]
fn the_corpus_has_each_operation() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/request");
    let files = std::fs::read_dir(corpus).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    let kept: Vec<Vec<u8>> = files.collect();
    for op in samples() {
        let bytes = OmRequest { shard_map_version: 1, op: Some(op.clone()) }.encode_to_vec();
        assert!(kept.contains(&bytes), "{corpus} lacks this: {op:?}");
    }
}
