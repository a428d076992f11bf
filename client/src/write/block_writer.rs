//! A large block: chunks to all replicas in parallel under a credit window.
//!
//! ```text
//!   open on all ── chunk* ── finish on all ──▶ Block { epoch, length }
//!                    │ a replica fails or is late: no chunk more
//!                    ▼
//!   report to the OM (which has the SCM log the smaller membership) ── seal the survivors under the new epoch ──▶ Block
//! ```
//! Memory: chunks in flight, at most the datanodes' window (0.5 to 4 MiB) or one chunk.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use ozone_common::checksum::{combine_windows, crc32c_combine};
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode};
use ozone_proto::common::v1::{Block, Durability};
use ozone_proto::datanode::v1::{
    AbandonBlock, FinishBlock, OpenBlock, Request, SealBlock, WriteChunk, request, response,
};
use ozone_proto::om::v1::ReportFailedWrite;
use ozone_rpc::data::{Connection, Lane};
use tokio::time::Instant;

use super::gather::{Gathered, gather};
use crate::client::Client;
use crate::context::CallContext;
use crate::lease::{BlockLease, GrantHold, Size};
use crate::retry::Backoff;

struct Replica {
    index: usize,
    connection: Arc<Connection>,
}

struct ChunkDone {
    length: usize,
    failed: Vec<(usize, Error)>,
}

/// Whether a chunk was taken.
pub(crate) enum Pushed {
    /// On its way to all replicas.
    Taken,
    /// A replica was lost before: the block must end, and the chunk go into another.
    Broken,
}

/// A block being written.
pub(crate) struct BlockWriter {
    client: Client,
    ctx: CallContext,
    lease: BlockLease,
    /// Those that have not failed.
    replicas: Vec<Replica>,
    failed: Vec<(usize, Error)>,
    window: usize,
    sent: u64,
    crc32c: u32,
    in_flight: FuturesUnordered<BoxFuture<'static, ChunkDone>>,
    in_flight_bytes: usize,
    ended: bool,
}

impl BlockWriter {
    /// Opens a new block on all its replicas, trying other containers until the context's deadline.
    pub(crate) async fn open(
        client: &Client,
        ctx: &CallContext,
        replication: Replication,
        durability: Durability,
    ) -> Result<Self, Error> {
        let inner = &client.inner;
        let mut backoff = Backoff::default();
        loop {
            let lease = inner.leases.take(client, ctx, replication, Size::Large).await?;
            let open = OpenBlock {
                block: lease.block.get(),
                epoch: lease.epoch,
                token: Some(lease.token.clone()),
                durability: durability as i32,
                members: lease.members.to_vec(),
            };
            let request = request_of(ctx, request::Op::OpenBlock(open));
            let opening = lease.replicas.iter().map(async |target| {
                let connection = inner.data.connection(target, Lane::Bulk, ctx.deadline).await?;
                let (response, _) = connection.call(&request, Bytes::new(), ctx.deadline).await?;
                match response.op {
                    Some(response::Op::BlockOpened(opened)) => Ok((connection, opened.window_bytes as usize)),
                    _ => Err(unexpected(&connection, "OpenBlock")),
                }
            });
            let late = inner.tuning.late_replica.duration();
            let gathered = gather(opening.enumerate().collect(), late, ctx.deadline).await;
            let window = gathered.done.iter().map(|(_, (_, window))| *window).min().unwrap_or(0);
            let replicas = gathered.done.into_iter().map(|(index, (connection, _))| Replica { index, connection });
            let mut writer = Self {
                client: client.clone(),
                ctx: ctx.clone(),
                replicas: replicas.collect(),
                failed: Vec::new(),
                window,
                sent: 0,
                crc32c: 0,
                in_flight: FuturesUnordered::new(),
                in_flight_bytes: 0,
                ended: false,
                lease,
            };
            if gathered.failed.is_empty() {
                writer.replicas.sort_by_key(|replica| replica.index);
                return Ok(writer);
            }
            client.note_failures(&writer.lease, &gathered.failed)?;
            let Some((_, error)) = gathered.failed.into_iter().next_back() else { continue };
            let error = error.context(format_args!("open block {}", writer.lease.block));
            // Dropping the writer tells those that opened it.
            drop(writer);
            backoff.pause(error, ctx.deadline, &*inner.env.rng).await?;
        }
    }

    /// Bytes that the block may still take.
    pub(crate) fn room(&self) -> u64 {
        self.lease.max_length.min(self.client.inner.tuning.block_size.get()).saturating_sub(self.sent)
    }

    fn step_deadline(&self) -> Instant {
        Instant::now() + self.client.inner.tuning.step_timeout.duration()
    }

    /// Sends a chunk to all replicas once the window has room for it.
    ///
    /// cancel-safe only in that dropping the writer gives the block up: a chunk may have reached some replicas.
    pub(crate) async fn chunk(&mut self, payload: &Bytes, crcs: &[u32]) -> Result<Pushed, Error> {
        while self.in_flight_bytes > 0 && self.in_flight_bytes + payload.len() > self.window {
            self.settle_one().await;
        }
        if !self.failed.is_empty() {
            return Ok(Pushed::Broken);
        }
        let chunk = WriteChunk { block: self.lease.block.get(), offset: self.sent, crcs: crcs.to_vec() };
        let request = request_of(&self.ctx, request::Op::WriteChunk(chunk));
        let deadline = self.step_deadline();
        let late = self.client.inner.tuning.late_replica.duration();
        let mut answers = Vec::with_capacity(self.replicas.len());
        let mut failed = Vec::new();
        for replica in &self.replicas {
            // One after the other, so that chunks of a block reach each replica in order. This waits for credit only,
            // which a datanode that stands still uses up; it must not hold up the others for long.
            match replica.connection.send(&request, payload.clone(), deadline.min(Instant::now() + late)).await {
                Ok(mut answer) => answers.push((replica.index, async move { answer.wait(deadline).await })),
                Err(error) => failed.push((replica.index, error)),
            }
        }
        let length = payload.len();
        self.in_flight_bytes += length;
        self.in_flight.push(Box::pin(async move {
            let Gathered { failed: late_ones, .. } = gather(answers, late, deadline).await;
            failed.extend(late_ones);
            ChunkDone { length, failed }
        }));
        self.crc32c = crc32c_combine(self.crc32c, combine_windows(crcs, length as u64), length as u64);
        self.sent += length as u64;
        Ok(Pushed::Taken)
    }

    async fn settle_one(&mut self) {
        if let Some(done) = self.in_flight.next().await {
            self.in_flight_bytes -= done.length;
            self.lose(done.failed);
        }
    }

    /// Replicas that failed take no further part.
    fn lose(&mut self, failed: Vec<(usize, Error)>) {
        for (index, error) in failed {
            if let Some(at) = self.replicas.iter().position(|replica| replica.index == index) {
                let lost = self.replicas.remove(at);
                lost.connection.notify(&self.farewell());
                self.failed.push((index, error));
            }
        }
    }

    /// Makes the block final on all replicas, or seals it on those that are left. `None` where it has no bytes.
    pub(crate) async fn finish(mut self) -> Result<Option<(Block, GrantHold)>, Error> {
        while !self.in_flight.is_empty() {
            self.settle_one().await;
        }
        if self.sent == 0 {
            self.client.note_failures(&self.lease, &self.failed)?;
            return Ok(None);
        }
        if self.failed.is_empty() {
            let finish = FinishBlock { block: self.lease.block.get(), length: self.sent };
            let request = request_of(&self.ctx, request::Op::FinishBlock(finish));
            let late = self.client.inner.tuning.late_finish.duration();
            let deadline = self.step_deadline() + late;
            let calls = self
                .replicas
                .iter()
                .map(async |replica| replica.connection.call(&request, Bytes::new(), deadline).await.map(|_| ()));
            let calls = calls.zip(&self.replicas).map(|(call, replica)| (replica.index, call)).collect();
            let gathered = gather(calls, late, deadline).await;
            self.lose(gathered.failed);
        }
        let epoch = if self.failed.is_empty() { self.lease.epoch } else { self.seal_survivors().await? };
        self.ended = true;
        let block = Block { id: self.lease.block.get(), epoch, length: self.sent, crc32c: self.crc32c };
        // The rest of the lease is dropped with `self`; the hold goes to whoever commits.
        let hold = self.lease.hold.share();
        Ok(Some((block, hold)))
    }

    /// After a replica was lost: the smaller membership is logged first, then the survivors promise to take nothing under an
    /// older epoch, and only then the block may be committed. Gives its epoch.
    async fn seal_survivors(&mut self) -> Result<u32, Error> {
        let client = self.client.clone();
        let mut epoch = self.lease.epoch;
        let mut reported = 0;
        client.note_failures(&self.lease, &self.failed)?;
        client.inner.leases.forget(self.lease.block.container());
        loop {
            self.check_enough()?;
            let newly = self.failed.iter().skip(reported);
            let failed = newly.filter_map(|(index, _)| self.lease.members.get(*index).cloned()).collect();
            let reason = self.failed.last().map(|(_, error)| error.to_string()).unwrap_or_default();
            reported = self.failed.len();
            let report = ReportFailedWrite {
                grant: self.lease.hold.id(),
                container: self.lease.block.container().get(),
                epoch,
                failed,
                reason,
            };
            let ctx = self.ctx.renewed(client.inner.tuning.step_timeout.duration());
            let reply = client.report_failed_write(&ctx, report).await?;
            epoch = reply.epoch;
            // Someone else may have reported others.
            let member = |replica: &Replica| {
                reply.members.iter().any(|m| m.datanode == replica.connection.target().datanode.as_bytes()[..])
            };
            self.replicas.retain(member);
            self.check_enough()?;
            let seal =
                SealBlock { block: self.lease.block.get(), epoch, length: Some(self.sent), token: reply.seal_token };
            let gathered = self.seal(&ctx, seal).await;
            if gathered.failed.is_empty() {
                return Ok(epoch);
            }
            client.note_failures(&self.lease, &gathered.failed)?;
            self.lose(gathered.failed);
        }
    }

    async fn seal(&mut self, ctx: &CallContext, seal: SealBlock) -> Gathered<()> {
        let inner = &self.client.inner;
        let (length, request) = (self.sent, request_of(ctx, request::Op::SealBlock(seal)));
        let calls = self.replicas.iter().map(async |replica| {
            let target = replica.connection.target();
            let (response, _) = inner.data.call(target, Lane::Bulk, &request, Bytes::new(), ctx.deadline).await?;
            match response.op {
                Some(response::Op::BlockSealed(sealed)) if sealed.length == length => Ok(()),
                Some(response::Op::BlockSealed(sealed)) => Err(Error::new(
                    ErrorCode::BlockNotFound,
                    format!("{target}: it sealed {} of {length} bytes", sealed.length),
                )),
                _ => Err(unexpected(&replica.connection, "SealBlock")),
            }
        });
        let calls = calls.zip(&self.replicas).map(|(call, replica)| (replica.index, call)).collect();
        gather(calls, inner.tuning.late_finish.duration(), ctx.deadline).await
    }

    fn check_enough(&self) -> Result<(), Error> {
        if self.replicas.len() >= self.lease.min_replicas {
            return Ok(());
        }
        let why = self.failed.last().map(|(_, error)| error.to_string()).unwrap_or_default();
        Err(Error::new(
            ErrorCode::Unavailable,
            format!(
                "block {}: {} of {} replicas are left, {} are needed; the last failure: {why}",
                self.lease.block,
                self.replicas.len(),
                self.lease.replicas.len(),
                self.lease.min_replicas
            ),
        ))
    }

    fn farewell(&self) -> Request {
        let abandon = AbandonBlock { block: self.lease.block.get() };
        request_of(&self.ctx, request::Op::AbandonBlock(abandon))
    }
}

/// A writer that goes away in the middle tells the datanodes, which hold the block open otherwise.
impl Drop for BlockWriter {
    fn drop(&mut self) {
        if !self.ended && !self.replicas.is_empty() {
            let farewell = self.farewell();
            for replica in &self.replicas {
                replica.connection.notify(&farewell);
            }
        }
    }
}

fn request_of(ctx: &CallContext, op: request::Op) -> Request {
    Request { request_id: ctx.request_id.as_ref().to_owned(), op: Some(op) }
}

fn unexpected(connection: &Connection, op: &str) -> Error {
    Error::internal(format!("{}: the answer to {op} is another's", connection.target()))
}
