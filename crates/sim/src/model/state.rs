//! The model's state, and what its events do to it.
//!
//! This is no judge: that an event may happen, and that it does this, is for `formal/trace` to say,
//! which evaluates the model's own text over each pair of states. A fault here is refused there.
//! The sets have the names that they have in `formal/critical/state.als`.

use super::atoms::{Named, Purpose, ReadId, RefId, Sort, WriteId, is_synch};
use std::collections::{BTreeMap, BTreeSet};

/// An event of the model, with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A ref is given.
    Enqueue(RefId),
    /// A ref leaves without a flag.
    LeaveClean(RefId),
    /// A ref leaves by its client's word, which does not say that all is acknowledged.
    LeaveDirty(RefId),
    /// A ref is ended by force.
    Release(RefId),
    /// A section goes on as a new generation.
    Resume(RefId, RefId),
    /// A log does not take the enqueue for which this was read ahead.
    Decline(ReadId),
    /// The flag is cleared.
    SynchDone(WriteId),
    /// The put beside which a ref has left is at its quorum: it has left cleanly.
    Settle(RefId),
    /// The flag of a ref that has left so is cleared.
    PutDone(RefId),
    /// A value is read while its enqueue is being agreed.
    ReadAhead(ReadId),
    /// A read for a grant begins.
    EntryBegin(ReadId),
    /// It has found this.
    EntryEnd(ReadId, WriteId),
    /// The last holder's value is granted.
    HandOver(RefId),
    /// A synch begins.
    AttemptBegin(WriteId),
    /// A synch begins that may adopt.
    AdoptBegin(WriteId),
    /// Its quorum has answered with this write; it carries that value.
    AttemptRead(WriteId, WriteId, WriteId),
    /// It sends its write.
    AttemptWrite(WriteId),
    /// It grants.
    AttemptGrant(WriteId),
    /// An eventual put is taken.
    Offer(WriteId),
    /// The last replica that has an eventual value drops it.
    Drop(WriteId),
    /// A quorum has stored a write.
    Succeed(WriteId),
    /// A client is told its grant.
    Enter(RefId, WriteId),
    /// A put is asked for.
    Issue(WriteId),
    /// It is sent to the data store.
    Put(WriteId),
    /// Its client hears that it has succeeded.
    Ack(WriteId),
    /// A get is asked for.
    GetBegin(ReadId),
    /// It has found this.
    GetEnd(ReadId, WriteId),
    /// A client says that it is done, and that all is acknowledged.
    SayLeaveClean(RefId),
    /// A client says that it is done.
    SayLeaveDirty(RefId),
    /// A client does nothing more.
    Close(RefId),
}

impl Event {
    /// The names of all events, as the model calls them.
    pub const NAMES: [&str; 30] = [
        "enqueue",
        "leaveClean",
        "leaveDirty",
        "release",
        "resume",
        "synchDone",
        "readAhead",
        "entryBegin",
        "entryEnd",
        "handOver",
        "attemptBegin",
        "adoptBegin",
        "attemptRead",
        "attemptWrite",
        "attemptGrant",
        "offer",
        "succeed",
        "enter",
        "issue",
        "put",
        "ack",
        "getBegin",
        "getEnd",
        "sayLeaveClean",
        "sayLeaveDirty",
        "close",
        "decline",
        "drop",
        "settle",
        "putDone",
    ];

    /// Its name in the model, and the names of its arguments.
    pub fn words(self) -> Vec<String> {
        use Event::*;
        let (name, arguments) = match self {
            Enqueue(r) => (0, vec![r.name()]),
            LeaveClean(r) => (1, vec![r.name()]),
            LeaveDirty(r) => (2, vec![r.name()]),
            Release(r) => (3, vec![r.name()]),
            Resume(r, s) => (4, vec![r.name(), s.name()]),
            SynchDone(a) => (5, vec![a.name()]),
            ReadAhead(e) => (6, vec![e.name()]),
            EntryBegin(e) => (7, vec![e.name()]),
            EntryEnd(e, w) => (8, vec![e.name(), w.name()]),
            HandOver(r) => (9, vec![r.name()]),
            AttemptBegin(a) => (10, vec![a.name()]),
            AdoptBegin(a) => (11, vec![a.name()]),
            AttemptRead(a, f, v) => (12, vec![a.name(), f.name(), v.name()]),
            AttemptWrite(a) => (13, vec![a.name()]),
            AttemptGrant(a) => (14, vec![a.name()]),
            Offer(e) => (15, vec![e.name()]),
            Succeed(w) => (16, vec![w.name()]),
            Enter(r, v) => (17, vec![r.name(), v.name()]),
            Issue(p) => (18, vec![p.name()]),
            Put(p) => (19, vec![p.name()]),
            Ack(p) => (20, vec![p.name()]),
            GetBegin(g) => (21, vec![g.name()]),
            GetEnd(g, w) => (22, vec![g.name(), w.name()]),
            SayLeaveClean(r) => (23, vec![r.name()]),
            SayLeaveDirty(r) => (24, vec![r.name()]),
            Close(r) => (25, vec![r.name()]),
            Decline(e) => (26, vec![e.name()]),
            Drop(e) => (27, vec![e.name()]),
            Settle(r) => (28, vec![r.name()]),
            PutDone(r) => (29, vec![r.name()]),
        };
        let mut words = vec![Event::NAMES[name].to_owned()];
        words.extend(arguments);
        words
    }
}

/// The state of the model: what is `var` in it and is not of the published algorithms alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the names are the model's: formal/critical/state.als"
)]
pub struct State {
    pub used: BTreeSet<RefId>,
    pub queued: BTreeSet<RefId>,
    pub clean: BTreeSet<RefId>,
    pub dirty: BTreeSet<RefId>,
    pub flag: BTreeSet<RefId>,
    pub entered: BTreeSet<RefId>,
    pub closed: BTreeSet<RefId>,
    pub say_clean: BTreeSet<RefId>,
    pub say_dirty: BTreeSet<RefId>,
    pub issued: BTreeSet<WriteId>,
    pub acked: BTreeSet<WriteId>,
    pub attempted: BTreeSet<WriteId>,
    pub succeeded: BTreeSet<WriteId>,
    pub doomed: BTreeSet<WriteId>,
    pub offered: BTreeSet<WriteId>,
    pub dropped: BTreeSet<WriteId>,
    pub adopting: BTreeSet<WriteId>,
    pub done: BTreeSet<WriteId>,
    pub ready: BTreeSet<RefId>,
    pub resumed: BTreeSet<RefId>,
    pub began: BTreeSet<WriteId>,
    pub ahead: BTreeSet<ReadId>,
    pub forgotten: BTreeSet<ReadId>,
    pub answered: BTreeSet<ReadId>,
    pub truth: BTreeSet<WriteId>,
    pub late_put: BTreeSet<WriteId>,
    pub late_get: BTreeSet<ReadId>,
    pub granted: BTreeSet<(RefId, WriteId)>,
    pub found: BTreeMap<WriteId, WriteId>,
    pub carries: BTreeMap<WriteId, WriteId>,
    pub clears: BTreeMap<WriteId, RefId>,
    pub floor: BTreeMap<ReadId, WriteId>,
    pub shows: BTreeSet<(ReadId, WriteId)>,
    pub result: BTreeMap<ReadId, WriteId>,
}

/// Differences of relations, in words.
#[derive(Default)]
struct Changes(Vec<String>);

impl Changes {
    fn set<T: Ord + Named>(&mut self, name: &str, before: &BTreeSet<T>, after: &BTreeSet<T>) {
        if before != after {
            let gone = before
                .difference(after)
                .map(|t| format!("-{name} {}", t.named()));
            self.0.extend(gone);
            let new = after
                .difference(before)
                .map(|t| format!("+{name} {}", t.named()));
            self.0.extend(new);
        }
    }

    fn map<K, V>(&mut self, name: &str, before: &BTreeMap<K, V>, after: &BTreeMap<K, V>)
    where
        K: Ord + Copy + Named,
        V: Ord + Copy + Named,
    {
        if before != after {
            let pairs = |map: &BTreeMap<K, V>| map.iter().map(|(k, v)| (*k, *v)).collect();
            self.set::<(K, V)>(name, &pairs(before), &pairs(after));
        }
    }
}

impl State {
    /// The model's `init`.
    pub fn init() -> State {
        let start = BTreeSet::from([WriteId::START]);
        State {
            attempted: start.clone(),
            succeeded: start.clone(),
            truth: start,
            ..State::default()
        }
    }

    /// What is different in `after`: `+used r1`, `-floor get7:r1 Start`.
    pub fn changes(&self, after: &State) -> Vec<String> {
        let mut out = Changes::default();
        out.set("used", &self.used, &after.used);
        out.set("queued", &self.queued, &after.queued);
        out.set("clean", &self.clean, &after.clean);
        out.set("dirty", &self.dirty, &after.dirty);
        out.set("flag", &self.flag, &after.flag);
        out.set("entered", &self.entered, &after.entered);
        out.set("closed", &self.closed, &after.closed);
        out.set("sayClean", &self.say_clean, &after.say_clean);
        out.set("sayDirty", &self.say_dirty, &after.say_dirty);
        out.set("issued", &self.issued, &after.issued);
        out.set("acked", &self.acked, &after.acked);
        out.set("attempted", &self.attempted, &after.attempted);
        out.set("succeeded", &self.succeeded, &after.succeeded);
        out.set("doomed", &self.doomed, &after.doomed);
        out.set("offered", &self.offered, &after.offered);
        out.set("dropped", &self.dropped, &after.dropped);
        out.set("adopting", &self.adopting, &after.adopting);
        out.set("done", &self.done, &after.done);
        out.set("ready", &self.ready, &after.ready);
        out.set("resumed", &self.resumed, &after.resumed);
        out.set("began", &self.began, &after.began);
        out.set("ahead", &self.ahead, &after.ahead);
        out.set("forgotten", &self.forgotten, &after.forgotten);
        out.set("answered", &self.answered, &after.answered);
        out.set("truth", &self.truth, &after.truth);
        out.set("latePut", &self.late_put, &after.late_put);
        out.set("lateGet", &self.late_get, &after.late_get);
        out.set("granted", &self.granted, &after.granted);
        out.set("shows", &self.shows, &after.shows);
        out.map("found", &self.found, &after.found);
        out.map("carries", &self.carries, &after.carries);
        out.map("clears", &self.clears, &after.clears);
        out.map("floor", &self.floor, &after.floor);
        out.map("result", &self.result, &after.result);
        out.0
    }

    /// The model's `head`.
    pub fn head(&self) -> Option<RefId> {
        self.queued.first().copied()
    }

    /// The model's `latest`.
    pub fn latest(&self) -> Option<RefId> {
        self.entered.last().copied()
    }

    /// The model's `superseded`.
    pub fn superseded(&self, r: RefId) -> bool {
        self.latest().is_some_and(|latest| latest > r)
    }

    /// The model's `top`.
    pub fn top(&self) -> WriteId {
        *self.succeeded.last().expect("the old value has succeeded")
    }

    /// The model's `value`, of one write.
    pub fn value(&self, w: WriteId) -> Option<WriteId> {
        match w.sort() {
            Sort::Attempt => self.carries.get(&w).copied(),
            Sort::Start | Sort::Put | Sort::Eventual => Some(w),
        }
    }

    /// Whether a get that is asked for now is not refused: the guards of `getBegin`.
    pub fn may_get(&self, r: RefId) -> bool {
        let later = |w: &WriteId| w.of > Some(r);
        let inside = self.entered.contains(&r) && !self.closed.contains(&r);
        inside && !self.succeeded.iter().any(later) && !self.found.keys().any(later)
    }

    /// The last put of a ref.
    pub fn last_put(&self, r: RefId) -> Option<WriteId> {
        self.issued.iter().copied().rfind(|p| p.of == Some(r))
    }

    /// The model's `handed`.
    pub fn handed(&self, r: RefId) -> Option<WriteId> {
        let before = |of: &BTreeSet<RefId>| of.range(..r).next_back().copied();
        let by = before(&self.clean).filter(|h| before(&self.dirty) < Some(*h));
        by.and_then(|h| self.last_put(h))
    }

    fn newer(&self, v: WriteId) -> BTreeSet<WriteId> {
        let of_latest = self.issued.iter().filter(|q| q.of == self.latest());
        let after = |q: &&WriteId| v < **q || v.sort() == Sort::Eventual;
        of_latest.filter(after).copied().collect()
    }

    fn fenced_above(&self, w: WriteId) -> bool {
        self.found.keys().any(|b| *b != w && *b > w)
    }

    fn truth_is(&mut self, v: WriteId) {
        let mut may = self.newer(v);
        may.insert(v);
        self.truth.retain(|t| may.contains(t));
    }

    fn cancel_ahead(&mut self) {
        self.forgotten.append(&mut self.ahead);
    }

    fn removed(&mut self, r: RefId) {
        if self.head() == Some(r) {
            self.dirty.insert(r);
            self.flag = BTreeSet::from([r]);
        }
        self.queued.remove(&r);
        self.cancel_ahead();
    }

    /// Nobody is queued, and no flag stands: the model's `standing`.
    fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.flag.is_subset(&self.clean)
    }

    /// An event happens.
    pub fn happens(&mut self, event: Event) {
        match event {
            Event::Enqueue(_)
            | Event::LeaveClean(_)
            | Event::LeaveDirty(_)
            | Event::Release(_)
            | Event::Resume(..)
            | Event::SynchDone(_)
            | Event::Settle(_)
            | Event::PutDone(_) => self.in_log(event),
            Event::ReadAhead(_)
            | Event::Decline(_)
            | Event::EntryBegin(_)
            | Event::EntryEnd(..)
            | Event::HandOver(_)
            | Event::AttemptBegin(_)
            | Event::AdoptBegin(_)
            | Event::AttemptRead(..)
            | Event::AttemptWrite(_)
            | Event::AttemptGrant(_) => self.at_primary(event),
            Event::Offer(_)
            | Event::Drop(_)
            | Event::Succeed(_)
            | Event::Enter(..)
            | Event::Issue(_)
            | Event::Put(_)
            | Event::Ack(_)
            | Event::GetBegin(_)
            | Event::GetEnd(..)
            | Event::SayLeaveClean(_)
            | Event::SayLeaveDirty(_)
            | Event::Close(_) => self.at_client(event),
        }
    }

    fn in_log(&mut self, event: Event) {
        match event {
            Event::Enqueue(r) => {
                let idle = self.is_idle();
                let ahead = std::mem::take(&mut self.ahead);
                let kept = |e: &ReadId| idle && e.reader == r;
                self.forgotten
                    .extend(ahead.into_iter().filter(|e| !kept(e)));
                self.used.insert(r);
                self.queued.insert(r);
            }
            Event::LeaveClean(r) => {
                self.queued.remove(&r);
                self.clean.insert(r);
                self.cancel_ahead();
            }
            Event::LeaveDirty(r) | Event::Release(r) => self.removed(r),
            Event::Resume(r, s) => {
                if self.head() == Some(r) {
                    self.resumed.insert(s);
                }
                self.removed(r);
                self.used.insert(s);
                self.queued.insert(s);
            }
            Event::SynchDone(_) => {
                self.flag.clear();
                self.cancel_ahead();
            }
            Event::Settle(r) => {
                self.dirty.remove(&r);
                self.clean.insert(r);
                self.say_dirty.remove(&r);
                self.say_clean.insert(r);
            }
            Event::PutDone(_) => self.flag.clear(),
            _ => unreachable!("not of the log"),
        }
    }

    fn at_primary(&mut self, event: Event) {
        match event {
            Event::ReadAhead(e) => {
                let late = self.used.contains(&e.reader);
                let idle = self.is_idle();
                self.floor.insert(e, self.top());
                match late || !idle {
                    true => self.forgotten.insert(e),
                    false => self.ahead.insert(e),
                };
            }
            Event::Decline(e) => {
                self.ahead.remove(&e);
                self.forgotten.insert(e);
            }
            Event::EntryBegin(e) => {
                self.floor.insert(e, self.top());
            }
            Event::EntryEnd(e, w) => {
                self.floor.remove(&e);
                // Nobody waits for a read that is forgotten.
                if !self.forgotten.remove(&e) {
                    self.granted.extend(self.value(w).map(|v| (e.reader, v)));
                    if e.purpose == Purpose::First {
                        self.ready.insert(e.reader);
                    }
                }
            }
            Event::HandOver(r) => {
                self.granted.extend(self.handed(r).map(|v| (r, v)));
                self.ready.insert(r);
            }
            Event::AttemptBegin(a) => self.begins(a),
            Event::AdoptBegin(a) => {
                self.begins(a);
                self.adopting.insert(a);
                let own = |e: &&ReadId| e.purpose == Purpose::First && Some(e.reader) == a.of;
                self.forgotten.extend(self.floor.keys().filter(own));
            }
            Event::AttemptRead(a, f, v) => {
                self.found.insert(a, f);
                self.carries.insert(a, v);
                let between = self.attempted.difference(&self.succeeded);
                let between = between.filter(|x| f < **x && **x < a).copied();
                self.doomed.extend(between.collect::<Vec<_>>());
            }
            Event::AttemptWrite(a) => {
                self.attempted.insert(a);
                if self.fenced_above(a) || self.succeeded.iter().any(|s| a < *s) {
                    self.doomed.insert(a);
                }
            }
            Event::AttemptGrant(a) => {
                let carried = self.carries.get(&a).copied();
                self.granted.extend(a.of.zip(carried));
                self.done.insert(a);
                if self.adopting.contains(&a) {
                    self.ready.extend(a.of);
                }
            }
            _ => unreachable!("not of a primary"),
        }
    }

    fn begins(&mut self, a: WriteId) {
        debug_assert!(is_synch(a.tag));
        self.began.insert(a);
        // To a deposed primary its ref is still the head, and the flag is that before it.
        let before = |d: &&RefId| Some(**d) < a.of;
        let seen = match self.head() == a.of {
            true => self.flag.first(),
            false => self.dirty.iter().rfind(before),
        };
        self.clears.extend(seen.map(|flag| (a, *flag)));
    }

    fn at_client(&mut self, event: Event) {
        match event {
            Event::Offer(e) => {
                self.offered.insert(e);
            }
            Event::Drop(e) => {
                self.dropped.insert(e);
            }
            Event::Succeed(w) => {
                self.succeeded.insert(w);
            }
            Event::Enter(r, v) => {
                if !self.superseded(r) {
                    self.truth = BTreeSet::from([v]);
                }
                self.entered.insert(r);
            }
            Event::Issue(p) => self.issues(p),
            Event::Put(p) => {
                self.attempted.insert(p);
                if self.fenced_above(p) || self.succeeded.iter().any(|s| s.of > p.of) {
                    self.doomed.insert(p);
                }
            }
            Event::Ack(p) => {
                if p.of == self.latest() {
                    self.truth_is(p);
                }
                self.acked.insert(p);
            }
            Event::GetBegin(g) => {
                self.floor.insert(g, self.top());
                self.shows.extend(self.truth.iter().map(|v| (g, *v)));
                if self.superseded(g.reader) {
                    self.late_get.insert(g);
                }
            }
            Event::GetEnd(g, w) => {
                self.floor.remove(&g);
                self.answered.insert(g);
                if let Some(v) = self.value(w).filter(|_| Some(g.reader) == self.latest()) {
                    self.result.insert(g, v);
                    self.truth_is(v);
                }
            }
            Event::SayLeaveClean(r) => {
                self.say_clean.insert(r);
                self.closed.insert(r);
            }
            Event::SayLeaveDirty(r) => {
                self.say_dirty.insert(r);
                self.closed.insert(r);
            }
            Event::Close(r) => {
                self.closed.insert(r);
            }
            _ => unreachable!("not of a client"),
        }
    }

    fn issues(&mut self, p: WriteId) {
        let r = p.of.expect("a put is of a ref");
        if self.superseded(r) {
            self.late_put.insert(p);
        } else {
            self.truth.insert(p);
            let open = self.floor.keys().copied();
            let gets = |g: &ReadId| g.purpose == Purpose::Get && g.reader == r;
            let open: Vec<ReadId> = open.filter(gets).collect();
            self.shows.extend(open.into_iter().map(|g| (g, p)));
        }
        self.issued.insert(p);
    }
}
