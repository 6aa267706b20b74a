//! What strangers say on the port for peers.

use crate::common::{TestCluster, eventually};
use fermata_protocol::base::{
    ClusterId, Incarnation, Keyspace, KeyspaceId, NodeId, NodeName, Purpose, StoragePolicy, TagRule,
};
use fermata_protocol::catalogue::Catalogue;
use fermata_protocol::message::{Envelope, Hello, Message};
use fermata_protocol::registry::Registry;
use fermata_protocol::wire::{self, frame};
use proptest::prelude::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) fn peer(name: u32) -> NodeId {
    NodeId {
        name: NodeName(name),
        incarnation: Incarnation(0xabc),
    }
}

/// A greeting, field by field as `docs/formats/wire.md` has them.
pub(crate) fn greeting(version: u16, cluster: u128, from: NodeId, to: u32) -> Vec<u8> {
    greeting_of(1, (version, cluster, from, to))
}

/// The same, of another run of the process.
fn greeting_of(run: u64, (version, cluster, from, to): (u16, u128, NodeId, u32)) -> Vec<u8> {
    let fields = (
        *b"FERMATA\n",
        version,
        ClusterId(cluster),
        from,
        NodeName(to),
        run,
    );
    let bytes = wire::encode(&fields);
    let mut framed = (bytes.len() as u32).to_be_bytes().to_vec();
    framed.extend_from_slice(&bytes);
    framed
}

fn envelope(from: NodeId) -> Envelope {
    let hello = Hello {
        cluster: ClusterId(0xfe),
        registry: Registry::default(),
        complete: false,
        answer: false,
    };
    Envelope {
        from,
        interval: None,
        messages: vec![Message::Hello(hello)],
    }
}

/// Says `bytes`, then nothing; returns what came back before the node hung up.
async fn say(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The node may hang up before everything is said.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut heard = Vec::new();
    let listening = stream.read_to_end(&mut heard);
    match tokio::time::timeout(Duration::from_secs(60), listening).await {
        Ok(_) => heard,
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
    let heard = say(&address, &good).await;
    assert!(!heard.is_empty(), "a known node is greeted");
    for noise in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4]] {
        assert_eq!(say(&address, noise).await, b"");
    }
    // Who greets wrong hears in what the node differs, and nothing of its incarnation.
    let nobody = NodeId {
        incarnation: Incarnation(0),
        ..peer(1)
    };
    let (v, next) = (wire::VERSION, wire::FORMATS.end() + 1);
    for (said, heard) in [
        (greeting(next, 0xfe, peer(2), 1), (0xfe, 2)),
        (greeting(v, 0xff, peer(2), 1), (0, 2)),
        (greeting(v, 0xfe, peer(2), 3), (0xfe, 2)),
        (greeting(v, 0xfe, peer(9), 1), (0xfe, 1)),
        (greeting(v, 0xfe, peer(1), 1), (0xfe, 1)),
    ] {
        let (cluster, to) = heard;
        let refusal = greeting(v, cluster, nobody, to);
        assert_eq!(say(&address, &said).await, refusal, "{heard:?}");
    }
    // A second process under one identity hears which one is connected.
    let mut first = TcpStream::connect(&address).await.unwrap();
    first.write_all(&good).await.unwrap();
    first.read_exact(&mut vec![0; heard.len()]).await.unwrap();
    let copy = greeting_of(2, (v, 0xfe, peer(2), 1));
    let refusal = greeting_of(1, (v, 0xfe, nobody, 2));
    assert_eq!(say(&address, &copy).await, refusal);
    drop(first);
    eventually!(say(&address, &copy).await.len() > refusal.len());
    let sealed = frame::seal(&envelope(peer(2)), 0);
    let framed = |rest: Vec<u8>| [&(rest.len() as u32).to_be_bytes()[..], &rest].concat();
    let frames: [Vec<u8>; 7] = [
        with(&framed(many(frame::MESSAGES_MAX + 1))),
        with(&framed(swollen(&states(), &[2], 8 << 20))),
        with(&u32::MAX.to_be_bytes()),
        with(&sealed[..sealed.len() - 1]),
        with(&[0, 0, 0, 4, 9, 9, 9, 9]),
        with(&[0, 0, 0, 0]),
        with(&frame::seal(&envelope(peer(3)), 0)),
    ];
    for bytes in frames {
        say(&address, &bytes).await;
    }
    // Another incarnation of node 2 said hello above; the cluster goes on, with the real one too.
    cluster.restart(1).await;
    cluster.client(0).await;
    cluster.client(1).await;
}

/// A message with everything that has a length: lists, byte strings, strings.
fn rich() -> Envelope {
    use fermata_protocol::base::{Epoch, KeyId, LockRef, Seat, SegmentId, SessionId, Tag};
    use fermata_protocol::lock::message::Latest;
    use fermata_protocol::register::message::{Ask, Coding, Content, Fragment, StoreId};
    use fermata_protocol::{lock, register};
    let key = KeyId {
        keyspace: KeyspaceId(1),
        key: b"key"[..].into(),
    };
    let fragment = Fragment {
        coding: Coding::Whole,
        seat: Seat(1),
        length: 5,
        sum: 0,
        digest: 9,
        bytes: b"value"[..].into(),
    };
    let store = Message::Register(register::Message::Ask {
        call: 1,
        store: StoreId {
            segment: SegmentId(3),
            epoch: Epoch(1),
        },
        key: key.clone(),
        ask: Ask::Store {
            tag: Tag::default(),
            origin: Default::default(),
            content: Content::Value(fragment),
        },
    });
    let granted = Message::Lock(lock::Message::Granted(lock::Grant {
        session: SessionId(1),
        number: 2,
        segment: SegmentId(3),
        lock_ref: LockRef(4),
        generation: 0,
        latest: vec![Latest {
            key,
            value: Some(b"value"[..].into()).into(),
            tag: Tag::default(),
        }],
        lease: 7,
    }));
    let catalogue = Message::Catalogue(Catalogue::default());
    let mut envelope = envelope(peer(2));
    envelope.messages.extend([store, granted, catalogue]);
    envelope
}

/// A whole envelope without the frame's length.
fn sealed(envelope: &Envelope) -> Vec<u8> {
    frame::seal(envelope, 0).split_off(4)
}

/// An envelope with so many messages, without the frame's length.
fn many(messages: usize) -> Vec<u8> {
    let mut envelope = envelope(peer(2));
    let message = envelope.messages.remove(0);
    envelope.messages = vec![message; messages];
    [&wire::VERSION.to_be_bytes()[..], &wire::encode(&envelope)].concat()
}

/// An envelope with one message, which ends with a list of so many elements of these bytes.
fn swollen(message: &Message, element: &[u8], count: usize) -> Vec<u8> {
    let mut envelope = envelope(peer(2));
    envelope.messages = vec![message.clone()];
    let mut bytes = sealed(&envelope);
    assert_eq!(bytes.pop(), Some(0), "the list is empty and the last");
    bytes.extend_from_slice(&wire::encode(&(count as u64)));
    bytes.extend(element.iter().copied().cycle().take(count * element.len()));
    bytes
}

/// A message that ends with an empty list of states, each of which takes a byte.
fn states() -> Message {
    Message::Lock(fermata_protocol::lock::Message::Renewed {
        call: 1,
        result: Ok(vec![]),
    })
}

#[test]
fn an_envelope_has_a_bounded_number_of_messages() {
    let most = frame::measure(&many(frame::MESSAGES_MAX));
    let (envelope, memory) = most.expect("as many as may be");
    assert_eq!(envelope.messages.len(), frame::MESSAGES_MAX);
    assert!(memory >= frame::MESSAGES_MAX * size_of::<Message>());
    let more = frame::measure(&many(frame::MESSAGES_MAX + 1));
    assert!(more.is_err(), "one more");
}

#[test]
fn a_frame_of_nothing_but_tiny_elements_takes_no_more_memory_than_it_may() {
    let catalogue = Message::Catalogue(Catalogue::of(vec![], 1));
    // A keyspace is five bytes of zeros and more; a state is one.
    let keyspace = wire::encode(&Keyspace {
        name: String::new(),
        id: KeyspaceId(0),
        purpose: Purpose::Sections,
        storage: StoragePolicy::Replicated,
        tag_rule: TagRule::Whole,
        lease: 0,
        section_max: 0,
    });
    for (message, element) in [(states(), vec![2]), (catalogue, keyspace.to_vec())] {
        let mut refused = false;
        for count in [1, 1_000, 1 << 20, 8 << 20] {
            let rest = swollen(&message, &element, count);
            match frame::measure(&rest) {
                Ok((_, memory)) => {
                    assert!(!refused, "it is the larger ones that are refused");
                    assert!(memory <= frame::memory_max(rest.len()));
                    assert!(memory >= count * 8, "{memory} bytes for {count} elements");
                }
                Err(_) => refused = true,
            }
        }
        assert!(refused, "much larger in memory than on the wire");
    }
}

/// Most bytes of address space that this process ever had.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmPeak")).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

#[test]
fn a_length_that_lies_takes_no_memory() {
    let bytes = sealed(&rich());
    let before = peak();
    // 2^36 to 2^63, in the place of every byte that may be a length.
    for exponent in [36, 48, 60, 63] {
        let mut length = Vec::new();
        let mut n = 1u64 << exponent;
        while n >= 0x80 {
            length.push(n as u8 | 0x80);
            n >>= 7;
        }
        length.push(n as u8);
        for at in 2..bytes.len() {
            let lying = [&bytes[..at], &length, &bytes[at + 1..]].concat();
            if let Ok(envelope) = frame::open(&lying) {
                assert!(envelope.messages.len() <= lying.len(), "more than was sent");
            }
        }
    }
    // Other tests of this process use some, but nothing of that size.
    assert!(peak() - before < 16 << 30, "a length was believed");
}

proptest! {
    #[test]
    fn any_bytes_are_an_envelope_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = frame::open(&bytes);
        let versioned = [&wire::VERSION.to_be_bytes()[..], &bytes].concat();
        let _ = frame::open(&versioned);
    }

    #[test]
    fn lists_in_lists_take_what_they_are_told_to_take(
        lists in prop::collection::vec(0..2_000_usize, 0..200),
    ) {
        // Renewals name refs, three bytes and more each.
        use fermata_protocol::base::{LockRef, SegmentId, SessionId};
        use fermata_protocol::lock;
        let refs: usize = lists.iter().sum();
        let renew = |refs: &usize| Message::Lock(lock::Message::Renew {
            call: 0,
            segment: SegmentId(0),
            session: SessionId(0),
            refs: vec![(LockRef(0), 0); *refs],
            again: vec![],
            relinquishes: false,
        });
        let messages = lists.iter().map(renew).collect();
        let sent = Envelope { messages, ..envelope(peer(2)) };
        let rest = sealed(&sent);
        let (arrived, memory) = frame::measure(&rest).unwrap();
        prop_assert_eq!(&arrived, &sent);
        let least = lists.len() * size_of::<Message>() + refs * size_of::<(LockRef, u32)>();
        prop_assert!(memory >= least && memory <= frame::memory_max(rest.len()));
    }

    #[test]
    fn a_damaged_frame_is_another_envelope_or_malformed(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = sealed(&rich());
        prop_assert_eq!(frame::open(&whole).unwrap(), rich());
        let mut bytes = whole.clone();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = frame::open(&bytes);
        // Neither a part nor a repetition of an envelope is one.
        prop_assert!(frame::open(&whole[..cut.index(whole.len())]).is_err());
        prop_assert!(frame::open(&[&whole[..], &whole[2..]].concat()).is_err());
    }
}
