/*
 * Traces of deletes, beside an earlier store (V10). One key of a section keyspace.
 *
 * What is modelled. The earlier store, the source, has a value of the key; one of its members has
 * an eventual value beside, which is older than the delete. In the present store, of three members,
 * a section deletes the key. Readers that take the source for open hear q members of the store, and
 * the source; the older value they carry to members of the store. A mover gives the eventual value
 * to them. What is sent may arrive at any later time, or never.
 *
 * In the group's log the source is closed, and later owes nothing any more. Each member of the
 * present store learns both at a time of its own. So it is with the segment's floor, which rises;
 * everything here lies under it, but for its lowest value.
 *
 * A member that judges a delete asks all members. When each has answered that it holds the delete
 * and nothing else, all are told to remove it, once their floor is above what any of them knew when
 * it answered. Then nothing is left in which the delete could be seen, and nobody may return, or
 * keep, what it has outlived.
 *
 * What is abstracted away, and why that is sound.
 * - Marks: a read that meets one asks no source, and carries nothing.
 * - Reads that ask no source: each has a ref in the key's queue, and a key in use is not judged.
 * - A reader that hears from a member that the source is closed begins anew, without it.
 * - Repair: a member that lacks the delete is sent it, as by the section's own store; when it was
 *   removed at some members and not at all, it may be given to them again, and removed again.
 * - How the source came to be closed, and who was harvested: sources.als. Here both come whenever.
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module burial

open util/ordering[Floor] as floors

/* The parameter: which rules are in force. */
enum Rule {
  SaidByAll,      // V10: every member has said that it knows of no source, open or owed
  ClosedRefuses,  // V6: who knows of no open source takes nothing that is carried
  GivenWhileOwed, // V8: a mover gives while the seat is owed, as far as it knows
  GiftNamesFloor, // V8: who knows a higher floor than the giver refuses what is under it
  FloorRises      // F8f: a trace goes when the floor is above what any member knew that answered
}

one sig Protocol { rules: set Rule }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

/* What a member may hold: the older value, the delete, the eventual value. */
enum Thing { Old, Delete, Eventual }
sig Floor {}

/* Members of the present store. `gifts`: the floors that it has named with what it has given. */
sig Member {
  var holds: set Thing,
  var floor: one Floor,
  var gifts: set Floor
}
fact { #Member = 3 }

/* Know that the source is closed; that it owes nothing either. */
var sig knowsClosed in Member {}
var sig knowsDone in Member {}
one sig Source {}
var sig closed in Source {}
var sig done in Source {}

/* The delete has ended: it was at q members. It was removed somewhere. */
one sig Key {}
var sig deleted in Key {}
var sig buried in Key {}

/* The judge: who has answered, up to which floor; and of what all have: orders to remove. */
var sig said in Member {}
var sig known in Floor {}
var sig orders in Floor {}

/* Takes the source for open. */
sig Reader {
  var heard: set Member,
  var seen: set Thing
}
/* Began after the delete had ended; returns the older value, and carries it. */
var sig after_ in Reader {}
var sig carries in Reader {}

pred upTo[a, b: Floor] { floors/lte[a, b] }
pred below[a, b: Floor] { floors/lt[a, b] }
pred quorum[m: set Member] { lone Member - m }
fun have[t: Thing]: set Member { holds.t }

pred init {
  no holds and no gifts and floor = Member -> floors/first
  no knowsClosed and no knowsDone and no closed and no done and no deleted and no buried
  no said and no known and no orders
  no heard and no seen and no after_ and no carries
}

/* ---- what stays ---- */

pred keepCells { holds' = holds }
pred keepFloors { floor' = floor }
pred keepGifts { gifts' = gifts }
pred keepSource {
  closed' = closed and done' = done and knowsClosed' = knowsClosed and knowsDone' = knowsDone
}
pred keepKey { deleted' = deleted and buried' = buried }
pred keepJudge { said' = said and known' = known and orders' = orders }
pred keepReaders { heard' = heard and seen' = seen and after_' = after_ and carries' = carries }

/* ---- what can happen ---- */

/* The delete reaches a member, by its section or by another member; but under a floor that is
 * higher than its ref nobody takes it any more. */
pred store[m: Member] {
  some orders implies m in have[Delete]
  holds' = holds - m -> Old + m -> Delete
  floor' = floor and buried' = buried
  deleted' = (quorum[have[Delete] + m] => Key else deleted)
  keepGifts and keepSource and keepJudge and keepReaders
}

/* What is agreed of the source, and who learns it. */
pred agree {
  no done and done' = closed and closed' = Source
  knowsClosed' = knowsClosed and knowsDone' = knowsDone
  keepCells and keepFloors and keepGifts and keepKey and keepJudge and keepReaders
}
pred learn[m: Member] {
  some closed
  knowsClosed' = knowsClosed + m
  knowsDone' = knowsDone or (some done and knowsDone' = knowsDone + m)
  closed' = closed and done' = done
  keepCells and keepFloors and keepGifts and keepKey and keepJudge and keepReaders
}

/* A member applies a higher floor. */
pred rise[m: Member] {
  some f: Floor | below[m.floor, f] and floor' = floor ++ m -> f
  keepCells and keepGifts and keepSource and keepKey and keepJudge and keepReaders
}

/* A reader asks a member. */
pred ask[r: Reader, m: Member] {
  r not in carries and m not in knowsClosed
  after_' = (no r.heard and some deleted => after_ + r else after_)
  heard' = heard + r -> m
  seen' = seen + r -> m.holds
  carries' = carries
  keepCells and keepFloors and keepGifts and keepSource and keepKey and keepJudge
}
/* It finds the older value in the source, and no delete in the store. */
pred decide[r: Reader] {
  r not in carries and quorum[r.heard] and Delete not in r.seen
  carries' = carries + r
  heard' = heard and seen' = seen and after_' = after_
  keepCells and keepFloors and keepGifts and keepSource and keepKey and keepJudge
}
/* What it carries comes to a member. */
pred carry[r: Reader, m: Member] {
  r in carries
  on[ClosedRefuses] implies m not in knowsClosed
  holds' = (Delete in m.holds => holds else holds + m -> Old)
  keepFloors and keepGifts and keepSource and keepKey and keepJudge and keepReaders
}

/* A mover gives the eventual value, and names its floor. */
pred give[m: Member] {
  on[GivenWhileOwed] implies m not in knowsDone
  gifts' = gifts + m -> m.floor
  keepCells and keepFloors and keepSource and keepKey and keepJudge and keepReaders
}
/* It comes to a member, which takes it also beneath a delete. */
pred take[m: Member, f: Floor] {
  f in Member.gifts
  on[GiftNamesFloor] implies upTo[m.floor, f]
  holds' = holds + m -> Eventual
  keepFloors and keepGifts and keepSource and keepKey and keepJudge and keepReaders
}
/* It goes again where q members hold the delete that hides it. */
pred settle[m: Member] {
  Delete in m.holds and quorum[have[Delete]]
  holds' = holds - m -> Eventual
  keepFloors and keepGifts and keepSource and keepKey and keepJudge and keepReaders
}

/* A member answers the judge, which is one of those that know of no source. */
pred answer[m: Member] {
  m.holds = Delete
  some knowsDone and (on[SaidByAll] implies m in knowsDone)
  said' = said + m
  known' = known + m.floor
  orders' = orders
  keepCells and keepFloors and keepGifts and keepSource and keepKey and keepReaders
}
/* All have answered: they are told to remove it. Or the judge begins anew. */
pred order {
  said = Member
  orders' = orders + floors/max[known]
  said' = said and known' = known
  keepCells and keepFloors and keepGifts and keepSource and keepKey and keepReaders
}
pred anew {
  no said' and no known' and orders' = orders
  keepCells and keepFloors and keepGifts and keepSource and keepKey and keepReaders
}
pred bury[m: Member] {
  some above: orders | m.holds = Delete and (on[FloorRises] implies below[above, m.floor])
  holds' = holds - m -> Thing
  buried' = Key and deleted' = deleted
  keepFloors and keepGifts and keepSource and keepJudge and keepReaders
}

pred nothing {
  keepCells and keepFloors and keepGifts and keepSource and keepKey and keepJudge and keepReaders
}

pred event {
  agree or order or anew
  or (some m: Member | store[m] or learn[m] or rise[m] or give[m] or settle[m] or answer[m])
  or (some m: Member | bury[m] or (some f: Floor | take[m, f]))
  or (some r: Reader | decide[r] or (some m: Member | ask[r, m] or carry[r, m]))
}

/* ---- what is promised ---- */

/* What began after the delete does not find what was before it. */
pred readsTheDelete { no carries & after_ }
/* Where a trace was removed nobody has what the delete has outlived, unless the delete hides it. */
pred staysDeleted {
  some buried implies all m: Member | some m.holds implies Delete in m.holds and Old not in m.holds
}

/* ---- the invariant ---- */

pred inv {
  readsTheDelete and staysDeleted
  done in closed and knowsDone in knowsClosed
  some knowsClosed implies some closed
  some knowsDone implies some done
  all m: Member, f: m.gifts | upTo[f, m.floor]
  all m: Member | Delete + Old not in m.holds
  no r: Reader & (after_ + carries) | no r.heard
  // Who has answered knows that there is no source, and gives nothing any more.
  said in knowsDone
  some said implies some known
  all m: said, f: m.gifts | upTo[f, floors/max[known]]
  said in have[Delete] or some orders
  all a: orders, f: Member.gifts | upTo[f, a]
  some orders implies knowsDone = Member and some deleted
  some buried implies some orders
  // A member lacks the delete because it never had it, or because it has removed it.
  some deleted implies quorum[have[Delete]] or some orders
  quorum[have[Delete]] implies some deleted
  all m: Member - have[Delete] | some orders implies
    no m.holds and some a: orders | below[a, m.floor]
  // A reader that begins after the delete hears of it.
  all r: after_ | some deleted and (Delete in r.seen or lone r.heard)
  all r: after_ | Delete in r.seen or some orders or Member - r.heard in have[Delete]
}

/* ---- the proof, for all traces ---- */

/* Three members, four floors, four readers. */
holds_at_first: check { right and init implies inv } for 4 but 1 steps expect 0
keeps_all: check { right and inv and event implies after inv } for 4 but 2 steps expect 0
says_all: check { right and inv implies readsTheDelete and staysDeleted }
  for 4 but 1 steps expect 0

/* ---- every event can happen ---- */

/* The older value and the eventual one come late: beneath the delete, or to nobody. */
happens_buried: run {
  some disj a, b, c: Member, r: Reader, f: Floor | right and init and
    (ask[r, a]; ask[r, b]; decide[r]; carry[r, a]; give[b]; store[a]; store[b]; store[c];
      take[c, f]; settle[c]; agree; agree; learn[a]; learn[b]; learn[c]; answer[a]; anew;
      answer[a]; answer[b]; answer[c]; order; rise[a]; rise[b]; rise[c]; bury[a]; bury[b]; bury[c];
      always (nothing and no holds and some carries and some gifts))
} for 2 but 3 Member, 1 Reader, 28..28 steps expect 1

/* ---- each rule is needed: counter-examples ---- */

/* V10. Who removes the trace knows that no source is left; another member takes what was read in
 * one before. */
needs_SaidByAll: check {
  all disj a, b, c: Member, r: Reader | (without[SaidByAll] and init and
    (ask[r, a]; ask[r, b]; decide[r]; store[a]; store[b]; store[c]; agree; agree; learn[a];
      answer[a]; answer[b]; answer[c]; order; rise[c]; bury[c]; carry[r, c]; always nothing))
      implies always staysDeleted
} for 2 but 3 Member, 1 Reader, 17..17 steps expect 1
/* V6. One that knows it, and has removed the trace, takes it. */
needs_ClosedRefuses: check {
  all disj a, b, c: Member, r: Reader | (without[ClosedRefuses] and init and
    (ask[r, a]; ask[r, b]; decide[r]; store[a]; store[b]; store[c]; agree; agree; learn[a];
      learn[b]; learn[c]; answer[a]; answer[b]; answer[c]; order; rise[c]; bury[c]; carry[r, c];
      always nothing))
      implies always staysDeleted
} for 2 but 3 Member, 1 Reader, 19..19 steps expect 1
/* V8. A mover goes on giving when it knows that nothing is owed: it names a floor that is new. */
needs_GivenWhileOwed: check {
  all disj a, b, c: Member, f: Floor | (without[GivenWhileOwed] and init and
    (store[a]; store[b]; store[c]; agree; agree; learn[a]; learn[b]; learn[c]; answer[a];
      answer[b]; answer[c]; order; rise[a]; rise[c]; bury[c]; give[a]; take[c, f]; always nothing))
      implies always staysDeleted
} for 2 but 3 Member, 0 Reader, 18..18 steps expect 1
/* V8. What was given before is taken after. */
needs_GiftNamesFloor: check {
  all disj a, b, c: Member, f: Floor | (without[GiftNamesFloor] and init and
    (give[a]; store[a]; store[b]; store[c]; agree; agree; learn[a]; learn[b]; learn[c]; answer[a];
      answer[b]; answer[c]; order; rise[c]; bury[c]; take[c, f]; always nothing))
      implies always staysDeleted
} for 2 but 3 Member, 0 Reader, 17..17 steps expect 1
/* F8f. The floor is the one that the giver has named. */
needs_FloorRises: check {
  all disj a, b, c: Member, f: Floor | (without[FloorRises] and init and
    (give[a]; store[a]; store[b]; store[c]; agree; agree; learn[a]; learn[b]; learn[c]; answer[a];
      answer[b]; answer[c]; order; bury[c]; take[c, f]; always nothing))
      implies always staysDeleted
} for 2 but 3 Member, 0 Reader, 16..16 steps expect 1
