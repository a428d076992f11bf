//! What a run says about itself, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

use crate::drive::{Load, Measured, Totals};

/// A run and its figures. JSON has these names.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `ockg`, `ockv` or `s3kg`.
    pub test: &'static str,
    /// Operations at the same time.
    pub threads: u32,
    /// Bytes of a key.
    pub size: u64,
    /// How long it ran.
    pub seconds: f64,
    /// By kind of operation, then `ALL` where there are several.
    pub operations: Vec<Operation>,
    /// Operations that failed.
    pub errors: u64,
    /// The first messages of those.
    pub first_errors: Vec<String>,
    /// What the cluster's processes used, then `total` where there are several.
    pub processes: Vec<ProcessUsage>,
    /// CPU seconds of the load generator itself.
    pub load_cpu_seconds: f64,
}

/// Figures of one kind of operation.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// Its kind.
    pub name: String,
    /// How many succeeded.
    pub count: u64,
    /// How many failed.
    pub errors: u64,
    /// Keys touched.
    pub items: u64,
    /// Successes a second.
    pub per_second: f64,
    /// Keys touched a second.
    pub items_per_second: f64,
    /// Content a second.
    pub mib_per_second: f64,
    /// Latencies, milliseconds.
    pub latency_ms: Latency,
}

/// Latencies, milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// Exceeded by one in twenty.
    pub p95: f64,
    /// Exceeded by one in a hundred.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// What a process used in the run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessUsage {
    /// Its role.
    pub role: String,
    /// User and system time.
    pub cpu_seconds: f64,
    /// The same for one operation that succeeded, microseconds.
    pub cpu_us_per_operation: f64,
    /// The same for one key touched, microseconds.
    pub cpu_us_per_item: f64,
    /// The same for one GiB of content moved, seconds; 0 where none was.
    pub cpu_seconds_per_gib: f64,
    /// Resident at the end, bytes.
    pub resident: u64,
    /// Resident at most since it began, bytes.
    pub resident_peak: u64,
}

impl Report {
    /// Makes figures of what was measured.
    pub fn new(test: &'static str, load: &Load, size: u64, measured: &Measured) -> Self {
        let seconds = measured.elapsed.as_secs_f64().max(1e-9);
        let mut operations: Vec<_> =
            measured.operations.iter().map(|(name, totals)| Operation::new(name, totals, seconds)).collect();
        let mut all = Totals::default();
        for totals in measured.operations.values() {
            all.latencies.add(&totals.latencies);
            all.errors += totals.errors;
            all.items += totals.items;
            all.bytes += totals.bytes;
        }
        if operations.len() > 1 {
            operations.push(Operation::new("ALL", &all, seconds));
        }
        let per = |cpu: f64, count: f64| if count > 0.0 { cpu / count } else { 0.0 };
        let process = |role: &str, cpu_seconds: f64, resident, resident_peak| ProcessUsage {
            role: role.to_owned(),
            cpu_seconds,
            cpu_us_per_operation: per(cpu_seconds * 1e6, all.latencies.count() as f64),
            cpu_us_per_item: per(cpu_seconds * 1e6, all.items as f64),
            cpu_seconds_per_gib: per(cpu_seconds, all.bytes as f64 / (1u64 << 30) as f64),
            resident,
            resident_peak,
        };
        let used = &measured.processes;
        let mut processes: Vec<_> = used
            .iter()
            .map(|(role, usage)| process(role, usage.cpu_seconds, usage.resident, usage.resident_peak))
            .collect();
        if used.len() > 1 {
            let sum = |of: fn(&crate::cpu::Usage) -> u64| used.iter().map(|(_, usage)| of(usage)).sum();
            let cpu = used.iter().map(|(_, usage)| usage.cpu_seconds).sum();
            processes.push(process("total", cpu, sum(|usage| usage.resident), sum(|usage| usage.resident_peak)));
        }
        Self {
            test,
            threads: load.threads,
            size,
            seconds,
            operations,
            errors: all.errors,
            first_errors: measured.messages.clone(),
            processes,
            load_cpu_seconds: measured.own.cpu_seconds,
        }
    }

    /// The figures for people.
    pub fn text(&self) -> String {
        let Self { test, threads, size, seconds, .. } = self;
        let mut text = format!("{test}: {threads} threads, {size} bytes a key, {seconds:.2} s\n\n");
        let mut line = |arguments: std::fmt::Arguments<'_>| {
            text.write_fmt(arguments).expect("writing to a String does not fail");
            text.push('\n');
        };
        line(format_args!(
            "{:<11} {:>9} {:>7} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "OPERATION", "COUNT", "ERRORS", "PER S", "MIB/S", "MEAN MS", "P50", "P95", "P99", "MAX"
        ));
        for op in &self.operations {
            let Latency { mean, p50, p95, p99, max } = op.latency_ms;
            line(format_args!(
                "{:<11} {:>9} {:>7} {:>10.1} {:>9.2} {mean:>9.2} {p50:>9.2} {p95:>9.2} {p99:>9.2} {max:>9.2}",
                op.name, op.count, op.errors, op.per_second, op.mib_per_second
            ));
        }
        for op in self.operations.iter().filter(|op| op.items != op.count) {
            line(format_args!("{:<11} {:>9} keys, {:.1} a second", op.name, op.items, op.items_per_second));
        }
        line(format_args!(""));
        if !self.processes.is_empty() {
            line(format_args!(
                "{:<11} {:>9} {:>9} {:>10} {:>9} {:>9} {:>9}",
                "PROCESS", "CPU S", "US/OP", "US/KEY", "S/GIB", "RSS MIB", "PEAK MIB"
            ));
        }
        for process in &self.processes {
            line(format_args!(
                "{:<11} {:>9.2} {:>9.1} {:>10.2} {:>9.2} {:>9} {:>9}",
                process.role,
                process.cpu_seconds,
                process.cpu_us_per_operation,
                process.cpu_us_per_item,
                process.cpu_seconds_per_gib,
                process.resident >> 20,
                process.resident_peak >> 20,
            ));
        }
        line(format_args!("load itself {:>9.2}", self.load_cpu_seconds));
        for message in &self.first_errors {
            line(format_args!("error: {message}"));
        }
        text
    }
}

impl Operation {
    fn new(name: &str, totals: &Totals, seconds: f64) -> Self {
        let latencies = &totals.latencies;
        let quantile = |share| latencies.quantile_us(share) as f64 / 1000.0;
        Self {
            name: name.to_owned(),
            count: latencies.count(),
            errors: totals.errors,
            items: totals.items,
            per_second: latencies.count() as f64 / seconds,
            items_per_second: totals.items as f64 / seconds,
            mib_per_second: totals.bytes as f64 / seconds / (1u64 << 20) as f64,
            latency_ms: Latency {
                mean: latencies.mean_us() / 1000.0,
                p50: quantile(0.5),
                p95: quantile(0.95),
                p99: quantile(0.99),
                max: latencies.max_us() as f64 / 1000.0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::cpu::Usage;
    use crate::drive::Processes;

    #[test]
    fn figures_follow_from_what_was_measured() {
        let mut totals = Totals { items: 4, bytes: 4 << 20, errors: 1, ..Totals::default() };
        for ms in [1, 2, 3, 4] {
            totals.latencies.record(Duration::from_millis(ms));
        }
        let usage = Usage { cpu_seconds: 0.5, resident: 10 << 20, resident_peak: 20 << 20 };
        let measured = Measured {
            elapsed: Duration::from_secs(2),
            operations: BTreeMap::from([("PUT", totals.clone()), ("GET", totals)]),
            messages: vec!["PUT: no".into()],
            processes: vec![("om".into(), usage), ("scm".into(), usage)],
            own: usage,
        };
        let load = Load { threads: 3, number_of_tests: 8, duration: None, pids: Processes::default(), errors_max: 1 };
        let report = Report::new("s3kg", &load, 1 << 20, &measured);
        let names: Vec<_> = report.operations.iter().map(|op| op.name.as_str()).collect();
        assert_eq!(names, ["GET", "PUT", "ALL"]);
        let all = &report.operations[2];
        assert_eq!((all.count, all.errors, all.per_second, all.mib_per_second), (8, 2, 4.0, 4.0));
        assert_eq!((all.latency_ms.mean, all.latency_ms.max), (2.5, 4.0));
        let total = &report.processes[2];
        assert_eq!((total.role.as_str(), total.cpu_seconds, total.cpu_us_per_operation), ("total", 1.0, 125_000.0));
        assert_eq!((total.cpu_seconds_per_gib, total.resident), (128.0, 20 << 20));
        let text = report.text();
        for part in ["s3kg: 3 threads", "\nPUT ", "\ntotal ", "error: PUT: no"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["operations"][0]["latencyMs"]["p50"], 2.015, "a bucket's upper end");
    }

    #[test]
    fn nothing_measured_is_no_division() {
        let load = Load { threads: 1, number_of_tests: 0, duration: None, pids: Processes::default(), errors_max: 1 };
        let report = Report::new("ockg", &load, 0, &Measured::default());
        assert!(report.operations.is_empty() && report.text().contains("ockg"));
    }
}
