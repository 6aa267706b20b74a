//! What the answers of a read amount to: the highest tag that they give a value of, and whether it
//! may be returned.
//!
//! Two rules bound it from below, one for replicas that are told what is final and one for the
//! published policies; see `least_to_return`. Tags above the one found are of writes that have not
//! completed: fewer than k of the answers show them, or they would have been found.

use super::message::{Answer, Content};
use super::op::OpEnd;
use super::policy;
use crate::base::{Bug, EventualTag, Kept, KeyId, LockRef, Planted, Shape, Tag};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;

/// The answers of one store's members, each of them `Cells`, with the shape that its parts have.
pub(super) struct Heard<'a> {
    pub(super) answers: Vec<&'a Answer>,
    pub(super) shape: Shape,
}

/// What the answers of a read amount to.
pub(super) struct Cells<'a> {
    /// The highest tag that gives a value, and that value.
    pub(super) tag: Tag,
    /// Where the value stands among eventual puts.
    pub(super) origin: EventualTag,
    pub(super) value: Option<Bytes>,
    /// Every answer of the present store has it, and promises what the sources do.
    pub(super) agree: bool,
    /// This very tag is known to be final here, and all promise what the sources do. That a higher
    /// one is says nothing of it: a sweep may have passed it over.
    pub(super) is_final: bool,
    /// Every answer of a source has it: it has ended there, and whoever reads through to that
    /// source finds it.
    pub(super) stands: bool,
    /// Somebody keeps more than this.
    pub(super) crowded: bool,
    /// The highest fence of the sources.
    pub(super) fence: Tag,
    eventual: Option<&'a (EventualTag, Content)>,
}

/// What a read makes of [`Cells`]: the same names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) agree: bool,
    pub(super) is_final: bool,
    pub(super) stands: bool,
    /// The members are to be told that it is final.
    pub(super) tells: bool,
}

/// What one store's answers amount to.
#[derive(Default)]
struct Found {
    tag: Tag,
    origin: EventualTag,
    value: Option<Bytes>,
    /// Answers that have the tag.
    holders: usize,
    /// No read may return less.
    least: Tag,
    settled: Tag,
    crowded: bool,
}

impl<'a> Cells<'a> {
    /// What the present store and its sources show together: parts are counted per store, each with
    /// the shape of its own view. None where the answers give no value that may be returned.
    pub(super) fn of(
        present: &Heard<'a>,
        sources: &[Heard<'a>],
        planted: Planted,
    ) -> Option<Cells<'a>> {
        let own = Found::of(present, planted);
        let olds = sources.iter().map(|heard| Found::of(heard, planted));
        let olds: Vec<Found> = olds.collect();
        let marks = present.answers.iter().filter_map(|answer| match answer {
            Answer::Cells { moved, .. } => moved.mark(),
            _ => None,
        });
        let least = olds.iter().map(|old| old.least).chain(marks);
        let least = least.max().unwrap_or_default().max(own.least);
        let fence = fence_of(sources);
        let promised = present.answers.iter().all(|a| promised(a) >= fence);
        let all = core::iter::once(present).chain(sources);
        let eventual = all
            .flat_map(|heard| &heard.answers)
            .filter_map(|answer| match answer {
                Answer::Cells { eventual, .. } => eventual.as_ref(),
                _ => None,
            });
        let eventual = eventual.max_by_key(|(tag, _)| *tag);
        let agree = own.holders == present.answers.len();
        let (settled, crowded) = (own.settled, own.crowded);
        let here = own.tag;
        let at_one = planted.has(Bug::StandsAtOne);
        let stands = sources.iter().zip(&olds).filter(|(heard, old)| {
            let all = old.holders == heard.answers.len();
            old.tag > Tag::ZERO && (all || at_one)
        });
        let stands = stands.map(|(_, old)| old.tag).max();
        let best = olds
            .into_iter()
            .chain([own])
            .max_by_key(|found| found.tag)?;
        if best.tag < least {
            return None;
        }
        let passed_over = planted.has(Bug::LowerTagTakenAsFinal) && best.tag < settled;
        Some(Cells {
            tag: best.tag,
            origin: best.origin,
            value: best.value,
            // Nothing is left to complete where nothing was ever written.
            agree: promised && best.tag == here && (agree || here == Tag::ZERO),
            is_final: promised && (best.tag == settled || passed_over),
            stands: stands == Some(best.tag),
            crowded,
            fence,
            eventual,
        })
    }

    /// A newer eventual put, as a synch for a ref takes it over: below the adopter, whoever took
    /// the put, for an adoption is no write (G24).
    pub(super) fn adopted(
        &self,
        key: &KeyId,
        lock_ref: LockRef,
        planted: Planted,
    ) -> Option<(Option<Bytes>, EventualTag)> {
        let (put, value) = self.newer_eventual(key)?;
        let section = EventualTag::of_section(lock_ref);
        let outranks = planted.has(Bug::AdoptionOutranks);
        Some((value, if outranks { section } else { section.min(put) }))
    }

    /// Whether a sweep of a source may have passed the value over, and returned an older one that
    /// only a member which is not heard has under the sweep's tag: a reader sweeps then itself
    /// (V3). What has ended in the source no sweep can have missed.
    pub(super) fn is_passed_over(&self, planted: Planted) -> bool {
        let of_register = self.fence.lock_ref.0 == 0 && self.tag > Tag::ZERO;
        let swept = of_register && self.tag < self.fence && !self.stands;
        swept && !planted.has(Bug::PassedIsCarried)
    }

    /// Whether a member of the present store has promised to take nothing as low, so that the value
    /// may never come here: somebody has begun a synch.
    pub(super) fn is_held_back(&self, present: &Heard<'_>, planted: Planted) -> bool {
        let held_back = present.answers.iter().any(|a| promised(a) > self.tag);
        held_back && !planted.has(Bug::HeldBackIsGranted)
    }

    /// What the read of a grant ends with, where the value can move here, or cannot.
    pub(super) fn entry(&self, key: &KeyId, moves: bool) -> OpEnd {
        match moves {
            true => OpEnd::Entry {
                value: self.value.clone(),
                tag: self.tag,
                eventual: self.newer_eventual(key),
            },
            false => OpEnd::Unmoved,
        }
    }

    /// What a read does with it.
    pub(super) fn shown(&self) -> Shown {
        Shown {
            agree: self.agree,
            is_final: self.is_final,
            stands: self.stands,
            tells: self.agree && self.crowded,
        }
    }

    /// The eventual value, where it is after what the critical cells give (F6), by origin (G24).
    pub(super) fn newer_eventual(&self, key: &KeyId) -> Option<(EventualTag, Option<Bytes>)> {
        let (tag, content) = self.eventual?;
        let sound = policy::is_sound(content, key, Tag::ZERO);
        let newer = sound && *tag > self.origin;
        newer.then(|| (*tag, policy::decode(&[content]).unwrap_or_default()))
    }
}

fn promised(answer: &Answer) -> Tag {
    match answer {
        Answer::Cells { fence, .. } => *fence,
        _ => Tag::ZERO,
    }
}

/// The highest fence in the answers of these stores.
pub(super) fn fence_of(stores: &[Heard<'_>]) -> Tag {
    let answers = stores.iter().flat_map(|heard| &heard.answers);
    answers.map(|a| promised(a)).max().unwrap_or_default()
}

/// The highest tag in the answers of these stores, or of those that were given up as undecodable,
/// and where it stands among eventual puts.
pub(super) fn highest(stores: &[Heard<'_>], given_up: bool) -> (Tag, EventualTag) {
    let answers = stores.iter().flat_map(|heard| &heard.answers);
    let versions = answers.flat_map(|answer| match answer {
        Answer::Cells { versions, .. } => &versions[..],
        _ => &[],
    });
    let meant = versions.filter(|v| !given_up || v.content == Content::Undecodable);
    let at = meant.map(|version| (version.tag, version.origin));
    at.max().unwrap_or_default()
}

impl Found {
    fn of(heard: &Heard<'_>, planted: Planted) -> Found {
        let mut found: BTreeMap<Tag, (EventualTag, Vec<&Content>)> = BTreeMap::new();
        let (mut lists, mut crowded) = (Vec::new(), false);
        let (mut gone, mut settled) = (Tag::ZERO, Tag::ZERO);
        for answer in &heard.answers {
            let Answer::Cells {
                versions,
                settled: known,
                dropped,
                ..
            } = answer
            else {
                continue;
            };
            lists.push(versions.iter().map(|v| v.tag).collect());
            settled = settled.max(*known);
            gone = gone.max(*dropped);
            crowded |= versions.len() > 1;
            for version in versions {
                let entry = found.entry(version.tag).or_default();
                entry.0 = entry.0.max(version.origin);
                entry.1.push(&version.content);
            }
        }
        if planted.has(Bug::PartsOfTwoTags) {
            let all: Vec<&Content> = found
                .values()
                .flat_map(|(_, parts)| parts.clone())
                .collect();
            found.values_mut().for_each(|entry| entry.1 = all.clone());
        }
        let decoded = found.iter().rev().find_map(|(tag, (origin, contents))| {
            let value = policy::decode(contents).ok()?;
            Some((*tag, *origin, value, contents.len()))
        });
        let (tag, origin, value, holders) = decoded.unwrap_or_default();
        Found {
            tag,
            origin,
            value,
            holders,
            least: least_to_return(&lists, gone, heard.shape),
            settled,
            crowded,
        }
    }
}

/// The least tag that a read may return. Every operation that completed before the read began has
/// left its tag at k of the answers at least.
///
/// * Where replicas are told what is final, each of those k has the tag still, or has dropped it
///   for a higher final one, and says so (F8: nothing else is dropped).
/// * Where a replica keeps one version, each shows the tag or a higher one, so it is at most the
///   k-th largest of the highest tags shown (the published rule's list of all tags is not needed).
/// * Where a replica keeps the δ + 1 highest, each shows the tag or has nothing but higher ones: it
///   *covers* the tag. The k-th largest would be above what k lists show, and two dying writers
///   could hide a value for ever that is at every member.
fn least_to_return(lists: &[Vec<Tag>], dropped: Tag, shape: Shape) -> Tag {
    let common = shape.common;
    match shape.kept {
        Kept::FromFinal(_) => dropped,
        Kept::Highest => {
            let shown = lists.iter().map(|list| list.last().copied());
            let mut highest: Vec<Tag> = shown.map(Option::unwrap_or_default).collect();
            highest.sort_unstable_by(|a, b| b.cmp(a));
            highest.get(common - 1).copied().unwrap_or(Tag::ZERO)
        }
        Kept::Several(count) => {
            // The lowest tag of a list that has dropped others, perhaps.
            let low = |list: &Vec<Tag>| (list.len() >= count).then(|| list[0]);
            let covered = |tag: &Tag| {
                let covers = |list: &&Vec<Tag>| {
                    list.contains(tag) || low(list).is_some_and(|low| low > *tag)
                };
                lists.iter().filter(covers).count() >= common
            };
            let gone = |least: &Tag| {
                let full = lists.iter().filter_map(low);
                full.filter(|low| low >= least).count() >= common
            };
            let shown = lists.iter().flatten().copied().filter(covered);
            let beyond = lists.iter().filter_map(low).filter(gone);
            shown.chain(beyond).max().unwrap_or(Tag::ZERO)
        }
    }
}
