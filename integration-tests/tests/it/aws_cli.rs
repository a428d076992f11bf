//! AWS CLI as a user runs it: large files, many files, lists, removal, a presigned link.

use std::fs;
use std::path::Path;

use ozone_integration_tests::{Cluster, aws, run, sha256, shell};

/// Bytes of the large file and number of the small ones; the long form is what the issue of the project asks for.
fn sizes() -> (u64, usize) {
    match std::env::var_os("OZONE_TEST_LONG") {
        Some(_) => (1 << 30, 5000),
        None => (200 << 20, 600),
    }
}

#[test]
fn a_users_day() {
    let cluster = Cluster::single();
    let (large, files) = sizes();
    let folder = cluster.scratch();
    run(&mut aws(&cluster, ["s3", "mb", "s3://day"]));

    // A large file goes up in parts and comes down the same.
    let (up, down) = (folder.join("up"), folder.join("down"));
    run(&mut shell(&cluster, &format!("head -c {large} /dev/urandom > '{}'", up.display())));
    run(&mut aws(&cluster, ["s3", "cp", "--no-progress", path(&up), "s3://day/large file"]));
    run(&mut aws(&cluster, ["s3", "cp", "--no-progress", "s3://day/large file", path(&down)]));
    assert_eq!(sha256(&up), sha256(&down));
    let head = run(&mut aws(&cluster, ["s3api", "head-object", "--bucket", "day", "--key", "large file"]));
    let head: serde_json::Value = serde_json::from_str(&head).expect("JSON");
    assert_eq!(head["ContentLength"], large);
    assert!(head["ETag"].as_str().is_some_and(|etag| etag.contains('-')), "made of parts: {head}");

    // A tree of small files goes up once, and comes down the same.
    let tree = folder.join("tree");
    for n in 0..files {
        let place = tree.join(format!("crate {}/src/nested", n % 40));
        fs::DirBuilder::new().recursive(true).create(&place).expect("a folder");
        let text = format!("// file {n}\n").repeat(n % 97);
        std::io::Write::write_all(
            &mut fs::File::create(place.join(format!("f{n}.rs"))).expect("a file"),
            text.as_bytes(),
        )
        .expect("written");
    }
    run(&mut aws(&cluster, ["s3", "sync", "--only-show-errors", path(&tree), "s3://day/tree/"]));
    let again = run(&mut aws(&cluster, ["s3", "sync", path(&tree), "s3://day/tree/"]));
    assert_eq!(again, "", "nothing is left to copy");
    let back = folder.join("back");
    run(&mut aws(&cluster, ["s3", "sync", "--only-show-errors", "s3://day/tree/", path(&back)]));
    run(&mut shell(&cluster, &format!("diff -r '{}' '{}'", tree.display(), back.display())));

    // Lists count them.
    let list = run(&mut aws(&cluster, ["s3", "ls", "--recursive", "--summarize", "s3://day/tree/"]));
    assert!(list.contains(&format!("Total Objects: {files}\n")), "{list}");
    let top = run(&mut aws(&cluster, ["s3", "ls", "s3://day/"]));
    assert!(top.contains("PRE tree/") && top.contains("large file"), "{top}");

    // A link that needs no key, until it is changed.
    let link = run(&mut aws(&cluster, ["s3", "presign", "s3://day/large file", "--expires-in", "60"]));
    let link = link.trim();
    run(&mut shell(&cluster, &format!("curl -sf -o '{}' '{link}'", down.display())));
    assert_eq!(sha256(&up), sha256(&down));
    let forged = link.replace("X-Amz-Expires=60", "X-Amz-Expires=600");
    let status = run(&mut shell(&cluster, &format!("curl -s -o /dev/null -w '%{{http_code}}' '{forged}'")));
    assert_eq!(status, "403");

    run(&mut aws(&cluster, ["s3", "rm", "--recursive", "--only-show-errors", "s3://day/tree/"]));
    assert_eq!(run(&mut shell(&cluster, &format!("{} || true", list_command(&cluster)))), "");
    assert!(!aws(&cluster, ["s3", "rb", "s3://day"]).output().expect("aws runs").status.success(), "it is not empty");
    run(&mut aws(&cluster, ["s3", "rb", "--force", "s3://day"]));
    assert_eq!(run(&mut aws(&cluster, ["s3", "ls"])), "");
}

/// `aws s3 ls` of nothing fails, as it does against S3.
fn list_command(cluster: &Cluster) -> String {
    let command = aws(cluster, ["s3", "ls", "s3://day/tree/"]);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| format!("'{}'", word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a temporary folder's name is text")
}
