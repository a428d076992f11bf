//! What the leader does on its own: free what was deleted, end grants whose time is over.
//!
//! Each loop plans from the rows, does a bounded step and sleeps until there is work: a hint, the time at which something falls due, or a
//! slow look that finds what a lost hint would have told. Followers only sleep.

pub mod grant_expiry;
pub mod key_purge;
pub mod part_reclaim;

use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::core::Hint;

/// How long a loop sleeps at most: hints may be lost, leadership may come.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// First pause after a failure; doubles from there,
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// up to this.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Wakes the loops.
#[derive(Debug, Default)]
pub struct Wakers {
    deleted: Notify,
    parts: Notify,
    grants: Notify,
}

impl Wakers {
    /// Passes a hint on.
    pub fn wake(&self, hint: Hint) {
        match hint {
            Hint::Deleted => self.deleted.notify_one(),
            Hint::DeletedParts => self.parts.notify_one(),
            Hint::Grants => self.grants.notify_one(),
        }
    }
}

/// What a step of a loop found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// There may be more to do at once.
    Again,
    /// Nothing before so many milliseconds have passed.
    After(u64),
    /// Nothing until a hint.
    Idle,
}

/// Runs `step` until `shutdown`, sleeping as it says.
async fn run<F: Future<Output = Result<Step, ozone_common::Error>>>(
    what: &'static str,
    waker: &Notify,
    shutdown: CancellationToken,
    mut step: impl FnMut() -> F,
) {
    let mut backoff = BACKOFF_MIN;
    loop {
        let sleep = match step().await {
            Ok(next) => {
                backoff = BACKOFF_MIN;
                match next {
                    Step::Again => Duration::ZERO,
                    Step::After(ms) => Duration::from_millis(ms).min(SLEEP_MAX),
                    Step::Idle => SLEEP_MAX,
                }
            }
            Err(error) => {
                // At most one line a pause, and pauses grow.
                tracing::warn!(%error, what, retry_ms = backoff.as_millis() as u64, "background work failed");
                let pause = backoff;
                backoff = (backoff * 2).min(BACKOFF_MAX);
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(pause) => continue,
                }
            }
        };
        if shutdown.is_cancelled() {
            return;
        }
        if !sleep.is_zero() {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = waker.notified() => {}
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }
}
