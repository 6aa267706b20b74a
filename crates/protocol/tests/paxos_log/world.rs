//! A few replicas of one log, an asynchronous network, disks that forget what was not flushed, and
//! clocks that drift; with checks after every step.

use crate::outsider::{self, Outsider};
use bytes::Bytes;
use fermata_protocol::base::*;
use fermata_protocol::command::{Body, Command, LockCommand};
use fermata_protocol::paxos::{Entry, Follow, Joining, Log, Message as Paxos, Stop};
use fermata_protocol::wire::record;
use fermata_protocol::{Effects, Env, Memory, Message, Output, Void, When, Write};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const ID: LogId = LogId {
    group: GroupId(7),
    scope: Scope::Segment(SegmentId(3)),
    epoch: Epoch(1),
};

/// The end of the log, for the one of that epoch.
pub(crate) fn stop(next: Epoch) -> Stop {
    Stop {
        group: ID.group,
        next,
        first: NodeName(1),
        moves: false,
        format: 9,
    }
}

/// What travels: log messages, and the beats that the node room would send.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Paxos(Paxos),
    Beat(Ballot, Slot, Micros),
    Ack(Ballot, Micros),
    Deposed(Ballot),
}

#[derive(Default, Clone)]
pub(crate) struct Disk {
    pub(crate) map: BTreeMap<Bytes, Bytes>,
    pub(crate) void: BTreeSet<Bytes>,
}

impl Disk {
    fn apply(&mut self, write: &Write) {
        match write {
            Write::Put { key, value } => {
                self.void.remove(key);
                self.map.insert(key.clone(), value.clone());
            }
            Write::Delete { key } => {
                self.map.remove(key);
            }
            Write::DeleteRange { from, to } => {
                self.map.retain(|k, _| k < from || k >= to);
                self.void.retain(|k| k < from || k >= to);
            }
        }
    }
}

impl Memory for Disk {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Void> {
        if self.void.contains(key) {
            return Err(Void);
        }
        Ok(self.map.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Result<Bytes, Void>)> {
        let range = (
            std::ops::Bound::Included(Bytes::copy_from_slice(from)),
            std::ops::Bound::Excluded(Bytes::copy_from_slice(to)),
        );
        let read = |k: &Bytes, v: &Bytes| {
            if self.void.contains(k) {
                Err(Void)
            } else {
                Ok(v.clone())
            }
        };
        self.map
            .range(range)
            .take(limit)
            .map(|(k, v)| (k.clone(), read(k, v)))
            .collect()
    }

    fn is_durable(&self, _: &[u8]) -> bool {
        false
    }
}

/// Writes, and what may leave once they are durable.
type Batch = (Vec<Write>, Vec<(usize, Paxos)>);

pub(crate) struct Host {
    pub(crate) log: Option<Log>,
    pub(crate) durable: Disk,
    /// Batches appended and not yet flushed, with the outputs that wait for them.
    batches: Vec<Batch>,
    /// The state machine: applied slots and a digest of all effective entries.
    pub(crate) applied: (Slot, u64),
    begin: Ballot,
    pub(crate) life: u32,
    drift_ppm: i64,
}

pub(crate) struct World {
    pub(crate) hosts: Vec<Host>,
    pub(crate) view: View,
    pub(crate) rng: Rng,
    pub(crate) time: Micros,
    pub(crate) timing: Timing,
    pub(crate) limits: Limits,
    pub(crate) planted: Planted,
    pub(crate) net: Vec<(usize, usize, Packet)>,
    /// Links that are cut, by (from, to).
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// The truth: effective entry and digest of the prefix, by slot.
    pub(crate) truth: BTreeMap<Slot, (Entry, u64)>,
    leaders: BTreeMap<Ballot, (usize, u32)>,
    next_command: u64,
    /// Bytes of a state.
    pub(crate) state_bytes: usize,
    /// Bytes of the largest key that a command names.
    pub(crate) largest: u64,
    /// The ballot that was led where each command was taken.
    taken: BTreeMap<u64, Ballot>,
    /// What went wrong first.
    pub(crate) fault: Option<String>,
    /// Commands whose primary applied them.
    pub(crate) acknowledged: u64,
    pub(crate) installs: u64,
    pub(crate) leased: u64,
    /// A host whose disk now and then loses a vote at a crash.
    pub(crate) rotten: Option<usize>,
    /// A node that follows without a seat.
    pub(crate) outsider: Option<Outsider>,
}

fn digest(before: u64, entry: &Entry) -> u64 {
    let bytes = fermata_protocol::wire::encode(entry);
    bytes.iter().fold(before, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn state((slot, digest): (Slot, u64), begin: Ballot, bytes: usize) -> Bytes {
    let mut out = fermata_protocol::wire::encode(&(slot, digest, begin)).to_vec();
    out.resize(bytes, 7);
    out.into()
}

pub(crate) fn parse(state: &[u8]) -> ((Slot, u64), Ballot) {
    if state.is_empty() {
        return ((Slot(0), 0), Ballot::default());
    }
    for end in (1..=state.len().min(40)).rev() {
        if let Ok((slot, digest, begin)) = fermata_protocol::wire::decode(&state[..end]) {
            return ((slot, digest), begin);
        }
    }
    unreachable!("states are made by `state`")
}

pub(crate) fn command(number: u64) -> Command {
    large(number, 0)
}

/// A command with a key of so many bytes.
pub(crate) fn large(number: u64, bytes: usize) -> Command {
    let body = Body::Lock(LockCommand::Release {
        lock_ref: LockRef(number),
        key: Some(KeyId {
            keyspace: Keyspace::SECTIONS,
            key: vec![7; bytes].into(),
        }),
    });
    let (session, epoch) = (SessionId(1), Epoch(1));
    Command::new(session, number, 0, epoch, body)
}

/// Bounds of bytes so small that a few commands reach them.
pub(crate) fn small() -> Limits {
    Limits {
        key: 300,
        value: 500,
        key_most: 300,
        value_most: 500,
        section_keys: 2,
        grant: 500,
        transaction: 1_000,
        ledger_value: 500,
        proposals_bytes: 12_000,
        batch_bytes: 1_500,
        window_bytes: 4_000,
        votes_bytes: 12_000,
        entries_bytes: 8_000,
        node_entries_bytes: 8_000,
        frame: 6_500,
        ..Limits::default()
    }
}

impl World {
    pub(crate) fn new(n: usize, seed: u64, planted: Planted) -> World {
        let member = |i: usize| Member {
            name: NodeName(10 + i as u32),
            site: SiteId(i as u16),
            public_key: None,
        };
        let view = View {
            group: ID.group,
            epoch: ID.epoch,
            seats: (0..n).map(member).collect(),
        };
        let mut rng = Rng::new(seed);
        let host = |_| Host {
            log: None,
            durable: Disk::default(),
            batches: Vec::new(),
            applied: (Slot(0), 0),
            begin: Ballot::default(),
            life: 0,
            drift_ppm: 0,
        };
        let mut hosts: Vec<Host> = (0..n).map(host).collect();
        for h in &mut hosts {
            h.drift_ppm = rng.below(1_800) as i64 - 900;
        }
        let limits = Limits {
            window: 4,
            batch: 2,
            proposals: 16,
            snapshot_every: 8,
            chunk: 64,
            ..small()
        };
        limits.check().expect("bounds that fit each other");
        let mut world = World {
            hosts,
            view,
            rng,
            time: 1_000_000_000,
            timing: Timing::default(),
            limits,
            planted,
            net: Vec::new(),
            cut: BTreeSet::new(),
            truth: BTreeMap::new(),
            leaders: BTreeMap::new(),
            next_command: 0,
            state_bytes: 200,
            largest: 0,
            taken: BTreeMap::new(),
            fault: None,
            acknowledged: 0,
            installs: 0,
            leased: 0,
            rotten: None,
            outsider: None,
        };
        for i in 0..n {
            let (view, seat) = (world.view.clone(), Seat(i as u8));
            let create =
                move |env: &mut Env<'_>| Log::create(ID, view, seat, Seat(0), Bytes::new(), env);
            let mut fx = Effects::new();
            let log = world.with_env(i, &mut fx, create);
            world.hosts[i].log = Some(log);
            world.absorb(i, fx);
        }
        world
    }

    pub(crate) fn now(&self, i: usize) -> Now {
        let drift = self.time as i64 * self.hosts[i].drift_ppm / 1_000_000;
        Now {
            monotonic: (self.time as i64 + drift) as u64,
            wall: 0,
            interval: None,
        }
    }

    pub(crate) fn with_env<T>(
        &self,
        i: usize,
        fx: &mut Effects,
        f: impl FnOnce(&mut Env<'_>) -> T,
    ) -> T {
        f(&mut Env {
            time: None,
            now: self.now(i),
            fx,
            memory: &self.hosts[i].durable,
            timing: &self.timing,
            limits: &self.limits,
            planted: self.planted,
        })
    }

    /// One step of one replica, with everything a node does around it.
    pub(crate) fn step<T>(
        &mut self,
        i: usize,
        f: impl FnOnce(&mut Log, &mut Env<'_>) -> T,
    ) -> Option<T> {
        let mut log = self.hosts[i].log.take()?;
        let mut fx = Effects::new();
        let out = self.with_env(i, &mut fx, |cx| {
            let out = f(&mut log, cx);
            log.flush(cx);
            out
        });
        self.apply(i, &mut log);
        log.assert_held();
        if log.needs_snapshot(&self.limits) {
            let host = &self.hosts[i];
            let (slot, state) = (
                host.applied.0,
                state(host.applied, host.begin, self.state_bytes),
            );
            self.with_env(i, &mut fx, |cx| log.truncate(slot, state, cx));
        }
        log.assert_held();
        if let Some(ballot) = log.leadership() {
            let me = (i, self.hosts[i].life);
            let owner = *self.leaders.entry(ballot).or_insert(me);
            self.check(owner == me, || format!("{ballot:?} led by two processes"));
        }
        self.hosts[i].log = Some(log);
        self.absorb(i, fx);
        self.check_leases();
        Some(out)
    }

    pub(crate) fn check(&mut self, good: bool, what: impl FnOnce() -> String) {
        if !good && self.fault.is_none() {
            self.fault = Some(what());
        }
    }

    fn apply(&mut self, i: usize, log: &mut Log) {
        if let Some((slot, state)) = log.take_installed() {
            let (applied, begin) = parse(&state);
            let truth = self.truth.get(&slot).map(|(_, d)| *d);
            self.check(applied.0 == slot && truth == Some(applied.1), || {
                format!("host {i} installed a wrong snapshot at {slot:?}")
            });
            self.hosts[i].applied = applied;
            self.hosts[i].begin = begin;
            self.installs += 1;
        }
        while let Some((slot, entry)) = log.next_chosen() {
            let (before, sum) = self.hosts[i].applied;
            assert_eq!(slot, before.next(), "entries come in order, each once");
            let sum = digest(sum, &entry);
            let first = !self.truth.contains_key(&slot);
            let truth = self
                .truth
                .entry(slot)
                .or_insert((entry.clone(), sum))
                .clone();
            self.check(truth == (entry.clone(), sum), || {
                format!(
                    "{slot:?}: host {i} applied {entry:?}, another {:?}",
                    truth.0
                )
            });
            match &entry {
                Entry::Begin { ballot } => self.hosts[i].begin = *ballot,
                Entry::Commands { birth, commands } => {
                    // Also the rule for holes: a command that takes effect lies above the `Begin`
                    // of the ballot it was born in, and below the next one.
                    let begin = self.hosts[i].begin;
                    self.check(*birth == begin, || {
                        format!("{slot:?}: born {birth:?} in {begin:?}")
                    });
                    let late = |c: &&Command| self.taken.get(&c.number).is_some_and(|b| b != birth);
                    let late = commands.iter().find(late).map(|c| self.taken[&c.number]);
                    self.check(late.is_none(), || {
                        format!("{slot:?}: taken under {late:?}, proposed under {birth:?}")
                    });
                    if first && log.is_primary() {
                        self.acknowledged += commands.len() as u64;
                    }
                }
                Entry::Stop(stop) => assert_eq!(log.stopped(), Some(*stop)),
                Entry::Noop => {}
            }
            self.hosts[i].applied = (slot, sum);
        }
    }

    /// At most one replica may answer from memory, and it must know everything that anyone knows.
    fn check_leases(&mut self) {
        let mut holders = Vec::new();
        let mut known = Slot(0);
        for (i, host) in self.hosts.iter().enumerate() {
            let Some(log) = &host.log else { continue };
            known = known.max(log.chosen());
            if log.has_lease(self.now(i), &self.timing) {
                holders.push((i, log.chosen()));
            }
        }
        self.leased += u64::from(!holders.is_empty());
        self.check(holders.len() < 2, || {
            format!("two read leases: {holders:?}")
        });
        if let [(i, chosen)] = holders[..] {
            self.check(chosen >= known, || {
                format!("host {i} reads at {chosen:?} of {known:?}")
            });
        }
    }

    fn absorb(&mut self, i: usize, fx: Effects) {
        assert!(fx.halt.is_none());
        let mut waiting = Vec::new();
        for output in fx.outputs {
            let Output::Send {
                to,
                message: Message::Paxos { log, message },
                when,
            } = output
            else {
                panic!("a log only sends log messages");
            };
            assert_eq!(log, ID);
            let bytes = fermata_protocol::wire::size(&message);
            if bytes > self.limits.frame {
                let what = format!("a message of {bytes} bytes is longer than a frame");
                self.check(false, || what);
                continue;
            }
            let to = match to {
                outsider::NAME => self.hosts.len(),
                seated => usize::from(self.view.seat_of(seated).expect("a seat").0),
            };
            match when {
                When::Now => self.net.push((i, to, Packet::Paxos(message))),
                When::Durable => waiting.push((to, message)),
            }
        }
        self.hosts[i].batches.push((fx.writes, waiting));
    }

    /// The disk catches up: everything appended is durable, and what waited for it leaves.
    pub(crate) fn flush(&mut self, i: usize) {
        let Some(host) = self.hosts.get_mut(i) else {
            return;
        };
        for (writes, waiting) in std::mem::take(&mut host.batches) {
            writes.iter().for_each(|w| host.durable.apply(w));
            self.net
                .extend(waiting.into_iter().map(|(to, m)| (i, to, Packet::Paxos(m))));
        }
    }

    pub(crate) fn flush_all(&mut self) {
        (0..self.hosts.len()).for_each(|i| self.flush(i));
    }

    /// The process dies; of the batches not flushed a prefix happens to be on disk.
    pub(crate) fn crash(&mut self, i: usize) {
        let host = &mut self.hosts[i];
        host.log = None;
        let batches = std::mem::take(&mut host.batches);
        let kept = self.rng.below(batches.len() as u64 + 1) as usize;
        for (writes, _) in &batches[..kept] {
            writes.iter().for_each(|w| host.durable.apply(w));
        }
        if self.rotten == Some(i) && self.rng.below(2) == 0 {
            let slot = Slot(1 + self.rng.below(self.truth.len() as u64 + 2));
            let key = record::accepted(ID, slot);
            if host.durable.map.contains_key(&key) {
                host.durable.void.insert(key);
            }
        }
        // What a node says to itself dies with it.
        self.net.retain(|(from, to, _)| (*from, *to) != (i, i));
    }

    pub(crate) fn restart(&mut self, i: usize) {
        if self.hosts[i].log.is_some() {
            return;
        }
        self.hosts[i].life += 1;
        let (me, now) = (self.view.seats[i].name, self.now(i));
        match Log::recover(ID, me, &self.hosts[i].durable, now) {
            Ok(recovered) => {
                let ((slot, sum), begin) = parse(&recovered.state);
                assert_eq!(slot, recovered.slot);
                self.hosts[i].applied = (slot, sum);
                self.hosts[i].begin = begin;
                self.hosts[i].log = Some(recovered.log);
            }
            Err(fermata_protocol::paxos::Unrecoverable::Missing) => {
                let (view, seat) = (self.view.clone(), Seat(i as u8));
                let mut fx = Effects::new();
                let create = move |env: &mut Env<'_>| {
                    Log::create(ID, view, seat, Seat(0), Bytes::new(), env)
                };
                let log = self.with_env(i, &mut fx, create);
                // Its first life may have led in ballot 0, but no message of that life ever left.
                self.leaders.retain(|_, owner| owner.0 != i);
                self.hosts[i].log = Some(log);
                self.hosts[i].applied = (Slot(0), 0);
                self.absorb(i, fx);
            }
            Err(e) => panic!("{e}"),
        }
        self.step(i, |log, cx| log.tick(cx));
    }

    /// Nothing was ever created here.
    pub(crate) fn never_had(&mut self, i: usize) {
        self.hosts[i].log = None;
        self.hosts[i].batches.clear();
        self.hosts[i].durable = Disk::default();
        self.net.retain(|(from, ..)| *from != i);
        self.leaders.retain(|_, owner| owner.0 != i);
    }

    /// A host that never had a replica gets one, with what `from` has, part by part; the number of
    /// parts.
    pub(crate) fn join(&mut self, i: usize, from: usize) -> usize {
        assert!(self.hosts[i].log.is_none() && self.hosts[i].durable.map.is_empty());
        let mut joining = Joining::new(ID);
        let (peer, me) = (self.view.seats[from].name, self.view.seats[i].name);
        for parts in 1.. {
            // What the answer to the last part asked for.
            let mut fx = Effects::new();
            self.with_env(i, &mut fx, |cx| {
                joining.ask(peer, cx);
                assert!(!joining.overdue(cx), "the peer has its time to answer");
            });
            let ask = fx.outputs.iter().find_map(|o| match o {
                Output::Send {
                    message: Message::Paxos { message, .. },
                    ..
                } => Some(message.clone()),
                _ => None,
            });
            let ask = ask.expect("it asks");
            self.step(from, |log, cx| log.on_message(Seat(i as u8), ask, cx));
            let at = self
                .net
                .iter()
                .position(|(_, to, p)| *to == i && matches!(p, Packet::Paxos(Paxos::Birth { .. })));
            let (_, _, packet) = self.net.remove(at.expect("it is answered"));
            let Packet::Paxos(Paxos::Birth { view, first, chunk }) = packet else {
                unreachable!("just found");
            };
            let mut fx = Effects::new();
            let got = self.with_env(i, &mut fx, |cx| {
                joining.on_birth((peer, me), (view, first), chunk, cx)
            });
            if let Some(recovered) = got.expect("the parts fit") {
                let (applied, begin) = parse(&recovered.state);
                assert_eq!(applied.0, recovered.slot);
                self.hosts[i].applied = applied;
                self.hosts[i].begin = begin;
                self.hosts[i].log = Some(recovered.log);
                self.absorb(i, fx);
                return parts;
            }
        }
        unreachable!("snapshots end")
    }

    pub(crate) fn deliver(&mut self, from: usize, to: usize, packet: Packet) {
        if to == self.hosts.len() {
            return self.is_told(from, packet);
        }
        if let (true, Packet::Paxos(message)) = (from == self.hosts.len(), &packet) {
            let message = message.clone();
            self.step(to, |log, cx| log.on_outsider(outsider::NAME, message, cx));
            return;
        }
        let seat = Seat(from as u8);
        let answer = self.step(to, |log, cx| match packet {
            Packet::Paxos(message) => {
                log.on_message(seat, message, cx);
                None
            }
            Packet::Beat(ballot, chosen, sent) => match log.on_beat(seat, ballot, chosen, cx) {
                Follow::Follows(ballot) => Some(Packet::Ack(ballot, sent)),
                Follow::Deposed(promised) => Some(Packet::Deposed(promised)),
                Follow::Ignored => None,
            },
            Packet::Ack(ballot, sent) => {
                log.on_beat_ack(seat, ballot, sent, cx);
                None
            }
            Packet::Deposed(promised) => {
                log.on_deposed(seat, promised, cx);
                None
            }
        });
        if let Some(answer) = answer.flatten() {
            self.net.push((to, from, answer));
        }
    }

    /// Delivers until nothing moves over open links: in order, or in any order, with some packets
    /// repeated. Packets of cut links stay, for later.
    pub(crate) fn settle(&mut self, in_order: bool) {
        for _ in 0..5_000 {
            let open: Vec<usize> = (0..self.net.len())
                .filter(|k| !self.cut.contains(&(self.net[*k].0, self.net[*k].1)))
                .collect();
            if open.is_empty() {
                if self
                    .hosts
                    .iter()
                    .all(|h| h.batches.iter().all(|b| b.1.is_empty()))
                {
                    return;
                }
                self.flush_all();
                continue;
            }
            let pick = if in_order {
                0
            } else {
                self.rng.below(open.len() as u64) as usize
            };
            let (from, to, packet) = self.net.remove(open[pick]);
            if !in_order && self.rng.below(20) == 0 {
                self.net.push((from, to, packet.clone()));
            }
            self.deliver(from, to, packet);
            if self.rng.below(3) > 0 {
                self.flush(to);
            }
        }
        self.check(false, || "the network never falls silent".into());
    }

    /// Time passes: timers fire, leaders beat.
    pub(crate) fn pass(&mut self, micros: Micros) {
        self.time += micros;
        for i in 0..self.hosts.len() {
            let now = self.now(i);
            let Some(log) = &self.hosts[i].log else {
                continue;
            };
            let due = log.wake().is_some_and(|at| at <= now.monotonic);
            if let Some((ballot, chosen)) = log.beat() {
                for to in (0..self.hosts.len()).filter(|to| *to != i) {
                    let beat = Packet::Beat(ballot, chosen, now.monotonic);
                    self.net.push((i, to, beat));
                }
            }
            if due {
                self.step(i, |log, cx| log.tick(cx));
            }
        }
        self.follow_on();
        self.check_leases();
    }

    /// Calm time: beats and timers, everything delivered in order.
    pub(crate) fn calm(&mut self, micros: Micros) {
        let until = self.time + micros;
        while self.time < until {
            self.pass(self.timing.beat);
            self.settle(true);
        }
    }

    pub(crate) fn propose(&mut self, i: usize) -> bool {
        self.next_command += 1;
        let bytes = self.rng.below(self.largest + 1);
        let command = large(self.next_command, bytes as usize);
        let lead = self.hosts[i].log.as_ref().and_then(Log::leadership);
        let taken = self.step(i, |log, cx| log.propose(command, cx).is_ok());
        if let (Some(true), Some(lead)) = (taken, lead) {
            self.taken.insert(self.next_command, lead);
        }
        taken == Some(true)
    }

    /// The number of the command that was proposed last.
    pub(crate) fn proposed(&self) -> u64 {
        self.next_command
    }

    pub(crate) fn primary(&self) -> Option<usize> {
        let is = |h: &Host| h.log.as_ref().is_some_and(Log::is_primary);
        self.hosts.iter().position(is)
    }

    pub(crate) fn log(&self, i: usize) -> &Log {
        self.hosts[i].log.as_ref().expect("the host is up")
    }

    pub(crate) fn isolate(&mut self, i: usize) {
        for j in (0..self.hosts.len()).filter(|j| *j != i) {
            self.cut.insert((i, j));
            self.cut.insert((j, i));
        }
    }

    /// Everybody up, every link open: one primary, and all replicas agree to the end.
    pub(crate) fn heal_and_check(&mut self) {
        self.cut.clear();
        (0..self.hosts.len()).for_each(|i| self.restart(i));
        self.calm(12_000_000);
        if self.fault.is_some() {
            return;
        }
        let last = self.truth.last_key_value().map_or(Slot(0), |(s, _)| *s);
        let over = self
            .hosts
            .iter()
            .any(|h| h.log.as_ref().is_some_and(|l| l.stopped().is_some()));
        self.check(over || self.primary().is_some(), || {
            "no primary in calm time".into()
        });
        self.flush_all();
        for i in 0..self.hosts.len() {
            let (chosen, base) = (self.log(i).chosen(), self.log(i).truncated());
            self.check(chosen >= last, || {
                format!("host {i} stays behind: {chosen:?} of {last:?}")
            });
            let below = record::accepted(ID, Slot(0))..record::accepted(ID, base.next());
            let kept = self.hosts[i].durable.map.range(below).count();
            self.check(kept == 0, || {
                format!("host {i} keeps {kept} votes that its snapshot replaces")
            });
        }
        if let Some(primary) = self.primary().filter(|_| !over) {
            let before = self.truth.len();
            let taken = self.propose(primary);
            self.calm(1_000_000);
            let grown = self.truth.len() > before;
            self.check(taken && grown, || "a calm primary takes no command".into());
        }
        self.check_outsider();
    }
}
