//! The handle that everything else hangs on.

use std::sync::Arc;

use ozone_common::env::Env;
use ozone_common::peer::PeerRole;
use ozone_common::{Error, ErrorCode};
use ozone_rpc::data::{DataClient, DataOptions};
use ozone_rpc::session::{self, SessionClient, SessionOptions};

use crate::config::{Config, Identity, Tuning};
use crate::exclude::Excluded;
use crate::lease::LeasePool;
use crate::read::latency::Latencies;
use crate::scm::Scm;

/// A connection to a cluster. Clones share it.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub om: SessionClient,
    scm: Option<Scm>,
    pub data: DataClient,
    pub tuning: Tuning,
    pub env: Env,
    pub leases: LeasePool,
    pub excluded: Excluded,
    pub latencies: Latencies,
}

impl Client {
    /// Makes a client. Connections are made when they are needed. Needs a tokio runtime.
    ///
    /// # Errors
    /// `InvalidArgument`: no address, a malformed one, or tuning out of bounds.
    pub fn connect(config: Config, env: Env) -> Result<Self, Error> {
        let Config { om_addresses, scm_addresses, identity, tuning } = config;
        tuning.validate()?;
        let (identity, cluster) = match identity {
            Identity::User(user) => (session::Identity::User(user), None),
            Identity::Gateway(secret) => {
                let cluster = secret.cluster;
                (session::Identity::Role(PeerRole::Gateway, secret), Some(cluster))
            }
        };
        let connect_timeout = tuning.connect_timeout.duration();
        let options = SessionOptions { connect_timeout, ..SessionOptions::default() };
        let om = SessionClient::connect("om.Sessions", om_addresses, identity.clone(), env.clone(), options.clone())?;
        let scm = match scm_addresses.is_empty() {
            true => None,
            false => Some(Scm {
                session: SessionClient::connect("scm.Sessions", scm_addresses, identity, env.clone(), options)?,
                env: env.clone(),
            }),
        };
        let data_options = DataOptions { connect_timeout, ..DataOptions::default() };
        let inner = Inner {
            data: DataClient::new(cluster, om.client_id(), data_options),
            om,
            scm,
            excluded: Excluded::new(tuning.exclude_for.duration()),
            leases: LeasePool::new(tuning.lease_blocks_max),
            latencies: Latencies::new(tuning.hedge_min.duration(), tuning.hedge_max.duration()),
            tuning,
            env,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The container manager's operations.
    ///
    /// # Errors
    /// `InvalidArgument` where no address of it is configured.
    pub fn scm(&self) -> Result<&Scm, Error> {
        self.inner.scm.as_ref().ok_or_else(|| Error::new(ErrorCode::InvalidArgument, "no SCM address is configured"))
    }

    /// Gives unused block ids back and closes connections to datanodes. To be called once all writers have committed:
    /// nothing that they wrote can be committed any more.
    pub async fn shutdown(&self) {
        self.inner.leases.release_all(self).await;
        self.inner.data.close();
    }
}
