//! Who may do what: one function, asked before anything else happens.
//!
//! As in Ozone with ACLs off, any authenticated user may use any volume and bucket; owners are recorded. Secrets are a
//! user's own or an admin's business, and looking one up to verify a signature is for gateways that proved themselves.

use ozone_common::id::ClientId;
use ozone_common::peer::PeerRole;
use ozone_common::{Error, ErrorCode};
use ozone_rpc::session::IncomingCall;

use super::action::{Action, Resource};

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// One incarnation of the process that asks.
    pub client: ClientId,
    /// What that process is.
    pub role: PeerRole,
    /// Whether it proved that it belongs to the cluster.
    pub proven: bool,
    /// On whose behalf; empty = nobody's.
    pub user: String,
    /// Whether that user may do everything.
    pub admin: bool,
}

impl Identity {
    /// Who makes a call. The session layer settled whose name may be believed: a client's own on loopback in insecure mode,
    /// and what a proven gateway says of a user that it authenticated.
    pub fn of(call: &IncomingCall, admins: &[String]) -> Self {
        let proven = call.peer.proven;
        // A client that proves nothing speaks for its session's user only, whatever its calls say.
        let user = if proven { call.user.clone() } else { call.peer.user.clone() };
        let admin = !user.is_empty() && admins.contains(&user);
        Self { client: call.peer.client, role: call.peer.role, proven, user, admin }
    }
}

/// Decides.
///
/// # Errors
/// `PermissionDenied` where the identity may not, `Unauthenticated` where a user is needed and none is known.
pub fn authorise(identity: &Identity, action: Action, resource: &Resource) -> Result<(), Error> {
    let denied = |why: &str| {
        Err(Error::new(
            ErrorCode::PermissionDenied,
            format!("user `{}` may not {} {resource}: {why}", identity.user, action.name()),
        ))
    };
    match identity.role {
        PeerRole::Client => {}
        PeerRole::Gateway if identity.proven => {}
        _ => return denied("only clients and gateways use this service"),
    }
    match action {
        Action::LookupSecret if identity.role == PeerRole::Gateway && identity.proven => Ok(()),
        Action::LookupSecret => denied("only gateways look secrets up"),
        // The writer's side of block grants, and the state, belong to the process rather than to a user.
        Action::AcquireGrant
        | Action::RenewGrant
        | Action::ReleaseGrant
        | Action::ReportFailedWrite
        | Action::Status => Ok(()),
        _ if identity.user.is_empty() => Err(Error::new(
            ErrorCode::Unauthenticated,
            format!("{} {resource}: a user is needed, and none is known", action.name()),
        )),
        Action::GetSecret | Action::RevokeSecret => match resource {
            Resource::Secret(user) if identity.admin || *user == identity.user => Ok(()),
            _ => denied("it is neither this user's own nor is the user an admin"),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(role: PeerRole, proven: bool, user: &str) -> Identity {
        let client = ClientId::from_bytes([1; 16]);
        Identity { client, role, proven, user: user.into(), admin: user == "root" }
    }

    #[test]
    fn the_matrix_of_roles_users_and_actions() {
        let alice = Resource::Secret("alice".into());
        let bucket = Resource::Bucket("s3v".into(), "photos".into());
        let (client, gateway) = (PeerRole::Client, PeerRole::Gateway);
        for (who, action, resource, allowed) in [
            (identity(client, false, "alice"), Action::CommitKey, &bucket, true),
            (identity(client, false, ""), Action::CommitKey, &bucket, false),
            (identity(client, false, ""), Action::Status, &Resource::Cluster, true),
            (identity(gateway, true, "alice"), Action::DeleteKey, &bucket, true),
            (identity(gateway, false, "alice"), Action::DeleteKey, &bucket, false),
            (identity(gateway, true, ""), Action::DeleteKey, &bucket, false),
            (identity(gateway, true, ""), Action::AcquireGrant, &Resource::Cluster, true),
            (identity(gateway, true, ""), Action::LookupSecret, &Resource::Cluster, true),
            (identity(gateway, false, ""), Action::LookupSecret, &Resource::Cluster, false),
            (identity(client, false, "root"), Action::LookupSecret, &Resource::Cluster, false),
            (identity(client, false, "alice"), Action::GetSecret, &alice, true),
            (identity(client, false, "bob"), Action::GetSecret, &alice, false),
            (identity(client, false, "root"), Action::GetSecret, &alice, true),
            (identity(client, false, "bob"), Action::RevokeSecret, &alice, false),
            (identity(PeerRole::Datanode, true, "root"), Action::CommitKey, &bucket, false),
            (identity(PeerRole::Scm, true, "root"), Action::Status, &Resource::Cluster, false),
        ] {
            assert_eq!(authorise(&who, action, resource).is_ok(), allowed, "{who:?} {action:?} {resource}");
        }
    }
}
