//! `ozone admin om` and `ozone admin scm`: the groups that keep names and containers.

use anyhow::Result;
use clap::Subcommand;
use ozone_client::proto::{om::v1 as om, scm::v1 as scm};
use ozone_common::id::ClusterId;
use serde::Serialize;

use crate::connect::{ClusterArgs, Needs};
use crate::render::{self, Output};

/// Operations on the key-space manager.
#[derive(Subcommand, Debug)]
pub enum Om {
    /// Shows the group's state, and whether new blocks can be had
    Status,
}

/// Operations on the container manager.
#[derive(Subcommand, Debug)]
pub enum Scm {
    /// Shows the group's state
    Status,
}

impl Om {
    /// Runs the command.
    pub fn run(self, cluster: &ClusterArgs, output: Output) -> Result<()> {
        let Self::Status = self;
        cluster.run(Needs::Om, None, async |at| {
            let reply = at.client.om_status(&at.context(), om::Status {}).await?;
            let status = Status {
                cluster: cluster_id(&reply.cluster),
                leader: reply.leader,
                term: reply.term,
                applied: reply.applied,
                members: reply.members,
                writable: Some(reply.writable),
                writable_reason: (!reply.writable).then_some(reply.writable_reason),
            };
            Ok(output.show(&status, || status.describe())?)
        })
    }
}

impl Scm {
    /// Runs the command.
    pub fn run(self, cluster: &ClusterArgs, output: Output) -> Result<()> {
        let Self::Status = self;
        cluster.run(Needs::Scm, None, async |at| {
            let reply = at.client.scm()?.status(&at.context(), scm::Status {}).await?;
            let status = Status {
                cluster: cluster_id(&reply.cluster),
                leader: reply.leader,
                term: reply.term,
                applied: reply.applied,
                members: reply.members,
                writable: None,
                writable_reason: None,
            };
            Ok(output.show(&status, || status.describe())?)
        })
    }
}

fn cluster_id(bytes: &[u8]) -> String {
    ClusterId::from_slice(bytes).map_or_else(|_| hex::encode(bytes), |id| id.to_string())
}

/// State of a group, as JSON has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(rename = "clusterID")]
    cluster: String,
    leader: bool,
    term: u64,
    applied: u64,
    members: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    writable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writable_reason: Option<String>,
}

impl Status {
    fn describe(&self) -> String {
        let role = if self.leader { "LEADER" } else { "FOLLOWER" };
        let mut pairs = vec![
            ("Cluster", self.cluster.clone()),
            ("Answered by", role.to_owned()),
            ("Term", self.term.to_string()),
            ("Applied", self.applied.to_string()),
            ("Members", self.members.to_string()),
        ];
        match (self.writable, &self.writable_reason) {
            (Some(true), _) => pairs.push(("Writable", "yes".to_owned())),
            (Some(false), reason) => {
                pairs.push(("Writable", format!("no: {}", reason.as_deref().unwrap_or("no reason is given"))));
            }
            (None, _) => {}
        }
        render::pairs(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_takes_no_writes_says_why() {
        let status = Status {
            cluster: cluster_id(&[0x11; 16]),
            leader: true,
            term: 3,
            applied: 99,
            members: 1,
            writable: Some(false),
            writable_reason: Some("the SCM is in safe mode".into()),
        };
        assert_eq!(
            status.describe(),
            "Cluster      11111111-1111-1111-1111-111111111111\n\
             Answered by  LEADER\n\
             Term         3\n\
             Applied      99\n\
             Members      1\n\
             Writable     no: the SCM is in safe mode\n"
        );
    }
}
