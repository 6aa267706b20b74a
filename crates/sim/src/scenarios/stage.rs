//! What the scenarios are written with.

use crate::catalogue;
use crate::checkers::{self, Violation};
use crate::cluster;
use crate::history::{Heard, OpId, SectionIx, Value};
use crate::kind;
use crate::nemesis;
use crate::network::{ClientId, End, Parcel, RuleId};
use crate::profile::Profile;
use crate::random::{self, Run};
use crate::workload::Ground;
use crate::world::{OLDER, Setup, World};
use bytes::Bytes;
use fermata_protocol::base::{
    Address, Bug, Cluster, GroupId, KeyId, Limits, LockRef, NodeName, Planted, Purpose, SegmentId,
    StoragePolicy, TagRule, Timing,
};
use fermata_protocol::client::{Call, Options};
use fermata_protocol::command::{Body, Command, LockCommand};
use fermata_protocol::register::{Ask, Content, Message as Register, policy};
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, Operation, lock, paxos};

/// The replica that leads first, and the other two.
pub(super) const A: NodeName = NodeName(1);
/// See [`A`].
pub(super) const B: NodeName = NodeName(2);
/// See [`A`].
pub(super) const C: NodeName = NodeName(3);

/// How long a silent holder keeps its section here, microseconds.
pub(super) const LEASE: u64 = 2_000_000;

/// Longest virtual time that a step of a scenario waits for, microseconds.
const PATIENCE: u64 = 40_000_000;

/// A world with one segment and one section key, and words to make things happen.
pub struct Stage {
    /// The world.
    pub world: World,
    /// The key that it is about.
    pub key: KeyId,
    /// Whether everything is read once more at the end: not where the cluster cannot go on.
    pub audited: bool,
    /// Expectations of the scenario that were not met: reported behind whatever a checker sees.
    unmet: Vec<String>,
    ground: Ground,
}

impl Stage {
    /// A calm world whose nodes know each other and whose primary has its lease.
    pub fn new(bug: Option<Bug>, trace: bool, model: bool) -> Stage {
        let planted = bug.map_or(Planted::NONE, Planted::only);
        // Coordinators are patient here, so that a schedule is not disturbed by retries.
        let timing = Timing {
            request: 60_000_000,
            lease: 4_000_000,
            ..random::timing()
        };
        let setup = Setup {
            seed: 7,
            profile: Profile::named("lUs").expect("a profile of the table"),
            cluster: cluster::schedule(3),
            formats: OLDER,
            timing,
            limits: Limits::default(),
            planted,
            flush: (500, 500),
            checkpoint_bytes: 64 << 20,
            shell: kind::Shell::default(),
            drift_ppm: 0,
            trace,
            watch: true,
            model,
        };
        Stage::of(setup)
    }

    fn of(setup: Setup) -> Stage {
        let mut world = World::new(setup);
        world.run_for(3_000_000);
        Stage::on(world)
    }

    fn on(world: World) -> Stage {
        let mut ground = Ground::new(1, 2, 1, LEASE, 0);
        // The first key lies in segment 0, which A leads first, the second one in segment 1.
        ground.sections.sort_by_key(segment_of);
        let key = ground.sections[0].clone();
        Stage {
            world,
            key,
            audited: true,
            unmet: Vec::new(),
            ground,
        }
    }

    /// Begins again, in a world that is made differently.
    pub fn again(&mut self, change: impl FnOnce(&mut Setup)) {
        let mut setup = self.world.setup.clone();
        change(&mut setup);
        *self = Stage::of(setup);
    }

    /// Begins again with the paper's three nodes, still switched off.
    pub fn dark(&mut self) {
        self.dark_with(cluster::paper());
    }

    /// The same with this cluster.
    pub fn dark_with(&mut self, cluster: Cluster) {
        let mut setup = self.world.setup.clone();
        setup.cluster = cluster;
        *self = Stage::on(World::dark(setup));
    }

    /// Another key of the key's segment.
    pub fn key_beside(&self, letter: &str) -> KeyId {
        let names = (0..).map(|i| KeyId {
            keyspace: self.key.keyspace,
            key: Bytes::from(format!("{letter}{i}")),
        });
        let mut beside = names.filter(|k| segment_of(k) == self.segment());
        beside.next().expect("half of all keys")
    }

    /// The refs in the key's queue at a replica, head first.
    pub fn queue_at(&self, name: NodeName) -> Vec<LockRef> {
        let node = self.world.machines[&name].node();
        let segment = node.and_then(|n| n.here().segments.get(&self.segment()));
        let queue = segment.and_then(|s| s.state.queues().queue(&self.key));
        queue.map_or(Vec::new(), |q| q.refs.iter().copied().collect())
    }

    /// Proposes the next epoch of both groups to all their members.
    pub fn next_epoch(&mut self) {
        for group in [GroupId::META, GroupId(1)] {
            nemesis::next_view(&mut self.world, group, 0xbeef);
        }
    }

    /// The second key of sections.
    pub fn other_key(&self) -> KeyId {
        self.ground.sections[1].clone()
    }

    /// A register.
    pub fn register(&self) -> KeyId {
        self.ground.registers[0].clone()
    }

    /// Begins again with one group of `members`, nodes 1 to `members`, and three nodes behind them
    /// without a seat, and with a keyspace of registers: one of its keys.
    pub fn coded(&mut self, members: u32, storage: StoragePolicy) -> KeyId {
        self.keyspace(members, Purpose::Registers, storage)
    }

    /// The same with a keyspace of either purpose.
    pub fn keyspace(&mut self, members: u32, purpose: Purpose, storage: StoragePolicy) -> KeyId {
        self.furnished(members, purpose, storage, 3_600_000_000)
    }

    /// The same with replicated sections among three members, that last so long at most.
    pub fn short_sections(&mut self, section_max: u64) -> KeyId {
        self.furnished(3, Purpose::Sections, StoragePolicy::Replicated, section_max)
    }

    fn furnished(
        &mut self,
        members: u32,
        purpose: Purpose,
        storage: StoragePolicy,
        section_max: u64,
    ) -> KeyId {
        self.again(|setup| {
            setup.cluster = cluster::schedule(members);
            setup.timing.request = 4_000_000;
        });
        let catalogue = &mut self.world.history.catalogue;
        let id = catalogue.add(purpose, storage, section_max);
        catalogue::furnish(&mut self.world);
        let known = self.until(|w| {
            let mut nodes = w.machines.values().filter_map(|m| m.node());
            nodes.all(|node| node.here().keyspace(id).is_some())
        });
        self.expect(known, "a keyspace can be created");
        self.ground.extend(purpose, id, 1, 1);
        self.pass(1_000);
        let keys = match purpose {
            Purpose::Registers => &self.ground.registers,
            Purpose::Sections | Purpose::Ledger { .. } => &self.ground.sections,
        };
        keys.last().cloned().expect("a key was just added")
    }

    /// Begins to write a register.
    pub fn begin_write(&mut self, client: ClientId, key: &KeyId, text: &str) -> OpId {
        let (key, value) = (key.clone(), long(text));
        self.call(client, Call::Write { key, value })
    }

    /// Writes a register, and waits.
    pub fn write(&mut self, client: ClientId, key: &KeyId, text: &str) -> Heard {
        let op = self.begin_write(client, key, text);
        self.wait(op)
    }

    /// Begins to read a register.
    pub fn begin_read(&mut self, client: ClientId, key: &KeyId) -> OpId {
        self.call(client, Call::Read { key: key.clone() })
    }

    /// Reads a register, and waits.
    pub fn read(&mut self, client: ClientId, key: &KeyId) -> Heard {
        let op = self.begin_read(client, key);
        self.wait(op)
    }

    /// A client at the site of the first of `nodes`, which talks to these alone, in this order.
    pub fn client(&mut self, nodes: &[u32]) -> ClientId {
        self.client_with(nodes, |_| {})
    }

    /// Clients that talk to one node each.
    pub fn clients<const N: usize>(&mut self, nodes: [u32; N]) -> [ClientId; N] {
        nodes.map(|node| self.client(&[node]))
    }

    /// The same with other options.
    pub fn client_with(&mut self, nodes: &[u32], change: impl Fn(&mut Options)) -> ClientId {
        let mut options = Options {
            request: 90_000_000,
            attempt: 60_000_000,
            cached_gets: false,
            planted: self.world.setup.planted,
            ..Options::default()
        };
        change(&mut options);
        let site = self.world.machines[&NodeName(nodes[0])].site;
        let nodes = nodes.iter().map(|n| NodeName(*n)).collect();
        self.world.add_client_at(site, nodes, options)
    }

    /// Begins an operation.
    pub fn call(&mut self, client: ClientId, call: Call) -> OpId {
        self.world.call(client, call)
    }

    /// Waits for its end, however that is.
    pub fn wait(&mut self, op: OpId) -> Heard {
        let deadline = self.world.now + PATIENCE;
        self.world
            .run_until(deadline, |w| *w.outcome(op) != Heard::Open);
        self.world.outcome(op).clone()
    }

    /// Waits until something is so, or for long.
    pub fn until(&mut self, so: impl FnMut(&World) -> bool) -> bool {
        let deadline = self.world.now + PATIENCE;
        self.world.run_until(deadline, so)
    }

    /// Time passes.
    pub fn pass(&mut self, millis: u64) {
        self.world.run_for(millis * 1_000);
    }

    /// Something must be so. What a checker can see is the checker's to report: this is for what
    /// none can, and it comes last.
    pub fn expect(&mut self, so: bool, what: &str) {
        if !so {
            self.world.note(|| format!("! expected: {what}"));
            self.unmet.push(what.to_owned());
        }
    }

    /// Checks the history so far; whether everything was well until now.
    pub fn is_well(&mut self) -> bool {
        let history = checkers::check(&self.world.history);
        self.world.violations.extend(history);
        self.world.violations.is_empty() && self.unmet.is_empty()
    }

    /// Liveness: everything is healed, whoever lives goes on living, and the operation must end.
    fn must_end(&mut self, op: OpId) {
        nemesis::heal(&mut self.world);
        let deadline = self.world.now + random::PROGRESS_MAX;
        let ended = |w: &World| *w.outcome(op) != Heard::Open;
        if !self.world.run_until(deadline, ended) {
            let op = &self.world.history.ops[op.0];
            let (client, what) = (op.client.0, &op.what);
            let detail = format!("after healing nothing comes of client {client}'s {what:?}");
            self.world.violations.push(random::no_progress(detail));
        }
    }

    /// Begins to enter the key.
    pub fn begin_enter(&mut self, client: ClientId, mode: Mode) -> OpId {
        let keys = vec![self.key.clone()];
        self.enter_keys(client, keys, mode)
    }

    /// Begins to enter several keys.
    pub fn enter_keys(&mut self, client: ClientId, keys: Vec<KeyId>, mode: Mode) -> OpId {
        let (wait, lease) = (2 * random::PROGRESS_MAX, Some(LEASE));
        self.call(
            client,
            Call::Enter {
                keys,
                mode,
                wait,
                lease,
            },
        )
    }

    /// The section that an enter has given. One that is not given in a long time must be given when
    /// all is healed.
    pub fn entered(&mut self, op: OpId) -> Option<SectionIx> {
        if self.wait(op) == Heard::Open {
            self.must_end(op);
        }
        let section = self.world.history.ops[op.0].section;
        self.expect(section.is_some(), "the client enters the section");
        section
    }

    /// Enters the key.
    pub fn enter(&mut self, client: ClientId) -> Option<SectionIx> {
        let op = self.begin_enter(client, Mode::Exclusive);
        self.entered(op)
    }

    /// What a section found.
    pub fn found(&self, section: SectionIx) -> Value {
        let values = &self.world.history.sections[section.0].values;
        values.get(&self.key).cloned().flatten()
    }

    /// An eventual put, which is stored at the first replica that takes it.
    pub fn eventual_put(&mut self, client: ClientId, text: &str) {
        let (key, value) = (self.key.clone(), value(text));
        let put = self.call(client, Call::Put { key, value });
        self.wait(put);
    }

    /// Enters and puts "v0", then begins to put "v1", which does not reach these replicas yet.
    pub fn half_put(&mut self, client: ClientId, late: &[NodeName]) -> Option<(SectionIx, RuleId)> {
        let section = self.enter(client)?;
        self.put(client, section, "v0");
        let late = self.hold(store_of("v1", late));
        self.begin_put(client, section, "v1");
        Some((section, late))
    }

    /// Begins a put.
    pub fn begin_put(&mut self, client: ClientId, section: SectionIx, text: &str) -> Option<OpId> {
        let key = self.key.clone();
        let section = self.world.clients[client.0 as usize].name_of(section)?;
        let value = value(text);
        Some(self.call(
            client,
            Call::CriticalPut {
                section,
                key,
                value,
            },
        ))
    }

    /// Puts, and waits.
    pub fn put(&mut self, client: ClientId, section: SectionIx, text: &str) -> Option<Heard> {
        let op = self.begin_put(client, section, text)?;
        Some(self.wait(op))
    }

    /// Gets, and waits.
    pub fn get(&mut self, client: ClientId, section: SectionIx) -> Option<Heard> {
        let key = self.key.clone();
        let section = self.world.clients[client.0 as usize].name_of(section)?;
        let op = self.call(client, Call::CriticalGet { section, key });
        Some(self.wait(op))
    }

    /// Leaves, and waits.
    pub fn leave(&mut self, client: ClientId, section: SectionIx) {
        if let Some(section) = self.world.clients[client.0 as usize].name_of(section) {
            let op = self.call(
                client,
                Call::Leave {
                    section,
                    wait: true,
                },
            );
            self.wait(op);
        }
    }

    /// Gives the section's lease back, and waits until that is known.
    pub fn relinquish(&mut self, client: ClientId, section: SectionIx) {
        if let Some(section) = self.world.clients[client.0 as usize].name_of(section) {
            let op = self.call(client, Call::Relinquish { section });
            self.wait(op);
        }
    }

    /// Enters, puts and leaves.
    pub fn section(&mut self, client: ClientId, text: &str) {
        if let Some(section) = self.enter(client) {
            self.put(client, section, text);
            self.leave(client, section);
        }
    }

    /// The next one enters and puts "v2"; then the one before, who may not know, gets.
    pub fn overwrites(&mut self, next: (ClientId, OpId), before: (ClientId, SectionIx)) {
        if let Some(section) = self.entered(next.1) {
            self.put(next.0, section, "v2");
            self.get(before.0, before.1);
            self.leave(next.0, section);
        }
    }

    /// The client's heartbeats are lost from now on: it looks dead, and its operations go on.
    pub fn mute(&mut self, client: ClientId) -> RuleId {
        self.lose(move |p| {
            matches!(p, Parcel::Request { client: c, request, .. }
                if *c == client && matches!(request.operation, Operation::Renew { .. }))
        })
    }

    /// The segment of the key.
    pub fn segment(&self) -> SegmentId {
        segment_of(&self.key)
    }

    /// The key's flag, at the primary that leads first.
    pub fn flag(&self) -> Option<u64> {
        let node = self.world.machines[&A].node()?;
        node.here()
            .segments
            .get(&self.segment())?
            .state
            .queues()
            .queue(&self.key)?
            .flag
    }

    /// Waits until the section's ref on the key has left the queue at some replica.
    pub fn gone(&mut self, section: SectionIx) -> bool {
        let held = &self.world.history.sections[section.0].held;
        let Some(held) = held.iter().find(|h| h.key == self.key) else {
            return false;
        };
        let (lock_ref, segment) = (held.lock_ref, self.segment());
        self.until(move |w| {
            w.machines.values().filter_map(|m| m.node()).any(|node| {
                let state = node.here().segments.get(&segment).map(|s| &s.state);
                state.is_some_and(|s| {
                    lock_ref.0 <= s.commands() && s.queues().get(lock_ref).is_none()
                })
            })
        })
    }

    /// Keeps what matches.
    pub fn hold(&mut self, filter: impl Fn(&Parcel) -> bool + 'static) -> RuleId {
        self.world.network.hold(filter)
    }

    /// Loses what matches, until the rule is released.
    pub fn lose(&mut self, filter: impl Fn(&Parcel) -> bool + 'static) -> RuleId {
        self.world.network.lose(filter)
    }

    /// Lets go of what was kept.
    pub fn release(&mut self, rule: RuleId) {
        self.world.release(rule);
    }

    /// What was kept is lost.
    pub fn discard(&mut self, rule: RuleId) {
        self.world.discard(rule);
    }

    /// Begins to leave.
    pub fn leave_soon(&mut self, client: ClientId, section: SectionIx) {
        if let Some(section) = self.world.clients[client.0 as usize].name_of(section) {
            let wait = true;
            self.call(client, Call::Leave { section, wait });
        }
    }

    /// Begins to resume a section, with the secret of its session.
    pub fn resume(&mut self, client: ClientId, section: SectionIx) -> OpId {
        let of = &self.world.history.sections[section.0];
        let (held, of) = (of.held.clone(), of.session);
        self.call(client, Call::Resume { held, of })
    }

    /// Cuts a node off from some others, both ways, until [`Stage::mend`].
    pub fn cut(&mut self, name: NodeName, others: &[NodeName]) {
        for other in others {
            self.world.network.cut(End::Node(name), End::Node(*other));
            self.world.network.cut(End::Node(*other), End::Node(name));
        }
    }

    /// Cuts a node off from all others, but not from clients, until [`Stage::mend`].
    pub fn isolate(&mut self, name: NodeName) {
        let others = self.world.machines.keys().copied();
        let others: Vec<NodeName> = others.filter(|n| *n != name).collect();
        self.cut(name, &others);
    }

    /// Mends all cuts.
    pub fn mend(&mut self) {
        self.world.network.mend_all();
    }

    /// Who leads the segment, as it knows itself, other than `not`.
    pub fn leader_other_than(&mut self, not: NodeName) -> Option<NodeName> {
        let segment = self.segment();
        let leads = |w: &World| {
            let mut all = w.machines.iter().filter(|(n, _)| **n != not);
            all.find(|(_, m)| {
                m.node()
                    .is_some_and(|n| n.here().led().any(|s| s == segment))
            })
            .map(|(n, _)| *n)
        };
        self.until(|w| leads(w).is_some());
        leads(&self.world)
    }

    /// All is healed, everything is read once more, and the history is checked.
    pub fn end(mut self) -> Run {
        if self.world.violations.is_empty() && self.audited {
            nemesis::heal(&mut self.world);
            // Whoever still holds something says nothing any more.
            for client in 0..self.world.clients.len() {
                self.world.kill_client(ClientId(client as u32));
            }
            self.world.run_for(6_000_000);
            let options = random::patience(self.world.setup.planted);
            let auditor = self.world.add_client(1, options);
            let deadline = self.world.now + random::PROGRESS_MAX;
            random::audit(&mut self.world, auditor, &self.ground, deadline);
        }
        let unmet = self.unmet.into_iter();
        let unmet = unmet.map(|what| Violation::new("scenario", what)).collect();
        random::finish(self.world, unmet)
    }
}

fn segment_of(key: &KeyId) -> SegmentId {
    Address::of(key.keyspace, TagRule::Whole, &key.key).segment(1)
}

/// A value.
pub(super) fn value(text: &str) -> Value {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

/// A value that is coded where values are, with no part like another value's.
pub(super) fn long(text: &str) -> Value {
    Some(Bytes::from(format!("{text}.").repeat(20)))
}

/// What stores parts of a long value, or copies, on its way to any of `to`.
pub(super) fn parts_of(text: &str, to: &[NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    let digest = policy::digest(&long(text).unwrap_or_default());
    let to = to.to_vec();
    move |parcel| match parcel {
        Parcel::Peer {
            to: target,
            message: Message::Register(Register::Ask { ask, .. }),
            ..
        } => {
            let part = matches!(ask, Ask::Store { content: Content::Value(f), .. }
                if f.digest == digest);
            part && to.contains(target)
        }
        _ => false,
    }
}

/// What tells any of `to` that a tag is final.
pub(super) fn final_to(to: &[NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    let to = to.to_vec();
    move |parcel| {
        matches!(parcel, Parcel::Peer {
            to: target, message: Message::Register(Register::Ask { ask, .. }), .. }
            if matches!(ask, Ask::Settle { .. }) && to.contains(target))
    }
}

/// Reads of registers by one coordinator on their way to any of `to`.
pub(super) fn reads_by(from: NodeName, to: &[NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    let to = to.to_vec();
    move |parcel| {
        matches!(parcel, Parcel::Peer {
            from: f, to: target, message: Message::Register(Register::Ask { ask, .. }) }
            if f.name == from && matches!(ask, Ask::Read { .. }) && to.contains(target))
    }
}

/// Stores of a value, on their way to any of `to`.
pub(super) fn store_of(text: &str, to: &[NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    let (text, to) = (text.to_owned(), to.to_vec());
    move |parcel| match parcel {
        Parcel::Peer {
            to: target,
            message: Message::Register(Register::Ask { ask, .. }),
            ..
        } => {
            let value = matches!(ask, Ask::Store { content: Content::Value(f), .. }
                if f.bytes == text.as_bytes());
            value && to.contains(target)
        }
        _ => false,
    }
}

/// Fenced reads on their way to any of `to`.
pub(super) fn fence_to(to: &[NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    let to = to.to_vec();
    move |parcel| match parcel {
        Parcel::Peer {
            to: target,
            message: Message::Register(Register::Ask { ask, .. }),
            ..
        } => {
            // Without a holder: a synch's read, with its fence or, if that rule is wrong, without.
            matches!(ask, Ask::Read { holder: None, .. }) && to.contains(target)
        }
        _ => false,
    }
}

/// Answers to register calls from one node to another.
pub(super) fn answers(from: NodeName, to: NodeName) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        matches!(parcel, Parcel::Peer { from: f, to: t, message } if f.name == from && *t == to
            && matches!(message, Message::Register(Register::Answer { .. })))
    }
}

/// An eventual put on its way to a replica.
pub(super) fn is_eventual_put(parcel: &Parcel) -> bool {
    matches!(parcel, Parcel::Peer { message: Message::Register(Register::Ask { ask, .. }), .. }
        if matches!(ask, Ask::EventualPut { .. }))
}

/// Eventual values on their way from one replica to any of `to`.
pub(super) fn spread_to(to: &[NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    let to = to.to_vec();
    move |parcel| {
        matches!(parcel, Parcel::Peer { to: at, message: Message::Register(message), .. }
            if to.contains(at)
                && matches!(message, Register::Ask { ask: Ask::EventualSpread { .. }, .. }))
    }
}

/// Log entries of a leader on their way to its acceptors.
pub(super) fn accepts_of(leader: NodeName) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        matches!(parcel, Parcel::Peer { from, message: Message::Paxos { message, .. }, .. }
            if from.name == leader && matches!(message, paxos::Message::Accept { .. }))
    }
}

/// The same, for entries with such a command to the lock queues.
pub(super) fn proposals_of(
    leader: NodeName,
    so: fn(&LockCommand) -> bool,
) -> impl Fn(&Parcel) -> bool + 'static {
    let accepts = accepts_of(leader);
    move |parcel| {
        let such = |c: &Command| matches!(&c.body, Body::Lock(body) if so(body));
        accepts(parcel)
            && matches!(parcel, Parcel::Peer { message: Message::Paxos { message, .. }, .. }
                if matches!(message, paxos::Message::Accept { entry, .. }
                    if matches!(entry, paxos::Entry::Commands { commands, .. }
                        if commands.iter().any(such))))
    }
}

/// A node's attempts to lead: while they are lost another one leads.
pub(super) fn candidacy_of(name: NodeName) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        matches!(parcel, Parcel::Peer { from, message: Message::Paxos { message, .. }, .. }
            if from.name == name && matches!(message, paxos::Message::Prepare { .. }))
    }
}

/// What tells the other replicas that something of a leader's log is chosen, but for its next
/// entries.
pub(super) fn news_of(leader: NodeName) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        let Parcel::Peer { from, to, message } = parcel else {
            return false;
        };
        let chosen = match message {
            Message::Beat(_) => true,
            Message::Paxos { message, .. } => matches!(message, paxos::Message::Chosen { .. }),
            _ => false,
        };
        from.name == leader && *to != leader && [A, B, C].contains(to) && chosen
    }
}

/// Grants on their way to any of `to`.
pub(super) fn grants_to(to: &[u32]) -> impl Fn(&Parcel) -> bool + 'static {
    let to = to.to_vec();
    move |parcel| {
        matches!(parcel, Parcel::Peer { to: at, message: Message::Lock(message), .. }
            if to.contains(&at.0) && matches!(message, lock::Message::Granted(_)))
    }
}
