//! Nothing is lost on the wire, and everything malformed is refused by name.

use super::*;
use crate::v1::session_request::Operation as Wire;
use fermata_protocol::base::{
    Addresses, Epoch, GroupId, Incarnation, Keyspace, Label, NodeName, SegmentId, SiteId,
};
use fermata_protocol::catalogue::Access;
use fermata_protocol::registry::{Newcomer, Standing};
use fermata_protocol::request::{
    Critical, Entered, EntryValue, Operation, RefState, Reply, Request, RingChange, RingGroup,
    RingNode, RingSource, RingStatus,
};
use fermata_protocol::settings::{Join, Setting};
use proptest::prelude::*;
use prost::Message;

mod ledger;

fn names() -> Names {
    Names::new(&Keyspace::built_in(), vec!["ohio".into(), "oregon".into()])
}

/// The secret of one of the few sessions that requests are made of here.
fn secret_of(session: SessionId) -> Secret {
    let known = (0..16).map(Secret::new).find(|s| s.session() == session);
    known.expect("a session of a few")
}

fn key() -> impl Strategy<Value = KeyId> {
    (1u32..3, prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(keyspace, key)| KeyId {
        keyspace: fermata_protocol::base::KeyspaceId(keyspace),
        key: key.into(),
    })
}

fn held() -> impl Strategy<Value = Held> {
    (key(), 1u64.., 0..GENERATIONS).prop_map(|(key, lock_ref, generation)| Held {
        key,
        lock_ref: LockRef(lock_ref),
        generation,
    })
}

fn leaving() -> impl Strategy<Value = (Held, Leaving)> {
    let tag = (any::<u64>(), any::<u64>(), any::<u128>()).prop_map(|(l, sequence, writer)| Tag {
        lock_ref: LockRef(l),
        sequence,
        writer,
    });
    let how = prop_oneof![
        Just(Leaving::Dirty),
        prop::option::of(tag).prop_map(Leaving::Clean)
    ];
    (held(), how)
}

fn value() -> impl Strategy<Value = Option<Bytes>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..64).prop_map(Bytes::from))
}

fn setting() -> impl Strategy<Value = Setting> {
    prop_oneof![
        any::<u64>().prop_map(Setting::Lease),
        any::<u16>().prop_map(Setting::Format),
        any::<u64>().prop_map(Setting::DeadAfter),
        prop::option::of(prop_oneof![
            Just(Join::Load),
            Just(Join::Latency),
            Just(Join::Resilient)
        ])
        .prop_map(Setting::Join),
        any::<bool>().prop_map(Setting::NearestLeads),
        any::<u64>().prop_map(Setting::KeyBytes),
        any::<u64>().prop_map(Setting::ValueBytes),
        any::<u64>().prop_map(Setting::MoveRate),
    ]
}

fn addresses() -> impl Strategy<Value = Addresses> {
    ["[a-z:0-9]{0,20}", "[a-z:0-9]{0,20}", "[a-z:0-9]{0,20}"]
        .prop_map(|[peer, grpc, rest]| Addresses { peer, grpc, rest })
}

fn newcomer() -> impl Strategy<Value = Newcomer> {
    (any::<u128>(), "[a-z]{0,9}", "[a-z]{0,9}", addresses()).prop_map(
        |(incarnation, label, site, addresses)| Newcomer {
            incarnation: Incarnation(incarnation),
            label,
            site,
            addresses,
        },
    )
}

fn ring_change() -> impl Strategy<Value = RingChange> {
    let name = || any::<u32>().prop_map(NodeName);
    prop_oneof![
        (
            any::<u128>(),
            any::<u64>(),
            prop::collection::vec(name(), 1..13),
            any::<bool>()
        )
            .prop_map(|(group, after, members, pressing)| RingChange::Members {
                group: GroupId(group),
                after: Epoch(after),
                members,
                pressing,
            }),
        (name(), any::<bool>()).prop_map(|(name, drains)| RingChange::Drain { name, drains }),
        (name(), addresses())
            .prop_map(|(name, addresses)| RingChange::Readdress { name, addresses }),
        (name(), any::<bool>()).prop_map(|(name, lost)| RingChange::Dismiss { name, lost }),
    ]
}

fn ring(name: NodeName, standing: Standing, number: u32) -> RingStatus {
    RingStatus {
        node: name,
        version: 7,
        least: 3,
        nodes: vec![RingNode {
            name,
            label: "ohio-1".into(),
            site: "ohio".into(),
            standing,
            drains: number.is_multiple_of(2),
            addresses: Addresses::default(),
            heard: number.is_multiple_of(3),
            full: number.is_multiple_of(5),
            last_heard: number.is_multiple_of(2).then_some(u64::from(number)),
        }],
        groups: vec![RingGroup {
            id: GroupId(number.into()),
            from: SegmentId(1),
            to: SegmentId(0),
            epoch: Epoch(4),
            members: vec![name],
            leader: number.is_multiple_of(5).then_some(name),
            unstarted: number,
            sources: vec![RingSource {
                epoch: Epoch(3),
                members: vec![name, NodeName(1)],
                open: number,
                owed: vec![(name, 2)],
            }],
        }],
    }
}

fn renewal((held, last): (Vec<Held>, bool)) -> Operation {
    match last {
        true => Operation::Relinquish { held },
        false => Operation::Renew { held },
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (
            prop::collection::btree_set(key(), 1..4),
            any::<bool>(),
            any::<u64>(),
            any::<bool>(),
            prop::option::of(any::<u64>()),
            any::<bool>(),
            "[a-z@:é]{0,32}"
        )
            .prop_map(|(keys, shared, wait, follow, lease, may_return, label)| {
                Operation::Enter {
                    keys: keys.into_iter().collect(),
                    mode: if shared {
                        Mode::Shared
                    } else {
                        Mode::Exclusive
                    },
                    wait,
                    follow,
                    lease,
                    may_return,
                    label: Label::new(&label).unwrap(),
                }
            }),
        held().prop_map(|held| Operation::Critical {
            held,
            operation: Critical::Get,
            leave: vec![],
        }),
        (
            held(),
            1..GENERATION_SPAN,
            value(),
            prop::collection::vec(leaving(), 0..3)
        )
            .prop_map(|(held, number, value, leave)| Operation::Critical {
                held,
                operation: Critical::Put { number, value },
                leave,
            }),
        prop::collection::vec(leaving(), 1..3).prop_map(|keys| Operation::Leave { keys }),
        (prop::collection::vec(held(), 1..3), any::<bool>()).prop_map(renewal),
        prop::collection::vec(held(), 1..3).prop_map(|held| Operation::Resume {
            held,
            of: Secret::new(9).session(),
        }),
        (key(), 1u64..).prop_map(|(key, l)| Operation::Release {
            key,
            lock_ref: LockRef(l)
        }),
        key().prop_map(|key| Operation::Get { key }),
        (key(), value()).prop_map(|(key, value)| Operation::Put { key, value }),
        key().prop_map(|key| Operation::Read { key }),
        (key(), value()).prop_map(|(key, value)| Operation::Write { key, value }),
        key().prop_map(|key| Operation::Queue { key }),
        key().prop_map(|key| Operation::Inspect { key }),
        Just(Operation::Keyspaces),
        Just(Operation::Status),
        Just(Operation::CreateKeyspace(Keyspace::built_in()[1].clone())),
        any::<[Option<u64>; 2]>().prop_map(|[lease, section_max]| Operation::ChangeKeyspace {
            keyspace: Keyspace::SECTIONS,
            lease,
            section_max,
        }),
        Just(Operation::DeleteKeyspace {
            keyspace: Keyspace::REGISTERS
        }),
        another_operation(),
    ]
}

/// Of a ledger, or of the cluster.
fn another_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        ledger::operation(),
        setting().prop_map(Operation::ChangeSettings),
        Just(Operation::Ring),
        Just(Operation::Access),
        (any::<u64>(), value()).prop_map(|(after, policy)| Operation::ChangeAccess {
            after,
            policy: policy.unwrap_or_default(),
        }),
        ring_change().prop_map(Operation::ChangeRing),
        (newcomer(), any::<[u16; 2]>()).prop_map(|(newcomer, [first, last])| Operation::Admit {
            newcomer,
            formats: first..=last,
        }),
    ]
}

proptest! {
    #[test]
    fn a_request_survives_the_wire(
        operation in operation(),
        secret in 0u128..16,
        number in 1u64..,
        attempt: u32,
    ) {
        let request = Request {
            session: Secret::new(secret).session(),
            number,
            attempt,
            answered_through: number - 1,
            site: SiteId(1),
            operation,
        };
        let wire = operation_to_proto(&request, &secret_of, &names(), "oregon");
        let frame = v1::SessionRequest { id: 1, operation: Some(wire) };
        let frame = v1::SessionRequest::decode(&frame.encode_to_vec()[..]).unwrap();
        let back = request_from_proto(frame.operation.unwrap(), &names(), SiteId(0)).unwrap();
        prop_assert_eq!(back, request);
    }

    #[test]
    fn any_bytes_are_a_request_or_a_refusal(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(frame) = v1::SessionRequest::decode(&bytes[..])
            && let Some(wire) = frame.operation
            && let Err(refusal) = request_from_proto(wire, &names(), SiteId(0))
        {
            prop_assert!(!refusal.may_have_taken_effect);
        }
        if let Ok(frame) = v1::SessionReply::decode(&bytes[..])
            && let Some(wire) = frame.reply
        {
            let _ = reply_from_proto(wire, &mut names());
        }
    }

    #[test]
    fn a_damaged_request_is_another_one_or_a_refusal(
        operation in operation(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<prop::sample::Index>(),
        twice: bool,
    ) {
        let request = Request {
            session: Secret::new(7).session(),
            number: 2,
            attempt: 0,
            answered_through: 1,
            site: SiteId(1),
            operation,
        };
        let wire = operation_to_proto(&request, &secret_of, &names(), "oregon");
        let frame = v1::SessionRequest { id: 1, operation: Some(wire) };
        let mut bytes = frame.encode_to_vec();
        if twice {
            // Protocol buffers merge what is said twice.
            bytes.extend(frame.encode_to_vec());
        }
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for part in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            let Ok(frame) = v1::SessionRequest::decode(part) else { continue };
            let Some(wire) = frame.operation else { continue };
            match request_from_proto(wire, &names(), SiteId(0)) {
                // What is taken is well-formed: it goes out as it came in.
                Ok(taken) => {
                    let again = operation_to_proto(&taken, &|_| Secret::new(7), &names(), "oregon");
                    prop_assert!(request_from_proto(again, &names(), SiteId(0)).is_ok());
                }
                Err(refusal) => prop_assert!(!refusal.may_have_taken_effect),
            }
        }
    }

    #[test]
    fn a_section_reply_survives_the_wire(
        held in held(),
        value in value(),
        lease: u64,
        number: u32,
        standing in prop::sample::select(vec![Standing::Present, Standing::Gone, Standing::Lost]),
    ) {
        let replies = [
            Reply::Queued { held: vec![held.clone()], ahead: 3 },
            Reply::Stalled { why: "too few".into() },
            Reply::Entered {
                keys: vec![
                    Entered { held: held.clone(), value: value.into() },
                    Entered { held: held.clone(), value: EntryValue::Omitted },
                ],
                lease,
            },
            Reply::Ring(Box::new(ring(NodeName(number), standing, number))),
            Reply::Lost { held },
            Reply::Access(Access { version: number.into(), policy: Bytes::from_static(b"{}") }),
            Reply::Left,
            Reply::Done { tag: None },
            Reply::Renewed { states: vec![
                RefState::Gone,
                RefState::Deleted,
                RefState::Denied,
                RefState::Holding { lease },
            ] },
        ];
        for reply in replies {
            let wire = reply_to_proto(reply.clone(), &names());
            prop_assert_eq!(reply_from_proto(wire, &mut names()).unwrap(), reply);
        }
    }
}

/// A well-formed critical put, to be spoiled.
fn put() -> v1::CriticalPutRequest {
    v1::CriticalPutRequest {
        header: Some(v1::Header {
            secret: vec![7; 16].into(),
            number: 5,
            answered_through: 4,
            site: String::new(),
            attempt: 0,
        }),
        held: Some(v1::Held {
            key: Some(v1::Key {
                keyspace: "default".into(),
                key: "k".into(),
            }),
            lock_ref: 1,
            generation: 0,
        }),
        sequence: 1,
        value: Some("v".into()),
        leave: vec![],
    }
}

#[test]
fn each_malformed_field_is_refused_by_name() {
    type Spoil = fn(&mut v1::CriticalPutRequest);
    let spoils: [(&str, Spoil); 12] = [
        ("header", |m| m.header = None),
        ("16 random bytes", |m| {
            m.header.as_mut().unwrap().secret = "short".into()
        }),
        ("number is 0", |m| m.header.as_mut().unwrap().number = 0),
        ("answered_through", |m| {
            m.header.as_mut().unwrap().answered_through = 5
        }),
        ("no site", |m| {
            m.header.as_mut().unwrap().site = "atlantis".into()
        }),
        ("held", |m| m.held = None),
        ("lock_ref", |m| m.held.as_mut().unwrap().lock_ref = 0),
        ("generation", |m| {
            m.held.as_mut().unwrap().generation = GENERATIONS
        }),
        ("key is empty", |m| {
            m.held.as_mut().unwrap().key.as_mut().unwrap().key.clear()
        }),
        ("no keyspace", |m| {
            m.held
                .as_mut()
                .unwrap()
                .key
                .as_mut()
                .unwrap()
                .keyspace
                .clear()
        }),
        ("2^40", |m| m.sequence = 0),
        ("2^40", |m| m.sequence = GENERATION_SPAN),
    ];
    assert!(request_from_proto(Wire::CriticalPut(put()), &names(), SiteId(0)).is_ok());
    for (word, spoil) in spoils {
        let mut message = put();
        spoil(&mut message);
        let refusal = request_from_proto(Wire::CriticalPut(message), &names(), SiteId(0));
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.code, Code::BadRequest, "{word}");
        assert!(refusal.detail.contains(word), "{word}: {}", refusal.detail);
    }
}

#[test]
fn an_unknown_keyspace_is_not_found() {
    let key = v1::Key {
        keyspace: "nowhere".into(),
        key: "k".into(),
    };
    let wire = Wire::Get(v1::GetRequest {
        header: put().header,
        key: Some(key),
    });
    let refusal = request_from_proto(wire, &names(), SiteId(0)).unwrap_err();
    assert_eq!(refusal.code, Code::NoSuchKeyspace);
    // A text that can be no name is malformed, and is not looked up.
    let wire = Wire::Keys(v1::KeysRequest {
        header: put().header,
        keyspace: "No Such".into(),
        ..v1::KeysRequest::default()
    });
    let refusal = request_from_proto(wire, &names(), SiteId(0)).unwrap_err();
    assert_eq!(refusal.code, Code::BadRequest);
}

#[test]
fn a_value_is_there_or_omitted() {
    let entered = |value: Option<&'static str>, omitted| {
        let key = v1::EnteredKey {
            held: put().held,
            value: value.map(Into::into),
            omitted,
        };
        let entered = v1::Entered {
            keys: vec![key],
            lease_us: 1,
        };
        let event = Some(v1::enter_event::Event::Entered(entered));
        let wire = v1::session_reply::Reply::Event(v1::EnterEvent { event });
        match reply_from_proto(wire, &mut names()) {
            Ok(Reply::Entered { mut keys, .. }) => Some(keys.remove(0).value),
            _ => None,
        }
    };
    assert_eq!(entered(None, false), Some(EntryValue::Absent));
    assert_eq!(
        entered(Some("v"), false),
        Some(EntryValue::Value("v".into()))
    );
    assert_eq!(entered(None, true), Some(EntryValue::Omitted));
    assert_eq!(entered(Some("v"), true), None);
}

#[test]
fn a_label_shows_as_it_reads() {
    for text in ["", "ann@host:17", "שלום", "日本"] {
        assert_eq!(label_from(text).unwrap().as_str(), text);
    }
    for sign in [
        "\n", "\u{2028}", "\u{2029}", "\u{202a}", "\u{202e}", "\u{2066}", "\u{2069}",
    ] {
        let refused = label_from(&format!("ann{sign}@host")).unwrap_err();
        assert_eq!(refused.code, Code::BadRequest, "{sign:?}");
    }
}
