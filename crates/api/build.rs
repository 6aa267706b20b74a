//! Compiles `fermata.v1` with a pure-Rust compiler, so that no `protoc` has to be installed, and
//! keeps the descriptors for server reflection.

use prost::Message;
use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let sources = ["fermata.proto", "sessions.proto"];
    let sources = sources.map(|name| format!("proto/fermata/v1/{name}"));
    for source in &sources {
        println!("cargo:rerun-if-changed={source}");
    }
    let descriptors = protox::Compiler::new(["proto"])?
        .include_imports(true)
        .include_source_info(true)
        .open_files(sources)?
        .file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("fermata.v1.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        // Large, and rare: every reply would be as large.
        .boxed(".fermata.v1.SessionReply.reply.status")
        .compile_fds(descriptors)?;
    Ok(())
}
