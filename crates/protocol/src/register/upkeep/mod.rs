//! Upkeep: what members of a group do for their registers while nobody asks.
//!
//! **Problem.** A write is done once q members have it. A member that was down, or whose message
//! was lost, lacks it for as long as nobody writes the key again, and then one failure more than
//! it seems takes the value. A writer that dies leaves a version that nobody completes or removes.
//! A deleted key leaves a trace for ever, which must not go while a member may still have what was
//! deleted: it would come back (F8 f, g).
//!
//! **Idea.** Every member walks *its own* stores, slowly, a bounded number of keys at once, and
//! asks the other members what they hold of each: tags alone. Whoever holds the highest tag, and
//! among those the lowest seat, acts for the key once it has looked the same for as long as any
//! operation may live:
//!
//! * q members hold it: it is complete, and those that lack it are given it (`Ask::Repair`). Any
//!   other version below is told to be outlived (`Ask::Settle`).
//! * Fewer do, in a register keyspace: a read completes it, or else a sweep settles the key under a
//!   tag above all (F8g). In a section keyspace it is nobody's but the next section's, whose synch
//!   settles it: the key has its flag until then.
//! * It is a delete, all n members hold it and nothing below, and it lies under the segment's
//!   floor: once the floor has risen again, all remove it.
//!
//! Each member walks its own store, not the primary all: the primary may lack the very key that is
//! to be repaired and would need lists of all others', no lease is needed for what is safe whoever
//! does it, and a member that was down finds others pushing what it lacks. The price is that a key
//! is looked at by all n members. The walk stops while the disk takes no writes.
//!
//! **Why a removed key stays away.** A trace t is removed only where a floor is known that is above
//! every floor that any member knew when it answered that it holds t and nothing below. After that
//! an older version can come by message alone: a `Store` or spread under the floor is refused, and
//! so is a `Repair` that was sent by one who did not know this floor. A `Repair` of something older
//! than t can only have been sent before its sender had t, thus before its answer, and so says a
//! lower floor. The remover notes the floor durably, since it may have applied less when it starts
//! again.
//!
//! **Invariants.** U1: nothing here writes into a store; everything goes by messages, also to
//! itself, under the rules of `rules`. U2: looks, suspects and wishes are bounded. U3: nothing
//! here is durable but the floor of removals; a member that forgets looks again.

mod rules;
mod tally;

use self::rules::{survey, under_floor};
use self::tally::Tallies;
pub use self::tally::Tally;
use super::cell::{At, Cell, Head};
use super::message::{Answer, Ask, Content, Message, Store, Survey, Version};
use super::op::Op;
use super::repair::MARK;
use super::replica::Replica;
use super::status::{Status, Stores, beyond};
use super::{Cx, SegmentView, policy};
use crate::base::{
    Bug, Epoch, EventualTag, Kept, KeyId, KeyspaceId, LockRef, Micros, NodeName, Purpose, Rng,
    Seat, SegmentId, Shape, StoragePolicy, Tag, View,
};
use crate::io::{Memory, Void};
use crate::wire::decode;
use crate::wire::record::{self, CellPart};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Set, beside [`MARK`], in the calls of upkeep.
const OWN: u64 = 1 << 62;
/// Keys looked at per beat.
const PER_BEAT: usize = 16;
/// Keys looked at at once.
const LOOKS_MAX: usize = 64;
/// Keys remembered from one round to the next.
const SUSPECTS_MAX: usize = 4_096;
/// Quorum operations wished for and not yet taken.
const WISHES_MAX: usize = 16;

/// Whether an answer under this call belongs to upkeep.
pub(super) fn owns(call: u64) -> bool {
    call & MARK != 0 && call & OWN != 0
}

/// The register stores of a node, as it knows them: what upkeep walks.
pub trait SegmentViews {
    /// The stores of the epochs in force.
    fn stores(&self) -> Vec<Store>;
    /// One of them.
    fn view(&self, store: Store) -> Box<dyn SegmentView + '_>;
}

/// What upkeep has counted since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpkeepCounts {
    /// Walks over all stores that were completed.
    pub rounds: u64,
    /// Keys compared among members.
    pub looks: u64,
    /// Keys found uneven for longer than any operation lives.
    pub uneven: u64,
    /// Versions given to members that lacked them.
    pub given: u64,
    /// Versions taken that this node lacked.
    pub taken: u64,
    /// Versions offered that this node refused.
    pub refused: u64,
    /// Reads and sweeps started for registers whose writers have died.
    pub settled: u64,
    /// Traces of deleted keys removed here.
    pub buried: u64,
}

/// Volatile state of a member's upkeep.
#[derive(Clone, Debug)]
pub(super) struct Upkeep {
    rng: Rng,
    next_call: u64,
    /// When the next round may begin.
    next_round: Micros,
    round: Option<Round>,
    looks: BTreeMap<u64, Look>,
    suspects: BTreeMap<(Store, KeyId), Suspect>,
    traces: BTreeMap<(Store, KeyId), Trace>,
    wishes: VecDeque<(Store, Op)>,
    /// Segments whose floor should rise, so that a trace can go.
    wanted: BTreeMap<SegmentId, LockRef>,
    /// Those of this round that were named already.
    named: BTreeSet<SegmentId>,
    tallies: BTreeMap<Store, Tallies>,
    /// The floors under which keys were removed here.
    floors: BTreeMap<Store, LockRef>,
    counts: UpkeepCounts,
}

/// A walk over all stores.
#[derive(Clone, Debug)]
struct Round {
    left: Vec<Store>,
    /// Heads up to here were seen in the last of `left`.
    from: Option<bytes::Bytes>,
    tallies: Tallies,
}

/// One key as it is compared among the members.
#[derive(Clone, Debug)]
struct Look {
    at: At,
    members: View,
    until: Micros,
    heard: BTreeMap<Seat, Survey>,
    /// Parts of the version of this tag are collected, for those that lack it.
    parts: Option<(Tag, Vec<Seat>, Vec<Content>)>,
}

/// A key that was uneven.
#[derive(Clone, Debug)]
struct Suspect {
    state: (Tag, Option<EventualTag>),
    since: Micros,
    /// Quorum operations wished for it.
    tries: u32,
}

/// A deleted key of which every member held just this.
#[derive(Clone, Debug)]
struct Trace {
    state: (Tag, Option<EventualTag>),
    /// The highest floor that any of them knew.
    above: LockRef,
}

/// What a look amounts to, as seen from here.
struct Standing {
    own: Survey,
    /// Nobody has a higher tag; and this is the lowest seat that has it.
    tops: bool,
    leads: bool,
    /// The same of the eventual cell.
    newest: bool,
    gives: bool,
    /// Seats that hold the highest tag.
    holders: Vec<Seat>,
    /// Seats that do not, and have no fence above it.
    lacking: Vec<Seat>,
    /// Seats whose eventual cell is older than ours.
    behind: Vec<Seat>,
    /// Seats that keep versions that are outlived.
    crowded: bool,
    /// A fence above the highest tag.
    fenced: bool,
    /// All members have answered.
    all: bool,
    /// The highest floor known to any, and the lowest.
    floors: (LockRef, LockRef),
    /// Every member's cells lie under its own floor.
    under: bool,
}

impl Upkeep {
    /// Starts with what was noted durably. A note that is damaged closes its store: it has
    /// forgotten what it must refuse.
    pub(super) fn recover(
        name: NodeName,
        seed: u64,
        memory: &dyn Memory,
        stores: &mut Stores,
    ) -> Upkeep {
        let (mut from, to) = record::all_buried();
        let mut floors = BTreeMap::new();
        while let Some((key, value)) = memory.scan(&from, &to, 1).pop() {
            if let Some(store) = record::store_of(&key) {
                match value.and_then(|bytes| decode(&bytes).map_err(|_| Void)) {
                    Ok(floor) => drop(floors.insert(store, floor)),
                    Err(Void) => drop(stores.closed.insert(store, Err(Void))),
                }
            }
            from = beyond(&key);
        }
        let mut rng = Rng::new(seed ^ OWN ^ u64::from(name.0));
        Upkeep {
            next_call: (rng.draw() >> 2) | MARK | OWN,
            rng,
            next_round: 0,
            round: None,
            looks: BTreeMap::new(),
            suspects: BTreeMap::new(),
            traces: BTreeMap::new(),
            wishes: VecDeque::new(),
            wanted: BTreeMap::new(),
            named: BTreeSet::new(),
            tallies: BTreeMap::new(),
            floors,
            counts: UpkeepCounts::default(),
        }
    }

    /// Refs up to here are past, by what is applied or was noted when a key was removed.
    pub(super) fn floor(&self, store: Store, view: &dyn SegmentView) -> LockRef {
        let noted = self.floors.get(&store).copied().unwrap_or(LockRef(0));
        view.floor().max(noted)
    }

    /// Nothing is written into this store any more.
    pub(super) fn forget(&mut self, store: Store) {
        self.looks.retain(|_, look| look.at.store != store);
        self.suspects.retain(|(of, _), _| *of != store);
        self.traces.retain(|(of, _), _| *of != store);
        self.wishes.retain(|(of, _)| *of != store);
        self.tallies.remove(&store);
    }

    /// Whether the key has looked like this for as long as any operation may live; begins to
    /// count where it has not been seen like this.
    fn is_ripe(&mut self, at: &At, state: (Tag, Option<EventualTag>), cx: &Cx<'_>) -> bool {
        let place = (at.store, at.key.clone());
        let now = cx.now.monotonic;
        match self.suspects.get(&place) {
            Some(known) if known.state == state => {
                now >= known.since + cx.timing.lengthened(cx.timing.request)
            }
            None if self.suspects.len() >= SUSPECTS_MAX => false,
            _ => {
                let (since, tries) = (now, 0);
                let suspect = Suspect {
                    state,
                    since,
                    tries,
                };
                self.suspects.insert(place, suspect);
                false
            }
        }
    }

    fn send(&mut self, look: Look, asks: Vec<(NodeName, Ask)>, cx: &mut Cx<'_>) {
        let call = self.next_call;
        self.next_call = self.next_call.wrapping_add(1) | MARK | OWN;
        for (node, ask) in asks {
            cx.fx.send(node, look.ask(call, ask));
        }
        self.looks.insert(call, look);
    }
}

impl Look {
    fn ask(&self, call: u64, ask: Ask) -> Message {
        Message::Ask {
            call,
            store: self.at.store,
            key: self.at.key.clone(),
            ask,
        }
    }

    fn standing(&self, own: Survey, here: Seat, kept: Kept) -> Standing {
        let top = own.tags.last().copied().unwrap_or_default();
        let seat = here;
        let mut standing = Standing {
            tops: true,
            leads: true,
            newest: true,
            gives: true,
            holders: Vec::from([seat]),
            lacking: Vec::new(),
            behind: Vec::new(),
            crowded: own.tags.len() > 1,
            fenced: own.fence > top,
            all: self.heard.len() + 1 == self.members.len(),
            floors: (own.floor, own.floor),
            under: under_floor(&own, own.floor),
            own,
        };
        for (seat, held) in &self.heard {
            let highest = held.tags.last().copied().unwrap_or_default();
            standing.tops &= highest <= top;
            standing.leads &= highest < top || here < *seat;
            standing.newest &= held.eventual <= standing.own.eventual;
            standing.gives &= held.eventual < standing.own.eventual || here < *seat;
            if highest == top {
                standing.holders.push(*seat);
            } else if held.fence <= top {
                standing.lacking.push(*seat);
            }
            if held.eventual < standing.own.eventual {
                standing.behind.push(*seat);
            }
            standing.crowded |= held.tags.len() > 1;
            standing.fenced |= held.fence > top;
            standing.under &= under_floor(held, held.floor);
            let (high, low) = standing.floors;
            standing.floors = (high.max(held.floor), low.min(held.floor));
        }
        standing.leads &= standing.tops;
        standing.gives &= standing.newest;
        standing.crowded &= matches!(kept, Kept::FromFinal(_));
        standing
    }
}

/// Whether a section may be under way on the key, or be owed a synch.
fn is_used(key: &KeyId, terms: &Terms, view: &dyn SegmentView) -> bool {
    terms.purpose == Purpose::Sections && view.busy(key)
}

/// What a key's upkeep needs to know beside what its members hold.
struct Terms {
    purpose: Purpose,
    policy: StoragePolicy,
    shape: Shape,
    seat: Seat,
}

impl Terms {
    fn of(at: &At, name: NodeName, view: &dyn SegmentView) -> Option<Terms> {
        let keyspace = view.keyspace(at.key.keyspace)?;
        let members = view.members()?;
        Some(Terms {
            purpose: keyspace.purpose,
            policy: keyspace.storage,
            shape: keyspace.storage.shape(members.len()).ok()?,
            seat: members.seat_of(name)?,
        })
    }
}

impl Replica {
    /// Goes on with the walk; to be called once per beat.
    pub fn upkeep(&mut self, views: &dyn SegmentViews, cx: &mut Cx<'_>) {
        let late = |look: &Look| look.until <= cx.now.monotonic;
        let late: Vec<u64> = self
            .upkeep
            .looks
            .iter()
            .filter(|(_, l)| late(l))
            .map(|l| *l.0)
            .collect();
        for call in late {
            if let Some(look) = self.upkeep.looks.remove(&call) {
                let view = views.view(look.at.store);
                self.judge(look, &*view, cx);
            }
        }
        if self.upkeep.round.is_none() {
            if cx.now.monotonic < self.upkeep.next_round {
                return;
            }
            let first = self.upkeep.next_round == 0;
            self.upkeep.next_round = cx.now.monotonic + cx.timing.upkeep;
            if first {
                return; // A node that starts has other things to do.
            }
            self.upkeep.wanted.clear();
            self.upkeep.named.clear();
            self.upkeep.round = Some(Round {
                left: views.stores(),
                from: None,
                tallies: Tallies::default(),
            });
        }
        let store = self
            .upkeep
            .round
            .as_ref()
            .and_then(|r| r.left.last().copied());
        match store {
            Some(store) => self.walk(store, &*views.view(store), cx),
            None => {
                self.upkeep.round = None;
                self.upkeep.counts.rounds += 1;
            }
        }
    }

    /// Looks at the next few keys of a store.
    fn walk(&mut self, store: Store, view: &dyn SegmentView, cx: &mut Cx<'_>) {
        let Some(mut round) = self.upkeep.round.take() else {
            return;
        };
        let (from, to) = record::cells_of(store, CellPart::Head);
        let from = round.from.take().unwrap_or(from);
        let open = matches!(self.stores.of(store), Ok(Status::Open));
        let room = LOOKS_MAX
            .saturating_sub(self.upkeep.looks.len())
            .min(PER_BEAT);
        let heads = match open {
            true => cx.memory.scan(&from, &to, room),
            false => Vec::new(),
        };
        for (record, head) in &heads {
            round.from = Some(beyond(record));
            let (Some(address), Some(key)) = (record::address_of(record), record::key_of(record))
            else {
                continue;
            };
            let at = At {
                store,
                address,
                key,
            };
            let head = head.as_ref().map_err(|_| Void);
            let head = head.and_then(|bytes| decode::<Head>(bytes).map_err(|_| Void));
            self.look_at(at, head, &mut round.tallies, view, cx);
        }
        if heads.len() < room {
            let tallies = core::mem::take(&mut round.tallies);
            if open {
                self.upkeep.tallies.insert(store, tallies);
            }
            round.left.pop();
            round.from = None;
        }
        self.upkeep.round = Some(round);
    }

    fn look_at(
        &mut self,
        at: At,
        head: Result<Head, Void>,
        tallies: &mut Tallies,
        view: &dyn SegmentView,
        cx: &mut Cx<'_>,
    ) {
        let (Some(terms), Some(members)) = (Terms::of(&at, self.name, view), view.members()) else {
            return;
        };
        let Ok(head) = head else {
            tallies.damaged(at.key.keyspace);
            self.repairs.begin(&at, terms.policy, Some(members), cx);
            return;
        };
        let keyspace = at.key.keyspace;
        tallies.count(keyspace, &head, terms.policy, terms.shape, terms.seat);
        // Of a key that is in use only what is outlived matters, and only where there is more than
        // its last write.
        let used = is_used(&at.key, &terms, view);
        if (used && head.versions().len() < 2) || !view.writable() || members.len() < 2 {
            return;
        }
        let others = members.nodes().filter(|node| *node != self.name);
        let asks: Vec<(NodeName, Ask)> = others.map(|node| (node, Ask::Survey)).collect();
        let look = Look {
            at,
            members: members.clone(),
            until: cx.now.monotonic + 2 * cx.timing.retry,
            heard: BTreeMap::new(),
            parts: None,
        };
        self.upkeep.counts.looks += 1;
        self.upkeep.send(look, asks, cx);
    }

    /// Takes another member's answer to a look.
    pub(super) fn on_upkeep_answer(
        &mut self,
        from: NodeName,
        call: u64,
        store: Store,
        answer: Answer,
        view: &dyn SegmentView,
        cx: &mut Cx<'_>,
    ) {
        let Some(look) = self.upkeep.looks.get_mut(&call) else {
            return;
        };
        let seat = look.members.seat_of(from).filter(|_| from != self.name);
        let Some(seat) = seat.filter(|_| store == look.at.store) else {
            return;
        };
        let done = match answer {
            Answer::Surveyed(held) if look.parts.is_none() => {
                look.heard.insert(seat, held);
                look.heard.len() + 1 == look.members.len()
            }
            Answer::Cells { versions, .. } => look.takes_part(versions),
            _ => false,
        };
        if !done {
            return;
        }
        if let Some(look) = self.upkeep.looks.remove(&call) {
            match &look.parts {
                None => self.judge(look, view, cx),
                Some(_) => self.give_rebuilt(look, view, cx),
            }
        }
    }

    /// Decides what is to be done for a key, from what the members hold of it.
    fn judge(&mut self, look: Look, view: &dyn SegmentView, cx: &mut Cx<'_>) {
        let open = matches!(self.stores.of(look.at.store), Ok(Status::Open));
        let Some(terms) = Terms::of(&look.at, self.name, view) else {
            return;
        };
        if look.parts.is_some()
            || !open
            || !view.writable()
            || view.members() != Some(&look.members)
        {
            return;
        }
        let Ok(cell) = Cell::load(cx.memory, &look.at) else {
            return;
        };
        let own = survey(&cell.head, self.upkeep.floor(look.at.store, view));
        let standing = look.standing(own, terms.seat, terms.shape.kept);
        if standing.crowded {
            look.settle_complete(&standing.own, &terms, cx);
        }
        if is_used(&look.at.key, &terms, view) {
            return;
        }
        let place = (look.at.store, look.at.key.clone());
        let top = standing.own.tags.last().copied().unwrap_or_default();
        let state = (top, standing.own.eventual);
        let even = standing.tops
            && standing.newest
            && standing.lacking.is_empty()
            && standing.behind.is_empty()
            && !standing.crowded
            && (terms.purpose == Purpose::Sections || !standing.fenced);
        let dead = !cell.head.is_live()
            && cell.head.length().is_none()
            && !cell.head.eventual_live
            && cell.head.moved.is_none();
        let dead = dead && terms.purpose == Purpose::Sections;
        if even || (dead && cx.planted.has(Bug::TombstoneBuriedEarly)) {
            self.upkeep.suspects.remove(&place);
            if dead {
                self.trace(&look, &standing, state, cx);
            }
            return;
        }
        self.upkeep.traces.remove(&place);
        let acts = standing.leads || standing.gives;
        if !acts || !self.upkeep.is_ripe(&look.at, state, cx) {
            return;
        }
        self.upkeep.counts.uneven += 1;
        if standing.gives {
            self.give_eventual(&look, &standing, cx);
        }
        if !standing.leads {
            return;
        }
        self.mend(look, &standing, dead, &terms, view, cx);
    }

    /// A key that has been uneven for long, for which this member acts.
    fn mend(
        &mut self,
        look: Look,
        standing: &Standing,
        dead: bool,
        terms: &Terms,
        view: &dyn SegmentView,
        cx: &mut Cx<'_>,
    ) {
        let top = standing.own.tags.last().copied().unwrap_or_default();
        let complete = standing.holders.len() >= terms.shape.quorum;
        // Nobody has anything that this delete could hide or be hidden by.
        let last_trace = dead
            && standing.all
            && standing.under
            && standing.newest
            && look
                .heard
                .values()
                .all(|h| h.tags.is_empty() || h.tags[..] == [top]);
        let registers = terms.purpose == Purpose::Registers;
        if registers && (!complete || standing.fenced) {
            return self.wish(&look.at, standing.fenced);
        }
        if top == Tag::ZERO || !(complete || last_trace) {
            return;
        }
        if standing.lacking.is_empty() {
            return;
        }
        let Ok(cell) = Cell::load(cx.memory, &look.at) else {
            return;
        };
        let Some(Ok(own)) = cell.head.version(top).map(|trace| cell.content_of(trace)) else {
            return;
        };
        match policy::decode(&[&own]) {
            Ok(_) => {
                let lacking = standing.lacking.clone();
                self.give(
                    &look,
                    top,
                    &lacking,
                    |seat, key| policy::reseated(key, top, &own, seat),
                    view,
                    cx,
                );
            }
            Err(policy::Undecodable) => {
                let holders = standing.holders.iter().filter(|s| **s != terms.seat);
                let nodes = holders.filter_map(|seat| look.members.node_at(*seat));
                let asks = nodes.map(|node| (node, read())).collect();
                let look = Look {
                    until: cx.now.monotonic + 2 * cx.timing.retry,
                    parts: Some((top, standing.lacking.clone(), Vec::from([own]))),
                    ..look
                };
                self.upkeep.send(look, asks, cx);
            }
        }
    }

    /// Gives a value that was rebuilt from parts to those that lack theirs.
    fn give_rebuilt(&mut self, look: Look, view: &dyn SegmentView, cx: &mut Cx<'_>) {
        let (Some((tag, lacking, parts)), Some(terms)) =
            (&look.parts, Terms::of(&look.at, self.name, view))
        else {
            return;
        };
        let parts: Vec<&Content> = parts.iter().collect();
        let Ok(value) = policy::decode(&parts) else {
            return;
        };
        let key = &look.at.key;
        let all = policy::encode(terms.policy, terms.shape, key, *tag, value.as_ref());
        let part = |seat: Seat, _: &KeyId| all[usize::from(seat.0)].clone();
        self.give(&look, *tag, lacking, part, view, cx);
    }

    /// Sends a version to those that lack it; but only while it is still the highest here, which is
    /// the sender's duty (see the essay).
    fn give(
        &mut self,
        look: &Look,
        tag: Tag,
        lacking: &[Seat],
        part: impl Fn(Seat, &KeyId) -> Content,
        view: &dyn SegmentView,
        cx: &mut Cx<'_>,
    ) {
        let Ok(cell) = Cell::load(cx.memory, &look.at) else {
            return;
        };
        if cell.head.tag() != tag || !matches!(self.stores.of(look.at.store), Ok(Status::Open)) {
            return;
        }
        let (origin, floor) = (cell.head.origin(), self.upkeep.floor(look.at.store, view));
        for seat in lacking {
            let Some(node) = look.members.node_at(*seat) else {
                continue;
            };
            let ask = Ask::Repair {
                tag,
                origin,
                content: part(*seat, &look.at.key),
                floor,
            };
            cx.fx.promise(node, look.ask(MARK | OWN, ask));
            self.upkeep.counts.given += 1;
        }
        settle(look, tag, cx);
    }

    /// Sends the eventual value to those whose own is older.
    fn give_eventual(&mut self, look: &Look, standing: &Standing, cx: &mut Cx<'_>) {
        if standing.behind.is_empty() {
            return;
        }
        let Ok(cell) = Cell::load(cx.memory, &look.at) else {
            return;
        };
        let Ok(Some((tag, content))) = cell.eventual() else {
            return;
        };
        for seat in &standing.behind {
            let Some(node) = look.members.node_at(*seat) else {
                continue;
            };
            let ask = Ask::RepairEventual {
                tag,
                content: policy::reseated(&look.at.key, Tag::ZERO, &content, *seat),
                floor: standing.own.floor,
            };
            cx.fx.promise(node, look.ask(MARK | OWN, ask));
            self.upkeep.counts.given += 1;
        }
    }

    /// A register that a quorum operation must settle: first by a read, which completes what can be
    /// completed, then by a sweep.
    fn wish(&mut self, at: &At, sweep: bool) {
        let place = (at.store, at.key.clone());
        let Some(suspect) = self.upkeep.suspects.get_mut(&place) else {
            return;
        };
        if self.upkeep.wishes.len() >= WISHES_MAX {
            return;
        }
        let key = at.key.clone();
        let op = match sweep || suspect.tries > 0 {
            false => Op::Read { key },
            true => Op::Sweep {
                key,
                writer: u128::from(self.upkeep.rng.draw()) << 64
                    | u128::from(self.upkeep.rng.draw() | 1),
            },
        };
        suspect.tries += 1;
        self.upkeep.counts.settled += 1;
        self.upkeep.wishes.push_back((at.store, op));
    }

    /// Every member that has answered holds this delete. It goes once all have, and once the floor
    /// has risen above what any of them knew.
    fn trace(
        &mut self,
        look: &Look,
        standing: &Standing,
        state: (Tag, Option<EventualTag>),
        cx: &mut Cx<'_>,
    ) {
        let early = cx.planted.has(Bug::TombstoneBuriedEarly);
        if !(standing.all || early) || look.at.store.epoch != Epoch::FIRST {
            return;
        }
        let (own, segment) = (&standing.own, look.at.store.segment);
        if !(standing.under || early) || !under_floor(own, own.floor) {
            let eventual = own.eventual.map_or(0, |e| e.applied + 1);
            let fences = look.heard.values().map(|h| h.fence);
            let fence = fences.fold(own.fence, Tag::max).lock_ref;
            let least = state.0.lock_ref.max(fence).max(LockRef(eventual));
            return self.want(segment, least);
        }
        let place = (look.at.store, look.at.key.clone());
        let full = self.upkeep.traces.len() >= SUSPECTS_MAX;
        let known = self.upkeep.traces.get(&place).filter(|t| t.state == state);
        let above = known.map_or(standing.floors.0, |t| t.above);
        if known.is_none() && !full {
            let trace = Trace { state, above };
            self.upkeep.traces.insert(place, trace);
        }
        if standing.floors.1 <= above && !early {
            return self.want(segment, LockRef(above.0 + 1));
        }
        if look.members.seat_of(self.name) == Some(Seat(0)) || early {
            for node in look.members.nodes() {
                let ask = Ask::Bury {
                    tag: state.0,
                    eventual: state.1,
                    above,
                };
                cx.fx.promise(node, look.ask(MARK | OWN, ask));
            }
        }
    }

    fn want(&mut self, segment: SegmentId, floor: LockRef) {
        if !self.upkeep.named.contains(&segment) {
            let wanted = self.upkeep.wanted.entry(segment).or_default();
            *wanted = floor.max(*wanted);
        }
    }

    /// A quorum operation that a register of this store needs; its outcome does not matter. To be
    /// started by the node.
    pub fn take_wish(&mut self) -> Option<(Store, Op)> {
        self.upkeep.wishes.pop_front()
    }

    /// A segment whose floor should rise at least so far for its deleted keys to go; each is named
    /// once a round.
    pub fn take_wanted_floor(&mut self) -> Option<(SegmentId, LockRef)> {
        let (segment, floor) = self.upkeep.wanted.pop_first()?;
        self.upkeep.named.insert(segment);
        Some((segment, floor))
    }

    /// What upkeep has counted.
    pub fn upkeep_counts(&self) -> UpkeepCounts {
        self.upkeep.counts
    }

    /// What this node stores, by keyspace, as of the last walk over each store.
    pub fn storage(&self) -> BTreeMap<KeyspaceId, Tally> {
        let mut all: BTreeMap<KeyspaceId, Tally> = BTreeMap::new();
        for (keyspace, tally) in self.upkeep.tallies.values().flat_map(|t| &t.0) {
            all.entry(*keyspace).or_default().add(tally);
        }
        all
    }
}

impl Look {
    /// Tells that the highest tag which q members hold is final, where something lies below it: its
    /// writer has told so, but not everybody has heard. It may not be the highest of all.
    fn settle_complete(&self, own: &Survey, terms: &Terms, cx: &mut Cx<'_>) {
        let all = || core::iter::once(own).chain(self.heard.values());
        let holds = |tag: Tag| all().filter(|held| held.tags.contains(&tag)).count();
        let complete = |tag: &&Tag| holds(**tag) >= terms.shape.quorum;
        let highest = own.tags.iter().rev().find(complete).copied();
        if let Some(tag) = highest
            && all().any(|held| held.tags.first().is_some_and(|t| *t < tag))
        {
            settle(self, tag, cx);
        }
    }

    /// Takes a part of the wanted version; true once they give the value.
    fn takes_part(&mut self, versions: Vec<Version>) -> bool {
        let Some((tag, _, parts)) = &mut self.parts else {
            return false;
        };
        let wanted = versions.into_iter().find(|v| v.tag == *tag);
        let sound = wanted.filter(|v| policy::is_sound(&v.content, &self.at.key, v.tag));
        parts.extend(sound.map(|v| v.content));
        let parts: Vec<&Content> = parts.iter().collect();
        policy::decode(&parts).is_ok()
    }
}

fn read() -> Ask {
    Ask::Read {
        holder: None,
        entering: false,
        fence: None,
        eventual: false,
        values: true,
    }
}

/// Tells all members that a tag which q of them hold is final.
fn settle(look: &Look, tag: Tag, cx: &mut Cx<'_>) {
    for node in look.members.nodes() {
        cx.fx
            .promise(node, look.ask(MARK | OWN, Ask::Settle { tag }));
    }
}
