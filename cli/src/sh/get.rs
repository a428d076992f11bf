//! `ozone sh key get` and `cat`: a key's verified bytes.

use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use ozone_client::KeyReader;
use ozone_client::proto::om::v1::{self as om, BucketAddress, KeyFound};
use ozone_common::name::KeyName;
use ozone_common::{Error, ErrorCode};

use super::file::{Sink, Target};
use crate::connect::Connection;
use crate::progress::Progress;

/// Looks at a key that is being replaced again and again, before giving up.
const OPENS_MAX: u32 = 5;

/// A key whose first bytes are there: from now on its generation is fixed.
pub struct Opened {
    /// What the OM says about it.
    pub info: om::KeyInfo,
    first: Option<Bytes>,
    reader: KeyReader,
    given: u64,
}

impl Opened {
    /// Finds a key and begins to read it.
    ///
    /// # Errors
    /// Those of the OM; `KeyChanged` where it is replaced each time before its first byte is read.
    pub async fn new(at: &Connection, bucket: &BucketAddress, key: &KeyName) -> Result<Self> {
        let mut opens = 0;
        loop {
            opens += 1;
            match Self::try_new(at, bucket, key).await {
                Err(error) if error.code == ErrorCode::KeyChanged && opens < OPENS_MAX => {}
                outcome => return Ok(outcome?),
            }
        }
    }

    async fn try_new(at: &Connection, bucket: &BucketAddress, key: &KeyName) -> Result<Self, Error> {
        let ctx = at.context();
        let found = at.client.lookup_key(&ctx, lookup(bucket, key, true)).await?;
        let length = found.info.as_ref().map_or(0, |info| info.length);
        let mut reader = at.client.reader(&ctx, bucket, &found, 0..length)?;
        let first = reader.next().await?;
        let info = found.info.ok_or_else(|| Error::internal("the OM's answer has no key"))?;
        Ok(Self { info, first, reader, given: 0 })
    }

    /// Bytes of the key.
    pub fn length(&self) -> u64 {
        self.info.length
    }

    /// The next bytes, verified; `None` after the last.
    ///
    /// # Errors
    /// The reader's; `Internal` where it ends before the key does.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let bytes = match self.first.take() {
            Some(first) => Some(first),
            None => self.reader.next().await?,
        };
        match &bytes {
            Some(bytes) => self.given += bytes.len() as u64,
            None if self.given != self.info.length => {
                return Err(Error::internal(format!("{} of {} bytes came", self.given, self.info.length)));
            }
            None => {}
        }
        Ok(bytes)
    }

    async fn pour<W: io::Write + Send + 'static>(&mut self, sink: Sink<W>, progress: &Progress) -> Result<W> {
        let mut outcome = Ok(());
        loop {
            match self.next().await {
                Ok(Some(bytes)) => {
                    let length = bytes.len() as u64;
                    if !sink.give(bytes).await {
                        break;
                    }
                    progress.add(length);
                }
                Ok(None) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        // What came is written in any case; where writing failed, that is the cause.
        let to = sink.finish().await?;
        outcome?;
        Ok(to)
    }
}

/// The request for a key as it is now.
pub fn lookup(bucket: &BucketAddress, key: &KeyName, want_data: bool) -> om::LookupKey {
    om::LookupKey { bucket: Some(bucket.clone()), key: key.to_shared(), want_data, ..Default::default() }
}

/// Writes a key to a file, which appears whole or not at all. Answers where and how long.
///
/// # Errors
/// Those of the cluster and of the file system.
pub async fn get_file(
    at: &Connection,
    bucket: &BucketAddress,
    key: &KeyName,
    path: PathBuf,
    replace: bool,
) -> Result<(PathBuf, u64)> {
    let target = Target::new(&path, key.as_bytes(), replace)?;
    let mut opened = Opened::new(at, bucket, key).await?;
    let (partial, file) = target.begin()?;
    let progress = Progress::bytes(format!("get {}", crate::render::name(key.as_bytes())), Some(opened.length()));
    let file =
        opened.pour(Sink::new(file), &progress).await.with_context(|| format!("`{}`", target.path().display()))?;
    let written = file.metadata()?.len();
    if written != opened.length() {
        bail!("`{}` has {written} bytes, the key {}", target.path().display(), opened.length());
    }
    let path = target.path().to_owned();
    tokio::task::spawn_blocking(move || target.publish(partial, &file)).await??;
    Ok((path, written))
}

/// Writes a key to stdout.
///
/// # Errors
/// Those of the cluster and of stdout.
pub async fn cat(at: &Connection, bucket: &BucketAddress, key: &KeyName) -> Result<()> {
    let mut opened = Opened::new(at, bucket, key).await?;
    opened.pour(Sink::new(io::stdout()), &Progress::bytes(String::new(), Some(0))).await?;
    Ok(())
}

/// What the OM says about a key, with where its bytes are where `want_data`.
///
/// # Errors
/// Those of the OM.
pub async fn find(at: &Connection, bucket: &BucketAddress, key: &KeyName) -> Result<KeyFound> {
    Ok(at.client.lookup_key(&at.context(), lookup(bucket, key, true)).await?)
}
