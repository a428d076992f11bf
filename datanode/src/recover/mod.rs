//! Opening the replicas of a volume: what a crash left is made whole, and the index is brought up to the segments.
//!
//! Per replica
//! 1. Each segment is scanned from where the index covers it; torn tails are cut off, and the segment is made durable and ended. Nothing is appended to it again.
//! 2. Where the index covers more than a segment holds (a power failure took what nobody was promised), or is absent, the replica's rows are made anew
//!    from all its segments.
//! 3. Records are applied in an order that does not depend on which lane wrote them: data by segment, then ends by epoch, then discards, then tombstones.
//! 4. Damage quarantines the replica, never the volume.

mod replay;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ozone_common::Error;
use ozone_common::id::ContainerId;

pub(crate) use scan::{Expected, scan};

use crate::block::index::failed;
use crate::block::row::COUNTS;
use crate::container::manifest::Manifest;
use crate::container::replica::{Replica, parse_segment_name};
use crate::volume::DiskVolume;

/// Opens all replicas of a volume.
///
/// # Errors
/// `VolumeFailed`: the disk fails, or the index does.
pub(crate) fn open_replicas(volume: &DiskVolume, now_ms: u64) -> Result<Vec<Arc<Replica>>, Error> {
    let mut replicas = Vec::new();
    let mut here = BTreeSet::new();
    let io = |attempted: &str, error: std::io::Error| volume.error(format_args!("{attempted}: {error}"));
    for name in volume.disk.list(&volume.containers()).map_err(|error| io("list replicas", error))? {
        let dir = volume.containers().join(&name);
        let Some(id) = DiskVolume::parse_container_dir(&name) else {
            tracing::warn!(path = %dir.display(), "not the folder of a replica; left alone");
            continue;
        };
        let names = volume.disk.list(&dir).map_err(|error| io("list a replica", error))?;
        let files: BTreeMap<u32, bool> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
        let manifest = match Manifest::load(&*volume.disk, &dir) {
            Ok(Some(manifest)) if manifest.container() == Some(id) => manifest,
            Ok(None) if files.is_empty() => {
                // A crash while it was made: nothing was written to it.
                volume.disk.remove_dir_all(&dir).map_err(|error| io("remove an empty replica", error))?;
                continue;
            }
            Ok(_) => lost_manifest(id, "its manifest is missing or another's"),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                lost_manifest(id, "its manifest is damaged")
            }
            Err(error) => return Err(io("read a manifest", error)),
        };
        here.insert(id);
        replicas.push(replay::open_replica(volume, id, dir, manifest, &files, now_ms)?);
    }
    forget_others(volume, &here)?;
    volume.index.store().flush().map_err(failed)?;
    Ok(replicas)
}

fn lost_manifest(id: ContainerId, why: &str) -> Manifest {
    tracing::error!(container = %id, why, "a replica is quarantined");
    Manifest { container: id.get(), unhealthy: why.to_owned(), ..Manifest::default() }
}

/// Rows of replicas whose folder is gone.
fn forget_others(volume: &DiskVolume, here: &BTreeSet<ContainerId>) -> Result<(), Error> {
    let store = volume.index.store();
    let rows = store
        .scan(COUNTS, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, ozone_kvstore::Direction::Forward)
        .map_err(failed)?;
    let mut gone = Vec::new();
    for row in rows {
        let (key, _) = row.map_err(failed)?;
        let id = key[..].try_into().ok().map(u64::from_be_bytes).and_then(ContainerId::new);
        gone.extend(id.filter(|id| !here.contains(id)));
    }
    for id in gone {
        tracing::error!(container = %id, volume = %volume.path.display(), "the folder of a replica is gone; the replica is lost to this node");
        replay::forget_rows(volume, id)?;
    }
    Ok(())
}
