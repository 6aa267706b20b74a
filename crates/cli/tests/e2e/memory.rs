//! What a crowd and its bodies take of a node's memory goes back to the system when they are gone.

use std::io::Write;
use std::net::TcpStream;

use crate::support::{Dev, eventually, status};

/// Connections that have begun a body of [`BODY`] bytes and sent [`SENT`] of it.
const BODIES: usize = 120;
const BODY: usize = 30 << 20;
const SENT: usize = 1 << 20;
/// Connections that have begun a head.
const CROWD: usize = 600;
/// What a node may keep of it.
const KEPT_KIB: u64 = 24 << 10;

/// Memory of a node that is in use, in KiB.
fn memory(dev: &Dev) -> u64 {
    let path = format!("/proc/{}/status", dev.pid(0).as_raw_nonzero());
    let said = std::fs::read_to_string(path).expect("the node runs");
    let line = said.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse().ok())
        .expect("a number")
}

#[test]
fn memory_returns_when_a_crowd_and_its_bodies_are_gone() {
    let dev = Dev::start(&["--sites", "1"]);
    assert_eq!(status(&dev.run(&["put", "k", "v"])), 0);
    let before = memory(&dev);
    let rest = dev.nodes[0]["rest"].as_str().expect("announced");
    let connect = || TcpStream::connect(rest).expect("it listens");
    let mut here = Vec::new();
    for at in 0..CROWD {
        let mut stream = connect();
        let head = format!("PUT /v1/keyspaces/registers/keys/c{at} HTTP/1.1\r\nhost:");
        stream.write_all(head.as_bytes()).expect("it is read");
        here.push(stream);
    }
    let sent = vec![b'x'; SENT];
    for at in 0..BODIES {
        let mut stream = connect();
        let head = format!(
            "PUT /v1/keyspaces/registers/keys/b{at}?consistency=linearizable HTTP/1.1\r\n\
             host: h\r\ncontent-type: application/octet-stream\r\ncontent-length: {BODY}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it is read");
        stream.write_all(&sent).expect("it is read");
        here.push(stream);
    }
    let with = BODIES as u64 * (SENT as u64 >> 10) / 2;
    eventually("the bodies are in memory", || memory(&dev) > before + with);
    drop(here);
    eventually("memory is returned", || memory(&dev) < before + KEPT_KIB);
    assert_eq!(dev.stop(), Some(0));
}
