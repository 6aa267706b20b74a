//! What a request needs: one table, over all operations, for every face.

use crate::music::KEYSPACE;
use fermata_access::{Grants, Right};
use fermata_api::Names;
use fermata_protocol::base::KeyId;
use fermata_protocol::ledger::{Act, Item, Part, Span, Transaction};
use fermata_protocol::request::{Critical, Operation};

/// What may be done of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All of it.
    Whole,
    /// Nothing.
    Refused,
    /// A heartbeat, but for the refs at these places.
    But(Vec<usize>),
}

/// Whether `grants` have a right over a key.
pub(super) fn may(grants: &Grants, names: &Names, right: Right, id: &KeyId) -> bool {
    match names.named(id.keyspace) {
        // Rules name rows there: the keys that they are kept in are for who has all of them.
        Some((KEYSPACE, _)) => grants.may_prefix(right, KEYSPACE, b""),
        Some((name, rule)) => grants.may(right, name, &id.key, || rule.tag(&id.key)),
        // One that was deleted, or never was: to be told so, one may see all.
        None => grants.may_everywhere(right),
    }
}

/// The same over a key or a range: over all keys that begin as all of the range do.
fn may_item(grants: &Grants, names: &Names, right: Right, item: &Item<'_>) -> bool {
    let span = match item {
        Item::Key(key) => return may(grants, names, right, key),
        Item::Span(span) => span,
    };
    match names.named(span.keyspace) {
        None => grants.may_everywhere(right),
        Some((KEYSPACE, _)) => grants.may_prefix(right, KEYSPACE, b""),
        Some((name, _)) => grants.may_prefix(right, name, common_prefix(span)),
    }
}

/// The longest prefix that all keys of a range have.
fn common_prefix(span: &Span) -> &[u8] {
    let from = &span.from[..];
    let full = |from: &[u8]| from.iter().take_while(|byte| **byte == u8::MAX).count();
    let Some(to) = &span.to else {
        return &from[..full(from)];
    };
    let alike = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    // Up to the first key that begins otherwise, and not further.
    let length = match (from.get(alike), &to[alike..]) {
        (Some(last), [next]) if last.checked_add(1) == Some(*next) => {
            alike + 1 + full(&from[alike + 1..])
        }
        _ => alike,
    };
    &from[..length]
}

/// Whether they may be told values, and of a range which keys there are.
fn may_see(grants: &Grants, names: &Names, item: &Item<'_>) -> bool {
    let has = |right| may_item(grants, names, right, item);
    has(Right::Read) && (matches!(item, Item::Key(_)) || has(Right::List))
}

/// Of both branches: which one is done nobody knows before. A put tells nothing of what was there;
/// a delete says how much, an add what comes of it.
fn may_transact(grants: &Grants, names: &Names, transaction: &Transaction) -> bool {
    let has = |right, item: &Item<'_>| may_item(grants, names, right, item);
    let compared = transaction.compare.iter();
    let mut compared = compared.map(|compare| Item::Key(&compare.key));
    compared.all(|item| has(Right::Read, &item))
        && transaction.acts().all(|act| match act {
            Act::Get(_) | Act::Range { .. } => may_see(grants, names, &act.item()),
            Act::Put { .. } => has(Right::Write, &act.item()),
            Act::Delete(_) | Act::DeleteRange(_) | Act::Add { .. } => {
                has(Right::Read, &act.item()) && has(Right::Write, &act.item())
            }
        })
}

/// What `grants` allow of an operation.
pub(super) fn verdict(grants: &Grants, names: &Names, operation: &Operation) -> Verdict {
    let key = |right, id: &KeyId| may(grants, names, right, id);
    let keyspace = |id, right, prefix: &[u8]| match names.named(id) {
        Some((KEYSPACE, _)) => grants.may_prefix(right, KEYSPACE, b""),
        Some((name, _)) => grants.may_prefix(right, name, prefix),
        None => grants.may_everywhere(right),
    };
    let allowed = match operation {
        Operation::Get { key: id }
        | Operation::Read { key: id }
        | Operation::Inspect { key: id } => key(Right::Read, id),
        Operation::Put { key: id, .. } | Operation::Write { key: id, .. } => key(Right::Write, id),
        Operation::Enter { keys, .. } => keys.iter().all(|id| key(Right::Lock, id)),
        Operation::Resume { held, .. } => held.iter().all(|held| key(Right::Lock, &held.key)),
        Operation::Critical {
            held, operation, ..
        } => {
            let right = match operation {
                Critical::Get => Right::Read,
                Critical::Put { .. } => Right::Write,
            };
            key(Right::Lock, &held.key) && key(right, &held.key)
        }
        Operation::Renew { held } | Operation::Relinquish { held } => {
            let denied = |(at, held): (usize, &fermata_protocol::request::Held)| {
                (!key(Right::Lock, &held.key)).then_some(at)
            };
            let denied: Vec<usize> = held.iter().enumerate().filter_map(denied).collect();
            return match denied.is_empty() {
                true => Verdict::Whole,
                false => Verdict::But(denied),
            };
        }
        // Who gives something up needs no right to it: the session's secret is enough.
        Operation::Leave { .. } => true,
        // Whoever reads the latest value has to know whether somebody is about to change it.
        Operation::Queue { key: id } => key(Right::Lock, id) || key(Right::Read, id),
        Operation::Release { key: id, .. } => key(Right::Release, id),
        Operation::Keys {
            keyspace: id,
            prefix,
            ..
        } => keyspace(*id, Right::List, prefix),
        Operation::Transact(transaction) => may_transact(grants, names, transaction),
        Operation::Resolve { key: id, .. } => key(Right::Write, id) || key(Right::Read, id),
        Operation::Snapshot { parts, .. } => {
            let mut items = parts.iter().map(Part::item);
            items.all(|item| may_see(grants, names, &item))
        }
        Operation::ChangeKeyspace { keyspace: id, .. }
        | Operation::DeleteKeyspace { keyspace: id } => keyspace(*id, Right::Admin, b""),
        Operation::CreateKeyspace(_)
        | Operation::ChangeSettings(_)
        | Operation::ChangeAccess { .. }
        | Operation::Access
        | Operation::Admit { .. }
        | Operation::ChangeRing(_) => grants.may_everywhere(Right::Admin),
        Operation::Status | Operation::Ring => {
            grants.may_everywhere(Right::List) || grants.may_everywhere(Right::Admin)
        }
        // Each is shown those that it may know of.
        Operation::Keyspaces | Operation::Catalogue => true,
    };
    match allowed {
        true => Verdict::Whole,
        false => Verdict::Refused,
    }
}

/// Whether all keys of a request that waits, or follows a section, are of keyspaces that there are:
/// of others whoever answers it says that they were deleted.
pub(super) fn are_named(names: &Names, operation: &Operation) -> bool {
    let is = |id: &KeyId| names.named(id.keyspace).is_some();
    match operation {
        Operation::Enter { keys, .. } => keys.iter().all(is),
        Operation::Resume { held, .. } => held.iter().all(|held| is(&held.key)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_access::{Judge, Policy};
    use fermata_protocol::base::Keyspace;
    use fermata_protocol::ledger::{Compare, Condition, When};

    /// What rules over the keyspace `default` allow of an operation there.
    fn allowed(rules: &[(&str, &str)], operation: &Operation) -> bool {
        let rules = rules.iter().map(|(right, prefix)| {
            serde_json::json!({"keyspace": "default", "rights": [right], "prefix": prefix})
        });
        let policy = serde_json::json!({
            "enabled": true,
            "roles": {"some": rules.collect::<Vec<_>>()},
            "principals": {"ann": {"roles": ["some"]}},
        });
        let policy: Policy = serde_json::from_value(policy).expect("a policy");
        let judge = Judge::of(&policy);
        let names = Names::new(&Keyspace::built_in(), vec![]);
        let grants = judge.grants("ann").expect("a principal");
        verdict(grants, &names, operation) == Verdict::Whole
    }

    fn key(name: &'static str) -> KeyId {
        KeyId {
            keyspace: Keyspace::SECTIONS,
            key: name.into(),
        }
    }

    fn prefix(name: &'static str) -> Span {
        Span::prefix(Keyspace::SECTIONS, &name.into())
    }

    fn transact(then: Act) -> Operation {
        Operation::Transact(Transaction {
            then: vec![then],
            ..Transaction::default()
        })
    }

    #[test]
    fn a_transaction_wants_what_each_of_its_acts_does() {
        let (a, span) = (|| key("a/1"), || prefix("a/"));
        let value = "v".into();
        let add = Act::Add {
            key: a(),
            by: 1,
            least: None,
            most: None,
        };
        let range = Act::Range {
            span: span(),
            limit: 1,
        };
        let acts = [
            (Act::Get(a()), vec!["read"]),
            (range, vec!["read", "list"]),
            (Act::Put { key: a(), value }, vec!["write"]),
            (Act::Delete(a()), vec!["read", "write"]),
            (Act::DeleteRange(span()), vec!["read", "write"]),
            (add, vec!["read", "write"]),
        ];
        for (act, rights) in acts {
            let operation = transact(act);
            let all: Vec<_> = rights.iter().map(|right| (*right, "a/")).collect();
            assert!(allowed(&all, &operation), "{operation:?}");
            for (at, right) in rights.iter().enumerate() {
                let mut others = all.clone();
                others.remove(at);
                assert!(
                    !allowed(&others, &operation),
                    "{operation:?} without {right}"
                );
                others.push((right, "b/"));
                assert!(!allowed(&others, &operation), "{operation:?} elsewhere");
            }
        }
    }

    #[test]
    fn a_transaction_wants_what_the_branch_wants_that_is_not_done() {
        let operation = Operation::Transact(Transaction {
            compare: vec![Compare {
                key: key("c"),
                condition: Condition::Exists(true),
            }],
            then: vec![Act::Get(key("a"))],
            or_else: vec![Act::Get(key("b"))],
        });
        let reads = [("read", "a"), ("read", "b"), ("read", "c")];
        assert!(allowed(&reads, &operation));
        for without in 0..3 {
            let mut some = reads.to_vec();
            some.remove(without);
            assert!(!allowed(&some, &operation));
        }
    }

    #[test]
    fn a_range_wants_the_right_over_all_of_it() {
        let rules = [("read", "a/"), ("list", "a/")];
        let of = |span: Span| Operation::Snapshot {
            parts: vec![Part::Range { span, limit: 1 }],
            when: When::Now,
        };
        assert!(allowed(&rules, &of(prefix("a/"))));
        assert!(allowed(&rules, &of(prefix("a/x"))));
        assert!(allowed(&rules, &of(prefix("a/").above(&"a/x".into()))));
        assert!(!allowed(&rules, &of(prefix("a"))));
        assert!(!allowed(&rules, &of(prefix(""))));
        let full = Span {
            from: b"a/\xff\xff"[..].into(),
            ..prefix("a/")
        };
        assert_eq!(common_prefix(&full), b"a/\xff\xff");
        assert!(allowed(&rules, &of(full)));
        let open = Span {
            to: None,
            ..prefix("a/")
        };
        assert!(!allowed(&rules, &of(open)));
        let beyond = Span {
            to: Some("b".into()),
            ..prefix("a/")
        };
        assert!(!allowed(&rules, &of(beyond)));
        assert!(!allowed(&rules[..1], &of(prefix("a/"))), "names are listed");
        let one = Operation::Snapshot {
            parts: vec![Part::Key(key("a/x"))],
            when: When::Now,
        };
        assert!(allowed(&rules[..1], &one));
    }
}
