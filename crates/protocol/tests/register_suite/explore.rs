//! Every state of a tiny world: two writers of one value each and one reader, at three and at five
//! replicas with f = 1, over `coded`.
//!
//! A step delivers one ask to one replica, ends a grace time, lets a replica start again without
//! its memory, or lets an operation ask again. An operation begins with its first step. Every order
//! of steps is walked, each state once, and in each of them:
//!
//! * an operation that ends has a tag not below those that had ended when it began (a write: above
//!   them), and a read returns its tag's value;
//! * any q replicas give a value that is not below what has completed, nor below what was dropped:
//!   nothing is lost, and no read is stuck, whichever f replicas crash now for good.
//!
//! **What is reduced.** A replica that has crashed for good is one whose asks are never delivered,
//! and so is a writer that has died; both are states that are walked anyhow. An answer arrives with
//! its ask, so that no store takes effect unseen by a writer that lives on. An ask that changes
//! nothing, or the same as another one, and that nobody waits for any more is forgotten. Replicas
//! are alike, so that states that differ in their names alone are one. An operation asks again when
//! f replicas at most have not answered. Then, one of two: either a grace time ends as it begins,
//! which drops earlier than any real one and leaves a replica no memory to lose; or a writer's
//! first round is one step, and what an operation tells to be final arrives everywhere at once or
//! never. With five replicas both.
//!
//! The number of states is part of the test: a change of it is a change of the protocol, or of
//! what is walked, and either is to be looked at.

use crate::disk::Disk;
use crate::world::{Applied, STORE, register_key, view};
use bytes::Bytes;
use fermata_protocol::base::{
    Limits, NodeName, Now, Planted, Seat, StoragePolicy, Tag, Terms, Timing,
};
use fermata_protocol::register::{Answer, Ask, Caller, Message, Op, OpEnd, Owner, Place, Replica};
use fermata_protocol::{Effects, Env, Output};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

const WRITERS: usize = 2;
const CALLERS: usize = WRITERS + 1;

/// A world's bounds.
struct Rules {
    storage: StoragePolicy,
    n: usize,
    quorum: usize,
    parts: usize,
    /// Grace times end in a step of their own, and one replica may start again.
    graces: bool,
    /// First rounds of writers and tellings are one step each.
    rounds: bool,
    planted: Planted,
    timing: Timing,
    limits: Limits,
    applied: Applied,
}

#[derive(Clone)]
struct Member {
    replica: Replica,
    disk: Disk,
}

#[derive(Clone)]
struct Client {
    caller: Caller,
    clock: u64,
    started: bool,
    /// Asks on their way, by replica.
    asks: Vec<Vec<(u64, Ask)>>,
    /// The present call, and what was heard in it.
    call: u64,
    heard: Vec<Option<String>>,
    /// What it stores at present, if it does.
    storing: Option<Tag>,
    /// The highest tag heard of while it collects.
    seen: Option<Tag>,
    /// Tags that had completed when it began.
    floor: Tag,
    ended: bool,
}

#[derive(Clone)]
struct State {
    members: Vec<Member>,
    clients: Vec<Client>,
    crashed: bool,
    /// The highest tag that has completed.
    completed: Tag,
}

fn client_name(c: usize) -> NodeName {
    NodeName(100 + c as u32)
}

impl Rules {
    fn new(n: usize, graces: bool, rounds: bool, planted: Planted) -> Rules {
        let storage = StoragePolicy::Coded(Terms {
            faults: 1,
            delta: 3,
            whole_below: 0,
        });
        let shape = storage.shape(n).expect("possible");
        let timing = Timing {
            request: 1 << 60,
            ..Timing::default()
        };
        Rules {
            storage,
            n,
            quorum: shape.quorum,
            parts: shape.parts,
            graces,
            rounds,
            planted,
            timing,
            limits: Limits::default(),
            applied: Applied::new(Some(view(n)), &[], storage),
        }
    }

    fn first(&self) -> Result<State, String> {
        let member = |i: usize| Member {
            replica: Replica::recover(NodeName(i as u32), 0, &Disk::default()),
            disk: Disk::default(),
        };
        let client = |c: usize| Client {
            caller: Caller::new(client_name(c), c as u64),
            clock: 1,
            started: false,
            asks: vec![Vec::new(); self.n],
            call: 0,
            heard: vec![None; self.n],
            storing: None,
            seen: None,
            floor: Tag::ZERO,
            ended: false,
        };
        let mut state = State {
            members: (0..self.n).map(member).collect(),
            clients: (0..CALLERS).map(client).collect(),
            crashed: false,
            completed: Tag::ZERO,
        };
        (0..CALLERS).try_for_each(|c| self.start(&mut state, c))?;
        Ok(state)
    }

    fn step<T>(&self, now: u64, disk: &Disk, f: impl FnOnce(&mut Env<'_>) -> T) -> (T, Effects) {
        let mut fx = Effects::new();
        let mut cx = Env {
            time: None,
            now: Now {
                monotonic: now,
                wall: now,
                interval: None,
            },
            fx: &mut fx,
            memory: disk,
            timing: &self.timing,
            limits: &self.limits,
            planted: self.planted,
        };
        let out = f(&mut cx);
        (out, fx)
    }

    /// A replica's answer; its writes are durable at once.
    fn ask(&self, member: &mut Member, from: NodeName, call: u64, ask: Ask) -> Option<Answer> {
        let key = register_key();
        let (replica, disk) = (&mut member.replica, &mut member.disk);
        let ((), fx) = self.step(1, disk, |cx| {
            replica.on_ask(from, call, STORE, key, ask, &self.applied, cx);
        });
        disk.append(fx.writes);
        fx.outputs.into_iter().find_map(|output| match output {
            Output::Send {
                message: fermata_protocol::Message::Register(Message::Answer { answer, .. }),
                ..
            } => Some(answer),
            _ => None,
        })
    }

    /// What a replica holds: the tags of its versions, what it knows to be final, what it dropped.
    fn holds(&self, member: &Member) -> (Vec<Tag>, Tag, Tag) {
        let read = Ask::Read {
            holder: None,
            entering: false,
            fence: None,
            eventual: false,
            values: false,
        };
        match self.ask(&mut member.clone(), client_name(9), 0, read) {
            Some(Answer::Cells {
                versions,
                settled,
                dropped,
                ..
            }) => (versions.iter().map(|v| v.tag).collect(), settled, dropped),
            other => panic!("{other:?}"),
        }
    }

    fn place(&self) -> Place {
        Place {
            store: STORE,
            view: view(self.n),
            order: vec![Seat(0)],
            storage: self.storage,
            sources: Vec::new(),
        }
    }

    /// Takes what a client's step has given.
    fn take(&self, state: &mut State, c: usize, fx: Effects) -> Result<(), String> {
        let client = &mut state.clients[c];
        for output in fx.outputs {
            let Output::Send { to, message, .. } = output else {
                panic!("registers answer no client");
            };
            let fermata_protocol::Message::Register(Message::Ask { call, ask, .. }) = message
            else {
                panic!("callers ask");
            };
            if call > client.call {
                client.call = call;
                client.heard = vec![None; self.n];
                client.storing = match &ask {
                    Ask::Store { tag, .. } => Some(*tag),
                    _ => None,
                };
            }
            let to = to.0 as usize;
            if !client.asks[to].contains(&(call, ask.clone())) {
                client.asks[to].push((call, ask));
            }
        }
        if let Some((.., outcome)) = client.caller.take_finished() {
            client.ended = true;
            let (tag, fine) = match (outcome, c < WRITERS) {
                (OpEnd::Stored { tag }, true) => (tag, tag > client.floor),
                (OpEnd::Value { value, tag }, false) => {
                    let expected = (tag != Tag::ZERO).then(|| value_of(tag.writer));
                    (tag, tag >= client.floor && value == expected)
                }
                (other, _) => return Err(format!("client {c} ended in {other:?}")),
            };
            if !fine {
                return Err(format!(
                    "client {c} ended with {tag:?} after {:?}",
                    client.floor
                ));
            }
            state.completed = state.completed.max(tag);
        }
        let client = &mut state.clients[c];
        let (call, ended) = (client.call, client.ended);
        for asks in &mut client.asks {
            asks.retain(|(of, ask)| {
                let asked = *of == call && !ended;
                asked || matches!(ask, Ask::Store { .. } | Ask::Settle { .. })
            });
        }
        Ok(())
    }

    fn start(&self, state: &mut State, c: usize) -> Result<(), String> {
        let key = register_key();
        let writer = c as u128 + 1;
        let op = match c < WRITERS {
            true => Op::Write {
                key,
                writer,
                value: Some(value_of(writer)),
            },
            false => Op::Read { key, moves: false },
        };
        let place = self.place();
        let client = &mut state.clients[c];
        let (_, fx) = self.step(1, &Disk::default(), |cx| {
            client.caller.start(op, Owner::Upkeep, &place, 1 << 60, cx)
        });
        self.take(state, c, fx)
    }

    /// Delivers one ask, and its answer.
    fn deliver(&self, state: &mut State, c: usize, i: usize, at: usize) -> Result<(), String> {
        let (call, ask) = state.clients[c].asks[i].remove(at);
        let settles = matches!(ask, Ask::Settle { .. });
        if !state.clients[c].started {
            state.clients[c].started = true;
            state.clients[c].floor = state.completed;
        }
        let member = &mut state.members[i];
        let Some(answer) = self.ask(member, client_name(c), call, ask) else {
            if settles && !self.graces {
                self.grace_is_over(member);
            }
            return Ok(());
        };
        let client = &mut state.clients[c];
        if call == client.call {
            client.heard[i] = Some(format!("{answer:?}"));
            if let Answer::Cells { versions, .. } = &answer {
                let highest = versions.last().map(|v| v.tag);
                client.seen = client.seen.max(highest);
            }
        }
        let from = NodeName(i as u32);
        let ((), fx) = self.step(client.clock, &Disk::default(), |cx| {
            client.caller.on_answer(from, call, STORE, answer, cx);
        });
        self.take(state, c, fx)
    }

    fn grace_is_over(&self, member: &mut Member) {
        while let Some(due) = member.replica.wake() {
            let (replica, disk) = (&mut member.replica, &mut member.disk);
            let ((), fx) = self.step(due, disk, |cx| replica.tick(cx));
            disk.append(fx.writes);
        }
    }

    /// An operation that waits for nothing but time asks again.
    fn ask_again(&self, state: &mut State, c: usize) -> Result<(), String> {
        for _ in 0..4 {
            let client = &mut state.clients[c];
            let waits = client
                .asks
                .iter()
                .flatten()
                .all(|(call, _)| *call != client.call);
            if !client.started || client.ended || !waits {
                return Ok(());
            }
            self.tick(state, c)?;
        }
        Err(format!("client {c} waits for nothing"))
    }

    fn tick(&self, state: &mut State, c: usize) -> Result<(), String> {
        let client = &mut state.clients[c];
        if client.ended {
            return Ok(());
        }
        client.clock = client.caller.wake().expect("an open operation waits");
        let ((), fx) = self.step(client.clock, &Disk::default(), |cx| client.caller.tick(cx));
        self.take(state, c, fx)
    }

    /// All that a client tells to be final, at once.
    fn tell_at_once(&self, state: &State, c: usize) -> Result<State, String> {
        let mut next = state.clone();
        for i in 0..self.n {
            let settles = |(_, ask): &(u64, Ask)| matches!(ask, Ask::Settle { .. });
            while let Some(at) = next.clients[c].asks[i].iter().position(settles) {
                self.deliver(&mut next, c, i, at)?;
            }
        }
        Ok(next)
    }

    /// A writer's whole first round, at each q replicas.
    fn collect_at_once(&self, state: &State, c: usize) -> Result<Vec<State>, String> {
        let mut out = Vec::new();
        for mask in (0_u32..1 << self.n).filter(|m| m.count_ones() as usize == self.quorum) {
            let mut next = state.clone();
            for i in (0..self.n).filter(|i| mask >> i & 1 == 1) {
                self.deliver(&mut next, c, i, 0)?;
            }
            out.push(next);
        }
        Ok(out)
    }

    /// All states one step away.
    fn next(&self, state: &State) -> Result<Vec<State>, String> {
        let mut out = Vec::new();
        for c in 0..CALLERS {
            let client = &state.clients[c];
            if self.rounds && c < WRITERS && !client.ended && client.storing.is_none() {
                out.extend(self.collect_at_once(state, c)?);
                continue;
            }
            for i in 0..self.n {
                for at in 0..state.clients[c].asks[i].len() {
                    if self.rounds && effect(&state.clients[c].asks[i][at].1).0 {
                        out.push(self.tell_at_once(state, c)?);
                        continue;
                    }
                    let mut next = state.clone();
                    self.deliver(&mut next, c, i, at)?;
                    out.push(next);
                }
            }
        }
        for c in 0..CALLERS {
            let client = &state.clients[c];
            let current = |asks: &&Vec<(u64, Ask)>| asks.iter().any(|(of, _)| *of == client.call);
            let silent = client.asks.iter().filter(current).count();
            if client.started && !client.ended && silent == 1 {
                let mut next = state.clone();
                self.tick(&mut next, c)?;
                self.tick(&mut next, c)?;
                out.push(next);
            }
        }
        for i in 0..self.n {
            if self.graces && state.members[i].replica.wake().is_some() {
                let mut next = state.clone();
                self.grace_is_over(&mut next.members[i]);
                out.push(next);
            }
            if !state.crashed && self.graces && state.members[i].replica.wake().is_some() {
                let mut next = state.clone();
                next.crashed = true;
                let disk = &state.members[i].disk;
                next.members[i].replica = Replica::recover(NodeName(i as u32), 0, disk);
                out.push(next);
            }
        }
        for next in &mut out {
            for c in 0..CALLERS {
                self.ask_again(next, c)?;
            }
            self.forget_late(next);
        }
        Ok(out)
    }

    /// Forgets late asks that change nothing, or the same as another one on its way.
    fn forget_late(&self, state: &mut State) {
        for i in 0..self.n {
            let (tags, settled, dropped) = self.holds(&state.members[i]);
            let mut known: Vec<(bool, Tag)> = Vec::new();
            for client in &mut state.clients {
                let (call, ended) = (client.call, client.ended);
                client.asks[i].retain(|(of, ask)| {
                    if *of == call && !ended {
                        return true;
                    }
                    let (settles, tag) = effect(ask);
                    let done = match settles {
                        true => tag <= settled,
                        false => tags.contains(&tag) || tag < dropped,
                    };
                    let new = !done && !known.contains(&(settles, tag));
                    known.push((settles, tag));
                    new
                });
            }
        }
    }

    /// Names a state, whatever its replicas are called.
    fn name(&self, state: &State, holds: &[(Vec<Tag>, Tag, Tag)]) -> u64 {
        let mut members: Vec<u64> = Vec::with_capacity(self.n);
        for (i, member) in state.members.iter().enumerate() {
            let mut hasher = DefaultHasher::new();
            holds[i].hash(&mut hasher);
            member.replica.wake().hash(&mut hasher);
            let mut late = Vec::new();
            for (c, client) in state.clients.iter().enumerate() {
                let is_current = |call: u64| call == client.call && !client.ended;
                let asks = client.asks[i].iter();
                let (now, past): (Vec<_>, Vec<_>) = asks.partition(|(call, _)| is_current(*call));
                now.len().hash(&mut hasher);
                late.extend(past.iter().map(|(_, ask)| effect(ask)));
                let heard = client.heard[i].as_ref().filter(|_| !client.ended);
                // A writer takes no more from its answers than the highest tag.
                heard
                    .map(|text| (c >= WRITERS).then(|| tags_in(text)))
                    .hash(&mut hasher);
            }
            late.sort_unstable();
            late.hash(&mut hasher);
            members.push(hasher.finish());
        }
        members.sort_unstable();
        let mut hasher = DefaultHasher::new();
        (members, state.crashed, state.completed).hash(&mut hasher);
        for client in &state.clients {
            let seen = client.seen.filter(|_| client.storing.is_none());
            (
                client.started,
                client.ended,
                client.floor,
                client.storing,
                seen,
            )
                .hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Any q live replicas give a value, not below what completed or was dropped.
    fn check(&self, state: &State, holds: &[(Vec<Tag>, Tag, Tag)]) -> Result<(), String> {
        for mask in 0_u32..1 << self.n {
            let chosen = |i: &usize| mask >> i & 1 == 1;
            let chosen: Vec<usize> = (0..self.n).filter(chosen).collect();
            if chosen.len() != self.quorum {
                continue;
            }
            let dropped = chosen.iter().map(|i| holds[*i].2).max();
            let least = dropped.unwrap_or_default().max(state.completed);
            let mut tags: Vec<Tag> = chosen.iter().flat_map(|i| holds[*i].0.clone()).collect();
            tags.sort_unstable();
            let mut found = tags
                .chunk_by(|a, b| a == b)
                .filter(|c| c.len() >= self.parts);
            let highest = found.next_back().map_or(Tag::ZERO, |c| c[0]);
            if highest < least {
                return Err(format!("{chosen:?} give {highest:?}, not {least:?}"));
            }
        }
        Ok(())
    }

    /// Walks everything; how many states there are.
    fn explore(&self) -> Result<usize, String> {
        let mut seen = HashSet::new();
        let mut open = vec![self.first()?];
        while let Some(state) = open.pop() {
            let holds: Vec<_> = state.members.iter().map(|m| self.holds(m)).collect();
            if !seen.insert(self.name(&state, &holds)) {
                continue;
            }
            self.check(&state, &holds)?;
            open.extend(self.next(&state)?);
        }
        Ok(seen.len())
    }
}

/// What a late ask does: tell that a tag is final, or store it.
fn effect(ask: &Ask) -> (bool, Tag) {
    match ask {
        Ask::Settle { tag } => (true, *tag),
        Ask::Store { tag, .. } => (false, *tag),
        _ => (false, Tag::ZERO),
    }
}

/// An answer without its bytes, which depend on the seat.
fn tags_in(text: &str) -> String {
    let mut out = String::new();
    for part in text.split("tag: ").skip(1) {
        out.push_str(part.split('}').next().unwrap_or_default());
    }
    for name in ["settled", "dropped"] {
        out.push_str(
            text.split(name)
                .nth(1)
                .unwrap_or_default()
                .split('}')
                .next()
                .unwrap_or(""),
        );
    }
    out
}

fn value_of(writer: u128) -> Bytes {
    Bytes::from(format!("value {writer}"))
}

#[test]
fn every_state_of_three_replicas() {
    let rules = Rules::new(3, false, false, Planted::NONE);
    assert_eq!(rules.explore(), Ok(60_420));
}

#[test]
fn every_state_of_three_replicas_with_grace_times_and_a_restart() {
    let rules = Rules::new(3, true, true, Planted::NONE);
    assert_eq!(rules.explore(), Ok(86_203));
}

#[test]
fn every_state_of_five_replicas() {
    let rules = Rules::new(5, false, true, Planted::NONE);
    assert_eq!(rules.explore(), Ok(85_866));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn wrong_rules_have_a_wrong_state() {
    use fermata_protocol::base::Bug;
    for bug in [
        Bug::ReadWithoutWriteBack,
        Bug::FinalBeforeStored,
        Bug::CodedQuorumMajority,
        Bug::RegisterQuorumTooSmall,
    ] {
        let found = Rules::new(5, false, true, Planted::only(bug)).explore();
        assert!(found.is_err(), "{bug:?}: {found:?}");
    }
}
