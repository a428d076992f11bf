//! `ozone admin`: the state of the cluster, for whoever runs it.

mod container;
mod datanode;
mod managers;
mod safemode;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::connect::ClusterArgs;
use crate::render::Output;

/// What the parser knows about `ozone admin`.
#[derive(Args, Debug)]
pub struct Admin {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Whether new blocks can be had after a start
    #[command(subcommand)]
    Safemode(safemode::Command),
    /// Datanodes
    #[command(subcommand)]
    Datanode(datanode::Command),
    /// Containers and their replicas
    #[command(subcommand)]
    Container(container::Command),
    /// The key-space manager
    #[command(subcommand)]
    Om(managers::Om),
    /// The container manager
    #[command(subcommand)]
    Scm(managers::Scm),
}

impl Admin {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode> {
        let output = self.output;
        let done = match self.command {
            Command::Safemode(command) => command.run(&self.cluster, output),
            Command::Datanode(command) => command.run(&self.cluster, output),
            Command::Container(command) => command.run(&self.cluster, output),
            Command::Om(command) => command.run(&self.cluster, output),
            Command::Scm(command) => command.run(&self.cluster, output),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
