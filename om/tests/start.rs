//! The whole OM on a folder: what was answered is there after a restart, after a kill, and a second start on the folder is refused.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::env::{Env, RealDisk};
use ozone_common::id::ClusterId;
use ozone_common::peer::ClusterSecret;
use ozone_common::{Error, ErrorCode};
use ozone_om::{Config, Handle};
use ozone_proto::om::v1::om_request::Op;
use ozone_proto::om::v1::om_response::Op as Reply;
use ozone_proto::om::v1::{self as om, OmRequest, OmResponse};
use ozone_rpc::session::{CallOptions, Identity, SessionClient, SessionOptions};
use prost::Message;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(20);
const KEYS: usize = 200;

fn secret(cluster: u8) -> ClusterSecret {
    ClusterSecret::new(ClusterId::from_bytes([cluster; 16]), [7; 32])
}

fn config(folder: &Path) -> Config {
    Config {
        data: folder.to_path_buf(),
        rpc_bind: "127.0.0.1:0".into(),
        http_bind: "127.0.0.1:0".into(),
        // Nobody is there: nothing here needs blocks.
        scm_addresses: vec!["127.0.0.1:1".into()],
        ..Config::default()
    }
}

struct Running {
    handle: Handle,
    shutdown: CancellationToken,
    session: SessionClient,
}

async fn start(folder: &Path) -> Running {
    let shutdown = CancellationToken::new();
    let handle = ozone_om::start(config(folder), secret(5), Env::system(), shutdown.clone()).await.unwrap();
    let address = vec![handle.rpc_address().to_string()];
    let identity = Identity::User("alice".into());
    let session =
        SessionClient::connect("om.Sessions", address, identity, Env::system(), SessionOptions::default()).unwrap();
    Running { handle, shutdown, session }
}

fn address() -> Option<om::BucketAddress> {
    Some(om::BucketAddress { volume: "vol".into(), bucket: "bucket".into() })
}

fn key(number: usize) -> Bytes {
    format!("key-{number:04}").into()
}

impl Running {
    async fn call(&self, op: Op) -> Result<Reply, Error> {
        let options = CallOptions { deadline: Instant::now() + DEADLINE, request_id: "r".into(), user: None };
        let request = OmRequest { shard_map_version: 0, op: Some(op) }.encode_to_vec();
        let reply = self.session.call(request.into(), &options).await?;
        Ok(OmResponse::decode(reply).unwrap().op.unwrap())
    }

    async fn put(&self, number: usize) -> Result<Reply, Error> {
        let inline = Bytes::from(format!("value {number}"));
        self.call(Op::CommitKey(om::CommitKey {
            bucket: address(),
            key: key(number),
            length: inline.len() as u64,
            inline,
            is_inline: true,
            ..Default::default()
        }))
        .await
    }

    /// Every key and its value.
    async fn contents(&self) -> Vec<(Bytes, Bytes)> {
        let list = om::ListKeys { bucket: address(), limit: 1000, ..Default::default() };
        let Reply::Keys(page) = self.call(Op::ListKeys(list)).await.unwrap() else { panic!("not a page of keys") };
        let mut found = Vec::new();
        for info in page.keys {
            let lookup =
                om::LookupKey { bucket: address(), key: info.key.clone(), want_data: true, ..Default::default() };
            let Reply::KeyFound(one) = self.call(Op::LookupKey(lookup)).await.unwrap() else { panic!("not a key") };
            found.push((info.key, one.inline));
        }
        found
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, self.handle.join()).await.expect("it stops").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_answered_survives_kill_and_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (first, killed) = (folder.path().join("om"), folder.path().join("killed"));
    let served = start(&first).await;
    let running = &served;
    let create = om::CreateBucket {
        address: address(),
        create_volume: true,
        inline: om::InlinePolicy::Always as i32,
        ..Default::default()
    };
    running.call(Op::CreateBucket(create)).await.unwrap();
    let puts = (0..16).map(|task| async move {
        for number in (task..KEYS).step_by(16) {
            running.put(number).await.unwrap();
        }
    });
    futures::future::join_all(puts).await;
    for number in (0..KEYS).step_by(3) {
        let delete = om::DeleteKey { bucket: address(), key: key(number), must_exist: true, ..Default::default() };
        running.call(Op::DeleteKey(delete)).await.unwrap();
    }
    let expected: Vec<(Bytes, Bytes)> = (0..KEYS)
        .filter(|number| number % 3 != 0)
        .map(|number| (key(number), Bytes::from(format!("value {number}"))))
        .collect();
    assert_eq!(running.contents().await, expected);
    RealDisk.copy_folder(&first, &killed).unwrap();

    let second = ozone_om::start(config(&first), secret(5), Env::system(), CancellationToken::new()).await;
    let error = second.err().unwrap();
    assert!(error.message.contains("is in use by another process"), "{error}");
    served.stop().await;

    for folder in [&first, &killed] {
        let again = start(folder).await;
        assert_eq!(again.contents().await, expected, "{}", folder.display());
        again.put(0).await.unwrap();
        assert_eq!(again.contents().await.len(), expected.len() + 1);
        again.stop().await;
    }
    let foreign = ozone_om::start(config(&first), secret(6), Env::system(), CancellationToken::new()).await;
    assert_eq!(foreign.err().unwrap().code, ErrorCode::InvalidArgument);
}
