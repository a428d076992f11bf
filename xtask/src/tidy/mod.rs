//! Rules of the repository that no compiler checks: who may import whom, what pure code may use, where `unsafe` may
//! stand, how long a file may be, which licences dependencies may have.
//!
//! Each rule is a function from text to findings, so that its tests show it what it must refuse.

mod edges;
mod lexer;
mod licences;
mod sources;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// The parts of `cargo metadata` that rules read.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    dependencies: Vec<Dependency>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// There for members of the workspace only.
    path: Option<PathBuf>,
    /// `dev`, `build`, or absent.
    kind: Option<String>,
}

/// All findings, each one line.
pub fn run() -> Result<Vec<String>> {
    let metadata = metadata()?;
    let root = &metadata.workspace_root;
    let mut findings = edges::check(&metadata);
    findings.extend(licences::check(&metadata));
    for member in metadata.members() {
        let manifest = std::fs::read_to_string(&member.manifest_path)
            .with_context(|| format!("read {}", member.manifest_path.display()))?;
        findings.extend(sources::check_manifest(&relative(root, &member.manifest_path), &manifest));
    }
    for path in tracked_files(root)? {
        match std::fs::read(root.join(&path)) {
            Ok(bytes) => {
                if let Ok(text) = String::from_utf8(bytes) {
                    findings.extend(sources::check_file(&path, &text));
                }
            }
            // Removed but not yet committed, or a link to nowhere: nothing to check.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("read {path}")),
        }
    }
    findings.sort();
    Ok(findings)
}

impl Metadata {
    fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

fn metadata() -> Result<Metadata> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // For one platform only: crates of other systems are not downloaded, and their licences do not reach our binaries.
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform"])
        .arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    serde_json::from_slice(&output.stdout).context("read the output of cargo metadata")
}

/// Files that git tracks or would track.
fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("run git ls-files")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    Ok(names.split_terminator('\0').map(str::to_owned).collect())
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
