//! Checker 1: by the timestamps at which the store says that transactions took effect.

use super::evidence::{Because, Kind, Violation};
use super::known::{Known, Read, violation};
use super::{Timestamp, Verdict};
use crate::Ending;

/// A version of a key.
#[derive(Clone, Copy)]
struct Version {
    at: Timestamp,
    writer: usize,
    value: u64,
}

pub(super) fn check<K: Ord + Clone>(known: &Known<'_, K>) -> Verdict<K> {
    if let Some(violation) = known.impossible() {
        return Verdict::Violation(violation);
    }
    let mut at: Vec<Option<Timestamp>> = vec![None; known.len()];
    for place in known.effective() {
        at[place] = known.history.transactions[place].timestamp;
        if at[place].is_none() {
            return Verdict::Undecided(format!(
                "transaction {place} took effect, and its timestamp was not recorded"
            ));
        }
    }
    let checker = Checker {
        known,
        versions: versions(known, &at),
        at,
    };
    let found = checker.same_timestamp();
    let found = found.or_else(|| checker.wrong_versions());
    let found = found.or_else(|| checker.real_time());
    found.map_or(Verdict::Serializable, Verdict::Violation)
}

/// The versions of each key, oldest first.
fn versions<K: Ord + Clone>(known: &Known<'_, K>, at: &[Option<Timestamp>]) -> Vec<Vec<Version>> {
    let mut versions: Vec<Vec<Version>> = vec![Vec::new(); known.keys.len()];
    for (writer, at) in at.iter().enumerate() {
        let Some(at) = *at else { continue };
        for (key, value) in &known.did[writer].writes {
            versions[*key as usize].push(Version {
                at,
                writer,
                value: *value,
            });
        }
    }
    for versions in &mut versions {
        // Stable: a transaction's own versions stay in its order.
        versions.sort_by_key(|version| (version.at, version.writer));
    }
    versions
}

struct Checker<'a, 'b, K> {
    known: &'b Known<'a, K>,
    /// By key.
    versions: Vec<Vec<Version>>,
    /// By place; none: it did not take effect.
    at: Vec<Option<Timestamp>>,
}

impl<K: Ord + Clone> Checker<'_, '_, K> {
    fn at_fact(&self, transaction: usize) -> Because<K> {
        let timestamp = self.at[transaction].expect("only of those that took effect");
        Because::At {
            transaction,
            timestamp,
        }
    }

    fn writes(&self, place: usize) -> bool {
        !self.known.did[place].writes.is_empty()
    }

    fn same_timestamp(&self) -> Option<Violation<K>> {
        for (key, versions) in self.versions.iter().enumerate() {
            let same =
                |pair: &&[Version]| pair[0].at == pair[1].at && pair[0].writer != pair[1].writer;
            if let Some(pair) = versions.windows(2).find(same) {
                let [one, other] = [pair[0], pair[1]];
                let wrote = |v: Version| self.known.wrote_fact(v.writer, key as u32, v.value);
                let because = vec![
                    wrote(one),
                    wrote(other),
                    self.at_fact(one.writer),
                    self.at_fact(other.writer),
                ];
                let places = vec![one.writer, other.writer];
                return Some(violation(Kind::SameTimestamp, places, because));
            }
        }
        None
    }

    fn wrong_versions(&self) -> Option<Violation<K>> {
        self.known.effective().find_map(|reader| {
            let mut reads = self.known.did[reader].reads.iter();
            reads.find_map(|read| self.wrong_version(reader, read))
        })
    }

    fn wrong_version(&self, reader: usize, read: &Read<'_>) -> Option<Violation<K>> {
        let versions = &self.versions[read.key as usize];
        let at = self.at[reader]?;
        let below = versions.partition_point(|version| version.at < at);
        let through = versions.partition_point(|version| version.at <= at);
        if self.writes(reader) {
            // A version of somebody else at this very timestamp: who comes first is not said.
            let other = versions[below..through].iter().find(|v| v.writer != reader);
            if let Some(other) = other {
                let mut found = self
                    .known
                    .blame(Kind::SameTimestamp, reader, read, other.value);
                found.because.push(self.at_fact(reader));
                return Some(found);
            }
        }
        let count = if self.writes(reader) { below } else { through };
        let there = &versions[..count];
        let newest = there.last();
        let right = if read.list {
            let values = there.iter().map(|version| &version.value);
            there.len() == read.values.len() && values.eq(read.values)
        } else {
            newest.map(|version| version.value) == read.values.last().copied()
        };
        if right {
            return None;
        }
        // The first version that is there and was not read, or was read and is not there.
        let differs = (0..there.len().max(read.values.len())).find(|i| {
            !read.list || there.get(*i).map(|v| v.value) != read.values.get(*i).copied()
        })?;
        let missed = match read.list {
            true => there.get(differs).or(newest),
            false => newest,
        };
        let seen = match read.list {
            true => read.values.get(differs).copied(),
            false => read.values.last().copied(),
        };
        Some(self.tell_wrong_version(reader, read, missed.copied(), seen))
    }

    fn tell_wrong_version(
        &self,
        reader: usize,
        read: &Read<'_>,
        missed: Option<Version>,
        seen: Option<u64>,
    ) -> Violation<K> {
        let about = seen.or_else(|| read.values.last().copied()).unwrap_or(0);
        let mut because = vec![
            self.known.read_fact(reader, read, about),
            self.at_fact(reader),
        ];
        let mut places = vec![reader];
        let newest = missed.map(|version| version.value);
        let seen = seen.and_then(|value| Some((self.known.writer(read.key, value)?, value)));
        let missed = missed.map(|version| (version.writer, version.value));
        for (writer, value) in missed.into_iter().chain(seen) {
            if !places.contains(&writer) {
                because.push(self.known.wrote_fact(writer, read.key, value));
                because.push(self.at_fact(writer));
                places.push(writer);
            }
        }
        if places.len() == 1 {
            because.push(Because::Newest {
                key: self.known.key(read.key),
                value: newest,
            });
        }
        violation(Kind::WrongVersion, places, because)
    }

    /// In the order of time: who has the highest timestamp of all that have returned.
    fn real_time(&self) -> Option<Violation<K>> {
        let transactions = &self.known.history.transactions;
        let strict = |place: &usize| !transactions[*place].snapshot;
        let mut begins: Vec<usize> = self.known.effective().filter(strict).collect();
        let returned = |place: usize| match transactions[place].outcome {
            Ending::Ok { returned } => Some(returned),
            Ending::Failed | Ending::Unknown => None,
        };
        let mut returns: Vec<(u64, usize)> = begins
            .iter()
            .filter_map(|p| Some((returned(*p)?, *p)))
            .collect();
        begins.sort_by_key(|place| transactions[*place].begin);
        returns.sort_unstable();
        let mut returns = returns.into_iter().peekable();
        let mut highest: Option<(Option<Timestamp>, u64, usize)> = None;
        for place in begins {
            let begin = transactions[place].begin;
            while let Some((at, earlier)) = returns.next_if(|(at, _)| *at < begin) {
                highest = highest.max(Some((self.at[earlier], at, earlier)));
            }
            let Some((timestamp, returned, earlier)) = highest else {
                continue;
            };
            // Who only reads sees what is at its timestamp.
            let ordered = match self.writes(place) {
                true => timestamp < self.at[place],
                false => timestamp <= self.at[place],
            };
            if !ordered {
                let because = vec![
                    Because::RealTime {
                        from: earlier,
                        to: place,
                        returned,
                        begin,
                    },
                    self.at_fact(earlier),
                    self.at_fact(place),
                ];
                return Some(violation(
                    Kind::TimestampOrder,
                    vec![earlier, place],
                    because,
                ));
            }
        }
        None
    }
}
