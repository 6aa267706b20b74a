//! Whatever the nodes answer and however connections fail: the session never panics, never reuses a
//! number for something else, ends every operation once, and never leaves a key clean whose highest
//! write was not acknowledged.

use bytes::Bytes;
use fermata_protocol::base::{KeyId, KeyspaceId, LockRef, Now, SessionId, SiteId, Tag};
use fermata_protocol::client::{Call, Endpoint, Event, Failure, Options, Success};
use fermata_protocol::client::{SectionId, Session, Ticket};
use fermata_protocol::request::{
    Critical, Entered, Held, Leaving, Mode, Operation, RefState, Request,
};
use fermata_protocol::{Code, Refusal, Reply};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const ME: SessionId = SessionId(7);

#[derive(Clone, Debug)]
enum Step {
    Enter {
        keys: u8,
        poll: bool,
        shared: bool,
    },
    Poll,
    Resume(u8),
    Get(u8),
    Put(u8),
    PutAndLeave(u8),
    Leave(bool),
    Write,
    Cancel(u8),
    /// Answers one of the open transmissions, well or badly.
    Answer(u8, u8),
    Fail(u8, bool),
    Disconnect(u8),
    Pass(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (1u8..8, any::<bool>(), any::<bool>())
            .prop_map(|(keys, poll, shared)| Step::Enter { keys, poll, shared }),
        2 => Just(Step::Poll),
        1 => (1u8..8).prop_map(Step::Resume),
        3 => any::<u8>().prop_map(Step::Get),
        6 => any::<u8>().prop_map(Step::Put),
        1 => any::<u8>().prop_map(Step::PutAndLeave),
        2 => any::<bool>().prop_map(Step::Leave),
        1 => Just(Step::Write),
        1 => any::<u8>().prop_map(Step::Cancel),
        16 => (any::<u8>(), any::<u8>()).prop_map(|(which, how)| Step::Answer(which, how)),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(which, sent)| Step::Fail(which, sent)),
        1 => (0u8..3).prop_map(Step::Disconnect),
        4 => (0u32..5_000_000).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..120)
}

fn key(index: u8) -> KeyId {
    KeyId {
        keyspace: KeyspaceId(1),
        key: Bytes::copy_from_slice(&[b'a' + index % 3]),
    }
}

/// The world around the session, and what it has seen.
struct World {
    session: Session,
    now: u64,
    ticket: u64,
    open: Vec<(Endpoint, Request)>,
    sections: Vec<SectionId>,
    waiting: BTreeSet<Ticket>,
    /// What each request number has asked, retries aside.
    asked: BTreeMap<u64, String>,
    /// By key, ref, generation: writes issued with their requests, and those acknowledged.
    issued: BTreeMap<Held, BTreeMap<u64, u64>>,
    acknowledged: BTreeMap<Held, u64>,
    /// By request number: transmissions, and those that never left.
    sent: BTreeMap<u64, u32>,
    unsent: BTreeMap<u64, u32>,
}

impl World {
    fn new() -> World {
        let endpoints = [Endpoint(0), Endpoint(1), Endpoint(2)];
        World {
            session: Session::new(ME, SiteId(0), &endpoints, Options::default()),
            now: 1,
            ticket: 0,
            open: Vec::new(),
            sections: Vec::new(),
            waiting: BTreeSet::new(),
            asked: BTreeMap::new(),
            issued: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            sent: BTreeMap::new(),
            unsent: BTreeMap::new(),
        }
    }

    fn time(&self) -> Now {
        Now {
            monotonic: self.now,
            wall: 0,
            interval: None,
        }
    }

    fn drive(&mut self, act: impl FnOnce(&mut Session, Now, &mut Vec<Event>)) {
        let mut out = Vec::new();
        let now = self.time();
        act(&mut self.session, now, &mut out);
        for event in out {
            self.see(event);
        }
    }

    fn call(&mut self, call: Call) {
        self.ticket += 1;
        let ticket = Ticket(self.ticket);
        self.waiting.insert(ticket);
        self.drive(|session, now, out| session.call(now, ticket, call, out));
    }

    fn see(&mut self, event: Event) {
        match event {
            Event::Send { endpoint, request } => self.see_request(endpoint, request),
            Event::Close { endpoint, number } => {
                let other = |(e, r): &(Endpoint, Request)| *e != endpoint || r.number != number;
                self.open.retain(other);
            }
            Event::Done { ticket, result } => {
                assert!(self.waiting.remove(&ticket), "an operation ends once");
                if let Ok(Success::Entered { section, .. } | Success::Waiting { section, .. }) =
                    result
                {
                    self.sections.push(section);
                }
            }
            Event::Queued { .. } | Event::SectionLost { .. } | Event::LeaseExpired { .. } => {}
        }
    }

    fn see_request(&mut self, endpoint: Endpoint, request: Request) {
        assert!(request.answered_through < request.number);
        *self.sent.entry(request.number).or_default() += 1;
        match &request.operation {
            Operation::Critical {
                held,
                operation: Critical::Put { number, .. },
                leave,
            } => {
                self.same(&request, format!("{held:?} {number}"));
                self.issued
                    .entry(held.clone())
                    .or_default()
                    .insert(*number, request.number);
                for (other, how) in leave.iter().filter(|(other, _)| other != held) {
                    self.check(other, how);
                }
            }
            Operation::Leave { keys } => {
                self.same(&request, format!("{keys:?}"));
                for (held, how) in keys {
                    self.check(held, how);
                }
            }
            // The wait that remains shrinks from one transmission to the next.
            Operation::Enter { keys, .. } => self.same(&request, format!("{keys:?}")),
            other => self.same(&request, format!("{other:?}")),
        }
        let sessions = (request.session, request.site);
        assert_eq!(sessions, (ME, SiteId(0)));
        self.open.push((endpoint, request));
    }

    fn same(&mut self, request: &Request, what: String) {
        let first = self.asked.entry(request.number).or_insert(what.clone());
        assert_eq!(*first, what, "a retry repeats its request");
    }

    /// The account of the test's own: the highest write that reached the wire must be acknowledged,
    /// although it was refused (G25).
    fn check(&self, held: &Held, how: &Leaving) {
        let Leaving::Clean(tag) = how else {
            return;
        };
        let acknowledged = self.acknowledged.get(held).copied().unwrap_or(0);
        let harmless = |request: &u64| self.sent.get(request) == self.unsent.get(request);
        let issued = self.issued.get(held).into_iter().flatten();
        let highest = issued
            .filter(|(_, r)| !harmless(r))
            .map(|(write, _)| *write)
            .max();
        let highest = highest.unwrap_or(0);
        assert!(
            acknowledged >= highest,
            "{held:?} clean, {highest} in doubt"
        );
        let expected = (acknowledged > 0)
            .then(|| Tag::critical(held.lock_ref, held.generation, acknowledged, ME));
        assert_eq!(*tag, expected);
    }

    /// Answers an open transmission in one of many ways.
    fn answer(&mut self, which: u8, how: u8) {
        if self.open.is_empty() {
            return;
        }
        let at = usize::from(which) % self.open.len();
        let (endpoint, request) = self.open[at].clone();
        let reply = World::reply(&request, how);
        let goes_on = match &reply {
            Reply::Queued { .. } => true,
            Reply::Entered { .. } => matches!(
                request.operation,
                Operation::Enter { follow: true, .. } | Operation::Resume { .. }
            ),
            _ => false,
        };
        if !goes_on {
            self.open.remove(at);
        }
        self.note(&request, &reply);
        let number = request.number;
        self.drive(|session, now, out| session.on_reply(now, endpoint, number, reply, out));
    }

    /// Books what a reply means for a critical put, before the session hears of it.
    fn note(&mut self, request: &Request, reply: &Reply) {
        let Operation::Critical {
            held,
            operation: Critical::Put { number, .. },
            leave,
        } = &request.operation
        else {
            return;
        };
        let good = matches!(
            (reply, leave.is_empty()),
            (Reply::Done { .. }, true) | (Reply::Left, false)
        );
        if good {
            let top = self.acknowledged.entry(held.clone()).or_default();
            *top = (*top).max(*number);
        }
    }

    /// No two requests get the same refs; those of one request stay the same.
    fn entered(number: u64, keys: Vec<(KeyId, u32)>) -> Reply {
        let entered = keys.into_iter().map(|(key, generation)| Entered {
            held: Held {
                key,
                lock_ref: LockRef(number),
                generation,
            },
            value: None.into(),
        });
        Reply::Entered {
            keys: entered.collect(),
            lease: 3_000_000,
        }
    }

    fn reply(request: &Request, how: u8) -> Reply {
        const CODES: [Code; 8] = [
            Code::Unavailable,
            Code::Busy,
            Code::NoLongerHolder,
            Code::TooLarge,
            Code::Forgotten,
            Code::DiskFull,
            Code::WaitOver,
            Code::NotHolder,
        ];
        let code = CODES[usize::from(how) % CODES.len()];
        match how {
            0..40 => Reply::Refused(Refusal::definite(code, "")),
            40..80 => Reply::Refused(Refusal::unknown(code, "")),
            80..86 => Reply::Left,
            86..90 => Reply::Renewed { states: Vec::new() },
            90..94 => World::entered(request.number, vec![(key(how), 0)]),
            _ => match &request.operation {
                Operation::Enter { keys, .. } if how < 130 => {
                    let held = |key: &KeyId| Held {
                        key: key.clone(),
                        lock_ref: LockRef(request.number),
                        generation: 0,
                    };
                    Reply::Queued {
                        held: keys.iter().map(held).collect(),
                        ahead: 1,
                    }
                }
                Operation::Enter { keys, .. } => World::entered(
                    request.number,
                    keys.iter().map(|k| (k.clone(), 0)).collect(),
                ),
                Operation::Resume { held, .. } => {
                    let keys = held.iter().map(|h| (h.key.clone(), h.generation + 1));
                    World::entered(request.number, keys.collect())
                }
                Operation::Critical { leave, .. } if !leave.is_empty() => Reply::Left,
                Operation::Critical {
                    operation: Critical::Get,
                    ..
                }
                | Operation::Read { .. } => Reply::Value {
                    value: None,
                    tag: Tag::ZERO,
                },
                Operation::Renew { held } => {
                    let state = match how {
                        0..150 => RefState::Unknown,
                        150..155 => RefState::Gone,
                        _ => RefState::Holding { lease: 3_000_000 },
                    };
                    Reply::Renewed {
                        states: vec![state; held.len()],
                    }
                }
                _ => Reply::Done { tag: None },
            },
        }
    }

    fn pass(&mut self, micros: u64) {
        let end = self.now + micros;
        while let Some(at) = self.session.wake().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.drive(|session, now, out| session.tick(now, out));
        }
        self.now = end;
    }

    fn step(&mut self, step: Step) {
        let section = self.sections.last().copied().unwrap_or(SectionId(9));
        match step {
            Step::Enter { keys, poll, shared } => self.call(Call::Enter {
                keys: (0..3).filter(|k| keys & (1 << k) != 0).map(key).collect(),
                mode: if shared {
                    Mode::Shared
                } else {
                    Mode::Exclusive
                },
                wait: if poll { 0 } else { 10_000_000 },
                lease: None,
            }),
            Step::Poll => self.call(Call::Poll { section }),
            Step::Resume(keys) => {
                let held = (0..3).filter(|k| keys & (1 << k) != 0).map(|k| Held {
                    key: key(k),
                    lock_ref: LockRef(1_000_000),
                    generation: u32::from(keys),
                });
                let held = held.collect();
                let of = SessionId(3);
                self.call(Call::Resume { held, of });
            }
            Step::Get(k) => self.call(Call::CriticalGet {
                section,
                key: key(k),
            }),
            Step::Put(k) => self.call(Call::CriticalPut {
                section,
                key: key(k),
                value: None,
            }),
            Step::PutAndLeave(k) => self.call(Call::PutAndLeave {
                section,
                key: key(k),
                value: None,
            }),
            Step::Leave(wait) => self.call(Call::Leave { section, wait }),
            Step::Write => self.call(Call::Write {
                key: key(0),
                value: None,
            }),
            Step::Cancel(back) => {
                let ticket = Ticket(self.ticket.saturating_sub(u64::from(back % 4)));
                self.drive(|session, now, out| session.cancel(now, ticket, out));
            }
            Step::Answer(which, how) => self.answer(which, how),
            Step::Fail(which, not_sent) if !self.open.is_empty() => {
                let at = usize::from(which) % self.open.len();
                let (endpoint, request) = self.open.remove(at);
                let number = request.number;
                let failure = if not_sent {
                    *self.unsent.entry(number).or_default() += 1;
                    Failure::NotSent
                } else {
                    Failure::Broken
                };
                self.drive(|session, now, out| {
                    session.on_failure(now, endpoint, number, failure, out);
                });
            }
            Step::Fail(..) => {}
            Step::Disconnect(endpoint) => {
                let endpoint = Endpoint(endpoint.into());
                self.open.retain(|(e, _)| *e != endpoint);
                self.drive(|session, now, out| session.on_disconnected(now, endpoint, out));
            }
            Step::Pass(micros) => self.pass(micros.into()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_schedule_makes_an_unacknowledged_write_clean(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        // With nothing answered any more, every operation still ends.
        world.open.clear();
        world.pass(200_000_000);
        prop_assert!(world.waiting.is_empty(), "{:?} never ended", world.waiting);
    }
}
