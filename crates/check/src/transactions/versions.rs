//! Checker 2: without timestamps, by the order of versions that reads of lists show.
//!
//! The longest read of a key is the order of its versions; every other read must be its beginning.
//! Adya's edges come from neighbours in it. Acknowledged writes that are in no read come behind all
//! that was read: from who read everything there leads an edge to each such write, through one node
//! per key, so that there are as many edges as readers and writes, not their product. The order of
//! real time is made of barriers in the same way: a transaction's return leads to a barrier,
//! barriers lead to later ones, and the last one before a begin leads to the transaction. That is
//! the same order as an edge for each pair, with at most three edges per transaction.

use super::Verdict;
use super::evidence::{Because, Kind, Violation};
use super::graph::{Cycle, Edge, Graph};
use super::known::{Known, Read, violation};
use crate::Ending;

/// What an edge stands for. Keys are numbers.
#[derive(Clone, Copy)]
enum Why {
    WriteWrite {
        key: u32,
        before: u64,
        after: u64,
    },
    WriteRead {
        key: u32,
        value: u64,
    },
    ReadWrite {
        key: u32,
        value: u64,
    },
    /// From who read all versions that were read to the node behind them.
    Behind,
    /// From there to who wrote what was not read.
    Unread {
        key: u32,
        value: u64,
    },
    Time,
}

/// The versions of one key.
struct Key<'a> {
    key: u32,
    /// Who read, and what.
    reads: Vec<(usize, Read<'a>)>,
    /// Effective appends.
    appends: Vec<(usize, u64)>,
}

pub(super) fn check<K: Ord + Clone>(known: &Known<'_, K>) -> Verdict<K> {
    if let Some(violation) = known.impossible() {
        return Verdict::Violation(violation);
    }
    let mut builder = Builder {
        known,
        edges: Vec::new(),
        nodes: known.len(),
    };
    for key in keys(known) {
        if let Some(violation) = builder.key(&key) {
            return Verdict::Violation(violation);
        }
    }
    // What has no serial order at all is worse than what has none in real time.
    let graph = Graph::new(known.len(), builder.nodes, builder.edges.clone());
    if let Some(cycle) = graph.shortest_cycle() {
        return Verdict::Violation(tell(known, &cycle));
    }
    builder.real_time();
    let graph = Graph::new(known.len(), builder.nodes, builder.edges);
    match graph.shortest_cycle() {
        Some(cycle) => Verdict::Violation(tell(known, &cycle)),
        None => Verdict::Serializable,
    }
}

fn keys<'a, K: Ord + Clone>(known: &Known<'a, K>) -> Vec<Key<'a>> {
    let mut keys: Vec<Key<'a>> = (0..known.keys.len() as u32)
        .map(|key| Key {
            key,
            reads: Vec::new(),
            appends: Vec::new(),
        })
        .collect();
    for place in known.effective() {
        let did = &known.did[place];
        for read in &did.reads {
            keys[read.key as usize].reads.push((place, *read));
        }
        for (key, value) in &did.writes {
            keys[*key as usize].appends.push((place, *value));
        }
    }
    keys
}

struct Builder<'a, 'b, K> {
    known: &'b Known<'a, K>,
    edges: Vec<Edge<Why>>,
    nodes: usize,
}

impl<K: Ord + Clone> Builder<'_, '_, K> {
    fn edge(&mut self, from: usize, to: usize, why: Why) {
        if from != to {
            let (from, to) = (from as u32, to as u32);
            self.edges.push(Edge { from, to, why });
        }
    }

    fn writer(&self, key: u32, value: u64) -> usize {
        let writer = self.known.writer(key, value);
        writer.expect("reads of what nobody wrote are found before")
    }

    /// Adds the edges of a key, or tells what is wrong with its reads.
    fn key(&mut self, key: &Key<'_>) -> Option<Violation<K>> {
        let longest = key.reads.iter().max_by_key(|(_, read)| read.values.len());
        let Some((longest_reader, longest)) = longest.copied() else {
            return None; // Nobody read it: its writes may be in any order.
        };
        for (reader, read) in &key.reads {
            if !longest.values.starts_with(read.values) {
                return Some(self.mismatch((*reader, read), (longest_reader, &longest)));
            }
        }
        if let Some(violation) = self.torn(longest_reader, &longest) {
            return Some(violation);
        }
        let order = longest.values;
        let number = key.key;
        for pair in order.windows(2) {
            let [before, after] = [pair[0], pair[1]];
            let why = Why::WriteWrite {
                key: number,
                before,
                after,
            };
            self.edge(self.writer(number, before), self.writer(number, after), why);
        }
        for (reader, read) in &key.reads {
            if let Some(value) = read.values.last().copied() {
                let why = Why::WriteRead { key: number, value };
                self.edge(self.writer(number, value), *reader, why);
            }
            if let Some(value) = order.get(read.values.len()).copied() {
                let why = Why::ReadWrite { key: number, value };
                self.edge(*reader, self.writer(number, value), why);
            }
        }
        self.unread(key, order)
    }

    /// Two reads, neither of which begins with the other.
    fn mismatch(&self, one: (usize, &Read<'_>), other: (usize, &Read<'_>)) -> Violation<K> {
        let pairs = one.1.values.iter().zip(other.1.values);
        let (a, b) = pairs.clone().find(|(a, b)| a != b).unwrap_or((&0, &0));
        let mut because = vec![
            self.known.read_fact(one.0, one.1, *a),
            self.known.read_fact(other.0, other.1, *b),
        ];
        for value in [*a, *b] {
            if let Some(writer) = self.known.writer(one.1.key, value) {
                because.push(self.known.wrote_fact(writer, one.1.key, value));
            }
        }
        let mut places = vec![one.0, other.0];
        places.dedup();
        violation(Kind::PrefixMismatch, places, because)
    }

    /// A transaction some of whose appends are read and some not, or in another order.
    fn torn(&self, reader: usize, read: &Read<'_>) -> Option<Violation<K>> {
        let mut seen = std::collections::HashMap::new();
        for value in read.values {
            let writer = self.writer(read.key, *value);
            let count: &mut usize = seen.entry(writer).or_default();
            let mut own = self.known.did[writer].writes_to(read.key);
            let expected = own.nth(*count).unwrap_or(*value);
            if expected != *value {
                let kind = Kind::IntermediateRead;
                return Some(self.known.blame(kind, reader, read, expected));
            }
            *count += 1;
        }
        // By place, so that the same history gets the same evidence.
        let mut seen: Vec<(usize, usize)> = seen.into_iter().collect();
        seen.sort_unstable();
        seen.into_iter().find_map(|(writer, count)| {
            let missing = self.known.did[writer].writes_to(read.key).nth(count)?;
            let kind = Kind::IntermediateRead;
            Some(self.known.blame(kind, reader, read, missing))
        })
    }

    /// Appends that took effect and are in no read come behind all versions that were read.
    fn unread(&mut self, key: &Key<'_>, order: &[u64]) -> Option<Violation<K>> {
        let number = key.key;
        let mut read: Vec<u64> = order.to_vec();
        read.sort_unstable();
        let unread = key
            .appends
            .iter()
            .filter(|(_, v)| read.binary_search(v).is_err());
        let mut unread: Vec<(usize, u64)> = unread.copied().collect();
        unread.dedup_by_key(|(writer, _)| *writer);
        if unread.is_empty() {
            return None;
        }
        let full = key
            .reads
            .iter()
            .filter(|(_, r)| r.values.len() == order.len());
        let mut full: Vec<usize> = full.map(|(reader, _)| *reader).collect();
        full.dedup();
        // A transaction that read everything and then wrote comes before all others whose writes
        // nobody read: two such transactions are each before the other.
        let of = |reader: usize| {
            let found = unread.binary_search_by_key(&reader, |(writer, _)| *writer);
            found.ok().map(|at| unread[at].1)
        };
        let mut both = full
            .iter()
            .filter_map(|reader| Some((*reader, of(*reader)?)));
        let (one, other) = (both.next(), both.next());
        if let (Some(one), Some(other)) = (one, other) {
            return Some(self.lost_update(number, one, other));
        }
        let behind = self.nodes;
        self.nodes += 1;
        for reader in full {
            if one.is_some_and(|(both, _)| both == reader) {
                for (writer, value) in &unread {
                    let (key, value) = (number, *value);
                    self.edge(reader, *writer, Why::ReadWrite { key, value });
                }
            } else {
                self.edge(reader, behind, Why::Behind);
            }
        }
        for (writer, value) in unread {
            self.edge(behind, writer, Why::Unread { key: number, value });
        }
        None
    }

    fn lost_update(&self, key: u32, one: (usize, u64), other: (usize, u64)) -> Violation<K> {
        let missed = |from: usize, (to, value): (usize, u64)| Because::ReadWrite {
            from,
            to,
            key: self.known.key(key),
            value,
        };
        let because = vec![missed(one.0, other), missed(other.0, one)];
        violation(Kind::SingleAntiDependency, vec![one.0, other.0], because)
    }

    /// Barriers: see the essay above.
    fn real_time(&mut self) {
        let transactions = &self.known.history.transactions;
        let strict: Vec<usize> = (self.known.effective())
            .filter(|place| !transactions[*place].snapshot)
            .collect();
        let mut ends: Vec<(u64, usize)> = (strict.iter())
            .filter_map(|place| match transactions[*place].outcome {
                Ending::Ok { returned } => Some((returned, *place)),
                Ending::Failed | Ending::Unknown => None,
            })
            .collect();
        ends.sort_unstable();
        let first = self.nodes;
        let mut times: Vec<u64> = ends.iter().map(|(at, _)| *at).collect();
        times.dedup();
        self.nodes += times.len();
        for barrier in 1..times.len() {
            self.edge(first + barrier - 1, first + barrier, Why::Time);
        }
        for (at, place) in ends {
            let barrier = times.partition_point(|time| *time < at);
            self.edge(place, first + barrier, Why::Time);
        }
        for place in strict {
            let before = times.partition_point(|time| *time < transactions[place].begin);
            if before > 0 {
                self.edge(first + before - 1, place, Why::Time);
            }
        }
    }
}

/// A cycle in terms of transactions.
fn tell<K: Ord + Clone>(known: &Known<'_, K>, cycle: &Cycle<Why>) -> Violation<K> {
    let mut because = Vec::new();
    let mut places = Vec::new();
    let mut from = 0;
    for edge in &cycle.edges {
        let to = edge.to as usize;
        if (edge.from as usize) < known.len() {
            from = edge.from as usize;
            places.push(from);
        }
        if to < known.len() {
            because.push(reason(known, (from, to), edge.why));
        }
    }
    let count = |which: fn(&Because<K>) -> bool| because.iter().filter(|b| which(b)).count();
    let missed = count(|b| matches!(b, Because::ReadWrite { .. }));
    let read = count(|b| matches!(b, Because::WriteRead { .. }));
    let timed = count(|b| matches!(b, Because::RealTime { .. }));
    let kind = match (timed, missed, read) {
        (0, 0, 0) => Kind::WriteCycle,
        (0, 0, _) => Kind::InformationCycle,
        (0, 1, _) => Kind::SingleAntiDependency,
        (0, _, _) => Kind::AntiDependency,
        _ => Kind::RealTime,
    };
    Violation {
        kind,
        transactions: places,
        because,
        minimal: cycle.shortest,
    }
}

fn reason<K: Ord + Clone>(
    known: &Known<'_, K>,
    (from, to): (usize, usize),
    why: Why,
) -> Because<K> {
    match why {
        Why::WriteWrite { key, before, after } => Because::WriteWrite {
            from,
            to,
            key: known.key(key),
            before,
            after,
        },
        Why::WriteRead { key, value } => Because::WriteRead {
            from,
            to,
            key: known.key(key),
            value,
        },
        Why::ReadWrite { key, value } | Why::Unread { key, value } => Because::ReadWrite {
            from,
            to,
            key: known.key(key),
            value,
        },
        Why::Time | Why::Behind => {
            let transactions = known.history.transactions();
            let returned = match transactions[from].outcome {
                Ending::Ok { returned } => returned,
                Ending::Failed | Ending::Unknown => u64::MAX,
            };
            Because::RealTime {
                from,
                to,
                returned,
                begin: transactions[to].begin,
            }
        }
    }
}
