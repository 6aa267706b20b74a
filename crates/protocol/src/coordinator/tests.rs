//! The main paths against a cluster that the tests play by hand.

use super::*;
use crate::base::{
    Address, Epoch, GroupId, KeyId, Keyspace, KeyspaceId, LockRef, Member, Seat, StoragePolicy,
    Tag, View,
};
use crate::command::{Body, Command, LockCommand};
use crate::io::{Output, Void};
use crate::lock::{Outcome, Rejection};
use crate::request::{
    Critical, EntryValue, Held, Leaving, Mode, NodeStatus, QueueEntry, RefState, Request,
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
    keyspaces: Vec<Keyspace>,
    primary: NodeName,
    local: Map<(KeyId, LockRef), HolderState>,
    groups: Vec<NodeName>,
}

impl Topology for Cluster {
    fn me(&self) -> NodeName {
        ME
    }
    fn keyspace(&self, id: KeyspaceId) -> Option<&Keyspace> {
        self.keyspaces.iter().find(|k| k.id == id)
    }
    fn keyspaces(&self) -> Vec<Keyspace> {
        self.keyspaces.clone()
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
            store: register::Store { segment, epoch },
            view: View {
                group: GroupId(0),
                epoch,
                seats: (0..3).map(member).collect(),
            },
            order: vec![Seat(0), Seat(1), Seat(2)],
            storage: StoragePolicy::Replicated,
        })
    }
    fn primary(&self, _target: Target) -> Option<NodeName> {
        Some(self.primary)
    }
    fn members(&self, _target: Target) -> Vec<NodeName> {
        (0..3).map(NodeName).collect()
    }
    fn epoch(&self, _target: Target) -> Epoch {
        Epoch::FIRST
    }
    fn holder_state(&self, key: &KeyId, lock_ref: LockRef, _generation: u32) -> HolderState {
        let state = self.local.get(&(key.clone(), lock_ref));
        state.copied().unwrap_or(HolderState::Unknown)
    }
    fn group_sizes(&self) -> Vec<usize> {
        vec![3]
    }

    fn one_member_per_group(&self) -> Vec<NodeName> {
        self.groups.clone()
    }
    fn local_keys(
        &self,
        _keyspace: KeyspaceId,
        _prefix: &Bytes,
        _after: Option<&Bytes>,
        limit: usize,
    ) -> Vec<Bytes> {
        vec![Bytes::from_static(b"here"); limit.min(1)]
    }
    fn status(&self) -> NodeStatus {
        NodeStatus {
            node: ME,
            label: "me".into(),
            site: SiteId(0),
            writable: true,
            alive: Vec::new(),
            logs: Vec::new(),
            requests: 0,
            group_sizes: vec![3],
            storage: Vec::new(),
            upkeep: Default::default(),
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
    fn new() -> Bench {
        Bench {
            it: Coordinator::new(OWN),
            cluster: Cluster {
                keyspaces: Keyspace::built_in().into(),
                primary: NodeName(1),
                local: Map::new(),
                groups: vec![NodeName(1), NodeName(2)],
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

    fn step<T>(&mut self, act: impl FnOnce(&mut Coordinator, &mut Cx<'_>) -> T) -> T {
        let mut fx = Effects::new();
        let mut cx = Cx {
            now: Now {
                monotonic: self.now,
                wall: self.now,
                interval: None,
            },
            fx: &mut fx,
            timing: &self.timing,
            limits: &self.limits,
            planted: Planted::NONE,
            registers: &mut self.registers,
            memory: &Empty,
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
        self.calls += 1;
        let call = CallId(self.calls);
        let request = Request {
            session: SESSION,
            number,
            answered_through: number - 1,
            site: SiteId(0),
            operation,
        };
        self.step(|it, cx| it.on_request(call, request, cx));
        call
    }

    fn lock(&mut self, from: u16, message: lock::Message) {
        self.step(|it, cx| it.on_lock(NodeName(from), message, cx));
    }

    fn answer(&mut self, from: u16, call: u64, result: Result<Outcome, Rejection>, ahead: u32) {
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

    fn grant(&self, segment: SegmentId, command: &Command, lock_ref: u64) -> lock::Message {
        let Body::Lock(LockCommand::Enqueue { keys, .. }) = &command.body else {
            panic!("{command:?}");
        };
        let latest = |key: &KeyId| Latest {
            key: key.clone(),
            value: EntryValue::Value(key.key.clone()),
            tag: Tag::ZERO,
        };
        lock::Message::Granted {
            session: command.session,
            number: command.number,
            segment,
            lock_ref: LockRef(lock_ref),
            generation: 0,
            latest: keys.iter().map(latest).collect(),
            lease: 9_000_000,
        }
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
    fn register(&mut self, outcome: register::Outcome) {
        let ops: Vec<_> = self.it.desk.ops.keys().copied().collect();
        assert_eq!(ops.len(), 1);
        assert!(self.step(|it, cx| it.on_register(ops[0], outcome, cx)));
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
        assert_eq!(self.it.wake(), Wake::default());
    }
}

fn key(name: &'static str) -> KeyId {
    KeyId {
        keyspace: Keyspace::SECTIONS,
        key: Bytes::from_static(name.as_bytes()),
    }
}

fn enter(names: &[&'static str], wait: Micros) -> Operation {
    Operation::Enter {
        keys: names.iter().map(|name| key(name)).collect(),
        mode: Mode::Exclusive,
        wait,
        follow: false,
        lease: None,
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
fn keys_are_locked_in_order_one_segment_after_the_other_and_told_in_the_clients_order() {
    let names = ["a", "b", "c", "d", "a"];
    let mut bench = Bench::new();
    bench.ask(1, enter(&names, WAIT));
    let mut segments = Vec::new();
    while bench.replies.is_empty() {
        let (_, _, segment, command) = bench.submitted();
        assert_eq!(command.number, command_number(1, STEP_FIRST));
        segments.push(segment);
        let lock_ref = 10 + u64::from(segment.0);
        bench.lock(1, bench.grant(segment, &command, lock_ref));
    }
    let mut sorted = segments.clone();
    sorted.sort();
    assert_eq!(segments, sorted);
    let Reply::Entered { keys, lease } = bench.reply() else {
        panic!("{:?}", bench.replies);
    };
    let told: Vec<Bytes> = keys.iter().map(|k| k.held.key.key.clone()).collect();
    assert_eq!(told, ["a", "b", "c", "d"].map(Bytes::from_static_str));
    assert!(
        keys.iter()
            .all(|k| k.value == EntryValue::Value(k.held.key.key.clone()))
    );
    assert_eq!(*lease, 9_000_000);
    bench.quiet();
}

trait StaticStr {
    fn from_static_str(text: &'static str) -> Bytes;
}

impl StaticStr for Bytes {
    fn from_static_str(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }
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

#[test]
fn a_wait_is_told_renewed_and_given_up() {
    let mut bench = Bench::new();
    let call_id = bench.ask(1, enter(&["a"], 2_000_000));
    let (_, call, segment, _) = bench.submitted();
    bench.answer(1, call, enqueued(8), 2);
    assert!(matches!(bench.reply(), Reply::Queued { ahead: 2, .. }));
    bench.wait(2 * bench.timing.retry);
    let (_, crate::Message::Lock(lock::Message::Renew { call, again, .. })) = &bench.sent[0] else {
        panic!("{:?}", bench.sent);
    };
    assert_eq!(again, &[LockRef(8)]);
    let renewed = lock::Message::Renewed {
        call: *call,
        result: Ok(vec![RefState::Queued { ahead: 1 }]),
    };
    bench.lock(1, renewed);
    assert!(matches!(bench.reply(), Reply::Queued { ahead: 1, .. }));
    bench.wait(600_000);
    assert_eq!(bench.replies[0].0, call_id);
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::WaitOver);
    assert!(!refusal.may_have_taken_effect);
    let (_, call, left, command) = bench.submitted();
    assert_eq!(
        (left, leave_of(&command)),
        (segment, (LockRef(8), Vec::new()))
    );
    bench.wait(bench.timing.retry);
    assert_eq!(bench.submitted().3, command, "sent until it is answered");
    bench.answer(1, call, Ok(Outcome::Left { clean: true }), 0);
    bench.quiet();
}

#[test]
fn without_waiting_the_ref_stays() {
    let mut bench = Bench::new();
    bench.ask(1, enter(&["a"], 0));
    let (_, call, ..) = bench.submitted();
    bench.answer(1, call, enqueued(8), 2);
    let Reply::Queued { held, ahead: 2 } = bench.reply() else {
        panic!("{:?}", bench.replies);
    };
    assert_eq!(held[0].lock_ref, LockRef(8));
    assert!(bench.sent.is_empty());
    bench.quiet();
    // The poll finds it gone.
    bench.ask(1, enter(&["a"], 0));
    let (_, call, ..) = bench.submitted();
    bench.answer(1, call, enqueued(8), 0);
    let (_, crate::Message::Lock(lock::Message::Renew { call, .. })) = &bench.sent[0] else {
        panic!("{:?}", bench.sent);
    };
    let renewed = lock::Message::Renewed {
        call: *call,
        result: Ok(vec![RefState::Gone]),
    };
    bench.lock(1, renewed);
    assert_eq!(bench.refusal().code, Code::NoLongerHolder);
}

#[test]
fn a_cancelled_wait_is_forgotten_and_not_left() {
    let mut bench = Bench::new();
    let call = bench.ask(1, enter(&["a"], WAIT));
    let (_, _, segment, command) = bench.submitted();
    bench.step(|it, cx| it.on_cancel(call, cx));
    bench.quiet();
    // The client may have repeated the request at another node and be in the section there.
    let grant = bench.grant(segment, &command, 6);
    bench.lock(1, grant);
    assert!(
        bench.sent.is_empty(),
        "only the client's own word ends a section"
    );
}

#[test]
fn a_resumed_section_has_a_new_generation_and_is_followed() {
    let mut bench = Bench::new();
    let held = Held {
        key: key("a"),
        lock_ref: LockRef(6),
        generation: 1,
    };
    bench.ask(1, Operation::Resume { held: vec![held] });
    let (_, call, segment, command) = bench.submitted();
    bench.answer(1, call, Ok(Outcome::Resumed { generation: 2 }), 0);
    let granted = lock::Message::Granted {
        session: SESSION,
        number: command.number,
        segment,
        lock_ref: LockRef(6),
        generation: 2,
        latest: vec![Latest {
            key: key("a"),
            value: EntryValue::Absent,
            tag: Tag::ZERO,
        }],
        lease: 1,
    };
    bench.lock(1, granted);
    let Reply::Entered { keys, .. } = bench.reply() else {
        panic!("{:?}", bench.replies);
    };
    assert_eq!(keys[0].held.generation, 2);
    let lost = |generation| lock::Message::Lost {
        session: SESSION,
        segment,
        lock_ref: LockRef(6),
        generation,
    };
    bench.lock(1, lost(1));
    assert!(bench.replies.is_empty(), "only its earlier life is over");
    bench.lock(1, lost(2));
    assert!(matches!(bench.reply(), Reply::Lost { .. }));
    bench.quiet();
}

#[test]
fn a_repeated_enter_keeps_its_ref_when_the_first_call_is_cancelled() {
    let mut bench = Bench::new();
    let first = bench.ask(1, enter(&["a"], WAIT));
    let (_, call, segment, command) = bench.submitted();
    bench.answer(1, call, enqueued(6), 1);
    bench.ask(1, enter(&["a"], WAIT));
    bench.step(|it, cx| it.on_cancel(first, cx));
    assert!(bench.sent.is_empty());
    bench.lock(1, bench.grant(segment, &command, 6));
    assert!(matches!(bench.reply(), Reply::Entered { .. }));
}

#[test]
fn a_loss_ends_a_followed_section_and_its_pass() {
    let mut bench = Bench::new();
    let mut operation = enter(&["a"], WAIT);
    if let Operation::Enter { follow, .. } = &mut operation {
        *follow = true;
    }
    bench.ask(1, operation);
    let (_, _, segment, command) = bench.submitted();
    bench.lock(1, bench.grant(segment, &command, 6));
    assert_eq!(bench.it.open(), 1);
    let lost = lock::Message::Lost {
        session: SESSION,
        segment,
        lock_ref: LockRef(6),
        generation: 0,
    };
    bench.lock(1, lost);
    assert!(matches!(bench.reply(), Reply::Lost { .. }));
    assert_eq!(
        bench.it.desk.passes.seen(segment, LockRef(6), 0, &key("a")),
        None
    );
    bench.quiet();
}

#[test]
fn put_and_leave_leaves_cleanly_after_the_quorum() {
    let mut bench = Bench::new();
    let held = bench.entered(1, "a");
    bench.ask(2, put(&held, true));
    assert!(bench.all_submitted().is_empty(), "the put comes first");
    let tag = Tag::critical(held.lock_ref, 0, 3, SESSION);
    bench.register(register::Outcome::Stored { tag });
    let (_, call, _, command) = bench.submitted();
    let clean = vec![(held.key.clone(), Some(tag))];
    assert_eq!(leave_of(&command), (held.lock_ref, clean));
    assert_eq!(command.number, command_number(2, STEP_LEAVE));
    bench.answer(1, call, Ok(Outcome::Left { clean: true }), 0);
    assert_eq!(*bench.reply(), Reply::Left);
    bench.quiet();
}

#[test]
fn a_put_that_fails_leaves_dirty() {
    let mut bench = Bench::new();
    let held = bench.entered(1, "a");
    bench.ask(2, put(&held, true));
    bench.register(register::Outcome::Unavailable {
        may_have_taken_effect: true,
    });
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.may_have_taken_effect);
    assert_eq!(leave_of(&bench.submitted().3), (held.lock_ref, Vec::new()));
}

#[test]
fn a_repeated_put_and_leave_learns_from_the_record_how_it_left() {
    for (outcome, unsure) in [
        (Outcome::Left { clean: true }, None),
        (Outcome::Left { clean: false }, Some(true)),
        (Outcome::Gone, Some(false)),
    ] {
        let mut bench = Bench::new();
        let held = Held {
            key: key("a"),
            lock_ref: LockRef(10),
            generation: 0,
        };
        let at = (held.key.clone(), held.lock_ref);
        bench.cluster.local.insert(at, HolderState::Past);
        bench.ask(2, put(&held, true));
        let (_, call, _, command) = bench.submitted();
        assert_eq!(command.number, command_number(2, STEP_LEAVE));
        bench.answer(1, call, Ok(outcome), 0);
        match unsure {
            None => assert_eq!(*bench.reply(), Reply::Left),
            Some(unsure) => {
                assert_eq!(bench.refusal().code, Code::NoLongerHolder);
                assert_eq!(bench.refusal().may_have_taken_effect, unsure);
            }
        }
        bench.quiet();
    }
}

#[test]
fn the_gate_asks_the_primary_where_nothing_is_known() {
    let held = Held {
        key: key("a"),
        lock_ref: LockRef(10),
        generation: 0,
    };
    let entry = |mode, holds| QueueEntry {
        lock_ref: LockRef(10),
        generation: 0,
        session: SESSION,
        mode,
        site: SiteId(0),
        since: 0,
        holds,
    };
    for (entries, code) in [
        (vec![entry(Mode::Exclusive, true)], None),
        (vec![entry(Mode::Exclusive, false)], Some(Code::NotHolder)),
        (vec![entry(Mode::Shared, true)], Some(Code::ReadOnlySection)),
        (Vec::new(), Some(Code::NoLongerHolder)),
    ] {
        let mut bench = Bench::new();
        bench.ask(2, put(&held, false));
        let (_, crate::Message::Lock(lock::Message::Queue { call, .. })) = &bench.sent[0] else {
            panic!("{:?}", bench.sent);
        };
        let queue = lock::Message::QueueIs {
            call: *call,
            result: Ok((entries, None)),
        };
        bench.lock(1, queue);
        match code {
            Some(code) => {
                assert_eq!(bench.refusal().code, code);
                assert!(!bench.refusal().may_have_taken_effect);
            }
            None => {
                let tag = Tag::critical(LockRef(10), 0, 3, SESSION);
                bench.register(register::Outcome::Stored { tag });
                assert_eq!(*bench.reply(), Reply::Done { tag: Some(tag) });
            }
        }
        bench.quiet();
    }
}

#[test]
fn a_put_is_tried_again_while_replicas_lag_and_its_doubt_is_kept() {
    let mut bench = Bench::new();
    let held = bench.entered(1, "a");
    bench.ask(2, put(&held, false));
    bench.register(register::Outcome::NotHolder {
        may_have_taken_effect: true,
    });
    assert!(bench.replies.is_empty());
    bench.wait(bench.timing.retry);
    bench.register(register::Outcome::Past {
        may_have_taken_effect: false,
    });
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::NoLongerHolder);
    assert!(refusal.may_have_taken_effect);
    bench.quiet();
}

const ELSEWHERE: register::Outcome = register::Outcome::Moved {
    next: Some(Epoch(2)),
    may_have_taken_effect: true,
};

/// The asks that a register operation sends to the first member.
fn asked(bench: &Bench) -> Vec<register::Ask> {
    let to_first = bench.sent.iter().filter(|(to, _)| *to == NodeName(0));
    let ask = |(_, message): &(NodeName, crate::Message)| match message {
        crate::Message::Register(register::Message::Ask { ask, .. }) => Some(ask.clone()),
        _ => None,
    };
    to_first.filter_map(ask).collect()
}

#[test]
fn what_an_epoch_that_has_ended_stopped_starts_again_under_the_same_name() {
    let mut bench = Bench::new();
    let held = bench.entered(1, "a");
    bench.ask(2, put(&held, false));
    let first = asked(&bench);
    assert!(matches!(first[..], [register::Ask::Store { .. }]));
    bench.register(ELSEWHERE);
    assert!(bench.sent.is_empty(), "not in the same instant");
    bench.wait(bench.timing.retry);
    assert_eq!(asked(&bench), first, "the same tag");
    let tag = Tag::critical(held.lock_ref, 0, 3, SESSION);
    bench.register(register::Outcome::Stored { tag });
    assert_eq!(*bench.reply(), Reply::Done { tag: Some(tag) });
    let operation = Critical::Get;
    let leave = Vec::new();
    let get = Operation::Critical {
        held,
        operation,
        leave,
    };
    let mut register = key("r");
    register.keyspace = Keyspace::REGISTERS;
    let write = Operation::Write {
        key: register.clone(),
        value: None,
    };
    // A write begins with its round of tags again: its writer is in the operation, not in the ask.
    for (number, operation) in [(3, get), (4, Operation::Read { key: register }), (5, write)] {
        bench.ask(number, operation);
        let first = asked(&bench);
        assert!(matches!(first[..], [register::Ask::Read { .. }]));
        bench.register(ELSEWHERE);
        bench.wait(bench.timing.retry);
        assert_eq!(asked(&bench), first, "from the start");
        let (value, tag) = (None, Tag::ZERO);
        bench.register(match number {
            5 => register::Outcome::Stored { tag },
            _ => register::Outcome::Value { value, tag },
        });
        assert_eq!(bench.replies.len(), 1);
    }
    bench.quiet();
}

#[test]
fn going_on_in_the_next_epoch_ends_at_the_deadline_with_the_doubt_of_every_try() {
    let mut bench = Bench::new();
    let held = bench.entered(1, "a");
    bench.ask(2, put(&held, false));
    let mut tries = 0;
    bench.register(ELSEWHERE);
    while bench.replies.is_empty() {
        bench.wait(bench.timing.retry);
        if !bench.it.desk.ops.is_empty() {
            tries += 1;
            bench.register(register::Outcome::Moved {
                next: None,
                may_have_taken_effect: false,
            });
        }
        assert!(tries < 1_000, "bounded by the deadline");
    }
    assert!(tries > 1);
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.may_have_taken_effect, "of the first try");
    bench.quiet();
}

#[test]
fn an_eventual_put_starts_again_only_where_it_had_no_effect() {
    let put = || Operation::Put {
        key: key("e"),
        value: None,
    };
    let mut bench = Bench::new();
    bench.ask(1, put());
    bench.register(register::Outcome::Moved {
        next: Some(Epoch(2)),
        may_have_taken_effect: false,
    });
    bench.wait(bench.timing.retry);
    assert_eq!(asked(&bench).len(), 1, "again");
    bench.register(ELSEWHERE);
    assert_eq!(bench.refusal().code, Code::Unavailable);
    assert!(bench.refusal().may_have_taken_effect);
    bench.quiet();
    bench.ask(2, put());
    bench.register(register::Outcome::Locked);
    assert_eq!(bench.refusal().code, Code::Locked);
    assert!(!bench.refusal().may_have_taken_effect);
    bench.quiet();
}

#[test]
fn leaving_waits_for_every_segment() {
    let mut bench = Bench::new();
    let held = |name, lock_ref| Held {
        key: key(name),
        lock_ref: LockRef(lock_ref),
        generation: 0,
    };
    let keys = vec![
        (held("a", 3), Leaving::Clean(None)),
        (held("b", 4), Leaving::Dirty),
    ];
    bench.ask(5, Operation::Leave { keys });
    let sent = bench.all_submitted();
    assert_eq!(sent.len(), 2);
    bench.answer(1, sent[0].1, Ok(Outcome::Left { clean: true }), 0);
    assert!(bench.replies.is_empty());
    bench.answer(1, sent[1].1, Ok(Outcome::Gone), 0);
    assert_eq!(bench.refusal().code, Code::NoLongerHolder);
    assert!(!bench.refusal().may_have_taken_effect);
    bench.quiet();
}

#[test]
fn renewals_are_the_primarys_and_silence_is_unknown() {
    let mut bench = Bench::new();
    let held = |name, lock_ref| Held {
        key: key(name),
        lock_ref: LockRef(lock_ref),
        generation: 0,
    };
    let refs = vec![held("a", 3), held("b", 4)];
    bench.ask(5, Operation::Renew { held: refs });
    let (_, crate::Message::Lock(lock::Message::Renew { call, refs, .. })) = &bench.sent[1] else {
        panic!("{:?}", bench.sent);
    };
    assert_eq!(refs, &[(LockRef(4), 0)]);
    let holding = RefState::Holding { lease: 5 };
    let renewed = lock::Message::Renewed {
        call: *call,
        result: Ok(vec![holding]),
    };
    bench.lock(1, renewed);
    while bench.replies.is_empty() {
        bench.wait(bench.timing.retry);
    }
    let states = vec![RefState::Unknown, holding];
    assert_eq!(*bench.reply(), Reply::Renewed { states });
    bench.quiet();
}

#[test]
fn a_forced_release_waits_for_the_lease() {
    let mut bench = Bench::new();
    let operation = Operation::Release {
        key: key("a"),
        lock_ref: LockRef(3),
    };
    bench.ask(5, operation);
    let (_, call, _, command) = bench.submitted();
    bench.answer(1, call, Err(Rejection::Leased(4_000_000)), 0);
    bench.wait(3_900_000);
    assert!(bench.sent.is_empty());
    bench.wait(100_000);
    assert_eq!(bench.submitted().3, command);
    bench.answer(1, call, Ok(Outcome::Done), 0);
    assert_eq!(*bench.reply(), Reply::Done { tag: None });
    bench.quiet();
}

#[test]
fn a_write_to_a_section_keyspace_is_a_section_of_its_own() {
    let mut bench = Bench::new();
    let operation = Operation::Write {
        key: key("a"),
        value: None,
    };
    bench.ask(9, operation.clone());
    let (_, _, segment, command) = bench.submitted();
    assert_eq!(command.session, SESSION);
    bench.lock(1, bench.grant(segment, &command, 6));
    let tag = Tag::critical(LockRef(6), 0, 1, SESSION);
    bench.register(register::Outcome::Stored { tag });
    assert_eq!(*bench.reply(), Reply::Done { tag: Some(tag) });
    let (_, call, _, leave) = bench.submitted();
    let clean = vec![(key("a"), Some(tag))];
    assert_eq!(leave_of(&leave), (LockRef(6), clean));
    // The session has gone on and forgotten it: the coordinator's own session does it.
    let forgotten = Refusal::definite(Code::Forgotten, "forgotten");
    bench.answer(1, call, Ok(Outcome::Refused(forgotten)), 0);
    let (_, call, _, again) = bench.submitted();
    assert_eq!(again.session, OWN);
    assert_eq!(again.body, leave.body);
    bench.answer(1, call, Ok(Outcome::Left { clean: true }), 0);
    bench.quiet();
    // A retry finds the ref gone and learns that it has been done.
    bench.ask(9, operation);
    let (_, call, ..) = bench.submitted();
    bench.answer(1, call, Ok(Outcome::Gone), 0);
    let (_, call, _, probe) = bench.submitted();
    assert_eq!((probe.session, probe.number), (leave.session, leave.number));
    bench.answer(1, call, Ok(Outcome::Left { clean: true }), 0);
    assert!(matches!(bench.reply(), Reply::Done { .. }));
    bench.quiet();
}

#[test]
fn a_read_of_a_section_keyspace_is_the_coordinators_own() {
    let mut bench = Bench::new();
    bench.ask(9, Operation::Read { key: key("a") });
    let (_, _, segment, command) = bench.submitted();
    assert_eq!(command.session, OWN);
    bench.lock(1, bench.grant(segment, &command, 6));
    assert!(matches!(bench.reply(), Reply::Value { value: Some(_), .. }));
    let (_, call, _, leave) = bench.submitted();
    assert_eq!(leave_of(&leave), (LockRef(6), vec![(key("a"), None)]));
    bench.answer(1, call, Ok(Outcome::Left { clean: true }), 0);
    bench.quiet();
}

#[test]
fn keys_of_all_groups_are_merged() {
    let mut bench = Bench::new();
    let operation = Operation::Keys {
        keyspace: Keyspace::SECTIONS,
        prefix: Bytes::new(),
        after: None,
        limit: 3,
    };
    bench.ask(9, operation);
    bench.wait(bench.timing.retry);
    let of = |(to, message): &(NodeName, crate::Message)| match message {
        crate::Message::Coordinator(Message::Keys { call, .. }) => (*to, *call),
        other => panic!("{other:?}"),
    };
    let asked: Vec<(NodeName, u64)> = bench.sent.iter().map(of).collect();
    let lists: [&[&'static str]; 2] = [&["a", "c", "e"], &["b", "c"]];
    for ((from, call), names) in asked.into_iter().zip(lists) {
        let keys = names.iter().map(|n| Bytes::from_static_str(n)).collect();
        let answer = Message::KeysAre { call, keys };
        bench.step(|it, cx| it.on_coordinator(from, answer, cx));
    }
    let merged = ["a", "b", "c"].map(Bytes::from_static_str).to_vec();
    assert_eq!(*bench.reply(), Reply::Keys(merged));
    bench.quiet();
}

#[test]
fn a_keyspace_is_created_by_the_catalogues_keeper() {
    let mut bench = Bench::new();
    let [mut keyspace, _] = Keyspace::built_in();
    keyspace.name = "jobs".into();
    bench.ask(9, Operation::CreateKeyspace(keyspace.clone()));
    let (to, crate::Message::Coordinator(Message::Propose { call, .. })) = bench.sent[0] else {
        panic!("{:?}", bench.sent);
    };
    let result = Ok(Outcome::Done);
    bench.step(|it, cx| it.on_coordinator(to, Message::Proposed { call, result }, cx));
    assert_eq!(*bench.reply(), Reply::Done { tag: None });
    keyspace.name = "No good".into();
    bench.ask(10, Operation::CreateKeyspace(keyspace));
    assert_eq!(bench.refusal().code, Code::BadRequest);
    bench.quiet();
}

#[test]
fn bad_requests_change_nothing() {
    let mut bench = Bench::new();
    bench.limits.requests = 1;
    let register = KeyId {
        keyspace: Keyspace::REGISTERS,
        key: Bytes::from_static(b"r"),
    };
    let unknown = KeyId {
        keyspace: KeyspaceId(99),
        key: Bytes::from_static(b"r"),
    };
    let large = Some(Bytes::from(vec![0; bench.limits.value + 1]));
    for (operation, code) in [
        (enter(&[], WAIT), Code::BadRequest),
        (enter(&[""], WAIT), Code::TooLarge),
        (Operation::Get { key: register }, Code::WrongPurpose),
        (Operation::Read { key: unknown }, Code::NoSuchKeyspace),
        (
            Operation::Put {
                key: key("a"),
                value: large,
            },
            Code::TooLarge,
        ),
    ] {
        bench.ask(1, operation);
        assert_eq!(bench.refusal().code, code);
        assert!(!bench.refusal().may_have_taken_effect);
        assert!(bench.sent.is_empty());
    }
    bench.quiet();
    bench.ask(1, enter(&["a"], WAIT));
    bench.ask(2, enter(&["a"], WAIT));
    assert_eq!(bench.refusal().code, Code::Busy);
}

#[test]
fn the_values_of_all_segments_together_are_bounded() {
    let mut bench = Bench::new();
    bench.limits.grant = 2;
    bench.ask(1, enter(&["a", "b", "c", "d"], WAIT));
    let mut values = 0;
    while bench.replies.is_empty() {
        let (_, _, segment, command) = bench.submitted();
        // Every grant keeps the bound by itself.
        let mut grant = bench.grant(segment, &command, 10 + u64::from(segment.0));
        if let lock::Message::Granted { latest, .. } = &mut grant {
            for beyond in latest.iter_mut().skip(2) {
                beyond.value = EntryValue::Omitted;
            }
            values += latest.len().min(2);
        }
        bench.lock(1, grant);
    }
    assert!(values > 2, "the keys are in several segments");
    let Reply::Entered { keys, .. } = bench.reply() else {
        panic!("{:?}", bench.replies);
    };
    assert_eq!(keys.len(), 4, "every key is named");
    assert_eq!(keys.iter().filter(|k| k.value.is_omitted()).count(), 2);
    bench.quiet();
}

#[test]
fn a_read_whose_value_the_grant_left_out_gets_it() {
    let mut bench = Bench::new();
    bench.ask(9, Operation::Read { key: key("a") });
    let (_, _, segment, command) = bench.submitted();
    let mut grant = bench.grant(segment, &command, 6);
    if let lock::Message::Granted { latest, .. } = &mut grant {
        latest[0].value = EntryValue::Omitted;
    }
    bench.lock(1, grant);
    assert!(bench.replies.is_empty(), "{:?}", bench.replies);
    bench.register(register::Outcome::Value {
        value: Some(Bytes::from_static(b"large")),
        tag: Tag::ZERO,
    });
    let value = Some(Bytes::from_static(b"large"));
    let tag = Tag::ZERO;
    assert_eq!(*bench.reply(), Reply::Value { value, tag });
    let (_, call, _, leave) = bench.submitted();
    assert_eq!(leave_of(&leave), (LockRef(6), vec![(key("a"), None)]));
    bench.answer(1, call, Ok(Outcome::Left { clean: true }), 0);
    bench.quiet();
}

#[test]
fn a_release_that_has_ended_a_lease_is_never_refused_as_without_effect() {
    for rejection in [
        Rejection::Busy,
        Rejection::DiskFull,
        Rejection::NotPrimary(None),
    ] {
        let mut bench = Bench::new();
        let lock_ref = LockRef(6);
        bench.ask(
            1,
            Operation::Release {
                key: key("a"),
                lock_ref,
            },
        );
        let (to, call, ..) = bench.submitted();
        // The holder's lease is renewed no more, and runs out.
        bench.answer(to.0, call, Err(Rejection::Leased(1_000_000)), 0);
        while bench.replies.is_empty() {
            bench.wait(bench.timing.retry);
            if let Some((to, call, ..)) = bench.all_submitted().first() {
                bench.answer(to.0, *call, Err(rejection.clone()), 0);
            }
        }
        let refusal = bench.refusal();
        assert!(refusal.may_have_taken_effect, "{refusal:?}");
        bench.quiet();
    }
}

#[test]
fn a_resume_waits_for_the_lease_of_its_former_generation_and_says_so() {
    let held = Held {
        key: key("a"),
        lock_ref: LockRef(6),
        generation: 1,
    };
    let mut bench = Bench::new();
    bench.ask(
        1,
        Operation::Resume {
            held: vec![held.clone()],
        },
    );
    let (_, call, ..) = bench.submitted();
    let resumed = Outcome::Resumed { generation: 2 };
    bench.answer(1, call, Ok(resumed), 0);
    assert!(matches!(bench.reply(), Reply::Queued { .. }));
    bench.wait(bench.timing.request);
    assert!(bench.replies.is_empty(), "it goes on");
    while bench.replies.is_empty() {
        bench.wait(bench.timing.request);
    }
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.may_have_taken_effect);
    assert!(
        refusal.detail.contains("former generation") && refusal.detail.contains("same number"),
        "{refusal:?}"
    );
    bench.quiet();
    // Whoever resumes the old generation again is told that it is gone.
    bench.ask(2, Operation::Resume { held: vec![held] });
    let (_, call, ..) = bench.submitted();
    bench.answer(1, call, Ok(Outcome::Gone), 0);
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::NoLongerHolder);
    assert!(!refusal.may_have_taken_effect);
    assert!(refusal.detail.contains("gone"), "{refusal:?}");
    bench.quiet();
}

#[test]
fn a_heartbeat_names_the_refs_of_more_than_one_section() {
    let mut bench = Bench::new();
    let held = |lock_ref| Held {
        key: key("a"),
        lock_ref: LockRef(lock_ref),
        generation: 0,
    };
    let refs = 4 * bench.limits.section_keys as u64;
    let held = (1..=refs).map(held).collect();
    bench.ask(1, Operation::Renew { held });
    let (_, crate::Message::Lock(lock::Message::Renew { call, refs, .. })) = &bench.sent[0] else {
        panic!("{:?}", bench.sent);
    };
    let states = vec![RefState::Gone; refs.len()];
    let renewed = lock::Message::Renewed {
        call: *call,
        result: Ok(states),
    };
    bench.lock(1, renewed);
    assert!(matches!(bench.reply(), Reply::Renewed { states } if states.len() == 256));
    bench.quiet();
}
