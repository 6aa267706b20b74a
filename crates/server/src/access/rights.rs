//! What a request needs: one table, over all operations, for every face.

use crate::music::KEYSPACE;
use fermata_access::{Grants, Right};
use fermata_api::Names;
use fermata_protocol::base::KeyId;
use fermata_protocol::ledger::{Act, Item, Part, Span};
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

/// The same over a key or a range: over all keys that begin as its ends both do.
fn may_item(grants: &Grants, names: &Names, right: Right, item: &Item<'_>) -> bool {
    let span = match item {
        Item::Key(key) => return may(grants, names, right, key),
        Item::Span(span) => span,
    };
    let Some((name, _)) = names.named(span.keyspace) else {
        return grants.may_everywhere(right);
    };
    let is_prefix = Span::prefix(span.keyspace, &span.from).to == span.to;
    let to = span.to.as_deref().unwrap_or_default();
    let alike = span.from.iter().zip(to).take_while(|(a, b)| a == b);
    let length = match is_prefix {
        true => span.from.len(),
        false => alike.count(),
    };
    let prefix: &[u8] = match name {
        KEYSPACE => b"",
        _ => &span.from[..length],
    };
    grants.may_prefix(right, name, prefix)
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
        Operation::Transact(transaction) => {
            let compared = transaction.compare.iter();
            let mut reads = compared.map(|compare| Item::Key(&compare.key));
            let item = |right, item: &Item<'_>| may_item(grants, names, right, item);
            reads.all(|read| item(Right::Read, &read))
                && transaction.acts().all(|act| {
                    let told = !act.writes() || matches!(act, Act::Add { .. });
                    (!told || item(Right::Read, &act.item()))
                        && (!act.writes() || item(Right::Write, &act.item()))
                })
        }
        Operation::Resolve { key: id, .. } => key(Right::Write, id) || key(Right::Read, id),
        Operation::Snapshot { parts, .. } => {
            let items = parts.iter().map(Part::item);
            let mut items = items.map(|item| may_item(grants, names, Right::Read, &item));
            items.all(|may| may)
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
