//! Every wrong rule is caught where the table says, and every checker is the first to report one.
//!
//! `cargo test -p fermata-sim --test planted -- --nocapture` prints who catches what.

use fermata_protocol::base::Bug;
use fermata_sim::checkers::NAMES;
use fermata_sim::planted::{all, spring};

/// Seen by the scenario alone: an eventual put may be ordered behind the section that does not find
/// it, since a grant that is prepared again does not adopt (G5); no history calls that wrong. Nor
/// does a primary that moves too often, or to a seat that lags, break any promise, nor one that
/// drains and leads, nor who replaces a node that was silent for a moment, nor who has which seat,
/// nor one who waits in vain, nor a section that is shorter than it was said to be, nor a write
/// that says that it may have taken effect, or that it is past. And where a disk is lost, or rots,
/// the checker of eventual puts forgets what was kept: it may have been there alone; nor does any
/// complain of what is kept for a disk that is lost, or until it is replaced, or of a listing or of
/// an eventual get, which may be stale. That a client was told that a value is gone is said by the
/// run, and is no checker's name. Questions without end break no promise either.
const EXPECTED: [Bug; 48] = [
    Bug::AnswersAskAgain,
    Bug::DeadForEver,
    Bug::FilledIsSeated,
    Bug::ReadyIsSeated,
    Bug::MovesUnpaced,
    Bug::MovesUnbounded,
    Bug::SilentAwaited,
    Bug::KeptByTheBound,
    Bug::DrainIgnored,
    Bug::DrainedInTurns,
    Bug::GivenToFull,
    Bug::GivenToLaggard,
    Bug::FullAnswersForPrimary,
    Bug::SeatedReplaces,
    Bug::DeadAtOnce,
    Bug::SeatedJoins,
    Bug::DrainingJoins,
    Bug::FullJoins,
    Bug::NearestAtOnce,
    Bug::StuckBelowQuorum,
    Bug::OnePartTells,
    Bug::MarkTellsAll,
    Bug::FormerMemberSilent,
    Bug::FormerMemberLists,
    Bug::SourcesNotListed,
    Bug::DeletedIsListed,
    Bug::ChildForgotten,
    Bug::NextUnheard,
    Bug::EnterIgnoresEventual,
    Bug::UsageForgotten,
    Bug::GoneCallerStays,
    Bug::RenewedWhateverLease,
    Bug::ShortWaitReleased,
    Bug::DeadAsked,
    Bug::SettlingNotRepeated,
    Bug::LaggardIsSteady,
    Bug::RetiringKeeps,
    Bug::CrowdWithoutOrder,
    Bug::LeavingPutRefused,
    Bug::LeavingPutNotRecorded,
    Bug::PutDoneUnhurriedForEver,
    Bug::ChangedTermsAtOnce,
    Bug::HarvestedAtOne,
    Bug::UnknownReadsVoid,
    Bug::WarmUnfilled,
    Bug::UnknownIsSealed,
    Bug::DebtOfTheLost,
    Bug::MovedIsWritten,
];

/// Not a scenario's own expectation, nor a panic.
fn is_checker(property: &str) -> bool {
    NAMES.contains(&property)
}

#[test]
fn every_planted_bug_is_caught_and_every_checker_catches() {
    let mut wrong = Vec::new();
    let mut first: Vec<(&str, Vec<String>)> = NAMES.iter().map(|n| (*n, Vec::new())).collect();
    println!("{:30} {:30} caught by", "wrong rule", "where");
    for bug in all() {
        let bug_name = bug.to_string();
        let Some(catch) = spring(bug) else {
            wrong.push(format!("nothing catches {bug_name}"));
            continue;
        };
        println!(
            "{bug_name:30} {:30} {}",
            catch.by,
            catch.checkers.join(", ")
        );
        let reporter = catch.checkers[0];
        if !is_checker(reporter) && !EXPECTED.contains(&bug) {
            wrong.push(format!("no checker sees {bug_name}: {}", catch.evidence));
        }
        if let Some((_, bugs)) = first.iter_mut().find(|(n, _)| *n == reporter) {
            bugs.push(bug_name);
        }
    }
    println!("\n{:30} is the first to report", "checker");
    for (checker, bugs) in first {
        println!("{checker:30} {}", bugs.join(", "));
        if bugs.is_empty() {
            wrong.push(format!("{checker} reports no planted bug first"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
