//! `ozone freon ockv`: reads the keys that `ockg` wrote and compares every byte.

use anyhow::{Result, bail};
use ozone_client::proto::om::v1::{self as om, BucketAddress};
use ozone_client::{CallContext, Client};

use crate::content::Contents;
use crate::drive::{Done, Load, Step, Worker, drive};
use crate::ockg::TIMEOUT;
use crate::{KeySpace, Report};

struct Validator {
    client: Client,
    bucket: BucketAddress,
    keys: KeySpace,
    contents: Contents,
    /// Keys there are; a run by time begins anew after the last.
    count: u64,
}

/// Reads keys of `bucket`: each once, or round and round for a time.
///
/// # Errors
/// A watched process is gone. Keys that fail or differ are counted, not returned.
pub async fn run(
    client: &Client,
    bucket: &BucketAddress,
    load: &Load,
    keys: &KeySpace,
    progress: impl Fn(u64) + Send + Sync + 'static,
) -> Result<Report> {
    let contents = keys.contents();
    let workers = std::iter::repeat_with(|| Validator {
        client: client.clone(),
        bucket: bucket.clone(),
        keys: keys.clone(),
        contents: contents.clone(),
        count: load.number_of_tests.max(1),
    });
    let measured = drive(load, workers, progress).await?;
    Ok(Report::new("ockv", load, keys.size.get(), &measured))
}

impl Validator {
    async fn validate(&self, n: u64) -> Result<()> {
        let (key, size) = (self.keys.name(n % self.count), self.keys.size.get());
        let ctx = CallContext::new(format!("ockv-{n:x}"), None, TIMEOUT);
        let request = om::LookupKey {
            bucket: Some(self.bucket.clone()),
            key: key.clone(),
            want_data: true,
            ..Default::default()
        };
        let found = self.client.lookup_key(&ctx, request).await?;
        let length = found.info.as_ref().map_or(0, |info| info.length);
        let name = String::from_utf8_lossy(&key);
        if length != size {
            bail!("{name} has {length} bytes, not {size}");
        }
        let mut reader = self.client.reader(&ctx, &self.bucket, &found, 0..length)?;
        let mut offset = 0;
        while let Some(bytes) = reader.next().await? {
            if !self.contents.matches(&key, offset, &bytes) {
                bail!("{name}: not what was written, in the {} bytes from {offset} on", bytes.len());
            }
            offset += bytes.len() as u64;
        }
        if offset != length {
            bail!("{name} ended after {offset} of {length} bytes");
        }
        Ok(())
    }
}

impl Worker for Validator {
    async fn step(&mut self, n: u64) -> Step {
        match self.validate(n).await {
            Ok(()) => Step::Done(Done { operation: "GET", items: 1, bytes: self.keys.size.get() }),
            Err(error) => Step::Failed("GET", error),
        }
    }
}
