//! A block that fits one frame: sent to all its replicas at once.

use bytes::Bytes;
use ozone_common::Error;
use ozone_common::checksum::{combine_windows, windows};
use ozone_common::replication::Replication;
use ozone_proto::common::v1::{Block, Durability};
use ozone_proto::datanode::v1::{PutSmall, Request, request};
use ozone_rpc::data::Lane;

use super::gather::gather;
use super::{Blame, blame};
use crate::client::Client;
use crate::context::CallContext;
use crate::lease::{GrantHold, Size};
use crate::retry::Backoff;

/// Frames of more than this do not go between small ones.
const SMALL_LANE_MAX: usize = 64 << 10;

/// Writes `payload` as one block. Where a replica fails or is late, the whole block is written again in another container:
/// cheaper than changing the first one's membership, and the id left behind is freed with its grant.
///
/// cancel-safe: dropped, the ids taken are never committed.
///
/// # Errors
/// The last failure, at the context's deadline; at once what no repetition would change.
pub(crate) async fn put(
    client: &Client,
    ctx: &CallContext,
    replication: Replication,
    durability: Durability,
    payload: Bytes,
) -> Result<(Block, GrantHold), Error> {
    let crcs = windows(&payload);
    let crc32c = combine_windows(&crcs, payload.len() as u64);
    let lane = if payload.len() <= SMALL_LANE_MAX { Lane::Small } else { Lane::Bulk };
    let inner = &client.inner;
    let mut backoff = Backoff::default();
    for attempt in 0.. {
        let lease = inner.leases.take(client, ctx, replication, Size::Small).await?;
        let put = PutSmall {
            block: lease.block.get(),
            epoch: lease.epoch,
            token: Some(lease.token.clone()),
            durability: durability as i32,
            crcs: crcs.clone(),
            members: lease.members.to_vec(),
        };
        let request = Request { request_id: ctx.request_id.as_ref().to_owned(), op: Some(request::Op::PutSmall(put)) };
        let calls =
            lease.replicas.iter().map(|target| inner.data.call(target, lane, &request, payload.clone(), ctx.deadline));
        let gathered = gather(calls.enumerate().collect(), inner.tuning.late_replica.duration(), ctx.deadline).await;
        if gathered.failed.is_empty() {
            let block = Block { id: lease.block.get(), epoch: lease.epoch, length: payload.len() as u64, crc32c };
            return Ok((block, lease.hold));
        }
        client.note_failures(&lease, &gathered.failed)?;
        let busy = gathered.failed.iter().all(|(_, error)| blame(error) == Blame::Later);
        let Some((_, error)) = gathered.failed.into_iter().next_back() else { continue };
        let error = error.context(format_args!("block {}", lease.block));
        tracing::debug!(block = %lease.block, request_id = &*ctx.request_id, error = %error, "small block is written again elsewhere");
        if attempt > 0 || busy {
            backoff.pause(error, ctx.deadline, &*inner.env.rng).await?;
        } else if tokio::time::Instant::now() >= ctx.deadline {
            return Err(error);
        }
    }
    unreachable!("the loop above ends by return only")
}
