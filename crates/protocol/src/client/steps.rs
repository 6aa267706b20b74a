//! What comes back: replies, failures, and the ends of operations and sections.

use super::call::{Endpoint, Event, Failure, LostReason, SectionId, Success};
use super::operation::{Kind, Open, Sending};
use super::section::{SHORTEST_LEASE, Stage};
use super::session::{Due, Session, over};
use crate::base::{Bug, KeyId, Micros, Now, Tag};
use crate::request::{Code, Critical, Entered, Held, Operation, Refusal, Reply};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;

/// A node that is at work on a request says so more often than this, microseconds (every two retry
/// times): a client that is less patient in general does not take it for dead.
const AT_WORK: Micros = 3_000_000;

impl Session {
    /// A reply to the request `number` has come from `endpoint`.
    pub fn on_reply(
        &mut self,
        now: Now,
        endpoint: Endpoint,
        number: u64,
        reply: Reply,
        out: &mut Vec<Event>,
    ) {
        let now = now.monotonic;
        self.endpoints.trust(endpoint);
        if let (Some(section), Reply::Lost { held }) = (self.follows.get(&number), &reply) {
            let (section, key) = (*section, held.key.clone());
            if self.owns(section, held) {
                self.lose(now, section, Some(&key), LostReason::Gone, out);
            }
            return;
        }
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        if !open.listening.contains(&endpoint) {
            return;
        }
        match reply {
            Reply::Queued { held, ahead } => self.queued(now, number, &held, ahead, out),
            Reply::Stalled { why } => self.stalled(now, number, why),
            Reply::Lost { .. } if matches!(open.kind, Kind::Enter { .. }) => {
                open.deafen(endpoint);
                self.finish(now, number, Err(over()), out);
            }
            Reply::Refused(refusal) => {
                open.deafen(endpoint);
                self.refused(now, number, refusal, out);
            }
            reply if open.kind.ends_with(&reply) => {
                self.complete(now, endpoint, number, reply, out);
            }
            _ => self.on_failure_at(now, endpoint, number, Failure::Broken, out),
        }
    }

    /// The connection on which the request `number` was sent to `endpoint` has failed, or never
    /// was.
    pub fn on_failure(
        &mut self,
        now: Now,
        endpoint: Endpoint,
        number: u64,
        failure: Failure,
        out: &mut Vec<Event>,
    ) {
        self.on_failure_at(now.monotonic, endpoint, number, failure, out);
    }

    /// The connection to `endpoint` has failed, with all that was open on it.
    pub fn on_disconnected(&mut self, now: Now, endpoint: Endpoint, out: &mut Vec<Event>) {
        let on_it = self
            .open
            .iter()
            .filter(|(_, o)| o.listening.contains(&endpoint));
        let numbers: Vec<u64> = on_it.map(|(number, _)| *number).collect();
        for section in self.sections.values_mut() {
            if let Some((number, _)) = section.follow.take_if(|(_, at)| *at == endpoint) {
                self.follows.remove(&number);
            }
        }
        for number in numbers {
            self.on_failure_at(now.monotonic, endpoint, number, Failure::Broken, out);
        }
    }

    fn on_failure_at(
        &mut self,
        now: Micros,
        endpoint: Endpoint,
        number: u64,
        failure: Failure,
        out: &mut Vec<Event>,
    ) {
        self.endpoints
            .suspect(endpoint, now.saturating_add(self.options.suspicion));
        if let Some(id) = self.follows.remove(&number)
            && let Some(section) = self.sections.get_mut(&id)
        {
            section.follow = None;
        }
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        if !open.deafen(endpoint) {
            return;
        }
        open.doubt |= failure == Failure::Broken;
        open.setbacks += 1;
        if !open.listening.is_empty() {
            return;
        }
        match &open.kind {
            Kind::Renew { refs } => {
                let sections: Vec<SectionId> = refs.iter().map(|(id, _)| *id).collect();
                self.finish(now, number, Err(silent()), out);
                self.renew_soon(now, &sections);
            }
            Kind::Once if open.doubt => self.finish(now, number, Err(silent()), out),
            _ if open.pinned.is_some() => self.finish(now, number, Err(silent()), out),
            _ if (open.setbacks as usize) < self.endpoints.len() => {
                self.transmit(now, number, out);
            }
            _ => self.pause(now, number),
        }
    }

    /// Waits before the next transmission, longer each time, and not in step with others.
    fn pause(&mut self, now: Micros, number: u64) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        let doublings = open.setbacks.min(16);
        let longest = (self.options.backoff << doublings).min(self.options.backoff_max);
        let pause = longest / 2 + self.rng.below(longest / 2 + 1);
        open.sending = Sending::Paused(now.saturating_add(pause));
        self.arm(number);
    }

    fn queued(
        &mut self,
        now: Micros,
        number: u64,
        held: &[Held],
        ahead: u32,
        out: &mut Vec<Event>,
    ) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        let Kind::Enter {
            section,
            poll,
            wait_until,
        } = open.kind
        else {
            // A node that is at work on it says so again and again.
            if matches!(open.kind, Kind::Plain) {
                let patience = self.options.attempt.max(AT_WORK);
                open.sending = Sending::Sent(now.saturating_add(patience));
                open.queued = true;
                open.refusal = Some(open.in_queue(ahead));
                self.arm(number);
            }
            return;
        };
        open.is_placed(now, ahead);
        // In the queue: from here on its wait is the bound, not the time for an answer.
        let patience = self.wait_and_grace(wait_until.saturating_sub(now));
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        if matches!(open.operation, Operation::Enter { wait, .. } if wait > 0) {
            open.deadline = open.deadline.max(now.saturating_add(patience));
        }
        // The node keeps the request now. It is asked again only in case that it died silently.
        open.sending = Sending::Sent(now.saturating_add(self.options.attempt.saturating_mul(4)));
        open.queued = true;
        if matches!(open.operation, Operation::Resume { .. }) {
            // It is agreed, and the former generation is over: only the lease that this one was
            // given stands in the way. To give up now would lose the section.
            let patience = now.saturating_add(self.options.request);
            open.deadline = open.deadline.max(patience);
        }
        let (ticket, first_sent) = (open.ticket, open.first_sent.unwrap_or(now));
        self.arm(number);
        if let Some(s) = self.sections.get_mut(&section) {
            s.learn(held);
            if poll {
                s.polled = Some((number, first_sent));
                self.polls.insert(number);
            }
        }
        self.arm_section(section);
        if poll {
            let held = self
                .sections
                .get(&section)
                .map_or_else(Vec::new, |s| s.held());
            let answer = Success::Waiting {
                section,
                held,
                ahead,
            };
            self.finish(now, number, Ok(answer), out);
        } else if let Some(ticket) = ticket {
            out.push(Event::Queued { ticket, ahead });
        }
    }

    /// A node knows that the request cannot be done as things are. From then on the time for an
    /// answer counts for an enter, not that for its wait.
    fn stalled(&mut self, now: Micros, number: u64, why: String) {
        let (request, attempt) = (self.options.request, self.options.attempt);
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        let enters = matches!(open.kind, Kind::Enter { .. });
        if !enters && !matches!(open.kind, Kind::Plain) {
            return;
        }
        if enters {
            open.sending = Sending::Sent(now.saturating_add(attempt.saturating_mul(4)));
        } else if open.queued {
            open.sending = Sending::Sent(now.saturating_add(attempt.max(AT_WORK)));
        }
        open.refusal = Some(Refusal::definite(Code::Unavailable, why));
        // Told again and again; the first time counts, unless it had passed.
        if open
            .taken_back
            .take()
            .is_some_and(|at| now.saturating_sub(at) > AT_WORK)
        {
            open.stalled_until = None;
        }
        if enters && open.stalled_until.is_none() {
            // Not at once where it has been the first for long: it may pass.
            let since = open.first_since.get_or_insert(now);
            let since = (*since).max(now.saturating_sub(request / 2));
            open.stalled_until = Some(since.saturating_add(request));
        }
        self.arm(number);
    }

    fn refused(&mut self, now: Micros, number: u64, refusal: Refusal, out: &mut Vec<Event>) {
        let endpoints = self.endpoints.len();
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        open.setbacks += 1;
        // The wait is over, and so it was never granted.
        let waited = matches!(open.kind, Kind::Enter { wait_until, poll: false, .. }
            if open.stalls_until().is_some() && wait_until <= now);
        let again = match refusal.code {
            Code::Unavailable if waited => false,
            Code::Unavailable | Code::Busy => true,
            Code::NoSuchKeyspace if self.options.keyspaces_are_looked_up => false,
            // Another node may have room, or know the keyspace already.
            Code::DiskFull | Code::NoSuchKeyspace => (open.setbacks as usize) < endpoints,
            _ => false,
        };
        if again && open.pinned.is_none() {
            open.doubt |= refusal.may_have_taken_effect;
            if open.ends_in_doubt(&refusal) {
                return self.finish(now, number, Err(refusal), out);
            }
            open.refusal = Some(refusal);
            if open.listening.is_empty() {
                self.pause(now, number);
            }
            return;
        }
        let refusal = open.merged(refusal);
        let section = open.kind.section();
        let past = reason_of(&refusal);
        match &open.kind {
            Kind::Write { write, key, .. } if refusal.code == Code::StaleSequence => {
                // A whole quorum holds a later write of this section. If it is one of ours, this
                // one is stored in effect, and outranked (F16).
                let (write, key) = (*write, key.clone());
                let section = section.and_then(|id| self.sections.get(&id));
                let ours = section.and_then(|s| s.account.of(&key));
                let ours = ours.is_some_and(|writes| writes.outranked(write));
                let tag = self.tag(number, write);
                let result = if ours {
                    Ok(Success::Done { tag })
                } else {
                    Err(refusal)
                };
                self.finish(now, number, result, out);
            }
            Kind::Leave { .. } if past.is_some() && refusal.may_have_taken_effect => {
                self.finish(now, number, Ok(Success::Left), out);
            }
            Kind::Get { key, .. } | Kind::Write { key, .. } if past.is_some() => {
                let key = key.clone();
                self.finish(now, number, Err(refusal), out);
                if let (Some(id), Some(reason)) = (section, past) {
                    self.lose(now, id, Some(&key), reason, out);
                }
            }
            _ => self.finish(now, number, Err(refusal), out),
        }
    }

    /// The tag of a write, from the request that makes it.
    fn tag(&self, number: u64, write: u64) -> Option<Tag> {
        match &self.open.get(&number)?.operation {
            Operation::Critical { held, .. } => {
                let Held {
                    lock_ref,
                    generation,
                    ..
                } = *held;
                Some(Tag::critical(lock_ref, generation, write, self.id))
            }
            _ => None,
        }
    }

    /// A reply that ends the operation well, if it says what such a reply must say.
    fn complete(
        &mut self,
        now: Micros,
        endpoint: Endpoint,
        number: u64,
        reply: Reply,
        out: &mut Vec<Event>,
    ) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        let sent = open.first_sent.unwrap_or(now);
        let following = matches!(
            open.operation,
            Operation::Enter { follow: true, .. } | Operation::Resume { .. }
        );
        let answer = match (&open.kind, reply) {
            (Kind::Enter { section, .. }, reply) => {
                let id = *section;
                let follow = following.then_some((number, endpoint));
                let Some((keys, lease)) = self.entry(id, number, reply) else {
                    return self.on_failure_at(now, endpoint, number, Failure::Broken, out);
                };
                if let Some(open) = self.open.get_mut(&number) {
                    open.deafen(endpoint);
                }
                let section = id;
                let result = match self.entered(now, id, (&keys, lease, sent), follow) {
                    true => Ok(Success::Entered { section, keys }),
                    false => Err(over()),
                };
                return self.finish(now, number, result, out);
            }
            (Kind::Renew { refs }, Reply::Renewed { states }) => {
                let refs = refs.clone();
                open.deafen(endpoint);
                self.finish(now, number, Ok(Success::Done { tag: None }), out);
                return self.renewed(now, (endpoint, sent), &refs, &states, out);
            }
            (_, Reply::Value { value, tag }) => {
                let tag = Some(tag);
                Success::Value { value, tag }
            }
            (Kind::Leave { .. }, _) | (_, Reply::Left) => Success::Left,
            (_, Reply::Done { tag }) => Success::Done { tag },
            (_, Reply::Keys(keys)) => Success::Keys(keys),
            (_, Reply::Queue { entries, flag }) => Success::Queue { entries, flag },
            (_, Reply::Transacted(verdict)) => Success::Transacted(verdict),
            (_, Reply::Resolved(verdict)) => Success::Resolved(verdict),
            (_, Reply::Snapshot { at, found }) => Success::Snapshot { at, found },
            (_, Reply::Inspect(inspection)) => Success::Inspect(inspection),
            (_, Reply::Keyspaces(keyspaces)) => Success::Keyspaces(keyspaces),
            (_, Reply::Access(access)) => Success::Access(access),
            (_, Reply::Status(status)) => Success::Status(status),
            (_, Reply::Admitted(admitted)) => Success::Admitted(admitted),
            (_, Reply::Ring(ring)) => Success::Ring(ring),
            _ => return self.on_failure_at(now, endpoint, number, Failure::Broken, out),
        };
        open.deafen(endpoint);
        self.finish(now, number, Ok(answer), out);
    }

    /// What a node says at the entry, if it names exactly the section's keys.
    fn entry(&self, id: SectionId, number: u64, reply: Reply) -> Option<(Vec<Entered>, Micros)> {
        let section = self.sections.get(&id)?;
        match (reply, &self.open.get(&number)?.operation) {
            (
                Reply::Entered { keys, lease },
                Operation::Enter { .. } | Operation::Resume { .. },
            ) => {
                let all = keys.len() == section.keys.len()
                    && keys.iter().all(|k| section.keys.contains_key(&k.held.key));
                all.then_some((keys, lease))
            }
            (Reply::Value { value, .. }, Operation::Critical { held, .. }) => {
                let (held, value) = (held.clone(), value.into());
                Some((Vec::from([Entered { held, value }]), section.lease))
            }
            _ => None,
        }
    }

    /// The section was granted; whether it begins. One that is over by then is not taken up again:
    /// a leave of it is on its way, or about to be, which says that nothing was written (G61).
    fn entered(
        &mut self,
        now: Micros,
        id: SectionId,
        (keys, lease, sent): (&[Entered], Micros, Micros),
        follow: Option<(u64, Endpoint)>,
    ) -> bool {
        let until = self.lease_end(sent, lease);
        let keeps = self.options.cached_gets;
        let revives = self.options.planted.has(Bug::LateGrantRevives);
        let Some(section) = self.sections.get_mut(&id) else {
            return false;
        };
        section.entered = true;
        if section.stage != Stage::Waiting && !revives {
            let held: Vec<Held> = keys.iter().map(|entered| entered.held.clone()).collect();
            section.learn(&held);
            return false;
        }
        section.stage = Stage::Held;
        for entered in keys {
            if let Some(key) = section.keys.get_mut(&entered.held.key) {
                key.held = Some(entered.held.clone());
                // What the answer left out is asked for when it is wanted.
                let known = entered.value.known().filter(|_| keeps);
                key.known = known.map(|value| value.cloned());
                key.lease_until = key.lease_until.max(until);
            }
        }
        section.lease = lease.max(SHORTEST_LEASE);
        section.warn_at = Some(section.lease_until().max(now.saturating_add(lease / 2)));
        // A grant after a wait counts from long ago: a fresh lease is wanted at once.
        let late = until < now.saturating_add(lease / 2);
        section.renew_at = if late {
            now
        } else {
            sent.saturating_add(lease / 3)
        };
        section.follow = follow;
        if let Some((number, _)) = follow {
            self.follows.insert(number, id);
        }
        self.arm_section(id);
        true
    }

    /// Ends an operation: its other transmissions are closed, its section learns of it, its user
    /// too.
    pub(super) fn finish(
        &mut self,
        now: Micros,
        number: u64,
        result: Result<Success, Refusal>,
        out: &mut Vec<Event>,
    ) {
        let Some(mut open) = self.open.remove(&number) else {
            return;
        };
        if let Some(at) = open.timer {
            self.timers.remove(&(at, Due::Operation(number)));
        }
        let naive = self.options.planted.has(Bug::UnknownTakenAsFailed);
        let result = result.map_err(|refusal| {
            let mut refusal = open.merged(refusal);
            refusal.may_have_taken_effect &= !naive;
            refusal
        });
        for endpoint in core::mem::take(&mut open.listening) {
            out.push(Event::Close { endpoint, number });
        }
        if let Some(id) = open.kind.section() {
            self.settle(now, id, number, &open, &result, out);
        }
        if let Some(ticket) = open.ticket {
            out.push(Event::Done { ticket, result });
        }
        if let Some(id) = open.kind.section() {
            self.go_on(now, id, out);
        }
    }

    /// What the end of an operation means to its section.
    fn settle(
        &mut self,
        now: Micros,
        id: SectionId,
        number: u64,
        open: &Open,
        result: &Result<Success, Refusal>,
        out: &mut Vec<Event>,
    ) {
        let (kind, keeps) = (&open.kind, self.options.cached_gets);
        let Some(section) = self.sections.get_mut(&id) else {
            return;
        };
        section.conclude(number, kind);
        match (kind, result) {
            (Kind::Write { key, write, .. }, Ok(_)) => {
                let own = (section.keys.get_mut(key), section.account.of_mut(key));
                if let (Some(key), Some(writes)) = own {
                    if *write > writes.acknowledged() {
                        key.known = written(&open.operation).filter(|_| keeps);
                    }
                    writes.acknowledge(*write);
                }
            }
            (Kind::Write { key, write, .. }, Err(refusal)) => {
                if let Some(writes) = section.account.of_mut(key)
                    && !refusal.may_have_taken_effect
                {
                    match open.first_sent {
                        None => writes.withdraw(*write),
                        Some(_) => writes.refuse(*write),
                    }
                }
            }
            (Kind::Get { key, .. }, Ok(Success::Value { value, .. })) => {
                if let Some(key) = section.keys.get_mut(key) {
                    key.known = keeps.then(|| value.clone());
                }
            }
            _ => {}
        }
        match (kind, result) {
            (Kind::Write { leaves: true, .. }, Ok(_)) => section.stage = Stage::Over,
            (
                Kind::Write {
                    leaves: true, key, ..
                },
                Err(refusal),
            ) => {
                let past = reason_of(refusal).is_some();
                let lost = past.then(|| key.clone());
                self.start_leave(now, None, id, lost, out);
            }
            // Nobody could say how it stands: it waits on, to be polled again.
            (Kind::Enter { poll: true, .. }, Err(refusal))
                if section.lives() && matches!(refusal.code, Code::Unavailable | Code::Busy) =>
            {
                section.polled = Some((number, open.first_sent.unwrap_or(now)));
                self.polls.insert(number);
            }
            (Kind::Enter { .. }, Err(refusal)) => {
                if let Some((polled, _)) = section.polled.take() {
                    self.polls.remove(&polled);
                }
                // The node that kept it gives up only a place further back: one that holds may have
                // been granted through another node, as far as it knows.
                let past = reason_of(refusal).is_some();
                let leave = (refusal.may_have_taken_effect || !past) && section.lives();
                section.stage = Stage::Over;
                if leave {
                    self.start_leave(now, None, id, None, out);
                }
            }
            _ => {}
        }
    }

    /// Lets a section's waiting operations have their turn, and forgets a section that is over.
    fn go_on(&mut self, now: Micros, id: SectionId, out: &mut Vec<Event>) {
        let Some(section) = self.sections.get(&id) else {
            return;
        };
        let blocked: Vec<u64> = section.blocked.iter().copied().collect();
        for number in blocked {
            self.try_launch(now, number, out);
        }
        if let Some(section) = self.sections.get(&id)
            && section.stage == Stage::Over
            && section.open.is_empty()
        {
            self.unfollow(id, out);
            self.forget(id);
        }
    }

    /// Nothing of a section is open, or will be.
    pub(super) fn forget(&mut self, id: SectionId) {
        if let Some(section) = self.sections.remove(&id)
            && let Some(at) = section.timer
        {
            self.timers.remove(&(at, Due::Section(id)));
        }
    }

    /// One key of a section was lost, or none, and it may not be held any more: the whole section
    /// is over (F19), and left as far as it is not lost.
    pub(super) fn lose(
        &mut self,
        now: Micros,
        id: SectionId,
        key: Option<&KeyId>,
        reason: LostReason,
        out: &mut Vec<Event>,
    ) {
        let ignored = self.options.planted.has(Bug::LostKeyIgnored);
        let Some(section) = self.sections.get_mut(&id) else {
            return;
        };
        let entering = match section.stage {
            Stage::Waiting => true,
            Stage::Held if ignored => return,
            Stage::Held => false,
            // What it says now may be the trace of its own leave.
            Stage::Leaving | Stage::Over => return,
        };
        // Nothing that waits may begin any more.
        let mut refused = core::mem::take(&mut section.blocked);
        if entering {
            refused.extend(section.open.iter().copied());
        }
        if !(entering && section.polled.is_none()) {
            let section = id;
            out.push(Event::SectionLost { section, reason });
        }
        if let Some((number, _)) = section.polled {
            self.polls.remove(&number);
        }
        self.start_leave(now, None, id, key.cloned(), out);
        for number in refused {
            self.finish(now, number, Err(over()), out);
        }
        self.go_on(now, id, out);
    }

    /// Whether the section holds, or waits with, exactly this ref.
    pub(super) fn owns(&self, id: SectionId, held: &Held) -> bool {
        let section = self.sections.get(&id);
        let key = section.and_then(|s| s.keys.get(&held.key));
        key.is_some_and(|k| k.held.as_ref() == Some(held))
    }

    /// The entered request need not stay open.
    pub(super) fn unfollow(&mut self, id: SectionId, out: &mut Vec<Event>) {
        if let Some(section) = self.sections.get_mut(&id)
            && let Some((number, endpoint)) = section.follow.take()
        {
            self.follows.remove(&number);
            out.push(Event::Close { endpoint, number });
        }
    }
}

/// The value that a critical put writes.
fn written(operation: &Operation) -> Option<Option<Bytes>> {
    match operation {
        Operation::Critical {
            operation: Critical::Put { value, .. },
            ..
        } => Some(value.clone()),
        _ => None,
    }
}

/// Why a section is over of which an operation was refused so; none: it is not.
fn reason_of(refusal: &Refusal) -> Option<LostReason> {
    match refusal.code {
        Code::NoLongerHolder => Some(LostReason::Refused),
        Code::NoSuchKeyspace => Some(LostReason::Deleted),
        _ => None,
    }
}

/// Nobody has answered: no node at all, or none that reached a quorum.
pub(super) fn silent() -> Refusal {
    Refusal::definite(
        Code::Unavailable,
        "No node could answer with a quorum within the time allowed; try again.",
    )
}
