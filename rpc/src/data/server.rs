//! The serving end of the block transport: accepts connections, hands requests to the datanode, sends its answers.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use metrics::{Counter, Gauge};
use ozone_common::id::{ClientId, ClusterId, DatanodeId};
use ozone_common::{Error, ErrorCode};
use ozone_proto::datanode::v1::{Hello, Request, Response};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::io::{Io, IoError, Outbox, decode_hello};
use crate::VERSION;
use crate::frame::{Frame, Kind, encode_head};

/// How long a connection may take to greet.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests being handled may go on after shutdown was asked for.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// What a request counts for besides its payload, bytes.
const REQUEST_COST: usize = 1024;
/// Requests taken before answers get their turn.
const FRAMES_IN_A_ROW: usize = 64;

/// How the block transport is served.
#[derive(Clone, Debug)]
pub struct DataServerConfig {
    /// Clients that name another cluster are refused.
    pub cluster: ClusterId,
    /// Clients that mean another datanode are refused.
    pub datanode: DatanodeId,
    /// Connections; more are closed at once.
    pub connections_max: usize,
    /// Bytes of requests of one connection being handled; beyond, it is not read (back pressure).
    pub handling_bytes_max: usize,
    /// Bytes of answers queued on one connection from which on [`Responder::room`] waits.
    pub queued_bytes_max: usize,
}

impl DataServerConfig {
    /// The defaults: 4096 connections, 32 MiB handled and 8 MiB queued per connection.
    pub fn new(cluster: ClusterId, datanode: DatanodeId) -> Self {
        Self { cluster, datanode, connections_max: 4096, handling_bytes_max: 32 << 20, queued_bytes_max: 8 << 20 }
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// Number of the connection, never used twice by a server.
    pub connection: u64,
    /// One incarnation of the client.
    pub client: ClientId,
    /// Where it comes from.
    pub address: SocketAddr,
}

/// What a datanode does with requests.
pub trait DataHandler: Send + Sync + 'static {
    /// State of one connection (its open blocks); dropped after [`DataHandler::close`].
    type Connection: Send + 'static;

    /// A client greeted.
    fn open(&self, peer: PeerInfo) -> Self::Connection;

    /// Takes one request; requests of a connection come in order, one at a time. Must not block: work that may is handed
    /// to other threads together with `reply`.
    fn handle(&self, connection: &mut Self::Connection, request: Request, payload: Bytes, reply: Responder);

    /// The connection is gone. Responders of it may still be around; what they send is discarded.
    fn close(&self, connection: Self::Connection);
}

/// Answers one request, from any thread. Dropped without [`Responder::finish`], it answers `Internal`.
pub struct Responder {
    outbox: Arc<Outbox>,
    call: u64,
    cost: usize,
    finished: bool,
}

impl Responder {
    /// Sends an answer after which more follow.
    pub fn send(&mut self, response: &Response, payload: Bytes) {
        self.push(response, payload, false);
    }

    /// Sends the last answer.
    pub fn finish(mut self, response: &Response, payload: Bytes) {
        self.push(response, payload, true);
    }

    /// Sends an error as the last answer.
    pub fn fail(self, error: Error) {
        self.finish(&Response { error: Some(error.into()), op: None }, Bytes::new());
    }

    /// Ends with success or an error, without payload.
    pub fn answer(self, outcome: Result<Response, Error>) {
        match outcome {
            Ok(response) => self.finish(&response, Bytes::new()),
            Err(error) => self.fail(error),
        }
    }

    fn push(&mut self, response: &Response, payload: Bytes, last: bool) {
        let (head, payload, last) = match encode_head(Kind::Response, last, self.call, response, payload.len()) {
            Ok(head) => (head, payload, last),
            Err(error) => {
                let refusal = Response { error: Some(Error::internal(error.to_string()).into()), op: None };
                let head = encode_head(Kind::Response, true, self.call, &refusal, 0)
                    .expect("an error of one line is within the limits");
                (head, Bytes::new(), true)
            }
        };
        if self.finished {
            return;
        }
        self.finished = last;
        let cost = if last { self.cost } else { 0 };
        // A connection that is gone has nobody who waits for this.
        let _sent = self.outbox.push(head, payload, |state| {
            if last {
                state.outstanding -= 1;
                state.handling -= cost;
            }
        });
    }

    /// Whether an answer may be queued without going over the connection's bound.
    pub fn has_room(&self) -> bool {
        self.outbox.has_room()
    }

    /// Waits for [`Responder::has_room`], or until the connection is gone. To be called between pieces of a long answer.
    pub async fn room(&self) {
        self.outbox.wait_for_room().await;
    }

    /// Whether the connection is gone, so that work on the answer can stop.
    pub fn is_closed(&self) -> bool {
        self.outbox.is_closed()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.finished {
            let error = Error::internal("the datanode dropped the request");
            self.push(&Response { error: Some(error.into()), op: None }, Bytes::new(), true);
        }
    }
}

struct Server<H> {
    config: DataServerConfig,
    handler: Arc<H>,
    shutdown: CancellationToken,
    next: AtomicU64,
    open: Gauge,
    requests: Counter,
    refused: Counter,
}

/// Serves connections until `shutdown`, then lets requests in progress end, and returns when all connections are closed.
pub async fn serve<H: DataHandler>(
    listener: TcpListener,
    config: DataServerConfig,
    handler: Arc<H>,
    shutdown: CancellationToken,
) {
    let server = Arc::new(Server {
        config,
        handler,
        shutdown: shutdown.clone(),
        next: AtomicU64::new(1),
        open: metrics::gauge!("ozone_rpc_data_connections_open"),
        requests: metrics::counter!("ozone_rpc_data_requests_total"),
        refused: metrics::counter!("ozone_rpc_data_connections_refused_total"),
    });
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((socket, address)) if connections.len() < server.config.connections_max => {
                connections.spawn(server.clone().connection(socket, address));
            }
            Ok((_, address)) => {
                server.refused.increment(1);
                tracing::warn!(peer = %address, limit = server.config.connections_max, "too many connections: closed");
            }
            Err(error) => {
                // Out of file descriptors, mostly: accepting again at once would spin.
                tracing::warn!(error = %error, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

impl<H: DataHandler> Server<H> {
    async fn connection(self: Arc<Self>, socket: TcpStream, address: SocketAddr) {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(peer = %address, error = %error, "no TCP_NODELAY");
        }
        let mut io = Io::new(socket);
        let outbox = Arc::new(Outbox::new(self.config.queued_bytes_max));
        let greeted = tokio::select! {
            greeted = tokio::time::timeout(HELLO_TIMEOUT, self.greet(&mut io, &outbox)) => greeted,
            () = self.shutdown.cancelled() => return,
        };
        let client = match greeted {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => {
                self.refused.increment(1);
                tracing::debug!(peer = %address, error = %error, "connection refused");
                return;
            }
            Err(_) => {
                self.refused.increment(1);
                tracing::debug!(peer = %address, "no greeting came");
                return;
            }
        };
        let peer = PeerInfo { connection: self.next.fetch_add(1, Ordering::Relaxed), client, address };
        self.open.increment(1.0);
        let mut state = self.handler.open(peer);
        let ended = self.run(&mut io, &outbox, &mut state).await;
        outbox.close();
        self.handler.close(state);
        self.open.decrement(1.0);
        if let Err(error) = ended {
            tracing::debug!(peer = %address, client = %client, error = %error, "connection ended");
        }
    }

    /// Checks the client's greeting and answers it; a refusal is answered with an error first.
    async fn greet(&self, io: &mut Io<TcpStream>, outbox: &Outbox) -> Result<ClientId, IoError> {
        let hello = decode_hello(&io.read_frame().await?)?;
        let checked = self.check(&hello);
        let head = match &checked {
            Ok(_) => {
                let answer = Hello {
                    cluster: Bytes::copy_from_slice(self.config.cluster.as_bytes()),
                    client: hello.client.clone(),
                    datanode: Bytes::copy_from_slice(self.config.datanode.as_bytes()),
                    version: VERSION.to_owned(),
                };
                encode_head(Kind::Hello, true, 0, &answer, 0)?
            }
            Err(error) => {
                let refusal = Response { error: Some(error.clone().into()), op: None };
                encode_head(Kind::Response, true, 0, &refusal, 0)?
            }
        };
        outbox.push(head, Bytes::new(), |_| {});
        io.flush(outbox).await?;
        checked.map_err(|error| IoError::Protocol(error.to_string()))
    }

    fn check(&self, hello: &Hello) -> Result<ClientId, Error> {
        let cluster = ozone_proto::convert::cluster_id(&hello.cluster)?;
        if let Some(theirs) = cluster
            && theirs != self.config.cluster
        {
            return Err(Error::new(
                ErrorCode::Unauthenticated,
                format!("this datanode belongs to cluster {}, the client to {theirs}", self.config.cluster),
            ));
        }
        let meant = DatanodeId::from_slice(&hello.datanode)?;
        if meant != self.config.datanode {
            return Err(Error::new(
                ErrorCode::Unavailable,
                format!("this is datanode {}, not {meant}", self.config.datanode),
            ));
        }
        ClientId::from_slice(&hello.client)
    }

    async fn run(
        &self,
        io: &mut Io<TcpStream>,
        outbox: &Arc<Outbox>,
        state: &mut H::Connection,
    ) -> Result<(), IoError> {
        let mut stopping = std::pin::pin!(self.shutdown.cancelled());
        let mut drain = None;
        std::future::poll_fn(|cx| {
            if drain.is_none() && stopping.as_mut().poll(cx).is_ready() {
                drain = Some(Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)));
            }
            let mut reads = if drain.is_some() { Reads::Stopped } else { Reads::Go };
            let mut taken = 0;
            while reads == Reads::Go {
                if taken == FRAMES_IN_A_ROW {
                    cx.waker().wake_by_ref();
                    break;
                }
                taken += 1;
                if outbox.change(|state| state.handling) >= self.config.handling_bytes_max {
                    // Answers wake this task, which then looks again.
                    reads = Reads::Full;
                    break;
                }
                match io.poll_frame(cx) {
                    Poll::Ready(Ok(frame)) => self.take(frame, outbox, state)?,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => break,
                }
            }
            let flushed = match io.poll_flush(cx, outbox) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => false,
            };
            if reads == Reads::Full && outbox.change(|state| state.handling) < self.config.handling_bytes_max {
                // Answered between the two looks, before the waker was in place.
                cx.waker().wake_by_ref();
            }
            if let Some(drain) = &mut drain {
                let idle = flushed && outbox.change(|state| state.outstanding) == 0;
                if idle || drain.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(()));
                }
            }
            Poll::Pending
        })
        .await
    }

    fn take(&self, frame: Frame, outbox: &Arc<Outbox>, state: &mut H::Connection) -> Result<(), IoError> {
        if frame.kind != Kind::Request {
            return Err(IoError::Protocol(format!("a client sent a frame of kind {:?}", frame.kind)));
        }
        self.requests.increment(1);
        let request = Request::decode(frame.header)
            .map_err(|error| IoError::Protocol(format!("a request that does not decode: {error}")))?;
        let cost = frame.payload.len() + REQUEST_COST;
        outbox.change(|state| {
            state.outstanding += 1;
            state.handling += cost;
        });
        let reply = Responder { outbox: outbox.clone(), call: frame.call, cost, finished: false };
        self.handler.handle(state, request, frame.payload, reply);
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Go,
    /// Too many bytes are being handled.
    Full,
    /// Shutting down.
    Stopped,
}
