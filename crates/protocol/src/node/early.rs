//! What is asked of a segment's primary that has not begun yet.
//!
//! Between the end of a log and the first entry of the next one, and between an election and its
//! `Begin`, a node leads and is no primary. What it is asked meanwhile it keeps for a moment, and
//! answers when it has begun, or when it leads no more: who was refused would come again only after
//! a pause.

use super::{Here, Node, Step};
use crate::base::{Micros, NodeName, SegmentId};
use crate::lock::Message;
use crate::wire;
use alloc::vec::Vec;

/// Questions that a segment keeps, and their bytes, at most; what is beyond is refused at once.
const QUESTIONS: usize = 256;
/// The same.
const BYTES: usize = 256 << 10;

/// Questions to a primary that has not begun.
#[derive(Debug, Default)]
pub(super) struct Early {
    questions: Vec<(NodeName, Message)>,
    bytes: usize,
    since: Micros,
}

impl Early {
    /// Keeps one; gives it back where there is no room.
    fn keep(&mut self, from: NodeName, question: Message, now: Micros) -> Option<Message> {
        let bytes = self.bytes + wire::size(&question);
        if self.questions.len() >= QUESTIONS || bytes > BYTES {
            return Some(question);
        }
        if self.questions.is_empty() {
            self.since = now;
        }
        self.bytes = bytes;
        self.questions.push((from, question));
        None
    }
}

impl Here {
    /// Whether this node leads a segment's log, or has just ended it, and is no primary yet.
    fn begins(&self, segment: SegmentId) -> bool {
        self.segments.get(&segment).is_some_and(|room| {
            let ends = room.log.stopped().is_some();
            room.primary.is_none() && self.writable && (room.log.leadership().is_some() || ends)
        })
    }

    /// Keeps a question for a primary that begins; gives it back where none does, or there is no
    /// room.
    pub(super) fn keep_early(
        &mut self,
        from: NodeName,
        question: Message,
        step: &Step<'_>,
    ) -> Option<Message> {
        let segment = question.asks_about();
        let Some(segment) = segment.filter(|segment| self.begins(*segment)) else {
            return Some(question);
        };
        match self.segments.get_mut(&segment) {
            Some(room) => room.early.keep(from, question, step.now.monotonic),
            None => Some(question),
        }
    }
}

impl Node {
    /// Answers what was asked early, once the primary has begun or none will; and what has waited
    /// for longer than a question waits for its answer.
    pub(super) fn answer_early(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let begins = self.here.begins(segment);
        let retry = self.here.config.timing.retry;
        let Some(room) = self.here.segments.get_mut(&segment) else {
            return;
        };
        let over = room.early.since + retry <= step.now.monotonic;
        if room.early.questions.is_empty() || (begins && !over) {
            return;
        }
        let early = core::mem::take(&mut room.early);
        self.answer_all(early, step);
    }

    /// Answers them by what is known now.
    pub(super) fn answer_all(&mut self, early: Early, step: &mut Step<'_>) {
        for (from, question) in early.questions {
            self.answer(from, question, step);
        }
    }
}
