//! Reads: on the spot where the bytes are in the page cache, else on a thread that may wait.
//!
//! ```text
//!  handle ── first piece cached? ──▶ answered at once, no thread between
//!    └── more pieces, not cached, or the connection's queue is full ──▶ a task: room ─▶ piece ─▶ send ─▶ …
//! ```
//! LIMIT: a connection holds [`READS_PER_CONNECTION`](super::data::READS_PER_CONNECTION) pieces of 1 MiB beyond its queue at most.

use std::sync::Arc;

use ozone_common::Result;
use ozone_common::token::Operations;
use ozone_proto::convert::block_id;
use ozone_proto::datanode::v1::{ReadBlock, ReadData, response};
use tokio::sync::Semaphore;

use super::data::{Answer, Connection, DataService, respond};
use crate::metrics::ServiceMetrics;
use crate::store::{Piece, Read, ReadPlan};

/// What the rest of a read needs.
struct Rest {
    plan: ReadPlan,
    answer: Answer,
    /// Of its connection.
    reads: Arc<Semaphore>,
    disk_reads: Arc<Semaphore>,
    metrics: Arc<ServiceMetrics>,
}

impl DataService {
    /// Answers a read, or begins to.
    pub(super) fn read_block(&self, connection: &Connection, read: &ReadBlock, mut answer: Answer) {
        let check = || {
            let block = block_id(read.block)?;
            self.access.check(read.token.as_ref(), Operations::READ, block, read.epoch)?;
            let ReadBlock { epoch, block_length, offset, length, .. } = *read;
            self.store.read(Read { block, epoch, block_length, offset, length })
        };
        let mut plan = match check() {
            Ok(plan) => plan,
            Err(error) => return answer.refuse(error),
        };
        if answer.reply.has_room() {
            match plan.next_cached() {
                Ok(Some(piece)) if piece.last => return finish(piece, answer, &self.metrics),
                Ok(Some(piece)) => send(piece, &mut answer, &self.metrics),
                Ok(None) => {}
                Err(error) => return answer.refuse(error),
            }
        }
        let rest = Rest {
            plan,
            answer,
            reads: connection.reads.clone(),
            disk_reads: self.disk_reads.clone(),
            metrics: self.metrics.clone(),
        };
        // Ends with its last piece, or when the connection is gone: `room` returns then.
        self.tasks.spawn(rest.run());
    }
}

impl Rest {
    async fn run(mut self) {
        loop {
            let turn = self.reads.clone().acquire_owned().await.expect("nobody closes this semaphore");
            self.answer.reply.room().await;
            if self.answer.reply.is_closed() {
                return;
            }
            let piece = match self.plan.next_cached() {
                Ok(Some(piece)) => Ok(piece),
                Ok(None) => match self.wait_for_disk().await {
                    Ok((rest, piece)) => {
                        self = rest;
                        piece
                    }
                    // The task that waited is gone, and with it the answer, which then says so by itself.
                    Err(_) => return,
                },
                Err(error) => Err(error),
            };
            match piece {
                Ok(piece) if piece.last => return finish(piece, self.answer, &self.metrics),
                Ok(piece) => send(piece, &mut self.answer, &self.metrics),
                Err(error) => return self.answer.refuse(error),
            }
            drop(turn);
        }
    }

    async fn wait_for_disk(mut self) -> Result<(Self, Result<Piece>), tokio::task::JoinError> {
        self.metrics.uncached_reads.increment(1);
        let _turn = self.disk_reads.clone().acquire_owned().await.expect("nobody closes this semaphore");
        tokio::task::spawn_blocking(move || {
            let piece = self.plan.next_piece();
            (self, piece)
        })
        .await
    }
}

fn send(piece: Piece, answer: &mut Answer, metrics: &ServiceMetrics) {
    metrics.sent_bytes.increment(piece.data.len() as u64);
    let data = ReadData { offset: piece.offset, crcs: piece.crcs, last: false };
    answer.reply.send(&respond(response::Op::ReadData(data)), piece.data);
}

fn finish(piece: Piece, answer: Answer, metrics: &ServiceMetrics) {
    metrics.sent_bytes.increment(piece.data.len() as u64);
    let data = ReadData { offset: piece.offset, crcs: piece.crcs, last: true };
    answer.finish(&respond(response::Op::ReadData(data)), piece.data);
}
