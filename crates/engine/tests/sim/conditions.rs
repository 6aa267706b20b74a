//! Schedules for single conditions of the engine: each notices where that condition is left out.

use crate::clients::{Client, Cluster, LEASE, key, value};
use crate::schedules::*;
use crate::world::{Call, Step, on};
use fermata_engine::check::{Heard, What};
use fermata_engine::check::{Promise, Violation};
use fermata_protocol::Reply;
use fermata_protocol::base::{Label, LockRef, SessionId};
use fermata_protocol::request::{Code, Critical, Held, Leaving, Mode, Operation, RefState};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// One violation where something is so.
fn where_so(so: bool, promise: Promise, sentence: &str) -> Vec<Violation> {
    so.then(|| wrong(promise, sentence)).into_iter().collect()
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
    where_so(granted, Promise::Exclusivity, text)
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
        where_so(both, Promise::Exclusivity, "two enters of one update were both granted")
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
            may_return: true,
            label: Label::NONE,
        };
        let both = last(transmit(&cluster, (3, 0), (1, 0), enter)).await;
        assert!(matches!(both, Some(Reply::Refused(_))), "{both:?}");
        let mut enter = h2.wants(Mode::Exclusive);
        let first = h2.enter_at(2, &a, &mut enter, LEASE).await;
        h1.leave_at(1, second).await;
        let text = "a key was kept by an enter that was given up";
        where_so(first.is_none(), Promise::ToldPast, text)
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
        let mut found = where_so(!early, Promise::Exclusivity, "a put of a waiter was not refused");
        found.extend(where_so(get.is_some(), Promise::Exclusivity, "a past get was answered"));
        found.extend(where_so(after.is_some(), Promise::Exclusivity, "a past holder reads"));
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
        where_so(reads, Promise::Exclusivity, "a past holder reads")
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
        let what = What::Put { key: k.clone(), number: 1, value: value("v1"), leave: true };
        let record = cluster.history.begin(h1.session, 50, Some(&section.held), what);
        let first = last(transmit(&cluster, (1, 0), (50, 0), put())).await;
        cluster.history.end(record, Heard::Done(None));
        section.falls_silent();
        sleep(LEASE).await;
        let third = h3.enter(&k, Mode::Exclusive).await.expect("the first has left");
        assert_eq!(third.entry, Some(value("v1")));
        let again = last(transmit(&cluster, (1, 1), (50, 1), put())).await;
        let both = [first, again].iter().all(|reply| matches!(reply, Some(Reply::Left)));
        where_so(!both, Promise::ToldPast, "a last put that was done is not said to be")
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
        where_so(early, Promise::Exclusivity, "a holder was released while its lease ran")
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
        where_so(!now || done(&again), Promise::LatestState, "a write was done twice")
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
        where_so(taken, Promise::Eventual, "an eventual put was taken while the key was locked")
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
        where_so(granted, Promise::Exclusivity, text)
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
        where_so(entered.is_none(), Promise::ToldPast, text)
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
        where_so(taken, Promise::ToldPast, text)
    }
}

schedule! {
    /// A client hangs up while its read waits for a key: what the node has joined for it is left,
    /// whether it waits there already, or is only on its way.
    given_up_while_it_waits(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 1), cluster.client(2, 0));
        let mut looks = cluster.client(3, 1);
        let first = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let mut found = Vec::new();
        for on_its_way in [false, true] {
            let swap = on(&[Call::Swap]).node(0).step(Step::Begin).times(1);
            let swap = on_its_way.then(|| world.hold(swap));
            let read = h2.ask(0, Operation::Read { key: k.clone() });
            let read = timeout(Duration::from_millis(1_500), read).await;
            if let Some(swap) = swap {
                world.end(swap);
            }
            sleep(Duration::from_millis(1_000)).await;
            let stays = queue(&mut looks).await.len() > 1;
            let text = "a read that nobody waits for any more stays in the queue";
            found.extend(where_so(read.is_ok() || stays, Promise::ToldPast, text));
        }
        h1.leave_at(1, first).await;
        found
    }
}

schedule! {
    /// G47. One who waits hangs up. Who may come back keeps its place; who does not gives it up.
    hangs_up_while_it_waits(cluster, _world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut looks) = (cluster.client(1, 1), cluster.client(3, 1));
        let first = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let lease = LEASE.as_micros() as u64;
        let mut found = Vec::new();
        for (client, may_return, stay) in [(4, false, 1), (5, true, 2)] {
            let enter = Operation::Enter {
                keys: vec![k.clone()],
                mode: Mode::Exclusive,
                wait: 8 * lease,
                follow: false,
                lease: Some(8 * lease),
                may_return,
                label: Label::NONE,
            };
            let mut waits = cluster.client(client, 0);
            let entered = timeout(Duration::from_millis(1_500), waits.ask(0, enter)).await;
            sleep(Duration::from_millis(1_000)).await;
            let wrong = entered.is_ok() || queue(&mut looks).await.len() != stay;
            let text = "who hangs up keeps its place, or who may come back does not";
            found.extend(where_so(wrong, Promise::ToldPast, text));
        }
        h1.leave_at(1, first).await;
        found
    }
}

schedule! {
    /// A section is resumed, and waits for the lease of its former generation; others watch the row
    /// meanwhile, and end who is silent for as long. Whoever has resumed it renews it in its own
    /// time.
    resumed_under_watch(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 1).quiet());
        let mut h3 = cluster.client(3, 2);
        // With the lease of the keyspace, which the resumed section gets, too.
        let enter = Operation::Enter {
            keys: vec![k.clone()],
            mode: Mode::Exclusive,
            wait: 0,
            follow: false,
            lease: None,
            may_return: true,
            label: Label::NONE,
        };
        let Some(Reply::Entered { keys, .. }) = h1.ask(0, enter).await else {
            unreachable!("the key is free");
        };
        world.kill_node(0);
        tokio::spawn(async move { h3.enter(&key("k"), Mode::Exclusive).await });
        let resumed = h2.resume_of_at(1, &keys[0].held, h1.session).await;
        sleep(LEASE / 3).await;
        let goes_on = match resumed {
            Some(mut section) => h2.put_at(1, &mut section, value("v1")).await,
            None => false,
        };
        let text = "a section that was resumed has ended before its first put";
        where_so(!goes_on, Promise::ToldPast, text)
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
        let of = entries[1].session;
        let taken = tokio::spawn(async move { h3.resume_of_at(2, &held, of).await });
        sleep(Duration::from_secs(1)).await;
        h1.leave_at(1, first).await;
        let taken = taken.await.ok().flatten().is_some();
        let (told, entered) = waits.await.expect("no client panics");
        let late = entered.is_some() || told > begun + LEASE;
        let mut found = where_so(late, Promise::Exclusivity, "a ref taken over was waited for");
        found.extend(where_so(!taken, Promise::ToldPast, "a waiting ref could not be taken over"));
        found
    }
}

schedule! {
    /// A renewal of one who has left is refused, and its node has not heard of that yet. Meanwhile
    /// another enters elsewhere, and renews here.
    joins_a_refused_swap(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 0).quiet());
        let first = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        sleep(Duration::from_millis(200)).await;
        let (begins, left) = (on(&[Call::Swap]).node(2).step(Step::Begin), first.held.clone());
        let begins = world.hold(begins.times(1));
        let renews = cluster.client(1, 0);
        let late = tokio::spawn(async move { renews.renew(2, &left).await });
        world.caught(begins, 1).await;
        h1.leave_at(0, first).await;
        let ends = world.hold(on(&[Call::Swap]).node(2).step(Step::End).times(1));
        world.end(begins);
        world.caught(ends, 1).await;
        let second = h2.enter(&k, Mode::Exclusive).await.expect("the first has left");
        let renewal = tokio::spawn(async move { h2.renew(2, &second.held).await });
        sleep(Duration::from_millis(100)).await;
        world.end(ends);
        let (late, state) = tokio::join!(late, renewal);
        assert_eq!(late.ok().flatten(), Some(RefState::Gone), "it has left");
        let state = state.ok().flatten();
        let gone = !matches!(state, Some(RefState::Holding { .. }));
        where_so(gone, Promise::ToldPast, "a holder was told that it is past")
    }
}

schedule! {
    /// A node lets a ref of its own in, and reads the value; the ref is ended elsewhere, and the
    /// node is told; then it looks at its replica, which has not heard of that.
    seen_again_as_it_was(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 0).quiet());
        let (mut h3, mut looks) = (cluster.client(3, 2), cluster.client(4, 0));
        let first = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let mut enter = h2.wants(Mode::Exclusive);
        let waits = tokio::spawn(async move {
            h2.enter_at(0, &key("k"), &mut enter, 5 * LEASE).await
        });
        while queue(&mut looks).await.len() < 2 {
            sleep(Duration::from_millis(20)).await;
        }
        let third = tokio::spawn(async move { h3.enter(&key("k"), Mode::Exclusive).await });
        sleep(LEASE - Duration::from_millis(350)).await;
        let watch = world.hold(on(&[Call::Changed]).node(0).step(Step::End));
        sleep(Duration::from_millis(100)).await;
        let reads = world.hold(reads(0).step(Step::Begin).times(1));
        h1.leave_at(0, first).await;
        world.caught(reads, 1).await;
        let missed = world.lose(on(&[Call::Commit]).step(Step::To).peers(&[0]));
        third.await.ok().flatten().expect("the second is silent");
        let looked = looks.ask(0, Operation::Queue { key: k.clone() }).await;
        assert!(matches!(looked, Some(Reply::Queue { .. })), "{looked:?}");
        let looked = looks.ask(0, Operation::Inspect { key: k }).await;
        assert!(matches!(looked, Some(Reply::Inspect(_))), "{looked:?}");
        world.end(reads);
        let granted = waits.await.ok().flatten().is_some();
        world.end(missed);
        world.end(watch);
        let text = "a grant was told although its node knew that it was over";
        where_so(granted, Promise::Exclusivity, text)
    }
}

/// The update by which a node hears that its ref is the head takes longer than the ref's lease, and
/// the next holder enters meanwhile. The update is the leave before that ref; or it is refused,
/// since the leave was made elsewhere.
async fn late_word(cluster: Arc<Cluster>, refused: bool) -> Vec<Violation> {
    let (world, k) = (Arc::clone(&cluster.world), key("k"));
    base(&cluster, "v0").await;
    let (mut h1, mut h2) = (cluster.client(1, 0).quiet(), cluster.client(2, 0).quiet());
    let mut h3 = cluster.client(3, 2);
    let first = h1.enter(&k, Mode::Exclusive).await;
    let first = first.expect("the key is free");
    let mut enter = h2.wants(Mode::Exclusive);
    let waits = tokio::spawn(async move { h2.enter_at(0, &key("k"), &mut enter, 5 * LEASE).await });
    sleep(Duration::from_millis(500)).await;
    let watch = world.hold(on(&[Call::Changed]).node(0).step(Step::End));
    let swaps = on(&[Call::Swap]).node(0).times(1);
    let begins = refused.then(|| world.hold(swaps.clone().step(Step::Begin)));
    let told = world.hold(swaps.step(Step::End));
    let mut left = None;
    if let Some(begins) = begins {
        let (renews, held) = (cluster.client(1, 0), first.held.clone());
        tokio::spawn(async move { renews.renew(0, &held).await });
        world.caught(begins, 1).await;
        h1.leave_at(1, first).await;
        world.end(begins);
    } else {
        left = Some(tokio::spawn(async move { h1.leave_at(0, first).await }));
    }
    world.caught(told, 1).await;
    let third = h3.enter(&k, Mode::Exclusive).await;
    third.expect("the second is silent");
    world.end(told);
    if let Some(left) = left {
        assert!(left.await.expect("no client panics"), "the leave is done");
    }
    let granted = waits.await.ok().flatten().is_some();
    world.end(watch);
    let text = "a grant was decided after a later one had been told";
    where_so(granted, Promise::Exclusivity, text)
}

schedule! {
    /// See [`late_word`].
    late_word_of_a_leave(cluster, _world) { late_word(cluster, false).await }
}

schedule! {
    /// See [`late_word`].
    late_word_of_a_refusal(cluster, _world) { late_word(cluster, true).await }
}

schedule! {
    /// F11.7. Two renewals go in one update, of which nothing is known: one is of a ref that was
    /// left. Its node's replica has heard of that, and not of the other ref.
    renewals_of_unknown_outcome(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let mut h2 = cluster.client(2, 0).quiet();
        let first = h2.enter(&k, Mode::Exclusive).await.expect("the key is free");
        sleep(Duration::from_millis(200)).await;
        let to_it = on(&[Call::Commit]).node(0).step(Step::To).peers(&[2]);
        let left = world.hold(to_it.clone().times(1));
        let held = first.held.clone();
        h2.leave_at(0, first).await;
        world.caught(left, 1).await;
        let missed = world.lose(to_it);
        let second = h2.enter(&k, Mode::Exclusive).await.expect("the first has left");
        let lost = world.lose(on(&[Call::Swap]).node(2).step(Step::To).times(3));
        let renew = Operation::Renew { held: vec![held, second.held.clone()] };
        let renewed = transmit(&cluster, (2, 2), (1 << 40, 0), renew);
        world.caught(lost, 3).await;
        world.end(left);
        let states = match last(renewed).await {
            Some(Reply::Renewed { states }) => states,
            other => unreachable!("renewals are answered: {other:?}"),
        };
        world.end(missed);
        assert_eq!(states[0], RefState::Gone, "it has left");
        let gone = !matches!(states[1], RefState::Holding { .. });
        where_so(gone, Promise::ToldPast, "a holder was told that it is past")
    }
}

schedule! {
    /// F10. A ref that waits is released by force; before that is done, it is let in.
    let_in_while_released(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 1));
        let (mut h3, mut releases) = (cluster.client(3, 2), cluster.client(4, 2));
        let first = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let waits = tokio::spawn(async move {
            let mut enter = h2.wants(Mode::Exclusive);
            h2.enter_at(1, &key("k"), &mut enter, 2 * LEASE).await
        });
        while queue(&mut releases).await.len() < 2 {
            sleep(Duration::from_millis(20)).await;
        }
        let lock_ref = queue(&mut releases).await[1];
        let asked = world.hold(on(&[Call::Swap]).node(2).step(Step::End).times(1));
        let release = tokio::spawn(async move {
            releases.release_at(2, &key("k"), lock_ref).await
        });
        world.caught(asked, 1).await;
        let swap = world.hold(on(&[Call::Swap]).node(2).step(Step::Begin).times(1));
        world.end(asked);
        world.caught(swap, 1).await;
        let begun = Instant::now();
        h1.leave_at(0, first).await;
        let second = waits.await.ok().flatten();
        second.as_ref().expect("the first has left");
        world.end(swap);
        h3.enter(&k, Mode::Exclusive).await.expect("the second is released");
        let early = begun.elapsed() < LEASE;
        let _ = release.await;
        where_so(early, Promise::Exclusivity, "a holder was released while its lease ran")
    }
}

schedule! {
    /// F16. A get was allowed, and reads when another has taken its section over, and put.
    get_beside_a_resumption(cluster, world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let (mut h1, mut h2) = (cluster.client(1, 0), cluster.client(2, 2));
        let section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        section.falls_silent();
        let held = section.held.clone();
        let late = world.hold(reads(0).step(Step::Begin).times(1));
        let get = tokio::spawn(async move { h1.get_at(0, &section).await });
        world.caught(late, 1).await;
        // A node that knows how long the lease is waits no longer than for that.
        h2.ask(2, Operation::Queue { key: k }).await;
        let taken = h2.resume_at(2, &held).await;
        let mut taken = taken.expect("nothing stands in the way of the resumption");
        assert!(h2.put_at(2, &mut taken, value("v2")).await);
        world.end(late);
        let get = get.await.expect("no client panics");
        let text = "a get shows what a later generation has put";
        where_so(get.is_some(), Promise::Exclusivity, text)
    }
}

schedule! {
    /// G49. One who knows a section's ref, but is of another session, gets, puts, leaves, renews
    /// and resumes, at a node that knows the section and at one that does not.
    anothers_section(cluster, _world) {
        let k = key("k");
        base(&cluster, "v0").await;
        let mut h1 = cluster.client(1, 0);
        let mut section = h1.enter(&k, Mode::Exclusive).await.expect("the key is free");
        let held = section.held.clone();
        let critical = |operation| {
            let (held, leave) = (held.clone(), Vec::new());
            Operation::Critical { held, operation, leave }
        };
        let put = Critical::Put { number: 9, value: value("stolen") };
        let keys = vec![(held.clone(), Leaving::Clean(None))];
        let (refs, of) = (vec![held.clone()], SessionId(2));
        let acts = [
            critical(Critical::Get),
            critical(put),
            last_put(&section, "stolen"),
            Operation::Leave { keys },
            Operation::Renew { held: refs.clone() },
            Operation::Resume { held: refs, of },
        ];
        let mut served = false;
        for (number, act) in (0..).zip([&acts[..], &acts[..]].concat()) {
            let node = number / acts.len();
            let name = (number as u64 + 1, 0);
            let answer = last(transmit(&cluster, (2, node), name, act)).await;
            served |= match answer {
                Some(Reply::Refused(why)) => {
                    why.code != Code::NotHolder || why.may_have_taken_effect
                }
                Some(Reply::Renewed { states }) => states != [RefState::Gone],
                _ => true,
            };
        }
        let goes_on = h1.put_at(0, &mut section, value("v1")).await;
        h1.get_at(0, &section).await;
        h1.leave_at(0, section).await;
        let text = "a stranger acted in a section";
        where_so(served || !goes_on, Promise::Exclusivity, text)
    }
}
