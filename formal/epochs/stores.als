/*
 * Register stores across epochs: one segment goes on in another epoch, with other members. One key.
 *
 * What is modelled. The old epoch has three members and the new one three, of which some may be the
 * same; q = 2 of each. A member keeps, per epoch, the value of the highest tag that it was sent. It
 * seals the old store: from then on it answers, of that store, sealed reads alone; what it says of
 * the seal is on its disk. Where q members have said so the new epoch is opened. A read of the new
 * epoch hears q members of it, and q sealed members of the old one unless it meets a mark that the
 * key has moved; it stores what it found at q members of the new epoch; a mark may then be set. A
 * read that finds it in every answer of the old epoch has ended without a store. A write of two
 * rounds takes its tag in the same way. Clients that know nothing of the change go on
 * in the old epoch as far as its members let them, and a write that began there may be stored in
 * the new one under its own tag. When a read has gone through, that everything has moved is agreed,
 * and members delete the old store.
 *
 * Eventual puts are another matter: each is at one member, acknowledged by it alone. The mover
 * reads members, sealed, and takes the highest it finds over into the new epoch.
 *
 * The network is the most general one; an operation reaches a chosen set of members at a time, the
 * others later or never, and a store may arrive long after its sender has died.
 *
 * What is abstracted away, and why that is sound.
 * - Parts. With k = 1 a member's part is the value; that any q answers of one epoch hold k parts of
 *   what is final there is proved in formal/registers.
 * - The agreement on the new epoch, and that everything has moved: atomic, for a log decides them
 *   (log.als).
 * - Sections. Their puts come from one holder with rising tags; what orders two holders is the lock
 *   (formal/critical). The floor of the epoch, which refuses holders of the past, is not here.
 * - A third epoch: at most one source is open.
 * - A read that finds all its answers alike need not store: here it stores, which changes nothing.
 * - Damage, full disks, overload: members just do not answer.
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module stores

open util/ordering[Tag] as tags
open util/ordering[Put] as puts

/* The parameter: which rules are in force. */
enum Rule {
  SealOnDisk,   // F15: what a member says of its seal is on its disk
  SealedStays,  // F15: a sealed store takes no writes
  MovedFirst,   // a store is deleted when it is agreed that everything has moved
  ReadBeforeGone, // and when its own eventual value was read, sealed, and taken over
  GoneIsGone,   // a deleted store says so, and does not look empty
  ReadsThrough, // who finds no mark hears q sealed members of the old epoch, too
  StandsAtAll   // a read ends without a store where every answer of the old epoch has its tag
}

one sig Protocol { rules: set Rule }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

/* Tags in their order. The first is that of a key that was never written. */
sig Tag {}
/* Eventual puts, in the order of their tags. */
sig Put {}

sig Member {
  var was: lone Tag,  // in the old store,
  var now: lone Tag,  // and in the new one
  var mark: lone Tag, // the key is known to have moved, up to this tag
  var kept: lone Put  // the eventual value in the old store
}

/* The members of each epoch. */
sig Old, New in Member {}
fact views { #Old = 3 and #New = 3 }

/* Members that have sealed; whose seal is on the disk; who has said so; who has deleted. */
var sig sealed in Old {}
var sig onDisk in Old {}
var sig said in Old {}
var sig gone in Old {}

/* The new epoch was opened; everything has moved. */
one sig Next {}
var sig opened in Next {}
var sig moved in Next {}

/* Eventual puts that were acknowledged; that are in the new epoch; whose members were read. */
var sig acked in Put {}
var sig taken in Put {}
var sig readOff in Old {}

abstract sig Op {
  var heardOld: set Member, // have answered it of the old store,
  var heardNew: set Member, // and of the new one,
  var seen: set Tag,        // with these tags,
  var shown: Member -> lone Tag, // by sealed members of the old store these,
  var marks: set Tag,       // and these marks
  var tag: lone Tag,        // what it stores, or returns
  var acksOld: set Member,  // have stored it
  var acksNew: set Member,
  var earlier: set Op       // had ended when this one began
}

sig Write, Read extends Op {}
/* Of clients in the old epoch. */
sig Stale in Op {}

fun nothingYet: one Tag { tags/first }
pred below[a, b: Tag] { tags/lt[a, b] }
pred upTo[a, b: Tag] { tags/lte[a, b] }

/* q of an epoch's members. */
pred quorum[m: set Member, view: set Member] { lone view - m }

/* An operation ends with q acknowledgements of one epoch; a read also where its tag stands. */
fun ended: set Op {
  { o: Op | quorum[o.acksOld, Old] or quorum[o.acksNew, New] or o in standing }
}
/* Reads whose every sealed answer has shown their tag. */
fun standing: set Read {
  { r: Read - Stale | some r.tag and quorum[r.heardOld, Old] and
    (on[StandsAtAll] => r.heardOld -> r.tag in r.shown else r.tag in Member.(r.shown)) }
}
pred free[t: Tag] { t != nothingYet and no w: Write | w.tag = t }
/* A read that has gone through to the old epoch, and is at q of the new one. */
fun through: set Read {
  { r: Read - Stale | some r.tag and quorum[r.heardOld, Old] and quorum[r.acksNew, New] }
}

/* ---- in the beginning ---- */

pred init {
  was = Old -> nothingYet and now = New -> nothingYet and no mark and no kept
  no sealed and no onDisk and no said and no gone and no opened and no moved
  no acked and no taken and no readOff
  all o: Op | nothingHeard[o] and no o.tag and no o.acksOld and no o.acksNew
}

pred nothingHeard[o: Op] {
  no o.heardOld and no o.heardNew and no o.seen and no o.shown and no o.marks and no o.earlier
}

/* ---- what stays ---- */

pred keepOld { was' = was and kept' = kept }
pred keepNew { now' = now and mark' = mark }
pred keepSeals { sealed' = sealed and onDisk' = onDisk and said' = said and gone' = gone }
pred keepEpoch { opened' = opened and moved' = moved }
pred keepPuts { acked' = acked and taken' = taken and readOff' = readOff }
pred keepAnswers {
  heardOld' = heardOld and heardNew' = heardNew and seen' = seen and shown' = shown
  marks' = marks and earlier' = earlier
}
pred keepAcks { acksOld' = acksOld and acksNew' = acksNew }
pred keepOps { keepAnswers and tag' = tag and keepAcks }

/* ---- what clients do ---- */

pred begins[o: Op] {
  earlier' = (no o.heardOld + o.heardNew => earlier + o -> ended else earlier)
}

/* A client in the old epoch asks there. */
pred askOld[o: Op] {
  o in Stale and no o.tag
  let m = o.heardOld' - o.heardOld {
    some m and m in Old and no m & (sealed + gone)
    heardOld' = heardOld + o -> m
    seen' = seen + o -> m.was
  }
  begins[o]
  heardNew' = heardNew and shown' = shown and marks' = marks and tag' = tag
  keepAcks and keepOld and keepNew and keepSeals and keepEpoch and keepPuts
}

/* A client in the new epoch asks there. */
pred askNew[o: Op] {
  o not in Stale and no o.tag and some opened
  let m = o.heardNew' - o.heardNew {
    some m and m in New
    heardNew' = heardNew + o -> m
    seen' = seen + o -> m.now
    marks' = marks + o -> m.mark
  }
  begins[o]
  heardOld' = heardOld and shown' = shown and tag' = tag
  keepAcks and keepOld and keepNew and keepSeals and keepEpoch and keepPuts
}

/* It reads members of the old epoch; that seals them. */
pred askSealed[o: Op] {
  o not in Stale and no o.tag
  let m = o.heardOld' - o.heardOld {
    some m and m in Old
    on[GoneIsGone] => no m & gone
    heardOld' = heardOld + o -> m
    seen' = seen + o -> m.was
    shown' = shown + o -> (m <: was)
    says[m]
  }
  begins[o]
  heardNew' = heardNew and marks' = marks and tag' = tag and gone' = gone
  keepAcks and keepOld and keepNew and keepEpoch and keepPuts
}

/* Members seal, and say so. */
pred says[m: set Member] {
  sealed' = sealed + m
  onDisk' = (on[SealOnDisk] => onDisk + m else onDisk)
  said' = said + m
}

pred enough[o: Op] {
  o in Stale => quorum[o.heardOld, Old] else {
    quorum[o.heardNew, New]
    quorum[o.heardOld, Old] or some o.marks or not on[ReadsThrough]
  }
}

/* A write takes a tag above all that it has seen. */
pred choose[w: Write] {
  no w.tag and enough[w]
  some t: Tag {
    free[t]
    all s: w.seen + w.marks | below[s, t]
    tag' = tag + w -> t
  }
  keepAnswers and keepAcks and keepOld and keepNew and keepSeals and keepEpoch and keepPuts
}

/* A read takes the highest that it has seen, unless a mark lies above. */
pred decide[r: Read] {
  no r.tag and enough[r]
  some t: Tag {
    t = tags/max[r.seen]
    all m: r.marks | upTo[m, t]
    tag' = tag + r -> t
  }
  keepAnswers and keepAcks and keepOld and keepNew and keepSeals and keepEpoch and keepPuts
}

/* A store arrives at members of the old epoch. */
pred storeOld[o: Op] {
  o in Stale and some o.tag
  let m = o.acksOld' - o.acksOld {
    some m and m in Old - gone
    on[SealedStays] => no m & sealed
    acksOld' = acksOld + o -> m
    was' = was ++ { x: m, t: o.tag | below[x.was, t] }
  }
  acksNew' = acksNew and kept' = kept and tag' = tag
  keepAnswers and keepNew and keepSeals and keepEpoch and keepPuts
}

/* A store arrives at members of the new epoch; a write that began in the old one keeps its tag. */
pred storeNew[o: Op] {
  o in Stale implies o in Write
  some o.tag and some opened
  let m = o.acksNew' - o.acksNew {
    some m and m in New
    acksNew' = acksNew + o -> m
    now' = now ++ { x: m, t: o.tag | below[x.now, t] }
  }
  acksOld' = acksOld and mark' = mark and tag' = tag
  keepAnswers and keepOld and keepSeals and keepEpoch and keepPuts
}

/* An eventual put, at one member of the old epoch. */
pred put[m: Member] {
  m in Old - sealed - gone
  some p: Put - acked {
    no m.kept or puts/lt[m.kept, p]
    kept' = kept ++ m -> p
    acked' = acked + p
  }
  was' = was and taken' = taken and readOff' = readOff
  keepNew and keepSeals and keepEpoch and keepOps
}

/* ---- what members do ---- */

/* The seal is asked for, and on the disk some time later. */
pred seal[m: Member] {
  m in Old - sealed - gone
  sealed' = sealed + m
  onDisk' = onDisk and said' = said and gone' = gone
  keepOld and keepNew and keepEpoch and keepPuts and keepOps
}
pred flush[m: Member] {
  m in sealed - onDisk
  onDisk' = onDisk + m and said' = said + m
  sealed' = sealed and gone' = gone
  keepOld and keepNew and keepEpoch and keepPuts and keepOps
}

/* It starts again, with what is on its disk. */
pred restart[m: Member] {
  m in sealed - onDisk
  sealed' = sealed - m
  onDisk' = onDisk and said' = said and gone' = gone
  keepOld and keepNew and keepEpoch and keepPuts and keepOps
}

pred open_ {
  no opened and quorum[said, Old]
  opened' = Next and moved' = moved
  keepOld and keepNew and keepSeals and keepPuts and keepOps
}

/* Members of the new epoch are told that the key has moved. */
pred tell[r: Read] {
  r in through
  some mark' - mark
  all m: Member | m.mark' = m.mark or
    (m in New and m.mark' = r.tag and (all t: m.mark | below[t, r.tag]))
  now' = now
  keepOld and keepSeals and keepEpoch and keepPuts and keepOps
}

/* The mover reads eventual values of members, which seals them, and takes them over. */
pred takeOver {
  let m = readOff' - readOff {
    some m and no m & gone
    readOff' = readOff + m
    taken' = taken + m.kept
    says[m]
  }
  acked' = acked and gone' = gone
  keepOld and keepNew and keepEpoch and keepOps
}

/* It is agreed that everything has moved. */
pred agree {
  no moved and some through and quorum[readOff, Old]
  moved' = Next and opened' = opened
  keepOld and keepNew and keepSeals and keepPuts and keepOps
}

/* Members delete the old store; also one that has not heard of the seal, if no rule forbids it. */
pred delete {
  let m = gone' - gone {
    some m
    on[MovedFirst] => some moved
    on[ReadBeforeGone] => m in readOff
    gone' = gone + m
    sealed' = sealed + m and onDisk' = onDisk + m and said' = said + m
    was' = was - m -> Tag
    kept' = kept - m -> Put
  }
  keepNew and keepEpoch and keepPuts and keepOps
}

pred nothing { keepOld and keepNew and keepSeals and keepEpoch and keepPuts and keepOps }

pred event {
  (some o: Op | askOld[o] or askNew[o] or askSealed[o] or storeOld[o] or storeNew[o])
  or (some w: Write | choose[w])
  or (some r: Read | decide[r] or tell[r])
  or (some m: Member | put[m] or seal[m] or flush[m] or restart[m])
  or open_ or takeOver or agree or delete
}

pred trace { init and always (event or nothing) }

/* ---- what is promised ---- */

/* Real time, across epochs: what has ended before another begins does not come after it. */
pred p2 {
  all o: Op, p: o.earlier | some o.tag implies
    upTo[p.tag, o.tag] and (o in Write implies below[p.tag, o.tag])
}
pred p3 { all disj a, b: Write | no a.tag & b.tag }
pred p4 { all r: Read | some r.tag implies r.tag in nothingYet + Write.tag }
pred atomic { p2 and p3 and p4 }

/* Whatever has ended is at q members of an epoch, or something later is. */
pred nothingLost {
  all o: ended |
    quorum[{ m: New | upTo[o.tag, m.now] }, New] or
    quorum[{ m: Old - gone | upTo[o.tag, m.was] }, Old]
}

/* An acknowledged eventual put is somewhere, or a later one is. */
pred eventualKept { all p: acked | some c: taken + Member.kept | puts/lte[p, c] }

/* Who has said that it is sealed never changes until it deletes. */
pred saidStays { all m: said | m in gone' or m.was' = m.was and m.kept' = m.kept }

/* Who has deleted had everything moved. */
pred goneMoved { some gone implies some moved and some through }

/* ---- the invariant ---- */

pred shape {
  was.Tag = Old - gone and now.Tag = New and mark.Tag in New and kept.Put in Old - gone
  onDisk in sealed and said in onDisk and gone in said
  p3
  no nothingYet & Write.tag
  Member.(was + now + mark) + Op.seen + Op.marks + Read.tag in nothingYet + Write.tag
  all o: Op | o.heardOld + o.acksOld in Old and o.heardNew + o.acksNew in New
  all o: Op | no o.tag implies no o.acksOld + o.acksNew
  all o: Op | no o.heardOld + o.heardNew implies nothingHeard[o] and no o.tag
  all o: Op | some o.tag implies enough[o]
  all o: Op, s: o.seen + o.marks | some o.tag implies upTo[s, o.tag]
  all o: Stale | no o.heardNew and no o.marks and (o in Read implies no o.acksNew)
  all o: Op - Stale | no o.acksOld
  all o: Op | o.earlier in ended - o
  Op.heardNew + Op.acksNew != none implies some opened
  some opened implies quorum[said, Old]
}

/* What members have acknowledged they have. */
pred ackedIsKept {
  all o: Op, m: o.acksOld - gone | upTo[o.tag, m.was]
  all o: Op, m: o.acksNew | upTo[o.tag, m.now]
}

/* Whom an operation has read sealed has shown it all that it will ever have. */
pred sealedIsSeen {
  all o: Op - Stale, m: o.heardOld {
    m in said
    all p: Op | m in p.acksOld implies some s: o.seen | upTo[p.tag, s]
  }
}

/* It shows the same to all, for ever. */
pred shownStays {
  all o: Op, m: Member, t: m.(o.shown) | m in o.heardOld and o not in Stale and t in o.seen
  all o, p: Op - Stale, m: o.heardOld & p.heardOld | m.(o.shown) = m.(p.shown)
  all o: Op - Stale, m: o.heardOld | one m.(o.shown) and (m in gone or m.(o.shown) = m.was)
}

/* A mark says that a read has gone through. */
pred marksHold { all t: Member.mark + Op.marks | some r: through | r.tag = t }

/* What had ended when an operation began, in one epoch or in the other, is seen by it; or it will
 * never have q answers. (A write may end twice: where its client was not told, it goes on.) */
pred endedIsSeen {
  all o: Op - Stale, p: o.earlier | quorum[p.acksOld, Old] or p in standing or
    quorum[{ m: New | upTo[p.tag, m.now] and (m in o.heardNew implies sees[o, p.tag]) }, New]
  all o: Stale, p: o.earlier | quorum[said - o.heardOld, Old] or
    quorum[{ m: Old |
      (m in gone or upTo[p.tag, m.was]) and (m in o.heardOld implies sees[o, p.tag]) }, Old]
}
pred sees[o: Op, t: Tag] { some s: o.seen | upTo[t, s] }

pred eventualIsTaken {
  eventualKept
  readOff in said and readOff.kept in taken
  gone in readOff
  some moved implies some through and quorum[readOff, Old]
}

pred inv {
  shape and ackedIsKept and sealedIsSeen and shownStays and marksHold and endedIsSeen and eventualIsTaken
  goneMoved and p2
}

/* ---- the proof, for all traces ---- */

/* q = 2 of 3 in each epoch; 3 or 4 members in all, 4 tags, 4 operations of all kinds. */
holds_at_first: check { right and init implies inv } for 4 but 1 steps expect 0
/* All events in a small scope, and each alone in a larger one. */
keeps_all: check { right and inv and event implies after inv }
  for 3 but 4 Member, 2 steps expect 0
keeps_askOld_deep: check { all o: Op | right and inv and askOld[o] implies after inv }
  for 4 but 2 steps expect 0
keeps_askNew_deep: check { all o: Op | right and inv and askNew[o] implies after inv }
  for 4 but 2 steps expect 0
keeps_askSealed_deep: check { all o: Op | right and inv and askSealed[o] implies after inv }
  for 4 but 2 steps expect 0
keeps_choose_deep: check { all w: Write | right and inv and choose[w] implies after inv }
  for 4 but 2 steps expect 0
keeps_decide_deep: check { all r: Read | right and inv and decide[r] implies after inv }
  for 4 but 2 steps expect 0
keeps_storeOld_deep: check { all o: Op | right and inv and storeOld[o] implies after inv }
  for 4 but 2 steps expect 0
keeps_storeNew_deep: check { all o: Op | right and inv and storeNew[o] implies after inv }
  for 4 but 2 steps expect 0
keeps_put_deep: check { all m: Member | right and inv and put[m] implies after inv }
  for 4 but 2 steps expect 0
keeps_seal_deep: check {
  all m: Member | right and inv and (seal[m] or flush[m] or restart[m]) implies after inv
} for 4 but 2 steps expect 0
keeps_open_deep: check { right and inv and open_ implies after inv } for 4 but 2 steps expect 0
keeps_tell_deep: check { all r: Read | right and inv and tell[r] implies after inv }
  for 4 but 2 steps expect 0
keeps_takeOver_deep: check { right and inv and takeOver implies after inv }
  for 4 but 2 steps expect 0
keeps_agree_deep: check { right and inv and agree implies after inv } for 4 but 2 steps expect 0
keeps_delete_deep: check { right and inv and delete implies after inv } for 4 but 2 steps expect 0

says_all: check { right and inv implies atomic and nothingLost and eventualKept and goneMoved }
  for 4 but 1 steps expect 0
says_saidStays: check { right and inv and event implies saidStays }
  for 4 but 2 steps expect 0

/* ---- every event can happen ---- */

/* A key is moved, under a mark that a later read uses, and the store deleted. */
happens_move: run {
  some disj r, s: Read | right and init and r not in Stale and s not in Stale and
    (askSealed[r]; open_; askNew[r]; decide[r]; storeNew[r]; tell[r]; takeOver; agree; delete;
      askNew[s]; decide[s]; always nothing)
} for 2 but exactly 4 Member, exactly 2 Read, 0 Write, 12..12 steps expect 1
/* A client in the old epoch writes, and it is read in the new one. */
happens_cross: run {
  some w: Write, r: Read | right and init and w in Stale and r not in Stale and
    (askOld[w]; choose[w]; (some m: Member | put[m]); (some m: Member | seal[m]);
      (some m: Member | flush[m]); storeOld[w]; askSealed[r]; open_; storeNew[w]; askNew[r];
      decide[r]; always (nothing and r.tag = w.tag))
} for 2 but exactly 4 Member, exactly 1 Read, exactly 1 Write, 12..12 steps expect 1
/* A read returns what a client in the old epoch has written to q members, and stores nothing. */
happens_stands: run {
  some w: Write, r: Read | right and init and w in Stale and r not in Stale and
    (askOld[w]; choose[w]; storeOld[w]; askSealed[r]; open_; askNew[r]; decide[r];
      always (nothing and r in standing and r.tag = w.tag))
} for 2 but exactly 4 Member, exactly 1 Read, exactly 1 Write, 8..8 steps expect 1
happens_restart: run { right and trace and eventually (some m: Member | restart[m]) }
  for 2 but exactly 4 Member, 4 steps expect 1

/* ---- each rule is needed: counter-examples ---- */

/* In each it is given who does what in which order; with which members and tags is not. */

/* F15. A member says that it has sealed, starts again, and takes a write. */
needs_SealOnDisk: check {
  all r: Read, w: Write | (without[SealOnDisk] and init and w in Stale and r not in Stale and
    (askSealed[r]; (some m: Member | restart[m]); askOld[w]; choose[w]; storeOld[w];
      always nothing))
      implies always saidStays
} for 2 but exactly 4 Member, exactly 1 Read, exactly 1 Write, 6..6 steps expect 1
/* What comes of it: a write ends in the old epoch, and a later read does not see it. */
needs_SealOnDisk_p2: check {
  all disj r, s: Read, w: Write | (without[SealOnDisk] and init and
    w in Stale and no (r + s) & Stale and
    (askSealed[r]; open_; askNew[r]; decide[r]; storeNew[r]; tell[r];
      (some m: Member | restart[m]); askOld[w]; choose[w]; storeOld[w];
      askNew[s]; decide[s]; always nothing))
      implies always p2
} for 2 but exactly 4 Member, exactly 2 Read, exactly 1 Write, 13..13 steps expect 1

/* F15. A write reaches members that have sealed, after the key has moved. */
needs_SealedStays: check {
  all disj r, s: Read, w: Write | (without[SealedStays] and init and
    w in Stale and no (r + s) & Stale and
    (askOld[w]; choose[w]; askSealed[r]; open_; askNew[r]; decide[r]; storeNew[r]; tell[r];
      storeOld[w]; askNew[s]; decide[s]; always nothing))
      implies always p2
} for 2 but exactly 4 Member, exactly 2 Read, exactly 1 Write, 12..12 steps expect 1

/* Stores are deleted although a key has not moved. */
needs_MovedFirst: check {
  all w: Write | (without[MovedFirst] and init and w in Stale and
    (askOld[w]; choose[w]; storeOld[w]; takeOver; delete; always nothing))
      implies always (nothingLost or goneMoved)
} for 2 but exactly 4 Member, 0 Read, exactly 1 Write, 6..6 steps expect 1

/* An eventual put is at one member, which was not among the q that the mover has read. */
needs_ReadBeforeGone: check {
  all r: Read | (without[ReadBeforeGone] and init and r not in Stale and
    ((some m: Member | put[m]); askSealed[r]; open_; askNew[r]; decide[r]; storeNew[r];
      takeOver; agree; delete; always nothing))
      implies always eventualKept
} for 2 but exactly 4 Member, exactly 1 Read, 0 Write, 10..10 steps expect 1

/* A read has asked the new epoch before the move, and the old one after it. */
needs_GoneIsGone: check {
  all disj r, s: Read, w: Write | (without[GoneIsGone] and init and
    w in Stale and no (r + s) & Stale and
    (askOld[w]; choose[w]; storeOld[w]; askSealed[r]; open_; askNew[s]; askNew[r]; decide[r];
      storeNew[r]; takeOver; agree; delete; askSealed[s]; decide[s]; always nothing))
      implies always p2
} for 2 but exactly 4 Member, exactly 2 Read, exactly 1 Write, 15..15 steps expect 1

/* A read asks the new epoch alone, before the key has moved. */
needs_ReadsThrough: check {
  all disj r, s: Read, w: Write | (without[ReadsThrough] and init and
    w in Stale and no (r + s) & Stale and
    (askOld[w]; choose[w]; storeOld[w]; askSealed[r]; open_; askNew[s]; decide[s];
      always nothing))
      implies always p2
} for 2 but exactly 4 Member, exactly 2 Read, exactly 1 Write, 8..8 steps expect 1

/* A read returns, without a store, what one member of the old epoch has. */
needs_StandsAtAll: check {
  all disj r, s: Read, w: Write | (without[StandsAtAll] and init and
    w in Stale and no (r + s) & Stale and
    (askOld[w]; choose[w]; storeOld[w]; askSealed[r]; open_; askNew[r]; decide[r]; askNew[s];
      askSealed[s]; decide[s]; always nothing))
      implies always p2
} for 2 but exactly 4 Member, exactly 2 Read, exactly 1 Write, 11..11 steps expect 1
