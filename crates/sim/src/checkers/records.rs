//! Parts of a segment's state that are records: at each member that says that it has them all up to
//! some command, they are exactly what the commands up to there have left; and at rest each member
//! has them all, and nobody else has any.

use super::Violation;
use super::ledger::Written;
use super::places::Places;
use crate::ledger::numbers;
use crate::machine::{Machine, Stepped};
use fermata_protocol::base::{KeyId, NodeName, SegmentId, Timestamp};
use fermata_protocol::io::{Memory as _, Write};
use fermata_protocol::ledger;
use fermata_protocol::records::{Change, Standing};
use fermata_protocol::wire::{decode, record};
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "records";

/// What each command has changed, by its number.
type Changes = BTreeMap<u64, Vec<Change>>;

/// The watcher.
#[derive(Debug, Default)]
pub struct Records {
    segments: BTreeMap<SegmentId, Changes>,
    /// When each number was written to a ledger's key.
    pub written: Written,
}

/// The number that a change writes to a key of a ledger, if it does.
fn written(change: &Change) -> Option<((KeyId, u64), Timestamp)> {
    let (key, at) = ledger::version_of(&change.name)?;
    let value = change.value.as_ref()?.get(1..)?;
    Some(((key, numbers(value).last().copied()?), at))
}

impl Records {
    /// A node was stepped.
    pub fn after_step(&mut self, machine: &Machine, done: &Stepped, found: &mut Vec<Violation>) {
        for (segment, position, changes) in &done.changed {
            let known = self.segments.entry(*segment).or_default();
            match known.get(position) {
                Some(known) if known != changes => {
                    let (name, number) = (machine.id().name.0, segment.0);
                    let detail = format!(
                        "command {position} of segment {number} does at node {name} what it does \
                         not do elsewhere: {changes:?}, and not {known:?}"
                    );
                    found.push(Violation::new(NAME, detail));
                }
                Some(_) => {}
                None => {
                    self.written.extend(changes.iter().filter_map(written));
                    known.insert(*position, changes.clone());
                }
            }
        }
        if self.segments.is_empty() {
            return;
        }
        for segment in self.segments.keys() {
            let note = record::standing(*segment);
            let put = |write: &Write| matches!(write, Write::Put { key, .. } if *key == note);
            if done.writes.iter().any(put) {
                found.extend(self.wrong_at(machine, *segment));
            }
        }
    }

    /// A process has started on the disk that was left.
    pub fn restarted(&self, machine: &Machine, found: &mut Vec<Violation>) {
        for segment in self.segments.keys() {
            found.extend(self.wrong_at(machine, *segment));
        }
    }

    /// What the commands up to this one have left.
    fn left_by(&self, segment: SegmentId, position: u64) -> BTreeMap<&[u8], &[u8]> {
        let mut records = BTreeMap::new();
        let known = self.segments.get(&segment).into_iter().flatten();
        for (_, changes) in known.take_while(|(at, _)| **at <= position) {
            for change in changes {
                match &change.value {
                    Some(value) => records.insert(&change.name[..], &value[..]),
                    None => records.remove(&change.name[..]),
                };
            }
        }
        records
    }

    fn wrong_at(&self, machine: &Machine, segment: SegmentId) -> Option<Violation> {
        let standing = standing(machine, segment)?;
        if standing.filling.is_some() {
            return None;
        }
        let (from, to) = record::parts(segment);
        let here = machine.memory()?.scan(&from, &to, usize::MAX);
        // What has rotted is nobody's fault.
        let rotten = here.iter().any(|(_, value)| value.is_err());
        let here = here
            .into_iter()
            .filter_map(|(key, value)| Some((record::name_of(&key), value.ok()?)));
        let here: BTreeMap<_, _> = here.collect();
        let here: BTreeMap<&[u8], &[u8]> = here.iter().map(|(k, v)| (&k[..], &v[..])).collect();
        let right = self.left_by(segment, standing.at);
        (here != right && !rotten).then(|| {
            let (name, at, number) = (machine.id().name.0, standing.at, segment.0);
            let (here, right) = (shown(&here, &right), shown(&right, &here));
            let detail =
                format!("node {name} has of segment {number} at {at} {here}, and not {right}");
            Violation::new(NAME, detail)
        })
    }

    /// What is not as it should be at rest.
    pub fn left(&self, machines: &BTreeMap<NodeName, Machine>, places: &Places) -> Option<String> {
        for (segment, changes) in &self.segments {
            let last = changes.keys().last().copied().unwrap_or_default();
            let view = &places.location(*segment).group.view;
            for (name, machine) in machines {
                if machine.node().is_none() || machine.lost.is_some() {
                    continue;
                }
                let standing = standing(machine, *segment);
                let (name, segment) = (name.0, segment.0);
                match (view.seat_of(machine.id().name), standing) {
                    (Some(_), Some(at)) if at.filling.is_none() && at.at >= last => {}
                    (None, None) => {}
                    (Some(_), at) => {
                        return Some(format!(
                            "node {name} lacks records of segment {segment} up to {last}: {at:?}"
                        ));
                    }
                    (None, Some(_)) => {
                        return Some(format!("node {name} keeps records of segment {segment}"));
                    }
                }
            }
        }
        None
    }
}

fn standing(machine: &Machine, segment: SegmentId) -> Option<Standing> {
    let bytes = machine.recall(&record::standing(segment))?;
    decode(&bytes).ok()
}

/// Those of `these` that are not in `others`.
fn shown(these: &BTreeMap<&[u8], &[u8]>, others: &BTreeMap<&[u8], &[u8]>) -> String {
    let mine = these
        .iter()
        .filter(|(name, value)| others.get(*name) != Some(*value));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let each = mine.map(|(name, value)| format!("{}={}", text(&name[1..]), text(value)));
    let each: Vec<String> = each.collect();
    format!("[{}]", each.join(" "))
}
