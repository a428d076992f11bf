//! The service from call to answer, on a local log and a scripted SCM.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ozone_common::config::TimeSpan;
use ozone_common::env::ManualClock;
use ozone_common::id::{BlockId, ClientId, ClusterId};
use ozone_common::peer::{ClusterSecret, PeerRole};
use ozone_common::token::Operations;
use ozone_common::{Error, ErrorCode};
use ozone_proto::common::v1::{Block, BlockRange};
use ozone_proto::om::v1::{self as om, OmRequest, OmResponse, om_request::Op, om_response::Op as Reply};
use ozone_proto::scm::v1::scm_request;
use ozone_rpc::session::{IncomingCall, Peer};
use prost::Message;
use tokio::time::Instant;

use super::Om;
use super::test_support::{FakeScm, LocalLog, env, node};
use crate::background::{Step, Wakers, grant_expiry, key_purge, part_reclaim};
use crate::config::Config;
use crate::core::{Settings, invariants};
use crate::log::Log;

pub(super) struct Setup {
    pub(super) om: Om<LocalLog>,
    scm: Arc<FakeScm>,
    clock: Arc<ManualClock>,
    secret: ClusterSecret,
    calls: AtomicU64,
}

pub(super) fn setup(room: u32, change: impl FnOnce(&mut Config)) -> Setup {
    let mut config = Config { pool_small_blocks: 100, ..Config::default() };
    change(&mut config);
    let clock = Arc::new(ManualClock::at(1_000_000));
    let secret = ClusterSecret::new(ClusterId::from_bytes([5; 16]), [7; 32]);
    let scm = Arc::new(FakeScm::new(room));
    let settings =
        Settings { read_token_life_ms: config.read_token_life.as_millis(), inline_max: config.inline_max.get() as u32 };
    let log = LocalLog::new(clock.clone(), settings, Arc::new(Wakers::default()));
    let om = Om::new(log, config, secret.cluster, secret.token_key(), env(&clock), scm.clone());
    Setup { om, scm, clock, secret, calls: AtomicU64::new(1) }
}

impl Setup {
    async fn call_as(&self, peer: Peer, sequence: u64, user: &str, request: OmRequest) -> Result<Reply, Error> {
        let call = IncomingCall {
            peer: Arc::new(peer),
            sequence,
            lowest_unanswered: 0,
            deadline: Instant::now() + Duration::from_secs(10),
            request_id: "r".into(),
            user: user.into(),
            request: request.encode_to_vec().into(),
        };
        let reply = self.om.serve(call).await?;
        Ok(OmResponse::decode(reply).unwrap().op.unwrap())
    }

    pub(super) fn sequence(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::SeqCst)
    }

    /// As a program of alice.
    async fn call(&self, op: Op) -> Result<Reply, Error> {
        self.call_as(client(1, "alice"), self.sequence(), "alice", OmRequest { shard_map_version: 0, op: Some(op) })
            .await
    }

    pub(super) async fn bucket(&self) -> om::BucketInfo {
        let create = om::CreateBucket { address: address(), create_volume: true, ..Default::default() };
        let Reply::Bucket(info) = self.call(Op::CreateBucket(create)).await.unwrap() else { panic!() };
        info
    }

    pub(super) async fn grant(&self, blocks: u32) -> om::Grant {
        let acquire = om::AcquireGrant { blocks, max_block_length: 1 << 20, ..Default::default() };
        let Reply::Grant(grant) = self.call(Op::AcquireGrant(acquire)).await.unwrap() else { panic!() };
        grant
    }

    async fn put(&self, key: &'static str, grant: &om::Grant, at: u32) -> Result<Reply, Error> {
        let range = &grant.ranges[0];
        self.call(Op::CommitKey(om::CommitKey {
            bucket: address(),
            key: Bytes::from_static(key.as_bytes()),
            length: 4096,
            blocks: vec![block(range, at, 4096)],
            grants: vec![grant.id],
            ..Default::default()
        }))
        .await
    }

    async fn get(&self, key: &'static str, refresh: bool) -> Result<om::KeyFound, Error> {
        let key = Bytes::from_static(key.as_bytes());
        let lookup = om::LookupKey { bucket: address(), key, want_data: true, refresh, ..Default::default() };
        match self.call(Op::LookupKey(lookup)).await? {
            Reply::KeyFound(found) => Ok(found),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn check(&self) {
        assert_eq!(invariants::check(&**self.om.log.store()).unwrap(), Vec::<String>::new());
    }
}

fn client(id: u8, user: &str) -> Peer {
    Peer {
        role: PeerRole::Client,
        client: ClientId::from_bytes([id; 16]),
        proven: false,
        user: user.into(),
        address: None,
    }
}

pub(super) fn gateway() -> Peer {
    Peer {
        role: PeerRole::Gateway,
        client: ClientId::from_bytes([9; 16]),
        proven: true,
        user: String::new(),
        address: None,
    }
}

pub(super) fn address() -> Option<om::BucketAddress> {
    Some(om::BucketAddress { volume: "s3v".into(), bucket: "photos".into() })
}

fn block(range: &BlockRange, at: u32, length: u64) -> Block {
    Block { id: range.container << 24 | u64::from(range.first_local + at), epoch: range.epoch, length, crc32c: 1 }
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorCode {
    result.unwrap_err().code
}

#[tokio::test]
async fn bytes_written_for_a_bucket_that_was_made_anew_are_refused() {
    let it = setup(1000, |_| {});
    let old = it.bucket().await;
    it.call(Op::DeleteBucket(om::DeleteBucket { address: address() })).await.unwrap();
    let new = it.bucket().await;
    assert_ne!(old.id, new.id);
    let commit = |bucket_id| {
        it.call(Op::CommitKey(om::CommitKey { bucket: address(), key: "k".into(), bucket_id, ..Default::default() }))
    };
    assert_eq!(code(commit(old.id).await), ErrorCode::BucketChanged);
    assert_eq!(code(it.get("k", false).await.map(|_| Reply::Empty(om::Empty {}))), ErrorCode::KeyNotFound);
    commit(new.id).await.unwrap();
    commit(0).await.unwrap();
    it.check();
}

#[tokio::test]
async fn a_key_is_put_found_and_deleted_with_tokens_that_datanodes_accept() {
    let it = setup(1000, |_| {});
    it.bucket().await;
    let grant = it.grant(10).await;
    assert_eq!((grant.ranges.len(), grant.ranges[0].count, grant.min_replicas), (1, 10, 2));
    let range = &grant.ranges[0];
    assert_eq!(range.replicas, [1, 2, 3].map(node));
    let token = range.token.as_ref().unwrap();
    let first = BlockId::new(block(range, 0, 1).id).unwrap();
    let key = it.secret.token_key();
    let claims = token.claims().unwrap();
    assert_eq!(claims.expires_ms, grant.expires_ms - 30_000, "tokens end earlier by the skew bound");
    key.check(&claims, &token.mac, Operations::WRITE, first, range.epoch, 1_000_000).unwrap();
    assert_eq!(claims.max_length, 1 << 20);

    it.put("cat.jpg", &grant, 0).await.unwrap();
    assert_eq!(code(it.put("dog.jpg", &grant, 0).await), ErrorCode::InvalidBlock, "used once");
    let found = it.get("cat.jpg", false).await.unwrap();
    let located = &found.blocks[0];
    assert_eq!(located.replicas, [1, 2, 3].map(node));
    let token = located.token.as_ref().unwrap();
    key.check(&token.claims().unwrap(), &token.mac, Operations::READ, first, range.epoch, 1_059_999).unwrap();
    assert!(key.check(&token.claims().unwrap(), &token.mac, Operations::READ, first, 1, 1_060_000).is_err());
    assert_eq!(found.info.unwrap().owner, "alice");

    let delete = om::DeleteKey { bucket: address(), key: "cat.jpg".into(), must_exist: true, ..Default::default() };
    it.call(Op::DeleteKey(delete.clone())).await.unwrap();
    assert_eq!(code(it.call(Op::DeleteKey(delete)).await), ErrorCode::KeyNotFound);
    assert_eq!(code(it.get("cat.jpg", false).await), ErrorCode::KeyNotFound);
    it.check();

    // Nothing goes to the SCM while a reader may hold a token; then all in one batch, once.
    let Step::After(ms) = key_purge::step(&it.om).await.unwrap() else { panic!() };
    assert_eq!(ms, 60_000);
    it.clock.advance(ms);
    assert_eq!(key_purge::step(&it.om).await.unwrap(), Step::Again);
    assert_eq!(key_purge::step(&it.om).await.unwrap(), Step::Idle);
    let deletes = it.scm.deletes.lock().clone();
    assert_eq!(deletes.len(), 1);
    assert_eq!(deletes[0].containers[0].ranges[0].first, range.first_local);
}

#[tokio::test]
async fn a_repeated_acquire_gets_the_same_grant_and_wastes_no_blocks() {
    let it = setup(1000, |_| {});
    let acquire = || OmRequest {
        shard_map_version: 1,
        op: Some(Op::AcquireGrant(om::AcquireGrant { blocks: 10, max_block_length: 1 << 20, ..Default::default() })),
    };
    let first = it.call_as(client(1, "alice"), 7, "alice", acquire()).await.unwrap();
    let again = it.call_as(client(1, "alice"), 7, "alice", acquire()).await.unwrap();
    assert_eq!(first, again);
    let Reply::Grant(first) = first else { panic!() };
    let next = it.grant(10).await;
    assert_eq!(next.ranges[0].first_local, first.ranges[0].first_local + 10, "given back, then given out");
    assert_eq!(next.ranges[0].container, first.ranges[0].container, "small writers share a container");
}

#[tokio::test]
async fn a_failed_write_raises_the_epoch_before_it_commits() {
    let it = setup(1000, |_| {});
    it.bucket().await;
    let grant = it.grant(10).await;
    let range = grant.ranges[0].clone();
    let report = |grant: u64, peer| {
        let op = Op::ReportFailedWrite(om::ReportFailedWrite {
            grant,
            container: range.container,
            epoch: range.epoch,
            failed: vec![node(2).datanode],
            reason: "timed out".into(),
        });
        it.call_as(peer, it.sequence(), "alice", OmRequest { shard_map_version: 0, op: Some(op) })
    };
    let higher = Block { epoch: range.epoch + 1, ..block(&range, 0, 4096) };
    let commit = |block: Block| {
        it.call(Op::CommitKey(om::CommitKey {
            bucket: address(),
            key: "k".into(),
            length: 4096,
            blocks: vec![block],
            grants: vec![grant.id],
            ..Default::default()
        }))
    };
    assert_eq!(code(commit(higher).await), ErrorCode::InvalidBlock, "not recorded yet");
    assert_eq!(code(report(grant.id, client(2, "bob")).await), ErrorCode::GrantExpired, "another writer's grant");
    assert_eq!(it.scm.count(|op| matches!(op, scm_request::Op::ReportFailedReplicas(_))), 0);
    let Reply::FailedWrite(reply) = report(grant.id, client(1, "alice")).await.unwrap() else { panic!() };
    assert_eq!((reply.epoch, reply.members), (range.epoch + 1, vec![node(1), node(3)]));
    let token = reply.seal_token.unwrap();
    let sealed = BlockId::new(higher.id).unwrap();
    let key = it.secret.token_key();
    key.check(&token.claims().unwrap(), &token.mac, Operations::SEAL, sealed, reply.epoch, 1_000_000).unwrap();
    assert!(key.check(&token.claims().unwrap(), &token.mac, Operations::SEAL, sealed, range.epoch, 1_000_000).is_err());
    commit(higher).await.unwrap();
    assert_eq!(it.get("k", false).await.unwrap().blocks[0].replicas, [node(1), node(3)]);
    let next = it.grant(5).await;
    assert_ne!(next.ranges[0].epoch, range.epoch, "nobody gets blocks of the old membership");
    it.check();
}

#[tokio::test]
async fn a_grant_that_is_not_renewed_ends_and_its_ids_are_freed() {
    let it = setup(1000, |config| config.grant_life = TimeSpan::mins(10));
    it.bucket().await;
    let (kept, lost) = (it.grant(10).await, it.grant(10).await);
    it.put("a", &lost, 3).await.unwrap();
    it.clock.advance(300_000);
    let Reply::Grant(renewed) = it.call(Op::RenewGrant(om::RenewGrant { grant: kept.id })).await.unwrap() else {
        panic!()
    };
    assert_eq!(renewed.expires_ms, kept.expires_ms + 300_000);
    assert!(renewed.ranges[0].token.as_ref().unwrap().expires_ms > kept.ranges[0].token.as_ref().unwrap().expires_ms);
    assert!(matches!(grant_expiry::step(&it.om).await.unwrap(), Step::After(_)));
    it.clock.advance(300_000);
    assert_eq!(grant_expiry::step(&it.om).await.unwrap(), Step::Again);
    assert!(matches!(grant_expiry::step(&it.om).await.unwrap(), Step::After(_)));
    assert_eq!(code(it.put("b", &lost, 4).await), ErrorCode::GrantExpired);
    it.put("b", &kept, 4).await.unwrap();
    it.check();
    it.clock.advance(60_000);
    while key_purge::step(&it.om).await.unwrap() == Step::Again {}
    let freed: u32 =
        it.scm.deletes.lock().iter().flat_map(|d| &d.containers).flat_map(|c| &c.ranges).map(|r| r.count).sum();
    assert_eq!(freed, 9, "ten ids but the committed one");
}

#[tokio::test]
async fn the_pool_asks_the_scm_rarely_and_keeps_off_excluded_nodes() {
    let it = setup(60, |_| {});
    for _ in 0..4 {
        it.grant(20).await;
    }
    it.om.tasks.close();
    it.om.tasks.wait().await;
    it.om.tasks.reopen();
    assert!(it.scm.count(|op| matches!(op, scm_request::Op::AllocateBlocks(_))) <= 2);
    let acquire = om::AcquireGrant {
        blocks: 5,
        max_block_length: 1 << 20,
        exclude: vec![node(3).datanode],
        ..Default::default()
    };
    it.scm.containers.lock().clear();
    it.scm.containers.lock().insert(50, (60, 1, Vec::new()));
    let Reply::Grant(grant) = it.call(Op::AcquireGrant(acquire)).await.unwrap() else { panic!() };
    assert!(grant.ranges.iter().all(|range| !range.replicas.contains(&node(3))), "{grant:?}");
    it.scm.down.store(true, Ordering::SeqCst);
    it.clock.advance(Config::default().pool_life.as_millis());
    let acquire = om::AcquireGrant { blocks: 5, max_block_length: 1 << 20, ..Default::default() };
    assert_eq!(code(it.call(Op::AcquireGrant(acquire)).await), ErrorCode::SafeMode, "stale ids are not given out");
}

#[tokio::test]
async fn locations_are_cached_refreshed_on_demand_and_survive_an_scm_that_is_away() {
    let it = setup(1000, |_| {});
    it.bucket().await;
    let grant = it.grant(10).await;
    it.put("a", &grant, 0).await.unwrap();
    let asked = || it.scm.count(|op| matches!(op, scm_request::Op::GetContainers(_)));
    for _ in 0..5 {
        it.get("a", false).await.unwrap();
    }
    assert_eq!(asked(), 0, "learnt with the blocks");
    it.clock.advance(1000);
    it.get("a", true).await.unwrap();
    it.get("a", true).await.unwrap();
    assert_eq!(asked(), 1, "refreshes at the same moment share an answer");
    it.clock.advance(61_000);
    it.get("a", false).await.unwrap();
    it.get("a", false).await.unwrap();
    assert_eq!(asked(), 2, "past its life an entry is asked for once");
    it.scm.down.store(true, Ordering::SeqCst);
    it.get("a", false).await.unwrap();
    it.clock.advance(1000);
    assert_eq!(code(it.get("a", true).await), ErrorCode::SafeMode);
}

#[tokio::test]
async fn inline_values_travel_in_the_commit_where_the_group_or_the_bucket_allows() {
    let it = setup(1000, |_| {});
    assert_eq!(it.bucket().await.inline_max, 0, "one member is not two copies");
    let commit = || {
        it.call(Op::CommitKey(om::CommitKey {
            bucket: address(),
            key: "k".into(),
            length: 5,
            inline: "hello".into(),
            is_inline: true,
            ..Default::default()
        }))
    };
    assert_eq!(code(commit().await), ErrorCode::TooLarge);
    it.om.log.members.store(3, Ordering::SeqCst);
    commit().await.unwrap();
    let found = it.get("k", false).await.unwrap();
    assert!(found.is_inline && found.inline == "hello" && found.blocks.is_empty());
    let Reply::Bucket(info) = it.call(Op::InfoBucket(om::InfoBucket { address: address() })).await.unwrap() else {
        panic!()
    };
    assert_eq!((info.used_bytes, info.used_replicated_bytes, info.key_count, info.inline_max), (5, 15, 1, 4096));
    it.check();
}

#[tokio::test]
async fn an_upload_is_joined_and_its_parts_are_freed_with_the_object() {
    let it = setup(1000, |_| {});
    it.bucket().await;
    let initiate = om::InitiateUpload { bucket: address(), key: "big".into(), ..Default::default() };
    let Reply::UploadInitiated(begun) = it.call(Op::InitiateUpload(initiate)).await.unwrap() else { panic!() };
    let acquire = om::AcquireGrant { blocks: 8, max_block_length: 8 << 20, ..Default::default() };
    let Reply::Grant(grant) = it.call(Op::AcquireGrant(acquire)).await.unwrap() else { panic!() };
    let part = |number: u32, at: u32| {
        let length = 5 << 20;
        it.call(Op::CommitPart(om::CommitPart {
            bucket: address(),
            key: "big".into(),
            upload: begun.upload.clone(),
            part: number,
            length,
            md5: vec![number as u8; 16].into(),
            blocks: vec![block(&grant.ranges[0], at, length)],
            grants: vec![grant.id],
            ..Default::default()
        }))
    };
    for (number, at) in [(1, 0), (2, 1), (5, 2), (2, 3)] {
        part(number, at).await.unwrap();
    }
    assert_eq!(code(part(10_001, 4).await), ErrorCode::InvalidArgument);
    let list =
        om::ListParts { bucket: address(), key: "big".into(), upload: begun.upload.clone(), after_part: 1, limit: 1 };
    let Reply::Parts(page) = it.call(Op::ListParts(list)).await.unwrap() else { panic!() };
    assert_eq!((page.parts.len(), page.parts[0].part, page.truncated), (1, 2, true));
    let complete = || {
        let named = |part: u32| om::CompletedPart { part, md5: vec![part as u8; 16].into(), checksum: None };
        it.call(Op::CompleteUpload(om::CompleteUpload {
            bucket: address(),
            key: "big".into(),
            upload: begun.upload.clone(),
            parts: vec![named(1), named(2)],
            expected_length: 10 << 20,
            ..Default::default()
        }))
    };
    let Reply::KeyCommitted(first) = complete().await.unwrap() else { panic!() };
    let Reply::KeyCommitted(again) = complete().await.unwrap() else { panic!() };
    assert_eq!(first.generation, again.generation);
    let found = it.get("big", false).await.unwrap();
    assert_eq!(found.blocks.iter().map(|b| b.offset).collect::<Vec<_>>(), [0, 5 << 20]);
    for (data_offset, data_length, want) in
        [(0, 1, 1), ((5 << 20) - 1, 1, 1), ((5 << 20) - 1, 2, 2), (5 << 20, 0, 1), (10 << 20, 0, 0), (0, 0, 2)]
    {
        let lookup = om::LookupKey {
            bucket: address(),
            key: "big".into(),
            want_data: true,
            data_offset,
            data_length,
            ..Default::default()
        };
        let Reply::KeyFound(found) = it.call(Op::LookupKey(lookup)).await.unwrap() else { panic!() };
        assert_eq!(found.blocks.len(), want, "{data_length} bytes from {data_offset}");
    }
    let info = found.info.unwrap();
    assert_eq!((info.length, info.parts.len(), info.meta.unwrap().etag_parts), (10 << 20, 2, 2));
    it.check();
    let delete = om::DeleteKeys { bucket: address(), keys: vec!["big".into(), "absent".into()] };
    it.call(Op::DeleteKeys(delete)).await.unwrap();
    it.check();
    assert_eq!(part_reclaim::step(&it.om).await.unwrap(), Step::Again);
    assert_eq!(part_reclaim::step(&it.om).await.unwrap(), Step::Idle);
    it.check();
    it.call(Op::DeleteBucket(om::DeleteBucket { address: address() })).await.unwrap();
    it.check();
}

#[tokio::test]
async fn secrets_are_for_their_users_and_proven_gateways() {
    let it = setup(10, |_| {});
    let ask = |peer: Peer, user: &str, op: Op| {
        let user = user.to_owned();
        let it = &it;
        async move { it.call_as(peer, it.sequence(), &user, OmRequest { shard_map_version: 0, op: Some(op) }).await }
    };
    let get = |user: &str| Op::GetSecret(om::GetSecret { user: user.into(), create: true });
    let Reply::Secret(made) = ask(client(1, "alice"), "alice", get("alice")).await.unwrap() else { panic!() };
    assert!(made.created && made.access_key == "alice" && made.secret_key.len() == 64);
    let Reply::Secret(same) = ask(client(2, "root"), "root", get("alice")).await.unwrap() else { panic!() };
    assert_eq!((same.secret_key.as_str(), same.created), (made.secret_key.as_str(), false));
    assert_eq!(code(ask(client(3, "bob"), "bob", get("alice")).await), ErrorCode::PermissionDenied);
    assert_eq!(
        code(ask(client(3, "bob"), "alice", get("alice")).await),
        ErrorCode::PermissionDenied,
        "a call's user of a client is not believed"
    );
    assert_eq!(code(ask(client(2, "root"), "root", get("a/b")).await), ErrorCode::InvalidArgument);
    let look = |key: &str| Op::LookupSecret(om::LookupSecret { access_key: key.into() });
    let Reply::Secret(found) = ask(gateway(), "", look("alice")).await.unwrap() else { panic!() };
    assert_eq!((found.user.as_str(), found.secret_key), ("alice", made.secret_key));
    assert_eq!(code(ask(gateway(), "", look("nobody")).await), ErrorCode::SecretNotFound);
    assert_eq!(code(ask(client(2, "root"), "root", look("alice")).await), ErrorCode::PermissionDenied);
    let revoke = Op::RevokeSecret(om::RevokeSecret { user: "alice".into() });
    ask(client(1, "alice"), "alice", revoke).await.unwrap();
    assert_eq!(code(ask(gateway(), "", look("alice")).await), ErrorCode::SecretNotFound);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_by_name() {
    let it = setup(10, |_| {});
    let raw = |request: OmRequest| it.call_as(client(1, "alice"), it.sequence(), "alice", request);
    let info = || Some(Op::InfoBucket(om::InfoBucket { address: address() }));
    assert_eq!(code(raw(OmRequest { shard_map_version: 2, op: info() }).await), ErrorCode::ShardMoved);
    assert_eq!(code(raw(OmRequest { shard_map_version: 1, op: info() }).await), ErrorCode::VolumeNotFound);
    assert_eq!(code(raw(OmRequest { shard_map_version: 1, op: None }).await), ErrorCode::NotSupported);
    assert_eq!(code(it.call(Op::InfoBucket(om::InfoBucket { address: None })).await), ErrorCode::InvalidArgument);
    let bad = Some(om::BucketAddress { volume: "s3v".into(), bucket: "../x".into() });
    assert_eq!(code(it.call(Op::DeleteBucket(om::DeleteBucket { address: bad })).await), ErrorCode::InvalidBucketName);
    it.bucket().await;
    for (blocks, max_block_length) in [(0, 1), (1025, 1), (1, 0), (1, (256 << 20) + 1)] {
        let acquire = om::AcquireGrant { blocks, max_block_length, ..Default::default() };
        assert_eq!(
            code(it.call(Op::AcquireGrant(acquire)).await),
            ErrorCode::InvalidArgument,
            "{blocks} {max_block_length}"
        );
    }
    let acquire = om::AcquireGrant { blocks: 1, max_block_length: 1, exclude: vec!["x".into()], ..Default::default() };
    assert_eq!(code(it.call(Op::AcquireGrant(acquire)).await), ErrorCode::InvalidArgument);
    let too_many = om::DeleteKeys { bucket: address(), keys: vec!["k".into(); 1001] };
    assert_eq!(code(it.call(Op::DeleteKeys(too_many)).await), ErrorCode::InvalidArgument);
    let both = om::CommitKey { bucket: address(), key: "k".into(), inline: "x".into(), ..Default::default() };
    assert_eq!(code(it.call(Op::CommitKey(both)).await), ErrorCode::InvalidArgument);
    let Reply::Status(status) = it.call(Op::Status(om::Status {})).await.unwrap() else { panic!() };
    assert!(status.leader && status.writable && status.shard_map_version == 1);
    it.check();
}

#[tokio::test]
async fn serves_over_a_real_connection_and_ends_when_told() {
    use ozone_rpc::session::{CallOptions, Identity, SessionClient, SessionOptions};
    use tokio_util::sync::CancellationToken;

    let env = ozone_common::env::Env::system();
    let secret = ClusterSecret::new(ClusterId::from_bytes([5; 16]), [7; 32]);
    let config = Config { rpc_bind: "127.0.0.1:0".into(), http_bind: "127.0.0.1:0".into(), ..Config::default() };
    let wakers = Arc::new(Wakers::default());
    let settings = Settings { read_token_life_ms: 60_000, inline_max: 4096 };
    let log = LocalLog::new(env.clock.clone(), settings, wakers.clone());
    let shutdown = CancellationToken::new();
    let scm = Arc::new(FakeScm::new(100));
    let listeners = crate::server::Listeners::bind(&config).await.unwrap();
    let (secret2, env2) = (secret.clone(), env.clone());
    let handle = crate::server::serve(config, secret2, env2, listeners, log, scm, wakers, None, shutdown.clone());
    let handle = handle.await.unwrap();
    let address = handle.rpc_address().to_string();
    let call = async |identity, user: Option<&str>, op| {
        let session = SessionClient::connect(
            "om.Sessions",
            vec![address.clone()],
            identity,
            env.clone(),
            SessionOptions::default(),
        );
        let options = CallOptions {
            deadline: Instant::now() + Duration::from_secs(5),
            request_id: "r".into(),
            user: user.map(Arc::from),
        };
        let request = OmRequest { shard_map_version: 0, op: Some(op) }.encode_to_vec();
        let reply = session.unwrap().call(request.into(), &options).await?;
        Ok::<_, Error>(OmResponse::decode(reply).unwrap().op.unwrap())
    };
    let create = || Op::CreateVolume(om::CreateVolume { volume: "vol".into(), owner: String::new() });
    let user = || Identity::User("alice".into());
    let Reply::Volume(volume) = call(user(), None, create()).await.unwrap() else { panic!() };
    assert_eq!(volume.owner, "alice");
    assert_eq!(code(call(user(), None, create()).await), ErrorCode::VolumeAlreadyExists);
    let look = || Op::LookupSecret(om::LookupSecret { access_key: "x".into() });
    let gateway = Identity::Role(PeerRole::Gateway, secret.clone());
    assert_eq!(code(call(gateway, None, look()).await), ErrorCode::SecretNotFound);
    assert_eq!(code(call(user(), None, look()).await), ErrorCode::PermissionDenied);
    let info = || Op::InfoVolume(om::InfoVolume { volume: "vol".into() });
    let gateway = Identity::Role(PeerRole::Gateway, secret);
    assert!(call(gateway, Some("bob"), info()).await.is_ok());
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(10), handle.join()).await.unwrap().unwrap();
}
