//! What a primary begins for whoever holds or reads, how that ends, and how long a section may
//! last.

use super::*;
#[cfg(feature = "planted-bugs")]
use fermata_protocol::base::Bug;

impl Bench {
    /// What this primary states of its leases as it ends.
    fn closes(&mut self) -> Option<Command> {
        let (queues, now) = (self.state.queues(), at(self.now));
        self.primary.close(queues, now, &self.config.timing)
    }

    /// What this primary states of its leases is chosen, and the next one takes it.
    fn hand_on(&mut self) {
        let table = self.closes();
        self.apply(&table.expect("somebody holds"));
        self.succeed();
        let taken = self.primary.take_proposals().pop();
        self.apply(&taken.expect("the table is taken"));
    }

    /// Renews a ref every half lease, for as long as it gets one; how long that was.
    fn renews_for(&mut self, lock_ref: LockRef, longest: u64) -> u64 {
        let begun = self.now;
        while self.renew(lock_ref) == LEASED && self.now < begun + longest {
            self.now += LEASE / 2;
        }
        self.now - begun
    }

    /// The operations of grants that a step has begun.
    fn begins(&mut self, act: impl FnOnce(&mut Bench)) -> Vec<OpId> {
        let before = self.under_way();
        act(self);
        let new = self.under_way().into_iter();
        new.filter(|op| !before.contains(op)).collect()
    }

    /// The one operation that a step has begun.
    fn begins_one(&mut self, act: impl FnOnce(&mut Bench)) -> OpId {
        match self.begins(act)[..] {
            [op] => op,
            ref ops => panic!("{ops:?}"),
        }
    }

    /// A reader comes, and is applied; its ref.
    fn reader(&mut self) -> LockRef {
        let mut body = enqueue("k");
        if let LockCommand::Enqueue { mode, .. } = &mut body {
            *mode = Mode::Shared;
        }
        let command = self.command(body);
        let submitted = command.clone();
        self.step(|it, state, cx| it.on_submit(NodeName(9), 1, submitted, state, cx));
        self.primary.take_proposals();
        match self.apply(&command) {
            Outcome::Enqueued { lock_ref } => lock_ref,
            other => panic!("{other:?}"),
        }
    }
}

/// What a synch finds.
fn synched(tag: Tag) -> register::OpEnd {
    register::OpEnd::Synched { value: None, tag }
}

const LONGEST: u64 = ORIGIN.section_max;

#[test]
fn a_section_gets_no_lease_beyond_its_longest_time() {
    let (mut bench, refs) = Bench::new(1);
    assert_eq!(bench.renews_for(refs[0], 2 * LONGEST), LONGEST);
    assert_eq!(bench.renew(refs[0]), NO_LEASE);
    bench.now += LEASE + LEASE / 10;
    bench.tick();
    assert_eq!(bench.primary.take_proposals().len(), 1, "and is released");
}

/// How long a section is renewed whose primary changes four times, each stating its leases.
fn renewed_over_four_primaries(planted: Planted) -> u64 {
    let (mut bench, refs) = Bench::planted(1, planted);
    let mut spent = 0;
    for _ in 0..4 {
        spent += bench.renews_for(refs[0], LONGEST / 3);
        bench.hand_on();
    }
    spent + bench.renews_for(refs[0], LONGEST)
}

#[test]
fn the_longest_time_of_a_section_goes_on_over_primaries() {
    assert_eq!(renewed_over_four_primaries(Planted::NONE), LONGEST);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_section_whose_time_restarts_outlives_its_longest() {
    let planted = Planted::only(Bug::SectionTimeRestarts);
    assert!(renewed_over_four_primaries(planted) > LONGEST);
}

/// How long a section is renewed whose second primary ends before it has taken what the first one
/// stated: both its words are chosen.
fn renewed_over_a_hasty_primary(planted: Planted) -> u64 {
    let (mut bench, refs) = Bench::planted(1, planted);
    let spent = bench.renews_for(refs[0], LONGEST / 3);
    let table = bench.closes().expect("somebody holds");
    bench.apply(&table);
    bench.succeed();
    let mut words = bench.primary.take_proposals();
    words.extend(bench.closes());
    for word in &words {
        bench.apply(word);
    }
    bench.succeed();
    for taken in bench.primary.take_proposals() {
        bench.apply(&taken);
    }
    spent + bench.renews_for(refs[0], 2 * LONGEST)
}

#[test]
fn a_lease_table_outlives_a_primary_that_does_not_come_to_take_it() {
    assert_eq!(renewed_over_a_hasty_primary(Planted::NONE), LONGEST);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_lease_table_that_is_stated_once_is_lost_with_a_hasty_primary() {
    let planted = Planted::only(Bug::TableStatedOnce);
    assert!(renewed_over_a_hasty_primary(planted) > LONGEST);
}

/// Ends a ref by force.
fn released(bench: &mut Bench, lock_ref: LockRef) {
    let key = None;
    let release = bench.command(LockCommand::Release { lock_ref, key });
    bench.apply(&release);
}

/// What one more reader begins.
fn begun_by_a_reader(bench: &mut Bench) -> usize {
    let begun = bench.begins(|bench| {
        bench.reader();
    });
    begun.len()
}

/// F19: of two readers of a key that is to be synched the first goes while its synch is under way.
#[test]
fn who_is_behind_a_front_that_goes_is_looked_after_at_once() {
    let (mut bench, refs) = Bench::new(1);
    released(&mut bench, refs[0]);
    let mut first = LockRef(0);
    bench.begins_one(|bench| first = bench.reader());
    assert_eq!(begun_by_a_reader(&mut bench), 0, "it waits for that synch");
    bench.begins_one(|bench| released(bench, first));
}

/// F19: an earlier primary has begun with the first reader, which this one knows nothing of.
#[test]
fn a_key_is_settled_once_for_all_who_are_behind_its_front() {
    let (mut bench, refs) = Bench::new(1);
    released(&mut bench, refs[0]);
    bench.reader();
    bench.succeed();
    assert_eq!([1, 2].map(|_| begun_by_a_reader(&mut bench)), [1, 0]);
}

/// G28: the synch for the first of two readers is complete, and its `SynchDone` is in flight, when
/// the second one is looked after. Whether what is begun for that one is a read, which grants it.
fn second_reader_reads(planted: Planted) -> bool {
    let (mut bench, refs) = Bench::planted(1, planted);
    let (lock_ref, key) = (refs[0], None);
    let release = bench.command(LockCommand::Release { lock_ref, key });
    bench.apply(&release);
    let mut first = LockRef(0);
    let synch = bench.begins_one(|bench| first = bench.reader());
    bench.reader();
    let tag = Tag::synch(first, 0, Epoch::FIRST, Ballot::default(), 1);
    let next = bench.begins_one(|bench| bench.read_ends(synch, synched(tag)));
    let done = bench.primary.take_proposals();
    assert_eq!(done.len(), 1, "the flag is cleared");
    bench.read_ends(next, entry(None, tag));
    let reads = bench.granted().is_some();
    bench.apply(&done[0]);
    let queue = bench.state.queues().queue(&key_of("k"));
    assert_eq!(queue.and_then(|q| q.flag), None);
    let third = bench.begins_one(|bench| {
        bench.reader();
    });
    bench.read_ends(third, entry(None, tag));
    assert!(
        bench.granted().is_some(),
        "the note of the synch changes nothing"
    );
    reads
}

#[test]
fn a_reader_behind_a_synch_that_is_not_noted_yet_begins_no_other() {
    assert!(second_reader_reads(Planted::NONE));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_second_synch_loses_its_flag_while_it_is_under_way() {
    let planted = Planted::only(Bug::SynchBesideItsDone);
    assert!(!second_reader_reads(planted));
}

/// G28: a reader has had its key settled in the name of the front, whose `SynchDone` is in flight,
/// when the front asks again. Whether what is begun for that one is a read, which grants it.
fn front_reads(planted: Planted) -> bool {
    let (mut bench, refs) = Bench::planted(1, planted);
    released(&mut bench, refs[0]);
    let front = bench.reader();
    bench.succeed();
    let synch = bench.begins_one(|bench| {
        bench.reader();
    });
    let tag = Tag::synch(front, 0, Epoch::FIRST, Ballot::default(), 1);
    bench.begins_one(|bench| bench.read_ends(synch, synched(tag)));
    assert_eq!(bench.primary.take_proposals().len(), 1, "the flag is to go");
    let held = [(front, 0)];
    let next = bench.begins_one(|bench| {
        bench.step(|it, state, cx| {
            it.on_renew(NODE, SessionId(9), (&held, &[front]), state.queues(), cx)
        });
    });
    bench.read_ends(next, entry(None, tag));
    bench.granted().is_some()
}

#[test]
fn a_front_that_was_settled_begins_no_synch_beside_the_note_of_it() {
    assert!(front_reads(Planted::NONE));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_second_synch_of_the_front_loses_its_flag_too() {
    assert!(!front_reads(Planted::only(Bug::FrontSynchedAgain)));
}

/// G29: what a primary proposes for the leave of a ref that wrote nothing, or wrote this.
fn leaves(bench: &mut Bench, lock_ref: LockRef, written: Option<Tag>) -> usize {
    let leave = bench.command(LockCommand::Leave {
        lock_ref,
        generation: 0,
        of: SessionId(9),
        clean: vec![(key_of("k"), written)],
        put: None,
        waiting_only: false,
    });
    bench.step(|it, state, cx| it.on_submit(NODE, 1, leave, state, cx));
    match bench.primary.take_proposals().pop().map(|c| c.body) {
        Some(Body::Lock(LockCommand::Leave { clean, .. })) => clean.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ref_that_another_primary_may_have_in_a_synch_leaves_dirty_where_it_wrote_nothing() {
    let (mut bench, refs) = Bench::new(1);
    assert_eq!(leaves(&mut bench, refs[0], None), 0);
    let own = Tag::critical(refs[0], 0, 1, SessionId(9));
    assert_eq!(leaves(&mut bench, refs[0], Some(own)), 1);
    // This primary's own synch for it is complete, and above all that others have begun.
    let again = [refs[0]];
    let synch = bench.begins_one(|bench| {
        let held = [(again[0], 0)];
        bench.step(|it, state, cx| {
            it.on_renew(NODE, SessionId(9), (&held, &again), state.queues(), cx)
        });
    });
    bench.read_ends(
        synch,
        synched(Tag::synch(refs[0], 0, Epoch::FIRST, Ballot::default(), 1)),
    );
    assert!(bench.granted().is_some());
    assert_eq!(leaves(&mut bench, refs[0], None), 1);
}

#[test]
fn a_ref_that_no_other_primary_had_leaves_as_clean_as_it_says() {
    let (mut bench, refs) = Bench::new(0);
    assert!(refs.is_empty());
    let lock_ref = bench.reader();
    assert!(bench.granted().is_none(), "its key is being read");
    assert_eq!(leaves(&mut bench, lock_ref, None), 1);
}

/// G30: a reader comes behind one that an earlier primary has granted, and settling the key for
/// both fails: the operations that ticks begin, nothing else happening.
fn begun_after_a_failed_settling(planted: Planted) -> usize {
    let (mut bench, refs) = Bench::planted(0, planted);
    assert!(refs.is_empty());
    bench.reader();
    bench.succeed();
    let settling = bench.begins_one(|bench| {
        bench.reader();
    });
    let wakes = bench.primary.wake();
    assert_eq!(wakes, None, "nothing is due while it is under way");
    bench.read_ends(settling, register::OpEnd::StaleSequence);
    bench.now += LEASE;
    bench.begins(Bench::tick).len()
}

#[test]
fn a_reader_behind_its_front_is_not_forgotten_when_settling_fails() {
    assert_eq!(begun_after_a_failed_settling(Planted::NONE), 1);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_settling_that_is_not_repeated_leaves_a_reader_waiting() {
    let planted = Planted::only(Bug::SettlingNotRepeated);
    assert_eq!(begun_after_a_failed_settling(planted), 0);
}

/// The put beside which refs leave here.
fn put_of(lock_ref: LockRef) -> Tag {
    Tag::critical(lock_ref, 0, 3, SessionId(9))
}

fn leave_beside(lock_ref: LockRef) -> LockCommand {
    LockCommand::Leave {
        lock_ref,
        generation: 0,
        of: SessionId(9),
        clean: vec![],
        put: Some((key_of("k"), put_of(lock_ref))),
        waiting_only: false,
    }
}

impl Bench {
    /// A ref leaves beside its put, and somebody waits; what that step has begun.
    fn leaves_beside(&mut self, lock_ref: LockRef) -> Vec<OpId> {
        let next = self.command(enqueue("k"));
        let submitted = next.clone();
        self.step(|it, state, cx| it.on_submit(NodeName(9), 1, submitted, state, cx));
        self.primary.take_proposals();
        self.apply(&next);
        let leave = self.command(leave_beside(lock_ref));
        self.begins(|bench| {
            let outcome = bench.apply(&leave);
            assert_eq!(outcome, Outcome::Left { clean: false });
        })
    }

    /// The primary is told that a put is at its quorum; what it proposes.
    fn hears_of(&mut self, put: Tag) -> Vec<Command> {
        let key = key_of("k");
        self.step(|it, state, cx| it.on_put_done(&key, put, state.queues(), cx));
        self.primary.take_proposals()
    }

    fn flag(&self) -> Option<u64> {
        let queue = self.state.queues().queue(&key_of("k"));
        queue.and_then(|queue| queue.flag)
    }
}

/// F5: what is read without a fence is what grants.
#[test]
fn whoever_waits_for_a_put_that_is_done_reads_and_the_flag_goes_once() {
    let (mut bench, refs) = Bench::new(1);
    assert_eq!(bench.leaves_beside(refs[0]), vec![]);
    for other in [
        Tag::critical(refs[0], 0, 2, SessionId(9)),
        Tag::critical(refs[0], 1, 3, SessionId(9)),
        Tag::critical(refs[0], 0, 3, SessionId(8)),
    ] {
        assert_eq!(bench.hears_of(other), vec![]);
    }
    let read = bench.begins_one(|bench| assert_eq!(bench.hears_of(put_of(refs[0])), vec![]));
    assert_eq!(bench.hears_of(put_of(refs[0])), vec![]);
    bench.read_ends(read, entry(None, put_of(refs[0])));
    assert!(bench.granted().is_some());
    assert!(bench.flag().is_some());
    // The command that clears the flag goes before the next one.
    let next = bench.command(enqueue("other"));
    bench.step(|it, state, cx| it.on_submit(NodeName(9), 1, next.clone(), state, cx));
    let proposed = bench.primary.take_proposals();
    assert_eq!(proposed.len(), 2);
    assert_eq!(proposed[1].body, next.body);
    bench.apply(&proposed[0]);
    assert_eq!(bench.flag(), None);
}

#[test]
fn the_word_of_a_put_may_come_before_its_leave() {
    let (mut bench, refs) = Bench::new(1);
    assert_eq!(bench.hears_of(put_of(refs[0])), vec![]);
    let read = bench.leaves_beside(refs[0]);
    bench.read_ends(read[0], entry(None, put_of(refs[0])));
    assert!(bench.granted().is_some());
    // Nothing else comes: the beat takes the command along that clears the flag.
    assert_eq!(bench.primary.take_proposals(), vec![]);
    bench.tick();
    assert_eq!(bench.primary.take_proposals().len(), 1);
}

#[test]
fn without_word_of_a_put_the_next_holder_is_synched_and_a_word_is_too_late() {
    let (mut bench, refs) = Bench::new(1);
    assert_eq!(bench.leaves_beside(refs[0]), vec![]);
    bench.now += 2 * bench.config.timing.retry - 1;
    assert_eq!(bench.begins(Bench::tick), vec![]);
    bench.now += 1;
    let synch = bench.begins_one(Bench::tick);
    assert_eq!(bench.hears_of(put_of(refs[0])), vec![]);
    let tag = Tag::synch(LockRef(2), 0, Epoch::FIRST, Ballot::default(), 1);
    bench.read_ends(synch, synched(tag));
    assert!(bench.granted().is_some());
    let done = bench.primary.take_proposals();
    bench.apply(&done[0]);
    assert_eq!(bench.flag(), None);
}

/// H1 was granted by this very primary; two readers wait; H1 leaves beside its put. Once the first
/// reader is granted by the word, the second begins no synch in its name.
#[test]
fn readers_behind_a_holder_of_this_primary_begin_no_synch_under_a_word() {
    let (mut bench, _) = Bench::new(0);
    let enters = command(50, enqueue("k"));
    let read = bench.read_ahead(&enters);
    let Outcome::Enqueued { lock_ref } = bench.apply(&enters) else {
        panic!("enqueued")
    };
    bench.read_ends(read, entry(None, Tag::ZERO));
    assert!(bench.granted().is_some());
    bench.number = 100;
    let r1 = bench.reader();
    let r2 = bench.reader();
    let leave = bench.command(leave_beside(lock_ref));
    bench.apply(&leave);
    bench.primary.take_proposals();
    let mut done = Vec::new();
    let read = bench.begins_one(|bench| done = bench.hears_of(put_of(lock_ref)));
    let ops = bench.begins(|bench| bench.read_ends(read, entry(None, put_of(lock_ref))));
    assert!(bench.granted().is_some(), "{r1:?}");
    let more = bench.begins(|bench| {
        bench.tick();
    });
    let owners = bench.caller.under_way();
    let owners: Vec<_> = owners.map(|(_, owner)| format!("{owner:?}")).collect();
    assert!(
        owners.iter().all(|owner| !owner.contains("Front")),
        "{r2:?} {ops:?} {more:?} {done:?}: {owners:?}"
    );
}

/// G58: whether a section that has lasted its longest time is still there after eight more leases,
/// if this is said of it twice in each.
fn outlives(planted: Planted, word: impl Fn(&mut Bench, LockRef, u32)) -> bool {
    let (mut bench, refs) = Bench::planted(1, planted);
    assert_eq!(bench.renews_for(refs[0], 2 * LONGEST), LONGEST);
    (0..16).all(|said| {
        bench.now += LEASE / 2;
        word(&mut bench, refs[0], said);
        bench.tick();
        bench.primary.take_proposals().is_empty()
    })
}

fn resumes_it(bench: &mut Bench, lock_ref: LockRef, generation: u32) {
    let resume = bench.command(LockCommand::Resume {
        lock_ref,
        generation,
        of: SessionId(9),
        origin: ORIGIN,
    });
    assert!(matches!(bench.apply(&resume), Outcome::Resumed { .. }));
}

fn enters_it_once_more(bench: &mut Bench, _: LockRef, _: u32) {
    let late = command(1, enqueue("k"));
    bench.step(|it, state, cx| it.on_submit(NODE, 1, late, state, cx));
}

/// The next primary is asked before it knows how long the section has lasted.
fn renews_it_in_between(bench: &mut Bench, lock_ref: LockRef, _: u32) {
    let table = bench.closes().expect("somebody holds");
    bench.apply(&table);
    bench.succeed();
    bench.now += 1;
    assert_eq!(bench.renew(lock_ref), NO_LEASE);
    let taken = bench.primary.take_proposals().pop();
    bench.apply(&taken.expect("the table is taken"));
}

const WORDS: [fn(&mut Bench, LockRef, u32); 3] =
    [resumes_it, enters_it_once_more, renews_it_in_between];

#[test]
fn g58_nothing_that_is_said_of_a_section_keeps_it_beyond_its_longest_time() {
    assert_eq!(WORDS.map(|word| outlives(Planted::NONE, word)), [false; 3]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn g58_a_section_of_which_renewals_alone_ask_how_long_it_has_lasted_has_no_end() {
    let planted = Planted::only(Bug::OverByRenewalAlone);
    assert_eq!(WORDS.map(|word| outlives(planted, word)), [true; 3]);
}

/// A section is renewed through another node than it was enqueued at, under a primary that was not
/// there then: that node is told of its end.
#[test]
fn who_renews_a_section_is_told_of_its_end_whoever_has_enqueued_it() {
    let (mut bench, refs) = Bench::new(1);
    let (elsewhere, held) = (NodeName(7), [(refs[0], 0)]);
    bench.step(|it, state, cx| {
        it.on_renew(elsewhere, SessionId(9), (&held, &[]), state.queues(), cx)
    });
    let (lock_ref, key) = (refs[0], None);
    let release = bench.command(LockCommand::Release { lock_ref, key });
    assert_eq!(told_lost(&mut bench, &release, refs[0]), [elsewhere]);
}
