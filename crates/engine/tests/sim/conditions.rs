//! Schedules for single conditions of the engine: each notices where that condition is left out.

use crate::clients::{Client, Cluster, LEASE, key, value};
use crate::schedules::*;
use crate::world::{Call, Step, on};
use fermata_engine::check::history::{Op, Outcome};
use fermata_engine::check::judge::{Check, Violation};
use fermata_protocol::Reply;
use fermata_protocol::base::LockRef;
use fermata_protocol::request::{Code, Held, Mode, Operation};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// One violation where something is so.
fn where_so(so: bool, check: Check, sentence: &str) -> Vec<Violation> {
    so.then(|| wrong(check, sentence)).into_iter().collect()
}

/// While the value is read, the node learns that the ref was ended, and another has entered. The
/// node has asked for a decision itself, unless it sleeps until its own update has made the ref the
/// head.
async fn ended_meanwhile(cluster: Arc<Cluster>, sleeps: bool) -> Vec<Violation> {
    let (world, k) = (Arc::clone(&cluster.world), key("k"));
    base(&cluster, "v0").await;
    let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 0).quiet());
    let (mut h3, mut looks) = (cluster.client(3, 2), cluster.client(4, 1));
    let first = h1.enter(&k, Mode::Exclusive).await;
    let first = first.expect("the key is free");
    let mut enter = h2.wants(Mode::Exclusive);
    let waits = tokio::spawn(async move { h2.enter_at(0, &key("k"), &mut enter, 5 * LEASE).await });
    while queue(&mut looks).await.len() < 2 {
        sleep(Duration::from_millis(20)).await;
    }
    let third = tokio::spawn(async move { h3.enter(&key("k"), Mode::Exclusive).await });
    sleep(LEASE - Duration::from_millis(350)).await;
    let watch = sleeps.then(|| world.hold(on(&[Call::Changed]).node(0).step(Step::End)));
    sleep(Duration::from_millis(100)).await;
    let reads = world.hold(reads(0).step(Step::Begin).times(1));
    h1.leave_at(0, first).await;
    world.caught(reads, 1).await;
    if let Some(watch) = watch {
        world.end(watch);
    }
    let third = third.await.ok().flatten();
    third.expect("the second is silent");
    sleep(Duration::from_millis(100)).await;
    world.end(reads);
    let granted = waits.await.ok().flatten().is_some();
    let text = "a grant was told although its node knew that it was over";
    where_so(granted, Check::Exclusivity, text)
}

/// The refs of the key, head first.
async fn queue(client: &mut Client) -> Vec<LockRef> {
    let listing = Operation::Queue { key: key("k") };
    match client.ask(1, listing).await {
        Some(Reply::Queue { entries, .. }) => entries.iter().map(|e| e.lock_ref).collect(),
        other => unreachable!("nothing stands in the way of a listing: {other:?}"),
    }
}

schedule! {
    /// See [`ended_meanwhile`].
    ended_after_a_decision(cluster, _world) { ended_meanwhile(cluster, false).await }
}

schedule! {
    /// See [`ended_meanwhile`].
    ended_after_its_own_update(cluster, _world) { ended_meanwhile(cluster, true).await }
}

schedule! {
    /// Two enters of a free key are made in one update.
    two_at_once(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 0));
        let peeks = world.hold(on(&[Call::Peek]).node(0).step(Step::End));
        let first = tokio::spawn(async move { h1.enter(&key("k"), Mode::Exclusive).await });
        let second = tokio::spawn(async move { h2.enter(&key("k"), Mode::Exclusive).await });
        world.caught(peeks, 2).await;
        world.end(peeks);
        sleep(LEASE).await;
        let both = first.is_finished() && second.is_finished();
        let (first, second) = tokio::join!(first, async {
            sleep(LEASE).await;
            second.abort();
        });
        let _ = (k, first, second);
        where_so(both, Check::Exclusivity, "two enters of one update were both granted")
    }
}

schedule! {
    /// G5. A ref is granted with its enqueue; its enter is repeated at the same node, which meets a
    /// newer eventual value.
    second_grant_at_one_node(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut user, mut h1) = (cluster.client(7, 2), cluster.client(1, 0));
        let alone = world.lose(on(&[Call::Offer]).node(2).step(Step::To).peers(&[0, 1]));
        assert!(user.offer_at(2, &k, value("e1")).await);
        world.end(alone);
        let unseen = blind(&world, 0, 2);
        let mut enter = h1.wants(Mode::Exclusive);
        let section = h1.enter_at(0, &k, &mut enter, LEASE).await;
        let section = section.expect("the key is free");
        world.end(unseen);
        let unseen = blind(&world, 0, 1);
        h1.enter_at(0, &k, &mut enter, LEASE).await;
        world.end(unseen);
        h1.get_at(0, &section).await;
        Vec::new()
    }
}

schedule! {
    /// G13. The wait of an enter is over at a node that has not heard that its client has entered
    /// through another.
    wait_over_late(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 1), cluster.client(2, 0));
        let first = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let mut enter = h2.wants(Mode::Exclusive);
        let (once, mut early) = (cluster.client(2, 0).quiet(), enter);
        let once = tokio::spawn(async move {
            once.enter_at(0, &key("k"), &mut early, LEASE / 2).await
        });
        sleep(Duration::from_millis(500)).await;
        let blind = world.hold(on(&[Call::Changed]).node(0).step(Step::End));
        let (again, at) = (cluster.client(2, 0), k.clone());
        let again = tokio::spawn(async move { again.enter_at(2, &at, &mut enter, LEASE).await });
        sleep(Duration::from_millis(500)).await;
        h1.leave_at(1, first).await;
        let entered = again.await.ok().flatten();
        let mut section = entered.expect("the first has left");
        sleep(LEASE / 2).await;
        h2.put_at(2, &mut section, value("v2")).await;
        world.end(blind);
        let _ = once.await;
        Vec::new()
    }
}

schedule! {
    /// An enter of two keys gives up waiting for the second: the first is free at once.
    first_key_given_back(cluster, _world) {
        let (a, b) = (key("a"), key("b"));
        let (mut h1, mut h2) = (cluster.client(1, 1), cluster.client(2, 2));
        let second = h1.enter(&b, Mode::Exclusive).await.expect("the key is free");
        let lease = LEASE.as_micros() as u64;
        let enter = Operation::Enter {
            keys: vec![a.clone(), b],
            mode: Mode::Exclusive,
            wait: lease / 4,
            follow: false,
            lease: Some(4 * lease),
        };
        let both = last(transmit(&cluster, (3, 0), (1, 0), enter)).await;
        assert!(matches!(both, Some(Reply::Refused(_))), "{both:?}");
        let mut enter = h2.wants(Mode::Exclusive);
        let first = h2.enter_at(2, &a, &mut enter, LEASE).await;
        h1.leave_at(1, second).await;
        let text = "a key was kept by an enter that was given up";
        where_so(first.is_none(), Check::ToldPast, text)
    }
}

schedule! {
    /// A holder renews by way of a node whose replica has never heard of it.
    renewed_elsewhere(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let mut h1 = cluster.client(1, 0);
        let missed = world.lose(on(&[Call::Commit]).step(Step::To).peers(&[2]));
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        section.falls_silent();
        h1.renew(2, &section.held).await;
        world.end(missed);
        Vec::new()
    }
}

schedule! {
    /// Of a past holder: a get that was allowed and reads late, and one that is sent late; and of
    /// one that waits: a put.
    who_does_not_hold(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h3) = (cluster.client(1, 0), cluster.client(3, 2));
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let section = Arc::new(section);
        let mut enter = h3.wants(Mode::Exclusive);
        h3.enter_at(2, &k, &mut enter, Duration::ZERO).await;
        let lock_ref = cluster.history.place(h3.session).expect("it was told");
        let held = Held { key: k.clone(), lock_ref, generation: 0 };
        let put = fermata_protocol::request::Critical::Put { number: 1, value: value("early") };
        let put = Operation::Critical { held, operation: put, leave: Vec::new() };
        let put = h3.ask(2, put).await;
        let early = matches!(&put, Some(Reply::Refused(r)) if r.code == Code::NotHolder);
        h1.get_at(0, &section).await;
        section.falls_silent();
        let late = world.hold(reads(0).step(Step::Begin).times(1));
        let (mut reader, at) = (cluster.client(4, 0), Arc::clone(&section));
        let get = tokio::spawn(async move { reader.get_at(0, &at).await });
        world.caught(late, 1).await;
        let third = h3.enter_at(2, &k, &mut enter, 4 * LEASE).await;
        let mut third = third.expect("the first is silent");
        let after = h1.get_at(0, &section).await;
        h3.put_at(2, &mut third, value("v3")).await;
        world.end(late);
        let get = get.await.expect("no client panics");
        let mut found = where_so(!early, Check::Exclusivity, "a put of a waiter was not refused");
        found.extend(where_so(get.is_some(), Check::Exclusivity, "a past get shows a later value"));
        found.extend(where_so(after.is_some(), Check::Exclusivity, "a past holder reads"));
        found
    }
}

schedule! {
    /// A get by a section that was left, after another has entered and written nothing.
    read_after_the_leave(cluster, _world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h3) = (cluster.client(1, 0), cluster.client(3, 2));
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let held = section.held.clone();
        h1.leave_at(0, section).await;
        let _third = h3.enter(&k, Mode::Exclusive).await.expect("the first has left");
        let operation = fermata_protocol::request::Critical::Get;
        let get = Operation::Critical { held, operation, leave: Vec::new() };
        let reads = matches!(h1.ask(1, get).await, Some(Reply::Value { .. }));
        where_so(reads, Check::Exclusivity, "a past holder reads")
    }
}

schedule! {
    /// A put that leaves its section is done, its answer is lost, and others have entered when it
    /// is repeated.
    last_put_done_before(cluster, _world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h3) = (cluster.client(1, 0), cluster.client(3, 2));
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let put = || last_put(&section, "v1");
        let op = Op::Put { held: section.held.clone(), number: 1, value: value("v1") };
        let record = cluster.history.begin(h1.session, 50, &k, op);
        let first = last(transmit(&cluster, (1, 0), (50, 0), put())).await;
        cluster.history.end(record, Outcome::Done);
        section.falls_silent();
        sleep(LEASE).await;
        let third = h3.enter(&k, Mode::Exclusive).await.expect("the first has left");
        assert_eq!(third.entry, Some(value("v1")));
        let again = last(transmit(&cluster, (1, 1), (50, 1), put())).await;
        let both = [first, again].iter().all(|reply| matches!(reply, Some(Reply::Left)));
        where_so(!both, Check::ToldPast, "a last put that was done is not said to be")
    }
}

schedule! {
    /// F10. A release by force of a holder whose lease runs.
    released_while_leased(cluster, _world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h3) = (cluster.client(1, 0), cluster.client(3, 2));
        let begun = Instant::now();
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let lock_ref = section.held.lock_ref;
        let mut releases = cluster.client(4, 1);
        let release = tokio::spawn(async move {
            releases.release_at(1, &key("k"), lock_ref).await;
        });
        let third = h3.enter(&k, Mode::Exclusive).await;
        third.expect("the first is released");
        let early = begun.elapsed() < LEASE;
        let _ = release.await;
        where_so(early, Check::Exclusivity, "a holder was released while its lease ran")
    }
}

schedule! {
    /// G19. A write is done; another follows; the first is repeated.
    write_repeated(cluster, _world) {
        let k = key("w");
        let write = |text: &str| Operation::Write { key: k.clone(), value: value(text) };
        let mut user = cluster.client(2, 2);
        let first = last(transmit(&cluster, (1, 0), (1, 0), write("w1"))).await;
        let second = user.ask(2, write("w2")).await;
        let again = last(transmit(&cluster, (1, 1), (1, 1), write("w1"))).await;
        let read = user.ask(2, Operation::Read { key: k.clone() }).await;
        let done = |reply: &Option<Reply>| matches!(reply, Some(Reply::Done { .. }));
        assert!(done(&first) && done(&second), "{first:?} {second:?}");
        let now = matches!(&read, Some(Reply::Value { value: v, .. }) if *v == value("w2"));
        where_so(!now || done(&again), Check::LatestState, "a write was done twice")
    }
}

schedule! {
    /// An eventual put while a section holds the key, by way of a node that knows.
    put_while_locked(cluster, _world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut user) = (cluster.client(1, 0), cluster.client(7, 0));
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let taken = user.offer_at(0, &k, value("e1")).await;
        h1.leave_at(0, section).await;
        where_so(taken, Check::Eventual, "an eventual put was taken while the key was locked")
    }
}

schedule! {
    /// A read fails before a grant; by the time that reads succeed, the ref is over, and the node's
    /// replica has not heard of it.
    granted_after_an_error(cluster, world) {
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
        let third = tokio::spawn(async move {
            h3.enter(&key("k"), Mode::Exclusive).await
        });
        let reads = world.lose(reads(0).step(Step::To));
        h1.leave_at(0, first).await;
        sleep(Duration::from_millis(200)).await;
        let missed = world.lose(on(&[Call::Commit]).step(Step::To).peers(&[0]));
        let steps = world.hold(on(&[Call::Swap, Call::Read]).node(0).step(Step::Begin));
        let third = third.await.ok().flatten();
        third.expect("the second is silent");
        world.end(steps);
        world.end(reads);
        let granted = waits.await.ok().flatten().is_some();
        world.end(missed);
        let text = "a grant was decided after a later one had been told";
        where_so(granted, Check::Exclusivity, text)
    }
}

schedule! {
    /// A holder is dead, and whoever comes next only polls.
    polled_behind_the_dead(cluster, _world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0).quiet(), cluster.client(2, 2));
        let _dead = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let mut enter = h2.wants(Mode::Exclusive);
        let begun = Instant::now();
        let mut entered = h2.enter_at(2, &k, &mut enter, Duration::ZERO).await;
        let _place = h2.keeps_place(2, &k);
        while entered.is_none() && begun.elapsed() < 6 * LEASE {
            sleep(LEASE / 4).await;
            entered = h2.enter_at(2, &k, &mut enter, Duration::ZERO).await;
        }
        let text = "nobody ends a dead holder whose key is polled";
        where_so(entered.is_none(), Check::ToldPast, text)
    }
}

schedule! {
    /// A holder is dead, and the node that it had asked with it; others look at the queue, and let
    /// the key be while somebody has it.
    looked_at_behind_the_dead(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0).quiet(), cluster.client(2, 2));
        let _dead = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        world.kill_node(0);
        let begun = Instant::now();
        let mut taken = true;
        while taken && begun.elapsed() < 6 * LEASE {
            sleep(LEASE / 4).await;
            let queue = h2.ask(2, Operation::Queue { key: k.clone() }).await;
            taken = !matches!(queue, Some(Reply::Queue { entries, .. }) if entries.is_empty());
        }
        let text = "nobody ends a dead holder whose queue is looked at";
        where_so(taken, Check::ToldPast, text)
    }
}

schedule! {
    /// Somebody takes a ref over that waits: its own client is told, and not only when its wait is
    /// over.
    taken_over_while_it_waits(cluster, _world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 1), cluster.client(2, 0));
        let mut h3 = cluster.client(3, 2);
        let first = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let mut enter = h2.wants(Mode::Exclusive);
        let waits = tokio::spawn(async move {
            let entered = h2.enter_at(0, &key("k"), &mut enter, 8 * LEASE).await;
            (Instant::now(), entered)
        });
        sleep(Duration::from_millis(500)).await;
        let queue = h3.ask(2, Operation::Queue { key: k.clone() }).await;
        let Some(Reply::Queue { entries, .. }) = queue else {
            unreachable!("nothing stands in the way of a listing");
        };
        let held = Held { key: k.clone(), lock_ref: entries[1].lock_ref, generation: 0 };
        let begun = Instant::now();
        let taken = tokio::spawn(async move { h3.resume_at(2, &held).await });
        sleep(Duration::from_secs(1)).await;
        h1.leave_at(1, first).await;
        let taken = taken.await.ok().flatten().is_some();
        let (told, entered) = waits.await.expect("no client panics");
        let late = entered.is_some() || told > begun + LEASE;
        let mut found = where_so(late, Check::Exclusivity, "a ref taken over was waited for");
        found.extend(where_so(!taken, Check::ToldPast, "a waiting ref could not be taken over"));
        found
    }
}
