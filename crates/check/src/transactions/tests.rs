//! Anomalies by name; both checkers on serial histories and on wrong ones.

use super::random::{Shape, serial};
use super::*;
use fermata_protocol::base::Rng;

/// A transaction that ended well, between two times.
fn t(begin: u64, returned: u64, actions: &[Action<&'static str>]) -> Transaction<&'static str> {
    Transaction {
        client: 1,
        begin,
        outcome: Ending::Ok { returned },
        timestamp: None,
        snapshot: false,
        actions: actions.to_vec(),
    }
}

fn append(key: &'static str, value: u64) -> Action<&'static str> {
    Action::Append { key, value }
}

fn list(key: &'static str, values: &[u64]) -> Action<&'static str> {
    let values = values.to_vec();
    Action::List { key, values }
}

fn failed(mut t: Transaction<&'static str>) -> Transaction<&'static str> {
    t.outcome = Ending::Failed;
    t
}

fn unknown(mut t: Transaction<&'static str>) -> Transaction<&'static str> {
    t.outcome = Ending::Unknown;
    t
}

fn snapshot(mut t: Transaction<&'static str>) -> Transaction<&'static str> {
    t.snapshot = true;
    t
}

/// With timestamps, in the order given.
fn stamped(mut all: Vec<Transaction<&'static str>>) -> Vec<Transaction<&'static str>> {
    for (place, transaction) in all.iter_mut().enumerate() {
        transaction.timestamp = Some((100 + place as u64, 0));
    }
    all
}

fn history<K: Ord + Clone>(all: Vec<Transaction<K>>) -> History<K> {
    History::new(all).expect("it is well recorded")
}

/// What the two checkers say, the first one by timestamps in the order given.
fn kinds(all: Vec<Transaction<&'static str>>) -> [Option<(Kind, Vec<usize>)>; 2] {
    let history = history(stamped(all));
    let kind = |verdict| match verdict {
        Verdict::Serializable => None,
        Verdict::Violation(v) => {
            assert!(v.minimal && !v.tell(&|key: &&str| (*key).to_owned()).is_empty());
            Some((v.kind, v.transactions))
        }
        Verdict::Undecided(why) => panic!("{why}"),
    };
    [by_timestamp(&history), by_versions(&history)].map(kind)
}

#[test]
fn what_is_right_is_accepted() {
    let both_right = [None, None];
    assert_eq!(kinds(vec![]), both_right);
    let one_after_the_other = vec![
        t(0, 9, &[list("x", &[]), append("x", 1), list("x", &[1])]),
        t(10, 19, &[list("x", &[1]), append("x", 2), append("y", 3)]),
        failed(t(10, 19, &[list("x", &[7]), append("x", 9)])),
        unknown(t(12, 13, &[append("x", 4), append("y", 5)])),
        t(20, 29, &[list("x", &[1, 2, 4]), list("y", &[3, 5])]),
        unknown(t(30, 31, &[append("x", 6)])),
        t(40, 41, &[list("x", &[1, 2, 4])]),
    ];
    assert_eq!(kinds(one_after_the_other), both_right);
}

#[test]
fn lost_update() {
    let [first, second] = kinds(vec![
        t(0, 9, &[list("x", &[]), append("x", 1)]),
        t(0, 9, &[list("x", &[]), append("x", 2)]),
        t(20, 29, &[list("x", &[1, 2])]),
    ]);
    assert_eq!(first, Some((Kind::WrongVersion, vec![1, 0])));
    assert_eq!(second, Some((Kind::SingleAntiDependency, vec![0, 1])));
    // Nobody has read either.
    let [_, second] = kinds(vec![
        t(0, 9, &[list("x", &[]), append("x", 1)]),
        t(0, 9, &[list("x", &[]), append("x", 2)]),
    ]);
    assert_eq!(second, Some((Kind::SingleAntiDependency, vec![0, 1])));
    // An acknowledged one is gone.
    let [_, second] = kinds(vec![
        t(0, 9, &[append("x", 1)]),
        t(10, 19, &[append("x", 2)]),
        t(20, 29, &[list("x", &[2])]),
    ]);
    assert_eq!(second, Some((Kind::RealTime, vec![0, 2])));
}

#[test]
fn write_skew() {
    let [first, second] = kinds(vec![
        t(0, 9, &[list("x", &[]), append("y", 1)]),
        t(0, 9, &[list("y", &[]), append("x", 2)]),
    ]);
    assert_eq!(first, Some((Kind::WrongVersion, vec![1, 0])));
    assert_eq!(second, Some((Kind::AntiDependency, vec![0, 1])));
}

#[test]
fn long_fork() {
    let [first, second] = kinds(vec![
        t(0, 9, &[append("x", 1)]),
        t(0, 9, &[append("y", 2)]),
        snapshot(t(10, 19, &[list("x", &[1]), list("y", &[])])),
        snapshot(t(10, 19, &[list("x", &[]), list("y", &[2])])),
    ]);
    assert_eq!(first.map(|f| f.0), Some(Kind::WrongVersion));
    assert_eq!(second, Some((Kind::AntiDependency, vec![0, 2, 1, 3])));
}

#[test]
fn stale_read_in_real_time() {
    let stale = |reader: Transaction<&'static str>| vec![t(0, 9, &[append("x", 1)]), reader];
    let [first, second] = kinds(stale(t(10, 19, &[list("x", &[])])));
    assert_eq!(first, Some((Kind::WrongVersion, vec![1, 0])));
    assert_eq!(second, Some((Kind::RealTime, vec![0, 1])));
    // At the same time it is none, nor for who may read the past.
    assert_eq!(kinds(stale(t(9, 19, &[list("x", &[])])))[1], None);
    assert_eq!(
        kinds(stale(snapshot(t(10, 19, &[list("x", &[])]))))[1],
        None
    );
}

#[test]
fn single_reads_that_are_impossible() {
    let both = |kind, places: &[usize]| {
        let found = Some((kind, places.to_vec()));
        [found.clone(), found]
    };
    let read_of_a_failed_write = vec![
        failed(t(0, 9, &[append("x", 1)])),
        t(10, 19, &[list("x", &[1])]),
    ];
    assert_eq!(
        kinds(read_of_a_failed_write),
        both(Kind::FailedRead, &[1, 0])
    );
    let dirty_read = vec![
        t(0, 9, &[append("x", 1), append("x", 2)]),
        t(0, 9, &[list("x", &[1])]),
    ];
    assert_eq!(kinds(dirty_read), both(Kind::IntermediateRead, &[1, 0]));
    let duplicate = vec![t(0, 9, &[append("x", 1)]), t(10, 19, &[list("x", &[1, 1])])];
    assert_eq!(kinds(duplicate), both(Kind::Duplicate, &[1, 0]));
    let unwritten = vec![t(10, 19, &[list("x", &[1])])];
    assert_eq!(kinds(unwritten), both(Kind::Unwritten, &[0]));
    let own_forgotten = vec![t(10, 19, &[append("x", 1), list("x", &[])])];
    assert_eq!(kinds(own_forgotten), both(Kind::Internal, &[0]));
    let own_foreseen = vec![t(10, 19, &[list("x", &[1]), append("x", 1)])];
    assert_eq!(kinds(own_foreseen), both(Kind::Internal, &[0]));
}

#[test]
fn reads_that_contradict_each_other() {
    let [first, second] = kinds(vec![
        t(0, 9, &[append("x", 1)]),
        t(0, 9, &[append("x", 2)]),
        t(10, 19, &[list("x", &[1, 2])]),
        t(20, 29, &[list("x", &[2, 1])]),
    ]);
    assert_eq!(first.map(|f| f.0), Some(Kind::WrongVersion));
    assert_eq!(second, Some((Kind::PrefixMismatch, vec![2, 3])));
}

#[test]
fn cycles_of_writes_and_of_reads() {
    let [_, second] = kinds(vec![
        t(0, 9, &[append("x", 1), append("y", 2)]),
        t(0, 9, &[append("x", 3), append("y", 4)]),
        t(10, 19, &[list("x", &[1, 3]), list("y", &[4, 2])]),
    ]);
    assert_eq!(second, Some((Kind::WriteCycle, vec![0, 1])));
    let [_, second] = kinds(vec![
        t(0, 9, &[append("x", 1), list("y", &[2])]),
        t(0, 9, &[append("y", 2), list("x", &[1])]),
    ]);
    assert_eq!(second, Some((Kind::InformationCycle, vec![0, 1])));
}

#[test]
fn evidence_is_readable() {
    let history = history(vec![
        t(0, 9, &[append("x", 1)]),
        t(10, 19, &[list("x", &[])]),
    ]);
    let Verdict::Violation(violation) = by_versions(&history) else {
        panic!("a stale read");
    };
    assert_eq!(
        violation.tell(&|key| (*key).to_owned()),
        "T0 is before T1: it had returned at 9, and T1 began at 10\n\
         T1 is before T0: on x T1 read a state without 1, which T0 wrote (rw)"
    );
}

#[test]
fn timestamps_have_rules_of_their_own() {
    let with = |stamps: [u64; 2], begins: [u64; 2], actions: [&[Action<&'static str>]; 2]| {
        let mut all = vec![];
        for i in [0, 1] {
            let mut transaction = t(begins[i], begins[i] + 9, actions[i]);
            transaction.timestamp = Some((stamps[i], 0));
            all.push(transaction);
        }
        match by_timestamp(&history(all)) {
            Verdict::Violation(violation) => Some(violation.kind),
            _ => None,
        }
    };
    let writes: [&[_]; 2] = [&[append("x", 1)], &[append("x", 2)]];
    assert_eq!(with([1, 2], [0, 10], writes), None);
    assert_eq!(with([2, 1], [0, 9], writes), None);
    assert_eq!(with([2, 1], [0, 10], writes), Some(Kind::TimestampOrder));
    assert_eq!(with([2, 2], [0, 0], writes), Some(Kind::SameTimestamp));
    // Who only reads sees what is at its timestamp; who writes must not meet it there.
    let seen: [&[_]; 2] = [&[append("x", 1)], &[list("x", &[1])]];
    assert_eq!(with([2, 2], [0, 10], seen), None);
    let used: [&[_]; 2] = [&[append("x", 1)], &[list("x", &[1]), append("y", 2)]];
    assert_eq!(with([2, 2], [0, 0], used), Some(Kind::SameTimestamp));
}

#[test]
fn registers_are_decided_by_timestamps_alone() {
    let write = |value| Action::Write { key: "r", value };
    let read = |value| Action::Read { key: "r", value };
    let mut all = stamped(vec![
        t(0, 9, &[read(None), write(1), read(Some(1))]),
        t(10, 19, &[write(2), write(3)]),
        t(20, 29, &[read(Some(3))]),
    ]);
    let registers = history(all.clone());
    assert_eq!(check(&registers), Verdict::Serializable);
    assert!(matches!(by_versions(&registers), Verdict::Undecided(_)));
    all[2].actions = vec![read(Some(2))];
    assert!(by_timestamp(&history(all.clone())).is_violation());
    all[2].actions = vec![read(Some(1))];
    assert!(check(&history(all.clone())).is_violation());
    all[2].timestamp = None;
    assert!(matches!(check(&history(all)), Verdict::Undecided(_)));
}

#[test]
fn what_cannot_be_decided_is_refused() {
    let refused = |all| History::new(all).expect_err("it is badly recorded").reason;
    assert!(refused(vec![t(9, 0, &[])]).contains("returns before"));
    let twice = vec![t(0, 1, &[append("x", 1)]), t(0, 1, &[append("x", 1)])];
    assert!(refused(twice).contains("written before"));
    let register = Action::Read {
        key: "x",
        value: None,
    };
    assert!(refused(vec![t(0, 1, &[append("x", 1), register])]).contains("as a register"));
    assert!(refused(vec![snapshot(t(0, 1, &[append("x", 1)]))]).contains("snapshot"));
}

fn shape(random: &mut Rng, transactions: u64) -> Shape {
    Shape {
        transactions,
        keys: 1 + random.below(4),
        appends: 1 + random.below(20),
        actions: 1 + random.below(4),
        overlap: random.below(60),
        unknown: random.below(2) * random.below(30),
        failed: random.below(2) * random.below(30),
        snapshots: random.below(2) * random.below(40),
        registers: false,
    }
}

#[test]
fn what_a_serial_store_did_is_accepted() {
    for seed in 0..300 {
        let mut random = Rng::new(seed);
        let mut shape = shape(&mut random, 200);
        let lists = history(serial(&mut random, shape));
        assert_eq!(by_timestamp(&lists), Verdict::Serializable, "seed {seed}");
        assert_eq!(by_versions(&lists), Verdict::Serializable, "seed {seed}");
        shape.registers = true;
        let registers = history(serial(&mut random, shape));
        assert_eq!(
            by_timestamp(&registers),
            Verdict::Serializable,
            "seed {seed}"
        );
    }
}

/// The lists that transactions that ended well read: transaction, action, length.
fn reads(all: &[Transaction<u64>]) -> Vec<(usize, usize, usize)> {
    let mut reads = Vec::new();
    for (place, transaction) in all.iter().enumerate() {
        for (at, action) in transaction.actions.iter().enumerate() {
            if let Action::List { values, .. } = action
                && matches!(transaction.outcome, Ending::Ok { .. })
            {
                reads.push((place, at, values.len()));
            }
        }
    }
    reads
}

/// Changes one read so that no order explains it.
fn break_one(random: &mut Rng, all: &mut [Transaction<u64>], how: u64) -> Option<()> {
    let writers: BTreeMap<u64, usize> = (all.iter().enumerate())
        .flat_map(|(place, t)| {
            t.actions
                .iter()
                .filter_map(move |a| Some((a.written()?, place)))
        })
        .collect();
    let mut reads = reads(all);
    reads.retain(|(_, _, length)| *length > 0);
    let (place, at, length) = *reads.get(random.below(reads.len().max(1) as u64) as usize)?;
    let (begin, strict) = (all[place].begin, !all[place].snapshot);
    let early: Vec<bool> = match &all[place].actions[at] {
        Action::List { values, .. } => values.iter().map(|value| {
            let writer = &all[writers[value]];
            matches!(writer.outcome, Ending::Ok { returned } if returned < begin)
        }),
        _ => return None,
    }
    .collect();
    let lost = |value: &u64| matches!(all[writers[value]].outcome, Ending::Failed);
    let key = *all[place].actions[at].key();
    let of_failed = (all.iter().flat_map(|t| &t.actions))
        .find_map(|a| a.written().filter(|v| *a.key() == key && lost(v)));
    let Action::List { values, .. } = &mut all[place].actions[at] else {
        return None;
    };
    match how {
        0 => values.push(u64::MAX),
        1 => values.push(values[0]),
        2 => values.push(of_failed?),
        _ => {
            // Stale by more than real time allows.
            (strict && early[length - 1]).then_some(())?;
            values.pop();
        }
    }
    Some(())
}

#[test]
fn what_is_broken_is_found_by_both() {
    let mut broken = [0; 4];
    for seed in 0..400 {
        let mut random = Rng::new(seed);
        let mut shape = shape(&mut random, 100);
        shape.failed = 10;
        let mut all = serial(&mut random, shape);
        let how = seed % 4;
        if break_one(&mut random, &mut all, how).is_none() {
            continue;
        }
        broken[how as usize] += 1;
        let history = history(all);
        assert!(by_timestamp(&history).is_violation(), "seed {seed}, {how}");
        assert!(by_versions(&history).is_violation(), "seed {seed}, {how}");
    }
    assert!(broken.iter().all(|count| *count > 10), "{broken:?}");
}

/// Changes something, be it right or wrong afterwards.
fn shake(random: &mut Rng, all: &mut [Transaction<u64>]) {
    let reads = reads(all);
    let Some((place, at, _)) = reads.get(random.below(reads.len().max(1) as u64) as usize) else {
        return;
    };
    let transaction = &mut all[*place];
    if random.chance(25) {
        transaction.begin += random.below(30);
        if let Ending::Ok { returned } = &mut transaction.outcome {
            *returned = (*returned).max(transaction.begin);
        }
        return;
    }
    let Action::List { values, .. } = &mut transaction.actions[*at] else {
        return;
    };
    if random.chance(70) || values.len() < 2 {
        values.pop();
    } else {
        let first = random.below(values.len() as u64 - 1) as usize;
        values.swap(first, first + 1);
    }
}

/// Whether some order of some of the transactions explains all reads.
fn some_order(all: &[Transaction<u64>], placed: &mut Vec<usize>) -> bool {
    let ended = |t: &Transaction<u64>| matches!(t.outcome, Ending::Ok { .. });
    let rest: Vec<usize> = (0..all.len())
        .filter(|i| !placed.contains(i) && all[*i].outcome != Ending::Failed)
        .collect();
    if rest.iter().all(|i| !ended(&all[*i])) {
        return true;
    }
    rest.iter().any(|next| {
        let before = |other: &usize| match all[*other].outcome {
            Ending::Ok { returned } => {
                returned < all[*next].begin && !all[*other].snapshot && !all[*next].snapshot
            }
            _ => false,
        };
        if rest.iter().any(before) || !explained(all, placed, *next) {
            return false;
        }
        placed.push(*next);
        let found = some_order(all, placed);
        placed.pop();
        found
    })
}

/// Whether a transaction's reads are what those placed before have written.
fn explained(all: &[Transaction<u64>], placed: &[usize], next: usize) -> bool {
    let mut lists: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for place in placed.iter().chain([&next]) {
        for action in &all[*place].actions {
            match action {
                Action::Append { key, value } => lists.entry(*key).or_default().push(*value),
                Action::List { key, values }
                    if *place == next
                        && lists.get(key).map_or(&[][..], Vec::as_slice) != values =>
                {
                    return false;
                }
                _ => {}
            }
        }
    }
    true
}

#[test]
fn small_histories_are_decided_as_by_trying_all_orders() {
    let mut wrong = 0;
    for seed in 0..6_000 {
        let mut random = Rng::new(seed);
        let shape = shape(&mut random, 6);
        let mut all = serial(&mut random, shape);
        for _ in 0..random.below(3) {
            shake(&mut random, &mut all);
        }
        let serializable = some_order(&all, &mut Vec::new());
        wrong += u32::from(!serializable);
        let small = history(all);
        let found = by_versions(&small);
        assert_eq!(
            found.is_violation(),
            !serializable,
            "seed {seed}: {found:?} {small:#?}"
        );
        // No timestamps explain what no order does.
        let by_timestamp = by_timestamp(&small);
        assert!(by_timestamp.is_violation() || serializable, "seed {seed}");
    }
    assert!((500..5_500).contains(&wrong), "{wrong} were wrong");
}
