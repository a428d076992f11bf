//! A bound on the memory that bodies take, whatever the number of connections.

use std::sync::Arc;
use std::time::Duration;

use ozone_common::config::ByteSize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{S3Code, S3Error, S3Result};

const UNIT: u64 = 4 << 10;

/// Memory for bodies on their way.
pub(crate) struct Memory {
    units: Arc<Semaphore>,
    all: u64,
    wait: Duration,
}

/// Part of it, given back when dropped.
pub(crate) struct Reservation {
    _permit: OwnedSemaphorePermit,
}

impl Memory {
    /// `size` in all; whoever needs some waits at most `wait`.
    pub fn new(size: ByteSize, wait: Duration) -> Self {
        let all = (size.get() / UNIT).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize) as u64);
        Self { units: Arc::new(Semaphore::new(all as usize)), all, wait }
    }

    /// Takes `bytes`, at most all there is; waits, in order of asking, until others have given theirs back.
    ///
    /// # Errors
    /// `SlowDown` where that takes too long.
    pub async fn reserve(&self, bytes: u64) -> S3Result<Reservation> {
        let units = bytes.div_ceil(UNIT).clamp(1, self.all) as u32;
        if let Ok(permit) = self.units.clone().try_acquire_many_owned(units) {
            return Ok(Reservation { _permit: permit });
        }
        metrics::counter!("ozone_s3g_memory_waits_total").increment(1);
        match tokio::time::timeout(self.wait, self.units.clone().acquire_many_owned(units)).await {
            Ok(Ok(permit)) => Ok(Reservation { _permit: permit }),
            Ok(Err(_)) | Err(_) => {
                Err(S3Error::new(S3Code::SlowDown, "too many bodies are on their way; try again later"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_taken_waits_for_what_is_given_back() {
        let memory = Memory::new(ByteSize::mib(1), Duration::from_millis(10));
        let all = memory.reserve(u64::MAX).await.unwrap();
        assert_eq!(memory.reserve(1).await.err().unwrap().code, S3Code::SlowDown);
        let (taken, ()) = tokio::join!(memory.reserve(1), async { drop(all) });
        taken.unwrap();
    }
}
