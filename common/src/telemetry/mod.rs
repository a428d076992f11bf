//! What a process tells about itself: logs, the audit trail, metrics.
//!
//! Logs are for operators (structured, filtered as `RUST_LOG` does). The audit trail is one line per change and per
//! denial, apart from the logs. Metrics are counted through the `metrics` crate and rendered on demand.

mod audit;
mod file;
mod log;
mod metrics;
mod rate;

pub use audit::{Outcome, Record, audit, flush_audit};
pub use log::{TelemetryConfig, TelemetryError, init};
pub use metrics::{install_metrics, render_metrics};
pub use rate::RateLimit;
