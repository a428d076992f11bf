//! Logs of this process: `tracing` events, filtered, to stderr or a file.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::audit;
use super::file::RotatingFile;

/// The section `telemetry`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// What is logged, in the words of `RUST_LOG`: `info,ozone_om=debug`. The variable `RUST_LOG` wins where it is set.
    pub log_filter: String,
    /// Where logs go; stderr where absent. The file starts anew at 64 MiB, and four older ones are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_file: Option<PathBuf>,
    /// Where audit lines go; among the logs, under the target `audit`, where absent. Starts anew as the log file does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_file: Option<PathBuf>,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self { log_filter: "info".into(), log_file: None, audit_file: None }
    }
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error("`telemetry.log_filter` = `{filter}` is not valid: {source}; such as `info,ozone_om=debug`")]
    Filter {
        /// As given.
        filter: String,
        /// What the parser says.
        source: tracing_subscriber::filter::ParseError,
    },
    /// A file cannot be opened.
    #[error("cannot open `{}`: {source}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It was called before.
    #[error("logging of this process has started already")]
    Twice,
}

/// Starts the logs and the audit trail of this process, and logs panics before they end it.
///
/// # Errors
/// See [`TelemetryError`].
pub fn init(config: &TelemetryConfig) -> Result<(), TelemetryError> {
    static STARTED: OnceLock<()> = OnceLock::new();
    let asked = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let mut filter = asked.unwrap_or_else(|| config.log_filter.clone());
    if config.audit_file.is_some() && !filter.contains("audit") {
        filter.push_str(",audit=off"); // the lines have a file of their own
    }
    let parsed = EnvFilter::builder().parse(&filter).map_err(|source| TelemetryError::Filter { filter, source })?;
    let open =
        |path: &PathBuf| RotatingFile::open(path).map_err(|source| TelemetryError::Open { path: path.clone(), source });
    let log_file = config.log_file.as_ref().map(open).transpose()?;
    let audit_file = config.audit_file.as_ref().map(open).transpose()?;
    STARTED.set(()).map_err(|()| TelemetryError::Twice)?;

    let sink = match log_file {
        Some(file) => Sink::File(Arc::new(Mutex::new(file))),
        None => Sink::Stderr,
    };
    let logs = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(sink).with_ansi(false).finish();
    tracing::subscriber::set_global_default(logs).map_err(|_| TelemetryError::Twice)?;
    if let Some(file) = audit_file {
        audit::start_file(file);
    }
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!(panic = %panic, "a thread panicked");
        audit::flush_audit();
        default_hook(panic);
    }));
    Ok(())
}

#[derive(Clone)]
enum Sink {
    Stderr,
    File(Arc<Mutex<RotatingFile>>),
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl io::Write for Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stderr => io::stderr().write_all(line)?,
            // A log that cannot be written must not stop the service; the line is shown where somebody may see it.
            Self::File(file) => {
                if file.lock().append(line).is_err() {
                    io::stderr().write_all(line)?;
                }
            }
        }
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
