//! What clients did and saw, with true times: the only evidence that checkers of a history use.
//!
//! An operation that failed with "may have taken effect", or never ended, is *unknown*, which is
//! not *failed*: a checker must admit that it took effect at any later time, or never.

use crate::catalogue::Catalogue;
use crate::network::ClientId;
use bytes::Bytes;
use fermata_protocol::base::{KeyId, LockRef, SessionId, Tag};
use fermata_protocol::request::{Code, Held, Mode, QueueEntry};
use std::collections::BTreeMap;

/// An operation, by its place in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub usize);

/// A section, by its place in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SectionIx(pub usize);

/// A value as a client sees it: none is absent or deleted.
pub type Value = Option<Bytes>;

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Enter, or resume, a section.
    Enter {
        /// All its keys.
        keys: Vec<KeyId>,
        /// Exclusive or shared.
        mode: Mode,
    },
    /// A critical get.
    Get(KeyId),
    /// A critical put; `leave`: and the end of the section.
    Put {
        /// The key.
        key: KeyId,
        /// The value, unique in the history.
        value: Value,
        /// `put_and_leave`.
        leave: bool,
    },
    /// Leave.
    Leave,
    /// A linearizable read.
    Read(KeyId),
    /// A linearizable write.
    Write(KeyId, Value),
    /// An eventual read.
    EventualGet(KeyId),
    /// An eventual write.
    EventualPut(KeyId, Value),
    /// Somebody's section is ended by force.
    Release(KeyId, LockRef),
    /// The lock queue.
    Queue(KeyId),
}

impl What {
    /// The key of an operation on one.
    pub fn key(&self) -> Option<&KeyId> {
        match self {
            What::Read(key) | What::Get(key) | What::EventualGet(key) => Some(key),
            What::Write(key, _) | What::Put { key, .. } | What::EventualPut(key, _) => Some(key),
            What::Release(key, _) | What::Queue(key) => Some(key),
            What::Enter { .. } | What::Leave => None,
        }
    }
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not yet, or never.
    Open,
    /// Well, with no more to say.
    Done(Option<Tag>),
    /// With a value.
    Value(Value),
    /// With a lock queue.
    Queue(Vec<QueueEntry>),
    /// Refused: it changed nothing and never will.
    Failed(Code),
    /// It may have taken effect, or may still.
    Unknown(Code),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Who.
    pub client: ClientId,
    /// Whose session.
    pub session: SessionId,
    /// In which section.
    pub section: Option<SectionIx>,
    /// What.
    pub what: What,
    /// True time of the call.
    pub invoked: u64,
    /// True time of the answer.
    pub returned: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Op {
    /// It ended well.
    pub fn succeeded(&self) -> bool {
        matches!(
            self.outcome,
            Outcome::Done(_) | Outcome::Value(_) | Outcome::Queue(_)
        )
    }

    /// It is a put in a section.
    pub fn is_put(&self) -> bool {
        matches!(self.what, What::Put { .. })
    }

    /// It changed nothing for certain.
    pub fn failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }

    /// True time of the answer, the end of time if there is none.
    pub fn end(&self) -> u64 {
        self.returned.unwrap_or(u64::MAX)
    }
}

/// One section, as a client was granted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Who.
    pub client: ClientId,
    /// Whose session.
    pub session: SessionId,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Its keys with their refs.
    pub held: Vec<Held>,
    /// The value of each key at entry.
    pub values: BTreeMap<KeyId, Value>,
    /// True time of the call to enter.
    pub invoked: u64,
    /// True time of the grant at the client.
    pub entered: u64,
    /// True time at which the client began to leave, or learnt that the section is lost.
    pub over: Option<u64>,
}

/// The history of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// All operations, by the time of their call.
    pub ops: Vec<Op>,
    /// All sections, by the time of their grant.
    pub sections: Vec<Section>,
    /// The operations that have ended, in the order of their ends.
    pub ended: Vec<OpId>,
    /// The keyspaces that it is about.
    pub catalogue: Catalogue,
    /// Interval clocks may leave their bound: writes of one round are not ordered then.
    pub false_intervals: bool,
    /// Primaries change by hand-over alone: the time that a section has lasted goes with them.
    pub calm: bool,
}

impl History {
    /// Begins an operation.
    pub fn invoke(
        &mut self,
        now: u64,
        who: (ClientId, SessionId),
        section: Option<SectionIx>,
        what: What,
    ) -> OpId {
        self.ops.push(Op {
            client: who.0,
            session: who.1,
            section,
            what,
            invoked: now,
            returned: None,
            outcome: Outcome::Open,
        });
        OpId(self.ops.len() - 1)
    }

    /// Ends an operation.
    pub fn complete(&mut self, now: u64, id: OpId, outcome: Outcome) {
        let op = &mut self.ops[id.0];
        assert!(op.returned.is_none(), "an operation ends once");
        op.returned = Some(now);
        op.outcome = outcome;
        self.ended.push(id);
    }

    /// A section was granted.
    pub fn enter(&mut self, section: Section) -> SectionIx {
        self.sections.push(section);
        SectionIx(self.sections.len() - 1)
    }

    /// The mode of the section that was granted under these refs; exclusive if none was.
    pub fn mode_of(&self, held: &[Held]) -> Mode {
        let same = |a: &Held| {
            held.iter()
                .any(|b| (&a.key, a.lock_ref) == (&b.key, b.lock_ref))
        };
        let mut granted = self.sections.iter().rev();
        let found = granted.find(|section| section.held.iter().any(same));
        found.map_or(Mode::Exclusive, |section| section.mode)
    }

    /// The client left the section, or learnt that it is lost.
    pub fn over(&mut self, now: u64, section: SectionIx) {
        let section = &mut self.sections[section.0];
        section.over = section.over.or(Some(now));
    }

    /// The operations of one section, in the order of their calls.
    pub fn of_section(&self, section: SectionIx) -> impl Iterator<Item = &Op> {
        self.ops
            .iter()
            .filter(move |op| op.section == Some(section))
    }
}
