//! What operations answer with.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http_body::{Frame, SizeHint};
use ozone_common::Error;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::error::{S3Error, S3Result};
use crate::memory::Reservation;

const XML: HeaderValue = HeaderValue::from_static("application/xml");
/// How long an answer that may take long is waited for before its status goes out,
const PATIENCE: Duration = Duration::from_secs(5);
/// and how often white space follows, so that nobody takes the connection for dead.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Status, headers and body of an answer. The server adds request ids, date and length.
pub(crate) struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Payload,
}

impl Response {
    /// An answer without a body.
    pub fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::with_capacity(16), body: Payload::Empty }
    }

    /// 200 without a body.
    pub fn ok() -> Self {
        Self::new(StatusCode::OK)
    }

    /// 204.
    pub fn no_content() -> Self {
        Self::new(StatusCode::NO_CONTENT)
    }

    /// 200 with a document.
    pub fn xml(document: Bytes) -> Self {
        let mut response = Self::ok();
        response.headers.insert(header::CONTENT_TYPE, XML);
        response.body = Payload::Whole(document);
        response
    }

    /// The same with a header.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The same with a header whose value is `text`.
    ///
    /// # Errors
    /// `InternalError` where it holds control characters, which no request could have brought.
    pub fn text(self, name: HeaderName, text: &str) -> S3Result<Self> {
        let value =
            HeaderValue::from_str(text).or_else(|_| HeaderValue::from_bytes(text.as_bytes())).map_err(|_| {
                S3Error::from(Error::internal(format!("the value of header {name} holds control characters")))
            })?;
        Ok(self.header(name, value))
    }

    /// The same with a header whose value is a number.
    pub fn number(self, name: HeaderName, number: u64) -> Self {
        self.header(name, HeaderValue::from(number))
    }

    /// The same with bytes at hand as its body.
    pub fn bytes(mut self, bytes: Bytes) -> Self {
        self.body = Payload::Whole(bytes);
        self
    }

    /// The same with a body that begins with `first` and goes on with what `rest` gives. The reservation of memory is given back
    /// when all has gone out.
    pub fn stream(mut self, first: Bytes, rest: Box<dyn Pieces>, reservation: Reservation) -> Self {
        self.body = Payload::Pieces { first, rest, _reservation: reservation };
        self
    }

    /// The outcome of work of the request `id` that may take long. Where it has not ended within seconds, 200 goes out, then white space now and then, and at
    /// the end the document of the outcome, be it an error (S3 API Reference, "CompleteMultipartUpload"). Documents must begin
    /// with [`crate::xml::document`]'s declaration, which goes out first.
    ///
    /// # Errors
    /// Those of the work, where it ends soon.
    pub async fn eventually(id: Arc<str>, mut work: BoxFuture<'static, S3Result<Self>>) -> S3Result<Self> {
        if let Ok(outcome) = tokio::time::timeout(PATIENCE, &mut work).await {
            return outcome;
        }
        let mut ticks = interval(SIGN_OF_LIFE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut response = Self::ok();
        response.headers.insert(header::CONTENT_TYPE, XML);
        response.body = Payload::Later { id, work, ticks: Box::new(ticks), declared: false };
        Ok(response)
    }
}

/// Bytes that come piece by piece, such as those of a key.
pub(crate) trait Pieces: Send {
    /// The next bytes, never none; `None` behind the last.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>>;
    /// Bytes still to come.
    fn remaining(&self) -> u64;
}

/// The body of an answer.
pub(crate) enum Payload {
    /// Nothing.
    Empty,
    /// Bytes at hand.
    Whole(Bytes),
    /// Bytes that come as they are read.
    Pieces { first: Bytes, rest: Box<dyn Pieces>, _reservation: Reservation },
    /// See [`Response::eventually`].
    Later { id: Arc<str>, work: BoxFuture<'static, S3Result<Response>>, ticks: Box<Interval>, declared: bool },
}

impl http_body::Body for Payload {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let frame = |bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        match this {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = Self::Empty;
                if bytes.is_empty() { Poll::Ready(None) } else { frame(bytes) }
            }
            Self::Pieces { first, .. } if !first.is_empty() => frame(std::mem::take(first)),
            Self::Pieces { rest, .. } => match rest.poll_next(cx) {
                Poll::Ready(Ok(Some(bytes))) => frame(bytes),
                Poll::Ready(Ok(None)) => {
                    *this = Self::Empty;
                    Poll::Ready(None)
                }
                // The connection breaks: the client must not take what came for the whole.
                Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
                Poll::Pending => Poll::Pending,
            },
            Self::Later { id, work, ticks, declared } => {
                if !*declared {
                    *declared = true;
                    return frame(Bytes::from_static(crate::xml::DECLARATION.as_bytes()));
                }
                if let Poll::Ready(outcome) = work.poll_unpin(cx) {
                    let last = last_words(outcome, id);
                    *this = Self::Empty;
                    return frame(last);
                }
                match ticks.poll_tick(cx) {
                    Poll::Ready(_) => frame(Bytes::from_static(b" ")),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces { first, rest, .. } => SizeHint::with_exact(first.len() as u64 + rest.remaining()),
            Self::Later { .. } => SizeHint::default(),
        }
    }
}

/// The document of an outcome whose status has gone out already.
fn last_words(outcome: S3Result<Response>, id: &str) -> Bytes {
    let document = match outcome {
        Ok(Response { body: Payload::Whole(document), .. }) => document,
        Ok(_) => Bytes::new(),
        Err(error) => {
            error.log(id);
            error.document("", id)
        }
    };
    match document.strip_prefix(crate::xml::DECLARATION.as_bytes()) {
        Some(rest) => document.slice_ref(rest),
        None => document,
    }
}
