//! Load that is written by one door and validated by the same or another.

use ozone_integration_tests::{Cluster, Options, run};
use serde_json::Value;

fn freon(cluster: &Cluster, line: &str) -> (Option<i32>, Value) {
    let words: Vec<&str> = line.split(' ').collect();
    let output = cluster.ozone(&[&["freon"], &words[..], &["--json"]].concat()).output().unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{line}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report)
}

fn count(report: &Value, operation: &str) -> u64 {
    let found = report["operations"].as_array().unwrap().iter().find(|entry| entry["name"] == operation);
    found.map_or(0, |entry| entry["count"].as_u64().unwrap())
}

/// The load succeeds with so many operations.
fn check(cluster: &Cluster, line: &str, operation: &str, expected: u64) -> Value {
    let (code, report) = freon(cluster, line);
    assert_eq!((code, &report["errors"]), (Some(0), &0.into()), "{line}: {report}");
    assert_eq!(count(&report, operation), expected, "{line}: {report}");
    report
}

#[test]
fn what_one_load_wrote_another_validates() {
    let cluster = Cluster::start(Options::processes());
    for (place, size) in [("-b small", "-s 5000"), ("-b large", "-s 3MiB -n 6 -t 2"), ("-b empty", "-s 0 -n 20")] {
        let keys = if size.contains("-n") { "" } else { " -n 300 -t 8" };
        let number = if size.contains("-n 6") {
            6
        } else if size.contains("-n 20") {
            20
        } else {
            300
        };
        let written = check(&cluster, &format!("ockg {place} {size}{keys} --inline never"), "PUT", number);
        let roles: Vec<_> =
            written["processes"].as_array().unwrap().iter().map(|p| p["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["scm", "om", "dn1", "dn2", "dn3", "s3g", "total"]);
        check(&cluster, &format!("ockv {place} {size}{keys}"), "GET", number);
    }
    // What is not as it was written is an error: another seed, another length, a key that was never written.
    for wrong in ["-s 5000 -n 300 --seed 2", "-s 5001 -n 300", "-s 5000 -n 20 -p absent"] {
        let (code, report) = freon(&cluster, &format!("ockv -b small -t 4 --errors-max 10 {wrong}"));
        assert_eq!((code, count(&report, "GET")), (Some(1), 0), "{wrong}: {report}");
        assert!(report["errors"].as_u64().unwrap() >= 10, "{wrong}: {report}");
    }
}

#[test]
fn s3_requests_of_every_kind() {
    let cluster = Cluster::single();
    run(&mut cluster.ozone(&["admin", "safemode", "wait"]));
    let s3 = |line: &str| format!("s3kg -b freon {line}");
    check(&cluster, &s3("-n 1100 -s 4KiB"), "PUT", 1100);
    check(&cluster, &s3("-n 500 -k 1100 -m get --validate -s 4KiB"), "GET", 500);
    check(&cluster, &s3("-n 500 -k 1100 -m head -s 4KiB"), "HEAD", 500);
    let listed = check(&cluster, &s3("-n 4 -m list -t 1"), "LIST", 4);
    assert_eq!(listed["operations"][0]["items"], 2 * 1100, "two pages, and again: {listed}");
    // Over S3 and through the client library alike.
    check(&cluster, "ockv -v s3v -b freon -n 1100 -t 8 -s 4KiB", "GET", 1100);
    let (code, mixed) = freon(&cluster, &s3("-n 400 -k 1100 -m get=4,head=3,put=2,delete=1 --validate -s 4KiB"));
    assert_eq!((code, &mixed["errors"], count(&mixed, "ALL")), (Some(0), &0.into(), 400), "{mixed}");
    let (code, gone) = freon(&cluster, &s3("-n 10000 -k 1600 -m delete-many -s 4KiB"));
    assert_eq!((code, &gone["operations"][0]["items"]), (Some(0), &1600.into()), "{gone}");
    let listed = check(&cluster, &s3("-n 1 -m list"), "LIST", 1);
    assert_eq!(listed["operations"][0]["items"], 0, "{listed}");
    check(&cluster, &s3("-n 3 -p large -s 10MiB --unsigned-payload"), "PUT", 3);
    check(&cluster, &s3("-n 6 -p large -k 3 -m get -s 10MiB --validate"), "GET", 6);
}
