//! Greetings: who opens a session, and the proof that it belongs to the cluster.
//!
//! A role proves itself with an HMAC over cluster, client id, role, time, a nonce and the service's name; the server
//! answers with a proof over the same nonce, so that the client knows whom it talks to. A nonce is accepted once.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use ozone_common::env::Env;
use ozone_common::id::{ClientId, ClusterId};
use ozone_common::peer::{ClusterSecret, PROOF_SKEW_MAX_MS, PeerRole, ProofClaims};
use ozone_common::{Error, ErrorCode};
use ozone_proto::convert::cluster_id;
use ozone_proto::rpc::v1::Hello;
use parking_lot::Mutex;

use crate::VERSION;

const NONCE_LENGTH: usize = 16;
/// LIMIT: proofs remembered against replay; only holders of the cluster's secret can fill it.
const NONCES_MAX: usize = 64 << 10;
/// Longest asserted user name, bytes.
pub(crate) const USER_LENGTH_MAX: usize = 256;

/// As whom a client opens sessions.
#[derive(Clone, Debug)]
pub enum Identity {
    /// A user's program; the name is believed in insecure mode on loopback only.
    User(String),
    /// A role of the cluster, which proves that it holds the secret.
    Role(PeerRole, ClusterSecret),
}

impl Identity {
    fn role(&self) -> PeerRole {
        match self {
            Self::User(_) => PeerRole::Client,
            Self::Role(role, _) => *role,
        }
    }
}

/// The client's greeting, with a fresh nonce.
pub(crate) fn greet(identity: &Identity, client: ClientId, service: &str, env: &Env) -> Hello {
    let mut nonce = [0; NONCE_LENGTH];
    env.rng.fill(&mut nonce);
    let time_ms = env.clock.now_ms();
    let (cluster, user, mac) = match identity {
        Identity::User(user) => (Bytes::new(), user.clone(), Bytes::new()),
        Identity::Role(role, secret) => {
            let claims = ProofClaims {
                cluster: secret.cluster,
                peer: client.as_bytes(),
                role: *role,
                time_ms,
                nonce: &nonce,
                context: service,
            };
            let mac = secret.peer_key().prove(&claims);
            (Bytes::copy_from_slice(secret.cluster.as_bytes()), String::new(), Bytes::from(mac))
        }
    };
    Hello {
        cluster,
        client: Bytes::copy_from_slice(client.as_bytes()),
        role: identity.role() as u32,
        user,
        time_ms,
        nonce: Bytes::copy_from_slice(&nonce),
        mac,
        version: VERSION.to_owned(),
    }
}

/// The server's answer to a greeting it accepted.
pub(crate) fn answer(
    hello: &Hello,
    client: ClientId,
    role: PeerRole,
    secret: &ClusterSecret,
    service: &str,
    env: &Env,
) -> Hello {
    let time_ms = env.clock.now_ms();
    let context = answer_context(service);
    let claims = ProofClaims {
        cluster: secret.cluster,
        peer: client.as_bytes(),
        role,
        time_ms,
        nonce: &hello.nonce,
        context: &context,
    };
    Hello {
        cluster: Bytes::copy_from_slice(secret.cluster.as_bytes()),
        client: hello.client.clone(),
        role: role as u32,
        user: String::new(),
        time_ms,
        nonce: hello.nonce.clone(),
        mac: Bytes::from(secret.peer_key().prove(&claims)),
        version: VERSION.to_owned(),
    }
}

/// Checks the server's answer: a role of the cluster takes it only with a proof; a command line has none to compare with.
pub(crate) fn check_answer(
    sent: &Hello,
    answer: &Hello,
    identity: &Identity,
    client: ClientId,
    service: &str,
    env: &Env,
) -> Result<(), Error> {
    let Identity::Role(_, secret) = identity else { return Ok(()) };
    check_cluster(answer, secret.cluster)?;
    let context = answer_context(service);
    let claims = ProofClaims {
        cluster: secret.cluster,
        peer: client.as_bytes(),
        role: PeerRole::from_number(answer.role)?,
        time_ms: answer.time_ms,
        nonce: &sent.nonce,
        context: &context,
    };
    secret
        .peer_key()
        .check(&claims, &answer.mac, env.clock.now_ms())
        .map_err(|error| error.context("the server's proof"))
}

fn answer_context(service: &str) -> String {
    format!("{service}/answer")
}

fn check_cluster(hello: &Hello, ours: ClusterId) -> Result<(), Error> {
    match cluster_id(&hello.cluster)? {
        Some(theirs) if theirs == ours => Ok(()),
        Some(theirs) => Err(Error::new(
            ErrorCode::Unauthenticated,
            format!("the peer belongs to cluster {theirs}, this is cluster {ours}"),
        )),
        None => Err(Error::new(ErrorCode::Unauthenticated, "the peer names no cluster")),
    }
}

/// Who opened a session, as the server believes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// What it is.
    pub role: PeerRole,
    /// One incarnation of its process, or its own id.
    pub client: ClientId,
    /// The user it asserts to be.
    pub user: String,
    /// Whether it proved that it holds the cluster's secret.
    pub proven: bool,
}

/// Checks greetings at a server.
pub struct Doorkeeper {
    service: &'static str,
    secret: ClusterSecret,
    allow_clients: bool,
    seen: Mutex<SeenNonces>,
}

impl Doorkeeper {
    /// For one service; `allow_clients`: those that prove nothing are let in from loopback.
    pub fn new(service: &'static str, secret: ClusterSecret, allow_clients: bool) -> Self {
        Self { service, secret, allow_clients, seen: Mutex::default() }
    }

    /// Checks a greeting; each proof is good once.
    ///
    /// # Errors
    /// `Unauthenticated`: another cluster, a wrong, old or used proof; `InvalidArgument`: a field does not read.
    pub fn check(&self, hello: &Hello, from_loopback: bool, now_ms: u64) -> Result<Greeting, Error> {
        let role = PeerRole::from_number(hello.role)?;
        let client = ClientId::from_slice(&hello.client)?;
        if hello.user.len() > USER_LENGTH_MAX {
            return Err(Error::invalid(format!(
                "user name of {} bytes; at most {USER_LENGTH_MAX} are taken",
                hello.user.len()
            )));
        }
        if role == PeerRole::Client {
            if !self.allow_clients || !from_loopback {
                return Err(Error::new(
                    ErrorCode::Unauthenticated,
                    "a client that proves nothing is served in insecure mode on loopback only",
                ));
            }
            if !hello.cluster.is_empty() {
                check_cluster(hello, self.secret.cluster)?;
            }
            return Ok(Greeting { role, client, user: hello.user.clone(), proven: false });
        }
        check_cluster(hello, self.secret.cluster)?;
        let claims = ProofClaims {
            cluster: self.secret.cluster,
            peer: client.as_bytes(),
            role,
            time_ms: hello.time_ms,
            nonce: &hello.nonce,
            context: self.service,
        };
        self.secret.peer_key().check(&claims, &hello.mac, now_ms)?;
        let nonce: [u8; NONCE_LENGTH] =
            hello.nonce.as_ref().try_into().map_err(|_| {
                Error::invalid(format!("nonce of {} bytes; {NONCE_LENGTH} are needed", hello.nonce.len()))
            })?;
        self.seen.lock().insert(nonce, now_ms)?;
        Ok(Greeting { role, client, user: hello.user.clone(), proven: true })
    }
}

/// Nonces of proofs that could still be accepted, oldest first.
#[derive(Default)]
struct SeenNonces {
    set: HashSet<[u8; NONCE_LENGTH]>,
    order: VecDeque<(u64, [u8; NONCE_LENGTH])>,
}

impl SeenNonces {
    fn insert(&mut self, nonce: [u8; NONCE_LENGTH], now_ms: u64) -> Result<(), Error> {
        // A proof may be made one skew in our future, and is good until one skew past that.
        while let Some((seen_ms, oldest)) = self.order.front()
            && seen_ms + 2 * PROOF_SKEW_MAX_MS < now_ms
        {
            self.set.remove(oldest);
            self.order.pop_front();
        }
        if self.order.len() >= NONCES_MAX {
            return Err(Error::new(ErrorCode::Overloaded, "too many sessions were opened within minutes"));
        }
        if !self.set.insert(nonce) {
            return Err(Error::new(ErrorCode::Unauthenticated, "this proof was used before"));
        }
        self.order.push_back((now_ms, nonce));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(id: u8) -> ClusterSecret {
        ClusterSecret::new(ClusterId::from_bytes([id; 16]), [id; 32])
    }

    #[test]
    fn greetings_are_checked_both_ways() {
        let env = Env::system();
        let client = ClientId::from_bytes([5; 16]);
        let identity = Identity::Role(PeerRole::Gateway, secret(1));
        let door = Doorkeeper::new("om.Sessions", secret(1), false);
        let now = env.clock.now_ms();
        let hello = greet(&identity, client, "om.Sessions", &env);
        let greeting = door.check(&hello, false, now).unwrap();
        assert_eq!((greeting.role, greeting.client, greeting.proven), (PeerRole::Gateway, client, true));
        assert_eq!(door.check(&hello, false, now).unwrap_err().code, ErrorCode::Unauthenticated, "replayed");

        let back = answer(&hello, client, PeerRole::Om, &secret(1), "om.Sessions", &env);
        check_answer(&hello, &back, &identity, client, "om.Sessions", &env).unwrap();
        let forged =
            answer(&hello, client, PeerRole::Om, &ClusterSecret::new(secret(1).cluster, [9; 32]), "om.Sessions", &env);
        assert!(check_answer(&hello, &forged, &identity, client, "om.Sessions", &env).is_err());
        let reflected = Hello { mac: hello.mac.clone(), ..back };
        assert!(check_answer(&hello, &reflected, &identity, client, "om.Sessions", &env).is_err());

        for (what, bad) in [
            ("role", Hello { role: PeerRole::Om as u32, ..greet(&identity, client, "om.Sessions", &env) }),
            ("no proof", Hello { mac: Bytes::new(), ..greet(&identity, client, "om.Sessions", &env) }),
            ("service", greet(&identity, client, "scm.Sessions", &env)),
            ("cluster", greet(&Identity::Role(PeerRole::Gateway, secret(2)), client, "om.Sessions", &env)),
            ("unknown role", Hello { role: 77, ..greet(&identity, client, "om.Sessions", &env) }),
            ("short id", Hello { client: Bytes::from_static(b"x"), ..greet(&identity, client, "om.Sessions", &env) }),
        ] {
            assert!(door.check(&bad, true, now).is_err(), "{what}");
        }
    }

    #[test]
    fn unproven_clients_only_on_loopback_in_insecure_mode() {
        let env = Env::system();
        let hello = greet(&Identity::User("ann".into()), ClientId::from_bytes([5; 16]), "om.Sessions", &env);
        for (allow, loopback) in [(true, true), (true, false), (false, true), (false, false)] {
            let door = Doorkeeper::new("om.Sessions", secret(1), allow);
            let got = door.check(&hello, loopback, env.clock.now_ms());
            assert_eq!(got.is_ok(), allow && loopback);
            assert!(got.is_ok_and(|g| g.user == "ann" && !g.proven) == (allow && loopback));
        }
    }

    #[test]
    fn old_nonces_are_forgotten() {
        let mut seen = SeenNonces::default();
        seen.insert([1; 16], 0).unwrap();
        assert!(seen.insert([1; 16], 2 * PROOF_SKEW_MAX_MS).is_err());
        seen.insert([2; 16], 2 * PROOF_SKEW_MAX_MS + 1).unwrap();
        assert_eq!(seen.order.len(), 1);
    }
}
