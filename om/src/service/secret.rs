//! S3 secrets.

use bytes::Bytes;
use ozone_common::{Error, ErrorCode};
use ozone_proto::om::v1::{self as om, om_response::Op};

use super::{Context, Om, reply};
use crate::core::command::Command;
use crate::core::{USER_LENGTH_MAX, describe_secret};
use crate::log::Log;
use crate::tables::secret;

impl<L: Log> Om<L> {
    pub(super) async fn get_secret(&self, context: &Context<'_>, request: om::GetSecret) -> Result<Bytes, Error> {
        let user = check_user(request.user)?;
        let mut random = [0; 32];
        self.env.rng.fill(&mut random);
        let fresh = random.iter().map(|byte| format!("{byte:02x}")).collect();
        self.change(context, Command::GetSecret { user, create: request.create, fresh }).await
    }

    pub(super) async fn revoke_secret(&self, context: &Context<'_>, request: om::RevokeSecret) -> Result<Bytes, Error> {
        self.change(context, Command::RevokeSecret { user: check_user(request.user)? }).await
    }

    pub(super) async fn lookup_secret(&self, request: om::LookupSecret) -> Result<Bytes, Error> {
        self.log.read_barrier().await?;
        let row = secret::get(&**self.log.store(), &request.access_key).map_err(|error| crate::error::store(&error))?;
        match row {
            Some(row) => Ok(reply(Op::Secret(describe_secret(&request.access_key, row, false)))),
            None => Err(Error::new(ErrorCode::SecretNotFound, "no secret has this access key")),
        }
    }
}

/// A user's name becomes an access key, which stands in headers and query strings: no control characters, no slash, no white space.
fn check_user(user: String) -> Result<String, Error> {
    let fits = !user.is_empty() && user.len() <= USER_LENGTH_MAX;
    if fits && user.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b',' | b'=')) {
        Ok(user)
    } else {
        Err(Error::invalid(format!(
            "user name `{}`: 1 to {USER_LENGTH_MAX} visible ASCII characters without `/`, `,` and `=` are needed",
            user.escape_debug()
        )))
    }
}
