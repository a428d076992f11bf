//! One of four datanodes dies, or lies; nobody notices but the operator.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ozone_integration_tests::{Cluster, Load, Options, aws, eventually, ready_to_serve, run, shell, within};
use serde_json::Value;

const FOUR: u32 = 4;

fn four() -> Cluster {
    Cluster::start(Options { datanodes: FOUR, ..Options::processes() })
}

#[test]
fn no_request_fails_when_a_datanode_dies_under_load() {
    let mut cluster = four();
    run(&mut cluster.ozone(&["sh", "bucket", "create", "/s3v/load"]));
    let load = Load::start(&cluster, "load", 7, true);
    load.progress(300);
    let again = cluster.kill_role("dn2");
    // Well past the moment at which clients gave up on it.
    load.progress(1500);
    assert!(!cluster.dev("status").status().expect("the program runs").success(), "status tells of the dead one");
    cluster.revive(again);
    ready_again(&cluster, "dn2");
    load.progress(300);
    eprintln!("{}", load.end());
    eprintln!("{}", Load::verify(&cluster, "load"));
}

/// Waits until the container manager hears of the datanode again.
fn ready_again(cluster: &Cluster, role: &str) {
    let address = addresses(cluster).into_iter().find(|(name, _)| name == role).expect("a role").1;
    eventually(&format!("{role} is healthy"), || {
        let nodes = nodes(cluster);
        let at = |node: &Value| Some(format!("{}:{}", node["hostName"].as_str()?, node["port"].as_u64()?));
        let node = nodes.iter().find(|node| at(node).as_ref() == Some(&address))?;
        (node["healthState"] == "HEALTHY").then_some(())
    });
}

fn addresses(cluster: &Cluster) -> Vec<(String, String)> {
    let output = cluster.dev("status").arg("--json").output().expect("the program runs");
    let roles: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    roles.iter().map(|role| (text(&role["role"]), text(&role["address"]))).collect()
}

fn nodes(cluster: &Cluster) -> Vec<Value> {
    let text = run(&mut cluster.ozone(&["admin", "datanode", "list", "--json"]));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_flipped_byte_is_read_from_another_replica_and_reported() {
    let cluster = four();
    run(&mut cluster.ozone(&["sh", "bucket", "create", "/s3v/flip"]));
    // A pattern that no other file holds, small enough to lie in one chunk.
    let pattern: Vec<u8> = (0..12_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let source = cluster.scratch().join("source");
    std::io::Write::write_all(&mut std::fs::File::create(&source).expect("a file"), &pattern).expect("written");
    run(&mut cluster.ozone(&["sh", "key", "put", "/s3v/flip/key", &source.to_string_lossy()]));

    let copies = (1..=FOUR).filter_map(|n| {
        let place = find(&cluster.data().join(format!("dn{n}")), &pattern[8000..8064])?;
        Some((n, place))
    });
    let copies: Vec<_> = copies.collect();
    assert_eq!(copies.len(), 3, "three replicas hold the bytes: {copies:?}");
    // Two of three: whichever is asked first, one that lies is met.
    for (n, (path, offset)) in &copies[..2] {
        let file = OpenOptions::new().read(true).write(true).open(path).expect("the segment opens");
        let mut byte = [0];
        file.read_exact_at(&mut byte, *offset).expect("it is read");
        file.write_all_at(&[byte[0] ^ 0x10], *offset).expect("it is written");
        eprintln!("flipped a bit of dn{n}: {} at {offset}", path.display());
    }
    // Through the gateway, which takes replicas that are alike in turn.
    let link = run(&mut aws(&cluster, ["s3", "presign", "s3://flip/key"]));
    let target = cluster.scratch().join("target");
    for _ in 0..6 {
        run(&mut shell(&cluster, &format!("curl -sf -o '{}' '{}'", target.display(), link.trim())));
        assert!(std::fs::read(&target).expect("the object") == pattern, "the bytes are those that were written");
    }
    within(Duration::from_secs(30), "the damage is reported", || {
        let reported: u64 = nodes(&cluster).iter().filter_map(|node| node["corruptBlocks"].as_u64()).sum();
        (reported >= 1).then_some(())
    });
    ready_to_serve(&cluster);
}

/// The file and offset that hold the bytes.
fn find(folder: &Path, bytes: &[u8]) -> Option<(PathBuf, u64)> {
    for entry in std::fs::read_dir(folder).ok()? {
        let path = entry.ok()?.path();
        if path.is_dir() {
            if let Some(found) = find(&path, bytes) {
                return Some(found);
            }
        } else if let Ok(content) = std::fs::read(&path)
            && let Some(offset) = content.windows(bytes.len()).position(|window| window == bytes)
        {
            return Some((path, offset as u64));
        }
    }
    None
}
