//! A hand-cranked client: a test says what happens, and looks at what the session does.

use bytes::Bytes;
use fermata_protocol::base::{KeyId, KeyspaceId, LockRef, Now, SessionId, SiteId, Tag};
use fermata_protocol::client::{
    Call, Endpoint, Event, Options, SectionId, Session, Success, Ticket,
};
use fermata_protocol::request::{Critical, Entered, Held, Leaving, Mode, Operation, Request};
use fermata_protocol::{Code, Refusal, Reply};

pub(crate) const A: Endpoint = Endpoint(0);
pub(crate) const B: Endpoint = Endpoint(1);
pub(crate) const ME: SessionId = SessionId(77);
pub(crate) const LEASE: u64 = 9_000_000;

/// A session, its clock, and what it has done that the test has not looked at.
pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) now: u64,
    pub(crate) events: Vec<Event>,
    next_ticket: u64,
}

pub(crate) fn key(name: &'static str) -> KeyId {
    KeyId {
        keyspace: KeyspaceId(1),
        key: Bytes::from_static(name.as_bytes()),
    }
}

pub(crate) fn held(name: &'static str, lock_ref: u64) -> Held {
    Held {
        key: key(name),
        lock_ref: LockRef(lock_ref),
        generation: 0,
    }
}

pub(crate) fn value(text: &'static str) -> Option<Bytes> {
    Some(Bytes::from_static(text.as_bytes()))
}

pub(crate) fn tag(lock_ref: u64, number: u64) -> Tag {
    Tag::critical(LockRef(lock_ref), 0, number, ME)
}

pub(crate) fn clean(lock_ref: u64, number: u64) -> Leaving {
    Leaving::Clean(Some(tag(lock_ref, number)))
}

pub(crate) fn done() -> Reply {
    Reply::Done { tag: None }
}

pub(crate) fn definite(code: Code) -> Reply {
    Reply::Refused(Refusal::definite(code, "no"))
}

pub(crate) fn unknown(code: Code) -> Reply {
    Reply::Refused(Refusal::unknown(code, "perhaps"))
}

impl Client {
    pub(crate) fn new() -> Client {
        Client::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Client {
        Client {
            session: Session::new(ME, SiteId(0), &[A, B], options),
            now: 1_000,
            events: Vec::new(),
            next_ticket: 1,
        }
    }

    fn time(&self) -> Now {
        Now {
            monotonic: self.now,
            wall: 0,
            interval: None,
        }
    }

    pub(crate) fn call(&mut self, call: Call) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let now = self.time();
        self.session.call(now, ticket, call, &mut self.events);
        ticket
    }

    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        let now = self.time();
        self.session.cancel(now, ticket, &mut self.events);
    }

    pub(crate) fn give_up(&mut self, refusal: &Refusal) {
        let now = self.time();
        self.session.give_up(now, refusal, &mut self.events);
    }

    pub(crate) fn deny(&mut self) {
        let now = self.time();
        self.session.deny(now, &mut self.events);
    }

    pub(crate) fn reply(&mut self, endpoint: Endpoint, number: u64, reply: Reply) {
        let now = self.time();
        self.session
            .on_reply(now, endpoint, number, reply, &mut self.events);
    }

    pub(crate) fn disconnect(&mut self, endpoint: Endpoint) {
        let now = self.time();
        self.session
            .on_disconnected(now, endpoint, &mut self.events);
    }

    /// Lets time pass, with every tick that the session wants on the way.
    pub(crate) fn pass(&mut self, micros: u64) {
        let end = self.now + micros;
        while let Some(at) = self.session.wake().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let now = self.time();
            self.session.tick(now, &mut self.events);
        }
        self.now = end;
    }

    /// Takes the next request that the session sent, heartbeats aside.
    pub(crate) fn sent(&mut self) -> Option<(Endpoint, Request)> {
        let wanted = |e: &Event| {
            matches!(e, Event::Send { request, .. }
                if !matches!(request.operation, Operation::Renew { .. }))
        };
        let at = self.events.iter().position(wanted)?;
        match self.events.remove(at) {
            Event::Send { endpoint, request } => Some((endpoint, request)),
            _ => None,
        }
    }

    pub(crate) fn must_send(&mut self) -> (Endpoint, Request) {
        self.sent().expect("the session sends something")
    }

    /// Takes the next heartbeat.
    pub(crate) fn heartbeat(&mut self) -> Option<(Endpoint, u64, Vec<Held>)> {
        let renew = |e: &Event| {
            matches!(e, Event::Send { request, .. }
                if matches!(request.operation, Operation::Renew { .. }))
        };
        let at = self.events.iter().position(renew)?;
        match self.events.remove(at) {
            Event::Send { endpoint, request } => match request.operation {
                Operation::Renew { held } => Some((endpoint, request.number, held)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Takes the end of an operation, if it has ended.
    pub(crate) fn end(&mut self, wanted: Ticket) -> Option<Result<Success, Refusal>> {
        let ends = |e: &Event| matches!(e, Event::Done { ticket, .. } if *ticket == wanted);
        let at = self.events.iter().position(ends)?;
        match self.events.remove(at) {
            Event::Done { result, .. } => Some(result),
            _ => None,
        }
    }

    pub(crate) fn must_end(&mut self, ticket: Ticket) -> Result<Success, Refusal> {
        self.end(ticket).expect("the operation has ended")
    }

    pub(crate) fn has(&self, event: &Event) -> bool {
        self.events.contains(event)
    }

    /// Enters a section over `keys` at `A` with the lock refs 10, 11, …, each with the value "old".
    pub(crate) fn entered(&mut self, keys: &[&'static str]) -> SectionId {
        let ticket = self.call(Call::Enter {
            keys: keys.iter().map(|k| key(k)).collect(),
            mode: Mode::Exclusive,
            wait: 60_000_000,
            lease: None,
        });
        let (endpoint, request) = self.must_send();
        let refs = keys.iter().zip(10..);
        let keys = refs.map(|(k, lock_ref)| Entered {
            held: held(k, lock_ref),
            value: value("old").into(),
        });
        let entered = Reply::Entered {
            keys: keys.collect(),
            lease: LEASE,
        };
        self.reply(endpoint, request.number, entered);
        match self.must_end(ticket) {
            Ok(Success::Entered { section, .. }) => section,
            other => panic!("not entered: {other:?}"),
        }
    }

    /// Asks for a key without waiting, and is told that another is ahead: the section, and the
    /// number of its enter.
    pub(crate) fn waits(&mut self, name: &'static str, lock_ref: u64) -> (SectionId, u64) {
        let enter = self.call(Call::Enter {
            keys: vec![key(name)],
            mode: Mode::Exclusive,
            wait: 0,
            lease: None,
        });
        let (at, request) = self.must_send();
        let queued = Reply::Queued {
            held: vec![held(name, lock_ref)],
            ahead: 1,
        };
        self.reply(at, request.number, queued);
        match self.must_end(enter) {
            Ok(Success::Waiting { section, .. }) => (section, request.number),
            other => panic!("not waiting: {other:?}"),
        }
    }

    pub(crate) fn put(
        &mut self,
        section: SectionId,
        name: &'static str,
        text: &'static str,
    ) -> Ticket {
        self.call(Call::CriticalPut {
            section,
            key: key(name),
            value: value(text),
        })
    }

    pub(crate) fn get(&mut self, section: SectionId, name: &'static str) -> Ticket {
        let key = key(name);
        self.call(Call::CriticalGet { section, key })
    }

    pub(crate) fn leave(&mut self, section: SectionId) {
        let ticket = self.call(Call::Leave {
            section,
            wait: false,
        });
        assert_eq!(self.must_end(ticket), Ok(Success::Left));
    }

    /// Takes the leave that the session sends now.
    pub(crate) fn must_leave(&mut self) -> (Endpoint, u64, Vec<(Held, Leaving)>) {
        let (endpoint, request) = self.must_send();
        match request.operation {
            Operation::Leave { keys } => (endpoint, request.number, keys),
            other => panic!("not a leave: {other:?}"),
        }
    }
}

/// The write number of a critical put.
pub(crate) fn write_number(request: &Request) -> u64 {
    match &request.operation {
        Operation::Critical {
            operation: Critical::Put { number, .. },
            ..
        } => *number,
        other => panic!("not a critical put: {other:?}"),
    }
}
