//! `ozone admin container`.

use std::io::{self, Write};

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use ozone_client::proto::scm::v1::{ContainerInfo, GetContainers, ListContainers, ReplicaInfo};
use ozone_common::id::{ContainerId, DatanodeId};
use ozone_common::limits::LIST_LIMIT_MAX;
use ozone_common::{Error, ErrorCode};
use serde::Serialize;

use crate::connect::{ClusterArgs, Connection, Needs};
use crate::render::{self, Column, JsonList, Output};

/// Operations on containers.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Lists containers
    List(ListArgs),
    /// Describes containers and their replicas
    Info {
        /// Numbers of containers
        #[arg(required = true, value_parser = container_id)]
        containers: Vec<ContainerId>,
    },
}

/// Which containers to list.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only those behind this one
    #[arg(short, long, value_name = "ID", default_value_t = 0)]
    start: u64,
    /// At most so many
    #[arg(short, long, visible_alias = "length", value_name = "COUNT", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Everything, however long
    #[arg(short, long, conflicts_with = "count")]
    all: bool,
    /// Only those of this state
    #[arg(long, value_enum, ignore_case = true)]
    state: Option<State>,
}

/// State of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum State {
    /// Takes blocks
    Open,
    /// Takes no new blocks
    Closing,
    /// Never changes but by deletes
    Closed,
    /// Its replicas are being removed
    Deleting,
    /// Gone
    Deleted,
}

fn container_id(text: &str) -> Result<ContainerId, String> {
    let id = text.trim_start_matches('#').parse().ok().and_then(ContainerId::new);
    id.ok_or_else(|| "containers are numbered from 1".into())
}

impl Command {
    /// Runs the command.
    pub fn run(self, cluster: &ClusterArgs, output: Output) -> Result<()> {
        cluster.run(Needs::Scm, None, async |at| match self {
            Self::List(args) => list(&at, output, &args).await,
            Self::Info { containers } => info(&at, output, &containers).await,
        })
    }
}

async fn list(at: &Connection, output: Output, args: &ListArgs) -> Result<()> {
    let state = args.state.map(|state| format!("{state:?}").to_ascii_uppercase()).unwrap_or_default();
    let mut left = if args.all { u64::MAX } else { args.count };
    let mut after = args.start;
    let mut out = io::BufWriter::new(io::stdout());
    let mut json = JsonList::default();
    let mut more = true;
    let mut first = true;
    while more && left > 0 {
        let limit = left.min(u64::from(LIST_LIMIT_MAX)) as u32;
        let request = ListContainers { after, limit, state: state.clone() };
        let page = at.client.scm()?.list_containers(&at.context(), request).await?;
        left -= left.min(page.containers.len() as u64);
        after = page.containers.last().map_or(after, |last| last.id);
        more = page.truncated && !page.containers.is_empty();
        if output.json {
            if first {
                json.begin(&mut out)?;
            }
            for container in &page.containers {
                json.item(&mut out, &Container::from(container))?;
            }
        } else {
            let text = summary(&page.containers);
            // Headings once.
            let rows = if first { text.as_str() } else { text.split_once('\n').map_or("", |(_, rows)| rows) };
            out.write_all(rows.as_bytes())?;
        }
        first = false;
    }
    if output.json {
        json.end(&mut out)?;
    }
    out.flush()?;
    if more {
        eprintln!("there is more: use --all, or go on with --start {after}");
    }
    Ok(())
}

async fn info(at: &Connection, output: Output, ids: &[ContainerId]) -> Result<()> {
    let request = GetContainers { containers: ids.iter().map(|id| id.get()).collect() };
    let found = at.client.scm()?.get_containers(&at.context(), request).await?.containers;
    for id in ids {
        if !found.iter().any(|container| container.id == id.get()) {
            return Err(Error::new(ErrorCode::ContainerNotFound, format!("there is no container {id}")).into());
        }
    }
    let json: Vec<_> = found.iter().map(Container::from).collect();
    Ok(output.show(&json, || found.iter().map(describe).collect::<Vec<_>>().join("\n"))?)
}

fn summary(containers: &[ContainerInfo]) -> String {
    let columns = [
        Column::Number("ID"),
        Column::Text("STATE"),
        Column::Text("REPLICATION"),
        Column::Number("EPOCH"),
        Column::Number("BLOCKS"),
        Column::Number("USED"),
        Column::Number("REPLICAS"),
        Column::Text("OPENED"),
    ];
    render::table(
        &columns,
        containers.iter().map(|container| {
            vec![
                container.id.to_string(),
                container.state.clone(),
                container.replication.clone(),
                container.epoch.to_string(),
                container.block_count.to_string(),
                render::bytes(container.used_bytes),
                format!("{}/{}", container.replicas.len(), container.members.len()),
                render::time(container.opened_ms),
            ]
        }),
    )
}

fn describe(container: &ContainerInfo) -> String {
    let mut text = render::pairs([
        ("Container", container.id.to_string()),
        ("State", container.state.clone()),
        ("Replication", container.replication.clone()),
        ("Epoch", container.epoch.to_string()),
        ("Blocks", container.block_count.to_string()),
        ("Used", format!("{} ({} bytes)", render::bytes(container.used_bytes), container.used_bytes)),
        ("Reserved", format!("{} ({} bytes)", render::bytes(container.reserved_bytes), container.reserved_bytes)),
        ("Next block", container.next_local.to_string()),
        ("Opened", render::time(container.opened_ms)),
    ]);
    text.push('\n');
    let columns = [
        Column::Text("REPLICA ON"),
        Column::Text("ADDRESS"),
        Column::Text("STATE"),
        Column::Number("EPOCH"),
        Column::Number("BLOCKS"),
        Column::Number("USED"),
        Column::Text("MEMBER"),
        Column::Text("DIGEST"),
    ];
    let silent = container.members.iter().filter(|member| {
        let reported =
            |replica: &ReplicaInfo| replica.address.as_ref().is_some_and(|at| at.datanode == member.datanode);
        !container.replicas.iter().any(reported)
    });
    let silent = silent.map(|member| {
        let mut row = vec![uuid(&member.datanode), format!("{}:{}", member.host, member.data_port)];
        row.extend(["not reported", "-", "-", "-", "yes", "-"].map(str::to_owned));
        row
    });
    let reported = container.replicas.iter().map(|replica| {
        let address = replica.address.clone().unwrap_or_default();
        let digest = if replica.digest.is_empty() {
            "-".into()
        } else {
            hex::encode(&replica.digest[..8.min(replica.digest.len())])
        };
        vec![
            uuid(&address.datanode),
            format!("{}:{}", address.host, address.data_port),
            replica.state.clone(),
            replica.epoch.to_string(),
            replica.blocks.to_string(),
            render::bytes(replica.used),
            if replica.member { "yes".into() } else { "no".into() },
            digest,
        ]
    });
    text.push_str(&render::table(&columns, reported.chain(silent)));
    text
}

fn uuid(bytes: &[u8]) -> String {
    DatanodeId::from_slice(bytes).map_or_else(|_| hex::encode(bytes), |id| id.to_string())
}

/// A container as JSON has it; the names are Ozone's where it has the thing.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(rename = "containerID")]
    id: u64,
    state: String,
    replication: String,
    epoch: u32,
    used_bytes: u64,
    reserved_bytes: u64,
    number_of_blocks: u64,
    opened: String,
    members: Vec<String>,
    replicas: Vec<Replica>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Replica {
    datanode: String,
    host: String,
    port: u32,
    state: String,
    epoch: u32,
    used_bytes: u64,
    number_of_blocks: u64,
    member: bool,
    digest: String,
}

impl From<&ContainerInfo> for Container {
    fn from(container: &ContainerInfo) -> Self {
        let replicas = container.replicas.iter().map(|replica| {
            let address = replica.address.clone().unwrap_or_default();
            Replica {
                datanode: uuid(&address.datanode),
                host: address.host,
                port: address.data_port,
                state: replica.state.clone(),
                epoch: replica.epoch,
                used_bytes: replica.used,
                number_of_blocks: replica.blocks,
                member: replica.member,
                digest: hex::encode(&replica.digest),
            }
        });
        Self {
            id: container.id,
            state: container.state.clone(),
            replication: container.replication.clone(),
            epoch: container.epoch,
            used_bytes: container.used_bytes,
            reserved_bytes: container.reserved_bytes,
            number_of_blocks: container.block_count,
            opened: render::time(container.opened_ms),
            members: container.members.iter().map(|member| uuid(&member.datanode)).collect(),
            replicas: replicas.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ozone_client::proto::common::v1::NodeAddress;

    use super::*;

    #[test]
    fn members_that_have_not_reported_are_seen() {
        let node = |byte: u8| NodeAddress { datanode: vec![byte; 16].into(), host: "h".into(), data_port: byte.into() };
        let replica = ReplicaInfo {
            address: Some(node(1)),
            state: "OPEN".into(),
            epoch: 2,
            member: true,
            digest: vec![0xcd; 32].into(),
            ..Default::default()
        };
        let container = ContainerInfo {
            id: 7,
            state: "OPEN".into(),
            replication: "RATIS/THREE".into(),
            members: vec![node(1), node(2)],
            replicas: vec![replica],
            ..Default::default()
        };
        let text = describe(&container);
        let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("REPLICA")).skip(1).collect();
        assert!(
            rows[0].contains("h:1") && rows[0].contains("OPEN") && rows[0].ends_with("yes     cdcdcdcdcdcdcdcd"),
            "{text}"
        );
        assert!(rows[1].contains("h:2") && rows[1].contains("not reported"), "{text}");
        assert!(summary(std::slice::from_ref(&container)).lines().nth(1).unwrap().contains(" 1/2"));
        let json = serde_json::to_value(Container::from(&container)).unwrap();
        assert_eq!((json["containerID"].as_u64(), json["replicas"][0]["member"].as_bool()), (Some(7), Some(true)));
        assert!(container_id("0").is_err() && container_id("x").is_err() && container_id("#7").is_ok());
    }
}
