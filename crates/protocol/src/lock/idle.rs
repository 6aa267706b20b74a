//! Keys that are flagged although nobody holds them or waits for them.
//!
//! **Problem.** The flag of a key is cleared by the synch of its next holder. Where nobody enters,
//! the key stays flagged, and refuses every eventual put, for ever.
//!
//! **Idea.** The primary notes since when a key is flagged and without a queue. After a *grace* of
//! one request time (by then whoever was in the section, or waited, has come back if it is alive)
//! the node's own coordinator has a shared section on it, as for a `read`: an enqueue, the synch of
//! its grant, a clean leave. Nothing of the safety of sections is new: to the log it is one more
//! reader, and the flag is cleared by the synch alone (L2).
//!
//! **Invariants.**
//! * *One at a time.* A segment's primary looks after one key at a time, so that the keys of a site
//!   that has died are synched one after the other, beside the sections of clients.
//! * *Nothing depends on it.* What is noted here is volatile and may be stale: two primaries that
//!   look after the same key are two readers of it. If the coordinator dies, its ref goes with its
//!   lease, the key is flagged anew, and the next primary begins with the grace.
//! * *A key that cannot be synched keeps no other waiting* for longer than one request time: it
//!   goes behind the others.
//!
//! The key of a keyspace that was deleted has no next holder: its flag is cleared without a synch,
//! and nothing is left of it in the queues.
//!
//! **Departures.** MUSIC leaves the flag to the next holder.

use super::primary::{Primary, PrimaryEnv};
use super::state::Queues;
use crate::base::{Bug, KeyId, Micros};
use crate::catalogue::Catalogue;
use crate::command::{Body, LockCommand};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Flags of deleted keyspaces that one look clears.
const DEAD_MAX: usize = 64;

/// The keys of one segment that are flagged and without a queue, each with the time at which it is
/// to be looked after.
#[derive(Debug)]
pub(super) struct Idle {
    due: BTreeMap<KeyId, Micros>,
    order: BTreeSet<(Micros, KeyId)>,
    /// The key that is looked after, and until when that is waited for.
    current: Option<(KeyId, Micros)>,
}

impl Idle {
    /// For a primary that begins at `now`.
    pub(super) fn new(queues: &Queues, now: Micros, grace: Micros) -> Idle {
        let mut idle = Idle {
            due: BTreeMap::new(),
            order: BTreeSet::new(),
            current: None,
        };
        for (key, _) in queues.keys() {
            idle.look(key, queues, now, grace);
        }
        idle
    }

    /// A command may have changed the key's queue or flag; `queues` is the state after it.
    pub(super) fn look(&mut self, key: &KeyId, queues: &Queues, now: Micros, grace: Micros) {
        self.forget(key);
        let queue = queues.queue(key);
        let flagged = queue.is_some_and(|q| q.flag.is_some());
        let waited_for = queue.is_some_and(|q| !q.refs.is_empty());
        if flagged && !waited_for {
            self.note(key.clone(), now + grace);
        }
        // Its section is under way as long as it is flagged and in somebody's queue.
        let under_way = flagged && waited_for;
        if !under_way && self.current.as_ref().is_some_and(|(k, _)| k == key) {
            self.current = None;
        }
    }

    /// A key to look after now: the one that has waited longest, if no other is looked after.
    fn take(&mut self, now: Micros, grace: Micros) -> Option<KeyId> {
        if self.current.as_ref().is_some_and(|(_, until)| now < *until) {
            return None;
        }
        let (_, key) = self.order.first().filter(|(due, _)| *due <= now)?.clone();
        // Once more, if nothing is heard of it.
        self.forget(&key);
        self.note(key.clone(), now + 2 * grace);
        self.current = Some((key.clone(), now + grace));
        Some(key)
    }

    /// Keys to look after now, a bounded number, that nobody can synch: their keyspace was deleted.
    fn take_dead(&mut self, now: Micros, grace: Micros, catalogue: &Catalogue) -> Vec<KeyId> {
        let due = self.due.iter().filter(|(_, due)| **due <= now);
        let dead = due.filter(|(key, _)| catalogue.is_dead(key.keyspace));
        let dead: Vec<KeyId> = dead.map(|(key, _)| key.clone()).take(DEAD_MAX).collect();
        for key in &dead {
            self.forget(key);
            // Once more, if nothing is heard of it.
            self.note(key.clone(), now + 2 * grace);
        }
        dead
    }

    fn note(&mut self, key: KeyId, due: Micros) {
        self.order.insert((due, key.clone()));
        self.due.insert(key, due);
    }

    fn forget(&mut self, key: &KeyId) {
        if let Some((key, due)) = self.due.remove_entry(key) {
            self.order.remove(&(due, key));
        }
    }
}

impl Primary {
    /// A key that this node's coordinator is to synch in a section of its own, if there is one; to
    /// be asked at every beat, where the node can write.
    pub fn neglected(&mut self, queues: &Queues, cx: &PrimaryEnv<'_>) -> Option<KeyId> {
        if !cx.leased || !self.leasing.is_open() {
            return None;
        }
        let (now, grace) = (cx.env.now.monotonic, cx.env.timing.request);
        let dead = match cx.env.planted.has(Bug::DeadFlagsKept) {
            true => Vec::new(),
            false => self.idle.take_dead(now, grace, cx.catalogue),
        };
        for key in dead {
            // Nothing is owed to the next holder: there is none.
            let flag = queues.queue(&key).and_then(|q| q.flag);
            let done = flag.map(|flag| LockCommand::SynchDone { key, flag });
            self.propose_own(done);
        }
        let key = self.idle.take(now, grace)?;
        if cx.env.planted.has(Bug::IdleKeyNotSynched)
            && let Some(flag) = queues.queue(&key).and_then(|q| q.flag)
        {
            let done = self.own(Body::Lock(LockCommand::SynchDone { key, flag }));
            self.proposals.push(done);
            return None;
        }
        (!self.clears_again(&key, queues)).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Epoch, Keyspace, Label, LockRef, NodeName, Planted, SessionId, SiteId};
    use crate::command::{Command, Origin};
    use crate::request::Mode;
    use crate::segment::SegmentState;
    use bytes::Bytes;

    const GRACE: Micros = 100;

    fn key(name: &'static str) -> KeyId {
        KeyId {
            keyspace: Keyspace::SECTIONS,
            key: Bytes::from_static(name.as_bytes()),
        }
    }

    /// A segment whose primary has looked at every command so far.
    struct Bench {
        state: SegmentState,
        idle: Idle,
    }

    impl Bench {
        fn new() -> Bench {
            let state = SegmentState::default();
            let idle = Idle::new(state.queues(), 0, GRACE);
            Bench { state, idle }
        }

        fn apply(&mut self, body: LockCommand, now: Micros) -> LockRef {
            let number = self.state.commands() + 1;
            let command = Command::new(SessionId(7), number, 0, Epoch::FIRST, Body::Lock(body));
            let applied = self.state.apply(&command, Planted::NONE);
            for key in &applied.touched {
                self.idle.look(key, self.state.queues(), now, GRACE);
            }
            LockRef(applied.position)
        }

        fn enqueue(&mut self, name: &'static str, now: Micros) -> LockRef {
            let origin = Origin {
                node: NodeName(1),
                site: SiteId::default(),
                since: 0,
                lease: 1,
                section_max: 1,
                label: Label::NONE,
            };
            let (keys, mode) = (alloc::vec![key(name)], Mode::Exclusive);
            self.apply(LockCommand::Enqueue { keys, mode, origin }, now)
        }

        /// A section that ends by force; the flag that it leaves.
        fn dies(&mut self, name: &'static str, now: Micros) -> u64 {
            let lock_ref = self.enqueue(name, now);
            let key = None;
            self.apply(LockCommand::Release { lock_ref, key }, now).0
        }

        fn take(&mut self, now: Micros) -> Option<KeyId> {
            self.idle.take(now, GRACE)
        }
    }

    #[test]
    fn keys_are_looked_after_one_at_a_time_when_the_grace_is_over() {
        let mut bench = Bench::new();
        let flag = bench.dies("a", 0);
        bench.dies("b", 10);
        assert_eq!(bench.take(99), None);
        assert_eq!(bench.take(100), Some(key("a")));
        assert_eq!(bench.take(120), None, "one at a time");
        bench.enqueue("a", 130);
        assert_eq!(bench.take(140), None, "its section is under way");
        let done = LockCommand::SynchDone {
            key: key("a"),
            flag,
        };
        bench.apply(done, 150);
        assert_eq!(bench.take(160), Some(key("b")));
        assert_eq!(bench.take(10_000), Some(key("b")), "nobody has synched it");
    }

    #[test]
    fn a_key_of_which_nothing_is_heard_goes_behind_the_others() {
        let mut bench = Bench::new();
        bench.dies("a", 0);
        bench.dies("b", 50);
        assert_eq!(bench.take(100), Some(key("a")));
        assert_eq!(bench.take(200), Some(key("b")));
        assert_eq!(bench.take(300), Some(key("a")));
    }

    #[test]
    fn whoever_enters_is_left_alone_and_a_new_flag_begins_anew() {
        let mut bench = Bench::new();
        bench.dies("a", 0);
        let lock_ref = bench.enqueue("a", 50);
        assert_eq!(bench.take(1_000), None);
        let release = LockCommand::Release {
            lock_ref,
            key: None,
        };
        bench.apply(release, 1_000);
        assert_eq!(bench.take(1_099), None);
        assert_eq!(bench.take(1_100), Some(key("a")));
    }

    #[test]
    fn a_primary_that_begins_knows_the_flags_of_its_state() {
        let mut bench = Bench::new();
        bench.dies("a", 0);
        bench.enqueue("b", 0);
        let mut idle = Idle::new(bench.state.queues(), 500, GRACE);
        assert_eq!(idle.take(599, GRACE), None);
        assert_eq!(idle.take(600, GRACE), Some(key("a")));
        assert_eq!(idle.take(10_000, GRACE), Some(key("a")));
    }
}
