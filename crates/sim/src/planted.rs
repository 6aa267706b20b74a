//! Wrong rules, and where each is caught: what proves that the checkers see.

use crate::{random, scenarios};
use fermata_protocol::base::Bug;

/// How a wrong rule is provoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// By the scenario of this name.
    Scenario(&'static str),
    /// By this module of the protocol's own suite of the registers: nothing here ends a store yet.
    Registers(&'static str),
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

/// The wrong rules that a world can meet, each with its trap here.
pub fn all() -> impl Iterator<Item = Bug> {
    let met = |bug: &Bug| matches!(trap(*bug), Trap::Scenario(_));
    Bug::ALL.into_iter().filter(met)
}

/// The wrong rule of a name.
///
/// # Errors
/// One sentence, when there is none of that name.
pub fn named(wanted: &str) -> Result<Bug, String> {
    let found = all().find(|bug| name(*bug) == wanted);
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
        Bug::NoopOverAccepted => Trap::Scenario("f13-accepted-entry"),
        Bug::LeaseWithoutPrimary => Trap::Scenario("f10-lease-at-a-cut-site"),
        Bug::NewPrimaryReleasesAtOnce => Trap::Scenario("f10-lease-table-twice"),
        Bug::ResumeReusesNumbers => Trap::Scenario("f16-restarted-client"),
        Bug::SynchDoneUnconditional => Trap::Scenario("f18-late-synch-done"),
        Bug::RegisterQuorumTooSmall => Trap::Scenario("quorum"),
        Bug::LogQuorumTooSmall => Trap::Scenario("log-quorum"),
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
        Bug::FlushSkipped => Trap::Scenario("flush"),
        Bug::ReadBeforeFlush => Trap::Scenario("read-before-flush"),
        Bug::PastReadAnswered => Trap::Scenario("f1-past-get"),
        Bug::UnknownTakenAsFailed => Trap::Scenario("unknown-outcome"),
        Bug::AdoptionFallsBack => Trap::Scenario("g1-adoption-repeated"),
        Bug::NeverEnteredLeavesClean => Trap::Scenario("g3-gives-up"),
        Bug::ClosedEnterLeaves => Trap::Scenario("g6-late-close"),
        Bug::ReleaseWaitsForever => Trap::Scenario("g7-living-holder"),
        Bug::RepairAtOnce => Trap::Scenario("g8-damaged-record"),
        Bug::EventualPutRepeated => Trap::Scenario("g16-put-twice"),
        Bug::SealNotDurable | Bug::SealedStoreChanges => Trap::Registers("epochs"),
        Bug::LowerTagTakenAsFinal => Trap::Scenario("g20-passed-over"),
        Bug::RepairWithoutQuorum => Trap::Scenario("g21-forgotten-fence"),
        Bug::FencedTakenAsHolder => Trap::Scenario("g22-fenced-member"),
        Bug::TombstoneBuriedEarly => Trap::Scenario("f8f-absent-member"),
        Bug::RepairWithoutFloor => Trap::Scenario("f8f-late-repair"),
        Bug::RepairBelowFence => Trap::Scenario("f1-late-repair"),
        Bug::RepairNotSent => Trap::Scenario("upkeep-missed"),
        Bug::LateReplicaEmpty => Trap::Scenario("g17-late-member"),
        Bug::RegisterWriteRepeated => Trap::Scenario("g19-write-twice"),
        Bug::IdleKeyNotSynched => Trap::Scenario("f18-idle-key"),
        Bug::FinalBeforeStored => Trap::Scenario("f8a-final-before-parts"),
        Bug::DropNotNoted => Trap::Scenario("f8b-lost-mark"),
        Bug::CorruptCountsAsMissing => Trap::Scenario("f8c-corrupt-part"),
        Bug::SweepWithoutFence => Trap::Scenario("f8g-sweep"),
        Bug::ReaderDoesNotWait => Trap::Scenario("f9-reader-waits"),
        Bug::ClockViolationIgnored => Trap::Scenario("f9-wrong-clock"),
        Bug::CodedQuorumMajority => Trap::Scenario("coded-quorum"),
        Bug::PartsOfTwoTags => Trap::Scenario("coded-dying-writers"),
        Bug::TwoValuesUnderOneTag => Trap::Scenario("f8h-name-twice"),
        Bug::ChecksumIgnored => Trap::Scenario("f8c-changed-bytes"),
    }
}

/// What came of springing a trap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catch {
    /// The scenario.
    pub by: String,
    /// The checkers that fired, each once, in the order in which they did.
    pub checkers: Vec<&'static str>,
    /// The first one's evidence.
    pub evidence: String,
}

impl Catch {
    fn of(by: String, run: &random::Run) -> Option<Catch> {
        let evidence = run.violations.first()?.detail.clone();
        let mut checkers = Vec::new();
        for violation in &run.violations {
            if !checkers.contains(&violation.property) {
                checkers.push(violation.property);
            }
        }
        Some(Catch {
            by,
            checkers,
            evidence,
        })
    }
}

/// Springs the trap: what fired, and where; none if nothing did, or the trap is not here.
pub fn spring(bug: Bug) -> Option<Catch> {
    match trap(bug) {
        Trap::Scenario(name) => {
            let scenario = scenarios::ALL.iter().find(|s| s.name == name)?;
            Catch::of(name.to_owned(), &scenarios::run(scenario, Some(bug), false))
        }
        Trap::Registers(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for bug in all() {
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
