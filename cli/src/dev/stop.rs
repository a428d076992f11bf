//! Stopping.

use std::path::Path;
use std::process::ExitCode;

use ozone_cluster::{Home, stop};
use ozone_common::env::Env;

use crate::render::PEOPLE;
use crate::runtime;

/// Stops what runs in the folder.
pub fn run(data: &Path) -> anyhow::Result<ExitCode> {
    let home = Home::open(data, &Env::system())?;
    if !home.is_running()? {
        PEOPLE.line(format_args!("no cluster runs in {}", home.path().display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let pids = home.pids()?;
    let running: Vec<String> = pids.alive().map(|(role, process)| format!("{role}={}", process.pid)).collect();
    anyhow::ensure!(!running.is_empty(), "the cluster of `{}` is starting; try again", home.path().display());
    runtime::build()?.block_on(stop(&pids))?;
    PEOPLE.line(format_args!("stopped {}", running.join(" ")))?;
    Ok(ExitCode::SUCCESS)
}
