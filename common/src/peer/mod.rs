//! Who speaks on a connection between roles, and how it proves that it belongs to the cluster.
//!
//! At init a cluster gets an id and a secret; every role's folder holds both. Keys for one purpose each are derived
//! from the secret with HKDF-SHA-256 (RFC 5869), so that a datanode's block-token key says nothing about peer proofs.

mod file;

pub use file::{SecretFileError, load_secret, save_secret};

use ring::{hkdf, hmac};

use crate::id::ClusterId;
use crate::token::TokenKey;
use crate::{Error, ErrorCode};

/// What a peer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum PeerRole {
    /// A user's program: proves nothing, and is trusted with its asserted user only in insecure mode on loopback.
    Client = 1,
    /// The key-space manager.
    Om = 2,
    /// The container manager.
    Scm = 3,
    /// A datanode.
    Datanode = 4,
    /// A gateway: may act for users that it authenticated.
    Gateway = 5,
}

impl PeerRole {
    /// The role of a number from the wire.
    pub fn from_number(number: u32) -> Result<Self, Error> {
        Ok(match number {
            1 => Self::Client,
            2 => Self::Om,
            3 => Self::Scm,
            4 => Self::Datanode,
            5 => Self::Gateway,
            other => return Err(Error::invalid(format!("peer role {other} is not known"))),
        })
    }
}

/// A cluster's identity and shared secret, as each role's folder holds it.
#[derive(Clone)]
pub struct ClusterSecret {
    /// Which cluster.
    pub cluster: ClusterId,
    secret: [u8; 32],
}

impl std::fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClusterSecret({})", self.cluster)
    }
}

impl ClusterSecret {
    /// Takes an id and 32 secret bytes.
    pub const fn new(cluster: ClusterId, secret: [u8; 32]) -> Self {
        Self { cluster, secret }
    }
    /// The secret bytes, for the file that keeps them.
    pub const fn expose(&self) -> &[u8; 32] {
        &self.secret
    }
    /// The key of peer proofs.
    pub fn peer_key(&self) -> PeerKey {
        PeerKey(hmac::Key::new(hmac::HMAC_SHA256, &self.derive(b"ozone peer proof v1")))
    }
    /// The key of block tokens.
    pub fn token_key(&self) -> TokenKey {
        TokenKey::new(&self.derive(b"ozone block token v1"))
    }
    /// A key for `purpose`, such as listing tokens of a gateway.
    pub fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        let mut out = [0; 32];
        hkdf::Salt::new(hkdf::HKDF_SHA256, self.cluster.as_bytes())
            .extract(&self.secret)
            .expand(&[purpose], hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut out))
            .expect("32 bytes are within HKDF's limit");
        out
    }
}

/// How far a proof's time may be from the verifier's clock, milliseconds.
pub const PROOF_SKEW_MAX_MS: u64 = 5 * 60 * 1000;

/// The key with which roles of one cluster recognise each other.
#[derive(Clone)]
pub struct PeerKey(hmac::Key);

impl std::fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerKey(..)")
    }
}

/// What a proof is about: who opens which service of which cluster, when. `context` names the service, so that a proof for one is none for another.
#[derive(Clone, Copy, Debug)]
pub struct ProofClaims<'a> {
    /// The cluster the peer believes it belongs to.
    pub cluster: ClusterId,
    /// The peer's own id: a client or datanode id.
    pub peer: &'a [u8; 16],
    /// What it is.
    pub role: PeerRole,
    /// UTC milliseconds.
    pub time_ms: u64,
    /// Drawn for this connection.
    pub nonce: &'a [u8],
    /// The service being opened, such as `om.Sessions`.
    pub context: &'a str,
}

impl PeerKey {
    /// Makes the proof.
    pub fn prove(&self, claims: &ProofClaims<'_>) -> Vec<u8> {
        hmac::sign(&self.0, &encode_proof(claims)).as_ref().to_vec()
    }

    /// Checks a proof.
    ///
    /// # Errors
    /// `Unauthenticated`: a wrong proof, or one whose time is off by more than [`PROOF_SKEW_MAX_MS`].
    pub fn check(&self, claims: &ProofClaims<'_>, proof: &[u8], now_ms: u64) -> Result<(), Error> {
        if claims.time_ms.abs_diff(now_ms) > PROOF_SKEW_MAX_MS {
            return Err(Error::new(ErrorCode::Unauthenticated, "the peer's clock differs by more than 5 minutes"));
        }
        hmac::verify(&self.0, &encode_proof(claims), proof)
            .map_err(|_| Error::new(ErrorCode::Unauthenticated, "the peer does not hold this cluster's key"))
    }
}

fn encode_proof(claims: &ProofClaims<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(80 + claims.context.len());
    bytes.push(1); // version of this layout
    bytes.extend_from_slice(claims.cluster.as_bytes());
    bytes.extend_from_slice(claims.peer);
    bytes.extend_from_slice(&(claims.role as u32).to_be_bytes());
    bytes.extend_from_slice(&claims.time_ms.to_be_bytes());
    bytes.extend_from_slice(&(claims.nonce.len() as u32).to_be_bytes());
    bytes.extend_from_slice(claims.nonce);
    bytes.extend_from_slice(claims.context.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_its_service_peer_and_time_only() {
        let secret = ClusterSecret::new(ClusterId::from_bytes([1; 16]), [7; 32]);
        let key = secret.peer_key();
        let claims = ProofClaims {
            cluster: secret.cluster,
            peer: &[2; 16],
            role: PeerRole::Gateway,
            time_ms: 1_000_000,
            nonce: &[3; 16],
            context: "om.Sessions",
        };
        let proof = key.prove(&claims);
        assert!(key.check(&claims, &proof, 1_000_000 + PROOF_SKEW_MAX_MS).is_ok());
        assert!(key.check(&claims, &proof, 1_000_001 + PROOF_SKEW_MAX_MS).is_err());
        assert!(key.check(&ProofClaims { context: "scm.Sessions", ..claims }, &proof, 1_000_000).is_err());
        assert!(key.check(&ProofClaims { role: PeerRole::Om, ..claims }, &proof, 1_000_000).is_err());
        assert!(key.check(&ProofClaims { peer: &[9; 16], ..claims }, &proof, 1_000_000).is_err());
        assert!(key.check(&claims, &[], 1_000_000).is_err());
        let other = ClusterSecret::new(ClusterId::from_bytes([9; 16]), [7; 32]);
        assert!(other.peer_key().check(&claims, &proof, 1_000_000).is_err());
        assert_ne!(secret.derive(b"a"), secret.derive(b"b"));
        assert!(!format!("{secret:?}").contains("07"), "no secret in debug output");
    }
}
