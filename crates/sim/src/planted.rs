//! Wrong rules, and where each is caught: what proves that the checkers see.

use crate::{random, scenarios};
use fermata_protocol::base::Bug;

/// How a wrong rule is provoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// By the scenario of this name.
    Scenario(&'static str),
    /// By this module of one of the protocol's own suites: what it shows lies between two steps of
    /// a node, or is no violation that a checker here sees.
    Suite(&'static str),
}

/// The wrong rules that a world can meet, each with its trap here.
pub fn all() -> impl Iterator<Item = Bug> {
    let met = |bug: &Bug| matches!(trap(*bug), Trap::Scenario(_));
    Bug::ALL.iter().copied().filter(met)
}

/// The wrong rule of a name.
///
/// # Errors
/// One sentence, when there is none of that name.
pub fn named(wanted: &str) -> Result<Bug, String> {
    let met = |bug: &Bug| matches!(trap(*bug), Trap::Scenario(_));
    let found = Bug::named(wanted).filter(met);
    found.ok_or_else(|| format!("There is no planted bug {wanted}: `--list` names them."))
}

/// The scenario that catches each wrong rule.
const SCENARIOS: &[(Bug, &str)] = &[
    (Bug::NoCommitWait, "ledger-commit-wait"),
    (Bug::NoReaderWait, "ledger-reader-wait"),
    (Bug::WriteBelowPromise, "ledger-promise"),
    (Bug::ReadBesideFlight, "ledger-flight"),
    (Bug::ClosedBesideFlights, "ledger-closed-flight"),
    (Bug::ClosedWithoutPosition, "ledger-closed-position"),
    (Bug::FloorWithoutLimit, "ledger-new-primary"),
    (Bug::LimitEndsWithLog, "ledger-epoch"),
    (Bug::UsedAfterEnd, "ledger-used"),
    (Bug::ClosedAboveLimit, "ledger-stale-limit"),
    (Bug::PromiseBeforeLimit, "ledger-promise-limit"),
    (Bug::TimelineFromWall, "ledger-timeline"),
    (Bug::ReferenceReadsAtOnce, "ledger-hasty-reference"),
    (Bug::ReadingAboveLimit, "ledger-reading-limit"),
    (Bug::ReadingUsedForEver, "ledger-reading-validity"),
    (Bug::TimeNotWidened, "ledger-drift"),
    (Bug::FillerAnswers, "ledger-filler"),
    (Bug::AnswersAskAgain, "ledger-quiet"),
    (Bug::SynchWithoutFence, "f1-suspected-holder"),
    (Bug::SynchTagWithoutAttempt, "f4-two-synchs"),
    (Bug::FenceOnRefOnly, "f4-stale-attempt"),
    (Bug::DirtyLeaveTakenAsClean, "f5-dirty-leave"),
    (Bug::SpeculationNeverCancelled, "f3-pipelined-enters"),
    (Bug::SpeculationHeadOnly, "f3-declined-enqueue"),
    (Bug::RefsRestartWithLog, "f2-refs-after-change-of-view"),
    (Bug::HoleFilledWithCommand, "f3-hole"),
    (Bug::NoopOverAccepted, "f13-accepted-entry"),
    (Bug::LeaseWithoutPrimary, "f10-lease-at-a-cut-site"),
    (Bug::NewPrimaryReleasesAtOnce, "f10-lease-table-twice"),
    (Bug::ResumeReusesNumbers, "f16-restarted-client"),
    (Bug::LeavingPutTakenAsDone, "f5-put-beside-leave"),
    (Bug::LeavingPutNotAwaited, "f5-put-beside-leave"),
    (Bug::LeavingPutSaidEarly, "f5-put-beside-leave"),
    (Bug::LeavingPutRefused, "f5-leave-before-put"),
    (Bug::LeavingPutNotRecorded, "f5-put-and-leave-twice"),
    (
        Bug::PutDoneUnhurriedForEver,
        "f5-put-and-leave-twice-beside-holder",
    ),
    (Bug::PutDoneUnconditional, "f18-late-word"),
    (Bug::LeavingPutOutlivesNext, "f5-word-after-the-next"),
    (Bug::LeavingPutCrosses, "ring-left-beside"),
    (Bug::ClearedFlagUntold, "f5-readers-beside-note"),
    (Bug::SynchDoneUnconditional, "f18-late-synch-done"),
    (Bug::RegisterQuorumTooSmall, "quorum"),
    (Bug::LogQuorumTooSmall, "log-quorum"),
    (Bug::AckBeforeFlush, "flush"),
    (Bug::LostDiskRejoins, "lost-disk"),
    (Bug::EventualPutInCriticalCell, "f6-eventual-put-under-lock"),
    (Bug::EnterIgnoresEventual, "f6-enter-adopts"),
    (Bug::ForcedReleaseClearsFlag, "m1-forced-release"),
    (Bug::SharedSynchEach, "f19-readers-after-a-synch"),
    (Bug::LostKeyIgnored, "f19-lost-key"),
    (Bug::NoDeduplication, "f2-command-twice"),
    (Bug::ReadWithoutWriteBack, "register-write-back"),
    (Bug::LeaseForgottenAtRestart, "f10-restarted-acceptor"),
    (Bug::GoneMeansReleased, "g45-rumour"),
    (Bug::PastWriteAccepted, "m6-past-put"),
    (Bug::InheritedWithoutSynch, "g2-adoption-for-waiter"),
    (Bug::ReGrantAdopts, "g5-grant-twice"),
    (Bug::FrontNotSettled, "g9-front-waits"),
    (Bug::ReaderLeavesNoFlag, "g9-front-dies"),
    (Bug::ReleasedRefLeased, "g10-released-waiter"),
    (Bug::SynchTagWithoutEpoch, "g11-fenced-key"),
    (Bug::StartWhenSelfKnows, "g12-first-start"),
    (Bug::WaitOverEndsHolder, "g13-stale-wait"),
    (Bug::ResumeBesideLease, "g14-resume-beside-lease"),
    (Bug::RelinquishedGoesOn, "g14-relinquished"),
    (Bug::LeaseTableKept, "f10-lease-table-twice"),
    (Bug::FlushSkipped, "flush"),
    (Bug::ReadBeforeFlush, "read-before-flush"),
    (Bug::PastReadAnswered, "f1-past-get"),
    (Bug::UnknownTakenAsFailed, "unknown-outcome"),
    (Bug::AdoptionFallsBack, "g1-adoption-repeated"),
    (Bug::NeverEnteredLeavesClean, "g3-gives-up"),
    (Bug::ClosedEnterLeaves, "g6-late-close"),
    (Bug::ReleaseWaitsForever, "g7-living-holder"),
    (Bug::RepairAtOnce, "g8-damaged-record"),
    (Bug::EventualPutRepeated, "g16-put-twice"),
    (Bug::LowerTagTakenAsFinal, "g20-passed-over"),
    (Bug::RepairWithoutQuorum, "g21-forgotten-fence"),
    (Bug::FencedTakenAsHolder, "g22-fenced-member"),
    (Bug::SpeculationByName, "g23-forgotten-read"),
    (Bug::AdoptionOutranks, "g24-later-put"),
    (Bug::RefusedTakenAsUnsent, "g25-refused-copy"),
    (Bug::PutDropsEventual, "g26-put-at-one"),
    (Bug::QueueOutlivesLeadership, "g27-queued-release"),
    (Bug::SynchBesideItsDone, "g28-synch-beside-its-note"),
    (Bug::InheritedLeavesClean, "g29-synch-beside-a-leave"),
    (Bug::SettlingNotRepeated, "g30-reader-behind-its-front"),
    (Bug::SectionTimeRestarts, "g31-longest-section"),
    (Bug::OverByRenewalAlone, "g58-resumed-again-and-again"),
    (Bug::TombstoneBuriedEarly, "f8f-absent-member"),
    (Bug::RepairWithoutFloor, "f8f-late-repair"),
    (Bug::RepairBelowFence, "f1-late-repair"),
    (Bug::RepairNotSent, "upkeep-missed"),
    (Bug::LateReplicaEmpty, "g17-late-member"),
    (Bug::RegisterWriteRepeated, "g19-write-twice"),
    (Bug::IdleKeyNotSynched, "f18-idle-key"),
    (Bug::FinalBeforeStored, "f8a-final-before-parts"),
    (Bug::DropNotNoted, "f8b-lost-mark"),
    (Bug::CorruptCountsAsMissing, "f8c-corrupt-part"),
    (Bug::SweepWithoutFence, "f8g-sweep"),
    (Bug::ReaderDoesNotWait, "f9-reader-waits"),
    (Bug::ClockViolationIgnored, "f9-wrong-clock"),
    (Bug::CodedQuorumMajority, "coded-quorum"),
    (Bug::PartsOfTwoTags, "coded-dying-writers"),
    (Bug::TwoValuesUnderOneTag, "f8h-name-twice"),
    (Bug::ChecksumIgnored, "f8c-changed-bytes"),
    (Bug::BatchByCount, "g34-burst"),
    (Bug::PromiseInOnePiece, "g35-many-votes"),
    (Bug::PieceTakenAsWhole, "g35-many-votes"),
    (Bug::GoneCallerStays, "g47-gone-caller"),
    (Bug::RenewedWhateverLease, "g48-short-lease"),
    (Bug::ShortWaitReleased, "g48-silent-waiter"),
    (Bug::DeadAsked, "g46-dead-primary"),
    (Bug::CrowdWithoutOrder, "g51-crowd"),
    (Bug::UsageForgotten, "placement-user"),
    (Bug::LaggardIsSteady, "g32-lagging-home"),
    (Bug::RetiringKeeps, "g33-retiring"),
    (Bug::KeyspaceIdReused, "g59-made-again"),
    (Bug::PolicyOverwritten, "g75-two-administrators"),
    (Bug::KeeperWithoutLease, "g75-late-keeper"),
    (Bug::DeadKeyspaceServed, "g59-deleted-keyspace"),
    (Bug::DeadCellsKept, "g59-deleted-keyspace"),
    (Bug::DeadFlagsKept, "g59-deleted-keyspace"),
    (Bug::ChangedTermsAtOnce, "g60-changed-terms"),
    (Bug::ResumedGrantedAtOnce, "g14-resumed-before-primary"),
    (Bug::LeaveBesideLease, "g14-leave-beside-lease"),
    (Bug::BeginBeforeCreation, "created-twice"),
    (Bug::CommandsBeforeBegin, "p5-early-primary"),
    (Bug::WaitingFrontTold, "g9-front-inherited"),
    (Bug::ToldReaderOverruled, "g9-told-reader"),
    (Bug::MovedIsWritten, "ring-moved-at-one"),
    (Bug::KeptAsksShareAStep, "ring-asked-early"),
    (Bug::EarlyNameUntaken, "ring-many-put-early"),
    (Bug::OnePartTells, "eventual-get-of-parts"),
    (Bug::MarkTellsAll, "eventual-get-mark-later"),
    (Bug::StuckBelowQuorum, "eventual-get-mark-alone"),
    (Bug::SpreadWithoutFloor, "f8f-late-spread"),
    (Bug::AcceptorIgnoresDrift, "f10-drifting-acceptors"),
    (Bug::LeasesBeforeTable, "f10-lease-table-not-taken"),
    (Bug::ReleaseIgnoresDrift, "f10-drifting-holder"),
    (Bug::ForgottenRunsAgain, "f2-forgotten-request"),
    (Bug::GrantWithoutLease, "f20-grant-without-lease"),
    (Bug::AnyGenerationRenewed, "g14-renewed-after-resume"),
    (Bug::ResumeWithoutFlag, "f16-resumed-over-a-put"),
    (Bug::VoteCountsFromLast, "f10-late-vote"),
    (Bug::WakesWithoutLease, "g41-cut-off-primary"),
    (Bug::SessionNotAsked, "g49-anothers-ref"),
    (Bug::OutputsLeaveEarly, "flush"),
    (Bug::OutputsOutOfOrder, "full-disk"),
    (Bug::FullToldAgain, "full-disk"),
    (Bug::FullForEver, "full-disk"),
    (Bug::LostUnlessStuck, "full-disk"),
    (Bug::UnhurriedForEver, "upkeep-missed"),
    (Bug::FloorRisesAtOnce, "g54-beside-a-section"),
    (Bug::StopWithoutSeal, "ring-stale-coordinator"),
    (Bug::RetireeDropsLog, "ring-closing-logs"),
    (Bug::RetiredRevives, "ring-retired-member"),
    (Bug::RetiredOffers, "ring-retired-asked"),
    (Bug::LaterNotAsked, "ring-left-behind"),
    (Bug::SettledAtOnce, "lease-grows"),
    (Bug::LeaseOfTheFile, "lease-kept"),
    (Bug::KnownBeforeFlush, "lease-forgotten"),
    (Bug::RaisedAtOnce, "format-raised"),
    (Bug::KnowsWithoutReading, "format-raised"),
    (Bug::OlderStartsAgain, "format-older-starts"),
    (Bug::FormerLogsForgotten, "format-twice"),
    (Bug::LearnerSkipsGap, "ring-learners"),
    (Bug::NextUnheard, "ring-members-unheard"),
    (Bug::ChildForgotten, "ring-split-child-at-one"),
    (Bug::FormatNotFollowed, "format-raised"),
    (Bug::BoundByTheShorter, "lease-shrinks"),
    (Bug::GivenUpForgotten, "lease-of-the-given-up"),
    (Bug::DrainIgnored, "placement-drains"),
    (Bug::DeadAtOnce, "dead-is-replaced"),
    (Bug::DeadForEver, "dead-is-replaced"),
    (Bug::SeatedJoins, "spare-joins"),
    (Bug::DrainingJoins, "spare-joins"),
    (Bug::FullJoins, "spare-full"),
    (Bug::FilledIsSeated, "spare-fills"),
    (Bug::ReadyIsSeated, "spare-fills"),
    (Bug::NearestAtOnce, "leader-moves"),
    (Bug::DrainedInTurns, "placement-drains"),
    (Bug::GivenToFull, "drain-beside-full"),
    (Bug::GivenToLaggard, "drained-to-laggard"),
    (Bug::FullAnswersForPrimary, "full-beside-full"),
    (Bug::SeatedReplaces, "replaced-once"),
    (Bug::FormerMetaTold, "lease-told-in-vain"),
    (Bug::FormerMemberSilent, "ring-meta-asked"),
    (Bug::FormerMemberLists, "listed-by-a-former-member"),
    (Bug::SourcesNotListed, "listed-while-moving"),
    (Bug::DeletedIsListed, "listed-while-moving"),
    (Bug::NamedTwice, "ring-newcomer"),
    (Bug::NameGivenAgain, "ring-lost-disk"),
    (Bug::DebtOfTheLost, "ring-lost-disk"),
    (Bug::GoneIsHeard, "ring-dismissed"),
    (Bug::WalkBelowQuorum, "ring-few-lists"),
    (Bug::GrantedFromHereAlone, "ring-all-seats-new"),
    (Bug::DeletedUnharvested, "ring-eventual-at-one"),
    (Bug::BuriedBesideSource, "ring-delete"),
    (Bug::MoverCallsReused, "ring-late-gift"),
    (Bug::MovesUnpaced, "moves-paced"),
    (Bug::MovesUnbounded, "moves-bounded"),
    (Bug::SilentAwaited, "given-beside-the-silent"),
    (Bug::KeptByTheBound, "limits-lowered"),
    (Bug::QuestionsReused, "g62-late-renewal"),
    (Bug::HarvestedAtOne, "ring-gift-at-one"),
    (Bug::VoidGiftAwaited, "ring-rotten-gift"),
    (Bug::ChangedBesideGap, "records-behind"),
    (Bug::RecordsReplayed, "records-again"),
    (Bug::PositionNotInBatch, "records-again"),
    (Bug::PieceFromLaggard, "records-laggard"),
    (Bug::FilledWithoutChanges, "records-follow"),
    (Bug::WarmUnfilled, "records-follow"),
    (Bug::RememberedAcrossGap, "records-later-gap"),
    (Bug::PieceFromAnywhere, "records-late-piece"),
    (Bug::ChangesFromAnywhere, "records-late-changes"),
    (Bug::ChangedByLaggard, "records-all-lag"),
    (Bug::ChangedBeforeFilled, "records-pressed"),
    (Bug::RecordsDroppedEarly, "records-pressed"),
    (Bug::UnknownReadsVoid, "ring-rotten-stranger"),
    (Bug::UnknownIsSealed, "ring-rotten-end"),
    (Bug::SynchBelowSource, "ring-low-synch"),
    (Bug::UndecodableNotCarried, "ring-undecodable"),
];

/// The module of a suite that catches each of the others.
const SUITES: &[(&str, &[Bug])] = &[
    // Of stores that end.
    (
        "register_suite::epochs",
        &[Bug::SealNotDurable, Bug::SealedStoreChanges],
    ),
    // Of operations over several stores.
    (
        "register_suite::moving",
        &[
            Bug::OneSourceOnly,
            Bug::SourceQuorumTooSmall,
            Bug::MarkFirst,
            Bug::TagFromNewStore,
            Bug::WriteMarks,
            Bug::ReadCrosses,
            Bug::CrossesAnew,
            Bug::StandsAtOne,
        ],
    ),
    (
        "register_suite::two_stores",
        &[
            Bug::EmptyAfterDelete,
            Bug::FenceLeftBehind,
            Bug::PassedIsCarried,
            Bug::WriteBelowMark,
            Bug::OneRoundBesideSource,
            Bug::CrossesBlindly,
            Bug::CrossedBeforeCounts,
            Bug::CrossedIsStoredAgain,
            Bug::UndecodableStays,
            Bug::HeldBackIsGranted,
            Bug::GetsCarryOthers,
        ],
    ),
    // Of what a command does where it is applied, whatever its primary has promised.
    (
        "ledger::execute",
        &[Bug::OvertakenTakesEffect, Bug::AboveLimitTakesEffect],
    ),
    // Of what a member does while nobody asks, of which no client hears.
    (
        "register_suite::upkeep",
        &[Bug::FinalByCountAlone, Bug::TraceUnderValueStays],
    ),
    // By which a member that lags stays behind while others go on.
    (
        "paxos_log::transfer",
        &[Bug::SnapshotNotKept, Bug::LentEntriesDropped],
    ),
    // Of what a node knows of a log without a seat.
    ("paxos_log::planted", &[Bug::LearnerObeysVoid]),
    // Of what a node tells itself, of which nothing is lost here, and of a hand-over that takes
    // longer than it must.
    (
        "paxos_log::rules",
        &[
            Bug::OwnVoteNotRepeated,
            Bug::LateBeatBinds,
            Bug::CandidateGivesWay,
        ],
    ),
    // Between two steps of a primary.
    (
        "lock_primary::synchs",
        &[Bug::TableStatedOnce, Bug::FrontSynchedAgain],
    ),
    (
        "lock_primary::words",
        &[
            Bug::WordsOmitSynchs,
            Bug::WordsOfAnother,
            Bug::UnnamedHasNoLease,
        ],
    ),
    // Of a client's session, which shows at once what it does wrong.
    ("client_scenarios::planted", &[Bug::LateGrantRevives]),
];

/// Where a wrong rule is caught.
pub fn trap(bug: Bug) -> Trap {
    if let Some((suite, _)) = SUITES.iter().find(|(_, bugs)| bugs.contains(&bug)) {
        return Trap::Suite(suite);
    }
    let found = SCENARIOS.iter().find(|(of, _)| *of == bug);
    Trap::Scenario(found.expect("each wrong rule has a trap").1)
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
            let scenario = scenarios::all().find(|s| s.name == name)?;
            Catch::of(name.to_owned(), &scenarios::run(scenario, Some(bug), false))
        }
        Trap::Suite(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for bug in all() {
            assert_eq!(named(&bug.to_string()), Ok(bug));
        }
        assert_eq!(Bug::SynchWithoutFence.to_string(), "synch-without-fence");
        assert!(named("no-such-bug").is_err());
    }

    #[test]
    fn every_scenario_of_the_table_exists() {
        for bug in Bug::ALL {
            if let Trap::Scenario(name) = trap(*bug) {
                assert!(scenarios::all().any(|s| s.name == name), "{name}");
            }
        }
    }
}
