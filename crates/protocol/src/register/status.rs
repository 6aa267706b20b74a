//! What became of a store: open, sealed, moved.
//!
//! **Problem.** When a segment goes on in another epoch, with other members or none changed, its
//! registers of the old epoch must stop for good: an operation that completes there unseen by the
//! new epoch is lost. And a store that has been deleted must not look like one that was never
//! written.
//!
//! **Idea.** A member *seals* a store: durably, for ever, before it says so. A sealed store answers
//! `Sealed` to everything but sealed reads and lists, and eventual gets as long as the next epoch
//! is not known to have begun, and never changes. Where q members are sealed nothing completes any
//! more, and q sealed answers show everything that ever did. A read seals, so that q sealed answers
//! are always answers of q sealed members. When everything has moved the store is deleted as a
//! whole and answers `Moved`.
//!
//! Eventual puts are another matter: they complete at one member, so one that is not sealed yet
//! goes on taking them, and q sealed answers need not show them. A mover of a store must therefore
//! read every member that can be reached, sealed, before it deletes that member's store.
//!
//! **Two seals.** A segment has one next epoch, but an attempt at a change may have been given up,
//! and an adoption by an operator may replace one. Epochs strictly increase along the history of an
//! address, so the higher `next` is the later one: it is kept. That the store is sealed does not
//! depend on it.
//!
//! **Invariants.**
//! * A sealed store never changes until it is deleted, through restarts too.
//! * A status is durable when an answer that tells it leaves.
//! * A damaged status is that of a store that is not open: everything is void, for it may have been
//!   deleted. A delete goes on from there, and a seal where this node knows that the group waits
//!   for what it has: what it knows of its group is durable before it deletes anything. Until then
//!   a sealed read is answered as where there is no such store, and not that the cell is damaged,
//!   which would write off what the cell may hold.
//!
//! The status of every store that is not open is kept in memory, with its view: an ask costs no
//! read for it, and a member of an epoch that has ended answers for it long after it has forgotten
//! that epoch's log.

use super::cell::Head;
use super::message::{Answer, Ask, Holder, Message, StoreAsk, StoreId};
use super::op::Source;
use super::replica::Replica;
use super::{HolderState, SegmentView};
use crate::base::{Address, Bug, Epoch, KeyId, LockRef, NodeName, View};
use crate::catalogue::Catalogue;
use crate::io::{Env, Memory, Void, When};
use crate::wire::record::{self, CellRecord};
use crate::wire::{decode, encode};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Records read at once.
const CHUNK: usize = 256;
/// Keys in one list.
const LISTED: usize = 1_024;
/// Bytes of keys in one list, about.
const LISTED_BYTES: usize = 256 * 1_024;

/// What became of a store. An open one has no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Status {
    Open,
    Sealed { next: Epoch },
    Moved { next: Epoch },
}

/// What is kept of a store that is not open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) status: Status,
    /// Its members, as long as it is there.
    view: Option<View>,
}

/// The stores that are not open at this node.
#[derive(Clone, Debug, Default)]
pub(super) struct Stores {
    pub(super) closed: BTreeMap<StoreId, Result<Ended, Void>>,
}

impl Stores {
    /// From the durable records.
    pub(super) fn recover(memory: &dyn Memory) -> Stores {
        let (mut from, to) = record::all_statuses();
        let mut closed = BTreeMap::new();
        loop {
            let chunk = memory.scan(&from, &to, CHUNK);
            for (key, value) in &chunk {
                if let Some(store) = record::store_of(key) {
                    let status = value.as_ref().map_err(|_| Void);
                    let status = status.and_then(|bytes| decode(bytes).map_err(|_| Void));
                    closed.insert(store, status);
                }
            }
            match chunk.last() {
                Some((last, _)) if chunk.len() == CHUNK => from = beyond(last),
                _ => return Stores { closed },
            }
        }
    }

    /// What became of a store.
    pub(super) fn of(&self, store: StoreId) -> Result<Status, Void> {
        let ended = self.closed.get(&store).cloned();
        ended.map_or(Ok(Status::Open), |ended| Ok(ended?.status))
    }

    /// The members of a store that is sealed.
    pub(super) fn view(&self, store: StoreId) -> Option<View> {
        self.closed.get(&store)?.as_ref().ok()?.view.clone()
    }
}

/// The first key after `key`.
pub(super) fn beyond(key: &[u8]) -> bytes::Bytes {
    let mut next = key.to_vec();
    next.push(0);
    next.into()
}

impl Replica {
    /// Answers one ask about a whole store. `view` is of the store's segment and epoch.
    pub fn on_store_ask(
        &mut self,
        from: NodeName,
        call: u64,
        store: StoreId,
        ask: StoreAsk,
        view: &dyn SegmentView,
        env: &mut Env<'_>,
    ) {
        let past = self.stores.view(store);
        let view = &AsSealed::new(view, past.as_ref());
        let next = ask.next();
        let answer = match self.standing(store, view) {
            Some(refusal @ (Answer::Elsewhere | Answer::Moved { .. })) => refusal,
            _ => match ask {
                StoreAsk::Delete { .. } => self.delete(store, next, env),
                StoreAsk::Seal { .. } | StoreAsk::List { .. } => {
                    match self.seal(store, next, view, env) {
                        Err(Void) => Answer::Void,
                        Ok(next) => match ask {
                            StoreAsk::List {
                                after,
                                limit,
                                eventual,
                                ..
                            } => list(env.memory, store, after.as_ref(), (limit, eventual)),
                            _ => Answer::Sealed { next },
                        },
                    }
                }
            },
        };
        let when = once_sealed(env);
        self.tell((from, when), call, store, answer, view, env);
    }

    /// What stands against answering from the cells of a store; none: it is open.
    pub(super) fn standing(&self, store: StoreId, view: &dyn SegmentView) -> Option<Answer> {
        match self.stores.of(store) {
            Err(Void) => Some(Answer::Void),
            Ok(Status::Moved { next }) => Some(Answer::Moved { next }),
            Ok(Status::Sealed { next }) => Some(Answer::Sealed { next }),
            Ok(Status::Open) => {
                let seat = view.members().and_then(|m| m.seat_of(self.name));
                seat.is_none().then_some(Answer::Elsewhere)
            }
        }
    }

    /// What answers an ask instead of the cells; none: they do. Seals the store first where the ask
    /// says so.
    pub(super) fn refusal(
        &mut self,
        store: StoreId,
        ask: &Ask,
        view: &dyn SegmentView,
        env: &mut Env<'_>,
    ) -> Option<Answer> {
        let empty = env.planted.has(Bug::EmptyAfterDelete);
        match (self.standing(store, view), ask.seals()) {
            (Some(Answer::Moved { .. }), Some(_)) if empty => None,
            (None | Some(Answer::Sealed { .. }), Some(next)) => self
                .seal(store, next, view, env)
                .err()
                .map(|Void| Answer::Void),
            // Not that the key's record is damaged: the group may wait for it, and not know yet.
            (Some(Answer::Void), Some(_)) if !env.planted.has(Bug::UnknownReadsVoid) => {
                Some(Answer::Elsewhere)
            }
            (refusal, _) => {
                let writes = matches!(ask, Ask::Store { .. } | Ask::MarkMoved { .. });
                let wrong = env.planted.has(Bug::SealedStoreChanges) && writes;
                refusal.filter(|r| !(wrong && matches!(r, Answer::Sealed { .. })))
            }
        }
    }

    /// Seals a store that is open or sealed here; the epoch that follows, as far as this replica
    /// has been told. A full disk takes it, too: it is small, and waiting for it stops a segment.
    fn seal(
        &mut self,
        store: StoreId,
        next: Epoch,
        view: &dyn SegmentView,
        env: &mut Env<'_>,
    ) -> Result<Epoch, Void> {
        match self.stores.of(store)? {
            Status::Sealed { next: known } if known >= next => Ok(known),
            Status::Moved { next: known } => Ok(known),
            Status::Open | Status::Sealed { .. } => {
                let members = view.members().cloned();
                self.close(store, Status::Sealed { next }, members, env);
                self.repairs.forget(store);
                self.settled.forget(store);
                self.upkeep.forget(store);
                Ok(next)
            }
        }
    }

    /// Seals a store of this node, of which those are the members, because its segment goes on in
    /// `next`: one that it never wrote to as well, for it was asked to and might be again.
    pub(crate) fn seal_own(
        &mut self,
        store: StoreId,
        next: Epoch,
        members: &View,
        view: &dyn SegmentView,
        env: &mut Env<'_>,
    ) {
        if self.stores.of(store) == Ok(Status::Open) {
            let view = AsSealed::new(view, Some(members));
            // Only a damaged status is an error: that of an open store is none.
            let _ = self.seal(store, next, &view, env);
        }
    }

    /// Stores of which it is not known here what became of them: their status is damaged.
    pub(crate) fn unknown(&self) -> Vec<StoreId> {
        let unknown = self
            .stores
            .closed
            .iter()
            .filter(|(_, ended)| ended.is_err());
        unknown.map(|(store, _)| *store).collect()
    }

    /// The status of a store of this node is damaged, and the group waits for what is in it, as
    /// this node knows: so it is not deleted. Those are its members, and its segment goes on in
    /// `next`.
    pub(crate) fn seal_unknown(
        &mut self,
        store: StoreId,
        next: Epoch,
        members: View,
        env: &mut Env<'_>,
    ) {
        self.close(store, Status::Sealed { next }, Some(members), env);
    }

    /// Stores of this node of which there is anything: registers, or a seal that stands for them.
    pub(crate) fn kept(&self, memory: &dyn Memory) -> BTreeSet<StoreId> {
        let sealed = self.stores.closed.iter().filter(|(_, ended)| {
            let status = ended.as_ref().map(|ended| ended.status);
            matches!(status, Ok(Status::Sealed { .. }))
        });
        let sealed = sealed.map(|(store, _)| *store);
        sealed.chain(record::stores(memory)).collect()
    }

    /// Deletes a store of this node of which everything has moved, and everything was harvested, as
    /// is chosen in the group's log. It may be open here: a member that was away while the others
    /// sealed and moved.
    pub(crate) fn delete_own(&mut self, store: StoreId, next: Epoch, env: &mut Env<'_>) {
        self.delete(store, next, env);
    }

    /// Deletes a store that is not deleted yet, sealed or not: a member that was down when the
    /// others sealed learns it when all has moved.
    fn delete(&mut self, store: StoreId, next: Epoch, env: &mut Env<'_>) -> Answer {
        let next = match self.stores.of(store) {
            Ok(Status::Sealed { next: known }) => next.max(known),
            _ => next,
        };
        let (from, to) = record::cells(store);
        env.fx.delete_range(from, to);
        self.repairs.forget(store);
        self.settled.forget(store);
        self.upkeep.forget(store);
        self.close(store, Status::Moved { next }, None, env);
        Answer::Moved { next }
    }

    fn close(&mut self, store: StoreId, status: Status, view: Option<View>, env: &mut Env<'_>) {
        let ended = Ended { status, view };
        env.fx.put(record::status(store), encode(&ended));
        self.stores.closed.insert(store, Ok(ended));
    }

    /// Answers `to` whom and when.
    pub(super) fn tell(
        &self,
        (to, when): (NodeName, When),
        call: u64,
        store: StoreId,
        answer: Answer,
        view: &dyn SegmentView,
        env: &mut Env<'_>,
    ) {
        let seat = view.members().and_then(|m| m.seat_of(self.name));
        let message = Message::Answer {
            call,
            store,
            seat: seat.unwrap_or_default(),
            answer,
        };
        match when {
            When::Now => env.fx.send(to, message),
            When::Durable => env.fx.promise(to, message),
        }
    }
}

/// A segment as a store of it is answered for that may be sealed: then the members are those that
/// the store had, and what has become of the segment since then is nothing to it.
pub(super) struct AsSealed<'a> {
    present: &'a dyn SegmentView,
    members: Option<&'a View>,
}

impl<'a> AsSealed<'a> {
    pub(super) fn new(present: &'a dyn SegmentView, members: Option<&'a View>) -> AsSealed<'a> {
        AsSealed { present, members }
    }
}

impl SegmentView for AsSealed<'_> {
    fn members(&self) -> Option<&View> {
        self.members.or_else(|| self.present.members())
    }

    fn sources(&self) -> &[Source] {
        match self.members {
            Some(_) => &[],
            None => self.present.sources(),
        }
    }

    fn has_past(&self) -> bool {
        self.present.has_past()
    }

    fn is_before(&self) -> bool {
        self.present.is_before()
    }

    fn applied(&self) -> u64 {
        self.present.applied()
    }

    fn holder_state(&self, key: &KeyId, holder: Holder) -> HolderState {
        self.present.holder_state(key, holder)
    }

    fn busy(&self, key: &KeyId) -> bool {
        self.present.busy(key)
    }

    fn catalogue(&self) -> &Catalogue {
        self.present.catalogue()
    }

    fn writable(&self) -> bool {
        self.present.writable()
    }

    fn floor(&self) -> LockRef {
        self.present.floor()
    }
}

/// When an answer may leave that says that its store is closed: once that is durable.
pub(super) fn once_sealed(env: &Env<'_>) -> When {
    match env.planted.has(Bug::SealNotDurable) {
        true => When::Now,
        false => When::Durable,
    }
}

/// A part of the keys of a store that is sealed.
fn list(
    memory: &dyn Memory,
    store: StoreId,
    done: Option<&(Address, KeyId)>,
    (limit, eventual): (u32, bool),
) -> Answer {
    let (mut from, to) = record::cells_of(store, CellRecord::Head);
    if let Some((address, key)) = done {
        from = beyond(&record::cell(store, CellRecord::Head, *address, key));
    }
    let limit = (limit as usize).clamp(1, LISTED);
    let (mut keys, mut bytes): (Vec<(Address, KeyId)>, usize) = (Vec::new(), 0);
    loop {
        let chunk = memory.scan(&from, &to, CHUNK);
        for (record, head) in &chunk {
            let head = head.as_ref().ok();
            let head = head.and_then(|bytes| decode::<Head>(bytes).ok());
            // A damaged head may be of any key.
            if eventual && head.is_some_and(|head| head.eventual.is_none()) {
                continue;
            }
            let (Some(address), Some(key)) = (record::address_of(record), record::key_of(record))
            else {
                continue;
            };
            if keys.len() == limit || (bytes + key.key.len() > LISTED_BYTES && !keys.is_empty()) {
                return Answer::Listed { keys, more: true };
            }
            bytes += key.key.len();
            keys.push((address, key));
        }
        match chunk.last() {
            Some((last, _)) if chunk.len() == CHUNK => from = beyond(last),
            _ => return Answer::Listed { keys, more: false },
        }
    }
}
