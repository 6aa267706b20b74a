//! Facts to events: the heart of the mapping, and the lock store's part of it.
//!
//! Every kind of fact, command, message and request is matched without a wildcard where it is
//! interpreted: a new kind does not compile before somebody has said which event it is, or that it
//! is none.

use super::atoms::{Named, ReadId, RefId, Sort, Values, WriteId, key_name};
use super::foresee::{Foreseen, PhaseId};
use super::observe::{AppliedNow, Fact, Observer, Replica};
use super::primary::Primaries;
use super::state::{Event, State};
use crate::checkers::places::Places;
use fermata_protocol::base::{
    Epoch, KeyId, LockRef, SegmentId, SessionId, StoragePolicy, Tag, View,
};
use fermata_protocol::command::{Body, LockCommand, SegmentCommand};
use fermata_protocol::lock::Outcome;
use fermata_protocol::request::Mode;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Steps of one trace, at most: a longer one is judged as far.
const STEPS_MAX: usize = 3_000;

/// Why a key's trace ends before the run does.
pub const READERS: &str = "several readers of one batch are at work (F19, G9)";
/// The same.
pub const ELSEWHERE: &str = "a ref that is head here, and waits for another key, leaves";
/// The same.
pub const CODED: &str = "the keyspace keeps coded values";
/// The same.
pub const DELETED: &str = "the keyspace was deleted (G59)";
/// The same.
pub const LONG: &str = "the trace is as long as may be";

/// What came of one key of one run.
#[derive(Clone, Debug, Default)]
pub struct Traced {
    /// Its trace, for `formal/trace`.
    pub text: String,
    /// Events in it.
    pub steps: usize,
    /// Why it ends early, and how many facts of the key come after.
    pub left_out: Option<(&'static str, usize)>,
    /// Single facts that are no events although the model has such events, by why.
    pub aside: BTreeMap<&'static str, usize>,
    /// What the model's state and the run's disagree on, or what cannot be mapped.
    pub wrong: Vec<String>,
}

/// A fact that is no event.
pub const LATE_GET: &str = "a get is answered to a client that has left";
/// The same.
pub const LATE_SYNCH: &str = "a synch is done whose flag is not set any more";
/// The same.
pub const LATE_PUT: &str = "a put is done whose flag is not set any more";

/// Maps the facts of one key.
pub struct Mapper<'a> {
    pub(super) key: &'a KeyId,
    segment: SegmentId,
    pub(super) foreseen: Foreseen,
    pub(super) state: State,
    pub(super) values: Values,
    pub(super) primaries: Primaries,
    /// Replicas that hold a write, or a later put of its section.
    pub(super) covered: BTreeMap<WriteId, BTreeSet<Replica>>,
    /// What each replica has, durably.
    pub(super) durable: BTreeMap<Replica, Vec<Tag>>,
    /// The last delete of which every trace is removed somewhere.
    buried: WriteId,
    /// Eventual values by their tags.
    pub(super) eventuals: BTreeMap<fermata_protocol::base::EventualTag, WriteId>,
    /// Replicas that have each of them.
    pub(super) copies: BTreeMap<WriteId, BTreeSet<Replica>>,
    /// Gets that were asked for, by session and request; false: refused from the first.
    pub(super) gets: BTreeMap<(SessionId, u64), (ReadId, bool)>,
    /// The put of each ref that leaves with it.
    pub(super) last_puts: BTreeMap<RefId, WriteId>,
    /// Who has entered.
    pub(super) sessions: BTreeMap<RefId, SessionId>,
    /// The members of each store that there is, or was.
    stores: BTreeMap<Epoch, &'a View>,
    /// The position that has set the flag.
    flag: Option<u64>,
    /// Who has left beside a put that was under way, and the put.
    parting: Option<(RefId, WriteId)>,
    modes: BTreeMap<LockRef, Mode>,
    now: u64,
    steps: Vec<String>,
    refs: BTreeSet<RefId>,
    writes: BTreeSet<WriteId>,
    reads: BTreeSet<ReadId>,
    out: Traced,
}

/// The trace of one key.
///
/// # Panics
/// Where the run is not over.
pub fn trace(name: &str, key: &KeyId, observer: &Observer) -> Traced {
    let segment = observer.keys[key];
    let places = observer.places.as_ref().expect("the run is over");
    let catalogue = &observer.catalogue;
    let coded = catalogue.storage(key) != StoragePolicy::Replicated;
    let unknown = [(coded, CODED), (catalogue.is_deleted(key), DELETED)];
    if let Some((_, why)) = unknown.into_iter().find(|(so, _)| *so) {
        let facts = observer.facts.iter();
        let facts = facts.filter(|(_, fact)| is_about(fact, key)).count();
        return Traced {
            left_out: Some((why, facts)),
            ..Traced::default()
        };
    }
    let foreseen = Foreseen::of(observer, key, segment);
    let mut mapper = Mapper::new(key, segment, foreseen, places);
    let mut facts = observer.facts.iter();
    for (now, fact) in facts.by_ref() {
        mapper.now = *now;
        mapper.fact(fact);
        if mapper.steps.len() >= STEPS_MAX {
            mapper.leave_out(LONG);
        }
        if mapper.out.left_out.is_some() || !mapper.out.wrong.is_empty() {
            break;
        }
    }
    let rest = facts.filter(|(_, fact)| is_about(fact, key)).count();
    if let Some((_, facts)) = &mut mapper.out.left_out {
        *facts = rest;
    }
    mapper.finish(name)
}

/// The key of a fact that is of one key alone.
fn key_of(fact: &Fact) -> Option<&KeyId> {
    match fact {
        Fact::Asks { key, .. }
        | Fact::Has { key, .. }
        | Fact::Buries { key, .. }
        | Fact::Deletes { key, .. }
        | Fact::HasDurably { key, .. }
        | Fact::Took { key, .. } => Some(key),
        Fact::Grants { latest, .. } => Some(&latest.key),
        Fact::Ends { what, .. } => what.key(),
        Fact::Applied(_)
        | Fact::Enters { .. }
        | Fact::Leads { .. }
        | Fact::Submitted { .. }
        | Fact::Declined { .. }
        | Fact::Hears { .. }
        | Fact::Requests { .. }
        | Fact::Dies(_) => None,
    }
}

/// Whether a fact concerns the key.
fn is_about(fact: &Fact, key: &KeyId) -> bool {
    match fact {
        Fact::Applied(now) => now.applied.touched.contains(key),
        Fact::Enters { held, .. } => held.iter().any(|h| h.key == *key),
        _ => key_of(fact) == Some(key),
    }
}

impl<'a> Mapper<'a> {
    fn new(key: &'a KeyId, segment: SegmentId, foreseen: Foreseen, places: &'a Places) -> Self {
        Mapper {
            key,
            segment,
            foreseen,
            state: State::init(),
            values: Values::default(),
            primaries: Primaries::default(),
            covered: BTreeMap::new(),
            durable: BTreeMap::new(),
            buried: WriteId::START,
            eventuals: BTreeMap::new(),
            copies: BTreeMap::new(),
            gets: BTreeMap::new(),
            last_puts: BTreeMap::new(),
            sessions: BTreeMap::new(),
            stores: places.stores(segment).collect(),
            flag: None,
            parting: None,
            modes: BTreeMap::new(),
            now: 0,
            steps: Vec::new(),
            refs: BTreeSet::new(),
            writes: BTreeSet::new(),
            reads: BTreeSet::new(),
            out: Traced::default(),
        }
    }

    fn fact(&mut self, fact: &Fact) {
        if key_of(fact).is_some_and(|of| of != self.key) {
            return;
        }
        match fact {
            Fact::Applied(now) => self.applied(now),
            Fact::Asks {
                from,
                call,
                store,
                ask,
                ..
            } => self.asks((*from, *call), *store, ask),
            Fact::Hears {
                at,
                call,
                from,
                answer,
            } => self.primaries.hears((*at, *call), *from, answer),
            Fact::HasDurably { node, tags, .. } => self.has_durably(*node, tags),
            Fact::Has {
                node,
                eventual,
                wrote,
                ..
            } => self.has_eventual(*node, *eventual, *wrote),
            Fact::Declined {
                at,
                segment,
                command,
            } if *segment == self.segment => self.declined(*at, *command),
            Fact::Buries { node, tag, .. } => {
                let write = WriteId::of_tag(*tag);
                self.buried = self.buried.max(write);
                self.has_eventual(*node, None, false);
            }
            Fact::Deletes { node, .. } => {
                self.durable.remove(node);
                self.has_eventual(*node, None, false);
            }
            Fact::Took {
                node, tag, digest, ..
            } => self.took(*node, *tag, *digest),
            Fact::Grants { from, to, latest } => self.grants(*from, *to, latest),
            Fact::Requests {
                session,
                number,
                operation,
            } => self.requests((*session, *number), operation),
            Fact::Enters {
                session,
                held,
                values,
            } => self.enters(*session, held, values),
            Fact::Ends {
                session,
                what,
                held,
                outcome,
                read,
            } => self.ends(*session, what, held, outcome, *read),
            Fact::Dies(session) => self.dies(*session),
            // Looked at ahead.
            Fact::Leads { .. } | Fact::Submitted { .. } | Fact::Declined { .. } => {}
        }
    }

    /// An event of the model happens.
    pub(super) fn step(&mut self, event: Event) {
        if let Event::Issue(put) | Event::Put(put) | Event::Ack(put) = event
            && let Some(of) = put.of
            && self.is_twin(put)
        {
            // The model has no clients that share a ref.
            return self.wrong(format!(
                "two clients number their puts of {} alike",
                of.name()
            ));
        }
        let mut after = self.state.clone();
        after.happens(event);
        self.step_to(event, after);
    }

    fn step_to(&mut self, event: Event, after: State) {
        let before = std::mem::replace(&mut self.state, after);
        let mut line = format!("step {}", event.words().join(" "));
        for change in before.changes(&self.state) {
            line.push_str(" ; ");
            line.push_str(&change);
        }
        let (s, us) = (self.now / 1_000_000, self.now % 1_000_000);
        // Writing into a String cannot fail.
        let _ = write!(line, " # {s}.{us:06}");
        self.steps.push(line);
        self.register(event);
    }

    /// Whether a put has the ref and number of another one.
    fn is_twin(&self, put: WriteId) -> bool {
        let same = |w: &&WriteId| w.of == put.of && w.tag.sequence == put.tag.sequence;
        self.writes
            .iter()
            .filter(same)
            .any(|w| *w != put && w.eventual.is_none())
    }

    fn register(&mut self, event: Event) {
        match event {
            Event::Enqueue(r)
            | Event::LeaveClean(r)
            | Event::LeaveDirty(r)
            | Event::Release(r)
            | Event::HandOver(r)
            | Event::SayLeaveClean(r)
            | Event::SayLeaveDirty(r)
            | Event::Settle(r)
            | Event::PutDone(r)
            | Event::Close(r) => self.refs.extend([r]),
            Event::Resume(r, s) => self.refs.extend([r, s]),
            Event::SynchDone(w)
            | Event::AttemptBegin(w)
            | Event::AdoptBegin(w)
            | Event::AttemptWrite(w)
            | Event::AttemptGrant(w)
            | Event::Offer(w)
            | Event::Drop(w)
            | Event::Succeed(w)
            | Event::Issue(w)
            | Event::Put(w)
            | Event::Ack(w) => self.writes.extend([w]),
            Event::AttemptRead(a, f, v) => self.writes.extend([a, f, v]),
            Event::ReadAhead(e) | Event::Decline(e) | Event::EntryBegin(e) | Event::GetBegin(e) => {
                self.reads.extend([e]);
            }
            Event::EntryEnd(e, w) | Event::GetEnd(e, w) => {
                self.reads.extend([e]);
                self.writes.extend([w]);
            }
            Event::Enter(r, v) => {
                self.refs.extend([r]);
                self.writes.extend([v]);
            }
        }
    }

    /// The model's state and the run's disagree.
    pub(super) fn wrong(&mut self, what: String) {
        let (s, us) = (self.now / 1_000_000, self.now % 1_000_000);
        let at = self.steps.len();
        let what = format!("at {s}.{us:06}, after step {at}: {what}");
        self.out.wrong.push(what);
    }

    /// One fact is none of the model's events.
    pub(super) fn aside(&mut self, why: &'static str) {
        *self.out.aside.entry(why).or_default() += 1;
    }

    /// The rest of the run is not in the model.
    pub(super) fn leave_out(&mut self, why: &'static str) {
        self.out.left_out = self.out.left_out.or(Some((why, 0)));
    }

    /// Whether a ref only reads.
    pub(super) fn is_shared(&self, of: RefId) -> bool {
        self.modes.get(&of.lock_ref) == Some(&Mode::Shared)
    }

    /// Whether a ref waits in a batch of readers behind its first.
    pub(super) fn is_behind(&self, of: RefId) -> bool {
        self.is_shared(of) && self.state.queued.contains(&of) && self.state.head() != Some(of)
    }

    /// The write that a read has found. Where nothing is found, it is what was there before every
    /// trace of it was removed, which is nothing, too.
    pub(super) fn found(&self, tag: Tag) -> WriteId {
        match tag == Tag::ZERO {
            true => self.buried,
            false => WriteId::of_tag(tag),
        }
    }

    /// Whether these replicas are a quorum of one store: those of two are never added up (V1).
    pub(super) fn are_quorum(&self, replicas: &BTreeSet<Replica>) -> bool {
        self.stores.iter().any(|(store, view)| {
            let members = view
                .nodes()
                .filter(|node| replicas.contains(&(*node, *store)));
            members.count() >= view.majority()
        })
    }

    // --- the lock store
    // ---------------------------------------------------------------------------

    fn applied(&mut self, now: &AppliedNow) {
        if now.applied.repeated || !now.applied.touched.contains(self.key) {
            return;
        }
        match &now.command.body {
            Body::Lock(body) => self.lock_command(body, now),
            Body::Segment(
                SegmentCommand::Leases(_)
                | SegmentCommand::LeasesTaken
                | SegmentCommand::Floor(_)
                | SegmentCommand::Limit(_)
                | SegmentCommand::Used(_),
            )
            | Body::Group(_)
            | Body::Ledger(_) => {}
        }
    }

    fn lock_command(&mut self, body: &LockCommand, now: &AppliedNow) {
        match body {
            LockCommand::Enqueue { mode, .. } => {
                if let Outcome::Enqueued { lock_ref } = now.applied.outcome {
                    let of = RefId {
                        lock_ref,
                        generation: 0,
                    };
                    self.modes.insert(lock_ref, *mode);
                    self.log_step(Event::Enqueue(of), now);
                    self.primaries.enqueued(of);
                }
            }
            LockCommand::Leave {
                clean,
                put,
                waiting_only,
                ..
            } => {
                let stated = clean.iter().find(|(key, _)| key == self.key);
                let stated = stated.map(|(_, tag)| *tag);
                if let Some(of) = self.removed(now) {
                    match (stated, waiting_only) {
                        (Some(tag), _) => self.leaves_clean(of, tag, now),
                        (None, false) => self.leaves_dirty(of, now),
                        (None, true) => self.log_step(Event::Release(of), now),
                    }
                    let named = put.as_ref().filter(|(key, _)| key == self.key);
                    let parting = named.map(|(_, tag)| (of, WriteId::of_tag(*tag)));
                    self.parting = parting.or(self.parting);
                    self.settles();
                }
            }
            LockCommand::Release { .. } => {
                if let Some(of) = self.removed(now) {
                    self.log_step(Event::Release(of), now);
                }
            }
            LockCommand::SynchDone { key, flag } => {
                let clears = self.flag == Some(*flag) || now.queues[key].flag != self.flag;
                match key == self.key && clears {
                    true => self.synch_done(now),
                    false => self.aside(LATE_SYNCH),
                }
            }
            LockCommand::PutDone { key, .. } => {
                let of = self.state.flag.first().copied();
                let clears = now.queues[key].flag != self.flag;
                match of.filter(|_| key == self.key && clears) {
                    Some(of) => self.log_step(Event::PutDone(of), now),
                    None => self.aside(LATE_PUT),
                }
            }
            LockCommand::Resume { lock_ref, .. } => {
                if let Outcome::Resumed { generation } = now.applied.outcome {
                    self.resumed(*lock_ref, generation, now);
                }
            }
        }
    }

    /// The ref of this key that a command has removed, if the model can say how.
    fn removed(&mut self, now: &AppliedNow) -> Option<RefId> {
        let (lock_ref, known) = now.applied.removed.as_ref()?;
        let of = RefId {
            lock_ref: *lock_ref,
            generation: known.generation,
        };
        // It was never granted anything, and sets no flag.
        let elsewhere = known.mode == Mode::Exclusive && !now.held;
        if elsewhere && known.keys.len() > 1 && self.state.head() == Some(of) {
            self.leave_out(ELSEWHERE);
            return None;
        }
        Some(of)
    }

    fn resumed(&mut self, lock_ref: LockRef, generation: u32, now: &AppliedNow) {
        let [before, after] = [generation - 1, generation].map(|generation| RefId {
            lock_ref,
            generation,
        });
        if self.is_behind(before) {
            return self.leave_out(READERS);
        }
        // It was never granted anything, and sets no flag.
        let flags = now.queues[self.key].flag == Some(now.applied.position);
        let keys = &now.queues[self.key].refs;
        let several = keys
            .iter()
            .any(|(r, known)| *r == lock_ref && known.keys.len() > 1);
        if several && !flags && self.state.head() == Some(before) {
            return self.leave_out(ELSEWHERE);
        }
        self.log_step(Event::Resume(before, after), now);
    }

    fn leaves_clean(&mut self, of: RefId, tag: Option<Tag>, now: &AppliedNow) {
        if !self.state.entered.contains(&of) {
            self.enters_unseen(of);
        }
        let last = tag.map(WriteId::of_tag);
        if !self.state.say_clean.contains(&of) {
            if let Some(put) = last {
                self.acknowledged(put);
            }
            self.step(Event::SayLeaveClean(of));
        }
        self.log_step(Event::LeaveClean(of), now);
        let known = self.state.last_put(of);
        if known.is_some() && known != last {
            let (named, known) = (last.map(|w| w.named()), known.map(|w| w.named()));
            self.wrong(format!(
                "the leave of {} names {named:?}, not {known:?}",
                of.name()
            ));
        }
    }

    fn leaves_dirty(&mut self, of: RefId, now: &AppliedNow) {
        // One coordinator may give up, as its caller has gone, what another one is granted and acts
        // in, for a request that was sent to both: that is no word of the client's.
        let acts = |tag: &Tag| WriteId::of_tag(*tag).of == Some(of);
        let goes_on = !self.state.entered.contains(&of) && self.foreseen.sent.iter().any(acts);
        if !self.state.closed.contains(&of) && !goes_on {
            self.step(Event::SayLeaveDirty(of));
        }
        match self.state.say_dirty.contains(&of) {
            true => self.log_step(Event::LeaveDirty(of), now),
            // Somebody else's word: nothing is assumed about why a ref is ended by force.
            false => self.log_step(Event::Release(of), now),
        }
    }

    /// Who has left beside a put has left cleanly once the put is at its quorum. When its primary
    /// hears of it is left open: whatever it does before it has heard, it may do afterwards.
    pub(super) fn settles(&mut self) {
        if let Some((of, put)) = self.parting
            && self.state.succeeded.contains(&put)
            && self.state.say_dirty.contains(&of)
            && self.state.flag.contains(&of)
        {
            self.parting = None;
            self.step(Event::Settle(of));
        }
    }

    fn synch_done(&mut self, now: &AppliedNow) {
        let flag = self.state.flag.first().copied();
        let clears = |a: &&WriteId| self.state.clears.get(a).copied() == flag;
        let done = self.state.done.iter().rev().find(clears).copied();
        let succeeded = self.state.succeeded.iter().rev();
        let mut succeeded = succeeded.filter(|w| w.sort() == Sort::Attempt);
        // What its primary knows without having pushed the grant.
        let grants = succeeded.find(clears).copied().filter(|_| done.is_none());
        // Where no synch fits, the judge says what is wrong with the last one.
        let last = self.state.began.last().copied();
        let Some(attempt) = done.or(grants).or(last) else {
            return self.wrong("the flag is cleared without a synch".to_owned());
        };
        if grants.is_some() {
            self.step(Event::AttemptGrant(attempt));
        }
        self.log_step(Event::SynchDone(attempt), now);
    }

    /// A command of the log has changed the queue. The run shows what it has made of the queue and
    /// the flag, not what the model would make of them: the judge compares.
    fn log_step(&mut self, event: Event, now: &AppliedNow) {
        let queue = &now.queues[self.key];
        let refs = queue.refs.iter().map(|(lock_ref, known)| RefId {
            lock_ref: *lock_ref,
            generation: known.generation,
        });
        let mut after = self.state.clone();
        after.happens(event);
        after.queued = refs.collect();
        let by = match event {
            Event::LeaveDirty(of) | Event::Release(of) | Event::Resume(of, _) => Some(of),
            _ => None,
        };
        if queue.flag != self.flag {
            // Named by the removal that has set it.
            let named = by.filter(|_| queue.flag == Some(now.applied.position));
            after.flag = named.into_iter().collect();
        } else {
            after.flag.clone_from(&self.state.flag);
        }
        self.flag = queue.flag;
        self.step_to(event, after);
    }

    // --- the end
    // ----------------------------------------------------------------------------------

    fn finish(mut self, name: &str) -> Traced {
        self.writes.extend(self.eventuals.values().copied());
        self.writes.remove(&WriteId::START);
        let of_writes = self.writes.iter().filter_map(|w| w.of);
        let of_reads = self.reads.iter().map(|e| e.reader);
        self.refs
            .extend(of_writes.chain(of_reads).collect::<Vec<_>>());
        let mut out = format!("trace {name} key {}\n", key_name(self.key));
        let mut line = |words: Vec<String>| {
            out.push_str(&words.join(" "));
            out.push('\n');
        };
        let clients: BTreeSet<LockRef> = self.refs.iter().map(|r| r.lock_ref).collect();
        let client = |lock_ref: LockRef| format!("client{}", lock_ref.0);
        let atoms = |sig: &str, names: Vec<String>| {
            let head = ["atom".to_owned(), sig.to_owned()];
            head.into_iter().chain(names).collect::<Vec<_>>()
        };
        line(atoms(
            "Client",
            clients.iter().map(|r| client(*r)).collect(),
        ));
        line(atoms("Coordinator", vec!["coordinator".to_owned()]));
        let refs: Vec<String> = self.refs.iter().map(|r| r.name()).collect();
        line(atoms("Ref", refs.clone()));
        line(atoms("order~Ref", refs));
        let mut order = vec!["Start".to_owned()];
        order.extend(self.writes.iter().map(|w| w.name()));
        line(atoms("order~Write", order));
        for (sort, sig) in [
            (Sort::Put, "Put"),
            (Sort::Attempt, "Attempt"),
            (Sort::Eventual, "Eventual"),
        ] {
            let of = self.writes.iter().filter(|w| w.sort() == sort);
            line(atoms(sig, of.map(|w| w.name()).collect()));
        }
        for (purpose, sig) in super::atoms::Purpose::SIGS {
            let of = self.reads.iter().filter(|e| e.purpose == purpose);
            line(atoms(sig, of.map(|e| e.name()).collect()));
        }
        let fixed =
            |field: &str, a: String, b: String| vec!["fixed".to_owned(), field.to_owned(), a, b];
        for of in &self.refs {
            line(fixed("owner", of.name(), client(of.lock_ref)));
        }
        for write in &self.writes {
            if let Some(of) = write.of {
                line(fixed("ref", write.name(), of.name()));
            }
            if write.sort() != Sort::Eventual {
                line(fixed("at", write.name(), "coordinator".to_owned()));
            }
        }
        for read in &self.reads {
            line(fixed("reader", read.name(), read.reader.name()));
        }
        for step in &self.steps {
            line(vec![step.clone()]);
        }
        line(vec!["end".to_owned()]);
        self.out.text = out;
        self.out.steps = self.steps.len();
        self.out
    }

    /// The phase is the first of its operation.
    pub(super) fn reading(&self, phase: PhaseId) -> Option<super::foresee::Reading> {
        self.foreseen.readings.get(&phase).copied()
    }
}
