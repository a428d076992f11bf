//! Developer tasks, run as `cargo xtask TASK`.

mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    let done = match task.as_deref() {
        Some("tidy") => tidy::run(),
        other => {
            eprintln!(
                "xtask: {}there is `cargo xtask tidy`",
                other.map(|t| format!("no task `{t}`; ")).unwrap_or_default()
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            for finding in &findings {
                eprintln!("tidy: {finding}");
            }
            eprintln!("tidy: {} finding(s)", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
