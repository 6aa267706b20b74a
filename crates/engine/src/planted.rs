//! Wrong versions of single rules, by name: those of the engine, as the protocol has its own.

fermata_protocol::planted_bugs! {
    /// A put is acknowledged without a look at the lock row after its quorum (F1).
    VerifyOff,
    /// A section that was left with a put in doubt counts as left cleanly (F5).
    DirtyAsClean,
    /// The value that is granted with an enqueue was read before the row was peeked at.
    ValueBeforePeek,
    /// What a peek shows is taken for the grant, without a deciding read.
    GrantByPeek,
    /// All synchs of a ref have one scalar (M3, F4).
    SynchWithoutAttempt,
    /// A synch that another one of the same ref has overtaken grants, too.
    OvertakenSettles,
    /// An adoption counts as a section's write (G24).
    AdoptionOutranks,
    /// Whoever prepares a grant adopts, also for a ref that another node has enqueued (G5).
    SecondAdoption,
    /// A forced release sets no flag (M1).
    FlagForgotten,
    /// A compare-and-set of unknown outcome is taken for one that was not applied.
    UnknownAsRefused,
    /// Critical puts are stamped by the node's clock (M2, M4).
    ClockStamps,
    /// A value counts as settled if it was when the deciding read was made, whenever it was read.
    SettledTooLate,
    /// An eventual value is stamped by the wall clock alone, whatever it is to replace.
    StampsByWall,
    /// Readers of one batch are granted before the first of them has settled the value (F19).
    SharedUnsettled,
    /// A holder is released although it has renewed since it was seen silent.
    ExpireUnconditional,
    /// A grant may come however long after the row was seen to allow it.
    OldDecision,
    /// An enter of a free key is granted however long its value has been on its way.
    FirstReadOld,
    /// A last put is done where its section was left, even if an earlier transmission left it
    /// dirty.
    LeftAnyhow,
    /// A repeated enter enters the generation that another session has begun.
    EntersAnothers,
    /// Whoever names a section's ref gets and puts in it (G49).
    AnybodyActs,
    /// A resumed section begins beside the lease of its former generation (G14).
    ResumeBesideLease,
    /// What an enter of several keys was granted first is not looked at again.
    FirstKeyOld,
    /// What a node learns after its deciding read, and before its grant, does not count.
    DecisionAlone,
    /// A step that joins others after a swap was refused is answered from what that has shown.
    JoinedUndecided,
    /// What is seen replaces what is known, even if that is newer.
    OlderReplaces,
    /// What a swap tells counts as true at its end.
    DecidedLate,
    /// After a swap of unknown outcome, what a replica shows decides.
    PeekAfterUnknown,
    /// A forced release ends a ref that has become a holder since it was seen to wait.
    ReleaseEndsHolder,
    /// A critical get shows what a later generation of its ref has put.
    LaterGenerationRead,
    /// Whoever looks at a queue does not watch it.
    QueueUnwatched,
    /// A section of the node's own that nobody waits for any more is left to its lease.
    AbandonedStays,
    /// G47: a caller that is gone, and does not come back, keeps its place until its lease ends.
    GoneCallerStays,
    /// A section that is resumed is not renewed while it waits for the lease of its former
    /// generation.
    ResumedUnrenewed,
}
