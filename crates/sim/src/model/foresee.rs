//! What has to be known of a run before its facts are mapped one by one.
//!
//! Some events have no moment of their own in the code. Where the model leaves the moment open, the
//! mapping chooses it, and for that it looks ahead:
//!
//! * **What was never sent was never asked for.** A put that is refused before any replica is asked
//!   has no effect, and its client need not wait for it before it leaves cleanly. The model has no
//!   puts that are taken back, so such a put is no event at all.
//! * **What a client says on leaving** is one word in the model. In the code it may say that it
//!   leaves dirtily while its coordinator, in its name, leaves cleanly. The word that the log
//!   takes counts.

use super::atoms::{Purpose, RefId, is_synch, ref_of};
use super::observe::{AppliedNow, Fact, Observer};
use crate::history::Heard;
use fermata_protocol::base::{KeyId, LockRef, NodeName, SegmentId, SessionId, Tag};
use fermata_protocol::command::{Body, LockCommand};
use fermata_protocol::lock::Outcome as Applied;
use fermata_protocol::register::Ask;
use std::collections::{BTreeMap, BTreeSet};

/// A phase of a quorum operation: its caller and call.
pub type PhaseId = (NodeName, u64);

/// What a phase that reads for a grant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Without a fence, while the enqueue of this command is being agreed.
    Ahead((SessionId, u64)),
    /// Without a fence, for a ref.
    Entry(RefId, Purpose),
    /// With a fence, for the synch of this tag; whether it may adopt.
    Synch(Tag, bool),
}

/// What is known ahead.
#[derive(Debug, Default)]
pub struct Foreseen {
    /// Tags of puts that some replica was asked to store, or that were acknowledged.
    pub sent: BTreeSet<Tag>,
    /// Phases that read for a grant.
    pub readings: BTreeMap<PhaseId, Reading>,
    /// By which word a ref leaves, if it leaves by one: cleanly on this key or not.
    pub leaves: BTreeMap<RefId, bool>,
    /// The refs that enqueues gave.
    pub given: BTreeMap<(SessionId, u64), RefId>,
    /// Generations that have begun as heads: a section goes on. Others begin like any ref.
    resumed: BTreeSet<RefId>,
    leads: BTreeMap<NodeName, Lead>,
    /// What each node has taken last, and when.
    submitted: BTreeMap<NodeName, (u64, (SessionId, u64))>,
}

/// One leadership of a node.
#[derive(Debug, Default)]
struct Lead {
    holds: BTreeSet<LockRef>,
    granted: BTreeSet<RefId>,
}

impl Foreseen {
    /// Looks through a run for one key.
    pub fn of(observer: &Observer, key: &KeyId, segment: SegmentId) -> Foreseen {
        let mut seen = Foreseen::default();
        for (now, fact) in &observer.facts {
            match fact {
                Fact::Applied(applied) => seen.applied(applied, key),
                Fact::Leads {
                    node,
                    segment: led,
                    holds,
                    ..
                } if *led == segment => {
                    let lead = Lead {
                        holds: holds.clone(),
                        granted: BTreeSet::new(),
                    };
                    seen.leads.insert(*node, lead);
                }
                Fact::Submitted {
                    at,
                    segment: of,
                    command,
                } if *of == segment => {
                    seen.submitted.insert(*at, (*now, *command));
                }
                Fact::Asks {
                    from,
                    call,
                    key: asked,
                    ask,
                    ..
                } if asked == key => seen.asked(*now, (*from, *call), ask),
                Fact::Ends {
                    what,
                    outcome: Heard::Done(Some(tag)),
                    ..
                } if what.key() == Some(key) => {
                    seen.sent.insert(*tag);
                }
                Fact::Grants { from, to, latest } if latest.key == *key => {
                    seen.leads.entry(*from).or_default().granted.insert(*to);
                }
                _ => {}
            }
        }
        seen
    }

    fn applied(&mut self, now: &AppliedNow, key: &KeyId) {
        if now.applied.repeated {
            return;
        }
        let Body::Lock(body) = &now.command.body else {
            return;
        };
        if let Applied::Enqueued { lock_ref } = now.applied.outcome
            && now.applied.touched.contains(key)
        {
            let of = RefId {
                lock_ref,
                generation: 0,
            };
            let command = (now.command.session, now.command.number);
            self.given.insert(command, of);
        }
        if let (Applied::Resumed { generation }, LockCommand::Resume { lock_ref, .. }) =
            (&now.applied.outcome, body)
            && let Some(queue) = now.queues.get(key)
            && queue.refs.first().is_some_and(|(r, _)| r == lock_ref)
        {
            self.resumed.insert(RefId {
                lock_ref: *lock_ref,
                generation: *generation,
            });
        }
        if let Some((lock_ref, known)) = &now.applied.removed
            && known.keys.contains(key)
        {
            let of = RefId {
                lock_ref: *lock_ref,
                generation: known.generation,
            };
            if let LockCommand::Leave {
                clean,
                waiting_only: false,
                ..
            } = body
            {
                self.leaves.insert(of, clean.iter().any(|(k, _)| k == key));
            }
        }
    }

    fn asked(&mut self, now: u64, phase: PhaseId, ask: &Ask) {
        if let Ask::Store { tag, .. } = ask {
            self.sent.insert(*tag);
        }
        let Ask::Read {
            holder,
            entering: true,
            fence,
            ..
        } = ask
        else {
            return;
        };
        if self.readings.contains_key(&phase) {
            return;
        }
        let reading = match (fence, holder) {
            (Some(tag), _) if is_synch(*tag) => {
                let of = ref_of(*tag);
                Reading::Synch(*tag, self.is_first(phase.0, of))
            }
            (Some(_), _) => return,
            (None, Some(holder)) => {
                let of = RefId {
                    lock_ref: holder.lock_ref,
                    generation: holder.generation,
                };
                let purpose = match self.is_first(phase.0, of) {
                    true => Purpose::First,
                    false => Purpose::Again,
                };
                Reading::Entry(of, purpose)
            }
            (None, None) => {
                let taken = self.submitted.get(&phase.0);
                if let Some((_, command)) = taken.filter(|(at, _)| *at == now) {
                    self.readings.insert(phase, Reading::Ahead(*command));
                }
                return;
            }
        };
        self.readings.insert(phase, reading);
    }

    /// Whether a node prepares the first grant of a ref that has come to hold before its eyes, or
    /// that nobody had granted when it began to lead. It prepares the second kind in the very step
    /// in which it begins, of which nothing is known here before its end.
    fn is_first(&self, node: NodeName, of: RefId) -> bool {
        let lead = self.leads.get(&node);
        !self.resumed.contains(&of)
            && lead.is_none_or(|l| !l.holds.contains(&of.lock_ref) && !l.granted.contains(&of))
    }
}
