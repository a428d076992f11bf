//! Block grants. The log holds neither tokens nor addresses: they are put into the answer here.

use bytes::Bytes;
use ozone_common::id::{ContainerId, GrantId};
use ozone_common::limits::BLOCK_LENGTH_MAX;
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode};
use ozone_proto::convert::{container_id, datanode_id};
use ozone_proto::om::v1::{self as om, om_response::Op};
use ozone_proto::scm::v1::{self as scm, scm_request, scm_response};

use super::{Context, Om, decode_reply, reply};
use crate::blocks::grant_pool::Want;
use crate::blocks::scm_client::unexpected;
use crate::blocks::tokens::Span;
use crate::core::command::{AcquireGrant, Command};
use crate::core::read::parse_replication;
use crate::log::Log;
use crate::tables::grant::{self, BLOCKS_MAX, GrantRow};

/// LIMIT: datanodes that a request may exclude or report.
const NODES_MAX: usize = 64;

impl<L: Log> Om<L> {
    pub(super) async fn acquire_grant(&self, context: &Context<'_>, request: om::AcquireGrant) -> Result<Bytes, Error> {
        if request.blocks == 0 || request.blocks > BLOCKS_MAX {
            return Err(Error::invalid(format!(
                "a grant of {} blocks; 1 to {BLOCKS_MAX} are possible",
                request.blocks
            )));
        }
        if request.max_block_length == 0 || request.max_block_length > BLOCK_LENGTH_MAX {
            let message =
                format!("blocks of up to {} bytes; 1 to {BLOCK_LENGTH_MAX} are possible", request.max_block_length);
            return Err(Error::invalid(message));
        }
        check_nodes(&request.exclude)?;
        let want = Want {
            replication: parse_replication(&request.replication, Replication::default())?,
            count: request.blocks,
            max_block_length: request.max_block_length,
            exclude: request.exclude,
        };
        let taken = self.pool.take(&want).await?;
        let acquire = AcquireGrant {
            holder: context.identity.client,
            replication: want.replication,
            max_block_length: want.max_block_length,
            ranges: taken.ranges.clone(),
            life_ms: self.config.grant_life.as_millis(),
            min_replicas: taken.min_replicas,
        };
        let bytes = self.change(context, Command::AcquireGrant(acquire)).await?;
        let Op::Grant(granted) = decode_reply(bytes)? else { return Err(unexpected("AcquireGrant")) };
        // A repeated call gets its first answer: what was taken now is not in it.
        let ours =
            granted.ranges.iter().zip(&taken.ranges).all(|(granted, taken)| {
                granted.container == taken.container && granted.first_local == taken.first_local
            });
        if !ours {
            self.pool.give_back(&want, &taken);
        }
        if self.pool.is_low(&want) {
            let pool = self.pool.clone();
            self.tasks.spawn(async move {
                if let Err(error) = pool.refill(&want).await {
                    tracing::warn!(%error, "blocks cannot be fetched ahead; the next writer asks again");
                }
            });
        }
        self.dress(granted).await
    }

    pub(super) async fn renew_grant(&self, context: &Context<'_>, request: om::RenewGrant) -> Result<Bytes, Error> {
        let command = Command::RenewGrant {
            holder: context.identity.client,
            grant: GrantId(request.grant),
            life_ms: self.config.grant_life.as_millis(),
        };
        let bytes = self.change(context, command).await?;
        let Op::Grant(granted) = decode_reply(bytes)? else { return Err(unexpected("RenewGrant")) };
        self.dress(granted).await
    }

    pub(super) async fn release_grant(&self, context: &Context<'_>, request: om::ReleaseGrant) -> Result<Bytes, Error> {
        let command = Command::ReleaseGrant { holder: context.identity.client, grant: GrantId(request.grant) };
        self.change(context, command).await
    }

    /// Puts tokens and addresses into a grant.
    async fn dress(&self, mut granted: om::Grant) -> Result<Bytes, Error> {
        let containers = granted
            .ranges
            .iter()
            .map(|range| container_id(range.container))
            .collect::<Result<Vec<ContainerId>, _>>()?;
        let locations = self.locations.get(&containers, false).await?;
        for ((range, container), location) in granted.ranges.iter_mut().zip(containers).zip(locations) {
            let span = Span { container, first_local: range.first_local, count: range.count, epoch: range.epoch };
            range.token = Some(self.tokens.write(span, granted.expires_ms, granted.max_block_length));
            range.replicas = location.members.clone();
        }
        self.metrics.tokens.increment(granted.ranges.len() as u64);
        Ok(reply(Op::Grant(granted)))
    }

    /// A writer lost replicas: the SCM logs the smaller membership under a higher epoch, then the grant takes note of it, and only
    /// then may the writer seal and commit.
    pub(super) async fn report_failed_write(
        &self,
        context: &Context<'_>,
        request: om::ReportFailedWrite,
    ) -> Result<Bytes, Error> {
        let container = container_id(request.container)?;
        if request.failed.is_empty() {
            return Err(Error::invalid("no failed datanode is named"));
        }
        check_nodes(&request.failed)?;
        let id = GrantId(request.grant);
        // Only who may write there may report it.
        self.own_grant(context, id, container).await?;
        let op = scm_request::Op::ReportFailedReplicas(scm::ReportFailedReplicas {
            container: container.get(),
            epoch: request.epoch,
            failed: request.failed,
            reason: request.reason.chars().take(200).collect(),
        });
        let scm_response::Op::Container(info) = self.scm.call(op).await? else {
            return Err(unexpected("ReportFailedReplicas"));
        };
        // The container is wounded and will be closed: nobody new writes there.
        self.pool.forget(container);
        let holder = context.identity.client;
        let record = Command::RecordEpoch { holder, grant: id, container, epoch: info.epoch };
        let bytes = self.change(context, record).await?;
        let Op::FailedWrite(mut answer) = decode_reply(bytes)? else { return Err(unexpected("ReportFailedWrite")) };
        self.locations.learn(container, info.members.clone(), info.epoch);
        let row = self.own_grant(context, id, container).await?;
        let range = row.ranges.iter().find(|range| range.container == container.get());
        let range = range.ok_or_else(|| Error::internal("a grant lost its range"))?;
        let span = Span { container, first_local: range.first_local, count: range.count, epoch: answer.epoch };
        answer.seal_token = Some(self.tokens.seal(span, row.expires_ms));
        answer.members = info.members;
        self.metrics.tokens.increment(1);
        Ok(reply(Op::FailedWrite(answer)))
    }

    /// The caller's own live grant with blocks in `container`.
    async fn own_grant(&self, context: &Context<'_>, id: GrantId, container: ContainerId) -> Result<GrantRow, Error> {
        self.log.read_barrier().await?;
        let row = grant::get(&**self.log.store(), id).map_err(|error| crate::error::store(&error))?;
        let holder = context.identity.client.as_bytes().as_slice();
        let Some(row) = row.filter(|row| row.holder == holder) else {
            let message = format!("grant {id} has ended, or is not this writer's");
            return Err(Error::new(ErrorCode::GrantExpired, message));
        };
        if !row.ranges.iter().any(|range| range.container == container.get()) {
            let message = format!("grant {id} has no blocks in container {container}");
            return Err(Error::new(ErrorCode::InvalidBlock, message));
        }
        Ok(row)
    }
}

fn check_nodes(nodes: &[Bytes]) -> Result<(), Error> {
    if nodes.len() > NODES_MAX {
        return Err(Error::invalid(format!("{} datanodes; {NODES_MAX} are the most", nodes.len())));
    }
    nodes.iter().try_for_each(|node| datanode_id(node).map(drop))
}
