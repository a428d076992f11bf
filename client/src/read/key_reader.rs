//! A range of a key.
//!
//! Memory of one reader: `prefetch` reads of `read_size` (2 × 4 MiB by default), whatever the length of the key.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use ozone_common::checksum::crc32c_combine;
use ozone_common::{Error, ErrorCode, RetryClass};
use ozone_proto::om::v1::{BucketAddress, KeyFound, LookupKey};
use tokio::time::timeout_at;

use super::fetch::{Fetch, Piece, Source};
use crate::client::Client;
use crate::context::CallContext;

/// A token that ends within this is not used to begin a read.
const TOKEN_MARGIN_MS: u64 = 3_000;
/// Look-ups without a byte gained, after which the last error is the answer.
const REFRESHES_MAX: u32 = 3;
const REFRESH_PAUSE: Duration = Duration::from_millis(200);

/// The CRC32C of a block that is read from its first byte on.
#[derive(Clone, Copy)]
struct Running {
    block: u64,
    length: u64,
    crc32c: u32,
}

/// Reads a range of one generation of a key; dropping it gives the rest up.
pub struct KeyReader {
    client: Client,
    ctx: CallContext,
    bucket: BucketAddress,
    key: Bytes,
    generation: u64,
    sources: Vec<Arc<Source>>,
    inline: Bytes,
    /// Next byte of the key to give,
    at: u64,
    /// up to here.
    end: u64,
    /// Up to where fetches are in the queue.
    planned: u64,
    fetches: VecDeque<Fetch>,
    running: Option<Running>,
    refreshing: Option<BoxFuture<'static, Result<KeyFound, Error>>>,
    refreshes: u32,
    begun: bool,
}

impl Client {
    /// Reads `range` of a key as it was found with `want_data`.
    ///
    /// # Errors
    /// `InvalidArgument` where the range is beyond the key; `Internal` where the OM's answer does not cover it.
    pub fn reader(
        &self,
        ctx: &CallContext,
        bucket: &BucketAddress,
        found: &KeyFound,
        range: Range<u64>,
    ) -> Result<KeyReader, Error> {
        let info = found.info.as_ref().ok_or_else(|| Error::internal("the OM's answer has no key"))?;
        if range.start > range.end || range.end > info.length {
            return Err(Error::invalid(format!("bytes {range:?} of a key of {} bytes", info.length)));
        }
        let mut reader = KeyReader {
            client: self.clone(),
            ctx: ctx.clone(),
            bucket: bucket.clone(),
            key: info.key.clone(),
            generation: info.generation,
            sources: Vec::new(),
            inline: Bytes::new(),
            at: range.start,
            end: range.end,
            planned: range.start,
            fetches: VecDeque::new(),
            running: None,
            refreshing: None,
            refreshes: 0,
            begun: false,
        };
        reader.locate(found)?;
        Ok(reader)
    }
}

impl KeyReader {
    /// The next bytes, verified; `None` after the last. Never empty.
    ///
    /// cancel-safe.
    ///
    /// # Errors
    /// `KeyChanged` where the generation is gone: retryable only before the first byte. `DeadlineExceeded` where the first byte
    /// does not come by the context's deadline. Else the last replica's error, once all failed and fresh locations did not help.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if self.begun {
            return std::future::poll_fn(|cx| self.poll_next(cx)).await;
        }
        let deadline = self.ctx.deadline;
        match timeout_at(deadline, std::future::poll_fn(|cx| self.poll_next(cx))).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::new(ErrorCode::DeadlineExceeded, "no byte of the key could be had in time")),
        }
    }

    /// Bytes that are still to come.
    pub fn remaining(&self) -> u64 {
        self.end - self.at
    }

    /// [`KeyReader::next`] for streams of bodies; without the deadline of the first byte.
    ///
    /// # Errors
    /// As [`KeyReader::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        loop {
            if self.at >= self.end {
                return Poll::Ready(Ok(None));
            }
            if !self.inline.is_empty() {
                let bytes = self.inline.slice(self.at as usize..self.end as usize);
                self.at = self.end;
                return Poll::Ready(Ok(Some(bytes)));
            }
            if let Some(refreshing) = &mut self.refreshing {
                let Poll::Ready(outcome) = refreshing.poll_unpin(cx) else { return Poll::Pending };
                self.refreshing = None;
                if let Err(error) = outcome.and_then(|found| self.relocate(&found)) {
                    return Poll::Ready(Err(self.final_error(error)));
                }
            }
            if let Err(error) = self.plan() {
                return Poll::Ready(Err(error));
            }
            let Some(head) = self.fetches.front_mut() else {
                // Only a token about to end keeps the plan empty.
                self.refresh(Duration::ZERO);
                continue;
            };
            match head.poll_next(cx) {
                Poll::Ready(Ok(Some(piece))) => match self.give(piece) {
                    Ok(bytes) => return Poll::Ready(Ok(Some(bytes))),
                    Err(error) => return Poll::Ready(Err(error)),
                },
                Poll::Ready(Ok(None)) => {
                    self.fetches.pop_front();
                }
                Poll::Ready(Err(error)) => {
                    if self.refreshes >= REFRESHES_MAX {
                        return Poll::Ready(Err(self.final_error(error)));
                    }
                    tracing::debug!(
                        error = %error, request_id = &*self.ctx.request_id, "no replica gave a block; locations are fetched anew"
                    );
                    self.refresh(REFRESH_PAUSE * self.refreshes);
                }
                Poll::Pending => {
                    for ahead in self.fetches.iter_mut().skip(1) {
                        ahead.poll_start(cx);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// What a piece is for the caller. A block that was read whole is compared with its committed checksum before its last
    /// bytes are given.
    fn give(&mut self, piece: Piece) -> Result<Bytes, Error> {
        let Some(source) = self.fetches.front().map(|fetch| fetch.source().clone()) else {
            return Err(Error::internal("a piece of no read"));
        };
        let in_block = self.at - source.offset;
        let length = piece.bytes.len() as u64;
        let running = match (self.running, piece.crc32c) {
            (_, Some(crc32c)) if in_block == 0 => Some(Running { block: source.block.id, length, crc32c }),
            (Some(running), Some(crc32c)) if running.block == source.block.id && running.length == in_block => {
                Some(Running {
                    length: running.length + length,
                    crc32c: crc32c_combine(running.crc32c, crc32c, length),
                    ..running
                })
            }
            _ => None,
        };
        self.running = running;
        if let Some(running) = running
            && running.length == source.block.length
            && running.crc32c != source.block.crc32c
        {
            return Err(Error::new(
                ErrorCode::Corrupt,
                format!("block {:#x}: its bytes are not those that were committed", source.block.id),
            )
            .with_retry(if self.begun { RetryClass::Never } else { RetryClass::Same }));
        }
        self.at += length;
        self.begun = true;
        self.refreshes = 0;
        Ok(piece.bytes)
    }

    /// Fills the queue of fetches.
    fn plan(&mut self) -> Result<(), Error> {
        let tuning = &self.client.inner.tuning;
        let read_size = tuning.read_size.get();
        let mut now_ms = None;
        while self.fetches.len() < tuning.prefetch && self.planned < self.end {
            let at = self.sources.partition_point(|source| source.end() <= self.planned);
            let Some(source) = self.sources.get(at) else {
                return Err(Error::internal(format!("no block holds byte {} of the key", self.planned)));
            };
            let now_ms = *now_ms.get_or_insert_with(|| self.client.inner.env.clock.now_ms());
            if source.token.expires_ms <= now_ms.saturating_add(TOKEN_MARGIN_MS) && self.refreshes < REFRESHES_MAX {
                return Ok(());
            }
            let from = self.planned - source.offset;
            // Ends at multiples of the read size, so that no window is read twice.
            let to = ((from / read_size + 1) * read_size).min(source.block.length).min(self.end - source.offset);
            self.fetches.push_back(Fetch::new(&self.client, &self.ctx.request_id, source, from, to));
            self.planned = source.offset + to;
        }
        Ok(())
    }

    /// Looks the key up again, after a pause.
    fn refresh(&mut self, pause: Duration) {
        self.refreshes += 1;
        let client = self.client.clone();
        let ctx = self.ctx.renewed(client.inner.tuning.step_timeout.duration());
        let request = LookupKey {
            bucket: Some(self.bucket.clone()),
            key: self.key.clone(),
            want_data: true,
            generation: self.generation,
            refresh: true,
            data_offset: self.at,
            data_length: self.end - self.at,
        };
        self.refreshing = Some(
            async move {
                tokio::time::sleep(pause).await;
                client.lookup_key(&ctx, request).await
            }
            .boxed(),
        );
    }

    fn relocate(&mut self, found: &KeyFound) -> Result<(), Error> {
        match &found.info {
            Some(info) if info.generation == self.generation => {}
            _ => return Err(Error::new(ErrorCode::KeyChanged, "the key was written anew meanwhile")),
        }
        self.locate(found)?;
        self.fetches.clear();
        self.planned = self.at;
        Ok(())
    }

    fn locate(&mut self, found: &KeyFound) -> Result<(), Error> {
        if found.is_inline {
            if (found.inline.len() as u64) < self.end {
                return Err(Error::internal("the OM's answer has fewer bytes than the key"));
            }
            self.inline = found.inline.clone();
            return Ok(());
        }
        if self.at == self.end {
            return Ok(());
        }
        // The answer may hold only the blocks of the range that was asked for.
        let mut next = found.blocks.first().map_or(0, |first| first.offset);
        if next > self.at {
            return Err(Error::internal(format!("the key's blocks begin at {next}, after byte {}", self.at)));
        }
        self.sources.clear();
        for located in &found.blocks {
            let source = Source::new(located)?;
            if source.offset != next || source.block.length == 0 {
                return Err(Error::internal(format!("the key's blocks leave a gap at {next}")));
            }
            next = source.end();
            self.sources.push(Arc::new(source));
        }
        if next < self.end {
            return Err(Error::internal(format!("the key's blocks end at {next}, before byte {}", self.end)));
        }
        Ok(())
    }

    /// A stream that has given bytes cannot be begun again by whoever retries.
    fn final_error(&self, error: Error) -> Error {
        match (error.code, self.begun) {
            (ErrorCode::KeyChanged, true) => error.with_retry(RetryClass::Never),
            (ErrorCode::KeyChanged, false) => error.with_retry(RetryClass::AfterRefresh),
            _ => error,
        }
    }
}
