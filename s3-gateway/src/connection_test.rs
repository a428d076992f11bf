//! Whole connections: bytes in, bytes out, over a twin of the cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ozone_common::config::TimeSpan;
use ozone_common::env::mem_disk::MemDisk;
use ozone_common::env::{Env, ManualClock, SeededRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::auth::test_signer::{DATE, NOW_MS, SCOPE, authorization, lookup, sha256, sign, signature};
use crate::body::md5;
use crate::config::Config;
use crate::connection;
use crate::gateway::Gateway;
use crate::op::twin::Twin;

const LIMIT: Duration = Duration::from_secs(20);

struct Server {
    address: SocketAddr,
    twin: Twin,
    shutdown: CancellationToken,
    accepting: JoinHandle<()>,
}

impl Server {
    /// A gateway with the bucket `bucket`.
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        let twin = Twin::default();
        twin.state.lock().now_ms = NOW_MS;
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let env = Env { clock, rng: Arc::new(SeededRng::new(1)), disk: Arc::new(MemDisk::default()) };
        let gateway = Gateway::new(twin.clone(), env, config, lookup(), [7; 32]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let accepting = tokio::spawn(connection::accept(listener, gateway, shutdown.clone()));
        let server = Self { address, twin, shutdown, accepting };
        let made = server.connect().await.ask(&call("PUT", "/bucket").bytes()).await;
        assert_eq!(made.status, 200, "{made:?}");
        server
    }

    async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), buffer: Vec::new() }
    }

    fn has(&self, key: &str) -> bool {
        self.twin.state.lock().buckets["bucket"].keys.contains_key(key.as_bytes())
    }

    async fn stop(self) {
        self.shutdown.cancel();
        timeout(LIMIT, self.accepting).await.expect("the server ends").unwrap();
    }
}

/// A request to be, signed when it is written.
#[derive(Clone)]
struct Call {
    method: &'static str,
    uri: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

fn call(method: &'static str, uri: &str) -> Call {
    let headers = [("host", "localhost"), ("x-amz-date", DATE), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Call { method, uri: uri.to_owned(), headers, body: Vec::new() }
}

impl Call {
    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn body(self, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self { body: body.clone(), ..self.header("content-length", &body.len().to_string()) }
    }

    fn signature(&self) -> (String, String) {
        let mut names: Vec<&str> =
            self.headers.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "expect").collect();
        names.sort_unstable();
        let signed = names.join(";");
        let (path, query) = self.uri.split_once('?').unwrap_or((&self.uri, ""));
        let query = if query.is_empty() || query.contains('=') { query.to_owned() } else { format!("{query}=") };
        let signature = signature(self.method, path, &query, &self.headers, &signed);
        (signed, signature)
    }

    fn head_with(&self, authorization: &str) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.uri);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("authorization: {authorization}\r\n\r\n"));
        text.into_bytes()
    }

    fn head(&self) -> Vec<u8> {
        let (signed, signature) = self.signature();
        self.head_with(&authorization(&signed, &signature))
    }

    fn wrong_head(&self) -> Vec<u8> {
        let (signed, _) = self.signature();
        self.head_with(&authorization(&signed, &"0".repeat(64)))
    }

    fn bytes(&self) -> Vec<u8> {
        [self.head(), self.body.clone()].concat()
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    fn check(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.text().contains(&format!("<Code>{code}</Code>")), "{self:?}");
    }
}

struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// More bytes; false at the end.
    async fn more(&mut self) -> bool {
        timeout(LIMIT, self.stream.read_buf(&mut self.buffer)).await.expect("an answer in time").unwrap_or(0) > 0
    }

    async fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = self.buffer.drain(..end + 4).collect();
                return Some(String::from_utf8(head).unwrap());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    async fn answer_to(&mut self, head_only: bool) -> Option<Answer> {
        let head = self.head().await?;
        let mut answer = Answer { status: head[9..12].parse().unwrap(), head, body: Vec::new() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        if !head_only {
            while self.buffer.len() < length {
                assert!(self.more().await, "the body is cut: {answer:?}");
            }
            answer.body = self.buffer.drain(..length).collect();
        }
        Some(answer)
    }

    async fn answer(&mut self) -> Answer {
        self.answer_to(false).await.expect("an answer")
    }

    async fn ask(&mut self, bytes: &[u8]) -> Answer {
        self.send(bytes).await;
        self.answer().await
    }

    async fn is_closed(&mut self) -> bool {
        while self.more().await {}
        true
    }
}

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let server = Server::start(|_| ()).await;
    let mut client = server.connect().await;
    let put = client.ask(&call("PUT", "/bucket/a").body("hello").bytes()).await;
    assert_eq!((put.status, put.header("etag")), (200, Some("\"5d41402abc4b2a76b9719d911017c592\"")));
    assert_eq!(put.header("x-amz-request-id").map(str::len), Some(16));
    assert!(put.header("x-amz-id-2").is_some() && put.header("date").is_some());
    let got = client.ask(&call("GET", "/bucket/a").bytes()).await;
    assert_eq!((got.status, got.text()), (200, "hello"));
    assert_ne!(got.header("x-amz-request-id"), put.header("x-amz-request-id"));

    // All at once, before any answer.
    let calls = [
        call("PUT", "/bucket/b").body("second"),
        call("GET", "/bucket/b"),
        call("DELETE", "/bucket/b"),
        call("GET", "/bucket/b"),
        call("GET", "/bucket/a"),
    ];
    client.send(&calls.map(|call| call.bytes()).concat()).await;
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(client.answer().await.status);
    }
    assert_eq!(statuses, [200, 200, 204, 404, 200]);
    server.stop().await;
}

#[tokio::test]
async fn errors_tell_where_and_what() {
    let server = Server::start(|_| ()).await;
    let mut client = server.connect().await;
    let absent = client.ask(&call("GET", "/bucket/no%20key").bytes()).await;
    absent.check(404, "NoSuchKey");
    assert_eq!(absent.header("content-type"), Some("application/xml"));
    assert!(absent.text().starts_with("<?xml"));
    assert!(absent.text().contains("<Resource>/bucket/no%20key</Resource>"), "{absent:?}");
    let id = absent.header("x-amz-request-id").unwrap();
    assert!(absent.text().contains(&format!("<RequestId>{id}</RequestId>")));

    client.send(&call("HEAD", "/bucket/none").bytes()).await;
    let head = client.answer_to(true).await.unwrap();
    assert_eq!((head.status, client.buffer.len()), (404, 0), "no body");

    client.ask(&call("GET", "/?x").bytes()).await.check(501, "NotImplemented");
    client.ask(&call("DELETE", "/bucket?lifecycle").bytes()).await.check(501, "NotImplemented");
    client.ask(&call("GET", "/Bad_Bucket").bytes()).await.check(400, "InvalidBucketName");
    client.ask(b"GET /bucket HTTP/1.1\r\nhost: localhost\r\n\r\n").await.check(403, "AccessDenied");
    client.ask(b"OPTIONS /bucket HTTP/1.1\r\nhost: localhost\r\n\r\n").await.check(403, "AccessDenied");
    client.ask(&call("PUT", "/bucket/k").bytes()).await.check(411, "MissingContentLength");
    let long = call("GET", "/bucket").header("x-long", &"x".repeat(33_000));
    client.ask(&long.bytes()).await.check(400, "RequestHeaderSectionTooLarge");

    for nonsense in [
        "\r\n\r\n\0",
        "GET\r\n\r\n",
        "GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ] {
        let mut client = server.connect().await;
        let answer = client.ask(nonsense.as_bytes()).await;
        assert_eq!(answer.status, 400, "{nonsense:?}");
        assert!(client.is_closed().await);
    }
    server.stop().await;
}

#[tokio::test]
async fn virtual_hosts_are_buckets() {
    let server = Server::start(|_| ()).await;
    let mut client = server.connect().await;
    let put = call("PUT", "/a//b").header("host", "bucket.localhost:9878").body("x");
    assert_eq!(client.ask(&put.bytes()).await.status, 200);
    assert!(server.has("a//b"));
    let list = client.ask(&call("GET", "/?list-type=2").header("host", "bucket.localhost").bytes()).await;
    assert!(list.text().contains("<Key>a//b</Key>"), "{list:?}");
    server.stop().await;
}

#[tokio::test]
async fn the_host_that_is_signed_is_the_one_that_counts() {
    let server = Server::start(|_| ()).await;
    let mut client = server.connect().await;
    // The signature holds the path and `Host`, not the authority of a target in absolute form (RFC 9112 §3.2.2).
    let absolute = |authority: &str, call: Call| {
        let text = String::from_utf8(call.bytes()).unwrap();
        text.replacen(" /", &format!(" http://{authority}/"), 1).into_bytes()
    };
    let put = || call("PUT", "/upload/x").body("x");
    for authority in ["bucket.localhost", "localhost:9878", "user@localhost", "localhost.bucket"] {
        client.ask(&absolute(authority, put())).await.check(400, "InvalidRequest");
    }
    assert!(!server.has("upload/x"));
    let twice = String::from_utf8(call("GET", "/bucket").bytes()).unwrap();
    let twice = twice.replacen("host: localhost\r\n", "host: localhost\r\nhost: bucket.localhost\r\n", 1);
    client.ask(twice.as_bytes()).await.check(400, "InvalidRequest");
    for (host, uri) in [("localhost", "/bucket/k"), ("Bucket.LocalHost:9878", "/k")] {
        let put = call("PUT", uri).header("host", host).body("x");
        assert_eq!(client.ask(&absolute(&host.to_ascii_lowercase(), put)).await.status, 200, "{host}");
    }
    assert!(server.has("k"));
    server.stop().await;
}

#[tokio::test]
async fn who_waits_for_continue_is_refused_before_it() {
    let server = Server::start(|_| ()).await;
    let mut client = server.connect().await;
    let put = call("PUT", "/bucket/k").body("hello").header("expect", "100-continue");
    let refused = client.ask(&put.wrong_head()).await;
    refused.check(403, "SignatureDoesNotMatch");
    let mut client = server.connect().await;
    client.send(&put.head()).await;
    assert!(client.head().await.unwrap().starts_with("HTTP/1.1 100"));
    assert_eq!(client.ask(b"hello").await.status, 200);
    assert!(server.has("k"));
    server.stop().await;
}

#[tokio::test]
async fn a_refusal_is_seen_in_the_middle_of_a_body() {
    let server = Server::start(|_| ()).await;
    let mut client = server.connect().await;
    let body = vec![b'x'; 20 << 20];
    let put = call("PUT", "/bucket/k").body(body.clone());
    client.send(&put.wrong_head()).await;
    client.send(&body).await;
    client.answer().await.check(403, "SignatureDoesNotMatch");
    // The rest was read, so the connection is of use.
    assert_eq!(client.ask(&call("HEAD", "/bucket").bytes()).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn nothing_is_stored_of_a_body_that_is_not_what_it_says() {
    let server = Server::start(|_| ()).await;
    let streaming = |uri: &str, kind: &str, trailer: &str| {
        call("PUT", uri)
            .header("x-amz-content-sha256", kind)
            .header("x-amz-decoded-content-length", "11")
            .header("content-encoding", "aws-chunked")
            .header("x-amz-trailer", trailer)
    };
    let unsigned = |value: &str| {
        let body = format!("b\r\nhello world\r\n0\r\nx-amz-checksum-crc32:{value}\r\n\r\n");
        streaming("/bucket/t", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-checksum-crc32").body(body)
    };
    let signed = |tamper: bool| {
        let call = streaming("/bucket/t", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", "x-amz-checksum-crc32");
        let length = "b;chunk-signature=\r\nhello world\r\n0;chunk-signature=\r\nx-amz-checksum-crc32:DUoRhQ==\r\nx-amz-trailer-signature:\r\n\r\n".len() + 3 * 64;
        let call = call.header("content-length", &length.to_string());
        let head = format!("{DATE}\n{SCOPE}\n");
        let mut previous = call.signature().1;
        let mut body = Vec::new();
        for chunk in ["hello world", ""] {
            previous = sign(&format!(
                "AWS4-HMAC-SHA256-PAYLOAD\n{head}{previous}\n{}\n{}",
                sha256(b""),
                sha256(chunk.as_bytes())
            ));
            let chunk = if tamper { chunk.replace('w', "W") } else { chunk.to_owned() };
            let end = if chunk.is_empty() { "" } else { "\r\n" };
            body.extend_from_slice(format!("{:x};chunk-signature={previous}\r\n{chunk}{end}", chunk.len()).as_bytes());
        }
        let trailer = "x-amz-checksum-crc32:DUoRhQ==";
        previous =
            sign(&format!("AWS4-HMAC-SHA256-TRAILER\n{head}{previous}\n{}", sha256(format!("{trailer}\n").as_bytes())));
        body.extend_from_slice(format!("{trailer}\r\nx-amz-trailer-signature:{previous}\r\n\r\n").as_bytes());
        assert_eq!(body.len(), length);
        Call { body, ..call }
    };
    let plain = call("PUT", "/bucket/t").body("hello world");
    for (call, code) in [
        (unsigned("DUoRhA=="), "BadDigest"),
        (signed(true), "SignatureDoesNotMatch"),
        (plain.clone().header("x-amz-content-sha256", &sha256(b"other")), "XAmzContentSHA256Mismatch"),
        (plain.clone().header("content-md5", "XrY7u+Ae7tCTyyK7j1rNwQ=="), "BadDigest"),
        (plain.clone().header("x-amz-checksum-sha1", "Kq5sNclPz7QV2+lfQIuc6R7oRuA="), "BadDigest"),
    ] {
        let mut client = server.connect().await;
        let answer = client.ask(&call.bytes()).await;
        answer.check(if code == "SignatureDoesNotMatch" { 403 } else { 400 }, code);
        assert!(!server.has("t"), "{code}");
    }
    // A connection that breaks in the middle.
    let mut client = server.connect().await;
    client.send(&[plain.head(), b"hello".to_vec()].concat()).await;
    drop(client);
    for call in [unsigned("DUoRhQ=="), signed(false), plain.header("x-amz-content-sha256", &sha256(b"hello world"))] {
        let mut client = server.connect().await;
        assert!(!server.has("t"));
        let put = client.ask(&call.bytes()).await;
        assert_eq!(put.status, 200, "{put:?}");
        let got = client.ask(&crate::connection_test::call("GET", "/bucket/t").bytes()).await;
        assert_eq!((got.text(), got.header("content-encoding")), ("hello world", None));
        assert_eq!(client.ask(&crate::connection_test::call("DELETE", "/bucket/t").bytes()).await.status, 204);
    }
    server.stop().await;
}

#[tokio::test]
async fn bodies_may_come_in_chunks_of_http() {
    let server = Server::start(|_| ()).await;
    let put = call("PUT", "/bucket/k").header("transfer-encoding", "chunked");
    let mut client = server.connect().await;
    client.send(&[put.head(), b"5\r\nhello\r\n".to_vec()].concat()).await;
    drop(client);
    let mut client = server.connect().await;
    client.send(&[put.head(), b"5\r\nhello\r\n5x\r\n".to_vec()].concat()).await;
    client.answer().await.check(400, "IncompleteBody");
    assert!(!server.has("k"));
    let mut client = server.connect().await;
    let bytes = [put.head(), b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n".to_vec()].concat();
    assert_eq!(client.ask(&bytes).await.status, 200);
    assert_eq!(client.ask(&call("GET", "/bucket/k").bytes()).await.text(), "hello world");
    server.stop().await;
}

#[tokio::test]
async fn clients_that_keep_silent_are_not_waited_for() {
    let server = Server::start(|config| {
        config.head_timeout = TimeSpan::millis(300);
        config.body_timeout = TimeSpan::millis(300);
    })
    .await;
    let begun = Instant::now();
    let mut client = server.connect().await;
    client.send(b"GET / HTTP/1.1\r\nhost:").await;
    assert!(client.is_closed().await, "in the middle of a head");
    let mut client = server.connect().await;
    assert_eq!(client.ask(&call("HEAD", "/bucket").bytes()).await.status, 200);
    assert!(client.is_closed().await, "between requests");
    let mut client = server.connect().await;
    let put = call("PUT", "/bucket/k").body("hello");
    client.send(&[put.head(), b"hel".to_vec()].concat()).await;
    client.answer().await.check(400, "RequestTimeout");
    assert!(!server.has("k"));

    // One who takes nothing of what it asked for: more than the buffers of both sides hold.
    let big = vec![b'x'; 16 << 20];
    let mut client = server.connect().await;
    assert_eq!(client.ask(&call("PUT", "/bucket/big").body(big.clone()).bytes()).await.status, 200);
    client.send(&call("GET", "/bucket/big").bytes()).await;
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let mut got = 0;
    while client.more().await {
        got += std::mem::take(&mut client.buffer).len();
    }
    assert!(got < big.len(), "the connection ended before all was sent");
    assert!(begun.elapsed() < LIMIT);
    server.stop().await;
}

#[tokio::test]
async fn bodies_may_come_more_slowly_than_an_operation_may_take() {
    let server = Server::start(|config| config.request_timeout = TimeSpan::millis(200)).await;
    let mut client = server.connect().await;
    let begun = client.ask(&call("POST", "/bucket/parts?uploads").body("").bytes()).await;
    let upload = begun.text().split(['<', '>']).skip_while(|part| *part != "UploadId").nth(1).unwrap().to_owned();
    let part = call("PUT", &format!("/bucket/parts?partNumber=1&uploadId={upload}")).body("hello");
    let etag = client.ask(&part.bytes()).await.header("etag").unwrap().to_owned();
    let list = format!("<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>");
    let list = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    let keys = "<Delete><Object><Key>k</Key></Object></Delete>";
    let md5 = STANDARD.encode(md5(keys.as_bytes()));
    for call in [
        call("PUT", "/bucket/k").body("hello"),
        call("POST", &format!("/bucket/parts?uploadId={upload}")).body(list),
        call("POST", "/bucket?delete").body(keys).header("content-md5", &md5),
        call("PUT", "/new-bucket").body("<CreateBucketConfiguration></CreateBucketConfiguration>"),
    ] {
        let (first, rest) = call.body.split_at(3);
        client.send(&[&call.head(), first].concat()).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        client.send(rest).await;
        let answer = client.answer().await;
        assert_eq!(answer.status, 200, "{} {}: {answer:?}", call.method, call.uri);
    }
    assert!(server.has("parts") && !server.has("k"));
    server.stop().await;
}

#[tokio::test]
async fn connections_have_a_bound() {
    let server = Server::start(|config| config.connections_max = 1).await;
    let mut first = server.connect().await;
    assert_eq!(first.ask(&call("HEAD", "/bucket").bytes()).await.status, 200);
    let mut second = server.connect().await;
    second.send(&call("HEAD", "/bucket").bytes()).await;
    assert!(timeout(Duration::from_millis(200), second.stream.readable()).await.is_err(), "it waits");
    drop(first);
    assert_eq!(second.answer_to(true).await.unwrap().status, 200);
    drop(second);
    server.stop().await;
}

#[tokio::test]
async fn a_stop_lets_requests_end() {
    let server = Server::start(|_| ()).await;
    let mut idle = server.connect().await;
    assert_eq!(idle.ask(&call("HEAD", "/bucket").bytes()).await.status, 200);
    let mut busy = server.connect().await;
    let put = call("PUT", "/bucket/k").body("hello").header("expect", "100-continue");
    busy.send(&put.head()).await;
    assert!(busy.head().await.unwrap().starts_with("HTTP/1.1 100"));
    server.shutdown.cancel();
    assert!(idle.is_closed().await);
    assert_eq!(busy.ask(b"hello").await.status, 200);
    assert!(server.has("k"));
    assert!(busy.is_closed().await);
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody is let in any more");
    server.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let server = Server::start(|config| config.drain_timeout = TimeSpan::millis(100)).await;
    let mut client = server.connect().await;
    let put = call("PUT", "/bucket/k").body("hello").header("expect", "100-continue");
    client.send(&put.head()).await;
    assert!(client.head().await.unwrap().starts_with("HTTP/1.1 100"));
    server.stop().await;
    assert!(client.is_closed().await);
}
