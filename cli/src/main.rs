//! The program `ozone`: every role and every tool. Called as `ozone-sh` it is `ozone sh`.
//!
//! Each subcommand is a module that gives its flags and `run`, which returns the exit code; an error is one line on stderr
//! and one of the codes of [`exit`].

mod address;
mod admin;
mod completion;
mod config;
mod connect;
mod dev;
mod exit;
mod freon;
mod init;
mod progress;
mod render;
mod role;
mod runtime;
mod s3;
mod sh;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ozone_cluster::Role;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// O3: a distributed object store.
#[derive(Parser)]
#[command(name = "ozone", version, propagate_version = true, arg_required_else_help = true, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The shell of O3: volumes, buckets and keys.
#[derive(Parser)]
#[command(name = "ozone-sh", version, propagate_version = true, arg_required_else_help = true, after_help = exit::HELP)]
struct ShellCli {
    #[command(flatten)]
    shell: sh::Shell,
}

#[derive(Subcommand)]
enum Command {
    /// Starts a whole cluster on this machine; stops it; tells how it is.
    Dev(dev::DevArgs),
    /// Makes the identity and secret of a new cluster.
    Init(init::InitArgs),
    /// Runs the key-space manager.
    Om(role::RoleArgs),
    /// Runs the container manager.
    Scm(role::RoleArgs),
    /// Runs a datanode.
    Datanode(role::RoleArgs),
    /// Runs the S3 gateway.
    S3g(role::RoleArgs),
    /// Works with volumes, buckets and keys.
    Sh(sh::Shell),
    /// Shows the state of the cluster.
    Admin(admin::Admin),
    /// Manages the secrets with which users sign S3 requests.
    S3(s3::S3),
    /// Makes load of known kinds and says what it cost.
    Freon(freon::Freon),
    /// Prints the commented default of the settings file; checks one.
    Config(config::Config),
    /// Prints what a shell must know to complete the command line.
    Completion(completion::Completion),
}

impl Command {
    fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Dev(args) => dev::run(&args),
            Self::Init(args) => init::run(&args),
            Self::Om(args) => role::run(Role::Om, &args),
            Self::Scm(args) => role::run(Role::Scm, &args),
            Self::Datanode(args) => role::run(Role::Datanode(1), &args),
            Self::S3g(args) => role::run(Role::S3g, &args),
            Self::Sh(shell) => shell.run(),
            Self::Admin(admin) => admin.run(),
            Self::S3(s3) => s3.run(),
            Self::Freon(freon) => freon.run(),
            Self::Config(config) => config.run(),
            Self::Completion(completion) => completion.run(|program| match program {
                completion::Program::Ozone => Cli::command(),
                completion::Program::OzoneSh => ShellCli::command(),
            }),
        }
    }
}

fn main() -> ExitCode {
    let called_as = std::env::args_os().next().unwrap_or_default();
    let (program, outcome) = match Path::new(&called_as).file_name() {
        Some(name) if name == "ozone-sh" => ("ozone-sh", ShellCli::parse().shell.run()),
        _ => ("ozone", Cli::parse().command.run()),
    };
    outcome.unwrap_or_else(|error| exit::report(program, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
        ShellCli::command().debug_assert();
    }
}
