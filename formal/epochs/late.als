/*
 * Late members: one that was away while its log ended, perhaps more than once (G17).
 *
 * What is modelled. Three members, each with one log: that of some epoch. Commands are chosen in a
 * log, and its end, by a quorum of members that have it. A member that knows the end creates the
 * next log from its own state. One that was away hears of a later log, and is given it by a member
 * that has it, with the state that it began from.
 *
 * What is abstracted away, and why that is sound.
 * - What happens inside a log: that there is one entry per slot, one end, and one state to start
 *   from, is proved in log.als. No member leaves a log before its end is chosen, so that its votes
 *   are where a quorum looks for them.
 * - A snapshot of a later slot, and its parts: what follows is fetched like anything else; the
 *   member begins when the last part has come.
 * - Members that are away, or whose messages are: nothing happens there.
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module late

open util/ordering[Epoch] as epochs

/* The parameter: which rules are in force. */
enum Rule {
  KeptUntilWhole, // the old log is dropped when the later one's state is here, not before
  BeginsWithState // a late member begins with the state that it is given, not with nothing
}

one sig Protocol { rules: set Rule }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

sig Command {}

/* `done`: chosen in that epoch's log. */
sig Epoch { var done: set Command }
/* Whose end is chosen. */
var sig ended in Epoch {}

/* `base`: what its log began with. */
sig Member { var log: one Epoch, var base: set Command }
/* Has dropped its log for a later one, of which it has nothing yet. */
var sig bare in Member {}

pred earlier[a, b: Epoch] { epochs/lt[a, b] }
/* Of three. */
pred quorum[m: set Member] { lone Member - m }
fun has[e: Epoch]: set Member { { m: Member - bare | m.log = e } }

pred init {
  no done and no ended and no bare and no base
  log = Member -> epochs/first
}

/* ---- what can happen ---- */

/* A command is chosen. */
pred choose[e: Epoch] {
  e not in ended and quorum[has[e]]
  some c: Command - Epoch.done | done' = done + e -> c
  ended' = ended and log' = log and base' = base and bare' = bare
}

/* The end is. */
pred end_[e: Epoch] {
  e not in ended and quorum[has[e]]
  ended' = ended + e
  done' = done and log' = log and base' = base and bare' = bare
}

/* A member that knows everything up to the end creates the next log. */
pred succeed[m: Member] {
  m not in bare and m.log in ended
  some e: epochs/next[m.log] {
    log' = log ++ m -> e
    base' = base + m -> m.log.done
  }
  done' = done and ended' = ended and bare' = bare
}

/* A member hears of a later log. It asks for that, which changes nothing; without the rule it drops
 * its own. */
pred hear[m: Member] {
  not on[KeptUntilWhole]
  m not in bare
  some p: Member - bare | earlier[m.log, p.log] and log' = log ++ m -> p.log
  bare' = bare + m and base' = base - m -> Command
  done' = done and ended' = ended
}

/* It is given a later log, as a whole. */
pred give[p, m: Member] {
  p not in bare
  earlier[m.log, p.log] or m in bare and m.log = p.log
  log' = log ++ m -> p.log
  base' = base - m -> Command + (on[BeginsWithState] => m -> p.base else none -> none)
  bare' = bare - m
  done' = done and ended' = ended
}

pred nothing { done' = done and ended' = ended and log' = log and base' = base and bare' = bare }

pred event {
  (some e: Epoch | choose[e] or end_[e])
  or (some m: Member | succeed[m] or hear[m])
  or (some p, m: Member | give[p, m])
}

/* ---- what is promised ---- */

fun upTo[e: Epoch]: set Command { epochs/prevs[e].done }

/* Whoever has a log begins it with everything that was chosen in earlier ones. */
pred sameState { all m: Member - bare | m.base = upTo[m.log] }

/* Whichever member is lost for ever, the others go on: one has a log with everything that was ever
 * chosen, and the other has the same log, or never had it nor a later one, so that it may be given
 * it. */
pred goesOn {
  all x: Member | some y: Member - x - bare {
    all e: ended + done.Command | not earlier[y.log, e]
    all z: Member - x - y | not earlier[y.log, z.log]
  }
}

/* ---- the invariant ---- */

pred inv {
  no bare
  sameState
  all m: Member | epochs/prevs[m.log] in ended
  all e: ended + done.Command | quorum[{ m: Member | not earlier[m.log, e] }]
  all disj a, b: Epoch | no a.done & b.done
}

/* ---- the proof, for all traces ---- */

holds_at_first: check { right and init implies inv } for 5 but exactly 3 Member, 1 steps expect 0
keeps_choose: check { all e: Epoch | right and inv and choose[e] implies after inv }
  for 5 but exactly 3 Member, 2 steps expect 0
keeps_end: check { all e: Epoch | right and inv and end_[e] implies after inv }
  for 5 but exactly 3 Member, 2 steps expect 0
keeps_succeed: check { all m: Member | right and inv and succeed[m] implies after inv }
  for 5 but exactly 3 Member, 2 steps expect 0
keeps_hear: check { all m: Member | right and inv and hear[m] implies after inv }
  for 5 but exactly 3 Member, 2 steps expect 0
keeps_give: check { all p, m: Member | right and inv and give[p, m] implies after inv }
  for 5 but exactly 3 Member, 2 steps expect 0
says_all: check { right and inv implies sameState and goesOn }
  for 5 but exactly 3 Member, 1 steps expect 0

/* ---- every event can happen ---- */

/* A member misses two ends, and is given the third log. */
happens_all: run {
  some a, b, c: Epoch, disj x, y, z: Member | right and init and
    (choose[a]; end_[a]; succeed[x]; succeed[y]; choose[b]; end_[b]; succeed[x]; give[x, z];
      choose[c]; always nothing)
} for 3 but exactly 3 Member, 10..10 steps expect 1

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
  all e: Epoch, disj x, y: Member | (without[BeginsWithState] and init and
    (choose[e]; end_[e]; succeed[x]; give[x, y]; always nothing))
      implies always sameState
} for 2 but exactly 3 Member, 5..5 steps expect 1
