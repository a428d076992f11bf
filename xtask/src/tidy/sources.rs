//! Rules about single files.

use super::lexer::{code_only, words};

// LIMIT: lines of a file of source. Files past ~600 lines should be split by topic long before.
const LINES_MAX: usize = 900;

/// What pure code must not name, and why.
const NOT_IN_CORE: &[(&str, &str)] = &[
    ("tokio", "it does no input or output"),
    ("tonic", "it does no input or output"),
    ("rocksdb", "rows come from a view and go out as effects"),
    ("Instant", "time comes in with the command"),
    ("SystemTime", "time comes in with the command"),
    ("rand", "ids come in with the command"),
    ("HashMap", "its order differs between members; take BTreeMap or a sorted Vec"),
    ("HashSet", "its order differs between members; take BTreeSet or a sorted Vec"),
    ("tracing", "a pure function has nothing to log; tell it in the effects"),
];

/// Host names that a build outside this machine cannot count on; packages come through their ordinary clients.
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io/"),
    concat!("static.crates", ".io"),
    concat!("index.crates", ".io"),
    concat!("pypi", ".org"),
    concat!("files.python", "hosted.org"),
    concat!("repo1.", "maven.org"),
    concat!("repo.maven.", "apache.org"),
    concat!("deb.debian", ".org"),
    concat!("registry.npm", "js.org"),
    concat!("proxy.go", "lang.org"),
];

pub(super) fn check_file(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let extension = path.rsplit('.').next().unwrap_or_default();
    if path != "Cargo.lock" {
        for (number, line) in text.lines().enumerate() {
            if let Some(host) = REGISTRIES.iter().find(|host| line.contains(**host)) {
                findings.push(format!(
                    "{path}:{}: names the registry host {host}; use the package client's own settings",
                    number + 1
                ));
            }
        }
    }
    if matches!(extension, "rs" | "proto" | "py" | "sh" | "java") && text.lines().count() > LINES_MAX {
        findings.push(format!("{path}: {} lines; more than {LINES_MAX}: split it by topic", text.lines().count()));
    }
    if extension == "rs" {
        let code = code_only(text);
        findings.extend(check_unsafe(path, text, &code));
        if path.contains("/src/core/") && !path.ends_with("_test.rs") && !path.ends_with("/tests.rs") {
            findings.extend(check_core(path, &code));
        }
    }
    findings
}

/// Every crate takes the workspace's lints, which deny `unsafe`.
pub(super) fn check_manifest(path: &str, text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    let fine = lines.find(|line| !line.is_empty()).is_some_and(|line| line == "workspace = true");
    (!fine).then(|| format!("{path}: `[lints] workspace = true` is missing"))
}

fn check_unsafe(path: &str, text: &str, code: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let expected = code.contains("expect(unsafe_code");
    for (number, line) in code.lines().enumerate() {
        if line.contains("allow(unsafe_code") {
            findings.push(format!("{path}:{}: take `#[expect(unsafe_code, reason = \"…\")]`", number + 1));
        }
        if words(line).any(|word| word == "unsafe") {
            let above = lines.get(number.saturating_sub(6)..=number).unwrap_or_default();
            if !expected || !above.iter().any(|line| line.contains("// SAFETY:")) {
                findings.push(format!("{path}:{}: unsafe without `#[expect(unsafe_code` or `// SAFETY:`", number + 1));
            }
        }
    }
    findings
}

/// Tests inside a file of `core/` may use anything; they stand at its end.
fn check_core(path: &str, code: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in code.lines().enumerate() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            break;
        }
        for (name, why) in NOT_IN_CORE {
            if words(line).any(|word| word == *name) {
                findings.push(format!("{path}:{}: core must not use `{name}`: {why}", number + 1));
            }
        }
        if line.contains("std::time") && !line.contains("std::time::Duration") {
            findings
                .push(format!("{path}:{}: core must not use `std::time`: time comes in with the command", number + 1));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &[&str]) {
        let findings = check_file(path, text);
        assert_eq!(findings.len(), expected.len(), "{path}: {text}: {findings:?}");
        for (finding, expected) in findings.iter().zip(expected) {
            assert!(finding.contains(expected), "{finding} lacks {expected}");
        }
    }

    #[test]
    fn what_core_must_not_use_is_found() {
        check("om/src/core/key.rs", "use tokio::sync::mpsc;\n", &["om/src/core/key.rs:1: core must not use `tokio`"]);
        check("om/src/core/key.rs", "fn f() {\n  let m: std::collections::HashMap<u8, u8>;\n}", &["key.rs:2"]);
        check("om/src/core/key.rs", "use std::time::Instant;", &["`Instant`", "`std::time`"]);
        check("om/src/core/key.rs", "use std::{time::SystemTime};", &["`SystemTime`"]);
        check("om/src/core/key.rs", "use rand::Rng;", &["`rand`"]);
        check("om/src/core/key.rs", "// tokio\nlet brand = \"HashMap\"; use std::time::Duration;", &[]);
        check("om/src/core/key.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n  use std::collections::HashMap;\n}", &[]);
        check("om/src/service/key.rs", "use tokio::sync::mpsc;", &[]);
    }

    #[test]
    fn unsafe_needs_its_reasons() {
        let fine = "#[expect(unsafe_code, reason = \"x\")]\nfn f() {\n  // SAFETY: proven\n  unsafe { g() }\n}";
        check("a/src/lib.rs", fine, &[]);
        check("a/src/lib.rs", &fine.replace("// SAFETY: proven", ""), &["a/src/lib.rs:4"]);
        check("a/src/lib.rs", &fine.replace("expect(", "allow("), &["take `#[expect(", "unsafe without"]);
        check("a/src/lib.rs", "// unsafe\nlet text = \"unsafe\"; fn unsafe_name() {}", &[]);
    }

    #[test]
    fn long_files_and_registry_hosts_are_found() {
        check("a/src/lib.rs", &"\n".repeat(LINES_MAX), &[]);
        check("a/src/lib.rs", &"\n".repeat(LINES_MAX + 1), &["901 lines"]);
        check("docs/long.md", &"\n".repeat(LINES_MAX + 1), &[]);
        for host in REGISTRIES {
            check("scripts/x", &format!("\ncurl https://{host}/x\n"), &["scripts/x:2: names the registry host"]);
        }
        check("Cargo.lock", &format!("source = \"registry+https://github.com/rust-lang/{}\"", REGISTRIES[0]), &[]);
    }

    #[test]
    fn a_manifest_without_the_lints_is_found() {
        assert_eq!(check_manifest("a/Cargo.toml", "[package]\n[lints]\nworkspace = true\n"), None);
        assert!(check_manifest("a/Cargo.toml", "[package]\n[dependencies]\nworkspace = true\n").is_some());
        assert!(check_manifest("a/Cargo.toml", "[lints]\n[lints.rust]\nunsafe_code = \"allow\"").is_some());
    }
}
