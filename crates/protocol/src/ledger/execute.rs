//! What a transaction does, where it is applied: a function of its timestamp and of the records
//! alone (L7).

use super::reader::Reader;
use super::versions::{self, Seen};
use super::{Act, Condition, Done, Item, RANGE_MAX, Transaction, Verdict, Versioned};
use crate::base::{Bug, KeyId, Planted, Timestamp};
use crate::io::Void;
use crate::records::Change;
use crate::request::{Code, Refusal};
use alloc::format;
use alloc::vec::Vec;
use bytes::Bytes;

/// What came of it, and what it changes.
#[derive(Debug)]
pub(crate) struct Executed {
    pub(crate) verdict: Verdict,
    pub(crate) changes: Vec<Change>,
}

/// Why nothing is done.
enum Stop {
    Void,
    Overtaken,
    Refused(Refusal),
}

impl From<Void> for Stop {
    fn from(_: Void) -> Stop {
        Stop::Void
    }
}

/// Carries a transaction out at `at`, which stands in its command, as `most` does: what it reads
/// may have so many bytes.
///
/// # Errors
/// A record is damaged: nothing is known of what it does.
pub(crate) fn execute(
    transaction: &Transaction,
    (at, most): (Timestamp, usize),
    reader: &Reader<'_>,
    planted: Planted,
) -> Result<Executed, Void> {
    let mut changes = Vec::new();
    let lax = planted.has(Bug::OvertakenTakesEffect);
    let done = carry_out(transaction, (at, most), reader, (&mut changes, lax));
    let verdict = match done {
        Ok((then, done)) => Verdict::Done {
            at,
            then,
            done: Some(done),
        },
        Err(stop) => {
            changes.clear();
            match stop {
                Stop::Void => return Err(Void),
                Stop::Overtaken => Verdict::Void,
                Stop::Refused(why) => Verdict::Refused(why),
            }
        }
    };
    Ok(Executed { verdict, changes })
}

fn carry_out(
    transaction: &Transaction,
    at: (Timestamp, usize),
    reader: &Reader<'_>,
    (changes, lax): (&mut Vec<Change>, bool),
) -> Result<(bool, Vec<Done>), Stop> {
    for item in transaction.items() {
        if let Item::Key(key) = item
            && let Some((newest, _)) = versions::at(key, Timestamp::MAX, reader)?
            && newest >= at.0
            && !lax
        {
            return Err(Stop::Overtaken);
        }
    }
    let then = holds(transaction, at.0, reader)?;
    let branch = transaction.branch(then);
    Ok((then, perform(branch, at, reader, (changes, lax))?))
}

/// What a transaction that was carried out at `at` is told, read anew.
///
/// # Errors
/// A record is damaged.
pub(crate) fn again(
    transaction: &Transaction,
    then: bool,
    (at, most): (Timestamp, usize),
    reader: &Reader<'_>,
) -> Result<Option<Vec<Done>>, Void> {
    // By now there may be newer versions of what it read.
    let nothing = (&mut Vec::new(), true);
    match perform(transaction.branch(then), (at, most), reader, nothing) {
        Ok(done) => Ok(Some(done)),
        Err(Stop::Void) => Err(Void),
        Err(Stop::Refused(_) | Stop::Overtaken) => Ok(None),
    }
}

/// The last moment before one.
fn before(at: Timestamp) -> Timestamp {
    match at.logical.checked_sub(1) {
        Some(logical) => Timestamp { logical, ..at },
        None => Timestamp {
            micros: at.micros.saturating_sub(1),
            logical: u16::MAX,
        },
    }
}

fn read(
    key: &KeyId,
    at: Timestamp,
    reader: &Reader<'_>,
) -> Result<Option<Versioned>, Void> {
    let found = versions::at(key, before(at), reader)?;
    Ok(found.and_then(|(version, value)| Some(Versioned { value: value?, version })))
}

fn holds(
    transaction: &Transaction,
    at: Timestamp,
    reader: &Reader<'_>,
) -> Result<bool, Stop> {
    for compare in &transaction.compare {
        let found = read(&compare.key, at, reader)?;
        let value = found.as_ref().map(|found| &found.value);
        let holds = match &compare.condition {
            Condition::Exists(wanted) => found.is_some() == *wanted,
            Condition::Version(relation, version) => {
                let here = found.as_ref().map_or(Timestamp::default(), |f| f.version);
                relation.holds(&here, version)
            }
            Condition::Value(relation, wanted) => relation.holds(&value, &Some(wanted)),
            Condition::Number(relation, wanted) => {
                relation.holds(&number(&compare.key, value)?, wanted)
            }
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The decimal number under a key; 0 where it is absent.
fn number(key: &KeyId, value: Option<&Bytes>) -> Result<i64, Stop> {
    let Some(value) = value else {
        return Ok(0);
    };
    let text = core::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        let text = format!(
            "the transaction was not done: the value of `{}` is not a decimal number of 64 bits; \
             compare its value or put one first",
            shown(&key.key)
        );
        Stop::Refused(Refusal::definite(Code::BadRequest, text))
    })
}

/// A key for people.
fn shown(key: &[u8]) -> alloc::string::String {
    alloc::string::String::from_utf8_lossy(key).into_owned()
}

/// Does the acts of a branch: what they are told, and what they change.
fn perform(
    branch: &[Act],
    (at, most): (Timestamp, usize),
    reader: &Reader<'_>,
    (changes, lax): (&mut Vec<Change>, bool),
) -> Result<Vec<Done>, Stop> {
    let mut room = most;
    let overtaken = |above: bool| match above && !lax {
        true => Err(Stop::Overtaken),
        false => Ok(()),
    };
    let mut write = |key: &KeyId, value: Option<&Bytes>| {
        changes.push(Change {
            name: versions::name(key, at),
            value: Some(versions::content(value)),
        });
    };
    let mut all = Vec::with_capacity(branch.len());
    for act in branch {
        all.push(match act {
            Act::Get(key) => {
                let found = read(key, at, reader)?;
                take(&mut room, found.as_ref().map_or(0, |found| found.value.len()), most)?;
                Done::Value(found)
            }
            Act::Range { span, limit } => {
                let (found, above) =
                    versions::range(span, *limit, before(at), &mut room, reader)?;
                overtaken(above)?;
                if found.more && found.keys.len() < *limit as usize {
                    return Err(too_much(most));
                }
                Done::Range(found)
            }
            Act::Put { key, value } => {
                write(key, Some(value));
                Done::Put
            }
            Act::Delete(key) => {
                let there = read(key, at, reader)?.is_some();
                if there {
                    write(key, None);
                }
                Done::Deleted(u32::from(there))
            }
            Act::DeleteRange(span) => {
                let (mut keys, mut above) = (Vec::new(), false);
                versions::walk(span, before(at), reader, |key, seen| {
                    above |= matches!(seen, Seen::Above);
                    if let Seen::Is((_, Some(_))) = seen {
                        keys.push(key.clone());
                    }
                    keys.len() <= RANGE_MAX as usize
                })?;
                overtaken(above)?;
                if keys.len() > RANGE_MAX as usize {
                    let text = format!(
                        "the transaction was not done: a range that it deletes has more than \
                         {RANGE_MAX} keys; delete it in parts"
                    );
                    return Err(Stop::Refused(Refusal::definite(Code::TooLarge, text)));
                }
                let keyspace = span.keyspace;
                for key in &keys {
                    let key = key.clone();
                    write(&KeyId { keyspace, key }, None);
                }
                Done::Deleted(keys.len() as u32)
            }
            Act::Add {
                key,
                by,
                least,
                most,
            } => {
                let found = read(key, at, reader)?;
                let here = number(key, found.as_ref().map(|found| &found.value))?;
                let sum = here.checked_add(*by);
                let within = |sum: &i64| {
                    least.is_none_or(|least| *sum >= least) && most.is_none_or(|most| *sum <= most)
                };
                let Some(sum) = sum.filter(within) else {
                    return Err(out_of_bounds(key, here, *by));
                };
                write(key, Some(&Bytes::from(format!("{sum}"))));
                Done::Added(sum)
            }
        });
    }
    Ok(all)
}

fn take(room: &mut usize, bytes: usize, most: usize) -> Result<(), Stop> {
    *room = room.checked_sub(bytes).ok_or_else(|| too_much(most))?;
    Ok(())
}

fn too_much(most: usize) -> Stop {
    let text = format!(
        "the transaction was not done: what it reads has more than {most} bytes \
         (limits.transaction_bytes); read less, or in a snapshot"
    );
    Stop::Refused(Refusal::definite(Code::TooLarge, text))
}

fn out_of_bounds(key: &KeyId, here: i64, by: i64) -> Stop {
    let text = format!(
        "the transaction was not done: `{}` is {here}, and to add {by} would leave the bounds that \
         it states, or 64 bits",
        shown(&key.key)
    );
    Stop::Refused(Refusal::definite(Code::OutOfBounds, text))
}
