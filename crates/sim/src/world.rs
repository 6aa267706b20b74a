//! The world: machines, clients, a network between them, and a queue of what happens next.
//!
//! One thread, one virtual clock in microseconds, one seed. Events are ordered by time and then by
//! the order in which they were made; every collection that is iterated is ordered; so the same
//! seed gives the same run, byte for byte.

use crate::checkers::{Violation, frames, rests};
use crate::client::{Client, Wish};
use crate::clock::Clock;
use crate::dice::Dice;
use crate::disk::{Disk, Flushed};
use crate::history::{Heard, History, OpId};
use crate::kind;
use crate::machine::{Caller, Machine, Stepped};
use crate::model::Observer;
use crate::monitor::Monitor;
use crate::nemesis::Fates;
use crate::network::{ClientId, End, Network, Parcel, RuleId, Way};
use crate::profile::Profile;
use crate::show;
use crate::trace::Trace;
use crate::twins::{Liar, Twin};
use fermata_driver::{Action, Event};
use fermata_protocol::base::{
    Bug, Cluster, Config, Epoch, GroupId, Incarnation, Interval, KeyId, Limits, NodeId, NodeName,
    Planted, SessionId, Timing,
};
use fermata_protocol::client::{Call, Options};
use fermata_protocol::registry::Standing;
use fermata_protocol::{CallId, Input, Node, Reply, wire};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// What the program before this one reads and writes: no ledgers.
pub const OLDER: RangeInclusive<u16> = wire::VERSION..=wire::VERSION;

/// What newer versions of the program read: the formats after the present ones differ in name
/// alone.
pub const NEWER: RangeInclusive<u16> = wire::VERSION..=wire::VERSION + 3;

/// A process that found no room to start is started again after this long, microseconds.
const START_AGAIN: u64 = 500_000;

/// Something that happens at a time.
enum Happening {
    /// With what the frame says of its sender's interval clock.
    Arrives(Box<Parcel>, Option<Interval>),
    Flushed(NodeName, u32),
    LinkIsFree(NodeName, NodeName, u32),
    Wakes(NodeName, u32),
    ClientWakes(ClientId, u32),
    Act(Box<dyn FnOnce(&mut World)>),
}

/// How a world is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Everything is drawn from this.
    pub seed: u64,
    /// Latencies.
    pub profile: &'static Profile,
    /// The cluster.
    pub cluster: Cluster,
    /// The formats that the nodes' programs read at first.
    pub formats: RangeInclusive<u16>,
    /// Durations of the protocol.
    pub timing: Timing,
    /// Bounds of the protocol.
    pub limits: Limits,
    /// What is wrong on purpose.
    pub planted: Planted,
    /// How long a flush takes, microseconds, from and to.
    pub flush: (u64, u64),
    /// When the store checkpoints, bytes.
    pub checkpoint_bytes: u64,
    /// What shells have room and time for.
    pub shell: kind::Shell,
    /// Largest rate error of a machine's boot-time clock, parts per million.
    pub drift_ppm: u64,
    /// Whether the trace keeps its text.
    pub trace: bool,
    /// Whether replicas are watched after every step.
    pub watch: bool,
    /// Whether what happens is written down for the model: see [`crate::model`].
    pub model: bool,
}

impl Setup {
    /// A world in which nothing but distance costs anything, and that nobody watches.
    pub fn measured(profile: &'static Profile, cluster: Cluster, timing: Timing) -> Setup {
        Setup {
            seed: 1,
            profile,
            cluster,
            formats: wire::FORMATS,
            timing,
            limits: Limits::default(),
            planted: Planted::NONE,
            flush: (0, 0),
            checkpoint_bytes: 64 << 20,
            shell: kind::Shell::default(),
            drift_ppm: 0,
            trace: false,
            watch: false,
            model: false,
        }
    }
}

/// One simulated world.
pub struct World {
    /// True time, microseconds.
    pub now: u64,
    /// How it was made.
    pub setup: Setup,
    /// What travels.
    pub network: Network,
    /// The machines.
    pub machines: BTreeMap<NodeName, Machine>,
    /// The clients, by number.
    pub clients: Vec<Client>,
    /// What clients did and saw.
    pub history: History,
    /// What replicas did.
    pub monitor: Monitor,
    /// What happened, for the model.
    pub observer: Option<Box<Observer>>,
    /// Macro-steps under way.
    pub fates: Fates,
    /// What happened.
    pub trace: Trace,
    /// What is wrong so far.
    pub violations: Vec<Violation>,
    /// For whoever drives the world.
    pub dice: Dice,
    /// Registers that faults aim at.
    pub registers: Vec<KeyId>,
    /// Keys of sections that faults aim at.
    pub sections: Vec<KeyId>,
    /// Who was to have a seat in a view, by group and epoch: it may still be decided.
    pub(crate) wanted: BTreeMap<(GroupId, Epoch), BTreeSet<NodeName>>,
    /// Whom the cluster was asked to dismiss, which it may still do: nobody gives them a seat.
    pub(crate) unwanted: BTreeSet<NodeName>,
    /// Second processes under the names of machines.
    pub(crate) twins: BTreeMap<NodeName, Twin>,
    /// What is done to what a machine sends.
    pub(crate) liars: BTreeMap<NodeName, Liar>,
    /// The twin that stands in its machine's place for the time of a step.
    pub(crate) in_place: Option<NodeName>,
    queue: BTreeMap<(u64, u64), Happening>,
    sequence: u64,
}

impl World {
    /// A world in which every machine has just been switched on.
    pub fn new(setup: Setup) -> World {
        let mut world = World::dark(setup);
        for name in world.machines.keys().copied().collect::<Vec<_>>() {
            world.start(name);
        }
        world
    }

    /// A world in which every machine is still switched off.
    ///
    /// # Panics
    /// If the limits do not fit each other.
    pub fn dark(setup: Setup) -> World {
        setup.limits.check().expect("limits that fit each other");
        let mut dice = Dice::new(setup.seed);
        let network = Network::new(setup.profile, dice.fork());
        let mut world = World {
            now: 0,
            network,
            machines: BTreeMap::new(),
            wanted: BTreeMap::new(),
            unwanted: BTreeSet::new(),
            clients: Vec::new(),
            history: History::default(),
            monitor: Monitor::new(setup.watch, &setup.cluster),
            observer: setup.model.then(Box::default),
            fates: Fates::new(dice.fork()),
            trace: Trace::new(setup.trace),
            violations: Vec::new(),
            dice,
            registers: Vec::new(),
            sections: Vec::new(),
            twins: BTreeMap::new(),
            liars: BTreeMap::new(),
            in_place: None,
            queue: BTreeMap::new(),
            sequence: 0,
            setup,
        };
        for info in world.setup.cluster.nodes.clone() {
            let machine = world.make_machine(info.name, info.site.0);
            world.network.place(End::Node(info.name), info.site.0);
            world.machines.insert(info.name, machine);
        }
        world
    }

    pub(crate) fn make_machine(&mut self, name: NodeName, site: u16) -> Machine {
        let setup = &self.setup;
        let config = Config {
            name,
            cluster: setup.cluster.clone(),
            timing: setup.timing.clone(),
            limits: setup.limits.clone(),
            formats: setup.formats.clone(),
            planted: setup.planted,
        };
        let clock = clock(&mut self.dice, setup.drift_ppm);
        let sizes = (setup.shell.segment_bytes, setup.checkpoint_bytes);
        let mut disk = Disk::new(Incarnation(self.dice.wide()), sizes);
        disk.latency = setup.flush;
        disk.skips_flush = setup.planted.has(Bug::FlushSkipped);
        let mut machine = Machine::new(config, site, clock, disk, self.dice.fork());
        machine.watched = self.setup.model;
        (machine.round, machine.held_max) = (self.setup.shell.round, self.setup.shell.held_max);
        machine
    }

    /// Adds a client at a site.
    pub fn add_client(&mut self, site: u16, options: Options) -> ClientId {
        let mut nodes: Vec<NodeName> = self.machines.keys().copied().collect();
        // Those of its own site first, then nearer ones.
        let profile = self.setup.profile;
        nodes.sort_by_key(|n| (profile.rtt(site, self.machines[n].site), *n));
        self.add_client_at(site, nodes, options)
    }

    /// Adds a client that knows these nodes, in this order of preference.
    pub fn add_client_at(&mut self, site: u16, nodes: Vec<NodeName>, options: Options) -> ClientId {
        let id = ClientId(self.clients.len() as u32);
        let name = SessionId(self.dice.wide());
        let clock = clock(&mut self.dice, self.setup.drift_ppm);
        self.network.place(End::Client(id), site);
        let client = Client::new(id, site, clock, name, nodes, options);
        self.clients.push(client);
        id
    }

    /// Adds a client whose session a node of its site keeps.
    pub fn add_hosted(&mut self, site: u16, options: Options) -> ClientId {
        let here = self.machines.values().find(|m| m.site == site);
        let host = here.or_else(|| self.machines.values().next());
        let (host, at) = host.map(|m| (m.name(), m.site)).expect("a machine");
        let client = self.add_client_at(at, vec![host], options.hosted());
        let hosted = &mut self.clients[client.0 as usize];
        hosted.host = Some(host);
        // Every other one, as nodes do for MUSIC's locks.
        hosted.polls = client.0 % 2 == 1;
        client
    }

    /// The next thing happens. False: nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        let Some(((at, _), happening)) = self.queue.pop_first() else {
            return false;
        };
        assert!(at >= self.now, "time does not go back");
        self.now = at;
        match happening {
            Happening::Arrives(parcel, clock) => match self.twin_for(&parcel) {
                Some(name) => self.as_twin(name, |world| world.arrive(*parcel, clock)),
                None => self.arrive(*parcel, clock),
            },
            Happening::Flushed(name, boot) => {
                self.of_boot(name, boot, |world| world.flush_ended(name, boot));
            }
            Happening::LinkIsFree(name, to, boot) => {
                self.of_boot(name, boot, |world| world.link_is_free(name, to, boot));
            }
            Happening::Wakes(name, boot) => {
                self.of_boot(name, boot, |world| world.wake(name, boot));
            }
            Happening::ClientWakes(client, life) => self.wake_client(client, life),
            Happening::Act(act) => act(self),
        }
        true
    }

    /// Runs until `until` holds or the true time `deadline` has come: whether it holds.
    pub fn run_until(&mut self, deadline: u64, mut until: impl FnMut(&World) -> bool) -> bool {
        loop {
            if until(self) {
                return true;
            }
            match self.queue.first_key_value() {
                Some(((at, _), _)) if *at <= deadline => self.step(),
                _ => {
                    self.now = self.now.max(deadline);
                    return until(self);
                }
            };
        }
    }

    /// Runs for so many microseconds.
    pub fn run_for(&mut self, duration: u64) {
        self.run_until(self.now + duration, |_| false);
    }

    /// At a true time, or now if that has passed, does something.
    pub fn at(&mut self, time: u64, act: impl FnOnce(&mut World) + 'static) {
        self.schedule(time, Happening::Act(Box::new(act)));
    }

    fn schedule(&mut self, time: u64, happening: Happening) {
        self.sequence += 1;
        self.queue
            .insert((time.max(self.now), self.sequence), happening);
    }

    /// Says something in the trace.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        self.trace.line(self.now, what);
    }

    // --- what travels
    // -----------------------------------------------------------------------------

    pub(crate) fn send(&mut self, parcel: Parcel) {
        for parcel in self.as_sent(parcel) {
            self.send_one(parcel);
        }
    }

    fn send_one(&mut self, parcel: Parcel) {
        self.monitor.sent(&parcel, &mut self.violations);
        let frame = self.setup.limits.frame;
        let way = if frames::holds(&parcel, frame, &mut self.violations) {
            match self.fates.judge(self.now, &parcel) {
                Some(Some(late)) => Way::At(self.now + late),
                Some(None) => Way::Lost,
                None => self.network.send(self.now, &parcel),
            }
        } else {
            Way::Lost
        };
        let mark = match way {
            Way::At(_) => ">",
            Way::Twice(..) => ">>",
            Way::Lost => "x",
            Way::Held => "|",
        };
        self.trace
            .line(self.now, || format!("{mark} {}", show::parcel(&parcel)));
        match way {
            Way::At(at) => self.under_way(at, parcel),
            Way::Twice(at, again) => {
                self.under_way(at, parcel.clone());
                self.under_way(again, parcel);
            }
            Way::Lost | Way::Held => {}
        }
    }

    /// A parcel is lost, for too much waits beside it.
    pub(crate) fn crowded_out(&mut self, parcel: &Parcel) {
        self.trace
            .line(self.now, || format!("# {}", show::parcel(parcel)));
    }

    /// A connection takes its next frame then.
    pub(crate) fn when_free(&mut self, at: u64, name: NodeName, to: NodeName, boot: u32) {
        self.schedule(at, Happening::LinkIsFree(name, to, boot));
    }

    /// What is sent now arrives then. A frame is closed when it is sent, and says what its sender's
    /// interval clock reads at that moment.
    fn under_way(&mut self, at: u64, parcel: Parcel) {
        let sender = match parcel.ends().0 {
            End::Node(name) => self.machines.get(&name),
            End::Client(_) => None,
        };
        let clock = sender.and_then(|machine| machine.clock.read(self.now).interval);
        self.schedule(at, Happening::Arrives(Box::new(parcel), clock));
    }

    /// A parcel arrives, whoever sent it.
    pub fn inject(&mut self, parcel: Parcel) {
        self.under_way(self.now + 1, parcel);
    }

    /// Ends a rule; what it held arrives as if sent now.
    pub fn release(&mut self, rule: RuleId) {
        for parcel in self.network.release(rule) {
            let (from, to) = parcel.ends();
            let at = self.now + self.network.trip(from, to);
            self.under_way(at, parcel);
        }
    }

    /// Ends a rule; what it held is lost.
    pub fn discard(&mut self, rule: RuleId) {
        drop(self.network.release(rule));
    }

    fn arrive(&mut self, parcel: Parcel, clock: Option<Interval>) {
        self.trace
            .line(self.now, || format!("* {}", show::parcel(&parcel)));
        match parcel {
            Parcel::Peer { from, to, message } => {
                self.compare_clocks(from, to, clock);
                self.input(to, Input::Message { from, message });
            }
            Parcel::Request {
                client,
                life,
                exchange,
                to,
                request,
            } => {
                let Some(machine) = self.machines.get_mut(&to) else {
                    return;
                };
                let caller = Caller {
                    client,
                    life,
                    exchange,
                };
                if machine.is_up() {
                    let call = machine.open_call(caller);
                    self.input(to, Input::Request { call, request });
                } else {
                    self.broken(to, caller);
                }
            }
            Parcel::Cancel {
                client,
                life,
                exchange,
                to,
            } => {
                let caller = Caller {
                    client,
                    life,
                    exchange,
                };
                let machine = self.machines.get_mut(&to).expect("clients know the nodes");
                for call in machine.close_calls(caller) {
                    self.input(to, Input::Cancel(call));
                }
            }
            Parcel::Reply {
                from,
                client,
                life,
                exchange,
                reply,
            } => {
                let target = &mut self.clients[client.0 as usize];
                if target.alive && target.life == life {
                    let mut wishes = Vec::new();
                    let what = (from, exchange);
                    if let Some(observer) = &mut self.observer {
                        observer.hears(exchange, reply.as_ref());
                    }
                    target.hear(self.now, what, reply, &mut self.history, &mut wishes);
                    self.after_client(client, wishes);
                }
            }
        }
    }

    /// Every message has a frame of its own, which the receiver compares its clock with. A world in
    /// which nobody has such a clock is spared the step.
    fn compare_clocks(&mut self, from: NodeId, to: NodeName, interval: Option<Interval>) {
        let mut clocks = self.machines.values().filter_map(|m| m.clock.interval);
        if interval.is_some() || clocks.next().is_some() {
            self.post(to, Input::Heard { from, interval });
        }
    }

    fn broken(&mut self, from: NodeName, caller: Caller) {
        let Caller {
            client,
            life,
            exchange,
        } = caller;
        self.send(Parcel::Reply {
            from,
            client,
            life,
            exchange,
            reply: None,
        });
    }

    // --- machines
    // ---------------------------------------------------------------------------------

    /// Something comes to a process, which handles it when it can.
    fn input(&mut self, name: NodeName, input: Input) {
        self.post(name, input);
        self.round(name);
    }

    fn post(&mut self, name: NodeName, input: Input) {
        if let Some(machine) = self.machines.get_mut(&name)
            && machine.is_up()
        {
            machine.post(Event::Input(input));
        }
    }

    /// A process handles what waits for it and what follows from that; then the round ends.
    fn round(&mut self, name: NodeName) {
        loop {
            let now = self.now;
            let Some(machine) = self.machines.get_mut(&name).filter(|m| m.is_up()) else {
                return;
            };
            if let Some(done) = machine.go_on(now) {
                self.after_step(name, done);
                continue;
            }
            let Some(done) = machine.close_round(now) else {
                return self.arm(name);
            };
            self.after_step(name, done);
            // What the disk answers at once makes another round.
            if !self.machines[&name].has_mail(now) {
                if self.in_place.is_none() {
                    self.monitor.rests(name, now, &mut self.violations);
                }
                return self.arm(name);
            }
        }
    }

    fn after_step(&mut self, name: NodeName, done: Stepped) {
        let machine = &self.machines[&name];
        if let Some(latency) = done.flush {
            let boot = machine.boot;
            self.schedule(self.now + latency, Happening::Flushed(name, boot));
        }
        self.watch(name, &done);
        for action in done.actions {
            match action {
                Action::Send(to, messages) => self.leave(name, to, messages),
                Action::Answer(call, reply) => self.answer(name, call, reply),
                Action::Full(lack) => self.note(|| format!("! node {}: {lack}", name.0)),
                Action::Writable => self.note(|| format!("! node {} writes again", name.0)),
                Action::Lost(_) => self.note(|| format!("! node {} loses a message", name.0)),
                Action::Flush(_) | Action::Checkpoint(_) | Action::Raise => {}
            }
        }
        let machine = &self.machines[&name];
        if let Some(why) = machine.lost.clone().filter(|_| machine.is_up()) {
            let out = |node: &Node| {
                let known = node.here().registry().get(name);
                known.is_some_and(|known| known.standing != Standing::Present)
            };
            if machine.node().is_some_and(out) {
                self.monitor.left(name);
            }
            self.note(|| format!("! node {} halts: {why}", name.0));
            self.halt(name, false);
        }
    }

    /// Those who watch see a step before what came of it leaves.
    fn watch(&mut self, name: NodeName, done: &Stepped) {
        let from = self.machines[&name].id();
        if let Some(message) = done.own.clone() {
            let to = name;
            let parcel = Parcel::Peer { from, to, message };
            self.monitor.sent(&parcel, &mut self.violations);
            self.trace
                .line(self.now, || format!("* {}", show::parcel(&parcel)));
        }
        // A twin is watched by what clients see: what holds of one memory does not of two.
        if self.in_place.is_some() {
            return;
        }
        self.monitor.turned(name, done, &mut self.violations);
        if !done.stepped {
            return;
        }
        let catalogue = &self.history.catalogue;
        self.monitor.after_step(
            (self.now, name),
            done,
            &self.machines,
            &self.clients,
            catalogue,
            &mut self.violations,
        );
        if let Some(observer) = &mut self.observer {
            observer.stepped(self.now, &self.machines[&name], done, catalogue);
        }
    }

    fn answer(&mut self, from: NodeName, call: CallId, reply: Reply) {
        let Some(caller) = self.machines[&from].caller(call) else {
            return;
        };
        let Caller {
            client,
            life,
            exchange,
        } = caller;
        let reply = Some(reply);
        self.send(Parcel::Reply {
            from,
            client,
            life,
            exchange,
            reply,
        });
    }

    /// Schedules the node's next wake, unless an earlier one is scheduled.
    fn arm(&mut self, name: NodeName) {
        let now = self.now;
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this world");
        // Never at this very moment again: a node that always wants to be stepped would stop time.
        let Some(at) = machine.wakes(now) else {
            return;
        };
        let at = at.max(now + 1);
        if machine.wake_at.is_none_or(|scheduled| at < scheduled) {
            machine.wake_at = Some(at);
            let boot = machine.boot;
            self.schedule(at, Happening::Wakes(name, boot));
        }
    }

    fn wake(&mut self, name: NodeName, boot: u32) {
        let now = self.now;
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this world");
        if machine.boot != boot || machine.wake_at != Some(now) {
            return;
        }
        machine.wake_at = None;
        if machine.wakes(now).is_some_and(|at| at <= now) {
            self.round(name);
            let machine = self.machines.get_mut(&name).expect("it was just woken");
            let again = machine.wakes(now).is_some_and(|at| at <= now);
            machine.restless = if again { machine.restless + 1 } else { 0 };
            rests::ticked(name, machine.restless, &mut self.violations);
        } else {
            self.arm(name);
        }
    }

    fn flush_ended(&mut self, name: NodeName, boot: u32) {
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this world");
        if machine.boot != boot || !machine.is_up() {
            return;
        }
        let result = machine.flushed();
        if self.in_place.is_none() {
            let catalogue = &self.history.catalogue;
            self.monitor
                .flushed(name, result, catalogue, &mut self.violations);
            if let (Some(observer), Flushed::Through(lsn)) = (&mut self.observer, result) {
                observer.flushed(self.now, name, lsn);
            }
        }
        match result {
            Flushed::Broken => self.halt(name, true),
            Flushed::Full | Flushed::Through(_) => self.round(name),
        }
    }

    /// Starts a machine's process, if it is off and not lost.
    pub fn start(&mut self, name: NodeName) {
        let now = self.now;
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this world");
        if machine.is_up() || machine.lost.is_some() {
            return;
        }
        let started = machine.start(now);
        let said = started.as_ref().map(|_| ());
        self.note(|| format!("! node {} starts: {said:?}", name.0));
        if let Ok(done) = started {
            if self.in_place.is_none() {
                let machines = &self.machines;
                let found = &mut self.violations;
                self.monitor.restarted(name, &done, machines, found);
                if let Some(observer) = &mut self.observer {
                    observer.restarted(self.now, &self.machines[&name]);
                }
            }
            self.after_step(name, done);
            self.round(name);
        } else if self.machines[&name].lost.is_none() {
            self.at(self.now + START_AGAIN, move |world| world.start(name));
        }
    }

    /// A node gets a newer version of its program, which reads later formats, too. One that is up
    /// is started again.
    pub fn upgrade(&mut self, name: NodeName) {
        let machine = self.machines.get_mut(&name);
        let machine = machine.expect("a machine of this world");
        machine.config.formats = NEWER;
        if machine.is_up() {
            self.stop(name, false);
            self.start(name);
        }
    }

    /// Stops a machine's process: by power failure, or in an orderly way, when what was written is
    /// flushed, as far as the disk has room, and what waited for that leaves.
    pub fn stop(&mut self, name: NodeName, power: bool) {
        let machine = self.machines.get_mut(&name);
        if let Some(machine) = machine.filter(|m| m.is_up() && !power) {
            let boot = machine.boot;
            machine.drain();
            self.round(name);
            while self.machines[&name].disk.is_flushing() {
                self.flush_ended(name, boot);
            }
        }
        self.halt(name, power);
    }

    fn halt(&mut self, name: NodeName, power: bool) {
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this world");
        if !machine.is_up() {
            return;
        }
        self.trace.line(self.now, || {
            format!(
                "! node {} {}",
                name.0,
                if power { "crashes" } else { "stops" }
            )
        });
        for caller in machine.stop(power) {
            self.broken(name, caller);
        }
        self.end_hosted(name);
        if !power {
            self.refused(name);
        }
    }

    /// The sessions that a process keeps die with it. Their clients go on at other nodes, with what
    /// they wrote down.
    fn end_hosted(&mut self, gone: NodeName) {
        let hosted = self
            .clients
            .iter()
            .filter(|c| c.alive && c.host == Some(gone));
        let hosted: Vec<ClientId> = hosted.map(|client| client.id).collect();
        for client in hosted {
            self.kill_client(client);
            let at = self.now + self.dice.between(10_000, 1_000_000);
            self.at(at, move |world| world.restart_client(client));
        }
    }

    /// A node is told that the process of another is gone, whether that is so or not.
    pub fn rumour(&mut self, at: NodeName, gone: NodeName) {
        self.note(|| format!("! node {} takes node {} for gone", at.0, gone.0));
        self.input(at, Input::Gone(gone));
    }

    /// The machine of a stopped process answers those who can reach it that nobody listens there.
    fn refused(&mut self, gone: NodeName) {
        let others: Vec<NodeName> = self.machines.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != gone) {
            let (here, there) = (End::Node(other), End::Node(gone));
            if self.network.connects(here, there) {
                self.input(other, Input::Gone(gone));
            }
        }
    }

    /// A node is told that it will be stopped: it hands over what it leads.
    pub fn retire(&mut self, name: NodeName) {
        self.note(|| format!("! node {} retires", name.0));
        if let Some(machine) = self.machines.get_mut(&name) {
            machine.retiring = true;
        }
        self.input(name, Input::Retire);
    }

    /// A process stops doing anything, and what arrives waits, for so many microseconds.
    pub fn pause(&mut self, name: NodeName, duration: u64) {
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this world");
        if !machine.is_up() || machine.paused {
            return;
        }
        machine.paused = true;
        let boot = machine.boot;
        self.note(|| format!("! node {} is paused for {duration}", name.0));
        self.at(self.now + duration, move |world| world.go_on(name, boot));
    }

    fn go_on(&mut self, name: NodeName, boot: u32) {
        let machine = self
            .machines
            .get_mut(&name)
            .expect("a machine of this world");
        if machine.boot == boot && machine.paused {
            machine.paused = false;
            self.round(name);
        }
    }

    // --- clients
    // ----------------------------------------------------------------------------------

    /// A client begins an operation.
    pub fn call(&mut self, client: ClientId, call: Call) -> OpId {
        let mut wishes = Vec::new();
        self.trace.line(self.now, || {
            format!("c client {} calls {}", client.0, show::call(&call))
        });
        let target = &mut self.clients[client.0 as usize];
        let op = target.call(self.now, call, &mut self.history, &mut wishes);
        self.after_client(client, wishes);
        op
    }

    /// How an operation has ended so far.
    pub fn outcome(&self, op: OpId) -> &Heard {
        &self.history.ops[op.0].outcome
    }

    /// A client's process dies without a word.
    pub fn kill_client(&mut self, client: ClientId) {
        let target = &mut self.clients[client.0 as usize];
        if !target.alive {
            return;
        }
        let session = target.session().id();
        target.kill();
        if let Some(observer) = &mut self.observer {
            observer.died(self.now, session);
        }
        self.note(|| format!("! client {} dies", client.0));
        let life = self.clients[client.0 as usize].life - 1;
        let mut cancels = Vec::new();
        for (name, machine) in &self.machines {
            let calls = machine.calls_of(client);
            cancels.extend(
                calls
                    .into_iter()
                    .filter(|c| c.life == life)
                    .map(|c| (*name, c)),
            );
        }
        // The system closes the connections of a dead process.
        for (
            to,
            Caller {
                client,
                life,
                exchange,
            },
        ) in cancels
        {
            self.send(Parcel::Cancel {
                client,
                life,
                exchange,
                to,
            });
        }
    }

    /// A client starts again, with a new session. One whose session a node keeps finds another
    /// node, or tries again until there is one.
    pub fn restart_client(&mut self, client: ClientId) {
        let name = SessionId(self.dice.wide());
        let target = &mut self.clients[client.0 as usize];
        if !target.alive && target.host.is_some() {
            let up = self.machines.values().filter(|m| m.is_up());
            let up: Vec<(NodeName, u16)> = up.map(|m| (m.name(), m.site)).collect();
            let Some((host, site)) = self.dice.pick(&up).copied() else {
                let at = self.now + 500_000;
                return self.at(at, move |world| world.restart_client(client));
            };
            target.move_to(host, site);
            self.network.place(End::Client(client), site);
        }
        if !target.alive {
            target.restart(name);
            self.note(|| format!("! client {} starts again", client.0));
        }
    }

    fn wake_client(&mut self, client: ClientId, life: u32) {
        let now = self.now;
        let target = &mut self.clients[client.0 as usize];
        if !target.alive || target.life != life || target.wake_at != Some(now) {
            return;
        }
        target.wake_at = None;
        let mut wishes = Vec::new();
        if target.wakes(now).is_some_and(|at| at <= now) {
            target.tick(now, &mut self.history, &mut wishes);
        }
        self.after_client(client, wishes);
    }

    fn after_client(&mut self, client: ClientId, wishes: Vec<Wish>) {
        let life = self.clients[client.0 as usize].life;
        if let Some(observer) = &mut self.observer {
            observer.client_acted(self.now, &self.history, &wishes);
        }
        for wish in wishes {
            match wish {
                Wish::Send(to, request) => {
                    let exchange = request.number;
                    self.send(Parcel::Request {
                        client,
                        life,
                        exchange,
                        to,
                        request,
                    });
                }
                Wish::Close(to, exchange) => {
                    self.send(Parcel::Cancel {
                        client,
                        life,
                        exchange,
                        to,
                    });
                }
            }
        }
        self.monitor.after_client(
            (self.now, client),
            &self.clients,
            &self.history,
            &mut self.violations,
        );
        let now = self.now;
        let target = &mut self.clients[client.0 as usize];
        if let Some(at) = target.wakes(now)
            && target.wake_at.is_none_or(|scheduled| at < scheduled)
        {
            target.wake_at = Some(at);
            self.schedule(at, Happening::ClientWakes(client, life));
        }
    }
}

/// A rate error within the bound: half of all are at its edges, where rules of time can fail.
pub(crate) fn rate(dice: &mut Dice, bound_ppm: u64) -> i64 {
    let bound = bound_ppm as i64;
    (dice.below(4 * bound_ppm + 1) as i64 - 2 * bound).clamp(-bound, bound)
}

fn clock(dice: &mut Dice, drift_ppm: u64) -> Clock {
    let rate = rate(dice, drift_ppm);
    let wall = dice.below(2_000_000) as i64 - 1_000_000;
    Clock::new(dice.below(1_000_000_000), rate, wall)
}
