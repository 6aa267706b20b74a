//! Ledgers: the transactions and snapshots of a history are strictly serializable, by the
//! timestamps that they were told and by the versions that they read; snapshots show sums that
//! never change; and what was committed is so at every member.

use super::Violation;
use crate::history::{Heard, History, Op, What};
use crate::ledger::{ACCOUNTS, FUNDS, is_account, is_list, numbers};
use fermata_check::Ending;
use fermata_check::transactions::{self as check, Action, Verdict as Judged};
use fermata_protocol::base::{KeyId, Timestamp};
use fermata_protocol::ledger::{Act, Done, Found, Item, Part, Transaction, Verdict, When};
use std::collections::{BTreeMap, BTreeSet};

/// What the checker calls itself in a violation.
pub const NAME: &str = "strictly serializable";

/// When each number was written, by the versions that replicas have: of a transaction whose client
/// was told nothing.
pub type Written = BTreeMap<(KeyId, u64), Timestamp>;

/// Added to the number of a client whose transaction is a read.
const READS: u64 = 1 << 32;

/// Checks a history. `written` says when numbers were written whose writers know nothing.
pub fn check(history: &History, written: &Written, found: &mut Vec<Violation>) {
    let keys = keys(history);
    if keys.is_empty() {
        return;
    }
    sums(history, found);
    real_time(history, found);
    let all: Vec<_> = history
        .ops
        .iter()
        .filter_map(|op| transaction(op, &keys, written))
        .collect();
    let lists: Vec<_> = all.iter().map(only_lists).collect();
    // A read of the present is somewhere between the newest version that it found and its time: by
    // versions, and by `real_time`, that is as good as being there when it ran.
    let mut all = all;
    for read in all.iter_mut().filter(|t| t.client >= READS) {
        (read.snapshot, read.client) = (true, read.client - READS);
    }
    for (what, transactions) in [("timestamps", all), ("versions", lists)] {
        let history = match check::History::new(transactions) {
            Ok(history) => history,
            Err(why) => {
                found.push(Violation::new(NAME, format!("the history is wrong: {why}")));
                continue;
            }
        };
        let judged = match what {
            "timestamps" => check::by_timestamp(&history),
            _ => check::by_versions(&history),
        };
        match judged {
            Judged::Serializable => {}
            Judged::Violation(violation) => {
                let told = violation.tell(&|key: &KeyId| crate::show::key(key));
                found.push(Violation::new(NAME, format!("by {what}: {told}")));
            }
            Judged::Undecided(why) => {
                found.push(Violation::new(NAME, format!("by {what} undecided: {why}")));
            }
        }
    }
}

/// All keys of numbers that the history names, for ranges that do not find them.
fn keys(history: &History) -> BTreeSet<KeyId> {
    let mut keys = BTreeSet::new();
    let mut note = |item: Item<'_>| {
        if let Item::Key(key) = item {
            keys.insert(key.clone());
        }
    };
    for op in &history.ops {
        match &op.what {
            What::Transact(asked) => asked.items().for_each(&mut note),
            What::Snapshot(parts, _) => parts.iter().map(Part::item).for_each(&mut note),
            _ => {}
        }
    }
    keys
}

fn only_lists(all: &check::Transaction<KeyId>) -> check::Transaction<KeyId> {
    let lists =
        |action: &&Action<KeyId>| matches!(action, Action::Append { .. } | Action::List { .. });
    check::Transaction {
        actions: all.actions.iter().filter(lists).cloned().collect(),
        ..all.clone()
    }
}

fn transaction(
    op: &Op,
    keys: &BTreeSet<KeyId>,
    written: &Written,
) -> Option<check::Transaction<KeyId>> {
    let (actions, at, snapshot) = match (&op.what, &op.outcome) {
        (What::Transact(asked), Heard::Transacted(Verdict::Done { at, then, done })) => {
            (acts(asked, *then, done.as_deref(), keys), Some(*at), false)
        }
        (What::Transact(asked), _) => {
            let actions = acts(asked, true, None, keys);
            let at = actions.iter().find_map(|action| match action {
                Action::Append { key, value } | Action::Write { key, value } => {
                    written.get(&(key.clone(), *value)).copied()
                }
                _ => None,
            });
            (actions, at, false)
        }
        (What::Snapshot(parts, when), Heard::Snapshot(at, found)) => {
            let mut actions = Vec::new();
            for (part, found) in parts.iter().zip(found) {
                read(&part.item(), found, keys, &mut actions);
            }
            (actions, Some(*at), *when != When::Now)
        }
        _ => return None,
    };
    let outcome = match op.outcome {
        Heard::Transacted(_) | Heard::Snapshot(..) => Ending::Ok { returned: op.end() },
        Heard::Failed(_) => Ending::Failed,
        _ => Ending::Unknown,
    };
    let reads = matches!(op.what, What::Snapshot(..));
    Some(check::Transaction {
        client: u64::from(op.client.0) + READS * u64::from(reads),
        begin: op.invoked,
        outcome,
        timestamp: at.map(|at| (at.micros, at.logical)),
        snapshot,
        actions,
    })
}

/// What a branch did with numbers. Reads come first: a transaction does not see what it writes.
fn acts(
    asked: &Transaction,
    then: bool,
    done: Option<&[Done]>,
    keys: &BTreeSet<KeyId>,
) -> Vec<Action<KeyId>> {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for (n, act) in asked.branch(then).iter().enumerate() {
        match (act, done.and_then(|done| done.get(n))) {
            (Act::Get(key), Some(Done::Value(value))) => {
                let found = value.iter().map(|value| (key.key.clone(), value.clone()));
                let found = Found {
                    keys: found.collect(),
                    more: false,
                };
                read(&act.item(), &found, keys, &mut reads);
            }
            (Act::Range { .. }, Some(Done::Range(found))) => {
                read(&act.item(), found, keys, &mut reads);
            }
            (Act::Put { key, value }, _) if !is_account(key) => {
                let (key, value) = (key.clone(), numbers(value).last().copied());
                let value = value.expect("a number is put");
                writes.push(match is_list(&key) {
                    true => Action::Append { key, value },
                    false => Action::Write { key, value },
                });
            }
            _ => {}
        }
    }
    reads.extend(writes);
    reads
}

/// What was read of all keys that an item has.
fn read(item: &Item<'_>, found: &Found, keys: &BTreeSet<KeyId>, into: &mut Vec<Action<KeyId>>) {
    let named = keys.iter().filter(|key| item.meets(&Item::Key(key)));
    // What is above the last key of a range that is cut nobody was told.
    let last = found.keys.last().map(|(name, _)| name);
    let told = |key: &&KeyId| !found.more || last.is_some_and(|last| key.key <= *last);
    for key in named.filter(|key| !is_account(key)).filter(told) {
        let there = found.keys.iter().find(|(name, _)| *name == key.key);
        let values = there.map_or(Vec::new(), |(_, value)| numbers(&value.value));
        let (key, value) = (key.clone(), values.last().copied());
        into.push(match is_list(&key) {
            true => Action::List { key, values },
            false => Action::Read { key, value },
        });
    }
}

/// Whoever begins after another's end is not before it: a transaction has a higher timestamp than
/// all that was told, and a read of the present is not at a lower time.
fn real_time(history: &History, found: &mut Vec<Violation>) {
    let mut ends: Vec<(u64, Timestamp, usize)> = Vec::new();
    let mut begins: Vec<(u64, Timestamp, bool, usize)> = Vec::new();
    for (n, op) in history.ops.iter().enumerate() {
        match (&op.what, &op.outcome) {
            (_, Heard::Transacted(Verdict::Done { at, .. })) => {
                ends.push((op.end(), *at, n));
                begins.push((op.invoked, *at, true, n));
            }
            (What::Snapshot(_, when), Heard::Snapshot(at, found)) => {
                let versions = found.iter().flat_map(|found| &found.keys);
                if let Some(newest) = versions.map(|(_, value)| value.version).max() {
                    ends.push((op.end(), newest, n));
                }
                if *when == When::Now {
                    begins.push((op.invoked, *at, false, n));
                }
            }
            _ => {}
        }
    }
    ends.sort_unstable();
    begins.sort_unstable();
    let mut ended = ends.into_iter().peekable();
    let mut highest: Option<(Timestamp, usize)> = None;
    for (begin, at, writes, n) in begins {
        while let Some((_, told, before)) = ended.next_if(|(end, ..)| *end < begin) {
            highest = highest.max(Some((told, before)));
        }
        let Some((told, before)) = highest else {
            continue;
        };
        if at < told || writes && at == told {
            let detail = format!(
                "operation {n} at {}.{} began after {before} had told of {}.{}",
                at.micros, at.logical, told.micros, told.logical
            );
            found.push(Violation::new(NAME, detail));
            return;
        }
    }
}

/// Whoever sees all accounts of a tag sees what was put into them.
fn sums(history: &History, found: &mut Vec<Violation>) {
    for (n, op) in history.ops.iter().enumerate() {
        let ranges: Vec<&Found> = match &op.outcome {
            Heard::Snapshot(_, found) => found.iter().collect(),
            Heard::Transacted(Verdict::Done {
                done: Some(done), ..
            }) => done
                .iter()
                .filter_map(|done| match done {
                    Done::Range(found) => Some(found),
                    _ => None,
                })
                .collect(),
            _ => continue,
        };
        // Of one that is cut some accounts may be missing.
        for range in ranges.into_iter().filter(|range| !range.more) {
            let mut tags: BTreeMap<Vec<u8>, Vec<i64>> = BTreeMap::new();
            for (name, value) in &range.keys {
                let Some(mark) = name.iter().position(|byte| *byte == b'/') else {
                    continue;
                };
                if name.get(mark + 1) == Some(&b'a') {
                    let text = String::from_utf8_lossy(&value.value);
                    let account = text.parse().unwrap_or(i64::MIN / 8);
                    tags.entry(name[..mark].to_vec()).or_default().push(account);
                }
            }
            for (tag, accounts) in tags {
                let sum: i64 = accounts.iter().sum();
                let right = accounts.len() == ACCOUNTS && sum == FUNDS * ACCOUNTS as i64;
                if !right {
                    let tag = String::from_utf8_lossy(&tag).into_owned();
                    let detail = format!("operation {n} sees the accounts {accounts:?} of {tag}");
                    found.push(Violation::new(NAME, detail));
                }
            }
        }
    }
}
