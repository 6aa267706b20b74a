//! What can be seen of a run from outside: every step of every node with what it says, writes and
//! applies; every request and answer at a client; every flush. Nothing is interpreted here.
//!
//! A fact is written down when it is decided, in the order of the steps: a message that waits for a
//! flush has been decided before, and may never leave, which is as if it were lost.

use super::atoms::RefId;
use crate::catalogue::Catalogue;
use crate::checkers::places::{Places, epoch_of};
use crate::checkers::tags::{self, Head};
use crate::client::Wish;
use crate::history::{Heard, History, What};
use crate::machine::{Machine, Stepped, Turn};
use bytes::Bytes;
use fermata_protocol::base::{
    Ballot, Epoch, EventualTag, KeyId, LockRef, NodeName, SegmentId, SessionId, StoragePolicy, Tag,
};
use fermata_protocol::command::{Body, Command, LockCommand};
use fermata_protocol::io::Happened;
use fermata_protocol::lock::{self, Latest, Ref};
use fermata_protocol::register::{self, Answer, Ask};
use fermata_protocol::request::{Held, Mode};
use fermata_protocol::segment::Applied;
use fermata_protocol::{Input, Message, Operation, Output, Reply};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The queue of one key as a replica of the lock store has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueNow {
    /// Refs with what they are, head first.
    pub refs: Vec<(LockRef, Ref)>,
    /// The position that has set the flag.
    pub flag: Option<u64>,
}

/// A command at its first application anywhere.
#[derive(Clone, Debug)]
pub struct AppliedNow {
    /// The command.
    pub command: Command,
    /// What it did.
    pub applied: Applied,
    /// The queues of the keys that it touched, after it.
    pub queues: BTreeMap<KeyId, QueueNow>,
    /// The ref that it removed did hold all its keys.
    pub held: bool,
}

/// A member of a group, in one of the group's stores.
pub type Replica = (NodeName, Epoch);

/// Something that was seen.
#[derive(Clone, Debug)]
pub enum Fact {
    /// The first replica of a segment has applied a command.
    Applied(Box<AppliedNow>),
    /// A node has begun to lead a segment, where these refs held already.
    Leads {
        /// The node.
        node: NodeName,
        /// The segment.
        segment: SegmentId,
        /// The log's epoch.
        epoch: Epoch,
        /// Its ballot.
        ballot: Ballot,
        /// The refs.
        holds: BTreeSet<LockRef>,
    },
    /// A primary has taken an enqueue: reads ahead in the same turn are for it.
    Submitted {
        /// The primary.
        at: NodeName,
        /// Of this segment: a section of several segments has an enqueue in each, of one number.
        segment: SegmentId,
        /// The command's session and number.
        command: (SessionId, u64),
    },
    /// A primary tells somebody that its log has not taken an enqueue.
    Declined {
        /// The primary.
        at: NodeName,
        /// Of this segment: a section of several segments has an enqueue in each, of one number.
        segment: SegmentId,
        /// The command's session and number.
        command: (SessionId, u64),
    },
    /// A caller asks a replica.
    Asks {
        /// The caller.
        from: NodeName,
        /// Its name of the phase.
        call: u64,
        /// The store.
        store: Epoch,
        /// The key.
        key: KeyId,
        /// What.
        ask: Ask,
    },
    /// A caller hears a replica's answer.
    Hears {
        /// The caller.
        at: NodeName,
        /// From its question.
        call: u64,
        /// The replica.
        from: Replica,
        /// What.
        answer: Answer,
    },
    /// A replica has this eventual value of a key, perhaps not durably, and no other.
    Has {
        /// The replica.
        node: Replica,
        /// The key.
        key: KeyId,
        /// The value's tag, if there is one.
        eventual: Option<EventualTag>,
        /// It has written it just now; else it has started, and that is what its disk kept.
        wrote: bool,
    },
    /// A replica has these versions of a key, durably.
    HasDurably {
        /// The replica.
        node: Replica,
        /// The key.
        key: KeyId,
        /// The versions.
        tags: Vec<Tag>,
    },
    /// A replica has removed every trace of a key, which was this delete.
    Buries {
        /// The replica.
        node: Replica,
        /// The key.
        key: KeyId,
        /// The delete.
        tag: Tag,
    },
    /// A replica's store is deleted with what it had of a key: all has moved.
    Deletes {
        /// The replica.
        node: Replica,
        /// The key.
        key: KeyId,
    },
    /// A replica has taken an eventual put.
    Took {
        /// The replica.
        node: Replica,
        /// The key.
        key: KeyId,
        /// The tag given.
        tag: EventualTag,
        /// The value's digest.
        digest: u64,
    },
    /// A primary pushes a grant.
    Grants {
        /// The primary.
        from: NodeName,
        /// To whom.
        to: RefId,
        /// The key's value and tag.
        latest: Latest,
    },
    /// A client sends a request for the first time.
    Requests {
        /// Its session.
        session: SessionId,
        /// The request's number.
        number: u64,
        /// What.
        operation: Operation,
    },
    /// A client has entered a section.
    Enters {
        /// Its session.
        session: SessionId,
        /// Its keys.
        held: Vec<Held>,
        /// The values that it was told.
        values: BTreeMap<KeyId, Option<Bytes>>,
    },
    /// An operation of a client has ended.
    Ends {
        /// Its session.
        session: SessionId,
        /// What.
        what: What,
        /// Under these refs.
        held: Vec<Held>,
        /// How.
        outcome: Heard,
        /// The request and the tag of the value in its answer, where that ended it.
        read: Option<(u64, Tag)>,
    },
    /// A client's process has died.
    Dies(SessionId),
}

/// Writes facts down.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    /// With the true time.
    pub facts: Vec<(u64, Fact)>,
    /// Keys of sections that were touched, with their segments.
    pub keys: BTreeMap<KeyId, SegmentId>,
    /// The keyspaces, once the run is over.
    pub catalogue: Catalogue,
    /// Where keys were, once the run is over.
    pub places: Option<Places>,
    applied: BTreeMap<SegmentId, u64>,
    queues: BTreeMap<KeyId, QueueNow>,
    ballots: BTreeMap<(NodeName, SegmentId), (Epoch, Ballot)>,
    heads: BTreeMap<(NodeName, Bytes), Head>,
    pending: BTreeMap<NodeName, VecDeque<(u64, Head)>>,
    requested: BTreeSet<(SessionId, u64)>,
    /// Enqueues that were submitted: by primary, who asks, and call.
    submits: BTreeMap<(NodeName, NodeName, u64), Submitted>,
    sections: usize,
    ended: usize,
    hearing: Option<(u64, Option<Tag>)>,
}

/// An enqueue that was submitted: its segment, its session and number.
type Submitted = (SegmentId, (SessionId, u64));

impl Observer {
    fn note(&mut self, now: u64, fact: Fact) {
        self.facts.push((now, fact));
    }

    /// A node was stepped.
    pub fn stepped(&mut self, now: u64, machine: &Machine, done: &Stepped, catalogue: &Catalogue) {
        if let Some(turn) = &done.turn {
            self.came(now, machine.name(), turn);
            let mut applied = turn.applied.iter().peekable();
            for (i, output) in turn.outputs.iter().enumerate() {
                while let Some(happened) = applied.next_if(|h| h.outputs <= i) {
                    self.applied(now, happened);
                }
                self.said(now, machine.name(), output);
            }
            for happened in applied {
                self.applied(now, happened);
            }
            self.wrote(now, machine.name(), turn, done.written, catalogue);
            self.removed(now, machine.name(), turn);
        }
        self.look_at_primaries(now, machine);
    }

    fn came(&mut self, now: u64, at: NodeName, turn: &Turn) {
        let Input::Message { from, message } = &turn.input else {
            return;
        };
        match message {
            Message::Register(register::Message::Answer {
                call,
                store,
                answer,
                ..
            }) => {
                let (call, answer) = (*call, answer.clone());
                let from = (from.name, store.epoch);
                self.note(
                    now,
                    Fact::Hears {
                        at,
                        call,
                        from,
                        answer,
                    },
                );
            }
            Message::Lock(lock::Message::Submit {
                call,
                segment,
                command,
            }) => {
                let enqueues = matches!(command.body, Body::Lock(LockCommand::Enqueue { .. }));
                let command = (command.session, command.number);
                if enqueues {
                    let segment = *segment;
                    let of = (at, from.name, *call);
                    self.submits.insert(of, (segment, command));
                    self.note(
                        now,
                        Fact::Submitted {
                            at,
                            segment,
                            command,
                        },
                    );
                }
            }
            _ => {}
        }
    }

    fn said(&mut self, now: u64, from: NodeName, output: &Output) {
        let Output::Send { to, message, .. } = output else {
            return;
        };
        match message {
            Message::Lock(lock::Message::Submitted {
                call,
                result: Err(_),
                ..
            }) => {
                if let Some((segment, command)) = self.submits.get(&(from, *to, *call)).copied() {
                    self.note(
                        now,
                        Fact::Declined {
                            at: from,
                            segment,
                            command,
                        },
                    );
                }
            }
            Message::Register(register::Message::Ask {
                call,
                store,
                key,
                ask,
            }) => {
                let (call, store) = (*call, store.epoch);
                let (key, ask) = (key.clone(), ask.clone());
                self.note(
                    now,
                    Fact::Asks {
                        from,
                        call,
                        store,
                        key,
                        ask,
                    },
                );
            }
            Message::Lock(lock::Message::Granted(lock::Grant {
                lock_ref,
                generation,
                latest,
                ..
            })) => {
                let to = RefId {
                    lock_ref: *lock_ref,
                    generation: *generation,
                };
                for latest in latest {
                    let latest = latest.clone();
                    self.note(now, Fact::Grants { from, to, latest });
                }
            }
            _ => {}
        }
    }

    fn applied(&mut self, now: u64, happened: &Happened) {
        let last = self.applied.entry(happened.segment).or_default();
        if happened.applied.position <= *last {
            return;
        }
        *last = happened.applied.position;
        let held = happened.applied.removed.as_ref();
        let held = held.is_some_and(|(r, known)| known.keys.iter().all(|k| self.holds(k, *r)));
        let mut queues = BTreeMap::new();
        for (key, queue, refs) in &happened.queues {
            let mut seen = QueueNow::default();
            if let Some(queue) = queue {
                seen.refs = queue
                    .refs
                    .iter()
                    .copied()
                    .zip(refs.iter().cloned())
                    .collect();
                seen.flag = queue.flag;
            }
            self.keys.insert(key.clone(), happened.segment);
            self.queues.insert(key.clone(), seen.clone());
            queues.insert(key.clone(), seen);
        }
        let applied = AppliedNow {
            command: happened.command.clone(),
            applied: happened.applied.clone(),
            queues,
            held,
        };
        self.note(now, Fact::Applied(Box::new(applied)));
    }

    /// Whether a ref held a key: it was the first, or read behind others that read.
    fn holds(&self, key: &KeyId, lock_ref: LockRef) -> bool {
        let Some(queue) = self.queues.get(key) else {
            return false;
        };
        let shared = queue
            .refs
            .iter()
            .take_while(|(_, r)| r.mode == Mode::Shared);
        let mut first = queue.refs.first().into_iter().chain(shared);
        first.any(|(r, _)| *r == lock_ref)
    }

    fn wrote(&mut self, now: u64, node: NodeName, turn: &Turn, lsn: u64, catalogue: &Catalogue) {
        for head in tags::heads(&turn.writes) {
            let replicated = catalogue.storage(&head.key) == StoragePolicy::Replicated;
            if !catalogue.has_sections(&head.key) || !replicated {
                continue;
            }
            let before = self.heads.insert((node, head.record.clone()), head.clone());
            let before = before.and_then(|h| h.seen.eventual);
            if let Some(tag) = head.seen.eventual.filter(|tag| Some(*tag) != before)
                && let Some(digest) = spread(turn, tag)
            {
                let key = head.key.clone();
                let node = (node, epoch_of(&head.record));
                self.note(
                    now,
                    Fact::Took {
                        node,
                        key,
                        tag,
                        digest,
                    },
                );
            }
            if before != head.seen.eventual {
                self.has(now, node, &head, true);
            }
            let pending = self.pending.entry(node).or_default();
            pending.push_back((lsn, head));
        }
    }

    fn removed(&mut self, now: u64, node: NodeName, turn: &Turn) {
        for record in tags::removed(&turn.writes) {
            if let Some(head) = self.heads.remove(&(node, record.clone())) {
                let (key, tag) = (head.key, head.seen.tag());
                let node = (node, epoch_of(&record));
                self.note(now, Fact::Buries { node, key, tag });
            }
        }
        for (from, to) in tags::emptied(&turn.writes) {
            let whole = self.heads.range((node, from)..(node, to));
            let whole: Vec<_> = whole.map(|(at, _)| at.clone()).collect();
            for at in whole {
                let head = self.heads.remove(&at).expect("it was there just now");
                let node = (node, epoch_of(&head.record));
                let key = head.key;
                self.note(now, Fact::Deletes { node, key });
            }
        }
    }

    fn look_at_primaries(&mut self, now: u64, machine: &Machine) {
        let Some(node) = machine.node() else { return };
        let name = machine.name();
        for (id, segment) in &node.here().segments {
            let Some(primary) = &segment.primary else {
                self.ballots.remove(&(name, *id));
                continue;
            };
            let now_led = (segment.log.id().epoch, primary.ballot());
            if self.ballots.insert((name, *id), now_led) != Some(now_led) {
                let queues = segment.state.queues();
                let refs = queues.refs().map(|(r, _)| r);
                let held = refs.filter(|r| queues.holds(*r));
                let holds = held.filter(|r| !primary.was_untold(*r)).collect();
                let fact = Fact::Leads {
                    node: name,
                    segment: *id,
                    epoch: now_led.0,
                    ballot: now_led.1,
                    holds,
                };
                self.note(now, fact);
            }
        }
    }

    /// Everything that a node had written up to here is durable.
    pub fn flushed(&mut self, now: u64, node: NodeName, lsn: u64) {
        let pending = self.pending.entry(node).or_default();
        let mut durable = Vec::new();
        while pending.front().is_some_and(|(at, _)| *at <= lsn) {
            durable.extend(pending.pop_front().map(|(_, head)| head));
        }
        for head in durable {
            self.durable(now, node, &head);
        }
    }

    /// Which eventual value a node has of a key; `wrote` says that it has just written it.
    fn has(&mut self, now: u64, node: NodeName, head: &Head, wrote: bool) {
        let (key, eventual) = (head.key.clone(), head.seen.eventual);
        let node = (node, epoch_of(&head.record));
        self.note(
            now,
            Fact::Has {
                node,
                key,
                eventual,
                wrote,
            },
        );
    }

    fn durable(&mut self, now: u64, node: NodeName, head: &Head) {
        let tags = head.seen.versions.iter().map(|v| v.tag).collect();
        let key = head.key.clone();
        let node = (node, epoch_of(&head.record));
        self.note(now, Fact::HasDurably { node, key, tags });
    }

    /// A process has started on what its disk kept.
    pub fn restarted(&mut self, now: u64, machine: &Machine) {
        let name = machine.name();
        self.pending.remove(&name);
        self.ballots.retain(|(node, _), _| *node != name);
        let records = self.heads.keys().filter(|(node, _)| *node == name);
        let records: Vec<Bytes> = records.map(|(_, record)| record.clone()).collect();
        for record in records {
            let kept = machine.recall(&record);
            let kept = kept.and_then(|value| tags::head(&record, &value));
            match kept {
                Some(head) => {
                    self.durable(now, name, &head);
                    self.has(now, name, &head, false);
                    self.heads.insert((name, record), head);
                }
                None => {
                    self.heads.remove(&(name, record));
                }
            }
        }
    }

    /// A client is about to be told this.
    pub fn hears(&mut self, exchange: u64, reply: Option<&Reply>) {
        let tag = match reply {
            Some(Reply::Value { tag, .. }) => Some(*tag),
            _ => None,
        };
        self.hearing = Some((exchange, tag));
    }

    /// A client has done something.
    pub fn client_acted(&mut self, now: u64, history: &History, wishes: &[Wish]) {
        let heard = self.hearing.take();
        for section in &history.sections[self.sections..] {
            let fact = Fact::Enters {
                session: section.session,
                held: section.held.clone(),
                values: section.values.clone(),
            };
            self.facts.push((now, fact));
        }
        self.sections = history.sections.len();
        for id in &history.ended[self.ended..] {
            let op = &history.ops[id.0];
            let section = op.section.map(|ix| &history.sections[ix.0]);
            let read = heard.and_then(|(exchange, tag)| Some((exchange, tag?)));
            let fact = Fact::Ends {
                session: op.session,
                what: op.what.clone(),
                held: section.map_or(Vec::new(), |s| s.held.clone()),
                outcome: op.outcome.clone(),
                read,
            };
            self.facts.push((now, fact));
        }
        self.ended = history.ended.len();
        for wish in wishes {
            let Wish::Send(_, request) = wish else {
                continue;
            };
            let (session, number) = (request.session, request.number);
            if self.requested.insert((session, number)) {
                let operation = request.operation.clone();
                let fact = Fact::Requests {
                    session,
                    number,
                    operation,
                };
                self.note(now, fact);
            }
        }
    }

    /// A client's process has died.
    pub fn died(&mut self, now: u64, session: SessionId) {
        self.note(now, Fact::Dies(session));
    }
}

/// What a node spreads under the tag of an eventual put that it has just taken: it may have been
/// asked for that in an earlier step.
fn spread(turn: &Turn, tag: EventualTag) -> Option<u64> {
    turn.outputs.iter().find_map(|output| match output {
        Output::Send {
            message: Message::Register(register::Message::Ask { ask, .. }),
            ..
        } => match ask {
            Ask::EventualSpread { tag: of, content } if *of == tag => {
                Some(register::policy::digest_of(content))
            }
            _ => None,
        },
        _ => None,
    })
}
