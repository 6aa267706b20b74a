//! A log that is followed without a seat, by a node that is to have one in the log after it
//! (a *learner*; Harmony §4.2.1 knows none).
//!
//! **Problem.** The state of a log may take many messages. A new member that is sent it when it has
//! its seat is of no use until then, and where a quorum of the next log consists of such members,
//! nobody is.
//!
//! **Idea.** It gets the state before. It asks whoever leads for a snapshot, as a late member does
//! ([`super::late`]), and is told from then on what is chosen, at the end of each step of the
//! leader's: entries and the `Stop` at the end, one way. So it knows the state in which the log
//! ends when the other members do, and creates the next log from it, as they do.
//!
//! **Invariants.**
//! * A learner promises, votes and writes nothing. All that it has is chosen, and true whatever
//!   becomes of it or of the leader; a crash loses it.
//! * It takes entries in order and without a gap. What the leader tells it may be lost: one that
//!   finds a gap asks again, and so does one that is not told for a retry time.
//! * The replica that it creates in the next log is blank, and truthfully so: it had no seat before
//!   ([`super::late`] has the argument).

use super::learner::effective;
use super::transfer::{self, Partial, SILENCE, Taken};
use super::{Chunk, Entry, Log, Message, Stop};
use crate::base::{Ballot, Bug, LogId, Micros, NodeName, Slot, View};
use crate::command::Command;
use crate::io::Env;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;

/// Nodes that may follow one log; as many as a view has members.
const FOLLOWERS: usize = 13;
/// Hints followed within a retry time.
const HOPS: u8 = 4;

/// What a leader knows of a node that follows its log.
#[derive(Debug)]
struct Follower {
    /// The slot that it is told next.
    next: Slot,
    /// Who has not asked again by then does not follow any more.
    until: Micros,
}

/// Who follows a log without a seat.
#[derive(Debug, Default)]
pub(super) struct Followers(BTreeMap<NodeName, Follower>);

impl Followers {
    /// Forgets those who have been silent for long.
    pub(super) fn end(&mut self, env: &Env<'_>) {
        self.0
            .retain(|_, follower| follower.until > env.now.monotonic);
    }
}

impl Log {
    /// A node without a seat asks for what is chosen; nothing else of it is heard. Who does not
    /// lead names who does, unless it knows the end.
    pub fn on_outsider(&mut self, from: NodeName, message: Message, env: &mut Env<'_>) {
        let (first, resume) = match message {
            Message::Join { resume } => (None, resume),
            Message::Fetch { from, resume } => (Some(from), resume),
            _ => return self.ignore("message from outside the view"),
        };
        if !self.leads() && self.over.is_none() {
            let own = self.view.node_at(self.seat);
            if let Some(by) = self.primary_node().filter(|by| Some(*by) != own) {
                self.tell(from, Message::Led { by }, env);
            }
            return;
        }
        let next = first.filter(|first| {
            let held = self.held.contains_key(first) && *first <= self.chosen;
            held || *first == self.chosen.next()
        });
        let Some(next) = next else {
            self.followers.0.remove(&from);
            return self.on_join(from, resume, env);
        };
        self.loans.went_on(from, next, self.snapshot.slot, env);
        let known = self.followers.0.contains_key(&from);
        if known || self.followers.0.len() < FOLLOWERS {
            let until = env.now.monotonic + SILENCE * env.timing.retry;
            self.followers.0.insert(from, Follower { next, until });
            self.tell_follower(from, env);
        }
    }

    /// Whether a node follows this log, and has been told all of it that is chosen.
    pub fn is_followed_by(&self, node: NodeName) -> bool {
        let follower = self.followers.0.get(&node);
        follower.is_some_and(|follower| follower.next > self.chosen)
    }

    /// Tells those who follow what is chosen, if this replica leads.
    pub(super) fn tell_followers(&mut self, env: &mut Env<'_>) {
        if self.followers.0.is_empty() || !self.leads() {
            return;
        }
        let behind = |(node, follower): (&NodeName, &Follower)| {
            (follower.next <= self.chosen).then_some(*node)
        };
        let behind: Vec<NodeName> = self.followers.0.iter().filter_map(behind).collect();
        for node in behind {
            self.tell_follower(node, env);
        }
    }

    fn tell_follower(&mut self, node: NodeName, env: &mut Env<'_>) {
        let Some(follower) = self.followers.0.get(&node) else {
            return;
        };
        let first = follower.next;
        if first <= self.chosen && !self.held.contains_key(&first) {
            // It is truncated: the node asks for a snapshot.
            self.followers.0.remove(&node);
            return;
        }
        let told = self.entries_from(first, env.limits);
        if let Message::Entries { entries, .. } = &told
            && let Some(follower) = self.followers.0.get_mut(&node)
        {
            follower.next = Slot(first.0 + entries.len() as u64);
        }
        self.tell(node, told, env);
    }
}

/// What has come to one that follows.
#[derive(Debug, PartialEq, Eq)]
pub enum Learned {
    /// Nothing new.
    Nothing,
    /// The state now, whatever was applied before.
    State(Bytes),
    /// What is to be applied next, in order.
    Commands(Vec<Command>),
}

/// A log as a node knows it that has no seat there.
#[derive(Debug)]
pub struct Learner {
    id: LogId,
    members: View,
    /// Who is asked.
    peer: NodeName,
    /// How many hints were followed since it was last asked in earnest.
    hops: u8,
    /// A question is open.
    waits: bool,
    /// Somebody has been of use since a retry time ago.
    heard: bool,
    /// There is a state.
    born: bool,
    chosen: Slot,
    /// The highest `Begin` so far.
    begin: Ballot,
    over: Option<Stop>,
    partial: Option<Partial>,
    /// When somebody last said that nothing more was chosen.
    level: Option<Micros>,
}

impl Learner {
    /// Follows a log of these members, and asks the first of them.
    pub fn new(id: LogId, members: View, peer: NodeName, env: &mut Env<'_>) -> Learner {
        let mut learner = Learner {
            id,
            members,
            peer,
            hops: 0,
            waits: false,
            heard: true,
            born: false,
            chosen: Slot(0),
            begin: Ballot::default(),
            over: None,
            partial: None,
            level: None,
        };
        learner.ask(env);
        learner
    }

    /// Which log.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// How it has ended, with everything before that known here.
    pub fn stopped(&self) -> Option<Stop> {
        self.over
    }

    /// Whether all that was chosen lately is known here.
    pub fn is_level(&self, env: &Env<'_>) -> bool {
        let late = |at| at + 4 * env.timing.retry <= env.now.monotonic;
        self.over.is_some() || self.level.is_some_and(|at| !late(at))
    }

    /// A retry time has passed: the leader is to know that this node still follows; where nobody
    /// was of use, another member is asked.
    pub fn again(&mut self, env: &mut Env<'_>) {
        if self.over.is_some() {
            return;
        }
        self.hops = 0;
        if core::mem::take(&mut self.heard) {
            return self.ask(env);
        }
        self.peer = self.after_peer();
        self.ask_anew(env);
    }

    /// Asks another member, also for those parts of a snapshot that were asked for already.
    fn ask_anew(&mut self, env: &mut Env<'_>) {
        if let Some(partial) = &mut self.partial {
            partial.again();
        }
        self.ask(env);
    }

    fn after_peer(&self) -> NodeName {
        let mut members = self.members.nodes().chain(self.members.nodes());
        members.find(|member| *member == self.peer);
        members.next().unwrap_or(self.peer)
    }

    fn ask(&mut self, env: &mut Env<'_>) {
        self.waits = true;
        let from = self.chosen.next();
        let known = |partial: &mut Partial| self.born && partial.slot() <= self.chosen;
        self.partial.take_if(known);
        let snapshot = !self.born || self.partial.is_some();
        let (log, peer) = (self.id, self.peer);
        let parts = match snapshot {
            true => transfer::parts(&mut self.partial),
            false => Vec::from([None]),
        };
        for resume in parts {
            let message = match snapshot {
                true => Message::Join { resume },
                false => Message::Fetch { from, resume },
            };
            env.fx.send(peer, crate::Message::Paxos { log, message });
        }
    }

    /// Something has come from a node.
    pub fn on_message(&mut self, from: NodeName, message: Message, env: &mut Env<'_>) -> Learned {
        match message {
            _ if self.over.is_some() || self.members.seat_of(from).is_none() => Learned::Nothing,
            Message::Led { by } => {
                let follow = self.members.seat_of(by).is_some() && by != self.peer;
                if follow && self.hops < HOPS {
                    self.hops += 1;
                    self.peer = by;
                    self.ask_anew(env);
                }
                Learned::Nothing
            }
            Message::Birth { chunk, .. } => self.on_chunk(from, chunk, env),
            Message::Entries {
                from: first,
                entries,
                chosen,
            } => self.on_entries(from, (first, entries, chosen), env),
            _ => Learned::Nothing,
        }
    }

    fn on_chunk(&mut self, from: NodeName, chunk: Chunk, env: &mut Env<'_>) -> Learned {
        if self.born && chunk.slot <= self.chosen {
            return Learned::Nothing;
        }
        let anew = from == self.peer;
        let taken = Partial::collect(&mut self.partial, chunk, anew, env.limits);
        self.heard |= !matches!(taken, Taken::Useless);
        match taken {
            Taken::Useless => Learned::Nothing,
            Taken::More => {
                self.ask(env);
                Learned::Nothing
            }
            Taken::Whole(whole) => {
                let Ok((record, _)) = whole.open() else {
                    return Learned::Nothing;
                };
                self.born = true;
                self.chosen = record.slot;
                self.begin = record.begin;
                self.over = record.stopped;
                self.ask(env);
                Learned::State(record.state)
            }
        }
    }

    fn on_entries(
        &mut self,
        from: NodeName,
        (first, entries, chosen): (Slot, Vec<Entry>, Slot),
        env: &mut Env<'_>,
    ) -> Learned {
        let gap = first > self.chosen.next() && !env.planted.has(Bug::LearnerSkipsGap);
        if !self.born || first.0 == 0 || gap {
            // What was told before is lost.
            if self.born && from == self.peer && !self.waits {
                self.ask(env);
            }
            return Learned::Nothing;
        }
        self.waits &= from != self.peer;
        self.heard |= from == self.peer;
        let known = (self.chosen.0 + 1).saturating_sub(first.0) as usize;
        if first > self.chosen {
            self.chosen = Slot(first.0 - 1);
        }
        let mut commands = Vec::new();
        for entry in entries.into_iter().skip(known) {
            self.chosen = self.chosen.next();
            let entry = match effective(entry.clone(), &mut self.begin) {
                Entry::Noop if env.planted.has(Bug::LearnerObeysVoid) => entry,
                meant => meant,
            };
            match entry {
                Entry::Commands { commands: more, .. } => commands.extend(more),
                Entry::Stop(stop) => {
                    self.over = Some(stop);
                    break;
                }
                Entry::Begin { .. } | Entry::Noop => {}
            }
        }
        if chosen <= self.chosen {
            self.level = Some(env.now.monotonic);
        } else if !self.waits {
            self.ask(env);
        }
        Learned::Commands(commands)
    }
}
