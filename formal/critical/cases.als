/*
 * Critical sections: cases of events that the simulator's traces must meet.
 *
 * An event that occurs says little of what it may do: a mapping that has lost every read of a
 * deposed primary still shows reads. So here is said in which ways the events are to occur, each in
 * the form EVENT_case, with the event's arguments; a case is met by a step of that event if it holds
 * of the state before and the state after. `cargo xtask formal traces` counts, and fails where a case
 * is met by no step. Nothing is proved of these.
 */
module cases

open invariants

/* ---- the lock store ---- */

pred enqueue_ahead[r: Ref] { some e: ahead - forgotten' | e.reader = r }
pred enqueue_cancels[r: Ref] { some ahead & forgotten' }
pred enqueue_cancelsOwn[r: Ref] { some e: ahead & forgotten' | e.reader = r }
pred enqueue_waits[r: Ref] { some queued }
pred enqueue_flagged[r: Ref] { no queued and some flag }
pred decline_other[e: First] { some ahead & reader.(e.reader) - e }
pred decline_repeated[e: First] { some d: forgotten & First | d.reader = e.reader }
pred leaveClean_handing[r: Ref] { some queued - r and some issued & ref.r }
pred leaveClean_unwritten[r: Ref] { no issued & ref.r }
pred leaveClean_flagged[r: Ref] { some flag }
pred leaveDirty_doubt[r: Ref] { some (issued & ref.r) - acked }
pred leaveDirty_untold[r: Ref] { r = head and r not in entered }
pred leaveDirty_waiting[r: Ref] { r != head }
pred release_living[r: Ref] { r in entered - closed }
pred release_said[r: Ref] { r in sayClean }
pred release_doubt[r: Ref] { some (issued & ref.r) - acked }
pred release_waiting[r: Ref] { r != head }
pred release_ungranted[r: Ref] { r = head and no r.granted }
pred resume_head[r, s: Ref] { r = head }
pred resume_waiting[r, s: Ref] { r != head }
pred resume_again[r, s: Ref] { r in resumed }
pred resume_doubt[r, s: Ref] { some (issued & ref.r) - acked }
pred synchDone_secondAttempt[a: Attempt] { some b: began - done | b.ref = a.ref and below[b, a] }
pred synchDone_past[a: Attempt] { a.ref != head }
pred synchDone_idle[a: Attempt] { no queued }
pred synchDone_cancels[a: Attempt] { some ahead }

/* ---- grants ---- */

pred readAhead_deposed[e: First] { e in forgotten' }
pred readAhead_busy[e: First] { e in forgotten' and e.reader not in used }
pred readAhead_twice[e: First] { some ahead & reader.(e.reader) }
pred entryBegin_again[e: Entry] { e in Again }
pred entryBegin_repeated[e: Entry] { some floor.Write & reader.(e.reader) & First - e }
pred entryBegin_past[e: Entry] { e.reader != head }
pred entryEnd_ahead[e: Entry, w: Write] { below[e.floor, w] }
pred entryEnd_doubt[e: Entry, w: Write] { w not in succeeded }
pred entryEnd_past[e: Entry, w: Write] { e.reader != head }
pred entryEnd_forgotten[e: Entry, w: Write] { e in forgotten }
pred entryEnd_otherForgotten[e: Entry, w: Write] {
  some d: forgotten | d.reader = e.reader
}
pred handOver_past[r: Ref] { r != head }
pred handOver_repeated[r: Ref] { some r.granted }
pred attemptBegin_flagged[a: Attempt] { a.ref = head and some flag }
pred attemptBegin_inherited[a: Attempt] { a.ref = head and no flag }
pred attemptBegin_second[a: Attempt] { some began & ref.(a.ref) }
pred attemptBegin_past[a: Attempt] { a.ref != head }
pred attemptBegin_resumed[a: Attempt] { a.ref in resumed }
pred adoptBegin_again[a: Attempt] { some adopting & ref.(a.ref) }
pred adoptBegin_flagged[a: Attempt] { some flag }
pred adoptBegin_past[a: Attempt] { a.ref != head }
pred attemptRead_doubt[a: Attempt, f: Write, v: Value] { f in Put - succeeded }
pred attemptRead_dooms[a: Attempt, f: Write, v: Value] { some doomed' - doomed }
pred attemptRead_adopts[a: Attempt, f: Write, v: Value] { v != value[f] }
pred attemptRead_adoption[a: Attempt, f: Write, v: Value] { f in adopting }
pred attemptRead_past[a: Attempt, f: Write, v: Value] { a.ref != head }
pred attemptWrite_refused[a: Attempt] { a in doomed' }
pred attemptWrite_past[a: Attempt] { a.ref != head }
pred attemptGrant_adopted[a: Attempt] { a.carries in Eventual }
pred attemptGrant_again[a: Attempt] { some a.ref.granted }
pred attemptGrant_past[a: Attempt] { a.ref != head }

/* ---- the data store ---- */

pred offer_later[e: Eventual] { some offered - dropped }
pred offer_waited[e: Eventual] { some queued }
pred drop_put[e: Eventual] { no x: offered - dropped | below[e, x] }
pred drop_newer[e: Eventual] { some x: offered - dropped | below[e, x] }
pred succeed_past[w: Write] { some w.ref and w.ref != head }
pred succeed_outranked[w: Write] { below[w, top] }

/* ---- clients ---- */

pred enter_eventual[r: Ref, v: Value] { v in Eventual }
pred enter_past[r: Ref, v: Value] { r != head }
pred enter_superseded[r: Ref, v: Value] { superseded[r] }
pred enter_doubt[r: Ref, v: Value] { v not in acked + Start + Eventual }
pred issue_pipelined[p: Put] { some (issued & ref.(p.ref)) - acked }
pred issue_past[p: Put] { p.ref != head }
pred put_refused[p: Put] { p in doomed' }
pred put_past[p: Put] { p.ref != head }
pred ack_left[p: Put] { p.ref in closed }
pred ack_past[p: Put] { p.ref != head }
pred ack_superseded[p: Put] { superseded[p.ref] }
pred getBegin_doubt[g: Get] { some (issued & ref.(g.reader)) - acked }
pred getBegin_past[g: Get] { g.reader != head }
pred getEnd_own[g: Get, w: Write] { w.ref = g.reader }
pred getEnd_doubt[g: Get, w: Write] { value[w] & Put not in acked }
pred getEnd_overtaken[g: Get, w: Write] { below[g.floor, w] }
pred getEnd_past[g: Get, w: Write] { g.reader != head }
pred getEnd_superseded[g: Get, w: Write] { superseded[g.reader] }
pred sayLeaveClean_unwritten[r: Ref] { no issued & ref.r }
pred sayLeaveClean_past[r: Ref] { r not in queued }
pred sayLeaveDirty_doubt[r: Ref] { some (issued & ref.r) - acked }
pred sayLeaveDirty_untold[r: Ref] { r not in entered }
pred close_doubt[r: Ref] { some (issued & ref.r) - acked }
pred close_past[r: Ref] { r not in queued }
