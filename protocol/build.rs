//! Generates the gRPC messages and services; no protoc is needed.

use std::error::Error;
use std::path::Path;

const PROTOS: [&str; 3] = ["raft.proto", "controller.proto", "metadata.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(PROTOS.map(|name| Path::new("proto").join(name)), ["proto"])?;
    // Payloads stay slices of the receive buffer.
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
