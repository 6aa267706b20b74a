//! One node: routes inputs to machines; the only place where rooms meet.
//!
//! A node has a seat in some groups. For each of them it keeps a replica of the group's own log and
//! of every segment's log, and applies them; where one of its logs leads it also runs the segment's
//! primary. Beside that it answers for the registers of its segments, and coordinates the requests
//! of its clients. The rooms themselves write what is durable, through [`Effects`].

mod agenda;
mod applying;
mod beat;
mod carried;
mod children;
pub mod clock_watch;
mod distances;
mod early;
mod epochs;
mod following;
mod late;
mod ledger;
mod listing;
mod logs;
mod membership;
mod memory;
mod moving;
mod pace;
mod placement;
mod policies;
mod records;
mod spares;
mod topology;
mod upkeep;
mod usage;

use self::agenda::Room;
use self::early::EarlyAsk;
use self::moving::Mover;
use crate::base::{
    Bug, Config, Interval, LockRef, Micros, NodeId, NodeName, Now, Planted, Rng, SegmentId,
    SessionId,
};
use crate::command::Body;
use crate::coordinator::Coordinator;
use crate::io::{CallId, Effects, Input, Memory};
use crate::lock::{self, Rejection};
use crate::message::Message;
use crate::register::{Caller, Owner, Replica};
use crate::request::{ClockStatus, Code, RefState, Refusal, Reply};
use crate::segment::SegmentState;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use logs::env;
pub use logs::{Closing, GroupLog, Here, Segment};

/// One node of a cluster.
#[derive(Debug)]
pub struct Node {
    here: Here,
    replica: Replica,
    caller: Caller,
    coordinator: Coordinator,
    next_beat: u64,
    /// Quorum operations of the registers' upkeep that are under way.
    upkeep_ops: usize,
    mover: Mover,
    /// Who was told since the last beat that it is not known.
    greeted: BTreeSet<NodeId>,
    /// Messages not taken, by reason: for support.
    ignored: BTreeMap<&'static str, u64>,
}

/// What every handler of a node works with during one step.
pub(crate) struct Step<'a> {
    pub(crate) now: Now,
    /// The cluster's time.
    pub(crate) time: Option<Interval>,
    pub(crate) memory: &'a dyn Memory,
    pub(crate) fx: &'a mut Effects,
}

impl Node {
    /// A node over its durable memory, which may be empty. A new node does nothing until it has
    /// heard from every other node of its cluster once; one that has been started before starts at
    /// once.
    ///
    /// # Errors
    /// One sentence for the operator, when the memory does not fit the configuration, or is corrupt
    /// where no peer can help.
    pub fn recover(
        config: Config,
        id: NodeId,
        memory: &dyn Memory,
        now: Now,
        seed: u64,
    ) -> Result<Node, String> {
        let (planted, value_most) = (config.planted, config.limits.value_most);
        let here = Here::recover(config, id, memory, now)?;
        Ok(Node {
            replica: Replica::recover(id.name, seed, memory),
            caller: Caller::new(id.name, seed),
            coordinator: Coordinator::new(own_session(seed), first_call(seed, planted)),
            here,
            next_beat: now.monotonic,
            upkeep_ops: 0,
            mover: Mover::new(seed, value_most, planted),
            greeted: BTreeSet::new(),
            ignored: BTreeMap::new(),
        })
    }

    /// Handles one input.
    pub fn step(&mut self, now: Now, input: Input, memory: &dyn Memory, fx: &mut Effects) {
        let Here { clocks, config, .. } = &mut self.here;
        let now = clocks.read(now, &config.timing, config.planted);
        self.here.ledgers.begin_step();
        self.here.read_time(now);
        let time = self.here.time(now);
        let mut step = Step {
            now,
            time,
            memory,
            fx,
        };
        match input {
            Input::Heard { from, interval } => self.on_heard(from, interval, &step),
            Input::Message { from, message } => self.receive(from, message, &mut step),
            Input::Request { call, request } if self.here.started => {
                self.coordinate(&mut step, |coordinator, cx| {
                    coordinator.on_request(call, request, cx);
                });
            }
            Input::Request { call, .. } => refuse_early(call, step.fx),
            Input::Cancel(call) => {
                self.coordinate(&mut step, |coordinator, cx| coordinator.on_cancel(call, cx));
            }
            // What is kept does not keep a beat waiting.
            Input::Tick if step.now.monotonic < self.next_beat => match self.here.early.next() {
                Some(ask) => self.answer_kept(ask, &mut step),
                None => self.tick(&mut step),
            },
            Input::Tick => self.tick(&mut step),
            Input::Retire => self.retire(&mut step),
            Input::Gone(peer) => self.here.on_gone(peer, &mut step),
            Input::Writable(writable) => {
                self.here.writable = writable;
                if !writable {
                    self.give_away(&mut step);
                }
            }
        }
        self.settle(&mut step);
    }

    /// When the node wants to be stepped next, although nothing arrives, on its boot-time clock.
    pub fn wake(&self) -> Option<Micros> {
        let wishes = [
            Some(self.next_beat),
            self.here.agenda.next(),
            self.here.early.wake(self.here.keeps_early_for()),
            self.here.ledgers.wake(),
            self.mover.wake(),
            self.caller.wake(),
            self.replica.wake(),
            self.coordinator.wake(),
        ];
        wishes.into_iter().flatten().min()
    }

    /// Who this is.
    pub fn id(&self) -> NodeId {
        self.here.id
    }

    /// How it was configured.
    pub fn config(&self) -> &Config {
        &self.here.config
    }

    /// The logs of this node and their states: for support and for checkers.
    pub fn here(&self) -> &Here {
        &self.here
    }

    /// Whether it knows the whole cluster and takes part.
    pub fn is_started(&self) -> bool {
        self.here.started
    }

    /// What this node makes of its interval clock, as of its last step.
    pub fn clock(&self) -> ClockStatus {
        self.here.clocks.status()
    }

    /// Keys and values that this node moves at this moment: for checkers.
    pub fn moving(&self) -> usize {
        self.mover.under_way()
    }

    /// Logs that this node has given to another seat since it began, because that one should lead
    /// them: for support.
    pub fn moves(&self) -> u64 {
        self.here.moves
    }

    /// Messages not taken, by reason.
    pub fn ignored(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.ignored.iter().map(|(why, count)| (*why, *count))
    }

    fn ignore(&mut self, why: &'static str) {
        *self.ignored.entry(why).or_default() += 1;
    }

    fn receive(&mut self, from: NodeId, message: Message, step: &mut Step<'_>) {
        if let Message::Hello(hello) = message {
            return self.on_hello(from, hello, step);
        }
        if !self.here.started {
            return self.ignore("not started");
        }
        // Quorums count incarnations: a new data directory has forgotten what an old one promised.
        if !self.here.knows(from) {
            self.ignore("unknown incarnation");
            if self.greeted.insert(from) {
                self.say_hello(from.name, false, step);
            }
            return;
        }
        self.here.hear(from.name, step.now);
        match message {
            Message::Hello(_) => unreachable!("handled above"),
            Message::Paxos { log, message } => self.here.on_paxos(from.name, log, message, step),
            Message::Register(message) => self.on_register(from.name, message, step),
            Message::Lock(message) => self.on_lock(from.name, message, step),
            Message::Coordinator(message) => self.on_coordinator(from.name, message, step),
            Message::Beat(beat) => self.on_beat(from.name, beat, step),
            Message::BeatAck(ack) => self.on_beat_ack(from.name, ack, step),
            Message::Catalogue(catalogue) => self.here.learn_catalogue(catalogue, step.fx),
            Message::Ring(message) => self.on_ring(from.name, message, step),
            Message::Records(message) => {
                let told = match &message {
                    crate::records::Message::IsComplete { segment, .. } => Some(*segment),
                    _ => None,
                };
                self.here.on_records(from.name, message, step);
                if let Some(segment) = told {
                    self.resume_orders(segment, step);
                }
            }
            Message::Ledger(message) => self.on_ledger(from.name, message, step),
            Message::Registry(registry) => self.here.learn_registry(&registry, step.fx),
        }
    }

    fn tick(&mut self, step: &mut Step<'_>) {
        // Each beat looks after every log and every lease; in between only what asks for it is due.
        let beats = step.now.monotonic >= self.next_beat;
        if beats {
            self.next_beat = step.now.monotonic + self.here.config.timing.beat;
            self.beat(step);
        }
        if !self.here.started {
            return;
        }
        if beats {
            self.upkeep(step);
            self.here.follow_up(step);
            self.moves_on(step);
        }
        self.moves_paced(step);
        if beats {
            self.here.keep_time(step);
        }
        self.here.close_times(beats, step);
        self.here.refuse_early(step);
        let due = match beats {
            true => self.here.rooms(),
            false => self.here.agenda.due(step.now.monotonic),
        };
        for room in &due {
            self.here.tick_log(*room, step);
        }
        let mut cx = env(&self.here.config, step);
        self.caller.tick(&mut cx);
        self.replica.tick(&mut cx);
        self.coordinate(step, |coordinator, cx| coordinator.tick(cx));
        // Primaries after their logs, which may have lost the lease in this very tick.
        for room in due {
            if let Room::Segment(segment) = room {
                self.with_primary(segment, step, |primary, state, cx| {
                    primary.tick(state.queues(), cx)
                });
                if beats {
                    self.look_after_idle(segment, step);
                    self.answer_reads(segment, step);
                }
            }
        }
    }

    /// Synchronizes a flagged key that nobody waits for, of a segment that this node leads: its
    /// flag goes only by a synch (F18).
    fn look_after_idle(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        if !self.here.writable {
            return;
        }
        let neglected = self.with_primary(segment, step, |primary, state, cx| {
            primary.neglected(state.queues(), cx)
        });
        if let Some(key) = neglected.flatten() {
            let site = self.here.directory.site_of(self.here.id.name);
            self.coordinate(step, |coordinator, cx| {
                coordinator.synchronize(key, site, cx);
            });
        }
    }

    /// Carries on what the input has made possible, until nothing is left to do. Logs come first:
    /// what the end of an operation leads to should see everything that is chosen by now.
    fn settle(&mut self, step: &mut Step<'_>) {
        loop {
            if let Some(room) = self.here.agenda.next_run() {
                match room {
                    Room::Segment(segment) => self.run_segment(segment, step),
                    Room::Group(group) => self.run_group(group, step),
                }
            } else if let Some((op, owner, outcome)) = self.caller.take_finished() {
                match owner {
                    Owner::Task(task) => self.coordinate(step, |coordinator, cx| {
                        coordinator.on_register(task, outcome, cx);
                    }),
                    Owner::Primary(segment, key, errand) => {
                        self.with_primary(segment, step, |primary, state, cx| {
                            primary.on_outcome(op, (key, errand), outcome, state.queues(), cx);
                        });
                    }
                    Owner::Upkeep => self.upkeep_ops -= 1,
                    Owner::Mover(source, key) => self.key_moved(source, key, &outcome, step),
                }
            } else if !self.here.news.is_empty() {
                let news = core::mem::take(&mut self.here.news);
                self.here.release_early(&news);
                self.coordinate(step, |coordinator, cx| coordinator.on_news(&news, cx));
            } else {
                break;
            }
        }
        self.here.flush_logs(step);
        self.seal_ended(step);
        self.delete_moved(step);
        self.here.bound_memory(step);
    }

    fn on_register(
        &mut self,
        from: NodeName,
        message: crate::register::Message,
        step: &mut Step<'_>,
    ) {
        use crate::register::Message::{Answer, Ask, AskStore};
        match message {
            Ask {
                call,
                store,
                key,
                ask,
            } => {
                let ask = EarlyAsk {
                    from,
                    call,
                    store,
                    key,
                    ask,
                };
                if !self.takes(&ask, step) {
                    return;
                }
                if let Some(ask) = self.keep_early(ask, step) {
                    self.on_ask(ask, step);
                }
            }
            AskStore { call, store, ask } => {
                let mut cx = env(&self.here.config, step);
                let at = topology::AtSegment::new(&self.here, store);
                self.replica
                    .on_store_ask(from, call, store, ask, &at, &mut cx);
            }
            Answer {
                call,
                store,
                answer,
                ..
            } if Mover::owns(call) => self.on_moving(from, (call, store), answer, step),
            Answer {
                call,
                store,
                answer,
                ..
            } if Replica::owns(call) => {
                let mut cx = env(&self.here.config, step);
                let at = topology::AtSegment::new(&self.here, store);
                self.replica
                    .on_answer(from, call, store, answer, &at, &mut cx);
            }
            Answer {
                call,
                store,
                answer,
                ..
            } => {
                let mut cx = env(&self.here.config, step);
                self.caller.on_answer(from, call, store, answer, &mut cx);
            }
        }
    }

    fn on_ask(&mut self, asked: EarlyAsk, step: &mut Step<'_>) {
        let EarlyAsk {
            from,
            call,
            store,
            key,
            ask,
        } = asked;
        // Who reads through to an earlier store knows that it is one.
        if !ask.is_of_the_past() {
            self.here.redirect(from, store, step);
        }
        let mut cx = env(&self.here.config, step);
        let at = match ask {
            crate::register::Ask::EventualGet => topology::AtSegment::or_before(&self.here, store),
            _ => topology::AtSegment::new(&self.here, store),
        };
        self.replica
            .on_ask(from, call, store, key, ask, &at, &mut cx);
    }

    fn on_coordinator(
        &mut self,
        from: NodeName,
        message: crate::coordinator::Message,
        step: &mut Step<'_>,
    ) {
        match message {
            crate::coordinator::Message::Propose { call, command } => {
                self.here.propose_to_group(from, call, command, step);
            }
            crate::coordinator::Message::Catalogue { call } => {
                self.here.send_catalogue(from, call, step);
            }
            crate::coordinator::Message::Keys {
                call,
                from: first,
                to,
                store,
                past,
                range,
            } => {
                let of = listing::Wanted {
                    segments: first..=to,
                    store,
                    past,
                };
                self.list_keys((from, call), &of, range, step);
            }
            message => self.coordinate(step, |coordinator, cx| {
                coordinator.on_coordinator(from, message, cx);
            }),
        }
    }

    /// A lock message is for the segment's primary if it asks, for the coordinator if it answers.
    fn on_lock(&mut self, from: NodeName, message: lock::Message, step: &mut Step<'_>) {
        if let Some(segment) = message.asks_about() {
            self.here.direct(from, segment, step);
            if self.here.why_not_leased(segment, step).is_some() {
                self.here.early.note_asker(segment, from);
            }
        }
        match message {
            lock::Message::Submit {
                call,
                segment,
                command,
            } => {
                if let Some(why) = self.here.why_not_primary(segment) {
                    return step.fx.send(from, ledger::submitted(call, Err(why)));
                }
                if matches!(command.body, Body::Ledger(_)) {
                    return self.on_order((from, call), segment, command, step);
                }
                self.with_primary(segment, step, |primary, state, cx| {
                    primary.on_submit(from, call, command, state, cx);
                });
            }
            lock::Message::Renew {
                call,
                segment,
                session,
                refs,
                again,
                relinquishes,
            } => {
                let keys = (&refs[..], &again[..], relinquishes);
                let result = self.renewed(from, (segment, session), keys, step);
                step.fx
                    .promise(from, lock::Message::Renewed { call, result });
            }
            lock::Message::PutDone { segment, key, tag } => {
                self.with_primary(segment, step, |primary, state, cx| {
                    primary.on_put_done(&key, tag, state.queues(), cx);
                });
            }
            lock::Message::Queue { call, segment, key } => {
                let result = match self.here.why_not_leased(segment, step) {
                    Some(why) => Err(why),
                    None => Ok(self
                        .with_primary(segment, step, |primary, state, _| {
                            primary.listing(&key, state.queues())
                        })
                        .unwrap_or_default()),
                };
                step.fx
                    .promise(from, lock::Message::QueueIs { call, result });
            }
            answer => self.coordinate(step, |coordinator, cx| {
                coordinator.on_lock(from, answer, cx);
            }),
        }
    }

    fn renewed(
        &mut self,
        from: NodeName,
        (segment, session): (SegmentId, SessionId),
        (refs, again, relinquishes): (&[(LockRef, u32)], &[LockRef], bool),
        step: &mut Step<'_>,
    ) -> Result<Vec<RefState>, Rejection> {
        let why = self.here.why_not_leased(segment, step);
        // Without a lease it answers for nothing, and prepares what will be granted with it.
        let states = self.with_primary(segment, step, |primary, state, cx| {
            let states = primary.on_renew(from, session, (refs, again), state.queues(), cx);
            if relinquishes {
                primary.relinquished(refs, &states);
            }
            states
        });
        why.map_or(Ok(states.unwrap_or_default()), Err)
    }

    fn coordinate(
        &mut self,
        step: &mut Step<'_>,
        act: impl FnOnce(&mut Coordinator, &mut crate::coordinator::Cx<'_>),
    ) {
        let topology = topology::Known {
            here: &self.here,
            replica: &self.replica,
            carried: self.mover.carried,
            now: step.now,
        };
        let mut cx = crate::coordinator::Cx {
            env: env(&self.here.config, step),
            registers: &mut self.caller,
            topology: &topology,
        };
        act(&mut self.coordinator, &mut cx);
    }

    /// Runs something of a segment's primary, if this node leads it, and proposes what comes of it.
    fn with_primary<T>(
        &mut self,
        segment: SegmentId,
        step: &mut Step<'_>,
        act: impl FnOnce(&mut lock::Primary, &SegmentState, &mut lock::PrimaryEnv<'_>) -> T,
    ) -> Option<T> {
        let Here {
            segments,
            config,
            catalogue,
            ..
        } = &mut self.here;
        let room = segments.get_mut(&segment)?;
        let primary = room.primary.as_mut()?;
        let mut cx = lock::PrimaryEnv {
            leased: room.log.has_lease(step.now, &config.timing),
            env: env(config, step),
            registers: &mut self.caller,
            place: &room.place,
            catalogue,
            segment,
        };
        let result = act(primary, &room.state, &mut cx);
        let proposals = primary.take_proposals();
        self.here.propose(segment, proposals, step);
        Some(result)
    }
}

/// The session under which a coordinator issues commands of its own; new in every process.
fn own_session(seed: u64) -> SessionId {
    let mut rng = Rng::new(seed);
    SessionId::drawn((u128::from(rng.draw()) << 64) | u128::from(rng.draw()))
}

/// Where the names of a coordinator's questions begin: anywhere.
fn first_call(seed: u64, planted: Planted) -> u64 {
    match planted.has(Bug::QuestionsReused) {
        true => 0,
        false => Rng::new(!seed).draw() >> 4,
    }
}

fn refuse_early(call: CallId, fx: &mut Effects) {
    let why = "this node has not heard from every node of its new cluster yet; \
               start them all, or ask again in a moment";
    fx.reply(
        call,
        Reply::Refused(Refusal::definite(Code::Unavailable, why)),
    );
}
