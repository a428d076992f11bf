//! Who may import whom. The arrows are those of ARCHITECTURE.md; development dependencies follow them too.

use super::Metadata;

/// Package, and the members of the workspace that it may depend on. Roles never import each other; gateways and tools
/// reach data through the client only.
const ALLOWED: &[(&str, &[&str])] = &[
    ("ozone-common", &[]),
    ("ozone-proto", &["ozone-common"]),
    ("ozone-rpc", &["ozone-common", "ozone-proto"]),
    ("ozone-kvstore", &["ozone-common"]),
    ("ozone-consensus", &["ozone-common", "ozone-proto", "ozone-rpc", "ozone-kvstore"]),
    ("ozone-om", ROLE),
    ("ozone-scm", ROLE),
    ("ozone-datanode", ROLE),
    ("ozone-client", &["ozone-common", "ozone-proto", "ozone-rpc"]),
    // Of rpc a gateway takes what is about its own ports: which may be bound, and the status server.
    ("ozone-s3-gateway", &["ozone-common", "ozone-rpc", "ozone-client"]),
    ("ozone-bench", &["ozone-common", "ozone-client"]),
    ("ozone-cluster", ALL),
    (
        "ozone-sim",
        &[
            "ozone-cluster",
            "ozone-common",
            "ozone-proto",
            "ozone-rpc",
            "ozone-consensus",
            "ozone-kvstore",
            "ozone-om",
            "ozone-scm",
            "ozone-datanode",
            "ozone-client",
        ],
    ),
    ("ozone-integration-tests", &[]),
    ("ozone-cli", &["ozone-bench", "ozone-cluster", "ozone-common", "ozone-client"]),
    (FOR_TESTS, &[]),
    ("xtask", &[]),
];

/// Every package's tests may use it.
const FOR_TESTS: &str = "ozone-fuzz";

const ROLE: &[&str] = &["ozone-common", "ozone-proto", "ozone-rpc", "ozone-consensus", "ozone-kvstore"];
const ALL: &[&str] = &[
    "ozone-common",
    "ozone-proto",
    "ozone-rpc",
    "ozone-consensus",
    "ozone-kvstore",
    "ozone-om",
    "ozone-scm",
    "ozone-datanode",
    "ozone-client",
    "ozone-s3-gateway",
];

pub(super) fn check(metadata: &Metadata) -> Vec<String> {
    let edges = metadata.members().flat_map(|package| {
        let own = package.dependencies.iter().filter(|d| d.path.is_some());
        let imports =
            own.filter(|d| !(d.name == FOR_TESTS && d.kind.as_deref() == Some("dev"))).map(|d| d.name.as_str());
        imports.map(|to| (package.name.as_str(), to)).chain([(package.name.as_str(), "")])
    });
    check_edges(edges)
}

/// `(from, "")` says only that the package is there.
fn check_edges<'a>(edges: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut findings = Vec::new();
    for (from, to) in edges {
        match ALLOWED.iter().find(|(name, _)| *name == from) {
            None => {
                findings.push(format!("{from} is not in the table of xtask/src/tidy/edges.rs: say what it may import"))
            }
            Some((_, allowed)) if to.is_empty() || allowed.contains(&to) => {}
            Some(_) => findings.push(format!("{from} must not import {to} (ARCHITECTURE.md says who may import whom)")),
        }
    }
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_arrows_and_unknown_packages_are_found() {
        for (from, to, fine) in [
            ("ozone-om", "ozone-kvstore", true),
            ("ozone-om", "", true),
            ("ozone-om", "ozone-scm", false),
            ("ozone-s3-gateway", "ozone-proto", false),
            ("ozone-s3-gateway", "ozone-om", false),
            ("ozone-common", "ozone-proto", false),
            ("ozone-client", "ozone-datanode", false),
            ("ozone-newcomer", "", false),
            ("xtask", "ozone-common", false),
        ] {
            assert_eq!(check_edges([(from, to)].into_iter()).is_empty(), fine, "{from} -> {to}");
        }
    }

    #[test]
    fn the_table_has_no_cycle_and_names_only_its_own() {
        // Each pass removes the packages that import nothing of what is left.
        let mut left: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
        while !left.is_empty() {
            let before = left.len();
            let remaining = left.clone();
            left.retain(|name| {
                let (_, allowed) = ALLOWED.iter().find(|(other, _)| other == name).unwrap();
                allowed.iter().any(|to| remaining.contains(to))
            });
            assert!(left.len() < before, "a cycle among {left:?}");
        }
        for (from, allowed) in ALLOWED {
            for to in *allowed {
                assert!(ALLOWED.iter().any(|(name, _)| name == to), "{from} -> {to}");
            }
        }
    }
}
