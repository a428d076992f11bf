//! `ozone freon ockg`: writes keys through the client library.

use std::time::Duration;

use anyhow::Result;
use ozone_client::proto::om::v1::{self as om, BucketInfo};
use ozone_client::{CallContext, Client};

use crate::content::Contents;
use crate::drive::{Done, Load, Step, Worker, drive};
use crate::{KeySpace, Report};

/// What one operation may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

struct Writer {
    client: Client,
    bucket: BucketInfo,
    keys: KeySpace,
    contents: Contents,
}

/// Writes keys into `bucket`.
///
/// # Errors
/// A watched process is gone. Keys that fail are counted, not returned.
pub async fn run(
    client: &Client,
    bucket: &BucketInfo,
    load: &Load,
    keys: &KeySpace,
    progress: impl Fn(u64) + Send + Sync + 'static,
) -> Result<Report> {
    let contents = keys.contents();
    let workers = std::iter::repeat_with(|| Writer {
        client: client.clone(),
        bucket: bucket.clone(),
        keys: keys.clone(),
        contents: contents.clone(),
    });
    let measured = drive(load, workers, progress).await?;
    Ok(Report::new("ockg", load, keys.size.get(), &measured))
}

impl Writer {
    async fn write(&self, n: u64) -> Result<()> {
        let (key, size) = (self.keys.name(n), self.keys.size.get());
        let ctx = CallContext::new(format!("ockg-{n:x}"), None, TIMEOUT);
        let mut writer = self.client.writer(&ctx, &self.bucket, Some(size))?;
        for piece in self.contents.pieces(&key, size) {
            writer.write(piece).await?;
        }
        let written = writer.finish().await?;
        let request = om::CommitKey {
            bucket: self.bucket.address.clone(),
            bucket_id: self.bucket.id,
            key,
            length: written.length,
            blocks: written.blocks,
            grants: written.grants,
            is_inline: written.inline.is_some(),
            inline: written.inline.unwrap_or_default(),
            ..Default::default()
        };
        self.client.commit_key(&ctx.renewed(TIMEOUT), request).await?;
        Ok(())
    }
}

impl Worker for Writer {
    async fn step(&mut self, n: u64) -> Step {
        match self.write(n).await {
            Ok(()) => Step::Done(Done { operation: "PUT", items: 1, bytes: self.keys.size.get() }),
            Err(error) => Step::Failed("PUT", error),
        }
    }
}
