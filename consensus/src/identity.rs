//! Whose a member's folder is: role, cluster and member id in one small file, named as the role.
//!
//! ```text
//! ozone-om 1
//! cluster 6f0c…
//! member 91ab…
//! ```

use std::path::Path;

use ozone_common::env::Env;
use ozone_common::id::{ClientId, ClusterId};
use ozone_common::{Error, Result};

/// Reads the identity of a folder, or makes it in one that is absent or empty. Gives the member's id. `role`: such as `OM`.
///
/// # Errors
/// One line: the folder belongs to another cluster or role, or cannot be used.
pub fn load_or_create(env: &Env, folder: &Path, role: &str, cluster: ClusterId) -> Result<ClientId> {
    let refuse = |why: &dyn std::fmt::Display| Error::invalid(format!("{role} folder `{}`: {why}", folder.display()));
    let path = folder.join(role);
    if !env.disk.exists(&path) {
        if env.disk.exists(folder) && !env.disk.list(folder).map_err(|e| refuse(&e))?.is_empty() {
            return Err(refuse(&format!("is not empty and not an {role}'s")));
        }
        env.disk.create_dir_all(folder).map_err(|e| refuse(&e))?;
        let member = ClientId::random(&*env.rng);
        let text = format!("{}cluster {cluster}\nmember {member}\n", head(role));
        env.disk.write_atomic(&path, text.as_bytes()).map_err(|e| refuse(&e))?;
        return Ok(member);
    }
    let bytes = env.disk.read(&path).map_err(|e| refuse(&e))?;
    let (found, member) = parse(role, &bytes).ok_or_else(|| refuse(&format!("its file `{role}` does not read")))?;
    if found != cluster {
        return Err(refuse(&format!("belongs to cluster {found}, not to {cluster}")));
    }
    Ok(member)
}

/// Role and version of the file.
fn head(role: &str) -> String {
    format!("ozone-{} 1\n", role.to_ascii_lowercase())
}

fn parse(role: &str, bytes: &[u8]) -> Option<(ClusterId, ClientId)> {
    let text = std::str::from_utf8(bytes).ok()?.strip_prefix(&*head(role))?;
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
    fn a_folder_stays_with_its_cluster_and_role() {
        for (role, other) in [("OM", "SCM"), ("SCM", "OM")] {
            let disk = MemDisk::new();
            let env = Env { disk: Arc::new(disk.clone()), ..Env::system() };
            let folder = Path::new("/data");
            let cluster = ClusterId::from_bytes([1; 16]);
            let load = |folder: &Path, cluster| load_or_create(&env, folder, role, cluster);
            let member = load(folder, cluster).unwrap();
            assert_eq!(load(folder, cluster).unwrap(), member);
            let text = format!("ozone-{} 1\ncluster {cluster}\nmember {member}\n", role.to_ascii_lowercase());
            assert_eq!(disk_text(&env, &folder.join(role)), text);
            let error = load(folder, ClusterId::from_bytes([2; 16])).unwrap_err();
            assert!(error.message.contains("belongs to cluster 01010101-"), "{error}");
            disk.corrupt(&folder.join(role), 3, 1);
            assert!(load(folder, cluster).unwrap_err().message.contains("does not read"));

            let theirs = Path::new("/other");
            load_or_create(&env, theirs, other, cluster).unwrap();
            let error = load(theirs, cluster).unwrap_err();
            assert!(error.message.contains(&format!("not an {role}'s")) && !env.disk.exists(&theirs.join(role)));
        }
    }

    fn disk_text(env: &Env, path: &Path) -> String {
        String::from_utf8(env.disk.read(path).unwrap()).unwrap()
    }
}
