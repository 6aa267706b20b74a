//! Named small histories, and random ones against a checker too simple to be wrong.

use super::*;
use crate::random::Shape;
use fermata_protocol::base::Rng;

type Op = Operation<u64>;

fn op(client: u64, call: u64, outcome: Ending, action: Action<u64>) -> Op {
    Operation {
        client,
        call,
        action,
        outcome,
    }
}

fn write(value: u64, call: u64, returned: u64) -> Op {
    op(1, call, Ending::Ok { returned }, Action::Write(Some(value)))
}

fn read(value: u64, call: u64, returned: u64) -> Op {
    op(2, call, Ending::Ok { returned }, Action::Read(Some(value)))
}

fn delete(call: u64, returned: u64) -> Op {
    op(1, call, Ending::Ok { returned }, Action::Write(None))
}

fn read_nothing(call: u64, returned: u64) -> Op {
    op(2, call, Ending::Ok { returned }, Action::Read(None))
}

fn maybe_write(value: u64, call: u64) -> Op {
    op(3, call, Ending::Unknown, Action::Write(Some(value)))
}

fn failed_write(value: u64, call: u64) -> Op {
    op(3, call, Ending::Failed, Action::Write(Some(value)))
}

fn maybe_read(value: u64, call: u64) -> Op {
    op(3, call, Ending::Unknown, Action::Read(Some(value)))
}

#[track_caller]
fn holds(history: &[Op]) {
    assert!(explained(history), "the simple checker disagrees");
    assert_eq!(check(history), Verdict::Linearizable);
    assert!(searched(history), "the search disagrees");
}

#[track_caller]
fn fails(history: &[Op], part: &[usize]) {
    assert!(!explained(history), "the simple checker disagrees");
    let operations = part.to_vec();
    let minimal = true;
    assert_eq!(
        check(history),
        Verdict::Violation(Core {
            operations,
            minimal
        })
    );
    assert!(!searched(history), "the search disagrees");
}

fn check(history: &[Op]) -> Verdict {
    check_register(history, Bound::default())
}

/// By the search alone.
fn searched(history: &[Op]) -> bool {
    let found = search::search(&steps::of_operations(history), &mut 1_000_000);
    assert_ne!(found, search::Found::Undecided);
    found == search::Found::Order
}

/// By trying all orders.
fn explained(history: &[Op]) -> bool {
    let says_something = |op: &&Op| match op.outcome {
        Ending::Ok { .. } => true,
        Ending::Failed => false,
        Ending::Unknown => matches!(op.action, Action::Write(_)),
    };
    extends(
        &history.iter().filter(says_something).collect::<Vec<_>>(),
        None,
    )
}

/// Whether some order of the operations explains them on a register that holds `value`.
fn extends(open: &[&Op], value: Option<u64>) -> bool {
    let end = |op: &Op| match op.outcome {
        Ending::Ok { returned } => returned,
        _ => u64::MAX,
    };
    open.iter().all(|op| end(op) == u64::MAX)
        || open.iter().enumerate().any(|(index, op)| {
            let rest: Vec<&Op> = [&open[..index], &open[index + 1..]].concat();
            let may_be_next = rest.iter().all(|other| op.call <= end(other));
            may_be_next
                && match op.action {
                    Action::Write(value) => extends(&rest, value),
                    Action::Read(seen) => seen == value && extends(&rest, value),
                }
        })
}

#[test]
fn nothing_and_single_operations() {
    holds(&[]);
    holds(&[read_nothing(0, 1)]);
    holds(&[write(1, 0, 1)]);
    fails(&[read(1, 0, 1)], &[0]);
    holds(&[maybe_read(1, 0)]);
}

#[test]
fn a_stale_read() {
    fails(&[write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)], &[0, 1, 2]);
    holds(&[write(1, 0, 1), write(2, 2, 5), read(1, 4, 5)]);
}

#[test]
fn a_lost_update() {
    // Both were told that their write is there, and the first is gone without having been seen
    // to go: 2 came after 1 for one reader, before it for the other.
    let history = [
        write(1, 0, 10),
        write(2, 0, 10),
        read(1, 11, 12),
        read(2, 13, 14),
    ];
    fails(&history, &[0, 1, 2, 3]);
    fails(&[write(1, 0, 1), read_nothing(2, 3)], &[0, 1]);
}

#[test]
fn an_unknown_write_is_seen_later() {
    let history = [
        maybe_write(1, 0),
        read_nothing(5, 6),
        write(2, 7, 8),
        read(2, 9, 10),
        read(1, 20, 21),
    ];
    holds(&history);
    fails(
        &[maybe_write(1, 0), read(1, 2, 3), read_nothing(4, 5)],
        &[0, 1, 2],
    );
}

#[test]
fn an_unknown_write_is_never_seen() {
    holds(&[maybe_write(1, 0), read_nothing(5, 6), read_nothing(7, 8)]);
}

#[test]
fn an_unknown_write_takes_effect_once() {
    let again = [
        maybe_write(1, 0),
        read(1, 1, 2),
        write(2, 3, 4),
        read(1, 5, 6),
    ];
    fails(&again, &[0, 1, 2, 3]);
    let twice = [&again[..], &[maybe_write(1, 0)]].concat();
    holds(&twice);
}

#[test]
fn a_failed_write_is_never_seen() {
    holds(&[failed_write(1, 0), read_nothing(1, 2)]);
    fails(&[failed_write(1, 0), read(1, 1, 2)], &[1]);
}

#[test]
fn a_read_before_its_write() {
    fails(&[read(1, 0, 1), write(1, 2, 3)], &[0, 1]);
    fails(&[read(1, 0, 1), maybe_write(1, 2)], &[0, 1]);
    holds(&[read(1, 0, 2), write(1, 2, 3)]);
}

#[test]
fn two_reads_in_the_wrong_order() {
    let history = [
        write(1, 0, 1),
        write(2, 2, 20),
        read(2, 3, 4),
        read(1, 5, 6),
    ];
    fails(&history, &[0, 1, 2, 3]);
}

#[test]
fn all_concurrent() {
    let history: Vec<Op> = (1..=4)
        .flat_map(|value| [write(value, 0, 9), read(value, 0, 9)])
        .collect();
    assert_eq!(check(&history), Verdict::Linearizable);
    assert!(searched(&history));
}

#[test]
fn a_delete_empties_the_register() {
    holds(&[write(1, 0, 1), delete(2, 3), read_nothing(4, 5)]);
    fails(&[write(1, 0, 1), delete(2, 3), read(1, 4, 5)], &[0, 1, 2]);
}

#[test]
fn a_value_written_twice_is_no_stale_read() {
    let history = [
        write(1, 0, 1),
        write(2, 2, 3),
        write(1, 4, 5),
        read(1, 6, 7),
    ];
    holds(&history);
    // And the offending part keeps the second write when it is not enough.
    let mut late = history.to_vec();
    late.push(read(2, 8, 9));
    fails(&late, &[1, 2, 4]);
}

#[test]
fn the_bound_gives_no_verdict() {
    let mut history = Vec::new();
    for number in 0..40 {
        history.push(write(number % 10, 0, 100));
        history.push(read(number % 10, 0, 100));
    }
    history.push(read(99, 101, 102));
    history.push(write(99, 0, 100));
    history.push(write(99, 0, 100));
    history.push(read(1, 103, 104));
    let bound = Bound {
        states: 10,
        ..Bound::default()
    };
    assert_eq!(check_register(&history, bound), Verdict::Undecided);
}

/// A random history of few operations, changed or not.
fn small_history(seed: u64, most: u64) -> (Vec<Op>, bool) {
    let mut random = Rng::new(seed);
    let operations = most - random.below(most / 2);
    let shape = Shape::small(&mut random, operations);
    let mut history = random::linearizable(&mut random, shape);
    let changes = random.below(2) * random.below(8);
    for _ in 0..changes {
        random::change(&mut random, &mut history);
    }
    (history, changes > 0)
}

#[test]
fn random_histories_agree_with_all_orders() {
    let mut wrong = 0;
    for seed in 0..20_000 {
        let (history, changed) = small_history(seed, 7);
        let expected = explained(&history);
        assert!(expected || changed, "seed {seed}: a register's own history");
        assert_eq!(searched(&history), expected, "seed {seed}: {history:#?}");
        match check(&history) {
            Verdict::Linearizable => assert!(expected, "seed {seed}: {history:#?}"),
            Verdict::Violation(part) => {
                assert!(!expected, "seed {seed}: {history:#?}");
                assert_part(&history, &part, seed);
                wrong += 1;
            }
            Verdict::Undecided => panic!("seed {seed}: undecided"),
        }
    }
    assert!(wrong > 3_000, "only {wrong} wrong histories");
}

/// What [`Core`] promises.
fn assert_part(history: &[Op], part: &Core, seed: u64) {
    let chosen: Vec<Op> = part
        .operations
        .iter()
        .map(|i| history[*i].clone())
        .collect();
    assert!(!explained(&chosen), "seed {seed}: {part:?} of {history:#?}");
    assert!(part.minimal, "seed {seed}");
    for op in &chosen {
        let Action::Read(value) = &op.action else {
            continue;
        };
        let writes = |op: &&Op| op.action == Action::Write(*value) && op.outcome != Ending::Failed;
        let known = history.iter().any(|op| writes(&op));
        assert!(
            !known || chosen.iter().any(|op| writes(&op)) || value.is_none(),
            "seed {seed}: a read lost its write: {part:?} of {history:#?}"
        );
    }
}

#[test]
fn the_algorithms_agree_on_random_histories() {
    let mut wrong = 0;
    for seed in 0..6_000 {
        let (history, _) = small_history(1_000_000 + seed, 60);
        let expected = searched(&history);
        let verdict = check(&history);
        assert_eq!(verdict == Verdict::Linearizable, expected, "seed {seed}");
        if let Verdict::Violation(part) = verdict {
            let chosen: Vec<Op> = part
                .operations
                .iter()
                .map(|i| history[*i].clone())
                .collect();
            assert!(!searched(&chosen), "seed {seed}");
            wrong += 1;
        }
    }
    assert!(wrong > 1_000, "only {wrong} wrong histories");
}

#[test]
fn long_histories_of_a_register_are_linearizable() {
    for seed in 0..200 {
        let mut random = Rng::new(seed);
        let shape = Shape::small(&mut random, 1_500);
        let history = random::linearizable(&mut random, shape);
        assert_eq!(check(&history), Verdict::Linearizable, "seed {seed}");
    }
}
