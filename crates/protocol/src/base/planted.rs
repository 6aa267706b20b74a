//! Wrong versions of single rules, by name. Without the feature `planted-bugs` none exists and
//! every question is answered `false` at compile time; with it the simulator switches one on and
//! must catch it. A checker that never caught anything proves nothing.
//!
//! [`planted_bugs!`](crate::planted_bugs) makes the list of a crate: the protocol's is below, the
//! engine on stores that others run has its own.

use core::fmt::{Formatter, Result, Write};

/// Declares the wrong rules of a crate: `Bug`, and `Planted`, which says whether one is switched
/// on, where that crate has its feature `planted-bugs`.
#[macro_export]
macro_rules! planted_bugs {
    ($($(#[doc = $rule:literal])+ $name:ident,)+) => {
        /// One wrong rule each; the name says what is wrong, the doc which rule it breaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug {
            $($(#[doc = $rule])+ $name,)+
        }

        impl Bug {
            /// Every planted bug, for lists and for the test that each is caught.
            pub const ALL: &[Bug] = &[$(Bug::$name),+];

            /// The wrong rule of this name, as it is shown; none if there is none.
            pub fn named(name: &str) -> Option<Bug> {
                let letters = || name.chars().filter(|letter| *letter != '-');
                let is = |camel: &str| letters().eq(camel.chars().map(|c| c.to_ascii_lowercase()));
                $(if is(stringify!($name)) {
                    return Some(Bug::$name);
                })+
                None
            }
        }

        /// `SynchWithoutFence` is `synch-without-fence`.
        impl ::core::fmt::Display for Bug {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let camel = match self {
                    $(Bug::$name => stringify!($name),)+
                };
                $crate::base::planted::show(camel, f)
            }
        }

        /// The wrong rules that are switched on in one node or client: at most one in practice.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Planted {
            #[cfg(feature = "planted-bugs")]
            bug: Option<Bug>,
        }

        impl Planted {
            /// Nothing is wrong.
            pub const NONE: Planted = Planted {
                #[cfg(feature = "planted-bugs")]
                bug: None,
            };

            /// Only `bug` is wrong.
            #[cfg(feature = "planted-bugs")]
            pub fn only(bug: Bug) -> Planted {
                Planted { bug: Some(bug) }
            }

            /// Whether `bug` is switched on.
            #[cfg(feature = "planted-bugs")]
            pub fn has(self, bug: Bug) -> bool {
                self.bug == Some(bug)
            }

            /// Whether `bug` is switched on: never, without the feature.
            #[cfg(not(feature = "planted-bugs"))]
            #[inline(always)]
            pub fn has(self, _bug: Bug) -> bool {
                false
            }
        }
    };
}

/// Writes `LostKeyIgnored` as `lost-key-ignored`.
#[doc(hidden)]
pub fn show(camel: &str, f: &mut Formatter<'_>) -> Result {
    for (place, letter) in camel.chars().enumerate() {
        if letter.is_ascii_uppercase() && place > 0 {
            f.write_char('-')?;
        }
        f.write_char(letter.to_ascii_lowercase())?;
    }
    Ok(())
}

planted_bugs! {
    /// F1: the synch reads without a fence.
    SynchWithoutFence,
    /// F4: the synch's tag is the same for all attempts, and a stale attempt may grant.
    SynchTagWithoutAttempt,
    /// F4: the fence holds the lock ref only, and a stale attempt may grant.
    FenceOnRefOnly,
    /// F5: a leave after a put that was not acknowledged is clean.
    DirtyLeaveTakenAsClean,
    /// F5: a leave beside a put that is under way is clean.
    LeavingPutTakenAsDone,
    /// F5: a leave beside a put that is under way is answered when it is agreed, whatever becomes
    /// of the put.
    LeavingPutNotAwaited,
    /// F5: the primary is told that a put is at its quorum when it is sent.
    LeavingPutSaidEarly,
    /// F5: replicas refuse a put once the leave beside it is applied.
    LeavingPutRefused,
    /// F5: the leave's record does not learn that the put beside it is done.
    LeavingPutNotRecorded,
    /// F5: that the put is done waits for ever for a command that takes the note along.
    PutDoneUnhurriedForEver,
    /// F18: that a put is at its quorum clears whatever flag is set.
    PutDoneUnconditional,
    /// S2: the put beside a leave is let into a store that follows, where nothing fences it.
    LeavingPutCrosses,
    /// F5: a flag goes on waiting for its put when somebody has held the key since.
    LeavingPutOutlivesNext,
    /// G28: of a flag that is being cleared, those behind a reader hear nothing.
    ClearedFlagUntold,
    /// F3: the speculative value is used whenever the ref becomes head.
    SpeculationNeverCancelled,
    /// F3: the speculative value is used when the ref is head at its apply, whatever came between.
    SpeculationHeadOnly,
    /// F2: lock refs restart with every log.
    RefsRestartWithLog,
    /// F3f: a new leader fills holes with waiting client commands.
    HoleFilledWithCommand,
    /// R3: a node that follows a log without a seat takes entries above a gap.
    LearnerSkipsGap,
    /// R3: a node that follows a log without a seat applies commands that a later ballot made void.
    LearnerObeysVoid,
    /// R1: a view is proposed although no quorum of it is heard, and follows.
    NextUnheard,
    /// R11: a group that goes on does not hand on with what its child begins.
    ChildForgotten,
    /// F13: a new leader proposes a no-op over an accepted value.
    NoopOverAccepted,
    /// F10: any node answers a heartbeat with a lease, without asking the primary.
    LeaseWithoutPrimary,
    /// F10: a new primary does not wait out the leases of the one before.
    NewPrimaryReleasesAtOnce,
    /// F16: a restarted client goes on in its section with its numbers reset.
    ResumeReusesNumbers,
    /// G61: a grant that comes after the leave takes the section up again.
    LateGrantRevives,
    /// F18: `SynchDone` clears whatever flag is set.
    SynchDoneUnconditional,
    /// A quorum of a register is one too small.
    RegisterQuorumTooSmall,
    /// A quorum of a log is one too small.
    LogQuorumTooSmall,
    /// A message that needs its record durable leaves at once.
    AckBeforeFlush,
    /// F8c: a node that lost its disk answers under its old identity.
    LostDiskRejoins,
    /// F6: an eventual put goes to the critical cell.
    EventualPutInCriticalCell,
    /// F6: `enter` does not adopt a newer eventual value.
    EnterIgnoresEventual,
    /// M1: a forced release clears the flag.
    ForcedReleaseClearsFlag,
    /// F19: each shared holder runs its own synch.
    SharedSynchEach,
    /// F19: a section goes on after one of its keys was lost.
    LostKeyIgnored,
    /// F2: a command chosen twice is applied twice.
    NoDeduplication,
    /// Registers: a read returns without writing back what it saw.
    ReadWithoutWriteBack,
    /// A restarted acceptor forgets that it granted a read lease.
    LeaseForgottenAtRestart,
    /// M6: a replica takes critical writes of a past holder.
    PastWriteAccepted,
    /// G2: a new primary grants a ref that held before it led by a plain read.
    InheritedWithoutSynch,
    /// G5: a grant that is prepared again adopts, too.
    ReGrantAdopts,
    /// G9: readers behind the front read before the front has settled the key.
    FrontNotSettled,
    /// G9: the front of a batch of readers sets no flag when it leaves uncleanly.
    ReaderLeavesNoFlag,
    /// G10: a ref whose release was asked for is still granted and leased.
    ReleasedRefLeased,
    /// G11: the synch's tag is without the epoch.
    SynchTagWithoutEpoch,
    /// G12: a node starts when it knows all others, whatever they know.
    StartWhenSelfKnows,
    /// G13: a wait that is over ends a section that holds.
    WaitOverEndsHolder,
    /// G14: a new generation is granted beside the lease of the old one.
    ResumeBesideLease,
    /// G14: a client goes on in a section of which it has given the lease back.
    RelinquishedGoesOn,
    /// F10: a lease table that a primary has taken is used by later ones, too.
    LeaseTableKept,
    /// A flush is said to be done before it is.
    FlushSkipped,
    /// F1: a replica answers the reads of a past holder.
    PastReadAnswered,
    /// An outcome that nobody knows is reported as a failure.
    UnknownTakenAsFailed,
    /// G1: an adoption that did not complete is followed by a plain read.
    AdoptionFallsBack,
    /// G3: a ref that was never told of its grant leaves clean.
    NeverEnteredLeavesClean,
    /// G6: an `enter` that is closed leaves.
    ClosedEnterLeaves,
    /// G7: a lease is renewed after a release was asked for.
    ReleaseWaitsForever,
    /// G8: a damaged record is copied from the others at once.
    RepairAtOnce,
    /// G16: an eventual put is sent again, and stored again.
    EventualPutRepeated,
    /// F15: a seal is answered before it is durable.
    SealNotDurable,
    /// F15: a sealed store takes writes and moved marks.
    SealedStoreChanges,
    /// G17: a replica that is created late goes on from an empty state.
    LateReplicaEmpty,
    /// G19: a write of a register that is repeated at another node is done again.
    RegisterWriteRepeated,
    /// F18: the flag of a key that nobody wants is cleared without a synch.
    IdleKeyNotSynched,
    /// F8: a quorum of a coded register is a majority, whatever f is.
    CodedQuorumMajority,
    /// F8h: parts of several tags are decoded together.
    PartsOfTwoTags,
    /// F8h: a replica takes another value under a tag that it holds.
    TwoValuesUnderOneTag,
    /// F8c: parts whose bytes have changed are taken for sound.
    ChecksumIgnored,
    /// F8a: a reader tells that a tag is final instead of storing it at a quorum.
    FinalBeforeStored,
    /// F8b: a drop is durable, and the final tag that caused it is not.
    DropNotNoted,
    /// F8c: a corrupt part is left out of an answer that counts all the same.
    CorruptCountsAsMissing,
    /// F8g: a sweep reads without a fence.
    SweepWithoutFence,
    /// F9: a reader returns a tag whose time may not have passed.
    ReaderDoesNotWait,
    /// F8f: a delete's trace goes although a member may hold something below it.
    TombstoneBuriedEarly,
    /// F8f: a replica takes a repair that was sent before the floor rose.
    RepairWithoutFloor,
    /// F1: a replica takes a repair below its fence.
    RepairBelowFence,
    /// F8: what a member lacks of a complete write is not sent to it.
    RepairNotSent,
    /// F9: a clock that was proven wrong is relied on.
    ClockViolationIgnored,
    /// A replica tells what it has not flushed yet.
    ReadBeforeFlush,
    /// G20: a tag below one that is final is taken for final.
    LowerTagTakenAsFinal,
    /// G21: a damaged register is repaired by versions that fewer than q others hold.
    RepairWithoutQuorum,
    /// G22: a member whose fence is above a delete is taken for one that holds it.
    FencedTakenAsHolder,
    /// F8b: members look after what a quorum of those that are heard hold alone, although one of
    /// them was told that a tag is final.
    FinalByCountAlone,
    /// G69: a delete that one member keeps stays where an eventual value has come above it.
    TraceUnderValueStays,
    /// G23: what was read ahead for an enqueue that the log declined serves its repetition.
    SpeculationByName,
    /// G24: an adopted value outranks eventual puts as if its section had written it.
    AdoptionOutranks,
    /// G25: a put that was sent and refused does not count when its key is left.
    RefusedTakenAsUnsent,
    /// G26: a section's put drops the eventual value at whichever replica it reaches.
    PutDropsEventual,
    /// G34: a slot and a window are bounded by count alone.
    BatchByCount,
    /// G35: an acceptor reports all its votes in one message.
    PromiseInOnePiece,
    /// G35: a piece of a report is taken for the whole.
    PieceTakenAsWhole,
    /// G27: commands that wait when a leadership ends are proposed by the node's next one.
    QueueOutlivesLeadership,
    /// G28: a reader behind a synch that is complete, and not noted yet, begins another.
    SynchBesideItsDone,
    /// G28: the front of a batch begins a synch of its own beside the note of one in its name.
    FrontSynchedAgain,
    /// G29: a ref that another primary may have in a synch leaves clean, though it wrote nothing.
    InheritedLeavesClean,
    /// G30: settling a key for readers that failed is not tried again by itself.
    SettlingNotRepeated,
    /// G31: the longest time of a section starts anew with each primary.
    SectionTimeRestarts,
    /// G58: renewals alone ask how long a section has lasted.
    OverByRenewalAlone,
    /// G47: a caller that is gone, and does not come back, keeps its place until its lease ends.
    GoneCallerStays,
    /// G48: a wait that is open is renewed as often, whatever lease was asked for.
    RenewedWhateverLease,
    /// G48: one who waits may not be silent for longer than the lease it asked for, however short.
    ShortWaitReleased,
    /// G46: a node that is not heard is asked all the same.
    DeadAsked,
    /// G36: what a peer is fetching is replaced by each newer snapshot.
    SnapshotNotKept,
    /// G37: the entries above a snapshot that a peer is fetching go with the next truncation.
    LentEntriesDropped,
    /// G51: a full replica takes no write, whichever comes first.
    CrowdWithoutOrder,
    /// A new primary gives its log back before it has counted who uses the segment.
    UsageForgotten,
    /// G53: a leader does not tell itself its own vote again.
    OwnVoteNotRepeated,
    /// G31: a primary that ends before it has taken a lease table states none.
    TableStatedOnce,
    /// G2: last words call a ref untold for which a synch was begun.
    WordsOmitSynchs,
    /// G2: last words are believed by a primary before which another one has led.
    WordsOfAnother,
    /// F10: a ref that was granted after a table was stated has no lease for the next primary.
    UnnamedHasNoLease,
    /// G32: a log is given to a seat that lags behind a snapshot.
    LaggardIsSteady,
    /// G33: a node that is about to stop keeps what comes back to it.
    RetiringKeeps,
    /// G45: whom the shell takes for gone has no lease any more.
    GoneMeansReleased,
    /// G14: a new primary grants a ref at once that was resumed before it led.
    ResumedGrantedAtOnce,
    /// G14: a new generation leaves while the old one's lease runs.
    LeaveBesideLease,
    /// G9: a key is settled for readers as if its front had been told of it, which still waits.
    WaitingFrontTold,
    /// G9: a key is settled for readers anew though one of them may have been told its value.
    ToldReaderOverruled,
    /// V7: who moves a key that some have moved before writes it, as a reader does.
    MovedIsWritten,
    /// The first entry of a log leaves before the log's creation is durable.
    BeginBeforeCreation,
    /// P5: a leader is primary before what it has recovered is chosen.
    CommandsBeforeBegin,
    /// F8f: a replica takes an eventual value that was sent before the floor rose.
    SpreadWithoutFloor,
    /// F10: an acceptor's read lease ends as if its clock could not be fast.
    AcceptorIgnoresDrift,
    /// F10: a primary renews leases before it has taken the table of the one before.
    LeasesBeforeTable,
    /// F10: a client's lease ends for its primary as if no clock drifted.
    ReleaseIgnoresDrift,
    /// F2: a command whose outcome is forgotten takes effect once more.
    ForgottenRunsAgain,
    /// F20: a primary grants without a read lease.
    GrantWithoutLease,
    /// G14: a primary renews the lease of a generation that was taken over.
    AnyGenerationRenewed,
    /// F16: a resumed section is granted without the synch that fences its former life.
    ResumeWithoutFlag,
    /// F10: a read lease counts from when a proposal was last sent, not first.
    VoteCountsFromLast,
    /// G41: a primary that has lost its lease wants to be woken for what only the lease allows.
    WakesWithoutLease,
    /// G49: whoever knows a section's ref acts in it: puts, renews, leaves, resumes.
    SessionNotAsked,
    /// D1, of the driver: a flush that is done lets go what waits for the next one, too.
    OutputsLeaveEarly,
    /// D1: what waited for a flush leaves in another order.
    OutputsOutOfOrder,
    /// D3: the node is told at each attempt that its disk is full.
    FullToldAgain,
    /// D3: the node is not told that its disk takes writes again.
    FullForEver,
    /// D4: messages that wait for the log are lost beyond the bound although it is not stuck.
    LostUnlessStuck,
    /// D5: a message that nobody waits for waits for company for ever.
    UnhurriedForEver,
    /// G54: a floor rises as far as it can at once, so that it cannot rise once more.
    FloorRisesAtOnce,
    /// V1: of several open sources the last one alone is asked.
    OneSourceOnly,
    /// S4: the read of a grant asks the present store alone.
    GrantedFromHereAlone,
    /// S3: a holder's get carries what an earlier section has written, and waits for that.
    GetsCarryOthers,
    /// S4: what a synch keeps from moving is granted from a read.
    HeldBackIsGranted,
    /// V1: a quorum of a source is one too small.
    SourceQuorumTooSmall,
    /// V1: a store that was deleted answers as one that was never written.
    EmptyAfterDelete,
    /// V2: the key is marked as moved before its value has moved.
    MarkFirst,
    /// V3: a value moves without the fence of its sources.
    FenceLeftBehind,
    /// V12: a key that nobody can read any more is not moved.
    UndecodableNotCarried,
    /// V12: the write that has the tag of what moved undecodable is refused in the next store.
    UndecodableStays,
    /// V3: a read carries a value that a sweep may have passed over, with the sweep's fence.
    PassedIsCarried,
    /// V4: a register's write takes a tag above those of the present store alone.
    TagFromNewStore,
    /// V4: a register's write takes a tag that need not be above what a mark says has moved.
    WriteBelowMark,
    /// V4: a write of one round goes out beside an open source.
    OneRoundBesideSource,
    /// V4: a register's write marks its key as moved.
    WriteMarks,
    /// V5: a member that has sealed the store counts as one that has stored.
    ReadCrosses,
    /// V5: a write goes on in the next epoch below a fence.
    CrossesBlindly,
    /// V5: a write goes on in the next epoch under another tag.
    CrossesAnew,
    /// V5: what was stored of a write that crosses counts although what its source has promised may
    /// have come to the members since.
    CrossedBeforeCounts,
    /// V5: a write that went on in the next epoch, and that no clock tells to have ended, is stored
    /// once more, under a tag above whatever has ended since.
    CrossedIsStoredAgain,
    /// G71: a candidate promises a lower ballot than the one with which it stands.
    CandidateGivesWay,
    /// What was kept for a store that was to come is answered in one step, which does not read what
    /// it writes.
    KeptAsksShareAStep,
    /// G16: the name of an eventual put is not taken where its store is to come.
    EarlyNameUntaken,
    /// V9: an eventual get beside a source takes one member's part of a code for what is here.
    OnePartTells,
    /// V9: a member that has the mark of a key and not its value tells that there is none.
    MarkTellsAll,
    /// A read says that there is no value any more where fewer than a quorum have told.
    StuckBelowQuorum,
    /// R2: who votes for the end of a log that moves does not seal the segment's store.
    StopWithoutSeal,
    /// R4: a log that goes on without this node goes although nothing is chosen in what follows.
    RetireeDropsLog,
    /// R5: a node that has dropped a log creates it again when its state comes late.
    RetiredRevives,
    /// R7: a memory that asks again for its name gets another.
    NamedTwice,
    /// R7: a name is given again when its node is gone.
    NameGivenAgain,
    /// R8: a node that is gone is still heard.
    GoneIsHeard,
    /// V8: what a lost member owes is waited for.
    DebtOfTheLost,
    /// R5: a node that has dropped a log answers who asks for it as if it could give it.
    RetiredOffers,
    /// R5: who is behind a location that it knows does not ask its members where the group is now.
    LaterNotAsked,
    /// V7: the lists that are walked may be one too few.
    WalkBelowQuorum,
    /// V8: a store is deleted before what its member took of eventual puts was given on.
    DeletedUnharvested,
    /// V2: a read returns what a single member of a source has, and leaves it there.
    StandsAtOne,
    /// V8: a node that starts again asks for values to give under calls that it has used before.
    MoverCallsReused,
    /// V8: keys move as fast as they can, whatever the settings say.
    MovesUnpaced,
    /// V8: a member that is not heard any more is asked for a value for ever, and no other for its
    /// own.
    SilentAwaited,
    /// V8: as many values move at once as there are stores to move them from, however large.
    MovesUnbounded,
    /// R9: a replica takes nothing that is longer than clients may write by now.
    KeptByTheBound,
    /// G62: a coordinator that starts again asks under names that it has used before.
    QuestionsReused,
    /// V8: a seat owes a value no more that a single present member holds.
    HarvestedAtOne,
    /// V8: a value to give that cannot be read any more is waited for.
    VoidGiftAwaited,
    /// A record is changed beside a gap, by a member that lacks what came before.
    ChangedBesideGap,
    /// A command that is applied again after a start changes records again.
    RecordsReplayed,
    /// The position of a command's changes is not in their batch.
    PositionNotInBatch,
    /// A piece is taken from a member that is behind what another piece had.
    PieceFromLaggard,
    /// A fill is complete with its last piece, whatever was changed meanwhile.
    FilledWithoutChanges,
    /// Records are changed in an epoch in which too few members have them.
    ChangedBeforeFilled,
    /// A piece of records counts wherever the fill stands.
    PieceFromAnywhere,
    /// What was changed since some command counts, whatever is lacking before it.
    ChangesFromAnywhere,
    /// What was applied beside a fill counts, although a snapshot has skipped something before it.
    RememberedAcrossGap,
    /// Records are changed by a primary that lacks some, as long as others once had all.
    ChangedByLaggard,
    /// A learner is warm before it has all records.
    WarmUnfilled,
    /// A member that leaves drops its records although too few have them.
    RecordsDroppedEarly,
    /// V8: a sealed read of a store whose status is damaged says that the key's record is.
    UnknownReadsVoid,
    /// V9: a damaged status is taken for that of a sealed store, although nothing is owed.
    UnknownIsSealed,
    /// V4: a synch stores under its own tag although a source has a higher one.
    SynchBelowSource,
    /// V10: the trace of a delete goes while an earlier store may have what it outranks.
    BuriedBesideSource,
    /// G55: a beat that a hand-over has overtaken binds an acceptor again.
    LateBeatBinds,
    /// R9: another lease is relied on before every node knows of it.
    SettledAtOnce,
    /// R9: a node that starts again counts its file's lease, and not the cluster's.
    LeaseOfTheFile,
    /// R9: a change of the lease is over although a node that was given up may rely on the former.
    GivenUpForgotten,
    /// R12: a node that drains keeps what it leads, and is given what it should lead.
    DrainIgnored,
    /// R13: a node that is silent for a moment is replaced.
    DeadAtOnce,
    /// R13: who was silent once is dead, though it was heard since.
    DeadForEver,
    /// R14: a node is given a seat although it says that it has one in another group.
    SeatedJoins,
    /// R14: a node that drains is given a seat.
    DrainingJoins,
    /// R14: a node without room on its disk is given a seat.
    FullJoins,
    /// R13, R14: a node is given a seat whose disk has filled up since it was invited.
    FilledIsSeated,
    /// R14: a node is given a seat whose disk has filled up, since all else is ready.
    ReadyIsSeated,
    /// R15: another member leads a group as soon as it is nearer to a quorum.
    NearestAtOnce,
    /// R12: of two nodes that drain each gives the other what it leads.
    DrainedInTurns,
    /// R12: a log is handed over to a node without room on its disk.
    GivenToFull,
    /// R12: a node that drains gives its logs to a seat that lags behind a snapshot.
    GivenToLaggard,
    /// R12: a node without room refuses commands for a log that another leads.
    FullAnswersForPrimary,
    /// R13: the seat of a dead node is given to one that says that it has one in another group.
    SeatedReplaces,
    /// R9: an acceptor is bound by the shorter lease while it changes.
    BoundByTheShorter,
    /// R9: who is told by a node that knows former members of the meta-group does not say who is.
    FormerMetaTold,
    /// R5: a former member of a group that is asked something does not say where that is now.
    FormerMemberSilent,
    /// A member lists what it has of a store as if it were the present one, which it is not.
    FormerMemberLists,
    /// Earlier stores of a segment, from which keys have not moved, are not listed.
    SourcesNotListed,
    /// A key that has been deleted is listed as long as an earlier store has it.
    DeletedIsListed,
    /// R9: a node says that it knows of a change before that is durable.
    KnownBeforeFlush,
    /// R10: nodes write another format before every node reads it.
    RaisedAtOnce,
    /// R10: a node says that it reads the next format, and does not.
    KnowsWithoutReading,
    /// R10: a node that has said so starts again with a program that does not read it.
    OlderStartsAgain,
    /// R10: a node says that it reads the next format while it has logs of a former one.
    FormerLogsForgotten,
    /// R10: a group goes on in logs of the former format.
    FormatNotFollowed,
    /// G59: the id of a keyspace that was deleted is given again.
    KeyspaceIdReused,
    /// G75: an access policy replaces one that its author has not read.
    PolicyOverwritten,
    /// G75: who has led the meta-group answers for it without its lease.
    KeeperWithoutLease,
    /// G59: a replica takes what comes for a keyspace that it knows to be deleted.
    DeadKeyspaceServed,
    /// G59: a member keeps what it has of a keyspace that was deleted.
    DeadCellsKept,
    /// G59: the flags of a keyspace that was deleted wait for a synch.
    DeadFlagsKept,
    /// G60: a keyspace's changed times hold for who is in a section.
    ChangedTermsAtOnce,
    /// L7: a transaction takes effect although a key that it names has a version above it.
    OvertakenTakesEffect,
    /// L1: a transaction takes effect above the limit that stands before it in the log.
    AboveLimitTakesEffect,
    /// L1: the limit of times ends with its log.
    LimitEndsWithLog,
    /// L1: a new primary begins below the limit that the former one has stated.
    FloorWithoutLimit,
    /// L1: a primary promises above the limit that is applied.
    PromiseBeforeLimit,
    /// L2: a transaction is given a timestamp below a promise on a key that it writes.
    WriteBelowPromise,
    /// L16: a read does not wait for what is under way at or below its time.
    ReadBesideFlight,
    /// L3: a primary closes above the limit that is applied.
    ClosedAboveLimit,
    /// L3: a primary closes above what is under way.
    ClosedBesideFlights,
    /// L3: a replica answers at a closed time whatever it has applied.
    ClosedWithoutPosition,
    /// L4: a primary that has said which times it has used goes on to use others.
    UsedAfterEnd,
    /// L15: a transaction is answered before its timestamp has passed.
    NoCommitWait,
    /// L15: a read is answered before the versions that it returns have passed.
    NoReaderWait,
    /// L36: a new reference begins at its wall clock, whatever was read before.
    TimelineFromWall,
    /// L36: a new reference reads while readings of the former one may be in use.
    ReferenceReadsAtOnce,
    /// L36: the reference reads above the limit that is applied.
    ReadingAboveLimit,
    /// L36: a reading is used after it may be.
    ReadingUsedForEver,
    /// L36: what is known of the time is not widened by the drift of clocks.
    TimeNotWidened,
    /// L40: a member that fills answers reads.
    FillerAnswers,
    /// Who is told who has a segment's records asks again, as long as it knows of too few.
    AnswersAskAgain,
}

impl Planted {
    /// Whether whoever knows a section's ref acts in it, whatever its session (G49): so it is, too,
    /// where a restarted client goes on in its section without a new generation.
    pub fn asks_no_session(self) -> bool {
        self.has(Bug::SessionNotAsked) || self.has(Bug::ResumeReusesNumbers)
    }

    /// Whether who is behind a location that it knows asks nobody for a later one (R5): so it is,
    /// too, where the retired offer what they do not have, which asking would mend.
    pub fn asks_nobody_later(self) -> bool {
        self.has(Bug::LaterNotAsked) || self.has(Bug::RetiredOffers)
    }
}
