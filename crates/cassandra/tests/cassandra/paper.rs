//! The paper's layout: that it works as published, and some of the faults for which it is not used.

use crate::common::RUNTIME;
use crate::{fresh, settings, three};
use fermata_cassandra::paper::{Held, Paper};
use std::future::Future;
use std::time::Duration;
use tokio::sync::OnceCell;

fn with_paper<F: Future<Output = ()>>(test: impl FnOnce(&'static Paper) -> F) {
    static PAPER: OnceCell<Paper> = OnceCell::const_new();
    let Some(points) = three() else {
        return;
    };
    RUNTIME.block_on(async {
        let paper = PAPER
            .get_or_init(async || {
                let settings = settings(points, &fresh("paper"));
                let section_max = Duration::from_secs(3_600);
                Paper::connect(settings, section_max, 50)
                    .await
                    .expect("a client")
            })
            .await;
        test(paper).await;
    });
}

/// `acquireLock` until it is done, as the paper's clients do.
async fn acquire(paper: &Paper, key: &[u8], lock_ref: i64) {
    while paper.acquire_lock(key, lock_ref).await.expect("an answer") != Held::Done(()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// `criticalPut` until the local replica knows of the grant.
async fn put(paper: &Paper, key: &[u8], lock_ref: i64, value: &[u8]) {
    while paper
        .critical_put(key, lock_ref, value)
        .await
        .expect("an answer")
        == Held::NotYet
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn sections_follow_each_other_and_see_each_others_values() {
    with_paper(async |paper| {
        let key = b"sections";
        for round in 1..=3 {
            let lock_ref = paper.create_lock_ref(key).await.expect("a ref");
            assert_eq!(lock_ref, round);
            acquire(paper, key, lock_ref).await;
            let found = paper.critical_get(key, lock_ref).await.expect("an answer");
            let before = (round > 1).then(|| format!("{}", round - 1).into());
            assert_eq!(found, Held::Done(before));
            put(paper, key, lock_ref, format!("{round}").as_bytes()).await;
            paper.release_lock(key, lock_ref).await.expect("a release");
        }
    });
}

#[test]
fn who_is_not_first_waits_and_who_was_is_told_so() {
    with_paper(async |paper| {
        let key = b"queue";
        let first = paper.create_lock_ref(key).await.expect("a ref");
        let second = paper.create_lock_ref(key).await.expect("a ref");
        acquire(paper, key, first).await;
        assert_eq!(paper.acquire_lock(key, second).await, Ok(Held::NotYet));
        assert_eq!(
            paper.critical_put(key, second, b"v").await,
            Ok(Held::NotYet)
        );
        put(paper, key, first, b"first").await;
        paper.forced_release(key, first).await.expect("a release");
        acquire(paper, key, second).await;
        let late = paper.critical_put(key, first, b"late").await;
        assert_eq!(late, Ok(Held::NoLongerHolder));
        let found = paper.critical_get(key, second).await;
        assert_eq!(found, Ok(Held::Done(Some("first".into()))));
    });
}

#[test]
fn critical_puts_by_conditional_updates() {
    with_paper(async |paper| {
        let key = b"mscp";
        let lock_ref = paper.create_lock_ref(key).await.expect("a ref");
        acquire(paper, key, lock_ref).await;
        for value in [&b"one"[..], b"two"] {
            let mut put = paper.critical_put_by_lwt(key, lock_ref, value).await;
            while put == Ok(Held::NotYet) {
                put = paper.critical_put_by_lwt(key, lock_ref, value).await;
            }
            assert_eq!(put, Ok(Held::Done(())));
            let found = paper.critical_get(key, lock_ref).await;
            assert_eq!(found, Ok(Held::Done(Some(value.to_vec().into()))));
        }
    });
}

#[test]
fn a_plain_put_hides_critical_ones() {
    with_paper(async |paper| {
        let key = b"hidden";
        paper.put(key, b"job").await.expect("a put");
        let lock_ref = paper.create_lock_ref(key).await.expect("a ref");
        acquire(paper, key, lock_ref).await;
        // M4: the clock's stamp is above ref · T + time for thousands of refs to come.
        let mut found = paper.critical_get(key, lock_ref).await;
        while found == Ok(Held::Done(None)) {
            found = paper.critical_get(key, lock_ref).await;
        }
        put(paper, key, lock_ref, b"acknowledged").await;
        let found = paper.critical_get(key, lock_ref).await;
        assert_eq!(found, Ok(Held::Done(Some("job".into()))));
        assert_eq!(paper.get(key).await, Ok(Some("job".into())));
    });
}
