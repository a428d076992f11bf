//! Numbers that only grow.

use bytes::Bytes;
use ozone_kvstore::{Batch, Read, Result, Table};

use super::number;

/// Name → the last number used (8 bytes).
pub const SEQUENCES: Table = Table("sequence");

/// What is numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sequence {
    /// Container ids.
    Container,
    /// Delete transactions.
    DeleteTransaction,
    /// The OM's queue position whose deletes were last taken over.
    OmDelete,
}

impl Sequence {
    const fn key(self) -> &'static [u8] {
        match self {
            Self::Container => b"container",
            Self::DeleteTransaction => b"delete_transaction",
            Self::OmDelete => b"om_delete",
        }
    }

    /// The last number used; 0 before the first.
    pub fn last(self, view: &dyn Read) -> Result<u64> {
        view.get(SEQUENCES, self.key())?.map_or(Ok(0), |bytes| number(SEQUENCES, &bytes))
    }

    pub(crate) fn set(self, batch: &mut Batch, last: u64) {
        batch.put(SEQUENCES, Bytes::from_static(self.key()), last.to_be_bytes().to_vec());
    }
}
