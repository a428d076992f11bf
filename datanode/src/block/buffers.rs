//! Buffers of large reads, used again: a fresh one of a MiB costs as many page faults and zeroed bytes as the read itself.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes of one buffer.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;
/// LIMIT: buffers kept for later.
const IDLE_MAX: usize = 16;

/// Idle buffers.
#[derive(Default)]
pub(crate) struct Buffers {
    idle: Mutex<Vec<Vec<u8>>>,
}

/// A buffer in use.
struct Lent {
    bytes: Vec<u8>,
    length: usize,
    home: Weak<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let mut idle = home.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(std::mem::take(&mut self.bytes));
        }
    }
}

impl Buffers {
    /// `length` bytes that `fill` writes; what it gives instead of success is passed on. Small ones are allocated.
    pub(crate) fn fill<E>(
        self: &Arc<Self>,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        if length <= BUFFER_BYTES / 8 || length > BUFFER_BYTES {
            let mut bytes = vec![0; length];
            fill(&mut bytes)?;
            return Ok(bytes.into());
        }
        let bytes = self.idle.lock().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES]);
        let mut lent = Lent { bytes, length, home: Arc::downgrade(self) };
        fill(lent.bytes.get_mut(..length).unwrap_or_default())?;
        Ok(Bytes::from_owner(lent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_used_again_and_shows_only_what_was_filled() {
        let buffers = Arc::new(Buffers::default());
        let fill = |length: usize, byte: u8| {
            buffers.fill(length, |bytes| {
                bytes.fill(byte);
                Ok::<(), ()>(())
            })
        };
        let first = fill(BUFFER_BYTES, 7).unwrap();
        let at = first.as_ptr();
        drop(first);
        let second = fill(BUFFER_BYTES / 2, 9).unwrap();
        assert_eq!((second.as_ptr(), second.len()), (at, BUFFER_BYTES / 2));
        assert!(second.iter().all(|byte| *byte == 9));
        let failed = buffers.fill(BUFFER_BYTES, |_| Err("no"));
        assert_eq!(failed.unwrap_err(), "no");
        assert_eq!(fill(10, 1).unwrap().len(), 10);
    }
}
