//! What the sources of a store say of a key (V1): the earlier stores from which it may not have
//! moved.
//!
//! A sealed store never changes, so that what a member has answered once serves every later phase
//! of the operation. Answers of two stores are never added up: each has its own quorum, and its own
//! shape.

use super::super::message::{Answer, Ask, Content, Moved, StoreId};
use super::super::op::{Op, OpEnd, Place};
use super::super::reading::{Heard, fence_of, highest};
use super::super::{op, shape_in};
use super::{Into, Member, Next, Phase, Running};
use crate::base::{Bug, Epoch, Micros, NodeName, Planted, Seat, Tag};
use crate::io::Env;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A source, and which of its members have answered.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) of: op::Source,
    pub(super) members: Vec<Member>,
}

impl Source {
    pub(super) fn of(op: &Op, place: &Place, env: &Env<'_>) -> Vec<Source> {
        if matches!(op, Op::Entry { .. }) && env.planted.has(Bug::GrantedFromHereAlone) {
            return Vec::new();
        }
        let new = |of: &op::Source| Source {
            of: of.clone(),
            members: members(of.view.len(), env.now.monotonic),
        };
        let last = place.sources.len().saturating_sub(1);
        let left_out = if env.planted.has(Bug::OneSourceOnly) {
            last
        } else {
            0
        };
        place.sources.iter().skip(left_out).map(new).collect()
    }

    /// Whether all have answered who ever will.
    fn is_heard(&self) -> bool {
        let mut members = (0..).map(Seat).zip(&self.members);
        members.all(|(seat, member)| member.settled() || self.of.out.contains(&seat))
    }

    fn good(&self) -> Vec<&Answer> {
        self.members
            .iter()
            .filter_map(|m| m.good.as_ref())
            .collect()
    }
}

fn members(count: usize, due: Micros) -> Vec<Member> {
    let new = Member {
        due,
        ..Member::default()
    };
    alloc::vec![new; count]
}

impl Running {
    /// Whether the present phase asks the sources, too.
    pub(super) fn asks_sources(&self) -> bool {
        let reads = matches!(
            self.phase,
            Phase::Collect | Phase::Tags | Phase::Fenced { .. }
        );
        reads || self.crosses()
    }

    /// Whether the present phase wants values, and not tags alone.
    fn wants_values(&self) -> bool {
        let writes = matches!(self.op, Op::Write { .. } | Op::Cross { .. });
        match self.phase {
            Phase::Tags | Phase::Store { .. } => false,
            Phase::Collect => !writes,
            _ => true,
        }
    }

    /// Takes the answer of a source's member.
    pub(in crate::register) fn on_source(
        &mut self,
        source: Epoch,
        seat: Seat,
        answer: Answer,
        env: &Env<'_>,
    ) -> Next {
        if env.now.monotonic >= self.deadline {
            return Next::Done(self.out_of_time());
        }
        if let Answer::Moved { .. } = answer {
            // It was deleted, for all has moved.
            return self
                .without(|epoch| epoch == source, env)
                .unwrap_or(Next::Wait);
        }
        if let Answer::Cells { passed, .. } = &answer {
            self.passed = self.passed.max(*passed);
        }
        let sound = super::is_sound(&answer, self.key());
        let soon = env.now.monotonic + env.timing.beat.min(env.timing.retry);
        let asks = self.asks_sources();
        let mut known = self.sources.iter_mut();
        let Some(known) = known.find(|s| s.of.store.epoch == source) else {
            return Next::Wait;
        };
        let member = &mut known.members[usize::from(seat.0)];
        match answer {
            Answer::Cells { .. } if asks && sound && !member.settled() => {
                member.good = Some(answer);
            }
            // It may come to know that it was a member any moment.
            _ => member.due = soon,
        }
        self.judge(env)
    }

    /// Adds what the sources' members are to be asked now.
    pub(super) fn ask_sources(&mut self, asks: &mut Vec<(NodeName, StoreId, Ask)>, env: &Env<'_>) {
        let ask = Ask::SealedRead {
            next: self.place.store.epoch,
            values: self.valued,
        };
        let now = env.now.monotonic;
        for Source { of, members } in &mut self.sources {
            for (member, node) in members.iter_mut().zip(of.view.nodes()) {
                if !member.settled() && member.due <= now {
                    member.asks += 1;
                    member.due = now + env.timing.retry;
                    asks.push((node, of.store, ask.clone()));
                }
            }
        }
    }

    /// A key has not moved: who was no member of a source can tell nothing of it either, and nobody
    /// waits for that.
    pub(super) fn pass_over_strangers(&mut self) {
        for (seat, member) in (0..).map(Seat).zip(&mut self.members) {
            if self.place.is_stranger(seat) && member.refusal.is_none() {
                member.refusal = Some(Answer::Unmoved);
            }
        }
    }

    /// A new phase: what is missing of the sources' answers is asked for at `due`, and everything
    /// again if values are wanted for the first time.
    pub(super) fn renew_sources(&mut self, due: Micros) {
        let values = self.wants_values() && self.asks_sources();
        let anew = values && !self.valued;
        self.valued |= values;
        for member in self.sources.iter_mut().flat_map(|s| &mut s.members) {
            if anew || !member.settled() {
                *member = Member {
                    due,
                    ..Member::default()
                };
            }
        }
    }

    /// What moves a key gives it up as undecodable where nobody else will ever answer: the highest
    /// tag of the sources moves, with their fences, and no value (V12). Otherwise one such key
    /// would keep its source open for ever.
    pub(super) fn gives_up(&mut self, env: &Env<'_>) -> bool {
        let lasting = self.place.storage.finalizes() || env.planted.has(Bug::UndecodableNotCarried);
        let moved = self.mark().is_some();
        let all = moved || self.sources.iter().all(Source::is_heard);
        if lasting || !all || !self.moves_between(env.planted) {
            return false;
        }
        // What has moved is given up only where it was before: the writes of today go on.
        let heard = match moved {
            true => Vec::from([self.present()]),
            false => self.heard(),
        };
        let (at, fence) = (highest(&heard, moved), fence_of(&heard));
        if at.0 == Tag::ZERO {
            return false;
        }
        let then = OpEnd::Value {
            value: None,
            tag: at.0,
        };
        self.enter(
            Phase::Store {
                tag: at.0,
                origin: at.1,
                parts: alloc::vec![Content::Undecodable; self.place.view.len()],
                then: Box::new(then),
                into: Into::Carry(fence),
            },
            env.now.monotonic,
        );
        true
    }

    /// Goes on without the sources that somebody who knows says to be closed; none where there is
    /// none of them. From the beginning: what was heard before may lack what has moved since.
    pub(super) fn without_closed(&mut self, moved: &Moved, env: &Env<'_>) -> Option<Next> {
        match moved {
            Moved::All => self.without(|_| true, env),
            Moved::Marked(marked) => self.without(|epoch| !marked.sources.contains(&epoch), env),
        }
    }

    fn without(&mut self, closed: impl Fn(Epoch) -> bool, env: &Env<'_>) -> Option<Next> {
        let before = self.sources.len();
        self.sources.retain(|s| !closed(s.of.store.epoch));
        self.place.sources.retain(|s| !closed(s.store.epoch));
        let reads = match &self.phase {
            Phase::Store { into, .. } => matches!(into, Into::Carry(_)) || self.crosses(),
            Phase::Passing { .. } | Phase::One { .. } => false,
            Phase::Collect | Phase::Tags | Phase::Fenced { .. } => true,
        };
        if self.sources.len() == before || !reads {
            return None;
        }
        if self.crosses() && env.planted.has(Bug::CrossedBeforeCounts) {
            return Some(self.judge(env));
        }
        if self.sources.is_empty() && matches!(self.op, Op::Read { moves: true, .. }) {
            return Some(Next::Done(self.refused(env)));
        }
        let sweeps = matches!(self.op, Op::Sweep { .. }) || self.written.is_some();
        // Any member tells of a key that is nowhere else.
        let alone = matches!(self.op, Op::EventualGet { .. }) && self.sources.is_empty();
        let phase = match sweeps {
            true => Phase::Tags,
            false if alone => Phase::One { turn: 0 },
            false if self.crosses() => self.phase.clone(),
            false => Phase::Collect,
        };
        self.enter(phase, env.now.monotonic);
        Some(Next::Phase)
    }

    /// Whether the key has moved here, as the answers of the present phase say, or every source has
    /// answered with its quorum.
    pub(super) fn is_through(&self, env: &Env<'_>) -> bool {
        let less = usize::from(env.planted.has(Bug::SourceQuorumTooSmall));
        let enough = |source: &Source| {
            let shape = shape_in(self.place.storage, &source.of.view);
            source.good().len() + less >= shape.quorum
        };
        self.sources.is_empty() || self.mark().is_some() || self.sources.iter().all(enough)
    }

    /// The highest mark in the answers.
    pub(super) fn mark(&self) -> Option<Tag> {
        let good = self.members.iter().filter_map(|m| m.good.as_ref());
        let marks = good.filter_map(|answer| match answer {
            Answer::Cells { moved, .. } => moved.mark(),
            _ => None,
        });
        marks.max()
    }

    /// Whether a fenced read has found a higher tag than the one that it will store under. Members
    /// of the present store refuse such a fence; what is sealed refuses nothing. A holder has put
    /// under that tag, and another of its puts, which is lower and late, must not outrank it here.
    pub(super) fn is_below(&self, found: Tag, planted: Planted) -> bool {
        let own = match (&self.op, &self.phase) {
            (Op::Synch { tag, .. }, _) | (_, Phase::Fenced { tag }) => *tag,
            _ => return false,
        };
        found > own && !planted.has(Bug::SynchBelowSource)
    }

    /// Such a read: a synch is past, and whatever settles a register takes a higher tag.
    pub(super) fn outdone(&mut self, env: &Env<'_>) -> Next {
        if matches!(self.op, Op::Synch { .. }) {
            return Next::Done(OpEnd::Past {
                may_have_taken_effect: self.may_have(),
            });
        }
        self.enter(Phase::Tags, env.now.monotonic);
        Next::Phase
    }

    /// What the members of the present store have answered in this phase.
    pub(super) fn present(&self) -> Heard<'_> {
        Heard {
            answers: self
                .members
                .iter()
                .filter_map(|m| m.good.as_ref())
                .collect(),
            shape: self.place.shape(),
        }
    }

    /// What the sources have answered, where it counts: nothing of a key that has moved.
    pub(super) fn heard(&self) -> Vec<Heard<'_>> {
        let sources = self.sources.iter().filter(|_| self.mark().is_none());
        let heard = |source| Heard {
            answers: Source::good(source),
            shape: shape_in(self.place.storage, &source.of.view),
        };
        sources.map(heard).collect()
    }
}
