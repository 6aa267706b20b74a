//! What strangers say on the port for peers.

use crate::common::TestCluster;
use fermata_protocol::base::{ClusterId, Incarnation, NodeId, NodeName};
use fermata_protocol::message::{Envelope, Hello, Message};
use fermata_protocol::wire::{self, frame};
use proptest::prelude::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn peer(name: u16) -> NodeId {
    NodeId {
        name: NodeName(name),
        incarnation: Incarnation(0xabc),
    }
}

/// A greeting, field by field as `docs/formats/wire.md` has them.
fn greeting(version: u16, cluster: u128, from: NodeId, to: u16) -> Vec<u8> {
    let fields = (
        *b"FERMATA\n",
        version,
        ClusterId(cluster),
        from,
        NodeName(to),
    );
    let bytes = wire::encode(&fields);
    let mut framed = (bytes.len() as u32).to_be_bytes().to_vec();
    framed.extend_from_slice(&bytes);
    framed
}

fn envelope(from: NodeId) -> Envelope {
    let hello = Hello {
        cluster: ClusterId(0xfe),
        registry: vec![],
        answer: false,
    };
    Envelope {
        from,
        interval: None,
        messages: vec![Message::Hello(hello)],
    }
}

/// Says `bytes`, then nothing; returns how many bytes came back before the node hung up.
async fn say(address: &str, bytes: &[u8]) -> usize {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The node may hang up before everything is said.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut heard = Vec::new();
    let listening = stream.read_to_end(&mut heard);
    match tokio::time::timeout(Duration::from_secs(60), listening).await {
        Ok(_) => heard.len(),
        Err(_) => panic!("the node kept a connection that had ended"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_refused_and_the_node_goes_on() {
    let mut cluster = TestCluster::start(3).await;
    for at in 0..3 {
        cluster.client(at).await;
    }
    cluster.stop(1).await;
    let address = cluster.node(0).peer.clone();
    let good = greeting(wire::VERSION, 0xfe, peer(2), 1);
    let with = |more: &[u8]| [&good[..], more].concat();
    assert!(say(&address, &good).await > 0, "a known node is greeted");
    let refused: [(&str, Vec<u8>); 7] = [
        ("nothing", vec![]),
        ("noise", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("a long greeting", u32::MAX.to_be_bytes().to_vec()),
        (
            "another version",
            greeting(wire::VERSION + 1, 0xfe, peer(2), 1),
        ),
        ("another cluster", greeting(wire::VERSION, 0xff, peer(2), 1)),
        ("an unknown node", greeting(wire::VERSION, 0xfe, peer(9), 1)),
        (
            "this node itself",
            greeting(wire::VERSION, 0xfe, peer(1), 1),
        ),
    ];
    for (what, bytes) in refused {
        assert_eq!(say(&address, &bytes).await, 0, "{what} was greeted");
    }
    let sealed = frame::seal(&envelope(peer(2)));
    let frames: [Vec<u8>; 5] = [
        with(&u32::MAX.to_be_bytes()),
        with(&sealed[..sealed.len() - 1]),
        with(&[0, 0, 0, 4, 9, 9, 9, 9]),
        with(&[0, 0, 0, 0]),
        with(&frame::seal(&envelope(peer(3)))),
    ];
    for bytes in frames {
        say(&address, &bytes).await;
    }
    // Another incarnation of node 2 said hello above; the cluster goes on, with the real one too.
    cluster.restart(1).await;
    cluster.client(0).await;
    cluster.client(1).await;
}

proptest! {
    #[test]
    fn any_bytes_are_an_envelope_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = frame::open(&bytes);
    }

    #[test]
    fn a_damaged_frame_does_no_harm(at in 0usize..40, bit in 0u8..8, cut in 0usize..40) {
        let mut bytes = frame::seal(&envelope(peer(2)));
        bytes.drain(..4);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let _ = frame::open(&bytes);
        bytes.truncate(cut);
        let _ = frame::open(&bytes);
    }
}
