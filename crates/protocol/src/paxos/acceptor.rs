//! The acceptor: promises, votes, and the read leases that bind it.

use super::store::{CHOSEN, Held, ROUNDS};
use super::{Entry, Follow, GivenLease, Log, Message, Reserved, Role};
use crate::base::{Ballot, Bug, Limits, Micros, Now, Seat, Slot, Timing};
use crate::io::Env;
use alloc::vec::Vec;

/// What an `Accept` says, besides its ballot.
pub(super) struct Offer {
    pub(super) slot: Slot,
    pub(super) entry: Entry,
    pub(super) chosen: Slot,
}

/// How far above its chosen prefix a replica holds votes.
pub(super) fn reach(limits: &Limits) -> u64 {
    limits.snapshot_every + 4 * limits.window as u64 + 16
}

impl Log {
    /// Whether this acceptor must not answer phase 1, because it cannot tell what it voted for: a
    /// vote is corrupt, and nobody has told it yet what was chosen there. Silence is always safe;
    /// "nothing accepted" would be a lie.
    pub(super) fn muted(&self) -> bool {
        self.void.last().is_some_and(|slot| *slot > self.chosen)
    }

    /// The ballot whose read lease forbids a promise to `asker`, if one does.
    pub(super) fn bound(&self, asker: Seat, now: Now, timing: &Timing) -> Option<Ballot> {
        if let Role::Leading(lead) = &self.role {
            // The leader's own vote for its lease is this very check, made in the same process.
            if asker != self.seat && self.has_lease(now, timing) {
                return Some(lead.ballot);
            }
        }
        // A lease is granted in memory only: a flush per beat and log would be dear. So a process
        // does not know what the one before it granted, and refuses everybody until that has run
        // out.
        if now.monotonic < self.boot_over(timing) {
            return Some(self.promised);
        }
        let grant = self.grant.as_ref()?;
        let foreign = grant.holder.seat != asker && grant.holder.seat != self.seat;
        (foreign && now.monotonic < grant.until).then_some(grant.holder)
    }

    /// When nothing that an earlier process granted can be in force any more.
    pub(super) fn boot_over(&self, timing: &Timing) -> Micros {
        if self.planted.has(Bug::LeaseForgottenAtRestart) {
            return self.boot;
        }
        self.boot + timing.lease_bound()
    }

    pub(super) fn on_prepare(
        &mut self,
        from: Seat,
        ballot: Ballot,
        above: Slot,
        env: &mut Env<'_>,
    ) {
        if ballot.seat != from || ballot.round >= ROUNDS {
            return self.ignore("prepare with a ballot that is not the sender's");
        }
        if ballot < self.promised {
            let promised = self.promised;
            let answer = Message::Refused { ballot, promised };
            // The higher promise itself may not be durable yet.
            return self.vow(from, answer, env);
        }
        if self.muted() {
            return self.ignore("prepare while a vote is unreadable");
        }
        if ballot > self.promised {
            if let Some(holder) = self.bound(from, env.now, env.timing) {
                return self.send(from, Message::Leased { ballot, holder }, env);
            }
            // Two that stand at the same time, again and again, would each give way to the other:
            // the higher ballot does not, though its own acceptor is asked last.
            if let Role::Candidate(own) = &self.role
                && own.ballot > ballot
                && !self.planted.has(Bug::CandidateGivesWay)
            {
                let promised = own.ballot;
                return self.vow(from, Message::Refused { ballot, promised }, env);
            }
            self.raise(ballot, env);
            // The candidate gets the time that a leader would get.
            self.wait_election(env.now.monotonic + env.timing.retry, env.timing);
        }
        // Slots up to `chosen` are not reported: the proposer must fetch them before it leads.
        let (accepted, more) = self.votes_above(self.chosen.max(above), env.limits);
        let answer = Message::Promise {
            ballot,
            above,
            chosen: self.chosen,
            accepted,
            more,
            reserved: Reserved::default(),
        };
        self.vow(from, answer, env);
    }

    /// The votes that follow a slot, as many as a window takes, and whether there are more.
    fn votes_above(&self, slot: Slot, limits: &Limits) -> (Vec<super::Accepted>, bool) {
        let at_once = self.planted.has(Bug::PromiseInOnePiece);
        let (mut accepted, mut bytes) = (Vec::new(), 0);
        for (slot, held) in self.held.range(Slot(slot.0.saturating_add(1))..) {
            bytes += held.bytes;
            if bytes > limits.window_bytes && !accepted.is_empty() && !at_once {
                return (accepted, true);
            }
            accepted.push(super::Accepted {
                slot: *slot,
                ballot: held.ballot,
                entry: held.entry.clone(),
            });
        }
        (accepted, false)
    }

    pub(super) fn on_accept(
        &mut self,
        from: Seat,
        ballot: Ballot,
        offer: Offer,
        env: &mut Env<'_>,
    ) {
        if ballot.seat != from || ballot.round >= ROUNDS || from == self.seat {
            return self.ignore("accept with a ballot that is not the sender's");
        }
        if ballot < self.promised {
            let promised = self.promised;
            return self.vow(from, Message::Refused { ballot, promised }, env);
        }
        let Offer {
            slot,
            entry,
            chosen,
        } = offer;
        self.follow(ballot, env);
        self.hear(ballot, chosen);
        if slot.0 == 0 || slot > self.horizon(env) {
            self.learn(from, ballot, chosen, env);
            return self.ignore("accept beyond the horizon");
        }
        match self.held.get(&slot) {
            // Chosen: nothing to vote on; a different entry would be a broken quorum somewhere.
            Some(held) if slot <= self.chosen || held.ballot == CHOSEN => {
                if held.entry != entry {
                    return self.ignore("accept of another entry than the chosen one");
                }
            }
            Some(Held {
                ballot: voted,
                entry: old,
                ..
            }) if *voted == ballot => {
                if *old != entry {
                    return self.ignore("two entries for one slot in one ballot");
                }
            }
            None if slot <= self.chosen => {}
            old if !self.has_room(slot, old, &entry, env.limits) => {
                self.learn(from, ballot, chosen, env);
                return self.ignore("accept beyond the bytes of votes");
            }
            _ => {
                self.put_held(slot, ballot, entry, env.fx);
            }
        }
        // A vote counts where it is durable, hence not before.
        self.vow(from, Message::Accepted { ballot, slot }, env);
        self.learn(from, ballot, chosen, env);
    }

    /// The highest slot that this acceptor takes into memory. A leader's window keeps it far below,
    /// unless this replica lags, and then it must fetch first.
    fn horizon(&self, env: &Env<'_>) -> Slot {
        Slot(self.chosen.0 + reach(env.limits))
    }

    /// Whether a vote fits those that are held. The next slot always does: once everything below
    /// it is chosen here, too, the log goes on with this acceptor, however much it holds above.
    fn has_room(&self, slot: Slot, old: Option<&Held>, entry: &Entry, limits: &Limits) -> bool {
        let others = self.votes - old.map_or(0, |held| held.bytes);
        slot == self.chosen.next() || others + entry.bytes() <= limits.votes_bytes
    }

    /// Promises `ballot` durably. A replica that leads or stands below it does so no longer.
    pub(super) fn raise(&mut self, ballot: Ballot, env: &mut Env<'_>) {
        assert!(ballot > self.promised, "a promise is never taken back");
        self.promised = ballot;
        self.put_promise(env.fx);
        if ballot.seat != self.seat {
            self.step_down(env);
        }
    }

    /// Follows a leader: raises the promise to its ballot if need be, and grants it the read lease,
    /// on this node's clock from now.
    ///
    /// A ballot that leads has a quorum of promises, and each of them was given when no lease of
    /// another bound the giver. So whatever another ballot had is over, and this acceptor may
    /// follow although it may itself be bound still.
    fn follow(&mut self, ballot: Ballot, env: &mut Env<'_>) {
        if ballot > self.promised {
            self.raise(ballot, env);
        }
        // The word that it leads no more has overtaken this one, and nobody counts on it (G55).
        if self.released >= Some(ballot) && !env.planted.has(Bug::LateBeatBinds) {
            return;
        }
        // A candidate that did not yet promise itself drops out when a leader lives.
        if ballot.seat != self.seat {
            self.step_down(env);
        }
        let lease = match env.planted.has(Bug::AcceptorIgnoresDrift) {
            true => env.timing.lease + env.timing.lease_more,
            false => env.timing.lease_bound(),
        };
        let until = env.now.monotonic + lease;
        self.grant = Some(GivenLease {
            holder: ballot,
            until,
        });
        self.hint = Some(ballot.seat);
        self.wait_election(until, env.timing);
    }

    /// A leader's beat: its ballot and how far its log is chosen. The answer may leave at once: it
    /// claims the lease only, and a restart waits out any lease.
    pub fn on_beat(
        &mut self,
        from: Seat,
        ballot: Ballot,
        chosen: Slot,
        env: &mut Env<'_>,
    ) -> Follow {
        self.planted = env.planted;
        if ballot.seat != from || ballot.round >= ROUNDS || from == self.seat || !self.seats(from) {
            self.ignore("beat with a ballot that is not the sender's");
            return Follow::Ignored;
        }
        if ballot < self.promised {
            return Follow::Deposed(self.promised);
        }
        self.follow(ballot, env);
        self.learn(from, ballot, chosen, env);
        Follow::Follows(ballot)
    }

    /// What the leader says to be chosen between its proposals. It is not answered, so it binds
    /// nobody.
    pub(super) fn on_chosen(
        &mut self,
        from: Seat,
        ballot: Ballot,
        chosen: Slot,
        env: &mut Env<'_>,
    ) {
        if ballot.seat != from || ballot < self.promised || from == self.seat {
            return self.ignore("news of a ballot that is not the sender's, or old");
        }
        self.learn(from, ballot, chosen, env);
    }

    /// The holder of the lease gives it back.
    pub(super) fn on_release(
        &mut self,
        from: Seat,
        ballot: Ballot,
        successor: Option<Seat>,
        env: &mut Env<'_>,
    ) {
        if ballot.seat != from {
            return self.ignore("release of another's ballot");
        }
        self.released = self.released.max(Some(ballot));
        if self.grant.as_ref().is_some_and(|g| g.holder == ballot) {
            self.grant = None;
        }
        if ballot < self.promised || self.leads() {
            return;
        }
        self.hint = successor;
        if successor == Some(self.seat) {
            self.election_at = Some(env.now.monotonic);
            self.try_stand(env);
        } else {
            self.wait_election(env.now.monotonic, env.timing);
        }
    }
}
