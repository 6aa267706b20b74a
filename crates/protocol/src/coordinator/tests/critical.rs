//! Operations inside a section, and `put_and_leave`.

use super::*;

fn tag() -> Tag {
    Tag::critical(LockRef(10), 0, 3, SESSION)
}

fn stored() -> register::OpEnd {
    register::OpEnd::Stored { tag: tag() }
}

/// Puts, and leaves: the call of the leave beside the put.
fn put_and_leave(bench: &mut Bench) -> u64 {
    let held = bench.entered(1, "a");
    bench.ask(2, put(&held, true));
    let (_, call, _, command) = bench.submitted();
    assert_eq!(command.number, command_number(2, STEP_LEAVE));
    assert_eq!(leave_of(&command), (held.lock_ref, Vec::new()));
    let Body::Lock(LockCommand::Leave { put, .. }) = command.body else {
        panic!("a leave");
    };
    assert_eq!(put, Some((held.key, tag())));
    call
}

/// Words to a primary that the put is at its quorum, sent by the last step.
fn words(bench: &Bench) -> usize {
    let said = bench.sent.iter().filter_map(|(_, message)| match message {
        crate::Message::Lock(lock::Message::PutDone { tag, .. }) => Some(*tag),
        _ => None,
    });
    said.filter(|of| *of == tag()).count()
}

#[test]
fn a_put_and_its_leave_travel_together_and_are_answered_together() {
    for put_first in [true, false] {
        let mut bench = Bench::new();
        let call = put_and_leave(&mut bench);
        let left = Ok(Outcome::Left { clean: false });
        if put_first {
            bench.register(stored());
            assert_eq!(words(&bench), 1);
            assert!(bench.replies.is_empty());
            bench.answer(1, call, left, 0);
        } else {
            bench.answer(1, call, left, 0);
            assert!(bench.replies.is_empty());
            bench.register(stored());
        }
        assert_eq!(words(&bench), 1);
        assert_eq!(*bench.reply(), Reply::Left);
        bench.quiet();
    }
}

#[test]
fn a_put_that_a_later_section_has_fenced_is_past_whatever_its_leave_says() {
    for doubt in [false, true] {
        let mut bench = Bench::new();
        let call = put_and_leave(&mut bench);
        bench.register(register::OpEnd::Past {
            may_have_taken_effect: doubt,
        });
        assert!(bench.replies.is_empty());
        bench.answer(1, call, Ok(Outcome::Left { clean: false }), 0);
        assert_eq!(bench.refusal().code, Code::NoLongerHolder);
        assert_eq!(bench.refusal().may_have_taken_effect, doubt);
        bench.quiet();
    }
}

#[test]
fn a_put_that_fails_leaves_dirty() {
    let mut bench = Bench::new();
    let held = bench.entered(1, "a");
    bench.ask(2, put(&held, true));
    bench.register(register::OpEnd::Unavailable {
        may_have_taken_effect: true,
    });
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.may_have_taken_effect);
    assert_eq!(leave_of(&bench.submitted().3), (held.lock_ref, Vec::new()));
}

#[test]
fn a_repeated_put_and_leave_learns_from_the_record_how_it_left() {
    let past = register::OpEnd::Past {
        may_have_taken_effect: false,
    };
    for (outcome, put_ends, unsure) in [
        (Outcome::Left { clean: true }, None, None),
        (Outcome::Left { clean: false }, Some(stored()), None),
        (Outcome::Left { clean: false }, Some(past), Some(true)),
        (Outcome::Gone, None, Some(false)),
    ] {
        let mut bench = Bench::new();
        let held = held("a", 10, 0);
        let at = (held.key.clone(), held.lock_ref);
        bench.cluster.local.insert(at, AppliedRef::Past);
        bench.ask(2, put(&held, true));
        let (_, call, _, command) = bench.submitted();
        assert_eq!(command.number, command_number(2, STEP_LEAVE));
        bench.answer(1, call, Ok(outcome), 0);
        if let Some(end) = put_ends {
            bench.register(end);
        }
        match unsure {
            None => assert_eq!(*bench.reply(), Reply::Left),
            Some(unsure) => {
                assert_eq!(bench.refusal().code, Code::NoLongerHolder);
                assert_eq!(bench.refusal().may_have_taken_effect, unsure);
            }
        }
        bench.quiet();
    }
}

#[test]
fn the_gate_asks_the_primary_where_nothing_is_known() {
    let held = held("a", 10, 0);
    let entry = |mode, holds| QueueEntry {
        lock_ref: LockRef(10),
        generation: 0,
        session: SESSION,
        mode,
        site: SiteId(0),
        since: 0,
        holds,
        label: Label::NONE,
    };
    for (entries, code) in [
        (vec![entry(Mode::Exclusive, true)], None),
        (vec![entry(Mode::Exclusive, false)], Some(Code::NotHolder)),
        (vec![entry(Mode::Shared, true)], Some(Code::ReadOnlySection)),
        (Vec::new(), Some(Code::NoLongerHolder)),
    ] {
        let mut bench = Bench::new();
        bench.ask(2, put(&held, false));
        let (_, crate::Message::Lock(lock::Message::Queue { call, .. })) = &bench.sent[0] else {
            panic!("{:?}", bench.sent);
        };
        let queue = lock::Message::QueueIs {
            call: *call,
            result: Ok((entries, None)),
        };
        bench.lock(1, queue);
        match code {
            Some(code) => {
                assert_eq!(bench.refusal().code, code);
                assert!(!bench.refusal().may_have_taken_effect);
            }
            None => {
                let tag = Tag::critical(LockRef(10), 0, 3, SESSION);
                bench.register(register::OpEnd::Stored { tag });
                assert_eq!(*bench.reply(), Reply::Done { tag: Some(tag) });
            }
        }
        bench.quiet();
    }
}

#[test]
fn a_put_is_tried_again_while_replicas_lag_and_its_doubt_is_kept() {
    let mut bench = Bench::new();
    let held = bench.entered(1, "a");
    bench.ask(2, put(&held, false));
    bench.register(register::OpEnd::NotHolder {
        may_have_taken_effect: true,
    });
    assert!(bench.replies.is_empty());
    bench.wait(bench.timing.retry);
    bench.register(register::OpEnd::Past {
        may_have_taken_effect: false,
    });
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::NoLongerHolder);
    assert!(refusal.may_have_taken_effect);
    bench.quiet();
}

#[test]
fn a_put_of_a_past_ref_is_in_doubt_where_a_replica_may_have_it() {
    for doubt in [false, true] {
        let mut bench = Bench::new();
        let held = bench.entered(1, "a");
        bench.ask(2, put(&held, false));
        bench.register(register::OpEnd::Past {
            may_have_taken_effect: doubt,
        });
        let refusal = bench.refusal();
        assert_eq!(refusal.code, Code::NoLongerHolder);
        assert_eq!(refusal.may_have_taken_effect, doubt);
        bench.quiet();
    }
}

#[test]
fn a_put_whose_client_is_gone_goes_on_and_is_told_to_nobody() {
    let mut bench = Bench::new();
    let held = bench.entered(1, "a");
    let call = bench.ask(2, put(&held, false));
    bench.step(|it, cx| it.on_cancel(call, cx));
    let tag = Tag::critical(held.lock_ref, 0, 3, SESSION);
    bench.register(register::OpEnd::Stored { tag });
    assert!(bench.replies.is_empty());
    bench.quiet();
}
