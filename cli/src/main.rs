//! The program `ozone`: every role and every tool. Called as `ozone-sh` it is `ozone sh`.

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

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Om(args) => role::run(role::Role::Om, &args),
        Command::Scm(args) => role::run(role::Role::Scm, &args),
        Command::Datanode(args) => role::run(role::Role::Datanode, &args),
        Command::S3g(args) => role::run(role::Role::S3g, &args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ozone: {error:#}");
            ExitCode::FAILURE
        }
    }
}
