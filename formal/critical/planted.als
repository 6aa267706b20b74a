/*
 * Critical sections: planted faults. Each run takes one of Fermata's rules away and leaves all
 * others; a promise is then broken in a run from the initial state, which is given step by step. So
 * none of the promises is one that nothing could break, and none of the rules is idle. Three things
 * are not so: without_AttemptsBelow takes the fence away, too; FlagInLog has no run, for it is no
 * rule but the switch to the published events (published.als); and later_value_stays_deep takes
 * nothing away, and shows what without_AdoptionsKeep_later_deep breaks.
 */
module planted

open invariants

/* M5, F5: a leave is called clean although the last put was not acknowledged. */
without_DirtyLeave: run {
  fermataWithout[DirtyLeave]
  some r1, r2: Ref, p: Put, e, f: Entry, g: Get {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p]; put[p];
    sayLeaveClean[r1]; leaveClean[r1];
    enqueue[r2]; entryBegin[f]; entryEnd[f, Start]; enter[r2, Start];
    getBegin[g]; getEnd[g, p]; (not LatestState and not CriticalSection)
  }
} for 2 but 2 Write, 3 Read, 1 Coordinator, 16..16 steps expect 1

/* F5: a leave beside a put counts as clean although a quorum has not stored the put. */
without_PutIsStored: run {
  fermataWithout[PutIsStored]
  some r1, r2: Ref, p: Put, e, f: Entry, g: Get {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p]; put[p];
    sayLeaveDirty[r1]; leaveDirty[r1]; settle[r1];
    enqueue[r2]; entryBegin[f]; entryEnd[f, Start]; enter[r2, Start];
    getBegin[g]; getEnd[g, p]; (not LatestState and not CriticalSection)
  }
} for 2 but 2 Write, 3 Read, 1 Coordinator, 17..17 steps expect 1

/* F1: the synch's read is not a fence. The late put of a holder that was taken for dead is
 * acknowledged, and lost. */
without_Fence: run {
  fermataWithout[Fence]
  some r1, r2: Ref, p: Put, e: Entry, a: Attempt {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p];
    enqueue[r2]; release[r1]; attemptBegin[a]; attemptRead[a, Start, Start];
    put[p]; succeed[p]; ack[p];
    attemptWrite[a]; succeed[a]; attemptGrant[a];
    (not AcknowledgedKept and not LatestState)
  }
} for 2 but 3 Write, 1 Read, 1 Coordinator, 17..17 steps expect 1

/* Exclusivity: without fences, a put that is asked for after the next section has begun succeeds. */
without_Fence_exclusivity: run {
  fermataWithout[Fence]
  some r1, r2: Ref, p: Put, e: Entry, a: Attempt {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start];
    enqueue[r2]; release[r1]; attemptBegin[a]; attemptRead[a, Start, Start];
    attemptWrite[a]; succeed[a]; attemptGrant[a]; enter[r2, Start];
    issue[p]; put[p]; succeed[p]; ack[p]; not Exclusivity
  }
} for 2 but 3 Write, 1 Read, 1 Coordinator, 18..18 steps expect 1

/* M1: a forced release clears the flag that it must set. */
without_ReleaseSetsFlag: run {
  fermataWithout[ReleaseSetsFlag]
  some r1: Ref, p: Put, e: Entry {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p]; put[p];
    release[r1]; not SynchFlag
  }
} for 2 but 2 Write, 1 Read, 1 Ref, 1 Client, 1 Coordinator, 9..9 steps expect 1

/* The same for a leave that is not clean. */
without_HeadFlags: run {
  fermataWithout[HeadFlags]
  some r1: Ref, p: Put, e: Entry {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p]; put[p];
    sayLeaveDirty[r1]; leaveDirty[r1]; not SynchFlag
  }
} for 2 but 2 Write, 1 Read, 1 Ref, 1 Client, 1 Coordinator, 10..10 steps expect 1

/* M3, F4: a synch's tag is not below the puts of its ref, and nothing is fenced. A stale attempt
 * hides an acknowledged put. (With the fence, the later attempt's fence would stop it, or the puts.)
 */
without_AttemptsBelow: run {
  Protocol.rules = Rule - AttemptsBelow - Fence
  some r: Ref, p: Put, a, b: Attempt, g: Get {
    init
    enqueue[r]; attemptBegin[b]; attemptRead[b, Start, Start];
    attemptBegin[a]; attemptRead[a, Start, Start]; attemptWrite[a]; succeed[a]; attemptGrant[a];
    enter[r, Start]; issue[p]; put[p]; succeed[p]; ack[p];
    attemptWrite[b]; succeed[b]; getBegin[g]; getEnd[g, b]; not LatestState
  }
} for 2 but 4 Write, 1 Read, 1 Ref, 1 Client, 1 Coordinator, 20..20 steps expect 1

/* M2: a put that is sent again has another tag. */
without_ClientNumbers: run {
  fermataWithout[ClientNumbers]
  some r: Ref, p, again, q: Put, e: Entry, g: Get {
    init
    enqueue[r]; entryBegin[e]; entryEnd[e, Start]; enter[r, Start];
    issue[p]; put[p]; put[again]; succeed[again]; ack[again];
    issue[q]; put[q]; succeed[q]; ack[q];
    getBegin[g]; succeed[p]; getEnd[g, p]; not LatestState
  }
} for 2 but 4 Write, 2 Read, 1 Ref, 1 Client, 19..19 steps expect 1

/* F18: a synch that is done clears whatever flag is set. */
without_FlagNamed: run {
  fermataWithout[FlagNamed]
  some r1, r2: Ref, p: Put, a: Attempt {
    init
    enqueue[r1]; release[r1]; enqueue[r2]; attemptBegin[a]; attemptRead[a, Start, Start];
    attemptWrite[a]; succeed[a]; attemptGrant[a]; enter[r2, Start]; issue[p]; put[p];
    release[r2]; synchDone[a]; not SynchFlag
  }
} for 2 but 3 Write, 0 Read, 1 Coordinator, 15..15 steps expect 1

/* F18: a put that is done clears whatever flag is set. */
without_FlagNamed_put: run {
  fermataWithout[FlagNamed]
  some r1, r2: Ref, p, q: Put, e: First {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p]; put[p];
    sayLeaveDirty[r1]; leaveDirty[r1]; succeed[p]; settle[r1];
    enqueue[r2]; handOver[r2]; enter[r2, p]; issue[q]; put[q]; release[r2]; putDone[r1];
    not SynchFlag
  }
} for 2 but 3 Write, 1 Read, 1 Coordinator, 19..19 steps expect 1

/* F3a: two enters of an idle key are read ahead; the second one's read outlives the first
 * section. */
without_SpeculationEnds: run {
  fermataWithout[SpeculationEnds]
  some r1, r2: Ref, p: Put, d, e: First {
    init
    readAhead[d]; readAhead[e];
    enqueue[r1]; entryEnd[d, Start]; enter[r1, Start]; issue[p]; put[p]; succeed[p]; ack[p];
    sayLeaveClean[r1]; leaveClean[r1]; enqueue[r2]; entryEnd[e, Start];
    (not LatestState and not AcknowledgedKept)
  }
} for 2 but 2 Write, 2 Read, 1 Coordinator, 17..17 steps expect 1

/* G3: a ref that was never told of its grant leaves cleanly, with a synch of it in flight that
 * adopts an eventual value; the next holder enters with the old one beside it. */
without_UntoldIsDirty: run {
  fermataWithout[UntoldIsDirty]
  some r1, r2: Ref, v: Eventual, a: Attempt, e: Entry, g: Get {
    init
    offer[v]; enqueue[r1]; adoptBegin[a]; attemptRead[a, Start, v]; attemptWrite[a];
    sayLeaveClean[r1]; leaveClean[r1];
    enqueue[r2]; entryBegin[e]; entryEnd[e, Start]; enter[r2, Start];
    getBegin[g]; getEnd[g, a]; not LatestState
  }
} for 2 but 3 Write, 2 Read, 1 Coordinator, 15..15 steps expect 1

/* G1: a primary whose adoption has failed reads plainly, and grants the old value; the adoption is
 * stored somewhere, and a get finds it. */
without_AdoptionSticks: run {
  fermataWithout[AdoptionSticks]
  some r: Ref, v: Eventual, a: Attempt, e: First, g: Get {
    init
    offer[v]; enqueue[r]; adoptBegin[a]; attemptRead[a, Start, v]; attemptWrite[a];
    entryBegin[e]; entryEnd[e, Start]; enter[r, Start];
    getBegin[g]; succeed[a]; getEnd[g, a]; not LatestState
  }
} for 2 but 3 Write, 2 Read, 1 Ref, 1 Client, 1 Coordinator, 14..14 steps expect 1

/* G2: the next primary reads plainly for a head that the one before was adopting for. */
without_InheritedSynchs: run {
  fermataWithout[InheritedSynchs]
  some r: Ref, v: Eventual, a: Attempt, e: Again, g: Get {
    init
    offer[v]; enqueue[r]; adoptBegin[a]; attemptRead[a, Start, v]; attemptWrite[a];
    entryBegin[e]; entryEnd[e, Start]; enter[r, Start];
    getBegin[g]; succeed[a]; getEnd[g, a]; not LatestState
  }
} for 2 but 3 Write, 2 Read, 1 Ref, 1 Client, 1 Coordinator, 14..14 steps expect 1

/* G5: a grant that is prepared again adopts what came later. */
without_AdoptsOnce: run {
  fermataWithout[AdoptsOnce]
  some r: Ref, v: Eventual, a: Attempt, e: First, g: Get {
    init
    enqueue[r]; entryBegin[e]; entryEnd[e, Start]; enter[r, Start];
    offer[v]; adoptBegin[a]; attemptRead[a, Start, v]; attemptWrite[a]; succeed[a];
    getBegin[g]; getEnd[g, a]; not LatestState
  }
} for 2 but 3 Write, 2 Read, 1 Ref, 1 Client, 1 Coordinator, 14..14 steps expect 1

/* A get that finds an own put unfinished, and does not complete it, is followed by one that does
 * not find it. */
without_WriteBack: run {
  fermataWithout[WriteBack]
  some r: Ref, p: Put, e: Entry, g, h: Get {
    init
    enqueue[r]; entryBegin[e]; entryEnd[e, Start]; enter[r, Start]; issue[p]; put[p];
    getBegin[g]; getEnd[g, p]; getBegin[h]; getEnd[h, Start]; not LatestState
  }
} for 2 but 2 Write, 3 Read, 1 Ref, 1 Client, 1 Coordinator, 12..12 steps expect 1

/* F6: an eventual put goes to the critical cell. A replica that has not heard of the section takes
 * it, and the holder finds its value under its feet. */
without_TwoCells: run {
  fermataWithout[TwoCells]
  some r: Ref, v: Eventual, e: Entry, g: Get {
    init
    enqueue[r]; entryBegin[e]; entryEnd[e, Start]; enter[r, Start];
    offer[v]; succeed[v]; getBegin[g]; getEnd[g, v]; not LatestState
  }
} for 2 but 2 Write, 2 Read, 1 Ref, 1 Client, 1 Coordinator, 10..10 steps expect 1

/* G25: a put that all who heard it have refused is taken for one that never was. Its copy comes
 * when the next section has begun. */
without_RefusedIsDoubtful: run {
  fermataWithout[RefusedIsDoubtful]
  some r1, r2: Ref, p, q: Put, e, f: Entry, g: Get {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start];
    issue[p]; put[p]; succeed[p]; ack[p]; issue[q]; sayLeaveClean[r1]; leaveClean[r1];
    enqueue[r2]; entryBegin[f]; entryEnd[f, p]; enter[r2, p];
    put[q]; getBegin[g]; getEnd[g, q]; (not LatestState and not CriticalSection)
  }
} for 2 but 3 Write, 3 Read, 1 Coordinator, 19..19 steps expect 1

/* G15: a leave that was not said to be clean is recorded as clean. */
without_CleanAsSaid: run {
  fermataWithout[CleanAsSaid]
  some r1, r2: Ref, p: Put, e, f: Entry, g: Get {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p]; put[p];
    sayLeaveDirty[r1]; leaveClean[r1];
    enqueue[r2]; entryBegin[f]; entryEnd[f, Start]; enter[r2, Start];
    getBegin[g]; getEnd[g, p]; (not LatestState and not CriticalSection)
  }
} for 2 but 2 Write, 3 Read, 1 Coordinator, 16..16 steps expect 1

/* F4: a fence on the ref alone does not stop another attempt of that ref. One attempt has read the
 * old value, another reads and grants a put; then the first one hides it. */
without_FenceOnTag: run {
  fermataWithout[FenceOnTag]
  some r1, r2: Ref, p: Put, a, b: Attempt, e: Entry, g: Get {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p]; put[p];
    enqueue[r2]; release[r1]; attemptBegin[a]; attemptBegin[b]; attemptRead[b, Start, Start];
    attemptRead[a, p, p]; attemptWrite[a]; succeed[a]; attemptGrant[a]; enter[r2, p];
    attemptWrite[b]; succeed[b]; getBegin[g]; getEnd[g, b]; not LatestState
  }
} for 2 but 4 Write, 2 Read, 1 Coordinator, 22..22 steps expect 1

/* G23: the log declines an enqueue; what was read ahead for it serves its repetition, after a
 * section in between. */
without_ReadsByOp: run {
  fermataWithout[ReadsByOp]
  some r1, r2: Ref, p: Put, d, e, f: First {
    init
    readAhead[d]; decline[d];
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start];
    issue[p]; put[p]; succeed[p]; ack[p]; sayLeaveClean[r1]; leaveClean[r1];
    readAhead[f]; enqueue[r2]; entryEnd[d, Start]; (not LatestState and not AcknowledgedKept)
  }
} for 2 but 2 Write, 3 Read, 1 Coordinator, 17..17 steps expect 1

/* G24: who stores an adoption drops the eventual value, as if its section had written. The next
 * primary settles what was there before, and grants that. */
without_AdoptionsKeep: run {
  fermataWithout[AdoptionsKeep]
  some r: Ref, v: Eventual, a, b: Attempt {
    init
    offer[v]; enqueue[r]; adoptBegin[a]; attemptRead[a, Start, v]; attemptWrite[a]; drop[v];
    attemptBegin[b]; attemptRead[b, Start, Start]; attemptWrite[b]; succeed[b]; attemptGrant[b];
    not EventualKept
  }
} for 2 but 4 Write, 0 Read, 1 Ref, 1 Client, 1 Coordinator, 13..13 steps expect 1

/* And one that is later than what was adopted. */
without_AdoptionsKeep_later_deep: run {
  fermataWithout[AdoptionsKeep]
  some r: Ref, v, later: Eventual, a: Attempt {
    init
    offer[v]; offer[later]; enqueue[r];
    adoptBegin[a]; attemptRead[a, Start, v]; attemptWrite[a]; succeed[a]; attemptGrant[a];
    drop[later]; (v != later and not EventualKept)
  }
} for 2 but 4 Write, 0 Read, 1 Ref, 1 Client, 1 Coordinator, 11..11 steps expect 1

/* With all rules the later value stays, and the next section adopts it. */
later_value_stays_deep: run {
  fermata
  some r1, r2: Ref, disj v, later: Eventual, a, b: Attempt {
    init
    offer[v]; offer[later]; enqueue[r1];
    adoptBegin[a]; attemptRead[a, Start, v]; attemptWrite[a]; succeed[a]; attemptGrant[a];
    drop[v]; release[r1]; enqueue[r2]; adoptBegin[b]; attemptRead[b, a, later]; invariant
  }
} for 2 but 5 Write, 0 Read, 1 Coordinator, 14..14 steps expect 1
