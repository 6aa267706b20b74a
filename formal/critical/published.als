/*
 * Critical sections: the published algorithms, and the faults that they have.
 *
 * The algorithms are the paper's pseudo-code, with none of Fermata's rules in force; where the
 * prose contradicts the code (M1: what a forced release writes), the later faults are shown with the
 * prose. Each fault is asked for twice. By its schedule, step by step, which is short, and shows
 * the run that docs/formal.md tells. And by its symptom alone (`…_found_deep`): a get returns what
 * is not the true value, in any run of that many steps, in which only that does not happen which
 * another of the faults needs. `…_refused` play the schedules with Fermata's rules and events, up to
 * the first step that these do not let happen.
 */
module published

open events

/* A get that returns what is not the true value. */
pred wrongGet { some g: Get | some g.result - g.shows }

/* A forced release writes `false`, as in the pseudo-code, or `true`, as the prose says. With the
 * former nobody ever synchs, so that M3 and F1 need the latter; M5 does not depend on it. */
pred asInCode { published }
pred asInProse { Protocol.rules = ReleaseSetsFlag }
pred runs { init and always (someEvent or nothing) }

pred neverForced { always no flagSet }
pred putsAtOneCoordinator { no copyOf }
pred neverAgain { all a, b: Attempt | a = b }
pred leavesAcknowledged { always all r: sayClean | issued & ref.r in acked }

/* M1. A forced release writes `false`: the next holder does not synch, and finds the old value, and
 * then the put of the one before. */
M1: run {
  asInCode
  some r1, r2: Ref, c: Coordinator, p: Put, g, h: Get {
    init
    enqueue[r1]; learn[c]; acquire[r1, c]; issue[p]; put[p];
    enqueue[r2]; forceFlag[r1, c]; forceDequeue[r1]; learn[c]; acquire[r2, c];
    getBegin[g]; getEnd[g, Start]; getBegin[h]; getEnd[h, p]; wrongGet
  }
} for 2 but 2 Write, 2 Read, 1 Coordinator, 17..17 steps expect 1

/* M2. A put is sent again through a coordinator whose clock is behind: the next put, acknowledged,
 * lies below the first transmission. */
M2: run {
  asInCode
  some r: Ref, c, d: Coordinator, p, again, q: Put, g: Get {
    init
    enqueue[r]; learn[c]; learn[d]; acquire[r, d];
    issue[p]; put[p]; put[again]; succeed[again]; ack[again];
    issue[q]; put[q]; succeed[q]; ack[q];
    getBegin[g]; getEnd[g, p]; wrongGet
  }
} for 2 but 4 Write, 1 Read, 1 Ref, 1 Client, 18..18 steps expect 1

/* M3. acquireLock is sent again; the first one goes on later and writes the old value above the
 * holder's put. */
M3: run {
  asInProse
  some r: Ref, c: Coordinator, first, again: Attempt, p: Put, g: Get {
    init
    enqueue[r]; learn[c]; forceFlag[r, c];
    acquireSynch[first]; attemptRead[first, Start, Start];
    acquireSynch[again]; attemptRead[again, Start, Start];
    attemptWrite[again]; succeed[again]; acquireDone[again];
    issue[p]; put[p]; succeed[p]; ack[p];
    attemptWrite[first]; getBegin[g]; getEnd[g, first]; wrongGet
  }
} for 2 but 4 Write, 1 Read, 1 Ref, 1 Client, 1 Coordinator, 20..20 steps expect 1

/* M5. A normal release after a put that was not acknowledged. */
M5: run {
  asInProse
  some r1, r2: Ref, c: Coordinator, p: Put, g, h: Get {
    init
    enqueue[r1]; learn[c]; acquire[r1, c]; issue[p]; put[p]; sayLeaveClean[r1];
    enqueue[r2]; leaveClean[r1]; learn[c]; acquire[r2, c];
    getBegin[g]; getEnd[g, Start]; getBegin[h]; getEnd[h, p]; wrongGet
  }
} for 2 but 2 Write, 2 Read, 1 Coordinator, 17..17 steps expect 1

/* F1. A holder that is wrongly taken for dead: its put is acknowledged between the read and the
 * write of the next one's synch, and is lost. */
F1: run {
  asInProse
  some r1, r2: Ref, c, d: Coordinator, p: Put, a: Attempt, g: Get {
    init
    enqueue[r1]; learn[c]; acquire[r1, c]; issue[p];
    enqueue[r2]; forceFlag[r1, c]; forceDequeue[r1]; learn[d];
    acquireSynch[a]; attemptRead[a, Start, Start];
    put[p]; succeed[p]; ack[p];
    attemptWrite[a]; succeed[a]; acquireDone[a];
    getBegin[g]; getEnd[g, a]; wrongGet
  }
} for 2 but 3 Write, 1 Read, 21..21 steps expect 1

/* M1: the next holder does not get by without a synch. */
M1_refused: run {
  fermata
  some r1, r2: Ref, p: Put, e: Entry, f: First {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p]; put[p];
    enqueue[r2]; release[r1]; entryBegin[f]; f.reader = r2
  }
} for 2 but 2 Write, 2 Read, 1 Coordinator, 10..10 steps expect 0

/* M2: a put has no second tag. */
M2_refused: run {
  fermata
  some r: Ref, p, again: Put, e: Entry {
    init
    enqueue[r]; entryBegin[e]; entryEnd[e, Start]; enter[r, Start]; issue[p]; put[p]; put[again];
    again.copyOf = p
  }
} for 2 but 3 Write, 1 Read, 1 Ref, 1 Client, 8..8 steps expect 0

/* M3: the stale synch lies below the holder's put, and nobody reads it. */
M3_refused: run {
  fermata
  some r: Ref, first, again: Attempt, p: Put, g: Get {
    init
    enqueue[r]; attemptBegin[first]; attemptRead[first, Start, Start];
    attemptBegin[again]; attemptRead[again, Start, Start];
    attemptWrite[again]; succeed[again]; attemptGrant[again]; enter[r, Start];
    issue[p]; put[p]; succeed[p]; ack[p];
    attemptWrite[first]; getBegin[g]; getEnd[g, first]
  }
} for 2 but 4 Write, 1 Read, 1 Ref, 1 Client, 1 Coordinator, 17..17 steps expect 0

/* M5: who has a put that was not acknowledged does not say that its leave is clean. */
M5_refused: run {
  fermata
  some r1: Ref, p: Put, e: Entry {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p]; put[p];
    sayLeaveClean[r1]
  }
} for 2 but 2 Write, 1 Read, 1 Coordinator, 8..8 steps expect 0

/* F1: the fence refuses the late put. */
F1_refused: run {
  fermata
  some r1, r2: Ref, p: Put, e: Entry, a: Attempt {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p];
    enqueue[r2]; release[r1]; attemptBegin[a]; attemptRead[a, Start, Start];
    put[p]; succeed[p]; a.ref = r2
  }
} for 2 but 3 Write, 1 Read, 1 Coordinator, 12..12 steps expect 0

M1_found_deep: run {
  asInCode and runs and putsAtOneCoordinator and leavesAcknowledged and eventually wrongGet
} for 2 but 3 Write, 1 Put, 2 Get, 0 Entry, 0 Eventual, 1 Coordinator, 17..17 steps expect 1

M2_found_deep: run {
  asInCode and runs and neverForced and leavesAcknowledged and eventually wrongGet
} for 2 but 4 Write, 1 Ref, 1 Get, 0 Entry, 0 Eventual, 1 Client, 18..18 steps expect 1

M3_found_deep: run {
  asInProse and runs and putsAtOneCoordinator and leavesAcknowledged and eventually wrongGet
} for 2 but 4 Write, 1 Ref, 1 Get, 0 Entry, 0 Eventual, 1 Coordinator, 20..20 steps expect 1

M5_found_deep: run {
  asInProse and runs and neverForced and putsAtOneCoordinator and eventually wrongGet
} for 2 but 3 Write, 1 Put, 2 Get, 0 Entry, 0 Eventual, 1 Coordinator, 17..17 steps expect 1

F1_found_deep: run {
  asInProse and runs and putsAtOneCoordinator and leavesAcknowledged and neverAgain
  eventually wrongGet
} for 2 but 3 Write, 1 Put, 1 Attempt, 1 Get, 0 Entry, 0 Eventual, 21..21 steps expect 1

