//! A simulated client: the real session machine, a clock, and a record of what it did and saw.
//!
//! A client process may die at any time. It then says nothing, and its sections stand until
//! somebody ends them. Its successor may use what it wrote down (the refs it holds, not the counter
//! of its writes) to resume (F16).

use crate::clock::Clock;
use crate::history::{Heard, History, OpId, SectionIx, What};
use crate::network::ClientId;
use fermata_protocol::Reply;
use fermata_protocol::base::{NodeName, SessionId};
use fermata_protocol::client::{
    Call, Endpoint, Event, Failure, Options, SectionId, SectionInfo, Session, Success, Ticket,
};
use fermata_protocol::request::{Code, Held, Mode, Refusal, Request};
use std::collections::{BTreeMap, BTreeSet};

/// The pause between two polls.
const POLL: u64 = 200_000;

/// What a client wants the world to do.
#[derive(Debug)]
pub enum Wish {
    /// Send this.
    Send(NodeName, Request),
    /// Close the exchange of this number.
    Close(NodeName, u64),
}

/// One client.
#[derive(Debug)]
pub struct Client {
    /// Who.
    pub id: ClientId,
    /// Its site.
    pub site: u16,
    /// Its clock.
    pub clock: Clock,
    /// Counts processes.
    pub life: u32,
    /// Whether the process runs.
    pub alive: bool,
    /// The true time for which a wake is scheduled.
    pub wake_at: Option<u64>,
    /// The node that keeps its session, if it keeps none itself: the session dies with the node's
    /// process.
    pub host: Option<NodeName>,
    /// It does not wait for locks, but polls, as MUSIC's clients do.
    pub polls: bool,
    /// Operations that ended since the driver last looked, in order.
    pub ended: Vec<OpId>,
    session: Session,
    options: Options,
    /// All nodes, those of its site first.
    nodes: Vec<NodeName>,
    open: BTreeMap<Ticket, (OpId, Option<Mode>)>,
    next_ticket: u64,
    /// Enters that poll, and until when.
    patience: BTreeMap<OpId, u64>,
    /// Sections that wait: for what, and when they are polled for; at the end of time while a poll
    /// is under way.
    polled: BTreeMap<SectionId, (u64, OpId, Option<Mode>)>,
    /// Sections in the session and in the history.
    known: BTreeMap<SectionId, SectionIx>,
    /// What it wrote down: refs of sections entered and not left.
    notes: BTreeMap<SectionIx, Vec<Held>>,
    /// Sections of this process that only read. The session cannot tell of one that was resumed.
    shared: BTreeSet<SectionId>,
}

impl Client {
    /// A client that runs. `nodes` are in order of preference.
    pub fn new(
        id: ClientId,
        site: u16,
        clock: Clock,
        name: SessionId,
        nodes: Vec<NodeName>,
        options: Options,
    ) -> Client {
        let session = fresh(name, site, &nodes, &options);
        Client {
            id,
            site,
            clock,
            life: 0,
            alive: true,
            wake_at: None,
            host: None,
            polls: false,
            ended: Vec::new(),
            session,
            options,
            nodes,
            open: BTreeMap::new(),
            next_ticket: 1,
            patience: BTreeMap::new(),
            polled: BTreeMap::new(),
            known: BTreeMap::new(),
            notes: BTreeMap::new(),
            shared: BTreeSet::new(),
        }
    }

    /// The session of the running process.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The sections entered and not over, in the history.
    pub fn holding(&self) -> Vec<SectionIx> {
        self.notes.keys().copied().collect()
    }

    /// What the client wrote down of a section.
    pub fn notes(&self, section: SectionIx) -> Option<&Vec<Held>> {
        self.notes.get(&section)
    }

    /// The session's name of a section.
    pub fn name_of(&self, section: SectionIx) -> Option<SectionId> {
        let mut known = self.known.iter();
        known.find(|(_, ix)| **ix == section).map(|(id, _)| *id)
    }

    /// Whether a section of the session only reads.
    pub fn is_shared(&self, section: &SectionInfo) -> bool {
        section.mode == Mode::Shared || self.shared.contains(&section.id)
    }

    /// The process dies; open operations never end.
    pub fn kill(&mut self) {
        self.alive = false;
        self.open.clear();
        self.polled.clear();
        self.wake_at = None;
        self.life += 1;
    }

    /// A new process with a new session. It knows only what was written down.
    pub fn restart(&mut self, name: SessionId) {
        assert!(!self.alive, "only a dead client restarts");
        self.alive = true;
        self.life += 1;
        self.known.clear();
        self.shared.clear();
        self.session = fresh(name, self.site, &self.nodes, &self.options);
    }

    /// Its next session is kept by this node, at this site.
    pub fn move_to(&mut self, host: NodeName, site: u16) {
        (self.host, self.site) = (Some(host), site);
        self.nodes = vec![host];
    }

    /// Begins an operation.
    pub fn call(
        &mut self,
        now: u64,
        mut call: Call,
        history: &mut History,
        wishes: &mut Vec<Wish>,
    ) -> OpId {
        assert!(self.alive, "a dead client calls nothing");
        let (section, what) = self.describe(&call, history);
        let ends = matches!(
            what,
            What::Leave | What::Relinquish | What::Put { leave: true, .. }
        );
        if let Some(section) = section.filter(|_| ends) {
            history.over(now, section);
            self.notes.remove(&section);
        }
        let mode = match &what {
            What::Enter { mode, .. } => Some(*mode),
            _ => None,
        };
        let who = (self.id, self.session.id());
        let op = history.invoke(now, who, section, what);
        if let (true, Call::Enter { wait, .. }) = (self.polls, &mut call) {
            self.patience.insert(op, now + std::mem::take(wait));
        }
        let mut events = Vec::new();
        self.begin(now, (op, mode), call, &mut events);
        self.carry_out(now, events, history, wishes);
        op
    }

    fn begin(&mut self, now: u64, op: (OpId, Option<Mode>), call: Call, events: &mut Vec<Event>) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.open.insert(ticket, op);
        let now = self.clock.read(now);
        self.session.call(now, ticket, call, events);
    }

    /// Polls for the sections whose time has come, or gives them up.
    fn poll(&mut self, now: u64, history: &mut History, events: &mut Vec<Event>) {
        let due = self.polled.iter().filter(|(_, (at, ..))| *at <= now);
        for (section, (_, op, mode)) in due.map(|(id, due)| (*id, *due)).collect::<Vec<_>>() {
            if self.patience.get(&op).is_some_and(|until| *until > now) {
                self.polled.insert(section, (u64::MAX, op, mode));
                self.begin(now, (op, mode), Call::Poll { section }, events);
                continue;
            }
            self.polled.remove(&section);
            history.complete(now, op, Heard::Failed(Code::WaitOver));
            self.ended.push(op);
            let ticket = Ticket(self.next_ticket);
            self.next_ticket += 1;
            let (now, wait) = (self.clock.read(now), false);
            let leave = Call::Leave { section, wait };
            self.session.call(now, ticket, leave, events);
        }
    }

    fn describe(&self, call: &Call, history: &History) -> (Option<SectionIx>, What) {
        let of = |id: &SectionId| self.known.get(id).copied();
        match call {
            Call::Enter { keys, mode, .. } => (
                None,
                What::Enter {
                    keys: keys.clone(),
                    mode: *mode,
                    resumes: Vec::new(),
                },
            ),
            Call::Resume { held, .. } => {
                let keys = held.iter().map(|h| h.key.clone()).collect();
                let mode = history.mode_of(held);
                let resumes = held.clone();
                let what = What::Enter {
                    keys,
                    mode,
                    resumes,
                };
                (None, what)
            }
            Call::CriticalGet { section, key } => (of(section), What::Get(key.clone())),
            Call::CriticalPut {
                section,
                key,
                value,
            }
            | Call::PutAndLeave {
                section,
                key,
                value,
            } => {
                let put = What::Put {
                    key: key.clone(),
                    number: of(section).map_or(0, |section| history.next_put(section)),
                    value: value.clone(),
                    leave: matches!(call, Call::PutAndLeave { .. }),
                };
                (of(section), put)
            }
            Call::Leave { section, .. } => (of(section), What::Leave),
            Call::Relinquish { section } => (of(section), What::Relinquish),
            Call::Get { key } => (None, What::EventualGet(key.clone())),
            Call::Put { key, value } => (None, What::EventualPut(key.clone(), value.clone())),
            Call::Read { key } => (None, What::Read(key.clone())),
            Call::Write { key, value } => (None, What::Write(key.clone(), value.clone())),
            Call::Release { key, lock_ref } => (None, What::Release(key.clone(), *lock_ref)),
            Call::Queue { key } => (None, What::Queue(key.clone())),
            Call::Keys { keyspace, .. } => (None, What::Keys(*keyspace)),
            Call::Access => (None, What::Access),
            Call::ChangeAccess { after, .. } => (None, What::ChangeAccess(*after)),
            Call::Transact(asked) => (None, What::Transact(asked.clone())),
            Call::Snapshot { parts, when } => (None, What::Snapshot(parts.clone(), *when)),
            other => panic!("the simulator's clients do not call {other:?}"),
        }
    }

    /// A node answered, or the connection broke.
    pub fn hear(
        &mut self,
        now: u64,
        (from, number): (NodeName, u64),
        reply: Option<Reply>,
        history: &mut History,
        wishes: &mut Vec<Wish>,
    ) {
        let mut events = Vec::new();
        let at = self.clock.read(now);
        let endpoint = Endpoint(from.0);
        match reply {
            Some(reply) => self
                .session
                .on_reply(at, endpoint, number, reply, &mut events),
            None => self
                .session
                .on_failure(at, endpoint, number, Failure::Broken, &mut events),
        }
        self.carry_out(now, events, history, wishes);
    }

    /// The time of the session's wake has come.
    pub fn tick(&mut self, now: u64, history: &mut History, wishes: &mut Vec<Wish>) {
        let mut events = Vec::new();
        self.session.tick(self.clock.read(now), &mut events);
        self.poll(now, history, &mut events);
        self.carry_out(now, events, history, wishes);
    }

    /// The true time at which the session wants to be woken.
    pub fn wakes(&self, now: u64) -> Option<u64> {
        let session = self.session.wake();
        let session = session.map(|reading| self.clock.true_time_of(now, reading));
        let poll = self.polled.values().map(|(at, ..)| *at).min();
        let wakes = [session, poll.filter(|at| *at < u64::MAX)];
        wakes.into_iter().flatten().min().filter(|_| self.alive)
    }

    fn carry_out(
        &mut self,
        now: u64,
        events: Vec<Event>,
        history: &mut History,
        wishes: &mut Vec<Wish>,
    ) {
        for event in events {
            match event {
                Event::Send { endpoint, request } => {
                    wishes.push(Wish::Send(NodeName(endpoint.0), request));
                }
                Event::Close { endpoint, number } => {
                    wishes.push(Wish::Close(NodeName(endpoint.0), number));
                }
                Event::Done { ticket, result } => self.done(now, ticket, result, history),
                Event::SectionLost { section, .. } => {
                    if let Some(ix) = self.known.get(&section) {
                        history.over(now, *ix);
                        self.notes.remove(ix);
                    }
                }
                Event::Queued { .. } | Event::LeaseExpired { .. } => {}
            }
        }
    }

    fn done(
        &mut self,
        now: u64,
        ticket: Ticket,
        result: Result<Success, Refusal>,
        history: &mut History,
    ) {
        // An operation of a process that died has nobody to tell.
        let Some((op, mode)) = self.open.remove(&ticket) else {
            return;
        };
        let polled = self.polled.iter().find(|(_, (_, of, _))| *of == op);
        let polled = polled.map(|(section, _)| *section);
        let waits = match &result {
            Ok(Success::Waiting { section, .. }) => Some(*section),
            Err(refusal) if matches!(refusal.code, Code::Unavailable | Code::Busy) => polled,
            _ => None,
        };
        if let Some(section) = waits {
            self.polled.insert(section, (now + POLL, op, mode));
            return;
        }
        polled.and_then(|section| self.polled.remove(&section));
        let outcome = match result {
            Ok(Success::Entered { section, keys }) => {
                self.entered(now, op, section, mode, keys, history);
                Heard::Done(None)
            }
            Ok(Success::Value { value, .. }) => Heard::Value(value),
            Ok(Success::Done { tag }) => Heard::Done(tag),
            Ok(Success::Queue { entries, .. }) => Heard::Queue(entries),
            Ok(Success::Keys(keys)) => Heard::Keys(keys),
            Ok(Success::Access(access)) => Heard::Access(access.version),
            Ok(Success::Transacted(verdict)) => Heard::Transacted(verdict),
            Ok(Success::Snapshot { at, found }) => Heard::Snapshot(at, found),
            Ok(_) => Heard::Done(None),
            Err(refusal) if refusal.may_have_taken_effect => Heard::Unknown(refusal.code),
            Err(refusal) => Heard::Failed(refusal.code),
        };
        history.complete(now, op, outcome);
        self.ended.push(op);
    }

    fn entered(
        &mut self,
        now: u64,
        op: OpId,
        section: SectionId,
        mode: Option<Mode>,
        keys: Vec<fermata_protocol::request::Entered>,
        history: &mut History,
    ) {
        let held: Vec<Held> = keys.iter().map(|k| k.held.clone()).collect();
        // What the entry left out the checkers learn from the section's gets.
        let seen = |k: fermata_protocol::request::Entered| {
            let value = k.value.known()?.cloned();
            Some((k.held.key, value))
        };
        let values = keys.into_iter().filter_map(seen).collect();
        let ix = history.enter(now, op, held.clone(), values);
        self.known.insert(section, ix);
        if mode == Some(Mode::Shared) {
            self.shared.insert(section);
        }
        self.notes.insert(ix, held);
    }
}

fn fresh(name: SessionId, site: u16, nodes: &[NodeName], options: &Options) -> Session {
    let endpoints: Vec<Endpoint> = nodes.iter().map(|n| Endpoint(n.0)).collect();
    Session::new(
        name,
        fermata_protocol::base::SiteId(site),
        &endpoints,
        options.clone(),
    )
}
