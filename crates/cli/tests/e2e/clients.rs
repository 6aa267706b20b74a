//! More connections than a process may have files.

use std::net::TcpStream;

use crate::support::{Dev, eventually, status, text};

/// What the node may have open: it needs 264 at least.
const FILES: u32 = 400;
/// Connections to each face that say nothing; together they are more than that.
const SILENT: usize = 300;

fn descriptors(dev: &Dev) -> usize {
    let pid = dev.pid(0).as_raw_nonzero();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
    open.expect("the node runs").count()
}

#[test]
fn idle_clients_take_neither_the_node_nor_its_log() {
    let dev = Dev::start_with_files(FILES, &["--sites", "1"]);
    assert_eq!(status(&dev.run(&["put", "k", "v"])), 0);
    let before = descriptors(&dev);
    let faces = ["grpc", "rest"].map(|face| dev.nodes[0][face].as_str().expect("announced"));
    let mut silent = Vec::new();
    for face in faces {
        silent.extend((0..SILENT).map(|_| TcpStream::connect(face).expect("it listens")));
    }
    // More than a segment of the log.
    let value = "v".repeat(1 << 20);
    for i in 0..20 {
        eventually("a write is served", || {
            status(&dev.run_with(&["put", &format!("k{i}"), "-"], value.as_bytes())) == 0
        });
    }
    assert_eq!(text(&dev.run(&["get", "k"]).stdout), "v");
    assert!(descriptors(&dev) < FILES as usize);
    drop(silent);
    eventually("all descriptors are back", || {
        descriptors(&dev) <= before + 8
    });
    assert_eq!(dev.stop(), Some(0));
}
