//! All hashes of a body, in one pass while it streams on.
//!
//! Small bodies are hashed where they are: handing them over would cost more. From [`INLINE_MAX`] on batches of [`BATCH`] bytes go
//! to a thread that may block, one at a time and in order, while the next one gathers and the datanodes take what came before. So a
//! body holds at most two batches here, whatever its length.

use bytes::Bytes;
use md5::{Digest as _, Md5};
use ozone_common::Error;
use ring::digest;
use tokio::task::JoinHandle;

use super::{Algorithm, Checksum, Hasher};

/// Bytes of a body that are hashed on the caller's thread: 0.1 ms of MD5.
const INLINE_MAX: usize = 64 << 10;
/// Bytes handed over at once.
const BATCH: usize = 1 << 20;

/// What is to be computed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub md5: bool,
    pub sha256: bool,
    /// The checksum that the client names.
    pub named: Option<Algorithm>,
    /// The checksum that is kept with the object; where it is the named one, it is computed once.
    pub kept: Option<Algorithm>,
}

/// What was computed over all bytes.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Digests {
    pub md5: Option<[u8; 16]>,
    pub sha256: Option<[u8; 32]>,
    /// As [`Wanted::named`].
    pub named: Option<Checksum>,
    /// As [`Wanted::kept`].
    pub kept: Option<Checksum>,
}

struct Hashes {
    wanted: Wanted,
    md5: Option<Md5>,
    sha256: Option<digest::Context>,
    named: Option<Hasher>,
    kept: Option<Hasher>,
}

impl Hashes {
    fn new(wanted: Wanted) -> Self {
        Self {
            md5: wanted.md5.then(Md5::new),
            sha256: wanted.sha256.then(|| digest::Context::new(&digest::SHA256)),
            named: wanted.named.map(Hasher::new),
            kept: wanted.kept.filter(|kept| wanted.named != Some(*kept)).map(Hasher::new),
            wanted,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
        for hasher in [&mut self.named, &mut self.kept].into_iter().flatten() {
            hasher.update(bytes);
        }
    }

    fn finish(self) -> Digests {
        let named = self.named.map(Hasher::finish);
        let same = self.wanted.kept.is_some() && self.wanted.kept == self.wanted.named;
        Digests {
            md5: self.md5.map(|md5| md5.finalize().into()),
            sha256: self.sha256.and_then(|sha256| sha256.finish().as_ref().try_into().ok()),
            named,
            kept: if same { named } else { self.kept.map(Hasher::finish) },
        }
    }
}

/// Computes the hashes of a body piece by piece.
pub(crate) struct Digester {
    /// `None` while a batch is under way.
    hashes: Option<Hashes>,
    running: Option<JoinHandle<Hashes>>,
    batch: Vec<Bytes>,
    batched: usize,
    length: u64,
    idle: bool,
}

impl Digester {
    /// Of no bytes yet.
    pub fn new(wanted: Wanted) -> Self {
        Self {
            hashes: Some(Hashes::new(wanted)),
            running: None,
            batch: Vec::new(),
            batched: 0,
            length: 0,
            idle: wanted == Wanted::default(),
        }
    }

    /// Waits until [`Digester::push`] may be called: where a batch is full and the one before is not done.
    ///
    /// cancel-safe.
    ///
    /// # Errors
    /// `Internal` where the hashing thread died.
    pub async fn ready(&mut self) -> Result<(), Error> {
        if self.batched >= BATCH {
            self.join().await?;
            self.hand_over();
        }
        Ok(())
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &Bytes) {
        self.length += bytes.len() as u64;
        if self.idle {
            return;
        }
        if self.length <= INLINE_MAX as u64
            && let Some(hashes) = &mut self.hashes
        {
            return hashes.update(bytes);
        }
        self.batched += bytes.len();
        self.batch.push(bytes.clone());
        if self.batched >= BATCH {
            self.hand_over();
        }
    }

    /// Begins with the batch, where the one before is done.
    fn hand_over(&mut self) {
        let Some(mut hashes) = self.hashes.take() else { return };
        let batch = std::mem::take(&mut self.batch);
        self.batched = 0;
        self.running = Some(tokio::task::spawn_blocking(move || {
            for bytes in &batch {
                hashes.update(bytes);
            }
            hashes
        }));
    }

    async fn join(&mut self) -> Result<(), Error> {
        if let Some(running) = &mut self.running {
            let outcome = running.await;
            self.running = None;
            self.hashes = Some(outcome.map_err(|error| Error::internal(format!("hashing a body: {error}")))?);
        }
        Ok(())
    }

    /// The hashes of all bytes. To be called once; cancel-safe until then.
    ///
    /// # Errors
    /// As [`Digester::ready`].
    pub async fn finish(&mut self) -> Result<Digests, Error> {
        self.join().await?;
        if self.batched > INLINE_MAX {
            self.hand_over();
            self.join().await?;
        }
        let mut hashes = self.hashes.take().ok_or_else(|| Error::internal("a body's hash was interrupted"))?;
        for bytes in self.batch.drain(..) {
            hashes.update(&bytes);
        }
        self.batched = 0;
        Ok(hashes.finish())
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// MD5 of a short message.
pub(crate) fn md5(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_of_any_size_hash_as_the_whole() {
        let whole: Bytes = (0..3_500_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let wanted = Wanted { md5: true, sha256: true, named: Some(Algorithm::Sha1), kept: Some(Algorithm::Crc32c) };
        for length in [0, 1, INLINE_MAX, INLINE_MAX + 1, BATCH, BATCH + 1, 3_500_000] {
            for piece in [1000, INLINE_MAX, 1_200_000] {
                let mut digester = Digester::new(wanted);
                let body = whole.slice(..length);
                for at in (0..length).step_by(piece) {
                    digester.ready().await.unwrap();
                    digester.push(&body.slice(at..length.min(at + piece)));
                    assert!(digester.batched < 2 * BATCH + piece, "memory is bounded");
                }
                assert_eq!(digester.length(), length as u64);
                let digests = digester.finish().await.unwrap();
                assert_eq!(digests.md5, Some(md5(&body)), "{length} bytes by {piece}");
                let sha256 = digest::digest(&digest::SHA256, &body);
                assert_eq!(digests.sha256.unwrap(), sha256.as_ref());
                let kept = ozone_common::checksum::crc32c(&body).to_be_bytes();
                assert_eq!(digests.kept.unwrap().value(), kept);
                let mut sha1 = Hasher::new(Algorithm::Sha1);
                sha1.update(&body);
                assert_eq!(digests.named.unwrap(), sha1.finish());
            }
        }
    }

    #[tokio::test]
    async fn what_nobody_wants_is_not_computed() {
        let mut digester = Digester::new(Wanted::default());
        digester.push(&Bytes::from_static(&[0; 100]));
        assert_eq!(digester.finish().await.unwrap(), Digests::default());
        let same = Wanted { named: Some(Algorithm::Crc32), kept: Some(Algorithm::Crc32), ..Wanted::default() };
        let mut digester = Digester::new(same);
        digester.push(&Bytes::from_static(b"123456789"));
        let digests = digester.finish().await.unwrap();
        assert_eq!(digests.named, digests.kept);
        assert_eq!(digests.kept.unwrap().value(), [0xcb, 0xf4, 0x39, 0x26]);
    }
}
