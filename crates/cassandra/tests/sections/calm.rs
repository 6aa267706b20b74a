//! Faults whose schedules stop no server: each on MUSIC's own layout, where it shows, and on ours.

use crate::barriers::Call;
use crate::literal::{Literal, is, now};
use crate::servers::{T, beside};
use crate::sites::{LEASE, Locks, Options, Sites};
use fermata_cassandra::paper::Held;
use fermata_engine::check::Promise;
use fermata_engine::check::clients::value;
use fermata_peers::Consistency;
use fermata_protocol::request::Mode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

const BOTH: [Locks; 2] = [Locks::Cassandra, Locks::Zookeeper];
const SECOND: i64 = 1_000_000;

/// H1's put has passed every check before it, and stands still; H1 is taken for dead, and released;
/// H3's synch has read; H1's put gets its quorum; H3's synch writes. Whether the put was
/// acknowledged.
async fn false_suspicion(sites: &Arc<Sites>) -> bool {
    let k = sites.key("k");
    sites.base(&k, "v0").await;
    let (mut h1, mut h3) = (sites.client(1, 0), sites.client_with(3, 2, 10 * LEASE));
    let section = h1.enter(&k, Mode::Exclusive).await;
    let mut section = section.expect("the key is free");
    let lock_ref = section.held.lock_ref;
    section.falls_silent();
    let put = sites.barriers[0].hold(Call::Write);
    let puts = tokio::spawn(async move { h1.put_at(0, &mut section, value("v1")).await });
    put.caught().await;
    let synch = sites.barriers[2].hold(Call::Write);
    h3.release_at(2, &k, lock_ref).await;
    let at = k.clone();
    let enters = tokio::spawn(async move {
        let section = h3.enter(&at, Mode::Exclusive).await;
        (h3, section)
    });
    synch.caught().await;
    put.end();
    let acknowledged = puts.await.expect("no panic");
    synch.end();
    let (mut h3, section) = enters.await.expect("no panic");
    let section = section.expect("the key is free");
    h3.get_at(2, &section).await;
    h3.leave_at(2, section).await;
    acknowledged
}

#[test]
fn f1_a_put_of_a_holder_that_was_taken_for_dead() {
    beside(async |servers| {
        let literal = Literal::new(servers, "F1").await;
        literal.base("v0").await;
        let h1 = literal.enter(0).await;
        literal.hears(0, h1).await;
        // H1 has peeked: it is first. It stands still before its write.
        literal.force(2, h1).await;
        let h3 = literal.create(2).await;
        assert!(is(&literal.read(2), "v0"), "H3's synch reads");
        literal.write(0, (h1, SECOND), "v1", Consistency::Quorum);
        // That was acknowledged. H3's synch goes on.
        literal.write(2, (h3, 1), "v0", Consistency::Quorum);
        literal.flag(2, (h3, 1), false);
        literal.start(2, h3);
        assert!(
            is(&literal.get(2, h3).await, "v0"),
            "an acknowledged put is lost"
        );
    });
    beside(async |servers| {
        let stores = servers.stores().await;
        let ours = async |locks, verify| {
            let name = format!("F1, verify {verify}");
            let options = Options {
                verify,
                ..Options::new(locks)
            };
            let sites = Sites::new(&name, stores, options);
            let acknowledged = false_suspicion(&sites).await;
            assert_eq!(acknowledged, !verify, "{}", sites.report(&[]));
            match verify {
                true => sites.passes(),
                false => sites.is_caught(Promise::Acknowledged),
            }
        };
        let [c, z] = BOTH;
        tokio::join!(ours(c, true), ours(c, false), ours(z, true), ours(z, false));
    });
}

#[test]
fn m2_coordinators_with_clocks_of_their_own() {
    beside(async |servers| {
        let literal = Literal::new(servers, "M2").await;
        literal.base("v0").await;
        let h1 = literal.enter(1).await;
        literal.hears(1, h1).await;
        // A coordinator that is 20 s ahead; its answer is lost, and the put is repeated elsewhere.
        literal.write(0, (h1, 20 * SECOND), "v1", Consistency::Quorum);
        literal.put(1, h1, "v1").await;
        literal.put(1, h1, "v2").await;
        assert!(is(&literal.get(1, h1).await, "v1"), "v2 was acknowledged");
    });
    beside(async |servers| {
        let stores = servers.stores().await;
        for locks in BOTH {
            let options = Options {
                ahead: Duration::from_secs(20),
                ..Options::new(locks)
            };
            let sites = Sites::new("M2", stores, options);
            let k = sites.key("k");
            sites.base(&k, "v0").await;
            let mut h1 = sites.client_with(1, 0, 10 * LEASE);
            let section = h1.enter(&k, Mode::Exclusive).await;
            let mut section = section.expect("the key is free");
            h1.put_at(0, &mut section, value("v1")).await;
            h1.put_again_at(1, &mut section, 1, value("v1")).await;
            for text in ["v2", "v3", "v4"] {
                assert!(h1.put_at(1, &mut section, value(text)).await);
                assert_eq!(h1.get_at(1, &section).await, Some(value(text)));
            }
            h1.leave_at(1, section).await;
            sites.passes();
        }
    });
}

#[test]
fn m4_a_put_by_the_wall_clock() {
    beside(async |servers| {
        let literal = Literal::new(servers, "M4").await;
        let put = literal.at(0).put(&literal.key, b"job").await;
        put.expect("a put");
        let h1 = literal.enter(1).await;
        literal.put(1, h1, "v1").await;
        assert!(is(&literal.get(1, h1).await, "job"), "v1 was acknowledged");
    });
    beside(async |servers| {
        let stores = servers.stores().await;
        for locks in BOTH {
            let sites = Sites::new("M4", stores, Options::new(locks));
            let k = sites.key("k");
            let mut user = sites.client(7, 0);
            let mut h1 = sites.client_with(1, 1, 10 * LEASE);
            assert!(user.offer_at(0, &k, value("job")).await);
            let section = h1.enter(&k, Mode::Exclusive).await;
            let mut section = section.expect("the key is free");
            assert!(h1.put_at(1, &mut section, value("v1")).await);
            assert_eq!(h1.get_at(1, &section).await, Some(value("v1")));
            h1.leave_at(1, section).await;
            sites.passes();
        }
    });
}

/// H1's sign of life stands still; H1 is silent for its lease; H2 enters and puts; the sign of life
/// goes on.
async fn late_sign_of_life(sites: &Arc<Sites>) {
    let k = sites.key("k");
    sites.base(&k, "v0").await;
    let (mut h1, mut h2) = (sites.client(1, 0), sites.client_with(2, 2, 10 * LEASE));
    let section = h1.enter(&k, Mode::Exclusive).await;
    let mut section = section.expect("the key is free");
    section.falls_silent();
    let late = sites.barriers[0].hold(Call::Swap);
    let (twin, held) = (h1.twin(), section.held.clone());
    let renews = tokio::spawn(async move { twin.renew(0, &held).await });
    late.caught().await;
    let second = h2.enter(&k, Mode::Exclusive).await;
    let mut second = second.expect("the first is silent");
    assert!(h2.put_at(2, &mut second, value("v2")).await);
    late.end();
    let _ = renews.await;
    let late = h1.put_at(0, &mut section, value("v1")).await;
    assert!(!late, "it is past\n{}", sites.report(&[]));
    assert_eq!(h2.get_at(2, &second).await, Some(value("v2")));
    h2.leave_at(2, second).await;
    sites.passes();
}

#[test]
fn m8_a_sign_of_life_that_is_written_late() {
    beside(async |servers| {
        let literal = Literal::new(servers, "M8").await;
        literal.base("v0").await;
        let h1 = literal.create(0).await;
        let h2 = literal.create(2).await;
        // H1's acquireLock stands still before it writes the start time.
        literal.force(2, h1).await;
        literal.acquire(2, h2).await;
        literal.put(2, h2, "v2").await;
        literal.start(0, h1);
        for site in 0..3 {
            literal.hears(site, h1).await;
        }
        let locked_out = literal.at(2).critical_put(&literal.key, h2, b"v3").await;
        assert_eq!(locked_out, Ok(Held::NotYet), "the holder is locked out");
        let let_in = literal.at(0).critical_put(&literal.key, h1, b"v1").await;
        assert_eq!(let_in, Ok(Held::Done(())), "whoever was released is let in");
    });
    beside(async |servers| {
        let stores = servers.stores().await;
        let [c, z] = BOTH.map(|locks| Sites::new("M8", stores, Options::new(locks)));
        tokio::join!(late_sign_of_life(&c), late_sign_of_life(&z));
    });
}

#[test]
fn m9_an_enter_that_is_repeated_while_its_section_goes_on() {
    beside(async |servers| {
        let literal = Literal::new(servers, "M9").await;
        literal.base("v0").await;
        let h1 = literal.enter(0).await;
        literal.hears(0, h1).await;
        let started = literal.started(0).await.expect("it has started");
        sleep(Duration::from_millis(600)).await;
        literal.put(0, h1, "v1").await;
        literal.acquire(1, h1).await;
        while literal
            .started(0)
            .await
            .is_none_or(|again| again <= started)
        {
            sleep(Duration::from_millis(10)).await;
        }
        literal.put(0, h1, "v2").await;
        assert!(is(&literal.get(0, h1).await, "v1"), "v2 was acknowledged");
    });
    beside(async |servers| {
        let stores = servers.stores().await;
        for locks in BOTH {
            let sites = Sites::new("M9", stores, Options::new(locks));
            let k = sites.key("k");
            sites.base(&k, "v0").await;
            let mut h1 = sites.client_with(1, 0, 10 * LEASE);
            let mut enter = h1.wants(Mode::Exclusive);
            let wait = Duration::from_secs(10);
            let entered = h1.enter_at(0, &k, &mut enter, wait).await;
            let mut section = entered.expect("the key is free");
            assert!(h1.put_at(0, &mut section, value("v1")).await);
            let again = h1.twin().enter_at(1, &k, &mut enter, wait).await;
            let again = again.expect("it is in the section");
            assert_eq!(again.held, section.held);
            assert!(h1.put_at(0, &mut section, value("v2")).await);
            assert_eq!(h1.get_at(0, &section).await, Some(value("v2")));
            h1.leave_at(0, section).await;
            sites.passes();
        }
    });
}

#[test]
fn m10_an_idle_key_between_two_sections() {
    beside(async |servers| {
        let literal = Literal::new(servers, "M10").await;
        let h1 = literal.enter(0).await;
        literal.hears(0, h1).await;
        sleep(Duration::from_millis(600)).await;
        literal.put(0, h1, "v1").await;
        literal.release(0, h1).await;
        literal.clean_up();
        let h2 = literal.enter(2).await;
        assert_eq!(h2, h1, "the guard has begun again");
        literal.put(2, h2, "v2").await;
        assert!(is(&literal.get(2, h2).await, "v1"), "v2 was acknowledged");
        assert!(now() > T, "stamps of sections are below the clock's");
    });
    beside(async |servers| {
        let stores = servers.stores().await;
        for locks in BOTH {
            let sites = Sites::new("M10", stores, Options::new(locks));
            let k = sites.key("k");
            let mut refs = Vec::new();
            for (who, text) in [(1, "v1"), (2, "v2"), (3, "v3")] {
                let mut client = sites.client_with(who, who - 1, 10 * LEASE);
                let section = client.enter(&k, Mode::Exclusive).await;
                let mut section = section.expect("the key is free");
                refs.push(section.held.lock_ref);
                assert!(client.put_at(who - 1, &mut section, value(text)).await);
                assert_eq!(client.get_at(who - 1, &section).await, Some(value(text)));
                client.leave_at(who - 1, section).await;
            }
            assert!(refs.is_sorted() && refs[0] < refs[2], "{refs:?}");
            sites.passes();
        }
    });
}
