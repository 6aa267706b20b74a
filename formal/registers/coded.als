/*
 * Coded registers with finalize (the policy `coded`): one key, one store, no sections.
 *
 * What is modelled. n members keep one part per write; q = n - 1 answers complete a phase, any
 * k = n - 2 parts of one tag give its value (f = 1; with n = 3 that is a plain copy). Writes of two
 * rounds, reads with their write-back, sweeps with their fence. A member is told that a tag is
 * final, later drops what lies below and notes that in the same record; it refuses what lies below
 * its fence. Parts may be damaged, and what a member was told it may forget.
 *
 * The network is the most general one. An operation reaches a chosen set of members at a time, the
 * others later or never; what an operation has heard is what a member said when it was asked,
 * however late the answer comes. A store may arrive at any time after it was sent, long after its
 * sender has died. That a client or a member dies is that nothing happens there any more.
 *
 * What is abstracted away, and why that is sound.
 * - A value is the tag of the write that made it: a tag names one value (F8h; a member refuses
 *   another one, `store_again`). A sweep's tag stands for the value that it carries on: `gives`.
 * - The decoded bytes: any k parts of one tag give the value (an MDS code), fewer give nothing.
 * - A write takes any free tag above what it has seen, a sweep any free tag. Numbers and names of
 *   writers are one way to choose; the model has all. The first round of a sweep is left out: that
 *   its tag lies above what it saw makes it likely that members take its fence, no more.
 * - An operation begins when it is first answered, and has ended when the last member it needs has
 *   done its part, though its client learns it later. So more operations follow one another here
 *   than in any real run, and what is proved of their order holds there.
 * - An operation that asks all members again, or is begun again, is one that begins later.
 * - `Busy`, full disks, overload: refusals. Here members just do not answer.
 * - Time: a grace time makes readers succeed, safety does not use it. Tags that are times:
 *   times.als.
 * - Damage of whole records, and how they are learnt again: repair.als. Upkeep: not here.
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module coded

open util/ordering[Tag] as tags

/* The parameter: which rules are in force. */
enum Rule {
  StoreFirst,    // F8a: a reader tells that a tag is final after q members hold it
  MarkWithDrop,  // F8b: what is dropped is noted durably, with the drop
  DamageVoids,   // F8c: a member with a damaged part does not answer
  SweepFences,   // F8g: members that answered a sweep refuse what lies below its tag
  SkipsOwnTag,   // F8d: a reader does without writing back where this very tag is known to be
                 // final; not where a higher one is
  OwnNames       // F8h: a tag has its writer's name
}

one sig Protocol { rules: set Rule }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

/* Tags in their order. The first is that of the old value, which everybody has. */
sig Tag {}

sig Member {
  var parts: set Tag,   // of these it has parts
  var bad: set Tag,     // of which these are damaged
  var told: set Tag,    // was told that these are final; in memory
  var dropped: one Tag, // noted: what lies below it may have been here, and is gone
  var fence: one Tag    // refuses what lies below
}

/* An operation. */
abstract sig Op {
  var heard: set Member,     // has their answers,
  var shown: Member -> Tag,  // these of the parts of each (a write: the tags, and the fence),
  var marks: set Tag,        // these of what was dropped,
  var finals: set Tag,       // these of what is final
  var tag: lone Tag,         // what it stores, or returns
  var gives: lone Tag,       // the value of that, by the write that made it
  var acks: set Member,      // have stored it, or need not
  var earlier: set Op         // had ended when this one began
}

sig Write, Read extends Op {}

/* `from`: the tag whose value it carries on. */
sig Sweep extends Op { var from: lone Tag }

/* Reads that have ended without writing back. */
var sig skipped in Read {}

fun old: one Tag { tags/first }
pred below[a, b: Tag] { tags/lt[a, b] }
pred upTo[a, b: Tag] { tags/lte[a, b] }
fun top[m: Member]: lone Tag { tags/max[m.parts] }
/* The highest tag that a member says is final. */
fun mark[m: Member]: lone Tag { tags/max[m.told + m.dropped] }

pred quorum[m: set Member] { lone Member - m }
/* Parts of these give the value: all but two members. */
pred enough[m: set Member] { no disj a, b, c: Member | no m & (a + b + c) }

/* Operations that have ended; their tags lie at q members, and may be told to be final. */
fun ended: set Op { skipped + { o: Op | quorum[o.acks] } }
fun final: set Tag { old + { t: Tag | some o: Op | t in o.tag and quorum[o.acks] } }
fun tellable: set Tag { on[StoreFirst] => final else final + Read.tag }

/* Who makes tags, and whose value a tag stands for. */
fun maker[t: Tag]: set Op { { o: Write + Sweep | t in o.tag } }
fun value[t: Tag]: set Tag { t = old => old else maker[t].gives }
pred free[t: Tag] { t != old and no maker[t] }

/* What the answers of an operation give: the highest tag, if it may be returned. */
fun decodable[o: Op]: set Tag { { t: Tag | enough[{ m: o.heard | t in o.shown[m] }] } }
pred found[o: Op, t: Tag] {
  quorum[o.heard]
  t = tags/max[decodable[o]]
  all m: o.marks | upTo[m, t]
}

/* ---- in the beginning ---- */

pred init {
  all m: Member | m.parts = old and no m.bad and no m.told and m.dropped = old and m.fence = old
  all o: Op | nothingHeard[o] and no o.tag and no o.gives and no o.acks
  no skipped and no from
}

pred nothingHeard[o: Op] {
  no o.heard and no o.shown and no o.marks and no o.finals and no o.earlier
}

/* ---- what stays ---- */

pred keepParts { parts' = parts and bad' = bad }
pred keepTold { told' = told }
pred keepDropped { dropped' = dropped }
pred keepFence { fence' = fence }
pred keepMembers { keepParts and keepTold and keepDropped and keepFence }
pred keepAnswers {
  heard' = heard and shown' = shown and marks' = marks and finals' = finals and earlier' = earlier
}
pred keepTags { tag' = tag and gives' = gives and from' = from }
pred keepAcks { acks' = acks }
pred keepSkipped { skipped' = skipped }
pred keepOps { keepAnswers and keepTags and keepAcks and keepSkipped }

/* ---- what can happen ---- */

/* Some members answer. An operation that had heard nobody begins. */
pred hears[o: Op] {
  let m = o.heard' - o.heard {
    some m
    heard' = heard + o -> m
    marks' = marks + o -> m.dropped
    finals' = finals + { p: o, t: marksOf[m] }
    earlier' = (no o.heard => earlier + o -> ended else earlier)
  }
}

/* What the members show that have just answered. */
pred shows[o: Op, tags: Member -> Tag] {
  shown' = shown + { p: o, m: o.heard' - o.heard, t: m.tags }
}

/* Marks one by one: each member says its own. */
fun marksOf[m: set Member]: set Tag { { t: Tag | some x: m | t = mark[x] } }

/* A write asks for tags. */
pred askTags[w: Write] {
  no w.tag
  hears[w]
  shows[w, parts + fence]
  keepMembers and keepTags and keepAcks and keepSkipped
}

/* It takes one above all that q members have shown. */
pred choose[w: Write] {
  no w.tag and quorum[w.heard]
  some t: Tag {
    on[OwnNames] => free[t]
    all s: Member.(w.shown) | below[s, t]
    tag' = tag + w -> t
    gives' = gives + w -> t
  }
  from' = from
  keepMembers and keepAnswers and keepAcks and keepSkipped
}

/* A read asks for parts. */
pred askParts[r: Read] {
  no r.tag
  hears[r]
  on[DamageVoids] => no (r.heard' - r.heard).bad
  shows[r, parts - bad]
  keepMembers and keepTags and keepAcks and keepSkipped
}

/* It has found a value. Who has shown it need not store it. */
pred decide[r: Read] {
  no r.tag
  some t: Tag {
    found[r, t]
    tag' = tag + r -> t
    gives' = gives + r -> value[t]
    acks' = acks + r -> { m: r.heard | t in r.shown[m] }
    let known = (on[SkipsOwnTag] => r.finals & t else { f: r.finals | upTo[t, f] }) |
      skipped' = ((some known or not on[StoreFirst]) => skipped + r else skipped)
  }
  from' = from
  keepMembers and keepAnswers
}

/* A sweep asks for parts, with a fence. */
pred askFenced[s: Sweep] {
  no s.gives
  hears[s]
  let m = s.heard' - s.heard | some t: s.tag' {
    s.tag = t or no s.tag and free[t]
    all x: m | below[top[x], t] and below[x.fence, t] and no x.bad
    tag' = tag + s -> t
    fence' = (on[SweepFences] => fence ++ m -> t else fence)
  }
  shows[s, parts]
  gives' = gives and from' = from
  keepParts and keepTold and keepDropped and keepAcks and keepSkipped
}

/* It carries on the highest value that q fenced members give. */
pred conclude[s: Sweep] {
  some s.tag and no s.gives
  some t: Tag {
    found[s, t]
    from' = from + s -> t
    gives' = gives + s -> value[t]
  }
  tag' = tag
  keepMembers and keepAnswers and keepAcks and keepSkipped
}

/* A store arrives at some members: of a write, a reader's write-back, of a sweep. */
pred store[o: Op] {
  some o.gives and o not in skipped
  let m = o.acks' - o.acks, t = o.tag {
    some m
    all x: m | upTo[x.fence, t]
    parts' = parts + { x: m, s: t | below[top[x], s] or below[x.dropped, s] }
    bad' = bad - m -> t
    acks' = acks + o -> m
  }
  keepTold and keepDropped and keepFence and keepAnswers and keepTags and keepSkipped
}

/* Some members are told that a tag is final. */
pred tell {
  some t: tellable {
    some told' - told
    told in told' and told' - told in Member -> t
  }
  keepParts and keepDropped and keepFence and keepOps
}

/* A member drops what lies below a tag that it was told to be final; its highest part stays. */
pred drop[m: Member] {
  some t: m.told | let gone = { s: m.parts | below[s, t] and below[s, top[m]] } {
    some gone
    parts' = parts - m -> gone
    bad' = bad - m -> gone
    dropped' = (on[MarkWithDrop] => dropped ++ m -> tags/max[t + m.dropped] else dropped)
  }
  keepTold and keepFence and keepOps
}

/* Members start again. */
pred restart {
  some told - told'
  all m: Member | m.told' = m.told or no m.told'
  keepParts and keepDropped and keepFence and keepOps
}

/* A member drops, whichever. */
pred drops { some m: Member | drop[m] }

/* A part is damaged. */
pred rot[m: Member] {
  some t: m.parts - m.bad | bad' = bad + m -> t
  parts' = parts
  keepTold and keepDropped and keepFence and keepOps
}

pred rots { some m: Member | rot[m] }

pred nothing { keepMembers and keepOps }

pred event {
  (some w: Write | askTags[w] or choose[w])
  or (some r: Read | askParts[r] or decide[r])
  or (some s: Sweep | askFenced[s] or conclude[s])
  or (some o: Op | store[o])
  or tell
  or (some m: Member | drop[m] or rot[m])
  or restart
}

pred trace { init and always (event or nothing) }

/* ---- what is promised ---- */

/* CassandrEAS §III proves atomicity by four conditions (Lynch, Lemma 13.16). P1, that no operation
 * has infinitely many before it, is true of what is finite. */

/* P2: real time. What has ended before another begins does not come after it. */
pred p2 {
  all o: Op, p: o.earlier | some o.gives implies
    upTo[p.tag, o.tag] and (o in Write implies below[p.tag, o.tag])
}

/* P3: writes are ordered with everything: no two tags are made alike. */
pred p3 { all disj a, b: Write + Sweep | no a.tag & b.tag }

/* P4: what ends with a tag gives the value of the last write up to it. A sweep, and a read of what
 * it has stored, give an older write's: nothing that took effect may lie between. */
pred p4 {
  all o: ended | one o.gives and o.gives = value[o.tag]
  all p, o: ended | below[p.tag, o.tag] implies upTo[p.gives, o.gives]
}

pred atomic { p2 and p3 and p4 }

/* Any q sound members give a value that a reader may return. */
pred readable {
  all x: Member | no (Member - x).bad implies some t: Tag {
    enough[{ m: Member - x | t in m.parts }]
    all m: Member - x | upTo[m.dropped, t]
  }
}

/* ---- the invariant ---- */

/* L2: who had a part of the tag has it still, or has dropped it and says so. */
pred keeps[m: Member, t: Tag] { t in m.parts or below[t, m.dropped] }

pred shape {
  bad in parts
  parts.Tag = Member
  all m: Member | m.told + m.dropped in final
  no maker[old]
  p3
  all w: Write | w.gives = w.tag
  all r: Read | some r.tag iff some r.gives
  all r: skipped | some r.tag
  all r: Read | some r.tag implies r.tag in Member.(r.shown) and r.gives = value[r.tag]
  all s: Sweep | (some s.gives iff some s.from) and (some s.heard iff some s.tag)
  all s: Sweep | some s.from implies s.from in Member.(s.shown) and s.gives = value[s.from]
  all o: Op | o.heard = o.shown.Tag
  all o: Op | no o.heard implies nothingHeard[o] and no o.tag
  all o: Op | no o.gives implies no o.acks
  all s: Sweep, t: Member.(s.shown) | below[t, s.tag]
  Member.parts + Member.(Read.shown) + Member.(Sweep.shown) in
    old + { t: Tag | some value[t] }
  all o: Op | o.earlier in ended - o
  all t: Tag | lone value[t] and (some value[t] implies upTo[value[t], t])
}

/* L1: what is final is kept by q members, whose tags have reached it. */
pred finalIsKept {
  all t: final | some x: Member | all m: Member - x | keeps[m, t] and upTo[t, top[m]]
  Op.finals + skipped.tag in final
}

/* What members have acknowledged, or shown, they keep. */
pred saidIsKept {
  all o: Op, m: o.acks | upTo[o.tag, top[m]] and (keeps[m, o.tag] or o.tag = m.dropped)
  all o: Read + Sweep, m: o.heard, t: o.shown[m] | keeps[m, t] and upTo[t, top[m]]
}

/* L3: what had ended when an operation began is seen by it. */
pred endedIsSeen {
  all r: Read, p: r.earlier | some x: Member | all m: Member - x {
    keeps[m, p.tag]
    m in r.heard implies p.tag in r.shown[m] or some d: r.marks | below[p.tag, d]
  }
  all o: Write + Sweep, p: o.earlier | some x: Member | all m: Member - x {
    upTo[p.tag, top[m]]
    m in o.heard implies
      (some s: o.shown[m] | upTo[p.tag, s]) or o in Sweep and below[p.tag, o.tag]
  }
}

/* Sweeps: what a fenced member has stored below the fence, or will ever show of it, it has shown to
 * the sweep; and what the sweep carries on is the highest of what q of them gave. */
pred fencesHold {
  all s: Sweep, m: s.heard {
    upTo[s.tag, m.fence]
    all t: m.parts | below[t, s.tag] implies t in s.shown[m]
    all o: Op | m in o.acks and below[o.tag, s.tag] implies swept[s, m, o.tag]
    all r: Read, t: r.shown[m] | below[t, s.tag] implies swept[s, m, t]
  }
  all s: Sweep | some s.from implies found[s, s.from]
}

pred swept[s: Sweep, m: Member, t: Tag] {
  t in s.shown[m] or some d: s.marks | upTo[t, d]
}

pred inv { shape and finalIsKept and saidIsKept and endedIsSeen and fencesHold and p2 }

/* ---- the proof, for all traces ---- */

/* n = 4, q = 3, k = 2; 4 tags and 4 operations of all kinds. */
holds_at_first: check { right and init implies inv }
  for 4 but exactly 5 Member, 1 steps expect 0
/* All events in a small scope, and each alone in a larger one. */
keeps_all: check { right and inv and event implies after inv }
  for 3 but exactly 4 Member, 2 steps expect 0
keeps_askTags_deep: check { all w: Write | right and inv and askTags[w] implies after inv }
  for 4 but exactly 4 Member, 2 steps expect 0
keeps_choose_deep: check { all w: Write | right and inv and choose[w] implies after inv }
  for 4 but exactly 4 Member, 2 steps expect 0
keeps_askParts_deep: check { all r: Read | right and inv and askParts[r] implies after inv }
  for 4 but exactly 4 Member, 2 steps expect 0
keeps_decide_deep: check { all r: Read | right and inv and decide[r] implies after inv }
  for 4 but exactly 4 Member, 2 steps expect 0
keeps_askFenced_deep: check { all s: Sweep | right and inv and askFenced[s] implies after inv }
  for 4 but exactly 4 Member, 2 steps expect 0
keeps_conclude_deep: check { all s: Sweep | right and inv and conclude[s] implies after inv }
  for 4 but exactly 4 Member, 2 steps expect 0
keeps_store_deep: check { all o: Op | right and inv and store[o] implies after inv }
  for 4 but exactly 4 Member, 2 steps expect 0
keeps_tell_deep: check { right and inv and tell implies after inv }
  for 4 but exactly 4 Member, 2 steps expect 0
keeps_drop_deep: check { all m: Member | right and inv and drop[m] implies after inv }
  for 4 but exactly 4 Member, 2 steps expect 0
keeps_restart_deep: check { right and inv and restart implies after inv }
  for 4 but exactly 4 Member, 2 steps expect 0
keeps_rot_deep: check { all m: Member | right and inv and rot[m] implies after inv }
  for 4 but exactly 4 Member, 2 steps expect 0
says_atomic: check { inv implies atomic } for 4 but exactly 4 Member, 1 steps expect 0
says_readable: check { inv implies readable } for 4 but exactly 4 Member, 1 steps expect 0

/* n = 3, where a part is a copy; n = 5, where three parts give the value. */
keeps_all3_deep: check { right and inv and event implies after inv }
  for 4 but exactly 3 Member, 2 steps expect 0
keeps_all5_deep: check { right and inv and event implies after inv }
  for 3 but exactly 5 Member, 2 steps expect 0
says_all5: check { inv implies atomic and readable } for 4 but exactly 5 Member, 1 steps expect 0

/* ---- every event can happen ---- */

happens_decide: run { right and trace and eventually (some r: Read | decide[r] and r in skipped') }
  for 3 but exactly 4 Member, 4 steps expect 1
happens_drop: run { right and trace and eventually (some m: Member | drop[m]) }
  for 3 but exactly 4 Member, 6 steps expect 1
happens_restart: run { right and trace and eventually restart }
  for 3 but exactly 4 Member, 6 steps expect 1
/* A read finds a write that has died, and completes it. */
happens_writeBack: run {
  right and trace and eventually (some r: Read, w: Write |
    r.tag = w.tag and r not in skipped and quorum[r.acks] and not quorum[w.acks])
} for 3 but exactly 4 Member, 7 steps expect 1
/* A sweep ends; what it has left out had begun, and a read returns the sweep's tag. */
happens_sweep: run {
  right and trace and eventually (some w: Write, s: Sweep, r: Read |
    some w.acks and s.from = old and below[w.tag, s.tag] and r.tag = s.tag and r in ended)
} for 3 but exactly 4 Member, exactly 1 Write, exactly 1 Sweep, exactly 1 Read, 9 steps expect 1
happens_rot: run { right and trace and eventually (some m: Member | rot[m]) }
  for 3 but exactly 4 Member, 3 steps expect 1

/* ---- each rule is needed: counter-examples ---- */

/* In each it is given who does what in which order; with which members and tags is not. */

/* F8h. Two writers take the same tag. */
needs_OwnNames: check {
  all disj v, w: Write | (without[OwnNames] and init and
    (askTags[v]; askTags[w]; choose[v]; choose[w]; always nothing))
      implies always p3
} for 2 but exactly 4 Member, exactly 2 Write, 0 Read, 0 Sweep, 5..5 steps expect 1

/* F8a. A read finds what a writer has left at k members, and tells that it is final. */
needs_StoreFirst: check {
  all w: Write, r: Read | (without[StoreFirst] and init and
    (askTags[w]; choose[w]; store[w]; askParts[r]; decide[r]; tell; drops; drops; always nothing))
      implies always readable
} for 2 but exactly 4 Member, exactly 1 Write, exactly 1 Read, 0 Sweep, 9..9 steps expect 1

/* F8b. A read has heard k members that lack the write that ended before it; one that has dropped
 * this write for a later one does not say so. */
needs_MarkWithDrop: check {
  all disj w, v: Write, r: Read | (without[MarkWithDrop] and init and
    (askTags[w]; choose[w]; store[w]; askParts[r]; askTags[v]; choose[v]; store[v]; tell; drops;
      askParts[r]; decide[r]; always nothing))
      implies always p2
} for 3 but exactly 4 Member, exactly 2 Write, exactly 1 Read, 0 Sweep, 12..12 steps expect 1

/* F8c. A member answers without its damaged part. */
needs_DamageVoids: check {
  all w: Write, r: Read | (without[DamageVoids] and init and
    (askTags[w]; choose[w]; store[w]; rots; askParts[r]; decide[r]; always nothing))
      implies always p2
} for 2 but exactly 4 Member, exactly 1 Write, exactly 1 Read, 0 Sweep, 7..7 steps expect 1

/* F8g. A write ends after a sweep has read, and before it stores. */
needs_SweepFences: check {
  all w: Write, s: Sweep | (without[SweepFences] and init and
    (askTags[w]; askFenced[s]; choose[w]; store[w]; conclude[s]; store[s]; always nothing))
      implies always p4
} for 3 but exactly 4 Member, exactly 1 Write, 0 Read, exactly 1 Sweep, 7..7 steps expect 1

/* F8d. A sweep runs, and leaves out what a dead writer has stored at too few of those that it asks;
 * a read has heard k members, some of them before the sweep, that had it. */
needs_SkipsOwnTag: check {
  all w: Write, r: Read, s: Sweep | (without[SkipsOwnTag] and init and
    (askTags[w]; choose[w]; store[w]; askParts[r]; askFenced[s]; conclude[s]; store[s]; tell;
      askParts[r]; decide[r]; always nothing))
      implies always p4
} for 3 but exactly 4 Member, exactly 1 Write, exactly 1 Read, exactly 1 Sweep,
  11..11 steps expect 1

/* The same steps with the rule. */
same_SkipsOwnTag: check {
  all w: Write, r: Read, s: Sweep | (right and init and
    (askTags[w]; choose[w]; store[w]; askParts[r]; askFenced[s]; conclude[s]; store[s]; tell;
      askParts[r]; decide[r]; always nothing))
      implies always p4
} for 3 but exactly 4 Member, exactly 1 Write, exactly 1 Read, exactly 1 Sweep,
  11..11 steps expect 0
