//! Random histories of transactions from seeds, for tests of checkers and of their speed: of a
//! store that runs one transaction at a time, with random delays around each moment of effect.

use super::{Action, Transaction};
use crate::Ending;
use fermata_protocol::base::Rng;
use std::collections::BTreeMap;

/// What a random history is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Transactions, those without effect included.
    pub transactions: u64,
    /// Keys that are in use at a time, above 0.
    pub keys: u64,
    /// A key is replaced by a fresh one after so many appends, above 0: lists stay short.
    pub appends: u64,
    /// Actions of a transaction, at most, above 0.
    pub actions: u64,
    /// Transactions begin and end up to so much before and after their moments, which are 10 apart.
    pub overlap: u64,
    /// Of unknown outcome, in percent; half of them take effect.
    pub unknown: u64,
    /// Failed, in percent.
    pub failed: u64,
    /// Snapshots, in percent.
    pub snapshots: u64,
    /// Registers instead of lists.
    pub registers: bool,
}

/// A store, and the states that it had.
struct Database {
    now: u64,
    /// Key -> versions and their moments.
    lists: BTreeMap<u64, Vec<(u64, u64)>>,
    next: u64,
}

impl Database {
    /// What was in a key at a moment.
    fn read(&self, key: u64, at: u64) -> Vec<u64> {
        let list = self.lists.get(&key).map_or(&[][..], Vec::as_slice);
        list.iter()
            .take_while(|(when, _)| *when <= at)
            .map(|(_, value)| *value)
            .collect()
    }
}

/// A strictly serializable history, in the order of its begins.
pub fn serial(random: &mut Rng, shape: Shape) -> Vec<Transaction<u64>> {
    let mut store = Database {
        now: 0,
        lists: BTreeMap::new(),
        next: 1,
    };
    let mut keys: Vec<u64> = (0..shape.keys).collect();
    let mut fresh = shape.keys;
    let mut all = Vec::new();
    for client in 0..shape.transactions {
        store.now += 10;
        let fate = random.below(100);
        let snapshot = random.chance(shape.snapshots);
        let (unknown, failed) = (shape.unknown, shape.unknown + shape.failed);
        let takes_effect = fate >= failed || fate * 2 < unknown;
        let at = match snapshot {
            true => store.now - random.below(store.now.min(200)),
            false => store.now,
        };
        let mut actions = Vec::new();
        let mut own: Vec<(u64, u64)> = Vec::new();
        for _ in 0..=random.below(shape.actions) {
            let slot = random.below(shape.keys) as usize;
            let key = keys[slot];
            if snapshot || random.chance(50) {
                let mut values = store.read(key, at);
                values.extend(own.iter().filter(|(k, _)| *k == key).map(|(_, v)| *v));
                actions.push(match shape.registers {
                    true => Action::Read {
                        key,
                        value: values.last().copied(),
                    },
                    false => Action::List { key, values },
                });
                continue;
            }
            let value = store.next;
            store.next += 1;
            own.push((key, value));
            actions.push(match shape.registers {
                true => Action::Write { key, value },
                false => Action::Append { key, value },
            });
            if store.lists.get(&key).map_or(0, Vec::len) as u64 + 1 >= shape.appends {
                keys[slot] = fresh;
                fresh += 1;
            }
        }
        if takes_effect {
            for (key, value) in own {
                store.lists.entry(key).or_default().push((store.now, value));
            }
        }
        let begin = (store.now + shape.overlap) - random.below(shape.overlap + 1);
        let returned = store.now + shape.overlap + random.below(shape.overlap + 1);
        let outcome = match fate {
            fate if fate < unknown => Ending::Unknown,
            fate if fate < failed => Ending::Failed,
            _ => Ending::Ok { returned },
        };
        all.push(Transaction {
            client,
            begin,
            outcome,
            timestamp: Some((at, 0)),
            snapshot,
            actions,
        });
    }
    all.sort_by_key(|transaction| transaction.begin);
    all
}
