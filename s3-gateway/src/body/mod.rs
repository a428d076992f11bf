//! A request's body: decoded, counted, hashed, and verified before its end is told.
//!
//! ```text
//!   network ──▶ aws-chunked decoder (signatures, trailers) ──▶ hashes of what comes out ──▶ the operation
//!                                                                └─ at the end: length, Content-MD5, SHA-256, checksum
//! ```
//! The promise that operations rest on: [`Body::next`] gives `None` only once everything that the request says about its body holds.
//! An operation that commits after that, and only then, makes nothing visible that was not verified.

#[cfg(test)]
mod body_test;
mod checksum;
mod chunked;
#[cfg(test)]
mod chunked_test;
mod claims;
mod digest;

pub(crate) use checksum::{Algorithm, Checksum, Hasher};
pub(crate) use chunked::{ChunkSigner, EMPTY_SHA256};
pub(crate) use claims::{CONTENT_SHA256, Claims, ContentHash, HashHeader};
pub(crate) use digest::{Digester, Digests, Wanted, md5};

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio_util::task::TaskTracker;

use self::chunked::{ChunkError, Decoder};
use crate::error::{S3Code, S3Error, S3Result};

enum Source {
    Network(Arriving),
    #[cfg(test)]
    Pieces(std::collections::VecDeque<Bytes>),
}

// LIMIT: bytes and time that a body which nobody wants may take.
const DRAIN_MAX: usize = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(10);

enum State {
    Reading,
    Done(Digests),
    Failed(S3Error),
}

/// A body on its way.
pub(crate) struct Body {
    source: Source,
    // Boxed is what most requests have not: the state of a request is moved around.
    decoder: Option<Box<Decoder>>,
    input: Bytes,
    claims: Claims,
    /// What [`Body::digester`] is made to compute, once the first byte comes.
    wanted: Wanted,
    digester: Option<Box<Digester>>,
    state: State,
    /// How long the client may be silent.
    patience: Duration,
}

/// A body that comes over the network. Where it is dropped before its end, the rest is read on by a [`Drain`].
pub(crate) struct Arriving {
    incoming: Option<Incoming>,
    drain: Drain,
    /// Whether the client sends it by now: who waits for "100 Continue" does so once it is read from, and must not be asked to by a drain.
    coming: bool,
}

impl Arriving {
    /// A body that nobody has read yet, of a request with these headers.
    pub fn new(incoming: Incoming, headers: &HeaderMap, drain: Drain) -> Self {
        let incoming = Some(incoming).filter(|incoming| !incoming.is_end_stream());
        Self { incoming, drain, coming: !headers.contains_key(header::EXPECT) }
    }

    async fn receive(&mut self, patience: Duration) -> S3Result<Option<Bytes>> {
        let Some(incoming) = &mut self.incoming else { return Ok(None) };
        self.coming = true;
        let outcome = receive(incoming, patience).await;
        // Of a client that fell silent, or of a connection that broke, there is no rest to wait for.
        if !matches!(outcome, Ok(Some(_))) {
            self.incoming = None;
        }
        outcome
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take()
            && self.coming
        {
            self.drain.rest_of(incoming);
        }
    }
}

/// Reads bodies to their end that nobody wants any more: a client that is still sending would not see the answer otherwise.
#[derive(Clone, Default)]
pub(crate) struct Drain {
    tasks: TaskTracker,
}

impl Drain {
    fn rest_of(&self, mut incoming: Incoming) {
        self.tasks.spawn(async move {
            let mut left = DRAIN_MAX;
            let _ = tokio::time::timeout(DRAIN_TIME, async {
                while let Ok(Some(bytes)) = receive(&mut incoming, DRAIN_TIME).await
                    && left > bytes.len()
                {
                    left -= bytes.len();
                }
            })
            .await; // Whoever sends more than that, or more slowly, finds the connection closed.
        });
    }

    /// Returns once no body is read any more.
    pub async fn join(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Body {
    /// A body that comes over the network, from a client that may be silent for as long as `patience`.
    pub fn arriving(arriving: Arriving, claims: Claims, patience: Duration) -> Self {
        Self::new(Source::Network(arriving), claims, patience)
    }

    /// A body of pieces at hand.
    #[cfg(test)]
    pub fn of_pieces(pieces: impl IntoIterator<Item = Bytes>, claims: Claims) -> Self {
        Self::new(Source::Pieces(pieces.into_iter().collect()), claims, Duration::from_secs(1))
    }

    fn new(source: Source, mut claims: Claims, patience: Duration) -> Self {
        let decoder = match claims.hash {
            ContentHash::Unsigned | ContentHash::Sha256(_) => None,
            ContentHash::Chunks { trailing } => {
                let signer = claims.signer.take().map(|signer| *signer);
                Some(Box::new(Decoder::new(claims.length.unwrap_or(0), signer, trailing)))
            }
        };
        Self {
            source,
            decoder,
            input: Bytes::new(),
            wanted: Wanted {
                md5: claims.md5.is_some(),
                sha256: matches!(claims.hash, ContentHash::Sha256(_)),
                named: claims.algorithm(),
                kept: None,
            },
            digester: None,
            claims,
            state: State::Reading,
            patience,
        }
    }

    /// Payload bytes, as announced; `None` where the client did not say.
    pub fn length(&self) -> Option<u64> {
        self.claims.length
    }

    /// Payload bytes, for operations that store them; `None` where they come in chunks of HTTP's own, which says where they end.
    ///
    /// # Errors
    /// `MissingContentLength` where the client says neither.
    pub fn require_length(&self) -> S3Result<Option<u64>> {
        let comes = match &self.source {
            Source::Network(arriving) => arriving.incoming.is_some(),
            #[cfg(test)]
            Source::Pieces(pieces) => !pieces.is_empty(),
        };
        match self.claims.length {
            None if !comes => Err(S3Code::MissingContentLength.into()),
            length => Ok(length),
        }
    }

    /// The kind of checksum that the client sends, in a header or a trailer.
    pub fn announced_checksum(&self) -> Option<Algorithm> {
        self.claims.algorithm()
    }

    /// Asks for the MD5 of the payload and for a checksum to keep. To be called before the first [`Body::next`].
    pub fn want(&mut self, kept: Algorithm) {
        debug_assert!(self.digester.is_none(), "bytes were hashed already");
        self.wanted.md5 = true;
        self.wanted.kept = Some(kept);
    }

    /// The next payload bytes, not empty; `None` once all have come and all claims hold.
    ///
    /// cancel-safe.
    ///
    /// # Errors
    /// What S3 answers where a claim does not hold; `RequestTimeout` where the client is silent for too long; `IncompleteBody` where the
    /// connection breaks. Every further call gives the same error.
    pub async fn next(&mut self) -> S3Result<Option<Bytes>> {
        match &self.state {
            State::Reading => {}
            State::Done(_) => return Ok(None),
            State::Failed(error) => return Err(error.clone()),
        }
        match self.advance().await {
            Ok(Some(piece)) => Ok(Some(piece)),
            Ok(None) => Ok(None),
            Err(error) => {
                self.state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// What was computed; `None` before [`Body::next`] gave `None`.
    pub fn digests(&self) -> Option<Digests> {
        match self.state {
            State::Done(digests) => Some(digests),
            State::Reading | State::Failed(_) => None,
        }
    }

    /// The whole body, of at most `max` bytes: documents.
    ///
    /// # Errors
    /// `MaxMessageLengthExceeded`, and as [`Body::next`].
    pub async fn collect(&mut self, max: usize) -> S3Result<Bytes> {
        let too_long =
            || S3Error::new(S3Code::MaxMessageLengthExceeded, format!("a document of more than {max} bytes"));
        if self.length().is_some_and(|length| length > max as u64) {
            return Err(too_long());
        }
        // The usual document comes in one piece, which is not copied.
        let mut only = Bytes::new();
        let mut whole = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if only.len().max(whole.len()) + piece.len() > max {
                return Err(too_long());
            }
            if only.is_empty() && whole.is_empty() {
                only = piece;
            } else {
                whole.extend_from_slice(&std::mem::take(&mut only));
                whole.extend_from_slice(&piece);
            }
        }
        if !only.is_empty() {
            return Ok(only);
        }
        Ok(whole.freeze())
    }

    async fn advance(&mut self) -> S3Result<Option<Bytes>> {
        self.digester.get_or_insert_with(|| Box::new(Digester::new(self.wanted))).ready().await?;
        loop {
            if self.input.is_empty() {
                match self.receive().await? {
                    Some(bytes) => self.input = bytes,
                    None => {
                        let digests = self.end().await?;
                        self.state = State::Done(digests);
                        return Ok(None);
                    }
                }
            }
            let piece = match &mut self.decoder {
                Some(decoder) => decoder.next(&mut self.input).map_err(chunk_error)?,
                None => Some(std::mem::take(&mut self.input)),
            };
            if let Some(piece) = piece
                && !piece.is_empty()
            {
                self.take(&piece)?;
                return Ok(Some(piece));
            }
        }
    }

    fn take(&mut self, piece: &Bytes) -> S3Result<()> {
        let digester = self.digester.get_or_insert_with(|| Box::new(Digester::new(self.wanted)));
        digester.push(piece);
        if self.claims.length.is_some_and(|length| digester.length() > length) {
            return Err(S3Error::new(S3Code::IncompleteBody, "more bytes came than the request's headers say"));
        }
        Ok(())
    }

    async fn receive(&mut self) -> S3Result<Option<Bytes>> {
        match &mut self.source {
            Source::Network(arriving) => arriving.receive(self.patience).await,
            #[cfg(test)]
            Source::Pieces(pieces) => Ok(pieces.pop_front()),
        }
    }

    /// Compares what came with what was said about it.
    async fn end(&mut self) -> S3Result<Digests> {
        // First the hashes: nothing may be lost where this is dropped while it waits for them.
        let digester = self.digester.get_or_insert_with(|| Box::new(Digester::new(self.wanted)));
        let seen = digester.length();
        let digests = digester.finish().await?;
        let trailers = match &mut self.decoder {
            Some(decoder) => decoder.finish().map_err(chunk_error)?,
            None => Vec::new(),
        };
        if self.claims.length.is_some_and(|length| seen != length) {
            return Err(S3Code::IncompleteBody.into());
        }
        if let ContentHash::Sha256(expected) = &self.claims.hash
            && digests.sha256.as_ref() != Some(expected)
        {
            return Err(S3Code::XAmzContentSHA256Mismatch.into());
        }
        if self.claims.md5.is_some() && self.claims.md5 != digests.md5 {
            return Err(S3Error::new(S3Code::BadDigest, "Content-MD5 is not the MD5 of the bytes that came"));
        }
        if let Some(expected) = self.claims.expected_checksum(&trailers)?
            && Some(expected) != digests.named
        {
            let name = expected.algorithm().name();
            return Err(S3Error::new(
                S3Code::BadDigest,
                format!("the {name} that was named is not that of the bytes that came"),
            ));
        }
        Ok(digests)
    }
}

/// The next bytes of a body; `None` at its end.
async fn receive(incoming: &mut Incoming, patience: Duration) -> S3Result<Option<Bytes>> {
    // Made only where bytes have to be waited for.
    let mut silence = None;
    let mut incoming = pin!(incoming);
    std::future::poll_fn(|cx| {
        loop {
            match incoming.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => return Poll::Ready(Ok(Some(bytes))),
                    Ok(_) | Err(_) => {} // Trailers of HTTP itself carry nothing for S3.
                },
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "a request's body broke off");
                    return Poll::Ready(Err(S3Code::IncompleteBody.into()));
                }
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Pending => {
                    let silence = silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
                    return silence.as_mut().poll(cx).map(|()| {
                        Err(S3Error::new(S3Code::RequestTimeout, "the request's body did not come for too long"))
                    });
                }
            }
        }
    })
    .await
}

fn chunk_error(error: ChunkError) -> S3Error {
    match error {
        ChunkError::Malformed(what) => S3Error::new(S3Code::InvalidRequest, format!("aws-chunked body: {what}")),
        ChunkError::Signature => {
            S3Error::new(S3Code::SignatureDoesNotMatch, "the signature of a chunk of the body is another")
        }
        ChunkError::Length => S3Code::IncompleteBody.into(),
        ChunkError::Trailer(what) => S3Error::new(S3Code::MalformedTrailerError, what),
    }
}
