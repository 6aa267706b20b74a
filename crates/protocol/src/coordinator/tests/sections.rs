//! Entering, waiting, resuming and leaving.

use super::*;

#[test]
fn keys_are_locked_in_order_one_segment_after_the_other_and_told_in_the_clients_order() {
    let names = ["a", "b", "c", "d", "a"];
    let mut bench = Bench::new();
    bench.ask(1, enter(&names, WAIT));
    let mut segments = Vec::new();
    while bench.replies.is_empty() {
        let (_, _, segment, command) = bench.submitted();
        assert_eq!(command.number, command_number(1, STEP_FIRST));
        segments.push(segment);
        let lock_ref = 10 + u64::from(segment.0);
        bench.lock(1, bench.grant(segment, &command, lock_ref));
    }
    let mut sorted = segments.clone();
    sorted.sort();
    assert_eq!(segments, sorted);
    let Reply::Entered { keys, lease } = bench.reply() else {
        panic!("{:?}", bench.replies);
    };
    let told: Vec<Bytes> = keys.iter().map(|k| k.held.key.key.clone()).collect();
    assert_eq!(told, ["a", "b", "c", "d"].map(Bytes::from));
    assert!(
        keys.iter()
            .all(|k| k.value == EntryValue::Value(k.held.key.key.clone()))
    );
    assert_eq!(*lease, 9_000_000);
    bench.quiet();
}

#[test]
fn a_wait_is_told_renewed_and_given_up() {
    let mut bench = Bench::new();
    let call_id = bench.ask(1, enter(&["a"], 2_000_000));
    let (_, call, segment, _) = bench.submitted();
    bench.answer(1, call, enqueued(8), 2);
    assert!(matches!(bench.reply(), Reply::Queued { ahead: 2, .. }));
    bench.wait(2 * bench.timing.retry);
    let (call, _, again) = bench.renewal();
    assert_eq!(again, [LockRef(8)]);
    bench.renewed(call, vec![RefState::Queued { ahead: 1 }]);
    assert!(matches!(bench.reply(), Reply::Queued { ahead: 1, .. }));
    bench.wait(600_000);
    assert_eq!(bench.replies[0].0, call_id);
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::WaitOver);
    assert!(!refusal.may_have_taken_effect);
    let (_, call, left, command) = bench.submitted();
    assert_eq!(
        (left, leave_of(&command)),
        (segment, (LockRef(8), Vec::new()))
    );
    bench.wait(bench.timing.retry);
    assert_eq!(bench.submitted().3, command, "sent until it is answered");
    bench.answer(1, call, Ok(Outcome::Left { clean: true }), 0);
    bench.quiet();
}

#[test]
fn without_waiting_the_ref_stays() {
    let mut bench = Bench::new();
    bench.ask(1, enter(&["a"], 0));
    let (_, call, ..) = bench.submitted();
    bench.answer(1, call, enqueued(8), 2);
    let Reply::Queued { held, ahead: 2 } = bench.reply() else {
        panic!("{:?}", bench.replies);
    };
    assert_eq!(held[0].lock_ref, LockRef(8));
    assert!(bench.sent.is_empty());
    bench.quiet();
    // The poll finds it gone.
    bench.ask(1, enter(&["a"], 0));
    let (_, call, ..) = bench.submitted();
    bench.answer(1, call, enqueued(8), 0);
    bench.renewed(bench.renewal().0, vec![RefState::Gone]);
    assert_eq!(bench.refusal().code, Code::NoLongerHolder);
}

/// A poll of a reader with another ref ahead, once the primary has been asked about it.
fn polled_reader() -> (Bench, SegmentId, Command, u64) {
    let mut bench = Bench::new();
    let mut operation = enter(&["a"], 0);
    if let Operation::Enter { mode, .. } = &mut operation {
        *mode = Mode::Shared;
    }
    bench.ask(1, operation);
    let (_, call, segment, command) = bench.submitted();
    bench.answer(1, call, enqueued(8), 1);
    assert!(bench.replies.is_empty(), "{:?}", bench.replies);
    let (call, _, again) = bench.renewal();
    assert_eq!(again, [LockRef(8)]);
    (bench, segment, command, call)
}

#[test]
fn a_reader_behind_readers_enters_without_waiting() {
    let (mut bench, segment, command, call) = polled_reader();
    bench.renewed(call, vec![RefState::Queued { ahead: 0 }]);
    assert!(bench.replies.is_empty(), "{:?}", bench.replies);
    bench.lock(1, bench.grant(segment, &command, 8));
    assert!(matches!(bench.reply(), Reply::Entered { .. }));
    bench.quiet();
}

#[test]
fn a_reader_behind_a_writer_is_told_so_without_waiting() {
    for ahead in [1, 2] {
        let (mut bench, .., call) = polled_reader();
        bench.renewed(call, vec![RefState::Queued { ahead }]);
        let Reply::Queued { ahead: told, .. } = bench.reply() else {
            panic!("{:?}", bench.replies);
        };
        assert_eq!(*told, ahead);
        bench.quiet();
    }
}

#[test]
fn a_cancelled_wait_is_forgotten_and_not_left() {
    let mut bench = Bench::new();
    let call = bench.ask(1, enter(&["a"], WAIT));
    let (_, _, segment, command) = bench.submitted();
    bench.step(|it, cx| it.on_cancel(call, cx));
    bench.quiet();
    // The client may have repeated the request at another node and be in the section there.
    let grant = bench.grant(segment, &command, 6);
    bench.lock(1, grant);
    assert!(
        bench.sent.is_empty(),
        "only the client's own word ends a section"
    );
}

#[test]
fn a_resumed_section_has_a_new_generation_and_is_followed() {
    let mut bench = Bench::new();
    let held = held("a", 6, 1);
    let (held, of) = (vec![held], SESSION);
    bench.ask(1, Operation::Resume { held, of });
    let (_, call, segment, command) = bench.submitted();
    bench.answer(1, call, Ok(Outcome::Resumed { generation: 2 }), 0);
    let granted = lock::Message::Granted(lock::Grant {
        session: SESSION,
        number: command.number,
        segment,
        lock_ref: LockRef(6),
        generation: 2,
        latest: vec![lock::Latest {
            key: key("a"),
            value: EntryValue::Absent,
            tag: Tag::ZERO,
        }],
        lease: 1,
    });
    bench.lock(1, granted);
    let Reply::Entered { keys, .. } = bench.reply() else {
        panic!("{:?}", bench.replies);
    };
    assert_eq!(keys[0].held.generation, 2);
    let lost = |generation| lock::Message::Lost {
        session: SESSION,
        segment,
        lock_ref: LockRef(6),
        generation,
    };
    bench.lock(1, lost(1));
    assert!(bench.replies.is_empty(), "only its earlier life is over");
    bench.lock(1, lost(2));
    assert!(matches!(bench.reply(), Reply::Lost { .. }));
    bench.quiet();
}

#[test]
fn a_repeated_enter_keeps_its_ref_when_the_first_call_is_cancelled() {
    let mut bench = Bench::new();
    let first = bench.ask(1, enter(&["a"], WAIT));
    let (_, call, segment, command) = bench.submitted();
    bench.answer(1, call, enqueued(6), 1);
    bench.ask(1, enter(&["a"], WAIT));
    bench.step(|it, cx| it.on_cancel(first, cx));
    assert!(bench.sent.is_empty());
    bench.lock(1, bench.grant(segment, &command, 6));
    assert!(matches!(bench.reply(), Reply::Entered { .. }));
}

#[test]
fn the_loss_of_a_ref_that_was_not_granted_ends_no_wait() {
    let mut bench = Bench::new();
    bench.ask(1, enter(&["a", "b", "c", "d"], WAIT));
    let (_, call, segment, command) = bench.submitted();
    bench.answer(1, call, enqueued(8), 1);
    bench.lock(1, bench.grant(segment, &command, 9));
    let lost = |lock_ref| lock::Message::Lost {
        session: SESSION,
        segment,
        lock_ref: LockRef(lock_ref),
        generation: 0,
    };
    bench.lock(1, lost(8));
    assert!(bench.replies.is_empty(), "{:?}", bench.replies);
    bench.lock(1, lost(9));
    assert_eq!(bench.refusal().code, Code::NoLongerHolder);
}

#[test]
fn a_loss_ends_a_followed_section_and_its_pass() {
    let mut bench = Bench::new();
    let segment = bench.enters_and_follows();
    assert_eq!(bench.it.open(), 1);
    let lost = lock::Message::Lost {
        session: SESSION,
        segment,
        lock_ref: LockRef(6),
        generation: 0,
    };
    bench.lock(1, lost);
    assert!(matches!(bench.reply(), Reply::Lost { .. }));
    assert_eq!(
        bench.it.desk.passes.seen(segment, LockRef(6), 0, &key("a")),
        None
    );
    bench.quiet();
}

#[test]
fn leaving_waits_for_every_segment() {
    let mut bench = Bench::new();
    let keys = vec![
        (held("a", 3, 0), Leaving::Clean(None)),
        (held("b", 4, 0), Leaving::Dirty),
    ];
    bench.ask(5, Operation::Leave { keys });
    let sent = bench.all_submitted();
    assert_eq!(sent.len(), 2);
    bench.answer(1, sent[0].1, Ok(Outcome::Left { clean: true }), 0);
    assert!(bench.replies.is_empty());
    bench.answer(1, sent[1].1, Ok(Outcome::Gone), 0);
    assert_eq!(bench.refusal().code, Code::NoLongerHolder);
    assert!(!bench.refusal().may_have_taken_effect);
    bench.quiet();
}

#[test]
fn the_values_of_all_segments_together_are_bounded() {
    let mut bench = Bench::new();
    bench.limits.grant = 2;
    bench.ask(1, enter(&["a", "b", "c", "d"], WAIT));
    let mut values = 0;
    while bench.replies.is_empty() {
        let (_, _, segment, command) = bench.submitted();
        // Every grant keeps the bound by itself.
        let mut grant = bench.grant(segment, &command, 10 + u64::from(segment.0));
        if let lock::Message::Granted(lock::Grant { latest, .. }) = &mut grant {
            for beyond in latest.iter_mut().skip(2) {
                beyond.value = EntryValue::Omitted;
            }
            values += latest.len().min(2);
        }
        bench.lock(1, grant);
    }
    assert!(values > 2, "the keys are in several segments");
    let Reply::Entered { keys, .. } = bench.reply() else {
        panic!("{:?}", bench.replies);
    };
    assert_eq!(keys.len(), 4, "every key is named");
    assert_eq!(keys.iter().filter(|k| k.value.is_omitted()).count(), 2);
    bench.quiet();
}

#[test]
fn a_resume_waits_for_the_lease_of_its_former_generation_and_says_so() {
    let held = held("a", 6, 1);
    let mut bench = Bench::new();
    let (held, of) = (vec![held], SESSION);
    let resume = Operation::Resume { held, of };
    bench.ask(1, resume.clone());
    let (_, call, ..) = bench.submitted();
    let resumed = Outcome::Resumed { generation: 2 };
    bench.answer(1, call, Ok(resumed), 0);
    assert!(matches!(bench.reply(), Reply::Queued { .. }));
    bench.wait(bench.timing.request);
    assert!(bench.replies.is_empty(), "it goes on");
    while bench.replies.is_empty() {
        bench.wait(bench.timing.request);
    }
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.may_have_taken_effect);
    assert!(
        refusal.detail.contains("former generation") && refusal.detail.contains("same number"),
        "{refusal:?}"
    );
    bench.quiet();
    // Whoever resumes the old generation again is told that it is gone.
    bench.ask(2, resume);
    let (_, call, ..) = bench.submitted();
    bench.answer(1, call, Ok(Outcome::Gone), 0);
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::NoLongerHolder);
    assert!(!refusal.may_have_taken_effect);
    assert!(refusal.detail.contains("gone"), "{refusal:?}");
    bench.quiet();
}

#[test]
fn a_wait_ends_with_the_word_that_its_ref_is_past() {
    let mut bench = Bench::new();
    bench.ask(1, enter(&["a"], WAIT));
    let (_, call, segment, _) = bench.submitted();
    bench.answer(1, call, enqueued(8), 2);
    let lost = |lock_ref, generation| lock::Message::Lost {
        session: SESSION,
        segment,
        lock_ref: LockRef(lock_ref),
        generation,
    };
    for (lock_ref, generation) in [(7, 0), (8, 1)] {
        bench.lock(1, lost(lock_ref, generation));
        assert!(bench.replies.is_empty(), "of another one");
    }
    bench.lock(1, lost(8, 0));
    assert_eq!(bench.refusal().code, Code::NoLongerHolder);
    let (_, call, ..) = bench.submitted();
    bench.answer(1, call, Ok(Outcome::Gone), 0);
    bench.quiet();
}

/// Whether each of the last step's replies says that the wait stalls.
fn stalls(bench: &Bench) -> Vec<bool> {
    let one = |(_, reply): &(CallId, Reply)| match reply {
        Reply::Stalled { .. } => true,
        Reply::Queued { .. } => false,
        other => panic!("{other:?}"),
    };
    bench.replies.iter().map(one).collect()
}

#[test]
fn a_wait_says_as_long_as_it_is_so_that_too_few_members_are_in_reach() {
    let reach = |heard| {
        Some(Reach {
            heard,
            members: 3,
            needed: 2,
        })
    };
    let mut bench = Bench::new();
    bench.cluster.reach = reach(1);
    bench.ask(1, enter(&["a"], WAIT));
    let (_, call, ..) = bench.submitted();
    bench.answer(1, call, enqueued(8), 2);
    assert_eq!(stalls(&bench), [false, true], "its ref, and that it stalls");
    for (ahead, heard, at_renewal, with_answer) in [
        (5, 1, &[true][..], &[true][..]),
        (4, 2, &[false], &[false]),
        (3, 2, &[], &[false]),
        (2, 1, &[true], &[true]),
    ] {
        bench.cluster.reach = reach(heard);
        bench.wait(2 * bench.timing.retry);
        assert_eq!(stalls(&bench), at_renewal, "{ahead}");
        let (call, ..) = bench.renewal();
        bench.renewed(call, vec![RefState::Queued { ahead }]);
        assert_eq!(stalls(&bench), with_answer, "{ahead}");
    }
}

#[test]
fn a_key_that_is_left_twice_is_left_as_was_said_last() {
    let mut bench = Bench::new();
    let segment = |name: &Bytes| {
        let key = KeyId {
            key: name.clone(),
            ..key("a")
        };
        bench.cluster.segment(&key)
    };
    let mut names = (0..).map(|i| Bytes::from(std::format!("k{i}")));
    let here = segment(&key("a").key);
    let beside = names.find(|name| segment(name) == here).expect("endless");
    let beside = Held {
        key: KeyId {
            key: beside,
            ..key("a")
        },
        ..held("a", 3, 0)
    };
    let tag = |number| Some(Tag::critical(LockRef(3), 0, number, SESSION));
    let keys = vec![
        (held("a", 3, 0), Leaving::Clean(tag(1))),
        (beside.clone(), Leaving::Clean(None)),
        (held("a", 3, 0), Leaving::Clean(tag(2))),
    ];
    bench.ask(5, Operation::Leave { keys });
    let (lock_ref, clean) = leave_of(&bench.submitted().3);
    assert_eq!(lock_ref, LockRef(3));
    assert_eq!(clean, [(beside.key, None), (key("a"), tag(2))]);
}

#[test]
fn a_leave_that_is_held_up_is_sent_again_after_a_pause() {
    let retry = Timing::default().retry;
    for why in [
        Rejection::Leased(retry),
        Rejection::Busy,
        Rejection::DiskFull,
    ] {
        let mut bench = Bench::new();
        let keys = vec![(held("a", 3, 1), Leaving::Dirty)];
        bench.ask(5, Operation::Leave { keys });
        let (_, call, _, command) = bench.submitted();
        bench.wait(retry / 2);
        bench.answer(1, call, Err(why), 0);
        assert!(bench.replies.is_empty(), "{:?}", bench.replies);
        bench.wait(retry - 1);
        assert!(bench.sent.is_empty(), "{:?}", bench.sent);
        bench.wait(1);
        assert_eq!(bench.submitted().3, command);
        bench.answer(1, call, Ok(Outcome::Left { clean: false }), 0);
        assert_eq!(*bench.reply(), Reply::Done { tag: None });
        bench.quiet();
    }
}

#[test]
fn only_an_enqueue_whose_outcome_is_unknown_is_given_up() {
    let refused = Refusal::definite(Code::BadRequest, "no");
    for outcome in [Outcome::Gone, Outcome::Refused(refused)] {
        let mut bench = Bench::new();
        bench.ask(1, enter(&["a"], WAIT));
        let (_, call, ..) = bench.submitted();
        bench.answer(1, call, Ok(outcome), 0);
        bench.refusal();
        assert_eq!(bench.it.desk.gave_up_call(call), None);
        bench.quiet();
    }
}
