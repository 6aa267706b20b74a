//! What a primary whose log ends knows of those that hold, and what the next one makes of it (G2).

use super::*;
#[cfg(feature = "planted-bugs")]
use fermata_protocol::base::Bug;
use fermata_protocol::base::LogId;
use fermata_protocol::base::Scope;
use fermata_protocol::lock::LastWords;
use std::collections::BTreeSet;

/// What the last primary knows of a ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Granted,
    Untold,
    Nothing,
}

impl Bench {
    /// A command is submitted and applied.
    fn takes(&mut self, body: LockCommand) -> Outcome {
        let command = self.command(body);
        let submitted = command.clone();
        self.step(|it, state, cx| it.on_submit(NODE, 1, submitted, state, cx));
        self.primary.take_proposals();
        self.apply(&command)
    }

    fn enters(&mut self, key: &'static str, mode: Mode) -> LockRef {
        let mut body = enqueue(key);
        if let LockCommand::Enqueue { mode: of, .. } = &mut body {
            *of = mode;
        }
        match self.takes(body) {
            Outcome::Enqueued { lock_ref } => lock_ref,
            other => panic!("{other:?}"),
        }
    }

    /// Everything that is read finds nothing; whether somebody is granted by that.
    fn reads(&mut self) -> bool {
        let under_way = self.under_way().into_iter();
        under_way.fold(false, |granted, op| {
            self.read_ends(op, entry(None, Tag::ZERO));
            granted || self.granted().is_some()
        })
    }

    fn words(&self) -> LastWords {
        let frame = self.config.limits.frame;
        self.primary.last_words(self.state.queues(), frame)
    }

    fn word_of(&self, lock_ref: LockRef) -> Word {
        let words = self.words();
        match (
            words.granted.contains(&lock_ref),
            words.untold.contains(&lock_ref),
        ) {
            (true, false) => Word::Granted,
            (false, true) => Word::Untold,
            (false, false) => Word::Nothing,
            (true, true) => panic!("{words:?}"),
        }
    }

    /// The next log begins; what the last primary of this one has said is heard, or not.
    fn next_log(&mut self, words: Option<LastWords>) {
        self.caller = Caller::new(NODE, 2);
        let (epoch, now) = (Epoch(2), at(self.now));
        self.primary = Primary::new(
            SEGMENT,
            (epoch, Ballot::default()),
            &self.state,
            (now, words),
            &self.config,
        );
        self.step(|it, state, cx| it.begin(state.queues(), cx));
    }

    /// Asks for a grant that has not come.
    fn asks_again(&mut self, lock_ref: LockRef) {
        let (refs, again) = ([(lock_ref, 0)], [lock_ref]);
        let of = SessionId(9);
        self.step(|it, state, cx| it.on_renew(NODE, of, (&refs, &again), state.queues(), cx));
    }

    /// Leaves, having written nothing; whether the key is flagged by that.
    fn leaves_a_flag(&mut self, lock_ref: LockRef, key: &'static str) -> bool {
        let leave = self.command(LockCommand::Leave {
            lock_ref,
            generation: 0,
            of: SessionId(9),
            clean: vec![(key_of(key), None)],
            put: None,
            waiting_only: false,
        });
        self.step(|it, state, cx| it.on_submit(NODE, 1, leave, state, cx));
        let proposed = self.primary.take_proposals().pop().expect("the leave");
        self.apply(&proposed);
        let queue = self.state.queues().queue(&key_of(key));
        queue.is_some_and(|queue| queue.flag.is_some())
    }
}

/// A bench in which a ref holds, and what its primary knows of it.
fn held(word: Word) -> (Bench, LockRef) {
    let (mut bench, inherited) = Bench::new(usize::from(word == Word::Nothing));
    let lock_ref = match word {
        Word::Nothing => inherited[0],
        Word::Untold | Word::Granted => bench.enters("k", Mode::Exclusive),
    };
    if word == Word::Granted {
        assert!(bench.reads());
    }
    assert_eq!(bench.word_of(lock_ref), word);
    (bench, lock_ref)
}

/// The last holder was ended by force, so that the next one is synched for: what is said of that.
fn word_of_one_synched_for(planted: Planted) -> Word {
    let (mut bench, _) = Bench::planted(0, planted);
    let lock_ref = bench.enters("k", Mode::Exclusive);
    assert!(bench.reads());
    bench.takes(LockCommand::Release {
        lock_ref,
        key: None,
    });
    let next = bench.enters("k", Mode::Exclusive);
    bench.word_of(next)
}

#[test]
fn nothing_is_said_of_who_may_have_a_synch_in_flight() {
    assert_eq!(word_of_one_synched_for(Planted::NONE), Word::Nothing);
    // The front of a batch of readers is synched for whenever one comes behind it.
    let (mut bench, _) = Bench::new(0);
    let reader = bench.enters("k", Mode::Shared);
    assert_eq!(bench.word_of(reader), Word::Untold);
    assert!(bench.reads());
    assert_eq!(bench.word_of(reader), Word::Nothing);
}

#[test]
fn who_was_not_granted_is_granted_by_the_next_primary_like_any_other() {
    for (word, by_a_read) in [(Word::Untold, true), (Word::Nothing, false)] {
        let (mut bench, lock_ref) = held(word);
        let words = bench.words();
        bench.next_log(Some(words));
        let begun = bench.under_way().len();
        assert_eq!(begun > 0, by_a_read, "{word:?}: before anybody asks");
        bench.asks_again(lock_ref);
        assert_eq!(bench.reads(), by_a_read, "{word:?}");
    }
}

#[test]
fn who_was_granted_is_granted_again_by_a_read_and_leaves_cleanly() {
    for (word, heard) in [
        (Word::Granted, true),
        (Word::Granted, false),
        (Word::Nothing, true),
    ] {
        let (mut bench, lock_ref) = held(word);
        let words = bench.words();
        bench.next_log(Some(words).filter(|_| heard));
        let known = heard && word == Word::Granted;
        assert!(bench.under_way().is_empty(), "nobody has asked");
        let flagged = bench.leaves_a_flag(lock_ref, "k");
        assert_eq!(flagged, !known, "{word:?}, heard: {heard}");
        let (mut bench, lock_ref) = held(word);
        let words = bench.words();
        bench.next_log(Some(words).filter(|_| heard));
        bench.asks_again(lock_ref);
        assert_eq!(bench.reads(), known, "{word:?}, heard: {heard}");
    }
}

#[test]
fn who_is_not_named_is_inherited_whoever_else_is() {
    let (mut bench, inherited) = Bench::new(1);
    let other = bench.enters("other", Mode::Exclusive);
    assert_eq!(bench.word_of(other), Word::Untold);
    let words = bench.words();
    bench.next_log(Some(words));
    assert_eq!(bench.under_way().len(), 1, "of the other key");
    assert!(bench.reads(), "it is pushed to whoever has enqueued it");
    bench.asks_again(inherited[0]);
    assert!(!bench.reads(), "it is synched");
    assert!(bench.leaves_a_flag(inherited[0], "k"));
}

#[test]
fn words_are_believed_by_the_first_primary_of_the_log_that_they_are_about() {
    let log = |epoch| LogId {
        group: GroupId(1),
        scope: Scope::Segment(SEGMENT),
        epoch: Epoch(epoch),
    };
    let words = LastWords {
        untold: BTreeSet::from([LockRef(1)]),
        ..LastWords::default()
    };
    let believed = |epoch, round, planted| {
        let ballot = Ballot {
            round,
            seat: Seat(0),
        };
        let said = Some((log(2), words.clone()));
        LastWords::believed(said, (log(epoch), ballot), planted).is_some()
    };
    assert!(believed(2, 0, Planted::NONE));
    assert!(!believed(2, 1, Planted::NONE), "another has led before");
    assert!(!believed(3, 0, Planted::NONE), "a later log");
    #[cfg(feature = "planted-bugs")]
    assert!(believed(2, 1, Planted::only(Bug::WordsOfAnother)));
}

/// A primary that ends its log has stated its leases when a ref that was enqueued before comes to
/// hold. Whether that is granted, and how the next primary answers who wants it released.
fn granted_beside_the_end(planted: Planted) -> (bool, Result<Command, Rejection>) {
    let (mut bench, _) = Bench::planted(0, planted);
    let named = bench.enters("k", Mode::Exclusive);
    assert!(bench.reads());
    let late = bench.command(enqueue("other"));
    let submitted = late.clone();
    bench.step(|it, state, cx| it.on_submit(NODE, 1, submitted, state, cx));
    let (queues, now) = (bench.state.queues(), at(bench.now));
    let table = bench.primary.end(queues, now, &bench.config.timing);
    let Outcome::Enqueued { lock_ref } = bench.apply(&late) else {
        panic!("enqueued");
    };
    let granted = bench.reads();
    bench.asks_again(named);
    assert!(!bench.reads(), "it has the lease that the table says");
    bench.apply(&table.expect("somebody holds"));
    let words = bench.words();
    bench.next_log(Some(words));
    for taken in bench.primary.take_proposals() {
        bench.apply(&taken);
    }
    bench.asks_again(named);
    assert!(bench.reads());
    (granted, bench.release(lock_ref))
}

#[test]
fn who_is_enqueued_before_the_end_is_granted_and_has_its_lease_after_it() {
    let (granted, released) = granted_beside_the_end(Planted::NONE);
    assert!(granted);
    assert!(
        matches!(released, Err(Rejection::Leased(_))),
        "{released:?}"
    );
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;

    #[test]
    fn a_synch_that_is_left_out_is_caught() {
        let planted = Planted::only(Bug::WordsOmitSynchs);
        assert_eq!(word_of_one_synched_for(planted), Word::Untold);
    }

    #[test]
    fn a_lease_that_no_table_names_is_caught() {
        let (_, released) = granted_beside_the_end(Planted::only(Bug::UnnamedHasNoLease));
        assert!(released.is_ok(), "{released:?}");
    }
}
