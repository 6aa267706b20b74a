//! What the clients' history must be like: Entry Consistency under Failures (MUSIC §III).
//!
//! | check | says | MUSIC |
//! | --- | --- | --- |
//! | [`Check::Exclusivity`] | no grant is begun after a later ref's; none is given while an earlier holder's lease runs; no put is acknowledged to a past holder; a ref is one session's | Exclusivity |
//! | [`Check::LatestState`] | what an entry or a get shows is the true value, which never goes back | Latest-State |
//! | [`Check::LostPut`] | an entry holds every put that was acknowledged before it, or a later one | Latest-State |
//! | [`Check::ToldPast`] | nobody is told that its ref is past without a release, an expiry, a leave or a resumption | Progress |
//! | [`Check::Refs`] | refs of a key grow with time, and a request has one | §IV-A |
//!
//! The values of a run are all different, so a value names its put.

use super::history::{History, Op, Outcome, Record};
use bytes::Bytes;
use fermata_protocol::base::{KeyId, LockRef, SessionId};
use fermata_protocol::request::{Held, Mode};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// One holder at a time.
    Exclusivity,
    /// Reads show the true value.
    LatestState,
    /// What was acknowledged stays.
    LostPut,
    /// Nobody is told past who is not.
    ToldPast,
    /// Refs grow.
    Refs,
    /// Found by a schedule itself, which knows what an eventual get must return.
    Eventual,
}

/// Something that must not be.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which rule it breaks.
    pub check: Check,
    /// What was seen.
    pub sentence: String,
}

type Life = (LockRef, u32);

fn life(held: &Held) -> Life {
    (held.lock_ref, held.generation)
}

/// Everything that is wrong with a history.
pub fn check(history: &History) -> Vec<Violation> {
    let records = history.records();
    let leases = history.leases();
    let keys: BTreeSet<KeyId> = records.iter().map(|r| r.key.clone()).collect();
    let mut found = Found::default();
    for key in keys {
        let of_key: Vec<&Record> = records.iter().filter(|r| r.key == key).collect();
        let ends = ends(&key, &of_key, &leases);
        exclusivity(&of_key, &ends, &mut found);
        refs(&of_key, &mut found);
        told_past(&of_key, &ends, &mut found);
        chain(&of_key, &ends, &mut found);
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, check: Check, sentence: String) {
        self.0.push(Violation { check, sentence });
    }
}

/// From when on a life of a ref may be over, without anybody's fault.
struct Ends {
    leases: BTreeMap<LockRef, Instant>,
    /// The same of each life.
    told: BTreeMap<Life, Instant>,
    /// The earliest leave or release that was asked for.
    asked: BTreeMap<LockRef, u64>,
    /// The earliest request to resume from this life.
    resumed: BTreeMap<Life, u64>,
}

impl Ends {
    /// Whether the life may have ended when the record did.
    fn may_have_ended(&self, life: Life, record: &Record) -> bool {
        let before = |tick: Option<&u64>| tick.is_some_and(|tick| Some(*tick) < record.ended);
        let expired = match (self.leases.get(&life.0), record.ended_at) {
            (Some(until), Some(at)) => *until <= at,
            _ => true,
        };
        expired || before(self.asked.get(&life.0)) || before(self.resumed.get(&life))
    }
}

fn ends(
    key: &KeyId,
    records: &[&Record],
    leases: &BTreeMap<(KeyId, LockRef, u32), Instant>,
) -> Ends {
    let mut ends = Ends {
        leases: BTreeMap::new(),
        told: BTreeMap::new(),
        asked: BTreeMap::new(),
        resumed: BTreeMap::new(),
    };
    for ((of, lock_ref, generation), until) in leases {
        if of == key {
            ends.told.insert((*lock_ref, *generation), *until);
            let last = ends.leases.entry(*lock_ref).or_insert(*until);
            *last = (*last).max(*until);
        }
    }
    for record in records {
        match &record.op {
            // What was certainly not done has ended nothing.
            _ if record.outcome == Outcome::Refused => {}
            Op::Leave(held) => {
                ends.asked.entry(held.lock_ref).or_insert(record.begun);
            }
            Op::Release(lock_ref) => {
                ends.asked.entry(*lock_ref).or_insert(record.begun);
            }
            Op::Resume(held) => {
                ends.resumed.entry(life(held)).or_insert(record.begun);
            }
            _ => {}
        }
    }
    ends
}

/// A grant that a client was told of.
struct Grant<'a> {
    life: Life,
    mode: Mode,
    record: &'a Record,
}

fn grants<'a>(records: &[&'a Record]) -> Vec<Grant<'a>> {
    let granted = |record: &&'a Record| match (&record.op, &record.outcome) {
        (op, Outcome::Entered(held, _)) => Some(Grant {
            life: life(held),
            mode: match op {
                Op::Enter(mode) => *mode,
                _ => Mode::Exclusive,
            },
            record,
        }),
        _ => None,
    };
    records.iter().filter_map(granted).collect()
}

fn exclusivity(records: &[&Record], ends: &Ends, found: &mut Found) {
    let grants = grants(records);
    let mut owners: BTreeMap<Life, SessionId> = BTreeMap::new();
    for grant in &grants {
        let owner = *owners.entry(grant.life).or_insert(grant.record.session);
        if owner != grant.record.session {
            let text = format!("{:?} was granted to two sessions", grant.life);
            found.add(Check::Exclusivity, text);
        }
    }
    for later in &grants {
        for earlier in &grants {
            let both_read = (earlier.mode, later.mode) == (Mode::Shared, Mode::Shared);
            if earlier.life >= later.life || both_read {
                continue;
            }
            if Some(earlier.record.begun) > later.record.ended {
                let text = format!(
                    "{:?} was granted to a request that was sent after the grant of {:?}",
                    earlier.life, later.life
                );
                found.add(Check::Exclusivity, text);
            }
            let over = ends.may_have_ended(earlier.life, later.record);
            if earlier.record.ended < later.record.ended && !over {
                let text = format!(
                    "{:?} was granted while {:?} held, alive and not released",
                    later.life, earlier.life
                );
                found.add(Check::Exclusivity, text);
            }
        }
    }
    for next in &grants {
        // Whoever was the holder before may read from memory as long as its lease lasts (G14).
        for (life, until) in &ends.told {
            let replaced = life.0 == next.life.0 && life.1 < next.life.1;
            if replaced && next.record.ended_at.is_some_and(|at| at < *until) {
                let text = format!("{:?} was granted beside the lease of {life:?}", next.life);
                found.add(Check::Exclusivity, text);
            }
        }
    }
    for record in records {
        let (Op::Put { held, .. }, Outcome::Done) = (&record.op, &record.outcome) else {
            continue;
        };
        let past = grants
            .iter()
            .find(|g| g.life > life(held) && g.record.ended < Some(record.begun));
        if let Some(grant) = past {
            let text = format!(
                "a put of {:?} was acknowledged that was sent after the grant of {:?}",
                life(held),
                grant.life
            );
            found.add(Check::Exclusivity, text);
        }
    }
}

/// The ref of an enter's record, as far as it was told.
fn ref_of(record: &Record) -> Option<LockRef> {
    match (&record.op, &record.outcome) {
        (Op::Enter(_), Outcome::Entered(held, _)) => Some(held.lock_ref),
        (Op::Enter(_), Outcome::Waits(lock_ref)) => Some(*lock_ref),
        _ => None,
    }
}

fn refs(records: &[&Record], found: &mut Found) {
    let mut of_request: BTreeMap<(SessionId, u64), LockRef> = BTreeMap::new();
    // When each ref was first known, and when its enter was first sent.
    let mut known: BTreeMap<LockRef, (u64, u64)> = BTreeMap::new();
    for record in records {
        let Some(lock_ref) = ref_of(record) else {
            continue;
        };
        let id = (record.session, record.number);
        let first = *of_request.entry(id).or_insert(lock_ref);
        if first != lock_ref {
            let text = format!(
                "one enter of {:?} has refs {first:?} and {lock_ref:?}",
                id.0
            );
            found.add(Check::Refs, text);
        }
        let sent = records
            .iter()
            .filter(|r| (r.session, r.number) == id && matches!(r.op, Op::Enter(_)))
            .map(|r| r.begun)
            .min()
            .unwrap_or(record.begun);
        let told = record.ended.unwrap_or(u64::MAX);
        let entry = known.entry(lock_ref).or_insert((told, sent));
        entry.0 = entry.0.min(told);
    }
    for (lower, (_, sent)) in &known {
        for (higher, (told, _)) in known.range(*lower..).skip(1) {
            if sent > told {
                let text = format!("{lower:?} was given after {higher:?}");
                found.add(Check::Refs, text);
            }
        }
    }
}

fn told_past(records: &[&Record], ends: &Ends, found: &mut Found) {
    for record in records {
        if !matches!(record.outcome, Outcome::Past(_)) {
            continue;
        }
        let held = match &record.op {
            Op::Put { held, .. } | Op::Get(held) | Op::Renew(held) | Op::Resume(held) => held,
            _ => continue,
        };
        if !ends.may_have_ended(life(held), record) {
            let text = format!("{:?} was told that it is past: {:?}", life(held), record.op);
            found.add(Check::ToldPast, text);
        }
    }
}

/// Whether a later section's write hides this eventual put for certain: it was answered before that
/// section's enter was sent, so the section's ref is above whatever the put's acceptor knew.
fn is_hidden(offer: &Record, writers: &[(Life, u64)], before: Life) -> bool {
    let later = |(life, sent): &(Life, u64)| {
        *life < before && offer.ended.is_some_and(|ended| ended < *sent)
    };
    writers.iter().any(later)
}

/// The true value, from section to section.
fn chain(records: &[&Record], ends: &Ends, found: &mut Found) {
    let mut lives: BTreeSet<Life> = BTreeSet::new();
    let mut sent: BTreeMap<LockRef, u64> = BTreeMap::new();
    for grant in grants(records) {
        lives.insert(grant.life);
        let id = (grant.record.session, grant.record.number);
        let first = records
            .iter()
            .filter(|r| (r.session, r.number) == id)
            .map(|r| r.begun)
            .min();
        sent.entry(grant.life.0).or_insert(first.unwrap_or(0));
    }
    let mut state = State {
        may_be: vec![None],
        writers: Vec::new(),
    };
    for life in lives {
        state.section(life, sent[&life.0], records, ends, found);
    }
}

struct State {
    /// What the true value may be.
    may_be: Vec<Option<Bytes>>,
    /// Sections with an acknowledged put, and when their enters were sent.
    writers: Vec<(Life, u64)>,
}

struct Put<'a> {
    number: u64,
    value: &'a Option<Bytes>,
    record: &'a Record,
}

impl State {
    fn section(
        &mut self,
        life: Life,
        sent: u64,
        records: &[&Record],
        ends: &Ends,
        found: &mut Found,
    ) {
        let mut puts: Vec<Put<'_>> = Vec::new();
        for record in records {
            let Op::Put {
                held,
                number,
                value,
            } = &record.op
            else {
                continue;
            };
            let never = matches!(record.outcome, Outcome::Refused | Outcome::Past(false));
            if self::life(held) == life && !never {
                let number = *number;
                puts.push(Put {
                    number,
                    value,
                    record,
                });
            }
        }
        puts.sort_by_key(|put| put.number);
        let mut shown: Vec<(u64, u64)> = Vec::new();
        let mut entered = false;
        let mut in_order: Vec<&Record> = records.to_vec();
        in_order.sort_by_key(|record| record.ended);
        for record in in_order {
            let (of, value, entry) = match (&record.op, &record.outcome) {
                (_, Outcome::Entered(held, Some(value))) => (held, value, true),
                (Op::Get(held), Outcome::Value(value)) => (held, value, false),
                _ => continue,
            };
            if self::life(of) == life {
                let first = entry && !std::mem::replace(&mut entered, true);
                self.read(
                    life, record, value, first, &puts, &mut shown, ends, records, found,
                );
            }
        }
        let acked = puts
            .iter()
            .filter(|put| put.record.outcome == Outcome::Done);
        let acked = acked.map(|put| put.number).max();
        let most = shown.iter().map(|(_, number)| *number).max();
        let least = acked.max(most).unwrap_or(0);
        if least > 0 {
            self.may_be.clear();
        }
        let new = puts.iter().filter(|put| put.number >= least);
        self.may_be.extend(new.map(|put| put.value.clone()));
        if acked.is_some() {
            self.writers.push((life, sent));
        }
    }

    /// One read of a section: its entry, or a get.
    #[expect(clippy::too_many_arguments, reason = "what a read is judged by")]
    fn read(
        &mut self,
        life: Life,
        record: &Record,
        value: &Option<Bytes>,
        first: bool,
        puts: &[Put<'_>],
        shown: &mut Vec<(u64, u64)>,
        ends: &Ends,
        records: &[&Record],
        found: &mut Found,
    ) {
        let done_before = |put: &&Put<'_>| {
            put.record.outcome == Outcome::Done && put.record.ended < Some(record.begun)
        };
        let least = puts.iter().filter(done_before).map(|put| put.number).max();
        let seen = shown.iter().filter(|(ended, _)| *ended < record.begun);
        let seen = seen.map(|(_, number)| *number).max();
        let least = least.max(seen).unwrap_or(0);
        let begun = |put: &&Put<'_>| Some(put.record.begun) < record.ended && put.number >= least;
        if let Some(own) = puts.iter().filter(begun).find(|put| put.value == value) {
            // It is the true value from here on if the section held the key all the while.
            if !ends.may_have_ended(life, record) {
                shown.push((record.ended.unwrap_or(u64::MAX), own.number));
            }
            return;
        }
        if least == 0 && self.may_be.contains(value) {
            self.may_be = vec![value.clone()];
            return;
        }
        let offered = records.iter().find(|r| match &r.op {
            Op::EventualPut(offered) => offered == value && Some(r.begun) < record.ended,
            _ => false,
        });
        if first && least == 0 && offered.is_some_and(|o| !is_hidden(o, &self.writers, life)) {
            self.may_be = vec![value.clone()];
            return;
        }
        // A grant that comes late, or a get of a past holder, may show what came after.
        let from_later = records.iter().any(|r| match &r.op {
            Op::Put { held, value: v, .. } => self::life(held) > life && v == value,
            _ => false,
        });
        if from_later && ends.may_have_ended(life, record) {
            return;
        }
        let what = if first { "the entry" } else { "a get" };
        let due = match least {
            0 => format!("{:?}", self.may_be),
            n => format!("its own put {n} or a later one"),
        };
        let lost = first && self.may_be.len() == 1 && self.may_be[0].is_some();
        let check = if lost {
            Check::LostPut
        } else {
            Check::LatestState
        };
        found.add(
            check,
            format!("{what} of {life:?} shows {value:?}, due was {due}"),
        );
    }
}
