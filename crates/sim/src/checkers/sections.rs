//! Histories of sections, sorted by key and lock ref: what the section checkers read.

use crate::catalogue::Catalogue;
use crate::history::{History, Op, Outcome, SectionIx, Value, What};
use fermata_protocol::base::KeyId;
use fermata_protocol::request::Mode;
use std::collections::BTreeMap;

/// Where a write stands in the order of all writes of its key: ref, generation, place in the
/// section.
pub type Rank = (u64, u32, u64);

/// One critical put.
#[derive(Clone, Debug)]
pub struct Put<'a> {
    /// Its place among the puts that the section issued, from 1.
    pub place: u64,
    /// The value.
    pub value: &'a Value,
    /// The operation.
    pub op: &'a Op,
}

impl Put<'_> {
    /// Its client was told that it is durable.
    pub fn acknowledged(&self) -> bool {
        self.op.succeeded()
    }
}

/// One section on one key.
#[derive(Clone, Debug)]
pub struct Link<'a> {
    /// Ref and generation.
    pub position: (u64, u32),
    /// Which section; none: a `write`, which is a section of its own.
    pub section: Option<SectionIx>,
    /// Exclusive or shared.
    pub mode: Mode,
    /// What it found at entry, or in its first get where a grant has left it out; none: not
    /// observed.
    pub view: Option<&'a Value>,
    /// True times of the call to enter and of the grant.
    pub invoked: u64,
    /// See `invoked`.
    pub entered: u64,
    /// Its puts of this key, in order.
    pub puts: Vec<Put<'a>>,
    /// Its successful gets of this key.
    pub gets: Vec<&'a Op>,
}

impl Link<'_> {
    /// The place of the last acknowledged put; 0: none.
    pub fn acknowledged(&self) -> u64 {
        let acked = self.puts.iter().filter(|p| p.acknowledged());
        acked.map(|p| p.place).max().unwrap_or(0)
    }

    /// The rank of one of its puts.
    pub fn rank(&self, place: u64) -> Rank {
        (self.position.0, self.position.1, place)
    }
}

/// All that happened to one key of a section keyspace.
#[derive(Clone, Debug, Default)]
pub struct Chain<'a> {
    /// Sections by ref and generation.
    pub links: Vec<Link<'a>>,
    /// Eventual puts that may have taken effect.
    pub eventual: Vec<&'a Op>,
    /// `write`s whose ref is not known, and which may have taken effect.
    pub floating: Vec<&'a Op>,
    /// Successful linearizable reads.
    pub reads: Vec<&'a Op>,
    /// Operations that certainly changed nothing, with the value that they would have written.
    pub failed: Vec<(&'a Op, &'a Value)>,
}

/// The chains of all keys of section keyspaces.
pub fn chains(history: &History) -> BTreeMap<&KeyId, Chain<'_>> {
    let mut chains: BTreeMap<&KeyId, Chain<'_>> = BTreeMap::new();
    for (i, section) in history.sections.iter().enumerate() {
        for held in &section.held {
            chains.entry(&held.key).or_default().links.push(Link {
                position: (held.lock_ref.0, held.generation),
                section: Some(SectionIx(i)),
                mode: section.mode,
                view: section.values.get(&held.key),
                invoked: section.invoked,
                entered: section.entered,
                puts: Vec::new(),
                gets: Vec::new(),
            });
        }
    }
    let mut issued: BTreeMap<SectionIx, u64> = BTreeMap::new();
    for op in &history.ops {
        place(op, &history.catalogue, &mut chains, &mut issued);
    }
    for chain in chains.values_mut() {
        chain.links.sort_by_key(|l| (l.position, l.entered));
    }
    chains
}

fn place<'a>(
    op: &'a Op,
    catalogue: &Catalogue,
    chains: &mut BTreeMap<&'a KeyId, Chain<'a>>,
    issued: &mut BTreeMap<SectionIx, u64>,
) {
    match (&op.what, op.section) {
        (What::Put { key, value, .. }, Some(section)) => {
            let place = issued.entry(section).or_insert(0);
            *place += 1;
            let chain = chains.entry(key).or_default();
            if op.failed() {
                chain.failed.push((op, value));
            } else if let Some(link) = link_of(chain, section) {
                let place = *place;
                link.puts.push(Put { place, value, op });
            }
        }
        (What::Get(key), Some(section)) if op.succeeded() => {
            if let Some(link) = link_of(chains.entry(key).or_default(), section) {
                if let (None, true, Outcome::Value(value)) =
                    (link.view, link.puts.is_empty(), &op.outcome)
                {
                    link.view = Some(value);
                }
                link.gets.push(op);
            }
        }
        (What::Write(key, value), _) if catalogue.has_sections(key) => {
            let chain = chains.entry(key).or_default();
            match &op.outcome {
                Outcome::Failed(_) => chain.failed.push((op, value)),
                Outcome::Done(Some(tag)) if tag.lock_ref.0 > 0 => chain.links.push(Link {
                    position: (tag.lock_ref.0, 0),
                    section: None,
                    mode: Mode::Exclusive,
                    view: None,
                    invoked: op.invoked,
                    entered: op.end(),
                    puts: vec![Put {
                        place: 1,
                        value,
                        op,
                    }],
                    gets: Vec::new(),
                }),
                _ => chain.floating.push(op),
            }
        }
        (What::Read(key), _) if catalogue.has_sections(key) && op.succeeded() => {
            chains.entry(key).or_default().reads.push(op);
        }
        (What::EventualPut(key, value), _) => {
            let chain = chains.entry(key).or_default();
            if op.failed() {
                chain.failed.push((op, value));
            } else {
                chain.eventual.push(op);
            }
        }
        _ => {}
    }
}

fn link_of<'b, 'a>(chain: &'b mut Chain<'a>, section: SectionIx) -> Option<&'b mut Link<'a>> {
    chain.links.iter_mut().find(|l| l.section == Some(section))
}
