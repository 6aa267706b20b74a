//! The replica: one member's answers. Beside its durable records it keeps in memory a clock for
//! eventual tags, counters, repairs under way, and which stores are not open.

use super::cell::{At, Cell, Head, Trace};
use super::message::{Answer, Ask, Content, Holder, Marked, Message, Moved, StoreId, Version};
use super::once::{PutName, Taken};
use super::op::Source;
use super::repair::Repairs;
use super::settled::Settled;
use super::status::{AsSealed, Stores, once_sealed};
use super::upkeep::Upkeep;
use super::{HolderState, SegmentView, is_physical, is_synch, policy};
use crate::base::tag::GENERATION_SPAN;
use crate::base::{
    Address, BOUND_MAX, Bug, Epoch, EventualTag, Kept, KeyId, Keyspace, LockRef, Micros, NodeName,
    Now, Purpose, Seat, Tag, View, WALL_BOUND,
};
use crate::io::{Env, Memory, Void, When};
use crate::request::Inspection;
use crate::wire::record::{self, CellRecord};
use crate::wire::{decode, encode};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Puts of one section that a replica keeps before it knows that any of them is final.
pub(super) const PIPELINED_MAX: usize = 64;
/// Writes of a register that a replica takes although it is full, each for being the first of all
/// that are unfinished.
const FIRSTS_MAX: usize = PIPELINED_MAX;
/// Sweeps of one key that have died one after the other, for each of which there is room.
pub(super) const SWEEPS_MAX: usize = 32;

/// What a replica has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answers that were void because a record was damaged.
    pub voids: u64,
    /// Damaged keys learnt again from the others.
    pub repairs: u64,
    /// Asks ignored: a keyspace that this node's catalogue does not have yet, or not any more.
    pub ignored_keyspace: u64,
    /// Asks ignored: a key or value over the limit.
    pub ignored_limit: u64,
    /// Asks ignored: not for a keyspace of this purpose.
    pub ignored_purpose: u64,
}

/// A register replica: answers for every store of its node.
#[derive(Clone, Debug)]
pub struct Replica {
    pub(super) name: NodeName,
    /// The last clock given to an eventual put by this process.
    clock: u64,
    /// Distinguishes eventual tags of two lives of this node, should the wall clock go back
    /// between.
    counter: u32,
    pub(super) repairs: Repairs,
    pub(super) settled: Settled,
    pub(super) upkeep: Upkeep,
    pub(super) stores: Stores,
    pub(super) counts: Counts,
}

/// What one ask is answered from.
pub(super) struct Case<'a, 'b> {
    pub(super) view: &'a dyn SegmentView,
    pub(super) at: &'a At,
    /// Which versions the keyspace keeps here.
    pub(super) kept: Kept,
    /// The highest tag of the key that is known to be final, if any.
    pub(super) settled: Tag,
    /// Refs up to here are past, by what is applied or was noted here (F8f: below, a delete
    /// leaves no trace).
    pub(super) floor: LockRef,
    pub(super) env: &'a mut Env<'b>,
}

impl Replica {
    /// The replica of node `name` over its durable memory; `seed` differs with every start.
    pub fn recover(name: NodeName, seed: u64, memory: &dyn Memory) -> Replica {
        let mut stores = Stores::recover(memory);
        let upkeep = Upkeep::recover(name, seed, memory, &mut stores);
        Replica {
            name,
            clock: 0,
            counter: seed as u32,
            repairs: Repairs::new(seed),
            settled: Settled::default(),
            upkeep,
            stores,
            counts: Counts::default(),
        }
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether an answer under this call belongs to [`Replica::on_answer`], not to the caller.
    pub fn owns(call: u64) -> bool {
        Repairs::owns(call)
    }

    /// When [`Replica::tick`] has something to do.
    pub fn wake(&self) -> Option<Micros> {
        let wishes = [self.repairs.wake(), self.settled.wake()];
        wishes.into_iter().flatten().min()
    }

    /// Takes the name of an eventual put, durably, before anything comes of it (G16). Where it was
    /// taken before, this says so to the sender, and nothing more comes of the ask. Each arrival is
    /// given here first, and then, perhaps later, to [`Replica::on_ask`]. A full disk takes a name,
    /// too: without it a refusal would not be final.
    pub fn takes(
        &mut self,
        from: NodeName,
        (call, store): (u64, StoreId),
        ask: &Ask,
        view: &dyn SegmentView,
        env: &mut Env<'_>,
    ) -> bool {
        let Ask::EventualPut { name, .. } = ask else {
            return true;
        };
        let late = self.take(from, *name, env);
        if let Some(answer) = late.clone() {
            self.tell((from, when_told(ask, env)), call, store, answer, view, env);
        }
        late.is_none()
    }

    /// Answers one ask, whose name was taken if it has one. `view` is of the ask's segment and
    /// epoch.
    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of one message, and where it arrived"
    )]
    pub fn on_ask(
        &mut self,
        from: NodeName,
        call: u64,
        store: StoreId,
        key: KeyId,
        ask: Ask,
        view: &dyn SegmentView,
        env: &mut Env<'_>,
    ) {
        let past = self.stores.view(store);
        let present = view.members().is_some();
        let view = &AsSealed::new(view, past.as_ref());
        let refusal = self.refusal(store, &ask, view, env);
        // Nothing newer is known here, and the next epoch may not have begun.
        let still = matches!(
            (&ask, &refusal),
            (Ask::EventualGet, Some(Answer::Sealed { .. }))
        );
        let refusal = refusal.filter(|_| !(still && present));
        let refusal = refusal.map(|answer| (answer, when_told(&ask, env)));
        let answer = refusal.or_else(|| self.answer(store, key, ask, view, env));
        if let Some((answer, when)) = answer {
            self.tell((from, when), call, store, answer, view, env);
        }
    }

    /// The answer to a name that was taken before.
    fn take(&mut self, from: NodeName, name: PutName, env: &mut Env<'_>) -> Option<Answer> {
        if env.planted.has(Bug::EventualPutRepeated) {
            return None;
        }
        let record = record::taken(from);
        let known = env.memory.get(&record).and_then(|bytes| match bytes {
            None => Ok(Taken::default()),
            Some(bytes) => decode(&bytes).map_err(|_| Void),
        });
        let mut taken = known.unwrap_or_else(|Void| {
            self.counts.voids += 1;
            Taken::anything(name.life, env.now.wall)
        });
        let new = taken.take(name);
        if new || known.is_err() {
            env.fx.put(record, encode(&taken));
        }
        (!new).then_some(Answer::Late { life: taken.life })
    }

    fn answer(
        &mut self,
        store: StoreId,
        key: KeyId,
        ask: Ask,
        view: &dyn SegmentView,
        env: &mut Env<'_>,
    ) -> Option<(Answer, When)> {
        let Some(keyspace) = served(&key, view, env) else {
            // Of one that was deleted nothing comes back, however late it is asked for.
            self.counts.ignored_keyspace += 1;
            return None;
        };
        if !is_bounded(&key, &ask, env) {
            self.counts.ignored_limit += 1;
            return None;
        }
        if !suits(&ask, keyspace.purpose, &key) {
            self.counts.ignored_purpose += 1;
            return None;
        }
        let kept = match keyspace.storage.shape(view.members().map_or(0, View::len)) {
            Ok(shape) => shape.kept,
            Err(_) => {
                self.counts.ignored_keyspace += 1;
                return None;
            }
        };
        let address = Address::of(key.keyspace, keyspace.tag_rule, &key.key);
        let at = At {
            store,
            address,
            key,
        };
        if let Ask::Settle { tag } = ask {
            if keyspace.purpose == Purpose::Sections
                && let Ok(mut cell) = Cell::load(env.memory, &at)
            {
                cell.drop_outranked(env.fx, tag);
            }
            if let Kept::FromFinal(_) = kept {
                self.settled.note(&at, tag, env);
            }
            return None;
        }
        let settled = self.settled.known(&at);
        let floor = self.upkeep.floor(store, view);
        let mut case = Case {
            view,
            at: &at,
            kept,
            settled,
            floor,
            env,
        };
        let spread = matches!(
            ask,
            Ask::EventualSpread { .. } | Ask::RepairEventual { .. } | Ask::Bury { .. }
        );
        let reads = matches!(ask, Ask::Read { .. } | Ask::EventualGet);
        let other = when_told(&ask, case.env);
        match self.dispatch(ask, &mut case) {
            Ok(_) if spread => None,
            Ok(answer) if reads => {
                let when = read_of(&at, &answer, env);
                Some((answer, when))
            }
            Ok(answer) => Some((answer, other)),
            Err(Void) => {
                self.counts.voids += 1;
                if !view.is_before() {
                    let members = view.members();
                    self.repairs.begin(&at, keyspace.storage, members, env);
                }
                (!spread).then_some((Answer::Void, other))
            }
        }
    }

    fn dispatch(&mut self, ask: Ask, case: &mut Case<'_, '_>) -> Result<Answer, Void> {
        let cell = Cell::load(case.env.memory, case.at)?;
        match ask {
            Ask::Read {
                holder,
                entering,
                fence,
                eventual,
                values,
            } => {
                let holder = holder.filter(|_| !case.env.planted.has(Bug::PastReadAnswered));
                let asks = if entering { Asks::Grant } else { Asks::Get };
                let refused = holder.and_then(|holder| case.refused(&cell, holder, asks));
                match refused {
                    Some(answer) => Ok(answer),
                    None => case.read(cell, fence, eventual, values),
                }
            }
            Ask::Store {
                tag,
                origin,
                content,
            } => case.store(cell, (tag, origin), &content),
            Ask::Carry {
                tag,
                origin,
                fence,
                content,
            } => case.carry(cell, (tag, origin), fence, &content),
            Ask::EventualGet => self.eventual_get(&cell, case),
            Ask::EventualPut { content, .. } => self.eventual_put(cell, &content, case),
            Ask::EventualSpread { tag, content } => {
                let lax = case.env.planted.has(Bug::SpreadWithoutFloor);
                if tag.applied >= case.floor.0 || lax {
                    case.eventual_spread(cell, tag, &content);
                }
                Ok(Answer::EventualStored { tag })
            }
            Ask::Harvest {
                tag,
                content,
                floor,
            } => Ok(case.harvest(cell, tag, &content, floor)),
            Ask::Survey | Ask::Repair { .. } | Ask::RepairEventual { .. } | Ask::Bury { .. } => {
                self.upkeep.answer(cell, ask, case)
            }
            Ask::SealedRead { values, .. } => case.read(cell, None, true, values),
            Ask::MarkMoved { tag } => Ok(case.mark_moved(cell, tag)),
            Ask::Settle { .. } => unreachable!("taken before"),
            Ask::Inspect => Ok(Answer::Inspection(Inspection {
                node: self.name,
                segment: case.at.store.segment,
                epoch: case.at.store.epoch,
                tag: cell.head.tag(),
                fence: cell.head.fence,
                bytes: cell.head.length(),
                eventual: cell.head.eventual,
                applied: case.view.applied(),
            })),
        }
    }

    /// The newest that this replica has of the key, in this store and in its sources. One that was
    /// no member of a source cannot tell of a key that may not have moved.
    fn eventual_get(&self, cell: &Cell<'_>, case: &Case<'_, '_>) -> Result<Answer, Void> {
        let sources = case.view.sources();
        let member = |source: &Source| source.view.seat_of(self.name).is_some();
        // A mark may come where the value has not.
        let moved = cell
            .head
            .moved
            .is_some_and(|mark| mark <= cell.head.tag() || case.env.planted.has(Bug::MarkTellsAll));
        if !moved && !sources.iter().all(member) {
            return Ok(Answer::Unmoved);
        }
        let ats = self.older(case);
        let older = ats.iter().map(|at| Cell::load(case.env.memory, at));
        let older = older.collect::<Result<Vec<_>, Void>>()?;
        let cells = || core::iter::once(cell).chain(&older);
        let critical = cells().max_by_key(|cell| cell.head.tag()).unwrap_or(cell);
        let newest = cells()
            .max_by_key(|cell| cell.head.eventual)
            .unwrap_or(cell);
        let newer = newest.head.eventual > Some(critical.head.origin());
        let eventual = if newer { newest.eventual()? } else { None };
        let content = match eventual {
            Some((_, content)) => content,
            None => critical.critical()?,
        };
        Ok(Answer::EventualValue { content })
    }

    /// Where the key is in the sources of which this replica is a member, while it may be there
    /// alone.
    fn older(&self, case: &Case<'_, '_>) -> Vec<At> {
        let sources = case.view.sources().iter();
        let own = sources.filter(|source| source.view.seat_of(self.name).is_some());
        let at = |source: &Source| At {
            store: source.store,
            ..case.at.clone()
        };
        own.map(at).collect()
    }

    /// Accepts an eventual put, or refuses it because the key is or may be locked (F6: no holder
    /// finds another value).
    ///
    /// The tag's `applied` is what this replica has applied, or what the replica had that accepted
    /// the eventual value which is here: that one vouches that every section up to there was over.
    fn eventual_put(
        &mut self,
        mut cell: Cell<'_>,
        content: &Content,
        case: &mut Case<'_, '_>,
    ) -> Result<Answer, Void> {
        if !case.view.writable() {
            return Ok(Answer::DiskFull);
        }
        let mut before = cell.head.eventual.unwrap_or_default();
        let mut entered = cell.head.tag().max(cell.head.fence).lock_ref;
        for at in self.older(case) {
            let Head {
                eventual, fence, ..
            } = Cell::load(case.env.memory, &at)?.head;
            before = before.max(eventual.unwrap_or_default());
            entered = entered.max(fence.lock_ref);
        }
        let applied = case.view.applied().max(before.applied);
        let unsafe_cell = case.env.planted.has(Bug::EventualPutInCriticalCell);
        if case.view.busy(&case.at.key) || (entered.0 > applied && !unsafe_cell) {
            return Ok(Answer::Locked);
        }
        if applied < case.floor.0 {
            // Behind what it had applied before it started again: another member takes the put.
            return Ok(Answer::Elsewhere);
        }
        self.clock = case
            .env
            .now
            .wall
            .max(self.clock + 1)
            .max(before.clock.saturating_add(1));
        self.counter = self.counter.wrapping_add(1);
        let tag = EventualTag {
            applied,
            clock: self.clock,
            node: self.name,
            counter: self.counter,
        };
        if unsafe_cell {
            case.put_in_critical_cell(&mut cell, tag, content);
        } else {
            cell.put_eventual(case.env.fx, tag, content);
        }
        for (i, member) in case
            .view
            .members()
            .iter()
            .flat_map(|m| m.seats.iter().enumerate())
        {
            if member.name != self.name {
                let key = &case.at.key;
                let content = policy::reseated(key, Tag::ZERO, content, Seat(i as u8));
                let message = Message::Ask {
                    call: 0,
                    store: case.at.store,
                    key: case.at.key.clone(),
                    ask: Ask::EventualSpread { tag, content },
                };
                case.env.fx.promise(member.name, message);
            }
        }
        Ok(Answer::EventualStored { tag })
    }
}

/// The keyspace of a key that is answered for.
fn served<'a>(key: &KeyId, view: &'a dyn SegmentView, env: &Env<'_>) -> Option<&'a Keyspace> {
    let lax = env.planted.has(Bug::DeadKeyspaceServed);
    match lax && view.catalogue().is_dead(key.keyspace) {
        true => view.keyspace(Keyspace::SECTIONS),
        false => view.keyspace(key.keyspace),
    }
}

/// For what a holder's ask is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Get,
    /// A read of the primary that grants the section: its ref may still wait, as far as is applied.
    Grant,
    Put,
}

impl Case<'_, '_> {
    /// Whether a holder's ask is refused. A fence or tag of a later section proves that the holder
    /// is past, whatever is applied here (F1: late puts are refused).
    fn refused(&self, cell: &Cell<'_>, holder: Holder, asks: Asks) -> Option<Answer> {
        if self.env.planted.has(Bug::PastWriteAccepted) {
            return None;
        }
        let known = cell.head.tag().max(cell.head.fence);
        if Holder::of(known).rank() > holder.rank() || holder.lock_ref <= self.floor {
            return Some(self.past(known));
        }
        match self.view.holder_state(&self.at.key, holder) {
            HolderState::Head | HolderState::Unknown => None,
            HolderState::Leaving
                if asks == Asks::Put && !self.env.planted.has(Bug::LeavingPutRefused) =>
            {
                None
            }
            HolderState::Past | HolderState::Leaving => Some(Answer::Past { tag: known }),
            HolderState::Waiting if asks == Asks::Grant => None,
            HolderState::Waiting => Some(Answer::NotHolder),
        }
    }

    /// A ref up to the floor is past, whatever is known of the key.
    pub(super) fn past(&self, known: Tag) -> Answer {
        let floor = Tag {
            lock_ref: self.floor,
            ..Tag::ZERO
        };
        let tag = known.max(floor);
        Answer::Past { tag }
    }

    fn read(
        &mut self,
        mut cell: Cell<'_>,
        fence: Option<Tag>,
        eventual: bool,
        values: bool,
    ) -> Result<Answer, Void> {
        // Contents first: a void answer must not leave a fence behind that nobody counts on.
        let mut versions = Vec::with_capacity(cell.head.versions().len());
        for trace in cell.head.versions() {
            let content = match values {
                true => match cell.content_of(trace) {
                    Err(Void) if self.env.planted.has(Bug::CorruptCountsAsMissing) => continue,
                    content => content?,
                },
                false => Content::Absent,
            };
            versions.push(Version {
                tag: trace.tag,
                origin: trace.origin,
                content,
            });
        }
        let second = if eventual { cell.eventual()? } else { None };
        let before = cell.head.fence;
        if let Some(fence) = fence {
            let known = cell.head.tag().max(before);
            if fence < known {
                return Ok(Answer::Past { tag: known });
            }
            if fence.lock_ref > LockRef(0) && fence.lock_ref <= self.floor {
                return Ok(self.past(known));
            }
            // Whatever is stored must lie above a fence: one that is ahead is as bad as a tag.
            if is_ahead(fence, self.env.now) {
                return Ok(Answer::ClockSkew);
            }
            let fence = if self.env.planted.has(Bug::FenceOnRefOnly) {
                Tag {
                    lock_ref: fence.lock_ref,
                    ..Tag::ZERO
                }
            } else {
                fence
            };
            if fence > before {
                if !self.view.writable() {
                    return Ok(Answer::DiskFull);
                }
                cell.head.fence = fence;
                cell.put_head(self.env.fx);
            }
        }
        Ok(Answer::Cells {
            versions,
            settled: self.settled.max(cell.head.dropped),
            dropped: cell.head.dropped,
            fence: before,
            passed: self.env.now.interval.map_or(0, |i| i.earliest),
            eventual: second,
            moved: self.moved(&cell),
        })
    }

    fn moved(&self, cell: &Cell<'_>) -> Moved {
        let sources = self.view.sources().iter().map(|source| source.store.epoch);
        let sources: Vec<Epoch> = sources.collect();
        match sources.is_empty() {
            true => Moved::All,
            false => Moved::Marked(Box::new(Marked {
                sources,
                mark: cell.head.moved,
            })),
        }
    }

    /// Takes over what an earlier epoch holds. Neither the queue nor the floor judges it: it was
    /// written before this epoch began. When no source is open any more it comes too late, and may
    /// be of a key whose delete was buried since.
    fn carry(
        &mut self,
        mut cell: Cell<'_>,
        (tag, origin): (Tag, EventualTag),
        fence: Tag,
        content: &Content,
    ) -> Result<Answer, Void> {
        if self.view.sources().is_empty() {
            return Ok(Answer::Closed);
        }
        let known = cell.head.version(tag).copied();
        let (highest, promised) = (cell.head.tag(), cell.head.fence);
        if known.is_none() && tag < promised && tag != Tag::ZERO {
            return Ok(Answer::Past { tag: promised });
        }
        if is_ahead(tag.max(fence), self.env.now) {
            return Ok(Answer::ClockSkew);
        }
        if !self.view.writable() {
            return Ok(Answer::DiskFull);
        }
        cell.head.fence = promised.max(fence);
        if fence > promised {
            cell.put_head(self.env.fx);
        }
        match known {
            Some(known) => self.store_again(cell, &known, content),
            None if tag == Tag::ZERO => Ok(Answer::Stored),
            None if tag > highest || self.keeps_below(&cell, tag) => {
                self.put(cell, (tag, origin), content)
            }
            None => Ok(Answer::Outranked { tag: highest }),
        }
    }

    /// The mark only rises. One that is lost with a damaged head costs a reading through. Without
    /// an open source it means nothing, and is not kept.
    fn mark_moved(&mut self, mut cell: Cell<'_>, tag: Tag) -> Answer {
        if self.view.sources().is_empty() {
            return Answer::Marked;
        }
        if cell.head.moved.is_none_or(|known| known < tag) {
            if !self.view.writable() {
                return Answer::DiskFull;
            }
            cell.head.moved = Some(tag);
            cell.put_head(self.env.fx);
        }
        Answer::Marked
    }

    fn store(
        &mut self,
        cell: Cell<'_>,
        (tag, origin): (Tag, EventualTag),
        content: &Content,
    ) -> Result<Answer, Void> {
        let sections = tag.lock_ref > LockRef(0);
        let lax = self.env.planted.has(Bug::PastWriteAccepted);
        if let Some(refusal) = self.barred(&cell, tag, lax) {
            return Ok(refusal);
        }
        if sections
            && !lax
            && let Some(refusal) = self.store_refused(&cell, tag)
        {
            return Ok(refusal);
        }
        let highest = cell.head.tag();
        if let Some(known) = cell.head.version(tag).copied() {
            return self.store_again(cell, &known, content);
        }
        if tag > highest {
            return self.put(cell, (tag, origin), content);
        }
        // Below the highest tag here. In a register keyspace the higher write simply wins; in a
        // section the writer must learn that its number may be an old one. Where versions are kept
        // until one is final, this one is kept too: its write may need it to complete, and the
        // higher one may never (F8: a version goes below a final one alone).
        if is_synch(tag) && sections && !lax {
            let stale_may_grant = self.env.planted.has(Bug::FenceOnRefOnly);
            return Ok(if stale_may_grant && tag.lock_ref == highest.lock_ref {
                Answer::Stored
            } else {
                Answer::Past { tag: highest }
            });
        }
        // The stored tag is higher than the new one, and lies in the future by every clock within
        // its bound: no reader would ever see what this write stores.
        if is_physical(tag) && is_ahead(highest, self.env.now) {
            return Ok(Answer::ClockSkew);
        }
        if self.keeps_below(&cell, tag) {
            let stored = self.put(cell, (tag, origin), content)?;
            if stored != Answer::Stored {
                return Ok(stored);
            }
        }
        Ok(match sections && !lax {
            true => Answer::Outranked { tag: highest },
            false => Answer::Stored,
        })
    }

    /// Whether a version below the highest is kept here.
    fn keeps_below(&self, cell: &Cell<'_>, tag: Tag) -> bool {
        match self.kept {
            Kept::Highest => false,
            Kept::Several(count) => {
                let above = cell.head.versions().iter().filter(|v| v.tag > tag);
                above.count() < count
            }
            Kept::FromFinal(_) => tag > cell.head.dropped,
        }
    }

    /// What is never stored, whoever sends it: what lies below the fence, unless `lax`, a planted
    /// bug, and a time that cannot have come.
    pub(super) fn barred(&self, cell: &Cell<'_>, tag: Tag, lax: bool) -> Option<Answer> {
        let fence = cell.head.fence;
        if tag < fence && !lax {
            return Some(Answer::Past { tag: fence });
        }
        is_ahead(tag, self.env.now).then_some(Answer::ClockSkew)
    }

    /// The rules of section keyspaces: a section that is past stores nothing; a synch needs no
    /// holder, for its section has not begun.
    fn store_refused(&self, cell: &Cell<'_>, tag: Tag) -> Option<Answer> {
        let holder = Holder::of(tag);
        if is_synch(tag) {
            let highest = cell.head.tag();
            let later = Holder::of(highest).rank() > holder.rank();
            return (later || tag.lock_ref <= self.floor).then(|| self.past(highest));
        }
        self.refused(cell, holder, Asks::Put)
    }

    /// A tag names one value: storing it again changes nothing, unless what is here is damaged.
    pub(super) fn store_again(
        &mut self,
        cell: Cell<'_>,
        known: &Trace,
        content: &Content,
    ) -> Result<Answer, Void> {
        let (tag, origin) = (known.tag, known.origin);
        let clash = policy::digest_of(content) != known.digest;
        let stays = self.env.planted.has(Bug::UndecodableStays);
        if clash && !stays && known.digest == policy::digest_of(&Content::Undecodable) {
            // Its write goes on in this store, or another has heard more parts.
            return self.put(cell, (tag, origin), content);
        }
        if clash && self.env.planted.has(Bug::TwoValuesUnderOneTag) {
            return self.put(cell, (tag, origin), content);
        }
        if clash {
            return Ok(Answer::Outranked { tag });
        }
        match cell.content_of(known) {
            Ok(_) => Ok(Answer::Stored),
            Err(Void) => self.put(cell, (tag, origin), content),
        }
    }

    pub(super) fn put(
        &mut self,
        mut cell: Cell<'_>,
        at: (Tag, EventualTag),
        content: &Content,
    ) -> Result<Answer, Void> {
        if !self.view.writable() {
            return Ok(Answer::DiskFull);
        }
        if let Kept::FromFinal(most) = self.kept {
            let room = room(most, at.0, cell.head.fence) + self.room_for_first(&cell, at.0);
            let full = |cell: &Cell<'_>| cell.head.versions().len() >= room;
            if full(&cell) {
                // No room for the grace time: what is below a final tag goes now.
                let notes = super::settled::notes(self.env);
                cell.drop_below(self.env.fx, self.settled, notes);
            }
            if full(&cell) && cell.head.version(at.0).is_none() {
                return Ok(Answer::Busy);
            }
        }
        cell.put_version(self.env.fx, at, content, self.kept);
        if self.env.planted.has(Bug::PutDropsEventual) {
            cell.drop_outranked(self.env.fx, at.0);
        }
        Ok(Answer::Stored)
    }

    /// Room for the write of a register whose tag is below those of all unfinished ones here.
    ///
    /// Writers that fill different members would wait for each other, and a sweep, which alone ends
    /// that, fences them all out. So there is an order in which they go: the first of those that
    /// live finds room at every member, unless dead ones are before it, ends, and lets the next one
    /// be the first (G51). A writer that comes takes a tag above those that it finds, so that
    /// hardly ever one comes before those that wait.
    fn room_for_first(&self, cell: &Cell<'_>, tag: Tag) -> usize {
        let settled = self.settled.max(cell.head.dropped);
        let unfinished = cell.head.versions().iter().filter(|v| v.tag > settled);
        // A replica does not remember that a tag is final if it has nothing below: the lowest may
        // be.
        let forgotten = unfinished.clone().count() == cell.head.versions().len();
        let mut unfinished = unfinished.skip(usize::from(forgotten));
        let first = tag.lock_ref == LockRef(0) && unfinished.all(|v| tag < v.tag);
        usize::from(first && !self.env.planted.has(Bug::CrowdWithoutOrder)) * FIRSTS_MAX
    }

    pub(super) fn eventual_spread(
        &mut self,
        mut cell: Cell<'_>,
        tag: EventualTag,
        content: &Content,
    ) {
        if !self.view.writable() {
            return;
        }
        if self.env.planted.has(Bug::EventualPutInCriticalCell) {
            self.put_in_critical_cell(&mut cell, tag, content);
            return;
        }
        let newer = cell.head.eventual.is_none_or(|known| known < tag);
        if newer && !cell.head.outranks(tag) {
            cell.put_eventual(self.env.fx, tag, content);
        }
    }

    /// Takes an eventual value of an earlier epoch. A write that hides it does not keep it out: who
    /// deletes the earlier store counts on it, whatever becomes of the write.
    fn harvest(
        &mut self,
        mut cell: Cell<'_>,
        tag: EventualTag,
        content: &Content,
        floor: LockRef,
    ) -> Answer {
        if tag.applied < self.floor.0 && floor < self.floor {
            let known = cell.head.tag().max(cell.head.fence);
            return self.past(known);
        }
        if !self.view.writable() {
            return Answer::DiskFull;
        }
        if cell.head.eventual.is_none_or(|known| known < tag) {
            cell.put_eventual(self.env.fx, tag, content);
        }
        Answer::EventualStored { tag }
    }

    /// The planted bug: one cell for both kinds of put, with a tag above the last section's.
    fn put_in_critical_cell(&mut self, cell: &mut Cell<'_>, tag: EventualTag, content: &Content) {
        let tag = Tag {
            lock_ref: LockRef(tag.applied).min(cell.head.tag().lock_ref),
            sequence: GENERATION_SPAN - 1,
            writer: u128::from(tag.clock),
        };
        if tag > cell.head.tag()
            && let Content::Value(fragment) = content
        {
            let content = policy::whole_copy(&self.at.key, tag, &fragment.bytes);
            let at = (tag, EventualTag::of_section(tag.lock_ref));
            cell.put_version(self.env.fx, at, &content, self.kept);
        }
    }
}

/// When the answer to an ask that is no plain read may be told.
fn when_told(ask: &Ask, env: &Env<'_>) -> When {
    match ask.seals() {
        Some(_) => once_sealed(env),
        None => When::Durable,
    }
}

/// When what was read of a key may be told: once *that* is durable, which every write of the key
/// shows in its head. Later writes of other keys need not be, or a read would wait for the flush of
/// every write before it.
fn read_of(at: &At, answer: &Answer, env: &Env<'_>) -> When {
    let told = matches!(answer, Answer::Cells { .. } | Answer::EventualValue { .. });
    let durable = env.fx.writes.is_empty() && env.memory.is_durable(&at.record(CellRecord::Head));
    match told && (durable || env.planted.has(Bug::ReadBeforeFlush)) {
        true => When::Now,
        false => When::Durable,
    }
}

/// How many versions a key may have here so that one more, of `tag`, is taken.
///
/// Beside the last final one, δ in a register keyspace. A holder's puts are pipelined, and only one
/// holder writes: they are bounded by how many it has in flight, not by δ, for two of them that
/// fill different replicas would wait for each other. A sweep or synch that has its fence here is
/// what makes room again, so that it must find some; each that dies leaves one version, until one
/// does not.
fn room(most: usize, tag: Tag, fence: Tag) -> usize {
    let pipelined = usize::from(tag.lock_ref > LockRef(0)) * PIPELINED_MAX;
    let sweeps = usize::from(tag == fence) * SWEEPS_MAX;
    most + 1 + pipelined + sweeps
}

/// Whether a tag, or fence, is a time that no clock within its bound can have given: it would
/// outrank honest writes until that time has come.
///
/// A replica without an interval clock, or that has given its own up, judges by its wall clock,
/// which nobody vouches for: generously, so that a wall clock that is merely wrong refuses nothing
/// that is right, and yet a key is never outranked for longer than that.
fn is_ahead(tag: Tag, now: Now) -> bool {
    let most = match now.interval {
        Some(interval) => interval.latest.saturating_add(2 * BOUND_MAX),
        None => now.wall.saturating_add(WALL_BOUND),
    };
    is_physical(tag) && tag.sequence > most
}

/// Whether a key and a value are as long as any cluster's may be. Clients may be bound to less by
/// now, and what they have written is kept.
fn is_bounded(key: &KeyId, ask: &Ask, env: &Env<'_>) -> bool {
    let limits = env.limits;
    let (key_most, value_most) = match env.planted.has(Bug::KeptByTheBound) {
        true => (limits.key, limits.value),
        false => (limits.key_most, limits.value_most),
    };
    key.key.len() <= key_most && ask.bytes() <= value_most
}

/// Whether an ask is one for keys of this purpose (F7: registers have no locks), and no content is
/// missing.
fn suits(ask: &Ask, purpose: Purpose, key: &KeyId) -> bool {
    match ask {
        Ask::Store {
            tag,
            origin,
            content,
        }
        | Ask::Repair {
            tag,
            origin,
            content,
            ..
        } => {
            *origin <= EventualTag::of_section(tag.lock_ref)
                && (tag.lock_ref > LockRef(0)) == (purpose == Purpose::Sections)
                && *tag != Tag::ZERO
                && policy::is_sound(content, key, *tag)
        }
        Ask::Carry {
            tag,
            origin,
            fence,
            content,
        } => {
            let of_purpose =
                |tag: Tag| (tag.lock_ref > LockRef(0)) == (purpose == Purpose::Sections);
            let nothing = *tag == Tag::ZERO && *content == Content::Absent;
            (*fence == Tag::ZERO || of_purpose(*fence))
                && (nothing || of_purpose(*tag) && *tag != Tag::ZERO)
                && *origin <= EventualTag::of_section(tag.lock_ref)
                && policy::is_sound(content, key, *tag)
        }
        Ask::EventualPut { content, .. }
        | Ask::EventualSpread { content, .. }
        | Ask::RepairEventual { content, .. }
        | Ask::Harvest { content, .. } => {
            purpose == Purpose::Sections && policy::is_sound(content, key, Tag::ZERO)
        }
        Ask::EventualGet | Ask::Bury { .. } => purpose == Purpose::Sections,
        _ => true,
    }
}
