/*
 * Critical sections across epochs: the segment of a key goes on in another epoch, with other
 * members, while sections begin and end.
 *
 * What is modelled. Two stores with three members each, q = 2; the old one is sealed, the new one
 * begins empty, and is read through to the old one. The log ends with a `Stop`, which takes seals
 * of q members, and the next one goes on with its state: which refs are past, and whether the flag
 * is set. Refs hold the key one after the other. A ref is granted by a synch, by a read of one
 * store, or by the word of who left cleanly before. A holder puts, and gets, through coordinators
 * that know the old place or the new one. What is carried over has moved the key, and so has a
 * synch; a mark may then say so.
 *
 * Members of the new store answer holders with the state with which their log began; what else of
 * the queue they know is left open: they may refuse whom they know to be past, and need not.
 *
 * The network is the most general one: an operation reaches a chosen set of members at a time, the
 * others later or never, and a store may arrive long after its sender has died.
 *
 * What is abstracted away, and why that is sound.
 * - The members of the two epochs are different ones: what a member says of one store has nothing
 *   to do with what it has in the other.
 * - The log: it orders what happens to the queue, and its next one begins with its state (log.als).
 * - A ref with a generation is a ref; a ref that only waits is none.
 * - Reads ahead, eventual values, and all else of sections: formal/critical.
 * - Marks are not kept by members: an answer of the new epoch may show any mark that could have
 *   been told by then.
 * - Durable seals, deleted stores, parts of codes: stores.als, formal/registers.
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module sections

open util/ordering[Ref] as refs
open util/ordering[Write] as tags

/* The parameter: which rules are in force. */
enum Rule {
  EpochFloor,        // S2: a new store refuses refs that were past when its log began
  LeftStaysOut,      // nor takes it a put beside which such a ref has left, whatever the flag says
  GrantsReadThrough, // S4: the read of a grant hears the source, unless it meets a mark
  GetsReadThrough,   // S3: a holder's get hears the source, unless it meets a mark
  SynchAboveSource,  // V4: a synch that finds a higher tag in the source is past
  EpochInTags,       // S5, G11: the tag of a synch has the epoch of its log
  StopSeals          // R2: who votes for the end of a log seals the store
}

one sig Protocol { rules: set Rule }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

/* Lock refs, in the order in which they hold the key. `granted`: whose values it was told. */
sig Ref { var granted: set Write }

/* Whoever asks or stores. `found`: what it has found; none: it has not decided yet. */
abstract sig Op {
  var shown: Member -> lone Write, // what members have answered,
  var vowed: Member -> lone Write, // with these fences,
  var marks: set Write,            // and these marks
  var found: lone Write,
  var acks: set Member             // have stored it
}
/* Writes are also tags, in their order. The first is that of the old value. */
abstract sig Write extends Op { ref: lone Ref }
one sig Start extends Write {}
sig Put, Synch extends Write {}
/* Of the primaries of the old log. */
sig Former in Synch {}

/* A holder's get; without a ref, the read of who moves the key. `least`: what its client knows to
 * be done when it asks. */
sig Get extends Op { of: lone Ref, var least: set Write }
/* Of a coordinator that knows the old place. */
sig Stale in Get {}

abstract sig Member { var part: one Write, var fence: one Write }
sig Old, New extends Member {}

/* Refs that are past; that were so when the old log ended; whose clients have left. */
var sig past in Ref {}
var sig floor in Ref {}
var sig left in Ref {}
/* The old log has ended; the flag is set. */
one sig Log {}
var sig stopped in Log {}
var sig flag in Log {}
/* The put beside which the ref has left that has set the flag. */
var lone sig beside in Put {}
var sig sealed in Old {}
/* Puts that were sent; that were acknowledged. Gets that have returned. */
var sig sent in Put {}
var sig acked in Put {}
var sig returned in Get {}

pred below[a, b: Write] { tags/lt[a, b] }
pred upTo[a, b: Write] { tags/lte[a, b] }
pred later[a, b: Ref] { refs/gt[a, b] }
pred quorum[m: set Member, view: set Member] { lone view - m }

fact order {
  Start = tags/first and no Start.ref and (all w: Put + Synch | one w.ref)
  all a, b: Put + Synch | below[a, b] implies not later[a.ref, b.ref]
  all s: Synch, p: Put | s.ref = p.ref implies below[s, p]
  on[EpochInTags] implies (all a: Former, b: Synch - Former | a.ref = b.ref implies below[a, b])
  Stale.of in Ref and (all g: Stale | one g.of)
}

fun home[o: Op]: set Member { o in Former + Stale => Old else New }
fun heard[o: Op]: set Member { o.shown.Write }
/* Whose answers count: with a mark, not those of the source. */
fun counted[o: Op]: set Member { some o.marks => heard[o] & New else heard[o] }
fun seen[o: Op]: set Write { counted[o].(o.shown) }
/* The source, where one is asked; and the highest fence there. */
fun source[o: Op]: set Member { o in Former + Stale => none else Old }
fun promise[o: Op]: one Write { tags/max[Start + (counted[o] & source[o]).(o.vowed)] }
/* The value of a write: the put that has made it. */
fun value[w: Write]: set Write { w.*(Synch <: found) - Synch }

pred enough[o: Op] {
  quorum[heard[o], home[o]]
  o in Former + Stale or some o.marks or quorum[heard[o], Old] or
    o in Get and some o.of and not on[GetsReadThrough]
}
/* Synchs that are complete. */
fun done: set Synch { { s: Synch | some s.found and quorum[s.acks, home[s]] } }
/* What has moved the key: it was read through to, and q members have it. */
fun through: set Op {
  (Synch - Former) & done & { s: Synch | no s.marks } +
  { g: Get - Stale | some g.found and no g.marks and quorum[heard[g], Old] and quorum[g.acks, New] }
}
/* Their tags. */
fun movedTags: set Write { (through & Synch) + (through & Get).found }

fun head: lone Ref { refs/min[Ref - past] }
fun earlier[r: Ref]: set Ref { refs/prevs[r] }
fun began: set Op { shown.Write.Member }

pred init {
  part = Member -> Start and fence = Member -> Start
  no past and no floor and no left and no stopped and no flag and no beside and no sealed
  no sent and no acked and no returned
  no granted and no shown and no vowed and no marks and no found and no acks and no least
}

/* ---- what stays ---- */

pred keepMembers { part' = part and fence' = fence and sealed' = sealed }
pred keepLog {
  past' = past and floor' = floor and stopped' = stopped and left' = left
  flag' = flag and beside' = beside
}
pred keepAnswers { shown' = shown and vowed' = vowed and marks' = marks and least' = least }
pred keepClients { granted' = granted and sent' = sent and acked' = acked and returned' = returned }
pred keepOps { keepAnswers and found' = found and acks' = acks }

/* ---- clients ---- */

/* A client numbers its puts. */
pred send[p: Put] {
  p not in sent and some p.ref.granted and p.ref not in left
  all x: sent & ref.(p.ref) | below[x, p]
  sent' = sent + p
  granted' = granted and acked' = acked and returned' = returned
  keepMembers and keepLog and keepOps
}

/* A put arrives at some members of one store, or of the other: it crosses as it is. */
pred store[p: Put] {
  p in sent
  let m = p.acks' - p.acks {
    some m and m in (Old - sealed) + (some stopped => New else none)
    on[EpochFloor] and some m & New implies
      p.ref not in floor or not on[LeftStaysOut] and p in beside
    all x: m | upTo[x.fence, p] and (x.part = Start or not later[x.part.ref, p.ref])
    acks' = acks + p -> m
    part' = part ++ { x: m, w: p | below[x.part, w] }
  }
  fence' = fence and sealed' = sealed and found' = found
  keepLog and keepAnswers and keepClients
}

pred ack[p: Put] {
  p in sent - acked and (quorum[p.acks, Old] or quorum[p.acks, New])
  acked' = acked + p
  granted' = granted and sent' = sent and returned' = returned
  keepMembers and keepLog and keepOps
}

/* Members answer; those of the source are sealed by that. */
pred hears[o: Synch + Get] {
  let m = o.shown'.Write - heard[o] {
    some m
    shown' = shown + o -> (m <: part)
    vowed' = vowed + o -> (m <: fence)
    o in Former + Stale => {
      m in Old - sealed
      marks' = marks and sealed' = sealed
    } else {
      some stopped
      sealed' = sealed + (m & Old)
      marks in marks'
      marks' - marks in o -> (some m & New => movedTags else none)
    }
  }
}

pred askGet[g: Get] {
  no g.found and hears[g]
  let m = (g.shown'.Write - heard[g]) & home[g] | some g.of implies {
    some g.of.granted
    on[EpochFloor] and some m & New implies g.of not in floor
    all x: m | no later_[x.part, g.of] and no later_[x.fence, g.of]
  }
  least' = (no heard[g] => least + g -> ((acked & ref.(g.of)) + (g.of.granted & done)) else least)
  part' = part and fence' = fence and found' = found and acks' = acks
  keepLog and keepClients
}
fun later_[w: Write, r: Ref]: set Ref { w.ref & refs/nexts[r] }

pred decide[g: Get] {
  no g.found and enough[g]
  some t: Write {
    t = tags/max[seen[g]]
    all m: g.marks | upTo[m, t]
    found' = found + g -> t
    acks' = acks + g ->
      { m: heard[g] & home[g] | m.(g.shown) = t and upTo[promise[g], m.(g.vowed)] }
  }
  keepMembers and keepLog and keepAnswers and keepClients
}

/* What it has found may be carried over, with the fence of the source; it is stored, if it is the
 * holder's. */
pred carries[g: Get] { g not in Stale and no g.marks }
pred own[g: Get] { some g.of and g.found.ref = g.of }
pred knows[m: Member, t: Write] {
  m.part = t or m in t.acks or some g: Get | g.found = t and m in g.acks
}
pred writeBack[g: Get] {
  some g.found and (carries[g] or own[g])
  let m = g.acks' - g.acks {
    some m and m in (g in Stale => Old - sealed else New)
    all x: m | upTo[x.fence, g.found] or carries[g] and knows[x, g.found]
    not carries[g] implies all x: m | no later_[x.part, g.of]
    acks' = acks + g -> m
    part' = part ++ { x: m, t: g.found | below[x.part, t] }
    fence' = (carries[g] => fence ++ { x: m, t: promise[g] | below[x.fence, t] } else fence)
  }
  sealed' = sealed and found' = found
  keepLog and keepAnswers and keepClients
}

pred return_[g: Get] {
  some g.found and some g.of and g not in returned
  quorum[g.acks, home[g]] or not own[g]
  returned' = returned + g
  granted' = granted and sent' = sent and acked' = acked
  keepMembers and keepLog and keepOps
}

/* ---- primaries ---- */

/* A synch asks, for a ref that is head or was. */
pred askFenced[s: Synch] {
  no s.found and hears[s]
  s in Former => earlier[s.ref] in floor else earlier[s.ref] in past and s.ref not in floor
  let m = (s.shown'.Write - heard[s]) & home[s] {
    all x: m | below[x.part, s] and below[x.fence, s]
    fence' = fence ++ m -> s
  }
  part' = part and found' = found and acks' = acks and least' = least
  keepLog and keepClients
}

pred conclude[s: Synch] {
  no s.found and enough[s]
  some t: Write {
    t = tags/max[seen[s]]
    all m: s.marks | upTo[m, t]
    on[SynchAboveSource] implies below[t, s]
    found' = found + s -> t
  }
  acks' = acks
  keepMembers and keepLog and keepAnswers and keepClients
}

pred storeSynch[s: Synch] {
  some s.found
  let m = s.acks' - s.acks {
    some m and m in (s in Former => Old - sealed else New)
    all x: m | upTo[x.fence, s] and upTo[x.part, s]
    acks' = acks + s -> m
    part' = part ++ m -> s
  }
  fence' = fence and sealed' = sealed and found' = found
  keepLog and keepAnswers and keepClients
}

pred tells[r: Ref, w: Write] {
  granted' = granted + r -> w
  sent' = sent and acked' = acked and returned' = returned
}
pred grant[s: Synch] {
  s in done
  tells[s.ref, s]
  keepMembers and keepLog and keepOps
}

/* The flag is cleared that was set when the ref became head, by a command of the synch's log. */
pred synchDone[s: Synch] {
  s in done and s.ref = head and (s in Former iff no stopped)
  no flag' and no beside'
  past' = past and floor' = floor and stopped' = stopped and left' = left
  keepMembers and keepOps and keepClients
}

/* Or it is known that the put beside which its holder has left is at its quorum. */
pred putDone {
  some beside and beside in acked
  no flag' and no beside'
  past' = past and floor' = floor and stopped' = stopped and left' = left
  keepMembers and keepOps and keepClients
}

/* Without a flag, a read of the present store grants; beside an open source, one of both stores,
 * or one that meets a mark. */
pred entry[r: Ref] {
  r = head and no flag and no began & Synch & ref.r
  some stopped implies earlier[r] not in floor
  let m = (some stopped => New else Old - sealed) | some t: m.part + sealed.part {
    quorum[{ x: m | upTo[x.part, t] }, (some stopped => New else Old)]
    t in m.part and (some stopped and on[GrantsReadThrough] implies some through) or
      some stopped and quorum[{ x: sealed | upTo[x.part, t] }, Old]
    tells[r, t]
  }
  keepMembers and keepLog and keepOps
}

/* So does the word of who has left cleanly, where its value is in the new store. */
pred handOver[r: Ref] {
  r = head and no flag and no began & Synch & ref.r and some stopped
  some q: refs/prev[r] & clean - floor | some p: tags/max[acked & ref.q] {
    some m: New | m.part = p
    tells[r, p]
  }
  keepMembers and keepLog and keepOps
}

/* The head leaves: cleanly if all its puts were acknowledged; or beside its last put. Or it is
 * removed. */
pred release {
  some head
  past' = past + head and stopped' = stopped
  floor' = (some stopped => floor else past')
  leaves or leavesBeside or flag' = Log and left' = left and no beside'
  keepMembers and keepOps and keepClients
}
pred leaves {
  some head.granted and sent & ref.head in acked
  left' = left + head and flag' = flag and no beside'
}
pred leavesBeside {
  some p: tags/max[sent & ref.head] - acked {
    sent & ref.head - p in acked
    beside' = p
  }
  left' = left + head and flag' = Log
}
/* Those of which nothing is in flight. */
fun clean: set Ref { { r: left | sent & ref.r in acked } }

pred stop {
  no stopped and (on[StopSeals] implies quorum[sealed, Old])
  stopped' = Log
  past' = past and floor' = floor and left' = left and flag' = flag and beside' = beside
  keepMembers and keepOps and keepClients
}

pred seal {
  sealed in sealed' and sealed' != sealed
  part' = part and fence' = fence
  keepLog and keepOps and keepClients
}

pred nothing { keepMembers and keepLog and keepOps and keepClients }

pred event {
  (some p: Put | send[p] or store[p] or ack[p])
  or (some g: Get | askGet[g] or decide[g] or writeBack[g] or return_[g])
  or (some s: Synch | askFenced[s] or conclude[s] or storeSynch[s] or grant[s] or
    synchDone[s])
  or (some r: Ref | entry[r] or handOver[r]; always nothing)
  or putDone or release or stop or seal
}

/* ---- what is promised ---- */

/* I9. A synch has all puts below it that are acknowledged. */
pred synchHasAll { all p: acked, s: done | below[p, s] implies upTo[p, value[s]] }
/* A grant tells the latest value. */
pred grantHasAll {
  all r: Ref, w: r.granted, p: acked | later[r, p.ref] implies upTo[p, value[w]]
}
/* A holder's get returns its own latest put, or what it was granted, or what came later. */
pred getHasOwn { all g: returned, w: g.least | upTo[value[w], value[g.found]] }
pred promises { synchHasAll and grantHasAll and getHasOwn }

/* ---- the invariant ---- */

/* Writes that q members of one store have. */
fun final: set Write { { w: Put + Synch | quorum[w.acks, Old] or quorum[w.acks, New] } }
fun concluded: set Synch { { s: Synch | some s.found } }
fun made: set Write { Start + sent + concluded }

pred shape {
  all r: past | earlier[r] in past
  floor in past and left in past and acked in sent and acked in final
  all r: floor | earlier[r] in floor
  no stopped implies floor = past and New.(part + fence) in Start and no returned - Stale
  some stopped implies quorum[sealed, Old]
  all p: sent | some p.ref.granted and earlier[p.ref] in past
  all p: Put | no p.shown and no p.vowed and no p.marks and no p.found
  all p: Put | some p.acks implies p in sent
  no Start.(shown + vowed) and no Start.(marks + found + acks)
  beside in sent and beside.ref in left and (some beside implies some flag)
  all p: beside | sent & ref.(p.ref) - p in acked
  all r: Ref, w: r.granted | w in made and earlier[r] in past
  Member.part + Member.(Op.shown) + Op.marks in made
  Member.fence + Member.(Op.vowed) in Start + Synch
  all o: Op | o.shown.Write = o.vowed.Write
  all o: Former + Stale | heard[o] in Old and o.acks in Old and no o.marks
  all o: Op - Former - Stale - Put | o.acks in New and heard[o] & Old in sealed
  all o: Op - Former - Stale - Put | some heard[o] implies some stopped
  all p: Put | some p.acks & New implies some stopped and p.ref not in floor
  all s: Former | some heard[s] implies earlier[s.ref] in floor
  all s: Synch - Former | some heard[s] implies earlier[s.ref] in past and s.ref not in floor
  all o: Synch + Get | no o.found implies no o.acks
  all o: Synch + Get | some o.found implies
    enough[o] and o.found = tags/max[seen[o]] and (all m: o.marks | upTo[m, o.found])
  all s: Synch | some s.found implies below[s.found, s]
  all s: Synch, m: heard[s] & home[s] | below[m.(s.shown), s] and below[m.(s.vowed), s]
  all g: Get | no heard[g] implies no g.least
  all g: Get | g.least in final
  all g: returned | some g.found and some g.of
}

/* Members keep what they have acknowledged, and promised; a sealed one all that it has shown. */
pred membersKeep {
  all w: Write, m: w.acks | upTo[w, m.part]
  all g: Get, m: g.acks | upTo[g.found, m.part] and (carries[g] implies upTo[promise[g], m.fence])
  all o: Op, m: heard[o] | upTo[m.(o.shown), m.part] and upTo[m.(o.vowed), m.fence]
  all s: Synch, m: heard[s] & home[s] | upTo[s, m.fence]
  all o: Op - Former - Stale, m: heard[o] & Old | m.(o.shown) = m.part and m.(o.vowed) = m.fence
}

pred marksHold { Op.marks in movedTags }

/* What a member has shown to a synch, under its fence, is all that it will ever have below it. */
pred fencesHold {
  all s: Synch, m: heard[s] & home[s] {
    below[m.part, s] implies upTo[m.part, m.(s.shown)]
    all w: Write | m in w.acks and below[w, s] implies upTo[w, m.(s.shown)]
    all g: Get | m in g.acks and below[g.found, s] implies upTo[g.found, m.(s.shown)]
    all o: Op, t: m.(o.shown) | below[t, s] implies upTo[t, m.(s.shown)]
  }
}

/* A synch finds what has ended below it, or comes later. */
pred synchsFind { all w: final, s: concluded | below[w, s] implies upTo[w, s.found] }

/* While the flag is clear, or waits for a put alone, nothing else of a ref that is past is in
 * flight, or it lies below a synch. */
pred clear {
  all r: past - clean - beside.ref | (some flag and no beside) or some s: done | later[s.ref, r]
  some flag and some head.granted implies (some s: done | s.ref = head)
}

/* A grant tells what is latest, whatever is acknowledged yet. */
pred grantsHold {
  grantHasAll
  all r: Ref, w: r.granted, p: Put - acked | p.ref in earlier[r] implies
    p.ref in clean or upTo[p, value[w]] or some s: done | below[p, s] and upTo[s, w]
}

/* What was acknowledged when a get began is seen by it; or it will never have q answers. */
pred ackedIsSeen {
  all g: Get, w: g.least | no g.found implies
    (g in Stale => (quorum[sealed - heard[g], Old] or quorum[{ m: Old | sees[g, w, m] }, Old])
    else (quorum[w.acks, Old] or quorum[{ m: New | sees[g, w, m] }, New]))
  all g: Get, w: g.least | some g.found implies upTo[w, g.found]
}
pred sees[g: Get, w: Write, m: Member] {
  upTo[w, m.part] and (m in heard[g] implies upTo[w, m.(g.shown)])
}

pred inv {
  shape and membersKeep and marksHold and fencesHold and synchsFind and clear and grantsHold and
  ackedIsSeen
}

/* ---- the proof, for all traces ---- */

/* q = 2 of 3 in each epoch. One of the writes is `Start`. */
holds_at_first: check { right and init implies inv }
  for 3 but exactly 3 Old, exactly 3 New, 4 Op, 1 steps expect 0
/* All events in a small scope, and each alone in a larger one. */
keeps_all: check { right and inv and event implies after inv }
  for 2 but exactly 3 Old, exactly 3 New, 3 Write, 4 Op, 2 steps expect 0
keeps_send_deep: check { all p: Put | right and inv and send[p] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_store_deep: check { all p: Put | right and inv and store[p] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_ack_deep: check { all p: Put | right and inv and ack[p] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_askGet_deep: check { all g: Get | right and inv and askGet[g] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_decide_deep: check { all g: Get | right and inv and decide[g] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_writeBack_deep: check { all g: Get | right and inv and writeBack[g] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_return_deep: check { all g: Get | right and inv and return_[g] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_askFenced_deep: check { all s: Synch | right and inv and askFenced[s] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_conclude_deep: check { all s: Synch | right and inv and conclude[s] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_storeSynch_deep: check { all s: Synch | right and inv and storeSynch[s] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_grant_deep: check { all s: Synch | right and inv and grant[s] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_synchDone_deep: check { all s: Synch | right and inv and synchDone[s] implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_entry_deep: check {
  all r: Ref | right and inv and (entry[r] or handOver[r]) implies after inv
}
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
keeps_log_deep: check { right and inv and (putDone or release or stop or seal) implies after inv }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 2 steps expect 0
says_promises: check { right and inv implies promises }
  for 3 but exactly 3 Old, exactly 3 New, 5 Write, 6 Op, 1 steps expect 0

/* ---- every event can happen ---- */

/* A holder puts in the old epoch, goes on in the new one, and leaves; the next ref is granted by
 * its word. */
happens_goesOn: run {
  some s: Synch, g: Get, disj p, q: Put, r: Ref | right and init and
    s in Former and g not in Stale and p + q in ref.(s.ref) and g.of = s.ref and r != s.ref and
    (askFenced[s]; conclude[s]; storeSynch[s]; grant[s]; send[p]; store[p]; ack[p]; seal; stop;
      askGet[g]; decide[g]; writeBack[g]; return_[g]; send[q]; store[q]; ack[q]; release;
      handOver[r]; always nothing)
} for 2 but exactly 3 Old, exactly 3 New, exactly 2 Ref, exactly 4 Write, exactly 2 Put,
  exactly 1 Synch, exactly 1 Get, 20..20 steps expect 1

/* A synch and a read of the new epoch move the key, and grant. */
happens_synch: run {
  some p: Put, s: Synch, r: Ref | right and init and
    s not in Former and p.ref != s.ref and r not in s.ref + p.ref and
    (entry[p.ref]; send[p]; store[p]; seal; stop; release; askFenced[s]; conclude[s];
      storeSynch[s]; grant[s]; synchDone[s]; release; entry[r]; always (nothing and value[s] = p))
} for 2 but exactly 3 Old, exactly 3 New, exactly 3 Ref, exactly 3 Write, exactly 1 Put,
  exactly 1 Synch, 0 Get, 14..14 steps expect 1

/* A read of both stores grants what has not moved. */
happens_grantedThrough: run {
  some p: Put, r: Ref | right and init and p.ref != r and
    (entry[p.ref]; send[p]; store[p]; ack[p]; seal; stop; release; entry[r];
      always (nothing and r.granted = p))
} for 2 but exactly 3 Old, exactly 3 New, exactly 2 Ref, exactly 2 Write, exactly 1 Put,
  0 Synch, 0 Get, 9..9 steps expect 1

/* ---- each rule is needed: counter-examples ---- */

/* In each it is given who does what in which order; with which members and tags is not. */

/* S2. A synch of the old epoch is complete; then members of the new one take a put below it. */
needs_EpochFloor: check {
  all p: Put, s: Former | (without[EpochFloor] and init and
    (entry[p.ref]; send[p]; release; askFenced[s]; conclude[s]; storeSynch[s]; seal; stop; store[p];
      ack[p]; always nothing))
      implies always synchHasAll
} for 2 but exactly 3 Old, exactly 3 New, exactly 2 Ref, exactly 3 Write, exactly 1 Put,
  exactly 1 Synch, 0 Get, 11..11 steps expect 1

/* The same of a put beside which its holder has left; the flag still waits for it. */
needs_LeftStaysOut: check {
  all p: Put, s: Former | (without[LeftStaysOut] and init and
    (entry[p.ref]; send[p]; release; askFenced[s]; conclude[s]; storeSynch[s]; grant[s]; seal; stop;
      store[p]; ack[p]; always nothing))
      implies always synchHasAll
} for 2 but exactly 3 Old, exactly 3 New, exactly 2 Ref, exactly 3 Write, exactly 1 Put,
  exactly 1 Synch, 0 Get, 12..12 steps expect 1

/* S4. The new store alone is read for a grant, before the key has moved. */
needs_GrantsReadThrough: check {
  all p: Put, r: Ref | (without[GrantsReadThrough] and init and
    (entry[p.ref]; send[p]; store[p]; ack[p]; seal; stop; release; entry[r]; always nothing))
      implies always grantHasAll
} for 2 but exactly 3 Old, exactly 3 New, exactly 2 Ref, exactly 2 Write, exactly 1 Put,
  0 Synch, 0 Get, 9..9 steps expect 1

/* S3. A holder's get hears the new store alone. */
needs_GetsReadThrough: check {
  all p: Put, g: Get - Stale | (without[GetsReadThrough] and init and g.of = p.ref and
    (entry[p.ref]; send[p]; store[p]; ack[p]; seal; stop; askGet[g]; decide[g]; return_[g];
      always nothing))
      implies always getHasOwn
} for 2 but exactly 3 Old, exactly 3 New, exactly 1 Ref, exactly 2 Write, exactly 1 Put,
  0 Synch, exactly 1 Get, 10..10 steps expect 1

/* V4. A synch for a ref that has put stores its last put under a tag below its first one. */
needs_SynchAboveSource: check {
  all disj p, q: Put, s: Synch - Former, g: Get - Stale | (without[SynchAboveSource] and init and
    g.of = p.ref and p.ref = q.ref and s.ref = p.ref and
    (entry[p.ref]; send[p]; send[q]; store[q]; ack[q]; seal; stop; askFenced[s]; conclude[s];
      storeSynch[s]; store[p]; askGet[g]; decide[g]; writeBack[g]; return_[g]; always nothing))
      implies always getHasOwn
} for 2 but exactly 3 Old, exactly 3 New, exactly 1 Ref, exactly 4 Write, exactly 2 Put,
  exactly 1 Synch, exactly 1 Get, 16..16 steps expect 1

/* S5. A synch of the new epoch has a lower tag than one of the old, of which one member stores. */
needs_EpochInTags_deep: check {
  all p: Put, s: Former, t: Synch - Former, g: Get - Stale | (without[EpochInTags] and init and
    g.of = s.ref and t.ref = s.ref and
    (entry[p.ref]; send[p]; release; askFenced[s]; conclude[s]; storeSynch[s]; store[p]; seal; stop;
      askFenced[t]; conclude[t]; storeSynch[t]; grant[t]; askGet[g]; decide[g]; writeBack[g];
      return_[g]; always nothing))
      implies always getHasOwn
} for 2 but exactly 3 Old, exactly 3 New, exactly 2 Ref, exactly 4 Write, exactly 1 Put,
  exactly 2 Synch, exactly 1 Get, 18..18 steps expect 1

/* R2. A holder's get asks members of the old store, which have voted for the end of their log. */
needs_StopSeals: check {
  all p: Put, g: Stale | (without[StopSeals] and init and g.of = p.ref and
    (entry[p.ref]; stop; send[p]; store[p]; ack[p]; askGet[g]; decide[g]; return_[g];
      always nothing))
      implies always getHasOwn
} for 2 but exactly 3 Old, exactly 3 New, exactly 1 Ref, exactly 2 Write, exactly 1 Put,
  0 Synch, exactly 1 Get, 9..9 steps expect 1
