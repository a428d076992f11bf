//! Whose a disk volume is: one small file on it, `VOLUME`.
//!
//! ```text
//! ozone-disk-volume 1
//! cluster 6f0c…
//! datanode 91ab…
//! volume 03d4…
//! ```

use std::path::Path;

use ozone_common::env::Env;
use ozone_common::id::DiskVolumeId;
use ozone_common::{Error, ErrorCode};

use crate::store::Owner;

const FILE: &str = "VOLUME";
const HEAD: &str = "ozone-disk-volume 1";

/// Why a folder is not used as a volume.
pub(super) enum Refusal {
    /// It is another's: starting is wrong.
    Foreign(Error),
    /// The disk fails: the others may do.
    Failed(Error),
}

/// Reads the identity of the folder `path`, or makes it where the folder is absent or empty.
pub(super) fn load_or_create(env: &Env, path: &Path, owner: &Owner) -> Result<DiskVolumeId, Refusal> {
    let failed = |error: std::io::Error| {
        Refusal::Failed(Error::new(ErrorCode::VolumeFailed, format!("disk volume `{}`: {error}", path.display())))
    };
    let foreign = |why: String| Refusal::Foreign(Error::invalid(format!("disk volume `{}` {why}", path.display())));
    let file = path.join(FILE);
    if env.disk.exists(&file) {
        let bytes = env.disk.read(&file).map_err(failed)?;
        let (found, id) = parse(&bytes).ok_or_else(|| foreign(format!("has a file `{FILE}` that does not read")))?;
        if found.cluster != owner.cluster {
            return Err(foreign(format!("belongs to cluster {}, not to {}", found.cluster, owner.cluster)));
        }
        if found.datanode != owner.datanode {
            return Err(foreign(format!("belongs to datanode {}, not to {}", found.datanode, owner.datanode)));
        }
        return Ok(id);
    }
    if env.disk.exists(path) {
        let names = env.disk.list(path).map_err(failed)?;
        // What an empty file system may have by itself, and what a crash while this file was made leaves.
        if let Some(name) = names.iter().find(|name| *name != "lost+found" && *name != "VOLUME.tmp") {
            return Err(foreign(format!("is not empty and not a disk volume: it holds `{name}`")));
        }
    }
    env.disk.create_dir_all(path).map_err(failed)?;
    let id = DiskVolumeId::random(&*env.rng);
    let text = format!("{HEAD}\ncluster {}\ndatanode {}\nvolume {id}\n", owner.cluster, owner.datanode);
    env.disk.write_atomic(&file, text.as_bytes()).map_err(failed)?;
    Ok(id)
}

fn parse(bytes: &[u8]) -> Option<(Owner, DiskVolumeId)> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    if lines.next()? != HEAD {
        return None;
    }
    let cluster = lines.next()?.strip_prefix("cluster ")?.parse().ok()?;
    let datanode = lines.next()?.strip_prefix("datanode ")?.parse().ok()?;
    let id = lines.next()?.strip_prefix("volume ")?.parse().ok()?;
    lines.next().is_none().then_some((Owner { cluster, datanode }, id))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ozone_common::env::Disk;
    use ozone_common::env::mem_disk::MemDisk;
    use ozone_common::env::{ManualClock, SeededRng};
    use ozone_common::id::{ClusterId, DatanodeId};

    use super::*;

    #[test]
    fn a_volume_keeps_its_identity_and_refuses_others() {
        let disk = MemDisk::new();
        let rng = Arc::new(SeededRng::new(1));
        let env = Env { clock: Arc::new(ManualClock::at(0)), rng, disk: Arc::new(disk.clone()) };
        let owner = |cluster, datanode| Owner {
            cluster: ClusterId::from_bytes([cluster; 16]),
            datanode: DatanodeId::from_bytes([datanode; 16]),
        };
        let path = Path::new("/disks/1");
        let load = |owner| load_or_create(&env, path, &owner);
        let refused = |owner| match load(owner) {
            Err(Refusal::Foreign(error)) => error.message,
            _ => panic!("it was not refused"),
        };
        let id = load(owner(1, 1)).ok().unwrap();
        assert_eq!(load(owner(1, 1)).ok(), Some(id));
        assert!(refused(owner(2, 1)).contains("belongs to cluster 0101"));
        assert!(refused(owner(1, 2)).contains("belongs to datanode 0101"));
        disk.corrupt(&path.join(FILE), 0, 1);
        assert!(refused(owner(1, 1)).contains("does not read"));
        disk.remove_file(&path.join(FILE)).unwrap();
        disk.open(&path.join("holiday.jpg"), true).unwrap();
        assert!(refused(owner(1, 1)).contains("`holiday.jpg`"));
        disk.faults.fail_syncs_after(0);
        assert!(matches!(load_or_create(&env, Path::new("/disks/2"), &owner(1, 1)), Err(Refusal::Failed(_))));
    }
}
