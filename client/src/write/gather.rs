//! The answers of a block's replicas: all of them, or those that come within a bound of the first.

use std::future::Future;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use ozone_common::{Error, ErrorCode};
use tokio::time::{Instant, timeout_at};

/// What replicas answered, by their index.
pub(crate) struct Gathered<T> {
    pub done: Vec<(usize, T)>,
    pub failed: Vec<(usize, Error)>,
}

/// Waits for all `calls`. From the first success on, the others have `late`; what is missing then, or at `deadline`, failed.
///
/// cancel-safe: dropping it drops the calls.
pub(crate) async fn gather<T, F>(calls: Vec<(usize, F)>, late: Duration, deadline: Instant) -> Gathered<T>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut missing: Vec<usize> = calls.iter().map(|(index, _)| *index).collect();
    let mut waiting: FuturesUnordered<_> =
        calls.into_iter().map(|(index, call)| async move { (index, call.await) }).collect();
    let mut gathered = Gathered { done: Vec::with_capacity(missing.len()), failed: Vec::new() };
    let mut until = deadline;
    while !missing.is_empty() {
        let Ok(next) = timeout_at(until, waiting.next()).await else { break };
        let Some((index, outcome)) = next else { break };
        missing.retain(|waiting| *waiting != index);
        match outcome {
            Ok(value) => {
                if gathered.done.is_empty() {
                    until = until.min(Instant::now() + late);
                }
                gathered.done.push((index, value));
            }
            Err(error) => gathered.failed.push((index, error)),
        }
    }
    let why = if gathered.done.is_empty() { "no answer in time" } else { "much later than the other replicas" };
    gathered.failed.extend(missing.into_iter().map(|index| (index, Error::new(ErrorCode::DeadlineExceeded, why))));
    gathered
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn late_ones_fail_only_after_a_first_success() {
        let call = |ms: u64, good: bool| {
            async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                if good { Ok(ms) } else { Err(Error::internal("bad")) }
            }
            .boxed()
        };
        let late = Duration::from_millis(100);
        let start = Instant::now();
        let far = start + Duration::from_secs(60);
        let got = gather(vec![(0, call(50, true)), (1, call(60, true)), (2, call(9000, true))], late, far).await;
        assert!((150..3000).contains(&start.elapsed().as_millis()));
        assert_eq!(got.done.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(
            got.failed.iter().map(|(i, e)| (*i, e.code)).collect::<Vec<_>>(),
            [(2, ErrorCode::DeadlineExceeded)]
        );
        let got = gather(vec![(0, call(1, false)), (1, call(200, true))], late, far).await;
        assert_eq!((got.done.len(), got.failed.len()), (1, 1), "a failure starts no timer");
        let got = gather(vec![(0, call(5000, true))], late, Instant::now() + late).await;
        assert_eq!((got.done.len(), got.failed.len()), (0, 1));
        assert!(
            gather(Vec::<(usize, futures::future::Ready<Result<(), Error>>)>::new(), late, far).await.done.is_empty()
        );
    }
}
