//! Metrics of this process, in Prometheus' text form.
//!
//! One recorder serves every role of the process; names say which role counts (`ozone_<role>_…`). Histograms keep their
//! samples until they are folded into buckets, which [`render_metrics`] does, and else a thread every few seconds.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// How often samples are folded into buckets.
const FOLD_INTERVAL: Duration = Duration::from_secs(5);

/// Bounds of latency histograms (`…_seconds`).
const SECONDS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// Bounds of histograms of sizes (`…_bytes`): 256 B to 1 GiB.
const BYTES: [f64; 12] = [
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
];
/// Bounds of all other histograms: counts, such as of a batch.
const COUNTS: [f64; 13] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0];

static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Makes this process count. Further calls do nothing.
pub fn install_metrics() {
    HANDLE.get_or_init(|| {
        let recorder = PrometheusBuilder::new()
            .set_buckets(&COUNTS)
            .and_then(|b| b.set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS))
            .and_then(|b| b.set_buckets_for_metric(Matcher::Suffix("_bytes".into()), &BYTES))
            .expect("the bounds are not empty")
            .build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another recorder counts this process's metrics; `/metrics` will be empty");
            return None;
        }
        let fold = handle.clone();
        let folding = std::thread::Builder::new().name("metrics".into()).stack_size(128 << 10).spawn(move || {
            loop {
                std::thread::sleep(FOLD_INTERVAL);
                fold.run_upkeep();
            }
        });
        if let Err(error) = folding {
            tracing::error!(%error, "no thread to fold metrics; they are folded when read");
        }
        Some(handle)
    });
}

/// All metrics, with the process's own (CPU seconds, resident bytes, threads, open files).
pub fn render_metrics() -> String {
    let mut text = HANDLE.get().and_then(Option::as_ref).map(PrometheusHandle::render).unwrap_or_default();
    let own = process();
    for (name, kind, value) in [
        ("process_cpu_seconds_total", "counter", own.cpu_seconds),
        ("process_resident_memory_bytes", "gauge", own.resident_bytes),
        ("process_threads", "gauge", own.threads),
        ("process_open_fds", "gauge", own.open_files),
    ] {
        if let Some(value) = value {
            writeln!(text, "# TYPE {name} {kind}\n{name} {value}").expect("writing to a String does not fail");
        }
    }
    text
}

/// What the kernel knows of this process; `None` where `/proc` does not say.
struct Process {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<f64>,
    threads: Option<f64>,
    open_files: Option<f64>,
}

fn process() -> Process {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<f64>().ok()
    };
    Process {
        cpu_seconds: Some(usage.tv_sec as f64 + usage.tv_nsec as f64 / 1e9),
        resident_bytes: field("VmRSS:").map(|kib| kib * 1024.0),
        threads: field("Threads:"),
        open_files: std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_counted_and_rendered_with_the_process_own() {
        install_metrics();
        install_metrics();
        metrics::counter!("ozone_test_things_total").increment(3);
        metrics::histogram!("ozone_test_wait_seconds").record(0.003);
        metrics::histogram!("ozone_test_value_bytes").record(5000.0);
        metrics::histogram!("ozone_test_batch_calls").record(3.0);
        let text = render_metrics();
        for line in [
            "ozone_test_things_total 3",
            "ozone_test_wait_seconds_bucket{le=\"0.0025\"} 0",
            "ozone_test_wait_seconds_bucket{le=\"0.005\"} 1",
            "ozone_test_value_bytes_bucket{le=\"16384\"} 1",
            "ozone_test_batch_calls_bucket{le=\"4\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        let value = |name: &str| -> f64 {
            text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')).unwrap().parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e5);
        assert!(value("process_cpu_seconds_total") > 0.0);
        assert!(value("process_threads") >= 2.0);
        assert!(value("process_open_fds") >= 3.0);
    }
}
