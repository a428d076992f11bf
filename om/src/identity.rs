//! Whose the data folder is: role, cluster and member id in one small file.

use std::path::Path;

use ozone_common::Error;
use ozone_common::env::Env;
use ozone_common::id::{ClientId, ClusterId};

const FILE: &str = "OM";
const HEAD: &str = "ozone-om 1\n";

/// Reads the folder's identity, or makes it in a folder that is absent or empty. Gives the member's id.
///
/// # Errors
/// One line: the folder belongs to another cluster or role, or cannot be used.
pub fn load_or_create(env: &Env, folder: &Path, cluster: ClusterId) -> Result<ClientId, Error> {
    let refuse = |why: &dyn std::fmt::Display| Error::invalid(format!("OM folder `{}`: {why}", folder.display()));
    let path = folder.join(FILE);
    if !env.disk.exists(&path) {
        if env.disk.exists(folder) && !env.disk.list(folder).map_err(|e| refuse(&e))?.is_empty() {
            return Err(refuse(&"is not empty and not an OM's"));
        }
        env.disk.create_dir_all(folder).map_err(|e| refuse(&e))?;
        let member = ClientId::random(&*env.rng);
        let text = format!("{HEAD}cluster {cluster}\nmember {member}\n");
        env.disk.write_atomic(&path, text.as_bytes()).map_err(|e| refuse(&e))?;
        return Ok(member);
    }
    let bytes = env.disk.read(&path).map_err(|e| refuse(&e))?;
    let (found, member) = parse(&bytes).ok_or_else(|| refuse(&format!("its file `{FILE}` does not read")))?;
    if found != cluster {
        return Err(refuse(&format!("belongs to cluster {found}, not to {cluster}")));
    }
    Ok(member)
}

fn parse(bytes: &[u8]) -> Option<(ClusterId, ClientId)> {
    let text = std::str::from_utf8(bytes).ok()?.strip_prefix(HEAD)?;
    let mut lines = text.lines();
    let cluster = lines.next()?.strip_prefix("cluster ")?.parse().ok()?;
    let member = lines.next()?.strip_prefix("member ")?.parse().ok()?;
    lines.next().is_none().then_some((cluster, member))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ozone_common::env::mem_disk::MemDisk;

    use super::*;

    #[test]
    fn a_folder_stays_with_its_cluster() {
        let disk = MemDisk::new();
        let env = Env { disk: Arc::new(disk.clone()), ..Env::system() };
        let folder = Path::new("/om");
        let cluster = ClusterId::from_bytes([1; 16]);
        let member = load_or_create(&env, folder, cluster).unwrap();
        assert_eq!(load_or_create(&env, folder, cluster).unwrap(), member);
        let error = load_or_create(&env, folder, ClusterId::from_bytes([2; 16])).unwrap_err();
        assert!(error.message.contains("belongs to cluster 01010101-"), "{error}");
        env.disk.create_dir_all(Path::new("/other")).unwrap();
        env.disk.write_atomic(Path::new("/other/SCM"), b"x").unwrap();
        let error = load_or_create(&env, Path::new("/other"), cluster).unwrap_err();
        assert!(error.message.contains("not an OM's") && !env.disk.exists(Path::new("/other/OM")));
    }
}
