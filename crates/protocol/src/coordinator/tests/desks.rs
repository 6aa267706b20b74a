//! What a coordinator's jobs share: background jobs, its own session, grants that passed.

use super::*;
use crate::coordinator::desk::Desk;

fn client(session: SessionId) -> Client {
    Client {
        task: 1,
        call: None,
        session,
        number: 1,
        attempt: 0,
        answered_through: 0,
        site: SiteId(0),
        deadline: 0,
        alone: false,
    }
}

#[test]
fn the_own_session_has_its_answers_up_to_what_is_open() {
    let own = &mut Desk::new(OWN, 0).own;
    let like = client(SESSION);
    let [first, second] = [own.client(&like), own.client(&like)];
    assert_eq!((first.number, first.answered_through), (1, 0));
    assert_eq!((second.number, second.answered_through), (2, 0));
    own.done(1);
    assert_eq!(own.client(&like).answered_through, 1);
}

#[derive(Debug)]
struct Idle;

impl Job for Idle {
    fn on(&mut self, _: Event, _: &Client, _: &mut Desk, _: &mut Cx<'_>) -> Step {
        Step::Open
    }
}

#[test]
fn of_too_many_background_jobs_the_last_are_dropped() {
    let mut desk = Desk::new(OWN, 0);
    let like = client(SESSION);
    for _ in 0..100_000 {
        desk.spawn(&like, Box::new(Idle));
    }
    let most = desk.spawned.len();
    assert!(most < 100_000);
    desk.spawned_ended();
    desk.spawn(&like, Box::new(Idle));
    assert_eq!(desk.spawned.len(), most + 1);
}

#[test]
fn a_pass_is_of_all_keys_of_its_latest_generation() {
    let passes = &mut Desk::new(OWN, 0).passes;
    let (segment, lock_ref) = (SegmentId(0), LockRef(6));
    let of = (Mode::Exclusive, SESSION);
    for name in ["a", "b"] {
        passes.remember(segment, (lock_ref, 0), of, &key(name));
    }
    let seen = |passes: &crate::coordinator::desk::Passes, generation| {
        ["a", "b"].map(|name| passes.seen(segment, lock_ref, generation, &key(name)))
    };
    assert_eq!(seen(passes, 0), [Some(of); 2]);
    passes.remember(segment, (lock_ref, 1), of, &key("b"));
    assert_eq!(seen(passes, 0), [None; 2]);
    assert_eq!(seen(passes, 1), [None, Some(of)]);
}
