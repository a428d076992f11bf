//! Compiles the .proto files with `protox`, so that no `protoc` need be installed.

use std::path::Path;

const FILES: [&str; 5] =
    ["common/v1/common.proto", "om/v1/om.proto", "scm/v1/scm.proto", "datanode/v1/data.proto", "rpc/v1/session.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile(FILES, [root])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
