//! Sessions between a real client and a real server, with a proxy that cuts connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use ozone_common::env::Env;
use ozone_common::id::{ClientId, ClusterId};
use ozone_common::peer::{ClusterSecret, PeerRole};
use ozone_common::{Error, ErrorCode};
use ozone_rpc::session::{
    CallHandler, CallOptions, Identity, IncomingCall, SessionClient, SessionConfig, SessionOptions, service,
};
use ozone_rpc::{channel, listener};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SERVICE: &str = "om.Sessions";

fn secret() -> ClusterSecret {
    ClusterSecret::new(ClusterId::from_bytes([1; 16]), [7; 32])
}

/// Answers as a replicated service would: a repeated call gets its first answer.
#[derive(Default)]
struct Fake {
    answers: Mutex<BTreeMap<(ClientId, u64), Bytes>>,
    executed: AtomicUsize,
    repeated: AtomicUsize,
    delay_ms: AtomicUsize,
    hang: AtomicBool,
    leader: Mutex<Option<String>>,
    expire: AtomicUsize,
    lowest: Mutex<u64>,
}

impl CallHandler for Fake {
    fn call(&self, call: IncomingCall) -> BoxFuture<'_, Result<Bytes, Error>> {
        Box::pin(async move {
            if let Some(leader) = self.leader.lock().clone() {
                let mut error = Error::new(ErrorCode::NotLeader, "not I");
                error.leader = Some(leader);
                return Err(error);
            }
            if self.expire.load(Ordering::SeqCst) > 0 {
                self.expire.fetch_sub(1, Ordering::SeqCst);
                return Err(Error::new(ErrorCode::SessionExpired, "unknown session"));
            }
            {
                let mut lowest = self.lowest.lock();
                *lowest = call.lowest_unanswered.max(*lowest);
            }
            assert!(call.sequence >= call.lowest_unanswered);
            let answer = {
                let mut answers = self.answers.lock();
                let key = (call.peer.client, call.sequence);
                if let Some(answer) = answers.get(&key) {
                    self.repeated.fetch_add(1, Ordering::SeqCst);
                    answer.clone()
                } else {
                    self.executed.fetch_add(1, Ordering::SeqCst);
                    let text = format!("{}|{}|{}", call.user, call.request_id, String::from_utf8_lossy(&call.request));
                    answers.insert(key, text.clone().into());
                    text.into()
                }
            };
            if self.hang.load(Ordering::SeqCst) && call.request.starts_with(b"hang") {
                std::future::pending::<()>().await;
            }
            match self.delay_ms.load(Ordering::SeqCst) {
                0 => {}
                ms => tokio::time::sleep(Duration::from_millis(ms as u64)).await,
            }
            Ok(answer)
        })
    }
}

struct Server {
    address: String,
    fake: Arc<Fake>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

async fn serve(change: impl FnOnce(&mut SessionConfig)) -> Server {
    let shutdown = CancellationToken::new();
    let mut config = SessionConfig::new(SERVICE, PeerRole::Om, secret(), Env::system(), shutdown.clone());
    change(&mut config);
    let fake = Arc::new(Fake::default());
    let socket = listener::bind("127.0.0.1:0", false).await.unwrap();
    let address = listener::local_address(&socket).unwrap().to_string();
    let router = channel::server().add_service(service(config, fake.clone()));
    let task = tokio::spawn(listener::serve(socket, router, shutdown.clone()));
    Server { address, fake, shutdown, task }
}

fn client(addresses: &[&str], identity: Identity) -> SessionClient {
    let addresses = addresses.iter().map(|a| (*a).to_owned()).collect();
    SessionClient::connect(SERVICE, addresses, identity, Env::system(), SessionOptions::default()).unwrap()
}

fn gateway() -> Identity {
    Identity::Role(PeerRole::Gateway, secret())
}

fn options(ms: u64) -> CallOptions {
    CallOptions { deadline: Instant::now() + Duration::from_millis(ms), request_id: "req".into(), user: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_at_once_get_their_own_answers() {
    let server = serve(|_| {}).await;
    let session = client(&[&server.address], gateway());
    let calls = (0..2000).map(|i| {
        let session = session.clone();
        async move {
            let mut options = options(10_000);
            options.user = Some("ann".into());
            let answer = session.call(format!("n{i}").into(), &options).await.unwrap();
            assert_eq!(answer, format!("ann|req|n{i}"));
        }
    });
    futures::future::join_all(calls).await;
    session.call("last".into(), &options(10_000)).await.unwrap();
    assert_eq!(server.fake.executed.load(Ordering::SeqCst), 2001);
    assert_eq!(*server.fake.lowest.lock(), 2001, "all before the last were answered");
    let big = Bytes::from(vec![b'x'; 3 << 20]);
    let answer = session.call(big.clone(), &options(10_000)).await.unwrap();
    assert_eq!(answer.len(), big.len() + "|req|".len());
    assert_eq!(session.call(vec![0; 16 << 20].into(), &options(10_000)).await.unwrap_err().code, ErrorCode::TooLarge);
}

/// Forwards bytes between clients and `target` until told to cut all connections.
async fn proxy(target: String) -> (String, Arc<tokio::sync::Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let cut = Arc::new(tokio::sync::Notify::new());
    let stop = cut.clone();
    tokio::spawn(async move {
        loop {
            let (mut inward, _) = listener.accept().await.unwrap();
            let (target, stop) = (target.clone(), stop.clone());
            tokio::spawn(async move {
                let mut outward = TcpStream::connect(target).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut inward, &mut outward) => {}
                    () = stop.notified() => {}
                }
            });
        }
    });
    (address, cut)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_repeat_calls_under_their_numbers() {
    let server = serve(|_| {}).await;
    server.fake.delay_ms.store(30, Ordering::SeqCst);
    let (address, cut) = proxy(server.address.clone()).await;
    let session = client(&[&address], gateway());
    session.call("first".into(), &options(10_000)).await.unwrap();
    for round in 0..5 {
        let calls = futures::future::join_all((0..20).map(|i| {
            let session = session.clone();
            async move { session.call(format!("{round}.{i}").into(), &options(10_000)).await.unwrap() }
        }));
        let (answers, ()) = tokio::join!(calls, async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            cut.notify_waiters();
        });
        assert_eq!(answers.len(), 20);
    }
    assert_eq!(server.fake.executed.load(Ordering::SeqCst), 101, "each call had its effect once");
    assert!(server.fake.repeated.load(Ordering::SeqCst) > 0, "connections were cut while calls were in flight");
}

#[tokio::test]
async fn leaders_are_followed_and_dead_addresses_passed_by() {
    let (follower, leader) = (serve(|_| {}).await, serve(|_| {}).await);
    *follower.fake.leader.lock() = Some(leader.address.clone());
    let session = client(&["127.0.0.1:1", &follower.address], gateway());
    assert_eq!(session.call("x".into(), &options(10_000)).await.unwrap(), "|req|x");
    assert_eq!(leader.fake.executed.load(Ordering::SeqCst), 1);
    // Leadership moves while the stream is open.
    *follower.fake.leader.lock() = None;
    *leader.fake.leader.lock() = Some(follower.address.clone());
    assert_eq!(session.call("y".into(), &options(10_000)).await.unwrap(), "|req|y");
    assert_eq!(follower.fake.executed.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn deadlines_name_the_addresses() {
    let session = client(&["127.0.0.1:1", "127.0.0.1:2"], gateway());
    let started = Instant::now();
    let error = session.call("x".into(), &options(200)).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(error.code, ErrorCode::Unavailable, "it was never sent");
    for part in ["om.Sessions at 127.0.0.1:1, 127.0.0.1:2", "no answer within 0.2 s", "refused"] {
        assert!(error.message.contains(part), "{error}");
    }

    let server = serve(|_| {}).await;
    server.fake.hang.store(true, Ordering::SeqCst);
    let session = client(&[&server.address], gateway());
    let error = session.call("hang".into(), &options(200)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::DeadlineExceeded, "{error}");
    assert_eq!(session.call("x".into(), &options(5_000)).await.unwrap(), "|req|x", "others go on");
}

#[tokio::test]
async fn calls_beyond_the_servers_bound_are_refused() {
    let server = serve(|config| config.calls_max = 4).await;
    server.fake.hang.store(true, Ordering::SeqCst);
    let session = client(&[&server.address], gateway());
    let outcomes = futures::future::join_all((0..6).map(|_| {
        let session = session.clone();
        async move { session.call("hang".into(), &options(500)).await.unwrap_err().code }
    }))
    .await;
    assert_eq!(outcomes.iter().filter(|code| **code == ErrorCode::Overloaded).count(), 2, "{outcomes:?}");
    assert_eq!(session.call("x".into(), &options(5_000)).await.unwrap(), "|req|x", "the hung ones made room");
}

#[tokio::test]
async fn an_unanswered_call_bounds_the_span_of_sequences() {
    let server = serve(|_| {}).await;
    server.fake.hang.store(true, Ordering::SeqCst);
    let options_few = SessionOptions { calls_max: 2, ..SessionOptions::default() };
    let session =
        SessionClient::connect(SERVICE, vec![server.address.clone()], gateway(), Env::system(), options_few).unwrap();
    let hung = tokio::spawn({
        let session = session.clone();
        async move { session.call("hang".into(), &options(1_500)).await }
    });
    while server.fake.executed.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..7 {
        session.call("x".into(), &options(5_000)).await.unwrap();
    }
    assert_eq!(session.call("x".into(), &options(100)).await.unwrap_err().code, ErrorCode::Overloaded);
    session.call("x".into(), &options(5_000)).await.expect("waits until the hung call is given up");
    assert!(hung.await.unwrap().is_err());
}

#[tokio::test]
async fn strangers_are_refused_at_once() {
    let server = serve(|_| {}).await;
    let wrong = ClusterSecret::new(secret().cluster, [8; 32]);
    let other = ClusterSecret::new(ClusterId::from_bytes([2; 16]), [7; 32]);
    for bad in [wrong, other] {
        let session = client(&[&server.address], Identity::Role(PeerRole::Gateway, bad));
        let started = Instant::now();
        let error = session.call("x".into(), &options(30_000)).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Unauthenticated, "{error}");
        assert!(started.elapsed() < Duration::from_secs(5), "it does not wait for the deadline");
    }

    let user = client(&[&server.address], Identity::User("ann".into()));
    assert_eq!(user.call("x".into(), &options(5_000)).await.unwrap(), "ann|req|x");
    let mut as_root = options(5_000);
    as_root.user = Some("root".into());
    assert_eq!(user.call("x".into(), &as_root).await.unwrap_err().code, ErrorCode::PermissionDenied);

    let secure = serve(|config| config.allow_clients = false).await;
    let user = client(&[&secure.address], Identity::User("ann".into()));
    assert_eq!(user.call("x".into(), &options(30_000)).await.unwrap_err().code, ErrorCode::Unauthenticated);
}

#[tokio::test]
async fn an_expired_session_is_begun_anew() {
    let server = serve(|_| {}).await;
    let session = client(&[&server.address], gateway());
    session.call("x".into(), &options(5_000)).await.unwrap();
    let before = session.client_id();
    server.fake.expire.store(10, Ordering::SeqCst);
    let calls = futures::future::join_all((0..10).map(|_| {
        let session = session.clone();
        async move { session.call("y".into(), &options(5_000)).await }
    }))
    .await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert_ne!(session.client_id(), before);
    assert_eq!(server.fake.executed.load(Ordering::SeqCst), 11);
}

#[tokio::test]
async fn shutdown_lets_calls_in_progress_finish() {
    let server = serve(|_| {}).await;
    server.fake.delay_ms.store(200, Ordering::SeqCst);
    let session = client(&[&server.address], gateway());
    let call = tokio::spawn({
        let session = session.clone();
        async move { session.call("x".into(), &options(5_000)).await }
    });
    while server.fake.executed.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.shutdown.cancel();
    assert_eq!(call.await.unwrap().unwrap(), "|req|x");
    let ended = tokio::time::timeout(Duration::from_secs(4), server.task).await;
    ended.expect("the server stops soon").unwrap().unwrap();
    assert_eq!(session.call("y".into(), &options(200)).await.unwrap_err().code, ErrorCode::Unavailable);
}
