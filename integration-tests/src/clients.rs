//! Real clients against a cluster.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use crate::cluster::Cluster;
use crate::program::{root, tool};

/// AWS CLI with the cluster's endpoint and keys.
pub fn aws(cluster: &Cluster, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(tool("aws"));
    command.arg("--endpoint-url").arg(cluster.endpoint()).args(arguments).envs(cluster.environment());
    // No settings of this machine's user.
    command
        .env("AWS_CONFIG_FILE", root().join("integration-tests/clients/aws_config"))
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env("AWS_PAGER", "");
    command
}

/// A script of `integration-tests/clients`, run by Python with boto3.
pub fn python(cluster: &Cluster, script: &str) -> Command {
    let mut command = Command::new(tool("python3"));
    command.arg(root().join("integration-tests/clients").join(script)).envs(cluster.environment());
    command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    command
}

/// A line of shell, with the cluster's environment as `cluster.env` gives it.
pub fn shell(cluster: &Cluster, line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-euc", line]).envs(cluster.environment());
    command
}

/// Runs to the end and returns stdout.
///
/// # Panics
/// With stderr, where it does not succeed.
pub fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// SHA-256 of a file, in hexadecimal.
///
/// # Panics
/// Where it cannot be read.
pub fn sha256(path: &Path) -> String {
    let told = run(Command::new("sha256sum").arg("-b").arg(path));
    told.split(' ').next().expect("a digest and a name").to_owned()
}
