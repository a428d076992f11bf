//! The calling end of the block transport: a pool of connections, many calls in flight on each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use ozone_common::id::{ClientId, ClusterId, DatanodeId};
use ozone_common::limits::FRAME_PAYLOAD_MAX;
use ozone_common::{Error, ErrorCode, RetryClass};
use ozone_proto::datanode::v1::{Hello, Request, Response};
use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::io::{Io, IoError, Outbox, decode_hello};
use crate::VERSION;
use crate::frame::{Frame, Kind, encode_head};

/// What a call counts for besides its payloads, bytes.
const CALL_COST: usize = 512;
/// Answers taken before requests get their turn.
const FRAMES_IN_A_ROW: usize = 64;

/// A datanode and where it listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// Who must answer there.
    pub datanode: DatanodeId,
    /// Host name or address.
    pub host: Arc<str>,
    /// Port of the block transport.
    pub port: u16,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "datanode {} at {}:{}", self.datanode, self.host, self.port)
    }
}

/// Which of a datanode's connections a call takes: small calls do not wait behind megabytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Frames of up to some tens of KiB.
    Small,
    /// Chunks of large blocks.
    Bulk,
}

/// Tuning of the block transport's client; the defaults serve.
#[derive(Clone, Debug)]
pub struct DataOptions {
    /// For TCP to be up and the greeting to be answered.
    pub connect_timeout: Duration,
    /// Bytes of requests and of answers asked for that may be in flight on one connection; calls beyond wait.
    pub credit_bytes: usize,
}

impl Default for DataOptions {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(2), credit_bytes: 64 << 20 }
    }
}

type Connecting = Shared<BoxFuture<'static, Result<Arc<Connection>, Error>>>;

enum Slot {
    Connecting(Connecting),
    Connected(Arc<Connection>),
}

/// The pool. Clones share it.
#[derive(Clone)]
pub struct DataClient {
    inner: Arc<Pool>,
}

struct Pool {
    cluster: Option<ClusterId>,
    client: ClientId,
    options: DataOptions,
    slots: Mutex<HashMap<(Target, Lane), Slot>>,
}

impl DataClient {
    /// Makes an empty pool. `cluster` is `None` where the caller does not know it; datanodes then do not compare it.
    pub fn new(cluster: Option<ClusterId>, client: ClientId, options: DataOptions) -> Self {
        Self { inner: Arc::new(Pool { cluster, client, options, slots: Mutex::default() }) }
    }

    /// The connection to `target`, made now where there is none; callers that ask at the same time share the attempt.
    ///
    /// # Errors
    /// `Unavailable` where it cannot be had by `deadline` or the options' timeout; nothing was sent then.
    pub async fn connection(&self, target: &Target, lane: Lane, deadline: Instant) -> Result<Arc<Connection>, Error> {
        let connecting = {
            let mut slots = self.inner.slots.lock();
            let key = (target.clone(), lane);
            match slots.get(&key) {
                Some(Slot::Connected(connection)) if !connection.is_closed() => return Ok(connection.clone()),
                Some(Slot::Connecting(connecting)) => connecting.clone(),
                _ => {
                    // A task of its own: it goes on although the caller that began it gives up.
                    let connecting = tokio::spawn(connect(self.inner.clone(), target.clone(), lane))
                        .map(|joined| {
                            joined.unwrap_or_else(|error| Err(Error::internal(format!("connecting: {error}"))))
                        })
                        .boxed()
                        .shared();
                    slots.insert(key, Slot::Connecting(connecting.clone()));
                    connecting
                }
            }
        };
        match timeout_at(deadline, connecting).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::new(ErrorCode::Unavailable, format!("{target}: no connection by the deadline"))
                .with_retry(RetryClass::OtherReplica)),
        }
    }

    /// One request, one answer, on the pooled connection. See [`Connection::call`].
    ///
    /// # Errors
    /// Those of [`DataClient::connection`] and [`Connection::call`].
    pub async fn call(
        &self,
        target: &Target,
        lane: Lane,
        request: &Request,
        payload: Bytes,
        deadline: Instant,
    ) -> Result<(Response, Bytes), Error> {
        let connection = self.connection(target, lane, deadline).await?;
        connection.call(request, payload, deadline).await
    }

    /// Closes every connection; their calls fail.
    pub fn close(&self) {
        let slots = std::mem::take(&mut *self.inner.slots.lock());
        for slot in slots.into_values() {
            if let Slot::Connected(connection) = slot {
                connection.close();
            }
        }
    }
}

/// The last handle closes the connections, whose tasks would keep them open otherwise.
impl Drop for Pool {
    fn drop(&mut self) {
        for slot in std::mem::take(self.slots.get_mut()).into_values() {
            if let Slot::Connected(connection) = slot {
                connection.close();
            }
        }
    }
}

/// Connects and enters the outcome into the pool.
async fn connect(pool: Arc<Pool>, target: Target, lane: Lane) -> Result<Arc<Connection>, Error> {
    let unreachable = |why: String| {
        Error::new(ErrorCode::Unavailable, format!("{target}: {why}")).with_retry(RetryClass::OtherReplica)
    };
    let outcome = match tokio::time::timeout(pool.options.connect_timeout, open(&pool, &target)).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(unreachable(error.to_string())),
        Err(_) => Err(unreachable("no answer to the connection attempt".to_owned())),
    };
    let mut slots = pool.slots.lock();
    if let Entry::Occupied(mut slot) = slots.entry((target, lane)) {
        match &outcome {
            Ok(connection) => {
                slot.insert(Slot::Connected(connection.clone()));
            }
            Err(_) => {
                slot.remove();
            }
        }
    }
    outcome
}

async fn open(pool: &Pool, target: &Target) -> Result<Arc<Connection>, IoError> {
    let socket = TcpStream::connect((&*target.host, target.port)).await?;
    socket.set_nodelay(true)?;
    let mut io = Io::new(socket);
    let outbox = Arc::new(Outbox::new(usize::MAX));
    let hello = Hello {
        cluster: pool.cluster.map(|cluster| Bytes::copy_from_slice(cluster.as_bytes())).unwrap_or_default(),
        client: Bytes::copy_from_slice(pool.client.as_bytes()),
        datanode: Bytes::copy_from_slice(target.datanode.as_bytes()),
        version: VERSION.to_owned(),
    };
    outbox.push(encode_head(Kind::Hello, true, 0, &hello, 0)?, Bytes::new(), |_| {});
    io.flush(&outbox).await?;
    check_answer(pool, target, &io.read_frame().await?)?;
    let connection = Arc::new(Connection {
        target: target.clone(),
        outbox: outbox.clone(),
        calls: Mutex::new(Calls { next: 1, open: HashMap::new(), failure: None }),
        credit: Semaphore::new(pool.options.credit_bytes),
        credit_total: pool.options.credit_bytes,
        received: AtomicU64::new(0),
    });
    tokio::spawn(run(io, outbox, connection.clone()));
    Ok(connection)
}

fn check_answer(pool: &Pool, target: &Target, frame: &Frame) -> Result<(), IoError> {
    if frame.kind == Kind::Response
        && let Ok(Response { error: Some(error), .. }) = Response::decode(frame.header.clone())
    {
        return Err(IoError::Protocol(format!("it refused the connection: {}", Error::from(error))));
    }
    let answer = decode_hello(frame)?;
    if answer.datanode != target.datanode.as_bytes()[..] {
        return Err(IoError::Protocol("another datanode listens there".to_owned()));
    }
    match pool.cluster {
        Some(cluster) if answer.cluster != cluster.as_bytes()[..] => {
            Err(IoError::Protocol("a datanode of another cluster listens there".to_owned()))
        }
        _ => Ok(()),
    }
}

/// An answer of several, and whether it is the last.
type Piece = Result<(Response, Bytes, bool), Error>;

enum Waiter {
    One(oneshot::Sender<Result<(Response, Bytes), Error>>),
    /// Bounded by the bytes that the caller asked for, which hold credit.
    Many {
        answers: mpsc::UnboundedSender<Piece>,
        bytes_left: usize,
    },
}

struct Calls {
    next: u64,
    open: HashMap<u64, Waiter>,
    failure: Option<Error>,
}

/// A connection to a datanode.
pub struct Connection {
    target: Target,
    outbox: Arc<Outbox>,
    calls: Mutex<Calls>,
    credit: Semaphore,
    credit_total: usize,
    /// Frames received: a call that times out while nothing came at all takes the connection for dead.
    received: AtomicU64,
}

/// A call's entry in the table and its share of the credit; both go when the caller does.
struct Held {
    connection: Arc<Connection>,
    call: u64,
    cost: usize,
    received_before: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.connection.calls.lock().open.remove(&self.call);
        self.connection.credit.add_permits(self.cost);
    }
}

impl Connection {
    /// Whom it reaches.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether it is gone; the pool then makes another.
    pub fn is_closed(&self) -> bool {
        self.outbox.is_closed()
    }

    /// Closes it; calls in flight fail with `Unavailable`.
    pub fn close(&self) {
        self.fail("closed by this side".to_owned());
    }

    /// Sends one request and waits for its one answer. An error answer is an `Err`.
    ///
    /// cancel-safe: dropped, the request may or may not have its effect, and its answer is discarded.
    ///
    /// # Errors
    /// What the datanode answers; `Unavailable` where the connection breaks, `DeadlineExceeded` at the deadline (both: it
    /// may have had its effect); `Overloaded` where no credit could be had by then (nothing was sent).
    pub async fn call(
        self: &Arc<Self>,
        request: &Request,
        payload: Bytes,
        deadline: Instant,
    ) -> Result<(Response, Bytes), Error> {
        self.send(request, payload, deadline).await?.wait(deadline).await
    }

    /// Sends one request without waiting for its answer: requests sent one after the other arrive in that order.
    ///
    /// cancel-safe: dropped while it waits for credit, nothing was sent.
    ///
    /// # Errors
    /// Those of [`Connection::call`] that come before the answer.
    pub async fn send(
        self: &Arc<Self>,
        request: &Request,
        payload: Bytes,
        deadline: Instant,
    ) -> Result<PendingAnswer, Error> {
        let (sender, answer) = oneshot::channel();
        let held = self.begin(request, payload, 0, Waiter::One(sender), deadline).await?;
        Ok(PendingAnswer { held, answer })
    }

    /// Sends one request that is answered by several frames, with `answer_bytes` of payload at most.
    ///
    /// cancel-safe: dropping the stream gives the rest up.
    ///
    /// # Errors
    /// As [`Connection::call`]; the stream's items fail likewise.
    pub async fn stream(
        self: &Arc<Self>,
        request: &Request,
        payload: Bytes,
        answer_bytes: usize,
        deadline: Instant,
    ) -> Result<ResponseStream, Error> {
        let (sender, answers) = mpsc::unbounded_channel();
        let waiter = Waiter::Many { answers: sender, bytes_left: answer_bytes };
        let held = self.begin(request, payload, answer_bytes, waiter, deadline).await?;
        Ok(ResponseStream { held, answers, deadline, ended: false })
    }

    /// Sends a request whose answer nobody waits for, without credit: for small farewells. Nothing is sent where the
    /// connection is gone.
    pub fn notify(&self, request: &Request) {
        let call = {
            let mut calls = self.calls.lock();
            let call = calls.next;
            calls.next += 1;
            call
        };
        match encode_head(Kind::Request, true, call, request, 0) {
            // A connection that is gone has told the datanode already.
            Ok(head) => drop(self.outbox.push(head, Bytes::new(), |_| {})),
            Err(error) => tracing::debug!(target = %self.target, error = %error, "notice not sent"),
        }
    }

    async fn begin(
        self: &Arc<Self>,
        request: &Request,
        payload: Bytes,
        answer_bytes: usize,
        waiter: Waiter,
        deadline: Instant,
    ) -> Result<Held, Error> {
        let cost = (payload.len() + answer_bytes + CALL_COST).min(self.credit_total);
        let permits = u32::try_from(cost).unwrap_or(u32::MAX);
        let permit = match self.credit.try_acquire_many(permits) {
            Ok(permit) => permit,
            Err(_) => match timeout_at(deadline, self.credit.acquire_many(permits)).await {
                Ok(Ok(permit)) => permit,
                Ok(Err(_)) => return Err(self.failure()),
                Err(_) => {
                    let message = format!("{}: too many bytes are in flight", self.target);
                    return Err(Error::new(ErrorCode::Overloaded, message));
                }
            },
        };
        permit.forget();
        let received_before = self.received.load(Ordering::Relaxed);
        let call = {
            let mut calls = self.calls.lock();
            let call = calls.next;
            calls.next += 1;
            calls.open.insert(call, waiter);
            call
        };
        let held = Held { connection: self.clone(), call, cost: permits as usize, received_before };
        let head = encode_head(Kind::Request, true, call, request, payload.len())
            .map_err(|error| Error::new(ErrorCode::TooLarge, error.to_string()))?;
        if self.outbox.push(head, payload, |_| {}) { Ok(held) } else { Err(self.failure()) }
    }

    fn failure(&self) -> Error {
        self.calls.lock().failure.clone().unwrap_or_else(|| self.broken("the connection broke"))
    }

    fn broken(&self, why: &str) -> Error {
        Error::new(ErrorCode::Unavailable, format!("{}: {why}", self.target))
    }

    /// Ends the connection and every call on it.
    fn fail(&self, why: String) {
        let error = self.broken(&why);
        let open = {
            let mut calls = self.calls.lock();
            calls.failure.get_or_insert_with(|| error.clone());
            std::mem::take(&mut calls.open)
        };
        self.outbox.close();
        for waiter in open.into_values() {
            // A caller that went away no longer wants to know.
            match waiter {
                Waiter::One(sender) => drop(sender.send(Err(error.clone()))),
                Waiter::Many { answers, .. } => drop(answers.send(Err(error.clone()))),
            }
        }
    }

    /// Hands an answer to its caller.
    fn dispatch(&self, frame: Frame) -> Result<(), IoError> {
        self.received.fetch_add(1, Ordering::Relaxed);
        if frame.kind != Kind::Response {
            return Err(IoError::Protocol(format!("the datanode sent a frame of kind {:?}", frame.kind)));
        }
        let waiter = {
            let mut calls = self.calls.lock();
            if frame.call == 0 || frame.call >= calls.next {
                return Err(IoError::Protocol(format!("an answer to call {}, which was never made", frame.call)));
            }
            match calls.open.entry(frame.call) {
                // Given up by its caller.
                Entry::Vacant(_) => return Ok(()),
                Entry::Occupied(mut waiter) => match waiter.get_mut() {
                    Waiter::Many { answers, bytes_left } if !frame.last => {
                        match bytes_left.checked_sub(frame.payload.len()) {
                            Some(left) => {
                                *bytes_left = left;
                                Waiter::Many { answers: answers.clone(), bytes_left: left }
                            }
                            None => return Err(IoError::Protocol("more bytes came than were asked for".to_owned())),
                        }
                    }
                    _ => waiter.remove(),
                },
            }
        };
        let response = Response::decode(frame.header)
            .map_err(|error| IoError::Protocol(format!("an answer that does not decode: {error}")))?;
        let outcome = match response.error {
            Some(error) => Err(Error::from(error).context(&self.target)),
            None => Ok((response, frame.payload)),
        };
        match waiter {
            Waiter::One(sender) => {
                if !frame.last {
                    return Err(IoError::Protocol("several answers came to a call that has one".to_owned()));
                }
                // A caller that went away no longer wants its answer.
                drop(sender.send(outcome));
            }
            Waiter::Many { answers, bytes_left } => {
                if let Ok((_, payload)) = &outcome
                    && frame.last
                    && payload.len() > bytes_left
                {
                    return Err(IoError::Protocol("more bytes came than were asked for".to_owned()));
                }
                drop(answers.send(outcome.map(|(response, payload)| (response, payload, frame.last))));
            }
        }
        Ok(())
    }
}

impl Held {
    fn late(&self) -> Error {
        let connection = &self.connection;
        if connection.received.load(Ordering::Relaxed) == self.received_before {
            connection.fail("nothing came from it within a call's time".to_owned());
        }
        Error::new(ErrorCode::DeadlineExceeded, format!("{}: no answer in time", connection.target))
    }
}

/// A request on its way; dropped, its answer is discarded.
pub struct PendingAnswer {
    held: Held,
    answer: oneshot::Receiver<Result<(Response, Bytes), Error>>,
}

impl PendingAnswer {
    /// Waits for the answer. cancel-safe.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn wait(&mut self, deadline: Instant) -> Result<(Response, Bytes), Error> {
        match timeout_at(deadline, &mut self.answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(self.held.connection.failure()),
            Err(_) => Err(self.held.late()),
        }
    }
}

/// The answers of one call.
pub struct ResponseStream {
    held: Held,
    answers: mpsc::UnboundedReceiver<Piece>,
    deadline: Instant,
    ended: bool,
}

impl ResponseStream {
    /// The next answer; `None` after the last. cancel-safe.
    ///
    /// # Errors
    /// As [`Connection::call`]; after an error there is nothing more.
    pub async fn next(&mut self) -> Result<Option<(Response, Bytes)>, Error> {
        let deadline = self.deadline;
        match timeout_at(deadline, std::future::poll_fn(|cx| self.poll_next(cx))).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.give_up()),
        }
    }

    /// [`ResponseStream::next`] without its deadline, for callers that watch the time themselves.
    ///
    /// # Errors
    /// As [`ResponseStream::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<(Response, Bytes)>, Error>> {
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        let outcome = match self.answers.poll_recv(cx) {
            Poll::Ready(Some(outcome)) => outcome,
            // Only an answer marked as the last ends a stream in order.
            Poll::Ready(None) => Err(self.held.connection.failure()),
            Poll::Pending => return Poll::Pending,
        };
        self.ended = outcome.as_ref().map_or(true, |(_, _, last)| *last);
        Poll::Ready(outcome.map(|(response, payload, _)| Some((response, payload))))
    }

    /// Ends the stream as of a deadline that passed; gives the error.
    pub fn give_up(&mut self) -> Error {
        self.ended = true;
        self.held.late()
    }
}

/// The connection's task.
async fn run(mut io: Io<TcpStream>, outbox: Arc<Outbox>, connection: Arc<Connection>) {
    let ended = std::future::poll_fn(|cx| -> Poll<IoError> {
        for taken in 0.. {
            if taken == FRAMES_IN_A_ROW {
                cx.waker().wake_by_ref();
                break;
            }
            match io.poll_frame(cx) {
                Poll::Ready(Ok(frame)) => {
                    if let Err(error) = connection.dispatch(frame) {
                        return Poll::Ready(error);
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Pending => break,
            }
        }
        match io.poll_flush(cx, &outbox) {
            Poll::Ready(Err(error)) => Poll::Ready(error),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    })
    .await;
    tracing::debug!(target = %connection.target, error = %ended, "connection ended");
    connection.fail(ended.to_string());
}

const _: () = assert!(FRAME_PAYLOAD_MAX + CALL_COST < u32::MAX as usize);
