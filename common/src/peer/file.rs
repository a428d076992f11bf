//! The file that holds a cluster's identity and secret: text, mode 0600, written whole or not at all.
//!
//! ```text
//! version = 1
//! cluster = "6f0c…"       # 32 hexadecimal digits, with dashes
//! secret = "00ff…"        # 64 hexadecimal digits
//! ```

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ClusterSecret;
use crate::id::ClusterId;

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    cluster: String,
    secret: String,
}

/// Why a secret file cannot be used. No message holds any of the secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// It cannot be read or written.
    #[error("cannot {attempt} the secret file `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        attempt: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read it.
    #[error("the secret file `{}` has mode {mode:03o}: others can read it; run `chmod 600` on it, and make a new cluster if it was read", path.display())]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to somebody else, who could change it.
    #[error("the secret file `{}` belongs to user {owner}, not to the user of this process", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
    },
    /// It does not hold what it should.
    #[error("the secret file `{}` is not valid: {what}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

/// Writes the file, durably, with mode 0600. One that is there already is replaced.
///
/// # Errors
/// [`SecretFileError::Io`]; the old file is then untouched.
#[expect(
    clippy::disallowed_methods,
    reason = "the mode must be right from the first moment, which `Disk` does not offer"
)]
pub fn save_secret(path: &Path, secret: &ClusterSecret) -> Result<(), SecretFileError> {
    let text = Text { version: VERSION, cluster: secret.cluster.to_string(), secret: hex::encode(secret.expose()) };
    let text = toml::to_string(&text).expect("three plain values have a text form");
    let beside = path.with_extension("tmp");
    let write = || -> io::Result<()> {
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        fs::File::open(path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|source| SecretFileError::Io { attempt: "write", path: path.to_owned(), source })
}

/// Reads the file.
///
/// # Errors
/// A file that others can read or that is not ours is refused, as is one that is not valid.
pub fn load_secret(path: &Path) -> Result<ClusterSecret, SecretFileError> {
    let io = |source| SecretFileError::Io { attempt: "read", path: path.to_owned(), source };
    let malformed = |what| SecretFileError::Malformed { path: path.to_owned(), what };
    let file = fs::File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?; // of the open file: it cannot be exchanged in between
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(SecretFileError::Exposed { path: path.to_owned(), mode });
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(SecretFileError::Foreign { path: path.to_owned(), owner: metadata.uid() });
    }
    if metadata.len() > 4096 {
        return Err(malformed("it is longer than 4 KiB"));
    }
    let text = io::read_to_string(file).map_err(io)?;
    // The parser's own message is not passed on: it quotes the line.
    let text: Text = toml::from_str(&text)
        .map_err(|_| malformed("`version`, `cluster` and `secret` are needed, and nothing else"))?;
    if text.version != VERSION {
        return Err(malformed("its version is not 1"));
    }
    let cluster: ClusterId = text.cluster.parse().map_err(|_| malformed("`cluster` is not a cluster's id"))?;
    let mut secret = [0; 32];
    hex::decode_to_slice(&text.secret, &mut secret).map_err(|_| malformed("`secret` is not 64 hexadecimal digits"))?;
    Ok(ClusterSecret::new(cluster, secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_saved_secret_loads_and_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.secret");
        let secret = ClusterSecret::new(ClusterId::from_bytes([0x1a; 16]), [0xc3; 32]);
        write(&path.with_extension("tmp"), "left by a crash", 0o644);
        for _ in 0..2 {
            save_secret(&path, &secret).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            let loaded = load_secret(&path).unwrap();
            assert_eq!((loaded.cluster, loaded.expose()), (secret.cluster, secret.expose()));
        }
        assert!(!path.with_extension("tmp").exists());
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(load_secret(&path), Err(SecretFileError::Exposed { .. })), "{mode:o}");
        }
        assert!(save_secret(Path::new("/proc/nowhere/x"), &secret).unwrap_err().to_string().contains("cannot write"));
    }

    #[test]
    fn what_is_not_a_secret_file_is_refused_without_showing_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.secret");
        let (id, key) = ("1a".repeat(16), "c3".repeat(32));
        for (text, what) in [
            (String::new(), "are needed"),
            (format!("version = 1\ncluster = '{id}'\nsecret = '{key}'\nmore = 1"), "nothing else"),
            (format!("version = 2\ncluster = '{id}'\nsecret = '{key}'"), "version"),
            (format!("version = 1\ncluster = 'x'\nsecret = '{key}'"), "`cluster`"),
            (format!("version = 1\ncluster = '{id}'\nsecret = '{key}00'"), "`secret`"),
            (format!("version = 1\ncluster = '{id}'\nsecret = {key}"), "are needed"),
            ("#".repeat(5000), "longer"),
        ] {
            write(&path, &text, 0o600);
            let error = load_secret(&path).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains(&key), "{text}: {error}");
        }
        assert!(matches!(load_secret(&folder.path().join("absent")), Err(SecretFileError::Io { .. })));
    }
}
