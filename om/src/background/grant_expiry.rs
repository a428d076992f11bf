//! Ends grants whose time is over, by a logged command. The clock only proposes; execute compares with the time in the log.

use std::ops::Bound;
use std::sync::Arc;

use ozone_common::Error;
use ozone_common::id::GrantId;
use ozone_kvstore::{Direction, Read};
use tokio_util::sync::CancellationToken;

use super::{Step, Wakers, run};
use crate::core::command::Command;
use crate::log::Log;
use crate::service::Om;
use crate::tables::decode;
use crate::tables::grant::{self, GrantRow};

/// LIMIT: grants ended by one command.
const GRANTS_MAX: usize = 64;
/// Ends of grants are gathered over so long.
const GRANULE_MS: u64 = 1000;

/// Grants that are over at `now_ms`, and when the next will be. Pure.
pub(crate) fn plan(view: &dyn Read, now_ms: u64) -> ozone_kvstore::Result<(Vec<GrantId>, Option<u64>)> {
    let (mut over, mut next) = (Vec::new(), None::<u64>);
    for entry in view.scan(grant::TABLE, Bound::Unbounded, Bound::Unbounded, Direction::Forward)? {
        let (key, value) = entry?;
        let row: GrantRow = decode(grant::TABLE, value)?;
        if row.expires_ms > now_ms {
            next = Some(next.map_or(row.expires_ms, |next| next.min(row.expires_ms)));
        } else if over.len() < GRANTS_MAX {
            over.push(grant::split(&key)?);
        }
    }
    Ok((over, next))
}

/// Runs until `shutdown`.
pub(crate) async fn run_loop<L: Log>(om: Arc<Om<L>>, wakers: Arc<Wakers>, shutdown: CancellationToken) {
    run("grant expiry", &wakers.grants, shutdown, || step(&om)).await;
}

pub(crate) async fn step<L: Log>(om: &Om<L>) -> Result<Step, Error> {
    if !om.log.state().leader {
        return Ok(Step::Idle);
    }
    let now_ms = om.env.clock.now_ms();
    let store = om.log.store().clone();
    let (grants, next) = tokio::task::spawn_blocking(move || plan(&*store, now_ms))
        .await
        .map_err(|error| Error::internal(format!("planning was interrupted: {error}")))?
        .map_err(|error| crate::error::store(&error))?;
    if grants.is_empty() {
        return Ok(next.map_or(Step::Idle, |next| Step::After(next - now_ms + GRANULE_MS)));
    }
    let count = grants.len() as u64;
    om.log.propose_internal(Command::ExpireGrants { grants }).await?;
    om.metrics.expired_grants.increment(count);
    Ok(Step::Again)
}
