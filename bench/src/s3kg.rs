//! `ozone freon s3kg`: S3 requests in any mix, signed, over HTTP.
//!
//! Keys are numbered. Those below [`Options::keys`] are there already; PUT goes on behind them. GET and HEAD draw among those that
//! are there, DELETE takes them one after the other from the first. Where a mix both reads and deletes, deletes have the lower
//! half and reads the upper one, so that no read misses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use hyper::{Method, StatusCode};
use ozone_common::limits::{DELETE_KEYS_MAX, LIST_LIMIT_MAX};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ring::digest;

use crate::content::Contents;
use crate::drive::{Done, Load, Step, Worker, drive};
use crate::s3::{Account, Connection, Endpoint, Request};
use crate::{KeySpace, Report};

/// What is asked of the gateway.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the gateway is
    #[arg(short, long, env = "OZONE_S3_ENDPOINT", default_value = "http://127.0.0.1:9878", value_name = "URL")]
    pub endpoint: String,
    /// The bucket; made where it is absent
    #[arg(short, long, default_value = "freon")]
    pub bucket: String,
    /// What to do: one of put, get, head, delete, delete-many, list, or several with their shares, as in `get=45,head=30,put=25`
    #[arg(short, long, default_value = "put", value_name = "MIX", value_parser = Mix::parse)]
    pub mix: Mix,
    /// Keys of this prefix that are there already, numbered from 0
    #[arg(short, long, default_value_t = 0, value_name = "COUNT")]
    pub keys: u64,
    /// Compare the bytes of every GET, not only their number
    #[arg(long)]
    pub validate: bool,
    /// Send bodies without their hash in the signature
    #[arg(long)]
    pub unsigned_payload: bool,
    /// Access key
    #[arg(long, env = "AWS_ACCESS_KEY_ID", value_name = "KEY")]
    pub access_key: String,
    /// Secret key
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true, value_name = "KEY")]
    pub secret_key: String,
    /// Region that requests are signed for
    #[arg(long, env = "AWS_REGION", default_value = "us-east-1")]
    pub region: String,
}

/// Kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Put,
    Get,
    Head,
    Delete,
    DeleteMany,
    List,
}

const KINDS: [(&str, &str, Kind); 6] = [
    ("put", "PUT", Kind::Put),
    ("get", "GET", Kind::Get),
    ("head", "HEAD", Kind::Head),
    ("delete", "DELETE", Kind::Delete),
    ("delete-many", "DELETE-MANY", Kind::DeleteMany),
    ("list", "LIST", Kind::List),
];

impl Kind {
    fn name(self) -> &'static str {
        KINDS.iter().find(|(_, _, kind)| *kind == self).map_or("", |(_, name, _)| name)
    }
    fn reads(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
    fn deletes(self) -> bool {
        matches!(self, Self::Delete | Self::DeleteMany)
    }
}

/// Kinds of requests and their shares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mix(Vec<(Kind, u32)>);

impl Mix {
    /// Reads `put` or `get=45,head=30,put=25`.
    ///
    /// # Errors
    /// A word that is no kind, a share that is no number, or no share at all.
    pub fn parse(text: &str) -> Result<Self> {
        let mut shares = Vec::new();
        for word in text.split(',') {
            let (name, share) = word.split_once('=').unwrap_or((word, "1"));
            let known = KINDS.iter().find(|(known, _, _)| *known == name.trim());
            let (_, _, kind) = known.with_context(|| {
                format!("`{name}` is no request; there are {}", KINDS.map(|(known, _, _)| known).join(", "))
            })?;
            let share: u32 = share
                .trim()
                .parse()
                .ok()
                .filter(|share| *share <= 1_000_000)
                .with_context(|| format!("`{word}`: a share is a number"))?;
            shares.push((*kind, share));
        }
        if shares.iter().all(|(_, share)| *share == 0) {
            bail!("`{text}`: at least one share must be more than 0");
        }
        Ok(Self(shares))
    }

    fn any(&self, of: impl Fn(Kind) -> bool) -> bool {
        self.0.iter().any(|(kind, share)| *share > 0 && of(*kind))
    }

    fn draw(&self, rng: &mut StdRng) -> Kind {
        let total: u32 = self.0.iter().map(|(_, share)| share).sum();
        let mut at = rng.random_range(0..total);
        for (kind, share) in &self.0 {
            match at.checked_sub(*share) {
                Some(rest) => at = rest,
                None => return *kind,
            }
        }
        unreachable!("what is drawn is below the sum of the shares")
    }
}

/// What all workers share.
struct Shared {
    options: Options,
    keys: KeySpace,
    contents: Contents,
    /// The next key to write,
    put: AtomicU64,
    /// the next to delete,
    delete: AtomicU64,
    /// up to here.
    delete_end: u64,
    /// Reads draw from here up to `options.keys`.
    read_begin: u64,
}

struct Requester {
    shared: Arc<Shared>,
    connection: Connection,
    rng: StdRng,
    /// Where this worker's listing goes on.
    token: Option<String>,
}

/// Makes the bucket where it is absent, and then the load.
///
/// # Errors
/// Options that do not fit each other; no gateway; a watched process is gone. Requests that fail are counted, not returned.
pub async fn run(
    load: &Load,
    keys: &KeySpace,
    options: &Options,
    progress: impl Fn(u64) + Send + Sync + 'static,
) -> Result<Report> {
    let mix = &options.mix;
    if options.keys == 0 && mix.any(|kind| kind.reads() || kind.deletes()) {
        bail!("say with --keys how many keys of the prefix are there already");
    }
    let half = if mix.any(Kind::reads) { options.keys / 2 } else { options.keys };
    let delete_end = if mix.any(Kind::deletes) { half } else { 0 };
    let endpoint = Endpoint::parse(&options.endpoint)?;
    let account = Account {
        access_key: options.access_key.clone(),
        secret_key: options.secret_key.clone(),
        region: options.region.clone(),
        sign_payload: !options.unsigned_payload,
    };
    let shared = Arc::new(Shared {
        options: options.clone(),
        keys: keys.clone(),
        contents: keys.contents(),
        put: AtomicU64::new(options.keys),
        delete: AtomicU64::new(0),
        delete_end,
        read_begin: delete_end,
    });
    make_bucket(&mut Connection::new(&endpoint, &account), &options.bucket).await?;
    let workers = (0..u64::from(load.threads)).map(|worker| Requester {
        shared: shared.clone(),
        connection: Connection::new(&endpoint, &account),
        rng: StdRng::seed_from_u64(keys.seed.wrapping_mul(1_000_003).wrapping_add(worker)),
        token: None,
    });
    let measured = drive(load, workers, progress).await?;
    Ok(Report::new("s3kg", load, keys.size.get(), &measured))
}

async fn make_bucket(connection: &mut Connection, bucket: &str) -> Result<()> {
    let request =
        Request { method: Method::PUT, bucket, key: b"", query: &[], headers: &[], body: std::iter::empty().collect() };
    let answer = connection.send(request, &[StatusCode::OK, StatusCode::CONFLICT]).await;
    answer.with_context(|| format!("cannot make the bucket {bucket}"))?.drain().await
}

impl Requester {
    fn request<'a>(&self, method: Method, bucket: &'a str, key: &'a [u8]) -> Request<'a> {
        Request { method, bucket, key, query: &[], headers: &[], body: std::iter::empty().collect() }
    }

    /// Does one request; `None` where there is nothing left to do.
    async fn perform(&mut self, kind: Kind) -> Result<Option<Done>> {
        let shared = self.shared.clone();
        let (bucket, size) = (shared.options.bucket.as_str(), shared.keys.size.get());
        let done = |items, bytes| Ok(Some(Done { operation: kind.name(), items, bytes }));
        match kind {
            Kind::Put => {
                let key = shared.keys.name(shared.put.fetch_add(1, Ordering::Relaxed));
                let body = shared.contents.pieces(&key, size).collect();
                let request = Request { body, ..self.request(Method::PUT, bucket, &key) };
                self.connection.send(request, &[StatusCode::OK]).await?.drain().await?;
                done(1, size)
            }
            Kind::Get => {
                let key = self.draw_key();
                self.get(&key).await?;
                done(1, size)
            }
            Kind::Head => {
                let key = self.draw_key();
                let request = self.request(Method::HEAD, bucket, &key);
                let answer = self.connection.send(request, &[StatusCode::OK]).await?;
                if answer.length != Some(size) {
                    bail!("{} has {:?} bytes, not {size}", String::from_utf8_lossy(&key), answer.length);
                }
                answer.drain().await?;
                done(1, 0)
            }
            Kind::Delete => {
                let n = shared.delete.fetch_add(1, Ordering::Relaxed);
                if n >= shared.delete_end {
                    return Ok(None);
                }
                let key = shared.keys.name(n);
                let request = self.request(Method::DELETE, bucket, &key);
                self.connection.send(request, &[StatusCode::NO_CONTENT]).await?.drain().await?;
                done(1, 0)
            }
            Kind::DeleteMany => {
                let first = shared.delete.fetch_add(DELETE_KEYS_MAX as u64, Ordering::Relaxed);
                let end = (first + DELETE_KEYS_MAX as u64).min(shared.delete_end);
                if first >= end {
                    return Ok(None);
                }
                self.delete_many(first..end).await?;
                done(end - first, 0)
            }
            Kind::List => done(self.list().await?, 0),
        }
    }

    fn draw_key(&mut self) -> Bytes {
        let n = self.rng.random_range(self.shared.read_begin..self.shared.options.keys);
        self.shared.keys.name(n)
    }

    async fn get(&mut self, key: &[u8]) -> Result<()> {
        let shared = self.shared.clone();
        let request = self.request(Method::GET, &shared.options.bucket, key);
        let mut answer = self.connection.send(request, &[StatusCode::OK]).await?;
        let mut offset = 0;
        let mut same = true;
        // Read to its end in any case, so that the connection stays of use.
        while let Some(bytes) = answer.next().await? {
            same &= !shared.options.validate || shared.contents.matches(key, offset, &bytes);
            offset += bytes.len() as u64;
        }
        let size = shared.keys.size.get();
        if offset != size {
            bail!("{} has {offset} bytes, not {size}", String::from_utf8_lossy(key));
        }
        if !same {
            bail!("{}: not what was written", String::from_utf8_lossy(key));
        }
        Ok(())
    }

    async fn delete_many(&mut self, numbers: std::ops::Range<u64>) -> Result<()> {
        let shared = self.shared.clone();
        let mut body = r#"<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Quiet>true</Quiet>"#.to_owned();
        for n in numbers {
            let name = shared.keys.name(n);
            body.push_str("<Object><Key>");
            body.push_str(&escape_xml(&String::from_utf8_lossy(&name)));
            body.push_str("</Key></Object>");
        }
        body.push_str("</Delete>");
        let checksum = STANDARD.encode(digest::digest(&digest::SHA256, body.as_bytes()));
        let request = Request {
            query: &[("delete", "")],
            headers: &[("content-type", "application/xml"), ("x-amz-checksum-sha256", &checksum)],
            body: std::iter::once(Bytes::from(body)).collect(),
            ..self.request(Method::POST, &shared.options.bucket, b"")
        };
        let answer = self.connection.send(request, &[StatusCode::OK]).await?.text().await?;
        if contains(&answer, b"<Error>") {
            bail!("some keys were not deleted: {}", String::from_utf8_lossy(&answer[..answer.len().min(1000)]));
        }
        Ok(())
    }

    /// One page; after the last, from the beginning again.
    async fn list(&mut self) -> Result<u64> {
        let shared = self.shared.clone();
        let max_keys = LIST_LIMIT_MAX.to_string();
        let token = self.token.take();
        let prefix = format!("{}/", shared.keys.prefix);
        let mut query = vec![("list-type", "2"), ("max-keys", &max_keys), ("prefix", &prefix)];
        if let Some(token) = &token {
            query.insert(0, ("continuation-token", token));
        }
        let request = Request { query: &query, ..self.request(Method::GET, &shared.options.bucket, b"") };
        let page = self.connection.send(request, &[StatusCode::OK]).await?.text().await?;
        let text = std::str::from_utf8(&page).context("a listing that is not UTF-8")?;
        self.token = element(text, "NextContinuationToken").map(unescape_xml);
        if self.token.is_none() && element(text, "IsTruncated") == Some("true") {
            bail!("a page that is not the last has no token");
        }
        Ok(text.matches("<Key>").count() as u64)
    }
}

impl Worker for Requester {
    async fn step(&mut self, _: u64) -> Step {
        let kind = self.shared.options.mix.draw(&mut self.rng);
        match self.perform(kind).await {
            Ok(Some(done)) => Step::Done(done),
            Ok(None) => Step::Over,
            Err(error) => Step::Failed(kind.name(), error),
        }
    }
}

/// The content of the first element of a name. Enough for an answer whose form is known.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let begin = text.find(&format!("<{name}>"))? + name.len() + 2;
    let length = text[begin..].find(&format!("</{name}>"))?;
    Some(&text[begin..begin + length])
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn unescape_xml(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&")
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes() {
        assert_eq!(Mix::parse("put").unwrap(), Mix(vec![(Kind::Put, 1)]));
        let mix = Mix::parse("get=45, head=30,delete-many=0,put=25").unwrap();
        assert!(mix.any(Kind::reads) && !mix.any(Kind::deletes));
        let mut rng = StdRng::seed_from_u64(1);
        let mut drawn = [0; 3];
        for _ in 0..10_000 {
            match mix.draw(&mut rng) {
                Kind::Get => drawn[0] += 1,
                Kind::Head => drawn[1] += 1,
                Kind::Put => drawn[2] += 1,
                other => panic!("{other:?} has no share"),
            }
        }
        assert!(drawn[0] > 4200 && drawn[1] > 2700 && drawn[2] > 2200, "{drawn:?}");
        for (wrong, expected) in
            [("post", "is no request"), ("put=x", "is a number"), ("put=0", "more than 0"), ("", "is no")]
        {
            let error = format!("{:#}", Mix::parse(wrong).unwrap_err());
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }

    #[test]
    fn answers_are_taken_apart() {
        let text = "<R><IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;lt;b</NextContinuationToken></R>";
        assert_eq!(element(text, "IsTruncated"), Some("true"));
        assert_eq!(element(text, "NextContinuationToken").map(unescape_xml).as_deref(), Some("a&lt;b"));
        assert_eq!(element(text, "Key"), None);
        assert_eq!(escape_xml("a<b>&c"), "a&lt;b&gt;&amp;c");
        assert!(contains(b"xx<Error>", b"<Error>") && !contains(b"", b"<Error>"));
    }
}
