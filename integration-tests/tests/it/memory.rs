//! A large object passes through a gateway that holds little of it.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use ozone_integration_tests::{Cluster, Options, aws, python, run, status_kib};

/// The object, MiB: more than a gateway may hold, and three copies of it still fit on a disk that is nearly full.
const OBJECT_MIB: u64 = 448;
/// The object where `OZONE_TEST_LONG` is set: the most that one request may carry.
const OBJECT_LONG_MIB: u64 = 5 << 10;
/// What the gateway may hold, KiB.
const PEAK_MAX_KIB: u64 = 256 << 10;

#[test]
fn a_large_object_takes_little_of_a_gateways_memory() {
    let cluster = Cluster::start(Options::processes());
    run(&mut aws(&cluster, ["s3", "mb", "s3://large"]));
    let long = std::env::var_os("OZONE_TEST_LONG").is_some();
    let length = if long { OBJECT_LONG_MIB } else { OBJECT_MIB } << 20;
    // One PUT of a stream, and one GET: multipart would never ask a gateway for the whole.
    run(python(&cluster, "one_large_object.py").args(["--bucket", "large", "--length", &length.to_string()]));
    let peak = status_kib(cluster.pid("s3g"), "VmHWM:");
    eprintln!("peak of the gateway: {} MiB", peak >> 10);
    assert!(peak <= PEAK_MAX_KIB, "{peak} KiB");

    // A client that reads nothing for a while does not make the gateway hold the object either.
    let link = run(&mut aws(&cluster, ["s3", "presign", "s3://large/object"]));
    let mut slow = Command::new("curl").args(["-sf", link.trim()]).stdout(Stdio::piped()).spawn().expect("curl runs");
    let mut first = [0; 1 << 16];
    slow.stdout.as_mut().expect("it was piped").read_exact(&mut first).expect("the first bytes");
    // Time in which a gateway that reads ahead without bound would have all of it.
    std::thread::sleep(Duration::from_secs(3));
    let peak = status_kib(cluster.pid("s3g"), "VmHWM:");
    slow.kill().expect("it runs");
    slow.wait().expect("it ends");
    assert!(peak <= PEAK_MAX_KIB, "{peak} KiB with a client that does not read");
}
