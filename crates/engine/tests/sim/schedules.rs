//! The schedules themselves: what is held, lost or let through, step by step, and what the clients
//! do meanwhile.

use crate::clients::{Cluster, LEASE, key, value};
use crate::world::{Call, Fate, Filter, RuleId, Step, World, on};
use fermata_engine::check::clients::{Network, Section};
use fermata_engine::check::{Promise, Violation};
use fermata_protocol::base::{KeyId, Label, SessionId, SiteId};
use fermata_protocol::request::{Critical, Held, Leaving, Mode, Operation};
use fermata_protocol::{Reply, Request};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// The base of most schedules: a section by a client of its own puts `text` and leaves.
pub(crate) async fn base(cluster: &Arc<Cluster>, text: &str) {
    let mut client = cluster.client(9, 1);
    let k = key("k");
    let mut section = client
        .enter(&k, Mode::Exclusive)
        .await
        .expect("the key is free");
    assert!(client.put_at(1, &mut section, value(text)).await);
    client.leave_at(1, section).await;
    sleep(Duration::from_secs(1)).await;
}

/// The nodes' quorum reads from now on get no answer from this replica.
pub(crate) fn blind(world: &World, node: usize, replica: usize) -> RuleId {
    world.lose(reads(node).step(Step::To).peers(&[replica]))
}

pub(crate) fn reads(node: usize) -> Filter {
    on(&[Call::DataRead]).node(node)
}

/// Puts of this node reach these replicas only.
pub(crate) fn reach_all_but(world: &World, node: usize, replicas: &[usize]) -> RuleId {
    world.lose(on(&[Call::Write]).node(node).step(Step::To).peers(replicas))
}

/// A schedule under way, and what it says itself against what it saw.
pub(crate) type Played = Pin<Box<dyn Future<Output = Vec<Violation>>>>;

macro_rules! schedule {
    ($(#[$doc:meta])* $name:ident($cluster:ident, $world:ident) $body:block) => {
        $(#[$doc])*
        pub(crate) fn $name(cluster: Arc<crate::clients::Cluster>) -> $crate::schedules::Played {
            Box::pin(async move {
                let $cluster = cluster;
                let $world = Arc::clone(&$cluster.world);
                $body
            })
        }
    };
}
pub(crate) use schedule;

schedule! {
    /// F1. H1's put has passed every check before it; it is released by force; H3's synch has read;
    /// the put gets its quorum; H3's synch writes.
    false_suspicion(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h3) = (cluster.client(1, 0), cluster.client(3, 2));
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let lock_ref = section.held.lock_ref;
        section.falls_silent();
        let put = world.hold(on(&[Call::Write]).node(0).step(Step::Begin).times(1));
        let h1_puts = tokio::spawn(async move { h1.put_at(0, &mut section, value("v1")).await });
        world.caught(put, 1).await;
        let synch = on(&[Call::Write, Call::Start]).node(2).step(Step::Begin);
        let synch = world.hold(synch.times(1));
        h3.release_at(2, &k, lock_ref).await;
        let h3_enters = tokio::spawn(async move { h3.enter(&k, Mode::Exclusive).await });
        world.caught(synch, 1).await;
        world.end(put);
        // Whether it is acknowledged is the question.
        let _ = h1_puts.await;
        world.end(synch);
        let _ = h3_enters.await;
        Vec::new()
    }
}

/// M1 and F5: a put that reached one replica; its section ends without it; two reads.
async fn partial_put(cluster: Arc<Cluster>, leaves: bool) -> Vec<Violation> {
    let (world, k) = (Arc::clone(&cluster.world), key("k"));
    base(&cluster, "v0").await;
    let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 2));
    let mut section = h1
        .enter(&k, Mode::Exclusive)
        .await
        .expect("the key is free");
    let lock_ref = section.held.lock_ref;
    let partial = reach_all_but(&world, 0, &[1, 2]);
    section.falls_silent();
    let acknowledged = h1.put_at(0, &mut section, value("v1")).await;
    assert!(!acknowledged, "the put is at one replica");
    world.end(partial);
    if leaves {
        h1.leave_at(0, section).await;
    } else {
        h2.release_at(2, &k, lock_ref).await;
    }
    let unseen = blind(&world, 2, 0);
    let entered = h2.enter(&k, Mode::Exclusive).await;
    world.end(unseen);
    let unseen = blind(&world, 2, 1);
    if let Some(section) = entered {
        h2.get_at(2, &section).await;
    }
    world.end(unseen);
    Vec::new()
}

schedule! {
    /// M1. The holder of a partial put is released by force.
    forced_over_a_partial_put(cluster, _world) { partial_put(cluster, false).await }
}

schedule! {
    /// M5, F5. The holder of a partial put leaves, and says so.
    dirty_leave(cluster, _world) { partial_put(cluster, true).await }
}

schedule! {
    /// M2. A put's answer is lost; it is repeated at a node whose clock is behind; the next put is
    /// made there.
    coordinators_clocks(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        world.skew(0, 20_000_000);
        let mut h1 = cluster.client(1, 0);
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let lost = world.lose(on(&[Call::Request]).node(0).step(Step::From).times(1));
        h1.put_at(0, &mut section, value("v1")).await;
        world.end(lost);
        h1.put_again_at(1, &mut section, 1, value("v1")).await;
        for text in ["v2", "v3", "v4", "v5", "v6"] {
            h1.put_at(1, &mut section, value(text)).await;
            h1.get_at(1, &section).await;
        }
        Vec::new()
    }
}

schedule! {
    /// M3, F4. One ref's synch is run by two nodes: the first has read, and writes after the second
    /// has granted. The value in doubt is the smaller in bytes: equal stamps keep the larger.
    two_synchs(cluster, world) {
        let k = key("k");
        base(&cluster, "z0").await;
        let (mut h1, mut h2) = (cluster.client(1, 1), cluster.client(2, 2));
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let lock_ref = section.held.lock_ref;
        section.falls_silent();
        let partial = reach_all_but(&world, 1, &[0, 2]);
        h1.put_at(1, &mut section, value("a1")).await;
        world.end(partial);
        let mut enter = h2.wants(Mode::Exclusive);
        h2.enter_at(0, &k, &mut enter, Duration::ZERO).await;
        let _place = h2.keeps_place(0, &k);
        h2.release_at(2, &k, lock_ref).await;
        sleep(LEASE / 8).await;
        let (unseen, unseen_too) = (blind(&world, 0, 1), blind(&world, 2, 0));
        let synch = world.hold(on(&[Call::Write]).node(0).step(Step::Begin).times(1));
        let (mut again, h2) = (enter, Arc::new(h2));
        let (first, at) = (Arc::clone(&h2), k.clone());
        let first = tokio::spawn(async move {
            first.enter_at(0, &at, &mut again, Duration::from_secs(5)).await
        });
        world.caught(synch, 1).await;
        world.end(unseen);
        let entered = h2.enter_at(2, &k, &mut enter, Duration::from_secs(5)).await;
        world.end(unseen_too);
        world.end(synch);
        let _ = first.await;
        let mut h2 = cluster.client(2, 2);
        if let Some(section) = entered {
            h2.get_at(2, &section).await;
        }
        Vec::new()
    }
}

schedule! {
    /// M4. A put outside sections, by the wall clock; then a section's put.
    wall_clock_put(cluster, _world) {
        let k = key("k");
        let (mut user, mut h1) = (cluster.client(7, 0), cluster.client(1, 1));
        assert!(user.offer_at(0, &k, value("job")).await);
        sleep(Duration::from_secs(1)).await;
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        h1.put_at(1, &mut section, value("v1")).await;
        h1.get_at(1, &section).await;
        Vec::new()
    }
}

schedule! {
    /// M7, F11.1. Site 2's replica misses the commits of refs 1 and 2, not that of ref 3, whose
    /// client asks there.
    peek_of_no_prefix(cluster, world) {
        let k = key("k");
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 0));
        let mut h3 = cluster.client(3, 2);
        let missed = on(&[Call::Commit, Call::Start]).step(Step::To).peers(&[2]);
        let missed = world.lose(missed);
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let mut waits = h2.wants(Mode::Exclusive);
        h2.enter_at(0, &k, &mut waits, Duration::ZERO).await;
        world.end(missed);
        let mut enter = h3.wants(Mode::Exclusive);
        let entered = h3.enter_at(2, &k, &mut enter, Duration::from_secs(2)).await;
        h1.put_at(0, &mut section, value("v1")).await;
        drop(entered);
        Vec::new()
    }
}

schedule! {
    /// M8, F11.2. A holder's first sign of life is written after it was released: the start time of
    /// the paper, a renewal of ours.
    late_sign_of_life(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 2));
        let late = world.hold(on(&[Call::Start]).node(0).step(Step::Begin).times(1));
        let mut enter = h1.wants(Mode::Exclusive);
        let h1 = Arc::new(h1);
        let (first, at, mut once) = (Arc::clone(&h1), k.clone(), enter);
        let first = tokio::spawn(async move {
            first.enter_at(0, &at, &mut once, 5 * LEASE).await
        });
        sleep(Duration::from_secs(1)).await;
        let late_too = world.hold(on(&[Call::Swap]).node(0).step(Step::Begin).times(1));
        let mut entered = None;
        if first.is_finished() {
            entered = first.await.ok().flatten();
            if let Some(section) = &entered {
                section.falls_silent();
                let (renews, held) = (cluster.client(1, 0), section.held.clone());
                tokio::spawn(async move { renews.renew(0, &held).await });
            }
        }
        sleep(LEASE).await;
        let second = h2.enter(&k, Mode::Exclusive).await;
        let mut second = second.expect("the first is silent");
        h2.put_at(2, &mut second, value("v2")).await;
        world.end(late);
        world.end(late_too);
        sleep(Duration::from_secs(1)).await;
        drop(entered);
        let again = h1.enter_at(0, &k, &mut enter, Duration::ZERO).await;
        let mut h1 = cluster.client(1, 0);
        if let Some(mut section) = again {
            h1.put_at(0, &mut section, value("v1")).await;
        }
        h2.get_at(2, &second).await;
        Vec::new()
    }
}

schedule! {
    /// M9. A repetition of the enter arrives while the section goes on.
    repeated_enter(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let mut h1 = cluster.client(1, 0);
        let mut enter = h1.wants(Mode::Exclusive);
        let wait = Duration::from_secs(5);
        let entered = h1.enter_at(0, &k, &mut enter, wait).await;
        let mut section = entered.expect("the key is free");
        let late = world.hold(on(&[Call::Start]).node(1).step(Step::Begin).times(1));
        let repeats = cluster.client(1, 0);
        let repeated = tokio::spawn(async move {
            repeats.enter_at(1, &key("k"), &mut enter, wait).await
        });
        sleep(LEASE).await;
        h1.put_at(0, &mut section, value("v1")).await;
        world.end(late);
        sleep(Duration::from_millis(300)).await;
        h1.put_at(0, &mut section, value("v2")).await;
        h1.get_at(0, &section).await;
        let _ = repeated.await;
        Vec::new()
    }
}

schedule! {
    /// M10, F11.3. A section is over and nobody waits; then another.
    idle_between(cluster, _world) {
        let k = key("k");
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 2));
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        sleep(LEASE).await;
        h1.put_at(0, &mut section, value("v1")).await;
        h1.leave_at(0, section).await;
        sleep(Duration::from_secs(1)).await;
        let mut section = h2.enter(&k, Mode::Exclusive).await.expect("the key is free");
        h2.put_at(2, &mut section, value("v2")).await;
        h2.get_at(2, &section).await;
        Vec::new()
    }
}

schedule! {
    /// M11, F11.8. A put of two columns is on its way when its holder is released; the next synch
    /// writes what it has found.
    late_column(cluster, world) {
        let k = key("k");
        base(&cluster, "x0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 2));
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let lock_ref = section.held.lock_ref;
        section.falls_silent();
        let late = world.hold(on(&[Call::Write]).node(0).step(Step::To));
        let put = tokio::spawn(async move { h1.put_at(0, &mut section, value("x1|y1")).await });
        world.caught(late, 3).await;
        h2.release_at(2, &k, lock_ref).await;
        let section = h2.enter(&k, Mode::Exclusive).await;
        world.end(late);
        let _ = put.await;
        sleep(Duration::from_millis(200)).await;
        if let Some(section) = section {
            h2.get_at(2, &section).await;
        }
        Vec::new()
    }
}

schedule! {
    /// F3. Between a value read and a peek, a section runs from its enter to its leave.
    section_before_the_peek(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 2));
        let peek = world.hold(on(&[Call::Peek]).node(2).step(Step::Begin).times(1));
        let enters = tokio::spawn(async move { h2.enter(&key("k"), Mode::Exclusive).await });
        world.caught(peek, 1).await;
        sleep(Duration::from_millis(500)).await;
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        h1.put_at(0, &mut section, value("v1")).await;
        h1.leave_at(0, section).await;
        sleep(Duration::from_millis(500)).await;
        world.end(peek);
        let _ = enters.await;
        Vec::new()
    }
}

schedule! {
    /// F11.1. A node sees by a peek that its ref is the head, and is stopped; the ref expires, the
    /// next holder enters and puts; the node goes on.
    grant_after_a_pause(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 1), cluster.client(2, 0).quiet());
        let mut h3 = cluster.client(3, 2);
        let first = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let mut enter = h2.wants(Mode::Exclusive);
        let watch = world.hold(on(&[Call::Changed]).node(0).step(Step::End));
        let waits = tokio::spawn(async move {
            h2.enter_at(0, &key("k"), &mut enter, 5 * LEASE).await
        });
        world.caught(watch, 1).await;
        h1.leave_at(1, first).await;
        sleep(Duration::from_millis(500)).await;
        let peek = world.hold(on(&[Call::Peek]).node(0).step(Step::End).times(1));
        world.end(watch);
        world.caught(peek, 1).await;
        let third = h3.enter(&k, Mode::Exclusive).await;
        let mut third = third.expect("the second is silent");
        h3.put_at(2, &mut third, value("v3")).await;
        world.end(peek);
        let granted = waits.await.ok().flatten();
        granted.iter().map(|_| Violation {
            promise: Promise::Exclusivity,
            sentence: "a grant was decided after a later one had been told".into(),
        }).collect()
    }
}

schedule! {
    /// F11.1. The leave that makes a ref the head is made at its own node, which then waits for the
    /// value for longer than the ref's lease; the next holder enters meanwhile.
    grant_long_in_coming(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 0).quiet());
        let mut h3 = cluster.client(3, 2);
        let first = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let mut enter = h2.wants(Mode::Exclusive);
        let waits = tokio::spawn(async move {
            h2.enter_at(0, &key("k"), &mut enter, 5 * LEASE).await
        });
        sleep(Duration::from_millis(500)).await;
        let reads = world.hold(on(&[Call::DataRead]).node(0).step(Step::Begin));
        let watch = world.hold(on(&[Call::Changed]).node(0).step(Step::End));
        h1.leave_at(0, first).await;
        world.caught(reads, 1).await;
        let third = h3.enter(&k, Mode::Exclusive).await;
        third.expect("the second is silent");
        world.end(reads);
        let granted = waits.await.ok().flatten();
        world.end(watch);
        granted.iter().map(|_| Violation {
            promise: Promise::Exclusivity,
            sentence: "a grant was decided after a later one had been told".into(),
        }).collect()
    }
}

schedule! {
    /// F11.1. H2 finds the key free, and the value that is read beside its compare-and-set is long
    /// in coming. H3 ends it, as it is silent, puts and leaves; then the read goes on.
    first_read_long_in_coming(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h2, mut h3) = (cluster.client(2, 0).quiet(), cluster.client(3, 2));
        let slow = world.hold(reads(0).step(Step::Begin).times(1));
        let mut enter = h2.wants(Mode::Exclusive);
        let enters = tokio::spawn(async move {
            h2.enter_at(0, &key("k"), &mut enter, 5 * LEASE).await
        });
        world.caught(slow, 1).await;
        sleep(Duration::from_millis(500)).await;
        let mut third = h3.enter(&k, Mode::Exclusive).await.expect("the second is silent");
        h3.put_at(2, &mut third, value("v1")).await;
        h3.leave_at(2, third).await;
        world.end(slow);
        let _ = enters.await;
        Vec::new()
    }
}

schedule! {
    /// F11.7. A resumption is done, and its node is not told.
    resumption_of_unknown_outcome(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let mut h1 = cluster.client(1, 0);
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        world.fate(on(&[Call::Swap]).node(1).times(1), Fate::Applied);
        let held = section.held.clone();
        let resumed = h1.resume_at(1, &held).await;
        if resumed.is_none() {
            h1.put_at(0, &mut section, value("v1")).await;
        }
        Vec::new()
    }
}

schedule! {
    /// G24. A section adopts one eventual value and puts nothing; a newer one, taken before that,
    /// then comes into sight.
    adoption_is_no_write(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut user, mut h1) = (cluster.client(7, 0), cluster.client(1, 1));
        assert!(user.offer_at(0, &k, value("e1")).await);
        sleep(Duration::from_millis(500)).await;
        let alone = world.lose(on(&[Call::Offer]).node(2).step(Step::To).peers(&[0, 1]));
        assert!(user.offer_at(2, &k, value("e2")).await);
        world.end(alone);
        let unseen = blind(&world, 1, 2);
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        h1.leave_at(1, section).await;
        world.end(unseen);
        sleep(Duration::from_secs(1)).await;
        world.repair_all();
        expect_at_all(&cluster, "e2").await
    }
}

/// What an eventual get must return at every node.
async fn expect_at_all(cluster: &Arc<Cluster>, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for node in 0..3 {
        let mut user = cluster.client(8, node);
        let seen = user.look_at(node, &key("k")).await;
        if seen != Some(value(text)) {
            found.push(Violation {
                promise: Promise::Eventual,
                sentence: format!("node {node} shows {seen:?}, not {text}"),
            });
        }
    }
    found
}

schedule! {
    /// G5. A ref is granted; its enter is repeated at a node that meets a newer eventual value.
    second_grant(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut user, mut h1) = (cluster.client(7, 2), cluster.client(1, 0));
        let alone = world.lose(on(&[Call::Offer]).node(2).step(Step::To).peers(&[0, 1]));
        assert!(user.offer_at(2, &k, value("e1")).await);
        world.end(alone);
        let unseen = blind(&world, 0, 2);
        let mut enter = h1.wants(Mode::Exclusive);
        let wait = Duration::from_secs(5);
        let entered = h1.enter_at(0, &k, &mut enter, wait).await;
        world.end(unseen);
        let section = entered.expect("the key is free");
        let unseen = blind(&world, 2, 0);
        h1.enter_at(2, &k, &mut enter, wait).await;
        world.end(unseen);
        h1.get_at(0, &section).await;
        Vec::new()
    }
}

schedule! {
    /// G5. The adoption for a ref stands still before it writes; the enter is repeated at another
    /// node, which settles the ref without it and grants; the adoption goes on.
    adoption_overtaken(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut user, mut h1) = (cluster.client(7, 0), cluster.client(1, 0));
        assert!(user.offer_at(0, &k, value("e1")).await);
        sleep(Duration::from_millis(500)).await;
        let adoption = world.hold(on(&[Call::Write]).node(0).step(Step::Begin).times(1));
        let mut enter = h1.wants(Mode::Exclusive);
        let (first, mut once) = (cluster.client(1, 0), enter);
        let first = tokio::spawn(async move {
            first.enter_at(0, &key("k"), &mut once, 4 * LEASE).await
        });
        world.caught(adoption, 1).await;
        let entered = h1.enter_at(2, &k, &mut enter, LEASE).await;
        if let Some(mut section) = entered {
            h1.get_at(2, &section).await;
            world.end(adoption);
            sleep(Duration::from_secs(1)).await;
            h1.get_at(2, &section).await;
            h1.put_at(2, &mut section, value("v1")).await;
            h1.get_at(2, &section).await;
        }
        world.end(adoption);
        let _ = first.await;
        Vec::new()
    }
}

schedule! {
    /// Two nodes prepare one ref's grant. The one reads a partial put, and stands before it
    /// decides; the other, which has not seen that put, settles the value without it meanwhile.
    settled_after_the_read(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 0));
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let partial = reach_all_but(&world, 0, &[1, 2]);
        section.falls_silent();
        h1.put_at(0, &mut section, value("v1")).await;
        world.end(partial);
        let reads = world.hold(on(&[Call::DataRead]).node(0).step(Step::Begin).times(1));
        let decides = world.hold(on(&[Call::Read]).node(0).step(Step::Begin).times(1));
        let writes = world.hold(on(&[Call::Write]).node(2).step(Step::Begin).times(1));
        let unseen = blind(&world, 2, 0);
        let mut enter = h2.wants(Mode::Exclusive);
        let (first, mut once) = (cluster.client(2, 0), enter);
        let first = tokio::spawn(async move {
            first.enter_at(0, &key("k"), &mut once, 8 * LEASE).await
        });
        sleep(Duration::from_millis(300)).await;
        let (second, at) = (cluster.client(2, 0), k.clone());
        let second =
            tokio::spawn(async move { second.enter_at(2, &at, &mut enter, 8 * LEASE).await });
        world.caught(writes, 1).await;
        world.end(reads);
        sleep(Duration::from_millis(500)).await;
        world.end(writes);
        let entered = second.await.expect("no client panics");
        world.end(unseen);
        world.end(decides);
        let _ = first.await;
        if let Some(mut section) = entered {
            h2.get_at(2, &section).await;
            h2.put_at(2, &mut section, value("v2")).await;
        }
        Vec::new()
    }
}

schedule! {
    /// F19, G9. Two readers follow a holder that was released over a partial put: one sees it, the
    /// other does not.
    two_readers(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let mut h1 = cluster.client(1, 0);
        let (mut r1, mut r2) = (cluster.client(2, 1), cluster.client(3, 2));
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let lock_ref = section.held.lock_ref;
        let partial = reach_all_but(&world, 0, &[1, 2]);
        section.falls_silent();
        h1.put_at(0, &mut section, value("v1")).await;
        world.end(partial);
        let (unseen, unseen_too) = (blind(&world, 1, 0), blind(&world, 2, 1));
        let first = tokio::spawn(async move {
            let section = r1.enter(&key("k"), Mode::Shared).await;
            (r1, section)
        });
        sleep(Duration::from_millis(300)).await;
        let second = tokio::spawn(async move {
            let section = r2.enter(&key("k"), Mode::Shared).await;
            (r2, section)
        });
        sleep(Duration::from_millis(300)).await;
        cluster.client(4, 1).release_at(1, &k, lock_ref).await;
        let (first, second) = (first.await, second.await);
        world.end(unseen);
        world.end(unseen_too);
        for read in [first, second] {
            if let Ok((mut reader, Some(section))) = read {
                reader.get_at(1, &section).await;
            }
        }
        Vec::new()
    }
}

schedule! {
    /// A holder renews; the replica beside which somebody waits misses every renewal.
    renewals_unseen(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 2).quiet());
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let mut enter = h2.wants(Mode::Exclusive);
        h2.enter_at(1, &k, &mut enter, Duration::ZERO).await;
        let _place = cluster.client(2, 1).keeps_place(1, &k);
        sleep(Duration::from_millis(500)).await;
        let missed = world.lose(on(&[Call::Commit]).step(Step::To).peers(&[2]));
        let waits = tokio::spawn(async move {
            h2.enter_at(2, &key("k"), &mut enter, 4 * LEASE).await
        });
        sleep(2 * LEASE).await;
        h1.put_at(0, &mut section, value("v1")).await;
        world.end(missed);
        h1.leave_at(0, section).await;
        let _ = waits.await;
        Vec::new()
    }
}

schedule! {
    /// A leave whose outcome is unknown is repeated; a put in doubt is outranked by a later one, so
    /// that the leave is clean.
    clean_by_a_later_put(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 2));
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let partial = reach_all_but(&world, 0, &[1, 2]);
        h1.put_at(0, &mut section, value("v1")).await;
        world.end(partial);
        h1.put_at(0, &mut section, value("v2")).await;
        world.fate(on(&[Call::Swap]).node(0).times(1), Fate::Applied);
        h1.leave_at(0, section).await;
        let section = h2.enter(&k, Mode::Exclusive).await.expect("the key is free");
        h2.get_at(2, &section).await;
        h2.leave_as(2, section, Leaving::Clean(None)).await;
        Vec::new()
    }
}

schedule! {
    /// G6. The connection of an enter that waits breaks; the enter is repeated at another node.
    broken_connection(cluster, _world) {
        let k = key("k");
        let (mut h1, mut h2) = (cluster.client(1, 1), cluster.client(2, 0));
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let mut enter = h2.wants(Mode::Exclusive);
        let (first, mut once) = (cluster.client(2, 0), enter);
        let first = tokio::spawn(async move {
            first.enter_at(0, &key("k"), &mut once, 4 * LEASE).await
        });
        sleep(Duration::from_millis(500)).await;
        let (again, at) = (cluster.client(2, 0), k.clone());
        let again = tokio::spawn(async move { again.enter_at(2, &at, &mut enter, LEASE).await });
        sleep(Duration::from_millis(200)).await;
        first.abort();
        sleep(Duration::from_secs(1)).await;
        h1.leave_at(1, section).await;
        let entered = again.await.ok().flatten();
        let lost = entered.is_none().then(|| Violation {
            promise: Promise::ToldPast,
            sentence: "an enter lost its place, for a connection broke".into(),
        });
        lost.into_iter().collect()
    }
}

schedule! {
    /// An eventual put by a node whose clock is ahead; a section puts over it; another eventual put
    /// follows, by a node whose clock is right and whose replica has the first.
    clock_ahead(cluster, world) {
        let k = key("k");
        world.skew(0, 20_000_000);
        let (mut user, mut h1) = (cluster.client(7, 0), cluster.client(1, 1));
        assert!(user.offer_at(0, &k, value("e1")).await);
        sleep(Duration::from_secs(1)).await;
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        h1.put_at(1, &mut section, value("v1")).await;
        h1.leave_at(1, section).await;
        sleep(Duration::from_secs(1)).await;
        assert!(user.offer_at(1, &k, value("e2")).await);
        sleep(Duration::from_secs(1)).await;
        expect_at_all(&cluster, "e2").await
    }
}

/// A transmission whose connection nobody closes: its answers.
pub(crate) fn transmit(
    cluster: &Arc<Cluster>,
    (who, node): (usize, usize),
    (number, attempt): (u64, u32),
    operation: Operation,
) -> mpsc::UnboundedReceiver<Reply> {
    let request = Request {
        session: SessionId(who as u128),
        number,
        attempt,
        answered_through: 0,
        site: SiteId(node as u16),
        operation,
    };
    Arc::clone(cluster).transmit(who, node, node, request)
}

/// The last of the answers.
pub(crate) async fn last(mut answers: mpsc::UnboundedReceiver<Reply>) -> Option<Reply> {
    loop {
        match answers.recv().await {
            Some(Reply::Queued { .. } | Reply::Stalled { .. }) => {}
            last => return last,
        }
    }
}

pub(crate) fn wrong(promise: Promise, sentence: &str) -> Violation {
    Violation {
        promise,
        sentence: sentence.into(),
    }
}

/// The section's first put, which leaves it.
pub(crate) fn last_put(section: &Section, text: &str) -> Operation {
    Operation::Critical {
        held: section.held.clone(),
        operation: Critical::Put {
            number: 1,
            value: value(text),
        },
        leave: vec![(section.held.clone(), Leaving::Clean(None))],
    }
}

schedule! {
    /// G15. A put that leaves its section comes to nothing at one node, which leaves dirty; the
    /// next holder enters; the put is repeated at a node that has not heard of all that.
    last_put_repeated(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h3) = (cluster.client(1, 0), cluster.client(3, 2));
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        h1.get_at(1, &section).await;
        section.falls_silent();
        let lost = world.lose(on(&[Call::Write]).node(0).step(Step::To));
        let first = transmit(&cluster, (1, 0), (50, 0), last_put(&section, "v1"));
        let first = last(first).await;
        world.end(lost);
        assert!(matches!(first, Some(Reply::Refused(_))), "{first:?}");
        let third = h3.enter(&k, Mode::Exclusive).await.expect("the first has left");
        let again = transmit(&cluster, (1, 1), (50, 1), last_put(&section, "v1"));
        let again = last(again).await;
        let lost = third.entry == Some(value("v0")) && matches!(again, Some(Reply::Left));
        let text = "a put that left its section was acknowledged, and the next one lacks it";
        lost.then(|| wrong(Promise::Acknowledged, text)).into_iter().collect()
    }
}

schedule! {
    /// Somebody takes a section over before its own client has the answer to its enter, and repeats
    /// it.
    taken_over_unanswered(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 2));
        let mut enter = h1.wants(Mode::Exclusive);
        let lost = world.lose(on(&[Call::Request]).node(0).step(Step::From).peers(&[1]));
        let (first, mut once) = (cluster.client(1, 0), enter);
        let first = tokio::spawn(async move {
            first.enter_at(0, &key("k"), &mut once, LEASE).await
        });
        sleep(Duration::from_millis(500)).await;
        let queue = h2.ask(2, Operation::Queue { key: k.clone() }).await;
        let Some(Reply::Queue { entries, .. }) = queue else {
            unreachable!("nothing stands in the way of a listing");
        };
        let (lock_ref, generation) = (entries[0].lock_ref, entries[0].generation);
        let held = Held { key: k.clone(), lock_ref, generation };
        let taken = h2.resume_of_at(2, &held, entries[0].session).await;
        let mut taken = taken.expect("nothing stands in the way of the resumption");
        let again = h1.enter_at(1, &k, &mut enter, LEASE).await;
        h2.put_at(2, &mut taken, value("v2")).await;
        if let Some(mut section) = again {
            h1.put_at(1, &mut section, value("v1")).await;
        }
        h2.get_at(2, &taken).await;
        world.end(lost);
        let _ = first.await;
        Vec::new()
    }
}

schedule! {
    /// G14. A section is taken over while its client's lease runs.
    resumed_beside_a_lease(cluster, _world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 2));
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        sleep(LEASE).await;
        let taken = h2.resume_at(2, &section.held).await;
        let mut taken = taken.expect("nothing stands in the way of the resumption");
        h2.put_at(2, &mut taken, value("v2")).await;
        h2.get_at(2, &taken).await;
        h2.leave_at(2, taken).await;
        Vec::new()
    }
}

schedule! {
    /// F11.1, over two keys. The first is granted at once; the second is long in coming, and the
    /// next holder of the first enters meanwhile.
    second_key_long_in_coming(cluster, world) {
        let (a, b) = (key("a"), key("b"));
        let mut h2 = cluster.client(2, 2);
        let slow = world.hold(on(&[Call::Swap]).node(0).step(Step::Begin).key(&b));
        let keys: Vec<KeyId> = vec![a.clone(), b];
        let lease = LEASE.as_micros() as u64;
        let enter = Operation::Enter {
            keys,
            mode: Mode::Exclusive,
            wait: 8 * lease,
            follow: false,
            lease: Some(lease),
            may_return: true,
            label: Label::NONE,
        };
        let enters = transmit(&cluster, (1, 0), (1, 0), enter);
        world.caught(slow, 1).await;
        let mut second = h2.enter(&a, Mode::Exclusive).await.expect("the first is silent");
        h2.put_at(2, &mut second, value("v2")).await;
        world.end(slow);
        let late = matches!(last(enters).await, Some(Reply::Entered { .. }));
        let text = "a grant of two keys was told after a later one of the first";
        late.then(|| wrong(Promise::Exclusivity, text)).into_iter().collect()
    }
}

schedule! {
    /// Every read of the value takes longer than a decision is good for, though not a lease.
    slow_reads(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 0));
        let first = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let mut enter = h2.wants(Mode::Exclusive);
        let waits = tokio::spawn(async move {
            h2.enter_at(0, &key("k"), &mut enter, 10 * LEASE).await
        });
        sleep(Duration::from_millis(500)).await;
        h1.leave_at(0, first).await;
        let begun = Instant::now();
        while !waits.is_finished() && begun.elapsed() < 6 * LEASE {
            let slow = world.hold(reads(0).step(Step::End).times(1));
            if world.caught(slow, 1).await {
                sleep(LEASE / 3).await;
            }
            world.end(slow);
        }
        let granted = waits.is_finished();
        world.heal();
        let _ = waits.await;
        let text = "a holder was not let in, though its reads only took their time";
        (!granted).then(|| wrong(Promise::ToldPast, text)).into_iter().collect()
    }
}

schedule! {
    /// The version of a row is raised, since an update of it is lost, and the update stands before
    /// it is made again; a node that knows the state, under the version before, watches it.
    version_raised(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 2).quiet());
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        section.falls_silent();
        let mut enter = h2.wants(Mode::Exclusive);
        let waits = tokio::spawn(async move {
            h2.enter_at(2, &key("k"), &mut enter, 2 * LEASE).await
        });
        sleep(Duration::from_millis(300)).await;
        let first = world.count(on(&[Call::Swap]).node(1).step(Step::To));
        world.fate(on(&[Call::Swap]).node(1).times(1), Fate::Never);
        let held = section.held.clone();
        let renew = Operation::Renew { held: vec![held] };
        let _renews = transmit(&cluster, (1, 1), (1 << 40, 0), renew);
        sleep(Duration::from_millis(300)).await;
        assert!(world.counted(first) > 0, "the renewal is under way");
        let again = world.hold(on(&[Call::Swap]).node(1).step(Step::Begin));
        world.caught(again, 1).await;
        let peeks = world.count(on(&[Call::Peek]).node(2).step(Step::Begin));
        sleep(LEASE / 8).await;
        let many = world.counted(peeks);
        world.end(again);
        let _ = waits.await;
        let text = "a row was peeked at without a pause";
        (many > 20).then(|| wrong(Promise::Refs, text)).into_iter().collect()
    }
}

schedule! {
    /// G9. Of two readers the first ends uncleanly; a third comes, while the second reads on.
    third_reader(cluster, _world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut r1, mut r2) = (cluster.client(1, 0), cluster.client(2, 1));
        let mut r3 = cluster.client(3, 2);
        let first = r1.enter(&k, Mode::Shared).await.expect("the key is free");
        let second = r2.enter(&k, Mode::Shared).await.expect("readers are let in");
        r1.leave_as(0, first, Leaving::Dirty).await;
        let mut enter = r3.wants(Mode::Shared);
        let third = r3.enter_at(2, &k, &mut enter, 4 * LEASE).await;
        let stuck = third.is_none();
        r2.get_at(1, &second).await;
        if let Some(third) = third {
            r3.get_at(2, &third).await;
        }
        let text = "a reader waits for readers";
        stuck.then(|| wrong(Promise::ToldPast, text)).into_iter().collect()
    }
}

schedule! {
    /// G5, of readers. Two are let in with one value; the first ends uncleanly; the enter of the
    /// second is repeated at its node, which meets a newer eventual value.
    reader_repeats(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let mut user = cluster.client(7, 2);
        let alone = world.lose(on(&[Call::Offer]).node(2).step(Step::To).peers(&[0, 1]));
        assert!(user.offer_at(2, &k, value("e1")).await);
        world.end(alone);
        let (unseen, unseen_too) = (blind(&world, 0, 2), blind(&world, 1, 2));
        let (mut r1, mut r2) = (cluster.client(1, 0), cluster.client(2, 1));
        let first = r1.enter(&k, Mode::Shared).await.expect("the key is free");
        let mut enter = r2.wants(Mode::Shared);
        let second = r2.enter_at(1, &k, &mut enter, LEASE).await;
        let second = second.expect("readers are let in");
        world.end(unseen);
        world.end(unseen_too);
        r1.leave_as(0, first, Leaving::Dirty).await;
        let unseen = blind(&world, 1, 0);
        r2.enter_at(1, &k, &mut enter, LEASE).await;
        world.end(unseen);
        r2.get_at(1, &second).await;
        Vec::new()
    }
}
