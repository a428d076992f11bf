//! The block transport's handler: requests to the store, the store's answers back.
//!
//! Nothing here waits. Writes are queued with the store, whose lanes answer from their own threads; reads are answered on
//! the spot where the bytes are in the page cache. Payload is never copied: it goes to the store as the slice of the
//! receive buffer it came in.

use std::sync::Arc;

use bytes::Bytes;
use metrics::Gauge;
use ozone_common::id::BlockId;
use ozone_common::limits::SMALL_BLOCK_MAX;
use ozone_common::telemetry::{Outcome, Record, audit};
use ozone_common::token::{Operations, TokenKey};
use ozone_common::{Error, ErrorCode, Result, env::Env, id::DatanodeId};
use ozone_proto::common::v1 as common;
use ozone_proto::convert::block_id;
use ozone_proto::datanode::v1::{
    AbandonBlock, BlockOpened, BlockSealed, Done, FinishBlock, OpenBlock, PutSmall, ReportCorrupt, Request, Response,
    SealBlock, WriteChunk, request, response,
};
use ozone_rpc::data::{DataHandler, PeerInfo, Responder};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::access::Access;
use super::window::{Window, Windows};
use crate::config::Config;
use crate::metrics::{Op, ServiceMetrics};
use crate::store::{self, Durability, Seal, Store, Writer};
use crate::write::session::Session;

/// LIMIT: reads of one connection that hold a piece in memory at a time.
pub(super) const READS_PER_CONNECTION: usize = 8;
/// LIMIT: reads of all connections that wait for the disk at a time.
const DISK_READS_MAX: usize = 64;

/// What all requests share.
pub(crate) struct DataService {
    pub(super) store: Arc<Store>,
    pub(super) access: Access,
    pub(super) metrics: Arc<ServiceMetrics>,
    pub(super) disk_reads: Arc<Semaphore>,
    /// Reads that go on beside their connections; they hold the store open.
    pub(super) tasks: TaskTracker,
    windows: Arc<Windows>,
    open_max: usize,
}

/// One client's connection.
pub(crate) struct Connection {
    peer: PeerInfo,
    session: Session<OpenBlockWriter>,
    pub(super) reads: Arc<Semaphore>,
}

/// What writes a block that is open.
struct OpenBlockWriter {
    writer: Writer,
    window: Arc<Window>,
    _counted: Counted,
}

/// Counts a block as open while it is.
struct Counted(Gauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl DataService {
    /// Over an open store; its tasks are `tasks`.
    pub fn new(
        store: Arc<Store>,
        key: TokenKey,
        datanode: DatanodeId,
        env: &Env,
        config: &Config,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            tasks,
            store,
            access: Access::new(key, env.clock.clone(), datanode),
            metrics: Arc::new(ServiceMetrics::new()),
            disk_reads: Arc::new(Semaphore::new(DISK_READS_MAX)),
            windows: Windows::new(config.open_blocks_memory.as_usize()),
            open_max: config.open_blocks_per_connection,
        }
    }
}

impl DataHandler for DataService {
    type Connection = Connection;

    fn open(&self, peer: PeerInfo) -> Connection {
        let reads = Arc::new(Semaphore::new(READS_PER_CONNECTION));
        Connection { peer, session: Session::new(self.open_max), reads }
    }

    fn handle(&self, connection: &mut Connection, request: Request, payload: Bytes, reply: Responder) {
        let (op, block) = describe(request.op.as_ref());
        let answer = Answer {
            reply,
            op,
            block,
            started: Instant::now(),
            peer: connection.peer.clone(),
            request_id: request.request_id,
            metrics: self.metrics.clone(),
        };
        if matches!(op, Op::PutSmall | Op::WriteChunk) {
            self.metrics.received_bytes.increment(payload.len() as u64);
        } else if !payload.is_empty() {
            return answer.refuse(Error::invalid("a payload with an operation that takes none"));
        }
        match request.op {
            Some(request::Op::PutSmall(put)) => self.put_small(put, payload, answer),
            Some(request::Op::OpenBlock(open)) => {
                let opened = self.open_block(connection, &open);
                answer.end(opened.map(|window_bytes| respond(response::Op::BlockOpened(BlockOpened { window_bytes }))));
            }
            Some(request::Op::WriteChunk(chunk)) => write_chunk(connection, chunk, payload, answer),
            Some(request::Op::FinishBlock(finish)) => finish_block(connection, &finish, answer),
            Some(request::Op::SealBlock(seal)) => self.seal_block(&seal, answer),
            Some(request::Op::ReadBlock(read)) => self.read_block(connection, &read, answer),
            Some(request::Op::ReportCorrupt(report)) => {
                let taken = self.report_corrupt(&report, &answer.request_id);
                answer.end(taken.map(|()| done()));
            }
            Some(request::Op::AbandonBlock(abandon)) => {
                let given_up = abandon_block(connection, &abandon);
                answer.end(given_up.map(|()| done()));
            }
            None => answer.refuse(Error::new(ErrorCode::NotSupported, "the request names no operation known here")),
        }
    }

    fn close(&self, connection: Connection) {
        // The store keeps what was appended: its writer may come back to seal it.
        drop(connection.session.into_open());
    }
}

impl DataService {
    fn put_small(&self, put: PutSmall, payload: Bytes, answer: Answer) {
        let (block, durability) = match self.check_put(&put, payload.len()) {
            Ok(checked) => checked,
            Err(error) => return answer.refuse(error),
        };
        let put = store::PutSmall { block, epoch: put.epoch, members: &put.members, durability, crcs: put.crcs };
        self.store.put_small(put, payload, move |outcome| answer.end(outcome.map(|()| done())));
    }

    fn check_put(&self, put: &PutSmall, length: usize) -> Result<(BlockId, Durability)> {
        let block = block_id(put.block)?;
        let claims = self.access.check(put.token.as_ref(), Operations::WRITE, block, put.epoch)?;
        self.access.check_members(&put.members)?;
        let length_max = claims.max_length.min(SMALL_BLOCK_MAX as u64);
        if length == 0 || length as u64 > length_max {
            let text = format!("block {block} of {length} bytes; it may have 1 to {length_max}");
            return Err(Error::new(ErrorCode::TooLarge, text));
        }
        Ok((block, durability(put.durability)?))
    }

    /// Gives the writer's credit.
    fn open_block(&self, connection: &mut Connection, open: &OpenBlock) -> Result<u32> {
        let block = block_id(open.block)?;
        let claims = self.access.check(open.token.as_ref(), Operations::WRITE, block, open.epoch)?;
        self.access.check_members(&open.members)?;
        connection.session.may_open(block)?;
        let durability = durability(open.durability)?;
        let window = self.windows.take()?;
        let open = store::OpenBlock { block, epoch: open.epoch, members: &open.members, durability };
        let writer = self.store.open_block(open)?;
        self.metrics.open_blocks.increment(1.0);
        let window_bytes = window.bytes();
        let writer = OpenBlockWriter { writer, window, _counted: Counted(self.metrics.open_blocks.clone()) };
        connection.session.opened(block, claims.max_length, writer);
        Ok(window_bytes)
    }

    fn seal_block(&self, seal: &SealBlock, answer: Answer) {
        let check = || {
            let block = block_id(seal.block)?;
            self.access.check(seal.token.as_ref(), Operations::SEAL, block, seal.epoch)?;
            Ok(Seal { block, epoch: seal.epoch, length: seal.length })
        };
        match check() {
            Ok(seal) => self.store.seal(seal, move |outcome| {
                answer.end(outcome.map(|length| respond(response::Op::BlockSealed(BlockSealed { length }))));
            }),
            Err(error) => answer.refuse(error),
        }
    }

    fn report_corrupt(&self, report: &ReportCorrupt, request_id: &str) -> Result<()> {
        let block = block_id(report.block)?;
        // Whoever may read it under some epoch may say that it is damaged.
        self.access.check(report.token.as_ref(), Operations::READ, block, u32::MAX)?;
        tracing::warn!(%block, offset = report.offset, request_id, "a reader reports damage; the block is checked");
        self.store.report_corrupt(block, report.offset);
        Ok(())
    }
}

fn write_chunk(connection: &mut Connection, chunk: WriteChunk, payload: Bytes, answer: Answer) {
    let length = payload.len();
    match take_chunk(connection, &chunk, length) {
        Ok(open) => {
            let window = open.window.clone();
            open.writer.append(chunk.offset, chunk.crcs, payload, move |outcome| {
                window.answered(length);
                answer.end(outcome.map(|()| done()));
            });
        }
        Err(error) => answer.refuse(error),
    }
}

fn take_chunk<'a>(
    connection: &'a mut Connection,
    chunk: &WriteChunk,
    length: usize,
) -> Result<&'a mut OpenBlockWriter> {
    let open = connection.session.chunk(block_id(chunk.block)?, chunk.offset, length)?;
    open.window.arrived(length)?;
    Ok(open)
}

fn finish_block(connection: &mut Connection, finish: &FinishBlock, answer: Answer) {
    match block_id(finish.block).and_then(|block| connection.session.finish(block, finish.length)) {
        Ok(open) => open.writer.finish(finish.length, move |outcome| answer.end(outcome.map(|()| done()))),
        Err(error) => answer.refuse(error),
    }
}

/// A block that is not open here was finished meanwhile or given up before: there is nothing to do.
fn abandon_block(connection: &mut Connection, abandon: &AbandonBlock) -> Result<()> {
    if let Some(open) = connection.session.abandon(block_id(abandon.block)?) {
        open.writer.abandon();
    }
    Ok(())
}

fn durability(number: i32) -> Result<Durability> {
    match common::Durability::try_from(number) {
        // Whoever does not say gets the stronger one.
        Ok(common::Durability::Disk | common::Durability::Unspecified) => Ok(Durability::Disk),
        Ok(common::Durability::Memory) => Ok(Durability::Memory),
        Err(_) => Err(Error::invalid(format!("durability {number} is not known"))),
    }
}

fn describe(op: Option<&request::Op>) -> (Op, u64) {
    match op {
        Some(request::Op::PutSmall(put)) => (Op::PutSmall, put.block),
        Some(request::Op::OpenBlock(open)) => (Op::OpenBlock, open.block),
        Some(request::Op::WriteChunk(chunk)) => (Op::WriteChunk, chunk.block),
        Some(request::Op::FinishBlock(finish)) => (Op::FinishBlock, finish.block),
        Some(request::Op::SealBlock(seal)) => (Op::SealBlock, seal.block),
        Some(request::Op::ReadBlock(read)) => (Op::ReadBlock, read.block),
        Some(request::Op::ReportCorrupt(report)) => (Op::ReportCorrupt, report.block),
        Some(request::Op::AbandonBlock(abandon)) => (Op::AbandonBlock, abandon.block),
        None => (Op::Unknown, 0),
    }
}

pub(super) fn respond(op: response::Op) -> Response {
    Response { error: None, op: Some(op) }
}

fn done() -> Response {
    respond(response::Op::Done(Done {}))
}

/// A request's answer on its way: counted and logged when it is given, from whichever thread.
pub(super) struct Answer {
    pub reply: Responder,
    op: Op,
    block: u64,
    started: Instant,
    peer: PeerInfo,
    request_id: String,
    metrics: Arc<ServiceMetrics>,
}

impl Answer {
    /// Ends without payload.
    pub fn end(self, outcome: Result<Response>) {
        match outcome {
            Ok(response) => self.finish(&response, Bytes::new()),
            Err(error) => self.refuse(error),
        }
    }

    /// Ends with success and payload.
    pub fn finish(self, response: &Response, payload: Bytes) {
        self.note(None);
        self.reply.finish(response, payload);
    }

    /// Ends with an error. The audit trail keeps those about what the client may do.
    pub fn refuse(self, error: Error) {
        self.note(Some(&error));
        if error.code == ErrorCode::InvalidToken {
            self.metrics.denied.increment(1);
            audit(&Record {
                role: "datanode",
                who: &self.peer.client.to_string(),
                op: self.op.name(),
                resource: &format_args!("block {} from {}", Hex(self.block), self.peer.address),
                outcome: Outcome::Failure(&error),
                request_id: &self.request_id,
            });
        }
        self.reply.fail(error);
    }

    fn note(&self, error: Option<&Error>) {
        let op = self.metrics.op(self.op);
        let elapsed = self.started.elapsed();
        op.seconds.record(elapsed.as_secs_f64());
        match error {
            None => op.done.increment(1),
            Some(_) => op.failed.increment(1),
        }
        if error.is_some_and(|e| e.code == ErrorCode::Corrupt) && matches!(self.op, Op::PutSmall | Op::WriteChunk) {
            self.metrics.damaged.increment(1);
        }
        tracing::debug!(
            op = self.op.name(), block = %Hex(self.block), request_id = self.request_id,
            elapsed_us = elapsed.as_micros() as u64, error = error.map(tracing::field::display), "request"
        );
    }
}

/// A block id that may be none.
struct Hex(u64);

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match BlockId::new(self.0) {
            Some(block) => block.fmt(f),
            None => write!(f, "{:#x}", self.0),
        }
    }
}
