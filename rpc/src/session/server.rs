//! The serving end: decodes batches, runs their calls concurrently in the stream's own task, coalesces replies.
//!
//! A call is no task of its own: the response stream polls all calls of its session, so that a call costs two
//! allocations and no hop between threads. A handler must therefore not block; long work belongs on a blocking thread.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use metrics::{Counter, Gauge};
use ozone_common::env::Env;
use ozone_common::id::ClientId;
use ozone_common::limits::{RPC_MESSAGE_MAX, SESSION_CALLS_MAX};
use ozone_common::peer::{ClusterSecret, PeerRole};
use ozone_common::{Error, ErrorCode, RetryClass};
use ozone_proto::rpc::v1::sessions_server::{Sessions, SessionsServer};
use ozone_proto::rpc::v1::{Call, CallBatch, Hello, Reply, ReplyBatch, reply};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::TcpConnectInfo;
use tonic::{Request, Response, Status, Streaming};

use super::hello::{Doorkeeper, USER_LENGTH_MAX, answer};
use super::{BATCH_BYTES, CALL_BYTES_MAX};
use crate::status::to_status;

/// LIMIT: bytes of requests being handled in one session; beyond, its stream is not read (back pressure).
const SESSION_BYTES_MAX: usize = 64 << 20;
/// How long a stream may take to greet.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How long calls in progress may go on after shutdown was asked for.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest request id, bytes; a longer one is cut.
const REQUEST_ID_MAX: usize = 128;

/// The other end of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// What it is.
    pub role: PeerRole,
    /// One incarnation of its process.
    pub client: ClientId,
    /// Whether it proved that it holds the cluster's secret.
    pub proven: bool,
    /// The user it asserts to be; empty for roles of the cluster.
    pub user: String,
    /// Where it comes from, if the transport knows.
    pub address: Option<IpAddr>,
}

/// A call as the handler gets it.
#[derive(Clone, Debug)]
pub struct IncomingCall {
    /// Whose.
    pub peer: Arc<Peer>,
    /// Its number in the session: with `peer.client` the call's name for ever.
    pub sequence: u64,
    /// Answers to calls of this client below this number may be forgotten; such a call itself must not be executed.
    pub lowest_unanswered: u64,
    /// When the answer is of no use any more; the call's future is dropped then.
    pub deadline: Instant,
    /// For logs, from the gateway to the disk.
    pub request_id: String,
    /// On whose behalf: what a proven role says, else the session's own user. May be empty.
    pub user: String,
    /// The role's own request message.
    pub request: Bytes,
}

/// What a service does with calls.
pub trait CallHandler: Send + Sync + 'static {
    /// Carries out a call and answers with the encoded response message.
    ///
    /// cancel-safe: the future is dropped at the call's deadline and when the connection breaks; whatever it began must
    /// end or go on without it. It must not block.
    fn call(&self, call: IncomingCall) -> BoxFuture<'_, Result<Bytes, Error>>;
}

/// How sessions are served.
#[derive(Clone)]
pub struct SessionConfig {
    /// The service's name, which proofs are bound to: `om.Sessions`, `scm.Sessions`.
    pub service: &'static str,
    /// What this end is.
    pub role: PeerRole,
    /// The cluster and its secret.
    pub secret: ClusterSecret,
    /// Whether clients that prove nothing are served on loopback (insecure mode).
    pub allow_clients: bool,
    /// Clock and randomness.
    pub env: Env,
    /// Calls of one session in flight; more are answered `Overloaded`.
    pub calls_max: usize,
    /// Ends the sessions: new calls are refused, those in progress get a few seconds.
    pub shutdown: CancellationToken,
}

impl SessionConfig {
    /// The defaults: clients on loopback are served, [`SESSION_CALLS_MAX`] calls.
    pub fn new(
        service: &'static str,
        role: PeerRole,
        secret: ClusterSecret,
        env: Env,
        shutdown: CancellationToken,
    ) -> Self {
        Self { service, role, secret, allow_clients: true, env, calls_max: SESSION_CALLS_MAX, shutdown }
    }
}

/// Makes the gRPC service: `channel::server().add_service(service(config, handler))`.
pub fn service(config: SessionConfig, handler: Arc<dyn CallHandler>) -> SessionsServer<SessionService> {
    let service = SessionService(Arc::new(Shared {
        door: Doorkeeper::new(config.service, config.secret.clone(), config.allow_clients),
        sessions: metrics::gauge!("ozone_rpc_sessions_open", "service" => config.service),
        calls: metrics::counter!("ozone_rpc_session_calls_total", "service" => config.service),
        batches: metrics::counter!("ozone_rpc_session_call_batches_total", "service" => config.service),
        refused: metrics::counter!("ozone_rpc_session_calls_refused_total", "service" => config.service),
        late: metrics::counter!("ozone_rpc_session_calls_late_total", "service" => config.service),
        config,
        handler,
    }));
    SessionsServer::new(service).max_decoding_message_size(RPC_MESSAGE_MAX).max_encoding_message_size(RPC_MESSAGE_MAX)
}

struct Shared {
    config: SessionConfig,
    handler: Arc<dyn CallHandler>,
    door: Doorkeeper,
    sessions: Gauge,
    calls: Counter,
    batches: Counter,
    refused: Counter,
    late: Counter,
}

/// The gRPC service of [`service`].
pub struct SessionService(Arc<Shared>);

#[tonic::async_trait]
impl Sessions for SessionService {
    type OpenStream = SessionStream;

    async fn open(&self, request: Request<Streaming<CallBatch>>) -> Result<Response<SessionStream>, Status> {
        let address = request.extensions().get::<TcpConnectInfo>().and_then(|info| info.remote_addr()).map(|a| a.ip());
        let mut inbound = request.into_inner();
        let first = tokio::select! {
            first = tokio::time::timeout(HELLO_TIMEOUT, inbound.message()) => first,
            () = self.0.config.shutdown.cancelled() => {
                return Err(to_status(Error::new(ErrorCode::ShuttingDown, "the server is stopping")));
            }
        };
        let hello = match first {
            Ok(Ok(Some(CallBatch { hello: Some(hello), .. }))) => hello,
            Ok(Ok(_)) => return Err(to_status(Error::invalid("a session begins with a greeting"))),
            Ok(Err(status)) => return Err(status),
            Err(_) => return Err(to_status(Error::new(ErrorCode::DeadlineExceeded, "no greeting came"))),
        };
        let config = &self.0.config;
        let loopback = address.is_some_and(|address| address.is_loopback());
        let greeting = self.0.door.check(&hello, loopback, config.env.clock.now_ms()).map_err(|error| {
            tracing::warn!(service = config.service, peer = ?address, error = %error, "session refused");
            to_status(error)
        })?;
        tracing::debug!(
            service = config.service, peer = ?address, role = ?greeting.role, client = %greeting.client,
            version = hello.version, "session opened"
        );
        let back = answer(&hello, greeting.client, config.role, &config.secret, config.service, &config.env);
        let peer = Peer {
            role: greeting.role,
            client: greeting.client,
            proven: greeting.proven,
            user: greeting.user,
            address,
        };
        Ok(Response::new(SessionStream::new(self.0.clone(), inbound, Arc::new(peer), back)))
    }
}

struct Finished {
    sequence: u64,
    request_bytes: usize,
    outcome: Result<Bytes, Error>,
    late: bool,
}

/// The replies of one session; polling it runs its calls.
pub struct SessionStream {
    shared: Arc<Shared>,
    inbound: Streaming<CallBatch>,
    inbound_ended: bool,
    peer: Arc<Peer>,
    hello: Option<Hello>,
    lowest_unanswered: u64,
    running: FuturesUnordered<BoxFuture<'static, Finished>>,
    running_bytes: usize,
    ready: VecDeque<Reply>,
    ready_bytes: usize,
    /// Set between the first reply that became ready and its sending: others of the same wakeup get one turn to join it.
    lingered: bool,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
    drain: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl SessionStream {
    fn new(shared: Arc<Shared>, inbound: Streaming<CallBatch>, peer: Arc<Peer>, hello: Hello) -> Self {
        shared.sessions.increment(1.0);
        let stopping = Box::pin(shared.config.shutdown.clone().cancelled_owned());
        Self {
            shared,
            inbound,
            inbound_ended: false,
            peer,
            hello: Some(hello),
            lowest_unanswered: 0,
            running: FuturesUnordered::new(),
            running_bytes: 0,
            ready: VecDeque::new(),
            ready_bytes: 0,
            lingered: false,
            stopping,
            drain: None,
        }
    }

    /// Takes what has arrived, as far as the bounds allow.
    fn poll_inbound(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        while !self.inbound_ended && self.running_bytes < SESSION_BYTES_MAX && self.ready_bytes < BATCH_BYTES {
            match self.inbound.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(batch))) => self.take_batch(batch),
                Poll::Ready(Some(Err(status))) => {
                    self.inbound_ended = true;
                    return Err(status);
                }
                Poll::Ready(None) => self.inbound_ended = true,
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    fn take_batch(&mut self, batch: CallBatch) {
        self.lowest_unanswered = self.lowest_unanswered.max(batch.lowest_unanswered);
        self.shared.batches.increment(1);
        self.shared.calls.increment(batch.calls.len() as u64);
        let now = Instant::now();
        for call in batch.calls {
            let sequence = call.sequence;
            if let Err(error) = self.start(call, now) {
                self.shared.refused.increment(1);
                self.push_reply(sequence, Err(error));
            }
        }
    }

    fn start(&mut self, call: Call, now: Instant) -> Result<(), Error> {
        if self.drain.is_some() {
            return Err(Error::new(ErrorCode::ShuttingDown, format!("{} is stopping", self.shared.config.service))
                .with_retry(RetryClass::Same));
        }
        if self.running.len() >= self.shared.config.calls_max {
            return Err(Error::new(
                ErrorCode::Overloaded,
                format!("{} calls of this session are in flight already", self.running.len()),
            ));
        }
        let user = self.user_of(call.user)?;
        let mut request_id = call.request_id;
        if request_id.len() > REQUEST_ID_MAX {
            request_id = request_id.chars().take(REQUEST_ID_MAX / 4).collect();
        }
        let deadline = now + Duration::from_millis(u64::from(call.deadline_ms));
        let request_bytes = call.request.len();
        let incoming = IncomingCall {
            peer: self.peer.clone(),
            sequence: call.sequence,
            lowest_unanswered: self.lowest_unanswered,
            deadline,
            request_id,
            user,
            request: call.request,
        };
        let handler = self.shared.handler.clone();
        let sequence = incoming.sequence;
        self.running_bytes += request_bytes;
        self.running.push(Box::pin(async move {
            let (outcome, late) = match tokio::time::timeout_at(deadline, handler.call(incoming)).await {
                Ok(outcome) => (outcome, false),
                Err(_) => (Err(Error::new(ErrorCode::DeadlineExceeded, "the call's time ran out at the server")), true),
            };
            Finished { sequence, request_bytes, outcome, late }
        }));
        Ok(())
    }

    /// Only a role that proved itself speaks for others.
    fn user_of(&self, asserted: String) -> Result<String, Error> {
        if asserted.is_empty() || asserted == self.peer.user {
            return Ok(self.peer.user.clone());
        }
        if !self.peer.proven {
            return Err(Error::new(ErrorCode::PermissionDenied, "a client speaks for its session's user only"));
        }
        if asserted.len() > USER_LENGTH_MAX {
            return Err(Error::invalid(format!("user name of {} bytes; at most {USER_LENGTH_MAX}", asserted.len())));
        }
        Ok(asserted)
    }

    fn push_reply(&mut self, sequence: u64, outcome: Result<Bytes, Error>) {
        let outcome = match outcome {
            Ok(response) if response.len() > CALL_BYTES_MAX => Err(Error::new(
                ErrorCode::TooLarge,
                format!("the response has {} bytes, the limit is {CALL_BYTES_MAX}", response.len()),
            )),
            outcome => outcome,
        };
        let outcome = match outcome {
            Ok(response) => {
                self.ready_bytes += response.len() + 16;
                reply::Outcome::Response(response)
            }
            Err(error) => {
                self.ready_bytes += error.message.len() + 32;
                reply::Outcome::Error(error.into())
            }
        };
        self.ready.push_back(Reply { sequence, outcome: Some(outcome) });
    }

    fn poll_running(&mut self, cx: &mut Context<'_>) {
        while self.ready_bytes < BATCH_BYTES {
            match self.running.poll_next_unpin(cx) {
                Poll::Ready(Some(done)) => {
                    self.running_bytes -= done.request_bytes;
                    if done.late {
                        self.shared.late.increment(1);
                    }
                    self.push_reply(done.sequence, done.outcome);
                }
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    /// Whether the session is over although calls may still run.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> bool {
        if self.drain.is_none() {
            if self.stopping.poll_unpin(cx).is_pending() {
                return false;
            }
            self.drain = Some(Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)));
        }
        let timed_out = self.drain.as_mut().is_some_and(|drain| drain.poll_unpin(cx).is_ready());
        timed_out || self.running.is_empty()
    }

    fn take_ready(&mut self) -> ReplyBatch {
        self.lingered = false;
        self.ready_bytes = 0;
        ReplyBatch { hello: None, replies: std::mem::take(&mut self.ready).into() }
    }
}

impl Stream for SessionStream {
    type Item = Result<ReplyBatch, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(hello) = this.hello.take() {
            return Poll::Ready(Some(Ok(ReplyBatch { hello: Some(hello), replies: Vec::new() })));
        }
        let over = this.poll_shutdown(cx);
        loop {
            if let Err(status) = this.poll_inbound(cx) {
                // The connection broke: nobody is left to answer. Dropping the stream drops its calls.
                tracing::debug!(service = this.shared.config.service, client = %this.peer.client, error = %status, "session broke");
                return Poll::Ready(None);
            }
            let bytes_before = this.running_bytes;
            this.poll_running(cx);
            // Room that finished calls made may let in more; their wakers are registered only by polling again.
            if bytes_before < SESSION_BYTES_MAX || this.running_bytes >= SESSION_BYTES_MAX {
                break;
            }
        }
        if !this.ready.is_empty() {
            // A group commit answers many calls one after the other: giving way once lets the rest join this batch.
            if !this.lingered && !this.running.is_empty() && this.ready_bytes < BATCH_BYTES {
                this.lingered = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            return Poll::Ready(Some(Ok(this.take_ready())));
        }
        if over || (this.inbound_ended && this.running.is_empty()) {
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

impl Drop for SessionStream {
    fn drop(&mut self) {
        self.shared.sessions.decrement(1.0);
    }
}
