//! A replica that is created late: by a member that was away while its log ended, perhaps more than
//! once, and has a seat in the log in force.
//!
//! Its peers keep nothing of the log that it follows; they say so ([`Message::Succeeded`]), or it
//! hears of the newer log otherwise. It asks a member for that log ([`Message::Join`]) and is sent
//! the view, the owner of ballot 0, and the member's snapshot ([`Message::Birth`]), in parts. Only
//! when it has everything does it create its replica and drop the old one, in one durable batch.
//!
//! # Why the acceptor is blank, and truthful
//! * It has promised and accepted nothing in this log: it never had a replica of it. A node takes
//!   epochs in ascending order only, and drops a log only in the batch that creates a later one; so
//!   whatever it had of this log is still there, and then there is nothing to create. "Nothing
//!   accepted above the snapshot" is thus no forgetting but the truth, and ballot 0 is what every
//!   blank acceptor promises.
//! * A creation that was not durable is repeated. Nothing that needs memory left before it was
//!   durable, but leases are granted without a flush: so a late replica refuses everybody for one
//!   lease, as a restarted one does.
//! * The snapshot's entries are chosen, wherever it comes from, and also if the sender loses what
//!   it has not made durable yet: chosen is not a matter of one memory.
//! * If it owns ballot 0 and begins with the initial state, it leads it: it has never led it, and
//!   nothing of it leaves before the creation is durable. Where others have begun the log without
//!   it, by a higher ballot, a quorum refuses it, and it follows.
//!
//! # Why the old log is kept until the new one's state is here
//! Of A, B and C, B alone has the state of the new log, and A does not know yet that the old one
//! has ended. If C dropped the old log upon hearing of the new one, and B died then, the old log
//! had no quorum and the new one no state, with one of three lost. With the rule, whoever dropped
//! a log has the state of a later one: either a quorum still has the old log, or somebody alive can
//! give the new one.

use super::store::{self, CreatedRecord};
use super::transfer::{self, Loans, Partial, Snapshot, Taken};
use super::{Chunk, Log, Message, Recovered};
use crate::base::{LogId, Micros, NodeName, Seat, Slot, View};
use crate::io::Env;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;

/// A replica of a log that is to be created here, while its snapshot arrives.
#[derive(Debug)]
pub struct Joining {
    id: LogId,
    /// Who was asked last.
    peer: Option<NodeName>,
    /// Until then it has time to answer.
    due: Micros,
    partial: Option<Partial>,
}

impl Joining {
    /// Nothing has been asked yet.
    pub fn new(id: LogId) -> Joining {
        Joining {
            id,
            peer: None,
            due: 0,
            partial: None,
        }
    }

    /// A peer gives the log unasked.
    pub fn given(id: LogId, by: NodeName, env: &Env<'_>) -> Joining {
        Joining {
            peer: Some(by),
            due: env.now.monotonic + env.timing.retry,
            ..Joining::new(id)
        }
    }

    /// Which log.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// Whether the peer asked last has had its time.
    pub fn overdue(&self, env: &Env<'_>) -> bool {
        self.due <= env.now.monotonic
    }

    /// Asks a member of the log for it, or again for what has not come of it.
    pub fn ask(&mut self, peer: NodeName, env: &mut Env<'_>) {
        if let Some(partial) = &mut self.partial {
            partial.again();
        }
        self.ask_on(peer, env);
    }

    fn ask_on(&mut self, peer: NodeName, env: &mut Env<'_>) {
        self.peer = Some(peer);
        self.due = env.now.monotonic + env.timing.retry;
        for resume in transfer::parts(&mut self.partial) {
            let (log, message) = (self.id, Message::Join { resume });
            env.fx.send(peer, crate::Message::Paxos { log, message });
        }
    }

    /// A part has come from `peer`. Once everything is here, the replica is created, durably: it is
    /// a blank acceptor that has everything up to the snapshot's slot. Else the replica asks for
    /// more.
    ///
    /// # Errors
    /// One phrase, when the answer is of no use: `me` has no seat there, or it is damaged.
    pub fn on_birth(
        &mut self,
        (peer, me): (NodeName, NodeName),
        (view, first): (View, Seat),
        chunk: Chunk,
        env: &mut Env<'_>,
    ) -> Result<Option<Recovered>, &'static str> {
        let sound = (1..=13).contains(&view.len())
            && usize::from(first.0) < view.len()
            && view.epoch == self.id.epoch;
        let seat = view.seat_of(me).filter(|_| sound);
        let seat = seat.ok_or("a log without a seat for this node")?;
        let anew = self.peer == Some(peer);
        match Partial::collect(&mut self.partial, chunk, anew, env.limits) {
            Taken::Useless => Err("chunk of no use"),
            Taken::More => {
                self.ask_on(peer, env);
                Ok(None)
            }
            Taken::Whole(whole) => {
                let (record, raw) = whole.open()?;
                let (slot, state) = (record.slot, record.state.clone());
                // A replica that begins later than the log never needs the initial state.
                let start = match slot {
                    Slot(0) => state.clone(),
                    _ => Bytes::new(),
                };
                let created = CreatedRecord { view, first, start };
                store::put_created(self.id, &created, env.fx);
                let mut log = Log::blank(self.id, &created, seat, env.now.monotonic);
                log.planted = env.planted;
                if slot > Slot(0) {
                    log.put_snapshot(raw.clone(), slot, env.fx);
                    log.adopt(&record, Snapshot::new(&record, raw));
                }
                log.hint = Some(log.first);
                match slot == Slot(0) && log.first == seat {
                    true => {
                        log.lead(log.promised, BTreeMap::new());
                        log.cut(env);
                    }
                    false => log.wait_election(log.boot_over(env.timing), env.timing),
                }
                Ok(Some(Recovered { log, slot, state }))
            }
        }
    }
}

/// The log that follows one whose end is known here, for those who have a seat in it, from one who
/// has none.
#[derive(Debug)]
pub struct Heir {
    id: LogId,
    view: View,
    first: Seat,
    /// The initial state.
    snapshot: Snapshot,
    loans: Loans,
}

impl Heir {
    /// The log `id` of these members begins with `state`; `first` owns its ballot 0.
    pub fn new(id: LogId, view: View, first: Seat, state: Bytes) -> Heir {
        Heir {
            id,
            view,
            first,
            snapshot: Snapshot::initial(state),
            loans: Loans::default(),
        }
    }

    /// Which log.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// Gives the log to those who had no seat in the one before.
    pub fn welcome(&mut self, before: &View, env: &mut Env<'_>) {
        for node in newcomers(&self.view, before) {
            self.on_join(node, None, env);
        }
    }

    /// Answers a node that asks for what it takes to create its replica, if it has a seat.
    pub fn on_join(&mut self, from: NodeName, resume: Option<(Slot, u64)>, env: &mut Env<'_>) {
        if self.view.seat_of(from).is_none() {
            return;
        }
        self.loans.end(env);
        let message = Message::Birth {
            view: self.view.clone(),
            first: self.first,
            chunk: self.loans.chunk(from, resume, &self.snapshot, env),
        };
        let log = self.id;
        env.fx.send(from, crate::Message::Paxos { log, message });
    }
}

impl Log {
    /// Gives this log, which has just been created here, to those who had no seat in the one
    /// before.
    pub fn welcome(&mut self, before: &View, env: &mut Env<'_>) {
        for node in newcomers(&self.view, before) {
            self.on_join(node, None, env);
        }
    }

    /// A node asks for what it takes to create its replica, or to follow this one.
    pub(super) fn on_join(
        &mut self,
        from: NodeName,
        resume: Option<(Slot, u64)>,
        env: &mut Env<'_>,
    ) {
        let birth = Message::Birth {
            view: self.view.clone(),
            first: self.first,
            chunk: self.loans.chunk(from, resume, &self.snapshot, env),
        };
        self.tell(from, birth, env);
    }
}

/// The nodes that had no seat before.
fn newcomers(view: &View, before: &View) -> Vec<NodeName> {
    let new = view.nodes().filter(|node| before.seat_of(*node).is_none());
    new.collect()
}
