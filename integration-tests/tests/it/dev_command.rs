//! `ozone dev`: starts, refusals, status, stop.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ozone_integration_tests::{Cluster, Options, aws, cpu_time, program, ready_to_serve, run, status_kib, within};
use rustix::process::{Pid, Signal, kill_process};

/// Every path below a folder, with what a change would change.
fn snapshot(folder: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let metadata = fs::symlink_metadata(&path).expect("it is there");
        paths.push(format!("{} {} {:?}", path.display(), metadata.len(), metadata.modified().expect("a time")));
        if metadata.is_dir() {
            paths.extend(snapshot(&path));
        }
    }
    paths.sort();
    paths
}

/// Runs what must be refused: one line on stderr, nothing on stdout.
fn refused(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert_eq!(line.matches('\n').count(), 1, "one line: {line}");
    assert!(output.stdout.is_empty() && line.starts_with("ozone: "), "{line}");
    line
}

fn dev(arguments: &[&str], data: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg("dev").args(arguments).arg("--data").arg(data);
    command
}

#[test]
fn a_cluster_serves_is_stopped_and_starts_as_it_was() {
    for options in [Options::default(), Options::processes()] {
        let mut cluster = Cluster::start(options.clone());
        let mode = fs::metadata(cluster.data().join("cluster.env")).expect("cluster.env").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(cluster.variable("OZONE_DATA"), cluster.data().to_str().expect("text"));
        let roles: Vec<String> = cluster.pids().into_iter().map(|(role, _)| role).collect();
        let expected: &[&str] = if options.processes { &["scm", "om", "dn1", "dn2", "dn3", "s3g"] } else { &["all"] };
        assert_eq!(roles, expected);
        ready_to_serve(&cluster);

        // A second start says who is in the way, and changes nothing that the first one's roles do not.
        let line = refused(&mut cluster.start_command());
        let pid = cluster.pids()[0].1.to_string();
        assert!(line.contains("its cluster runs already") && line.contains(&pid), "{line}");

        run(&mut aws(&cluster, ["s3", "mb", "s3://kept"]));
        let before = cluster.environment().clone();
        let told = run(&mut cluster.dev("stop"));
        assert!(told.starts_with("stopped ") && told.contains(&pid), "{told}");
        let status = cluster.dev("status").output().expect("the program runs");
        assert_eq!(status.status.code(), Some(3));
        assert!(String::from_utf8_lossy(&status.stdout).contains("it does not run"));
        assert!(run(&mut cluster.dev("stop")).contains("no cluster runs"), "stopping twice is no fault");

        cluster.start_again();
        for name in ["OZONE_S3_ENDPOINT", "OZONE_OM_ADDRESS", "OZONE_SCM_ADDRESS", "AWS_SECRET_ACCESS_KEY"] {
            assert_eq!(cluster.variable(name), before[name], "{name} stays");
        }
        assert!(run(&mut aws(&cluster, ["s3", "ls"])).contains("kept"));
        run(&mut cluster.dev("stop"));
    }
}

#[test]
fn a_start_that_cannot_be_touches_nothing() {
    let top = tempfile::tempdir().expect("a temporary folder");
    let data = top.path().join("ozone");

    let squatter = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = squatter.local_addr().expect("an address").port().to_string();
    let line = refused(&mut dev(&["--s3-port", &port], &data));
    assert!(line.contains(&format!("port {port}")) && line.contains("--s3-port"), "{line}");
    assert!(!data.exists());

    let line = refused(&mut dev(&["--s3-port", "0", "--set", "om.grant_lif=1s"], &data));
    assert!(line.contains("did you mean `grant_life`?") && !data.exists(), "{line}");

    fs::DirBuilder::new().create(&data).expect("a folder");
    fs::File::create(data.join("thesis.tex")).expect("a file");
    let before = snapshot(top.path());
    let line = refused(&mut dev(&["--s3-port", "0"], &data));
    assert!(line.contains("holds no cluster of ours"), "{line}");
    for verb in ["stop", "status"] {
        assert!(refused(&mut dev(&[verb], &data)).contains("holds no cluster of ours"));
        assert!(refused(&mut dev(&[verb], &top.path().join("absent"))).contains("holds no cluster"));
    }
    assert_eq!(snapshot(top.path()), before);
}

/// A file system of 64 MiB, in a mount namespace of its own: no privilege is needed where user namespaces may be made, and
/// root has it anyway.
#[test]
fn a_full_disk_is_told_and_untouched() {
    let top = tempfile::tempdir().expect("a temporary folder");
    let script = "mount -t tmpfs -o size=64m ozone-test \"$1\" && \"$2\" dev --s3-port 0 --data \"$1/data\"; \
                  status=$?; ls -A \"$1\"; exit $status";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(top.path()).arg(program());
    let line = refused(&mut command);
    assert!(line.contains("no disk space") && line.contains("64.0 MiB free"), "{line}");
}

/// In the foreground until a signal: it ends with success, and nothing of it is left.
#[test]
fn signals_end_it_in_order() {
    for (mode, signal) in [("", Signal::INT), ("--processes", Signal::TERM)] {
        let top = tempfile::tempdir().expect("a temporary folder");
        let data = top.path().join("ozone");
        let mut command = dev(&["--s3-port", "0", "--datanodes", "1"], &data);
        if !mode.is_empty() {
            command.arg(mode);
        }
        let mut child = command.stdout(Stdio::null()).spawn().expect("the program runs");
        within(Duration::from_secs(60), "it serves", || {
            assert!(child.try_wait().expect("a child").is_none(), "it ended by itself");
            data.join("cluster.env").exists().then_some(()) // the last thing that a start does
        });
        assert!(dev(&["status"], &data).output().expect("the program runs").status.success());
        signal_to(&child, signal);
        assert!(child.wait().expect("a child").success());
        assert_eq!(dev(&["status"], &data).output().expect("the program runs").status.code(), Some(3));
    }
}

fn signal_to(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it runs");
}

/// A start is quick, and an idle cluster costs next to nothing. Bounds are those of an unoptimised build on a busy machine; docs/benchmarks.md has the figures.
#[test]
fn a_start_is_quick_and_idling_is_cheap() {
    let begun = Instant::now();
    let cluster = Cluster::single();
    let took = begun.elapsed();
    eprintln!("start to ready: {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    let pid = cluster.pid("all");
    let resident = status_kib(pid, "VmRSS:");
    eprintln!("resident: {} MiB", resident >> 10);
    assert!(resident < 400 << 10, "{resident} KiB");
    let (span, before) = (Duration::from_secs(3), cpu_time(pid));
    std::thread::sleep(span);
    let spent = cpu_time(pid) - before;
    eprintln!("CPU of {span:?} idle: {spent:?}");
    assert!(spent < span / 5, "{spent:?} of {span:?}");
}
