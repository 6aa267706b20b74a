/*
 * Critical sections: every event of Fermata's rules keeps the invariant.
 *
 * The classical obligations of a state-transition model (MUSIC §V-B): the initial state satisfies
 * the invariant; and for every event, if a state satisfies it and the event happens, the next state
 * satisfies it. Two states are enough for the second. What is checked is everything in the scope,
 * at any depth: the first state is any that satisfies the invariant.
 *
 * The obligations are asked twice: in a small scope, those of events that change the same things
 * together (…Event, …_keep); and in the scope of MUSIC's own model, or the next smaller one that has ended,
 * one by one (…_keeps_deep).
 *
 * That no proof is empty is shown by runs from the initial state in which every event happens
 * (all_can, parting_can), and by each event alone, in some state that satisfies the invariant (…_can_deep).
 */
module proofs

open invariants

initial: check { fermata and init implies invariant } for 3 but 1..1 steps expect 0
initial_deep: check { fermata and init implies invariant } for 5 but 1..1 steps expect 0

pred lockEvent {
  (some r: Ref {
    enqueue[r] or leaveClean[r] or leaveDirty[r] or release[r] or settle[r] or putDone[r]
    or some s: Ref | resume[r, s]
  })
  or (some a: Attempt | synchDone[a]) or some c: Coordinator | learn[c]
}
pred grantEvent {
  (some e: First | readAhead[e] or decline[e])
  or (some e: Entry { entryBegin[e] or some w: Write | entryEnd[e, w] })
  or some r: Ref | handOver[r]
}
pred synchEvent {
  (some a: Attempt {
    attemptBegin[a] or adoptBegin[a] or attemptWrite[a] or attemptGrant[a]
    or some f: Write, v: Value | attemptRead[a, f, v]
  })
  or (some e: Eventual | offer[e] or drop[e]) or (some w: Write | succeed[w])
}
pred clientEvent {
  (some r: Ref {
    sayLeaveClean[r] or sayLeaveDirty[r] or close[r] or some v: Value | enter[r, v]
  })
  or (some p: Put { issue[p] or put[p] or ack[p] })
  or (some g: Get { getBegin[g] or some w: Write | getEnd[g, w] })
}

lockEvents_keep: check {
  fermata and invariant and lockEvent implies after invariant
} for 3 but 3 Write, 2..2 steps expect 0
grantEvents_keep: check {
  fermata and invariant and grantEvent implies after invariant
} for 3 but 3 Write, 2..2 steps expect 0
synchEvents_keep: check {
  fermata and invariant and synchEvent implies after invariant
} for 3 but 3 Write, 2..2 steps expect 0
clientEvents_keep: check {
  fermata and invariant and clientEvent implies after invariant
} for 3 but 3 Write, 2..2 steps expect 0

/* No event of these rules is left out of the four. */
all_are_asked: check {
  fermata and invariant and someEvent
    implies lockEvent or grantEvent or synchEvent or clientEvent
} for 2 but 3 Write, 2..2 steps expect 0

/* A run of four sections in which every event happens, but for those of parting_can. */
all_can: run {
  fermata
  some r1, r2, s, r3: Ref, p: Put, a, b: Attempt, d: First, e: Again, g: Get, disj u, v: Eventual,
      c: Coordinator {
    init
    learn[c]; offer[u]; readAhead[d]; decline[d]; entryEnd[d, Start];
    readAhead[d]; enqueue[r1]; entryEnd[d, Start]; enter[r1, Start];
    issue[p]; put[p]; drop[u]; succeed[p]; ack[p]; getBegin[g]; getEnd[g, p];
    sayLeaveClean[r1]; enqueue[r2]; leaveClean[r1]; handOver[r2]; close[r2]; resume[r2, s];
    attemptBegin[a]; attemptRead[a, p, p]; attemptWrite[a]; succeed[a]; attemptGrant[a];
    synchDone[a]; entryBegin[e]; sayLeaveDirty[s]; leaveDirty[s]; offer[v];
    enqueue[r3]; adoptBegin[b]; attemptRead[b, a, v]; release[r3]; invariant
  }
} for 4 but 6 Write, 3 Read, 1 Coordinator, 37..37 steps expect 1

/* What only a deposed primary does, that takes past refs for heads: it reads ahead of an enqueue that
 * is agreed; grants what a later generation has written; and hands over. */
deposed_can: run {
  fermata
  some r1, s, r2: Ref, p: Put, a: Attempt, disj d, e: First {
    init
    readAhead[d]; enqueue[r1]; resume[r1, s]; readAhead[e];
    attemptBegin[a]; attemptRead[a, Start, Start]; attemptWrite[a]; entryEnd[d, a];
    succeed[a]; attemptGrant[a]; enter[s, Start]; issue[p]; put[p]; succeed[p]; ack[p];
    sayLeaveClean[s]; enqueue[r2]; leaveClean[s]; release[r2]; handOver[r2];
    (e.reader = r1 and s in a.ref and invariant)
  }
} for 3 but 3 Write, 2 Read, 1 Coordinator, 21..21 steps expect 1

/* A put and its leave at once; the next one enters by the word of the put, before and after the flag
 * is cleared. */
parting_can: run {
  fermata
  some r1, r2, r3: Ref, p: Put, e, f: First {
    init
    enqueue[r1]; entryBegin[e]; entryEnd[e, Start]; enter[r1, Start]; issue[p];
    sayLeaveDirty[r1]; enqueue[r2]; leaveDirty[r1]; put[p]; succeed[p]; settle[r1];
    handOver[r2]; enter[r2, p]; sayLeaveClean[r2]; leaveClean[r2]; readAhead[f]; putDone[r1];
    enqueue[r3]; entryEnd[f, p]; ack[p]; invariant
  }
} for 3 but 2 Write, 2 Read, 1 Coordinator, 22..22 steps expect 1

enqueue_keeps_deep: check {
  fermata and invariant and { some r: Ref | enqueue[r] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
enqueue_can_deep: run {
  fermata and invariant and { some r: Ref | enqueue[r] }
} for 3 but 5 Write, 2..2 steps expect 1

decline_keeps_deep: check {
  fermata and invariant and { some e: First | decline[e] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
decline_can_deep: run {
  fermata and invariant and { some e: First | decline[e] }
} for 3 but 5 Write, 2..2 steps expect 1

leaveClean_keeps_deep: check {
  fermata and invariant and { some r: Ref | leaveClean[r] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
leaveClean_can_deep: run {
  fermata and invariant and { some r: Ref | leaveClean[r] }
} for 3 but 5 Write, 2..2 steps expect 1

leaveDirty_keeps_deep: check {
  fermata and invariant and { some r: Ref | leaveDirty[r] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
leaveDirty_can_deep: run {
  fermata and invariant and { some r: Ref | leaveDirty[r] }
} for 3 but 5 Write, 2..2 steps expect 1

release_keeps_deep: check {
  fermata and invariant and { some r: Ref | release[r] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
release_can_deep: run {
  fermata and invariant and { some r: Ref | release[r] }
} for 3 but 5 Write, 2..2 steps expect 1

resume_keeps_deep: check {
  fermata and invariant and { some r, s: Ref | resume[r, s] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
resume_can_deep: run {
  fermata and invariant and { some r, s: Ref | resume[r, s] }
} for 3 but 5 Write, 2..2 steps expect 1

synchDone_keeps_deep: check {
  fermata and invariant and { some a: Attempt | synchDone[a] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
synchDone_can_deep: run {
  fermata and invariant and { some a: Attempt | synchDone[a] }
} for 3 but 5 Write, 2..2 steps expect 1

settle_keeps_deep: check {
  fermata and invariant and { some r: Ref | settle[r] } implies after invariant
} for 4 but 5 Write, 2..2 steps expect 0
settle_can_deep: run {
  fermata and invariant and { some r: Ref | settle[r] }
} for 3 but 5 Write, 2..2 steps expect 1

putDone_keeps_deep: check {
  fermata and invariant and { some r: Ref | putDone[r] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
putDone_can_deep: run {
  fermata and invariant and { some r: Ref | putDone[r] }
} for 3 but 5 Write, 2..2 steps expect 1

learn_keeps_deep: check {
  fermata and invariant and { some c: Coordinator | learn[c] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
learn_can_deep: run {
  fermata and invariant and { some c: Coordinator | learn[c] }
} for 3 but 5 Write, 2..2 steps expect 1

readAhead_keeps_deep: check {
  fermata and invariant and { some e: First | readAhead[e] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
readAhead_can_deep: run {
  fermata and invariant and { some e: First | readAhead[e] }
} for 3 but 5 Write, 2..2 steps expect 1

entryBegin_keeps_deep: check {
  fermata and invariant and { some e: Entry | entryBegin[e] } implies after invariant
} for 4 but 5 Write, 2..2 steps expect 0
entryBegin_can_deep: run {
  fermata and invariant and { some e: Entry | entryBegin[e] }
} for 3 but 5 Write, 2..2 steps expect 1

entryEnd_keeps_deep: check {
  fermata and invariant and { some e: Entry, w: Write | entryEnd[e, w] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
entryEnd_can_deep: run {
  fermata and invariant and { some e: Entry, w: Write | entryEnd[e, w] }
} for 3 but 5 Write, 2..2 steps expect 1

handOver_keeps_deep: check {
  fermata and invariant and { some r: Ref | handOver[r] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
handOver_can_deep: run {
  fermata and invariant and { some r: Ref | handOver[r] }
} for 3 but 5 Write, 2..2 steps expect 1

attemptBegin_keeps_deep: check {
  fermata and invariant and { some a: Attempt | attemptBegin[a] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
attemptBegin_can_deep: run {
  fermata and invariant and { some a: Attempt | attemptBegin[a] }
} for 3 but 5 Write, 2..2 steps expect 1

offer_keeps_deep: check {
  fermata and invariant and { some e: Eventual | offer[e] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
offer_can_deep: run {
  fermata and invariant and { some e: Eventual | offer[e] }
} for 3 but 5 Write, 2..2 steps expect 1

drop_keeps_deep: check {
  fermata and invariant and { some e: Eventual | drop[e] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
drop_can_deep: run {
  fermata and invariant and { some e: Eventual | drop[e] }
} for 3 but 5 Write, 2..2 steps expect 1

adoptBegin_keeps_deep: check {
  fermata and invariant and { some a: Attempt | adoptBegin[a] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
adoptBegin_can_deep: run {
  fermata and invariant and { some a: Attempt | adoptBegin[a] }
} for 3 but 5 Write, 2..2 steps expect 1

attemptRead_keeps_deep: check {
  fermata and invariant and { some a: Attempt, f: Write, v: Value | attemptRead[a, f, v] }
    implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
attemptRead_can_deep: run {
  fermata and invariant and { some a: Attempt, f: Write, v: Value | attemptRead[a, f, v] }
} for 3 but 5 Write, 2..2 steps expect 1

attemptWrite_keeps_deep: check {
  fermata and invariant and { some a: Attempt | attemptWrite[a] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
attemptWrite_can_deep: run {
  fermata and invariant and { some a: Attempt | attemptWrite[a] }
} for 3 but 5 Write, 2..2 steps expect 1

attemptGrant_keeps_deep: check {
  fermata and invariant and { some a: Attempt | attemptGrant[a] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
attemptGrant_can_deep: run {
  fermata and invariant and { some a: Attempt | attemptGrant[a] }
} for 3 but 5 Write, 2..2 steps expect 1

succeed_keeps_deep: check {
  fermata and invariant and { some w: Write | succeed[w] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
succeed_can_deep: run {
  fermata and invariant and { some w: Write | succeed[w] }
} for 3 but 5 Write, 2..2 steps expect 1

enter_keeps_deep: check {
  fermata and invariant and { some r: Ref, v: Value | enter[r, v] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
enter_can_deep: run {
  fermata and invariant and { some r: Ref, v: Value | enter[r, v] }
} for 3 but 5 Write, 2..2 steps expect 1

issue_keeps_deep: check {
  fermata and invariant and { some p: Put | issue[p] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
issue_can_deep: run {
  fermata and invariant and { some p: Put | issue[p] }
} for 3 but 5 Write, 2..2 steps expect 1

put_keeps_deep: check {
  fermata and invariant and { some p: Put | put[p] } implies after invariant
} for 4 but 5 Write, 2..2 steps expect 0
put_can_deep: run {
  fermata and invariant and { some p: Put | put[p] }
} for 3 but 5 Write, 2..2 steps expect 1

ack_keeps_deep: check {
  fermata and invariant and { some p: Put | ack[p] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
ack_can_deep: run {
  fermata and invariant and { some p: Put | ack[p] }
} for 3 but 5 Write, 2..2 steps expect 1

getBegin_keeps_deep: check {
  fermata and invariant and { some g: Get | getBegin[g] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
getBegin_can_deep: run {
  fermata and invariant and { some g: Get | getBegin[g] }
} for 3 but 5 Write, 2..2 steps expect 1

getEnd_keeps_deep: check {
  fermata and invariant and { some g: Get, w: Write | getEnd[g, w] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
getEnd_can_deep: run {
  fermata and invariant and { some g: Get, w: Write | getEnd[g, w] }
} for 3 but 5 Write, 2..2 steps expect 1

sayLeaveClean_keeps_deep: check {
  fermata and invariant and { some r: Ref | sayLeaveClean[r] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
sayLeaveClean_can_deep: run {
  fermata and invariant and { some r: Ref | sayLeaveClean[r] }
} for 3 but 5 Write, 2..2 steps expect 1

sayLeaveDirty_keeps_deep: check {
  fermata and invariant and { some r: Ref | sayLeaveDirty[r] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
sayLeaveDirty_can_deep: run {
  fermata and invariant and { some r: Ref | sayLeaveDirty[r] }
} for 3 but 5 Write, 2..2 steps expect 1

close_keeps_deep: check {
  fermata and invariant and { some r: Ref | close[r] } implies after invariant
} for 5 but 6 Write, 2..2 steps expect 0
close_can_deep: run {
  fermata and invariant and { some r: Ref | close[r] }
} for 3 but 5 Write, 2..2 steps expect 1
