//! Forced releases.

use super::*;

fn release() -> Operation {
    Operation::Release {
        key: key("a"),
        lock_ref: LockRef(3),
    }
}

/// A release of ref 3 of key "a", told by node 1 that the lease has 4 s left: its first command.
fn leased_release(bench: &mut Bench) -> (u64, SegmentId, Command) {
    bench.ask(5, release());
    let (_, call, segment, command) = bench.submitted();
    bench.answer(1, call, Err(Rejection::Leased(4_000_000)), 0);
    assert!(matches!(bench.reply(), Reply::Queued { ahead: 0, .. }));
    (call, segment, command)
}

fn lost(segment: SegmentId, generation: u32) -> lock::Message {
    lock::Message::Lost {
        session: SessionId(4),
        segment,
        lock_ref: LockRef(3),
        generation,
    }
}

#[test]
fn a_forced_release_waits_for_the_lease() {
    let mut bench = Bench::new();
    let (call, _, command) = leased_release(&mut bench);
    // The next primary knows nothing of it: it is asked again and again, and the client told.
    bench.wait(2 * bench.timing.retry);
    let (to, again, _, repeated) = bench.submitted();
    assert_eq!((to, again, &repeated), (NodeName(1), call, &command));
    bench.answer(1, call, Err(Rejection::Leased(2_600_000)), 0);
    assert!(matches!(bench.reply(), Reply::Queued { .. }));
    bench.answer(1, call, Ok(Outcome::Done), 0);
    assert_eq!(*bench.reply(), Reply::Done { tag: None });
    bench.quiet();
}

#[test]
fn a_forced_release_is_answered_when_the_section_ends() {
    let mut bench = Bench::new();
    let (_, segment, _) = leased_release(&mut bench);
    bench.lock(1, lost(segment, 2));
    assert_eq!(*bench.reply(), Reply::Done { tag: None });
    bench.quiet();
    // The same where the news is lost, and the command sent again finds nothing.
    let mut bench = Bench::new();
    let (call, ..) = leased_release(&mut bench);
    bench.wait(2 * bench.timing.retry);
    bench.answer(1, call, Ok(Outcome::Gone), 0);
    assert_eq!(*bench.reply(), Reply::Done { tag: None });
    bench.quiet();
}

#[test]
fn the_end_of_a_ref_before_its_release_came_is_not_the_releases_doing() {
    let mut bench = Bench::new();
    bench.ask(5, release());
    let (_, call, segment, _) = bench.submitted();
    bench.lock(1, lost(segment, 0));
    assert!(bench.replies.is_empty());
    bench
        .cluster
        .local
        .insert((key("a"), LockRef(3)), AppliedRef::Past);
    bench.answer(1, call, Ok(Outcome::Gone), 0);
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::NoLongerHolder);
    assert!(!refusal.may_have_taken_effect);
    assert!(refusal.detail.contains("nothing left to release"));
    // But the news may have overtaken the word of the lease.
    bench.ask(6, release());
    let (_, call, segment, _) = bench.submitted();
    bench.lock(1, lost(segment, 0));
    bench.answer(1, call, Err(Rejection::Leased(4_000_000)), 0);
    assert_eq!(*bench.reply(), Reply::Done { tag: None });
    bench.quiet();
}

#[test]
fn a_section_that_was_resumed_is_not_released_when_its_old_generation_is_past() {
    let mut bench = Bench::new();
    let (call, segment, _) = leased_release(&mut bench);
    let held = vec![held("a", 3, 0)];
    bench.ask(6, Operation::Renew { held });
    bench.renewed(bench.renewal().0, vec![RefState::Gone]);
    assert!(matches!(bench.reply(), Reply::Renewed { .. }));
    bench.wait(2 * bench.timing.retry);
    assert_eq!(bench.submitted().1, call, "the release goes on");
    bench.lock(1, lost(segment, 1));
    assert_eq!(*bench.reply(), Reply::Done { tag: None });
    bench.quiet();
}

#[test]
fn a_release_that_has_ended_a_lease_is_never_refused_as_without_effect() {
    for rejection in [
        Rejection::Busy,
        Rejection::DiskFull,
        Rejection::NotPrimary(None),
    ] {
        let mut bench = Bench::new();
        // The holder's lease is renewed no more, and runs out.
        leased_release(&mut bench);
        bench.replies.clear();
        while bench.replies.is_empty() {
            bench.wait(bench.timing.retry);
            if let Some((to, call, ..)) = bench.all_submitted().first() {
                bench.answer(to.0, *call, Err(rejection.clone()), 0);
            }
        }
        let refusal = bench.refusal();
        assert!(refusal.may_have_taken_effect, "{refusal:?}");
        bench.quiet();
    }
}
