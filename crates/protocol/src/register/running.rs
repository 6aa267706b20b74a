//! One operation under way: which answers it has, what it asks next, when it is done. No sending
//! here: [`super::Caller`] sends what this asks for.

use super::message::{Answer, Ask, Content, Holder};
use super::once::Names;
use super::op::{Op, Outcome, Place};
use super::{Cx, policy, quorum};
use crate::base::{Bug, EventualTag, KeyId, LockRef, Micros, Seat, StoragePolicy, Tag};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

/// What is asked in the present phase.
#[derive(Debug)]
enum Phase {
    /// Cells of q members.
    Collect,
    /// A store at q members, after which the outcome is `then`.
    Store {
        tag: Tag,
        origin: LockRef,
        value: Option<Bytes>,
        then: Box<Outcome>,
    },
    /// One member after the other, by place in the order. A put goes on only from one that has
    /// refused it for good (G16).
    One { turn: usize },
}

/// One member in the present phase.
#[derive(Clone, Debug, Default)]
struct Member {
    /// Its answer, if it counts towards the quorum.
    good: Option<Answer>,
    /// Its latest answer, if it refuses for now; it is asked again.
    refusal: Option<Answer>,
    /// It said that the ref is past.
    past: bool,
    /// Transmissions.
    asks: u32,
    /// When it is asked (again), unless it has answered for good.
    due: Micros,
}

impl Member {
    fn settled(&self) -> bool {
        self.good.is_some() || self.past
    }
}

/// What comes next.
pub(super) enum Next {
    /// Nothing now.
    Wait,
    /// A new phase: a new call, and everything that is due is sent.
    Phase,
    /// Done.
    Done(Outcome),
}

#[derive(Debug)]
pub(super) struct Running {
    op: Op,
    pub(super) place: Place,
    pub(super) call: u64,
    began: Micros,
    deadline: Micros,
    phase: Phase,
    members: Vec<Member>,
    /// Seats in the order of asking.
    order: Vec<Seat>,
    /// Something that changes the key may have left this node.
    effect: bool,
}

impl Running {
    pub(super) fn new(
        op: Op,
        place: Place,
        own: Option<Seat>,
        deadline: Micros,
        cx: &Cx<'_>,
    ) -> Self {
        let n = place.view.len();
        let mut order: Vec<Seat> = Vec::with_capacity(n);
        let all = (0..n as u8).map(Seat);
        for seat in own
            .into_iter()
            .chain(place.order.iter().copied())
            .chain(all)
        {
            if usize::from(seat.0) < n && !order.contains(&seat) {
                order.push(seat);
            }
        }
        let phase = match &op {
            Op::Put { tag, value, .. } => Phase::Store {
                tag: *tag,
                origin: tag.lock_ref,
                value: value.clone(),
                then: Box::new(Outcome::Stored { tag: *tag }),
            },
            Op::EventualGet { .. } | Op::EventualPut { .. } | Op::Inspect { .. } => {
                Phase::One { turn: 0 }
            }
            _ => Phase::Collect,
        };
        // I5: a replica with a damaged record relies on this bound.
        let bound = cx.now.monotonic.saturating_add(cx.timing.request);
        Running {
            op,
            place,
            call: 0,
            began: cx.now.monotonic,
            deadline: deadline.min(bound),
            phase,
            members: alloc::vec![Member::default(); n],
            order,
            effect: false,
        }
    }

    pub(super) fn key(&self) -> &KeyId {
        match &self.op {
            Op::Get { key, .. }
            | Op::Put { key, .. }
            | Op::Entry { key, .. }
            | Op::Synch { key, .. }
            | Op::Read { key }
            | Op::Write { key, .. }
            | Op::EventualGet { key }
            | Op::EventualPut { key, .. }
            | Op::Inspect { key } => key,
        }
    }

    /// When something is to be done although nothing arrives.
    pub(super) fn wake(&self, cx: &Cx<'_>) -> Micros {
        let patience = self.began + cx.timing.retry;
        let refused = self.members.iter().any(|m| m.refusal.is_some() || m.past);
        let patience = (refused && patience > cx.now.monotonic).then_some(patience);
        let due = match self.phase {
            Phase::One { turn } => match self.seat_of_turn(turn) {
                at if self.is_patient(at, cx) => self.deadline,
                at => self.members[at].due,
            },
            _ => {
                let open = self.members.iter().filter(|m| !m.settled());
                open.map(|m| m.due).min().unwrap_or(Micros::MAX)
            }
        };
        due.min(self.deadline).min(patience.unwrap_or(Micros::MAX))
    }

    fn seat_of_turn(&self, turn: usize) -> usize {
        usize::from(self.order[turn % self.order.len()].0)
    }

    /// Whether the member at `seat` may be asked, or passed over, once it was asked and is silent.
    fn is_patient(&self, seat: usize, cx: &Cx<'_>) -> bool {
        let once = matches!(self.op, Op::EventualPut { .. });
        let silent = self.members[seat].asks > 0 && self.members[seat].refusal.is_none();
        once && silent && !cx.planted.has(Bug::EventualPutRepeated)
    }

    /// Seats that are to be asked now, each with what it is asked.
    pub(super) fn due(&mut self, names: &mut Names, cx: &Cx<'_>) -> Vec<(Seat, Ask)> {
        let now = cx.now.monotonic;
        let mut seats = Vec::new();
        if let Phase::One { turn } = self.phase {
            let at = self.seat_of_turn(turn);
            if self.members[at].asks > 0 && self.members[at].due <= now && !self.is_patient(at, cx)
            {
                // Silent, or it has refused: the next one. The last ask may still arrive there.
                self.phase = Phase::One { turn: turn + 1 };
                let next = self.seat_of_turn(turn + 1);
                self.members[next].due = now;
                seats.push(Seat(next as u8));
            } else if self.members[at].asks == 0 && self.members[at].due <= now {
                seats.push(Seat(at as u8));
            }
        } else {
            for seat in &self.order {
                let member = &self.members[usize::from(seat.0)];
                if !member.settled() && member.due <= now {
                    seats.push(*seat);
                }
            }
        }
        for seat in &seats {
            let member = &mut self.members[usize::from(seat.0)];
            member.asks += 1;
            member.due = now + cx.timing.retry;
        }
        let asks: Vec<(Seat, Ask)> = seats
            .iter()
            .map(|seat| (*seat, self.ask(*seat, names, cx)))
            .collect();
        self.effect |= asks
            .iter()
            .any(|(_, ask)| matches!(ask, Ask::Store { .. } | Ask::EventualPut { .. }));
        asks
    }

    fn ask(&self, seat: Seat, names: &mut Names, cx: &Cx<'_>) -> Ask {
        if let Phase::Store {
            tag, origin, value, ..
        } = &self.phase
        {
            return Ask::Store {
                tag: *tag,
                origin: *origin,
                content: policy::encode(self.place.storage, seat, value.as_ref()),
            };
        }
        let read = |holder, entering, fence, eventual, values| Ask::Read {
            holder,
            entering,
            fence,
            eventual,
            values,
        };
        match &self.op {
            Op::Get { holder, .. } => read(Some(*holder), false, None, false, true),
            Op::Entry { holder, .. } => read(*holder, true, None, true, true),
            Op::Synch { tag, .. } => {
                let fence = (!cx.planted.has(Bug::SynchWithoutFence)).then_some(*tag);
                read(None, true, fence, true, true)
            }
            Op::Read { .. } => read(None, false, None, false, true),
            // A put has no round of reading: see `new`.
            Op::Write { .. } | Op::Put { .. } => read(None, false, None, false, false),
            Op::EventualGet { .. } => Ask::EventualGet,
            // Never coded: an eventual value is durable at one replica.
            Op::EventualPut { value, .. } => Ask::EventualPut {
                name: names.next(
                    self.place.view.node_at(seat).expect("a seat of the view"),
                    cx.now.wall,
                ),
                content: policy::encode(StoragePolicy::Replicated, seat, value.as_ref()),
            },
            Op::Inspect { .. } => Ask::Inspect,
        }
    }

    /// Takes an answer of the present call.
    pub(super) fn on_answer(&mut self, seat: Seat, answer: Answer, cx: &Cx<'_>) -> Next {
        if cx.now.monotonic >= self.deadline {
            return Next::Done(self.out_of_time());
        }
        if let Answer::Sealed { next } | Answer::Moved { next } = answer {
            // The epoch is over: nothing more of it is counted.
            self.members[usize::from(seat.0)].refusal = Some(answer);
            return Next::Done(Outcome::Moved {
                next: Some(next),
                may_have_taken_effect: self.may_have_despite_refusals(),
            });
        }
        if let Phase::One { .. } = self.phase {
            return self.on_single_answer(seat, answer, cx);
        }
        let answer = if is_sound(&answer) {
            answer
        } else {
            Answer::Void
        };
        let storing = matches!(self.phase, Phase::Store { .. });
        let member = &mut self.members[usize::from(seat.0)];
        if member.settled() {
            return Next::Wait;
        }
        let soon = cx.now.monotonic + cx.timing.beat.min(cx.timing.retry);
        match answer {
            Answer::Cells { .. } if !storing => member.good = Some(answer),
            // Another attempt's value under a synch's own tag: this one must not grant.
            Answer::Outranked { tag } if self.op.is_synch_of(tag) => {
                return self.on_past(seat, tag, soon, cx);
            }
            Answer::Past { tag } => return self.on_past(seat, tag, soon, cx),
            Answer::Stored | Answer::Outranked { .. } if storing => member.good = Some(answer),
            // The replica may apply what it lacks any moment; a beat carries it.
            Answer::NotHolder | Answer::Elsewhere | Answer::DiskFull => {
                member.refusal = Some(answer);
                member.due = soon;
            }
            Answer::Void => member.refusal = Some(answer),
            // Not an answer to what was asked.
            _ => return Next::Wait,
        }
        self.judge(cx)
    }

    fn on_past(&mut self, seat: Seat, tag: Tag, soon: Micros, cx: &Cx<'_>) -> Next {
        match (&self.op, &self.phase) {
            (Op::Get { holder, .. }, Phase::Store { .. }) if Holder::of(tag) == *holder => {
                // Not this holder is past, but the value it was about to write back: a later
                // attempt of its own synch has fenced it. Read again what that one makes of it.
                self.enter(Phase::Collect, soon);
                return Next::Phase;
            }
            (Op::Put { .. }, _) => {}
            _ => {
                return Next::Done(Outcome::Past {
                    may_have_taken_effect: self.may_have(),
                });
            }
        }
        self.members[usize::from(seat.0)].past = true;
        self.judge(cx)
    }

    fn on_single_answer(&mut self, seat: Seat, answer: Answer, cx: &Cx<'_>) -> Next {
        let put = matches!(self.op, Op::EventualPut { .. });
        let get = matches!(self.op, Op::EventualGet { .. });
        match answer {
            Answer::EventualValue { content } if get && policy::is_sound(&content) => {
                let value = policy::decode(&[&content]).unwrap_or_default();
                Next::Done(Outcome::Value {
                    value,
                    tag: Tag::ZERO,
                })
            }
            Answer::EventualStored { tag } if put => Next::Done(Outcome::EventualStored { tag }),
            // Whoever was asked before has refused it for good.
            Answer::Locked if put => Next::Done(Outcome::Locked),
            Answer::Late { .. } if put => Next::Done(Outcome::Unavailable {
                may_have_taken_effect: true,
            }),
            Answer::Inspection(inspection) if matches!(self.op, Op::Inspect { .. }) => {
                Next::Done(Outcome::Inspection(inspection))
            }
            Answer::Void | Answer::Elsewhere | Answer::DiskFull => {
                self.members[usize::from(seat.0)].refusal = Some(answer);
                let refused = self.members.iter().filter(|m| m.refusal.is_some()).count();
                if refused == self.members.len() {
                    return Next::Done(self.refused());
                }
                // Whichever was asked last is passed over at once if it was this one.
                if let Phase::One { turn } = self.phase
                    && self.seat_of_turn(turn) == usize::from(seat.0)
                {
                    self.members[usize::from(seat.0)].due = cx.now.monotonic;
                    return Next::Phase;
                }
                Next::Wait
            }
            _ => Next::Wait,
        }
    }

    fn quorum_size(&self, cx: &Cx<'_>) -> usize {
        let q = quorum(self.place.storage, &self.place.view).size;
        if cx.planted.has(Bug::RegisterQuorumTooSmall) {
            (q - 1).max(1)
        } else {
            q
        }
    }

    /// What the answers so far amount to.
    pub(super) fn judge(&mut self, cx: &Cx<'_>) -> Next {
        if cx.now.monotonic >= self.deadline {
            return Next::Done(self.out_of_time());
        }
        if matches!(self.phase, Phase::One { .. }) {
            return Next::Wait;
        }
        let q = self.quorum_size(cx);
        let good = self.members.iter().filter(|m| m.good.is_some()).count();
        let past = self.members.iter().any(|m| m.past);
        if good >= q && !past {
            return match self.phase {
                Phase::Collect => self.collected(cx),
                _ => Next::Done(self.stored()),
            };
        }
        let patient = cx.now.monotonic < self.began + cx.timing.retry;
        if past {
            // Already lost; the rest is heard for a moment, only to say whether it may have been
            // stored.
            let all = self.members.iter().all(Member::settled);
            return if all || !patient {
                Next::Done(self.past())
            } else {
                Next::Wait
            };
        }
        let refusing = self.members.iter().filter(|m| m.refusal.is_some());
        let firmly = refusing.filter(|m| !matches!(m.refusal, Some(Answer::Void)));
        if firmly.count() > self.members.len() - q && !patient {
            return Next::Done(self.refused());
        }
        Next::Wait
    }

    /// q replicas have answered a read.
    fn collected(&mut self, cx: &Cx<'_>) -> Next {
        let cells = Cells::of(&self.members);
        let Ok(value) = cells.value() else {
            return Next::Wait;
        };
        match &self.op {
            Op::Entry { .. } => Next::Done(Outcome::Entry {
                value,
                tag: cells.tag,
                eventual: cells.newer_eventual(),
            }),
            Op::Synch { tag, adopts, .. } => {
                let (latest, origin) = match cells.newer_eventual().filter(|_| *adopts) {
                    Some((_, eventual)) => (eventual, tag.lock_ref),
                    None => (value, cells.origin),
                };
                let phase = Phase::Store {
                    tag: *tag,
                    origin,
                    value: latest.clone(),
                    then: Box::new(Outcome::Synched {
                        value: latest,
                        tag: *tag,
                    }),
                };
                self.enter(phase, cx.now.monotonic);
                Next::Phase
            }
            Op::Write { writer, value, .. } => {
                let tag = cells.tag_for(*writer);
                let phase = Phase::Store {
                    tag,
                    origin: LockRef(0),
                    value: value.clone(),
                    then: Box::new(Outcome::Stored { tag }),
                };
                self.enter(phase, cx.now.monotonic);
                Next::Phase
            }
            Op::Get { .. } | Op::Read { .. } => {
                let then = Outcome::Value {
                    value: value.clone(),
                    tag: cells.tag,
                };
                let owned = match &self.op {
                    Op::Get { holder, .. } => Holder::of(cells.tag) == *holder,
                    _ => true,
                };
                let skip = cells.agree || !owned || cx.planted.has(Bug::ReadWithoutWriteBack);
                if skip {
                    return Next::Done(then);
                }
                let at = (cells.tag, cells.origin);
                self.write_back(at, value, then, cx.now.monotonic);
                Next::Phase
            }
            _ => unreachable!("only reads collect"),
        }
    }

    /// Stores what was read at those that do not have it yet.
    fn write_back(
        &mut self,
        (tag, origin): (Tag, LockRef),
        value: Option<Bytes>,
        then: Outcome,
        now: Micros,
    ) {
        let has = |member: &Member| match &member.good {
            Some(Answer::Cells { tag: known, .. }) => *known == tag,
            _ => false,
        };
        let holds: Vec<bool> = self.members.iter().map(has).collect();
        self.enter(
            Phase::Store {
                tag,
                origin,
                value,
                then: Box::new(then),
            },
            now,
        );
        for (member, holds) in self.members.iter_mut().zip(holds) {
            member.good = holds.then_some(Answer::Stored);
        }
    }

    fn enter(&mut self, phase: Phase, due: Micros) {
        self.phase = phase;
        for member in &mut self.members {
            *member = Member {
                due,
                ..Member::default()
            };
        }
    }

    /// q replicas have the tag, or a higher one of its section.
    fn stored(&self) -> Outcome {
        let Phase::Store { tag, then, .. } = &self.phase else {
            unreachable!("only after a store");
        };
        let good = self.members.iter().filter_map(|m| m.good.as_ref());
        if let Op::Put { counter_above, .. } = &self.op {
            let mut clash = false;
            let mut all = true;
            for answer in good {
                match answer {
                    Answer::Outranked { tag: known } => clash |= known == tag,
                    _ => all = false,
                }
            }
            if clash || (all && !counter_above) {
                return Outcome::StaleSequence;
            }
        }
        (**then).clone()
    }

    /// Whether anything of this operation may be stored somewhere, now or later.
    fn may_have(&self) -> bool {
        let changes = matches!(
            self.op,
            Op::Put { .. } | Op::Write { .. } | Op::Synch { .. } | Op::EventualPut { .. }
        );
        changes && self.effect
    }

    /// As `may_have`, but false once every member that was asked has refused the only transmission
    /// to it: a refusal of a second one says nothing of the first, whose answer may be lost.
    fn may_have_despite_refusals(&self) -> bool {
        let refused = |m: &Member| m.asks == 1 && (m.past || m.refusal.is_some());
        let unasked = |m: &Member| m.asks == 0 && m.good.is_none();
        self.may_have() && !self.members.iter().all(|m| refused(m) || unasked(m))
    }

    fn past(&self) -> Outcome {
        Outcome::Past {
            may_have_taken_effect: self.may_have_despite_refusals(),
        }
    }

    /// More than n − q refuse, and not for damage: the commonest reason, the gravest on a tie.
    fn refused(&self) -> Outcome {
        let count = |wanted: fn(&Answer) -> bool| {
            let refusals = self.members.iter().filter_map(|m| m.refusal.as_ref());
            refusals.filter(|a| wanted(a)).count()
        };
        let elsewhere = count(|a| matches!(a, Answer::Elsewhere));
        let full = count(|a| matches!(a, Answer::DiskFull));
        let waiting = count(|a| matches!(a, Answer::NotHolder));
        let may_have_taken_effect = self.may_have_despite_refusals();
        let most = elsewhere.max(full).max(waiting);
        if most == 0 {
            Outcome::Unavailable {
                may_have_taken_effect,
            }
        } else if most == elsewhere {
            Outcome::Moved {
                next: None,
                may_have_taken_effect,
            }
        } else if most == full {
            Outcome::DiskFull {
                may_have_taken_effect,
            }
        } else {
            Outcome::NotHolder {
                may_have_taken_effect,
            }
        }
    }

    fn out_of_time(&self) -> Outcome {
        if self.members.iter().any(|m| m.past) {
            return self.past();
        }
        Outcome::Unavailable {
            may_have_taken_effect: self.may_have_despite_refusals(),
        }
    }
}

/// The answers of a read, together.
struct Cells<'a> {
    tag: Tag,
    /// The section that gave the value of the highest tag.
    origin: LockRef,
    contents: Vec<&'a Content>,
    agree: bool,
    all: Vec<Tag>,
    eventual: Option<&'a (EventualTag, Content)>,
}

impl<'a> Cells<'a> {
    fn of(members: &'a [Member]) -> Cells<'a> {
        let (mut all, mut contents, mut eventual) = (Vec::new(), Vec::new(), None);
        let mut highest_at = (Tag::ZERO, LockRef(0));
        for member in members {
            if let Some(Answer::Cells {
                tag,
                origin,
                content,
                eventual: e,
                ..
            }) = &member.good
            {
                highest_at = highest_at.max((*tag, *origin));
                all.push(*tag);
                contents.push(content);
                eventual = eventual.into_iter().chain(e).max_by_key(|(tag, _)| *tag);
            }
        }
        let tag = all.iter().copied().max().unwrap_or_default();
        let highest = contents.into_iter().zip(&all).filter(|(_, t)| **t == tag);
        Cells {
            tag,
            origin: highest_at.1,
            contents: highest.map(|(content, _)| content).collect(),
            agree: all.iter().all(|t| *t == tag),
            all,
            eventual,
        }
    }

    fn value(&self) -> Result<Option<Bytes>, policy::Undecodable> {
        policy::decode(&self.contents)
    }

    /// The eventual value, where it is newer than every section seen (F6).
    fn newer_eventual(&self) -> Option<(EventualTag, Option<Bytes>)> {
        let (tag, content) = self.eventual?;
        let newer = tag.applied >= self.origin.0;
        newer.then(|| (*tag, policy::decode(&[content]).unwrap_or_default()))
    }

    /// The tag of a register write: the one that an earlier try of this writer has left, else one
    /// above all that were seen.
    fn tag_for(&self, writer: u128) -> Tag {
        let own = self
            .all
            .iter()
            .copied()
            .filter(|t| t.writer == writer && *t > Tag::ZERO)
            .max();
        own.unwrap_or(Tag {
            lock_ref: LockRef(0),
            sequence: self.tag.sequence + 1,
            writer,
        })
    }
}

/// Whether the contents of an answer are what they say.
fn is_sound(answer: &Answer) -> bool {
    match answer {
        Answer::Cells {
            content, eventual, ..
        } => {
            policy::is_sound(content) && eventual.as_ref().is_none_or(|(_, e)| policy::is_sound(e))
        }
        _ => true,
    }
}
