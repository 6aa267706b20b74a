//! A small world for register replicas and their callers: disks that lose what was not flushed, a
//! bag of messages, and one atomic history of lock commands of which every replica has applied a
//! prefix.

use crate::disk::Disk;
use bytes::Bytes;
use fermata_protocol::base::{
    Epoch, GroupId, Interval, KeyId, Keyspace, Limits, LockRef, Member, NodeName, Now, Planted,
    Rng, Seat, SegmentId, SiteId, StoragePolicy, Tag, Timing, View,
};
use fermata_protocol::catalogue::Catalogue;
use fermata_protocol::register::{
    Answer, Ask, Caller, Content, Holder, HolderState, Life, Message, Op, OpEnd, OpId, Owner,
    Place, PutName, Replica, SegmentView, SegmentViews, Source, StoreAsk, StoreId,
};
use fermata_protocol::wire::record;
use fermata_protocol::{Effects, Env, Output, When, Write};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const STORE: StoreId = StoreId {
    segment: SegmentId(0),
    epoch: Epoch::FIRST,
};

pub(crate) fn section_key() -> KeyId {
    KeyId {
        keyspace: Keyspace::SECTIONS,
        key: Bytes::from_static(b"k"),
    }
}

pub(crate) fn register_key() -> KeyId {
    KeyId {
        keyspace: Keyspace::REGISTERS,
        key: Bytes::from_static(b"r"),
    }
}

/// The read of a sweep, or of a synch, that is about to write under `tag`.
pub(crate) fn fenced(tag: Tag) -> Ask {
    Ask::Read {
        holder: None,
        entering: true,
        fence: Some(tag),
        eventual: false,
        values: false,
    }
}

/// The true time when a world begins, microseconds since 1970.
pub(crate) const BEGINNING: u64 = 1_700_000_000_000_000;
/// What an interval clock says that its error is at most, microseconds.
pub(crate) const BOUND: u64 = 100_000;

/// An interval clock and its error, in microseconds of true time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Its error at the beginning.
    pub(crate) offset: i64,
    /// How the error grows, microseconds in a second.
    pub(crate) drift: i64,
    /// Whether the error stays within what the clock says.
    pub(crate) sound: bool,
}

impl Clock {
    fn interval(self, elapsed: u64) -> Interval {
        let error = self.offset + self.drift * elapsed as i64 / 1_000_000;
        let bound = BOUND as i64;
        let error = if self.sound {
            error.clamp(-bound, bound)
        } else {
            error
        };
        let reading = (BEGINNING + elapsed).checked_add_signed(error);
        let reading = reading.expect("clocks of this century");
        Interval {
            earliest: reading - BOUND,
            latest: reading + BOUND,
        }
    }
}

/// Whose step it is.
#[derive(Clone, Copy)]
enum Who {
    Node(usize),
    Caller(usize),
}

/// One command of the lock history; its position, from 1, is an enqueue's ref.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    Enqueue,
    Remove(u64),
    /// All refs up to here are past: it is as it says.
    Floor(u64),
    Nothing,
}

/// What a replica knows: a prefix of the history.
pub(crate) struct Applied {
    /// The members of the store that is asked about, where the replica is one of them.
    pub(crate) view: Option<View>,
    pub(crate) sources: Vec<Source>,
    pub(crate) applied: usize,
    pub(crate) queue: Vec<u64>,
    pub(crate) given: Vec<u64>,
    pub(crate) writable: bool,
    pub(crate) floor: u64,
    pub(crate) catalogue: Catalogue,
}

impl Applied {
    pub(crate) fn new(view: Option<View>, history: &[Command], storage: StoragePolicy) -> Applied {
        let (mut queue, mut given, mut floor) = (Vec::new(), Vec::new(), 0);
        for (i, command) in history.iter().enumerate() {
            match command {
                Command::Enqueue => {
                    queue.push(i as u64 + 1);
                    given.push(i as u64 + 1);
                }
                Command::Remove(lock_ref) => queue.retain(|r| r != lock_ref),
                Command::Floor(to) => floor = floor.max(*to),
                Command::Nothing => {}
            }
        }
        Applied {
            view,
            sources: Vec::new(),
            applied: history.len(),
            queue,
            given,
            writable: true,
            floor,
            catalogue: Catalogue::of(
                Keyspace::built_in()
                    .map(|k| Keyspace { storage, ..k })
                    .into(),
                1,
            ),
        }
    }
}

impl SegmentView for Applied {
    fn members(&self) -> Option<&View> {
        self.view.as_ref()
    }

    fn sources(&self) -> &[Source] {
        &self.sources
    }

    fn applied(&self) -> u64 {
        self.applied as u64
    }

    fn holder_state(&self, _: &KeyId, holder: Holder) -> HolderState {
        let r = holder.lock_ref.0;
        if r > self.applied as u64 {
            HolderState::Unknown
        } else if self.queue.first() == Some(&r) {
            HolderState::Head
        } else if self.queue.contains(&r) || !self.given.contains(&r) {
            HolderState::Waiting
        } else {
            HolderState::Past
        }
    }

    fn busy(&self, _: &KeyId) -> bool {
        !self.queue.is_empty()
    }

    fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    fn writable(&self) -> bool {
        self.writable
    }

    fn floor(&self) -> LockRef {
        LockRef(self.floor)
    }
}

/// One store, for upkeep.
struct Only<'a>(&'a dyn SegmentView);

impl SegmentView for Only<'_> {
    fn members(&self) -> Option<&View> {
        self.0.members()
    }

    fn sources(&self) -> &[Source] {
        self.0.sources()
    }

    fn applied(&self) -> u64 {
        self.0.applied()
    }

    fn holder_state(&self, key: &KeyId, holder: Holder) -> HolderState {
        self.0.holder_state(key, holder)
    }

    fn busy(&self, key: &KeyId) -> bool {
        self.0.busy(key)
    }

    fn catalogue(&self) -> &Catalogue {
        self.0.catalogue()
    }

    fn writable(&self) -> bool {
        self.0.writable()
    }

    fn floor(&self) -> LockRef {
        self.0.floor()
    }
}

impl SegmentViews for Only<'_> {
    fn stores(&self) -> Vec<StoreId> {
        vec![STORE]
    }

    fn view(&self, _: StoreId) -> Box<dyn SegmentView + '_> {
        Box::new(Only(self.0))
    }
}

pub(crate) struct Node {
    pub(crate) replica: Replica,
    pub(crate) disk: Disk,
    held: Vec<(NodeName, Message)>,
    pub(crate) applied: usize,
    pub(crate) writable: bool,
    /// Tags and fences that must never be seen lower again, by key: now, and after a crash.
    seen: BTreeMap<KeyId, (Tag, Tag)>,
    flushed: BTreeMap<KeyId, (Tag, Tag)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) from: NodeName,
    pub(crate) to: NodeName,
    pub(crate) message: Message,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    pub(crate) wall: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) callers: Vec<Caller>,
    pub(crate) bag: Vec<Letter>,
    pub(crate) history: Vec<Command>,
    pub(crate) timing: Timing,
    pub(crate) limits: Limits,
    pub(crate) planted: Planted,
    /// How both keyspaces store values.
    pub(crate) storage: StoragePolicy,
    pub(crate) outcomes: Vec<(usize, OpId, OpEnd)>,
    /// Interval clocks of the nodes and of the callers; none at all by default.
    pub(crate) node_clocks: Vec<Option<Clock>>,
    pub(crate) caller_clocks: Vec<Option<Clock>>,
    /// Tags under which stores were asked for, by their writers.
    pub(crate) tags: BTreeMap<u128, BTreeSet<Tag>>,
    /// Contents of eventual puts with the tags they were given.
    pub(crate) eventual: Vec<(Bytes, fermata_protocol::base::EventualTag)>,
    /// Contents of eventual puts that are durable somewhere, with each tag that they were given.
    pub(crate) spread: BTreeSet<(Bytes, fermata_protocol::base::EventualTag)>,
    /// Bytes of values written by all replicas.
    pub(crate) written: usize,
    /// How often each node has crashed.
    pub(crate) lives: Vec<u32>,
    /// The members of the segment's stores, one for each epoch.
    pub(crate) views: Vec<View>,
    /// Of each epoch, who has its store.
    pub(crate) created: Vec<BTreeSet<usize>>,
    /// Epochs that are sources no more, in the order in which that was chosen.
    pub(crate) closed: Vec<Epoch>,
    /// How many of them each node knows.
    pub(crate) known: Vec<usize>,
    puts: u64,
    calls: u64,
    asked: BTreeMap<u64, KeyId>,
    heard: Vec<Letter>,
    seed: u64,
}

pub(crate) fn view(n: usize) -> View {
    view_of(Epoch::FIRST, 0..n)
}

/// A view of these nodes.
pub(crate) fn view_of(epoch: Epoch, nodes: impl IntoIterator<Item = usize>) -> View {
    let member = |i| Member {
        name: NodeName(i as u32),
        site: SiteId(0),
        public_key: None,
    };
    View {
        group: GroupId(1),
        epoch,
        seats: nodes.into_iter().map(member).collect(),
    }
}

/// The segment's store of an epoch.
pub(crate) fn store_of(epoch: Epoch) -> StoreId {
    StoreId { epoch, ..STORE }
}

/// Callers have names of their own, so that every message goes through the bag.
fn caller_name(i: usize) -> NodeName {
    NodeName(100 + i as u32)
}

impl World {
    pub(crate) fn new(n: usize, callers: usize, seed: u64, planted: Planted) -> World {
        let node = |i: usize| Node {
            replica: Replica::recover(NodeName(i as u32), seed ^ i as u64, &Disk::default()),
            disk: Disk::default(),
            held: Vec::new(),
            applied: 0,
            writable: true,
            seen: BTreeMap::new(),
            flushed: BTreeMap::new(),
        };
        World {
            rng: Rng::new(seed),
            now: 1,
            wall: BEGINNING,
            nodes: (0..n).map(node).collect(),
            callers: (0..callers)
                .map(|i| Caller::new(caller_name(i), seed + i as u64))
                .collect(),
            bag: Vec::new(),
            history: Vec::new(),
            timing: Timing::default(),
            limits: Limits::default(),
            planted,
            storage: StoragePolicy::Replicated,
            outcomes: Vec::new(),
            node_clocks: vec![None; n],
            caller_clocks: vec![None; callers],
            tags: BTreeMap::new(),
            eventual: Vec::new(),
            spread: BTreeSet::new(),
            written: 0,
            lives: vec![0; n],
            views: vec![view(n)],
            created: vec![(0..n).collect()],
            closed: Vec::new(),
            known: vec![0; n],
            puts: 0,
            calls: 7,
            asked: BTreeMap::new(),
            heard: Vec::new(),
            seed,
        }
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.rng.chance(percent)
    }

    pub(crate) fn place(&self) -> Place {
        self.place_in(Epoch::FIRST, 0)
    }

    /// The place of an epoch, for somebody who knows so many of the sources that are closed.
    pub(crate) fn place_in(&self, epoch: Epoch, known: usize) -> Place {
        Place {
            store: store_of(epoch),
            view: self.view_in(epoch).clone(),
            order: vec![Seat(0)],
            storage: self.storage,
            sources: self.sources_of(epoch, known),
        }
    }

    pub(crate) fn view_in(&self, epoch: Epoch) -> &View {
        &self.views[epoch.0 as usize - 1]
    }

    fn sources_of(&self, epoch: Epoch, known: usize) -> Vec<Source> {
        let older = self.views.iter().filter(|view| view.epoch < epoch);
        let open = older.filter(|view| !self.closed[..known].contains(&view.epoch));
        let source = |view: &View| Source {
            store: store_of(view.epoch),
            view: view.clone(),
            out: Vec::new(),
        };
        open.map(source).collect()
    }

    /// A caller dies in whatever it was doing; another takes its place.
    pub(crate) fn replace_caller(&mut self, i: usize) {
        self.seed += 1_000_003;
        self.callers[i] = Caller::new(caller_name(i), self.seed);
    }

    fn step<T>(
        &mut self,
        who: Who,
        store: StoreId,
        f: impl FnOnce(&mut World, &dyn SegmentView, &mut Env<'_>) -> T,
    ) -> (T, Effects) {
        let (node, clock) = match who {
            Who::Node(i) => (Some(i), self.node_clocks[i]),
            Who::Caller(i) => (None, self.caller_clocks[i]),
        };
        let prefix = node.map_or(0, |i| self.nodes[i].applied);
        let epoch = store.epoch;
        let is_there = |i| self.created[epoch.0 as usize - 1].contains(&i);
        let view = node.is_none_or(is_there).then(|| self.view_in(epoch));
        let mut applied = Applied::new(view.cloned(), &self.history[..prefix], self.storage);
        applied.sources = self.sources_of(epoch, node.map_or(0, |i| self.known[i]));
        let memory = node.map(|i| self.nodes[i].disk.clone()).unwrap_or_default();
        if let Some(i) = node {
            applied.writable = self.nodes[i].writable;
        }
        let (timing, limits) = (self.timing.clone(), self.limits.clone());
        let mut fx = Effects::new();
        let mut cx = Env {
            time: None,
            now: Now {
                monotonic: self.now,
                wall: self.wall,
                interval: clock.map(|clock| clock.interval(self.now)),
            },
            fx: &mut fx,
            memory: &memory,
            timing: &timing,
            limits: &limits,
            planted: self.planted,
        };
        let result = f(self, &applied, &mut cx);
        (result, fx)
    }

    pub(crate) fn start(&mut self, caller: usize, op: Op) -> OpId {
        let place = self.place();
        self.start_at(caller, op, &place)
    }

    pub(crate) fn start_at(&mut self, caller: usize, op: Op, place: &Place) -> OpId {
        let (id, fx) = self.step(Who::Caller(caller), place.store, |w, _, cx| {
            let deadline = cx.now.monotonic + cx.timing.request;
            w.callers[caller].start(op, Owner::Upkeep, place, deadline, cx)
        });
        self.release(caller_name(caller), fx);
        self.collect(caller);
        id
    }

    fn release(&mut self, from: NodeName, fx: Effects) {
        for output in fx.outputs {
            let Output::Send { to, message, when } = output else {
                panic!("registers answer no client");
            };
            let fermata_protocol::Message::Register(message) = message else {
                panic!("registers speak of registers");
            };
            if let Message::Ask {
                ask: Ask::Store { tag, .. },
                ..
            } = &message
            {
                self.tags.entry(tag.writer).or_default().insert(*tag);
            }
            match self.nodes.get_mut(from.0 as usize) {
                Some(node) if when == When::Durable => node.held.push((to, message)),
                _ => self.bag.push(Letter { from, to, message }),
            }
        }
    }

    fn collect(&mut self, caller: usize) {
        while let Some((id, _, outcome)) = self.callers[caller].take_finished() {
            self.outcomes.push((caller, id, outcome));
        }
    }

    fn deliver_to_caller(&mut self, from: NodeName, to: NodeName, message: Message) {
        let caller = (to.0 - 100) as usize;
        let Message::Answer {
            call,
            store,
            answer,
            ..
        } = message
        else {
            panic!("callers are not asked");
        };
        let ((), fx) = self.step(Who::Caller(caller), store, |w, _, cx| {
            w.callers[caller].on_answer(from, call, store, answer, cx);
        });
        self.release(to, fx);
        self.collect(caller);
    }

    pub(crate) fn deliver(&mut self, letter: Letter) {
        if letter.to == NodeName(99) {
            self.heard.push(letter);
            return;
        }
        let Letter { from, to, message } = letter;
        if to.0 >= 100 {
            self.deliver_to_caller(from, to, message);
            return;
        }
        let i = to.0 as usize;
        let asked = match &message {
            Message::Ask { ask, .. } => Some(ask),
            _ => None,
        };
        let buries = matches!(asked, Some(Ask::Bury { .. }));
        let key = match &message {
            Message::Ask { key, store, .. } if *store == STORE && !buries => Some(key.clone()),
            Message::Ask { .. } | Message::AskStore { .. } | Message::Answer { .. } => None,
        };
        let (Message::Ask { store, .. }
        | Message::AskStore { store, .. }
        | Message::Answer { store, .. }) = message;
        let put = match asked {
            Some(Ask::EventualPut {
                content: Content::Value(f),
                ..
            }) => Some(f.bytes.clone()),
            _ => None,
        };
        let ((), fx) = self.step(Who::Node(i), store, |w, applied, cx| match message {
            Message::Ask {
                call,
                store,
                key,
                ask,
            } => {
                let replica = &mut w.nodes[i].replica;
                if replica.takes(from, (call, store), &ask, applied, cx) {
                    replica.on_ask(from, call, store, key, ask, applied, cx);
                }
            }
            Message::AskStore { call, store, ask } => w.nodes[i]
                .replica
                .on_store_ask(from, call, store, ask, applied, cx),
            Message::Answer {
                call,
                store,
                answer,
                ..
            } => {
                assert!(Replica::owns(call));
                w.nodes[i]
                    .replica
                    .on_answer(from, call, store, answer, applied, cx);
            }
        });
        if let Some(value) = put {
            self.note_eventual(&value, &fx);
        }
        self.commit(i, fx);
        if buries {
            // A removed key starts anew.
            self.forget(i);
        }
        if let Some(key) = key {
            self.check_monotone(i, key);
        }
    }

    /// Notes the tags that an eventual put was given.
    fn note_eventual(&mut self, value: &Bytes, fx: &Effects) {
        for output in &fx.outputs {
            if let Output::Send {
                message:
                    fermata_protocol::Message::Register(Message::Answer {
                        answer: Answer::EventualStored { tag },
                        ..
                    }),
                ..
            } = output
            {
                self.eventual.push((value.clone(), *tag));
            }
        }
    }

    fn commit(&mut self, i: usize, mut fx: Effects) {
        for write in &fx.writes {
            if let Write::Put { value, .. } = write {
                self.written += value.len();
            }
        }
        self.nodes[i].disk.append(std::mem::take(&mut fx.writes));
        self.release(NodeName(i as u32), fx);
    }

    /// Asks one replica directly; its answer once it is durable, if it gives one.
    pub(crate) fn ask(&mut self, i: usize, key: &KeyId, ask: Ask) -> Option<Answer> {
        self.ask_in(Epoch::FIRST, i, key, ask)
    }

    /// The same, in the store of an epoch.
    pub(crate) fn ask_in(
        &mut self,
        epoch: Epoch,
        i: usize,
        key: &KeyId,
        ask: Ask,
    ) -> Option<Answer> {
        let message = Message::Ask {
            call: 7,
            store: store_of(epoch),
            key: key.clone(),
            ask,
        };
        self.question(i, message)
    }

    /// Asks one replica about its whole store.
    pub(crate) fn ask_store(&mut self, i: usize, ask: StoreAsk) -> Option<Answer> {
        let (call, store) = (7, STORE);
        self.question(i, Message::AskStore { call, store, ask })
    }

    fn question(&mut self, i: usize, message: Message) -> Option<Answer> {
        let (from, to) = (NodeName(99), NodeName(i as u32));
        self.deliver(Letter { from, to, message });
        self.flush(i);
        let at = self.bag.iter().position(|l| l.to == from && l.from == to)?;
        match self.bag.remove(at).message {
            Message::Answer { answer, .. } => Some(answer),
            Message::Ask { .. } | Message::AskStore { .. } => None,
        }
    }

    /// Asks one replica directly, and does not wait.
    pub(crate) fn tell(&mut self, i: usize, key: &KeyId, ask: Ask) {
        self.calls += 1;
        self.asked.insert(self.calls, key.clone());
        let message = Message::Ask {
            call: self.calls,
            store: STORE,
            key: key.clone(),
            ask,
        };
        let (from, to) = (NodeName(99), NodeName(i as u32));
        self.deliver(Letter { from, to, message });
    }

    /// As [`World::tell`], about the whole store.
    pub(crate) fn tell_store(&mut self, i: usize, ask: StoreAsk) {
        self.tell_in(Epoch::FIRST, i, ask);
    }

    /// As [`World::tell`], about the whole store of an epoch.
    pub(crate) fn tell_in(&mut self, epoch: Epoch, i: usize, ask: StoreAsk) {
        let (from, to) = (NodeName(99), NodeName(i as u32));
        let (call, store) = (7, store_of(epoch));
        let message = Message::AskStore { call, store, ask };
        self.deliver(Letter { from, to, message });
    }

    /// Answers to [`World::tell`] that have left their replicas.
    pub(crate) fn overheard(&mut self) -> Vec<(usize, KeyId, Answer)> {
        while self.deliver_one(|l| l.to == NodeName(99)) {}
        let heard = std::mem::take(&mut self.heard);
        let answer = |letter: Letter| match letter.message {
            Message::Answer { call, answer, .. } => Some((
                letter.from.0 as usize,
                self.asked.get(&call)?.clone(),
                answer,
            )),
            _ => None,
        };
        heard.into_iter().filter_map(answer).collect()
    }

    /// Whether a replica has sealed the store, as far as it remembers.
    pub(crate) fn is_sealed(&self, i: usize) -> bool {
        self.is_sealed_in(Epoch::FIRST, i)
    }

    /// The same of the store of an epoch.
    pub(crate) fn is_sealed_in(&self, epoch: Epoch, i: usize) -> bool {
        let disk = &self.nodes[i].disk;
        disk.live.contains_key(&record::status(store_of(epoch)))
    }

    /// A replica seals its store of an epoch, durably.
    pub(crate) fn seal_in(&mut self, epoch: Epoch, i: usize, next: Epoch) {
        self.tell_in(epoch, i, StoreAsk::Seal { next });
        self.flush(i);
    }

    /// A name for an eventual put to a replica that is asked directly.
    pub(crate) fn name(&mut self) -> PutName {
        self.puts += 1;
        PutName {
            life: Life { since: 1, draw: 1 },
            number: self.puts,
        }
    }

    /// What one replica keeps of the store.
    pub(crate) fn cells(&self, i: usize) -> Vec<(Bytes, Bytes)> {
        let (from, to) = record::cells(STORE);
        let all = self.nodes[i].disk.records();
        let inside = all.filter(|(key, _)| **key >= from && **key < to);
        inside.map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    /// What a replica says of a key, without a trace; none while its record is damaged.
    pub(crate) fn inspect(
        &mut self,
        i: usize,
        key: &KeyId,
    ) -> Option<fermata_protocol::request::Inspection> {
        let name = NodeName(i as u32);
        let mut replica = Replica::recover(name, 0, &self.nodes[i].disk);
        let ((), fx) = self.step(Who::Node(i), STORE, |_, applied, cx| {
            let ask = Ask::Inspect;
            replica.on_ask(caller_name(0), 1, STORE, key.clone(), ask, applied, cx);
        });
        fx.outputs.into_iter().find_map(|output| match output {
            Output::Send {
                message:
                    fermata_protocol::Message::Register(Message::Answer {
                        answer: Answer::Inspection(inspection),
                        ..
                    }),
                ..
            } => Some(inspection),
            _ => None,
        })
    }

    /// Damages a node's records whose keys satisfy `which`; how many there were.
    pub(crate) fn damage(&mut self, i: usize, which: impl Fn(&[u8]) -> bool) -> usize {
        self.forget(i);
        self.nodes[i].disk.damage(which)
    }

    fn forget(&mut self, i: usize) {
        self.nodes[i].seen.clear();
        self.nodes[i].flushed.clear();
    }

    /// I1: tags and fences never decrease. A damaged record forgets, and starts anew.
    fn check_monotone(&mut self, i: usize, key: KeyId) {
        match self.inspect(i, &key) {
            None => self.forget(i),
            Some(_) if self.nodes[i].disk.is_damaged() => self.forget(i),
            Some(now) => {
                let (tag, fence) = self.nodes[i].seen.get(&key).copied().unwrap_or_default();
                assert!(now.tag >= tag, "node {i}: tag went back");
                assert!(now.fence >= fence, "node {i}: fence went back");
                self.nodes[i].seen.insert(key, (now.tag, now.fence));
            }
        }
    }

    /// Everything written so far is durable, and what waited for it leaves.
    pub(crate) fn flush(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        node.disk.durable = node.disk.live.clone();
        node.flushed = node.seen.clone();
        let held = std::mem::take(&mut node.held);
        for (to, message) in held {
            if let Message::Ask {
                ask: Ask::EventualSpread { tag, content },
                ..
            } = &message
                && let Content::Value(fragment) = content
            {
                self.spread.insert((fragment.bytes.clone(), *tag));
            }
            self.bag.push(Letter {
                from: NodeName(i as u32),
                to,
                message,
            });
        }
    }

    /// The node loses what is not durable, and its memory.
    pub(crate) fn crash(&mut self, i: usize) {
        self.seed += 1_000_003;
        self.lives[i] += 1;
        let node = &mut self.nodes[i];
        node.disk.live = node.disk.durable.clone();
        node.disk
            .damaged
            .retain(|key| node.disk.live.contains_key(key));
        node.held.clear();
        node.seen = node.flushed.clone();
        node.replica = Replica::recover(NodeName(i as u32), self.seed, &node.disk);
        let keys: Vec<KeyId> = node.seen.keys().cloned().collect();
        for key in keys {
            self.check_monotone(i, key);
        }
    }

    /// The caller's process ends, and another one begins.
    pub(crate) fn restart_caller(&mut self, caller: usize) {
        self.seed += 1_000_003;
        self.callers[caller] = Caller::new(caller_name(caller), self.seed);
    }

    pub(crate) fn advance(&mut self, by: u64) {
        self.now += by;
        self.wall += by;
        for caller in 0..self.callers.len() {
            let ((), fx) = self.step(Who::Caller(caller), STORE, |w, _, cx| {
                w.callers[caller].tick(cx);
            });
            self.release(caller_name(caller), fx);
            self.collect(caller);
        }
        for i in 0..self.nodes.len() {
            let ((), fx) = self.step(Who::Node(i), STORE, |w, _, cx| w.nodes[i].replica.tick(cx));
            self.commit(i, fx);
        }
    }

    /// One beat of every node's upkeep; what it wishes for is run by the first caller.
    pub(crate) fn upkeep(&mut self) {
        for i in 0..self.nodes.len() {
            let (wishes, fx) = self.step(Who::Node(i), STORE, |w, view, cx| {
                let replica = &mut w.nodes[i].replica;
                replica.upkeep(&Only(view), cx);
                std::iter::from_fn(|| replica.take_wish()).collect::<Vec<_>>()
            });
            self.commit(i, fx);
            for (_, op) in wishes {
                self.start(0, op);
            }
        }
    }

    /// Everything heals, and the members look after their registers until nothing changes any
    /// more: several rounds, each long enough for the next to act on what the last has seen.
    pub(crate) fn rest(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for _ in 0..6 {
                self.advance(self.timing.retry);
                self.settle();
                self.upkeep();
                self.settle();
            }
            self.advance(self.timing.upkeep);
            self.settle();
        }
    }

    /// Takes the first letter that satisfies `which` out of the bag and delivers it.
    pub(crate) fn deliver_one(&mut self, which: impl Fn(&Letter) -> bool) -> bool {
        match self.bag.iter().position(which) {
            Some(at) => {
                let letter = self.bag.remove(at);
                self.deliver(letter);
                true
            }
            None => false,
        }
    }

    /// A caller's present asks reach these nodes, which flush and answer; the answers arrive.
    pub(crate) fn reach(&mut self, caller: usize, nodes: &[usize]) {
        let (name, count) = (caller_name(caller), self.bag.len());
        let mut budget = 4 * count + 8;
        for i in nodes {
            let node = NodeName(*i as u32);
            while budget > 0 && self.deliver_one(|l| l.from == name && l.to == node) {
                budget -= 1;
                self.flush(*i);
            }
            while budget > 0 && self.deliver_one(|l| l.from == node && l.to == name) {
                budget -= 1;
            }
        }
    }

    /// Letters go on until none is left: everything reaches everybody.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            for i in 0..self.nodes.len() {
                self.flush(i);
            }
            if !self.deliver_one(|l| l.to != NodeName(99)) {
                return;
            }
        }
        panic!("messages never end");
    }

    /// As [`World::settle`], while these nodes hear and say nothing.
    pub(crate) fn settle_without(&mut self, silent: &[usize]) {
        let silent: Vec<NodeName> = silent.iter().map(|i| NodeName(*i as u32)).collect();
        let is_silent = |name: NodeName| silent.contains(&name);
        self.bag.retain(|l| !is_silent(l.from) && !is_silent(l.to));
        for _ in 0..10_000 {
            for i in 0..self.nodes.len() {
                self.flush(i);
            }
            self.bag.retain(|l| !is_silent(l.from) && !is_silent(l.to));
            if !self.deliver_one(|l| l.to != NodeName(99)) {
                return;
            }
        }
        panic!("messages never end");
    }

    /// Runs one operation of a new caller while these nodes are silent and everything else reaches
    /// everybody; its outcome.
    pub(crate) fn run_without(&mut self, caller: usize, op: Op, silent: &[usize]) -> OpEnd {
        self.replace_caller(caller);
        let id = self.start(caller, op);
        for _ in 0..200 {
            self.settle_without(silent);
            if let Some(outcome) = self.outcome(id, caller) {
                return outcome;
            }
            self.advance(150_000);
        }
        panic!("an operation ends at its deadline");
    }

    /// f nodes by chance.
    pub(crate) fn some_silent(&mut self) -> Vec<usize> {
        let mut left: Vec<usize> = (0..self.nodes.len()).collect();
        let faults = self.place().shape().faults();
        let mut silent = Vec::new();
        for _ in 0..faults {
            let at = self.rng.below(left.len() as u64) as usize;
            silent.push(left.swap_remove(at));
        }
        silent
    }

    /// The outcome of an operation, once it has one.
    pub(crate) fn outcome(&mut self, id: OpId, caller: usize) -> Option<OpEnd> {
        let at = self
            .outcomes
            .iter()
            .position(|(c, i, _)| *i == id && *c == caller)?;
        Some(self.outcomes.remove(at).2)
    }

    /// An adversarial macro-step on the messages: an operation touches some replicas, a stale
    /// message arrives, an answer is lost, a replica flushes, crashes, or time passes.
    pub(crate) fn disturb(&mut self) {
        let n = self.nodes.len() as u64;
        match self.rng.below(100) {
            0..45 => {
                let caller = self.rng.below(self.callers.len() as u64) as usize;
                let mask = self.rng.below(1 << n);
                let nodes: Vec<usize> = (0..n as usize).filter(|i| mask >> i & 1 == 1).collect();
                self.reach(caller, &nodes);
            }
            45..70 if !self.bag.is_empty() => {
                let at = self.rng.below(self.bag.len() as u64) as usize;
                let letter = if self.chance(15) {
                    self.bag[at].clone()
                } else {
                    self.bag.swap_remove(at)
                };
                self.deliver(letter);
            }
            70..78 if !self.bag.is_empty() => {
                let at = self.rng.below(self.bag.len() as u64) as usize;
                self.bag.swap_remove(at);
            }
            78..88 => {
                let i = self.rng.below(n) as usize;
                self.flush(i);
            }
            88..91 => {
                let i = self.rng.below(n) as usize;
                self.crash(i);
            }
            91..97 => self.advance(150_000),
            97..99 => self.advance(800_000),
            _ => {}
        }
    }
}
