//! Seals: what record, if any, a seal of a block needs, and what it answers.

use std::sync::Arc;

use ozone_common::{Error, ErrorCode};

use super::edit::cuts_window;
use super::index::Index;
use super::read::{Source, cut_checksum};
use super::record::{Header, Kind};
use super::row::{BlockRow, Body};
use crate::container::replica::{Phase, Replica};
use crate::store::Seal;
use crate::volume::DiskVolume;

/// The answer's length, and the record to be written first (its place is filled in by the lane).
pub(super) type SealPlan = (u64, Option<Header>);

/// Judges a seal. All records of the block before it are applied.
///
/// # Errors
/// As [`crate::store::Store::seal`].
pub(super) fn plan(volume: &DiskVolume, replica: &Arc<Replica>, seal: &Seal) -> Result<SealPlan, Error> {
    let index: &Index = &volume.index;
    let block = seal.block;
    let missing = |why: String| Err(Error::new(ErrorCode::BlockNotFound, format!("block {block}: {why}")));
    let stale = |why: String| Err(Error::new(ErrorCode::StaleEpoch, format!("block {block}: {why}")));
    let row = match index.block(block)? {
        Some(row) => row,
        None if index.is_deleted(block)? => {
            return Err(Error::new(ErrorCode::BlockDeleted, format!("block {block} was deleted")));
        }
        None => BlockRow::EMPTY,
    };
    let held = u64::from(row.length);
    let promised = row.promised.max(row.epoch);
    if promised > seal.epoch {
        return stale(format!("epoch {promised} was promised, the seal has {}", seal.epoch));
    }
    let length = seal.length.unwrap_or(held);
    if row.is_final && row.epoch == seal.epoch {
        return match length == held {
            true => Ok((held, None)),
            false => stale(format!("it was ended at {held} bytes under epoch {}", row.epoch)),
        };
    }
    if length > held {
        return missing(format!("{held} bytes of it are here, the seal is at {length}"));
    }
    let phase = replica.state.lock().phase;
    if !row.is_final && phase >= Phase::Finishing {
        return missing(format!("container {} closed without it", replica.id));
    }
    if !row.is_final && seal.length.is_none() {
        if promised == seal.epoch && row != BlockRow::EMPTY {
            return Ok((held, None));
        }
        return Ok((held, Some(template(Kind::Promise, seal, 0, row.crc, None))));
    }
    make_durable(volume, replica, &row)?;
    let (crc, last_window) = if length == held {
        // A cut before stays what it was.
        (row.crc, row.cut.and_then(|cut| cut.last_window))
    } else {
        let (crc, window) = cut_checksum(&Source { volume, replica }, block, &row, length as u32)?;
        (crc, cuts_window(length).then_some(window))
    };
    Ok((length, Some(template(Kind::Seal, seal, length as u32, crc, last_window))))
}

/// A block written whole lies in the other lane's segment, where nobody may have been promised durability.
fn make_durable(volume: &DiskVolume, replica: &Arc<Replica>, row: &BlockRow) -> Result<(), Error> {
    let Body::Whole(place) = row.body else { return Ok(()) };
    let segment = replica.totals.lock().segments.get(&place.segment).copied();
    let Some(segment) = segment.filter(|segment| segment.row.synced <= place.position) else { return Ok(()) };
    let file = volume.files.get(replica, place.segment, segment.paged);
    let synced = file.and_then(|file| file.sync_data());
    synced.map_err(|error| volume.error(format_args!("sync a segment: {error}")))
}

fn template(kind: Kind, seal: &Seal, length: u32, block_crc: u32, last_window: Option<u32>) -> Header {
    Header {
        kind,
        paged: false,
        epoch: seal.epoch,
        block: seal.block,
        offset: 0,
        length,
        durable_to: 0,
        position: 0,
        segment: 0,
        block_crc,
        words: last_window.into_iter().collect(),
    }
}
