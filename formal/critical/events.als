/*
 * Critical sections: the initial state, and what can happen. Each event is a predicate: when it can
 * happen, and what it changes. `keep…` say what stays.
 */
module events

open state

/* ---- what stays ---- */

pred keepQueue {
  used' = used and queued' = queued and clean' = clean and dirty' = dirty and resumed' = resumed
}
pred keepRegisters { flagSet' = flagSet and flagReset' = flagReset }
pred keepLock { keepQueue and flag' = flag and keepRegisters }
pred keepPeek { peek' = peek }
pred keepGrants { granted' = granted }
pred keepSections {
  entered' = entered and closed' = closed and sayClean' = sayClean and sayDirty' = sayDirty
}
pred keepPuts { issued' = issued and acked' = acked and latePut' = latePut }
pred keepClients { keepSections and keepPuts }
pred keepData {
  attempted' = attempted and succeeded' = succeeded and doomed' = doomed and keepEventual
}
pred keepEventual { offered' = offered and dropped' = dropped }
pred keepAttempts {
  began' = began and found' = found and carries' = carries
  clears' = clears and adopting' = adopting and done' = done and ready' = ready
}
pred keepEntries { keepEntryFloors and ahead' = ahead and forgotten' = forgotten }
pred keepEntryFloors { Entry <: floor' = Entry <: floor }
pred keepGets {
  Get <: floor' = Get <: floor
  shows' = shows and result' = result and answered' = answered and lateGet' = lateGet
}
pred keepReads { keepEntries and keepGets }
pred keepTruth { truth' = truth }

/* ---- in the beginning ---- */

pred init {
  no used and no queued and no clean and no dirty
  no flag and no flagSet and no flagReset and no peek and no granted
  no entered and no closed and no sayClean and no sayDirty
  no issued and no acked and no latePut
  attempted = Start and succeeded = Start and no doomed
  no began and no found and no carries and no clears
  no adopting and no done and no ready and no resumed and no offered and no dropped
  no floor and no ahead and no forgotten and no shows and no result and no answered and no lateGet
  truth = Start
}

/* ---- the lock store ---- */

/* What was read ahead for a key that a command touches is forgotten (F3). The read goes on. */
pred cancelAhead {
  on[SpeculationEnds] => {
    no ahead'
    forgotten' = forgotten + ahead
    keepEntryFloors
  } else keepEntries
}

/* createLockRef; `enter`. The ref is the command's position: above all that were given. What was
 * read ahead for this very command may be used if the key is idle by its apply. */
pred enqueue[r: Ref] {
  r not in used
  all u: used | earlier[u, r]
  all u: used | u.owner = r.owner implies u in closed
  resumed' = resumed
  used' = used + r
  queued' = queued + r
  let kept = { e: ahead | e.reader = r and no queued and no standing } {
    on[SpeculationEnds] => {
      no ahead'
      forgotten' = forgotten + (ahead - kept)
    } else {
      ahead' = { e: ahead | e.reader != r }
      forgotten' = forgotten
    }
  }
  keepEntryFloors
  clean' = clean and dirty' = dirty and flag' = flag
  keepRegisters and keepPeek and keepGrants and keepClients and keepData
  keepAttempts and keepGets and keepTruth
}

/* A primary's log does not take an enqueue, which its client may repeat, perhaps at another one: what
 * was read ahead for it there is forgotten, and goes on. */
pred decline[e: First] {
  on[FlagInLog]
  e in ahead
  ahead' = ahead - e
  forgotten' = forgotten + e
  keepEntryFloors and keepGets
  keepLock and keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepTruth
}

/* A ref leaves the queue without a flag, stating the tag of its holder's last write (`handed`). */
pred leaveClean[r: Ref] {
  r in queued & (on[CleanAsSaid] => sayClean else sayClean + sayDirty)
  resumed' = resumed
  used' = used
  queued' = queued - r
  clean' = clean + r
  dirty' = dirty
  flag' = flag
  keepRegisters
  cancelAhead
  keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepGets and keepTruth
}

/* What a removal without a clean word does to the flag: set in the very command, if the ref was
 * head, for then something may be in flight in its name. */
pred flagBy[r: Ref] {
  r = head => {
    dirty' = dirty + r
    flag' = (on[HeadFlags] => r else flag)
  } else {
    dirty' = dirty
    flag' = flag
  }
}

/* A ref leaves the queue by its client's word, which does not say that all is acknowledged. */
pred leaveDirty[r: Ref] {
  on[FlagInLog]
  r in queued & sayDirty
  resumed' = resumed
  used' = used
  queued' = queued - r
  clean' = clean
  flagBy[r]
  keepRegisters
  cancelAhead
  keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepGets and keepTruth
}

/* A forced release. Nothing is assumed about why: its client may live. */
pred release[r: Ref] {
  on[FlagInLog]
  r in queued
  resumed' = resumed
  used' = used
  queued' = queued - r
  clean' = clean
  on[ReleaseSetsFlag] => flagBy[r] else {
    dirty' = dirty + (r & head)
    no flag'
  }
  keepRegisters
  cancelAhead
  keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepGets and keepTruth
}

/* The section of r goes on as a new generation s, above the old one and below all that wait behind.
 * One that waits itself leaves no flag, and its head is a first one. */
pred resume[r, s: Ref] {
  on[FlagInLog]
  r in queued
  s not in used and earlier[r, s]
  s.owner = r.owner
  all q: used | earlier[r, q] implies earlier[s, q]
  resumed' = resumed + (r = head => s else none)
  used' = used + s
  queued' = queued - r + s
  clean' = clean
  flagBy[r]
  keepRegisters
  cancelAhead
  keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepGets and keepTruth
}

/* The flag is cleared, once a synch that began under it has succeeded. */
pred synchDone[a: Attempt] {
  on[FlagInLog]
  a in done
  some a.clears
  some flag
  on[FlagNamed] implies a.clears = flag
  no flag'
  keepQueue and keepRegisters
  cancelAhead
  keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepGets and keepTruth
}

/* A holder has left beside its last put, and a quorum has that by now, as its coordinator tells the
 * primary: it has left cleanly after all. */
pred settle[r: Ref] {
  on[FlagInLog]
  r in flag & dirty & sayDirty & entered
  some issued & ref.r
  on[PutIsStored] implies highest[issued & ref.r] in succeeded
  clean' = clean + r
  dirty' = dirty - r
  sayClean' = sayClean + r
  sayDirty' = sayDirty - r
  used' = used and queued' = queued and resumed' = resumed and flag' = flag
  entered' = entered and closed' = closed
  keepRegisters and keepPuts
  keepPeek and keepGrants and keepData and keepAttempts and keepReads and keepTruth
}

/* Its flag is cleared, and no other (F18). Nothing that is read changes by it, so that what was read
 * ahead stays. */
pred putDone[r: Ref] {
  on[FlagInLog]
  on[FlagNamed] => r in flag & clean else r in clean and some flag
  no flag'
  keepQueue and keepRegisters
  keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepReads and keepTruth
}

/* A coordinator's lock replica has caught up. */
pred learn[c: Coordinator] {
  peek' = peek ++ c -> head
  keepLock and keepGrants and keepClients and keepData and keepAttempts and keepReads and keepTruth
}

/* ---- grants ---- */

/* While its enqueue is being agreed, the value is read for an idle key. A deposed primary may not have
 * applied what has come since, the enqueue among it: it will not, before it has forgotten the read. */
pred readAhead[e: First] {
  on[FlagInLog]
  no e.floor
  floor' = floor + e -> top
  (e.reader in used or some queued or some standing) => {
    ahead' = ahead
    forgotten' = forgotten + e
  } else {
    ahead' = ahead + e
    forgotten' = forgotten
  }
  keepGets
  keepLock and keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepTruth
}

/* The head's value is read for its grant. The primary that saw it become head reads where the flag
 * is clear, unless it has begun to adopt (G1). What is read again needs a grant that is complete:
 * a later primary has synched (G2), the first has granted, and only the push may be lost. */
pred entryBegin[e: Entry] {
  on[FlagInLog]
  e.reader in heads
  e in First => {
    unflagged[e.reader]
    on[AdoptionSticks] implies no adopting & ref.(e.reader)
  } else on[InheritedSynchs] implies e.reader in ready + done.ref
  no e.floor
  floor' = floor + e -> top
  ahead' = ahead and forgotten' = forgotten
  keepGets
  keepLock and keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepTruth
}

/* Its quorum has answered, some time since; w is what it found, and it has seen no newer eventual
 * value, or must not adopt it. Of a later ref it is refused, but not of a later generation: a read
 * ahead names none. It is granted if this very read is waited for, not another one of the same request
 * (G23): `to` the read's ref, or else to nobody. */
pred entryEnd[e: Entry, w: Write] {
  some e.floor
  e not in ahead
  w in attempted
  upTo[e.floor, w]
  noLater[e.reader, w]
  let named = { d: First - forgotten - ahead | some d.floor and d.reader = e.reader },
      counts = e not in forgotten or (not on[ReadsByOp] and some named),
      to = (counts => e.reader else none) {
    granted' = granted + to -> value[w]
    ready' = ready + (e in First => to else none)
  }
  floor' = floor - e -> e.floor
  ahead' = ahead and forgotten' = forgotten - e
  keepAttemptsBut
  keepGets
  keepLock and keepPeek and keepClients and keepData and keepTruth
}

/* All of attempts stays but `ready`. */
pred keepAttemptsBut {
  began' = began and found' = found and carries' = carries
  clears' = clears and adopting' = adopting and done' = done
}

/* The word of the holder before names the value's tag: who saw the ref become head, and does not
 * adopt, grants a copy of exactly that tag at once. */
pred handOver[r: Ref] {
  on[FlagInLog]
  r in heads
  unflagged[r]
  some handed[r]
  no adopting & ref.r
  granted' = granted + r -> handed[r]
  ready' = ready + r
  keepAttemptsBut
  keepLock and keepPeek and keepClients and keepData and keepReads and keepTruth
}

/* The flag that a synch sees: for the head the one that stands, for one that was head the one that
 * those before it had left, or none. */
pred seesFlag[a: Attempt] {
  a.ref = head => clears' = clears + a -> flag else {
    clears' = clears or clears' = clears + a -> last[dirty & { d: Ref | earlier[d, a.ref] }]
  }
}

/* A synch begins for the head, or for what is the head to a deposed primary. It may be needed or
 * not, and others may be under way. Its tag is above those of the first primary's ballot. */
pred attemptBegin[a: Attempt] {
  on[FlagInLog]
  a not in began
  a.ref in heads
  all b: adopting & ref.(a.ref) | below[b, a]
  began' = began + a
  seesFlag[a]
  found' = found and carries' = carries
  adopting' = adopting and done' = done and ready' = ready
  keepLock and keepPeek and keepGrants and keepClients and keepData and keepReads and keepTruth
}

/* The primary that saw its ref become head, and has granted nothing yet, begins a synch that
 * adopts a newer eventual value, and reads plainly no more: nobody waits for its reads. It does so
 * again when one has failed. */
pred adoptBegin[a: Attempt] {
  on[FlagInLog]
  a not in began
  a.ref in heads
  a.ref not in resumed
  on[AdoptsOnce] implies a.ref not in ready
  all b: began & ref.(a.ref) | b in adopting => below[b, a] else below[a, b]
  began' = began + a
  adopting' = adopting + a
  seesFlag[a]
  found' = found and carries' = carries and done' = done and ready' = ready
  forgotten' = forgotten + { e: First & floor.Write | e.reader = a.ref }
  ahead' = ahead
  keepEntryFloors and keepGets
  keepLock and keepPeek and keepGrants and keepClients and keepData and keepTruth
}

/* Its quorum has answered and, with the fence, refuses from now on what is below its tag. What the
 * quorum has not shown can therefore never succeed. v is what it will write: what it found, or a
 * newer eventual value, if it adopts and has seen one. */
pred attemptRead[a: Attempt, f: Write, v: Value] {
  a in began
  no a.found
  f in attempted
  on[AttemptsBelow] => {
    below[f, a]
    all s: succeeded | below[s, a] implies upTo[s, f]
  } else upTo[top, f]
  v != value[f] implies a in adopting and v in offered and newerThan[v, f]
  found' = found + a -> f
  carries' = carries + a -> v
  began' = began and clears' = clears
  adopting' = adopting and done' = done and ready' = ready
  attempted' = attempted and succeeded' = succeeded and keepEventual
  doomed' = doomed +
    (on[Fence] => { x: attempted - succeeded | below[f, x] and fences[a, x] } else none)
  keepLock and keepPeek and keepGrants and keepClients and keepReads and keepTruth
}

/* It sends its write. Below a fence, or below what has succeeded, it is refused. */
pred attemptWrite[a: Attempt] {
  some a.found
  a not in attempted
  laterClock[a]
  attempted' = attempted + a
  succeeded' = succeeded and keepEventual
  let refused = on[Fence] and (fencedAbove[a] or some s: succeeded | below[a, s]) {
    doomed' = doomed + (refused => a else none)
  }
  keepLock and keepPeek and keepGrants and keepClients and keepAttempts and keepReads and keepTruth
}

/* Only an attempt whose own write has succeeded grants, and of the first primary's only the last,
 * for it has given up the others. */
pred attemptGrant[a: Attempt] {
  on[FlagInLog]
  a in succeeded
  a in adopting implies a = adopter[a.ref]
  granted' = granted + a.ref -> a.carries
  done' = done + a
  ready' = ready + (a in adopting => a.ref else none)
  began' = began and found' = found and carries' = carries
  clears' = clears and adopting' = adopting
  keepLock and keepPeek and keepClients and keepData and keepReads and keepTruth
}

/* ---- the data store ---- */

/* A clock does not go back at one coordinator; it says nothing of another's. */
pred laterClock[w: Write] {
  not on[AttemptsBelow] implies
    all x: attempted | x.at = w.at and x.ref = w.ref implies below[x, w]
}

/* An eventual put is taken by a replica in whose state the key is free. */
pred offer[e: Eventual] {
  on[FlagInLog]
  e not in offered
  e.ref in used
  all q: queued | some e.ref and earlier[e.ref, q] or no e.ref
  offered' = offered + e
  dropped' = dropped
  attempted' = (on[TwoCells] => attempted else attempted + e)
  succeeded' = succeeded and doomed' = doomed
  keepLock and keepPeek and keepGrants and keepClients and keepAttempts and keepReads and keepTruth
}

/* The last replica that has an eventual value drops it: for a newer one, or a section's write. */
pred drop[e: Eventual] {
  on[FlagInLog]
  e in offered - dropped
  (some x: offered - dropped | below[e, x]) or some w: attempted | outranks[w, e]
  dropped' = dropped + e
  offered' = offered and attempted' = attempted and succeeded' = succeeded and doomed' = doomed
  keepLock and keepPeek and keepGrants and keepClients and keepAttempts and keepReads and keepTruth
}

/* A quorum has stored it, and its coordinator knows. */
pred succeed[w: Write] {
  w in attempted - succeeded - doomed
  succeeded' = succeeded + w
  attempted' = attempted and doomed' = doomed and keepEventual
  keepLock and keepPeek and keepGrants and keepClients and keepAttempts and keepReads and keepTruth
}

/* ---- clients ---- */

/* A client is told its grant, and that its section begins. As published it is not told a value. */
pred enter[r: Ref, v: Value] {
  on[FlagInLog]
  v in r.granted
  r not in entered + closed
  entered' = entered + r
  truth' = (superseded[r] => truth else v)
  closed' = closed and sayClean' = sayClean and sayDirty' = sayDirty
  keepPuts
  keepLock and keepPeek and keepGrants and keepData and keepAttempts and keepReads
}

/* Inside: it may issue requests, whatever has happened meanwhile without its knowing. */
fun inside: set Ref { entered - closed }

/* criticalPut, asked for. Clients of MUSIC wait for one before the next. */
pred issue[p: Put] {
  p.ref in inside
  p not in issued
  no p.copyOf
  on[ClientNumbers] implies all q: issued & ref.(p.ref) | below[q, p]
  not on[ClientNumbers] implies issued & ref.(p.ref) in acked
  issued' = issued + p
  acked' = acked
  superseded[p.ref] => {
    latePut' = latePut + p
    truth' = truth
    shows' = shows
  } else {
    latePut' = latePut
    truth' = truth + p
    shows' = shows + { g: Get | some g.floor and g.reader = p.ref } -> p
  }
  floor' = floor and ahead' = ahead and forgotten' = forgotten
  result' = result and answered' = answered and lateGet' = lateGet
  keepSections and keepLock and keepPeek and keepGrants and keepData and keepAttempts
}

/* A coordinator sends a put to the data store, the first time or again. As published it looks at
 * its lock replica first; here nothing depends on that. Replicas refuse what is below a fence, and
 * puts of a section below another's tag. */
pred put[p: Put] {
  (p.copyOf + p) & issued != none
  p not in attempted
  not on[FlagInLog] implies p.at.peek = p.ref
  not on[ClientNumbers] implies laterClock[p]
  attempted' = attempted + p
  succeeded' = succeeded and keepEventual
  let refused = on[Fence] and
      (fencedAbove[p] or some s: succeeded | earlier[p.ref, s.ref]) {
    doomed' = doomed + (refused => p else none)
  }
  keepLock and keepPeek and keepGrants and keepClients and keepAttempts and keepReads and keepTruth
}

/* Its client hears that it has succeeded, perhaps after it has said that it is done. */
pred ack[p: Put] {
  p in succeeded
  let v = value[p] {
    v in issued - acked
    p.ref in entered
    acked' = acked + v
    truth' = (p.ref = latest => truth & (v + newer[v]) else truth)
  }
  issued' = issued and latePut' = latePut
  keepSections
  keepLock and keepPeek and keepGrants and keepData and keepAttempts and keepReads
}

/* Puts of the last section that are newer than this value: asked for after it, or, if it is not of
 * this section, all. */
fun newer[v: Value]: set Put {
  { q: issued & ref.latest |
    on[ClientNumbers] => (below[v, q] or v in Eventual) else (q not in acked and q != v) }
}

/* criticalGet, asked for. A replica that knows a later ref refuses, once a quorum knows it. */
pred getBegin[g: Get] {
  g.reader in inside
  no g.floor and g not in answered
  not on[ClientNumbers] implies issued & ref.(g.reader) in acked
  on[Fence] implies no s: succeeded | earlier[g.reader, s.ref]
  on[Fence] implies no b: Attempt | some b.found and earlier[g.reader, b.ref]
  floor' = floor + g -> top
  shows' = shows + g -> truth
  lateGet' = lateGet + (superseded[g.reader] => g else none)
  result' = result and answered' = answered
  keepEntries
  keepLock and keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepTruth
}

/* Its quorum has answered, some time since. An own put that it finds unfinished it completes. */
pred getEnd[g: Get, w: Write] {
  some g.floor
  g.reader in inside
  w in attempted
  upTo[g.floor, w]
  on[Fence] implies (no w.ref or not earlier[g.reader, w.ref])
  on[WriteBack] and w.ref = g.reader implies w in succeeded
  floor' = floor - g -> g.floor
  answered' = answered + g
  lateGet' = lateGet and shows' = shows
  g.reader = latest => {
    result' = result + g -> value[w]
    truth' = truth & (value[w] + newer[value[w]])
  } else {
    result' = result
    truth' = truth
  }
  keepEntries
  keepLock and keepPeek and keepGrants and keepClients and keepData and keepAttempts
}

/* A client says that it is done and that its last put was acknowledged. What it has never sent was
 * not issued here, and does not count; what was sent counts although all that were asked have
 * refused it, for a copy of the message may come when there is room again (G25). */
pred sayLeaveClean[r: Ref] {
  r in used - closed
  on[UntoldIsDirty] implies r in entered
  let own = issued & ref.r, counting = (on[RefusedIsDoubtful] => own else own & attempted) |
    on[DirtyLeave] implies highest[counting] in acked
  sayClean' = sayClean + r
  closed' = closed + r
  entered' = entered and sayDirty' = sayDirty
  keepPuts
  keepLock and keepPeek and keepGrants and keepData and keepAttempts and keepReads and keepTruth
}

/* A client says that it is done. */
pred sayLeaveDirty[r: Ref] {
  on[FlagInLog]
  r in used - closed
  sayDirty' = sayDirty + r
  closed' = closed + r
  entered' = entered and sayClean' = sayClean
  keepPuts
  keepLock and keepPeek and keepGrants and keepData and keepAttempts and keepReads and keepTruth
}

/* A client is told that its ref is past, or dies. */
pred close[r: Ref] {
  r in used - closed
  closed' = closed + r
  entered' = entered and sayClean' = sayClean and sayDirty' = sayDirty
  keepPuts
  keepLock and keepPeek and keepGrants and keepData and keepAttempts and keepReads and keepTruth
}

/* ---- as published ---- */

abstract sig Bit {}
one sig Yes, No extends Bit {}

/* What a quorum read of the flag may return. A forced release of r writes it above an acquire's of
 * r, by δ. With M1 it writes false. */
pred flagReads[true: Bit] {
  let sets = flagSet, clears = flagReset |
    true = Yes => {
      on[ReleaseSetsFlag]
      some s: sets | no c: clears | earlier[s, c]
    } else {
      not on[ReleaseSetsFlag] or no sets or some c: clears | no s: sets | not earlier[s, c]
    }
}


/* acquireLock by which the client enters at once: the flag is false. */
pred acquire[r: Ref, c: Coordinator] {
  not on[FlagInLog]
  c.peek = r
  r not in closed + entered
  flagReads[No]
  entered' = entered + r
  closed' = closed and sayClean' = sayClean and sayDirty' = sayDirty
  keepPuts
  keepLock and keepPeek and keepGrants and keepData and keepAttempts and keepReads and keepTruth
}

/* acquireLock, asked for once more or not, at a coordinator that finds the flag true. */
pred acquireSynch[a: Attempt] {
  not on[FlagInLog]
  a.at.peek = a.ref
  a not in began
  a.ref not in closed + entered
  flagReads[Yes]
  began' = began + a
  found' = found and carries' = carries and clears' = clears
  adopting' = adopting and done' = done and ready' = ready
  keepLock and keepPeek and keepGrants and keepClients and keepData and keepReads and keepTruth
}

/* Its value is written; it writes the flag back, and the client enters unless it has before. */
pred acquireDone[a: Attempt] {
  not on[FlagInLog]
  a in succeeded
  flagReset' = flagReset + a.ref
  flagSet' = flagSet
  entered' = entered + (a.ref - closed)
  closed' = closed and sayClean' = sayClean and sayDirty' = sayDirty
  keepQueue and flag' = flag
  keepPuts
  keepPeek and keepGrants and keepData and keepAttempts and keepReads and keepTruth
}

/* forcedRelease, at a coordinator to whose lock replica the ref is not past: first the flag … */
pred forceFlag[r: Ref, c: Coordinator] {
  not on[FlagInLog]
  some c.peek and not earlier[r, c.peek]
  r in used
  flagSet' = flagSet + r
  flagReset' = flagReset
  keepQueue and flag' = flag
  keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepReads and keepTruth
}

/* … and then the queue. */
pred forceDequeue[r: Ref] {
  not on[FlagInLog]
  r in queued & flagSet
  resumed' = resumed
  used' = used
  queued' = queued - r
  clean' = clean
  dirty' = dirty + r
  flag' = flag and keepRegisters
  keepPeek and keepGrants and keepClients and keepData and keepAttempts and keepReads and keepTruth
}

/* ---- all ---- */

pred nothing {
  keepLock and keepPeek and keepGrants and keepClients and keepData
  keepAttempts and keepReads and keepTruth
}

pred someEvent {
  (some r: Ref {
    enqueue[r] or leaveClean[r] or leaveDirty[r] or release[r] or handOver[r]
    or sayLeaveClean[r] or sayLeaveDirty[r] or close[r] or forceDequeue[r]
    or settle[r] or putDone[r]
    or (some s: Ref | resume[r, s])
    or (some v: Value | enter[r, v])
    or (some c: Coordinator | acquire[r, c] or forceFlag[r, c])
  })
  or (some c: Coordinator | learn[c])
  or (some a: Attempt {
    synchDone[a] or attemptBegin[a] or attemptWrite[a] or attemptGrant[a]
    or acquireSynch[a] or acquireDone[a]
    or adoptBegin[a] or (some f: Write, v: Value | attemptRead[a, f, v])
  })
  or (some e: First | readAhead[e] or decline[e])
  or (some e: Entry { entryBegin[e] or (some w: Write | entryEnd[e, w]) })
  or (some w: Write | succeed[w])
  or (some e: Eventual | offer[e] or drop[e])
  or (some p: Put { issue[p] or put[p] or ack[p] })
  or (some g: Get { getBegin[g] or (some w: Write | getEnd[g, w]) })
}
