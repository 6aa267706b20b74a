//! A write that one replica has, and readers that see other replicas: M1, M3, M5.
//!
//! Servers that stand still for longer than messages live throw away what was sent to them, since
//! there are no hints. All keys of the test share the stops: the order of events of each is its
//! fault's own.

use crate::barriers::Call;
use crate::literal::{Literal, is};
use crate::servers::{Servers, alone};
use crate::sites::{LEASE, Locks, Options, Sites};
use fermata_engine::check::clients::{Client, Enter, Live, Section, value};
use fermata_peers::Consistency;
use fermata_protocol::base::{KeyId, LockRef};
use fermata_protocol::request::{Leaving, Mode};
use std::sync::Arc;
use std::time::Duration;

const SECOND: i64 = 1_000_000;

/// A key of ours, and whose put reaches one replica.
struct Ours {
    sites: Arc<Sites>,
    k: KeyId,
    h1: Client,
    /// None: it was left.
    section: Option<Section>,
}

impl Ours {
    /// `old` is everywhere; H1 is in a section.
    async fn new(servers: &Servers, name: &str, old: &str, lease: Duration) -> Ours {
        let options = Options {
            patience: Duration::from_secs(2),
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
            section: Some(section),
        }
    }

    /// The section's ref.
    fn lock_ref(&self) -> LockRef {
        self.section.as_ref().expect("it goes on").held.lock_ref
    }

    async fn partial_put(&mut self, text: &str) {
        let section = self.section.as_mut().expect("it goes on");
        let put = self.h1.put_at(0, section, value(text)).await;
        assert!(!put, "it is at one replica\n{}", self.sites.report(&[]));
    }
}

/// A key in MUSIC's layout, and the lock refs of the section that ends and of the next one.
struct Theirs {
    p: Literal,
    held: i64,
    next: i64,
}

impl Theirs {
    async fn new(servers: &'static Servers, name: &str) -> Theirs {
        let p = Literal::new(servers, name).await;
        p.base("v0").await;
        let held = p.enter(0).await;
        p.hears(0, held).await;
        Theirs { p, held, next: 0 }
    }

    /// The replicas of sites 1 and 2 have missed the put.
    async fn is_partial(&self) {
        for site in [1, 2] {
            let value = self.p.at(site).get(&self.p.key).await.expect("a value");
            assert!(is(&value, "v0"), "site {site} has {value:?}");
        }
    }
}

struct Keys {
    m1: Ours,
    m3: Ours,
    m5: Ours,
    p1: Theirs,
    p3: Theirs,
    p5: Theirs,
}

/// Keys with a put that only the replica of site 0 has.
async fn planted(servers: &'static Servers) -> Keys {
    let mut keys = Keys {
        m1: Ours::new(servers, "M1", "v0", LEASE).await,
        m3: Ours::new(servers, "M3", "z0", LEASE).await,
        m5: Ours::new(servers, "M5", "v0", 20 * LEASE).await,
        p1: Theirs::new(servers, "M1").await,
        p3: Theirs::new(servers, "M3").await,
        p5: Theirs::new(servers, "M5").await,
    };
    servers.stop(&[1, 2]);
    for key in [&keys.p1, &keys.p3, &keys.p5] {
        let first = (key.held, SECOND);
        key.p.write(0, first, "v1", Consistency::One);
    }
    tokio::join!(
        keys.m1.partial_put("v1"),
        keys.m3.partial_put("a1"),
        keys.m5.partial_put("v1"),
    );
    servers.go_on(&[1, 2]).await;
    for key in [&keys.p1, &keys.p3, &keys.p5] {
        key.is_partial().await;
    }
    for (key, old) in [(&keys.m1, "v0"), (&keys.m3, "z0"), (&keys.m5, "v0")] {
        for site in [1, 2] {
            let mut user = key.sites.client(8, site);
            let found = user.look_at(site, &key.k).await;
            assert_eq!(found, Some(value(old)), "{}", key.sites.report(&[]));
        }
    }
    keys
}

/// How each of the sections of MUSIC's ends: M1 by force, as the pseudo-code has it, which writes
/// that nothing is to be synchronized; M3 by force, as the text has it; M5 by its holder.
async fn their_ends(keys: &mut Keys) {
    let Keys { p1, p3, p5, .. } = keys;
    p1.p.flag(2, (p1.held, SECOND + 1), false);
    p1.p.dequeue(2, p1.held);
    p3.p.force(2, p3.held).await;
    p5.p.release(0, p5.held).await;
    for key in [p1, p3, p5] {
        key.next = key.p.create(2).await;
    }
}

/// The same of ours; M3's next client waits already.
async fn our_ends(keys: &mut Keys) -> (Client, Enter, Option<Live>) {
    let Keys { m1, m3, m5, .. } = keys;
    let mut h2 = m3.sites.client_with(2, 2, 10 * LEASE);
    let mut enter = h2.wants(Mode::Exclusive);
    h2.enter_at(0, &m3.k, &mut enter, Duration::ZERO).await;
    let place = h2.keeps_place(0, &m3.k);
    let (mut forces1, mut forces3) = (m1.sites.client(4, 2), m3.sites.client(4, 2));
    let (ref1, ref3) = (m1.lock_ref(), m3.lock_ref());
    if let Some(section) = m5.section.take() {
        m5.h1.leave_as(0, section, Leaving::Dirty).await;
    }
    tokio::join!(
        forces1.release_at(2, &m1.k, ref1),
        forces3.release_at(2, &m3.k, ref3),
    );
    (h2, enter, place)
}

const WAIT: Duration = Duration::from_secs(10);

/// The next sections: they begin with a read that does not see the replica, and go on with one that
/// does.
async fn next_sections(servers: &'static Servers, mut keys: Keys) {
    their_ends(&mut keys).await;
    let (mut h2, mut enter, _place) = our_ends(&mut keys).await;
    let Keys {
        m1,
        m3,
        m5,
        p1,
        p3,
        p5,
    } = keys;
    let (mut n1, mut n5) = (
        m1.sites.client_with(2, 2, 10 * LEASE),
        m5.sites.client_with(2, 2, 10 * LEASE),
    );

    servers.stop(&[0]);
    let synch = m3.sites.barriers[1].hold(Call::Write);
    let (stalls, at, mut once) = (h2.twin(), m3.k.clone(), enter);
    let stalls = tokio::spawn(async move { stalls.enter_at(1, &at, &mut once, WAIT).await });
    let (in1, in5, ()) = tokio::join!(
        n1.enter(&m1.k, Mode::Exclusive),
        n5.enter(&m5.k, Mode::Exclusive),
        synch.caught(),
    );
    let (in1, in5) = (in1.expect("M1 is free"), in5.expect("M5 is free"));
    for key in [&p1, &p5] {
        key.p.acquire(2, key.next).await;
        assert!(is(&key.p.get(2, key.next).await, "v0"));
    }
    assert!(is(&p3.p.read(1), "v0"), "the first synch has read");
    servers.go_on(&[0]).await;

    servers.stop(&[1]);
    for key in [&p1, &p5] {
        let got = key.p.get(2, key.next).await;
        assert!(is(&got, "v1"), "M1, M5: the value has changed by itself");
    }
    p3.p.acquire(2, p3.next).await;
    assert!(is(&p3.p.get(2, p3.next).await, "v1"));
    p3.p.put(2, p3.next, "v2").await;
    let (_, _, in3) = tokio::join!(
        n1.get_at(2, &in1),
        n5.get_at(2, &in5),
        h2.enter_at(2, &m3.k, &mut enter, WAIT),
    );
    servers.go_on(&[1]).await;

    // M3's first synch goes on, and takes the time now.
    p3.p.write(1, (p3.next, 600 * SECOND), "v0", Consistency::Quorum);
    let got = p3.p.get(2, p3.next).await;
    assert!(is(&got, "v0"), "M3: v2 was acknowledged");
    synch.end();
    let _ = stalls.await;
    let in3 = in3.expect("M3's second enter was granted");
    h2.get_at(2, &in3).await;
    for ours in [&m1.sites, &m3.sites, &m5.sites] {
        ours.passes();
    }
}

#[test]
fn m1_m3_m5_a_put_that_one_replica_has() {
    alone(async |servers| {
        let keys = planted(servers).await;
        next_sections(servers, keys).await;
    });
}
