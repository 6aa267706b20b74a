//! What the clients of engines saw, while they see it: a [`sections::History`] on their clock.

use bytes::Bytes;
use fermata_check::sections::{self, ClientId, Heard, OpId, Section, SectionIx, Violation, What};
use fermata_protocol::base::{LockRef, SessionId};
use fermata_protocol::request::Held;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// Where a history is made: a simulated world, or the real one.
pub trait Notes: Send + Sync + 'static {
    /// A line for whoever reads what happened.
    fn say(&self, line: String);
}

/// All of it; times are nanoseconds, and no two events have the same.
pub struct History {
    notes: Arc<dyn Notes>,
    start: Instant,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    now: u64,
    seen: sections::History,
}

fn is_of(section: &Section, held: &Held) -> bool {
    section.held.contains(held)
}

impl History {
    /// An empty one.
    pub fn new(notes: Arc<dyn Notes>) -> History {
        History {
            notes,
            start: Instant::now(),
            recorded: Mutex::default(),
        }
    }

    /// What is recorded, at the next moment.
    fn next(&self) -> MutexGuard<'_, Recorded> {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = self.start.elapsed().as_nanos() as u64;
        recorded.now = elapsed.max(recorded.now + 1);
        recorded
    }

    /// An operation is sent; `held`: in this section.
    pub fn begin(&self, session: SessionId, number: u64, held: Option<&Held>, what: What) -> OpId {
        let held_text = held.map(|h| format!(" in {}/{}", h.lock_ref.0, h.generation));
        let text = held_text.unwrap_or_default();
        self.notes
            .say(format!("s{} #{number} {what:?}{text}", session.0));
        let mut recorded = self.next();
        let (now, seen) = (recorded.now, &mut recorded.seen);
        let section = held.and_then(|held| {
            let all = || seen.sections.iter();
            let own = all().rposition(|s| s.session == session && is_of(s, held));
            own.or_else(|| all().rposition(|s| is_of(s, held)))
        });
        let who = (ClientId(session.0 as u32), session);
        let op = seen.invoke(now, who, section.map(SectionIx), what);
        seen.ops[op.0].request = number;
        op
    }

    /// It has ended.
    pub fn end(&self, op: OpId, outcome: Heard) {
        let mut recorded = self.next();
        let (now, seen) = (recorded.now, &mut recorded.seen);
        let (session, number) = (seen.ops[op.0].session, seen.ops[op.0].request);
        let line = format!("s{} #{number} -> {outcome:?}", session.0);
        seen.complete(now, op, outcome);
        drop(recorded);
        self.notes.say(line);
    }

    /// An enter is told its place in the queue.
    pub fn waits(&self, op: OpId, held: &Held) {
        let mut recorded = self.next();
        let now = recorded.now;
        recorded.seen.tell(now, op, vec![held.clone()]);
    }

    /// An enter has ended: with a section that is leased until then, and the value; none: left out.
    pub fn entered(&self, op: OpId, held: &Held, entry: Option<Option<Bytes>>, until: Instant) {
        let value = entry.map(|value| (held.key.clone(), value));
        let mut recorded = self.next();
        let now = recorded.now;
        let values = value.into_iter().collect();
        recorded.seen.enter(now, op, vec![held.clone()], values);
        drop(recorded);
        self.lease(held, until);
        self.end(op, Heard::Done(None));
    }

    /// Whether the last answer to this enter says that its place in the queue is gone.
    pub fn is_over(&self, session: SessionId, number: u64) -> bool {
        let recorded = self.next();
        let mut all = recorded.seen.ops.iter();
        let last = all.rfind(|op| (op.session, op.request) == (session, number));
        last.is_some_and(|op| op.failed() || op.told_past())
    }

    /// Whether this enter has been answered with a section.
    pub fn is_entered(&self, session: SessionId, number: u64) -> bool {
        let recorded = self.next();
        let mut all = recorded.seen.sections.iter();
        all.any(|s| (s.session, s.request) == (session, number) && s.entered < u64::MAX)
    }

    /// The ref that the session was last told to wait with.
    pub fn place(&self, session: SessionId) -> Option<LockRef> {
        let recorded = self.next();
        let seen = &recorded.seen;
        let waits = |op: &&sections::Op| op.session == session && op.outcome == Heard::Waits;
        let section = seen.ops.iter().rev().find(waits)?.section?;
        Some(seen.sections[section.0].held[0].lock_ref)
    }

    /// The session that a section is of, as far as clients were told; else whose ref it is.
    pub fn session_of(&self, held: &Held) -> Option<SessionId> {
        let recorded = self.next();
        let mut all = recorded.seen.sections.iter();
        let is = |of: &Held| (&of.key, of.lock_ref) == (&held.key, held.lock_ref);
        let exact = all.clone().find(|section| is_of(section, held));
        let found = exact.or_else(|| all.find(|section| section.held.iter().any(is)));
        found.map(|section| section.session)
    }

    /// The section's lease lasts until then, by its client's account.
    pub fn lease(&self, held: &Held, until: Instant) {
        let until = until.saturating_duration_since(self.start).as_nanos() as u64;
        let mut recorded = self.next();
        let all = recorded.seen.sections.iter_mut();
        for section in all.filter(|section| is_of(section, held)) {
            section.lease = section.lease.max(Some(until));
        }
    }

    /// All that is recorded by now.
    pub fn seen(&self) -> sections::History {
        self.next().seen.clone()
    }

    /// Everything that is wrong with it.
    pub fn wrong(&self) -> Vec<Violation> {
        sections::check(&self.next().seen, &|_| true)
    }
}
