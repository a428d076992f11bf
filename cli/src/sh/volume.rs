//! `ozone sh volume`.

use anyhow::Result;
use clap::Subcommand;
use ozone_client::proto::om::v1 as om;
use serde::Serialize;

use super::list::{Filter, Page, tell_more};
use super::{at, delete};
use crate::address::{self, Address};
use crate::connect::{ClusterArgs, Connection};
use crate::render::{self, Column, Output};

/// Operations on volumes.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Makes a volume
    Create {
        /// Such as /volume
        #[arg(value_parser = address::parser())]
        volume: Address,
        /// Who owns it [default: the caller]
        #[arg(short, long = "user", visible_alias = "owner", value_name = "USER")]
        user: Option<String>,
    },
    /// Describes a volume
    Info {
        /// Such as /volume
        #[arg(value_parser = address::parser())]
        volume: Address,
    },
    /// Lists volumes
    List {
        /// Where, such as o3://host:port/
        #[arg(value_parser = address::parser(), default_value = "/")]
        at: Address,
        #[command(flatten)]
        filter: Filter,
    },
    /// Deletes a volume
    Delete {
        /// Such as /volume
        #[arg(value_parser = address::parser())]
        volume: Address,
        #[command(flatten)]
        recursive: delete::Recursive,
    },
}

impl Command {
    /// Runs the command.
    pub fn run(self, cluster: &ClusterArgs, output: Output) -> Result<()> {
        match self {
            Self::Create { volume, user } => {
                let name = volume.only_volume()?.to_string();
                at(cluster, &volume, async |at| {
                    let request = om::CreateVolume { volume: name, owner: user.unwrap_or_default() };
                    let info = at.client.create_volume(&at.context(), request).await?;
                    Ok(output.show(&Volume::from(&info), || format!("volume {} is made", info.name))?)
                })
            }
            Self::Info { volume } => {
                let name = volume.only_volume()?.to_string();
                at(cluster, &volume, async |at| {
                    let info = at.client.info_volume(&at.context(), om::InfoVolume { volume: name }).await?;
                    Ok(output.show(&Volume::from(&info), || describe(&info))?)
                })
            }
            Self::List { at: place, filter } => at(cluster, &place, async |at| list(&at, output, &filter).await),
            Self::Delete { volume, recursive } => {
                let name = volume.only_volume()?.clone();
                recursive.confirm(&format!("volume {name} and everything in it"))?;
                at(cluster, &volume, async |at| {
                    if recursive.wanted() {
                        delete::empty_volume(&at, name.as_str()).await?;
                    }
                    at.client.delete_volume(&at.context(), om::DeleteVolume { volume: name.to_string() }).await?;
                    Ok(output.line(format_args!("volume {name} is deleted"))?)
                })
            }
        }
    }
}

/// A page of volumes behind `start`.
pub async fn page(at: &Connection, prefix: &str, start: Vec<u8>, limit: u32) -> Result<Page<om::VolumeInfo>> {
    let start_after = String::from_utf8(start)?;
    let request = om::ListVolumes { prefix: prefix.to_owned(), start_after, limit };
    let list = at.client.list_volumes(&at.context(), request).await?;
    let next = list.volumes.last().filter(|_| list.truncated).map(|last| last.name.clone().into_bytes());
    Ok(Page { entries: list.volumes, next })
}

async fn list(at: &Connection, output: Output, filter: &Filter) -> Result<()> {
    let user = filter.user.as_deref();
    let fetch = async |start, limit| {
        let mut page = page(at, &filter.prefix, start, limit).await?;
        page.entries.retain(|volume| user.is_none_or(|user| volume.owner == user));
        Ok(page)
    };
    let (volumes, next) = filter.pages.collect(filter.start.as_bytes().to_vec(), fetch).await?;
    let json: Vec<_> = volumes.iter().map(Volume::from).collect();
    output.show(&json, || {
        let columns = [Column::Text("NAME"), Column::Text("OWNER"), Column::Number("BUCKETS"), Column::Text("CREATED")];
        render::table(
            &columns,
            volumes.iter().map(|volume| {
                let buckets = volume.bucket_count.to_string();
                vec![
                    volume.name.clone(),
                    render::name(volume.owner.as_bytes()),
                    buckets,
                    render::time(volume.created_ms),
                ]
            }),
        )
    })?;
    tell_more(next.as_deref());
    Ok(())
}

fn describe(info: &om::VolumeInfo) -> String {
    render::pairs([
        ("Volume", info.name.clone()),
        ("Owner", render::name(info.owner.as_bytes())),
        ("Buckets", info.bucket_count.to_string()),
        ("Created", render::time(info.created_ms)),
        ("Modified", render::time(info.modified_ms)),
    ])
}

/// A volume as JSON has it; the names are Ozone's.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Volume<'a> {
    name: &'a str,
    owner: &'a str,
    used_namespace: u64,
    creation_time: String,
    modification_time: String,
}

impl<'a> From<&'a om::VolumeInfo> for Volume<'a> {
    fn from(info: &'a om::VolumeInfo) -> Self {
        Self {
            name: &info.name,
            owner: &info.owner,
            used_namespace: info.bucket_count,
            creation_time: render::time(info.created_ms),
            modification_time: render::time(info.modified_ms),
        }
    }
}
