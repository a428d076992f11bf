//! Pauses between attempts.

use std::time::Duration;

use ozone_common::Error;
use ozone_common::env::Rng;
use tokio::time::Instant;

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Grows from 10 ms to 1 s, half of it random.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// Sleeps before the next attempt after `error`; gives the error back where the deadline would pass meanwhile.
    pub(crate) async fn pause(&mut self, error: Error, deadline: Instant, rng: &dyn Rng) -> Result<(), Error> {
        let pause = self.next(error.retry_after_ms, rng);
        if Instant::now() + pause >= deadline {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    pub(crate) fn next(&mut self, hint_ms: Option<u32>, rng: &dyn Rng) -> Duration {
        let base = (PAUSE_MIN * 2_u32.pow(self.attempts.min(10))).min(PAUSE_MAX);
        self.attempts += 1;
        let base = hint_ms.map_or(base, |ms| base.max(Duration::from_millis(u64::from(ms)).min(PAUSE_MAX * 5)));
        base / 2 + Duration::from_micros(rng.below(base.as_micros() as u64 / 2 + 1))
    }
}
