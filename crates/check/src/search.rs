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
//! * A write whose value no later read returns is placed before any other write: the next write may
//!   as well come right after it.
//! * Among writes of the same value only the one that returned first is tried.
//! * A write of unknown outcome is placed only right before a read of its value that may be placed,
//!   and of several with the same value the one called first: as a number of used ones per value.
//!
//! * A write is overwritten only when all reads that can have read nothing else are placed, and
//!   placed only if nothing else has to be placed before the last of these was called ([`Writes`]
//!   knows what a read may have read). Without this rule a wrong choice shows much later.
//!
//! Of two states that differ only in the number of unknown writes used, the one that used fewer
//! has all the futures of the other.
//!
//! **Bound.** The search stops undecided after a number of states; it never guesses.

use crate::steps::{ABSENT, NEVER, Step, Writes};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// A value that no later read returns, whichever it is.
const FORGOTTEN: u32 = u32::MAX;

/// No node.
const END: u32 = u32::MAX;

/// Placements that cost as much as a state.
const PLACEMENTS_PER_STATE: u64 = 16;

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

/// What the register holds.
#[derive(Clone, Copy)]
struct Present {
    value: u32,
    /// The origin: see [`Origins`].
    origin: u32,
}

/// A state with the choices not yet tried in it.
struct Frame {
    trail: usize,
    present: Present,
    choices: Vec<Choice>,
}

/// Where values come from: a known write is its own origin, the writes of unknown outcome of one
/// value are one, and the initial state is one.
struct Origins {
    /// Step -> the only origin that this read can have read, if there is only one.
    sole: Vec<Option<u32>>,
    /// Origin -> reads that can only have read it and are not placed.
    waiting: Vec<u32>,
    /// Origin -> the last call of such a read.
    until: Vec<u64>,
}

/// A number of used unknown writes per value that is still read, sorted.
type Used = Box<[(u32, u32)]>;

struct Search {
    /// Known steps; values are numbered from 0.
    steps: Vec<Step>,
    /// Value -> calls of its writes of unknown outcome.
    unknown: Vec<Vec<u64>>,
    /// Value -> the last return of a read of it.
    last_read: Vec<Option<u64>>,
    origins: Origins,
    /// Events of the open steps in the order of time: `2 i` is the call of step `i`, `2 i + 1` its
    /// return, and the last node is the head.
    next: Vec<u32>,
    prev: Vec<u32>,
    /// The placed steps.
    placed: Vec<u64>,
    /// No word before has a zero.
    full_until: usize,
    /// No word from here on has a one.
    empty_from: usize,
    /// (Last read of the value, value) -> how many of its unknown writes were placed; never 0.
    used: BTreeMap<(u64, u32), u32>,
    present: Present,
    /// What was placed, in this order.
    trail: Vec<Choice>,
    /// State -> what was used when it was met; none is as good as another.
    seen: HashMap<Box<[u64]>, Vec<Used>>,
    /// Placements done.
    placements: u64,
}

/// Searches. `bound` is decreased by the states kept in memory, weighed by their size.
pub(crate) fn search(steps: &[Step], bound: &mut u64) -> Found {
    let mut search = Search::new(steps);
    let mut stack: Vec<Frame> = Vec::new();
    loop {
        let choices = match search.place_forced() {
            Forced::AllPlaced => return Found::Order,
            Forced::DeadEnd => Vec::new(),
            Forced::Horizon(horizon) => {
                let choices = search.choices(horizon);
                // A state with one choice is remembered by what follows from it.
                match choices.len() < 2 || search.is_new(horizon) {
                    true => choices,
                    false => Vec::new(),
                }
            }
        };
        let mut spent = search.placements / PLACEMENTS_PER_STATE;
        search.placements %= PLACEMENTS_PER_STATE;
        if choices.len() > 1 {
            spent += 1 + (search.empty_from.saturating_sub(search.full_until)) as u64 / 8;
        }
        if *bound < spent {
            return Found::Undecided;
        }
        *bound -= spent;
        if let [choice] = choices[..] {
            search.place(choice);
            continue;
        }
        if !choices.is_empty() {
            stack.push(Frame {
                trail: search.trail.len(),
                present: search.present,
                choices,
            });
        }
        if !search.turn_back(&mut stack) {
            return Found::None;
        }
    }
}

/// What is left when all is placed that needs no choice.
enum Forced {
    AllPlaced,
    /// No order begins like this.
    DeadEnd,
    /// The first return of an open step.
    Horizon(u64),
}

impl Search {
    fn new(all: &[Step]) -> Search {
        let mut values: Vec<u32> = all.iter().map(|step| step.value).collect();
        values.push(ABSENT);
        values.sort_unstable();
        values.dedup();
        let row = |value: u32| values.partition_point(|v| *v < value) as u32;
        let steps: Vec<Step> = (all.iter().filter(|step| step.known))
            .map(|step| Step {
                value: row(step.value),
                ..*step
            })
            .collect();
        let mut unknown = vec![Vec::new(); values.len()];
        for step in all.iter().filter(|step| !step.known) {
            unknown[row(step.value) as usize].push(step.call);
        }
        let mut last_read = vec![None; values.len()];
        for step in steps.iter().filter(|step| !step.writes) {
            let last = &mut last_read[step.value as usize];
            *last = (*last).max(Some(step.ret));
        }
        let (next, prev) = linked(&steps);
        Search {
            origins: Origins::of(all, &steps, row, values.len()),
            unknown,
            last_read,
            next,
            prev,
            full_until: 0,
            empty_from: 0,
            placed: vec![0; steps.len().div_ceil(64)],
            used: BTreeMap::new(),
            present: Present {
                value: row(ABSENT),
                origin: (steps.len() + values.len()) as u32,
            },
            trail: Vec::new(),
            seen: HashMap::new(),
            placements: 0,
            steps,
        }
    }

    /// Open steps that may be placed next; they end at the horizon.
    fn open(&self) -> impl Iterator<Item = u32> + '_ {
        let mut node = self.next[self.steps.len() * 2];
        std::iter::from_fn(move || {
            let here = (node != END && node.is_multiple_of(2)).then_some(node / 2);
            if here.is_some() {
                node = self.next[node as usize];
            }
            here
        })
    }

    /// The first return of an open step; none: all are placed.
    fn horizon(&self) -> Option<u64> {
        let mut node = self.next[self.steps.len() * 2];
        while node != END && node.is_multiple_of(2) {
            node = self.next[node as usize];
        }
        (node != END).then(|| self.steps[node as usize / 2].ret)
    }

    /// Whether a read of this value is open.
    fn is_read_later(&self, value: u32, horizon: u64) -> bool {
        self.last_read[value as usize] >= Some(horizon)
    }

    /// Whether a read is open that can only have read what the register holds.
    fn must_stay(&self) -> bool {
        self.origins.waiting[self.present.origin as usize] > 0
    }

    /// Places all that needs no choice.
    fn place_forced(&mut self) -> Forced {
        let mut reads: Vec<u32> = Vec::new();
        loop {
            let Some(horizon) = self.horizon() else {
                return Forced::AllPlaced;
            };
            let is_read = |s: &Step| !s.writes && s.value == self.present.value;
            reads.extend((self.open()).filter(|i| is_read(&self.steps[*i as usize])));
            if !reads.is_empty() {
                for read in reads.drain(..) {
                    self.place(Choice::Known(read));
                }
                continue;
            }
            if self.must_stay() {
                return Forced::DeadEnd;
            }
            let forgotten = self.open().find(|i| {
                let step = &self.steps[*i as usize];
                step.writes && !self.is_read_later(step.value, horizon)
            });
            match forgotten {
                Some(write) => self.place(Choice::Known(write)),
                None => return Forced::Horizon(horizon),
            }
        }
    }

    /// What may be placed next, the most urgent last.
    fn choices(&self, horizon: u64) -> Vec<Choice> {
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
        let mut choices: Vec<((u64, u64), Choice)> = Vec::new();
        for (value, (read_by, write)) in by_value {
            if let Some((ret, write)) = write.filter(|(_, write)| self.has_room(*write, value)) {
                choices.push(((read_by, ret), Choice::Known(write)));
            }
            let unknown = &self.unknown[value as usize];
            if read_by == NEVER || unknown.is_empty() {
                continue;
            }
            let used = self.used.get(&self.used_key(value)).copied().unwrap_or(0);
            let unused = unknown.get(used as usize);
            let origin = self.steps.len() as u32 + value;
            if unused.is_some_and(|call| *call <= horizon) && self.has_room(origin, value) {
                choices.push(((read_by, NEVER), Choice::Unknown(value)));
            }
        }
        choices.sort_by_key(|(urgency, _)| std::cmp::Reverse(*urgency));
        choices.into_iter().map(|(_, choice)| choice).collect()
    }

    /// Whether the register may hold this from now until the last read that can have read nothing
    /// else was called: until then nothing but reads of the value may have to be placed.
    fn has_room(&self, origin: u32, value: u32) -> bool {
        let until = self.origins.until[origin as usize];
        let mut node = self.next[self.steps.len() * 2];
        while node != END {
            let step = &self.steps[node as usize / 2];
            if node.is_multiple_of(2) {
                if step.call >= until {
                    return true;
                }
            } else if step.ret >= until {
                return true;
            } else if node / 2 != origin && (step.writes || step.value != value) {
                return false;
            }
            node = self.next[node as usize];
        }
        true
    }

    fn used_key(&self, value: u32) -> (u64, u32) {
        (self.last_read[value as usize].unwrap_or(0), value)
    }

    fn place(&mut self, choice: Choice) {
        self.trail.push(choice);
        self.placements += 1;
        match choice {
            Choice::Unknown(value) => {
                *self.used.entry(self.used_key(value)).or_insert(0) += 1;
                self.present = Present {
                    value,
                    origin: self.steps.len() as u32 + value,
                };
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
                let step = &self.steps[index as usize];
                if step.writes {
                    self.present = Present {
                        value: step.value,
                        origin: index,
                    };
                } else if let Some(origin) = self.origins.sole[index as usize] {
                    self.origins.waiting[origin as usize] -= 1;
                }
            }
        }
    }

    /// Goes back to the last state with a choice left and takes it. False: there is none.
    fn turn_back(&mut self, stack: &mut Vec<Frame>) -> bool {
        while let Some(frame) = stack.last_mut() {
            let (trail, present) = (frame.trail, frame.present);
            let choice = frame.choices.pop();
            if frame.choices.is_empty() {
                stack.pop();
            }
            if let Some(choice) = choice {
                self.undo_to(trail, present);
                self.place(choice);
                return true;
            }
        }
        false
    }

    /// Takes back all that was placed after the trail had this length.
    fn undo_to(&mut self, trail: usize, present: Present) {
        for choice in self.trail.split_off(trail).into_iter().rev() {
            match choice {
                Choice::Unknown(value) => {
                    if let Entry::Occupied(mut used) = self.used.entry(self.used_key(value)) {
                        *used.get_mut() -= 1;
                        if *used.get() == 0 {
                            used.remove();
                        }
                    }
                }
                Choice::Known(index) => self.reopen(index),
            }
        }
        self.present = present;
    }

    /// The state as words, with the present value and what is placed.
    fn is_new(&mut self, horizon: u64) -> bool {
        while self.placed.get(self.full_until) == Some(&u64::MAX) {
            self.full_until += 1;
        }
        while self.empty_from > self.full_until && self.placed[self.empty_from - 1] == 0 {
            self.empty_from -= 1;
        }
        let value = match self.is_read_later(self.present.value, horizon) {
            true => self.present.value,
            false => FORGOTTEN,
        };
        let mut state = vec![u64::from(value), self.full_until as u64];
        state.extend(&self.placed[self.full_until.min(self.empty_from)..self.empty_from]);
        let used = self.used.range((horizon, 0)..);
        let mut used: Vec<(u32, u32)> = used.map(|((_, value), used)| (*value, *used)).collect();
        used.sort_unstable();
        let known = self.seen.entry(state.into_boxed_slice()).or_default();
        if known.iter().any(|other| is_at_most(other, &used)) {
            return false;
        }
        known.retain(|other| !is_at_most(&used, other));
        known.push(used.into_boxed_slice());
        true
    }

    fn reopen(&mut self, index: u32) {
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
        if let Some(origin) = self.origins.sole[index as usize] {
            self.origins.waiting[origin as usize] += 1;
        }
    }
}

/// Whether no value was used more often in `a` than in `b`; both are sorted.
fn is_at_most(a: &[(u32, u32)], b: &[(u32, u32)]) -> bool {
    let mut b = b.iter();
    a.iter().all(|(value, used)| {
        let same = b.by_ref().find(|(other, _)| other >= value);
        same.is_some_and(|(other, most)| other == value && used <= most)
    })
}

impl Origins {
    /// `steps` are the known ones of `all`, in the same order.
    fn of(all: &[Step], steps: &[Step], row: impl Fn(u32) -> u32, values: usize) -> Origins {
        let writes = Writes::of(all);
        let mut number = 0;
        let origin_of: Vec<u32> = (all.iter())
            .map(|step| {
                let known = number;
                number += u32::from(step.known);
                match step.known {
                    true => known,
                    false => steps.len() as u32 + row(step.value),
                }
            })
            .collect();
        let initial = steps.len() + values;
        let mut origins = Origins {
            sole: vec![None; steps.len()],
            waiting: vec![0; initial + 1],
            until: vec![0; initial + 1],
        };
        for (read, step) in all.iter().enumerate().filter(|(_, step)| !step.writes) {
            let initial = writes.may_be_initial(read).then_some(initial as u32);
            let written = writes.candidates(read).map(|write| origin_of[write]);
            let mut possible = initial.into_iter().chain(written);
            let Some(first) = possible.next() else {
                continue;
            };
            // Several unknown writes are several candidates: one may be placed again after another.
            if possible.next().is_none() {
                origins.sole[origin_of[read] as usize] = Some(first);
                origins.waiting[first as usize] += 1;
                let until = &mut origins.until[first as usize];
                *until = step.call.max(*until);
            }
        }
        origins
    }
}

/// The list of events: see [`Search::next`].
fn linked(steps: &[Step]) -> (Vec<u32>, Vec<u32>) {
    let mut nodes: Vec<u32> = (0..2 * steps.len() as u32).collect();
    // Of equal times, calls come first: steps that touch are concurrent.
    nodes.sort_by_key(|node| {
        let step = &steps[*node as usize / 2];
        match node % 2 {
            0 => (step.call, 0, *node),
            _ => (step.ret, 1, *node),
        }
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
    (next, prev)
}
