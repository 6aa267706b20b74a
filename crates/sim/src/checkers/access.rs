//! The access policy as clients see it: at most one change follows another (compare-and-set), and
//! whoever reads it later than a change was answered sees that, or what came after it.

use super::Violation;
use crate::history::{Heard, History, What};

/// What the checker calls itself in a violation.
pub const NAME: &str = "access policy";

/// Checks all changes and reads of the policy.
pub fn check(history: &History, found: &mut Vec<Violation>) {
    let changes = history.ops.iter().filter_map(|op| match op.what {
        What::ChangeAccess(after) if matches!(op.outcome, Heard::Done(_)) => Some((op, after)),
        _ => None,
    });
    let mut followed: Vec<(u64, u64)> = Vec::new();
    for (op, after) in changes {
        if followed.iter().any(|(other, _)| *other == after) {
            let detail = format!("two changes have replaced the policy of change {after}");
            found.push(Violation::new(NAME, detail));
        }
        followed.extend(op.returned.map(|at| (after, at)));
    }
    for read in &history.ops {
        let Heard::Access(version) = read.outcome else {
            continue;
        };
        let replaced = |(after, at): &&(u64, u64)| version <= *after && *at < read.invoked;
        if let Some((after, _)) = followed.iter().find(replaced) {
            let detail = format!(
                "the policy of change {version} was read, though that of change {after} had been \
                 replaced before"
            );
            found.push(Violation::new(NAME, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_check::sections::ClientId;
    use fermata_protocol::base::SessionId;

    /// Operations of one client each: what, when, and how it ended.
    fn judged(ops: &[(What, (u64, u64), Heard)]) -> usize {
        let mut history = History::default();
        for (number, (what, (from, to), heard)) in ops.iter().enumerate() {
            let client = ClientId(number as u32);
            let who = (client, SessionId(number as u128));
            let id = history.invoke(*from, who, None, what.clone());
            history.complete(*to, id, heard.clone());
        }
        let mut found = Vec::new();
        check(&history, &mut found);
        found.len()
    }

    #[test]
    fn one_change_follows_another_and_reads_see_it() {
        let change = |after, at| (What::ChangeAccess(after), at, Heard::Done(None));
        let read = |version, at| (What::Access, at, Heard::Access(version));
        assert_eq!(
            judged(&[change(0, (1, 2)), change(4, (3, 5)), read(9, (6, 7))]),
            0
        );
        assert_eq!(
            judged(&[change(0, (1, 3)), read(0, (2, 4))]),
            0,
            "at the same time"
        );
        assert_eq!(judged(&[change(0, (1, 2)), change(0, (3, 5))]), 1);
        assert_eq!(judged(&[change(4, (1, 2)), read(4, (3, 4))]), 1);
        assert_eq!(judged(&[change(4, (1, 2)), read(0, (3, 4))]), 1);
    }
}
