//! Registration of datanodes.
//!
//! A restart ends the epoch of a datanode's open containers (it recovered their tails and takes no more appends), so another incarnation
//! closes every open container that it is a member of, in the same batch. New ones are opened at the next allocation.

use ozone_consensus::executor::Stamp;
use ozone_kvstore::{Batch, Read, Result};

use super::{Hint, Outcome, Reply};
use crate::tables::container::{self, ContainerState, Phase};
use crate::tables::node::{self, Node};

pub(super) fn register(view: &dyn Read, stamp: Stamp, mut node: Node) -> Result<Outcome> {
    let before = node::get(view, node.id)?;
    node.registered_ms = before.as_ref().map_or(stamp.now_ms, |before| before.registered_ms);
    let (mut rows, mut closed) = (Batch::new(), Vec::new());
    if before.as_ref() != Some(&node) {
        node.put(&mut rows);
    }
    if before.is_some_and(|before| before.incarnation != node.incarnation) {
        for phase in [Phase::Filling, Phase::Spent] {
            for before in container::in_phase(view, phase, None)? {
                if before.has(node.id) {
                    let after = container::Container { state: ContainerState::Closing, ..before.clone() };
                    after.put(&mut rows, Some(&before));
                    closed.push(before.id);
                }
            }
        }
    }
    let outcome = Outcome::done(rows, Reply::Empty);
    Ok(if closed.is_empty() { outcome } else { outcome.hint(Hint::Containers(closed)) })
}
