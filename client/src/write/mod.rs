//! Writing: bytes to blocks on all their replicas. Nothing is visible until the caller commits what [`KeyWriter::finish`] gave.
//!
//! ```text
//!   write ──▶ buffer ─┬─ finish: at most inline_max ──▶ in the commit itself
//!                     ├─ finish: at most 1 MiB ──▶ one frame to each replica (small)
//!                     └─ more ──▶ chunks to all replicas in parallel, block after block (block_writer)
//! ```
//! Promise: a block is given to the caller only when every datanode of its container's membership, as recorded under the
//! block's epoch, has acknowledged it as the bucket's durability says, and these are at least `min_replicas`.

mod block_writer;
mod gather;
mod key_writer;
mod small;

pub use key_writer::{KeyWriter, Written};

use ozone_common::{Error, ErrorCode};
use ozone_rpc::data::Target;

use crate::client::Client;
use crate::lease::BlockLease;

/// What a replica's failure says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blame {
    /// The datanode: avoid it for a while.
    Node,
    /// The container or its ids: closed, sealed by someone, tokens that ended. Use another.
    Container,
    /// Nobody: it is busy.
    Later,
    /// Us: no replica would answer otherwise.
    Caller,
}

fn blame(error: &Error) -> Blame {
    match error.code {
        ErrorCode::ContainerNotOpen
        | ErrorCode::ContainerNotFound
        | ErrorCode::StaleEpoch
        | ErrorCode::InvalidToken
        | ErrorCode::GrantExpired
        | ErrorCode::BlockDeleted => Blame::Container,
        ErrorCode::Overloaded => Blame::Later,
        ErrorCode::InvalidArgument | ErrorCode::TooLarge | ErrorCode::NotSupported => Blame::Caller,
        _ => Blame::Node,
    }
}

impl Client {
    /// Draws the conclusions of failures of a block's replicas. The error to give up with, where there is no point in
    /// another attempt.
    fn note_failures(&self, lease: &BlockLease, failed: &[(usize, Error)]) -> Result<(), Error> {
        for (index, error) in failed {
            match blame(error) {
                Blame::Node => {
                    if let Some(target) = lease.replicas.get(*index) {
                        self.avoid(target, error);
                    }
                }
                Blame::Container => self.inner.leases.forget(lease.block.container()),
                Blame::Later => {}
                Blame::Caller => return Err(error.clone()),
            }
        }
        Ok(())
    }

    fn avoid(&self, target: &Target, error: &Error) {
        if !self.inner.excluded.contains(target.datanode) {
            tracing::warn!(datanode = %target.datanode, error = %error, "writers avoid a datanode for a while");
        }
        self.inner.excluded.add(target.datanode);
    }
}
