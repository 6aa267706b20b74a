/*
 * Registers over more than one earlier store: a segment goes on a second time while values of the
 * first change still move. One key.
 *
 * What is modelled. Three stores in a row, of three members each, of which some may be the same;
 * q = 2 of each. A store begins when q members of the one before are sealed, which is then its
 * *source*, and open, beside any that is open still. A read or a write hears q members of its store
 * and q sealed answers of every source that was open when it began (V1), unless an answer of its
 * store has a mark. A read stores what it finds at q members of its store; then a mark may be set
 * (V2). Or it ends without that, where every answer of one source has its tag. Clients of earlier
 * stores go on as far as members let them, and a write may be stored in later stores under its own
 * tag (V5). A source is closed, as its group's log decides, when the lists of q of its members have
 * been read and the key, if one of them has it, was moved by a read that went through (V7).
 *
 * Eventual puts are each at one member, acknowledged by it alone. Each member of a source owes its
 * eventual value until that was given to f + 1 members of a later store, which have answered (V8).
 * A member deletes its store when that is closed and it owes nothing.
 *
 * The network is the most general one; an operation reaches a chosen set of members at a time, the
 * others later or never, and a store may arrive long after its sender has died.
 *
 * What is abstracted away, and why that is sound.
 * - That a seal is durable, that a sealed store changes no more, and that a deleted one says so
 *   instead of looking empty: shown to be needed in stores.als, and given here.
 * - An operation that meets a deleted source, or is told that one is closed, begins anew: that is a
 *   later operation with fewer sources.
 * - What each member believes of sources: an operation takes for its sources all that are open when
 *   it begins, and any that are not.
 * - Parts, sections, damage, the agreement of logs: as in stores.als. Fences are in fences.als.
 * - Spreading of eventual values among the members of a store, which only makes more copies.
 * - Disks that are lost, but for this: what was given on is at two of them (`givenIsTwice`).
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module sources

open util/ordering[Tag] as tags
open util/ordering[Put] as puts
open util/ordering[Store] as stores

/* The parameter: which rules are in force. */
enum Rule {
  AsksAllSources, // V1: an operation hears q members of every open source, not of the last alone
  MarksBindReads, // V1: a read returns no tag below a mark that it has seen; it asks again
  MarksBindWrites, // V1: a write takes its tag above the marks that it has seen
  CarriesFirst,   // V2: the mark is set when what was found is at q members
  OnlyReadsMark,  // V4: a write marks nothing, for it may have come under a tag that is lower
  ListsOfQuorum,  // V7: a source is closed when the lists of q members have been read
  MovesTheListed, // V7: and what they have has moved
  Harvested,      // V8: who deletes owes nothing
  Answered,       // V8: a seat owes nothing when members have answered that they hold its value
  AnsweredByTwo   // V8: and f + 1 of them
}

one sig Protocol { rules: set Rule }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

/* Tags in their order. The first is that of a key that was never written. */
sig Tag {}
/* Eventual puts, in the order of their tags. */
sig Put {}
sig Member {}

/* What members have in a store. What was deleted stays written here: nobody reads it any more, and
 * the proof speaks of it. */
sig Store {
  view: set Member,
  var has: Member -> lone Tag,  // the value of the highest tag that it was sent
  var mark: Member -> lone Tag, // the key has moved here, up to this tag
  var kept: Member -> lone Put, // the eventual value
  var sealed: set Member,
  var listed: set Member,       // have given their lists to the mover
  var owed: set Member,         // owe their eventual values
  var gone: set Member          // have deleted it
}
fact views { #Store = 3 and all s: Store | #s.view = 3 }

/* Stores that have begun; from which everything has moved. */
var sig begun in Store {}
var sig closed in Store {}
/* Eventual puts that were acknowledged; that were given on. */
var sig acked in Put {}
var sig given in Put {}

abstract sig Op {
  home: one Store,             // its store
  var sources: set Store,      // those that it reads through to
  var heard: Store -> Member,  // have answered it
  var seen: set Tag,           // with these tags,
  var marks: set Tag,          // and these marks
  var tag: lone Tag,           // what it stores, or returns
  var acks: Store -> Member,   // have stored it
  var earlier: set Op          // had ended when this one began
}
sig Write, Read extends Op {}

fun nothingYet: one Tag { tags/first }
pred below[a, b: Tag] { tags/lt[a, b] }
pred upTo[a, b: Tag] { tags/lte[a, b] }
fun olderThan[s: Store]: set Store { stores/prevs[s] }
fun newerThan[s: Store]: set Store { stores/nexts[s] }
/* Sources that may not be left out. */
fun open_[s: Store]: set Store { olderThan[s] - closed }

/* q of a store's members. */
pred quorum[m: set Member, s: Store] { lone s.view - m }

/* An operation ends with q acknowledgements of one store; a read also where its tag stands. */
pred endsIn[o: Op, s: Store] { some o.tag and quorum[s.(o.acks), s] }
pred stands[r: Read, s: Store] {
  s in r.sources and quorum[s.(r.heard), s]
  some r.tag and all m: s.(r.heard) | m.(s.has) = r.tag
}
fun ended: set Op { { o: Op | some s: Store | endsIn[o, s] or o in Read and stands[o, s] } }
pred free[t: Tag] { t != nothingYet and no w: Write | w.tag = t }

/* ---- in the beginning ---- */

pred init {
  all s: Store | s.has = s.view -> nothingYet
  no mark and no kept and no sealed and no listed and no owed and no gone
  begun = stores/first and no closed and no acked and no given
  all o: Op | nothingHeard[o] and no o.tag and no o.acks
}
pred nothingHeard[o: Op] {
  no o.sources and no o.heard and no o.seen and no o.marks and no o.earlier
}

/* ---- what stays ---- */

pred keepCells { has' = has and mark' = mark }
pred keepSeals { sealed' = sealed and listed' = listed and gone' = gone }
pred keepAgreed { begun' = begun and closed' = closed and owed' = owed }
pred keepPuts { kept' = kept and acked' = acked and given' = given }
pred keepAnswers {
  sources' = sources and heard' = heard and seen' = seen and marks' = marks and earlier' = earlier
}
pred keepOps { keepAnswers and tag' = tag and acks' = acks }

/* Members are read, which seals them. */
pred seals[s: Store, m: set Member] {
  sealed' = sealed + s -> m
}

/* ---- what clients do ---- */

/* With its first question it has its sources: all that are open, and some that are not. */
pred begins[o: Op] {
  no o.heard => {
    earlier' = earlier + o -> ended
    open_[o.home] in o.sources' and o.sources' in olderThan[o.home]
    all p: Op - o | p.sources' = p.sources
  } else { earlier' = earlier and sources' = sources }
}

/* It asks its store. */
pred askHome[o: Op] {
  no o.tag and o.home in begun
  let s = o.home, m = s.(o.heard') - s.(o.heard) {
    some m and m in s.view - s.sealed - s.gone
    heard' = heard + o -> s -> m
    seen' = seen + o -> m.(s.has)
    marks' = marks + o -> m.(s.mark)
  }
  begins[o]
  tag' = tag and acks' = acks
  keepCells and keepSeals and keepAgreed and keepPuts
}

/* It reads members of a source; that seals them. */
pred askSource[o: Op] {
  no o.tag and o.home in begun
  some s: o.sources' {
    let m = s.(o.heard') - s.(o.heard) {
      some m and m in s.view - s.gone
      heard' = heard + o -> s -> m
      seen' = seen + o -> m.(s.has)
      seals[s, m]
    }
  }
  begins[o]
  marks' = marks and tag' = tag and acks' = acks and listed' = listed and gone' = gone
  keepCells and keepAgreed and keepPuts
}

pred enough[o: Op] {
  quorum[o.home.(o.heard), o.home]
  some o.marks or all s: asked[o] | quorum[s.(o.heard), s]
}
fun asked[o: Op]: set Store {
  on[AsksAllSources] => o.sources else o.sources & stores/max[o.sources]
}

/* A write takes a tag above all that it has seen. */
pred choose[w: Write] {
  no w.tag and enough[w]
  some t: Tag {
    free[t]
    all s: w.seen | below[s, t]
    on[MarksBindWrites] implies all s: w.marks | below[s, t]
    tag' = tag + w -> t
  }
  keepAnswers and acks' = acks
  keepCells and keepSeals and keepAgreed and keepPuts
}

/* A read takes the highest that it has seen. */
pred decide[r: Read] {
  no r.tag and enough[r]
  some t: Tag {
    t = tags/max[r.seen]
    on[MarksBindReads] implies all m: r.marks | upTo[m, t]
    tag' = tag + r -> t
  }
  keepAnswers and acks' = acks
  keepCells and keepSeals and keepAgreed and keepPuts
}

/* A store arrives at members: of the operation's store; a write's also of a later one. */
pred store[o: Op] {
  some o.tag
  some s: begun & (o.home + (o in Write => newerThan[o.home] else none)) {
    let m = s.(o.acks') - s.(o.acks) {
      some m and m in s.view - s.sealed - s.gone
      acks' = acks + o -> s -> m
      has' = has ++ { x: s, y: Member, t: Tag |
        y in x.view and t = ((y in m and below[y.(x.has), o.tag]) => o.tag else y.(x.has)) }
    }
    all x: Store - s | x.has' = x.has
  }
  mark' = mark and tag' = tag
  keepAnswers and keepSeals and keepAgreed and keepPuts
}

/* Members are told that the key has moved: by a read, of its store. Without the rule also by a
 * write that has come from an earlier store. */
pred tell[o: Op] {
  o in Read => some o.sources else not on[OnlyReadsMark]
  some o.tag
  some s: begun & (o in Read => o.home else newerThan[o.home]) {
    (o in Read and not on[CarriesFirst]) or endsIn[o, s]
    some m: s.view - s.sealed - s.gone {
      all t: m.(s.mark) | below[t, o.tag]
      mark' = mark - s -> m -> Tag + s -> m -> o.tag
    }
  }
  has' = has
  keepSeals and keepAgreed and keepPuts and keepOps
}

/* ---- what members do, and what is agreed ---- */

pred seal[s: Store, m: Member] {
  s in begun and m in s.view - s.sealed
  seals[s, m]
  listed' = listed and gone' = gone
  keepCells and keepAgreed and keepPuts and keepOps
}

/* The next store begins. All members of the one before owe it their eventual values. */
pred begin {
  some s: Store - begun {
    olderThan[s] in begun
    let p = stores/prev[s] | quorum[p.sealed, p] and owed' = owed + p -> p.view
    begun' = begun + s
  }
  closed' = closed
  keepCells and keepSeals and keepPuts and keepOps
}

/* The mover reads a member's list, which seals it. */
pred list[s: Store, m: Member] {
  some newerThan[s] & begun
  m in s.view - s.gone - s.listed
  listed' = listed + s -> m
  seals[s, m]
  gone' = gone
  keepCells and keepAgreed and keepPuts and keepOps
}

/* What the lists show has moved: a read that has gone through to the source, or met a mark, has
 * ended in its store. */
pred hasMoved[s: Store] {
  s.listed.(s.has) = nothingYet or
    some r: Read {
      s in r.sources and endsIn[r, r.home]
      some r.marks or quorum[s.(r.heard), s]
    }
}

/* That everything has moved is agreed. */
pred close {
  some s: begun - closed {
    some newerThan[s] & begun and some s.listed
    on[ListsOfQuorum] implies quorum[s.listed, s]
    on[MovesTheListed] implies hasMoved[s]
    closed' = closed + s
  }
  begun' = begun and owed' = owed
  keepCells and keepSeals and keepPuts and keepOps
}

/* An eventual put, at one member. */
pred put[s: Store, m: Member] {
  s in begun and m in s.view - s.sealed - s.gone
  some p: Put - acked {
    all k: m.(s.kept) | puts/lt[k, p]
    kept' = kept - s -> m -> Put + s -> m -> p
    acked' = acked + p
  }
  given' = given
  keepCells and keepSeals and keepAgreed and keepOps
}

/* A member of a later store takes what one of a source has. */
pred gift[s: Store, m: Member] {
  m in s.sealed - s.gone
  some p: m.(s.kept), l: begun & newerThan[s], g: l.view - l.sealed - l.gone {
    all k: g.(l.kept) | puts/lt[k, p]
    kept' = kept - l -> g -> Put + l -> g -> p
  }
  acked' = acked and given' = given
  keepCells and keepSeals and keepAgreed and keepOps
}

/* That is agreed to be enough. */
pred harvest[s: Store, m: Member] {
  m in s.owed & s.sealed - s.gone
  all p: m.(s.kept) | some l: begun & newerThan[s] | let h = holders[p, l] {
    on[Answered] implies some h
    on[Answered] and on[AnsweredByTwo] implies not lone h
  }
  owed' = owed - s -> m
  given' = given + m.(s.kept)
  kept' = kept and acked' = acked and begun' = begun and closed' = closed
  keepCells and keepSeals and keepOps
}

/* Members of a store that have an eventual value, or a newer one. */
fun holders[p: Put, s: Store]: set Member {
  { m: s.view - s.gone | some k: m.(s.kept) | puts/lte[p, k] }
}

/* A member deletes its store. */
pred delete[s: Store, m: Member] {
  m in s.view - s.gone
  s in closed
  on[Harvested] implies m not in s.owed
  gone' = gone + s -> m
  seals[s, m]
  listed' = listed
  keepCells and keepAgreed and keepPuts and keepOps
}

pred nothing { keepCells and keepSeals and keepAgreed and keepPuts and keepOps }

pred event {
  (some o: Op | askHome[o] or askSource[o] or store[o] or tell[o])
  or (some w: Write | choose[w])
  or (some r: Read | decide[r])
  or (some s: Store, m: Member |
    seal[s, m] or list[s, m] or put[s, m] or gift[s, m] or harvest[s, m] or delete[s, m])
  or begin or close
}

/* ---- what is promised ---- */

/* Real time, across stores: what has ended before another begins does not come after it. */
pred p2 {
  all o: Op, p: o.earlier | some o.tag implies
    upTo[p.tag, o.tag] and (o in Write implies below[p.tag, o.tag])
}
pred p3 { all disj a, b: Write | no a.tag & b.tag }
pred p4 { all r: Read | some r.tag implies r.tag in nothingYet + Write.tag }
pred atomic { p2 and p3 and p4 }

/* Whatever has ended is at q members of a store that was not deleted, or something later is. */
pred nothingLost {
  all o: ended | o.tag = nothingYet or
    some s: Store | quorum[{ m: s.view - s.gone | upTo[o.tag, m.(s.has)] }, s]
}

/* An acknowledged eventual put is somewhere, or a later one is. */
pred eventualKept { all p: acked | some s: Store | some holders[p, s] }
/* Whoever meets a mark finds, at q members of the store, what it says. */
pred marksAreFound { all s: Store, t: Member.(s.mark) | held[t, s] }
pred held[t: Tag, s: Store] { quorum[{ m: s.view | upTo[t, m.(s.has)] }, s] }
/* One that was given on is at two nodes, so that one lost disk does not take it. */
pred givenIsTwice { all p: given | not lone { m: Member | some s: Store | m in holders[p, s] } }

/* ---- the invariant ---- */

pred shape {
  all s: Store {
    s.has in s.view -> Tag and (all m: s.view | one m.(s.has))
    s.mark.Tag + s.kept.Put + s.sealed + s.owed in s.view
    s.gone + s.listed in s.sealed
    s not in begun implies s.has = s.view -> nothingYet and no s.mark and no s.kept and no s.sealed
    some s.mark implies s != stores/first
    s in begun implies olderThan[s] in begun and all p: olderThan[s] | quorum[p.sealed, p]
    (some s.owed + s.listed or s in closed) implies some newerThan[s] & begun
    some newerThan[s] & begun implies s.view - s.sealed in s.owed
    some s.gone implies s in closed and no s.gone & s.owed
  }
  stores/first in begun
  p3
  no nothingYet & Write.tag
  Member.(Store.has) + Member.(Store.mark) + Op.seen + Op.marks + Read.tag in
    nothingYet + Write.tag
  all o: Op {
    o.sources in olderThan[o.home]
    o.heard.Member in o.home + o.sources
    o.acks.Member in begun and o.acks.Member in o.home + newerThan[o.home]
    o in Read implies o.acks.Member in o.home
    all s: Store | s.(o.heard) + s.(o.acks) in s.view
    some o.heard implies o.home in begun
    no o.heard implies nothingHeard[o] and no o.tag
    no o.tag implies no o.acks
    some o.tag implies enough[o]
    all t: o.seen + o.marks | some o.tag implies
      upTo[t, o.tag] and (o in Write implies below[t, o.tag])
    o in Read and some o.tag implies o.tag in o.seen
    o.earlier in ended - o
    some o.heard implies all s: olderThan[o.home] - o.sources | s in closed
  }
}

/* What members have acknowledged they have. */
pred ackedIsKept { all o: Op, s: Store, m: s.(o.acks) | upTo[o.tag, m.(s.has)] }

/* What an operation has heard of a source is all that there will ever be; it has seen no more than
 * somebody has. */
pred sealedIsSeen {
  all o: Op, s: o.sources, m: s.(o.heard) | m in s.sealed and m.(s.has) in o.seen
}

/* A tag that q members of a store have, or may yet get. */
pred mayHold[t: Tag, s: Store] {
  quorum[{ m: s.view | m not in s.sealed or upTo[t, m.(s.has)] }, s]
}

/* No mark lies below what is complete in earlier stores, or ever will be. */
pred marksHold {
  all s: Store, t: Member.(s.mark) + { u: Tag | some o: Op | o.home = s and u in o.marks } |
    all e: olderThan[s], u: Tag | mayHold[u, e] implies upTo[u, t]
}

/* From a closed store everything that is complete has moved into one that is not. */
pred closedHasMoved {
  all s: closed, t: Tag | mayHold[t, s] implies t = nothingYet or
    some l: newerThan[s] & begun - closed | held[t, l]
}

pred sees[o: Op, t: Tag] { some s: o.seen | upTo[t, s] }
/* An operation sees a tag, if it ever has enough answers. */
pred willSee[o: Op, t: Tag] {
  t = nothingYet or some s: o.sources + o.home |
    quorum[{ m: s.view | upTo[t, m.(s.has)] and (m in s.(o.heard) implies sees[o, t]) }, s]
}
/* It never has q answers of its own store. */
pred blocked[o: Op] { quorum[o.home.sealed - o.home.(o.heard), o.home] }

/* What had ended when an operation began, and what has moved out of a source that it does not ask,
 * it sees, or it is blocked. */
pred endedIsSeen {
  all o: Op | some o.heard implies blocked[o] or {
    all p: o.earlier | willSee[o, p.tag]
    all s: olderThan[o.home] - o.sources, t: Tag | mayHold[t, s] implies willSee[o, t]
  }
}

/* An eventual value that a seat does not owe any more is at two nodes, in later stores. */
pred harvestedIsTwice {
  all s: Store, m: s.view - s.owed, p: m.(s.kept) | some newerThan[s] & begun implies
    not lone { g: Member | some l: newerThan[s] | g in holders[p, l] }
}
pred acksAreKept { Member.(Store.kept) + given in acked }

pred inv { order and marksAreFound }
/* What is there also if marks are set first. */
pred order {
  shape and ackedIsKept and sealedIsSeen and marksHold and closedHasMoved and endedIsSeen
  harvestedIsTwice and acksAreKept and eventualKept and givenIsTwice
  p2
}

/* ---- the proof, for all traces ---- */

/* q = 2 of 3 in each of three stores; 4 nodes in all. All events with two operations and two tags,
 * each alone with three. */
holds_at_first: check { right and init implies inv } for 3 but 4 Member, 1 steps expect 0
keeps_all: check { right and inv and event implies after inv }
  for 2 but 3 Store, 3 Member, 1 Put, 2 steps expect 0
keeps_askHome_deep: check { all o: Op | right and inv and askHome[o] implies after inv }
  for 3 but 4 Member, 2 steps expect 0
keeps_askSource_deep: check { all o: Op | right and inv and askSource[o] implies after inv }
  for 3 but 4 Member, 2 steps expect 0
keeps_choose_deep: check { all w: Write | right and inv and choose[w] implies after inv }
  for 3 but 4 Member, 2 steps expect 0
keeps_decide_deep: check { all r: Read | right and inv and decide[r] implies after inv }
  for 3 but 4 Member, 2 steps expect 0
keeps_store_deep: check { all o: Op | right and inv and store[o] implies after inv }
  for 3 but 4 Member, 2 steps expect 0
keeps_tell_deep: check { all o: Op | right and inv and tell[o] implies after inv }
  for 3 but 4 Member, 2 steps expect 0
keeps_begin_deep: check { right and inv and begin implies after inv }
  for 3 but 4 Member, 2 steps expect 0
keeps_close_deep: check { right and inv and close implies after inv }
  for 3 but 4 Member, 2 steps expect 0
keeps_seals_deep: check {
  all s: Store, m: Member | right and inv and (seal[s, m] or list[s, m]) implies after inv
} for 3 but 4 Member, 2 steps expect 0
keeps_put_deep: check {
  all s: Store, m: Member | right and inv and (put[s, m] or gift[s, m]) implies after inv
} for 3 but 4 Member, 2 steps expect 0
keeps_harvest_deep: check {
  all s: Store, m: Member | right and inv and harvest[s, m] implies after inv
} for 3 but 4 Member, 2 steps expect 0
keeps_delete_deep: check {
  all s: Store, m: Member | right and inv and delete[s, m] implies after inv
} for 3 but 4 Member, 2 steps expect 0
/* Where marks bind reads and writes, one that is set too early delays them and breaks no order. */
keeps_order_deep: check { without[CarriesFirst] and order and event implies after order }
  for 2 but 3 Store, 4 Member, 1 Put, 2 steps expect 0
says_order_deep: check { without[CarriesFirst] and order implies atomic and nothingLost }
  for 3 but 4 Member, 1 steps expect 0
says_all: check {
  right and inv implies
    atomic and nothingLost and marksAreFound and eventualKept and givenIsTwice
} for 3 but 4 Member, 1 steps expect 0

/* ---- every event can happen ---- */

/* Which stores follow each other, and whose operations these are. */
pred inOrder[a, b: Store] { a = stores/first and b = stores/next[a] }
pred inOrder[a, b, c: Store] { inOrder[a, b] and c = stores/next[b] }
pred seals_[s: Store] { some m: Member | seal[s, m] }
pred lists_[s: Store] { some m: Member | list[s, m] }

/* A write ends in the first store. The segment goes on twice. A read finds it through two open
 * sources, and a later one by the mark. The sources are closed. */
happens_move: run {
  some a, b, c: Store, w: Write, disj r, n: Read | right and init and
    inOrder[a, b, c] and w.home = a and r.home = c and n.home = c and
    (askHome[w]; choose[w]; store[w]; seals_[a]; seals_[a]; begin; seals_[b]; seals_[b]; begin;
      askSource[r]; askSource[r]; askHome[r]; decide[r]; store[r]; tell[r]; askHome[n]; decide[n];
      lists_[a]; lists_[a]; close; lists_[b]; lists_[b]; close;
      always (nothing and n.tag = w.tag and closed = a + b))
} for 2 but exactly 3 Store, exactly 4 Member, exactly 2 Read, exactly 1 Write, 24..24 steps
  expect 1
/* A member has an eventual put alone, and is away until its store is closed. It is harvested, and
 * deletes; the member that was given the put is harvested in its turn. */
happens_owed: run {
  some a, b, c: Store, disj k, m, n: Member | right and init and inOrder[a, b, c] and
    (put[a, m]; seals_[a]; seals_[a]; begin; lists_[a]; lists_[a]; close; seal[a, m]; gift[a, m];
      gift[a, m]; harvest[a, m]; delete[a, m]; seal[b, n]; seal[b, k]; begin; gift[b, n];
      gift[b, n]; harvest[b, n]; lists_[b]; lists_[b]; close; delete[b, n];
      always (nothing and some n.(b.kept) and some given))
} for 1 but 2 Tag, exactly 3 Store, exactly 5 Member, 0 Op, 23..23 steps expect 1
/* A write of the first store goes on in the third; a read finds it in every answer of a source. */
happens_cross: run {
  some a, b, c: Store, w: Write, r: Read | right and init and
    inOrder[a, b, c] and w.home = a and r.home = b and
    (askHome[w]; choose[w]; store[w]; seals_[a]; seals_[a]; begin; askSource[r]; askHome[r];
      decide[r]; seals_[b]; seals_[b]; begin; store[w];
      always (nothing and stands[r, a] and some c.(w.acks)))
} for 2 but exactly 3 Store, exactly 4 Member, exactly 1 Read, exactly 1 Write, 14..14 steps
  expect 1

/* ---- each rule is needed: counter-examples ---- */

/* In each it is given who does what in which order; with which members and tags is not. */

/* V1. What ended two changes ago has not moved, and only the last source is asked. */
needs_AsksAllSources: check {
  all a, b, c: Store, w: Write, r: Read | (without[AsksAllSources] and init and
    inOrder[a, b, c] and w.home = a and r.home = c and
    (askHome[w]; choose[w]; store[w]; seals_[a]; seals_[a]; begin; seals_[b]; seals_[b]; begin;
      askSource[r]; askHome[r]; decide[r]; always nothing))
      implies always p2
} for 2 but exactly 3 Store, exactly 4 Member, exactly 1 Read, exactly 1 Write, 13..13 steps
  expect 1

/* V1. A read has heard one member before the key came there, and another one that knows of the mark
 * alone: it does not ask the source. */
needs_MarksBindReads: check {
  all a, b: Store, w: Write, disj q, r: Read | (without[MarksBindReads] and init and
    inOrder[a, b] and w.home = a and q.home = b and r.home = b and
    (askHome[w]; choose[w]; store[w]; seals_[a]; seals_[a]; begin; askHome[r];
      askSource[q]; askHome[q]; decide[q]; store[q]; tell[q]; askHome[r]; decide[r];
      always nothing))
      implies always p2
} for 2 but exactly 3 Store, exactly 4 Member, exactly 2 Read, exactly 1 Write, 15..15 steps
  expect 1
/* The same of a write: its tag lies below what has ended. */
needs_MarksBindWrites: check {
  all a, b: Store, disj v, w: Write, q: Read | (without[MarksBindWrites] and init and
    inOrder[a, b] and w.home = a and q.home = b and v.home = b and
    (askHome[w]; choose[w]; store[w]; seals_[a]; seals_[a]; begin; askHome[v];
      askSource[q]; askHome[q]; decide[q]; store[q]; tell[q]; askHome[v]; choose[v];
      always nothing))
      implies always p2
} for 3 but exactly 3 Store, exactly 4 Member, exactly 1 Read, exactly 2 Write, 1 Put, 15..15 steps
  expect 1

/* V2. A key is marked before its value is at q members: who meets the mark finds nothing. */
needs_CarriesFirst: check {
  all a, b: Store, w: Write, q: Read | (without[CarriesFirst] and init and
    inOrder[a, b] and w.home = a and q.home = b and
    (askHome[w]; choose[w]; store[w]; seals_[a]; seals_[a]; begin; askSource[q]; askHome[q];
      decide[q]; tell[q]; always nothing))
      implies always marksAreFound
} for 2 but exactly 3 Store, exactly 4 Member, exactly 1 Read, exactly 1 Write, 11..11 steps
  expect 1

/* V4. A write of the first store goes on in the second, and marks the key there: what had ended
 * before the read began is left out. */
needs_OnlyReadsMark: check {
  all a, b: Store, disj v, w: Write, r: Read | (without[OnlyReadsMark] and init and
    inOrder[a, b] and w.home = a and v.home = a and r.home = b and
    (askHome[w]; askHome[v]; choose[w]; choose[v]; store[v]; seals_[a]; seals_[a]; begin; store[w];
      tell[w]; askHome[r]; decide[r]; always nothing))
      implies always p2
} for 3 but exactly 3 Store, exactly 4 Member, exactly 1 Read, exactly 2 Write, 1 Put, 13..13 steps
  expect 1

/* V7. A value is at two members; the third one's list, in which it is not, is taken for all. */
needs_ListsOfQuorum: check {
  all a, b: Store, w: Write, r: Read | (without[ListsOfQuorum] and init and
    inOrder[a, b] and w.home = a and r.home = b and
    (askHome[w]; choose[w]; store[w]; seals_[a]; seals_[a]; begin; lists_[a]; close;
      askHome[r]; decide[r]; always nothing))
      implies always p2
} for 2 but exactly 3 Store, exactly 4 Member, exactly 1 Read, exactly 1 Write, 11..11 steps
  expect 1
/* V7. A source is closed when its keys are known, and not moved. */
needs_MovesTheListed: check {
  all a, b: Store, w: Write, r: Read | (without[MovesTheListed] and init and
    inOrder[a, b] and w.home = a and r.home = b and
    (askHome[w]; choose[w]; store[w]; seals_[a]; seals_[a]; begin; lists_[a]; lists_[a]; close;
      askHome[r]; decide[r]; always nothing))
      implies always p2
} for 2 but exactly 3 Store, exactly 4 Member, exactly 1 Read, exactly 1 Write, 12..12 steps
  expect 1

/* V8. A member that was away comes back when its store is closed, and deletes it. */
needs_Harvested: check {
  all a, b: Store, m: Member | (without[Harvested] and init and inOrder[a, b] and
    (put[a, m]; seals_[a]; seals_[a]; begin; lists_[a]; lists_[a]; close; delete[a, m];
      always nothing))
      implies always eventualKept
} for 1 but 2 Tag, exactly 3 Store, exactly 4 Member, 0 Op, 9..9 steps expect 1
/* V8. What a member has is sent to others, and is lost on its way. */
needs_Answered: check {
  all a, b: Store, m: Member | (without[Answered] and init and inOrder[a, b] and
    (put[a, m]; seal[a, m]; seals_[a]; begin; harvest[a, m]; lists_[a]; lists_[a]; close;
      delete[a, m]; always nothing))
      implies always eventualKept
} for 1 but 2 Tag, exactly 3 Store, exactly 4 Member, 0 Op, 10..10 steps expect 1
/* V8. It is at one other member, and goes from where it was. */
needs_AnsweredByTwo: check {
  all a, b: Store, m: Member | (without[AnsweredByTwo] and init and inOrder[a, b] and
    (put[a, m]; seal[a, m]; seals_[a]; begin; gift[a, m]; harvest[a, m]; lists_[a]; lists_[a];
      close; delete[a, m]; always nothing))
      implies always givenIsTwice
} for 1 but 2 Tag, exactly 3 Store, exactly 4 Member, 0 Op, 11..11 steps expect 1
