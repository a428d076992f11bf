//! `ozone admin datanode`.

use anyhow::Result;
use clap::{Subcommand, ValueEnum};
use ozone_client::proto::scm::v1::{ListNodes, NodeInfo};
use ozone_common::id::DatanodeId;
use serde::Serialize;

use crate::connect::{ClusterArgs, Needs};
use crate::render::{self, Column, Output};

/// Operations on datanodes.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Lists the datanodes that ever registered
    List {
        /// Only the datanode of this id
        #[arg(long, value_name = "UUID")]
        id: Option<DatanodeId>,
        /// Only those of this health
        #[arg(long, visible_alias = "node-state", value_enum, ignore_case = true, value_name = "STATE")]
        health: Option<Health>,
    },
}

/// How a datanode is, by its heartbeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Health {
    /// It reports
    Healthy,
    /// It was silent for a while; nothing new is placed on it
    Stale,
    /// Its replicas count as lost
    Dead,
}

impl Command {
    /// Runs the command.
    pub fn run(self, cluster: &ClusterArgs, output: Output) -> Result<()> {
        let Self::List { id, health } = self;
        cluster.run(Needs::Scm, None, async |at| {
            let mut nodes = at.client.scm()?.list_nodes(&at.context(), ListNodes {}).await?.nodes;
            nodes.retain(|node| {
                let same = health.is_none_or(|health| format!("{health:?}").eq_ignore_ascii_case(&node.health));
                same && id.is_none_or(|id| uuid(node) == id.to_string())
            });
            let json: Vec<_> = nodes.iter().map(Node::from).collect();
            Ok(output.show(&json, || describe(&nodes))?)
        })
    }
}

fn uuid(node: &NodeInfo) -> String {
    let bytes = node.address.as_ref().map(|address| address.datanode.clone()).unwrap_or_default();
    DatanodeId::from_slice(&bytes).map_or_else(|_| hex::encode(&bytes), |id| id.to_string())
}

fn place(node: &NodeInfo) -> String {
    node.address.as_ref().map_or_else(|| "-".into(), |address| format!("{}:{}", address.host, address.data_port))
}

fn describe(nodes: &[NodeInfo]) -> String {
    let columns = [
        Column::Text("DATANODE"),
        Column::Text("ADDRESS"),
        Column::Text("HEALTH"),
        Column::Text("OPERATION"),
        Column::Number("LAST HEARD"),
        Column::Number("CONTAINERS"),
        Column::Number("USED"),
        Column::Number("FREE"),
        Column::Number("DISKS"),
        Column::Number("CORRUPT"),
    ];
    render::table(
        &columns,
        nodes.iter().map(|node| {
            let sum =
                |of: fn(&ozone_client::proto::scm::v1::DiskVolumeReport) -> u64| node.volumes.iter().map(of).sum();
            let failed = node.volumes.iter().filter(|volume| volume.failed).count();
            let disks = match failed {
                0 => node.volumes.len().to_string(),
                failed => format!("{} ({failed} failed)", node.volumes.len()),
            };
            vec![
                uuid(node),
                place(node),
                node.health.clone(),
                node.operation.clone(),
                format!("{:.1} s ago", node.last_heartbeat_ms as f64 / 1000.0),
                node.containers.to_string(),
                render::bytes(sum(|volume| volume.used)),
                render::bytes(sum(|volume| volume.available)),
                disks,
                node.corrupt_blocks.to_string(),
            ]
        }),
    )
}

/// A datanode as JSON has it; the names are Ozone's where it has the thing.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    id: String,
    host_name: String,
    port: u32,
    health_state: String,
    op_state: String,
    /// Milliseconds since the last heartbeat.
    last_heartbeat_age_ms: u64,
    containers: u32,
    corrupt_blocks: u64,
    version: String,
    volumes: Vec<Volume>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    id: String,
    capacity: u64,
    used: u64,
    available: u64,
    failed: bool,
}

impl From<&NodeInfo> for Node {
    fn from(node: &NodeInfo) -> Self {
        let address = node.address.clone().unwrap_or_default();
        let volumes = node.volumes.iter().map(|volume| Volume {
            id: DatanodeId::from_slice(&volume.volume)
                .map_or_else(|_| hex::encode(&volume.volume), |id| id.to_string()),
            capacity: volume.capacity,
            used: volume.used,
            available: volume.available,
            failed: volume.failed,
        });
        Self {
            id: uuid(node),
            host_name: address.host,
            port: address.data_port,
            health_state: node.health.clone(),
            op_state: node.operation.clone(),
            last_heartbeat_age_ms: node.last_heartbeat_ms,
            containers: node.containers,
            corrupt_blocks: node.corrupt_blocks,
            version: node.version.clone(),
            volumes: volumes.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ozone_client::proto::common::v1::NodeAddress;
    use ozone_client::proto::scm::v1::DiskVolumeReport;

    use super::*;

    #[test]
    fn a_datanode_for_people_and_programs() {
        let volume = DiskVolumeReport { used: 1 << 20, available: 3 << 30, capacity: 4 << 30, ..Default::default() };
        let node = NodeInfo {
            address: Some(NodeAddress { datanode: vec![0xab; 16].into(), host: "10.0.0.1".into(), data_port: 9859 }),
            health: "HEALTHY".into(),
            operation: "IN_SERVICE".into(),
            last_heartbeat_ms: 350,
            volumes: vec![volume.clone(), DiskVolumeReport { failed: true, ..volume }],
            containers: 4,
            ..Default::default()
        };
        let text = describe(std::slice::from_ref(&node));
        let row: Vec<&str> =
            text.lines().nth(1).unwrap().split("  ").map(str::trim).filter(|t| !t.is_empty()).collect();
        assert_eq!(
            row,
            [
                "abababab-abab-abab-abab-abababababab",
                "10.0.0.1:9859",
                "HEALTHY",
                "IN_SERVICE",
                "0.3 s ago",
                "4",
                "2.00 MiB",
                "6.00 GiB",
                "2 (1 failed)",
                "0"
            ]
        );
        let json = serde_json::to_value(Node::from(&node)).unwrap();
        assert_eq!((&json["healthState"], &json["opState"]), (&"HEALTHY".into(), &"IN_SERVICE".into()));
        assert_eq!(json["volumes"][1]["failed"], true);
    }
}
