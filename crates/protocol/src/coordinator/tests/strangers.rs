//! Another session that knows key and ref of a section (G49).

use super::*;

const STRANGER: SessionId = SessionId(78);

fn denied(bench: &Bench) {
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::NotHolder, "{refusal:?}");
    assert!(!refusal.may_have_taken_effect);
    assert_eq!(bench.registers.under_way().count(), 0, "nothing was sent");
}

#[test]
fn a_grant_that_passed_here_is_a_pass_for_its_session_alone() {
    let mut bench = Bench::new();
    let held = bench.entered(1, "a");
    for leave in [false, true] {
        bench.ask_as(STRANGER, 9, put(&held, leave));
        denied(&bench);
    }
    bench.ask(2, put(&held, false));
    let under_way = bench.registers.under_way();
    assert_eq!(under_way.count(), 1, "the holder's own is sent");
}

#[test]
fn what_is_applied_here_tells_whose_the_section_is() {
    let mut bench = Bench::new();
    let held = held("a", 10, 0);
    let at = (held.key.clone(), held.lock_ref);
    let head = AppliedRef::Head(Mode::Exclusive, SESSION);
    bench.cluster.local.insert(at, head);
    bench.ask_as(STRANGER, 9, put(&held, false));
    denied(&bench);
}

#[test]
fn a_queue_that_is_asked_for_tells_whose_the_section_is() {
    let mut bench = Bench::new();
    bench.ask_as(STRANGER, 9, put(&held("a", 10, 0), false));
    let Some((_, crate::Message::Lock(lock::Message::Queue { call, .. }))) = bench.sent.last()
    else {
        panic!("{:?}", bench.sent);
    };
    let entry = QueueEntry {
        lock_ref: LockRef(10),
        generation: 0,
        session: SESSION,
        mode: Mode::Exclusive,
        site: SiteId(0),
        since: 0,
        holds: true,
        label: Label::NONE,
    };
    let (call, result) = (*call, Ok((vec![entry], None)));
    bench.lock(1, lock::Message::QueueIs { call, result });
    denied(&bench);
}

#[test]
fn a_strangers_renewal_and_leave_tell_the_holder_nothing() {
    let mut bench = Bench::new();
    let segment = bench.enters_and_follows();
    let held = held("a", 6, 0);
    let renew = Operation::Renew {
        held: vec![held.clone()],
    };
    bench.ask_as(STRANGER, 9, renew.clone());
    bench.renewed(bench.renewal().0, vec![RefState::Gone]);
    assert!(matches!(bench.reply(), Reply::Renewed { .. }));
    let keys = vec![(held, Leaving::Dirty)];
    bench.ask_as(STRANGER, 10, Operation::Leave { keys });
    let (_, call, _, leave) = bench.submitted();
    let Body::Lock(LockCommand::Leave { of, .. }) = leave.body else {
        panic!("{leave:?}");
    };
    assert_eq!(of, STRANGER);
    let refused = Outcome::Refused(Refusal::anothers("leaving the section"));
    bench.answer(1, call, Ok(refused), 0);
    denied(&bench);
    let pass = Some((Mode::Exclusive, SESSION));
    let seen = |bench: &Bench| bench.it.desk.passes.seen(segment, LockRef(6), 0, &key("a"));
    assert_eq!(seen(&bench), pass);
    // The holder's own word counts.
    bench.ask(2, renew);
    bench.renewed(bench.renewal().0, vec![RefState::Gone]);
    let told = |(_, reply): &(CallId, Reply)| matches!(reply, Reply::Lost { .. });
    assert!(bench.replies.iter().any(told), "{:?}", bench.replies);
    assert_eq!(seen(&bench), None);
    bench.quiet();
}
