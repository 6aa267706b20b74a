/*
 * The end of a log: one segment's log of one epoch, and what the next epoch starts from.
 *
 * What is modelled. Three acceptors; ballots, of which the first leads without a phase 1; slots. A
 * proposer that leads fills what it heard of: where votes were reported, the entry of the highest
 * ballot; a no-op in the holes below; commands and `Stop` above all that, in order of slots. `Stop`
 * is an ordinary entry; what lies above the first chosen one has no effect. A member starts the
 * next epoch when every slot up to that one is chosen, from the effect of what lies below. A
 * command is acknowledged when it and all below it are chosen, and no `Stop` is among these.
 *
 * The network is the most general one: what was said once may be heard at any time, by any set of
 * acceptors, or never. Processes do nothing more, or are slow; acceptors' records are durable
 * before they answer.
 *
 * What is abstracted away, and why that is sound.
 * - An answer of phase 1 is not stored with the proposer: an acceptor that has promised does not
 *   vote below any more, so that what it would report never changes.
 * - `Begin`, and the birth ballots of commands, which decide what a primary may answer before
 *   anything is chosen (L5): the order of a log's entries does not depend on them.
 * - Truncation and snapshots: an acceptor that has dropped slots says so, and who is behind fetches
 *   them first. Late members: late.als. Leases: they only delay promises.
 * - That nothing is proposed above a `Stop` of one's own is kept; without it entries there would be
 *   void all the same.
 *
 * The proof: an invariant that holds at first and that every event keeps, in two states each.
 */
module log

open util/ordering[Ballot] as ballots
open util/ordering[Slot] as slots

/* The parameter: which rules are in force. */
enum Rule {
  NoopWhereNone,  // F13: a no-op only where none of the quorum reports anything
  HighestBallot,  // F13: else the entry of the highest ballot reported
  StartsAsChosen  // the next epoch starts from what is chosen, not from what a member has
}

one sig Protocol { rules: set Rule }

pred right { Protocol.rules = Rule }
pred without[r: Rule] { Protocol.rules = Rule - r }
pred on[r: Rule] { r in Protocol.rules }

abstract sig Entry {}
sig Command extends Entry {}
one sig Noop, Stop extends Entry {}

sig Slot {}

/* `promised`: acceptors that have promised it to vote for nothing lower. None is added once it
 * leads. */
sig Ballot {
  var proposed: Slot -> lone Entry,
  var promised: set Acceptor
}
var sig leads in Ballot {}

/* `votes`: at which ballots for which slots. `starts`: what the next epoch starts from here. */
sig Acceptor {
  var promise: one Ballot,
  var votes: Ballot -> Slot,
  var starts: Slot -> lone Entry
}
var sig started in Acceptor {}

/* What clients were told is done. */
one sig Clients { var told: Slot -> Command }

pred lower[a, b: Ballot] { ballots/lt[a, b] }
pred under[a, b: Slot] { slots/lt[a, b] }
/* Of three. */
pred quorum[m: set Acceptor] { lone Acceptor - m }

/* The ballots below `b` of which it was told a vote for the slot. Who leads takes the highest. */
fun reports[b: Ballot, s: Slot]: set Ballot {
  { c: Ballot | lower[c, b] and some a: b.promised | c -> s in a.votes }
}

fun chosenAt[s: Slot]: set Ballot { { b: Ballot | quorum[{ a: Acceptor | b -> s in a.votes }] } }
fun chosen: Slot -> Entry { { s: Slot, e: Entry | some b: chosenAt[s] | s -> e in b.proposed } }

/* All below a slot is chosen, and goes on. */
pred reached[s: Slot] { all t: Slot | under[t, s] implies some chosen[t] and Stop not in chosen[t] }

/* ---- in the beginning ---- */

pred init {
  no proposed and no promised and no votes and no starts and no started and no told
  promise = Acceptor -> ballots/first
  leads = ballots/first
}

/* ---- what stays ---- */

pred keepBallots { proposed' = proposed and promised' = promised and leads' = leads }
pred keepAcceptors { promise' = promise and votes' = votes }
pred keepStarts { starts' = starts and started' = started }
pred keepTold { told' = told }

/* ---- what can happen ---- */

/* Some acceptors promise. */
pred prepare[b: Ballot] {
  b not in leads
  let m = b.promised' - b.promised {
    some m
    all a: m | lower[a.promise, b]
    promised' = promised + b -> m
    promise' = promise ++ m -> b
  }
  proposed' = proposed and leads' = leads and votes' = votes
  keepStarts and keepTold
}

/* A proposer has a quorum's promises: it proposes what they report, and fills the holes. */
pred lead[b: Ballot] {
  b not in leads and quorum[b.promised]
  leads' = leads + b
  let all_ = { s: Slot | some reports[b, s] },
      known = { s: Slot | some t: all_ | s = t or under[s, t] } {
    proposed' - proposed in b -> Slot -> Entry and proposed in proposed'
    b.proposed'.Entry = known
    all s: known | let e = b.proposed'[s] {
      no reports[b, s] => e = Noop else {
        e in (on[HighestBallot] => ballots/max[reports[b, s]] else reports[b, s]).proposed[s]
          or e = Noop and not on[NoopWhereNone]
      }
    }
  }
  promised' = promised
  keepAcceptors and keepStarts and keepTold
}

/* It proposes a command, or the end, above everything else. */
pred propose[b: Ballot] {
  b in leads
  no b.proposed.Stop
  some s: Slot - b.proposed.Entry, e: Command + Stop {
    all t: Slot | under[t, s] implies t in b.proposed.Entry
    proposed' = proposed + b -> s -> e
  }
  promised' = promised and leads' = leads
  keepAcceptors and keepStarts and keepTold
}

/* Some acceptors vote. */
pred vote[b: Ballot, s: Slot] {
  some b.proposed[s]
  let m = { a: Acceptor | b -> s in a.votes' - a.votes } {
    some m
    no a: m | lower[b, a.promise]
    votes' = votes + m -> b -> s
    promise' = promise ++ m -> b
  }
  keepBallots and keepStarts and keepTold
}

/* A client is told. */
pred tell[s: Slot] {
  reached[s] and some chosen[s] & Command
  told' = told + Clients -> s -> (chosen[s] & Command)
  told' != told
  keepBallots and keepAcceptors and keepStarts
}

/* A member starts the next epoch. */
pred start[a: Acceptor] {
  a not in started
  some s: Slot | Stop in chosen[s] and {
    on[StartsAsChosen] => {
      reached[s]
      starts' = starts + { m: a, t: Slot, e: Entry | under[t, s] and e in chosen[t] }
    } else starts' = starts + { m: a, t: Slot, e: Entry |
      under[t, s] and e in ballots/max[a.votes.t].proposed[t] }
  }
  started' = started + a
  keepBallots and keepAcceptors and keepTold
}

pred nothing { keepBallots and keepAcceptors and keepStarts and keepTold }

pred event {
  (some b: Ballot | prepare[b] or lead[b] or propose[b])
  or (some b: Ballot, s: Slot | vote[b, s])
  or (some s: Slot | tell[s])
  or (some a: Acceptor | start[a])
}

/* ---- what is promised ---- */

/* One entry per slot. */
pred agreement { all s: Slot | lone chosen[s] }

/* All start from the same. */
pred sameStart { all a, b: started | a.starts = b.starts }

/* And from everything that a client was told. */
pred toldIsThere { all a: started | Clients.told in a.starts }

/* ---- the invariant ---- */

/* Nothing will be chosen for the slot at this ballot. */
pred blocked[c: Ballot, s: Slot] {
  not quorum[{ a: Acceptor | c -> s in a.votes or not lower[c, a.promise] }]
}

pred inv {
  ballots/first in leads and no ballots/first.promised
  all b: Ballot - leads | no b.proposed
  all b: leads - ballots/first | quorum[b.promised]
  all b: Ballot, a: b.promised | not lower[a.promise, b]
  all a: Acceptor, b: Ballot, s: a.votes[b] | some b.proposed[s] and not lower[a.promise, b]
  /* What is proposed is what may have been chosen below. */
  all b: Ballot, s: Slot, c: Ballot | some b.proposed[s] and lower[c, b] implies
    c.proposed[s] = b.proposed[s] or blocked[c, s]
  all b: leads, s: Slot | no b.proposed[s] implies no reports[b, s]
  /* Proposals of a ballot leave no holes. */
  all b: Ballot, s: b.proposed.Entry, t: Slot | under[t, s] implies some b.proposed[t]
  /* Who has started did so at the end. */
  all a: started | some s: Slot | Stop in chosen[s] and reached[s] and
    a.starts = { t: Slot, e: Entry | under[t, s] and e in chosen[t] }
  all a: Acceptor - started | no a.starts
  all s: Clients.told.Command | reached[s] and Clients.told[s] = chosen[s]
}

/* ---- the proof, for all traces ---- */

holds_at_first: check { right and init implies inv } for 4 but exactly 3 Acceptor, 1 steps expect 0
keeps_prepare: check { all b: Ballot | right and inv and prepare[b] implies after inv }
  for 4 but exactly 3 Acceptor, 3 Slot, 2 steps expect 0
keeps_lead: check { all b: Ballot | right and inv and lead[b] implies after inv }
  for 4 but exactly 3 Acceptor, 3 Slot, 2 steps expect 0
keeps_propose: check { all b: Ballot | right and inv and propose[b] implies after inv }
  for 4 but exactly 3 Acceptor, 3 Slot, 2 steps expect 0
keeps_vote: check { all b: Ballot, s: Slot | right and inv and vote[b, s] implies after inv }
  for 4 but exactly 3 Acceptor, 3 Slot, 2 steps expect 0
keeps_tell: check { all s: Slot | right and inv and tell[s] implies after inv }
  for 4 but exactly 3 Acceptor, 3 Slot, 2 steps expect 0
keeps_start: check { all a: Acceptor | right and inv and start[a] implies after inv }
  for 4 but exactly 3 Acceptor, 3 Slot, 2 steps expect 0
says_all: check { right and inv implies agreement and sameStart and toldIsThere }
  for 4 but exactly 3 Acceptor, 3 Slot, 1 steps expect 0

/* ---- every event can happen ---- */

/* A command is told of, its leader dies, the next one finds it, ends the log, and two start. */
happens_all: run {
  some disj b, c: Ballot, disj s, t: Slot, disj x, y: Acceptor | right and init and
    (propose[b]; vote[b, s]; tell[s]; prepare[c]; lead[c]; propose[c]; vote[c, s]; vote[c, t];
      start[x]; start[y]; always nothing)
} for 2 but exactly 3 Acceptor, 4 Entry, 11..11 steps expect 1

/* ---- each rule is needed: counter-examples ---- */

/* In each it is given who does what in which order; by which acceptors is not. */

/* F13. A no-op over what was accepted, and chosen. */
needs_NoopWhereNone: check {
  all disj b, c: Ballot, s: Slot | (without[NoopWhereNone] and init and
    (propose[b]; vote[b, s]; prepare[c]; lead[c]; vote[c, s]; always nothing))
      implies always agreement
} for 2 but exactly 3 Acceptor, 4 Entry, 6..6 steps expect 1

/* F13. Two ballots are reported, and the lower one's entry is taken. */
needs_HighestBallot: check {
  all disj b, c, d: Ballot, s: Slot | (without[HighestBallot] and init and
    (propose[b]; vote[b, s]; prepare[c]; lead[c]; propose[c]; vote[c, s]; prepare[d]; lead[d];
      vote[d, s]; always nothing))
      implies always agreement
} for 3 but exactly 3 Acceptor, 4 Entry, 1 Slot, 10..10 steps expect 1

/* The end was chosen before what lies below it. */
needs_StartsAsChosen: check {
  all b: Ballot, disj s, t: Slot, disj x, y: Acceptor | (without[StartsAsChosen] and init and
    (propose[b]; propose[b]; vote[b, t]; vote[b, s]; start[x]; start[y]; always nothing))
      implies always sameStart
} for 2 but exactly 3 Acceptor, 4 Entry, 7..7 steps expect 1
/* A client was told of it, all the same. */
needs_StartsAsChosen_told: check {
  all b: Ballot, disj s, t: Slot, x: Acceptor | (without[StartsAsChosen] and init and
    (propose[b]; propose[b]; vote[b, t]; vote[b, s]; tell[s]; start[x]; always nothing))
      implies always toldIsThere
} for 2 but exactly 3 Acceptor, 4 Entry, 7..7 steps expect 1
