//! What a command does to the records of its segment.

use super::Change;
use crate::base::{Bug, Planted, SessionId, Timestamp};
use crate::command::{Command, LedgerCommand};
use crate::io::Void;
use crate::ledger::{self, Executed, Reader, Transaction, Verdict};
use crate::wire::encode;
use alloc::vec::Vec;
use bytes::Bytes;

/// What one command does to the records: blind changes, of which the last one of a record stands,
/// and after them what depends on the records. Whoever lacks some remembers it for later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Records that are set or removed, whatever they are.
    pub changes: Vec<Change>,
    /// A command of the segment's ledger.
    pub ordered: Option<Ordered>,
}

/// A command of a ledger that has its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    session: SessionId,
    number: u64,
    order: Order,
}

/// What there is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Carry a transaction out at a time, of which all that it reads has so many bytes at most.
    Execute(Timestamp, usize, Transaction),
    /// Nothing, and this is what came of it.
    Note(Verdict),
}

impl Ordered {
    /// What there is to do for a command, in a log that states this limit.
    pub(crate) fn new(
        command: &Command,
        body: &LedgerCommand,
        limit: Timestamp,
        planted: Planted,
    ) -> Ordered {
        let order = match body {
            // The limit that was proposed before it is not there: whoever has led since may have
            // closed or promised beyond it (L1).
            LedgerCommand::Transact { at, .. }
                if *at > limit && !planted.has(Bug::AboveLimitTakesEffect) =>
            {
                Order::Note(Verdict::Void)
            }
            LedgerCommand::Transact {
                at,
                most,
                transaction,
            } => Order::Execute(*at, *most as usize, transaction.clone()),
            LedgerCommand::Never => Order::Note(Verdict::Never),
            #[cfg(feature = "planted-bugs")]
            LedgerCommand::Puts(_) => Order::Note(Verdict::Void),
        };
        Ordered {
            session: command.session,
            number: command.number,
            order,
        }
    }
}

impl Work {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.ordered.is_none()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let change = |change: &Change| {
            size_of::<Change>() + change.name.len() + change.value.as_ref().map_or(0, Bytes::len)
        };
        let ordered = self.ordered.as_ref().map_or(0, |ordered| {
            let named = match &ordered.order {
                Order::Execute(_, _, transaction) => transaction.bytes(),
                Order::Note(_) => 0,
            };
            size_of::<Ordered>() + named
        });
        self.changes.iter().map(change).sum::<usize>() + ordered
    }

    /// All that it changes, by what the records are now, and what came of a command of a ledger.
    ///
    /// # Errors
    /// A record is damaged: nothing is known of what it does.
    pub(crate) fn perform(
        &self,
        reader: &Reader<'_>,
        planted: Planted,
    ) -> Result<(Vec<Change>, Option<Verdict>), Void> {
        let mut changes = self.changes.clone();
        let Some(ordered) = &self.ordered else {
            return Ok((changes, None));
        };
        let executed = match &ordered.order {
            Order::Execute(at, most, transaction) => {
                ledger::execute(transaction, (*at, *most), reader, planted)?
            }
            Order::Note(verdict) => Executed {
                verdict: verdict.clone(),
                changes: Vec::new(),
            },
        };
        changes.extend(executed.changes);
        changes.push(Change {
            name: ledger::outcome_name(ordered.session, ordered.number),
            value: Some(encode(&executed.verdict.without_reads())),
        });
        Ok((changes, Some(executed.verdict)))
    }
}
