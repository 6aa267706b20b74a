/*
 * Critical sections: the system invariant of Fermata's rules, by its conjuncts.
 *
 * The first group says how the parts of a state fit together, the second why the third holds. The
 * third are the promises, by the names that the rest of the project uses.
 */
module invariants

open events

/* ---- how the parts fit ---- */

/* Refs for which anything was ever begun; each was head then. */
fun ever: set Ref {
  granted.Value + began.ref + (floor.Write & Entry - ahead - forgotten).reader
    + entered + clean + dirty + ready
}

pred QueueFits {
  queued in used
  clean + dirty in past
  no clean & dirty
  standing in last[dirty]
  flag in dirty + clean
}

/* Only heads are granted, and a head that is removed is so cleanly or dirtily. */
pred HeadsOnly {
  ever in used
  all r: ever | no q: queued | earlier[q, r]
  ever & past in clean + dirty
}

pred ClientsFit {
  entered in granted.Value
  closed in used
  sayClean + sayDirty in closed
  no sayClean & sayDirty
  clean in sayClean
  sayClean in entered
}

pred PutsFit {
  issued.ref in entered
  acked in issued & succeeded
  latePut in issued
}

pred DataFits {
  succeeded + doomed in attempted
  no succeeded & doomed
  Start in succeeded
  no attempted & Eventual
  attempted & Put in issued
  attempted & Attempt in found.Write
}

pred AttemptsFit {
  found.Write in began
  clears.Ref in began
  found.Write = carries.Value
  all a: found.Write {
    a.found in attempted
    below[a.found, a]
    a.carries = value[a.found] or a in adopting and {
      a.carries in offered
      newerThan[a.carries, a.found]
    }
  }
  all a: clears.Ref | a.clears in dirty + clean and earlier[a.clears, a.ref]
}

/* Only the first primary adopts, under its own ballot, and grants by its last synch alone. */
pred AdoptionFits {
  adopting in began
  done in began & succeeded
  all a: adopting, b: began - adopting | a.ref = b.ref implies below[a, b]
  ready in granted.Value
  (done & adopting).ref in ready
  all r: ready | adopter[r] in done
  resumed in used
  no adopting.ref & resumed
  all e: First & floor.Write - forgotten | e in ahead or no adopting & ref.(e.reader)
}

/* Eventual values are of a time when every section up to their ref was over. */
pred OfferedFits {
  dropped in offered
  offered.ref in used
  all e: offered, q: queued | no e.ref or earlier[e.ref, q]
}

/* Every value has been given by somebody. */
pred ValuesKnown {
  Ref.granted + Attempt.carries + truth in issued + Start + offered
  all v: truth - Eventual | no v.ref or not earlier[latest, v.ref]
  some truth
  no entered implies truth = Start
  lone truth - (issued & ref.latest)
  all p: (issued & ref.latest) - truth | below[p, top] and truth in newer[p]
}

pred ReadsFit {
  Read.floor in succeeded
  ahead + forgotten in floor.Write
  no ahead & forgotten
  no ahead.reader & used
  some ahead implies no queued and no standing
  no answered & floor.Write
  answered + (floor.Write & Get) + shows.Value + lateGet in reader.entered
  shows.Value in answered + floor.Write
  result.Value in answered
}

/* ---- why ---- */

/* What a fenced read has not shown can never succeed. */
pred FenceHolds {
  all a: found.Write, p: attempted - doomed | below[p, a] implies upTo[p, a.found]
}

/* Of synchs of one ref, a later one carries what an earlier one carries that may yet grant. */
pred SynchsAgree {
  all x: attempted & Attempt - doomed, y: attempted & Attempt - adopting |
    x.ref = y.ref and below[x, y] and (x in adopting implies x = adopter[x.ref])
      implies x.carries = y.carries
  all x: attempted & Attempt - doomed, y: attempted |
    below[x, y] and not superseded[x.ref] and x.ref not in entered
      and (x in adopting implies x = adopter[x.ref]) and not (x.ref = y.ref and y in adopting)
      implies value[y] in x.carries + over[x.carries]
}

/* Values grow with tags: nothing that may be acknowledged or granted is hidden by an older value. (An
 * eventual value from after the section that adopts it stands no higher there than that section.) */
pred ValuesGrow {
  all x: attempted - doomed | value[attempted & upFrom[x] - x] in upFrom[value[x]] + upFrom[x]
}

/* Who leaves cleanly has its last put acknowledged, or at a quorum, and is about to hear it. */
pred CleanIsAcknowledged {
  all r: sayClean | highest[issued & ref.r] in succeeded
}

/* While the flag is clear, no section runs, and nobody adopts, every quorum read gives one value. */
pred DefinedWhenClear {
  cleared and no head & entered and (no adopting & ref.head or some done & ref.head)
    implies lone value[readable]
}

/* Once a ref is granted, no eventual value is adopted for it any more. */
pred AdoptionEnds {
  granted.Value in ready + done.ref
  all r: granted.Value, a: adopting & ref.r | upTo[a, top]
}

/* What is granted is what a quorum read gives, until its client enters; unless the ref is past, and
 * a later one is adopting something. */
pred GrantIsDefined {
  all r: granted.Value - entered, v: r.granted, w: readable | not superseded[r] implies {
    value[w] in v + over[v]
    noLater[r, w] implies value[w] = v
  }
}

/* Whoever was granted stands above all that may have something in flight. */
pred GrantOutranks {
  all r: granted.Value, d: dirty | earlier[d, r] implies earlier[d, top.ref]
}

/* Refs that lie before the section for which e reads. */
fun beforeRead[e: Read]: set Ref { e in ahead => used else { r: used | earlier[r, e.reader] } }

/* A read began above all that may have something in flight. */
pred ReadOutranks {
  all e: floor.Write - forgotten {
    all d: dirty & beforeRead[e] | earlier[d, e.floor.ref]
    all p: issued | p.ref in clean & beforeRead[e] implies upTo[p, e.floor]
    all r: (clean & beforeRead[e]) - ready | some b: done & ref.r - adopting | upTo[b, e.floor]
    all a: adopting | (a.ref in clean & beforeRead[e] or e not in First and a.ref = e.reader)
      implies upTo[a, e.floor]
    e not in First implies {
      e.reader in ready or some b: done & ref.(e.reader) - adopting | upTo[b, e.floor]
    }
  }
}

/* And it finds one value only, until its section begins. */
pred ReadIsStable {
  all e: Entry & floor.Write - forgotten, w: attempted |
    e.reader not in entered and not superseded[e.reader] and upTo[e.floor, w] implies {
      value[w] in value[e.floor] + over[value[e.floor]]
      noLater[e.reader, w] implies value[w] = value[e.floor]
    }
}

/* What may be read for a get is what it may return. */
pred GetIsStable {
  all g: Get & floor.Write | g.reader = latest implies {
    all w: attempted | upTo[g.floor, w] and (no w.ref or not earlier[g.reader, w.ref])
      implies value[w] in g.shows
    all p: issued & ref.(g.reader) | p in g.shows or below[p, g.floor]
    truth in g.shows
    all v: g.shows - truth | truth in newer[v]
  }
}

/* The tag that a clean leave states names the value for the next that is head, also after that has
 * been removed, until somebody enters. */
pred HandedIsDefined {
  all r: heads - entered - overtaken, v: handed[r], w: readable |
    unflagged[r] and no adopting & ref.r implies {
      value[w] in v + over[v]
      noLater[r, w] implies value[w] = v
    }
}

/* A put that was asked for too late is refused. */
pred LateIsRefused {
  all p: latePut | earlier[p.ref, top.ref] and (p in attempted implies p in doomed)
}

/* ---- the promises ---- */

/* Only the lockholder's operations succeed: none that is asked for after a later section has begun. */
pred Exclusivity {
  no latePut & acked
  no lateGet
}

/* A get of the lockholder returns the true value; and so does its grant, or it returns a newer
 * eventual value, which is then the true one. */
pred LatestState {
  all g: Get | g.result in g.shows
  all r: granted.Value & head - entered | r.granted in truth + over[truth]
}

/* Every quorum read that begins now returns the true value; unless a ref that has not entered is
 * adopting a newer eventual one. */
pred CriticalSection {
  all w: readable | value[w] in truth or earlier[latest, w.ref] and value[w] in over[truth]
}

/* Whoever is past, and may have a put in flight above the true tag, has left the flag set. */
pred SynchFlag { all r: dirty | cleared implies earlier[r, top.ref] }

/* No acknowledged put is lost, nor one that may yet be acknowledged, to any later section. */
pred AcknowledgedKept {
  all r: granted.Value, v: r.granted |
    Put & attempted & ref.(prior[r]) - doomed in downFrom[v]
}

/* An eventual value that was acknowledged is at some replica, or a newer one is, unless a section has
 * written after it. */
pred EventualKept {
  all e: offered | (some x: offered - dropped | upTo[e, x])
    or some p: value[attempted] & Put | below[e, p]
}

pred fits {
  QueueFits and HeadsOnly and ClientsFit and PutsFit and DataFits and AttemptsFit
  AdoptionFits and OfferedFits and ValuesKnown and ReadsFit
}

pred why {
  FenceHolds and SynchsAgree and ValuesGrow and CleanIsAcknowledged and DefinedWhenClear
  AdoptionEnds and GrantIsDefined and GrantOutranks and ReadOutranks and ReadIsStable and GetIsStable
  HandedIsDefined and LateIsRefused
}

pred promises {
  Exclusivity and LatestState and CriticalSection and SynchFlag and AcknowledgedKept and EventualKept
}

pred invariant { fits and why and promises }
