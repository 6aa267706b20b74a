//! The session: calls come in, requests go out. Replies are handled in `steps`, time in `upkeep`.

use super::call::{Call, Endpoint, Event, Options, SectionId, Success, Ticket};
use super::endpoints::Endpoints;
use super::operation::{Kind, Open, Sending, fits};
use super::section::{Section, SectionInfo, Stage, Turn};
use crate::base::{Bug, KeyId, Micros, Now, Planted, Rng, SessionId, SiteId};
use crate::request::{Code, Critical, Held, Mode, Operation, Refusal, Request};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Operation(u64),
    Section(SectionId),
}

/// The session of one client: see the [module](super).
#[derive(Debug)]
pub struct Session {
    pub(super) id: SessionId,
    pub(super) site: SiteId,
    pub(super) options: Options,
    pub(super) endpoints: Endpoints,
    pub(super) rng: Rng,
    next_number: u64,
    next_section: u64,
    pub(super) open: BTreeMap<u64, Open>,
    pub(super) sections: BTreeMap<SectionId, Section>,
    /// Requests of sections that wait between polls: they will be repeated.
    pub(super) polls: BTreeSet<u64>,
    /// Entered requests that stay open for a loss to be pushed.
    pub(super) follows: BTreeMap<u64, SectionId>,
    pub(super) timers: BTreeSet<(Micros, Due)>,
    /// The last endpoint that could not reach a primary for a heartbeat.
    pub(super) renew_avoid: Option<Endpoint>,
}

impl Session {
    /// A session named `id`, 128 bits that no other session ever had: not this client's before its
    /// restart either. `endpoints` are in order of preference, those of `site` first.
    pub fn new(id: SessionId, site: SiteId, endpoints: &[Endpoint], options: Options) -> Session {
        let options = Options {
            attempt: options.attempt.max(1_000),
            backoff: options.backoff.max(1),
            ..options
        };
        Session {
            id,
            site,
            options,
            endpoints: Endpoints::new(endpoints),
            rng: Rng::new((id.0 >> 64) as u64 ^ id.0 as u64),
            next_number: 1,
            next_section: 1,
            open: BTreeMap::new(),
            sections: BTreeMap::new(),
            polls: BTreeSet::new(),
            follows: BTreeMap::new(),
            timers: BTreeSet::new(),
            renew_avoid: None,
        }
    }

    /// The session's name.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// A new order of preference, with new endpoints or without old ones.
    pub fn prefer(&mut self, endpoints: &[Endpoint]) {
        self.endpoints.prefer(endpoints);
    }

    /// The client's site, once it is known.
    pub fn set_site(&mut self, site: SiteId) {
        self.site = site;
    }

    /// All sections that are not over.
    pub fn sections(&self) -> Vec<SectionInfo> {
        let live = self.sections.iter().filter(|(_, s)| s.stage != Stage::Over);
        live.map(|(id, section)| section.info(*id)).collect()
    }

    /// Operations without a final answer, those of the session itself included.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// When to call [`Session::tick`] next, on the boot-time clock.
    pub fn wake(&self) -> Option<Micros> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Begins a user operation. Its end comes as [`Event::Done`], perhaps at once.
    pub fn call(&mut self, now: Now, ticket: Ticket, call: Call, out: &mut Vec<Event>) {
        let full = self.open.len() >= self.options.open;
        let begun = match call {
            Call::Leave { .. } => self.begin(now.monotonic, ticket, call, out),
            _ if full => Err(Refusal::definite(
                Code::Busy,
                "The client has too many operations open; wait for some to end.",
            )),
            _ => self.begin(now.monotonic, ticket, call, out),
        };
        if let Err(refusal) = begun {
            let result = Err(refusal);
            out.push(Event::Done { ticket, result });
        }
    }

    fn begin(
        &mut self,
        now: Micros,
        ticket: Ticket,
        call: Call,
        out: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        fits(&call)?;
        match call {
            Call::Enter {
                keys,
                mode,
                wait,
                lease,
            } => self.enter(now, ticket, keys, mode, (wait, lease), out),
            Call::Poll { section } => self.poll(now, ticket, section, out),
            Call::Resume { held, of } => self.resume(now, ticket, held, of, out),
            Call::Relinquish { section } => self.relinquish(now, ticket, section, out),
            Call::CriticalGet { section, key } => self.critical_get(now, ticket, section, key, out),
            Call::CriticalPut {
                section,
                key,
                value,
            } => self.critical_put(now, ticket, section, (key, value), false, out),
            Call::PutAndLeave {
                section,
                key,
                value,
            } => self.critical_put(now, ticket, section, (key, value), true, out),
            Call::Leave { section, wait } => self.leave(now, ticket, section, wait, out),
            other => {
                let Some((kind, operation, at)) = plain(other, self.options.planted) else {
                    return Err(bad("This operation belongs to a section."));
                };
                let deadline = now.saturating_add(self.options.request);
                let mut open = Open::new(Some(ticket), kind, operation, deadline);
                open.pinned = at;
                let number = self.next_number();
                self.insert(now, number, open, out);
                Ok(())
            }
        }
    }

    /// Nobody waits any more for the operation of this ticket. An enter is given up, with its place
    /// in the queue; anything else runs to its end.
    pub fn cancel(&mut self, now: Now, ticket: Ticket, out: &mut Vec<Event>) {
        let enter =
            |open: &Open| open.ticket == Some(ticket) && matches!(open.kind, Kind::Enter { .. });
        let found = self.open.iter().find(|(_, open)| enter(open));
        if let Some(number) = found.map(|(number, _)| *number) {
            let detail = "The wait for the lock was given up.";
            let refusal = Refusal::definite(Code::WaitOver, detail);
            self.finish(now.monotonic, number, Err(refusal), out);
        }
    }

    fn enter(
        &mut self,
        now: Micros,
        ticket: Ticket,
        keys: Vec<KeyId>,
        mode: Mode,
        (wait, lease): (Micros, Option<Micros>),
        out: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        let keys: BTreeSet<KeyId> = keys.into_iter().collect();
        if keys.is_empty() {
            return Err(bad("A section needs at least one key."));
        }
        let section = self.add_section(now, mode, lease, keys.iter().cloned());
        let operation = Operation::Enter {
            keys: keys.into_iter().collect(),
            mode,
            wait,
            follow: wait > 0,
            lease,
            may_return: true,
            label: self.options.label,
        };
        let kind = Kind::Enter {
            section,
            poll: wait == 0,
            wait_until: now.saturating_add(wait),
        };
        self.start(now, Some(ticket), kind, operation, out);
        Ok(())
    }

    fn poll(
        &mut self,
        now: Micros,
        ticket: Ticket,
        id: SectionId,
        out: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        let section = self.sections.get_mut(&id).ok_or_else(over)?;
        let (number, first_sent) = section
            .polled
            .take()
            .ok_or_else(|| bad("This section does not wait to be polled."))?;
        let operation = Operation::Enter {
            keys: section.keys.keys().cloned().collect(),
            mode: section.mode,
            wait: 0,
            follow: false,
            lease: section.asked,
            may_return: true,
            label: self.options.label,
        };
        let kind = Kind::Enter {
            section: id,
            poll: true,
            wait_until: now,
        };
        let deadline = now.saturating_add(self.options.request);
        let mut open = Open::new(Some(ticket), kind, operation, deadline);
        // The lease in the answer may have been granted to any poll so far.
        open.first_sent = Some(first_sent);
        self.polls.remove(&number);
        self.insert(now, number, open, out);
        Ok(())
    }

    fn resume(
        &mut self,
        now: Micros,
        ticket: Ticket,
        held: Vec<Held>,
        of: SessionId,
        out: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        let keys: BTreeSet<KeyId> = held.iter().map(|h| h.key.clone()).collect();
        if keys.is_empty() || keys.len() != held.len() {
            return Err(bad("A section to resume needs each of its keys once."));
        }
        let section = self.add_section(now, Mode::Exclusive, None, keys);
        let operation = match held.as_slice() {
            [only] if self.options.planted.has(Bug::ResumeReusesNumbers) => Operation::Critical {
                held: only.clone(),
                operation: Critical::Get,
                leave: Vec::new(),
            },
            _ => Operation::Resume {
                held: held.clone(),
                of,
            },
        };
        if matches!(operation, Operation::Critical { .. })
            && let Some(section) = self.sections.get_mut(&section)
        {
            section.learn(&held);
        }
        let kind = Kind::Enter {
            section,
            poll: false,
            wait_until: now,
        };
        self.start(now, Some(ticket), kind, operation, out);
        Ok(())
    }

    fn critical_get(
        &mut self,
        now: Micros,
        ticket: Ticket,
        id: SectionId,
        key: KeyId,
        out: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        let (section, held) = self.held_key(id, &key)?;
        let kind = Kind::Get {
            section: id,
            key,
            before: section.account.last() + 1,
        };
        let operation = Operation::Critical {
            held,
            operation: Critical::Get,
            leave: Vec::new(),
        };
        self.start(now, Some(ticket), kind, operation, out);
        Ok(())
    }

    fn critical_put(
        &mut self,
        now: Micros,
        ticket: Ticket,
        id: SectionId,
        (key, value): (KeyId, Option<Bytes>),
        leaves: bool,
        out: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        let (section, held) = self.held_key(id, &key)?;
        if section.mode == Mode::Shared {
            return Err(Refusal::definite(
                Code::ReadOnlySection,
                "A shared section may not write; enter it exclusively.",
            ));
        }
        let write = section.account.issue(key.clone()).ok_or_else(|| {
            Refusal::definite(
                Code::TooLarge,
                "The section has made the most writes that a section can make; leave it.",
            )
        })?;
        if leaves {
            section.stage = Stage::Leaving;
        }
        let kind = Kind::Write {
            section: id,
            key,
            write,
            leaves,
        };
        let operation = Operation::Critical {
            held,
            operation: Critical::Put {
                number: write,
                value,
            },
            leave: Vec::new(),
        };
        self.start(now, Some(ticket), kind, operation, out);
        Ok(())
    }

    fn leave(
        &mut self,
        now: Micros,
        ticket: Ticket,
        id: SectionId,
        wait: bool,
        out: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        let polled = self.present(id)?.polled;
        if !wait {
            let result = Ok(Success::Left);
            out.push(Event::Done { ticket, result });
        }
        if let Some((number, _)) = polled {
            self.polls.remove(&number);
        }
        self.start_leave(now, wait.then_some(ticket), id, None, out);
        Ok(())
    }

    /// A section that its client may still act in.
    fn present(&self, id: SectionId) -> Result<&Section, Refusal> {
        let section = self.sections.get(&id);
        let is_over = |section: &&Section| matches!(section.stage, Stage::Leaving | Stage::Over);
        section.filter(|section| !is_over(section)).ok_or_else(over)
    }

    fn relinquish(
        &mut self,
        now: Micros,
        ticket: Ticket,
        id: SectionId,
        out: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        let section = self.present(id)?;
        if !section.open.is_empty() {
            return Err(Refusal::definite(
                Code::Busy,
                "The section has operations open; wait for them, and ask again.",
            ));
        }
        // One that waits has no lease to give back.
        let held = match section.entered {
            true => section.held(),
            false => Vec::new(),
        };
        if let Some((number, _)) = section.polled {
            self.polls.remove(&number);
        }
        self.unfollow(id, out);
        // Nothing is open, so that nothing of it remains: what comes for it is not known any more.
        if !self.options.planted.has(Bug::RelinquishedGoesOn) {
            self.forget(id);
        }
        if held.is_empty() {
            let result = Ok(Success::Done { tag: None });
            out.push(Event::Done { ticket, result });
            return Ok(());
        }
        let refs = held.iter().map(|held| (id, held.clone())).collect();
        let kind = Kind::Renew { refs };
        self.start(now, Some(ticket), kind, Operation::Relinquish { held }, out);
        Ok(())
    }

    /// Ends a section of which everything but its open operations is over: a leave follows them.
    /// `lost` is the key that somebody else has ended.
    pub(super) fn start_leave(
        &mut self,
        now: Micros,
        ticket: Option<Ticket>,
        id: SectionId,
        lost: Option<KeyId>,
        out: &mut Vec<Event>,
    ) {
        let Some(section) = self.sections.get_mut(&id) else {
            return;
        };
        section.stage = Stage::Over;
        if let Some(lost) = lost {
            section.keys.entry(lost).or_default().held = None;
        }
        self.unfollow(id, out);
        let patience = self.sections.get(&id).map_or(0, |s| s.lease);
        let kind = Kind::Leave {
            section: id,
            answer_by: now.saturating_add(self.options.request),
            grace_until: now.saturating_add(self.options.leave_grace),
        };
        let operation = Operation::Leave { keys: Vec::new() };
        let number = self.start(now, ticket, kind, operation, out);
        // By then the lease has run out and the nodes end the section themselves.
        let give_up = now
            .saturating_add(self.options.request)
            .saturating_add(patience);
        if let Some(open) = self.open.get_mut(&number) {
            open.deadline = give_up;
        }
        self.arm(number);
    }

    fn add_section(
        &mut self,
        now: Micros,
        mode: Mode,
        lease: Option<Micros>,
        keys: impl IntoIterator<Item = KeyId>,
    ) -> SectionId {
        let id = SectionId(self.next_section);
        self.next_section += 1;
        let mut section = Section::new(mode, lease, self.options.assumed_lease, now);
        section.keys = keys.into_iter().map(|k| (k, Default::default())).collect();
        self.sections.insert(id, section);
        id
    }

    /// An entered section and the ref of one of its keys.
    fn held_key(&mut self, id: SectionId, key: &KeyId) -> Result<(&mut Section, Held), Refusal> {
        let section = self.sections.get_mut(&id).ok_or_else(over)?;
        match section.stage {
            Stage::Leaving | Stage::Over => return Err(over()),
            Stage::Waiting => {
                return Err(Refusal::definite(
                    Code::NotHolder,
                    "The section is not entered yet; wait for the lock.",
                ));
            }
            Stage::Held => {}
        }
        let held = section.keys.get(key).and_then(|k| k.held.clone());
        let held = held.ok_or_else(|| bad("The key does not belong to this section."))?;
        Ok((section, held))
    }

    /// Gives an operation its number and begins it, if it is its turn.
    pub(super) fn start(
        &mut self,
        now: Micros,
        ticket: Option<Ticket>,
        kind: Kind,
        operation: Operation,
        out: &mut Vec<Event>,
    ) -> u64 {
        let number = self.next_number();
        // A wait is a bound also where nobody can say who is ahead; but a short one leaves time for
        // one repetition at another node. Until there is a place in the queue there is nothing to
        // wait for but an answer.
        let patience = match &operation {
            Operation::Enter { wait, .. } if *wait > 0 => {
                self.wait_and_grace(*wait).min(self.options.request)
            }
            _ => self.options.request,
        };
        let deadline = now.saturating_add(patience);
        self.insert(
            now,
            number,
            Open::new(ticket, kind, operation, deadline),
            out,
        );
        number
    }

    /// How long an enter in the queue may take that waits for so long.
    pub(super) fn wait_and_grace(&self, wait: Micros) -> Micros {
        let grace = self.options.attempt.saturating_mul(3);
        wait.saturating_add(grace.min(self.options.request))
    }

    fn next_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    fn insert(&mut self, now: Micros, number: u64, open: Open, out: &mut Vec<Event>) {
        if let Some(section) = open
            .kind
            .section()
            .and_then(|id| self.sections.get_mut(&id))
        {
            section.issue(number, &open.kind);
        }
        self.open.insert(number, open);
        self.arm(number);
        self.try_launch(now, number, out);
    }

    /// Launches an operation if it is its turn.
    pub(super) fn try_launch(&mut self, now: Micros, number: u64, out: &mut Vec<Event>) {
        let Some(open) = self.open.get(&number) else {
            return;
        };
        let naive = self.options.planted.has(Bug::DirtyLeaveTakenAsClean);
        let section = open
            .kind
            .section()
            .and_then(|id| self.sections.get_mut(&id));
        let turn = match (&open.kind, section) {
            (Kind::Leave { .. }, _) if naive => Turn::Go,
            (Kind::Leave { grace_until, .. }, _) if *grace_until <= now => Turn::Go,
            (kind, Some(section)) => {
                let turn = section.turn(number, kind);
                if turn == Turn::Wait {
                    section.blocked.insert(number);
                }
                turn
            }
            (_, None) => Turn::Go,
        };
        match turn {
            Turn::Wait => {}
            Turn::Go => self.launch(now, number, out),
            Turn::Doubt => {
                let refusal = Refusal::definite(
                    Code::Unavailable,
                    "An earlier write of this key has no known outcome; write the key again, or \
                     leave the section.",
                );
                self.finish(now, number, Err(refusal), out);
            }
        }
    }

    fn launch(&mut self, now: Micros, number: u64, out: &mut Vec<Event>) {
        let (id, planted) = (self.id, self.options.planted);
        self.refuse_unsent(now, number, out);
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        if let Some(section_id) = open.kind.section()
            && let Some(section) = self.sections.get_mut(&section_id)
        {
            section.blocked.remove(&number);
            match (&open.kind, &mut open.operation) {
                (Kind::Get { key, .. }, _) => {
                    let cached = section.keys.get(key).filter(|k| k.lease_until > now);
                    let known = cached.and_then(|k| k.known.clone());
                    if let (true, Some(value)) = (self.options.cached_gets, known) {
                        let answer = Success::Value { value, tag: None };
                        return self.finish(now, number, Ok(answer), out);
                    }
                }
                (Kind::Write { leaves: true, .. }, Operation::Critical { leave, .. }) => {
                    *leave = section.leaving(id, planted, None);
                }
                (Kind::Leave { .. }, Operation::Leave { keys }) => {
                    *keys = section.leaving(id, planted, None);
                    if keys.is_empty() {
                        return self.finish(now, number, Ok(Success::Left), out);
                    }
                }
                _ => {}
            }
        }
        self.transmit(now, number, out);
    }

    /// A leave is about to be sent: what its section has not sent by now is not sent any more.
    fn refuse_unsent(&mut self, now: Micros, number: u64, out: &mut Vec<Event>) {
        let leave = self.open.get(&number).map(|open| &open.kind);
        if let Some(Kind::Leave { section, .. }) = leave
            && let Some(section) = self.sections.get_mut(section)
        {
            section.blocked.remove(&number);
            for unsent in core::mem::take(&mut section.blocked) {
                self.finish(now, unsent, Err(over()), out);
            }
        }
    }

    /// Sends an operation, for the first time or again.
    pub(super) fn transmit(&mut self, now: Micros, number: u64, out: &mut Vec<Event>) {
        let answered = self.answered_through();
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        let avoid = match open.kind {
            Kind::Renew { .. } => self.renew_avoid,
            _ => open.avoid,
        };
        let chosen = self.endpoints.choose(now, avoid);
        let Some(endpoint) = open.pinned.or(chosen) else {
            open.sending = Sending::Paused(now.saturating_add(self.options.backoff_max));
            return self.arm(number);
        };
        if open.deafen(endpoint) {
            // The same node again: its answer to the former transmission would be mistaken for one
            // to this.
            open.doubt = true;
            out.push(Event::Close { endpoint, number });
        }
        if open.doubtful() {
            open.attempt = open.attempt.saturating_add(1);
        }
        if let (Kind::Enter { wait_until, .. }, Operation::Enter { wait, .. }) =
            (&open.kind, &mut open.operation)
            && *wait > 0
        {
            *wait = wait_until.saturating_sub(now).max(1);
        }
        open.first_sent.get_or_insert(now);
        open.last_sent = Some(now);
        open.listening.push(endpoint);
        open.avoid = Some(endpoint);
        open.sending = match open.kind {
            Kind::Once => Sending::Sent(Micros::MAX),
            _ => Sending::Sent(now.saturating_add(self.options.attempt)),
        };
        let request = Request {
            session: self.id,
            number,
            attempt: open.attempt,
            answered_through: answered,
            site: self.site,
            operation: open.operation.clone(),
        };
        out.push(Event::Send { endpoint, request });
        self.arm(number);
    }

    /// Every request up to this number has its answer, or is given up.
    fn answered_through(&self) -> u64 {
        let open = self.open.keys().next().copied();
        let polled = self.polls.first().copied();
        let first = open.unwrap_or(u64::MAX).min(polled.unwrap_or(u64::MAX));
        first.min(self.next_number) - 1
    }

    /// Sets the timer of an operation.
    pub(super) fn arm(&mut self, number: u64) {
        if let Some(open) = self.open.get_mut(&number) {
            let due = open.due();
            if open.timer != Some(due) {
                if let Some(old) = open.timer.replace(due) {
                    self.timers.remove(&(old, Due::Operation(number)));
                }
                self.timers.insert((due, Due::Operation(number)));
            }
        }
    }

    /// Sets the timer of a section.
    pub(super) fn arm_section(&mut self, id: SectionId) {
        if let Some(section) = self.sections.get_mut(&id) {
            let due = section.due();
            if section.timer != Some(due) {
                if let Some(old) = section.timer.replace(due) {
                    self.timers.remove(&(old, Due::Section(id)));
                }
                if due != Micros::MAX {
                    self.timers.insert((due, Due::Section(id)));
                }
            }
        }
    }
}

/// Operations that stand for themselves, and the endpoint that they are for, if one is named.
fn plain(call: Call, planted: Planted) -> Option<(Kind, Operation, Option<Endpoint>)> {
    let operation = match call {
        Call::Get { key } => Operation::Get { key },
        Call::Put { key, value } => {
            let kind = match planted.has(Bug::EventualPutRepeated) {
                true => Kind::Plain,
                false => Kind::Once,
            };
            return Some((kind, Operation::Put { key, value }, None));
        }
        Call::Read { key } => Operation::Read { key },
        Call::Write { key, value } => Operation::Write { key, value },
        Call::Release { key, lock_ref } => Operation::Release { key, lock_ref },
        Call::Keys {
            keyspace,
            prefix,
            after,
            limit,
        } => Operation::Keys {
            keyspace,
            prefix,
            after,
            limit,
        },
        Call::Queue { key } => Operation::Queue { key },
        Call::Transact(transaction) => Operation::Transact(transaction),
        Call::Resolve { key, number } => Operation::Resolve { key, number },
        Call::Snapshot { parts, when } => Operation::Snapshot { parts, when },
        Call::Inspect { key, at } => return Some((Kind::Plain, Operation::Inspect { key }, at)),
        Call::CreateKeyspace(keyspace) => Operation::CreateKeyspace(keyspace),
        Call::ChangeKeyspace {
            keyspace,
            lease,
            section_max,
        } => Operation::ChangeKeyspace {
            keyspace,
            lease,
            section_max,
        },
        Call::DeleteKeyspace { keyspace } => Operation::DeleteKeyspace { keyspace },
        Call::ChangeAccess { after, policy } => Operation::ChangeAccess { after, policy },
        Call::Access => Operation::Access,
        Call::ChangeSettings(change) => Operation::ChangeSettings(change),
        Call::Admit { newcomer, formats } => Operation::Admit { newcomer, formats },
        Call::ChangeRing(change) => Operation::ChangeRing(change),
        Call::Ring => Operation::Ring,
        Call::Keyspaces => Operation::Keyspaces,
        Call::Status { at } => return Some((Kind::Plain, Operation::Status, at)),
        _ => return None,
    };
    Some((Kind::Plain, operation, None))
}

pub(super) fn bad(detail: &str) -> Refusal {
    Refusal::definite(Code::BadRequest, detail)
}

pub(super) fn over() -> Refusal {
    Refusal::definite(
        Code::NoLongerHolder,
        "The section is over; enter a new one to go on.",
    )
}
