//! The pure state machine: what each change does to the rows.
//!
//! `execute` runs on the leader, on the applied rows with the effects of everything executed before; it reads no clock, draws no
//! random number and does no I/O besides its view. Time, ids, random bytes, identity and block ranges are settled before, in
//! the [`command::Command`]. Every input is answered: an invalid command is a refusal. The only error is a view that cannot be read, which
//! stops the member.

pub mod command;
pub mod invariants;
pub mod list;
pub mod read;

mod bucket;
mod claim;
mod condition;
mod grant;
mod key;
mod multipart;
mod multipart_checksum;
mod purge;
mod secret;
mod tx;
mod volume;

#[cfg(test)]
mod list_test;
#[cfg(test)]
mod model_test;

use ozone_common::Error;
use ozone_consensus::executor::{Effects, Executor, Stamp};
use ozone_kvstore::Read;
use ozone_proto::om::v1::om_response::Op;

use command::Command;
pub(crate) use multipart::no_upload;
pub(crate) use multipart_checksum::value_length as checksum_length;
pub(crate) use secret::{USER_LENGTH_MAX, describe as describe_secret};
use tx::Tx;

/// What the leader's settings say about changes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a token for reading lives; blocks are freed no earlier than that after their delete.
    pub read_token_life_ms: u64,
    /// Most bytes of an inline value where a bucket may have them.
    pub inline_max: u32,
}

/// Work that became possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hint {
    /// There are blocks to free.
    Deleted,
    /// There are uploads whose parts are to be freed.
    DeletedParts,
    /// There is a new grant, or one with another expiry.
    Grants,
}

/// Why a command does nothing.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It is refused.
    Refused(Error),
    /// The view cannot be read.
    Store(ozone_kvstore::Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}
impl From<ozone_kvstore::Error> for Stop {
    fn from(error: ozone_kvstore::Error) -> Self {
        Self::Store(error)
    }
}

/// The key-space manager's executor.
#[derive(Clone, Copy, Debug)]
pub struct Core {
    settings: Settings,
}

impl Core {
    /// Makes one.
    pub const fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Executor for Core {
    type Command = Command;
    type Hint = Hint;

    fn execute(&mut self, view: &dyn Read, stamp: Stamp, command: Command) -> ozone_kvstore::Result<Effects<Hint>> {
        execute(&self.settings, view, stamp, command)
    }
}

/// Decides what `command` does.
///
/// # Errors
/// Only where `view` cannot be read or holds rows that cannot be ours.
pub fn execute(
    settings: &Settings,
    view: &dyn Read,
    stamp: Stamp,
    command: Command,
) -> ozone_kvstore::Result<Effects<Hint>> {
    let mut tx = Tx::new(settings, view, stamp);
    match run(&mut tx, command).and_then(|reply| tx.finish(reply)) {
        Ok(effects) => Ok(effects),
        Err(Stop::Refused(error)) => Ok(Effects::refuse(error)),
        Err(Stop::Store(error)) => Err(error),
    }
}

fn run(tx: &mut Tx<'_>, command: Command) -> Result<Op, Stop> {
    match command {
        Command::CreateVolume { volume, owner } => volume::create(tx, &volume, &owner),
        Command::DeleteVolume { volume } => volume::delete(tx, &volume),
        Command::CreateBucket(create) => bucket::create(tx, &create),
        Command::DeleteBucket { address } => bucket::delete(tx, &address),
        Command::AcquireGrant(acquire) => grant::acquire(tx, acquire),
        Command::RenewGrant { holder, grant, life_ms } => grant::renew(tx, holder, grant, life_ms),
        Command::ReleaseGrant { holder, grant } => grant::release(tx, holder, grant),
        Command::RecordEpoch { holder, grant, container, epoch } => {
            grant::record_epoch(tx, holder, grant, container, epoch)
        }
        Command::ExpireGrants { grants } => grant::expire(tx, &grants),
        Command::CommitKey(commit) => key::commit(tx, commit),
        Command::DeleteKey { address, key, conditions, must_exist } => {
            key::delete(tx, &address, &key, &conditions, must_exist)
        }
        Command::DeleteKeys { address, keys } => key::delete_many(tx, &address, keys),
        Command::InitiateUpload(initiate) => multipart::initiate(tx, initiate),
        Command::CommitPart(part) => multipart::commit_part(tx, part),
        Command::CompleteUpload(complete) => multipart::complete(tx, complete),
        Command::AbortUpload { address, key, upload } => multipart::abort(tx, &address, &key, upload),
        Command::GetSecret { user, create, fresh } => secret::get(tx, &user, create, fresh),
        Command::RevokeSecret { user } => secret::revoke(tx, &user),
        Command::Purged { from, through } => purge::purged(tx, from, through),
        Command::ReclaimParts { limit } => purge::reclaim_parts(tx, limit),
        Command::Format => volume::format(tx),
    }
}

/// Finds a key and where its bytes are; for benches and offline tools.
///
/// # Errors
/// As the operation LookupKey.
pub fn lookup(
    view: &dyn Read,
    address: &command::Address,
    key: &ozone_common::name::KeyName,
) -> Result<ozone_proto::om::v1::KeyInfo, Error> {
    let at = read::find_key(view, address, key, 0)?;
    Ok(read::describe_key(view, key, &at, true)?.info)
}

/// A page of keys; for benches and offline tools.
///
/// # Errors
/// As the operation ListKeys.
pub fn list_keys(
    view: &dyn Read,
    address: &command::Address,
    start_after: bytes::Bytes,
) -> Result<ozone_proto::om::v1::KeyList, Error> {
    let request = ozone_proto::om::v1::ListKeys { start_after, ..Default::default() };
    Ok(list::keys(view, address, &request)?)
}
