//! Moves what earlier stores of a segment have into the present one, in the background.
//!
//! **Problem.** A store whose seats have changed begins empty, and reads through to earlier ones.
//! These may go only when nothing is in them alone: not a key that nobody asks for, and not an
//! eventual put that a single member has taken.
//!
//! **Idea.** The segment's primary sees to both, for each earlier store.
//! * *Walk.* It lists the members of the store that it hears, a majority at least, in order, merges
//!   the lists, and reads every key that is in one: which carries the key over, with its fences,
//!   and marks it (V1 to V3). Sealed lists do not change, and what is complete is in one of them.
//!   At the end it has it decided that the store is closed.
//! * *Harvest.* Each member may have taken eventual puts that no other has. Every eventual value
//!   that it lists, sealed, is given to the present members until f + 1 of them hold it durably, or
//!   a newer one: then it is decided that this seat owes nothing. A member that is not heard is
//!   owed, for however many epochs; it is harvested when it returns.
//!
//! Where a store is closed and owed nothing by a member, as is chosen in the group's log, the
//! member deletes it: nobody has to say so, and nobody who believes something can.
//!
//! All of it is volatile. A new primary begins anew; marks make that cheap. What is under way at
//! once is bounded, in keys of a store and in bytes of a node, and what moves in a second by the
//! cluster's settings ([`Settings::move_rate`](crate::settings::Settings::move_rate)).

use super::carried::{Carried, Listed};
use super::logs::env;
use super::pace::{Load, Pace};
use super::{Here, Node, Step, topology};
use crate::base::{
    Address, Bug, Epoch, EventualTag, GroupId, KeyId, Micros, NodeName, Planted, Rng, Seat,
    SegmentId, Tag, View,
};
use crate::command::{Body, GroupCommand};
use crate::coordinator::Topology;
use crate::register::{self, Answer, Ask, Content, Op, OpEnd, Owner, StoreAsk, StoreId, reseated};
use crate::ring;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Marks the calls of a mover, in a bit that neither callers nor replicas use.
const MARK: u64 = 1 << 61;
/// Keys that are moved at once, for each store.
const AT_ONCE: usize = 8;
/// Keys in one list.
const LISTED: u32 = 256;
/// Keys that could not be moved are tried again, so many of them; beyond, the walk begins anew.
const FAILED_MAX: usize = 1_024;

/// What is under way.
#[derive(Debug)]
pub(super) struct Mover {
    calls: u64,
    jobs: BTreeMap<StoreId, Job>,
    next: Micros,
    pace: Pace,
    load: Load,
    /// How often what waited has gone on: another store comes first each time.
    turns: usize,
    /// How much has moved, for people.
    pub(super) carried: Carried,
}

/// What is done with one earlier store.
#[derive(Debug)]
struct Job {
    /// Its members.
    view: View,
    /// The present store.
    present: Epoch,
    task: Task,
}

#[derive(Debug)]
enum Task {
    Walk(Walk),
    Harvest(Harvest),
}

#[derive(Debug)]
struct Walk {
    lists: Vec<List>,
    moving: BTreeSet<KeyId>,
    failed: Vec<KeyId>,
    /// Those that failed are tried again from then on.
    pause: Micros,
}

#[derive(Debug)]
struct Harvest {
    list: List,
    gifts: BTreeMap<KeyId, Gift>,
}

/// The keys of one member's store, page by page.
#[derive(Debug)]
struct List {
    seat: Seat,
    after: Option<(Address, KeyId)>,
    keys: VecDeque<(Address, KeyId)>,
    more: bool,
    listed: Listed,
    /// The call under way, and when it is repeated.
    asked: Option<(u64, Micros)>,
}

/// An eventual value on its way.
#[derive(Debug, Default)]
struct Gift {
    call: u64,
    due: Micros,
    /// None: the member has not told it yet.
    value: Option<(EventualTag, Content)>,
    /// Present members that hold it, durably.
    held: BTreeSet<NodeName>,
}

impl List {
    fn of(seat: Seat) -> List {
        List {
            seat,
            after: None,
            keys: VecDeque::new(),
            more: true,
            listed: Listed::default(),
            asked: None,
        }
    }

    /// Whether its next key is known, or that there is none.
    fn is_ready(&self) -> bool {
        !self.keys.is_empty() || !self.more
    }

    fn is_over(&self) -> bool {
        self.keys.is_empty() && !self.more
    }

    /// About how many keys are still to be taken from it; none: that cannot be told yet.
    fn left(&self, bits: u8) -> Option<u64> {
        let to_come = match self.more {
            true => self.listed.to_come(bits)?,
            false => 0,
        };
        Some(to_come.saturating_add(self.keys.len() as u64))
    }

    fn take(&mut self, call: u64, keys: Vec<(Address, KeyId)>, more: bool) -> bool {
        if self.asked.is_none_or(|(asked, _)| asked != call) {
            return false;
        }
        self.asked = None;
        self.after = keys.last().cloned().or(self.after.take());
        self.more = more && !keys.is_empty();
        self.listed.add(&keys);
        self.keys.extend(keys);
        true
    }
}

impl Walk {
    /// The next key that some member lists, each once; none while a list is being fetched.
    fn next(&mut self) -> Option<KeyId> {
        if !self.lists.iter().all(List::is_ready) {
            return None;
        }
        let first = self.lists.iter().filter_map(|list| list.keys.front());
        let first = first.min().cloned()?;
        for list in &mut self.lists {
            if list.keys.front() == Some(&first) {
                list.keys.pop_front();
            }
        }
        Some(first.1)
    }

    /// About how many keys are still to move: what one list lacks another has.
    fn left(&self, bits: u8) -> Option<u64> {
        let lists = self.lists.iter().map(|list| list.left(bits));
        let most = lists.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
        Some(most.saturating_add((self.moving.len() + self.failed.len()) as u64))
    }

    fn is_over(&self) -> bool {
        let listed = self.lists.iter().all(List::is_over);
        listed && self.moving.is_empty() && self.failed.is_empty()
    }
}

impl Mover {
    /// Calls begin anywhere, so that what comes late and was asked in an earlier life of this node
    /// answers none.
    pub(super) fn new(seed: u64, value_most: usize, planted: Planted) -> Mover {
        let calls = match planted.has(Bug::MoverCallsReused) {
            true => 0,
            false => Rng::new(seed ^ MARK).draw() >> 4,
        };
        Mover {
            calls,
            jobs: BTreeMap::new(),
            next: 0,
            pace: Pace::default(),
            load: Load::new(value_most),
            turns: 0,
            carried: Carried::default(),
        }
    }

    /// Whether an answer under this call is for the mover.
    pub(super) fn owns(call: u64) -> bool {
        call >> 61 == 1
    }

    /// When what waits for the pace goes on.
    pub(super) fn wake(&self) -> Option<Micros> {
        self.pace.wake()
    }

    /// Keys on their way, of all stores.
    fn keys(&self) -> usize {
        let of = |job: &Job| match &job.task {
            Task::Walk(walk) => walk.moving.len(),
            Task::Harvest(_) => 0,
        };
        self.jobs.values().map(of).sum()
    }

    /// Gifts on their way, of all stores.
    fn gifts(&self) -> usize {
        let of = |job: &Job| match &job.task {
            Task::Walk(_) => 0,
            Task::Harvest(harvest) => harvest.gifts.len(),
        };
        self.jobs.values().map(of).sum()
    }

    /// Both.
    pub(super) fn under_way(&self) -> usize {
        self.keys() + self.gifts()
    }

    fn call(&mut self) -> u64 {
        self.calls = (self.calls + 1) & (MARK - 1);
        MARK | self.calls
    }
}

impl Here {
    /// The earlier stores that this node should move now: those of the segments that it leads.
    fn to_move(&self, step: &Step<'_>) -> Vec<(StoreId, Epoch)> {
        let mut found = Vec::new();
        for location in self.directory.locations() {
            for (segment, past) in location.all_pasts() {
                let leads = self.why_not_leased(segment, step).is_none();
                let room = self.segments.get(&segment).filter(|_| leads);
                let present = room.map(|room| room.place.store.epoch);
                if let Some(present) = present.filter(|present| past.epoch < *present) {
                    let epoch = past.epoch;
                    found.push((StoreId { segment, epoch }, present));
                }
            }
        }
        found
    }

    /// Whether a node was heard for the last time not longer ago than a lease lasts.
    pub(super) fn hears(&self, name: NodeName, step: &Step<'_>) -> bool {
        let heard = self.alive.get(&name);
        let lease = self.config.timing.lease;
        name == self.id.name || heard.is_some_and(|at| at + lease > step.now.monotonic)
    }

    /// A store of this node that its group has not moved from, or that this node owes it something
    /// of; with the epoch that follows and its members.
    fn owes(&self, store: StoreId) -> Option<(StoreId, Epoch, View)> {
        let location = self.directory.location_of(store.segment)?;
        let mut pasts = location.pasts(store.segment).iter();
        let past = pasts.find(|past| past.epoch == store.epoch)?;
        let view = location.view_of(store.epoch)?;
        let seat = view.seat_of(self.id.name)?;
        let wrong = self.config.planted.has(Bug::UnknownIsSealed);
        let owed = past.open || past.owed.contains(&seat) || wrong;
        owed.then_some((store, location.store(), view))
    }

    /// The members of a source whose lists are merged: those that are heard, if they are a
    /// majority. Every policy's quorums are majorities at least, and meet it.
    fn walkable(&self, view: &View, step: &Step<'_>) -> Option<Vec<List>> {
        let seats = (0..view.len() as u8).map(Seat);
        let heard = seats.filter(|seat| {
            let name = view.node_at(*seat);
            name.is_some_and(|name| self.hears(name, step))
        });
        let lists: Vec<List> = heard.map(List::of).collect();
        (lists.len() >= self.lists_of(view)).then_some(lists)
    }

    /// How many lists show whatever is complete.
    fn lists_of(&self, view: &View) -> usize {
        view.majority() - usize::from(self.config.planted.has(Bug::WalkBelowQuorum))
    }

    /// What is to be done next with an earlier store.
    fn task(&self, source: StoreId, view: &View, step: &Step<'_>) -> Option<Task> {
        let location = self.directory.location_of(source.segment)?;
        let mut pasts = location.pasts(source.segment).iter();
        let past = pasts.find(|past| past.epoch == source.epoch)?;
        if past.open {
            return Some(Task::Walk(Walk {
                lists: self.walkable(view, step)?,
                moving: BTreeSet::new(),
                failed: Vec::new(),
                pause: 0,
            }));
        }
        let heard = |seat: &&Seat| {
            let name = view.node_at(**seat);
            name.is_some_and(|name| self.hears(name, step))
        };
        let seat = past.owed.iter().find(heard)?;
        Some(Task::Harvest(Harvest {
            list: List::of(*seat),
            gifts: BTreeMap::new(),
        }))
    }

    /// What a member owes whose disk is lost will not come: a source from which all has moved is
    /// not kept for that.
    fn write_off(&self, source: StoreId, step: &mut Step<'_>) {
        let location = self.directory.location_of(source.segment);
        let Some((location, view)) = location.and_then(|at| Some((at, at.view_of(source.epoch)?)))
        else {
            return;
        };
        let pasts = location.pasts(source.segment).iter();
        let closed = pasts.filter(|past| past.epoch == source.epoch && !past.open);
        let owed = closed.flat_map(|past| past.owed.iter().copied());
        let lost = |seat: &Seat| view.node_at(*seat).is_some_and(|name| self.is_lost(name));
        let lost: Vec<Seat> = owed.filter(lost).collect();
        for seat in lost {
            let told = |group| ring::Message::Harvested {
                group,
                segment: source.segment,
                source: source.epoch,
                seat,
            };
            self.tell_group(source.segment, told, step);
        }
    }

    /// Tells the members of a segment's group what has been done; its leader has it decided.
    fn tell_group(
        &self,
        segment: SegmentId,
        told: impl Fn(GroupId) -> ring::Message,
        step: &mut Step<'_>,
    ) {
        if let Some(location) = self.directory.location_of(segment) {
            for node in location.group.view.nodes() {
                step.fx.send(node, told(location.id()));
            }
        }
    }

    /// Members of a segment's present store.
    fn present(&self, segment: SegmentId) -> Option<&View> {
        self.segments.get(&segment).map(|room| &room.place.view)
    }
}

impl Node {
    /// Once per beat: begins, goes on with, and gives up what moves.
    pub(super) fn moves_on(&mut self, step: &mut Step<'_>) {
        let wanted = self.here.to_move(step);
        let is_wanted = |source: &StoreId, job: &Job| wanted.contains(&(*source, job.present));
        self.mover.jobs.retain(|source, job| is_wanted(source, job));
        let again = self.mover.next <= step.now.monotonic;
        if again {
            self.mover.next = step.now.monotonic + self.here.config.timing.retry;
        }
        self.count_carried(&wanted, step);
        for (source, present) in wanted {
            if again && !self.here.config.planted.has(Bug::DebtOfTheLost) {
                self.here.write_off(source, step);
            }
            if !self.mover.jobs.contains_key(&source) {
                let location = self.here.directory.location_of(source.segment);
                let Some(view) = location.and_then(|at| at.view_of(source.epoch)) else {
                    continue;
                };
                let Some(task) = self.here.task(source, &view, step) else {
                    continue;
                };
                let job = Job {
                    view,
                    present,
                    task,
                };
                self.mover.jobs.insert(source, job);
            }
            self.move_on(source, again, step);
        }
    }

    /// Goes on with what waited for the pace.
    pub(super) fn moves_paced(&mut self, step: &mut Step<'_>) {
        if self.mover.pace.goes_on(step.now.monotonic) {
            let mut sources: Vec<StoreId> = self.mover.jobs.keys().copied().collect();
            self.mover.turns = self.mover.turns.wrapping_add(1);
            let first = self.mover.turns % sources.len().max(1);
            sources.rotate_left(first);
            for source in sources {
                self.move_on(source, false, step);
            }
        }
    }

    /// Whether another may begin to move beside `all`: as fast as the cluster's settings say, and
    /// within what may be under way at once. One of each kind always may: a gift that nobody takes
    /// keeps no key waiting. `own`: those of its kind.
    fn may_move(&mut self, own: usize, all: usize, step: &Step<'_>) -> bool {
        let (most, planted) = (
            self.here.config.limits.moving_bytes,
            self.here.config.planted,
        );
        let fits = own == 0 || self.mover.load.fits(all, most);
        if !fits && !planted.has(Bug::MovesUnbounded) {
            return false;
        }
        let rate = self.here.registry.settings().move_rate;
        self.mover.pace.takes(rate, step.now.monotonic) || planted.has(Bug::MovesUnpaced)
    }

    /// Takes stock of the stores whose keys are to move.
    fn count_carried(&mut self, wanted: &[(StoreId, Epoch)], step: &Step<'_>) {
        let is_open = |source: &StoreId| {
            let location = self.here.directory.location_of(source.segment);
            let pasts = location.map_or(&[][..], |at| at.pasts(source.segment));
            let mut pasts = pasts.iter();
            pasts.any(|past| past.epoch == source.epoch && past.open)
        };
        let bits = self.here.directory.segment_bits();
        // Who has led a segment for a while has moved what it has moved.
        let mut locations = self.here.directory.locations();
        if locations.all(|at| at.all_pasts().next().is_none()) {
            self.mover.carried = Carried::default();
            return;
        }
        let (mut stores, mut left) = (0, Some(0_u64));
        for (source, _) in wanted.iter().filter(|(source, _)| is_open(source)) {
            stores += 1;
            let walk = self.mover.jobs.get(source).map(|job| &job.task);
            let keys = match walk {
                Some(Task::Walk(walk)) => walk.left(bits),
                _ => None,
            };
            left = left.zip(keys).map(|(left, keys)| left.saturating_add(keys));
        }
        self.mover.carried.look(stores, left, step.now.monotonic);
    }

    /// Goes on with one store. Its end is told now, and again from time to time.
    fn move_on(&mut self, source: StoreId, tells: bool, step: &mut Step<'_>) {
        // Another may have done it, and what it has given on may be buried by now.
        self.drop_done(source);
        self.drop_silent(source, step);
        self.fetch_lists(source, step);
        let Some(job) = self.mover.jobs.get_mut(&source) else {
            return;
        };
        match &mut job.task {
            Task::Walk(_) => {
                self.walk(source, step);
                let job = self.mover.jobs.get(&source).map(|job| &job.task);
                if tells && matches!(job, Some(Task::Walk(walk)) if walk.is_over()) {
                    let (segment, source) = (source.segment, source.epoch);
                    let told = |group| ring::Message::Moved {
                        group,
                        segment,
                        source,
                    };
                    self.here.tell_group(segment, told, step);
                }
            }
            Task::Harvest(_) => {
                self.harvest(source, step);
                let job = self.mover.jobs.get(&source).map(|job| &job.task);
                if let Some(Task::Harvest(harvest)) = job
                    && tells
                    && harvest.list.is_over()
                    && harvest.gifts.is_empty()
                {
                    let (segment, source) = (source.segment, source.epoch);
                    let seat = harvest.list.seat;
                    let told = |group| ring::Message::Harvested {
                        group,
                        segment,
                        source,
                        seat,
                    };
                    self.here.tell_group(segment, told, step);
                }
            }
        }
    }

    /// A job whose end is decided makes room for the next one.
    fn drop_done(&mut self, source: StoreId) {
        let location = self.here.directory.location_of(source.segment);
        let mut pasts = location
            .map_or(&[][..], |at| at.pasts(source.segment))
            .iter();
        let past = pasts.find(|past| past.epoch == source.epoch);
        let goes_on = self
            .mover
            .jobs
            .get(&source)
            .is_some_and(|job| match &job.task {
                Task::Walk(_) => past.is_some_and(|past| past.open),
                Task::Harvest(harvest) => past.is_some_and(|p| p.owed.contains(&harvest.list.seat)),
            });
        if !goes_on {
            self.mover.jobs.remove(&source);
        }
    }

    /// Who is listed and is not heard any more is done without. The lists of the others are enough
    /// while they are of a majority; else the job begins anew when they are.
    fn drop_silent(&mut self, source: StoreId, step: &Step<'_>) {
        let Some(job) = self.mover.jobs.get_mut(&source) else {
            return;
        };
        let heard = |seat: Seat| {
            let name = job.view.node_at(seat);
            name.is_some_and(|name| self.here.hears(name, step))
        };
        let goes_on = match &mut job.task {
            // What it has not told yet it is asked for until it does.
            Task::Harvest(harvest) => {
                let untold = harvest.gifts.values().any(|gift| gift.value.is_none());
                let waits = untold && !self.here.config.planted.has(Bug::SilentAwaited);
                heard(harvest.list.seat) || harvest.list.is_over() && !waits
            }
            Task::Walk(walk) => {
                walk.lists.retain(|list| !list.more || heard(list.seat));
                walk.lists.len() >= self.here.lists_of(&job.view)
            }
        };
        if !goes_on {
            self.mover.jobs.remove(&source);
        }
    }

    fn fetch_lists(&mut self, source: StoreId, step: &mut Step<'_>) {
        let Some(mut job) = self.mover.jobs.remove(&source) else {
            return;
        };
        let (present, eventual) = (job.present, matches!(job.task, Task::Harvest(_)));
        let lists = match &mut job.task {
            Task::Walk(walk) => &mut walk.lists[..],
            Task::Harvest(harvest) => core::slice::from_mut(&mut harvest.list),
        };
        for list in lists {
            let waits = list.asked.is_some_and(|(_, due)| due > step.now.monotonic);
            if list.is_ready() || waits {
                continue;
            }
            let node = job.view.node_at(list.seat);
            // One that has not answered may never have heard that it was a member.
            if let (Some(_), Some(node)) = (list.asked, node)
                && let Some(location) = self.here.directory.location_of(source.segment)
            {
                self.here.tell_location(node, location, step);
            }
            let call = self.mover.call();
            list.asked = Some((call, step.now.monotonic + self.here.config.timing.retry));
            let ask = StoreAsk::List {
                next: present,
                after: list.after.clone(),
                limit: LISTED,
                eventual,
            };
            if let Some(node) = node {
                let message = register::Message::AskStore {
                    call,
                    store: source,
                    ask,
                };
                step.fx.send(node, message);
            }
        }
        self.mover.jobs.insert(source, job);
    }

    /// Begins to move the next keys. A key of a keyspace that was deleted has nowhere to go.
    fn walk(&mut self, source: StoreId, step: &mut Step<'_>) {
        loop {
            let may_move = self.may_move(self.mover.keys(), self.mover.under_way(), step);
            let Some(job) = self.mover.jobs.get_mut(&source) else {
                return;
            };
            let Task::Walk(walk) = &mut job.task else {
                return;
            };
            if walk.failed.len() > FAILED_MAX {
                self.mover.jobs.remove(&source);
                return;
            }
            if walk.moving.len() >= AT_ONCE || !may_move {
                return;
            }
            let retries = walk.pause <= step.now.monotonic && walk.moving.is_empty();
            let again = walk.failed.pop_if(|_| retries);
            let Some(key) = again.or_else(|| walk.next()) else {
                return;
            };
            if self.here.catalogue.is_dead(key.keyspace) {
                continue;
            }
            let known = topology::Known {
                here: &self.here,
                replica: &self.replica,
                carried: self.mover.carried,
                now: step.now,
            };
            match known.place(source.segment, &key) {
                Some(place) if place.store.epoch == job.present => {
                    walk.moving.insert(key.clone());
                    self.mover.pace.begin(step.now.monotonic);
                    let deadline = step.now.monotonic + self.here.config.timing.request;
                    let owner = Owner::Mover(source, key.clone());
                    let mut cx = env(&self.here.config, step);
                    self.caller.start(
                        Op::Read { key, moves: true },
                        owner,
                        &place,
                        deadline,
                        &mut cx,
                    );
                }
                _ => {
                    walk.failed.push(key);
                    walk.pause = step.now.monotonic + self.here.config.timing.retry;
                    return;
                }
            }
        }
    }

    /// A key of an earlier store has moved, or not.
    pub(super) fn key_moved(
        &mut self,
        source: StoreId,
        key: KeyId,
        outcome: &OpEnd,
        step: &mut Step<'_>,
    ) {
        let retry = self.here.config.timing.retry;
        if let Some(job) = self.mover.jobs.get_mut(&source)
            && let Task::Walk(walk) = &mut job.task
            && walk.moving.remove(&key)
        {
            if let OpEnd::Value { value, .. } = outcome {
                let bytes = value.as_ref().map_or(0, |value| value.len() as u64);
                self.mover.carried.add(bytes);
                self.mover.pace.moved(bytes, step.now.monotonic);
                self.mover.load.moved(bytes);
            } else {
                walk.failed.push(key);
                walk.pause = step.now.monotonic + retry;
            }
            self.move_on(source, true, step);
        }
    }

    /// Begins to give on the next eventual values, and gives again what was not answered.
    fn harvest(&mut self, source: StoreId, step: &mut Step<'_>) {
        let Some(mut job) = self.mover.jobs.remove(&source) else {
            return;
        };
        let Task::Harvest(harvest) = &mut job.task else {
            self.mover.jobs.insert(source, job);
            return;
        };
        // Those of this one are not among the mover's while it is in hand.
        let (keys, gifts) = (self.mover.keys(), self.mover.gifts());
        while harvest.gifts.len() < AT_ONCE
            && self.may_move(
                gifts + harvest.gifts.len(),
                keys + gifts + harvest.gifts.len(),
                step,
            )
        {
            let Some((_, key)) = harvest.list.keys.pop_front() else {
                break;
            };
            if !self.here.catalogue.is_dead(key.keyspace) {
                harvest.gifts.insert(key, Gift::default());
                self.mover.pace.begin(step.now.monotonic);
            }
        }
        let catalogue = &self.here.catalogue;
        harvest
            .gifts
            .retain(|key, _| !catalogue.is_dead(key.keyspace));
        let member = job.view.node_at(harvest.list.seat);
        let room = self.here.segments.get(&source.segment);
        if let (Some(member), Some(room)) = (member, room) {
            let (view, floor) = (&room.place.view, room.state.floor());
            for (key, gift) in &mut harvest.gifts {
                if gift.due > step.now.monotonic {
                    continue;
                }
                gift.due = step.now.monotonic + self.here.config.timing.retry;
                gift.call = self.mover.call();
                let call = gift.call;
                let ask = |store: StoreId, ask: Ask| register::Message::Ask {
                    call,
                    store,
                    key: key.clone(),
                    ask,
                };
                let Some((tag, content)) = &gift.value else {
                    let next = job.present;
                    let read = Ask::SealedRead { next, values: true };
                    step.fx.send(member, ask(source, read));
                    continue;
                };
                for (seat, node) in (0..).map(Seat).zip(view.nodes()) {
                    if !gift.held.contains(&node) {
                        let content = reseated(key, Tag::ZERO, content, seat);
                        let give = Ask::Harvest {
                            tag: *tag,
                            content,
                            floor,
                        };
                        step.fx.send(node, ask(room.place.store, give));
                    }
                }
            }
        }
        self.mover.jobs.insert(source, job);
    }

    /// An answer to what was asked here.
    pub(super) fn on_moving(
        &mut self,
        from: NodeName,
        (call, store): (u64, StoreId),
        answer: Answer,
        step: &mut Step<'_>,
    ) {
        let jobs = self.mover.jobs.iter_mut();
        let mut asked = jobs.filter(|(source, job)| {
            // What members of a store answer that is the present one no more counts for nothing.
            let room = self.here.segments.get(&source.segment);
            let present = job.present == store.epoch
                && source.segment == store.segment
                && room.is_some_and(|room| room.place.store.epoch == job.present);
            **source == store || present
        });
        let Some(source) = asked.find_map(|(source, job)| {
            let enough = |key: &KeyId| {
                let keyspace = self.here.catalogue.get(key.keyspace)?;
                let view = self.here.present(source.segment)?;
                let shape = keyspace.storage.shape(view.len()).ok()?;
                match self.here.config.planted.has(Bug::HarvestedAtOne) {
                    true => Some(1),
                    false => Some(shape.faults() + 1),
                }
            };
            job.take((from, call), &answer, enough, self.here.config.planted)
                .then_some(*source)
        }) else {
            return;
        };
        if let Answer::Cells {
            eventual: Some((_, Content::Value(value))),
            ..
        } = &answer
        {
            let bytes = value.bytes.len() as u64;
            self.mover.pace.moved(bytes, step.now.monotonic);
            self.mover.load.moved(bytes);
        }
        self.move_on(source, true, step);
    }

    /// Deletes what this node has of stores from which all has moved, and that it owes nothing of.
    pub(super) fn delete_moved(&mut self, step: &mut Step<'_>) {
        if !core::mem::take(&mut self.here.location_changed) {
            return;
        }
        let mut gone = Vec::new();
        for store in self.replica.kept(step.memory) {
            let Some(location) = self.here.directory.location_of(store.segment) else {
                continue;
            };
            let mut pasts = location.pasts(store.segment).iter();
            let done = match pasts.find(|past| past.epoch == store.epoch) {
                None => location.store() > store.epoch,
                Some(past) => {
                    let early = self.here.config.planted.has(Bug::DeletedUnharvested);
                    let view = location.view_of(store.epoch);
                    let seat = view.and_then(|view| view.seat_of(self.here.id.name));
                    !past.open && (early || seat.is_none_or(|seat| !past.owed.contains(&seat)))
                }
            };
            if done {
                gone.push((store, location.store()));
            }
        }
        let owed = self.replica.unknown().into_iter();
        let owed: Vec<(StoreId, Epoch, View)> = owed.filter_map(|at| self.here.owes(at)).collect();
        let mut cx = env(&self.here.config, step);
        for (store, next) in gone {
            self.replica.delete_own(store, next, &mut cx);
        }
        for (store, next, members) in owed {
            self.replica.seal_unknown(store, next, members, &mut cx);
        }
    }

    /// Has it decided, where this node leads the group, that a source is closed, or owed nothing by
    /// a seat.
    pub(super) fn on_moved(&mut self, group: GroupId, done: GroupCommand, step: &mut Step<'_>) {
        let room = self.here.groups.get(&group);
        let room = room.filter(|room| room.log.is_primary());
        let news = room.is_some_and(|room| {
            let mut location = room.state.location().clone();
            match &done {
                GroupCommand::Moved { segment, source } => location.close(*segment, *source),
                GroupCommand::Harvested {
                    segment,
                    source,
                    seat,
                } => location.harvest(*segment, *source, *seat),
                _ => false,
            }
        });
        if news {
            self.here.propose_own(group, Body::Group(done), step);
        }
    }
}

impl Job {
    /// Takes an answer; whether it was one to this job. `enough`: members that must hold a value of
    /// a key before its giver owes it no more.
    fn take(
        &mut self,
        (from, call): (NodeName, u64),
        answer: &Answer,
        enough: impl Fn(&KeyId) -> Option<usize>,
        planted: Planted,
    ) -> bool {
        let lists = match &mut self.task {
            Task::Walk(walk) => &mut walk.lists[..],
            Task::Harvest(harvest) => core::slice::from_mut(&mut harvest.list),
        };
        if let Answer::Listed { keys, more } = answer {
            let own = |list: &&mut List| self.view.node_at(list.seat) == Some(from);
            let list = lists.iter_mut().find(own);
            return list.is_some_and(|list| list.take(call, keys.clone(), *more));
        }
        let Task::Harvest(harvest) = &mut self.task else {
            return false;
        };
        let mut gifts = harvest.gifts.iter_mut();
        let Some((key, gift)) = gifts.find(|(_, gift)| gift.call == call) else {
            return false;
        };
        let key = key.clone();
        let done = match answer {
            Answer::Cells { eventual: None, .. } if gift.value.is_none() => true,
            // Damaged: what was here alone is lost, as with a disk.
            Answer::Void if gift.value.is_none() => !planted.has(Bug::VoidGiftAwaited),
            Answer::Cells { eventual, .. } if gift.value.is_none() => {
                gift.value.clone_from(eventual);
                gift.due = 0;
                false
            }
            Answer::EventualStored { .. } => {
                gift.held.insert(from);
                enough(&key).is_some_and(|enough| gift.held.len() >= enough)
            }
            _ => false,
        };
        if done {
            harvest.gifts.remove(&key);
        }
        true
    }
}
