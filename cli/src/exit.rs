//! How commands end, for scripts: the exit codes.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | failed; stderr has one line that says why |
//! | 2 | the command line is wrong; nothing was tried |
//! | 3 | a volume, bucket, key, container or secret that the command names is not there |
//! | 4 | the cluster could not be reached, or did not answer in time; a change may have taken effect |
//! | 130 | interrupted (SIGINT) |
//! | 141 | the reader of stdout went away |

use std::io;
use std::process::ExitCode;

use ozone_common::{Error, ErrorCode};

use crate::render;

/// The user pressed ^C.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Arguments that clap could not judge, such as two that exclude each other by value.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The table above, at the end of the help.
pub const HELP: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong command line; 3 no such volume, bucket, key, container or secret;
4 cluster not reached or no answer in time; 130 interrupted; 141 nobody reads stdout any more";

/// Says what went wrong, in one line on stderr, and how the process ends.
pub fn report(program: &str, error: &anyhow::Error) -> ExitCode {
    let code = code_of(error);
    if code != 141 {
        eprintln!("{program}: {}", render::name(format!("{error:#}").as_bytes()));
    }
    ExitCode::from(code)
}

fn code_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<Error>() {
            return code_of_cluster_error(error.code);
        }
        if cause.is::<Interrupted>() {
            return 130;
        }
        if cause.is::<Usage>() {
            return 2;
        }
        if cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return 141;
        }
    }
    1
}

fn code_of_cluster_error(code: ErrorCode) -> u8 {
    match code {
        ErrorCode::VolumeNotFound
        | ErrorCode::BucketNotFound
        | ErrorCode::KeyNotFound
        | ErrorCode::UploadNotFound
        | ErrorCode::SecretNotFound
        | ErrorCode::ContainerNotFound => 3,
        ErrorCode::Unavailable | ErrorCode::DeadlineExceeded | ErrorCode::NotLeader | ErrorCode::ShuttingDown => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn codes_tell_scripts_what_happened() {
        let cluster = |code| anyhow::Error::from(Error::new(code, "x"));
        for (error, code) in [
            (anyhow::anyhow!("x"), 1),
            (cluster(ErrorCode::KeyAlreadyExists), 1),
            (cluster(ErrorCode::KeyNotFound), 3),
            (Err::<(), _>(cluster(ErrorCode::BucketNotFound)).context("outer").unwrap_err(), 3),
            (cluster(ErrorCode::Unavailable), 4),
            (cluster(ErrorCode::DeadlineExceeded), 4),
            (Usage("x".into()).into(), 2),
            (Interrupted.into(), 130),
            (io::Error::from(io::ErrorKind::BrokenPipe).into(), 141),
            (io::Error::from(io::ErrorKind::NotFound).into(), 1),
        ] {
            assert_eq!(code_of(&error), code, "{error:#}");
        }
        assert_eq!(render::name("a\x1b[2Jb\nc é".as_bytes()), "a\\u{1b}[2Jb\\nc é");
    }
}
