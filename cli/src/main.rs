//! The program `ozone`: every role and every tool. Called as `ozone-sh` it is `ozone sh`.
//!
//! Each subcommand is a module that gives its flags and `run`, which returns the exit code; an error is one line on stderr.

mod role;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// O3: a distributed object store.
#[derive(Parser)]
#[command(name = "ozone", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the key-space manager.
    Om(role::RoleArgs),
    /// Runs the container manager.
    Scm(role::RoleArgs),
    /// Runs a datanode.
    Datanode(role::RoleArgs),
    /// Runs the S3 gateway.
    S3g(role::RoleArgs),
}

impl Command {
    fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Om(args) => role::run(role::Role::Om, args),
            Self::Scm(args) => role::run(role::Role::Scm, args),
            Self::Datanode(args) => role::run(role::Role::Datanode, args),
            Self::S3g(args) => role::run(role::Role::S3g, args),
        }
    }
}

fn main() -> ExitCode {
    Cli::parse().command.run().unwrap_or_else(|error| {
        eprintln!("ozone: {error:#}");
        ExitCode::FAILURE
    })
}
