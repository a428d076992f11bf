//! The program `ozone-sh`: hands over to the `ozone` beside it, under its own name, which makes that `ozone sh`.
//!
//! A copy of the whole program under a second name would be linked twice, RocksDB included.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let beside = match std::env::current_exe() {
        Ok(own) => own.with_file_name("ozone"),
        Err(error) => {
            eprintln!("ozone-sh: cannot tell where this program is: {error}");
            return ExitCode::FAILURE;
        }
    };
    // Returns only where it failed.
    let error = Command::new(&beside).arg0("ozone-sh").args(std::env::args_os().skip(1)).exec();
    eprintln!("ozone-sh: cannot start `{}`: {error}", beside.display());
    ExitCode::FAILURE
}
