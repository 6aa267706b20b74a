//! Facts to events: what clients ask for and are told.

use super::atoms::{Named, Purpose, ReadId, RefId, WriteId, digest};
use super::map::{LATE_GET, Mapper};
use super::state::Event;
use crate::history::{Heard, What};
use bytes::Bytes;
use fermata_protocol::Operation;
use fermata_protocol::base::{KeyId, SessionId, Tag};
use fermata_protocol::request::{Critical, Held, Leaving};
use std::collections::BTreeMap;

impl Mapper<'_> {
    fn ref_of_held(&self, held: &[Held]) -> Option<RefId> {
        let own = held.iter().find(|h| h.key == *self.key)?;
        Some(RefId {
            lock_ref: own.lock_ref,
            generation: own.generation,
        })
    }

    /// Whether the ref was given to another client: who asks in its name is refused (G49).
    fn is_anothers(&self, of: RefId, session: SessionId) -> bool {
        self.sessions.get(&of).is_some_and(|own| *own != session)
    }

    fn is_inside(&self, of: RefId) -> bool {
        self.state.entered.contains(&of) && !self.state.closed.contains(&of)
    }

    /// A client sends a request for the first time.
    pub(super) fn requests(&mut self, name: (SessionId, u64), operation: &Operation) {
        match operation {
            Operation::Critical {
                held,
                operation,
                leave,
            } => {
                let Some(of) = self.ref_of_held(std::slice::from_ref(held)) else {
                    return;
                };
                match operation {
                    Critical::Get => self.gets(name, of),
                    Critical::Put { .. } if self.is_anothers(of, name.0) => {}
                    Critical::Put { number, .. } => {
                        let (lock_ref, generation) = (of.lock_ref, of.generation);
                        let tag = Tag::critical(lock_ref, generation, *number, name.0);
                        let put = WriteId::of_tag(tag);
                        if !leave.is_empty() {
                            self.last_puts.insert(of, put);
                        }
                        self.asked_for(put);
                    }
                }
            }
            Operation::Leave { keys } => {
                let own = keys.iter().find(|(held, _)| held.key == *self.key);
                let held = own.map(|(held, leaving)| (std::slice::from_ref(held), leaving));
                if let Some((held, leaving)) = held
                    && let Some(of) = self.ref_of_held(held)
                    && !self.is_anothers(of, name.0)
                {
                    self.says(of, matches!(leaving, Leaving::Clean(_)));
                }
            }
            // Sections of one operation are their coordinator's.
            Operation::Read { .. } | Operation::Write { .. } => {}
            Operation::Enter { .. }
            | Operation::Renew { .. }
            | Operation::Relinquish { .. }
            | Operation::Resume { .. }
            | Operation::Release { .. }
            | Operation::Get { .. }
            | Operation::Put { .. }
            | Operation::Keys { .. }
            | Operation::Queue { .. }
            | Operation::Transact(_)
            | Operation::Resolve { .. }
            | Operation::Snapshot { .. }
            | Operation::Inspect { .. }
            | Operation::CreateKeyspace(_)
            | Operation::ChangeKeyspace { .. }
            | Operation::DeleteKeyspace { .. }
            | Operation::ChangeAccess { .. }
            | Operation::Access
            | Operation::ChangeSettings(_)
            | Operation::Admit { .. }
            | Operation::ChangeRing(_)
            | Operation::Ring
            | Operation::Keyspaces
            | Operation::Catalogue
            | Operation::Status => {}
        }
    }

    fn gets(&mut self, name: (SessionId, u64), reader: RefId) {
        let read = ReadId {
            reader,
            purpose: Purpose::Get,
            number: name.1,
        };
        let may = self.state.may_get(reader);
        self.gets.insert(name, (read, may));
        if may {
            self.step(Event::GetBegin(read));
        }
    }

    /// A put is asked for.
    fn asked_for(&mut self, put: WriteId) {
        if self.foreseen.sent.contains(&put.tag) && !self.state.issued.contains(&put) {
            self.step(Event::Issue(put));
        }
    }

    /// A coordinator sends a put to the data store.
    pub(super) fn puts(&mut self, put: WriteId) {
        let of = put.of.expect("a put is of a ref");
        if !self.state.entered.contains(&of) {
            self.enters_unseen(of);
        }
        self.asked_for(put);
        self.step(Event::Put(put));
        for node in self.durable.keys().copied().collect::<Vec<_>>() {
            self.covers(node, put);
        }
    }

    /// A client says that it leaves. Its coordinator may say otherwise in its name: the word counts
    /// that the log takes.
    fn says(&mut self, of: RefId, clean: bool) {
        let taken = self.foreseen.leaves.get(&of).copied();
        let known = self.state.used.contains(&of) && !self.state.closed.contains(&of);
        if known && taken.unwrap_or(clean) == clean {
            self.step(match clean {
                true => Event::SayLeaveClean(of),
                false => Event::SayLeaveDirty(of),
            });
        }
    }

    /// A client has entered.
    pub(super) fn enters(
        &mut self,
        session: SessionId,
        held: &[Held],
        values: &BTreeMap<KeyId, Option<Bytes>>,
    ) {
        let Some(of) = self.ref_of_held(held) else {
            return;
        };
        self.sessions.insert(of, session);
        let told = values.get(self.key).map(|v| digest(v.as_deref()));
        let granted = self.granted_to(of);
        let same = |v: &&WriteId| told.is_none() || self.values.of(**v) == told;
        let value = granted.iter().rev().find(same).copied();
        // A value that was not granted the judge refuses, under its name.
        let other = told.and_then(|told| self.values.named(told));
        self.step(Event::Enter(of, value.or(other).unwrap_or(WriteId::START)));
    }

    fn granted_to(&self, of: RefId) -> Vec<WriteId> {
        let granted = self.state.granted.iter().filter(|(r, _)| *r == of);
        granted.map(|(_, v)| *v).collect()
    }

    /// The client of this ref is its coordinator, which has been granted it before it acts.
    pub(super) fn enters_unseen(&mut self, of: RefId) {
        let value = self.granted_to(of).last().copied();
        self.step(Event::Enter(of, value.unwrap_or(WriteId::START)));
    }

    /// A client's operation has ended.
    pub(super) fn ends(
        &mut self,
        session: SessionId,
        what: &What,
        held: &[Held],
        outcome: &Heard,
        read: Option<(u64, Tag)>,
    ) {
        if what.key() != Some(self.key) {
            return;
        }
        match (what, outcome) {
            (What::Get(_), Heard::Value(value)) => {
                if let Some((number, tag)) = read {
                    self.got((session, number), tag, value);
                }
            }
            (What::Put { leave: false, .. } | What::Write(..), Heard::Done(Some(tag))) => {
                self.acknowledged(WriteId::of_tag(*tag));
            }
            (What::Put { leave: true, .. }, Heard::Done(_)) => {
                let of = self.ref_of_held(held);
                let put = of.and_then(|of| self.last_puts.get(&of)).copied();
                if let Some(put) = put {
                    self.acknowledged(put);
                }
            }
            (
                What::Get(_) | What::Put { .. } | What::Write(..),
                Heard::Open
                | Heard::Done(_)
                | Heard::Value(_)
                | Heard::Queue(_)
                | Heard::Keys(_)
                | Heard::Access(_)
                | Heard::Transacted(_)
                | Heard::Snapshot(..)
                | Heard::Waits
                | Heard::GivenUp
                | Heard::Failed(_)
                | Heard::Unknown(_),
            ) => {}
            (
                What::Enter { .. }
                | What::Renew(_)
                | What::Leave
                | What::Relinquish
                | What::Read(_)
                | What::EventualGet(_)
                | What::EventualPut(..)
                | What::Release(..)
                | What::Queue(_)
                | What::Keys(_)
                | What::Access
                | What::ChangeAccess(_)
                | What::Transact(_)
                | What::Snapshot(..),
                _,
            ) => {}
        }
    }

    fn got(&mut self, name: (SessionId, u64), tag: Tag, value: &Option<Bytes>) {
        // What the client knows under its lease it need not ask for: such a get is no event.
        let Some((read, begun)) = self.gets.remove(&name) else {
            return;
        };
        if !begun {
            // It was to be refused, and was not.
            self.step(Event::GetBegin(read));
        }
        if !self.is_inside(read.reader) {
            return self.aside(LATE_GET);
        }
        let write = self.found(tag);
        self.step(Event::GetEnd(read, write));
        let found = self.state.value(write).and_then(|v| self.values.of(v));
        if found.is_some_and(|found| found != digest(value.as_deref())) {
            let (get, write) = (read.named(), write.named());
            self.wrong(format!("{get} returns another value than that of {write}"));
        }
    }

    /// A client, or who leaves in its name, knows that a put has succeeded.
    pub(super) fn acknowledged(&mut self, put: WriteId) {
        if !self.state.acked.contains(&put) {
            self.step(Event::Ack(put));
        }
    }

    /// A client's process dies. Its coordinator may still leave in its name.
    pub(super) fn dies(&mut self, session: SessionId) {
        let own = self.sessions.iter().filter(|(_, s)| **s == session);
        let own: Vec<RefId> = own.map(|(of, _)| *of).collect();
        for of in own {
            if self.is_inside(of) && !self.foreseen.leaves.contains_key(&of) {
                self.step(Event::Close(of));
            }
        }
    }
}
