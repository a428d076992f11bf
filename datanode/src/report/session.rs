//! One heartbeat stream: registers, reports, takes commands; opened again whenever it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ozone_common::env::Env;
use ozone_common::limits::RPC_MESSAGE_MAX;
use ozone_common::peer::ClusterSecret;
use ozone_common::telemetry::RateLimit;
use ozone_common::{Error, ErrorCode, Result};
use ozone_proto::convert::cluster_id;
use ozone_proto::scm::v1::heartbeats_client::HeartbeatsClient;
use ozone_proto::scm::v1::{NodeCommand, NodeReport, Registered, node_command::Command};
use ozone_rpc::channel;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use super::backoff::Backoff;
use super::hub::{Hub, Listening};
use super::orders::Orders;
use super::register::Presence;
use crate::metrics::ReportMetrics;

/// For a connection to be up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// For a registration to be answered: the SCM logs it first.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);
/// LIMIT: reports on their way; while the SCM takes none, none is made.
const REPORTS_MAX: usize = 2;
/// Heartbeats are neither more nor less frequent than this, whatever the SCM says.
const HEARTBEAT_MIN: Duration = Duration::from_millis(20);
const HEARTBEAT_MAX: Duration = Duration::from_secs(10);

/// Tells the SCMs about this datanode.
pub(crate) struct Reporter {
    presence: Presence,
    secret: ClusterSecret,
    env: Env,
    hub: Arc<Hub>,
    orders: Arc<Orders>,
    metrics: Arc<ReportMetrics>,
    registered: AtomicUsize,
}

/// A stream that was registered, for as long as it is.
struct Standing<'a>(&'a Reporter);

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.0.registered.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.registered.decrement(1.0);
    }
}

impl Reporter {
    /// Puts the parts together.
    pub fn new(
        presence: Presence,
        secret: ClusterSecret,
        env: Env,
        hub: Arc<Hub>,
        orders: Arc<Orders>,
        metrics: Arc<ReportMetrics>,
    ) -> Arc<Self> {
        Arc::new(Self { presence, secret, env, hub, orders, metrics, registered: AtomicUsize::new(0) })
    }

    /// Whether any SCM has registered this datanode and hears from it.
    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed) > 0
    }

    /// Keeps a stream to one SCM open until shutdown.
    pub async fn run(self: Arc<Self>, address: String, shutdown: CancellationToken) {
        let warnings = RateLimit::every_ms(30_000);
        let trying = async {
            let mut backoff = Backoff::default();
            let started = Instant::now();
            loop {
                self.metrics.attempts.increment(1);
                let registered = AtomicBool::new(false);
                let error = self.stream(&address, &registered).await;
                if registered.into_inner() {
                    backoff = Backoff::default();
                }
                // A cluster that starts as a whole: who comes up first waits for the others without a word.
                let patient = error.code == ErrorCode::Unavailable && started.elapsed() < CONNECT_TIMEOUT * 3;
                match if patient { None } else { warnings.pass() } {
                    Some(held_back) => {
                        tracing::warn!(scm = address, %error, held_back, "no heartbeat stream to the SCM; trying on")
                    }
                    None => tracing::debug!(scm = address, %error, "heartbeat stream ended"),
                }
                tokio::time::sleep(backoff.next(&*self.env.rng)).await;
            }
        };
        shutdown.run_until_cancelled::<_>(trying).await;
    }

    /// One stream from its registration to its end; gives why it ended.
    async fn stream(&self, address: &str, registered: &AtomicBool) -> Error {
        match self.open(address).await {
            Ok((reports, mut commands, listening, greeting)) => {
                registered.store(true, Ordering::Relaxed);
                self.registered.fetch_add(1, Ordering::Relaxed);
                self.metrics.registered.increment(1.0);
                let _standing = Standing(self);
                tracing::info!(scm = address, datanode = %self.presence.datanode, "registered with the SCM");
                let heartbeat = Duration::from_millis(greeting.heartbeat_ms.into()).clamp(HEARTBEAT_MIN, HEARTBEAT_MAX);
                match self.beat(reports, &mut commands, &listening, heartbeat).await {
                    Ok(never) => match never {},
                    Err(error) => error,
                }
            }
            Err(error) => error,
        }
    }

    async fn open(
        &self,
        address: &str,
    ) -> Result<(mpsc::Sender<NodeReport>, Streaming<NodeCommand>, Listening, Registered)> {
        let channel = channel::connect(address, CONNECT_TIMEOUT).await?;
        let listening = self.hub.listen();
        let (reports, queue) = mpsc::channel(REPORTS_MAX);
        let first = NodeReport {
            register: Some(self.presence.register(&self.secret, &self.env)),
            sequence: 1,
            ..listening.full()
        };
        reports.try_send(first).map_err(|_| Error::internal("a fresh queue takes a report"))?;
        let mut client = HeartbeatsClient::new(channel)
            .max_decoding_message_size(RPC_MESSAGE_MAX)
            .max_encoding_message_size(RPC_MESSAGE_MAX);
        let opening = async {
            let mut commands = client.stream(ReceiverStream::new(queue)).await.map_err(ended)?.into_inner();
            let greeting = next(&mut commands).await?;
            Ok((commands, greeting))
        };
        let opened: Result<_> = timeout(REGISTER_TIMEOUT, opening)
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorCode::Unavailable, "the registration was not answered")));
        let (commands, greeting) = opened?;
        match greeting.command {
            Some(Command::Registered(greeting)) => {
                let theirs = cluster_id(&greeting.cluster)?;
                if theirs != Some(self.secret.cluster) {
                    let theirs = theirs.map(|id| id.to_string()).unwrap_or_default();
                    let text = format!("the SCM belongs to cluster `{theirs}`, not to {}", self.secret.cluster);
                    return Err(Error::new(ErrorCode::Unauthenticated, text));
                }
                Ok((reports, commands, listening, greeting))
            }
            Some(Command::Refused(refused)) => Err(Error::new(
                ErrorCode::Unauthenticated,
                format!("the SCM refuses this datanode: {}", refused.reason),
            )),
            _ => Err(Error::internal("the SCM did not answer the registration first")),
        }
    }

    /// Reports at least every `heartbeat` and takes commands, until the stream ends.
    async fn beat(
        &self,
        reports: mpsc::Sender<NodeReport>,
        commands: &mut Streaming<NodeCommand>,
        listening: &Listening,
        heartbeat: Duration,
    ) -> Result<std::convert::Infallible> {
        let mut sequence = 1;
        let mut send = |report: NodeReport, slot: mpsc::Permit<'_, NodeReport>| {
            sequence += 1;
            self.metrics.reports.increment(1);
            slot.send(NodeReport { sequence, ..report });
        };
        let mut next_beat = Instant::now() + heartbeat;
        loop {
            let due = async {
                tokio::select! {
                    () = listening.listener.changed.notified() => {}
                    () = sleep_until(next_beat) => {}
                }
                // While the SCM takes no reports, changes gather.
                reports.reserve().await
            };
            let order = async { (self.orders.place().await, next(commands).await) };
            tokio::select! {
                slot = due => {
                    let slot = slot.map_err(|_| lost())?;
                    // A notice may be about what the last report told already.
                    if listening.has_news() || Instant::now() >= next_beat {
                        send(listening.changes(), slot);
                        next_beat = Instant::now() + heartbeat;
                    }
                }
                (place, command) = order => {
                    let NodeCommand { term, command } = command?;
                    match command {
                        Some(Command::Close(close)) => self.orders.close(term, close, place),
                        Some(Command::DeleteBlocks(delete)) => {
                            self.orders.delete(term, delete, listening.listener.clone(), place);
                        }
                        Some(Command::FullReport(_)) => {
                            let slot = reports.reserve().await.map_err(|_| lost())?;
                            send(listening.full(), slot);
                            next_beat = Instant::now() + heartbeat;
                        }
                        Some(Command::Refused(refused)) => {
                            let text = format!("the SCM ends the stream: {}", refused.reason);
                            return Err(Error::new(ErrorCode::Unauthenticated, text));
                        }
                        Some(Command::Registered(_)) | None => {
                            tracing::debug!("a command that this build does not know, or a greeting out of place");
                        }
                    }
                }
            }
        }
    }
}

async fn next(commands: &mut Streaming<NodeCommand>) -> Result<NodeCommand> {
    commands.message().await.map_err(ended)?.ok_or_else(lost)
}

fn ended(status: tonic::Status) -> Error {
    Error::new(ErrorCode::Unavailable, format!("heartbeat stream: {}", status.message()))
}

fn lost() -> Error {
    Error::new(ErrorCode::Unavailable, "the SCM ended the heartbeat stream")
}
