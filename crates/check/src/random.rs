//! Random histories from seeds, for tests of checkers: of an atomic register with random delays
//! around its moments of effect, and such histories with something changed, most of which are
//! wrong.
//!
//! The same seed gives the same history on every machine and in every version of this crate:
//! verdicts of other checkers are recorded by seed.

use crate::{Action, Ending, Operation};
use fermata_protocol::base::Rng;

/// What a random history is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Operations, those without effect included.
    pub operations: u64,
    /// Clients, each with one operation at a time, above 0.
    pub clients: u64,
    /// Values to choose from; none: each write has its own.
    pub values: Option<u64>,
    /// Writes, deletes included, in percent of the operations.
    pub writes: u64,
    /// Deletes in percent of the writes.
    pub deletes: u64,
    /// Operations of unknown outcome, in percent. Half of them take effect, some of them late.
    pub unknown: u64,
    /// Operations that fail, in percent.
    pub failed: u64,
    /// The longest pause between two operations of a client; an operation takes up to 20.
    pub pause: u64,
}

impl Shape {
    /// A shape of few operations, of all kinds.
    pub fn small(random: &mut Rng, operations: u64) -> Shape {
        Shape {
            operations,
            clients: 1 + random.below(5),
            values: random.chance(50).then(|| 1 + random.below(4)),
            writes: 30 + random.below(50),
            deletes: random.below(2) * random.below(40),
            unknown: random.below(2) * random.below(30),
            failed: random.below(2) * random.below(20),
            pause: 1 + random.below(40),
        }
    }
}

/// One operation before the register's answer.
struct Draft {
    client: u64,
    call: u64,
    /// None: it has no effect.
    effect: Option<u64>,
    write: Option<Option<u64>>,
    outcome: Ending,
}

/// A linearizable history: of a register with such clients.
pub fn linearizable(random: &mut Rng, shape: Shape) -> Vec<Operation<u64>> {
    let mut free_at: Vec<u64> = (0..shape.clients).map(|_| random.below(30)).collect();
    let mut drafts: Vec<Draft> = Vec::new();
    for number in 0..shape.operations {
        let client = random.below(shape.clients) as usize;
        let call = free_at[client] + random.below(shape.pause);
        let takes = random.below(20);
        let mut effect = Some(call + random.below(takes + 1));
        let mut outcome = Ending::Ok {
            returned: call + takes,
        };
        free_at[client] = call + takes + 1;
        if random.chance(shape.unknown) {
            outcome = Ending::Unknown;
            let late = random.below(2) * random.below(200);
            effect = random.chance(50).then_some(call + takes + late);
        } else if random.chance(shape.failed) {
            (outcome, effect) = (Ending::Failed, None);
        }
        let value = shape
            .values
            .map_or(number + 1, |values| 1 + random.below(values));
        let write = random.chance(shape.writes);
        let delete = random.chance(shape.deletes);
        drafts.push(Draft {
            client: client as u64,
            call,
            effect,
            write: write.then_some((!delete).then_some(value)),
            outcome,
        });
    }
    drafts.sort_by_key(|draft| draft.effect);
    let mut register = None;
    let mut history: Vec<Operation<u64>> = Vec::new();
    for draft in drafts {
        let action = match draft.write {
            Some(value) => {
                if draft.effect.is_some() {
                    register = value;
                }
                Action::Write(value)
            }
            None => Action::Read(register),
        };
        history.push(Operation {
            client: draft.client,
            call: draft.call,
            action,
            outcome: draft.outcome,
        });
    }
    history.sort_by_key(|operation| (operation.call, operation.client));
    history
}

/// Changes a history a little: what a read returned, when an operation took place, or how it ended.
/// Most histories are no longer linearizable after a few changes.
pub fn change(random: &mut Rng, history: &mut [Operation<u64>]) {
    if history.is_empty() {
        return;
    }
    let one = random.below(history.len() as u64) as usize;
    let other = random.below(history.len() as u64) as usize;
    match random.below(8) {
        // A read returns what another operation read or wrote.
        0..=4 => {
            let reads: Vec<usize> = (0..history.len())
                .filter(|place| matches!(history[*place].action, Action::Read(_)))
                .collect();
            if let Some(count) = (reads.len() as u64).checked_sub(1) {
                let read = reads[random.below(count + 1) as usize];
                let (Action::Read(value) | Action::Write(value)) = history[other].action;
                history[read].action = Action::Read(value);
            }
        }
        // An operation takes place at another time.
        5 | 6 => {
            let shift = random.below(60);
            let call = history[one].call;
            history[one].call = (call + shift).saturating_sub(30);
            if let Ending::Ok { returned } = &mut history[one].outcome {
                *returned = history[one].call + (*returned - call);
            }
        }
        // An unknown outcome is held for none.
        _ => {
            if history[one].outcome == Ending::Unknown {
                history[one].outcome = Ending::Failed;
            }
        }
    }
}

/// Histories on which other checkers were asked: `crates/check/tests/porcupine.txt`.
pub const COMPARED: u64 = 1_000;

/// The history of a seed below [`COMPARED`]: every fifth is of a register as it is, the others
/// are changed in some places.
pub fn compared(seed: u64) -> Vec<Operation<u64>> {
    let mut random = Rng::new(0x00fe_12a7 + seed);
    let operations = 8 + random.below(60);
    let shape = Shape::small(&mut random, operations);
    let mut history = linearizable(&mut random, shape);
    if !seed.is_multiple_of(5) {
        for _ in 0..4 + random.below(16) {
            change(&mut random, &mut history);
        }
    }
    history
}
