//! A history sorted by key and lock ref: what the judges read.

use super::history::{Heard, History, Op, SectionIx, Value, What};
use fermata_protocol::base::{KeyId, SessionId};
use fermata_protocol::request::Mode;
use std::collections::BTreeMap;

/// Ref and generation.
pub(super) type Life = (u64, u32);

/// Where a write stands in the order of all writes of its key: ref, generation, number.
pub(super) type Rank = (u64, u32, u64);

/// One transmission of a critical put.
pub(super) struct Put<'a> {
    /// Its number among the puts that the section issued, from 1.
    pub(super) number: u64,
    pub(super) value: &'a Value,
    pub(super) op: &'a Op,
}

/// What a section was shown: with its grant, or by a get.
pub(super) struct Read<'a> {
    pub(super) value: &'a Value,
    pub(super) invoked: u64,
    pub(super) end: u64,
    /// The get; none: the grant.
    pub(super) get: Option<&'a Op>,
}

/// One section on one key.
pub(super) struct Link<'a> {
    pub(super) life: Life,
    /// None: a `write`, which is a section of its own.
    pub(super) section: Option<SectionIx>,
    /// Whose enter it is: the request has the same name however often it was sent.
    pub(super) request: (SessionId, u64),
    pub(super) mode: Mode,
    /// When its enter was first sent, or its resumption: its ref is given, or has not ended, then.
    pub(super) sent: u64,
    /// When its ref was known first.
    pub(super) told: u64,
    /// When the grant was known first; the end of time: never.
    pub(super) entered: u64,
    pub(super) lease: Option<u64>,
    /// The transmissions that were granted it.
    pub(super) grants: Vec<&'a Op>,
    /// Its puts of this key that may have taken effect, by number.
    pub(super) puts: Vec<Put<'a>>,
    /// What it was shown of this key, by the time of the answer.
    pub(super) reads: Vec<Read<'a>>,
}

impl<'a> Link<'a> {
    /// The number of the last acknowledged put; 0: none.
    pub(super) fn acknowledged(&self) -> u64 {
        let acked = self.puts.iter().filter(|p| p.op.succeeded());
        acked.map(|p| p.number).max().unwrap_or(0)
    }

    /// The rank of one of its puts.
    pub(super) fn rank(&self, number: u64) -> Rank {
        (self.life.0, self.life.1, number)
    }

    /// What it found, with its grant or in a get before its puts; none: not observed.
    pub(super) fn view(&self) -> Option<&'a Value> {
        let first = self.reads.first()?;
        let is_before = self.puts.iter().all(|put| put.op.invoked >= first.end);
        (first.get.is_none() || is_before).then_some(first.value)
    }

    /// The two exclude each other, and this one comes first.
    pub(super) fn excludes(&self, later: &Link<'_>) -> bool {
        self.life < later.life && (self.mode, later.mode) != (Mode::Shared, Mode::Shared)
    }
}

/// All that happened to one key.
#[derive(Default)]
pub(super) struct Chain<'a> {
    /// Sections by ref and generation.
    pub(super) links: Vec<Link<'a>>,
    /// Eventual puts that may have taken effect.
    pub(super) eventual: Vec<&'a Op>,
    /// `write`s whose ref is not known, and which may have taken effect.
    pub(super) floating: Vec<&'a Op>,
    /// Successful linearizable reads.
    pub(super) reads: Vec<&'a Op>,
    /// Writes that certainly changed nothing.
    pub(super) failed: Vec<&'a Op>,
}

impl<'a> Chain<'a> {
    fn link(&mut self, section: SectionIx) -> Option<&mut Link<'a>> {
        self.links.iter_mut().find(|l| l.section == Some(section))
    }
}

/// The chains of all keys.
pub(super) fn chains<'a>(
    history: &'a History,
    has_sections: &dyn Fn(&KeyId) -> bool,
) -> BTreeMap<&'a KeyId, Chain<'a>> {
    let mut sent: BTreeMap<(SessionId, u64), u64> = BTreeMap::new();
    for op in &history.ops {
        if let What::Enter { .. } = &op.what {
            sent.entry((op.session, op.request)).or_insert(op.invoked);
        }
    }
    let mut chains: BTreeMap<&KeyId, Chain<'_>> = BTreeMap::new();
    for (i, section) in history.sections.iter().enumerate() {
        for held in &section.held {
            let request = (section.session, section.request);
            let value = section.values.get(&held.key);
            let entry = value.map(|value| Read {
                value,
                invoked: section.told,
                end: section.entered,
                get: None,
            });
            chains.entry(&held.key).or_default().links.push(Link {
                life: (held.lock_ref.0, held.generation),
                section: Some(SectionIx(i)),
                request,
                mode: section.mode,
                sent: sent.get(&request).copied().unwrap_or(0),
                told: section.told,
                entered: section.entered,
                lease: section.lease,
                grants: Vec::new(),
                puts: Vec::new(),
                reads: entry.into_iter().collect(),
            });
        }
    }
    for op in &history.ops {
        place(op, history, has_sections, &mut chains);
    }
    for chain in chains.values_mut() {
        chain.links.sort_by_key(|l| (l.life, l.entered));
        for link in &mut chain.links {
            link.puts.sort_by_key(|put| put.number);
            link.reads.sort_by_key(|read| read.end);
        }
    }
    chains
}

fn place<'a>(
    op: &'a Op,
    history: &'a History,
    has_sections: &dyn Fn(&KeyId) -> bool,
    chains: &mut BTreeMap<&'a KeyId, Chain<'a>>,
) {
    if let (What::Enter { .. }, Some(section), true) = (&op.what, op.section, op.succeeded()) {
        for held in &history.sections[section.0].held {
            if let Some(link) = chains.entry(&held.key).or_default().link(section) {
                link.grants.push(op);
            }
        }
    }
    let Some(key) = op.what.key() else { return };
    let chain = chains.entry(key).or_default();
    match (&op.what, &op.outcome) {
        (What::Read(_) | What::Write(..), _) if !has_sections(key) => {}
        (What::Put { .. } | What::Write(..) | What::EventualPut(..), Heard::Failed(_)) => {
            chain.failed.push(op);
        }
        (What::Put { number, value, .. }, _) => {
            if let Some(link) = op.section.and_then(|section| chain.link(section)) {
                let number = *number;
                link.puts.push(Put { number, value, op });
            }
        }
        (What::Get(_), Heard::Value(value)) => {
            if let Some(link) = op.section.and_then(|section| chain.link(section)) {
                link.reads.push(Read {
                    value,
                    invoked: op.invoked,
                    end: op.end(),
                    get: Some(op),
                });
            }
        }
        (What::Write(_, value), Heard::Done(Some(tag))) if tag.lock_ref.0 > 0 => {
            chain.links.push(Link {
                life: (tag.lock_ref.0, 0),
                section: None,
                request: (op.session, op.request),
                mode: Mode::Exclusive,
                sent: op.invoked,
                told: op.end(),
                entered: op.end(),
                lease: None,
                grants: Vec::new(),
                puts: vec![Put {
                    number: 1,
                    value,
                    op,
                }],
                reads: Vec::new(),
            });
        }
        (What::Write(..), _) => chain.floating.push(op),
        (What::Read(_), Heard::Value(_)) => chain.reads.push(op),
        (What::EventualPut(..), _) => chain.eventual.push(op),
        _ => {}
    }
}
