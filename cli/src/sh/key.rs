//! `ozone sh key`.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use bytes::Bytes;
use clap::{Args, Subcommand};
use ozone_client::proto::common::v1::LocatedBlock;
use ozone_client::proto::om::v1::{self as om, BucketAddress};
use ozone_common::id::{BlockId, DatanodeId};
use ozone_common::name::KeyName;
use ozone_common::replication::Replication;
use serde::Serialize;

use super::bucket::{ReplicationConfig, replication_type};
use super::get::Opened;
use super::list::{Page, Pages, tell_more};
use super::put::{Destination, Stored};
use super::{at, get, put};
use crate::address::{self, Address};
use crate::connect::{ClusterArgs, Connection};
use crate::exit::Usage;
use crate::render::{self, Column, JsonList, Output};

/// Operations on keys.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Writes a file, or stdin, as a key
    Put {
        /// Such as /volume/bucket/key
        #[arg(value_parser = address::parser())]
        key: Address,
        /// The file; `-` is stdin
        file: PathBuf,
        /// Content-Type that S3 answers with
        #[arg(long, value_name = "TYPE")]
        content_type: Option<String>,
        /// User metadata, NAME=VALUE; may be repeated
        #[arg(short = 'm', long, value_name = "NAME=VALUE", value_parser = pair)]
        metadata: Vec<(String, String)>,
        #[command(flatten)]
        when: When,
        #[command(flatten)]
        replication: ReplicationArgs,
    },
    /// Writes a key to a file, which appears whole or not at all
    Get {
        /// Such as /volume/bucket/key
        #[arg(value_parser = address::parser())]
        key: Address,
        /// The file, or a folder that gets one named as the key's last part
        #[arg(default_value = ".")]
        file: PathBuf,
        /// Replace a file that is there
        #[arg(short, long)]
        force: bool,
    },
    /// Writes a key to stdout
    Cat {
        /// Such as /volume/bucket/key
        #[arg(value_parser = address::parser())]
        key: Address,
    },
    /// Copies a key with what belongs to it
    ///
    /// Either two keys (/volume/bucket/from /volume/bucket/to), or a bucket and two keys of it (/volume/bucket from to).
    Cp {
        /// Two keys, or a bucket and two keys of it
        #[arg(num_args = 2..=3, required = true, value_names = ["FROM", "TO"], value_parser = clap::value_parser!(std::ffi::OsString))]
        places: Vec<std::ffi::OsString>,
        #[command(flatten)]
        when: When,
        #[command(flatten)]
        replication: ReplicationArgs,
    },
    /// Describes a key and where its blocks are
    Info {
        /// Such as /volume/bucket/key
        #[arg(value_parser = address::parser())]
        key: Address,
    },
    /// Lists a bucket's keys
    List {
        /// Such as /volume/bucket
        #[arg(value_parser = address::parser())]
        bucket: Address,
        /// Only keys that begin so
        #[arg(short, long, default_value = "", value_parser = address::bytes_parser())]
        prefix: Bytes,
        /// Only keys behind this one
        #[arg(short, long, default_value = "", value_parser = address::bytes_parser())]
        start: Bytes,
        /// Show keys that go on behind this, after the prefix, as one entry
        #[arg(short, long, default_value = "", value_parser = address::bytes_parser())]
        delimiter: Bytes,
        #[command(flatten)]
        pages: Pages,
    },
    /// Deletes a key
    Delete {
        /// Such as /volume/bucket/key
        #[arg(value_parser = address::parser())]
        key: Address,
    },
}

/// What must hold at the moment of the commit.
#[derive(Args, Debug)]
pub struct When {
    /// Only where there is no such key yet
    #[arg(long)]
    if_absent: bool,
    /// Only where the key is this generation (`key info` shows it)
    #[arg(long, value_name = "NUMBER", conflicts_with = "if_absent", value_parser = clap::value_parser!(u64).range(1..))]
    expected_generation: Option<u64>,
}

impl When {
    fn conditions(&self) -> Option<om::Conditions> {
        (self.if_absent || self.expected_generation.is_some()).then(|| om::Conditions {
            if_absent: self.if_absent,
            if_generation: self.expected_generation.unwrap_or(0),
            ..Default::default()
        })
    }
}

/// Ozone's flags; replication is the bucket's, so that these only say what is expected of it.
#[derive(Args, Debug)]
pub struct ReplicationArgs {
    /// Kind of replication that the bucket must have
    #[arg(short = 't', long = "type", value_name = "TYPE", value_parser = replication_type)]
    kind: Option<&'static str>,
    /// Copies that the bucket must keep: ONE or THREE
    #[arg(short, long, value_name = "FACTOR")]
    replication: Option<Replication>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_ascii_lowercase(), value.to_owned())),
        _ => Err("a name, `=` and a value are wanted".into()),
    }
}

impl Command {
    /// Runs the command.
    pub fn run(self, cluster: &ClusterArgs, output: Output) -> Result<()> {
        match self {
            Self::Put { key: address, file, content_type, metadata, when, replication } => {
                let (bucket, key) = address.key()?;
                let headers = content_type.map(|value| ("content-type".to_owned(), value)).into_iter().collect();
                let meta = om::ObjectMeta { headers, user: metadata.into_iter().collect(), ..Default::default() };
                let conditions = when.conditions();
                let to =
                    Destination { bucket, key: key.clone(), meta, conditions, replication: replication.replication };
                at(cluster, &address, async |at| {
                    let name = to.to_string();
                    let stored = put::put_file(&at, &file, to).await?;
                    Ok(output.show(&StoredJson::from(&stored), || stored_line(&name, &stored))?)
                })
            }
            Self::Get { key: address, file, force } => {
                let (bucket, key) = address.key()?;
                at(cluster, &address, async |at| {
                    let (path, length) = get::get_file(&at, &bucket, key, file, force).await?;
                    let json = Fetched { file: path.to_string_lossy().into_owned(), data_size: length };
                    Ok(output.show(&json, || format!("{} ({})", path.display(), render::bytes(length)))?)
                })
            }
            Self::Cat { key: address } => {
                let (bucket, key) = address.key()?;
                at(cluster, &address, async |at| get::cat(&at, &bucket, key).await)
            }
            Self::Cp { places, when, replication } => cp(cluster, output, &places, &when, &replication),
            Self::Info { key: address } => {
                let (bucket, key) = address.key()?;
                at(cluster, &address, async |at| {
                    let found = get::find(&at, &bucket, key).await?;
                    let info = found.info.clone().unwrap_or_default();
                    Ok(output.show(&Described::new(&bucket, &info, &found), || describe(&bucket, &info, &found))?)
                })
            }
            Self::List { bucket: address, prefix, start, delimiter, pages } => {
                let bucket = address.only_bucket()?;
                let request = om::ListKeys { bucket: Some(bucket.clone()), prefix, delimiter, ..Default::default() };
                at(cluster, &address, async |at| list(&at, output, &bucket, request, start, pages).await)
            }
            Self::Delete { key: address } => {
                let (bucket, key) = address.key()?;
                let request =
                    om::DeleteKey { bucket: Some(bucket), key: key.to_shared(), conditions: None, must_exist: true };
                at(cluster, &address, async |at| {
                    at.client.delete_key(&at.context(), request).await?;
                    Ok(output.line(format_args!("key {} is deleted", render::name(address.to_string().as_bytes())))?)
                })
            }
        }
    }
}

fn stored_line(name: &str, stored: &Stored) -> String {
    format!("{name} ({}, generation {})", render::bytes(stored.length), stored.generation)
}

fn cp(
    cluster: &ClusterArgs,
    output: Output,
    places: &[std::ffi::OsString],
    when: &When,
    replication: &ReplicationArgs,
) -> Result<()> {
    let (from, to) = ends(places)?;
    if from.om.is_some() && to.om.is_some() && from.om != to.om {
        return Err(Usage("both keys must be of one cluster".into()).into());
    }
    let (from_bucket, from_key) = from.key()?;
    let (bucket, key) = to.key()?;
    let om = if from.om.is_some() { &from } else { &to };
    at(cluster, om, async |at| {
        let opened = Opened::new(&at, &from_bucket, from_key).await?;
        let meta = opened.info.meta.clone().unwrap_or_default();
        let conditions = when.conditions();
        let to = Destination { bucket, key: key.clone(), meta, conditions, replication: replication.replication };
        let name = to.to_string();
        let stored = put::copy(&at, opened, to).await?;
        Ok(output.show(&StoredJson::from(&stored), || stored_line(&name, &stored))?)
    })
}

/// The two keys of a copy, in either of its forms.
fn ends(places: &[std::ffi::OsString]) -> Result<(Address, Address)> {
    use std::os::unix::ffi::OsStrExt;
    match places {
        [from, to] => Ok((Address::parse(from)?, Address::parse(to)?)),
        [bucket, from, to] => {
            let bucket = Address::parse(bucket)?;
            bucket.only_bucket()?;
            let with = |key: &std::ffi::OsString| -> Result<Address> {
                Ok(Address { key: Some(KeyName::new(Bytes::copy_from_slice(key.as_bytes()))?), ..bucket.clone() })
            };
            Ok((with(from)?, with(to)?))
        }
        _ => Err(Usage("two keys are wanted, or a bucket and two keys of it".into()).into()),
    }
}

/// An entry of a listing.
enum Entry {
    Key(om::KeyInfo),
    Prefix(Bytes),
}

async fn list(
    at: &Connection,
    output: Output,
    bucket: &BucketAddress,
    request: om::ListKeys,
    start: Bytes,
    pages: Pages,
) -> Result<()> {
    let fetch = async |start: Vec<u8>, limit| {
        let request = om::ListKeys { start_after: start.into(), limit, ..request.clone() };
        let page = at.client.list_keys(&at.context(), request).await?;
        let next = page.truncated.then(|| page.last.to_vec());
        let mut entries: Vec<Entry> = page.keys.into_iter().map(Entry::Key).collect();
        entries.extend(page.common_prefixes.into_iter().map(Entry::Prefix));
        entries.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(Page { entries, next })
    };
    // Page by page to stdout: a listing may be longer than memory.
    let mut out = io::BufWriter::new(io::stdout());
    let mut json = JsonList::default();
    let mut begun = false;
    let next = pages
        .walk(start.to_vec(), fetch, |entries| {
            // Nothing before the first answer: an error leaves stdout empty.
            match (begun, output.json) {
                (true, _) => {}
                (false, true) => json.begin(&mut out)?,
                (false, false) => writeln!(out, "{:>10}  {:<24}  KEY", "SIZE", "MODIFIED")?,
            }
            begun = true;
            for entry in &entries {
                match (output.json, entry) {
                    (true, Entry::Key(info)) => json.item(&mut out, &Listed::new(bucket, info))?,
                    (true, Entry::Prefix(prefix)) => json.item(&mut out, &Prefix::new(prefix))?,
                    (false, Entry::Key(info)) => {
                        let (size, time) = (render::bytes(info.length), render::time(info.modified_ms));
                        writeln!(out, "{size:>10}  {time}  {}", render::name(&info.key))?;
                    }
                    (false, Entry::Prefix(prefix)) => {
                        writeln!(out, "{:>10}  {:<24}  {}", "PREFIX", "", render::name(prefix))?;
                    }
                }
            }
            Ok(out.flush()?)
        })
        .await?;
    if output.json {
        json.end(&mut out)?;
    }
    out.flush()?;
    tell_more(next.as_deref());
    Ok(())
}

impl Entry {
    fn name(&self) -> &[u8] {
        match self {
            Self::Key(info) => &info.key,
            Self::Prefix(prefix) => prefix,
        }
    }
}

/// S3's ETag, where the key was written with one.
fn etag(meta: &om::ObjectMeta) -> Option<String> {
    let md5 = hex::encode(&meta.etag_md5);
    match (meta.etag_md5.is_empty(), meta.etag_parts) {
        (true, _) => None,
        (false, 0) => Some(md5),
        (false, parts) => Some(format!("{md5}-{parts}")),
    }
}

fn datanode(bytes: &[u8]) -> String {
    DatanodeId::from_slice(bytes).map_or_else(|_| hex::encode(bytes), |id| id.to_string())
}

fn describe(bucket: &BucketAddress, info: &om::KeyInfo, found: &om::KeyFound) -> String {
    let meta = info.meta.clone().unwrap_or_default();
    let mut pairs = vec![
        ("Key", format!("/{}/{}/{}", bucket.volume, bucket.bucket, render::name(&info.key))),
        ("Size", format!("{} ({} bytes)", render::bytes(info.length), info.length)),
        ("Owner", render::name(info.owner.as_bytes())),
        ("Replication", info.replication.clone()),
        ("Generation", info.generation.to_string()),
        ("Created", render::time(info.created_ms)),
        ("Modified", render::time(info.modified_ms)),
    ];
    pairs.extend(etag(&meta).map(|etag| ("ETag", etag)));
    if !info.parts.is_empty() {
        pairs.push(("Parts", info.parts.len().to_string()));
    }
    let listed = |(name, value): (String, String)| format!("{name}={}", render::name(value.as_bytes()));
    pairs.extend(sorted(meta.headers).into_iter().map(|header| ("Header", listed(header))));
    pairs.extend(sorted(meta.user).into_iter().map(|user| ("Metadata", listed(user))));
    let mut text = render::pairs(pairs);
    if found.is_inline {
        text.push_str("\nThe bytes live in the OM.\n");
    } else if !found.blocks.is_empty() {
        let columns = [
            Column::Text("BLOCK"),
            Column::Number("OFFSET"),
            Column::Number("LENGTH"),
            Column::Number("EPOCH"),
            Column::Text("DATANODES"),
        ];
        text.push('\n');
        text.push_str(&render::table(
            &columns,
            found.blocks.iter().map(|located| {
                let block = located.block.unwrap_or_default();
                let nodes = located.replicas.iter().map(|node| format!("{}:{}", node.host, node.data_port));
                let id = BlockId::new(block.id).map_or_else(|| block.id.to_string(), |id| id.to_string());
                let numbers = [located.offset, block.length, block.epoch.into()].map(|number| number.to_string());
                let [offset, length, epoch] = numbers;
                vec![id, offset, length, epoch, nodes.collect::<Vec<_>>().join(" ")]
            }),
        ));
    }
    text
}

/// Names in order, so that two runs print the same.
fn sorted(map: std::collections::HashMap<String, String>) -> std::collections::BTreeMap<String, String> {
    map.into_iter().collect()
}

/// A key of a listing as JSON has it; the names are Ozone's.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    volume_name: &'a str,
    bucket_name: &'a str,
    name: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    owner: &'a str,
    data_size: u64,
    creation_time: String,
    modification_time: String,
    replication_config: ReplicationConfig,
    generation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
}

impl<'a> Listed<'a> {
    fn new(bucket: &'a BucketAddress, info: &'a om::KeyInfo) -> Self {
        let (name, name_hex) = render::json_name(&info.key);
        Self {
            volume_name: &bucket.volume,
            bucket_name: &bucket.bucket,
            name,
            name_hex,
            owner: &info.owner,
            data_size: info.length,
            creation_time: render::time(info.created_ms),
            modification_time: render::time(info.modified_ms),
            replication_config: ReplicationConfig::of(&info.replication),
            generation: info.generation,
            etag: info.meta.as_ref().and_then(etag),
        }
    }
}

/// A common prefix as JSON has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Prefix<'a> {
    prefix: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix_hex: Option<String>,
}

impl<'a> Prefix<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let (prefix, prefix_hex) = render::json_name(bytes);
        Self { prefix, prefix_hex }
    }
}

/// A key with everything, as JSON has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Described<'a> {
    #[serde(flatten)]
    listed: Listed<'a>,
    metadata: std::collections::BTreeMap<String, String>,
    headers: std::collections::BTreeMap<String, String>,
    #[serde(skip_serializing_if = "is_zero")]
    parts: usize,
    inline: bool,
    ozone_key_locations: Vec<Location>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl<'a> Described<'a> {
    fn new(bucket: &'a BucketAddress, info: &'a om::KeyInfo, found: &om::KeyFound) -> Self {
        let meta = info.meta.clone().unwrap_or_default();
        Self {
            listed: Listed::new(bucket, info),
            metadata: sorted(meta.user),
            headers: sorted(meta.headers),
            parts: info.parts.len(),
            inline: found.is_inline,
            ozone_key_locations: found.blocks.iter().map(Location::from).collect(),
        }
    }
}

/// A block of a key, in Ozone's names.
#[derive(Serialize)]
struct Location {
    #[serde(rename = "containerID")]
    container: u64,
    #[serde(rename = "localID")]
    local: u32,
    length: u64,
    #[serde(rename = "keyOffset")]
    key_offset: u64,
    epoch: u32,
    crc32c: String,
    datanodes: Vec<Node>,
}

#[derive(Serialize)]
struct Node {
    uuid: String,
    host: String,
    port: u32,
}

impl From<&LocatedBlock> for Location {
    fn from(located: &LocatedBlock) -> Self {
        let block = located.block.unwrap_or_default();
        let id = BlockId::new(block.id);
        Self {
            container: id.map_or(0, |id| id.container().get()),
            local: id.map_or(0, BlockId::local),
            length: block.length,
            key_offset: located.offset,
            epoch: block.epoch,
            crc32c: format!("{:08x}", block.crc32c),
            datanodes: located
                .replicas
                .iter()
                .map(|node| Node { uuid: datanode(&node.datanode), host: node.host.clone(), port: node.data_port })
                .collect(),
        }
    }
}

/// What `put` and `cp` answer programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StoredJson {
    data_size: u64,
    generation: u64,
}

impl From<&Stored> for StoredJson {
    fn from(stored: &Stored) -> Self {
        Self { data_size: stored.length, generation: stored.generation }
    }
}

/// What `get` answers programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Fetched {
    file: String,
    data_size: u64,
}
