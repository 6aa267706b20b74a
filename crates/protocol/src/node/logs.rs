//! The logs that a node keeps, and the states that they order.

use super::Step;
use super::agenda::{Agenda, Room};
use super::clock_watch::ClockWatch;
use super::early::Early;
use super::following::{Following, Invitation, Wanted, refuse};
use super::ledger::Ledgers;
use super::membership::Settling;
use super::memory::Kept;
use super::policies::Seen;
use super::records::Records;
use super::usage::Usage;
use crate::base::{
    Address, Ballot, Bug, Config, Directory, Epoch, Group, GroupId, KeyId, Keyspace, KeyspaceId,
    Location, LogId, Micros, NodeId, NodeName, Now, Scope, Seat, SegmentId, View,
};
use crate::catalogue::Catalogue;
use crate::command::{Body, Command, GroupCommand};
use crate::coordinator;
use crate::group::GroupState;
use crate::io::{Env, Memory};
use crate::ledger::{Clerk, Closed};
use crate::lock::{LastWords, Primary, Rejection};
use crate::paxos::{self, Declined, Heir, Joining, Log, Recovered};
use crate::register::{Place, StoreId};
use crate::registry::{Registry, Standing};
use crate::segment::SegmentState;
use crate::settings::Settings;
use crate::wire::{self, record};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::de::DeserializeOwned;

/// The replica of one segment at this node.
#[derive(Debug)]
pub struct Segment {
    /// The log in force.
    pub log: Log,
    /// The segment's state, with everything delivered applied.
    pub state: SegmentState,
    /// What it does beyond, while it leads.
    pub primary: Option<Primary>,
    /// What it does for the segment's ledger, while it leads; none in a log of a former format.
    pub clerk: Option<Clerk>,
    /// Up to which time the segment's ledger can be read here.
    pub closed: Closed,
    /// Where the segment's registers are.
    pub place: Place,
    /// Who has used the segment since this node began to lead it.
    pub(super) usage: Usage,
    /// The ballot that this node leads, or is about to.
    pub(super) elected: Option<Ballot>,
}

impl Segment {
    pub(super) fn new(log: Log, state: SegmentState, place: Place) -> Segment {
        Segment {
            log,
            state,
            primary: None,
            clerk: None,
            closed: Closed::default(),
            place,
            usage: Usage::default(),
            elected: None,
        }
    }

    /// Checks what must hold between steps. What a command has done is checked where it is applied
    /// ([`SegmentState::apply`]); all queues are walked over in the laboratory alone.
    fn assert_invariants(&self) {
        self.log.assert_invariants();
        if let Some(primary) = &self.primary {
            let leads = self.log.leadership();
            assert_eq!(leads, Some(primary.ballot()), "a primary leads its log");
        }
        #[cfg(feature = "planted-bugs")]
        self.state.assert_invariants();
    }
}

/// The replica of one group's own log at this node.
#[derive(Debug)]
pub struct GroupLog {
    /// The log in force.
    pub log: Log,
    /// The group's state, with everything delivered applied.
    pub state: GroupState,
    /// Who waits for the outcome of a command.
    pub(super) waiting: BTreeMap<(crate::base::SessionId, u64), (NodeName, u64)>,
    /// Segments of which this node, leading, has proposed that they have begun.
    pub(super) reported: BTreeSet<SegmentId>,
    /// How it is to go on, which waits for members before it is proposed.
    pub(super) wanted: Option<Wanted>,
    /// When those who are to have a seat last said that they know the logs.
    pub(super) warm: BTreeMap<NodeName, Micros>,
}

impl GroupLog {
    pub(super) fn new(log: Log, state: GroupState) -> GroupLog {
        GroupLog {
            log,
            state,
            waiting: BTreeMap::new(),
            reported: BTreeSet::new(),
            wanted: None,
            warm: BTreeMap::new(),
        }
    }
}

/// A log that has ended and goes on without this node, kept for others.
#[derive(Debug)]
pub struct Closing {
    /// The log.
    pub log: Log,
    /// Its format.
    pub(super) format: u16,
    /// The log that follows, for those who have a seat there and lack its state.
    pub(super) heir: Option<Heir>,
}

/// What a node has: its identity, its logs, and what it knows of the rest.
#[derive(Debug)]
pub struct Here {
    /// Who this is.
    pub id: NodeId,
    /// How it was configured.
    pub config: Config,
    /// What it knows of its cluster.
    pub directory: Directory,
    /// Whether it knows every node and takes part.
    pub started: bool,
    /// Whether its disk takes writes.
    pub writable: bool,
    /// What it makes of its interval clock.
    pub(super) clocks: ClockWatch,
    /// The segments in which it has a seat.
    pub segments: BTreeMap<SegmentId, Segment>,
    /// The groups in which it has a seat.
    pub groups: BTreeMap<GroupId, GroupLog>,
    /// Logs that have ended and go on without it.
    pub(super) closing: BTreeMap<Room, Closing>,
    /// By scope: no log up to this epoch is created here.
    pub(super) retired: BTreeMap<Room, Epoch>,
    /// Stores that end in this step, with what follows and their members.
    pub(super) to_seal: Vec<(StoreId, Epoch, View)>,
    /// Where a group is has changed, as far as this node knows, or it has just started.
    pub(super) location_changed: bool,
    /// Segments of which this node has come to know where their registers are, or who leads them,
    /// and whoever waits for that here does not know yet.
    pub(super) news: BTreeSet<SegmentId>,
    /// What has come too early.
    pub(super) early: Early,
    /// What the last primaries of the logs before said of these logs, which this node is to lead.
    pub(super) words: BTreeMap<SegmentId, (LogId, LastWords)>,
    /// When it next asks whether closing logs may go.
    pub(super) next_follow_up: Micros,
    /// While the settings change.
    pub(super) settling: Settling,
    pub(super) registry: Registry,
    /// The registry names every node, durably.
    pub(super) complete: bool,
    /// Peers that have said so of theirs, before this node started.
    pub(super) ready: BTreeSet<NodeName>,
    /// When each peer was last heard.
    pub(super) alive: BTreeMap<NodeName, Micros>,
    /// Since when each peer has been heard without a long silence.
    pub(super) steady: BTreeMap<NodeName, Micros>,
    /// When each log was last given to the seat that should lead it, and how often.
    pub(super) given: BTreeMap<LogId, (Micros, u32)>,
    /// Since when each log that should be elsewhere waits for a moment in which nobody is about to
    /// enter.
    pub(super) due: BTreeMap<LogId, Micros>,
    /// What it has seen of others, for policies.
    pub(super) seen: Seen,
    /// How many logs were given so.
    pub(super) moves: u64,
    /// Logs of later epochs that this node is about to have a replica of, one per part.
    pub(super) joining: BTreeMap<Room, Joining>,
    /// Groups that are about to give this node a seat.
    pub(super) invitations: BTreeMap<GroupId, Invitation>,
    /// Their logs.
    pub(super) following: BTreeMap<Room, Following>,
    /// The node is about to stop, and leads nothing any more.
    pub(super) retiring: bool,
    pub(super) catalogue: Catalogue,
    pub(super) agenda: Agenda,
    pub(super) kept: Kept,
    pub(super) records: Records,
    pub(super) ledgers: Ledgers,
}

fn damaged(what: &str) -> String {
    format!("the record of the {what} is corrupt: replace this node")
}

/// What a node has kept under a name of its own.
fn kept<T: DeserializeOwned>(memory: &dyn Memory, name: &str) -> Result<Option<T>, String> {
    let bytes = memory.get(&record::node(name)).map_err(|_| damaged(name))?;
    let decoded = bytes.map(|bytes| wire::decode(&bytes)).transpose();
    decoded.map_err(|_| damaged(name))
}

/// Up to which epoch no log of a scope is created here.
fn all_retired(memory: &dyn Memory) -> BTreeMap<Room, Epoch> {
    let notes = record::all_retired(memory).into_iter();
    notes.map(|(id, by)| (Room::of(id), by)).collect()
}

/// The registry as this node knew it, and whether it had met every node of the cluster file.
///
/// # Errors
/// One sentence, if it may not take part.
fn recover_registry(
    config: &mut Config,
    id: NodeId,
    memory: &dyn Memory,
) -> Result<(Registry, bool), String> {
    let saved: Option<Registry> = kept(memory, "registry")?;
    let complete = saved.is_some();
    let mut registry = saved.unwrap_or_else(|| {
        let newest = *config.formats.end();
        let settings = Settings::beginning(&config.timing, &config.limits, newest);
        Registry::beginning(&config.cluster, settings)
    });
    if !config.planted.has(Bug::OlderStartsAgain) {
        let said: Option<u16> = kept(memory, "reads")?;
        registry
            .settings()
            .start(&config.formats, said.unwrap_or(0))?;
    }
    if !config.planted.has(Bug::LeaseOfTheFile) {
        registry.settings().rule(config);
    }
    let mut file = config.cluster.nodes.iter();
    if let Some(node) = file.find(|node| node.name == id.name) {
        registry.meet(node, id.incarnation);
    }
    let known = registry.get(id.name);
    if known.is_some_and(|known| known.incarnation != id.incarnation) {
        return Err("this data directory belongs to another incarnation of the node".into());
    }
    let out = known
        .map(|known| known.standing)
        .filter(|at| *at != Standing::Present);
    if let Some(standing) = out.filter(|_| !config.planted.has(Bug::GoneIsHeard)) {
        return Err(format!(
            "this data directory's node was in the cluster and {}: to come back it joins with \
             a new one",
            standing.told()
        ));
    }
    Ok((registry, complete))
}

impl Here {
    pub(super) fn recover(
        mut config: Config,
        id: NodeId,
        memory: &dyn Memory,
        now: Now,
    ) -> Result<Here, String> {
        config.limits.check()?;
        let (registry, complete) = recover_registry(&mut config, id, memory)?;
        let started = memory.get(&record::node("started"));
        let started = started.map_err(|_| damaged("start"))?.is_some();
        let catalogue: Option<Catalogue> = kept(memory, "catalogue")?;
        let catalogue = catalogue.unwrap_or_default().bounded();
        let mut directory = Directory::from(&config.cluster);
        let locations: Option<Vec<Location>> = kept(memory, "locations")?;
        for location in locations.iter().flatten() {
            directory.learn(location);
        }
        let mut here = Here {
            id,
            directory,
            config,
            started,
            writable: true,
            clocks: ClockWatch::default(),
            segments: BTreeMap::new(),
            groups: BTreeMap::new(),
            closing: BTreeMap::new(),
            retired: all_retired(memory),
            to_seal: Vec::new(),
            location_changed: true,
            news: BTreeSet::new(),
            early: Early::default(),
            words: BTreeMap::new(),
            next_follow_up: 0,
            settling: Settling::default(),
            registry,
            complete,
            ready: BTreeSet::new(),
            alive: BTreeMap::new(),
            steady: BTreeMap::new(),
            given: BTreeMap::new(),
            due: BTreeMap::new(),
            seen: Seen::default(),
            moves: 0,
            joining: BTreeMap::new(),
            invitations: BTreeMap::new(),
            following: BTreeMap::new(),
            retiring: false,
            catalogue,
            agenda: Agenda::default(),
            kept: Kept::default(),
            records: Records::recover(memory),
            ledgers: Ledgers::default(),
        };
        here.name_nodes();
        if started {
            here.recover_logs(memory, now)?;
        }
        Ok(here)
    }

    /// The seat that leads a log's ballot 0: spread over the view by the log's number.
    pub(super) fn first_primary(number: u32, members: usize) -> Seat {
        Seat((number as usize % members) as u8)
    }

    fn own_groups(&self) -> Vec<Group> {
        let has_seat = |g: &&Group| g.view.seat_of(self.id.name).is_some();
        let groups = self.directory.locations().map(|at| &at.group);
        groups.filter(has_seat).cloned().collect()
    }

    /// Creates the logs of a new node, in one durable batch.
    pub(super) fn create_logs(&mut self, step: &mut Step<'_>) {
        for group in self.own_groups() {
            let start = GroupState::start(&group, self.directory.least(), &self.registry);
            let id = LogId {
                group: group.id,
                scope: Scope::Group,
                epoch: group.view.epoch,
            };
            let first = Here::first_primary(0, group.view.len());
            let log = self.create(id, &group.view, first, wire::encode(&start), step);
            self.groups.insert(group.id, GroupLog::new(log, start));
            self.agenda.run(Room::Group(group.id));
            for segment in group.segments() {
                let scope = Scope::Segment(segment);
                let id = LogId {
                    group: group.id,
                    scope,
                    epoch: group.view.epoch,
                };
                let lowest = self.directory.lowest_ref();
                let format = self.registry.settings().format;
                let state = SegmentState::beginning(lowest, group.view.epoch, format);
                let first = Here::first_primary(segment.0, group.view.len());
                let log = self.create(id, &group.view, first, wire::encode(&state), step);
                self.open_segment(segment, log, state);
            }
        }
    }

    fn open_segment(&mut self, segment: SegmentId, log: Log, state: SegmentState) {
        let place = self.place_in(segment, log.view(), state.store());
        self.segments
            .insert(segment, Segment::new(log, state, place));
        self.agenda.run(Room::Segment(segment));
    }

    pub(super) fn create(
        &self,
        id: LogId,
        view: &View,
        first: Seat,
        start: Bytes,
        step: &mut Step<'_>,
    ) -> Log {
        let seat = view
            .seat_of(self.id.name)
            .expect("a member creates its logs");
        let mut cx = env(&self.config, step);
        Log::create(id, view.clone(), seat, first, start, &mut cx)
    }

    /// Rebuilds all logs, groups before segments: they say where the segments' registers are. There
    /// is one log of a scope: another is dropped in the batch that creates its successor.
    fn recover_logs(&mut self, memory: &dyn Memory, now: Now) -> Result<(), String> {
        let mut found: BTreeMap<(Scope, GroupId), LogId> = BTreeMap::new();
        for id in record::logs(memory) {
            found.insert((id.scope, id.group), id);
        }
        for group in self.own_groups() {
            let began = self.directory.location(group.id);
            let scopes = group.segments().map(Scope::Segment);
            let missing = scopes
                .chain([Scope::Group])
                .find(|scope| !found.contains_key(&(*scope, group.id)));
            if let Some(scope) = missing.filter(|_| began.is_some_and(Location::is_beginning)) {
                return Err(unreadable(scope));
            }
        }
        for id in found.into_values() {
            match id.scope {
                Scope::Group => {
                    let (log, state) = self.recover_log::<GroupState>(id, memory, now)?;
                    self.reads(id, state.format())?;
                    self.directory.learn(state.location());
                    if let Some(child) = state.child() {
                        self.directory.learn(child.location());
                    }
                    self.groups.insert(id.group, GroupLog::new(log, state));
                    self.agenda.run(Room::Group(id.group));
                }
                Scope::Segment(segment) => {
                    let (log, state) = self.recover_log::<SegmentState>(id, memory, now)?;
                    self.reads(id, state.format())?;
                    self.open_segment(segment, log, state);
                }
            }
        }
        Ok(())
    }

    /// A log that this node has slept with may be of a format that its program reads no more.
    fn reads(&self, id: LogId, format: u16) -> Result<(), String> {
        match self.config.formats.contains(&format) {
            true => Ok(()),
            false => Err(format!(
                "the log {id:?} is of format {format}, which this program does not read: first \
                 start the node with a version that does, until the log has ended"
            )),
        }
    }

    fn recover_log<S: serde::de::DeserializeOwned>(
        &self,
        id: LogId,
        memory: &dyn Memory,
        now: Now,
    ) -> Result<(Log, S), String> {
        let Recovered { log, state, .. } =
            Log::recover(id, self.id.name, memory, now).map_err(|why| format!("{why}"))?;
        let state = wire::decode(&state).map_err(|_| unreadable(id.scope))?;
        Ok((log, state))
    }

    /// Logs of a group that this node keeps a replica of, those for others alone included.
    pub fn logs_of(&self, group: GroupId) -> usize {
        let rooms = self.segments.values().map(|room| &room.log);
        let closing = self.closing.values().map(|closing| &closing.log);
        let groups = self.groups.values().map(|room| &room.log);
        let all = rooms.chain(closing).chain(groups);
        all.filter(|log| log.id().group == group).count()
    }

    /// Segments that this node leads.
    pub fn led(&self) -> impl Iterator<Item = SegmentId> {
        self.segments
            .iter()
            .filter(|(_, s)| s.primary.is_some())
            .map(|(id, _)| *id)
    }

    /// All logs.
    pub(super) fn rooms(&self) -> Vec<Room> {
        let segments = self.segments.keys().copied().map(Room::Segment);
        let groups = self.groups.keys().copied().map(Room::Group);
        let closing = self.closing.keys().copied();
        segments.chain(groups).chain(closing).collect()
    }

    pub(super) fn tick_log(&mut self, room: Room, step: &mut Step<'_>) {
        if let Some((log, mut cx)) = self.log_in(room, step) {
            log.tick(&mut cx);
            self.agenda.run(room);
        }
    }

    pub(super) fn log(&self, room: Room) -> Option<&Log> {
        let present = match room {
            Room::Segment(id) => self.segments.get(&id).map(|s| &s.log),
            Room::Group(id) => self.groups.get(&id).map(|g| &g.log),
        };
        present.or_else(|| self.closing.get(&room).map(|closing| &closing.log))
    }

    /// A log, with what it is given in a step.
    pub(super) fn log_in<'a>(
        &'a mut self,
        room: Room,
        step: &'a mut Step<'_>,
    ) -> Option<(&'a mut Log, Env<'a>)> {
        let present = match room {
            Room::Segment(id) => self.segments.get_mut(&id).map(|s| &mut s.log),
            Room::Group(id) => self.groups.get_mut(&id).map(|g| &mut g.log),
        };
        let log = match present {
            Some(log) => log,
            None => &mut self.closing.get_mut(&room)?.log,
        };
        Some((log, env(&self.config, step)))
    }

    /// Sends what the step has proposed, and notes when each log that it touched wants to be
    /// ticked.
    pub(super) fn flush_logs(&mut self, step: &mut Step<'_>) {
        let mut ending = Vec::new();
        let mut cx = env(&self.config, step);
        while let Some(room) = self.agenda.next_touched() {
            if let Some(closing) = self.closing.get_mut(&room) {
                closing.log.flush(&mut cx);
                self.agenda.wish(room, closing.log.wake());
                closing.log.assert_invariants();
                continue;
            }
            match room {
                Room::Segment(id) => {
                    let Some(segment) = self.segments.get_mut(&id) else {
                        continue;
                    };
                    segment.log.flush(&mut cx);
                    self.kept.note(room, segment.log.kept_bytes());
                    // Without its lease it can do nothing: what is overdue waits for a beat.
                    let leased = segment.log.has_lease(cx.now, cx.timing)
                        || cx.planted.has(Bug::WakesWithoutLease);
                    let primary = segment.primary.as_ref().filter(|_| leased);
                    let grants = primary.and_then(Primary::wake);
                    let wish = [segment.log.wake(), grants].into_iter().flatten().min();
                    self.agenda.wish(room, wish);
                    segment.assert_invariants();
                    if segment.log.ending().is_some_and(|stop| stop.moves) {
                        ending.push(id);
                    }
                }
                Room::Group(id) => {
                    let Some(group) = self.groups.get_mut(&id) else {
                        continue;
                    };
                    group.log.flush(&mut cx);
                    self.kept.note(room, group.log.kept_bytes());
                    self.agenda.wish(room, group.log.wake());
                    group.log.assert_invariants();
                }
            }
        }
        for segment in ending {
            self.note_ending(segment);
        }
    }

    pub(super) fn on_paxos(
        &mut self,
        from: NodeName,
        id: LogId,
        message: paxos::Message,
        step: &mut Step<'_>,
    ) {
        // A full disk can make no promise; what is asked of it will be asked again. What is chosen
        // it may still be told.
        let asks = matches!(
            message,
            paxos::Message::Prepare { .. } | paxos::Message::Accept { .. }
        );
        if asks && !self.writable {
            return;
        }
        if matches!(message, paxos::Message::Release { .. }) {
            // A node that gives a log away may be about to stop: it does not get it back at once.
            self.steady.insert(from, step.now.monotonic);
        }
        let rest = self.on_followed(from, id, message, step);
        let rest = rest.and_then(|message| self.on_news(from, id, message, step));
        let Some(message) = rest else {
            return;
        };
        self.with_log(id, step, |log, cx| match log.view().seat_of(from) {
            Some(seat) => log.on_message(seat, message, cx),
            None => log.on_outsider(from, message, cx),
        });
    }

    pub(super) fn propose(
        &mut self,
        segment: SegmentId,
        commands: Vec<Command>,
        step: &mut Step<'_>,
    ) {
        let Some(room) = self.segments.get_mut(&segment) else {
            return;
        };
        let epoch = room.log.id().epoch;
        let mut cx = env(&self.config, step);
        for command in commands {
            let id = (command.session, command.number);
            let Err(why) = room.log.propose(Command { epoch, ..command }, &mut cx) else {
                continue;
            };
            if let Some(primary) = &mut room.primary {
                primary.declined(id, why.into(), cx.fx);
            }
        }
        self.agenda.touch(Room::Segment(segment));
    }

    /// The primary of a segment is about to hand its log over, or to end it: its leases are the
    /// last that it proposes. Without room for them in the log the next primary waits a full lease.
    pub(super) fn close_leases(&mut self, segment: SegmentId, ends: bool, step: &mut Step<'_>) {
        let Some(room) = self.segments.get_mut(&segment) else {
            return;
        };
        let (queues, timing) = (room.state.queues(), &self.config.timing);
        let closing = room.primary.as_mut().and_then(|primary| match ends {
            true => primary.end(queues, step.now, timing),
            false => primary.close(queues, step.now, timing),
        });
        if let Some(command) = closing {
            self.propose(segment, Vec::from([command]), step);
        }
        self.end_clerk(segment, step);
    }

    pub(super) fn propose_to_group(
        &mut self,
        from: NodeName,
        call: u64,
        command: Command,
        step: &mut Step<'_>,
    ) {
        let group = match &command.body {
            Body::Group(GroupCommand::Next { view, .. }) => view.group,
            Body::Group(GroupCommand::Split { split, .. }) => split.view.group,
            _ => GroupId::META,
        };
        let by = (from, call);
        let Some(room) = self.groups.get(&group) else {
            self.direct_to(from, group, step);
            return refuse(by, Rejection::Elsewhere(None), step);
        };
        if let Some(outcome) = room.state.outcome(&command) {
            let answer = coordinator::Message::Proposed {
                call,
                result: Ok(outcome),
            };
            return step.fx.promise(from, answer);
        }
        if !room.log.is_primary() || !self.writable {
            let hint = room.log.primary_node();
            let hint = hint.filter(|n| *n != self.id.name);
            return refuse(by, Rejection::NotPrimary(hint), step);
        }
        if self.waits_for_members(group, &command, step) {
            return self.want_members(group, by, command, step);
        }
        self.propose_to_log(group, by, command, step);
    }

    /// Proposes a command to a group that this node leads.
    pub(super) fn propose_to_log(
        &mut self,
        group: GroupId,
        by: (NodeName, u64),
        command: Command,
        step: &mut Step<'_>,
    ) {
        let Some(room) = self.groups.get_mut(&group) else {
            return;
        };
        let id = (command.session, command.number);
        let mut cx = env(&self.config, step);
        if let Err(why) = room.log.propose(command, &mut cx) {
            return refuse(by, why.into(), step);
        }
        // Only now: one that asks again for a command in flight must not end the wait for it.
        room.waiting.insert(id, by);
        self.agenda.touch(Room::Group(group));
    }

    /// The keyspaces, as known here.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The keyspace of that id, as known here.
    pub fn keyspace(&self, id: KeyspaceId) -> Option<&Keyspace> {
        self.catalogue.get(id)
    }

    /// Where a key lies; none without such a keyspace.
    pub fn address(&self, key: &KeyId) -> Option<Address> {
        let keyspace = self.keyspace(key.keyspace)?;
        Some(Address::of(key.keyspace, keyspace.tag_rule, &key.key))
    }

    /// The register replicas of a segment.
    pub(super) fn place(&self, segment: SegmentId) -> Option<Place> {
        let location = self.directory.location_of(segment)?;
        if let Some(room) = self.segments.get(&segment) {
            // A log that lags behind one that others have begun is not where to ask.
            let here = room.log.id().epoch >= location.epoch();
            if here || location.unstarted().contains(&segment) {
                return Some(room.place.clone());
            }
        }
        Some(self.place_in(segment, &location.group.view, location.store()))
    }

    /// Nodes in the order in which this node asks them: itself, its site, the others.
    pub(super) fn nearest_first(&self, nodes: impl Iterator<Item = NodeName>) -> Vec<NodeName> {
        let mut nodes: Vec<NodeName> = nodes.collect();
        let home = self.directory.site_of(self.id.name);
        nodes.sort_by_key(|n| (*n != self.id.name, self.directory.site_of(*n) != home));
        nodes
    }
}

impl From<Declined> for Rejection {
    fn from(why: Declined) -> Rejection {
        match why {
            Declined::Busy => Rejection::Busy,
            // It is not known here who leads, or in which log: the asker looks for it.
            Declined::NotPrimary(_) | Declined::Stopping => Rejection::NotPrimary(None),
        }
    }
}

/// What a machine of this node is given in a step.
pub(super) fn env<'a>(config: &'a Config, step: &'a mut Step<'_>) -> Env<'a> {
    Env {
        now: step.now,
        time: step.time,
        fx: &mut *step.fx,
        memory: step.memory,
        timing: &config.timing,
        limits: &config.limits,
        planted: config.planted,
    }
}

fn unreadable(scope: Scope) -> String {
    format!("the log {scope:?} cannot be read: replace this node")
}

/// The state of a log that a peer has sent. One that cannot be read stops the node: to go on with
/// another would be to apply commands to a state that nobody else has.
pub(super) fn read_state<S: serde::de::DeserializeOwned>(
    id: LogId,
    state: &Bytes,
    step: &mut Step<'_>,
) -> Option<S> {
    let read = wire::decode(state);
    if read.is_err() {
        step.fx.halt = Some(format!(
            "the state of the log {:?} that a peer sent cannot be read: \
             the nodes run different versions",
            id.scope
        ));
    }
    read.ok()
}
