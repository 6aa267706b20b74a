//! Transactions and snapshots.

use super::*;
use crate::errors::{refusal_from_proto, refusal_to_proto};
use crate::v1::session_request::Operation as Wire;
use crate::v1::{
    act::Act as WireAct, act_done::Done as WireDone, compare::Condition as WireCondition,
};
use crate::v1::{
    part::Part as WirePart, resolved::Outcome as WireOutcome, snapshot_request::When as WireWhen,
};
use fermata_protocol::base::Timestamp;
use fermata_protocol::ledger::{
    Act, Compare, Condition, Done, Found, Part, Relation, Span, Transaction, Verdict, Versioned,
    When,
};
use fermata_protocol::request::{Operation, Reply};

/// Things that one request names at most, in each of its lists; a node's own limit is lower.
const NAMED_MAX: usize = 16_384;

fn named(count: usize) -> Result<(), Refusal> {
    if count <= NAMED_MAX {
        return Ok(());
    }
    let detail = format!("the request names {count} things, more than {NAMED_MAX}: use fewer");
    Err(Refusal::definite(Code::TooLarge, detail))
}

pub(super) fn time_from(time: v1::Timestamp) -> Result<Timestamp, Refusal> {
    let logical = u16::try_from(time.logical);
    Ok(Timestamp {
        micros: time.micros,
        logical: logical.map_err(|_| bad("a timestamp's count is below 65,536"))?,
    })
}

pub(super) fn time_to(time: Timestamp) -> v1::Timestamp {
    v1::Timestamp {
        micros: time.micros,
        logical: time.logical.into(),
    }
}

fn required(time: Option<v1::Timestamp>) -> Result<Timestamp, Refusal> {
    time_from(time.ok_or_else(|| bad("a timestamp is missing"))?)
}

fn relation_from(number: i32) -> Result<Relation, Refusal> {
    match v1::Relation::try_from(number) {
        Ok(v1::Relation::Unspecified | v1::Relation::Equal) => Ok(Relation::Equal),
        Ok(v1::Relation::NotEqual) => Ok(Relation::NotEqual),
        Ok(v1::Relation::Less) => Ok(Relation::Less),
        Ok(v1::Relation::AtMost) => Ok(Relation::AtMost),
        Ok(v1::Relation::Greater) => Ok(Relation::Greater),
        Ok(v1::Relation::AtLeast) => Ok(Relation::AtLeast),
        Err(_) => Err(bad(format!(
            "there is no relation {number}: it is 1 (equal) to 6 (at least)"
        ))),
    }
}

fn relation_to(relation: Relation) -> i32 {
    let relation = match relation {
        Relation::Equal => v1::Relation::Equal,
        Relation::NotEqual => v1::Relation::NotEqual,
        Relation::Less => v1::Relation::Less,
        Relation::AtMost => v1::Relation::AtMost,
        Relation::Greater => v1::Relation::Greater,
        Relation::AtLeast => v1::Relation::AtLeast,
    };
    relation.into()
}

fn span_from(names: &Names, span: Option<v1::Span>) -> Result<Span, Refusal> {
    let span = span.ok_or_else(|| bad("a range names no keys"))?;
    Ok(Span {
        keyspace: keyspace(names, &span.keyspace)?,
        from: span.from,
        to: span.to,
    })
}

fn span_to(names: &Names, span: &Span) -> v1::Span {
    v1::Span {
        keyspace: names.keyspace_name(span.keyspace),
        from: span.from.clone(),
        to: span.to.clone(),
    }
}

fn compare_from(names: &Names, compare: v1::Compare) -> Result<Compare, Refusal> {
    let relation = relation_from(compare.is)?;
    let condition = match compare.condition {
        Some(WireCondition::Exists(_)) if compare.is > 1 => {
            return Err(bad(
                "whether a key exists is compared with nothing: leave `is` out",
            ));
        }
        Some(WireCondition::Exists(exists)) => Condition::Exists(exists),
        Some(WireCondition::Version(time)) => Condition::Version(relation, time_from(time)?),
        Some(WireCondition::Value(value)) => Condition::Value(relation, value),
        Some(WireCondition::Number(number)) => Condition::Number(relation, number),
        None => {
            return Err(bad(
                "a comparison has no condition: give exists, version, value or number",
            ));
        }
    };
    let key = key_from(&mut Strict(names), compare.key)?;
    Ok(Compare { key, condition })
}

fn compare_to(names: &Names, compare: &Compare) -> v1::Compare {
    let (is, condition) = match &compare.condition {
        Condition::Exists(exists) => (0, WireCondition::Exists(*exists)),
        Condition::Version(relation, time) => (
            relation_to(*relation),
            WireCondition::Version(time_to(*time)),
        ),
        Condition::Value(relation, value) => {
            (relation_to(*relation), WireCondition::Value(value.clone()))
        }
        Condition::Number(relation, number) => {
            (relation_to(*relation), WireCondition::Number(*number))
        }
    };
    v1::Compare {
        key: Some(key_to(names, &compare.key)),
        is,
        condition: Some(condition),
    }
}

fn act_from(names: &Names, act: v1::Act) -> Result<Act, Refusal> {
    let lookup = &mut Strict(names);
    Ok(
        match act.act.ok_or_else(|| bad("an act without content"))? {
            WireAct::Get(key) => Act::Get(key_from(lookup, Some(key))?),
            WireAct::Range(range) => Act::Range {
                span: span_from(names, range.span)?,
                limit: range.limit,
            },
            WireAct::Put(put) => Act::Put {
                key: key_from(lookup, put.key)?,
                value: put.value,
            },
            WireAct::Delete(key) => Act::Delete(key_from(lookup, Some(key))?),
            WireAct::DeleteRange(span) => Act::DeleteRange(span_from(names, Some(span))?),
            WireAct::Add(add) => Act::Add {
                key: key_from(lookup, add.key)?,
                by: add.by,
                least: add.least,
                most: add.most,
            },
        },
    )
}

fn act_to(names: &Names, act: &Act) -> v1::Act {
    let key = |key: &KeyId| key_to(names, key);
    let act = match act {
        Act::Get(of) => WireAct::Get(key(of)),
        Act::Range { span, limit } => WireAct::Range(v1::Range {
            span: Some(span_to(names, span)),
            limit: *limit,
        }),
        Act::Put { key: of, value } => WireAct::Put(v1::PutAct {
            key: Some(key(of)),
            value: value.clone(),
        }),
        Act::Delete(of) => WireAct::Delete(key(of)),
        Act::DeleteRange(span) => WireAct::DeleteRange(span_to(names, span)),
        Act::Add {
            key: of,
            by,
            least,
            most,
        } => WireAct::Add(v1::AddAct {
            key: Some(key(of)),
            by: *by,
            least: *least,
            most: *most,
        }),
    };
    v1::Act { act: Some(act) }
}

fn part_from(names: &Names, part: v1::Part) -> Result<Part, Refusal> {
    Ok(
        match part.part.ok_or_else(|| bad("a part without content"))? {
            WirePart::Key(key) => Part::Key(key_from(&mut Strict(names), Some(key))?),
            WirePart::Range(range) => Part::Range {
                span: span_from(names, range.span)?,
                limit: range.limit,
            },
        },
    )
}

fn part_to(names: &Names, part: &Part) -> v1::Part {
    let part = match part {
        Part::Key(key) => WirePart::Key(key_to(names, key)),
        Part::Range { span, limit } => WirePart::Range(v1::Range {
            span: Some(span_to(names, span)),
            limit: *limit,
        }),
    };
    v1::Part { part: Some(part) }
}

/// Of a request about a ledger.
pub(super) fn operation_from(
    wire: Wire,
    names: &Names,
) -> Result<(Option<v1::Header>, Operation), Refusal> {
    Ok(match wire {
        Wire::Transact(m) => {
            for list in [m.compare.len(), m.then.len(), m.or_else.len()] {
                named(list)?;
            }
            let acts = |acts: Vec<v1::Act>| {
                let acts = acts.into_iter().map(|act| act_from(names, act));
                acts.collect::<Result<Vec<Act>, Refusal>>()
            };
            let compare = m.compare.into_iter().map(|c| compare_from(names, c));
            let transaction = Transaction {
                compare: compare.collect::<Result<_, _>>()?,
                then: acts(m.then)?,
                or_else: acts(m.or_else)?,
            };
            (m.header, Operation::Transact(transaction))
        }
        Wire::Resolve(m) => {
            if m.of == 0 {
                return Err(bad("of is 0: a session's requests are numbered from 1"));
            }
            let key = key_from(&mut Strict(names), m.key)?;
            (m.header, Operation::Resolve { key, number: m.of })
        }
        Wire::Snapshot(m) => {
            named(m.parts.len())?;
            let parts = m.parts.into_iter().map(|part| part_from(names, part));
            let when = match m.when {
                None | Some(WireWhen::Now(_)) => When::Now,
                Some(WireWhen::At(at)) => When::At(time_from(at)?),
                Some(WireWhen::Recent(recent)) => When::Recent {
                    staleness: recent.staleness_us,
                    after: recent.after.map(time_from).transpose()?.unwrap_or_default(),
                },
            };
            let parts = parts.collect::<Result<_, _>>()?;
            (m.header, Operation::Snapshot { parts, when })
        }
        _ => unreachable!("only operations on ledgers come here"),
    })
}

/// The message of a request about a ledger.
pub(super) fn operation_to(
    operation: &Operation,
    header: Option<v1::Header>,
    names: &Names,
) -> Wire {
    match operation {
        Operation::Transact(transaction) => {
            let acts = |acts: &[Act]| acts.iter().map(|act| act_to(names, act)).collect();
            let compare = transaction.compare.iter().map(|c| compare_to(names, c));
            Wire::Transact(v1::TransactRequest {
                header,
                compare: compare.collect(),
                then: acts(&transaction.then),
                or_else: acts(&transaction.or_else),
            })
        }
        Operation::Resolve { key, number } => Wire::Resolve(v1::ResolveRequest {
            header,
            key: Some(key_to(names, key)),
            of: *number,
        }),
        Operation::Snapshot { parts, when } => Wire::Snapshot(v1::SnapshotRequest {
            header,
            parts: parts.iter().map(|part| part_to(names, part)).collect(),
            when: Some(match when {
                When::Now => WireWhen::Now(v1::Nothing {}),
                When::At(at) => WireWhen::At(time_to(*at)),
                When::Recent { staleness, after } => WireWhen::Recent(v1::Recent {
                    staleness_us: *staleness,
                    after: Some(time_to(*after)),
                }),
            }),
        }),
        _ => unreachable!("only operations on ledgers come here"),
    }
}

fn versioned_from(value: v1::Versioned) -> Result<Versioned, Refusal> {
    Ok(Versioned {
        value: value.value,
        version: required(value.version)?,
    })
}

fn versioned_to(value: Versioned) -> v1::Versioned {
    v1::Versioned {
        value: value.value,
        version: Some(time_to(value.version)),
    }
}

fn found_from(found: v1::Found) -> Result<Found, Refusal> {
    let keys = found.keys.into_iter().map(|one| {
        let value = one.value.ok_or_else(|| bad("a key without a value"))?;
        Ok((one.key, versioned_from(value)?))
    });
    Ok(Found {
        keys: keys.collect::<Result<_, Refusal>>()?,
        more: found.more,
    })
}

fn found_to(found: Found) -> v1::Found {
    let keys = found.keys.into_iter().map(|(key, value)| v1::KeyValue {
        key,
        value: Some(versioned_to(value)),
    });
    v1::Found {
        keys: keys.collect(),
        more: found.more,
    }
}

fn done_from(done: v1::ActDone) -> Result<Done, Refusal> {
    Ok(
        match done.done.ok_or_else(|| bad("an act without a result"))? {
            WireDone::Value(value) => Done::Value(Some(versioned_from(value)?)),
            WireDone::Absent(_) => Done::Value(None),
            WireDone::Range(found) => Done::Range(found_from(found)?),
            WireDone::Put(_) => Done::Put,
            WireDone::Deleted(count) => Done::Deleted(count),
            WireDone::Added(sum) => Done::Added(sum),
        },
    )
}

fn done_to(done: Done) -> v1::ActDone {
    let done = match done {
        Done::Value(Some(value)) => WireDone::Value(versioned_to(value)),
        Done::Value(None) => WireDone::Absent(v1::Nothing {}),
        Done::Range(found) => WireDone::Range(found_to(found)),
        Done::Put => WireDone::Put(v1::Nothing {}),
        Done::Deleted(count) => WireDone::Deleted(count),
        Done::Added(sum) => WireDone::Added(sum),
    };
    v1::ActDone { done: Some(done) }
}

fn transacted_from(m: v1::Transacted) -> Result<Verdict, Refusal> {
    let done = m
        .done
        .into_iter()
        .map(done_from)
        .collect::<Result<_, _>>()?;
    Ok(Verdict::Done {
        at: required(m.at)?,
        then: m.then,
        done: (!m.forgotten).then_some(done),
    })
}

/// The answer to a transaction, or to who asks what came of one.
pub(super) fn verdict_to(verdict: Verdict, resolves: bool) -> crate::v1::session_reply::Reply {
    use crate::v1::session_reply::Reply as Wire;
    let outcome = match verdict {
        Verdict::Done { at, then, done } => {
            let transacted = v1::Transacted {
                at: Some(time_to(at)),
                then,
                forgotten: done.is_none(),
                done: done.into_iter().flatten().map(done_to).collect(),
            };
            if !resolves {
                return Wire::Transacted(transacted);
            }
            WireOutcome::Done(transacted)
        }
        Verdict::Refused(refusal) => WireOutcome::Refused(refusal_to_proto(&refusal)),
        Verdict::Void | Verdict::Never => WireOutcome::Never(v1::Nothing {}),
    };
    let outcome = Some(outcome);
    Wire::Resolved(v1::Resolved { outcome })
}

/// The answer to a snapshot.
pub(super) fn snapshot_to(at: Timestamp, found: Vec<Found>) -> v1::SnapshotReply {
    v1::SnapshotReply {
        at: Some(time_to(at)),
        found: found.into_iter().map(found_to).collect(),
    }
}

pub(super) fn reply_from_transacted(m: v1::Transacted) -> Result<Reply, Refusal> {
    Ok(Reply::Transacted(transacted_from(m)?))
}

pub(super) fn reply_from_resolved(m: v1::Resolved) -> Result<Reply, Refusal> {
    let outcome = m.outcome.ok_or_else(|| bad("an outcome without content"))?;
    Ok(Reply::Resolved(match outcome {
        WireOutcome::Done(done) => transacted_from(done)?,
        WireOutcome::Refused(refusal) => Verdict::Refused(refusal_from_proto(refusal)),
        WireOutcome::Never(_) => Verdict::Never,
    }))
}

pub(super) fn reply_from_snapshot(m: v1::SnapshotReply) -> Result<Reply, Refusal> {
    let found = m.found.into_iter().map(found_from);
    Ok(Reply::Snapshot {
        at: required(m.at)?,
        found: found.collect::<Result<_, _>>()?,
    })
}

/// Whether a request about a ledger names a keyspace of which that is so.
pub(super) fn names(wire: &Wire, is: &impl Fn(&str) -> bool) -> bool {
    let of = |key: &Option<v1::Key>| key.as_ref().is_some_and(|key| is(&key.keyspace));
    let span = |span: &Option<v1::Span>| span.as_ref().is_some_and(|span| is(&span.keyspace));
    let act = |act: &v1::Act| match &act.act {
        Some(WireAct::Get(key) | WireAct::Delete(key)) => is(&key.keyspace),
        Some(WireAct::Range(range)) => span(&range.span),
        Some(WireAct::Put(put)) => of(&put.key),
        Some(WireAct::DeleteRange(of)) => is(&of.keyspace),
        Some(WireAct::Add(add)) => of(&add.key),
        None => false,
    };
    match wire {
        Wire::Transact(m) => {
            let mut acts = m.then.iter().chain(&m.or_else);
            m.compare.iter().any(|compare| of(&compare.key)) || acts.any(act)
        }
        Wire::Resolve(m) => of(&m.key),
        Wire::Snapshot(m) => m.parts.iter().any(|part| match &part.part {
            Some(WirePart::Key(key)) => is(&key.keyspace),
            Some(WirePart::Range(range)) => span(&range.span),
            None => false,
        }),
        _ => false,
    }
}
