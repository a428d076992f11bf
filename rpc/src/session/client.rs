//! The calling end: one stream to the leader, which carries the calls of every task of the process.
//!
//! Callers enter calls under a short lock; the request stream takes everything that waits into one batch when the
//! connection polls it, and a driver task hands replies to their callers. The driver alone connects, follows leaders,
//! backs off, and sends unanswered calls again under their old numbers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use ozone_common::env::Env;
use ozone_common::id::ClientId;
use ozone_common::limits::{RPC_MESSAGE_MAX, SESSION_CALLS_MAX};
use ozone_common::{Error, ErrorCode, RetryClass};
use ozone_proto::rpc::v1::sessions_client::SessionsClient;
use ozone_proto::rpc::v1::{CallBatch, Hello, ReplyBatch, reply};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Streaming;

use super::CALL_BYTES_MAX;
use super::client_state::{Pending, State};
use super::hello::{Identity, check_answer, greet};
use crate::{channel, status};

/// Most leader hints followed in a row without a pause.
const HOPS_MAX: usize = 3;
/// How long calls of an expired session may still get their answers before they are given up.
const EXPIRY_GRACE: Duration = Duration::from_secs(1);

/// Tuning of a session's client; the defaults serve.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// For TCP and HTTP/2 to be up, and for the greeting to be answered.
    pub connect_timeout: Duration,
    /// First pause after every address failed; doubles from there,
    pub backoff_min: Duration,
    /// up to this.
    pub backoff_max: Duration,
    /// Calls in flight; more wait.
    pub calls_max: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(1),
            calls_max: SESSION_CALLS_MAX,
        }
    }
}

/// What belongs to a call besides its request.
#[derive(Clone, Debug)]
pub struct CallOptions {
    /// Until when an answer is of use.
    pub deadline: Instant,
    /// For logs, from the gateway to the disk.
    pub request_id: Arc<str>,
    /// On whose behalf; `None` = the session's own user.
    pub user: Option<Arc<str>>,
}

/// A session with a service that may have several members. Clones share it; the last one to go ends it.
#[derive(Clone)]
pub struct SessionClient {
    shared: Arc<Shared>,
    _driver: Arc<DropGuard>,
}

struct Shared {
    service: &'static str,
    addresses: Vec<String>,
    identity: Identity,
    env: Env,
    options: SessionOptions,
    state: Mutex<State>,
    permits: Semaphore,
    /// Calls wait and no stream carries them.
    work: Notify,
    /// The span of unanswered sequences shrank.
    room: Notify,
}

/// Why a stream ended.
enum Ended {
    /// The member does not lead; perhaps it knows who does.
    Redirect(Option<String>),
    /// It could not be opened, or broke. `progress`: it answered something first.
    Failed { error: Error, progress: bool },
    /// The server ended it or refused to go on, in order.
    Closed { progress: bool },
    /// The server has forgotten this client id.
    Expired,
}

impl SessionClient {
    /// Makes a session with `service` (`om.Sessions`) whose members are at `addresses` (`host:port`). Connects on the
    /// first call. Needs a tokio runtime.
    ///
    /// # Errors
    /// `InvalidArgument` where there is no address or one is malformed.
    pub fn connect(
        service: &'static str,
        addresses: Vec<String>,
        identity: Identity,
        env: Env,
        options: SessionOptions,
    ) -> Result<Self, Error> {
        if addresses.is_empty() {
            return Err(Error::invalid(format!("{service}: no address is configured")));
        }
        for address in &addresses {
            channel::endpoint(address, options.connect_timeout)?;
        }
        let client = ClientId::fresh(env.clock.now_ms(), &*env.rng);
        let shared = Arc::new(Shared {
            service,
            addresses,
            identity,
            env,
            state: Mutex::new(State::new(client)),
            permits: Semaphore::new(options.calls_max),
            work: Notify::new(),
            room: Notify::new(),
            options,
        });
        let token = CancellationToken::new();
        let driver = shared.clone();
        tokio::spawn(token.clone().run_until_cancelled_owned(async move { driver.drive().await }));
        Ok(Self { shared, _driver: Arc::new(token.drop_guard()) })
    }

    /// The client id calls go out under now; it changes only where the server let the session expire.
    pub fn client_id(&self) -> ClientId {
        self.shared.state.lock().client
    }

    /// Carries out one call: retried under the same number over broken connections and changes of leader until the
    /// deadline, with effect at most once.
    ///
    /// cancel-safe: dropping it gives the call up; it may or may not have its effect.
    ///
    /// # Errors
    /// What the service answers. `DeadlineExceeded` where a sent call was not answered in time (it may have had its
    /// effect), `Unavailable` where it could not even be sent; both name the addresses and the last failure.
    pub async fn call(&self, request: Bytes, options: &CallOptions) -> Result<Bytes, Error> {
        if request.len() > CALL_BYTES_MAX {
            return Err(Error::new(
                ErrorCode::TooLarge,
                format!(
                    "{}: the request has {} bytes, the limit is {CALL_BYTES_MAX}",
                    self.shared.service,
                    request.len()
                ),
            ));
        }
        let started = Instant::now();
        loop {
            let outcome = self.shared.call_once(request.clone(), options, started).await;
            match outcome {
                // Refused as of an expired session and never carried before: without effect, so it may go out anew.
                Err(error)
                    if error.code == ErrorCode::SessionExpired
                        && error.retry == RetryClass::Same
                        && Instant::now() < options.deadline => {}
                outcome => return outcome,
            }
        }
    }
}

/// Takes a call out of the state when its caller goes away.
struct Waiting<'a> {
    shared: &'a Shared,
    sequence: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.remove(self.sequence);
    }
}

impl Shared {
    async fn call_once(&self, request: Bytes, options: &CallOptions, started: Instant) -> Result<Bytes, Error> {
        let _permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => match timeout_at(options.deadline, self.permits.acquire()).await {
                Ok(Ok(permit)) => permit,
                Ok(Err(_)) => return Err(Error::new(ErrorCode::ShuttingDown, "the session was ended")),
                Err(_) => {
                    return Err(Error::new(
                        ErrorCode::Overloaded,
                        format!("{}: {} calls are in flight already", self.service, self.options.calls_max),
                    ));
                }
            },
        };
        let (sender, mut answer) = oneshot::channel();
        let mut pending = Pending {
            request,
            request_id: options.request_id.clone(),
            user: options.user.clone(),
            deadline: options.deadline,
            answer: sender,
            sends: 0,
        };
        let waiting = loop {
            let room = self.room.notified();
            match self.enter(pending) {
                Ok(sequence) => break Waiting { shared: self, sequence },
                Err(back) => pending = back,
            }
            if timeout_at(options.deadline, room).await.is_err() {
                return Err(Error::new(
                    ErrorCode::Overloaded,
                    format!("{}: too many calls were begun since the oldest unanswered one", self.service),
                ));
            }
        };
        match timeout_at(options.deadline, &mut answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Error::new(ErrorCode::ShuttingDown, format!("{}: the session was ended", self.service))),
            Err(_) => Err(self.late(waiting.sequence, started)),
        }
    }

    /// Enters a call, or gives it back where the span of unanswered sequences is at its limit.
    fn enter(&self, pending: Pending) -> Result<u64, Pending> {
        let (sequence, writer) = {
            let mut state = self.state.lock();
            if state.span() >= self.span_max() {
                return Err(pending);
            }
            let sequence = state.push(pending);
            (sequence, if state.open { Some(state.writer.take()) } else { None })
        };
        match writer {
            Some(writer) => writer.into_iter().for_each(|waker| waker.wake()),
            None => self.work.notify_one(),
        }
        Ok(sequence)
    }

    /// LIMIT: the server keeps an answer for each sequence from the lowest unanswered one on.
    fn span_max(&self) -> usize {
        self.options.calls_max * 4
    }

    fn remove(&self, sequence: u64) -> Option<Pending> {
        let mut state = self.state.lock();
        let before = state.span();
        let pending = state.remove(sequence);
        let freed = before >= self.span_max() && state.span() < before;
        drop(state);
        if freed {
            self.room.notify_waiters();
        }
        pending
    }

    fn late(&self, sequence: u64, started: Instant) -> Error {
        let sent = self.remove(sequence).is_none_or(|pending| pending.sends > 0);
        let last =
            self.state.lock().last_error.as_ref().map(|error| format!("; last failure: {error}")).unwrap_or_default();
        let message = format!(
            "{} at {}: no answer within {:.1} s{last}",
            self.service,
            self.addresses.join(", "),
            started.elapsed().as_secs_f64(),
        );
        if sent {
            Error::new(ErrorCode::DeadlineExceeded, message)
        } else {
            Error::new(ErrorCode::Unavailable, message).with_retry(RetryClass::Same)
        }
    }

    /// Keeps a stream open while there is work; ends with the task.
    async fn drive(self: Arc<Self>) {
        let mut next = 0;
        let mut hint: Option<String> = None;
        let (mut hops, mut failures, mut refusals) = (0, 0_usize, 0_usize);
        loop {
            self.wait_for_work().await;
            let address = hint.take().unwrap_or_else(|| self.addresses[next % self.addresses.len()].clone());
            let ended = self.run_stream(&address).await;
            self.end_stream();
            match ended {
                Ended::Redirect(Some(leader)) if leader != address && hops < HOPS_MAX => {
                    tracing::debug!(service = self.service, from = address, leader, "following the leader");
                    next = self.addresses.iter().position(|known| *known == leader).unwrap_or(next);
                    hint = Some(leader);
                    hops += 1;
                    continue;
                }
                Ended::Redirect(_) => {
                    let error = Error::new(ErrorCode::NotLeader, format!("{address} does not lead"));
                    self.state.lock().last_error = Some(error);
                    refusals = 0;
                }
                Ended::Failed { error, progress } => {
                    tracing::debug!(service = self.service, address, error = %error, "session stream failed");
                    refusals = if error.retry == RetryClass::Never { refusals + 1 } else { 0 };
                    if refusals >= self.addresses.len() {
                        // Every member refuses us for good: waiting for the deadlines would help nobody.
                        refusals = 0;
                        self.fail_all(&error);
                    }
                    self.state.lock().last_error = Some(error);
                    if progress {
                        (hops, failures) = (0, 0);
                        continue;
                    }
                }
                Ended::Closed { progress } => {
                    let error = Error::new(ErrorCode::Unavailable, format!("{address} ended the session"));
                    self.state.lock().last_error = Some(error);
                    refusals = 0;
                    if progress {
                        failures = 0;
                    }
                }
                Ended::Expired => {
                    (hops, failures, refusals) = (0, 0, 0);
                    self.renew();
                    // A server that refuses new sessions too must not be asked in a tight loop.
                    tokio::time::sleep(self.backoff(1)).await;
                    continue;
                }
            }
            hops = 0;
            next += 1;
            failures += 1;
            if failures % self.addresses.len() == 0 {
                tokio::time::sleep(self.backoff(failures / self.addresses.len())).await;
            }
        }
    }

    async fn wait_for_work(&self) {
        loop {
            let work = self.work.notified();
            if !self.state.lock().is_idle() {
                return;
            }
            work.await;
        }
    }

    /// Half to the whole of the pause of `round` (from 1).
    fn backoff(&self, round: usize) -> Duration {
        let doubled = self.options.backoff_min.saturating_mul(1 << round.saturating_sub(1).min(16));
        let pause = doubled.min(self.options.backoff_max);
        let half = pause / 2;
        half + Duration::from_micros(self.env.rng.below(half.as_micros() as u64 + 1))
    }

    async fn run_stream(self: &Arc<Self>, address: &str) -> Ended {
        let failed = |error: Error| Ended::Failed { error, progress: false };
        let connected = match tokio::time::timeout(self.options.connect_timeout, self.open(address)).await {
            Ok(connected) => connected,
            Err(_) => Err(Error::new(ErrorCode::Unavailable, "no answer to the greeting")),
        };
        let mut inbound = match connected {
            Ok(inbound) => inbound,
            Err(error) if error.code == ErrorCode::NotLeader => return Ended::Redirect(error.leader),
            Err(error) if error.message.contains(address) => return failed(error),
            Err(error) => return failed(error.context(format_args!("{} at {address}", self.service))),
        };
        let writer = {
            let mut state = self.state.lock();
            state.requeue_all();
            state.open = true;
            state.writer.take()
        };
        writer.into_iter().for_each(|waker| waker.wake());
        self.read_replies(&mut inbound, address).await
    }

    async fn open(self: &Arc<Self>, address: &str) -> Result<Streaming<ReplyBatch>, Error> {
        let channel = channel::connect(address, self.options.connect_timeout).await?;
        let (client, number) = {
            let mut state = self.state.lock();
            state.stream += 1;
            (state.client, state.stream)
        };
        let hello = greet(&self.identity, client, self.service, &self.env);
        let calls = CallStream { shared: self.clone(), number, hello: Some(hello.clone()) };
        let mut inbound = SessionsClient::new(channel)
            .max_decoding_message_size(RPC_MESSAGE_MAX)
            .max_encoding_message_size(RPC_MESSAGE_MAX)
            .open(calls)
            .await
            .map_err(|status| status::from_status(&status))?
            .into_inner();
        let first = inbound.message().await.map_err(|status| status::from_status(&status))?;
        match first {
            Some(ReplyBatch { hello: Some(answer), .. }) => {
                check_answer(&hello, &answer, &self.identity, client, self.service, &self.env)?;
                Ok(inbound)
            }
            _ => Err(Error::new(ErrorCode::Unavailable, "the server did not greet")),
        }
    }

    async fn read_replies(&self, inbound: &mut Streaming<ReplyBatch>, address: &str) -> Ended {
        let mut progress = false;
        let mut expired_until: Option<Instant> = None;
        loop {
            let message = match expired_until {
                None => inbound.message().await,
                Some(until) => match timeout_at(until, inbound.message()).await {
                    Ok(message) => message,
                    Err(_) => return Ended::Expired,
                },
            };
            let batch = match message {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ended::Closed { progress },
                Err(status) => {
                    let error = status::from_status(&status).context(format_args!("{} at {address}", self.service));
                    return Ended::Failed { error, progress };
                }
            };
            match self.dispatch(batch, &mut progress) {
                Dispatched::All => {}
                Dispatched::Redirect(leader) => return Ended::Redirect(leader),
                Dispatched::Stopping => return Ended::Closed { progress },
                Dispatched::Expired => {
                    self.state.lock().open = false;
                    expired_until = expired_until.or_else(|| Some(Instant::now() + EXPIRY_GRACE));
                }
            }
            if expired_until.is_some() && !self.state.lock().any_sent() {
                return Ended::Expired;
            }
        }
    }

    /// Hands answers to their callers. Calls that another member must answer stay.
    fn dispatch(&self, batch: ReplyBatch, progress: &mut bool) -> Dispatched {
        let mut answered = Vec::with_capacity(batch.replies.len());
        let mut result = Dispatched::All;
        let freed = {
            let mut state = self.state.lock();
            let before = state.span();
            for reply in batch.replies {
                let outcome = match reply.outcome {
                    Some(reply::Outcome::Response(response)) => Ok(response),
                    Some(reply::Outcome::Error(error)) => Err(Error::from(error)),
                    None => Err(Error::internal(format!("{}: a reply without an outcome", self.service))),
                };
                match outcome {
                    Err(error) if error.code == ErrorCode::NotLeader => result = Dispatched::Redirect(error.leader),
                    Err(error) if error.code == ErrorCode::ShuttingDown => {
                        if matches!(result, Dispatched::All) {
                            result = Dispatched::Stopping;
                        }
                    }
                    Err(error) if error.code == ErrorCode::SessionExpired => {
                        if let Some(pending) = state.remove(reply.sequence) {
                            answered.push((Err(expired(error, &pending)), pending));
                        }
                        result = Dispatched::Expired;
                    }
                    outcome => {
                        *progress = true;
                        if let Some(pending) = state.remove(reply.sequence) {
                            answered.push((outcome, pending));
                        }
                    }
                }
            }
            if *progress {
                state.last_error = None;
            }
            before >= self.span_max() && state.span() < before
        };
        for (outcome, pending) in answered {
            // A caller that went away no longer wants its answer.
            let _gone = pending.answer.send(outcome);
        }
        if freed {
            self.room.notify_waiters();
        }
        result
    }

    /// Lets the current stream end; calls entered from now on wait for the next.
    fn end_stream(&self) {
        let writer = {
            let mut state = self.state.lock();
            state.open = false;
            state.stream += 1;
            state.writer.take()
        };
        writer.into_iter().for_each(|waker| waker.wake());
    }

    fn renew(&self) {
        let client = ClientId::fresh(self.env.clock.now_ms(), &*self.env.rng);
        let given_up = self.state.lock().renew(client);
        tracing::info!(service = self.service, %client, "the session had expired; a new one begins");
        for pending in given_up {
            let error = expired(Error::new(ErrorCode::SessionExpired, "the session expired"), &pending);
            let error = if pending.sends > 0 { error.with_retry(RetryClass::Unknown) } else { error };
            let _gone = pending.answer.send(Err(error));
        }
        self.room.notify_waiters();
    }

    fn fail_all(&self, error: &Error) {
        let given_up = self.state.lock().drain();
        for pending in given_up {
            let _gone = pending.answer.send(Err(error.clone()));
        }
        self.room.notify_waiters();
    }
}

/// An expired session's refusal says that this sending had no effect; earlier ones may have had.
fn expired(error: Error, pending: &Pending) -> Error {
    error.with_retry(if pending.sends <= 1 { RetryClass::Same } else { RetryClass::Unknown })
}

enum Dispatched {
    All,
    Redirect(Option<String>),
    Stopping,
    Expired,
}

/// The requests of one stream: the greeting, then whatever waits whenever the connection takes more.
struct CallStream {
    shared: Arc<Shared>,
    number: u64,
    hello: Option<Hello>,
}

impl Stream for CallStream {
    type Item = CallBatch;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<CallBatch>> {
        let this = self.get_mut();
        if let Some(hello) = this.hello.take() {
            return Poll::Ready(Some(CallBatch { hello: Some(hello), lowest_unanswered: 0, calls: Vec::new() }));
        }
        let mut state = this.shared.state.lock();
        if state.stream != this.number {
            return Poll::Ready(None);
        }
        if state.open
            && let Some(batch) = state.next_batch(Instant::now())
        {
            return Poll::Ready(Some(batch));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }
}
