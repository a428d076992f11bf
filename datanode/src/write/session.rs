//! The blocks that one connection has open, and the order of their chunks. Pure.
//!
//! ```text
//!   open ──▶ chunk at 0 ──▶ chunk at the end so far … ──▶ finish at the length sent
//!     └──────────┴─────────────────┴──▶ abandoned, or the connection ends
//! ```
//! Invariants: a block has one writer, the connection that opened it; its chunks leave no gap and none overlaps; only the
//! last may end within a checksum window; a block never exceeds its token's length; open blocks are bounded.
//!
//! A chunk is judged when it arrives, while those before it may still be on their way to the disk. So the store judges
//! again by what it holds: a chunk after one that failed does not continue there.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ozone_common::id::BlockId;
use ozone_common::limits::{BLOCK_LENGTH_MAX, BYTES_PER_CHECKSUM};
use ozone_common::{Error, ErrorCode, Result};

/// A block open on this connection; `W` is what the store writes it with.
struct Open<W> {
    writer: W,
    length: u64,
    length_max: u64,
}

/// All blocks open on a connection.
pub(crate) struct Session<W> {
    open: BTreeMap<BlockId, Open<W>>,
    open_max: usize,
}

impl<W> Session<W> {
    /// Of a fresh connection.
    pub fn new(open_max: usize) -> Self {
        Self { open: BTreeMap::new(), open_max }
    }

    /// Whether `block` may be opened: asked before the store is.
    ///
    /// # Errors
    /// `InvalidBlock` where it is open here already, `Overloaded` where too many are.
    pub fn may_open(&self, block: BlockId) -> Result<()> {
        if self.open.contains_key(&block) {
            return Err(Error::new(
                ErrorCode::InvalidBlock,
                format!("block {block} is open on this connection already"),
            ));
        }
        if self.open.len() >= self.open_max {
            let text = format!("{} blocks are open on this connection; finish or abandon some", self.open_max);
            return Err(Error::new(ErrorCode::Overloaded, text));
        }
        Ok(())
    }

    /// `block` was opened in the store.
    pub fn opened(&mut self, block: BlockId, length_max: u64, writer: W) {
        let length_max = length_max.min(BLOCK_LENGTH_MAX);
        self.open.insert(block, Open { writer, length: 0, length_max });
    }

    /// Takes a chunk of `length` bytes at `offset`, and gives what to write it with.
    ///
    /// # Errors
    /// `BlockNotFound`: not open here. `OutOfOrder`: not where the block ends. `InvalidArgument`: no bytes. `TooLarge`: beyond the token's length.
    pub fn chunk(&mut self, block: BlockId, offset: u64, length: usize) -> Result<&mut W> {
        let open = self.open.get_mut(&block).ok_or_else(|| not_open(block))?;
        let refuse = |code, text: String| Err(Error::new(code, format!("block {block}: {text}")));
        if offset != open.length {
            return refuse(ErrorCode::OutOfOrder, format!("a chunk at {offset} where it ends at {}", open.length));
        }
        if !open.length.is_multiple_of(BYTES_PER_CHECKSUM as u64) {
            return refuse(ErrorCode::OutOfOrder, "a chunk after one that ended within a checksum window".to_owned());
        }
        if length == 0 {
            return refuse(ErrorCode::InvalidArgument, "a chunk without bytes".to_owned());
        }
        let end = offset.saturating_add(length as u64);
        if end > open.length_max {
            return refuse(ErrorCode::TooLarge, format!("{end} bytes; it may have {}", open.length_max));
        }
        open.length = end;
        Ok(&mut open.writer)
    }

    /// Ends a block at `length`. It is no longer open then.
    ///
    /// # Errors
    /// `BlockNotFound`: not open here. `OutOfOrder`: another length than was sent; it stays open.
    pub fn finish(&mut self, block: BlockId, length: u64) -> Result<W> {
        match self.open.entry(block) {
            Entry::Vacant(_) => Err(not_open(block)),
            Entry::Occupied(open) if open.get().length != length => {
                let sent = open.get().length;
                let text = format!("block {block} cannot end at {length}: {sent} bytes of it were sent");
                Err(Error::new(ErrorCode::OutOfOrder, text))
            }
            Entry::Occupied(open) => Ok(open.remove().writer),
        }
    }

    /// Gives a block up; `None` where it is not open here.
    pub fn abandon(&mut self, block: BlockId) -> Option<W> {
        self.open.remove(&block).map(|open| open.writer)
    }

    /// All that are open, at the connection's end.
    pub fn into_open(self) -> impl Iterator<Item = W> {
        self.open.into_values().map(|open| open.writer)
    }
}

fn not_open(block: BlockId) -> Error {
    Error::new(ErrorCode::BlockNotFound, format!("block {block} is not open on this connection"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: u64 = BYTES_PER_CHECKSUM as u64;

    fn block(local: u32) -> BlockId {
        ozone_common::id::ContainerId::new(1).unwrap().block(local).unwrap()
    }

    fn code<T>(outcome: Result<T>) -> Option<ErrorCode> {
        outcome.err().map(|error| error.code)
    }

    #[test]
    fn chunks_continue_where_the_block_ends_and_nowhere_else() {
        let mut session = Session::new(2);
        session.opened(block(1), 3 * WINDOW, ());
        let mut chunk = |offset, length| code(session.chunk(block(1), offset, length).map(|_| ()));
        assert_eq!(chunk(WINDOW, 1), Some(ErrorCode::OutOfOrder));
        assert_eq!(chunk(0, 0), Some(ErrorCode::InvalidArgument));
        assert_eq!(chunk(0, 3 * WINDOW as usize + 1), Some(ErrorCode::TooLarge));
        assert_eq!(chunk(0, WINDOW as usize), None);
        assert_eq!(chunk(0, WINDOW as usize), Some(ErrorCode::OutOfOrder), "sent twice");
        assert_eq!(chunk(WINDOW, 5), None);
        assert_eq!(chunk(WINDOW + 5, 5), Some(ErrorCode::OutOfOrder), "only the last may end within a window");
        assert_eq!(chunk(u64::MAX, 1), Some(ErrorCode::OutOfOrder));
        assert_eq!(code(session.finish(block(1), WINDOW)), Some(ErrorCode::OutOfOrder));
        assert_eq!(code(session.finish(block(1), WINDOW + 5)), None);
        assert_eq!(code(session.finish(block(1), WINDOW + 5)), Some(ErrorCode::BlockNotFound));
        assert_eq!(code(session.chunk(block(1), WINDOW + 5, 1)), Some(ErrorCode::BlockNotFound));
    }

    #[test]
    fn open_blocks_are_bounded_and_one_writers_own() {
        let mut session = Session::new(2);
        for local in [1, 2] {
            session.may_open(block(local)).unwrap();
            session.opened(block(local), u64::MAX, local);
        }
        assert_eq!(code(session.may_open(block(1))), Some(ErrorCode::InvalidBlock));
        assert_eq!(code(session.may_open(block(3))), Some(ErrorCode::Overloaded));
        assert_eq!((session.abandon(block(1)), session.abandon(block(1))), (Some(1), None));
        session.may_open(block(3)).unwrap();
        assert_eq!(session.into_open().collect::<Vec<_>>(), [2]);
    }

    proptest! {
        /// Against the simplest model: whatever is taken is exactly what a vector of bytes would have taken by appending.
        #[test]
        fn what_is_taken_has_no_gap(chunks in prop::collection::vec((0..5_u64, 0..3_u64, 0..2_usize), 0..60)) {
            let mut session = Session::new(1);
            session.opened(block(1), 6 * WINDOW, ());
            let (mut end, mut ragged) = (0, false);
            for (windows, length, odd) in chunks {
                let (offset, length) = (windows * WINDOW, length as usize * WINDOW as usize + odd);
                let fits = offset == end && !ragged && length > 0 && offset + length as u64 <= 6 * WINDOW;
                prop_assert_eq!(session.chunk(block(1), offset, length).is_ok(), fits);
                if fits {
                    end += length as u64;
                    ragged = odd > 0;
                }
            }
            prop_assert!(session.finish(block(1), end).is_ok());
        }
    }
}
