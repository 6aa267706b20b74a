//! How an operation ends, and whether it may have taken effect where it ends without its quorum.

use super::super::message::Answer;
use super::super::op::{Op, OpEnd};
use super::super::reading::Shown;
use super::{Holder, Into, Member, Next, Phase, Running};
use crate::base::{Bug, EventualTag, Tag};
use crate::io::Env;
use bytes::Bytes;

impl Running {
    /// q replicas have the tag, or a higher one of its section.
    pub(super) fn stored(&self) -> OpEnd {
        let Phase::Store { tag, then, .. } = &self.phase else {
            unreachable!("only after a store");
        };

        let good = self.members.iter().filter_map(|m| m.good.as_ref());
        if let Op::Put { counter_above, .. } = &self.op {
            let mut clash = false;
            let mut all = true;
            for answer in good {
                match answer {
                    Answer::Outranked { tag: known } => clash |= known == tag,
                    _ => all = false,
                }
            }
            if clash || (all && !counter_above) {
                return OpEnd::StaleSequence;
            }
        }
        (**then).clone()
    }

    /// Whether anything of this operation may be stored somewhere, now or later.
    pub(super) fn may_have(&self) -> bool {
        let changes = matches!(
            self.op,
            Op::Put { .. }
                | Op::Write { .. }
                | Op::Cross { .. }
                | Op::Synch { .. }
                | Op::EventualPut { .. }
        );
        // An earlier epoch may have a crossing write already.
        changes && (self.effect || matches!(self.op, Op::Cross { .. }))
    }

    /// As `may_have`, but false once every member that was asked has refused the only transmission
    /// to it: a refusal of a second one says nothing of the first, whose answer may be lost.
    ///
    /// That a transmission arrives once at most is the transport's promise: a message is taken out
    /// of its queue before it is written to a connection, and what a broken one has not carried is
    /// lost. Where a network repeats messages the word may prove wrong, but nothing rests on it:
    /// the key is left dirty (G25), so that the next holder's synch fences the copy.
    pub(super) fn may_have_despite_refusals(&self) -> bool {
        if self.written.is_some() || matches!(self.op, Op::Cross { .. }) {
            return true;
        }
        let refused = |m: &Member| m.asks == 1 && (m.past || m.refusal.is_some());
        let unasked = |m: &Member| m.asks == 0 && m.good.is_none();
        self.may_have() && !self.members.iter().all(|m| refused(m) || unasked(m))
    }

    /// Whether what is being stored is of a section. Who moves such a key never sweeps: no section
    /// knows the fence of a sweep.
    pub(super) fn stores_of_section(&self) -> bool {
        matches!(self.phase, Phase::Store { tag, .. } if tag.lock_ref.0 > 0)
    }

    /// Whether an operation of a register cannot store because unfinished writes fill a member,
    /// while others may be silent. Only a sweep ends that, for which there is always room: a
    /// reader sweeps itself, a writer says `Busy`.
    pub(super) fn has_no_room(&self) -> bool {
        let busy = |m: &Member| m.refusal == Some(Answer::Busy);
        let storing = matches!(self.phase, Phase::Store { tag, .. } if self.swept != Some(tag));
        let of_register = matches!(
            self.op,
            Op::Read { .. } | Op::Write { .. } | Op::Cross { .. }
        );
        of_register && storing && !self.stores_of_section() && self.members.iter().any(busy)
    }

    /// A read's value, which is written back unless its q answers `agree` on it, or it is known to
    /// be final: from earlier epochs, with the fence that is to be `carried`. What `stands` in a
    /// source need not be here before it is returned; the key has not moved by that. Nor has it by
    /// a holder's get of what is not its own, which a dead synch of its own ref may keep from
    /// moving.
    pub(super) fn found(
        &mut self,
        at: (Tag, EventualTag),
        value: Option<Bytes>,
        carried: Option<Tag>,
        shown: Shown,
        env: &Env<'_>,
    ) -> Next {
        let tag = at.0;
        let then = OpEnd::Value {
            value: value.clone(),
            tag,
        };
        // The last write of an earlier section is complete in one of the stores.
        let owned = match &self.op {
            Op::Get { holder, .. } => Holder::of(tag) == *holder,
            _ => true,
        } || env.planted.has(Bug::GetsCarryOthers);
        let Shown {
            agree,
            is_final,
            stands,
            tells,
        } = shown;
        let skip = agree || is_final || (!owned && carried.is_none());
        let moves = matches!(self.op, Op::Read { moves: true, .. });
        if (stands || !owned) && !skip && !moves {
            return self.once_passed(tag, then, false, env);
        }
        if !skip && env.planted.has(Bug::FinalBeforeStored) {
            return self.once_passed(tag, then, true, env);
        }
        if skip || env.planted.has(Bug::ReadWithoutWriteBack) {
            // Of a key that was never written nothing needs to be noted.
            self.moved = carried.and_then(|fence| (tag.max(fence) > Tag::ZERO).then_some(tag));
            return match is_final {
                true => Next::Done(then),
                false => self.once_passed(tag, then, tells, env),
            };
        }
        let into = carried.map_or(Into::Write, Into::Carry);
        if env.planted.has(Bug::MarkFirst) {
            self.moved = carried.map(|_| tag);
        }
        self.write_back(at, value, then, into, env.now.monotonic);
        Next::Phase
    }

    pub(super) fn past(&self) -> OpEnd {
        OpEnd::Past {
            may_have_taken_effect: self.may_have_despite_refusals(),
        }
    }

    /// More than n − q refuse, and not for damage: the commonest reason, the gravest on a tie.
    pub(super) fn refused(&self, env: &Env<'_>) -> OpEnd {
        let count = |wanted: fn(&Answer) -> bool| {
            let refusals = self.members.iter().filter_map(|m| m.refusal.as_ref());
            refusals.filter(|a| wanted(a)).count()
        };
        let elsewhere = count(|a| matches!(a, Answer::Elsewhere));
        let full = count(|a| matches!(a, Answer::DiskFull));
        let busy = count(|a| matches!(a, Answer::Busy));
        let waiting = count(|a| matches!(a, Answer::NotHolder));
        let may_have_taken_effect = self.may_have_despite_refusals();
        let most = elsewhere.max(full).max(busy).max(waiting);
        if most == 0 {
            OpEnd::Unavailable {
                may_have_taken_effect,
            }
        } else if most == elsewhere {
            OpEnd::Moved {
                next: None,
                under: self.under(env),
                may_have_taken_effect,
            }
        } else if most == full {
            OpEnd::DiskFull {
                may_have_taken_effect,
            }
        } else if most == busy {
            OpEnd::Busy {
                may_have_taken_effect,
            }
        } else {
            OpEnd::NotHolder {
                may_have_taken_effect,
            }
        }
    }

    pub(super) fn out_of_time(&self) -> OpEnd {
        if self.members.iter().any(|m| m.past) {
            return self.past();
        }
        // Where tags are made final every quorum gives a value, so that answers are missing.
        if self.stuck && !self.place.storage.finalizes() {
            return OpEnd::Undecodable;
        }
        OpEnd::Unavailable {
            may_have_taken_effect: self.may_have_despite_refusals(),
        }
    }
}
