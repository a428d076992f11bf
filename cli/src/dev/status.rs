//! How a cluster is.

use std::path::Path;
use std::process::ExitCode;

use ozone_cluster::{Health, Home, Role, Settings, ask};
use ozone_common::config::Sources;
use ozone_common::env::Env;
use serde::Serialize;

use crate::render::{self, Column, Output};
use crate::runtime;

/// Exit code where no process of the cluster runs.
const NOT_RUNNING: u8 = 3;

/// One role, as JSON has it.
#[derive(Serialize)]
struct RoleStatus {
    role: String,
    /// `null` where it does not live.
    pid: Option<u32>,
    address: String,
    http_address: String,
    ready: bool,
    health: String,
}

/// Tells it.
pub fn run(data: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let env = Env::system();
    let home = Home::open(data, &env)?;
    let running = home.is_running()?;
    let settings = Settings::load(&Sources { file: Some(home.settings()), ..Sources::default() })?;
    let pids = home.pids()?;
    let runtime = runtime::build()?;
    let mut roles = Vec::new();
    for role in Role::all(settings.dev.datanodes) {
        let process = pids.of(&role.to_string()).filter(|process| running && process.is_alive());
        let (address, http_address) = settings.addresses(role);
        let health = match process {
            Some(_) => runtime.block_on(ask(&http_address)),
            None => Health::Silent("it does not run".into()),
        };
        roles.push(RoleStatus {
            role: role.to_string(),
            pid: process.map(|process| process.pid),
            address,
            http_address,
            ready: health == Health::Ready,
            health: health.to_string(),
        });
    }
    Output { json }.show(&roles, || {
        let columns = ["ROLE", "PID", "ADDRESS", "HTTP", "HEALTH"].map(Column::Text);
        let rows = roles.iter().map(|role| {
            let pid = role.pid.map_or("-".to_owned(), |pid| pid.to_string());
            vec![role.role.clone(), pid, role.address.clone(), role.http_address.clone(), role.health.clone()]
        });
        render::table(&columns, rows)
    })?;
    Ok(match roles {
        roles if roles.iter().all(|role| role.ready) => ExitCode::SUCCESS,
        roles if roles.iter().all(|role| role.pid.is_none()) => ExitCode::from(NOT_RUNNING),
        _ => ExitCode::FAILURE,
    })
}
