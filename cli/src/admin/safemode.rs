//! `ozone admin safemode`.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Subcommand;
use ozone_client::proto::scm::v1::{SafeModeReply, SafeModeStatus};
use ozone_common::config::TimeSpan;
use serde::Serialize;
use tokio::time::Instant;

use crate::connect::{self, ClusterArgs, Connection, Needs};
use crate::render::{self, Column, Output};

/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Operations on safe mode.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Says whether the SCM is in safe mode, and what keeps it there
    Status {
        /// Show the rules when it is out of safe mode too
        #[arg(short, long)]
        verbose: bool,
    },
    /// Waits until the SCM is out of safe mode; fails where that takes too long
    Wait {
        /// How long to wait
        #[arg(short = 't', long = "wait-timeout", value_name = "TIME", default_value = "30s")]
        limit: TimeSpan,
    },
}

impl Command {
    /// Runs the command.
    pub fn run(self, cluster: &ClusterArgs, output: Output) -> Result<()> {
        cluster.run(Needs::Scm, None, async |at| match self {
            Self::Status { verbose } => {
                let reply = ask(&at).await?;
                Ok(output.show(&SafeMode::from(&reply), || describe(&reply, verbose))?)
            }
            Self::Wait { limit } => {
                let reply = wait(&at, connect::deadline(limit)).await?;
                output.show(&SafeMode::from(&reply), || describe(&reply, false))?;
                if reply.in_safe_mode {
                    bail!("still in safe mode after {limit}");
                }
                Ok(())
            }
        })
    }
}

async fn ask(at: &Connection) -> Result<SafeModeReply> {
    Ok(at.client.scm()?.safe_mode_status(&at.context(), SafeModeStatus {}).await?)
}

async fn wait(at: &Connection, until: Instant) -> Result<SafeModeReply> {
    loop {
        let reply = ask(at).await?;
        if !reply.in_safe_mode || Instant::now() >= until {
            return Ok(reply);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn describe(reply: &SafeModeReply, verbose: bool) -> String {
    let mut text = match reply.in_safe_mode {
        true => "SCM is in safe mode.\n".to_owned(),
        false => "SCM is out of safe mode.\n".to_owned(),
    };
    if verbose || reply.in_safe_mode {
        let columns = [Column::Text("RULE"), Column::Text("MET"), Column::Text("STATE")];
        text.push_str(&render::table(
            &columns,
            reply.rules.iter().map(|rule| {
                let met = if rule.satisfied { "yes" } else { "no" };
                vec![rule.name.clone(), met.to_owned(), rule.status.clone()]
            }),
        ));
    }
    text
}

/// Safe mode as JSON has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SafeMode<'a> {
    in_safe_mode: bool,
    rules: Vec<Rule<'a>>,
}

#[derive(Serialize)]
struct Rule<'a> {
    name: &'a str,
    satisfied: bool,
    status: &'a str,
}

impl<'a> From<&'a SafeModeReply> for SafeMode<'a> {
    fn from(reply: &'a SafeModeReply) -> Self {
        let rules = reply
            .rules
            .iter()
            .map(|rule| Rule { name: &rule.name, satisfied: rule.satisfied, status: &rule.status })
            .collect();
        Self { in_safe_mode: reply.in_safe_mode, rules }
    }
}

#[cfg(test)]
mod tests {
    use ozone_client::proto::scm::v1::SafeModeRule;

    use super::*;

    #[test]
    fn what_holds_it_is_shown() {
        let rule = SafeModeRule { name: "datanodes".into(), satisfied: false, status: "1 of 3".into() };
        let held = SafeModeReply { in_safe_mode: true, rules: vec![rule.clone()] };
        let text = "SCM is in safe mode.\nRULE       MET  STATE\ndatanodes  no   1 of 3\n";
        assert_eq!(describe(&held, false), text);
        let out = SafeModeReply { in_safe_mode: false, rules: vec![SafeModeRule { satisfied: true, ..rule }] };
        assert_eq!(describe(&out, false), "SCM is out of safe mode.\n");
        assert!(describe(&out, true).contains("yes"));
        assert_eq!(serde_json::to_value(SafeMode::from(&held)).unwrap()["inSafeMode"], true);
    }
}
