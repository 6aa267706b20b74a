//! The primary of a segment by itself: what its refusals leave behind.

use bytes::Bytes;
use fermata_protocol::base::{
    Ballot, Cluster, ClusterId, Config, Epoch, GroupId, KeyId, Keyspace, Limits, LockRef, Member,
    NodeName, Now, Planted, Seat, SegmentId, SessionId, SiteId, StoragePolicy, Timing, View,
};
use fermata_protocol::command::{Body, Command, LockCommand, Origin};
use fermata_protocol::lock::primary::Cx;
use fermata_protocol::lock::{Message, Outcome, Primary, Rejection};
use fermata_protocol::register::{Caller, Place, Store};
use fermata_protocol::request::{Mode, RefState};
use fermata_protocol::segment::SegmentState;
use fermata_protocol::{Effects, Memory, Output, Void};
use std::collections::BTreeMap;

const LEASE: u64 = 10_000_000;
const SEGMENT: SegmentId = SegmentId(0);
const NODE: NodeName = NodeName(1);

struct Empty;

impl Memory for Empty {
    fn get(&self, _: &[u8]) -> Result<Option<Bytes>, Void> {
        Ok(None)
    }
    fn scan(&self, _: &[u8], _: &[u8], _: usize) -> Vec<(Bytes, Result<Bytes, Void>)> {
        Vec::new()
    }

    fn is_durable(&self, _: &[u8]) -> bool {
        true
    }
}

/// A primary of one seat with its segment's state, where a test is the log.
struct Bench {
    primary: Primary,
    state: SegmentState,
    config: Config,
    place: Place,
    now: u64,
    number: u64,
    sent: Vec<fermata_protocol::Message>,
    /// To whom, of the last step.
    sent_to: Vec<NodeName>,
}

impl Bench {
    /// A primary that leads refs of one key, in this order.
    fn new(refs: usize) -> (Bench, Vec<LockRef>) {
        let view = View {
            group: GroupId(1),
            epoch: Epoch::FIRST,
            seats: vec![Member {
                name: NODE,
                site: SiteId(0),
                public_key: None,
            }],
        };
        let config = Config {
            name: NODE,
            cluster: Cluster {
                id: ClusterId(7),
                segment_bits: 0,
                sites: vec![],
                nodes: vec![],
                groups: vec![],
            },
            timing: Timing::default(),
            limits: Limits::default(),
            planted: Planted::NONE,
        };
        let (mut state, mut lock_refs) = (SegmentState::default(), Vec::new());
        for number in 1..=refs as u64 {
            let body = LockCommand::Enqueue {
                keys: vec![KeyId {
                    keyspace: Keyspace::SECTIONS,
                    key: Bytes::from_static(b"k"),
                }],
                mode: Mode::Exclusive,
                origin: Origin {
                    node: NODE,
                    site: SiteId(0),
                    since: 0,
                    lease: LEASE,
                    section_max: 100 * LEASE,
                },
            };
            match state.apply(&command(number, body), Planted::NONE).outcome {
                Outcome::Enqueued { lock_ref } => lock_refs.push(lock_ref),
                other => panic!("{other:?}"),
            }
        }
        let primary = Primary::new(
            SEGMENT,
            Epoch::FIRST,
            Ballot::default(),
            &state,
            at(0),
            &config,
        );
        let bench = Bench {
            primary,
            state,
            config,
            place: Place {
                store: Store {
                    segment: SEGMENT,
                    epoch: Epoch::FIRST,
                },
                view,
                order: vec![Seat(0)],
                storage: StoragePolicy::Replicated,
            },
            now: 0,
            number: refs as u64,
            sent: vec![],
            sent_to: vec![],
        };
        (bench, lock_refs)
    }

    fn step<T>(&mut self, act: impl FnOnce(&mut Primary, &SegmentState, &mut Cx<'_>) -> T) -> T {
        let mut fx = Effects::new();
        let mut cx = Cx {
            now: at(self.now),
            fx: &mut fx,
            timing: &self.config.timing,
            limits: &self.config.limits,
            planted: Planted::NONE,
            registers: &mut Caller::new(NODE, 1),
            memory: &Empty,
            place: &self.place,
            keyspaces: &Keyspace::built_in(),
            leased: true,
            segment: SEGMENT,
            started: &mut BTreeMap::new(),
        };
        let result = act(&mut self.primary, &self.state, &mut cx);
        self.sent_to.clear();
        for output in fx.outputs {
            if let Output::Send { to, message, .. } = output {
                self.sent_to.push(to);
                self.sent.push(message);
            }
        }
        result
    }

    /// Asks for a forced release; what was refused, or the command that is proposed.
    fn release(&mut self, lock_ref: LockRef) -> Result<Command, Rejection> {
        self.release_from(NODE, lock_ref)
    }

    fn release_from(&mut self, from: NodeName, lock_ref: LockRef) -> Result<Command, Rejection> {
        self.number += 1;
        let command = command(
            self.number,
            LockCommand::Release {
                lock_ref,
                key: None,
            },
        );
        self.sent.clear();
        self.step(|it, state, cx| it.on_submit(from, 1, command, state, cx));
        if let Some(proposed) = self.primary.take_proposals().pop() {
            return Ok(proposed);
        }
        match self.sent.pop() {
            Some(fermata_protocol::Message::Lock(Message::Submitted {
                result: Err(why), ..
            })) => Err(why),
            other => panic!("{other:?}"),
        }
    }

    /// The log does not take the command.
    fn decline(&mut self, command: &Command) {
        let id = (command.session, command.number);
        self.step(|it, _, cx| it.declined(id, Rejection::Busy, cx.fx));
    }

    fn renew(&mut self, lock_ref: LockRef) -> RefState {
        let refs = [(lock_ref, 0)];
        self.step(|it, state, cx| it.on_renew(NODE, &refs, &[], state.queues(), cx))[0]
    }
}

fn command(number: u64, body: LockCommand) -> Command {
    Command::new(SessionId(9), number, 0, Epoch::FIRST, Body::Lock(body))
}

fn at(monotonic: u64) -> Now {
    Now {
        monotonic,
        wall: monotonic,
        interval: None,
    }
}

const LEASED: RefState = RefState::Holding { lease: LEASE };
const NO_LEASE: RefState = RefState::Holding { lease: 0 };

#[test]
fn a_release_that_waits_for_the_lease_has_ended_it() {
    let (mut bench, refs) = Bench::new(1);
    assert_eq!(bench.renew(refs[0]), LEASED);
    assert!(matches!(bench.release(refs[0]), Err(Rejection::Leased(_))));
    assert_eq!(bench.renew(refs[0]), NO_LEASE);
}

/// Who was told that this ref is past.
fn told_lost(bench: &mut Bench, ended: &Command, lock_ref: LockRef) -> Vec<NodeName> {
    let applied = bench.state.apply(ended, Planted::NONE);
    bench.sent.clear();
    bench.step(|it, state, cx| it.applied(ended, &applied, state.queues(), cx));
    let sent = bench.sent.iter().zip(&bench.sent_to);
    let lost = sent.filter_map(|(message, to)| match message {
        fermata_protocol::Message::Lock(Message::Lost { lock_ref: r, .. }) if *r == lock_ref => {
            Some(*to)
        }
        _ => None,
    });
    lost.collect()
}

#[test]
fn whoever_was_told_to_wait_for_a_lease_is_told_when_the_ref_is_past() {
    let (mut bench, refs) = Bench::new(1);
    bench.renew(refs[0]);
    for node in [NodeName(7), NodeName(8), NodeName(7)] {
        let refused = bench.release_from(node, refs[0]);
        assert!(matches!(refused, Err(Rejection::Leased(_))));
    }
    let leave = LockCommand::Leave {
        lock_ref: refs[0],
        generation: 0,
        clean: vec![],
        waiting_only: false,
    };
    bench.number += 1;
    let leave = command(bench.number, leave);
    let told = told_lost(&mut bench, &leave, refs[0]);
    assert_eq!(told, [NODE, NodeName(7), NodeName(8)]);
}

#[test]
fn a_ref_is_ended_by_the_release_that_waited_for_its_lease() {
    let (mut bench, refs) = Bench::new(1);
    bench.renew(refs[0]);
    let refused = bench.release_from(NodeName(7), refs[0]);
    assert!(matches!(refused, Err(Rejection::Leased(_))));
    let asked = (SessionId(9), bench.number);
    let of = |commands: Vec<Command>| -> Vec<(SessionId, u64)> {
        commands.iter().map(|c| (c.session, c.number)).collect()
    };
    bench.now = LEASE + LEASE / 10;
    bench.step(|it, state, cx| it.tick(state.queues(), cx));
    assert_eq!(of(bench.primary.take_proposals()), [asked]);
    // Its session has gone on and forgotten it: the primary's own release follows.
    bench.now += 4 * Timing::default().retry;
    bench.step(|it, state, cx| it.tick(state.queues(), cx));
    assert_eq!(
        of(bench.primary.take_proposals()),
        [(fermata_protocol::sessions::Sessions::OWN, 0)]
    );
}

#[test]
fn a_release_that_the_log_does_not_take_changes_nothing() {
    let (mut bench, refs) = Bench::new(1);
    // The lease has run out a moment ago, and its client comes back in this moment.
    bench.now = LEASE + LEASE / 10;
    let release = bench.release(refs[0]).expect("proposed");
    assert_eq!(
        bench.renew(refs[0]),
        NO_LEASE,
        "while it may still be chosen"
    );
    bench.decline(&release);
    assert_eq!(bench.renew(refs[0]), LEASED);
}

#[test]
fn a_refused_release_of_a_waiting_ref_lets_it_enter_later() {
    let (mut bench, refs) = Bench::new(2);
    let first = bench.release(refs[1]).expect("proposed");
    let second = bench.release(refs[1]).expect("proposed");
    let leave = LockCommand::Leave {
        lock_ref: refs[0],
        generation: 0,
        clean: vec![],
        waiting_only: false,
    };
    bench.number += 1;
    let leave = command(bench.number, leave);
    let applied = bench.state.apply(&leave, Planted::NONE);
    bench.step(|it, state, cx| it.applied(&leave, &applied, state.queues(), cx));
    bench.decline(&first);
    assert_eq!(
        bench.renew(refs[1]),
        NO_LEASE,
        "another release is in flight"
    );
    bench.decline(&second);
    assert_eq!(bench.renew(refs[1]), LEASED);
}

#[test]
fn a_primary_with_no_room_for_commands_ends_no_lease() {
    let (mut bench, refs) = Bench::new(1);
    bench.config.limits.proposals = 0;
    assert_eq!(bench.release(refs[0]), Err(Rejection::Busy));
    assert_eq!(bench.renew(refs[0]), LEASED);
}

#[test]
fn a_release_of_a_ref_to_come_does_not_end_it_in_its_lease() {
    let (mut bench, refs) = Bench::new(1);
    // Somebody names the next ref while its enqueue is in flight: the release comes after it in the
    // log, when the ref has been granted with a lease.
    let next = LockRef(refs[0].0 + 1);
    let release = bench.release(next).expect("proposed");
    bench.number += 1;
    let enqueue = command(
        bench.number,
        LockCommand::Enqueue {
            keys: vec![KeyId {
                keyspace: Keyspace::SECTIONS,
                key: Bytes::from_static(b"free"),
            }],
            mode: Mode::Exclusive,
            origin: bench.state.queues().get(refs[0]).expect("waits").origin,
        },
    );
    let applied = bench.state.apply(&enqueue, Planted::NONE);
    assert_eq!(applied.outcome, Outcome::Enqueued { lock_ref: next });
    bench.step(|it, state, cx| it.applied(&enqueue, &applied, state.queues(), cx));
    assert_eq!(bench.renew(next), LEASED);
    let applied = bench.state.apply(&release, Planted::NONE);
    bench.step(|it, state, cx| it.applied(&release, &applied, state.queues(), cx));
    assert_eq!(applied.outcome, Outcome::Gone);
    assert_eq!(bench.renew(next), LEASED);
}

#[test]
fn a_section_that_is_to_end_is_not_kept_by_resuming_it() {
    let (mut bench, refs) = Bench::new(1);
    assert_eq!(bench.renew(refs[0]), LEASED);
    assert!(matches!(bench.release(refs[0]), Err(Rejection::Leased(_))));
    bench.now = LEASE / 2;
    bench.number += 1;
    let origin = bench.state.queues().get(refs[0]).expect("holds").origin;
    let resume = LockCommand::Resume {
        lock_ref: refs[0],
        generation: 0,
        origin,
    };
    let resume = command(bench.number, resume);
    let applied = bench.state.apply(&resume, Planted::NONE);
    assert_eq!(applied.outcome, Outcome::Resumed { generation: 1 });
    bench.step(|it, state, cx| it.applied(&resume, &applied, state.queues(), cx));
    assert!(matches!(bench.release(refs[0]), Err(Rejection::Leased(_))));
    bench.now = LEASE + LEASE / 10;
    assert!(bench.release(refs[0]).is_ok(), "the lease given is over");
}

/// A release is proposed when the lease is over, and lost on its way to the log; meanwhile the
/// client comes back and resumes its section. It is not granted again, so it must be told an end.
#[test]
fn a_section_whose_release_is_lost_is_released_again_although_its_client_resumes_it() {
    let (mut bench, refs) = Bench::new(1);
    bench.now = 2 * LEASE;
    bench.step(|it, state, cx| it.tick(state.queues(), cx));
    assert_eq!(
        bench.primary.take_proposals().len(),
        1,
        "its client is silent"
    );
    bench.number += 1;
    let origin = bench.state.queues().get(refs[0]).expect("holds").origin;
    let resume = LockCommand::Resume {
        lock_ref: refs[0],
        generation: 0,
        origin,
    };
    let resume = command(bench.number, resume);
    let applied = bench.state.apply(&resume, Planted::NONE);
    bench.step(|it, state, cx| it.applied(&resume, &applied, state.queues(), cx));
    for _ in 0..40 {
        bench.now += LEASE / 10;
        let again = resume.clone();
        bench.step(|it, state, cx| it.on_submit(NODE, 1, again, state, cx));
        bench.step(|it, state, cx| it.tick(state.queues(), cx));
        let proposed = bench.primary.take_proposals();
        if let Some(release) = proposed.first() {
            assert!(!told_lost(&mut bench, release, refs[0]).is_empty());
            return;
        }
    }
    panic!("its client waits for ever");
}
