//! The session machine, one schedule at a time.

mod client_support;

use client_support::*;
use fermata_protocol::base::{LockRef, SessionId, Tag};
use fermata_protocol::client::{Call, Event, LostReason, Options, SectionId, Success, Ticket};
use fermata_protocol::request::{Entered, EntryValue, Held, Leaving, Mode, Operation, RefState};
use fermata_protocol::{Code, Refusal, Reply};

fn got(text: &'static str) -> Success {
    Success::Value {
        value: value(text),
        tag: None,
    }
}

fn quorum(text: &'static str) -> Reply {
    Reply::Value {
        value: value(text),
        tag: Tag::ZERO,
    }
}

#[test]
fn a_section_costs_one_enter_one_put_and_a_leave_that_nobody_waits_for() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    let put = client.put(section, "k", "new");
    let (at, request) = client.must_send();
    assert_eq!((at, write_number(&request)), (A, 1));
    client.reply(at, request.number, done());
    assert_eq!(client.must_end(put), Ok(Success::Done { tag: None }));
    client.leave(section);
    let (at, number, keys) = client.must_leave();
    assert_eq!(keys, [(held("k", 10), clean(10, 1))]);
    client.reply(at, number, done());
    assert!(client.session.sections().is_empty());
    assert_eq!(client.session.open(), 0);
}

#[test]
fn a_silent_node_is_replaced_and_the_numbers_are_repeated() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    let put = client.put(section, "k", "new");
    let (_, first) = client.must_send();
    client.pass(3_000_000);
    let (at, second) = client.must_send();
    assert_eq!(at, B);
    assert_eq!(second.number, first.number);
    assert_eq!(write_number(&second), write_number(&first));
    client.reply(B, second.number, done());
    assert!(client.must_end(put).is_ok());
    assert!(client.has(&Event::Close {
        endpoint: A,
        number: first.number
    }));
}

#[test]
fn a_broken_connection_is_replaced_at_once() {
    let mut client = Client::new();
    let read = client.call(Call::Read { key: key("r") });
    assert_eq!(client.must_send().0, A);
    client.disconnect(A);
    let (at, request) = client.must_send();
    assert_eq!(at, B);
    client.reply(B, request.number, quorum("x"));
    assert!(client.must_end(read).is_ok());
    // A is asked last for a while, and first again later.
    client.call(Call::Keyspaces);
    assert_eq!(client.must_send().0, B);
    client.pass(2_000_000);
    client.call(Call::Keyspaces);
    assert_eq!(client.must_send().0, A);
}

#[test]
fn a_definite_refusal_of_a_retry_does_not_undo_the_first_attempt() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    let put = client.put(section, "k", "new");
    client.must_send();
    client.pass(3_000_000);
    let (at, request) = client.must_send();
    client.reply(at, request.number, definite(Code::TooLarge));
    let refusal = client.must_end(put).expect_err("refused");
    assert_eq!(refusal.code, Code::TooLarge);
    assert!(refusal.may_have_taken_effect);
    client.leave(section);
    assert_eq!(client.must_leave().2, [(held("k", 10), Leaving::Dirty)]);
}

#[test]
fn a_put_that_was_refused_leaves_the_key_dirty_until_a_later_one_is_acknowledged() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    let put = client.put(section, "k", "new");
    let (at, request) = client.must_send();
    client.reply(at, request.number, definite(Code::Busy));
    client.pass(200_000);
    let (at, request) = client.must_send();
    client.reply(at, request.number, definite(Code::TooLarge));
    let refusal = client.must_end(put).expect_err("refused");
    assert!(!refusal.may_have_taken_effect);
    client.leave(section);
    let copy = "a copy of it may still arrive (G25)";
    assert_eq!(
        client.must_leave().2,
        [(held("k", 10), Leaving::Dirty)],
        "{copy}"
    );

    let mut client = Client::new();
    let section = client.entered(&["k"]);
    client.put(section, "k", "refused");
    let (at, request) = client.must_send();
    client.reply(at, request.number, definite(Code::TooLarge));
    client.put(section, "k", "stored");
    let (at, request) = client.must_send();
    client.reply(at, request.number, Reply::Done { tag: None });
    client.leave(section);
    assert_eq!(client.must_leave().2, [(held("k", 10), clean(10, 2))]);
}

#[test]
fn a_leave_after_an_unacknowledged_put_is_dirty() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    client.put(section, "k", "one");
    let (at, request) = client.must_send();
    client.reply(at, request.number, done());
    client.put(section, "k", "two");
    client.must_send();
    client.leave(section);
    assert!(client.sent().is_none(), "the leave waits for the put");
    client.pass(1_000_000);
    assert_eq!(client.must_leave().2, [(held("k", 10), Leaving::Dirty)]);
}

#[test]
fn a_leave_waits_for_pipelined_puts_and_is_then_clean() {
    let mut client = Client::new();
    let section = client.entered(&["k", "l"]);
    client.put(section, "k", "one");
    client.put(section, "l", "two");
    client.put(section, "k", "three");
    client.leave(section);
    let puts = [client.must_send(), client.must_send(), client.must_send()];
    let numbers: Vec<u64> = puts.iter().map(|(_, r)| write_number(r)).collect();
    assert_eq!(numbers, [1, 2, 3], "one counter over all keys");
    assert!(client.sent().is_none());
    for (at, request) in puts.iter().rev() {
        client.reply(*at, request.number, done());
    }
    let expected = [(held("k", 10), clean(10, 3)), (held("l", 11), clean(11, 2))];
    assert_eq!(client.must_leave().2, expected);
}

#[test]
fn a_leave_is_retried_until_it_is_answered() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    client.leave(section);
    let (_, number, keys) = client.must_leave();
    client.pass(3_000_000);
    assert_eq!(client.must_leave(), (B, number, keys.clone()));
    client.disconnect(B);
    client.disconnect(A);
    client.pass(1_000_000);
    let (at, again, same) = client.must_leave();
    assert_eq!((again, same), (number, keys));
    client.reply(at, number, definite(Code::NoLongerHolder));
    assert_eq!(client.session.open(), 0);
}

#[test]
fn a_get_waits_for_the_writes_before_it_and_a_write_for_the_gets() {
    let mut client = Client::with(Options {
        cached_gets: false,
        ..Options::default()
    });
    let section = client.entered(&["k"]);
    client.put(section, "k", "one");
    let get = client.get(section, "k");
    client.put(section, "k", "two");
    let (at, put) = client.must_send();
    assert!(client.sent().is_none());
    client.reply(at, put.number, done());
    let (at, request) = client.must_send();
    assert!(client.sent().is_none());
    client.reply(at, request.number, quorum("one"));
    assert!(matches!(client.must_end(get), Ok(Success::Value { .. })));
    assert_eq!(write_number(&client.must_send().1), 2);
}

#[test]
fn a_get_is_refused_while_the_key_s_last_write_is_in_doubt() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    let put = client.put(section, "k", "one");
    let (at, request) = client.must_send();
    client.reply(at, request.number, unknown(Code::DiskFull));
    client.pass(200_000);
    let (at, request) = client.must_send();
    client.reply(at, request.number, definite(Code::DiskFull));
    assert!(
        client
            .must_end(put)
            .expect_err("refused")
            .may_have_taken_effect
    );
    let get = client.get(section, "k");
    assert_eq!(
        client.must_end(get).expect_err("doubt").code,
        Code::Unavailable
    );
    // A later write that is acknowledged ends the doubt.
    client.put(section, "k", "two");
    let (at, request) = client.must_send();
    client.reply(at, request.number, done());
    let get = client.get(section, "k");
    assert_eq!(client.must_end(get), Ok(got("two")));
}

#[test]
fn a_cached_get_needs_a_lease_from_the_primary() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    let get = client.get(section, "k");
    assert_eq!(client.must_end(get), Ok(got("old")));
    // Heartbeats are sent and not answered: the lease runs out by this client's clock.
    client.pass(LEASE);
    assert!(client.has(&Event::LeaseExpired { section }));
    let get = client.get(section, "k");
    let (at, request) = client.must_send();
    client.reply(at, request.number, quorum("old"));
    assert!(client.must_end(get).is_ok());
    // Puts go on: fencing keeps them safe.
    client.put(section, "k", "new");
    assert_eq!(write_number(&client.must_send().1), 1);
}

#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    client.pass(LEASE / 3);
    let sent_at = client.now;
    let (at, number, refs) = client.heartbeat().expect("a heartbeat");
    assert_eq!(refs, [held("k", 10)]);
    client.pass(1_000_000);
    let states = vec![RefState::Holding { lease: LEASE }];
    client.reply(at, number, Reply::Renewed { states });
    let info = &client.session.sections()[0];
    assert_eq!(info.id, section);
    assert_eq!(info.lease_until, sent_at + LEASE - LEASE / 1_000);
}

#[test]
fn a_lost_key_ends_the_whole_section() {
    let mut client = Client::new();
    let section = client.entered(&["k", "l"]);
    client.pass(LEASE / 3);
    let (at, number, _) = client.heartbeat().expect("a heartbeat");
    let states = vec![RefState::Gone, RefState::Holding { lease: LEASE }];
    client.reply(at, number, Reply::Renewed { states });
    let reason = LostReason::Gone;
    assert!(client.has(&Event::SectionLost { section, reason }));
    // The other key is given up.
    let leaving = Leaving::Clean(None);
    assert_eq!(client.must_leave().2, [(held("l", 11), leaving)]);
    let put = client.put(section, "l", "new");
    let refusal = client.must_end(put).expect_err("over");
    assert_eq!(refusal.code, Code::NoLongerHolder);
    assert!(!refusal.may_have_taken_effect);
}

#[test]
fn a_pushed_loss_ends_the_section() {
    let mut client = Client::new();
    let ticket = client.call(Call::Enter {
        keys: vec![key("k")],
        mode: Mode::Exclusive,
        wait: 1,
        lease: None,
    });
    let (at, request) = client.must_send();
    let entered = Reply::Entered {
        keys: vec![Entered {
            held: held("k", 10),
            value: None.into(),
        }],
        lease: LEASE,
    };
    client.reply(at, request.number, entered);
    let Ok(Success::Entered { section, .. }) = client.must_end(ticket) else {
        panic!("not entered");
    };
    let old = Held {
        generation: 3,
        ..held("k", 10)
    };
    client.reply(at, request.number, Reply::Lost { held: old });
    assert_eq!(client.session.sections().len(), 1, "not this section's ref");
    let held = held("k", 10);
    client.reply(at, request.number, Reply::Lost { held });
    let reason = LostReason::Gone;
    assert!(client.has(&Event::SectionLost { section, reason }));
    assert!(client.session.sections().is_empty());
}

#[test]
fn a_refused_put_ends_the_section_with_an_unknown_outcome() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    let put = client.put(section, "k", "new");
    let (at, request) = client.must_send();
    client.reply(at, request.number, unknown(Code::NoLongerHolder));
    let refusal = client.must_end(put).expect_err("refused");
    assert!(refusal.may_have_taken_effect);
    let reason = LostReason::Refused;
    assert!(client.has(&Event::SectionLost { section, reason }));
}

#[test]
fn put_and_leave_trusts_the_record_of_its_first_attempt() {
    let mut client = Client::new();
    let section = client.entered(&["k", "l"]);
    let last = client.call(Call::PutAndLeave {
        section,
        key: key("k"),
        value: value("new"),
    });
    let (_, request) = client.must_send();
    let Operation::Critical { leave, .. } = &request.operation else {
        panic!("not a critical operation");
    };
    assert_eq!(leave[1], (held("l", 11), Leaving::Clean(None)));
    client.disconnect(A);
    let (at, request) = client.must_send();
    client.reply(at, request.number, Reply::Left);
    assert_eq!(client.must_end(last), Ok(Success::Left));
    assert!(client.session.sections().is_empty());
    assert!(client.sent().is_none(), "no second leave");
}

#[test]
fn put_and_leave_that_fails_leaves_dirty_all_the_same() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    let last = client.call(Call::PutAndLeave {
        section,
        key: key("k"),
        value: value("new"),
    });
    let (at, request) = client.must_send();
    client.reply(at, request.number, unknown(Code::Forgotten));
    assert!(client.must_end(last).is_err());
    assert_eq!(client.must_leave().2, [(held("k", 10), Leaving::Dirty)]);
}

#[test]
fn an_outranked_put_of_the_same_section_is_stored_in_effect() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    let one = client.put(section, "k", "one");
    client.put(section, "k", "two");
    let (at, request) = client.must_send();
    client.reply(at, request.number, definite(Code::StaleSequence));
    assert!(client.must_end(one).is_ok());
    let (at, request) = client.must_send();
    client.reply(at, request.number, definite(Code::StaleSequence));
    client.leave(section);
    assert_eq!(client.must_leave().2, [(held("k", 10), Leaving::Dirty)]);
}

#[test]
fn a_linearizable_write_that_is_repeated_in_doubt_says_so() {
    let mut client = Client::new();
    let call = || Call::Write {
        key: key("r"),
        value: value("x"),
    };
    let write = client.call(call());
    let (_, first) = client.must_send();
    assert_eq!(first.attempt, 0);
    client.disconnect(A);
    let (at, again) = client.must_send();
    assert_eq!((again.number, again.attempt), (first.number, 1));
    client.reply(at, again.number, unknown(Code::Unavailable));
    let refusal = client.must_end(write).expect_err("unknown");
    assert!(refusal.may_have_taken_effect);
    assert!(client.sent().is_none());
    // After a refusal that is certain the first transmission is still to come.
    let write = client.call(call());
    let (at, request) = client.must_send();
    client.reply(at, request.number, definite(Code::Busy));
    client.pass(200_000);
    let (at, request) = client.must_send();
    assert_eq!(request.attempt, 0);
    client.reply(at, request.number, done());
    assert!(client.must_end(write).is_ok());
}

#[test]
fn a_waiting_enter_is_kept_alive_and_a_missed_grant_is_fetched() {
    let mut client = Client::new();
    let enter = client.call(Call::Enter {
        keys: vec![key("k")],
        mode: Mode::Exclusive,
        wait: 60_000_000,
        lease: Some(LEASE),
    });
    let (_, request) = client.must_send();
    let queued = Reply::Queued {
        held: vec![held("k", 12)],
        ahead: 1,
    };
    client.reply(A, request.number, queued);
    assert!(client.has(&Event::Queued {
        ticket: enter,
        ahead: 1
    }));
    client.pass(LEASE / 3);
    let (at, number, refs) = client.heartbeat().expect("a heartbeat");
    assert_eq!(refs, [held("k", 12)]);
    let states = vec![RefState::Holding { lease: LEASE }];
    client.reply(at, number, Reply::Renewed { states });
    let (at, again) = client.must_send();
    assert_eq!(again.number, request.number);
    let entered = Reply::Entered {
        keys: vec![Entered {
            held: held("k", 12),
            value: None.into(),
        }],
        lease: LEASE,
    };
    client.reply(at, again.number, entered);
    assert!(client.must_end(enter).is_ok());
}

#[test]
fn an_enter_given_up_gives_its_place_up() {
    let mut client = Client::new();
    let enter = client.call(Call::Enter {
        keys: vec![key("k")],
        mode: Mode::Exclusive,
        wait: 60_000_000,
        lease: None,
    });
    let (at, request) = client.must_send();
    let queued = Reply::Queued {
        held: vec![held("k", 12)],
        ahead: 1,
    };
    client.reply(at, request.number, queued);
    client.cancel(enter);
    assert_eq!(
        client.must_end(enter).expect_err("given up").code,
        Code::WaitOver
    );
    let leaving = Leaving::Dirty;
    assert_eq!(client.must_leave().2, [(held("k", 12), leaving)]);
}

#[test]
fn a_lock_that_cannot_be_granted_fails_in_the_time_for_an_answer_and_gives_its_place_up() {
    let mut client = Client::new();
    let wait = 60_000_000;
    let enter = client.call(Call::Enter {
        keys: vec![key("k")],
        mode: Mode::Exclusive,
        wait,
        lease: None,
    });
    let (at, request) = client.must_send();
    let queued = |ahead| Reply::Queued {
        held: vec![held("k", 12)],
        ahead,
    };
    let stalled = || Reply::Stalled {
        why: "2 of 3 needed".into(),
    };
    client.reply(at, request.number, queued(0));
    client.reply(at, request.number, stalled());
    // It may pass: then the wait is the bound again.
    client.reply(at, request.number, queued(0));
    client.pass(wait / 2);
    assert!(client.end(enter).is_none(), "it waits");
    for _ in 0..20 {
        // As after a repetition.
        client.reply(at, request.number, queued(0));
        client.reply(at, request.number, stalled());
        client.pass(wait / 60);
    }
    let refusal = client.must_end(enter).expect_err("stalled");
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.detail.starts_with("2 of 3"), "{refusal:?}");
    // After the repetitions of the enter, at other nodes.
    let left = loop {
        match client.sent().expect("a leave").1.operation {
            Operation::Leave { keys } => break keys,
            other => assert!(matches!(other, Operation::Enter { .. }), "{other:?}"),
        }
    };
    assert_eq!(left, [(held("k", 12), Leaving::Dirty)]);
}

#[test]
fn a_place_at_the_head_is_left_when_a_node_says_that_the_wait_is_over() {
    let mut client = Client::new();
    let enter = client.call(Call::Enter {
        keys: vec![key("k")],
        mode: Mode::Exclusive,
        wait: 1_000_000,
        lease: None,
    });
    let (at, request) = client.must_send();
    let queued = Reply::Queued {
        held: vec![held("k", 12)],
        ahead: 0,
    };
    client.reply(at, request.number, queued);
    client.reply(at, request.number, definite(Code::WaitOver));
    let refusal = client.must_end(enter).expect_err("over");
    assert_eq!(refusal.code, Code::WaitOver);
    assert_eq!(client.must_leave().2, [(held("k", 12), Leaving::Dirty)]);
}

#[test]
fn a_poll_repeats_the_number_of_its_enter() {
    let mut client = Client::new();
    let enter = client.call(Call::Enter {
        keys: vec![key("k")],
        mode: Mode::Shared,
        wait: 0,
        lease: None,
    });
    let (at, request) = client.must_send();
    let queued = Reply::Queued {
        held: vec![held("k", 12)],
        ahead: 3,
    };
    client.reply(at, request.number, queued);
    let Ok(Success::Waiting {
        section,
        held: refs,
        ahead: 3,
    }) = client.must_end(enter)
    else {
        panic!("not waiting");
    };
    assert_eq!(refs, [held("k", 12)]);
    client.call(Call::Keyspaces);
    let (_, other) = client.must_send();
    assert!(
        other.answered_through < request.number,
        "it will be repeated"
    );
    client.call(Call::Poll { section });
    assert_eq!(client.must_send().1.number, request.number);
}

#[test]
fn a_poll_that_nobody_answers_keeps_the_place() {
    let mut client = Client::new();
    let sent_at = client.now;
    let (section, number) = client.waits("k", 12);
    let poll = client.call(Call::Poll { section });
    client.pass(40_000_000);
    let refused = client.must_end(poll).unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    while let Some((_, sent)) = client.sent() {
        assert!(
            !matches!(sent.operation, Operation::Leave { .. }),
            "given up"
        );
    }
    let poll = client.call(Call::Poll { section });
    let (at, again) = client.must_send();
    assert_eq!(again.number, number);
    let keys = vec![Entered {
        held: held("k", 12),
        value: value("v").into(),
    }];
    client.reply(at, again.number, Reply::Entered { keys, lease: LEASE });
    assert!(matches!(client.must_end(poll), Ok(Success::Entered { .. })));
    // It may have been granted to the first of them.
    let info = &client.session.sections()[0];
    assert_eq!(info.lease_until, sent_at + LEASE - LEASE / 1_000);
}

#[test]
fn a_resumed_section_counts_anew_in_its_new_generation() {
    let mut client = Client::new();
    let resume = client.call(Call::Resume {
        held: vec![held("k", 10)],
        of: SessionId(3),
    });
    let (at, request) = client.must_send();
    assert!(matches!(request.operation, Operation::Resume { .. }));
    let next = Held {
        generation: 1,
        ..held("k", 10)
    };
    let entered = Reply::Entered {
        keys: vec![Entered {
            held: next.clone(),
            value: value("old").into(),
        }],
        lease: LEASE,
    };
    client.reply(at, request.number, entered);
    let Ok(Success::Entered { section, .. }) = client.must_end(resume) else {
        panic!("not resumed");
    };
    client.put(section, "k", "new");
    let (_, put) = client.must_send();
    let Operation::Critical { held, .. } = &put.operation else {
        panic!("not a critical operation");
    };
    assert_eq!((held, write_number(&put)), (&next, 1));
}

#[test]
fn an_operation_without_any_answer_ends_at_its_deadline() {
    let mut client = Client::new();
    let put = client.call(Call::Put {
        key: key("e"),
        value: None,
    });
    let queue = client.call(Call::Queue { key: key("k") });
    client.pass(31_000_000);
    let refusal = client.must_end(put).expect_err("silence");
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.may_have_taken_effect);
    assert!(
        !client
            .must_end(queue)
            .expect_err("silence")
            .may_have_taken_effect
    );
}

#[test]
fn an_enter_without_a_place_in_the_queue_waits_for_an_answer_only() {
    let enter = || Call::Enter {
        keys: vec![key("k")],
        mode: Mode::Exclusive,
        wait: 600_000_000,
        lease: None,
    };
    let mut client = Client::new();
    let silent = client.call(enter());
    client.pass(31_000_000);
    let refusal = client.must_end(silent).expect_err("silence");
    assert_eq!(refusal.code, Code::Unavailable);

    let mut client = Client::new();
    let waiting = client.call(enter());
    let (at, request) = client.must_send();
    let queued = Reply::Queued {
        held: vec![held("k", 12)],
        ahead: 1,
    };
    client.reply(at, request.number, queued);
    client.pass(100_000_000);
    assert_eq!(client.end(waiting), None, "its wait is not over");
    client.pass(600_000_000);
    let refusal = client.must_end(waiting).expect_err("the wait is over");
    assert_eq!(refusal.code, Code::WaitOver);
}

#[test]
fn operations_given_up_end_at_once_and_a_leave_goes_on() {
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    let left = client.call(Call::Leave {
        section,
        wait: true,
    });
    let put = client.call(Call::Put {
        key: key("e"),
        value: None,
    });
    let read = client.call(Call::Read { key: key("r") });
    client.give_up(&Refusal::definite(Code::Unavailable, "nobody"));
    let doubt = |client: &mut Client, ticket| {
        let refusal = client.must_end(ticket).expect_err("given up");
        assert_eq!(refusal.code, Code::Unavailable);
        refusal.may_have_taken_effect
    };
    assert!(doubt(&mut client, left));
    assert!(doubt(&mut client, put), "it may have been received");
    assert!(!doubt(&mut client, read));
    let (at, number, _) = client.must_leave();
    client.reply(at, number, done());
    assert_eq!(client.session.open(), 0);
}

#[test]
fn an_eventual_put_is_not_sent_again_unless_it_certainly_had_no_effect() {
    let mut client = Client::new();
    let call = || Call::Put {
        key: key("e"),
        value: None,
    };
    // A definite refusal: elsewhere.
    let put = client.call(call());
    let (at, request) = client.must_send();
    client.reply(at, request.number, definite(Code::DiskFull));
    client.pass(2_000_000);
    let (at, _) = client.must_send();
    // A broken connection: the end.
    client.disconnect(at);
    let refusal = client.must_end(put).expect_err("broken");
    assert!(refusal.may_have_taken_effect);
    assert_eq!(client.sent(), None);
    // Silence: nothing is sent until the deadline.
    let put = client.call(call());
    client.must_send();
    client.pass(31_000_000);
    let refusal = client.must_end(put).expect_err("silence");
    assert!(refusal.may_have_taken_effect);
    assert_eq!(client.sent(), None);
}

#[path = "client_scenarios/denied.rs"]
mod denied;
/// The wrong rules do what they are named after.
#[cfg(feature = "planted-bugs")]
#[path = "client_scenarios/planted.rs"]
mod planted;
#[path = "client_scenarios/relinquish.rs"]
mod relinquish;

/// A section that is left while a poll of it is on its way, which is then answered with the grant;
/// the poll.
fn granted_after_the_leave(client: &mut Client) -> (SectionId, Ticket) {
    let enter = client.call(Call::Enter {
        keys: vec![key("k")],
        mode: Mode::Exclusive,
        wait: 0,
        lease: None,
    });
    let (at, request) = client.must_send();
    let queued = Reply::Queued {
        held: vec![held("k", 10)],
        ahead: 1,
    };
    client.reply(at, request.number, queued);
    let Ok(Success::Waiting { section, .. }) = client.must_end(enter) else {
        panic!("not waiting");
    };
    let poll = client.call(Call::Poll { section });
    let (at, request) = client.must_send();
    client.leave(section);
    assert!(client.sent().is_none(), "the leave waits for the poll");
    let keys = vec![Entered {
        held: held("k", 10),
        value: value("v").into(),
    }];
    client.reply(at, request.number, Reply::Entered { keys, lease: LEASE });
    (section, poll)
}

/// G61: what the leave says of the writes must stay true.
#[test]
fn a_grant_that_comes_after_the_leave_begins_nothing() {
    let mut client = Client::new();
    let (section, poll) = granted_after_the_leave(&mut client);
    let refused = client.must_end(poll).unwrap_err();
    assert_eq!(refused.code, Code::NoLongerHolder);
    let (at, number, keys) = client.must_leave();
    assert_eq!(keys, [(held("k", 10), Leaving::Clean(None))]);
    let put = client.put(section, "k", "late");
    let refused = client.must_end(put).unwrap_err();
    assert_eq!(refused.code, Code::NoLongerHolder);
    assert!(!refused.may_have_taken_effect && client.sent().is_none());
    client.reply(at, number, done());
    assert!(client.session.sections().is_empty());
    assert_eq!(client.session.open(), 0);
}

#[test]
fn a_value_that_the_entry_left_out_is_read_when_it_is_wanted_and_once() {
    let mut client = Client::new();
    let ticket = client.call(Call::Enter {
        keys: vec![key("k"), key("l")],
        mode: Mode::Exclusive,
        wait: 60_000_000,
        lease: None,
    });
    let (at, request) = client.must_send();
    let one = |name, lock_ref, value| Entered {
        held: held(name, lock_ref),
        value,
    };
    let keys = vec![
        one("k", 10, EntryValue::Omitted),
        one("l", 11, EntryValue::Absent),
    ];
    let lease = LEASE;
    client.reply(at, request.number, Reply::Entered { keys, lease });
    let Ok(Success::Entered { section, keys }) = client.must_end(ticket) else {
        panic!("not entered");
    };
    assert!(keys[0].value.is_omitted());
    // What is known to be absent is answered from memory; what was left out is asked for.
    let absent = client.get(section, "l");
    assert!(client.sent().is_none());
    let answer = Success::Value {
        value: None,
        tag: None,
    };
    assert_eq!(client.must_end(absent), Ok(answer));
    let large = client.get(section, "k");
    let (at, request) = client.must_send();
    client.reply(at, request.number, quorum("large"));
    assert!(matches!(client.must_end(large),
        Ok(Success::Value { value: got, .. }) if got == value("large")));
    let again = client.get(section, "k");
    assert!(client.sent().is_none());
    assert_eq!(client.must_end(again), Ok(got("large")));
}

#[test]
fn what_no_cluster_takes_is_refused_before_it_is_sent() {
    use bytes::Bytes;
    use fermata_protocol::base::{KeyId, Limits};
    let mut client = Client::new();
    let section = client.entered(&["k"]);
    let most = Some(Bytes::from(vec![0; Limits::VALUE_MAX]));
    let large = Some(Bytes::from(vec![0; Limits::VALUE_MAX + 1]));
    let long = KeyId {
        key: Bytes::from(vec![b'k'; Limits::KEY_MAX + 1]),
        ..key("k")
    };
    let put = |value: &Option<Bytes>| Call::Put {
        key: key("k"),
        value: value.clone(),
    };
    let critical = Call::CriticalPut {
        section,
        key: key("k"),
        value: large.clone(),
    };
    for call in [put(&large), critical, Call::Read { key: long }] {
        let ticket = client.call(call);
        let refusal = client.must_end(ticket).expect_err("refused");
        assert_eq!(refusal.code, Code::TooLarge);
        assert!(!refusal.may_have_taken_effect);
        assert!(client.sent().is_none());
    }
    client.call(put(&most));
    client.must_send();
    // The put that was never sent has no number: the section is left cleanly.
    client.leave(section);
    assert_eq!(
        client.must_leave().2,
        [(held("k", 10), Leaving::Clean(None))]
    );
}

#[test]
fn a_resume_waits_as_long_as_nodes_say_that_it_is_queued() {
    let mut client = Client::new();
    let resume = client.call(Call::Resume {
        held: vec![held("k", 10)],
        of: SessionId(3),
    });
    let next = Held {
        generation: 1,
        ..held("k", 10)
    };
    let (_, first) = client.must_send();
    // The lease of the former generation lasts for two minutes; nodes wait for ten seconds each.
    let mut at = A;
    for _ in 0..12 {
        let queued = Reply::Queued {
            held: vec![next.clone()],
            ahead: 0,
        };
        client.reply(at, first.number, queued);
        client.pass(10_000_000);
        client.reply(at, first.number, unknown(Code::Unavailable));
        client.pass(2_000_000);
        assert_eq!(client.end(resume), None, "it goes on");
        let (to, again) = client.must_send();
        assert_eq!(again.number, first.number);
        at = to;
    }
    let keys = vec![Entered {
        held: next,
        value: EntryValue::Absent,
    }];
    let lease = LEASE;
    client.reply(at, first.number, Reply::Entered { keys, lease });
    assert!(client.must_end(resume).is_ok());
}

#[test]
fn a_resume_that_nobody_answers_ends_with_its_request_time() {
    let mut client = Client::new();
    let resume = client.call(Call::Resume {
        held: vec![held("k", 10)],
        of: SessionId(3),
    });
    client.pass(31_000_000);
    let refusal = client.must_end(resume).expect_err("nobody answered");
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.may_have_taken_effect);
}

#[test]
fn a_node_that_says_that_a_request_waits_is_not_taken_for_dead() {
    let release = Call::Release {
        key: key("k"),
        lock_ref: LockRef(7),
    };
    for call in [release, Call::Read { key: key("k") }] {
        let mut client = Client::new();
        let ticket = client.call(call);
        let (at, request) = client.must_send();
        for _ in 0..5 {
            client.pass(1_400_000);
            let (held, ahead) = (vec![], 2);
            client.reply(at, request.number, Reply::Queued { held, ahead });
            assert!(client.sent().is_none(), "nobody else is asked");
        }
        // It has died: another one is asked, and says the same until the time is over.
        client.pass(3_000_000);
        let (other, again) = client.must_send();
        assert_ne!(other, at);
        assert_eq!(again.number, request.number);
        while client.end(ticket).is_none() {
            let (held, ahead) = (vec![], 2);
            client.reply(other, request.number, Reply::Queued { held, ahead });
            client.pass(1_400_000);
        }
    }
}
