//! Linearizability of read/write registers, by `fermata-check`: keys are independent, so each is
//! checked alone.
//!
//! A write whose outcome is unknown may take effect at any time after its call, or never. A read
//! whose outcome is unknown says nothing. Values are unique but for deletes, so nothing is too long
//! for a verdict; a history that is, all the same, is reported: unchecked is not correct.

use super::{Violation, show};
use crate::history::{self, History, What};
use bytes::Bytes;
use fermata_check::{Action, Bound, Ending, Operation, Verdict, check_register, diagram};
use fermata_protocol::base::KeyId;
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "linearizability";

/// What was done with each register that is promised to be linearizable; times in microseconds.
pub fn registers(history: &History) -> BTreeMap<KeyId, Vec<Operation<Bytes>>> {
    let mut registers: BTreeMap<KeyId, Vec<Operation<Bytes>>> = BTreeMap::new();
    for op in &history.ops {
        let (key, action) = match (&op.what, &op.outcome) {
            (What::Write(key, value), _) => (key, Action::Write(value.clone())),
            (What::Read(key), history::Heard::Value(value)) => (key, Action::Read(value.clone())),
            _ => continue,
        };
        let outcome = match (&op.outcome, op.returned) {
            (history::Heard::Failed(_), _) => Ending::Failed,
            (history::Heard::Done(_) | history::Heard::Value(_), Some(returned)) => {
                Ending::Ok { returned }
            }
            _ => Ending::Unknown,
        };
        // Whose tags are times (F9).
        let timed = history.catalogue.storage(key).has_one_round_writes();
        let ordered = !(timed && history.false_intervals);
        if ordered && !history.catalogue.has_sections(key) && !history.catalogue.is_deleted(key) {
            registers.entry(key.clone()).or_default().push(Operation {
                client: u64::from(op.client.0),
                call: op.invoked,
                action,
                outcome,
            });
        }
    }
    registers
}

/// Checks all register keys.
pub fn check(history: &History, found: &mut Vec<Violation>) {
    for (key, operations) in registers(history) {
        let name = String::from_utf8_lossy(&key.key);
        let detail = match check_register(&operations, Bound::default()) {
            Verdict::Linearizable => continue,
            Verdict::Violation(part) => {
                let text = |value: &Bytes| show(&Some(value.clone()));
                let picture = diagram(&operations, &part.operations, text);
                format!("register {name}: no order explains\n{picture}")
            }
            Verdict::Undecided => format!("register {name}: too much is unknown for a verdict"),
        };
        found.push(Violation::new(NAME, detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::ClientId;
    use fermata_protocol::base::{Keyspace, SessionId};

    fn history(ops: &[(What, u64, Option<u64>)]) -> Vec<Violation> {
        let mut history = History::default();
        for (what, invoked, returned) in ops {
            let id = history.invoke(*invoked, (ClientId(0), SessionId(0)), None, what.clone());
            if let Some(returned) = returned {
                let outcome = match what {
                    What::Read(_) => history::Heard::Value(Some(Bytes::from_static(b"a"))),
                    _ => history::Heard::Done(None),
                };
                history.complete(*returned, id, outcome);
            }
        }
        let mut found = Vec::new();
        check(&history, &mut found);
        found
    }

    #[test]
    fn a_read_of_what_was_written_over_is_no_order_and_one_of_a_lost_write_is() {
        let key = KeyId {
            keyspace: Keyspace::REGISTERS,
            key: Bytes::from_static(b"r"),
        };
        let write = |text: &'static str| What::Write(key.clone(), Some(text.into()));
        let read = (What::Read(key.clone()), 30, Some(40));
        let known = [
            (write("a"), 1, Some(5)),
            (write("b"), 10, Some(20)),
            read.clone(),
        ];
        assert_eq!(history(&known).len(), 1);
        let unknown = [(write("b"), 1, Some(5)), (write("a"), 10, None), read];
        assert_eq!(history(&unknown), []);
    }
}
