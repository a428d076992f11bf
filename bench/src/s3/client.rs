//! One connection to an S3 endpoint.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use ozone_common::env::{Clock, SystemClock};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::sign::{Signed, Signer, UNSIGNED, escape, sha256_hex};
use crate::ockg::TIMEOUT;

/// LIMIT: bytes kept of an answer that is looked at as a whole (a page of 1,000 keys has about 400 KiB).
const ANSWER_MAX: usize = 8 << 20;
/// Bytes a second that a gateway takes in at least.
const SLOWEST: u64 = 1 << 20;
/// Bytes kept of an error's body.
const ERROR_MAX: usize = 1000;

/// Where the gateway is.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `host:port`.
    authority: Arc<str>,
}

impl Endpoint {
    /// Takes `http://host:port`.
    ///
    /// # Errors
    /// Another scheme, a path, or no host.
    pub fn parse(text: &str) -> Result<Self> {
        let Some(rest) = text.strip_prefix("http://") else {
            bail!("`{text}`: an endpoint such as http://127.0.0.1:9878 is wanted (TLS is not spoken here)");
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
            bail!("`{text}`: an endpoint such as http://127.0.0.1:9878 is wanted");
        }
        let port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if port { authority.into() } else { format!("{authority}:80").into() };
        Ok(Self { authority })
    }
}

/// Who signs.
#[derive(Clone, Debug)]
pub struct Account {
    /// The public half.
    pub access_key: String,
    /// The secret half.
    pub secret_key: String,
    /// For which region.
    pub region: String,
    /// Whether bodies are hashed and their hash signed.
    pub sign_payload: bool,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Its verb.
    pub method: Method,
    /// The bucket.
    pub bucket: &'a str,
    /// The key; empty for the bucket itself.
    pub key: &'a [u8],
    /// Names and values, in the order of names.
    pub query: &'a [(&'a str, &'a str)],
    /// Further headers, names in lower case.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body.
    pub body: Pieces,
}

/// A body in pieces, of known length.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    pieces: VecDeque<Bytes>,
    left: u64,
}

impl Pieces {
    fn sha256(&self) -> String {
        sha256_hex(self.pieces.iter().map(|piece| &piece[..]))
    }
}

impl FromIterator<Bytes> for Pieces {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let pieces: VecDeque<Bytes> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces, left }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        self.left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// An answer whose status was asked for. Its body must be taken to its end before the next request.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// What `content-length` says.
    pub length: Option<u64>,
    body: Incoming,
}

impl Answer {
    /// The next bytes of the body.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = in_time(0, self.body.frame()).await? {
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// The whole body.
    ///
    /// # Errors
    /// The connection broke; the body is too long to be looked at.
    pub async fn text(mut self) -> Result<Bytes> {
        let mut whole = BytesMut::new();
        while let Some(bytes) = self.next().await? {
            if whole.len() + bytes.len() > ANSWER_MAX {
                bail!("an answer of more than {ANSWER_MAX} bytes");
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(whole.freeze())
    }

    /// Reads the body and forgets it.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn drain(mut self) -> Result<()> {
        while self.next().await?.is_some() {}
        Ok(())
    }
}

/// Waits for the gateway, which takes in `sent` bytes meanwhile. Every single wait is bounded, so that a load ends.
async fn in_time<T>(sent: u64, wait: impl Future<Output = T>) -> Result<T> {
    let limit = TIMEOUT + Duration::from_secs(sent / SLOWEST);
    timeout(limit, wait).await.with_context(|| format!("nothing came from the gateway in {} s", limit.as_secs()))
}

/// A connection, made when it is needed and again after it broke.
pub struct Connection {
    endpoint: Endpoint,
    signer: Signer,
    sign_payload: bool,
    sender: Option<SendRequest<Pieces>>,
}

impl Connection {
    /// Makes one; nothing is sent.
    pub fn new(endpoint: &Endpoint, account: &Account) -> Self {
        let signer = Signer::new(&account.access_key, &account.secret_key, &account.region);
        Self { endpoint: endpoint.clone(), signer, sign_payload: account.sign_payload, sender: None }
    }

    /// Sends a request and waits for the head of the answer, whose status must be one of `wanted`.
    ///
    /// # Errors
    /// The connection broke, or the status is another: the message has the answer's beginning.
    pub async fn send(&mut self, request: Request<'_>, wanted: &[StatusCode]) -> Result<Answer> {
        let request = self.build(request)?;
        let mut sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => self.connect().await?,
        };
        let length = request.body().size_hint().lower();
        sender.ready().await.context("the gateway closed the connection")?;
        let response = in_time(length, sender.send_request(request)).await??;
        // Kept from here on only: a request that failed may leave half an answer on the wire.
        self.sender = Some(sender);
        let (status, headers) = (response.status(), response.headers());
        let length = headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
        let answer = Answer { status, length, body: response.into_body() };
        if wanted.contains(&status) {
            return Ok(answer);
        }
        let body = answer.text().await?;
        let beginning = String::from_utf8_lossy(&body[..body.len().min(ERROR_MAX)]).into_owned();
        bail!("status {}: {beginning}", status.as_u16());
    }

    async fn connect(&self) -> Result<SendRequest<Pieces>> {
        let authority = &*self.endpoint.authority;
        let stream =
            in_time(0, TcpStream::connect(authority)).await?.with_context(|| format!("cannot reach {authority}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends with the connection; what breaks it is told to the sender.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn build(&mut self, request: Request<'_>) -> Result<hyper::Request<Pieces>> {
        let mut path = format!("/{}", request.bucket);
        if !request.key.is_empty() {
            path.push('/');
            path.push_str(&escape(request.key, true));
        }
        let query: Vec<String> = request
            .query
            .iter()
            .map(|(name, value)| format!("{}={}", escape(name.as_bytes(), false), escape(value.as_bytes(), false)))
            .collect();
        let query = query.join("&");
        let payload = if self.sign_payload { request.body.sha256() } else { UNSIGNED.to_owned() };
        let host = &*self.endpoint.authority;
        let signed = Signed {
            method: &request.method,
            host,
            path: &path,
            query: &query,
            payload: &payload,
            headers: request.headers,
        };
        let headers = self.signer.sign(&signed, SystemClock.now_ms());
        if !query.is_empty() {
            path.push('?');
            path.push_str(&query);
        }
        let mut builder = hyper::Request::builder()
            .method(request.method)
            .uri(path)
            .header("host", host)
            .header("x-amz-content-sha256", payload)
            .header("x-amz-date", headers.date)
            .header("authorization", headers.authorization);
        for (name, value) in request.headers {
            builder = builder.header(*name, *value);
        }
        Ok(builder.body(request.body)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        assert_eq!(&*Endpoint::parse("http://127.0.0.1:9878/").unwrap().authority, "127.0.0.1:9878");
        assert_eq!(&*Endpoint::parse("http://localhost").unwrap().authority, "localhost:80");
        for wrong in ["https://x", "127.0.0.1:9878", "http://", "http://a/b", "http://u@a:1"] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn requests_carry_their_length_and_escape_names() {
        let account =
            Account { access_key: "a".into(), secret_key: "s".into(), region: "r".into(), sign_payload: true };
        let mut connection = Connection::new(&Endpoint::parse("http://h:1").unwrap(), &account);
        let body: Pieces = [Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"c")].into_iter().collect();
        let request = Request {
            method: Method::PUT,
            bucket: "buck",
            key: b"a b/\xff",
            query: &[("partNumber", "1"), ("uploadId", "x/y")],
            headers: &[("x-test", "1")],
            body,
        };
        let built = connection.build(request).unwrap();
        assert_eq!(built.uri(), "/buck/a%20b/%FF?partNumber=1&uploadId=x%2Fy");
        assert_eq!(built.body().size_hint().exact(), Some(3));
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(built.headers()["x-amz-content-sha256"], sha256);
        assert_eq!(built.headers()["x-test"], "1");
    }
}
