//! `enter` and `resume`: the client's side of a section's beginning, and the stream that tells it
//! of the end.

use super::acquire::{Acquire, Progress};
use super::desk::Desk;
use super::refuse;
use super::submit::PrimaryAnswer;
use super::{Client, Cx, Event, Job, Lost, STEP_FIRST, Step};
use crate::base::{Address, Bug, KeyId, Keyspace, Label, Micros, Purpose, SegmentId, SessionId};
use crate::catalogue;
use crate::command::{Command, LockCommand, Origin};
use crate::request::{Code, Entered, Held, Mode, RefState, Refusal, Reply};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// How a section is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// None resumes. An enqueue that fails is left; a section that cannot be resumed stays the
    /// client's.
    pub(super) mode: Option<Mode>,
    pub(super) wait: Micros,
    pub(super) follow: bool,
    pub(super) may_return: bool,
}

impl Wish {
    fn enqueues(&self) -> bool {
        self.mode.is_some()
    }

    /// Whether readers ahead are no hindrance.
    fn shared(&self) -> bool {
        self.mode == Some(Mode::Shared)
    }
}

/// The job of `Enter`.
pub(super) fn enter(
    keys: Vec<KeyId>,
    (mode, lease, label): (Mode, Option<Micros>, Label),
    wish: Wish,
    client: &Client,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    for key in &keys {
        refuse::key_fits(key, cx)?;
    }
    let commands = enqueues(&keys, mode, (lease, label), client, cx)?;
    let acquire = Acquire::new(commands, Some(mode));
    let mut once = Vec::with_capacity(keys.len());
    for key in keys {
        if !once.contains(&key) {
            once.push(key);
        }
    }
    Ok(Box::new(Enter::new(acquire, once, wish, cx)))
}

/// The job of `Resume`, which always tells of the section's end. Its mode is not known here, so its
/// grant does not pass the guard of later operations by itself.
pub(super) fn resume(
    held: Vec<Held>,
    of: SessionId,
    client: &Client,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    let origin_of = |keys: &[KeyId]| origin(keys, (None, Label::NONE), client, cx);
    let keys: Vec<KeyId> = held.iter().map(|h| h.key.clone()).collect();
    let mut commands = Vec::new();
    for (segment, keys) in in_order(&keys, cx)? {
        let here = |h: &&Held| keys.contains(&h.key);
        let mut refs = held.iter().filter(here).map(|h| (h.lock_ref, h.generation));
        let Some((lock_ref, generation)) = refs.next() else {
            continue;
        };
        if refs.any(|r| r != (lock_ref, generation)) {
            return Err(refuse::bad(
                "a section has one lock ref per segment; resume each alone",
            ));
        }
        let body = LockCommand::Resume {
            lock_ref,
            generation,
            of,
            origin: origin_of(&keys)?,
        };
        let epoch = Desk::epoch(cx.topology, segment);
        commands.push((
            segment,
            keys,
            Desk::command(client, STEP_FIRST, epoch, body),
        ));
    }
    // The grant waits for the lease of the generation before, as long as the keyspace gives it. A
    // client that asked for a longer one repeats the request.
    let lease = |key: &KeyId| cx.topology.keyspace(key.keyspace).map(|k| k.lease);
    let lease = keys.iter().filter_map(lease).max().unwrap_or(0);
    let wait = cx.env.timing.request + cx.env.timing.lengthened(lease);
    let wish = Wish {
        mode: None,
        wait,
        follow: true,
        may_return: true,
    };
    let acquire = Acquire::new(commands, None);
    Ok(Box::new(Enter::new(acquire, keys, wish, cx)))
}

/// The enqueue commands of a section, in the order of locking.
pub(super) fn enqueues(
    keys: &[KeyId],
    mode: Mode,
    as_asked: (Option<Micros>, Label),
    client: &Client,
    cx: &Cx<'_>,
) -> Result<Vec<(SegmentId, Vec<KeyId>, Command)>, Refusal> {
    let mut commands = Vec::new();
    for (segment, keys) in in_order(keys, cx)? {
        let body = LockCommand::Enqueue {
            origin: origin(&keys, as_asked, client, cx)?,
            keys: keys.clone(),
            mode,
        };
        let epoch = Desk::epoch(cx.topology, segment);
        commands.push((
            segment,
            keys,
            Desk::command(client, STEP_FIRST, epoch, body),
        ));
    }
    Ok(commands)
}

/// The keys by segment, each once, in (address, keyspace, key) order (F19: no two enters wait for
/// each other).
fn in_order(keys: &[KeyId], cx: &Cx<'_>) -> Result<Vec<(SegmentId, Vec<KeyId>)>, Refusal> {
    refuse::section_fits(keys.len(), cx)?;
    let mut placed: Vec<(Address, &KeyId)> = Vec::new();
    for key in keys {
        refuse::checked(key, Some(Purpose::Sections), cx)?;
        let address = cx.topology.address(key);
        let address = address.ok_or_else(|| refuse::bad("the key has no place on the ring"))?;
        placed.push((address, key));
    }
    placed.sort();
    placed.dedup();
    let mut parts: Vec<(SegmentId, Vec<KeyId>)> = Vec::new();
    for (_, key) in placed {
        let segment = super::leave::segment_of(key, cx)?;
        match parts.last_mut() {
            Some((last, keys)) if *last == segment => keys.push(key.clone()),
            _ => parts.push((segment, [key.clone()].into())),
        }
    }
    Ok(parts)
}

/// Who waits for `keys`: the shortest lease and maximum of their keyspaces.
fn origin(
    keys: &[KeyId],
    (lease, label): (Option<Micros>, Label),
    client: &Client,
    cx: &Cx<'_>,
) -> Result<Origin, Refusal> {
    let (mut silent, mut longest) = (Micros::MAX, Micros::MAX);
    for key in keys {
        let keyspace = refuse::checked(key, Some(Purpose::Sections), cx)?;
        silent = silent.min(keyspace.lease);
        longest = longest.min(keyspace.section_max);
    }
    let lease = Keyspace::lease_of(lease, (silent, longest)).map_err(|why| refuse::bad(&why))?;
    Ok(Origin {
        node: cx.topology.me(),
        site: client.site,
        since: cx.env.now.wall,
        lease,
        section_max: longest,
        label,
    })
}

#[derive(Debug)]
struct Enter {
    acquire: Acquire,
    /// As the client named them.
    keys: Vec<KeyId>,
    wish: Wish,
    wait_until: Micros,
    entered: bool,
    /// Keys whose refs were known when the primary was asked whether the last of them, which need
    /// not wait, holds.
    asked: usize,
    /// The client was told that the lock cannot be granted as things are.
    stalled: bool,
    /// Keys of which the client was told the ref.
    told: usize,
}

impl Enter {
    fn new(acquire: Acquire, keys: Vec<KeyId>, wish: Wish, cx: &Cx<'_>) -> Enter {
        Enter {
            acquire,
            keys,
            wish,
            wait_until: cx.after(wish.wait),
            entered: false,
            asked: 0,
            stalled: false,
            told: 0,
        }
    }

    fn fail(&mut self, refusal: Refusal, client: &Client, desk: &mut Desk, cx: &Cx<'_>) -> Step {
        // A client repeats a request that found nobody, or no room: its refs are waiting for it,
        // and end by their lease if it does not.
        let repeated = matches!(
            refusal.code,
            Code::Unavailable | Code::Busy | Code::DiskFull
        );
        if self.wish.enqueues() && !repeated {
            self.acquire.give_up(client, desk, cx);
        }
        Step::refuse(refusal)
    }

    fn enter(&mut self, client: &Client, cx: &mut Cx<'_>) -> Step {
        let latest = |key: &KeyId| {
            let (held, value, _) = self.acquire.latest(key)?;
            Some(Entered { held, value })
        };
        let reply = Reply::Entered {
            keys: self.keys.iter().filter_map(latest).collect(),
            lease: self.acquire.lease(),
        };
        self.entered = true;
        if self.wish.follow && client.call.is_some() {
            client.tell(reply, cx);
            Step::Open
        } else {
            Step::reply(reply)
        }
    }

    fn queued(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let reply = Reply::Queued {
            held: self.acquire.held(),
            ahead: self.acquire.ahead(),
        };
        if self.wish.wait > 0 {
            if cx.env.now.monotonic >= self.wait_until {
                return self.over(client, desk, cx);
            }
            // Its place is no news to one that stalls, unless it has a new ref.
            let refs = self.acquire.held().len();
            if !self.stalled || refs > self.told || self.acquire.stalls(cx).is_none() {
                client.tell(reply, cx);
                (self.stalled, self.told) = (false, refs);
            }
            self.look(client, cx);
            return Step::Open;
        }
        let refs = self.acquire.held().len();
        if self.acquire.ahead() > 0 && (self.asked == refs || !self.wish.shared()) {
            return Step::reply(reply);
        }
        // Nobody is ahead, or readers beside a reader: either the grant is on its way, or this
        // repeats an enqueue whose ref is past, or a writer is among them. The primary knows.
        self.asked = refs;
        self.acquire.renew(client, desk, cx);
        Step::Open
    }

    /// Whether `event` is the primary's word that a ref which was not to wait does.
    fn waits_by(&self, event: &Event) -> bool {
        let Event::Asked {
            answer: PrimaryAnswer::States(states),
            ..
        } = event
        else {
            return false;
        };
        let queued = matches!(states.first(), Some(RefState::Queued { ahead: 1.. }));
        self.wish.wait == 0 && self.asked > 0 && queued
    }

    /// Tells a client that waits whether the lock can be granted as things are, where that has
    /// changed, and again as long as it cannot. A resume has nothing to gain by giving up.
    fn look(&mut self, client: &Client, cx: &mut Cx<'_>) {
        if self.wish.wait == 0 || !self.wish.enqueues() {
            return;
        }
        let reply = match self.acquire.stalls(cx) {
            Some(shortage) => Reply::Stalled {
                why: refuse::stalled("the enter", &shortage),
            },
            None if self.stalled => Reply::Queued {
                held: self.acquire.held(),
                ahead: self.acquire.ahead(),
            },
            None => return,
        };
        self.stalled = matches!(reply, Reply::Stalled { .. });
        client.tell(reply, cx);
    }

    /// The time to wait is over, with a ref that waits.
    fn over(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        if !self.wish.enqueues() {
            return Step::refuse(refuse::resume_waits());
        }
        if self.wish.wait == 0 {
            return Step::reply(Reply::Queued {
                held: self.acquire.held(),
                ahead: self.acquire.ahead(),
            });
        }
        let Some(shortage) = self.acquire.stalls(cx) else {
            return self.fail(self.acquire.wait_over(cx), client, desk, cx);
        };
        self.acquire.give_up(client, desk, cx);
        let why = refuse::stalled("the enter", &shortage);
        Step::refuse(Refusal::definite(Code::Unavailable, why))
    }

    /// The client has gone. One that may come back may have gone on at another node, and only its
    /// own word, or the end of its lease, ends its wait (G6). One that does not gives up the place
    /// that it waited for, as far as it only waits (G47: nobody waits for a
    /// lease then; G13: a ref that holds is in use elsewhere).
    fn closed(&self, client: &Client, desk: &mut Desk, cx: &Cx<'_>) -> Step {
        let gone = !self.wish.may_return && self.wish.wait > 0;
        let stays = cx.env.planted.has(Bug::GoneCallerStays);
        if gone && !stays || cx.env.planted.has(Bug::ClosedEnterLeaves) {
            self.acquire.give_up(client, desk, cx);
        }
        Step::Close(None)
    }

    /// When a wait ends whose ref is known.
    fn ends(&self, client: &Client) -> Micros {
        if self.wish.wait == 0 {
            client.deadline
        } else {
            self.wait_until
        }
    }

    /// After the entry: only the end is of interest.
    fn follow(&mut self, event: &Event, cx: &Cx<'_>) -> Step {
        match event {
            Event::Cancelled => Step::Close(None),
            Event::Lost(Lost {
                segment,
                lock_ref,
                generation,
                ..
            }) => {
                let of = |key: &&KeyId| cx.topology.segment(key) == Some(*segment);
                let held = self
                    .keys
                    .iter()
                    .filter(of)
                    .find_map(|k| self.acquire.latest(k));
                match held {
                    Some((held, _, _))
                        if held.lock_ref == *lock_ref
                            && held.generation <= *generation
                            && !cx.env.planted.has(Bug::LostKeyIgnored) =>
                    {
                        Step::reply(Reply::Lost { held })
                    }
                    _ => Step::Open,
                }
            }
            _ => Step::Open,
        }
    }
}

impl Job for Enter {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        if self.entered {
            return self.follow(&event, cx);
        }
        match event {
            Event::Start => {
                self.acquire.begin(client, desk, cx);
                return Step::Open;
            }
            Event::Cancelled => return self.closed(client, desk, cx),
            Event::Timer if self.acquire.waits() && cx.env.now.monotonic >= self.ends(client) => {
                return self.over(client, desk, cx);
            }
            _ => {}
        }
        let mut keys = self.keys.iter().map(|key| key.keyspace);
        if let Some(dead) = keys.find(|id| cx.topology.catalogue().is_dead(*id)) {
            return self.fail(catalogue::unknown(dead), client, desk, cx);
        }
        let renewed = matches!(event, Event::Timer) && self.acquire.waits();
        let waits = self.waits_by(&event);
        match self.acquire.on(event, client, desk, cx) {
            Progress::Nothing if waits => self.queued(client, desk, cx),
            Progress::Nothing => {
                if renewed {
                    self.look(client, cx);
                }
                Step::Open
            }
            Progress::Queued => self.queued(client, desk, cx),
            Progress::Entered => self.enter(client, cx),
            Progress::Failed(refusal) => self.fail(refusal, client, desk, cx),
        }
    }

    fn wake(&self, client: &Client) -> Option<Micros> {
        if self.entered {
            None
        } else if self.acquire.waits() {
            Some(self.acquire.wake().min(self.ends(client)))
        } else {
            Some(self.acquire.wake())
        }
    }

    fn awaits(&self, segment: SegmentId) -> bool {
        !self.entered && self.acquire.awaits(segment)
    }

    fn close(&mut self, client: &Client, desk: &mut Desk) {
        self.acquire.close(client, desk);
    }
}
