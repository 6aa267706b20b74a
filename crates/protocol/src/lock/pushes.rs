//! What a primary prepares and pushes to whoever has come to hold, and when.

use super::grant::Occasion;
use super::leases::{Told, counted, granted_at, leased_until};
use super::message::{Grant, Latest, Message};
use super::primary::{Pending, Primary, PrimaryEnv};
use super::state::Queues;
use crate::base::{Bug, KeyId, LockRef, Tag};
use crate::register::{self, Errand, OpId};
use alloc::vec::Vec;

impl Primary {
    /// Prepares the grants of refs that hold, and that nobody has granted, as the primary before
    /// has said.
    pub fn begin(&mut self, queues: &Queues, cx: &mut PrimaryEnv<'_>) {
        let holders = self
            .holdings
            .iter()
            .filter(|(_, holding)| !holding.inherited);
        let holders: Vec<LockRef> = holders.map(|(lock_ref, _)| *lock_ref).collect();
        self.grant_heads(&holders, queues, cx);
    }

    /// Whether nobody had granted a ref when this primary began, as the last one has said.
    pub fn was_untold(&self, lock_ref: LockRef) -> bool {
        self.grants.untold(lock_ref)
    }

    /// The grant of a holder may not have reached its client: the values are read anew, pushed
    /// again.
    pub(super) fn grant_again(
        &mut self,
        lock_ref: LockRef,
        generation: u32,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) {
        let Some(holding) = self.holdings.get(&lock_ref) else {
            return;
        };
        if !self.grants.running(lock_ref) {
            let occasion = match (holding.granted, holding.inherited) {
                (true, _) => Occasion::Again,
                (false, true) => Occasion::Inherited,
                (false, false) => Occasion::First,
            };
            self.grants
                .begin(lock_ref, generation, None, occasion, queues, cx);
            self.push_ready(lock_ref, queues, cx);
        }
    }

    pub(super) fn resumed(
        &mut self,
        lock_ref: LockRef,
        generation: u32,
        pending: Option<&Pending>,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) -> bool {
        self.grants.stop(lock_ref, cx);
        if let Some(holding) = self.holdings.get_mut(&lock_ref) {
            let known = queues.get(lock_ref);
            let lease = known.map_or(0, |k| k.origin.lease);
            let over = known.is_some_and(|k| holding.is_over(k, cx.env.now, cx.env.planted));
            let told_before = holding.granted || holding.inherited;
            let waits = !cx.env.planted.has(Bug::ResumeBesideLease);
            if told_before && waits && queues.holds(lock_ref) {
                let counted = counted(lease, cx.env.timing, cx.env.planted);
                let told = leased_until(holding.told, holding.heard, counted);
                holding.free_at = holding.free_at.max(told);
            }
            // One that is ending is not granted any more, whoever resumes it: its end waits for the
            // lease that was given, and for no other.
            if !holding.ending && !over {
                holding.heard = cx.env.now.monotonic;
                holding.told = Told::Nothing;
            }
            holding.granted = false;
            if let Some(waiter) = pending.and_then(Pending::waiter) {
                holding.waiter = Some(waiter);
            }
        }
        if !queues.holds(lock_ref) {
            return false;
        }
        self.grants
            .begin(lock_ref, generation, None, Occasion::Resumed, queues, cx);
        self.push_ready(lock_ref, queues, cx)
    }

    /// Starts the grant of the refs that have come to hold a key, if they hold all of theirs.
    pub(super) fn grant_heads(
        &mut self,
        next: &[LockRef],
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) {
        for lock_ref in next {
            let Some(holding) = self.holdings.get(lock_ref) else {
                continue;
            };
            let waits = !holding.granted && !holding.inherited;
            if waits && queues.holds(*lock_ref) && !self.grants.running(*lock_ref) {
                let generation = queues.get(*lock_ref).map_or(0, |k| k.generation);
                self.grants
                    .begin(*lock_ref, generation, None, Occasion::First, queues, cx);
            }
        }
        self.grants.wake_shared(queues, cx);
        self.push_all_ready(queues, cx);
    }

    /// Whether grants may go out at all.
    fn grants_now(&self, cx: &PrimaryEnv<'_>) -> bool {
        // Without the lease another primary may have ended this section; with it none can have.
        cx.leased || cx.env.planted.has(Bug::GrantWithoutLease) || grants_stale(cx)
    }

    pub(super) fn push_all_ready(&mut self, queues: &Queues, cx: &mut PrimaryEnv<'_>) {
        // Asked once: while nothing may go out, all the readers of a long batch may be ready.
        if self.grants_now(cx) {
            for lock_ref in self.grants.ready() {
                self.push_ready(lock_ref, queues, cx);
            }
        }
    }

    /// Pushes a grant whose values are all there; true if it went out.
    pub(super) fn push_ready(
        &mut self,
        lock_ref: LockRef,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) -> bool {
        let open = self.leasing.grants(lock_ref) || grants_stale(cx);
        if !open || !self.grants_now(cx) || !self.grants.is_ready(lock_ref) {
            return false;
        }
        let (Some(known), Some(holding)) = (queues.get(lock_ref), self.holdings.get_mut(&lock_ref))
        else {
            return false;
        };
        let Some(waiter) = holding.waiter else {
            return false;
        };
        let over = holding.is_over(known, cx.env.now, cx.env.planted);
        if holding.ends() || over || cx.env.now.monotonic < holding.free_at {
            return false;
        }
        if !holding.granted {
            holding.heard =
                granted_at(holding.heard, cx.env.now, known.origin.lease, cx.env.timing);
        }
        holding.granted = true;
        holding.told = Told::Nothing;
        holding.entered.get_or_insert(cx.env.now.monotonic);
        let latest: Vec<Latest> = self.grants.take(lock_ref);
        let grant = Grant {
            session: known.session,
            number: known.number,
            segment: self.segment,
            lock_ref,
            generation: known.generation,
            latest,
            lease: known.origin.lease,
        };
        cx.env.fx.promise(waiter, Message::Granted(grant));
        true
    }

    /// A quorum operation has ended that was started for a key.
    pub fn on_outcome(
        &mut self,
        op: OpId,
        (key, errand): (KeyId, Errand),
        outcome: register::OpEnd,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) {
        match errand {
            Errand::Ahead(id) => {
                self.grants
                    .speculation_read((id, &key), op, outcome, cx.env.planted);
            }
            Errand::Grant(lock_ref) => {
                let done = self.grants.on_outcome(lock_ref, &key, outcome, queues, cx);
                self.propose_own(done);
                self.push_ready(lock_ref, queues, cx);
                self.grants.wake_shared(queues, cx);
            }
            Errand::Front(front, flag) => {
                let done = self
                    .grants
                    .settled(front, key, flag, &outcome, queues, cx.env.now);
                self.propose_own(done);
                self.grants.wake_shared(queues, cx);
                self.push_all_ready(queues, cx);
            }
        }
    }

    /// A put beside which its holder leaves is at its quorum: the next one need not synch.
    pub fn on_put_done(&mut self, key: &KeyId, tag: Tag, queues: &Queues, cx: &mut PrimaryEnv<'_>) {
        let done = self.grants.put_done(key, tag, queues, cx);
        self.propose_clearing(done, queues);
        self.grants.wake_shared(queues, cx);
        self.push_all_ready(queues, cx);
    }
}

/// Of the planted rules that only a stale grant shows.
fn grants_stale(cx: &PrimaryEnv<'_>) -> bool {
    let planted = cx.env.planted;
    planted.has(Bug::FenceOnRefOnly) || planted.has(Bug::SynchTagWithoutAttempt)
}
