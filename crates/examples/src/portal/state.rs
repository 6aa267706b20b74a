//! A user's roles, and what must be true of them after the run. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::stage::Check;

/// A change of one user's roles. Its id is unique: an update that is sent again is the same update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Update {
    pub(super) id: u64,
    pub(super) role: String,
    /// Granted, or taken away.
    pub(super) grant: bool,
}

/// The value under a user's key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Roles {
    /// The roles.
    pub(super) roles: BTreeSet<String>,
    /// Ids of the updates that led to them, in order. (A real service would keep the last few, for
    /// recognising a repeated request; the example keeps all, as evidence.)
    pub(super) applied: Vec<u64>,
}

impl Roles {
    /// The roles after `update`; none if it was applied before.
    pub(super) fn after(&self, update: &Update) -> Option<Roles> {
        if self.applied.contains(&update.id) {
            return None;
        }
        let mut next = self.clone();
        if update.grant {
            next.roles.insert(update.role.clone());
        } else {
            next.roles.remove(&update.role);
        }
        next.applied.push(update.id);
        Some(next)
    }
}

/// What the observer saw of one user: every update in the order of sending, acknowledged or not. A
/// front end sends an update only after it has given up on or heard of the one before.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) updates: Vec<(Update, bool)>,
}

/// Judges the run, per user.
pub(super) fn judge(seen: &BTreeMap<String, Seen>, finals: &BTreeMap<String, Roles>) -> Vec<Check> {
    let (mut lost, mut twice, mut order, mut roles) = (vec![], vec![], vec![], vec![]);
    for (user, seen) in seen {
        let none = Roles::default();
        let end = finals.get(user).unwrap_or(&none);
        let place = |id: u64| end.applied.iter().position(|applied| *applied == id);
        for (update, acknowledged) in &seen.updates {
            if *acknowledged && place(update.id).is_none() {
                lost.push(format!(
                    "{user}: update {} was acknowledged and is lost",
                    update.id
                ));
            }
        }
        let unique: BTreeSet<u64> = end.applied.iter().copied().collect();
        if unique.len() < end.applied.len() {
            twice.push(format!("{user}: an update was applied twice"));
        }
        let sent: Vec<u64> = seen.updates.iter().map(|(update, _)| update.id).collect();
        let places: Option<Vec<usize>> = (end.applied.iter())
            .map(|id| sent.iter().position(|sent| sent == id))
            .collect();
        if !places.is_some_and(|places| places.is_sorted()) {
            order.push(format!(
                "{user}: updates were applied out of order, or never sent"
            ));
        }
        let mut replayed = Roles::default();
        for id in &end.applied {
            let update = seen.updates.iter().find(|(update, _)| update.id == *id);
            if let Some(next) = update.and_then(|(update, _)| replayed.after(update)) {
                replayed = next;
            }
        }
        if replayed != *end {
            roles.push(format!(
                "{user}: the roles are not what the updates lead to"
            ));
        }
    }
    let check = |claim: &str, violations| Check {
        claim: claim.to_owned(),
        violations,
    };
    vec![
        check("no acknowledged update of a role was lost", lost),
        check(
            "no update was applied twice, though some were sent again",
            twice,
        ),
        check(
            "updates took effect in the order in which they were made",
            order,
        ),
        check("every user has the roles that the updates lead to", roles),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(id: u64) -> Update {
        Update {
            id,
            role: format!("role{}", id % 3),
            grant: id.is_multiple_of(2),
        }
    }

    fn violations(seen: &[(u64, bool)], end: &Roles) -> Vec<usize> {
        let updates = seen
            .iter()
            .map(|&(id, acknowledged)| (update(id), acknowledged));
        let seen = Seen {
            updates: updates.collect(),
        };
        let seen = BTreeMap::from([("u".to_owned(), seen)]);
        let finals = BTreeMap::from([("u".to_owned(), end.clone())]);
        let checks = judge(&seen, &finals);
        checks.iter().map(|check| check.violations.len()).collect()
    }

    fn roles(ids: &[u64]) -> Roles {
        let mut roles = Roles::default();
        for id in ids {
            roles = roles.after(&update(*id)).unwrap();
        }
        roles
    }

    #[test]
    fn an_unacknowledged_update_may_have_taken_effect_or_not() {
        let seen = [(1, true), (2, false), (3, false), (4, true)];
        assert_eq!(violations(&seen, &roles(&[1, 3, 4])), [0; 4]);
    }

    #[test]
    fn a_lost_update_is_found() {
        assert_eq!(
            violations(&[(1, true), (2, true)], &roles(&[1])),
            [1, 0, 0, 0]
        );
    }

    #[test]
    fn a_repeated_update_is_found() {
        let mut end = roles(&[1]);
        end.applied.push(1);
        assert_eq!(violations(&[(1, true)], &end)[1], 1);
    }

    #[test]
    fn wrong_order_and_wrong_roles_are_found() {
        assert_eq!(violations(&[(1, true), (2, true)], &roles(&[2, 1]))[2], 1);
        let mut end = roles(&[2]);
        end.roles.clear();
        assert_eq!(violations(&[(2, true)], &end), [0, 0, 0, 1]);
    }
}
