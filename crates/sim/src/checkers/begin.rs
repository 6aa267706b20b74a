//! A leader's first own entry is `Begin`, and its clients' commands come above it (F3f):
//! what lies below was recovered, or is a no-op. A command that filled a hole would
//! take effect before commands that were proposed long ago.

use super::Violation;
use fermata_protocol::base::{Ballot, LogId, Slot};
use fermata_protocol::paxos::{Entry, Message};
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "begin first";

/// The watcher: what every ballot proposed of its own.
#[derive(Debug, Default)]
pub struct Begin {
    /// Where the ballot began.
    begins: BTreeMap<(LogId, Ballot), Slot>,
    /// Its lowest slot with commands born in it.
    lowest: BTreeMap<(LogId, Ballot), Slot>,
}

impl Begin {
    /// A message of a log was sent.
    pub fn sent(&mut self, log: LogId, message: &Message, found: &mut Vec<Violation>) {
        let Message::Accept {
            ballot,
            slot,
            entry,
            ..
        } = message
        else {
            return;
        };
        let id = (log, *ballot);
        match entry {
            Entry::Begin { ballot: own } if own == ballot => {
                self.begins.insert(id, *slot);
            }
            Entry::Commands { birth, .. } if birth == ballot => {
                let lowest = self.lowest.entry(id).or_insert(*slot);
                *lowest = (*slot).min(*lowest);
            }
            _ => return,
        }
        if let (Some(begin), Some(lowest)) = (self.begins.get(&id), self.lowest.get(&id))
            && lowest < begin
        {
            let detail = format!(
                "{:?}: ballot {}.{} began at slot {} and proposed a command at slot {}",
                log.scope, ballot.round, ballot.seat.0, begin.0, lowest.0
            );
            found.push(Violation::new(NAME, detail));
        }
    }
}
