/*
 * Late members: those that were away while a log ended, perhaps more than once (G17), and those
 * that have a seat in the log that follows and had none before, or the other way round.
 *
 * What is modelled. Each epoch has three members, of five or six nodes. A node keeps one log: that
 * of some epoch, or none. Commands are chosen in a log, and its end, by a quorum of its members
 * that have it. A member that knows the end and has a seat in the next log creates it from its own
 * state. One that has no seat there keeps the ended log for others, and gives them the next one's
 * initial state. Whoever has a seat in a log may be given it, with the state that it began from, by
 * whoever has that. A node without a seat drops its log when an entry of a later one is chosen in
 * which it has no seat, and notes the epoch of that: it creates no log up to it.
 *
 * The network is the most general one: what was given once may come at any later time.
 *
 * What is abstracted away, and why that is sound.
 * - What happens inside a log: that there is one entry per slot, one end, and one state to start
 *   from, is proved in log.als. No member leaves a log before its end is chosen, so that its votes
 *   are where a quorum looks for them; and none comes back to one that it has left (`oneMemory`).
 * - A snapshot of a later slot, and its parts: what follows is fetched like anything else; the
 *   member begins when the last part has come.
 * - Members that are away, or whose messages are: nothing happens there.
 * - Who the next members are is agreed (the group's log): each epoch has its view from the first.
 * - Which disks are lost: any set that takes no more than one of each view that is decided. That
 *   they are lost is no event: what the others can do without them is asked at every moment.
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module late

open util/ordering[Epoch] as epochs

/* The parameter: which rules are in force. */
enum Rule {
  KeptUntilWhole,  // a log is dropped for a later one when that one's state is here, not before
  BeginsWithState, // a late member begins with the state that it is given, not with nothing
  KeptUntilChosen, // R4: who has no seat drops its log when an entry of a later one is chosen,
  SeatIsKept,      // R4: and only for one in which it has no seat
  NotesTheDrop     // R5: it notes that epoch, and creates no log up to it
}

one sig Protocol { rules: set Rule }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

sig Command {}

/* `done`: chosen in that epoch's log. `start`: what that log begins with, once anybody knows. */
sig Epoch {
  view: set Member,
  var done: set Command,
  var start: set Command
}
fact views { all e: Epoch | #e.view = 3 }

/* Whose end is chosen; whose log somebody has created, or can give. */
var sig ended in Epoch {}
var sig born in Epoch {}

/* `base`: what its log began with. `noted`: it creates no log up to that one. `had`: its logs. */
sig Member {
  var log: lone Epoch,
  var base: set Command,
  var noted: lone Epoch,
  var had: set Epoch
}

/* Whose disks are lost for ever, some day. */
sig Lost in Member {}

pred earlier[a, b: Epoch] { epochs/lt[a, b] }
pred upTo[a, b: Epoch] { epochs/lte[a, b] }
pred quorum[m: set Member, e: Epoch] { lone e.view - m }
fun has[e: Epoch]: set Member { log.e }
/* An entry of it is chosen. */
fun begun: set Epoch { ended + done.Command }
/* Its members are agreed. */
fun decided: set Epoch { epochs/first + epochs/next[ended] }

pred init {
  no done and no ended and no base and no noted and no start
  born = epochs/first
  log = epochs/first.view -> epochs/first and had = log
}

/* ---- what can happen ---- */

pred keepLogs { log' = log and base' = base and noted' = noted and had' = had }
pred keepBirths { born' = born and start' = start }

/* A command is chosen. */
pred choose[e: Epoch] {
  e not in ended and quorum[has[e], e]
  some c: Command - Epoch.done | done' = done + e -> c
  ended' = ended
  keepLogs and keepBirths
}

/* The end is. */
pred end_[e: Epoch] {
  e not in ended and quorum[has[e], e]
  ended' = ended + e and done' = done
  keepLogs and keepBirths
}

/* The state in which its log has ended. */
fun state[m: Member]: set Command { m.base + m.log.done }

/* A log begins with this, for whomever it is given to from now on. */
pred beginsWith[e: Epoch, s: set Command] {
  born' = born + e
  start' = start ++ e -> s
  all d: Epoch - e | d.start' = d.start
  e.start' = s
}

/* A member that knows everything up to the end creates the next log, in which it has a seat. */
pred succeed[m: Member] {
  m.log in ended
  some e: epochs/next[m.log] {
    m in e.view
    creates[m, e, state[m]]
    beginsWith[e, state[m]]
  }
  done' = done and ended' = ended
}

/* One that has no seat there can give it. */
pred close[m: Member] {
  m.log in ended
  some e: epochs/next[m.log] | m not in e.view and beginsWith[e, state[m]]
  done' = done and ended' = ended
  keepLogs
}

/* A log, in the place of what the node has. */
pred creates[m: Member, e: Epoch, s: set Command] {
  log' = log ++ m -> e
  base' = base - m -> Command + m -> s
  had' = had + m -> e
  noted' = noted
}

/* A member is given a log, as a whole, by whoever has it or can give it, or had and could. */
pred give[e: Epoch, m: Member] {
  e in born and m in e.view
  some m.log implies earlier[m.log, e]
  some m.noted implies earlier[m.noted, e]
  creates[m, e, on[BeginsWithState] => e.start else none]
  done' = done and ended' = ended
  keepBirths
}

/* A member hears of a later log. It asks for that, which changes nothing; without the rule it drops
 * its own. */
pred hear[m: Member] {
  not on[KeptUntilWhole]
  some e: born | some m.log and earlier[m.log, e] and drops[m, epochs/prev[e]]
}

/* A node without a seat is told that its log may go. */
pred retire[m: Member] {
  some e: born {
    some m.log and earlier[m.log, e]
    on[KeptUntilChosen] implies e in begun
    on[SeatIsKept] implies m not in e.view
    drops[m, e]
  }
}

pred drops[m: Member, e: Epoch] {
  log' = log - m -> Epoch and base' = base - m -> Command
  noted' = (on[NotesTheDrop] => noted ++ m -> e else noted)
  had' = had and done' = done and ended' = ended
  keepBirths
}

pred nothing { done' = done and ended' = ended and keepLogs and keepBirths }

pred event {
  (some e: Epoch | choose[e] or end_[e])
  or (some m: Member | succeed[m] or close[m] or hear[m] or retire[m])
  or (some e: Epoch, m: Member | give[e, m])
}

/* ---- what is promised ---- */

fun earlierDone[e: Epoch]: set Command { epochs/prevs[e].done }

/* Whoever has a log begins it with everything that was chosen in earlier ones. */
pred sameState { all m: Member | some m.log implies m.base = earlierDone[m.log] }

/* Whatever is lost, if it takes no more than one of each view: there is a log, none earlier than
 * one with a chosen entry, that a quorum of its members has, or never had, nor a later one, so that
 * they may be given it by one that has it. */
pred goesOn {
  (all e: decided | lone Lost & e.view) implies
    some e: Epoch {
      all b: begun | upTo[b, e]
      let alive = e.view - Lost, holders = has[e] & alive |
        quorum[holders, e] or some holders and quorum[holders + { m: alive | mayHave[m, e] }, e]
    }
}
pred mayHave[m: Member, e: Epoch] { all d: m.log + m.noted + m.had | earlier[d, e] }

/* A node that has left a log never begins that one again, or an earlier one. */
pred oneMemory { all m: Member, d: m.had | some m.log implies upTo[d, m.log] }
pred neverAgain {
  oneMemory
  all m: Member | m.log' != m.log implies no m.log' & m.had
}

/* ---- the invariant ---- */

pred inv {
  epochs/first in born
  all e: born | epochs/prevs[e] in ended
  begun + Member.had + Member.log in born
  all disj a, b: Epoch | no a.done & b.done
  all e: born - epochs/first | e.start = earlierDone[e]
  no epochs/first.start
  sameState
  all m: Member | no m.log implies no m.base
  all m: Member | m.log in m.had and (all e: m.had | m in e.view)
  all m: Member | m.noted in begun and (some m.noted implies m not in m.noted.view)
  all m: Member | some m.log and some m.noted implies earlier[m.noted, m.log]
  all m: Member, d: m.had | some f: m.log + m.noted | upTo[d, f]
  epochs/first.view = had.(epochs/first)
  all e: begun | quorum[{ m: e.view | some f: m.log + m.noted | upTo[e, f] }, e]
}

/* ---- the proof, for all traces ---- */

/* Views of three. All events with five nodes and three epochs, each alone with seven and five. */
holds_at_first: check { right and init implies inv }
  for 5 but 7 Member, 1 steps expect 0
keeps_all: check { right and inv and event implies after inv }
  for 3 but 5 Member, 2 steps expect 0
keeps_choose_deep: check { all e: Epoch | right and inv and choose[e] implies after inv }
  for 5 but 7 Member, 2 steps expect 0
keeps_end_deep: check { all e: Epoch | right and inv and end_[e] implies after inv }
  for 5 but 7 Member, 2 steps expect 0
keeps_succeed_deep: check { all m: Member | right and inv and succeed[m] implies after inv }
  for 5 but 7 Member, 2 steps expect 0
keeps_close_deep: check { all m: Member | right and inv and close[m] implies after inv }
  for 5 but 7 Member, 2 steps expect 0
keeps_hear_deep: check { all m: Member | right and inv and hear[m] implies after inv }
  for 5 but 7 Member, 2 steps expect 0
keeps_retire_deep: check { all m: Member | right and inv and retire[m] implies after inv }
  for 5 but 7 Member, 2 steps expect 0
keeps_give_deep: check {
  all e: Epoch, m: Member | right and inv and give[e, m] implies after inv
} for 5 but 7 Member, 2 steps expect 0
says_all: check { right and inv implies sameState and oneMemory and goesOn }
  for 3 but 5 Member, 4 Epoch, 1 steps expect 0
says_all_deep: check { right and inv implies sameState and oneMemory and goesOn }
  for 5 but 7 Member, 1 steps expect 0
says_neverAgain: check { right and inv and event implies neverAgain }
  for 3 but 5 Member, 2 steps expect 0

/* ---- every event can happen ---- */

/* The same members in all epochs: one misses two ends, and is given the third log. */
happens_late: run {
  some a, b, c: Epoch, disj x, y, z: Member | right and init and
    (choose[a]; end_[a]; succeed[x]; succeed[y]; choose[b]; end_[b]; succeed[x]; give[c, z];
      choose[c]; always nothing)
} for 3 but exactly 3 Member, 10..10 steps expect 1
/* Other members in each epoch: two that leave give the next log, are told that theirs may go, and
 * one of them gets a seat again. */
happens_other: run {
  some a, b, c: Epoch, disj v, w, x, y, z: Member | right and init and
    a.view = v + w + x and b.view = x + y + z and c.view = v + y + z and
    (choose[a]; end_[a]; close[v]; give[b, y]; give[b, z]; choose[b]; retire[v]; retire[w];
      end_[b]; succeed[y]; give[c, v]; choose[c]; always nothing)
} for 3 but exactly 5 Member, 13..13 steps expect 1

/* ---- each rule is needed: counter-examples ---- */

/* G17. One member has the later log, one has dropped the old one upon hearing of it, and the third
 * knows of nothing: with the first, both logs are lost. */
needs_KeptUntilWhole: check {
  all e: Epoch, disj x, y: Member | (without[KeptUntilWhole] and init and
    (end_[e]; succeed[x]; hear[y]; always nothing))
      implies always goesOn
} for 2 but exactly 3 Member, 4..4 steps expect 1

/* G17. A late member begins with nothing. */
needs_BeginsWithState: check {
  all e, f: Epoch, disj x, y: Member | (without[BeginsWithState] and init and
    (choose[e]; end_[e]; succeed[x]; give[f, y]; always nothing))
      implies always sameState
} for 2 but exactly 3 Member, 5..5 steps expect 1

/* R4. All former members drop their log upon the word of one that has the next. */
needs_KeptUntilChosen: check {
  all e, f: Epoch, disj x, y, z, n: Member | (without[KeptUntilChosen] and init and
    no e.view & f.view and
    (end_[e]; close[x]; give[f, n]; retire[x]; retire[y]; retire[z]; always nothing))
      implies always goesOn
} for 2 but exactly 6 Member, 7..7 steps expect 1

/* R4. One that has a seat in the later log is told to drop its own, and may not be given it. */
needs_SeatIsKept: check {
  all e, f: Epoch, disj x, y, z: Member | (without[SeatIsKept] and init and
    (end_[e]; succeed[x]; succeed[y]; choose[f]; retire[z]; always nothing))
      implies always goesOn
} for 2 but exactly 3 Member, 6..6 steps expect 1

/* R5. What was given while it had a seat comes when it has none any more. */
needs_NotesTheDrop: check {
  all d, e, f: Epoch, disj x, y, n: Member | (without[NotesTheDrop] and init and
    (end_[d]; succeed[x]; succeed[y]; end_[e]; succeed[y]; give[f, n]; choose[f]; retire[x];
      give[e, x]; always nothing))
      implies always neverAgain
} for 3 but exactly 4 Member, 10..10 steps expect 1
