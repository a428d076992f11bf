//! Deleting with everything inside: asked first, then page by page.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Result, bail};
use clap::Args;
use ozone_client::proto::om::v1::{self as om, BucketAddress};
use ozone_common::limits::LIST_LIMIT_MAX;
use ozone_common::{Error, ErrorCode};

use super::bucket;
use super::list::Page;
use crate::connect::Connection;
use crate::exit::Usage;

/// Flags of a delete that may go deep.
#[derive(Args, Clone, Copy, Debug)]
pub struct Recursive {
    /// Delete what is inside first
    #[arg(short, long)]
    recursive: bool,
    /// Do not ask
    #[arg(short, long, requires = "recursive")]
    yes: bool,
}

impl Recursive {
    /// Whether what is inside goes too.
    pub fn wanted(self) -> bool {
        self.recursive
    }

    /// Asks the user, where a recursive delete was not confirmed by a flag.
    ///
    /// # Errors
    /// `Usage` where there is nobody to ask; an error where the answer is not `yes`.
    pub fn confirm(self, what: &str) -> Result<()> {
        if !self.recursive || self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            return Err(Usage(format!("--recursive deletes {what}: say --yes where nobody can be asked")).into());
        }
        eprint!("delete {what}? Type `yes`: ");
        io::stderr().flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        match answer.trim() {
            "yes" => Ok(()),
            _ => bail!("nothing was deleted"),
        }
    }
}

/// Deletes all buckets of a volume.
///
/// # Errors
/// Those of the OM. What was deleted before stays deleted.
pub async fn empty_volume(at: &Connection, name: &str) -> Result<()> {
    let request = om::ListBuckets { volume: name.to_owned(), ..Default::default() };
    loop {
        // Always the first page: what it named is gone afterwards.
        let Page { entries, next } = bucket::page(at, &request, Vec::new(), LIST_LIMIT_MAX).await?;
        for address in entries.into_iter().filter_map(|bucket| bucket.address) {
            empty_bucket(at, &address).await?;
            at.client.delete_bucket(&at.context(), om::DeleteBucket { address: Some(address) }).await?;
        }
        if next.is_none() {
            return Ok(());
        }
    }
}

/// Deletes all keys of a bucket and gives its uploads up.
///
/// # Errors
/// Those of the OM. What was deleted before stays deleted.
pub async fn empty_bucket(at: &Connection, address: &BucketAddress) -> Result<()> {
    let mut start_after = bytes::Bytes::new();
    loop {
        let bucket = Some(address.clone());
        let request = om::ListKeys { bucket: bucket.clone(), start_after, limit: LIST_LIMIT_MAX, ..Default::default() };
        let page = at.client.list_keys(&at.context(), request).await?;
        let keys: Vec<_> = page.keys.into_iter().map(|info| info.key).collect();
        if !keys.is_empty() {
            let reply = at.client.delete_keys(&at.context(), om::DeleteKeys { bucket, keys: keys.clone() }).await?;
            if let Some((key, error)) = keys.iter().zip(&reply.errors).find(|(_, error)| error.code != 0) {
                let error = Error::new(ErrorCode::from_number(error.code), error.message.clone());
                return Err(error.context(format_args!("key {}", String::from_utf8_lossy(key))).into());
            }
        }
        if !page.truncated {
            break;
        }
        start_after = page.last;
    }
    abort_uploads(at, address).await
}

async fn abort_uploads(at: &Connection, address: &BucketAddress) -> Result<()> {
    loop {
        let bucket = Some(address.clone());
        let request = om::ListUploads { bucket: bucket.clone(), limit: LIST_LIMIT_MAX, ..Default::default() };
        let page = at.client.list_uploads(&at.context(), request).await?;
        for om::UploadInfo { key, upload, .. } in page.uploads {
            let request = om::AbortUpload { bucket: bucket.clone(), key, upload };
            match at.client.abort_upload(&at.context(), request).await {
                Err(error) if error.code != ErrorCode::UploadNotFound => return Err(error.into()),
                _ => {} // gone, by us or by somebody else
            }
        }
        if !page.truncated {
            return Ok(());
        }
    }
}
