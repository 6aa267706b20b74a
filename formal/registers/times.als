/*
 * Times as tags (`oreas`, and `coded` with an interval clock; F9): one key, one store, no sections.
 *
 * What is modelled. A write takes as its tag the latest time that it can be now, by its clock,
 * stores in one round, and ends when that time has certainly passed. A read stores what it returns
 * at q members, and it, too, ends when the tag's time has passed. A sweep reads with a fence and
 * carries the highest value on under its own tag; it does not wait. Three members with whole
 * copies, q = 2.
 *
 * Time goes on between any two steps, or does not. A clock says an interval; of it only this is
 * used: true time lies in it. So a write's tag is any time from now on, and that a time has
 * certainly passed means that it has. That a clock does not say so at once delays an operation's
 * end, no more.
 *
 * What is abstracted away, and why that is sound.
 * - Codes and final marks: coded.als. A tag that is known to be final has passed, or was fenced.
 * - A replica that refuses tags too far ahead (`ClockSkew`): a store that never arrives.
 * - All else as in coded.als.
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module times

open util/ordering[Tag] as tags
open util/ordering[Time] as times

/* The parameter: which rules are in force. */
enum Rule {
  ClocksTell,  // the true time lies in what a clock says
  WritersWait, // a write ends when its time has passed
  ReadersWait, // F9: so does a read
  SweepsFence  // who has not waited has fenced
}

one sig Protocol { rules: set Rule }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

sig Time {}
one sig Now { var time: one Time }

/* Tags in their order: by time, then by writer. The first is that of the old value. */
sig Tag { at: one Time }
fact byTime { all a, b: Tag | below[a, b] implies not times/lt[b.at, a.at] }

sig Member { var part: one Tag, var fence: one Tag }

abstract sig Op {
  var shown: Member -> Tag, // what members have answered,
  var tag: lone Tag,        // what it stores, or returns
  var gives: lone Tag,      // whose value that is
  var acks: set Member,     // have stored it, or a higher one
  var earlier: set Op       // had ended when this one began
}
sig Write, Read extends Op {}
sig Sweep extends Op { var from: lone Tag }

var sig ended in Op {}

fun old: one Tag { tags/first }
pred below[a, b: Tag] { tags/lt[a, b] }
pred upTo[a, b: Tag] { tags/lte[a, b] }
/* Of three. */
pred quorum[m: set Member] { lone Member - m }
fun heard[o: Op]: set Member { o.shown.Tag }
pred passed[t: Tag] { times/lt[t.at, Now.time] }

fun maker[t: Tag]: set Op { { o: Write + Sweep | t in o.tag } }
fun value[t: Tag]: set Tag { t = old => old else maker[t].gives }
pred free[t: Tag] { t != old and no maker[t] }

pred init {
  part = Member -> old and fence = Member -> old and passed[old]
  no shown and no tag and no gives and no acks and no earlier and no from and no ended
}

/* ---- what stays ---- */

pred keepMembers { part' = part and fence' = fence }
pred keepTags { tag' = tag and gives' = gives and from' = from }
pred keepAsked { shown' = shown and earlier' = earlier }
pred keepEnds { ended' = ended and time' = time }

/* ---- what can happen ---- */

pred begins[o: Op] {
  earlier' = (no o.shown and no o.tag => earlier + o -> ended else earlier)
}
/* Some members answer. */
pred hears[o: Op] {
  let m = o.shown'.Tag - o.shown.Tag {
    some m
    shown' = shown + { p: o, x: m, t: x.part }
  }
  begins[o]
}

/* A write begins, with the latest time that it can be. */
pred write[w: Write] {
  no w.tag
  begins[w]
  some t: Tag {
    free[t]
    on[ClocksTell] => not passed[t]
    tag' = tag + w -> t and gives' = gives + w -> t
  }
  keepMembers and shown' = shown and from' = from and acks' = acks and keepEnds
}

pred ask[r: Read] {
  no r.tag and hears[r]
  keepMembers and keepTags and acks' = acks and keepEnds
}

/* It returns the highest. */
pred decide[r: Read] {
  no r.tag and quorum[heard[r]]
  some t: Tag {
    t = tags/max[Member.(r.shown)]
    tag' = tag + r -> t and gives' = gives + r -> value[t]
    acks' = acks + r -> r.shown.t
  }
  keepMembers and from' = from and keepAsked and keepEnds
}

pred askFenced[s: Sweep] {
  no s.gives and hears[s]
  let m = s.shown'.Tag - s.shown.Tag | some t: s.tag' {
    s.tag = t or no s.tag and free[t]
    all x: m | below[x.part, t] and below[x.fence, t]
    tag' = tag + s -> t
    fence' = (on[SweepsFence] => fence ++ m -> t else fence)
  }
  part' = part and gives' = gives and from' = from and acks' = acks and keepEnds
}

pred conclude[s: Sweep] {
  no s.gives and quorum[heard[s]]
  some t: Tag {
    t = tags/max[Member.(s.shown)]
    from' = from + s -> t and gives' = gives + s -> value[t]
  }
  keepMembers and tag' = tag and keepAsked and acks' = acks and keepEnds
}

/* A store arrives at some members. */
pred store[o: Op] {
  some o.gives
  let m = o.acks' - o.acks {
    some m
    all x: m | upTo[x.fence, o.tag]
    acks' = acks + o -> m
    part' = part ++ { x: m, t: o.tag | below[x.part, t] }
  }
  fence' = fence and keepTags and keepAsked and keepEnds
}

pred end_[o: Op] {
  o not in ended and quorum[o.acks]
  (o in Write and on[WritersWait] or o in Read and on[ReadersWait]) implies passed[o.tag]
  ended' = ended + o and time' = time
  keepMembers and keepTags and keepAsked and acks' = acks
}

pred tick {
  times/lt[Now.time, Now.time']
  ended' = ended and keepMembers and keepTags and keepAsked and acks' = acks
}

pred nothing { keepMembers and keepTags and keepAsked and acks' = acks and keepEnds }

pred event {
  (some w: Write | write[w])
  or (some r: Read | ask[r] or decide[r])
  or (some s: Sweep | askFenced[s] or conclude[s])
  or (some o: Op | store[o] or end_[o])
  or tick
}

/* ---- what is promised ---- */

/* As in coded.als; of writes that have ended, for one that meets a fence never does. */
pred p2 {
  all o: ended, p: o.earlier | upTo[p.tag, o.tag] and (o in Write implies below[p.tag, o.tag])
}
pred p3 { all disj a, b: Write + Sweep | no a.tag & b.tag }
pred p4 {
  all o: ended | one o.gives and o.gives = value[o.tag]
  all p, o: ended | below[p.tag, o.tag] implies upTo[p.gives, o.gives]
}
pred atomic { p2 and p3 and p4 }

/* ---- the invariant ---- */

pred shape {
  p3
  no maker[old]
  passed[old]
  all w: Write | w.gives = w.tag and no w.shown
  all r: Read | (some r.tag iff some r.gives) and
    (some r.tag implies quorum[heard[r]] and r.tag = tags/max[Member.(r.shown)] and
      r.gives = value[r.tag])
  all s: Sweep | (some s.gives iff some s.from) and (some s.shown iff some s.tag)
  all s: Sweep | some s.from implies
    quorum[heard[s]] and s.from = tags/max[Member.(s.shown)] and s.gives = value[s.from]
  all s: Sweep, t: Member.(s.shown) | below[t, s.tag]
  all o: Op, m: Member | lone o.shown[m]
  all o: Op | no o.gives implies no o.acks
  all o: Op | no o.shown and no o.tag implies no o.earlier
  Member.part + Member.(Op.shown) in old + { t: Tag | some value[t] }
  all t: Tag | lone value[t] and (some value[t] implies upTo[value[t], t])
  all o: Op | o.earlier in ended - o
  all o: ended | quorum[o.acks] and (o in Sweep or passed[o.tag])
}

pred membersKeep {
  all o: Op, m: o.acks | upTo[o.tag, m.part]
  all o: Op, m: Member, t: o.shown[m] | upTo[t, m.part]
}

pred endedIsSeen {
  all o: Read + Sweep, p: o.earlier | quorum[{ m: Member | upTo[p.tag, m.part] and
    (m in heard[o] implies (upTo[p.tag, o.shown[m]] or o in Sweep and below[p.tag, o.tag])) }]
  all w: Write, p: w.earlier | below[p.tag, w.tag] or
    p in Sweep and below[w.tag, p.tag] and no heard[p] & w.acks
      or no w.tag
}

pred fencesHold {
  all s: Sweep, m: heard[s] {
    upTo[s.tag, m.fence]
    below[m.part, s.tag] implies upTo[m.part, s.shown[m]]
    all o: Op | m in o.acks and below[o.tag, s.tag] implies upTo[o.tag, s.shown[m]]
    all r: Read, t: r.shown[m] | below[t, s.tag] implies upTo[t, s.shown[m]]
  }
  all s: Sweep & ended | quorum[heard[s]] and some s.from
}

pred inv { shape and membersKeep and endedIsSeen and fencesHold }

/* ---- the proof, for all traces ---- */

holds_at_first: check { right and init implies inv } for 4 but exactly 3 Member, 1 steps expect 0
/* All events in a small scope, and each alone in a larger one. */
keeps_all: check { right and inv and event implies after inv }
  for 3 but exactly 3 Member, 2 steps expect 0
keeps_write_deep: check { all w: Write | right and inv and write[w] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_ask_deep: check { all r: Read | right and inv and ask[r] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_decide_deep: check { all r: Read | right and inv and decide[r] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_askFenced_deep: check { all s: Sweep | right and inv and askFenced[s] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_conclude_deep: check { all s: Sweep | right and inv and conclude[s] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_store_deep: check { all o: Op | right and inv and store[o] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_end_deep: check { all o: Op | right and inv and end_[o] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_tick_deep: check { right and inv and tick implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
says_atomic: check { right and inv implies atomic } for 4 but exactly 3 Member, 1 steps expect 0

/* ---- every event can happen ---- */

/* A write ends, a sweep carries it on under a time to come, and a read returns that later. */
happens_all: run {
  some w: Write, s: Sweep, r: Read | right and init and
    (write[w]; store[w]; tick; end_[w]; askFenced[s]; conclude[s]; store[s]; end_[s]; ask[r];
      decide[r]; tick; end_[r]; always (nothing and r.tag = s.tag))
} for 3 but exactly 3 Member, 4 Time, 13..13 steps expect 1

/* ---- each rule is needed: counter-examples ---- */

/* F9. A read returns a time to come; a write that begins after it takes a lower one. */
needs_ReadersWait: check {
  all disj v, w: Write, r: Read | (without[ReadersWait] and init and
    (write[v]; store[v]; ask[r]; decide[r]; store[r]; end_[r]; write[w]; store[w]; tick; end_[w];
      always nothing))
      implies always p2
} for 3 but exactly 3 Member, 11..11 steps expect 1
/* The same with two writes. */
needs_WritersWait: check {
  all disj v, w: Write | (without[WritersWait] and init and
    (write[v]; store[v]; end_[v]; write[w]; store[w]; end_[w]; always nothing))
      implies always p2
} for 3 but exactly 3 Member, 7..7 steps expect 1
/* A clock is behind: its write vanishes. */
needs_ClocksTell: check {
  all disj v, w: Write | (without[ClocksTell] and init and
    (write[v]; store[v]; tick; end_[v]; write[w]; store[w]; end_[w]; always nothing))
      implies always p2
} for 3 but exactly 3 Member, 8..8 steps expect 1
/* A sweep that neither waits nor fences. */
needs_SweepsFence: check {
  all w: Write, s: Sweep | (without[SweepsFence] and init and
    (askFenced[s]; conclude[s]; store[s]; end_[s]; write[w]; store[w]; tick; end_[w];
      always nothing))
      implies always p2
} for 3 but exactly 3 Member, 9..9 steps expect 1
