//! Wrong rules, and where each is caught: what proves that the checkers see.

use crate::{random, scenarios};
use fermata_protocol::base::Bug;

/// How a wrong rule is provoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// By the scenario of this name.
    Scenario(&'static str),
    /// By random seeds: at most so many are needed.
    Seeds(u64),
}

/// The name of a wrong rule on the command line: `SynchWithoutFence` is `synch-without-fence`.
pub fn name(bug: Bug) -> String {
    let mut out = String::new();
    for letter in format!("{bug:?}").chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// The wrong rule of a name.
///
/// # Errors
/// One sentence, when there is none of that name.
pub fn named(wanted: &str) -> Result<Bug, String> {
    let found = Bug::ALL.into_iter().find(|bug| name(*bug) == wanted);
    found.ok_or_else(|| format!("There is no planted bug {wanted}: `--list` names them."))
}

/// Where a wrong rule is caught.
pub fn trap(bug: Bug) -> Trap {
    match bug {
        Bug::SynchWithoutFence => Trap::Scenario("f1-suspected-holder"),
        Bug::SynchTagWithoutAttempt => Trap::Scenario("f4-two-synchs"),
        Bug::FenceOnRefOnly => Trap::Scenario("f4-stale-attempt"),
        Bug::DirtyLeaveTakenAsClean => Trap::Scenario("f5-dirty-leave"),
        Bug::SpeculationNeverCancelled => Trap::Scenario("f3-pipelined-enters"),
        Bug::SpeculationHeadOnly => Trap::Scenario("f3-declined-enqueue"),
        Bug::RefsRestartWithLog => Trap::Scenario("f2-refs-after-change-of-view"),
        Bug::HoleFilledWithCommand => Trap::Scenario("f3-hole"),
        Bug::NoopOverAccepted => Trap::Seeds(500),
        Bug::LeaseWithoutPrimary => Trap::Scenario("f10-lease-at-a-cut-site"),
        Bug::NewPrimaryReleasesAtOnce => Trap::Scenario("f10-lease-table-twice"),
        Bug::ResumeReusesNumbers => Trap::Scenario("f16-restarted-client"),
        Bug::SynchDoneUnconditional => Trap::Scenario("f18-late-synch-done"),
        Bug::RegisterQuorumTooSmall => Trap::Scenario("quorum"),
        Bug::LogQuorumTooSmall => Trap::Seeds(500),
        Bug::AckBeforeFlush => Trap::Scenario("flush"),
        Bug::LostDiskRejoins => Trap::Scenario("lost-disk"),
        Bug::EventualPutInCriticalCell => Trap::Scenario("f6-eventual-put-under-lock"),
        Bug::EnterIgnoresEventual => Trap::Scenario("f6-enter-adopts"),
        Bug::ForcedReleaseClearsFlag => Trap::Scenario("m1-forced-release"),
        Bug::SharedSynchEach => Trap::Scenario("f19-readers-after-a-synch"),
        Bug::LostKeyIgnored => Trap::Scenario("f19-lost-key"),
        Bug::NoDeduplication => Trap::Scenario("f2-command-twice"),
        Bug::ReadWithoutWriteBack => Trap::Scenario("register-write-back"),
        Bug::LeaseForgottenAtRestart => Trap::Scenario("f10-restarted-acceptor"),
        Bug::PastWriteAccepted => Trap::Scenario("m6-past-put"),
        Bug::InheritedWithoutSynch => Trap::Scenario("g2-adoption-for-waiter"),
        Bug::ReGrantAdopts => Trap::Scenario("g5-grant-twice"),
        Bug::FrontNotSettled => Trap::Scenario("g9-front-waits"),
        Bug::ReaderLeavesNoFlag => Trap::Scenario("g9-front-dies"),
        Bug::ReleasedRefLeased => Trap::Scenario("g10-released-waiter"),
        Bug::SynchTagWithoutEpoch => Trap::Scenario("g11-fenced-key"),
        Bug::StartWhenSelfKnows => Trap::Scenario("g12-first-start"),
        Bug::WaitOverEndsHolder => Trap::Scenario("g13-stale-wait"),
        Bug::ResumeBesideLease => Trap::Scenario("g14-resume-beside-lease"),
        Bug::LeaseTableKept => Trap::Scenario("f10-lease-table-twice"),
        Bug::LateReplicaEmpty => Trap::Scenario("late-member"),
    }
}

/// Springs the trap: what was violated, by which seed or scenario; none if nothing was.
pub fn spring(bug: Bug) -> Option<String> {
    match trap(bug) {
        Trap::Scenario(name) => {
            let scenario = scenarios::ALL.iter().find(|s| s.name == name)?;
            let run = scenarios::run(scenario, Some(bug), false);
            let first = run.violations.first()?;
            Some(format!("{name}: {}: {}", first.property, first.detail))
        }
        Trap::Seeds(most) => (0..most).find_map(|seed| {
            let run = random::run(seed, Some(bug), false);
            let first = run.violations.first()?;
            Some(format!("seed {seed}: {}: {}", first.property, first.detail))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for bug in Bug::ALL {
            assert_eq!(named(&name(bug)), Ok(bug));
        }
        assert_eq!(name(Bug::SynchWithoutFence), "synch-without-fence");
        assert!(named("no-such-bug").is_err());
    }

    #[test]
    fn every_scenario_of_the_table_exists() {
        for bug in Bug::ALL {
            if let Trap::Scenario(name) = trap(bug) {
                assert!(scenarios::ALL.iter().any(|s| s.name == name), "{name}");
            }
        }
    }
}
