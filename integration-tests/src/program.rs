//! The program under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The file of the program `ozone`: `$OZONE_PROGRAM`, or the one built beside these tests, which is built first where needed.
///
/// # Panics
/// Where it cannot be built.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(path) = std::env::var_os("OZONE_PROGRAM") {
            return path.into();
        }
        // Tests lie in <target>/<profile>/deps, programs one above.
        let own = std::env::current_exe().expect("this program has a file");
        let folder = own.parent().expect("in a folder");
        let folder = if folder.ends_with("deps") { folder.parent().expect("of a profile") } else { folder };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--locked", "-p", "ozone-cli"]).current_dir(root());
        if folder.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success(), "the program cannot be built");
        folder.join("ozone")
    })
}

/// The repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository")
}

/// A tool of the pinned clients (`aws`, `python3`), from where scripts/clients.sh has it.
///
/// # Panics
/// Where they cannot be installed.
pub fn tool(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let output = Command::new(root().join("scripts/clients.sh")).output().expect("scripts/clients.sh runs");
        assert!(output.status.success(), "scripts/clients.sh: {}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    });
    folder.join(name)
}
