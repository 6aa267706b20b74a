//! What the primary of a segment does for its ledger: it gives transactions their timestamps,
//! promises to readers, states limits and closes times. All of it is volatile: the next primary
//! begins above the limit, which is in the log.

use super::{AHEAD_MAX, CLOSED_LAG, Item, Marks, Part, Span, Transaction, USED_FOR};
use crate::base::{Bug, Interval, KeyId, Micros, NodeName, Now, Planted, SessionId, Timestamp};
use crate::lock::Rejection;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Reads that wait at one primary.
const WAITING: usize = 4_096;

/// The time of a step, for a clerk.
#[derive(Clone, Copy, Debug)]
pub struct Hours {
    /// The boot-time clock.
    pub now: Now,
    /// The cluster's time; none: it is not known here now.
    pub time: Option<Interval>,
    /// How far ahead of it limits are stated: one lease, and by how much the segment closes ahead.
    pub ahead: Micros,
}

/// What is closed, and up to which command that holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closing {
    /// The time.
    pub at: Timestamp,
    /// The command's number in the segment's history.
    pub position: u64,
}

/// A transaction that was proposed and is not applied.
#[derive(Debug)]
struct Flight {
    at: Timestamp,
    /// What it may change.
    keys: BTreeSet<KeyId>,
    spans: Vec<Span>,
}

impl Flight {
    fn new(at: Timestamp, transaction: &Transaction) -> Flight {
        let (mut keys, mut spans) = (BTreeSet::new(), Vec::new());
        for item in transaction.written() {
            match item {
                Item::Key(key) => drop(keys.insert(key.clone())),
                Item::Span(span) => spans.push(span.clone()),
            }
        }
        Flight { at, keys, spans }
    }

    /// Whether it may change any of that.
    fn changes(&self, item: &Item<'_>) -> bool {
        let named = match item {
            Item::Key(key) => self.keys.contains(*key),
            Item::Span(span) => {
                let first = KeyId {
                    keyspace: span.keyspace,
                    key: span.from.clone(),
                };
                let next = self.keys.range(first..).next();
                next.is_some_and(|key| span.has(key))
            }
        };
        named || self.spans.iter().any(|span| Item::Span(span).meets(item))
    }
}

/// A read that waits.
#[derive(Debug)]
pub struct Reading {
    /// Who asks.
    pub from: NodeName,
    /// Under which name.
    pub call: u64,
    /// As of when.
    pub at: Timestamp,
    /// What.
    pub parts: Vec<Part>,
    /// When it is given up.
    until: Micros,
}

/// The primary's side of a segment's ledger, for one ballot.
#[derive(Debug)]
pub struct Clerk {
    /// No transaction is at or below this: what earlier primaries may have promised, or this one
    /// has closed.
    floor: Timestamp,
    /// The highest limit that was proposed.
    limit: Timestamp,
    /// The highest time that was assigned, promised or closed.
    used: Timestamp,
    /// Nothing above this is used any more: it is stated in the log that `used` is all (L4).
    ended: Option<Timestamp>,
    writes: Marks,
    reads: Marks,
    flights: BTreeMap<(SessionId, u64), Flight>,
    waiting: Vec<Reading>,
    /// When somebody last used the ledger here.
    used_at: Option<Micros>,
    /// By how much the keyspaces that are used here close ahead, microseconds.
    lead: Micros,
    planted: Planted,
}

impl Clerk {
    /// A node has begun to lead: this is the limit of the state with everything recovered applied.
    pub fn new(limit: Timestamp, planted: Planted) -> Clerk {
        let floor = match planted.has(Bug::FloorWithoutLimit) {
            true => Timestamp::default(),
            false => limit,
        };
        Clerk {
            floor,
            limit,
            used: floor,
            ended: None,
            writes: Marks::new(floor),
            reads: Marks::new(floor),
            flights: BTreeMap::new(),
            waiting: Vec::new(),
            used_at: None,
            lead: 0,
            planted,
        }
    }

    /// Somebody uses the ledger, in a keyspace that closes so far ahead.
    pub fn note_use(&mut self, lead: Micros, now: Micros) {
        self.used_at = Some(now);
        self.lead = self.lead.max(lead);
    }

    /// Whether it was used lately.
    pub fn is_used(&self, now: Micros) -> bool {
        self.used_at.is_some_and(|at| at + USED_FOR > now)
    }

    /// By how much this segment closes ahead.
    pub fn lead(&self) -> Micros {
        self.lead
    }

    /// Gives a transaction its timestamp, not below `asked`, and takes it for proposed; with the
    /// limit that has to be proposed before it.
    ///
    /// # Errors
    /// It is not to be proposed: nothing was noted.
    pub fn assign(
        &mut self,
        id: (SessionId, u64),
        transaction: &Transaction,
        asked: Timestamp,
        hours: &Hours,
    ) -> Result<(Timestamp, Option<Timestamp>), Rejection> {
        if self.ended.is_some() {
            return Err(Rejection::NotPrimary(None));
        }
        if is_skewed(asked, hours) {
            return Err(Rejection::ClockSkew);
        }
        let mut least = asked.max(self.floor.next());
        for item in transaction.items() {
            least = least.max(self.writes.of(&item).next());
        }
        for item in transaction.written() {
            if !self.planted.has(Bug::WriteBelowPromise) {
                least = least.max(self.reads.of(&item).next());
            }
        }
        let limit = self.limit_for(least, hours);
        for item in transaction.items() {
            self.reads.raise(&item, least);
        }
        for item in transaction.written() {
            self.writes.raise(&item, least);
        }
        self.used = self.used.max(least);
        self.flights.insert(id, Flight::new(least, transaction));
        Ok((least, limit))
    }

    /// A transaction was applied, or is not proposed after all.
    pub fn ended(&mut self, id: (SessionId, u64)) {
        self.flights.remove(&id);
    }

    /// A read that only the primary can answer. It promises that nothing at or below its time is
    /// written to these keys any more, from now on; with a limit that has to be proposed.
    ///
    /// # Errors
    /// It is not answered here.
    pub fn read(
        &mut self,
        (from, call): (NodeName, u64),
        at: Timestamp,
        parts: Vec<Part>,
        patience: Micros,
        hours: &Hours,
    ) -> Result<Option<Timestamp>, Rejection> {
        if self.ended.is_some_and(|used| at > used) {
            return Err(Rejection::NotPrimary(None));
        }
        if is_skewed(at, hours) {
            return Err(Rejection::ClockSkew);
        }
        if self.waiting.len() >= WAITING {
            return Err(Rejection::Busy);
        }
        for part in &parts {
            self.reads.raise(&part.item(), at);
        }
        self.used = self.used.max(at);
        let limit = self.limit_for(at, hours);
        self.waiting.push(Reading {
            from,
            call,
            at,
            parts,
            until: hours.now.monotonic.saturating_add(patience),
        });
        Ok(limit)
    }

    /// The reads that can be answered from what is applied, where the log states this limit.
    pub fn ready(&mut self, limit: Timestamp) -> Vec<Reading> {
        let flights = &self.flights;
        let planted = self.planted;
        let blocked = |reading: &Reading| {
            let below = |flight: &&Flight| flight.at <= reading.at;
            let mut open = flights.values().filter(below);
            let under_way = open.any(|flight| {
                let mut items = reading.parts.iter().map(Part::item);
                items.any(|item| flight.changes(&item))
            });
            let unstated = reading.at > limit && !planted.has(Bug::PromiseBeforeLimit);
            unstated || under_way && !planted.has(Bug::ReadBesideFlight)
        };
        let (waiting, ready) = core::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|reading| blocked(reading));
        self.waiting = waiting;
        ready
    }

    /// The reads that have waited too long.
    pub fn give_up(&mut self, now: Micros) -> Vec<Reading> {
        let (late, waiting) = core::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|reading| reading.until <= now);
        self.waiting = waiting;
        late
    }

    /// All reads that wait: the primary ends.
    pub fn into_waiting(self) -> Vec<Reading> {
        self.waiting
    }

    /// A limit to be proposed, so that one is always stated while the ledger is used.
    pub fn renew(&mut self, hours: &Hours) -> Option<Timestamp> {
        let half = self.latest(hours)?.saturating_add(hours.ahead / 2);
        let used = self.is_used(hours.now.monotonic) && self.ended.is_none();
        (used && self.limit.micros < half).then(|| self.state_limit(Timestamp::default(), hours))
    }

    /// Closes what can be closed, where the log states this limit and `position` commands are
    /// applied: nothing at or below it will be proposed any more, and all that was is applied.
    pub fn close(&mut self, limit: Timestamp, position: u64, hours: &Hours) -> Option<Closing> {
        if !self.is_used(hours.now.monotonic) {
            return None;
        }
        let latest = self.latest(hours)?;
        let wanted = match self.lead {
            0 => latest.saturating_sub(CLOSED_LAG),
            lead => latest.saturating_add(lead),
        };
        let mut at = Timestamp::of(wanted);
        if !self.planted.has(Bug::ClosedAboveLimit) {
            at = at.min(limit);
        }
        // What is under way is not applied here, so that no command stands for it.
        let lowest = self.flights.values().map(|flight| flight.at).min();
        if let Some(lowest) = lowest
            && !self.planted.has(Bug::ClosedBesideFlights)
        {
            at = at.min(Timestamp::of(lowest.micros.saturating_sub(1)));
        }
        at = at.min(self.ended.unwrap_or(at));
        if at <= self.floor {
            // What an earlier one closed, or may have promised, stays closed.
            at = self.floor;
        }
        self.floor = at;
        self.used = self.used.max(at);
        Some(Closing { at, position })
    }

    /// The last that is proposed before the log is handed over: the next primary need not begin
    /// above the limit, but above all that was used (L4). From now on nothing above it is. None:
    /// that was said before, or there is nothing to be gained.
    pub fn end(&mut self) -> Option<Timestamp> {
        if self.ended.is_some() || self.used >= self.limit {
            return None;
        }
        if !self.planted.has(Bug::UsedAfterEnd) {
            self.ended = Some(self.used);
        }
        Some(self.used)
    }

    fn latest(&self, hours: &Hours) -> Option<u64> {
        hours.time.map(|time| time.latest)
    }

    fn limit_for(&mut self, at: Timestamp, hours: &Hours) -> Option<Timestamp> {
        (at > self.limit).then(|| self.state_limit(at, hours))
    }

    /// A new limit, above `at`.
    fn state_limit(&mut self, at: Timestamp, hours: &Hours) -> Timestamp {
        let base = at.micros.max(self.latest(hours).unwrap_or(0));
        let limit = Timestamp::of(base.saturating_add(hours.ahead).saturating_add(1));
        self.limit = self.limit.max(limit);
        self.limit
    }
}

/// Whether a timestamp is so far ahead of this node's own clock that one of the clocks is wrong.
fn is_skewed(at: Timestamp, hours: &Hours) -> bool {
    let latest = hours.time.map(|time| time.latest);
    latest.is_some_and(|latest| at.micros > latest.saturating_add(AHEAD_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::KeyspaceId;
    use crate::ledger::Act;
    use alloc::format;
    use bytes::Bytes;

    const T: u64 = 1_000_000_000;

    fn hours(at: u64) -> Hours {
        let now = Now {
            monotonic: at,
            wall: at,
            interval: None,
        };
        let time = Some(Interval {
            earliest: T + at,
            latest: T + at + 10,
        });
        Hours {
            now,
            time,
            ahead: 1_000,
        }
    }

    fn key(n: u8) -> KeyId {
        KeyId {
            keyspace: KeyspaceId(3),
            key: Bytes::from(format!("k{n}")),
        }
    }

    fn put(n: u8) -> Transaction {
        let value = Bytes::from_static(b"v");
        Transaction {
            then: [Act::Put { key: key(n), value }].into(),
            ..Transaction::default()
        }
    }

    fn at(micros: u64) -> Timestamp {
        Timestamp::of(T + micros)
    }

    #[test]
    fn one_far_client_does_not_slow_others_down() {
        let mut clerk = Clerk::new(at(0), Planted::NONE);
        let far = clerk.assign((SessionId(1), 1), &put(1), at(500), &hours(100));
        assert_eq!(far.map(|(at, _)| at), Ok(at(500)));
        let near = clerk.assign((SessionId(2), 1), &put(2), at(110), &hours(100));
        assert_eq!(near.map(|(at, _)| at), Ok(at(110)));
        let same = clerk.assign((SessionId(2), 2), &put(1), at(110), &hours(100));
        assert_eq!(same.map(|(at, _)| at), Ok(at(500).next()));
    }

    #[test]
    fn a_read_waits_for_the_limit_and_for_what_is_under_way_below_it() {
        let mut clerk = Clerk::new(at(0), Planted::NONE);
        let id = (SessionId(1), 1);
        let (_, limit) = clerk
            .assign(id, &put(1), at(100), &hours(100))
            .expect("taken");
        let limit = limit.expect("none is stated yet");
        for (call, when, n) in [(1, 99, 1), (2, 120, 1), (3, 120, 2)] {
            let parts = [Part::Key(key(n))].into();
            let from = (NodeName(1), call);
            let read = clerk.read(from, at(when), parts, 1_000, &hours(110));
            assert_eq!(read, Ok(None));
        }
        let calls = |ready: Vec<Reading>| ready.iter().map(|r| r.call).collect::<Vec<_>>();
        assert_eq!(calls(clerk.ready(at(0))), []);
        assert_eq!(calls(clerk.ready(limit)), [1, 3]);
        let below = clerk.assign((SessionId(2), 1), &put(2), at(110), &hours(110));
        assert_eq!(
            below.map(|(at, _)| at),
            Ok(at(120).next()),
            "it was promised"
        );
        clerk.ended(id);
        assert_eq!(calls(clerk.ready(limit)), [2]);
    }

    #[test]
    fn what_is_closed_is_below_the_limit_and_below_what_is_under_way() {
        let mut clerk = Clerk::new(at(0), Planted::NONE);
        clerk.note_use(5_000, 100);
        let closed = |clerk: &mut Clerk, limit| {
            let closing = clerk.close(limit, 7, &hours(100));
            closing.map(|closing| (closing.at, closing.position))
        };
        assert_eq!(closed(&mut clerk, at(900)), Some((at(900), 7)));
        let id = (SessionId(1), 1);
        let (given, _) = clerk
            .assign(id, &put(1), at(300), &hours(100))
            .expect("taken");
        assert_eq!(given, at(900).next(), "above what is closed");
        assert_eq!(closed(&mut clerk, at(2_000)), Some((at(900), 7)));
        clerk.ended(id);
        assert_eq!(closed(&mut clerk, at(2_000)), Some((at(2_000), 7)));
    }

    #[test]
    fn a_timestamp_far_ahead_is_refused() {
        let mut clerk = Clerk::new(at(0), Planted::NONE);
        let far = at(100 + AHEAD_MAX + 11);
        let refused = clerk.assign((SessionId(1), 1), &put(1), far, &hours(100));
        assert_eq!(refused, Err(Rejection::ClockSkew));
        assert!(clerk.flights.is_empty());
    }

    #[test]
    fn who_has_ended_uses_nothing_above_what_it_has_stated() {
        let mut clerk = Clerk::new(at(0), Planted::NONE);
        clerk
            .assign((SessionId(1), 1), &put(1), at(50), &hours(10))
            .expect("taken");
        assert_eq!((clerk.end(), clerk.end()), (Some(at(50)), None));
        let refused = clerk.assign((SessionId(1), 2), &put(1), at(60), &hours(10));
        assert_eq!(refused, Err(Rejection::NotPrimary(None)));
        let parts: Vec<Part> = [Part::Key(key(1))].into();
        let below = clerk.read((NodeName(1), 1), at(50), parts.clone(), 9, &hours(10));
        assert_eq!(below, Ok(None));
        let above = clerk.read((NodeName(1), 2), at(51), parts, 9, &hours(10));
        assert!(above.is_err());
    }
}
