//! Until when a lease counts: across generations, primaries and clocks. Each rule is shown to the
//! microsecond, and broken on purpose.

use super::*;
#[cfg(feature = "planted-bugs")]
use fermata_protocol::base::Bug;
use fermata_protocol::command::{ClientLease, SegmentCommand};

/// How long a primary counts a lease.
fn counted() -> u64 {
    Timing::default().lengthened(LEASE)
}

impl Bench {
    /// The primary dies; the next one begins at once, and knows the log alone.
    pub(super) fn succeed(&mut self) {
        let ballot = Ballot {
            round: self.primary.ballot().round + 1,
            seat: Seat(0),
        };
        let now = at(self.now);
        self.primary = Primary::new(
            SEGMENT,
            (Epoch::FIRST, ballot),
            &self.state,
            (now, None),
            &self.config,
        );
    }

    /// Somebody waits for the key, and asked for this lease.
    fn waiter(&mut self, lease: u64) -> LockRef {
        let mut body = enqueue("k");
        if let LockCommand::Enqueue { origin, .. } = &mut body {
            origin.lease = lease;
        }
        let command = self.command(body);
        let submitted = command.clone();
        self.step(|it, state, cx| it.on_submit(NODE, 1, submitted, state, cx));
        self.primary.take_proposals();
        match self.apply(&command) {
            Outcome::Enqueued { lock_ref } => lock_ref,
            other => panic!("{other:?}"),
        }
    }

    /// What the primary answers to a command, if it does not propose it.
    fn refused(&mut self, command: Command) -> Option<Rejection> {
        self.step(|it, state, cx| it.on_submit(NODE, 1, command, state, cx));
        if !self.primary.take_proposals().is_empty() {
            return None;
        }
        self.sent.iter().find_map(|(_, message)| match message {
            fermata_protocol::Message::Lock(Message::Submitted { result, .. }) => {
                result.as_ref().err().cloned()
            }
            _ => None,
        })
    }

    /// The synch of the grant in preparation ends: whether it is granted by that.
    fn synched(&mut self) -> bool {
        let op = *self.under_way().last().expect("a synch has begun");
        let synched = register::OpEnd::Synched {
            value: None,
            tag: Tag::ZERO,
        };
        self.read_ends(op, synched);
        self.granted().is_some()
    }

    fn ticks_at(&mut self, now: u64) -> bool {
        self.now = now;
        self.tick();
        self.granted().is_some()
    }
}

/// G14: a holder is resumed, and its primary dies. Whether the next one grants the new generation
/// at once, and just before and at the time when the lease of the old one must be over.
fn granted_under_the_next_primary(planted: Planted) -> [bool; 3] {
    let (mut bench, refs) = Bench::planted(1, planted);
    bench.renew(refs[0]);
    let resume = bench.resume(refs[0]);
    bench.apply(&resume);
    bench.now = 1_000;
    bench.succeed();
    let waits = |bench: &mut Bench| {
        let resume = resume.clone();
        bench.step(|it, state, cx| it.on_submit(NODE, 1, resume, state, cx));
    };
    waits(&mut bench);
    let over = bench.now + counted();
    let at_once = bench.synched();
    let before = bench.ticks_at(over - 1);
    waits(&mut bench);
    [at_once, before, bench.ticks_at(over)]
}

#[test]
fn g14_a_new_primary_grants_a_resumed_ref_when_any_lease_of_before_is_over() {
    let granted = granted_under_the_next_primary(Planted::NONE);
    assert_eq!(granted, [false, false, true]);
}

#[test]
fn the_grant_of_a_resumed_section_goes_to_the_node_that_resumed_it() {
    let (mut bench, refs) = Bench::new(1);
    bench.renew(refs[0]);
    let resume = bench.resume(refs[0]);
    let submitted = resume.clone();
    bench.step(|it, state, cx| it.on_submit(NodeName(7), 1, submitted, state, cx));
    bench.apply(&resume);
    assert!(!bench.synched(), "the old generation has its lease");
    bench.now = LEASE;
    let held = [(refs[0], 1)];
    bench.step(|it, state, cx| it.on_renew(NODE, SessionId(9), (&held, &[]), state.queues(), cx));
    assert!(bench.ticks_at(counted()));
    assert!(bench.sent.iter().all(|(to, _)| *to == NodeName(7)));
}

/// G14: how a leave of the new generation is answered while the old one has a lease, and after it.
fn left_while_the_lease_runs(planted: Planted) -> [Option<Rejection>; 2] {
    let (mut bench, refs) = Bench::planted(1, planted);
    bench.renew(refs[0]);
    let resume = bench.resume(refs[0]);
    bench.apply(&resume);
    let leave = |bench: &mut Bench| {
        let generation = 1;
        let leave = bench.command(LockCommand::Leave {
            lock_ref: refs[0],
            generation,
            of: SessionId(9),
            clean: vec![],
            put: None,
            waiting_only: false,
        });
        bench.refused(leave)
    };
    bench.now = counted() - 1;
    let early = leave(&mut bench);
    bench.now = counted();
    [early, leave(&mut bench)]
}

#[test]
fn g14_a_new_generation_leaves_when_the_lease_of_the_old_one_is_over() {
    let refused = left_while_the_lease_runs(Planted::NONE);
    assert_eq!(refused, [Some(Rejection::Leased(1)), None]);
}

/// F10: a primary finds a lease table. What it says to a heartbeat before it has taken the table,
/// and after.
fn renewed_around_the_taking(planted: Planted) -> [RefState; 2] {
    let (mut bench, refs) = Bench::planted(1, planted);
    let own = |body| Command::new(Sessions::OWN, 0, 0, Epoch::FIRST, Body::Segment(body));
    let lease = ClientLease {
        lock_ref: refs[0],
        left: 5,
        spent: 0,
    };
    bench
        .state
        .apply(&own(SegmentCommand::Leases(vec![lease])), planted);
    bench.succeed();
    let taking = bench.primary.take_proposals();
    let before = bench.renew(refs[0]);
    for command in taking {
        bench.apply(&command);
    }
    [before, bench.renew(refs[0])]
}

#[test]
fn f10_no_lease_is_renewed_before_the_table_is_taken() {
    let renewed = renewed_around_the_taking(Planted::NONE);
    assert_eq!(renewed, [NO_LEASE, LEASED]);
}

/// F10: when a silent holder is released, and when one whose release is asked for.
fn released_at(planted: Planted, by_force: bool) -> u64 {
    let (mut bench, refs) = Bench::planted(1, planted);
    for now in LEASE - 1..=counted() {
        bench.now = now;
        let released = match by_force {
            true => bench.release(refs[0]).is_ok(),
            false => {
                bench.tick();
                !bench.primary.take_proposals().is_empty()
            }
        };
        if released {
            return now;
        }
    }
    panic!("not released");
}

#[test]
fn f10_a_section_ends_when_its_lease_is_over_by_the_slowest_clock() {
    for by_force in [false, true] {
        assert_eq!(released_at(Planted::NONE, by_force), counted());
    }
}

/// F20: whether a primary grants without a read lease, and once it has one again.
fn granted_without_a_read_lease(planted: Planted) -> [bool; 2] {
    let (mut bench, _) = Bench::planted(0, planted);
    let enters = command(50, enqueue("k"));
    let read = bench.read_ahead(&enters);
    bench.read_ends(read, entry(None, Tag::ZERO));
    bench.leased = false;
    bench.apply(&enters);
    let without = bench.granted().is_some();
    bench.leased = true;
    [without, bench.ticks_at(1)]
}

#[test]
fn f20_a_primary_grants_under_its_read_lease_only() {
    let granted = granted_without_a_read_lease(Planted::NONE);
    assert_eq!(granted, [false, true]);
}

/// G48: whether one who waits with this lease, and is not heard, is released by then.
fn waiter_released_by(planted: Planted, lease: u64, then: u64) -> bool {
    let (mut bench, _) = Bench::planted(1, planted);
    bench.waiter(lease);
    bench.now = then;
    bench.tick();
    !bench.primary.take_proposals().is_empty()
}

#[test]
fn g48_one_who_waits_may_be_silent_for_four_retry_times_or_its_lease() {
    let timing = Timing::default();
    let least = 4 * timing.retry;
    for (lease, silent) in [(1_000, least), (least, least), (least + 1, least + 1)] {
        let over = timing.lengthened(silent);
        let released = [over - 1, over].map(|at| waiter_released_by(Planted::NONE, lease, at));
        assert_eq!(released, [false, true], "a lease of {lease}");
    }
}

/// G48: what is left of the lease of one that is granted when it was last heard so long ago.
fn left_when_granted(lease: u64, waited: u64) -> u64 {
    let (mut bench, refs) = Bench::new(1);
    let waiter = bench.waiter(lease);
    bench.now = waited;
    let leave = bench.leave(refs[0]);
    bench.apply(&leave);
    assert!(bench.synched());
    bench.primary.take_proposals();
    match bench.release(waiter) {
        Err(Rejection::Leased(left)) => left,
        other => panic!("{other:?}"),
    }
}

#[test]
fn g48_a_grant_leaves_four_retry_times_of_the_lease_or_all_of_it() {
    let (timing, least) = (Timing::default(), 4 * Timing::default().retry);
    let drift = |lease| timing.lengthened(lease) - lease;
    for (lease, waited, left) in [
        (LEASE, 0, LEASE),
        (LEASE, LEASE - least - 1, least + 1),
        (LEASE, LEASE - least, least),
        (LEASE, LEASE - 1, least),
        (1_000, 900, 1_000),
        (1_000, least, 1_000),
    ] {
        let granted = left_when_granted(lease, waited);
        assert_eq!(granted, left + drift(lease), "{lease}, {waited}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn each_of_these_rules_can_be_broken() {
    let resumed = Planted::only(Bug::ResumedGrantedAtOnce);
    assert!(granted_under_the_next_primary(resumed)[0]);
    let leaves = Planted::only(Bug::LeaveBesideLease);
    assert_eq!(left_while_the_lease_runs(leaves)[0], None);
    let early = Planted::only(Bug::LeasesBeforeTable);
    assert_eq!(renewed_around_the_taking(early)[0], LEASED);
    let drift = Planted::only(Bug::ReleaseIgnoresDrift);
    assert_eq!([false, true].map(|f| released_at(drift, f)), [LEASE; 2]);
    let short = Planted::only(Bug::ShortWaitReleased);
    let over = Timing::default().lengthened(1_000);
    assert!(waiter_released_by(short, 1_000, over));
    let unleased = Planted::only(Bug::GrantWithoutLease);
    assert!(granted_without_a_read_lease(unleased)[0]);
}
