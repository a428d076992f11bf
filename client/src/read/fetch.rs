//! One stretch of one block, from whichever replica gives it.
//!
//! One replica is asked; a second one where the first has given nothing for longer than it usually takes, a third where both
//! have given nothing for `hedge_max`. Whoever gives the next verified piece goes on alone.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use ozone_common::checksum::{combine_windows, first_mismatch};
use ozone_common::limits::BYTES_PER_CHECKSUM;
use ozone_common::{Error, ErrorCode};
use ozone_proto::common::v1::{Block, LocatedBlock, Token};
use ozone_proto::convert::{block_id, required};
use ozone_proto::datanode::v1::{ReadBlock, ReportCorrupt, Request, Response, request, response};
use ozone_rpc::data::{Connection, Lane, ResponseStream, Target};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::client::Client;
use crate::locate::targets;

/// Reads of up to this go between small calls.
const SMALL_LANE_MAX: u64 = 64 << 10;
/// LIMIT: replicas asked at a time.
const ASKED_MAX: usize = 3;
const WINDOW: u64 = BYTES_PER_CHECKSUM as u64;

/// A block and where it is.
pub(super) struct Source {
    pub block: Block,
    /// Where in the key it starts.
    pub offset: u64,
    pub replicas: Vec<Target>,
    pub token: Token,
}

impl Source {
    pub(super) fn new(located: &LocatedBlock) -> Result<Self, Error> {
        let block = required(located.block, "block")?;
        block_id(block.id)?;
        Ok(Self {
            block,
            offset: located.offset,
            replicas: targets(&located.replicas)?,
            token: required(located.token.clone(), "token")?,
        })
    }

    /// Where in the key it ends.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.block.length)
    }
}

/// Verified bytes and their CRC32C where they are whole windows.
pub(super) struct Piece {
    pub bytes: Bytes,
    /// CRC32C of `bytes`; `None` where a window was cut.
    pub crc32c: Option<u32>,
}

enum State {
    Opening(BoxFuture<'static, Result<(Arc<Connection>, ResponseStream), Error>>),
    Streaming(Arc<Connection>, ResponseStream),
    Failed(Error),
    Done,
}

struct Reader {
    replica: usize,
    since: Instant,
    /// Where its next piece must begin, once it has given one.
    expect: Option<u64>,
    state: State,
}

/// See the module.
pub(super) struct Fetch {
    client: Client,
    request_id: Arc<str>,
    source: Arc<Source>,
    /// Next byte of the block to give,
    at: u64,
    /// up to here.
    end: u64,
    untried: VecDeque<usize>,
    readers: Vec<Reader>,
    hedge: Option<Pin<Box<Sleep>>>,
    hedge_free: bool,
    step: Pin<Box<Sleep>>,
    last_error: Option<Error>,
}

impl Fetch {
    /// Bytes `at..end` of a block.
    pub(super) fn new(client: &Client, request_id: &Arc<str>, source: &Arc<Source>, at: u64, end: u64) -> Self {
        let untried = client.inner.latencies.order(&source.replicas).into();
        Self {
            client: client.clone(),
            request_id: request_id.clone(),
            source: source.clone(),
            at,
            end,
            untried,
            readers: Vec::with_capacity(2),
            hedge: None,
            hedge_free: false,
            step: Box::pin(sleep_until(Instant::now() + client.inner.tuning.step_timeout.duration())),
            last_error: None,
        }
    }

    pub(super) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Lets it begin while another one is being read.
    pub(super) fn poll_start(&mut self, cx: &mut Context<'_>) {
        if self.readers.is_empty() {
            self.ask_next();
        }
        for reader in &mut self.readers {
            reader.poll_open(cx);
        }
    }

    /// The next piece; `None` once all is given.
    ///
    /// # Errors
    /// The last replica's, once all have failed; asking again is of no use then.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Error>> {
        if self.at >= self.end {
            return Poll::Ready(Ok(None));
        }
        loop {
            if self.readers.is_empty() && !self.ask_next() {
                let none = || Error::new(ErrorCode::ReplicasUnknown, "no datanode is known to have it");
                return Poll::Ready(Err(self.last_error.take().unwrap_or_else(none)));
            }
            if let Some(piece) = self.poll_readers(cx) {
                return Poll::Ready(Ok(Some(piece)));
            }
            if self.readers.is_empty() {
                continue;
            }
            if self.step.poll_unpin(cx).is_ready() {
                self.time_out();
                continue;
            }
            match self.poll_hedge(cx) {
                Poll::Ready(()) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_readers(&mut self, cx: &mut Context<'_>) -> Option<Piece> {
        let mut index = 0;
        while let Some(reader) = self.readers.get_mut(index) {
            let Poll::Ready(answer) = reader.poll_answer(cx) else {
                index += 1;
                continue;
            };
            let outcome = answer.and_then(|(response, payload)| self.accept(index, response, payload));
            match outcome {
                Ok(piece) => return Some(piece),
                Err(error) => self.drop_reader(index, error),
            }
        }
        None
    }

    /// Checks what a replica gave and, where it is good, lets it go on alone.
    fn accept(&mut self, index: usize, response: Response, payload: Bytes) -> Result<Piece, Error> {
        let Some(response::Op::ReadData(data)) = response.op else {
            return Err(Error::internal("the answer to ReadBlock is another's"));
        };
        let reader = &mut self.readers[index];
        let expected = reader.expect.unwrap_or(self.at / WINDOW * WINDOW);
        let length = payload.len() as u64;
        let end = data.offset.saturating_add(length);
        if data.offset != expected || end <= self.at || end > self.source.block.length {
            return Err(Error::internal(format!(
                "it gave bytes {}..{end} where those from {expected} on were due",
                data.offset
            )));
        }
        let corrupt = |at: u64, why: &str| Error::new(ErrorCode::Corrupt, format!("bytes from {at} on are not {why}"));
        if let Some(window) = first_mismatch(&payload, &data.crcs) {
            let at = data.offset + window as u64 * WINDOW;
            self.report_corrupt(index, at);
            return Err(corrupt(at, "what their checksum says"));
        }
        let crc32c = combine_windows(&data.crcs, length);
        if length == self.source.block.length && crc32c != self.source.block.crc32c {
            // Its checksums are in order, but they are not those of the block that was committed.
            self.report_corrupt(index, 0);
            return Err(corrupt(0, "those that were committed"));
        }
        let reader = &mut self.readers[index];
        reader.expect = Some(end);
        let now = Instant::now();
        let node = self.source.replicas.get(reader.replica).map(|target| target.datanode);
        if let Some(node) = node {
            self.client.inner.latencies.record(node, now - reader.since);
        }
        reader.since = now;
        if self.readers.len() > 1 {
            self.keep_only(index, now);
        }
        let from = self.at - data.offset;
        let to = length.min(self.end - data.offset);
        let whole = from == 0 && to == length;
        self.at = data.offset + to;
        self.step.as_mut().reset(now + self.client.inner.tuning.step_timeout.duration());
        self.hedge = None;
        Ok(Piece { bytes: payload.slice(from as usize..to as usize), crc32c: whole.then_some(crc32c) })
    }

    /// The others were slower: that is remembered, and they can be asked again.
    fn keep_only(&mut self, index: usize, now: Instant) {
        let winner = self.readers.swap_remove(index);
        for loser in std::mem::replace(&mut self.readers, vec![winner]) {
            if let Some(target) = self.source.replicas.get(loser.replica) {
                self.client.inner.latencies.record(target.datanode, now - loser.since);
            }
            self.untried.push_back(loser.replica);
        }
    }

    fn drop_reader(&mut self, index: usize, error: Error) {
        let reader = self.readers.swap_remove(index);
        let block = self.source.block.id;
        let Some(target) = self.source.replicas.get(reader.replica) else { return };
        self.client.inner.latencies.failed(target.datanode);
        tracing::debug!(
            datanode = %target.datanode, block, request_id = &*self.request_id, error = %error, "a replica failed a read"
        );
        let error = if error.message.contains("datanode ") { error } else { error.context(target) };
        self.last_error = Some(error);
    }

    fn time_out(&mut self) {
        while let Some(reader) = self.readers.last_mut() {
            let error = match &mut reader.state {
                State::Streaming(_, stream) => stream.give_up(),
                _ => Error::new(ErrorCode::DeadlineExceeded, "no answer in time"),
            };
            self.drop_reader(self.readers.len() - 1, error);
        }
        self.step.as_mut().reset(Instant::now() + self.client.inner.tuning.step_timeout.duration());
    }

    /// Ready where another replica was asked.
    fn poll_hedge(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.readers.len() >= ASKED_MAX || self.untried.is_empty() {
            return Poll::Pending;
        }
        let latencies = &self.client.inner.latencies;
        let hedge = match &mut self.hedge {
            Some(hedge) => hedge,
            None => {
                let only = if self.readers.len() == 1 { self.readers.first() } else { None };
                let node = only.and_then(|reader| self.source.replicas.get(reader.replica));
                let wait = node.map_or(latencies.hedge_max(), |target| latencies.hedge_after(target.datanode));
                self.hedge_free = wait >= latencies.hedge_max();
                self.hedge.insert(Box::pin(sleep_until(Instant::now() + wait)))
            }
        };
        if hedge.poll_unpin(cx).is_pending() {
            return Poll::Pending;
        }
        if !self.hedge_free && !latencies.take_hedge() {
            // Too many hedges: everything seems to be slow. One that waited for the longest time is made anyway.
            self.hedge_free = true;
            hedge.as_mut().reset(Instant::now() + latencies.hedge_max());
            return hedge.poll_unpin(cx);
        }
        metrics::counter!("ozone_client_hedged_reads_total").increment(1);
        self.hedge = None;
        self.ask_next();
        Poll::Ready(())
    }

    /// Asks the best replica not tried yet; false where there is none.
    fn ask_next(&mut self) -> bool {
        let Some(replica) = self.untried.pop_front() else { return false };
        let Some(target) = self.source.replicas.get(replica).cloned() else { return false };
        let length = self.end - self.at;
        let lane = if length <= SMALL_LANE_MAX { Lane::Small } else { Lane::Bulk };
        let read = ReadBlock {
            block: self.source.block.id,
            epoch: self.source.block.epoch,
            block_length: self.source.block.length,
            offset: self.at,
            length,
            token: Some(self.source.token.clone()),
        };
        let request =
            Request { request_id: self.request_id.as_ref().to_owned(), op: Some(request::Op::ReadBlock(read)) };
        // Pieces cover what is asked for in whole windows.
        let answer_bytes = (length + 2 * WINDOW) as usize;
        let now = Instant::now();
        let deadline = now + self.client.inner.tuning.step_timeout.duration();
        let data = self.client.inner.data.clone();
        let opening = async move {
            let connection = data.connection(&target, lane, deadline).await?;
            let stream = connection.stream(&request, Bytes::new(), answer_bytes, deadline).await?;
            Ok((connection, stream))
        };
        self.readers.push(Reader { replica, since: now, expect: None, state: State::Opening(opening.boxed()) });
        true
    }

    /// Tells a datanode that what it gave is bad; it checks for itself.
    fn report_corrupt(&self, index: usize, at: u64) {
        if let Some(Reader { state: State::Streaming(connection, _), .. }) = self.readers.get(index) {
            let report =
                ReportCorrupt { block: self.source.block.id, offset: at, token: Some(self.source.token.clone()) };
            tracing::warn!(
                datanode = %connection.target().datanode, block = self.source.block.id, offset = at,
                "a replica is corrupt; reported to its datanode"
            );
            metrics::counter!("ozone_client_corrupt_replicas_total").increment(1);
            connection.notify(&Request {
                request_id: self.request_id.as_ref().to_owned(),
                op: Some(request::Op::ReportCorrupt(report)),
            });
        }
    }
}

impl Reader {
    fn poll_open(&mut self, cx: &mut Context<'_>) {
        if let State::Opening(opening) = &mut self.state
            && let Poll::Ready(outcome) = opening.poll_unpin(cx)
        {
            self.state = match outcome {
                Ok((connection, stream)) => State::Streaming(connection, stream),
                Err(error) => State::Failed(error),
            };
        }
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Response, Bytes), Error>> {
        self.poll_open(cx);
        match &mut self.state {
            State::Opening(_) => Poll::Pending,
            State::Streaming(_, stream) => match stream.poll_next(cx) {
                Poll::Ready(Ok(Some(answer))) => Poll::Ready(Ok(answer)),
                Poll::Ready(Ok(None)) => Poll::Ready(Err(Error::internal("it ended before all was given"))),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            },
            State::Failed(_) => match std::mem::replace(&mut self.state, State::Done) {
                State::Failed(error) => Poll::Ready(Err(error)),
                _ => Poll::Pending,
            },
            State::Done => Poll::Ready(Err(Error::internal("the read is over"))),
        }
    }
}
