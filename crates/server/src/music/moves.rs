//! Homes that move: a node that drains gives its locks to others.
//!
//! **Problem.** A lock whose home is stopped goes on at another node, but not before somebody
//! calls, and not within the lease that the home was told. A node that drains knows before.
//!
//! **Idea.** As soon as no call works with a lock, its home *quits*: its session ends, and leaves
//! nothing but its ref, of which it gives the lease back. Only then it asks another node, one that
//! does not drain, to take the lock over, by a poll with a header that says so. That node resumes
//! the section, as it would after the home's death: a new generation, which fences what the former
//! home had in flight (F16), so that nothing depends on the word of the header. Two nodes never
//! number the writes of one generation (M2). Calls that come meanwhile wait, and are sent on to the
//! new home, which the queue names.
//!
//! **Not yet.** A lock that is being promoted, that waits for its own resumption, or whose last put
//! is in doubt, is tried again a moment later. Where no other node can be reached all stay.

use super::Call;
use super::forward::{MOVED, Silent};
use super::locks::{Lock, Locks, Standing};
use super::names::{home_of, is_of};
use crate::access::Caller;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::OwnedRwLockReadGuard;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Locks that move at a time.
const AT_ONCE: usize = 64;
/// The pause before those are tried again that have stayed.
const PAUSE: Duration = Duration::from_millis(250);
/// How long a session may take to end: its calls have been answered.
const QUITS: Duration = Duration::from_secs(2);
/// How long it is waited until the queue names the new home.
const SHOWN: Duration = Duration::from_secs(5);

/// A lock with which a call works: it does not move meanwhile.
pub(super) struct Used {
    lock: Arc<Lock>,
    _stays: OwnedRwLockReadGuard<bool>,
}

impl Deref for Used {
    type Target = Lock;

    fn deref(&self) -> &Lock {
        &self.lock
    }
}

/// Waits while the lock moves; none if it has.
pub(super) async fn used(lock: Arc<Lock>) -> Option<Used> {
    let stays = lock.moved.clone().read_owned().await;
    (!*stays).then_some(Used {
        lock,
        _stays: stays,
    })
}

/// Gives the locks of this node away whenever it drains, until it stops.
pub(super) async fn hand_over(locks: Arc<Locks>) {
    let porter = locks.store.porter.clone();
    loop {
        porter.handing_over().await;
        // In clear no node is known to another, and none would take a lock over for its owner: they
        // are resumed by who asks for them.
        if porter.access.is_enabled() && porter.tls.is_none() {
            sleep(PAUSE).await;
            continue;
        }
        let targets = match locks.all().is_empty() {
            true => Vec::new(),
            false => locks.targets().await,
        };
        if !targets.is_empty() {
            let mut moving = JoinSet::new();
            for (at, lock) in locks.all().into_iter().enumerate() {
                if moving.len() >= AT_ONCE {
                    moving.join_next().await;
                }
                let mut targets = targets.clone();
                let by = at % targets.len();
                targets.rotate_left(by);
                moving.spawn(locks.clone().move_on(lock, targets));
            }
            while moving.join_next().await.is_some() {}
        }
        sleep(PAUSE).await;
    }
}

/// A call that the node makes, in that name.
fn internal(caller: Caller, target: String, headers: HeaderMap) -> Call {
    Call {
        caller,
        method: Method::GET,
        target,
        v1: false,
        path: Vec::new(),
        query: Vec::new(),
        headers,
        raw: Bytes::new(),
        hops: 0,
        moved: None,
    }
}

impl Locks {
    /// The REST faces that answer of nodes which do not drain: those of this site, or else all.
    async fn targets(&self) -> Vec<String> {
        let known = self.store.porter.roster.known();
        let stays = known.nodes.iter().filter(|node| {
            node.name != self.store.porter.node
                && !known.drains(node.name)
                && !node.addresses.rest.is_empty()
        });
        let (near, far): (Vec<_>, Vec<_>) =
            stays.partition(|node| node.site == self.store.porter.home);
        for nodes in [near, far] {
            let mut found = Vec::new();
            for node in nodes {
                let asked = internal(
                    Caller::NODE,
                    "/MUSIC/rest/v2/version".into(),
                    HeaderMap::new(),
                );
                let address = node.addresses.rest.clone();
                if self.forward.send(&address, &asked).await.is_ok() {
                    found.push(address);
                }
            }
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    /// Gives one lock to the first of these nodes that takes it, if it can be given away now.
    async fn move_on(self: Arc<Self>, lock: Arc<Lock>, targets: Vec<String>) {
        // From here on no call works with it, and none takes it for one that has no home.
        let mut moved = lock.moved.write().await;
        if *moved || !lock.lives() || !self.may_move(&lock).await {
            return;
        }
        lock.moves.store(true, Ordering::Release);
        let kept = lock.place().kept;
        if timeout(QUITS, kept.quit()).await.is_err() {
            // What it may still do is fenced.
            tracing::info!(lock = %lock.id(), "a lock moves whose session has not ended yet");
        }
        let taken = self.give(&lock, &targets).await;
        *moved = true;
        self.forget(&lock);
        if taken {
            return;
        }
        tracing::warn!(lock = %lock.id(), "no other node has taken a lock over: resumed here");
        if let Ok(entries) = self.store.queue(lock.key().clone()).await
            && let Some(entry) = entries.iter().find(|entry| is_of(entry, lock.number))
        {
            // A call that finds it without a home resumes it otherwise.
            let here = (entry, lock.idle());
            let _ = self.resume(&kept.owner(), lock.name(), lock.number, here);
        }
    }

    /// Has the first of these nodes take over a lock whose session has ended. Whether one has.
    async fn give(&self, lock: &Lock, targets: &[String]) -> bool {
        for address in targets {
            match self.forward.send(address, &self.takeover(lock)).await {
                // Who may not ask has not been heard.
                Ok(answer) if matches!(answer.status, 401 | 403) => {}
                Ok(_) | Err(Silent::Unknown) if self.has_moved(lock).await => return true,
                _ => {}
            }
        }
        false
    }

    /// Whether nothing stands in the way.
    async fn may_move(&self, lock: &Lock) -> bool {
        if lock.is_promoting() {
            return false;
        }
        if !lock.is_settled().await {
            // What it waits for may have come; a put in doubt is made again.
            let stands = self.standing(lock).await;
            let settles = stands.is_ok_and(|stands| stands != Standing::Gone);
            return settles && self.settle(lock).await;
        }
        true
    }

    /// The call that has another node take a lock over.
    fn takeover(&self, lock: &Lock) -> Call {
        let id = lock.id();
        let id = utf8_percent_encode(&id, NON_ALPHANUMERIC);
        let mut headers = HeaderMap::new();
        let told = format!("{} {}", self.me(), lock.idle().as_millis());
        // Digits and a space are a header's value.
        if let Ok(told) = HeaderValue::from_str(&told) {
            headers.insert(HeaderName::from_static(MOVED), told);
        }
        // As whoever made it: the receiver believes a node of its cluster.
        let owner = lock.place().kept.owner();
        internal(owner, format!("/MUSIC/rest/v2/locks/acquire/{id}"), headers)
    }

    /// Whether the queue names another home within a while, or does not know the lock any more.
    async fn has_moved(&self, lock: &Lock) -> bool {
        let until = Instant::now() + SHOWN;
        loop {
            if let Ok(entries) = self.store.queue(lock.key().clone()).await {
                let mut own = entries.iter().filter(|entry| is_of(entry, lock.number));
                if own.all(|entry| home_of(entry.session) != Some(self.me())) {
                    return true;
                }
            }
            if Instant::now() >= until {
                return false;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}
