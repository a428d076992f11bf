//! Whose the data folder is: cluster, datanode id, and the disk volumes it had, in one small file.
//!
//! ```text
//! ozone-datanode 1
//! cluster 6f0c…
//! datanode 91ab…
//! volume /disk1
//! ```
//! The disk volumes hold their own identity. They are remembered here so that an empty mount point is not taken for a
//! new disk: everything stored before would count as lost while its disk only waits to be mounted.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use ozone_common::env::Env;
use ozone_common::id::{ClusterId, DatanodeId};
use ozone_common::{Error, Result};

const FILE: &str = "DATANODE";
const HEAD: &str = "ozone-datanode 1";

/// Who this datanode is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    cluster: ClusterId,
    /// Made at the first start.
    pub datanode: DatanodeId,
    /// Folders of disk volumes that were in use once.
    volumes: BTreeSet<String>,
}

impl Identity {
    /// Reads the identity of `data`, or makes it in a folder that is absent or empty, and looks whether the disk volumes `folders` are there.
    ///
    /// # Errors
    /// One line: the folder belongs to another cluster or role, a disk volume that was in use is empty now, or the folder cannot be used.
    pub fn load_or_create(env: &Env, data: &Path, folders: &[PathBuf], cluster: ClusterId) -> Result<Self> {
        let refuse = |why: &dyn Display| refuse(data, why);
        let path = data.join(FILE);
        if !env.disk.exists(&path) {
            if env.disk.exists(data) && !env.disk.list(data).map_err(|e| refuse(&e))?.is_empty() {
                return Err(refuse(&"is not empty and not a datanode's"));
            }
            env.disk.create_dir_all(data).map_err(|e| refuse(&e))?;
            let made = Self { cluster, datanode: DatanodeId::random(&*env.rng), volumes: BTreeSet::new() };
            env.disk.write_atomic(&path, made.text().as_bytes()).map_err(|e| refuse(&e))?;
            return Ok(made);
        }
        let bytes = env.disk.read(&path).map_err(|e| refuse(&e))?;
        let found = Self::parse(&bytes).ok_or_else(|| refuse(&format!("its file `{FILE}` does not read")))?;
        if found.cluster != cluster {
            return Err(refuse(&format!("belongs to cluster {}, not to {cluster}", found.cluster)));
        }
        for folder in folders.iter().filter(|folder| found.volumes.contains(&*folder.to_string_lossy())) {
            let held = match env.disk.exists(folder).then(|| env.disk.list(folder)) {
                // What an empty file system may have by itself.
                Some(Ok(names)) => names.iter().any(|name| name != "lost+found"),
                // Cannot be read: a failed disk, which takes out itself alone.
                Some(Err(_)) => true,
                None => false,
            };
            if !held {
                return Err(Error::invalid(format!(
                    "disk volume `{}` held data of this datanode and is empty now: is its disk mounted? If the disk was replaced, \
                     take its line out of `{}`",
                    folder.display(),
                    path.display()
                )));
            }
        }
        Ok(found)
    }

    /// Remembers disk volumes that are in use now, those before included.
    ///
    /// # Errors
    /// Where the data folder cannot be written.
    pub fn remember(&mut self, env: &Env, data: &Path, folders: impl Iterator<Item = PathBuf>) -> Result<()> {
        let before = self.volumes.len();
        self.volumes.extend(folders.map(|folder| folder.to_string_lossy().into_owned()));
        if self.volumes.len() > before {
            env.disk.write_atomic(&data.join(FILE), self.text().as_bytes()).map_err(|e| refuse(data, &e))?;
        }
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = format!("{HEAD}\ncluster {}\ndatanode {}\n", self.cluster, self.datanode);
        for folder in &self.volumes {
            text.push_str(&format!("volume {folder}\n"));
        }
        text
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(bytes).ok()?.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let cluster = lines.next()?.strip_prefix("cluster ")?.parse().ok()?;
        let datanode = lines.next()?.strip_prefix("datanode ")?.parse().ok()?;
        let volumes = lines.map(|line| line.strip_prefix("volume ").map(str::to_owned));
        Some(Self { cluster, datanode, volumes: volumes.collect::<Option<_>>()? })
    }
}

fn refuse(data: &Path, why: &dyn Display) -> Error {
    Error::invalid(format!("datanode folder `{}`: {why}", data.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ozone_common::env::mem_disk::MemDisk;
    use proptest::prelude::*;

    use super::*;

    const OURS: ClusterId = ClusterId::from_bytes([1; 16]);

    fn env() -> Env {
        Env { disk: Arc::new(MemDisk::new()), ..Env::system() }
    }

    fn load(env: &Env, data: &str, volumes: &[&str], cluster: ClusterId) -> Result<Identity> {
        let folders: Vec<PathBuf> = volumes.iter().map(PathBuf::from).collect();
        Identity::load_or_create(env, Path::new(data), &folders, cluster)
    }

    fn refused(env: &Env, data: &str, volumes: &[&str], cluster: ClusterId, why: &str) {
        let error = load(env, data, volumes, cluster).unwrap_err();
        assert!(error.message.contains(why) && !error.message.contains('\n'), "{error}");
    }

    #[test]
    fn an_identity_is_made_once_and_stays_with_its_cluster() {
        let env = env();
        let made = load(&env, "/dn", &["/dn/volume"], OURS).unwrap();
        assert_eq!(load(&env, "/dn", &["/dn/volume"], OURS).unwrap(), made);
        assert_ne!(load(&env, "/dn2", &[], OURS).unwrap().datanode, made.datanode);
        refused(&env, "/dn", &[], ClusterId::from_bytes([2; 16]), "`/dn`: belongs to cluster 01010101-");
        env.disk.create_dir_all(Path::new("/other")).unwrap();
        env.disk.write_atomic(Path::new("/other/OM"), b"x").unwrap();
        refused(&env, "/other", &[], OURS, "not empty and not a datanode's");
        assert_eq!(env.disk.list(Path::new("/other")).unwrap(), ["OM"]);
        env.disk.write_atomic(Path::new("/dn/DATANODE"), b"ozone-datanode 2\n").unwrap();
        refused(&env, "/dn", &[], OURS, "`DATANODE` does not read");
    }

    #[test]
    fn a_mount_point_without_its_disk_is_noticed() {
        let env = env();
        let mut identity = load(&env, "/dn", &["/disk1"], OURS).unwrap();
        identity.remember(&env, Path::new("/dn"), ["/disk1".into(), "/disk2".into()].into_iter()).unwrap();
        refused(&env, "/dn", &["/disk1"], OURS, "`/disk1` held data of this datanode");
        for disk in ["/disk1", "/disk2"] {
            env.disk.create_dir_all(&Path::new(disk).join("lost+found")).unwrap();
        }
        refused(&env, "/dn", &["/disk1"], OURS, "is its disk mounted?");
        env.disk.write_atomic(Path::new("/disk1/x"), b"x").unwrap();
        load(&env, "/dn", &["/disk1"], OURS).unwrap();
        load(&env, "/dn", &["/disk1", "/disk3"], OURS).unwrap();
        refused(&env, "/dn", &["/disk1", "/disk2"], OURS, "`/disk2` held");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(folders in prop::collection::btree_set("/[a-z0-9 ./-]{0,20}", 0..5)) {
            let identity = Identity { cluster: OURS, datanode: DatanodeId::from_bytes([3; 16]), volumes: folders };
            prop_assert_eq!(Identity::parse(identity.text().as_bytes()), Some(identity));
        }

        #[test]
        fn arbitrary_files_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), good in 0..2_usize) {
            let file = [HEAD.as_bytes(), b"\n", &bytes[..]].concat();
            let _ = Identity::parse(&file[(1 - good) * (HEAD.len() + 1)..]);
        }
    }
}
