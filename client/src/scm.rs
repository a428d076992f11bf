//! The container manager's operations, for the command line.

use ozone_common::{Error, RetryClass};
use ozone_proto::scm::v1::{self as scm, ScmRequest, ScmResponse, scm_request, scm_response};
use ozone_rpc::session::SessionClient;
use prost::Message;

use crate::context::CallContext;
use crate::retry::Backoff;

/// Calls to the container manager; made by [`crate::Client::scm`].
#[derive(Clone)]
pub struct Scm {
    pub(crate) session: SessionClient,
    pub(crate) env: ozone_common::env::Env,
}

impl Scm {
    async fn call(&self, ctx: &CallContext, op: scm_request::Op) -> Result<scm_response::Op, Error> {
        let request = bytes::Bytes::from(ScmRequest { op: Some(op) }.encode_to_vec());
        let options = ctx.options();
        let mut backoff = Backoff::default();
        loop {
            match self.session.call(request.clone(), &options).await {
                Ok(response) => {
                    let response = ScmResponse::decode(response)
                        .map_err(|error| Error::internal(format!("the SCM's answer does not decode: {error}")))?;
                    return response.op.ok_or_else(|| Error::internal("the SCM's answer is empty"));
                }
                Err(error) if error.retry == RetryClass::Same => {
                    backoff.pause(error, ctx.deadline, &*self.env.rng).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

macro_rules! operations {
    ($($(#[$doc:meta])* $method:ident: $request:ident => $answer:ident($response:ty);)*) => {
        impl Scm {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Those of the operation; `Unavailable` and `DeadlineExceeded` where the SCM cannot be reached in time.
                pub async fn $method(&self, ctx: &CallContext, request: scm::$request) -> Result<$response, Error> {
                    match self.call(ctx, scm_request::Op::$request(request)).await? {
                        scm_response::Op::$answer(response) => Ok(response),
                        _ => Err(Error::internal(concat!("the SCM's answer to ", stringify!($request), " is another operation's"))),
                    }
                }
            )*
        }
    };
}

operations! {
    /// Whether the SCM is in safe mode, and what holds it there.
    safe_mode_status: SafeModeStatus => SafeMode(scm::SafeModeReply);
    /// All datanodes.
    list_nodes: ListNodes => Nodes(scm::NodeList);
    /// A page of containers.
    list_containers: ListContainers => Containers(scm::ContainerList);
    /// Containers by id.
    get_containers: GetContainers => Containers(scm::ContainerList);
    /// The state of the SCM.
    status: Status => Status(scm::StatusReply);
}
