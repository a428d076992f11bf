//! `ozone sh key put` and `cp`: bytes to blocks, then one commit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use ozone_client::proto::om::v1::{self as om, BucketAddress, BucketInfo};
use ozone_client::{CallContext, Written};
use ozone_common::name::KeyName;
use ozone_common::replication::Replication;

use super::file::read_ahead;
use super::get::Opened;
use crate::connect::Connection;
use crate::progress::Progress;

/// A key to be written.
pub struct Destination {
    /// In which bucket.
    pub bucket: BucketAddress,
    /// Under which name.
    pub key: KeyName,
    /// What belongs to it besides its bytes.
    pub meta: om::ObjectMeta,
    /// What must hold when it is committed.
    pub conditions: Option<om::Conditions>,
    /// The replication that the user expects; the bucket decides.
    pub replication: Option<Replication>,
}

/// What was written.
pub struct Stored {
    /// Bytes.
    pub length: u64,
    /// The key's new generation.
    pub generation: u64,
}

/// Where bytes come from.
enum Source {
    File { file: File, length: u64 },
    Stream(io::Stdin),
}

impl Source {
    /// A file, or stdin for `-`.
    fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stream(io::stdin()));
        }
        let shown = || format!("cannot read `{}`", path.display());
        let file = File::open(path).with_context(shown)?;
        let metadata = file.metadata().with_context(shown)?;
        if metadata.is_dir() {
            bail!("cannot read `{}`: it is a folder", path.display());
        }
        if !metadata.is_file() {
            bail!("cannot read `{}`: it is no file; pipe it into `ozone sh key put ... -`", path.display());
        }
        Ok(Self::File { file, length: metadata.len() })
    }

    fn length(&self) -> Option<u64> {
        match self {
            Self::File { length, .. } => Some(*length),
            Self::Stream(_) => None,
        }
    }

    fn into_read(self) -> Box<dyn Read + Send> {
        match self {
            Self::File { file, .. } => Box::new(file),
            Self::Stream(stdin) => Box::new(stdin),
        }
    }
}

/// Writes a file or stdin as a key. Nothing is visible before the commit at the end.
///
/// # Errors
/// Those of the file, of the cluster; a file that changed its length while it was read.
pub async fn put_file(at: &Connection, path: &Path, to: Destination) -> Result<Stored> {
    let source = Source::open(path)?;
    let expected = source.length();
    let ctx = at.context();
    let info = bucket_for(at, &ctx, &to).await?;
    let mut writer = at.client.writer(&ctx, &info, expected)?;
    let progress = Progress::bytes(format!("put {to}"), expected);
    let mut pieces = read_ahead(source.into_read());
    while let Some(piece) = pieces.recv().await {
        let piece = piece.with_context(|| format!("cannot read `{}`", path.display()))?;
        let length = piece.len() as u64;
        writer.write(piece).await?;
        progress.add(length);
    }
    if let Some(expected) = expected
        && writer.length() != expected
    {
        bail!("`{}` had {expected} bytes and then {}: it changed while it was read", path.display(), writer.length());
    }
    let written = writer.finish().await?;
    commit(at, &ctx, info.id, written, to).await
}

/// Writes the bytes of a key as another one.
///
/// # Errors
/// Those of the cluster.
pub async fn copy(at: &Connection, mut from: Opened, to: Destination) -> Result<Stored> {
    let ctx = at.context();
    let info = bucket_for(at, &ctx, &to).await?;
    let mut writer = at.client.writer(&ctx, &info, Some(from.length()))?;
    let progress = Progress::bytes(format!("cp {to}"), Some(from.length()));
    while let Some(bytes) = from.next().await? {
        let length = bytes.len() as u64;
        writer.write(bytes).await?;
        progress.add(length);
    }
    let written = writer.finish().await?;
    commit(at, &ctx, info.id, written, to).await
}

async fn bucket_for(at: &Connection, ctx: &CallContext, to: &Destination) -> Result<BucketInfo> {
    let info = at.client.info_bucket(ctx, om::InfoBucket { address: Some(to.bucket.clone()) }).await?;
    match to.replication {
        Some(wanted) if info.replication.parse::<Replication>()? != wanted => {
            bail!("the bucket's keys are {}, not {wanted}: replication is the bucket's", info.replication)
        }
        _ => Ok(info),
    }
}

async fn commit(
    at: &Connection,
    ctx: &CallContext,
    bucket_id: u64,
    written: Written,
    to: Destination,
) -> Result<Stored> {
    let length = written.length;
    let request = om::CommitKey {
        bucket: Some(to.bucket),
        key: to.key.to_shared(),
        length,
        meta: Some(to.meta),
        blocks: written.blocks,
        grants: written.grants,
        is_inline: written.inline.is_some(),
        inline: written.inline.unwrap_or_default(),
        conditions: to.conditions,
        bucket_id,
    };
    let committed = at.client.commit_key(&ctx.renewed(at.timeout()), request).await?;
    Ok(Stored { length, generation: committed.generation })
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let BucketAddress { volume, bucket } = &self.bucket;
        write!(f, "/{volume}/{bucket}/{}", crate::render::name(self.key.as_bytes()))
    }
}
