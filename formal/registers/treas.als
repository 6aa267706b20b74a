/*
 * Coded registers as published (the policy `treas-opt`; CassandrEAS Alg. 1 and 2): one key, one
 * store, no sections.
 *
 * What is modelled. n members keep the part of the highest tag that they were sent, and no other; q
 * = n - f answers complete a phase, so that two quorums share k = n - 2f members. Any l = k/(d +
 * 1), rounded up, parts of one tag give its value, here with d = 1: at most one write may be
 * unfinished while a read runs. A read returns the highest tag of which it has l parts, unless k of
 * its answers show higher ones; otherwise it finds nothing.
 *
 * Where Fermata departs from the paper it is Fermata that is modelled: the paper's members list all
 * tags that they ever had, and a read must not return less than the highest tag in k of the lists.
 * Here each answer shows one tag, and the bound is the k-th largest of these.
 *
 * The network, what an operation is, and what is abstracted away: as in coded.als. There are no
 * sweeps (nobody sweeps under this policy), no final marks, no damage.
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module treas

open util/ordering[Tag] as tags

/* The parameter: which rules are in force. */
enum Rule {
  KthLargest, // a read returns nothing that k of its answers have outlived
  WriteBack,  // a read stores what it returns at q members first
  SmallParts  // l is k/(d + 1), not k
}

/* `faults`: how many members may fail. */
one sig Protocol { rules: set Rule, faults: one Int }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }
pred bears[f: Int] { Protocol.faults = f }

/* Tags in their order. The first is that of the old value, which everybody has. */
sig Tag {}

/* It has a part of one tag. */
sig Member { var part: one Tag }

abstract sig Op {
  var heard: set Member,    // has their answers,
  var shown: Member -> Tag, // which show these tags, and their parts,
  var tag: lone Tag,        // what it stores, or returns
  var acks: set Member,     // have stored it, or a higher one
  var earlier: set Op,      // had ended when this one began
  var floor: lone Tag       // the highest tag that was at q members then
}

sig Write, Read extends Op {}

/* Reads that have ended without writing back. */
var sig skipped in Read {}

fun old: one Tag { tags/first }
pred below[a, b: Tag] { tags/lt[a, b] }
pred upTo[a, b: Tag] { tags/lte[a, b] }

fun k: Int { minus[#Member, plus[Protocol.faults, Protocol.faults]] }
pred quorum[m: set Member] { #(Member - m) =< Protocol.faults }
/* At least l = k/2 rounded up. */
pred enough[m: set Member] { (on[SmallParts] => plus[#m, #m] else #m) >= k }
/* Fewer than k. */
pred few[m: set Member] { #m < k }

fun ended: set Op { skipped + { o: Op | quorum[o.acks] } }
fun final: set Tag { old + { t: Tag | some o: Op | t in o.tag and quorum[o.acks] } }
fun maker[t: Tag]: set Op { { o: Write | t in o.tag } }
pred free[t: Tag] { t != old and no maker[t] }

/* What the answers of a read give. */
fun decodable[r: Read]: set Tag { { t: Tag | enough[{ m: r.heard | t in r.shown[m] }] } }
fun above[r: Read, t: Tag]: set Member { { m: r.heard | some s: r.shown[m] | below[t, s] } }
pred found[r: Read, t: Tag] {
  quorum[r.heard]
  t = tags/max[decodable[r]]
  on[KthLargest] => few[above[r, t]]
}

/* ---- in the beginning ---- */

pred init {
  part = Member -> old
  all o: Op | nothingHeard[o] and no o.tag and no o.acks
  no skipped
}

pred nothingHeard[o: Op] { no o.heard and no o.shown and no o.earlier and no o.floor }

/* ---- what stays ---- */

pred keepAnswers { heard' = heard and shown' = shown and earlier' = earlier and floor' = floor }
pred keepRest { tag' = tag and acks' = acks and skipped' = skipped }

/* ---- what can happen ---- */

/* Some members answer a write that asks for tags, or a read that asks for parts. An operation that
 * had heard nobody begins. */
pred ask[o: Op] {
  no o.tag
  let m = o.heard' - o.heard {
    some m
    heard' = heard + o -> m
    shown' = shown + { p: o, x: m, t: x.part }
    earlier' = (no o.heard => earlier + o -> ended else earlier)
    floor' = (no o.heard => floor + o -> tags/max[final] else floor)
  }
  part' = part and keepRest
}

/* A write takes a tag above all that q members have shown. */
pred choose[w: Write] {
  no w.tag and quorum[w.heard]
  some t: Tag {
    free[t]
    all s: Member.(w.shown) | below[s, t]
    tag' = tag + w -> t
  }
  part' = part and keepAnswers and acks' = acks and skipped' = skipped
}

/* A read has found a value. Who has shown it need not store it. */
pred decide[r: Read] {
  no r.tag
  some t: Tag {
    found[r, t]
    tag' = tag + r -> t
    acks' = acks + r -> { m: r.heard | t in r.shown[m] }
    skipped' = (on[WriteBack] => skipped else skipped + r)
  }
  part' = part and keepAnswers
}

/* A store arrives at some members. */
pred store[o: Op] {
  some o.tag and o not in skipped
  let m = o.acks' - o.acks {
    some m
    acks' = acks + o -> m
    part' = part ++ { x: m, t: o.tag | below[x.part, t] }
  }
  keepAnswers and tag' = tag and skipped' = skipped
}

pred nothing { part' = part and keepAnswers and keepRest }

pred event {
  (some o: Op | ask[o] or store[o]) or (some w: Write | choose[w]) or (some r: Read | decide[r])
}

pred trace { init and always (event or nothing) }

/* ---- what is promised ---- */

/* The conditions of CassandrEAS §III, as in coded.als. */
pred p2 {
  all o: Op, p: o.earlier | some o.tag implies
    upTo[p.tag, o.tag] and (o in Write implies below[p.tag, o.tag])
}
pred p3 { all disj a, b: Write | no a.tag & b.tag }
pred p4 { all o: ended | o.tag = old or one maker[o.tag] }
pred atomic { p2 and p3 and p4 }

/* A read that has q answers finds a value, if no more than one tag was made, by then, above the
 * highest that was at q members when it began. Dead writers count. */
pred finds {
  all r: Read | quorum[r.heard] and lone { t: Write.tag | below[r.floor, t] } implies
    some t: Tag | found[r, t]
}

/* Any q members, where f = 1, give a value that a reader may return. */
pred readable {
  all x: Member | some t: Tag {
    enough[{ m: Member - x | m.part = t }]
    few[{ m: Member - x | below[t, m.part] }]
  }
}

/* ---- the invariant ---- */

pred inv {
  p3 and p2
  no maker[old]
  Member.part + Op.(Op <: shown)[Member] + Read.tag in old + Write.tag
  all o: Op | o.heard = o.shown.Tag and (all m: o.heard | one o.shown[m])
  all o: Op | no o.tag implies no o.acks
  all o: Op | (some o.heard iff one o.floor) and (no o.heard implies nothingHeard[o] and no o.tag)
  no skipped
  all o: Op | o.earlier in ended - o
  all t: final | quorum[{ m: Member | upTo[t, m.part] }]
  all o: Op, m: o.acks | upTo[o.tag, m.part]
  all o: Op, m: o.heard, s: o.shown[m] | upTo[s, m.part]
  all o: Op, t: o.floor | t in final and (all p: o.earlier | upTo[p.tag, t])
  /* What was at q members when an operation began is shown by those of them that it has heard. */
  all o: Op, t: o.floor | quorum[{ m: Member |
    upTo[t, m.part] and (m in o.heard implies upTo[t, o.shown[m]]) }]
}

/* ---- the proof, for all traces ---- */

/* n = 5: k = 3 and l = 2 with f = 1; plain copies with f = 2. */
holds_at_first: check { right and init and some Protocol.faults & (1 + 2) implies inv }
  for 4 but exactly 5 Member, 5 Int, 1 steps expect 0
/* All events in a small scope, and each alone in a larger one. */
keeps_all: check { right and bears[1] and inv and event implies after inv }
  for 3 but exactly 5 Member, 5 Int, 2 steps expect 0
keeps_ask_deep: check { all o: Op | right and bears[1] and inv and ask[o] implies after inv }
  for 4 but exactly 5 Member, 5 Int, 2 steps expect 0
keeps_choose_deep: check {
  all w: Write | right and bears[1] and inv and choose[w] implies after inv
}
  for 4 but exactly 5 Member, 5 Int, 2 steps expect 0
keeps_decide_deep: check {
  all r: Read | right and bears[1] and inv and decide[r] implies after inv
}
  for 4 but exactly 5 Member, 5 Int, 2 steps expect 0
keeps_store_deep: check { all o: Op | right and bears[1] and inv and store[o] implies after inv }
  for 4 but exactly 5 Member, 5 Int, 2 steps expect 0
says_atomic: check { right and bears[1] and inv implies atomic }
  for 4 but exactly 5 Member, 5 Int, 1 steps expect 0
says_finds: check { right and bears[1] and inv implies finds }
  for 4 but exactly 5 Member, 5 Int, 1 steps expect 0

/* The paper's n = 7, f = 1: k = 5, l = 3. And f = 2: k = 3, l = 2. */
keeps_all7_deep: check {
  right and (bears[1] or bears[2]) and inv and event implies after inv
} for 3 but exactly 7 Member, 5 Int, 2 steps expect 0
says_all7: check { right and (bears[1] or bears[2]) and inv implies atomic and finds }
  for 3 but exactly 7 Member, 5 Int, 1 steps expect 0

/* ---- every event can happen ---- */

/* A read finds a write that has died, and completes it. */
happens_all: run {
  bears[1] and right and trace and eventually (some r: Read, w: Write |
    r.tag = w.tag and quorum[r.acks] and not quorum[w.acks])
} for 2 but exactly 5 Member, 5 Int, exactly 1 Write, exactly 1 Read, 8 steps expect 1

/* ---- each rule is needed: counter-examples ---- */

/* f = 2. A write has ended; two writers that die after it leave too few of its parts; those who
 * never had it give the old value. */
needs_KthLargest: check {
  all disj u, v, w: Write, r: Read | (bears[2] and without[KthLargest] and init and
    (ask[u]; choose[u]; store[u]; ask[v]; choose[v]; store[v]; ask[w]; choose[w]; store[w];
      ask[r]; decide[r]; always nothing))
      implies always p2
} for 4 but exactly 7 Member, 5 Int, exactly 3 Write, exactly 1 Read, 12..12 steps expect 1

/* A read returns what is at l members; a read after it hears fewer of these. */
needs_WriteBack: check {
  all w: Write, disj r, s: Read | (bears[1] and without[WriteBack] and init and
    (ask[w]; choose[w]; store[w]; ask[r]; decide[r]; ask[s]; decide[s]; always nothing))
      implies always p2
} for 2 but exactly 5 Member, 5 Int, exactly 1 Write, exactly 2 Read, 8..8 steps expect 1

/* One writer has died, and a read does not find a value. */
needs_SmallParts: check {
  all w: Write, r: Read | (bears[1] and without[SmallParts] and init and
    (ask[w]; choose[w]; store[w]; ask[r]; always nothing))
      implies always finds
} for 2 but exactly 5 Member, 5 Int, exactly 1 Write, exactly 1 Read, 5..5 steps expect 1

/* ---- the price: beyond d unfinished writes a value is lost ---- */

/* n = 7, f = 1, as in the paper: two writers die, and no q members give a value any more. */
loses_beyondDelta: check {
  all disj v, w: Write | (bears[1] and right and init and
    (ask[v]; choose[v]; store[v]; ask[w]; choose[w]; store[w]; always nothing))
      implies always readable
} for 3 but exactly 7 Member, 5 Int, exactly 2 Write, 0 Read, 7..7 steps expect 1
/* With one dead writer they do. */
keeps_withinDelta: check { bears[1] and right and trace implies always readable }
  for 2 but exactly 7 Member, 5 Int, exactly 1 Write, 0 Read, 6 steps expect 0
