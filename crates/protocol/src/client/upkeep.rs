//! What happens by itself: transmissions are repeated, operations give up, leases are renewed.

use super::call::{Endpoint, Event, LostReason, SectionId};
use super::operation::{Kind, Sending};
use super::section::Stage;
use super::session::{Due, Session};
use super::steps::silent;
use crate::base::{Micros, Now};
use crate::request::{Code, Held, Operation, RefState, Refusal};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Refs in one heartbeat.
const REFS_PER_RENEWAL: usize = 256;

impl Session {
    /// The time is `now`: does whatever is due. Call it at [`Session::wake`]; earlier or later
    /// harms nothing but punctuality.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Event>) {
        let now = now.monotonic;
        while let Some((at, due)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            match due {
                Due::Operation(number) => self.operation_due(now, number, out),
                Due::Section(id) => self.section_due(now, id, out),
            }
        }
    }

    /// The driver knows that nothing of this client is served any more: its sections are lost now,
    /// and not when their leases are over. They are left, in case that is served.
    pub fn deny(&mut self, now: Now, out: &mut Vec<Event>) {
        let all: Vec<SectionId> = self.sections.keys().copied().collect();
        for id in all {
            self.lose(now.monotonic, id, None, LostReason::Denied, out);
        }
    }

    /// Ends every user operation with `refusal` before its time: the driver knows that nobody can
    /// be reached. An operation that may have been received stays in doubt, a leave goes on in the
    /// background.
    pub fn give_up(&mut self, now: Now, refusal: &Refusal, out: &mut Vec<Event>) {
        let mut ended = Vec::new();
        for (number, open) in &mut self.open {
            match open.ticket {
                Some(ticket) if matches!(open.kind, Kind::Leave { .. }) => {
                    open.ticket = None;
                    let result = Err(Refusal {
                        may_have_taken_effect: true,
                        ..refusal.clone()
                    });
                    out.push(Event::Done { ticket, result });
                }
                Some(_) => ended.push(*number),
                None => {}
            }
        }
        for number in ended {
            self.finish(now.monotonic, number, Err(refusal.clone()), out);
        }
    }

    fn operation_due(&mut self, now: Micros, number: u64, out: &mut Vec<Event>) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        open.timer = None;
        if now >= open.ends() {
            return self.expire(now, number, out);
        }
        if let Kind::Leave {
            answer_by,
            grace_until,
            ..
        } = open.kind
        {
            if answer_by <= now
                && let Some(ticket) = open.ticket.take()
            {
                let detail = "The leave is not confirmed yet; it goes on in the background.";
                let result = Err(Refusal::unknown(Code::Unavailable, detail));
                out.push(Event::Done { ticket, result });
            }
            if open.sending == Sending::Blocked && grace_until <= now {
                return self.try_launch(now, number, out);
            }
        }
        match open.sending {
            Sending::Paused(until) if until <= now => self.transmit(now, number, out),
            Sending::Sent(until) if until <= now => self.overdue(now, number, out),
            _ => self.arm(number),
        }
    }

    /// A transmission had no answer: another node is asked too.
    fn overdue(&mut self, now: Micros, number: u64, out: &mut Vec<Event>) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        // A release waits out the holder's lease, a queue takes its time: no reason for suspicion.
        let slow = open.queued || matches!(open.operation, Operation::Release { .. });
        if let Some(endpoint) = open.avoid
            && !slow
        {
            let until = now.saturating_add(self.options.suspicion);
            self.endpoints.suspect(endpoint, until);
        }
        open.setbacks += 1;
        match &open.kind {
            Kind::Renew { refs } => {
                let sections: Vec<SectionId> = refs.iter().map(|(id, _)| *id).collect();
                self.finish(now, number, Err(silent()), out);
                self.renew_soon(now, &sections);
            }
            _ if open.pinned.is_some() => self.finish(now, number, Err(silent()), out),
            _ => self.transmit(now, number, out),
        }
    }

    /// The operation's time is over.
    fn expire(&mut self, now: Micros, number: u64, out: &mut Vec<Event>) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        let section = open.kind.section().and_then(|id| self.sections.get(&id));
        let in_queue = section.is_some_and(|s| s.stage == Stage::Waiting && s.lives());
        let polled = matches!(open.kind, Kind::Enter { poll: true, .. });
        let in_queue = in_queue && !polled && open.stalls_until().is_none();
        let refusal = match open.refusal.take() {
            _ if in_queue => Refusal::definite(
                Code::WaitOver,
                "The lock was not granted within the wait; the place in the queue is given up.",
            ),
            Some(refusal) => refusal,
            None => silent(),
        };
        self.finish(now, number, Err(refusal), out);
    }

    fn section_due(&mut self, now: Micros, id: SectionId, out: &mut Vec<Event>) {
        let Some(section) = self.sections.get_mut(&id) else {
            return;
        };
        section.timer = None;
        if !section.lives() {
            return;
        }
        if section.warn_at.is_some_and(|at| at <= now) {
            section.warn_at = None;
            out.push(Event::LeaseExpired { section: id });
        }
        if section.renew_at <= now {
            self.renew(now, out);
        }
        self.arm_section(id);
    }

    /// One heartbeat for every section that needs one now or soon.
    fn renew(&mut self, now: Micros, out: &mut Vec<Event>) {
        let mut refs: Vec<(SectionId, Held)> = Vec::new();
        let mut renewed = Vec::new();
        for (id, section) in &mut self.sections {
            let soon = now.saturating_add(section.lease / 12);
            if section.lives() && section.renew_at <= soon {
                refs.extend(section.held().into_iter().map(|held| (*id, held)));
                section.renew_at = now.saturating_add((section.lease / 3).max(1));
                renewed.push((*id, section.lease));
            }
        }
        for (id, _) in &renewed {
            self.arm_section(*id);
        }
        let period = renewed.iter().map(|(_, lease)| lease / 3).min();
        let mut refs = refs.into_iter().peekable();
        while refs.peek().is_some() {
            let chunk: Vec<_> = refs.by_ref().take(REFS_PER_RENEWAL).collect();
            let held = chunk.iter().map(|(_, held)| held.clone()).collect();
            let kind = Kind::Renew { refs: chunk };
            let number = self.start(now, None, kind, Operation::Renew { held }, out);
            if let Some(open) = self.open.get_mut(&number) {
                // The next heartbeat comes anyway.
                let patience = period.unwrap_or(0).max(1);
                open.deadline = now.saturating_add(patience.max(self.options.attempt));
                if let Sending::Sent(until) = &mut open.sending {
                    *until = (*until).min(now.saturating_add(patience));
                }
            }
            self.arm(number);
        }
    }

    /// A heartbeat failed: the next one comes sooner.
    pub(super) fn renew_soon(&mut self, now: Micros, sections: &[SectionId]) {
        for id in sections {
            if let Some(section) = self.sections.get_mut(id) {
                let soon = now.saturating_add((section.lease / 12).max(1));
                section.renew_at = section.renew_at.min(soon);
            }
            self.arm_section(*id);
        }
    }

    /// What the primaries say of the refs. `sent` is when they were asked.
    pub(super) fn renewed(
        &mut self,
        now: Micros,
        (endpoint, sent): (Endpoint, Micros),
        refs: &[(SectionId, Held)],
        states: &[RefState],
        out: &mut Vec<Event>,
    ) {
        let mut unknown = Vec::new();
        let mut granted: BTreeMap<SectionId, usize> = BTreeMap::new();
        for ((id, held), state) in refs.iter().zip(states) {
            if !self.owns(*id, held) {
                continue;
            }
            match state {
                RefState::Queued { .. } => {}
                RefState::Holding { lease } => {
                    *granted.entry(*id).or_default() += 1;
                    self.prolong(now, *id, held, sent, *lease);
                }
                RefState::Gone => self.lose(now, *id, Some(&held.key), LostReason::Gone, out),
                RefState::Denied => self.lose(now, *id, None, LostReason::Denied, out),
                RefState::Deleted => self.lose(now, *id, Some(&held.key), LostReason::Deleted, out),
                RefState::Unknown => unknown.push(*id),
            }
        }
        self.renew_avoid = (!unknown.is_empty()).then_some(endpoint);
        self.renew_soon(now, &unknown);
        for (id, keys) in granted {
            self.missed_grant(now, id, keys, sent, out);
        }
    }

    fn prolong(&mut self, now: Micros, id: SectionId, held: &Held, sent: Micros, lease: Micros) {
        let until = self.lease_end(sent, lease);
        let Some(section) = self.sections.get_mut(&id) else {
            return;
        };
        if let Some(key) = section.keys.get_mut(&held.key) {
            key.lease_until = key.lease_until.max(until);
        }
        let until = section.lease_until();
        if section.stage == Stage::Held && until > now {
            section.warn_at = Some(until);
        }
        self.arm_section(id);
    }

    /// All keys of a waiting section are held: if the enter was sent before that was asked, its
    /// answer went astray, and any node can give it again.
    fn missed_grant(
        &mut self,
        now: Micros,
        id: SectionId,
        keys: usize,
        asked: Micros,
        out: &mut Vec<Event>,
    ) {
        let Some(section) = self.sections.get(&id) else {
            return;
        };
        if section.stage != Stage::Waiting || keys < section.keys.len() {
            return;
        }
        let Some(number) = section.open.first().copied() else {
            return;
        };
        let Some(open) = self.open.get(&number) else {
            return;
        };
        if open.last_sent.is_some_and(|sent| sent < asked)
            && matches!(open.sending, Sending::Sent(_))
        {
            self.transmit(now, number, out);
        }
    }

    /// When a lease of this length ends by this client's clock.
    pub(super) fn lease_end(&self, sent: Micros, lease: Micros) -> Micros {
        let ppm = u128::from(self.options.drift_ppm);
        let drift = (u128::from(lease) * ppm).div_ceil(1_000_000);
        let drift = Micros::try_from(drift).unwrap_or(Micros::MAX);
        sent.saturating_add(lease.saturating_sub(drift))
    }
}
