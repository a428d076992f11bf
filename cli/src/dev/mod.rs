//! `ozone dev`: a whole cluster on this machine.

mod start;
mod status;
mod stop;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ozone_cluster::{DATANODES_MAX, Ports, Spec};

/// Flags of `ozone dev`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DevArgs {
    #[command(subcommand)]
    command: Option<DevCommand>,
    #[command(flatten)]
    start: StartArgs,
}

#[derive(Subcommand)]
enum DevCommand {
    /// Stops the cluster of a folder and waits until it has ended.
    Stop(HomeArgs),
    /// Tells of each role whether it lives and serves. Exits with 0 where all do, 1 where some do not, 3 where nothing runs.
    Status {
        #[command(flatten)]
        home: HomeArgs,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct HomeArgs {
    /// The cluster's folder [default: ~/.ozone].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Starts a cluster: an OM, an SCM, datanodes and an S3 gateway, in the foreground until Ctrl-C.
#[derive(Args)]
struct StartArgs {
    #[command(flatten)]
    home: HomeArgs,
    /// How many datanodes [default: as at the last start, at first 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(DATANODES_MAX)))]
    datanodes: Option<u32>,
    /// Each role in a process of its own.
    #[arg(long)]
    processes: bool,
    /// Returns once the cluster serves and leaves it running.
    #[arg(long)]
    detach: bool,
    /// A further setting, such as `scm.stale_after=5s`; kept in the folder's `ozone.toml`; can be repeated.
    #[arg(long, value_name = "SECTION.KEY=VALUE", value_parser = crate::role::parse_setting)]
    set: Vec<(String, String)>,
    /// The process that `--detach` leaves behind.
    #[arg(long, hide = true)]
    detached: bool,
    #[command(flatten)]
    ports: PortArgs,
}

/// Ports of the roles. For each: 0 = any free one; without the flag, that of the last start. At a first start the S3 gateway
/// takes its own and the others theirs where they are free.
#[derive(Args)]
#[command(next_help_heading = "Ports (0 = any free one; otherwise as at the last start, at first the well-known ones)")]
struct PortArgs {
    /// The S3 gateway [at first: 9878].
    #[arg(long, value_name = "P")]
    s3_port: Option<u16>,
    /// Its metrics and health.
    #[arg(long, value_name = "P")]
    s3_http_port: Option<u16>,
    /// The OM [at first: 9862].
    #[arg(long, value_name = "P")]
    om_port: Option<u16>,
    /// Its metrics and health.
    #[arg(long, value_name = "P")]
    om_http_port: Option<u16>,
    /// The SCM [at first: 9860].
    #[arg(long, value_name = "P")]
    scm_port: Option<u16>,
    /// Its metrics and health.
    #[arg(long, value_name = "P")]
    scm_http_port: Option<u16>,
    /// The first datanode; the others take the ports after it.
    #[arg(long, value_name = "P")]
    datanode_port: Option<u16>,
    /// Metrics and health of the first datanode, likewise.
    #[arg(long, value_name = "P")]
    datanode_http_port: Option<u16>,
}

impl HomeArgs {
    fn path(&self) -> anyhow::Result<PathBuf> {
        match (&self.data, std::env::home_dir()) {
            (Some(path), _) => Ok(path.clone()),
            (None, Some(home)) => Ok(home.join(".ozone")),
            (None, None) => anyhow::bail!("this user has no home folder: give a folder with --data"),
        }
    }
}

impl StartArgs {
    fn spec(&self) -> anyhow::Result<Spec> {
        let ports = &self.ports;
        Ok(Spec {
            data: self.home.path()?,
            datanodes: self.datanodes,
            ports: Ports {
                s3: ports.s3_port,
                s3_http: ports.s3_http_port,
                om: ports.om_port,
                om_http: ports.om_http_port,
                scm: ports.scm_port,
                scm_http: ports.scm_http_port,
                datanode: ports.datanode_port,
                datanode_http: ports.datanode_http_port,
            },
            set: self.set.clone(),
        })
    }
}

/// Runs the command.
pub fn run(args: &DevArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(DevCommand::Stop(home)) => stop::run(&home.path()?),
        Some(DevCommand::Status { home, json }) => status::run(&home.path()?, *json),
        None if args.start.detach && !args.start.detached => start::detach(),
        None => start::run(&args.start),
    }
}
