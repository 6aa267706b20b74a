//! Rows on a real ensemble: compare-and-set, keys, watches, sessions that break.

use crate::common::{Dam, TIMEOUT, alone, beside, fresh, key, store};
use bytes::Bytes;
use fermata_engine::{LockStore, Row, StoreError, Swapped, Version};
use fermata_zookeeper::{Reads, STATE_LIMIT, ZookeeperStore, path};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteError};

fn state(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// An update that must be applied.
async fn put(
    store: &ZookeeperStore,
    name: &[u8],
    expected: Option<Version>,
    text: &str,
) -> Version {
    match store.swap(&key(name), expected, state(text)).await {
        Ok(Swapped::Applied(version)) => version,
        other => panic!("{text}: {other:?}"),
    }
}

fn row(version: Version, text: &str) -> Row {
    Row {
        version,
        state: state(text),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_applies_to_the_version_it_expects_and_to_no_other() {
    let Some(ensemble) = beside().await else {
        return;
    };
    let servers = &ensemble.servers;
    for (root, reads) in [("swap-s", Reads::Sync), ("swap-q", Reads::Quorum)] {
        let a = store(&servers[..1], root, TIMEOUT).await.with_reads(reads);
        let b = store(&servers[1..2], root, TIMEOUT).await.with_reads(reads);
        let k = key(b"k");
        assert_eq!(a.peek(&k).await, Ok(None));
        assert_eq!(a.read(&k).await, Ok(None));
        // A version of a row that is not there.
        let none = a.swap(&k, Some(Version(7)), state("x")).await;
        assert_eq!(none, Ok(Swapped::Refused(None)));
        let one = put(&a, b"k", None, "one").await;
        assert_eq!(a.peek(&k).await, Ok(Some(row(one, "one"))));
        // Another server, which may be behind, once it has caught up.
        assert_eq!(b.read(&k).await, Ok(Some(row(one, "one"))));
        let two = put(&b, b"k", Some(one), "two").await;
        assert_ne!(one, two);
        // A refusal tells the row that refused it, at whatever server.
        let late = a.swap(&k, Some(one), state("late")).await;
        assert_eq!(late, Ok(Swapped::Refused(Some(row(two, "two")))));
        let again = a.swap(&k, None, state("again")).await;
        assert_eq!(again, Ok(Swapped::Refused(Some(row(two, "two")))));
        let never = a.swap(&k, Some(Version(-1)), state("never")).await;
        assert_eq!(never, Ok(Swapped::Refused(None)));
        assert_eq!(a.read(&k).await, Ok(Some(row(two, "two"))));
        assert_eq!(a.health().await, Ok(()));
        assert!(a.describe().contains("ZooKeeper 3."), "{}", a.describe());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn states_that_do_not_fit_are_refused_and_the_largest_fits() {
    let Some(ensemble) = beside().await else {
        return;
    };
    let servers = &ensemble.servers;
    let store = store(servers, "sizes", TIMEOUT).await;
    for size in [0, STATE_LIMIT + 1] {
        let refused = store.swap(&key(b"k"), None, vec![1; size].into()).await;
        assert!(
            matches!(refused, Err(StoreError::Refused(_))),
            "{refused:?}"
        );
    }
    let largest = Bytes::from(vec![1; STATE_LIMIT]);
    let longest = key(&[0; path::KEY_LIMIT]);
    let applied = store.swap(&longest, None, largest.clone()).await;
    assert!(matches!(applied, Ok(Swapped::Applied(_))), "{applied:?}");
    assert_eq!(store.read(&longest).await.unwrap().unwrap().state, largest);
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_keys_have_rows_of_their_own() {
    let Some(ensemble) = beside().await else {
        return;
    };
    let servers = &ensemble.servers;
    let store = store(servers, "odd/deep", TIMEOUT).await;
    let names: Vec<Vec<u8>> = [
        &b""[..],
        b".",
        b"..",
        b"/",
        b"a/b",
        b"a",
        b"%",
        b"%2F",
        b"zookeeper",
    ]
    .into_iter()
    .map(<[u8]>::to_vec)
    .chain([vec![0], vec![0xff, 0xfe], "ключ".into(), vec![b'x'; 1024]])
    .collect();
    for (i, name) in names.iter().enumerate() {
        put(&store, name, None, &i.to_string()).await;
    }
    for (i, name) in names.iter().enumerate() {
        let found = store.read(&key(name)).await.unwrap().unwrap();
        assert_eq!(found.state, state(&i.to_string()), "{name:?}");
    }
}

/// Adds one to a number until it was applied; returns the version that it was applied to.
async fn add_one(store: &ZookeeperStore, name: &[u8]) -> Version {
    let k = key(name);
    let mut row = store.peek(&k).await.unwrap().unwrap();
    loop {
        let number: u64 = String::from_utf8_lossy(&row.state).parse().unwrap();
        let next = state(&(number + 1).to_string());
        match store.swap(&k, Some(row.version), next).await.unwrap() {
            Swapped::Applied(_) => return row.version,
            Swapped::Refused(Some(present)) => {
                assert_ne!(present.version, row.version);
                row = present;
            }
            Swapped::Refused(None) => row = store.read(&k).await.unwrap().unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_exactly_one_is_applied_to_each_version() {
    let Some(ensemble) = beside().await else {
        return;
    };
    let servers = &ensemble.servers;
    let mut stores = Vec::new();
    for server in servers.chunks(1) {
        stores.push(Arc::new(store(server, "many", TIMEOUT).await));
    }
    put(&stores[0], b"k", None, "0").await;
    for store in &stores {
        store.read(&key(b"k")).await.unwrap();
    }
    let swappers = (0..32).map(|i| {
        let store = stores[i % stores.len()].clone();
        tokio::spawn(async move {
            let mut applied = Vec::new();
            for _ in 0..8 {
                applied.push(add_one(&store, b"k").await);
            }
            applied
        })
    });
    let mut applied: HashMap<Version, u32> = HashMap::new();
    for swapper in swappers.collect::<Vec<_>>() {
        for version in swapper.await.unwrap() {
            *applied.entry(version).or_default() += 1;
        }
    }
    assert_eq!(applied.len(), 32 * 8);
    assert!(applied.values().all(|n| *n == 1), "{applied:?}");
    let last = stores[0].read(&key(b"k")).await.unwrap().unwrap();
    assert_eq!(last.state, state("256"));
}

/// How many watches all servers hold for others than the tests that run beside.
async fn watches(servers: &[String]) -> u64 {
    let mut all = 0;
    for server in servers {
        let mut stream = tokio::net::TcpStream::connect(server).await.unwrap();
        stream.write_all(b"mntr").await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        let line = said.lines().find_map(|l| l.strip_prefix("zk_watch_count"));
        all += line.unwrap().trim().parse::<u64>().unwrap();
    }
    all
}

/// Waits until something is so; the test's own limit is its only clock.
async fn until<F: Future<Output = bool>>(what: &str, so: impl Fn() -> F) {
    for _ in 0..600 {
        if so().await {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: never");
}

const LONG: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread")]
async fn a_change_wakes_all_who_wait_and_no_watch_stays_behind() {
    // Alone: watches are counted.
    let Some(ensemble) = alone().await else {
        return;
    };
    let servers = &ensemble.servers;
    let waiting = Arc::new(store(&servers[..1], "watch", TIMEOUT).await);
    let writing = store(&servers[1..2], "watch", TIMEOUT).await;
    let wait = |seen: Option<Version>, patience: Duration| {
        let waiting = waiting.clone();
        tokio::spawn(async move { waiting.changed(&key(b"k"), seen, patience).await })
    };
    // No row yet: its creation is a change.
    let waiters: Vec<_> = (0..20).map(|_| wait(None, LONG)).collect();
    until("one watch for all", || async {
        watches(servers).await == 1
    })
    .await;
    let one = put(&writing, b"k", None, "one").await;
    for waiter in waiters {
        waiter.await.unwrap();
    }
    // The watch's read comes from a server that has the update.
    let seen = waiting.peek(&key(b"k")).await.unwrap().unwrap();
    assert_eq!(seen, row(one, "one"));
    // Whoever saw an older row does not wait.
    let two = put(&writing, b"k", Some(one), "two").await;
    wait(Some(one), LONG).await.unwrap();
    let waiter = wait(Some(two), LONG);
    until("a watch", || async { watches(servers).await == 1 }).await;
    assert!(!waiter.is_finished());
    put(&writing, b"k", Some(two), "three").await;
    waiter.await.unwrap();
    // Patience ends, or the waiter is dropped: the watch goes.
    let three = waiting.read(&key(b"k")).await.unwrap().unwrap().version;
    wait(Some(three), Duration::from_millis(300)).await.unwrap();
    let dropped = wait(Some(three), LONG);
    until("a watch again", || async { watches(servers).await == 1 }).await;
    dropped.abort();
    until("no watch", || async { watches(servers).await == 0 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_and_a_store_outlive_their_session() {
    let Some(ensemble) = beside().await else {
        return;
    };
    let servers = &ensemble.servers;
    let dam = Dam::before(servers[0].clone()).await;
    let timeout = Duration::from_secs(1);
    let only = std::slice::from_ref(&dam.address);
    let cut = Arc::new(store(only, "expiry", timeout).await);
    let other = store(&servers[1..], "expiry", TIMEOUT).await;
    let one = put(&cut, b"k", None, "one").await;
    let waiter = {
        let cut = cut.clone();
        tokio::spawn(async move {
            // Waking means no more than to look again.
            loop {
                cut.changed(&key(b"k"), Some(one), LONG).await;
                if let Ok(Some(row)) = cut.peek(&key(b"k")).await
                    && row.version != one
                {
                    return row;
                }
            }
        })
    };
    sleep(Duration::from_millis(500)).await;
    dam.hold(true);
    // Twice the session's timeout: the server has ended it.
    sleep(Duration::from_secs(8)).await;
    let failed = cut.swap(&key(b"k"), Some(one), state("never")).await;
    assert!(matches!(failed, Err(StoreError::Refused(_))), "{failed:?}");
    assert!(cut.health().await.is_err());
    let two = put(&other, b"k", Some(one), "two").await;
    dam.hold(false);
    assert_eq!(waiter.await.unwrap(), row(two, "two"));
    until("a session again", || async { cut.health().await.is_ok() }).await;
    assert_eq!(cut.read(&key(b"k")).await, Ok(Some(row(two, "two"))));
    put(&cut, b"k", Some(two), "three").await;
}

/// Reads until it can be done.
async fn read(store: &ZookeeperStore, name: &[u8]) -> Option<Row> {
    loop {
        if let Ok(row) = store.read(&key(name)).await {
            return row;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_given_up_never_comes_after_a_read() {
    let Some(ensemble) = beside().await else {
        return;
    };
    let servers = &ensemble.servers;
    let dam = Dam::before(servers[0].clone()).await;
    let timeout = Duration::from_secs(3);
    let behind = [dam.address.clone(), servers[1].clone()];
    let late = store(&behind, "late", timeout).await;
    let other = store(&servers[2..], "late", TIMEOUT).await;
    let one = put(&late, b"k", None, "one").await;
    // What the dam holds does come, in the end: here, from a client that asks nobody, and whose
    // session outlasts what is tried meanwhile.
    let raw = Client::connector().with_session_timeout(Duration::from_secs(40));
    let raw = raw.connect(&dam.address).await.unwrap();
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let held = fresh("late") + "/raw";
    raw.create(&held, b"before", &open).await.unwrap();

    dam.hold(true);
    drop(raw.set_data(&held, b"late", Some(0)));
    let update = late.swap(&key(b"k"), Some(one), state("late")).await;
    assert!(matches!(update, Err(StoreError::Unknown(_))), "{update:?}");
    // So is the next, for a row that is not there, unless the session has been replaced by then.
    let creation = late.swap(&key(b"new"), None, state("late")).await;
    let kept = read(&late, b"k").await.unwrap();
    assert_eq!(kept.state, state("one"));
    let absent = read(&late, b"new").await;
    if matches!(creation, Ok(Swapped::Applied(_))) {
        assert!(absent.is_some());
    }

    dam.hold(false);
    let look = Client::connector().connect(&servers[2]).await.unwrap();
    until("what was held back comes", || async {
        look.sync(&held).await.unwrap();
        look.get_data(&held).await.unwrap().0 == b"late"
    })
    .await;
    assert_eq!(other.read(&key(b"k")).await, Ok(Some(kept.clone())));
    assert_ne!(
        kept.version, one,
        "the version that the late update wants is gone"
    );
    assert_eq!(other.read(&key(b"new")).await, Ok(absent.clone()));
    // And where an empty node kept it out, a row can be made all the same.
    if absent.is_none() {
        let made = put(&other, b"new", None, "made").await;
        assert_eq!(late.read(&key(b"new")).await, Ok(Some(row(made, "made"))));
    }
    put(&other, b"k", Some(kept.version), "two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_updates_in_a_transaction_are_judged_by_the_first() {
    // What the update of version -2 relies on, which no test can reach by counting.
    let Some(ensemble) = beside().await else {
        return;
    };
    let servers = &ensemble.servers;
    let client = Client::connector()
        .connect(&servers.join(","))
        .await
        .unwrap();
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let wrap = fresh("wrap");
    client.create(&wrap, b"a", &open).await.unwrap();
    let both = |version: i32| {
        let mut both = client.new_multi_writer();
        both.add_set_data(&wrap, b"b", Some(version)).unwrap();
        both.add_set_data(&wrap, b"b", None).unwrap();
        async move { both.commit().await }
    };
    let refused = both(1).await.unwrap_err();
    let index = 0;
    let source = Error::BadVersion;
    assert_eq!(refused, MultiWriteError::OperationFailed { index, source });
    let (data, stat) = client.get_data(&wrap).await.unwrap();
    assert_eq!((data.as_slice(), stat.version), (&b"a"[..], 0));
    both(0).await.unwrap();
    let (data, stat) = client.get_data(&wrap).await.unwrap();
    assert_eq!((data.as_slice(), stat.version), (&b"b"[..], 2));
}

#[cfg(feature = "recipes")]
#[tokio::test(flavor = "multi_thread")]
async fn the_recipe_excludes() {
    use fermata_zookeeper::recipes::Locks;
    let Some(ensemble) = beside().await else {
        return;
    };
    let servers = &ensemble.servers;
    let root = fresh("recipe");
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let locks = Locks::connect(servers, &root, TIMEOUT).await.unwrap();
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let held = locks.lock("a").await.unwrap();
                let n = held.get().await.unwrap().len();
                held.put(&vec![1; n + 1]).await.unwrap();
                held.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let locks = Locks::connect(servers, &root, TIMEOUT).await.unwrap();
    let held = locks.lock("a").await.unwrap();
    assert_eq!(held.get().await.unwrap().len(), 40);
    held.release().await.unwrap();
}
