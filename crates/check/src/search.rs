//! The search for an order of the steps that explains what was read: Wing and Gong ("Testing and
//! verifying concurrent objects", Journal of Parallel and Distributed Computing 17, 1993), with
//! Lowe's list of open steps and memory of states ("Testing for linearizability", Concurrency and
//! Computation 29(4), 2017; Horn and Kroening, "Faster linearizability checking via
//! P-compositionality", FORTE 2015, check each register alone as we do).
//!
//! **Idea.** Steps are placed one by one. A step may be placed next if it was called before the
//! first return among the steps not yet placed (the *horizon*). A state is what was placed and the
//! register's value; a state met twice is not searched twice.
//!
//! Registers allow much to be placed without a choice, and what allows a choice is cut down:
//!
//! * A read of the present value that may be placed is placed: it changes nothing, and waiting does
//!   not help.
//! * A write whose value no later read returns is placed before any other write: whatever write
//!   comes next may as well come right after it.
//! * Of writes of the same value only the one that returned first is tried.
//! * A write of unknown outcome is placed only right before a read of its value that may be placed,
//!   and of several with the same value the one called first: as a number of used ones per value.
//!
//! **Bound.** The search stops undecided after a number of states; it never guesses.

use crate::steps::{NEVER, Step};
use std::collections::{BTreeMap, HashSet};

/// A value that no later read returns, whichever it is.
const FORGOTTEN: u32 = u32::MAX;

/// No node.
const END: u32 = u32::MAX;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An order.
    Order,
    /// That there is none.
    None,
    /// Nothing within the bound.
    Undecided,
}

/// A choice of what to place next.
#[derive(Clone, Copy)]
enum Choice {
    Known(u32),
    Unknown(u32),
}

/// A state with the choices not yet tried in it.
struct Frame {
    trail: usize,
    value: u32,
    choices: Vec<Choice>,
}

struct Search {
    /// Known steps.
    steps: Vec<Step>,
    /// Value -> calls of its writes of unknown outcome.
    unknown: BTreeMap<u32, Vec<u64>>,
    /// Value -> the last return of a read of it.
    last_read: BTreeMap<u32, u64>,
    /// Events of the open steps in the order of time: `2 i` is the call of step `i`, `2 i + 1` its
    /// return, and the last node is the head.
    next: Vec<u32>,
    prev: Vec<u32>,
    /// The placed steps.
    placed: Vec<u64>,
    /// No word before has a zero; no word after has a one.
    full_until: usize,
    empty_from: usize,
    /// Value -> how many of its unknown writes were placed; never 0.
    used: BTreeMap<u32, u32>,
    value: u32,
    /// What was placed, in this order.
    trail: Vec<Choice>,
    seen: HashSet<Box<[u64]>>,
}

/// Searches. `bound` is decreased by the states kept in memory, weighed by their size.
pub(crate) fn search(steps: &[Step], bound: &mut u64) -> Found {
    let mut search = Search::new(steps);
    let mut stack: Vec<Frame> = Vec::new();
    loop {
        let Some(horizon) = search.place_forced() else {
            return Found::Order;
        };
        let state = search.state(horizon);
        let weight = 1 + state.len() as u64 / 8;
        if search.seen.insert(state) {
            if *bound < weight {
                return Found::Undecided;
            }
            *bound -= weight;
            stack.push(Frame {
                trail: search.trail.len(),
                value: search.value,
                choices: search.choices(),
            });
        }
        // Back to the last state with a choice left.
        loop {
            let Some(frame) = stack.last_mut() else {
                return Found::None;
            };
            let (trail, value) = (frame.trail, frame.value);
            let choice = frame.choices.pop();
            search.undo_to(trail, value);
            match choice {
                Some(choice) => {
                    search.place(choice);
                    break;
                }
                None => {
                    stack.pop();
                }
            }
        }
    }
}

impl Search {
    fn new(all: &[Step]) -> Search {
        let steps: Vec<Step> = all.iter().filter(|step| step.known).copied().collect();
        let mut unknown: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for step in all.iter().filter(|step| !step.known) {
            unknown.entry(step.value).or_default().push(step.call);
        }
        let mut last_read: BTreeMap<u32, u64> = BTreeMap::new();
        for step in all.iter().filter(|step| !step.writes) {
            let last = last_read.entry(step.value).or_default();
            *last = step.ret.max(*last);
        }
        let mut nodes: Vec<u32> = (0..2 * steps.len() as u32).collect();
        // Of equal times, calls come first: steps that touch are concurrent.
        nodes.sort_by_key(|node| {
            let step = &steps[*node as usize / 2];
            (
                if node % 2 == 0 { step.call } else { step.ret },
                node % 2,
                *node,
            )
        });
        let head = nodes.len() as u32;
        let mut next = vec![END; nodes.len() + 1];
        let mut prev = vec![head; nodes.len() + 1];
        let mut last = head;
        for node in nodes {
            next[last as usize] = node;
            prev[node as usize] = last;
            last = node;
        }
        let placed = vec![0; steps.len().div_ceil(64)];
        Search {
            steps,
            unknown,
            last_read,
            next,
            prev,
            full_until: 0,
            empty_from: 0,
            placed,
            used: BTreeMap::new(),
            value: crate::steps::ABSENT,
            trail: Vec::new(),
            seen: HashSet::new(),
        }
    }

    /// Open steps that may be placed next; the iterator's end is the horizon.
    fn open(&self) -> impl Iterator<Item = u32> + '_ {
        let mut node = self.next[self.steps.len() * 2];
        std::iter::from_fn(move || {
            let here = (node != END && node % 2 == 0).then_some(node / 2);
            if here.is_some() {
                node = self.next[node as usize];
            }
            here
        })
    }

    /// The first return of an open step; none: all are placed.
    fn horizon(&self) -> Option<u64> {
        let mut node = self.next[self.steps.len() * 2];
        while node != END && node % 2 == 0 {
            node = self.next[node as usize];
        }
        (node != END).then(|| self.steps[node as usize / 2].ret)
    }

    /// Whether a read of this value is open.
    fn is_read_later(&self, value: u32, horizon: u64) -> bool {
        self.last_read
            .get(&value)
            .is_some_and(|last| *last >= horizon)
    }

    /// Places all that needs no choice, and returns the horizon; none: all steps are placed.
    fn place_forced(&mut self) -> Option<u64> {
        loop {
            let horizon = self.horizon()?;
            let is_read = |s: &Step| !s.writes && s.value == self.value;
            let reads: Vec<u32> = self
                .open()
                .filter(|i| is_read(&self.steps[*i as usize]))
                .collect();
            for read in &reads {
                self.place(Choice::Known(*read));
            }
            if !reads.is_empty() {
                continue;
            }
            let forgotten = self.open().find(|i| {
                let step = &self.steps[*i as usize];
                step.writes && !self.is_read_later(step.value, horizon)
            });
            match forgotten {
                Some(write) => self.place(Choice::Known(write)),
                None => return Some(horizon),
            }
        }
    }

    /// What may be placed next, the most urgent last.
    fn choices(&self) -> Vec<Choice> {
        // Value -> (the first return of an open read of it, an open write with its return).
        let mut by_value: BTreeMap<u32, (u64, Option<(u64, u32)>)> = BTreeMap::new();
        for index in self.open() {
            let step = &self.steps[index as usize];
            let entry = by_value.entry(step.value).or_insert((NEVER, None));
            if !step.writes {
                entry.0 = entry.0.min(step.ret);
            } else if entry.1.is_none_or(|(ret, _)| step.ret < ret) {
                entry.1 = Some((step.ret, index));
            }
        }
        let horizon = self.horizon().unwrap_or(NEVER);
        let mut choices: Vec<((u64, u64), Choice)> = Vec::new();
        for (value, (read_by, write)) in by_value {
            if let Some((ret, write)) = write {
                choices.push(((read_by, ret), Choice::Known(write)));
            }
            let used = self.used.get(&value).copied().unwrap_or(0);
            let unused = (self.unknown.get(&value)).and_then(|calls| calls.get(used as usize));
            if read_by < NEVER && unused.is_some_and(|call| *call <= horizon) {
                choices.push(((read_by, NEVER), Choice::Unknown(value)));
            }
        }
        choices.sort_by_key(|(urgency, _)| std::cmp::Reverse(*urgency));
        choices.into_iter().map(|(_, choice)| choice).collect()
    }

    fn place(&mut self, choice: Choice) {
        self.trail.push(choice);
        match choice {
            Choice::Unknown(value) => {
                *self.used.entry(value).or_insert(0) += 1;
                self.value = value;
            }
            Choice::Known(index) => {
                for node in [2 * index, 2 * index + 1] {
                    let (prev, next) = (self.prev[node as usize], self.next[node as usize]);
                    self.next[prev as usize] = next;
                    if next != END {
                        self.prev[next as usize] = prev;
                    }
                }
                let word = index as usize / 64;
                self.placed[word] |= 1 << (index % 64);
                self.empty_from = self.empty_from.max(word + 1);
                if self.steps[index as usize].writes {
                    self.value = self.steps[index as usize].value;
                }
            }
        }
    }

    /// Takes back all that was placed after the trail had this length.
    fn undo_to(&mut self, trail: usize, value: u32) {
        while self.trail.len() > trail {
            match self.trail.pop() {
                Some(Choice::Unknown(value)) => {
                    let used = self.used.entry(value).or_insert(1);
                    *used -= 1;
                    if *used == 0 {
                        self.used.remove(&value);
                    }
                }
                Some(Choice::Known(index)) => {
                    for node in [2 * index + 1, 2 * index] {
                        let (prev, next) = (self.prev[node as usize], self.next[node as usize]);
                        self.next[prev as usize] = node;
                        if next != END {
                            self.prev[next as usize] = node;
                        }
                    }
                    let word = index as usize / 64;
                    self.placed[word] &= !(1 << (index % 64));
                    self.full_until = self.full_until.min(word);
                }
                None => unreachable!("the trail is longer than where to go"),
            }
        }
        self.value = value;
    }

    /// The state as words: two states with the same words have the same future.
    fn state(&mut self, horizon: u64) -> Box<[u64]> {
        while self.placed.get(self.full_until) == Some(&u64::MAX) {
            self.full_until += 1;
        }
        while self.empty_from > self.full_until && self.placed[self.empty_from - 1] == 0 {
            self.empty_from -= 1;
        }
        let value = if self.is_read_later(self.value, horizon) {
            self.value
        } else {
            FORGOTTEN
        };
        let mut state = vec![u64::from(value) << 32, self.full_until as u64];
        for (value, used) in &self.used {
            if self.is_read_later(*value, horizon) {
                state.push(u64::from(*value) << 32 | u64::from(*used));
                state[0] += 1;
            }
        }
        state.extend(&self.placed[self.full_until.min(self.empty_from)..self.empty_from]);
        state.into_boxed_slice()
    }
}
