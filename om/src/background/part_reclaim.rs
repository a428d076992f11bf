//! Moves the blocks of uploads that were aborted, or whose object is gone, to the queue of blocks: a bounded number of parts a step.

use std::ops::Bound;
use std::sync::Arc;

use ozone_common::Error;
use ozone_kvstore::Direction;
use tokio_util::sync::CancellationToken;

use super::{Step, Wakers, run};
use crate::core::command::Command;
use crate::log::Log;
use crate::service::Om;
use crate::tables::deleted;

/// LIMIT: parts of a step.
const PARTS_MAX: usize = 1000;

/// Runs until `shutdown`.
pub(crate) async fn run_loop<L: Log>(om: Arc<Om<L>>, wakers: Arc<Wakers>, shutdown: CancellationToken) {
    run("part reclaim", &wakers.parts, shutdown, || step(&om)).await;
}

pub(crate) async fn step<L: Log>(om: &Om<L>) -> Result<Step, Error> {
    if !om.log.state().leader {
        return Ok(Step::Idle);
    }
    let first = {
        let store = om.log.store();
        let rows = store.scan(deleted::PARTS, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        rows.and_then(|mut rows| rows.next().transpose()).map_err(|error| crate::error::store(&error))?
    };
    if first.is_none() {
        return Ok(Step::Idle);
    }
    om.log.propose_internal(Command::ReclaimParts { limit: PARTS_MAX }).await?;
    Ok(Step::Again)
}
