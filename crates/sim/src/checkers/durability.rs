//! What a flush made durable is there after every restart, and what is there was written: the
//! memory after a restart is that after some prefix of the batches, no shorter than what was
//! flushed.

use super::Violation;
use crate::machine::{Machine, Stepped};
use bytes::Bytes;
use fermata_protocol::base::NodeName;
use fermata_protocol::io::Write;
use std::collections::{BTreeMap, VecDeque};

const NAME: &str = "durability";

#[derive(Debug, Default)]
struct Node {
    durable: BTreeMap<Bytes, Bytes>,
    pending: VecDeque<(u64, Vec<Write>)>,
}

/// The watcher.
#[derive(Debug, Default)]
pub struct Durability {
    nodes: BTreeMap<NodeName, Node>,
}

impl Durability {
    /// A node wrote.
    pub fn wrote(&mut self, name: NodeName, done: &Stepped) {
        if !done.writes.is_empty() {
            let node = self.nodes.entry(name).or_default();
            node.pending.push_back((done.written, done.writes.clone()));
        }
    }

    /// Everything up to here is durable.
    pub fn flushed(&mut self, name: NodeName, lsn: u64) {
        let node = self.nodes.entry(name).or_default();
        while node.pending.front().is_some_and(|(at, _)| *at <= lsn) {
            if let Some((_, writes)) = node.pending.pop_front() {
                apply(&mut node.durable, &writes);
            }
        }
    }

    /// A process has started on the disk.
    pub fn restarted(&mut self, machine: &Machine, found: &mut Vec<Violation>) {
        let Some(node) = self.nodes.get_mut(&machine.name()) else {
            return;
        };
        let mut state = node.durable.clone();
        let mut pending = std::mem::take(&mut node.pending);
        // The prefix that survived is found by trying one batch more at a time.
        loop {
            let wrong = state
                .iter()
                .find(|(k, v)| machine.recall(k).as_ref() != Some(*v));
            let Some((key, _)) = wrong else { break };
            let key = key.clone();
            match pending.pop_front() {
                Some((_, writes)) => apply(&mut state, &writes),
                None => {
                    let detail = format!(
                        "node {} lost what it had flushed of record {:?}",
                        machine.name().0,
                        String::from_utf8_lossy(&key)
                    );
                    found.push(Violation::new(NAME, detail));
                    break;
                }
            }
        }
        node.durable = state;
    }

    /// The disk may have lost anything.
    pub fn forget(&mut self, name: NodeName) {
        self.nodes.remove(&name);
    }
}

fn apply(state: &mut BTreeMap<Bytes, Bytes>, writes: &[Write]) {
    for write in writes {
        match write {
            Write::Put { key, value } => {
                state.insert(key.clone(), value.clone());
            }
            Write::Delete { key } => {
                state.remove(key);
            }
            Write::DeleteRange { from, to } => {
                let inside = state
                    .range(from.clone()..to.clone())
                    .map(|(k, _)| k.clone());
                for key in inside.collect::<Vec<_>>() {
                    state.remove(&key);
                }
            }
        }
    }
}
