//! The main paths against a cluster that the tests play by hand.

mod critical;
mod desks;
mod listings;
mod releases;
mod rings;
mod sections;
mod simple;
mod single;
mod strangers;

use super::*;
use crate::base::{
    self, Address, Directory, Epoch, GroupId, KeyId, Keyspace, KeyspaceId, Label, Limits, LockRef,
    Member, Now, Planted, Reach, Seat, StoragePolicy, Tag, Timing, View,
};
use crate::catalogue::Catalogue;
use crate::command::{Body, Command, LockCommand};
use crate::io::{Effects, Memory, Output, Void};
use crate::lock::{Outcome, Rejection};
use crate::register::Owner;
use crate::registry::Registry;
use crate::request::{
    Critical, EntryValue, Held, Leaving, Mode, NodeStatus, QueueEntry, RefState, Request,
    SecurityStatus,
};
use bytes::Bytes;
use std::collections::BTreeMap as Map;
use std::vec;
use std::vec::Vec;

const BITS: u8 = 4;
const ME: NodeName = NodeName(0);
const SESSION: SessionId = SessionId(77);
const OWN: SessionId = SessionId(1);
const WAIT: Micros = 60_000_000;

struct Cluster {
    catalogue: Catalogue,
    primary: NodeName,
    local: Map<(KeyId, LockRef), AppliedRef>,
    stores: Vec<KeyStore>,
    head: Option<(LockRef, u64)>,
    reach: Option<Reach>,
    known: Known,
}

/// Who is in the cluster and where its groups are.
struct Known {
    cluster: base::Cluster,
    registry: Registry,
    directory: Directory,
    silent: Vec<NodeName>,
    full: Vec<NodeName>,
}

impl Topology for Cluster {
    fn is_newer(&self, format: u16) -> bool {
        format > crate::wire::VERSION
    }
    fn me(&self) -> NodeName {
        ME
    }
    fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }
    fn address(&self, key: &KeyId) -> Option<Address> {
        let rule = self.keyspace(key.keyspace)?.tag_rule;
        Some(Address::of(key.keyspace, rule, &key.key))
    }
    fn segment(&self, key: &KeyId) -> Option<SegmentId> {
        Some(self.address(key)?.segment(BITS))
    }
    fn place(&self, segment: SegmentId, _key: &KeyId) -> Option<register::Place> {
        let member = |name| Member {
            name: NodeName(name),
            site: SiteId(0),
            public_key: None,
        };
        let epoch = Epoch::FIRST;
        Some(register::Place {
            store: register::StoreId { segment, epoch },
            view: View {
                group: GroupId(0),
                epoch,
                seats: (0..3).map(member).collect(),
            },
            order: vec![Seat(0), Seat(1), Seat(2)],
            storage: StoragePolicy::Replicated,
            sources: Vec::new(),
        })
    }
    fn primary(&self, _target: Target) -> Option<NodeName> {
        Some(self.primary)
    }
    fn hears(&self, node: NodeName) -> bool {
        !self.known.silent.contains(&node)
    }
    fn has_room(&self, node: NodeName) -> bool {
        !self.known.full.contains(&node)
    }
    fn last_heard(&self, _node: NodeName) -> Option<Micros> {
        Some(0)
    }
    fn reach(&self, _key: &KeyId) -> Option<Reach> {
        self.reach
    }
    fn members(&self, _target: Target) -> Vec<NodeName> {
        (0..3).map(NodeName).collect()
    }
    fn epoch(&self, _target: Target) -> Epoch {
        Epoch::FIRST
    }
    fn applied_ref(&self, key: &KeyId, lock_ref: LockRef, _generation: u32) -> AppliedRef {
        let state = self.local.get(&(key.clone(), lock_ref));
        state.copied().unwrap_or(AppliedRef::Unknown)
    }
    fn group_sizes(&self) -> Vec<usize> {
        vec![3]
    }

    fn head(&self, _key: &KeyId) -> Option<(LockRef, u64)> {
        self.head
    }
    fn key_stores(&self) -> Vec<KeyStore> {
        self.stores.clone()
    }
    fn ring(&self) -> Ring<'_> {
        Ring {
            cluster: &self.known.cluster,
            registry: &self.known.registry,
            directory: &self.known.directory,
        }
    }
    fn status(&self) -> NodeStatus {
        NodeStatus {
            node: ME,
            label: "me".into(),
            site: SiteId(0),
            writable: true,
            clock: Default::default(),
            alive: Vec::new(),
            logs: Vec::new(),
            requests: 0,
            group_sizes: vec![3],
            settings: None,
            storage: Vec::new(),
            upkeep: Default::default(),
            moving: Default::default(),
            closed: Box::default(),
            sessions: 0,
            security: SecurityStatus::default(),
            version: Default::default(),
            held: Box::default(),
        }
    }
}

struct Empty;

impl Memory for Empty {
    fn get(&self, _key: &[u8]) -> Result<Option<Bytes>, Void> {
        Ok(None)
    }
    fn scan(&self, _: &[u8], _: &[u8], _: usize) -> Vec<(Bytes, Result<Bytes, Void>)> {
        Vec::new()
    }

    fn is_durable(&self, _: &[u8]) -> bool {
        true
    }
}

/// A coordinator and everything around it. `sent` and `replies` are what the last step did.
struct Bench {
    it: Coordinator,
    cluster: Cluster,
    registers: register::Caller,
    timing: Timing,
    limits: Limits,
    now: Micros,
    calls: u64,
    sent: Vec<(NodeName, crate::Message)>,
    replies: Vec<(CallId, Reply)>,
}

impl Bench {
    /// A client enters a section of one key under ref 6, and follows it; the key's segment.
    fn enters_and_follows(&mut self) -> SegmentId {
        let mut operation = enter(&["a"], WAIT);
        if let Operation::Enter { follow, .. } = &mut operation {
            *follow = true;
        }
        self.ask(1, operation);
        let (_, _, segment, command) = self.submitted();
        self.lock(1, self.grant(segment, &command, 6));
        segment
    }

    fn new() -> Bench {
        Bench {
            it: Coordinator::new(OWN, 0),
            cluster: Cluster {
                catalogue: Catalogue::default(),
                primary: NodeName(1),
                local: Map::new(),
                stores: Vec::new(),
                head: None,
                reach: None,
                known: rings::known(),
            },
            registers: register::Caller::new(ME, 7),
            timing: Timing::default(),
            limits: Limits::default(),
            now: 1_000_000,
            calls: 0,
            sent: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// A node hands over what it leads.
    fn drains(&mut self, name: NodeName) {
        let drained = self.cluster.known.registry.drain(name, true);
        drained.expect("a node of the cluster");
    }

    fn step<T>(&mut self, act: impl FnOnce(&mut Coordinator, &mut Cx<'_>) -> T) -> T {
        let mut fx = Effects::new();
        let mut cx = Cx {
            env: Env {
                time: None,
                now: Now {
                    monotonic: self.now,
                    wall: self.now,
                    interval: None,
                },
                fx: &mut fx,
                memory: &Empty,
                timing: &self.timing,
                limits: &self.limits,
                planted: Planted::NONE,
            },
            registers: &mut self.registers,
            topology: &self.cluster,
        };
        let result = act(&mut self.it, &mut cx);
        self.sent.clear();
        self.replies.clear();
        for output in fx.outputs {
            match output {
                Output::Send { to, message, .. } => self.sent.push((to, message)),
                Output::Reply { call, reply, .. } => self.replies.push((call, reply)),
            }
        }
        result
    }

    fn ask(&mut self, number: u64, operation: Operation) -> CallId {
        self.ask_again(number, 0, operation)
    }

    fn ask_again(&mut self, number: u64, attempt: u32, operation: Operation) -> CallId {
        self.request(SESSION, (number, attempt), operation)
    }

    fn ask_as(&mut self, session: SessionId, number: u64, operation: Operation) -> CallId {
        self.request(session, (number, 0), operation)
    }

    fn request(
        &mut self,
        session: SessionId,
        (number, attempt): (u64, u32),
        operation: Operation,
    ) -> CallId {
        self.calls += 1;
        let call = CallId(self.calls);
        let request = Request {
            session,
            number,
            attempt,
            answered_through: number - 1,
            site: SiteId(0),
            operation,
        };
        self.step(|it, cx| it.on_request(call, request, cx));
        call
    }

    fn lock(&mut self, from: u32, message: lock::Message) {
        self.step(|it, cx| it.on_lock(NodeName(from), message, cx));
    }

    fn answer(&mut self, from: u32, call: u64, result: Result<Outcome, Rejection>, ahead: u32) {
        let message = lock::Message::Submitted {
            call,
            result,
            ahead,
        };
        self.lock(from, message);
    }

    fn wait(&mut self, time: Micros) {
        self.now += time;
        self.step(|it, cx| it.tick(cx));
    }

    /// The only command sent by the last step: to whom, call, segment, command.
    fn submitted(&self) -> (NodeName, u64, SegmentId, Command) {
        let all = self.all_submitted();
        assert_eq!(all.len(), 1, "{:?}", self.sent);
        all[0].clone()
    }

    fn all_submitted(&self) -> Vec<(NodeName, u64, SegmentId, Command)> {
        let of = |(to, message): &(NodeName, crate::Message)| match message {
            crate::Message::Lock(lock::Message::Submit {
                call,
                segment,
                command,
            }) => Some((*to, *call, *segment, command.clone())),
            _ => None,
        };
        self.sent.iter().filter_map(of).collect()
    }

    /// The last renewal sent by the last step: its call, refs, and those to be granted again.
    fn renewal(&self) -> (u64, Vec<(LockRef, u32)>, Vec<LockRef>) {
        match self.sent.last() {
            Some((
                _,
                crate::Message::Lock(lock::Message::Renew {
                    call, refs, again, ..
                }),
            )) => (*call, refs.clone(), again.clone()),
            other => panic!("{other:?}"),
        }
    }

    fn renewed(&mut self, call: u64, states: Vec<RefState>) {
        let result = Ok(states);
        self.lock(1, lock::Message::Renewed { call, result });
    }

    fn grant(&self, segment: SegmentId, command: &Command, lock_ref: u64) -> lock::Message {
        let Body::Lock(LockCommand::Enqueue { keys, .. }) = &command.body else {
            panic!("{command:?}");
        };
        let latest = |key: &KeyId| lock::Latest {
            key: key.clone(),
            value: EntryValue::Value(key.key.clone()),
            tag: Tag::ZERO,
        };
        lock::Message::Granted(lock::Grant {
            session: command.session,
            number: command.number,
            segment,
            lock_ref: LockRef(lock_ref),
            generation: 0,
            latest: keys.iter().map(latest).collect(),
            lease: 9_000_000,
        })
    }

    fn reply(&self) -> &Reply {
        assert_eq!(self.replies.len(), 1, "{:?}", self.replies);
        &self.replies[0].1
    }

    fn refusal(&self) -> Refusal {
        match self.reply() {
            Reply::Refused(refusal) => refusal.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Ends the only register operation under way.
    fn register(&mut self, outcome: register::OpEnd) {
        let [(op, Owner::Task(task))] = self.registers.under_way().collect::<Vec<_>>()[..] else {
            panic!("there is one");
        };
        let task = *task;
        self.registers.cancel(op);
        self.step(|it, cx| it.on_register(task, outcome, cx));
    }

    /// Enters with one key; the ref.
    fn entered(&mut self, number: u64, name: &'static str) -> Held {
        self.ask(number, enter(&[name], WAIT));
        let (_, _, segment, command) = self.submitted();
        self.lock(1, self.grant(segment, &command, 10));
        match self.reply() {
            Reply::Entered { keys, .. } => keys[0].held.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Everything that was registered is given back.
    fn quiet(&self) {
        assert!(self.it.tasks.is_empty(), "{:?}", self.it.tasks);
        assert!(self.it.calls.is_empty());
        assert_eq!(self.it.desk.registered(), 0);
        assert_eq!(self.it.wake(), None);
    }
}

fn key(name: &'static str) -> KeyId {
    KeyId {
        keyspace: Keyspace::SECTIONS,
        key: Bytes::from_static(name.as_bytes()),
    }
}

fn held(name: &'static str, lock_ref: u64, generation: u32) -> Held {
    Held {
        key: key(name),
        lock_ref: LockRef(lock_ref),
        generation,
    }
}

fn enter(names: &[&'static str], wait: Micros) -> Operation {
    Operation::Enter {
        keys: names.iter().map(|name| key(name)).collect(),
        mode: Mode::Exclusive,
        wait,
        follow: false,
        lease: None,
        may_return: true,
        label: Label::NONE,
    }
}

fn put(held: &Held, leave: bool) -> Operation {
    Operation::Critical {
        held: held.clone(),
        operation: Critical::Put {
            number: 3,
            value: Some(Bytes::from_static(b"v")),
        },
        leave: if leave {
            vec![(held.clone(), Leaving::Dirty)]
        } else {
            Vec::new()
        },
    }
}

fn leave_of(command: &Command) -> (LockRef, Vec<(KeyId, Option<Tag>)>) {
    match &command.body {
        Body::Lock(LockCommand::Leave {
            lock_ref, clean, ..
        }) => (*lock_ref, clean.clone()),
        other => panic!("{other:?}"),
    }
}

fn enqueued(lock_ref: u64) -> Result<Outcome, Rejection> {
    Ok(Outcome::Enqueued {
        lock_ref: LockRef(lock_ref),
    })
}

#[test]
fn a_hint_is_followed_at_once_with_the_same_command() {
    let mut bench = Bench::new();
    bench.ask(1, enter(&["a"], WAIT));
    let (to, call, _, command) = bench.submitted();
    assert_eq!(to, NodeName(1));
    let hint = Rejection::NotPrimary(Some(NodeName(2)));
    bench.answer(1, call, Err(hint), 0);
    let (to, again, segment, same) = bench.submitted();
    assert_eq!((to, again), (NodeName(2), call));
    assert_eq!(same, command);
    bench.lock(2, bench.grant(segment, &command, 4));
    assert!(matches!(bench.reply(), Reply::Entered { .. }));
    // The next question goes to the one that granted.
    bench.ask(2, Operation::Queue { key: key("a") });
    assert_eq!(bench.sent[0].0, NodeName(2));
}

#[test]
fn a_silent_primary_is_passed_over_and_its_outcome_is_unknown() {
    let mut bench = Bench::new();
    bench.ask(1, enter(&["a"], WAIT));
    let (_, call, _, command) = bench.submitted();
    bench.wait(bench.timing.retry);
    let (to, again, _, same) = bench.submitted();
    assert_ne!(to, NodeName(1));
    assert_eq!((again, &same), (call, &command));
    // It names the dead one: not followed at once.
    let hint = Rejection::NotPrimary(Some(NodeName(1)));
    bench.answer(to.0, call, Err(hint), 0);
    assert!(bench.sent.is_empty());
    while bench.replies.is_empty() {
        bench.wait(bench.timing.retry);
        assert!(bench.all_submitted().iter().all(|s| s.3 == command));
    }
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.may_have_taken_effect);
    // The enqueue comes to light: the client will repeat its request, so it is not left.
    bench.answer(2, call, enqueued(5), 3);
    assert!(bench.sent.is_empty());
    bench.quiet();
}

/// Two nodes name each other: their hints are followed at once a few times, and then after a pause.
#[test]
fn hints_in_a_circle_are_not_followed_without_a_pause() {
    let mut bench = Bench::new();
    bench.ask(1, enter(&["a"], WAIT));
    for round in 0..3 {
        let mut followed = 0;
        while let [(to, call, ..)] = bench.all_submitted()[..] {
            let other = NodeName(3 - to.0);
            bench.answer(to.0, call, Err(Rejection::NotPrimary(Some(other))), 0);
            followed += 1;
            assert!(followed < 10, "for ever");
        }
        assert_eq!(followed, 5, "in round {round}");
        bench.wait(bench.timing.retry / 8 - 1);
        assert!(bench.sent.is_empty());
        bench.wait(1);
    }
}

/// A node comes to lead while it is asked: its refusal may be from before, once.
#[test]
fn a_refusal_that_news_of_its_sender_crosses_is_no_reason_to_pause() {
    let mut bench = Bench::new();
    bench.ask(1, enter(&["a"], WAIT));
    let (to, call, segment, _) = bench.submitted();
    let news = [segment].into();
    bench.step(|it, cx| it.on_news(&news, cx));
    assert!(bench.sent.is_empty(), "it is being asked");
    bench.answer(to.0, call, Err(Rejection::NotPrimary(None)), 0);
    let (again, same, ..) = bench.submitted();
    assert_eq!((again, same), (to, call));
    bench.answer(to.0, call, Err(Rejection::NotPrimary(None)), 0);
    assert!(bench.sent.is_empty(), "it has no news any more");
}

/// Whoever was asked before it led says so: it is asked at once, by whom nobody else has answered,
/// and first from then on.
#[test]
fn who_has_come_to_lead_is_asked_at_once() {
    for awaits in [false, true] {
        let mut bench = Bench::new();
        bench.ask(1, enter(&["a"], WAIT));
        let (to, call, segment, command) = bench.submitted();
        let leads = NodeName(2);
        assert_ne!(to, leads);
        if !awaits {
            bench.answer(to.0, call, Err(Rejection::NotPrimary(None)), 0);
            assert!(bench.sent.is_empty(), "it pauses");
        }
        bench.lock(2, lock::Message::Leads { segment });
        let (again, same, _, repeated) = bench.submitted();
        assert_eq!((again, same, &repeated), (leads, call, &command));
        bench.lock(2, lock::Message::Leads { segment });
        assert!(bench.sent.is_empty(), "it is being asked");
        bench.ask(2, Operation::Queue { key: key("a") });
        assert_eq!(bench.sent[0].0, leads);
    }
}

const ELSEWHERE: register::OpEnd = register::OpEnd::Moved {
    next: Some(Epoch(2)),
    under: None,
    may_have_taken_effect: true,
};
