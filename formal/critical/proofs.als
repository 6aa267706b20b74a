/*
 * Critical sections: every event of Fermata's rules keeps the invariant.
 *
 * The classical obligations of a state-transition model (MUSIC §V-B): the initial state satisfies
 * the invariant; and for every event, if a state satisfies it and the event happens, the next state
 * satisfies it. Two states are enough for the second. What is checked is everything in the scope,
 * at any depth: the first state is any that satisfies the invariant.
 *
 * Next to each proof stands a `…_can`: the event can happen in such a state, so that no proof is
 * empty.
 */
module proofs

open invariants

initial: check { fermata and init implies invariant } for 5 but 1..1 steps expect 0

enqueue_keeps: check {
  (fermata and invariant and { some r: Ref | enqueue[r] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
enqueue_can: run {
  fermata and invariant and { some r: Ref | enqueue[r] }
} for 3 but 5 Write, 2..2 steps expect 1
enqueue_keeps_deep: check {
  (fermata and invariant and { some r: Ref | enqueue[r] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

leaveClean_keeps: check {
  (fermata and invariant and { some r: Ref | leaveClean[r] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
leaveClean_can: run {
  fermata and invariant and { some r: Ref | leaveClean[r] }
} for 3 but 5 Write, 2..2 steps expect 1
leaveClean_keeps_deep: check {
  (fermata and invariant and { some r: Ref | leaveClean[r] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

leaveDirty_keeps: check {
  (fermata and invariant and { some r: Ref | leaveDirty[r] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
leaveDirty_can: run {
  fermata and invariant and { some r: Ref | leaveDirty[r] }
} for 3 but 5 Write, 2..2 steps expect 1
leaveDirty_keeps_deep: check {
  (fermata and invariant and { some r: Ref | leaveDirty[r] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

release_keeps: check {
  (fermata and invariant and { some r: Ref | release[r] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
release_can: run {
  fermata and invariant and { some r: Ref | release[r] }
} for 3 but 5 Write, 2..2 steps expect 1
release_keeps_deep: check {
  (fermata and invariant and { some r: Ref | release[r] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

resume_keeps: check {
  (fermata and invariant and { some r, s: Ref | resume[r, s] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
resume_can: run {
  fermata and invariant and { some r, s: Ref | resume[r, s] }
} for 3 but 5 Write, 2..2 steps expect 1
resume_keeps_deep: check {
  (fermata and invariant and { some r, s: Ref | resume[r, s] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

synchDone_keeps: check {
  (fermata and invariant and { some a: Attempt | synchDone[a] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
synchDone_can: run {
  fermata and invariant and { some a: Attempt | synchDone[a] }
} for 3 but 5 Write, 2..2 steps expect 1
synchDone_keeps_deep: check {
  (fermata and invariant and { some a: Attempt | synchDone[a] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

learn_keeps: check {
  (fermata and invariant and { some c: Coordinator | learn[c] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
learn_can: run {
  fermata and invariant and { some c: Coordinator | learn[c] }
} for 3 but 5 Write, 2..2 steps expect 1
learn_keeps_deep: check {
  (fermata and invariant and { some c: Coordinator | learn[c] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

readAhead_keeps: check {
  (fermata and invariant and { some e: Entry | readAhead[e] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
readAhead_can: run {
  fermata and invariant and { some e: Entry | readAhead[e] }
} for 3 but 5 Write, 2..2 steps expect 1
readAhead_keeps_deep: check {
  (fermata and invariant and { some e: Entry | readAhead[e] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

entryBegin_keeps: check {
  (fermata and invariant and { some e: Entry | entryBegin[e] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
entryBegin_can: run {
  fermata and invariant and { some e: Entry | entryBegin[e] }
} for 3 but 5 Write, 2..2 steps expect 1
entryBegin_keeps_deep: check {
  (fermata and invariant and { some e: Entry | entryBegin[e] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

entryEnd_keeps: check {
  (fermata and invariant and { some e: Entry, w: Write | entryEnd[e, w] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
entryEnd_can: run {
  fermata and invariant and { some e: Entry, w: Write | entryEnd[e, w] }
} for 3 but 5 Write, 2..2 steps expect 1
entryEnd_keeps_deep: check {
  (fermata and invariant and { some e: Entry, w: Write | entryEnd[e, w] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

handOver_keeps: check {
  (fermata and invariant and { some r: Ref | handOver[r] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
handOver_can: run {
  fermata and invariant and { some r: Ref | handOver[r] }
} for 3 but 5 Write, 2..2 steps expect 1
handOver_keeps_deep: check {
  (fermata and invariant and { some r: Ref | handOver[r] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

attemptBegin_keeps: check {
  (fermata and invariant and { some a: Attempt | attemptBegin[a] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
attemptBegin_can: run {
  fermata and invariant and { some a: Attempt | attemptBegin[a] }
} for 3 but 5 Write, 2..2 steps expect 1
attemptBegin_keeps_deep: check {
  (fermata and invariant and { some a: Attempt | attemptBegin[a] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

offer_keeps: check {
  (fermata and invariant and { some e: Eventual | offer[e] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
offer_can: run {
  fermata and invariant and { some e: Eventual | offer[e] }
} for 3 but 5 Write, 2..2 steps expect 1
offer_keeps_deep: check {
  (fermata and invariant and { some e: Eventual | offer[e] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

adoptBegin_keeps: check {
  (fermata and invariant and { some a: Attempt | adoptBegin[a] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
adoptBegin_can: run {
  fermata and invariant and { some a: Attempt | adoptBegin[a] }
} for 3 but 5 Write, 2..2 steps expect 1
adoptBegin_keeps_deep: check {
  (fermata and invariant and { some a: Attempt | adoptBegin[a] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

attemptRead_keeps: check {
  (fermata and invariant and { some a: Attempt, f: Write, v: Value | attemptRead[a, f, v] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
attemptRead_can: run {
  fermata and invariant and { some a: Attempt, f: Write, v: Value | attemptRead[a, f, v] }
} for 3 but 5 Write, 2..2 steps expect 1
attemptRead_keeps_deep: check {
  (fermata and invariant and { some a: Attempt, f: Write, v: Value | attemptRead[a, f, v] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

attemptWrite_keeps: check {
  (fermata and invariant and { some a: Attempt | attemptWrite[a] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
attemptWrite_can: run {
  fermata and invariant and { some a: Attempt | attemptWrite[a] }
} for 3 but 5 Write, 2..2 steps expect 1
attemptWrite_keeps_deep: check {
  (fermata and invariant and { some a: Attempt | attemptWrite[a] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

attemptGrant_keeps: check {
  (fermata and invariant and { some a: Attempt | attemptGrant[a] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
attemptGrant_can: run {
  fermata and invariant and { some a: Attempt | attemptGrant[a] }
} for 3 but 5 Write, 2..2 steps expect 1
attemptGrant_keeps_deep: check {
  (fermata and invariant and { some a: Attempt | attemptGrant[a] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

succeed_keeps: check {
  (fermata and invariant and { some w: Write | succeed[w] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
succeed_can: run {
  fermata and invariant and { some w: Write | succeed[w] }
} for 3 but 5 Write, 2..2 steps expect 1
succeed_keeps_deep: check {
  (fermata and invariant and { some w: Write | succeed[w] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

enter_keeps: check {
  (fermata and invariant and { some r: Ref, v: Value | enter[r, v] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
enter_can: run {
  fermata and invariant and { some r: Ref, v: Value | enter[r, v] }
} for 3 but 5 Write, 2..2 steps expect 1
enter_keeps_deep: check {
  (fermata and invariant and { some r: Ref, v: Value | enter[r, v] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

issue_keeps: check {
  (fermata and invariant and { some p: Put | issue[p] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
issue_can: run {
  fermata and invariant and { some p: Put | issue[p] }
} for 3 but 5 Write, 2..2 steps expect 1
issue_keeps_deep: check {
  (fermata and invariant and { some p: Put | issue[p] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

put_keeps: check {
  (fermata and invariant and { some p: Put | put[p] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
put_can: run {
  fermata and invariant and { some p: Put | put[p] }
} for 3 but 5 Write, 2..2 steps expect 1
put_keeps_deep: check {
  (fermata and invariant and { some p: Put | put[p] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

ack_keeps: check {
  (fermata and invariant and { some p: Put | ack[p] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
ack_can: run {
  fermata and invariant and { some p: Put | ack[p] }
} for 3 but 5 Write, 2..2 steps expect 1
ack_keeps_deep: check {
  (fermata and invariant and { some p: Put | ack[p] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

getBegin_keeps: check {
  (fermata and invariant and { some g: Get | getBegin[g] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
getBegin_can: run {
  fermata and invariant and { some g: Get | getBegin[g] }
} for 3 but 5 Write, 2..2 steps expect 1
getBegin_keeps_deep: check {
  (fermata and invariant and { some g: Get | getBegin[g] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

getEnd_keeps: check {
  (fermata and invariant and { some g: Get, w: Write | getEnd[g, w] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
getEnd_can: run {
  fermata and invariant and { some g: Get, w: Write | getEnd[g, w] }
} for 3 but 5 Write, 2..2 steps expect 1
getEnd_keeps_deep: check {
  (fermata and invariant and { some g: Get, w: Write | getEnd[g, w] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

sayLeaveClean_keeps: check {
  (fermata and invariant and { some r: Ref | sayLeaveClean[r] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
sayLeaveClean_can: run {
  fermata and invariant and { some r: Ref | sayLeaveClean[r] }
} for 3 but 5 Write, 2..2 steps expect 1
sayLeaveClean_keeps_deep: check {
  (fermata and invariant and { some r: Ref | sayLeaveClean[r] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

sayLeaveDirty_keeps: check {
  (fermata and invariant and { some r: Ref | sayLeaveDirty[r] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
sayLeaveDirty_can: run {
  fermata and invariant and { some r: Ref | sayLeaveDirty[r] }
} for 3 but 5 Write, 2..2 steps expect 1
sayLeaveDirty_keeps_deep: check {
  (fermata and invariant and { some r: Ref | sayLeaveDirty[r] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

close_keeps: check {
  (fermata and invariant and { some r: Ref | close[r] }) implies after invariant
} for 3 but 4 Write, 2..2 steps expect 0
close_can: run {
  fermata and invariant and { some r: Ref | close[r] }
} for 3 but 5 Write, 2..2 steps expect 1
close_keeps_deep: check {
  (fermata and invariant and { some r: Ref | close[r] }) implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0

