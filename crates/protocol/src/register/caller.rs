//! The caller: runs register operations for the coordinator and the primary of this node.
//! Everything here is volatile; an operation dies with its node, and what it has stored stays.

use super::message::{Answer, Ask, Message, StoreId};
use super::once::Names;
use super::op::{Op, OpEnd, OpId, Owner, Place, assert_duties};
use super::running::{Next, Running};
use crate::base::{Micros, NodeName, Rng};
use crate::io::Env;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

/// Runs any number of operations; the node bounds them by its open requests.
#[derive(Clone, Debug)]
pub struct Caller {
    name: NodeName,
    names: Names,
    next_op: u64,
    next_call: u64,
    open: BTreeMap<OpId, Open>,
    /// The operation that each call in flight belongs to: one call per phase, so that an answer to
    /// an earlier phase is never counted in a later one.
    calls: BTreeMap<u64, OpId>,
    wakes: BTreeSet<(Micros, OpId)>,
    finished: VecDeque<(OpId, Owner, OpEnd)>,
}

#[derive(Clone, Debug)]
struct Open {
    running: Running,
    owner: Owner,
    wake: Micros,
}

impl Caller {
    /// The caller of node `name`; `seed` differs with every start, so that late answers to an
    /// earlier life of the node meet no call.
    pub fn new(name: NodeName, seed: u64) -> Caller {
        Caller {
            name,
            names: Names::new(seed),
            next_op: 0,
            // The top bits mark calls of replicas and of what moves keys; one leaves room to count.
            next_call: Rng::new(seed).draw() >> 4,
            open: BTreeMap::new(),
            calls: BTreeMap::new(),
            wakes: BTreeSet::new(),
            finished: VecDeque::new(),
        }
    }

    /// Starts an operation, which ends by `deadline` of the boot-time clock, or after
    /// `timing.request` if that is earlier.
    pub fn start(
        &mut self,
        op: Op,
        owner: Owner,
        place: &Place,
        deadline: Micros,
        env: &mut Env<'_>,
    ) -> OpId {
        assert_duties(&op, place, env);
        let id = OpId(self.next_op);
        self.next_op += 1;
        let own = place.view.seat_of(self.name);
        let running = Running::new(op, place.clone(), own, deadline, env);
        let open = Open {
            running,
            owner,
            wake: Micros::MAX,
        };
        self.open.insert(id, open);
        self.go_on(id, Next::Phase, env);
        id
    }

    /// Takes a replica's answer. Answers that nobody waits for are ignored.
    pub fn on_answer(
        &mut self,
        from: NodeName,
        call: u64,
        store: StoreId,
        answer: Answer,
        env: &mut Env<'_>,
    ) {
        let Some(&id) = self.calls.get(&call) else {
            return;
        };
        let open = self
            .open
            .get_mut(&id)
            .expect("a call in flight is of an open operation");
        let Place {
            store: present,
            view,
            sources,
            ..
        } = &open.running.place;
        let source = sources.iter().find(|source| source.store == store);
        let view = match source {
            Some(source) => &source.view,
            None if *present == store => view,
            None => return,
        };
        let Some(seat) = view.seat_of(from) else {
            return;
        };
        if let Answer::Late { life } = answer {
            self.names.rise_above(life);
        }
        let next = match source {
            Some(_) => open.running.on_source(store.epoch, seat, answer, env),
            None => open.running.on_answer(seat, answer, env),
        };
        self.go_on(id, next, env);
    }

    /// Asks again where nobody answered, and ends what has run out of time.
    pub fn tick(&mut self, env: &mut Env<'_>) {
        while let Some(&(wake, id)) = self.wakes.first() {
            if wake > env.now.monotonic {
                break;
            }
            let open = self
                .open
                .get_mut(&id)
                .expect("a wish is of an open operation");
            let next = open.running.judge(env);
            self.go_on(id, next, env);
        }
    }

    /// When [`Caller::tick`] has something to do.
    pub fn wake(&self) -> Option<Micros> {
        self.wakes.first().map(|(wake, _)| *wake)
    }

    /// The next operation that has ended, and whose it was.
    pub fn take_finished(&mut self) -> Option<(OpId, Owner, OpEnd)> {
        self.finished.pop_front()
    }

    /// Gives an operation to another owner, who takes its end also where that has come already.
    pub fn pass_on(&mut self, id: OpId, owner: Owner) {
        let finished = self.finished.iter_mut().find(|(ended, ..)| *ended == id);
        let finished = finished.map(|(_, owner, _)| owner);
        if let Some(former) = finished.or(self.open.get_mut(&id).map(|open| &mut open.owner)) {
            *former = owner;
        }
    }

    /// Forgets an operation. What it has sent may still take effect.
    pub fn cancel(&mut self, id: OpId) {
        self.finished.retain(|(finished, ..)| *finished != id);
        self.close(id);
    }

    /// Operations under way.
    pub fn under_way(&self) -> impl Iterator<Item = (OpId, &Owner)> {
        self.open.iter().map(|(id, open)| (*id, &open.owner))
    }

    fn close(&mut self, id: OpId) -> Option<Owner> {
        let open = self.open.remove(&id)?;
        self.calls.remove(&open.running.call);
        self.wakes.remove(&(open.wake, id));
        Some(open.owner)
    }

    /// Tells the members that a tag is final, or moved, where the operation has made one so. Nobody
    /// waits for it, and it costs no round trip: a node sends all that it has for another in one
    /// frame.
    fn tell_all(&mut self, id: OpId, env: &mut Env<'_>) {
        let Some(open) = self.open.get_mut(&id) else {
            return;
        };
        let settled = open.running.take_settled().map(|tag| Ask::Settle { tag });
        let moved = open.running.take_moved().map(|tag| Ask::MarkMoved { tag });
        for ask in settled.into_iter().chain(moved) {
            for node in open.running.place.view.nodes() {
                let message = Message::Ask {
                    call: 0,
                    store: open.running.place.store,
                    key: open.running.key().clone(),
                    ask: ask.clone(),
                };
                env.fx.send(node, message);
            }
        }
    }

    fn go_on(&mut self, id: OpId, next: Next, env: &mut Env<'_>) {
        self.tell_all(id, env);
        if let Next::Done(outcome) = next {
            let owner = self.close(id).expect("what ends was under way");
            self.finished.push_back((id, owner, outcome));
            return;
        }
        let Some(open) = self.open.get_mut(&id) else {
            return;
        };
        if let Next::Phase = next {
            self.calls.remove(&open.running.call);
            open.running.call = self.next_call;
            self.calls.insert(self.next_call, id);
            self.next_call += 1;
        }
        for (node, store, ask) in open.running.due(&mut self.names, env) {
            let message = Message::Ask {
                call: open.running.call,
                store,
                key: open.running.key().clone(),
                ask,
            };
            env.fx.send(node, message);
        }
        self.wakes.remove(&(open.wake, id));
        open.wake = open.running.wake(env);
        self.wakes.insert((open.wake, id));
    }
}
