//! One operation under way: which answers it has, what it asks next, when it is done. No sending
//! here: [`super::Caller`] sends what this asks for.

mod crossing;
mod ends;
mod sources;
mod tags;

use self::sources::Source;
use self::tags::one_round_tag;
use super::message::{Answer, Ask, Coding, Content, Holder, Moved, StoreId, Version};
use super::once::Names;
use super::op::{Op, OpEnd, Place};
use super::reading::Cells;
use super::{is_physical, policy};
use crate::base::{Bug, EventualTag, KeyId, Micros, NodeName, Planted, Seat, Tag};
use crate::io::Env;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

/// How many times `timing.retry` an operation waits in a crowd of unfinished writes before it says
/// so, or sweeps, which ends with all of them.
const CROWD: Micros = 4;

/// What is asked in the present phase.
#[derive(Clone, Debug)]
enum Phase {
    /// Cells of q members.
    Collect,
    /// A sweep's first round: tags of q members.
    Tags,
    /// A sweep's second round: cells of q members, fenced by its tag.
    Fenced { tag: Tag },
    /// A store at q members, by seat, after which the outcome is `then`.
    Store {
        tag: Tag,
        origin: EventualTag,
        parts: Vec<Content>,
        then: Box<OpEnd>,
        into: Into,
    },
    /// Everything is stored; the outcome is `then` once the tag, a time, has certainly passed (F9:
    /// no later write may get a lower one).
    Passing { tag: Tag, then: Box<OpEnd> },
    /// One member after the other, by place in the order. A put goes on only from one that has
    /// refused it for good (G16: it acts at most once).
    One { turn: usize },
}

/// What a store at q members is, to a key that may not have moved from an earlier epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Into {
    /// A write as any other. That of a holder or of a register does not move the key.
    Write,
    /// A synch or sweep, which leaves nothing of what was before: the key has moved with it.
    Move,
    /// What earlier epochs hold, with the highest fence there.
    Carry(Tag),
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
    Done(OpEnd),
}

#[derive(Clone, Debug)]
pub(super) struct Running {
    op: Op,
    pub(super) place: Place,
    pub(super) call: u64,
    began: Micros,
    deadline: Micros,
    phase: Phase,
    members: Vec<Member>,
    /// What the sources have answered, in this phase or before.
    sources: Vec<Source>,
    /// They were asked for values, not for tags alone.
    valued: bool,
    /// Seats in the order of asking.
    order: Vec<Seat>,
    /// When the present phase began.
    phase_began: Micros,
    /// Times below this have passed, as clocks of members say.
    passed: u64,
    /// Something that changes the key may have left this node.
    effect: bool,
    /// Answers of q members gave no value that may be returned.
    stuck: bool,
    /// The members are told when the operation's tag is final.
    tells: bool,
    /// A tag that q members hold as of now: they are told so.
    settles: Option<Tag>,
    /// The tag up to which the key has moved here by this operation: the members are told so.
    moved: Option<Tag>,
    /// The tag below which q members have promised to store nothing.
    swept: Option<Tag>,
    /// The tag whose store a sweep carries on, in place of a tag of its own.
    resumes: Option<Tag>,
    /// This sweep takes a tag of its own: the one to be carried on was found to be incomplete.
    anew: bool,
    /// What the sources have promised was heard before the present phase.
    looked: bool,
    /// The tag under which this write is at q members already. It still has to come before
    /// everything that begins later, for which it sweeps where no clock tells.
    written: Option<Tag>,
}

impl Running {
    pub(super) fn new(
        op: Op,
        place: Place,
        own: Option<Seat>,
        deadline: Micros,
        env: &Env<'_>,
    ) -> Self {
        let n = place.view.len();
        let mut order: Vec<Seat> = Vec::with_capacity(n);
        let all = (0..n as u8).map(Seat);
        let nearest = place.order.iter().copied().chain(all);
        for seat in own.into_iter().chain(nearest) {
            if usize::from(seat.0) < n && !order.contains(&seat) {
                order.push(seat);
            }
        }
        let phase = first(&op, &place, order[0], env);
        let sources = Source::of(&op, &place, env);
        // I5: a replica with a damaged record relies on this bound.
        let bound = env.now.monotonic.saturating_add(env.timing.request);
        let mut running = Running {
            op,
            place,
            call: 0,
            began: env.now.monotonic,
            deadline: deadline.min(bound),
            phase,
            members: alloc::vec![Member::default(); n],
            sources,
            valued: false,
            order,
            phase_began: env.now.monotonic,
            passed: 0,
            effect: false,
            stuck: false,
            tells: false,
            settles: None,
            moved: None,
            swept: None,
            resumes: None,
            anew: false,
            looked: false,
            written: None,
        };
        running.renew_sources(env.now.monotonic);
        running
    }

    pub(super) fn key(&self) -> &KeyId {
        self.op.key()
    }

    /// The tag that all members may be told to be final, if the operation has made one so.
    pub(super) fn take_settled(&mut self) -> Option<Tag> {
        let tag = self.settles.take()?;
        self.place.storage.finalizes().then_some(tag)
    }

    /// The tag that all members may be told to have moved here, if the operation has moved the key.
    pub(super) fn take_moved(&mut self) -> Option<Tag> {
        self.moved.take()
    }

    /// When something is to be done although nothing arrives.
    pub(super) fn wake(&self, env: &Env<'_>) -> Micros {
        let turns = [1, CROWD].map(|times| self.began + times * env.timing.retry);
        let refused = self.members.iter().any(|m| m.refusal.is_some() || m.past);
        let patience = turns
            .into_iter()
            .find(|at| refused && *at > env.now.monotonic);
        let due = match self.phase {
            Phase::Passing { tag, .. } => passes_at(tag, env),
            Phase::One { turn } => match self.seat_of_turn(turn) {
                at if self.is_patient(at, env) => self.deadline,
                at => self.members[at].due,
            },
            _ => {
                let sources = self.sources.iter().filter(|_| self.asks_sources());
                let members = self.members.iter().chain(sources.flat_map(|s| &s.members));
                let open = members.filter(|m| !m.settled());
                open.map(|m| m.due).min().unwrap_or(Micros::MAX)
            }
        };
        due.min(self.deadline).min(patience.unwrap_or(Micros::MAX))
    }

    fn seat_of_turn(&self, turn: usize) -> usize {
        usize::from(self.order[turn % self.order.len()].0)
    }

    /// Whether the member at `seat` may be asked, or passed over, once it was asked and is silent.
    fn is_patient(&self, seat: usize, env: &Env<'_>) -> bool {
        let once = matches!(self.op, Op::EventualPut { .. });
        let silent = self.members[seat].asks > 0 && self.members[seat].refusal.is_none();
        once && silent && !env.planted.has(Bug::EventualPutRepeated)
    }

    /// Who is to be asked now, about which store, and what.
    pub(super) fn due(
        &mut self,
        names: &mut Names,
        env: &Env<'_>,
    ) -> Vec<(NodeName, StoreId, Ask)> {
        let now = env.now.monotonic;
        self.look_anew(env);
        let mut seats = Vec::new();
        if let Phase::One { turn } = self.phase {
            let at = self.seat_of_turn(turn);
            if self.members[at].asks > 0 && self.members[at].due <= now && !self.is_patient(at, env)
            {
                // Silent, or it has refused: the next one. The last ask may still arrive there.
                let mut turns = turn + 1..turn + self.order.len();
                let open = |t: &usize| self.members[self.seat_of_turn(*t)].refusal.is_none();
                let turn = turns.find(open).unwrap_or(turn + 1);
                self.phase = Phase::One { turn };
                let next = self.seat_of_turn(turn);
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
            member.due = now + env.timing.retry;
        }
        let mut asks = Vec::with_capacity(seats.len());
        for seat in seats {
            let ask = self.ask(seat, names, env);
            self.effect |= matches!(ask, Ask::Store { .. } | Ask::EventualPut { .. });
            asks.push((self.node_at(seat), self.place.store, ask));
        }
        if self.asks_sources() {
            self.ask_sources(&mut asks, env);
        }
        asks
    }

    fn node_at(&self, seat: Seat) -> NodeName {
        let node = self.place.view.node_at(seat);
        node.expect("a seat of the view")
    }

    fn ask(&self, seat: Seat, names: &mut Names, env: &Env<'_>) -> Ask {
        if let Phase::Store {
            tag,
            origin,
            parts,
            into,
            ..
        } = &self.phase
        {
            let (tag, origin) = (*tag, *origin);
            let content = parts[usize::from(seat.0)].clone();
            return match *into {
                Into::Carry(fence) => Ask::Carry {
                    tag,
                    origin,
                    fence: match env.planted.has(Bug::FenceLeftBehind) {
                        true => Tag::ZERO,
                        false => fence,
                    },
                    content,
                },
                Into::Write | Into::Move => Ask::Store {
                    tag,
                    origin,
                    content,
                },
            };
        }
        let read = |holder, entering, fence, eventual, values| Ask::Read {
            holder,
            entering,
            fence,
            eventual,
            values,
        };
        match self.phase {
            Phase::Tags => return read(None, false, None, false, false),
            Phase::Fenced { tag } => {
                let fence = (!env.planted.has(Bug::SweepWithoutFence)).then_some(tag);
                return read(None, true, fence, false, true);
            }
            _ => {}
        }
        match &self.op {
            Op::Sweep { .. } => unreachable!("its phases ask"),
            Op::EventualGet { .. } if matches!(self.phase, Phase::Collect) => {
                read(None, false, None, true, true)
            }
            Op::Get { holder, .. } => read(Some(*holder), false, None, false, true),
            Op::Entry { holder, .. } => read(*holder, true, None, true, true),
            Op::Synch { tag, .. } => {
                let fence = (!env.planted.has(Bug::SynchWithoutFence)).then_some(*tag);
                read(None, true, fence, true, true)
            }
            Op::Read { .. } => read(None, false, None, false, true),
            // A put has no round of reading: see `new`.
            Op::Write { .. } | Op::Cross { .. } | Op::Put { .. } => {
                read(None, false, None, false, false)
            }
            Op::EventualGet { .. } => Ask::EventualGet,
            // Never coded: an eventual value is durable at one replica.
            Op::EventualPut { key, value } => Ask::EventualPut {
                name: names.next(self.node_at(seat), env.now.wall),
                content: match value {
                    None => Content::Tombstone,
                    Some(value) => {
                        let copy = policy::whole_copy(key, Tag::ZERO, value);
                        policy::reseated(key, Tag::ZERO, &copy, seat)
                    }
                },
            },
            Op::Inspect { .. } => Ask::Inspect,
        }
    }

    /// Takes an answer of the present call.
    pub(super) fn on_answer(&mut self, seat: Seat, answer: Answer, env: &Env<'_>) -> Next {
        if env.now.monotonic >= self.deadline {
            return Next::Done(self.out_of_time());
        }
        let reads = matches!(
            (&self.op, &self.phase),
            (Op::Read { .. }, Phase::Store { .. })
        );
        if let Answer::Sealed { next } | Answer::Moved { next } = answer
            && !(reads && env.planted.has(Bug::ReadCrosses))
        {
            // The epoch is over: nothing more of it is counted.
            self.members[usize::from(seat.0)].refusal = Some(answer);
            return Next::Done(OpEnd::Moved {
                next: Some(next),
                under: self.under(env),
                may_have_taken_effect: self.may_have_despite_refusals(),
            });
        }
        if let Phase::One { .. } = self.phase {
            return self.on_single_answer(seat, answer, env);
        }
        let answer = if is_sound(&answer, self.key()) || env.planted.has(Bug::ChecksumIgnored) {
            answer
        } else {
            Answer::Void
        };
        if let Answer::Cells { passed, moved, .. } = &answer {
            self.passed = self.passed.max(*passed);
            if let Some(next) = self.without_closed(moved, env) {
                return next;
            }
        }
        let storing = matches!(self.phase, Phase::Store { .. });
        let clash = matches!(answer, Answer::Outranked { tag } if self.is_clash(tag));
        let member = &mut self.members[usize::from(seat.0)];
        if member.settled() {
            return Next::Wait;
        }
        let soon = env.now.monotonic + env.timing.beat.min(env.timing.retry);
        match answer {
            Answer::Sealed { .. } => member.good = Some(Answer::Stored),
            Answer::Cells { .. } if !storing => member.good = Some(answer),
            // Another attempt's value under a synch's own tag: this one must not grant.
            Answer::Outranked { tag } if self.op.is_synch_of(tag) => {
                return self.on_past(seat, tag, soon, env);
            }
            Answer::Past { tag } => return self.on_past(seat, tag, soon, env),
            // Another value under this very tag, which only a writer that uses a name twice makes:
            // nothing was stored. A put says so itself, once q members have.
            Answer::Outranked { .. } if clash => {
                member.refusal = Some(answer);
                member.due = soon;
            }
            Answer::Stored | Answer::Outranked { .. } if storing => member.good = Some(answer),
            Answer::Closed if storing => {
                return self.without_closed(&Moved::All, env).unwrap_or(Next::Wait);
            }
            // The replica may apply what it lacks any moment; a beat carries it.
            Answer::NotHolder
            | Answer::Elsewhere
            | Answer::DiskFull
            | Answer::ClockSkew
            | Answer::Busy => {
                member.refusal = Some(answer);
                member.due = soon;
            }
            Answer::Void => member.refusal = Some(answer),
            // Not an answer to what was asked.
            _ => return Next::Wait,
        }
        self.judge(env)
    }

    fn is_clash(&self, known: Tag) -> bool {
        let put = matches!(self.op, Op::Put { .. });
        !put && matches!(self.phase, Phase::Store { tag, .. } if tag == known)
    }

    fn on_past(&mut self, seat: Seat, tag: Tag, soon: Micros, env: &Env<'_>) -> Next {
        match (&self.op, &self.phase) {
            (Op::Get { holder, .. }, Phase::Store { .. }) if Holder::of(tag) == *holder => {
                // Not this holder is past, but the value it was about to write back: a later
                // attempt of its own synch has fenced it. Read again what that one makes of it.
                self.enter(Phase::Collect, soon);
                return Next::Phase;
            }
            (Op::Put { .. }, _) => {}
            // A section's synch is under way, or has died: what moves a key of sections leaves it
            // to that one, and counts the others.
            (Op::Read { .. }, _) if tag.lock_ref.0 > 0 || self.stores_of_section() => {
                let member = &mut self.members[usize::from(seat.0)];
                member.refusal = Some(Answer::Past { tag });
                member.due = soon;
                return self.judge(env);
            }
            // A sweep has fenced what this reader was about to complete. The sweeper may have
            // died: the reader sweeps itself, and returns what that finds (F8g). So does a sweep
            // that has met another.
            (Op::Read { .. } | Op::Sweep { .. }, Phase::Store { .. } | Phase::Fenced { .. }) => {
                self.enter(Phase::Tags, soon);
                return Next::Phase;
            }
            (Op::Write { .. } | Op::Cross { .. }, Phase::Store { .. } | Phase::Fenced { .. })
                if self.written.is_some() =>
            {
                self.enter(Phase::Tags, soon);
                return Next::Phase;
            }
            // Nothing of this write is stored yet: it takes a higher tag.
            (Op::Write { .. }, Phase::Fenced { .. }) => {
                self.enter(Phase::Collect, soon);
                return Next::Phase;
            }
            _ => {
                return Next::Done(OpEnd::Past {
                    may_have_taken_effect: self.may_have(),
                });
            }
        }
        self.members[usize::from(seat.0)].past = true;
        self.judge(env)
    }

    fn on_single_answer(&mut self, seat: Seat, answer: Answer, env: &Env<'_>) -> Next {
        let put = matches!(self.op, Op::EventualPut { .. });
        let get = matches!(self.op, Op::EventualGet { .. });
        match answer {
            Answer::EventualValue { content } if get && self.is_sound_here(&content) => {
                match policy::decode(&[&content]) {
                    Ok(value) => Next::Done(OpEnd::Value {
                        value,
                        tag: Tag::ZERO,
                    }),
                    // A part of a code, which gives nothing alone: enough others are asked.
                    Err(policy::Undecodable) => {
                        self.enter(Phase::Collect, env.now.monotonic);
                        Next::Phase
                    }
                }
            }
            Answer::EventualStored { tag } if put => Next::Done(OpEnd::EventualStored { tag }),
            // Whoever was asked before has refused it for good.
            Answer::Locked if put => Next::Done(OpEnd::Locked),
            Answer::Late { .. } if put => Next::Done(OpEnd::Unavailable {
                may_have_taken_effect: true,
            }),
            Answer::Inspection(inspection) if matches!(self.op, Op::Inspect { .. }) => {
                Next::Done(OpEnd::Inspection(inspection))
            }
            Answer::Void | Answer::Elsewhere | Answer::DiskFull | Answer::Unmoved => {
                if answer == Answer::Unmoved {
                    self.pass_over_strangers();
                }
                self.members[usize::from(seat.0)].refusal = Some(answer);
                let refused = self.members.iter().filter(|m| m.refusal.is_some()).count();
                let unmoved = |m: &Member| m.refusal == Some(Answer::Unmoved);
                let open = |m: &Member| m.refusal.is_none() && m.asks == 0;
                if !self.members.iter().any(open) && self.members.iter().any(unmoved) {
                    // Whoever is here was not there, or is silent: the sources are asked.
                    self.enter(Phase::Collect, env.now.monotonic);
                    return Next::Phase;
                }
                if refused == self.members.len() {
                    return Next::Done(self.refused(env));
                }
                // Whichever was asked last is passed over at once if it was this one.
                if let Phase::One { turn } = self.phase
                    && self.seat_of_turn(turn) == usize::from(seat.0)
                {
                    self.members[usize::from(seat.0)].due = env.now.monotonic;
                    return Next::Phase;
                }
                Next::Wait
            }
            _ => Next::Wait,
        }
    }

    fn quorum_size(&self, env: &Env<'_>) -> usize {
        let q = self.place.shape().quorum;
        if env.planted.has(Bug::CodedQuorumMajority) {
            return self.members.len() / 2 + 1;
        }
        if env.planted.has(Bug::RegisterQuorumTooSmall) {
            (q - 1).max(1)
        } else {
            q
        }
    }

    /// Whether a member has a value whole, and not a part of it.
    fn is_whole(&self, env: &Env<'_>) -> bool {
        self.place.shape().parts == 1 || env.planted.has(Bug::OnePartTells)
    }

    /// What the answers so far amount to.
    pub(super) fn judge(&mut self, env: &Env<'_>) -> Next {
        if env.now.monotonic >= self.deadline {
            return Next::Done(self.out_of_time());
        }
        match self.phase {
            Phase::One { .. } => return Next::Wait,
            Phase::Passing { tag, .. } => return self.passing(tag, env),
            _ => {}
        }
        let q = match self.op {
            // Any member tells what is here, as of a key that is nowhere else. A part tells
            // nothing.
            Op::EventualGet { .. } if !self.sources.is_empty() && self.is_whole(env) => 1,
            _ => self.quorum_size(env),
        };
        let good = self.members.iter().filter(|m| m.good.is_some()).count();
        let past = self.members.iter().any(|m| m.past);
        if good >= q && !past && (!self.asks_sources() || self.is_through(env)) {
            return match self.phase {
                Phase::Store { tag, .. } if self.crosses_in_vain(tag, env.planted) => {
                    Next::Done(self.crossed_in_vain())
                }
                Phase::Store { tag, into, .. } => {
                    let moves = into != Into::Write || env.planted.has(Bug::WriteMarks);
                    self.moved = moves.then_some(tag);
                    let then = self.stored();
                    // Not where another value is at a member under this very tag.
                    let tells = !matches!(then, OpEnd::StaleSequence);
                    self.once_passed(tag, then, tells, env)
                }
                _ => self.collected(env),
            };
        }
        let patient = env.now.monotonic < self.began + env.timing.retry;
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
        let blocked = firmly.count() > self.members.len() - q;
        // A living writer before this one in the crowd ends within a few beats, a dead one never.
        let crowded = self.has_no_room();
        let turn = self.began + CROWD * env.timing.retry;
        match self.op {
            _ if patient || !(blocked || crowded) => Next::Wait,
            _ if crowded && env.now.monotonic < turn => Next::Wait,
            Op::Read { .. } if crowded => {
                self.enter(Phase::Tags, env.now.monotonic);
                Next::Phase
            }
            _ => Next::Done(self.refused(env)),
        }
    }

    /// What the answers lead to without their values, if they do.
    fn by_tags(&mut self, env: &Env<'_>) -> Option<Next> {
        let tag = self.tag_to_write(env)?;
        Some(match self.crosses_in_vain(tag, env.planted) {
            true => Next::Done(self.crossed_in_vain()),
            false => self.write_under(tag, env),
        })
    }

    /// Whether this moves a key, while there is something to move from: it carries also what has
    /// moved before, since a section's value is refused as a write once the section is past.
    fn moves_between(&self, planted: Planted) -> bool {
        let moves = matches!(self.op, Op::Read { moves: true, .. });
        moves && !self.place.sources.is_empty() && !planted.has(Bug::MovedIsWritten)
    }

    /// q replicas have answered a read.
    fn collected(&mut self, env: &Env<'_>) -> Next {
        let now = env.now.monotonic;
        if let Some(next) = self.by_tags(env) {
            return next;
        }
        let present = self.present();
        let sources = self.heard();
        let Some(cells) = Cells::of(&present, &sources, env.planted) else {
            return self.undecodable(env);
        };
        if self.is_below(cells.tag, env.planted) {
            return self.outdone(env);
        }
        let at = (cells.tag, cells.origin);
        let value = cells.value.clone();
        // Where it is none, the key has moved here already.
        let moves = self.moves_between(env.planted);
        let carried = (moves || !sources.is_empty()).then_some(cells.fence);
        let into = match carried {
            Some(_) => Into::Move,
            None => Into::Write,
        };
        match (&self.op, &self.phase) {
            (Op::Entry { .. }, _) => {
                let moves = sources.is_empty() || !cells.is_held_back(&present, env.planted);
                let entry = cells.entry(self.key(), moves);
                self.settles = (cells.agree && cells.crowded).then_some(cells.tag);
                Next::Done(entry)
            }
            (Op::EventualGet { .. }, _) => {
                let eventual = cells.newer_eventual(self.key());
                Next::Done(OpEnd::Value {
                    value: eventual.map_or(value, |(_, eventual)| eventual),
                    tag: Tag::ZERO,
                })
            }
            (Op::Synch { tag, adopts, .. }, _) => {
                let adopted = adopts
                    .then(|| cells.adopted(self.key(), tag.lock_ref, env.planted))
                    .flatten();
                let (latest, origin) = adopted.unwrap_or((value, cells.origin));
                let then = OpEnd::Synched {
                    value: latest.clone(),
                    tag: *tag,
                };
                let at = (*tag, origin);
                self.store(at, latest.as_ref(), then, into, now);
                Next::Phase
            }
            (_, Phase::Fenced { tag }) if self.resumes == Some(*tag) => {
                let (whole, agree) = (cells.tag == *tag, cells.agree);
                self.resumed((*tag, cells.origin), value, (whole, agree), env)
            }
            (_, Phase::Fenced { tag }) => {
                let at = (*tag, cells.origin);
                self.carry_on(at, value, into, now)
            }
            (Op::Read { .. }, _) if cells.is_passed_over(env.planted) => {
                self.enter(Phase::Tags, now);
                Next::Phase
            }
            (Op::Get { .. } | Op::Read { .. }, _) => {
                let shown = cells.shown();
                self.found(at, value, carried, shown, env)
            }
            _ => unreachable!("only reads collect"),
        }
    }

    /// q members have promised to store nothing below `tag`. Their value is stored under it, or the
    /// write that is to come above it.
    fn carry_on(
        &mut self,
        at: (Tag, EventualTag),
        found: Option<Bytes>,
        into: Into,
        now: Micros,
    ) -> Next {
        let tag = at.0;
        let then = self.swept_up(tag, found.clone());
        let value = match &self.op {
            Op::Write { value, .. } if self.written.is_none() => value.clone(),
            _ => found,
        };
        self.swept = Some(tag);
        self.store(at, value.as_ref(), then, into, now);
        Next::Phase
    }

    /// q members have promised to store nothing below `at`, the tag of an earlier sweep. If they
    /// give its value that one is carried on: a sweep that took a tag of its own each time would
    /// leave one more version wherever it fails. Else this one begins anew.
    fn resumed(
        &mut self,
        at: (Tag, EventualTag),
        found: Option<Bytes>,
        (whole, agree): (bool, bool),
        env: &Env<'_>,
    ) -> Next {
        let now = env.now.monotonic;
        if !whole {
            self.anew = true;
            self.enter(Phase::Tags, now);
            return Next::Phase;
        }
        let (tag, then) = (at.0, self.swept_up(at.0, found.clone()));
        self.swept = Some(tag);
        if agree {
            return self.once_passed(tag, then, true, env);
        }
        self.write_back(at, found, then, Into::Write, now);
        Next::Phase
    }

    /// The outcome of this operation once a sweep has put the value `found` at q members as `tag`.
    fn swept_up(&self, tag: Tag, found: Option<Bytes>) -> OpEnd {
        match &self.op {
            Op::Write { .. } | Op::Cross { .. } => OpEnd::Stored {
                tag: self.written.unwrap_or(tag),
            },
            Op::Sweep { .. } => OpEnd::Stored { tag },
            _ => OpEnd::Value { value: found, tag },
        }
    }

    /// Ends with `then`, and tells the members that the tag is final where `tells`; but if the tag
    /// is a time, not before that has certainly passed: an operation that begins after this one has
    /// ended must not be given a lower one (F9). Below a fence at q members nothing completes any
    /// more, whatever the time.
    fn once_passed(&mut self, tag: Tag, then: OpEnd, tells: bool, env: &Env<'_>) -> Next {
        self.tells = tells;
        self.phase = Phase::Passing {
            tag,
            then: Box::new(then),
        };
        self.passing(tag, env)
    }

    fn passing(&mut self, tag: Tag, env: &Env<'_>) -> Next {
        let Phase::Passing { then, .. } = &self.phase else {
            unreachable!("it has stored");
        };
        let reads = matches!(self.op, Op::Read { .. });
        let writes = matches!(self.op, Op::Write { .. } | Op::Cross { .. });
        let earliest = env.now.interval.map_or(0, |interval| interval.earliest);
        let over = earliest.max(self.passed) > tag.sequence;
        let hasty = reads && env.planted.has(Bug::ReaderDoesNotWait);
        if !is_physical(tag) || over || self.swept == Some(tag) || hasty {
            self.settles = self.tells.then_some(tag);
            return Next::Done((**then).clone());
        }
        if env.now.interval.is_none() && (reads || writes) {
            // No clock here tells, or none any more: a fence instead of the time.
            self.written = writes.then_some(tag);
            self.enter(Phase::Tags, env.now.monotonic);
            return Next::Phase;
        }
        Next::Wait
    }

    fn write_under(&mut self, tag: Tag, env: &Env<'_>) -> Next {
        let now = env.now.monotonic;
        let clockless = env.now.interval.is_none() && self.passed <= tag.sequence;
        let sweeps = matches!(self.phase, Phase::Tags);
        self.resumes = self.to_resume().filter(|_| sweeps);
        let crosses = matches!(self.op, Op::Cross { .. });
        let again = crosses && env.planted.has(Bug::CrossedIsStoredAgain);
        match &self.op {
            // It is stored, and later ones may have ended since.
            Op::Write { .. } | Op::Cross { .. } if self.written.is_some() && !again => {
                self.enter(Phase::Fenced { tag }, now);
            }
            // A time that this node cannot wait out, for it has no clock: a fence instead.
            Op::Write { .. } if clockless && is_physical(tag) => {
                self.enter(Phase::Fenced { tag }, now);
            }
            Op::Write { value, .. } | Op::Cross { value, .. } => {
                let value = value.clone();
                let at = (tag, EventualTag::default());
                let then = OpEnd::Stored { tag };
                self.store(at, value.as_ref(), then, Into::Write, now);
            }
            _ => self.enter(Phase::Fenced { tag }, now),
        }
        Next::Phase
    }

    /// The answers at hand give no value that may be returned: more are waited for, and all are
    /// asked again after a while.
    fn undecodable(&mut self, env: &Env<'_>) -> Next {
        if self.gives_up(env) {
            return Next::Phase;
        }
        let now = env.now.monotonic;
        let sources = self.sources.iter().filter(|_| self.asks_sources());
        let mut members = self.members.iter().chain(sources.flat_map(|s| &s.members));
        let all = members.all(Member::settled);
        if all || now >= self.phase_began + env.timing.retry {
            let phase = core::mem::replace(&mut self.phase, Phase::Collect);
            // Fewer may lack what a quorum has.
            let good = self.members.iter().filter(|m| m.good.is_some()).count();
            let few = good < self.quorum_size(env) && !env.planted.has(Bug::StuckBelowQuorum);
            self.stuck = !few;
            self.enter(phase, now + env.timing.beat.min(env.timing.retry));
            return Next::Phase;
        }
        Next::Wait
    }

    /// Goes on to store at q members.
    fn store(
        &mut self,
        at: (Tag, EventualTag),
        value: Option<&Bytes>,
        then: OpEnd,
        into: Into,
        now: Micros,
    ) {
        let mut phase = store(&self.op, &self.place, at, value, then);
        if let Phase::Store { into: own, .. } = &mut phase {
            *own = into;
        }
        self.enter(phase, now);
    }

    /// Stores what was read at those that do not have it yet.
    fn write_back(
        &mut self,
        at: (Tag, EventualTag),
        value: Option<Bytes>,
        then: OpEnd,
        into: Into,
        now: Micros,
    ) {
        let promised = |known: Tag| !matches!(into, Into::Carry(fence) if known < fence);
        let has = |member: &Member| match &member.good {
            Some(Answer::Cells {
                versions, fence, ..
            }) => versions.iter().any(|v| v.tag == at.0) && promised(*fence),
            _ => false,
        };
        let holds: Vec<bool> = self.members.iter().map(has).collect();
        self.store(at, value.as_ref(), then, into, now);
        for (member, holds) in self.members.iter_mut().zip(holds) {
            member.good = holds.then_some(Answer::Stored);
        }
    }

    fn enter(&mut self, phase: Phase, due: Micros) {
        self.phase = phase;
        self.phase_began = due;
        self.renew_sources(due);
        for member in &mut self.members {
            *member = Member {
                due,
                ..Member::default()
            };
        }
    }

    fn is_sound_here(&self, content: &Content) -> bool {
        match content {
            // The answer does not name the value's tag: only the value's own digest can be checked.
            Content::Value(fragment) => {
                fragment.coding != Coding::Whole
                    || fragment.digest == policy::digest(&fragment.bytes)
            }
            Content::Absent | Content::Tombstone | Content::Undecodable => true,
        }
    }
}

/// The phase with which an operation begins that asks this seat first.
fn first(op: &Op, place: &Place, nearest: Seat, env: &Env<'_>) -> Phase {
    let plain = EventualTag::default();
    let stored = |tag: Tag, origin, value: &Option<Bytes>| {
        let then = OpEnd::Stored { tag };
        store(op, place, (tag, origin), value.as_ref(), then)
    };
    match op {
        Op::Put { tag, value, .. } => stored(*tag, EventualTag::of_section(tag.lock_ref), value),
        Op::Write { writer, value, .. } => match one_round_tag(place, *writer, env) {
            Some(tag) => stored(tag, plain, value),
            None => Phase::Collect,
        },
        Op::Cross { tag, value, .. } => stored(*tag, plain, value),
        Op::Sweep { .. } => Phase::Tags,
        // It cannot tell of a key that has not moved: the sources are asked, too.
        Op::EventualGet { .. } if place.is_stranger(nearest) => Phase::Collect,
        Op::EventualGet { .. } | Op::EventualPut { .. } | Op::Inspect { .. } => {
            Phase::One { turn: 0 }
        }
        _ => Phase::Collect,
    }
}

/// The phase that stores `value` at q members.
fn store(
    op: &Op,
    place: &Place,
    (tag, origin): (Tag, EventualTag),
    value: Option<&Bytes>,
    then: OpEnd,
) -> Phase {
    // Of what was never written a fence alone is carried.
    let parts = match tag {
        Tag::ZERO => alloc::vec![Content::Absent; place.view.len()],
        _ => policy::encode(place.storage, place.shape(), op.key(), tag, value),
    };
    Phase::Store {
        tag,
        origin,
        parts,
        then: Box::new(then),
        into: Into::Write,
    }
}

/// When the tag's time may have passed by this node's interval clock.
fn passes_at(tag: Tag, env: &Env<'_>) -> Micros {
    let earliest = env.now.interval.map_or(0, |interval| interval.earliest);
    let left = (tag.sequence + 1).saturating_sub(earliest);
    env.now.monotonic.saturating_add(left.max(1))
}

/// Whether the contents of an answer are what they say.
fn is_sound(answer: &Answer, key: &KeyId) -> bool {
    match answer {
        Answer::Cells {
            versions, eventual, ..
        } => {
            let sound = |v: &Version| policy::is_sound(&v.content, key, v.tag);
            versions.iter().all(sound)
                && eventual
                    .as_ref()
                    .is_none_or(|(_, e)| policy::is_sound(e, key, Tag::ZERO))
        }
        _ => true,
    }
}
