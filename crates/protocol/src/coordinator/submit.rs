//! One question to whoever leads: sent until it is answered.
//!
//! A coordinator knows neither who leads a log nor whether its message arrived. It asks whom it
//! believes to lead, follows the hints of those who do not, and asks the members in turn when
//! nothing comes back. A command keeps its identity through all of it, so that it takes effect once
//! (F2); only the knowledge whether it did can be lost. That is what `unsure` says: some
//! transmission of the command may be, or become, chosen although nobody answered for it.
//!
//! Departure from the obvious: a hint to a node that has just been silent is not followed at once,
//! and one to a node that has not been heard for a lease is none. Followers name a dead primary
//! until they miss its beats, and following them would turn the search into a loop. A search for
//! another segment's primary says nothing of this one: each would wait for its own answer from the
//! dead.

use super::timers::Timers;
use super::topology::{Target, Topology};
use super::{Cx, TaskId, message};
use crate::base::{KeyId, LockRef, Micros, NodeName, SegmentId, SessionId, Timestamp};
use crate::command::{Body, Command, LockCommand};
use crate::ledger::{self, Found, Part};
use crate::lock::{self, Outcome, Rejection};
use crate::request::{QueueEntry, RefState};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Hints kept; more than any node has segments in use.
const HINTS: usize = 4_096;
/// Hints followed in a row before the search pauses.
const HOPS: u8 = 4;

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// Propose this.
    Command(Command),
    /// Keep these alive.
    Renew {
        /// Whose.
        session: SessionId,
        /// Refs and generations.
        refs: Vec<(LockRef, u32)>,
        /// Those whose grant has not arrived.
        again: Vec<LockRef>,
        /// They need no lease any more.
        relinquishes: bool,
    },
    /// Who waits for this key.
    Queue(KeyId),
    /// What is there at a time? Any member may know.
    Read {
        /// The time.
        at: Timestamp,
        /// What of it.
        parts: Vec<Part>,
    },
}

/// How a question ended.
#[derive(Clone, Debug)]
pub(super) enum PrimaryAnswer {
    /// A command was applied.
    Outcome {
        /// What came of it.
        outcome: Outcome,
        /// For an enqueue: refs ahead.
        ahead: u32,
    },
    /// To `Renew`, in order.
    States(Vec<RefState>),
    /// To `Queue`.
    Queue(Vec<QueueEntry>, Option<u64>),
    /// To `Read`, for the first parts of it, at least one.
    Found(Vec<Found>),
    /// A forced release must wait for the holder's lease, which is not renewed any more. The
    /// question goes on.
    Leased,
    /// The primary did not take it.
    Rejected {
        /// Why.
        rejection: Rejection,
        /// A command may have been chosen through an earlier transmission.
        unsure: bool,
    },
    /// The time is over.
    Silent {
        /// A command may have been chosen, or may be.
        unsure: bool,
        /// What the last primary that answered said.
        last: Option<Rejection>,
    },
}

/// An answer for a task.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    /// Who asked.
    pub(super) task: TaskId,
    /// Which of its questions.
    pub(super) ask: u64,
    /// The answer.
    pub(super) answer: PrimaryAnswer,
}

/// So often a question is asked again soon, while nobody leads; then after an eighth of a retry
/// time.
const SHORT_PAUSES: u8 = 12;

#[derive(Debug)]
struct Ask {
    task: TaskId,
    target: Target,
    question: Question,
    deadline: Micros,
    patient: bool,
    /// To whom the last transmission went that nobody has answered.
    awaits: Option<NodeName>,
    /// Who did not answer the transmission before.
    silent: Option<NodeName>,
    /// Whom to ask after the pause.
    next: Option<NodeName>,
    /// Whoever is being asked may have come to lead since: a refusal may be from before.
    news: bool,
    turn: usize,
    hops: u8,
    /// Pauses since nobody led: the first [`SHORT_PAUSES`] are shorter than the others.
    pauses: u8,
    unsure: bool,
    last: Option<Rejection>,
}

/// All open questions of a coordinator.
#[derive(Debug, Default)]
pub(super) struct Submitter {
    next: u64,
    open: BTreeMap<u64, Ask>,
    owners: BTreeSet<(TaskId, u64)>,
    timers: Timers,
    hints: BTreeMap<Target, NodeName>,
}

impl Submitter {
    /// Without questions; the first is named by what follows `next`.
    pub(super) fn new(next: u64) -> Submitter {
        Submitter {
            next,
            ..Submitter::default()
        }
    }

    /// Asks until `deadline`. A patient question goes on after `Busy`, `DiskFull` and `Leased`;
    /// another one ends with them.
    pub(super) fn ask(
        &mut self,
        task: TaskId,
        target: Target,
        question: Question,
        deadline: Micros,
        patient: bool,
        cx: &mut Cx<'_>,
    ) -> u64 {
        self.begin(task, (target, None), question, (deadline, patient), cx)
    }

    /// Asks a member first, if one is named, and then whoever it names; patiently.
    pub(super) fn ask_at(
        &mut self,
        task: TaskId,
        target: (Target, Option<NodeName>),
        question: Question,
        deadline: Micros,
        cx: &mut Cx<'_>,
    ) -> u64 {
        self.begin(task, target, question, (deadline, true), cx)
    }

    fn begin(
        &mut self,
        task: TaskId,
        (target, first): (Target, Option<NodeName>),
        question: Question,
        (deadline, patient): (Micros, bool),
        cx: &mut Cx<'_>,
    ) -> u64 {
        self.next += 1;
        let id = self.next;
        let mut ask = Ask {
            task,
            target,
            question,
            deadline,
            patient,
            awaits: None,
            silent: None,
            next: None,
            news: false,
            turn: 0,
            hops: 0,
            pauses: 0,
            unsure: false,
            last: None,
        };
        let hint = self.hints.get(&target).copied();
        let heard = |node: &NodeName| cx.topology.hears(*node);
        let first = first.or_else(|| hint.filter(heard));
        let first = first.or_else(|| cx.topology.primary(target).filter(heard));
        self.transmit(id, &mut ask, first, cx);
        self.open.insert(id, ask);
        self.owners.insert((task, id));
        id
    }

    /// The grant of this command's ref came, which answers its submission.
    pub(super) fn close(&mut self, ask: u64) {
        if let Some(open) = self.open.remove(&ask) {
            self.owners.remove(&(open.task, ask));
            self.timers.set(ask, None);
        }
    }

    /// Forgets all questions of a task.
    pub(super) fn close_all(&mut self, task: TaskId) {
        while let Some(&(_, ask)) = self.owners.range((task, 0)..=(task, u64::MAX)).next() {
            self.close(ask);
        }
    }

    /// A primary speaks for a target: ask it first from now on.
    pub(super) fn leads(&mut self, target: Target, node: NodeName) {
        if self.hints.len() >= HINTS && !self.hints.contains_key(&target) {
            self.hints.clear();
        }
        self.hints.insert(target, node);
    }

    /// Tells whoever is believed to lead, once, what nothing depends on.
    pub(super) fn tell(&self, target: Target, message: lock::Message, cx: &mut Cx<'_>) {
        let hint = self.hints.get(&target).copied();
        if let Some(node) = hint.or_else(|| cx.topology.primary(target)) {
            cx.env.fx.send(node, message);
        }
    }

    /// An answer of a primary, or of one that should be.
    pub(super) fn on_lock(
        &mut self,
        from: NodeName,
        message: lock::Message,
        cx: &mut Cx<'_>,
    ) -> Option<Answered> {
        match message {
            lock::Message::Submitted {
                call,
                result,
                ahead,
            } => {
                let answer = result.map(|outcome| PrimaryAnswer::Outcome { outcome, ahead });
                self.answered(from, call, answer, cx)
            }
            lock::Message::Renewed { call, result } => {
                self.answered(from, call, result.map(PrimaryAnswer::States), cx)
            }
            lock::Message::Leads { segment } => {
                let target = Target::Segment(segment);
                self.ask_now(target, Some(from), cx);
                self.leads(target, from);
                None
            }
            lock::Message::QueueIs { call, result } => {
                let answer = result.map(|(entries, flag)| PrimaryAnswer::Queue(entries, flag));
                self.answered(from, call, answer, cx)
            }
            _ => None,
        }
    }

    /// The answer to a read. Whoever gave it need not lead.
    pub(super) fn on_found(
        &mut self,
        from: NodeName,
        call: u64,
        result: Result<Vec<Found>, Rejection>,
        cx: &mut Cx<'_>,
    ) -> Option<Answered> {
        self.answered(from, call, result.map(PrimaryAnswer::Found), cx)
    }

    /// The answer to a command for a group.
    pub(super) fn on_proposed(
        &mut self,
        from: NodeName,
        call: u64,
        result: Result<Outcome, Rejection>,
        cx: &mut Cx<'_>,
    ) -> Option<Answered> {
        let answer = result.map(|outcome| PrimaryAnswer::Outcome { outcome, ahead: 0 });
        self.answered(from, call, answer, cx)
    }

    fn answered(
        &mut self,
        from: NodeName,
        id: u64,
        answer: Result<PrimaryAnswer, Rejection>,
        cx: &mut Cx<'_>,
    ) -> Option<Answered> {
        let mut ask = self.open.remove(&id)?;
        match answer {
            Ok(answer) if fits(&ask.question, &answer) => {
                if !matches!(ask.question, Question::Read { .. }) {
                    self.leads(ask.target, from);
                }
                self.finish(id, &ask, answer)
            }
            Err(rejection) if ask.awaits == Some(from) => {
                ask.awaits = None;
                ask.last = Some(rejection.clone());
                if let Some(unsure) = self.rejected(from, id, &mut ask, &rejection, cx) {
                    return self.finish(id, &ask, PrimaryAnswer::Rejected { rejection, unsure });
                }
                let leased = matches!(rejection, Rejection::Leased(_));
                let told = (leased && ends_by_force(&ask.question)).then_some(Answered {
                    task: ask.task,
                    ask: id,
                    answer: PrimaryAnswer::Leased,
                });
                self.open.insert(id, ask);
                told
            }
            _ => {
                self.open.insert(id, ask);
                None
            }
        }
    }

    /// Goes on after a rejection, or says that the question ends with it, and how sure that is.
    fn rejected(
        &mut self,
        from: NodeName,
        id: u64,
        ask: &mut Ask,
        rejection: &Rejection,
        cx: &mut Cx<'_>,
    ) -> Option<bool> {
        let pause = cx.env.timing.retry / 8;
        match rejection {
            Rejection::NotPrimary(Some(hint)) if *hint != from && cx.topology.hears(*hint) => {
                let hint = *hint;
                if ask.silent == Some(hint) || ask.hops >= HOPS {
                    ask.silent = None;
                    ask.next = Some(hint);
                    self.pause(id, ask, pause, cx);
                } else {
                    ask.hops += 1;
                    self.leads(ask.target, hint);
                    self.transmit(id, ask, Some(hint), cx);
                }
            }
            Rejection::NotPrimary(_) | Rejection::Elsewhere(_) if ask.news => {
                self.transmit(id, ask, Some(from), cx);
            }
            Rejection::NotPrimary(_) | Rejection::Elsewhere(_) => {
                self.hints.remove(&ask.target);
                let pause = between_logs(ask.pauses, cx.env.timing.retry);
                ask.pauses = ask.pauses.saturating_add(1);
                self.pause(id, ask, pause, cx);
            }
            Rejection::Overtaken => {
                ask.unsure = matches!(ask.question, Question::Command(_));
                self.hints.remove(&ask.target);
                self.pause(id, ask, pause, cx);
            }
            Rejection::Busy | Rejection::DiskFull if ask.patient => {
                self.pause(id, ask, cx.env.timing.retry, cx);
            }
            Rejection::Leased(left) if ask.patient => {
                let mut wait = *left;
                if ends_by_force(&ask.question) {
                    // The primary renews that lease no more: whatever refuses the release later,
                    // the section ends. It tells when, but its word may be lost, and the next
                    // primary knows nothing of the release.
                    ask.unsure = true;
                    wait = wait.min(2 * cx.env.timing.retry);
                }
                ask.next = Some(from);
                self.pause(id, ask, wait.max(pause), cx);
            }
            Rejection::Busy
            | Rejection::DiskFull
            | Rejection::Leased(_)
            | Rejection::NotReady
            | Rejection::NoRoom
            | Rejection::ClockSkew
            | Rejection::NoSuchKeyspace => {
                return Some(ask.unsure);
            }
        }
        None
    }

    fn finish(&mut self, id: u64, ask: &Ask, answer: PrimaryAnswer) -> Option<Answered> {
        self.owners.remove(&(ask.task, id));
        self.timers.set(id, None);
        Some(Answered {
            task: ask.task,
            ask: id,
            answer,
        })
    }

    fn pause(&mut self, id: u64, ask: &Ask, pause: Micros, cx: &Cx<'_>) {
        let at = cx.env.now.monotonic.saturating_add(pause);
        self.timers.set(id, Some(at.min(ask.deadline)));
    }

    fn transmit(&mut self, id: u64, ask: &mut Ask, to: Option<NodeName>, cx: &mut Cx<'_>) {
        let at = cx.env.now.monotonic.saturating_add(cx.env.timing.retry);
        self.timers.set(id, Some(at.min(ask.deadline)));
        let to = to.or_else(|| turn(ask, cx.topology));
        let Some(to) = to else { return };
        ask.awaits = Some(to);
        ask.news = false;
        let segment = match ask.target {
            Target::Segment(segment) => segment,
            Target::Group(_) => {
                if let Question::Command(command) = &ask.question {
                    let command = command.clone();
                    cx.env
                        .fx
                        .send(to, message::Message::Propose { call: id, command });
                }
                return;
            }
        };
        match &ask.question {
            Question::Read { at, parts } => {
                let read = ledger::Message::Read {
                    call: id,
                    segment,
                    at: *at,
                    parts: parts.clone(),
                };
                cx.env.fx.send(to, read);
            }
            question => {
                if let Some(message) = to_primary(id, segment, question) {
                    cx.env.fx.send(to, message);
                }
            }
        }
    }

    /// Sends again what was not answered; returns a question whose time is over. Call until none.
    pub(super) fn tick(&mut self, cx: &mut Cx<'_>) -> Option<Answered> {
        while let Some(id) = self.timers.take_due(cx.env.now.monotonic) {
            let Some(mut ask) = self.open.remove(&id) else {
                continue;
            };
            let waits = ask.awaits.take();
            if waits.is_some() && matches!(ask.question, Question::Command(_)) {
                ask.unsure = true;
            }
            if cx.env.now.monotonic >= ask.deadline {
                let unsure = ask.unsure;
                let last = ask.last.take();
                return self.finish(id, &ask, PrimaryAnswer::Silent { unsure, last });
            }
            if let Some(silent) = waits {
                ask.silent = Some(silent);
                if self.hints.get(&ask.target) == Some(&silent) {
                    self.hints.remove(&ask.target);
                }
            }
            ask.hops = 0;
            let next = ask.next.take();
            self.transmit(id, &mut ask, next, cx);
            self.open.insert(id, ask);
        }
        None
    }

    /// Asks at once, about these segments, whom this node now takes for the primary. If just that
    /// node is being asked, it is asked again where it refuses.
    pub(super) fn on_news(&mut self, segments: &BTreeSet<SegmentId>, cx: &mut Cx<'_>) {
        for segment in segments {
            let target = Target::Segment(*segment);
            let primary = cx.topology.primary(target);
            let primary = primary.filter(|node| cx.topology.hears(*node));
            self.ask_now(target, primary, cx);
        }
    }

    /// Asks that primary all that is open about a target, or, where none is known, what nobody is
    /// asked.
    fn ask_now(&mut self, target: Target, primary: Option<NodeName>, cx: &mut Cx<'_>) {
        let asks = self.open.iter().filter(|(_, ask)| ask.target == target);
        let asks: Vec<u64> = asks.map(|(id, _)| *id).collect();
        for id in asks {
            let Some(mut ask) = self.open.remove(&id) else {
                continue;
            };
            if ask.awaits.is_none() || (primary.is_some() && ask.awaits != primary) {
                // The one that was asked may yet have had it chosen.
                let asked = ask.awaits.take().is_some();
                ask.unsure |= asked && matches!(ask.question, Question::Command(_));
                ask.hops = 0;
                self.hints.remove(&ask.target);
                self.transmit(id, &mut ask, primary, cx);
            } else if primary.is_some() {
                ask.news = true;
            }
            self.open.insert(id, ask);
        }
    }

    /// When something is to be sent again or given up.
    pub(super) fn wake(&self) -> Option<Micros> {
        self.timers.next()
    }
}

/// How long to wait for whoever leads next, after so many pauses, unless it says before that it
/// does. A primary that ends its log to go on with the next is away for a round trip, which is
/// short where the members are near: the first pause is short, the next ones double up to a 64th
/// of a retry time.
fn between_logs(pauses: u8, retry: Micros) -> Micros {
    if pauses >= SHORT_PAUSES {
        return retry / 8;
    }
    ((retry / 1_024) << pauses).min(retry / 64) + 1
}

/// Whether the question is a forced release.
fn ends_by_force(question: &Question) -> bool {
    let Question::Command(command) = question else {
        return false;
    };
    matches!(command.body, Body::Lock(LockCommand::Release { .. }))
}

/// Whether a peer answered what was asked.
fn fits(question: &Question, answer: &PrimaryAnswer) -> bool {
    match (question, answer) {
        (Question::Command(_), PrimaryAnswer::Outcome { .. }) => true,
        (Question::Renew { refs, .. }, PrimaryAnswer::States(states)) => refs.len() == states.len(),
        (Question::Queue(_), PrimaryAnswer::Queue(..)) => true,
        (Question::Read { parts, .. }, PrimaryAnswer::Found(found)) => {
            (1..=parts.len()).contains(&found.len())
        }
        _ => false,
    }
}

/// The next member in turn, but not one that is not heard or was silent just now, where there is
/// another.
fn turn(ask: &mut Ask, topology: &dyn Topology) -> Option<NodeName> {
    let members = topology.members(ask.target);
    let heard = |node: &NodeName| topology.hears(*node);
    let some_heard = members.iter().any(heard);
    for _ in 0..members.len() {
        let pick = *members.get(ask.turn % members.len())?;
        ask.turn += 1;
        if Some(pick) != ask.silent && (heard(&pick) || !some_heard) {
            return Some(pick);
        }
    }
    members.first().copied()
}

fn to_primary(call: u64, segment: SegmentId, question: &Question) -> Option<lock::Message> {
    Some(match question {
        Question::Command(command) => lock::Message::Submit {
            call,
            segment,
            command: command.clone(),
        },
        Question::Renew {
            session,
            refs,
            again,
            relinquishes,
        } => lock::Message::Renew {
            call,
            segment,
            session: *session,
            refs: refs.clone(),
            again: again.clone(),
            relinquishes: *relinquishes,
        },
        Question::Queue(key) => lock::Message::Queue {
            call,
            segment,
            key: key.clone(),
        },
        Question::Read { .. } => return None,
    })
}
