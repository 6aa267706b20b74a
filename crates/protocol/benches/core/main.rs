//! What the protocol itself costs: three whole nodes in one thread, without disk, sockets or
//! threads.
//!
//! ```text
//! cargo bench -p fermata-protocol --bench core               counts, criterion, a table of rates
//! cargo bench -p fermata-protocol --bench core -- --counts   the counts alone
//! ... core --queue                        a command on a long queue beside one on a short one
//! ... core --only section 16 1 20000      20,000 operations of one case, for a profiler
//! ```
//!
//! An operation is what a client asks for: one section (enter, put, leave), one put, one write, one
//! decision of a log. The work of all three nodes is in it, so that a rate is that of one core
//! which does nothing but protocol.

mod cluster;
mod counting;
mod queue;

use bytes::Bytes;
use cluster::{Answer, NODES, ThreeNodes, Work};
use criterion::{BenchmarkId, Criterion, Throughput};
use fermata_protocol::base::{
    Address, Epoch, KeyId, Keyspace, KeyspaceId, Label, SegmentId, SessionId, SiteId, Tag, TagRule,
};
use fermata_protocol::command::{Body, Command, LockCommand};
use fermata_protocol::request::{Critical, Held, Leaving, Mode};
use fermata_protocol::{CallId, Input, Message, Operation, Reply, Request, lock};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Calls from here on are commands submitted to a primary directly.
const DIRECT: u64 = 1 << 63;
/// Bytes of every value written.
const VALUE: usize = 64;
/// Keys that one client goes round.
const KEYS: u64 = 512;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Enter, put, leave.
    Section,
    /// The same of a key that all clients want, the leave beside the put.
    HotSection,
    /// A put inside a section that stays.
    CriticalPut,
    /// A put at one replica.
    EventualPut,
    /// A linearizable write.
    RegisterWrite,
    /// One command through a segment's log, without the reads that a grant adds.
    Decision,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    bits: u8,
    in_flight: usize,
}

const fn case(kind: Kind, bits: u8, in_flight: usize) -> Case {
    Case {
        kind,
        bits,
        in_flight,
    }
}

const CASES: [Case; 14] = [
    case(Kind::Section, 4, 1),
    case(Kind::Section, 8, 32),
    case(Kind::Section, 10, 32),
    case(Kind::HotSection, 4, 32),
    case(Kind::CriticalPut, 4, 1),
    case(Kind::CriticalPut, 8, 32),
    case(Kind::EventualPut, 4, 1),
    case(Kind::EventualPut, 8, 32),
    case(Kind::RegisterWrite, 4, 1),
    case(Kind::RegisterWrite, 8, 32),
    case(Kind::Decision, 4, 1),
    case(Kind::Decision, 4, 32),
    case(Kind::Decision, 8, 1),
    case(Kind::Decision, 8, 32),
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Section => "section",
            Kind::HotSection => "hot-section",
            Kind::CriticalPut => "critical-put",
            Kind::EventualPut => "eventual-put",
            Kind::RegisterWrite => "register-write",
            Kind::Decision => "decision",
        }
    }
}

/// One client: it always has one request open.
struct Client {
    number: u64,
    key: KeyId,
    held: Option<Held>,
    puts: u64,
    written: Option<Tag>,
}

/// A cluster with the clients of one case.
struct Load {
    case: Case,
    cluster: ThreeNodes,
    clients: Vec<Client>,
    value: Bytes,
}

impl Load {
    fn new(case: Case) -> Load {
        let client = |i| Client {
            number: 0,
            key: key(case.kind, i, 0),
            held: None,
            puts: 0,
            written: None,
        };
        let mut load = Load {
            case,
            cluster: ThreeNodes::new(case.bits),
            clients: (0..case.in_flight).map(client).collect(),
            value: Bytes::from(vec![7; VALUE]),
        };
        for i in 0..case.in_flight {
            load.go_on(i, None);
        }
        load.run(4 * KEYS);
        load
    }

    /// Runs until so many more operations have ended. The others stay open.
    fn run(&mut self, operations: u64) {
        let mut ended = 0;
        while ended < operations {
            let (i, reply) = match self.cluster.answer() {
                Answer::Reply(call, reply) => (call.0 as usize % self.clients.len(), Some(reply)),
                Answer::Submitted(call, _) => ((call - DIRECT) as usize % self.clients.len(), None),
            };
            if matches!(reply, Some(Reply::Queued { .. })) {
                continue;
            }
            if self.go_on(i, reply) {
                ended += 1;
                self.cluster.pace();
            }
        }
    }

    /// Takes a client's answer and asks its next question; true if an operation has ended.
    fn go_on(&mut self, i: usize, reply: Option<Reply>) -> bool {
        let kind = self.case.kind;
        let first = self.clients[i].number == 0;
        let (ended, operation) = match (kind, reply) {
            (Kind::Decision, _) => {
                self.decide(i);
                return !first;
            }
            (Kind::Section | Kind::HotSection | Kind::CriticalPut, None) => (false, self.enter(i)),
            (Kind::Section, Some(Reply::Done { tag: Some(tag) }))
                if self.clients[i].held.is_some() =>
            {
                self.clients[i].written = Some(tag);
                (false, self.leave(i))
            }
            (Kind::Section | Kind::HotSection, Some(Reply::Done { .. } | Reply::Left)) => {
                (true, self.enter(i))
            }
            (
                Kind::Section | Kind::HotSection | Kind::CriticalPut,
                Some(Reply::Entered { mut keys, .. }),
            ) => {
                self.clients[i].held = Some(keys.pop().expect("one key").held);
                self.clients[i].puts = 0;
                (false, self.critical_put(i))
            }
            (Kind::CriticalPut, Some(Reply::Done { .. })) => (true, self.critical_put(i)),
            (Kind::EventualPut, None | Some(Reply::Done { .. })) => {
                let (key, value) = self.next_write(i);
                (!first, Operation::Put { key, value })
            }
            (Kind::RegisterWrite, None | Some(Reply::Done { .. })) => {
                let (key, value) = self.next_write(i);
                (!first, Operation::Write { key, value })
            }
            (kind, reply) => panic!("{kind:?} was answered {reply:?}"),
        };
        self.ask(i, operation);
        ended
    }

    fn ask(&mut self, i: usize, operation: Operation) {
        let clients = self.clients.len();
        let client = &mut self.clients[i];
        client.number += 1;
        let request = Request {
            session: SessionId(1 + i as u128),
            number: client.number,
            attempt: 0,
            answered_through: client.number - 1,
            site: SiteId(0),
            operation,
        };
        let call = CallId(client.number * clients as u64 + i as u64);
        self.cluster
            .give(i % NODES, Input::Request { call, request });
    }

    fn enter(&mut self, i: usize) -> Operation {
        let client = &mut self.clients[i];
        client.key = key(self.case.kind, i, client.number);
        client.held = None;
        Operation::Enter {
            keys: vec![client.key.clone()],
            mode: Mode::Exclusive,
            wait: 5_000_000,
            follow: false,
            lease: Some(3_600_000_000),
            may_return: true,
            label: Label::NONE,
        }
    }

    fn critical_put(&mut self, i: usize) -> Operation {
        let client = &mut self.clients[i];
        client.puts += 1;
        let operation = Critical::Put {
            number: client.puts,
            value: Some(self.value.clone()),
        };
        let held = client.held.clone().expect("in the section");
        let leave = match self.case.kind {
            Kind::HotSection => vec![(held.clone(), Leaving::Dirty)],
            _ => Vec::new(),
        };
        Operation::Critical {
            held,
            operation,
            leave,
        }
    }

    fn leave(&mut self, i: usize) -> Operation {
        let client = &mut self.clients[i];
        let held = client.held.take().expect("in the section");
        Operation::Leave {
            keys: vec![(held, Leaving::Clean(client.written))],
        }
    }

    fn next_write(&self, i: usize) -> (KeyId, Option<Bytes>) {
        (
            key(self.case.kind, i, self.clients[i].number),
            Some(self.value.clone()),
        )
    }

    /// Submits one command to the primary of a key's segment. It clears a flag that is not set: it
    /// is logged, agreed, applied and remembered like any other, and leaves the queues as they are.
    fn decide(&mut self, i: usize) {
        let clients = self.clients.len();
        let client = &mut self.clients[i];
        client.number += 1;
        let number = client.number;
        let key = key(Kind::Decision, i, number);
        let segment: SegmentId =
            Address::of(key.keyspace, TagRule::Whole, &key.key).segment(self.case.bits);
        let command = Command::new(
            SessionId(1 + i as u128),
            number,
            number - 1,
            Epoch::FIRST,
            Body::Lock(LockCommand::SynchDone { key, flag: 0 }),
        );
        let call = DIRECT + number * clients as u64 + i as u64;
        let primary = self.cluster.primary(segment);
        let submit = lock::Message::Submit {
            call,
            segment,
            command,
        };
        self.cluster.tell(primary, Message::Lock(submit));
    }
}

fn key(kind: Kind, client: usize, turn: u64) -> KeyId {
    let keyspace: KeyspaceId = match kind {
        Kind::RegisterWrite => Keyspace::REGISTERS,
        _ => Keyspace::SECTIONS,
    };
    let key = match kind {
        Kind::HotSection => "one key".into(),
        _ => format!("client-{client:02}-key-{:04}", turn % KEYS),
    };
    KeyId {
        keyspace,
        key: Bytes::from(key),
    }
}

/// What one operation costs, by counting.
fn count(case: Case) -> Work {
    let operations = 8 * KEYS;
    let mut load = Load::new(case);
    load.cluster.counts = true;
    load.cluster.work = Work::default();
    load.run(operations);
    load.cluster.work
}

fn print_counts() {
    println!(
        "{:<16}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>9}",
        "operation",
        "segments",
        "in flight",
        "steps",
        "messages",
        "writes",
        "allocs",
        "bytes",
        "a/step"
    );
    for case in CASES {
        let work = count(case);
        let each = |n: u64| n as f64 / (8 * KEYS) as f64;
        println!(
            "{:<16}{:>9}{:>9}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>10.0}{:>9.1}",
            case.kind.name(),
            1u32 << case.bits,
            case.in_flight,
            each(work.steps),
            each(work.messages),
            each(work.writes),
            each(work.allocations),
            each(work.bytes),
            work.allocations as f64 / work.steps as f64,
        );
    }
}

/// Lets criterion measure a case; the mean rate over everything that it ran, operations per second.
fn measure(case: Case, criterion: &mut Criterion) -> Option<f64> {
    let mut load = None;
    let mut total = (0, Duration::ZERO);
    let mut group = criterion.benchmark_group(case.kind.name());
    group.throughput(Throughput::Elements(1));
    let id = format!(
        "{}-segments/{}-in-flight",
        1u32 << case.bits,
        case.in_flight
    );
    group.bench_function(BenchmarkId::from_parameter(id), |bencher| {
        let load = load.get_or_insert_with(|| Load::new(case));
        bencher.iter_custom(|operations| {
            let began = Instant::now();
            load.run(operations);
            let took = began.elapsed();
            total = (total.0 + operations, total.1 + took);
            took
        });
    });
    group.finish();
    (total.0 > 0).then(|| total.0 as f64 / total.1.as_secs_f64())
}

/// Runs one case under a profiler: `--only KIND SEGMENTS IN-FLIGHT OPERATIONS`.
fn run_only(arguments: &[String]) {
    let number = |i: usize| arguments.get(i).and_then(|a| a.parse::<u64>().ok());
    let kind = CASES
        .map(|c| c.kind)
        .into_iter()
        .find(|k| Some(k.name()) == arguments.first().map(|a| &**a));
    let (Some(kind), Some(segments), Some(in_flight), Some(operations)) =
        (kind, number(1), number(2), number(3))
    else {
        panic!("usage: core --only KIND SEGMENTS IN-FLIGHT OPERATIONS");
    };
    let bits = segments.next_power_of_two().trailing_zeros() as u8;
    let mut load = Load::new(case(kind, bits, in_flight as usize));
    let began = Instant::now();
    load.run(operations);
    println!(
        "{:.0} operations/s",
        operations as f64 / began.elapsed().as_secs_f64()
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|a| a == "--only") {
        return run_only(&arguments[at + 1..]);
    }
    // `cargo test --benches` runs this without `--bench`: a test of the benchmark is one small run.
    if !arguments.iter().any(|a| a == "--bench") {
        CASES.into_iter().for_each(|case| Load::new(case).run(1));
        return queue::try_all();
    }
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .sample_size(10);
    if arguments.iter().any(|a| a == "--queue") {
        return queue::measure(&mut criterion);
    }
    print_counts();
    if arguments.iter().any(|a| a == "--counts") {
        return;
    }
    criterion = criterion.configure_from_args();
    queue::measure(&mut criterion);
    let rates = CASES.map(|case| (case, measure(case, &mut criterion)));
    println!(
        "\n{:<16}{:>9}{:>11}{:>16}",
        "operation", "segments", "in flight", "operations/s"
    );
    for (case, rate) in rates {
        if let Some(rate) = rate {
            let segments = 1u32 << case.bits;
            println!(
                "{:<16}{segments:>9}{:>11}{rate:>16.0}",
                case.kind.name(),
                case.in_flight
            );
        }
    }
}
