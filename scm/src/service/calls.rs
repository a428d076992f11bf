//! Calls over sessions: who may ask what, and where it goes.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use ozone_common::peer::PeerRole;
use ozone_common::telemetry::{Outcome, Record, audit};
use ozone_common::{Error, ErrorCode, Result};
use ozone_proto::scm::v1::{ScmRequest, ScmResponse, scm_request::Op, scm_response};
use ozone_rpc::session::{CallHandler, IncomingCall, Peer};
use prost::Message;

use super::{admin, block};
use crate::log::Call;
use crate::scm::Scm;

/// Serves [`ScmRequest`]s.
pub(crate) struct Calls(pub Arc<Scm>);

impl CallHandler for Calls {
    fn call(&self, call: IncomingCall) -> BoxFuture<'_, Result<Bytes>> {
        Box::pin(self.serve(call))
    }
}

/// Who may ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    /// Changes names or data: the OM alone.
    Om,
    /// Shows state: any role of the cluster, and in insecure mode any user (sessions let in no others).
    Anyone,
}

/// Name for the audit trail, and who may.
fn describe(op: &Op) -> (&'static str, Needs) {
    match op {
        Op::AllocateBlocks(_) => ("ALLOCATE_BLOCK", Needs::Om),
        Op::ReportFailedReplicas(_) => ("REPORT_FAILED_REPLICAS", Needs::Om),
        Op::QueueDeletes(_) => ("DELETE_KEY_BLOCK", Needs::Om),
        Op::GetContainers(_) => ("GET_CONTAINER", Needs::Anyone),
        Op::SafeModeStatus(_) => ("IN_SAFE_MODE", Needs::Anyone),
        Op::ListNodes(_) => ("LIST_NODE", Needs::Anyone),
        Op::ListContainers(_) => ("LIST_CONTAINER", Needs::Anyone),
        Op::Status(_) => ("GET_SCM_INFO", Needs::Anyone),
    }
}

fn authorise(needs: Needs, peer: &Peer) -> Result<()> {
    if needs == Needs::Anyone || (peer.proven && peer.role == PeerRole::Om) {
        return Ok(());
    }
    Err(Error::new(ErrorCode::PermissionDenied, format!("only the OM may ask this, not {:?}", peer.role)))
}

impl Calls {
    pub(super) async fn serve(&self, call: IncomingCall) -> Result<Bytes> {
        let request =
            ScmRequest::decode(call.request.clone()).map_err(|e| Error::invalid(format!("SCM request: {e}")))?;
        let op =
            request.op.ok_or_else(|| Error::new(ErrorCode::NotSupported, "this SCM does not know the operation"))?;
        let (name, needs) = describe(&op);
        let allowed = authorise(needs, &call.peer);
        let outcome = match allowed {
            Ok(()) => self.carry_out(op, &call).await,
            Err(error) => Err(error),
        };
        if needs == Needs::Om {
            let who = if call.peer.proven { format!("{:?}", call.peer.role) } else { call.user.clone() };
            audit(&Record {
                role: "scm",
                who: &who,
                op: name,
                resource: &"-",
                outcome: Outcome::from(&outcome),
                request_id: &call.request_id,
            });
        }
        outcome
    }

    async fn carry_out(&self, op: Op, call: &IncomingCall) -> Result<Bytes> {
        let scm = &self.0;
        let id = Call { client: call.peer.client, sequence: call.sequence, lowest_unanswered: call.lowest_unanswered };
        match op {
            Op::AllocateBlocks(request) => block::allocate(scm, id, &request).await,
            Op::ReportFailedReplicas(request) => block::report_failed_replicas(scm, id, &request).await,
            Op::QueueDeletes(request) => block::queue_deletes(scm, id, &request).await,
            Op::GetContainers(request) => {
                admin::get_containers(scm, &request).await.map(scm_response::Op::Containers).map(encode)
            }
            Op::SafeModeStatus(_) => Ok(encode(scm_response::Op::SafeMode(admin::safe_mode(scm)))),
            Op::ListNodes(_) => admin::list_nodes(scm).await.map(scm_response::Op::Nodes).map(encode),
            Op::ListContainers(request) => {
                admin::list_containers(scm, &request).await.map(scm_response::Op::Containers).map(encode)
            }
            Op::Status(_) => Ok(encode(scm_response::Op::Status(admin::status(scm)))),
        }
    }
}

fn encode(op: scm_response::Op) -> Bytes {
    ScmResponse { op: Some(op) }.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use ozone_common::id::ClientId;
    use ozone_proto::scm::v1 as wire;

    use super::*;

    #[test]
    fn only_a_proven_om_changes_anything() {
        let peer = |role, proven| Peer {
            role,
            client: ClientId::from_bytes([1; 16]),
            proven,
            user: "root".into(),
            address: None,
        };
        let changes = [
            Op::AllocateBlocks(wire::AllocateBlocks::default()),
            Op::ReportFailedReplicas(wire::ReportFailedReplicas::default()),
            Op::QueueDeletes(wire::QueueDeletes::default()),
        ];
        for op in &changes {
            let needs = describe(op).1;
            assert!(authorise(needs, &peer(PeerRole::Om, true)).is_ok());
            assert!(authorise(needs, &peer(PeerRole::Om, false)).is_err());
            for role in [PeerRole::Client, PeerRole::Gateway, PeerRole::Datanode, PeerRole::Scm] {
                assert_eq!(authorise(needs, &peer(role, true)).unwrap_err().code, ErrorCode::PermissionDenied);
            }
        }
        let reads = [
            Op::GetContainers(wire::GetContainers::default()),
            Op::SafeModeStatus(wire::SafeModeStatus::default()),
            Op::ListNodes(wire::ListNodes::default()),
            Op::ListContainers(wire::ListContainers::default()),
            Op::Status(wire::Status::default()),
        ];
        assert!(reads.iter().all(|op| authorise(describe(op).1, &peer(PeerRole::Client, false)).is_ok()));
    }
}
