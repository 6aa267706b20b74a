/*
 * Critical sections: the queue of a key with shared and exclusive refs.
 *
 * A batch is the head of the queue, with all shared refs behind it up to the first exclusive one, if
 * it is shared itself. All of a batch may hold at once. The key is settled for a batch once, in the
 * name of its front: by a quorum read where that gives one value and no flag is set, else by a
 * synch, which may adopt an eventual value. Only then is anyone of the batch granted.
 *
 * The data store is here what a quorum read may give, a set of values. A synch begins by making its
 * value readable beside the others, and ends by making it the only one, unless it is no longer the
 * head's: then a fence has stopped it (proved in proofs.als), and it leaves its value perhaps.
 */
module shared

open util/ordering[Ref] as refs

/* Rules that can be taken away. */
abstract sig Rule {}
one sig
  ExclusiveWaits, // an exclusive ref is granted as head alone, a shared one with no such before it
  FrontSettles, // F19: the front synchs, not each reader for itself
  BatchWaits, // G9: nobody behind the front reads before that
  SettlesOnce, // F19, G9: a key that is settled for a batch is not settled again under it
  FrontFlags, // G9: the unclean removal of a front that has begun to synch sets the flag
  WriterFlags // M1: so does that of an exclusive holder
  extends Rule {}
one sig Protocol { rules: set Rule }
pred on[r: Rule] { r in Protocol.rules }
pred fermata { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }

sig Value {}
sig Ref {}
sig Exclusive in Ref {}

one sig Key { var readable: some Value }
var sig used in Ref {}
var sig queued in Ref {}
/* Who holds, and what it was granted. */
var sig holding in Ref {}
one sig Told { var of: Ref -> Value }
/* Who has a synch in flight, with its value. */
one sig Synch { var of: Ref -> Value }
/* The ref in whose name the key was settled for the batch that stands at the head. */
var lone sig settled in Ref {}
var lone sig flag in Ref {}

fun head: lone Ref { refs/min[queued] }
pred earlier[a, b: Ref] { refs/lt[a, b] }
pred mayHold[r: Ref] {
  r in queued
  r = head or no x: queued & Exclusive | not earlier[r, x]
}
/* Whether somebody may write. */
fun writers: set Ref { holding & Exclusive }

pred keepQueue { used' = used and queued' = queued and flag' = flag }
pred keepHolders { holding' = holding and Told.of' = Told.of }
pred keepData { Key.readable' = Key.readable and Synch.of' = Synch.of }

pred init {
  no used and no queued and no holding and no settled and no flag and no Told.of and no Synch.of
  one Key.readable
}

pred enqueue[r: Ref] {
  r not in used
  all u: used | earlier[u, r]
  used' = used + r and queued' = queued + r and flag' = flag and settled' = settled
  keepHolders and keepData
}

/* Where the flag is clear, a read settles the key. */
pred read[r: Ref] {
  r = head
  no settled and no flag and no Synch.of
  settled' = r
  keepQueue and keepHolders and keepData
}

/* A synch begins, in the name of the front, with what a read gives or a newer eventual value. */
pred synch[r: Ref, v: Value] {
  on[FrontSettles] => r = head else mayHold[r]
  on[SettlesOnce] implies no settled
  no r.(Synch.of)
  Synch.of' = Synch.of + r -> v
  Key.readable' = Key.readable + v
  settled' = settled
  keepQueue and keepHolders
}

/* It ends. */
pred synched[r: Ref] {
  some r.(Synch.of)
  r in queued
  Key.readable' = r.(Synch.of)
  Synch.of' = Synch.of - r -> Value
  settled' = r
  used' = used and queued' = queued and no flag'
  keepHolders
}

pred grant[r: Ref, v: Value] {
  r not in holding
  on[ExclusiveWaits] => mayHold[r] and (r in Exclusive implies r = head) else r in queued
  on[BatchWaits] implies some settled
  r = head implies some settled
  v in Key.readable
  holding' = holding + r
  Told.of' = Told.of + r -> v
  settled' = settled
  keepQueue and keepData
}

/* An exclusive holder's put: in flight, and then acknowledged. */
pred put[r: Ref, v: Value] {
  r in writers
  Key.readable' = Key.readable + v
  Synch.of' = Synch.of and settled' = settled
  keepQueue and keepHolders
}
pred acked[r: Ref, v: Value] {
  r in writers and v in Key.readable
  Key.readable' = v
  Synch.of' = Synch.of and settled' = settled
  keepQueue and keepHolders
}

/* What goes with a ref that leaves the queue. Of its batch the key stays settled, unless it could
 * write. */
pred gone[r: Ref] {
  r in queued
  queued' = queued - r and used' = used
  holding' = holding - r
  Told.of' = Told.of - r -> Value
  Synch.of' = Synch.of - r -> Value
  Key.readable' = Key.readable
}
pred batchEnds[r: Ref] {
  r = head and (r in Exclusive or no queued - r or refs/min[queued - r] in Exclusive)
}

/* A holder says that it is done, with its last put acknowledged; a synch of it is over. */
pred leave[r: Ref] {
  r in holding
  no r.(Synch.of)
  r in Exclusive implies one Key.readable
  gone[r]
  flag' = flag
  settled' = (batchEnds[r] => none else settled)
}

/* It is removed in any other way. */
pred setsFlag[r: Ref] {
  r in writers and on[WriterFlags] or some r.(Synch.of) and on[FrontFlags]
}
pred remove[r: Ref] {
  gone[r]
  flag' = (setsFlag[r] => r else flag)
  settled' = ((setsFlag[r] or batchEnds[r]) => none else settled)
}

pred nothing { settled' = settled and keepQueue and keepHolders and keepData }
pred event {
  (some r: Ref {
    enqueue[r] or read[r] or synched[r] or leave[r] or remove[r]
    or some v: Value | synch[r, v] or grant[r, v] or put[r, v] or acked[r, v]
  })
}

/* ---- what is promised ---- */

/* No exclusive holder beside another. */
pred Exclusivity { some writers implies one holding }

/* What readers were told is what every read gives, as long as they hold. */
pred SharedState { all r: holding - Exclusive | Key.readable = r.(Told.of) }

/* Without a flag, a holder that writes, or a synch in flight, a read gives one value. */
pred SynchFlag { no flag and no writers and no Synch.of implies one Key.readable }

/* ---- the invariant ---- */

pred fits {
  queued in used
  holding in queued
  flag in used - queued
  all u: used, q: queued | u in flag implies earlier[u, q]
  Synch.of.Value in head
  some Synch.of implies no settled
  all r: Ref | lone r.(Synch.of)
  Told.of.Value = holding and all r: holding | one r.(Told.of)
  some holding implies some settled
  some holding & Exclusive implies holding = head
  all h: holding, x: queued & Exclusive | h = x or earlier[h, x]
  some settled implies no flag and some queued
  some settled and head in Exclusive implies settled = head
  some settled and no writers implies one Key.readable
  some Synch.of implies Synch.of[Ref] in Key.readable
}
pred inv { fits and Exclusivity and SharedState and SynchFlag }

/* ---- the proof, for all traces ---- */

holds_at_first: check { fermata and init implies inv } for 7 but 4 Value, 1..1 steps expect 0
shared_keep: check { fermata and inv and event implies after inv }
  for 7 but 4 Value, 2..2 steps expect 0

/* ---- every event can happen, and each rule is needed ---- */

shared_can: run {
  fermata
  some x, r, s: Ref, u, v: Value {
    init
    enqueue[x]; read[x]; grant[x, u]; put[x, v]; enqueue[r]; enqueue[s]; remove[x];
    synch[r, v]; synched[r]; grant[r, v]; grant[s, v]; leave[r]; leave[s]; always (nothing and inv)
  }
} for 3 but 2 Value, 14..14 steps expect 1

needs_ExclusiveWaits: run {
  without[ExclusiveWaits]
  some x, y: Ref, u: Value {
    init
    enqueue[x]; enqueue[y]; read[x]; grant[x, u]; grant[y, u]; not Exclusivity
  }
} for 2 but 1 Value, 6..6 steps expect 1

/* F19. Two readers synch, each for itself; the later one overwrites what the earlier was told. */
needs_FrontSettles: run {
  Protocol.rules = Rule - FrontSettles - BatchWaits
  some r, s: Ref, u, v: Value {
    init
    enqueue[r]; enqueue[s]; synch[s, v]; synch[r, u]; synched[r]; grant[r, u]; synched[s];
    not SharedState
  }
} for 2 but 2 Value, 8..8 steps expect 1

/* G9. A reader behind the front reads first; the front adopts under its feet. */
needs_BatchWaits: run {
  without[BatchWaits]
  some r, s: Ref, u, v: Value {
    init
    enqueue[r]; enqueue[s]; grant[s, u]; synch[r, v]; not SharedState
  }
} for 2 but 2 Value, 5..5 steps expect 1

/* The front is settled, and a reader in; then it adopts. */
needs_SettlesOnce: run {
  without[SettlesOnce]
  some r, s: Ref, u, v: Value {
    init
    enqueue[r]; enqueue[s]; read[r]; grant[s, u]; synch[r, v]; not SharedState
  }
} for 2 but 2 Value, 6..6 steps expect 1

/* G9. The front leaves while what it adopts is stored somewhere, and no flag is set. */
needs_FrontFlags: run {
  without[FrontFlags]
  some r: Ref, v: Value {
    init
    enqueue[r]; synch[r, v]; remove[r]; not SynchFlag
  }
} for 2 but 2 Value, 4..4 steps expect 1

needs_WriterFlags: run {
  without[WriterFlags]
  some r: Ref, u, v: Value {
    init
    enqueue[r]; read[r]; grant[r, u]; put[r, v]; remove[r]; not SynchFlag
  }
} for 2 but 2 Value, 6..6 steps expect 1
