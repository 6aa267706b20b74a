//! What became of a store: open, sealed, moved.
//!
//! **Problem.** When a segment goes on in another epoch, with other members or none changed, its
//! registers of the old epoch must stop for good: an operation that completes there unseen by the
//! new epoch is lost. And a store that has been deleted must not look like one that was never
//! written.
//!
//! **Idea.** A member *seals* a store: durably, for ever, before it says so. A sealed store answers
//! `Sealed` to everything but sealed reads and lists, and never changes. Where q members are sealed
//! nothing completes any more, and q sealed answers show everything that ever did. A read seals, so
//! that q sealed answers are always answers of q sealed members. When everything has moved the
//! store is deleted as a whole and answers `Moved`.
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
//!   deleted. Only a delete goes on from there.
//!
//! The status of every store that is not open is kept in memory: an ask costs no read for it.

use super::SegmentView;
use super::message::{Answer, Ask, Message, StoreAsk, StoreId};
use super::replica::Replica;
use crate::base::{Address, Bug, Epoch, KeyId, NodeName};
use crate::io::{Env, Memory, Void, When};
use crate::wire::record::{self, CellRecord};
use crate::wire::{decode, encode};
use alloc::collections::BTreeMap;
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

/// The stores that are not open at this node.
#[derive(Clone, Debug, Default)]
pub(super) struct Stores {
    pub(super) closed: BTreeMap<StoreId, Result<Status, Void>>,
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
        self.closed.get(&store).copied().unwrap_or(Ok(Status::Open))
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
        let next = ask.next();
        let answer = match self.standing(store, view) {
            Some(refusal @ (Answer::Elsewhere | Answer::Moved { .. })) => refusal,
            _ => match ask {
                StoreAsk::Delete { .. } => self.delete(store, next, env),
                StoreAsk::Seal { .. } | StoreAsk::List { .. } => {
                    match self.seal(store, next, env) {
                        Err(Void) => Answer::Void,
                        Ok(next) => match ask {
                            StoreAsk::List { after, limit, .. } => {
                                list(env.memory, store, after.as_ref(), limit)
                            }
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
    fn standing(&self, store: StoreId, view: &dyn SegmentView) -> Option<Answer> {
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
            (None | Some(Answer::Sealed { .. }), Some(next)) => {
                self.seal(store, next, env).err().map(|Void| Answer::Void)
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
    fn seal(&mut self, store: StoreId, next: Epoch, env: &mut Env<'_>) -> Result<Epoch, Void> {
        match self.stores.of(store)? {
            Status::Sealed { next: known } if known >= next => Ok(known),
            Status::Moved { next: known } => Ok(known),
            Status::Open | Status::Sealed { .. } => {
                self.close(store, Status::Sealed { next }, env);
                self.repairs.forget(store);
                self.settled.forget(store);
                self.upkeep.forget(store);
                Ok(next)
            }
        }
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
        self.close(store, Status::Moved { next }, env);
        Answer::Moved { next }
    }

    fn close(&mut self, store: StoreId, status: Status, env: &mut Env<'_>) {
        env.fx.put(record::status(store), encode(&status));
        self.stores.closed.insert(store, Ok(status));
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
    limit: u32,
) -> Answer {
    let (mut from, to) = record::cells_of(store, CellRecord::Head);
    if let Some((address, key)) = done {
        from = beyond(&record::cell(store, CellRecord::Head, *address, key));
    }
    let limit = (limit as usize).clamp(1, LISTED);
    let (mut keys, mut bytes): (Vec<(Address, KeyId)>, usize) = (Vec::new(), 0);
    loop {
        let chunk = memory.scan(&from, &to, CHUNK);
        for (record, _) in &chunk {
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
