//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);

/// Tries until `attempt` gives something.
///
/// # Panics
/// When the deadline passes: with what was waited for.
pub fn within<T>(limit: Duration, what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(POLL);
    }
}

/// [`within`] a minute, for what takes far less.
pub fn eventually<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    within(Duration::from_secs(60), what, attempt)
}
