//! The folder of a cluster: whose it is, who runs in it, and where things lie.
//!
//! ```text
//! DIR/OZONE-DEV        "ozone-dev 1": the folder is ours; the first file written
//! DIR/lock             held (flock) by every process of a running cluster
//! DIR/pids             role, process and its start time, one a line; of the last start
//! DIR/cluster.secret   identity and shared secret, mode 0600
//! DIR/ozone.toml       settings; ports are remembered here
//! DIR/cluster.env      for shells, mode 0600
//! DIR/log/             logs and audit trails
//! DIR/om, DIR/scm, DIR/dn1 …   the roles' own folders
//! ```
//! Nothing is written before the folder is known to be ours or empty.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use ozone_common::config::ByteSize;
use ozone_common::env::{Disk, Env};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::Error;
use crate::processes::Pids;

/// Name of the file that makes a folder ours.
pub(crate) const MARKER: &str = "OZONE-DEV";
const MARKER_TEXT: &str = "ozone-dev 1\n";

/// Free space that a first start asks for: logs, tables and open containers need it before the first object does.
const SPACE_FIRST: ByteSize = ByteSize::mib(256);
/// Free space that any start asks for: objects can still be deleted then.
const SPACE_AGAIN: ByteSize = ByteSize::mib(32);

/// What was found at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Nothing, or an empty folder.
    Nothing,
    /// A folder of ours.
    Cluster,
}

/// A cluster's folder.
#[derive(Clone)]
pub struct Home {
    path: PathBuf,
    env: Env,
}

impl Home {
    /// The folder of a cluster that was started before.
    ///
    /// # Errors
    /// [`Error::NoCluster`] where there is none, [`Error::Foreign`] and [`Error::Version`] where it is not one of ours.
    pub fn open(path: &Path, env: &Env) -> Result<Self, Error> {
        let (home, found) = Self::look(path, env)?;
        match found {
            Found::Cluster => Ok(home),
            Found::Nothing => Err(Error::NoCluster { path: home.path }),
        }
    }

    /// Looks at a path and writes nothing.
    pub(crate) fn look(path: &Path, env: &Env) -> Result<(Self, Found), Error> {
        let path = std::path::absolute(path).map_err(Error::io("resolve", path))?;
        if path.to_str().is_none_or(|text| text.chars().any(char::is_control)) {
            return Err(Error::Settings(format!("{path:?}: a folder's name must be UTF-8 without control characters")));
        }
        let home = Self { path, env: env.clone() };
        let disk = &env.disk;
        if !disk.exists(&home.path) {
            return Ok((home, Found::Nothing));
        }
        let names = match disk.list(&home.path) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::Foreign { path: home.path });
            }
            Err(error) => return Err(Error::io("list", &home.path)(error)),
        };
        if names.iter().any(|name| name == MARKER) {
            let marker = home.file(MARKER);
            let text = disk.read(&marker).map_err(Error::io("read", &marker))?;
            return match text == MARKER_TEXT.as_bytes() {
                true => Ok((home, Found::Cluster)),
                false => Err(Error::Version { path: home.path }),
            };
        }
        // A first start that was interrupted may have left the marker's other name.
        if names.iter().all(|name| Path::new(name) == Path::new(MARKER).with_extension("tmp")) {
            return Ok((home, Found::Nothing));
        }
        Err(Error::Foreign { path: home.path })
    }

    /// Checks that the file system has room.
    pub(crate) fn check_space(&self, found: Found) -> Result<(), Error> {
        let needed = if found == Found::Cluster { SPACE_AGAIN } else { SPACE_FIRST };
        let there = self.path.ancestors().find(|path| self.env.disk.exists(path)).unwrap_or(Path::new("/"));
        let available = self.env.disk.space(there).map_err(Error::io("ask for the free space of", there))?.available;
        if available < needed.get() {
            return Err(Error::NoSpace { path: self.path.clone(), available, needed });
        }
        Ok(())
    }

    /// Makes the folder ours.
    pub(crate) fn claim(&self) -> Result<(), Error> {
        let fail = |source| Error::Io { attempt: "make", path: self.path.clone(), source };
        self.env.disk.create_dir_all(&self.path).map_err(fail)?;
        self.env.disk.write_atomic(&self.file(MARKER), MARKER_TEXT.as_bytes()).map_err(fail)
    }

    /// Takes the folder for a running cluster.
    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        let path = self.file("lock");
        let file = open_lock(&path, true).map_err(Error::io("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let pids = self.pids().map(|pids| pids.to_string()).unwrap_or_default();
                let pids = if pids.is_empty() { "it is starting".to_owned() } else { format!("pid {pids}") };
                Err(Error::Running { path: self.path.clone(), pids })
            }
            Err(error) => Err(Error::io("lock", &path)(error.into())),
        }
    }

    /// Whether a process of the cluster runs.
    ///
    /// # Errors
    /// Where the lock cannot be looked at.
    pub fn is_running(&self) -> Result<bool, Error> {
        let path = self.file("lock");
        let file = match open_lock(&path, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Error::io("open", &path)(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false), // given back with the file
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(Error::io("lock", &path)(error.into())),
        }
    }

    /// The processes of the last start.
    ///
    /// # Errors
    /// A file that is there and does not read.
    pub fn pids(&self) -> Result<Pids, Error> {
        let path = self.file("pids");
        if !self.env.disk.exists(&path) {
            return Ok(Pids::default());
        }
        let text = self.env.disk.read(&path).map_err(Error::io("read", &path))?;
        Pids::parse(&String::from_utf8_lossy(&text)).ok_or_else(|| {
            Error::io("read", &path)(io::Error::new(io::ErrorKind::InvalidData, "a line is not `ROLE PID START`"))
        })
    }

    pub(crate) fn save_pids(&self, pids: &Pids) -> Result<(), Error> {
        let path = self.file("pids");
        self.env.disk.write_atomic(&path, pids.render().as_bytes()).map_err(Error::io("write", &path))
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The settings file.
    pub fn settings(&self) -> PathBuf {
        self.file("ozone.toml")
    }

    /// The file for shells.
    pub fn env_file(&self) -> PathBuf {
        self.file("cluster.env")
    }

    /// The folder of logs.
    pub fn log(&self) -> PathBuf {
        self.file("log")
    }

    /// The cluster's identity and secret.
    pub fn secret(&self) -> PathBuf {
        self.file("cluster.secret")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.env.disk
    }
}

#[expect(clippy::disallowed_methods, reason = "a lock needs the file itself, and holds no data")]
fn open_lock(path: &Path, create: bool) -> io::Result<File> {
    std::fs::OpenOptions::new().read(true).write(create).create(create).truncate(false).open(path)
}

/// Holds the folder for as long as this or a process that inherited it lives.
pub(crate) struct Lock(File);

impl Lock {
    /// Says whether processes started from now on inherit the lock.
    pub(crate) fn inherit(&self, yes: bool) -> Result<(), Error> {
        let flags = if yes { FdFlags::empty() } else { FdFlags::CLOEXEC };
        fcntl_setfd(self.0.as_fd(), flags).map_err(|error| Error::io("pass on", Path::new("lock"))(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::processes::Process;

    /// Waits out a child that another test is starting: until it executes its program it shares every file open here, and the locks on them.
    fn eventually(mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !holds() {
            assert!(Instant::now() < deadline, "still not so");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn only_an_empty_or_own_folder_is_taken() {
        let top = tempfile::tempdir().unwrap();
        let env = Env::system();
        let look = |path: &Path| Home::look(path, &env).map(|(_, found)| found);
        let folder = top.path().join("a/b");
        assert_eq!(look(&folder).unwrap(), Found::Nothing);
        assert!(matches!(Home::open(&folder, &env), Err(Error::NoCluster { .. })));
        assert!(!top.path().join("a").exists(), "looking makes nothing");
        let (home, _) = Home::look(&folder, &env).unwrap();
        home.claim().unwrap();
        assert_eq!(look(&folder).unwrap(), Found::Cluster);
        Home::open(&folder, &env).unwrap();

        env.disk.write_atomic(&home.file(MARKER), b"ozone-dev 2\n").unwrap();
        let error = look(&folder).unwrap_err().to_string();
        assert!(error.contains("not of a version") && !error.contains('\n'), "{error}");

        // Left by a crash in the middle of the first write.
        let other = top.path().join("other");
        env.disk.create_dir_all(&other).unwrap();
        assert_eq!(look(&other).unwrap(), Found::Nothing);
        env.disk.open(&other.join("OZONE-DEV.tmp"), true).unwrap();
        assert_eq!(look(&other).unwrap(), Found::Nothing);
        env.disk.write_atomic(&other.join("thesis.tex"), b"x").unwrap();
        let error = look(&other).unwrap_err().to_string();
        assert!(error.contains("is not empty and holds no cluster of ours"), "{error}");
        assert!(matches!(look(&other.join("thesis.tex")), Err(Error::Foreign { .. })));
        assert!(matches!(look(Path::new("/tmp/a\nb")), Err(Error::Settings(_))));
    }

    #[test]
    fn one_start_at_a_time() {
        let top = tempfile::tempdir().unwrap();
        let (home, _) = Home::look(&top.path().join("x"), &Env::system()).unwrap();
        home.claim().unwrap();
        assert!(!home.is_running().unwrap());
        let mut lock = None;
        eventually(|| {
            lock = home.lock().ok();
            lock.is_some()
        });
        assert!(home.is_running().unwrap());
        let error = home.lock().err().unwrap().to_string();
        assert!(error.contains("it is starting") && error.contains("ozone dev stop --data"), "{error}");
        home.save_pids(&Pids(vec![("om".into(), Process { pid: 12, started: 7 })])).unwrap();
        assert!(home.lock().err().unwrap().to_string().contains("(pid om=12)"));
        drop(lock);
        eventually(|| !home.is_running().unwrap());
        eventually(|| home.lock().is_ok());
    }

    #[test]
    fn too_little_space_is_told_before_anything_is_made() {
        let top = tempfile::tempdir().unwrap();
        let (home, found) = Home::look(&top.path().join("x/y"), &Env::system()).unwrap();
        home.check_space(found).unwrap();
        let error = Error::NoSpace { path: "/x".into(), available: 3 << 19, needed: SPACE_FIRST }.to_string();
        assert!(
            error.starts_with("no disk space: the file system of `/x` has 1.5 MiB free, and a cluster needs 256MiB")
        );
    }
}
