//! Operations on one key: registers, eventual values, and sections of one request.

use super::*;

/// The asks that a register operation sends to the first member.
fn asked(bench: &Bench) -> Vec<register::Ask> {
    let to_first = bench.sent.iter().filter(|(to, _)| *to == NodeName(0));
    let ask = |(_, message): &(NodeName, crate::Message)| match message {
        crate::Message::Register(register::Message::Ask { ask, .. }) => Some(ask.clone()),
        _ => None,
    };
    to_first.filter_map(ask).collect()
}

/// To a key that is written in sections: one of its own.
fn section_write() -> Operation {
    Operation::Write {
        key: key("a"),
        value: None,
    }
}

#[test]
fn what_an_epoch_that_has_ended_stopped_starts_again_under_the_same_name() {
    let mut bench = Bench::new();
    let held = bench.entered(1, "a");
    bench.ask(2, put(&held, false));
    let first = asked(&bench);
    assert!(matches!(first[..], [register::Ask::Store { .. }]));
    bench.register(ELSEWHERE);
    assert!(bench.sent.is_empty(), "not in the same instant");
    bench.wait(bench.timing.retry);
    assert_eq!(asked(&bench), first, "the same tag");
    let tag = Tag::critical(held.lock_ref, 0, 3, SESSION);
    bench.register(register::OpEnd::Stored { tag });
    assert_eq!(*bench.reply(), Reply::Done { tag: Some(tag) });
    let operation = Critical::Get;
    let leave = Vec::new();
    let get = Operation::Critical {
        held,
        operation,
        leave,
    };
    let mut register = key("r");
    register.keyspace = Keyspace::REGISTERS;
    for (number, operation) in [(3, get), (4, Operation::Read { key: register })] {
        bench.ask(number, operation);
        let first = asked(&bench);
        assert!(matches!(first[..], [register::Ask::Read { .. }]));
        bench.register(ELSEWHERE);
        bench.wait(bench.timing.retry);
        assert_eq!(asked(&bench), first, "from the start");
        let (value, tag) = (None, Tag::ZERO);
        bench.register(register::OpEnd::Value { value, tag });
        assert_eq!(bench.replies.len(), 1);
    }
    bench.quiet();
}

#[test]
fn a_write_of_a_register_is_done_again_only_where_it_had_no_effect() {
    let mut bench = Bench::new();
    let write = |keyspace| Operation::Write {
        key: KeyId {
            keyspace,
            ..key("r")
        },
        value: None,
    };
    let moved = |may_have_taken_effect| register::OpEnd::Moved {
        next: None,
        under: None,
        may_have_taken_effect,
    };
    bench.ask(1, write(Keyspace::REGISTERS));
    bench.register(moved(false));
    assert!(bench.replies.is_empty());
    bench.wait(bench.timing.retry);
    assert!(matches!(asked(&bench)[..], [register::Ask::Read { .. }]));
    bench.register(moved(true));
    assert!(bench.refusal().may_have_taken_effect);
    let said = "read the key before you write it again";
    assert!(bench.refusal().detail.contains(said));
    bench.quiet();
    // A repetition finds nothing that would tell what came of it, and sends nothing.
    bench.ask_again(1, 1, write(Keyspace::REGISTERS));
    assert!(bench.sent.is_empty());
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.may_have_taken_effect);
    bench.quiet();
    // In a section keyspace it finds its ref.
    bench.ask_again(2, 1, write(Keyspace::SECTIONS));
    assert!(bench.replies.is_empty() && !bench.sent.is_empty());
}

#[test]
fn going_on_in_the_next_epoch_ends_at_the_deadline_with_the_doubt_of_every_try() {
    let mut bench = Bench::new();
    let held = bench.entered(1, "a");
    bench.ask(2, put(&held, false));
    let mut tries = 0;
    bench.register(ELSEWHERE);
    while bench.replies.is_empty() {
        bench.wait(bench.timing.retry);
        if bench.registers.under_way().next().is_some() {
            tries += 1;
            bench.register(register::OpEnd::Moved {
                next: None,
                under: None,
                may_have_taken_effect: false,
            });
        }
        assert!(tries < 1_000, "bounded by the deadline");
    }
    assert!(tries > 1);
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.may_have_taken_effect, "of the first try");
    bench.quiet();
}

/// Where the next store is known by the time that the last one ends there is nothing to wait for.
#[test]
fn going_on_in_an_epoch_that_is_known_needs_no_pause() {
    let known = register::OpEnd::Moved {
        next: Some(Epoch::FIRST),
        under: None,
        may_have_taken_effect: false,
    };
    let held = |bench: &mut Bench| bench.entered(1, "a");
    let put_of = |bench: &mut Bench| put(&held(bench), false);
    let read_of = |_: &mut Bench| Operation::Get { key: key("b") };
    let of: [&dyn Fn(&mut Bench) -> Operation; 2] = [&put_of, &read_of];
    for operation in of {
        let mut bench = Bench::new();
        let operation = operation(&mut bench);
        bench.ask(2, operation);
        bench.register(known.clone());
        bench.wait(0);
        assert_eq!(bench.registers.under_way().count(), 1, "again");
    }
}

/// The same where a write is a section of its own: it is done again when its time has come, and
/// what ends it keeps the doubt of the tries before.
#[test]
fn a_write_in_a_section_keeps_the_doubt_of_every_try() {
    let mut bench = Bench::new();
    bench.ask(1, section_write());
    let (_, _, segment, command) = bench.submitted();
    bench.lock(1, bench.grant(segment, &command, 6));
    bench.register(ELSEWHERE);
    bench.wait(bench.timing.retry / 8);
    assert!(asked(&bench).is_empty());
    bench.wait(1);
    assert_eq!(asked(&bench).len(), 1, "again");
    bench.register(register::OpEnd::DiskFull {
        may_have_taken_effect: false,
    });
    assert_eq!(bench.refusal().code, Code::DiskFull);
    assert!(bench.refusal().may_have_taken_effect, "of the first try");
}

#[test]
fn a_write_in_a_section_whose_time_ends_between_two_tries_leaves_its_ref() {
    let mut bench = Bench::new();
    bench.ask(1, section_write());
    let (_, _, segment, command) = bench.submitted();
    bench.lock(1, bench.grant(segment, &command, 6));
    bench.register(ELSEWHERE);
    bench.wait(bench.timing.request);
    assert_eq!(bench.refusal().code, Code::Unavailable);
    assert!(bench.refusal().may_have_taken_effect);
    assert_eq!(leave_of(&bench.submitted().3).0, LockRef(6));
}

#[test]
fn a_read_in_a_section_leaves_a_ref_that_comes_to_light_too_late() {
    let mut bench = Bench::new();
    bench.ask(1, Operation::Read { key: key("a") });
    let (_, call, ..) = bench.submitted();
    while bench.replies.is_empty() {
        bench.wait(bench.timing.retry);
    }
    assert_eq!(bench.refusal().code, Code::Unavailable);
    bench.answer(2, call, enqueued(5), 0);
    assert_eq!(leave_of(&bench.submitted().3).0, LockRef(5));
}

#[test]
fn an_eventual_put_starts_again_only_where_it_had_no_effect() {
    let put = || Operation::Put {
        key: key("e"),
        value: None,
    };
    let mut bench = Bench::new();
    bench.ask(1, put());
    bench.register(register::OpEnd::Moved {
        next: Some(Epoch(2)),
        under: None,
        may_have_taken_effect: false,
    });
    bench.wait(bench.timing.retry);
    assert_eq!(asked(&bench).len(), 1, "again");
    bench.register(ELSEWHERE);
    assert_eq!(bench.refusal().code, Code::Unavailable);
    assert!(bench.refusal().may_have_taken_effect);
    let said = "get the key before you put it again";
    assert!(bench.refusal().detail.contains(said));
    bench.quiet();
    bench.ask(2, put());
    bench.register(register::OpEnd::Locked);
    assert_eq!(bench.refusal().code, Code::Locked);
    assert!(!bench.refusal().may_have_taken_effect);
    bench.quiet();
}

#[test]
fn a_section_of_one_request_has_a_short_lease_and_is_renewed_while_it_works() {
    let request = Timing::default().request;
    let mut bench = Bench::new();
    for (number, operation) in [(1, Operation::Read { key: key("a") }), (2, section_write())] {
        let shorter = |lease: Micros| {
            let mut bench = Bench::new();
            let [mut sections, _] = Keyspace::built_in();
            sections.lease = lease;
            bench.cluster.catalogue = Catalogue::of(vec![sections], 1);
            bench.ask(number, operation.clone());
            match bench.submitted().3.body {
                Body::Lock(LockCommand::Enqueue { origin, .. }) => origin.lease,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(shorter(2 * request), request / 2);
        assert_eq!(shorter(1_000_000), 1_000_000, "never above the keyspace's");
    }
    bench.ask(1, section_write());
    let (_, _, segment, command) = bench.submitted();
    bench.lock(1, bench.grant(segment, &command, 6));
    let mut renewals = 0;
    // Nothing comes back from the replicas.
    for _ in 0..4 {
        bench.wait(2 * bench.timing.retry);
        for (_, message) in bench.sent.clone() {
            if let crate::Message::Lock(lock::Message::Renew { call, again, .. }) = message {
                assert!(again.is_empty(), "it has its grant");
                let lease = request / 2;
                bench.renewed(call, vec![RefState::Holding { lease }]);
                renewals += 1;
            }
        }
    }
    assert_eq!(renewals, 4);
}

#[test]
fn a_request_that_waits_for_a_key_says_so_and_who_has_it() {
    let mut bench = Bench::new();
    bench.cluster.head = Some((LockRef(13), bench.now));
    for (number, operation) in [
        (1, section_write()),
        (2, Operation::Read { key: key("a") }),
        (3, enter(&["a"], bench.timing.request)),
    ] {
        bench.ask(number, operation);
        let (_, call, ..) = bench.submitted();
        bench.answer(1, call, enqueued(20), 3);
        assert!(matches!(bench.reply(), Reply::Queued { ahead: 3, .. }));
        bench.wait(2 * bench.timing.retry);
        if number < 3 {
            assert!(matches!(bench.reply(), Reply::Queued { ahead: 3, .. }));
        }
        bench.wait(bench.timing.request);
        let refusal = bench.refusal();
        assert_eq!(refusal.code, Code::WaitOver);
        assert!(!refusal.may_have_taken_effect);
        let said = "the key is held by lock ref 13, enqueued ";
        assert!(refusal.detail.contains(said), "{}", refusal.detail);
        assert!(
            refusal.detail.contains("and 2 more wait"),
            "{}",
            refusal.detail
        );
    }
}

#[test]
fn a_write_to_a_section_keyspace_is_a_section_of_its_own() {
    let mut bench = Bench::new();
    bench.ask(9, section_write());
    let (_, _, segment, command) = bench.submitted();
    assert_eq!(command.session, SESSION);
    bench.lock(1, bench.grant(segment, &command, 6));
    let tag = Tag::critical(LockRef(6), 0, 1, SESSION);
    bench.register(register::OpEnd::Stored { tag });
    assert_eq!(*bench.reply(), Reply::Done { tag: Some(tag) });
    let (_, call, _, leave) = bench.submitted();
    let clean = vec![(key("a"), Some(tag))];
    assert_eq!(leave_of(&leave), (LockRef(6), clean));
    // The session has gone on and forgotten it: the coordinator's own session does it.
    let forgotten = Refusal::definite(Code::Forgotten, "forgotten");
    bench.answer(1, call, Ok(Outcome::Refused(forgotten)), 0);
    let (_, call, _, again) = bench.submitted();
    assert_eq!(again.session, OWN);
    assert_eq!(again.body, leave.body);
    bench.answer(1, call, Ok(Outcome::Left { clean: true }), 0);
    bench.quiet();
    // A retry finds the ref gone and learns that it has been done.
    bench.ask(9, section_write());
    let (_, call, ..) = bench.submitted();
    bench.answer(1, call, Ok(Outcome::Gone), 0);
    let (_, call, _, probe) = bench.submitted();
    assert_eq!((probe.session, probe.number), (leave.session, leave.number));
    bench.answer(1, call, Ok(Outcome::Left { clean: true }), 0);
    assert!(matches!(bench.reply(), Reply::Done { .. }));
    bench.quiet();
}

#[test]
fn a_read_of_a_section_keyspace_is_the_coordinators_own() {
    let mut bench = Bench::new();
    bench.ask(9, Operation::Read { key: key("a") });
    let (_, _, segment, command) = bench.submitted();
    assert_eq!(command.session, OWN);
    bench.lock(1, bench.grant(segment, &command, 6));
    assert!(matches!(bench.reply(), Reply::Value { value: Some(_), .. }));
    let (_, call, _, leave) = bench.submitted();
    assert_eq!(leave_of(&leave), (LockRef(6), vec![(key("a"), None)]));
    bench.answer(1, call, Ok(Outcome::Left { clean: true }), 0);
    bench.quiet();
}

#[test]
fn a_read_whose_value_the_grant_left_out_gets_it() {
    let mut bench = Bench::new();
    bench.ask(9, Operation::Read { key: key("a") });
    let (_, _, segment, command) = bench.submitted();
    let mut grant = bench.grant(segment, &command, 6);
    if let lock::Message::Granted(grant) = &mut grant {
        grant.latest[0].value = EntryValue::Omitted;
    }
    bench.lock(1, grant);
    assert!(bench.replies.is_empty(), "{:?}", bench.replies);
    bench.register(register::OpEnd::Value {
        value: Some(Bytes::from_static(b"large")),
        tag: Tag::ZERO,
    });
    let value = Some(Bytes::from_static(b"large"));
    let tag = Tag::ZERO;
    assert_eq!(*bench.reply(), Reply::Value { value, tag });
    let (_, call, _, leave) = bench.submitted();
    assert_eq!(leave_of(&leave), (LockRef(6), vec![(key("a"), None)]));
    bench.answer(1, call, Ok(Outcome::Left { clean: true }), 0);
    bench.quiet();
}
