//! Reading keys and ranges of a ledger at one moment.
//!
//! Each segment is asked for its part: at the present by its primary, or by any replica where the
//! keyspace closes ahead; at an earlier time by the nearest replica, and by the primary where that
//! one does not know enough. Ranges may lie in all segments: of each there is a run of keys here,
//! and the lowest of all runs is the next one of the whole.

use super::desk::Desk;
use super::refuse;
use super::submit::{PrimaryAnswer, Question};
use super::transact::{TIME_AGAIN, ledger_of, passes_at, segment_of, segment_of_span};
use super::{Client, Cx, Event, Job, Step, Target};
use crate::base::{Bug, Micros, Purpose, SegmentId, Timestamp};
use crate::ledger::{Found, Part, Versioned, When};
use crate::request::{Code, Refusal, Reply};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Range;

/// Keys asked for of one segment at once.
const PAGE: u32 = 1_000;

/// Questions to segments, each for its share of one part, in one snapshot: as many as there are
/// segments if that is more.
const RUNS: usize = 16_384;

/// The job of `Snapshot`.
pub(super) fn snapshot(parts: Vec<Part>, when: When, cx: &Cx<'_>) -> Result<Box<dyn Job>, Refusal> {
    if parts.is_empty() || parts.len() > cx.env.limits.transaction_keys {
        return Err(refuse::bad(&format!(
            "a snapshot has 1 to {} keys and ranges (limits.transaction_keys), this one has {}",
            cx.env.limits.transaction_keys,
            parts.len()
        )));
    }
    let (mut runs, mut shares) = (Vec::new(), Vec::with_capacity(parts.len()));
    let mut leads = true;
    let all = 1_u64 << cx.topology.ring().directory.segment_bits();
    for (of, part) in parts.iter().enumerate() {
        let (keyspace, segments) = match part {
            Part::Key(key) => {
                let keyspace = ledger_of(key, cx)?;
                refuse::key_fits(key, cx)?;
                (keyspace, Vec::from([segment_of(key, cx)?]))
            }
            Part::Range { span, limit } => {
                if *limit == 0 {
                    return Err(refuse::bad("a range has a limit of at least one key"));
                }
                let one = segment_of_span(span, cx)?;
                let key = crate::base::KeyId {
                    keyspace: span.keyspace,
                    key: Bytes::from_static(b"-"),
                };
                let every = (0..all).map(|segment| SegmentId(segment as u32));
                let segments = one.map_or_else(|| every.collect(), |one| Vec::from([one]));
                (ledger_of(&key, cx)?, segments)
            }
        };
        leads &= matches!(keyspace.purpose, Purpose::Ledger { lead } if lead > 0);
        let run = |segment| Run {
            of,
            segment,
            rest: Some(part.clone()),
            asked: false,
            keys: VecDeque::new(),
        };
        if runs.len() + segments.len() > RUNS.max(all as usize) {
            let text = "the snapshot was refused: so many ranges that lie in all segments are too \
                        many at once; read fewer at once, at the same time, or ranges of one tag";
            return Err(Refusal::definite(Code::TooLarge, text));
        }
        let first = runs.len();
        runs.extend(segments.into_iter().map(run));
        shares.push(first..runs.len());
    }
    Ok(Box::new(Snapshot {
        found: parts.iter().map(|_| Found::default()).collect(),
        parts,
        when,
        leads,
        at: None,
        runs,
        shares,
        asked: BTreeMap::new(),
        bytes: 0,
        newest: Timestamp::default(),
        done: false,
    }))
}

/// What one segment has of one part.
#[derive(Debug)]
struct Run {
    /// Which part.
    of: usize,
    segment: SegmentId,
    /// What is to be asked for still.
    rest: Option<Part>,
    /// It is being asked for.
    asked: bool,
    /// What has come of it and is not passed on.
    keys: VecDeque<(Bytes, Versioned)>,
}

#[derive(Debug)]
struct Snapshot {
    parts: Vec<Part>,
    when: When,
    /// All of it is of keyspaces that close ahead.
    leads: bool,
    /// As of when; none: that is not known yet.
    at: Option<Timestamp>,
    /// Those of one part follow each other.
    runs: Vec<Run>,
    /// Where those of each part are.
    shares: Vec<Range<usize>>,
    /// Open questions, each with the runs that it asks for.
    asked: BTreeMap<u64, Vec<usize>>,
    found: Vec<Found>,
    bytes: usize,
    /// The newest version that was found.
    newest: Timestamp,
    /// All has come: it leaves when the newest version has passed.
    done: bool,
}

impl Snapshot {
    /// As of when it reads.
    fn choose(&self, cx: &Cx<'_>) -> Result<Option<Timestamp>, Refusal> {
        let latest = cx.env.time.map(|time| Timestamp::of(time.latest));
        let closed = self.runs.iter().map(|run| cx.topology.closed(run.segment));
        let closed = closed.reduce(|a, b| Some(a?.min(b?))).flatten();
        match self.when {
            When::Now => Ok(latest),
            When::At(at) if closed >= Some(at) => Ok(Some(at)),
            When::At(at) => match latest {
                Some(latest) if at > latest => {
                    let text = format!(
                        "the snapshot was refused: its time, {}.{}, is in the future; read at one \
                         that has passed",
                        at.micros, at.logical
                    );
                    Err(Refusal::definite(Code::BadRequest, text))
                }
                known => Ok(known.map(|_| at)),
            },
            When::Recent { staleness, after } => {
                let Some(latest) = latest else {
                    return Ok(None);
                };
                let oldest = Timestamp::of(latest.micros.saturating_sub(staleness)).max(after);
                if after > latest {
                    let text = "the snapshot was refused: it is to be after a time in the future";
                    return Err(Refusal::definite(Code::BadRequest, text));
                }
                Ok(Some(closed.map_or(oldest, |closed| closed.max(oldest))))
            }
        }
    }

    fn begin(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match self.choose(cx) {
            Err(refusal) => Step::refuse(refusal),
            Ok(None) => Step::Open,
            Ok(Some(at)) => {
                self.at = Some(at);
                self.go_on(client, desk, cx)
            }
        }
    }

    /// Asks for what is needed next, or ends.
    fn go_on(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let Some(at) = self.at else {
            return Step::Open;
        };
        for part in 0..self.parts.len() {
            self.merge(part, cx.env.limits.transaction);
        }
        let mut wanted: BTreeMap<SegmentId, Vec<usize>> = BTreeMap::new();
        for (n, run) in self.runs.iter().enumerate() {
            let needed = run.keys.is_empty() && run.rest.is_some() && !self.is_full(run.of);
            if needed && !run.asked {
                wanted.entry(run.segment).or_default().push(n);
            }
        }
        for (segment, runs) in wanted {
            let mut parts = Vec::with_capacity(runs.len());
            for n in &runs {
                self.runs[*n].asked = true;
                parts.extend(self.runs[*n].rest.clone().map(paged));
            }
            let target = Target::Segment(segment);
            let question = Question::Read { at, parts };
            let near = self.leads || !matches!(self.when, When::Now);
            let members = cx.topology.members(target);
            let near = members
                .into_iter()
                .find(|node| near && cx.topology.hears(*node));
            let ask =
                desk.submit
                    .ask_at(client.task, (target, near), question, client.deadline, cx);
            self.asked.insert(ask, runs);
        }
        if !self.asked.is_empty() {
            return Step::Open;
        }
        self.done = true;
        self.leave(cx)
    }

    /// A range has as many keys as were asked for, or as fit an answer.
    fn is_full(&self, part: usize) -> bool {
        match &self.parts[part] {
            Part::Key(_) => false,
            Part::Range { limit, .. } => {
                self.found[part].more || self.found[part].keys.len() >= *limit as usize
            }
        }
    }

    /// Passes on the keys of a part that are the next ones for certain.
    fn merge(&mut self, part: usize, room: usize) {
        let limit = match &self.parts[part] {
            Part::Key(_) => usize::MAX,
            Part::Range { limit, .. } => *limit as usize,
        };
        loop {
            let share = self.shares[part].clone();
            let mut lowest: Option<(&Bytes, usize)> = None;
            for (n, run) in share.clone().zip(&self.runs[share]) {
                match run.keys.front() {
                    Some((key, _)) if lowest.is_none_or(|(low, _)| key < low) => {
                        lowest = Some((key, n));
                    }
                    None if run.rest.is_some() => return,
                    _ => {}
                }
            }
            let Some((_, n)) = lowest else {
                return;
            };
            let found = &mut self.found[part];
            if found.keys.len() >= limit {
                found.more = true;
                return;
            }
            let Some((key, value)) = self.runs[n].keys.pop_front() else {
                return;
            };
            let bytes = key.len() + value.value.len() + size_of::<(Bytes, Versioned)>();
            let first = self.bytes == 0;
            if self.bytes + bytes > room && !first {
                found.more = true;
                return;
            }
            self.bytes += bytes;
            self.newest = self.newest.max(value.version);
            found.keys.push((key, value));
        }
    }

    /// One segment has answered.
    fn take(&mut self, ask: u64, answers: Vec<Found>) {
        let runs = self.asked.remove(&ask).unwrap_or_default();
        for n in &runs {
            self.runs[*n].asked = false;
        }
        for (n, found) in runs.into_iter().zip(answers) {
            let run = &mut self.runs[n];
            let last = found.keys.last().map(|(key, _)| key.clone());
            run.rest = match (run.rest.take(), last) {
                (Some(Part::Range { span, limit }), Some(last)) if found.more => {
                    let span = span.above(&last);
                    Some(Part::Range { span, limit })
                }
                _ => None,
            };
            run.keys.extend(found.keys);
        }
    }

    fn leave(&mut self, cx: &Cx<'_>) -> Step {
        let passed = cx.env.time.is_some_and(|time| self.newest.has_passed(time));
        let nothing = self.newest == Timestamp::default();
        if !passed && !nothing && !cx.env.planted.has(Bug::NoReaderWait) {
            return Step::Open;
        }
        let at = self.at.unwrap_or_default();
        let found = core::mem::take(&mut self.found);
        if let Some(refusal) = self.cut(&found) {
            return Step::refuse(refusal);
        }
        Step::reply(Reply::Snapshot { at, found })
    }

    /// Keys that were asked for one by one have to be there all.
    fn cut(&self, found: &[Found]) -> Option<Refusal> {
        let mut parts = self.parts.iter().zip(found);
        let cut = parts.any(|(part, found)| matches!(part, Part::Key(_)) && found.more);
        let text = "the snapshot was refused: its keys have more bytes than one answer takes \
                    (limits.transaction_bytes); read fewer at once, at the same time";
        cut.then(|| Refusal::definite(Code::TooLarge, text))
    }
}

/// As much of a part as is asked for at once.
fn paged(part: Part) -> Part {
    match part {
        Part::Range { span, limit } => Part::Range {
            span,
            limit: limit.min(PAGE),
        },
        key @ Part::Key(_) => key,
    }
}

impl Job for Snapshot {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start => self.begin(client, desk, cx),
            Event::Asked { ask, answer } => match answer {
                PrimaryAnswer::Found(answers) => {
                    self.take(ask, answers);
                    self.go_on(client, desk, cx)
                }
                other => Step::refuse(refuse::unanswered("the snapshot", &other)),
            },
            Event::Timer if cx.env.now.monotonic >= client.deadline => match self.at {
                None => Step::refuse(refuse::no_time("the snapshot")),
                Some(_) => Step::refuse(refuse::unavailable("the snapshot", false)),
            },
            Event::Timer if self.at.is_none() => self.begin(client, desk, cx),
            Event::Timer if self.done => self.leave(cx),
            Event::Cancelled => Step::Close(None),
            _ => Step::Open,
        }
    }

    fn wake_at(&self, client: &Client, cx: &Cx<'_>) -> Option<Micros> {
        let at = match (self.at, self.done) {
            (None, _) => cx.after(TIME_AGAIN),
            (Some(_), true) => passes_at(self.newest, cx),
            (Some(_), false) => client.deadline,
        };
        Some(at.min(client.deadline))
    }
}
