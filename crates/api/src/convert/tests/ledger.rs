//! Transactions and snapshots on the wire.

use super::*;
use crate::convert::ledger;
use fermata_protocol::base::{KeyspaceId, Timestamp};
use fermata_protocol::ledger::{
    Act, Compare, Condition, Done, Found, Part, Relation, Span, Transaction, Verdict, Versioned,
    When,
};

fn time() -> impl Strategy<Value = Timestamp> {
    any::<(u64, u16)>().prop_map(|(micros, logical)| Timestamp { micros, logical })
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

fn span() -> impl Strategy<Value = Span> {
    (1u32..3, bytes(), prop::option::of(bytes())).prop_map(|(keyspace, from, to)| Span {
        keyspace: KeyspaceId(keyspace),
        from,
        to,
    })
}

fn relation() -> impl Strategy<Value = Relation> {
    prop::sample::select(vec![
        Relation::Equal,
        Relation::NotEqual,
        Relation::Less,
        Relation::AtMost,
        Relation::Greater,
        Relation::AtLeast,
    ])
}

fn compare() -> impl Strategy<Value = Compare> {
    let condition = prop_oneof![
        any::<bool>().prop_map(Condition::Exists),
        (relation(), time()).prop_map(|(is, time)| Condition::Version(is, time)),
        (relation(), bytes()).prop_map(|(is, value)| Condition::Value(is, value)),
        (relation(), any::<i64>()).prop_map(|(is, number)| Condition::Number(is, number)),
    ];
    (key(), condition).prop_map(|(key, condition)| Compare { key, condition })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        key().prop_map(Act::Get),
        (span(), any::<u32>()).prop_map(|(span, limit)| Act::Range { span, limit }),
        (key(), bytes()).prop_map(|(key, value)| Act::Put { key, value }),
        key().prop_map(Act::Delete),
        span().prop_map(Act::DeleteRange),
        (key(), any::<i64>(), any::<[Option<i64>; 2]>()).prop_map(|(key, by, [least, most])| {
            Act::Add {
                key,
                by,
                least,
                most,
            }
        }),
    ]
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        Just(When::Now),
        time().prop_map(When::At),
        (any::<u64>(), time()).prop_map(|(staleness, after)| When::Recent { staleness, after }),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        key().prop_map(Part::Key),
        (span(), any::<u32>()).prop_map(|(span, limit)| Part::Range { span, limit }),
    ]
}

pub(super) fn operation() -> impl Strategy<Value = Operation> {
    let acts = || prop::collection::vec(act(), 0..4);
    prop_oneof![
        (prop::collection::vec(compare(), 0..4), acts(), acts()).prop_map(
            |(compare, then, or_else)| {
                Operation::Transact(Transaction {
                    compare,
                    then,
                    or_else,
                })
            }
        ),
        (key(), 1u64..).prop_map(|(key, number)| Operation::Resolve { key, number }),
        (prop::collection::vec(part(), 0..4), when())
            .prop_map(|(parts, when)| Operation::Snapshot { parts, when }),
    ]
}

fn versioned() -> impl Strategy<Value = Versioned> {
    (bytes(), time()).prop_map(|(value, version)| Versioned { value, version })
}

fn found() -> impl Strategy<Value = Found> {
    let keys = prop::collection::vec((bytes(), versioned()), 0..3);
    (keys, any::<bool>()).prop_map(|(keys, more)| Found { keys, more })
}

fn done() -> impl Strategy<Value = Done> {
    prop_oneof![
        prop::option::of(versioned()).prop_map(Done::Value),
        found().prop_map(Done::Range),
        Just(Done::Put),
        any::<u32>().prop_map(Done::Deleted),
        any::<i64>().prop_map(Done::Added),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let all = prop::option::of(prop::collection::vec(done(), 0..4));
    (time(), any::<bool>(), all).prop_map(|(at, then, done)| Verdict::Done { at, then, done })
}

proptest! {
    #[test]
    fn a_reply_survives_the_wire(
        verdict in verdict(),
        at in time(),
        found in prop::collection::vec(found(), 0..3),
    ) {
        let replies = [
            Reply::Transacted(verdict.clone()),
            Reply::Resolved(verdict),
            Reply::Resolved(Verdict::Never),
            Reply::Resolved(Verdict::Refused(Refusal::definite(Code::OutOfBounds, "no"))),
            Reply::Snapshot { at, found },
        ];
        for reply in replies {
            let wire = reply_to_proto(reply.clone(), &names());
            prop_assert_eq!(reply_from_proto(wire, &mut names()).unwrap(), reply);
        }
    }

    /// The access policy asks of names alone what a request is about.
    #[test]
    fn a_request_is_known_by_the_keyspaces_that_it_names(operation in operation()) {
        let request = Request {
            session: Secret::new(7).session(),
            number: 2,
            attempt: 0,
            answered_through: 1,
            site: SiteId(1),
            operation,
        };
        let named = match &request.operation {
            Operation::Transact(transaction) => transaction.items().count(),
            Operation::Snapshot { parts, .. } => parts.len(),
            _ => 1,
        };
        let wire = operation_to_proto(&request, &|_| Secret::new(7), &names(), "oregon");
        prop_assert_eq!(ledger::names(&wire, &|_| true), named > 0);
        prop_assert!(!ledger::names(&wire, &|_| false));
    }
}

/// A transaction with one of everything, to be spoiled.
fn whole() -> v1::TransactRequest {
    let key = || put().held.unwrap().key;
    let act = |act| v1::Act { act: Some(act) };
    v1::TransactRequest {
        header: put().header,
        compare: vec![v1::Compare {
            key: key(),
            is: 0,
            condition: Some(v1::compare::Condition::Exists(true)),
        }],
        then: vec![act(v1::act::Act::Put(v1::PutAct {
            key: key(),
            value: "v".into(),
        }))],
        or_else: vec![act(v1::act::Act::Range(v1::Range {
            span: Some(v1::Span {
                keyspace: "default".into(),
                from: Bytes::new(),
                to: None,
            }),
            limit: 1,
        }))],
    }
}

#[test]
fn each_malformed_field_is_refused_by_name() {
    type Spoil = fn(&mut v1::TransactRequest);
    let spoils: [(&str, Spoil); 8] = [
        ("no relation 9", |m| m.compare[0].is = 9),
        ("compared with nothing", |m| m.compare[0].is = 3),
        ("has no condition", |m| m.compare[0].condition = None),
        ("count", |m| {
            let version = v1::Timestamp {
                micros: 1,
                logical: 1 << 16,
            };
            m.compare[0].condition = Some(v1::compare::Condition::Version(version));
        }),
        ("key", |m| m.compare[0].key = None),
        ("without content", |m| m.then[0].act = None),
        ("names no keys", |m| {
            let range = v1::Range {
                span: None,
                limit: 1,
            };
            m.or_else[0].act = Some(v1::act::Act::Range(range));
        }),
        ("header", |m| m.header = None),
    ];
    assert!(request_from_proto(Wire::Transact(whole()), &names(), SiteId(0)).is_ok());
    for (word, spoil) in spoils {
        let mut message = whole();
        spoil(&mut message);
        let refusal = request_from_proto(Wire::Transact(message), &names(), SiteId(0));
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.code, Code::BadRequest, "{word}");
        assert!(refusal.detail.contains(word), "{word}: {}", refusal.detail);
    }
    let mut many = whole();
    many.then = vec![many.then[0].clone(); 16_385];
    let refusal = request_from_proto(Wire::Transact(many), &names(), SiteId(0)).unwrap_err();
    assert_eq!(refusal.code, Code::TooLarge);
    let nameless = v1::ResolveRequest {
        header: put().header,
        key: put().held.unwrap().key,
        of: 0,
    };
    let refusal = request_from_proto(Wire::Resolve(nameless), &names(), SiteId(0)).unwrap_err();
    assert_eq!(refusal.code, Code::BadRequest);
}
