//! One role of a cluster in this process, until SIGTERM or SIGINT.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

/// Which role.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// The key-space manager.
    Om,
    /// The container manager.
    Scm,
    /// A datanode.
    Datanode,
    /// The S3 gateway.
    S3g,
}

/// Flags of a role's command.
#[derive(Args)]
pub struct RoleArgs {
    /// The settings file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Runs the role.
pub fn run(role: Role, args: &RoleArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("{role:?} of {}: this build has no role yet", args.config.display())
}
