//! Facts to events: what primaries do for a grant, and what the data store does.

use super::atoms::{Named, Purpose, ReadId, RefId, Sort, WriteId, digest, is_synch, ref_of};
use super::foresee::{PhaseId, Reading};
use super::map::{Mapper, READERS};
use super::observe::Replica;
use super::state::Event;
use fermata_protocol::base::{Epoch, EventualTag, NodeName, SessionId, Tag};
use fermata_protocol::lock::Latest;
use fermata_protocol::register::{Answer, Ask, Content, Moved, policy};
use std::collections::{BTreeMap, BTreeSet};

/// What an answer shows of a key.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// In which store.
    store: Epoch,
    /// It has heard there that the key has moved.
    moved: bool,
    tag: Tag,
    origin: EventualTag,
    eventual: Option<EventualTag>,
}

/// The operation that a primary has begun last for a ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Read(ReadId),
    Synch(WriteId),
}

/// What primaries have under way.
#[derive(Debug, Default)]
pub struct Primaries {
    /// The answers that a phase has had, by replica.
    answers: BTreeMap<PhaseId, BTreeMap<Replica, Shown>>,
    /// The earlier stores that a phase asks, too.
    sources: BTreeMap<PhaseId, BTreeSet<Epoch>>,
    /// Phases that have heard that all has moved from one of these: their operation begins again
    /// without it, under the same tag.
    again: BTreeSet<PhaseId>,
    /// Phases that are begun in the model.
    began: BTreeSet<PhaseId>,
    /// The last phase of each caller that reads for a grant, and is none that is known: so does a
    /// synch without a fence, which is a planted fault.
    unknown: BTreeMap<NodeName, PhaseId>,
    /// The phase in which each synch reads.
    synchs: BTreeMap<WriteId, PhaseId>,
    last: BTreeMap<(NodeName, RefId), Last>,
    /// Reads ahead, until their enqueue is applied.
    ahead: BTreeMap<(RefId, NodeName), ReadId>,
}

impl Primaries {
    /// A caller hears an answer.
    pub fn hears(&mut self, phase: PhaseId, from: Replica, answer: &Answer) {
        match answer {
            Answer::Cells {
                versions,
                eventual,
                moved,
                ..
            } => {
                let shown = Shown {
                    store: from.1,
                    moved: moved.mark().is_some(),
                    tag: versions.last().map_or(Tag::ZERO, |v| v.tag),
                    origin: versions.last().map_or_else(Default::default, |v| v.origin),
                    eventual: eventual.as_ref().map(|(tag, _)| *tag),
                };
                let answers = self.answers.entry(phase).or_default();
                answers.entry(from).or_insert(shown);
                let open = |source: &Epoch| match moved {
                    Moved::All => false,
                    Moved::Marked(marked) => marked.sources.contains(source),
                };
                let asked = self.sources.get(&phase);
                if asked.is_some_and(|s| !s.contains(&from.1) && !s.iter().all(open)) {
                    self.again.insert(phase);
                }
            }
            Answer::Moved { .. } => {
                self.again.insert(phase);
            }
            // That a store is durable is seen at the replica's disk.
            Answer::Stored
            | Answer::Past { .. }
            | Answer::NotHolder
            | Answer::Outranked { .. }
            | Answer::Busy
            | Answer::ClockSkew
            | Answer::Surveyed(_)
            | Answer::EventualValue { .. }
            | Answer::EventualStored { .. }
            | Answer::Locked
            | Answer::Late { .. }
            | Answer::Unmoved
            | Answer::Closed
            | Answer::Marked
            | Answer::Listed { .. }
            | Answer::Inspection(_)
            | Answer::Void
            | Answer::Sealed { .. }
            | Answer::Elsewhere
            | Answer::DiskFull => {}
        }
    }

    /// A ref was given: what was read ahead may serve its grant.
    pub fn enqueued(&mut self, of: RefId) {
        let own = self.ahead.iter().filter(|((r, _), _)| *r == of);
        let own = own.map(|((_, node), read)| ((*node, of), Last::Read(*read)));
        self.last.extend(own);
        self.ahead.retain(|(r, _), _| *r != of);
    }
}

/// What counts of a phase's answers: where the key has moved, nothing of earlier stores.
fn shown(answers: Option<&BTreeMap<Replica, Shown>>) -> Vec<Shown> {
    let answers = answers.into_iter().flat_map(BTreeMap::values);
    let mut shown: Vec<Shown> = answers.copied().collect();
    let present = shown.iter().map(|s| s.store).max();
    if shown.iter().any(|s| s.moved) {
        shown.retain(|s| Some(s.store) == present);
    }
    shown
}

impl Mapper<'_> {
    /// A caller asks a replica about this key.
    pub(super) fn asks(&mut self, phase: PhaseId, store: Epoch, ask: &Ask) {
        match ask {
            // Who reads for a grant enters; a holder's get begins when its client asks for it; and
            // the coordinators of eventual gets have no part in the model.
            Ask::Read { entering, .. } => {
                if let Some(reading) = self.reading(phase) {
                    self.begins(phase, reading);
                } else if *entering {
                    self.primaries.unknown.insert(phase.0, phase);
                }
            }
            Ask::Store {
                tag,
                origin,
                content,
            } => self.stores(phase, *tag, *origin, content),
            Ask::SealedRead { .. } => {
                self.primaries
                    .sources
                    .entry(phase)
                    .or_default()
                    .insert(store);
            }
            // What a replica has of it is seen at the replica.
            Ask::EventualPut { .. } | Ask::Repair { .. } => {}
            Ask::Settle { .. }
            | Ask::EventualGet
            | Ask::EventualSpread { .. }
            | Ask::Inspect
            | Ask::Carry { .. }
            | Ask::Harvest { .. }
            | Ask::MarkMoved { .. }
            | Ask::Survey
            | Ask::RepairEventual { .. }
            | Ask::Bury { .. } => {}
        }
    }

    /// A read or synch for a grant begins.
    pub(super) fn begins(&mut self, phase: PhaseId, reading: Reading) {
        if !self.primaries.began.insert(phase) {
            return;
        }
        let (of, last, event) = match reading {
            Reading::Ahead(command) => {
                // An enqueue that is never agreed has no ref.
                let Some(of) = self.foreseen.given.get(&command).copied() else {
                    return;
                };
                let read = self.read(of, Purpose::First);
                self.primaries.ahead.insert((of, phase.0), read);
                return self.step(Event::ReadAhead(read));
            }
            Reading::Entry(of, purpose) => {
                let read = self.read(of, purpose);
                (of, Last::Read(read), Event::EntryBegin(read))
            }
            Reading::Synch(tag, adopts) => {
                let attempt = WriteId::of_tag(tag);
                let before = self.primaries.synchs.insert(attempt, phase);
                let goes_on =
                    |before: PhaseId| before.0 == phase.0 && self.primaries.again.contains(&before);
                if before.is_some_and(goes_on) {
                    return;
                }
                let event = match adopts {
                    true => Event::AdoptBegin(attempt),
                    false => Event::AttemptBegin(attempt),
                };
                (ref_of(tag), Last::Synch(attempt), event)
            }
        };
        if self.is_behind(of) {
            return self.leave_out(READERS);
        }
        self.settled(phase.0, of, last);
        self.primaries.last.insert((phase.0, of), last);
        self.step(event);
    }

    /// A primary that reads for the front of a batch of readers after it has synched in its name
    /// knows that the synch has succeeded: it has settled the key (G9).
    fn settled(&mut self, node: NodeName, of: RefId, next: Last) {
        let Some(Last::Synch(synch)) = self.primaries.last.get(&(node, of)).copied() else {
            return;
        };
        let knows = matches!(next, Last::Read(_)) && self.is_shared(of);
        let new = self.state.succeeded.contains(&synch) && !self.state.done.contains(&synch);
        if knows && new {
            self.step(Event::AttemptGrant(synch));
        }
    }

    /// A primary hears that its log does not take an enqueue: nobody waits any more for what it
    /// has read ahead.
    pub(super) fn declined(&mut self, node: NodeName, command: (SessionId, u64)) {
        let Some(of) = self.foreseen.given.get(&command).copied() else {
            return;
        };
        let read = self.primaries.ahead.get(&(of, node)).copied();
        if let Some(read) = read.filter(|read| self.state.ahead.contains(read)) {
            self.step(Event::Decline(read));
        }
    }

    fn read(&mut self, reader: RefId, purpose: Purpose) -> ReadId {
        ReadId {
            reader,
            purpose,
            number: self.primaries.began.len() as u64,
        }
    }

    fn stores(&mut self, phase: PhaseId, tag: Tag, origin: EventualTag, content: &Content) {
        let write = WriteId::of_tag(tag);
        if !is_synch(tag) && !self.foreseen.sent.contains(&tag) {
            return;
        }
        if !self.values.seen(write, policy::digest_of(content)) {
            return self.wrong(format!("{} has two values", write.named()));
        }
        if self.state.attempted.contains(&write) {
            // Again, or by a get that completes it.
            return;
        }
        if !is_synch(tag) {
            return self.puts(write);
        }
        if !self.state.began.contains(&write) {
            // It has read without a fence, as a planted rule does: there is no such phase.
            self.step(Event::AttemptBegin(write));
            self.primaries
                .last
                .insert((phase.0, ref_of(tag)), Last::Synch(write));
        }
        let read = self.primaries.synchs.get(&write);
        let read = read.or_else(|| self.primaries.unknown.get(&phase.0));
        let answers = read.and_then(|read| self.primaries.answers.get(read));
        let shown = shown(answers);
        let (highest, carried_on) = shown
            .iter()
            .map(|s| (s.tag, s.origin))
            .max()
            .unwrap_or_default();
        let found = self.found(highest);
        let eventual = shown.iter().filter_map(|s| s.eventual).max();
        let eventual = eventual.and_then(|tag| self.eventuals.get(&tag)).copied();
        // What is carried on keeps its origin; what is adopted has that of its put (G24).
        let carried = match (origin == carried_on, eventual) {
            (false, Some(eventual)) => Some(eventual),
            _ => self.state.value(found),
        };
        let Some(carried) = carried else {
            return self.wrong(format!("{} carries nothing that was found", write.named()));
        };
        let known = self.values.of(carried);
        if known.is_some() && known != self.values.of(write) {
            let (name, carried) = (write.named(), carried.named());
            self.wrong(format!("{name} has another value than {carried}"));
        }
        self.step(Event::AttemptRead(write, found, carried));
        self.step(Event::AttemptWrite(write));
    }

    /// A primary pushes the key's value to whoever waits.
    pub(super) fn grants(&mut self, from: NodeName, of: RefId, latest: &Latest) {
        if self.is_behind(of) {
            return self.leave_out(READERS);
        }
        let write = self.found(latest.tag);
        let handed = self.state.handed(of) == Some(write);
        match self.primaries.last.remove(&(from, of)) {
            Some(Last::Synch(attempt)) if attempt == write => {
                self.step(Event::AttemptGrant(attempt));
            }
            Some(Last::Read(read)) if self.is_awaited(read) || !handed => {
                self.step(Event::EntryEnd(read, write));
            }
            Some(Last::Synch(attempt)) => {
                let (tag, synch) = (write.named(), attempt.named());
                self.wrong(format!("{tag} is granted after {synch}"));
            }
            Some(Last::Read(_)) | None => {
                self.step(Event::HandOver(of));
                if !handed {
                    let tag = write.named();
                    self.wrong(format!("{tag} is handed over, and was not left"));
                }
            }
        }
        let value = self.state.value(write).and_then(|v| self.values.of(v));
        let told = latest.value.known().map(|v| digest(v.map(|b| &b[..])));
        if let (Some(told), Some(value)) = (told, value)
            && told != value
        {
            let tag = write.named();
            self.wrong(format!("the grant's value is not that of {tag}"));
        }
    }

    fn is_awaited(&self, read: ReadId) -> bool {
        self.state.floor.contains_key(&read) && !self.state.forgotten.contains(&read)
    }

    /// A replica has versions, durably.
    pub(super) fn has_durably(&mut self, node: Replica, tags: &[Tag]) {
        self.durable.insert(node, tags.to_vec());
        for write in self.state.attempted.clone() {
            self.covers(node, write);
        }
    }

    /// A write has succeeded once a quorum covers it.
    pub(super) fn covers(&mut self, node: Replica, write: WriteId) {
        if self.state.succeeded.contains(&write) {
            return;
        }
        // A later put of the same section stands for an earlier one: no read finds that any more.
        // But below a fence the earlier one is refused.
        let stands = write.sort() == Sort::Put && !self.state.doomed.contains(&write);
        let covers = |tag: &Tag| {
            let later = ref_of(*tag) == ref_of(write.tag) && *tag > write.tag && !is_synch(*tag);
            *tag == write.tag || (stands && later)
        };
        if !self.durable[&node].iter().any(covers) {
            return;
        }
        let nodes = self.covered.entry(write).or_default();
        nodes.insert(node);
        let nodes = nodes.clone();
        if self.are_quorum(&nodes) {
            self.step(Event::Succeed(write));
            self.settles();
        }
    }

    /// A replica has taken an eventual put.
    pub(super) fn took(&mut self, node: Replica, tag: EventualTag, digest: u64) {
        if self.eventuals.contains_key(&tag) {
            return;
        }
        let up_to = |r: &&RefId| r.lock_ref.0 <= tag.applied;
        let write = WriteId {
            of: self.state.used.iter().rev().find(up_to).copied(),
            eventual: Some(tag),
            tag: Tag::ZERO,
        };
        self.eventuals.insert(tag, write);
        self.copies.entry(write).or_default().insert(node);
        self.values.seen(write, digest);
        self.step(Event::Offer(write));
    }

    /// A replica has this eventual value, and no other any more. What was lost with its disk's
    /// last writes, or removed whole with the key, was not dropped.
    pub(super) fn has_eventual(&mut self, node: Replica, tag: Option<EventualTag>, drops: bool) {
        let now = tag.and_then(|tag| self.eventuals.get(&tag)).copied();
        let mut gone = Vec::new();
        for (write, nodes) in &mut self.copies {
            if Some(*write) != now && nodes.remove(&node) && nodes.is_empty() {
                gone.push(*write);
            }
        }
        if let Some(write) = now {
            self.copies.entry(write).or_default().insert(node);
        }
        for write in gone {
            if drops && !self.state.dropped.contains(&write) {
                self.step(Event::Drop(write));
            }
        }
    }
}
