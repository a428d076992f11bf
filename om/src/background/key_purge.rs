//! Hands blocks of deleted keys to the SCM, in order, and forgets them when it has them.
//!
//! A batch is always the whole front of the queue up to its last row, which numbers it. So a batch that is sent again after a crash,
//! perhaps cut elsewhere, names again only what the SCM knows; and one of a number that the SCM has answered holds nothing new.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use ozone_common::Error;
use ozone_kvstore::{Direction, Read};
use ozone_proto::scm::v1::{self as scm, scm_request, scm_response};
use tokio_util::sync::CancellationToken;

use super::{Step, Wakers, run};
use crate::blocks::scm_client::unexpected;
use crate::core::command::Command;
use crate::log::Log;
use crate::service::Om;
use crate::tables::decode;
use crate::tables::deleted::{self, BlockSpan, DeletedRow};

/// LIMIT: rows of a batch.
const ROWS_MAX: usize = 10_000;
/// LIMIT: spans of a batch, some 12 bytes each on the wire.
const SPANS_MAX: usize = 100_000;

/// What goes to the SCM next.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Plan {
    /// Sequence of the first row.
    pub from: u64,
    /// Of the last.
    pub through: u64,
    /// Their blocks by container, joined.
    pub containers: Vec<scm::ContainerBlocks>,
    /// How many blocks.
    pub blocks: u64,
    /// Where nothing is due: when the first row will be.
    pub due_ms: Option<u64>,
}

/// Plans a batch of what is due at `now_ms`. Pure.
pub(crate) fn plan(view: &dyn Read, now_ms: u64) -> ozone_kvstore::Result<Plan> {
    let mut plan = Plan::default();
    let mut spans: Vec<BlockSpan> = Vec::new();
    let rows = view.scan(deleted::TABLE, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
    for (at, entry) in rows.take(ROWS_MAX).enumerate() {
        let (key, value) = entry?;
        let row: DeletedRow = decode(deleted::TABLE, value)?;
        if row.not_before_ms > now_ms {
            plan.due_ms = Some(row.not_before_ms);
            break;
        }
        if at != 0 && spans.len() + row.ranges.len() > SPANS_MAX {
            break;
        }
        let sequence = deleted::split(&key)?;
        if at == 0 {
            plan.from = sequence;
        }
        plan.through = sequence;
        spans.extend(row.ranges);
    }
    deleted::merge(&mut spans);
    let mut containers: BTreeMap<u64, Vec<scm::LocalRange>> = BTreeMap::new();
    for span in spans {
        plan.blocks += span.count();
        let range = scm::LocalRange { first: (span.first & 0xff_ffff) as u32, count: span.count() as u32 };
        containers.entry(span.first >> 24).or_default().push(range);
    }
    plan.containers =
        containers.into_iter().map(|(container, ranges)| scm::ContainerBlocks { container, ranges }).collect();
    Ok(plan)
}

/// Runs until `shutdown`.
pub(crate) async fn run_loop<L: Log>(om: Arc<Om<L>>, wakers: Arc<Wakers>, shutdown: CancellationToken) {
    run("key purge", &wakers.deleted, shutdown, || step(&om)).await;
}

pub(crate) async fn step<L: Log>(om: &Om<L>) -> Result<Step, Error> {
    if !om.log.state().leader {
        return Ok(Step::Idle);
    }
    let now_ms = om.env.clock.now_ms();
    let store = om.log.store().clone();
    let plan = tokio::task::spawn_blocking(move || plan(&*store, now_ms))
        .await
        .map_err(|error| Error::internal(format!("planning was interrupted: {error}")))?
        .map_err(|error| crate::error::store(&error))?;
    if plan.through == 0 {
        return Ok(plan.due_ms.map_or(Step::Idle, |due_ms| Step::After((due_ms - now_ms).max(50))));
    }
    let (from, through, blocks) = (plan.from, plan.through, plan.blocks);
    let op = scm_request::Op::QueueDeletes(scm::QueueDeletes { om_sequence: through, containers: plan.containers });
    let scm_response::Op::Empty(_) = om.scm.call(op).await? else { return Err(unexpected("QueueDeletes")) };
    // ORDER: the rows go only after the SCM has their blocks durably. A crash in between sends the batch again.
    om.log.propose_internal(Command::Purged { from, through }).await?;
    om.metrics.purged_blocks.increment(blocks);
    Ok(Step::Again)
}
