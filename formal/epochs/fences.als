/*
 * Fences across epochs, writes of one round, and writes that cross: registers of which one segment
 * goes on in another epoch. One key.
 *
 * What is modelled. Two stores with three members each, q = 2; the old one is sealed, the new one
 * begins empty, and is read through to the old one. A member has the value of the highest tag that
 * it was sent, and a fence, below which it takes nothing. Writes of two rounds, and of one round
 * with a time as their tag; reads; sweeps, which read under a fence and store what they have found
 * under their own tag. Clients that know nothing of the change go on in the old epoch as far as its
 * members let them. A write that the seal interrupts crosses: it goes on in the new epoch under its
 * own tag. What an operation has carried over, with the fence that it has found, has moved; then a
 * mark may say so, and when everything has moved the old store may be closed.
 *
 * Time goes on between any two steps, or does not: of tags, those up to some one have passed. A
 * write of one round takes one that has not passed, and a read or write ends when its tag has.
 * Sweeps do not wait.
 *
 * The network is the most general one: an operation reaches a chosen set of members at a time, the
 * others later or never, and a store may arrive long after its sender has died.
 *
 * What is abstracted away, and why that is sound.
 * - The members of the two epochs are different ones: what a member says of one store has nothing
 *   to do with what it has in the other.
 * - Durable seals, deleted stores, eventual puts: stores.als. That a sealed store never changes is
 *   proved there, and is how it is here.
 * - Parts of codes, and tags that are told to be final: formal/registers.
 * - Marks are not kept by members: an answer of the new epoch may show any mark that could have
 *   been told by then.
 * - That the source is closed is a mark that all members show.
 * - All else as in formal/registers/times.als.
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module fences

open util/ordering[Tag] as tags

/* The parameter: which rules are in force. */
enum Rule {
  FencesMove,     // V3: what is carried over brings the highest fence of the source along
  PassedIsSwept,  // who finds less than a fence of the source sweeps
  AboveFences,    // V4: the tag of a write lies above the fences that it has seen
  AboveMarks,     // V1: nothing is returned or written below a mark that was seen
  OneRoundAlone,  // V4: a write of one round begins when the source is closed
  CrossesLooking, // V5: a write that crosses asks the source, too, and does not end below a fence
  StoresApart,    // V5: acknowledgements of two stores are never added
  ReadsAnew,      // V5: a read that the seal interrupts begins again
  SweepsAnew      // V5: so does a sweep
}

one sig Protocol { rules: set Rule }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

/* Tags in their order. The first is that of the old value. */
sig Tag {}

abstract sig Member { var part: one Tag, var fence: one Tag }
sig Old, New extends Member {}

/* Whose seal is on the disk; tags that have passed, if they are times; the source is closed. */
var sig sealed in Old {}
var sig passed in Tag {}
one sig Source {}
var sig closed in Source {}

abstract sig Op {
  var shown: Member -> lone Tag, // what members have answered,
  var vowed: Member -> lone Tag, // with these fences,
  var marks: set Tag,            // and these marks
  var tag: lone Tag,             // what it stores, or returns
  var gives: lone Tag,           // whose value that is; none: it has not decided yet
  var acks: set Member,          // have stored it
  var earlier: set Op            // had ended when this one began
}
sig Write, Read extends Op {}
sig Sweep extends Op { var from: lone Tag }
/* A write that goes on in the new epoch: what is asked and stored there. */
sig Cross extends Op { of: one Write }

/* Of clients in the old epoch; writes of one round. */
sig Stale in Op {}
sig Quick in Write {}
fact crossing { no Cross & Stale and Cross.of in Stale }

var sig ended in Op {}

fun old: one Tag { tags/first }
pred below[a, b: Tag] { tags/lt[a, b] }
pred upTo[a, b: Tag] { tags/lte[a, b] }
pred quorum[m: set Member, view: set Member] { lone view - m }
pred open_ { quorum[sealed, Old] }

fun home[o: Op]: set Member { o in Stale => Old else New }
fun heard[o: Op]: set Member { o.shown.Tag }
/* Whose answers count: with a mark, not those of the source. */
fun counted[o: Op]: set Member { some o.marks => heard[o] & New else heard[o] }
fun seen[o: Op]: set Tag { counted[o].(o.shown) }
fun fences[o: Op]: set Tag { counted[o].(o.vowed) }
/* The source, where one is asked; and the highest fence there. */
fun source[o: Op]: set Member { o in Stale => none else Old }
fun promise[o: Op]: one Tag { tags/max[old + (counted[o] & source[o]).(o.vowed)] }

pred enough[o: Op] {
  quorum[heard[o], home[o]]
  o in Stale or some o.marks or quorum[heard[o], Old]
}

fun maker[t: Tag]: set Op { { o: Write + Sweep | t in o.tag } }
fun value[t: Tag]: set Tag { t = old => old else maker[t].gives }
pred free[t: Tag] { t != old and no maker[t] }

/* Operations that have moved the key: they have read through, and q members have what they found.
 */
fun through: set Op {
  { o: (Read + Sweep) - Stale |
    some o.gives and no o.marks and quorum[heard[o], Old] and quorum[o.acks, New] }
}

pred init {
  part = Member -> old and fence = Member -> old
  no sealed and no closed and passed = old
  no shown and no vowed and no marks and no tag and no gives and no acks and no earlier and no from
  no ended
}

/* ---- what stays ---- */

pred keepMembers { part' = part and fence' = fence }
pred keepAnswers { shown' = shown and vowed' = vowed and marks' = marks and earlier' = earlier }
pred keepTags { tag' = tag and gives' = gives and from' = from }
pred keepSource { sealed' = sealed and closed' = closed }
pred keepEnds { ended' = ended and passed' = passed }

/* ---- what operations do ---- */

pred begins[o: Op] {
  earlier' = (no o.shown and no o.tag => earlier + o -> ended else earlier)
}

/* Members answer; those of the source are sealed by that. */
pred hears[o: Op] {
  let m = o.shown'.Tag - heard[o] {
    some m
    shown' = shown + o -> (m <: part)
    vowed' = vowed + o -> (m <: fence)
    o in Stale => {
      m in Old - sealed
      marks' = marks and sealed' = sealed
    } else {
      some m & New implies open_
      sealed' = sealed + (m & Old)
      marks in marks'
      marks' - marks in o -> (some m & New => through.tag else none)
    }
  }
  begins[o]
  closed' = closed
}

/* It has heard the source, where nothing is promised above it. */
pred looked[c: Cross] {
  quorum[heard[c] & Old, Old] and all m: heard[c] & Old | upTo[m.(c.vowed), c.tag]
}

pred ask[o: Op] {
  o not in Sweep + Quick and (o in Cross or no o.gives)
  o in Cross implies
    some o.of.gives and o.of not in ended and o.shown'.Tag - heard[o] in Old
  hears[o]
  keepMembers and keepTags and acks' = acks and keepEnds
}

/* A sweep asks; members of the epoch that it is in promise to take nothing below its tag. */
pred askFenced[s: Sweep] {
  no s.gives and hears[s]
  let m = (s.shown'.Tag - heard[s]) & home[s] | some t: s.tag' {
    s.tag = t or no s.tag and free[t]
    all x: m | below[x.part, t] and below[x.fence, t]
    tag' = tag + s -> t
    fence' = fence ++ m -> t
  }
  part' = part and gives' = gives and from' = from and acks' = acks and keepEnds
}

/* A write of one round begins, with the latest time that it can be. */
pred write[w: Quick] {
  no w.tag
  w not in Stale implies open_ and (on[OneRoundAlone] implies some closed)
  begins[w]
  some t: Tag {
    free[t] and t not in passed
    tag' = tag + w -> t and gives' = gives + w -> t
  }
  keepMembers and shown' = shown and vowed' = vowed and marks' = marks and from' = from
  acks' = acks and keepSource and keepEnds
}

/* One of two rounds takes its tag. */
pred choose[w: Write] {
  w not in Quick and no w.gives and enough[w]
  some t: Tag {
    free[t]
    all s: seen[w] | below[s, t]
    on[AboveFences] implies all f: fences[w] | below[f, t]
    on[AboveMarks] implies all m: w.marks | below[m, t]
    tag' = tag + w -> t and gives' = gives + w -> t
  }
  keepMembers and from' = from and keepAnswers and acks' = acks and keepSource and keepEnds
}

/* A read takes the highest tag that it has seen. */
pred decide[r: Read] {
  no r.gives and enough[r]
  some t: Tag {
    t = tags/max[seen[r]]
    on[AboveMarks] implies all m: r.marks | upTo[m, t]
    on[PassedIsSwept] implies (upTo[promise[r], t] or stands[r, t])
    tag' = tag + r -> t and gives' = gives + r -> value[t]
    acks' = acks + r ->
      { m: heard[r] & home[r] | m.(r.shown) = t and upTo[promise[r], m.(r.vowed)] }
  }
  keepMembers and from' = from and keepAnswers and keepSource and keepEnds
}
/* Every answer of the source has it. */
pred stands[o: Op, t: Tag] { all m: heard[o] & Old | m.(o.shown) = t }

/* A sweep takes the highest, and stores it under its own tag, unless that is too low. */
pred conclude[s: Sweep] {
  no s.gives and enough[s]
  some t: Tag {
    t = tags/max[seen[s]]
    all x: s.marks | upTo[x, t]
    all x: seen[s] + (counted[s] & (Member - home[s])).(s.vowed) | below[x, s.tag]
    from' = from + s -> t and gives' = gives + s -> value[t]
  }
  keepMembers and tag' = tag and keepAnswers and acks' = acks and keepSource and keepEnds
}

/* A write goes on in the new epoch, and asks the source meanwhile: then it may end. */
pred cross[c: Cross] {
  no c.gives and some c.of.gives and open_
  tag' = tag + c -> c.of.tag and gives' = gives + c -> c.of.gives
  keepMembers and from' = from and keepAnswers and acks' = acks and keepSource and keepEnds
}

/* Whom its stores may reach. */
fun reached[o: Op]: set Member {
  o not in Stale => (open_ => New else none) else (Old - sealed) +
    (open_ and (o in Read and not on[ReadsAnew] or o in Sweep and not on[SweepsAnew])
      => New else none)
}
/* Whoever has had it stores it again. */
pred known[m: Member, t: Tag] { m.part = t or some o: Op | o.tag = t and m in o.acks }

/* A store arrives at some members. What a read carries over brings a promise along, too. */
pred store[o: Op] {
  some o.gives
  let m = o.acks' - o.acks {
    some m and m in reached[o]
    all x: m | upTo[x.fence, o.tag] or o in Read - Stale and known[x, o.tag]
    acks' = acks + o -> m
    part' = part ++ { x: m, t: o.tag | below[x.part, t] }
    fence' = (o in Read and on[FencesMove]
      => fence ++ { x: m, t: promise[o] | below[x.fence, t] } else fence)
  }
  keepTags and keepAnswers and keepSource and keepEnds
}

/* Whoever has acknowledged it, in one store or the other. */
fun acked[o: Op]: set Member { (o + of.o).acks }

pred end_[o: Op] {
  o not in ended + Cross and some o.gives
  quorum[o.acks, Old] or quorum[o.acks, New] or (some c: of.o |
    quorum[c.acks, New] and (on[CrossesLooking] implies looked[c]))
    or not on[StoresApart] and not lone acked[o]
  o not in Sweep implies o.tag in passed
  ended' = ended + o and passed' = passed
  keepMembers and keepTags and keepAnswers and acks' = acks and keepSource
}

/* ---- what happens besides ---- */

pred seal {
  sealed in sealed' and sealed' != sealed and closed' = closed
  keepMembers and keepTags and keepAnswers and acks' = acks and keepEnds
}

/* The key has moved, and that everything has is agreed. */
pred close {
  no closed and some through
  closed' = Source and sealed' = sealed
  keepMembers and keepTags and keepAnswers and acks' = acks and keepEnds
}

pred tick {
  passed in passed' and passed' != passed
  all a: passed', b: Tag | below[b, a] implies b in passed'
  ended' = ended
  keepMembers and keepTags and keepAnswers and acks' = acks and keepSource
}

pred nothing {
  keepMembers and keepTags and keepAnswers and acks' = acks and keepSource and keepEnds
}

pred event {
  (some o: Op | ask[o] or store[o] or end_[o])
  or (some s: Sweep | askFenced[s] or conclude[s])
  or (some w: Write | w in Quick and write[w] or choose[w])
  or (some r: Read | decide[r]) or (some c: Cross | cross[c])
  or seal or close or tick
}

/* ---- what is promised ---- */

/* Real time, across epochs: what has ended before another begins does not come after it. */
pred p2 {
  all o: ended, p: o.earlier | upTo[p.tag, o.tag] and (o in Write implies below[p.tag, o.tag])
}
pred p3 { all disj a, b: Write + Sweep | no a.tag & b.tag }
/* What ends with a tag gives the value of that; nothing that has ended lies between a sweep and
 * what it carries on. */
pred p4 {
  all o: ended | one o.gives and o.gives = value[o.tag]
  all p, o: ended | below[p.tag, o.tag] implies upTo[p.gives, o.gives]
}
pred atomic { p2 and p3 and p4 }

/* ---- the invariant ---- */

pred shape {
  p3
  no maker[old]
  old in passed and (all a: passed, b: Tag | below[b, a] implies b in passed)
  Member.(part + fence) + Member.(Op.(shown + vowed)) + Op.marks in old + (Write + Sweep).tag
  Member.part + Member.(Op.shown) + Op.marks in old + { t: Tag | some value[t] }
  Member.fence + Member.(Op.vowed) in old + Sweep.tag
  all o: Op | o.shown.Tag = o.vowed.Tag
  all o: Stale | heard[o] in Old and o.acks in Old and no o.marks
  all o: Op - Stale | o.acks in New and heard[o] & Old in sealed
  all o: Op - Stale | some (heard[o] & New) + o.acks implies open_
  all o: Op | some o.gives implies some o.tag
  all o: Op - Sweep | some o.tag implies some o.gives
  all o: Op | no o.gives implies no o.acks
  all o: Op | no o.shown and no o.tag implies no o.earlier
  all o: Op | o.earlier in ended - o - Cross
  all w: Quick | no w.shown and no w.marks and (w not in Stale and some w.tag implies some closed)
  all w: Write | w.gives = w.tag
  all w: Write - Quick | some w.tag implies
    enough[w] and (all s: seen[w] + fences[w] + w.marks | below[s, w.tag])
  all r: Read | some r.tag implies
    enough[r] and r.tag = tags/max[seen[r]] and r.gives = value[r.tag] and
    (all m: r.marks | upTo[m, r.tag]) and (upTo[promise[r], r.tag] or stands[r, r.tag])
  all s: Sweep | (some s.gives iff some s.from) and (some s.shown iff some s.tag)
  all s: Sweep, m: heard[s] & home[s] | below[m.(s.shown), s.tag] and below[m.(s.vowed), s.tag]
  all s: Sweep | some s.from implies
    enough[s] and s.from = tags/max[seen[s]] and s.gives = value[s.from] and
    (all m: s.marks | upTo[m, s.from]) and (all x: seen[s] + fences[s] | below[x, s.tag])
  all c: Cross | some c.gives implies
    c.tag = c.of.tag and c.gives = c.of.gives and some c.of.gives
  all c: Cross | heard[c] in Old and no c.marks
  all t: Tag | lone value[t] and (some value[t] implies upTo[value[t], t])
  some closed implies some through
  not open_ implies New.part in old
  all o: ended | some o.gives and o not in Cross and
    (quorum[o.acks, home[o]] or some c: of.o | quorum[c.acks, New] and looked[c])
  all o: ended - Sweep | o.tag in passed
}

/* Members keep what they have acknowledged, and promised; a sealed one all that it has shown. */
pred membersKeep {
  all o: Op, m: o.acks | upTo[o.tag, m.part]
  all o: Op, m: heard[o] | upTo[m.(o.shown), m.part] and upTo[m.(o.vowed), m.fence]
  all s: Sweep, m: heard[s] & home[s] | upTo[s.tag, m.fence]
  all r: Read - Stale, m: r.acks | upTo[promise[r], m.fence]
  all o: Op - Stale, m: heard[o] & Old | m.(o.shown) = m.part and m.(o.vowed) = m.fence
}

/* A mark says that the key has moved. */
pred marksHold { Op.marks in through.tag }

/* What a member has shown to a sweep, under its fence, is all that it will ever have below it. */
pred fencesHold {
  all s: Sweep, m: heard[s] & home[s] {
    below[m.part, s.tag] implies upTo[m.part, m.(s.shown)]
    all o: Op | m in o.acks and below[o.tag, s.tag] implies upTo[o.tag, m.(s.shown)]
    all o: Op, t: m.(o.shown) | below[t, s.tag] implies upTo[t, m.(s.shown)]
  }
}

/* A sweep of the old epoch that may have q answers; tags that it passes over. */
pred able[s: Sweep] { s in Stale and some s.tag and quorum[heard[s] + (Old - sealed), Old] }
pred passes[s: Sweep, t: Tag] { below[t, s.tag] and no x: seen[s] | upTo[t, x] }
/* Members of the new epoch that have, or had, a tag. */
fun touched[t: Tag]: set New {
  { m: New | m.part = t or some o: Op | m.(o.shown) = t or o.tag = t and m in o.acks }
}
/* What crosses may be at members all the same: it has not looked yet, or in vain. */
fun crossing: set Tag { { t: Tag | some c: Cross | c.tag = t } }
/* What a sweep of the old epoch has passed over never ends in the new one: q members have its
 * promise, and never had that tag. */
pred promiseHolds {
  all s: Sweep, t: Tag - crossing | able[s] and passes[s, t] and
    (some touched[t] or some o: Op - Stale | o.tag = t and some o.gives)
    implies quorum[{ m: New - touched[t] | upTo[s.tag, m.fence] }, New]
}

/* What had ended when an operation began, in one epoch or the other, is seen by it; or it will
 * never have q answers. */
pred endedIsSeen {
  all o: Op - Quick - Cross, p: o.earlier | no o.gives implies
    (o in Stale => (quorum[sealed - heard[o], Old] or quorum[{ m: Old | sees[o, p, m] }, Old])
    else (quorum[p.acks, Old] or quorum[{ m: New | sees[o, p, m] }, New]))
  all o: Op - Quick - Cross, p: o.earlier | some o.gives implies
    upTo[p.tag, o.tag] and (o in Write implies below[p.tag, o.tag])
}
pred sees[o, p: Op, m: Member] {
  upTo[p.tag, m.part] and (m in heard[o] implies upTo[p.tag, m.(o.shown)])
}

/* Nor does a write of one round below a sweep that had ended when it began. */
pred blocked {
  all w: Quick, p: w.earlier | below[p.tag, w.tag] or p in Sweep and below[w.tag, p.tag] and {
    w in Stale implies quorum[{ m: Old - w.acks | m in sealed or upTo[p.tag, m.fence] }, Old]
    w not in Stale implies quorum[{ m: New - w.acks | upTo[p.tag, m.fence] }, New]
    // It meets the fence where it is stored, or sees it in the source.
    all c: of.w | p in Stale or quorum[{ m: New - c.acks | upTo[p.tag, m.fence] }, New]
  }
}

pred inv {
  shape and membersKeep and marksHold and fencesHold and promiseHolds and endedIsSeen and blocked
}

/* ---- the proof, for all traces ---- */

/* q = 2 of 3 in each epoch. */
holds_at_first: check { right and init implies inv }
  for 3 but exactly 3 Old, exactly 3 New, 1 steps expect 0
/* All events in a small scope, and each alone in a larger one. */
keeps_all: check { right and inv and event implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 2 Op, 2 steps expect 0
keeps_ask_deep: check { all o: Op | right and inv and ask[o] implies after inv }
  for 4 but exactly 3 Old, exactly 3 New, 3 Tag, 2 steps expect 0
keeps_askFenced_deep: check { all s: Sweep | right and inv and askFenced[s] implies after inv }
  for 4 but exactly 3 Old, exactly 3 New, 3 Tag, 2 steps expect 0
keeps_write_deep: check { all w: Quick | right and inv and write[w] implies after inv }
  for 4 but exactly 3 Old, exactly 3 New, 3 Tag, 2 steps expect 0
keeps_choose_deep: check { all w: Write | right and inv and choose[w] implies after inv }
  for 4 but exactly 3 Old, exactly 3 New, 3 Tag, 2 steps expect 0
keeps_decide_deep: check { all r: Read | right and inv and decide[r] implies after inv }
  for 4 but exactly 3 Old, exactly 3 New, 3 Tag, 2 steps expect 0
keeps_conclude_deep: check { all s: Sweep | right and inv and conclude[s] implies after inv }
  for 4 but exactly 3 Old, exactly 3 New, 3 Tag, 2 steps expect 0
keeps_cross_deep: check { all c: Cross | right and inv and cross[c] implies after inv }
  for 4 but exactly 3 Old, exactly 3 New, 3 Tag, 2 steps expect 0
keeps_store_deep: check { all o: Op | right and inv and store[o] implies after inv }
  for 4 but exactly 3 Old, exactly 3 New, 3 Tag, 2 steps expect 0
keeps_end_deep: check { all o: Op | right and inv and end_[o] implies after inv }
  for 4 but exactly 3 Old, exactly 3 New, 3 Tag, 2 steps expect 0
keeps_seal_deep: check { right and inv and (seal or close or tick) implies after inv }
  for 4 but exactly 3 Old, exactly 3 New, 3 Tag, 2 steps expect 0
says_atomic: check { right and inv implies atomic }
  for 4 but exactly 3 Old, exactly 3 New, 1 steps expect 0

/* ---- every event can happen ---- */

/* A sweep of the old epoch is read in the new one, which moves the key; then the source is closed,
 * and a write of one round ends. */
happens_move: run {
  some s: Sweep, r: Read, w: Write | right and init and
    s in Stale and no (r + w) & Stale and w in Quick and
    (askFenced[s]; conclude[s]; store[s]; end_[s]; ask[r]; ask[r]; decide[r]; store[r]; tick;
      end_[r]; close; write[w]; store[w]; tick; end_[w]; always nothing)
} for 3 but exactly 3 Old, exactly 3 New, exactly 1 Sweep, exactly 1 Read, exactly 1 Write,
  0 Cross, 16..16 steps expect 1
/* A write of the old epoch has been stored at one member; it crosses, and is read. */
happens_cross: run {
  some w: Write, c: Cross, r: Read | right and init and
    w in Stale and r not in Stale and w not in Quick and
    (ask[w]; choose[w]; store[w]; seal; cross[c]; store[c]; ask[c]; tick; end_[w]; ask[r];
      decide[r]; end_[r]; always (nothing and r.gives = w.tag))
} for 3 but exactly 3 Old, exactly 3 New, exactly 1 Write, exactly 1 Cross, exactly 1 Read,
  0 Sweep, 13..13 steps expect 1
/* A sweep of the new epoch goes on from what one of the old one has left, and a write meets it. */
happens_sweep_deep: run {
  some disj s, u: Sweep, w: Write | right and init and
    s in Stale and no (u + w) & Stale and w not in Quick and
    (askFenced[s]; conclude[s]; store[s]; askFenced[u]; askFenced[u]; conclude[u]; store[u];
      end_[u]; ask[w]; choose[w]; store[w]; tick; end_[w]; always (nothing and some w.marks))
} for 4 but exactly 3 Old, exactly 3 New, exactly 2 Sweep, exactly 1 Write, 0 Read, 0 Cross,
  14..14 steps expect 1

/* ---- each rule is needed: counter-examples ---- */

/* In each it is given who does what in which order; with which members and tags is not. */

/* V3. A value moves without the fence; a later write below it is acknowledged, and never read. */
needs_FencesMove: check {
  all s: Sweep, r: Read, w: Write | (without[FencesMove] and init and
    s in Stale and no (r + w) & Stale and w in Quick and
    (askFenced[s]; conclude[s]; store[s]; end_[s]; ask[r]; ask[r]; decide[r]; store[r]; close;
      write[w]; store[w]; tick; end_[w]; always nothing))
      implies always p2
} for 3 but exactly 3 Old, exactly 3 New, exactly 1 Sweep, exactly 1 Read, exactly 1 Write,
  0 Cross, 14..14 steps expect 1

/* A read returns what a sweep has passed over; the next read finds what the sweep has stored. */
needs_PassedIsSwept: check {
  all disj r, u: Read, s: Sweep, w: Write | (without[PassedIsSwept] and init and
    w + s in Stale and no (r + u) & Stale and w not in Quick and
    (ask[w]; choose[w]; askFenced[s]; conclude[s]; store[w]; store[s]; ask[r]; ask[r]; decide[r];
      store[r]; tick; end_[r]; ask[u]; decide[u]; store[u]; end_[u]; always nothing))
      implies always p4
} for 3 but exactly 3 Old, exactly 3 New, exactly 1 Sweep, exactly 2 Read, exactly 1 Write,
  0 Cross, 17..17 steps expect 1

/* V4. A write takes a tag below the fence of a sweep, of which one member stores something yet. */
needs_AboveFences: check {
  all s: Sweep, w: Write, r: Read | (without[AboveFences] and init and
    s in Stale and no (r + w) & Stale and w not in Quick and
    (askFenced[s]; conclude[s]; ask[w]; ask[w]; choose[w]; store[w]; tick; end_[w]; store[s];
      ask[r]; decide[r]; store[r]; end_[r]; always nothing))
      implies always p4
} for 3 but exactly 3 Old, exactly 3 New, exactly 1 Sweep, exactly 1 Read, exactly 1 Write,
  0 Cross, 14..14 steps expect 1

/* V1. A write hears a member before the key moves, and one that shows a mark and nothing else. */
needs_AboveMarks: check {
  all disj v, w: Write, r: Read | (without[AboveMarks] and init and
    v in Stale and no (r + w) & Stale and no (v + w) & Quick and
    (ask[v]; choose[v]; store[v]; tick; end_[v]; seal; ask[w]; ask[r]; decide[r]; store[r];
      ask[w]; choose[w]; store[w]; end_[w]; always nothing))
      implies always p2
} for 3 but exactly 3 Old, exactly 3 New, exactly 2 Write, exactly 1 Read, 0 Cross, 0 Sweep,
  15..15 steps expect 1
/* The same of a read. */
needs_AboveMarks_read_deep: check {
  all disj r, u: Read, v: Write | (without[AboveMarks] and init and
    v in Stale and no (r + u) & Stale and v not in Quick and
    (ask[v]; choose[v]; store[v]; tick; end_[v]; seal; ask[u]; ask[r]; decide[r]; store[r];
      ask[u]; decide[u]; end_[u]; always nothing))
      implies always p2
} for 3 but exactly 3 Old, exactly 3 New, exactly 1 Write, exactly 2 Read, 0 Cross, 0 Sweep,
  14..14 steps expect 1

/* V4. A write of one round beside an open source, of which a sweep's time is yet to come. */
needs_OneRoundAlone: check {
  all s: Sweep, w: Write | (without[OneRoundAlone] and init and
    s in Stale and w in Quick - Stale and
    (askFenced[s]; conclude[s]; store[s]; end_[s]; seal; write[w]; store[w]; tick; end_[w];
      always nothing))
      implies always p2
} for 3 but exactly 3 Old, exactly 3 New, exactly 1 Sweep, exactly 1 Write, 0 Cross, 0 Read,
  10..10 steps expect 1

/* V5. A write that a sweep has passed over goes on in the new epoch. */
needs_CrossesLooking: check {
  all s: Sweep, w: Write, c: Cross | (without[CrossesLooking] and init and
    s + w in Stale and w not in Quick and
    (ask[w]; choose[w]; store[w]; askFenced[s]; conclude[s]; store[s]; end_[s]; seal; cross[c];
      store[c]; tick; end_[w]; always nothing))
      implies always p4
} for 3 but exactly 3 Old, exactly 3 New, exactly 1 Sweep, exactly 1 Write, exactly 1 Cross,
  0 Read, 13..13 steps expect 1

/* V5. A write has one acknowledgement of each store. */
needs_StoresApart: check {
  all w: Write, c: Cross, r: Read | (without[StoresApart] and init and
    w in Stale and r not in Stale and w not in Quick and
    (ask[w]; choose[w]; store[w]; seal; cross[c]; store[c]; ask[c]; tick; end_[w]; ask[r];
      decide[r]; store[r]; end_[r]; always nothing))
      implies always p2
} for 3 but exactly 3 Old, exactly 3 New, exactly 1 Write, exactly 1 Cross, exactly 1 Read,
  0 Sweep, 14..14 steps expect 1

/* V5. A read has found what a sweep then passes over; it goes on in the new epoch. */
needs_ReadsAnew: check {
  all w: Write, r: Read, s: Sweep | (without[ReadsAnew] and init and
    w + r + s in Stale and w not in Quick and
    (ask[w]; choose[w]; store[w]; ask[r]; decide[r]; askFenced[s]; conclude[s]; store[s]; end_[s];
      seal; store[r]; tick; end_[r]; always nothing))
      implies always p4
} for 3 but exactly 3 Old, exactly 3 New, exactly 1 Sweep, exactly 1 Read, exactly 1 Write,
  0 Cross, 14..14 steps expect 1

/* V5. A sweep has found what a later one passes over; it goes on in the new epoch. */
needs_SweepsAnew: check {
  all w: Write, disj s, u: Sweep | (without[SweepsAnew] and init and
    w + s + u in Stale and w not in Quick and
    (ask[w]; choose[w]; store[w]; askFenced[u]; conclude[u]; askFenced[s]; conclude[s]; store[s];
      end_[s]; seal; store[u]; end_[u]; always nothing))
      implies always p4
} for 4 but exactly 3 Old, exactly 3 New, exactly 2 Sweep, exactly 1 Write, 0 Read, 0 Cross,
  13..13 steps expect 1
