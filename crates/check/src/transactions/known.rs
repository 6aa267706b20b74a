//! What is known of a history before anything is ordered: which transactions took effect, what each
//! read of others, and faults that single reads show.

use super::evidence::{Because, Kind, Violation};
use super::{Action, History, Transaction};
use crate::Ending;

/// Lists are shown by so many of their last elements.
const SHOWN: usize = 8;

/// What a transaction read of others, without its own writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read<'a> {
    /// The key's number.
    pub key: u32,
    /// A register has one value or none.
    pub values: &'a [u64],
    /// All versions are shown, not only the newest one.
    pub list: bool,
}

/// What one transaction did, in numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Did<'a> {
    pub reads: Vec<Read<'a>>,
    /// Keys' numbers and values, in order.
    pub writes: Vec<(u32, u64)>,
    /// The place of an action that contradicts the transaction's own.
    contradiction: Option<usize>,
    /// It took effect.
    pub took_effect: bool,
}

impl Did<'_> {
    /// What it wrote to a key, in order.
    pub(super) fn writes_to(&self, key: u32) -> impl DoubleEndedIterator<Item = u64> + '_ {
        let on_key = self.writes.iter().filter(move |(k, _)| *k == key);
        on_key.map(|(_, value)| *value)
    }
}

/// A history, prepared.
pub(super) struct Known<'a, K> {
    pub history: &'a History<K>,
    pub keys: Vec<&'a K>,
    /// By place.
    pub did: Vec<Did<'a>>,
}

impl<'a, K: Ord + Clone> Known<'a, K> {
    pub(super) fn of(history: &'a History<K>) -> Known<'a, K> {
        let mut keys: Vec<(u32, &K)> = history.keys.iter().map(|(k, (_, n))| (*n, k)).collect();
        keys.sort_by_key(|(number, _)| *number);
        let did = history.transactions.iter().map(|t| did(history, t));
        let mut known = Known {
            history,
            keys: keys.into_iter().map(|(_, key)| key).collect(),
            did: did.collect(),
        };
        known.settle();
        known
    }

    pub(super) fn len(&self) -> usize {
        self.did.len()
    }

    /// The place of the transaction that wrote a value.
    pub(super) fn writer(&self, key: u32, value: u64) -> Option<usize> {
        let writer = self.history.writers.get(&(key, value));
        writer.map(|place| *place as usize)
    }

    pub(super) fn key(&self, key: u32) -> K {
        self.keys[key as usize].clone()
    }

    /// Places of the transactions that took effect.
    pub(super) fn effective(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(|place| self.did[*place].took_effect)
    }

    /// Those of unknown outcome took effect if somebody saw them whose reads count.
    fn settle(&mut self) {
        let mut reached: Vec<usize> = self.effective().collect();
        while let Some(reader) = reached.pop() {
            let reads = self.did[reader].reads.clone();
            for (read, value) in reads
                .iter()
                .flat_map(|r| r.values.iter().map(move |v| (r, v)))
            {
                let Some(writer) = self.writer(read.key, *value) else {
                    continue;
                };
                let unknown = self.history.transactions[writer].outcome == Ending::Unknown;
                if unknown && !self.did[writer].took_effect {
                    self.did[writer].took_effect = true;
                    reached.push(writer);
                }
            }
        }
    }

    /// What is impossible by itself.
    pub(super) fn impossible(&self) -> Option<Violation<K>> {
        for place in self.effective() {
            let did = &self.did[place];
            if let Some(action) = did.contradiction {
                return Some(self.internal(place, action));
            }
            let found = did.reads.iter().find_map(|read| self.wrong(place, read));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn internal(&self, place: usize, action: usize) -> Violation<K> {
        let actions = &self.history.transactions[place].actions;
        let action = &actions[action];
        let own = actions.iter().take_while(|a| !std::ptr::eq(*a, action));
        let own = own.filter(|a| a.key() == action.key());
        let mut because: Vec<Because<K>> = own
            .filter_map(Action::written)
            .map(|value| Because::Wrote {
                writer: place,
                key: action.key().clone(),
                value,
                failed: false,
            })
            .collect();
        let values = match action {
            Action::List { values, .. } => values.clone(),
            Action::Read { value, .. } => value.iter().copied().collect(),
            Action::Append { .. } | Action::Write { .. } => Vec::new(),
        };
        because.push(Because::Read {
            reader: place,
            key: action.key().clone(),
            values,
        });
        violation(Kind::Internal, vec![place], because)
    }

    /// What one read shows to be wrong without any order.
    fn wrong(&self, reader: usize, read: &Read<'_>) -> Option<Violation<K>> {
        let mut sorted = read.values.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Some(self.blame(Kind::Duplicate, reader, read, twice[0]));
        }
        for value in read.values {
            let Some(writer) = self.writer(read.key, *value) else {
                let because = vec![self.read_fact(reader, read, *value)];
                return Some(violation(Kind::Unwritten, vec![reader], because));
            };
            if self.history.transactions[writer].outcome == Ending::Failed {
                return Some(self.blame(Kind::FailedRead, reader, read, *value));
            }
            if writer == reader {
                // Its own writes are split off: this one comes after the read.
                return Some(self.blame(Kind::Internal, reader, read, *value));
            }
        }
        // The newest version must be its writer's last one.
        let newest = *read.values.last()?;
        let writer = self.writer(read.key, newest)?;
        let last = self.did[writer].writes_to(read.key).next_back();
        (last != Some(newest))
            .then(|| self.blame(Kind::IntermediateRead, reader, read, last.unwrap_or(newest)))
    }

    /// A violation of a read and of who wrote a value.
    pub(super) fn blame(
        &self,
        kind: Kind,
        reader: usize,
        read: &Read<'_>,
        value: u64,
    ) -> Violation<K> {
        let mut because = vec![self.read_fact(reader, read, value)];
        let mut places = vec![reader];
        if let Some(writer) = self.writer(read.key, value) {
            because.push(self.wrote_fact(writer, read.key, value));
            if writer != reader {
                places.push(writer);
            }
        }
        violation(kind, places, because)
    }

    /// A read, cut behind `about` or to its end.
    pub(super) fn read_fact(&self, reader: usize, read: &Read<'_>, about: u64) -> Because<K> {
        let last = read.values.iter().rposition(|v| *v == about);
        let end = last.map_or(read.values.len(), |at| at + 1);
        let end = if end < SHOWN {
            read.values.len().min(SHOWN)
        } else {
            end
        };
        Because::Read {
            reader,
            key: self.key(read.key),
            values: read.values[end.saturating_sub(SHOWN)..end].to_vec(),
        }
    }

    pub(super) fn wrote_fact(&self, writer: usize, key: u32, value: u64) -> Because<K> {
        Because::Wrote {
            writer,
            key: self.key(key),
            value,
            failed: self.history.transactions[writer].outcome == Ending::Failed,
        }
    }
}

/// A violation that is as small as it can be.
pub(super) fn violation<K>(
    kind: Kind,
    transactions: Vec<usize>,
    because: Vec<Because<K>>,
) -> Violation<K> {
    Violation {
        kind,
        transactions,
        because,
        minimal: true,
    }
}

/// Splits off what a transaction saw of itself.
fn did<'a, K: Ord>(history: &History<K>, transaction: &'a Transaction<K>) -> Did<'a> {
    let mut did = Did {
        took_effect: matches!(transaction.outcome, Ending::Ok { .. }),
        ..Did::default()
    };
    for (place, action) in transaction.actions.iter().enumerate() {
        let key = history.keys[action.key()].1;
        match action {
            Action::Append { value, .. } | Action::Write { value, .. } => {
                did.writes.push((key, *value));
            }
            Action::List { values, .. } => {
                let own: Vec<u64> = did.writes_to(key).collect();
                match values.strip_suffix(&own[..]) {
                    Some(values) => did.reads.push(Read {
                        key,
                        values,
                        list: true,
                    }),
                    None => did.contradiction = did.contradiction.or(Some(place)),
                }
            }
            Action::Read { value, .. } => {
                let own = did.writes_to(key).next_back();
                match own {
                    Some(_) if *value == own => {}
                    Some(_) => did.contradiction = did.contradiction.or(Some(place)),
                    None => did.reads.push(Read {
                        key,
                        values: value.as_slice(),
                        list: false,
                    }),
                }
            }
        }
    }
    did
}
