//! A datanode under test, and a client that says exactly what a test has it say.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::checksum::{first_mismatch, windows};
use ozone_common::config::ByteSize;
use ozone_common::env::{Env, RealDisk};
use ozone_common::id::{BlockId, ClientId, ClusterId, ContainerId, DatanodeId};
use ozone_common::limits::BYTES_PER_CHECKSUM;
use ozone_common::peer::ClusterSecret;
use ozone_common::token::{Claims, Operations};
use ozone_common::{Error, ErrorCode};
use ozone_datanode::{Config, Handle};
use ozone_proto::common::v1::{Durability, Token};
use ozone_proto::datanode::v1::{
    AbandonBlock, FinishBlock, OpenBlock, PutSmall, ReadBlock, ReportCorrupt, Request, Response, SealBlock, WriteChunk,
    request, response,
};
use ozone_rpc::data::{Connection, DataClient, DataOptions, Lane, Target};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub const DEADLINE: Duration = Duration::from_secs(20);
pub const WINDOW: u64 = BYTES_PER_CHECKSUM as u64;
/// Most bytes of a block that tokens of the tests allow.
pub const LENGTH_MAX: u64 = 16 << 20;

pub fn secret() -> ClusterSecret {
    ClusterSecret::new(ClusterId::from_bytes([7; 16]), [1; 32])
}

pub fn block(container: u64, local: u32) -> BlockId {
    ContainerId::new(container).unwrap().block(local).unwrap()
}

/// Bytes that differ from place to place and from seed to seed.
pub fn bytes(length: usize, seed: u8) -> Bytes {
    let mut state = u32::from(seed) + 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

pub fn config(folder: &Path, scm: Option<&str>) -> Config {
    Config {
        data_bind: "127.0.0.1:0".into(),
        http_bind: "127.0.0.1:0".into(),
        data: folder.join("dn"),
        volumes: vec![folder.join("disk1")],
        // Nothing listens there.
        scm_addresses: vec![scm.unwrap_or("127.0.0.1:1").to_owned()],
        reserved: ByteSize::mib(1),
        ..Config::default()
    }
}

pub async fn start(config: Config) -> Result<(Handle, CancellationToken), Error> {
    let shutdown = CancellationToken::new();
    let handle = ozone_datanode::start(config, secret(), Env::system(), shutdown.clone()).await?;
    Ok((handle, shutdown))
}

/// A running datanode and its folder.
pub struct Node {
    pub folder: Arc<tempfile::TempDir>,
    pub handle: Handle,
    shutdown: CancellationToken,
    pub client: Client,
}

impl Node {
    /// On a fresh folder, without an SCM.
    pub async fn fresh() -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), None).await
    }

    pub async fn fresh_with(scm: &str) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), Some(scm)).await
    }

    pub async fn on(folder: Arc<tempfile::TempDir>, scm: Option<&str>) -> Self {
        let (handle, shutdown) = start(config(folder.path(), scm)).await.unwrap();
        let client = Client::new(&handle);
        Self { folder, handle, shutdown, client }
    }

    /// Stops in order; gives the folder.
    pub async fn stop(self) -> Arc<tempfile::TempDir> {
        self.client.pool.close();
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, self.handle.join()).await.expect("it stops").unwrap();
        self.folder
    }

    pub async fn restart(self, scm: Option<&str>) -> Self {
        let folder = self.stop().await;
        Self::on(folder, scm).await
    }

    /// What a kill -9 at this moment leaves: the folder's files as other processes see them, without anything that is in memory only.
    /// To be called while nothing is written.
    pub fn image(&self) -> Arc<tempfile::TempDir> {
        let image = tempfile::tempdir().unwrap();
        RealDisk.copy_folder(self.folder.path(), image.path()).unwrap();
        Arc::new(image)
    }
}

/// Claims good for every block of `block`'s container.
pub fn claims(operations: Operations, block: BlockId) -> Claims {
    Claims {
        operations,
        container: block.container(),
        first_local: 0,
        count: 1 << 24,
        epoch: 1,
        expires_ms: Env::system().clock.now_ms() + 60_000,
        max_length: if operations.contains(Operations::WRITE) { LENGTH_MAX } else { 0 },
    }
}

pub fn sign(claims: &Claims) -> Option<Token> {
    Some(Token::from_claims(claims, &secret().token_key().sign(claims)))
}

pub fn token(operations: Operations, block: BlockId) -> Option<Token> {
    sign(&claims(operations, block))
}

pub struct Client {
    pub pool: DataClient,
    pub target: Target,
}

impl Client {
    pub fn new(node: &Handle) -> Self {
        let client = ClientId::random(&*Env::system().rng);
        let pool = DataClient::new(Some(secret().cluster), client, DataOptions::default());
        let target = Target { datanode: node.id(), host: "127.0.0.1".into(), port: node.data_address().port() };
        Self { pool, target }
    }

    pub async fn connection(&self) -> Arc<Connection> {
        self.pool.connection(&self.target, Lane::Small, Instant::now() + DEADLINE).await.unwrap()
    }

    pub async fn call(&self, op: request::Op, payload: Bytes) -> Result<Response, Error> {
        call(&self.connection().await, op, payload).await
    }

    pub fn put_request(&self, block: BlockId, payload: &Bytes) -> PutSmall {
        PutSmall {
            block: block.get(),
            epoch: 1,
            token: token(Operations::WRITE, block),
            durability: Durability::Disk as i32,
            crcs: windows(payload),
            members: vec![member(self.target.datanode)],
        }
    }

    pub async fn put(&self, block: BlockId, payload: &Bytes) -> Result<(), Error> {
        let put = self.put_request(block, payload);
        self.call(request::Op::PutSmall(put), payload.clone()).await.map(|_| ())
    }

    pub fn open_request(&self, block: BlockId) -> OpenBlock {
        OpenBlock {
            block: block.get(),
            epoch: 1,
            token: token(Operations::WRITE, block),
            durability: Durability::Disk as i32,
            members: vec![member(self.target.datanode)],
        }
    }

    /// Gives the window.
    pub async fn open(&self, block: BlockId) -> Result<u32, Error> {
        match self.call(request::Op::OpenBlock(self.open_request(block)), Bytes::new()).await?.op {
            Some(response::Op::BlockOpened(opened)) => Ok(opened.window_bytes),
            other => panic!("{other:?}"),
        }
    }

    pub async fn chunk(&self, block: BlockId, offset: u64, payload: &Bytes) -> Result<(), Error> {
        self.call(chunk(block, offset, payload), payload.clone()).await.map(|_| ())
    }

    pub async fn finish(&self, block: BlockId, length: u64) -> Result<(), Error> {
        let finish = FinishBlock { block: block.get(), length };
        self.call(request::Op::FinishBlock(finish), Bytes::new()).await.map(|_| ())
    }

    pub async fn abandon(&self, block: BlockId) -> Result<(), Error> {
        let abandon = AbandonBlock { block: block.get() };
        self.call(request::Op::AbandonBlock(abandon), Bytes::new()).await.map(|_| ())
    }

    /// Gives the length.
    pub async fn seal(&self, block: BlockId, epoch: u32, length: Option<u64>) -> Result<u64, Error> {
        let token = token(Operations::SEAL, block);
        let seal = SealBlock { block: block.get(), epoch, length, token };
        match self.call(request::Op::SealBlock(seal), Bytes::new()).await?.op {
            Some(response::Op::BlockSealed(sealed)) => Ok(sealed.length),
            other => panic!("{other:?}"),
        }
    }

    pub async fn report_corrupt(&self, block: BlockId, offset: u64) -> Result<(), Error> {
        let token = token(Operations::READ, block);
        let report = ReportCorrupt { block: block.get(), offset, token };
        self.call(request::Op::ReportCorrupt(report), Bytes::new()).await.map(|_| ())
    }

    /// Reads `length` bytes of a block of `block_length` at `offset` under an epoch, and holds the datanode to what it promises.
    pub async fn read_under(
        &self,
        epoch: u32,
        block: BlockId,
        block_length: u64,
        offset: u64,
        length: u64,
    ) -> Result<Bytes, Error> {
        let token = token(Operations::READ, block);
        let read = ReadBlock { block: block.get(), epoch, block_length, offset, length, token };
        let request = Request { request_id: "t".into(), op: Some(request::Op::ReadBlock(read)) };
        let deadline = Instant::now() + DEADLINE;
        let room = (length + 2 * WINDOW) as usize;
        let mut stream = self.connection().await.stream(&request, Bytes::new(), room, deadline).await?;
        let mut at = offset / WINDOW * WINDOW;
        let mut found = Vec::new();
        while let Some((response, payload)) = stream.next().await? {
            let Some(response::Op::ReadData(data)) = response.op else { panic!("{response:?}") };
            assert_eq!(data.offset, at, "pieces follow each other from the window that holds the first byte on");
            if first_mismatch(&payload, &data.crcs).is_some() {
                return Err(Error::new(ErrorCode::Corrupt, "found by the reader"));
            }
            at += payload.len() as u64;
            assert!(at.is_multiple_of(WINDOW) || at == block_length, "whole windows");
            found.extend_from_slice(&payload);
            assert_eq!(data.last, at >= offset + length, "the last is said to be");
        }
        assert!(
            at >= offset + length && at - (offset + length) < WINDOW,
            "all that was asked, in no more windows than needed"
        );
        let skip = (offset % WINDOW) as usize;
        Ok(Bytes::from(found).slice(skip..skip + length as usize))
    }

    pub async fn read(&self, block: BlockId, block_length: u64, offset: u64, length: u64) -> Result<Bytes, Error> {
        self.read_under(1, block, block_length, offset, length).await
    }

    /// Checks that all bytes are there.
    pub async fn holds(&self, block: BlockId, expected: &Bytes) {
        let length = expected.len() as u64;
        let found = self.read(block, length, 0, length).await.unwrap_or_else(|error| panic!("block {block}: {error}"));
        assert!(found == *expected, "block {block} of {length} bytes differs");
    }

    pub async fn lacks(&self, block: BlockId, length: u64) {
        code(self.read(block, length, 0, 1).await, ErrorCode::BlockNotFound);
    }
}

pub fn member(datanode: DatanodeId) -> Bytes {
    Bytes::copy_from_slice(datanode.as_bytes())
}

pub fn chunk(block: BlockId, offset: u64, payload: &Bytes) -> request::Op {
    request::Op::WriteChunk(WriteChunk { block: block.get(), offset, crcs: windows(payload) })
}

pub async fn call(connection: &Arc<Connection>, op: request::Op, payload: Bytes) -> Result<Response, Error> {
    let request = Request { request_id: "t".into(), op: Some(op) };
    connection.call(&request, payload, Instant::now() + DEADLINE).await.map(|(response, _)| response)
}

/// Checks that something failed as it should.
#[track_caller]
pub fn code<T: std::fmt::Debug>(outcome: Result<T, Error>, expected: ErrorCode) {
    match outcome {
        Err(error) if error.code == expected => {}
        other => panic!("{} was due: {other:?}", expected.name()),
    }
}
