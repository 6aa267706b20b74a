//! Whole nodes over memory that is always durable and a network that loses nothing: the shortest
//! way through every room. Faults are the simulator's business.

#[path = "node_three_nodes/convert.rs"]
mod convert;
#[path = "node_three_nodes/memory.rs"]
mod memory;
#[path = "common/nodes.rs"]
mod nodes;

use bytes::Bytes;
use fermata_protocol::base::{
    Config, Epoch, GroupId, KeyId, Keyspace, KeyspaceId, Label, Limits, LockRef, LogId, NodeName,
    Planted, Scope, SegmentId, SessionId, SiteId, Timing, View,
};
use fermata_protocol::catalogue::Catalogue;
use fermata_protocol::command::{Body, Command, GroupCommand};
use fermata_protocol::request::{Code, Critical, EntryValue, Held, Leaving, Mode};
use fermata_protocol::wire::record::LogRecord;
use fermata_protocol::wire::{self, record};
use fermata_protocol::{
    CallId, Effects, Input, Memory, Message, Node, Operation, Output, Reply, Request, Write,
    coordinator,
};
use nodes::{Ram, at, config, fresh};
use std::collections::VecDeque;

/// There are four segments.
const BITS: u8 = 2;

struct Small {
    nodes: Vec<(Node, Ram)>,
    inputs: VecDeque<(usize, Input)>,
    replies: Vec<(CallId, Reply)>,
    now: u64,
    dead: Option<usize>,
    /// Who has stopped, and why.
    halted: Option<(usize, String)>,
}

impl Small {
    fn new(n: u32) -> Small {
        Small::with(n, Limits::default())
    }

    fn with(n: u32, limits: Limits) -> Small {
        Small::planted(n, limits, Planted::NONE)
    }

    fn planted(n: u32, limits: Limits, planted: Planted) -> Small {
        Small::of(n, |i| Config {
            planted,
            limits: limits.clone(),
            ..config(i, n, BITS)
        })
    }

    fn of(n: u32, config: impl Fn(u32) -> Config) -> Small {
        let nodes = (0..n).map(|i| fresh(config(i))).collect();
        let mut small = Small {
            nodes,
            inputs: VecDeque::new(),
            replies: Vec::new(),
            now: 0,
            dead: None,
            halted: None,
        };
        small.run(2_000_000);
        small
    }

    fn step(&mut self, i: usize, input: Input) {
        if self.dead == Some(i) {
            return;
        }
        let (node, ram) = &mut self.nodes[i];
        let mut fx = Effects::new();
        node.step(at(self.now), input, ram, &mut fx);
        ram.append(fx.writes);
        if let Some(why) = fx.halt {
            assert!(self.halted.is_none(), "{why}");
            self.halted = Some((i, why));
            self.dead = Some(i);
            return;
        }
        let from = node.id();
        for output in fx.outputs {
            match output {
                Output::Send { to, message, .. } => {
                    self.inputs
                        .push_back((to.0 as usize, Input::Message { from, message }));
                }
                Output::Reply { call, reply, .. } => self.replies.push((call, reply)),
            }
        }
    }

    /// Runs for a while of virtual time; messages take none. Nobody stops.
    fn run(&mut self, micros: u64) {
        assert_eq!(self.run_until_halt(micros), None);
    }

    /// The same; who has stopped meanwhile, and why.
    fn run_until_halt(&mut self, micros: u64) -> Option<(usize, String)> {
        let end = self.now + micros;
        while self.now < end {
            while let Some((i, input)) = self.inputs.pop_front() {
                self.step(i, input);
            }
            self.now += 10_000;
            for i in 0..self.nodes.len() {
                if self.nodes[i].0.wake().is_some_and(|at| at <= self.now) {
                    self.step(i, Input::Tick);
                }
            }
        }
        self.halted.take()
    }

    /// Begins request `number` of `session`, which is the number of its call, too.
    fn begin(&mut self, i: usize, session: u128, number: u64, operation: Operation) {
        let request = Request {
            session: SessionId(session),
            number,
            attempt: 0,
            answered_through: number - 1,
            site: SiteId(0),
            operation,
        };
        let call = CallId(number);
        self.step(i, Input::Request { call, request });
    }

    /// Proposes a command of a group to all nodes, as a peer's coordinator does: whoever leads
    /// takes it, and nobody waits for its outcome.
    fn propose_everywhere(&mut self, command: &Command) {
        let from = self.nodes[0].0.id();
        for i in 0..self.nodes.len() {
            let command = command.clone();
            let message = Message::Coordinator(coordinator::Message::Propose { call: 0, command });
            self.inputs.push_back((i, Input::Message { from, message }));
        }
    }

    /// The last answer to a call so far.
    fn answer(&self, number: u64) -> Reply {
        let mut answers = self.replies.iter().rev();
        let last = answers.find(|(call, _)| *call == CallId(number));
        last.unwrap_or_else(|| panic!("no answer to request {number}"))
            .1
            .clone()
    }

    fn is_answered(&self, number: u64) -> bool {
        self.replies.iter().any(|(call, _)| *call == CallId(number))
    }

    fn ask(&mut self, i: usize, number: u64, operation: Operation) -> Reply {
        self.begin(i, 9, number, operation);
        self.run(1_000_000);
        self.answer(number)
    }

    /// Refs in the queue of a key.
    fn queued(&mut self, number: u64, name: &str) -> usize {
        match self.ask(0, number, Operation::Queue { key: key(name) }) {
            Reply::Queue { entries, .. } => entries.len(),
            other => panic!("{other:?}"),
        }
    }
}

fn key(name: &str) -> KeyId {
    KeyId {
        keyspace: Keyspace::SECTIONS,
        key: Bytes::copy_from_slice(name.as_bytes()),
    }
}

fn enter(name: &str) -> Operation {
    Operation::Enter {
        keys: vec![key(name)],
        mode: Mode::Exclusive,
        wait: 5_000_000,
        follow: false,
        lease: None,
        may_return: true,
        label: Label::NONE,
    }
}

fn entered(reply: Reply) -> (Held, Option<Bytes>) {
    match reply {
        Reply::Entered { mut keys, .. } => {
            let one = keys.pop().expect("one key");
            let value = one.value.known().expect("not omitted").cloned();
            (one.held, value)
        }
        other => panic!("not entered: {other:?}"),
    }
}

#[test]
fn a_section_is_entered_written_read_and_left_from_every_node() {
    let shapes = [(1, 0, 1), (3, 0, 1), (3, 1, 1 << 47), (3, 2, 9), (5, 4, 1)];
    for (n, coordinator, lowest) in shapes {
        let mut small = Small::of(n, |i| {
            let mut config = config(i, n, BITS);
            config.cluster.lowest_ref = LockRef(lowest);
            config
        });
        let (held, value) = entered(small.ask(coordinator, 1, enter("k")));
        assert_eq!(value, None);
        assert!((lowest..lowest + 9).contains(&held.lock_ref.0), "{held:?}");
        let put = Critical::Put {
            number: 1,
            value: Some(Bytes::from_static(b"v1")),
        };
        let operation = Operation::Critical {
            held: held.clone(),
            operation: put,
            leave: vec![],
        };
        let Reply::Done { tag } = small.ask(coordinator, 2, operation) else {
            panic!("put")
        };
        let get = Operation::Critical {
            held: held.clone(),
            operation: Critical::Get,
            leave: vec![],
        };
        match small.ask(coordinator, 3, get.clone()) {
            Reply::Value { value, .. } => assert_eq!(value, Some(Bytes::from_static(b"v1"))),
            other => panic!("{other:?}"),
        }
        let leave = Operation::Leave {
            keys: vec![(held, Leaving::Clean(tag))],
        };
        let left = small.ask(coordinator, 4, leave);
        assert!(matches!(left, Reply::Done { .. } | Reply::Left), "{left:?}");
        let refused = small.ask(coordinator, 5, get);
        assert!(matches!(refused, Reply::Refused(_)), "{refused:?}");
        let (_, value) = entered(small.ask(0, 6, enter("k")));
        assert_eq!(value, Some(Bytes::from_static(b"v1")));
    }
}

#[test]
fn registers_and_eventual_operations_answer() {
    let mut small = Small::new(3);
    let register = KeyId {
        keyspace: Keyspace::REGISTERS,
        key: Bytes::from_static(b"r"),
    };
    let value = Some(Bytes::from_static(b"x"));
    let write = Operation::Write {
        key: register.clone(),
        value: value.clone(),
    };
    assert!(matches!(small.ask(0, 1, write), Reply::Done { .. }));
    match small.ask(2, 2, Operation::Read { key: register }) {
        Reply::Value { value: read, .. } => assert_eq!(read, value),
        other => panic!("{other:?}"),
    }
    let put = Operation::Put {
        key: key("e"),
        value: value.clone(),
    };
    assert!(matches!(small.ask(1, 3, put), Reply::Done { .. }));
    match small.ask(1, 4, Operation::Get { key: key("e") }) {
        Reply::Value { value: read, .. } => assert_eq!(read, value),
        other => panic!("{other:?}"),
    }
    let (_, entry) = entered(small.ask(0, 5, enter("e")));
    assert_eq!(entry, value, "a section adopts what was put before it");
    let cp = Operation::Write {
        key: key("cp"),
        value: value.clone(),
    };
    assert!(matches!(small.ask(2, 6, cp), Reply::Done { .. }));
    match small.ask(0, 7, Operation::Read { key: key("cp") }) {
        Reply::Value { value: read, .. } => assert_eq!(read, value),
        other => panic!("{other:?}"),
    }
    let keys = Operation::Keys {
        keyspace: Keyspace::SECTIONS,
        prefix: Bytes::new(),
        after: None,
        limit: 10,
    };
    match small.ask(0, 8, keys) {
        Reply::Keys(keys) => assert_eq!(keys, [&b"cp"[..], b"e"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_listing_whose_question_was_lost_is_asked_for_again() {
    let mut small = Small::new(3);
    let keys = Operation::Keys {
        keyspace: Keyspace::SECTIONS,
        prefix: Bytes::new(),
        after: None,
        limit: 10,
    };
    for (number, operation) in [(1, keys), (2, Operation::Catalogue)] {
        small.begin(0, 9, number, operation);
        small.inputs.clear();
        small.run(1_000_000);
        assert!(!matches!(small.answer(number), Reply::Refused(_)));
    }
}

/// A keyspace is created in the very moment in which the group's view changes: its command is
/// chosen behind the one that ends the log, and has its effect in the next one.
#[test]
fn a_keyspace_is_created_while_the_view_changes() {
    let mut small = Small::new(3);
    let next = View {
        group: GroupId::META,
        epoch: Epoch::FIRST.next(),
        ..config(0, 3, BITS).cluster.groups[0].view.clone()
    };
    let body = Body::Group(GroupCommand::Next {
        view: next,
        pressing: false,
        format: wire::VERSION,
    });
    let command = Command::new(SessionId(5), 1, 0, Epoch::FIRST, body);
    small.propose_everywhere(&command);
    let keyspace = Keyspace {
        name: "new".into(),
        ..Keyspace::built_in()[1].clone()
    };
    let reply = small.ask(0, 1, Operation::CreateKeyspace(keyspace));
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    let here = small.nodes[1].0.here();
    let group = &here.groups[&GroupId::META].state;
    assert_eq!(group.location().epoch(), Epoch::FIRST.next());
    let meta = group.meta().expect("the state of the cluster");
    assert!(meta.catalogue().all().iter().any(|k| k.name == "new"));
    // Nothing is left of the log that has ended.
    let log = LogId {
        group: GroupId::META,
        scope: Scope::Group,
        epoch: Epoch::FIRST,
    };
    for (_, ram) in &small.nodes {
        let created = |log| ram.get(&record::log(log, LogRecord::Created));
        assert_eq!(created(log), Ok(None));
        let epoch = Epoch::FIRST.next();
        assert!(created(LogId { epoch, ..log }).is_ok_and(|record| record.is_some()));
    }
}

/// Keyspaces that were made before their times had bounds are on one node's disk, and the others
/// learn of them from it.
#[test]
fn keyspaces_of_odd_times_are_used_with_the_nearest_that_are_allowed() {
    let odd = |id, lease, section_max| Keyspace {
        id: KeyspaceId(id),
        name: format!("odd{id}"),
        lease,
        section_max,
        ..Keyspace::built_in()[0].clone()
    };
    let mut catalogue = Keyspace::built_in().to_vec();
    catalogue.extend([odd(3, u64::MAX, u64::MAX), odd(4, 1, 0)]);
    let mut small = Small::new(3);
    let (node, ram) = &mut small.nodes[0];
    ram.append(vec![Write::Put {
        key: record::node("catalogue"),
        value: wire::encode(&Catalogue::of(catalogue, 7)),
    }]);
    let config = config(0, 3, BITS);
    *node = Node::recover(config, node.id(), ram, at(small.now), 77).expect("it is its own");
    small.run(5_000_000);
    for i in 0..3 {
        let number = 10 + i as u64;
        let Reply::Keyspaces(all) = small.ask(i, number, Operation::Keyspaces) else {
            panic!("no catalogue")
        };
        let times = |id| {
            let known = all.iter().find(|k| k.id == KeyspaceId(id));
            known.map(|k| (k.lease, k.section_max))
        };
        let longest = (Keyspace::LEASE_MAX, Keyspace::SECTION_MAX);
        assert_eq!(times(3), Some(longest), "node {i}");
        let shortest = (Keyspace::LEASE_MIN, Keyspace::LEASE_MIN);
        assert_eq!(times(4), Some(shortest), "node {i}");
    }
    for (number, keyspace, lease) in [(20, 3, Keyspace::LEASE_MAX), (21, 4, Keyspace::LEASE_MIN)] {
        let operation = Operation::Enter {
            keys: vec![KeyId {
                keyspace: KeyspaceId(keyspace),
                ..key("k")
            }],
            mode: Mode::Exclusive,
            wait: 5_000_000,
            follow: false,
            lease: None,
            may_return: true,
            label: Label::NONE,
        };
        match small.ask(1, number, operation) {
            Reply::Entered { lease: granted, .. } => {
                assert!(
                    granted <= lease && granted > lease / 2,
                    "{granted} of {lease}"
                );
            }
            other => panic!("not entered: {other:?}"),
        }
    }
}

/// A command of a group is in flight, and repeated by way of another node, for which the log has no
/// room: who asked first is answered, and who was refused is not answered twice.
#[test]
fn a_repetition_that_is_refused_does_not_take_the_place_of_who_waits() {
    let mut small = Small::with(
        3,
        Limits {
            proposals: 1,
            ..Limits::default()
        },
    );
    let body = Body::Group(GroupCommand::CreateKeyspace(Keyspace {
        name: "new".into(),
        ..Keyspace::built_in()[1].clone()
    }));
    let command = Command::new(SessionId(5), 1, 0, Epoch::FIRST, body);
    for call in [1, 2] {
        let from = small.nodes[call].0.id();
        let propose = coordinator::Message::Propose {
            call: call as u64,
            command: command.clone(),
        };
        let message = Message::Coordinator(propose);
        small.step(0, Input::Message { from, message });
    }
    let mut answers = Vec::new();
    while let Some((to, input)) = small.inputs.pop_front() {
        if let Input::Message { message, .. } = &input
            && let Message::Coordinator(coordinator::Message::Proposed { call, result }) = message
        {
            answers.push((to, *call, result.is_ok()));
        }
        small.step(to, input);
    }
    assert_eq!(answers, [(2, 2, false), (1, 1, true)]);
}

/// The command comes from a peer that has not asked whether its times make sense.
#[test]
fn a_keyspace_whose_times_are_out_of_bounds_is_refused_by_the_group() {
    let mut small = Small::new(3);
    let day = 86_400_000_000;
    let times = [
        (1, day),
        (u64::MAX, u64::MAX),
        (day, day - 1),
        (day, u64::MAX),
    ];
    for (number, (lease, section_max)) in (1..).zip(times) {
        let keyspace = Keyspace {
            name: "odd".into(),
            lease,
            section_max,
            ..Keyspace::built_in()[0].clone()
        };
        let body = Body::Group(GroupCommand::CreateKeyspace(keyspace.clone()));
        let command = Command::new(SessionId(5), number, 0, Epoch::FIRST, body);
        small.propose_everywhere(&command);
        // Who asks for it properly is told why.
        let reply = small.ask(0, 2 * number, Operation::CreateKeyspace(keyspace));
        let Reply::Refused(refusal) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(refusal.code, Code::BadRequest);
        assert!(refusal.detail.contains(" ms"), "{}", refusal.detail);
        let keyspace = Keyspace {
            name: "good".into(),
            ..Keyspace::built_in()[0].clone()
        };
        small.ask(0, 2 * number + 1, Operation::CreateKeyspace(keyspace));
        let here = small.nodes[1].0.here();
        let meta = here.groups[&GroupId::META].state.meta();
        let known = meta.expect("the state of the cluster").catalogue();
        let names: Vec<&str> = known.all().iter().map(|k| &k.name[..]).collect();
        assert_eq!(names, ["default", "registers", "good"]);
    }
}

#[test]
fn a_grant_carries_values_up_to_its_bound_and_a_get_finds_the_others() {
    // Keys of several segments: the bound is that of all of them together.
    for names in [["a", "b", "c", "d"], ["a", "e", "i", "m"]] {
        for grant in [0, 1, 10, 25, 1_000] {
            let limits = Limits {
                grant,
                ..Limits::default()
            };
            let mut small = Small::with(3, limits);
            let values: Vec<Bytes> = (1..=4u8).map(|i| vec![i; 10].into()).collect();
            for (number, (name, value)) in (1..).zip(names.iter().zip(&values)) {
                let write = Operation::Write {
                    key: key(name),
                    value: Some(value.clone()),
                };
                assert!(matches!(small.ask(0, number, write), Reply::Done { .. }));
            }
            let enter = Operation::Enter {
                keys: names.iter().map(|name| key(name)).collect(),
                mode: Mode::Exclusive,
                wait: 5_000_000,
                follow: false,
                lease: None,
                may_return: true,
                label: Label::NONE,
            };
            let Reply::Entered { keys, .. } = small.ask(1, 5, enter) else {
                panic!("not entered")
            };
            let carried = keys.iter().filter(|k| !k.value.is_omitted()).count();
            assert_eq!(carried, (grant / 10).min(4), "bound {grant}");
            for ((number, entered), value) in (6..).zip(keys).zip(&values) {
                match entered.value {
                    EntryValue::Omitted => {}
                    present => assert_eq!(present, EntryValue::Value(value.clone())),
                }
                let get = Operation::Critical {
                    held: entered.held,
                    operation: Critical::Get,
                    leave: vec![],
                };
                match small.ask(2, number, get) {
                    Reply::Value { value: got, .. } => assert_eq!(got.as_ref(), Some(value)),
                    other => panic!("{other:?}"),
                }
            }
            // A linearizable read is a section of the coordinator's own.
            let read = Operation::Read { key: key("free") };
            assert!(matches!(
                small.ask(0, 10, read),
                Reply::Value { value: None, .. }
            ));
        }
    }
}

#[test]
fn a_read_finds_a_value_that_no_grant_carries() {
    let limits = Limits {
        grant: 3,
        ..Limits::default()
    };
    let mut small = Small::with(3, limits);
    let value = Some(Bytes::from_static(b"four"));
    let write = Operation::Write {
        key: key("k"),
        value: value.clone(),
    };
    assert!(matches!(small.ask(0, 1, write), Reply::Done { .. }));
    for coordinator in 0..3 {
        let number = 2 + coordinator as u64;
        match small.ask(coordinator, number, Operation::Read { key: key("k") }) {
            Reply::Value { value: read, .. } => assert_eq!(read, value),
            other => panic!("{other:?}"),
        }
    }
}

/// A node dies that led some of the segments, and another site enters keys of all of them one after
/// the other, as it did before: when each is entered, counted from the death.
fn entries_after_a_death(planted: Planted) -> Vec<u64> {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut small = Small::planted(3, Limits::default(), planted);
    let mut number = 0;
    for name in names {
        let (held, _) = entered(small.ask(1, number + 1, enter(name)));
        let leave = Operation::Leave {
            keys: vec![(held, Leaving::Clean(None))],
        };
        small.ask(1, number + 2, leave);
        number += 2;
    }
    small.dead = Some(0);
    let died = small.now;
    small.run(10_000);
    for i in [1, 2] {
        small.step(i, Input::Gone(NodeName(0)));
    }
    let entry = |name| {
        number += 1;
        small.begin(1, 9, number, enter(name));
        while !small.is_answered(number) {
            small.run(10_000);
        }
        entered(small.answer(number));
        small.now - died
    };
    names.map(entry).to_vec()
}

/// When the first key that the dead node led is entered, and when the last of all.
fn first_and_last(after: &[u64]) -> (u64, u64) {
    let mut led = after.iter().filter(|took| **took > Timing::default().beat);
    let first = *led.next().expect("the dead node led some of the segments");
    (first, after[after.len() - 1])
}

/// G46: those who are dead are asked for no segment.
#[test]
fn after_a_death_every_segment_is_entered_soon_after_the_lease() {
    let after = entries_after_a_death(Planted::NONE);
    let (first, last) = first_and_last(&after);
    assert!(first <= Timing::default().lease + 150_000, "{after:?}");
    assert!(last <= first + 200_000, "{after:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn whoever_asks_the_dead_waits_for_them_in_each_segment() {
    let planted = Planted::only(fermata_protocol::base::Bug::DeadAsked);
    let after = entries_after_a_death(planted);
    let (first, last) = first_and_last(&after);
    assert!(last > first + Timing::default().retry, "{after:?}");
}

/// Enters `k` after whoever holds it, for 20 s at most.
fn wait_for_k(lease: u64, may_return: bool) -> Operation {
    Operation::Enter {
        keys: vec![key("k")],
        mode: Mode::Exclusive,
        wait: 20_000_000,
        follow: false,
        lease: Some(lease),
        may_return,
        label: Label::NONE,
    }
}

/// G48: a wait is kept alive as long as it was asked for, whatever lease was asked for.
#[test]
fn a_long_wait_with_a_short_lease_ends_with_the_entry() {
    for lease in [100_000, 300_000, 1_000_000] {
        for coordinator in 0..3 {
            let mut small = Small::new(3);
            let (held, _) = entered(small.ask(0, 1, enter("k")));
            small.begin(coordinator, 8, 2, wait_for_k(lease, true));
            small.run(5_000_000);
            assert!(matches!(small.answer(2), Reply::Queued { .. }), "{lease}");
            let keys = vec![(held, Leaving::Clean(None))];
            small.begin(0, 9, 3, Operation::Leave { keys });
            small.run(50_000);
            entered(small.answer(2));
        }
    }
}

/// G47, G6: a caller that hangs up leaves the queue, unless it may come back; a section is left by
/// nobody who hangs up, as when its client has repeated the request at another node.
#[test]
fn a_caller_that_is_gone_leaves_the_queue_if_it_only_waits_and_does_not_come_back() {
    for coordinator in 0..3 {
        let mut small = Small::new(3);
        entered(small.ask(0, 1, enter("k")));
        for (number, may_return, left) in [(2, false, 1), (5, true, 2)] {
            small.begin(
                coordinator,
                u128::from(number),
                number,
                wait_for_k(9_000_000, may_return),
            );
            small.run(100_000);
            assert_eq!(small.queued(number + 1, "k"), 2);
            small.step(coordinator, Input::Cancel(CallId(number)));
            small.run(100_000);
            assert_eq!(small.queued(number + 2, "k"), left);
        }
        let mut small = Small::new(3);
        let (held, _) = entered(small.ask(0, 1, enter("k")));
        small.begin(coordinator, 7, 2, wait_for_k(9_000_000, false));
        small.run(100_000);
        // The connection breaks unseen, and the same request comes through another node.
        let other = (coordinator + 1) % 3;
        small.begin(other, 7, 2, wait_for_k(9_000_000, false));
        small.run(100_000);
        let keys = vec![(held, Leaving::Clean(None))];
        small.begin(0, 9, 3, Operation::Leave { keys });
        small.run(1_000_000);
        entered(small.answer(2));
        small.step(coordinator, Input::Cancel(CallId(2)));
        small.run(100_000);
        assert_eq!(small.queued(4, "k"), 1, "nobody leaves under a holder");
        let mut poll = wait_for_k(9_000_000, false);
        if let Operation::Enter { wait, .. } = &mut poll {
            *wait = 0;
        }
        small.begin(coordinator, 5, 5, poll);
        small.step(coordinator, Input::Cancel(CallId(5)));
        small.run(100_000);
        assert_eq!(
            small.queued(6, "k"),
            2,
            "who asks again keeps its place by asking"
        );
    }
}

/// Labels, sites and the lease are in the first state of the meta-group, which all of its members
/// must have alike.
#[test]
fn first_nodes_with_different_files_do_not_start() {
    let mut other = config(1, 3, BITS);
    other.cluster.nodes[2].label = "another".into();
    halts_at_the_first_hello(other);
    let mut other = config(1, 3, BITS);
    other.timing.lease += 1;
    halts_at_the_first_hello(other);
    let mut other = config(1, 3, BITS);
    other.timing.request += 1;
    halts_at_the_first_hello(other);
}

fn halts_at_the_first_hello(other: Config) {
    let (mut a, ram) = fresh(config(0, 3, BITS));
    let mut fx = Effects::new();
    a.step(at(0), Input::Tick, &ram, &mut fx);
    let said = fx.outputs.into_iter().find_map(|output| match output {
        Output::Send {
            to: NodeName(1),
            message,
            ..
        } => Some(message),
        _ => None,
    });
    let (mut b, ram) = fresh(other);
    let mut fx = Effects::new();
    let (from, message) = (a.id(), said.expect("a hello"));
    b.step(at(0), Input::Message { from, message }, &ram, &mut fx);
    assert!(fx.halt.is_some_and(|why| why.contains("cluster file")));
    assert!(fx.writes.is_empty() && fx.outputs.is_empty());
}

/// Asks for it often enough that whoever leads the meta-group has it chosen.
fn dismiss(small: &mut Small, name: u32, lost: bool) {
    let name = NodeName(name);
    let body = Body::Group(GroupCommand::Dismiss { name, lost });
    small.propose_everywhere(&Command::new(SessionId(77), 1, 0, Epoch::FIRST, body));
}

#[test]
fn a_member_of_the_meta_group_leaves_it_before_the_cluster() {
    let mut small = Small::new(3);
    dismiss(&mut small, 2, false);
    small.run(1_000_000);
    for (node, _) in &small.nodes {
        let registry = node.here().registry();
        assert_eq!((registry.version(), registry.present().count()), (1, 3));
    }
}

/// Also if all that it hears after that restart is its clients.
#[test]
fn who_is_out_does_not_start_again() {
    let mut small = Small::new(3);
    dismiss(&mut small, 2, true);
    let told = small.run_until_halt(1_000_000);
    assert_eq!(
        told.map(|(node, why)| (node, why.contains("taken"))),
        Some((2, true))
    );
    let (node, ram) = &small.nodes[2];
    let again = Node::recover(node.config().clone(), node.id(), ram, at(small.now), 7);
    assert!(again.is_err_and(|why| why.contains("given up as lost")));
}
