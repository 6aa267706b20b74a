//! A register's write that goes on in the next epoch under its own tag (V5).
//!
//! A sweep of the former epoch may have passed it over, and have ended there with an older value
//! under a higher tag: then the write must not end. What such a sweep has promised is at q members
//! of the source, for ever, since they are sealed. So the write is stored, and the source asked, at
//! once: it ends only where none of q sealed answers of each source has a fence above its tag. What
//! sweeps of the present store have promised its members see to themselves.
//!
//! A source that is closed may not answer any more. Then the members of the store are asked what
//! has moved, and the write is stored after that: acknowledgements from before may be of members
//! that have been given the fence since.

use super::super::message::Answer;
use super::super::op::{Op, OpEnd};
use super::{Phase, Running};
use crate::base::{Bug, Planted, Tag};
use crate::io::Env;

impl Running {
    /// Whether it stores, and asks meanwhile what the sources have promised.
    pub(super) fn crosses(&self) -> bool {
        let stores = matches!(self.phase, Phase::Store { .. }) && self.written.is_none();
        matches!(self.op, Op::Cross { .. }) && stores && !self.looked
    }

    /// Whether this crossing write comes too late: below a fence that q members have promised,
    /// whoever reads may have passed it over.
    pub(super) fn crosses_in_vain(&self, tag: Tag, planted: Planted) -> bool {
        let fences = self.shown().filter_map(|answer| match answer {
            Answer::Cells { fence, .. } => Some(*fence),
            _ => None,
        });
        let crosses = matches!(self.op, Op::Cross { .. }) && self.written.is_none();
        crosses && fences.max() > Some(tag) && !planted.has(Bug::CrossesBlindly)
    }

    pub(super) fn crossed_in_vain(&self) -> OpEnd {
        OpEnd::Past {
            may_have_taken_effect: true,
        }
    }

    /// A source is silent: the members of the store are asked, too.
    pub(super) fn look_anew(&mut self, env: &Env<'_>) {
        let now = env.now.monotonic;
        let silent = now >= self.phase_began + env.timing.retry && !self.is_through(env);
        if self.crosses() && silent {
            self.looked = true;
            self.enter(Phase::Collect, now);
        }
    }
}
