//! What every long-running command needs of its process: a runtime, signals, and panics that end it.

use anyhow::Context;
use ozone_common::telemetry::{TelemetryConfig, flush_audit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// LIMIT: threads for calls that wait for a disk.
const BLOCKING_THREADS_MAX: usize = 256;

/// A runtime with a thread per core.
pub fn build() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .context("cannot start the runtime")
}

/// Starts logs. From then on a panic anywhere is logged and ends the process: a role that lost a task must not go on half.
pub fn start_logs(telemetry: &TelemetryConfig) -> anyhow::Result<()> {
    ozone_common::telemetry::init(telemetry)?;
    let logged = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        logged(panic);
        std::process::abort();
    }));
    Ok(())
}

/// Cancels the token at the first SIGTERM or SIGINT. Needs the runtime.
pub fn stop_on_signal(stop: &CancellationToken) -> anyhow::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = stop.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
            () = stop.cancelled() => return,
        };
        tracing::info!(signal = name, "stopping");
        stop.cancel();
    });
    Ok(())
}

/// Ends what a process leaves behind. The runtime's own threads hold nothing that is not safe on disk by now.
pub fn finish(runtime: Runtime) {
    runtime.shutdown_background();
    flush_audit();
}
