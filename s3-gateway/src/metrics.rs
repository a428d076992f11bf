//! What is counted of requests. Handles are made once, so that counting costs a few additions.

use http::StatusCode;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::route::Op;

/// How a request ended, as a label.
const RESULTS: [&str; 3] = ["ok", "client_error", "server_error"];

struct OfOne {
    results: [Counter; 3],
    seconds: Histogram,
}

/// Counters of every operation, and of requests that did not get as far as one.
pub(crate) struct Metrics {
    ops: Vec<OfOne>,
    none: OfOne,
    /// Connections being served.
    pub connections: Gauge,
}

impl Metrics {
    /// Registers them; to be called once metrics are installed.
    pub fn new() -> Self {
        let of = |op: &'static str| OfOne {
            results: RESULTS.map(|result| counter!("ozone_s3g_requests_total", "op" => op, "result" => result)),
            seconds: histogram!("ozone_s3g_request_seconds", "op" => op),
        };
        Self {
            ops: Op::ALL.iter().map(|op| of(op.name())).collect(),
            none: of("none"),
            connections: gauge!("ozone_s3g_connections"),
        }
    }

    /// Counts a request whose status is known. The time does not hold that of sending a body.
    pub fn count(&self, op: Option<Op>, status: StatusCode, seconds: f64) {
        let of = op.and_then(|op| self.ops.get(op as usize)).unwrap_or(&self.none);
        let result = match status.as_u16() {
            500.. => 2,
            400.. => 1,
            _ => 0,
        };
        of.results[result].increment(1);
        of.seconds.record(seconds);
    }
}
