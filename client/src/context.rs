//! What every operation is told besides its arguments.

use std::sync::Arc;
use std::time::Duration;

use ozone_rpc::session::CallOptions;
use tokio::time::Instant;

/// On whose behalf an operation runs, under which id it is logged, and until when.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// For logs, from the gateway to the disk.
    pub request_id: Arc<str>,
    /// The user; `None` = the client's own.
    pub user: Option<Arc<str>>,
    /// Until when the outcome is of use. Streams look at it until their first byte; later each step has a bound of its
    /// own, so that a stream may last as long as its caller keeps it going.
    pub deadline: Instant,
}

impl CallContext {
    /// A context that ends in `timeout`.
    pub fn new(request_id: impl Into<Arc<str>>, user: Option<Arc<str>>, timeout: Duration) -> Self {
        Self { request_id: request_id.into(), user, deadline: Instant::now() + timeout }
    }

    /// The same with `timeout` from now on: for the commit at the end of a long upload.
    pub fn renewed(&self, timeout: Duration) -> Self {
        Self { deadline: Instant::now() + timeout, ..self.clone() }
    }

    pub(crate) fn options(&self) -> CallOptions {
        CallOptions { deadline: self.deadline, request_id: self.request_id.clone(), user: self.user.clone() }
    }
}
