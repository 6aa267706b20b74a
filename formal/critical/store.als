/*
 * The data store of critical sections: what state.als assumes of it, proved of its replicas.
 *
 * A replica has a highest tag and a fence. It answers a fenced read of tag t by promising to refuse
 * everything below t. It refuses a put below the tag or fence of a later ref, and a synch below its
 * highest tag; a put below a put of its own section is answered as if it were stored. It refuses a
 * holder's read where its tag or fence is of a later ref. Quorums are any sets of which every two share
 * a replica.
 *
 * The assumptions: `FenceHolds`, and the two by which events.als dooms a write that is attempted too
 * late, `LateBelowFence` and `LateBelowWrite`; that a quorum read which begins when a write has
 * succeeded returns that write or a higher one, `ReadsFind` and `GetFinds`; and of a holder's read,
 * that it is refused once a quorum knows a later ref, `LateGetRefused`, and that an answer which counts
 * shows no later ref's tag, `GetShowsNoLater`.
 */
module store

open util/ordering[Ref] as refs
open util/ordering[Write] as tags

sig Ref {}
abstract sig Write { ref: one Ref, var at: set Replica }
sig Put, Synch extends Write {}

/* A holder's read for its ref. `told`: replicas that have answered it, and what each has shown. */
sig Get { of: one Ref, var told: set Replica, var gave: Replica -> lone Write }

/* `at`: replicas that have answered its store. `shown`: what replicas have answered to the fenced
 * read of a synch. `found`: the highest of a quorum of these. */
sig Replica { var tag: lone Write, var fence: lone Write }
sig Quorum { members: some Replica }
one sig History {
  var shown: Synch -> Replica -> Write,
  var asked: Synch -> Replica
}

var sig attempted in Write {}
var sig succeeded in Write {}
/* Synchs whose fenced read is complete, and which of them were so when a write was attempted or a
 * get asked; which writes had succeeded then. */
var sig fenced in Synch {}
var sig begun in Get {}
one sig Before { var fences: (Write + Get) -> Synch, var writes: (Write + Get) -> Write }

pred below[a, b: Write] { tags/lt[a, b] }
pred upTo[a, b: Write] { tags/lte[a, b] }
pred earlier[a, b: Ref] { refs/lt[a, b] }

fact {
  all a, b: Quorum | some a.members & b.members
  all a, b: Write | below[a, b] implies not earlier[b.ref, a.ref]
  all a: Synch, p: Put | a.ref = p.ref implies below[a, p]
}

pred keepBefore { fences' = fences and writes' = writes }
pred keepGets { begun' = begun and told' = told and gave' = gave }
pred keepReads { shown' = shown and asked' = asked and fenced' = fenced and keepGets }

pred init {
  no at and no tag and no fence and no shown and no asked and no attempted and no succeeded
  no fenced and no fences and no writes and no begun and no told and no gave
}

pred attempt[w: Write] {
  w not in attempted
  attempted' = attempted + w
  fences' = fences + Before -> w -> fenced
  writes' = writes + Before -> w -> succeeded
  at' = at and tag' = tag and fence' = fence and succeeded' = succeeded and keepReads
}

/* A replica answers a store as stored. */
pred store[w: Write, n: Replica] {
  w in attempted
  no n.fence or upTo[n.fence, w]
  w in Synch implies (no n.tag or upTo[n.tag, w])
  w in Put implies (no n.tag or not earlier[w.ref, n.tag.ref])
  at' = at + w -> n
  tag' = tag ++ n -> (some n.tag and below[w, n.tag] => n.tag else w)
  fence' = fence and attempted' = attempted and succeeded' = succeeded
  keepReads and keepBefore
}

/* A replica answers a fenced read. */
pred read[a: Synch, n: Replica] {
  no n.tag or upTo[n.tag, a]
  no n.fence or upTo[n.fence, a]
  fence' = fence ++ n -> a
  asked' = asked + History -> a -> n
  shown' = (n in History.asked[a] => shown else shown + History -> a -> n -> n.tag)
  fenced' = fenced and keepGets
  at' = at and tag' = tag and attempted' = attempted and succeeded' = succeeded and keepBefore
}

/* A quorum has answered it. */
pred complete[a: Synch] {
  some q: Quorum | q.members in History.asked[a]
  fenced' = fenced + a
  shown' = shown and asked' = asked and keepGets
  at' = at and tag' = tag and fence' = fence
  attempted' = attempted and succeeded' = succeeded and keepBefore
}

pred succeed[w: Write] {
  some q: Quorum | q.members in w.at
  succeeded' = succeeded + w
  at' = at and tag' = tag and fence' = fence and attempted' = attempted
  keepReads and keepBefore
}

/* A holder asks. */
pred askGet[g: Get] {
  g not in begun
  begun' = begun + g
  fences' = fences + Before -> g -> fenced
  writes' = writes + Before -> g -> succeeded
  told' = told and gave' = gave and shown' = shown and asked' = asked and fenced' = fenced
  at' = at and tag' = tag and fence' = fence and attempted' = attempted and succeeded' = succeeded
}

/* A replica answers a holder's read, and does not refuse it. */
pred answerGet[g: Get, n: Replica] {
  no n.tag or not earlier[g.of, n.tag.ref]
  no n.fence or not earlier[g.of, n.fence.ref]
  answered[g, n]
}

pred answered[g: Get, n: Replica] {
  g in begun
  told' = told + g -> n
  gave' = (n in g.told => gave else gave + g -> n -> n.tag)
  begun' = begun and shown' = shown and asked' = asked and fenced' = fenced
  at' = at and tag' = tag and fence' = fence and attempted' = attempted and succeeded' = succeeded
  keepBefore
}

/* ---- the invariant ---- */

pred Fits {
  at.Replica in attempted
  Replica.tag in at.Replica
  all w: succeeded | some q: Quorum | q.members in w.at
  all a: fenced | some q: Quorum | q.members in History.asked[a]
  all a: Synch, n: Replica | lone History.shown[a][n]
  all a: Synch, n: Replica - History.asked[a] | no History.shown[a][n]
  (Before.fences).Synch + (Before.writes).Write in attempted + begun
  univ.(Before.fences) in fenced
  univ.(Before.writes) in succeeded
  told.Replica in begun
  all g: Get | (g.gave).Write in g.told
}

pred TagsGrow { all w: Write, n: w.at | some n.tag and upTo[w, n.tag] }

/* Who has answered a fenced read refuses what it has not shown. */
pred FencedAt {
  all a: Synch, n: History.asked[a] {
    some n.fence and upTo[a, n.fence]
    all w: at.n | below[w, a] implies some History.shown[a][n] and upTo[w, History.shown[a][n]]
  }
}

/* A quorum refuses what was attempted too late. */
pred LateAt {
  all w: Write, a: Before.fences[w] | below[w, a] implies
    some q: Quorum | q.members in History.asked[a] and no w.at & q.members
  all w: Write, x: Before.writes[w] |
    (w in Put and earlier[w.ref, x.ref] or w in Synch and below[w, x]) implies
      some q: Quorum | q.members in x.at and no w.at & q.members
}

/* A quorum refuses a get that is asked too late; of what had succeeded when it was asked a quorum
 * shows that, or more. */
pred GetAt {
  GetShowsNoLater
  all g: Get, a: Before.fences[g] | earlier[g.of, a.ref] implies
    some q: Quorum | q.members in History.asked[a] and no g.told & q.members
  all g: Get, x: Before.writes[g] | some q: Quorum {
    q.members in x.at
    earlier[g.of, x.ref] implies no g.told & q.members
    all n: g.told & q.members | some g.gave[n] and upTo[x, g.gave[n]]
  }
}

pred invariant { Fits and TagsGrow and FencedAt and LateAt and GetAt }

/* ---- what is assumed ---- */

pred hasQuorum[w: Write] { some q: Quorum | q.members in w.at }
fun quorumShows[a: Synch, q: Quorum]: set Write { History.shown[a][q.members] }

pred FenceHolds {
  all a: Synch, q: Quorum, w: Write |
    q.members in History.asked[a] and below[w, a] and hasQuorum[w]
      implies some s: quorumShows[a, q] | upTo[w, s]
}

pred LateBelowFence {
  all w: Write, a: Before.fences[w] | below[w, a] implies not hasQuorum[w]
}

pred LateBelowWrite {
  all w: Write, x: Before.writes[w] |
    (w in Put and earlier[w.ref, x.ref] or w in Synch and below[w, x]) implies not hasQuorum[w]
}

pred ReadsFind {
  all w: succeeded, q: Quorum | some n: q.members | some n.tag and upTo[w, n.tag]
}

pred LateGetRefused {
  all g: Get | (some r: Before.fences[g].ref + Before.writes[g].ref | earlier[g.of, r])
    implies no q: Quorum | q.members in g.told
}

pred GetShowsNoLater { all g: Get, n: g.told | no g.gave[n] or not earlier[g.of, g.gave[n].ref] }

pred GetFinds {
  all g: Get, w: Before.writes[g], q: Quorum |
    q.members in g.told implies some n: q.members | some g.gave[n] and upTo[w, g.gave[n]]
}

pred allAssumed {
  FenceHolds and LateBelowFence and LateBelowWrite and ReadsFind
  LateGetRefused and GetShowsNoLater and GetFinds
}

initial: check { init implies invariant } for 3 but 1 Get, 4 Write, 1..1 steps expect 0
initial_deep: check { init implies invariant } for 5 but 1 Get, 1..1 steps expect 0

attempt_keeps: check {
  (invariant and some w: Write | attempt[w]) implies after invariant
} for 3 but 1 Get, 4 Write, 2..2 steps expect 0
attempt_keeps_deep: check {
  (invariant and some w: Write | attempt[w]) implies after invariant
} for 5 but 1 Get, 2..2 steps expect 0
store_keeps: check {
  (invariant and some w: Write, n: Replica | store[w, n]) implies after invariant
} for 3 but 1 Get, 4 Write, 2..2 steps expect 0
store_keeps_deep: check {
  (invariant and some w: Write, n: Replica | store[w, n]) implies after invariant
} for 5 but 1 Get, 2..2 steps expect 0
read_keeps: check {
  (invariant and some a: Synch, n: Replica | read[a, n]) implies after invariant
} for 3 but 1 Get, 4 Write, 2..2 steps expect 0
read_keeps_deep: check {
  (invariant and some a: Synch, n: Replica | read[a, n]) implies after invariant
} for 5 but 1 Get, 2..2 steps expect 0
complete_keeps: check {
  (invariant and some a: Synch | complete[a]) implies after invariant
} for 3 but 1 Get, 4 Write, 2..2 steps expect 0
complete_keeps_deep: check {
  (invariant and some a: Synch | complete[a]) implies after invariant
} for 5 but 1 Get, 2..2 steps expect 0
succeed_keeps: check {
  (invariant and some w: Write | succeed[w]) implies after invariant
} for 3 but 1 Get, 4 Write, 2..2 steps expect 0
succeed_keeps_deep: check {
  (invariant and some w: Write | succeed[w]) implies after invariant
} for 5 but 1 Get, 2..2 steps expect 0

gets_keep: check {
  invariant and { some g: Get | askGet[g] or some n: Replica | answerGet[g, n] }
    implies after invariant
} for 3 but 1 Get, 4 Write, 2..2 steps expect 0
gets_keep_deep: check {
  invariant and { some g: Get | askGet[g] or some n: Replica | answerGet[g, n] }
    implies after invariant
} for 5 but 1 Get, 2..2 steps expect 0

assumed: check { invariant implies allAssumed } for 3 but 1 Get, 4 Write, 1..1 steps expect 0
assumed_deep: check { invariant implies allAssumed } for 5 but 1 Get, 1..1 steps expect 0

/* Not empty: a put that a fence has shown succeeds afterwards; one that it has not shown is there. */
late_success_can: run {
  invariant
  some p: Put, a: Synch, q: Quorum {
    q.members in History.asked[a] and below[p, a] and p not in succeeded and succeed[p]
  }
} for 5 but 1 Get, 2..2 steps expect 1

/* A replica that answers the fenced read, and keeps no fence. */
without_fence: run {
  some disj p: Put, a: Synch, k, l, m: Replica, q, r: Quorum {
    init
    q.members = k + l and r.members = l + m and below[p, a]
    attempt[p]; readUnfenced[a, k]; readUnfenced[a, l]; store[p, l]; store[p, m]; not FenceHolds
  }
} for 3 but 2 Write, 7 steps expect 1

/* A replica that knows a later ref, and answers a holder's read: it is counted though asked too late,
 * or shows what the later ref has written. */
needs_refusal: run {
  some a: Synch, g: Get, disj k, l: Replica, q: Quorum {
    init
    q.members = k + l and earlier[g.of, a.ref]
    read[a, k]; read[a, l]; complete[a]; askGet[g]; answered[g, k]; answered[g, l];
    not LateGetRefused
  }
} for 3 but 2 Write, 7 steps expect 1
needs_refusal_shown: run {
  some w: Put, g: Get, n: Replica {
    init
    earlier[g.of, w.ref]
    askGet[g]; attempt[w]; store[w, n]; answered[g, n]; not GetShowsNoLater
  }
} for 3 but 2 Write, 5 steps expect 1

/* A get of a holder that is not past is answered, with the write that had succeeded. */
get_can: run {
  some w: Put, g: Get, disj k, l: Replica, q: Quorum {
    init
    q.members = k + l and w.ref = g.of
    attempt[w]; store[w, k]; store[w, l]; succeed[w]; askGet[g]; answerGet[g, k]; answerGet[g, l];
    (invariant and w in g.gave[k])
  }
} for 3 but 2 Write, 8 steps expect 1

pred readUnfenced[a: Synch, n: Replica] {
  asked' = asked + History -> a -> n
  shown' = shown + History -> a -> n -> n.tag
  fenced' = fenced and fence' = fence and keepGets
  at' = at and tag' = tag and attempted' = attempted and succeeded' = succeeded and keepBefore
}
