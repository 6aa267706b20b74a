//! Repair: how a replica learns a damaged record again.
//!
//! A damaged head is amnesia for one key. What the replica had answered, others may be counting on
//! right now: a synch that has its fence, a put that has its store. Copying the others' state at
//! once would let the replica break that promise while the operation is still collecting. So it
//! first answers `Void` for as long as any operation may live (invariant I5 of this room), and only
//! then reads the others. An operation that completed has left its tag and fence at q − 1 of them;
//! the replica hears enough to meet those ([`super::Quorum::others_to_repair`]). One that did not
//! complete has ended, and binds nobody.

use super::cell::{At, Cell, Head};
use super::message::{Answer, Ask, Content, Message, Store};
use super::replica::Replica;
use super::{Cx, SegmentView, policy, quorum};
use crate::base::{
    Bug, EventualTag, KeyId, LockRef, Micros, NodeName, Rng, Seat, StoragePolicy, Tag, View,
};
use crate::io::Void;
use alloc::collections::BTreeMap;

/// Set in the calls of repairs, clear in those of callers.
const MARK: u64 = 1 << 63;

/// Repairs under way at once; a key beyond is repaired when it is next found damaged.
const REPAIRS_MAX: usize = 1_024;

#[derive(Debug)]
pub(super) struct Repairs {
    next_call: u64,
    open: BTreeMap<(Store, KeyId), Repair>,
}

#[derive(Debug)]
struct Repair {
    at: At,
    policy: StoragePolicy,
    members: View,
    call: u64,
    due: Micros,
    heard: BTreeMap<NodeName, Learnt>,
}

#[derive(Debug)]
struct Learnt {
    tag: Tag,
    origin: LockRef,
    content: Content,
    fence: Tag,
    eventual: Option<(EventualTag, Content)>,
    moved: Option<Tag>,
}

impl Repairs {
    pub(super) fn new(seed: u64) -> Repairs {
        // A random start keeps late answers to an earlier life of this node apart.
        Repairs {
            next_call: Rng::new(seed ^ MARK).draw() | MARK,
            open: BTreeMap::new(),
        }
    }

    /// Nothing is written into this store any more.
    pub(super) fn forget(&mut self, store: Store) {
        self.open.retain(|(of, _), _| *of != store);
    }

    pub(super) fn owns(call: u64) -> bool {
        call & MARK != 0
    }

    pub(super) fn wake(&self) -> Option<Micros> {
        self.open.values().map(|repair| repair.due).min()
    }

    pub(super) fn begin(
        &mut self,
        at: &At,
        policy: StoragePolicy,
        members: Option<&View>,
        cx: &Cx<'_>,
    ) {
        let place = (at.store, at.key.clone());
        let Some(members) = members else { return };
        if self.open.len() >= REPAIRS_MAX || self.open.contains_key(&place) {
            return;
        }
        let wait = match cx.planted.has(Bug::RepairAtOnce) {
            true => 0,
            false => cx.timing.lengthened(cx.timing.request),
        };
        let repair = Repair {
            at: at.clone(),
            policy,
            members: members.clone(),
            call: self.next_call,
            due: cx.now.monotonic + wait,
            heard: BTreeMap::new(),
        };
        self.next_call = self.next_call.wrapping_add(1) | MARK;
        self.open.insert(place, repair);
    }
}

impl Replica {
    /// Asks the others where a repair is due.
    pub fn tick(&mut self, cx: &mut Cx<'_>) {
        for repair in self.repairs.open.values_mut() {
            if repair.due > cx.now.monotonic {
                continue;
            }
            repair.due = cx.now.monotonic + cx.timing.retry;
            for node in repair.members.nodes() {
                if node != self.name && !repair.heard.contains_key(&node) {
                    let ask = Ask::Read {
                        holder: None,
                        entering: false,
                        fence: None,
                        eventual: true,
                        values: true,
                    };
                    let message = Message::Ask {
                        call: repair.call,
                        store: repair.at.store,
                        key: repair.at.key.clone(),
                        ask,
                    };
                    cx.fx.send(node, message);
                }
            }
        }
    }

    /// Takes another member's answer to a repair; writes the record once enough have answered.
    /// `view` is of the answer's segment and epoch.
    pub fn on_answer(
        &mut self,
        from: NodeName,
        call: u64,
        store: Store,
        answer: Answer,
        view: &dyn SegmentView,
        cx: &mut Cx<'_>,
    ) {
        let found = self.repairs.open.iter_mut().find(|(_, r)| r.call == call);
        let Some((place, repair)) = found else { return };
        let place = place.clone();
        if view.members() != Some(&repair.members) {
            self.repairs.open.remove(&place);
            return;
        }
        let Answer::Cells {
            tag,
            origin,
            content,
            fence,
            eventual,
            moved,
        } = answer
        else {
            return;
        };
        let sound = policy::is_sound(&content)
            && eventual.as_ref().is_none_or(|(_, e)| policy::is_sound(e));
        if store != repair.at.store || from == self.name || !sound {
            return;
        }
        if repair.members.seat_of(from).is_none() {
            return;
        }
        let learnt = Learnt {
            tag,
            origin,
            content,
            fence,
            eventual,
            moved,
        };
        repair.heard.insert(from, learnt);
        let enough = quorum(repair.policy, &repair.members).others_to_repair();
        if repair.heard.len() >= enough && view.writable() {
            let seat = view.members().and_then(|m| m.seat_of(self.name));
            let repair = self.repairs.open.remove(&place);
            if let (Some(repair), Some(seat)) = (repair, seat)
                && repair.install(seat, cx)
            {
                self.counts.repairs += 1;
            }
        }
    }
}

impl Repair {
    /// Writes what was learnt over what is damaged; false where a later write has healed it
    /// already.
    fn install(self, seat: Seat, cx: &mut Cx<'_>) -> bool {
        let fence = self.heard.values().map(|l| l.fence).max();
        let mut head = Head {
            fence: fence.unwrap_or_default(),
            moved: self.heard.values().filter_map(|l| l.moved).max(),
            ..Head::default()
        };
        let (mut known, mut known_eventual) = (None, None);
        if let Ok(cell) = Cell::load(cx.memory, &self.at) {
            // The head is sound: only a content may be damaged, and the fence here still holds.
            head.fence = head.fence.max(cell.head.fence);
            head.moved = head.moved.max(cell.head.moved);
            match (cell.critical(), cell.eventual()) {
                (Ok(_), Ok(_)) => return false,
                (Ok(content), Err(Void)) => {
                    known = Some(((cell.head.tag, cell.head.origin), content))
                }
                (Err(Void), Ok(eventual)) => known_eventual = eventual,
                (Err(Void), Err(Void)) => {}
            }
        }
        let (mut critical, mut eventual) = (known, known_eventual);
        for learnt in self.heard.into_values() {
            if critical
                .as_ref()
                .is_none_or(|((tag, _), _)| *tag < learnt.tag)
            {
                critical = Some((
                    (learnt.tag, learnt.origin),
                    policy::reseated(&learnt.content, seat),
                ));
            }
            if learnt.eventual.as_ref().map(|(tag, _)| *tag) > eventual.as_ref().map(|(t, _)| *t) {
                eventual = learnt.eventual;
            }
        }
        let mut cell = Cell::replacing(cx.memory, &self.at, head);
        cell.clear(cx.fx);
        if let Some((at, content)) = critical.filter(|((tag, _), _)| *tag > Tag::ZERO) {
            cell.put_critical(cx.fx, at, &content);
        }
        if let Some((tag, content)) = eventual
            && tag.applied >= cell.head.origin.0
        {
            cell.put_eventual(cx.fx, tag, &policy::reseated(&content, seat));
        }
        true
    }
}
