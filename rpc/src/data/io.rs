//! One connection's socket: reads frames, writes what its outbox holds.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::Notify;

use crate::frame::{Frame, FrameError, Kind, PREFIX_LENGTH, Prefix};

/// Size of the read buffer. Payloads that fit into it stay slices of it.
const READ_BUFFER: usize = 64 << 10;
/// A payload of more than this is read into a buffer of its own.
const OWN_BUFFER_MIN: usize = 16 << 10;
/// After such a payload, the next head is read with no more than this: what it reads too much is copied.
const READ_AFTER_LARGE: usize = 4 << 10;
/// Payloads up to this are copied behind their head: a slice more costs the kernel as much.
const COPY_MAX: usize = 512;
/// Slices of one vectored write.
const SLICES_MAX: usize = 64;

/// Frames that wait to be written, and the flow of one connection. Shared by the connection's task and all who send.
pub(crate) struct Outbox {
    state: Mutex<OutboxState>,
    /// Told when queued bytes fall below the low mark.
    room: Notify,
    room_at: usize,
}

#[derive(Default)]
pub(crate) struct OutboxState {
    segments: VecDeque<Bytes>,
    /// Bytes queued here or being written.
    queued: usize,
    /// Requests being handled, and what they count for in bytes (servers).
    pub outstanding: usize,
    pub handling: usize,
    waker: Option<Waker>,
    closed: bool,
    waiting_for_room: bool,
}

impl Outbox {
    pub(crate) fn new(room_at: usize) -> Self {
        Self { state: Mutex::default(), room: Notify::new(), room_at }
    }

    /// Queues a frame and, under the same lock, changes the flow's counts. False where the connection is gone.
    pub(crate) fn push(&self, head: Bytes, payload: Bytes, change: impl FnOnce(&mut OutboxState)) -> bool {
        let waker = {
            let mut state = self.state.lock();
            change(&mut state);
            if state.closed {
                return false;
            }
            state.queued += head.len() + payload.len();
            if payload.is_empty() || payload.len() > COPY_MAX {
                state.segments.push_back(head);
                if !payload.is_empty() {
                    state.segments.push_back(payload);
                }
            } else {
                let mut both = BytesMut::with_capacity(head.len() + payload.len());
                both.put(head);
                both.put(payload);
                state.segments.push_back(both.freeze());
            }
            state.waker.take()
        };
        // Outside the lock: the woken task takes it first thing.
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Changes the flow's counts alone.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut OutboxState) -> T) -> T {
        change(&mut self.state.lock())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Nothing is sent any more; who waits for room is let go.
    pub(crate) fn close(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.closed = true;
            state.segments.clear();
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        self.room.notify_waiters();
    }

    pub(crate) fn has_room(&self) -> bool {
        let state = self.state.lock();
        state.closed || state.queued <= self.room_at
    }

    /// Waits until fewer bytes than the mark are queued, or the connection is gone. cancel-safe.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let room = self.room.notified();
            {
                let mut state = self.state.lock();
                if state.closed || state.queued <= self.room_at {
                    return;
                }
                state.waiting_for_room = true;
            }
            room.await;
        }
    }

    fn written(&self, bytes: usize) {
        let notify = {
            let mut state = self.state.lock();
            state.queued -= bytes.min(state.queued);
            state.queued <= self.room_at && std::mem::take(&mut state.waiting_for_room)
        };
        if notify {
            self.room.notify_waiters();
        }
    }
}

enum Reading {
    Head,
    Payload { prefix: Prefix, header: Bytes, payload: BytesMut },
}

/// A socket with its buffers.
pub(crate) struct Io<S> {
    socket: S,
    buffer: BytesMut,
    reading: Reading,
    after_large: bool,
    writing: VecDeque<Bytes>,
}

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IoError {
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer closed the connection within a frame")]
    Torn,
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Protocol(String),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Io<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, buffer: BytesMut::new(), reading: Reading::Head, after_large: false, writing: VecDeque::new() }
    }

    /// The next frame, as soon as it is there.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, IoError>> {
        loop {
            if let Some(frame) = self.parse()? {
                return Poll::Ready(Ok(frame));
            }
            let read = match &mut self.reading {
                Reading::Payload { prefix, payload, .. } => {
                    let missing = prefix.payload_length - payload.len();
                    pin!(self.socket.read_buf(&mut payload.limit(missing))).poll(cx)
                }
                Reading::Head => {
                    let most = if self.after_large && self.buffer.is_empty() { READ_AFTER_LARGE } else { READ_BUFFER };
                    if self.buffer.capacity() - self.buffer.len() < READ_AFTER_LARGE {
                        self.buffer.reserve(READ_BUFFER);
                    }
                    pin!(self.socket.read_buf(&mut (&mut self.buffer).limit(most))).poll(cx)
                }
            };
            match read {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => {
                    let between = self.buffer.is_empty() && matches!(self.reading, Reading::Head);
                    return Poll::Ready(Err(if between { IoError::Closed } else { IoError::Torn }));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// A frame out of what was read, if it is complete.
    fn parse(&mut self) -> Result<Option<Frame>, IoError> {
        if let Reading::Payload { prefix, payload, .. } = &self.reading
            && payload.len() < prefix.payload_length
        {
            return Ok(None);
        }
        match std::mem::replace(&mut self.reading, Reading::Head) {
            Reading::Payload { prefix, header, payload } => {
                self.after_large = true;
                Ok(Some(frame(prefix, header, payload.freeze())))
            }
            Reading::Head => self.parse_head(),
        }
    }

    fn parse_head(&mut self) -> Result<Option<Frame>, IoError> {
        let Some(bytes) = self.buffer.first_chunk::<PREFIX_LENGTH>() else { return Ok(None) };
        let prefix = Prefix::decode(bytes)?;
        let head_length = PREFIX_LENGTH + prefix.header_length;
        let Some(header) = self.buffer.get(PREFIX_LENGTH..head_length) else {
            self.buffer.reserve(head_length - self.buffer.len());
            return Ok(None);
        };
        let whole = head_length + prefix.payload_length;
        let large = prefix.payload_length > OWN_BUFFER_MIN;
        if self.buffer.len() < whole && !large {
            self.buffer.reserve(whole - self.buffer.len());
            return Ok(None);
        }
        Prefix::check(bytes, header)?;
        self.buffer.advance(PREFIX_LENGTH);
        let header = self.buffer.split_to(prefix.header_length).freeze();
        if self.buffer.len() >= prefix.payload_length {
            self.after_large = false;
            let payload = self.buffer.split_to(prefix.payload_length).freeze();
            return Ok(Some(frame(prefix, header, payload)));
        }
        // The only copy of payload bytes: those that came with the head (at most READ_AFTER_LARGE in a row of large ones).
        let mut payload = BytesMut::with_capacity(prefix.payload_length);
        payload.put(self.buffer.split());
        self.reading = Reading::Payload { prefix, header, payload };
        Ok(None)
    }

    /// Writes what `outbox` holds. Ready when all of it has gone out; registers for what is queued later.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, outbox: &Outbox) -> Poll<Result<(), IoError>> {
        loop {
            {
                let mut state = outbox.state.lock();
                if state.closed {
                    return Poll::Ready(Err(IoError::Closed));
                }
                self.writing.append(&mut state.segments);
                if self.writing.is_empty() {
                    if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                        state.waker = Some(cx.waker().clone());
                    }
                    return Poll::Ready(Ok(()));
                }
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for (slice, segment) in slices.iter_mut().zip(&self.writing) {
                *slice = IoSlice::new(segment);
                count += 1;
            }
            match Pin::new(&mut self.socket).poll_write_vectored(cx, &slices[..count]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into())),
                Poll::Ready(Ok(written)) => {
                    self.advance(written);
                    outbox.written(written);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    // Whoever queues more meanwhile must not be lost; the socket wakes us for what is here.
                    let mut state = outbox.state.lock();
                    state.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(front) = self.writing.front_mut() {
            if written < front.len() {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.writing.pop_front();
        }
        debug_assert_eq!(written, 0);
    }

    /// One frame, for greetings.
    pub(crate) async fn read_frame(&mut self) -> Result<Frame, IoError> {
        std::future::poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// Writes everything queued, for greetings and farewells.
    pub(crate) async fn flush(&mut self, outbox: &Outbox) -> Result<(), IoError> {
        std::future::poll_fn(|cx| self.poll_flush(cx, outbox)).await
    }
}

fn frame(prefix: Prefix, header: Bytes, payload: Bytes) -> Frame {
    Frame { kind: prefix.kind, last: prefix.last, call: prefix.call, header, payload }
}

/// A greeting frame's message.
pub(crate) fn decode_hello(frame: &Frame) -> Result<ozone_proto::datanode::v1::Hello, IoError> {
    use prost::Message;
    if frame.kind != Kind::Hello {
        return Err(IoError::Protocol(format!("the connection begins with a frame of kind {:?}", frame.kind)));
    }
    ozone_proto::datanode::v1::Hello::decode(frame.header.clone())
        .map_err(|error| IoError::Protocol(format!("a greeting that does not decode: {error}")))
}

#[cfg(test)]
mod tests {
    use ozone_proto::datanode::v1::Request;
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::frame::encode_head;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Whatever the sizes of frames and of reads, the frames come out as they went in.
        #[test]
        fn frames_survive_any_fragmentation(
            sizes in prop::collection::vec(prop_oneof![0..2000_usize, 60_000..70_000_usize, 0..300_000_usize], 1..12),
            pipe in prop_oneof![1..50_usize, 1000..200_000_usize],
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                // One byte a time is slow for large frames.
                let pipe = if pipe < 50 && sizes.iter().sum::<usize>() > 100_000 { pipe * 1000 } else { pipe };
                let (near, far) = tokio::io::duplex(pipe);
                let (mut near, mut far) = (Io::new(near), Io::new(far));
                let outbox = Outbox::new(0);
                let payloads: Vec<Bytes> = sizes.iter().enumerate()
                    .map(|(i, size)| (0..*size).map(|j| (i * 31 + j) as u8).collect::<Vec<_>>().into()).collect();
                for (i, payload) in payloads.iter().enumerate() {
                    let header = Request { request_id: "x".repeat(i * 100), op: None };
                    let head = encode_head(Kind::Request, i % 2 == 0, i as u64, &header, payload.len()).unwrap();
                    assert!(outbox.push(head, payload.clone(), |_| {}));
                }
                let write = async { near.flush(&outbox).await.unwrap() };
                let read = async {
                    let mut frames = Vec::new();
                    while frames.len() < payloads.len() {
                        frames.push(far.read_frame().await.unwrap());
                    }
                    frames
                };
                let ((), frames) = tokio::join!(write, read);
                for (i, (frame, payload)) in frames.iter().zip(&payloads).enumerate() {
                    assert_eq!((frame.call, frame.last), (i as u64, i % 2 == 0));
                    assert_eq!(&frame.payload, payload);
                }
                assert!(outbox.has_room(), "everything was written");
            });
        }

        #[test]
        fn junk_ends_the_connection(junk in prop::collection::vec(any::<u8>(), 1..200), good_start in 0..6_usize) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (mut near, far) = tokio::io::duplex(4096);
                let mut junk = junk;
                let start = [b'O', b'3', b'D', b'F', 1, 2];
                for (to, from) in junk.iter_mut().zip(&start[..good_start]) {
                    *to = *from;
                }
                near.write_all(&junk).await.unwrap();
                drop(near);
                assert!(Io::new(far).read_frame().await.is_err());
            });
        }
    }
}
