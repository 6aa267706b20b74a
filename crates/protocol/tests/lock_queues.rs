//! The lock queues as a state machine: each test is a claim about what one log of commands leads
//! to.

use bytes::Bytes;
use fermata_protocol::base::{
    Ballot, Epoch, GroupId, KeyId, Keyspace, Label, LockRef, NodeName, Planted, Seat, SessionId,
    SiteId, Tag,
};
use fermata_protocol::command::{
    Body, ClientLease, Command, LedgerCommand, LockCommand, Origin, SegmentCommand,
};
use fermata_protocol::lock::{Outcome, state::QUEUE_MAX};
use fermata_protocol::paxos::Stop;
use fermata_protocol::register::HolderState;
use fermata_protocol::request::{Code, Mode, Refusal};
use fermata_protocol::segment::{Applied, SegmentState};
use fermata_protocol::wire;

fn key(name: &str) -> KeyId {
    KeyId {
        keyspace: Keyspace::SECTIONS,
        key: Bytes::copy_from_slice(name.as_bytes()),
    }
}

fn origin() -> Origin {
    Origin {
        node: NodeName(0),
        site: SiteId(0),
        since: 0,
        lease: 1,
        section_max: 1,
        label: Label::NONE,
    }
}

struct Script {
    state: SegmentState,
    number: u64,
}

impl Script {
    fn new() -> Script {
        Script {
            state: SegmentState::default(),
            number: 0,
        }
    }

    fn apply_as(&mut self, session: u128, number: u64, body: LockCommand) -> Applied {
        let command = Command::new(
            SessionId(session),
            number,
            0,
            Epoch::FIRST,
            Body::Lock(body),
        );
        let applied = self.state.apply(&command, Planted::NONE);
        self.state.assert_invariants();
        applied
    }

    fn apply(&mut self, body: LockCommand) -> Applied {
        self.number += 1;
        self.apply_as(1, self.number, body)
    }

    fn enqueue(&mut self, keys: &[&str], mode: Mode) -> LockRef {
        let keys = keys.iter().map(|k| key(k)).collect();
        match self
            .apply(LockCommand::Enqueue {
                keys,
                mode,
                origin: origin(),
            })
            .outcome
        {
            Outcome::Enqueued { lock_ref } => lock_ref,
            other => panic!("{other:?}"),
        }
    }

    fn flag(&self, name: &str) -> Option<u64> {
        self.state.queues().queue(&key(name)).and_then(|q| q.flag)
    }

    fn leave(&mut self, lock_ref: LockRef, clean: &[&str]) -> Outcome {
        let clean = clean.iter().map(|k| (key(k), None)).collect();
        self.apply(LockCommand::Leave {
            lock_ref,
            generation: 0,
            of: SessionId(1),
            clean,
            put: None,
            waiting_only: false,
        })
        .outcome
    }
}

#[test]
fn the_ref_is_the_number_of_the_command_and_never_repeats() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    let b = s.enqueue(&["other"], Mode::Exclusive);
    assert_eq!((a, b), (LockRef(1), LockRef(2)));
    s.leave(a, &["k"]);
    assert_eq!(s.enqueue(&["k"], Mode::Exclusive), LockRef(4));
}

fn stop() -> Stop {
    Stop {
        group: GroupId(1),
        next: Epoch(2),
        first: NodeName(1),
        moves: false,
        format: 9,
    }
}

#[test]
fn refs_go_on_in_the_next_log_and_after_a_snapshot() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    s.leave(a, &["k"]);
    let snapshot = wire::encode(&s.state);
    s.state = wire::decode::<SegmentState>(&snapshot)
        .expect("a snapshot")
        .succeed(stop(), Planted::NONE);
    assert_eq!(s.enqueue(&["k"], Mode::Exclusive), LockRef(3));
}

#[test]
fn a_command_takes_effect_once_also_after_a_snapshot() {
    let mut s = Script::new();
    let body = LockCommand::Enqueue {
        keys: vec![key("k")],
        mode: Mode::Exclusive,
        origin: origin(),
    };
    let first = s.apply_as(7, 40, body.clone());
    s.state = wire::decode(&wire::encode(&s.state)).expect("a snapshot");
    let second = s.apply_as(7, 40, body);
    assert!(second.repeated && !first.repeated);
    assert_eq!(first.outcome, second.outcome);
    assert_eq!(s.state.queues().refs().count(), 1);
}

#[test]
fn a_clean_leave_of_all_keys_sets_no_flag_and_a_dirty_one_sets_its_own_key() {
    let mut s = Script::new();
    let a = s.enqueue(&["k", "l"], Mode::Exclusive);
    assert_eq!(s.leave(a, &["k"]), Outcome::Left { clean: false });
    assert_eq!((s.flag("k"), s.flag("l")), (None, Some(2)));
    assert!(s.state.queues().is_idle(&key("k")) && !s.state.queues().is_idle(&key("l")));
}

#[test]
fn a_waiter_that_goes_sets_no_flag() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    let b = s.enqueue(&["k"], Mode::Exclusive);
    s.leave(b, &[]);
    assert_eq!(s.flag("k"), None);
    let c = s.enqueue(&["k"], Mode::Exclusive);
    s.apply(release(c));
    assert_eq!(s.flag("k"), None);
    assert!(s.state.queues().holds(a));
}

fn release(lock_ref: LockRef) -> LockCommand {
    LockCommand::Release {
        lock_ref,
        key: None,
    }
}

/// Refs of all keys of a segment come from one history: a number alone may be somebody else's.
#[test]
fn a_forced_release_ends_only_a_ref_on_the_key_that_it_names() {
    let mut s = Script::new();
    let a = s.enqueue(&["k", "l"], Mode::Exclusive);
    let named = |name: &str| LockCommand::Release {
        lock_ref: a,
        key: Some(key(name)),
    };
    assert_eq!(s.apply(named("other")).outcome, Outcome::Gone);
    assert!(s.state.queues().holds(a));
    assert_eq!(s.apply(named("l")).outcome, Outcome::Done);
    assert!(!s.state.queues().holds(a));
}

#[test]
fn a_forced_release_sets_the_flag_in_the_same_command() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    let applied = s.apply(release(a));
    assert_eq!(s.flag("k"), Some(applied.position));
    assert_eq!(applied.removed.map(|(r, _)| r), Some(a));
    let again = s.apply(release(a));
    assert_eq!(again.outcome, Outcome::Gone);
}

#[test]
fn synch_done_clears_only_the_flag_that_it_names() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    s.apply(release(a));
    let old = s.flag("k").expect("set");
    let b = s.enqueue(&["k"], Mode::Exclusive);
    s.apply(release(b));
    let new = s.flag("k").expect("set");
    s.apply(LockCommand::SynchDone {
        key: key("k"),
        flag: old,
    });
    assert_eq!(s.flag("k"), Some(new));
    s.apply(LockCommand::SynchDone {
        key: key("k"),
        flag: new,
    });
    assert!(s.state.queues().is_idle(&key("k")));
}

/// F5: a holder leaves beside its put. Only that flag goes when the put is done, and the record of
/// the leave says so from then on.
#[test]
fn a_put_that_is_done_clears_the_flag_of_the_leave_beside_it() {
    let mut s = Script::new();
    let a = s.enqueue(&["k", "l"], Mode::Exclusive);
    let state = |s: &Script, name, generation| s.state.holder_state(&key(name), a, generation);
    let left = leave_beside(&mut s, a, Tag::critical(a, 0, 7, SessionId(1)));
    assert_eq!(left.outcome, Outcome::Left { clean: false });
    let record = |s: &Script| s.state.outcome(SessionId(1), s.number, Planted::NONE);
    assert_eq!(record(&s), Some(left.outcome));
    assert_eq!(s.flag("k"), Some(left.position));
    assert_eq!(state(&s, "k", 0), HolderState::Leaving);
    assert_eq!(state(&s, "k", 1), HolderState::Past);
    assert_eq!(state(&s, "l", 0), HolderState::Past);
    let number = s.number;
    for flag in [left.position - 1, left.position] {
        assert_eq!(s.flag("k"), Some(left.position));
        s.apply_as(
            2,
            flag,
            LockCommand::PutDone {
                key: key("k"),
                flag,
            },
        );
    }
    s.number = number;
    assert_eq!(s.flag("k"), None);
    assert_eq!(state(&s, "k", 0), HolderState::Past);
    assert_eq!(record(&s), Some(Outcome::Left { clean: true }));
}

#[test]
fn a_put_of_another_section_is_none_that_a_leave_is_beside_of() {
    for (generation, session) in [(1, 1), (0, 2)] {
        let mut s = Script::new();
        let a = s.enqueue(&["k"], Mode::Exclusive);
        let put = Tag::critical(a, generation, 7, SessionId(session));
        let flag = leave_beside(&mut s, a, put).position;
        s.apply(LockCommand::PutDone {
            key: key("k"),
            flag,
        });
        assert_eq!(s.flag("k"), Some(flag));
        let past = s.state.holder_state(&key("k"), a, 0);
        assert_eq!(past, HolderState::Past);
    }
}

fn leave_beside(s: &mut Script, lock_ref: LockRef, put: Tag) -> Applied {
    s.apply(LockCommand::Leave {
        lock_ref,
        generation: 0,
        of: SessionId(1),
        clean: vec![(key("l"), None)],
        put: Some((key("k"), put)),
        waiting_only: false,
    })
}

#[test]
fn readers_hold_together_and_a_writer_waits_for_all_of_them() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Shared);
    let b = s.enqueue(&["k"], Mode::Shared);
    let w = s.enqueue(&["k"], Mode::Exclusive);
    let c = s.enqueue(&["k"], Mode::Shared);
    assert!(s.state.queues().holds(a) && s.state.queues().holds(b));
    assert!(!s.state.queues().holds(w) && !s.state.queues().holds(c));
    s.apply(release(b));
    assert_eq!(
        s.flag("k"),
        None,
        "a reader behind the first leaves no write behind"
    );
    assert!(!s.state.queues().holds(w));
    s.leave(a, &["k"]);
    assert!(s.state.queues().holds(w) && !s.state.queues().holds(c));
    let d = s.enqueue(&["k"], Mode::Shared);
    assert_eq!(s.apply(release(w)).next, [c, d], "who has come to hold");
}

#[test]
fn the_first_reader_may_have_a_synch_in_flight_and_leaves_the_flag() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Shared);
    let b = s.enqueue(&["k"], Mode::Shared);
    let applied = s.apply(release(a));
    assert_eq!(s.flag("k"), Some(applied.position));
    assert!(s.state.queues().holds(b));
    s.leave(b, &["k"]);
    assert_eq!(
        s.flag("k"),
        Some(applied.position),
        "a clean leave clears nothing"
    );
}

#[test]
fn a_ref_holds_when_it_holds_all_its_keys() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    let both = s.enqueue(&["k", "l"], Mode::Exclusive);
    assert!(!s.state.queues().holds(both) && s.state.queues().holds_key(&key("l"), both));
    s.leave(a, &["k"]);
    assert!(s.state.queues().holds(both));
}

#[test]
fn a_resumed_section_keeps_its_ref_and_gets_a_new_generation() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    let waiting = s.enqueue(&["k"], Mode::Exclusive);
    let resume = LockCommand::Resume {
        lock_ref: a,
        generation: 0,
        of: SessionId(1),
        origin: origin(),
    };
    let applied = s.apply_as(2, 1, resume.clone());
    assert_eq!(applied.outcome, Outcome::Resumed { generation: 1 });
    assert_eq!(s.flag("k"), Some(applied.position));
    assert_eq!(s.state.holder_state(&key("k"), a, 0), HolderState::Past);
    assert_eq!(s.state.holder_state(&key("k"), a, 1), HolderState::Head);
    assert_eq!(
        s.apply_as(3, 1, resume).outcome,
        Outcome::Gone,
        "the old generation is over"
    );
    let old = Tag::critical(a, 0, 900, SessionId(1));
    let new = Tag::critical(a, 1, 1, SessionId(2));
    assert!(
        old < Tag::synch(a, 1, Epoch::FIRST, Ballot::default(), 1)
            && Tag::synch(
                a,
                1,
                Epoch(9),
                Ballot {
                    round: 9,
                    seat: Seat(9)
                },
                9
            ) < new
    );
    assert!(
        new < Tag::synch(waiting, 0, Epoch::FIRST, Ballot::default(), 1),
        "those who wait come after it"
    );
}

#[test]
fn a_leave_of_an_older_generation_changes_nothing() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    s.apply_as(
        2,
        1,
        LockCommand::Resume {
            lock_ref: a,
            generation: 0,
            of: SessionId(1),
            origin: origin(),
        },
    );
    assert_eq!(s.leave(a, &["k"]), Outcome::Gone);
    assert!(s.state.queues().holds(a));
}

#[test]
fn a_ref_is_left_and_resumed_by_its_session_alone() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    let waiting = s.enqueue(&["k"], Mode::Exclusive);
    let leave = |lock_ref, generation, of| LockCommand::Leave {
        lock_ref,
        generation,
        of: SessionId(of),
        clean: vec![(key("k"), None)],
        put: None,
        waiting_only: false,
    };
    let resume = |of| LockCommand::Resume {
        lock_ref: a,
        generation: 0,
        of: SessionId(of),
        origin: origin(),
    };
    for (number, body) in [leave(a, 0, 2), leave(waiting, 0, 2), resume(2)]
        .into_iter()
        .enumerate()
    {
        let before = s.state.queues().clone();
        let applied = s.apply_as(2, number as u64 + 1, body);
        let refused = |why: &Refusal| why.code == Code::NotHolder && !why.may_have_taken_effect;
        assert!(matches!(&applied.outcome, Outcome::Refused(why) if refused(why)));
        assert_eq!(*s.state.queues(), before);
    }
    // Who knows its secret takes it over, and it is theirs from then on.
    let outcome = s.apply_as(2, 9, resume(1)).outcome;
    assert_eq!(outcome, Outcome::Resumed { generation: 1 });
    let refused = s.apply(leave(a, 1, 1)).outcome;
    assert!(matches!(refused, Outcome::Refused(_)));
    let left = s.apply_as(2, 10, leave(a, 1, 2)).outcome;
    assert_eq!(left, Outcome::Left { clean: true });
}

#[test]
fn what_is_not_applied_yet_is_unknown_and_what_is_over_is_past() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    assert_eq!(
        s.state.holder_state(&key("k"), LockRef(9), 0),
        HolderState::Unknown
    );
    assert_eq!(s.state.holder_state(&key("l"), a, 0), HolderState::Past);
    s.leave(a, &["k"]);
    assert_eq!(s.state.holder_state(&key("k"), a, 0), HolderState::Past);
}

#[test]
fn commands_of_a_later_format_have_no_effect() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    let before = s.state.queues().clone();
    let command = Command::new(
        SessionId(2),
        1,
        0,
        Epoch::FIRST,
        Body::Ledger(LedgerCommand::Never),
    );
    let applied = s.state.apply(&command, Planted::NONE);
    assert!(matches!(applied.outcome, Outcome::Refused(_)));
    assert_eq!(s.state.queues(), &before);
    assert!(s.state.queues().holds(a));
    // It was a command all the same, and is remembered as one.
    assert_eq!(s.state.commands(), 2);
    assert!(s.state.apply(&command, Planted::NONE).repeated);
}

/// F2: a session has its answer to an enqueue, says so with its next command, and the enqueue comes
/// once more. Whether it takes effect again.
fn forgotten_runs_again(planted: Planted) -> bool {
    let mut state = SegmentState::default();
    let enqueue = |number, answered| {
        let keys = vec![key("k")];
        let (mode, origin) = (Mode::Exclusive, origin());
        let body = Body::Lock(LockCommand::Enqueue { keys, mode, origin });
        Command::new(SessionId(1), number, answered, Epoch::FIRST, body)
    };
    state.apply(&enqueue(1, 0), planted);
    state.apply(&enqueue(2, 1), planted);
    let again = state.apply(&enqueue(1, 0), planted);
    matches!(again.outcome, Outcome::Enqueued { .. })
}

#[test]
fn what_a_session_has_forgotten_takes_no_effect_again() {
    assert!(!forgotten_runs_again(Planted::NONE));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_forgotten_command_that_runs_again_is_caught() {
    let bug = fermata_protocol::base::Bug::ForgottenRunsAgain;
    assert!(forgotten_runs_again(Planted::only(bug)));
}

fn segment_command(s: &mut Script, body: SegmentCommand) -> Outcome {
    let own = SessionId(0);
    let command = Command::new(own, 0, 0, Epoch::FIRST, Body::Segment(body));
    s.state.apply(&command, Planted::NONE).outcome
}

#[test]
fn a_lease_table_crosses_to_the_next_log_and_is_taken_once() {
    let mut s = Script::new();
    let a = s.enqueue(&["k"], Mode::Exclusive);
    let lease = ClientLease {
        lock_ref: a,
        left: 7,
        spent: 5,
    };
    assert_eq!(
        segment_command(&mut s, SegmentCommand::LeasesTaken),
        Outcome::Gone
    );
    let stated = SegmentCommand::Leases(vec![lease]);
    assert_eq!(segment_command(&mut s, stated), Outcome::Done);
    let snapshot = wire::encode(&s.state);
    let state: SegmentState = wire::decode(&snapshot).expect("a snapshot");
    s.state = state.succeed(stop(), Planted::NONE);
    assert_eq!(s.state.leases(), Some(&[lease][..]));
    assert_eq!(
        segment_command(&mut s, SegmentCommand::LeasesTaken),
        Outcome::Done
    );
    assert_eq!(s.state.leases(), None);
    assert_eq!(
        segment_command(&mut s, SegmentCommand::LeasesTaken),
        Outcome::Gone
    );
}

/// A primary adds these times to its clock, and a peer may send any.
#[test]
fn times_that_no_keyspace_has_are_refused() {
    let mut s = Script::new();
    let endless = [(u64::MAX, 1), (1, u64::MAX)].map(|(lease, section_max)| Origin {
        lease,
        section_max,
        ..origin()
    });
    for origin in endless {
        let applied = s.apply(LockCommand::Enqueue {
            keys: vec![key("k")],
            mode: Mode::Exclusive,
            origin,
        });
        assert!(
            matches!(applied.outcome, Outcome::Refused(_)),
            "{applied:?}"
        );
    }
    let lock_ref = s.enqueue(&["k"], Mode::Exclusive);
    for origin in endless {
        let applied = s.apply(LockCommand::Resume {
            lock_ref,
            generation: 0,
            of: SessionId(1),
            origin,
        });
        assert!(
            matches!(applied.outcome, Outcome::Refused(_)),
            "{applied:?}"
        );
    }
}

#[test]
fn a_full_queue_takes_nobody_until_somebody_is_gone() {
    let mut script = Script::new();
    let enqueue = |name| LockCommand::Enqueue {
        keys: vec![key(name), key("k")],
        mode: Mode::Exclusive,
        origin: origin(),
    };
    for number in 1..=QUEUE_MAX as u64 {
        let body = Body::Lock(enqueue("x"));
        let command = Command::new(SessionId(2), number, 0, Epoch::FIRST, body);
        let applied = script.state.apply(&command, Planted::NONE);
        assert!(matches!(applied.outcome, Outcome::Enqueued { .. }));
    }
    match script.apply(enqueue("free")).outcome {
        Outcome::Refused(refusal) => assert_eq!(refusal.code, Code::Busy),
        other => panic!("{other:?}"),
    }
    let queues = script.state.queues();
    assert!(
        queues.is_idle(&key("free")),
        "no key of a refused one waits"
    );
    let (lock_ref, key) = (LockRef(1), None);
    script.apply(LockCommand::Release { lock_ref, key });
    let outcome = script.apply(enqueue("free")).outcome;
    assert!(matches!(outcome, Outcome::Enqueued { .. }), "{outcome:?}");
}

/// The put beside which one left is none of the flag that its follower leaves.
#[test]
fn a_flag_that_comes_later_waits_for_no_put() {
    let mut s = Script::new();
    let a = s.enqueue(&["k", "l"], Mode::Exclusive);
    let b = s.enqueue(&["k"], Mode::Exclusive);
    leave_beside(&mut s, a, Tag::critical(a, 0, 7, SessionId(1)));
    let release = LockCommand::Release {
        lock_ref: b,
        key: None,
    };
    let flag = s.apply(release).position;
    assert_eq!(s.state.queues().queue(&key("k")).unwrap().put, None);
    s.apply(LockCommand::PutDone {
        key: key("k"),
        flag,
    });
    assert_eq!(s.flag("k"), Some(flag));
}

/// Nor, after a follower has left cleanly, of the flag that still stands.
#[test]
fn a_put_is_outlived_by_who_held_after_it() {
    let mut s = Script::new();
    let a = s.enqueue(&["k", "l"], Mode::Exclusive);
    let b = s.enqueue(&["k"], Mode::Exclusive);
    leave_beside(&mut s, a, Tag::critical(a, 0, 7, SessionId(1)));
    s.leave(b, &["k"]);
    assert!(s.flag("k").is_some());
    assert_eq!(s.state.queues().queue(&key("k")).unwrap().put, None);
}
