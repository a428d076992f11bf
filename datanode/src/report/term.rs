//! The highest term of the SCM that this datanode has obeyed, kept on disk.
//!
//! A deposed SCM that does not know it yet may still order deletes. Once a datanode has obeyed a later one, it refuses those.

use std::path::{Path, PathBuf};

use ozone_common::env::Env;
use ozone_common::{Error, ErrorCode, Result};
use parking_lot::Mutex;

const FILE: &str = "SCM_TERM";
const HEAD: &str = "ozone-scm-term 1\n";

/// The guard of destructive commands.
pub(crate) struct TermGuard {
    env: Env,
    path: PathBuf,
    highest: Mutex<u64>,
}

impl TermGuard {
    /// Reads the highest term from the data folder; 0 where none was obeyed yet.
    ///
    /// # Errors
    /// A file that does not read: going on would forget what was promised.
    pub fn load(env: &Env, data: &Path) -> Result<Self> {
        let path = data.join(FILE);
        let highest = if env.disk.exists(&path) {
            let refuse = |why: &dyn std::fmt::Display| Error::internal(format!("file `{}`: {why}", path.display()));
            let bytes = env.disk.read(&path).map_err(|error| refuse(&error))?;
            parse(&bytes).ok_or_else(|| refuse(&"is not a term"))?
        } else {
            0
        };
        Ok(Self { env: env.clone(), path, highest: Mutex::new(highest) })
    }

    /// Lets a destructive command of `term` through; a term higher than those before is durable first. Blocks on the disk then.
    ///
    /// # Errors
    /// `NotLeader`: a later SCM was obeyed before. `Internal`: the term cannot be made durable, so the command must not be carried out.
    pub fn admit(&self, term: u64) -> Result<()> {
        // Held while writing: a command of the same term waits until the term is durable.
        let mut highest = self.highest.lock();
        if term < *highest {
            let text = format!("a command of term {term} is refused: the SCM of term {highest} was obeyed before");
            return Err(Error::new(ErrorCode::NotLeader, text));
        }
        if term > *highest {
            let text = format!("{HEAD}{term}\n");
            let written = self.env.disk.write_atomic(&self.path, text.as_bytes());
            written.map_err(|error| Error::internal(format!("write `{}`: {error}", self.path.display())))?;
            *highest = term;
        }
        Ok(())
    }

    /// Whether `term` is the highest so far, so that [`TermGuard::admit`] lets it through without the disk.
    pub fn is_obeyed(&self, term: u64) -> bool {
        *self.highest.lock() == term
    }
}

fn parse(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.strip_prefix(HEAD)?.strip_suffix('\n')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ozone_common::env::mem_disk::MemDisk;

    use super::*;

    #[test]
    fn a_term_once_obeyed_outlives_a_restart_and_refuses_older_ones() {
        let env = Env { disk: Arc::new(MemDisk::new()), ..Env::system() };
        let data = Path::new("/dn");
        env.disk.create_dir_all(data).unwrap();
        let guard = TermGuard::load(&env, data).unwrap();
        guard.admit(0).unwrap();
        guard.admit(7).unwrap();
        guard.admit(7).unwrap();
        let error = guard.admit(6).unwrap_err();
        assert!(error.code == ErrorCode::NotLeader && error.message.contains("of term 7 was obeyed"), "{error}");
        let guard = TermGuard::load(&env, data).unwrap();
        assert!(guard.is_obeyed(7) && !guard.is_obeyed(8));
        assert!(guard.admit(6).is_err());
        env.disk.write_atomic(&data.join("SCM_TERM"), b"ozone-scm-term 1\n7x\n").unwrap();
        assert!(TermGuard::load(&env, data).is_err());
    }
}
