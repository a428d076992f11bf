//! Why a cluster on this machine does not start or stop; each is one line for the person who asked.

use std::io;
use std::path::{Path, PathBuf};

use ozone_common::config::ByteSize;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder holds something else.
    #[error(
        "`{}` is not empty and holds no cluster of ours; nothing was touched. Give another folder with --data",
        path.display()
    )]
    Foreign {
        /// Which folder.
        path: PathBuf,
    },
    /// The folder's marker is of another version.
    #[error("`{}`: its file `{}` is not of a version that this program knows (1); nothing was touched", path.display(), crate::home::MARKER)]
    Version {
        /// Which folder.
        path: PathBuf,
    },
    /// There is no cluster in the folder.
    #[error("`{}` holds no cluster", path.display())]
    NoCluster {
        /// Which folder.
        path: PathBuf,
    },
    /// Another start holds the folder.
    #[error("`{}`: its cluster runs already ({pids}); `ozone dev stop --data {}` stops it", path.display(), path.display())]
    Running {
        /// Which folder.
        path: PathBuf,
        /// Role and process of each, as in `cluster.env`.
        pids: String,
    },
    /// The file system has too little room.
    #[error(
        "no disk space: the file system of `{}` has {} free, and a cluster needs {needed}; nothing was touched",
        path.display(), mib(*available)
    )]
    NoSpace {
        /// Which folder.
        path: PathBuf,
        /// Bytes free.
        available: u64,
        /// What is asked for.
        needed: ByteSize,
    },
    /// Somebody listens there.
    #[error(
        "port {port} ({what}) is in use; stop the process that holds it, or give another with {flag} (0 = any free one)"
    )]
    PortInUse {
        /// Which port.
        port: u16,
        /// Whose it would be.
        what: String,
        /// The flag that changes it.
        flag: &'static str,
    },
    /// A port cannot be had for another reason.
    #[error("cannot listen on {address} ({what}): {source}")]
    Port {
        /// Where.
        address: String,
        /// Whose it would be.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// Settings that cannot be.
    #[error("{0}")]
    Settings(String),
    /// The settings cannot be read.
    #[error(transparent)]
    Config(#[from] ozone_common::config::ConfigError),
    /// The cluster's secret cannot be used.
    #[error(transparent)]
    Secret(#[from] ozone_common::peer::SecretFileError),
    /// A file of ours.
    #[error("cannot {attempt} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A role did not start, or stopped by itself.
    #[error("{role}: {message}")]
    Role {
        /// Which.
        role: String,
        /// In its own words.
        message: String,
    },
    /// A signal came before the cluster served.
    #[error("stopped while starting")]
    Interrupted,
    /// Something did not happen in time.
    #[error("{what}, after {seconds} s; the logs are in `{}`", log.display())]
    TooLate {
        /// What was waited for, and how it stands.
        what: String,
        /// How long.
        seconds: u64,
        /// Where to look.
        log: PathBuf,
    },
}

impl Error {
    pub(crate) fn io(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { attempt, path, source }
    }

    pub(crate) fn role(role: impl Into<String>, message: impl std::fmt::Display) -> Self {
        Self::Role { role: role.into(), message: message.to_string() }
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
