//! Registers over several stores: whatever the order of seals, moves and deletes, and whoever knows
//! of them late, what clients see is atomic (V1 to V5).

use crate::atomicity::{Clocks, clock, terms};
use crate::world::{BOUND, World, register_key, view_of};
use bytes::Bytes;
use fermata_protocol::base::{Epoch, NodeName, Planted, StoragePolicy, Tag};
use fermata_protocol::register::{Op, OpEnd, OpId, Place, StoreAsk};
use std::collections::{BTreeMap, BTreeSet};

/// What a client wants, however often it has to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Want {
    Read,
    Write(u128),
    Sweep(u128),
    /// A read in the name of the segment, with which the key moves into its epoch.
    Walk(Epoch),
}

/// An operation that has completed.
struct Done {
    began: usize,
    ended: usize,
    tag: Tag,
    write: bool,
    /// The tag of the write whose value it is; unknown of a sweep.
    origin: Option<Tag>,
}

/// A kind of schedule.
#[derive(Clone, Copy, Debug)]
struct Case {
    storage: StoragePolicy,
    clocks: Clocks,
    planted: Planted,
}

/// Names of sweeps; those of writes are smaller.
const SWEEPS: u128 = 1 << 90;
/// Nodes there are; a view has some of them.
const NODES: usize = 7;

struct Run {
    case: Case,
    world: World,
    open: BTreeMap<(usize, OpId), (usize, Want)>,
    /// What goes on in the next epoch: whose, since when, what, and under which tag.
    again: Vec<(usize, usize, Want, Option<Tag>)>,
    done: Vec<Done>,
    /// How many of the epochs that have begun, and of the sources that are closed, each caller
    /// knows.
    knows: Vec<(usize, usize)>,
    /// The write of each tag that a read has returned.
    values: BTreeMap<Tag, Option<Bytes>>,
    names: u128,
}

pub(crate) fn value_of(writer: u128) -> Bytes {
    Bytes::from(format!("value {writer}"))
}

impl Run {
    fn new(case: Case, seed: u64) -> Run {
        let mut world = World::new(NODES, 3, seed, case.planted);
        world.storage = case.storage;
        for i in 0..NODES {
            world.node_clocks[i] = clock(&mut world, case.clocks);
        }
        for i in 0..3 {
            world.caller_clocks[i] = clock(&mut world, case.clocks);
        }
        let members = members(&mut world);
        world.views = vec![view_of(Epoch::FIRST, members.clone())];
        world.created = vec![members.into_iter().collect()];
        Run {
            case,
            world,
            open: BTreeMap::new(),
            again: Vec::new(),
            done: Vec::new(),
            knows: vec![(1, 0); 3],
            values: BTreeMap::new(),
            names: 0,
        }
    }

    fn last(&self) -> Epoch {
        Epoch(self.world.views.len() as u64)
    }

    /// The place that a caller knows.
    fn place(&self, caller: usize) -> Place {
        let (epochs, closed) = self.knows[caller];
        self.world.place_in(Epoch(epochs as u64), closed)
    }

    /// Whether an epoch has begun: a majority has voted for the end of the one before, and sealed
    /// its store with that vote. Quorums may be larger: who reads through to it seals the rest.
    fn is_open(&self, epoch: Epoch) -> bool {
        let Some(before) = epoch.0.checked_sub(1).filter(|before| *before > 0) else {
            return true;
        };
        let place = self.world.place_in(Epoch(before), 0);
        let nodes = place.view.nodes().map(|name| name.0 as usize);
        let sealed = nodes.filter(|i| self.world.is_sealed_in(Epoch(before), *i));
        sealed.count() >= place.view.majority()
    }

    fn step(&mut self, step: usize) -> Result<(), String> {
        if self.case.clocks != Clocks::None {
            let by = self.world.rng.below(BOUND / 2);
            self.world.advance(by);
            self.collect(step)?;
        }
        let caller = self.world.rng.below(3) as usize;
        let busy = self.open.keys().any(|(c, _)| *c == caller)
            || self.again.iter().any(|(c, ..)| *c == caller);
        match self.world.rng.below(100) {
            0..4 => self.change(),
            4..12 => self.create(),
            12..20 => self.learn(caller),
            20..24 => self.delete(),
            24..26 => {
                self.world.replace_caller(caller);
                self.open.retain(|(c, _), _| *c != caller);
                self.again.retain(|(c, ..)| *c != caller);
            }
            26..52 if !busy => self.start(caller, step),
            52..60 => self.go_on(),
            _ => self.world.disturb(),
        }
        self.collect(step)
    }

    /// The next epoch is decided: other members, or some of them.
    fn change(&mut self) {
        let open = self.last().0 as usize - 1 - self.world.closed.len();
        let everybody = self.world.created.last().is_some_and(|created| {
            let place = self.world.place_in(self.last(), 0);
            created.len() >= place.shape().quorum
        });
        if open >= 2 || !everybody || self.last().0 >= 4 || !self.is_open(self.last()) {
            return;
        }
        let epoch = self.last().next();
        let members = members(&mut self.world);
        self.world.views.push(view_of(epoch, members));
        self.world.created.push(BTreeSet::new());
    }

    /// A member seals the last store but one, or creates the last one, in which it seals all others
    /// that it has, or would have had.
    fn create(&mut self) {
        let epoch = self.last();
        if epoch == Epoch::FIRST {
            return;
        }
        let before = Epoch(epoch.0 - 1);
        let i = self.world.rng.below(NODES as u64) as usize;
        let name = NodeName(i as u32);
        let is_in = |world: &World, epoch| world.view_in(epoch).seat_of(name).is_some();
        if is_in(&self.world, before) && self.world.created[before.0 as usize - 1].contains(&i) {
            self.world.seal_in(before, i, epoch);
        }
        if !self.is_open(epoch) || !is_in(&self.world, epoch) {
            return;
        }
        for older in 1..epoch.0 {
            if is_in(&self.world, Epoch(older)) {
                self.world.created[older as usize - 1].insert(i);
                self.world.seal_in(Epoch(older), i, epoch);
            }
        }
        self.world.created[epoch.0 as usize - 1].insert(i);
    }

    /// A caller or a node hears of what was decided.
    fn learn(&mut self, caller: usize) {
        let closed = self.world.closed.len();
        let epochs = self.last().0 as usize;
        let more = |world: &mut World, known: usize, all: usize| {
            known + world.rng.below((all - known) as u64 + 1) as usize
        };
        let (known, gone) = self.knows[caller];
        let known = more(&mut self.world, known, epochs);
        self.knows[caller] = (known, more(&mut self.world, gone, closed));
        let i = self.world.rng.below(NODES as u64) as usize;
        let known = self.world.known[i];
        self.world.known[i] = more(&mut self.world, known, closed);
    }

    /// A member removes a store that is a source no more, and that it has sealed.
    fn delete(&mut self) {
        let i = self.world.rng.below(NODES as u64) as usize;
        let known = self.world.known[i];
        for epoch in self.world.closed.clone().into_iter().take(known) {
            if self.world.is_sealed_in(epoch, i) && self.world.chance(50) {
                let next = Epoch(epoch.0 + 1);
                self.world.tell_in(epoch, i, StoreAsk::Delete { next });
            }
        }
    }

    fn start(&mut self, caller: usize, step: usize) {
        self.names += 1;
        let want = match self.world.rng.below(100) {
            0..40 => Want::Write(self.names),
            40..48 => Want::Sweep(SWEEPS + self.names),
            48..70 => Want::Walk(Epoch::FIRST),
            _ => Want::Read,
        };
        self.begin(caller, step, want, None);
    }

    fn begin(&mut self, caller: usize, began: usize, want: Want, under: Option<Tag>) {
        let key = register_key();
        let op = match (&want, under) {
            (Want::Write(writer), Some(tag)) => Op::Cross {
                key,
                tag,
                value: Some(value_of(*writer)),
            },
            (Want::Write(writer), None) => Op::Write {
                key,
                writer: *writer,
                value: Some(value_of(*writer)),
            },
            (Want::Sweep(writer), _) => Op::Sweep {
                key,
                writer: *writer,
            },
            (Want::Read, _) => Op::Read { key, moves: false },
            (Want::Walk(_), _) => Op::Read { key, moves: true },
        };
        let place = self.place(caller);
        let want = match want {
            Want::Walk(_) => Want::Walk(place.store.epoch),
            other => other,
        };
        let id = self.world.start_at(caller, op, &place);
        self.open.insert((caller, id), (began, want));
    }

    /// What the end of an epoch has interrupted begins again, where its caller knows of a later
    /// one.
    fn go_on(&mut self) {
        if self.again.is_empty() {
            return;
        }
        let at = self.world.rng.below(self.again.len() as u64) as usize;
        let (caller, began, want, under) = self.again.swap_remove(at);
        self.learn(caller);
        self.begin(caller, began, want, under);
    }

    fn collect(&mut self, step: usize) -> Result<(), String> {
        for (caller, id, outcome) in std::mem::take(&mut self.world.outcomes) {
            let under = self.open.remove(&(caller, id));
            let (began, want) = under.expect("one outcome for each operation");
            self.ended(caller, (began, step), want, outcome)?;
        }
        Ok(())
    }

    fn ended(
        &mut self,
        caller: usize,
        (began, ended): (usize, usize),
        want: Want,
        outcome: OpEnd,
    ) -> Result<(), String> {
        let mut origin = None;
        let tag = match (&want, outcome) {
            (_, OpEnd::Moved { under, .. }) => {
                self.again.push((caller, began, want, under));
                return Ok(());
            }
            (Want::Read | Want::Walk(_), OpEnd::Value { value, tag }) => {
                let known = self.values.entry(tag).or_insert(value.clone());
                if *known != value {
                    return Err(format!("{tag:?} has two values"));
                }
                if let Want::Walk(epoch) = want {
                    self.walked(epoch);
                }
                origin = Some(self.origin(value.as_ref()));
                tag
            }
            (Want::Write(writer), OpEnd::Stored { tag }) => {
                if tag.writer != *writer {
                    return Err("a write completed another's tag".into());
                }
                origin = Some(tag);
                tag
            }
            (Want::Sweep(_), OpEnd::Stored { tag }) => tag,
            (
                _,
                OpEnd::Unavailable { .. }
                | OpEnd::Undecodable
                | OpEnd::Busy { .. }
                | OpEnd::Past { .. },
            ) => return Ok(()),
            (_, other) => panic!("not an outcome of a register: {other:?}"),
        };
        self.done.push(Done {
            began,
            ended,
            tag,
            write: matches!(want, Want::Write(_)),
            origin,
        });
        Ok(())
    }

    /// The tag of the write of a value: each makes one.
    fn origin(&self, value: Option<&Bytes>) -> Tag {
        let Some(value) = value else { return Tag::ZERO };
        let mut writers = 1..=self.names;
        let writer = writers.find(|writer| value_of(*writer) == *value);
        let tags = &self.world.tags[&writer.expect("every value was written by somebody")];
        *tags.first().expect("one")
    }

    /// Everything has moved into `epoch`: its sources are closed, unless it has ended itself.
    fn walked(&mut self, epoch: Epoch) {
        if epoch != self.last() {
            return;
        }
        for older in 1..epoch.0 {
            if !self.world.closed.contains(&Epoch(older)) {
                self.world.closed.push(Epoch(older));
            }
        }
    }

    /// Everybody lives and hears everything: a read and a write complete in the last epoch.
    fn end(&mut self, step: usize) -> Result<(), String> {
        self.open.clear();
        self.again.clear();
        let epochs = self.last().0 as usize;
        for _ in 0..400 {
            self.create();
        }
        for _ in 0..3 {
            let closed = self.world.closed.len();
            self.world.known = vec![closed; NODES];
            self.knows = vec![(epochs, closed); 3];
            let place = self.place(0);
            let key = register_key();
            self.world.replace_caller(0);
            let id = self
                .world
                .start_at(0, Op::Read { key, moves: true }, &place);
            let outcome = self.run(id)?;
            self.ended(0, (step, step), Want::Walk(self.last()), outcome)?;
        }
        self.check()
    }

    fn run(&mut self, id: OpId) -> Result<OpEnd, String> {
        for _ in 0..200 {
            self.world.settle();
            if let Some(outcome) = self.world.outcome(id, 0) {
                return match outcome {
                    OpEnd::Value { .. } => Ok(outcome),
                    other => Err(format!("at rest a read ended in {other:?}")),
                };
            }
            self.world.advance(150_000);
        }
        panic!("an operation ends at its deadline");
    }

    fn check(&self) -> Result<(), String> {
        for a in &self.done {
            for b in self.done.iter().filter(|b| a.ended < b.began) {
                if b.tag < a.tag || (b.write && b.tag == a.tag) {
                    return Err(format!("{:?} after {:?} had completed", b.tag, a.tag));
                }
                if let (Some(a), Some(later)) = (a.origin, b.origin)
                    && (later < a || (b.write && later == a))
                {
                    return Err(format!("the value of {later:?} after that of {a:?}"));
                }
            }
        }
        for (tag, value) in &self.values {
            let of = (1..=self.names).find(|writer| *writer == tag.writer);
            if of.is_some_and(|writer| *value != Some(value_of(writer))) {
                return Err(format!("{tag:?} has another write's value"));
            }
        }
        let mut tags = self
            .world
            .tags
            .iter()
            .filter(|(writer, _)| **writer < SWEEPS);
        match tags.find(|(_, tags)| tags.len() > 1) {
            Some((writer, tags)) => Err(format!("write {writer} has the tags {tags:?}")),
            None => Ok(()),
        }
    }
}

/// Some nodes, in some order of seats.
fn members(world: &mut World) -> Vec<usize> {
    let mut all: Vec<usize> = (0..NODES).collect();
    let count = match world.storage {
        StoragePolicy::Replicated => [3, 3, 5][world.rng.below(3) as usize],
        _ => [4, 5, 6][world.rng.below(3) as usize],
    };
    let mut chosen = Vec::new();
    for _ in 0..count {
        let at = world.rng.below(all.len() as u64) as usize;
        chosen.push(all.swap_remove(at));
    }
    chosen
}

fn case(storage: StoragePolicy, clocks: Clocks) -> Case {
    Case {
        storage,
        clocks,
        planted: Planted::NONE,
    }
}

/// Every kind of schedule.
fn cases() -> [Case; 4] {
    let coded = StoragePolicy::Coded(terms(1, 3));
    [
        case(StoragePolicy::Replicated, Clocks::None),
        case(coded, Clocks::None),
        case(coded, Clocks::Some),
        case(StoragePolicy::Oreas(terms(1, 3)), Clocks::Some),
    ]
}

fn run(case: Case, seed: u64) -> Result<(), String> {
    const STEPS: usize = 300;
    let mut run = Run::new(case, seed);
    for step in 0..STEPS {
        run.step(step)?;
    }
    // A published policy may lose a value to dead writers, for ever.
    match case.storage.finalizes() || case.storage == StoragePolicy::Replicated {
        true => run.end(STEPS),
        false => run.check(),
    }
}

#[test]
fn registers_are_atomic_over_epochs() {
    for case in cases() {
        for seed in 0..500 {
            if let Err(why) = run(case, seed) {
                panic!("{case:?}, seed {seed}: {why}");
            }
        }
    }
}
mod planted {
    use super::*;
    use fermata_protocol::base::Bug;

    /// What some schedule of any kind must see.
    fn is_caught(bug: Bug) {
        let planted = Planted::only(bug);
        let cases = cases().map(|case| Case { planted, ..case });
        let mut all = (0..1_500).flat_map(|seed| cases.map(|case| (case, seed)));
        let found = all.find_map(|(case, seed)| Some((case, seed, run(case, seed).err()?)));
        assert!(found.is_some(), "{bug:?} survived");
        println!("{bug:?} caught by {found:?}");
    }

    #[test]
    fn a_caller_that_asks_the_last_source_alone_is_caught() {
        is_caught(Bug::OneSourceOnly);
    }

    #[test]
    fn a_write_that_looks_for_its_tag_in_the_present_store_alone_is_caught() {
        is_caught(Bug::TagFromNewStore);
    }

    #[test]
    fn a_read_that_leaves_in_a_source_what_one_member_has_is_caught() {
        is_caught(Bug::StandsAtOne);
    }

    #[test]
    fn a_read_that_counts_a_sealed_member_is_caught() {
        is_caught(Bug::ReadCrosses);
    }

    #[test]
    fn a_mark_before_its_value_is_caught() {
        is_caught(Bug::MarkFirst);
    }

    #[test]
    fn a_write_that_marks_its_key_is_caught() {
        is_caught(Bug::WriteMarks);
    }

    #[test]
    fn a_second_tag_for_a_write_that_crosses_is_caught() {
        is_caught(Bug::CrossesAnew);
    }

    #[test]
    fn a_source_quorum_one_too_small_is_caught() {
        is_caught(Bug::SourceQuorumTooSmall);
    }
}
