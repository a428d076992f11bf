//! Requests against the operations, from router to answer, over the cluster in memory.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use ozone_common::Error;
use ozone_common::env::mem_disk::MemDisk;
use ozone_common::env::{Env, ManualClock, SeededRng};

use super::twin::Twin;
use super::{Request, serve};
use crate::auth::Verified;
use crate::body::{Body, Claims, ContentHash, HashHeader};
use crate::config::Config;
use crate::error::S3Result;
use crate::gateway::Gateway;
use crate::response::Response;
use crate::route::{self, Query, Target};
use crate::xml::parse;

/// UTC at the beginning of a test: Sun, 06 Nov 1994 08:49:37 GMT.
pub(super) const NOW_MS: u64 = 784_111_777_000;

/// A gateway over a cluster in memory, with the bucket `bucket` in it.
pub(super) struct Fixture {
    pub gateway: Arc<Gateway<Twin>>,
    pub twin: Twin,
}

/// A request to be.
pub(super) struct Call {
    method: Method,
    uri: String,
    headers: HeaderMap,
    body: Vec<Bytes>,
    user: &'static str,
}

pub(super) fn call(method: &str, uri: impl Into<String>) -> Call {
    Call {
        method: method.parse().unwrap(),
        uri: uri.into(),
        headers: HeaderMap::new(),
        body: Vec::new(),
        user: "alice",
    }
}

impl Call {
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        self.headers.append(name, HeaderValue::from_bytes(value.as_ref()).unwrap());
        self
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = vec![body.into()];
        self
    }

    /// A body in pieces of `piece` bytes.
    pub fn pieces(mut self, body: &Bytes, piece: usize) -> Self {
        self.body = (0..body.len()).step_by(piece).map(|at| body.slice(at..body.len().min(at + piece))).collect();
        self
    }

    pub fn user(mut self, user: &'static str) -> Self {
        self.user = user;
        self
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: u16,
    /// Of an error.
    pub code: &'static str,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The body broke off.
    pub broken: Option<Error>,
}

impl Answer {
    #[track_caller]
    pub fn is(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status, self.code), (status, code), "{self:?}");
        self
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        self.is(200, "")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn etag(&self) -> String {
        self.header("etag").unwrap().to_owned()
    }

    /// The texts of all elements of a name, wherever they stand.
    pub fn all(&self, root: &str, name: &str) -> Vec<String> {
        fn walk(element: &crate::xml::Element<'_>, name: &str, out: &mut Vec<String>) {
            if element.name() == name {
                out.push(element.text().to_owned());
            }
            for child in element.children() {
                walk(child, name, out);
            }
        }
        let tree = parse(&self.body, root).unwrap();
        let mut out = Vec::new();
        walk(&tree, name, &mut out);
        out
    }

    /// The text of the only element of a name.
    #[track_caller]
    pub fn one(&self, root: &str, name: &str) -> String {
        let found = self.all(root, name);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found.into_iter().next().unwrap()
    }
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with(|_| ()).await
    }

    /// One with settings of its own.
    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let twin = Twin::default();
        twin.state.lock().now_ms = NOW_MS;
        let env = Env { clock, rng: Arc::new(SeededRng::new(1)), disk: Arc::new(MemDisk::default()) };
        let lookup = Box::new(|_| async { Err(Error::internal("no secrets here")) }.boxed());
        let gateway = Gateway::new(twin.clone(), env, config, lookup, [7; 32]);
        let fixture = Self { gateway, twin };
        fixture.send(call("PUT", "/bucket")).await.ok();
        fixture
    }

    async fn try_send(&self, call: Call) -> S3Result<Response> {
        let Call { method, uri, mut headers, body, user } = call;
        let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
        let query = Query::parse(query)?;
        let target = Target::parse(path, None)?;
        let op = route::find(&method, target.scope(), &query, headers.contains_key("x-amz-copy-source"))?;
        let length = body.iter().map(Bytes::len).sum::<usize>();
        if !headers.contains_key("transfer-encoding") {
            headers.entry("content-length").or_insert(HeaderValue::from(length));
        }
        let hash = HashHeader { hash: ContentHash::Unsigned, signed_chunks: false };
        let claims = Claims::read(&headers, hash, None, op.checks_body())?;
        let request = Request {
            identity: Verified::for_tests(user),
            id: "ID".into(),
            op,
            target,
            query,
            headers,
            body: Body::of_pieces(body, claims),
        };
        serve(&self.gateway, request).await
    }

    pub async fn send(&self, call: Call) -> Answer {
        match self.try_send(call).await {
            Ok(Response { status, headers, mut body }) => {
                let mut bytes = BytesMut::new();
                let mut broken = None;
                while let Some(frame) = body.frame().await {
                    match frame {
                        Ok(frame) => bytes.extend_from_slice(&frame.into_data().unwrap()),
                        Err(error) => {
                            broken = Some(error);
                            break;
                        }
                    }
                }
                Answer { status: status.as_u16(), code: "", headers, body: bytes.freeze(), broken }
            }
            Err(error) => {
                let headers = error.headers.iter().cloned().collect();
                let status: StatusCode = error.code.status();
                let body = error.document("", "ID");
                Answer { status: status.as_u16(), code: error.code.name(), headers, body, broken: None }
            }
        }
    }

    pub async fn put(&self, key: &str, body: impl Into<Bytes>) -> Answer {
        self.send(call("PUT", format!("/bucket/{key}")).body(body)).await.ok()
    }

    pub async fn get(&self, key: &str) -> Answer {
        self.send(call("GET", format!("/bucket/{key}"))).await
    }

    /// What no failed request may change.
    pub fn key_count(&self) -> usize {
        self.twin.state.lock().buckets["bucket"].keys.len()
    }
}
