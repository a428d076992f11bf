//! `ozone config`: the settings file.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use ozone_cluster::Settings;
use ozone_common::config::{Definition, Sources, render};

/// What the parser knows about `ozone config`.
#[derive(Args, Debug)]
pub struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Prints a settings file in which every setting is explained and commented out
    Default,
    /// Says whether a settings file, with this environment, is one that roles would start with
    Check {
        /// The file
        file: PathBuf,
    },
}

const CLUSTER: &str = include_str!("../../cluster/src/settings.rs");
const CLIENT: &str = include_str!("../../client/src/config.rs");

/// Where each section is defined and described.
const DEFINITIONS: [Definition<'static>; 11] = [
    Definition { section: "", name: "Settings", source: CLUSTER },
    Definition { section: "cluster", name: "ClusterConfig", source: CLUSTER },
    Definition { section: "security", name: "SecurityConfig", source: include_str!("../../common/src/config/mod.rs") },
    Definition {
        section: "telemetry",
        name: "TelemetryConfig",
        source: include_str!("../../common/src/telemetry/log.rs"),
    },
    Definition { section: "om", name: "Config", source: include_str!("../../om/src/config.rs") },
    Definition { section: "scm", name: "Config", source: include_str!("../../scm/src/config.rs") },
    Definition { section: "datanode", name: "Config", source: include_str!("../../datanode/src/config.rs") },
    Definition { section: "s3", name: "Config", source: include_str!("../../s3-gateway/src/config.rs") },
    Definition { section: "s3.client", name: "Tuning", source: CLIENT },
    Definition { section: "client", name: "ClientConfig", source: CLUSTER },
    Definition { section: "client.tuning", name: "Tuning", source: CLIENT },
];

/// Sections that no person writes.
const HIDDEN: [&str; 1] = ["dev"];

const HEAD: &str = "\
# Settings of O3. A role reads its own section and the shared ones; one file may serve all. Every line that begins with `#` and a
# name shows the default. Sizes are numbers of bytes or such as \"256MiB\", times numbers of seconds or such as \"1500ms\".
# A variable OZONE__OM__RPC_BIND overrides `rpc_bind` of `[om]`, and flags override variables.

";

impl Config {
    /// Runs the command.
    pub fn run(&self) -> Result<ExitCode> {
        match &self.command {
            Command::Default => {
                let text = default_file()?;
                io::stdout().write_all(text.as_bytes())?;
            }
            Command::Check { file } => {
                Settings::load(&Sources::of_process(Some(file.clone())))?;
                writeln!(io::stdout(), "{} is valid", file.display())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn default_file() -> Result<String> {
    Ok(HEAD.to_owned() + &render(&Settings::default(), &DEFINITIONS, &HIDDEN)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ozone_common::config::parse;

    use super::*;

    #[test]
    fn every_setting_is_explained_and_its_default_is_the_default() {
        let text = default_file().unwrap();
        let read = |text: &str| parse::<Settings>(Path::new("ozone.toml"), text).unwrap();
        assert_eq!(read(&text), Settings::default(), "as printed it changes nothing");
        let setting = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.contains(" = ");
        assert!(text.lines().filter(setting).count() > 60, "{text}");
        let uncommented: String = text
            .lines()
            .map(|line| if setting(&line) { &line[1..] } else { line })
            .flat_map(|line| [line, "\n"])
            .collect();
        assert_eq!(read(&uncommented), Settings::default(), "each value is the default");
        assert!(!text.contains("security_enabled") && !text.contains("[dev]"), "{text}");
    }
}
