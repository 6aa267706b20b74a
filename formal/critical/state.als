/*
 * Critical sections: what there is. One key.
 *
 * In the style of MUSIC §V. Clients ask coordinators; the lock store is a queue that changes in
 * atomic steps, for consensus orders them; the data store is not modelled by its replicas but as
 * its coordinators see it: writes that were attempted, those of them that have succeeded, and what
 * a quorum read may return. What is assumed here of writes, fences and reads is proved of replicas
 * and quorums in store.als.
 *
 * The network is the most general one. What was said once may be heard at any time, in any order,
 * any number of times or never, so that "said" is a set that grows. A crash of a client, of a
 * coordinator or of a primary is that it does nothing more, which is always possible.
 *
 * Tags are the writes themselves, in one order: by lock ref first, within a ref by the second part
 * of the tag. What that part is, the rules say: the coordinator's clock, or the attempt of a synch,
 * below the number of a put.
 */
module state

open util/ordering[Ref] as refs
open util/ordering[Write] as tags

/* The parameter: which rules are in force. None: MUSIC as published. All: Fermata. */
abstract sig Rule {}
one sig
  ReleaseSetsFlag, // M1: a forced release sets the flag
  ClientNumbers, // M2: a put has one tag, numbered by its client, wherever it is sent
  AttemptsBelow, // M3, F4: a synch's tag is its attempt, below all puts of its ref
  FenceOnTag, // F4: a fence is a whole tag, attempt and all, not a ref only
  DirtyLeave, // M5, F5: a leave is clean only when the last put was acknowledged
  PutIsStored, // F5: a leave beside a put counts as clean only once a quorum has the put
  RefusedIsDoubtful, // G25: a put that was sent and refused may be stored yet
  CleanAsSaid, // G15: a leave is recorded as clean only if its client has said so
  Fence, // F1: replicas refuse what is below the tag of a fenced read
  FlagInLog, // the switch to Fermata's events: the flag stands beside the queue, set by the command
             // that dequeues. Without it the published ones happen, and no rule is taken away alone
  FlagNamed, // F18: only that flag is cleared which was seen when the synch began
  SpeculationEnds, // F3: a command that touches the key cancels what was read ahead
  ReadsByOp, // G23: a read counts only where this very read is waited for
  UntoldIsDirty, // G3: a ref that was not told of its grant leaves dirty
  HeadFlags, // every removal of a head that is not clean sets the flag
  AdoptionSticks, // G1: who began to adopt never falls back to a plain read
  InheritedSynchs, // G2: a primary that did not see the head become head synchs
  AdoptsOnce, // G5: only the primary that saw it become head adopts, and only before its grant
  WriteBack, // a get of an own unfinished put completes it before it returns
  TwoCells, // F6: an eventual put writes to a cell of its own
  AdoptionsKeep // G24: an adoption drops no eventual value
  extends Rule {}

one sig Protocol { rules: set Rule }

pred fermata { Protocol.rules = Rule }
pred published { no Protocol.rules }
pred fermataWithout[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

sig Client {}

/* A node that takes clients' requests. `peek`: the head of the queue as its own lock replica has
 * it, perhaps long ago. */
sig Coordinator { var peek: lone Ref }

/* A lock ref with its generation, in order. `granted`: values sent with grants of it. */
sig Ref { owner: one Client, var granted: set Value }

/* A write to the critical cell, which is also its tag. */
abstract sig Write { ref: lone Ref, at: lone Coordinator }

/* A write that gives a value; the value is named by it. */
abstract sig Value extends Write {}

/* The value before all sections. */
one sig Start extends Value {}

/* A critical put. `copyOf`: where tags are taken from coordinators' clocks, a retry of that put,
 * with the same value under another tag. */
sig Put extends Value { copyOf: lone Put }

/* A value put without a lock, into the other cell. It is ordered after every section up to its
 * `ref`, which its replica had applied, and before every later one that writes; its place among
 * tags says so, but nothing is written to the critical cell under it. */
sig Eventual extends Value {}

/* An attempt to synch, and its write. `found`: what its quorum read has returned; `carries`: that
 * value, or the newer eventual one that it adopts; `clears`: the flag that it saw. */
sig Attempt extends Write {
  var found: lone Write,
  var carries: lone Value,
  var clears: lone Ref
}

/* A quorum read without a fence. `floor`: open since this was the highest that had succeeded. */
abstract sig Read { reader: one Ref, var floor: lone Write }

/* For a grant. The primary that saw the ref become head reads first; what it reads once its grant
 * is complete, and what a later primary reads, is read again. */
abstract sig Entry extends Read {}
sig First, Again extends Entry {}

/* A critical get. `shows`: values that it may return; `result`: what it has returned to a client
 * in whose ref nobody had followed. */
sig Get extends Read { var shows: set Value, var result: lone Value }

/* The lock store: refs that were given, and those of them in the queue. */
var sig used in Ref {}
var sig queued in Ref {}
/* Refs that have left the queue: without a flag, or as a head with it. (Others have waited only.) */
var sig clean in Ref {}
var sig dirty in Ref {}
/* The flag, named by the removal that has set it. Where that one has left beside a put, and a quorum
 * has it by now, it is among the clean: its flag is as good as none, and only not cleared yet. */
var lone sig flag in Ref {}

/* Published: the flag in the data store. Refs whose forced release has written it, and refs whose
 * acquire has written it back. */
var sig flagSet in Ref {}
var sig flagReset in Ref {}

/* Clients: who was told of the grant; who does nothing more for its ref; what was said on leaving. */
var sig entered in Ref {}
var sig closed in Ref {}
var sig sayClean in Ref {}
var sig sayDirty in Ref {}
/* Puts asked for, and acknowledged to their client. */
var sig issued in Put {}
var sig acked in Put {}

/* The data store. A doomed write can never succeed; somebody may still read it. */
var sig attempted in Write {}
var sig succeeded in Write {}
var sig doomed in Write {}

/* Eventual values that some replica has taken; those that no replica has any more. */
var sig offered in Eventual {}
var sig dropped in Eventual {}
/* Synchs of the primary that saw their ref become head, which may adopt an eventual value; synchs
 * whose primary knows that they have succeeded. */
var sig adopting in Attempt {}
var sig done in Attempt {}
/* Refs whose first grant is complete; refs that a resumption has made. */
var sig ready in Ref {}
var sig resumed in Ref {}

/* Synchs that were begun, reads ahead of a grant that nothing has cancelled, reads under way for
 * which nobody waits any more, gets with an answer. */
var sig began in Attempt {}
var sig ahead in First {}
var sig forgotten in First {}
var sig answered in Get {}

/* History: the true value, as far as it is decided (F17); what was begun by a ref after a later one
 * had entered. */
var sig truth in Value {}
var sig latePut in Put {}
var sig lateGet in Get {}

/* The two orders. */
pred earlier[a, b: Ref] { refs/lt[a, b] }
pred below[a, b: Write] { tags/lt[a, b] }
fun last[r: set Ref]: lone Ref { refs/max[r] }
pred upTo[a, b: Write] { tags/lte[a, b] }
fun highest[w: set Write]: lone Write { tags/max[w] }

/* As sets: a set says of many at once what costs a trace's judge a question for each. */
fun prior[r: Ref]: set Ref { refs/prevs[r] }
fun downFrom[w: Write]: set Write { w + tags/prevs[w] }
fun upFrom[w: Write]: set Write { w + tags/nexts[w] }

/* Tags are ordered by ref first; the old value lies below all. */
fact tagsByRef {
  Start = tags/first
  no Start.ref
  no Start.at
  all w: Put + Attempt | one w.ref and one w.at
  no Eventual.at
  all e: Eventual, w: Write | w.ref = e.ref and w not in Eventual implies below[w, e]
  all a, b: Write - Start | some b.ref and no a.ref implies below[a, b]
  all a, b: Write - Start | below[a, b] and some b.ref implies not earlier[b.ref, a.ref]
}

/* What the rules say of tags. */
fact tagsByRule {
  on[ClientNumbers] implies no copyOf
  all p: Put | some p.copyOf implies p.copyOf.ref = p.ref and no p.copyOf.copyOf
  on[AttemptsBelow] implies all a: Attempt, p: Put | a.ref = p.ref implies below[a, p]
}

/* The value that a write carries. */
fun value[w: set Write]: set Value { w.carries + (w & Put).copyOf + (w & Value - copyOf.Put) }

fun head: lone Ref { refs/min[queued] }
fun past: set Ref { used - queued }

/* What is, or was, the head: to a primary that is deposed and does not know it, it may be so yet. */
fun heads: set Ref { head + clean + dirty }

/* Nobody before r has left a flag that was not cleared: so it is to the log if r is its head, and so
 * it is to whoever takes r for the head. */
pred unflagged[r: Ref] {
  r = head => no standing else dirty & refs/prevs[r] in refs/prevs[top.ref]
}

/* The last write of the holder before r, if that has left cleanly. */
fun handed[r: Ref]: lone Value {
  highest[issued & ref.(clean & last[(clean + dirty) & refs/prevs[r]])]
}

/* w is of no later section than r's, which may have gone on as head in later generations. */
pred noLater[r: Ref, w: Write] {
  used & refs/nexts[r] & (w.ref + refs/prevs[w.ref]) in resumed
}

/* The last section that has begun. */
fun latest: lone Ref { last[entered] }
fun overtaken: set Ref { refs/prevs[latest] }
pred superseded[r: Ref] { r in overtaken }

/* The highest tag that has succeeded. Every quorum read that begins now returns it or a higher. */
fun top: one Write { highest[succeeded] }
fun readable: set Write { { w: attempted | upTo[top, w] } }

/* A completed fence above w. */
pred fencedAbove[w: Write] { on[Fence] and some b: Attempt - w | some b.found and fences[b, w] }
pred fences[b, w: Write] { below[w, b] and (on[FenceOnTag] or b.ref != w.ref) }

/* The flag, unless it is that of a put which is done. */
fun standing: lone Ref { flag & dirty }

/* The flag is clear, or its synch is done, which is only not noted yet. */
pred cleared { no standing or (some a: done | a.clears = flag) }

/* An eventual value is newer than what w carries: values stand in the order of tags, an adopted one
 * where its put does, not where its adoption does (F6, G24). */
pred newerThan[e: Eventual, w: Write] { below[value[w], e] }

/* Over one of these values: the eventual values that an adoption may put in its place. */
fun over[v: set Value]: set Eventual { { e: offered | some x: v | below[x, e] } }

/* A replica that stores w drops e: a section has written after it. */
pred outranks[w: Write, e: Eventual] {
  (some p: value[w] & Put | below[e, p])
  or (not on[AdoptionsKeep] and w in Attempt and value[w] in Eventual
    and not (some e.ref and not earlier[e.ref, w.ref]))
}

/* The last adopting synch of a ref. */
fun adopter[r: Ref]: lone Attempt { highest[adopting & ref.r] }
