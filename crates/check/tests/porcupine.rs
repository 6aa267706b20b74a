//! The verdicts of porcupine, a checker in Go that others wrote and use, on random histories.
//!
//! `porcupine.txt` has its verdict for each seed; `cargo xtask porcupine` asks it again and
//! compares, where Go is installed.

use fermata_check::random;
use fermata_check::{Bound, Verdict, check_register};

#[test]
fn our_verdicts_are_those_of_porcupine() {
    let (mut right, mut wrong) = (0, 0);
    for (seed, line) in (0_u64..).zip(include_str!("porcupine.txt").lines()) {
        let ours = match check_register(&random::compared(seed), Bound::default()) {
            Verdict::Linearizable => "ok",
            Verdict::Violation(_) => "wrong",
            Verdict::Undecided => "unknown",
        };
        assert_eq!(format!("{seed:03} {ours}"), line);
        match ours {
            "ok" => right += 1,
            _ => wrong += 1,
        }
    }
    assert_eq!(right + wrong, random::COMPARED);
    assert!(right >= 250 && wrong >= 500, "{right} right, {wrong} wrong");
}
