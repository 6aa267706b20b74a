//! A replica that has missed updates, since it stood still for longer than messages live: M6, M7.

use crate::literal::{Literal, is};
use crate::servers::alone;
use crate::sites::{LEASE, Locks, Options, Sites};
use fermata_cassandra::paper::Held;
use fermata_engine::check::clients::value;
use fermata_protocol::request::Mode;
use std::time::Duration;

/// How many keys M7 is tried on.
const KEYS: usize = 8;

#[test]
fn m6_m7_a_replica_that_has_missed_updates() {
    alone(async |servers| {
        let options = Options::new(Locks::Cassandra);
        let stores = servers.stores().await;
        let (m6, m7) = (
            Sites::new("M6", stores, options),
            Sites::new("M7", stores, options),
        );
        let (k6, k7) = (m6.key("k"), m7.key("k"));
        m6.base(&k6, "v0").await;
        let (mut past, mut next) = (m6.client(1, 0), m6.client_with(2, 1, 10 * LEASE));
        let silent = past.enter(&k6, Mode::Exclusive).await;
        let mut silent = silent.expect("the key is free");
        silent.falls_silent();
        let mut h1 = m7.client_with(1, 0, 20 * LEASE);
        let mut h2 = m7.client_with(2, 0, 20 * LEASE);
        let mut h3 = m7.client_with(3, 2, 20 * LEASE);

        let p6 = Literal::new(servers, "M6").await;
        p6.base("v0").await;
        let held6 = p6.enter(2).await;
        p6.hears(2, held6).await;
        let mut p7 = Vec::new();
        for n in 0..KEYS {
            p7.push(Literal::new(servers, &format!("M7 {n}")).await);
        }

        // What the replica of site 2 misses.
        servers.stop(&[2]);
        let forced = p6.at(0).forced_release(&p6.key, held6).await;
        forced.expect("a release");
        let next6 = p6.enter(0).await;
        p6.put(0, next6, "v2").await;
        for p in &p7 {
            let first = p.enter(0).await;
            let second = p.create(0).await;
            assert_eq!((first, second), (1, 2));
        }
        let ref6 = silent.held.lock_ref;
        next.release_at(1, &k6, ref6).await;
        let second = next.enter(&k6, Mode::Exclusive).await;
        let mut second = second.expect("the first was released");
        assert!(next.put_at(1, &mut second, value("v2")).await);
        let first = h1.enter(&k7, Mode::Exclusive).await;
        let mut first = first.expect("the key is free");
        let mut waits = h2.wants(Mode::Exclusive);
        h2.enter_at(0, &k7, &mut waits, Duration::ZERO).await;
        servers.go_on(&[2]).await;

        // M6: whoever asks there is the holder.
        let late = p6.at(2).critical_put(&p6.key, held6, b"late").await;
        assert_eq!(
            late,
            Ok(Held::Done(())),
            "M6: acknowledged to a past holder"
        );
        assert!(is(&p6.get(0, next6).await, "v2"), "M6: and lost");
        let late = past.put_at(2, &mut silent, value("late")).await;
        assert!(!late, "{}", m6.report(&[]));
        assert_eq!(next.get_at(1, &second).await, Some(value("v2")));
        next.leave_at(1, second).await;
        m6.passes();

        // M7: whose ref is the first there is no longer the first of all.
        let mut broken = 0;
        for p in &p7 {
            assert_eq!(p.create(1).await, 3);
            let head = p.at(2).peek(&p.key).await.expect("a peek");
            let Some(head) = head.filter(|head| head.lock_ref > 1) else {
                continue;
            };
            let entered = p.at(2).acquire_lock(&p.key, head.lock_ref).await;
            broken += usize::from(entered == Ok(Held::Done(())));
        }
        println!("M7 on MUSIC's layout: two holders of {broken} keys of {KEYS}");
        assert!(broken > 0, "M7: nobody was granted beside the first holder");
        let mut enter = h3.wants(Mode::Exclusive);
        let wait = Duration::from_secs(1);
        let entered = h3.enter_at(2, &k7, &mut enter, wait).await;
        assert!(entered.is_none(), "{}", m7.report(&[]));
        assert!(h1.put_at(0, &mut first, value("v1")).await);
        h1.leave_at(0, first).await;
        m7.passes();
    });
}
