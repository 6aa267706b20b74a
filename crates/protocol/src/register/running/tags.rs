//! The tags that an operation takes for its own.

use super::super::message::Answer;
use super::super::op::{Op, Place};
use super::{Phase, Running};
use crate::base::{Bug, LockRef, Tag};
use crate::io::Env;

impl Running {
    /// The tag of the write that the answers of a first round lead to, where this is one.
    pub(super) fn tag_to_write(&self, env: &Env<'_>) -> Option<Tag> {
        // Above what a write of one round may have been given before this one began.
        let clocked = self.place.storage.has_one_round_writes();
        let latest = env.now.interval.filter(|_| clocked).map_or(0, |i| i.latest);
        // Above what has moved, too: whoever shows its mark need not have it.
        let mark = self.mark();
        let mark = mark.filter(|_| !env.planted.has(Bug::WriteBelowMark));
        let latest = mark.map_or(latest, |mark| latest.max(mark.sequence + 1));
        match (&self.op, &self.phase) {
            (Op::Write { writer, .. }, Phase::Collect) if env.planted.has(Bug::TagFromNewStore) => {
                let own = self.members.iter().filter_map(|m| m.good.as_ref());
                Some(tag_for(own, *writer, latest))
            }
            (Op::Write { writer, .. }, Phase::Collect) => {
                Some(tag_for(self.shown(), *writer, latest))
            }
            (Op::Cross { tag, .. }, Phase::Collect) => Some(*tag),
            (_, Phase::Tags) if let Some(tag) = self.to_resume() => Some(tag),
            (Op::Sweep { writer, .. }, Phase::Tags) => {
                Some(tag_for(self.shown(), self.sweeper(*writer), latest))
            }
            (Op::Read { .. } | Op::Write { .. } | Op::Cross { .. }, Phase::Tags) => {
                Some(tag_for(self.shown(), self.sweeper(0), 0))
            }
            _ => None,
        }
    }

    /// The highest tag that q members have shown, if it is of a sweep, since it is their highest
    /// fence too, that has not completed but may: enough of them hold it to give a value.
    pub(super) fn to_resume(&self) -> Option<Tag> {
        let answers = self.members.iter().filter_map(|member| match &member.good {
            Some(Answer::Cells {
                versions, fence, ..
            }) => Some((versions.last().map_or(Tag::ZERO, |v| v.tag), *fence)),
            _ => None,
        });
        let highest = answers.clone().map(|(tag, _)| tag).max()?;
        let fence = answers.clone().map(|(_, fence)| fence).max()?;
        let all = answers.clone().count();
        let holders = answers.filter(|(tag, _)| *tag == highest).count();
        let may_complete = (self.place.shape().parts..all).contains(&holders);
        // Beside a source it would have to be told from what was there before: it is not worth it.
        let anew = self.anew || !self.heard().is_empty();
        (may_complete && highest == fence && !anew).then_some(highest)
    }

    /// What the answers show that count: those of this phase, and of the sources.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Answer> {
        let own = self.members.iter().filter_map(|m| m.good.as_ref());
        own.chain(self.heard().into_iter().flat_map(|heard| heard.answers))
    }

    /// The tag under which the write of a register may be stored somewhere.
    pub(super) fn under(&self, env: &Env<'_>) -> Option<Tag> {
        match (&self.op, &self.phase) {
            _ if env.planted.has(Bug::CrossesAnew) => None,
            (Op::Cross { tag, .. }, _) => Some(*tag),
            (Op::Write { .. }, Phase::Store { tag, .. } | Phase::Passing { tag, .. })
                if self.effect =>
            {
                Some(self.written.unwrap_or(*tag))
            }
            (Op::Write { .. }, _) => self.written,
            _ => None,
        }
    }

    /// The writer of the tag of this attempt at a sweep, and of no other: two attempts may find
    /// different values, and a tag names one. Calls begin at random, and are counted.
    pub(super) fn sweeper(&self, name: u128) -> u128 {
        (u128::MAX - u128::from(self.call)) ^ (name << 64)
    }
}

/// The tag of a register write: the one that an earlier try of this writer has left, else one above
/// all that were seen and not below `least`. A fence counts as a tag: what is below it is refused.
pub(super) fn tag_for<'a>(
    answers: impl Iterator<Item = &'a Answer>,
    writer: u128,
    least: u64,
) -> Tag {
    let cells = answers.filter_map(|answer| match answer {
        Answer::Cells {
            versions, fence, ..
        } => Some((versions, *fence)),
        _ => None,
    });
    let (mut seen, mut own) = (Tag::ZERO, None);
    for (versions, fence) in cells {
        seen = seen.max(fence);
        for version in versions {
            seen = seen.max(version.tag);
            if version.tag.writer == writer {
                own = own.max(Some(version.tag));
            }
        }
    }
    own.unwrap_or(Tag {
        lock_ref: LockRef(0),
        sequence: (seen.sequence + 1).max(least),
        writer,
    })
}

/// The tag under which a write may go out at once: the latest that the true time can be. An
/// operation that begins after the write has ended, which waits for that time to pass, gets a
/// higher one.
pub(super) fn one_round_tag(place: &Place, writer: u128, env: &Env<'_>) -> Option<Tag> {
    let interval = env.now.interval?;
    // Beside a source a sweep's promise may be there that its time lies below.
    let free = place.storage.has_one_round_writes()
        && (place.sources.is_empty() || env.planted.has(Bug::OneRoundBesideSource));
    free.then_some(Tag {
        lock_ref: LockRef(0),
        sequence: interval.latest,
        writer,
    })
}
