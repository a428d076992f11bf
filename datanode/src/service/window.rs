//! Credit for blocks written in chunks: how many bytes of each may be on their way into the store.
//!
//! Windows are shared out of one sum, so that writers together never hold more memory than it, however many connections
//! they have. Nothing is refused in the middle of a block: whoever opened it has its window.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ozone_common::{Error, ErrorCode, Result};
use parking_lot::Mutex;

/// A window that a writer gets while there is plenty: keeps a disk busy while answers travel.
const WINDOW_MAX: usize = 4 << 20;
/// A window that is still worth having: one chunk.
const WINDOW_MIN: usize = 1 << 20;
/// Part of what is free that one writer gets at most.
const SHARE: usize = 64;

/// The sum.
pub(crate) struct Windows {
    free: Mutex<usize>,
    total: usize,
}

/// A writer's window; given back when dropped, which its chunks on their way delay.
pub(crate) struct Window {
    windows: Arc<Windows>,
    bytes: usize,
    on_the_way: AtomicUsize,
}

impl Windows {
    /// `total` bytes to share.
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(total), total })
    }

    /// Takes a window.
    ///
    /// # Errors
    /// `Overloaded` where too little is free.
    pub fn take(self: &Arc<Self>) -> Result<Arc<Window>> {
        let mut free = self.free.lock();
        if *free < WINDOW_MIN {
            let text = format!("{} bytes of blocks are being written, as many as may be", self.total);
            return Err(Error::new(ErrorCode::Overloaded, text));
        }
        let bytes = (*free / SHARE).clamp(WINDOW_MIN, WINDOW_MAX);
        *free -= bytes;
        drop(free);
        Ok(Arc::new(Window { windows: self.clone(), bytes, on_the_way: AtomicUsize::new(0) }))
    }
}

impl Window {
    /// Its size.
    pub fn bytes(&self) -> u32 {
        u32::try_from(self.bytes).unwrap_or(u32::MAX)
    }

    /// A chunk arrived; [`Window::answered`] follows. A single chunk may be larger than the window.
    ///
    /// # Errors
    /// `Overloaded` where the writer goes beyond its window.
    pub fn arrived(&self, length: usize) -> Result<()> {
        let before = self.on_the_way.fetch_add(length, Ordering::Relaxed);
        if before > 0 && before + length > self.bytes {
            self.answered(length);
            let text =
                format!("{before} bytes are on their way; with {length} more the window of {} is exceeded", self.bytes);
            return Err(Error::new(ErrorCode::Overloaded, text));
        }
        Ok(())
    }

    /// A chunk was answered.
    pub fn answered(&self, length: usize) {
        self.on_the_way.fetch_sub(length, Ordering::Relaxed);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        *self.windows.free.lock() += self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_shrink_as_the_sum_is_used_and_come_back() {
        let windows = Windows::new(256 << 20);
        let mut taken = Vec::new();
        while let Ok(window) = windows.take() {
            taken.push(window);
        }
        let sizes: Vec<u32> = taken.iter().map(|window| window.bytes()).collect();
        assert!(sizes[0] == 4 << 20 && sizes.is_sorted_by(|a, b| a >= b) && *sizes.last().unwrap() == 1 << 20);
        assert!(sizes.iter().map(|size| *size as usize).sum::<usize>() <= 256 << 20);
        assert_eq!(windows.take().err().unwrap().code, ErrorCode::Overloaded);
        taken.pop();
        windows.take().unwrap();
        drop(taken);
        assert_eq!(*windows.free.lock(), 256 << 20);
    }

    #[test]
    fn a_writer_keeps_to_its_window_but_may_always_send_one_chunk() {
        let window = Windows::new(8 << 20).take().unwrap();
        assert_eq!(window.bytes(), 1 << 20);
        window.arrived(3 << 20).unwrap();
        assert_eq!(window.arrived(1).unwrap_err().code, ErrorCode::Overloaded);
        window.answered(3 << 20);
        window.arrived(1 << 19).unwrap();
        window.arrived(1 << 19).unwrap();
        assert!(window.arrived(1).is_err());
    }
}
