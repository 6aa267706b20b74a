//! Renewals, the catalogue, and requests that make no sense.

use super::*;

#[test]
fn renewals_are_the_primarys_and_silence_is_unknown() {
    let mut bench = Bench::new();
    let held = vec![held("a", 3, 0), held("b", 4, 0)];
    bench.ask(5, Operation::Renew { held });
    let (call, refs, _) = bench.renewal();
    assert_eq!(refs, [(LockRef(4), 0)]);
    let holding = RefState::Holding { lease: 5 };
    bench.renewed(call, vec![holding]);
    while bench.replies.is_empty() {
        bench.wait(bench.timing.retry);
    }
    let states = vec![RefState::Unknown, holding];
    assert_eq!(*bench.reply(), Reply::Renewed { states });
    bench.quiet();
}

#[test]
fn a_keyspace_is_created_by_the_catalogues_keeper() {
    let mut bench = Bench::new();
    let [mut keyspace, _] = Keyspace::built_in();
    keyspace.name = "jobs".into();
    bench.ask(9, Operation::CreateKeyspace(keyspace.clone()));
    let (to, crate::Message::Coordinator(Message::Propose { call, .. })) = bench.sent[0] else {
        panic!("{:?}", bench.sent);
    };
    let result = Ok(Outcome::Done);
    bench.step(|it, cx| it.on_coordinator(to, Message::Proposed { call, result }, cx));
    assert_eq!(*bench.reply(), Reply::Done { tag: None });
    keyspace.name = "No good".into();
    bench.ask(10, Operation::CreateKeyspace(keyspace));
    assert_eq!(bench.refusal().code, Code::BadRequest);
    bench.quiet();
}

#[test]
fn bad_requests_change_nothing() {
    let mut bench = Bench::new();
    bench.limits.requests = 1;
    let register = KeyId {
        keyspace: Keyspace::REGISTERS,
        key: Bytes::from_static(b"r"),
    };
    let unknown = KeyId {
        keyspace: KeyspaceId(99),
        key: Bytes::from_static(b"r"),
    };
    let large = Some(Bytes::from(vec![0; bench.limits.value + 1]));
    for (operation, code) in [
        (enter(&[], WAIT), Code::BadRequest),
        (enter(&[""], WAIT), Code::TooLarge),
        (Operation::Get { key: register }, Code::WrongPurpose),
        (Operation::Read { key: unknown }, Code::NoSuchKeyspace),
        (
            Operation::Put {
                key: key("a"),
                value: large,
            },
            Code::TooLarge,
        ),
    ] {
        bench.ask(1, operation);
        assert_eq!(bench.refusal().code, code);
        assert!(!bench.refusal().may_have_taken_effect);
        assert!(bench.sent.is_empty());
    }
    bench.quiet();
    bench.ask(1, enter(&["a"], WAIT));
    bench.ask(2, enter(&["a"], WAIT));
    assert_eq!(bench.refusal().code, Code::Busy);
}

#[test]
fn a_heartbeat_names_the_refs_of_more_than_one_section() {
    let mut bench = Bench::new();
    let refs = 4 * bench.limits.section_keys as u64;
    let held = (1..=refs).map(|lock_ref| held("a", lock_ref, 0)).collect();
    bench.ask(1, Operation::Renew { held });
    let (call, refs, _) = bench.renewal();
    bench.renewed(call, vec![RefState::Gone; refs.len()]);
    assert!(matches!(bench.reply(), Reply::Renewed { states } if states.len() == 256));
    bench.quiet();
}

#[test]
fn a_listing_has_bounds_of_what_it_names() {
    let long = |over: usize| Bytes::from(vec![b'k'; Limits::KEY_MAX + over]);
    for (prefix, after, refused) in [
        (0, Some(0), false),
        (0, None, false),
        (1, None, true),
        (0, Some(1), true),
    ] {
        let mut bench = Bench::new();
        let operation = Operation::Keys {
            keyspace: Keyspace::SECTIONS,
            prefix: long(prefix),
            after: after.map(long),
            limit: 10,
        };
        bench.ask(1, operation);
        let told = bench.replies.first().map(|(_, reply)| reply);
        let too_large = matches!(told, Some(Reply::Refused(r)) if r.code == Code::TooLarge);
        assert_eq!(too_large, refused, "{prefix} {after:?}");
    }
}
