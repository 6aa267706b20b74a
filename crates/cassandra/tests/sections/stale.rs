//! A replica that has missed updates, since it stood still for longer than messages live: M6, M7.

use crate::literal::{Literal, is};
use crate::servers::{Servers, alone};
use crate::sites::{LEASE, Locks, Options, Sites};
use fermata_cassandra::paper::Held;
use fermata_engine::check::clients::value;
use fermata_protocol::request::Mode;
use std::time::Duration;

/// How many keys M7 is tried on.
const KEYS: usize = 8;

/// The replica of site 2 misses the release of a holder there, and the next section.
async fn past_holder(servers: &'static Servers) {
    let name = "M6";
    let stores = servers.stores().await;
    let sites = Sites::new(name, stores, Options::new(Locks::Cassandra));
    let k = sites.key("k");
    sites.base(&k, "v0").await;
    let (mut past, mut next) = (sites.client(1, 0), sites.client_with(2, 1, 10 * LEASE));
    let silent = past.enter(&k, Mode::Exclusive).await;
    let mut silent = silent.expect("the key is free");
    silent.falls_silent();
    let p = Literal::new(servers, name).await;
    p.base("v0").await;
    let held = p.enter(2).await;
    p.hears(2, held).await;

    servers.stop(&[2]);
    p.force(0, held).await;
    let after = p.enter(0).await;
    p.put(0, after, "v2").await;
    next.release_at(1, &k, silent.held.lock_ref).await;
    let second = next.enter(&k, Mode::Exclusive).await;
    let mut second = second.expect("the first was released");
    assert!(next.put_at(1, &mut second, value("v2")).await);
    servers.go_on(&[2]).await;

    let head = p.head(2).await;
    assert!(head.is_some_and(|head| head.lock_ref == held));
    let late = p.at(2).critical_put(&p.key, held, b"late").await;
    assert_eq!(late, Ok(Held::Done(())), "acknowledged to a past holder");
    assert!(is(&p.get(0, after).await, "v2"), "and lost");
    let late = past.put_at(2, &mut silent, value("late")).await;
    assert!(!late, "{}", sites.report(&[]));
    assert_eq!(next.get_at(1, &second).await, Some(value("v2")));
    next.leave_at(1, second).await;
    sites.passes();
}

#[test]
fn m6_a_past_holder_beside_a_replica_that_has_missed_its_release() {
    alone(past_holder);
}

#[test]
fn m7_a_replica_whose_queue_is_no_prefix() {
    alone(async |servers| {
        let stores = servers.stores().await;
        let sites = Sites::new("M7", stores, Options::new(Locks::Cassandra));
        let k = sites.key("k");
        let (mut h1, mut h2, mut h3) = (
            sites.client_with(1, 0, 20 * LEASE),
            sites.client_with(2, 0, 20 * LEASE),
            sites.client_with(3, 2, 20 * LEASE),
        );
        let mut theirs = Vec::new();
        for n in 0..KEYS {
            theirs.push(Literal::new(servers, &format!("M7 {n}")).await);
        }

        servers.stop(&[2]);
        for p in &theirs {
            let first = p.enter(0).await;
            let second = p.create(0).await;
            assert_eq!((first, second), (1, 2));
        }
        let first = h1.enter(&k, Mode::Exclusive).await;
        let mut first = first.expect("the key is free");
        let mut waits = h2.wants(Mode::Exclusive);
        h2.enter_at(0, &k, &mut waits, Duration::ZERO).await;
        servers.go_on(&[2]).await;

        // Whose ref is the first there is not the first of all.
        let mut broken = 0;
        for p in &theirs {
            assert_eq!(p.create(1).await, 3);
            let head = p.head(2).await;
            let Some(head) = head.filter(|head| head.lock_ref > 1) else {
                continue;
            };
            let entered = p.at(2).acquire_lock(&p.key, head.lock_ref).await;
            broken += usize::from(entered == Ok(Held::Done(())));
        }
        println!("M7 on MUSIC's layout: two holders of {broken} keys of {KEYS}");
        assert!(broken > 0, "nobody was granted beside the first holder");
        let wait = Duration::from_secs(1);
        let mut enter = h3.wants(Mode::Exclusive);
        let entered = h3.enter_at(2, &k, &mut enter, wait).await;
        assert!(entered.is_none(), "{}", sites.report(&[]));
        assert!(h1.put_at(0, &mut first, value("v1")).await);
        h1.leave_at(0, first).await;
        sites.passes();
    });
}
