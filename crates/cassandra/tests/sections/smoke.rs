//! Every operation once, on each engine.

use crate::own;
use crate::servers::{alone, beside, settings};
use crate::sites::{LEASE, Locks, Options, Sites};
use fermata_cassandra::CassandraStore;
use fermata_engine::check::clients::{Client, value};
use fermata_peers::{Paxos, Purging};
use fermata_protocol::base::{KeyId, Keyspace, Label};
use fermata_protocol::request::{Critical, EntryValue, Leaving, Mode, Operation};
use fermata_protocol::{Code, Reply};
use std::sync::Arc;
use std::time::Duration;

fn code(reply: Option<Reply>) -> Option<Code> {
    match reply {
        Some(Reply::Refused(refusal)) => Some(refusal.code),
        _ => None,
    }
}

fn shown(reply: Option<Reply>) -> Option<Option<bytes::Bytes>> {
    match reply {
        Some(Reply::Value { value, .. }) => Some(value),
        _ => None,
    }
}

async fn flag(client: &mut Client, key: &KeyId) -> Option<u64> {
    let queue = Operation::Queue { key: key.clone() };
    match client.ask(0, queue).await {
        Some(Reply::Queue { flag, .. }) => flag,
        other => panic!("no queue but {other:?}"),
    }
}

/// Sections of one key, one after the other.
async fn sections(sites: &Arc<Sites>) {
    let k = sites.key("k");
    let mut h1 = sites.client_with(1, 0, 10 * LEASE);
    let mut h2 = sites.client_with(2, 2, 10 * LEASE);
    let first = h1.enter(&k, Mode::Exclusive).await;
    let mut first = first.expect("the key is free");
    assert_eq!(first.entry, Some(None));
    assert!(h1.put_at(0, &mut first, value("v1")).await);
    assert_eq!(h1.get_at(1, &first).await, Some(value("v1")));
    // Nobody writes whose turn it is not.
    let mut enter = h2.wants(Mode::Exclusive);
    h2.enter_at(2, &k, &mut enter, Duration::ZERO).await;
    let lock_ref = sites.history.place(h2.session).expect("it waits");
    let mut waiting = first.held.clone();
    waiting.lock_ref = lock_ref;
    let wrong = Operation::Critical {
        held: waiting,
        operation: Critical::Put {
            number: 1,
            value: value("wrong"),
        },
        leave: Vec::new(),
    };
    assert_eq!(code(h2.ask(2, wrong).await), Some(Code::NotHolder));
    let past = |operation| Operation::Critical {
        held: first.held.clone(),
        operation,
        leave: Vec::new(),
    };
    // A copy that the network has kept: no store refuses it, and it changes nothing.
    let copy = past(Critical::Put {
        number: 1,
        value: value("v1"),
    });
    let gets = past(Critical::Get);
    // The hand-over.
    h1.leave_at(0, first).await;
    assert_eq!(code(h1.ask(0, copy).await), Some(Code::NoLongerHolder));
    assert_eq!(code(h1.ask(1, gets).await), Some(Code::NoLongerHolder));
    let wait = Duration::from_secs(10);
    let second = h2.enter_at(2, &k, &mut enter, wait).await;
    let mut second = second.expect("it is its turn");
    assert_eq!(second.held.lock_ref, lock_ref);
    assert_eq!(second.entry, Some(value("v1")));
    assert!(h2.put_at(2, &mut second, value("v2")).await);
    // A dirty leave is taken care of by the next section.
    h2.leave_as(2, second, Leaving::Dirty).await;
    assert!(flag(&mut h2, &k).await.is_some());
    let third = h1.enter(&k, Mode::Exclusive).await;
    let mut third = third.expect("the key is free");
    assert_eq!(third.entry, Some(value("v2")));
    assert_eq!(flag(&mut h1, &k).await, None);
    assert!(h1.put_at(0, &mut third, None).await, "a delete");
    assert_eq!(h1.get_at(2, &third).await, Some(None));
    let held = third.held.clone();
    let resumed = h1.resume_at(1, &held).await.expect("it goes on");
    assert_eq!(resumed.entry, Some(None));
    h1.leave_at(1, resumed).await;
    let fourth = h2.enter(&k, Mode::Shared).await;
    let fourth = fourth.expect("the key is free");
    assert_eq!(fourth.entry, Some(None));
    h2.leave_at(2, fourth).await;
}

/// Puts and gets outside sections; single reads and writes; listings.
async fn outside(sites: &Arc<Sites>) {
    let k = sites.key("outside");
    let mut user = sites.client_with(3, 1, 10 * LEASE);
    assert!(user.offer_at(1, &k, value("e1")).await);
    assert_eq!(user.look_at(1, &k).await, Some(value("e1")));
    let section = user.enter(&k, Mode::Exclusive).await;
    let section = section.expect("the key is free");
    assert_eq!(section.entry, Some(value("e1")));
    let put = Operation::Put {
        key: k.clone(),
        value: value("e2"),
    };
    assert_eq!(code(user.ask(1, put).await), Some(Code::Locked));
    user.leave_at(1, section).await;
    let write = |text| Operation::Write {
        key: k.clone(),
        value: value(text),
    };
    let read = || Operation::Read { key: k.clone() };
    assert!(matches!(
        user.ask(1, write("w1")).await,
        Some(Reply::Done { .. })
    ));
    assert_eq!(shown(user.ask(2, read()).await), Some(value("w1")));
    let register = KeyId {
        keyspace: Keyspace::REGISTERS,
        ..k.clone()
    };
    let write = Operation::Write {
        key: register.clone(),
        value: value("r1"),
    };
    assert!(matches!(user.ask(0, write).await, Some(Reply::Done { .. })));
    let read = Operation::Read {
        key: register.clone(),
    };
    assert_eq!(shown(user.ask(2, read).await), Some(value("r1")));
    let keys = Operation::Keys {
        keyspace: Keyspace::SECTIONS,
        prefix: k.key.clone(),
        after: None,
        limit: 10,
    };
    match user.ask(1, keys).await {
        Some(Reply::Keys(keys)) => assert_eq!(keys, [k.key]),
        other => panic!("no keys but {other:?}"),
    }
}

/// One section over two keys; the last put leaves it.
async fn two_keys(sites: &Arc<Sites>) {
    let keys = vec![sites.key("one"), sites.key("two")];
    let mut client = sites.client(4, 0);
    let enter = |keys: &[KeyId]| Operation::Enter {
        keys: keys.to_vec(),
        mode: Mode::Exclusive,
        wait: 10_000_000,
        follow: false,
        lease: Some(20_000_000),
        may_return: true,
        label: Label::NONE,
    };
    let Some(Reply::Entered { keys: entered, .. }) = client.ask(0, enter(&keys)).await else {
        panic!("both keys are free");
    };
    assert_eq!(entered.len(), 2);
    let held: Vec<_> = entered.into_iter().map(|entered| entered.held).collect();
    let put = |n: usize, leave| Operation::Critical {
        held: held[n].clone(),
        operation: Critical::Put {
            number: n as u64 + 1,
            value: value("both"),
        },
        leave,
    };
    let Some(Reply::Done { tag }) = client.ask(0, put(0, Vec::new())).await else {
        panic!("it holds the first key");
    };
    let leave = vec![
        (held[0].clone(), Leaving::Clean(tag)),
        (held[1].clone(), Leaving::Dirty),
    ];
    assert_eq!(client.ask(0, put(1, leave)).await, Some(Reply::Left));
    let Some(Reply::Entered { keys: entered, .. }) = client.ask(2, enter(&keys)).await else {
        panic!("both keys are free again");
    };
    let both = EntryValue::from(value("both"));
    assert!(
        entered.iter().all(|entered| entered.value == both),
        "{entered:?}"
    );
    let keys = entered.into_iter();
    let keys = keys.map(|entered| (entered.held, Leaving::Clean(None)));
    let keys = keys.collect();
    let left = client.ask(2, Operation::Leave { keys }).await;
    assert!(matches!(left, Some(Reply::Done { .. })), "{left:?}");
}

async fn everything(sites: &Arc<Sites>) {
    tokio::join!(sections(sites), outside(sites), two_keys(sites));
    sites.passes();
}

#[test]
fn everything_once_with_locks_in_cassandra() {
    beside(async |servers| {
        let options = Options::new(Locks::Cassandra);
        everything(&Sites::new("smoke", servers.stores().await, options)).await;
    });
}

#[test]
fn everything_once_with_locks_in_zookeeper() {
    beside(async |servers| {
        let options = Options::new(Locks::Zookeeper);
        everything(&Sites::new("smoke", servers.stores().await, options)).await;
    });
}

#[test]
fn everything_once_on_one_node() {
    // Alone, for the machine's sake.
    alone(async |_| {
        let mut spec = own::spec(1);
        spec.paxos = Paxos::V2;
        spec.purging = Some(Purging::Repaired);
        let one = own::start(&spec).expect("it was there before");
        let mut settings = settings(&one.endpoints(), 0);
        let refused = CassandraStore::connect(settings.clone()).await;
        let refused = refused.expect_err("one replica is not enough");
        assert!(refused.contains("1 replica"), "{refused}");
        settings.allow_few_replicas = true;
        let store = Arc::new(CassandraStore::connect(settings).await.expect("a store"));
        everything(&Sites::of_one("smoke", &store)).await;
        one.stop();
    });
}
