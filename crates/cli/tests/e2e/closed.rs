//! What `fermata status` tells of connections that nodes have refused or ended.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Dev, eventually, status, text};

/// Of a node's closed connections those of this face and of any of these causes.
fn closed(dev: &Dev, node: usize, face: &str, causes: &[&str]) -> Vec<Value> {
    let said = dev.json(&["status"]);
    let all = said["nodes"][node]["closed"].as_array();
    let all = all.cloned().unwrap_or_default().into_iter();
    let is_one = |c: &Value| c["face"] == face && causes.iter().any(|cause| c["cause"] == *cause);
    all.filter(is_one).collect()
}

/// A node that is held up takes nothing more: the others end their connections with it, and say
/// so until they end.
#[test]
fn a_peer_that_hangs_is_told_with_its_name() {
    let dev = Dev::start(&["--sites", "3"]);
    assert_eq!(status(&dev.run(&["put", "k", "v"])), 0);
    dev.signal(2, Signal::STOP);
    let value = "v".repeat(1 << 20);
    for i in 0..8 {
        // The first of them may find that its segment's primary hangs.
        eventually("a write is served", || {
            status(&dev.run_with(&["put", &format!("k{i}"), "-"], value.as_bytes())) == 0
        });
    }
    let hung = || closed(&dev, 0, "peer", &["silent", "stalled"]);
    eventually("the connections are ended", || !hung().is_empty());
    dev.signal(2, Signal::CONT);
    eventually("all are well", || status(&dev.run(&["status"])) == 0);
    let hung = hung();
    let first = &hung[0];
    assert_eq!(first["who"], "node 3", "{first}");
    assert!(first["count"].as_u64() > Some(0), "{first}");
    assert!(first["last_us"].as_u64() > Some(0), "{first}");
    let said = text(&dev.run(&["status"]).stdout);
    let heading = "Connections that nodes refused or ended since they started:";
    assert!(said.contains(heading), "{said}");
    let cause = first["cause"].as_str().expect("a word");
    let line = said.lines().find(|line| line.contains(cause));
    let label = dev.nodes[2]["node"].as_str().expect("announced");
    assert!(line.is_some_and(|line| line.contains(label)), "{said}");
    assert_eq!(dev.stop(), Some(0));
}

/// Clients beyond the places, and strangers at the port for peers.
#[test]
fn who_finds_no_place_is_told_by_cause() {
    let dev = Dev::start_with_files(400, &["--sites", "1"]);
    assert!(!text(&dev.run(&["status"]).stdout).contains("Connections"));
    let grpc = dev.nodes[0]["grpc"].as_str().expect("announced");
    let crowd: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(grpc).expect("it listens"))
        .collect();
    let peer = dev.nodes[0]["peer"].as_str().expect("announced");
    let mut stranger = TcpStream::connect(peer).expect("it listens");
    stranger.write_all(&[0xff; 64]).expect("it is read");
    // Hung up, or reset: it is gone.
    let _ = stranger.read_to_end(&mut Vec::new());
    // Whoever hangs up before being accepted is not refused.
    eventually("one of them is refused", || {
        crowd.iter().any(|mut stream| {
            stream.set_nonblocking(true).expect("a socket");
            match stream.read(&mut [0]) {
                Ok(read) => read == 0,
                Err(error) => error.kind() != ErrorKind::WouldBlock,
            }
        })
    });
    drop(crowd);
    eventually("the causes are told", || {
        let refused = closed(&dev, 0, "grpc", &["full", "descriptors"]);
        let foreign = closed(&dev, 0, "peer", &["foreign"]);
        !refused.is_empty() && foreign.len() == 1 && foreign[0]["count"].as_u64() > Some(0)
    });
    assert_eq!(dev.stop(), Some(0));
}
