//! What clients did and saw, with true times: the only evidence of the judges.
//!
//! An operation that failed with "may have taken effect", or never ended, is *unknown*, which is
//! not *failed*: a judge must admit that it took effect at any later time, or never.

use bytes::Bytes;
use fermata_protocol::base::{KeyId, KeyspaceId, LockRef, SessionId, Tag, Timestamp};
use fermata_protocol::ledger::{Found, Part, Transaction, Verdict, When};
use fermata_protocol::request::{Code, Held, Mode, QueueEntry};
use std::collections::BTreeMap;

/// A client, by number. It has no name in the protocol but its sessions, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

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
        /// The generations that it takes the place of, if it resumes.
        resumes: Vec<Held>,
    },
    /// A sign of life of a section, for one of its keys.
    Renew(KeyId),
    /// A critical get.
    Get(KeyId),
    /// A critical put; `leave`: and the end of the section.
    Put {
        /// The key.
        key: KeyId,
        /// Its number among the puts of the section, from 1: a repetition has the same.
        number: u64,
        /// The value, unique in the history.
        value: Value,
        /// `put_and_leave`.
        leave: bool,
    },
    /// Leave.
    Leave,
    /// The client gives the section's lease back, and does nothing more in it.
    Relinquish,
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
    /// The keys of a keyspace.
    Keys(KeyspaceId),
    /// The access policy.
    Access,
    /// Another access policy in the place of that of this change.
    ChangeAccess(u64),
    /// A transaction.
    Transact(Transaction),
    /// Keys and ranges of a ledger at a moment.
    Snapshot(Vec<Part>, When),
}

impl What {
    /// The key of an operation on one.
    pub fn key(&self) -> Option<&KeyId> {
        match self {
            What::Read(key) | What::Get(key) | What::EventualGet(key) => Some(key),
            What::Write(key, _) | What::Put { key, .. } | What::EventualPut(key, _) => Some(key),
            What::Release(key, _) | What::Queue(key) | What::Renew(key) => Some(key),
            What::Enter { .. } | What::Leave | What::Relinquish | What::Keys(_) => None,
            What::Access | What::ChangeAccess(_) => None,
            What::Transact(_) | What::Snapshot(..) => None,
        }
    }

    /// The value that it writes.
    pub fn written(&self) -> Option<&Value> {
        match self {
            What::Write(_, value) | What::EventualPut(_, value) => Some(value),
            What::Put { value, .. } => Some(value),
            _ => None,
        }
    }
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Not yet, or never.
    Open,
    /// Well, with no more to say.
    Done(Option<Tag>),
    /// With a value.
    Value(Value),
    /// With a lock queue.
    Queue(Vec<QueueEntry>),
    /// With keys, in order.
    Keys(Vec<Bytes>),
    /// With the access policy, of this change.
    Access(u64),
    /// A transaction was carried out.
    Transacted(Verdict),
    /// What was there, and when.
    Snapshot(Timestamp, Vec<Found>),
    /// An enter that was told its place in the queue, and no more.
    Waits,
    /// Refused: it changed nothing and never will.
    Failed(Code),
    /// It may have taken effect, or may still.
    Unknown(Code),
    /// Nobody carries it out any more: it has taken effect, or never will.
    GivenUp,
}

/// One operation, or one transmission of it where those are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Who.
    pub client: ClientId,
    /// Whose session.
    pub session: SessionId,
    /// The request's number in the session: another transmission has the same.
    pub request: u64,
    /// In which section; of an enter: which it was told of.
    pub section: Option<SectionIx>,
    /// What.
    pub what: What,
    /// True time of the call.
    pub invoked: u64,
    /// True time of the answer.
    pub returned: Option<u64>,
    /// How it ended.
    pub outcome: Heard,
}

impl Op {
    /// It ended well.
    pub fn succeeded(&self) -> bool {
        matches!(
            self.outcome,
            Heard::Done(_)
                | Heard::Value(_)
                | Heard::Queue(_)
                | Heard::Keys(_)
                | Heard::Transacted(_)
                | Heard::Snapshot(..)
        )
    }

    /// It is a put in a section.
    pub fn is_put(&self) -> bool {
        matches!(self.what, What::Put { .. })
    }

    /// It changed nothing for certain.
    pub fn failed(&self) -> bool {
        matches!(self.outcome, Heard::Failed(_))
    }

    /// Its client was told that the section is past.
    pub fn told_past(&self) -> bool {
        matches!(
            self.outcome,
            Heard::Failed(Code::NoLongerHolder) | Heard::Unknown(Code::NoLongerHolder)
        )
    }

    /// True time of the answer, the end of time if there is none.
    pub fn end(&self) -> u64 {
        self.returned.unwrap_or(u64::MAX)
    }
}

/// One section, as a client was told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Who.
    pub client: ClientId,
    /// Whose session.
    pub session: SessionId,
    /// The request's number, of the first operation that was told of it.
    pub request: u64,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Its keys with their refs.
    pub held: Vec<Held>,
    /// The value of each key at entry, as far as they came with it.
    pub values: BTreeMap<KeyId, Value>,
    /// True time at which the client was first told of its refs.
    pub told: u64,
    /// True time of the grant at the client, the end of time if there was none.
    pub entered: u64,
    /// True time at which the client began to leave, or learnt that the section is lost.
    pub over: Option<u64>,
    /// True time until which its lease lasts, by its client's account; none: not recorded.
    pub lease: Option<u64>,
}

/// The history of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// All operations, by the time of their call.
    pub ops: Vec<Op>,
    /// All sections, by the time at which their clients were told of them.
    pub sections: Vec<Section>,
    /// The operations that have ended, in the order of their ends.
    pub ended: Vec<OpId>,
}

impl History {
    /// Begins an operation, which is a request of its own.
    pub fn invoke(
        &mut self,
        now: u64,
        who: (ClientId, SessionId),
        section: Option<SectionIx>,
        what: What,
    ) -> OpId {
        let id = OpId(self.ops.len());
        self.ops.push(Op {
            client: who.0,
            session: who.1,
            request: id.0 as u64,
            section,
            what,
            invoked: now,
            returned: None,
            outcome: Heard::Open,
        });
        id
    }

    /// Ends an operation.
    pub fn complete(&mut self, now: u64, id: OpId, outcome: Heard) {
        let op = &mut self.ops[id.0];
        assert!(op.returned.is_none(), "an operation ends once");
        op.returned = Some(now);
        op.outcome = outcome;
        self.ended.push(id);
    }

    /// The operation is told of its section, which may not hold yet.
    pub fn tell(&mut self, now: u64, id: OpId, held: Vec<Held>) -> SectionIx {
        let op = &mut self.ops[id.0];
        let is = |s: &Section| (s.session, s.request) == (op.session, op.request) && s.held == held;
        let known = self.sections.iter().rposition(is);
        let ix = SectionIx(known.unwrap_or(self.sections.len()));
        op.section = Some(ix);
        if known.is_none() {
            let mode = match &op.what {
                What::Enter { mode, .. } => *mode,
                _ => Mode::Exclusive,
            };
            self.sections.push(Section {
                client: op.client,
                session: op.session,
                request: op.request,
                mode,
                held,
                values: BTreeMap::new(),
                told: now,
                entered: u64::MAX,
                over: None,
                lease: None,
            });
        }
        ix
    }

    /// The operation is granted its section. What another transmission shows that is granted the
    /// same once more counts as gets.
    pub fn enter(
        &mut self,
        now: u64,
        id: OpId,
        held: Vec<Held>,
        values: BTreeMap<KeyId, Value>,
    ) -> SectionIx {
        let ix = self.tell(now, id, held);
        let section = &mut self.sections[ix.0];
        if section.entered == u64::MAX {
            (section.entered, section.values) = (now, values);
            return ix;
        }
        for (key, value) in values {
            let get = Op {
                what: What::Get(key),
                returned: Some(now),
                outcome: Heard::Value(value),
                ..self.ops[id.0].clone()
            };
            self.ended.push(OpId(self.ops.len()));
            self.ops.push(get);
        }
        ix
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

    /// The number of the section's next put.
    pub fn next_put(&self, section: SectionIx) -> u64 {
        let mine = |op: &&Op| op.section == Some(section) && op.is_put();
        1 + self.ops.iter().filter(mine).count() as u64
    }
}
