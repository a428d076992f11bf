//! Pauses between attempts to reach an SCM.

use std::time::Duration;

use ozone_common::env::Rng;

/// A cluster that starts as a whole is up within a second: the first attempts come in quick succession.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// LIMIT: an SCM that was away is noticed within this.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Pauses that grow by a third from 20 ms to 2 s, so that each is about a quarter of the time waited so far; a quarter of each is random.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: PAUSE_MIN }
    }
}

impl Backoff {
    /// The pause before the next attempt.
    pub fn next(&mut self, rng: &dyn Rng) -> Duration {
        let pause = self.next;
        self.next = (pause * 4 / 3).min(PAUSE_MAX);
        pause * 3 / 4 + Duration::from_micros(rng.below(pause.as_micros() as u64 / 4 + 1))
    }
}

#[cfg(test)]
mod tests {
    use ozone_common::env::SeededRng;

    use super::*;

    #[test]
    fn the_first_attempts_are_quick_and_the_pauses_bounded() {
        let rng = SeededRng::new(1);
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..60).map(|_| backoff.next(&rng)).collect();
        assert!(pauses[0] <= PAUSE_MIN && pauses.iter().all(|pause| *pause <= PAUSE_MAX));
        let within = |limit: u64| {
            let mut sum = Duration::ZERO;
            pauses
                .iter()
                .take_while(|pause| {
                    sum += **pause;
                    sum < Duration::from_millis(limit)
                })
                .count()
        };
        assert!(within(300) >= 5, "{pauses:?}");
        assert!(pauses[59] >= PAUSE_MAX * 3 / 4);
    }
}
