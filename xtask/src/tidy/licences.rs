//! Licences of everything that is linked into our programs, and crates that must not be.

use super::Metadata;

/// Licences that go with distributing under Apache-2.0. Keep deny.toml the same.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that bring a second copy of what we have, or a long build.
const BANNED: &[(&str, &str)] = &[
    ("aws-lc-sys", "ring is the one cryptographic library; this is minutes of C build"),
    ("openssl-sys", "ring is the one cryptographic library"),
    ("native-tls", "ring is the one cryptographic library"),
];

pub(super) fn check(metadata: &Metadata) -> Vec<String> {
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let label = format!("{} {}", package.name, package.version);
        match &package.license {
            None => findings.push(format!("{label} names no licence")),
            Some(expression) => match permitted(expression) {
                Some(true) => {}
                Some(false) => {
                    findings.push(format!("{label} has the licence `{expression}`, which is not on the list"))
                }
                None => findings.push(format!("{label} has the licence `{expression}`, which does not parse")),
            },
        }
        if let Some((name, why)) = BANNED.iter().find(|(name, _)| *name == package.name) {
            findings.push(format!("{name} must not be used: {why}"));
        }
    }
    findings
}

/// Whether an SPDX expression can be met with allowed licences; `None` where it does not parse.
/// Old manifests write `/` for `OR`. An exception (`WITH …`) only adds permissions.
fn permitted(expression: &str) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_ascii_whitespace().peekable();
    let result = any_of(&mut words)?;
    words.next().is_none().then_some(result)
}

type Words<'a> = std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>;

fn any_of(words: &mut Words<'_>) -> Option<bool> {
    let mut result = all_of(words)?;
    while words.next_if_eq(&"OR").is_some() {
        result |= all_of(words)?;
    }
    Some(result)
}

fn all_of(words: &mut Words<'_>) -> Option<bool> {
    let mut result = one(words)?;
    while words.next_if_eq(&"AND").is_some() {
        result &= one(words)?;
    }
    Some(result)
}

fn one(words: &mut Words<'_>) -> Option<bool> {
    match words.next()? {
        "(" => {
            let result = any_of(words)?;
            words.next_if_eq(&")").map(|_| result)
        }
        ")" | "OR" | "AND" | "WITH" => None,
        licence => {
            if words.next_if_eq(&"WITH").is_some() {
                words.next()?;
            }
            Some(ALLOWED.contains(&licence))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged_as_spdx_says() {
        for (expression, expected) in [
            ("MIT", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("GPL-3.0-only OR MIT", Some(true)),
            ("MIT AND GPL-3.0-only", Some(false)),
            ("MIT/Apache-2.0", Some(true)),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", Some(true)),
            ("MIT OR Apache-2.0 AND GPL-2.0-only", Some(true)),
            ("(MIT OR Apache-2.0) AND GPL-2.0-only", Some(false)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("SSPL-1.0 WITH x", Some(false)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT)", None),
            ("MIT Apache-2.0", None),
        ] {
            assert_eq!(permitted(expression), expected, "{expression}");
        }
    }
}
