//! Fakes put together, and what must hold of everything written through them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ozone_client::{CallContext, Client, Config, Identity, Tuning, Written};
use ozone_common::checksum::crc32c;
use ozone_common::config::{ByteSize, TimeSpan};
use ozone_common::env::Env;
use ozone_common::id::ClusterId;
use ozone_common::peer::{ClusterSecret, PeerRole};
use ozone_proto::om::v1::{BucketAddress, BucketInfo};
use ozone_rpc::session::{SessionConfig, service};
use ozone_rpc::{channel, listener};
use tokio_util::sync::CancellationToken;

use crate::fake_datanode::FakeDatanode;
use crate::fake_om::FakeOm;

pub struct Cluster {
    pub nodes: Vec<Arc<FakeDatanode>>,
    pub om: Arc<FakeOm>,
    pub client: Client,
    _shutdown: tokio_util::sync::DropGuard,
}

pub fn tuning() -> Tuning {
    Tuning {
        block_size: ByteSize::kib(2048),
        chunk_size: ByteSize::kib(256),
        read_size: ByteSize::kib(512),
        late_replica: TimeSpan::millis(300),
        late_finish: TimeSpan::millis(300),
        ..Tuning::default()
    }
}

impl Cluster {
    pub async fn start(nodes: u8, tuning: Tuning) -> Self {
        let secret = ClusterSecret::new(ClusterId::from_bytes([1; 16]), [7; 32]);
        let nodes: Vec<_> = (1..=nodes)
            .map(|number| {
                // Runtimes cannot be built inside one.
                std::thread::spawn(move || FakeDatanode::start(number, ClusterId::from_bytes([1; 16]))).join().unwrap()
            })
            .collect();
        let om = FakeOm::new(nodes.iter().map(|node| node.address.clone()).collect());
        let shutdown = CancellationToken::new();
        let config = SessionConfig::new("om.Sessions", PeerRole::Om, secret.clone(), Env::system(), shutdown.clone());
        let socket = listener::bind("127.0.0.1:0", false).await.unwrap();
        let address = listener::local_address(&socket).unwrap().to_string();
        let router = channel::server().add_service(service(config, om.clone()));
        tokio::spawn(listener::serve(socket, router, shutdown.clone()));
        let mut config = Config::new(vec![address], Identity::Gateway(secret));
        config.tuning = tuning;
        let client = Client::connect(config, Env::system()).unwrap();
        Self { nodes, om, client, _shutdown: shutdown.drop_guard() }
    }

    /// Writes `data` in pieces of `piece` bytes and makes it the OM's one key.
    pub async fn write(&self, data: &[u8], piece: usize) -> Result<Written, ozone_common::Error> {
        let mut writer = self.client.writer(&ctx(20_000), &bucket(0), None)?;
        for piece in data.chunks(piece.max(1)) {
            writer.write(Bytes::copy_from_slice(piece)).await?;
        }
        let written = writer.finish().await?;
        self.check(data, &written);
        let mut state = self.om.state.lock();
        state.blocks = written.blocks.clone();
        state.inline = written.inline.clone();
        Ok(written)
    }

    /// Every datanode of each block's membership holds the block's bytes under its epoch, and there are enough of them.
    pub fn check(&self, data: &[u8], written: &Written) {
        assert_eq!(written.length, data.len() as u64);
        let mut at = 0;
        if let Some(inline) = &written.inline {
            assert_eq!(inline, data);
            assert!(written.blocks.is_empty());
            return assert_eq!(written.crc32c, crc32c(data));
        }
        for block in &written.blocks {
            let bytes = &data[at..at + block.length as usize];
            at += bytes.len();
            assert_eq!(block.crc32c, crc32c(bytes), "block {:#x}", block.id);
            assert_eq!(self.om.epoch(block.id), block.epoch, "block {:#x}", block.id);
            let members = self.om.members(block.id);
            assert!(members.len() >= 2, "min_replicas");
            for node in self.nodes.iter().filter(|node| members.contains(&node.address.datanode)) {
                let held = node.held(block.id).unwrap_or_else(|| panic!("{:#x} is not on {}", block.id, node.id));
                assert!(held.sealed && held.bytes == bytes, "{:#x} on {}", block.id, node.id);
                assert_eq!(held.epoch, block.epoch);
            }
            let container = block.id >> ozone_common::id::LOCAL_BITS;
            assert!(written.grants.contains(&container), "the fake's grants are numbered as their containers");
            assert!(crate::fake_om::local(block.id) >= 1);
        }
        assert_eq!(at, data.len());
        if !data.is_empty() {
            assert_eq!(written.crc32c, crc32c(data));
        }
    }

    pub async fn read(&self, range: std::ops::Range<u64>) -> Result<Vec<u8>, ozone_common::Error> {
        // Half of the time as a gateway does that looks up the range only.
        let found = match range.start % 2 {
            0 => self.om.found(),
            _ => self.om.found_in(range.start, range.end - range.start),
        };
        let mut reader = self.client.reader(&ctx(10_000), &BucketAddress::default(), &found, range)?;
        let mut bytes = Vec::new();
        while let Some(piece) = reader.next().await? {
            assert!(!piece.is_empty());
            bytes.extend_from_slice(&piece);
        }
        assert_eq!(reader.remaining(), 0);
        Ok(bytes)
    }
}

pub fn ctx(ms: u64) -> CallContext {
    CallContext::new("test", None, Duration::from_millis(ms))
}

pub fn bucket(inline_max: u32) -> BucketInfo {
    BucketInfo { replication: "RATIS/THREE".to_owned(), inline_max, ..BucketInfo::default() }
}

/// Bytes that differ from place to place.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[6]).collect()
}

pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
