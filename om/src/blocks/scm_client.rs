//! Calls to the container manager.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use ozone_common::env::Env;
use ozone_common::peer::{ClusterSecret, PeerRole};
use ozone_common::{Error, ErrorCode};
use ozone_proto::scm::v1::{self as scm, scm_request, scm_response};
use ozone_rpc::session::{CallOptions, Identity, SessionClient, SessionOptions};
use prost::Message;
use tokio::time::Instant;

/// How long a call to the SCM may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// The container manager as the OM needs it.
pub trait Scm: Send + Sync + 'static {
    /// Carries out one operation.
    fn call(&self, op: scm_request::Op) -> BoxFuture<'_, Result<scm_response::Op, Error>>;
}

/// The real one, over a session.
pub struct ScmClient {
    session: SessionClient,
    request_id: Arc<str>,
}

impl ScmClient {
    /// Connects on the first call.
    ///
    /// # Errors
    /// A malformed address.
    pub fn connect(addresses: Vec<String>, secret: ClusterSecret, env: Env) -> Result<Self, Error> {
        let identity = Identity::Role(PeerRole::Om, secret);
        let session = SessionClient::connect("scm.Sessions", addresses, identity, env, SessionOptions::default())?;
        Ok(Self { session, request_id: Arc::from("om") })
    }
}

impl Scm for ScmClient {
    fn call(&self, op: scm_request::Op) -> BoxFuture<'_, Result<scm_response::Op, Error>> {
        let request = scm::ScmRequest { op: Some(op) }.encode_to_vec().into();
        let options =
            CallOptions { deadline: Instant::now() + DEADLINE, request_id: self.request_id.clone(), user: None };
        async move {
            let reply = self.session.call(request, &options).await?;
            let reply = scm::ScmResponse::decode(reply)
                .map_err(|error| Error::internal(format!("the SCM's answer is malformed: {error}")))?;
            reply.op.ok_or_else(|| Error::internal("the SCM's answer is empty"))
        }
        .boxed()
    }
}

/// The SCM answered something else than was asked.
pub(crate) fn unexpected(asked: &str) -> Error {
    Error::new(ErrorCode::Internal, format!("the SCM answered {asked} with something else"))
}
