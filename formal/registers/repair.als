/*
 * A damaged record is learnt again, beside writes and sweeps that die (G8, F8g): one key, one
 * store.
 *
 * What is modelled. Three members with whole copies, of which each keeps that of the highest tag,
 * and its fence; q = 2. Writes of two rounds, reads with their write-back, sweeps with their fence.
 * Any operation may die; what it has sent arrives all the same, any time later. A member's record
 * may be damaged as a whole: it has forgotten what it had and what it had promised. It answers
 * nothing until every operation that counts on an earlier answer of it has ended, and then learns
 * the record again: the rule below says how. No more than f = 1 records are damaged at a time.
 *
 * What is abstracted away, and why that is sound: as in coded.als. Codes and final marks are not
 * here: with copies k = l = 1, and one member has what another one lacks.
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module repair

open util/ordering[Tag] as tags

/* The parameter: which rules are in force. */
enum Rule {
  Waits,      // G8: who has lost its record first waits until nobody counts on it any more
  SweepsFirst // then the others are swept, and it takes what that sweep has stored; without the
              // rule it takes the highest tag and the highest fence that the others have
}

one sig Protocol { rules: set Rule }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

/* Tags in their order. The first is that of the old value. */
sig Tag {}

/* Without a `part`: its record is damaged. `begun`: what had begun when its wait was over. */
sig Member { var part: lone Tag, var fence: lone Tag, var begun: set Op }
var sig waited in Member {}

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
var sig dead in Op {}

fun old: one Tag { tags/first }
pred below[a, b: Tag] { tags/lt[a, b] }
pred upTo[a, b: Tag] { tags/lte[a, b] }
/* Of three. */
pred quorum[m: set Member] { lone Member - m }
fun heard[o: Op]: set Member { o.shown.Tag }
fun damaged: set Member { Member - part.Tag }
pred counts[o: Op, m: Member] { o not in ended + dead and m in heard[o] + o.acks }
fun started: set Op { { o: Op | some o.shown } }

fun maker[t: Tag]: set Op { { o: Write + Sweep | t in o.tag } }
fun value[t: Tag]: set Tag { t = old => old else maker[t].gives }
pred free[t: Tag] { t != old and no maker[t] }

pred init {
  part = Member -> old and fence = Member -> old and no begun and no waited
  no shown and no tag and no gives and no acks and no earlier and no from and no ended and no dead
}

/* ---- what stays ---- */

pred keepMembers { part' = part and fence' = fence and keepWaits }
pred keepWaits { begun' = begun and waited' = waited }
pred keepTags { tag' = tag and gives' = gives and from' = from }
pred keepAsked { shown' = shown and earlier' = earlier }
pred keepEnds { ended' = ended and dead' = dead }
pred keepOps { keepTags and keepAsked and acks' = acks and keepEnds }

/* ---- what can happen ---- */

/* Some members answer. An operation that had heard nobody begins. */
pred hears[o: Op] {
  o not in dead
  let m = o.shown'.Tag - o.shown.Tag {
    some m and no m & damaged
    shown' = shown + { p: o, x: m, t: x.part + (o in Write => x.fence else none) }
  }
  earlier' = (no o.shown => earlier + o -> ended else earlier)
}

pred ask[o: Write + Read] {
  no o.tag and hears[o]
  keepMembers and keepTags and acks' = acks and keepEnds
}

pred choose[w: Write] {
  no w.tag and quorum[heard[w]] and w not in dead
  some t: Tag {
    free[t]
    all s: Member.(w.shown) | below[s, t]
    tag' = tag + w -> t and gives' = gives + w -> t
  }
  keepMembers and from' = from and keepAsked and acks' = acks and keepEnds
}

pred decide[r: Read] {
  no r.tag and quorum[heard[r]] and r not in dead
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
    fence' = fence ++ m -> t
  }
  part' = part and keepWaits and gives' = gives and from' = from and acks' = acks and keepEnds
}

pred conclude[s: Sweep] {
  no s.gives and quorum[heard[s]] and s not in dead
  some t: Tag {
    t = tags/max[Member.(s.shown)]
    from' = from + s -> t and gives' = gives + s -> value[t]
  }
  keepMembers and tag' = tag and keepAsked and acks' = acks and keepEnds
}

/* A store arrives at some members, also of an operation that has died. */
pred store[o: Op] {
  some o.gives
  let m = o.acks' - o.acks {
    some m and no m & damaged
    all x: m | upTo[x.fence, o.tag]
    acks' = acks + o -> m
    part' = part ++ { x: m, t: o.tag | below[x.part, t] }
  }
  fence' = fence and keepWaits and keepTags and keepAsked and keepEnds
}

pred end_[o: Op] {
  o not in ended + dead and quorum[o.acks]
  ended' = ended + o and dead' = dead
  keepMembers and keepTags and keepAsked and acks' = acks
}

pred die[o: Op] {
  o not in ended + dead
  dead' = dead + o and ended' = ended
  keepMembers and keepTags and keepAsked and acks' = acks
}

pred damage[m: Member] {
  no damaged
  part' = part - m -> Tag and fence' = fence - m -> Tag
  keepWaits and keepOps
}

pred wait[m: Member] {
  m in damaged - waited
  on[Waits] => no o: Op | counts[o, m]
  waited' = waited + m
  begun' = begun + m -> started
  part' = part and fence' = fence and keepOps
}

pred repair[m: Member] {
  m in damaged & waited
  some t, f: Tag {
    on[SweepsFirst] => {
      f = t
      some s: ended & Sweep - m.begun | s.tag = t
    } else {
      t = tags/max[(Member - m).part]
      f = tags/max[(Member - m).fence]
    }
    part' = part + m -> t and fence' = fence + m -> f
  }
  waited' = waited - m and begun' = begun - m -> Op
  keepOps
}

pred nothing { keepMembers and keepOps }

pred event {
  (some o: Write + Read | ask[o])
  or (some w: Write | choose[w])
  or (some r: Read | decide[r])
  or (some s: Sweep | askFenced[s] or conclude[s])
  or (some o: Op | store[o] or end_[o] or die[o])
  or (some m: Member | damage[m] or wait[m] or repair[m])
}

/* ---- what is promised: as in coded.als ---- */

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
  lone damaged and waited in damaged and begun.Op in waited and damaged = Member - fence.Tag
  all w: Write | w.gives = w.tag and (some w.tag implies quorum[heard[w]])
  all w: Write, s: Member.(w.shown) | some w.tag implies below[s, w.tag]
  all r: Read | (some r.tag iff some r.gives) and
    (some r.tag implies quorum[heard[r]] and r.tag = tags/max[Member.(r.shown)] and
      r.gives = value[r.tag])
  all s: Sweep | (some s.gives iff some s.from) and (some s.shown iff some s.tag)
  all s: Sweep | some s.from implies
    quorum[heard[s]] and s.from = tags/max[Member.(s.shown)] and s.gives = value[s.from]
  all s: Sweep, t: Member.(s.shown) | below[t, s.tag]
  all o: Read + Sweep, m: Member | lone o.shown[m]
  all o: Op | no o.gives implies no o.acks
  all o: Op | no o.shown implies no o.earlier and no o.tag
  Member.part + Member.((Read + Sweep).shown) in old + { t: Tag | some value[t] }
  all t: Tag | lone value[t] and (some value[t] implies upTo[value[t], t])
  all o: Op | o.earlier in ended - o
  no ended & dead
  all o: ended | quorum[o.acks]
  /* What has begun after a wait has nothing of that member. */
  all m: waited, o: started - m.begun | m not in heard[o] + o.acks
  all m: waited | m.begun in started and (no o: Op | counts[o, m])
}

/* What has ended is at q members, or would be. */
pred endedIsKept { all o: ended | quorum[{ m: Member | m in damaged or upTo[o.tag, m.part] }] }

/* Members have what they have said, as far as anybody counts on it. */
pred saidIsKept {
  all o: Op - dead, m: o.acks | m in damaged or upTo[o.tag, m.part]
  all o: Op, m: Member, t: o.shown[m] | counts[o, m] implies
    m in damaged or upTo[t, m.part] or o in Write and upTo[t, m.fence]
}

pred sees[o: Op, m: Member, t: Tag] {
  m in heard[o] implies (some s: o.shown[m] | upTo[t, s]) or o in Sweep and below[t, o.tag]
}

/* What had ended when an operation began is seen by it. */
pred endedIsSeen {
  all o: Op - dead - ended, p: o.earlier | quorum[{ m: Member |
    (m in damaged or upTo[p.tag, m.part]) and sees[o, m, p.tag] }]
  all o: Op - dead, p: o.earlier | some o.gives implies
    upTo[p.tag, o.tag] and (o in Write implies below[p.tag, o.tag])
}

/* As in coded.als, of sweeps that may end or whose tag may be read. */
pred fencesHold {
  all s: Sweep, m: heard[s] | (s not in dead or some s.from) implies {
    m in damaged or upTo[s.tag, m.fence] and (below[m.part, s.tag] implies upTo[m.part, s.shown[m]])
    all o: Op - dead | m in o.acks and below[o.tag, s.tag] implies upTo[o.tag, s.shown[m]]
    all r: Read - dead - ended, t: r.shown[m] | below[t, s.tag] implies upTo[t, s.shown[m]]
  }
}

/* A sweep that begins when a wait is over lies above everything that needs it, and above every
 * sweep to which the member had promised something. */
pred waitIsWorth {
  all m: waited, s: Sweep | m in heard[s] and some s.from implies
    all u: Sweep - m.begun | some heard[u] & heard[s] implies below[s.tag, u.tag]
  all m: waited, o: ended | known[m, o.tag, { x: Member - m | upTo[o.tag, x.part] }]
  all m: waited, o: ended | m in o.acks implies
    some x: Member - m | upTo[o.tag, x.part] and shownToAll[m, x, o.tag]
  all m: waited, o: Op - dead - ended, p: o.earlier |
    known[m, p.tag, { x: Member - m | upTo[p.tag, x.part] and sees[o, x, p.tag] }]
}
/* Both others, or one, which shows it to all such sweeps. */
pred known[m: Member, t: Tag, others: set Member] {
  Member - m in others or some x: others | shownToAll[m, x, t]
}
pred shownToAll[m, x: Member, t: Tag] {
  all u: Sweep - m.begun | x in heard[u] implies below[t, u.tag]
}

pred inv { shape and endedIsKept and saidIsKept and endedIsSeen and fencesHold and waitIsWorth }

/* ---- the proof, for all traces ---- */

holds_at_first: check { right and init implies inv } for 4 but exactly 3 Member, 1 steps expect 0
/* All events in a small scope, and each alone in a larger one. */
keeps_all: check { right and inv and event implies after inv }
  for 3 but exactly 3 Member, 2 steps expect 0
keeps_ask_deep: check { all o: Write + Read | right and inv and ask[o] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_choose_deep: check { all w: Write | right and inv and choose[w] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_decide_deep: check { all r: Read | right and inv and decide[r] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_askFenced_deep: check { all s: Sweep | right and inv and askFenced[s] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_conclude_deep: check { all s: Sweep | right and inv and conclude[s] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_store_deep: check { all o: Op | right and inv and store[o] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_end_deep: check { all o: Op | right and inv and (end_[o] or die[o]) implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_damage_deep: check { all m: Member | right and inv and damage[m] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_wait_deep: check { all m: Member | right and inv and wait[m] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_repair_deep: check { all m: Member | right and inv and repair[m] implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
says_atomic: check { inv implies atomic } for 4 but exactly 3 Member, 1 steps expect 0

/* ---- every event can happen ---- */

happens_all: run {
  some w: Write, s: Sweep, r: Read | right and init and
    (ask[w]; choose[w]; store[w]; die[w]; (some m: Member | damage[m]);
      (some m: Member | wait[m]); askFenced[s]; conclude[s]; store[s]; end_[s];
      (some m: Member | repair[m]); ask[r]; decide[r]; end_[r];
      always (nothing and r.gives = w.tag))
} for 3 but exactly 3 Member, 15..15 steps expect 1

/* ---- the rules are needed: counter-examples ---- */

/* In each it is given who does what in which order; with which members and tags is not. */

/* G8. A sweep has the fence of a member that has forgotten it; a write ends there, below. */
needs_Waits: check {
  all w: Write, disj s, u: Sweep | (without[Waits] and init and
    (ask[w]; choose[w]; askFenced[s]; (some m: Member | damage[m]); (some m: Member | wait[m]);
      askFenced[u]; conclude[u]; store[u]; end_[u]; (some m: Member | repair[m]); store[w];
      end_[w]; askFenced[s]; conclude[s]; store[s]; end_[s]; always nothing))
      implies always p4
} for 4 but exactly 3 Member, exactly 1 Write, exactly 2 Sweep, 0 Read, 17..17 steps expect 1

/* What one member had of a dead write is copied to one that had promised a sweep to take no such
 * thing; the sweep has died, but its stores are on their way. */
needs_SweepsFirst: check {
  all w: Write, s: Sweep, disj r, q: Read | (without[SweepsFirst] and init and
    (ask[w]; choose[w]; store[w]; die[w]; askFenced[s]; conclude[s]; die[s];
      (some m: Member | damage[m]); (some m: Member | wait[m]); (some m: Member | repair[m]);
      ask[r]; decide[r]; end_[r]; store[s]; ask[q]; decide[q]; store[q]; end_[q];
      always nothing))
      implies always p4
} for 3 but exactly 3 Member, exactly 1 Write, exactly 1 Sweep, exactly 2 Read,
  19..19 steps expect 1

/* The same with the rule: another sweep comes first. */
same_SweepsFirst: check {
  all w: Write, disj s, u: Sweep, disj r, q: Read | (right and init and
    (ask[w]; choose[w]; store[w]; die[w]; askFenced[s]; conclude[s]; die[s];
      (some m: Member | damage[m]); (some m: Member | wait[m]);
      askFenced[u]; conclude[u]; store[u]; end_[u]; (some m: Member | repair[m]);
      ask[r]; decide[r]; (store[r] or nothing); end_[r]; (store[s] or nothing);
      ask[q]; decide[q]; (store[q] or nothing); end_[q]; always nothing))
      implies always (p2 and p4)
} for 4 but exactly 3 Member, exactly 1 Write, exactly 2 Sweep, exactly 2 Read,
  24..24 steps expect 0
