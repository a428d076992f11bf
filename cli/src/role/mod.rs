//! One role of a cluster in this process, until SIGTERM or SIGINT.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use ozone_cluster::{Role, Settings, start_role};
use ozone_common::config::Sources;
use ozone_common::env::Env;
use ozone_common::peer::load_secret;
use tokio_util::sync::CancellationToken;

use crate::runtime;

/// Flags of a role's command.
#[derive(Args)]
pub struct RoleArgs {
    /// The settings file. What is absent from it has a default; the role's folder is made at the first start.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A setting that wins over the file and the environment, such as `om.rpc_bind=127.0.0.1:9862`; can be repeated.
    #[arg(long, value_name = "SECTION.KEY=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,
}

/// Splits `section.key=value`.
pub fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if name.contains('.') => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form section.key=value")),
    }
}

/// Runs the role.
pub fn run(role: Role, args: &RoleArgs) -> anyhow::Result<ExitCode> {
    let file = Some(args.config.clone());
    let settings = Settings::load(&Sources { flags: args.set.clone(), ..Sources::of_process(file) })?;
    let secret_file = &settings.cluster.secret_file;
    let secret = load_secret(secret_file).with_context(|| {
        format!(
            "every role of a cluster needs the same secret file; `ozone init --config {}` makes a new cluster's",
            args.config.display()
        )
    })?;
    runtime::start_logs(&settings.telemetry)?;
    let runtime = runtime::build()?;
    let outcome = runtime.block_on(async {
        let asked = CancellationToken::new();
        runtime::stop_on_signal(&asked)?;
        // A role that fails cancels its own token only.
        let stop = asked.child_token();
        let ended = start_role(role, &settings, settings.datanode.clone(), secret, Env::system(), stop).await?;
        ended.await.map_err(|error| anyhow::anyhow!("{role}: {error}"))?;
        anyhow::ensure!(asked.is_cancelled(), "{role} stopped by itself; its log says why");
        Ok(ExitCode::SUCCESS)
    });
    runtime::finish(runtime);
    outcome
}
