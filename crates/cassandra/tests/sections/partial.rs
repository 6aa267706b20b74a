//! A write that one replica has, and readers that see other replicas: M1, M3, M5.
//!
//! Servers that stand still for longer than messages live throw away what was sent to them, since
//! there are no hints. All keys of the test share the stops: the order of events of each is its
//! fault's own.

use crate::gates::Call;
use crate::literal::{Literal, is};
use crate::servers::{Servers, alone};
use crate::sites::{LEASE, Locks, Options, Sites};
use fermata_engine::check::clients::{Client, Section, value};
use fermata_peers::Consistency;
use fermata_protocol::base::KeyId;
use fermata_protocol::request::Mode;
use std::sync::Arc;
use std::time::Duration;

const SECOND: i64 = 1_000_000;

/// A key of ours, and whose put reaches one replica.
struct Ours {
    sites: Arc<Sites>,
    k: KeyId,
    h1: Client,
    section: Section,
}

impl Ours {
    /// `old` is everywhere; H1 is in a section.
    async fn new(servers: &Servers, name: &str, old: &str, lease: Duration) -> Ours {
        let options = Options {
            patience: Duration::from_millis(500),
            ..Options::new(Locks::Cassandra)
        };
        let sites = Sites::new(name, servers.stores().await, options);
        let k = sites.key("k");
        sites.base(&k, old).await;
        let mut h1 = sites.client_with(1, 0, lease);
        let section = h1.enter(&k, Mode::Exclusive).await;
        let section = section.expect("the key is free");
        section.falls_silent();
        Ours {
            sites,
            k,
            h1,
            section,
        }
    }

    async fn partial_put(&mut self, text: &str) {
        let put = self.h1.put_at(0, &mut self.section, value(text)).await;
        assert!(!put, "it is at one replica\n{}", self.sites.report(&[]));
    }
}

async fn literal(servers: &'static Servers, name: &str, old: &str) -> (Literal, i64) {
    let literal = Literal::new(servers, name).await;
    literal.base(old).await;
    let lock_ref = literal.enter(0).await;
    literal.hears(0, lock_ref).await;
    (literal, lock_ref)
}

#[test]
fn m1_m3_m5_a_put_that_one_replica_has() {
    alone(async |servers| {
        let mut m1 = Ours::new(servers, "M1", "v0", LEASE).await;
        let mut m5 = Ours::new(servers, "M5", "v0", 20 * LEASE).await;
        let mut m3 = Ours::new(servers, "M3", "z0", LEASE).await;
        let (p1, held1) = literal(servers, "M1", "v0").await;
        let (p5, held5) = literal(servers, "M5", "v0").await;
        let (p3, held3) = literal(servers, "M3", "v0").await;

        servers.stop(&[1, 2]);
        for (p, held) in [(&p1, held1), (&p5, held5), (&p3, held3)] {
            p.write(0, (held, SECOND), "v1", Consistency::One);
        }
        tokio::join!(
            m1.partial_put("v1"),
            m5.partial_put("v1"),
            m3.partial_put("a1")
        );
        servers.go_on(&[1, 2]).await;

        // How each of the sections ends.
        let mut h2 = m3.sites.client_with(2, 2, 10 * LEASE);
        let mut enter = h2.wants(Mode::Exclusive);
        h2.enter_at(0, &m3.k, &mut enter, Duration::ZERO).await;
        let place = h2.keeps_place(0, &m3.k);
        let (ref1, ref3) = (m1.section.held.lock_ref, m3.section.held.lock_ref);
        let (mut forces1, mut forces3) = (m1.sites.client(4, 2), m3.sites.client(4, 2));
        tokio::join!(
            forces1.release_at(2, &m1.k, ref1),
            forces3.release_at(2, &m3.k, ref3),
            async { m5.h1.leave_at(0, m5.section).await },
        );
        // The pseudo-code of forcedRelease writes false.
        p1.flag(2, (held1, SECOND + 1), false);
        p1.dequeue(2, held1);
        let released = p5.at(0).release_lock(&p5.key, held5).await;
        released.expect("a release");
        let forced = p3.at(2).forced_release(&p3.key, held3).await;
        forced.expect("a release");
        let (next1, next5, next3) = (p1.create(2).await, p5.create(2).await, p3.create(2).await);

        // Who does not see the replica that has it.
        servers.stop(&[0]);
        let (mut n1, mut n5) = (
            m1.sites.client_with(2, 2, 10 * LEASE),
            m5.sites.client_with(2, 2, 10 * LEASE),
        );
        let synch = m3.sites.gates[1].hold(Call::Write);
        let (stalls, at, mut once) = (h2.twin(), m3.k.clone(), enter);
        let stalls = tokio::spawn(async move {
            let wait = Duration::from_secs(10);
            stalls.enter_at(1, &at, &mut once, wait).await
        });
        let (in1, in5, ()) = tokio::join!(
            n1.enter(&m1.k, Mode::Exclusive),
            n5.enter(&m5.k, Mode::Exclusive),
            synch.caught(),
        );
        let (in1, in5) = (in1.expect("M1 is free"), in5.expect("M5 is free"));
        p1.acquire(2, next1).await;
        p5.acquire(2, next5).await;
        assert!(is(&p1.get(2, next1).await, "v0"));
        assert!(is(&p5.get(2, next5).await, "v0"));
        assert!(is(&p3.read(1), "v0"), "the first synch has read");
        servers.go_on(&[0]).await;

        // Who sees it.
        servers.stop(&[1]);
        assert!(
            is(&p1.get(2, next1).await, "v1"),
            "M1: the value has changed by itself"
        );
        assert!(
            is(&p5.get(2, next5).await, "v1"),
            "M5: the value has changed by itself"
        );
        p3.acquire(2, next3).await;
        assert!(is(&p3.get(2, next3).await, "v1"));
        p3.put(2, next3, "v2").await;
        let wait = Duration::from_secs(10);
        let (_, _, in3) = tokio::join!(
            n1.get_at(2, &in1),
            n5.get_at(2, &in5),
            h2.enter_at(2, &m3.k, &mut enter, wait),
        );
        servers.go_on(&[1]).await;

        // The first synch goes on, and takes the time now.
        p3.write(1, (next3, 60 * SECOND), "v0", Consistency::Quorum);
        assert!(is(&p3.get(2, next3).await, "v0"), "M3: v2 was acknowledged");
        synch.end();
        let _ = stalls.await;
        let in3 = in3.expect("M3's second enter was granted");
        h2.get_at(2, &in3).await;
        drop(place);
        for ours in [&m1.sites, &m5.sites, &m3.sites] {
            ours.passes();
        }
    });
}
