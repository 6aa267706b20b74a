//! Upkeep: what members of a group do for their registers while nobody asks.
//!
//! **Problem.** A write is done once q members have it. A member that was down, or whose message
//! was lost, lacks it for as long as nobody writes the key again, and then one failure more than
//! it seems takes the value. A writer that dies leaves a version that nobody completes or removes.
//! A deleted key leaves a trace for ever, which must not go while a member may still have what was
//! deleted: it would come back (F8f; the sweep: F8g).
//!
//! **Idea.** Every member walks *its own* stores, slowly, a bounded number of keys at once, and
//! asks the other members what they hold of each: tags alone. The member with the highest tag, and
//! among those the lowest seat, acts for the key once it has looked the same for as long as any
//! operation may live:
//!
//! * q members hold it: it is complete, and those that lack it are given it (`Ask::Repair`). Any
//!   other version below is told to be outlived (`Ask::Settle`).
//! * Fewer do, in a register keyspace: a read completes it, or else a sweep settles the key under a
//!   tag above all (F8g). In a section keyspace the next section's synch alone settles it: the key
//!   has its flag until then. A put that is not complete leaves a flag (F5), and so does a synch:
//!   it runs under a flag that it alone clears (G28), or for a ref that leaves no key clean before
//!   it is complete, whoever leads by then (G3, G29).
//! * Where an eventual value is kept below it, and q members hold it, that value goes (G26).
//! * It is a delete, all n members hold it and nothing below, and it lies under the segment's
//!   floor: once the floor has risen again, all remove it. The floor stays below every ref that
//!   holds or waits in the segment, so one that has been there for longer keeps the traces.
//!
//! * Its keyspace was deleted: every member removes what it has of the key, by itself. Nothing of
//!   it is taken again, whoever sends it: a node never forgets what it knows of a deletion, and one
//!   that has not heard of it keeps what it has until it does.
//!
//! Each member walks its own store, not the primary all: the primary may lack the very key that is
//! to be repaired and would need lists of all others', no lease is needed for what is safe whoever
//! does it, and a member that was down finds others pushing what it lacks. The price is that a key
//! is looked at by all n members. The walk stops while the disk takes no writes. It also reads
//! through some of the values that it passes, so that one that rots is found, and rebuilt from the
//! others', while they still have enough (F8c).
//!
//! **Why a removed key stays away.** A trace t is removed only where a floor is known that is above
//! every floor that any member knew when it answered that it holds t and nothing below. After that
//! an older version can come by message alone: a `Store` or spread under the floor is refused, and
//! so is a `Repair` that was sent by one who did not know this floor. A `Repair` of something older
//! than t can only have been sent before its sender had t, thus before its answer, and so says a
//! lower floor. The remover notes the floor durably, since it may have applied less when it starts
//! again.
//!
//! **Invariants.** U1: nothing here writes into a store, but to remove what is of a deleted
//! keyspace; everything else goes by messages, also to itself, under the rules of `rules`. U2:
//! looks, suspects and wishes are bounded. U3: nothing here is durable but the floor of removals; a
//! member that forgets looks again.

mod judge;
mod rules;
mod tally;

use self::judge::{Look, Terms, is_used};
use self::tally::Tallies;
pub use self::tally::Tally;
use super::SegmentView;
use super::cell::{At, Cell, Head};
use super::message::{Answer, Ask, StoreId};
use super::op::Op;
use super::repair::{MARK, SLOTS};
use super::replica::Replica;
use super::status::{Status, Stores, beyond};
use crate::base::{
    Bug, EventualTag, KeyId, KeyspaceId, LockRef, Micros, NodeName, Rng, SegmentId, Tag,
};
use crate::io::{Env, Memory, Void};
use crate::wire::decode;
use crate::wire::record::{self, CellRecord};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Set, beside [`MARK`], in the calls of upkeep.
const OWN: u64 = 1 << 62;
/// Keys looked at per beat.
const PER_BEAT: usize = 16;
/// Bytes of values that a walk reads through per beat, on average: what rots where nobody reads.
const SCRUBBED_PER_BEAT: u64 = 256 << 10;
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
    fn stores(&self) -> Vec<StoreId>;
    /// One of them.
    fn view(&self, store: StoreId) -> Box<dyn SegmentView + '_>;
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
    /// Traces of deleted keys removed here, and keys of deleted keyspaces.
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
    /// When the last round was completed.
    walked: Option<Micros>,
    looks: BTreeMap<u64, Look>,
    suspects: BTreeMap<(StoreId, KeyId), Suspect>,
    traces: BTreeMap<(StoreId, KeyId), Trace>,
    wishes: VecDeque<(StoreId, Op)>,
    /// Segments whose floor should rise, so that a trace can go.
    wanted: BTreeMap<SegmentId, LockRef>,
    /// Those of this round that were named already.
    named: BTreeSet<SegmentId>,
    tallies: BTreeMap<StoreId, Tallies>,
    /// The floors under which keys were removed here.
    floors: BTreeMap<StoreId, LockRef>,
    counts: UpkeepCounts,
}

/// A walk over all stores.
#[derive(Clone, Debug)]
struct Round {
    left: Vec<StoreId>,
    /// Heads up to here were seen in the last of `left`.
    from: Option<bytes::Bytes>,
    tallies: Tallies,
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
            walked: None,
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
    pub(super) fn floor(&self, store: StoreId, view: &dyn SegmentView) -> LockRef {
        let noted = self.floors.get(&store).copied().unwrap_or(LockRef(0));
        view.floor().max(noted)
    }

    /// Nothing is written into this store any more.
    pub(super) fn forget(&mut self, store: StoreId) {
        self.looks.retain(|_, look| look.at.store != store);
        self.suspects.retain(|(of, _), _| *of != store);
        self.traces.retain(|(of, _), _| *of != store);
        self.wishes.retain(|(of, _)| *of != store);
        self.tallies.remove(&store);
    }

    /// Whether the key has looked like this for as long as any operation may live; begins to
    /// count where it has not been seen like this.
    fn is_ripe(&mut self, at: &At, state: (Tag, Option<EventualTag>), env: &Env<'_>) -> bool {
        let place = (at.store, at.key.clone());
        let now = env.now.monotonic;
        match self.suspects.get(&place) {
            Some(known) if known.state == state => {
                now >= known.since + env.timing.lengthened(env.timing.request)
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

    /// Has a register swept, unless too much is wished for already.
    pub(super) fn wish_sweep(&mut self, at: &At) {
        if self.wishes.len() < WISHES_MAX {
            let key = at.key.clone();
            let writer = u128::from(self.rng.draw()) << 64 | u128::from(self.rng.draw() | 1);
            self.counts.settled += 1;
            self.wishes.push_back((at.store, Op::Sweep { key, writer }));
        }
    }

    fn send(&mut self, look: Look, asks: Vec<(NodeName, Ask)>, env: &mut Env<'_>) {
        let call = self.next_call;
        self.next_call = self.next_call.wrapping_add(1) | MARK | OWN;
        for (node, ask) in asks {
            env.fx.send(node, look.ask(call, ask));
        }
        self.looks.insert(call, look);
    }
}

impl Replica {
    /// Goes on with the walk; to be called once per beat.
    pub fn upkeep(&mut self, views: &dyn SegmentViews, env: &mut Env<'_>) {
        let late = |look: &Look| look.until <= env.now.monotonic;
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
                self.judge(look, &*view, env);
            }
        }
        if self.upkeep.round.is_none() {
            if env.now.monotonic < self.upkeep.next_round {
                return;
            }
            let first = self.upkeep.next_round == 0;
            self.upkeep.next_round = env.now.monotonic + env.timing.upkeep;
            if first {
                // A node that starts has other things to do.
                let soon = env.timing.upkeep.min(env.timing.request);
                self.upkeep.next_round = env.now.monotonic + soon;
                return;
            }
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
            Some(store) => self.walk(store, &*views.view(store), env),
            None => {
                self.upkeep.round = None;
                self.upkeep.walked = Some(env.now.monotonic);
                self.upkeep.counts.rounds += 1;
            }
        }
    }

    /// Looks at the next few keys of a store.
    fn walk(&mut self, store: StoreId, view: &dyn SegmentView, env: &mut Env<'_>) {
        let room = LOOKS_MAX
            .saturating_sub(self.upkeep.looks.len())
            .min(PER_BEAT);
        if room == 0 {
            return; // Looks stay open for long where a member is silent.
        }
        let Some(mut round) = self.upkeep.round.take() else {
            return;
        };
        let (from, to) = record::cells_of(store, CellRecord::Head);
        let from = round.from.take().unwrap_or(from);
        let open = matches!(self.stores.of(store), Ok(Status::Open));
        let heads = match open {
            true => env.memory.scan(&from, &to, room),
            false => Vec::new(),
        };
        let seen = heads.len();
        let heads: Vec<(bytes::Bytes, Result<Head, Void>)> = heads
            .into_iter()
            .map(|(record, head)| {
                let head = head.and_then(|bytes| decode::<Head>(&bytes).map_err(|_| Void));
                (record, head)
            })
            .collect();
        let stored = heads.iter().flat_map(|(_, head)| head).map(Head::stored);
        let stored = stored.sum::<u64>().max(SCRUBBED_PER_BEAT);
        for (record, head) in heads {
            round.from = Some(beyond(&record));
            let (Some(address), Some(key)) = (record::address_of(&record), record::key_of(&record))
            else {
                continue;
            };
            let at = At {
                store,
                address,
                key,
            };
            let scrubs = self.upkeep.rng.below(stored) < SCRUBBED_PER_BEAT;
            let head = head.and_then(|head| {
                let cell = Cell::replacing(env.memory, &at, head);
                match !scrubs || cell.is_sound() {
                    true => Ok(cell.head),
                    false => Err(Void),
                }
            });
            self.look_at(at, head, &mut round.tallies, view, env);
        }
        if seen < room {
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
        env: &mut Env<'_>,
    ) {
        if view.catalogue().is_dead(at.key.keyspace) && !env.planted.has(Bug::DeadCellsKept) {
            return self.purge(&at, head, env);
        }
        let (Some(terms), Some(members)) = (Terms::of(&at, self.name, view), view.members()) else {
            return;
        };
        let Ok(head) = head else {
            tallies.damaged(at.key.keyspace);
            self.repairs.begin(&at, terms.policy, Some(members), env);
            return;
        };
        let keyspace = at.key.keyspace;
        tallies.count(keyspace, &head, terms.policy, terms.shape, terms.seat);
        // Of a key that is in use only what is outlived matters, and only where there is more than
        // its last write.
        let used = is_used(&at.key, &terms, view);
        let outlived = head.versions().len() > 1 || head.hides_eventual();
        if (used && !outlived) || !view.writable() || members.len() < 2 {
            return;
        }
        let others = members.nodes().filter(|node| *node != self.name);
        let asks: Vec<(NodeName, Ask)> = others.map(|node| (node, Ask::Survey)).collect();
        let look = Look {
            at,
            members: members.clone(),
            until: env.now.monotonic + 2 * env.timing.retry,
            heard: BTreeMap::new(),
            parts: None,
        };
        self.upkeep.counts.looks += 1;
        self.upkeep.send(look, asks, env);
    }

    /// Removes all that is here of a key whose keyspace was deleted.
    fn purge(&mut self, at: &At, head: Result<Head, Void>, env: &mut Env<'_>) {
        let place = (at.store, at.key.clone());
        self.repairs.forget_key(&place);
        self.settled.forget_key(&place);
        self.upkeep.suspects.remove(&place);
        self.upkeep.traces.remove(&place);
        self.upkeep.counts.buried += 1;
        // A damaged head names nothing: whatever it may have named goes.
        let slots = if head.is_err() { 0..SLOTS } else { 0..0 };
        let mut cell = Cell::replacing(env.memory, at, head.unwrap_or_default());
        if !slots.is_empty() {
            cell.clear(env.fx, slots);
        }
        cell.bury(env.fx);
    }

    /// Takes another member's answer to a look.
    pub(super) fn on_upkeep_answer(
        &mut self,
        from: NodeName,
        call: u64,
        store: StoreId,
        answer: Answer,
        view: &dyn SegmentView,
        env: &mut Env<'_>,
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
                None => self.judge(look, view, env),
                Some(_) => self.give_rebuilt(look, view, env),
            }
        }
    }

    /// A quorum operation that a register of this store needs; its outcome does not matter. To be
    /// started by the node.
    pub fn take_wish(&mut self) -> Option<(StoreId, Op)> {
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

    /// When the last walk over all stores was completed, by the monotonic clock.
    pub fn walked(&self) -> Option<Micros> {
        self.upkeep.walked
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
