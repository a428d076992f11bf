//! `ozone init`: the identity and secret of a new cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ozone_cluster::{Settings, new_secret};
use ozone_common::config::Sources;
use ozone_common::env::Env;
use ozone_common::peer::save_secret;

use crate::render::PEOPLE;

/// Flags of `ozone init`.
#[derive(Args)]
pub struct InitArgs {
    /// The settings file, which names the secret file (`cluster.secret_file`).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Makes the secret file where there is none.
pub fn run(args: &InitArgs) -> anyhow::Result<ExitCode> {
    let settings = Settings::load(&Sources::of_process(Some(args.config.clone())))?;
    let path = settings.cluster.secret_file;
    anyhow::ensure!(!path.exists(), "`{}` is there already: it stays as it is", path.display());
    let secret = new_secret(&Env::system());
    save_secret(&path, &secret)?;
    PEOPLE.line(format_args!(
        "cluster {}: its secret is in `{}`; copy the file to every machine of the cluster",
        secret.cluster,
        path.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}
