//! S3 secrets. As in Ozone the access key is the user's name.

use ozone_common::{Error, ErrorCode};
use ozone_proto::om::v1::{self as om, om_response::Op};

use super::Stop;
use super::tx::{Tx, empty};
use crate::tables::encode;
use crate::tables::secret::{self, SecretRow};

/// LIMIT: bytes of a user's name.
pub const USER_LENGTH_MAX: usize = 255;

fn no_secret(user: &str) -> Error {
    Error::new(ErrorCode::SecretNotFound, format!("user `{user}` has no S3 secret"))
}

/// Answers a user's secret; makes it where there is none and the caller says so.
pub(super) fn get(tx: &mut Tx<'_>, user: &str, create: bool, fresh: String) -> Result<Op, Stop> {
    let (row, created) = match secret::get(tx.view, user)? {
        Some(row) => (row, false),
        None if create => {
            let row = SecretRow { secret_key: fresh, created_ms: tx.stamp.now_ms, user: String::new() };
            tx.batch.put(secret::TABLE, user.as_bytes().to_vec(), encode(&row));
            (row, true)
        }
        None => return Err(no_secret(user).into()),
    };
    Ok(Op::Secret(describe(user, row, created)))
}

/// Removes a user's secret.
pub(super) fn revoke(tx: &mut Tx<'_>, user: &str) -> Result<Op, Stop> {
    if secret::get(tx.view, user)?.is_none() {
        return Err(no_secret(user).into());
    }
    tx.batch.delete(secret::TABLE, user.as_bytes().to_vec());
    Ok(empty())
}

/// A secret as the wire has it.
pub(crate) fn describe(access_key: &str, row: SecretRow, created: bool) -> om::Secret {
    let user = if row.user.is_empty() { access_key.to_owned() } else { row.user };
    om::Secret { access_key: access_key.to_owned(), secret_key: row.secret_key, user, created }
}
