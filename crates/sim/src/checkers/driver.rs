//! The driver keeps what a shell owes the protocol (`fermata_driver`, D1 and D3 to D5): what needs
//! a write on disk leaves when all that the node has written so far is there, and not before; in
//! order; soon; and it is lost only while the log is stuck, when the driver says so. The node is
//! told once that its disk takes no writes, and once that it does again.
//!
//! An output is known by whom it is for and by its length: whatever leaves must be the next one of
//! those that never had to wait, or of those that need not wait any more.

use super::Violation;
use crate::machine::Stepped;
use fermata_driver::Action;
use fermata_protocol::base::NodeName;
use fermata_protocol::io::{Output, When};
use fermata_protocol::{CallId, Message, wire};
use fermata_storage::Lsn;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the checker calls itself in a violation.
pub const NAME: &str = "driver's duty";

/// A message that may leave does so within this virtual time, microseconds: a round takes six
/// milliseconds at most, and who waits for company waits two.
const SOON: u64 = 20_000;

/// Whom an output is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whom {
    /// A peer, or the node itself.
    Peer(NodeName),
    /// A client.
    Call(CallId),
}

/// An output, as far as it is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    whom: Whom,
    length: usize,
    when: When,
}

impl Said {
    /// What a step said.
    pub fn of(output: &Output) -> Said {
        match output {
            Output::Send { to, message, when } => Said {
                whom: Whom::Peer(*to),
                length: wire::size(message),
                when: *when,
            },
            Output::Reply { call, when, .. } => Said {
                whom: Whom::Call(*call),
                length: 0,
                when: *when,
            },
        }
    }
}

/// The watcher.
#[derive(Debug, Default)]
pub struct Drivers {
    processes: BTreeMap<NodeName, Process>,
}

/// What the driver of one process owes.
#[derive(Debug, Default)]
struct Process {
    /// What needs what was written up to the number.
    waiting: VecDeque<(Lsn, Said)>,
    /// What may leave, by whom it is for.
    free: BTreeMap<Whom, Free>,
    /// Since when something is left that may leave.
    left: Option<u64>,
    /// The node takes its disk to be full.
    full: bool,
}

/// What may leave to one of them: the lengths of what never had to wait, and of what need not any
/// more. What leaves is the one and the other in order, merged in any way.
#[derive(Debug, Default)]
struct Free {
    at_once: Vec<usize>,
    later: Vec<usize>,
    /// How many have left.
    left: usize,
    /// How many of `at_once` may be among them.
    of_those: BTreeSet<usize>,
}

impl Free {
    /// Something leaves: whether it may.
    fn leaves(&mut self, length: usize) -> bool {
        if self.left == 0 {
            self.of_those = BTreeSet::from([0]);
        }
        let (left, here) = (self.left, Some(&length));
        let ways = self.of_those.iter().flat_map(|of_those| {
            let at_once = self.at_once.get(*of_those) == here;
            let later = self.later.get(left - of_those) == here;
            let at_once = at_once.then_some(of_those + 1);
            at_once.into_iter().chain(later.then_some(*of_those))
        });
        self.of_those = ways.collect();
        self.left += 1;
        !self.of_those.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.left >= self.at_once.len() + self.later.len()
    }
}

impl Drivers {
    /// A process has started.
    pub fn restarted(&mut self, name: NodeName) {
        self.processes.remove(&name);
    }

    /// A driver has stepped its node, or closed a round.
    pub fn turned(&mut self, name: NodeName, done: &Stepped, found: &mut Vec<Violation>) {
        let process = self.processes.entry(name).or_default();
        process.flushed(done.durable);
        let own = done.own.iter().map(|message| (name, message));
        for (to, message) in own.chain(sent(done)) {
            if !process.leaves(Whom::Peer(to), wire::size(message)) {
                let said: String = format!("{message:?}").chars().take(200).collect();
                let name = name.0;
                let detail = format!("node {name} says too early, or out of order: {said}");
                found.push(Violation::new(NAME, detail));
            }
        }
        for said in &done.said {
            if said.when == When::Now || done.written <= done.durable {
                process.frees(*said, false);
            } else {
                process.waiting.push_back((done.written, *said));
            }
        }
        if let Some(writable) = done.told
            && writable != std::mem::replace(&mut process.full, !writable)
        {
            let detail = format!("node {} is told again: writable {writable}", name.0);
            found.push(Violation::new(NAME, detail));
        }
        for action in &done.actions {
            let wrong = match action {
                Action::Answer(call, _) => !process.leaves(Whom::Call(*call), 0),
                Action::Lost(to) => !process.loses(*to),
                _ => false,
            };
            if wrong {
                let what = match action {
                    Action::Lost(to) => format!("loses a message to node {}", to.0),
                    _ => "answers too early".to_owned(),
                };
                let detail = format!("node {} {what}", name.0);
                found.push(Violation::new(NAME, detail));
            }
        }
    }

    /// A driver has done all that it could at this moment.
    pub fn rests(&mut self, name: NodeName, now: u64, found: &mut Vec<Violation>) {
        let process = self.processes.entry(name).or_default();
        if process.free.is_empty() {
            process.left = None;
        } else if now - *process.left.get_or_insert(now) > SOON {
            let (name, free) = (name.0, &process.free);
            let detail = format!("node {name} keeps what may leave: {free:?}");
            found.push(Violation::new(NAME, detail));
        }
    }
}

/// What leaves for peers.
fn sent(done: &Stepped) -> impl Iterator<Item = (NodeName, &Message)> {
    let sends = done.actions.iter().filter_map(|action| match action {
        Action::Send(to, messages) => Some((*to, messages)),
        _ => None,
    });
    sends.flat_map(|(to, messages)| messages.iter().map(move |message| (to, message)))
}

impl Process {
    /// All up to here is durable, as far as the driver knows.
    fn flushed(&mut self, durable: Lsn) {
        while self.waiting.front().is_some_and(|(lsn, _)| *lsn <= durable) {
            let said = self.waiting.pop_front();
            said.into_iter()
                .for_each(|(_, said)| self.frees(said, true));
        }
    }

    fn frees(&mut self, said: Said, waited: bool) {
        let free = self.free.entry(said.whom).or_default();
        let kind = if waited {
            &mut free.later
        } else {
            &mut free.at_once
        };
        kind.push(said.length);
    }

    /// Something leaves: whether it may.
    fn leaves(&mut self, whom: Whom, length: usize) -> bool {
        let Some(free) = self.free.get_mut(&whom) else {
            return false;
        };
        let may = free.leaves(length);
        if free.is_empty() {
            self.free.remove(&whom);
        }
        may
    }

    /// What had to wait last for a peer is lost: whether it may be.
    fn loses(&mut self, to: NodeName) -> bool {
        let whom = Whom::Peer(to);
        let newest = self.waiting.iter().rposition(|(_, s)| s.whom == whom);
        let lost = newest.and_then(|at| self.waiting.remove(at));
        lost.is_some() && self.full
    }
}
