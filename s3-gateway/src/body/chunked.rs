//! `aws-chunked` bodies, decoded and verified (S3 API Reference, "Signature calculations: transferring payload in multiple chunks" and
//! "… trailing headers").
//!
//! ```text
//!   size ──▶ data ──▶ end of data ──▶ size …          1000;chunk-signature=<64 hex> CRLF <4096 bytes> CRLF
//!    └── size 0 ──▶ trailers ──▶ done                 0;chunk-signature=<64 hex> CRLF name:value CRLF … CRLF
//! ```
//! Pure: bytes in, bytes out. Data is given out before its chunk's signature was seen; whoever keeps it does so only after
//! [`Decoder::finish`], which says that every signature held, the length is the announced one, and nothing followed.

use bytes::Bytes;
use ring::{digest, hmac};

// LIMIT: bytes of a chunk's first line; a size and a signature take 99.
pub(super) const LINE_MAX: usize = 192;
// LIMIT: bytes of all trailers.
pub(super) const TRAILERS_MAX: usize = 4096;

/// What is wrong with a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ChunkError {
    /// It does not follow the framing.
    Malformed(&'static str),
    /// A chunk's or the trailers' signature is another.
    Signature,
    /// More or fewer bytes than announced.
    Length,
    /// Trailers that are malformed, repeated, not announced, or too long.
    Trailer(&'static str),
}

/// Verifies the chain of signatures that begins with that of the request.
#[derive(Clone)]
pub(crate) struct ChunkSigner {
    key: hmac::Key,
    /// `<date>\n<scope>\n`, as strings to sign have it.
    date_and_scope: String,
    /// Hexadecimal.
    previous: [u8; 64],
}

impl ChunkSigner {
    /// Goes on from the request's signature. `date` is that of `x-amz-date`, `scope` that of the credential without the access key.
    pub fn new(key: hmac::Key, date: &str, scope: &str, seed: &[u8; 32]) -> Self {
        Self { key, date_and_scope: format!("{date}\n{scope}\n"), previous: hex_of(seed) }
    }

    fn verify(&mut self, kind: &str, hashes: &[&[u8; 64]], signature: &[u8; 32]) -> Result<(), ChunkError> {
        let mut text = Vec::with_capacity(320);
        text.extend_from_slice(kind.as_bytes());
        text.push(b'\n');
        text.extend_from_slice(self.date_and_scope.as_bytes());
        text.extend_from_slice(&self.previous);
        for hash in hashes {
            text.push(b'\n');
            text.extend_from_slice(*hash);
        }
        hmac::verify(&self.key, &text, signature).map_err(|_| ChunkError::Signature)?;
        self.previous = hex_of(signature);
        Ok(())
    }
}

/// SHA-256 of no bytes.
pub(crate) const EMPTY_SHA256: &[u8; 64] = b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn hex_of(bytes: &[u8]) -> [u8; 64] {
    let mut text = [0; 64];
    hex::encode_to_slice(bytes, &mut text).expect("32 bytes are 64 digits");
    text
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Size,
    Data { left: u64 },
    EndOfData,
    Trailers,
    Done,
}

/// Takes an `aws-chunked` body apart.
pub(crate) struct Decoder {
    state: State,
    signer: Option<ChunkSigner>,
    /// Signature of the chunk being read, and the hash of its bytes so far.
    signature: [u8; 32],
    hash: Option<digest::Context>,
    /// Bytes that are still to come, by the announced length.
    left: u64,
    line: Vec<u8>,
    /// Whether trailers may come.
    trailing: bool,
    trailers: Vec<(String, String)>,
    /// `name:value\n` of each trailer, as signed.
    trailer_text: String,
    trailer_signature: Option<[u8; 32]>,
    /// An empty line came between trailers and their signature.
    gap: bool,
}

impl Decoder {
    /// For a body of `length` bytes once decoded. With a signer, every chunk and the trailers must be signed.
    pub fn new(length: u64, signer: Option<ChunkSigner>, trailing: bool) -> Self {
        Self {
            state: State::Size,
            signer,
            signature: [0; 32],
            hash: None,
            left: length,
            line: Vec::new(),
            trailing,
            trailers: Vec::new(),
            trailer_text: String::new(),
            trailer_signature: None,
            gap: false,
        }
    }

    /// Takes from the front of `input`, up to and including the next piece of data. `None` where all of `input` was taken and
    /// gave no more data.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, ChunkError> {
        while !input.is_empty() {
            match self.state {
                State::Size => {
                    if self.take_line(input, LINE_MAX, ChunkError::Malformed("a chunk's first line is too long"))? {
                        self.begin_chunk()?;
                    }
                }
                State::Data { left } => {
                    let take = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
                    let piece = input.split_to(take);
                    if let Some(hash) = &mut self.hash {
                        hash.update(&piece);
                    }
                    let left = left - take as u64;
                    self.left -= take as u64;
                    self.state = if left == 0 { State::EndOfData } else { State::Data { left } };
                    return Ok(Some(piece));
                }
                State::EndOfData => {
                    let error = ChunkError::Malformed("a chunk's data does not end with CRLF");
                    if self.take_line(input, 2, error.clone())? {
                        if self.line != b"\r" {
                            return Err(error);
                        }
                        self.line.clear();
                        self.end_chunk()?;
                        self.state = State::Size;
                    }
                }
                State::Trailers => {
                    let room = TRAILERS_MAX - self.trailer_text.len().min(TRAILERS_MAX - 1);
                    if self.take_line(input, room, ChunkError::Trailer("the trailers are too long"))? {
                        self.trailer_line()?;
                    }
                }
                State::Done => return Err(ChunkError::Malformed("bytes follow the last chunk")),
            }
        }
        Ok(None)
    }

    /// To be called when the body has ended. The trailers, names in lower case.
    pub fn finish(&mut self) -> Result<Vec<(String, String)>, ChunkError> {
        match self.state {
            State::Done => {}
            // Some clients leave the last CRLF out where there are no trailers.
            State::Trailers if self.line.is_empty() && self.trailers.is_empty() && !self.trailing => {}
            _ => return Err(ChunkError::Length),
        }
        if self.left > 0 {
            return Err(ChunkError::Length);
        }
        Ok(std::mem::take(&mut self.trailers))
    }

    /// Moves bytes up to LF into `line`; true when there is a whole one, which is then without its LF.
    fn take_line(&mut self, input: &mut Bytes, max: usize, too_long: ChunkError) -> Result<bool, ChunkError> {
        let end = input.iter().position(|byte| *byte == b'\n');
        let take = end.map_or(input.len(), |end| end + 1);
        if self.line.len() + take > max {
            return Err(too_long);
        }
        self.line.extend_from_slice(&input.split_to(take));
        if end.is_some() {
            self.line.pop();
        }
        Ok(end.is_some())
    }

    fn begin_chunk(&mut self) -> Result<(), ChunkError> {
        let line = self
            .line
            .strip_suffix(b"\r")
            .ok_or(ChunkError::Malformed("a chunk's first line does not end with CRLF"))?;
        let (digits, extension) = match line.iter().position(|byte| *byte == b';') {
            Some(at) => (&line[..at], Some(&line[at + 1..])),
            None => (line, None),
        };
        let size = parse_size(digits).ok_or(ChunkError::Malformed("a chunk's size is not hexadecimal"))?;
        match (&self.signer, extension) {
            (Some(_), Some(extension)) => {
                let digits = extension.strip_prefix(b"chunk-signature=");
                let digits = digits.ok_or(ChunkError::Malformed("a chunk has no chunk-signature"))?;
                hex::decode_to_slice(digits, &mut self.signature).map_err(|_| ChunkError::Signature)?;
                self.hash = Some(digest::Context::new(&digest::SHA256));
            }
            (Some(_), None) => return Err(ChunkError::Malformed("a chunk has no chunk-signature")),
            (None, None) => {}
            (None, Some(_)) => return Err(ChunkError::Malformed("a chunk is signed, but the request says unsigned")),
        }
        self.line.clear();
        if size > self.left {
            return Err(ChunkError::Length);
        }
        if size > 0 {
            self.state = State::Data { left: size };
        } else {
            self.end_chunk()?;
            self.state = State::Trailers;
        }
        Ok(())
    }

    fn end_chunk(&mut self) -> Result<(), ChunkError> {
        let (Some(signer), Some(hash)) = (&mut self.signer, self.hash.take()) else { return Ok(()) };
        let hash = hex_of(hash.finish().as_ref());
        signer.verify("AWS4-HMAC-SHA256-PAYLOAD", &[EMPTY_SHA256, &hash], &self.signature)
    }

    /// One line after the last chunk: a trailer, their signature, or the empty line that ends the body.
    fn trailer_line(&mut self) -> Result<(), ChunkError> {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if line.is_empty() {
            let signed = self.signer.is_none() || !self.trailing || self.trailer_signature.is_some();
            if signed {
                self.state = State::Done;
                return Ok(());
            }
            // Some clients write an empty line between trailers and their signature; one is enough.
            if self.gap || self.trailers.is_empty() {
                return Err(ChunkError::Trailer("the trailers are not signed"));
            }
            self.gap = true;
            return Ok(());
        }
        if !self.trailing || self.trailer_signature.is_some() {
            return Err(ChunkError::Trailer("a trailer that was not announced"));
        }
        let text = std::str::from_utf8(line).map_err(|_| ChunkError::Trailer("a trailer is not text"))?;
        let (name, value) = text.split_once(':').ok_or(ChunkError::Trailer("a trailer has no colon"))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        if name == "x-amz-trailer-signature" {
            let Some(signer) = &mut self.signer else {
                return Err(ChunkError::Trailer("trailers are signed, but the request says unsigned"));
            };
            let mut signature = [0; 32];
            hex::decode_to_slice(value, &mut signature).map_err(|_| ChunkError::Signature)?;
            let hash = hex_of(digest::digest(&digest::SHA256, self.trailer_text.as_bytes()).as_ref());
            signer.verify("AWS4-HMAC-SHA256-TRAILER", &[&hash], &signature)?;
            self.trailer_signature = Some(signature);
            return Ok(());
        }
        if self.trailers.iter().any(|(known, _)| *known == name) {
            return Err(ChunkError::Trailer("a trailer comes twice"));
        }
        for piece in [&name, ":", value, "\n"] {
            self.trailer_text.push_str(piece);
        }
        self.trailers.push((name, value.to_owned()));
        Ok(())
    }
}

/// Hexadecimal without sign or prefix, at most 16 digits.
fn parse_size(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |size, digit| Some(size << 4 | u64::from((*digit as char).to_digit(16)?)))
}
