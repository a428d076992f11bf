//! A key's or part's bytes, from the first write to what the caller commits.
//!
//! Memory of one writer: up to 1 MiB buffered, then one chunk being filled and two windows of chunks in flight (a block
//! that is being finished and the next one).

use std::task::Poll;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use ozone_common::checksum::{crc32c, crc32c_combine, windows};
use ozone_common::limits::{OBJECT_LENGTH_MAX, SMALL_BLOCK_MAX};
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode};
use ozone_proto::common::v1::{Block, Durability};
use ozone_proto::om::v1::BucketInfo;

use super::block_writer::{BlockWriter, Pushed};
use super::small;
use crate::client::Client;
use crate::context::CallContext;
use crate::lease::GrantHold;

/// LIMIT: pieces of a small key kept apart; more are joined.
const PIECES_MAX: usize = 64;

/// What was written, for the commit.
#[derive(Clone, PartialEq, Debug)]
pub struct Written {
    /// Bytes.
    pub length: u64,
    /// Where they are, in order.
    pub blocks: Vec<Block>,
    /// The grants that the blocks come from.
    pub grants: Vec<u64>,
    /// The bytes themselves, where they travel in the commit; there are no blocks then.
    pub inline: Option<Bytes>,
    /// CRC32C of all bytes.
    pub crc32c: u32,
}

type Finishing = BoxFuture<'static, Result<Option<(Block, GrantHold)>, Error>>;

/// Writes one key or part. Dropped before [`KeyWriter::finish`], nothing becomes visible and its blocks are freed.
pub struct KeyWriter {
    client: Client,
    ctx: CallContext,
    replication: Replication,
    durability: Durability,
    inline_max: usize,
    length: u64,
    /// The first bytes, until it is clear that they are too many for one frame.
    pieces: Vec<Bytes>,
    streaming: bool,
    chunk: BytesMut,
    block: Option<BlockWriter>,
    finishing: Option<Finishing>,
    blocks: Vec<Block>,
    holds: Vec<GrantHold>,
    failure: Option<Error>,
    /// Set while a write runs: one that was dropped in the middle has lost bytes.
    busy: bool,
}

impl Client {
    /// Begins to write a key or part of `bucket`. With a `size_hint` above 1 MiB its first chunk is on the way before the
    /// last of that 1 MiB has come.
    ///
    /// # Errors
    /// `InvalidArgument` where the bucket's replication or durability is not known to this build.
    pub fn writer(&self, ctx: &CallContext, bucket: &BucketInfo, size_hint: Option<u64>) -> Result<KeyWriter, Error> {
        let durability = Durability::try_from(bucket.durability)
            .map_err(|_| Error::invalid(format!("durability {} is not known", bucket.durability)))?;
        Ok(KeyWriter {
            client: self.clone(),
            ctx: ctx.clone(),
            replication: bucket.replication.parse()?,
            durability,
            inline_max: usize::try_from(bucket.inline_max).unwrap_or(0),
            length: 0,
            pieces: Vec::new(),
            streaming: size_hint.is_some_and(|size| size > SMALL_BLOCK_MAX as u64),
            chunk: BytesMut::new(),
            block: None,
            finishing: None,
            blocks: Vec::new(),
            holds: Vec::new(),
            failure: None,
            busy: false,
        })
    }
}

impl KeyWriter {
    /// Takes bytes. Waits while the datanodes take what came before.
    ///
    /// Not cancel-safe: dropped in the middle, bytes may be lost, and every further call says so.
    ///
    /// # Errors
    /// `TooLarge` beyond 5 TiB; `Unavailable` where too few replicas are left; else what the OM or datanodes say. After an
    /// error every further call gives it again.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.check()?;
        self.busy = true;
        let outcome = self.take(bytes).await;
        self.busy = false;
        if let Err(error) = &outcome {
            self.failure = Some(error.clone());
            self.block = None;
        }
        outcome
    }

    fn check(&self) -> Result<(), Error> {
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None if self.busy => Err(Error::internal("an earlier write was interrupted; the writer is of no use")),
            None => Ok(()),
        }
    }

    /// Goes on with the deadline of another context: for a caller to whom the bytes came more slowly than the first one allowed.
    pub fn renew(&mut self, ctx: &CallContext) {
        self.ctx = ctx.clone();
    }

    /// Bytes taken so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    async fn take(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.length += bytes.len() as u64;
        if self.length > OBJECT_LENGTH_MAX {
            return Err(Error::new(ErrorCode::TooLarge, format!("more than {OBJECT_LENGTH_MAX} bytes")));
        }
        if self.streaming {
            return self.feed(bytes).await;
        }
        if !bytes.is_empty() {
            self.pieces.push(bytes);
        }
        if self.length > SMALL_BLOCK_MAX as u64 {
            self.streaming = true;
            for piece in std::mem::take(&mut self.pieces) {
                self.feed(piece).await?;
            }
        } else if self.pieces.len() > PIECES_MAX {
            self.pieces = vec![join(std::mem::take(&mut self.pieces))];
        }
        Ok(())
    }

    /// Cuts bytes into chunks. Whole chunks go out uncopied; smaller pieces are copied together, since a frame has one payload.
    async fn feed(&mut self, mut bytes: Bytes) -> Result<(), Error> {
        let size = self.client.inner.tuning.chunk_size.as_usize();
        while !bytes.is_empty() {
            if self.chunk.is_empty() && bytes.len() >= size {
                self.send(bytes.split_to(size)).await?;
                continue;
            }
            if self.chunk.capacity() == 0 {
                self.chunk.reserve(size);
            }
            let part = bytes.split_to(bytes.len().min(size - self.chunk.len()));
            self.chunk.extend_from_slice(&part);
            if self.chunk.len() == size {
                let chunk = std::mem::take(&mut self.chunk).freeze();
                self.send(chunk).await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, chunk: Bytes) -> Result<(), Error> {
        let crcs = windows(&chunk);
        let size = self.client.inner.tuning.chunk_size.get();
        loop {
            let mut block = match self.block.take() {
                Some(block) => block,
                None => BlockWriter::open(&self.client, &self.step(), self.replication, self.durability).await?,
            };
            let pushed = block.chunk(&chunk, &crcs).await?;
            let full = block.room() < size;
            match pushed {
                Pushed::Taken if full => return self.end(block).await,
                Pushed::Taken => {
                    self.block = Some(block);
                    return self.poll_finishing().await;
                }
                Pushed::Broken => self.end(block).await?,
            }
        }
    }

    /// Lets a block finish while the next one is written; at most one at a time.
    async fn end(&mut self, block: BlockWriter) -> Result<(), Error> {
        self.settle().await?;
        self.finishing = Some(block.finish().boxed());
        self.poll_finishing().await
    }

    /// Gives the block that is being finished a turn, without waiting for it.
    async fn poll_finishing(&mut self) -> Result<(), Error> {
        let Some(mut finishing) = self.finishing.take() else { return Ok(()) };
        let outcome = std::future::poll_fn(|cx| match finishing.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
        match outcome {
            Some(outcome) => self.keep(outcome?),
            None => self.finishing = Some(finishing),
        }
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), Error> {
        if let Some(finishing) = self.finishing.take() {
            let outcome = finishing.await?;
            self.keep(outcome);
        }
        Ok(())
    }

    fn keep(&mut self, block: Option<(Block, GrantHold)>) {
        if let Some((block, hold)) = block {
            self.blocks.push(block);
            if self.holds.iter().all(|known| known.id() != hold.id()) {
                self.holds.push(hold);
            }
        }
    }

    /// A stream lasts as long as its caller keeps it going; each step is bounded.
    fn step(&self) -> CallContext {
        self.ctx.renewed(self.client.inner.tuning.step_timeout.duration())
    }

    /// Makes everything durable on the datanodes, as the bucket asks for, and says what to commit.
    ///
    /// # Errors
    /// As [`KeyWriter::write`].
    pub async fn finish(mut self) -> Result<Written, Error> {
        self.check()?;
        let mut written =
            Written { length: self.length, blocks: Vec::new(), grants: Vec::new(), inline: None, crc32c: 0 };
        if self.length == 0 {
            return Ok(written);
        }
        if !self.streaming || self.length <= SMALL_BLOCK_MAX as u64 && self.block.is_none() && self.blocks.is_empty() {
            // A hint may have promised more than came.
            let bytes =
                if self.streaming { self.chunk.split().freeze() } else { join(std::mem::take(&mut self.pieces)) };
            if bytes.len() as u64 == self.length {
                if bytes.len() <= self.inline_max {
                    written.crc32c = crc32c(&bytes);
                    written.inline = Some(bytes);
                    return Ok(written);
                }
                let ctx = self.ctx.clone();
                let (block, hold) = small::put(&self.client, &ctx, self.replication, self.durability, bytes).await?;
                self.keep(Some((block, hold)));
                return Ok(self.written(written));
            }
            self.chunk = bytes.into();
        }
        let rest = std::mem::take(&mut self.chunk).freeze();
        if !rest.is_empty() {
            if self.block.is_none() && rest.len() <= SMALL_BLOCK_MAX {
                self.settle().await?;
                let ctx = self.step();
                let tail = small::put(&self.client, &ctx, self.replication, self.durability, rest).await?;
                self.keep(Some(tail));
            } else {
                self.send(rest).await?;
            }
        }
        if let Some(block) = self.block.take() {
            self.end(block).await?;
        }
        self.settle().await?;
        Ok(self.written(written))
    }

    fn written(&mut self, mut written: Written) -> Written {
        written.blocks = std::mem::take(&mut self.blocks);
        written.grants = self.holds.iter().map(GrantHold::id).collect();
        written.crc32c =
            written.blocks.iter().fold(0, |whole, block| crc32c_combine(whole, block.crc32c, block.length));
        debug_assert_eq!(written.blocks.iter().map(|block| block.length).sum::<u64>(), written.length);
        written
    }
}

/// One piece out of several; the copy is of at most 1 MiB, and none where there is one.
fn join(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 {
        return pieces.pop().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in &pieces {
        whole.extend_from_slice(piece);
    }
    whole.freeze()
}
