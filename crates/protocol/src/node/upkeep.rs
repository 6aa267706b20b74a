//! What drives the upkeep of the node's registers ([`crate::register`]): once per beat.

use super::logs::env;
use super::{Node, Step, topology};
use crate::coordinator::Topology;
use crate::register::{Op, Owner, StoreId};

/// Quorum operations of upkeep under way at once.
const OPS_MAX: usize = 4;

impl Node {
    pub(super) fn upkeep(&mut self, step: &mut Step<'_>) {
        let stores = topology::Stores(&self.here);
        let mut cx = env(&self.here.config, step);
        self.replica.upkeep(&stores, &mut cx);
        while self.upkeep_ops < OPS_MAX {
            let Some((store, op)) = self.replica.take_wish() else {
                break;
            };
            self.settle_register(store, op, step);
        }
        while let Some((segment, floor)) = self.replica.take_wanted_floor() {
            if self.here.why_not_leased(segment, step).is_none() {
                self.with_primary(segment, step, |primary, state, cx| {
                    primary.raise_floor(floor, state, cx.env.planted);
                });
            }
        }
    }

    fn settle_register(&mut self, store: StoreId, op: Op, step: &mut Step<'_>) {
        let known = topology::Known {
            here: &self.here,
            replica: &self.replica,
            carried: self.mover.carried,
            now: step.now,
        };
        let Some(place) = known.place(store.segment, op.key()) else {
            return;
        };
        if place.store == store {
            let deadline = step.now.monotonic + self.here.config.timing.request;
            let mut cx = env(&self.here.config, step);
            self.caller
                .start(op, Owner::Upkeep, &place, deadline, &mut cx);
            self.upkeep_ops += 1;
        }
    }
}
