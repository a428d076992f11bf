//! `ozone sh bucket`.

use anyhow::{Result, bail};
use clap::{Subcommand, ValueEnum};
use ozone_client::proto::common::v1::Durability;
use ozone_client::proto::om::v1::{self as om, InlinePolicy};
use ozone_common::config::ByteSize;
use ozone_common::name::S3_VOLUME;
use serde::Serialize;

use super::list::{Filter, Page, Pages, tell_more};
use super::{at, delete};
use crate::address::{self, Address};
use crate::connect::{ClusterArgs, Connection};
use crate::render::{self, Column, Output};

/// Operations on buckets.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Makes a bucket
    Create {
        /// Such as /volume/bucket
        #[arg(value_parser = address::parser())]
        bucket: Address,
        /// How keys are arranged: OBJECT_STORE (also OBS) is what this version has
        #[arg(short, long, value_parser = layout, default_value = "OBJECT_STORE")]
        layout: &'static str,
        /// Kind of replication: RATIS is what this version has
        #[arg(short = 't', long = "type", value_name = "TYPE", value_parser = replication_type)]
        kind: Option<&'static str>,
        /// Copies of each block: ONE or THREE [default: the cluster's]
        #[arg(short, long, value_name = "FACTOR")]
        replication: Option<ozone_common::replication::Replication>,
        /// When a write is answered: once it is on every replica's disk, or in its memory
        #[arg(long, value_enum, default_value = "disk")]
        durability: DurabilityArg,
        /// Whether small values travel in the commit and live in the OM
        #[arg(long, value_enum, default_value = "auto")]
        inline: InlineArg,
        /// Who owns it [default: the caller]
        #[arg(short, long = "user", visible_alias = "owner", value_name = "USER")]
        user: Option<String>,
    },
    /// Describes a bucket
    Info {
        /// Such as /volume/bucket
        #[arg(value_parser = address::parser())]
        bucket: Address,
    },
    /// Lists a volume's buckets
    List {
        /// Such as /volume
        #[arg(value_parser = address::parser())]
        volume: Address,
        #[command(flatten)]
        filter: Filter,
    },
    /// Deletes a bucket
    Delete {
        /// Such as /volume/bucket
        #[arg(value_parser = address::parser())]
        bucket: Address,
        #[command(flatten)]
        recursive: delete::Recursive,
    },
}

/// When a write is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DurabilityArg {
    /// After fdatasync on every replica
    Disk,
    /// Once it is in the page cache of every replica
    Memory,
}

impl DurabilityArg {
    /// As the wire has it.
    pub fn wire(self) -> Durability {
        match self {
            Self::Disk => Durability::Disk,
            Self::Memory => Durability::Memory,
        }
    }
}

/// Whether small values live in the OM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum InlineArg {
    /// While the OM has as many members as a block needs replicas
    Auto,
    /// Always, whatever the number of members
    Always,
    /// Never
    Never,
}

impl InlineArg {
    /// As the wire has it.
    pub fn wire(self) -> InlinePolicy {
        match self {
            Self::Auto => InlinePolicy::Auto,
            Self::Always => InlinePolicy::Always,
            Self::Never => InlinePolicy::Never,
        }
    }
}

fn layout(text: &str) -> Result<&'static str> {
    match text.to_ascii_uppercase().as_str() {
        "OBJECT_STORE" | "OBS" => Ok("OBJECT_STORE"),
        "FILE_SYSTEM_OPTIMIZED" | "FSO" | "LEGACY" => bail!("this version has buckets of the layout OBJECT_STORE only"),
        _ => bail!("no such layout; OBJECT_STORE is what this version has"),
    }
}

/// The replication type; `STAND_ALONE` and `STANDALONE` are Ozone's old names of the same.
pub fn replication_type(text: &str) -> Result<&'static str> {
    match text.to_ascii_uppercase().as_str() {
        "RATIS" | "STANDALONE" | "STAND_ALONE" => Ok("RATIS"),
        "EC" => bail!("this version has no erasure coding; RATIS replicates whole blocks"),
        _ => bail!("no such type; RATIS is what this version has"),
    }
}

impl Command {
    /// Runs the command.
    pub fn run(self, cluster: &ClusterArgs, output: Output) -> Result<()> {
        match self {
            Self::Create { bucket, layout: _, kind: _, replication, durability, inline, user } => {
                let address = bucket.only_bucket()?;
                let request = om::CreateBucket {
                    // The volume of S3 is there for everybody, and made with its first bucket.
                    create_volume: address.volume == S3_VOLUME,
                    address: Some(address),
                    owner: user.unwrap_or_default(),
                    replication: replication.map(|replication| replication.to_string()).unwrap_or_default(),
                    durability: durability.wire() as i32,
                    inline: inline.wire() as i32,
                };
                at(cluster, &bucket, async |at| {
                    let info = at.client.create_bucket(&at.context(), request).await?;
                    Ok(output.show(&Bucket::from(&info), || format!("bucket {} is made", path(&info)))?)
                })
            }
            Self::Info { bucket } => {
                let address = Some(bucket.only_bucket()?);
                at(cluster, &bucket, async |at| {
                    let info = at.client.info_bucket(&at.context(), om::InfoBucket { address }).await?;
                    Ok(output.show(&Bucket::from(&info), || describe(&info))?)
                })
            }
            Self::List { volume, filter } => {
                let request = om::ListBuckets {
                    volume: volume.only_volume()?.to_string(),
                    prefix: filter.prefix,
                    owner: filter.user.unwrap_or_default(),
                    ..Default::default()
                };
                at(cluster, &volume, async |at| list(&at, output, &request, &filter.start, filter.pages).await)
            }
            Self::Delete { bucket, recursive } => {
                let address = bucket.only_bucket()?;
                recursive.confirm(&format!("bucket {bucket} and all its keys"))?;
                at(cluster, &bucket, async |at| {
                    if recursive.wanted() {
                        delete::empty_bucket(&at, &address).await?;
                    }
                    at.client.delete_bucket(&at.context(), om::DeleteBucket { address: Some(address) }).await?;
                    Ok(output.line(format_args!("bucket {bucket} is deleted"))?)
                })
            }
        }
    }
}

/// A page of buckets behind `start`.
pub async fn page(
    at: &Connection,
    request: &om::ListBuckets,
    start: Vec<u8>,
    limit: u32,
) -> Result<Page<om::BucketInfo>> {
    let request = om::ListBuckets { start_after: String::from_utf8(start)?, limit, ..request.clone() };
    let list = at.client.list_buckets(&at.context(), request).await?;
    let next = list.buckets.last().filter(|_| list.truncated).map(|last| name(last).to_owned().into_bytes());
    Ok(Page { entries: list.buckets, next })
}

async fn list(at: &Connection, output: Output, request: &om::ListBuckets, start: &str, pages: Pages) -> Result<()> {
    let fetch = async |start, limit| page(at, request, start, limit).await;
    let (buckets, next) = pages.collect(start.as_bytes().to_vec(), fetch).await?;
    let json: Vec<_> = buckets.iter().map(Bucket::from).collect();
    output.show(&json, || {
        let columns = [
            Column::Text("NAME"),
            Column::Text("OWNER"),
            Column::Text("REPLICATION"),
            Column::Text("DURABILITY"),
            Column::Number("KEYS"),
            Column::Number("SIZE"),
            Column::Text("CREATED"),
        ];
        render::table(
            &columns,
            buckets.iter().map(|bucket| {
                vec![
                    name(bucket).to_owned(),
                    render::name(bucket.owner.as_bytes()),
                    bucket.replication.clone(),
                    durability(bucket).to_owned(),
                    bucket.key_count.to_string(),
                    render::bytes(bucket.used_bytes),
                    render::time(bucket.created_ms),
                ]
            }),
        )
    })?;
    tell_more(next.as_deref());
    Ok(())
}

fn volume(info: &om::BucketInfo) -> &str {
    info.address.as_ref().map_or("", |address| &address.volume)
}

fn name(info: &om::BucketInfo) -> &str {
    info.address.as_ref().map_or("", |address| &address.bucket)
}

fn path(info: &om::BucketInfo) -> String {
    format!("/{}/{}", volume(info), name(info))
}

fn durability(info: &om::BucketInfo) -> &'static str {
    match info.durability() {
        Durability::Disk => "disk",
        Durability::Memory => "memory",
        Durability::Unspecified => "unknown",
    }
}

fn inline(info: &om::BucketInfo) -> &'static str {
    match info.inline() {
        InlinePolicy::Auto => "auto",
        InlinePolicy::Always => "always",
        InlinePolicy::Never => "never",
    }
}

fn describe(info: &om::BucketInfo) -> String {
    let inline_now = match info.inline_max {
        0 => "values live on datanodes now".to_owned(),
        max => format!("values up to {} live in the OM now", ByteSize(max.into())),
    };
    render::pairs([
        ("Bucket", path(info)),
        ("Owner", render::name(info.owner.as_bytes())),
        ("Layout", info.layout.clone()),
        ("Replication", info.replication.clone()),
        ("Durability", durability(info).to_owned()),
        ("Inline", format!("{}: {inline_now}", inline(info))),
        ("Keys", info.key_count.to_string()),
        ("Size", format!("{} ({} bytes)", render::bytes(info.used_bytes), info.used_bytes)),
        ("On disk", format!("{} ({} bytes)", render::bytes(info.used_replicated_bytes), info.used_replicated_bytes)),
        ("Created", render::time(info.created_ms)),
        ("Modified", render::time(info.modified_ms)),
    ])
}

/// A bucket as JSON has it; the names are Ozone's where it has the thing.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bucket<'a> {
    volume_name: &'a str,
    name: &'a str,
    owner: &'a str,
    bucket_layout: &'a str,
    replication_config: ReplicationConfig,
    durability: &'static str,
    inline: &'static str,
    inline_max: u32,
    /// Before replication.
    used_bytes: u64,
    used_replicated_bytes: u64,
    used_namespace: u64,
    creation_time: String,
    modification_time: String,
}

impl<'a> From<&'a om::BucketInfo> for Bucket<'a> {
    fn from(info: &'a om::BucketInfo) -> Self {
        Self {
            volume_name: volume(info),
            name: name(info),
            owner: &info.owner,
            bucket_layout: &info.layout,
            replication_config: ReplicationConfig::of(&info.replication),
            durability: durability(info),
            inline: inline(info),
            inline_max: info.inline_max,
            used_bytes: info.used_bytes,
            used_replicated_bytes: info.used_replicated_bytes,
            used_namespace: info.key_count,
            creation_time: render::time(info.created_ms),
            modification_time: render::time(info.modified_ms),
        }
    }
}

/// `RATIS/THREE` as Ozone's JSON has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicationConfig {
    replication_type: String,
    replication_factor: String,
    required_nodes: usize,
}

impl ReplicationConfig {
    /// From the text on the wire; one that is not known is passed on as it is.
    pub fn of(text: &str) -> Self {
        let (kind, factor) = text.split_once('/').unwrap_or((text, ""));
        let required_nodes = text.parse::<ozone_common::replication::Replication>().map_or(0, |r| r.replicas());
        Self { replication_type: kind.to_owned(), replication_factor: factor.to_owned(), required_nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_ozone_are_known_and_what_is_missing_is_said() {
        for text in ["OBS", "obs", "OBJECT_STORE"] {
            assert_eq!(layout(text).unwrap(), "OBJECT_STORE");
        }
        assert!(layout("FSO").unwrap_err().to_string().contains("OBJECT_STORE only"));
        assert!(layout("x").is_err());
        assert_eq!(replication_type("ratis").unwrap(), "RATIS");
        assert!(replication_type("EC").unwrap_err().to_string().contains("no erasure coding"));
    }

    #[test]
    fn info_for_people_and_programs() {
        let info = om::BucketInfo {
            address: Some(om::BucketAddress { volume: "vol".into(), bucket: "buck".into() }),
            owner: "alice".into(),
            layout: "OBJECT_STORE".into(),
            replication: "RATIS/THREE".into(),
            durability: Durability::Memory as i32,
            inline: InlinePolicy::Always as i32,
            inline_max: 4096,
            used_bytes: 2048,
            used_replicated_bytes: 6144,
            key_count: 2,
            created_ms: 1,
            modified_ms: 2,
            ..Default::default()
        };
        assert_eq!(
            describe(&info),
            "Bucket       /vol/buck\n\
             Owner        alice\n\
             Layout       OBJECT_STORE\n\
             Replication  RATIS/THREE\n\
             Durability   memory\n\
             Inline       always: values up to 4KiB live in the OM now\n\
             Keys         2\n\
             Size         2.00 KiB (2048 bytes)\n\
             On disk      6.00 KiB (6144 bytes)\n\
             Created      1970-01-01T00:00:00.001Z\n\
             Modified     1970-01-01T00:00:00.002Z\n"
        );
        let json = serde_json::to_value(Bucket::from(&info)).unwrap();
        assert_eq!(json["volumeName"], "vol");
        assert_eq!(json["bucketLayout"], "OBJECT_STORE");
        assert_eq!(json["replicationConfig"]["requiredNodes"], 3);
        assert_eq!(json["replicationConfig"]["replicationFactor"], "THREE");
        assert_eq!(json["durability"], "memory");
    }
}
