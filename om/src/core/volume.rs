//! Volumes, and the format of the store as a whole.

use ozone_common::name::VolumeName;
use ozone_common::{Error, ErrorCode};
use ozone_proto::om::v1::om_response::Op;

use super::tx::{Tx, empty, no_volume};
use super::{Stop, read};
use crate::tables::encode;
use crate::tables::meta::{self, Fact, LAYOUT_VERSION};
use crate::tables::volume::{self, VolumeRow};

/// Makes a volume.
pub(super) fn create(tx: &mut Tx<'_>, name: &VolumeName, owner: &str) -> Result<Op, Stop> {
    if volume::get(tx.view, name.as_str())?.is_some() {
        return Err(Error::new(ErrorCode::VolumeAlreadyExists, format!("volume `{name}` exists already")).into());
    }
    let row = new(tx, owner);
    put(tx, name, &row);
    Ok(Op::Volume(read::volume_info(name.as_str(), &row)))
}

/// A volume without buckets.
pub(super) fn new(tx: &Tx<'_>, owner: &str) -> VolumeRow {
    let now_ms = tx.stamp.now_ms;
    VolumeRow { owner: owner.to_owned(), created_ms: now_ms, modified_ms: now_ms, bucket_count: 0 }
}

/// Puts a volume's row.
pub(super) fn put(tx: &mut Tx<'_>, name: &VolumeName, row: &VolumeRow) {
    tx.batch.put(volume::TABLE, volume::key(name.as_str()), encode(row));
}

/// Removes an empty volume.
pub(super) fn delete(tx: &mut Tx<'_>, name: &VolumeName) -> Result<Op, Stop> {
    let row = volume::get(tx.view, name.as_str())?.ok_or_else(|| no_volume(name.as_str()))?;
    if row.bucket_count != 0 {
        return Err(Error::new(
            ErrorCode::VolumeNotEmpty,
            format!("volume `{name}` still has {} buckets", row.bucket_count),
        )
        .into());
    }
    tx.batch.delete(volume::TABLE, volume::key(name.as_str()));
    Ok(empty())
}

/// Marks a new store with the version of its rows; refuses one of another version.
pub(super) fn format(tx: &mut Tx<'_>) -> Result<Op, Stop> {
    match meta::get(tx.view, Fact::Layout)? {
        0 => meta::put(&mut tx.batch, Fact::Layout, LAYOUT_VERSION),
        LAYOUT_VERSION => {}
        other => {
            return Err(Error::new(
                ErrorCode::NotSupported,
                format!("the store has layout version {other}; this build knows {LAYOUT_VERSION}"),
            )
            .into());
        }
    }
    Ok(empty())
}
