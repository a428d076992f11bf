//! `ozone sh`, `admin`, `s3` and the rest of the command line: every command against a cluster, its errors and exit codes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ozone_integration_tests::{Cluster, eventually, program, run, sha256};
use serde_json::Value;

/// A command line whose words stand apart by blanks; answers stdout.
fn ok(cluster: &Cluster, line: &str) -> String {
    run(&mut cluster.ozone(&words(line)))
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').filter(|word| !word.is_empty()).collect()
}

fn json(cluster: &Cluster, line: &str) -> Value {
    let text = ok(cluster, &format!("{line} --json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
}

/// The command fails with this exit code, one line on stderr that has `part`, and nothing on stdout.
fn fails(cluster: &Cluster, line: &str, code: i32, part: &str) {
    let Output { status, stdout, stderr } = cluster.ozone(&words(line)).output().unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), stdout.as_slice()), (Some(code), &b""[..]), "{line}: {stderr}");
    assert!(stderr.contains(part), "{line}: {stderr}");
    if code != 2 {
        assert!(stderr.starts_with("ozone: ") && stderr.lines().count() == 1, "{line}: {stderr}");
    }
}

fn write(path: &Path, length: usize) {
    let mut state = length as u64 + 1;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(length)
    .collect();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn every_command_does_what_it_says() {
    let cluster = Cluster::single();
    eventually("the cluster takes writes", || {
        let status = cluster.ozone(&["admin", "safemode", "wait", "--wait-timeout", "1s"]).status().unwrap();
        status.success().then_some(())
    });
    volumes(&cluster);
    buckets(&cluster);
    keys(&cluster);
    listings(&cluster);
    recursive_deletes(&cluster);
    states(&cluster);
    secrets(&cluster);
    settings(&cluster);
    completion();
}

fn volumes(cluster: &Cluster) {
    assert_eq!(ok(cluster, "sh volume create /vol-a --user alice"), "volume vol-a is made\n");
    fails(cluster, "sh volume create /vol-a", 1, "VOLUME_ALREADY_EXISTS");
    fails(cluster, "sh volume create /V", 2, "volume name `V`");
    fails(cluster, "sh volume create /vol/buck", 2, "a volume is wanted");
    fails(cluster, "sh volume create ofs://om/vol", 2, "ofs:// belongs to another program");
    ok(cluster, "sh volume create vol-b");
    let info = json(cluster, "sh volume info /vol-a");
    assert_eq!((&info["name"], &info["owner"]), (&"vol-a".into(), &"alice".into()));
    fails(cluster, "sh volume info /vol-c", 3, "VOLUME_NOT_FOUND");
    let names = |line: &str| -> Vec<String> {
        let list = json(cluster, line);
        list.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("sh volume list --prefix vol-"), ["vol-a", "vol-b"]);
    assert_eq!(names("sh volume list --prefix vol- --start vol-a"), ["vol-b"]);
    assert_eq!(names("sh volume list --prefix vol- --length 1"), ["vol-a"]);
    assert_eq!(names("sh volume list --user alice"), ["vol-a"]);
    assert!(ok(cluster, "sh volume list").starts_with("NAME "));
    assert_eq!(ok(cluster, "sh volume delete /vol-b"), "volume vol-b is deleted\n");
    fails(cluster, "sh volume delete /vol-b", 3, "VOLUME_NOT_FOUND");

    // An address may name the OM, and one where nothing listens is told at once.
    let om = cluster.variable("OZONE_OM_ADDRESS").to_owned();
    let named = Command::new(program()).args(["sh", "volume", "info", &format!("o3://{om}/vol-a")]).output().unwrap();
    assert!(named.status.success(), "{}", String::from_utf8_lossy(&named.stderr));
    fails(cluster, "sh volume info o3://127.0.0.1:1/vol-a", 4, "cannot reach the OM at 127.0.0.1:1");

    // `ozone-sh` lies beside `ozone` and is `ozone sh`.
    let beside = program().with_file_name("ozone-sh");
    let same = run(Command::new(&beside).args(["volume", "info", "/vol-a", "--json"]).envs(cluster.environment()));
    assert_eq!(serde_json::from_str::<Value>(&same).unwrap(), info);
    let absent = Command::new(beside).args(["volume", "info", "/vol-c"]).envs(cluster.environment()).output().unwrap();
    assert_eq!(absent.status.code(), Some(3));
    assert!(absent.stderr.starts_with(b"ozone-sh: VOLUME_NOT_FOUND"));
}

fn buckets(cluster: &Cluster) {
    ok(cluster, "sh bucket create /vol-a/disk --layout OBS --type RATIS --replication THREE --inline never");
    ok(cluster, "sh bucket create /vol-a/memory --durability memory --replication ONE --inline always");
    ok(cluster, "sh bucket create /s3v/over-s3");
    fails(cluster, "sh bucket create /vol-a/disk", 1, "BUCKET_ALREADY_EXISTS");
    fails(cluster, "sh bucket create /vol-c/disk", 3, "VOLUME_NOT_FOUND");
    fails(cluster, "sh bucket create /vol-a/x-x --layout FSO", 2, "OBJECT_STORE only");
    fails(cluster, "sh bucket create /vol-a/x-x --type EC", 2, "no erasure coding");
    fails(cluster, "sh bucket create /vol-a", 2, "a bucket is wanted");
    let disk = json(cluster, "sh bucket info /vol-a/disk");
    assert_eq!(
        (&disk["durability"], &disk["inline"], &disk["inlineMax"]),
        (&"disk".into(), &"never".into(), &0.into())
    );
    assert_eq!(disk["replicationConfig"]["replicationFactor"], "THREE");
    assert_eq!(disk["bucketLayout"], "OBJECT_STORE");
    let memory = json(cluster, "sh bucket info /vol-a/memory");
    assert_eq!((&memory["durability"], &memory["inline"]), (&"memory".into(), &"always".into()));
    assert!(memory["inlineMax"].as_u64().unwrap() > 0);
    assert!(ok(cluster, "sh bucket info /vol-a/memory").contains("Durability   memory\n"));
    let list = json(cluster, "sh bucket list /vol-a");
    let names: Vec<_> = list.as_array().unwrap().iter().map(|bucket| bucket["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["disk", "memory"]);
    fails(cluster, "sh bucket list /vol-c", 3, "VOLUME_NOT_FOUND");
    fails(cluster, "sh bucket info /vol-a/gone", 3, "BUCKET_NOT_FOUND");
    fails(cluster, "sh volume delete /vol-a", 1, "VOLUME_NOT_EMPTY");
}

fn keys(cluster: &Cluster) {
    let folder = cluster.scratch().join("shell");
    std::fs::create_dir(&folder).unwrap();
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let names = || {
        let mut names: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    // One frame, a frame and a byte, several chunks; and nothing at all.
    for length in [0, 1, 5_000, 1 << 20, (1 << 20) + 1, 9_000_001] {
        let file = at(&format!("up-{length}"));
        write(Path::new(&file), length);
        for bucket in ["disk", "memory"] {
            let key = format!("/vol-a/{bucket}/dir/key-{length}");
            let stored = json(cluster, &format!("sh key put {key} {file}"));
            assert_eq!(stored["dataSize"], length);
            let down = at(&format!("down-{bucket}-{length}"));
            ok(cluster, &format!("sh key get {key} {down}"));
            assert_eq!(sha256(Path::new(&file)), sha256(Path::new(&down)), "{key}");
            let cat = cluster.ozone(&["sh", "key", "cat", &key]).output().unwrap();
            assert!(cat.status.success() && cat.stdout == std::fs::read(&file).unwrap(), "{key}");
        }
    }
    // Files are replaced only when told, and nothing is left of what failed.
    let before = names();
    let down = at("down-disk-5000");
    fails(cluster, &format!("sh key get /vol-a/disk/dir/key-1 {down}"), 1, "--force");
    assert_eq!(std::fs::metadata(&down).unwrap().len(), 5_000);
    ok(cluster, &format!("sh key get /vol-a/disk/dir/key-1 {down} --force"));
    assert_eq!(std::fs::metadata(&down).unwrap().len(), 1);
    fails(cluster, &format!("sh key get /vol-a/disk/none {}", at("none")), 3, "KEY_NOT_FOUND");
    fails(cluster, &format!("sh key put /vol-a/disk/none {}", at("none")), 1, "cannot read");
    fails(cluster, &format!("sh key put /vol-a/disk/none {}", folder.display()), 1, "it is a folder");
    fails(cluster, "sh key info /vol-a/disk/none", 3, "KEY_NOT_FOUND");
    assert_eq!(names(), before);
    let fetched = ok(cluster, &format!("sh key get /vol-a/disk/dir/key-5000 {}", folder.display()));
    assert_eq!(fetched, format!("{} (4.88 KiB)\n", at("key-5000")));

    // Stdin, metadata, conditions.
    let mut put = cluster.ozone(&[
        "sh",
        "key",
        "put",
        "/vol-a/disk/odd \u{1b}[1m//",
        "-",
        "-m",
        "Colour=blue",
        "--content-type",
        "text/x",
    ]);
    let mut put = put.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
    assert!(put.wait().unwrap().success());
    let info = cluster.ozone(&["sh", "key", "info", "/vol-a/disk/odd \u{1b}[1m//", "--json"]).output().unwrap();
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!((&info["name"], &info["dataSize"]), (&"odd \u{1b}[1m//".into(), &11.into()));
    assert_eq!((&info["metadata"]["colour"], &info["headers"]["content-type"]), (&"blue".into(), &"text/x".into()));
    let shown = cluster.ozone(&["sh", "key", "info", "/vol-a/disk/odd \u{1b}[1m//"]).output().unwrap();
    assert!(!shown.stdout.contains(&0x1b), "no name writes on the terminal");
    let file = at("up-1");
    fails(cluster, &format!("sh key put /vol-a/disk/dir/key-1 {file} --if-absent"), 1, "KEY_ALREADY_EXISTS");
    let generation = json(cluster, "sh key info /vol-a/disk/dir/key-1")["generation"].as_u64().unwrap();
    let expecting =
        |generation: u64| format!("sh key put /vol-a/disk/dir/key-1 {file} --expected-generation {generation}");
    assert!(json(cluster, &expecting(generation))["generation"].as_u64().unwrap() > generation);
    fails(cluster, &expecting(generation), 1, "KEY_CHANGED");
    fails(cluster, &format!("sh key put /vol-a/disk/x {file} -r ONE"), 1, "replication is the bucket's");

    // Where the bytes are.
    let info = json(cluster, "sh key info /vol-a/disk/dir/key-9000001");
    let blocks = info["ozoneKeyLocations"].as_array().unwrap();
    assert_eq!(blocks.iter().map(|block| block["length"].as_u64().unwrap()).sum::<u64>(), 9_000_001);
    assert!(blocks.iter().all(|block| block["datanodes"].as_array().unwrap().len() == 3), "{info}");
    assert_eq!(json(cluster, "sh key info /vol-a/memory/dir/key-1")["inline"], true);

    // Copies.
    ok(cluster, "sh key cp /vol-a/disk/dir/key-9000001 /vol-a/memory/copy");
    ok(cluster, "sh key cp /vol-a/memory copy again");
    ok(cluster, &format!("sh key get /vol-a/memory/again {}", at("again")));
    assert_eq!(sha256(Path::new(&at("up-9000001"))), sha256(Path::new(&at("again"))));
    fails(cluster, "sh key cp /vol-a/memory copy again --if-absent", 1, "KEY_ALREADY_EXISTS");
    fails(cluster, "sh key cp /vol-a/memory none again", 3, "KEY_NOT_FOUND");

    assert_eq!(ok(cluster, "sh key delete /vol-a/memory/again"), "key /vol-a/memory/again is deleted\n");
    fails(cluster, "sh key delete /vol-a/memory/again", 3, "KEY_NOT_FOUND");
    fails(cluster, "sh key cat /vol-a/memory/again", 3, "KEY_NOT_FOUND");
}

fn listings(cluster: &Cluster) {
    ok(cluster, "sh bucket create /vol-a/many --inline always");
    let made = json(cluster, "freon ockg -v vol-a -b many -p n -n 1234 -t 16 -s 10B");
    assert_eq!((&made["errors"], &made["operations"][0]["count"]), (&0.into(), &1234.into()), "{made}");
    let names = |line: &str| -> Vec<String> {
        let list = json(cluster, line);
        list.as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap().to_owned()).collect()
    };
    let name = |n: u32| format!("n/{n:010}");
    assert_eq!(names("sh key list /vol-a/many"), (0..100).map(name).collect::<Vec<_>>());
    assert_eq!(names("sh key list /vol-a/many --all"), (0..1234).map(name).collect::<Vec<_>>());
    assert_eq!(names("sh key list /vol-a/many -l 1100").len(), 1100);
    assert_eq!(names("sh key list /vol-a/many --prefix n/00000012 -a").len(), 34);
    assert_eq!(names("sh key list /vol-a/many --start n/0000001231"), [name(1232), name(1233)]);
    assert_eq!(json(cluster, "sh key list /vol-a/many --delimiter /"), serde_json::json!([{"prefix": "n/"}]));
    assert_eq!(json(cluster, "sh key list /vol-a/many --prefix nothing"), serde_json::json!([]));
    let cut = cluster.ozone(&["sh", "key", "list", "/vol-a/many", "-l", "2"]).output().unwrap();
    assert_eq!(String::from_utf8(cut.stdout).unwrap().lines().count(), 3);
    assert!(String::from_utf8(cut.stderr).unwrap().contains("--start 'n/0000000001'"));
    fails(cluster, "sh key list /vol-a/gone", 3, "BUCKET_NOT_FOUND");
    // Whoever reads goes away: silence and 141, as after SIGPIPE.
    let mut listing = cluster.ozone(&["sh", "key", "list", "/vol-a/many", "--all"]);
    let mut listing = listing.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(listing.stdout.take());
    let ended = listing.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(141), &b""[..]));
}

fn recursive_deletes(cluster: &Cluster) {
    fails(cluster, "sh bucket delete /vol-a/many", 1, "BUCKET_NOT_EMPTY");
    fails(cluster, "sh bucket delete /vol-a/many --recursive", 2, "--yes");
    ok(cluster, "sh bucket delete /vol-a/many --recursive --yes");
    fails(cluster, "sh bucket info /vol-a/many", 3, "BUCKET_NOT_FOUND");
    ok(cluster, "sh volume delete /vol-a -r -y");
    fails(cluster, "sh volume info /vol-a", 3, "VOLUME_NOT_FOUND");
}

fn states(cluster: &Cluster) {
    assert_eq!(ok(cluster, "admin safemode status"), "SCM is out of safe mode.\n");
    assert_eq!(json(cluster, "admin safemode status")["inSafeMode"], false);
    let nodes = json(cluster, "admin datanode list");
    let nodes = nodes.as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    assert!(nodes.iter().all(|node| node["healthState"] == "HEALTHY" && node["opState"] == "IN_SERVICE"), "{nodes:?}");
    let id = nodes[0]["id"].as_str().unwrap();
    assert_eq!(json(cluster, &format!("admin datanode list --id {id}")).as_array().unwrap().len(), 1);
    assert_eq!(json(cluster, "admin datanode list --health dead"), serde_json::json!([]));
    assert_eq!(ok(cluster, "admin datanode list").lines().count(), 4);
    let containers = json(cluster, "admin container list --all");
    let first = containers[0]["containerID"].as_u64().unwrap();
    let info = json(cluster, &format!("admin container info {first}"));
    assert_eq!(info[0]["containerID"], first);
    assert!(ok(cluster, &format!("admin container info {first}")).contains("REPLICA ON"));
    fails(cluster, "admin container info 123456789", 3, "CONTAINER_NOT_FOUND");
    fails(cluster, "admin container info 0", 2, "numbered from 1");
    let om = json(cluster, "admin om status");
    assert_eq!((&om["leader"], &om["members"], &om["writable"]), (&true.into(), &1.into(), &true.into()));
    assert_eq!(json(cluster, "admin scm status")["clusterID"], om["clusterID"]);
    fails(cluster, "admin safemode status --scm 127.0.0.1:1", 4, "cannot reach the SCM");
}

fn secrets(cluster: &Cluster) {
    let own = json(cluster, "s3 getsecret");
    assert_eq!(own["accessKey"], cluster.variable("AWS_ACCESS_KEY_ID"));
    assert_eq!(own["secretKey"], cluster.variable("AWS_SECRET_ACCESS_KEY"));
    let bob = json(cluster, "s3 getsecret -u bob");
    assert_eq!(json(cluster, "s3 getsecret -u bob"), bob, "a second call shows the same");
    let secret = bob["secretKey"].as_str().unwrap();
    assert_eq!(
        ok(cluster, "s3 getsecret -u bob -e"),
        format!("export AWS_ACCESS_KEY_ID='bob'\nexport AWS_SECRET_ACCESS_KEY='{secret}'\n")
    );
    fails(cluster, "s3 getsecret -u bob --as carol", 1, "PERMISSION_DENIED");
    ok(cluster, "s3 revokesecret -u bob");
    fails(cluster, "s3 revokesecret -u bob", 3, "S3_SECRET_NOT_FOUND");
    assert_ne!(json(cluster, "s3 getsecret -u bob"), bob, "a new one after it was revoked");
}

fn settings(cluster: &Cluster) {
    let text = ok(cluster, "config default");
    assert!(text.contains("\n[om]\n") && text.contains("\n#rpc_bind = \"127.0.0.1:9862\"\n"), "{text}");
    let path = cluster.scratch().join("ozone.toml");
    std::fs::write(&path, text).unwrap();
    ok(cluster, &format!("config check {}", path.display()));
    std::fs::write(&path, "[om]\nrcp_bind = 'x'").unwrap();
    fails(cluster, &format!("config check {}", path.display()), 1, "did you mean `rpc_bind`?");
    // Addresses of tools come from the file where neither flag nor environment names them.
    let om = cluster.variable("OZONE_OM_ADDRESS");
    std::fs::write(&path, format!("[client]\nom_addresses = ['{om}']")).unwrap();
    let named = Command::new(program()).args(["sh", "volume", "list", "--config"]).arg(&path).output().unwrap();
    assert!(named.status.success(), "{}", String::from_utf8_lossy(&named.stderr));
}

fn completion() {
    for shell in ["bash", "zsh", "fish"] {
        for name in ["ozone", "ozone-sh"] {
            let script = run(Command::new(program()).args(["completion", shell, "--program", name]));
            assert!(script.contains("volume") && script.contains(name), "{shell} {name}");
        }
    }
    let script = run(Command::new(program()).args(["completion", "bash"]));
    let mut bash = Command::new("bash").args(["-n"]).stdin(Stdio::piped()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(bash.wait().unwrap().success());
}
