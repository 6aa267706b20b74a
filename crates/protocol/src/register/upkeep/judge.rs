//! What is to be done for one key, from what its members say that they hold of it.
//!
//! The member with the highest tag, and among those the lowest seat, acts; a delete that everybody
//! holds goes by the word of anybody who sees it.

use super::rules::{sections_under_floor, survey, under_floor};
use super::{OWN, SUSPECTS_MAX, Trace, WISHES_MAX};
use crate::base::{
    Bug, EventualTag, Kept, KeyId, LockRef, Micros, NodeName, Purpose, Seat, SegmentId, Shape,
    StoragePolicy, Tag, View,
};
use crate::io::Env;
use crate::register::cell::{At, Cell};
use crate::register::message::{Ask, Content, Message, Survey, Version};
use crate::register::op::Op;
use crate::register::repair::MARK;
use crate::register::replica::Replica;
use crate::register::status::Status;
use crate::register::{SegmentView, policy};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// One key as it is compared among the members.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) at: At,
    pub(super) members: View,
    pub(super) until: Micros,
    pub(super) heard: BTreeMap<Seat, Survey>,
    /// Parts of the version of this tag are collected, for those that lack it.
    pub(super) parts: Option<(Tag, Vec<Seat>, Vec<Content>)>,
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
    /// Whether the highest tag here is final: q of those that are heard hold it, or this member has
    /// dropped what lies below it, and so was told (F8b): who made it final may be lost since
    /// (G66).
    complete: bool,
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
    /// An earlier store may still have something, as far as any of them knows.
    past: bool,
    /// The highest floor known to any, and the lowest.
    floors: (LockRef, LockRef),
    /// Every member's cells lie under its own floor.
    under: bool,
    /// Every member's versions and fence do, its eventual cell aside.
    sections_under: bool,
}

impl Look {
    pub(super) fn ask(&self, call: u64, ask: Ask) -> Message {
        Message::Ask {
            call,
            store: self.at.store,
            key: self.at.key.clone(),
            ask,
        }
    }

    fn standing(&self, own: Survey, here: Seat, shape: Shape, dropped: Tag) -> Standing {
        let top = own.tags.last().copied().unwrap_or_default();
        let seat = here;
        let mut standing = Standing {
            tops: true,
            leads: true,
            newest: true,
            gives: true,
            holders: Vec::from([seat]),
            complete: top > Tag::ZERO && dropped >= top,
            lacking: Vec::new(),
            behind: Vec::new(),
            crowded: own.tags.len() > 1,
            fenced: own.fence > top,
            all: self.heard.len() + 1 == self.members.len(),
            past: own.past,
            floors: (own.floor, own.floor),
            under: under_floor(&own, own.floor),
            sections_under: sections_under_floor(&own, own.floor),
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
            standing.past |= held.past;
            standing.under &= under_floor(held, held.floor);
            standing.sections_under &= sections_under_floor(held, held.floor);
            let (high, low) = standing.floors;
            standing.floors = (high.max(held.floor), low.min(held.floor));
        }
        // Another one with that tag may not know that it is final.
        standing.leads = standing.tops && (standing.leads || standing.complete);
        standing.complete |= standing.holders.len() >= shape.quorum;
        standing.gives &= standing.newest;
        standing.crowded &= matches!(shape.kept, Kept::FromFinal(_));
        standing
    }
}

/// Whether a section may be under way on the key, or be owed a synch.
pub(super) fn is_used(key: &KeyId, terms: &Terms, view: &dyn SegmentView) -> bool {
    terms.purpose == Purpose::Sections && view.busy(key)
}

/// What a key's upkeep needs to know beside what its members hold.
pub(super) struct Terms {
    pub(super) purpose: Purpose,
    pub(super) policy: StoragePolicy,
    pub(super) shape: Shape,
    pub(super) seat: Seat,
}

impl Terms {
    pub(super) fn of(at: &At, name: NodeName, view: &dyn SegmentView) -> Option<Terms> {
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
    /// Decides what is to be done for a key, from what the members hold of it.
    pub(super) fn judge(&mut self, look: Look, view: &dyn SegmentView, env: &mut Env<'_>) {
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
        let Ok(cell) = Cell::load(env.memory, &look.at) else {
            return;
        };
        let floor = self.upkeep.floor(look.at.store, view);
        let own = survey(&cell.head, floor, view.has_past());
        let dropped = match env.planted.has(Bug::FinalByCountAlone) {
            true => Tag::ZERO,
            false => cell.head.dropped,
        };
        let standing = look.standing(own, terms.seat, terms.shape, dropped);
        if standing.crowded {
            look.settle_complete(&standing.own, &terms, env);
        }
        if cell.head.hides_eventual() {
            self.settle_hidden(&look, &standing, env);
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
            // Else somebody lacks the tag and has a fence above it, which hides that.
            && (standing.holders.len() == look.heard.len() + 1
                || env.planted.has(Bug::FencedTakenAsHolder))
            && (terms.purpose == Purpose::Sections || !standing.fenced);
        let dead = terms.purpose == Purpose::Sections
            && cell.head.length().is_none()
            && !cell.head.eventual_live
            && (!standing.past || env.planted.has(Bug::BuriedBesideSource));
        if even || (dead && env.planted.has(Bug::TombstoneBuriedEarly)) {
            self.upkeep.suspects.remove(&place);
            if dead {
                self.trace(&look, &standing, state, env);
            }
            return;
        }
        self.upkeep.traces.remove(&place);
        let acts = standing.leads || standing.gives;
        if !acts || !self.upkeep.is_ripe(&look.at, state, env) {
            return;
        }
        self.upkeep.counts.uneven += 1;
        if standing.gives {
            self.give_eventual(&look, &standing, env);
        }
        if !standing.leads {
            return;
        }
        self.mend(look, &standing, dead, &terms, view, env);
    }

    /// An eventual value is hidden here by the highest version. Where that one is final, this
    /// replica is told so: it drops the value, hidden until now (G26). Else the value stays until
    /// the next section's synch has settled the key, and stands again if that passes the version
    /// over.
    fn settle_hidden(&self, look: &Look, standing: &Standing, env: &mut Env<'_>) {
        let tag = standing.own.tags.last().copied().unwrap_or_default();
        if standing.complete {
            let settle = look.ask(MARK | OWN, Ask::Settle { tag });
            env.fx.promise(self.name, settle);
        }
    }

    /// A key that has been uneven for long, for which this member acts.
    fn mend(
        &mut self,
        look: Look,
        standing: &Standing,
        dead: bool,
        terms: &Terms,
        view: &dyn SegmentView,
        env: &mut Env<'_>,
    ) {
        let top = standing.own.tags.last().copied().unwrap_or_default();
        let complete = standing.complete;
        let Ok(cell) = Cell::load(env.memory, &look.at) else {
            return;
        };
        // Nobody has anything that this delete could hide; an eventual value that is newer stands
        // above it here and everywhere (G69).
        let stands = match &cell.head {
            _ if env.planted.has(Bug::TraceUnderValueStays) => dead && standing.under,
            head if head.hides_eventual() => dead && standing.under,
            head => head.length().is_none() && standing.sections_under && !standing.past,
        };
        let last_trace = stands
            && standing.all
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
        let Some(Ok(own)) = cell.head.version(top).map(|trace| cell.content_of(trace)) else {
            return;
        };
        if own == Content::Undecodable || policy::decode(&[&own]).is_ok() {
            let lacking = standing.lacking.clone();
            let part = |seat, key: &KeyId| policy::reseated(key, top, &own, seat);
            self.give(&look, top, &lacking, part, view, env);
            // A last trace is at fewer than q, and not final yet: an eventual delete that it hides
            // may be what keeps an older value away elsewhere (G26).
            if complete {
                settle(&look, top, env);
            }
            return;
        }
        // A part of a code: the others are asked for theirs.
        let holders = standing.holders.iter().filter(|s| **s != terms.seat);
        let nodes = holders.filter_map(|seat| look.members.node_at(*seat));
        let asks = nodes.map(|node| (node, Ask::cells(false))).collect();
        let look = Look {
            until: env.now.monotonic + 2 * env.timing.retry,
            parts: Some((top, standing.lacking.clone(), Vec::from([own]))),
            ..look
        };
        self.upkeep.send(look, asks, env);
    }

    /// Gives a value that was rebuilt from parts to those that lack theirs.
    pub(super) fn give_rebuilt(&mut self, look: Look, view: &dyn SegmentView, env: &mut Env<'_>) {
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
        self.give(&look, *tag, lacking, part, view, env);
        settle(&look, *tag, env);
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
        env: &mut Env<'_>,
    ) {
        let Ok(cell) = Cell::load(env.memory, &look.at) else {
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
            if !env.planted.has(Bug::RepairNotSent) {
                env.fx.promise(node, look.ask(MARK | OWN, ask));
            }
            self.upkeep.counts.given += 1;
        }
    }

    /// Sends the eventual value to those whose own is older.
    fn give_eventual(&mut self, look: &Look, standing: &Standing, env: &mut Env<'_>) {
        if standing.behind.is_empty() {
            return;
        }
        let Ok(cell) = Cell::load(env.memory, &look.at) else {
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
            env.fx.promise(node, look.ask(MARK | OWN, ask));
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
        let again = suspect.tries > 0;
        suspect.tries += 1;
        if sweep || again {
            return self.upkeep.wish_sweep(at);
        }
        let key = at.key.clone();
        self.upkeep.counts.settled += 1;
        self.upkeep
            .wishes
            .push_back((at.store, Op::Read { key, moves: true }));
    }

    /// Every member that has answered holds this delete, and nothing else. It goes once all have
    /// answered, and once the floor has risen above what any of them knew.
    fn trace(
        &mut self,
        look: &Look,
        standing: &Standing,
        state: (Tag, Option<EventualTag>),
        env: &mut Env<'_>,
    ) {
        let early = env.planted.has(Bug::TombstoneBuriedEarly);
        if !(standing.all || early) {
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
        // Whoever sees it first: another one's reason to want the floor higher may not be the
        // primary's, who alone can raise it.
        for node in look.members.nodes() {
            let ask = Ask::Bury {
                tag: state.0,
                eventual: state.1,
                above,
            };
            env.fx.promise(node, look.ask(MARK | OWN, ask));
        }
    }

    fn want(&mut self, segment: SegmentId, floor: LockRef) {
        if !self.upkeep.named.contains(&segment) {
            let wanted = self.upkeep.wanted.entry(segment).or_default();
            *wanted = floor.max(*wanted);
        }
    }
}

impl Look {
    /// Tells that the highest tag which q members hold is final, where something lies below it: its
    /// writer has told so, but not everybody has heard. It may not be the highest of all.
    fn settle_complete(&self, own: &Survey, terms: &Terms, env: &mut Env<'_>) {
        let all = || core::iter::once(own).chain(self.heard.values());
        let holds = |tag: Tag| all().filter(|held| held.tags.contains(&tag)).count();
        let complete = |tag: &&Tag| holds(**tag) >= terms.shape.quorum;
        let highest = own.tags.iter().rev().find(complete).copied();
        if let Some(tag) = highest
            && all().any(|held| held.tags.first().is_some_and(|t| *t < tag))
        {
            settle(self, tag, env);
        }
    }

    /// Takes a part of the wanted version; true once they give the value.
    pub(super) fn takes_part(&mut self, versions: Vec<Version>) -> bool {
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

/// Tells all members that a tag which q of them hold is final.
fn settle(look: &Look, tag: Tag, env: &mut Env<'_>) {
    for node in look.members.nodes() {
        env.fx
            .promise(node, look.ask(MARK | OWN, Ask::Settle { tag }));
    }
}
