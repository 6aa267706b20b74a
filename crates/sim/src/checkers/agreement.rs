//! All replicas of a segment that have applied the same commands are in the same state
//! (Multi-Paxos; F13), and none ever goes back but by a crash.

use super::{Promise, Violation};
use crate::machine::Machine;
use fermata_protocol::base::{Epoch, GroupId, LockRef, NodeName, Planted, SegmentId, SessionId};
use fermata_protocol::lock::Queues;
use fermata_protocol::paxos::Stop;
use fermata_protocol::wire::encode;
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "agreement";

/// Puts the registers of a segment into one and the same store.
const MOVES: Stop = Stop {
    group: GroupId(0),
    next: Epoch::FIRST,
    first: NodeName(0),
    moves: true,
    format: 0,
};

/// The watcher.
#[derive(Debug, Default)]
pub struct Agreement {
    /// The digest of a segment's state after so many commands, in whichever of its logs, and who
    /// was there first.
    states: BTreeMap<(SegmentId, u64), (u64, NodeName)>,
    /// Commands applied by a node.
    applied: BTreeMap<(NodeName, SegmentId), u64>,
    /// The ref that a command of a session gave.
    enqueued: BTreeMap<(SegmentId, SessionId, u64), LockRef>,
}

impl Agreement {
    /// A node was stepped: the segments whose state moved.
    pub fn after_step(&mut self, machine: &Machine, found: &mut Vec<Violation>) -> Vec<SegmentId> {
        let mut moved = Vec::new();
        let Some(node) = machine.node() else {
            return moved;
        };
        let name = machine.name();
        for (id, segment) in &node.here().segments {
            let commands = segment.state.commands();
            let before = self.applied.insert((name, *id), commands);
            if before == Some(commands) {
                continue;
            }
            moved.push(*id);
            if before.is_some_and(|b| commands < b) {
                let detail = format!("node {}: segment {} went back", name.0, id.0);
                found.push(Violation::new(NAME, detail));
            }
            self.once(*id, segment.state.queues(), found);
            // Where the registers are is said by who ends the log, and by no command.
            let moved = segment.state.clone().succeed(MOVES, Planted::NONE);
            let digest = digest(&encode(&moved));
            let place = (*id, commands);
            let (known, first) = *self.states.entry(place).or_insert((digest, name));
            if known != digest {
                found.push(Violation::new(
                    NAME,
                    format!(
                        "segment {} after {commands} commands: nodes {} and {} disagree",
                        id.0, first.0, name.0
                    ),
                ));
            }
        }
        moved
    }

    /// One command of a session gives one ref (F2).
    fn once(&mut self, segment: SegmentId, queues: &Queues, found: &mut Vec<Violation>) {
        for (lock_ref, known) in queues.refs() {
            let id = (segment, known.session, known.number);
            let first = *self.enqueued.entry(id).or_insert(lock_ref);
            if first != lock_ref {
                let detail = format!(
                    "segment {}: one enqueue gave the refs {} and {}",
                    segment.0, first.0, lock_ref.0
                );
                found.push(Violation::new(Promise::Refs.name(), detail));
            }
        }
    }

    /// A process has started: it may have applied less than the one before.
    pub fn restarted(&mut self, name: NodeName) {
        self.applied.retain(|(node, _), _| *node != name);
    }
}

/// FNV-1a.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}
