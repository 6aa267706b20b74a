//! The primary of a segment by itself: what its refusals leave behind.

#[path = "lock_primary/leases.rs"]
mod leases;
#[path = "common/ram.rs"]
mod ram;
#[path = "lock_primary/synchs.rs"]
mod synchs;
#[path = "lock_primary/words.rs"]
mod words;

use bytes::Bytes;
use fermata_protocol::base::{
    Ballot, Cluster, ClusterId, Config, Epoch, GroupId, KeyId, Keyspace, Label, Limits, LockRef,
    Member, NodeName, Now, Planted, Seat, SegmentId, SessionId, SiteId, StoragePolicy, Tag, Timing,
    View,
};
use fermata_protocol::catalogue::Catalogue;
use fermata_protocol::command::{Body, Command, LockCommand, Origin};
use fermata_protocol::lock::PrimaryEnv;
use fermata_protocol::lock::{Message, Outcome, Primary, Rejection};
use fermata_protocol::register::{self, Caller, OpId, Owner, Place, StoreId};
use fermata_protocol::request::{EntryValue, Mode, RefState};
use fermata_protocol::segment::SegmentState;
use fermata_protocol::sessions::Sessions;
use fermata_protocol::{Effects, Env, Output};
use ram::Ram;

const LEASE: u64 = 10_000_000;
const SEGMENT: SegmentId = SegmentId(0);
const NODE: NodeName = NodeName(1);
const ORIGIN: Origin = Origin {
    node: NODE,
    site: SiteId(0),
    since: 0,
    lease: LEASE,
    section_max: 100 * LEASE,
    label: Label::NONE,
};

/// A primary of one seat with its segment's state, where a test is the log.
struct Bench {
    primary: Primary,
    state: SegmentState,
    config: Config,
    memory: Ram,
    catalogue: Catalogue,
    place: Place,
    now: u64,
    number: u64,
    /// Whether a quorum is bound to it.
    leased: bool,
    caller: Caller,
    /// By the last step.
    sent: Vec<(NodeName, fermata_protocol::Message)>,
}

impl Bench {
    /// A primary that leads refs of one key, in this order.
    fn new(refs: usize) -> (Bench, Vec<LockRef>) {
        Bench::planted(refs, Planted::NONE)
    }

    fn planted(refs: usize, planted: Planted) -> (Bench, Vec<LockRef>) {
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
                lowest_ref: LockRef(1),
                ..Cluster::default()
            },
            timing: Timing::default(),
            limits: Limits::default(),
            formats: fermata_protocol::wire::FORMATS,
            planted,
        };
        let (mut state, mut lock_refs) = (SegmentState::default(), Vec::new());
        for number in 1..=refs as u64 {
            let enqueue = command(number, enqueue("k"));
            match state.apply(&enqueue, Planted::NONE).outcome {
                Outcome::Enqueued { lock_ref } => lock_refs.push(lock_ref),
                other => panic!("{other:?}"),
            }
        }
        let primary = Primary::new(
            SEGMENT,
            (Epoch::FIRST, Ballot::default()),
            &state,
            (at(0), None),
            &config,
        );
        let bench = Bench {
            primary,
            state,
            config,
            memory: Ram::default(),
            catalogue: Catalogue::default(),
            place: Place {
                store: StoreId {
                    segment: SEGMENT,
                    epoch: Epoch::FIRST,
                },
                view,
                order: vec![Seat(0)],
                storage: StoragePolicy::Replicated,
                sources: Vec::new(),
            },
            now: 0,
            number: refs as u64,
            leased: true,
            caller: Caller::new(NODE, 1),
            sent: vec![],
        };
        (bench, lock_refs)
    }

    fn step<T>(
        &mut self,
        act: impl FnOnce(&mut Primary, &SegmentState, &mut PrimaryEnv<'_>) -> T,
    ) -> T {
        let mut fx = Effects::new();
        let mut cx = PrimaryEnv {
            env: Env {
                time: None,
                now: at(self.now),
                fx: &mut fx,
                memory: &self.memory,
                timing: &self.config.timing,
                limits: &self.config.limits,
                planted: self.config.planted,
            },
            registers: &mut self.caller,
            place: &self.place,
            catalogue: &self.catalogue,
            leased: self.leased,
            segment: SEGMENT,
        };
        let result = act(&mut self.primary, &self.state, &mut cx);
        self.memory.append(fx.writes);
        let sent = |output| match output {
            Output::Send { to, message, .. } => Some((to, message)),
            Output::Reply { .. } => None,
        };
        self.sent = fx.outputs.into_iter().filter_map(sent).collect();
        result
    }

    fn tick(&mut self) {
        self.step(|it, state, cx| it.tick(state.queues(), cx));
    }

    /// The next command of the session.
    fn command(&mut self, body: LockCommand) -> Command {
        self.number += 1;
        command(self.number, body)
    }

    fn leave(&mut self, lock_ref: LockRef) -> Command {
        self.command(LockCommand::Leave {
            lock_ref,
            generation: 0,
            of: SessionId(9),
            clean: vec![],
            put: None,
            waiting_only: false,
        })
    }

    fn resume(&mut self, lock_ref: LockRef) -> Command {
        self.command(LockCommand::Resume {
            lock_ref,
            generation: 0,
            of: SessionId(9),
            origin: ORIGIN,
        })
    }

    /// The log takes the command.
    fn apply(&mut self, command: &Command) -> Outcome {
        let applied = self.state.apply(command, Planted::NONE);
        self.step(|it, state, cx| it.applied(command, &applied, state.queues(), cx));
        applied.outcome
    }

    /// Asks for a forced release; what was refused, or the command that is proposed.
    fn release(&mut self, lock_ref: LockRef) -> Result<Command, Rejection> {
        self.release_from(NODE, lock_ref)
    }

    fn release_from(&mut self, from: NodeName, lock_ref: LockRef) -> Result<Command, Rejection> {
        let key = None;
        let command = self.command(LockCommand::Release { lock_ref, key });
        self.step(|it, state, cx| it.on_submit(from, 1, command, state, cx));
        if let Some(proposed) = self.primary.take_proposals().pop() {
            return Ok(proposed);
        }
        match self.sent.pop() {
            Some((_, fermata_protocol::Message::Lock(Message::Submitted { result, .. }))) => {
                Err(result.expect_err("no command was proposed"))
            }
            other => panic!("{other:?}"),
        }
    }

    /// The log does not take the command.
    fn decline(&mut self, command: &Command) {
        let id = (command.session, command.number);
        self.step(|it, _, cx| it.declined(id, Rejection::Busy, cx.env.fx));
    }

    fn renew(&mut self, lock_ref: LockRef) -> RefState {
        self.renew_as(SessionId(9), lock_ref)
    }

    fn renew_as(&mut self, of: SessionId, lock_ref: LockRef) -> RefState {
        let refs = [(lock_ref, 0)];
        self.step(|it, state, cx| it.on_renew(NODE, of, (&refs, &[]), state.queues(), cx))[0]
    }
}

fn command(number: u64, body: LockCommand) -> Command {
    Command::new(SessionId(9), number, 0, Epoch::FIRST, Body::Lock(body))
}

fn key_of(key: &'static str) -> KeyId {
    KeyId {
        keyspace: Keyspace::SECTIONS,
        key: Bytes::from_static(key.as_bytes()),
    }
}

fn enqueue(key: &'static str) -> LockCommand {
    LockCommand::Enqueue {
        keys: vec![key_of(key)],
        mode: Mode::Exclusive,
        origin: ORIGIN,
    }
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

#[test]
fn a_ref_is_kept_alive_by_its_session_alone() {
    let (mut bench, refs) = Bench::new(1);
    assert_eq!(bench.renew_as(SessionId(8), refs[0]), RefState::Gone);
    // Whatever a stranger says, the lease runs out; the holder's own word prolongs it.
    bench.now += LEASE / 2;
    assert_eq!(bench.renew(refs[0]), LEASED);
    bench.now += LEASE / 2;
    assert_eq!(bench.renew_as(SessionId(8), refs[0]), RefState::Gone);
    bench.now += LEASE;
    bench.tick();
    assert_eq!(bench.primary.take_proposals().len(), 1, "it is released");
}

/// G49: one session's section is resumed by another, through node 7, and the enqueue that it began
/// with comes once more, through node 5. What that is answered, whether it has prolonged the lease,
/// and who is told of the section's end.
fn after_a_late_enqueue(planted: Planted) -> (Option<Outcome>, bool, Vec<NodeName>) {
    let (mut bench, refs) = Bench::planted(1, planted);
    let resume = LockCommand::Resume {
        lock_ref: refs[0],
        generation: 0,
        of: SessionId(9),
        origin: ORIGIN,
    };
    let resume = Command::new(SessionId(8), 1, 0, Epoch::FIRST, Body::Lock(resume));
    let submitted = resume.clone();
    bench.step(|it, state, cx| it.on_submit(NodeName(7), 1, submitted, state, cx));
    bench.primary.take_proposals();
    bench.apply(&resume);
    bench.now = LEASE / 2;
    let late = command(1, enqueue("k"));
    bench.step(|it, state, cx| it.on_submit(NodeName(5), 1, late, state, cx));
    let answered = bench.sent.iter().find_map(|(_, message)| match message {
        fermata_protocol::Message::Lock(Message::Submitted { result, .. }) => result.clone().ok(),
        _ => None,
    });
    bench.now = Timing::default().lengthened(LEASE);
    bench.tick();
    let kept = bench.primary.take_proposals().is_empty();
    let (lock_ref, key) = (refs[0], None);
    let release = bench.command(LockCommand::Release { lock_ref, key });
    (answered, kept, told_lost(&mut bench, &release, refs[0]))
}

#[test]
fn g49_a_late_enqueue_does_not_act_for_who_has_resumed_its_ref() {
    let after = after_a_late_enqueue(Planted::NONE);
    assert_eq!(after, (Some(Outcome::Gone), false, vec![NodeName(7)]));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn g49_a_late_enqueue_that_acts_keeps_the_section_and_takes_its_word() {
    let planted = Planted::only(fermata_protocol::base::Bug::SessionNotAsked);
    let (_, kept, told) = after_a_late_enqueue(planted);
    assert!(kept && told == [NodeName(5)], "{kept} {told:?}");
}

/// Who was told that this ref is past.
fn told_lost(bench: &mut Bench, ended: &Command, lock_ref: LockRef) -> Vec<NodeName> {
    bench.apply(ended);
    let lost = |(to, message): &(NodeName, fermata_protocol::Message)| match message {
        fermata_protocol::Message::Lock(Message::Lost { lock_ref: r, .. }) => {
            (*r == lock_ref).then_some(*to)
        }
        _ => None,
    };
    bench.sent.iter().filter_map(lost).collect()
}

#[test]
fn whoever_was_told_to_wait_for_a_lease_is_told_when_the_ref_is_past() {
    let (mut bench, refs) = Bench::new(1);
    bench.renew(refs[0]);
    for node in [NodeName(7), NodeName(8), NodeName(7)] {
        let refused = bench.release_from(node, refs[0]);
        assert!(matches!(refused, Err(Rejection::Leased(_))));
    }
    let leave = bench.leave(refs[0]);
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
    bench.tick();
    assert_eq!(of(bench.primary.take_proposals()), [asked]);
    // Its session has gone on and forgotten it: the primary's own release follows.
    bench.now += 4 * Timing::default().retry;
    bench.tick();
    assert_eq!(of(bench.primary.take_proposals()), [(Sessions::OWN, 0)]);
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
    let leave = bench.leave(refs[0]);
    bench.apply(&leave);
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
    let enqueue = bench.command(enqueue("free"));
    let enqueued = Outcome::Enqueued { lock_ref: next };
    assert_eq!(bench.apply(&enqueue), enqueued);
    assert_eq!(bench.renew(next), LEASED);
    assert_eq!(bench.apply(&release), Outcome::Gone);
    assert_eq!(bench.renew(next), LEASED);
}

#[test]
fn a_section_that_is_to_end_is_not_kept_by_resuming_it() {
    let (mut bench, refs) = Bench::new(1);
    assert_eq!(bench.renew(refs[0]), LEASED);
    assert!(matches!(bench.release(refs[0]), Err(Rejection::Leased(_))));
    bench.now = LEASE / 2;
    let resume = bench.resume(refs[0]);
    let resumed = Outcome::Resumed { generation: 1 };
    assert_eq!(bench.apply(&resume), resumed);
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
    bench.tick();
    assert_eq!(
        bench.primary.take_proposals().len(),
        1,
        "its client is silent"
    );
    let resume = bench.resume(refs[0]);
    bench.apply(&resume);
    for _ in 0..40 {
        bench.now += LEASE / 10;
        let again = resume.clone();
        bench.step(|it, state, cx| it.on_submit(NODE, 1, again, state, cx));
        bench.tick();
        let proposed = bench.primary.take_proposals();
        if let Some(release) = proposed.first() {
            assert!(!told_lost(&mut bench, release, refs[0]).is_empty());
            return;
        }
    }
    panic!("its client waits for ever");
}

#[test]
fn what_is_read_for_a_ref_that_is_past_is_not_waited_for() {
    for ended in [false, true] {
        let (mut bench, refs) = Bench::new(2);
        let leave = bench.leave(refs[0]);
        bench.apply(&leave);
        assert_eq!(bench.under_way().len(), 1, "the next one's synch");
        if ended {
            bench.time_out();
        }
        let leave = bench.leave(refs[1]);
        bench.apply(&leave);
        assert_eq!(bench.under_way(), []);
        assert!(bench.caller.take_finished().is_none());
    }
}

/// A read ahead has failed, and nobody has been told of that yet, when its enqueue is applied.
#[test]
fn a_grant_takes_a_read_ahead_over_that_has_just_ended() {
    let (mut bench, _) = Bench::new(0);
    let enters = command(50, enqueue("k"));
    bench.read_ahead(&enters);
    bench.time_out();
    bench.apply(&enters);
    let (op, owner, outcome) = bench.caller.take_finished().expect("it has ended");
    bench.tell(op, owner, outcome);
    bench.now += LEASE / 10;
    bench.tick();
    assert_eq!(bench.under_way().len(), 1, "it is read again");
}

/// What the read of a key finds that holds `text` under `tag`.
fn entry(text: Option<&'static str>, tag: Tag) -> register::OpEnd {
    register::OpEnd::Entry {
        value: text.map(|t| Bytes::from_static(t.as_bytes())),
        tag,
        eventual: None,
    }
}

impl Bench {
    /// Submits an enqueue of an idle key; the read that begins ahead of its apply.
    fn read_ahead(&mut self, command: &Command) -> OpId {
        let before = self.under_way();
        let submitted = command.clone();
        self.step(|it, state, cx| it.on_submit(NodeName(9), 1, submitted, state, cx));
        self.primary.take_proposals();
        let new = self.under_way().into_iter().find(|op| !before.contains(op));
        new.expect("an idle key is read ahead")
    }

    /// The operations that the primary has started, and that have not ended.
    fn under_way(&self) -> Vec<OpId> {
        self.caller.under_way().map(|(op, _)| op).collect()
    }

    fn read_ends(&mut self, op: OpId, outcome: register::OpEnd) {
        let started = self.caller.under_way().find(|(started, _)| *started == op);
        let owner = started.map(|(_, owner)| owner.clone());
        self.caller.cancel(op);
        self.tell(op, owner.expect("it is under way"), outcome);
    }

    fn tell(&mut self, op: OpId, owner: Owner, outcome: register::OpEnd) {
        let Owner::Primary(_, key, errand) = owner else {
            panic!("{op:?} is not the primary's");
        };
        self.step(|it, state, cx| it.on_outcome(op, (key, errand), outcome, state.queues(), cx));
    }

    /// The operations under way end without an answer, and nobody is told yet.
    fn time_out(&mut self) {
        self.now += self.config.timing.request;
        self.step(|_, _, cx| cx.registers.tick(&mut cx.env));
        assert_eq!(self.under_way(), []);
    }

    /// The value that the last step granted with.
    fn granted(&self) -> Option<EntryValue> {
        self.sent.iter().find_map(|(_, message)| match message {
            fermata_protocol::Message::Lock(Message::Granted(grant)) => {
                grant.latest.first().map(|l| l.value.clone())
            }
            _ => None,
        })
    }
}

#[test]
fn whoever_is_granted_at_the_apply_of_its_enqueue_gets_that_answer_alone() {
    let (mut bench, _) = Bench::new(0);
    let enters = command(50, enqueue("k"));
    let read = bench.read_ahead(&enters);
    bench.read_ends(read, entry(None, Tag::ZERO));
    bench.apply(&enters);
    assert!(bench.granted().is_some());
    assert_eq!(bench.sent.len(), 1, "{:?}", bench.sent);
}

/// G23: an enqueue is declined while it is read ahead; a whole section puts v1; the enqueue is
/// repeated, and read ahead anew; then the first read ends, which has seen nothing of v1. What the
/// repetition is granted with.
fn granted_after_a_declined_enqueue(planted: Planted) -> EntryValue {
    let (mut bench, _) = Bench::planted(0, planted);
    let (x, y) = (command(50, enqueue("k")), command(51, enqueue("k")));
    let first = bench.read_ahead(&x);
    bench.decline(&x);
    let other = bench.read_ahead(&y);
    let Outcome::Enqueued { lock_ref } = bench.apply(&y) else {
        panic!("enqueued");
    };
    bench.read_ends(other, entry(None, Tag::ZERO));
    assert_eq!(bench.granted(), Some(EntryValue::Absent));
    let v1 = Tag::critical(lock_ref, 0, 1, SessionId(9));
    let leave = LockCommand::Leave {
        lock_ref,
        generation: 0,
        of: SessionId(9),
        clean: vec![(key_of("k"), Some(v1))],
        put: None,
        waiting_only: false,
    };
    bench.apply(&command(52, leave));
    let again = bench.read_ahead(&x);
    bench.read_ends(again, entry(Some("v1"), v1));
    bench.read_ends(first, entry(None, Tag::ZERO));
    bench.apply(&x);
    bench
        .granted()
        .expect("the key was free, and its value known")
}

#[test]
fn a_read_ahead_for_a_declined_enqueue_does_not_serve_its_repetition() {
    let granted = granted_after_a_declined_enqueue(Planted::NONE);
    assert_eq!(granted, EntryValue::Value(Bytes::from_static(b"v1")));
}

/// F3: a whole section comes between an enqueue's read ahead and its apply, although this primary
/// was not asked for it.
#[test]
fn a_read_ahead_does_not_serve_an_enqueue_behind_another_section() {
    let (mut bench, _) = Bench::new(0);
    let (x, y) = (command(50, enqueue("k")), command(51, enqueue("k")));
    let read = bench.read_ahead(&x);
    bench.read_ends(read, entry(None, Tag::ZERO));
    let Outcome::Enqueued { lock_ref } = bench.apply(&y) else {
        panic!("enqueued");
    };
    let leave = LockCommand::Leave {
        lock_ref,
        generation: 0,
        of: SessionId(9),
        clean: vec![(
            key_of("k"),
            Some(Tag::critical(lock_ref, 0, 1, SessionId(9))),
        )],
        put: None,
        waiting_only: false,
    };
    bench.apply(&command(52, leave));
    bench.apply(&x);
    assert_eq!(bench.granted(), None, "what was read is no longer so");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_read_ahead_that_is_known_by_its_enqueues_name_loses_a_put() {
    let planted = Planted::only(fermata_protocol::base::Bug::SpeculationByName);
    assert_eq!(
        granted_after_a_declined_enqueue(planted),
        EntryValue::Absent
    );
}
