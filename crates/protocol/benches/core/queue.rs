//! What a command costs on a queue of one key, by the queue's length: behind 4,095 as much as
//! behind one, and of 4,096 readers who hold together as much as of two.
//!
//! Each operation is two commands, so that the length stays: a ref in a given place leaves, and
//! another one comes. They are measured as every member applies them (`apply`), and through the
//! log of three whole nodes, with the primary's own part (`agreed`), where a reader who comes is
//! granted, too.

use super::DIRECT;
use super::cluster::{Answer, ThreeNodes};
use bytes::Bytes;
use criterion::{BenchmarkId, Criterion};
use fermata_protocol::Message;
use fermata_protocol::base::{
    Epoch, KeyId, Keyspace, Label, LockRef, NodeName, Planted, SegmentId, SessionId, SiteId,
};
use fermata_protocol::command::{Body, Command, LockCommand, Origin};
use fermata_protocol::lock::{self, Outcome, Queues};
use fermata_protocol::request::Mode;
use fermata_protocol::segment::SegmentState;
use std::time::Instant;

/// Refs in the queue, the holder included. The last is the longest that a queue gets.
const LENGTHS: [usize; 2] = [2, 4_096];

/// The only segment.
const SEGMENT: SegmentId = SegmentId(0);

/// The only session: only one command of a session may be open, and only one is.
const SESSION: SessionId = SessionId(1);

/// The ref that leaves.
#[derive(Clone, Copy)]
enum Place {
    Middle,
    Last,
}

/// Who leaves: a waiter behind a writer, or one of many readers.
const PLACES: [(Place, Mode, &str); 3] = [
    (Place::Middle, Mode::Exclusive, "middle"),
    (Place::Last, Mode::Exclusive, "last"),
    (Place::Middle, Mode::Shared, "reader"),
];

fn key() -> KeyId {
    KeyId {
        keyspace: Keyspace::SECTIONS,
        key: Bytes::from_static(b"wanted"),
    }
}

fn enqueue(mode: Mode) -> LockCommand {
    LockCommand::Enqueue {
        keys: vec![key()],
        mode,
        origin: Origin {
            node: NodeName(0),
            site: SiteId(0),
            since: 0,
            // Nobody renews: all are patient.
            lease: 86_400_000_000,
            section_max: 86_400_000_000,
            label: Label::NONE,
        },
    }
}

fn leave(queues: &Queues, place: Place) -> LockCommand {
    let refs = &queues.queue(&key()).expect("a queue").refs;
    let lock_ref: LockRef = match place {
        Place::Middle => refs[refs.len().div_ceil(2)],
        Place::Last => refs[refs.len() - 1],
    };
    LockCommand::Leave {
        lock_ref,
        generation: 0,
        of: SESSION,
        clean: Vec::new(),
        put: None,
        waiting_only: false,
    }
}

/// Something that applies commands to one segment.
trait Segment {
    fn queues(&self) -> &Queues;
    fn apply(&mut self, command: Command) -> Outcome;
}

impl Segment for SegmentState {
    fn queues(&self) -> &Queues {
        self.queues()
    }

    fn apply(&mut self, command: Command) -> Outcome {
        SegmentState::apply(self, &command, Planted::NONE).outcome
    }
}

impl Segment for ThreeNodes {
    fn queues(&self) -> &Queues {
        self.queues_of(SEGMENT)
    }

    fn apply(&mut self, command: Command) -> Outcome {
        let call = DIRECT + command.number;
        let submit = lock::Message::Submit {
            call,
            segment: SEGMENT,
            command,
        };
        let first = self.queues_of(SEGMENT).queue(&key()).is_none();
        self.tell(self.primary(SEGMENT), Message::Lock(submit));
        self.pace();
        if first {
            // Whoever finds nobody ahead is answered by the grant.
            self.pass(1_000);
            let queue = self.queues_of(SEGMENT).queue(&key()).expect("it has come");
            let lock_ref = queue.refs[0];
            return Outcome::Enqueued { lock_ref };
        }
        match self.answer() {
            Answer::Submitted(answered, outcome) if answered == call => outcome,
            other => panic!("an answer to call {call} was expected: {other:?}"),
        }
    }
}

/// A segment whose queue has a given length.
struct Crowd<S> {
    segment: S,
    mode: Mode,
    number: u64,
}

impl<S: Segment> Crowd<S> {
    fn new(segment: S, mode: Mode, length: usize) -> Crowd<S> {
        let number = 0;
        let mut crowd = Crowd {
            segment,
            mode,
            number,
        };
        (0..length).for_each(|_| crowd.ask(enqueue(mode)));
        crowd
    }

    fn ask(&mut self, body: LockCommand) {
        self.number += 1;
        let number = self.number;
        let command = Command::new(SESSION, number, number - 1, Epoch::FIRST, Body::Lock(body));
        let outcome = self.segment.apply(command);
        assert!(matches!(
            outcome,
            Outcome::Enqueued { .. } | Outcome::Left { .. }
        ));
    }

    fn turn(&mut self, place: Place) {
        self.ask(leave(self.segment.queues(), place));
        self.ask(enqueue(self.mode));
    }

    fn length(&self) -> usize {
        self.segment
            .queues()
            .queue(&key())
            .map_or(0, |q| q.refs.len())
    }
}

/// One operation of each kind.
pub(crate) fn try_all() {
    for (place, mode, _) in PLACES {
        let mut crowd = Crowd::new(SegmentState::default(), mode, LENGTHS[0]);
        crowd.turn(place);
        let mut crowd = Crowd::new(ThreeNodes::new(0), mode, LENGTHS[0]);
        crowd.turn(place);
        assert_eq!(crowd.length(), LENGTHS[0]);
    }
}

/// Both lengths, one after the other, in all ways.
pub(crate) fn measure(criterion: &mut Criterion) {
    measure_on("apply", SegmentState::default, criterion);
    measure_on("agreed", || ThreeNodes::new(0), criterion);
}

fn measure_on<S: Segment>(name: &str, new: impl Fn() -> S, criterion: &mut Criterion) {
    for (place, mode, which) in PLACES {
        let mut group = criterion.benchmark_group(format!("queue/{name}/{which}"));
        for length in LENGTHS {
            let mut crowd = None;
            group.bench_function(BenchmarkId::from_parameter(length), |bencher| {
                let crowd = crowd.get_or_insert_with(|| Crowd::new(new(), mode, length));
                bencher.iter_custom(|operations| {
                    let began = Instant::now();
                    (0..operations).for_each(|_| crowd.turn(place));
                    began.elapsed()
                });
                assert_eq!(
                    crowd.length(),
                    length,
                    "the queue is as long as it is said to be"
                );
            });
        }
        group.finish();
    }
}
