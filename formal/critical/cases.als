/*
 * Critical sections: cases of events that the simulator's traces must meet.
 *
 * That an event occurs says little of how: a mapping that has lost every read of a deposed primary
 * still shows reads. So here is said in which ways events are to occur. Each case is a predicate
 * EVENT_case with the event's arguments, and is met by a step of that event if it holds of the state
 * before and the state after. `cargo xtask formal traces` counts, and fails where a case is met by no
 * step. Nothing is proved of these.
 */
module cases

open invariants

/* Puts of a ref whose client does not know what has become of them. */
fun doubtful[r: Ref]: set Put { issued & ref.r - acked }

/* Reads for this ref's grant that nobody waits for any more. */
fun cancelled[r: Ref]: set First { forgotten & reader.r }

/* What was read ahead serves the ref at once; or is cancelled, for another has come before. */
pred enqueue_served[r: Ref] { some ahead & reader.r - forgotten' }
pred enqueue_cancels[r: Ref] { some ahead & forgotten' }
pred enqueue_waits[r: Ref] { some queued }
pred enqueue_flagged[r: Ref] { no queued and some flag }

/* Who leaves cleanly hands its value to who waits; or has written nothing. */
pred leaveClean_hands[r: Ref] { some queued - r and some issued & ref.r }
pred leaveClean_unwritten[r: Ref] { no issued & ref.r }
pred leaveDirty_doubt[r: Ref] { some doubtful[r] }
pred leaveDirty_untold[r: Ref] { r = head and r not in entered }
pred release_living[r: Ref] { r in entered - closed }
pred release_doubt[r: Ref] { some doubtful[r] }
pred release_waiting[r: Ref] { r != head }
pred release_ungranted[r: Ref] { r = head and no r.granted }
pred resume_doubt[r, s: Ref] { some doubtful[r] }

/* Somebody waits for its put; or is granted by its word before the flag is cleared. */
pred settle_waited[r: Ref] { some queued }
pred putDone_granted[r: Ref] { some head.granted }

/* An attempt before this one has not come to an end. */
pred synchDone_secondAttempt[a: Attempt] { some b: began - done | b.ref = a.ref and below[b, a] }

/* A deposed primary takes an enqueue for a key that is free to it alone. */
pred readAhead_deposed[e: First] { e in forgotten' }
pred entryBegin_again[e: Entry] { e in Again }
pred entryBegin_deposed[e: Entry] { e.reader != head }
pred entryBegin_cancelled[e: Entry] { some cancelled[e.reader] }
/* It finds what has come since it began; or what may be of no quorum. */
pred entryEnd_overtaken[e: Entry, w: Write] { below[e.floor, w] }
pred entryEnd_doubt[e: Entry, w: Write] { w not in succeeded }

pred attemptBegin_flagged[a: Attempt] { a.ref = head and some flag }
pred attemptBegin_inherited[a: Attempt] { a.ref = head and no flag }
pred attemptBegin_second[a: Attempt] { some began & ref.(a.ref) }
pred attemptBegin_resumed[a: Attempt] { a.ref in resumed }
pred adoptBegin_flagged[a: Attempt] { some flag }
pred adoptBegin_second[a: Attempt] { some adopting & ref.(a.ref) }
/* It finds a put in doubt; dooms what it has not found; adopts; finds an adoption. */
pred attemptRead_doubt[a: Attempt, f: Write, v: Value] { f in Put - succeeded }
pred attemptRead_dooms[a: Attempt, f: Write, v: Value] { some doomed' - doomed }
pred attemptRead_adopts[a: Attempt, f: Write, v: Value] { v != value[f] }
pred attemptRead_adoption[a: Attempt, f: Write, v: Value] { f in adopting }
pred attemptGrant_adopted[a: Attempt] { a.carries in Eventual }
pred attemptGrant_again[a: Attempt] { some a.ref.granted }

/* For a section's put; for a newer eventual value. */
pred drop_put[e: Eventual] { no x: offered - dropped | below[e, x] }
pred drop_newer[e: Eventual] { some x: offered - dropped | below[e, x] }

pred enter_adopted[r: Ref, v: Value] { v in Eventual }
pred enter_doubt[r: Ref, v: Value] { v in Put - acked }
pred issue_pipelined[p: Put] { some doubtful[p.ref] }
pred put_past[p: Put] { p.ref not in queued }
/* After the leave was said; after the ref was removed. */
pred ack_left[p: Put] { p.ref in closed }
pred ack_past[p: Put] { p.ref not in queued }
pred getBegin_doubt[g: Get] { some doubtful[g.reader] }
pred getEnd_own[g: Get, w: Write] { w.ref = g.reader }
pred getEnd_doubt[g: Get, w: Write] { some value[w] & Put - acked }
pred sayLeaveDirty_doubt[r: Ref] { some doubtful[r] }
pred sayLeaveDirty_untold[r: Ref] { r not in entered }
pred close_doubt[r: Ref] { some doubtful[r] }
