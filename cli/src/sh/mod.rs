//! `ozone sh`, also called `ozone-sh`: volumes, buckets and keys, in the words of Ozone's shell.

mod bucket;
mod delete;
mod file;
mod get;
mod key;
mod list;
mod put;
mod volume;

use std::process::ExitCode;

use anyhow::Result;
pub use bucket::{DurabilityArg, InlineArg};
use clap::{Args, Subcommand};

use crate::address::Address;
use crate::connect::{ClusterArgs, Connection, Needs};
use crate::render::Output;

/// What the parser knows about `ozone sh`.
#[derive(Args, Debug)]
pub struct Shell {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Volumes: the top level of the namespace
    #[command(subcommand, visible_alias = "vol")]
    Volume(volume::Command),
    /// Buckets of a volume
    #[command(subcommand)]
    Bucket(bucket::Command),
    /// Keys of a bucket, and their bytes
    #[command(subcommand)]
    Key(key::Command),
}

impl Shell {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode> {
        let output = self.output;
        let done = match self.command {
            Command::Volume(command) => command.run(&self.cluster, output),
            Command::Bucket(command) => command.run(&self.cluster, output),
            Command::Key(command) => command.run(&self.cluster, output),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

/// Runs `command` at the OM that the address names, or else the configured one.
fn at<F, T>(cluster: &ClusterArgs, address: &Address, command: impl FnOnce(Connection) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    cluster.run(Needs::Om, address.om.as_deref(), command)
}
