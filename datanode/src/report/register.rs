//! The first message of a heartbeat stream: who this datanode is, where it is reached, and the proof that it holds the cluster's secret.

use bytes::Bytes;
use ozone_common::env::Env;
use ozone_common::id::DatanodeId;
use ozone_common::peer::{ClusterSecret, PeerRole, ProofClaims};
use ozone_proto::common::v1::NodeAddress;
use ozone_proto::scm::v1::Register;

/// What the proof is bound to (docs/containers.md).
const SERVICE: &str = "scm.Heartbeats";

/// One run of this process as the SCM knows it.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    /// Who.
    pub datanode: DatanodeId,
    /// Drawn at every start: another one than before tells the SCM that open replicas take no more appends.
    pub incarnation: [u8; 16],
    /// Where clients reach it.
    pub host: String,
    /// The block transport's port.
    pub data_port: u16,
    /// Port of metrics and health.
    pub http_port: u16,
}

impl Presence {
    /// A registration with a proof of its own: each is good once.
    pub fn register(&self, secret: &ClusterSecret, env: &Env) -> Register {
        let mut nonce = [0; 16];
        env.rng.fill(&mut nonce);
        let time_ms = env.clock.now_ms();
        let proof = secret.peer_key().prove(&ProofClaims {
            cluster: secret.cluster,
            peer: self.datanode.as_bytes(),
            role: PeerRole::Datanode,
            time_ms,
            nonce: &nonce,
            context: SERVICE,
        });
        Register {
            cluster: Bytes::copy_from_slice(secret.cluster.as_bytes()),
            address: Some(NodeAddress {
                datanode: Bytes::copy_from_slice(self.datanode.as_bytes()),
                host: self.host.clone(),
                data_port: u32::from(self.data_port),
            }),
            http_port: u32::from(self.http_port),
            time_ms,
            nonce: Bytes::copy_from_slice(&nonce),
            mac: proof.into(),
            version: ozone_rpc::VERSION.to_owned(),
            incarnation: Bytes::copy_from_slice(&self.incarnation),
        }
    }
}
