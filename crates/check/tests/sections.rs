//! Histories of sections that only one rule of the judge refuses, beside such as are right.

use bytes::Bytes;
use fermata_check::sections::{
    ClientId, Heard, History, OpId, Promise, SectionIx, Value, What, check,
};
use fermata_protocol::base::{KeyId, Keyspace, LockRef, SessionId};
use fermata_protocol::request::{Code, Held, Mode};
use std::collections::BTreeMap;

fn key() -> KeyId {
    KeyId {
        keyspace: Keyspace::SECTIONS,
        key: "k".into(),
    }
}

fn value(text: &'static str) -> Value {
    Some(Bytes::from_static(text.as_bytes()))
}

fn held(lock_ref: u64, generation: u32) -> Held {
    Held {
        key: key(),
        lock_ref: LockRef(lock_ref),
        generation,
    }
}

/// A history in which everything takes from one moment to the next.
#[derive(Default)]
struct Told {
    now: u64,
    history: History,
}

impl Told {
    fn next(&mut self) -> u64 {
        self.now += 10;
        self.now
    }

    /// A section of a client of its own, whose enter was sent at this time.
    fn enter(&mut self, sent: u64, held: Held, resumes: &[Held], found: Value) -> SectionIx {
        let who = held.lock_ref.0 * 10 + u64::from(held.generation);
        let what = What::Enter {
            keys: vec![key()],
            mode: Mode::Exclusive,
            resumes: resumes.to_vec(),
        };
        let who = (ClientId(who as u32), SessionId(who.into()));
        let op = self.history.invoke(sent, who, None, what);
        let values = BTreeMap::from([(key(), found)]);
        let now = self.next();
        let section = self.history.enter(now, op, vec![held], values);
        self.history.complete(now, op, Heard::Done(None));
        section
    }

    fn begin(&mut self, section: SectionIx, to: &'static str) -> OpId {
        let what = What::Put {
            key: key(),
            number: self.history.next_put(section),
            value: value(to),
            leave: false,
        };
        let session = self.history.sections[section.0].session;
        let now = self.next();
        let who = (ClientId(0), session);
        self.history.invoke(now, who, Some(section), what)
    }

    fn put(&mut self, section: SectionIx, to: &'static str) {
        let op = self.begin(section, to);
        let now = self.next();
        self.history.complete(now, op, Heard::Done(None));
    }

    fn eventual(&mut self, to: &'static str) {
        let now = self.next();
        let who = (ClientId(0), SessionId(0));
        let what = What::EventualPut(key(), value(to));
        let op = self.history.invoke(now, who, None, what);
        let now = self.next();
        self.history.complete(now, op, Heard::Done(None));
    }

    fn wrong(&self) -> Vec<Promise> {
        let found = check(&self.history, &|_| true);
        found
            .into_iter()
            .map(|violation| violation.promise)
            .collect()
    }
}

/// An eventual put that ended before a ref was resumed has met that ref alive, or not at all: what
/// is put in the new generation outranks it.
#[test]
fn what_a_resumed_section_wrote_outranks_an_eventual_put_before_it() {
    for (entered, found, wrong) in [
        (true, "eventual", true),
        (false, "eventual", true),
        (true, "critical", false),
        (false, "critical", false),
    ] {
        let mut told = Told::default();
        if entered {
            told.enter(0, held(1, 0), &[], None);
        }
        told.eventual("eventual");
        let now = told.next();
        let resumed = told.enter(now, held(1, 1), &[held(1, 0)], None);
        told.put(resumed, "critical");
        let now = told.next();
        told.enter(now, held(2, 0), &[], value(found));
        let due = wrong.then_some(Promise::LatestState);
        assert_eq!(told.wrong(), Vec::from_iter(due), "{entered} {found}");
    }
}

/// An eventual put that a section has found has acted, also where its client does not know: with
/// the grant, or in a get after a put of its own that nobody has acknowledged yet.
#[test]
fn an_eventual_put_acts_once() {
    for granted in [true, false] {
        let mut told = Told::default();
        let what = What::EventualPut(key(), value("eventual"));
        let who = (ClientId(0), SessionId(0));
        told.history.invoke(1, who, None, what);
        let first = told.enter(2, held(1, 0), &[], value("eventual"));
        if !granted {
            told.history.sections[first.0].values.clear();
            let put = told.begin(first, "first");
            let get = told
                .history
                .invoke(told.now, who, Some(first), What::Get(key()));
            let now = told.next();
            let found = Heard::Value(value("eventual"));
            told.history.complete(now, get, found);
            let unknown = Heard::Unknown(Code::Unavailable);
            told.history.complete(now, put, unknown);
        }
        told.put(first, "critical");
        let now = told.next();
        told.enter(now, held(2, 0), &[], value("eventual"));
        assert_eq!(told.wrong(), [Promise::LatestState], "{granted}");
    }
}

/// Refs grow with the time of their enters; a resumption, which comes later, gives none.
#[test]
fn a_ref_is_given_when_its_enter_is_sent() {
    let mut told = Told::default();
    let first = told.enter(0, held(2, 0), &[], None);
    told.put(first, "v1");
    told.enter(1, held(4, 0), &[], value("v1"));
    let now = told.next();
    told.enter(now, held(2, 1), &[held(2, 0)], None);
    assert!(!told.wrong().contains(&Promise::Refs));
    let now = told.next();
    told.enter(now, held(3, 0), &[], None);
    assert!(told.wrong().contains(&Promise::Refs));
}
